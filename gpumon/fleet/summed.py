"""A fleet with its rows and their sum. A host whose figures cannot be put together costs its own row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from gpumon.fleet.rows import FleetRow, by_host, by_model, total_row
from gpumon.fleet.snapshot import FleetSnapshot, HostShown, HostState
from gpumon.readings.missing import NOT_SUPPORTED
from gpumon.readings.snapshot import FaultShown, Host, Self, Snapshot
from gpumon.readings.text import clean

_FAILED: Final = "gpumon failed on the figures of this host, please report: {}"


class Summed(NamedTuple):
    """One moment of a fleet, and all rows over it."""

    fleet: FleetSnapshot
    hosts: list[FleetRow]
    """By name."""
    models: list[FleetRow]
    total: FleetRow


def summed(fleet: FleetSnapshot, prices: Mapping[str, float]) -> Summed:
    """The rows. Whatever the figures of a host are, the others have theirs: `fleet` says which host has none."""
    try:
        return _rows(fleet, prices)
    except Exception:  # which host it was is looked for below
        return _rows(_sound(fleet, prices), prices)


def _rows(fleet: FleetSnapshot, prices: Mapping[str, float]) -> Summed:
    hosts = by_host(fleet, prices)
    return Summed(fleet, hosts, by_model(fleet, prices), total_row(hosts))


def _sound(fleet: FleetSnapshot, prices: Mapping[str, float]) -> FleetSnapshot:
    """The fleet without the figures of hosts that cannot be summed, and a notice of each."""
    wrong: dict[str, str] = {}
    for host in fleet.hosts:
        why = _why_not(host, prices)
        if why:
            wrong[host.name] = why
    if not wrong:  # each alone is well: no sum of them is
        for host in fleet.hosts:
            wrong[host.name] = "its figures cannot be added to those of the others"
    hosts = []
    notices = []
    for host in fleet.hosts:
        if host.name in wrong:
            notice = FaultShown(clean(host.name), _FAILED.format(wrong[host.name]), fleet.time)
            notices.append(notice)
            hosts.append(_blank(host, notice))
        else:
            hosts.append(host)
    return msgspec.structs.replace(fleet, hosts=tuple(hosts), faults=(*fleet.faults, *notices))


def _why_not(host: HostShown, prices: Mapping[str, float]) -> str:
    """Why the figures of a host cannot be put together; empty where they can."""
    try:
        _rows(FleetSnapshot("", 0.0, 0.0, (host,)), prices)
    except Exception as error:  # figures come from another host: whatever they break, only that host is blank
        return clean(f"{type(error).__name__}: {error}", 200)
    return ""


def _blank(host: HostShown, why: FaultShown) -> HostShown:
    """The host with nothing but what is wrong."""
    nothing = Snapshot(
        time=host.snapshot.time,
        wall_s=host.snapshot.wall_s,
        simulated=False,
        interval_s=host.snapshot.interval_s,
        host=Host(host.name, "", "", NOT_SUPPORTED, NOT_SUPPORTED, NOT_SUPPORTED),
        self_cost=Self(NOT_SUPPORTED, NOT_SUPPORTED),
        faults=(why,),
    )
    return msgspec.structs.replace(host, snapshot=nothing, state=HostState.STALE, latencies={})

"""A fleet with its rows and their sum. A host whose figures cannot be summed costs its own row alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from gpumon.fleet.row import FleetRow
from gpumon.fleet.rows import by_host, by_model, total_row
from gpumon.fleet.snapshot import FleetSnapshot, HostShown, HostState
from gpumon.readings.frame import HostReading
from gpumon.readings.missing import NOT_SUPPORTED
from gpumon.readings.snapshot import FaultShown, Self, Snapshot
from gpumon.readings.text import clean

_FAILED: Final = "gpumon failed on the figures of this host, please report: {}"


class FleetSums(NamedTuple):
    """One moment of a fleet, and all rows over it."""

    fleet: FleetSnapshot
    hosts: list[FleetRow]
    """By name."""
    models: list[FleetRow]
    total: FleetRow


def sum_fleet(fleet: FleetSnapshot, prices: Mapping[str, float]) -> FleetSums:
    """The rows over a fleet.

    A host whose figures break the sums is blank in them: the `fleet` of the result has it so, with a notice.
    """
    try:
        return _rows(fleet, prices)
    except Exception:  # figures of other hosts may lead to any; `_without_unsummable` finds whose
        return _rows(_without_unsummable(fleet, prices), prices)


def _rows(fleet: FleetSnapshot, prices: Mapping[str, float]) -> FleetSums:
    """The rows over a fleet. Raises whatever figures that cannot be summed lead to."""
    hosts = by_host(fleet, prices)
    return FleetSums(fleet, hosts, by_model(fleet, prices), total_row(hosts))


def _without_unsummable(fleet: FleetSnapshot, prices: Mapping[str, float]) -> FleetSnapshot:
    """The fleet without the figures of hosts that cannot be summed, and a notice of each."""
    reasons: dict[str, str] = {}
    for host in fleet.hosts:
        reason = _failure(host, prices)
        if reason:
            reasons[host.name] = reason
    if not reasons:  # each alone can be summed: not all of them together
        for host in fleet.hosts:
            reasons[host.name] = "its figures cannot be added to those of the others"
    hosts = []
    notices = []
    for host in fleet.hosts:
        if host.name in reasons:
            notice = FaultShown(clean(host.name), _FAILED.format(reasons[host.name]), fleet.time)
            notices.append(notice)
            hosts.append(_blank(host, notice))
        else:
            hosts.append(host)
    return msgspec.structs.replace(fleet, hosts=tuple(hosts), faults=(*fleet.faults, *notices))


def _failure(host: HostShown, prices: Mapping[str, float]) -> str:
    """Why the figures of a host alone cannot be summed; empty where they can."""
    try:
        _rows(FleetSnapshot("", 0.0, 0.0, (host,)), prices)
    except Exception as error:  # figures come from another host: whatever they break, only that host is blank
        return clean(f"{type(error).__name__}: {error}", 200)
    return ""


def _blank(host: HostShown, notice: FaultShown) -> HostShown:
    """The host with nothing but the notice of what is wrong."""
    nothing = Snapshot(
        time=host.snapshot.time,
        wall_s=host.snapshot.wall_s,
        simulated=False,
        interval_s=host.snapshot.interval_s,
        host=HostReading(host.name),
        self_cost=Self(NOT_SUPPORTED, NOT_SUPPORTED),
        faults=(notice,),
    )
    return msgspec.structs.replace(host, snapshot=nothing, state=HostState.STALE, latencies={})

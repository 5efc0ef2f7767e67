"""A fleet as one machine, for sizing: one snapshot with the GPUs and engines of all hosts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from gpumon.fleet.snapshot import FleetSnapshot, HostShown, HostState
from gpumon.readings.flat import replace_fields
from gpumon.readings.frame import HostReading
from gpumon.readings.missing import NOT_SUPPORTED
from gpumon.readings.snapshot import Engine, Gpu, Self, Snapshot


@lru_cache(maxsize=2)
def whole_fleet(fleet: FleetSnapshot) -> Snapshot:
    """All GPUs and engines of the hosts that are there: each GPU with its host and an index of its own.

    Engines are named `host/name` and have the host before their URL, too: two hosts may have engines of one URL.
    Verdicts, replicas and faults stay with the hosts. The same fleet gives the same object.
    """
    gpus: list[Gpu] = []
    engines: list[Engine] = []
    for host in fleet.hosts:
        if host.state is not HostState.GONE:
            first = len(gpus)
            gpus += _gpus(host, first)
            engines += _engines(host, first)
    return Snapshot(
        time=fleet.time,
        wall_s=fleet.wall_s,
        simulated=any(host.snapshot.simulated for host in fleet.hosts),
        interval_s=fleet.interval_s,
        host=HostReading(),
        self_cost=Self(NOT_SUPPORTED, NOT_SUPPORTED),
        gpus=tuple(gpus),
        engines=tuple(engines),
    )


def _indices(host: HostShown, first: int) -> dict[int, int]:
    """Index on the host -> index in the fleet, from `first` on; a MIG slice has that of its parent."""
    host_indices = dict.fromkeys(gpu.reading.index for gpu in host.snapshot.gpus)
    return {index: first + place for place, index in enumerate(host_indices)}


def _gpus(host: HostShown, first: int) -> Iterator[Gpu]:
    """The GPUs of a host under their host and their indices in the fleet."""
    indices = _indices(host, first)
    for gpu in host.snapshot.gpus:
        names = tuple(f"{host.name}/{name}" for name in gpu.engines)
        yield replace_fields(gpu, {"index": indices[gpu.reading.index], "host": host.name, "engines": names})


def _engines(host: HostShown, first: int) -> Iterator[Engine]:
    """The engines of a host under their names and URLs in the fleet."""
    indices = _indices(host, first)
    for engine in host.snapshot.engines:
        gpus = tuple(indices[index] for index in engine.hardware.gpus if index in indices)
        names = {"name": f"{host.name}/{engine.name}", "url": f"{host.name}/{engine.url}"}
        yield replace_fields(engine, {**names, "gpus": gpus})

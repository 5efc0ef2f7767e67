"""The packing of a sizing in short: equal GPUs of a server and equal servers are told once, with how many there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from gpumon.readings.missing import Missing
from gpumon.sizing.answer import GpuSlot, PlacedServer, WorkloadPlan


class SameGpus(msgspec.Struct, frozen=True):
    """GPUs of one server on which the same instances stand."""

    times: int
    """How many such GPUs, or groups of GPUs, the server has."""
    gpus: int
    """GPUs of one group: more than 1 where an instance stands on several."""
    workloads: tuple[int, ...]
    """Indices in `workloads`, one for each instance, the largest first; none: the GPU is free."""
    memory_bytes: float
    """Taken on each GPU."""
    busy_ratio: float
    """Sum of the busy shares that are known, on each GPU."""


class SameServers(msgspec.Struct, frozen=True):
    """Servers that are filled alike."""

    times: int
    """How many there are."""
    shape: int
    """Index of the [[server]] of the scenario."""
    gpus: int
    """GPUs of one such server."""
    filled: tuple[SameGpus, ...]


def grouped(layout: Sequence[PlacedServer], workloads: Sequence[WorkloadPlan]) -> tuple[SameServers, ...]:
    """The servers of a layout, alike ones once, in the order of the layout."""
    order = _largest_first(workloads)
    groups: dict[tuple[int, tuple[tuple[int, tuple[int, ...], int], ...]], SameServers] = {}
    for server in layout:
        filled = tuple(_filled(server.gpus, order))
        key = server.shape, tuple((same.gpus, same.workloads, same.times) for same in filled)
        before = groups.get(key)
        times = 1 if before is None else before.times + 1
        groups[key] = SameServers(times, server.shape, len(server.gpus), filled)
    return tuple(groups.values())


def _largest_first(workloads: Sequence[WorkloadPlan]) -> dict[int, tuple[float, int]]:
    sizes = (0.0 if isinstance(each.memory_bytes, Missing) else each.memory_bytes for each in workloads)
    return {at: (-size, at) for at, size in enumerate(sizes)}


def _filled(slots: Sequence[GpuSlot], order: dict[int, tuple[float, int]]) -> Iterator[SameGpus]:
    same: dict[tuple[int, tuple[int, ...]], SameGpus] = {}
    for first, gpus in _groups(slots):
        workloads = tuple(sorted(first.workloads, key=lambda at: order.get(at, (0.0, at))))
        key = gpus, workloads
        times = same[key].times + 1 if key in same else 1
        same[key] = SameGpus(times, gpus, workloads, first.memory_bytes, first.busy_ratio)
    yield from sorted(same.values(), key=lambda each: (not each.workloads, -each.gpus))


def _groups(slots: Sequence[GpuSlot]) -> Iterator[tuple[GpuSlot, int]]:
    """Each GPU, or each group of GPUs that hold one instance together, by its first GPU."""
    sizes: dict[object, list[GpuSlot]] = {}
    for at, slot in enumerate(slots):
        sizes.setdefault(("gpu", at) if slot.group < 0 else ("group", slot.group, slot.workloads), []).append(slot)
    for members in sizes.values():
        yield members[0], len(members)

"""What a placement is held against: its rules one by one, and the best there is, found by trying everything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from gpumon.sizing.answer import GpuSlot, PlacedServer
from gpumon.sizing.placement import Block, Placement, Shape

CLOSE = 1 + 2e-9
Gpu = tuple[float, float, int]
"""Memory and busy share that are left, and whether something is on it."""
Domain = tuple[Gpu, ...]
Rack = tuple[Domain, ...]


def assert_sound(placed: Placement, blocks: Sequence[Block], shapes: Sequence[Shape], busy: bool) -> None:
    """All rules, for a placement of blocks with one workload each that is drawn whole."""
    assert len(placed.servers) == placed.servers_used == sum(placed.servers_by_shape)
    assert placed.least_servers <= placed.servers_used
    assert placed.least_gpus <= placed.gpus == sum(bool(slot.workloads) for slot in _slots(placed))
    by_workload = {block.workload: block for block in blocks}
    for server in placed.servers:
        _assert_server(server, by_workload, shapes[server.shape], busy)
    for at, shape in enumerate(shapes):
        assert placed.servers_by_shape[at] == sum(server.shape == at for server in placed.servers)
        assert not shape.count or placed.servers_by_shape[at] <= shape.count
    seen = Counter(workload for slot in _slots(placed) for workload in slot.workloads)
    missing = dict(placed.unplaced)
    for workload, block in by_workload.items():
        stands = max(0, block.count) - missing.get(workload, 0)
        assert seen[workload] == stands * block.gpus
        assert (workload in missing) == bool(dict(placed.problems).get(workload))
    holding = Counter(workload for slot in _slots(placed) for workload in set(slot.workloads))
    assert dict(placed.gpus_of) == dict(holding)
    assert bool(placed.problem) == bool(placed.unplaced)


def _slots(placed: Placement) -> Iterator[GpuSlot]:
    return (slot for server in placed.servers for slot in server.gpus)


def _assert_server(server: PlacedServer, blocks: dict[int, Block], shape: Shape, busy: bool) -> None:
    assert len(server.gpus) == shape.gpus
    groups: dict[int, list[int]] = {}
    for at, slot in enumerate(server.gpus):
        on_it = [blocks[workload] for workload in slot.workloads]
        memory = sum(block.memory_bytes / block.gpus for block in on_it)
        assert abs(memory - slot.memory_bytes) <= 1e-6 * (1 + memory)
        assert memory <= shape.memory_bytes * CLOSE
        if any(block.gpus > 1 for block in on_it):
            assert len(on_it) == 1
            assert slot.group >= 0
            groups.setdefault(slot.group, []).append(at)
            continue
        assert slot.group == -1
        if busy and len(on_it) > 1:
            assert all(block.busy_ratio is not None for block in on_it)
            assert sum(block.busy_ratio or 0 for block in on_it) <= CLOSE
    for places in groups.values():
        kinds = {server.gpus[at].workloads for at in places}
        assert len(kinds) == 1
        block = blocks[kinds.pop()[0]]
        together = sum(size // block.tp for size in shape.domains) * block.tp >= block.gpus
        assert len(places) == block.gpus if together else len(places) <= block.gpus
        edges = _edges(shape)
        per_domain = Counter(next(number for number, end in enumerate(edges) if at < end) for at in places)
        assert all(number % block.tp == 0 for number in per_domain.values()), "a TP group lies in two NVLink domains"


def _edges(shape: Shape) -> list[int]:
    ends, sum_ = [], 0
    for size in shape.domains:
        sum_ += size
        ends.append(sum_)
    return ends


def fewest_gpus(blocks: Sequence[Block], room: float, busy: bool) -> int:
    """GPUs for instances of one GPU, over all partitions of them."""
    items = [block for block in blocks if block.gpus == 1 for _ in range(block.count)]
    parts = ([item for at, item in enumerate(items) if mask >> at & 1] for mask in range(1 << len(items)))
    fits = [_shares(part, room, busy) for part in parts]
    best = [0] * len(fits)
    for mask in range(1, len(fits)):
        lowest = mask & -mask
        rest = part = mask ^ lowest
        best[mask] = len(items)
        while True:
            if fits[part | lowest]:
                best[mask] = min(best[mask], 1 + best[mask ^ part ^ lowest])
            if not part:
                break
            part = (part - 1) & rest
    return best[-1]


def _shares(items: Sequence[Block], room: float, busy: bool) -> bool:
    if sum(item.memory_bytes for item in items) > room * CLOSE:
        return False
    if not busy or len(items) < 2:
        return True
    return all(item.busy_ratio is not None for item in items) and sum(item.busy_ratio or 0 for item in items) <= CLOSE


class Unit(NamedTuple):
    """What stands in one server: an instance, or a stage of one that is spread."""

    gpus: int
    tp: int
    memory: float
    """Of a GPU; all of it where there are several."""
    share: float


def fewest_servers(blocks: Sequence[Block], shape: Shape, busy: bool) -> int:
    """Servers of one shape, over all ways to put every instance on its GPUs."""
    units: list[Unit] = []
    for block in blocks:
        if block.gpus == 1:
            share = 1.0 if block.busy_ratio is None else block.busy_ratio
            units += [Unit(1, 1, block.memory_bytes, share if busy else 0.0)] * block.count
        else:
            stages = block.gpus // block.tp
            spread = sum(size // block.tp for size in shape.domains) < stages
            unit = Unit(block.tp if spread else block.gpus, block.tp, shape.memory_bytes, 2.0)
            units += [unit] * (block.count * (stages if spread else 1))
    empty: Rack = tuple(((shape.memory_bytes, 1.0, 0),) * size for size in shape.domains)
    servers = 0
    while not _possible(tuple(sorted(units, reverse=True)), (empty,) * servers):
        servers += 1
    return servers


@cache
def _possible(units: tuple[Unit, ...], racks: tuple[Rack, ...]) -> bool:
    if not units:
        return True
    unit = units[0]
    for at, rack in enumerate(racks):
        if rack in racks[:at]:
            continue
        for after in _ways(unit, rack, unit.gpus // unit.tp):
            if _possible(units[1:], tuple(sorted((*racks[:at], after, *racks[at + 1 :])))):
                return True
    return False


def _ways(unit: Unit, rack: Rack, groups: int) -> Iterator[Rack]:
    """A server after the unit stands in it, in each way that differs."""
    if not groups:
        yield rack
        return
    for at, domain in enumerate(rack):
        if domain in rack[:at]:
            continue
        if unit.share > 1:
            free = [gpu for gpu in domain if not gpu[2]]
            if len(free) < unit.tp:
                continue
            taken = (*(gpu for gpu in domain if gpu[2]), *((0.0, 0.0, 1),) * unit.tp, *free[unit.tp :])
            yield from _ways(unit, _with(rack, at, taken), groups - 1)
            continue
        for index, (memory, share, _) in enumerate(domain):
            if unit.memory <= memory + 1e-9 * unit.memory and unit.share <= share + 1e-9:
                left = (memory - unit.memory, share - unit.share, 1)
                yield _with(rack, at, (*domain[:index], left, *domain[index + 1 :]))


def _with(rack: Rack, at: int, domain: Domain) -> Rack:
    return tuple(sorted((*rack[:at], tuple(sorted(domain)), *rack[at + 1 :])))


def best_fit_decreasing(blocks: Sequence[Block], room: float, busy: bool) -> int:
    """GPUs that textbook best fit decreasing takes for instances of one GPU, by memory."""
    items = [block for block in blocks if block.gpus == 1 for _ in range(block.count)]
    bins: list[list[Block]] = []
    for item in sorted(items, key=lambda block: -block.memory_bytes):
        fitting = [each for each in bins if _shares([*each, item], room, busy)]
        if fitting:
            max(fitting, key=lambda each: sum(block.memory_bytes for block in each)).append(item)
        else:
            bins.append([item])
    return len(bins)

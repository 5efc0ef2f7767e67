"""What a placement is held against: its rules one by one, and the best there is, found by trying everything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from gpumon.sizing.answer import GpuSlot, PlacedServer
from gpumon.sizing.placement import InstanceBlock, Placement, ServerShape

CLOSE = 1 + 2e-9


def of(placed: Placement, name: str) -> tuple[tuple[int, object], ...]:
    """One figure of each workload, where it is not 0 or empty."""
    return tuple((at, getattr(each, name)) for at, each in placed.workloads.items() if getattr(each, name))


def problem(placed: Placement) -> str:
    """Of the first workload that has one."""
    return next((each.problem for each in placed.workloads.values() if each.problem), "")


def assert_sound(placed: Placement, blocks: Sequence[InstanceBlock], shapes: Sequence[ServerShape], busy: bool) -> None:
    """All rules, for a placement of blocks with one workload each that is drawn whole."""
    assert len(placed.servers) == sum(placed.servers_by_shape)
    assert placed.least_servers <= sum(placed.servers_by_shape)
    assert placed.least_gpus <= placed.gpus == sum(bool(slot.workloads) for slot in _slots(placed))
    by_workload = {block.workload: block for block in blocks}
    for server in placed.servers:
        _assert_server(server, by_workload, shapes[server.shape], busy)
    for at, shape in enumerate(shapes):
        assert placed.servers_by_shape[at] == sum(server.shape == at for server in placed.servers)
        assert not shape.count or placed.servers_by_shape[at] <= shape.count
    seen = Counter(workload for slot in _slots(placed) for workload in slot.workloads)
    missing = dict(of(placed, "unplaced"))
    for workload, block in by_workload.items():
        stands = max(0, block.count) - missing.get(workload, 0)
        assert seen[workload] == stands * block.gpus
        assert (workload in missing) == bool(dict(of(placed, "problem")).get(workload))
    holding = Counter(workload for slot in _slots(placed) for workload in set(slot.workloads))
    assert dict(of(placed, "gpus")) == dict(holding)
    assert bool(problem(placed)) == bool(missing)


def _slots(placed: Placement) -> Iterator[GpuSlot]:
    return (slot for server in placed.servers for slot in server.gpus)


def _assert_server(server: PlacedServer, blocks: dict[int, InstanceBlock], shape: ServerShape, busy: bool) -> None:
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


def _edges(shape: ServerShape) -> list[int]:
    ends, sum_ = [], 0
    for size in shape.domains:
        sum_ += size
        ends.append(sum_)
    return ends


def fewest_gpus(blocks: Sequence[InstanceBlock], room: float, busy: bool) -> int:
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


def _shares(items: Sequence[InstanceBlock], room: float, busy: bool) -> bool:
    if sum(item.memory_bytes for item in items) > room * CLOSE:
        return False
    if not busy or len(items) < 2:
        return True
    return all(item.busy_ratio is not None for item in items) and sum(item.busy_ratio or 0 for item in items) <= CLOSE

"""What stands on which GPU of which server: equal servers counted first, drawn one by one afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpumon.sizing.answer import GpuSlot, PlacedServer
from gpumon.sizing.domains import seat
from gpumon.sizing.packing import Block, Content, Filled, Shape, spread


class Standing(NamedTuple):
    """Equal servers."""

    whole: Content
    """Instances, or stages of them, of several GPUs."""
    shared: tuple[Content, ...]
    """GPUs with instances of one GPU."""
    times: int


def standing(filled: Filled, shape: Shape) -> list[Standing]:
    """All servers: those with instances of several GPUs first, the fullest first; shared GPUs fill what is left."""
    bins = [list(run) for run in reversed(filled.shared)]
    rows: list[Standing] = []
    runs = [*filled.whole, ((), filled.servers - sum(times for _, times in filled.whole))]
    for content, run in runs:
        free = shape.gpus - sum(number * unit_gpus(filled.blocks[at], shape) for at, number in content)
        left = run
        while left > 0:
            shared, times = _draw(bins, free, left)
            rows.append(Standing(content, shared, times))
            left -= times
    return rows


def _draw(bins: list[list[object]], free: int, servers: int) -> tuple[tuple[Content, ...], int]:
    """Shared GPUs for as many equal servers as can be, off the end of the list."""
    if not bins or not free:
        return (), servers
    content, number = bins[-1]
    assert isinstance(content, tuple)
    assert isinstance(number, int)
    times = min(servers, number // free)
    if times:
        bins[-1][1] = number - times * free
        if number == times * free:
            bins.pop()
        return (content,) * free, times
    bins.pop()
    rest, _ = _draw(bins, free - number, 1)
    return ((content,) * number + rest), 1


def unit_gpus(block: Block, shape: Shape) -> int:
    """GPUs of one server that are taken at once: those of an instance, or of a stage where instances are spread."""
    return block.tp if spread(block, shape) else block.gpus


def most_on_one(rows: Sequence[Standing], blocks: Sequence[Block], shape: Shape) -> dict[int, int]:
    """Instances of each workload that the loss of one server costs at most."""
    most: dict[int, int] = {}
    for row in rows:
        here: dict[int, int] = {}
        for at, number in (item for content in (row.whole, *row.shared) for item in content):
            block = blocks[at]
            if block.gpus > 1 and spread(block, shape):
                stages = block.gpus // block.tp
                number = min(number, block.count, (number + stages - 2) // stages + 1)
            here[block.workload] = here.get(block.workload, 0) + number
        for workload, number in here.items():
            most[workload] = max(most.get(workload, 0), number)
    return most


def gpus_of(rows: Sequence[Standing], blocks: Sequence[Block], shape: Shape) -> dict[int, int]:
    """GPUs that hold at least one instance of each workload."""
    gpus: dict[int, int] = {}
    for row in rows:
        for at, number in row.whole:
            block = blocks[at]
            gpus[block.workload] = gpus.get(block.workload, 0) + number * unit_gpus(block, shape) * row.times
        for content in row.shared:
            for workload in {blocks[at].workload for at, _ in content}:
                gpus[workload] = gpus.get(workload, 0) + row.times
    return gpus


def servers_of(rows: Sequence[Standing], blocks: Sequence[Block], least: int = 1) -> dict[int, int]:
    """Servers that hold an instance of each workload; counted are those that hold at least `least` workloads."""
    servers: dict[int, int] = {}
    for row in rows:
        here = {blocks[at].workload for content in (row.whole, *row.shared) for at, _ in content}
        for workload in here if len(here) >= least else ():
            servers[workload] = servers.get(workload, 0) + row.times
    return servers


def draw(rows: Sequence[Standing], blocks: Sequence[Block], shape: Shape, index: int, most: int) -> list[PlacedServer]:
    """The first `most` servers, GPU by GPU: GPUs of one domain stand side by side."""
    stages: dict[int, int] = {}
    servers: list[PlacedServer] = []
    for row in rows:
        times = min(row.times, most - len(servers))
        if any(spread(blocks[at], shape) for at, _ in row.whole):
            servers += [PlacedServer(index, tuple(_slots(row, blocks, shape, stages))) for _ in range(times)]
        elif times:
            servers += [PlacedServer(index, tuple(_slots(row, blocks, shape, stages)))] * times
    return servers


def _slots(row: Standing, blocks: Sequence[Block], shape: Shape, stages: dict[int, int]) -> Iterator[GpuSlot]:
    """The GPUs of one server. `stages` counts the stages of spread instances that are drawn already."""
    wanted: list[tuple[int, GpuSlot]] = []
    group = -1
    for at, number in row.whole:
        block = blocks[at]
        slot = GpuSlot((block.workload,), block.memory_bytes / block.gpus, _busy(block))
        of_instance = block.gpus // block.tp
        for unit in range(number if spread(block, shape) else number * of_instance):
            stage = stages.get(at, 0)
            stages[at] = stage + 1
            if unit == 0 or stage % of_instance == 0:
                group += 1
            wanted.append((block.tp, GpuSlot(slot.workloads, slot.memory_bytes, slot.busy_ratio, group)))
    wanted.sort(key=lambda item: -item[0])
    domains: list[list[GpuSlot]] = [[] for _ in shape.domains]
    for (size, slot), at in zip(wanted, seat(tuple(size for size, _ in wanted), shape.domains) or (), strict=True):
        domains[at] += [slot] * size
    drawn = {content: _shared_slot(content, blocks) for content in row.shared}
    shared = iter([drawn[content] for content in row.shared])
    for slots, size in sorted(zip(domains, shape.domains, strict=True), key=lambda pair: -pair[1]):
        while len(slots) < size:
            slots.append(next(shared, GpuSlot()))
        yield from slots


def _shared_slot(content: Content, blocks: Sequence[Block]) -> GpuSlot:
    """A GPU with instances of one GPU each."""
    return GpuSlot(
        tuple(sorted(blocks[at].workload for at, number in content for _ in range(number))),
        sum(blocks[at].memory_bytes * number for at, number in content),
        sum(_busy(blocks[at]) * number for at, number in content),
    )


def _busy(block: Block) -> float:
    """Unknown counts as nothing in the sum; by busy share such an instance is alone on its GPU."""
    return block.busy_ratio or 0.0

"""One shape of server: instances onto its GPUs, then GPUs and TP groups into servers; both as few as can be."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from gpumon.sizing.bins import Bin, Budget, Pattern, SizedBin
from gpumon.sizing.covering import Runs, cover
from gpumon.sizing.domains import DomainBin
from gpumon.sizing.ranges import MOST_GPUS

UNITS = 10**12
"""A GPU's memory, and its time, in whole numbers: sums are exact, in whatever order."""
SLACK = UNITS // 10**9
"""Instances that fill a GPU exactly fit, whatever floats make of it."""
CROWD = 1000
"""Instances that one GPU holds at most; an 80 GB GPU has no room for the contexts of more."""


class Block(msgspec.Struct, frozen=True):
    """Identical instances of one workload."""

    workload: int
    """Index in `Scenario.workload`; several blocks may share it."""
    count: int
    gpus: int
    """TP x PP of one instance."""
    tp: int
    memory_bytes: float
    """Of one whole instance."""
    busy_ratio: float | None = None
    """Share of its GPU that it keeps busy; None: not known, so by busy share it has a GPU of its own."""


class Shape(msgspec.Struct, frozen=True):
    """Servers of one kind."""

    gpus: int
    domain: int
    """GPUs of one NVLink domain, at most those of the server; 0: all of them."""
    memory_bytes: float
    """Usable, of one GPU."""
    count: int = 0
    """How many there are; 0: as many as it takes."""
    price_per_hour: float | None = None
    """Of a whole server."""

    @property
    def domains(self) -> tuple[int, ...]:
        """Sizes of a server's NVLink domains, the odd rest last."""
        size = min(self.domain, self.gpus) if self.domain > 0 else self.gpus
        whole, rest = divmod(self.gpus, size)
        return (size,) * whole + ((rest,) if rest else ())


Content = tuple[tuple[int, int], ...]
"""What is in a bin: (index of the block, items of it). Items are instances, or stages where an instance is spread."""
Filling = tuple[tuple[Content, int], ...]
"""Equal bins are one entry with their number, as there may be a million."""


class Filled(msgspec.Struct, frozen=True):
    """Blocks on servers of one shape."""

    blocks: tuple[Block, ...]
    shared: Filling
    """GPUs with instances of one GPU, the fullest first."""
    whole: Filling
    """Servers with instances of several GPUs, the fullest first. Shared GPUs fill them up and go on further ones."""
    gpus: int
    servers: int
    least_gpus: int
    least_servers: int


def misfit(block: Block, shape: Shape) -> str:
    """Why the shape holds no instance of the block; empty if it does."""
    if shape.gpus < 1 or not shape.memory_bytes > 0:
        return "the server has no GPU, or none whose memory is known"
    if shape.gpus > MOST_GPUS:
        return f"a server has {MOST_GPUS} GPUs at most, not {shape.gpus}"
    share, room = block.memory_bytes / block.gpus, shape.memory_bytes
    if share > room * (1 + 1e-9):
        per = "a GPU" if block.gpus == 1 else f"each of {block.gpus} GPUs"
        return f"an instance takes {share / 1e9:.4g} GB of {per}, of which {room / 1e9:.4g} GB are usable"
    if block.tp > shape.domains[0]:
        held = f"{shape.domains[0]} GPU" + "s" * (shape.domains[0] > 1)
        return f"TP {block.tp} takes {block.tp} GPUs of one NVLink domain, which has {held}"
    return ""


def spread(block: Block, shape: Shape) -> bool:
    """Its pipeline stages lie on several servers, because one is too small for them."""
    return sum(size // block.tp for size in shape.domains) * block.tp < block.gpus


def pack(blocks: Sequence[Block], shape: Shape, busy: bool, budget: Budget) -> Filled:
    """Blocks that fit the shape onto as many of its servers as they take.

    Sharing GPUs first is exact: instances of one GPU go on any GPU, so the fewest GPUs for them leave the most room.
    Servers follow: the fewest that hold the instances of several GPUs, or those that all the GPUs fill.
    """
    shared, shared_least = _pack_shared(blocks, shape, busy, budget)
    whole, whole_least = _pack_whole(blocks, shape, budget)
    taken = sum(block.count * block.gpus for block in blocks if block.gpus > 1)
    gpus = sum(times for _, times in shared) + taken
    least = shared_least + taken
    return Filled(
        tuple(blocks),
        shared,
        whole,
        gpus,
        max(sum(times for _, times in whole), math.ceil(gpus / shape.gpus)),
        least,
        max(whole_least, math.ceil(least / shape.gpus)),
    )


def _units(block: Block, memory_bytes: float, busy: bool) -> tuple[int, int]:
    """Memory and busy time that an instance takes of its GPU; rounded up, so that no sum is above the limit."""
    size = min(max(math.ceil(block.memory_bytes / memory_bytes * UNITS), UNITS // CROWD), UNITS + SLACK)
    if not busy:
        return size, 0
    ratio = block.busy_ratio
    if ratio is None or not ratio <= 1:
        return UNITS + SLACK, UNITS + SLACK
    return size, max(0, math.ceil(ratio * UNITS))


Queues = list[list[tuple[int, int]]]
"""For each type of item the (block, items) that it stands for."""


def _shared_bins(blocks: Sequence[Block], memory_bytes: float, busy: bool) -> tuple[SizedBin, Queues, Pattern]:
    """Instances of one GPU as items of few types."""
    kinds: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for at, block in enumerate(blocks):
        if block.gpus == 1 and block.count > 0:
            kinds.setdefault(_units(block, memory_bytes, busy), []).append((at, block.count))
    sizes = sorted(kinds, reverse=True)
    bins = SizedBin(sizes, (UNITS + SLACK, UNITS + SLACK if busy else 0))
    return bins, [kinds[size] for size in sizes], tuple(sum(n for _, n in kinds[size]) for size in sizes)


def fewest_shared(blocks: Sequence[Block], memory_bytes: float, busy: bool) -> int:
    """A lower bound, without a search, of the GPUs that instances of one GPU take."""
    bins, _, counts = _shared_bins(blocks, memory_bytes, busy)
    return bins.least(counts)


def _pack_shared(blocks: Sequence[Block], shape: Shape, busy: bool, budget: Budget) -> tuple[Filling, int]:
    """Instances of one GPU; and the fewest GPUs that any placement of them takes."""
    bins, queues, counts = _shared_bins(blocks, shape.memory_bytes, busy)
    runs, least = cover(bins, counts, budget)
    return _labelled(runs, queues, [size for size, _ in bins.sizes]), least


def _pack_whole(blocks: Sequence[Block], shape: Shape, budget: Budget) -> tuple[Filling, int]:
    """Instances of several GPUs; and the fewest servers that any placement of them takes."""
    kinds: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for at, block in enumerate(blocks):
        if block.gpus > 1 and block.count > 0:
            stages = block.gpus // block.tp
            if spread(block, shape):
                kinds.setdefault((block.tp, 1), []).append((at, block.count * stages))
            else:
                kinds.setdefault((block.tp, stages), []).append((at, block.count))
    groups = sorted(kinds, key=lambda kind: (kind[0] * kind[1], kind), reverse=True)
    sizes = [tp * stages for tp, stages in groups]
    bins: Bin
    if len(shape.domains) == 1:
        bins = SizedBin([(size, 0) for size in sizes], (shape.gpus, 0))
    else:
        bins = DomainBin(groups, shape.domains)
    queues = [kinds[group] for group in groups]
    runs, least = cover(bins, tuple(sum(count for _, count in queue) for queue in queues), budget)
    return _labelled(runs, queues, sizes), least


def _labelled(runs: Runs, queues: Queues, sizes: Sequence[int]) -> Filling:
    """Runs with the blocks that their items come from, one after the other; the fullest first."""
    queue = [list(reversed(entries)) for entries in queues]
    ordered = sorted(
        runs, key=lambda run: (-sum(n * size for n, size in zip(run[0], sizes, strict=True)), tuple(-n for n in run[0]))
    )
    filling: list[tuple[Content, int]] = []
    for pattern, times in ordered:
        while times:
            even = [queue[kind][-1][1] // taken for kind, taken in enumerate(pattern) if taken]
            same = max(1, min(times, *even)) if even else times
            content: dict[int, int] = {}
            for kind, taken in enumerate(pattern):
                for at, part in _draw(queue[kind], taken * same):
                    content[at] = content.get(at, 0) + part // same
            filling.append((tuple(sorted(content.items())), same))
            times -= same
    return tuple(filling)


def _draw(queue: list[tuple[int, int]], wanted: int) -> list[tuple[int, int]]:
    """Takes that many items off the end of a queue of (block, items)."""
    drawn = []
    while wanted:
        at, held = queue.pop()
        taken = min(held, wanted)
        drawn.append((at, taken))
        wanted -= taken
        if held > taken:
            queue.append((at, held - taken))
    return drawn

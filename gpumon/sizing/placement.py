"""Instances onto servers of one or several shapes: the fewest servers, and a bound that shows how good that is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import permutations
from typing import NamedTuple

import msgspec

from gpumon.sizing.answer import PlacedServer
from gpumon.sizing.bins import Budget
from gpumon.sizing.layout import draw, gpus_of, most_on_one, servers_of, standing, unit_gpus
from gpumon.sizing.packing import Block, Filled, Shape, fewest_shared, misfit, pack
from gpumon.sizing.scenario import Packing

__all__ = ["Block", "Placement", "Shape", "place"]

DRAWN_SERVERS = 256
"""Servers that are drawn GPU by GPU; all others are only counted."""
STEPS = 60_000
"""Default budget of the search: under 0.1 s of Python, and most answers take a tenth of it."""


class Placement(msgspec.Struct, frozen=True):
    """Instances on servers. `least_servers == servers_used` proves that no placement takes fewer."""

    servers: tuple[PlacedServer, ...] = ()
    """Drawn GPU by GPU, the fullest first and equal ones together; at most `DRAWN_SERVERS`."""
    servers_used: int = 0
    """All, with those that are not drawn."""
    servers_by_shape: tuple[int, ...] = ()
    gpus: int = 0
    """With at least one instance."""
    least_gpus: int = 0
    """No placement of the instances that are placed has fewer, on the shapes that are used."""
    least_servers: int = 0
    """The same for servers, in whatever order the shapes are filled."""
    gpus_of: tuple[tuple[int, int], ...] = ()
    """(workload, GPUs that hold at least one instance of it)."""
    servers_of: tuple[tuple[int, int], ...] = ()
    """(workload, servers that hold at least one instance of it)."""
    shared_servers_of: tuple[tuple[int, int], ...] = ()
    """(workload, servers that hold an instance of it and of another one)."""
    most_on_a_server: tuple[tuple[int, int], ...] = ()
    """(workload, instances of it that the loss of one server costs at most)."""
    unplaced: tuple[tuple[int, int], ...] = ()
    """(workload, instances that have no place)."""
    problems: tuple[tuple[int, str], ...] = ()
    """(workload, why); one for each that is not placed whole."""
    problem: str = ""
    """The first of them."""

    @property
    def drawn(self) -> bool:
        """Whether `servers` are all of them."""
        return len(self.servers) == self.servers_used


class _Stage(NamedTuple):
    """One shape, filled."""

    shape: int
    filled: Filled
    wanted: int
    """Servers for all that was to go on them, however few there are."""


Left = tuple[int, ...]
"""Instances of each block that have no place yet."""


def place(blocks: Sequence[Block], shapes: Sequence[Shape], packing: Packing, steps: int = STEPS) -> Placement:
    """As few servers as can be found; the same question always has the same answer.

    Rules. An instance of several GPUs has them alone; each TP group lies in one NVLink domain of one server. Its PP
    stages stay in one server where that can hold them, else they are spread over servers of one shape. Instances of
    one GPU share it while their memory fits ("memory"), and while their busy shares sum up to at most 1, too ("busy";
    an unknown busy share has a GPU of its own).

    Optimal with one shape while `steps` last: the fewest GPUs, then the fewest servers. `least_servers` says whether
    they did; beyond them it is best fit decreasing with what the search has found. With several shapes each is packed
    like that, but how instances are shared out is a rule of thumb: limited shapes (`count`) in the order given, each
    taking first what fits none that follows, then its fullest servers; the rest goes on unlimited shapes, each taking
    all that fits it, in the order that costs least, or in the order given if one has no price.
    """
    sound, problems, unplaced = _sound(blocks)
    stages, left = _fill(sound, shapes, packing == "busy", Budget(steps))
    for block, number in zip(sound, left, strict=True):
        if number:
            problems.setdefault(block.workload, _reason(block, number, shapes, stages))
            unplaced[block.workload] = unplaced.get(block.workload, 0) + number
    rows = [(stage, standing(stage.filled, shapes[stage.shape])) for stage in stages]
    servers: list[PlacedServer] = []
    for stage, row in rows:
        servers += draw(row, stage.filled.blocks, shapes[stage.shape], stage.shape, DRAWN_SERVERS - len(servers))
    least_gpus, least_servers = _least(stages, shapes, packing == "busy")
    return Placement(
        tuple(servers),
        sum(stage.filled.servers for stage in stages),
        tuple(sum(stage.filled.servers for stage in stages if stage.shape == at) for at in range(len(shapes))),
        sum(stage.filled.gpus for stage in stages),
        least_gpus,
        least_servers,
        _joined(gpus_of(row, stage.filled.blocks, shapes[stage.shape]) for stage, row in rows),
        _joined(servers_of(row, stage.filled.blocks) for stage, row in rows),
        _joined(servers_of(row, stage.filled.blocks, least=2) for stage, row in rows),
        _joined((most_on_one(row, stage.filled.blocks, shapes[stage.shape]) for stage, row in rows), most=True),
        tuple(sorted(unplaced.items())),
        tuple(sorted(problems.items())),
        next((text for _, text in sorted(problems.items())), ""),
    )


def _joined(parts: Iterable[dict[int, int]], most: bool = False) -> tuple[tuple[int, int], ...]:
    """Sums by workload over the shapes, or the largest of them."""
    joined: dict[int, int] = {}
    for part in parts:
        for workload, number in part.items():
            joined[workload] = max(joined.get(workload, 0), number) if most else joined.get(workload, 0) + number
    return tuple(sorted(joined.items()))


def _sound(blocks: Sequence[Block]) -> tuple[tuple[Block, ...], dict[int, str], dict[int, int]]:
    """Blocks that make sense; why others do not, and their instances; both by workload."""
    sound: list[Block] = []
    problems: dict[int, str] = {}
    unplaced: dict[int, int] = {}
    for block in blocks:
        if block.count <= 0:
            continue
        if block.gpus < 1 or block.tp < 1 or block.gpus % block.tp:
            problems.setdefault(block.workload, f"{block.gpus} GPUs of an instance are not TP {block.tp} times PP")
        elif not (math.isfinite(block.memory_bytes) and block.memory_bytes > 0):
            problems.setdefault(block.workload, "the memory of an instance is not known")
        else:
            sound.append(block)
            continue
        unplaced[block.workload] = unplaced.get(block.workload, 0) + block.count
    return tuple(sound), problems, unplaced


def _fill(
    blocks: tuple[Block, ...], shapes: Sequence[Shape], busy: bool, budget: Budget
) -> tuple[tuple[_Stage, ...], Left]:
    """The shapes one after the other, and what is left over."""
    left = tuple(block.count for block in blocks)
    stages: list[_Stage] = []
    unlimited = tuple(at for at, shape in enumerate(shapes) if shape.count <= 0)
    limited = [at for at, shape in enumerate(shapes) if shape.count > 0]
    for position, at in enumerate(limited):
        later = [shapes[other] for other in (*limited[position + 1 :], *unlimited)]
        captive = {index for index, block in enumerate(blocks) if all(misfit(block, shape) for shape in later)}
        left = _take(blocks, left, at, shapes[at], captive, busy, budget, stages)
    best: tuple[tuple[float, ...], list[_Stage], Left] | None = None
    for order in _orders(unlimited, shapes):
        tried, rest = list(stages), left
        for at in order:
            rest = _take(blocks, rest, at, shapes[at], set(), busy, budget, tried)
        missed = sum(number * block.gpus for number, block in zip(rest, blocks, strict=True))
        cost = sum(stage.filled.servers * (shapes[stage.shape].price_per_hour or 0.0) for stage in tried)
        key = (missed, cost, sum(stage.filled.servers for stage in tried))
        if best is None or key < best[0]:
            best = key, tried, rest
    return (tuple(best[1]), best[2]) if best else (tuple(stages), left)


def _orders(unlimited: tuple[int, ...], shapes: Sequence[Shape]) -> Iterable[tuple[int, ...]]:
    """Orders in which unlimited shapes are tried: all, if prices tell which is best; of many, by price of a GPU."""
    prices = {at: price for at in unlimited if (price := shapes[at].price_per_hour) is not None}
    if len(prices) < len(unlimited):
        return (unlimited,)
    if len(unlimited) <= 3:
        return permutations(unlimited)
    return (tuple(sorted(unlimited, key=lambda at: prices[at] / max(1, shapes[at].gpus))),)


def _take(
    blocks: tuple[Block, ...],
    left: Left,
    at: int,
    shape: Shape,
    captive: set[int],
    busy: bool,
    budget: Budget,
    stages: list[_Stage],
) -> Left:
    """Put what fits on one shape, as a stage more; returns what is left."""
    counts = tuple(0 if misfit(block, shape) else number for block, number in zip(blocks, left, strict=True))
    if not any(counts):
        return left
    filled = pack(_counted(blocks, counts), shape, busy, budget)
    wanted = filled.servers
    while shape.count > 0 and filled.servers > shape.count:
        counts = _cut(filled, shape, captive)
        filled = pack(_counted(blocks, counts), shape, busy, budget)
    if filled.servers:
        stages.append(_Stage(at, filled, wanted))
    return tuple(number - taken for number, taken in zip(left, counts, strict=True))


def _counted(blocks: tuple[Block, ...], counts: Left) -> tuple[Block, ...]:
    """The blocks with other counts."""
    return tuple(
        block if block.count == count else msgspec.structs.replace(block, count=count)
        for block, count in zip(blocks, counts, strict=True)
    )


def _cut(filled: Filled, shape: Shape, captive: set[int]) -> Left:
    """Instances of each block on as many servers as there are: with captive ones first, then the fullest."""
    kept = [0] * len(filled.blocks)
    free = shape.count * shape.gpus
    places = shape.count
    for filling, whole in ((filled.whole, True), (filled.shared, False)):
        for content, times in sorted(filling, key=lambda run: -sum(n for at, n in run[0] if at in captive)):
            taken = min(times, places if whole else free)
            for at, number in content:
                kept[at] += number * taken
                free -= number * taken * unit_gpus(filled.blocks[at], shape) if whole else 0
            places -= taken if whole else 0
            free -= 0 if whole else taken
    units = [block.gpus // unit_gpus(block, shape) for block in filled.blocks]
    return tuple(number // unit for number, unit in zip(kept, units, strict=True))


def _least(stages: tuple[_Stage, ...], shapes: Sequence[Shape], busy: bool) -> tuple[int, int]:
    """Bounds of GPUs and servers for what is placed. With several shapes each GPU counts as the largest of them."""
    if len(stages) == 1:
        return stages[0].filled.least_gpus, stages[0].filled.least_servers
    blocks = [block for stage in stages for block in stage.filled.blocks]
    room = max((shapes[stage.shape].memory_bytes for stage in stages), default=0.0)
    gpus = sum(block.count * block.gpus for block in blocks if block.gpus > 1)
    gpus += fewest_shared(blocks, room, busy)
    left, servers = gpus, 0
    for shape in sorted((shapes[stage.shape] for stage in stages), key=lambda shape: -shape.gpus):
        held = min(-(-left // shape.gpus), shape.count if shape.count > 0 else left)
        servers += held
        left = max(0, left - held * shape.gpus)
    return gpus, servers


def _reason(block: Block, number: int, shapes: Sequence[Shape], stages: tuple[_Stage, ...]) -> str:
    """Why instances of a block have no place."""
    if not shapes:
        return "there is no shape of server"
    reasons = [misfit(block, shape) for shape in shapes]
    fitting = [at for at, reason in enumerate(reasons) if not reason]
    if not fitting:
        return "; ".join(dict.fromkeys(reasons))
    text = f"{number} of {block.count} instances have no place: "
    wanted = {stage.shape: stage.wanted for stage in stages}
    at = fitting[-1]
    if block.gpus > max(shapes[at].count * shapes[at].gpus for at in fitting):
        return text + f"each takes {block.gpus} GPUs, and there are {shapes[at].count} servers of {shapes[at].gpus}"
    if len(shapes) == 1 and at in wanted:
        there = "is" if shapes[at].count == 1 else "are"
        return text + f"{wanted[at]} servers are needed, there {there} {shapes[at].count}"
    return text + f"the servers that fit them are full ({sum(shapes[at].count for at in fitting)})"

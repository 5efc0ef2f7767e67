"""Instances onto servers of one or several shapes: best fit decreasing over NVLink domains, with a lower bound."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import permutations
from typing import Final, NamedTuple

import msgspec

from gpumon.sizing.answer import GpuSlot, PlacedServer
from gpumon.sizing.scenario import MOST_GPUS, Packing

DRAWN_SERVERS: Final = 256
"""Servers that are drawn GPU by GPU; all others are only counted."""
UNITS: Final = 10**12
"""A GPU's memory, and its time, in whole numbers: sums are exact, in whatever order."""
SLACK: Final = UNITS // 10**9
"""Instances that fill a GPU exactly fit, whatever floats make of it."""
CROWD: Final = 1000
"""Instances that one GPU holds at most; an 80 GB GPU has no room for the contexts of more."""

_LEADS: Final = 4
"""Kinds that are tried as the second on a GPU; of crowds smaller than that, all numbers of the first."""
_FEW_KINDS: Final = 6
"""So many can be packed with each of them first; of more that takes too long for a keystroke."""


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


class Stands(msgspec.Struct):
    """Where the instances of one workload stand."""

    gpus: int = 0
    """That hold at least one of them."""
    servers: int = 0
    shared_servers: int = 0
    """Of these, those that hold an instance of another workload, too."""
    most_on_a_server: int = 0
    """Instances that the loss of one server costs at most."""
    unplaced: int = 0
    """Instances that have no place."""
    problem: str = ""
    """Why."""


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
    workloads: dict[int, Stands] = {}
    """By index; those with a block."""


Items = tuple[tuple[int, int], ...]
"""(index of a block, instances of it; stages where its instances are spread over servers)."""


Fullness = Callable[[int, int], int]
"""How full a GPU is by memory and busy time."""
_WAYS: Final[tuple[Fullness, ...]] = (lambda memory, busy: memory + busy, max, lambda memory, busy: 0)  # noqa: ARG005
"""Of the ways to fill a GPU the fullest in sum, the fullest in what is scarcer, the first (first fit)."""


class Run(msgspec.Struct):
    """Equal GPUs that are still to be given a server."""

    content: Items
    times: int


class Row(NamedTuple):
    """Equal servers."""

    slots: tuple[GpuSlot, ...]
    whole: Items
    """Of several GPUs."""
    shared: Items
    """Of one GPU."""
    times: int

    @property
    def used(self) -> int:
        """GPUs with an instance."""
        return sum(bool(slot.workloads) for slot in self.slots)


class Stage(NamedTuple):
    """One shape, filled."""

    shape: int
    rows: tuple[Row, ...]
    blocks: tuple[Block, ...]
    """With the instances that stand on it."""
    wanted: int
    """Servers for all that was to go on them, however few there are."""

    @property
    def servers(self) -> int:
        return sum(row.times for row in self.rows)


def place(blocks: Sequence[Block], shapes: Sequence[Shape], packing: Packing) -> Placement:
    """As few servers as best fit decreasing finds; the same question always has the same answer.

    An instance of several GPUs has them alone; each TP group lies in one NVLink domain of one server. Its PP stages
    stay in one server where that can hold them, else they are spread over servers of one shape. Instances of one GPU
    share it while their memory fits ("memory"), and while their busy shares sum up to at most 1, too ("busy"; an
    unknown busy share has a GPU of its own).

    Limited shapes (`count`) are filled first, in the order given, with what takes most GPUs; the rest goes on unlimited
    shapes, each taking all that fits it, in the order that costs least, or in the order given if one has no price.
    """
    stands: dict[int, Stands] = {}
    sound = tuple(_sound(blocks, stands))
    left = [block.count for block in sound]
    stages: list[Stage] = []
    limited = [at for at, shape in enumerate(shapes) if shape.count > 0]
    # What fits one limited shape alone has its room before others.
    for at in sorted(limited, key=lambda at: sum(bool(misfit(block, shapes[at])) for block in sound)):
        left = _take(sound, left, at, shapes, packing == "busy", stages)
    tried: list[tuple[int, float, int, int, list[Stage], list[int]]] = []
    for order in _orders(shapes):
        more, rest = list(stages), left
        for at in order:
            rest = _take(sound, rest, at, shapes, packing == "busy", more)
        missed = sum(number * block.gpus for number, block in zip(rest, sound, strict=True))
        cost = sum(stage.servers * (shapes[stage.shape].price_per_hour or 0.0) for stage in more)
        tried.append((missed, cost, sum(stage.servers for stage in more), len(tried), more, rest))
    if tried:
        *_, stages, left = min(tried, key=lambda one: one[:4])
    for block, number in zip(sound, left, strict=True):
        if number:
            _miss(stands, block.workload, number, _reason(block, number, shapes, stages))
    return _placement(stages, shapes, packing == "busy", stands)


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


def _miss(stands: dict[int, Stands], workload: int, number: int, why: str) -> None:
    missed = stands.setdefault(workload, Stands())
    missed.unplaced += number
    missed.problem = missed.problem or why


def _sound(blocks: Sequence[Block], stands: dict[int, Stands]) -> Iterator[Block]:
    """Blocks that make sense; of others `stands` says why not."""
    for block in blocks:
        if block.count <= 0:
            continue
        stands.setdefault(block.workload, Stands())
        if block.gpus < 1 or block.tp < 1 or block.gpus % block.tp:
            _miss(
                stands, block.workload, block.count, f"{block.gpus} GPUs of an instance are not TP {block.tp} times PP"
            )
        elif not (math.isfinite(block.memory_bytes) and block.memory_bytes > 0):
            _miss(stands, block.workload, block.count, "the memory of an instance is not known")
        else:
            yield block


def _orders(shapes: Sequence[Shape]) -> Iterable[tuple[int, ...]]:
    """Orders in which unlimited shapes are tried: all, if prices tell which is best; of many, by price of a GPU."""
    unlimited = tuple(at for at, shape in enumerate(shapes) if shape.count <= 0)
    prices = {at: price for at in unlimited if (price := shapes[at].price_per_hour) is not None}
    if not unlimited:
        return ()
    if len(prices) < len(unlimited):
        return (unlimited,)
    if len(unlimited) <= 3:
        return permutations(unlimited)
    return (tuple(sorted(unlimited, key=lambda at: prices[at] / max(1, shapes[at].gpus))),)


def _take(
    blocks: tuple[Block, ...], left: list[int], at: int, shapes: Sequence[Shape], busy: bool, stages: list[Stage]
) -> list[int]:
    """Put what fits on one shape, as a stage more; returns what is left."""
    shape = shapes[at]
    here = [0 if misfit(block, shape) else number for block, number in zip(blocks, left, strict=True)]
    if not any(here):
        return left
    rows = _fill(_counted(blocks, here), shape, busy)
    wanted = sum(row.times for row in rows)
    while shape.count > 0 and sum(row.times for row in rows) > shape.count:
        here = _kept(blocks, rows, shape)
        rows = _fill(_counted(blocks, here), shape, busy)
    if rows:
        stages.append(Stage(at, tuple(rows), _counted(blocks, here), wanted))
    return [number - taken for number, taken in zip(left, here, strict=True)]


def _counted(blocks: tuple[Block, ...], counts: Sequence[int]) -> tuple[Block, ...]:
    """The blocks with other counts."""
    return tuple(msgspec.structs.replace(block, count=count) for block, count in zip(blocks, counts, strict=True))


def _kept(blocks: Sequence[Block], rows: Sequence[Row], shape: Shape) -> list[int]:
    """Whole instances of each block on as many servers as there are, the fullest ones."""
    kept, places = [0] * len(blocks), shape.count
    for row in rows:
        taken = min(row.times, places)
        places -= taken
        for at, number in (*row.whole, *row.shared):
            kept[at] += number * taken
    stages = [block.gpus // block.tp if _spread(block, shape) else 1 for block in blocks]
    return [number // each for number, each in zip(kept, stages, strict=True)]


def _fill(blocks: tuple[Block, ...], shape: Shape, busy: bool) -> list[Row]:
    """Servers for all blocks: instances of several GPUs first, GPUs that others share fill what is left of theirs."""
    bins = [Run(*run) for run in reversed(_shared(blocks, shape, busy))]
    rows: list[Row] = []
    left = [_units(block, shape) if block.gpus > 1 else 0 for block in blocks]
    order = sorted(range(len(blocks)), key=lambda at: (-_span(blocks[at], shape), -blocks[at].tp, at))
    while any(left):
        slots, items, free = _server(blocks, left, order, shape)
        times = min(left[at] // number for at, number in items)
        for at, number in items:
            left[at] -= number * times
        rows += _filled_up(slots, items, free, times, bins, blocks)
    empty = list(range(shape.gpus))
    while bins:
        rows += _filled_up([GpuSlot()] * shape.gpus, (), empty, sum(run.times for run in bins), bins, blocks)
    return sorted(rows, key=lambda row: -row.used)


def _server(
    blocks: Sequence[Block], left: Sequence[int], order: Sequence[int], shape: Shape
) -> tuple[list[GpuSlot], Items, list[int]]:
    """One server with as many instances of several GPUs as it holds, the largest first, each TP group in the fullest
    NVLink domain that has room: its slots, what stands on them, and the GPUs that are free."""
    rooms = [list(range(start, start + size)) for start, size in _starts(shape.domains)]
    slots = [GpuSlot()] * shape.gpus
    items: list[tuple[int, int]] = []
    group = -1
    for at in order:
        block, taken = blocks[at], 0
        groups = _span(block, shape) // block.tp
        while taken < left[at] and sum(len(room) // block.tp for room in rooms) >= groups:
            # Stages of one pipeline that is spread over servers are one instance here, too.
            if groups > 1 or taken % (block.gpus // block.tp) == 0:
                group += 1
            for _ in range(groups):
                room = min((room for room in rooms if len(room) >= block.tp), key=len)
                for gpu in room[: block.tp]:
                    size = block.memory_bytes / block.gpus
                    slots[gpu] = GpuSlot((block.workload,), size, block.busy_ratio or 0.0, group)
                del room[: block.tp]
            taken += 1
        if taken:
            items.append((at, taken))
    return slots, tuple(items), [gpu for room in rooms for gpu in room]


def _starts(sizes: Sequence[int]) -> list[tuple[int, int]]:
    return [(sum(sizes[:at]), size) for at, size in enumerate(sizes)]


def _filled_up(
    slots: list[GpuSlot], whole: Items, free: list[int], times: int, bins: list[Run], blocks: Sequence[Block]
) -> list[Row]:
    """So many equal servers with shared GPUs, off the end of the list, in what is free on them."""
    rows: list[Row] = []
    while times > 0 and (bins or whole):
        if not bins or not free:
            rows.append(Row(tuple(slots), whole, (), times))
            break
        same = min(times, bins[-1].times // len(free))
        drawn, shared = list(slots), dict[int, int]()
        for gpu in free if same else free[: sum(run.times for run in bins)]:
            run = bins[-1]
            drawn[gpu] = _slot(run.content, blocks)
            for at, each in run.content:
                shared[at] = shared.get(at, 0) + each
            if not same:
                run.times -= 1
            if not run.times:
                bins.pop()
        if same:
            bins[-1].times -= same * len(free)
            if not bins[-1].times:
                bins.pop()
        rows.append(Row(tuple(drawn), whole, tuple(sorted(shared.items())), max(1, same)))
        times -= max(1, same)
    return rows


def _slot(content: Items, blocks: Sequence[Block]) -> GpuSlot:
    """A GPU with instances of one GPU each. An unknown busy share counts as nothing in the sum."""
    return GpuSlot(
        tuple(sorted(blocks[at].workload for at, number in content for _ in range(number))),
        sum(blocks[at].memory_bytes * number for at, number in content),
        sum((blocks[at].busy_ratio or 0.0) * number for at, number in content),
    )


def _shared(blocks: Sequence[Block], shape: Shape, busy: bool) -> list[tuple[Items, int]]:
    """GPUs with instances of one GPU, the fullest first: best fit decreasing by memory, busy share and both, where the
    lower bound is not reached beginning with smaller ones, too; the way that takes fewest."""
    sizes = [_size(block, shape.memory_bytes, busy) for block in blocks]
    alone = [at for at, block in enumerate(blocks) if block.gpus == 1 and block.count > 0]
    largest = sorted(alone, key=lambda at: (-max(sizes[at]), -sum(sizes[at]), at))
    orders = [largest, *(sorted(alone, key=lambda at: (-sizes[at][by], -sizes[at][1 - by], at)) for by in (0, 1))]
    if len(alone) <= _FEW_KINDS:
        orders += [largest[start:] + largest[:start] for start in range(1, len(largest))]
    limit = (UNITS + SLACK, UNITS + SLACK if busy else 0)
    least = _fewest_gpus([(*sizes[at], blocks[at].count) for at in alone])
    best: list[tuple[Items, int]] | None = None
    fewest = math.inf
    for order in dict.fromkeys(map(tuple, orders)):
        for full in _WAYS:
            if fewest > least:
                packed = _bins(blocks, sizes, order, limit, full)
                gpus = sum(times for _, times in packed)
                best, fewest = (packed, gpus) if gpus < fewest else (best, fewest)
    return sorted(best or [], key=lambda run: -sum(sizes[at][0] * number for at, number in run[0]))


def _bins(
    blocks: Sequence[Block],
    sizes: Sequence[tuple[int, int]],
    order: Sequence[int],
    limit: tuple[int, int],
    full: Fullness,
) -> list[tuple[Items, int]]:
    """GPUs around the largest instance that is left, each with what fills it best; equal ones are one entry."""
    left = {at: blocks[at].count for at in order}
    bins: list[tuple[Items, int]] = []
    while left:
        content = max(
            _contents(left, sizes, limit),
            key=lambda one: full(sum(sizes[at][0] * n for at, n in one), sum(sizes[at][1] * n for at, n in one)),
        )
        times = min(left[at] // number for at, number in content)
        bins.append((tuple(content), times))
        for at, number in content:
            left[at] -= number * times
        left = {at: count for at, count in left.items() if count}
    return bins


def _contents(
    left: Mapping[int, int], sizes: Sequence[tuple[int, int]], limit: tuple[int, int]
) -> Iterator[list[tuple[int, int]]]:
    """Ways to fill a GPU: so many of the first kind, at most so many of another one, then of each as many as fit."""

    def most(at: int, memory: int, share: int) -> int:
        size, busy = sizes[at]
        return min(left[at], memory // size, share // busy if busy else left[at])

    kinds = list(left)
    for number in range(most(kinds[0], *limit), 0, -1):
        rest = tuple(room - size * number for room, size in zip(limit, sizes[kinds[0]], strict=True))
        for start in range(1, max(2, min(len(kinds), _LEADS))):
            memory, share = rest
            content = [(kinds[0], number)]
            for at in (*kinds[start:], *kinds[1:start]):
                fits = most(at, memory, share)
                if fits:
                    content.append((at, fits))
                    memory, share = memory - sizes[at][0] * fits, share - sizes[at][1] * fits
            yield content
        if number > _LEADS:
            break


def _size(block: Block, memory_bytes: float, busy: bool) -> tuple[int, int]:
    """Memory and busy time that an instance takes of its GPU; rounded up, so that no sum is above the limit."""
    size = min(max(math.ceil(block.memory_bytes / memory_bytes * UNITS), UNITS // CROWD), UNITS + SLACK)
    if not busy:
        return size, 0
    ratio = block.busy_ratio
    if ratio is None or not ratio <= 1:
        return UNITS + SLACK, UNITS + SLACK
    return size, max(0, math.ceil(ratio * UNITS))


def _spread(block: Block, shape: Shape) -> bool:
    """Its pipeline stages lie on several servers, because one is too small for them."""
    return block.gpus > 1 and sum(size // block.tp for size in shape.domains) * block.tp < block.gpus


def _span(block: Block, shape: Shape) -> int:
    """GPUs of one server that are taken at once: those of an instance, or of a stage where instances are spread."""
    return block.tp if _spread(block, shape) else block.gpus


def _units(block: Block, shape: Shape) -> int:
    """How often."""
    return block.count * (block.gpus // _span(block, shape))


def _least(blocks: Sequence[Block], shapes: Sequence[Shape], busy: bool) -> tuple[int, int]:
    """Bounds of GPUs and servers. With several shapes each counts as the largest of them."""
    if not shapes:
        return 0, 0
    room = max(shape.memory_bytes for shape in shapes)
    alone = [(*_size(block, room, busy), block.count) for block in blocks if block.gpus == 1]
    gpus = _fewest_gpus(alone) + sum(block.count * block.gpus for block in blocks if block.gpus > 1)
    left, servers = gpus, 0
    for shape in sorted(shapes, key=lambda shape: -shape.gpus):
        held = min(-(-left // shape.gpus), shape.count if shape.count > 0 else left)
        servers += held
        left = max(0, left - held * shape.gpus)
    if len(shapes) == 1:
        domains = shapes[0].domains
        for size in {block.tp for block in blocks if block.gpus > 1}:
            wanted = sum(b.count * b.gpus // b.tp for b in blocks if b.gpus > 1 and b.tp >= size)
            servers = max(servers, -(-wanted // max(1, sum(domain // size for domain in domains))))
        for size in {_span(block, shapes[0]) for block in blocks if block.gpus > 1}:
            wanted = sum(_units(b, shapes[0]) for b in blocks if b.gpus > 1 and _span(b, shapes[0]) >= size)
            servers = max(servers, -(-wanted // max(1, shapes[0].gpus // size)))
    return gpus, servers


def _fewest_gpus(alone: Sequence[tuple[int, int, int]]) -> int:
    """A bound for instances of one GPU, of (memory, busy time, how many)."""
    return max(_fewest([(each[at], each[2]) for each in alone]) for at in (0, 1)) if alone else 0


def _fewest(sizes: Sequence[tuple[int, int]]) -> int:
    """GPUs that (size, number) take at least (Martello and Toth 1990, L2): no two above a half share one, and beside
    those above 1 - k nothing of size k has room."""
    room = UNITS + SLACK
    best = -(-sum(size * number for size, number in sizes) // room)
    for least in {size for size, _ in sizes if size * 2 <= room} | {0}:
        alone = sum(number for size, number in sizes if size > room - least)
        large = [(size, number) for size, number in sizes if room < size * 2 and size <= room - least]
        held = sum(number for _, number in large)
        beside = held * room - sum(size * number for size, number in large)
        small = sum(size * number for size, number in sizes if least <= size and size * 2 <= room)
        best = max(best, alone + held + max(0, -(-(small - beside) // room)))
    return best


def _placement(stages: Sequence[Stage], shapes: Sequence[Shape], busy: bool, stands: dict[int, Stands]) -> Placement:
    drawn: list[PlacedServer] = []
    by_shape = [0] * len(shapes)
    gpus = 0
    for stage in stages:
        by_shape[stage.shape] += stage.servers
        for row in stage.rows:
            drawn += [PlacedServer(stage.shape, row.slots)] * min(row.times, DRAWN_SERVERS - len(drawn))
            gpus += row.used * row.times
            here = Counter(workload for slot in row.slots for workload in set(slot.workloads))
            for workload, number in here.items():
                stands[workload].gpus += number * row.times
                stands[workload].servers += row.times
                stands[workload].shared_servers += row.times * (len(here) > 1)
            for workload, number in _lost(row, stage, shapes[stage.shape]).items():
                stands[workload].most_on_a_server = max(stands[workload].most_on_a_server, number)
    used = [shapes[stage.shape] for stage in stages]
    least_gpus, least_servers = _least([block for stage in stages for block in stage.blocks], used, busy)
    return Placement(
        servers=tuple(drawn),
        servers_used=sum(by_shape),
        servers_by_shape=tuple(by_shape),
        gpus=gpus,
        least_gpus=least_gpus,
        least_servers=least_servers,
        workloads=dict(sorted(stands.items())),
    )


def _lost(row: Row, stage: Stage, shape: Shape) -> dict[int, int]:
    """Instances of each workload that the loss of such a server costs at most."""
    lost: dict[int, int] = {}
    for at, number in (*row.whole, *row.shared):
        block = stage.blocks[at]
        if _spread(block, shape):
            stages = block.gpus // block.tp
            number = min(number, block.count, (number + stages - 2) // stages + 1)
        lost[block.workload] = lost.get(block.workload, 0) + number
    return lost


def _reason(block: Block, number: int, shapes: Sequence[Shape], stages: Sequence[Stage]) -> str:
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

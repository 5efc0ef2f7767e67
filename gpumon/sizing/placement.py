"""Instances onto servers: shared GPUs by column generation, instances of several GPUs by best fit decreasing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Final, NamedTuple

import msgspec

from gpumon.readings.format import counted
from gpumon.sizing.answer import GpuSlot, PlacedServer
from gpumon.sizing.scenario import MOST_SERVER_GPUS, Packing

DRAWN_SERVERS: Final = 256
"""Servers that are drawn GPU by GPU; all others are only counted."""
_UNITS: Final = 10**12
"""A GPU's memory, and its time, in whole numbers: sums are exact, in whatever order."""
_ROOM: Final = _UNITS + _UNITS // 10**9
"""Instances that fill a GPU exactly fit, whatever floats make of it."""
CROWD: Final = 1000
"""Instances that one GPU holds at most; an 80 GB GPU has no room for the contexts of more."""
_MOST_TRIED: Final = 600
"""Contents of a GPU that are looked at for the best one: what a keystroke has time for."""
_MOST_COLUMNS: Final = 80
_MOST_KINDS: Final = 24
"""Most kinds of instances: of more the relaxed problem takes too long for a keystroke."""
_MOST_SOLVED: Final = 6
"""Relaxed problems; what is left then is put in decreasing size."""
_ROUNDING: Final = 1e-9


class InstanceBlock(msgspec.Struct, frozen=True):
    """Identical instances of one workload."""

    workload: int
    """Index in `Scenario.workload`; no two blocks share it."""
    count: int
    gpus: int
    """TP x PP of one instance."""
    tp: int
    memory_bytes: float
    """Memory of one whole instance."""
    busy_ratio: float | None = None
    """Share of its GPU that it keeps busy; None: not known, so by busy share it has a GPU of its own."""


class ServerShape(msgspec.Struct, frozen=True):
    """Servers of one kind."""

    gpus: int
    domain: int
    """GPUs of one NVLink domain, at most those of the server; 0: all of them."""
    memory_bytes: float
    """Usable, of one GPU."""
    count: int = 0
    """How many there are; 0: as many as it takes."""

    @property
    def domains(self) -> tuple[int, ...]:
        """Sizes of a server's NVLink domains, the odd rest last."""
        if self.domain > 0:
            size = min(self.domain, self.gpus)
        else:
            size = self.gpus
        whole, rest = divmod(self.gpus, size)
        return (size,) * whole + ((rest,) if rest else ())

    def stages(self, block: InstanceBlock) -> int:
        """Parts in which an instance is placed: its pipeline stages where one server is too small for all of them."""
        spread = sum(size // block.tp for size in self.domains) * block.tp < block.gpus
        return block.gpus // block.tp if spread else 1


class WorkloadPlacement(msgspec.Struct):
    """Place of the instances of one workload."""

    gpus: int = 0
    """GPUs that hold at least one of them."""
    servers: int = 0
    shared_servers: int = 0
    """Servers among these that hold an instance of another workload, too."""
    most_on_a_server: int = 0
    """Instances that the loss of one server costs at most."""
    instances: int = 0
    """Number of placed instances."""
    unplaced: int = 0
    """Instances that have none."""
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
    """No placement of the instances that are placed has fewer."""
    least_servers: int = 0
    """The same for servers, in whatever order the shapes are filled."""
    workloads: dict[int, WorkloadPlacement] = {}
    """By index; those with a block."""


class GpuRun(msgspec.Struct):
    """Equal shared GPUs that are still to be given a server."""

    slot: GpuSlot
    times: int


class ServerRow(NamedTuple):
    """Equal servers of one shape."""

    shape: int
    slots: tuple[GpuSlot, ...]
    times: int

    @property
    def used(self) -> int:
        """GPUs with an instance."""
        return sum(bool(slot.workloads) for slot in self.slots)


def place(blocks: Sequence[InstanceBlock], shapes: Sequence[ServerShape], packing: Packing) -> Placement:
    """As few servers as are found; the same question always has the same answer.

    An instance of several GPUs has them alone; each TP group lies in one NVLink domain of one server. Its PP stages
    stay in one server where that can hold them, else they are spread over servers of one shape. Instances of one GPU
    share it while their memory fits ("memory"), and while their busy shares sum up to at most 1, too ("busy"; an
    unknown busy share has a GPU of its own).

    Limited shapes (`count`) are filled first, those that fewer blocks fit before others, then the rest in their order.
    """
    busy = packing == "busy"
    stands = dict[int, WorkloadPlacement]()
    left = dict[int, InstanceBlock]()
    for block in blocks:
        if block.count > 0:
            stands[block.workload] = _unplaced(block)
            if not stands[block.workload].problem:
                left[block.workload] = block
    sound = list(left.values())
    rows = list[ServerRow]()
    wanted = dict[int, int]()
    for index in _turns(sound, shapes):
        fitting = [block for block in left.values() if not misfit(block, shapes[index])]
        placed, filled, wanted[index] = _fill_shape(fitting, index, shapes[index], busy)
        rows += filled
        left = _remaining(left, placed)
    for block in left.values():
        stand = stands[block.workload]
        stand.problem = _reason(block, stand.instances, shapes, wanted)
        stand.instances -= block.count
        stand.unplaced = block.count
    return _placement(rows, _with_place(sound, stands), shapes, busy, stands)


def _with_place(blocks: Iterable[InstanceBlock], stands: Mapping[int, WorkloadPlacement]) -> list[InstanceBlock]:
    """The blocks with the instances that have a place, without those that have none."""
    placed = []
    for block in blocks:
        count = stands[block.workload].instances
        if count:
            placed.append(msgspec.structs.replace(block, count=count))
    return placed


def _unplaced(block: InstanceBlock) -> WorkloadPlacement:
    """A block before it is placed; with a problem where it makes no sense."""
    problem = _unsound(block)
    if problem:
        return WorkloadPlacement(unplaced=block.count, problem=problem)
    return WorkloadPlacement(instances=block.count)


def _turns(blocks: Sequence[InstanceBlock], shapes: Sequence[ServerShape]) -> list[int]:
    """Indices of the shapes in the order in which they are filled."""

    def turn(index: int) -> tuple[bool, int]:
        if not shapes[index].count:
            return True, 0
        # What fits one limited shape alone has its room before others.
        return False, sum(bool(misfit(block, shapes[index])) for block in blocks)

    return sorted(range(len(shapes)), key=turn)


def _fill_shape(
    blocks: Sequence[InstanceBlock], index: int, shape: ServerShape, busy: bool
) -> tuple[Sequence[InstanceBlock], list[ServerRow], int]:
    """The instances that have a place on servers of a shape, these servers, and how many all instances would take."""
    rows = _fill(blocks, index, shape, busy)
    wanted = _servers_in(rows)
    while shape.count and _servers_in(rows) > shape.count:
        blocks = _kept(blocks, rows, shape)
        rows = _fill(blocks, index, shape, busy)
    return blocks, rows, wanted


def _servers_in(rows: Iterable[ServerRow]) -> int:
    """Number of servers in these rows."""
    return sum(row.times for row in rows)


def _remaining(left: Mapping[int, InstanceBlock], placed: Iterable[InstanceBlock]) -> dict[int, InstanceBlock]:
    """Blocks by workload without the instances that have a place now."""
    remaining = dict(left)
    for block in placed:
        count = left[block.workload].count - block.count
        if count:
            remaining[block.workload] = msgspec.structs.replace(left[block.workload], count=count)
        else:
            del remaining[block.workload]
    return remaining


def domain_problem(tp: int, domain: int) -> str:
    """Why a TP group stands in no NVLink domain of so many GPUs."""
    return f"TP {tp} takes {tp} GPUs of one NVLink domain, which has {counted(domain, 'GPU')}"


def misfit(block: InstanceBlock, shape: ServerShape) -> str:
    """Why the shape holds no instance of the block; empty if it does."""
    if shape.gpus < 1 or not shape.memory_bytes > 0:
        return "the server has no GPU, or none whose memory is known"
    if shape.gpus > MOST_SERVER_GPUS:
        return f"a server has {MOST_SERVER_GPUS} GPUs at most, not {shape.gpus}"
    share = block.memory_bytes / block.gpus
    room = shape.memory_bytes
    if share > room * (1 + _ROUNDING):
        if block.gpus == 1:
            per = "a GPU"
        else:
            per = f"each of {block.gpus} GPUs"
        return f"an instance takes {share / 1e9:.4g} GB of {per}, of which {room / 1e9:.4g} GB are usable"
    if block.tp > shape.domains[0]:
        return domain_problem(block.tp, shape.domains[0])
    return ""


def _unsound(block: InstanceBlock) -> str:
    """Why a block makes no sense; empty if it does."""
    if block.count <= 0:
        return ""
    if block.gpus < 1 or block.tp < 1 or block.gpus % block.tp:
        return f"{block.gpus} GPUs of an instance are not TP {block.tp} times PP"
    sound = math.isfinite(block.memory_bytes) and block.memory_bytes > 0
    return "" if sound else "the memory of an instance is not known"


def _kept(blocks: Sequence[InstanceBlock], rows: Sequence[ServerRow], shape: ServerShape) -> list[InstanceBlock]:
    """Whole instances of each block on as many servers as there are, the fullest ones."""
    kept = Counter[int]()
    places = shape.count
    for row in rows:
        taken = min(row.times, places)
        places -= taken
        for workload, gpus in _gpus_of(row).items():
            kept[workload] += gpus * taken
    whole = []
    for block in blocks:
        count = kept[block.workload] // block.gpus
        if count:
            whole.append(msgspec.structs.replace(block, count=count))
    return whole


def _gpus_of(row: ServerRow) -> Counter[int]:
    """GPUs of each workload on a server; one that instances share counts for each of them."""
    gpus = Counter[int]()
    for slot in row.slots:
        gpus.update(slot.workloads)
    return gpus


def _fill(blocks: Sequence[InstanceBlock], index: int, shape: ServerShape, busy: bool) -> list[ServerRow]:
    """Servers for all blocks, the fullest first: instances of several GPUs, then shared GPUs in what is free there."""
    single, large = _by_size_of_instance(blocks)
    bins = _shared_gpus(single, shape, busy)
    large.sort(key=lambda block: (-block.gpus // shape.stages(block), -block.tp))
    left = {block.workload: block.count * shape.stages(block) for block in large}
    rows: list[ServerRow] = []
    while any(left.values()):
        slots, taken, free = _server(large, left, shape)
        times = min(left[workload] // number for workload, number in taken.items())
        for workload, number in taken.items():
            left[workload] -= times * number
        rows += _filled_up(index, slots, free, times, bins)
    while bins:
        every = list(range(shape.gpus))
        most = sum(run.times for run in bins)
        rows += _filled_up(index, [GpuSlot()] * shape.gpus, every, most, bins)
    return sorted(rows, key=lambda row: -row.used)


def _by_size_of_instance(blocks: Iterable[InstanceBlock]) -> tuple[list[InstanceBlock], list[InstanceBlock]]:
    """Blocks whose instances take one GPU, and those whose instances take several."""
    single = []
    large = []
    for block in blocks:
        if block.gpus == 1:
            single.append(block)
        else:
            large.append(block)
    return single, large


def _shared_gpus(alone: Sequence[InstanceBlock], shape: ServerShape, busy: bool) -> list[GpuRun]:
    """GPUs with instances of one GPU each, the fullest first."""
    contents, _ = _shared(_sizes(alone, shape, busy))
    runs = []
    for content, times in contents:
        runs.append(GpuRun(_slot(content, alone), times))
    return sorted(runs, key=lambda run: -run.slot.memory_bytes)


def _server(
    blocks: Sequence[InstanceBlock], left: Mapping[int, int], shape: ServerShape
) -> tuple[list[GpuSlot], dict[int, int], list[int]]:
    """One server with as many instances of several GPUs as it holds, the largest first, each TP group in the fullest
    NVLink domain that has room: its slots, how many instances (or stages) of each workload, and the free GPUs."""
    rooms = _rooms(shape)
    slots = [GpuSlot()] * shape.gpus
    items = dict[int, int]()
    group = -1
    for block in blocks:
        stages = shape.stages(block)
        taken = 0
        groups = block.gpus // stages // block.tp
        while taken < left[block.workload] and sum(len(room) // block.tp for room in rooms) >= groups:
            # Stages of one pipeline that is spread over servers are one instance here, too.
            group += taken % stages == 0
            slot = GpuSlot((block.workload,), block.memory_bytes / block.gpus, block.busy_ratio or 0.0, group)
            for _ in range(groups):
                _take_room(rooms, block.tp, slots, slot)
            taken += 1
        if taken:
            items[block.workload] = taken
    return slots, items, list(chain.from_iterable(rooms))


def _rooms(shape: ServerShape) -> list[list[int]]:
    """GPUs of each NVLink domain of a server."""
    rooms = list[list[int]]()
    start = 0
    for size in shape.domains:
        rooms.append(list(range(start, start + size)))
        start += size
    return rooms


def _take_room(rooms: Sequence[list[int]], tp: int, slots: list[GpuSlot], slot: GpuSlot) -> None:
    """Put a TP group into the fullest domain that has room for it."""
    room = min((room for room in rooms if len(room) >= tp), key=len)
    for gpu in room[:tp]:
        slots[gpu] = slot
    del room[:tp]


def _filled_up(
    index: int, slots: list[GpuSlot], free: list[int], times: int, bins: list[GpuRun]
) -> Iterator[ServerRow]:
    """So many equal servers of a shape, with GPUs off the front of `bins` in what is free on them."""
    bare = len(free) == len(slots)
    while times > 0 and (bins or not bare):
        same = times
        if bins and free:
            same = min(times, bins[0].times // len(free)) or 1
        drawn = list(slots)
        for gpu in free:
            if bins:
                drawn[gpu] = bins[0].slot
                bins[0].times -= same
                del bins[: not bins[0].times]
        yield ServerRow(index, tuple(drawn), same)
        times -= same


def _slot(content: SlotContent, alone: Sequence[InstanceBlock]) -> GpuSlot:
    """A GPU with instances of one GPU each. An unknown busy share counts as nothing in the sum."""
    workloads = list[int]()
    memory = list[float]()
    busy = list[float]()
    for kind, number in content:
        block = alone[kind]
        workloads += [block.workload] * number
        memory.append(block.memory_bytes * number)
        busy.append((block.busy_ratio or 0.0) * number)
    return GpuSlot(tuple(sorted(workloads)), sum(memory), sum(busy))


# Shared GPUs: which instances of one GPU stand together.

SlotContent = tuple[tuple[int, int], ...]
"""(kind, how many of it) on one GPU."""
SlotKind = tuple[int, int, int]
"""Memory and busy time of a GPU that an instance takes, and how many instances there are."""


def _sizes(alone: Iterable[InstanceBlock], shape: ServerShape, busy: bool) -> tuple[SlotKind, ...]:
    """Rounded up, so that no sum is above the limit."""
    kinds = []
    for block in alone:
        size = min(max(math.ceil(block.memory_bytes / shape.memory_bytes * _UNITS), _UNITS // CROWD), _ROOM)
        ratio = block.busy_ratio if busy else 0.0
        if ratio is None or not ratio <= 1:
            kinds.append((_ROOM, _ROOM, block.count))
        else:
            kinds.append((size, max(0, math.ceil(ratio * _UNITS)), block.count))
    return tuple(kinds)


@lru_cache(maxsize=64)
def _shared(kinds: tuple[SlotKind, ...]) -> tuple[tuple[tuple[SlotContent, int], ...], int]:
    """Contents of GPUs with how many hold each, and a number of GPUs that no packing is below.

    Column generation (Gilmore and Gomory 1961): the relaxed problem over the contents that pay, whole parts of it
    taken, the rest solved anew. On 150 random mixes of 6 to 20 models it was at most one GPU above the relaxed optimum.
    """
    counts = {kind: count for kind, (_, _, count) in enumerate(kinds) if count}
    least = max(_least_by(kinds, 0), _least_by(kinds, 1))
    packed = _decreasing(kinds, counts)
    fewest = _gpus_in(packed)
    if fewest == least or len(counts) > _MOST_KINDS:
        return packed, least
    columns, shares, exact = _relaxed(kinds, counts)
    if exact:
        least = max(least, math.ceil(sum(shares) * (1 - _ROUNDING) - _ROUNDING))
        if fewest == least:
            return packed, least
    solved = _solved(kinds, counts, columns, shares)
    if _gpus_in(solved) < fewest:
        return tuple(solved), least
    return packed, least


def _solved(
    kinds: Sequence[SlotKind], counts: dict[int, int], columns: Sequence[SlotContent], shares: Sequence[float]
) -> list[tuple[SlotContent, int]]:
    """Whole parts of a relaxed solution, and of the solutions anew for what is left; the last rest by its sizes."""
    solved: list[tuple[SlotContent, int]] = []
    counts = _take(_whole_parts(kinds, counts, columns, shares), counts, solved)
    for _ in range(_MOST_SOLVED - 1):
        if not counts:
            break
        columns, shares, _ = _relaxed(kinds, counts)
        counts = _take(_whole_parts(kinds, counts, columns, shares), counts, solved)
    solved += _decreasing(kinds, counts)
    return solved


def _least_by(kinds: Sequence[SlotKind], by: int) -> int:
    """GPUs that all instances take by memory (0) or by busy time (1), rounded up."""
    return -(-sum(kind[by] * kind[2] for kind in kinds) // _ROOM)


def _gpus_in(packed: Iterable[tuple[SlotContent, int]]) -> int:
    """The number of GPUs of a packing."""
    return sum(times for _, times in packed)


def _whole_parts(
    kinds: Sequence[SlotKind], counts: Mapping[int, int], columns: Sequence[SlotContent], shares: Sequence[float]
) -> list[tuple[SlotContent, int]]:
    """The whole GPUs of a relaxed solution; where there are none, the content with the largest share, filled up."""
    whole = []
    for content, share in zip(columns, shares, strict=True):
        whole.append((content, math.floor(share + _ROUNDING)))
    if any(times for _, times in whole):
        return whole
    largest = max(range(len(shares)), key=lambda column: (round(shares[column], 6), len(columns[column])))
    return [(_topped(kinds, _by_size(kinds, counts, _ORDERS[0]), columns[largest]), 1)]


def _by_size(
    kinds: Sequence[SlotKind], counts: Mapping[int, int], size: Callable[[SlotKind], tuple[int, int]]
) -> dict[int, int]:
    """The counts, the largest kind first."""
    return {kind: counts[kind] for kind in sorted(counts, key=lambda kind: size(kinds[kind]))}


def _take(
    whole: Iterable[tuple[SlotContent, int]], counts: Mapping[int, int], packed: list[tuple[SlotContent, int]]
) -> dict[int, int]:
    """Add contents to `packed` as far as instances are left; returns the instances that are left then."""
    left = dict(counts)
    for content, share in whole:
        times = min(share, *(left[kind] // number for kind, number in content))
        if times > 0:
            packed.append((content, times))
            for kind, number in content:
                left[kind] -= number * times
    return {kind: count for kind, count in left.items() if count}


_ORDERS: Final[tuple[Callable[[SlotKind], tuple[int, int]], ...]] = (
    lambda kind: (-kind[0] - kind[1], 0),
    lambda kind: (-max(kind[:2]), -kind[0] - kind[1]),
    lambda kind: (-kind[0], -kind[1]),
    lambda kind: (-kind[1], -kind[0]),
)
"""Orders by size, the largest first: by the sum of both, the scarcer one, memory, busy time."""


def _decreasing(kinds: Sequence[SlotKind], counts: Mapping[int, int]) -> tuple[tuple[SlotContent, int], ...]:
    """GPUs filled one after the other, the largest instances first; of the orders the one that takes fewest."""
    packings = [_in_order(kinds, _by_size(kinds, counts, size)) for size in _ORDERS]
    return min(packings, key=_gpus_in)


def _in_order(kinds: Sequence[SlotKind], counts: Mapping[int, int]) -> tuple[tuple[SlotContent, int], ...]:
    """GPUs filled one after the other with the kinds in the order of `counts`."""
    left = dict(counts)
    packed = list[tuple[SlotContent, int]]()
    while left:
        content = _topped(kinds, left, ())
        times = min(left[kind] // number for kind, number in content)
        left = _take([(content, times)], left, packed)
    return tuple(packed)


def _topped(kinds: Sequence[SlotKind], counts: Mapping[int, int], content: SlotContent) -> SlotContent:
    """The content as far as instances are left, and of all others as many as fit, in the order of `counts`."""
    held = {kind: min(number, counts[kind]) for kind, number in content}
    memory, share = (_ROOM - sum(kinds[kind][by] * number for kind, number in held.items()) for by in (0, 1))
    for kind, count in counts.items():
        more = _most(kinds[kind], count - held.get(kind, 0), memory, share)
        if more:
            held[kind] = held.get(kind, 0) + more
            memory = memory - more * kinds[kind][0]
            share = share - more * kinds[kind][1]
    return tuple(held.items())


def _relaxed(kinds: Sequence[SlotKind], counts: Mapping[int, int]) -> tuple[list[SlotContent], list[float], bool]:
    """Contents of GPUs, what share of a GPU has each where parts of GPUs are allowed, and whether that is proven to be
    the least: revised simplex over contents that are added while one is worth more than a GPU."""
    order = list(counts)
    columns: list[SlotContent] = []
    inverse = [[0.0] * len(order) for _ in order]
    for row, kind in enumerate(order):
        most = _most(kinds[kind], counts[kind], _ROOM, _ROOM)
        columns.append(((kind, most),))
        inverse[row][row] = 1.0 / most
    shares = [counts[kind] * inverse[row][row] for row, kind in enumerate(order)]
    for _ in range(_MOST_COLUMNS):
        prices = {kind: sum(line[column] for line in inverse) for column, kind in enumerate(order)}
        content, value, exact = _best(kinds, counts, prices)
        if value <= 1.0 + _ROUNDING:
            return columns, shares, exact
        enters = _entering(inverse, order, content)
        leaves = _leaving(shares, enters)
        columns[leaves] = content
        _pivot(inverse, shares, enters, leaves)
    return columns, shares, False


def _entering(inverse: Sequence[Sequence[float]], order: Sequence[int], content: SlotContent) -> list[float]:
    """The column of a new content in the present basis."""
    numbers = dict(content)
    terms = []
    for column, kind in enumerate(order):
        if kind in numbers:
            terms.append((column, numbers[kind]))
    entering = []
    for line in inverse:
        entering.append(sum(line[column] * number for column, number in terms))
    return entering


def _leaving(shares: Sequence[float], enters: Sequence[float]) -> int:
    """The row whose content falls to nothing first as the new one grows."""
    rows = [row for row, step in enumerate(enters) if step > _ROUNDING]
    return min(rows, key=lambda row: shares[row] / enters[row])


def _pivot(inverse: list[list[float]], shares: list[float], enters: Sequence[float], leaves: int) -> None:
    """Put the new column in place of the row that leaves: changes `inverse` and `shares`."""
    pivot = enters[leaves]
    share = shares[leaves] / pivot
    line = [value / pivot for value in inverse[leaves]]
    for row, step in enumerate(enters):
        if row != leaves and step:
            inverse[row] = [old - step * new for old, new in zip(inverse[row], line, strict=True)]
            shares[row] = max(0.0, shares[row] - step * share)
    inverse[leaves] = line
    shares[leaves] = share


def _most(kind: SlotKind, count: int, memory: int, share: int) -> int:
    """How many of `count` fit."""
    size, time, _ = kind
    return min(count, memory // size, share // time if time else count)


def _best(
    kinds: Sequence[SlotKind], counts: Mapping[int, int], prices: Mapping[int, float]
) -> tuple[SlotContent, float, bool]:
    """The content of most value, that value, and whether none has more: depth first, bounded by value per room."""
    order = _by_value(kinds, counts, prices)
    per_memory, per_share = _values_per_room(kinds, order, prices)
    best: tuple[float, SlotContent] = (0.0, ())
    tried = 0

    def look(place: int, memory: int, share: int, value: float, content: SlotContent) -> None:
        nonlocal best, tried
        tried += 1
        if value > best[0] + _ROUNDING:
            best = (value, content)
        if place == len(order):
            return
        kind = order[place]
        size, time, _ = kinds[kind]
        for number in range(_most(kinds[kind], counts[kind], memory, share), -1, -1):
            if tried > _MOST_TRIED:
                return
            room = memory - number * size
            free = share - number * time
            worth = value + number * prices[kind]
            by_share = per_share[place + 1] * free if per_share[place + 1] < math.inf else math.inf
            more = min(per_memory[place + 1] * room, by_share)
            if (number and worth > best[0] + _ROUNDING) or worth + more > best[0] + _ROUNDING:
                look(place + 1, room, free, worth, (*content, (kind, number)) if number else content)

    look(0, _ROOM, _ROOM, 0.0, ())
    return best[1], best[0], tried <= _MOST_TRIED


def _by_value(kinds: Sequence[SlotKind], counts: Mapping[int, int], prices: Mapping[int, float]) -> list[int]:
    """The kinds that have a value, that of most value for its size first."""
    valued = [kind for kind in counts if prices[kind] > 0]
    return sorted(valued, key=lambda kind: -prices[kind] / sum(kinds[kind][:2]))


def _values_per_room(
    kinds: Sequence[SlotKind], order: Sequence[int], prices: Mapping[int, float]
) -> tuple[list[float], list[float]]:
    """Most value per memory and per busy time among the kinds from each place of the order on."""
    per_memory = [0.0] * (len(order) + 1)
    per_share = [0.0] * (len(order) + 1)
    for place in range(len(order) - 1, -1, -1):
        size, time, _ = kinds[order[place]]
        price = prices[order[place]]
        per_memory[place] = max(per_memory[place + 1], price / size)
        per_share[place] = max(per_share[place + 1], price / time if time else math.inf)
    return per_memory, per_share


# What comes of it.


def _placement(
    rows: Sequence[ServerRow],
    blocks: Sequence[InstanceBlock],
    shapes: Sequence[ServerShape],
    busy: bool,
    stands: dict[int, WorkloadPlacement],
) -> Placement:
    """`blocks`: with the instances that are placed."""
    drawn = list[PlacedServer]()
    by_shape = [0] * len(shapes)
    gpus = 0
    used = dict[int, ServerShape]()
    by_workload = {block.workload: block for block in blocks}
    for row in rows:
        by_shape[row.shape] += row.times
        drawn += [PlacedServer(row.shape, row.slots)] * min(row.times, DRAWN_SERVERS - len(drawn))
        gpus += row.used * row.times
        used[row.shape] = shapes[row.shape]
        held = Counter[int]()
        for slot in row.slots:
            held.update(set(slot.workloads))
        for workload, number in _gpus_of(row).items():
            block = by_workload[workload]
            stand = stands[workload]
            stand.gpus += held[workload] * row.times
            stand.servers += row.times
            stand.shared_servers += row.times * (len(held) > 1)
            stages = shapes[row.shape].stages(block)
            parts = number * stages // block.gpus
            # Of spread pipelines each stage may belong to another instance.
            if stages > 1:
                lost = min(parts, block.count, (parts + stages - 2) // stages + 1)
            else:
                lost = parts
            stand.most_on_a_server = max(stand.most_on_a_server, lost)
    least_gpus, least_servers = _least(blocks, list(used.values()), busy)
    return Placement(
        servers=tuple(drawn),
        servers_used=sum(by_shape),
        servers_by_shape=tuple(by_shape),
        gpus=gpus,
        least_gpus=least_gpus,
        least_servers=least_servers,
        workloads=dict(sorted(stands.items())),
    )


def _least(blocks: Sequence[InstanceBlock], shapes: Sequence[ServerShape], busy: bool) -> tuple[int, int]:
    """Bounds of GPUs and servers on the shapes that are used. Of several shapes each GPU counts as the largest."""
    if not shapes:
        return 0, 0
    largest = max(shapes, key=lambda shape: shape.memory_bytes)
    single, large = _by_size_of_instance(blocks)
    gpus = _shared(_sizes(single, largest, busy))[1]
    gpus += sum(block.count * block.gpus for block in large)
    left = gpus
    servers = 0
    for shape in sorted(shapes, key=lambda shape: -shape.gpus):
        held = min(-(-left // shape.gpus), shape.count or left)
        servers += held
        left = max(0, left - held * shape.gpus)
    if len(shapes) == 1:
        servers = max(servers, _least_by_groups(large, shapes[0]))
    return gpus, servers


def _least_by_groups(large: Sequence[InstanceBlock], shape: ServerShape) -> int:
    """Servers by the sizes of instances and of TP groups: no two of more than half a room share one."""
    spans = []
    for block in large:
        spans.append((block.gpus // shape.stages(block), block.count * shape.stages(block)))
    groups = [(block.tp, block.count * block.gpus // block.tp) for block in large]
    return max(_least_in(spans, (shape.gpus,)), _least_in(groups, shape.domains))


def _least_in(sizes: Sequence[tuple[int, int]], rooms: Sequence[int]) -> int:
    """Servers with these rooms that hold so many (size, how many), by the larger ones of each size."""
    servers = 0
    for size, _ in sizes:
        wanted = sum(number for other, number in sizes if other >= size)
        per_server = max(1, sum(room // size for room in rooms))
        servers = max(servers, -(-wanted // per_server))
    return servers


def _reason(block: InstanceBlock, count: int, shapes: Sequence[ServerShape], wanted: Mapping[int, int]) -> str:
    """Why so many instances as the block has left of `count` have no place."""
    if not shapes:
        return "there is no shape of server"
    misfits = dict[str, None]()
    fitting = list[ServerShape]()
    for shape in shapes:
        reason = misfit(block, shape)
        if reason:
            misfits[reason] = None
        else:
            fitting.append(shape)
    if not fitting:
        return "; ".join(misfits)
    text = f"{block.count} of {count} instances have no place: "
    last = fitting[-1]
    if block.gpus > max(shape.count * shape.gpus for shape in fitting):
        return text + f"each takes {block.gpus} GPUs, and there are {last.count} servers of {last.gpus}"
    if len(shapes) == 1:
        there = "is" if last.count == 1 else "are"
        return text + f"{wanted[0]} servers are needed, there {there} {last.count}"
    return text + f"the servers that fit them are full ({sum(shape.count for shape in fitting)})"

"""Instances onto servers: shared GPUs by column generation, instances of several GPUs by best fit decreasing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Final, NamedTuple

import msgspec

from gpumon.readings.format import counted
from gpumon.sizing.answer import GpuSlot, PlacedServer
from gpumon.sizing.scenario import MOST_SERVER_GPUS, Packing

DRAWN_SERVERS: Final = 256
"""Servers that are drawn GPU by GPU; all others are only counted."""
_UNITS_PER_GPU: Final = 10**12
"""Parts into which the memory and the time of a GPU are divided: sums of whole numbers are exact in any order."""
_CAPACITY: Final = _UNITS_PER_GPU + _UNITS_PER_GPU // 10**9
"""Units that a GPU holds. A billionth more than there are: instances that fill it exactly fit in spite of rounding."""
_MOST_PER_GPU: Final = 1000
"""Instances that one GPU holds at most; an 80 GB GPU has no room for the contexts of more."""
_MOST_CONTENTS: Final = 600
"""Contents of a GPU that are looked at for the best one: what a keystroke has time for."""
_MOST_COLUMNS: Final = 80
"""Contents that are added to a relaxed problem at most, for the same reason."""
_MOST_KINDS: Final = 24
"""Most kinds of instances: of more the relaxed problem takes too long for a keystroke."""
_MOST_RELAXED_PROBLEMS: Final = 6
"""Relaxed problems that are solved one after the other; what is left then is put in decreasing size."""
_ROUNDING: Final = 1e-9
"""Share by which a sum of floats may be off."""


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
        whole_domains, rest = divmod(self.gpus, size)
        sizes = [size] * whole_domains
        if rest:
            sizes.append(rest)
        return tuple(sizes)

    def parts_of(self, block: InstanceBlock) -> int:
        """Parts in which an instance is placed: 1, or its pipeline stages where one server cannot hold all of them."""
        tp_groups = sum(size // block.tp for size in self.domains)
        if tp_groups * block.tp >= block.gpus:
            return 1
        return block.gpus // block.tp


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
    """Instances without a place."""
    problem: str = ""
    """Why some have no place; empty where all have one."""


class Placement(msgspec.Struct, frozen=True):
    """Instances on servers. `least_servers == servers_used` proves that no placement takes fewer."""

    servers: tuple[PlacedServer, ...] = ()
    """Drawn GPU by GPU, the fullest first and equal ones together; at most `DRAWN_SERVERS`."""
    servers_used: int = 0
    """Servers with at least one instance, those that are not drawn included."""
    servers_by_shape: tuple[int, ...] = ()
    """`servers_used` of each shape, in the order of the shapes."""
    gpus: int = 0
    """GPUs with at least one instance."""
    least_gpus: int = 0
    """No placement of the instances that are placed takes fewer GPUs."""
    least_servers: int = 0
    """No placement of them takes fewer servers, in whatever order the shapes are filled."""
    workloads: dict[int, WorkloadPlacement] = {}
    """Index of a workload -> its placement, for those with a block."""


class GpuRun(msgspec.Struct):
    """Equal shared GPUs that are still to be given a server."""

    slot: GpuSlot
    times: int


class ServerRow(NamedTuple):
    """Equal servers of one shape."""

    shape: int
    """Index of the shape."""
    slots: tuple[GpuSlot, ...]
    times: int
    """Number of these servers."""

    @property
    def used_gpus(self) -> int:
        """GPUs of one server with an instance."""
        return sum(bool(slot.workloads) for slot in self.slots)


class _FilledShape(NamedTuple):
    """Servers of one shape, filled as far as there are any."""

    blocks: Sequence[InstanceBlock]
    """The instances that have a place on them."""
    rows: list[ServerRow]
    servers_needed: int
    """Servers that all instances would take."""


class _FilledServer(NamedTuple):
    """A server with instances of several GPUs."""

    slots: list[GpuSlot]
    parts: dict[int, int]
    """Workload -> its instances, or pipeline stages, on the server."""
    free_gpus: list[int]


class SlotKind(NamedTuple):
    """Instances of one GPU that take equally much of it."""

    memory: int
    """Memory of one instance, in `_UNITS_PER_GPU`."""
    busy_time: int
    """Busy share of one instance, in `_UNITS_PER_GPU`."""
    instances: int


SlotContent = tuple[tuple[int, int], ...]
"""(index of the kind, instances of it) on one GPU."""
ContentRun = tuple[SlotContent, int]
"""A content, and how many GPUs have it."""


class _PackedGpus(NamedTuple):
    """Contents of GPUs that hold all instances."""

    runs: Sequence[ContentRun]
    least_gpus: int
    """No packing takes fewer GPUs."""


class _RelaxedSolution(NamedTuple):
    """The fewest GPUs where parts of a GPU are allowed."""

    columns: list[SlotContent]
    shares: list[float]
    """How many GPUs have each content; not whole."""
    is_proven: bool
    """Whether no solution takes fewer: the search for a better content was not cut short."""


class _ValuedContent(NamedTuple):
    """The content of a GPU that is worth most."""

    content: SlotContent
    value: float
    is_proven: bool
    """Whether none is worth more: the search was not cut short."""


_SIZE_ORDERS: Final[tuple[Callable[[SlotKind], tuple[int, int]], ...]] = (
    lambda kind: (-kind.memory - kind.busy_time, 0),
    lambda kind: (-max(kind.memory, kind.busy_time), -kind.memory - kind.busy_time),
    lambda kind: (-kind.memory, -kind.busy_time),
    lambda kind: (-kind.busy_time, -kind.memory),
)
"""Orders by size, the largest first: by memory and busy time in sum, by the scarcer one, by memory, by busy time."""


def place(blocks: Sequence[InstanceBlock], shapes: Sequence[ServerShape], packing: Packing) -> Placement:
    """Place instances on as few servers as are found; the same question always has the same answer.

    An instance of several GPUs has them alone; each TP group lies in one NVLink domain of one server. Its PP stages
    stay in one server where that can hold them, else they are spread over servers of one shape. Instances of one GPU
    share it while their memory fits ("memory"), and while their busy shares sum up to at most 1, too ("busy"; an
    unknown busy share has a GPU of its own).

    Limited shapes (`count`) are filled first, those that fewer blocks fit before others, then the rest in their order.
    """
    by_busy_share = packing == "busy"
    placements = dict[int, WorkloadPlacement]()
    remaining = dict[int, InstanceBlock]()
    for block in blocks:
        if block.count <= 0:
            continue
        problem = _block_problem(block)
        if problem:
            placements[block.workload] = WorkloadPlacement(unplaced=block.count, problem=problem)
        else:
            placements[block.workload] = WorkloadPlacement(instances=block.count)
            remaining[block.workload] = block
    valid_blocks = list(remaining.values())
    rows = list[ServerRow]()
    servers_needed = dict[int, int]()
    for index in _filling_order(valid_blocks, shapes):
        fitting = [block for block in remaining.values() if not _misfit(block, shapes[index])]
        filled = _fill_shape(fitting, index, shapes[index], by_busy_share)
        servers_needed[index] = filled.servers_needed
        rows += filled.rows
        remaining = _without_placed(remaining, filled.blocks)
    for block in remaining.values():
        placement = placements[block.workload]
        placement.problem = _unplaced_reason(block, placement.instances, shapes, servers_needed)
        placement.instances -= block.count
        placement.unplaced = block.count
    return _placement(rows, _placed_blocks(valid_blocks, placements), shapes, by_busy_share, placements)


def _placed_blocks(blocks: Iterable[InstanceBlock], placements: Mapping[int, WorkloadPlacement]) -> list[InstanceBlock]:
    """The blocks with the instances that have a place, without those that have none."""
    placed = []
    for block in blocks:
        count = placements[block.workload].instances
        if count:
            placed.append(msgspec.structs.replace(block, count=count))
    return placed


def _filling_order(blocks: Sequence[InstanceBlock], shapes: Sequence[ServerShape]) -> list[int]:
    """Indices of the shapes in the order in which they are filled."""

    def order_key(index: int) -> tuple[bool, int]:
        if not shapes[index].count:
            return True, 0
        # What fits one limited shape alone has its room before others.
        return False, sum(bool(_misfit(block, shapes[index])) for block in blocks)

    return sorted(range(len(shapes)), key=order_key)


def _fill_shape(blocks: Sequence[InstanceBlock], index: int, shape: ServerShape, by_busy_share: bool) -> _FilledShape:
    """Fill the servers of a shape, which may be too few for all instances."""
    rows = _fill_servers(blocks, index, shape, by_busy_share)
    servers_needed = _server_count(rows)
    # Fewer instances may be packed otherwise, and take more servers again: until they fit.
    while shape.count and _server_count(rows) > shape.count:
        blocks = _blocks_on_first_servers(blocks, rows, shape)
        rows = _fill_servers(blocks, index, shape, by_busy_share)
    return _FilledShape(blocks, rows, servers_needed)


def _server_count(rows: Iterable[ServerRow]) -> int:
    """Number of servers in these rows."""
    return sum(row.times for row in rows)


def _without_placed(
    remaining: Mapping[int, InstanceBlock], placed: Iterable[InstanceBlock]
) -> dict[int, InstanceBlock]:
    """Blocks by workload without the instances that have a place now."""
    unplaced = dict(remaining)
    for block in placed:
        count = remaining[block.workload].count - block.count
        if count:
            unplaced[block.workload] = msgspec.structs.replace(remaining[block.workload], count=count)
        else:
            del unplaced[block.workload]
    return unplaced


def domain_problem(tp: int, domain: int) -> str:
    """The reason why a TP group fits no NVLink domain of so many GPUs."""
    return f"TP {tp} takes {tp} GPUs of one NVLink domain, which has {counted(domain, 'GPU')}"


def _misfit(block: InstanceBlock, shape: ServerShape) -> str:
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


def _block_problem(block: InstanceBlock) -> str:
    """Why a block makes no sense; empty if it does."""
    if block.gpus < 1 or block.tp < 1 or block.gpus % block.tp:
        return f"{block.gpus} GPUs of an instance are not TP {block.tp} times PP"
    if not math.isfinite(block.memory_bytes) or block.memory_bytes <= 0:
        return "the memory of an instance is not known"
    return ""


def _blocks_on_first_servers(
    blocks: Sequence[InstanceBlock], rows: Sequence[ServerRow], shape: ServerShape
) -> list[InstanceBlock]:
    """Whole instances of each block on the first rows, the fullest, as far as there are servers of the shape."""
    gpus = Counter[int]()
    servers_left = shape.count
    for row in rows:
        taken = min(row.times, servers_left)
        servers_left -= taken
        for workload, number in _instance_gpus(row).items():
            gpus[workload] += number * taken
    whole = []
    for block in blocks:
        count = gpus[block.workload] // block.gpus
        if count:
            whole.append(msgspec.structs.replace(block, count=count))
    return whole


def _instance_gpus(row: ServerRow) -> Counter[int]:
    """Workload -> GPUs of all its instances on a server; a GPU that several of them share counts for each."""
    gpus = Counter[int]()
    for slot in row.slots:
        gpus.update(slot.workloads)
    return gpus


def _fill_servers(
    blocks: Sequence[InstanceBlock], index: int, shape: ServerShape, by_busy_share: bool
) -> list[ServerRow]:
    """Servers for all blocks, the fullest first: instances of several GPUs, then shared GPUs in what is free there."""
    single, large = _split_by_gpus(blocks)
    shared_gpus = _shared_gpus(single, shape, by_busy_share)
    # The largest parts first; of equal ones those with the larger TP groups, which fewer NVLink domains have room for.
    large.sort(key=lambda block: (-block.gpus // shape.parts_of(block), -block.tp))
    parts_left = {block.workload: block.count * shape.parts_of(block) for block in large}
    rows: list[ServerRow] = []
    while any(parts_left.values()):
        server = _fill_server(large, parts_left, shape)
        times = min(parts_left[workload] // number for workload, number in server.parts.items())
        for workload, number in server.parts.items():
            parts_left[workload] -= times * number
        rows += _rows_with_shared_gpus(index, server.slots, server.free_gpus, times, shared_gpus)
    if shared_gpus:  # not for a shape that nothing fits, whose GPUs may be any number
        empty = [GpuSlot()] * shape.gpus
        most_servers = sum(run.times for run in shared_gpus)
        rows += _rows_with_shared_gpus(index, empty, list(range(shape.gpus)), most_servers, shared_gpus)
    return sorted(rows, key=lambda row: -row.used_gpus)


def _split_by_gpus(blocks: Iterable[InstanceBlock]) -> tuple[list[InstanceBlock], list[InstanceBlock]]:
    """Blocks whose instances take one GPU, and those whose instances take several."""
    single = []
    large = []
    for block in blocks:
        if block.gpus == 1:
            single.append(block)
        else:
            large.append(block)
    return single, large


def _shared_gpus(single: Sequence[InstanceBlock], shape: ServerShape, by_busy_share: bool) -> list[GpuRun]:
    """GPUs with instances of one GPU each, the fullest first."""
    runs = []
    for content, times in _pack_gpus(_slot_kinds(single, shape, by_busy_share)).runs:
        runs.append(GpuRun(_slot(content, single), times))
    return sorted(runs, key=lambda run: -run.slot.memory_bytes)


def _fill_server(blocks: Sequence[InstanceBlock], parts_left: Mapping[int, int], shape: ServerShape) -> _FilledServer:
    """One server with as many instances of several GPUs as it holds, in the order of `blocks`, each TP group in the
    fullest NVLink domain that has room."""
    rooms = _free_gpus_by_domain(shape)
    slots = [GpuSlot()] * shape.gpus
    parts = dict[int, int]()
    group = -1
    for block in blocks:
        parts_per_instance = shape.parts_of(block)
        tp_groups = block.gpus // parts_per_instance // block.tp
        taken = 0
        while taken < parts_left[block.workload] and sum(len(room) // block.tp for room in rooms) >= tp_groups:
            # The stages of one spread pipeline that follow each other on a server have one number, as an instance has.
            if taken % parts_per_instance == 0:
                group += 1
            slot = GpuSlot((block.workload,), block.memory_bytes / block.gpus, block.busy_ratio or 0.0, group)
            for _ in range(tp_groups):
                _take_room(rooms, block.tp, slots, slot)
            taken += 1
        if taken:
            parts[block.workload] = taken
    return _FilledServer(slots, parts, list(chain.from_iterable(rooms)))


def _free_gpus_by_domain(shape: ServerShape) -> list[list[int]]:
    """Indices of the GPUs of each NVLink domain of an empty server."""
    rooms = list[list[int]]()
    start = 0
    for size in shape.domains:
        rooms.append(list(range(start, start + size)))
        start += size
    return rooms


def _take_room(rooms: Sequence[list[int]], tp: int, slots: list[GpuSlot], slot: GpuSlot) -> None:
    """Put a TP group into the fullest domain that has room for it: changes `rooms` and `slots`."""
    room = min((room for room in rooms if len(room) >= tp), key=len)
    for gpu in room[:tp]:
        slots[gpu] = slot
    del room[:tp]


def _rows_with_shared_gpus(
    index: int, slots: list[GpuSlot], free_gpus: list[int], times: int, shared_gpus: list[GpuRun]
) -> list[ServerRow]:
    """`times` servers with these slots, their free GPUs filled off the front of `shared_gpus`, which it changes.

    Of servers without any other instance only as many as the shared GPUs take.
    """
    is_empty = len(free_gpus) == len(slots)
    rows = []
    while times > 0 and (shared_gpus or not is_empty):
        equal = times
        if shared_gpus and free_gpus:
            # Servers are equal while the first run fills them; where it does not fill one, that one is mixed.
            equal = min(times, shared_gpus[0].times // len(free_gpus)) or 1
        filled = list(slots)
        for gpu in free_gpus:
            if shared_gpus:
                run = shared_gpus[0]
                filled[gpu] = run.slot
                run.times -= equal
                if not run.times:
                    del shared_gpus[0]
        rows.append(ServerRow(index, tuple(filled), equal))
        times -= equal
    return rows


def _slot(content: SlotContent, single: Sequence[InstanceBlock]) -> GpuSlot:
    """A GPU with instances of one GPU each. An unknown busy share counts as nothing in the sum."""
    workloads = list[int]()
    memory_bytes = list[float]()
    busy_ratios = list[float]()
    for kind, number in content:
        block = single[kind]
        workloads += [block.workload] * number
        memory_bytes.append(block.memory_bytes * number)
        busy_ratios.append((block.busy_ratio or 0.0) * number)
    return GpuSlot(tuple(sorted(workloads)), sum(memory_bytes), sum(busy_ratios))


# Shared GPUs: which instances of one GPU stand together.


def _slot_kinds(single: Iterable[InstanceBlock], shape: ServerShape, by_busy_share: bool) -> tuple[SlotKind, ...]:
    """The blocks in units of a GPU of the shape, rounded up, so that no sum is above the limit.

    Without `by_busy_share` no instance takes busy time. One whose busy share is unknown or above 1 takes a whole GPU.
    """
    kinds = []
    for block in single:
        memory = math.ceil(block.memory_bytes / shape.memory_bytes * _UNITS_PER_GPU)
        memory = min(max(memory, _UNITS_PER_GPU // _MOST_PER_GPU), _CAPACITY)
        if by_busy_share:
            busy_ratio = block.busy_ratio
        else:
            busy_ratio = 0.0
        if busy_ratio is None or not busy_ratio <= 1:
            kinds.append(SlotKind(_CAPACITY, _CAPACITY, block.count))
        else:
            kinds.append(SlotKind(memory, max(0, math.ceil(busy_ratio * _UNITS_PER_GPU)), block.count))
    return tuple(kinds)


@lru_cache(maxsize=64)
def _pack_gpus(kinds: tuple[SlotKind, ...]) -> _PackedGpus:
    """Contents of GPUs that hold all instances, on as few GPUs as are found.

    Column generation (Gilmore and Gomory 1961): the relaxed problem over the contents that pay, whole parts of it
    taken, the rest solved anew. On 150 random mixes of 6 to 20 models it was at most one GPU above the relaxed optimum.
    """
    counts = {index: kind.instances for index, kind in enumerate(kinds) if kind.instances}
    least_gpus = max(
        _divide_up(sum(kind.memory * kind.instances for kind in kinds), _CAPACITY),
        _divide_up(sum(kind.busy_time * kind.instances for kind in kinds), _CAPACITY),
    )
    by_size = _pack_by_size(kinds, counts)
    fewest = _gpus_in(by_size)
    if fewest == least_gpus or len(counts) > _MOST_KINDS:
        return _PackedGpus(by_size, least_gpus)
    relaxed = _solve_relaxed(kinds, counts)
    if relaxed.is_proven:
        least_gpus = max(least_gpus, math.ceil(sum(relaxed.shares) * (1 - _ROUNDING) - _ROUNDING))
        if fewest == least_gpus:
            return _PackedGpus(by_size, least_gpus)
    by_relaxation = _pack_by_relaxation(kinds, counts, relaxed)
    if _gpus_in(by_relaxation) < fewest:
        return _PackedGpus(by_relaxation, least_gpus)
    return _PackedGpus(by_size, least_gpus)


def _pack_by_relaxation(
    kinds: Sequence[SlotKind], counts: dict[int, int], relaxed: _RelaxedSolution
) -> list[ContentRun]:
    """Whole parts of a relaxed solution, and of the solutions anew for what is left; the last rest by its sizes."""
    runs: list[ContentRun] = []
    counts = _add_runs(_whole_parts(kinds, counts, relaxed), counts, runs)
    for _ in range(_MOST_RELAXED_PROBLEMS - 1):
        if not counts:
            break
        relaxed = _solve_relaxed(kinds, counts)
        counts = _add_runs(_whole_parts(kinds, counts, relaxed), counts, runs)
    runs += _pack_by_size(kinds, counts)
    return runs


def _divide_up(number: int, by: int) -> int:
    """The quotient, rounded up."""
    return -(-number // by)


def _gpus_in(runs: Iterable[ContentRun]) -> int:
    """The number of GPUs of a packing."""
    return sum(times for _, times in runs)


def _whole_parts(kinds: Sequence[SlotKind], counts: Mapping[int, int], relaxed: _RelaxedSolution) -> list[ContentRun]:
    """The whole GPUs of a relaxed solution; where there are none, the content with the largest share, filled up."""
    columns = relaxed.columns
    shares = relaxed.shares
    whole = []
    for content, share in zip(columns, shares, strict=True):
        whole.append((content, math.floor(share + _ROUNDING)))
    if any(times for _, times in whole):
        return whole
    # Rounded, so that of shares that differ by rounding alone the content with more kinds is taken.
    largest = max(range(len(shares)), key=lambda column: (round(shares[column], 6), len(columns[column])))
    return [(_fill_up(kinds, _sort_by_size(kinds, counts, _SIZE_ORDERS[0]), columns[largest]), 1)]


def _sort_by_size(
    kinds: Sequence[SlotKind], counts: Mapping[int, int], order_key: Callable[[SlotKind], tuple[int, int]]
) -> dict[int, int]:
    """The counts, the largest kind first."""
    return {kind: counts[kind] for kind in sorted(counts, key=lambda kind: order_key(kinds[kind]))}


def _add_runs(new: Iterable[ContentRun], counts: Mapping[int, int], runs: list[ContentRun]) -> dict[int, int]:
    """Add contents to `runs` as far as instances are left; returns the instances that are left then."""
    left = dict(counts)
    for content, wanted in new:
        times = min(wanted, *(left[kind] // number for kind, number in content))
        if times > 0:
            runs.append((content, times))
            for kind, number in content:
                left[kind] -= number * times
    return {kind: count for kind, count in left.items() if count}


def _pack_by_size(kinds: Sequence[SlotKind], counts: Mapping[int, int]) -> list[ContentRun]:
    """GPUs filled one after the other, the largest instances first; of the orders the one that takes fewest."""
    packings = [_pack_in_order(kinds, _sort_by_size(kinds, counts, order_key)) for order_key in _SIZE_ORDERS]
    return min(packings, key=_gpus_in)


def _pack_in_order(kinds: Sequence[SlotKind], counts: Mapping[int, int]) -> list[ContentRun]:
    """GPUs filled one after the other with the kinds in the order of `counts`."""
    left = dict(counts)
    runs = list[ContentRun]()
    while left:
        content = _fill_up(kinds, left, ())
        times = min(left[kind] // number for kind, number in content)
        left = _add_runs([(content, times)], left, runs)
    return runs


def _fill_up(kinds: Sequence[SlotKind], counts: Mapping[int, int], content: SlotContent) -> SlotContent:
    """The content as far as instances are left, and of all others as many as fit, in the order of `counts`."""
    numbers = {kind: min(number, counts[kind]) for kind, number in content}
    memory_left = _CAPACITY - sum(kinds[kind].memory * number for kind, number in numbers.items())
    time_left = _CAPACITY - sum(kinds[kind].busy_time * number for kind, number in numbers.items())
    for kind, count in counts.items():
        more = _fitting_number(kinds[kind], count - numbers.get(kind, 0), memory_left, time_left)
        if more:
            numbers[kind] = numbers.get(kind, 0) + more
            memory_left -= more * kinds[kind].memory
            time_left -= more * kinds[kind].busy_time
    return tuple(numbers.items())


def _solve_relaxed(kinds: Sequence[SlotKind], counts: Mapping[int, int]) -> _RelaxedSolution:
    """The fewest GPUs for these counts where parts of GPUs are allowed.

    Revised simplex: a row for each kind, a column for each content; `inverse` is that of the basis. It begins with GPUs
    of one kind each. The prices of the kinds are those at which each GPU of the basis is worth 1; while some content is
    worth more, it takes the place of a column.
    """
    order = list(counts)
    columns: list[SlotContent] = []
    inverse = [[0.0] * len(order) for _ in order]
    for row, kind in enumerate(order):
        most = _fitting_number(kinds[kind], counts[kind], _CAPACITY, _CAPACITY)
        columns.append(((kind, most),))
        inverse[row][row] = 1.0 / most
    shares = [counts[kind] * inverse[row][row] for row, kind in enumerate(order)]
    for _ in range(_MOST_COLUMNS):
        prices = {kind: sum(line[column] for line in inverse) for column, kind in enumerate(order)}
        best = _best_content(kinds, counts, prices)
        if best.value <= 1.0 + _ROUNDING:
            return _RelaxedSolution(columns, shares, best.is_proven)
        entering = _entering_column(inverse, order, best.content)
        leaving_row = _leaving_row(shares, entering)
        columns[leaving_row] = best.content
        _pivot(inverse, shares, entering, leaving_row)
    return _RelaxedSolution(columns, shares, is_proven=False)


def _entering_column(inverse: Sequence[Sequence[float]], order: Sequence[int], content: SlotContent) -> list[float]:
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


def _leaving_row(shares: Sequence[float], entering: Sequence[float]) -> int:
    """The row whose content falls to nothing first as the new one grows."""
    rows = [row for row, step in enumerate(entering) if step > _ROUNDING]
    return min(rows, key=lambda row: shares[row] / entering[row])


def _pivot(inverse: list[list[float]], shares: list[float], entering: Sequence[float], leaving_row: int) -> None:
    """Put the new column in place of the row that leaves: changes `inverse` and `shares`."""
    pivot = entering[leaving_row]
    share = shares[leaving_row] / pivot
    line = [value / pivot for value in inverse[leaving_row]]
    for row, step in enumerate(entering):
        if row != leaving_row and step:
            inverse[row] = [old - step * new for old, new in zip(inverse[row], line, strict=True)]
            shares[row] = max(0.0, shares[row] - step * share)
    inverse[leaving_row] = line
    shares[leaving_row] = share


def _fitting_number(kind: SlotKind, count: int, memory: int, busy_time: int) -> int:
    """How many of `count` instances fit what is left of a GPU."""
    by_memory = min(count, memory // kind.memory)
    if kind.busy_time:
        return min(by_memory, busy_time // kind.busy_time)
    return by_memory


def _best_content(kinds: Sequence[SlotKind], counts: Mapping[int, int], prices: Mapping[int, float]) -> _ValuedContent:
    """The content that is worth most at these prices: searched depth first, bounded by the value of the room left."""
    order = _sort_by_value(kinds, counts, prices)
    per_memory, per_time = _values_per_room(kinds, order, prices)
    best = _ValuedContent((), 0.0, is_proven=True)
    tried = 0

    def search(position: int, memory_left: int, time_left: int, value: float, content: SlotContent) -> None:
        """Try all numbers of the kind at `position` of the order, the largest first, beside `content`."""
        nonlocal best, tried
        tried += 1
        if value > best.value + _ROUNDING:
            best = best._replace(content=content, value=value)
        if position == len(order):
            return
        kind = order[position]
        size = kinds[kind]
        for number in range(_fitting_number(size, counts[kind], memory_left, time_left), -1, -1):
            if tried > _MOST_CONTENTS:
                return
            next_memory = memory_left - number * size.memory
            next_time = time_left - number * size.busy_time
            next_value = value + number * prices[kind]
            by_time = math.inf  # not a product: infinity times no time left is not a number
            if per_time[position + 1] < math.inf:
                by_time = per_time[position + 1] * next_time
            most_more = min(per_memory[position + 1] * next_memory, by_time)
            is_better = number > 0 and next_value > best.value + _ROUNDING
            if is_better or next_value + most_more > best.value + _ROUNDING:
                next_content = content
                if number:
                    next_content = (*content, (kind, number))
                search(position + 1, next_memory, next_time, next_value, next_content)

    search(0, _CAPACITY, _CAPACITY, 0.0, ())
    return best._replace(is_proven=tried <= _MOST_CONTENTS)


def _sort_by_value(kinds: Sequence[SlotKind], counts: Mapping[int, int], prices: Mapping[int, float]) -> list[int]:
    """The kinds that have a value, that of most value for its size first."""
    valued = [kind for kind in counts if prices[kind] > 0]
    return sorted(valued, key=lambda kind: -prices[kind] / (kinds[kind].memory + kinds[kind].busy_time))


def _values_per_room(
    kinds: Sequence[SlotKind], order: Sequence[int], prices: Mapping[int, float]
) -> tuple[list[float], list[float]]:
    """Most value per memory and per busy time among the kinds from each position of the order on; 0 at its end."""
    per_memory = [0.0] * (len(order) + 1)
    per_time = [0.0] * (len(order) + 1)
    for position in range(len(order) - 1, -1, -1):
        kind = kinds[order[position]]
        price = prices[order[position]]
        if kind.busy_time:
            price_per_time = price / kind.busy_time
        else:
            price_per_time = math.inf
        per_memory[position] = max(per_memory[position + 1], price / kind.memory)
        per_time[position] = max(per_time[position + 1], price_per_time)
    return per_memory, per_time


# The result: servers and GPUs of all and of each workload, the least that any placement takes, and what has no place.


def _placement(
    rows: Sequence[ServerRow],
    blocks: Sequence[InstanceBlock],
    shapes: Sequence[ServerShape],
    by_busy_share: bool,
    placements: dict[int, WorkloadPlacement],
) -> Placement:
    """The placement of these rows; `blocks` are those with the instances that are placed. Completes `placements`."""
    drawn = list[PlacedServer]()
    by_shape = [0] * len(shapes)
    gpus = 0
    used_shapes = dict[int, ServerShape]()
    by_workload = {block.workload: block for block in blocks}
    for row in rows:
        by_shape[row.shape] += row.times
        drawn += [PlacedServer(row.shape, row.slots)] * min(row.times, DRAWN_SERVERS - len(drawn))
        gpus += row.used_gpus * row.times
        used_shapes[row.shape] = shapes[row.shape]
        _count_row(row, shapes[row.shape], by_workload, placements)
    least_gpus, least_servers = _lower_bounds(blocks, list(used_shapes.values()), by_busy_share)
    return Placement(
        servers=tuple(drawn),
        servers_used=sum(by_shape),
        servers_by_shape=tuple(by_shape),
        gpus=gpus,
        least_gpus=least_gpus,
        least_servers=least_servers,
        workloads=dict(sorted(placements.items())),
    )


def _count_row(
    row: ServerRow,
    shape: ServerShape,
    blocks: Mapping[int, InstanceBlock],
    placements: Mapping[int, WorkloadPlacement],
) -> None:
    """Count the servers of a row in the placements of the workloads that stand on them."""
    used_gpus = Counter[int]()
    for slot in row.slots:
        used_gpus.update(set(slot.workloads))
    for workload, instance_gpus in _instance_gpus(row).items():
        block = blocks[workload]
        placement = placements[workload]
        placement.gpus += used_gpus[workload] * row.times
        placement.servers += row.times
        if len(used_gpus) > 1:
            placement.shared_servers += row.times
        parts_per_instance = shape.parts_of(block)
        lost = instance_gpus * parts_per_instance // block.gpus
        if parts_per_instance > 1:
            # So many stages in a row belong to at most so many pipelines, where the first and the last are cut.
            lost = min(lost, block.count, (lost + parts_per_instance - 2) // parts_per_instance + 1)
        placement.most_on_a_server = max(placement.most_on_a_server, lost)


def _lower_bounds(
    blocks: Sequence[InstanceBlock], shapes: Sequence[ServerShape], by_busy_share: bool
) -> tuple[int, int]:
    """GPUs and servers that any placement takes on the shapes that are used. Each GPU counts as the largest of them."""
    if not shapes:
        return 0, 0
    largest = max(shapes, key=lambda shape: shape.memory_bytes)
    single, large = _split_by_gpus(blocks)
    gpus = _pack_gpus(_slot_kinds(single, largest, by_busy_share)).least_gpus
    gpus += sum(block.count * block.gpus for block in large)
    gpus_left = gpus
    servers = 0
    for shape in sorted(shapes, key=lambda shape: -shape.gpus):
        most_servers = shape.count or gpus_left
        taken = min(_divide_up(gpus_left, shape.gpus), most_servers)
        servers += taken
        gpus_left = max(0, gpus_left - taken * shape.gpus)
    if len(shapes) == 1:
        servers = max(servers, _least_servers_by_groups(large, shapes[0]))
    return gpus, servers


def _least_servers_by_groups(large: Sequence[InstanceBlock], shape: ServerShape) -> int:
    """Servers that the sizes of instances and of TP groups take: no two of more than half a room share one."""
    parts = []
    tp_groups = []
    for block in large:
        per_instance = shape.parts_of(block)
        parts.append((block.gpus // per_instance, block.count * per_instance))
        tp_groups.append((block.tp, block.count * block.gpus // block.tp))
    return max(_least_servers(parts, (shape.gpus,)), _least_servers(tp_groups, shape.domains))


def _least_servers(sizes: Sequence[tuple[int, int]], rooms: Sequence[int]) -> int:
    """Servers with these rooms that so many groups take: (GPUs of a group, how many groups)."""
    servers = 0
    for size, _ in sizes:
        as_large = sum(number for other, number in sizes if other >= size)
        per_server = max(1, sum(room // size for room in rooms))
        servers = max(servers, _divide_up(as_large, per_server))
    return servers


def _unplaced_reason(
    block: InstanceBlock, count: int, shapes: Sequence[ServerShape], servers_needed: Mapping[int, int]
) -> str:
    """Why the instances that are left in the block, of `count`, have no place."""
    if not shapes:
        return "there is no shape of server"
    misfits = dict[str, None]()  # a set that keeps the order of the shapes
    fitting = list[ServerShape]()
    for shape in shapes:
        misfit = _misfit(block, shape)
        if misfit:
            misfits[misfit] = None
        else:
            fitting.append(shape)
    if not fitting:
        return "; ".join(misfits)
    # All that fit are limited: one that is not would have had room for all.
    text = f"{block.count} of {count} instances have no place: "
    last = fitting[-1]
    if block.gpus > max(shape.count * shape.gpus for shape in fitting):
        return text + f"each takes {block.gpus} GPUs, and there are {last.count} servers of {last.gpus}"
    if len(shapes) == 1:
        verb = "is" if last.count == 1 else "are"
        return text + f"{servers_needed[0]} servers are needed, there {verb} {last.count}"
    return text + f"the servers that fit them are full ({sum(shape.count for shape in fitting)})"

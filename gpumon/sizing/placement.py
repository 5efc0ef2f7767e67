"""Instances onto servers: instances of several GPUs by best fit decreasing, GPUs that instances share beside them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

import msgspec

from gpumon.readings.format import counted
from gpumon.sizing.answer import GpuSlot, PlacedServer
from gpumon.sizing.gpu_packing import CAPACITY, UNITS_PER_GPU, SlotContent, SlotKind, divide_up, pack_gpus
from gpumon.sizing.scenario import MOST_SERVER_GPUS, Packing

DRAWN_SERVERS: Final = 256
"""Servers that are drawn GPU by GPU; all others are only counted."""
_MOST_PER_GPU: Final = 1000
"""Instances that one GPU holds at most; an 80 GB GPU has no room for the contexts of more."""
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
    """Usable memory of one GPU."""
    count: int = 0
    """Number of servers that there are; 0: as many as it takes."""

    @property
    def domains(self) -> tuple[int, ...]:
        """Sizes of a server's NVLink domains, the odd rest last."""
        size = min(self.domain, self.gpus) if self.domain > 0 else self.gpus
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
    """Instances on servers. As many as `least_servers` prove that no placement takes fewer."""

    servers: tuple[PlacedServer, ...] = ()
    """Drawn GPU by GPU, the fullest first and equal ones together; at most `DRAWN_SERVERS`."""
    servers_by_shape: tuple[int, ...] = ()
    """Servers with at least one instance, drawn or not, of each shape, in the order of the shapes."""
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
        placed, filled_rows, servers_needed[index] = _fill_shape(fitting, index, shapes[index], by_busy_share)
        rows += filled_rows
        remaining = _without_placed(remaining, placed)
    for block in remaining.values():
        placement = placements[block.workload]
        placement.problem = _unplaced_reason(block, placement.instances, shapes, servers_needed)
        placement.instances -= block.count
        placement.unplaced = block.count
    placed_instances = {workload: placement.instances for workload, placement in placements.items()}
    return _placement(rows, _with_counts(valid_blocks, placed_instances), shapes, by_busy_share, placements)


def _with_counts(blocks: Iterable[InstanceBlock], counts: Mapping[int, int]) -> list[InstanceBlock]:
    """The blocks with other numbers of instances, by workload, without those that have none."""
    return [msgspec.structs.replace(block, count=counts[block.workload]) for block in blocks if counts[block.workload]]


def _filling_order(blocks: Sequence[InstanceBlock], shapes: Sequence[ServerShape]) -> list[int]:
    """Indices of the shapes in the order in which they are filled."""

    def order_key(index: int) -> tuple[bool, int]:
        if not shapes[index].count:
            return True, 0
        # What fits one limited shape alone has its room before others.
        return False, sum(bool(_misfit(block, shapes[index])) for block in blocks)

    return sorted(range(len(shapes)), key=order_key)


def _fill_shape(
    blocks: Sequence[InstanceBlock], index: int, shape: ServerShape, by_busy_share: bool
) -> tuple[Sequence[InstanceBlock], list[ServerRow], int]:
    """Fill the servers of a shape, which may be too few for all instances: the blocks that have a place, their servers,
    and the number of servers that all instances would take."""
    rows = _fill_servers(blocks, index, shape, by_busy_share)
    servers_needed = _server_count(rows)
    # Fewer instances may be packed otherwise, and take more servers again: until they fit.
    while shape.count and _server_count(rows) > shape.count:
        blocks = _blocks_on_first_servers(blocks, rows, shape)
        rows = _fill_servers(blocks, index, shape, by_busy_share)
    return blocks, rows, servers_needed


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


def _misfit(block: InstanceBlock, shape: ServerShape) -> str:
    """Why the shape holds no instance of the block; empty if it does."""
    if shape.gpus < 1 or not shape.memory_bytes > 0:  # not a number is no memory, either
        return "the server has no GPU, or none whose memory is known"
    if shape.gpus > MOST_SERVER_GPUS:
        return f"a server has {MOST_SERVER_GPUS} GPUs at most, not {shape.gpus}"
    gpu_bytes = block.memory_bytes / block.gpus
    usable_bytes = shape.memory_bytes
    if gpu_bytes > usable_bytes * (1 + _ROUNDING):
        where = "a GPU" if block.gpus == 1 else f"each of {block.gpus} GPUs"
        return f"an instance takes {gpu_bytes / 1e9:.4g} GB of {where}, of which {usable_bytes / 1e9:.4g} GB are usable"
    if block.tp > shape.domains[0]:
        domain = counted(shape.domains[0], "GPU")
        return f"TP {block.tp} takes {block.tp} GPUs of one NVLink domain, which has {domain}"
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
        taken_servers = min(row.times, servers_left)
        servers_left -= taken_servers
        for workload, number in _instance_gpus(row).items():
            gpus[workload] += number * taken_servers
    return _with_counts(blocks, {block.workload: gpus[block.workload] // block.gpus for block in blocks})


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
    large.sort(key=lambda block: (-(block.gpus // shape.parts_of(block)), -block.tp))
    parts_left = {block.workload: block.count * shape.parts_of(block) for block in large}
    rows: list[ServerRow] = []
    while any(parts_left.values()):
        slots, parts, free_gpus = _fill_server(large, parts_left, shape)
        times = min(parts_left[workload] // number for workload, number in parts.items())
        for workload, number in parts.items():
            parts_left[workload] -= times * number
        rows += _rows_with_shared_gpus(index, slots, free_gpus, times, shared_gpus)
    if shared_gpus:  # not for a shape that nothing fits, whose GPUs may be any number
        empty = [GpuSlot()] * shape.gpus
        most_servers = sum(run.times for run in shared_gpus)
        rows += _rows_with_shared_gpus(index, empty, list(range(shape.gpus)), most_servers, shared_gpus)
    return sorted(rows, key=lambda row: -row.used_gpus)


def _split_by_gpus(blocks: Iterable[InstanceBlock]) -> tuple[list[InstanceBlock], list[InstanceBlock]]:
    """Blocks whose instances take one GPU, and those whose instances take several."""
    blocks = list(blocks)
    return [block for block in blocks if block.gpus == 1], [block for block in blocks if block.gpus > 1]


def _shared_gpus(single: Sequence[InstanceBlock], shape: ServerShape, by_busy_share: bool) -> list[GpuRun]:
    """GPUs with instances of one GPU each, the fullest first."""
    runs = [
        GpuRun(_slot(content, single), times)
        for content, times in pack_gpus(_slot_kinds(single, shape, by_busy_share)).runs
    ]
    return sorted(runs, key=lambda run: -run.slot.memory_bytes)


def _fill_server(
    blocks: Sequence[InstanceBlock], parts_left: Mapping[int, int], shape: ServerShape
) -> tuple[list[GpuSlot], dict[int, int], list[int]]:
    """One server with as many instances of several GPUs as it holds, in the order of `blocks`, each TP group in the
    fullest NVLink domain that has room: its slots, workload -> instances, or pipeline stages, on it, and its free
    GPUs."""
    rooms = _free_gpus_by_domain(shape)
    slots = [GpuSlot()] * shape.gpus
    parts = dict[int, int]()
    group = -1
    for block in blocks:
        parts_per_instance = shape.parts_of(block)
        tp_groups = block.gpus // parts_per_instance // block.tp
        taken_parts = 0
        while taken_parts < parts_left[block.workload] and sum(len(room) // block.tp for room in rooms) >= tp_groups:
            # The stages of one spread pipeline that follow each other on a server have one number, as an instance has.
            if taken_parts % parts_per_instance == 0:
                group += 1
            slot = GpuSlot((block.workload,), block.memory_bytes / block.gpus, block.busy_ratio or 0.0, group)
            for _ in range(tp_groups):
                _take_room(rooms, block.tp, slots, slot)
            taken_parts += 1
        if taken_parts:
            parts[block.workload] = taken_parts
    return slots, parts, list(chain.from_iterable(rooms))


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


def _slot_kinds(single: Iterable[InstanceBlock], shape: ServerShape, by_busy_share: bool) -> tuple[SlotKind, ...]:
    """The blocks in units of a GPU of the shape, rounded up, so that no sum is above the limit.

    Without `by_busy_share` no instance takes busy time. One whose busy share is unknown or above 1 takes a whole GPU.
    """
    kinds = []
    for block in single:
        memory = math.ceil(block.memory_bytes / shape.memory_bytes * UNITS_PER_GPU)
        memory = min(max(memory, UNITS_PER_GPU // _MOST_PER_GPU), CAPACITY)
        busy_ratio = block.busy_ratio if by_busy_share else 0.0
        if busy_ratio is None or not busy_ratio <= 1:  # not a number is unknown, too
            kinds.append(SlotKind(CAPACITY, CAPACITY, block.count))
        else:
            kinds.append(SlotKind(memory, max(0, math.ceil(busy_ratio * UNITS_PER_GPU)), block.count))
    return tuple(kinds)


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
    gpus = pack_gpus(_slot_kinds(single, largest, by_busy_share)).least_gpus
    gpus += sum(block.count * block.gpus for block in large)
    gpus_left = gpus
    servers = 0
    for shape in sorted(shapes, key=lambda shape: -shape.gpus):
        most_servers = shape.count or gpus_left
        taken_servers = min(divide_up(gpus_left, shape.gpus), most_servers)
        servers += taken_servers
        gpus_left = max(0, gpus_left - taken_servers * shape.gpus)
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
        servers = max(servers, divide_up(as_large, per_server))
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

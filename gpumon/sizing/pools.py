"""Instances onto servers with several types of GPU: one type after the other, each instance on one of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, groupby
from typing import Final, NamedTuple

import msgspec

from gpumon.readings.missing import Missing, Reading
from gpumon.sizing.answer import NOT_GIVEN, GpuCount, Packed, PlacedServer
from gpumon.sizing.placement import Placement, ServerShape, WorkloadPlacement, place
from gpumon.sizing.scenario import Catalogues, Packing, Scenario, Server, Workload
from gpumon.sizing.search import INFEASIBLE, Demand
from gpumon.sizing.servers import server_price, weighted_sum
from gpumon.specs.gpu import GpuSpec

_NONE_LEFT: Final = 1e-12
_ROUNDING: Final = 1e-9


class ServerPool(NamedTuple):
    """Servers with one type of GPU that stand beside each other in the file, and what each workload needs on them."""

    shapes: tuple[int, ...]
    """Indices in `Scenario.server`."""
    servers: tuple[Server, ...]
    demands: tuple[Demand, ...]
    """One for each workload."""

    @property
    def gpu(self) -> str:
        """Catalogue name of its GPUs; empty where no server is given."""
        return self.servers[0].gpu if self.servers else ""

    def only(self, chosen: Sequence[int]) -> ServerPool:
        """The pool with some of the workloads."""
        return self._replace(demands=tuple(self.demands[index] for index in chosen))


class WorkloadPart(NamedTuple):
    """Instances of one workload on one type of GPU."""

    demand: Demand
    placement: WorkloadPlacement

    @property
    def number(self) -> int:
        """Instances of it."""
        return self.placement.instances


class WorkloadSplit(NamedTuple):
    """A way to share the workloads among the pools."""

    order: tuple[int, ...]
    """Pools in the order in which they are filled."""
    homes: tuple[tuple[int, ...], ...]
    """Pools that each workload may stand on before it takes what others leave; empty: all."""
    most: tuple[int | None, ...]
    """Servers of each shape that may be used; None: as many as there are."""


class Filled(NamedTuple):
    """A packing: the whole, and where the instances of each workload stand."""

    packed: Packed
    parts: tuple[tuple[WorkloadPart, ...], ...]
    """Parts of each workload, by type of GPU."""
    problems: tuple[str, ...]
    """Why instances of each workload have no place; empty where all have one."""
    unplaced: float
    """Shares of the workloads that have no place, in sum."""
    servers_by_shape: tuple[int, ...]
    """Without spare ones."""
    busiest: float
    """Highest sum of busy shares on one GPU."""


def pools_of(scenario: Scenario, needs: Callable[[Workload, Scenario], Demand]) -> tuple[ServerPool, ...]:
    """The pools of a scenario; `needs` is asked once for servers that differ in number and price alone."""
    pools: list[ServerPool] = []
    asked: dict[Server, tuple[Demand, ...]] = {}
    for _, run in groupby(range(len(scenario.server)), key=lambda index: scenario.server[index].gpu):
        shapes = tuple(run)
        servers = tuple(scenario.server[index] for index in shapes)
        alike = msgspec.structs.replace(servers[0], count=0, price_per_gpu_hour=None, price_per_hour=0.0)
        if alike not in asked:
            alone = msgspec.structs.replace(scenario, server=servers)
            asked[alike] = tuple(needs(workload, alone) for workload in scenario.workload)
        pools.append(ServerPool(shapes, servers, asked[alike]))
    return tuple(pools) or (ServerPool((), (), tuple(needs(workload, scenario) for workload in scenario.workload)),)


class _Left:
    """The part of a workload that has no place yet."""

    def __init__(self, demand: Demand, homes: tuple[int, ...]) -> None:
        self.homes = homes
        self.share = 1.0 if demand.instances else 0.0
        self.spares = demand.spares if demand.instances else 0
        self.parts: list[WorkloadPart] = []
        self.problem = ""

    def needed(self, demand: Demand) -> int:
        """Instances for the rest of the target, without spares."""
        if self.share <= _NONE_LEFT or not demand.instances:
            return 0
        if self.share >= 1.0:
            return demand.needed
        return max(1, math.ceil(demand.exact * self.share - _ROUNDING))

    def wanted(self, demand: Demand) -> int:
        """With spares."""
        if demand.instances:
            return self.needed(demand) + self.spares
        return 0

    @property
    def lack(self) -> str:
        """Why instances of it have no place; empty where all have one."""
        if self.share > _NONE_LEFT or self.spares > 0:
            return self.problem
        return ""

    def take(self, demand: Demand, placement: WorkloadPlacement) -> None:
        """Book the instances that have a place: first those that the target needs, then spares."""
        needed = self.needed(demand)
        served = min(placement.instances, needed)
        if served == needed:
            self.share = 0.0
        else:
            self.share = max(0.0, self.share - served / demand.exact)
        self.spares -= placement.instances - served
        self.problem = placement.problem
        if placement.instances:
            self._add(WorkloadPart(demand, placement))

    def _add(self, part: WorkloadPart) -> None:
        """One part for each type of GPU, however often its servers are filled."""
        for index, before in enumerate(self.parts):
            if before.demand is part.demand:
                self.parts[index] = WorkloadPart(part.demand, _both(before.placement, part.placement))
                return
        self.parts.append(part)


def _both(placement: WorkloadPlacement, other: WorkloadPlacement) -> WorkloadPlacement:
    """Instances on two groups of servers."""
    return WorkloadPlacement(
        gpus=placement.gpus + other.gpus,
        servers=placement.servers + other.servers,
        shared_servers=placement.shared_servers + other.shared_servers,
        most_on_a_server=max(placement.most_on_a_server, other.most_on_a_server),
        instances=placement.instances + other.instances,
        unplaced=other.unplaced,
        problem=other.problem,
    )


def first_of(pools: Sequence[ServerPool]) -> tuple[Demand, ...]:
    """Needs of each workload on the first pool that carries it; on the first of all where none does."""
    needs = []
    for demands in zip(*(pool.demands for pool in pools), strict=True):
        needs.append(_carried(demands))
    return tuple(needs)


def _carried(demands: Sequence[Demand]) -> Demand:
    """The first of the needs that have instances; the first of all where none has."""
    for demand in demands:
        if demand.instances:
            return demand
    return demands[0]


def fill_pools(
    pools: Sequence[ServerPool], scenario: Scenario, catalogues: Catalogues, packing: Packing, split: WorkloadSplit
) -> Filled:
    """Place what the demands ask for, pool after pool in the order of the split: at first each workload on its homes,
    then the rest wherever whole servers are left. Figures are missing where a workload has no answer or no place."""
    left = []
    for demand, homes in zip(first_of(pools), split.homes, strict=True):
        left.append(_Left(demand, tuple(home for home in homes if _is_used(pools[home], split))))
    used: Counter[int] = Counter()
    placements: list[Placement] = []
    gpus: Counter[str] = Counter()
    for index, homed in _turns(split):
        pool = pools[index]
        wanted = _wanted(left, pool, index, homed=homed)
        if not any(wanted):
            continue
        shapes = _shapes(pool, scenario, split, used)
        placement = _placed(pool, shapes, wanted, scenario, packing)
        for workload, count in enumerate(wanted):
            if count:
                left[workload].take(pool.demands[workload], placement.workloads[workload])
        used.update(dict(zip(shapes, placement.servers_by_shape, strict=False)))
        gpus[pool.gpu] += placement.gpus
        placements.append(placement)
    return _filled(pools, scenario, catalogues, left, used, gpus, placements)


def _wanted(left: Sequence[_Left], pool: ServerPool, index: int, *, homed: bool) -> list[int]:
    """Instances of each workload that are to stand on a pool; with `homed` only of those that have it as a home."""
    wanted = []
    for workload, demand in zip(left, pool.demands, strict=True):
        elsewhere = homed and workload.homes and index not in workload.homes
        wanted.append(0 if elsewhere else workload.wanted(demand))
    return wanted


def _is_used(pool: ServerPool, split: WorkloadSplit) -> bool:
    """Whether the split has servers of a pool; a home without any is none."""
    return any(split.most[shape] != 0 for shape in pool.shapes)


def _turns(split: WorkloadSplit) -> Iterator[tuple[int, bool]]:
    """Pools in turn, and whether workloads keep to their homes."""
    if any(split.homes):
        for pool in split.order:
            yield pool, True
    for pool in split.order:
        yield pool, False


def _shapes(pool: ServerPool, scenario: Scenario, split: WorkloadSplit, used: Counter[int]) -> dict[int, int]:
    """Shapes of a pool that have servers left -> how many; 0: as many as it takes."""
    left: dict[int, int] = {}
    for shape in pool.shapes:
        most = split.most[shape]
        count = scenario.server[shape].count
        if count and (most is None or count < most):
            most = count
        if most is None:
            left[shape] = 0
        elif most > used[shape]:
            left[shape] = most - used[shape]
    return left


def _placed(
    pool: ServerPool, shapes: dict[int, int], wanted: Sequence[int], scenario: Scenario, packing: Packing
) -> Placement:
    """So many instances of each workload on what is left of a pool; the servers drawn have the scenario's shapes."""
    usable = _usable_bytes(pool.demands, scenario)
    blocks = []
    for index, count in enumerate(wanted):
        if count:
            blocks.append(pool.demands[index].block(index, usable, count))
    if pool.shapes and not shapes:
        full = f"the servers with {pool.gpu} are full"
        return Placement(
            workloads={block.workload: WorkloadPlacement(unplaced=block.count, problem=full) for block in blocks}
        )
    numbers = list(shapes)
    rooms = []
    for shape, count in shapes.items():
        server = scenario.server[shape]
        rooms.append(ServerShape(server.gpus, server.nvlink_gpus or server.gpus, usable, count))
    placement = place(blocks, rooms, packing)
    drawn = tuple(msgspec.structs.replace(server, shape=numbers[server.shape]) for server in placement.servers)
    return msgspec.structs.replace(placement, servers=drawn)


def _filled(
    pools: Sequence[ServerPool],
    scenario: Scenario,
    catalogues: Catalogues,
    left: Sequence[_Left],
    used: Counter[int],
    gpus: Counter[str],
    placements: Sequence[Placement],
) -> Filled:
    """The packing as one answer."""
    servers = scenario.server
    layout = _layout(placements)
    spare = scenario.spare_servers if used.total() else 0
    spare_shape = _spare_shape(servers, used, spare)
    paid = Counter(used)
    if spare_shape is not None:
        paid[spare_shape] += spare
    parts = tuple(tuple(workload.parts) for workload in left)
    problems = tuple(workload.lack for workload in left)
    problem = next(filter(None, (*problems, _spare_problem(spare, spare_shape))), "")
    figures: dict[str, Reading] = {
        **_part_sums(parts),
        "gpus": float(gpus.total()),
        "servers": float(paid.total()),
        "price_per_hour": _price(servers, paid, catalogues),
        "servers_least": _least_servers(pools, placements, spare),
    }
    by_gpu = tuple(_by_gpu(servers, gpus, paid))
    if problem or not parts or not all(parts):
        figures = dict.fromkeys(figures, INFEASIBLE)
        by_gpu = ()
    packed = Packed(
        **figures,
        layout=layout,
        problem=problem,
        spare_servers=spare,
        spare_shape=spare_shape or 0,
        by_gpu=by_gpu,
    )
    used_by_shape = tuple(used[shape] for shape in range(len(servers)))
    unplaced = sum(workload.share for workload in left)
    return Filled(packed, parts, problems, unplaced, used_by_shape, _busiest(layout))


def _part_sums(parts: Sequence[Sequence[WorkloadPart]]) -> dict[str, Reading]:
    """Number and memory of all instances."""
    instances = 0
    memory = []
    for part in chain.from_iterable(parts):
        instances += part.number
        memory.append((part.demand.memory_bytes, part.number))
    return {"instances": float(instances), "memory_bytes": weighted_sum(memory)}


def _price(servers: Sequence[Server], paid: Counter[int], catalogues: Catalogues) -> Reading:
    """Price of an hour of all servers, spare ones included."""
    return weighted_sum((server_price(servers[shape], catalogues), number) for shape, number in sorted(paid.items()))


def _layout(placements: Sequence[Placement]) -> tuple[PlacedServer, ...]:
    """The drawn servers of all types."""
    return tuple(chain.from_iterable(placement.servers for placement in placements))


def _least_servers(pools: Sequence[ServerPool], placements: Sequence[Placement], spare: int) -> Reading:
    """The bound of servers; not given over several types of GPU: that for one says nothing of what another takes."""
    if len(pools) != 1 or not placements:
        return NOT_GIVEN
    return float(placements[0].least_servers + spare)


def _busiest(layout: Sequence[PlacedServer]) -> float:
    """Highest sum of busy shares on one GPU."""
    busiest = 0.0
    for server in layout:
        for slot in server.gpus:
            busiest = max(busiest, slot.busy_ratio)
    return busiest


def _spare_problem(spare: int, spare_shape: int | None) -> str:
    """Why there are no such spare servers; empty where there are, or none is asked for."""
    if spare and spare_shape is None:
        return f"{spare} spare servers: no type of server has that many left; raise its count or ask for fewer"
    return ""


def _spare_shape(servers: Sequence[Server], used: Counter[int], spare: int) -> int | None:
    """The shape of spare servers: of a type in use where enough of it are left, else of any; None: of none."""
    if not spare:
        return None
    types_in_use = {servers[index].gpu for index in used if used[index]}
    enough = []
    for index, server in enumerate(servers):
        if not server.count or server.count >= used[index] + spare:
            enough.append(index)
    # A shape without a count can be bought; one with a count is there, and may be kept for other work.
    enough.sort(key=lambda index: (servers[index].gpu not in types_in_use, servers[index].count > 0))
    return enough[0] if enough else None


def _by_gpu(servers: Sequence[Server], gpus: Counter[str], paid: Counter[int]) -> Iterator[GpuCount]:
    """GPUs with an instance, and servers, of each type in use."""
    by_type: Counter[str] = Counter()
    for shape, number in paid.items():
        by_type[servers[shape].gpu] += number
    for name in dict.fromkeys(server.gpu for server in servers):
        if by_type[name]:
            yield GpuCount(name, gpus[name], by_type[name])


def _first_gpu(demands: Sequence[Demand]) -> GpuSpec | None:
    """The type of GPU of the first workload that has one."""
    for demand in demands:
        if demand.instance.gpu is not None:
            return demand.instance.gpu
    return None


def _usable_bytes(demands: Sequence[Demand], scenario: Scenario) -> float:
    """Memory of one GPU that instances may take; as much as an engine was seen to take of such a GPU fits always."""
    gpu = _first_gpu(demands)
    if gpu is None:
        return 0.0
    taken = []
    for demand in demands:
        if demand.memory_is_measured and not isinstance(demand.memory_bytes, Missing) and not demand.problem:
            taken.append(demand.memory_bytes / demand.instance.gpus)
    return max(gpu.memory_bytes * scenario.usable_memory_ratio, *taken, 0.0)

"""Instances onto servers with several types of GPU: one type after the other, each instance on one of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
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
"""Share of a workload below which nothing of it is left to place: what rounding leaves."""
_ROUNDING: Final = 1e-9
"""Part of an instance that rounding may add."""
_PACKED_FIGURES: Final = ("instances", "memory_bytes", "gpus", "servers", "price_per_hour", "servers_least")
"""Figures of a `Packed`, all of which are missing where something has no place."""


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
    """Needs of the workload on that type."""
    placement: WorkloadPlacement

    @property
    def instances(self) -> int:
        """Number of its instances, spares included."""
        return self.placement.instances


class WorkloadSplit(NamedTuple):
    """A way to share the workloads among the pools."""

    order: tuple[int, ...]
    """Indices of the pools, in the order in which they are filled."""
    homes: tuple[tuple[int, ...], ...]
    """Pools that each workload may stand on before it takes what others leave; empty: all."""
    most_servers: tuple[int | None, ...]
    """Servers of each shape that may be used; None: as many as there are."""


class PackedPools(NamedTuple):
    """A packing: the whole, and where the instances of each workload stand."""

    packed: Packed
    parts: tuple[tuple[WorkloadPart, ...], ...]
    """Parts of each workload, by type of GPU."""
    problems: tuple[str, ...]
    """Why instances of each workload have no place; empty where all have one."""
    unplaced: float
    """Shares of the workloads that have no place, in sum."""
    servers_by_shape: tuple[int, ...]
    """Servers of each shape that are used, without spare ones."""
    busiest_ratio: float
    """Highest sum of busy shares on one GPU."""


def pools_of(scenario: Scenario, demand_for: Callable[[Workload, Scenario], Demand]) -> tuple[ServerPool, ...]:
    """The pools of a scenario; without a server one pool, of which nothing is known.

    `demand_for` gives the needs of a workload on the servers of a scenario. It is asked once for pools whose first
    servers differ in number and price alone.
    """
    pools: list[ServerPool] = []
    known_demands: dict[Server, tuple[Demand, ...]] = {}
    for _, neighbours in groupby(range(len(scenario.server)), key=lambda index: scenario.server[index].gpu):
        shapes = tuple(neighbours)
        servers = tuple(scenario.server[index] for index in shapes)
        hardware = msgspec.structs.replace(servers[0], count=0, price_per_gpu_hour=None, price_per_hour=0.0)
        if hardware not in known_demands:
            on_pool = msgspec.structs.replace(scenario, server=servers)
            known_demands[hardware] = tuple(demand_for(workload, on_pool) for workload in scenario.workload)
        pools.append(ServerPool(shapes, servers, known_demands[hardware]))
    if pools:
        return tuple(pools)
    demands = tuple(demand_for(workload, scenario) for workload in scenario.workload)
    return (ServerPool((), (), demands),)


class _OpenWorkload:
    """A workload while pools are filled: the instances that have a place, and what has none yet."""

    def __init__(self, demand: Demand, homes: tuple[int, ...]) -> None:
        self.homes = homes
        """Pools that it may stand on before it takes what others leave; empty: all."""
        self.open_share = 0.0
        """Share of its target that no instance with a place serves."""
        self.open_spares = 0
        """Spare instances without a place."""
        if demand.instances:
            self.open_share = 1.0
            self.open_spares = demand.spares
        self.parts: list[WorkloadPart] = []
        self._placement_problem = ""
        """Why the pool that was filled last has no place for the rest."""

    def _instances_needed(self, demand: Demand) -> int:
        """Instances for the open share of the target, without spares; `demand`: the needs on a type of GPU."""
        if self.open_share <= _NONE_LEFT or not demand.instances:
            return 0
        if self.open_share >= 1.0:
            return demand.needed_instances
        return max(1, math.ceil(demand.exact_instances * self.open_share - _ROUNDING))

    def instances_to_place(self, demand: Demand) -> int:
        """Instances that have no place yet, with spares; 0 on a type of GPU that does not carry the workload."""
        if demand.instances:
            return self._instances_needed(demand) + self.open_spares
        return 0

    @property
    def problem(self) -> str:
        """Why instances of it have no place; empty where all have one."""
        if self.open_share > _NONE_LEFT or self.open_spares > 0:
            return self._placement_problem
        return ""

    def add_placed(self, demand: Demand, placement: WorkloadPlacement) -> None:
        """Add the instances that found a place: first those that the target needs, then spares."""
        needed = self._instances_needed(demand)
        serving = min(placement.instances, needed)
        if serving == needed:
            self.open_share = 0.0
        else:
            self.open_share = max(0.0, self.open_share - serving / demand.exact_instances)
        self.open_spares -= placement.instances - serving
        self._placement_problem = placement.problem
        if placement.instances:
            self._add_part(WorkloadPart(demand, placement))

    def _add_part(self, part: WorkloadPart) -> None:
        """Add instances to the part on their type of GPU: one part for each, however often its servers are filled."""
        for index, earlier in enumerate(self.parts):
            if earlier.demand is part.demand:
                both = _joined_placement(earlier.placement, part.placement)
                self.parts[index] = WorkloadPart(part.demand, both)
                return
        self.parts.append(part)


def _joined_placement(earlier: WorkloadPlacement, later: WorkloadPlacement) -> WorkloadPlacement:
    """The placement of a workload on two groups of servers; the one that was filled later knows what is left."""
    return WorkloadPlacement(
        gpus=earlier.gpus + later.gpus,
        servers=earlier.servers + later.servers,
        shared_servers=earlier.shared_servers + later.shared_servers,
        most_on_a_server=max(earlier.most_on_a_server, later.most_on_a_server),
        instances=earlier.instances + later.instances,
        unplaced=later.unplaced,
        problem=later.problem,
    )


def first_demands(pools: Sequence[ServerPool]) -> tuple[Demand, ...]:
    """Needs of each workload on the first pool that carries it; on the first of all where none does."""
    demands_of_workloads = zip(*(pool.demands for pool in pools), strict=True)
    return tuple(
        next((demand for demand in demands if demand.instances), demands[0]) for demands in demands_of_workloads
    )


def fill_pools(
    pools: Sequence[ServerPool], scenario: Scenario, catalogues: Catalogues, packing: Packing, split: WorkloadSplit
) -> PackedPools:
    """Place what the demands ask for, pool after pool in the order of the split: at first each workload on its homes,
    then the rest wherever whole servers are left. Figures are missing where a workload has no answer or no place."""
    filling = _Filling(pools, scenario, packing, split)
    if any(split.homes):
        for index in split.order:
            filling.fill(index, homed_only=True)
    for index in split.order:
        filling.fill(index, homed_only=False)
    return filling.result(catalogues)


class _Filling:
    """Pools while they are filled."""

    def __init__(self, pools: Sequence[ServerPool], scenario: Scenario, packing: Packing, split: WorkloadSplit) -> None:
        self._pools = pools
        self._scenario = scenario
        self._packing = packing
        self._split = split
        self._workloads: list[_OpenWorkload] = []
        self._used_servers: Counter[int] = Counter()
        """Shape -> servers of it that are used."""
        self._used_gpus: Counter[str] = Counter()
        """Type of GPU -> GPUs with an instance."""
        self._placements: list[Placement] = []
        for demand, homes in zip(first_demands(pools), split.homes, strict=True):
            self._workloads.append(_OpenWorkload(demand, tuple(filter(self._has_servers, homes))))

    def _has_servers(self, index: int) -> bool:
        """Whether the split uses servers of a pool; a home without any is none."""
        return any(self._split.most_servers[shape] != 0 for shape in self._pools[index].shapes)

    def fill(self, index: int, *, homed_only: bool) -> None:
        """Place on a pool what has no place yet; with `homed_only` not the workloads whose homes are elsewhere."""
        pool = self._pools[index]
        counts = []
        for workload, demand in zip(self._workloads, pool.demands, strict=True):
            if homed_only and workload.homes and index not in workload.homes:
                counts.append(0)
            else:
                counts.append(workload.instances_to_place(demand))
        if not any(counts):
            return
        free_servers = self._free_servers(pool)
        placement = _place_on_pool(pool, free_servers, counts, self._scenario, self._packing)
        for number, count in enumerate(counts):
            if count:
                self._workloads[number].add_placed(pool.demands[number], placement.workloads[number])
        # A pool that is full has no servers by shape.
        self._used_servers.update(dict(zip(free_servers, placement.servers_by_shape, strict=False)))
        self._used_gpus[pool.gpu] += placement.gpus
        self._placements.append(placement)

    def _free_servers(self, pool: ServerPool) -> dict[int, int]:
        """Shapes of a pool that have servers left -> how many; 0: as many as it takes."""
        free_servers: dict[int, int] = {}
        for shape in pool.shapes:
            allowed = self._split.most_servers[shape]
            count = self._scenario.server[shape].count
            if count and (allowed is None or count < allowed):
                allowed = count
            if allowed is None:
                free_servers[shape] = 0
            elif allowed > self._used_servers[shape]:
                free_servers[shape] = allowed - self._used_servers[shape]
        return free_servers

    def result(self, catalogues: Catalogues) -> PackedPools:
        """The packing of the pools as they are filled now."""
        layout = tuple(chain.from_iterable(placement.servers for placement in self._placements))
        return PackedPools(
            packed=self._packed(layout, catalogues),
            parts=tuple(tuple(workload.parts) for workload in self._workloads),
            problems=tuple(workload.problem for workload in self._workloads),
            unplaced=sum(workload.open_share for workload in self._workloads),
            servers_by_shape=tuple(self._used_servers[shape] for shape in range(len(self._scenario.server))),
            busiest_ratio=max((slot.busy_ratio for server in layout for slot in server.gpus), default=0.0),
        )

    def _packed(self, layout: tuple[PlacedServer, ...], catalogues: Catalogues) -> Packed:
        """The figures of the packing; missing where a workload, or a spare server, has no place."""
        servers = self._scenario.server
        spare = _spare_servers(self._scenario, self._used_servers)
        paid_servers = Counter(self._used_servers)
        if spare.shape is not None:
            paid_servers[spare.shape] += spare.servers
        workload_problems = (workload.problem for workload in self._workloads)
        problem = next(filter(None, (*workload_problems, spare.problem)), "")
        every_workload_stands = bool(self._workloads) and all(workload.parts for workload in self._workloads)
        figures: dict[str, Reading] = dict.fromkeys(_PACKED_FIGURES, INFEASIBLE)
        by_gpu: tuple[GpuCount, ...] = ()
        if every_workload_stands and not problem:
            prices = [
                (server_price(servers[shape], catalogues), count) for shape, count in sorted(paid_servers.items())
            ]
            figures = {
                **_sums_of_instances(self._workloads),
                "gpus": float(self._used_gpus.total()),
                "servers": float(paid_servers.total()),
                "price_per_hour": weighted_sum(prices),
                "servers_least": _least_servers(self._pools, self._placements, spare.servers),
            }
            by_gpu = tuple(_by_gpu(servers, self._used_gpus, paid_servers))
        return Packed(
            **figures,
            layout=layout,
            problem=problem,
            spare_servers=spare.servers,
            spare_shape=spare.shape or 0,
            by_gpu=by_gpu,
        )


def _place_on_pool(
    pool: ServerPool, free_servers: dict[int, int], counts: Sequence[int], scenario: Scenario, packing: Packing
) -> Placement:
    """So many instances of each workload on the free servers of a pool; the servers drawn have the scenario's shapes.

    `free_servers`: shape -> servers; 0: as many as it takes. `counts`: instances of each workload.
    """
    usable_bytes = _usable_bytes(pool.demands, scenario)
    blocks = [pool.demands[index].block(index, usable_bytes, count) for index, count in enumerate(counts) if count]
    if pool.shapes and not free_servers:
        problem = f"the servers with {pool.gpu} are full"
        unplaced = {block.workload: WorkloadPlacement(unplaced=block.count, problem=problem) for block in blocks}
        return Placement(workloads=unplaced)
    shapes = []
    for shape, count in free_servers.items():
        server = scenario.server[shape]
        shapes.append(ServerShape(server.gpus, server.domain, usable_bytes, count))
    placement = place(blocks, shapes, packing)
    # `place` numbers the shapes that it was given.
    scenario_shapes = list(free_servers)
    drawn = [msgspec.structs.replace(placed, shape=scenario_shapes[placed.shape]) for placed in placement.servers]
    return msgspec.structs.replace(placement, servers=tuple(drawn))


def _sums_of_instances(workloads: Iterable[_OpenWorkload]) -> dict[str, Reading]:
    """Number and memory of all instances."""
    parts = [part for workload in workloads for part in workload.parts]
    instances = sum(part.instances for part in parts)
    memory_bytes = weighted_sum((part.demand.memory_bytes, part.instances) for part in parts)
    return {"instances": float(instances), "memory_bytes": memory_bytes}


def _least_servers(pools: Sequence[ServerPool], placements: Sequence[Placement], spare_servers: int) -> Reading:
    """The bound of servers; not given over several types of GPU: that for one says nothing of what another takes."""
    if len(pools) != 1 or not placements:
        return NOT_GIVEN
    return float(placements[0].least_servers + spare_servers)


class _SpareServers(NamedTuple):
    """Spare servers of a packing, all of one shape."""

    servers: int = 0
    shape: int | None = None
    """Index in `Scenario.server`; None: there are none."""
    problem: str = ""
    """Why no shape has so many; empty where one has, or none is asked for."""


def _spare_servers(scenario: Scenario, used_servers: Counter[int]) -> _SpareServers:
    """The spare servers that a scenario asks for beside those that are used; none where nothing is used.

    They are of a type in use if enough of it are left, else of any.
    """
    count = scenario.spare_servers
    if not count or not used_servers.total():
        return _SpareServers()
    servers = scenario.server
    types_in_use = {servers[shape].gpu for shape in used_servers if used_servers[shape]}
    shapes = [
        shape for shape, server in enumerate(servers) if not server.count or server.count >= used_servers[shape] + count
    ]
    if not shapes:
        problem = f"{count} spare servers: no type of server has that many left; raise its count or ask for fewer"
        return _SpareServers(count, problem=problem)
    # A shape without a count can be bought; one with a count is there, and may be kept for other work.
    shapes.sort(key=lambda shape: (servers[shape].gpu not in types_in_use, servers[shape].count > 0))
    return _SpareServers(count, shapes[0])


def _by_gpu(servers: Sequence[Server], used_gpus: Counter[str], paid_servers: Counter[int]) -> Iterator[GpuCount]:
    """GPUs with an instance, and servers with spare ones, of each type in use."""
    servers_by_type: Counter[str] = Counter()
    for shape, count in paid_servers.items():
        servers_by_type[servers[shape].gpu] += count
    for gpu in dict.fromkeys(server.gpu for server in servers):
        if servers_by_type[gpu]:
            yield GpuCount(gpu, used_gpus[gpu], servers_by_type[gpu])


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
    measured_bytes = [
        demand.memory_bytes / demand.instance.gpus
        for demand in demands
        if demand.memory_is_measured and not isinstance(demand.memory_bytes, Missing) and not demand.problem
    ]
    return max(gpu.memory_bytes * scenario.usable_memory_ratio, *measured_bytes, 0.0)

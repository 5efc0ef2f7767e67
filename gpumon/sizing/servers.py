"""Instances onto servers, by one packing rule: one kind of GPU after the other, in the order of the shapes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final, NamedTuple

import msgspec

from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.sizing.answer import Packed, PlacedServer
from gpumon.sizing.capacity import INFEASIBLE, Demand, demand_of
from gpumon.sizing.placement import Placement, Shape, place
from gpumon.sizing.scenario import Known, Packing, Scenario, Server

NO_PRICE: Final = Missing(Reason.NO_PRICE)
_NONE_LEFT: Final = 1e-12
_ROUNDING: Final = 1e-9


class Part(NamedTuple):
    """Instances of one workload on one kind of GPU."""

    demand: Demand
    number: int
    on_a_server: int = 1
    """Of those, on the server that holds most."""


class Placed(msgspec.Struct):
    """How much of a packing belongs to one workload."""

    parts: list[Part]
    """Where its instances stand: one part per kind of GPU."""
    notes: list[str]
    left: float
    """Share of it that has no place yet."""
    instances: int = 0
    gpus: int = 0
    """That hold an instance of it."""
    servers: int = 0
    servers_shared: int = 0
    """Of these, those that hold another workload, too."""
    problem: str = ""
    """Why instances of it have no place."""
    spare_holds: bool | None = None
    """Whether the spare servers can take in what the loss of a server costs it; None: there are none."""


class Filled:
    """A packing: the whole, and what belongs to each workload."""

    def __init__(self, demands: Sequence[Demand], scenario: Scenario, known: Known, packing: Packing) -> None:
        """Place what the demands ask for. A kind of GPU whose servers are counted is filled before the next one is
        begun; what is left over is asked for anew there, as an instance on another GPU carries more or less."""
        self._scenario, self._known = scenario, known
        self.workloads = [Placed([], [], 1.0 if demand.instances else 0.0) for demand in demands]
        self.gpus_by_type: Counter[str] = Counter()
        """Kind of GPU -> how many of it are in use."""
        self.servers_by_type: Counter[str] = Counter()
        """Kind of GPU -> servers that are paid for, spare ones with them."""
        self._by_shape: Counter[int] = Counter()
        self._layout: list[PlacedServer] = []
        self._least = 0
        for _, shapes in groupby(range(len(scenario.server)), key=lambda at: scenario.server[at].gpu):
            if any(each.left > _NONE_LEFT for each in self.workloads):
                self._add(demands, list(shapes), packing)
        self.busiest = max((slot.busy_ratio for server in self._layout for slot in server.gpus), default=0.0)
        """Highest sum of busy shares on one GPU."""
        self.packed = self._packed(all(demand.instances for demand in demands) and bool(demands))

    def _add(self, demands: Sequence[Demand], shapes: Sequence[int], packing: Packing) -> None:
        """Place what is left on servers with one kind of GPU."""
        first, servers = shapes[0], [self._scenario.server[at] for at in shapes]
        here = [
            demand if first == demand.shape else demand_of(demand.workload, self._scenario, self._known, first)
            for demand in demands
        ]
        usable = _usable_bytes(here, self._scenario)
        wanted = [_count(demand, each.left) for demand, each in zip(here, self.workloads, strict=True)]
        blocks = [here[at].block(at, usable, count) for at, count in enumerate(wanted) if count]
        found = place(blocks, [_shape(server, usable, self._known) for server in servers], packing)
        for at, count in enumerate(wanted):
            self._book(at, here[at], count, found, servers[0].gpu)
        for at, number in zip(shapes, found.servers_by_shape, strict=True):
            self._by_shape[at] = number
        self._layout += [msgspec.structs.replace(each, shape=shapes[each.shape]) for each in found.servers]
        self._least += found.least_servers
        if found.gpus:
            self.gpus_by_type[servers[0].gpu] += found.gpus
            self.servers_by_type[servers[0].gpu] += found.servers_used

    def _book(self, at: int, demand: Demand, count: int, found: Placement, gpu: str) -> None:
        each = self.workloads[at]
        if not count:
            if each.left > _NONE_LEFT:
                each.notes.append(f"not on {gpu}: {demand.problem}")
            return
        stands = found.workloads[at]
        number = count - stands.unplaced
        if number:
            each.parts.append(Part(demand, number, stands.most_on_a_server))
            if len(self._scenario.server) > 1:
                each.notes.append(f"{number} on {gpu}, at most {demand.planned:g} requests each")
        each.instances += number
        each.gpus += stands.gpus
        each.servers += stands.servers
        each.servers_shared += stands.shared_servers
        each.problem = stands.problem
        each.left *= stands.unplaced / count

    def _packed(self, whole: bool) -> Packed:
        """Figures are missing where a workload has no answer (not `whole`) or a part no place."""
        servers = self._scenario.server
        spare = self._scenario.spare_servers if self._by_shape.total() else 0
        shape = self._spare_shape(spare) if spare else 0
        if spare:
            self._by_shape[shape] += spare
            self.servers_by_type[servers[shape].gpu] += spare
        parts = [part for each in self.workloads for part in each.parts]
        price = total((server_price(servers[at], self._known), number) for at, number in sorted(self._by_shape.items()))
        figures: dict[str, Reading] = {
            "instances": float(sum(each.instances for each in self.workloads)),
            "gpus": float(self.gpus_by_type.total()),
            "servers": float(self._by_shape.total()),
            "memory_bytes": total((part.demand.memory_bytes, part.number) for part in parts),
            "price_per_hour": price,
            "servers_least": float(self._least + spare),
        }
        problem = next((each.problem for each in self.workloads if each.problem), "")
        figures = figures if whole and not problem else dict.fromkeys(figures, INFEASIBLE)
        return Packed(**figures, layout=tuple(self._layout), problem=problem, spare_servers=spare, spare_shape=shape)

    def _spare_shape(self, number: int) -> int:
        """The shape of the spare servers: of those that there are more of, the first that holds what the loss of a
        server costs of most workloads."""
        servers = self._scenario.server
        free = [at for at, server in enumerate(servers) if not server.count]
        free += [at for at, each in enumerate(servers) if each.count >= self._by_shape[at] + number]
        holds = {
            at: [all(self._holds(at, number, part) for part in each.parts) for each in self.workloads]
            for at in free or [0]
        }
        best = max(holds, key=lambda at: sum(holds[at]))
        for each, held in zip(self.workloads, holds[best], strict=True):
            each.spare_holds = held
        return best

    def _holds(self, shape: int, number: int, part: Part) -> bool:
        """Whether so many empty servers carry what the instances carried that the loss of one server costs."""
        server, was = self._scenario.server[shape], part.demand
        same = server.gpu == self._scenario.server[was.shape].gpu
        demand = was if same else demand_of(was.workload, self._scenario, self._known, shape)
        if demand.problem or not part.on_a_server:
            return not demand.problem
        usable = _usable_bytes([demand], self._scenario)
        count = math.ceil(part.on_a_server * was.planned / demand.planned - _ROUNDING)
        empty = _shape(msgspec.structs.replace(server, count=number), usable, self._known)
        return not place([demand.block(0, usable, count)], [empty], self._scenario.packing).workloads[0].unplaced


def gpu_price(server: Server, known: Known) -> Reading:
    """Price of one GPU for an hour: typed, else by its type."""
    if server.price_per_gpu_hour is not None:
        return server.price_per_gpu_hour
    return known.prices.get(server.gpu, NO_PRICE)


def server_price(server: Server, known: Known) -> Reading:
    """Price of a whole server for an hour: all its GPUs, used or not, and the host."""
    each = gpu_price(server, known)
    return each if isinstance(each, Missing) else server.gpus * each + server.price_per_hour


def total(terms: Iterable[tuple[Reading, float]]) -> Reading:
    """Sum of each figure times its number; one that is missing is missing of all, but for 0 times."""
    summed = 0.0
    for value, number in terms:
        if number:
            if isinstance(value, Missing):
                return value
            summed += value * number
    return summed


def _count(demand: Demand, share: float) -> int:
    """Instances for this share of the workload, spares with the first part of it."""
    if share <= _NONE_LEFT or not demand.instances:
        return 0
    return max(1, math.ceil(demand.instances * share - _ROUNDING)) if share < 1.0 else demand.instances


def _usable_bytes(here: Sequence[Demand], scenario: Scenario) -> float:
    """Of one GPU; what an engine was seen to take of the same GPU fits, whatever share is planned with."""
    gpu = next((demand.instance.gpu for demand in here if demand.instance.gpu is not None), None)
    if gpu is None:
        return 0.0
    taken = [
        demand.memory_bytes / demand.instance.gpus
        for demand in here
        if demand.as_seen and not isinstance(demand.memory_bytes, Missing) and not demand.problem
    ]
    return max(gpu.memory_bytes * scenario.usable_memory_ratio, *taken, 0.0)


def _shape(server: Server, usable_bytes: float, known: Known) -> Shape:
    price = server_price(server, known)
    return Shape(
        gpus=server.gpus,
        domain=server.nvlink_gpus or server.gpus,
        memory_bytes=usable_bytes,
        count=server.count,
        price_per_hour=None if isinstance(price, Missing) else price,
    )

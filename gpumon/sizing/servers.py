"""Instances onto servers, by one packing rule: one kind of GPU after the other, in the order of the shapes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.sizing.answer import Packed, PlacedServer
from gpumon.sizing.capacity import INFEASIBLE, Demand, demand_of
from gpumon.sizing.placement import Placement, Shape, place
from gpumon.sizing.scenario import Known, Packing, Scenario, Server

NO_PRICE = Missing(Reason.NO_PRICE)
_NONE_LEFT = 1e-12
_ROUNDING = 1e-9


class Part(NamedTuple):
    """Instances of one workload on one kind of GPU."""

    demand: Demand
    number: int
    on_a_server: int = 1
    """Of those, on the server that holds most."""


class Filled(msgspec.Struct):
    """A packing, and how much of it belongs to each workload (lists by its index)."""

    packed: Packed
    instances: list[int]
    gpus: list[int]
    """GPUs that hold an instance of each workload."""
    servers: list[int]
    """Servers that hold an instance of each workload."""
    servers_shared: list[int]
    """Of these, those that hold another workload, too."""
    problems: list[str]
    """Why instances of a workload have no place; empty where all have."""
    parts: list[list[Part]]
    """Where the instances of each workload stand: one part per kind of GPU."""
    notes: list[list[str]]
    gpus_by_type: dict[str, int]
    """Kind of GPU -> how many of it are in use."""
    servers_by_type: dict[str, int]
    """Kind of GPU -> servers that are paid for, spare ones with them."""
    busiest: float = 0.0
    """Highest sum of busy shares on one GPU."""
    spare_holds: tuple[bool, ...] = ()
    """Whether the spare servers can take in what the loss of a server costs each workload."""


def fill(demands: Sequence[Demand], scenario: Scenario, known: Known, packing: Packing) -> Filled:
    """Place what the demands ask for. A kind of GPU whose servers are counted is filled before the next one is begun;
    what is left over is asked for anew there, as an instance on another GPU carries more or less."""
    filling = _Filling(demands, scenario, known)
    for shapes in _kinds(scenario):
        if any(share > _NONE_LEFT for share in filling.left):
            filling.add(shapes, packing)
    return filling.done()


class _Filling:
    """What has been placed so far."""

    def __init__(self, demands: Sequence[Demand], scenario: Scenario, known: Known) -> None:
        self._demands, self._scenario, self._known = demands, scenario, known
        number = len(demands)
        self.left = [1.0 if demand.instances else 0.0 for demand in demands]
        """Share of each workload that has no place yet."""
        self._instances, self._gpus = [0] * number, [0] * number
        self._servers_of, self._shared_of = [0] * number, [0] * number
        self._problems = [""] * number
        self._parts: list[list[Part]] = [[] for _ in demands]
        self._notes: list[list[str]] = [[] for _ in demands]
        self._by_type: dict[str, int] = {}
        self._servers_by_type: dict[str, int] = {}
        self._servers_by_shape: dict[int, int] = {}
        self._layout: list[PlacedServer] = []
        self._servers = self._used = self._least = 0
        self._bytes: Reading = 0.0
        self._price: Reading = 0.0

    def add(self, shapes: Sequence[int], packing: Packing) -> None:
        """Place what is left on servers with one kind of GPU."""
        first = shapes[0]
        here = [
            demand if first == demand.shape else demand_of(demand.workload, self._scenario, self._known, first)
            for demand in self._demands
        ]
        servers = [self._scenario.server[at] for at in shapes]
        usable = _usable_bytes(here, self._scenario)
        wanted = [_count(demand, share) for demand, share in zip(here, self.left, strict=True)]
        blocks = [here[at].block(at, usable, count) for at, count in enumerate(wanted) if count]
        placed = place(blocks, [_shape(server, usable, self._known) for server in servers], packing)
        self._book(here, wanted, placed, first)
        for at, server, number in zip(shapes, servers, placed.servers_by_shape, strict=True):
            self._servers_by_shape[at] = number
            self._price = _plus(self._price, server_price(server, self._known), number)
        self._layout += [msgspec.structs.replace(each, shape=shapes[each.shape]) for each in placed.servers]
        self._servers += placed.servers_used
        self._used += placed.gpus
        if placed.gpus:
            kind = servers[0].gpu
            self._by_type[kind] = self._by_type.get(kind, 0) + placed.gpus
            self._servers_by_type[kind] = self._servers_by_type.get(kind, 0) + placed.servers_used
        self._least += placed.least_servers

    def _book(self, here: Sequence[Demand], wanted: Sequence[int], placed: Placement, shape: int) -> None:
        missed, worst = dict(placed.unplaced), dict(placed.most_on_a_server)
        problems = dict(placed.problems)
        for at, count in enumerate(wanted):
            if self.left[at] > _NONE_LEFT and not count:
                self._notes[at].append(f"not on {self._scenario.server[shape].gpu}: {here[at].problem}")
            if not count:
                continue
            stands = count - missed.get(at, 0)
            if stands:
                self._parts[at].append(Part(here[at], stands, worst.get(at, 0)))
            if len(self._scenario.server) > 1 and stands:
                gpu = self._scenario.server[shape].gpu
                self._notes[at].append(f"{stands} on {gpu}, at most {here[at].planned:g} requests each")
            self._instances[at] += stands
            self._problems[at] = problems.get(at, "")
            self.left[at] *= missed.get(at, 0) / count
            self._bytes = _plus(self._bytes, here[at].memory_bytes, stands)
        for counted, found in (
            (self._gpus, placed.gpus_of),
            (self._servers_of, placed.servers_of),
            (self._shared_of, placed.shared_servers_of),
        ):
            for at, number in found:
                counted[at] += number

    def done(self) -> Filled:
        """All of it. Figures are missing where a workload has no answer or a part no place."""
        whole = all(demand.instances for demand in self._demands) and self._demands and not any(self._problems)
        spare = self._scenario.spare_servers if self._servers else 0
        shape, holds = self._spare(spare) if spare else (0, ())
        if spare:
            more = self._scenario.server[shape]
            self._price = _plus(self._price, server_price(more, self._known), spare)
            self._servers_by_type[more.gpu] = self._servers_by_type.get(more.gpu, 0) + spare
        figures: dict[str, Reading] = {
            "instances": float(sum(self._instances)),
            "gpus": float(self._used),
            "servers": float(self._servers + spare),
            "memory_bytes": self._bytes,
            "price_per_hour": self._price,
            "servers_least": float(self._least + spare),
        }
        figures = figures if whole else dict.fromkeys(figures, INFEASIBLE)
        problem = next(filter(None, self._problems), "")
        packed = Packed(**figures, layout=tuple(self._layout), problem=problem, spare_servers=spare, spare_shape=shape)
        busiest = max((slot.busy_ratio for server in self._layout for slot in server.gpus), default=0.0)
        return Filled(
            packed,
            self._instances,
            self._gpus,
            self._servers_of,
            self._shared_of,
            self._problems,
            self._parts,
            self._notes,
            self._by_type,
            self._servers_by_type,
            busiest,
            holds,
        )

    def _spare(self, number: int) -> tuple[int, tuple[bool, ...]]:
        """The shape of the spare servers, and whether they hold what the loss of a server costs each workload: of those
        that there are more of, the first that holds it of most."""
        servers = self._scenario.server
        free = [at for at, server in enumerate(servers) if not server.count]
        free += [at for at, each in enumerate(servers) if each.count >= self._servers_by_shape.get(at, 0) + number]
        found = {
            at: tuple(all(self._holds(at, number, part) for part in parts) for parts in self._parts)
            for at in free or [0]
        }
        return max(found.items(), key=lambda each: sum(each[1]))

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
        return not place([demand.block(0, usable, count)], [empty], self._scenario.packing).unplaced


def gpu_price(server: Server, known: Known) -> Reading:
    """Price of one GPU for an hour: typed, else by its type."""
    if server.price_per_gpu_hour is not None:
        return server.price_per_gpu_hour
    return known.prices.get(server.gpu, NO_PRICE)


def server_price(server: Server, known: Known) -> Reading:
    """Price of a whole server for an hour: all its GPUs, used or not, and the host."""
    each = gpu_price(server, known)
    return each if isinstance(each, Missing) else server.gpus * each + server.price_per_hour


def _kinds(scenario: Scenario) -> Iterator[list[int]]:
    """Indices of shapes that follow each other and have the same GPU."""
    run: list[int] = []
    for at, server in enumerate(scenario.server):
        if run and scenario.server[run[0]].gpu != server.gpu:
            yield run
            run = []
        run.append(at)
    if run:
        yield run


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


def _plus(total: Reading, each: Reading, number: int) -> Reading:
    if isinstance(total, Missing) or not number:
        return total
    return each if isinstance(each, Missing) else total + each * number

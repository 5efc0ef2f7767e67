"""Instances onto servers, by one packing rule: one kind of GPU after the other, in the order of the shapes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple

import msgspec

from gpumon.readings.format import counted
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.sizing.answer import Have, Packed, PlacedServer
from gpumon.sizing.placement import Placement, Shape, place
from gpumon.sizing.scenario import Known, Packing, Scenario, Server
from gpumon.sizing.search import INFEASIBLE, Demand, demand_of

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

    left: float
    """Share of it that has no place yet."""
    parts: list[Part] = []
    """Where its instances stand: one part per kind of GPU."""
    notes: list[str] = []
    gpus: int = 0
    """That hold an instance of it."""
    servers: int = 0
    servers_shared: int = 0
    """Of these, those that hold another workload, too."""
    problem: str = ""
    """Why instances of it have no place."""

    @property
    def instances(self) -> int:
        """That have a place."""
        return sum(part.number for part in self.parts)


class Filled:
    """A packing: the whole, and what belongs to each workload."""

    def __init__(self, demands: Sequence[Demand], scenario: Scenario, known: Known, packing: Packing) -> None:
        """Place what the demands ask for. A kind of GPU whose servers are counted is filled before the next one is
        begun; what is left over is asked for anew there, as an instance on another GPU carries more or less."""
        self._scenario, self._known = scenario, known
        self.workloads = [Placed(1.0 if demand.instances else 0.0) for demand in demands]
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

    def _on(self, demand: Demand, shape: int) -> Demand:
        same = self._scenario.server[shape].gpu == self._scenario.server[demand.shape].gpu
        return demand if same else demand_of(demand.workload, self._scenario, self._known, shape)

    def _add(self, demands: Sequence[Demand], shapes: Sequence[int], packing: Packing) -> None:
        """Place what is left on servers with one kind of GPU."""
        servers = [self._scenario.server[at] for at in shapes]
        here = [self._on(demand, shapes[0]) for demand in demands]
        usable, gpu = _usable_bytes(here, self._scenario), servers[0].gpu
        wanted = [_count(demand, each.left) for demand, each in zip(here, self.workloads, strict=True)]
        blocks = [here[at].block(at, usable, count) for at, count in enumerate(wanted) if count]
        found = place(blocks, [_shape(server, usable) for server in servers], packing)
        for at, (demand, count, each) in enumerate(zip(here, wanted, self.workloads, strict=True)):
            if count:
                self._book(each, found, at, demand, count, gpu)
            elif each.left > _NONE_LEFT:
                each.notes.append(f"not on {gpu}: {demand.problem}")
        self._by_shape.update(dict(zip(shapes, found.servers_by_shape, strict=True)))
        self._layout += [msgspec.structs.replace(each, shape=shapes[each.shape]) for each in found.servers]
        self._least += found.least_servers
        self.gpus_by_type += Counter({gpu: found.gpus})
        self.servers_by_type += Counter({gpu: found.servers_used})

    def _book(self, each: Placed, found: Placement, at: int, demand: Demand, count: int, gpu: str) -> None:
        stands = found.workloads[at]
        if number := count - stands.unplaced:
            each.parts.append(Part(demand, number, stands.most_on_a_server))
            if len(self._scenario.server) > 1:
                each.notes.append(f"{number} on {gpu}, at most {demand.planned:g} requests each")
        each.gpus += stands.gpus
        each.servers += stands.servers
        each.servers_shared += stands.shared_servers
        each.problem = stands.problem
        each.left *= stands.unplaced / count

    def _packed(self, whole: bool) -> Packed:
        """Figures are missing where a workload has no answer (not `whole`) or a part no place."""
        servers = self._scenario.server
        spare = self._scenario.spare_servers if self._by_shape.total() else 0
        # The first shape that there are more of.
        more = [at for at, each in enumerate(servers) if not each.count or each.count >= self._by_shape[at] + spare]
        shape = min(more, key=lambda at: (servers[at].count > 0, at), default=0) if spare else 0
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


def gpu_price(server: Server, known: Known) -> Reading:
    """Price of one GPU for an hour: typed, else by its type."""
    typed = server.price_per_gpu_hour
    return known.prices.get(server.gpu, NO_PRICE) if typed is None else typed


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


def have_of(have: Mapping[str, int], scenario: Scenario, filled: Filled, known: Known) -> Have:
    """GPUs seen (by any of their names) against GPUs needed, of the types that are planned with; the saving is the
    price of whole servers. A type that is short is not made up for by another that is to spare."""
    here: Counter[str] = Counter()
    for given, number in have.items():
        here[known.gpu_name(given)] += number
    needed = filled.gpus_by_type
    wanted = {server.gpu: server for server in reversed(scenario.server) if needed[server.gpu]}
    wanted = wanted or {server.gpu: server for server in scenario.server[:1]}
    kinds = [name for name, number in here.items() if number]
    alike, gpu = sum(here[name] for name in wanted), kinds[0] if len(kinds) == 1 else ""
    if isinstance(filled.packed.gpus, Missing):
        return Have(alike or here.total(), gpu, filled.packed.gpus, filled.packed.gpus, "")
    spare = [here[name] - needed[name] for name in wanted]
    short = -sum(number for number in spare if number < 0) or -sum(spare)
    freed: dict[str, int] = {}
    for name, server in wanted.items() if short <= 0 else ():
        # Of a GPU in servers of several shapes nobody can tell which are here.
        shapes = {(each.gpus, each.price_per_hour) for each in scenario.server if each.gpu == name}
        freed[name] = max(0, here[name] // server.gpus - filled.servers_by_type[name]) if len(shapes) == 1 else 0
    saving = total((server_price(wanted[name], known), number) for name, number in freed.items())
    others = ", ".join(f"{here[name]}x {name}" for name in kinds if name not in wanted)
    if not alike:
        text = f"no GPU of this type here ({others})" if others else "no GPU is here"
    elif short > 0:
        text = f"short {counted(short, 'GPU')}"
    else:
        text = f"fits on {alike + short:,.0f} of {alike:,} GPUs" + (
            f": frees {counted(-short, 'GPU')}" if short else ""
        )
        if servers := sum(freed.values()):
            text += f", saves {counted(servers, 'server')}"
            text += "" if isinstance(saving, Missing) else f", {saving:,.2f} per hour"
    return Have(alike or here.total(), gpu, float(short), saving, text)


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


def _shape(server: Server, usable_bytes: float) -> Shape:
    return Shape(server.gpus, server.nvlink_gpus or server.gpus, usable_bytes, server.count)

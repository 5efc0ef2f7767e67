"""Instances onto servers by one packing rule, with their price; and what is here against what is needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from gpumon.readings.format import counted
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.sizing.answer import Have, Packed
from gpumon.sizing.placement import Placement, Shape, Stands, place
from gpumon.sizing.scenario import Known, Packing, Scenario, Server
from gpumon.sizing.search import INFEASIBLE, Demand

NO_PRICE: Final = Missing(Reason.NO_PRICE)


class Filled(NamedTuple):
    """A packing: the whole, and where the instances of each workload stand."""

    packed: Packed
    stands: tuple[Stands, ...]
    busiest: float
    """Highest sum of busy shares on one GPU."""


def filled(demands: Sequence[Demand], scenario: Scenario, known: Known, packing: Packing) -> Filled:
    """Place what the demands ask for. Figures are missing where a workload has no answer or an instance no place."""
    servers, usable = scenario.server, _usable_bytes(demands, scenario)
    blocks = [demand.block(at, usable, demand.instances) for at, demand in enumerate(demands) if demand.instances]
    shapes = [Shape(each.gpus, each.nvlink_gpus or each.gpus, usable, each.count) for each in servers]
    found = place(blocks, shapes, packing) if blocks else Placement()
    stands = tuple(found.workloads.get(at, Stands()) for at in range(len(demands)))
    by_shape = Counter(dict(enumerate(found.servers_by_shape)))
    spare = scenario.spare_servers if found.servers_used else 0
    # The first shape that there are more of.
    more = [at for at, each in enumerate(servers) if not each.count or each.count >= by_shape[at] + spare]
    shape = min(more, key=lambda at: (servers[at].count > 0, at), default=0) if spare else 0
    by_shape[shape] += spare
    figures: dict[str, Reading] = {
        "instances": float(sum(each.instances for each in stands)),
        "gpus": float(found.gpus),
        "servers": float(found.servers_used + spare),
        "memory_bytes": total((one.memory_bytes, each.instances) for one, each in zip(demands, stands, strict=True)),
        "price_per_hour": total((server_price(servers[at], known), n) for at, n in sorted(by_shape.items()) if n),
        "servers_least": float(found.least_servers + spare),
    }
    problem = next((each.problem for each in stands if each.problem), "")
    whole = bool(demands) and all(demand.instances for demand in demands) and not problem
    packed = Packed(
        **(figures if whole else dict.fromkeys(figures, INFEASIBLE)),
        layout=found.servers,
        problem=problem,
        spare_servers=spare,
        spare_shape=shape,
    )
    busiest = max((slot.busy_ratio for server in found.servers for slot in server.gpus), default=0.0)
    return Filled(packed, stands, busiest)


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


def have_of(have: Mapping[str, int], scenario: Scenario, packed: Packed, known: Known) -> Have:
    """GPUs seen (by any of their names) against GPUs needed of the type that is planned with; the saving is the price
    of whole servers."""
    here: Counter[str] = Counter()
    for given, number in have.items():
        here[known.gpu_name(given)] += number
    kinds = [name for name, number in here.items() if number]
    gpu, needed, servers = kinds[0] if len(kinds) == 1 else "", packed.gpus, packed.servers
    alike = here[scenario.server[0].gpu] if scenario.server else 0
    if isinstance(needed, Missing) or isinstance(servers, Missing):
        return Have(alike or here.total(), gpu, needed, needed, "")
    short, freed = round(needed) - alike, 0
    saving: Reading = 0.0
    # Of GPUs in servers of several shapes nobody can tell which are here.
    if short <= 0 and len({(each.gpus, each.price_per_hour) for each in scenario.server}) == 1:
        freed = max(0, alike // scenario.server[0].gpus - round(servers))
        saving = total([(server_price(scenario.server[0], known), freed)])
    if not alike:
        others = ", ".join(f"{here[name]}x {name}" for name in kinds)
        text = f"no GPU of this type here ({others})" if others else "no GPU is here"
    elif short > 0:
        text = f"short {counted(short, 'GPU')}"
    else:
        text = f"fits on {needed:,.0f} of {alike:,} GPUs" + (f": frees {counted(-short, 'GPU')}" if short else "")
        if freed:
            text += f", saves {counted(freed, 'server')}"
            text += "" if isinstance(saving, Missing) else f", {saving:,.2f} per hour"
    return Have(alike or here.total(), gpu, float(short), saving, text)


def _usable_bytes(demands: Sequence[Demand], scenario: Scenario) -> float:
    """Of one GPU; what an engine was seen to take of the same GPU fits, whatever share is planned with."""
    gpu = next((demand.instance.gpu for demand in demands if demand.instance.gpu is not None), None)
    if gpu is None:
        return 0.0
    taken = [
        demand.memory_bytes / demand.instance.gpus
        for demand in demands
        if demand.as_seen and not isinstance(demand.memory_bytes, Missing) and not demand.problem
    ]
    return max(gpu.memory_bytes * scenario.usable_memory_ratio, *taken, 0.0)

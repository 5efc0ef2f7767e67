"""Prices of servers, and what is here against what is needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from gpumon.readings.format import counted
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.prices import NO_PRICE
from gpumon.sizing.answer import GpuCount, Have, Packed
from gpumon.sizing.scenario import Catalogues, Scenario, Server


def gpu_price(server: Server, catalogues: Catalogues) -> Reading:
    """Price of one GPU for an hour: typed, else by its type."""
    typed = server.price_per_gpu_hour
    if typed is not None:
        return typed
    price = catalogues.price(server.gpu)
    return NO_PRICE if price is None else price


def server_price(server: Server, catalogues: Catalogues) -> Reading:
    """Price of a whole server for an hour: all its GPUs, used or not, and the host."""
    gpu = gpu_price(server, catalogues)
    if isinstance(gpu, Missing):
        return gpu
    return server.gpus * gpu + server.price_per_hour


def weighted_sum(terms: Iterable[tuple[Reading, float]]) -> Reading:
    """Sum of each figure times its number; one that is missing is missing of all, but for 0 times."""
    summed = 0.0
    for value, number in terms:
        if number:
            if isinstance(value, Missing):
                return value
            summed += value * number
    return summed


def compare_with_gpus_here(have: Mapping[str, int], scenario: Scenario, packed: Packed, catalogues: Catalogues) -> Have:
    """GPUs seen (by any of their names) against GPUs needed, of the types of the servers; the saving is the price of
    whole servers. A type that is short is not made up for by another that is to spare."""
    here: Counter[str] = Counter()
    for given, number in have.items():
        here[catalogues.gpu_name(given)] += number
    types = [name for name, number in here.items() if number]
    gpu = ""
    if len(types) == 1:
        gpu = types[0]
    planned = scenario.gpu_types
    alike = sum(here[name] for name in planned)
    counted_here = alike or here.total()
    if isinstance(packed.gpus, Missing):
        return Have(counted_here, gpu, packed.gpus, packed.gpus, "")
    needed = _needed(planned, packed)
    lacks = _lacks(needed, here)
    if lacks:
        short = sum(lacks.values())
        saving: Reading = 0.0
        text = _short(lacks, len(planned))
    else:
        short = round(packed.gpus) - alike
        freed = _all_freed(needed, here, scenario)
        saving = _saving(freed, scenario, catalogues)
        text = _fits(packed.gpus, alike, short, sum(freed.values()), saving)
    if not alike:
        text = _none_here(types, here)
    return Have(counted_here, gpu, float(short), saving, text)


def _saving(freed: Mapping[int, int], scenario: Scenario, catalogues: Catalogues) -> Reading:
    """Price of an hour of the servers that the plan does not need."""
    return weighted_sum((server_price(scenario.server[shape], catalogues), number) for shape, number in freed.items())


def _lacks(needed: Mapping[str, GpuCount], here: Mapping[str, int]) -> dict[str, int]:
    """GPUs that are not here, of each type that is short."""
    lacks = {}
    for name, count in needed.items():
        if count.gpus > here[name]:
            lacks[name] = count.gpus - here[name]
    return lacks


def _needed(planned: Iterable[str], packed: Packed) -> dict[str, GpuCount]:
    """GPUs and servers that the plan takes of each type."""
    needed = {name: GpuCount(name, 0, 0) for name in planned}
    needed.update({count.gpu: count for count in packed.by_gpu})
    return needed


def _all_freed(needed: Mapping[str, GpuCount], here: Mapping[str, int], scenario: Scenario) -> dict[int, int]:
    """Index of the server -> servers that the plan does not need, of all types."""
    freed: dict[int, int] = {}
    for name, count in needed.items():
        freed.update(_freed(name, here[name], count.servers, scenario))
    return freed


def _none_here(types: Sequence[str], here: Mapping[str, int]) -> str:
    """No GPU of the planned types is here: which others are."""
    if not types:
        return "no GPU is here"
    others = ", ".join(f"{here[name]}x {name}" for name in types)
    return f"no GPU of this type here ({others})"


def _short(lacks: Mapping[str, int], types: int) -> str:
    """How many GPUs are not here; of several types which ones."""
    if types == 1:
        return f"short {counted(sum(lacks.values()), 'GPU')}"
    return f"short {', '.join(f'{number:,} {name}' for name, number in lacks.items())}"


def _freed(gpu: str, here: int, needed: int, scenario: Scenario) -> dict[int, int]:
    """Index of the server -> servers of a type of GPU that the plan does not need. Of GPUs in servers of several shapes
    nobody can tell which are here: none."""
    alike = []
    for index, server in enumerate(scenario.server):
        if server.gpu == gpu:
            alike.append(index)
    shapes = set()
    for index in alike:
        shapes.add((scenario.server[index].gpus, scenario.server[index].price_per_hour))
    if len(shapes) != 1:
        return {}
    return {alike[0]: max(0, here // scenario.server[alike[0]].gpus - needed)}


def _fits(needed: float, here: int, short: int, servers: int, saving: Reading) -> str:
    """All GPUs that are needed are here: how many more there are, and what that saves."""
    text = f"fits on {needed:,.0f} of {here:,} GPUs"
    if short:
        text += f": frees {counted(-short, 'GPU')}"
    if servers:
        text += f", saves {counted(servers, 'server')}"
        text += "" if isinstance(saving, Missing) else f", {saving:,.2f} per hour"
    return text

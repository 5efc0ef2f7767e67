"""Prices of servers, and the GPUs that are here against those that a plan needs."""

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
    if server.price_per_gpu_hour is not None:
        return server.price_per_gpu_hour
    price = catalogues.price(server.gpu)
    if price is None:
        return NO_PRICE
    return price


def server_price(server: Server, catalogues: Catalogues) -> Reading:
    """Price of a whole server for an hour: all its GPUs, used or not, and the host."""
    gpu = gpu_price(server, catalogues)
    if isinstance(gpu, Missing):
        return gpu
    return server.gpus * gpu + server.price_per_hour


def weighted_sum(terms: Iterable[tuple[Reading, float]]) -> Reading:
    """Sum of each figure times its number; missing where one of them is, unless it counts 0 times."""
    summed = 0.0
    for value, number in terms:
        if not number:
            continue
        if isinstance(value, Missing):
            return value
        summed += value * number
    return summed


def compare_with_gpus_here(have: Mapping[str, int], scenario: Scenario, packed: Packed, catalogues: Catalogues) -> Have:
    """GPUs that are here against those that a plan needs, of the types of its servers, and what the difference saves.

    `have`: any name of a GPU -> how many are here. The saving is the price of whole servers. A type that is short is
    not made up for by another that is to spare.
    """
    gpus_here: Counter[str] = Counter()
    for name, number in have.items():
        gpus_here[catalogues.gpu_name(name)] += number
    types_here = [name for name, number in gpus_here.items() if number]
    only_type = types_here[0] if len(types_here) == 1 else ""
    planned_types = scenario.gpu_types
    of_planned_types = sum(gpus_here[name] for name in planned_types)
    shown_gpus = of_planned_types or gpus_here.total()
    if isinstance(packed.gpus, Missing):
        return Have(gpus=shown_gpus, gpu=only_type, short_gpus=packed.gpus, saving_per_hour=packed.gpus, text="")
    needed = _needed_by_type(planned_types, packed)
    lacking = {name: count.gpus - gpus_here[name] for name, count in needed.items() if count.gpus > gpus_here[name]}
    if lacking:
        short = sum(lacking.values())
        saving: Reading = 0.0
        text = _shortage_text(lacking, len(planned_types))
    else:
        short = round(packed.gpus) - of_planned_types  # negative: to spare
        freed = _freed_servers(needed, gpus_here, scenario)
        saving = weighted_sum(
            (server_price(scenario.server[shape], catalogues), number) for shape, number in freed.items()
        )
        text = _fits_text(
            needed=packed.gpus, here=of_planned_types, spare=-short, servers=sum(freed.values()), saving=saving
        )
    if not of_planned_types:
        text = _other_types_text(types_here, gpus_here)
    return Have(gpus=shown_gpus, gpu=only_type, short_gpus=float(short), saving_per_hour=saving, text=text)


def _needed_by_type(planned_types: Iterable[str], packed: Packed) -> dict[str, GpuCount]:
    """Type of GPU -> GPUs and servers that the plan takes of it."""
    needed = {name: GpuCount(name, 0, 0) for name in planned_types}
    needed.update({count.gpu: count for count in packed.by_gpu})
    return needed


def _freed_servers(needed: Mapping[str, GpuCount], gpus_here: Mapping[str, int], scenario: Scenario) -> dict[int, int]:
    """Index of the server in the scenario -> servers here that the plan does not need, of all types."""
    freed: dict[int, int] = {}
    for name, count in needed.items():
        freed.update(_freed_servers_of_type(name, gpus_here[name], count.servers, scenario))
    return freed


def _freed_servers_of_type(gpu: str, gpus_here: int, servers_needed: int, scenario: Scenario) -> dict[int, int]:
    """Index of the server in the scenario -> servers here that the plan does not need, of one type of GPU.

    Empty where such GPUs are in servers of several shapes: nobody can tell which of them are here.
    """
    indices = []
    shapes = set()
    for index, server in enumerate(scenario.server):
        if server.gpu == gpu:
            indices.append(index)
            shapes.add((server.gpus, server.price_per_hour))
    if len(shapes) != 1:
        return {}
    first = indices[0]
    servers_here = gpus_here // scenario.server[first].gpus
    return {first: max(0, servers_here - servers_needed)}


def _shortage_text(lacking: Mapping[str, int], types: int) -> str:
    """How many GPUs are not here; where `types`, the number of planned types, is above 1, of which type."""
    if types == 1:
        return f"short {counted(sum(lacking.values()), 'GPU')}"
    return f"short {', '.join(f'{number:,} {name}' for name, number in lacking.items())}"


def _fits_text(*, needed: float, here: int, spare: int, servers: int, saving: Reading) -> str:
    """All GPUs that are needed are here: how many GPUs and servers are to spare, and what these save in an hour."""
    text = f"fits on {needed:,.0f} of {here:,} GPUs"
    if spare:
        text += f": frees {counted(spare, 'GPU')}"
    if servers:
        text += f", saves {counted(servers, 'server')}"
        if not isinstance(saving, Missing):
            text += f", {saving:,.2f} per hour"
    return text


def _other_types_text(types_here: Sequence[str], gpus_here: Mapping[str, int]) -> str:
    """No GPU of the planned types is here: which others are."""
    if not types_here:
        return "no GPU is here"
    others = ", ".join(f"{gpus_here[name]}x {name}" for name in types_here)
    return f"no GPU of this type here ({others})"

"""What is needed against what is here now."""

from __future__ import annotations

from collections.abc import Mapping

from gpumon.readings.missing import Missing, Reading
from gpumon.sizing.answer import Have
from gpumon.sizing.known import Known
from gpumon.sizing.packed import NO_PRICE, Filled, gpu_price, server_price
from gpumon.sizing.scenario import Scenario, Server


def have_of(have: Mapping[str, int], scenario: Scenario, filled: Filled, known: Known) -> Have:
    """GPUs seen against GPUs needed, of the types that are planned with; the saving is the price of whole servers.

    A type that is short is not made up for by another that is to spare.
    """
    here, packed, needed = _by_name(have, known), filled.packed, filled.gpus_by_type
    kinds = [name for name, number in here.items() if number]
    wanted = {server.gpu: server for server in reversed(scenario.server) if server.gpu in needed}
    wanted = wanted or {server.gpu: server for server in scenario.server[:1]}
    alike = sum(here.get(name, 0) for name in wanted)
    spare = {name: here.get(name, 0) - needed.get(name, 0) for name in wanted}
    missing = -sum(number for number in spare.values() if number < 0)
    short: Reading = float(missing or -sum(spare.values()))
    short = packed.gpus if isinstance(packed.gpus, Missing) else short
    now = _price(wanted, here, known)
    freed = {} if missing or isinstance(short, Missing) else _freed(wanted, here, filled, scenario)
    saving = short if isinstance(short, Missing) else _saving(wanted, freed, known)
    return Have(
        gpus=alike or sum(here.values()),
        gpu=kinds[0] if len(kinds) == 1 else "",
        short_gpus=short,
        price_per_hour=now,
        saving_per_hour=saving,
        text=_text(here, frozenset(wanted), alike, short, sum(freed.values()), saving),
    )


def _by_name(have: Mapping[str, int], known: Known) -> dict[str, int]:
    """By the catalogue's names: what is here may go by another name of the same GPU."""
    found: dict[str, int] = {}
    for given, number in have.items():
        try:
            name = known.gpus.find(given).name
        except ValueError:
            name = given
        found[name] = found.get(name, 0) + number
    return found


def _price(wanted: Mapping[str, Server], numbers: Mapping[str, int], known: Known) -> Reading:
    total: Reading = 0.0 if wanted else NO_PRICE
    for name, server in wanted.items():
        price = gpu_price(server, known)
        if isinstance(price, Missing) or isinstance(total, Missing):
            return NO_PRICE
        total += price * numbers.get(name, 0)
    return total


def _freed(wanted: Mapping[str, Server], here: Mapping[str, int], filled: Filled, scenario: Scenario) -> dict[str, int]:
    """Whole servers that the plan does without, by their GPU. Of a GPU in servers of several shapes nobody can tell
    which are here."""
    freed = {}
    for name, server in wanted.items():
        shapes = {(each.gpus, each.price_per_hour) for each in scenario.server if each.gpu == name}
        spare = here.get(name, 0) // server.gpus - filled.servers_by_type.get(name, 0)
        freed[name] = max(0, spare) if len(shapes) == 1 else 0
    return freed


def _saving(wanted: Mapping[str, Server], freed: Mapping[str, int], known: Known) -> Reading:
    """What the bill would lose: the price of the servers that are freed."""
    total: Reading = 0.0
    for name, number in freed.items():
        price = server_price(wanted[name], known)
        if isinstance(price, Missing) or isinstance(total, Missing):
            return NO_PRICE
        total += price * number
    return total


def _text(
    here: Mapping[str, int], wanted: frozenset[str], alike: int, short: Reading, servers: int, saving: Reading
) -> str:
    """`servers`: whole ones that are freed."""
    if isinstance(short, Missing):
        return ""
    others = ", ".join(f"{number}x {name}" for name, number in here.items() if name not in wanted and number)
    if not alike:
        return f"none of these GPUs is here ({others})" if others else "no GPU is here"
    if short > 0:
        return f"short {short:,.0f} GPU{'s' if short > 1 else ''}"
    frees = f": frees {-short:,.0f}" if short < 0 else ""
    saves = f", saves {servers:,} server{'s' if servers > 1 else ''}" if servers else ""
    money = f", {saving:,.2f} per hour" if servers and not isinstance(saving, Missing) else ""
    return f"fits on {alike + short:,.0f} of {alike:,} GPUs{frees}{saves}{money}"

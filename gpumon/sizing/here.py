"""What is needed against what is here now."""

from __future__ import annotations

from collections.abc import Mapping

from gpumon.readings.missing import Missing, Reading
from gpumon.sizing.answer import Have, Packed
from gpumon.sizing.known import Known
from gpumon.sizing.packed import NO_PRICE, gpu_price
from gpumon.sizing.scenario import Scenario, Server


def have_of(
    have: Mapping[str, int], scenario: Scenario, packed: Packed, needed: Mapping[str, int], known: Known
) -> Have:
    """GPUs seen against GPUs needed, of the types that are planned with; the saving is the idle ones' price.

    `needed`: GPU type -> how many are in use. A type that is short is not made up for by another that is to spare.
    """
    here = _by_name(have, known)
    kinds = [name for name, number in here.items() if number]
    wanted = {server.gpu: server for server in reversed(scenario.server) if server.gpu in needed}
    wanted = wanted or {server.gpu: server for server in scenario.server[:1]}
    alike = sum(here.get(name, 0) for name in wanted)
    spare = {name: here.get(name, 0) - needed.get(name, 0) for name in wanted}
    missing = -sum(number for number in spare.values() if number < 0)
    short: Reading = float(missing or -sum(spare.values()))
    short = packed.gpus if isinstance(packed.gpus, Missing) else short
    now = _price(wanted, here, known)
    saving = _price(wanted, {name: max(0, number) for name, number in spare.items()}, known)
    if isinstance(short, Missing) and not isinstance(saving, Missing):
        saving = short
    return Have(
        gpus=alike or sum(here.values()),
        gpu=kinds[0] if len(kinds) == 1 else "",
        short_gpus=short,
        price_per_hour=now,
        saving_per_hour=saving,
        text=_text(here, frozenset(wanted), alike, packed, short, saving),
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


def _text(
    here: Mapping[str, int], wanted: frozenset[str], alike: int, packed: Packed, short: Reading, saving: Reading
) -> str:
    if isinstance(short, Missing) or isinstance(packed.gpus, Missing):
        return ""
    others = ", ".join(f"{number}x {name}" for name, number in here.items() if name not in wanted and number)
    if not alike:
        return f"none of these GPUs is here ({others})" if others else "no GPU is here"
    if short > 0:
        return f"short {short:.0f} GPUs"
    money = "" if isinstance(saving, Missing) or not saving else f", saving {saving:.2f} per hour"
    return f"fits on {packed.gpus:.0f} of {alike} GPUs{money}"

"""What is needed against what is here now."""

from __future__ import annotations

from collections.abc import Mapping

from gpumon.readings.missing import Missing, Reading
from gpumon.sizing.answer import Have, Packed
from gpumon.sizing.known import Known
from gpumon.sizing.packed import NO_PRICE, gpu_price
from gpumon.sizing.scenario import Scenario


def have_of(have: Mapping[str, int], scenario: Scenario, packed: Packed, known: Known) -> Have:
    """GPUs seen against GPUs needed, of the type that is planned with; the saving is their idle price."""
    wanted = scenario.server[0] if scenario.server else None
    total = sum(have.values())
    kinds = [name for name, number in have.items() if number]
    alike = have.get(wanted.gpu, 0) if wanted is not None else 0
    short: Reading = packed.gpus if isinstance(packed.gpus, Missing) else packed.gpus - alike
    price = gpu_price(wanted, known) if wanted is not None else None
    now: Reading = price * alike if isinstance(price, float) else NO_PRICE
    saving: Reading = now
    if isinstance(price, float):
        saving = short if isinstance(short, Missing) else max(0.0, -short) * price
    return Have(
        gpus=alike if wanted is not None and alike else total,
        gpu=kinds[0] if len(kinds) == 1 else "",
        short_gpus=short,
        price_per_hour=now,
        saving_per_hour=saving,
        text=_text(have, wanted.gpu if wanted is not None else "", alike, packed, short, saving),
    )


def _text(
    have: Mapping[str, int], wanted: str, alike: int, packed: Packed, short: Reading, saving: Reading
) -> str:  # fmt: skip
    if isinstance(short, Missing) or isinstance(packed.gpus, Missing):
        return ""
    others = ", ".join(f"{number}x {name}" for name, number in have.items() if name != wanted and number)
    if not alike:
        return f"none of these GPUs is here ({others})" if others else "no GPU is here"
    if short > 0:
        return f"short {short:.0f} GPUs"
    money = "" if isinstance(saving, Missing) or not saving else f", saving {saving:.2f} per hour"
    return f"fits on {packed.gpus:.0f} of {alike} GPUs{money}"

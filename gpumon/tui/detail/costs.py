"""Costs on the page of a GPU or an engine, or how to give a price."""

from __future__ import annotations

from typing import Final

from gpumon.efficiency.ratio import divide
from gpumon.readings.flat import value_of
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.readings.snapshot import Engine, Gpu
from gpumon.specs.units import HOUR_S
from gpumon.tui.detail import values
from gpumon.tui.detail.blocks import DERIVED, Entry, FigureMaker, Section, Sentence
from gpumon.tui.detail.values import formula_text
from gpumon.tui.replica_rows import is_sums

_CURRENCY_REMARK: Final = Sentence("in your currency, by [prices] of the config; energy is that of GPUs only")
_UNPRICED_SECTION: Final = Section(
    "cost", [Sentence("no price: set gpu_hour and kwh of [prices] in the config")], side=1
)
"""Section of a thing without any price."""
_UNPRICED_REASONS: Final = frozenset((Reason.NO_PRICE, Reason.NO_ENERGY_PRICE, Reason.NOT_EXPOSED))
"""Why a cost is missing where there is no price, or where another host that runs gpumon sends none."""


def cost_section(thing: Gpu | Engine, figures: FigureMaker) -> Section:
    """Price per hour, unused time and energy of a GPU, or of those of an engine or of replicas with the price of its
    tokens."""
    cost_per_hour: Reading = value_of(thing, "cost_per_hour")
    if _is_unpriced(cost_per_hour) and _is_unpriced(value_of(thing, "energy_cost")):
        return _UNPRICED_SECTION
    token_prices: list[Entry] = []
    if isinstance(thing, Engine):
        token_prices = [
            figures.of_field("cost_per_million_output_tokens", DERIVED, name="per 1M output"),
            figures.of_field("cost_per_million_all_tokens", DERIVED),
        ]
    hours = divide(value_of(thing, "unused_s"), HOUR_S)
    product = ""
    if isinstance(thing, Gpu) or not is_sums(thing):  # hours and prices of replicas are sums: their product is no cost
        product = formula_text("{} x {}", (cost_per_hour, values.money_per_hour), (hours, values.hours))
    entries: list[Entry] = [
        figures.of_field("cost_per_hour", DERIVED, name="per hour", write=values.money_per_hour),
        *token_prices,
        figures.of_reading(hours, "unused time", "unused_s", values.hours, DERIVED),
        figures.of_field("unused_cost", DERIVED, formula=product),
        figures.of_field("energy_j", write=values.kilowatt_hours),
        figures.of_field("energy_cost", DERIVED),
        _CURRENCY_REMARK,
    ]
    return Section("cost", entries, side=1)


def _is_unpriced(cost: Reading) -> bool:
    """Whether a cost is missing for want of a price."""
    return isinstance(cost, Missing) and cost.reason in _UNPRICED_REASONS

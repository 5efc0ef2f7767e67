"""Costs on the page of a GPU or an engine, or how to give a price."""

from __future__ import annotations

from typing import Final

from gpumon.efficiency.ratio import divide
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


def gpu_cost_section(gpu: Gpu, figures: FigureMaker) -> Section:
    """Price per hour, unused time and energy of a GPU."""
    if _is_unpriced(gpu.cost_per_hour) and _is_unpriced(gpu.energy_cost):
        return _UNPRICED_SECTION
    return Section("cost", _cost_entries(gpu, figures, []), side=1)


def engine_cost_section(engine: Engine, figures: FigureMaker) -> Section:
    """Price per hour, unused time and energy of the GPUs of an engine (or of replicas), and the price of its tokens."""
    costs = engine.costs
    if _is_unpriced(costs.cost_per_hour) and _is_unpriced(costs.energy_cost):
        return _UNPRICED_SECTION
    token_prices: list[Entry] = [
        figures.of_field("cost_per_million_output_tokens", DERIVED, name="per 1M output"),
        figures.of_field("cost_per_million_all_tokens", DERIVED),
    ]
    return Section("cost", _cost_entries(engine, figures, token_prices), side=1)


def _is_unpriced(cost: Reading) -> bool:
    """Whether a cost is missing for want of a price."""
    return isinstance(cost, Missing) and cost.reason in _UNPRICED_REASONS


def _cost_entries(thing: Gpu | Engine, figures: FigureMaker, token_prices: list[Entry]) -> list[Entry]:
    """The figures of a cost section, with the prices of tokens behind the price per hour."""
    if isinstance(thing, Gpu):
        hourly = thing.cost_per_hour
        unused_s = thing.unused_s
    else:
        hourly = thing.costs.cost_per_hour
        unused_s = thing.costs.unused_s
    hours = divide(unused_s, HOUR_S)
    product = ""
    if isinstance(thing, Gpu) or not is_sums(thing):  # hours and prices of replicas are sums: their product is no cost
        product = formula_text("{} x {}", (hourly, values.money_per_hour), (hours, values.hours))
    return [
        figures.of_field("cost_per_hour", DERIVED, name="per hour", write=values.money_per_hour),
        *token_prices,
        figures.of_reading(hours, "unused time", "unused_s", values.hours, DERIVED),
        figures.of_field("unused_cost", DERIVED, formula=product),
        figures.of_field("energy_j", write=values.kilowatt_hours),
        figures.of_field("energy_cost", DERIVED),
        _CURRENCY_REMARK,
    ]

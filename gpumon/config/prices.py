"""Prices and promised latencies of the config, as sizing, triage and what is shown take them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from gpumon.config.schema import Config
from gpumon.config.schema import Goals as ConfiguredGoals
from gpumon.readings.goals import Goals, goal_s
from gpumon.readings.prices import EnergyPrice, Prices, parse_hours
from gpumon.triage.thresholds import Thresholds

if TYPE_CHECKING:
    from gpumon.specs.gpus import GpuCatalogue
    from gpumon.triage.triage import Triage


def sizing_prices(config: Config, gpus: GpuCatalogue, types: Iterable[str]) -> Mapping[str, float]:
    """Catalogue name of a GPU -> price of one hour.

    `types`: GPUs of the scenario. They, and the type in `[sizing]`, cost `gpu_hour` where they have no price of their
    own; any other type, which is only compared, has no price then.
    """
    prices = _prices_by_type(config, gpus)
    if config.prices.gpu_hour is not None:
        priced = list(types)
        if config.sizing.gpu:
            priced.append(config.sizing.gpu)
        for name in priced:
            prices.setdefault(gpus.find(name).name, config.prices.gpu_hour)
    return prices


def running_prices(config: Config, gpus: GpuCatalogue) -> Prices:
    """The prices of what runs: of the hours of its GPUs, and of their energy."""
    per_gpu_hour = _prices_by_type(config, gpus)
    if config.prices.gpu_hour is not None:
        per_gpu_hour[""] = config.prices.gpu_hour  # of every other type
    by_hours = [EnergyPrice(parse_hours(text), price) for text, price in config.prices.kwh_hours.items()]
    return Prices(per_gpu_hour, config.prices.kwh, tuple(by_hours))


def _prices_by_type(config: Config, gpus: GpuCatalogue) -> dict[str, float]:
    """Catalogue name of a GPU -> price of one hour, of the types that the config names."""
    return {gpus.find(name).name: price for name, price in config.prices.by_type.items()}


def triage_of(config: Config, gpus: GpuCatalogue, thresholds: Thresholds, goals: Goals) -> Triage:
    """The triage of this run, with its prices."""
    from gpumon.triage.triage import Triage  # all rules, which the first figures of the GPUs do not wait for

    prices = running_prices(config, gpus)
    return Triage(thresholds, prices.per_gpu_hour, goals=goals)


def goals_of(configured: ConfiguredGoals) -> Goals:
    """The goals of the config in seconds."""
    return Goals(
        ttft_s=goal_s(configured.ttft_p95_ms),
        tpot_s=goal_s(configured.tpot_p95_ms),
        itl_s=goal_s(configured.itl_p95_ms),
        itl_mean_s=goal_s(configured.itl_mean_ms),
        e2e_s=goal_s(configured.e2e_p95_ms),
    )

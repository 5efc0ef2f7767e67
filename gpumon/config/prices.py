"""Prices of GPUs and promised latencies of the config, as sizing and triage take them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from gpumon.config.schema import Config, Sizing
from gpumon.config.schema import Goals as ConfiguredGoals
from gpumon.readings.goals import Goals
from gpumon.triage.thresholds import Thresholds
from gpumon.triage.triage import Triage

if TYPE_CHECKING:
    from gpumon.specs.gpus import GpuCatalogue


def prices_per_hour(sizing: Sizing, gpus: GpuCatalogue, types: Iterable[str]) -> Mapping[str, float]:
    """Catalogue name of a GPU -> price of one hour; `types` are those that the price of no named GPU is meant for."""
    prices = {gpus.find(name).name: price for name, price in sizing.prices.items()}
    if sizing.price_per_gpu_hour is not None:
        for name in (sizing.gpu,) if sizing.gpu else types:
            prices.setdefault(gpus.find(name).name, sizing.price_per_gpu_hour)
    return prices


def running_prices(sizing: Sizing, gpus: GpuCatalogue) -> Mapping[str, float]:
    """Catalogue name of a GPU -> price of one hour; under "" the price of every GPU that has none of its own."""
    prices = dict(prices_per_hour(sizing, gpus, ()))
    if sizing.price_per_gpu_hour is not None and not sizing.gpu:
        prices[""] = sizing.price_per_gpu_hour
    return prices


def triage_of(config: Config, gpus: GpuCatalogue, thresholds: Thresholds) -> Triage:
    """The triage of this run, with its prices and goals."""
    prices = running_prices(config.sizing, gpus)
    return Triage(thresholds, prices, goals=goals_of(config.goals))


def goals_of(configured: ConfiguredGoals) -> Goals:
    """The goals of the config in seconds."""
    return Goals(
        ttft_s=_seconds(configured.ttft_p95_ms),
        itl_s=_seconds(configured.itl_p95_ms),
        e2e_s=_seconds(configured.e2e_p95_ms),
    )


def _seconds(milliseconds: float | None) -> float | None:
    if milliseconds is None:
        return None
    return milliseconds / 1e3

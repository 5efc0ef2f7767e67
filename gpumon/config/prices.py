"""Prices of GPUs and promised latencies of the config, as sizing and triage take them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from gpumon.config.schema import Config, Sizing
from gpumon.triage.signals import Goals
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
    promised = (config.goals.ttft_p95_ms, config.goals.itl_p95_ms, config.goals.e2e_p95_ms)
    goals = Goals(*(None if goal is None else goal / 1e3 for goal in promised))
    return Triage(thresholds, prices, goals=goals)

"""Prices and goals of the config reach the verdicts."""

from __future__ import annotations

import time

import pytest

from gpumon.config.prices import running_prices, sizing_prices, triage_of
from gpumon.config.schema import Config, Prices, Sizing
from gpumon.readings.goals import Goals
from gpumon.readings.prices import NO_ENERGY_PRICE
from gpumon.readings.snapshot import Family, Kind
from gpumon.sources.packaged import gpu_catalogue
from gpumon.specs.units import HOUR_S
from gpumon.triage.render import verdict_text
from gpumon.triage.thresholds import Thresholds
from tests.each_row import each_row
from tests.triage.engines import IDLE, scene
from tests.triage.stage import Stage, said

STOPS = {"running": 0.0, "kv_usage_ratio": 0.0, "decode_tokens_per_s": 0.0, "prefill_tokens_per_s": 0.0}


H100 = "H100 SXM 80GB"


@each_row(
    ("prices", "money"),
    [
        (Prices(), "1 GPU idle"),
        (Prices(gpu_hour=3.0), "1 GPU idle, 3.0 $/h"),
        (Prices(by_type={"A100 SXM 80GB": 3.0}), "1 GPU idle"),
        (Prices(gpu_hour=3.0, by_type={H100: 2.5}), "1 GPU idle, 2.5 $/h"),
    ],
)
def test_an_idle_gpu_costs_what_the_config_says(prices: Prices, money: str) -> None:
    stage, card = Stage(), {**IDLE, "gpu_type": gpu_catalogue().find(H100).name}
    stage.triage = triage_of(Config(prices=prices), gpu_catalogue(), Thresholds(idle_s=60.0), Goals())
    found = said(stage.play(100, scene(STOPS, card, moves=False)), Family.USE, Kind.ENGINE)
    assert verdict_text(found) == f"no request for over 90 s: {money}"


def test_the_price_of_a_type_goes_before_that_of_the_others() -> None:
    config = Config(sizing=Sizing(gpu=H100), prices=Prices(gpu_hour=3.0, by_type={H100: 2.5}))
    assert list(sizing_prices(config, gpu_catalogue(), ("L40S",)).values()) == [2.5, 3.0]


def test_a_kwh_costs_what_its_hour_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    config = Config(prices=Prices(kwh=0.3, kwh_hours={"22:00-06:00": 0.2, "12:00-13:00": 0.1}))
    prices = running_prices(config, gpu_catalogue())
    hours = [0.0, 5.99, 6.0, 12.5, 13.0, 21.99, 22.0]
    per_kwh = [prices.per_kwh_at(hour * HOUR_S) for hour in hours]
    monkeypatch.undo()
    time.tzset()
    assert per_kwh == [0.2, 0.2, 0.3, 0.1, 0.3, 0.3, 0.2]


def test_an_hour_without_a_price_is_missing() -> None:
    config = Config(prices=Prices(kwh_hours={"22:00-06:00": 0.2, "06:00-10:00": 0.1}))
    prices = running_prices(config, gpu_catalogue())
    per_kwh = {prices.per_kwh_at(hour * HOUR_S) for hour in range(24)}
    assert per_kwh == {0.2, 0.1, NO_ENERGY_PRICE}

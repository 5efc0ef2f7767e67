"""Prices and goals of the config reach the verdicts."""

from __future__ import annotations

import pytest

from gpumon.config.prices import prices_per_hour, triage_of
from gpumon.config.schema import Config, Sizing
from gpumon.readings.snapshot import Family, Kind
from gpumon.sources.packaged import gpu_catalogue
from gpumon.triage.render import verdict_text
from gpumon.triage.thresholds import Thresholds
from tests.triage.engines import IDLE, scene
from tests.triage.stage import Stage, said

STOPS = {"running": 0.0, "decode_tokens_per_s": 0.0, "prefill_tokens_per_s": 0.0}


@pytest.mark.parametrize(
    ("sizing", "money"),
    [
        (Sizing(), "1 GPU idle"),
        (Sizing(price_per_gpu_hour=3.0), "1 GPU idle, 3.0 $/h"),  # of no named GPU: of all
        (Sizing(gpu="H100 SXM 80GB", price_per_gpu_hour=3.0), "1 GPU idle, 3.0 $/h"),
        (Sizing(gpu="A100 SXM 80GB", price_per_gpu_hour=3.0), "1 GPU idle"),
        (Sizing(price_per_gpu_hour=3.0, prices={"H100 SXM 80GB": 2.5}), "1 GPU idle, 2.5 $/h"),
    ],
)
def test_an_idle_gpu_costs_what_the_config_says(sizing: Sizing, money: str) -> None:
    stage, card = Stage(), {**IDLE, "gpu_type": gpu_catalogue().find("H100 SXM 80GB").name}
    stage.triage = triage_of(Config(sizing=sizing), gpu_catalogue(), Thresholds(idle_s=60.0))
    found = said(stage.play(100, scene(STOPS, card, moves=False)), Family.USE, Kind.ENGINE)
    assert verdict_text(found) == f"no request for over 90 s: {money}"


def test_the_price_of_a_type_goes_before_that_of_the_servers() -> None:
    sizing = Sizing(gpu="H100 SXM 80GB", price_per_gpu_hour=3.0, prices={"H100 SXM 80GB": 2.5})
    assert list(prices_per_hour(sizing, gpu_catalogue(), ()).values()) == [2.5]

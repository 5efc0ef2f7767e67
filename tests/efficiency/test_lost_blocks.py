"""Blocks of the KV cache that aborted requests have left: they are no context of the requests that run."""

from __future__ import annotations

from gpumon.demo.scenarios import SCENARIOS
from gpumon.readings.missing import number
from gpumon.readings.verdict import Limit
from tests.accuracy.triage import frames, judged


def test_lost_blocks_are_not_read_and_are_not_forecast_while_nothing_runs() -> None:
    (scenario,) = (each for each in SCENARIOS if each.name == "kv-lost")
    shares = []
    forecast_s = []
    for at_s, snapshot in judged(scenario, frames(scenario, 360.0, every_s=2)):
        (engine,) = snapshot.engines
        shares.append(number(engine.efficiency.mbu_ratio) or 0.0)
        if at_s > 312.0 and any(each.code is Limit.FORECAST and not each.until for each in snapshot.verdicts):
            forecast_s.append(at_s)
    assert 0.4 < max(shares) <= 1.0
    assert forecast_s == [], "no request has run since 310 s"

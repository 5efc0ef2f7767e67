"""GPUs that are held down, told apart from a power limit at work."""

from __future__ import annotations

import pytest

from gpumon.readings.snapshot import Family, Level, Limit
from gpumon.triage.render import event_text, evidence_text
from tests.triage.stage import Of, Stage, gpu, limit, said

GHZ = 1e9


def loaded(*reasons: str, clock: float = 1.9, **fields: object) -> Of:
    fields = {"busy_ratio": 0.98, "power_w": 690.0, "power_limit_w": 700.0, **fields}
    return gpu(2, throttle=reasons, sm_clock_hz=clock * GHZ, sm_clock_max_hz=1.98 * GHZ, **fields)  # type: ignore[arg-type]


def test_a_slowdown_that_costs_a_third_is_critical_and_tells_the_drivers_counter() -> None:
    counted = {"throttle_s": {"hw_thermal_slowdown": 41.0}}
    found = said(Stage().play(60, (loaded("hw_thermal_slowdown", clock=0.6, **counted),)), Family.STATE)
    assert found.level is Level.CRITICAL
    assert "41s since gpumon started" in evidence_text(found.evidence[0])


def test_a_short_spike_is_no_verdict_and_a_flicker_is() -> None:
    spike = Stage().play(90, lambda at: (loaded(*(("hw_thermal_slowdown",) if at in (20, 21) else ())),))
    assert limit(spike, Family.STATE) is None
    flicker = Stage().play(120, lambda at: (loaded(*(("hw_thermal_slowdown",) if at % 4 == 0 else ())),))
    assert limit(flicker, Family.STATE) is Limit.THROTTLED


HOT = ("hw_slowdown", "hw_thermal_slowdown")


def test_a_clock_at_the_edge_of_its_level_is_of_one_level() -> None:
    """0.99 GHz is critical under load, and the load breathes around 80 %."""
    stage = Stage()
    stage.play(300, lambda at: (loaded(*HOT, clock=0.99, busy_ratio=0.8 + (0.08 if at // 20 % 2 else -0.08)),))
    levels = [event.level for event in stage.events if "throttled" in event_text(event)]
    assert levels == [Level.WARN, Level.CRITICAL]


@pytest.mark.parametrize("clock", [0.98, 1.0])
def test_a_low_clock_at_its_edge_is_one_verdict(clock: float) -> None:
    stage = Stage()
    stage.play(400, lambda at: (loaded("applications_clocks_setting", clock=clock + (0.05 if at % 80 > 70 else 0.0)),))
    assert len(stage.events) <= 1

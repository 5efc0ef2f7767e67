"""GPUs that are held down, told apart from a power limit at work."""

from __future__ import annotations

import pytest

from gpumon.readings.missing import NOT_SUPPORTED
from gpumon.readings.snapshot import Confidence, Family, Level, Limit
from tests.triage.stage import Of, Stage, gpu, limit, said

GHZ = 1e9


def loaded(*reasons: str, clock: float = 1.9, **fields: object) -> Of:
    fields = {"busy_ratio": 0.98, "power_w": 690.0, "power_limit_w": 700.0, **fields}
    return gpu(2, throttle=reasons, sm_clock_hz=clock * GHZ, sm_clock_max_hz=1.98 * GHZ, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("reasons", "cause", "step"),
    [
        (("hw_slowdown", "hw_thermal_slowdown"), "heat", "fans"),
        (("sw_thermal_slowdown",), "heat", "airflow"),
        (("hw_slowdown", "hw_power_brake_slowdown"), "power brake", "PSU"),
        (("hw_slowdown",), "does not say which", "-d PERFORMANCE"),
    ],
)
def test_a_slowdown_names_its_cause_and_its_cost(reasons: tuple[str, ...], cause: str, step: str) -> None:
    found = said(Stage().play(60, (loaded(*reasons, clock=1.6, temperature_c=91.0),)), Family.STATE)
    assert "WATTS" not in found.action
    assert ("sudo nvidia-smi -i 2 -pl 490, and -pl 700 takes it back" in found.action) == (cause == "heat")
    assert (found.limit, found.level) == (Limit.THROTTLED, Level.WARN)
    assert cause in found.text
    assert "1.60 of 1.98 GHz" in found.text
    assert step in found.action
    assert {"temp:2", "clock:2", "power:2"} <= {each.chart for each in found.evidence}


def test_a_slowdown_that_costs_a_third_is_critical_and_tells_the_drivers_counter() -> None:
    counted = {"throttle_s": {"hw_thermal_slowdown": 41.0}}
    found = said(Stage().play(60, (loaded("hw_thermal_slowdown", clock=0.6, **counted),)), Family.STATE)
    assert found.level is Level.CRITICAL
    assert "41s since gpumon started" in found.evidence[0].text


def test_a_power_limit_at_full_load_is_normal() -> None:
    assert limit(Stage().play(180, (loaded("sw_power_cap", clock=1.5),)), Family.STATE) is None


def test_a_power_limit_that_takes_half_of_the_clock_is_a_note_with_the_figure() -> None:
    snapshot = Stage().play(180, (loaded("sw_power_cap", clock=0.9, power_w=348.0, power_limit_w=350.0),))
    found = said(snapshot, Family.STATE)
    assert (found.limit, found.level) == (Limit.THROTTLED, Level.NOTE)
    assert "0.90 of 1.98 GHz" in found.text
    assert "power limit" in found.text
    assert "-pl" in found.action
    assert "348 of 350 W" in " ".join(each.text for each in found.evidence)


def test_low_clocks_without_a_reason_say_that_there_is_none() -> None:
    found = said(Stage().play(180, (loaded(clock=0.8),)), Family.STATE)
    assert (found.level, found.confidence) == (Level.NOTE, Confidence.MEDIUM)
    assert "no reason" in found.text
    assert "-rgc" in found.action
    chosen = said(Stage().play(180, (loaded("applications_clocks_setting", clock=0.8),)), Family.STATE)
    assert "-i 2 -rac" in chosen.action


def test_low_clocks_of_an_idle_gpu_are_normal() -> None:
    assert limit(Stage().play(180, (loaded(clock=0.3, busy_ratio=0.0),)), Family.STATE) is None


def test_a_short_spike_is_no_verdict_and_a_flicker_is() -> None:
    spike = Stage().play(90, lambda at: (loaded(*(("hw_thermal_slowdown",) if at in (20, 21) else ())),))
    assert limit(spike, Family.STATE) is None
    flicker = Stage().play(120, lambda at: (loaded(*(("hw_thermal_slowdown",) if at % 4 == 0 else ())),))
    assert limit(flicker, Family.STATE) is Limit.THROTTLED


def test_a_slowdown_of_an_idle_gpu_is_a_note_that_hides_nothing() -> None:
    """It clocks down by itself: that the power brake is on costs nobody anything yet."""
    bits = ("hw_power_brake_slowdown", "hw_slowdown")
    snapshot = Stage().play(240, (loaded(*bits, clock=0.345, busy_ratio=0.0),))
    found = said(snapshot, Family.STATE)
    assert (found.limit, found.level) == (Limit.THROTTLED, Level.NOTE)
    assert "GHz" not in found.text
    assert "nothing runs on it" in found.text
    assert limit(snapshot, Family.USE) is Limit.UNDER_USED


def test_what_the_clock_costs_is_told_under_load_only() -> None:
    found = said(Stage().play(60, (loaded("hw_thermal_slowdown", clock=0.6, busy_ratio=0.3),)), Family.STATE)
    assert (found.level, "GHz" in found.text) == (Level.WARN, False)
    assert any("0.60 GHz" in each.text for each in found.evidence)


HOT = ("hw_slowdown", "hw_thermal_slowdown")


def test_a_slowdown_is_over_within_30_s_and_says_so_before() -> None:
    stage = Stage()
    stage.play(120, (loaded(*HOT, clock=0.99, temperature_c=91.0),))
    for second in range(1, 40):
        snapshot = stage.tick(loaded(clock=1.98, temperature_c=42.0))
        if limit(snapshot, Family.STATE) is None:
            break
        found = said(snapshot, Family.STATE)
        texts = [each.text for each in found.evidence]
        assert "42 °C now" in texts
        assert any(text.endswith("mean of 60 s; now 1.98 GHz") for text in texts)
        if second > 5:
            assert found.text.startswith("was slowed down until 00:02:00 UTC by heat")
            assert found.text.endswith("; 1.98 of 1.98 GHz now")
    assert 15 < second <= 30
    assert [event.text.partition(":")[0] for event in stage.events][-1] == "throttled is over"


@pytest.mark.parametrize(("draw", "advised"), [(690.0, 490), (350.0, 350), (90.0, 280)])
def test_the_power_limit_that_is_advised_is_no_more_than_it_draws(draw: float, advised: int) -> None:
    found = said(Stage().play(60, (loaded(*HOT, clock=1.0, power_w=draw),)), Family.STATE)
    assert f"sudo nvidia-smi -i 2 -pl {advised}, and -pl 700 takes it back" in found.action
    unknown = said(Stage().play(60, (loaded(*HOT, clock=1.0, power_limit_w=NOT_SUPPORTED),)), Family.STATE)
    assert "-pl" not in unknown.action


def test_figures_of_a_minute_are_told_as_means() -> None:
    found = said(Stage().play(60, (loaded(*HOT, clock=1.6, temperature_c=91.0),)), Family.STATE)
    texts = [each.text for each in found.evidence]
    assert {"SM clock 1.60 GHz, 81 % of its highest, mean of 60 s", "busy 98 %, mean of 60 s"} <= set(texts)
    assert {"690 of 700 W, mean of 60 s", "91 °C now"} <= set(texts)


def test_a_clock_at_the_edge_of_its_level_is_of_one_level() -> None:
    """0.99 GHz is critical under load, and the load breathes around 80 %."""
    stage = Stage()
    stage.play(300, lambda at: (loaded(*HOT, clock=0.99, busy_ratio=0.8 + (0.08 if at // 20 % 2 else -0.08)),))
    levels = [event.level for event in stage.events if "throttled" in event.text]
    assert levels == [Level.WARN, Level.CRITICAL]


@pytest.mark.parametrize("clock", [0.98, 1.0])
def test_a_low_clock_at_its_edge_is_one_verdict(clock: float) -> None:
    stage = Stage()
    stage.play(400, lambda at: (loaded("applications_clocks_setting", clock=clock + (0.05 if at % 80 > 70 else 0.0)),))
    assert len(stage.events) <= 1

"""GPUs that are held down, told apart from a power limit at work."""

from __future__ import annotations

from gpumon.readings.snapshot import Family, Level, Limit
from gpumon.triage.render import event_text, evidence_text
from tests.each_row import each_row
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


@each_row("clock", [0.98, 1.0])
def test_a_low_clock_at_its_edge_is_one_verdict(clock: float) -> None:
    stage = Stage()
    stage.play(400, lambda at: (loaded("applications_clocks_setting", clock=clock + (0.05 if at % 80 > 70 else 0.0)),))
    assert len(stage.events) <= 1


@each_row(("busy", "level"), [(0.04, Level.NOTE), (0.2, Level.WARN)])
def test_a_slowdown_of_a_gpu_that_does_nothing_is_a_note(busy: float, level: Level) -> None:
    found = said(Stage().play(60, (loaded(*HOT, clock=1.2, busy_ratio=busy),)), Family.STATE)
    assert (found.code, found.level) == (Limit.THROTTLED, level)
    assert ("idle" in found.parameters) == (level is Level.NOTE)


@each_row(("step_mhz", "cause"), [(0.0, "locked_clock"), (39.0, "locked_clock"), (41.0, "low_clock")])
def test_a_clock_that_moves_by_more_than_two_hundredths_is_not_locked(step_mhz: float, cause: str) -> None:
    """2 % of 1980 MHz are 39.6 MHz."""
    found = said(Stage().play(125, lambda at: (loaded(clock=0.9 + step_mhz / 1e3 * (at % 2)),)), Family.STATE)
    assert (found.code, found.cause) == (Limit.THROTTLED, cause)


@each_row(("draw_w", "advised_w"), [(690.0, 490.0), (400.0, 360.0), (320.0, 280.0), (300.0, None)])
def test_a_power_limit_against_heat_lies_between_four_and_seven_tenths(draw_w: float, advised_w: float | None) -> None:
    """Of a limit of 700 W that is 280 to 490 W, and at most nine tenths of what the GPU draws."""
    found = said(Stage().play(60, (loaded(*HOT, clock=0.9, power_w=draw_w, temperature_c=91.0),)), Family.STATE)
    advised = [each.parameters["watts"] for each in found.actions if each.code == "lower_power_limit"]
    assert advised == ([] if advised_w is None else [advised_w])

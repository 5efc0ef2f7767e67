"""GPUs that are held down, told apart from a power limit at work."""

from __future__ import annotations

from typing import Any

from gpumon.readings.snapshot import Confidence, Family, Level, Limit
from gpumon.triage.render import event_text, evidence_text, verdict_text
from tests.each_row import each_row
from tests.triage.engines import WORKS
from tests.triage.stage import Of, Stage, engine, gpu, limit, said, verdict

GHZ = 1e9


def loaded(*reasons: str, clock: float = 1.9, index: int = 2, **fields: object) -> Of:
    fields = {"busy_ratio": 0.98, "power_w": 690.0, "power_limit_w": 700.0, **fields}
    return gpu(index, throttle=reasons, sm_clock_hz=clock * GHZ, sm_clock_max_hz=1.98 * GHZ, **fields)  # type: ignore[arg-type]


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
    """0.99 GHz is critical under load, and the load breathes around 80%."""
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
    """2% of 1980 MHz are 39.6 MHz."""
    found = said(Stage().play(125, lambda at: (loaded(clock=0.9 + step_mhz / 1e3 * (at % 2)),)), Family.STATE)
    assert (found.code, found.cause) == (Limit.THROTTLED, cause)


@each_row(("draw_w", "advised_w"), [(690.0, 490.0), (400.0, 360.0), (320.0, 280.0), (300.0, None)])
def test_a_power_limit_against_heat_lies_between_four_and_seven_tenths(draw_w: float, advised_w: float | None) -> None:
    """Of a limit of 700 W that is 280 to 490 W, and at most nine tenths of what the GPU draws."""
    found = said(Stage().play(60, (loaded(*HOT, clock=0.9, power_w=draw_w, temperature_c=91.0),)), Family.STATE)
    advised = [each.parameters["watts"] for each in found.actions if each.code == "lower_power_limit"]
    assert advised == ([] if advised_w is None else [advised_w])


def test_a_limit_that_is_lowered_while_it_is_watched_is_named_at_once_with_the_one_before() -> None:
    stage = Stage()
    stage.play(120, (loaded(power_default_w=700.0),))
    assert limit(stage.last, Family.STATE) is None
    capped = loaded("sw_power_cap", clock=1.2, power_w=350.0, power_limit_w=350.0, power_default_w=700.0)
    stage.play(10, (capped,))
    found = said(stage.last, Family.STATE)
    assert (found.code, found.cause) == (Limit.THROTTLED, "power_cap")
    assert "its power limit of 350 W (700 W before) holds" in verdict_text(found)
    stage.play(30, (loaded(power_default_w=700.0),))
    assert limit(stage.last, Family.STATE) is None


def test_a_lowered_limit_that_holds_nothing_down_is_silent() -> None:
    stage = Stage()
    stage.play(60, (loaded(power_default_w=700.0, power_w=200.0),))
    stage.play(60, (loaded(power_default_w=700.0, power_w=200.0, power_limit_w=350.0),))
    assert limit(stage.last, Family.STATE) is None


CAPPED = {"power_w": 350.0, "power_limit_w": 350.0, "power_default_w": 700.0}


def test_a_lowered_limit_that_users_feel_by_waves_is_of_one_level() -> None:
    """For a minute and a half requests wait for it, for as long they do not."""
    stage = Stage()
    free = loaded(power_default_w=700.0, engines=("vllm:8000",))
    held = loaded("sw_power_cap", clock=1.2, engines=("vllm:8000",), **CAPPED)
    stage.play(120, (free, engine(gpus=(2,), **WORKS)))
    levels = []
    for second in range(0, 600, 2):
        waiting = 8.0 * (second // 90 % 2)
        found = said(stage.play(2, (held, engine(gpus=(2,), **{**WORKS, "waiting": waiting}))), Family.STATE)
        if found.level not in levels[-1:]:
            levels.append(found.level)
    assert levels == [Level.NOTE, Level.WARN]
    stage.play(30, (free, engine(gpus=(2,), **WORKS)))
    assert limit(stage.last, Family.STATE) is None


def test_gpus_of_one_instance_whose_limits_are_lowered_together_wait_for_none_of_them() -> None:
    """The clock that each of them had a moment ago is none that it waits at now."""
    stage = Stage()

    def both(*reasons: str, **fields: object) -> tuple[Of, ...]:
        cards = [loaded(*reasons, index=index, engines=("vllm:8000",), **fields) for index in (0, 1)]
        return (*cards, engine(gpus=(0, 1), **{**WORKS, "tp": 2}))

    stage.play(120, both(power_default_w=700.0))
    stage.play(10, both("sw_power_cap", clock=1.2, **CAPPED))
    for _ in range(40):
        found = said(stage.play(2, both("sw_power_cap", clock=1.2, **CAPPED)), Family.STATE)
        assert (found.cause, found.level) == ("power_cap", Level.NOTE), verdict_text(found)


@each_row(
    ("fields", "told"),
    [
        (
            {"clock": 0.9},
            "clock at 0.90 of 1.98 GHz under load; nothing here tells why: a lock, a setting, power or heat",
        ),
        (
            {"clock": 1.4},
            "clock at 1.40 of 1.98 GHz under load; nothing here tells why: a lock, a setting, power or heat",
        ),
        ({"clock": 0.9, "power_w": 690.0}, None),  # at its power limit a clock is what that leaves
    ],
)
def test_a_clock_whose_reasons_are_not_read_is_not_called_locked(fields: dict[str, Any], told: str | None) -> None:
    """A dcgm-exporter tells the clock, and not what holds it."""
    fields = {"power_w": 400.0, **fields, "sources": {"sm_clock_hz": "DCGM_FI_DEV_SM_CLOCK"}}
    last = Stage().play(120, (loaded(**fields),))
    if told is None:
        assert limit(last, Family.STATE) is None
        return
    found = said(last, Family.STATE)
    assert (found.cause, found.confidence, verdict_text(found)) == ("low_clock", Confidence.LOW, told)
    assert [action.code for action in found.actions] == ["inspect_gpu"]


@each_row(("clocks", "cause"), [((1.3, 1.31, 1.3, 1.33), None), ((1.3,), "locked_clock")])
def test_three_samples_that_are_alike_are_no_lock(clocks: tuple[float, ...], cause: str | None) -> None:
    """One every 30 s: those of a minute say nothing, and those of three the same."""
    stage = Stage()
    for tick in range(20):
        moves = 1.5 if tick % 4 == 0 and len(clocks) > 1 else clocks[tick % len(clocks)]
        last = stage.play(30, (loaded(clock=moves),), every_s=30)
    found = verdict(last, Family.STATE)
    assert (found and found.cause) == cause

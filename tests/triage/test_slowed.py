"""Engines that take longer for the same work: since when, with what changed then; and loads that explain it."""

from __future__ import annotations

from typing import Any

from gpumon.readings.frame import EngineKind
from gpumon.readings.missing import NOT_EXPOSED
from gpumon.readings.snapshot import Level, Limit, Snapshot, Verdict
from gpumon.triage.render import actions_text, evidence_text, verdict_text
from gpumon.triage.step_time import step_excess
from tests.each_row import each_row
from tests.triage.engines import BUSY, IDLE, limits, only, scene
from tests.triage.stage import Of, Stage

STEP = {
    "running": 12.0,
    "itl_mean_s": 0.012,
    "steps_per_s": 80.0,
    "decode_tokens_per_s": 960.0,
    "prefill_tokens_per_s": 2000.0,
    "mfu_prefill_ratio": 0.05,
    "weight_bytes": 16e9,
    "kv_bytes_per_s": 1.6e11,
    "peak_bandwidth_bytes_per_s": 3.35e12,
    "mbu_ratio": 0.4,
}
"""An engine whose step reads 18 GB in 12 ms: 2.2 times what they take at the peak."""
SLOWER = {**STEP, "itl_mean_s": 0.03, "steps_per_s": 32.0, "kv_bytes_per_s": 6.4e10, "mbu_ratio": 0.16}
AT_700_W = {**BUSY, "power_limit_w": 700.0}
AT_350_W = {**BUSY, "power_limit_w": 350.0}


def played(then: dict[str, Any], gpus: Any = AT_700_W, later_gpus: Any = None, seconds: int = 60) -> Stage:
    """A stage on which the engine was as usual for 3 min, and another since."""
    stage = Stage()
    stage.play(180, scene(STEP, gpus))
    stage.play(seconds, scene(then, later_gpus or gpus))
    return stage


def told(stage: Stage) -> Verdict:
    """The only verdict on the engine."""
    assert stage.last is not None
    return only(stage.last)


def test_a_slower_step_is_told_with_the_setting_that_changed_first() -> None:
    verdict = told(played(SLOWER, later_gpus=AT_350_W))
    assert (verdict.code, verdict.cause, verdict.level) == (Limit.SLOWED_DOWN, "since_change", Level.WARN)
    text = verdict_text(verdict)
    assert text.startswith("ITL 12 ms -> 30 ms since 00:0")
    assert text.endswith("at like work (2.5x the time of a step), when the power limit of gpu 0 went 700 W -> 350 W")
    assert evidence_text(verdict.evidence[0]).endswith("power limit of gpu 0 700 W -> 350 W")
    assert [fix.code for fix in verdict.actions] == ["restore_power_limit"]
    assert "-pl 700" in actions_text(verdict)


def test_without_a_change_of_a_setting_it_says_so_and_where_to_look() -> None:
    verdict = told(played(SLOWER))
    assert verdict_text(verdict).endswith("; nothing that gpumon sees changed then")
    assert [fix.code for fix in verdict.actions] == ["look_at_time", "profile_process"]
    assert "journalctl -k --since @17" in actions_text(verdict)


def test_what_was_set_is_known_as_long_as_it_stands_and_it_ends_with_its_cause() -> None:
    stage = played(SLOWER, later_gpus=AT_350_W, seconds=900)
    assert "went 700 W -> 350 W" in verdict_text(told(stage))
    stage.play(60, scene(STEP, AT_700_W))
    assert stage.last is not None
    assert Limit.SLOWED_DOWN not in limits(stage.last)


def test_a_clock_that_fell_with_it_is_known_when_its_samples_are_forgotten() -> None:
    low = {**AT_700_W, "sm_clock_hz": 1.2e9, "busy_ratio": 0.7}
    stage = played(SLOWER, {**AT_700_W, "sm_clock_hz": 1.8e9, "busy_ratio": 0.7}, low, seconds=60)
    assert verdict_text(told(stage)).endswith("when the SM clock under load of gpu 0 went 1800 MHz -> 1200 MHz")
    stage.play(900, scene(SLOWER, low))
    assert verdict_text(told(stage)).endswith("when the SM clock under load of gpu 0 went 1800 MHz -> 1200 MHz")
    assert [fix.code for fix in told(stage).actions] == ["reset_locked_clocks"]


COOL = {**AT_700_W, "sm_clock_hz": 1.8e9, "busy_ratio": 0.7}
HOT = {**COOL, "sm_clock_hz": 1.2e9, "throttle": ("hw_slowdown", "hw_thermal_slowdown")}


def test_a_clock_that_a_power_limit_holds_is_not_called_locked() -> None:
    """The driver tells why the clock is low, and not the limit."""
    unlimited = {**COOL, "power_limit_w": NOT_EXPOSED}
    capped = {**unlimited, "sm_clock_hz": 1.6e9, "throttle": ("sw_power_cap",)}
    verdict = told(played(SLOWER, unlimited, capped, seconds=100))
    assert verdict_text(verdict).endswith("when the throttle reason of gpu 0 went nothing -> power limit")
    assert [fix.code for fix in verdict.actions] == ["restore_power_limit"]


def test_a_clock_that_application_clocks_hold_is_given_back_by_their_own_command() -> None:
    held = {**COOL, "sm_clock_hz": 1.2e9, "throttle": ("applications_clocks_setting",)}
    verdict = told(played(SLOWER, COOL, held, seconds=100))
    assert verdict_text(verdict).endswith("when the throttle reason of gpu 0 went nothing -> application clocks")
    assert [action.code for action in verdict.actions] == ["reset_application_clocks"]


def test_what_a_hot_gpu_makes_slow_is_told_of_the_gpu_alone() -> None:
    stage = played(SLOWER, COOL, HOT, seconds=100)
    assert stage.last is not None
    assert Limit.THROTTLED in limits(stage.last)
    assert Limit.SLOWED_DOWN not in limits(stage.last)


def test_what_is_left_after_heat_that_is_over_is_the_work_that_piled_up() -> None:
    stage = played(SLOWER, COOL, HOT, seconds=40)
    stage.play(60, scene(SLOWER, COOL))
    assert stage.last is not None
    assert Limit.SLOWED_DOWN not in limits(stage.last)


def test_an_hour_makes_a_speed_the_usual_one() -> None:
    stage = played(SLOWER, seconds=3500)
    assert told(stage).code is Limit.SLOWED_DOWN
    stage.play(300, scene(SLOWER, AT_700_W))
    assert stage.last is not None
    assert Limit.SLOWED_DOWN not in limits(stage.last)


def test_what_rose_little_by_little_and_stays_there_is_not_said_to_rise() -> None:
    stage = Stage()
    stage.play(300, scene(STEP, AT_700_W))

    def slower(tick: int) -> tuple[Of, ...]:
        share = min(1.0, (tick - 300.0) / 400.0)
        itl_s = STEP["itl_mean_s"] * (1.0 + 1.5 * share)
        figures = {"itl_mean_s": itl_s, "steps_per_s": 1.0 / itl_s, "kv_bytes_per_s": 2e9 / itl_s}
        return scene({**STEP, **figures}, AT_700_W)(tick)

    stage.play(1400, slower)
    assert told(stage).cause == "drift"
    assert verdict_text(told(stage)).startswith("ITL 12 ms -> 30 ms, little by little since ")


@each_row(
    "then",
    [
        # 5 times the requests with their KV cache: the step reads more
        {**STEP, "running": 60.0, "itl_mean_s": 0.02, "steps_per_s": 48.0, "kv_bytes_per_s": 6.7e11},
        # half the tokens of a step, as fewer drafts are accepted: the step is as long
        {**STEP, "itl_mean_s": 0.012, "tokens_per_step": 1.0},
        # prompts take most of the time
        {**SLOWER, "mfu_prefill_ratio": 0.4, "prefill_tokens_per_s": 20000.0},
        # far more requests and tokens than ever: large batches may leave the fast kernels
        {**SLOWER, "running": 200.0, "decode_tokens_per_s": 6400.0},
        # a third of the context: fewer bytes, and tokens as fast as before
        {**STEP, "weight_bytes": 6e9, "kv_bytes_per_s": 1e10},
        # a third slower
        {**STEP, "itl_mean_s": 0.016, "steps_per_s": 60.0, "kv_bytes_per_s": 1.2e11},
    ],
    named=["more requests", "acceptance", "prompts", "much more load", "fewer bytes", "a third"],
)
def test_longer_tokens_that_a_load_explains_are_no_slowdown(then: dict[str, Any]) -> None:
    stage = played(then)
    assert stage.last is not None
    assert Limit.SLOWED_DOWN not in limits(stage.last)


def test_more_requests_that_give_no_more_tokens_are_there_because_it_is_slower() -> None:
    assert told(played({**SLOWER, "running": 60.0})).code is Limit.SLOWED_DOWN


def test_the_excess_is_that_of_the_step_alone() -> None:
    _, known = scene(STEP)(0)
    excess = step_excess(known.shown)
    assert excess is not None
    assert abs(excess - 0.012 * (1 - 0.05 / 0.6) / (18e9 / 3.35e12)) < 1e-9
    _, unknown = scene({**STEP, "peak_bandwidth_bytes_per_s": NOT_EXPOSED})(0)
    assert step_excess(unknown.shown) is None


UNKNOWN_BYTES = {"peak_bandwidth_bytes_per_s": NOT_EXPOSED, "mbu_ratio": NOT_EXPOSED}


def test_without_the_bytes_of_a_step_tokens_twice_as_slow_at_no_more_load_tell() -> None:
    stage = Stage()
    stage.play(180, scene({**STEP, **UNKNOWN_BYTES}, AT_700_W))
    stage.play(60, scene({**SLOWER, **UNKNOWN_BYTES, "running": 30.0}, AT_350_W))
    verdict = told(stage)
    assert (verdict.code, verdict.cause) == (Limit.SLOWED_DOWN, "since_change")
    text = verdict_text(verdict)
    assert text.startswith("ITL 12 ms -> 30 ms since ")
    assert text.endswith(" UTC, when the power limit of gpu 0 went 700 W -> 350 W")


@each_row(
    "more",
    [{"decode_tokens_per_s": 1400.0}, {"prefill_tokens_per_s": 3000.0}, {"itl_mean_s": 0.02}],
    named=["a", "b", "c"],
)
def test_without_the_bytes_of_a_step_more_load_explains_slower_tokens(more: dict[str, float]) -> None:
    stage = Stage()
    stage.play(180, scene({**STEP, **UNKNOWN_BYTES}, AT_700_W))
    stage.play(90, scene({**SLOWER, **UNKNOWN_BYTES, **more}, AT_700_W))
    assert stage.last is not None
    assert Limit.SLOWED_DOWN not in limits(stage.last)


def leaks(
    changes: dict[str, Any],
    kind: EngineKind = EngineKind.VLLM,
    seconds: int = 90,
    card: Any = IDLE,
    *,
    moves: bool = False,
) -> Snapshot:
    """An engine whose requests have gone, after half a minute with some."""
    stage = Stage()
    stage.play(30, scene(STEP, AT_700_W, kind=kind))
    idle = {
        "running": 0.0,
        "decode_tokens_per_s": 0.0,
        "prefill_tokens_per_s": 0.0,
        "kv_usage_ratio": 0.3,
        "waiting": 0.0,
    }
    return stage.play(seconds, scene({**idle, "kv_usage_ratio": 0.3, **changes}, card, kind=kind, moves=moves))


def test_kv_cache_that_nobody_gives_back_is_a_leak() -> None:
    (found,) = (verdict for verdict in leaks({}).verdicts if verdict.code is Limit.LEAK)
    assert (found.cause, found.level) == ("kv_leak", Level.WARN)
    assert verdict_text(found) == "KV cache 30% in use while no request has run for over 60 s: nobody gives it back"
    assert [fix.code for fix in found.actions] == ["restart_for_kv"]
    assert Limit.LEAK not in limits(leaks({}, moves=True)), "requests come and go between two polls"
    (small,) = (verdict for verdict in leaks({"kv_usage_ratio": 0.05}).verdicts if verdict.code is Limit.LEAK)
    assert small.level is Level.NOTE


@each_row(
    ("changes", "kind"),
    [
        ({"kv_usage_ratio": 0.01}, EngineKind.VLLM),
        ({}, EngineKind.LLAMA_CPP),  # keeps the prompts of its slots
        ({"waiting_deferred": 2.0, "waiting": 2.0}, EngineKind.VLLM),
        ({"kv_transferred_bytes_per_s": 0.0}, EngineKind.VLLM),  # keeps them until the decode side has fetched them
    ],
)
def test_kv_cache_that_is_kept_on_purpose_is_no_leak(changes: dict[str, Any], kind: EngineKind) -> None:
    assert Limit.LEAK not in limits(leaks(changes, kind))


def test_kv_cache_beside_a_gpu_at_work_is_that_of_a_long_prompt() -> None:
    assert Limit.LEAK not in limits(leaks({}, card=BUSY))

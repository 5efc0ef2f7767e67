"""Speculation and prefix hits that are lost, against what they were in the hour before; and LoRA adapters that wait."""

from __future__ import annotations

from typing import Any

from gpumon.readings.frame import EngineKind
from gpumon.readings.snapshot import Level, Limit, Quantiles
from gpumon.triage.render import actions_text, verdict_text
from tests.each_row import each_row
from tests.triage.engines import BUSY, judged, limits, only, scene
from tests.triage.stage import Of, Stage

DRAFTS = {"acceptance_ratio": 0.72, "tokens_per_step": 3.2, "itl_mean_s": 0.008}
LOST = {"acceptance_ratio": 0.04, "tokens_per_step": 1.1, "itl_mean_s": 0.023}
HITS = {"cached_ratio": 0.85, "requests_per_s": 4.0}
COLD = {**HITS, "cached_ratio": 0.02, "ttft_s": Quantiles(mean=1.1, p95=1.5)}
COMPUTES = {**BUSY, "tensor_active_ratio": 0.78}
QUEUED = {"waiting": 12.0, "queue_s": Quantiles(mean=0.9)}


def after(before: dict[str, Any], then: dict[str, Any], gpus: Any = BUSY, seconds: int = 120) -> Stage:
    """A stage on which the first stood for 3 min, and the second since."""
    stage = Stage()
    stage.play(180, scene(before))
    stage.play(seconds, scene(then, gpus))
    return stage


def test_acceptance_that_fell_is_told_with_what_it_was() -> None:
    stage = after(DRAFTS, LOST)
    assert stage.last is not None
    found = only(stage.last)
    assert (found.code, found.cause, found.level) == (Limit.SPECULATION_LOW, "acceptance_fell", Level.WARN)
    assert verdict_text(found) == "4% of the draft tokens are accepted, 72% before: 1.1x tokens per step"
    assert actions_text(found).startswith("find what changed (prompts, language, temperature, model without its draft)")
    stage.play(1200, scene(LOST))
    assert only(stage.last).cause == "acceptance_fell", "what it was is known for an hour"


@each_row(("then", "level"), [({**LOST, "itl_mean_s": 0.008}, Level.NOTE), ({**LOST, "itl_mean_s": 0.013}, Level.WARN)])
def test_acceptance_that_fell_is_a_warning_where_answers_became_slower(then: dict[str, Any], level: Level) -> None:
    stage = after(DRAFTS, then)
    assert stage.last is not None
    assert only(stage.last).level is level


def test_speculation_that_never_paid_is_a_note_and_a_third_less_acceptance_is_none() -> None:
    found = only(judged(scene({**LOST, "itl_mean_s": 0.02}), 150))
    assert (found.cause, found.level) == ("acceptance_low", Level.NOTE)
    assert only(judged(scene({**LOST, "tokens_per_step": 1.9}), 150)).code is Limit.HEALTHY, "many drafts at once"
    less = after(DRAFTS, {**DRAFTS, "acceptance_ratio": 0.48})
    assert less.last is not None
    assert only(less.last).code is Limit.HEALTHY


@each_row(("more", "gpus"), [({}, BUSY), ({}, COMPUTES), (QUEUED, COMPUTES)])
def test_lost_prefix_hits_come_before_advice_to_compute_more(more: dict[str, Any], gpus: Any) -> None:
    stage = after(HITS, {**COLD, **more}, gpus)
    assert stage.last is not None
    found = only(stage.last)
    assert (found.code, found.cause, found.level) == (Limit.PREFIX_CACHE_LOST, "prefix_hits_fell", Level.WARN)
    assert [one.code for one in found.actions] == ["check_prefix_routing"]
    assert verdict_text(found).startswith("the prefix cache gives 2% of the prompt tokens, 85% before")


def test_lost_prefix_hits_that_nobody_feels_are_a_note() -> None:
    stage = after(HITS, {**HITS, "cached_ratio": 0.02})
    assert stage.last is not None
    assert only(stage.last).level is Level.NOTE


@each_row(
    "then",
    [
        {**HITS, "cached_ratio": 0.6},
        {**COLD, "requests_per_s": 0.1},  # 6 prompts a minute
        {**COLD, "preemptions_per_s": 0.4, "kv_usage_ratio": 0.97},  # thrown out with their requests
    ],
)
def test_prefix_hits_that_vary_or_have_another_cause_are_not_lost(then: dict[str, Any]) -> None:
    stage = after(HITS, then)
    assert stage.last is not None
    assert Limit.PREFIX_CACHE_LOST not in limits(stage.last)


def test_hits_that_were_few_are_hardly_missed() -> None:
    last = after({**HITS, "cached_ratio": 0.15}, COLD).last
    assert last is not None
    assert Limit.PREFIX_CACHE_LOST not in limits(last)


def test_hits_that_swing_all_the_time_are_no_loss() -> None:
    def swings(tick: int) -> tuple[Of, ...]:
        return scene({**HITS, "cached_ratio": 0.7 if tick // 60 % 2 else 0.1})(tick)

    stage = Stage()
    for _ in range(20):
        assert Limit.PREFIX_CACHE_LOST not in limits(stage.play(30, swings))


def test_a_cold_cache_after_a_restart_heals_by_itself() -> None:
    def cold(tick: int) -> tuple[Of, ...]:
        return scene(COLD, COMPUTES, started_s=2e9, read_s=float(tick))(tick)

    stage = Stage()
    stage.play(180, scene(HITS, started_s=1e9))
    found = only(stage.play(70, cold))
    assert (found.code, found.cause, found.level) == (Limit.PREFIX_CACHE_LOST, "prefix_cold", Level.NOTE)
    assert verdict_text(found) == (
        "restarted over 60 s ago: its prefix cache is cold (2% of the prompt tokens, 85% before); heals by itself "
        "in about 3 min"
    )
    assert [one.code for one in found.actions] == ["wait_for_cache"]
    later = only(stage.play(400, cold))
    assert later.cause == "prefix_hits_fell", "it did not heal"


ADAPTERS = {"lora_slots": 4.0, "lora_loaded": 4.0, "lora_waiting": 2.0}


@each_row("deferred", [None, 12.0])
def test_requests_that_wait_for_a_lora_slot_are_no_queue_of_the_scheduler(deferred: float | None) -> None:
    waits = {**QUEUED, **ADAPTERS} if deferred is None else {**QUEUED, **ADAPTERS, "waiting_deferred": deferred}
    found = only(judged(scene(waits, slots=24.0)))
    assert (found.code, found.cause, found.level) == (Limit.LORA_SLOTS_FULL, "lora_slots", Level.WARN)
    assert actions_text(found).startswith("raise --max-loras from 4 to 6")
    assert verdict_text(found) == "12 wait: all 4 LoRA slots are taken, 2 more adapters wanted"


@each_row("changes", [{"lora_loaded": 3.0}, {"lora_waiting": 0.0}])
def test_a_queue_with_lora_slots_to_spare_is_the_schedulers(changes: dict[str, float]) -> None:
    assert only(judged(scene({**QUEUED, **ADAPTERS, **changes}, slots=24.0))).code is Limit.QUEUE_LIMIT


def test_an_engine_whose_option_is_not_known_is_told_in_words() -> None:
    found = only(judged(scene({**QUEUED, **ADAPTERS}, kind=EngineKind.LMDEPLOY)))
    assert actions_text(found).startswith("raise the number of LoRA adapters at once from 4")

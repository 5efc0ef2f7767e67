"""Whether as many requests run as may: by what answers of their length leave of the slots, never by stillness alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpumon.readings.frame import EngineKind
from gpumon.readings.missing import NOT_EXPOSED
from gpumon.readings.snapshot import Family, Quantiles
from gpumon.triage.render import actions_text, evidence_text, verdict_text
from tests.each_row import each_row
from tests.triage.engines import BUSY, judged, of_engine, scene
from tests.triage.stage import Stage
from tests.triage.test_engine_limit import QUEUED
from tests.triage.test_option_causes import with_options

STEADY = {**QUEUED, "steps_per_s": 50.0, "requests_per_s": 1.0, "answer_tokens_mean": 200.0}


@each_row(
    ("running", "changes", "cause"),
    [
        (16.0, {}, "queue_slots"),
        # Answers of 12 tokens: 1.3 requests end in each step.
        (14.0, {"requests_per_s": 65.0}, "queue_slots"),
        # The same by their length, where steps are not counted.
        (14.0, {"steps_per_s": 0.0, "answer_tokens_mean": 12.0}, "queue_slots"),
        # Answers of three tokens.
        (10.7, {"requests_per_s": 265.0}, "queue_slots"),
        # Long answers, and four slots are free: they are not what is waited for.
        (12.0, {}, "queue_steps"),
        (12.0, {"steps_per_s": 0.0}, "queue_steps"),
    ],
)
def test_slots_are_full_as_far_as_answers_of_that_length_fill_them(
    running: float, changes: Mapping[str, Any], cause: str
) -> None:
    card = {**BUSY, "processes": with_options("--max-num-seqs 16")["processes"]}
    found = of_engine(judged(scene({**STEADY, "running": running, **changes}, card)), Family.LIMIT)
    assert found is not None
    assert found.cause == cause, verdict_text(found)
    assert all(evidence_text(one) for one in found.evidence)


def test_a_queue_that_is_long_now_counts_though_those_that_ended_hardly_waited() -> None:
    """A real vLLM tells the time in the queue as a request ends: answers of half a minute came when few waited."""
    card = {**BUSY, "processes": with_options("--max-num-seqs 16 --enforce-eager")["processes"]}
    told = {"queue_s": Quantiles(mean=1.5, p95=4.0), "ttft_s": Quantiles(mean=4.2, p95=9.0)}
    steps = {"itl_s": Quantiles(mean=0.3, p95=0.4), "mfu_ratio": 0.01, "mbu_ratio": 0.05}
    load = {**STEADY, **told, **steps, "running": 15.0, "waiting": 23.0}
    found = of_engine(judged(scene({**load, "requests_per_s": 0.5}, card)), Family.LIMIT)
    assert found is not None
    assert found.cause == "queue_slots"
    found = of_engine(judged(scene({**load, "requests_per_s": 20.0}, card)), Family.LIMIT)
    assert found is not None
    assert found.cause == "eager_mode", "the queue is gone in a second"


def test_advice_does_not_flip_while_the_number_that_runs_breathes() -> None:
    stage = Stage()
    card = {**BUSY, "processes": with_options("--max-num-seqs 16")["processes"]}
    causes = set()
    for second in range(0, 240, 2):
        running = (15.0, 16.0, 14.0, 15.0, 16.0)[second // 2 % 5]
        now = stage.play(2, scene({**STEADY, "running": running, "requests_per_s": 18.0}, card), every_s=2)
        for each in now.verdicts:
            if each.family is Family.LIMIT:
                causes.add(each.cause)
    assert causes == {"queue_slots"}


def test_a_default_that_is_reached_is_named_as_an_assumption() -> None:
    """vLLM's own limit on a GPU of this size is 1,024 requests; its command line sets another, or none."""
    full = {**STEADY, "running": 1024.0, "waiting": 300.0, "kv_usage_ratio": 0.4}
    card = {**BUSY, "processes": with_options("")["processes"]}
    found = of_engine(judged(scene(full, card)), Family.LIMIT)
    assert found is not None
    assert "1,024 run of 1,024, its default, as nobody tells another" in verdict_text(found)
    assert any("assumed: not on its command line" in one.source for one in found.evidence)
    # 300 stand still below it: the command line is known, so that is no limit of requests.
    below = of_engine(judged(scene({**full, "running": 300.0}, card)), Family.LIMIT)
    assert below is not None
    assert below.cause == "queue_steps"


def test_pauses_of_the_gpus_beside_a_queue_have_a_name() -> None:
    card = {**BUSY, "busy_ratio": 0.5, "processes": with_options("--max-num-seqs 64")["processes"]}
    late = {**STEADY, "running": 20.0, "ttft_s": Quantiles(mean=4.0, p95=6.0), "queue_s": Quantiles(mean=3.8)}
    found = of_engine(judged(scene(late, card)), Family.LIMIT)
    assert found is not None
    assert found.cause == "queue_host"
    assert "busy only 50%" in verdict_text(found)
    assert "py-spy" in actions_text(found)


def test_an_engine_without_a_default_shows_its_limit_by_the_most_that_ran() -> None:
    found = of_engine(judged(scene({**STEADY, "running": 24.0}, kind=EngineKind.LMDEPLOY)), Family.LIMIT)
    assert found is not None
    assert found.cause == "queue_slots"


def test_a_limit_that_only_shows_itself_is_no_limit_where_the_kv_cache_may_be_full() -> None:
    unmeasured = {**STEADY, "running": 24.0, "kv_usage_ratio": NOT_EXPOSED}
    found = of_engine(judged(scene(unmeasured, kind=EngineKind.LMDEPLOY)), Family.LIMIT)
    assert found is not None
    assert found.cause == "queue_unmeasured"

"""Answers that are all cut, or all of one token: a note, and never beside requests that fail."""

from __future__ import annotations

from typing import Any

from gpumon.readings.quantities import KV_TRANSFERRED_BYTES
from gpumon.readings.snapshot import Family, Lengths, Level, Limit, Outcomes
from gpumon.triage.render import verdict_text
from tests.each_row import each_row
from tests.records import replace
from tests.triage.engines import judged, limits, of_engine, scene
from tests.triage.stage import Of

CUT = {"outcomes": Outcomes(ended=120.0, stopped=2.0, cut=118.0), "answer_tokens": Lengths(mean=512.0)}
ONE = {"outcomes": Outcomes(ended=900.0, stopped=900.0, cut=0.0), "answer_tokens": Lengths(mean=1.0)}
ASKED = {"outcomes": Outcomes(ended=900.0, stopped=0.0, cut=900.0), "answer_tokens": Lengths(mean=1.0)}


@each_row(
    ("changes", "cause", "text"),
    [
        (CUT, "answers_cut", "98% of its answers are cut at their longest (512 tokens on average): "),
        (ONE, "one_token_answers", "one-token answers that end by themselves (900 in 2 min): "),
        (
            ASKED,
            "one_token_answers",
            "one-token answers by their own limit (900 in 2 min): ",
        ),
    ],
)
def test_answers_that_are_all_alike_are_a_note(changes: dict[str, Any], cause: str, text: str) -> None:
    found = of_engine(judged(scene(changes)), Family.USE)
    assert found is not None
    assert (found.code, found.cause, found.level) == (Limit.ODD_ANSWERS, cause, Level.NOTE)
    assert verdict_text(found).startswith(text)
    assert found.actions


@each_row(
    "changes",
    [
        {**CUT, "outcomes": Outcomes(ended=120.0, stopped=30.0, cut=90.0)},  # long texts: some end by themselves
        {**CUT, "outcomes": Outcomes(ended=12.0, stopped=0.0, cut=12.0)},
        {**ONE, "answer_tokens": Lengths(mean=3.0)},
        {**ONE, "answer_tokens": Lengths(mean=0.0)},  # vectors
        {**ONE, "outcomes": Outcomes(ended=12.0, stopped=12.0, cut=0.0)},
    ],
)
def test_some_or_a_few_are_none(changes: dict[str, Any]) -> None:
    assert limits(judged(scene(changes))) == (Limit.HEALTHY,)


def test_requests_that_fail_are_told_instead() -> None:
    assert limits(judged(scene({**ONE, "requests_per_s": 8.0, "failures_per_s": 7.0}))) == (Limit.FAILING,)


def test_the_prefill_half_of_a_server_gives_one_token_to_each_request() -> None:
    of = scene(ASKED)

    def half(tick: int) -> tuple[Of, ...]:
        card, one = of(tick)
        return card, Of(replace(one.read, live={**one.read.live, KV_TRANSFERRED_BYTES: "vllm:nixl"}), one.shown)

    assert limits(judged(half)) == (Limit.HEALTHY,)

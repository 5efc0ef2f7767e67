"""The judge of `make prove`: what is right passes, and each kind of wrong is named."""

from __future__ import annotations

from typing import Any

from tests.real.judge import Expected, Sight, judge, table

EXPECTED = Expected("vllm", "tiny", (0, 1), 2)
EVENTS = [(at / 10, 5.0) for at in range(1000)]
"""50 tokens a second from 0 to 100 s."""


def sights(rate: float | None = 50.0, counted: float = 50.0, **other: Any) -> list[Sight]:
    """What gpumon says in 100 s of an engine that it asks every 2 s and shows every second."""
    shown = {"kind": "vllm", "model": "tiny", "gpus": [0, 1], "tp": 2, "found_by": "discovery", "state": "ok", **other}
    missing = {} if rate is not None else {"decode_tokens_per_s": "not_exposed"}
    return [
        Sight(
            second // 2 * 2 + 0.05,
            {
                **shown,
                "decode_tokens_per_s": rate,
                "tokens_total": {"decode": counted * (second // 2 * 2)},
                "missing": missing,
            },
        )
        for second in range(100)
    ]


def test_what_is_right_has_no_problem_and_each_poll_is_compared_once() -> None:
    outcome = judge("vllm", EXPECTED, sights(), 1.5, EVENTS, (10.0, 90.0))
    assert outcome.problems == ()
    assert max(outcome.errors) < 0.011
    assert len(outcome.errors) == 35
    assert (outcome.rate_truth, outcome.total) == (50.0, 4900.0)
    assert "| vllm | vllm | tiny | 0 1 | 2 s | 50.0/s |" in table([outcome])


def test_a_rate_or_a_total_that_is_off_is_named() -> None:
    outcome = judge("vllm", EXPECTED, sights(47.0, 40.0), 1.5, EVENTS, (10.0, 90.0))
    assert [problem.split(" ")[0] for problem in outcome.problems] == ["decode_tokens_per_s", "3,920"]
    assert "- vllm tiny: 3,920 tokens instead of 4,900" in table([outcome])


def test_a_wrong_name_gpu_or_size_is_named() -> None:
    outcome = judge("vllm", EXPECTED, sights(model="other", gpus=[0], tp=1), 1.5, EVENTS, (10.0, 90.0))
    assert outcome.problems == (
        "model 'other' instead of 'tiny'",
        "gpus (0,) instead of (0, 1)",
        "tp 1 instead of 2",
    )


def test_what_was_not_found_or_has_no_rate_is_no_success() -> None:
    assert judge("vllm", EXPECTED, [], None, EVENTS, (10.0, 90.0)).problems == ("not found",)
    outcome = judge("vllm", EXPECTED, sights(None), 1.5, EVENTS, (10.0, 90.0))
    assert outcome.problems == ("no decode_tokens_per_s: not_exposed",)

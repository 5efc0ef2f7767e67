"""Shares of requests within a goal as evidence: beside a p95 that misses it, and where the p95 does not tell."""

from __future__ import annotations

from typing import Any

from gpumon.readings.goals import Goals
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Evidence, Family, Kind, Quantiles, WithinGoal
from gpumon.triage.render import evidence_text
from tests.each_row import each_row
from tests.triage.engines import judged, scene
from tests.triage.stage import verdict

FEW = Missing(Reason.FEW)
WAITS = {"waiting": 12.0, "queue_s": Quantiles(mean=0.2), "kv_usage_ratio": 0.97, "running": 48.0}


def evidence(changes: dict[str, Any], goals: Goals) -> dict[str, Evidence]:
    """What the limit of an overloaded engine stands on."""
    found = verdict(judged(scene({**WAITS, **changes}), goals=goals), Family.LIMIT, Kind.ENGINE)
    assert found is not None
    return {one.quantity: one for one in found.evidence}


def share(ratio: float, goal_s: float = 1.0, count: float = 40.0, high: float | None = None) -> WithinGoal:
    return WithinGoal(ratio, ratio if high is None else high, goal_s, count)


def test_a_missed_goal_has_the_share_that_kept_it() -> None:
    late = evidence({"ttft_s": Quantiles(mean=1.0, p95=3.0), "ttft_goal": share(0.7)}, Goals(ttft_s=1.0))
    assert late["ttft_p95"].parameters["kept"] == 0.7
    assert "70 %" in evidence_text(late["ttft_p95"])


def test_without_a_goal_the_limit_is_named_which_is_another_one_than_the_assumed_goal() -> None:
    """`ttft ok` assumes 1 s, with its own mark: 2 s in the evidence are no goal."""
    late = evidence({"ttft_s": Quantiles(mean=1.0, p95=3.0)}, Goals())
    assert evidence_text(late["ttft_p95"]) == "TTFT p95 3 s is over 2 s (late_ttft_s: no goal is set)"


@each_row(
    "ttft",
    [Quantiles(mean=1.0, p95=FEW), Quantiles(mean=0.8, p95=1.2, p95_low=0.5, p95_high=2.0)],
    named=["too few for a p95", "the goal inside its bucket"],
)
def test_the_share_stands_in_where_the_p95_does_not_tell(ttft: Quantiles) -> None:
    late = evidence({"ttft_s": ttft, "ttft_goal": share(0.6, high=0.7)}, Goals(ttft_s=1.0))
    assert "ttft_p95" not in late
    assert (late["ttft_kept"].value, late["ttft_kept"].limit) == (0.7, 0.95)
    assert late["ttft_kept"].parameters["goal_s"] == 1.0


@each_row(
    ("kept", "goals"),
    [
        (share(0.6), Goals()),
        (share(0.6, high=0.96), Goals(ttft_s=1.0)),
        (share(0.6, count=19.0), Goals(ttft_s=1.0)),
        (share(0.6, goal_s=2.0), Goals(ttft_s=1.0)),
    ],
    named=["an assumed goal", "it may be kept", "few requests", "the share of another goal"],
)
def test_no_share_stands_in_for_less(kept: WithinGoal, goals: Goals) -> None:
    assert "ttft_kept" not in evidence({"ttft_s": Quantiles(mean=1.0, p95=FEW), "ttft_goal": kept}, goals)


def test_late_tokens_have_the_share_of_tokens_where_no_request_ended() -> None:
    changes = {"itl_s": Quantiles(mean=0.03, p95=FEW), "itl_goal": share(0.5, goal_s=0.02, count=900.0)}
    assert evidence(changes, Goals(itl_s=0.02))["itl_kept"].value == 0.5

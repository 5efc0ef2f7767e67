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
    assert "70%" in evidence_text(late["ttft_p95"])


def test_a_share_that_is_a_bound_and_a_p95_of_the_last_bucket_say_so() -> None:
    """The histogram ends at 2 s, and has no bound at the goal."""
    open_ended = Quantiles(mean=2.5, p95=2.0, p95_low=2.0, p95_high=Missing(Reason.INVALID))
    late = evidence({"ttft_s": open_ended, "ttft_goal": share(0.4, high=0.7)}, Goals(ttft_s=1.0))
    assert evidence_text(late["ttft_p95"]) == "TTFT p95 above 2 s misses 1 s: at most 70% kept it in 2 minutes"


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
    told = "at most 70% of the requests of 2 minutes keep the TTFT goal of 1 s"
    assert evidence_text(late["ttft_kept"]) == told, "the goal lies inside a bucket: 60% kept it for sure"


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


def test_the_mean_of_a_request_and_a_gap_have_goals_of_their_own() -> None:
    """19 of 20 requests are within 40 ms per token, while one gap in 20 is 200 ms long: a prompt came between."""
    changes = {"itl_s": Quantiles(mean=0.03, p95=0.2), "tpot_s": Quantiles(mean=0.03, p95=0.035)}
    assert not {"tpot_p95", "itl_p95"} & set(evidence(changes, Goals(tpot_s=0.04)))
    late = evidence(changes, Goals(tpot_s=0.03, itl_s=0.04))
    assert evidence_text(late["tpot_p95"]) == "TPOT p95 35 ms misses 30 ms"
    assert evidence_text(late["itl_p95"]) == "ITL p95 200 ms misses 40 ms"
    mean = evidence({**changes, "itl_mean_s": 0.03}, Goals(itl_mean_s=0.02))
    assert evidence_text(mean["itl_mean_late"]) == "ITL mean 30 ms misses 20 ms"


def test_a_goal_of_requests_is_held_against_the_mean_where_no_request_is_counted_and_says_so() -> None:
    changes = {"itl_s": Quantiles(mean=0.05, p95=0.2), "itl_mean_s": 0.05}
    late = evidence(changes, Goals(tpot_s=0.04))
    assert evidence_text(late["tpot_by_mean"]) == (
        "ITL mean 50 ms is beyond the TPOT goal of 40 ms (the engine exports no TPOT)"
    )
    assert "itl_p95" not in late


def test_requests_have_the_share_within_their_own_goal() -> None:
    kept = share(0.5, goal_s=0.04, count=90.0)
    late = evidence({"tpot_s": Quantiles(mean=0.03, p95=FEW), "tpot_goal": kept}, Goals(tpot_s=0.04))
    assert late["tpot_kept"].value == 0.5


def test_late_tokens_have_the_share_of_tokens_where_no_request_ended() -> None:
    changes = {"itl_s": Quantiles(mean=0.03, p95=FEW), "itl_goal": share(0.5, goal_s=0.02, count=900.0)}
    assert evidence(changes, Goals(itl_s=0.02))["itl_kept"].value == 0.5


def test_a_goal_of_gaps_has_the_share_of_gaps_beside_that_of_requests() -> None:
    """One gap in ten is long, and every request is within the goal by its mean."""
    changes = {
        "itl_s": Quantiles(mean=0.03, p95=0.2),
        "itl_goal": share(0.9, goal_s=0.04, count=900.0),
        "tpot_goal": share(1.0, goal_s=0.04, count=90.0),
    }
    late = evidence(changes, Goals(itl_s=0.04))
    assert evidence_text(late["itl_p95"]) == "ITL p95 200 ms misses 40 ms: 90% kept it in 2 minutes"
    without_gaps = {**changes, "itl_goal": WithinGoal()}
    assert evidence(without_gaps, Goals(itl_s=0.04))["itl_p95"].parameters["kept"] == 1.0

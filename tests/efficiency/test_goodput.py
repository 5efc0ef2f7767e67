"""Shares within the goals: exact at the bound of a bucket, between two shares inside one, and never of nothing."""

from __future__ import annotations

import pytest

from gpumon.efficiency.goodput import (
    derive_goodput,
    is_in_doubt,
    share_of_all,
    share_within,
    within_both_goals,
    within_itl_goal,
)
from gpumon.efficiency.tracks import MINUTES_S, Track
from gpumon.readings import quantities as q
from gpumon.readings.frame import EndpointState, EngineKind, EngineReading, HistogramReading, RankReading
from gpumon.readings.goals import Goals
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Goodput, WithinGoal
from tests.each_row import each_row

INF = float("inf")


def observed(*counts: float) -> HistogramReading:
    """Observations up to 0.5 s, 1 s, and in all."""
    return HistogramReading((0.5, 1.0, INF), counts, 1.0, counts[-1])


@each_row(
    ("goal_s", "low", "high"),
    [(1.0, 0.9, 0.9), (1.0 + 1e-12, 0.9, 0.9), (0.75, 0.6, 0.9), (0.1, 0.0, 0.6), (5.0, 0.9, 1.0)],
)
def test_a_share_is_exact_at_a_bound_and_between_two_inside_a_bucket(goal_s: float, low: float, high: float) -> None:
    share = share_within(observed(6.0, 9.0, 10.0), goal_s)
    assert (share.low_ratio, share.high_ratio, share.count) == (low, high, 10.0)


@each_row(
    ("goal_s", "http_s", "users_low"),
    [(1.0, 0.0, 0.9), (1.0, 0.012, 0.6), (0.512, 0.012, 0.6), (0.51, 0.012, 0.0), (0.005, 0.012, 0.0)],
)
def test_as_users_see_it_only_who_was_faster_by_the_time_of_http_surely_kept_the_goal(
    goal_s: float, http_s: float, users_low: float
) -> None:
    share = share_within(observed(6.0, 9.0, 10.0), goal_s, http_s)
    assert share.users_low_ratio == users_low
    exact = share_within(observed(6.0, 9.0, 10.0), goal_s)
    assert (share.low_ratio, share.high_ratio) == (exact.low_ratio, exact.high_ratio)


def test_http_adds_to_the_first_token_and_not_to_those_after_it() -> None:
    track = Track()
    for at_s, requests in ((0.0, 0.0), (2.0, 5.0)):
        track.add(with_tpot(at_s, requests), 1e9 + at_s)
    shares = derive_goodput(track, Goals(ttft_s=1.0, itl_s=1.0))
    assert (shares.ttft_goal.users_low_ratio, shares.ttft_goal.low_ratio) == (0.0, 1.0)
    assert (shares.tpot_goal.users_low_ratio, shares.tpot_goal.low_ratio) == (1.0, 1.0)


@each_row(
    ("least", "most", "in_doubt"),
    [(0.9, 0.96, True), (0.95, 0.99, False), (0.5, 0.94, False), (0.9, 0.95, True), (Missing(Reason.IDLE), 1.0, False)],
)
def test_a_promise_is_in_doubt_between_the_least_and_the_largest_share(
    least: float, most: float, in_doubt: bool
) -> None:
    assert is_in_doubt(least, most) is in_doubt


def test_where_nothing_was_observed_there_is_no_share() -> None:
    share = share_within(observed(0.0, 0.0, 0.0), 1.0)
    assert (share.low_ratio, share.high_ratio, share.count) == (Missing(Reason.IDLE), Missing(Reason.IDLE), 0.0)


def test_the_share_of_replicas_is_over_all_their_requests() -> None:
    busy = share_within(observed(0.0, 10.0, 40.0), 1.0)
    calm = share_within(observed(0.0, 10.0, 10.0), 1.0)
    idle = share_within(observed(0.0, 0.0, 0.0), 1.0)
    assert share_of_all([busy, calm, idle]) == WithinGoal(0.4, 0.4, 1.0, 50.0, 0.4)
    assert share_of_all([idle, idle]).low_ratio == Missing(Reason.IDLE)
    assert share_of_all([busy, WithinGoal()]) == WithinGoal()
    other = share_of_all([busy, share_within(observed(0.0, 10.0, 10.0), 0.5)])
    assert isinstance(other.low_ratio, Missing)
    assert other.low_ratio.reason is Reason.NOT_SUPPORTED


def test_both_goals_at_once_lie_between_the_worst_and_the_best_case() -> None:
    first = WithinGoal(0.75, 0.8, 1.0, 10.0, 0.7)
    rest = WithinGoal(0.9, 0.9, 0.05, 10.0, 0.9)
    least, most = within_both_goals(Goodput(first, WithinGoal(), rest)) or (0.0, 0.0)
    assert (least, most) == (pytest.approx(0.6), 0.8)
    assert within_both_goals(Goodput(first, rest, WithinGoal())) is None, "tokens are no requests"


def test_tokens_stand_in_where_no_request_ended() -> None:
    tokens = WithinGoal(0.5, 0.5, 0.05, 900.0)
    ended = WithinGoal(1.0, 1.0, 0.05, 3.0)
    assert within_itl_goal(Goodput(itl_goal=tokens, tpot_goal=ended)) is ended
    assert within_itl_goal(Goodput(itl_goal=tokens, tpot_goal=share_within(observed(0.0, 0.0, 0.0), 0.05))) is tokens


def test_the_window_of_minutes_is_as_long_as_it_says_and_ends_with_a_restart() -> None:
    track = Track()
    for at in range(0, 600, 2):
        track.add(poll(float(at), float(at)), 1e9 + at)
    seen = track.minutes.histogram(q.TTFT)
    assert seen is not None
    assert track.minutes.length_s == pytest.approx(MINUTES_S, abs=10.0)
    assert seen.count == track.minutes.length_s, "a request per second"
    assert track.long.length_s == 60.0
    track.add(poll(600.0, 1.0), 1e9 + 600)
    track.add(poll(602.0, 3.0), 1e9 + 602)
    seen = track.minutes.histogram(q.TTFT)
    assert seen is not None
    assert (track.minutes.length_s, seen.count) == (2.0, 2.0)


@each_row(("kind", "of"), [(EngineKind.TGI, "tpot_goal"), (EngineKind.VLLM, "itl_goal")])
def test_an_engine_that_observes_one_mean_per_request_has_a_share_of_requests(kind: EngineKind, of: str) -> None:
    track = Track()
    for at_s, requests in ((0.0, 0.0), (2.0, 5.0)):
        track.add(poll(at_s, requests, q.ITL, kind), 1e9 + at_s)
    shares = derive_goodput(track, Goals(itl_s=1.0))
    filled = [name for name in ("itl_goal", "tpot_goal") if getattr(shares, name).count == 5.0]
    assert filled == [of]


def with_tpot(at_s: float, requests: float) -> EngineReading:
    """A poll of an engine with TTFT and TPOT between 0.5 s and 1 s."""
    between = observed(0.0, requests, requests)
    rank = RankReading("0", {}, {q.RUNNING: 1.0}, {q.TTFT: between, q.TPOT: between})
    return EngineReading("e", "http://h:1", EndpointState.OK, at_s, kind=EngineKind.VLLM, ranks=(rank,))


def poll(at_s: float, requests: float, of: str = q.TTFT, kind: EngineKind = EngineKind.VLLM) -> EngineReading:
    """A poll of an engine that has observed so many of a latency."""
    rank = RankReading("0", {}, {q.RUNNING: 1.0}, {of: observed(requests, requests, requests)})
    return EngineReading("e", "http://h:1", EndpointState.OK, at_s, kind=kind, ranks=(rank,))


def working_poll(at_s: float, *, done: float, running: float = 4.0) -> EngineReading:
    """A poll of an engine that has answered so many requests, each with 100 tokens."""
    counters = {q.DECODE_TOKENS: 100.0 * done, q.PREFILL_COMPUTED: 1000.0 * done}
    gauges = {q.RUNNING: running, q.WAITING: 0.0}
    rank = RankReading("0", counters, gauges, {q.TTFT: observed(done, done, done)})
    return EngineReading("e", "http://h:1", EndpointState.OK, at_s, kind=EngineKind.VLLM, ranks=(rank,))


def share_after(stall_s: int, goals: Goals, **later: float) -> WithinGoal:
    """The share within the TTFT goal, `stall_s` after an engine has answered its last request."""
    track = Track()
    for at in range(0, 60, 2):
        track.add(working_poll(float(at), done=float(at)), 1e9 + at)
    for at in range(60, 60 + stall_s + 1, 2):
        track.add(working_poll(float(at), done=60.0, **later), 1e9 + at)
    return derive_goodput(track, goals).ttft_goal


@each_row(("stall_s", "ttft_s", "known"), [(6, 1.0, True), (14, 1.0, False), (90, 1.0, False), (14, 30.0, True)])
def test_an_engine_without_tokens_keeps_no_goal_while_requests_run(stall_s: int, ttft_s: float, known: bool) -> None:
    """What ended before says nothing of what has run since; a first token may take as long as its goal."""
    share = share_after(stall_s, Goals(ttft_s=ttft_s))
    if known:
        assert share.low_ratio == 1.0
    else:
        assert isinstance(share.low_ratio, Missing)
        assert (share.low_ratio.reason, share.count) == (Reason.IDLE, 0.0)


def test_an_engine_without_requests_keeps_the_share_of_the_last_minutes() -> None:
    assert share_after(30, Goals(ttft_s=1.0), running=0.0).low_ratio == 1.0

"""Totals over restarts: tokens, requests and requests within goals by one rule, whatever clocks and pages do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pytest

from gpumon.efficiency.span import ThingSpan
from gpumon.efficiency.sums import GoodputGrowth
from gpumon.efficiency.tracks import Track
from gpumon.readings import quantities as q
from gpumon.readings.frame import EndpointState, EngineKind, EngineReading, HistogramReading, RankReading
from gpumon.readings.goals import Goals
from tests.each_row import each_row

INF = float("inf")
WALL_S = 1.9e9


class Poll(NamedTuple):
    """A poll: when it was made, how many requests the process has served, and when it started (0: it does not say)."""

    at_s: float
    served: float
    started_s: float
    lacks_some: bool = False
    """Whether the page lacks a third of its series."""


def reading(poll: Poll) -> EngineReading:
    served = poll.served * 2 / 3 if poll.lacks_some else poll.served
    observed = HistogramReading((1.0, INF), (served, served), served / 2, served)
    counters = {q.REQUESTS: served, q.DECODE_TOKENS: 100.0 * served}
    rank = RankReading("0", counters, {q.RUNNING: 1.0}, {q.TTFT: observed})
    started_wall_s = WALL_S + poll.started_s if poll.started_s else 0.0
    return EngineReading(
        "e", "http://h:1", EndpointState.OK, poll.at_s, kind=EngineKind.VLLM, ranks=(rank,),
        started_wall_s=started_wall_s, interval_s=2.0,
    )  # fmt: skip


def totals(polls: Sequence[Poll]) -> tuple[float, float, float]:
    """Requests, hundreds of tokens, and requests that are held against a goal; those of a comparison are the same."""
    track = Track()
    goodput = GoodputGrowth(Goals(ttft_s=1.0))
    span = ThingSpan("e", 1)
    counted = 0.0
    for poll in polls:
        track.add(reading(poll), WALL_S + poll.at_s)
        counted += goodput.take(reading(poll), WALL_S + poll.at_s).goals["ttft_goal"].count
        span.take_poll(0, reading(poll), WALL_S + poll.at_s)
    seconds = polls[-1].at_s - polls[0].at_s
    assert span.whole.rate(q.REQUESTS) == pytest.approx(track.totals[q.REQUESTS] / seconds)
    first_tokens = span.whole.histogram(q.TTFT)
    assert first_tokens is not None
    assert first_tokens.count == counted
    return track.totals[q.REQUESTS], track.totals[q.DECODE_TOKENS] / 100.0, counted


BEFORE = (Poll(0.0, 100.0, -500.0), Poll(2.0, 500.0, -500.0), Poll(4.0, 1000.0, -500.0))
"""900 requests while it was watched."""


@each_row(
    ("after", "whole"),
    [
        # The page says that it started after the last answer.
        ((Poll(40.0, 56.0, 20.0), Poll(42.0, 84.0, 20.0)), 984.0),
        # Its clock is behind: it says that it started before the other's last answer.
        ((Poll(40.0, 56.0, -10.0), Poll(42.0, 84.0, -10.0)), 984.0),
        # It has served more by now than the process before.
        ((Poll(400.0, 5600.0, 20.0), Poll(402.0, 5684.0, 20.0)), 6584.0),
        # The same process, one page of which lacks some series.
        ((Poll(6.0, 1100.0, -500.0, lacks_some=True), Poll(8.0, 1200.0, -500.0)), 1100.0),
        # A balancer's other server, which has served for long.
        ((Poll(6.0, 70_000.0, -9000.0), Poll(8.0, 70_010.0, -9000.0)), 910.0),
    ],
)
def test_tokens_requests_and_goodput_agree_over_what_comes_after(after: Sequence[Poll], whole: float) -> None:
    assert totals((*BEFORE, *after)) == (whole, whole, whole)


def test_a_page_without_a_start_time_began_anew_where_all_counters_fell_deep() -> None:
    before = [poll._replace(started_s=0.0) for poll in BEFORE]
    assert totals((*before, Poll(40.0, 56.0, 0.0), Poll(42.0, 84.0, 0.0))) == (984.0, 984.0, 984.0)
    assert totals((*before, Poll(6.0, 1100.0, 0.0, lacks_some=True), Poll(8.0, 1200.0, 0.0))) == (1100.0,) * 3


def test_what_an_engine_had_counted_before_the_first_look_is_in_no_total() -> None:
    assert totals((Poll(0.0, 100.0, -30.0), Poll(2.0, 500.0, -30.0))) == (400.0, 400.0, 400.0)

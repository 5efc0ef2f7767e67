"""What is sampled of a thing: an engine that stands as it was is as one whose every sample was written down."""

from __future__ import annotations

from itertools import product

import pytest

from gpumon.readings.missing import NOT_EXPOSED, Reading
from gpumon.readings.snapshot import Kind, Quantiles, TokensTotal
from gpumon.triage.samples import KEPT_S, MOST_KEPT_SAMPLES, Recent
from tests.each_row import each_row
from tests.triage.stage import engine

EVERY = 5
"""Ticks between two polls."""
LONG = 3 * MOST_KEPT_SAMPLES


def polled(at: int) -> tuple[Reading, float, float]:
    """Requests running, time to first token and tokens of the poll that a tick still shows."""
    poll = at // EVERY
    running: Reading = NOT_EXPOSED if poll % 7 == 3 else poll * 0.1 if poll % 3 else 0.3
    return running, 0.25 + poll % 2, 64.0 * (poll // 2)


def sampled(ticks: int) -> Recent:
    recent = Recent(Kind.ENGINE)
    for at in range(ticks):
        running, ttft, tokens = polled(at)
        shown = engine(running=running, ttft_s=Quantiles(mean=ttft), tokens_total=TokensTotal(decode=tokens)).shown
        recent.add(1000.0 + at, shown)
    return recent


def expected(ticks: int, seconds: float) -> list[tuple[float, float]]:
    """Every sample of the requests running in the last seconds, worked out anew."""
    of = range(max(0, ticks - 1 - int(seconds)), ticks)
    return [(1000.0 + at, now) for at in of if isinstance(now := polled(at)[0], float)]


@each_row(("ticks", "seconds"), [*product((1, 4, 6, 17, 18, 90, LONG + 3), (1.0, 10.0, 60.0, KEPT_S))])
def test_what_changes_at_polls_only_is_there_at_every_tick(ticks: int, seconds: float) -> None:
    recent, known = sampled(ticks), expected(ticks, seconds)
    values = [value for _, value in known]
    assert recent.values("running", seconds) == known
    assert recent.mean("running", seconds) == (sum(values) / len(values) if values else None)


@each_row(("from_s", "seconds"), [(1030.0, 59.0), (1060.0, 29.0), (1085.0, 10.0), (0.0, 60.0)])
def test_windows_since_a_time_reach_back_to_it_or_ten_seconds(from_s: float, seconds: float) -> None:
    """90 ticks up to 1089: the last minute as far as it is since then."""
    recent = sampled(90).since(from_s)
    assert recent.values("running", 60.0) == expected(90, seconds)


def test_a_field_that_is_not_sampled_is_refused_with_the_table_of_those_that_are() -> None:
    with pytest.raises(KeyError, match="fan_ratio is not sampled: SAMPLED"):
        Recent(Kind.GPU).last("fan_ratio")

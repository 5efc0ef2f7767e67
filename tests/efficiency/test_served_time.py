"""Seconds that an engine served between two answers: one rule of gauges and counters for use, peaks and unused cost."""

from __future__ import annotations

import math

import pytest

from gpumon.efficiency.served_time import Served, served_between
from gpumon.readings import quantities as q
from gpumon.readings.frame import EngineReading, HistogramReading
from tests.each_row import each_row
from tests.efficiency.polls import engine, rank
from tests.records import replace

SECONDS = 60.0


def answer(running: float | None, tokens: float | None, ended: tuple[float, float] | None = None) -> EngineReading:
    """An answer with requests that run, tokens that were counted, and number and seconds of requests that ended."""
    counters = {} if tokens is None else {q.DECODE_TOKENS: tokens}
    gauges = {} if running is None else {q.RUNNING: running}
    histograms = {}
    if ended is not None:
        count, seconds = ended
        histograms[q.E2E] = HistogramReading((10.0, math.inf), (count, count), seconds, count)
    return replace(engine(0.0, counters), ranks=(replace(rank(counters, gauges), histograms=histograms),))


@each_row(
    ("before", "now", "served"),
    [
        # Nothing runs and nothing was counted.
        (answer(0.0, 5.0), answer(0.0, 5.0), Served(0.0, has_counted=False)),
        # A request runs all the while; it is counted when it ends.
        (answer(1.0, 5.0), answer(2.0, 5.0), Served(60.0, has_counted=False)),
        # One has begun since, one was given up without a token.
        (answer(0.0, 5.0), answer(1.0, 5.0), Served(30.0, has_counted=False)),
        (answer(1.0, 5.0), answer(0.0, 5.0), Served(0.0, has_counted=False)),
        # Nothing is counted at all: the gauges alone tell.
        (answer(1.0, None), answer(0.0, None), Served(30.0, has_counted=False)),
        # Requests that no gauge met: all of the time, or the time that they took.
        (answer(0.0, 5.0), answer(0.0, 9.0), Served(60.0, has_counted=True)),
        (answer(0.0, 5.0, (1.0, 3.0)), answer(0.0, 9.0, (3.0, 5.5)), Served(2.5, has_counted=True)),
        (answer(0.0, 5.0, (1.0, 3.0)), answer(0.0, 9.0, (99.0, 500.0)), Served(60.0, has_counted=True)),
        # A long request has begun: its time is counted when it ends.
        (answer(0.0, 5.0, (1.0, 3.0)), answer(1.0, 9.0, (1.0, 3.0)), Served(30.0, has_counted=True)),
        # The process began anew: what it has served since is not known.
        (answer(0.0, 5000.0), answer(0.0, 10.0), Served(0.0, has_counted=False)),
    ],
)
def test_time_that_was_served(before: EngineReading, now: EngineReading, served: Served) -> None:
    told = served_between(before, now, SECONDS)
    assert told.has_counted is served.has_counted
    assert told.seconds == pytest.approx(served.seconds)

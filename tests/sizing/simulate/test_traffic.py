"""Arrivals and lengths from the counters and histograms of engines."""

from __future__ import annotations

import math
from random import Random
from statistics import mean

import pytest

from gpumon.readings import quantities as q
from gpumon.readings.frame import EndpointState, EngineReading, HistogramReading, RankReading
from gpumon.sizing.simulate.requests import paced
from gpumon.sizing.simulate.traffic import TrafficRecorder

BOUNDS = (100.0, 1000.0, math.inf)


def lengths(*counts: float, mean_tokens: float) -> HistogramReading:
    total = sum(counts)
    running = [sum(counts[: at + 1]) for at in range(len(counts))]
    return HistogramReading(BOUNDS, tuple(running), total * mean_tokens, total)


def engine(ended: float, running: float, **histograms: HistogramReading) -> EngineReading:
    counters = {q.REQUESTS: ended, q.PROMPT_TOKENS: 300.0 * ended, q.DECODE_TOKENS: 20.0 * ended}
    counters |= {q.PREFILL_CACHED: 75.0 * ended, q.PREFILL_COMPUTED: 225.0 * ended}
    gauges = {q.RUNNING: running, q.WAITING: 0.0}
    named = {q.PROMPT_LENGTH: histograms.get("prompt"), q.OUTPUT_LENGTH: histograms.get("answer")}
    rank = RankReading("0", counters, gauges, {name: one for name, one in named.items() if one is not None})
    return EngineReading("e", "http://a", EndpointState.OK, 0.0, model="m", ranks=(rank,))


def test_arrivals_are_those_that_ended_and_those_that_stayed() -> None:
    seen = TrafficRecorder()
    for second in range(101):
        busy = second <= 50
        ended = 2.0 * min(second, 50)
        seen.take(1000.0 + second, [engine(ended, 8.0 if busy else 0.0)])
    found = seen.by_model()["m"]
    assert found.requests == pytest.approx(100.0)
    assert [round(pace.rate, 2) for pace in found.paces[:5]] == [2.0] * 5
    assert sum(pace.rate for pace in found.paces[6:]) == 0.0
    assert found.hit_ratio == pytest.approx(0.25)
    shape = found.shape(math.inf)
    assert (shape.prompt(Random(1)), shape.answer(Random(1))) == (300.0, 20.0)
    assert "their means alone" in found.basis


def test_lengths_come_from_the_growth_of_the_histograms() -> None:
    seen = TrafficRecorder()
    seen.take(
        0.0, [engine(50.0, 0.0, prompt=lengths(50, 0, 0, mean_tokens=10), answer=lengths(50, 0, 0, mean_tokens=10))]
    )
    grown = lengths(50 + 25, 75, 0, mean_tokens=(50 * 10 + 100 * 400) / 150)
    seen.take(10.0, [engine(150.0, 0.0, prompt=grown, answer=lengths(150, 0, 0, mean_tokens=30))])
    found = seen.by_model()["m"]
    random = Random(1)
    shape = found.shape(math.inf)
    prompts = [shape.prompt(random) for _ in range(5000)]
    assert mean(prompts) == pytest.approx(400.0, rel=0.05)
    assert max(prompts) > 2 * mean(prompts) * 0.8
    assert mean(shape.answer(random) for _ in range(5000)) == pytest.approx((150 * 30 - 50 * 10) / 100, rel=0.05)
    assert "histograms" in found.basis


def test_a_restart_is_no_negative_arrival() -> None:
    seen = TrafficRecorder()
    for at, ended in enumerate((100.0, 110.0, 3.0, 13.0)):
        seen.take(10.0 * at, [engine(ended, 0.0)])
    assert seen.by_model()["m"].requests == pytest.approx(20.0)


def test_of_an_idle_engine_there_is_nothing() -> None:
    seen = TrafficRecorder()
    seen.take(0.0, [engine(5.0, 0.0)])
    seen.take(10.0, [engine(5.0, 0.0)])
    assert seen.by_model() == {}


def test_what_was_seen_can_be_played() -> None:
    seen = TrafficRecorder()
    for second in range(301):
        seen.take(float(second), [engine(3.0 * second, 4.0)])
    found = seen.by_model()["m"]
    requests = paced(found.paces, found.shape(math.inf), 1)
    assert len(requests) == pytest.approx(900, rel=0.15)


def test_the_busiest_stretch() -> None:
    seen = TrafficRecorder()
    ended = 0.0
    for second in range(1201):
        seen.take(float(second), [engine(ended, 4.0)])
        ended += 5.0 if 400 <= second < 500 else 1.0
    busiest = seen.by_model()["m"].busiest(100.0)
    assert busiest.seconds == pytest.approx(100.0)
    assert busiest.requests == pytest.approx(500.0, rel=0.02)
    assert seen.by_model()["m"].busiest(5000.0).requests == pytest.approx(1600.0)


def test_requests_that_pile_up_have_arrived() -> None:
    seen = TrafficRecorder()
    for at_s, ended, running in ((0.0, 0.0, 0.0), (10.0, 5.0, 45.0), (20.0, 50.0, 0.0)):
        seen.take(at_s, [engine(ended, running)])
    assert [pace.rate for pace in seen.by_model()["m"].paces] == [5.0, 0.0]


def test_what_arrived_while_nobody_looked_is_no_burst() -> None:
    seen = TrafficRecorder()
    for at_s, ended in ((0.0, 0.0), (10.0, 20.0), (110.0, 220.0), (120.0, 240.0)):
        seen.take(at_s, [engine(ended, 0.0)])
    assert [pace.rate for pace in seen.by_model()["m"].paces] == pytest.approx([2.0] * 12)


def test_lengths_without_buckets_have_their_mean() -> None:
    """A summary, and a fleet's histogram of which not all buckets are asked for, have sum and number alone."""
    seen = TrafficRecorder()
    for at_s, ended in ((0.0, 0.0), (10.0, 100.0)):
        answer = HistogramReading((math.inf,), (ended,), 37.0 * ended, ended)
        prompt = lengths(ended, 0, 0, mean_tokens=50)
        seen.take(at_s, [engine(ended, 0.0, prompt=prompt, answer=answer)])
    found = seen.by_model()["m"]
    assert found.shape(math.inf).answer(Random(1)) == 37.0
    assert "means alone" in found.basis


def test_a_clock_that_jumped_by_decades_is_no_time_of_nothing() -> None:
    seen = TrafficRecorder()
    for second in range(101):
        seen.take(1000.0 + second, [engine(2.0 * second, 0.0)])
    for second in range(101):
        seen.take(2e9 + second, [engine(500.0 + 2.0 * second, 0.0)])
    found = seen.by_model()["m"]
    assert len(found.paces) <= 22
    assert found.requests == pytest.approx(400.0)

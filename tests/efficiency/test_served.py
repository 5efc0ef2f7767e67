"""Outcomes, lengths, phases, accepted positions and cached tokens of requests; what an engine never told stays out."""

from __future__ import annotations

import pytest

from gpumon.efficiency.served import served_figures
from gpumon.efficiency.tracks import Track
from gpumon.readings import quantities as q
from gpumon.readings.frame import EndpointState, EngineReading, HistogramReading, RankReading
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reason
from gpumon.readings.snapshot import CachedBy, Lengths, Phases, Served

INF = float("inf")
Histograms = dict[str, HistogramReading]


def poll(
    at_s: float, counters: dict[str, float], histograms: Histograms | None = None, running: float = 1.0
) -> EngineReading:
    """A poll of an engine with one rank."""
    rank = RankReading("0", counters, {q.RUNNING: running, q.WAITING: 2.0 * running}, histograms or {})
    return EngineReading("e", "http://h:1", EndpointState.OK, at_s, ranks=(rank,))


def after(*polls: EngineReading) -> Served:
    """What is shown after these polls."""
    track = Track()
    for reading in polls:
        track.add(reading, 1e9 + reading.monotonic_s)
    return served_figures(polls[-1], track)


def lengths(*counts: float) -> HistogramReading:
    """Lengths up to 100, up to 1000, and in all; each of 50 tokens."""
    return HistogramReading((100.0, 1000.0, INF), counts, 50.0 * counts[-1], counts[-1])


def times(total_s: float, count: float) -> HistogramReading:
    """A histogram of which only sum and count matter."""
    return HistogramReading((1.0, INF), (0.0, count), total_s, count)


def test_outcomes_are_counted_in_the_last_minutes_and_since_the_start() -> None:
    before = {q.REQUESTS: 100.0, q.STOPPED: 70.0, q.CUT: 20.0, q.ABORTS: 10.0}
    now = {q.REQUESTS: 110.0, q.STOPPED: 76.0, q.CUT: 23.0, q.ABORTS: 11.0}
    shown = after(poll(0.0, before), poll(4.0, now))
    recent = shown.outcomes
    assert (recent.ended, recent.stopped, recent.cut, recent.aborted) == pytest.approx((10.0, 6.0, 3.0, 1.0))
    ever = shown.outcomes_since_start
    assert (ever.ended, ever.stopped, ever.cut, ever.aborted) == (110.0, 76.0, 23.0, 11.0)
    assert (recent.rejected, ever.rejected) == (NOT_EXPOSED, NOT_EXPOSED), "not counted is no 0"


def test_lengths_are_of_the_last_minutes_and_the_longest_of_all_time() -> None:
    first = {q.PROMPT_LENGTH: lengths(0.0, 5.0, 5.0)}
    then = {q.PROMPT_LENGTH: lengths(40.0, 45.0, 45.0)}
    of = after(poll(0.0, {}, first), poll(4.0, {}, then)).prompt_tokens
    assert of.mean == 50.0
    assert (of.p95_low, of.p95_high) == (0.0, 100.0)
    assert (of.longest_low, of.longest_high) == (100.0, 1000.0)


def test_the_longest_in_the_last_bucket_has_no_upper_bound_and_few_requests_no_quantile() -> None:
    then = {q.PROMPT_LENGTH: lengths(1.0, 1.0, 2.0)}
    of = after(poll(0.0, {}, {q.PROMPT_LENGTH: lengths(0.0, 0.0, 0.0)}), poll(4.0, {}, then)).prompt_tokens
    assert (of.longest_low, of.longest_high) == (1000.0, Missing(Reason.INVALID))
    assert of.p95 == Missing(Reason.FEW)


def test_where_nothing_ended_there_is_no_length() -> None:
    same = {q.PROMPT_LENGTH: lengths(4.0, 4.0, 4.0)}
    of = after(poll(0.0, {}, same), poll(4.0, {}, same)).prompt_tokens
    assert (of.mean, of.longest_high) == (Missing(Reason.IDLE), 100.0)
    assert after(poll(0.0, {}), poll(4.0, {})).answer_tokens == Lengths()


def test_phases_add_up_and_what_is_left_is_named() -> None:
    names = (q.E2E, q.QUEUE, q.PREFILL_TIME)
    first = {name: times(0.0, 0.0) for name in names}
    then = {q.E2E: times(100.0, 10.0), q.QUEUE: times(30.0, 10.0), q.PREFILL_TIME: times(5.0, 10.0)}
    counters = {q.DECODE_SECONDS: 60.0, q.TRANSFER_SECONDS: 20.0}
    of = after(poll(0.0, dict.fromkeys(counters, 0.0), first), poll(4.0, counters, then)).phases
    assert of == Phases(10.0, 1.0, 2.0, 0.5, 6.0, 0.5)


def test_phases_between_latencies_where_an_engine_times_none() -> None:
    names = (q.E2E, q.QUEUE, q.TTFT)
    first = {name: times(0.0, 0.0) for name in names}
    then = {q.E2E: times(100.0, 10.0), q.QUEUE: times(30.0, 10.0), q.TTFT: times(40.0, 10.0)}
    of = after(poll(0.0, {}, first), poll(4.0, {}, then)).phases
    assert of == Phases(10.0, 3.0, NOT_EXPOSED, 1.0, 6.0, 0.0)
    assert after(poll(0.0, {}), poll(4.0, {})).phases == Phases()


def test_a_queue_of_requests_that_still_run_is_no_longer_than_those_that_ended() -> None:
    """SGLang observes the queue time at the first schedule: of a long queue before the requests in it end."""
    names = (q.E2E, q.QUEUE, q.TTFT)
    first = {name: times(0.0, 0.0) for name in names}
    then = {q.E2E: times(50.0, 10.0), q.QUEUE: times(3000.0, 100.0), q.TTFT: times(20.0, 10.0)}
    of = after(poll(0.0, {}, first), poll(4.0, {}, then)).phases
    assert of == Phases(5.0, 2.0, NOT_EXPOSED, 0.0, 3.0, 0.0)
    del first[q.TTFT]
    del then[q.TTFT]
    of = after(poll(0.0, {}, first), poll(4.0, {}, then)).phases
    assert of == Phases(5.0, 5.0, NOT_EXPOSED, NOT_EXPOSED, NOT_EXPOSED, 0.0)


def test_without_a_queue_time_nobody_knows_how_long_the_prefill_was() -> None:
    names = (q.E2E, q.TTFT)
    first = {name: times(0.0, 0.0) for name in names}
    then = {q.E2E: times(100.0, 10.0), q.TTFT: times(40.0, 10.0)}
    of = after(poll(0.0, {}, first), poll(4.0, {}, then)).phases
    assert of == Phases(10.0, NOT_EXPOSED, NOT_EXPOSED, NOT_EXPOSED, 6.0, 4.0)


def test_accepted_tokens_by_position() -> None:
    accepted = dict(zip(q.ACCEPTED_AT, (80.0, 40.0), strict=False))
    first = dict.fromkeys((q.DRAFTS, *accepted), 0.0)
    assert after(poll(0.0, first), poll(4.0, {q.DRAFTS: 100.0, **accepted})).accepted_by_position == (0.8, 0.4)
    assert after(poll(0.0, first), poll(4.0, first)).accepted_by_position == ()


def test_cached_tokens_by_tier() -> None:
    first = {q.CACHED_DEVICE: 0.0, q.CACHED_HOST: 0.0}
    of = after(poll(0.0, first), poll(4.0, {q.CACHED_DEVICE: 30.0, q.CACHED_HOST: 10.0})).cached_by
    assert of == CachedBy(device_ratio=0.75, host_ratio=0.25)
    assert after(poll(0.0, first), poll(4.0, first)).cached_by.device_ratio == Missing(Reason.IDLE)


def test_peaks_and_busy_share_are_of_the_time_that_was_seen() -> None:
    polls = [
        poll(0.0, {q.REQUESTS: 5.0}, running=0.0),
        poll(2.0, {q.REQUESTS: 5.0}, running=7.0),
        poll(4.0, {q.REQUESTS: 8.0}, running=3.0),
        poll(60.0, {q.REQUESTS: 9.0}, running=1.0),
    ]
    seen = after(*polls).seen
    assert (seen.peak_running, seen.peak_waiting, seen.requests) == (7.0, 14.0, 4.0)
    assert (seen.seconds, seen.busy_ratio) == (4.0, 0.75), "nobody looked for a minute"
    first = after(polls[0]).seen
    assert (first.seconds, first.busy_ratio) == (Missing(Reason.WARMING_UP), Missing(Reason.WARMING_UP))

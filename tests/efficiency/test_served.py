"""Outcomes, lengths, phases, accepted positions and cached tokens of requests; what an engine never told stays out."""

from __future__ import annotations

import pytest

from gpumon.efficiency.served import aborted_tokens_mean, served_figures
from gpumon.efficiency.tracks import Track
from gpumon.readings import quantities as q
from gpumon.readings.frame import EndpointState, EngineReading, HistogramReading, RankReading
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading, Reason
from gpumon.readings.snapshot import CachedBy, Lengths, Phases, Served
from gpumon.sources.engines.vllm import VllmAdapter
from gpumon.sources.exposition import Scanner
from tests.fakes.engine import Capture
from tests.records import replace

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


def first_tokens(count: float) -> Histograms:
    return {q.TTFT: times(0.1 * count, count)}


def test_aborts_are_midway_as_far_as_first_tokens_neither_end_nor_run() -> None:
    """26 first tokens, 18 answers, 3 more that run: five requests had a token and were given up."""
    before = {q.REQUESTS: 100.0, q.STOPPED: 70.0, q.CUT: 20.0, q.ABORTS: 10.0, q.FAILURES: 0.0}
    now = {q.REQUESTS: 127.0, q.STOPPED: 84.0, q.CUT: 24.0, q.ABORTS: 19.0, q.FAILURES: 0.0}
    shown = after(poll(0.0, before, first_tokens(100.0), 4.0), poll(4.0, now, first_tokens(126.0), 7.0)).outcomes
    assert (shown.aborted, shown.aborted_midway) == pytest.approx((9.0, 5.0))
    own_reason = {**now, q.STOPPED: 80.0}
    shown = after(poll(0.0, before, first_tokens(100.0), 4.0), poll(4.0, own_reason, first_tokens(126.0), 7.0)).outcomes
    assert shown.aborted_midway == pytest.approx(5.0), "four ended for a reason of the engine's own"
    failed = after(poll(0.0, before, first_tokens(100.0)), poll(4.0, {**now, q.FAILURES: 9.1}, first_tokens(126.0)))
    assert isinstance(failed.outcomes.aborted_midway, Missing), "failed ones may have had a token, or not"
    assert after(poll(0.0, before), poll(4.0, now)).outcomes.aborted_midway == NOT_EXPOSED
    assert after(poll(0.0, before), poll(4.0, now)).outcomes_since_start.aborted_midway == NOT_EXPOSED


def given_up(running: float, lengths_of: float = 18.0) -> Reading:
    """18 answers of 50 tokens, and 40 that were given up midway, of 5,000 tokens in all."""
    counted = {q.STOPPED: 0.0, q.CUT: 0.0, q.ABORTS: 0.0, q.REQUESTS: 0.0, q.DECODE_TOKENS: 0.0}
    now = {q.STOPPED: 18.0, q.CUT: 0.0, q.ABORTS: 40.0, q.REQUESTS: 58.0, q.DECODE_TOKENS: 5900.0}
    began = {**first_tokens(0.0), q.OUTPUT_LENGTH: lengths(0.0, 0.0, 0.0)}
    ended = {**first_tokens(58.0), q.OUTPUT_LENGTH: lengths(lengths_of, lengths_of, lengths_of)}
    track = Track()
    for reading in (poll(0.0, counted, began, running), poll(4.0, now, ended, running)):
        track.add(reading, 1e9 + reading.monotonic_s)
    return aborted_tokens_mean(track)


def test_tokens_of_answers_that_were_given_up_are_those_of_no_other() -> None:
    assert given_up(4.0) == pytest.approx(125.0)
    assert given_up(30.0) == Missing(Reason.FEW), "what runs may have got them"
    assert given_up(4.0, lengths_of=58.0) == NOT_EXPOSED, "their lengths are among the others"


def test_a_recorded_engine_has_as_many_aborts_midway_and_tokens_of_them_as_its_clients() -> None:
    """A vLLM 0.32 under load whose clients cut one answer in three: it counts none of them itself."""
    capture = Capture("vllm-mfu-queue-prefix-abort")
    adapter = VllmAdapter()
    scanner = Scanner(adapter.wanted_names)
    track = Track()
    for scrape in capture.scrapes:
        if scrape.status == 200:
            page = adapter.read(scanner.scan(scrape.body))
            polled = {"state": EndpointState.OK, "monotonic_s": 100.0 + scrape.t, "interval_s": 1.0}
            track.add(replace(page, **polled), 1e9 + scrape.t)
    outcomes = served_figures(page, track).outcomes
    cut = [request for request in capture.truth if request.get("aborted_by_client")]
    assert len(cut) == outcomes.aborted == outcomes.aborted_midway == 12.0
    assert aborted_tokens_mean(track) == pytest.approx(sum(request["output_tokens"] for request in cut) / 12.0)


def test_aborts_are_midway_as_far_as_first_tokens_have_no_whole_answer_where_no_reasons_are_counted() -> None:
    """SGLang: whole answers are those with a mean time per token; one of a single token has none."""
    before = {q.REQUESTS: 100.0, q.WHOLE_ANSWERS: 90.0, q.ABORTS: 10.0}
    now = {q.REQUESTS: 120.0, q.WHOLE_ANSWERS: 104.0, q.ABORTS: 16.0}
    shown = after(poll(0.0, before, first_tokens(100.0)), poll(4.0, now, first_tokens(120.0))).outcomes
    assert shown.aborted_midway == pytest.approx(6.0)
    labels = {**now, q.WHOLE_ANSWERS: 90.0}
    shown = after(poll(0.0, before, first_tokens(100.0)), poll(4.0, labels, first_tokens(114.0))).outcomes
    assert shown.aborted_midway == 0.0, "14 answers of one token, 6 requests without any"


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

"""Requests of an engine's users: outcomes, lengths and phases of requests, and where cached tokens came from."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, TypeVar

import msgspec

from gpumon.efficiency.quantiles import ENOUGH, histogram_quantile, merge_common
from gpumon.efficiency.ratio import minus
from gpumon.efficiency.tracks import Track
from gpumon.readings import quantities as q
from gpumon.readings.frame import EngineReading, HistogramReading
from gpumon.readings.missing import NO_UPPER_BOUND, NOT_EXPOSED, WARMING_UP, Missing, Reading, Reason, number
from gpumon.readings.snapshot import CachedBy, Group, Lengths, Outcomes, Phases, Seen, Served

GroupT = TypeVar("GroupT", bound=Group)

_IDLE: Final = Missing(Reason.IDLE)
_ROUNDING: Final = 1e-6
"""Share of a request's time below which what is left of it is the rounding of sums."""
_OUTCOME_COUNTERS: Final[Mapping[str, str]] = {
    "ended": q.REQUESTS,
    "stopped": q.STOPPED,
    "cut": q.CUT,
    "aborted": q.ABORTS,
    "failed": q.FAILURES,
    "rejected": q.REJECTIONS,
    "refused": q.REFUSED,
    "corrupted": q.CORRUPTED,
}
"""Field of `Outcomes` -> its counter."""
_SURE_TIMES: Final = 3.0
"""Times what the running requests may have generated, from which on what was given up is told apart from it."""
_UNTOLD: Final = Missing(Reason.INVALID, "requests that failed hide how many were given up after their first token")
_TIER_COUNTERS: Final[Mapping[str, str]] = {
    "device_ratio": q.CACHED_DEVICE,
    "host_ratio": q.CACHED_HOST,
    "disk_ratio": q.CACHED_DISK,
    "peer_ratio": q.CACHED_PEER,
    "external_ratio": q.CACHED_EXTERNAL,
}
"""Field of `CachedBy` -> its counter."""


def served_figures(reading: EngineReading, track: Track) -> Served:
    """Figures of the requests served in the last minutes, and since the start as far as counters and buckets tell."""
    counts = {field: _minutes_increase(track, counter) for field, counter in _OUTCOME_COUNTERS.items()}
    return Served(
        outcomes=Outcomes(**counts, aborted_midway=_aborted_midway(track, counts)),
        outcomes_since_start=_outcomes_since_start(track),
        prompt_tokens=_lengths(reading, track, q.PROMPT_LENGTH),
        answer_tokens=_lengths(reading, track, q.OUTPUT_LENGTH),
        phases=_phases(track),
        accepted_by_position=_accepted_by_position(track),
        cached_by=_cached_by(track),
        seen=seen_load(track),
    )


def no_served(why: Missing) -> Served:
    """Every figure missing for one reason."""
    return Served(
        outcomes=all_missing(Outcomes, why),
        outcomes_since_start=all_missing(Outcomes, why),
        prompt_tokens=all_missing(Lengths, why),
        answer_tokens=all_missing(Lengths, why),
        phases=all_missing(Phases, why),
        cached_by=all_missing(CachedBy, why),
        seen=all_missing(Seen, why),
    )


@lru_cache(maxsize=256)
def all_missing(kind: type[GroupT], why: Missing) -> GroupT:
    """A group with one reason for each reading."""
    return kind(**dict.fromkeys(kind.__struct_fields__, why))


def seen_load(track: Track) -> Seen:
    """Requests, peaks and busy share since gpumon began to poll the engine."""
    load = track.load_so_far
    seconds: Reading = WARMING_UP
    busy: Reading = WARMING_UP
    if load.seconds > 0.0:
        seconds = load.seconds
        busy = load.busy_s / load.seconds
    return Seen(
        seconds=seconds,
        requests=track.totals.get(q.REQUESTS, NOT_EXPOSED),
        peak_running=load.peak_running,
        peak_waiting=load.peak_waiting,
        busy_ratio=busy,
    )


def _minutes_increase(track: Track, counter: str) -> Reading:
    """Increase of a counter in the last minutes."""
    increase = track.minutes.increase(counter)
    return increase if isinstance(increase, Missing) else max(0.0, increase)


def _aborted_midway(track: Track, counts: Mapping[str, Reading]) -> Reading:
    """Requests of the last minutes that were given up after their first token.

    A request that got its first token has come to the end of its answer, was given up, or still runs. Those that run
    and have no token yet are few beside the others, and a request that failed may have had one or not.
    """
    aborted = counts["aborted"]
    first_tokens = track.minutes.sum_and_count(q.TTFT)
    answered = _answered(track, counts)
    if isinstance(aborted, Missing) or first_tokens is None or answered is None:
        return NOT_EXPOSED
    if (number(counts["failed"]) or 0.0) > aborted:
        return _UNTOLD
    began_running = track.minutes.points[0].running() or 0.0
    ended_running = track.minutes.points[-1].running() or 0.0
    midway = first_tokens.observations - answered - (ended_running - began_running)
    return min(aborted, max(0.0, midway))


def aborted_tokens_mean(track: Track) -> Reading:
    """Mean tokens of the answers of the last minutes that were given up midway.

    They are what was generated and belongs to no answer that ended, where the lengths of those that were given up are
    not among the lengths. What the running requests have got by now is not known: only where that cannot be a third of
    it, the mean is told.
    """
    counts = {field: _minutes_increase(track, counter) for field, counter in _OUTCOME_COUNTERS.items()}
    midway = number(_aborted_midway(track, counts))
    answered = _answered(track, counts)
    generated = number(_minutes_increase(track, q.DECODE_TOKENS))
    lengths = track.minutes.sum_and_count(q.OUTPUT_LENGTH)
    if midway is None or answered is None or generated is None or lengths is None:
        return NOT_EXPOSED
    if lengths.observations > answered + 0.5:
        return NOT_EXPOSED
    if midway < 1.0:
        return _IDLE
    mean = (generated - lengths.total) / midway
    longest = max(mean, number(lengths.mean) or 0.0)
    running = max(track.minutes.samples(q.RUNNING), default=0.0)
    if mean <= 0.0 or mean * midway < _SURE_TIMES * running * longest:
        return Missing(Reason.FEW)
    return mean


def _answered(track: Track, counts: Mapping[str, Reading]) -> float | None:
    """Answers of the last minutes that came to their end; None where that is not told.

    By the reasons of ends, or those of several tokens where no reason is counted; at least all that ended and were
    neither given up nor failed: some engines count a reason of their own, and answers of one token.
    """
    stopped = number(counts["stopped"])
    cut = number(counts["cut"])
    ended = number(counts["ended"])
    if stopped is not None and cut is not None:
        told: float | None = stopped + cut
    else:
        told = number(_minutes_increase(track, q.WHOLE_ANSWERS))
    if told is None or ended is None:
        return None
    return max(told, ended - (number(counts["aborted"]) or 0.0) - (number(counts["failed"]) or 0.0))


def _outcomes_since_start(track: Track) -> Outcomes:
    """The newest values of the counters, which began with the engine's process."""
    if track.several_servers:
        return Outcomes()
    counts: dict[str, Reading] = {}
    for field, counter in _OUTCOME_COUNTERS.items():
        counted = track.newest_count(counter)
        if counted is not None:
            counts[field] = float(counted)
    return Outcomes(**counts)


def _lengths(reading: EngineReading, track: Track, quantity: str) -> Lengths:
    """Lengths of the requests of the last minutes, and the longest since the engine's process started."""
    if not track.has_histogram(quantity):
        return Lengths()
    low, high = _longest_bounds(reading, quantity)
    observed = track.minutes.histogram(quantity)
    if observed is None or observed.count <= 0.0:
        why = track.why_no_rate_yet if observed is None else _IDLE
        lengths: Lengths = all_missing(Lengths, why)
        return msgspec.structs.replace(lengths, longest_low=low, longest_high=high)
    mean = observed.sum / observed.count
    if len(observed.bounds) < 2:
        return Lengths(mean=mean)
    if observed.count < ENOUGH:
        few: Lengths = all_missing(Lengths, Missing(Reason.FEW))
        return msgspec.structs.replace(few, mean=mean, longest_low=low, longest_high=high)
    p50, p50_low, p50_high = histogram_quantile(observed, 0.5)
    p95, p95_low, p95_high = histogram_quantile(observed, 0.95)
    return Lengths(
        mean=mean,
        p50=p50,
        p95=p95,
        p50_low=p50_low,
        p50_high=p50_high,
        p95_low=p95_low,
        p95_high=p95_high,
        longest_low=low,
        longest_high=high,
    )


def _longest_bounds(reading: EngineReading, quantity: str) -> tuple[Reading, Reading]:
    """Bounds of the last bucket with an observation since the engine's process started."""
    histogram = merge_common([rank.histograms[quantity] for rank in reading.ranks if quantity in rank.histograms])
    if histogram is None or len(histogram.bounds) < 2:
        return NOT_EXPOSED, NOT_EXPOSED
    if histogram.counts[-1] <= 0.0:
        return _IDLE, _IDLE
    bucket = _last_filled(histogram)
    low = histogram.bounds[bucket - 1] if bucket else 0.0
    if bucket == len(histogram.bounds) - 1:
        return low, NO_UPPER_BOUND
    return low, histogram.bounds[bucket]


def _last_filled(histogram: HistogramReading) -> int:
    """Index of the last bucket with an observation."""
    bucket = len(histogram.counts) - 1
    while bucket and histogram.counts[bucket - 1] >= histogram.counts[-1]:
        bucket -= 1
    return bucket


def _phases(track: Track) -> Phases:
    """Mean phases of the requests that ended in the last minutes.

    Where the engine does not time them, they are what lies between its latencies: the first tokens of a while are about
    those of its ended requests.
    """
    minutes = track.minutes
    e2e = minutes.mean(q.E2E)
    ended = minutes.sum_and_count(q.E2E)
    if isinstance(e2e, Missing) or ended is None:
        return Phases(e2e_s=e2e)
    queue = _capped_at(minutes.mean(q.QUEUE), e2e)
    prefill = minutes.mean(q.PREFILL_TIME)
    decode = minutes.mean(q.DECODE_TIME)
    if isinstance(decode, Missing):
        decode = _per_request(_minutes_increase(track, q.DECODE_SECONDS), ended.observations)
    if isinstance(prefill, Missing) and isinstance(decode, Missing):
        ttft_s = _capped_at(minutes.mean(q.TTFT), e2e)
        queue = _capped_at(queue, ttft_s)
        prefill = minus(ttft_s, queue)
        decode = minus(e2e, ttft_s)
    transfer = _per_request(_minutes_increase(track, q.TRANSFER_SECONDS), ended.observations)
    if not isinstance(transfer, Missing) and not isinstance(queue, Missing):
        # A request waits for its KV cache before it is scheduled; several transfers at once take no longer than it did.
        transfer = min(transfer, queue)
        queue -= transfer
    known_s = sum(number(part) or 0.0 for part in (queue, transfer, prefill, decode))
    rest_s = e2e - known_s
    if rest_s < _ROUNDING * e2e:
        rest_s = 0.0
    return Phases(e2e_s=e2e, queue_s=queue, transfer_s=transfer, prefill_s=prefill, decode_s=decode, rest_s=rest_s)


def _per_request(seconds: Reading, requests: float) -> Reading:
    """Mean seconds of a request."""
    if isinstance(seconds, Missing):
        return seconds
    if requests <= 0.0:
        return _IDLE
    return seconds / requests


def _capped_at(part: Reading, whole: Reading) -> Reading:
    """A mean phase, at most as long as what it is a part of: engines that observe it at its own end count requests that
    still run, too."""
    if isinstance(part, Missing) or isinstance(whole, Missing):
        return part
    return min(part, whole)


def _accepted_by_position(track: Track) -> tuple[float, ...]:
    """Share of the drafts whose token at each position was accepted; empty where none was made."""
    drafts = _minutes_increase(track, q.DRAFTS)
    if isinstance(drafts, Missing) or drafts <= 0.0:
        return ()
    shares = []
    for quantity in q.ACCEPTED_AT:
        accepted = _minutes_increase(track, quantity)
        if isinstance(accepted, Missing):
            break
        shares.append(min(1.0, accepted / drafts))
    return tuple(shares)


def _cached_by(track: Track) -> CachedBy:
    """Shares of the cached prompt tokens by where they came from."""
    tokens = {field: _minutes_increase(track, counter) for field, counter in _TIER_COUNTERS.items()}
    all_tokens = sum(number(count) or 0.0 for count in tokens.values())
    shares: dict[str, Reading] = {}
    for field, count in tokens.items():
        if isinstance(count, Missing):
            shares[field] = count
        elif all_tokens > 0.0:
            shares[field] = count / all_tokens
        else:
            shares[field] = _IDLE
    return CachedBy(**shares)

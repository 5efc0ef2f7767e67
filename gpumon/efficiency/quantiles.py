"""Latency quantiles from the difference of two Prometheus histograms."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from operator import sub
from typing import Final

import msgspec

from gpumon.readings.frame import HistogramReading
from gpumon.readings.missing import NO_UPPER_BOUND, NOT_EXPOSED, Missing, Reading, Reason, number
from gpumon.readings.snapshot import Latency, Quantiles

ENOUGH: Final = 20
"""Observations below which a quantile is noise and only the mean is given: the p95 of fewer is their largest alone."""
ENOUGH_FOR_P99: Final = 100
"""The same for the p99."""
_FEW_FOR_P99: Final = Missing(Reason.FEW, f"fewer than {ENOUGH_FOR_P99} observations: the p99 is their largest alone")
LEAST_COMMON: Final = 3
"""Finite bounds that histograms of different engines must share to be merged."""


def merge(histograms: Sequence[HistogramReading]) -> HistogramReading | None:
    """The sum of histograms with the same bounds; None where there is none, or where the bounds differ."""
    if not histograms:
        return None
    first = histograms[0]
    if len(histograms) == 1:
        return first
    columns = [first.counts]
    for other in histograms[1:]:
        if other.bounds != first.bounds:
            return None
        columns.append(other.counts)
    counts = tuple(sum(column) for column in zip(*columns, strict=True))
    return HistogramReading(first.bounds, counts, *_sum_and_count(histograms))


def _sum_and_count(histograms: Sequence[HistogramReading]) -> tuple[float, float]:
    """The sum of the observations of all histograms, and their number."""
    return sum(histogram.sum for histogram in histograms), sum(histogram.count for histogram in histograms)


def merge_common(histograms: Sequence[HistogramReading]) -> HistogramReading | None:
    """The sum of histograms of several engines, on the bounds that all of them have.

    Counts are cumulative, so those at a common bound add up whatever lies between. None where there is no histogram,
    or fewer than `LEAST_COMMON` bounds in common: a quantile would lie anywhere.
    """
    whole = merge(histograms)
    if whole is not None or not histograms:
        return whole
    common = set(histograms[0].bounds)
    for histogram in histograms[1:]:
        common.intersection_update(histogram.bounds)
    bounds = tuple(sorted(common))
    if len(bounds) <= LEAST_COMMON or bounds[-1] != float("inf"):
        return None
    by_bound = [dict(zip(histogram.bounds, histogram.counts, strict=True)) for histogram in histograms]
    counts = [sum(counts_by_bound[bound] for counts_by_bound in by_bound) for bound in bounds]
    return HistogramReading(bounds, tuple(counts), *_sum_and_count(histograms))


def mean_only(histograms: Sequence[HistogramReading], why: Missing) -> Quantiles:
    """The mean over histograms that cannot be merged; every quantile missing, `why` says so."""
    total, count = _sum_and_count(histograms)
    mean: Reading = total / count if count > 0 else Missing(Reason.IDLE)
    return msgspec.structs.replace(no_quantiles(why), mean=mean)


def no_quantiles(why: Missing) -> Quantiles:
    """Every figure missing for one reason."""
    return Quantiles(**dict.fromkeys(Quantiles.__struct_fields__, why))


def observations_between(old: HistogramReading | None, new: HistogramReading | None) -> HistogramReading | None:
    """Observations between two readings of one histogram; None where they do not belong together or it was reset.

    Where one of the two has no bucket but +Inf (of a fleet not all buckets are asked for all the time), it has that;
    where nothing had been observed before, all of the new one.
    """
    if old is None or new is None:
        return None
    if not old.count and not old.counts[-1]:
        return new
    if len(old.bounds) != len(new.bounds) and 1 in (len(old.bounds), len(new.bounds)):
        old = _without_buckets(old)
        new = _without_buckets(new)
    if old.bounds != new.bounds or len(old.counts) != len(new.counts):
        return None
    return _increase(old, new)


def _increase(old: HistogramReading, new: HistogramReading) -> HistogramReading | None:
    """Growth of each bucket of a histogram; None where it was reset."""
    counts = tuple(map(sub, new.counts, old.counts))
    if new.count < old.count or new.sum < old.sum or (counts and min(counts) < 0):
        return None
    return HistogramReading(new.bounds, counts, new.sum - old.sum, new.count - old.count)


def _without_buckets(histogram: HistogramReading) -> HistogramReading:
    """The histogram with no bucket but +Inf."""
    return HistogramReading(histogram.bounds[-1:], histogram.counts[-1:], histogram.sum, histogram.count)


def bucket_of(window: HistogramReading, share: float) -> tuple[int, float]:
    """Index of the bucket that holds the `share` quantile, and the rank within all observations."""
    rank = share * window.counts[-1]
    return min(bisect_left(window.counts, rank), len(window.counts) - 1), rank


def histogram_quantile(window: HistogramReading, share: float) -> tuple[float, float, Reading]:
    """The `share` quantile, linear inside its bucket, and the bounds of that bucket.

    In the +Inf bucket, which has no upper bound, it is the last finite bound (PromQL's rule). It is never more than the
    mean allows, which tells in a wide bucket: half of the observations cannot lie above twice the mean.
    """
    index, rank = bucket_of(window, share)
    low = 0.0
    below = 0.0
    if index:
        low = window.bounds[index - 1]
        below = window.counts[index - 1]
    if index == len(window.bounds) - 1:
        value = window.bounds[-2] if index else window.sum / window.count
        return value, low, NO_UPPER_BOUND
    inside = window.counts[index] - below
    share_of_bucket = (rank - below) / inside if inside else 1.0
    value = low + (window.bounds[index] - low) * share_of_bucket
    most = _most_by_mean(window, share)
    return max(low, min(value, most)), low, window.bounds[index]


def _most_by_mean(window: HistogramReading, share: float) -> float:
    """The highest value that a quantile can have with this mean (Markov's inequality): mean / (1 - share)."""
    return window.sum / window.counts[-1] / (1.0 - share)


def quantiles(window: HistogramReading | None) -> Quantiles:
    """p50, p90, p95, p99 and mean of a window's observations; quantiles only from `ENOUGH` of them, the p99 from
    `ENOUGH_FOR_P99`.

    Without a finite bucket (a sum and a count alone) there is nothing but the mean.
    """
    if window is None or len(window.counts) == 0:
        return Quantiles()
    if len(window.bounds) == 1:
        return mean_only([window], NOT_EXPOSED)
    if window.count < ENOUGH:
        reason = Reason.FEW if window.count > 0 else Reason.IDLE
        return msgspec.structs.replace(mean_only([window], Missing(reason)), first_bound_s=window.bounds[0])
    p50, p50_low, p50_high = histogram_quantile(window, 0.5)
    p95, p95_low, p95_high = histogram_quantile(window, 0.95)
    p99: Reading = _FEW_FOR_P99
    p99_low: Reading = _FEW_FOR_P99
    p99_high: Reading = _FEW_FOR_P99
    if window.count >= ENOUGH_FOR_P99:
        p99, p99_low, p99_high = histogram_quantile(window, 0.99)
    return Quantiles(
        p50=p50,
        p95=p95,
        p99=p99,
        mean=window.sum / window.count,
        p95_low=p95_low,
        p95_high=p95_high,
        first_bound_s=window.bounds[0],
        p50_low=p50_low,
        p50_high=p50_high,
        p99_low=p99_low,
        p99_high=p99_high,
        p90=histogram_quantile(window, 0.9)[0],
    )


def longest(window: HistogramReading | None) -> float:
    """Upper bound of the longest observation; 0 where there was none, the last finite bound in the +Inf bucket.

    Without a finite bucket the mean is all that is known of them.
    """
    if window is None or window.count <= 0:
        return 0.0
    if len(window.bounds) < 2:
        return window.sum / window.count
    index, _ = bucket_of(window, 1.0)
    return window.bounds[min(index, max(0, len(window.bounds) - 2))]


def size_biased_mean(window: HistogramReading | None) -> float | None:
    """E[n^2] / E[n] of a histogram of lengths: the length of the prompt that a random token belongs to.

    Second moment from bucket mid-points, scaled so that their first moment is the exact mean; None where nothing was
    observed. The causal attention of a prefill grows with this figure, not with the mean.
    """
    if window is None or window.count <= 0 or window.sum <= 0:
        return None
    first = 0.0
    second = 0.0
    low = 0.0
    below = 0.0
    for bound, cumulative in zip(window.bounds, window.counts, strict=True):
        inside = cumulative - below
        middle = low if bound == float("inf") else (low + bound) / 2
        first += inside * middle
        second += inside * middle * middle
        low = bound
        below = cumulative
    exact = window.sum / window.count
    if first <= 0:
        return exact
    return max(exact, second / first * (exact * window.count / first))


def least_e2e_s(latency: Latency) -> float | None:
    """The least that the p95 of E2E can be by that of TTFT, in seconds, where it is above what E2E says; else None.

    No request ends before its first token, but the two are of other requests: in an overload those that got their first
    token a moment ago have waited longer than those that ended. Bounds of buckets decide, where there are any: two
    quantiles that are interpolated in them say nothing.
    """
    ttft_low_s = _bound_or_quantile(latency.ttft_s.p95_low, latency.ttft_s.p95)
    e2e_high_s = _bound_or_quantile(latency.e2e_s.p95_high, latency.e2e_s.p95)
    if ttft_low_s is None or e2e_high_s is None or ttft_low_s < e2e_high_s:
        return None
    return ttft_low_s


def _bound_or_quantile(bound: Reading, quantile: Reading) -> float | None:
    """The bound of the bucket that a quantile fell in; the quantile itself where it is of no histogram."""
    bound_s = number(bound)
    if bound_s is None:
        return number(quantile)
    return bound_s

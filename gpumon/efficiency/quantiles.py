"""Latency quantiles from the difference of two Prometheus histograms."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.readings.frame import HistogramReading
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading, Reason
from gpumon.readings.snapshot import Quantiles

ENOUGH = 20
"""Observations below which a quantile is noise and only the mean is given."""

NOTHING = Quantiles()


def merge(histograms: Sequence[HistogramReading]) -> HistogramReading | None:
    """The sum of histograms with the same bounds; None where there is none, or where the bounds differ."""
    if not histograms:
        return None
    first = histograms[0]
    if len(histograms) == 1:
        return first
    if any(other.bounds != first.bounds for other in histograms):
        return None
    counts = tuple(sum(column) for column in zip(*(other.counts for other in histograms), strict=True))
    return HistogramReading(
        first.bounds, counts, sum(other.sum for other in histograms), sum(other.count for other in histograms)
    )


def difference(old: HistogramReading | None, new: HistogramReading | None) -> HistogramReading | None:
    """Observations between two readings of one histogram; None where they do not belong together or it was reset."""
    if old is None or new is None or old.bounds != new.bounds:
        return None
    counts = tuple(b - a for a, b in zip(old.counts, new.counts, strict=True))
    if new.count < old.count or new.sum < old.sum or any(count < 0 for count in counts):
        return None
    return HistogramReading(new.bounds, counts, new.sum - old.sum, new.count - old.count)


def mean(window: HistogramReading | None) -> Reading:
    """Mean of the observations, in the histogram's unit: `idle` where there was none."""
    if window is None:
        return NOT_EXPOSED
    if window.count <= 0:
        return Missing(Reason.IDLE)
    return window.sum / window.count


def bucket_of(window: HistogramReading, share: float) -> tuple[int, float]:
    """Index of the bucket that holds the `share` quantile, and the rank within all observations."""
    rank = share * window.counts[-1]
    for at, cumulative in enumerate(window.counts):
        if cumulative >= rank:
            return at, rank
    return len(window.counts) - 1, rank


def quantile(window: HistogramReading, share: float) -> float:
    """The `share` quantile, linear inside its bucket; in the +Inf bucket the last finite bound (PromQL's rule)."""
    return _placed(window, share)[0]


def _placed(window: HistogramReading, share: float) -> tuple[float, float, Reading]:
    """A quantile with the bounds of its bucket; the open last bucket has no upper one."""
    at, rank = bucket_of(window, share)
    low = window.bounds[at - 1] if at else 0.0
    if at == len(window.bounds) - 1:
        return window.bounds[-2] if at else window.sum / window.count, low, Missing(Reason.INVALID)
    below = window.counts[at - 1] if at else 0.0
    inside = window.counts[at] - below
    value = low + (window.bounds[at] - low) * ((rank - below) / inside if inside else 1.0)
    return value, low, window.bounds[at]


def quantiles(window: HistogramReading | None) -> Quantiles:
    """p50, p95, p99 and mean of a window's observations; quantiles only from `ENOUGH` of them."""
    if window is None or len(window.counts) == 0:
        return NOTHING
    if window.count <= 0:
        return _without(Missing(Reason.IDLE), Missing(Reason.IDLE), window.bounds[0])
    average = mean(window)
    if window.count < ENOUGH:
        return _without(Missing(Reason.FEW), average, window.bounds[0])
    p50, p50_low, p50_high = _placed(window, 0.5)
    p95, p95_low, p95_high = _placed(window, 0.95)
    p99, p99_low, p99_high = _placed(window, 0.99)
    return Quantiles(
        p50=p50,
        p95=p95,
        p99=p99,
        mean=average,
        p95_low=p95_low,
        p95_high=p95_high,
        first_bound_s=window.bounds[0],
        p50_low=p50_low,
        p50_high=p50_high,
        p99_low=p99_low,
        p99_high=p99_high,
    )


def _without(why: Missing, average: Reading, first_bound_s: float) -> Quantiles:
    """No quantiles for one reason; the mean and the first bound as they are."""
    return Quantiles(why, why, why, average, why, why, first_bound_s, why, why, why, why)


def longest(window: HistogramReading | None) -> float:
    """Upper bound of the longest observation; 0 where there was none, the last finite bound in the +Inf bucket."""
    if window is None or window.count <= 0:
        return 0.0
    at, _ = bucket_of(window, 1.0)
    return window.bounds[min(at, max(0, len(window.bounds) - 2))]


def size_biased_mean(window: HistogramReading | None) -> float | None:
    """E[n^2] / E[n] of a histogram of lengths: the length of the prompt that a random token belongs to.

    Second moment from bucket mid-points, scaled so that their first moment is the exact mean; None where nothing was
    observed. The causal attention of a prefill grows with this figure, not with the mean.
    """
    if window is None or window.count <= 0 or window.sum <= 0:
        return None
    first = second = low = below = 0.0
    for bound, cumulative in zip(window.bounds, window.counts, strict=True):
        inside = cumulative - below
        middle = low if bound == float("inf") else (low + bound) / 2
        first += inside * middle
        second += inside * middle * middle
        low, below = bound, cumulative
    exact = window.sum / window.count
    if first <= 0:
        return exact
    return max(exact, second / first * (exact * window.count / first))

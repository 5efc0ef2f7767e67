"""What one poll of a rank says after the one before: whether its counters began anew, and what this one lacks."""

from __future__ import annotations

from gpumon.readings.frame import HistogramReading, RankReading

LEFT = 0.5
"""Share of its last value below which a counter that fell has begun anew: an old answer that came late has more."""


def series(rank: RankReading) -> frozenset[str]:
    """The counters and histograms that a poll has of a rank."""
    return frozenset((*rank.counters, *rank.histograms))


def fell(old: RankReading | None, new: RankReading) -> bool:
    """Whether one of a rank's counters or histograms has less than in the poll before."""
    if old is None:
        return False
    if any(value < old.counters.get(quantity, value) for quantity, value in new.counters.items()):
        return True
    return any(
        quantity in old.histograms and _shrank(old.histograms[quantity], histogram)
        for quantity, histogram in new.histograms.items()
    )


def _shrank(old: HistogramReading, new: HistogramReading) -> bool:
    return new.count < old.count or new.sum < old.sum


def began_anew(old: RankReading | None, new: RankReading) -> bool:
    """Whether a process that does not tell its start time is another: each of its counters fell deep at once."""
    counted = [] if old is None else [(value, new.counters.get(name, 0.0)) for name, value in old.counters.items()]
    return all(after < LEFT * before for before, after in counted if before)


def carried(old: RankReading | None, new: RankReading) -> RankReading:
    """`new` with the series that this poll lacked taken from `old`: absent in one answer is not gone."""
    if old is None or (old.counters.keys() <= new.counters.keys() and old.histograms.keys() <= new.histograms.keys()):
        return new
    return RankReading(new.rank, {**old.counters, **new.counters}, new.gauges, {**old.histograms, **new.histograms})

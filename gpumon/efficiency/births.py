"""Series that a page has from their first count on, as most client libraries of Prometheus write them.

Before that they stood at 0, and a window that begins before them counts them from there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EngineReading, HistogramReading, RankReading

SURE_ANSWERS: Final = 2
"""Whole answers without a series that prove it new.

One is not enough: the first one may have lacked what the engine has counted for days.
"""
_WHOLE_OF_PART: Final = {q.PREFILL_COMPUTED: q.PROMPT_TOKENS}
"""Counter that an adapter may work out -> the one that it is a part of, which may have counted long before."""


def born_series(before: RankReading, reading: EngineReading, here: RankReading, whole_answers: int) -> frozenset[str]:
    """Counters and histograms of a rank that its page has for the first time, and that stood at 0 before.

    `before` are all series of the rank so far, `here` those of the new `reading`. `whole_answers` are the answers of
    this process that had the rank and were read to their end.
    """
    if has_all_series(before, here) or whole_answers < SURE_ANSWERS or not reading.whole:
        return frozenset()
    born = {name for name in series_of(here) - series_of(before) if _is_engines_own(name, reading, before)}
    return frozenset(born)


def has_all_series(before: RankReading, here: RankReading) -> bool:
    """Whether `before` has all counters and histograms of `here`."""
    return here.counters.keys() <= before.counters.keys() and here.histograms.keys() <= before.histograms.keys()


def series_of(rank: RankReading) -> frozenset[str]:
    """Names of a rank's counters and histograms."""
    return frozenset((*rank.counters, *rank.histograms))


def with_zeros(rank: RankReading, newer: RankReading, names: Iterable[str]) -> RankReading:
    """The rank with these series of `newer` at 0, where it does not have them."""
    counters = dict(rank.counters)
    histograms = dict(rank.histograms)
    for name in names:
        if name in newer.counters:
            counters.setdefault(name, 0.0)
        if name in newer.histograms:
            bounds = newer.histograms[name].bounds
            no_counts = (0.0,) * len(newer.histograms[name].counts)
            histograms.setdefault(name, HistogramReading(bounds, no_counts, sum=0.0, count=0.0))
    return RankReading(rank.rank, counters, rank.gauges, histograms)


def at_zero(rank: RankReading) -> RankReading:
    """The rank with all its counters and histograms at 0, and no gauges."""
    blank = RankReading(rank.rank, counters={}, gauges={}, histograms={})
    return with_zeros(blank, rank, series_of(rank))


def with_highest(before: RankReading, newest: RankReading) -> RankReading:
    """`newest` with the series of `before` that it lacks, or that had counted more: those are still there."""
    counters = dict(newest.counters)
    for name, counted in before.counters.items():
        if counted > counters.get(name, -1.0):
            counters[name] = counted
    histograms = dict(newest.histograms)
    for name, histogram in before.histograms.items():
        if name not in histograms or histograms[name].count < histogram.count:
            histograms[name] = histogram
    return RankReading(newest.rank, counters, newest.gauges, histograms)


def before_first_count(reading: EngineReading, monotonic_s: float) -> EngineReading:
    """The reading of a model at a moment at which its server had counted nothing for it yet: zeros, and no gauges."""
    ranks = [at_zero(rank) for rank in reading.ranks]
    return msgspec.structs.replace(reading, ranks=tuple(ranks), monotonic_s=monotonic_s, absent_s=None)


def _is_engines_own(name: str, reading: EngineReading, before: RankReading) -> bool:
    """Whether the engine counts a series itself, so that it began at 0: an adapter's sums begin anywhere."""
    if reading.advance.get(name) is Advance.DERIVED:
        return False
    whole = _WHOLE_OF_PART.get(name)
    if whole is None:
        return True
    return not before.counters.get(whole, 0.0)

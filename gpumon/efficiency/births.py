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
_PARTS: Final = {q.PREFILL_COMPUTED: q.PROMPT_TOKENS}
"""Counter that an adapter may work out -> the one that it is a part of, which may have counted long before."""


def born_series(before: RankReading, reading: EngineReading, here: RankReading, whole_answers: int) -> frozenset[str]:
    """Counters and histograms of a rank that its page has for the first time, and that stood at 0 before.

    `before` are all series of the rank so far, `here` those of the new `reading`. `whole_answers` are the answers of
    this process that had the rank and were read to their end.
    """
    if has_all_series(before, here) or whole_answers < SURE_ANSWERS or not reading.whole:
        return frozenset()
    fresh = series_of(here) - series_of(before)
    series = set()
    for name in fresh:
        if _is_engines_own(name, reading, before):
            series.add(name)
    return frozenset(series)


def has_all_series(before: RankReading, here: RankReading) -> bool:
    """Whether all counters and histograms of `here` are among the known ones."""
    return here.counters.keys() <= before.counters.keys() and here.histograms.keys() <= before.histograms.keys()


def series_of(rank: RankReading) -> frozenset[str]:
    """Names of a rank's counters and histograms."""
    return frozenset((*rank.counters, *rank.histograms))


def with_zeros(rank: RankReading, like: RankReading, names: Iterable[str]) -> RankReading:
    """The rank with these series of `like` at 0, where it does not have them."""
    counters = dict(rank.counters)
    histograms = dict(rank.histograms)
    for name in names:
        if name in like.counters:
            counters.setdefault(name, 0.0)
        if name in like.histograms:
            histograms.setdefault(name, _empty(like.histograms[name]))
    return RankReading(rank.rank, counters, rank.gauges, histograms)


def before_first_count(reading: EngineReading, monotonic_s: float) -> EngineReading:
    """The reading of a model at a moment at which its server had counted nothing for it yet: zeros, and no gauges."""
    blank = (with_zeros(RankReading(rank.rank, {}, {}, {}), rank, series_of(rank)) for rank in reading.ranks)
    return msgspec.structs.replace(reading, ranks=tuple(blank), monotonic_s=monotonic_s, absent_s=None)


def _is_engines_own(name: str, reading: EngineReading, before: RankReading) -> bool:
    """Whether the engine counts it itself. What an adapter works out may begin anywhere."""
    if reading.advance.get(name) is Advance.DERIVED:
        return False
    whole = _PARTS.get(name, "")
    return not before.counters.get(whole, 0.0)


def _empty(histogram: HistogramReading) -> HistogramReading:
    return HistogramReading(histogram.bounds, (0.0,) * len(histogram.counts), 0.0, 0.0)

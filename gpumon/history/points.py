"""Means of the points of the charts over a part of a past, and how much of that part is recorded."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from gpumon.efficiency.sums import TimeMean
from gpumon.history.frame_store import FrameStore, Points
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading

GAP_S: Final = 10.0
"""Seconds: a longer time without points is a gap."""
_CHUNK_S: Final = 3600.0
"""Seconds of points that are read at a time."""
_MOST_RECORD_S: Final = 60.0
"""Most seconds that one record of points stands for."""


class PointMeans(NamedTuple):
    """Means of the points of a span, and how much of it they cover."""

    means: Mapping[str, TimeMean]
    """Name of a series -> its mean."""
    covered_s: float
    """Seconds of the span that are recorded."""
    gaps: tuple[tuple[float, float], ...]
    """Unix times from which to which nothing is recorded."""

    def mean(self, series: str, otherwise: Missing = NOT_EXPOSED) -> Reading:
        """Mean of a series; `otherwise` where it has no points."""
        if series in self.means:
            return self.means[series].reading(otherwise)
        return otherwise

    def mean_of(self, names: Iterable[str], otherwise: Missing = NOT_EXPOSED) -> Reading:
        """Mean of several series over all that is known of them; `otherwise` where none has points."""
        whole = TimeMean()
        for name in names:
            if name in self.means:
                whole.add_mean(self.means[name])
        return whole.reading(otherwise)

    def known_s(self, series: str) -> float:
        """Seconds that the mean of a series is made of."""
        if series in self.means:
            return min(self.means[series].seconds, self.covered_s)
        return 0.0


def means_of_points(past: FrameStore, from_s: float, to_s: float) -> PointMeans:
    """The means of a part of a past, and how much of it is recorded."""
    means: dict[str, TimeMean] = {}
    gaps: list[tuple[float, float]] = []
    covered_s = 0.0
    last_s: float | None = None
    for points, seconds in _points_with_seconds(past, from_s, to_s):
        begin_s = points.wall_s - points.seconds
        if last_s is not None and begin_s - last_s > GAP_S:
            gaps.append((last_s, begin_s))
        elif last_s is not None and begin_s > last_s:
            # Ticks that came late are no gap: the next one stands for the time before it.
            seconds += begin_s - last_s
        last_s = points.wall_s
        covered_s += seconds
        for series, value in points.values.items():
            means.setdefault(series, TimeMean()).add(value, seconds)
    covered_s += _seconds_behind_points(past, from_s, to_s, last_s)
    return PointMeans(means, min(covered_s, to_s - from_s), tuple(gaps))


def _seconds_behind_points(past: FrameStore, from_s: float, to_s: float, last_s: float | None) -> float:
    """Seconds of frames behind the last points (None: there are none): the mean of those is not made yet."""
    begin_s = last_s if last_s is not None else first_at_or_after(past, from_s)
    end_s = last_at_or_before(past, to_s)
    if begin_s is None or end_s is None or not 0.0 < end_s - begin_s <= GAP_S:
        return 0.0
    return end_s - begin_s


def first_at_or_after(past: FrameStore, wall_s: float) -> float | None:
    """When the first frame at a time or after it was taken."""
    return past.after(math.nextafter(wall_s, -math.inf))


def last_at_or_before(past: FrameStore, wall_s: float) -> float | None:
    """When the last frame at a time or before it was taken."""
    return past.before(math.nextafter(wall_s, math.inf))


def _points_with_seconds(past: FrameStore, from_s: float, to_s: float) -> Iterator[tuple[Points, float]]:
    """Points, and for how many of their seconds they count: the first and the last may reach over the ends."""
    begin_s = from_s
    while begin_s < to_s:
        end_s = min(to_s, begin_s + _CHUNK_S)
        for points in past.points(begin_s, end_s + _MOST_RECORD_S):
            inside_s = min(points.wall_s, to_s) - max(points.wall_s - points.seconds, from_s)
            # Each in one chunk; those that reach over the end in the last one.
            in_chunk = begin_s < points.wall_s and (points.wall_s <= end_s or end_s == to_s)
            if inside_s > 0.0 and in_chunk:
                yield points, inside_s
        # A clock that was set leaves years without a frame: they are not walked through.
        next_s = past.after(end_s)
        begin_s = to_s if next_s is None else max(end_s, next_s - _MOST_RECORD_S)

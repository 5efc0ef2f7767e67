"""Bounded history of plotted values: every tick of the last minutes, and means of 5 s for the last two hours.

NaN is a gap.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from gpumon.readings.snapshot import Snapshot
from gpumon.readings.verdict import Event

CELL_S: Final = 5.0
"""Wall time that one cell of the coarse tier sums up."""
_TICKS: Final = 2400
"""Ticks kept one by one: 10 minutes of the shortest interval, 40 of the default one."""
_CELLS: Final = 1536
"""Cells kept: 2 hours and 8 minutes."""
_EVENTS: Final = 512
"""Events kept."""
_STEP_BACK_S: Final = 1.0
"""The clock wanders by less; by more, it was set back, and what lies before is another past."""
_LATE: Final = 2.5
"""Intervals between two readings that are still one course: the collector may skip a slot."""
_END_S: Final = CELL_S - 1e-3
"""A cell counts as read at its end, but still within itself."""


class _Values:
    """The numbers of one series in both tiers, in single precision: more than any chart shows, as in recordings."""

    __slots__ = ("counts", "sums", "ticks")

    def __init__(self, ticks: int, cells: int) -> None:
        self.ticks = array("f", [math.nan]) * ticks
        self.sums = array("f", bytes(4 * cells))
        self.counts = array("I", bytes(4 * cells))


class _Read(msgspec.Struct, frozen=True):
    """Readings that count to one bucket: their sum, and their number (0: a gap)."""

    bucket_s: float
    """A time in that bucket."""
    first_s: float
    last_s: float
    """When the first and the last of them were taken."""
    total: float
    number: int
    interval_s: float
    """Seconds before `first_s` that they stand for in any case."""


class History:
    """Named series over the same wall clock, for charts. Memory is bounded: 22 kB a series, `most_series` of them."""

    def __init__(self, ticks: int = _TICKS, cells: int = _CELLS, most_series: int = 256) -> None:
        self._most = most_series
        self._series: dict[str, _Values] = {}
        self._times = array("d", bytes(8 * ticks))
        self._intervals = array("f", bytes(4 * ticks))
        self._next = 0
        self._size = 0
        self._numbers = array("q", [-1]) * cells
        """Which cell of all time stands in each place."""
        self._cell_firsts = array("d", bytes(8 * cells))
        self._cell_lasts = array("d", bytes(8 * cells))
        self._cell_intervals = array("f", bytes(4 * cells))
        self.first_s = math.inf
        """Unix time of the first point that was added; it may be older than what is kept."""
        self._last_s = -math.inf
        self._events: deque[Event] = deque(maxlen=_EVENTS)

    def append(self, wall_s: float, points: Mapping[str, float], interval_s: float = 1.0) -> None:
        """Add one point per series; a series not in `points` shows a gap there.

        `interval_s`: seconds up to now that the points stand for. A chart whose columns are shorter fills them.
        """
        if wall_s < self._last_s - _STEP_BACK_S:
            self._forget()
            self.first_s = math.inf
        self.first_s = min(self.first_s, wall_s)
        self._last_s = wall_s
        if not points.keys() <= self._series.keys():
            self._admit(points)
        number = math.floor(wall_s / CELL_S)
        cell = number % len(self._numbers)
        fresh = self._numbers[cell] != number
        if fresh:
            self._numbers[cell] = number
            self._cell_firsts[cell] = wall_s
            self._cell_intervals[cell] = interval_s
        self._cell_lasts[cell] = wall_s
        tick = self._next
        self._times[tick] = wall_s
        self._intervals[tick] = interval_s
        self._next = (tick + 1) % len(self._times)
        self._size = min(self._size + 1, len(self._times))
        for key, values in self._series.items():
            value = points.get(key, math.nan)
            values.ticks[tick] = value
            if fresh:
                values.sums[cell] = 0.0
                values.counts[cell] = 0
            if value == value:  # a gap is NaN
                values.sums[cell] += value
                values.counts[cell] += 1

    def become(self, other: History) -> None:
        """Hold what another one holds: who draws from this one sees all of it at once."""
        vars(self).update(vars(other))

    def mark(self, event: Event) -> None:
        """Keep an event for the charts; the oldest of many go."""
        self._events.append(event)

    def events(self, from_s: float, to_s: float) -> list[Event]:
        """Events from a time (excluded) to another (included), oldest first."""
        events = []
        for event in self._events:
            if from_s < event.wall_s <= to_s:
                events.append(event)
        return events

    def _admit(self, points: Mapping[str, float]) -> None:
        for key in points:
            if key not in self._series and len(self._series) < self._most:
                self._series[key] = _Values(len(self._times), len(self._numbers))

    def _forget(self) -> None:
        self._next = 0
        self._size = 0
        self._numbers = array("q", [-1]) * len(self._numbers)
        self._events.clear()

    def keys(self) -> tuple[str, ...]:
        """Names of the series seen so far, in order of appearance."""
        return tuple(self._series)

    def has_values(self, key: str) -> bool:
        """Whether a series had a value in the last two hours."""
        values = self._series.get(key)
        return values is not None and any(values.counts)

    def latest(self, key: str, wall_s: float, mean_s: float = 0.0) -> float:
        """The value of the point at exactly `wall_s`, whatever came after it; NaN where there is none any more.

        Where there is one, the mean of it and of the points less than `mean_s` before it.
        """
        values = self._series.get(key)
        if values is None:
            return math.nan
        inside: list[float] = []
        for tick in self._backwards():
            time_s = self._times[tick]
            value = values.ticks[tick]
            if time_s == wall_s and not inside:
                inside.append(value)
            elif inside and time_s > wall_s - mean_s:
                if not math.isnan(value):
                    inside.append(value)
            elif time_s < wall_s - _STEP_BACK_S:
                break
        if inside:
            return sum(inside) / len(inside)
        return math.nan

    def buckets(
        self, key: str, newest_bucket: int, count: int, width_s: float, until_s: float = math.inf
    ) -> list[float]:
        """Means of `count` buckets of `width_s` seconds of wall time, oldest first.

        Bucket n covers [n * width_s, (n + 1) * width_s); `newest_bucket` is the last one returned. A bucket without a
        value is NaN, unless it lies within the interval of the reading after it. Points after `until_s` do not count:
        a paused display shows the same however often it is drawn; once their single ticks are gone, the last points
        before `until_s`, less than `CELL_S` of them, are a gap. Means are exact as long as every tick is kept, and
        where `width_s` is a multiple of `CELL_S`; else a cell counts to the bucket that it ends in.

        A bucket within the interval of the reading after it shows that reading: a single tick while ticks are read,
        the mean of its cell where cells are. The two differ where readings came faster right after a long interval.
        """
        first = newest_bucket - count + 1
        sums = [0.0] * count
        counts = [0] * count
        values = self._series.get(key)
        later: _Read | None = None
        if values is not None:
            for read in self._reads(values, first * width_s, until_s, width_s):
                at = math.floor(read.bucket_s / width_s) - first
                if later is not None:
                    _hold(later, read.last_s, sums, counts, first, width_s)
                if 0 <= at < count:
                    sums[at] += read.total
                    counts[at] += read.number
                later = read
        if later is not None:
            _hold(later, -math.inf, sums, counts, first, width_s)
        buckets = []
        for s, n in zip(sums, counts, strict=True):
            if n:
                buckets.append(s / n)
            else:
                buckets.append(math.nan)
        return buckets

    def _reads(self, values: _Values, since_s: float, until_s: float, width_s: float) -> Iterator[_Read]:
        """Readings from `until_s` back to the first one before `since_s`: tick by tick while they are kept.

        Where cells give the same means, all but the newest cell comes from them: they are fewer.
        """
        newest_s = min(until_s, self._last_s)
        if self._size < len(self._times):
            edge_s = -math.inf
        else:
            edge_s = self._kept_from_s()
        if width_s % CELL_S == 0.0 and newest_s > -math.inf:
            edge_s = max(edge_s, math.floor(newest_s / CELL_S) * CELL_S)
        for tick in self._backwards():
            time_s = self._times[tick]
            if time_s < edge_s - _STEP_BACK_S:
                break
            if not edge_s <= time_s <= until_s:
                continue
            value = values.ticks[tick]
            known = not math.isnan(value)
            yield _Read(time_s, time_s, time_s, value if known else 0.0, int(known), self._intervals[tick])
            if time_s < since_s - _STEP_BACK_S:
                return
        if edge_s > -math.inf:
            yield from self._cells(values, since_s, min(newest_s, edge_s - CELL_S), until_s)

    def _cells(self, values: _Values, since_s: float, newest_s: float, until_s: float) -> Iterator[_Read]:
        """Sums of the cells back from `newest_s`; the one of `until_s` cannot be told from what came after it."""
        newest = math.floor(newest_s / CELL_S)
        size = len(self._numbers)
        for number in range(newest, newest - size, -1):
            cell = number % size
            if self._numbers[cell] == number:
                if self._cell_lasts[cell] > until_s:
                    continue
                yield _Read(
                    number * CELL_S + _END_S,
                    self._cell_firsts[cell],
                    self._cell_lasts[cell],
                    values.sums[cell],
                    values.counts[cell],
                    self._cell_intervals[cell],
                )
                if number * CELL_S < since_s:
                    return
            elif number * CELL_S < since_s - _LATE * self._intervals[self._next - 1]:
                return

    def _kept_from_s(self) -> float:
        """Edge of the first cell of which every tick is kept."""
        return math.ceil((self._times[self._next] + _STEP_BACK_S) / CELL_S) * CELL_S

    def _backwards(self) -> Iterator[int]:
        """Places of the ticks, newest first."""
        size = len(self._times)
        return (at % size for at in range(self._next - 1 + size, self._next - 1 + size - self._size, -1))


def _hold(later: _Read, earlier_s: float, sums: list[float], counts: list[int], first: int, width_s: float) -> None:
    """Fill the empty buckets between two readings for which the later one stands."""
    if not later.number:
        return
    gap_s = later.first_s - earlier_s
    if gap_s < width_s and later.first_s == later.bucket_s:
        return
    end = math.floor(later.bucket_s / width_s) - first
    own = math.floor(later.first_s / width_s) - first
    if gap_s < width_s and own == end:
        return
    reach_s = gap_s if gap_s <= _LATE * later.interval_s else later.interval_s
    start = math.ceil((later.first_s - reach_s) / width_s - 0.5 + 1e-9) - first
    if earlier_s > -math.inf:
        start = max(start, math.floor(earlier_s / width_s) - first + 1)
    mean = later.total / later.number
    for at in range(max(0, min(start, own)), min(end, len(counts))):
        if not counts[at]:
            sums[at] = mean
            counts[at] = 1


class PastMoment(msgspec.Struct, frozen=True):
    """The view of a moment of the past."""

    snapshot: Snapshot
    history: History
    """Holds the charts up to that moment at least."""

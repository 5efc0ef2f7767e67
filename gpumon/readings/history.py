"""Bounded history of plotted values: each tick of the last minutes, and cells (means of 5 s) of the last two hours.

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
"""Seconds of wall time that one cell sums up."""
_MOST_TICKS: Final = 2400
"""Most ticks kept one by one: 10 minutes of the shortest interval, 40 of the default one."""
_MOST_CELLS: Final = 1536
"""Most cells kept: 2 hours and 8 minutes."""
_SHORT_CELLS: Final = 384
"""Cells of a series beyond those that have single ticks: 32 minutes."""
_MOST_SHORT: Final = 1280
"""Most such series: 4 MB."""
_MOST_EVENTS: Final = 512
"""Most events kept."""
_LOOK_EVERY_S: Final = 60.0
"""Seconds between two searches for series without a value: a search reads all cells of all series."""
_STEP_BACK_S: Final = 1.0
"""A clock that goes back by more was set back, and what lies before is another past; it wanders by less."""
_LATE_INTERVALS: Final = 2.5
"""Most intervals between two readings without a gap: the collector may skip a slot."""
_JUST_BEFORE_END_S: Final = CELL_S - 1e-3
"""Seconds from the start of a cell to a time just before its end: the bucket of that time is the one it counts to."""


class _Values:
    """The numbers of one series, tick by tick (of a short one none) and as cells; in single precision: more than any
    chart shows."""

    __slots__ = ("counts", "sums", "ticks")

    def __init__(self, ticks: int, cells: int) -> None:
        """`ticks` and `cells`: how many of them there is room for."""
        self.ticks = array("f", [math.nan]) * ticks
        self.sums = array("f", bytes(4 * cells))
        self.counts = array("I", bytes(4 * cells))
        """Sum and number of the values in each cell."""


class _Batch(msgspec.Struct, frozen=True):
    """Readings of one series that count together: that of a tick, or those of a cell. Times are Unix times."""

    counted_s: float
    """A time in the bucket that they count to."""
    first_s: float
    last_s: float
    """When the first and the last of them were taken."""
    total: float
    """Sum of the readings."""
    number: int
    """Number of readings; 0: a gap."""
    interval_s: float
    """Seconds before `first_s` that they stand for."""


class _Buckets:
    """Buckets of equal length, which are given batches from the newest one back."""

    def __init__(self, first: int, count: int, width_s: float) -> None:
        """`first`: number of the oldest bucket (`History.buckets`); `count`: how many there are."""
        self._first = first
        self._width_s = width_s
        self._sums = [0.0] * count
        self._numbers = [0] * count
        """Readings in each of them."""
        self._later: _Batch | None = None
        """The batch that was added last, which is the next one in time."""

    def _place(self, wall_s: float) -> int:
        """Place of the bucket of a time in the lists; below 0, or behind their end, there is none."""
        return math.floor(wall_s / self._width_s) - self._first

    def add(self, batch: _Batch) -> None:
        """Add the batch before those that were added so far."""
        self._fill_before_later(batch.last_s)
        place = self._place(batch.counted_s)
        if 0 <= place < len(self._sums):
            self._sums[place] += batch.total
            self._numbers[place] += batch.number
        self._later = batch

    def means(self) -> list[float]:
        """The mean of each bucket, oldest first; NaN is a gap. No batch is added after this."""
        self._fill_before_later(-math.inf)
        return [total / number if number else math.nan for total, number in zip(self._sums, self._numbers, strict=True)]

    def _fill_before_later(self, earlier_s: float) -> None:
        """Fill the empty buckets for which the batch added last stands; the one before it ends at `earlier_s`."""
        later = self._later
        if later is None or not later.number:
            return
        gap_s = later.first_s - earlier_s
        is_single_tick = later.first_s == later.counted_s
        if gap_s < self._width_s and is_single_tick:  # the usual case: no bucket is between; spares the divisions
            return
        counted_place = self._place(later.counted_s)
        first_place = self._place(later.first_s)  # an earlier one where the readings of a cell reach over two buckets
        if gap_s < self._width_s and first_place == counted_place:
            return
        start = min(first_place, self._first_within_reach(later, earlier_s))
        mean = later.total / later.number
        for place in range(max(0, start), min(counted_place, len(self._sums))):
            if not self._numbers[place]:
                self._sums[place] = mean
                self._numbers[place] = 1

    def _first_within_reach(self, later: _Batch, earlier_s: float) -> int:
        """Place of the first bucket that a batch stands for; the batch before it ends at `earlier_s`."""
        reach_s = later.interval_s
        gap_s = later.first_s - earlier_s
        if gap_s <= _LATE_INTERVALS * later.interval_s:
            reach_s = gap_s  # a reading that came late stands for all the time since the one before
        # The middle of the bucket lies within reach; 1e-9: one just at its edge does not.
        place = math.ceil((later.first_s - reach_s) / self._width_s - 0.5 + 1e-9) - self._first
        if earlier_s > -math.inf:
            place = max(place, self._place(earlier_s) + 1)
        return place


class History:
    """Named series over the same wall clock, for charts.

    Memory is bounded: 22 kB a series, `most_series` of them. Series that come after these are short, as those of hosts
    with many GPUs: they have cells alone, of the last half hour, 3 kB each.
    """

    def __init__(self, ticks: int = _MOST_TICKS, cells: int = _MOST_CELLS, most_series: int = 256) -> None:
        self._most_series = most_series
        self._series: dict[str, _Values] = {}
        """Name of a series -> its values; `most_series` of them have ticks."""
        self._look_again_s = -math.inf
        """Unix time before which no series without a value is looked for."""
        self._times = array("d", bytes(8 * ticks))
        self._intervals = array("f", bytes(4 * ticks))
        self._next = 0
        """Place of the next tick in the rings `_times`, `_intervals` and `_Values.ticks`."""
        self._size = 0
        """Ticks that are kept."""
        self._cell_numbers = array("q", [-1]) * cells
        """Number of the cell in each place, counted from Unix time 0; -1: none yet."""
        self._cell_firsts = array("d", bytes(8 * cells))
        self._cell_lasts = array("d", bytes(8 * cells))
        """Unix times of the first and the last tick of each."""
        self._cell_intervals = array("f", bytes(4 * cells))
        self.first_s = math.inf
        """Unix time of the first point that was added; it may be older than what is kept."""
        self._last_s = -math.inf
        self._events: deque[Event] = deque(maxlen=_MOST_EVENTS)

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
            self._add_series(points, wall_s)
        number = math.floor(wall_s / CELL_S)
        cell = number % len(self._cell_numbers)
        short_cell = number % _SHORT_CELLS
        begins_cell = self._cell_numbers[cell] != number
        if begins_cell:
            self._cell_numbers[cell] = number
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
            place = short_cell
            if values.ticks:
                values.ticks[tick] = value
                place = cell
            if begins_cell:
                values.sums[place] = 0.0
                values.counts[place] = 0
            if value == value:  # a gap is NaN
                values.sums[place] += value
                values.counts[place] += 1

    def become(self, other: History) -> None:
        """Hold what another one holds: whoever draws from this one sees all of it at once."""
        vars(self).update(vars(other))

    def add_event(self, event: Event) -> None:
        """Keep an event, to be marked in the charts; the oldest of many go."""
        self._events.append(event)

    def events(self, from_s: float, to_s: float) -> list[Event]:
        """Events from a time (excluded) to another (included), oldest first."""
        return [event for event in self._events if from_s < event.wall_s <= to_s]

    def _add_series(self, points: Mapping[str, float], wall_s: float) -> None:
        """Begin the series that are new, as long as there is room; where there is none, those without a value go."""
        new_keys = [key for key in points if key not in self._series]
        if len(self._series) + len(new_keys) > self._most_series and wall_s >= self._look_again_s:
            self._look_again_s = wall_s + _LOOK_EVERY_S
            self._series = {key: values for key, values in self._series.items() if any(values.counts)}
        with_ticks = sum(1 for values in self._series.values() if values.ticks)
        for key in new_keys:
            if with_ticks < self._most_series:
                self._series[key] = _Values(len(self._times), len(self._cell_numbers))
                with_ticks += 1
            elif len(self._series) < self._most_series + _MOST_SHORT:
                self._series[key] = _Values(0, _SHORT_CELLS)

    def _forget(self) -> None:
        """Drop all points and events."""
        self._next = 0
        self._size = 0
        self._cell_numbers = array("q", [-1]) * len(self._cell_numbers)
        self._look_again_s = -math.inf
        self._events.clear()

    def keys(self) -> tuple[str, ...]:
        """Names of the series seen so far, in order of appearance."""
        return tuple(self._series)

    def has_values(self, key: str) -> bool:
        """Whether a series had a value in the time that it has cells of."""
        values = self._series.get(key)
        return values is not None and any(values.counts)

    def latest(self, key: str, wall_s: float, mean_s: float = 0.0) -> float:
        """The value of the point at exactly `wall_s`, whatever came after it; NaN where there is none any more.

        Where there is one, the mean of it and of the points less than `mean_s` before it. Of a short series it is the
        mean of the newest whole cell.
        """
        values = self._series.get(key)
        if values is None:
            return math.nan
        if not values.ticks:
            means = self.buckets(key, math.floor(wall_s / CELL_S), 2, CELL_S, wall_s)
            return next((mean for mean in reversed(means) if mean == mean), math.nan)
        inside: list[float] = []  # values from `wall_s` back
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
        value is NaN, unless it lies within the interval of the reading after it, which it then shows.

        Points after `until_s` do not count: a paused display shows the same however often it is drawn. Once their
        single ticks are gone, the last points before `until_s`, up to `CELL_S` seconds of them, are a gap.

        Means are exact as long as every tick is kept, and where `width_s` is a multiple of `CELL_S`. Else a cell counts
        to the bucket that it ends in, and a bucket without a value shows the mean of the cell after it.
        """
        filled_buckets = _Buckets(newest_bucket - count + 1, count, width_s)
        values = self._series.get(key)
        if values is not None:
            first_s = (newest_bucket - count + 1) * width_s
            for batch in self._batches(values, first_s, until_s, width_s):
                filled_buckets.add(batch)
        return filled_buckets.means()

    def _batches(self, values: _Values, since_s: float, until_s: float, width_s: float) -> Iterator[_Batch]:
        """Readings from `until_s` back to the first one before `since_s`: tick by tick while they are kept.

        Where cells give the same means, all but the newest cell comes from them: they are fewer.
        """
        newest_s = min(until_s, self._last_s)
        if not values.ticks:
            yield from self._cell_batches(values, since_s, newest_s, until_s)
            return
        edge_s = -math.inf  # ticks from here on, cells before
        if self._size == len(self._times):
            # The first cell of which every tick is kept begins here.
            edge_s = math.ceil((self._times[self._next] + _STEP_BACK_S) / CELL_S) * CELL_S
        if width_s % CELL_S == 0.0 and newest_s > -math.inf:
            edge_s = max(edge_s, math.floor(newest_s / CELL_S) * CELL_S)
        for tick in self._backwards():
            time_s = self._times[tick]
            if time_s < edge_s - _STEP_BACK_S:
                break
            if not edge_s <= time_s <= until_s:
                continue
            value = values.ticks[tick]
            total = 0.0
            number = 0
            if not math.isnan(value):
                total = value
                number = 1
            yield _Batch(
                counted_s=time_s,
                first_s=time_s,
                last_s=time_s,
                total=total,
                number=number,
                interval_s=self._intervals[tick],
            )
            if time_s < since_s - _STEP_BACK_S:
                return
        if edge_s > -math.inf:
            yield from self._cell_batches(values, since_s, min(newest_s, edge_s - CELL_S), until_s)

    def _cell_batches(self, values: _Values, since_s: float, newest_s: float, until_s: float) -> Iterator[_Batch]:
        """Sums of the cells from that of `newest_s` back to the first one before `since_s`.

        The cell that `until_s` lies in is left out: its sum has what came after that time, too.
        """
        if newest_s == -math.inf:
            return
        newest = math.floor(newest_s / CELL_S)
        size = len(values.sums)
        oldest = math.floor(self._last_s / CELL_S) - size  # its place has been taken
        for number in range(newest, max(oldest, newest - size), -1):
            cell = number % len(self._cell_numbers)
            if self._cell_numbers[cell] == number:
                if self._cell_lasts[cell] > until_s:
                    continue
                yield _Batch(
                    counted_s=number * CELL_S + _JUST_BEFORE_END_S,
                    first_s=self._cell_firsts[cell],
                    last_s=self._cell_lasts[cell],
                    total=values.sums[number % size],
                    number=values.counts[number % size],
                    interval_s=self._cell_intervals[cell],
                )
                if number * CELL_S < since_s:
                    return
            elif number * CELL_S < since_s - _LATE_INTERVALS * self._intervals[self._next - 1]:
                return  # so far back, a reading stands for none of the time since `since_s`

    def _backwards(self) -> Iterator[int]:
        """Places of the ticks, newest first."""
        size = len(self._times)
        newest = self._next - 1 + size
        return (place % size for place in range(newest, newest - self._size, -1))


class PastMoment(msgspec.Struct, frozen=True):
    """The view of a moment of the past."""

    snapshot: Snapshot
    history: History
    """Holds the charts up to that moment at least."""

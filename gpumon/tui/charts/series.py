"""A charted series in fixed buckets of wall time: between two bucket edges only the newest value changes."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from gpumon.readings.history import History

SPANS_S: Final = (60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0)
"""Seconds that the charts may go back."""
_COLUMN_STEPS: Final = ((1.0, 0.02), (4.0, 0.05), (60.0, 1.0), (math.inf, 5.0))
"""Seconds of a column up to which, and what it is a multiple of then (s): so fine that little of the room stays empty,
and no finer, for each new column moves a whole chart."""
_LEAST_MOVE_S: Final = 3.0
"""Seconds after which a chart moves on, at least: with columns of half a second each line of it was written at each
reading."""
_LEAST_MOVES: Final = 12
"""Moves from edge to edge, at least: no larger part of a chart than one of them is drawn ahead of its time."""
_LONG_S: Final = 3600.0
"""Span from which on a column is a multiple of `_LONG_STEP_S`."""
_LONG_STEP_S: Final = 10.0
"""The history has sums of 5 s: columns of whole sums save the single ticks."""
_ROUNDING: Final = 1e-9
"""Part of a step by which a quotient of two times may miss a whole number."""


class Grid(NamedTuple):
    """The columns of a chart, and the seconds of each."""

    columns: int
    column_s: float

    @property
    def span_s(self) -> float:
        """Seconds from the left edge to the right one."""
        return self.columns * self.column_s

    @property
    def step(self) -> int:
        """Columns by which a chart moves on."""
        columns = math.ceil(_LEAST_MOVE_S / self.column_s - _ROUNDING)
        return max(1, min(columns, self.columns // _LEAST_MOVES))

    def newest(self, now_s: float) -> int:
        """Number of the column at the right edge; those of its step that have not begun are drawn as the last one."""
        return (math.floor(now_s / self.column_s) // self.step + 1) * self.step - 1


def make_grid(room: int, span_s: float) -> Grid:
    """The grid of a span in `room` cells: the most columns that fit, and just so many that the span fills them."""
    least_s = span_s / room
    step_s = _LONG_STEP_S
    if span_s < _LONG_S:
        step_s = next(step for end_s, step in _COLUMN_STEPS if least_s < end_s)
    column_s = round(math.ceil(least_s / step_s - _ROUNDING) * step_s, 2)
    return Grid(math.ceil(span_s / column_s - _ROUNDING), column_s)


class ChartSeries:
    """The newest `count` buckets of one series, of `width_s` seconds each, of which the newest `changing` may still
    change.

    Reads only what is new.
    """

    def __init__(self, history: History, key: str, count: int, width_s: float, changing: int) -> None:
        self._history = history
        self._key = key
        self._count = count
        self._width_s = width_s
        self._changing = changing
        self._newest = -1
        """Number of the bucket up to which `_values` were read."""
        self._values: list[float] = []

    def values(self, newest: int, until_s: float) -> list[float]:
        """Means of the buckets up to number `newest` and of points up to `until_s`, oldest first; NaN is a gap.

        The newest buckets that have not begun are as the one before them: what is drawn need not be drawn again when
        they do. An empty bucket that shows the reading after it keeps what that was when it was drawn. Where the
        interval has just become shorter, reading all of it anew (a resize) may show the mean of a few readings there
        instead: keeping the old buckets as they are drawn is what keeps the terminal quiet.
        """
        new_buckets = newest - self._newest
        if not self._values or new_buckets < 0 or new_buckets + self._changing >= self._count:
            self._values = self._history.buckets(self._key, newest, self._count, self._width_s, until_s)
        else:
            tail = self._history.buckets(self._key, newest, new_buckets + self._changing, self._width_s, until_s)
            self._values = self._values[new_buckets : self._count - self._changing] + tail
        self._newest = newest
        last_begun = math.floor(until_s / self._width_s) - newest - 1  # its place, from the end of the list
        if -self._changing <= last_begun < -1:
            self._values[last_begun + 1 :] = [self._values[last_begun]] * (-last_begun - 1)
        return self._values

    @property
    def highest(self) -> float:
        """The highest of the values that were read last; 0 where there is none."""
        return max((value for value in self._values if value == value), default=0.0)  # NaN is not equal to itself

"""A charted series in fixed buckets of wall time: between two bucket edges only the newest value changes."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from gpumon.readings.history import History

SPANS_S: Final = (60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0)
"""Seconds that the charts may go back."""
_FINE_S: Final = (0.25, 0.3, 0.4, 0.5, 0.6, 0.75, 0.8, 1.0, 1.2, 1.5, 2.0, 2.4, 2.5, 3.0, 4.0, 5.0, 6.0, 7.5, 8.0, 12.5)
_COARSE_S: Final = (10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 80.0, 90.0, 100.0, 120.0, 150.0, 180.0, 200.0, 240.0, 300.0)
_WIDE_S: Final = (12.0, 15.0, 25.0, 600.0, 900.0, 1200.0, 1800.0, 3600.0, 7200.0)
WIDTHS_S: Final = tuple(sorted(_FINE_S + _COARSE_S + _WIDE_S))
"""Seconds that one column may stand for."""
_LONG_S: Final = 3600.0
"""From this span on a column is a multiple of 10 s: the history has sums of 5 s, which save the single ticks."""


class Grid(NamedTuple):
    """The columns of a chart, and the seconds of each."""

    columns: int
    column_s: float

    @property
    def span_s(self) -> float:
        """Seconds from the left edge to the right one."""
        return self.columns * self.column_s


def grid(room: int, span_s: float) -> Grid:
    """At most `room` columns, the finest that go back `span_s` at least: all of the room, which may go back a little
    further, but for long spans, beyond which the history has nothing."""
    long = span_s >= _LONG_S
    fitting = (width for width in WIDTHS_S if width * room >= span_s and not (long and width % 10.0))
    column_s = next(fitting, span_s / room)
    return Grid(math.ceil(span_s / column_s - 1e-9) if long else room, column_s)


class Series:
    """The newest `count` buckets of one key, of which the newest `live` may still change. Reads only what is new."""

    def __init__(self, history: History, key: str, count: int, width_s: float, live: int) -> None:
        self._history = history
        self._key = key
        self._count = count
        self._width_s = width_s
        self._live = live
        self._newest = -1
        self._values: list[float] = []

    def values(self, newest: int, until_s: float) -> list[float]:
        """Means of the buckets up to number `newest` and of points up to `until_s`, oldest first; NaN is a gap.

        A newest bucket that has not begun is as the one before it: what is drawn need not be drawn again when it does.
        An empty bucket that shows the reading after it keeps what that was when it was drawn. Where the interval has
        just become shorter, reading all of it anew (a resize) may show the mean of a few readings there instead:
        keeping the old buckets as they are drawn is what keeps the terminal quiet.
        """
        fresh = newest - self._newest
        if not self._values or fresh < 0 or fresh + self._live >= self._count:
            self._values = self._history.buckets(self._key, newest, self._count, self._width_s, until_s)
        else:
            tail = self._history.buckets(self._key, newest, fresh + self._live, self._width_s, until_s)
            self._values = self._values[fresh : self._count - self._live] + tail
        self._newest = newest
        if self._live > 1 and newest * self._width_s > until_s:
            self._values[-1] = self._values[-2]
        return self._values

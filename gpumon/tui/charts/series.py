"""A charted series in fixed buckets of wall time: between two bucket edges only the newest value changes."""

from __future__ import annotations

from typing import Final

from gpumon.readings.history import History

WIDTHS: Final = (5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
"""Seconds that one column may stand for."""
_SPAN_S: Final = 300.0
"""A chart shows at least the last five minutes."""


def column_seconds(columns: int, interval_s: float) -> float:
    """Seconds of one column: five minutes fit, and each half of a column gets a reading."""
    least = max(_SPAN_S / max(1, columns), 4.0 * interval_s)
    return next((width for width in WIDTHS if width >= least), WIDTHS[-1])


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
        """Means of the buckets up to number `newest` and of points up to `until_s`, oldest first; NaN is a gap."""
        fresh = newest - self._newest
        if not self._values or fresh < 0 or fresh + self._live >= self._count:
            self._values = self._history.buckets(self._key, newest, self._count, self._width_s, until_s)
        else:
            tail = self._history.buckets(self._key, newest, fresh + self._live, self._width_s, until_s)
            self._values = self._values[fresh : self._count - self._live] + tail
        self._newest = newest
        return self._values

"""Points of the charts on their way to a mean of some seconds."""

from __future__ import annotations

import math
from collections.abc import Mapping

from gpumon.readings.history import CELL_S
from gpumon.recording.past import Points


class Cell:
    """The points of one cell of `History`'s coarse tier."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._last_s = self._seconds = 0.0

    def ends(self, wall_s: float) -> bool:
        """Whether a tick of that time belongs to another cell."""
        return math.floor(wall_s / CELL_S) != math.floor(self._last_s / CELL_S)

    def add(self, wall_s: float, seconds: float, points: Mapping[str, float]) -> None:
        """Take in a tick, which stands for the seconds before it."""
        self._last_s = wall_s
        self._seconds += seconds
        for key, value in points.items():
            if value == value:
                self._sums[key] = self._sums.get(key, 0.0) + value
                self._counts[key] = self._counts.get(key, 0) + 1

    def taken(self) -> Points | None:
        """The mean of what came since the last call; None where nothing came."""
        seconds, self._seconds = self._seconds, 0.0
        means = {key: total / self._counts[key] for key, total in self._sums.items()}
        self._sums.clear()
        self._counts.clear()
        return Points(self._last_s, seconds, means) if seconds and means else None

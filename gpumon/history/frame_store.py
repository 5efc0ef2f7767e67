"""What keeps frames, be it the last minutes in memory or a file, and what else it keeps beside them."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from gpumon.readings.frame import Frame
from gpumon.readings.history import CELL_S
from gpumon.readings.snapshot import Event

SEGMENT_S: Final = 10.0
"""A past is worked out in parts of so many seconds, each once it is looked at."""


class Tick(NamedTuple):
    """One tick to keep."""

    frame: Frame
    points: Mapping[str, float]
    """This tick's points of the charts."""
    events: tuple[Event, ...]


class Points(NamedTuple):
    """Means of some seconds for the charts of a longer past."""

    wall_s: float
    seconds: float
    values: Mapping[str, float]


class Cells(NamedTuple):
    """Points that follow each other and have the same series."""

    times: list[float]
    seconds: list[float]
    keys: tuple[str, ...]
    values: array[float]
    """Of all series at the first time, then at the second, ...; NaN is a gap."""


class FrameStore(Protocol):
    """Frames in the order in which they were taken. Times are Unix times; a clock set back makes them ambiguous: of
    several moments of one time the newest counts. All calls may read a disk: not for the event loop."""

    def span(self) -> tuple[float, float] | None:
        """When the first and the last frame was taken; None without frames."""

    def turns(self) -> int:
        """A number that grows when its clock goes back: moments of a time may be others from then on."""

    def frames(self, from_s: float, to_s: float) -> Sequence[Frame]:
        """Frames from a time to another, both included."""

    def before(self, wall_s: float) -> float | None:
        """When the last frame before a time was taken."""

    def after(self, wall_s: float) -> float | None:
        """When the first frame after a time was taken."""

    def points(self, from_s: float, to_s: float) -> Sequence[Points]:
        """Points for charts, oldest first; none where a past keeps none."""

    def cells(self, from_s: float, to_s: float) -> Sequence[Cells]:
        """The same as they are kept: a minute is given as a whole."""

    def events(self, from_s: float, to_s: float) -> Sequence[Event]:
        """What happened, oldest first."""


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

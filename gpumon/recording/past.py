"""What a past is, be it the last minutes in memory or a file: frames, and what can not be worked out from a few."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from gpumon.readings.frame import Frame
from gpumon.readings.snapshot import Event

STRETCH_S: Final = 10.0
"""A past is worked out in parts of so many seconds, each once it is looked at."""


class Kept(NamedTuple):
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


class Past(Protocol):
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

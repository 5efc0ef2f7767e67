"""Stores of frames, be it the last minutes in memory or a file, and what else they keep beside them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from gpumon.readings.frame import Frame
from gpumon.readings.history import CELL_S
from gpumon.readings.verdict import Event, Family, Kind, Verdict

NOTED_S: Final = 3600.0
"""All verdicts that stand are noted so often: who opens a moment looks back no further."""
SEGMENT_S: Final = 10.0
"""A past is worked out in parts of so many seconds, each once it is looked at."""


class Tick(NamedTuple):
    """One tick to keep."""

    frame: Frame
    points: Mapping[str, float]
    """This tick's points of the charts."""
    events: tuple[Event, ...]
    verdicts: tuple[Verdict, ...] | None = None
    """Verdicts that stand; None: nobody judged."""


class Points(NamedTuple):
    """Means of some seconds for the charts of a longer past."""

    wall_s: float
    seconds: float
    values: Mapping[str, float]


JudgedThing = tuple[Kind, str, Family]
"""Place of at most one verdict: kind and key of a thing, and the question that is asked."""


class Note(msgspec.Struct, frozen=True, array_like=True):
    """An entry of the log of verdicts."""

    wall_s: float
    whole: bool
    """All that stand, in place of what was noted before; else what changed since the entry before."""
    verdicts: tuple[Verdict, ...]
    """Verdicts that began, or are of another limit or level now, as they were told then."""
    over: tuple[JudgedThing, ...] = ()


class VerdictLog:
    """Changes of the verdicts at each tick: those that begin, change their level or end; now and then all."""

    def __init__(self, every_s: float = NOTED_S) -> None:
        """All that stand are noted every so many seconds, and first of all."""
        self._every_s = every_s
        self._noted: dict[JudgedThing, Verdict] = {}
        self._whole_s = -math.inf

    def renew(self) -> None:
        """The next note has all that stand."""
        self._whole_s = -math.inf

    def note(self, wall_s: float, verdicts: Iterable[Verdict]) -> Note | None:
        """The entry of a tick; None where nothing changed."""
        before = self._noted
        now = {thing_of(verdict): verdict for verdict in verdicts}
        self._noted = now
        if not 0.0 <= wall_s - self._whole_s < self._every_s:
            self._whole_s = wall_s
            return Note(wall_s, True, tuple(now.values()))
        begun = tuple(
            verdict for thing, verdict in now.items() if thing not in before or not same(before[thing], verdict)
        )
        over = tuple(thing for thing in before if thing not in now)
        if begun or over:
            return Note(wall_s, False, begun, over)
        return None


def thing_of(verdict: Verdict) -> JudgedThing:
    """The thing and the question of a verdict."""
    return verdict.kind, verdict.key, verdict.family


def same(one: Verdict, other: Verdict) -> bool:
    """Whether two verdicts on one thing say the same, as urgently."""
    return one.code is other.code and one.level is other.level


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

    def events(self, from_s: float, to_s: float) -> Sequence[Event]:
        """Events, oldest first."""

    def notes(self, from_s: float, to_s: float) -> Sequence[Note]:
        """Notes on the verdicts, oldest first; none if a past was kept without them."""


class PointsCell:
    """The points of one cell of `History`'s coarse tier."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._last_s = 0.0
        self._seconds = 0.0

    def ends(self, wall_s: float) -> bool:
        """Whether a tick of that time belongs to another cell."""
        return math.floor(wall_s / CELL_S) != math.floor(self._last_s / CELL_S)

    def add(self, wall_s: float, seconds: float, points: Mapping[str, float]) -> None:
        """Take in a tick, which stands for the seconds before it."""
        self._last_s = wall_s
        self._seconds += seconds
        for key, value in points.items():
            if value == value:  # a gap is NaN
                self._sums[key] = self._sums.get(key, 0.0) + value
                self._counts[key] = self._counts.get(key, 0) + 1

    def taken(self) -> Points | None:
        """The mean of what came since the last call; None where nothing came."""
        seconds = self._seconds
        self._seconds = 0.0
        means = {key: total / self._counts[key] for key, total in self._sums.items()}
        self._sums.clear()
        self._counts.clear()
        if seconds and means:
            return Points(self._last_s, seconds, means)
        return None

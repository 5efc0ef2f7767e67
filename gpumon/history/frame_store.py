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
"""Seconds between two notes of all verdicts that stand: who opens a moment looks back no further."""
SEGMENT_S: Final = 10.0
"""Seconds of a past that are worked out together, once one of their moments is looked at."""


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
    """Their end, as Unix time."""
    seconds: float
    values: Mapping[str, float]
    """Mean of each series; those that have none are left out."""


JudgedThing = tuple[Kind, str, Family]
"""Kind and key of a thing, and the question that is asked about it: at most one verdict stands on each."""


class Note(msgspec.Struct, frozen=True, array_like=True):
    """An entry of the log of verdicts."""

    wall_s: float
    whole: bool
    """Whether `verdicts` are all that stand; else they are what changed since the entry before."""
    verdicts: tuple[Verdict, ...]
    """Verdicts that began, or are of another limit or level now, as they were told then."""
    over: tuple[JudgedThing, ...] = ()
    """Things and questions on which no verdict stands any more."""


class VerdictLog:
    """Changes of the verdicts at each tick: those that begin, change their level or end; now and then all."""

    def __init__(self, every_s: float = NOTED_S) -> None:
        """`every_s`: seconds between two notes of all verdicts that stand. The first note is such a one."""
        self._every_s = every_s
        self._noted: dict[JudgedThing, Verdict] = {}
        """Verdicts of the tick before."""
        self._whole_s = -math.inf
        """Unix time at which all that stood were noted last."""

    def renew(self) -> None:
        """Let the next note have all verdicts that stand."""
        self._whole_s = -math.inf

    def note(self, wall_s: float, verdicts: Iterable[Verdict]) -> Note | None:
        """The entry of a tick; None where nothing changed."""
        before = self._noted
        now = {thing_of(verdict): verdict for verdict in verdicts}
        self._noted = now
        if not 0.0 <= wall_s - self._whole_s < self._every_s:  # below 0: the clock was set back
            self._whole_s = wall_s
            return Note(wall_s, whole=True, verdicts=tuple(now.values()))
        changed = [
            verdict
            for thing, verdict in now.items()
            if thing not in before or not is_same_verdict(before[thing], verdict)
        ]
        over = tuple(thing for thing in before if thing not in now)
        if changed or over:
            return Note(wall_s, whole=False, verdicts=tuple(changed), over=over)
        return None


def thing_of(verdict: Verdict) -> JudgedThing:
    """The thing and the question of a verdict."""
    return verdict.kind, verdict.key, verdict.family


def is_same_verdict(verdict: Verdict, other: Verdict) -> bool:
    """Whether two verdicts on one thing say the same, as urgently."""
    return verdict.code is other.code and verdict.level is other.level


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
        """Seconds that its ticks stand for."""

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

    def take(self) -> Points | None:
        """Take out the means of the ticks since the last call; None where there were none."""
        seconds = self._seconds
        self._seconds = 0.0
        means = {key: total / self._counts[key] for key, total in self._sums.items()}
        self._sums.clear()
        self._counts.clear()
        if seconds and means:
            return Points(self._last_s, seconds, means)
        return None

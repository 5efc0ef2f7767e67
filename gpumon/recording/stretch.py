"""A minute of a past, or a part of it, derived as far as it was looked at."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from operator import lt
from typing import Final

from gpumon.readings.frame import Frame
from gpumon.readings.history import History
from gpumon.recording.course import Course, Taken, in_order
from gpumon.recording.past import STRETCH_S, Cells, Past, Points

MINUTE_S: Final = 60.0
CHART_S: Final = 7200.0
"""Span of the longest chart."""


def number_of(wall_s: float) -> int:
    """Which of all stretches a time lies in."""
    return int(wall_s // STRETCH_S)


class Stretch:
    """The frames of `STRETCH_S`. What is derived of them stays, so that going to and fro is a look-up."""

    def __init__(self, past: Past, number: int, course: Course, before: Stretch | None) -> None:
        """`before`: the one before it, where `course` goes on from its end."""
        self.number = number
        self._past = past
        self._frames: list[Frame] = []
        self.walls: list[float] = []
        self.taken: list[Taken] = []
        self._before = before
        self._course: Course | None = course
        self._read()
        fresh = before is None and self.walls
        self._warming: Iterator[None] = course.begin(self.walls[0]) if fresh else iter(())
        self._history: History | None = None
        self._charted = 0

    @property
    def things(self) -> int:
        """GPUs and engines in all its frames: what it takes in memory goes with that."""
        return sum(1 + len(frame.gpus) + len(frame.engines) for frame in self._frames)

    def read_on(self) -> None:
        """Read frames that have come since: the past may go on."""
        next_s = self._past.after(self.walls[-1]) if self.walls else None
        if next_s is not None and number_of(next_s) == self.number:
            self._read()

    def _read(self) -> None:
        begin_s, end_s = self.number * STRETCH_S, (self.number + 1) * STRETCH_S
        newest_s = self.walls[-1] if self.walls else -1.0
        found = in_order(self._past.frames(max(begin_s, newest_s), end_s))
        self._frames += (frame for frame in found if newest_s < frame.wall_s < end_s)
        self.walls = [frame.wall_s for frame in self._frames]

    @property
    def spent(self) -> bool:
        """Another stretch goes on with its course: it takes no more frames."""
        return self._course is None

    def step(self) -> bool:
        """Derive one frame more; returns whether there was one."""
        if self._course is None or len(self.taken) == len(self._frames):
            return False
        if next(self._warming, True) is None:
            return True
        self.taken.append(self._course.take(self._frames[len(self.taken)]))
        return True

    def handed_on(self) -> Course | None:
        """Its course, for one that goes on from its end; None where that is not reached."""
        if not self.walls or len(self.taken) < len(self._frames):
            return None
        course, self._course = self._course, None
        return course

    def at(self, place: int) -> Taken:
        """The moment at a place."""
        while len(self.taken) <= place:
            self.step()
        return self.taken[place]

    def prepare(self) -> None:
        """Read what came before it, for the charts; in the thread."""
        if self._history is not None:
            return
        if self._before is not None:
            self._before.prepare()
            self._history = self._before._history
            return
        self._history = filled(self._past, self.walls[0])

    def history(self, place: int) -> History:
        """The charts up to a moment at least. In the event loop, where the charts are drawn from it."""
        assert self._history is not None, "not prepared"
        before, self._before = self._before, None
        if before is not None:
            before.history(len(before.taken) - 1)
        for taken in self.taken[self._charted : place + 1]:
            self._history.append(taken.wall_s, taken.points, taken.interval_s)
            for event in taken.snapshot.events:
                self._history.mark(event)
            self._charted += 1
        return self._history


def filled(past: Past, before_s: float) -> History:
    """A history with the points of the charts and the events before a time."""
    history = History()
    cells = [_until(each, before_s) for each in past.cells(before_s - CHART_S, before_s)]
    times = [at_s for each in cells for at_s in each.times]
    if all(map(lt, times, times[1:])):
        history.fill(times, [seconds for each in cells for seconds in each.seconds], _columns(cells))
    else:
        points = _forward(past.points(before_s - CHART_S, before_s))
        history.begin([(each.wall_s, each.seconds, each.values) for each in points if each.wall_s < before_s])
    for event in past.events(before_s - CHART_S, before_s):
        if event.wall_s < before_s:
            history.mark(event)
    return history


def _until(cells: Cells, before_s: float) -> Cells:
    """Those before a time."""
    count = bisect_left(cells.times, before_s)
    if count == len(cells.times):
        return cells
    return Cells(cells.times[:count], cells.seconds[:count], cells.keys, cells.values[: count * len(cells.keys)])


def _columns(cells: Sequence[Cells]) -> dict[str, array[float]]:
    """The values of each series at all times; NaN where it was not there."""
    keys = tuple(dict.fromkeys(key for each in dict.fromkeys(each.keys for each in cells) for key in each))
    parts = zip(*(_apart(keys, each) for each in cells), strict=True)
    return {key: array("f", b"".join(part)) for key, part in zip(keys, parts, strict=True)}


def _apart(keys: Sequence[str], cells: Cells) -> list[array[float]]:
    """The values of each of these series."""
    width, gap = len(cells.keys), array("f", [math.nan]) * len(cells.times)
    place = {key: at for at, key in enumerate(cells.keys)}
    return [cells.values[place[key] :: width] if key in place else gap for key in keys]


def _forward(points: Sequence[Points]) -> list[Points]:
    """Those after which none is earlier: a history forgets what came before a clock was set back."""
    found: list[Points] = []
    for each in reversed(points):
        if not found or each.wall_s < found[-1].wall_s:
            found.append(each)
    return found[::-1]

"""Going to and fro in a past, be it in memory or in a file: the moments of it, derived again."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

from gpumon.readings.history import History
from gpumon.readings.moment import Moment
from gpumon.recording.course import Course, Make
from gpumon.recording.past import STRETCH_S, Past
from gpumon.recording.stretch import MINUTE_S, Stretch, number_of
from gpumon.recording.worker import Worker

AHEAD: Final = round(MINUTE_S / STRETCH_S)
"""Stretches of a minute."""
MOST_STRETCHES: Final = 4 * AHEAD
MOST_THINGS: Final = 8000
"""GPUs and engines in the moments that are kept, all in all: some 4 kB each."""


class _Place(NamedTuple):
    stretch: Stretch
    at: int

    @property
    def wall_s(self) -> float:
        return self.stretch.walls[self.at]


class PastTimeline:
    """The `Timeline` of the screen over a past. Everything but `span` is worked out in a thread of its own.

    Moments are ordered by their time. After a clock was set back that is no longer the order in which they were taken:
    of several of one time only the newest is there, so that going on in one direction always comes to an end.
    """

    def __init__(self, past: Past, make: Make, write: Callable[[str], None], history: History | None = None) -> None:
        """`make` gives a fresh deriver and triage, `write` writes the past into a file.

        `history`: the charts of a past that is still going on; else they are filled from the past's own points.
        """
        self._past = past
        self._make = make
        self._write = write
        self._live = history
        self._span = past.span()
        self._stretches: OrderedDict[int, Stretch] = OrderedDict()
        self._turns = past.turns()
        self._travel = 1
        self._shown: int | None = None
        self._worker = Worker(self._ahead)

    def span(self) -> tuple[float, float] | None:
        """Unix times of the first and the last moment."""
        if self._live is not None:
            self._span = self._past.span()
        return self._span

    async def at(self, wall_s: float) -> Moment | None:
        """The last moment at or before a time; the first one where there is none."""
        return await self._moment(lambda: self._find(wall_s))

    async def step(self, wall_s: float, frames: int) -> Moment | None:
        """The moment so many frames after the one of `wall_s`; the last or first where it ends."""
        return await self._moment(lambda: self._moved(wall_s, frames))

    async def change(self, wall_s: float, step: int) -> Moment | None:
        """The next (1) or the previous (-1) moment at which something happened; None where there is none."""
        return await self._moment(lambda: self._changed(wall_s, step))

    async def write(self, path: str) -> None:
        """Write all that is kept into a new recording file. Raises OSError."""
        await Worker().call(lambda: self._write(path))

    async def _moment(self, find: Callable[[], _Place | None]) -> Moment | None:
        def derived() -> _Place | None:
            self._turn()
            place = find()
            self._span = self._past.span()
            if place is not None:
                place.stretch.at(place.at)
                if self._live is None:
                    place.stretch.prepare()
                self._look(place.stretch.number)
            return place

        place = await self._worker.call(derived)
        if place is None:
            return None
        history = self._live if self._live is not None else place.stretch.history(place.at)
        return Moment(place.stretch.taken[place.at].snapshot, history)

    def _turn(self) -> None:
        """Forget all moments where the clock went back: those of a time that came again are others now."""
        turns = self._past.turns()
        if turns != self._turns:
            self._turns = turns
            self._stretches.clear()

    def _find(self, wall_s: float) -> _Place | None:
        stretch = self._stretch(self._number(wall_s))
        if stretch is None or stretch.walls[0] > wall_s:
            span = self._past.span()
            earlier_s = self._past.before(wall_s)
            wall_s = earlier_s if earlier_s is not None else span[0] if span is not None else math.nan
            stretch = self._stretch(self._number(wall_s)) if span is not None else None
        if stretch is None:
            return None
        return _Place(stretch, max(0, bisect_right(stretch.walls, wall_s) - 1))

    def _moved(self, wall_s: float, frames: int) -> _Place | None:
        place = self._find(wall_s)
        if place is None:
            return None
        stretch, at = place.stretch, place.at + frames
        while not 0 <= at < len(stretch.walls):
            over = at >= len(stretch.walls)
            next_s = self._past.after(stretch.walls[-1]) if over else self._past.before(stretch.walls[0])
            if not over and next_s is not None:
                self._lead_to(self._number(next_s))
            other = None if next_s is None else self._stretch(self._number(next_s))
            if other is None or (other.number > stretch.number) is not over:
                at = len(stretch.walls) - 1 if over else 0
            else:
                at = at - len(stretch.walls) if over else at + len(other.walls)
                stretch = other
        return _Place(stretch, at)

    def _lead_to(self, number: int) -> None:
        """Work out the minute before a stretch: whoever goes back comes to all of it, and one warm-up does for it."""
        if number not in self._stretches:
            for each in range(number - number % AHEAD, number):
                stretch = self._stretch(each)
                if stretch is not None:
                    stretch.at(len(stretch.walls) - 1)

    def _changed(self, wall_s: float, step: int) -> _Place | None:
        span = self._past.span()
        if span is None:
            return None
        events = self._past.events(*((wall_s, span[1]) if step > 0 else (span[0], wall_s)))
        times = {event.wall_s for event in events}
        for at_s in sorted(times, reverse=step < 0):
            place = self._find(at_s)
            if place is not None and (place.wall_s - wall_s) * step > 0.0:
                return place
        return None

    def _stretch(self, number: int) -> Stretch | None:
        """A part of the past, where there are frames in it; its moments are derived when they are asked for."""
        found = self._stretches.pop(number, None)
        if found is not None:
            found.read_on()
        if found is None or (found.spent and len(found.taken) < len(found.walls)):
            before = self._stretches.get(number - 1)
            if before is not None:
                before.read_on()
            course = before.handed_on() if before is not None else None
            going_on = before if course is not None else None
            found = Stretch(self._past, number, course or Course(self._past, self._make), going_on)
        if not found.walls:
            return None
        self._stretches[number] = found
        return found

    def _look(self, number: int) -> None:
        """Note where the screen is and where it goes; forget what it has not looked at for longest."""
        if self._shown is not None and number != self._shown:
            self._travel = 1 if number > self._shown else -1
        self._shown = number
        while len(self._stretches) > 1 and (
            len(self._stretches) > MOST_STRETCHES or sum(each.things for each in self._stretches.values()) > MOST_THINGS
        ):
            self._stretches.popitem(last=False)

    def _ahead(self) -> bool:
        """One step of what may be asked for next: the rest of this minute, and the one after in the same direction."""
        here = self._stretches.get(self._shown) if self._shown is not None else None
        if here is None:
            return False
        if here.step():
            return True
        if sum(each.things for each in self._stretches.values()) > MOST_THINGS / 2:
            return False
        return any((known := self._next_to(here, away)) is not None and known.step() for away in range(1, AHEAD + 1))

    def _next_to(self, here: Stretch, away: int) -> Stretch | None:
        number = here.number + self._travel * away
        known = self._stretches.get(number)
        if known is None and len(self._stretches) < MOST_STRETCHES:
            edge = self._past.span()
            if edge is not None and self._number(edge[0]) <= number <= self._number(edge[1]):
                known = self._stretch(number)
                if known is not None:
                    self._stretches.move_to_end(here.number)
        return known

    def _number(self, wall_s: float) -> int:
        return number_of(wall_s)

"""The past of one host of a fleet, from range queries: for its charts, and to go to and fro in."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from gpumon.fleet.course import HostCourse, Make, Taken
from gpumon.readings.fleet import HostFrame
from gpumon.readings.history import History
from gpumon.readings.moment import Moment
from gpumon.readings.snapshot import Snapshot

CHART_S: Final = 1800.0
"""How far back charts are filled when a host is opened."""
AHEAD_S: Final = 600.0
"""How far a stretch goes beyond the moment that it was asked for."""
CHART_STEPS: Final = 120
"""Moments of that: a chart is hardly wider, and each costs some milliseconds while somebody waits."""
FINE_STEPS: Final = 60
"""The newest so many scrapes are taken one by one: windows and verdicts of now stand on them."""
WARM_S: Final = 180.0
"""Moments at a stretch's begin that only fill windows: rules look back so far."""
MOST_FRAMES: Final = 480
"""Before the moment: where scrapes are often, the charts go back less far."""
MOST_AHEAD: Final = 100
"""After it. Together they are fewer than one range query gives."""
MOST_STRETCHES: Final = 2
MOST_LOOKED: Final = 4
"""Stretches that are looked through for a change before there is said to be none."""
SLICE_S: Final = 0.01
"""The event loop gets its turn after so long."""


class HostSource(Protocol):
    """What tells of a host's past."""

    async def past(self, host: str, start_s: float, end_s: float, step_s: float) -> tuple[tuple[float, HostFrame], ...]:
        """The host at each step that it is known of, oldest first, with its time. Raises ApiFault."""


class Span(NamedTuple):
    """A part of a past, and how far its moments are apart."""

    start_s: float
    end_s: float
    step_s: float


def chart_spans(start_s: float, end_s: float, scrape_s: float) -> list[Span]:
    """What charts are filled from: the newest scrapes one by one, what was before as coarsely as charts show it."""
    step_s = max(scrape_s, CHART_S / CHART_STEPS)
    fine_s = max(start_s, end_s - FINE_STEPS * scrape_s)
    coarse = [Span(start_s, fine_s - step_s, step_s)] if fine_s - step_s > start_s and step_s > scrape_s else []
    return [*coarse, Span(fine_s if coarse else start_s, end_s, scrape_s)]


class Turns:
    """Lets the event loop have its turn in long work."""

    def __init__(self) -> None:
        self._since_s = time.monotonic()

    async def give(self) -> None:
        """Give way, if `SLICE_S` has passed since the last time."""
        if time.monotonic() - self._since_s >= SLICE_S:
            await asyncio.sleep(0)
            self._since_s = time.monotonic()


def named(snapshot: Snapshot, name: str) -> Snapshot:
    """The snapshot under the name that the fleet has for the host: its own gpumon may know another one."""
    if snapshot.host.name == name:
        return snapshot
    return msgspec.structs.replace(snapshot, host=msgspec.structs.replace(snapshot.host, name=name))


def charted(history: History, taken: Taken, interval_s: float) -> None:
    """Put a moment's points and events into a history."""
    history.append(taken.snapshot.wall_s, taken.points, interval_s)
    for event in taken.snapshot.events:
        history.mark(event)


class _Stretch(NamedTuple):
    """The moments around one that was asked for."""

    asked: tuple[float, float]
    """From where on its windows are full, and how far it was asked for."""
    walls: Sequence[float]
    taken: Sequence[Taken]
    history: History

    def holds(self, wall_s: float) -> bool:
        return self.asked[0] <= wall_s <= self.asked[1]

    def moment(self, place: int) -> Moment:
        return Moment(self.taken[place].snapshot, self.history)

    def changes(self) -> list[int]:
        """Places at which something happened."""
        first = bisect_right(self.walls, self.asked[0])
        return [at for at in range(max(1, first), len(self.walls)) if _differs(self.taken[at - 1], self.taken[at])]


class HostPast:
    """The `Timeline` of a host: each stretch of it is asked for once, and derived a moment at a time."""

    def __init__(
        self,
        name: str,
        source: HostSource,
        make: Make,
        span: Callable[[], tuple[float, float] | None],
        step_s: Callable[[], float],
        seen: Snapshot | None = None,
    ) -> None:
        """`span` tells what can be asked for, `step_s` how far scrapes are apart. `seen`: a moment that is known."""
        self._name = name
        self._source = source
        self._make = make
        self.span = span
        self._step_s = step_s
        self._seen = seen
        self._stretches: deque[_Stretch] = deque(maxlen=MOST_STRETCHES)
        self._one = asyncio.Lock()

    async def at(self, wall_s: float) -> Moment | None:
        """The last moment at or before a time; the first one of its stretch where there is none."""
        stretch = await self._stretch(wall_s)
        if stretch is not None:
            return stretch.moment(max(0, bisect_right(stretch.walls, wall_s) - 1))
        if self._seen is not None and abs(self._seen.wall_s - wall_s) <= self._step_s():
            return Moment(self._seen, History())
        return None

    async def step(self, wall_s: float, frames: int) -> Moment | None:
        """The moment so many scrapes after the one of `wall_s`; the last or first where it ends."""
        stretch = await self._stretch(wall_s)
        if stretch is None:
            return None
        place = bisect_right(stretch.walls, wall_s) - 1 + frames
        if 0 <= place < len(stretch.walls) and stretch.holds(stretch.walls[place]):
            return stretch.moment(place)
        return await self.at(wall_s + frames * self._step_s()) or stretch.moment(
            min(max(place, 0), len(stretch.walls) - 1)
        )

    async def change(self, wall_s: float, step: int) -> Moment | None:
        """The next (1) or the previous (-1) moment at which something happened; None where none is near."""
        at_s = wall_s
        for _ in range(MOST_LOOKED):
            stretch = await self._stretch(at_s)
            if stretch is None:
                return None
            found = [at for at in stretch.changes() if (stretch.walls[at] - wall_s) * step > 1e-3]
            if found:
                return stretch.moment(min(found) if step > 0 else max(found))
            at_s = stretch.asked[1] + self._step_s() if step > 0 else stretch.asked[0] - self._step_s()
            span = self.span()
            if span is None or not span[0] <= at_s <= span[1]:
                return None
        return None

    async def write(self, path: str) -> None:  # noqa: ARG002
        """Raises OSError: the Prometheus keeps it."""
        raise OSError("a fleet's past is in its Prometheus, and is not written into a recording")

    async def _stretch(self, wall_s: float) -> _Stretch | None:
        """The moments around a time; None where there are none."""
        async with self._one:
            span = self.span()
            if span is None:
                return None
            wall_s = min(max(wall_s, span[0]), span[1])
            found = next((stretch for stretch in self._stretches if stretch.holds(wall_s)), None)
            if found is None:
                found = await self._asked(wall_s, span[1])
                if found is not None:
                    self._stretches.append(found)
            return found

    async def _asked(self, wall_s: float, newest_s: float) -> _Stretch | None:
        step_s = self._step_s()
        start_s = wall_s - min(CHART_S, MOST_FRAMES * step_s)
        end_s = min(newest_s, wall_s + min(AHEAD_S, MOST_AHEAD * step_s))
        frames = await self._source.past(self._name, start_s, end_s, step_s)
        course, history, turns = HostCourse(self._make), History(), Turns()
        walls: list[float] = []
        taken: list[Taken] = []
        for at_s, frame in frames:
            one = course.take(frame, at_s, max(frame.interval_s, step_s))
            taken.append(one._replace(snapshot=named(one.snapshot, self._name)))
            walls.append(at_s)
            charted(history, taken[-1], step_s)
            await turns.give()
        return _Stretch((start_s + WARM_S, end_s), walls, taken, history) if walls else None


def _differs(before: Taken, now: Taken) -> bool:
    """Whether something happened; of what its own gpumon worked out events are not known, but verdicts are."""
    if now.snapshot.events:
        return True
    said = (
        {(verdict.key, verdict.family, verdict.limit) for verdict in one.snapshot.verdicts} for one in (before, now)
    )
    return next(said) != next(said)

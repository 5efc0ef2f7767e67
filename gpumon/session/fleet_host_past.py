"""The past of one host of a fleet: stretches of it are queried, and derived, when they are looked at."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from gpumon.fleet.pipeline import HostMoment, HostPipeline
from gpumon.readings.before_after import BeforeAfter
from gpumon.readings.history import History, PastMoment
from gpumon.readings.snapshot import Snapshot
from gpumon.readings.verdict import Family, Limit
from gpumon.readings.when import Stretch
from gpumon.session.yield_to_loop import YieldToLoop
from gpumon.sources.prometheus.api import ApiFault

if TYPE_CHECKING:
    from gpumon.session.live_fleet import LiveFleet

CHART_S: Final = 1800.0
"""Seconds of the past with which charts are filled when a host is opened."""
MOST_AHEAD_S: Final = 600.0
"""Seconds of the past that are read beyond the moment that was asked for."""
WARM_UP_S: Final = 180.0
"""Seconds at the begin of what was read that only fill windows: rules look back so far."""
_MOST_SCRAPES_BEFORE: Final = 480
"""Most scrapes that are read before the moment that was asked for: of very frequent ones charts go back less far."""
MOST_SCRAPES_AHEAD: Final = 100
"""Scrapes that are read beyond that moment. With those before it they are less than the 600 moments that one past of
`sources/prometheus` has at most: with more its step would be longer than a scrape."""
MOST_STRETCHES: Final = 2
"""Stretches of the past that are kept: the one on the screen, and the one before."""
MOST_SEARCHED: Final = 4
"""Stretches that are searched for a change before there is said to be none."""
_SAME_MOMENT_S: Final = 1e-3
"""Seconds within which a moment is the one from which a change is looked for, so that it is not the next change."""


def with_fleet_name(snapshot: Snapshot, name: str) -> Snapshot:
    """The snapshot under the name that the fleet has for the host: its own gpumon may know another one."""
    if snapshot.host.name == name:
        return snapshot
    return msgspec.structs.replace(snapshot, host=msgspec.structs.replace(snapshot.host, name=name))


def append_moment(history: History, moment: HostMoment, interval_s: float) -> None:
    """Append a moment's points and events to a history."""
    history.append(moment.snapshot.wall_s, moment.points, interval_s)
    for event in moment.snapshot.events:
        history.add_event(event)


def chart_step_s(fleet: LiveFleet, name: str) -> float:
    """Seconds between two scrapes of a host, at least 1; where they are not known, between two refreshes."""
    host = fleet.newest.host(name) if fleet.newest is not None else None
    return max(1.0, host.interval_s) if host is not None else fleet.interval_s


class _CachedStretch(NamedTuple):
    """The moments around one that was asked for, derived and kept."""

    span_s: tuple[float, float]
    """Unix times: from where on its windows are full, and up to where it was read."""
    walls: Sequence[float]
    """Unix time of each of the moments."""
    moments: Sequence[HostMoment]
    history: History
    """Series of these moments, for the charts."""

    def holds(self, wall_s: float) -> bool:
        """Whether a time is in the part of it whose windows are full."""
        return self.span_s[0] <= wall_s <= self.span_s[1]

    def moment(self, place: int) -> PastMoment:
        """The moment at a place in `moments`."""
        return PastMoment(self.moments[place].snapshot, self.history)

    def nearest_change(self, wall_s: float, step: int) -> int | None:
        """Place of the first moment after a time (`step` 1), or of the last one before it (-1), at which something
        happened.

        None where there is none. Moments whose windows are not full are left out.
        """
        first = max(1, bisect_right(self.walls, self.span_s[0]))
        places = range(first, len(self.walls))
        if step < 0:
            places = places[::-1]
        for place in places:
            is_beyond = (self.walls[place] - wall_s) * step > _SAME_MOMENT_S
            if is_beyond and _has_happened(self.moments[place - 1], self.moments[place]):
                return place
        return None


class FleetHostPast:
    """The `Timeline` of a host: each stretch of it is asked for once, and derived a moment at a time."""

    def __init__(self, name: str, fleet: LiveFleet, last_shown: Snapshot | None) -> None:
        """`last_shown`: a moment that is known without a query."""
        self._name = name
        self._fleet = fleet
        self._source = fleet.source
        self._make_deriver = fleet.make_deriver
        self._last_shown = last_shown
        self._stretches: deque[_CachedStretch] = deque(maxlen=MOST_STRETCHES)
        self._read_lock = asyncio.Lock()
        """Held while a stretch is read, so that two who ask for the same one read it once."""

    def span(self) -> tuple[float, float] | None:
        """Unix times of the first and the last moment that can be asked for."""
        return self._fleet.span()

    def _step_s(self) -> float:
        """Seconds between two scrapes of this host."""
        return chart_step_s(self._fleet, self._name)

    async def at(self, wall_s: float) -> PastMoment | None:
        """The last moment at or before a time; the first one of its stretch where there is none."""
        stretch = await self._stretch(wall_s)
        if stretch is not None:
            return stretch.moment(max(0, bisect_right(stretch.walls, wall_s) - 1))
        if self._last_shown is not None and abs(self._last_shown.wall_s - wall_s) <= self._step_s():
            return PastMoment(self._last_shown, History())
        return None

    async def step(self, wall_s: float, frames: int) -> PastMoment | None:
        """The moment so many scrapes after the one of `wall_s`; the last or first where it ends."""
        stretch = await self._stretch(wall_s)
        if stretch is None:
            return None
        place = bisect_right(stretch.walls, wall_s) - 1 + frames
        if 0 <= place < len(stretch.walls) and stretch.holds(stretch.walls[place]):
            return stretch.moment(place)
        beyond = await self.at(wall_s + frames * self._step_s())
        if beyond is not None:
            return beyond
        nearest = min(max(place, 0), len(stretch.walls) - 1)
        return stretch.moment(nearest)

    async def change(self, wall_s: float, step: int) -> PastMoment | None:
        """The next (1) or the previous (-1) moment at which something happened; None where none is near."""
        look_s = wall_s
        for _ in range(MOST_SEARCHED):
            stretch = await self._stretch(look_s)
            if stretch is None:
                return None
            place = stretch.nearest_change(wall_s, step)
            if place is not None:
                return stretch.moment(place)
            start_s, end_s = stretch.span_s
            look_s = end_s + self._step_s() if step > 0 else start_s - self._step_s()
            if not self._can_be_asked(look_s):
                return None
        return None

    def _can_be_asked(self, wall_s: float) -> bool:
        """Whether a time is within what can be asked for."""
        span = self.span()
        if span is None:
            return False
        first_s, last_s = span
        return first_s <= wall_s <= last_s

    async def compare(self, before_s: float, after_s: float) -> BeforeAfter:
        """Two spans that end at these times. Raises ValueError where they cannot be compared."""
        from gpumon.history.compared import USUAL_SPAN_S, spans_of
        from gpumon.session.compared import compare_hosts

        span = self.span()
        if span is None:
            raise ValueError("nothing is kept yet")
        spans = spans_of(Stretch(before_s, before_s), Stretch(after_s, after_s), USUAL_SPAN_S, Stretch(*span))
        try:
            return await compare_hosts(self._source, self._make_deriver, (self._name,), self._step_s(), spans)
        except ApiFault as fault:
            raise ValueError(f"prometheus: {fault.text}") from None

    def leave(self) -> None:
        """Nothing is let go of: each stretch costs queries, and few are kept."""

    def end_comparing(self) -> None:
        """Nothing to release: a Prometheus is asked anew each time."""

    async def write(self, path: str) -> None:  # noqa: ARG002 - the signature of Timeline
        """Raises OSError always: the Prometheus keeps the past."""
        raise OSError("a fleet's past is in its Prometheus, and is not written into a recording")

    async def _stretch(self, wall_s: float) -> _CachedStretch | None:
        """The moments around a time; None where there are none."""
        async with self._read_lock:
            span = self.span()
            if span is None:
                return None
            first_s, newest_s = span
            wall_s = min(max(wall_s, first_s), newest_s)
            for stretch in self._stretches:
                if stretch.holds(wall_s):
                    return stretch
            stretch_read = await self._read_stretch(wall_s, newest_s)
            if stretch_read is not None:
                self._stretches.append(stretch_read)
            return stretch_read

    async def _read_stretch(self, wall_s: float, newest_s: float) -> _CachedStretch | None:
        """Ask for the moments around a time, and derive them; None where there are none."""
        step_s = self._step_s()
        start_s = wall_s - min(CHART_S, _MOST_SCRAPES_BEFORE * step_s)
        end_s = min(newest_s, wall_s + min(MOST_AHEAD_S, MOST_SCRAPES_AHEAD * step_s))
        frames = await self._source.past(self._name, start_s, end_s, step_s)
        pipeline = HostPipeline(self._make_deriver)
        history = History()
        yielding = YieldToLoop()
        walls: list[float] = []
        moments: list[HostMoment] = []
        for at_s, frame in frames:
            # The step is that of the newest scrapes; in this frame the host may have been scraped less often.
            moment = pipeline.take(frame, at_s, max(frame.interval_s, step_s))
            moment = moment._replace(snapshot=with_fleet_name(moment.snapshot, self._name))
            moments.append(moment)
            walls.append(at_s)
            append_moment(history, moment, step_s)
            await yielding.if_due()
        if walls:
            return _CachedStretch((start_s + WARM_UP_S, end_s), walls, moments, history)
        return None


def _has_happened(before: HostMoment, now: HostMoment) -> bool:
    """Whether something happened between two moments.

    Where the host's own gpumon worked them out, they come without events: then verdicts tell.
    """
    if now.snapshot.events:
        return True
    return _standing_codes(before) != _standing_codes(now)


def _standing_codes(moment: HostMoment) -> set[tuple[str, Family, Limit]]:
    """The things of a moment that have verdicts, with the codes of these."""
    return {(verdict.key, verdict.family, verdict.code) for verdict in moment.snapshot.verdicts}

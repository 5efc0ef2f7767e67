"""One host of a fleet for the screen of one machine: its past from range queries, then what each refresh brings."""

from __future__ import annotations

import asyncio
import shlex
import socket
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from gpumon.efficiency.deriver import shown_fault
from gpumon.fleet.blank import without_figures
from gpumon.fleet.course import HostCourse, HostMoment
from gpumon.readings.before_after import BeforeAfter
from gpumon.readings.fleet import FleetFrame, HostFrame
from gpumon.readings.format import rfc3339
from gpumon.readings.frame import Fault
from gpumon.readings.history import History, PastMoment
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Engine, Snapshot
from gpumon.readings.text import clean
from gpumon.readings.verdict import Family, Limit
from gpumon.readings.when import Stretch
from gpumon.session.turns import Turns
from gpumon.sources.prometheus.api import ApiFault
from gpumon.sources.prometheus.past import together

if TYPE_CHECKING:
    from gpumon.session.live_fleet import LiveFleet
    from gpumon.tui.control import EngineLog, Playback, Timeline

_GONE: Final = "the Prometheus has nothing of this host any more: are its targets still scraped?"
_SAME_S: Final = 0.1
"""Two moments that are nearer to each other are one."""
_MOST_WAITING: Final = 8
"""Refreshes that are kept while the past is read."""
_UNREACHABLE: Final = Missing(Reason.UNREACHABLE)
_STALE: Final = Missing(Reason.STALE)
_CHART_S: Final = 1800.0
"""How far back charts are filled when a host is opened."""
AHEAD_S: Final = 600.0
"""How far a stretch goes beyond the moment that it was asked for."""
CHART_STEPS: Final = 120
"""Moments of that: a chart is hardly wider, and each costs some milliseconds while somebody waits."""
FINE_STEPS: Final = 60
"""The newest so many scrapes are taken one by one: windows and verdicts of now stand on them."""
WARM_S: Final = 180.0
"""Moments at a stretch's begin that only fill windows: rules look back so far."""
_MOST_FRAMES: Final = 480
"""Before the moment: where scrapes are often, the charts go back less far."""
MOST_AHEAD: Final = 100
"""After it. Together they are fewer than one range query gives."""
MOST_STRETCHES: Final = 2
MOST_LOOKED: Final = 4
"""Stretches that are looked through for a change before there is said to be none."""


class Span(NamedTuple):
    """A part of a past, and how far its moments are apart."""

    start_s: float
    end_s: float
    step_s: float


def chart_spans(start_s: float, end_s: float, scrape_s: float) -> list[Span]:
    """Spans that fill the charts: the newest scrapes one by one, older ones as coarsely as charts show them."""
    step_s = max(scrape_s, _CHART_S / CHART_STEPS)
    fine_s = max(start_s, end_s - FINE_STEPS * scrape_s)
    if fine_s - step_s > start_s and step_s > scrape_s:
        coarse = [Span(start_s, fine_s - step_s, step_s)]
    else:
        coarse = []
    return [*coarse, Span(fine_s if coarse else start_s, end_s, scrape_s)]


def with_fleet_name(snapshot: Snapshot, name: str) -> Snapshot:
    """The snapshot under the name that the fleet has for the host: its own gpumon may know another one."""
    if snapshot.host.name == name:
        return snapshot
    return msgspec.structs.replace(snapshot, host=msgspec.structs.replace(snapshot.host, name=name))


def charted(history: History, moment: HostMoment, interval_s: float) -> None:
    """Put a moment's points and events into a history."""
    history.append(moment.snapshot.wall_s, moment.points, interval_s)
    for event in moment.snapshot.events:
        history.mark(event)


class _Stretch(NamedTuple):
    """The moments around one that was asked for."""

    span_s: tuple[float, float]
    """From where on its windows are full, and how far it was asked for."""
    walls: Sequence[float]
    moments: Sequence[HostMoment]
    history: History

    def holds(self, wall_s: float) -> bool:
        return self.span_s[0] <= wall_s <= self.span_s[1]

    def moment(self, place: int) -> PastMoment:
        return PastMoment(self.moments[place].snapshot, self.history)

    def changes(self) -> list[int]:
        """Places at which something happened."""
        first = bisect_right(self.walls, self.span_s[0])
        changes = []
        for at in range(max(1, first), len(self.walls)):
            if _differs(self.moments[at - 1], self.moments[at]):
                changes.append(at)
        return changes


class FleetHostPast:
    """The `Timeline` of a host: each stretch of it is asked for once, and derived a moment at a time."""

    def __init__(self, name: str, fleet: LiveFleet, seen: Snapshot | None) -> None:
        """`seen`: a moment that is known."""
        self._name = name
        self._fleet = fleet
        self._source = fleet.source
        self._make = fleet.make
        self.span = fleet.span
        self._seen = seen
        self._stretches: deque[_Stretch] = deque(maxlen=MOST_STRETCHES)
        self._one = asyncio.Lock()

    def _step_s(self) -> float:
        return chart_step_s(self._fleet, self._name)

    async def at(self, wall_s: float) -> PastMoment | None:
        """The last moment at or before a time; the first one of its stretch where there is none."""
        stretch = await self._stretch(wall_s)
        if stretch is not None:
            return stretch.moment(max(0, bisect_right(stretch.walls, wall_s) - 1))
        if self._seen is not None and abs(self._seen.wall_s - wall_s) <= self._step_s():
            return PastMoment(self._seen, History())
        return None

    async def step(self, wall_s: float, frames: int) -> PastMoment | None:
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

    async def change(self, wall_s: float, step: int) -> PastMoment | None:
        """The next (1) or the previous (-1) moment at which something happened; None where none is near."""
        at_s = wall_s
        for _ in range(MOST_LOOKED):
            stretch = await self._stretch(at_s)
            if stretch is None:
                return None
            found = []
            for at in stretch.changes():
                if (stretch.walls[at] - wall_s) * step > 1e-3:
                    found.append(at)
            if found:
                return stretch.moment(min(found) if step > 0 else max(found))
            at_s = stretch.span_s[1] + self._step_s() if step > 0 else stretch.span_s[0] - self._step_s()
            span = self.span()
            if span is None or not span[0] <= at_s <= span[1]:
                return None
        return None

    async def compare(self, before_s: float, after_s: float) -> BeforeAfter:
        """Two spans that end at these times. Raises ValueError where they cannot be compared."""
        from gpumon.history.compared import USUAL_SPAN_S, spans_of
        from gpumon.session.compared import compared_hosts

        held = self.span()
        if held is None:
            raise ValueError("nothing is kept yet")
        moments = (Stretch(before_s, before_s), Stretch(after_s, after_s))
        spans = spans_of(*moments, USUAL_SPAN_S, Stretch(*held))
        try:
            return await compared_hosts(self._source, self._make, (self._name,), self._step_s(), spans)
        except ApiFault as fault:
            raise ValueError(f"prometheus: {fault.text}") from None

    def end_comparing(self) -> None:
        """A Prometheus is asked anew each time."""

    async def write(self, path: str) -> None:  # noqa: ARG002 - the signature of Timeline
        """Raises OSError: the Prometheus keeps it."""
        raise OSError("a fleet's past is in its Prometheus, and is not written into a recording")

    async def _stretch(self, wall_s: float) -> _Stretch | None:
        """The moments around a time; None where there are none."""
        async with self._one:
            span = self.span()
            if span is None:
                return None
            wall_s = min(max(wall_s, span[0]), span[1])
            stretch_there = next((stretch for stretch in self._stretches if stretch.holds(wall_s)), None)
            if stretch_there is None:
                stretch_there = await self._read_stretch(wall_s, span[1])
                if stretch_there is not None:
                    self._stretches.append(stretch_there)
            return stretch_there

    async def _read_stretch(self, wall_s: float, newest_s: float) -> _Stretch | None:
        step_s = self._step_s()
        start_s = wall_s - min(_CHART_S, _MOST_FRAMES * step_s)
        end_s = min(newest_s, wall_s + min(AHEAD_S, MOST_AHEAD * step_s))
        frames = await self._source.past(self._name, start_s, end_s, step_s)
        course = HostCourse(self._make)
        history = History()
        turns = Turns()
        walls: list[float] = []
        moments: list[HostMoment] = []
        for at_s, frame in frames:
            one = course.take(frame, at_s, max(frame.interval_s, step_s))
            moments.append(one._replace(snapshot=with_fleet_name(one.snapshot, self._name)))
            walls.append(at_s)
            charted(history, moments[-1], step_s)
            await turns.give()
        if walls:
            return _Stretch((start_s + WARM_S, end_s), walls, moments, history)
        return None


def _differs(before: HostMoment, now: HostMoment) -> bool:
    """Whether something happened; of what its own gpumon worked out events are not known, but verdicts are."""
    if now.snapshot.events:
        return True
    return _standing_codes(before) != _standing_codes(now)


def _standing_codes(moment: HostMoment) -> set[tuple[str, Family, Limit]]:
    """The things of a moment that have verdicts, with the codes of these."""
    return {(verdict.key, verdict.family, verdict.code) for verdict in moment.snapshot.verdicts}


class HostOfFleet:
    """The snapshots of one host (`HostSource`). It may be begun again: what it has of the past it keeps."""

    playback: Playback | None = None

    def __init__(self, name: str, fleet: LiveFleet, seen: Snapshot | None) -> None:
        """`seen`: as it was shown last, for where the newest answer and its past have nothing of it."""
        self.history = History()
        self.timeline: Timeline | None = FleetHostPast(name, fleet, seen)
        self.filling = False
        self._name = name
        self._fleet = fleet
        self._source = fleet.source
        self._course = HostCourse(fleet.make)
        self._waiting: deque[FleetFrame] = deque(maxlen=_MOST_WAITING)
        self._wake = asyncio.Event()
        self._last: Snapshot | None = None
        self._seen = seen
        self._show: Callable[[Snapshot], None] = _nobody
        self._learn: Callable[[Snapshot], None] = _nobody
        self._charted_s = float("-inf")
        self._taken_s = self._charted_s
        self._fault: Fault | None = None
        """Why the past could not be had."""

    @property
    def interval_s(self) -> float:
        """Seconds between two refreshes of the fleet."""
        return self._fleet.interval_s

    def set_interval(self, seconds: float) -> None:
        """Change that, of the whole fleet."""
        self._fleet.set_interval(seconds)

    def refresh(self) -> None:
        """Ask for the whole fleet now."""
        self._fleet.refresh()

    def engine_log(self, engine: Engine) -> EngineLog | str:
        """The log of an engine where the host is this one; else the command to run there."""
        if self._name.partition(".")[0] == socket.gethostname().partition(".")[0]:
            from gpumon.sources.engine_log.log import EngineLogReader, serving_origin

            return EngineLogReader(lambda: serving_origin(engine.url))
        host = shlex.quote(clean(self._name))
        command = ""
        if engine.departure:
            command = clean(engine.departure[0].log)
        if command.startswith("kubectl"):
            return f"the log of {engine.name} is shown by: {command}"
        if command:
            return f"the log of {engine.name} is on another host: ssh {host} {command}"
        return f"the log of {engine.name} is on another host: ssh -t {host} gpumon, then its log there"

    async def begin(self, show: Callable[[Snapshot], None], learn: Callable[[Snapshot], None]) -> None:
        """Show what is known of it at once."""
        self._show = show
        self._learn = learn
        self._fault = None
        self.filling = True
        self._waiting.clear()
        self._fleet.follow(self._name, self._offer)
        shown = self._fleet.snapshot.host(self._name)
        if shown is not None:
            self._last = shown.snapshot
            show(self._told(shown.snapshot))
        elif self._seen is not None:
            self._last = _gone(self._seen, self._fleet.snapshot.wall_s, self._seen.wall_s)
            show(self._told(self._last))

    async def end(self) -> None:
        """Let go of the host."""
        self._show = _nobody
        self._fleet.leave(self._offer)

    def _offer(self, frame: FleetFrame) -> None:
        """An answer waits for the past; that there is none is said at once, as the past may hang, too."""
        if frame.answered:
            self._waiting.append(frame)
            self._wake.set()
        elif self._last is not None:
            self._show(self._told(self._last))

    async def run(self) -> None:
        """Show it with its past, then as refreshes come."""
        newest = self._fleet.newest
        if newest is not None:
            await self._read_past(newest.wall_s)
            self.filling = False
            self._waiting.appendleft(newest)
            self._wake.set()
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                snapshot = self._take(self._waiting.popleft())
                if snapshot is not None:
                    self._show(self._told(snapshot))

    async def _read_past(self, end_s: float) -> None:
        """Fill the charts, the windows, and what verdicts stand on."""
        turns = Turns()
        spans = chart_spans(max(end_s - _CHART_S, self._taken_s), end_s, chart_step_s(self._fleet, self._name))
        try:
            found = await together(*(self._source.past(self._name, *span) for span in spans))
        except ApiFault as fault:
            self._fault = Fault("past", f"the charts begin now: {fault.text}", end_s)
            return
        for span, frames in zip(spans, found, strict=True):
            for at_s, host in frames:
                self._add(host, at_s, span.step_s)
                await turns.give()

    def _take(self, frame: FleetFrame) -> Snapshot | None:
        """The snapshot after an answer; None where nothing is new in it."""
        if frame.wall_s < self._taken_s:
            return None
        host = _of(frame, self._name)
        if host is not None:
            self._add(host, frame.wall_s, self._fleet.interval_s)
        elif self._last is not None:
            self._last = _gone(self._last, frame.wall_s, self._taken_s if self._taken_s > 0.0 else frame.wall_s)
        return self._last

    def _add(self, host: HostFrame, wall_s: float, interval_s: float) -> None:
        """One moment of it, in their order."""
        if wall_s <= self._taken_s + _SAME_S:  # the past ends with the newest answer, and has more of it
            return
        self._taken_s = wall_s
        moment = self._course.take(host, wall_s, max(host.interval_s, interval_s))
        self._last = moment.snapshot
        if moment.points and moment.snapshot.wall_s > self._charted_s:
            self._charted_s = moment.snapshot.wall_s
            charted(self.history, moment, max(host.interval_s, interval_s))
        self._learn(moment.snapshot)

    def _told(self, last: Snapshot) -> Snapshot:
        """A snapshot of it as it may be shown now: without figures once the Prometheus was silent for too long, and
        with what is wrong with that beside its own faults."""
        fleet = self._fleet.snapshot
        said = () if fleet.answered else fleet.faults
        own = last.faults
        if self._fault is not None:
            own = (*own, shown_fault(self._fault.source, self._fault.text, self._fault.since_wall_s))
        if fleet.late:
            shown = without_figures(last, _STALE, self._fleet.silent_s)
        else:
            shown = last
        return msgspec.structs.replace(with_fleet_name(shown, self._name), faults=(*said, *own))


def _nobody(snapshot: Snapshot) -> None:
    """Takes what nobody waits for."""


def _gone(last: Snapshot, wall_s: float, since_s: float) -> Snapshot:
    """A host that the Prometheus has nothing of at `wall_s`, and had until `since_s`."""
    return msgspec.structs.replace(
        without_figures(last, _UNREACHABLE),
        wall_s=wall_s,
        time=rfc3339(wall_s),
        faults=(shown_fault("prometheus", _GONE, since_s),),
    )


def chart_step_s(fleet: LiveFleet, name: str) -> float:
    """Seconds between two scrapes of a host."""
    host = None
    if fleet.newest is not None:
        host = _of(fleet.newest, name)
    if host is not None:
        return max(1.0, host.interval_s)
    return fleet.interval_s


def _of(frame: FleetFrame, name: str) -> HostFrame | None:
    return next((host for host in frame.hosts if host.name == name), None)

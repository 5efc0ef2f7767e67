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
from gpumon.fleet.pipeline import HostMoment, HostPipeline
from gpumon.readings.before_after import BeforeAfter
from gpumon.readings.fleet import FleetFrame, HostFrame
from gpumon.readings.format import rfc3339
from gpumon.readings.frame import Fault
from gpumon.readings.history import History, PastMoment
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Engine, FaultShown, Snapshot
from gpumon.readings.text import clean
from gpumon.readings.verdict import Family, Limit
from gpumon.readings.when import Stretch
from gpumon.session.turns import YieldToLoop
from gpumon.sources.prometheus.api import ApiFault
from gpumon.sources.prometheus.past import gather_queries

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
"""Seconds of the past with which charts are filled when a host is opened."""
CHART_STEPS: Final = 120
"""Moments in these seconds: a chart is hardly wider, and each costs some milliseconds while somebody waits."""
FINE_STEPS: Final = 60
"""Newest scrapes that are taken one by one: windows and verdicts of now stand on them."""
AHEAD_S: Final = 600.0
"""Seconds of the past that are read beyond the moment that was asked for."""
WARM_S: Final = 180.0
"""Seconds at the begin of what was read that only fill windows: rules look back so far."""
_MOST_BEFORE: Final = 480
"""Scrapes that are read before the moment that was asked for: where they are often, charts go back less far."""
MOST_AHEAD: Final = 100
"""Scrapes that are read beyond that moment. With those before it they are fewer than one range query gives."""
MOST_STRETCHES: Final = 2
"""Stretches of the past that are kept: the one on the screen, and the one before."""
MOST_LOOKED: Final = 4
"""Stretches that are looked through for a change before there is said to be none."""
_MOVED_S: Final = 1e-3
"""A moment that is not further than this from where one stands is where one stands: it is no next change."""


class QuerySpan(NamedTuple):
    """The span of one range query, in Unix times, and the seconds between its moments."""

    start_s: float
    end_s: float
    step_s: float


def chart_spans(start_s: float, end_s: float, scrape_s: float) -> list[QuerySpan]:
    """Spans that fill the charts: the newest scrapes one by one, older ones as coarsely as charts show them."""
    step_s = max(scrape_s, _CHART_S / CHART_STEPS)
    fine_s = max(start_s, end_s - FINE_STEPS * scrape_s)
    if fine_s - step_s > start_s and step_s > scrape_s:
        return [QuerySpan(start_s, fine_s - step_s, step_s), QuerySpan(fine_s, end_s, scrape_s)]
    return [QuerySpan(start_s, end_s, scrape_s)]


def with_fleet_name(snapshot: Snapshot, name: str) -> Snapshot:
    """The snapshot under the name that the fleet has for the host: its own gpumon may know another one."""
    if snapshot.host.name == name:
        return snapshot
    return msgspec.structs.replace(snapshot, host=msgspec.structs.replace(snapshot.host, name=name))


def append_moment(history: History, moment: HostMoment, interval_s: float) -> None:
    """Append a moment's points and events to a history."""
    history.append(moment.snapshot.wall_s, moment.points, interval_s)
    for event in moment.snapshot.events:
        history.mark(event)


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

    def changes(self) -> list[int]:
        """Places at which something happened."""
        first = bisect_right(self.walls, self.span_s[0])
        changes = []
        for place in range(max(1, first), len(self.walls)):
            if _differs(self.moments[place - 1], self.moments[place]):
                changes.append(place)
        return changes


class FleetHostPast:
    """The `Timeline` of a host: each stretch of it is asked for once, and derived a moment at a time."""

    def __init__(self, name: str, fleet: LiveFleet, last_shown: Snapshot | None) -> None:
        """`last_shown`: a moment that is known without a query."""
        self._name = name
        self._fleet = fleet
        self._source = fleet.source
        self._make = fleet.make
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
        at_s = wall_s
        for _ in range(MOST_LOOKED):
            stretch = await self._stretch(at_s)
            if stretch is None:
                return None
            places = []
            for place in stretch.changes():
                if (stretch.walls[place] - wall_s) * step > _MOVED_S:
                    places.append(place)
            if places and step > 0:
                return stretch.moment(min(places))
            if places:
                return stretch.moment(max(places))
            start_s, end_s = stretch.span_s
            if step > 0:
                at_s = end_s + self._step_s()
            else:
                at_s = start_s - self._step_s()
            span = self.span()
            if span is None or not span[0] <= at_s <= span[1]:
                return None
        return None

    async def compare(self, before_s: float, after_s: float) -> BeforeAfter:
        """Two spans that end at these times. Raises ValueError where they cannot be compared."""
        from gpumon.history.compared import USUAL_SPAN_S, spans_of
        from gpumon.session.compared import compare_hosts

        kept = self.span()
        if kept is None:
            raise ValueError("nothing is kept yet")
        spans = spans_of(Stretch(before_s, before_s), Stretch(after_s, after_s), USUAL_SPAN_S, Stretch(*kept))
        try:
            return await compare_hosts(self._source, self._make, (self._name,), self._step_s(), spans)
        except ApiFault as fault:
            raise ValueError(f"prometheus: {fault.text}") from None

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
        start_s = wall_s - min(_CHART_S, _MOST_BEFORE * step_s)
        end_s = min(newest_s, wall_s + min(AHEAD_S, MOST_AHEAD * step_s))
        frames = await self._source.past(self._name, start_s, end_s, step_s)
        pipeline = HostPipeline(self._make)
        history = History()
        yielding = YieldToLoop()
        walls: list[float] = []
        moments: list[HostMoment] = []
        for at_s, frame in frames:
            moment = pipeline.take(frame, at_s, max(frame.interval_s, step_s))
            moment = moment._replace(snapshot=with_fleet_name(moment.snapshot, self._name))
            moments.append(moment)
            walls.append(at_s)
            append_moment(history, moment, step_s)
            await yielding.if_due()
        if walls:
            return _CachedStretch((start_s + WARM_S, end_s), walls, moments, history)
        return None


def _differs(before: HostMoment, now: HostMoment) -> bool:
    """Whether something happened between two moments.

    Where the host's own gpumon worked them out, they come without events: then verdicts tell.
    """
    if now.snapshot.events:
        return True
    return _standing_codes(before) != _standing_codes(now)


def _standing_codes(moment: HostMoment) -> set[tuple[str, Family, Limit]]:
    """The things of a moment that have verdicts, with the codes of these."""
    return {(verdict.key, verdict.family, verdict.code) for verdict in moment.snapshot.verdicts}


class HostOfFleet:
    """The snapshots of one host (`HostSource`). It may be begun again: what it has of the past it keeps."""

    playback: Playback | None = None

    def __init__(self, name: str, fleet: LiveFleet, last_shown: Snapshot | None) -> None:
        """`last_shown`: the host as it was shown last, for where the newest answer and its past have nothing of it."""
        self.history = History()
        self.timeline: Timeline | None = FleetHostPast(name, fleet, last_shown)
        self.filling = False
        self._name = name
        self._fleet = fleet
        self._source = fleet.source
        self._pipeline = HostPipeline(fleet.make)
        self._waiting: deque[FleetFrame] = deque(maxlen=_MOST_WAITING)
        """Answers that are not derived yet, the oldest first."""
        self._wake = asyncio.Event()
        self._last: Snapshot | None = None
        """The newest snapshot, as it was derived."""
        self._last_shown = last_shown
        self._show: Callable[[Snapshot], None] = _ignore
        self._learn: Callable[[Snapshot], None] = _ignore
        self._taken_s = float("-inf")
        """Unix time of the newest moment that was derived."""
        self._charted_s = float("-inf")
        """Unix time of the newest snapshot in the history. It is no scrape's if the host's own gpumon made it."""
        self._past_fault: Fault | None = None
        """Why the past could not be had."""

    @property
    def interval_s(self) -> float:
        """Seconds between two refreshes of the fleet."""
        return self._fleet.interval_s

    def set_interval(self, seconds: float) -> None:
        """Change the seconds between two refreshes of the whole fleet."""
        self._fleet.set_interval(seconds)

    def refresh(self) -> None:
        """Refresh the whole fleet now."""
        self._fleet.refresh()

    def engine_log(self, engine: Engine) -> EngineLog | str:
        """The log of an engine if the fleet's host is this machine; else the command that shows it there."""
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
        """Follow the host, and show at once what is known of it."""
        self._show = show
        self._learn = learn
        self._past_fault = None
        self.filling = True
        self._waiting.clear()
        self._fleet.follow(self._name, self._offer)
        shown = self._fleet.snapshot.host(self._name)
        if shown is not None:
            self._last = shown.snapshot
            show(self._as_shown_now(self._last))
        elif self._last_shown is not None:
            self._last = _gone(self._last_shown, self._fleet.snapshot.wall_s, self._last_shown.wall_s)
            show(self._as_shown_now(self._last))

    async def end(self) -> None:
        """Follow the host no more."""
        self._show = _ignore
        self._fleet.leave(self._offer)

    def _offer(self, frame: FleetFrame) -> None:
        """Queue an answer until the past is read; show a failure at once, as reading the past may hang, too."""
        if frame.answered:
            self._waiting.append(frame)
            self._wake.set()
        elif self._last is not None:
            self._show(self._as_shown_now(self._last))

    async def run(self) -> None:
        """Show the host with its past, then as refreshes come."""
        newest = self._fleet.newest
        if newest is not None:
            await self._read_past(newest.wall_s)
            self._waiting.appendleft(newest)
            self._wake.set()
        self.filling = False  # without any answer there is no past to ask for: the charts begin with the first one
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                snapshot = self._take(self._waiting.popleft())
                if snapshot is not None:
                    self._show(self._as_shown_now(snapshot))

    async def _read_past(self, end_s: float) -> None:
        """Fill the charts, the windows, and what verdicts stand on."""
        yielding = YieldToLoop()
        spans = chart_spans(max(end_s - _CHART_S, self._taken_s), end_s, chart_step_s(self._fleet, self._name))
        try:
            pasts = await gather_queries(*(self._source.past(self._name, *span) for span in spans))
        except ApiFault as fault:
            self._past_fault = Fault("past", f"the charts begin now: {fault.text}", end_s)
            return
        for span, frames in zip(spans, pasts, strict=True):
            for at_s, host in frames:
                self._add(host, at_s, span.step_s)
                await yielding.if_due()

    def _take(self, frame: FleetFrame) -> Snapshot | None:
        """The snapshot after an answer; None where nothing is new in it."""
        if frame.wall_s < self._taken_s:
            return None
        host = _host_named(frame, self._name)
        if host is not None:
            self._add(host, frame.wall_s, self._fleet.interval_s)
        elif self._last is not None:
            since_s = frame.wall_s
            if self._taken_s > 0.0:  # it was in an answer before
                since_s = self._taken_s
            self._last = _gone(self._last, frame.wall_s, since_s)
        return self._last

    def _add(self, host: HostFrame, wall_s: float, interval_s: float) -> None:
        """Derive one moment of the host and chart it; moments that are not newer than the last one are skipped."""
        if wall_s <= self._taken_s + _SAME_S:  # the past ends with the newest answer, and has more of it
            return
        self._taken_s = wall_s
        moment = self._pipeline.take(host, wall_s, max(host.interval_s, interval_s))
        self._last = moment.snapshot
        if moment.points and moment.snapshot.wall_s > self._charted_s:
            self._charted_s = moment.snapshot.wall_s
            append_moment(self.history, moment, max(host.interval_s, interval_s))
        self._learn(moment.snapshot)

    def _as_shown_now(self, last: Snapshot) -> Snapshot:
        """A snapshot of the host as it may be shown now: with the faults of the fleet and of its past beside its own,
        and without figures once the Prometheus was silent for too long."""
        fleet = self._fleet.snapshot
        fleet_faults: tuple[FaultShown, ...] = ()
        if not fleet.answered:
            fleet_faults = fleet.faults
        own_faults = last.faults
        past = self._past_fault
        if past is not None:
            own_faults = (*own_faults, shown_fault(past.source, past.text, past.since_wall_s))
        shown = with_fleet_name(last, self._name)
        if fleet.late:
            shown = without_figures(shown, _STALE, self._fleet.silent_s)
        return msgspec.structs.replace(shown, faults=(*fleet_faults, *own_faults))


def _ignore(snapshot: Snapshot) -> None:
    """Take a snapshot that nobody waits for."""


def _gone(last: Snapshot, wall_s: float, since_s: float) -> Snapshot:
    """The snapshot of a vanished host: that the Prometheus has nothing of at `wall_s`, and had something until
    `since_s`."""
    return msgspec.structs.replace(
        without_figures(last, _UNREACHABLE),
        wall_s=wall_s,
        time=rfc3339(wall_s),
        faults=(shown_fault("prometheus", _GONE, since_s),),
    )


def chart_step_s(fleet: LiveFleet, name: str) -> float:
    """Seconds between two scrapes of a host, at least 1; where they are not known, between two refreshes."""
    host = None
    if fleet.newest is not None:
        host = _host_named(fleet.newest, name)
    if host is not None:
        return max(1.0, host.interval_s)
    return fleet.interval_s


def _host_named(frame: FleetFrame, name: str) -> HostFrame | None:
    """The host of a name in a frame; None if it has none."""
    return next((host for host in frame.hosts if host.name == name), None)

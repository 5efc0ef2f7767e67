"""One host of a fleet for the screen of one machine: its past from range queries, then what each refresh brings."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from gpumon.config.schema import Config
from gpumon.fleet.blank import without_figures
from gpumon.fleet.course import HostCourse, Make
from gpumon.fleet.fleet import shown_fault
from gpumon.fleet.snapshot import FleetSnapshot
from gpumon.fleetpast import CHART_S, HostPast, HostSource, Turns, chart_spans, charted, named
from gpumon.onlooker import Onlooker
from gpumon.readings.fleet import FleetFrame, HostFrame
from gpumon.readings.frame import Fault
from gpumon.readings.history import History
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Snapshot
from gpumon.readings.times import rfc3339
from gpumon.sources.prometheus.api import ApiFault
from gpumon.sources.prometheus.past import together

if TYPE_CHECKING:
    from gpumon.sizing.calibration import Calibration
    from gpumon.sizing.scenario import Known
    from gpumon.tui.control import Playback, Timeline

GONE: Final = "the Prometheus has nothing of this host any more: are its targets still scraped?"
SAME_S: Final = 0.1
"""Two moments that are nearer to each other are one."""
MOST_WAITING: Final = 8
"""Refreshes that are kept while the past is read."""
_UNREACHABLE: Final = Missing(Reason.UNREACHABLE)
_STALE: Final = Missing(Reason.STALE)


class Feed(Protocol):
    """The fleet that a host is one of."""

    snapshot: FleetSnapshot
    """The newest."""
    newest: FleetFrame | None
    """The newest answer with hosts."""

    @property
    def interval_s(self) -> float:
        """Seconds between two refreshes."""

    @property
    def silent_s(self) -> float:
        """Seconds since the moment of the newest answer."""

    def set_interval(self, seconds: float) -> None:
        """Change the time between two refreshes."""

    def refresh(self) -> None:
        """Ask now."""

    def span(self) -> tuple[float, float] | None:
        """Unix times of the first and the last moment that can be asked for."""

    def follow(self, host: str, take: Callable[[FleetFrame], None]) -> None:
        """Give every answer to `take`, which never blocks; from now on with all that there is of this host."""

    def leave(self, take: Callable[[FleetFrame], None]) -> None:
        """Give it no more."""


class HostControl:
    """A `Control` (`tui.control`). It may be started again after `stop`: what it has of the past it keeps."""

    def __init__(
        self, name: str, feed: Feed, source: HostSource, make: Make, config: Config, seen: Snapshot | None = None
    ) -> None:
        """`seen`: as it was shown last, for where the newest answer and its past have nothing of it."""
        self.history = History()
        self.playback: Playback | None = None
        self.timeline: Timeline | None = HostPast(name, source, make, feed.span, self._step_s, seen)
        self._name = name
        self._feed = feed
        self._source = source
        self._course = HostCourse(make)
        self._onlooker = Onlooker(config)
        self._waiting: deque[FleetFrame] = deque(maxlen=MOST_WAITING)
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._last: Snapshot | None = None
        self._seen = seen
        self._sink: Callable[[Snapshot], None] = _nobody
        self._taken_s = self._charted_s = float("-inf")
        self._fault: Fault | None = None
        """Why the past could not be had."""
        self.filling = False
        """Whether the charts' past is being read."""

    @property
    def running(self) -> bool:
        """Whether it is shown."""
        return self._task is not None

    def reaches(self, wall_s: float) -> bool:
        """Whether what it has is new enough that charts go on from it at a time (Unix)."""
        return 0.0 <= wall_s - self._taken_s < CHART_S

    def _step_s(self) -> float:
        """Seconds between two scrapes of it."""
        newest = self._feed.newest
        host = _of(newest, self._name) if newest is not None else None
        return max(1.0, host.interval_s) if host is not None else self._feed.interval_s

    @property
    def interval_s(self) -> float:
        """Seconds between two refreshes of the fleet."""
        return self._feed.interval_s

    def set_interval(self, seconds: float) -> None:
        """Change that, of the whole fleet."""
        self._feed.set_interval(seconds)

    def refresh(self) -> None:
        """Ask for the whole fleet now."""
        self._feed.refresh()

    @property
    def calibration(self) -> Calibration:
        """What its engines were seen to do, its past included."""
        return self._onlooker.calibration

    def known(self) -> Known:
        """What sizing looks up."""
        return self._onlooker.known()

    async def start(self, sink: Callable[[Snapshot], None]) -> None:
        """Show what is known of it at once, then with its past, then as refreshes come."""
        self._onlooker.start()
        self._sink, self._fault, self.filling = sink, None, True
        self._waiting.clear()
        self._feed.follow(self._name, self._offer)
        shown = self._feed.snapshot.host(self._name)
        if shown is not None:
            self._last = shown.snapshot
            sink(self._told(shown.snapshot))
        elif self._seen is not None:
            self._last = _gone(self._seen, self._feed.snapshot.wall_s, self._seen.wall_s)
            sink(self._told(self._last))
        self._task = asyncio.create_task(self._run())

    async def ended(self) -> None:
        """Wait until `stop`; raises what ended it otherwise."""
        if self._task is not None:
            await asyncio.shield(self._task)

    async def stop(self) -> None:
        """Let go of the host."""
        self._sink = _nobody
        self._feed.leave(self._offer)
        self._onlooker.stop()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task}, timeout=0.25)

    def _offer(self, frame: FleetFrame) -> None:
        """An answer waits for the past; that there is none is said at once, as the past may hang, too."""
        if frame.answered:
            self._waiting.append(frame)
            self._wake.set()
        elif self._last is not None:
            self._sink(self._told(self._last))

    async def _run(self) -> None:
        newest = self._feed.newest
        if newest is not None:
            await self._read_past(newest.wall_s)
            self.filling = False
            self._waiting.appendleft(newest)
            self._wake.set()
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                if (snapshot := self._take(self._waiting.popleft())) is not None:
                    self._sink(self._told(snapshot))

    async def _read_past(self, end_s: float) -> None:
        """Fill the charts, the windows, and what verdicts stand on: from where they end, where this is not new."""
        turns = Turns()
        spans = chart_spans(max(end_s - CHART_S, self._taken_s), end_s, self._step_s())
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
            self._add(host, frame.wall_s, self._feed.interval_s)
        elif self._last is not None:
            self._last = _gone(self._last, frame.wall_s, self._taken_s if self._taken_s > 0.0 else frame.wall_s)
        return self._last

    def _add(self, host: HostFrame, wall_s: float, interval_s: float) -> None:
        """One moment of it, in their order."""
        if wall_s <= self._taken_s + SAME_S:  # the past ends with the newest answer, and has more of it
            return
        self._taken_s = wall_s
        taken = self._course.take(host, wall_s, max(host.interval_s, interval_s))
        self._last = taken.snapshot
        if taken.points and taken.snapshot.wall_s > self._charted_s:
            self._charted_s = taken.snapshot.wall_s
            charted(self.history, taken, max(host.interval_s, interval_s))
        self._onlooker.take(taken.snapshot)

    def _told(self, last: Snapshot) -> Snapshot:
        """A snapshot of it as it may be shown now: without figures once the Prometheus was silent for too long, and
        with what is wrong with that beside its own faults."""
        fleet = self._feed.snapshot
        said = () if fleet.answered else fleet.faults
        own = last.faults
        if self._fault is not None:
            own = (*own, shown_fault(self._fault.source, self._fault.text, self._fault.since_wall_s))
        shown = without_figures(last, _STALE, self._feed.silent_s) if fleet.late else last
        return msgspec.structs.replace(named(shown, self._name), faults=(*said, *own))


def _nobody(snapshot: Snapshot) -> None:
    """Takes what nobody waits for."""


def _gone(last: Snapshot, wall_s: float, since_s: float) -> Snapshot:
    """A host that the Prometheus has nothing of at `wall_s`, and had until `since_s`."""
    return msgspec.structs.replace(
        without_figures(last, _UNREACHABLE),
        wall_s=wall_s,
        time=rfc3339(wall_s),
        faults=(shown_fault("prometheus", GONE, since_s),),
    )


def _of(frame: FleetFrame, name: str) -> HostFrame | None:
    return next((host for host in frame.hosts if host.name == name), None)

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
from gpumon.fleetpast import CHART_S, HostPast, HostSource, Turns, charted
from gpumon.onlooker import Onlooker
from gpumon.readings.fleet import FleetFrame, HostFrame
from gpumon.readings.frame import Fault
from gpumon.readings.history import History
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Snapshot
from gpumon.readings.times import rfc3339
from gpumon.sources.prometheus.api import ApiFault
from gpumon.sources.prometheus.past import MOST_STEPS

if TYPE_CHECKING:
    from gpumon.sizing.calibration import Calibration
    from gpumon.sizing.known import Known
    from gpumon.tui.control import Playback, Timeline

GONE: Final = "the Prometheus has nothing of this host any more: are its targets still scraped?"
SAME_S: Final = 0.1
"""Two moments that are nearer to each other are one."""
MOST_WAITING: Final = 8
"""Refreshes that are kept while the past is read."""
_UNREACHABLE: Final = Missing(Reason.UNREACHABLE)


class Feed(Protocol):
    """The fleet that a host is one of."""

    snapshot: FleetSnapshot
    """The newest."""
    newest: FleetFrame | None
    """The newest answer with hosts."""

    @property
    def interval_s(self) -> float:
        """Seconds between two refreshes."""

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
    """A `Control` (`tui.control`)."""

    def __init__(self, name: str, feed: Feed, source: HostSource, make: Make, config: Config) -> None:
        self.history = History()
        self.playback: Playback | None = None
        self.timeline: Timeline | None = HostPast(name, source, make, feed.span, self._step_s)
        self._name = name
        self._feed = feed
        self._source = source
        self._course = HostCourse(make)
        self._onlooker = Onlooker(config)
        self._waiting: deque[FleetFrame] = deque(maxlen=MOST_WAITING)
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._last: Snapshot | None = None
        self._taken_s = self._charted_s = float("-inf")
        self._fault: Fault | None = None
        """Why the past could not be had."""

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
        self._feed.follow(self._name, self._offer)
        shown = self._feed.snapshot.host(self._name)
        if shown is not None:
            self._last = shown.snapshot
            sink(shown.snapshot)
        self._task = asyncio.create_task(self._run(sink))

    async def ended(self) -> None:
        """Wait until `stop`; raises what ended it otherwise."""
        if self._task is not None:
            await asyncio.shield(self._task)

    async def stop(self) -> None:
        """Let go of the host."""
        self._feed.leave(self._offer)
        self._onlooker.stop()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=0.25)

    def _offer(self, frame: FleetFrame) -> None:
        self._waiting.append(frame)
        self._wake.set()

    async def _run(self, sink: Callable[[Snapshot], None]) -> None:
        newest = self._feed.newest
        if newest is not None:
            await self._read_past(newest.wall_s)
            self._waiting.appendleft(newest)
            self._wake.set()
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                if (snapshot := self._take(self._waiting.popleft())) is not None:
                    sink(snapshot)

    async def _read_past(self, end_s: float) -> None:
        """Fill the charts, the windows, and what verdicts stand on."""
        turns, step_s = Turns(), max(self._step_s(), CHART_S / (MOST_STEPS - 1))
        try:
            frames = await self._source.past(self._name, end_s - CHART_S, end_s, step_s)
        except ApiFault as fault:
            self._fault = Fault("past", f"the charts begin now: {fault.text}", end_s)
            return
        for at_s, host in frames:
            self._add(host, at_s, step_s)
            await turns.give()

    def _take(self, frame: FleetFrame) -> Snapshot | None:
        """The snapshot after an answer; None where nothing is new in it."""
        if not frame.answered:
            return self._beside(frame.faults)
        if frame.wall_s < self._taken_s:
            return None
        host = _of(frame, self._name)
        if host is not None:
            self._add(host, frame.wall_s, self._feed.interval_s)
            return self._beside(() if self._fault is None else (self._fault,))
        if self._last is None:
            return None
        self._last = msgspec.structs.replace(
            without_figures(self._last, _UNREACHABLE), wall_s=frame.wall_s, time=rfc3339(frame.wall_s), faults=()
        )
        return self._beside((Fault("prometheus", GONE, self._taken_s if self._taken_s > 0.0 else frame.wall_s),))

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

    def _beside(self, faults: tuple[Fault, ...]) -> Snapshot | None:
        """The last snapshot, with faults of the fleet beside its own."""
        if self._last is None or not faults:
            return self._last
        said = (shown_fault(fault.source, fault.text, fault.since_wall_s) for fault in faults)
        return msgspec.structs.replace(self._last, faults=(*self._last.faults, *said))


def _of(frame: FleetFrame, name: str) -> HostFrame | None:
    return next((host for host in frame.hosts if host.name == name), None)

"""A fleet as it is asked now: from a Prometheus (`--prometheus`), or from each host's own gpumon (`--host`)."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from gpumon.config.schema import Config
from gpumon.fleet.snapshot import NOTHING_YET, FleetSnapshot
from gpumon.readings.fleet import FleetFrame
from gpumon.readings.format import rfc3339
from gpumon.readings.frame import Fault
from gpumon.readings.quantities import E2E
from gpumon.session.lateness import Lateness
from gpumon.session.session import Take
from gpumon.session.turns import Turns

if TYPE_CHECKING:
    from gpumon.fleet.fleet import Fleet
    from gpumon.readings.fleet import HostFrame
    from gpumon.triage.fresh import Make

_LEAST_S: Final = 1.0
"""Shortest time between two refreshes."""
_RATES: Final = 2
"""Moments that rates need."""
MOST_BEFORE: Final = 7
"""Moments at most: each costs as much as a refresh."""


class FleetFrames(Protocol):
    """A source of the fleet's snapshots."""

    async def frame(self, at_s: float | None = None) -> FleetFrame:
        """The fleet at a Unix time (None: now); what does not work is in the frame."""

    async def past(self, host: str, start_s: float, end_s: float, step_s: float) -> tuple[tuple[float, HostFrame], ...]:
        """One host at each step that it is known of, oldest first, with its time. Raises ApiFault."""

    def look_at(self, host: str) -> None:
        """Ask of this host, from the next frame on, for all that there is; "": of none."""

    def lacks_gpumon(self, host: str) -> bool:
        """Whether gpumon could run on this host from a temporary folder, and was not allowed to so far."""

    def install(self, host: str) -> None:
        """Run gpumon on this host from a temporary folder."""

    def first_s(self, newest_s: float) -> float:
        """Unix time of the oldest moment that can be asked for, where the newest one is of `newest_s`."""

    async def settle(self) -> None:
        """Wait for what one answer alone cannot have."""

    async def close(self) -> None:
        """Let go of connections."""


class LiveFleet:
    """The snapshots of a fleet (`SnapshotSource`), at every refresh; and those of moments of its past."""

    def __init__(self, config: Config, source: Callable[[], FleetFrames] | None = None) -> None:
        """`source` gives what tells of the fleet; else it is the Prometheus of the config."""
        self.snapshot: FleetSnapshot = NOTHING_YET
        self.newest: FleetFrame | None = None
        self._config = config
        self._made = source or (lambda: _source(config))
        self._source: FleetFrames | None = None
        self._make: Make | None = None
        self._fleet: Fleet | None = None
        if config.host:
            self._interval_s = max(_LEAST_S, config.general.interval_s)
        else:
            self._interval_s = config.prometheus.interval_s
        self._takers: list[Callable[[FleetFrame], None]] = []
        self._asking = 0
        self._learned_s = 0.0
        self._wake = asyncio.Event()
        self._show: Callable[[FleetSnapshot], None] = _nobody
        self._learn: Take = _nobody
        self._late = Lateness(self._grow_late)

    @property
    def interval_s(self) -> float:
        """Seconds between two refreshes."""
        return self._interval_s

    @property
    def silent_s(self) -> float:
        """Seconds since the moment of the newest answer."""
        return self._late.silent_s

    @property
    def asking(self) -> bool:
        """Whether the Prometheus is being asked right now."""
        return self._asking > 0

    def set_interval(self, seconds: float) -> None:
        """Change the time between two refreshes."""
        self._interval_s = max(_LEAST_S, seconds)
        if self._fleet is not None:
            self._fleet.interval_s = self._interval_s
        self.refresh()

    def refresh(self) -> None:
        """Ask now."""
        self._wake.set()

    def follow(self, host: str, take: Callable[[FleetFrame], None]) -> None:
        """Give every answer to `take`, which never blocks; from now on with all that there is of this host."""
        self._takers.append(take)
        if self._source is not None:
            self._source.look_at(host)
        self.refresh()

    def leave(self, take: Callable[[FleetFrame], None]) -> None:
        """Give it no more."""
        with contextlib.suppress(ValueError):
            self._takers.remove(take)
        if not self._takers and self._source is not None:
            self._source.look_at("")

    async def open(self) -> None:
        """Make what asks and what derives, in a thread: catalogues are read. Raises ConfigError."""
        if self._source is None:
            self._make, self._fleet, self._source = await asyncio.to_thread(self._built)

    def _built(self) -> tuple[Make, Fleet, FleetFrames]:
        """It imports what it needs here: the screen's first paint does not wait for it."""
        from gpumon.fleet.fleet import Fleet
        from gpumon.session.build import maker

        make = maker(self._config)
        return make, Fleet(make, self._interval_s), self._made()

    async def begin(self, show: Callable[[FleetSnapshot], None], learn: Take) -> None:
        """Get ready: `show` gets every snapshot, `learn` each that sizing may learn from."""
        self._show = show
        self._learn = learn

    async def end(self) -> None:
        """Stop asking, and let go of connections."""
        self._show = _nobody
        self._learn = _nobody
        self._late.stop()
        if self._source is not None:
            with contextlib.suppress(Exception):  # a connection that ends badly has ended
                await asyncio.wait_for(self._source.close(), 0.25)

    def span(self) -> tuple[float, float] | None:
        """Unix times of the first and the last moment that can be asked for."""
        if self.newest is None or self._source is None:
            return None
        return self._source.first_s(self.newest.wall_s), self.newest.wall_s

    async def at(self, wall_s: float) -> FleetSnapshot:
        """The fleet as it was at a time, with the rates and the verdicts of the scrapes before it."""
        from gpumon.fleet.fleet import Fleet

        await self.open()
        assert self._make is not None
        step_s = self.snapshot.interval_s or self._interval_s
        fleet = Fleet(self._make, step_before(step_s, self._config.triage.hold_s))
        at_s = (*moments_before(wall_s, step_s, self._config.triage.hold_s), wall_s)
        for frame in await asyncio.gather(*map(self._frame, at_s)):
            await _take(fleet, frame)
        if fleet.snapshot.wall_s:
            return fleet.snapshot
        return msgspec.structs.replace(fleet.snapshot, wall_s=wall_s, time=rfc3339(wall_s))

    async def first_after(self, none_s: float, there_s: float) -> float:
        """The beginning of the fleet's history, to a refresh: none at `none_s`, some at `there_s` (Unix times)."""
        await self.open()
        while there_s - none_s > max(_LEAST_S, self.snapshot.interval_s):
            middle_s = (none_s + there_s) / 2.0
            frame = await self._frame(middle_s)
            none_s, there_s = (none_s, middle_s) if frame.hosts else (middle_s, there_s)
        return there_s

    @property
    def source(self) -> FleetFrames:
        """Source of the frames; there is none before the first `open`."""
        assert self._source is not None, "nothing was asked yet"
        return self._source

    @property
    def make(self) -> Make:
        """Maker of derivers and triages; there is none before the first `open`."""
        assert self._make is not None, "nothing was asked yet"
        return self._make

    def lacks_gpumon(self, host: str) -> bool:
        """Whether gpumon could run on this host from a temporary folder, and was not allowed to so far."""
        return self._source is not None and self._source.lacks_gpumon(host)

    def install(self, host: str) -> None:
        """Run gpumon on this host from a temporary folder; its row follows."""
        if self._source is not None:
            self._source.install(host)
        self.refresh()

    async def refreshed(self) -> FleetSnapshot:
        """Ask once; the first answer comes with what was before it, so that there are rates."""
        await self.open()
        first = self.newest is None
        assert self._source is not None
        if first:
            await self._source.settle()
        frame = await self._frame(None)
        if first and frame.hosts:
            await self._take_before(frame)
        await self._taken(frame)
        await self._learn_from(self.snapshot)
        return self.snapshot

    async def run(self) -> None:
        """Ask at every interval, until it is cancelled."""
        await self.open()
        slot_s = time.monotonic()
        while True:
            self._wake.clear()
            frame = await self._frame(None)
            first = self.newest is None and bool(frame.hosts)
            self._show(await self._taken(frame))
            if first and await self._take_before(frame):
                self._show(await self._taken(frame))
            await self._learn_from(self.snapshot)
            now_s = time.monotonic()
            slot_s = max(slot_s + self._interval_s, now_s)
            timer = asyncio.get_running_loop().call_later(slot_s - now_s, self._wake.set)
            try:
                await self._wake.wait()
            finally:
                timer.cancel()
            slot_s = min(slot_s, time.monotonic())

    async def _take_before(self, frame: FleetFrame) -> bool:
        """Begin a fleet with the moments before a frame; False where the Prometheus has none of them."""
        from gpumon.fleet.fleet import Fleet

        assert self._make is not None
        step_s = max(frame.interval_s, self._interval_s)
        fleet = Fleet(self._make, step_before(step_s, self._config.triage.hold_s))
        before = moments_before(frame.wall_s, step_s, self._config.triage.hold_s)
        for one in await asyncio.gather(*map(self._frame, before)):
            if one.hosts:
                await _take(fleet, one)
                await self._learn_from(fleet.snapshot)
        if fleet.snapshot.wall_s:
            fleet.interval_s = self._interval_s
            self._fleet = fleet
        return bool(fleet.snapshot.wall_s)

    async def _frame(self, at_s: float | None) -> FleetFrame:
        assert self._source is not None
        self._asking += 1
        try:
            return await self._source.frame(at_s)
        except Exception as error:  # a bug in what asks costs this refresh, not the screen
            wall_s = time.time() if at_s is None else at_s
            text = f"gpumon failed on the answers, please report: {type(error).__name__}: {error}"
            return FleetFrame(wall_s, self._interval_s, faults=(Fault("gpumon", text, wall_s),), answered=False)
        finally:
            self._asking -= 1

    async def _taken(self, frame: FleetFrame) -> FleetSnapshot:
        """Take an answer in, and give it to those that follow single hosts."""
        assert self._fleet is not None
        await _take(self._fleet, frame)
        self.snapshot = self._fleet.snapshot
        if frame.answered:
            self._late.hear(frame.wall_s, frame.cost_s, max(self._interval_s, frame.interval_s))
        if frame.hosts:
            self.newest = frame
        for take in tuple(self._takers):
            take(frame)
        return self.snapshot

    async def _learn_from(self, snapshot: FleetSnapshot) -> None:
        """Look at it for sizing, moment after moment: at the start what was before the first answer comes first."""
        from gpumon.fleet.whole import whole_fleet

        if self._learn is _nobody:
            return
        if snapshot.answered and snapshot.wall_s > self._learned_s and snapshot.hosts:
            self._learned_s = snapshot.wall_s
            with contextlib.suppress(ValueError, TypeError, ArithmeticError, LookupError):  # figures of peers
                self._learn(await asyncio.to_thread(whole_fleet, snapshot))

    def _grow_late(self, wall_s: float) -> None:
        """No answer for too long, and maybe no failure either: whatever hangs, what is shown has no figures now."""
        fault = self._silence(wall_s)
        if self._fleet is not None and not self.snapshot.late:
            self._fleet.grow_late(fault)
            self.snapshot = self._fleet.snapshot
            self._show(self.snapshot)
        for take in tuple(self._takers):
            take(FleetFrame(wall_s, self._interval_s, faults=(fault,), answered=False))

    def _silence(self, wall_s: float) -> Fault:
        """The fault where nothing came since `wall_s`, by the source that was asked."""
        if self._config.host:
            text = f"no refresh since {rfc3339(wall_s)}: this machine has no time for gpumon, or gpumon hangs"
            return Fault("gpumon", text, wall_s)
        return Fault("prometheus", f"no answer since {rfc3339(wall_s)}: is it up, and is the network?", wall_s)


def _nobody(snapshot: object) -> None:
    """Takes what nobody waits for."""


async def _take(fleet: Fleet, frame: FleetFrame) -> None:
    """Take a frame in, a host at a time, so that nobody waits for long."""
    turns = Turns()
    for _ in fleet.steps(frame):
        await turns.give()


def _source(config: Config) -> FleetFrames:
    if config.host:
        from gpumon.sources.remote import RemoteHosts

        return RemoteHosts(config)
    from gpumon.sources.prometheus.queries import FLEET_BUCKETS
    from gpumon.sources.prometheus.source import FleetSource as Prometheus

    buckets = FLEET_BUCKETS if config.goals.e2e_p95_ms is None else FLEET_BUCKETS | {E2E}
    return Prometheus(config.prometheus, config.model, config.endpoint, buckets=buckets)


def step_before(step_s: float, hold_s: float) -> float:
    """Seconds between the moments that are asked for before the first one: `step_s`, unless it took more than
    `MOST_BEFORE` of them until verdicts stand."""
    return max(step_s, hold_s / (MOST_BEFORE - 1))


def moments_before(wall_s: float, step_s: float, hold_s: float) -> list[float]:
    """Unix times before `wall_s`, the oldest first, `step_s` apart or more.

    The first one has no rates; from the second one on verdicts hold, and stand after `hold_s`: at `wall_s`.
    """
    apart_s = step_before(step_s, hold_s)
    number = max(_RATES, 1 + math.ceil(hold_s / apart_s))
    return [wall_s - at * apart_s for at in range(number, 0, -1)]

"""The application of a fleet: the fleet's screen, and over that the screen of one of its hosts."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
import time
from collections.abc import Sequence
from functools import cached_property, partial
from typing import Final

from textual.worker import WorkType

from gpumon.fleet.snapshot import FleetSnapshot
from gpumon.readings.snapshot import Snapshot
from gpumon.readings.text import clean
from gpumon.tui.app import ScreenApp
from gpumon.tui.control import Collecting, FleetControl, HostControl
from gpumon.tui.fleet.shown import FleetMoment
from gpumon.tui.screens.commands import COMMON
from gpumon.tui.screens.fleet import FleetBody
from gpumon.tui.screens.host import HostBody
from gpumon.tui.screens.monitor import MonitorScreen, SnapshotReady

_LARGE_THRESHOLDS: Final = (5_000, 1_000, 10)
"""Each answer leaves 100,000 objects: the young are collected in small parts, the old by `keep` alone."""
_COLLECT_EVERY_S: Final = 3600.0
"""Screens that were left are in cycles: so often all is looked at, which takes some tenths of a second."""


class FleetApp(ScreenApp[FleetMoment, FleetControl]):
    """The screen of a fleet, and over that the screen of one of its hosts."""

    host: MonitorScreen[Snapshot] | None = None
    """The host of the fleet that is looked at."""
    _due: FleetSnapshot | None = None
    """Result of a refresh that is not worked out yet."""
    _collect_at_s = math.inf
    """Monotonic time of the next look of the garbage collector at all objects."""

    @cached_property
    def fleet_body(self) -> FleetBody:
        """The parts of the fleet's screen."""
        return FleetBody(self.screen_context(self.control), self.control, self.open_host)

    @cached_property
    def monitor(self) -> MonitorScreen[FleetMoment]:
        """The screen of the fleet."""
        body = self.fleet_body
        return MonitorScreen(self.screen_context(self.control), body, {**COMMON, **body.commands})

    @property
    def front(self) -> MonitorScreen[FleetMoment] | MonitorScreen[Snapshot]:
        """The screen that has the keys: the host's while there is one."""
        return self.host or self.monitor

    async def begin_to_collect(self) -> None:
        """Start to ask."""
        self._collect_at_s = time.monotonic() + _COLLECT_EVERY_S
        await self.control.start(self.sink)

    def sources(self) -> Sequence[Collecting]:
        """The host that is looked at, and the fleet."""
        if self.host is None:
            return (self.control,)
        return (self.host.control, self.control)

    def sink(self, snapshot: FleetSnapshot) -> None:
        """Take what was asked for; never blocks."""
        self.post_message(SnapshotReady(snapshot))

    def on_snapshot_ready(self, message: SnapshotReady[FleetSnapshot]) -> None:
        """Rows and sums are made first, also beneath a host's screen; a newer snapshot takes the place of one that
        waits."""
        working = self._due is not None
        self._due = message.snapshot
        if not working:
            work: WorkType[None] = self._work_out
            self.run_worker(work, group="refresh")

    async def _work_out(self) -> None:
        """Make rows and sums in a thread, so that keys are answered meanwhile."""
        done = None
        while self._due is not None and done is not self._due:
            done = self._due
            shown = await asyncio.to_thread(self.fleet_body.worked_out, done)
            self.monitor.show(shown)
            self.keep()
        self._due = None

    def keep(self) -> None:
        """Leave all that there is out of the garbage collector's sight: to be called after each large answer.

        Nearly all of it goes by its count of references. What is in a cycle goes within the hour.
        """
        gc.set_threshold(*_LARGE_THRESHOLDS)
        if time.monotonic() >= self._collect_at_s:
            self._collect_at_s = time.monotonic() + _COLLECT_EVERY_S
            gc.unfreeze()
            gc.collect()
        gc.freeze()

    def open_host(self, name: str, at_s: float | None, gpu: str = "") -> None:
        """Show one host of the fleet; `at_s`: the Unix time to begin at, None: live; `gpu`: UUID of the GPU whose page
        comes first, empty: none."""
        if self.host is not None:
            return
        row = None
        if self.monitor.shown is not None:
            row = self.monitor.shown.fleet.host(name)
        control = self.control.host(name, row.snapshot if row is not None else None)
        context = self.screen_context(control)
        body = HostBody(context, control, lambda: control.filling, gpu)
        host = MonitorScreen(context, body, {**COMMON, **body.commands}, self.leave_host, at_s)
        self.host = host
        self.push_screen(host)
        host.call_later(host.run_worker, self._follow(host, control), group="collect")

    async def _follow(self, host: MonitorScreen[Snapshot], control: HostControl) -> None:
        """Show the snapshots of a host; an error that ends them ends its screen, not the fleet's."""
        try:
            await control.start(partial(_show, host))
            await control.ended()
        except Exception as error:  # whatever it was, the user has to see it
            if self.host is host:
                self.leave_host(f"this host cannot be shown: {clean(f'{type(error).__name__}: {error}', 200)}")

    def leave_host(self, notice: str) -> None:
        """Back to the fleet, and say there what is to be said."""
        host = self.host
        self.host = None
        if host is not None:
            self.pop_screen()
            work: WorkType[None] = partial(_stopped, host.control)
            self.run_worker(work, group="leaving")
            if notice:
                self.monitor.say(notice, urgent=True)


def _show(host: MonitorScreen[Snapshot], snapshot: Snapshot) -> None:
    """Hand a snapshot to the screen of a host."""
    host.post_message(SnapshotReady(snapshot))


async def _stopped(control: Collecting) -> None:
    """Let go of a host; it was told to stop, and nobody waits for what that may raise."""
    with contextlib.suppress(Exception):  # nothing of it is shown any more
        await control.stop()

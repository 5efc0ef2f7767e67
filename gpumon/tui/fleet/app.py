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
from gpumon.tui.control import Collector, FleetControl, HostControl
from gpumon.tui.fleet.moment import FleetMoment
from gpumon.tui.screens.commands import COMMON
from gpumon.tui.screens.context import ScreenContext
from gpumon.tui.screens.fleet import FleetBody
from gpumon.tui.screens.host import HostBody
from gpumon.tui.screens.monitor import MonitorScreen, SnapshotReady
from gpumon.tui.screens.travel import begin_at

_LARGE_THRESHOLDS: Final = (5_000, 1_000, 10)
"""Thresholds of `gc.set_threshold`. Each answer leaves 100,000 objects: the young are collected in small parts, the old
by `freeze_garbage_collector` alone."""
_COLLECT_EVERY_S: Final = 3600.0
"""Seconds between two collections of all objects, which frees the screens that were left: they are in cycles. One takes
some tenths of a second."""


class FleetApp(ScreenApp[FleetMoment, FleetControl]):
    """The screen of a fleet, and over that the screen of one of its hosts."""

    host_screen: MonitorScreen[Snapshot] | None = None
    """The screen of the host that is looked at; None while it is the fleet's."""
    _pending: FleetSnapshot | None = None
    """The newest snapshot, until its rows and sums are shown."""
    _collect_at_s = math.inf
    """Monotonic time of the next collection of all objects."""

    @cached_property
    def context(self) -> ScreenContext:
        """The context of the fleet's screen."""
        return ScreenContext(self.control, self.files, self.palette, self.view, self.unix_time, self.monotonic)

    @cached_property
    def fleet_body(self) -> FleetBody:
        """The parts of the fleet's screen."""
        return FleetBody(self.context, self.control, self.open_host)

    @cached_property
    def monitor(self) -> MonitorScreen[FleetMoment]:
        """The screen of the fleet."""
        body = self.fleet_body
        return MonitorScreen(self.context, body, {**COMMON, **body.commands})

    @property
    def front(self) -> MonitorScreen[FleetMoment] | MonitorScreen[Snapshot]:
        """The screen that has the keys: the host's while there is one."""
        return self.host_screen or self.monitor

    async def begin_to_collect(self) -> None:
        """Start to ask the Prometheus or the hosts."""
        self._collect_at_s = time.monotonic() + _COLLECT_EVERY_S
        await self.control.start(self.sink)

    def sources(self) -> Sequence[Collector]:
        """The host that is looked at, and the fleet: both have to be stopped at the end."""
        if self.host_screen is None:
            return (self.control,)
        return (self.host_screen.control, self.control)

    def sink(self, snapshot: FleetSnapshot) -> None:
        """Hand a snapshot of the fleet to the event loop; never blocks."""
        self.post_message(SnapshotReady(snapshot))

    def on_snapshot_ready(self, message: SnapshotReady[FleetSnapshot]) -> None:
        """Have the snapshot shown, also beneath a host's screen; a newer one takes the place of one that waits."""
        is_working = self._pending is not None
        self._pending = message.snapshot
        if not is_working:
            work: WorkType[None] = self._show_pending
            self.run_worker(work, group="refresh")

    async def _show_pending(self) -> None:
        """Make rows and sums in a thread, so that keys are answered meanwhile, and show them; go on while newer
        snapshots come."""
        newest = None
        while self._pending is not None and self._pending is not newest:
            newest = self._pending
            moment = await asyncio.to_thread(self.fleet_body.fleet_moment, newest)
            self.monitor.show(moment)
            self.freeze_garbage_collector()
        self._pending = None

    def freeze_garbage_collector(self) -> None:
        """Leave all that there is out of the garbage collector's sight: to be called after each large answer.

        Nearly all of it is freed by its count of references. What is in a cycle is freed within the hour.
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
        if self.host_screen is not None:
            return
        snapshot = None
        if self.monitor.shown is not None:
            shown_host = self.monitor.shown.fleet.host(name)
            if shown_host is not None:
                snapshot = shown_host.snapshot
        control = self.control.host(name, snapshot)
        context = self.machine_context(control)
        body = HostBody(context, control, is_past_loading=lambda: control.filling, gpu=gpu)
        begin = None if at_s is None else partial(begin_at, at_s)
        host_screen = MonitorScreen(context, body, {**COMMON, **body.commands}, leave_host=self.leave_host, begin=begin)
        self.host_screen = host_screen
        self.push_screen(host_screen)
        # Behind the screen's own messages, so that it is mounted when the first snapshot comes.
        host_screen.call_later(host_screen.run_worker, self._follow(host_screen, control), group="collect")

    async def _follow(self, host_screen: MonitorScreen[Snapshot], control: HostControl) -> None:
        """Show the snapshots of a host; an error that ends them ends its screen, not the fleet's."""
        try:
            await control.start(partial(_post_snapshot, host_screen))
            await control.ended()
        except Exception as error:  # whatever it was, the user has to see it
            if self.host_screen is host_screen:
                self.leave_host(f"this host cannot be shown: {clean(f'{type(error).__name__}: {error}', 200)}")

    def leave_host(self, notice: str) -> None:
        """Go back to the fleet's screen, and show the notice there unless it is empty."""
        host_screen = self.host_screen
        if host_screen is None:
            return
        self.host_screen = None
        self.pop_screen()
        work: WorkType[None] = partial(_stop, host_screen.control)
        self.run_worker(work, group="leaving")
        if notice:
            self.monitor.say(notice, urgent=True)


def _post_snapshot(host_screen: MonitorScreen[Snapshot], snapshot: Snapshot) -> None:
    """Hand a snapshot to the screen of a host."""
    host_screen.post_message(SnapshotReady(snapshot))


async def _stop(control: Collector) -> None:
    """Stop to ask a host, without an error: nothing of the host is shown any more."""
    with contextlib.suppress(Exception):
        await control.stop()

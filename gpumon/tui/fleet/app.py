"""The application of a fleet: its screen, and over that the screen of one of its hosts."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

from gpumon.config.schema import Config
from gpumon.config.themes import Theme
from gpumon.fleet.snapshot import FleetSnapshot
from gpumon.tui.app import TerminalApp
from gpumon.tui.control import Control, Files
from gpumon.tui.fleet.control import FleetControl
from gpumon.tui.messages import FleetReady
from gpumon.tui.screens.fleet import FleetScreen
from gpumon.tui.screens.host import HostScreen
from gpumon.tui.screens.monitor import MonitorScreen


class FleetApp(TerminalApp, inherit_bindings=False):
    """The screen of `gpumon --prometheus URL`; `gpumon.tui.app.run` runs it."""

    def __init__(
        self,
        control: FleetControl,
        theme: Theme,
        config: Config | None = None,
        files: Files | None = None,
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(theme, config, files)
        self.control = control
        self._wall = wall
        self.fleet = FleetScreen(control, files, self.palette, self.view, wall, self.open_host)
        self.host: HostScreen | None = None
        """The host that is looked at."""
        self._leaving: set[asyncio.Task[None]] = set()

    @property
    def front(self) -> MonitorScreen | FleetScreen:
        """The host's screen while there is one, else the fleet's."""
        return self.host or self.fleet

    async def collect(self) -> None:
        """Ask the Prometheus until that ends."""
        await self.control.start(self._sink)
        await self.control.ended()

    async def stop(self) -> None:
        """Stop asking."""
        if self.host is not None:
            await self.host.control.stop()
        await self.control.stop()

    def _sink(self, fleet: FleetSnapshot) -> None:
        self.post_message(FleetReady(fleet))

    def on_fleet_ready(self, message: FleetReady) -> None:
        """Show the newest snapshot; beneath a host's screen, too, for when that is left."""
        self.fleet.show(message.fleet)
        self.keep()

    def open_host(self, name: str, at_s: float | None) -> None:
        """Show one host; `at_s`: the Unix time to begin at, None: live."""
        if self.host is None:
            shown = self.fleet.shown.fleet.host(name) if self.fleet.shown is not None else None
            control = self.control.host(name, shown.snapshot if shown is not None else None)
            self.host = HostScreen(control, self.files, self.palette, self.view, self._wall, self.leave_host, at_s)
            self.push_screen(self.host)

    def leave_host(self, said: str) -> None:
        """Back to the fleet, and say there what is to be said."""
        host, self.host = self.host, None
        if host is None:
            return
        self.pop_screen()
        stopping = asyncio.create_task(_stopped(host.control))
        self._leaving.add(stopping)
        stopping.add_done_callback(self._leaving.discard)
        if said:
            self.fleet.say(said)


async def _stopped(control: Control) -> None:
    """Let go of a host; it was told to stop, and nobody waits for what that may raise."""
    with contextlib.suppress(Exception):
        await control.stop()

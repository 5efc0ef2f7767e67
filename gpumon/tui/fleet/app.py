"""The application of a fleet: its screen, and over that the screen of one of its hosts."""

from __future__ import annotations

import contextlib
from functools import cached_property

from gpumon.fleet.snapshot import FleetSnapshot
from gpumon.tui.app import TerminalApp
from gpumon.tui.control import Control
from gpumon.tui.fleet.control import FleetControl
from gpumon.tui.messages import FleetReady
from gpumon.tui.screens.common import CommonActions
from gpumon.tui.screens.fleet import FleetScreen
from gpumon.tui.screens.host import HostScreen


class FleetApp(TerminalApp[FleetControl]):
    """The screen of `gpumon --prometheus URL`; `gpumon.tui.app.run` runs it."""

    host: HostScreen | None = None
    """The host that is looked at."""

    @cached_property
    def fleet(self) -> FleetScreen:
        """The fleet's own screen."""
        return FleetScreen(self.control, self.files, self.palette, self.view, self.wall, self.open_host)

    @property
    def front(self) -> CommonActions:
        """The host's screen while there is one, else the fleet's."""
        return self.host or self.fleet

    async def stop(self) -> None:
        """Stop asking."""
        if self.host is not None:
            await self.host.control.stop()
        await super().stop()

    def sink(self, snapshot: FleetSnapshot) -> None:
        """Have it shown."""
        self.post_message(FleetReady(snapshot))

    def on_fleet_ready(self, message: FleetReady) -> None:
        """Show the newest snapshot; beneath a host's screen, too, for when that is left."""
        self.fleet.show(message.fleet)
        self.keep()

    def open_host(self, name: str, at_s: float | None) -> None:
        """Show one host; `at_s`: the Unix time to begin at, None: live."""
        if self.host is None:
            shown = self.fleet.shown.fleet.host(name) if self.fleet.shown is not None else None
            control = self.control.host(name, shown.snapshot if shown is not None else None)
            self.host = HostScreen(control, self.files, self.palette, self.view, self.wall, self.leave_host, at_s)
            self.push_screen(self.host)

    def leave_host(self, said: str) -> None:
        """Back to the fleet, and say there what is to be said."""
        host, self.host = self.host, None
        if host is None:
            return
        self.pop_screen()
        self.run_worker(_stopped(host.control), group="leaving")
        if said:
            self.fleet.say(said)


async def _stopped(control: Control) -> None:
    """Let go of a host; it was told to stop, and nobody waits for what that may raise."""
    with contextlib.suppress(Exception):
        await control.stop()

"""The screen of one host of a fleet: that of one machine, over the fleet's."""

from __future__ import annotations

from collections.abc import Callable

from gpumon.readings.snapshot import Snapshot
from gpumon.readings.text import clean
from gpumon.tui.control import Control, Files
from gpumon.tui.messages import SnapshotReady
from gpumon.tui.palette import Palette
from gpumon.tui.screens.monitor import MonitorScreen
from gpumon.tui.screens.travel import Ask, Way
from gpumon.tui.view import View

LEAD = "fleet > "
"""Before the host's name in the title."""


class HostScreen(MonitorScreen, inherit_bindings=False):
    """All that the screen of one machine does; `back` at its top leads to the fleet."""

    def __init__(
        self,
        control: Control,
        files: Files | None,
        palette: Palette,
        view: View,
        wall: Callable[[], float],
        leave: Callable[[str], None],
        at_s: float | None,
    ) -> None:
        """`leave`: back to the fleet, with what is to be said there. `at_s`: the Unix time to begin at; None: live."""
        super().__init__(control, files, palette, view, wall)
        self.title_bar.lead = LEAD
        self._leave = leave
        self._begin_s = at_s

    def on_mount(self) -> None:
        """Start the clock, and have the host's snapshots sent."""
        super().on_mount()
        self.run_worker(self._collect(), group="collect")

    async def _collect(self) -> None:
        """What ends the host's snapshots ends its screen, not the fleet's."""
        try:
            await self.control.start(self._sink)
            await self.control.ended()
        except Exception as error:  # whatever it was, the user has to see it
            self._leave(f"this host can not be shown: {clean(f'{type(error).__name__}: {error}', 200)}")

    def _sink(self, snapshot: Snapshot) -> None:
        self.post_message(SnapshotReady(snapshot))

    def waited_s(self) -> float:
        """How old the newest snapshot is: it may have been so already when the host was opened."""
        known = self._wall() - self.latest.wall_s if self.latest is not None else 0.0
        return max(super().waited_s(), known)

    def on_snapshot_ready(self, message: SnapshotReady) -> None:
        """Show the newest snapshot; at first go to where the fleet's screen is in time."""
        self.show(message.snapshot)
        begin_s, self._begin_s = self._begin_s, None
        if begin_s is not None:
            self._go_to(begin_s, message.snapshot)

    def _go_to(self, wall_s: float, snapshot: Snapshot) -> None:
        if wall_s < snapshot.wall_s:
            self.travel(Ask(Way.SECONDS, wall_s - snapshot.wall_s))
        else:
            self.freeze(True)

    def action_back(self) -> None:
        """Out of whatever is open, one step at a time; then to the fleet."""
        if not self.tiny and self.current is not None and self.current.back():
            self.show_keys()
        elif self.tiny or not (self.page or self.zoomed or (self.panel is not None and self.focused is self.panel)):
            self._leave("")
        else:
            super().action_back()

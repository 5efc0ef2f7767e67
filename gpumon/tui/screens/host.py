"""The screen of one host of a fleet: that of one machine, over the fleet's."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from gpumon.readings.snapshot import Snapshot
from gpumon.readings.text import clean
from gpumon.tui.control import Files, Moment, Timeline
from gpumon.tui.fleet.control import HostControl
from gpumon.tui.messages import SnapshotReady
from gpumon.tui.palette import Palette
from gpumon.tui.screens.monitor import MonitorScreen
from gpumon.tui.screens.travel import Ask, Way
from gpumon.tui.settings_table import FLEET_SETTINGS
from gpumon.tui.view import View

LEAD = "fleet > "
"""Before the host's name in the title."""


class HostScreen(MonitorScreen):
    """All that the screen of one machine does; `back` at its top leads to the fleet."""

    SETTINGS: ClassVar = FLEET_SETTINGS
    LOOKED: ClassVar = "as far as is looked"

    def __init__(
        self,
        control: HostControl,
        files: Files | None,
        palette: Palette,
        view: View,
        wall: Callable[[], float],
        leave: Callable[[str], None],
        at_s: float | None,
    ) -> None:
        """`leave`: back to the fleet, with what is to be said there. `at_s`: the Unix time to begin at; None: live."""
        super().__init__(control, files, palette, view, wall)
        self.host = control
        self.title_bar.lead = LEAD
        self.processes.afar = True
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
        self._take_past()
        self.show(message.snapshot)
        begin_s, self._begin_s = self._begin_s, None
        if begin_s is not None:
            self._go_to(begin_s, message.snapshot)

    def _take_past(self) -> None:
        """Once the charts' past is there all of them are drawn anew: they look at what is new alone."""
        if self.host.filling is not self.history.filling:
            self.history.filling = self.host.filling
            for pane in (*self.panes.values(), *self.pages.values()):
                pane.read_from(self._read_from)

    def travel(self, ask: Ask) -> None:
        """As on one machine; its past is with the Prometheus, and what takes a while says so."""
        super().travel(ask)
        if self._seeking:
            self.say("reading this host's past from the Prometheus …")

    def _arrive(self, timeline: Timeline, ask: Ask, moment: Moment | None) -> None:
        self.unsay()
        super()._arrive(timeline, ask, moment)
        if moment is None and ask.way is not Way.CHANGES:
            self.say("the Prometheus has nothing of this host at that time")

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

"""The fleet's screen: a row per host or model, and what the host under the cursor holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from textual.app import ComposeResult

from gpumon.fleet.snapshot import FleetSnapshot
from gpumon.readings.snapshot import Snapshot
from gpumon.tui.control import Files
from gpumon.tui.fleet.actions import FleetActions
from gpumon.tui.fleet.control import FleetControl
from gpumon.tui.fleet.host_pane import HostPane
from gpumon.tui.fleet.keys import FleetPlace, hints
from gpumon.tui.fleet.layout import FleetPlan, plan
from gpumon.tui.fleet.row_line import RowLine
from gpumon.tui.fleet.rows_pane import RowsPane
from gpumon.tui.fleet.shown import Shown, worked_out
from gpumon.tui.fleet.summary import FaultLine, FleetSummary, TinyFleet
from gpumon.tui.fleet.title import FleetTitle, When
from gpumon.tui.palette import Palette
from gpumon.tui.view import View
from gpumon.tui.widgets.board import Board


class FleetScreen(FleetActions):
    """Title, summary, the table, the host under the cursor, drawer, keys."""

    AUTO_FOCUS = "RowsPane"

    def __init__(
        self,
        control: FleetControl,
        files: Files | None,
        palette: Palette,
        view: View,
        wall: Callable[[], float],
        opens: Callable[[str, float | None], None],
    ) -> None:
        """`opens`: shows a host by its name, at a Unix time (None: live)."""
        super().__init__(files, palette, view, wall)
        self.opens = opens
        self.control = control
        self.shown: Shown | None = None
        self.newest: Shown | None = None
        """What the last refresh brought, shown or not."""
        self._due: FleetSnapshot | None = None
        """What a refresh brought that is not worked out yet."""
        self._working = False
        self._plan = FleetPlan()
        self.title_bar = FleetTitle(palette)
        self.faults = FaultLine(palette)
        self.summary = FleetSummary(palette, view)
        self.table = RowsPane(palette, view)
        self.foot = HostPane(palette, view)
        self.row_line = RowLine(palette)
        self.tiny_line = TinyFleet(palette, view)
        self.table.moved = self.look_at_row
        self._before = "rows"
        self.panes[self._before] = self.table

    def compose(self) -> ComposeResult:
        """Top to bottom; sized before the first paint."""
        self.lay_out()
        yield from self.boards()

    def boards(self) -> Iterator[Board]:
        """Everything that is painted, top to bottom."""
        yield from (self.title_bar, self.faults, self.summary, self.table, self.foot, self.row_line)
        yield from (*self.pages.values(), *self.panels)
        yield from (self.drawer, self.key_line, self.tiny_line)

    def on_mount(self) -> None:
        """Start the clock."""
        self.title_bar.place = self.control.place
        self.show_keys()
        self._tick()

    def _tick(self) -> None:
        self.set_timer(1.005 - self._wall() % 1.0, self._tick, name="clock")
        self.show_title()

    @property
    def planned(self) -> FleetPlan:
        """The lines of each part."""
        return self._plan

    @property
    def in_panes(self) -> Snapshot | None:
        """All of it as one machine; None: nothing yet."""
        return self.shown.whole if self.shown is not None else None

    @property
    def timely(self) -> bool:
        """Whether the keys of time go before those of the table."""
        current = self.current
        return self.paused and not (current is not None and current.TIMELESS)

    @property
    def gone_back(self) -> bool:
        """Whether a moment of the past is shown."""
        return self.back

    @property
    def latest(self) -> Snapshot | None:  # type: ignore[override]
        """All GPUs and engines of the fleet as those of one machine, for the sizing panel."""
        return self.newest.whole if self.newest is not None else None

    def show(self, snapshot: FleetSnapshot) -> None:
        """Take in what a refresh brought; a newer one takes the place of one that still waits."""
        self._due = snapshot
        if not self._working:
            self._working = True
            self.run_worker(self._work_off(), group="refresh")

    async def _work_off(self) -> None:
        """Work out what came, in a thread so that keys are answered meanwhile; paint it unless frozen."""
        try:
            while (due := self._due) is not None:
                self._due = None
                self.newest = await asyncio.to_thread(worked_out, due, self.control.prices)
                if self.paused:
                    self._renew_panel()
                    self.show_title()
                else:
                    self.paint(self.newest)
        finally:
            self._working = False

    def paint(self, shown: Shown) -> None:
        """Show a moment of the fleet in every part."""
        self.shown = shown
        self.table.show_fleet(shown)
        self.summary.show(shown)
        self.faults.show(shown.fleet, self._wall(), back=self.back)
        self.tiny_line.show(shown, paused=self.paused, back=self.back)
        self.look_at_row()
        self._renew_panel()
        self.show_title()

    def _renew_panel(self) -> None:
        """The sizing panel stays with the newest, whatever moment is shown, and says of when that is."""
        if self.panel is not None and self.panel_open and self.newest is not None:
            self.panel.show(self.newest.whole)
            self.panel.update()

    def look_at_row(self) -> None:
        """The foot follows the cursor."""
        chosen = self.table.sum
        self.title_bar.narrow(chosen)
        self.summary.narrow(chosen)
        self.foot.look_at(self.table.selected, models=self.table.models)
        self.row_line.look_at(self.table.selected, self.shown.fleet.wall_s if self.shown is not None else 0.0)
        self.lay_out()

    def show_title(self) -> None:
        """Paint the title line, and how old what is shown is."""
        now_s = self._wall()
        when = When(
            now_s,
            self.paused,
            self.back,
            self.seeking_s,
            self.control.asking,
            self.control.interval_s,
        )
        self.title_bar.show(self.shown.fleet if self.shown is not None else None, when)
        self.faults.at(now_s)

    def lay_out(self) -> None:
        """Give each part its lines; costs a layout only where that changes something."""
        whole, height = self.app.size
        panel = self.panel_columns
        wanted = plan(
            whole,
            height,
            rows=self.table.count,
            foot=self.foot.wanted,
            faults=self.faults.wanted(whole - panel),
            said=self.row_line.wanted(whole - panel),
            drawer=self.drawer.wanted(height),
            covered=self.covered,
        )
        if wanted.tiny and self.drawer.open:
            self.drawer.drop()
            return
        laid = (wanted, self.page, whole, panel, self.panel_open)
        if laid == self._laid and self.title_bar.is_mounted:
            return
        self._laid, self._plan = laid, wanted
        parts = (
            (self.faults, wanted.faults),
            (self.summary, wanted.summary),
            (self.table, wanted.table),
            (self.foot, wanted.foot),
            (self.row_line, wanted.said),
        )
        self.size_parts(wanted, parts, self.title_bar, self.tiny_line)
        self.call_after_refresh(self._settle)

    def _settle(self) -> None:
        for board in self.boards():
            board.update()
        self.show_keys()

    def on_screen_resume(self) -> None:
        """Back from a host: theme, units and size may be others now."""
        self.asked_theme = self.view.config.general.theme
        self.redraw()

    def show_keys(self) -> None:
        """Name the keys that do something here."""
        current = self.current
        place = FleetPlace(
            drawer=self.drawer.open,
            panel=self.panel.keys_of if self.panel is not None and current is self.panel else "",
            beside=self.panel_columns > 0,
            editing=self.panel is not None and self.panel.editing,
            page=next((name for name, page in self.pages.items() if page is self.page), ""),
            models=self.table.models,
            paused=self.paused,
            narrowed=bool(self.table.wanted),
            scrolls=self._plan.drawer > 1 if self.drawer.open else current is not None and current.scrolls,
            every_s=self.control.interval_s,
        )
        self.key_line.show(hints(self.view.keymap, place))

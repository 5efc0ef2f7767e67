"""The fleet's screen: a row per host or model, and what the host under the cursor holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

from textual import events
from textual.app import ComposeResult
from textual.geometry import Size
from textual.screen import Screen

from gpumon.config.themes import Theme
from gpumon.fleet.snapshot import FleetSnapshot
from gpumon.readings.snapshot import Snapshot
from gpumon.tui.control import Files
from gpumon.tui.fleet.actions import FleetActions
from gpumon.tui.fleet.control import FleetControl
from gpumon.tui.fleet.host_pane import HostPane
from gpumon.tui.fleet.keys import IDS, FleetPlace, hints
from gpumon.tui.fleet.layout import FleetPlan, plan
from gpumon.tui.fleet.row_line import RowLine
from gpumon.tui.fleet.rows_pane import RowsPane
from gpumon.tui.fleet.shown import Shown, worked_out
from gpumon.tui.fleet.summary import FaultLine, FleetSummary, TinyFleet
from gpumon.tui.fleet.title import FleetTitle, When
from gpumon.tui.keys import bindings
from gpumon.tui.palette import Palette
from gpumon.tui.screens.notices import Notices
from gpumon.tui.screens.sizing import SizingActions, sized
from gpumon.tui.view import View
from gpumon.tui.widgets.board import Board
from gpumon.tui.widgets.drawer import Drawer, Question
from gpumon.tui.widgets.key_line import KeyLine
from gpumon.tui.widgets.pane import Pane


class FleetScreen(FleetActions, SizingActions, Notices, Screen[None], inherit_bindings=False):
    """Title, summary, the table, the host under the cursor, drawer, keys."""

    ALLOW_SELECT = False
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
        super().__init__()
        self._bindings = bindings(view.keymap, IDS)
        self._wall = wall
        self.opens = opens
        self.control = control
        self.files = files
        self.palette = palette
        self.view = view
        self.shown: Shown | None = None
        self.newest: Shown | None = None
        """What the last refresh brought, shown or not."""
        self._due: FleetSnapshot | None = None
        """What a refresh brought that is not worked out yet."""
        self._working = False
        self.page: Pane | None = None
        self.below: list[Pane] = []
        self._laid: tuple[object, ...] = ()
        self._plan = FleetPlan()
        self.title_bar = FleetTitle(palette)
        self.faults = FaultLine(palette)
        self.summary = FleetSummary(palette, view)
        self.table = RowsPane(palette, view)
        self.foot = HostPane(palette, view)
        self.row_line = RowLine(palette)
        self.drawer = Drawer(palette, self.drawer_closed)
        self.key_line = KeyLine(palette)
        self.tiny_line = TinyFleet(palette, view)
        self.table.moved = self.look_at_row

    def compose(self) -> ComposeResult:
        """Top to bottom; sized before the first paint."""
        self.lay_out()
        yield from self.boards()

    def boards(self) -> Iterator[Board]:
        """Everything that is painted, top to bottom."""
        yield from (self.title_bar, self.faults, self.summary, self.table, self.foot, self.row_line)
        yield from (*self.panels, *(() if self.page is None else (self.page,)))
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
    def tiny(self) -> bool:
        """Whether only a summary has room."""
        return self._plan.tiny

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
        if self.panel is not None and self.panel_open:
            self.panel.show(shown.whole)
        self.show_title()

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
        width = whole - panel
        wanted = plan(
            whole,
            height,
            rows=self.table.count,
            foot=self.foot.wanted,
            faults=self.faults.wanted(width),
            said=self.row_line.wanted(width),
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
        for board, lines in (
            (self.faults, wanted.faults),
            (self.summary, wanted.summary),
            (self.table, wanted.table),
            (self.foot, wanted.foot),
            (self.row_line, wanted.said),
        ):
            sized(board, lines, width)
        if self.page is not None:
            sized(self.page, wanted.page, width)
        self.place_panel(0 if wanted.tiny else height - 2 - wanted.drawer, panel, whole)
        sized(self.drawer, wanted.drawer)
        sized(self.title_bar, 0 if wanted.tiny else 1)
        sized(self.key_line, 0 if wanted.tiny else 1)
        sized(self.tiny_line, max(1, height) if wanted.tiny else 0)
        if self.title_bar.is_mounted and not self.tiny and (self.focused is None or not self.focused.display):
            self.give_keys()
        self.call_after_refresh(self._settle)

    def _settle(self) -> None:
        for board in self.boards():
            board.update()
        self.show_keys()

    def _size_updated(
        self,
        size: Size,
        virtual_size: Size,
        container_size: Size,
        layout: bool = True,  # noqa: ARG002
    ) -> bool:
        """As Textual's, but without a second layout and paint of everything: the first one has it all."""
        return super()._size_updated(size, virtual_size, container_size, layout=False)

    def on_resize(self, event: events.Resize) -> None:  # noqa: ARG002
        """Lay out for the new size, before Textual arranges and paints it."""
        self.lay_out()

    def on_screen_resume(self) -> None:
        """Back from a host: theme, units and size may be others now."""
        self.redraw()

    @property
    def current(self) -> Pane | None:
        """What the keys are for; nothing where none can be seen."""
        if self.tiny:
            return None
        if self.panel is not None and self.focused is self.panel:
            return self.panel
        return self.page or self.table

    def give_keys(self) -> None:
        """Give the keys to what lies on top."""
        panel = self.panel if self.panel_open and (self._panel_keys or not self.panel_columns) else None
        parts: tuple[Board | None, ...] = (self.drawer, self.page, panel, self.table)
        self.set_focus(next((part for part in parts if part is not None and part.display), None))

    def show_keys(self) -> None:
        """Name the keys that do something here."""
        current = self.current
        place = FleetPlace(
            drawer=self.drawer.open,
            panel=self.panel is not None and current is self.panel,
            editing=self.panel is not None and self.panel.editing,
            page=self.page is not None,
            models=self.table.models,
            paused=self.paused,
            narrowed=bool(self.table.wanted),
            scrolls=self._plan.drawer > 1 if self.drawer.open else current is not None and current.scrolls,
            every_s=self.control.interval_s,
        )
        self.key_line.show(hints(self.view.keymap, place))

    def drawer_closed(self) -> None:
        """The keys go back to where they were; what had to wait is said."""
        self.lay_out()
        self.give_keys()
        self.show_keys()
        self.say_what_waited()

    def ask(self, question: Question) -> None:
        """Open the drawer with a question; it takes the keys until it is closed."""
        if self.tiny:
            return
        self._remember()
        self.unsay()
        self.drawer.ask(question)
        self.lay_out()
        self.set_focus(self.drawer)
        self.drawer.update()
        self.show_keys()

    def _remember(self) -> None:
        self._panel_keys = self.panel is not None and self.focused is self.panel

    def run_alone(self, group: str, work: Any) -> None:
        """Work beside the screen, in place of what is left of the same group."""
        self.run_worker(work, exclusive=True, group=group)

    def show_theme(self, theme: Theme) -> None:
        """Show a theme."""
        self.palette.use(theme)
        self.redraw()

    def redraw(self) -> None:
        """Paint everything from scratch."""
        for board in self.boards():
            board.forget()
        self.refresh(layout=True)
        self.lay_out()
        self.show_keys()

    def on_descendant_focus(self) -> None:
        """The keys that make sense depend on what has them."""
        self.show_keys()

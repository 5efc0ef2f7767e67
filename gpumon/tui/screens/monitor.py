"""The main screen: lays out panes, pages and the drawer, shows snapshots, and freezes them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

from textual.app import ComposeResult

from gpumon.readings.format import period
from gpumon.readings.snapshot import Snapshot
from gpumon.tui.control import Control, Files
from gpumon.tui.layout import PANES, Counts, Plan, plan
from gpumon.tui.palette import Palette
from gpumon.tui.screens.actions import Actions
from gpumon.tui.view import View
from gpumon.tui.widgets.board import Board
from gpumon.tui.widgets.engine_pane import EnginePane
from gpumon.tui.widgets.gpu_pane import GpuPane
from gpumon.tui.widgets.history_pane import HistoryPane
from gpumon.tui.widgets.key_line import DRAWER, Place, hints
from gpumon.tui.widgets.process_pane import ProcessPane
from gpumon.tui.widgets.summary_line import SummaryLine
from gpumon.tui.widgets.title_bar import Standing, TitleBar
from gpumon.tui.widgets.triage_pane import TriagePane

_ROOMY: Final = 80
"""Columns from which a rule has room for the word `key`."""


class MonitorScreen(Actions):
    """Title, five panes or a page over them, drawer, keys."""

    AUTO_FOCUS = "GpuPane"

    def __init__(
        self, control: Control, files: Files | None, palette: Palette, view: View, wall: Callable[[], float]
    ) -> None:
        super().__init__(files, palette, view, wall)
        self.control = control
        self.latest: Snapshot | None = None
        self.shown: Snapshot | None = None
        self.start_of_time()
        self.zoomed = ""
        self._plan = Plan()
        self._arrived_s = time.monotonic()
        self._carried_s = 0.0
        self.title_bar = TitleBar(palette)
        panes = (
            GpuPane(palette, view, control.history),
            EnginePane(palette, view),
            HistoryPane(palette, view, control.history),
            ProcessPane(palette, view),
            TriagePane(palette, view, control.history),
        )
        self._before = PANES[0]
        self.panes.update(zip(PANES, panes, strict=True))
        self.history, self.processes, self.triage = panes[2:]
        self.summary = SummaryLine(palette, view)

    def compose(self) -> ComposeResult:
        """Top to bottom; sized before the first paint."""
        self.lay_out()
        yield self.title_bar
        yield from self.panes.values()
        yield self.drawer
        yield self.key_line
        yield self.summary

    def on_mount(self) -> None:
        """Start the clock."""
        self.show_keys()
        self._tick()

    @property
    def planned(self) -> Plan:
        """The lines of each part."""
        return self._plan

    @property
    def in_panes(self) -> Snapshot | None:
        """What panes and pages show; None: nothing yet."""
        return self.shown

    def boards(self) -> Iterator[Board]:
        """Everything that is painted, top to bottom."""
        yield self.title_bar
        yield from self.panes.values()
        yield from self.pages.values()
        yield from self.panels
        yield self.drawer
        yield self.key_line
        yield self.summary

    def show(self, snapshot: Snapshot) -> None:
        """Take in a new snapshot; paint it unless the display is paused."""
        before, self.latest = self.latest, snapshot
        if before is None or snapshot.wall_s != before.wall_s:  # the same moment again is nothing new
            self._arrived_s = time.monotonic()
        if rung(snapshot) - (rung(before) if before is not None else set()):
            self.app.bell()
        if self.panel is not None and self.panel_open:
            self.panel.show(snapshot)
        if self.paused:
            self.watch_live(before, snapshot)
        else:
            self.show_now(snapshot)

    def paint(self, snapshot: Snapshot) -> None:
        """Show a snapshot in every pane."""
        self.shown = snapshot
        self.lay_out()
        for pane in (*self.panes.values(), *self.pages.values()):
            pane.show(snapshot)
        self.summarise()
        self.show_title()
        self._carried_s = time.monotonic()

    def _tick(self) -> None:
        """The clock: once per second, just after it changes; while snapshots come that often, they carry it along."""
        self.set_timer(1.005 - self._wall() % 1.0, self._tick, name="clock")
        if self.moment is not None or (not self.paused and time.monotonic() - self._carried_s > 1.2):
            self.show_title()

    def show_title(self) -> None:
        """Paint the title line."""
        standing = Standing(
            self.paused,
            waited_s=self.waited_s(),
            every_s=self.control.interval_s,
            back=self.moment is not None,
            playing=self.playing,
        )
        self.title_bar.show(self.shown, self._wall(), standing)

    def waited_s(self) -> float:
        """How long the newest snapshot has been there."""
        return time.monotonic() - self._arrived_s

    def summarise(self) -> None:
        """Paint the line that stands for everything where the terminal is too small."""
        self.summary.show(self.shown, paused=self.paused, back=self.moment is not None or self.playing is not None)

    def lay_out(self) -> None:
        """Give each part its lines; costs a layout only where that changes something."""
        whole, height = self.app.size
        panel = self.panel_columns
        width = whole - panel
        counts, drawer = _counts(self.shown, width, self.triage), self.drawer.wanted(height)
        wanted, calm = (
            plan(width, height, of, zoomed=self.zoomed, page=self.covered, drawer=drawer, about=self._before)
            for of in (counts, counts.calm)
        )
        self.history.calm_lines = calm.history
        if wanted.tiny and self.drawer.open:
            self.drawer.drop()  # what is typed must be seen; it lays out again
            return
        laid = (wanted, self.page, whole, panel, self.panel_open)
        if laid == self._laid and self.title_bar.is_mounted:
            return
        self._remember()
        self._laid, self._plan = laid, wanted
        self._name_hidden()
        panes = zip(self.panes.values(), wanted.panes, strict=True)
        self.size_parts(wanted, panes, self.title_bar, self.summary)
        self.call_after_refresh(self._settle)

    def _name_hidden(self) -> None:
        """Say on the rules which panes have no place, and the keys that show them."""
        key, hidden = self.view.keymap.first, self._plan.hidden
        alone = len(hidden) == len(PANES) - 1
        names = " · ".join(f"{key(self.panes[name].KEY)}: {name}" for name in hidden)
        names = f"key {names}" if names and self.app.size.width - self.panel_columns >= _ROOMY else names
        all_panes = f"{key('zoom')} {key('back')}: all panes" if self.zoomed else f"{key('back')}: all panes"
        for name, pane in self.panes.items():
            pane.zoomed = name == self.zoomed
            pane.hint = all_panes if alone and name not in hidden else names if name == PANES[-1] else ""

    def _settle(self) -> None:
        """After a layout: bring the rules and the keys of parts that kept their size up to date."""
        for board in (*self.panes.values(), *self.pages.values(), *self.panels):
            board.update()
        self.show_keys()

    def show_keys(self) -> None:
        """Name the keys that do something here."""
        current = self.current
        named = {**self.panes, **self.pages, **{panel.keys_of: panel for panel in self.panels}}
        place = Place(
            DRAWER if self.drawer.open else next((name for name, pane in named.items() if pane is current), ""),
            page=current is self.page is not None,
            zoomed=bool(self.zoomed),
            opened=(current is self.history and self.history.opened)
            or (self.panel is not None and current is self.panel and self.panel.editing),
            paused=self.paused,
            past=self.timely,
            speed=self.control.playback.speed if self.control.playback is not None else None,
            beside=self.panel_columns > 0,
            scrolls=self._plan.drawer > 1 if self.drawer.open else current is not None and current.scrolls,
            every=period(self.control.interval_s),
        )
        self.key_line.show(hints(self.view.keymap, place))

    def on_click(self) -> None:
        """A click may open something in a pane, or leave it."""
        self.show_keys()

    def redraw(self) -> None:
        """Paint everything from scratch."""
        self._name_hidden()
        super().redraw()


def rung(snapshot: Snapshot) -> set[tuple[str, str, str]]:
    """Alerts that ring the bell, each time that they are raised."""
    return {(alert.name, alert.scope, alert.since) for alert in snapshot.alerts if alert.bell}


def _counts(snapshot: Snapshot | None, width: int, triage: TriagePane) -> Counts:
    if snapshot is None:
        return Counts()
    pids = {process.pid for gpu in snapshot.gpus for process in gpu.processes}
    engines = len(snapshot.engines) + len(snapshot.replicas)
    return Counts(len(snapshot.gpus), engines, len(pids), *triage.lines_wanted(snapshot, width))

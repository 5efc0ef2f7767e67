"""The main screen: lays out the panes, shows snapshots, freezes them, and moves between panes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import ClassVar, Final

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from gpumon.readings.format import period
from gpumon.readings.snapshot import Snapshot
from gpumon.tui.control import Control
from gpumon.tui.keys import shown
from gpumon.tui.layout import PANES, Plan, plan
from gpumon.tui.palette import Palette
from gpumon.tui.widgets.board import Board
from gpumon.tui.widgets.engine_pane import EnginePane
from gpumon.tui.widgets.fault_pane import FaultPane
from gpumon.tui.widgets.gpu_pane import GpuPane
from gpumon.tui.widgets.history_pane import HistoryPane
from gpumon.tui.widgets.key_line import KeyLine
from gpumon.tui.widgets.pane import Pane
from gpumon.tui.widgets.summary_line import SummaryLine
from gpumon.tui.widgets.title_bar import TitleBar

INTERVALS: Final = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Seconds between two readings that + and - go through."""


class MonitorScreen(Screen[None], inherit_bindings=False):
    """Title, four panes, keys."""

    ALLOW_SELECT = False
    AUTO_FOCUS = "GpuPane"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space,p", "pause", "freeze the display", id="pause"),
        Binding("plus", "interval(-1)", "read more often", id="faster"),
        Binding("minus", "interval(1)", "read less often", id="slower"),
        Binding("tab", "pane(0, 1)", "next pane", id="pane.next"),
        Binding("shift+tab", "pane(0, -1)", "previous pane", id="pane.previous"),
        Binding("1", "pane(1)", "GPUs", id="pane.gpus"),
        Binding("2", "pane(2)", "engines", id="pane.engines"),
        Binding("3", "pane(3)", "history", id="pane.history"),
        Binding("4", "pane(4)", "faults", id="pane.faults"),
        Binding("up,k", "scroll(-1)", "scroll up", id="up"),
        Binding("down,j", "scroll(1)", "scroll down", id="down"),
        Binding("pageup", "page(-1)", "page up", id="page.up"),
        Binding("pagedown", "page(1)", "page down", id="page.down"),
        Binding("g", "scroll(-100000)", "to the top", id="top"),
        Binding("G", "scroll(100000)", "to the end", id="end"),
        Binding("z", "zoom", "zoom the pane, and back", id="zoom"),
        Binding("escape", "back", "back to all panes", id="back"),
        Binding("r,ctrl+l", "redraw", "read now, redraw", id="redraw"),
    ]

    def __init__(self, control: Control, palette: Palette, wall: Callable[[], float]) -> None:
        super().__init__()
        self._wall = wall
        self.control = control
        self.latest: Snapshot | None = None
        self.shown: Snapshot | None = None
        self.paused = False
        self.zoomed = ""
        self._plan = Plan()
        self._arrived_s = time.monotonic()
        self._carried_s = 0.0
        self._frozen_s = 0.0
        self.title_bar = TitleBar(palette)
        self.gpus = GpuPane(palette, control.history)
        self.engines = EnginePane(palette)
        self.history = HistoryPane(palette, control.history)
        self.faults = FaultPane(palette)
        self.panes: dict[str, Pane] = dict(
            zip(PANES, (self.gpus, self.engines, self.history, self.faults), strict=True)
        )
        self.key_line = KeyLine(palette)
        self.summary = SummaryLine(palette)

    def compose(self) -> ComposeResult:
        """Top to bottom; sized before the first paint."""
        self._arrange()
        yield self.title_bar
        yield from self.panes.values()
        yield self.key_line
        yield self.summary

    def on_mount(self) -> None:
        """Start the clock."""
        self._show_keys()
        self._tick()

    def show(self, snapshot: Snapshot) -> None:
        """Take in a new snapshot; paint it unless the display is paused."""
        self.latest = snapshot
        self._arrived_s = time.monotonic()
        if not self.paused:
            self._paint(snapshot)

    def _paint(self, snapshot: Snapshot) -> None:
        self.shown = snapshot
        self._arrange()
        for board in (self.gpus, self.engines, self.history, self.faults):
            board.show(snapshot)
        self.summary.show(snapshot, paused=self.paused)
        self._show_title()
        self._carried_s = time.monotonic()

    def _tick(self) -> None:
        """The clock: once per second, just after it changes; while snapshots come that often, they carry it along."""
        self.set_timer(1.005 - self._wall() % 1.0, self._tick, name="clock")
        if not self.paused and time.monotonic() - self._carried_s > 1.2:
            self._show_title()

    def _show_title(self) -> None:
        waited_s = time.monotonic() - self._arrived_s
        now_s = self._frozen_s if self.paused else self._wall()
        self.title_bar.show(self.shown, now_s, paused=self.paused, waited_s=waited_s)

    def _arrange(self) -> None:
        """Give each pane its lines; costs a layout only where that changes something."""
        width, height = self.app.size
        snapshot = self.shown
        counts = (
            (len(snapshot.gpus), len(snapshot.engines), len(snapshot.faults) + len(snapshot.verdicts))
            if snapshot
            else (0, 0, 0)
        )
        wanted = plan(width, height, *counts, zoomed=self.zoomed)
        if wanted == self._plan and self.title_bar.is_mounted:
            return
        self._plan = wanted
        for pane, lines in zip(self.panes.values(), wanted, strict=True):
            _size(pane, lines)
        hidden = "" if self.zoomed else " · ".join(f"{name}: key {self.panes[name].KEY}" for name in wanted.hidden)
        for name, pane in self.panes.items():
            pane.zoomed = name == self.zoomed
            pane.hint = "z Esc: all panes" if pane.zoomed else hidden if name == PANES[-1] else ""
        _size(self.title_bar, 0 if wanted.tiny else 1)
        _size(self.key_line, 0 if wanted.tiny else 1)
        _size(self.summary, max(1, height) if wanted.tiny else 0)
        self.call_after_refresh(self._show_keys)

    def on_resize(self, event: events.Resize) -> None:  # noqa: ARG002
        """Lay out for the new size."""
        self._arrange()
        for board in self._boards():
            board.update()

    def _boards(self) -> Iterator[Board]:
        yield self.title_bar
        yield from self.panes.values()
        yield self.key_line
        yield self.summary

    def _show_keys(self) -> None:
        keys: dict[str, str] = {}
        for binding in (*self.BINDINGS, *self.app.BINDINGS):
            if isinstance(binding, Binding):
                keys.setdefault(binding.id or "", shown(binding).split()[0])
        hints = [
            (keys["help"], "help"),
            (keys["pause"], "resume" if self.paused else "pause"),
            (f"{keys['faster']} {keys['slower']}", f"every {period(self.control.interval_s)}"),
            (f"{keys['pane.gpus']}-{keys['pane.faults']}", "pane"),
            (keys["zoom"], "all panes" if self.zoomed else "zoom"),
        ]
        if isinstance(self.focused, Pane) and self.focused.scrolls:
            hints.append((f"{keys['up']} {keys['down']}", "scroll"))
        self.key_line.show([*hints, (keys["quit"], "quit")])

    def on_descendant_focus(self) -> None:
        """The keys that make sense depend on the pane."""
        self._show_keys()

    def action_pause(self) -> None:
        """Freeze what is shown, or go on with the newest."""
        if self.shown is None:
            return
        self.paused = not self.paused
        self._frozen_s = self._wall()
        if self.paused:
            self.summary.show(self.shown, paused=True)
        elif self.latest is not None:
            self._paint(self.latest)
        self._show_title()
        self._show_keys()

    def action_interval(self, step: int) -> None:
        """Go to the next longer or shorter interval."""
        now = self.control.interval_s
        others = [interval for interval in INTERVALS if (interval - now) * step > 1e-9]
        if others:
            self.control.set_interval(min(others) if step > 0 else max(others))
        self._show_keys()

    def action_pane(self, number: int, step: int = 0) -> None:
        """Go to a pane by its number, or to the next one; zoomed where another was, or where it has no place."""
        if self._plan.tiny:
            return
        name = PANES[number - 1]
        if step:
            visible = [name for name in PANES if self.panes[name].display]
            at = next((at for at, name in enumerate(visible) if self.panes[name] is self.focused), -(step > 0))
            name = visible[(at + step) % len(visible)]
        if self.zoomed or not self.panes[name].display:
            self._zoom(name)
        self.set_focus(self.panes[name])

    def action_scroll(self, lines: int) -> None:
        """Scroll the focused pane."""
        if isinstance(self.focused, Pane):
            self.focused.scroll_rows(lines)

    def action_page(self, pages: int) -> None:
        """Scroll the focused pane by what it shows."""
        if isinstance(self.focused, Pane):
            self.focused.scroll_rows(pages * self.focused.page())

    def action_zoom(self) -> None:
        """The focused pane alone, or all again."""
        if not self._plan.tiny:
            focused = next((name for name, pane in self.panes.items() if pane is self.focused), PANES[0])
            self._zoom("" if self.zoomed else focused)

    def action_back(self) -> None:
        """All panes again."""
        self._zoom("")

    def _zoom(self, name: str) -> None:
        if name != self.zoomed:
            self.zoomed = name
            self._arrange()
            self._show_keys()

    def action_redraw(self) -> None:
        """Ask for a reading now, and paint everything from scratch."""
        self.control.refresh()
        self.refresh(layout=True)


def _size(board: Board, lines: int) -> None:
    board.display = lines > 0
    board.styles.height = max(1, lines)

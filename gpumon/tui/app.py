"""The Textual application: mounts the screen, connects it to what collects, and leaves the terminal as found."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
import time
from abc import abstractmethod
from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

from rich.text import Text
from textual import constants, events
from textual.app import App
from textual.binding import Binding
from textual.dom import DOMNode
from textual.driver import Driver
from textual.screen import Screen

from gpumon.config.schema import Config
from gpumon.config.themes import Theme
from gpumon.readings.snapshot import Snapshot
from gpumon.readings.text import clean
from gpumon.tui.control import Collecting, Control, Files
from gpumon.tui.driver import TerminalDriver
from gpumon.tui.keys import ALWAYS, keymap_of
from gpumon.tui.messages import SnapshotReady
from gpumon.tui.output import TerminalOutput
from gpumon.tui.palette import Palette
from gpumon.tui.screens.monitor import MonitorScreen
from gpumon.tui.terminal import MOST_CELLS, depth, drawn_with, reports_mouse, terminal_size
from gpumon.tui.view import View

if TYPE_CHECKING:
    from gpumon.tui.screens.common import CommonActions

_Control = TypeVar("_Control", bound=Collecting)
_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_GC_THRESHOLDS: Final = (20_000, 10, 10)
"""Frames and snapshots are in no cycle: they go without the garbage collector, which is to look at them seldom."""
_LARGE_THRESHOLDS: Final = (5_000, 1_000, 10)
"""Where each answer leaves 100,000 objects: the young are looked at in small parts, the old by `keep` alone."""
_COLLECT_EVERY_S: Final = 3600.0
"""Screens that were left are in cycles: so often all is looked at, which takes some tenths of a second."""
_SETTLED_S: Final = 30.0
_STOP_S: Final = 2.0
"""The collector promises a fraction of a second; a broken promise must not keep the shell waiting."""


class TerminalApp(App[int], Generic[_Control], inherit_bindings=False):
    """What a screen of gpumon runs in, whatever it shows."""

    BINDINGS: ClassVar = ALWAYS
    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False
    TITLE = "gpumon"
    CSS = (
        "Screen { layout: vertical; layers: base beside; overflow: hidden hidden; }"
        "Board { width: 100%; height: 1; layer: base; } SizingPanel { layer: beside; }"
    )

    def __init__(
        self,
        control: _Control,
        theme: Theme,
        config: Config | None = None,
        files: Files | None = None,
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        if not os.environ.get("TEXTUAL_DRIVER") and sys.stdout.isatty():
            # Textual lays the first screen out by these, whatever size they or the terminal say.
            os.environ["COLUMNS"], os.environ["LINES"] = map(str, terminal_size())
        super().__init__()
        self.animation_level = "none"
        self.control = control
        self.wall = wall
        self.files = files
        config = config or Config()
        glyphs = drawn_with(config, os.environ)
        self.palette = Palette(theme, depth(os.environ), ascii=glyphs == "ascii", glyphs=glyphs)
        self.view = View(config)
        self._collect_at_s = time.monotonic() + _COLLECT_EVERY_S
        self._collecting: asyncio.Task[None] | None = None

    @property
    @abstractmethod
    def front(self) -> CommonActions:
        """The screen that has the keys."""

    @abstractmethod
    def sink(self, snapshot: Any) -> None:
        """Take what was collected; never blocks."""

    async def stop(self) -> None:
        """Stop collecting."""
        await self.control.stop()

    def get_driver_class(self) -> type[Driver]:
        """Our own terminal driver, unless the environment names one (a browser)."""
        if constants.DRIVER is not None:
            return super().get_driver_class()

        return TerminalDriver

    def handle_bindings_clash(self, clashed_bindings: set[Binding], node: DOMNode) -> None:
        """Textual counts keys that two commands exchange as a clash; the config has been checked for real ones."""

    def get_default_screen(self) -> Screen[Any]:
        """It is there from the first paint on."""
        return self.front

    def on_mount(self) -> None:
        """Nothing slow stands before the first paint."""
        self.set_keymap(keymap_of(self.view.keymap))
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        gc.freeze()
        gc.set_threshold(*_GC_THRESHOLDS)
        # What stands by then stays: the models, and what was remembered of every endpoint's page.
        self.set_timer(_SETTLED_S, gc.freeze)
        self._collecting = asyncio.create_task(self._collect())

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

    async def _collect(self) -> None:
        """Run the collector; without it there is nothing to show, so its failure is the screen's end."""
        try:
            await self.control.start(self.sink)
            await self.control.ended()
        except Exception as error:  # whatever ended the collecting, the user has to see it
            self.exit(
                return_code=1, message=Text(clean(f"gpumon failed, please report: {type(error).__name__}: {error}"))
            )

    async def on_key(self, event: events.Key) -> None:
        """A key that was typed before the drawer stood is for the drawer all the same: `/q` filters, it never quits.

        Keys are run here, in the order in which they were typed, and not where they were typed.
        """
        front = self.front
        current = front.current
        if front.drawer.open:
            await front.drawer.on_key(event)
            return
        front.unsay()
        if current is not None and current.take(event.key, event.character):
            event.prevent_default()

    async def on_unmount(self) -> None:
        """Stop collecting; the terminal is restored by now."""
        if self._collecting is not None:
            self._collecting.cancel()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.stop(), _STOP_S)


class MonitorApp(TerminalApp[Control]):
    """The screen of one machine."""

    @cached_property
    def monitor(self) -> MonitorScreen:
        """The only screen."""
        return MonitorScreen(self.control, self.files, self.palette, self.view, self.wall)

    @property
    def front(self) -> MonitorScreen:
        """The monitor: there is no other screen."""
        return self.monitor

    def sink(self, snapshot: Snapshot) -> None:
        """Have it shown."""
        self.post_message(SnapshotReady(snapshot))

    def on_snapshot_ready(self, message: SnapshotReady) -> None:
        """Show the newest snapshot."""
        self.monitor.show(message.snapshot)


def run(app: TerminalApp[Any], mouse: bool = True) -> int:
    """Run the screen until it is left; returns the exit code: 128 + n after signal n, as a shell expects."""
    return asyncio.run(_run(app, mouse))


async def _run(app: TerminalApp[Any], mouse: bool) -> int:
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, app.exit, 128 + number)
    usual, terminal = sys.__stderr__, sys.__stdout__
    if constants.DRIVER is None and terminal is not None:
        # Textual draws on this stream: a log of stderr is not to get the screen.
        gone = partial(loop.call_soon_threadsafe, app.exit)
        sys.__stderr__ = TerminalOutput(terminal, gone)  # type: ignore[misc, assignment]
        for name, cells in zip(("COLUMNS", "LINES"), terminal_size(), strict=True):
            if cells < MOST_CELLS:
                os.environ.pop(name, None)  # Textual asks the terminal then, at each change of its size
    try:
        code = await app.run_async(mouse=mouse and reports_mouse(os.environ))
    finally:
        sys.__stderr__ = usual  # type: ignore[misc]
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
        for number in (signal.SIGTSTP, signal.SIGCONT):
            signal.signal(number, signal.SIG_DFL)
    return code if code is not None else app.return_code or 0

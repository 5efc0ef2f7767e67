"""The Textual application: mounts the screen, connects it to what collects, and leaves the terminal as found."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, TextIO

from rich.text import Text
from textual import constants, events
from textual.app import App
from textual.binding import Binding
from textual.dom import DOMNode
from textual.driver import Driver
from textual.screen import Screen
from textual.widgets import Input
from textual.worker import WorkType

from gpumon.config.schema import Config
from gpumon.config.themes import Theme
from gpumon.readings.text import clean
from gpumon.tui.control import Control, Files
from gpumon.tui.driver import TerminalDriver
from gpumon.tui.keys import ALWAYS, keymap_of
from gpumon.tui.output import TerminalOutput
from gpumon.tui.palette import Palette
from gpumon.tui.screens.host import HostBody
from gpumon.tui.screens.monitor import Context, MonitorScreen, SnapshotReady
from gpumon.tui.screens.parts import wear
from gpumon.tui.terminal import MOST_CELLS, depth, drawn_with, reports_mouse, terminal_size
from gpumon.tui.view import View

if TYPE_CHECKING:
    from gpumon.fleet.snapshot import FleetSnapshot

_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_GC_THRESHOLDS: Final = (20_000, 10, 10)
"""Frames and snapshots are in no cycle: they go without the garbage collector, which is to look at them seldom."""
_LARGE_THRESHOLDS: Final = (5_000, 1_000, 10)
"""Each answer leaves 100,000 objects: the young are collected in small parts, the old by `keep` alone."""
_COLLECT_EVERY_S: Final = 3600.0
"""Screens that were left are in cycles: so often all is looked at, which takes some tenths of a second."""
_SETTLED_S: Final = 30.0
_STOP_S: Final = 2.0
"""The collector promises a fraction of a second; a broken promise must not keep the shell waiting."""


class MonitorApp(App[int], inherit_bindings=False):
    """The screen of one machine or recording; or of a fleet, and over that the screen of one of its hosts."""

    BINDINGS: ClassVar = ALWAYS
    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False
    TITLE = "gpumon"
    CSS = (
        "Screen { layout: vertical; layers: base beside above; overflow: hidden hidden; }"
        "Board { width: 100%; height: 1; layer: base; } SizingPanel { layer: beside; }"
        "CommandPalette SearchIcon { display: none; } CommandPalette Vertical * { border: none; }"
        "CommandPalette CommandList { scrollbar-size-vertical: 0; }"
    )

    def __init__(
        self,
        control: Any,
        theme: Theme,
        config: Config | None = None,
        files: Files | None = None,
        *,
        fleet: bool = False,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`control`: a `Control`, or with `fleet` a `FleetControl`."""
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
        wear(self, self.palette)
        self.view = View(config)
        self._fleet = fleet
        self.host: MonitorScreen | None = None
        """The host of a fleet that is looked at."""
        self._due: FleetSnapshot | None = None
        """Result of a fleet's refresh that is not worked out yet."""
        self._collect_at_s = time.monotonic() + _COLLECT_EVERY_S
        self._collecting: asyncio.Task[None] | None = None

    @cached_property
    def monitor(self) -> MonitorScreen:
        """The screen of the machine, or of the fleet."""
        context = self._works_with(self.control)
        if not self._fleet:
            return MonitorScreen(context, HostBody(context))
        from gpumon.tui.screens.fleet import FleetBody

        return MonitorScreen(context, FleetBody(context, self.open_host))

    def _works_with(self, control: Any) -> Context:
        return Context(control, self.files, self.palette, self.view, self.wall)

    @property
    def front(self) -> MonitorScreen:
        """The screen that has the keys: the host's while there is one."""
        return self.host or self.monitor

    def sink(self, snapshot: Any) -> None:
        """Take what was collected; never blocks."""
        (self if self._fleet else self.monitor).post_message(SnapshotReady(snapshot))

    def on_snapshot_ready(self, message: SnapshotReady) -> None:
        """A fleet is worked out first, also beneath a host's screen; a newer one takes the place of one that waits."""
        working = self._due is not None
        self._due = message.snapshot
        if not working:
            work: WorkType[None] = self._work_out
            self.run_worker(work, group="refresh")

    async def _work_out(self) -> None:
        """In a thread, so that keys are answered meanwhile."""
        from gpumon.tui.fleet.shown import worked_out

        done = None
        while self._due is not None and done is not self._due:
            done = self._due
            shown = await asyncio.to_thread(worked_out, done, self.control.prices)
            self.monitor.show(shown)
            self.keep()
        self._due = None

    def open_host(self, name: str, at_s: float | None, gpu: str = "") -> None:
        """Show one host of the fleet; `at_s`: the Unix time to begin at, None: live; `gpu`: UUID of the GPU whose page
        comes first, empty: none."""
        if self.host is None:
            shown = None
            if self.monitor.shown is not None:
                shown = self.monitor.shown.fleet.host(name)
            control = self.control.host(name, shown.snapshot if shown is not None else None)
            context = self._works_with(control)
            body = HostBody(context, lambda: control.filling, gpu)
            self.host = MonitorScreen(context, body, self.leave_host, at_s)
            self.push_screen(self.host)
            self.host.call_later(self.host.run_worker, self._follow(self.host), group="collect")

    async def _follow(self, host: MonitorScreen) -> None:
        """An error that ends the host's snapshots ends its screen, not the fleet's."""
        try:
            await host.control.start(lambda snapshot: host.post_message(SnapshotReady(snapshot)))
            await host.control.ended()
        except Exception as error:  # whatever it was, the user has to see it
            if self.host is host:
                self.leave_host(f"this host cannot be shown: {clean(f'{type(error).__name__}: {error}', 200)}")

    def leave_host(self, notice: str) -> None:
        """Back to the fleet, and say there what is to be said."""
        host = self.host
        self.host = None
        if host is not None:
            self.pop_screen()
            work: WorkType[None] = partial(_stopped, host.control)
            self.run_worker(work, group="leaving")
            if notice:
                self.monitor.say(notice, urgent=True)

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

    async def on_event(self, event: events.Event) -> None:
        """Input that comes while the screen is being left has no screen to go to."""
        if self.screen_stack or not isinstance(event, events.InputEvent):
            await super().on_event(event)

    async def on_key(self, event: events.Key) -> None:
        """Keys are run here, in the order in which they were typed, and not where they were typed.

        What was typed before a question stood is for the question all the same: `/q` filters, it never quits.
        """
        opening = self.front.opening
        self.front.opening = None
        if opening is not None:
            await opening
        if self.screen_stack and self.front.asking is not None:
            await self.front.asking.take(event)
            if self.screen_stack:
                return
        if not self.screen_stack:  # it is being left: Textual would look for the key's binding on a screen
            event.prevent_default()
            return
        if self.screen is not self.front:
            self._type_into_field(event)
            return
        self.front.hush()
        current = self.front.current
        if current is not None and current.take(event.key, event.character):
            event.prevent_default()

    def _type_into_field(self, event: events.Key) -> None:
        """Put a character into the first field of the screen on top, which need not have the focus yet."""
        fields = self.screen.query(Input)
        if event.is_printable and event.character is not None and fields:
            field = fields.first()
            field.replace(event.character, *sorted(field.selection))
            event.prevent_default()

    async def on_unmount(self) -> None:
        """Stop collecting; the terminal is restored by now."""
        if self._collecting is not None:
            self._collecting.cancel()
        for control in (self.host.control, self.control) if self.host is not None else (self.control,):
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(control.stop(), _STOP_S)


async def _stopped(control: Control) -> None:
    """Let go of a host; it was told to stop, and nobody waits for what that may raise."""
    with contextlib.suppress(Exception):
        await control.stop()


def run(app: MonitorApp, mouse: bool = True) -> int:
    """Run the screen until it is left; returns the exit code: 128 + n after signal n, as a shell expects."""
    return asyncio.run(_run(app, mouse))


async def _run(app: MonitorApp, mouse: bool) -> int:
    """Run the screen, with the process's signals and streams set for it meanwhile; returns the exit code."""
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, app.exit, 128 + number)
    usual = sys.__stderr__
    if constants.DRIVER is None and sys.__stdout__ is not None:
        _draw_on(sys.__stdout__, app)
    try:
        code = await app.run_async(mouse=mouse and reports_mouse(os.environ))
    finally:
        sys.__stderr__ = usual  # type: ignore[misc]  # Final in typeshed
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
        for number in (signal.SIGTSTP, signal.SIGCONT):
            signal.signal(number, signal.SIG_DFL)
    if code is not None:
        return code
    return app.return_code or 0


def _draw_on(terminal: TextIO, app: MonitorApp) -> None:
    """Have Textual draw on a terminal, in the size that this has at any time."""
    # Textual draws on this stream: a log of stderr is not to get the screen.
    gone = partial(asyncio.get_running_loop().call_soon_threadsafe, app.exit)
    sys.__stderr__ = TerminalOutput(terminal, gone, app.palette)  # type: ignore[misc, assignment]  # Final in typeshed; Textual takes its output from it
    for name, cells in zip(("COLUMNS", "LINES"), terminal_size(), strict=True):
        if cells < MOST_CELLS:
            os.environ.pop(name, None)  # Textual asks the terminal then, at each change of its size

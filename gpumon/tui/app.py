"""The Textual application: mounts the screen, connects it to what collects, and leaves the terminal as found."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Final, Generic, TextIO, TypeVar

from rich.console import Console, RenderableType
from rich.segment import Segments
from rich.text import Text
from textual import constants, events
from textual.app import App
from textual.binding import Binding
from textual.dom import DOMNode
from textual.driver import Driver
from textual.errors import NoWidget
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input

from gpumon.config.schema import Config
from gpumon.config.themes import Theme
from gpumon.deadline import timeout
from gpumon.readings.snapshot import Snapshot
from gpumon.readings.text import clean
from gpumon.tui.control import Collector, Control, Files
from gpumon.tui.driver import TerminalDriver
from gpumon.tui.keys import ALWAYS, keymap_of
from gpumon.tui.output import TerminalOutput
from gpumon.tui.palette import Palette
from gpumon.tui.pastes import MOST_PASTED
from gpumon.tui.screens.commands import COMMON
from gpumon.tui.screens.context import S, ScreenContext
from gpumon.tui.screens.host import HostBody
from gpumon.tui.screens.monitor import MonitorScreen, SnapshotReady
from gpumon.tui.screens.settings_in_effect import colour_textual
from gpumon.tui.terminal import MOST_CELLS, chart_glyphs, colour_depth, reports_mouse, terminal_size
from gpumon.tui.view import View

C = TypeVar("C", bound=Collector)
"""Source of the snapshots: a machine, a recording, or a fleet."""
_SIGSTKFLT: Final = 16
"""Number of a signal of Linux that Python has no name for before 3.11."""
_SIGNALS: Final = (
    *(signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT),
    *(signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGXCPU),
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGIO, signal.SIGPWR),
    *(signal.SIGABRT, signal.SIGSYS, signal.SIGTRAP, _SIGSTKFLT),
    *range(signal.SIGRTMIN, signal.SIGRTMAX + 1),
)
"""Signals that end a program and can be handled: the screen ends, and leaves the terminal as it was."""
_GC_THRESHOLDS: Final = (20_000, 5, 2)
"""Thresholds of `gc.set_threshold`. Frames and snapshots are in no cycle: they go without the garbage collector, which
is to look at them seldom."""
_COLLECT_EVERY_S: Final = 120.0
"""Seconds between two collections of all objects, of some 60 ms each. Screens that were left are in cycles, and what
they showed goes with them: by the thresholds alone they waited for up to 20 minutes, and what else came meanwhile took
new memory (docs/notes/performance.md)."""
_MODELS_LOADED_S: Final = 30.0
"""Seconds after which the models of the sizing panel, and what is remembered of every endpoint's page, are there."""
_CLICK_WITHIN_S: Final = 2.0
"""Seconds that a click has before the key behind it counts."""
_STOP_WITHIN_S: Final = 2.0
"""Seconds that the collector has to stop. It promises a fraction of one; a broken promise must not keep the shell
waiting."""


class _LastWords(Console):
    """Prints what ended the screen in Textual's place: messages, and no traceback, as that has the values of all local
    variables; settings, keys of the environment and texts of others are among them."""

    def print(self, *objects: object, markup: bool | None = None) -> None:  # type: ignore[override]  # Textual's options
        """Print a message."""
        if not any(isinstance(printed, Segments) for printed in objects):  # of a traceback
            super().print(*objects, markup=markup)


class ScreenApp(App[int], Generic[S, C], inherit_bindings=False):
    """The application of a screen, whatever that shows, and whatever brings its snapshots."""

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
        control: C,
        theme: Theme,
        config: Config | None = None,
        files: Files | None = None,
        *,
        unix_time: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`files`: None where nothing is read or written. `unix_time`: gives the Unix time now. `monotonic`: the clock
        by which the age of what is shown is told."""
        if not os.environ.get("TEXTUAL_DRIVER") and sys.stdout.isatty():
            # Textual lays the first screen out by these, whatever size they or the terminal say.
            columns, lines = terminal_size()
            os.environ["COLUMNS"] = str(columns)
            os.environ["LINES"] = str(lines)
        super().__init__()
        self.error_console = _LastWords(markup=False, highlight=False, stderr=True)
        self.animation_level = "none"
        self.unix_time = unix_time
        self.monotonic = monotonic
        self.control = control
        self.files = files
        config = config or Config()
        glyphs = chart_glyphs(config, os.environ)
        self.palette = Palette(theme, colour_depth(os.environ), ascii=glyphs == "ascii", glyphs=glyphs)
        colour_textual(self, self.palette)
        self.view = View(config)
        self._is_leaving = False
        """Whether the end has begun: keys that come in the same read as `q` are for nothing any more."""
        self.bug: BaseException | None = None
        """The error that ended the screen; None: there was none."""
        self._clicked: Widget | None = None
        """The widget that was clicked on since the last key."""
        self._collecting: asyncio.Task[None] | None = None
        """The task that runs the collector; None before the first paint."""

    @property
    def monitor(self) -> MonitorScreen[S]:
        """The screen that stays until the end."""
        raise NotImplementedError

    @property
    def front(self) -> MonitorScreen[S] | MonitorScreen[Snapshot]:
        """The screen that has the keys."""
        return self.monitor

    def machine_context(self, control: Control) -> ScreenContext:
        """The context of a screen of one machine."""
        return ScreenContext(
            control, self.files, self.palette, self.view, self.unix_time, self.monotonic, machine=control
        )

    async def begin_to_collect(self) -> None:
        """Start what brings the snapshots."""
        raise NotImplementedError

    def sources(self) -> Sequence[Collector]:
        """All that collects now, in the order in which it is to be stopped."""
        return (self.control,)

    def get_driver_class(self) -> type[Driver]:
        """Our own terminal driver, unless the environment names one (a browser)."""
        if constants.DRIVER is not None:
            return super().get_driver_class()
        return TerminalDriver

    def handle_bindings_clash(self, clashed_bindings: set[Binding], node: DOMNode) -> None:
        """Let clashes be: Textual counts keys that two commands exchange as one, and the config was checked for real
        ones."""

    def get_default_screen(self) -> Screen[None]:
        """The screen that is there from the first paint on."""
        return self.front

    def refresh_css(self, animate: bool = True) -> None:
        """Style everything anew; before there is a screen, only tell the stylesheets the colours of the theme: they are
        parsed later, with those of all widgets."""
        if self.screen_stack:
            super().refresh_css(animate)
        else:
            self.stylesheet.set_variables(self.get_css_variables())

    def exit(self, result: int | None = None, return_code: int = 0, message: RenderableType | None = None) -> None:
        """Leave the screen; what is typed from now on does nothing."""
        self._is_leaving = True
        super().exit(result, return_code, message)

    def on_mount(self) -> None:
        """Set the keys; all that is slow comes after the first paint."""
        self.set_keymap(keymap_of(self.view.keymap))
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))
        self.call_after_refresh(self._begin_after_paint)

    def _begin_after_paint(self) -> None:
        """Set the garbage collector, and start to collect."""
        gc.enable()
        gc.freeze()
        gc.set_threshold(*_GC_THRESHOLDS)
        # What is there by then stays for good: the garbage collector need not look at it.
        self.set_timer(_MODELS_LOADED_S, gc.freeze)
        self.set_interval(_COLLECT_EVERY_S, self._collect_garbage)
        self._collecting = asyncio.create_task(self._run_collector())

    def _collect_garbage(self) -> None:
        """Free what is left in cycles. A method, as Textual's `set_interval` takes no function that is written in C."""
        gc.collect()

    async def _run_collector(self) -> None:
        """Run the collector; without it there is nothing to show, so its failure is the screen's end."""
        try:
            await self.begin_to_collect()
            await self.control.ended()
        except Exception as error:  # whatever ended the collecting, the user has to see it
            reason = clean(f"{type(error).__name__}: {error}")
            self.exit(return_code=1, message=Text(f"gpumon failed, please report: {reason}"))

    def bell(self) -> None:
        """Ring, and keep the error that is handled meanwhile: at a bug Textual rings, and tells of it in no other way
        than by a traceback."""
        self.bug = self.bug or sys.exc_info()[1]
        super().bell()

    async def on_event(self, event: events.Event) -> None:
        """Run a key; drop input that comes while the screen is being left, as it has no screen to go to."""
        if isinstance(event, events.InputEvent) and (self._is_leaving or not self.screen_stack):
            return
        if isinstance(event, events.Key) and not event.is_forwarded:
            await self._run_key(event)
        elif isinstance(event, events.Paste) and not event.is_forwarded:
            await self._take_paste(event)
        else:
            await super().on_event(event)
            if isinstance(event, events.MouseUp):
                with contextlib.suppress(NoWidget):
                    self._clicked, _ = self.screen.get_widget_at(round(event.screen_x), round(event.screen_y))

    async def _finish_click(self) -> None:
        """Wait until what was clicked on has taken the click: it has a queue of its own, and keys are run at once."""
        clicked = self._clicked
        self._clicked = None
        if clicked is not None and clicked.is_running:
            done = asyncio.Event()
            clicked.call_later(done.set)
            with contextlib.suppress(asyncio.TimeoutError):
                async with timeout(_CLICK_WITHIN_S):
                    await done.wait()

    async def _run_key(self, event: events.Key) -> None:
        """Run a key as it comes in.

        Textual would hand it to the widget that has the focus, from where it comes back: keys that were typed before
        and after a question got the focus came back in another order. What was typed before a question stood is for
        the question all the same: `/q` filters, it never quits.
        """
        if event.key in ALWAYS:
            await self.run_action(ALWAYS[event.key])
            return
        await self._finish_click()
        self.app_focus = True  # a terminal that tells when it loses the focus need not tell when it has it again
        await self._finish_opening()
        if not self.screen_stack:
            return
        if self.front.question_bar is not None:
            await self.front.question_bar.receive_key(event)
            return
        if self._is_typed(event):
            return
        active = self.screen.active_bindings.get(event.key)
        if active is not None and active.enabled:
            await self.run_action(active.binding.action, active.node)

    async def _finish_opening(self) -> None:
        """Wait until the question or the palette that is being opened stands."""
        opening = self.front.opening
        self.front.opening = None
        if opening is not None:
            await opening

    def _is_typed(self, event: events.Key) -> bool:
        """Give a key to what is typed into, if it is for that; returns whether it is."""
        if self.screen is self.front:
            self.front.hush()
            current = self.front.current
            return current is not None and current.take_key(event.key, event.character)
        # The command palette is open over it.
        return event.is_printable and event.character is not None and self._type_into_palette(event.character)

    def _type_into_palette(self, text: str) -> bool:
        """Put a text into the first field of the screen on top, which need not have the focus yet; returns whether
        there is one."""
        fields = self.screen.query(Input)
        if not fields:
            return False
        field = fields.first()
        field.replace(text, *sorted(field.selection))
        return True

    async def _take_paste(self, event: events.Paste) -> None:
        """Give what is pasted to what is typed into, in its turn among the keys."""
        await self._finish_opening()
        if not self.screen_stack:
            return
        first_line = next(filter(str.strip, event.text.splitlines()), "")
        text = "".join(filter(str.isprintable, first_line))
        if self.front.question_bar is not None:
            self.front.question_bar.receive_text(text)
        elif self.screen is not self.front:
            self._type_into_palette(text)
        elif self.front.current is not None:
            self.front.current.take_paste(event.text)

    def on_paste_cut(self) -> None:
        """Say that a paste is not there in full."""
        self.front.say(f"the paste is longer than {MOST_PASTED // 1024} KiB: the rest is left out")

    async def on_unmount(self) -> None:
        """Stop collecting; the terminal is restored by now."""
        if self._collecting is not None:
            self._collecting.cancel()
        for control in self.sources():
            with contextlib.suppress(asyncio.TimeoutError):
                async with timeout(_STOP_WITHIN_S):
                    await control.stop()


class MonitorApp(ScreenApp[Snapshot, Control]):
    """The screen of this machine, or of a recording."""

    @cached_property
    def monitor(self) -> MonitorScreen[Snapshot]:
        """The screen of the machine."""
        context = self.machine_context(self.control)
        body = HostBody(context, self.control)
        return MonitorScreen(context, body, {**COMMON, **body.commands})

    async def begin_to_collect(self) -> None:
        """Start the collector, or the recording."""
        await self.control.start(self.sink)

    def sink(self, snapshot: Snapshot) -> None:
        """Take what was collected; never blocks."""
        self.monitor.post_message(SnapshotReady(snapshot))


def run(app: ScreenApp[S, C], mouse: bool = True) -> int:
    """Run the screen until it is left; returns the exit code: 128 + n after signal n, as a shell expects. Raises what a
    bug in it raised."""
    return asyncio.run(_run(app, mouse))


async def _run(app: ScreenApp[S, C], mouse: bool) -> int:
    """Run the screen, with the process's signals and streams set for it meanwhile; returns the exit code."""
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, app.exit, 128 + number)
    stderr_before = sys.__stderr__
    if constants.DRIVER is None and sys.__stdout__ is not None:
        _draw_on(sys.__stdout__, app)
    try:
        code = await app.run_async(mouse=mouse and reports_mouse(os.environ))
    finally:
        sys.__stderr__ = stderr_before  # type: ignore[misc]  # Final in typeshed
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
        for number in (signal.SIGTSTP, signal.SIGCONT):
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
    if app.bug is not None:
        raise app.bug
    if code is not None:
        return code
    return app.return_code or 0


def _draw_on(terminal: TextIO, app: ScreenApp[S, C]) -> None:
    """Have Textual draw on a terminal, in the size that this has at any time."""
    # Textual draws on this stream: a log of stderr is not to get the screen.
    leave = partial(asyncio.get_running_loop().call_soon_threadsafe, app.exit)
    sys.__stderr__ = TerminalOutput(terminal, leave)  # type: ignore[misc, assignment]  # Final in typeshed; Textual takes its output from it
    for name, size in zip(("COLUMNS", "LINES"), terminal_size(), strict=True):
        if size < MOST_CELLS:
            os.environ.pop(name, None)  # Textual asks the terminal then, at each change of its size

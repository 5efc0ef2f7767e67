"""The terminal driver: Textual's, made to survive what terminals and their users do."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any, Final

from textual.app import App
from textual.drivers.linux_driver import LinuxDriver

from gpumon.tui.output import TerminalOutput

DRAGS_ONLY: Final = "\x1b[?1003l\x1b[?1002h"
"""Turns off the reports of each motion of the mouse, but for those while a button is down. Terminals that have one mode
of the mouse (xterm, tmux) report nothing at all after the first alone."""
_NO_MOUSE: Final = "\x1b[?1002l\x1b[?1016l"
"""Turns off the drags, and reports in pixels: Textual turns these on where a terminal has them, and leaves them on."""
_QUIET_ROUND_S: Final = 0.09
"""A round of Textual's input thread that took longer than so many seconds (it waits a tenth) has read nothing."""
_QUIET_ROUNDS: Final = 3
"""Rounds without input after which nothing is half read: an escape that stands alone is a key after one of them."""
_LONGEST_WAIT_S: Final = 10.0
"""Seconds after which the thread looks around, even if nothing woke it."""
_WAKE_BYTES: Final = 64
"""Bytes that are read from the pipe at once: each `set` writes one."""


class _ExitEvent(threading.Event):
    """Textual's input thread asks ten times a second whether it is set: here it waits until there is something to read.

    That was a sixteenth of what the whole screen takes. What is half read (an escape) still has its tenths of a second.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._read_end, self._write_end = os.pipe()
        """A pipe that wakes the thread that waits."""
        self._last_round_s = 0.0
        """When the last round began (monotonic clock)."""
        self._quiet_rounds = 0
        """Rounds without input, so far."""
        self.waiting_thread = 0
        """Identity of the thread that waits."""

    def is_set(self) -> bool:
        """Whether it is set; in the thread that waits, once that is so, a key was pressed, or a while has passed."""
        if threading.get_ident() == self.waiting_thread and not super().is_set():
            if time.monotonic() - self._last_round_s > _QUIET_ROUND_S:
                self._quiet_rounds += 1
            else:
                self._quiet_rounds = 0
            if self._quiet_rounds > _QUIET_ROUNDS:
                select.select((self._descriptor, self._read_end), (), (), _LONGEST_WAIT_S)
            self._last_round_s = time.monotonic()
        return super().is_set()

    def set(self) -> None:
        """Wake the thread that waits."""
        super().set()
        os.write(self._write_end, b"\n")

    def clear(self) -> None:
        """Let the thread wait again."""
        os.read(self._read_end, _WAKE_BYTES)
        super().clear()


class TerminalDriver(LinuxDriver):
    """Leaves quietly when the terminal has gone, at once when it takes nothing, and comes back from any stop."""

    def __init__(
        self, app: App[Any], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self.has_mouse = mouse
        self.loop = asyncio.get_running_loop()
        self.leave = app.exit
        self.redraw = app.refresh
        self.stopped = False
        """Whether the terminal was restored for a stop."""
        self._wakeable_exit = _ExitEvent(self.fileno)
        self.exit_event = self._wakeable_exit  # as Textual has it
        signal.signal(signal.SIGCONT, self._come_back)

    def write(self, data: str) -> None:
        """Give a text to the thread that writes."""
        if isinstance(sys.__stderr__, TerminalOutput):
            sys.__stderr__.expect()
        super().write(data)

    def start_application_mode(self) -> None:
        """Buttons, wheel and drags only: every motion, which Textual asks for, would cost bytes on the way in."""
        super().start_application_mode()  # type: ignore[no-untyped-call]  # Textual's method has no annotations
        if self.has_mouse:
            self.write(DRAGS_ONLY)

    def suspend_application_mode(self) -> None:
        """Restore the terminal before a stop."""
        self.stopped = True
        super().suspend_application_mode()

    def _come_back(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - a signal handler's signature
        """Take the terminal back after a stop: after SIGTSTP it was restored, after SIGSTOP a shell may have changed
        its modes."""
        if not self.stopped:
            self.suspend_application_mode()
        self.stopped = False
        self.resume_application_mode()
        self.loop.call_soon_threadsafe(self.redraw)

    def stop_application_mode(self) -> None:
        """Restore the terminal, ahead of a frame that it does not take."""
        if isinstance(sys.__stderr__, TerminalOutput):
            sys.__stderr__.abandon()
        self._restore()

    def close(self) -> None:
        """End the thread that writes, once the terminal is restored: its last room may have been too small for that."""
        if isinstance(sys.__stderr__, TerminalOutput) and not sys.__stderr__.takes_all():
            sys.__stderr__.abandon()
            self._restore()
        super().close()

    def _restore(self) -> None:
        """Write what restores the terminal."""
        self.write(_NO_MOUSE)
        super().stop_application_mode()

    def run_input_thread(self) -> None:
        """Read keys until the end; bytes that are no text are dropped, and a hang-up ends the screen."""
        self._wakeable_exit.waiting_thread = threading.get_ident()
        while not self.exit_event.is_set() and self._read_keys():
            pass

    def _read_keys(self) -> bool:
        """Read keys until the terminal has gone or sent what is no text; returns whether to read on."""
        try:
            super().run_input_thread()
        except OSError:
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self.leave)
            return False
        except Exception:  # whatever a terminal sends
            return True
        return True

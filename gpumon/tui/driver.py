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
from typing import Any, Final

from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

from gpumon.tui.output import TerminalOutput
from gpumon.tui.pastes import PasteFilter

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
_MOST_READ: Final = 1 << 16
"""Bytes that are read from the terminal at once."""
_PASTE_WAIT_S: Final = 5.0
"""Seconds without input after which a paste has ended, though its end did not come."""


class PasteCut(Message):
    """A paste was longer than what is kept of one."""


class _ExitEvent(threading.Event):
    """Textual's input thread asks ten times a second whether it is set: here it waits until there is something to read.

    That was a sixteenth of what the whole screen takes. What is half read (an escape) still has its tenths of a second.
    """

    def __init__(self) -> None:
        super().__init__()
        self.input_descriptor = -1
        """Descriptor that the thread that waits reads from."""
        self.wake_descriptor, self._write_end = os.pipe()
        """A pipe that wakes the threads that wait."""
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
                select.select((self.input_descriptor, self.wake_descriptor), (), (), _LONGEST_WAIT_S)
            self._last_round_s = time.monotonic()
        return super().is_set()

    def set(self) -> None:
        """Wake the threads that wait."""
        super().set()
        os.write(self._write_end, b"\n")

    def clear(self) -> None:
        """Let the threads wait again."""
        os.read(self.wake_descriptor, _WAKE_BYTES)
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
        self._wakeable_exit = _ExitEvent()
        self.exit_event = self._wakeable_exit  # as Textual has it
        # From the event loop, not wherever the program is: within a write Textual's queue is locked, and what restores
        # the terminal would wait for that for ever.
        stop = signal.getsignal(signal.SIGTSTP)
        if callable(stop):
            self.loop.add_signal_handler(signal.SIGTSTP, stop, signal.SIGTSTP, None)
        self.loop.add_signal_handler(signal.SIGCONT, self._come_back)

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

    def _come_back(self) -> None:
        """Take the terminal back after a stop: after SIGTSTP it was restored, after SIGSTOP a shell may have changed
        its modes."""
        if not self.stopped:
            self.suspend_application_mode()
        self.stopped = False
        self.resume_application_mode()
        self.redraw()

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
        """Read keys until the end; bytes that are no text are dropped, and a hang-up ends the screen.

        Textual reads a pipe, into which another thread puts what the terminal sends.
        """
        terminal = self.fileno
        self.fileno, keys = os.pipe()
        self._wakeable_exit.input_descriptor = self.fileno
        self._wakeable_exit.waiting_thread = threading.get_ident()
        filtering = threading.Thread(target=self._filter_pastes, args=(terminal, keys), name="pastes", daemon=True)
        filtering.start()
        try:
            while not self.exit_event.is_set():
                with contextlib.suppress(Exception):  # whatever a terminal sends
                    super().run_input_thread()
        finally:
            os.close(self.fileno)  # the other thread waits no longer for room in the pipe
            self.fileno = terminal
            filtering.join()
            os.close(keys)

    def _filter_pastes(self, terminal: int, keys: int) -> None:
        """Hand on what the terminal sends, until the end; where it has gone, end the screen."""
        pastes = PasteFilter()
        try:
            while True:
                wait_s = _PASTE_WAIT_S if pastes.is_open else None
                ready, _, _ = select.select((terminal, self._wakeable_exit.wake_descriptor), (), (), wait_s)
                if self._wakeable_exit.wake_descriptor in ready:
                    return
                if ready:
                    data = os.read(terminal, _MOST_READ)
                    if not data:
                        break
                    given, cut = pastes.feed(data)
                else:
                    given, cut = pastes.end()
                if cut:
                    self.process_message(PasteCut())
                while given:
                    given = given[os.write(keys, given) :]
        except BrokenPipeError:  # nobody reads any more
            return
        except OSError:
            pass
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.leave)

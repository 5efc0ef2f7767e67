"""The terminal driver: Textual's, made to survive what terminals do (gone away, stopped, redirected)."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final, TextIO

from textual.app import App
from textual.drivers.linux_driver import LinuxDriver

_STOPS: Final = "\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?1016l"
"""Mouse modes off: Textual switches 1016 on where the terminal has it, and leaves it on."""


class Output:
    """Writes to the terminal; when that is gone, drops everything and calls `gone` once.

    Characters that the terminal's encoding lacks become `?`.
    """

    def __init__(self, stream: TextIO, gone: Callable[[], object]) -> None:
        self._descriptor = stream.fileno()
        self._encoding = stream.encoding or "utf-8"
        self._gone = gone
        self._open = True

    def write(self, text: str) -> None:
        """Write all of it, waiting where the terminal is slow."""
        data = memoryview(text.encode(self._encoding, "replace"))
        while data and self._open:
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:
                threading.Event().wait(0.01)
            except OSError:
                self._open = False
                self._gone()

    def flush(self) -> None:
        """Nothing is held back."""

    def fileno(self) -> int:
        """The terminal."""
        return self._descriptor


class TerminalDriver(LinuxDriver):
    """Draws on stdout (Textual: stderr); leaves quietly when the terminal has gone; comes back from any stop."""

    def __init__(self, app: App[Any], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        stream = sys.__stdout__ or sys.__stderr__
        if stream is not None:
            self._file: Any = Output(stream, self._terminal_gone)

    def _terminal_gone(self) -> None:
        """Called from the writer's or the reader's thread."""
        loop = self._app._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._app.exit)

    def _run_input_thread(self) -> None:
        """A hang-up ends the input; it is no error of the program."""
        try:
            self.run_input_thread()
        except (OSError, ValueError):
            self._terminal_gone()

    def _sigcont_application(self, *arguments: int | FrameType | None) -> None:
        """Continued: after SIGTSTP the terminal was restored; after SIGSTOP a shell may have changed its modes."""
        if self._auto_restart and not self._must_signal_resume:
            self.suspend_application_mode()
            self._must_signal_resume = True
        super()._sigcont_application(*arguments)

    def stop_application_mode(self) -> None:
        """Restore the terminal, the pixel mouse included."""
        if self._mouse and self._writer_thread is not None:
            self.write(_STOPS)
        super().stop_application_mode()

    def close(self) -> None:
        """Stop the writer; give the signals back."""
        super().close()
        for number in (signal.SIGTSTP, signal.SIGCONT):
            signal.signal(number, signal.SIG_DFL)

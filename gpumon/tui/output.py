"""The way of frames to the terminal."""

from __future__ import annotations

import contextlib
import os
import sys
import termios
import time
from collections.abc import Callable
from typing import Final, TextIO

from gpumon.tui.repaint import repainted

_CHUNK_BYTES: Final = 1024
"""Bytes per write: a terminal that takes nothing blocks for this much only, once its buffer was flushed."""
_LEAVE_S: Final = 0.05
"""Seconds in which, on leaving, a terminal takes what it was given, unless it takes nothing."""
_BUSY_WAIT_S: Final = 0.01
"""Seconds until a terminal that takes nothing is tried again."""
_TAKEN_WAIT_S: Final = 0.002
"""Seconds between two looks whether the terminal has taken a text."""


class TerminalOutput:
    """Stands in for a stream to the terminal; when that is gone, drops everything and calls `on_gone` once.

    Textual writes from a thread of its own. Characters that the terminal's encoding lacks become `?`.
    """

    def __init__(self, stream: TextIO, on_gone: Callable[[], object]) -> None:
        self._descriptor = stream.fileno()
        self._encoding = stream.encoding or "utf-8"
        self._on_gone = on_gone
        self._open = True
        """Whether the terminal is there."""
        self._queued = 0
        """Number of texts that were given to the thread that writes."""
        self._taken = 0
        """Number of texts that the terminal has taken, or that were dropped."""
        self._dropped = 0
        """Number of the last text that is dropped."""

    @property
    def is_behind(self) -> bool:
        """Whether the terminal has not yet taken all that is for it, a text included that nobody has begun to write."""
        return self._taken < self._queued

    def expect(self) -> None:
        """Note that a text is given to the thread that writes."""
        self._queued += 1

    def write(self, text: str) -> int:
        """Write all of a text, waiting where the terminal is slow; returns its characters, as streams do."""
        data = memoryview(repainted(text).encode(self._encoding, "replace"))
        number = self._taken + 1
        while data and self._open and number > self._dropped:
            data = data[self._write_some(data[:_CHUNK_BYTES]) :]
        self._taken = number
        return len(text)

    def _write_some(self, data: memoryview) -> int:
        """Write as much as the terminal takes; returns how many bytes that were."""
        try:
            return os.write(self._descriptor, data)
        except BlockingIOError:
            time.sleep(_BUSY_WAIT_S)
        except OSError:
            self._open = False
            self._on_gone()
        return 0

    def abandon(self) -> None:
        """Give up the texts that the terminal does not take, so that what restores it comes next; those that come later
        are written, however late the thread that writes gets to them."""
        if not self.takes_all():
            self._dropped = self._queued
            with contextlib.suppress(termios.error):
                termios.tcflush(self._descriptor, termios.TCOFLUSH)
                # A flush wakes no write that waits for room; settings do, also those that are in force.
                termios.tcsetattr(self._descriptor, termios.TCSANOW, termios.tcgetattr(self._descriptor))

    def takes_all(self) -> bool:
        """Wait until the terminal has taken all that is for it, or for a moment; returns whether it has."""
        end_s = time.monotonic() + _LEAVE_S
        while self.is_behind and time.monotonic() < end_s:
            time.sleep(_TAKEN_WAIT_S)
        return not self.is_behind

    def flush(self) -> None:
        """Nothing: no text is held back."""

    def fileno(self) -> int:
        """The descriptor of the terminal."""
        return self._descriptor

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return os.isatty(self._descriptor)


def is_busy() -> bool:
    """Whether the terminal has not yet taken the last frame."""
    stream = sys.__stderr__
    return isinstance(stream, TerminalOutput) and stream.is_behind

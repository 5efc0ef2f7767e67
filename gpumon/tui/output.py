"""The two ends of the terminal's line: bytes out, and bytes in to events."""

from __future__ import annotations

import os
import time
from codecs import getincrementaldecoder
from collections.abc import Callable
from typing import Final, TextIO

from textual._xterm_parser import XTermParser
from textual.message import Message

from gpumon.tui.flow import ANSWER

_CHUNK: Final = 1024
"""Bytes per write: a terminal that takes nothing blocks for this much only, once its buffer was flushed."""
_REST_S: Final = 0.02
"""What is held back longer than that is no answer: all four bytes come at once, or nearly."""


class Output:
    """Writes to the terminal; when that is gone, drops everything and calls `gone` once.

    Characters that the terminal's encoding lacks become `?`.
    """

    def __init__(self, stream: TextIO, gone: Callable[[], object]) -> None:
        self._descriptor = stream.fileno()
        self._encoding = stream.encoding or "utf-8"
        self._gone = gone
        self._open = True
        self.abandoned = False
        """Whether what is being written is no longer wanted."""
        self.taken = 0
        """Texts written or abandoned so far."""

    def write(self, text: str) -> None:
        """Write all of it, waiting where the terminal is slow."""
        data = memoryview(text.encode(self._encoding, "replace"))
        while data and self._open and not self.abandoned:
            data = data[self._written(data[:_CHUNK]) :]
        self.taken += 1

    def _written(self, data: memoryview) -> int:
        try:
            return os.write(self._descriptor, data)
        except BlockingIOError:
            time.sleep(0.01)
        except OSError:
            self._open = False
            self._gone()
        return 0

    def flush(self) -> None:
        """Nothing is held back."""

    def fileno(self) -> int:
        """The terminal."""
        return self._descriptor


class Answers:
    """Takes the terminal's answers out of the keys, also those that arrive in two pieces."""

    def __init__(self) -> None:
        self._held = b""

    @property
    def wait_s(self) -> float:
        """How long to wait for the rest of what may be an answer."""
        return _REST_S if self._held else 0.0

    def take(self, data: bytes | None, *, due: bool) -> tuple[bytes | None, int]:
        """What is left of the bytes, and how many answers there were. `data` is None where nothing came for a while.

        Where an answer is due, what may be its beginning is held back, but only until nothing comes for a while: it
        may be a lone Escape.
        """
        if data is None:
            held, self._held = self._held, b""
            return held or None, 0
        data = self._held + data
        answers = data.count(ANSWER)
        if answers:
            data = data.replace(ANSWER, b"")
        size = next((size for size in (3, 2, 1) if data.endswith(ANSWER[:size])), 0) if due else 0
        data, self._held = data[: len(data) - size], data[len(data) - size :]
        return data, answers


class Keys:
    """Bytes to events. A sequence that the parser cannot take (it raises) is dropped, and what follows is read."""

    def __init__(self, debug: bool) -> None:
        self._debug = debug
        self._parser = XTermParser(debug)
        self._decode = getincrementaldecoder("utf-8")("replace").decode

    def events(self, data: bytes | None) -> list[Message]:
        """The events that are complete; None asks whether a lone Escape was all."""
        try:
            if data is None:
                return list(self._parser.tick())
            text = self._decode(data)
            return list(self._parser.feed(text)) if text else []  # to the parser, nothing is the end of all input
        except Exception:  # whatever a terminal sends
            self._parser = XTermParser(self._debug)
            return []

"""Runs a program in a pty and measures what it costs: CPU of its process tree, PSS, bytes written, time to a paint."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil
import pyte

from tests import program

_ANSWERS = {b"\x1b[5n": b"\x1b[0n", b"\x1b[6n": b"\x1b[1;1R"}
"""What every terminal answers: to the question for its status, and for the cursor's place."""
_DCS = re.compile(rb"\x1bP.*?\x1b\\", re.DOTALL)
"""Device control strings, which the emulator would print."""


class Chunk(NamedTuple):
    """Bytes that arrived at one moment; `at_s` counts from the start of the program."""

    at_s: float
    text: bytes


class Terminal:
    """One program in a pty of a fixed size. Use as a context manager: on exit the whole tree is killed."""

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        columns: int = 120,
        lines: int = 40,
        *,
        loaded: bool = False,
    ) -> None:
        """`loaded`: a fork of the process that has loaded the commands, where that is the same (tests/program.py)."""
        self.columns, self.lines = columns, lines
        self.chunks: list[Chunk] = []
        self._glass: _Glass | None = None
        self._started_s = time.monotonic()
        self._fork: program.Process | None = None
        run = program.loaded_run(command, env) if loaded else None
        if run is not None:
            self._fork_in_terminal(run)
            return
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            # Set by the child: set from outside it may come after the program has asked for it.
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
            os.execvpe(command[0], list(command), dict(env))

    def _fork_in_terminal(self, run: program.Run) -> None:
        self._fd, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", self.lines, self.columns, 0, 0))
        self._fork = program.Process(run._replace(in_terminal=True), [slave, slave, slave])
        self.pid = self._fork.pid
        os.close(slave)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.tree():
            with contextlib.suppress(psutil.Error):
                process.kill()
        if self._fd >= 0:
            os.close(self._fd)
        if self._fork is not None:
            self._fork.kill()
            self._fork.wait()
            return
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    def has_ended(self) -> bool:
        """Whether the program is gone."""
        if self._fork is not None:
            return self._fork.poll() is not None
        return bool(os.waitpid(self.pid, os.WNOHANG)[0])

    def run(self, seconds: float) -> None:
        """Read what it writes for that long."""
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0:
            ready, _, _ = select.select([self._fd], [], [], left_s)
            if not ready:
                return
            try:
                text = os.read(self._fd, 65536)
            except OSError:
                return
            self.chunks.append(Chunk(time.monotonic() - self._started_s, _DCS.sub(b"", text)))
            for question, answer in _ANSWERS.items():
                os.write(self._fd, answer * text.count(question))

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._fd, keys)

    def resize(self, columns: int, lines: int) -> None:
        """Change the window's size."""
        self.columns, self.lines = columns, lines
        self._glass = None
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        os.kill(self.pid, signal.SIGWINCH)

    def hang_up(self) -> None:
        """Close the terminal under the program, as a lost connection does."""
        os.close(self._fd)
        self._fd = -1

    def forget(self) -> None:
        """Drop what was written so far, for a screen that begins anew (after a resize)."""
        self.chunks.clear()
        self._glass = None

    def tree(self) -> list[psutil.Process]:
        """The program and all its descendants."""
        with contextlib.suppress(psutil.Error):
            root = psutil.Process(self.pid)
            return [root, *root.children(recursive=True)]
        return []

    def cpu_s(self) -> float:
        """CPU time of the tree so far, that of threads which ended included (the kernel counts it in 10 ms)."""
        total_s = 0.0
        for process in self.tree():
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                total_s += times.user + times.system
        return total_s

    def pss_bytes(self) -> int:
        """Proportional set size of the tree."""
        total = 0
        for process in self.tree():
            with contextlib.suppress(OSError):
                for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines():
                    if line.startswith("Pss:"):
                        total += int(line.split()[1]) * 1024
        return total

    def written(self) -> int:
        """Bytes that it wrote so far."""
        return sum(len(chunk.text) for chunk in self.chunks)

    def screen(self) -> list[str]:
        """The screen as text."""
        self._glass = self._glass or _Glass(self.columns, self.lines)
        for chunk in self.chunks[self._glass.fed :]:
            self._glass.feed(chunk)
        return list(self._glass.screen.display)

    def first(self, shows: Callable[[str], bool]) -> float | None:
        """Seconds from the start until the screen first satisfied `shows`; None if it never did."""
        glass = _Glass(self.columns, self.lines)
        for chunk in self.chunks:
            glass.feed(chunk)
            if shows("\n".join(glass.screen.display)):
                return chunk.at_s
        return None


class _Glass:
    """An emulator that was fed so many chunks: each is parsed once, however often the screen is looked at."""

    def __init__(self, columns: int, lines: int) -> None:
        self.screen = pyte.Screen(columns, lines)
        # Textual asks for things that pyte does not know; what it cannot parse it must not print either.
        self.screen.report_device_status = lambda *_, **__: None  # type: ignore[method-assign]
        self._stream = pyte.ByteStream(self.screen)
        self.fed = 0

    def feed(self, chunk: Chunk) -> None:
        """Show what one chunk wrote."""
        self._stream.feed(chunk.text)
        self.fed += 1

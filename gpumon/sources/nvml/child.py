"""The monitor's end of one worker process: its pipes, read and written without ever blocking."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

import gpumon
from gpumon.readings.text import clean
from gpumon.sources.nvml.wire import REQUEST, GarbledError, Inbox, Report

STDERR_BYTES = 4096
"""Kept of what the worker and the driver library print; the rest is read and dropped."""
_PIECE = 1 << 16


class Process(Protocol):
    """As much of a subprocess.Popen as is used here."""

    pid: int
    stdin: IO[bytes] | None
    stdout: IO[bytes] | None
    stderr: IO[bytes] | None

    def poll(self) -> int | None:
        """The exit status, or None while it runs; never waits."""

    def kill(self) -> None:
        """Send SIGKILL."""


Spawn = Callable[[Sequence[str], Mapping[str, str] | None], Process]


def spawn(command: Sequence[str], env: Mapping[str, str] | None) -> Process:
    """Start a worker in a session of its own, so that Ctrl+C and a closed terminal reach the monitor alone.

    Its working folder is the one that holds the package: `-m` finds it there, and nothing in the user's own folder
    can stand in for a module. Raises OSError.
    """
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        cwd=Path(gpumon.__file__).parent.parent,
        env=None if env is None else dict(env),
        start_new_session=True,
    )


class Child:
    """One worker process. `news` is called when a report arrived or the pipe broke."""

    def __init__(self, process: Process, news: Callable[[], None], now_s: float) -> None:
        self.process = process
        self.started_s = now_s
        self.asked_s: float | None = None
        """When the request that is not answered yet was sent."""
        self.report: Report | None = None
        """The newest answer."""
        self.broken = ""
        """Why its pipe is of no use any more."""
        self._news = news
        self._inbox = Inbox()
        self._stderr = b""
        self._loop = asyncio.get_running_loop()
        for pipe, reader in ((process.stdout, self._read_stdout), (process.stderr, self._read_stderr)):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                self._loop.add_reader(pipe.fileno(), reader)

    def ask(self, now_s: float) -> None:
        """Ask for a report, unless one is still to come."""
        if self.asked_s is not None or self.broken or self.process.stdin is None:
            return
        try:
            os.write(self.process.stdin.fileno(), REQUEST)
        except OSError as error:
            self._break(f"its pipe is closed ({error.strerror})")
            return
        self.asked_s = now_s

    def last_words(self) -> str:
        """The last line that it, or the driver library in it, printed; safe to show."""
        lines = self._stderr.decode("utf-8", "replace").split("\n")
        return clean(next((line.strip() for line in reversed(lines) if line.strip()), ""), 160)

    def close(self) -> None:
        """Let go of the pipes; the worker ends by itself when it finds its stdin closed."""
        self._read_stderr()
        for pipe in (self.process.stdout, self.process.stderr, self.process.stdin):
            if pipe is not None and not pipe.closed:
                self._loop.remove_reader(pipe.fileno())
                with contextlib.suppress(OSError):
                    pipe.close()

    def _read_stdout(self) -> None:
        piece = _read(self.process.stdout)
        if piece is None:
            return
        if not piece:
            self._break("it closed its pipe")
            return
        try:
            reports = self._inbox.feed(piece)
        except GarbledError as error:
            self._break(f"it sent no report but {clean(str(error), 80)}")
            return
        if reports:
            self.report, self.asked_s = reports[-1], None
            self._news()

    def _read_stderr(self) -> None:
        piece = _read(self.process.stderr)
        if piece:
            self._stderr = (self._stderr + piece)[-STDERR_BYTES:]
        elif piece is not None and self.process.stderr is not None:
            self._loop.remove_reader(self.process.stderr.fileno())

    def _break(self, why: str) -> None:
        self.broken = self.broken or why
        if self.process.stdout is not None:
            self._loop.remove_reader(self.process.stdout.fileno())
        self._news()


def ended_by(status: int) -> str:
    """How a process ended, from its exit status."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"


def _read(pipe: IO[bytes] | None) -> bytes | None:
    """What the pipe holds, b"" at its end, None where there is nothing right now."""
    if pipe is None or pipe.closed:
        return None
    try:
        return os.read(pipe.fileno(), _PIECE)
    except BlockingIOError:
        return None
    except OSError:
        return b""

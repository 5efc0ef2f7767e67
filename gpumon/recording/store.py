"""Keeps ticks in a recording file, in a thread of its own: whatever the disk does, no tick waits for it."""

from __future__ import annotations

import contextlib
import math
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from gpumon.config.errors import ConfigError
from gpumon.config.load import named
from gpumon.readings.frame import Fault
from gpumon.readings.text import clean
from gpumon.recording.file import check, connected, held, identified, journaled, make, rest, single, unwritable
from gpumon.recording.past import Kept, Past
from gpumon.recording.writer import BLOCK_S, Writer

SOURCE: Final = "recording"
"""`Fault.source` of what is said here."""
_MOST_WAITING: Final = 64
"""Ticks that wait for a slow disk; what comes then is dropped."""
_BACK_OFF_S: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 60.0)
_FULL_BYTES: Final = 1 << 20
"""A disk with less room left is full."""
_OTHERS: Final = {
    "host": "is a recording of the host {}: name another file",
    "simulated": "holds frames of another kind (simulated and real ones do not mix): name another file",
}
"""Facts that all frames of a recording share, and what is said of those of another one."""


class Recorder:
    """A `Keeper` that writes a file, new or begun earlier on the same host."""

    def __init__(
        self, path: Path, facts: Mapping[str, str], *, keep_s: float = math.inf, keep_bytes: float = math.inf
    ) -> None:
        """Opens the file; blocks. Raises ConfigError in one line where it can not be recorded into."""
        self._path = path
        self._facts = facts
        self._keep = keep_s, keep_bytes
        self._waiting: queue.Queue[Kept | None] = queue.Queue(_MOST_WAITING)
        self._stack = contextlib.ExitStack()
        self._writer: Writer | None = None
        self._connection: sqlite3.Connection | None = None
        self._file = (0, 0)
        self._fault: Fault | None = None
        self._slow: Fault | None = None
        self._failures = 0
        self._retry_s = -math.inf
        self.dropped = 0
        """Ticks that were lost to a slow, full or failing disk."""
        self.written = 0
        """Frames that stand in the file for good, since this start."""
        self.is_new = False
        """This start made the file."""
        try:
            self._begin()
        except BaseException:
            self._let_go()
            self._stack.close()
            raise
        self._thread = threading.Thread(target=self._work, name="recording", daemon=True)
        self._thread.start()

    def keep(self, kept: Kept) -> None:
        """Take one tick; returns at once."""
        try:
            self._waiting.put_nowait(kept)
        except queue.Full:
            self.dropped += 1
            since_s = self._slow.since_wall_s if self._slow is not None else kept.frame.wall_s
            self._slow = Fault(SOURCE, f"{named(self._path)}: the disk does not keep up: frames are lost", since_s)
        else:
            self._slow = None

    def fault(self, _wall_s: float = 0.0) -> Fault | None:
        """What is wrong with the recording right now, whatever time it is."""
        return self._fault or self._slow

    def close(self, timeout_s: float = 10.0) -> None:
        """Write what waits and let go of the file; gives up on a disk that hangs."""
        end_s = time.monotonic() + timeout_s
        with contextlib.suppress(queue.Full):
            self._waiting.put(None, timeout=timeout_s)
        self._thread.join(max(0.0, end_s - time.monotonic()))

    def _begin(self) -> None:
        try:
            if self._path.exists():
                check(self._path)
            elif not self._path.parent.is_dir():
                raise ConfigError(f"{named(self._path.parent)}: there is no such folder")
            self._stack.enter_context(held(self._path))
            self._open()
        except OSError as failure:
            raise ConfigError(f"{named(self._path)}: cannot be written: {failure.strerror}") from None
        except sqlite3.Error as error:
            text = unwritable(self._path, error).strerror
            raise ConfigError(f"{named(self._path)}: cannot be written: {text}; name another file") from None

    def _open(self) -> None:
        """Raises ConfigError, OSError, sqlite3.Error."""
        if not self._path.exists():
            make(self._path, self._facts)
            self.is_new = True
        check(self._path)
        single(self._path)
        # Not read-only: what a killed writer left in a rollback journal has to be taken back first.
        self._connection = connection = connected(self._path, "rw")
        theirs = identified(connection, self._path)
        for name, text in _OTHERS.items():
            if theirs.get(name, "") != self._facts.get(name, ""):
                raise ConfigError(f"{named(self._path)}: {text.format(clean(theirs.get(name, '')))}")
        journaled(connection, self._path)
        connection.execute("BEGIN IMMEDIATE")  # raises where it can not be written
        connection.execute("ROLLBACK")
        self._file = _identity(self._path)
        self._writer = Writer(connection, *self._keep)

    def _work(self) -> None:
        with self._stack:
            running = True
            while running:
                ticks, running = self._gathered()
                if ticks:
                    self._write(ticks)
            self._finish()

    def _gathered(self) -> tuple[list[Kept], bool]:
        """All ticks that wait, the first awaited; and whether more may come."""
        ticks = [self._waiting.get()]
        with contextlib.suppress(queue.Empty):
            while ticks[-1] is not None:
                ticks.append(self._waiting.get_nowait())
        return [tick for tick in ticks if tick is not None], ticks[-1] is not None

    def _write(self, ticks: Sequence[Kept]) -> None:
        """Write and commit. Where that fails, the file is let go and opened anew a while later."""
        if self._writer is None and time.monotonic() < self._retry_s:
            self.dropped += len(ticks)
            return
        try:
            if self._connection is not None and _identity(self._path) != self._file:
                # Removed or moved away: what its journal holds goes along, and a new file takes its place.
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                self._let_go()
            if self._writer is None:
                self._open()
            assert self._writer is not None, "it was just opened"
            self._writer.write(ticks)
        except Exception as error:  # whatever it is, the monitor goes on, and it is named
            self.dropped += len(ticks)
            self._stop(error, ticks[0].frame.wall_s)
        else:
            self.written += len(ticks)
            self._failures, self._fault = 0, None

    def _stop(self, error: Exception, wall_s: float) -> None:
        reason = _reason(error, self._path)
        self._let_go()
        self._retry_s = time.monotonic() + _BACK_OFF_S[min(self._failures, len(_BACK_OFF_S) - 1)]
        self._failures += 1
        since_s = self._fault.since_wall_s if self._fault is not None else wall_s
        text = f"recording stopped: {reason}; what was written stays readable, gpumon tries again"
        self._fault = Fault(SOURCE, text, since_s)

    def _finish(self) -> None:
        if self._writer is not None and self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._writer.finish()
                rest(self._connection)
        self._let_go()

    def _let_go(self) -> None:
        self._writer = None
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None


def _identity(path: Path) -> tuple[int, int]:
    """Tells files apart; nothing where there is none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return 0, 0
    return status.st_dev, status.st_ino


def _reason(error: Exception, path: Path) -> str:
    """Why nothing more can be written, with the file."""
    where, text = named(path), clean(str(error), 120)
    if isinstance(error, ConfigError):
        return text
    if not isinstance(error, OSError | sqlite3.Error):
        return f"{where}: gpumon failed, please report: {type(error).__name__}: {text}"
    with contextlib.suppress(OSError):
        room = os.statvfs(path.parent)
        if room.f_bavail * room.f_frsize < _FULL_BYTES:
            return f"{where}: the disk is full"
    if "readonly" in text:
        return f"{where}: it can not be written any more (read-only)"
    failure = error if isinstance(error, OSError) else unwritable(path, error)
    return f"{where}: {failure.strerror or text}"


def write_recording(path: Path, past: Past, facts: Mapping[str, str]) -> None:
    """Write all of a past into a new file. Blocks. Raises OSError, FileExistsError where there is one already.

    What reading the past raises goes through; no file is left then.
    """
    try:
        make(path, facts)
    except sqlite3.Error as error:
        raise unwritable(path, error) from None
    try:
        with contextlib.closing(connected(path, "rw")) as connection:
            _copy(past, connection)
    except BaseException as error:
        failure = unwritable(path, error) if isinstance(error, sqlite3.Error) else error
        path.unlink(missing_ok=True)
        raise failure from None


def _copy(past: Past, connection: sqlite3.Connection) -> None:
    """Minute by minute. Raises sqlite3.Error."""
    writer = Writer(connection)
    span = past.span()
    at_s: float | None = span[0] if span is not None else None
    since_s = -math.inf
    while at_s is not None:
        end_s = math.nextafter((at_s // BLOCK_S + 1) * BLOCK_S, -math.inf)
        writer.write([Kept(frame, {}, ()) for frame in past.frames(at_s, end_s)])
        at_s = past.after(end_s)
        until_s = math.inf if at_s is None else end_s
        writer.finish(past.points(since_s, until_s), past.events(since_s, until_s))
        since_s = math.nextafter(end_s, math.inf)
    connection.execute("PRAGMA incremental_vacuum").fetchall()

"""Keeps ticks in a recording file, in a thread of its own: whatever the disk does, no tick waits for it."""

from __future__ import annotations

import contextlib
import math
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Generic, TypeVar

from gpumon.config.errors import ConfigError
from gpumon.config.load import file_name
from gpumon.history import codec
from gpumon.history.disk_room import DiskRoom
from gpumon.history.file import (
    TOO_LARGE,
    PieceKind,
    check_file,
    check_own,
    check_single_name,
    choose_journal,
    leave_single_file,
    lock_file,
    make_recording,
    open_connection,
    read_facts,
    unwritable_error,
)
from gpumon.history.frame_store import FrameStore, Note, Points, PointsCell, Tick, VerdictLog
from gpumon.readings.frame import Fault
from gpumon.readings.text import clean
from gpumon.readings.verdict import Event

_SOURCE: Final = "recording"
"""`Fault.source` of its faults."""
_MOST_WAITING: Final = 64
"""Most ticks that wait for a slow disk; what comes then is dropped."""
_BACK_OFF_S: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 60.0)
"""Seconds until the file is opened anew, after one failure, two in a row, ..."""
_FULL_BYTES: Final = 1 << 20
"""Bytes: a disk with less room left is full."""
_DIFFERENT_FACT: Final = {
    "host": "is a recording of the host {}: name another file",
    "simulated": "holds frames of another kind (simulated and real ones do not mix): name another file",
}
"""Fact that all frames of a recording share -> what an error says where the file has another one."""
BLOCK_S: Final = 60.0
"""Seconds of wall time of one block: what must be read to see one of its frames."""
_HEADROOM_BYTES: Final = 1 << 20
"""Bytes that stay free of the size that is allowed: a minute is written before the rows that make room for it go."""
_LARGEST_RUN: Final = 2**62
"""Number of a run from which a writer still goes on: SQLite's largest integer is about twice that."""
_LATEST_WALL_S: Final = 1e11
"""Unix time, in the year 5138. A row with a later time, or a larger run, is damaged: no writer goes on from it."""
_ROWS_REMOVED_AT_ONCE: Final = 8
"""Rows of one DELETE: between two of them it is looked whether time is left."""
_MOST_REMOVAL_S: Final = 0.05
"""Longest time that old rows are removed for in one commit."""
_STEADY_S: Final = 600.0
"""Nothing goes for its age until the clock has kept step with the monotonic one for that long: it may be wrong."""
_STEP_S: Final = 30.0
"""Seconds: a clock that moves by more against the monotonic one was set."""
_VACUUM_PAGES: Final = 256
"""Pages given back at a time, where the file was allowed to be larger before."""

T = TypeVar("T")


class Recorder:
    """A `TickKeeper` of the collector that writes a file, new or begun earlier on the same host."""

    def __init__(
        self, path: Path, facts: Mapping[str, str], *, keep_s: float = math.inf, keep_bytes: float = math.inf
    ) -> None:
        """Opens the file; blocks. Raises ConfigError in one line where it cannot be recorded into."""
        self._path = path
        self._facts = facts
        self._keep_s = keep_s
        self._keep_bytes = keep_bytes
        self._waiting: queue.Queue[Tick | None] = queue.Queue(_MOST_WAITING)
        self._stack = contextlib.ExitStack()
        self._writer: Writer | None = None
        self._connection: sqlite3.Connection | None = None
        self._file = (0, 0)
        """Device and inode of the open file (`_identity`)."""
        self._fault: Fault | None = None
        """The fault of a file that cannot be written."""
        self._slow: Fault | None = None
        """The fault of a disk that does not keep up."""
        self._room = DiskRoom(path)
        self._filling: Fault | None = None
        """The fault of a disk that is about to be full."""
        self._failures = 0
        """Failures in a row."""
        self._retry_s = -math.inf
        """When the file is opened anew, on the monotonic clock."""
        self.dropped = 0
        """Ticks that were lost to a slow, full or failing disk."""
        self.written = 0
        """Frames that stand in the file for good, since this start."""
        self.is_new = False
        """Whether this start made the file."""
        try:
            self._lock_and_open()
        except BaseException:  # whatever interrupts it, a file that was begun is not left locked
            self._disconnect()
            self._stack.close()
            raise
        self._thread = threading.Thread(target=self._work, name="recording", daemon=True)
        self._thread.start()

    def keep(self, tick: Tick) -> None:
        """Take one tick; returns at once."""
        try:
            self._waiting.put_nowait(tick)
        except queue.Full:
            self.dropped += 1
            since_s = self._slow.since_wall_s if self._slow is not None else tick.frame.wall_s
            self._slow = Fault(_SOURCE, f"{file_name(self._path)}: the disk does not keep up: frames are lost", since_s)
        else:
            self._slow = None

    def fault(self, _wall_s: float = 0.0) -> Fault | None:
        """Fault of the recording right now. The collector gives all that it asks for faults the time."""
        return self._fault or self._slow or self._filling

    def close(self, timeout_s: float = 10.0) -> None:
        """Write what waits and let go of the file; gives up on a disk that hangs."""
        end_s = time.monotonic() + timeout_s
        with contextlib.suppress(queue.Full):
            self._waiting.put(None, timeout=timeout_s)
        self._thread.join(max(0.0, end_s - time.monotonic()))

    def _lock_and_open(self) -> None:
        """Lock and open the file. Raises ConfigError, which names the file, where either cannot be."""
        try:
            if self._path.exists():
                check_file(self._path)
            elif not self._path.parent.is_dir():
                raise ConfigError(f"{file_name(self._path.parent)}: there is no such folder")
            self._stack.enter_context(lock_file(self._path))
            self._open()
        except OSError as failure:
            raise ConfigError(f"{file_name(self._path)}: cannot be written: {failure.strerror}") from None
        except sqlite3.Error as error:
            text = unwritable_error(self._path, error).strerror
            advice = "" if text == TOO_LARGE else "; name another file"
            raise ConfigError(f"{file_name(self._path)}: cannot be written: {text}{advice}") from None

    def _open(self) -> None:
        """Open the file, or make it where there is none. Raises ConfigError, OSError, sqlite3.Error."""
        if not self._path.exists():
            make_recording(self._path, self._facts)
            self.is_new = True
        check_file(self._path)
        check_own(self._path)
        check_single_name(self._path)
        # Not read-only: what a killed writer left in a rollback journal has to be taken back first.
        connection = open_connection(self._path, "rw")
        self._connection = connection
        facts_in_file = read_facts(connection, self._path)
        for name, text in _DIFFERENT_FACT.items():
            if facts_in_file.get(name, "") != self._facts.get(name, ""):
                raise ConfigError(f"{file_name(self._path)}: {text.format(clean(facts_in_file.get(name, '')))}")
        choose_journal(connection, self._path)
        connection.execute("BEGIN IMMEDIATE")  # raises where it cannot be written
        connection.execute("ROLLBACK")
        self._file = _identity(self._path)
        self._writer = Writer(connection, self._keep_s, self._keep_bytes)

    def _work(self) -> None:
        """Write ticks until the recorder is closed; in the thread."""
        with self._stack:
            running = True
            while running:
                ticks, running = self._take_waiting()
                if ticks:
                    self._write(ticks)
            self._finish()

    def _take_waiting(self) -> tuple[list[Tick], bool]:
        """All ticks that wait, the first awaited; and whether more may come: None ends them."""
        ticks: list[Tick] = []
        tick = self._waiting.get()
        with contextlib.suppress(queue.Empty):
            while tick is not None:
                ticks.append(tick)
                tick = self._waiting.get_nowait()
        return ticks, tick is not None

    def _write(self, ticks: Sequence[Tick]) -> None:
        """Write and commit. Where that fails, the file is let go and opened anew a while later."""
        if self._writer is None and time.monotonic() < self._retry_s:
            self.dropped += len(ticks)
            return
        try:
            if self._connection is not None and _identity(self._path) != self._file:
                # Removed or moved away: what its journal holds goes along, and a new file takes its place.
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                self._disconnect()
            if self._writer is None:
                self._open()
            assert self._writer is not None, "it was just opened"
            self._writer.write(ticks)
        except Exception as error:  # whatever it is, the monitor goes on, and it is named
            self.dropped += len(ticks)
            self._pause(error, ticks[0].frame.wall_s)
        else:
            self.written += len(ticks)
            self._failures = 0
            self._fault = None
            self._look_ahead(ticks[-1])

    def _look_ahead(self, tick: Tick) -> None:
        """Note whether the disk is about to be full."""
        now_s = tick.frame.monotonic_s
        with contextlib.suppress(OSError):  # the next write says what is wrong
            self._room.look(now_s)
        forecast = self._room.forecast(now_s)
        if not forecast:
            self._filling = None
            return
        since_s = self._filling.since_wall_s if self._filling is not None else tick.frame.wall_s
        text = f"{file_name(self._path)}: {forecast}: make room, or bound the recording (--keep-gb, --keep-days)"
        self._filling = Fault(_SOURCE, text, since_s)

    def _pause(self, error: Exception, wall_s: float) -> None:
        """Let go of the file for a while, and say why."""
        reason = _failure_text(error, self._path)
        self._disconnect()
        self._retry_s = time.monotonic() + _BACK_OFF_S[min(self._failures, len(_BACK_OFF_S) - 1)]
        self._failures += 1
        since_s = self._fault.since_wall_s if self._fault is not None else wall_s
        text = f"recording stopped: {reason}; what was written stays readable, gpumon tries again"
        self._fault = Fault(_SOURCE, text, since_s)

    def _finish(self) -> None:
        """End the minute that was begun, and leave a file that can be copied."""
        if self._writer is not None and self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._writer.finish()
                leave_single_file(self._connection)
        self._disconnect()

    def _disconnect(self) -> None:
        """Close the connection, if there is one."""
        self._writer = None
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None


def _identity(path: Path) -> tuple[int, int]:
    """Device and inode of a file, which tell files apart; zeros where there is none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return 0, 0
    return status.st_dev, status.st_ino


def _failure_text(error: Exception, path: Path) -> str:
    """Why nothing more can be written, with the file."""
    where = file_name(path)
    text = clean(str(error), 120)
    if isinstance(error, ConfigError):
        return text
    if not isinstance(error, OSError | sqlite3.Error):
        return f"{where}: gpumon failed, please report: {type(error).__name__}: {text}"
    with contextlib.suppress(OSError):
        room = os.statvfs(path.parent)
        if room.f_bavail * room.f_frsize < _FULL_BYTES:
            return f"{where}: the disk is full"
    if "readonly" in text:
        return f"{where}: it cannot be written any more (read-only)"
    failure = error if isinstance(error, OSError) else unwritable_error(path, error)
    return f"{where}: {failure.strerror or text}"


def write_recording(path: Path, past: FrameStore, facts: Mapping[str, str]) -> None:
    """Write all of a past into a new file. Blocks. Raises OSError, FileExistsError where there is one already.

    What reading the past raises goes through; no file is left then.
    """
    try:
        make_recording(path, facts)
    except sqlite3.Error as error:
        raise unwritable_error(path, error) from None
    try:
        with contextlib.closing(open_connection(path, "rw")) as connection:
            _copy(past, connection)
    except BaseException as error:  # a copy that was interrupted is no recording: its file goes
        failure = unwritable_error(path, error) if isinstance(error, sqlite3.Error) else error
        path.unlink(missing_ok=True)
        raise failure from None


def _copy(past: FrameStore, connection: sqlite3.Connection) -> None:
    """Write a past into an empty recording, minute by minute. Raises sqlite3.Error."""
    writer = Writer(connection)
    next_s = None
    span = past.span()
    if span is not None:
        next_s, _ = span
    # Both ends of what is asked for are included: the floats next to the end of a minute are the last one before it and
    # the first one behind. Points, events and notes may be dated before the first frame of their minute, or behind the
    # last of all: each minute has those since the minute before.
    since_s = -math.inf
    while next_s is not None:
        end_s = math.nextafter((next_s // BLOCK_S + 1) * BLOCK_S, -math.inf)
        writer.write([Tick(frame, points={}, events=()) for frame in past.frames(next_s, end_s)])
        next_s = past.after(end_s)
        until_s = math.inf if next_s is None else end_s
        writer.finish(
            points=past.points(since_s, until_s),
            events=past.events(since_s, until_s),
            notes=past.notes(since_s, until_s),
        )
        since_s = math.nextafter(end_s, math.inf)
    connection.execute("PRAGMA incremental_vacuum").fetchall()


class Writer:
    """Writes ticks through one connection. After any sqlite3.Error it is of no more use.

    A run is a stretch of the recording in which the wall clock did not go back, be it of one process or of several.
    """

    def __init__(self, connection: sqlite3.Connection, keep_s: float = math.inf, keep_bytes: float = math.inf) -> None:
        """`keep_s` and `keep_bytes` bound the recording by age, and the size of its file. Raises sqlite3.Error."""
        self._connection = connection
        self._keep_s = keep_s
        self._allowed_bytes = keep_bytes
        newest = connection.execute(
            "SELECT run, last_s FROM pieces WHERE kind = ? AND typeof(run) = 'integer' AND run BETWEEN 0 AND ?"
            " AND typeof(last_s) = 'real' AND abs(last_s) <= ? ORDER BY id DESC LIMIT 1",
            (PieceKind.FRAMES, _LARGEST_RUN, _LATEST_WALL_S),
        ).fetchone()
        self._run = 1
        self._last_s = -math.inf
        """When the frame before was taken."""
        if newest:
            self._run, self._last_s = newest
        self._packer = codec.Packer()
        self._frames = _Minute(PieceKind.FRAMES, codec.pack_block, codec.unpack_block)
        self._points = _Minute(PieceKind.POINTS, codec.pack_points, codec.unpack_points)
        self._cell = PointsCell()
        """Points of the cell (`CELL_S` seconds of the charts) that is going on."""
        self._log = VerdictLog()
        self._clock = _Clock()
        self._rows_left_to_remove = False
        """Whether old rows are left that there was no time to remove."""
        if newest:
            self._resume()

    def write(self, ticks: Iterable[Tick]) -> None:
        """Write and commit. Raises sqlite3.Error, with nothing of these ticks written then."""
        self._connection.execute("BEGIN IMMEDIATE")
        for tick in ticks:
            self._add(tick)
        if self._rows_left_to_remove:
            self._remove_old_rows()
        self._connection.execute("COMMIT")

    def finish(self, points: Sequence[Points] = (), events: Sequence[Event] = (), notes: Sequence[Note] = ()) -> None:
        """End the minute that was begun, so that it takes as little room as the others. Raises sqlite3.Error.

        `points`, `events` and `notes` are those of that minute, where its ticks had none.
        """
        self._connection.execute("BEGIN IMMEDIATE")
        self._end_cell()
        if points:
            self._insert(PieceKind.POINTS, points[0].wall_s, points[-1].wall_s, codec.pack_points(points))
        self._insert_events(events)
        self._insert_notes(notes)
        self._end_minute()
        self._connection.execute("COMMIT")

    def _resume(self) -> None:
        """Go on in the minute that the writer before did not end: its rows become one with those to come."""
        minute_s = self._last_s // BLOCK_S * BLOCK_S
        for minute in (self._frames, self._points):
            values = (
                minute.kind,
                self._run,
                minute_s,
                self._last_s,
                self._last_s,
                codec.MOST_PACKED_BYTES,
                codec.MOST_FRAMES,
            )
            rows = self._connection.execute(
                "SELECT id, first_s, last_s, data FROM pieces"
                " WHERE kind = ? AND run = ? AND first_s BETWEEN ? AND ? AND last_s BETWEEN first_s AND ?"
                " AND typeof(data) = 'blob' AND length(data) <= ? ORDER BY first_s LIMIT ?",
                values,
            )
            minute.resume(rows.fetchall())

    def _add(self, tick: Tick) -> None:
        """Write one tick; what it ends (a cell of points, a minute, a run) is written before."""
        frame = tick.frame
        wall_s = frame.wall_s
        went_back = wall_s <= self._last_s
        if went_back or self._cell.ends(wall_s):
            self._end_cell()
        if went_back or wall_s // BLOCK_S != self._last_s // BLOCK_S or self._frames.is_full:
            self._end_minute()
        if went_back:
            self._run += 1
            self._log.renew()
        self._last_s = wall_s
        self._clock.tick(wall_s, frame.monotonic_s)
        self._insert_events(tick.events)
        if tick.verdicts is not None:
            note = self._log.note(wall_s, tick.verdicts)
            if note is not None:
                self._insert_notes([note])
        packed = self._packer.pack(frame)
        row = self._insert(PieceKind.FRAMES, wall_s, wall_s, codec.pack_block([packed], codec.QUICK))
        self._frames.add(row, wall_s, packed)
        self._cell.add(wall_s, frame.interval_s, tick.points)

    def _insert_events(self, events: Sequence[Event]) -> None:
        """Write events as one row."""
        if events:
            times = [event.wall_s for event in events]
            self._insert(PieceKind.EVENTS, min(times), max(times), codec.pack_events(events))

    def _insert_notes(self, notes: Iterable[Note]) -> None:
        """Write notes, each as a row."""
        for note in notes:
            self._insert(PieceKind.VERDICTS, note.wall_s, note.wall_s, codec.pack_note(note))

    def _end_cell(self) -> None:
        """Write the points of the cell that was begun."""
        points = self._cell.take()
        if points is not None:
            row = self._insert(PieceKind.POINTS, points.wall_s, points.wall_s, codec.pack_points([points]))
            self._points.add(row, points.wall_s, points)

    def _end_minute(self) -> None:
        """Make one row of the minute that was begun, and remove old ones."""
        self._join_rows(self._frames)
        self._join_rows(self._points)
        self._remove_old_rows()

    def _join_rows(self, minute: _Minute[T]) -> None:
        """Put one row in the place of those of a minute.

        It comes before they go, so that it gets none of their ids: readers cache rows by id.
        """
        if len(minute.rows) > 1:
            self._insert(minute.kind, minute.first_s, minute.last_s, minute.pack(minute.items))
            self._connection.executemany("DELETE FROM pieces WHERE id = ?", [(row,) for row in minute.rows])
        minute.clear()

    def _insert(self, kind: PieceKind, first_s: float, last_s: float, data: bytes) -> int:
        """Write a row of this run; returns its id."""
        row = self._connection.execute(
            "INSERT INTO pieces (kind, run, first_s, last_s, data) VALUES (?, ?, ?, ?, ?)",
            (kind, self._run, first_s, last_s, data),
        ).lastrowid
        assert row is not None, "an INSERT makes a row"
        return row

    def _remove_old_rows(self) -> None:
        """Remove what is too old or too much, oldest first, for a moment at most; the rest is done with later ticks."""
        end_s = time.monotonic() + _MOST_REMOVAL_S
        self._rows_left_to_remove = True
        while self._rows_left_to_remove and time.monotonic() < end_s:
            self._rows_left_to_remove = self._remove_oldest() or self._shrink()

    def _remove_oldest(self) -> bool:
        """Remove a few of the oldest rows, if all are too old or the file is too large; returns whether it did."""
        oldest = self._connection.execute(
            "SELECT id, run, last_s FROM pieces ORDER BY id LIMIT ?", (_ROWS_REMOVED_AT_ONCE + 1,)
        ).fetchall()
        if len(oldest) <= _ROWS_REMOVED_AT_ONCE:  # the newest rows always stay
            return False
        *to_remove, (first_kept, _, _) = oldest
        used_pages = self._pragma("page_count") - self._pragma("freelist_count")
        if used_pages * self._pragma("page_size") <= self._allowed_bytes - _HEADROOM_BYTES:
            _, run, last_s = to_remove[-1]
            if not self._is_too_old(run, last_s):
                return False
        self._connection.execute("DELETE FROM pieces WHERE id < ?", (first_kept,))
        return True

    def _is_too_old(self, run: int, last_s: float) -> bool:
        """Whether a row may go for its age.

        One that a wrong clock dated into the future is as old as the first frame after the clock went back.
        """
        if not self._clock.is_steady:
            return False
        if last_s > self._last_s:
            later = "SELECT first_s FROM pieces WHERE kind = ? AND run > ? ORDER BY run, first_s LIMIT 1"
            row = self._connection.execute(later, (PieceKind.FRAMES, run)).fetchone()
            if row is None:
                return False
            (last_s,) = row
        return last_s < self._last_s - self._keep_s

    def _shrink(self) -> bool:
        """Give a few free pages of a file that is too large back to the file system; returns whether it did."""
        size = self._pragma("page_count") * self._pragma("page_size")
        if size <= self._allowed_bytes or not self._pragma("freelist_count"):
            return False
        self._connection.execute(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})").fetchall()
        return True

    def _pragma(self, name: str) -> int:
        """A number that SQLite tells of the file."""
        value: int = self._connection.execute(f"PRAGMA {name}").fetchone()[0]
        return value


class _Minute(Generic[T]):
    """Rows of the minute that was begun, which will be one row."""

    def __init__(
        self, kind: PieceKind, pack: Callable[[Sequence[T]], bytes], unpack: Callable[[bytes], list[T]]
    ) -> None:
        self.kind = kind
        self.pack = pack
        self._unpack = unpack
        self.rows: list[int] = []
        """Ids of its rows."""
        self.items: list[T] = []
        """Frames, or points, of all its rows."""
        self.first_s = 0.0
        self.last_s = 0.0

    @property
    def is_full(self) -> bool:
        """Whether no block holds more."""
        return len(self.items) >= codec.MOST_FRAMES

    def add(self, row: int, wall_s: float, item: T) -> None:
        """Take in a row with one item."""
        if not self.rows:
            self.first_s = wall_s
        self.last_s = wall_s
        self.rows.append(row)
        self.items.append(item)

    def resume(self, rows: Iterable[tuple[int, float, float, bytes]]) -> None:
        """Take rows that another writer left, oldest first; those that are damaged or full stay as they are.

        So do those before such a row: the row in the place of several holds what lies between its ends.
        """
        for row, first_s, last_s, data in rows:
            try:
                items = self._unpack(data)
            except ValueError:
                items = []
            if not items or len(self.items) + len(items) > codec.MOST_FRAMES:
                self.clear()
                continue
            if not self.rows:
                self.first_s = first_s
            self.last_s = last_s
            self.rows.append(row)
            self.items += items

    def clear(self) -> None:
        """Forget its rows: the next minute begins."""
        self.rows.clear()
        self.items.clear()


class _Clock:
    """Watches whether the wall clock keeps step with the monotonic one."""

    def __init__(self) -> None:
        self._offset_s = math.inf
        """Wall clock less monotonic clock."""
        self._since_s = math.inf
        """Since when, on the monotonic clock, they have kept step."""
        self.is_steady = False
        """Whether it has for `_STEADY_S`."""

    def tick(self, wall_s: float, monotonic_s: float) -> None:
        """Take in both clocks."""
        is_in_step = abs(wall_s - monotonic_s - self._offset_s) <= _STEP_S  # not at first: the offset is infinite
        if not is_in_step:
            self._since_s = monotonic_s
        self._offset_s = wall_s - monotonic_s
        self.is_steady = monotonic_s - self._since_s >= _STEADY_S

"""Writes ticks into an open recording: a row per frame, made one block when its minute is over; old ones go."""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, TypeVar

from gpumon.readings.verdict import Event
from gpumon.recording import codec
from gpumon.recording.cell import Cell
from gpumon.recording.file import Kind
from gpumon.recording.past import Kept, Points

BLOCK_S: Final = 60.0
"""Wall time of one block: what must be read to see one of its frames."""
_HEADROOM_BYTES: Final = 1 << 20
"""What a minute may add before room is made for it."""
_MOST_RUN: Final = 2**62
_MOST_WALL_S: Final = 1e11
"""A row that is dated beyond is damaged: what comes next is no earlier run than that."""
_BATCH: Final = 8
_RETIRE_S: Final = 0.05
"""Longest time that old rows are removed for in one commit."""
_STEADY_S: Final = 600.0
"""Nothing goes for its age until the clock has kept step with the monotonic one for that long: it may be wrong."""
_STEP_S: Final = 30.0
"""A clock that moves by more against the monotonic one was set."""
_VACUUM_PAGES: Final = 256
"""Given back at a time, where the file was allowed to be larger before."""

T = TypeVar("T")


class Writer:
    """One run of recording on one connection. After any sqlite3.Error it is of no more use."""

    def __init__(self, connection: sqlite3.Connection, keep_s: float = math.inf, keep_bytes: float = math.inf) -> None:
        """`keep_s` and `keep_bytes` bound the recording by age, and the size of its file. Raises sqlite3.Error."""
        self._connection = connection
        self._keep_s = keep_s
        self._keep_bytes = keep_bytes - _HEADROOM_BYTES
        newest = connection.execute(
            "SELECT run, last_s FROM pieces WHERE kind = ? AND typeof(run) = 'integer' AND run BETWEEN 0 AND ?"
            " AND typeof(last_s) = 'real' AND abs(last_s) <= ? ORDER BY id DESC LIMIT 1",
            (Kind.FRAMES, _MOST_RUN, _MOST_WALL_S),
        ).fetchone()
        self._run: int = newest[0] if newest else 1
        self._last_s: float = newest[1] if newest else -math.inf
        self._packer = codec.Packer()
        self._frames = _Tail(Kind.FRAMES, codec.block, codec.unblocked)
        self._points = _Tail(Kind.POINTS, codec.cells, codec.points)
        self._cell = Cell()
        self._clock = _Clock()
        self._behind = False
        if newest:
            self._resume()

    def write(self, ticks: Iterable[Kept]) -> None:
        """Write and commit. Raises sqlite3.Error, with nothing of these ticks written then."""
        self._connection.execute("BEGIN IMMEDIATE")
        for kept in ticks:
            self._add(kept)
        if self._behind:
            self._retire()
        self._connection.execute("COMMIT")

    def finish(self, points: Sequence[Points] = (), events: Sequence[Event] = ()) -> None:
        """End the minute that was begun, so that it takes as little room as the others; `points` and `events` are its.

        Raises sqlite3.Error.
        """
        self._connection.execute("BEGIN IMMEDIATE")
        self._end_cell()
        if points:
            self._insert(Kind.POINTS, points[0].wall_s, points[-1].wall_s, codec.cells(points))
        self._tell(events)
        self._end_minute()
        self._connection.execute("COMMIT")

    def _resume(self) -> None:
        """Go on in the minute that the writer before did not end: its rows become one with those to come."""
        minute_s = self._last_s // BLOCK_S * BLOCK_S
        for tail in (self._frames, self._points):
            rows = self._connection.execute(
                "SELECT id, first_s, last_s, data FROM pieces"
                " WHERE kind = ? AND run = ? AND first_s BETWEEN ? AND ? AND last_s BETWEEN first_s AND ?"
                " AND typeof(data) = 'blob' AND length(data) <= ? ORDER BY first_s LIMIT ?",
                (
                    *(tail.kind, self._run, minute_s, self._last_s, self._last_s),
                    *(codec.MOST_PACKED_BYTES, codec.MOST_FRAMES),
                ),
            )
            tail.resume(rows.fetchall())

    def _add(self, kept: Kept) -> None:
        frame = kept.frame
        at_s = frame.wall_s
        back = at_s <= self._last_s
        if back or self._cell.ends(at_s):
            self._end_cell()
        if back or at_s // BLOCK_S != self._last_s // BLOCK_S or self._frames.full:
            self._end_minute()
        self._run += back
        self._last_s = at_s
        self._clock.tick(at_s, frame.monotonic_s)
        self._tell(kept.events)
        packed = self._packer.pack(frame)
        row = self._insert(Kind.FRAMES, at_s, at_s, codec.block([packed], codec.QUICK))
        self._frames.add(row, at_s, packed)
        self._cell.add(at_s, frame.interval_s, kept.points)

    def _tell(self, events: Sequence[Event]) -> None:
        if events:
            times = [event.wall_s for event in events]
            self._insert(Kind.EVENTS, min(times), max(times), codec.told(events))

    def _end_cell(self) -> None:
        if (point := self._cell.taken()) is not None:
            row = self._insert(Kind.POINTS, point.wall_s, point.wall_s, codec.cells([point]))
            self._points.add(row, point.wall_s, point)

    def _end_minute(self) -> None:
        self._join(self._frames)
        self._join(self._points)
        self._retire()

    def _join(self, tail: _Tail[T]) -> None:
        """Put one block in the place of its rows. It comes before they go, so that no id is ever used again."""
        if len(tail.rows) > 1:
            self._insert(tail.kind, tail.first_s, tail.last_s, tail.bytes_of(tail.items))
            self._connection.executemany("DELETE FROM pieces WHERE id = ?", [(row,) for row in tail.rows])
        tail.clear()

    def _insert(self, kind: Kind, first_s: float, last_s: float, data: bytes) -> int:
        row = self._connection.execute(
            "INSERT INTO pieces (kind, run, first_s, last_s, data) VALUES (?, ?, ?, ?, ?)",
            (kind, self._run, first_s, last_s, data),
        ).lastrowid
        assert row is not None, "an INSERT makes a row"
        return row

    def _retire(self) -> None:
        """Remove what is too old or too much, oldest first, for a moment at most; the rest is done with later ticks."""
        end_s = time.monotonic() + _RETIRE_S
        self._behind = True
        while self._behind and time.monotonic() < end_s:
            self._behind = self._removed() or self._shrunk()

    def _removed(self) -> bool:
        """Whether a few rows, all of the oldest, were in the way and are gone."""
        oldest = self._connection.execute(
            "SELECT id, run, last_s FROM pieces ORDER BY id LIMIT ?", (_BATCH + 1,)
        ).fetchall()
        if len(oldest) <= _BATCH:
            return False
        pages, free, page_bytes = (self._pragma(name) for name in ("page_count", "freelist_count", "page_size"))
        if (pages - free) * page_bytes <= self._keep_bytes and not self._too_old(*oldest[_BATCH - 1][1:]):
            return False
        self._connection.execute("DELETE FROM pieces WHERE id < ?", (oldest[_BATCH][0],))
        return True

    def _too_old(self, run: int, last_s: float) -> bool:
        """Whether a row is. One that a wrong clock dated into the future is as old as what came after it."""
        if not self._clock.steady:
            return False
        if last_s > self._last_s:
            later = "SELECT first_s FROM pieces WHERE kind = ? AND run > ? ORDER BY run, first_s LIMIT 1"
            found = self._connection.execute(later, (Kind.FRAMES, run)).fetchone()
            last_s = found[0] if found else math.inf
        return last_s < self._last_s - self._keep_s

    def _shrunk(self) -> bool:
        """Whether a few free pages of a file that is too large were given back to the file system."""
        size = self._pragma("page_count") * self._pragma("page_size")
        if size <= self._keep_bytes + _HEADROOM_BYTES or not self._pragma("freelist_count"):
            return False
        self._connection.execute(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})").fetchall()
        return True

    def _pragma(self, name: str) -> int:
        value: int = self._connection.execute(f"PRAGMA {name}").fetchone()[0]
        return value


class _Tail(Generic[T]):
    """Rows that will be one."""

    def __init__(
        self, kind: Kind, bytes_of: Callable[[Sequence[T]], bytes], items_of: Callable[[bytes], list[T]]
    ) -> None:
        self.kind = kind
        self.bytes_of = bytes_of
        self._items_of = items_of
        self.rows: list[int] = []
        self.items: list[T] = []
        self.first_s = self.last_s = 0.0

    @property
    def full(self) -> bool:
        return len(self.items) >= codec.MOST_FRAMES

    def add(self, row: int, wall_s: float, item: T) -> None:
        if not self.rows:
            self.first_s = wall_s
        self.last_s = wall_s
        self.rows.append(row)
        self.items.append(item)

    def resume(self, rows: Iterable[tuple[int, float, float, bytes]]) -> None:
        """Take rows that another left, oldest first; those that are damaged or full stay as they are."""
        for row, first_s, last_s, data in rows:
            try:
                items = self._items_of(data)
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
        self.rows.clear()
        self.items.clear()


class _Clock:
    """Whether the wall clock has kept step with the monotonic one."""

    def __init__(self) -> None:
        self._offset_s = self._since_s = math.inf
        self.steady = False

    def tick(self, wall_s: float, monotonic_s: float) -> None:
        if not abs(wall_s - monotonic_s - self._offset_s) <= _STEP_S:
            self._since_s = monotonic_s
        self._offset_s = wall_s - monotonic_s
        self.steady = monotonic_s - self._since_s >= _STEADY_S

"""Reads a recording: a `FrameStore` in a file, also while another process writes it."""

from __future__ import annotations

import contextlib
import math
import sqlite3
import threading
import weakref
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from gpumon.config.errors import ConfigError
from gpumon.config.load import file_name
from gpumon.history import codec
from gpumon.history.file import PieceKind, check, connected, identified, unreadable
from gpumon.history.frame_store import Note, Points
from gpumon.readings.frame import Frame
from gpumon.readings.verdict import Event
from gpumon.triage.peers import vetted_verdict

LONGEST_BLOCK_S: Final = 61.0
"""No row but one of events reaches over more wall time."""
_CACHE_BYTES: Final = 24_000_000
"""Size of the blocks that were unpacked last."""

_MOST_INTEGER: Final = 2**63 - 1
"""SQLite's."""
_UNWRITABLE: Final = ("unable to open", "readonly")
"""Errors of SQLite if it can make no lock or journal: CANTOPEN and the kinds of READONLY."""
_FIRST_S = 0.0
_LAST_S = 253_402_214_400.0
"""Times of what is no frame lie outside: the years 1970 to 9999."""

_MOST_RUNS: Final = 1000
"""The newest are read of a file whose clock went back more often."""

MOST_DAMAGED: Final = 1000
"""Rows that are left out; a file with more of them is refused. A bad disk spoils some minutes, and not most of them."""
MOST_TOO_LARGE: Final = 20
"""Rows left out because they unpack to more than gpumon writes: each takes a tenth of a second."""
MOST_ROWS: Final = 300_000
"""Rows of one kind that one question may take: those of events of a month in which something happens every 10 s."""

T = TypeVar("T")


class _Run(NamedTuple):
    """Frames between two moments at which the clock went back."""

    number: int
    first_s: float
    last_s: float


class _Block(NamedTuple):
    """The frames of one row."""

    times: list[float]
    frames: list[codec.PackedFrame]
    size: int


class Recording:
    """A `FrameStore` in a file. Safe to call from several threads, one call at a time.

    Where the clock went back, `frames` gives what the screen would have seen at the end of the span: of the time
    before, the frames of an older run only up to where the newer one begins.
    """

    def __init__(self, path: Path) -> None:
        """Blocks. Raises ConfigError in one line where the file is no recording that can be read."""
        check(path)
        self._lock = threading.RLock()
        self._path = path
        self._cache: OrderedDict[int, _Block] = OrderedDict()
        self._cached_bytes = 0
        self._damaged_rows: set[int] = set()
        self._too_large = 0
        self._damaged_frames: set[tuple[int, float]] = set()
        try:
            self._connection = _opened(path)
        except sqlite3.Error as error:
            raise unreadable(path, error) from None
        self._let_go = weakref.finalize(self, self._connection.close)
        self.facts: Mapping[str, str] = identified(self._connection, path)

    @property
    def damaged(self) -> int:
        """Rows and frames that were looked at and could not be read: they are left out."""
        return len(self._damaged_rows) + len(self._damaged_frames)

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._let_go()

    def span(self) -> tuple[float, float] | None:
        """When the first and the last frame was taken; None without frames."""
        with self._reading():
            runs = self._runs()
        if runs:
            return (min(run.first_s for run in runs), max(run.last_s for run in runs))
        return None

    def turns(self) -> int:
        """How often its clock went back."""
        with self._reading():
            return next(self._numbers(), 0)

    def frames(self, from_s: float, to_s: float) -> Sequence[Frame]:
        """Frames from a time to another, both included."""
        with self._reading():
            packed: list[codec.PackedFrame] = []
            for run, since_s, until_s in self._runs_to(from_s, to_s):
                of_run: list[codec.PackedFrame] = []
                for block in self._blocks(run, since_s, until_s):
                    of_run += block.frames[bisect_left(block.times, since_s) : bisect_right(block.times, until_s)]
                packed = of_run + packed
        frames = codec.unpack_frames(packed)
        if len(frames) < len(packed):
            self._damaged_frames.update(codec.frame_time(frame) for frame in packed)
            self._damaged_frames.difference_update((frame.seq, frame.wall_s) for frame in frames)
        return frames

    def before(self, wall_s: float) -> float | None:
        """When the last frame before a time was taken."""
        with self._reading():
            last = self._last_to(math.nextafter(wall_s, -math.inf), self._visible())
        if last is None:
            return None
        latest_s, _ = last
        return latest_s

    def after(self, wall_s: float) -> float | None:
        """When the first frame after a time was taken."""
        with self._reading():
            for since_s, until_s, run in self._visible():
                first_s = max(since_s, math.nextafter(wall_s, math.inf))
                if first_s > until_s:
                    continue
                for block in self._blocks(run, first_s, until_s):
                    place = bisect_left(block.times, first_s)
                    if place < len(block.times) and block.times[place] <= until_s:
                        return block.times[place]
        return None

    def points(self, from_s: float, to_s: float) -> Sequence[Points]:
        """Points for charts, oldest first."""
        points = []
        for cell in self._content(PieceKind.POINTS, from_s, to_s, codec.unpack_points):
            if from_s <= cell.wall_s <= to_s:
                points.append(cell)
        return points

    def events(self, from_s: float, to_s: float) -> Sequence[Event]:
        """Events, oldest first."""
        events = []
        for event in self._content(PieceKind.EVENTS, from_s, to_s, codec.unpack_events):
            if from_s <= event.wall_s <= to_s:
                events.append(event)
        return events

    def notes(self, from_s: float, to_s: float) -> Sequence[Note]:
        """Verdict notes, oldest first. The file may be from elsewhere: advice that is not gpumon's own is marked."""
        notes = []
        for note in self._content(PieceKind.VERDICTS, from_s, to_s, codec.unpack_notes):
            verdicts = tuple(vetted_verdict(verdict) for verdict in note.verdicts)
            notes.append(msgspec.structs.replace(note, verdicts=verdicts))
        return notes

    def _runs(self) -> list[_Run]:
        """Oldest first."""
        runs = []
        where = (
            "FROM pieces WHERE kind = ? AND run = ? AND first_s BETWEEN ? AND ?"
            " AND last_s BETWEEN first_s AND first_s + ? ORDER BY first_s"
        )
        for run in islice(self._numbers(), _MOST_RUNS):
            bounds = (PieceKind.FRAMES, run, _FIRST_S, _LAST_S, LONGEST_BLOCK_S)
            first = self._query(f"SELECT first_s {where} LIMIT 1", bounds)
            last = self._query(f"SELECT last_s {where} DESC LIMIT 1", bounds)
            if first and last:
                runs.append(_Run(run, first[0][0], last[0][0]))
        return runs[::-1]

    def _numbers(self) -> Iterator[int]:
        """Numbers of all runs, the newest first; each is a look-up, however many rows there are."""
        run = _MOST_INTEGER
        while found := self._query(
            "SELECT run FROM pieces WHERE kind = ? AND run < ? ORDER BY run DESC LIMIT 1", (PieceKind.FRAMES, run)
        ):
            (run,) = found[0]
            if not isinstance(run, int):
                return
            yield run

    def _visible(self) -> list[tuple[float, float, int]]:
        """Spans of time and the newest run in each, oldest span first."""
        spans: list[tuple[float, float, int]] = []
        for run in self._runs():
            kept = []
            for since_s, until_s, number in spans:
                if since_s < run.first_s:
                    kept.append((since_s, min(until_s, math.nextafter(run.first_s, -math.inf)), number))
                if until_s > run.last_s:
                    kept.append((max(since_s, math.nextafter(run.last_s, math.inf)), until_s, number))
            spans = [*kept, (run.first_s, run.last_s, run.number)]
        return sorted(spans)

    def _last_to(self, wall_s: float, visible: Sequence[tuple[float, float, int]]) -> tuple[float, int] | None:
        """Time and run of the last visible frame at or before a time; None where there is none."""
        for since_s, until_s, run in reversed(visible):
            latest_s = min(until_s, wall_s)
            if since_s > latest_s:
                continue
            for block in self._blocks(run, since_s, latest_s, newest=True):
                place = bisect_right(block.times, latest_s) - 1
                if place >= 0 and block.times[place] >= since_s:
                    return (block.times[place], run)
        return None

    def _runs_to(self, from_s: float, to_s: float) -> Iterator[tuple[int, float, float]]:
        """Runs that led to the moment `to_s`, the latest time first, each with the span that is its own.

        A clock that was ahead for a while leaves frames in the future, and a later run before them in time. Where the
        span has such a run, all runs are given as they are visible.
        """
        visible = self._visible()
        newest = 0
        last = self._last_to(to_s, visible)
        if last is not None:
            _, newest = last
        inside = []
        for since_s, until_s, run in visible:
            if since_s <= to_s and until_s >= from_s:
                inside.append((run, max(since_s, from_s), min(until_s, to_s)))
        if self._clock_was_ahead([run for run, _, _ in inside], newest):
            yield from reversed(inside)
        else:
            yield from self._runs_before(newest, from_s, to_s)

    def _clock_was_ahead(self, runs: Iterable[int], newest: int) -> bool:
        """Whether one of these runs is later than the newest that led to a moment, and lies before it in time."""
        later = {run for run in runs if run > newest}
        return any(run.number in later and self._fills_gap(run, newest) for run in self._runs())

    def _runs_before(self, newest: int, from_s: float, to_s: float) -> Iterator[tuple[int, float, float]]:
        """A run and those before it, the newest first: each up to the beginning of the next one."""
        until_s = to_s
        for run in reversed(self._runs()):
            if run.number <= newest and run.first_s <= until_s:
                yield (run.number, from_s, until_s)
                until_s = math.nextafter(run.first_s, -math.inf)
            if until_s < from_s:
                return

    def _fills_gap(self, run: _Run, older: int) -> bool:
        """Whether a run lies where an older one has no frames, as its clock had leapt ahead."""
        for block in self._blocks(older, run.first_s, run.last_s, newest=True):
            place = bisect_right(block.times, run.last_s) - 1
            if place >= 0:
                last_s = block.times[place]
                return last_s < run.first_s or run.last_s - last_s > LONGEST_BLOCK_S
        return True

    def _blocks(self, run: int, from_s: float, to_s: float, *, newest: bool = False) -> Iterator[_Block]:
        """Blocks of a run that may hold frames of a span, oldest or newest first; read as they are asked for."""
        order = "ASC"
        since_s = from_s - LONGEST_BLOCK_S
        if newest:
            order = "DESC"
            since_s = -math.inf
        rows = self._rows(
            f"first_s BETWEEN ? AND ? AND last_s >= ? ORDER BY first_s {order}",
            (PieceKind.FRAMES, run, since_s, to_s, from_s),
        )
        for row in rows:
            block = self._block(row)
            if block is not None:
                yield block

    def _rows(self, where: str, values: tuple[object, ...]) -> Iterator[int]:
        """Ids of the rows of a kind and a run, one by one."""
        try:
            rows = self._connection.execute(f"SELECT id FROM pieces WHERE kind = ? AND run = ? AND {where}", values)
            with contextlib.closing(rows):
                for count, (row,) in enumerate(rows):
                    if count == MOST_ROWS:
                        raise self._spoilt(f"has more than {MOST_ROWS:,} rows for one question, which no recording has")
                    yield row
        except sqlite3.Error as error:
            raise unreadable(self._path, error) from None

    def _data(self, row: int) -> object:
        """Content of a row; None if it is larger than any block, or gone meanwhile."""
        sql = "SELECT data FROM pieces WHERE id = ? AND length(data) <= ?"
        for (data,) in self._query(sql, (row, codec.MOST_PACKED_BYTES)):
            return data
        return None

    def _block(self, row: int) -> _Block | None:
        """The frames of a row; None where it is damaged."""
        if row in self._cache:
            self._cache.move_to_end(row)
            return self._cache[row]
        times = []
        frames = []
        heads_bytes = 0
        engines_bytes: dict[int, int] = {}
        for wall_s, frame in self._read(_timed, row):
            times.append(wall_s)
            frames.append(frame)
            heads_bytes += len(frame.head)
            for engine in frame.engines:  # frames share what did not change
                engines_bytes[id(engine)] = len(engine)
        if not times:
            return None
        block = _Block(times, frames, heads_bytes + sum(engines_bytes.values()))
        self._cache[row] = block
        self._cached_bytes += block.size
        while self._cached_bytes > _CACHE_BYTES and len(self._cache) > 1:
            _, oldest = self._cache.popitem(last=False)
            self._cached_bytes -= oldest.size
        return block

    def _content(self, kind: PieceKind, from_s: float, to_s: float, read: Callable[[bytes], list[T]]) -> list[T]:
        """Content of the rows of a kind, oldest first. Events of one tick may be of very different times."""
        with self._reading():
            content: list[T] = []
            seen: set[int] = set()
            reach_s = math.inf if kind is PieceKind.EVENTS else LONGEST_BLOCK_S
            for run, since_s, until_s in self._runs_to(from_s, to_s):
                rows = self._rows(
                    "first_s BETWEEN ? AND ? AND last_s >= ? ORDER BY first_s",
                    (kind, run, since_s - reach_s, until_s, since_s),
                )
                fresh = [row for row in rows if row not in seen]
                seen.update(fresh)
                of_run: list[T] = []
                for row in fresh:
                    of_run += self._read(read, row)
                content = of_run + content
            return content

    def _read(self, read: Callable[[bytes], list[T]], row: int) -> list[T]:
        """Contents of a row; empty if it is damaged. Raises ConfigError where too many are."""
        if row in self._damaged_rows:
            return []
        try:
            data = self._data(row)
            if isinstance(data, bytes):
                return read(data)
        except codec.TooLargeError:
            self._too_large += 1
        except ValueError:
            pass
        self._damaged_rows.add(row)
        if self._too_large > MOST_TOO_LARGE:
            raise self._spoilt(f"is damaged: more than {MOST_TOO_LARGE} rows unpack to what gpumon never writes")
        if len(self._damaged_rows) > MOST_DAMAGED:
            raise self._spoilt(f"is damaged: more than {MOST_DAMAGED:,} of its rows cannot be read")
        return []

    def _spoilt(self, why: str) -> ConfigError:
        return ConfigError(f"{file_name(self._path)}: {why}; take another copy of it")

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """One state of the file for all queries of a call, whatever a writer does meanwhile."""
        with self._lock:
            self._query("BEGIN")
            try:
                yield
            finally:
                with contextlib.suppress(sqlite3.Error):
                    self._connection.execute("COMMIT")

    def _query(self, sql: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        """Raises ConfigError where SQLite finds the file damaged, or its disk fails."""
        try:
            return self._connection.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise unreadable(self._path, error) from None


def _timed(data: bytes) -> list[tuple[float, codec.PackedFrame]]:
    """The frames of a block and their times, which only grow. Raises ValueError where it is damaged."""
    frames = codec.unpack_block(data)
    timed = []
    last_s = -math.inf
    for frame in frames:
        _, wall_s = codec.frame_time(frame)
        if not _FIRST_S <= wall_s <= _LAST_S or wall_s <= last_s:
            raise ValueError("damaged: its times are in no order")
        last_s = wall_s
        timed.append((wall_s, frame))
    return timed


def _opened(path: Path) -> sqlite3.Connection:
    """Raises sqlite3.Error. A recording that cannot even be locked (a read-only folder) is taken for one at rest."""
    try:
        return _answering(path, "ro")
    except sqlite3.OperationalError as error:
        if not any(words in str(error) for words in _UNWRITABLE):
            raise
    if _begun(path, "-journal"):  # what a killed writer had begun is taken back first: this writes
        with contextlib.suppress(sqlite3.OperationalError):
            _answering(path, "rw").close()
    for ending in ("-wal", "-journal"):
        if _begun(path, ending):
            text = f"{path.name}{ending} belongs to it, and can be used only where files can be written"
            raise sqlite3.OperationalError(text)
    try:
        return _answering(path, "ro")
    except sqlite3.OperationalError:
        return _answering(path, "ro&immutable=1")


def _answering(path: Path, mode: str) -> sqlite3.Connection:
    connection = connected(path, mode)
    try:
        connection.execute("PRAGMA application_id").fetchall()
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _begun(path: Path, ending: str) -> bool:
    """Whether a journal holds something."""
    journal = Path(f"{path}{ending}")
    return journal.exists() and journal.stat().st_size > 0

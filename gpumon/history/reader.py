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
from gpumon.history.file import PieceKind, check_file, check_journal, open_connection, read_facts, unreadable_error
from gpumon.history.frame_store import Note, Points
from gpumon.readings.frame import Frame
from gpumon.readings.verdict import Event
from gpumon.triage.peers import vetted_verdict

LONGEST_BLOCK_S: Final = 61.0
"""No row but one of events reaches over more wall time."""
_CACHE_BYTES: Final = 24_000_000
"""Most bytes of unpacked blocks that are kept for the next look."""
_LARGEST_SQL_INTEGER: Final = 2**63 - 1
"""Above the number of any run."""
_UNWRITABLE: Final = ("unable to open", "readonly")
"""Errors of SQLite if it can make no lock or journal: CANTOPEN and the kinds of READONLY."""
_EARLIEST_S: Final = 0.0
_LATEST_S: Final = 253_402_214_400.0
"""Unix times between which frames lie: 1970 to 9999. Others are damaged."""
_MOST_RUNS: Final = 1000
"""Most runs that are read of a file: the newest ones, where its clock went back more often."""
MOST_DAMAGED: Final = 1000
"""Rows that are left out; a file with more of them is refused. A bad disk spoils some minutes, and not most of them."""
MOST_TOO_LARGE: Final = 20
"""Rows left out because they unpack to more than gpumon writes: each takes a tenth of a second."""
MOST_ROWS: Final = 300_000
"""Most rows of one kind that one question may take: enough for a month of events every 10 s."""

T = TypeVar("T")


class _Run(NamedTuple):
    """Frames between two moments at which the clock went back. Times are Unix times."""

    number: int
    first_s: float
    last_s: float


class _RunSpan(NamedTuple):
    """A part of a run, both ends included."""

    run: int
    since_s: float
    until_s: float


class _FrameTime(NamedTuple):
    """When a frame was taken, and in which run."""

    wall_s: float
    run: int


class _Block(NamedTuple):
    """The frames of one row."""

    times: list[float]
    """Unix time of each frame, in ascending order."""
    frames: list[codec.PackedFrame]
    size: int
    """Bytes that the frames take in memory."""


class Recording:
    """A `FrameStore` in a file. Safe to call from several threads, one call at a time.

    `frames` gives what the screen would have seen at the end of the span: where the clock went back, older frames are
    given only up to the start of the newer run.
    """

    def __init__(self, path: Path) -> None:
        """Opens the file; may block. Raises ConfigError in one line where it is no recording that can be read."""
        check_file(path)
        self._lock = threading.RLock()
        self._path = path
        self._cache: OrderedDict[int, _Block] = OrderedDict()
        self._cached_bytes = 0
        self._damaged_rows: set[int] = set()
        self._too_large = 0
        """How many of the damaged rows unpack to too much."""
        self._damaged_frames: set[tuple[int, float]] = set()
        """Numbers and times of frames that this gpumon cannot read, in rows that are not damaged."""
        try:
            self._connection = _open(path)
        except sqlite3.Error as error:
            raise unreadable_error(path, error) from None
        self._close_connection = weakref.finalize(self, self._connection.close)
        self.facts: Mapping[str, str] = read_facts(self._connection, path)

    @property
    def damaged(self) -> int:
        """Rows and frames that were looked at and could not be read: they are left out."""
        return len(self._damaged_rows) + len(self._damaged_frames)

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._close_connection()

    def span(self) -> tuple[float, float] | None:
        """When the first and the last frame was taken; None without frames."""
        with self._transaction():
            runs = self._read_runs()
        if runs:
            return (min(run.first_s for run in runs), max(run.last_s for run in runs))
        return None

    def turns(self) -> int:
        """Number of the newest run, which grows when the clock goes back."""
        with self._transaction():
            return next(self._run_numbers(), 0)

    def frames(self, from_s: float, to_s: float) -> Sequence[Frame]:
        """Frames from a time to another, both included."""
        with self._transaction():
            packed: list[codec.PackedFrame] = []
            for span in self._spans_up_to(from_s, to_s):  # latest run first
                run_frames: list[codec.PackedFrame] = []
                for block in self._read_blocks(span):
                    begin = bisect_left(block.times, span.since_s)
                    end = bisect_right(block.times, span.until_s)
                    run_frames += block.frames[begin:end]
                packed = run_frames + packed
        frames = codec.unpack_frames(packed)
        if len(frames) < len(packed):  # some could not be unpacked: all but those that were
            self._damaged_frames.update(codec.frame_time(frame) for frame in packed)
            self._damaged_frames.difference_update((frame.seq, frame.wall_s) for frame in frames)
        return frames

    def before(self, wall_s: float) -> float | None:
        """When the last frame before a time was taken."""
        with self._transaction():
            last = self._last_frame(math.nextafter(wall_s, -math.inf), self._visible_spans(self._read_runs()))
        if last is None:
            return None
        return last.wall_s

    def after(self, wall_s: float) -> float | None:
        """When the first frame after a time was taken."""
        with self._transaction():
            for span in self._visible_spans(self._read_runs()):
                first_s = max(span.since_s, math.nextafter(wall_s, math.inf))
                if first_s > span.until_s:
                    continue
                for block in self._read_blocks(span._replace(since_s=first_s)):
                    place = bisect_left(block.times, first_s)
                    if place < len(block.times) and block.times[place] <= span.until_s:
                        return block.times[place]
        return None

    def points(self, from_s: float, to_s: float) -> Sequence[Points]:
        """Points for charts, oldest first."""
        return [
            cell
            for cell in self._read_content(PieceKind.POINTS, from_s, to_s, codec.unpack_points)
            if from_s <= cell.wall_s <= to_s
        ]

    def events(self, from_s: float, to_s: float) -> Sequence[Event]:
        """Events, oldest first."""
        return [
            event
            for event in self._read_content(PieceKind.EVENTS, from_s, to_s, codec.unpack_events)
            if from_s <= event.wall_s <= to_s
        ]

    def notes(self, from_s: float, to_s: float) -> Sequence[Note]:
        """Verdict notes, oldest first. The file may be from elsewhere: advice that is not gpumon's own is marked."""
        notes = []
        for note in self._read_content(PieceKind.VERDICTS, from_s, to_s, codec.unpack_notes):
            verdicts = tuple(vetted_verdict(verdict) for verdict in note.verdicts)
            notes.append(msgspec.structs.replace(note, verdicts=verdicts))
        return notes

    def _read_runs(self) -> list[_Run]:
        """All runs, oldest first; of very many the newest `_MOST_RUNS`."""
        runs = []
        where = (
            "FROM pieces WHERE kind = ? AND run = ? AND first_s BETWEEN ? AND ?"
            " AND last_s BETWEEN first_s AND first_s + ? ORDER BY first_s"
        )
        for run in islice(self._run_numbers(), _MOST_RUNS):
            bounds = (PieceKind.FRAMES, run, _EARLIEST_S, _LATEST_S, LONGEST_BLOCK_S)
            first = self._query(f"SELECT first_s {where} LIMIT 1", bounds)
            last = self._query(f"SELECT last_s {where} DESC LIMIT 1", bounds)
            if first and last:
                runs.append(_Run(run, first[0][0], last[0][0]))
        return runs[::-1]

    def _run_numbers(self) -> Iterator[int]:
        """Numbers of all runs, the newest first; each is a look-up, however many rows there are."""
        run = _LARGEST_SQL_INTEGER
        while rows := self._query(
            "SELECT run FROM pieces WHERE kind = ? AND run < ? ORDER BY run DESC LIMIT 1", (PieceKind.FRAMES, run)
        ):
            (run,) = rows[0]
            if not isinstance(run, int):  # a damaged file
                return
            yield run

    def _visible_spans(self, runs: Iterable[_Run]) -> list[_RunSpan]:
        """Spans of time, oldest first, each with the newest run that has it; `runs` are given oldest first."""
        spans: list[_RunSpan] = []
        for run in runs:
            uncovered = []
            for span in spans:
                if span.since_s < run.first_s:
                    until_s = min(span.until_s, math.nextafter(run.first_s, -math.inf))
                    uncovered.append(span._replace(until_s=until_s))
                if span.until_s > run.last_s:
                    since_s = max(span.since_s, math.nextafter(run.last_s, math.inf))
                    uncovered.append(span._replace(since_s=since_s))
            spans = [*uncovered, _RunSpan(run.number, run.first_s, run.last_s)]
        return sorted(spans, key=lambda span: span.since_s)

    def _last_frame(self, wall_s: float, visible: Sequence[_RunSpan]) -> _FrameTime | None:
        """The last visible frame at or before a time; None where there is none."""
        for span in reversed(visible):
            latest_s = min(span.until_s, wall_s)
            if span.since_s > latest_s:
                continue
            for block in self._read_blocks(span._replace(until_s=latest_s), newest_first=True):
                place = bisect_right(block.times, latest_s) - 1
                if place >= 0 and block.times[place] >= span.since_s:
                    return _FrameTime(block.times[place], span.run)
        return None

    def _spans_up_to(self, from_s: float, to_s: float) -> Iterator[_RunSpan]:
        """Spans of the runs that led to the moment `to_s`, back to `from_s`, the latest first.

        A clock that was ahead for a while leaves frames in the future, and a later run before them in time. Where there
        is such a run, all runs are given as they are visible.
        """
        runs = self._read_runs()
        visible = self._visible_spans(runs)
        last = self._last_frame(to_s, visible)
        inside = [
            _RunSpan(span.run, max(span.since_s, from_s), min(span.until_s, to_s))
            for span in visible
            if span.since_s <= to_s and span.until_s >= from_s
        ]
        if last is None:  # no block of frames can be read; the rest may be
            yield from reversed(inside)
            return
        runs_after_last = {span.run for span in inside if span.run > last.run}
        if any(run.number in runs_after_last and self._fills_gap(run, last.run) for run in runs):
            yield from reversed(inside)
        else:
            yield from _spans_of_earlier_runs(runs, last.run, from_s, to_s)

    def _fills_gap(self, run: _Run, older: int) -> bool:
        """Whether a run lies where an older one has no frames, as its clock had leapt ahead."""
        for block in self._read_blocks(_RunSpan(older, run.first_s, run.last_s), newest_first=True):
            place = bisect_right(block.times, run.last_s) - 1
            if place >= 0:
                last_s = block.times[place]
                return last_s < run.first_s or run.last_s - last_s > LONGEST_BLOCK_S
        return True

    def _read_blocks(self, span: _RunSpan, *, newest_first: bool = False) -> Iterator[_Block]:
        """Blocks that may hold frames of a span, oldest first or newest first; read as they are asked for."""
        order = "DESC" if newest_first else "ASC"
        rows = self._row_ids(
            f"first_s BETWEEN ? AND ? AND last_s >= ? ORDER BY first_s {order}",
            (PieceKind.FRAMES, span.run, span.since_s - LONGEST_BLOCK_S, span.until_s, span.since_s),
        )
        for row in rows:
            block = self._read_block(row)
            if block is not None:
                yield block

    def _row_ids(self, where: str, values: tuple[object, ...]) -> Iterator[int]:
        """Ids of the rows of a kind and a run, one by one."""
        try:
            rows = self._connection.execute(f"SELECT id FROM pieces WHERE kind = ? AND run = ? AND {where}", values)
            with contextlib.closing(rows):
                for count, (row,) in enumerate(rows):
                    if count == MOST_ROWS:
                        raise self._damage_error(
                            f"has more than {MOST_ROWS:,} rows for one question, which no recording has"
                        )
                    yield row
        except sqlite3.Error as error:
            raise unreadable_error(self._path, error) from None

    def _read_data(self, row: int) -> object:
        """Bytes of a row, or whatever a damaged file has there; None if they are more than any block has."""
        sql = "SELECT data FROM pieces WHERE id = ? AND length(data) <= ?"
        for (data,) in self._query(sql, (row, codec.MOST_PACKED_BYTES)):
            return data
        return None

    def _read_block(self, row: int) -> _Block | None:
        """The frames of a row; None where it is damaged."""
        if row in self._cache:
            self._cache.move_to_end(row)
            return self._cache[row]
        times = []
        frames = []
        heads_bytes = 0
        engines_bytes: dict[int, int] = {}
        for wall_s, frame in self._decode_row(row, _frames_with_times):
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

    def _read_content(self, kind: PieceKind, from_s: float, to_s: float, decode: Callable[[bytes], list[T]]) -> list[T]:
        """Content of the rows of a kind that may reach into a span, oldest first."""
        # Events of one tick may be of very different times.
        longest_s = math.inf if kind is PieceKind.EVENTS else LONGEST_BLOCK_S
        with self._transaction():
            content: list[T] = []
            read_rows: set[int] = set()
            for span in self._spans_up_to(from_s, to_s):  # latest run first
                rows = self._row_ids(
                    "first_s BETWEEN ? AND ? AND last_s >= ? ORDER BY first_s",
                    (kind, span.run, span.since_s - longest_s, span.until_s, span.since_s),
                )
                unread = [row for row in rows if row not in read_rows]  # a row may reach into two spans of its run
                read_rows.update(unread)
                run_content = [piece for row in unread for piece in self._decode_row(row, decode)]
                content = run_content + content
            return content

    def _decode_row(self, row: int, decode: Callable[[bytes], list[T]]) -> list[T]:
        """Contents of a row; empty if it is damaged. Raises ConfigError where too many are."""
        if row in self._damaged_rows:
            return []
        try:
            data = self._read_data(row)
            if isinstance(data, bytes):
                return decode(data)
        except codec.TooLargeError:
            self._too_large += 1
        except ValueError:
            pass
        self._damaged_rows.add(row)
        if self._too_large > MOST_TOO_LARGE:
            raise self._damage_error(f"is damaged: more than {MOST_TOO_LARGE} rows unpack to what gpumon never writes")
        if len(self._damaged_rows) > MOST_DAMAGED:
            raise self._damage_error(f"is damaged: more than {MOST_DAMAGED:,} of its rows cannot be read")
        return []

    def _damage_error(self, why: str) -> ConfigError:
        """The error of a file that is too damaged to be read."""
        return ConfigError(f"{file_name(self._path)}: {why}; take another copy of it")

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """Show all queries within it the same state of the file, whatever a writer does meanwhile."""
        with self._lock:
            self._query("BEGIN")
            try:
                yield
            finally:
                with contextlib.suppress(sqlite3.Error):
                    self._connection.execute("COMMIT")

    def _query(self, sql: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        """Rows of a query. Raises ConfigError where SQLite finds the file damaged, or its disk fails."""
        try:
            return self._connection.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise unreadable_error(self._path, error) from None


def _spans_of_earlier_runs(runs: Sequence[_Run], newest: int, from_s: float, to_s: float) -> Iterator[_RunSpan]:
    """Spans of a run and of those before it, the newest first: each up to the beginning of the next one."""
    until_s = to_s
    for run in reversed(runs):
        if run.number <= newest and run.first_s <= until_s:
            yield _RunSpan(run.number, from_s, until_s)
            until_s = math.nextafter(run.first_s, -math.inf)
        if until_s < from_s:
            return


def _frames_with_times(data: bytes) -> list[tuple[float, codec.PackedFrame]]:
    """The frames of a block and their times, which only grow. Raises ValueError where it is damaged."""
    timed = []
    last_s = -math.inf
    for frame in codec.unpack_block(data):
        _, wall_s = codec.frame_time(frame)
        if not _EARLIEST_S <= wall_s <= _LATEST_S or wall_s <= last_s:
            raise ValueError("damaged: its times are in no order")
        last_s = wall_s
        timed.append((wall_s, frame))
    return timed


def _open(path: Path) -> sqlite3.Connection:
    """A connection that reads a recording; one that cannot even be locked (a read-only folder) is taken to be at rest.

    Raises sqlite3.Error, and ConfigError for a journal of another user.
    """
    try:
        return _connect(path, "ro")
    except sqlite3.OperationalError as error:
        if not any(words in str(error) for words in _UNWRITABLE):
            raise
    if _has_journal(path, "-journal"):  # what a killed writer had begun is taken back first: this writes
        check_journal(path)
        with contextlib.suppress(sqlite3.OperationalError):
            _connect(path, "rw").close()
    for ending in ("-wal", "-journal"):
        if _has_journal(path, ending):
            text = f"{path.name}{ending} belongs to it, and can be used only where files can be written"
            raise sqlite3.OperationalError(text)
    try:
        return _connect(path, "ro")
    except sqlite3.OperationalError:
        return _connect(path, "ro&immutable=1")


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    """A connection that answers. Raises sqlite3.Error."""
    connection = open_connection(path, mode)
    try:
        connection.execute("PRAGMA application_id").fetchall()  # SQLite opens and locks the file with the first query
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _has_journal(path: Path, ending: str) -> bool:
    """Whether the journal of this ending holds something."""
    journal = Path(f"{path}{ending}")
    return journal.exists() and journal.stat().st_size > 0

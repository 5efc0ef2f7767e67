"""A recording stays within its days and its size; old rows go a few at a time."""

from __future__ import annotations

import contextlib
import math
import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from gpumon.history.file import choose_journal, make_recording, open_connection
from gpumon.history.reader import Recording
from gpumon.history.recorder import Writer
from gpumon.readings.frame import Fault
from tests.history.frames import WALL_S
from tests.history.ticks import FACTS, tick
from tests.records import replace

MINUTE_S = 60.0
MB = 1e6


@contextlib.contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    if not path.exists():
        make_recording(path, FACTS)
    with contextlib.closing(open_connection(path, "rw")) as connection:
        choose_journal(connection, path)
        yield connection


def write(writer: Writer, numbers: range, path: Path, set_s: float = 0.0) -> float:
    """A tick a minute, each a block of its own; returns the largest size that the file had."""
    largest = 0
    for number in numbers:
        kept = tick(number, WALL_S + number * MINUTE_S + set_s)
        noise = Fault("noise", random.Random(number).randbytes(1500).hex(), 0.0)
        frame = replace(kept.frame, monotonic_s=5000.0 + number * MINUTE_S, faults=(noise,))
        writer.write([kept._replace(frame=frame)])
        largest = max(largest, path.stat().st_size)
    return largest


def first(path: Path) -> float:
    span = Recording(path).span()
    assert span is not None
    return span[0]


def test_old_frames_go_and_all_that_belongs_to_them(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    with opened(path) as connection:
        write(Writer(connection, keep_s=3600.0), range(600), path)
        (rows,) = connection.execute("SELECT COUNT(*) FROM pieces").fetchone()
    kept_s = WALL_S + 599 * MINUTE_S - first(path)
    assert 3600.0 <= kept_s <= 3600.0 + 10 * MINUTE_S
    assert rows < 2.2 * kept_s / MINUTE_S, "points and events too"


def test_a_size_is_kept_to_and_pages_are_used_again(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    with opened(path) as connection:
        largest = write(Writer(connection, keep_bytes=1.5 * MB), range(1200), path)
        (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    assert largest <= 1.5 * MB
    assert free < 300
    since_s = first(path)
    assert WALL_S < since_s < WALL_S + 1110 * MINUTE_S
    assert Recording(path).span() == (since_s, WALL_S + 1199 * MINUTE_S)


def test_a_limit_that_was_lowered_is_reached_step_by_step(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    with opened(path) as connection:
        write(Writer(connection), range(1000), path)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        assert path.stat().st_size > 2 * MB
        writer = Writer(connection, keep_bytes=1.5 * MB)
        write(writer, range(1000, 1040), path)
    assert path.stat().st_size <= 1.5 * MB
    assert Recording(path).span() == (first(path), WALL_S + 1039 * MINUTE_S)


def test_nothing_goes_for_its_age_while_the_clock_may_be_wrong(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    with opened(path) as connection:
        writer = Writer(connection, keep_s=3600.0)
        write(writer, range(30), path)
        write(writer, range(30, 39), path, set_s=1e8)
        assert first(path) == WALL_S
        write(writer, range(39, 60), path)  # set right again after nine minutes
        assert first(path) == WALL_S
        write(writer, range(60, 120), path)
    assert first(path) > WALL_S
    assert math.isclose(WALL_S + 119 * MINUTE_S - first(path), 3600.0, abs_tol=10 * MINUTE_S)

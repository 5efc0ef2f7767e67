"""Recordings that were damaged, made by others, or are just being written: what can be read is read."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import tracemalloc
import zlib
from pathlib import Path

import msgspec
import pytest

from gpumon.config.errors import ConfigError
from gpumon.history import codec
from gpumon.history.file import choose_journal, make_recording, open_connection
from gpumon.history.reader import Recording
from gpumon.history.recorder import Recorder, Writer
from tests.history.bombs import bomb
from tests.history.frames import WALL_S
from tests.history.ticks import FACTS, frame, tick

encode = msgspec.msgpack.encode
EVER = 4e9


def packed(*numbers: int) -> list[codec.PackedFrame]:
    packer = codec.Packer()
    return [packer.pack(frame(number)) for number in numbers]


def block(sizes: list[int], steps: bytes, lengths: list[int], rows: bytes) -> bytes:
    return zlib.compress(encode([sizes, [[steps, lengths, rows]]]))


def put(path: Path, *rows: tuple[object, ...]) -> Recording:
    """A recording with rows of frames: run, first, last, data."""
    make_recording(path, FACTS)
    with open_connection(path, "rw") as connection:
        connection.executemany("INSERT INTO pieces (kind, run, first_s, last_s, data) VALUES (1, ?, ?, ?, ?)", rows)
    connection.close()
    return Recording(path)


def damaged() -> dict[str, object]:
    """What stands in a row."""
    return {
        "text": "text",
        "a number": 5,
        "no frame": codec.pack_block([codec.PackedFrame(b"\xc0", ())]),
        "a row of 2 GB": block([1], b"\1", [2 * 10**9], b""),
        "a row of 1 TB": block([1], b"\1", [10**12], b""),
        "an empty row": block([1], b"\1", [0], b""),
        "too little": block([1], b"\1", [5], b"1234"),
        "too much": block([1], b"\1", [5], b"123456"),
        "many steps": block([1], b"\1" + bytes(10**6), [1], b"1"),
        "many lengths": block([1], b"\1", list(range(1, 60_000)), b""),
        "many frames": block([1] * 400, b"\1" * 300, [1], b"1"),
        "a frame of many parts": block([10**9], b"\1", [1], b"1"),
        "time that goes back": codec.pack_block(packed(5, 4)),
        "no time": codec.pack_block([codec.PackedFrame(encode([1, float("nan")]), ())]),
        "600 MB of nothing": bomb(600),
    }


def test_a_row_that_makes_no_sense_is_left_out_in_little_memory(tmp_path: Path) -> None:
    rows = [(1, WALL_S + at, WALL_S + at, codec.pack_block(packed(at))) for at in (0, 2)]
    for what, data in damaged().items():
        past = put(tmp_path / what, rows[0], (1, WALL_S + 1, WALL_S + 1, data), rows[1])
        tracemalloc.start()
        found = [each.seq for each in past.frames(0.0, EVER)]
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert (found, past.damaged) == ([0, 2], 1), what
        assert most < 40e6, f"{what}: what is unpacked is bounded before it is kept"
        assert past.after(WALL_S) == WALL_S + 2, what


def test_a_frame_of_a_newer_gpumon_costs_no_other(tmp_path: Path) -> None:
    """One with a state that this gpumon does not know."""
    given = packed(*range(60))
    odd = msgspec.msgpack.decode(given[30].engines[0])
    odd[2] = "a state to come"
    given[30] = codec.PackedFrame(given[30].head, (encode(odd),))
    past = put(tmp_path / "r.sqlite", (1, WALL_S, WALL_S + 59, codec.pack_block(given)))
    assert [each.seq for each in past.frames(WALL_S + 25, WALL_S + 35)] == [25, 26, 27, 28, 29, 31, 32, 33, 34, 35]
    assert past.damaged == 1


def test_runs_are_found_however_they_are_numbered(tmp_path: Path) -> None:
    data = [codec.pack_block(packed(at)) for at in range(3)]
    past = put(
        tmp_path / "r.sqlite",
        *((run, WALL_S + at, WALL_S + at, data[at]) for at, run in enumerate((1, 10**9, 2**62))),
        ("text", WALL_S + 3, WALL_S + 3, data[0]),
        (2, "text", "text", data[0]),
    )
    assert [each.seq for each in past.frames(0.0, EVER)] == [0, 1, 2]
    assert past.turns() == 2**62


ENDLESS = (
    "DROP TABLE {0}; CREATE VIEW {0} AS WITH RECURSIVE n(name, value) AS"
    " (SELECT 'a', 'b' UNION ALL SELECT name || '', value FROM n) SELECT name, value FROM n"
)


@pytest.mark.parametrize("table", ["facts", "pieces"])
def test_a_view_in_the_place_of_a_table_is_refused(tmp_path: Path, table: str) -> None:
    path = tmp_path / "r.sqlite"
    make_recording(path, FACTS)
    open_connection(path, "rw").executescript(ENDLESS.format(table))
    for opened in (Recording, lambda path: Recorder(path, FACTS)):
        with pytest.raises(ConfigError, match=f"has a view {table}, which no recording has"):
            opened(path)


def test_facts_are_texts_and_few(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    make_recording(path, FACTS)
    with open_connection(path, "rw") as connection:
        connection.execute("INSERT INTO facts VALUES ('odd', x'00ff')")
        connection.executemany("INSERT INTO facts VALUES (?, 'v')", ((f"z{at}",) for at in range(200)))
    facts = Recording(path).facts
    assert FACTS.items() <= facts.items()
    assert len(facts) <= 100
    assert "odd" not in facts


KILLED = """
import os, signal, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA journal_mode = TRUNCATE")
connection.execute("PRAGMA cache_size = 1")
connection.execute("BEGIN IMMEDIATE")
connection.execute("DELETE FROM pieces")
for _ in range(200):
    connection.execute("INSERT INTO pieces VALUES (NULL, 1, 1, 0, 0, zeroblob(9000))")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_writer_left_in_a_rollback_journal_is_taken_back(tmp_path: Path) -> None:
    """As on a network file system: its file holds half a transaction, and SQLite does not undo that read-only."""
    data = codec.pack_block(packed(*range(3)))
    for name in ("read", "written"):
        put(tmp_path / name, (1, WALL_S, WALL_S + 2, data)).close()
        done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / name)], check=False)
        assert done.returncode == -signal.SIGKILL
        assert (tmp_path / f"{name}-journal").stat().st_size > 0
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            open_connection(tmp_path / name, "ro").execute("SELECT COUNT(*) FROM pieces")
    assert [each.seq for each in Recording(tmp_path / "read").frames(0.0, EVER)] == [0, 1, 2]
    recorder = Recorder(tmp_path / "written", FACTS)
    recorder.keep(tick(3))
    recorder.close()
    assert [each.seq for each in Recording(tmp_path / "written").frames(0.0, EVER)] == [0, 1, 2, 3]


def test_a_call_sees_one_state_of_the_file(tmp_path: Path) -> None:
    """A minute is joined between two queries of one call."""
    path = tmp_path / "r.sqlite"
    make_recording(path, FACTS)
    connection = open_connection(path, "rw")
    choose_journal(connection, path)
    writer = Writer(connection)
    writer.write([tick(number) for number in range(30)])
    past = Recording(path)
    joined: list[str] = []

    def between(statement: str) -> None:
        if statement.startswith("SELECT data") and not joined:
            joined.append(statement)
            writer.finish()

    past._connection.set_trace_callback(between)
    assert [each.seq for each in past.frames(0.0, EVER)] == [*range(30)]
    assert joined
    assert connection.execute("SELECT COUNT(*) FROM pieces WHERE kind = 1").fetchone() == (1,)
    assert [each.seq for each in past.frames(0.0, EVER)] == [*range(30)]

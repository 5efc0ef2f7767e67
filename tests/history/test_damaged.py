"""Damaged recordings through the commands: what can be read is reported, the rest is counted, and nothing runs away."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
import time
import tracemalloc
import zlib
from pathlib import Path

import msgspec
import pytest

from gpumon.cli import main
from gpumon.config.errors import ConfigError
from gpumon.demo.scenarios import DEMO
from gpumon.history import codec
from gpumon.history.file import make_recording, open_connection
from gpumon.history.reader import MOST_ROWS, MOST_TOO_LARGE, Recording
from gpumon.history.recorder import Recorder
from gpumon.history.summary import summary_of
from gpumon.readings.prices import FREE
from gpumon.sources.packaged import gpu_catalogue
from tests.history.bombs import bomb
from tests.history.frames import WALL_S, served
from tests.history.pasts import lived
from tests.history.ticks import FACTS, frame, tick

ODD = (1e300, -1e300, float("inf"), "text", b"blob", 0, -5, 2**62, WALL_S + 1e7, WALL_S - 1e6)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A minute with points, events and eight GPUs, a frame every other second."""
    path: Path = tmp_path_factory.mktemp("damaged") / "whole.gpumon"
    recorder = Recorder(path, FACTS)
    lived(served(60, cast=DEMO.cast[:2], every=2), recorder)
    recorder.close()
    return path


def damage(path: Path, chance: random.Random) -> None:
    """Change some bytes of what rows hold once it is unpacked, or where rows stand, or take rows away."""
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT id, data FROM pieces").fetchall()
    for _ in range(chance.choice((1, 2, 5))):
        row, data = chance.choice(rows)
        how = chance.randrange(6)
        if how < 4:
            packed = data[:1] == b"\x78"
            raw = bytearray(zlib.decompress(data) if packed else data)
            for _ in range(chance.choice((1, 3, 10, 50))):
                raw[chance.randrange(len(raw))] = chance.randrange(256)
            changed = zlib.compress(bytes(raw)) if packed else bytes(raw)
            connection.execute("UPDATE pieces SET data = ? WHERE id = ?", (changed, row))
        elif how == 4:
            column = chance.choice(("first_s", "last_s", "kind", "run"))
            connection.execute(f"UPDATE pieces SET {column} = ? WHERE id = ?", (chance.choice(ODD), row))
        else:
            connection.execute("DELETE FROM pieces WHERE id = ?", (row,))
    connection.commit()
    connection.close()


@pytest.mark.parametrize("seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.wide) for seed in range(3, 20))])
def test_no_damage_ends_a_report_or_an_export(
    whole: Path, seed: int, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    path = tmp_path / "damaged.gpumon"
    shutil.copy(whole, path)
    damage(path, random.Random(seed))
    for arguments in (["report", "--json"], ["export"], ["export", "--jsonl"]):
        code = main([arguments[0], str(path), *arguments[1:]])
        out, err = capsysbinary.readouterr()
        nothing_left = code == 2 and b"nothing was recorded" in err
        assert code == 0 or nothing_left, err
        assert b"please report" not in out + err


def put(path: Path, *rows: tuple[object, ...]) -> Path:
    """A recording with rows of frames: run, first, last, data."""
    make_recording(path, FACTS)
    with open_connection(path, "rw") as connection:
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO pieces (kind, run, first_s, last_s, data) VALUES (1, ?, ?, ?, ?)", rows)
        connection.execute("COMMIT")
    connection.close()
    return path


def row(at: float, number: int = 0) -> tuple[object, ...]:
    moved = msgspec.structs.replace(frame(number), wall_s=at, monotonic_s=at - WALL_S + 5000.0)
    return (1, at, at, codec.pack_block([codec.Packer().pack(moved)]))


def test_a_report_goes_by_frames_and_not_by_the_clock(tmp_path: Path) -> None:
    """A clock that was set leaves forty years between two frames: hours of nothing are not asked for one by one."""
    years_s = 40 * 365 * 86400.0
    past = Recording(put(tmp_path / "r", *(row(WALL_S + at + years_s * (at > 8), at) for at in range(18))))
    statements: list[str] = []
    past._connection.set_trace_callback(statements.append)
    period = summary_of(past, gpu_catalogue(), FREE, *(past.span() or (0.0, 0.0)))
    assert period.seconds == pytest.approx(years_s + 17)
    assert len(statements) < 2000


def test_a_time_that_cannot_be_is_no_end_of_the_recording(tmp_path: Path) -> None:
    wrong = (1, 1e300, 1e300, row(WALL_S)[3])
    past = Recording(put(tmp_path / "r", row(WALL_S), row(WALL_S + 1.0, 1), wrong))
    assert past.span() == (WALL_S, WALL_S + 1.0)
    assert main(["report", str(tmp_path / "r"), "--json"]) == 0


def test_blocks_that_are_damaged_in_a_row_cost_their_minutes_and_are_counted(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    broken = ((1, WALL_S + 60.0 * at, WALL_S + 60.0 * at, b"broken") for at in range(1, 9))
    path = put(tmp_path / "r", row(WALL_S), *broken, row(WALL_S + 540.0, 9))
    past = Recording(path)
    assert past.after(WALL_S) == WALL_S + 540.0
    assert past.before(WALL_S + 540.0) == WALL_S
    assert past.damaged == 8
    assert main(["export", str(path), "--jsonl"]) == 0
    out, err = capsysbinary.readouterr()
    assert len([json.loads(line) for line in out.splitlines()]) == 2
    assert b"8 parts are damaged" in err


def report_on(path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> tuple[int, bytes, float]:
    """Exit code, stderr, and processor seconds of a report."""
    begin_s = time.process_time()
    code = main(["report", str(path), "--json"])
    return code, capsysbinary.readouterr().err, time.process_time() - begin_s


def test_a_row_that_unpacks_to_gigabytes_is_unpacked_once_and_counted(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    minutes = [row(WALL_S + 60.0 * at, at) for at in range(60)]
    path = put(tmp_path / "r", *minutes, (1, WALL_S + 1.0, WALL_S + 61.0, bomb(600)))
    code, err, spent_s = report_on(path, capsysbinary)
    assert (code, b"1 part is damaged" in err) == (0, True)
    assert spent_s < 10.0


@pytest.mark.parametrize(
    ("what", "count", "text"),
    [
        ("junk", 20_000, b"more than 1,000 of its rows cannot be read; take another copy of it"),
        ("bombs", MOST_TOO_LARGE + 2, b"more than 20 rows unpack to what gpumon never writes; take another copy of it"),
    ],
)
def test_a_file_of_damaged_rows_is_refused_before_all_are_read(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes], what: str, count: int, text: bytes
) -> None:
    rows = [b"junk" if what == "junk" else bomb(140)] * count
    junk = ((1, WALL_S + 60.0 + 1e-4 * at, WALL_S + 60.0 + 1e-4 * at, data) for at, data in enumerate(rows))
    path = put(tmp_path / "r", row(WALL_S), *junk, row(WALL_S + 120.0, 9))
    code, err, spent_s = report_on(path, capsysbinary)
    assert code == 2
    assert text in err
    assert err.count(b"\n") == 1
    assert spent_s < 20.0


def test_more_rows_than_a_recording_has_are_refused(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """Each is well, and says nothing."""
    path = put(tmp_path / "r", row(WALL_S), row(WALL_S + 60.0, 9))
    nothing = codec.pack_events([])
    with open_connection(path, "rw") as connection:
        connection.execute(
            "WITH RECURSIVE rows(number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM rows WHERE number <= ?)"
            " INSERT INTO pieces (kind, run, first_s, last_s, data) SELECT 4, 1, ?, ?, ? FROM rows",
            (MOST_ROWS, WALL_S + 1.0, WALL_S + 1.0, nothing),
        )
    connection.close()
    code, err, _ = report_on(path, capsysbinary)
    assert (code, b"more than 300,000 rows" in err) == (2, True)


def test_a_blob_that_is_larger_than_any_minute_is_not_read(tmp_path: Path) -> None:
    path = put(tmp_path / "r", row(WALL_S), row(WALL_S + 2.0, 2))
    with open_connection(path, "rw") as connection:
        connection.execute("INSERT INTO pieces VALUES (NULL, 1, 1, ?, ?, zeroblob(80000000))", (WALL_S + 1.0,) * 2)
    connection.close()
    past = Recording(path)
    tracemalloc.start()
    found = past.frames(WALL_S, WALL_S + 2.0)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert ([one.seq for one in found], past.damaged) == ([0, 2], 1)
    assert most < 4e6


ADDED = {
    "a trigger": "CREATE TRIGGER t AFTER INSERT ON pieces BEGIN DELETE FROM pieces WHERE id = new.id; END",
    "a view": "CREATE VIEW v AS SELECT 1",
    "a generated column": "DROP TABLE pieces; CREATE TABLE pieces (id INTEGER PRIMARY KEY, kind, run, first_s, last_s,"
    " data AS (zeroblob(1000000000)))",
    "a virtual table": "DROP TABLE pieces; CREATE VIRTUAL TABLE pieces USING fts5(kind, run, first_s, last_s, data)",
}


@pytest.mark.parametrize("what", ADDED)
def test_a_file_with_more_than_a_recording_is_refused(
    what: str, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    path = tmp_path / "r.gpumon"
    make_recording(path, FACTS)
    connection = open_connection(path, "rw")
    connection.executescript(ADDED[what])
    connection.close()
    with pytest.raises(ConfigError):
        Recording(path)
    with pytest.raises(ConfigError):
        Recorder(path, FACTS)
    assert main(["record", str(path), "--demo"]) == 2
    assert str(path).encode() in capsysbinary.readouterr().err


def test_a_writer_goes_on_behind_rows_that_make_no_sense(tmp_path: Path) -> None:
    path = put(tmp_path / "r", row(WALL_S), ("x", 1e300, 1e300, b"z"), (2**63 - 1, WALL_S, "text", 5))
    recorder = Recorder(path, FACTS)
    recorder.keep(tick(5))
    recorder.close()
    assert recorder.fault() is None
    assert [one.seq for one in Recording(path).frames(WALL_S, WALL_S + 9.0)] == [0, 5]

"""The recording file: what goes in comes out, one writer at a time, and disks that fail."""

from __future__ import annotations

import os
import resource
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpumon.config.errors import ConfigError
from gpumon.history.file import (
    RECORDING_SCHEMA,
    TOO_LARGE,
    choose_journal,
    is_remote_path,
    make_recording,
    open_connection,
)
from gpumon.history.reader import Recording
from gpumon.history.recorder import Recorder, write_recording
from tests.history.frames import WALL_S
from tests.history.ticks import FACTS, frame, tick
from tests.records import replace

EVER = 4e9


def until(condition: Callable[[], object], most_s: float = 60.0) -> None:
    end_s = time.monotonic() + most_s
    while not condition():
        assert time.monotonic() < end_s, "it did not come to that"
        time.sleep(0.01)


@contextmanager
def recording(path: Path, **bounds: float) -> Iterator[Recorder]:
    recorder = Recorder(path, FACTS, **bounds)
    try:
        yield recorder
    finally:
        recorder.close()


def keep(recorder: Recorder, numbers: range) -> None:
    """Hand ticks over as fast as they are written."""
    for number in numbers:
        recorder.keep(tick(number))
        until(lambda: recorder._waiting.qsize() < 32 or recorder.fault())
    until(lambda: recorder._waiting.empty())


def numbers(path: Path) -> list[int]:
    return [each.seq for each in Recording(path).frames(0.0, EVER)]


def test_frames_points_and_events_come_back(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    with recording(path) as recorder:
        for number in range(130):
            recorder.keep(tick(number))
            until(lambda: recorder._waiting.qsize() < 32)
    past = Recording(path)
    assert list(past.frames(0.0, EVER)) == [frame(number) for number in range(130)]
    assert past.span() == (WALL_S, WALL_S + 129)
    assert [event.code for event in past.events(0.0, EVER)] == ["number 0", "number 50", "number 100"]
    points = past.points(WALL_S + 5.0, WALL_S + 9.0)
    assert [(point.wall_s, point.seconds, point.values["decode"]) for point in points] == [(WALL_S + 9, 5.0, 7.0)]
    assert (past.facts["host"], past.damaged) == ("box", 0)


def test_a_minute_becomes_one_row_and_its_pages_are_used_again(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    with recording(path) as recorder:
        keep(recorder, range(600))
    rows = open_connection(path, "ro").execute("SELECT COUNT(*) FROM pieces WHERE kind = 1").fetchone()[0]
    assert rows == len({(WALL_S + number) // 60 for number in range(600)})
    assert list(tmp_path.iterdir()) == [path], "neither a journal nor a lock is left"


def test_moments_are_found_from_any_time(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    with recording(path) as recorder:
        keep(recorder, range(130))
    past = Recording(path)
    for number in (0, 1, 59, 60, 61, 119, 129):
        assert past.before(WALL_S + number) == (WALL_S + number - 1 if number else None)
        assert past.after(WALL_S + number) == (WALL_S + number + 1 if number < 129 else None)
        assert past.before(WALL_S + number + 0.5) == WALL_S + number
        assert [each.seq for each in past.frames(WALL_S + number, WALL_S + number)] == [number]
    assert (past.before(EVER), past.after(0.0)) == (WALL_S + 129, WALL_S)
    assert [each.seq for each in past.frames(WALL_S + 58, WALL_S + 62.5)] == [58, 59, 60, 61, 62]


def test_a_second_start_goes_on_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    with recording(path) as first:
        keep(first, range(70))
        assert first.is_new
    with recording(path) as second:
        keep(second, range(100, 170))
        assert not second.is_new
    assert numbers(path) == [*range(70), *range(100, 170)]


def test_it_is_read_while_another_process_writes(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    writer = subprocess.Popen([sys.executable, "-m", "tests.history.kill", "--write", str(path)])
    try:
        until(lambda: path.exists() and Recording(path).span())
        past = Recording(path)
        seen: list[int] = []

        def is_a_minute_joined() -> bool:
            found = past.frames(0.0, EVER)
            assert [frame.seq for frame in found] == list(range(len(found)))
            span = past.span()
            assert span is not None
            assert past.before(span[1]) is not None or len(found) == 1
            seen.append(len(found))
            return len(seen) >= 10 and seen[-1] > seen[0] + 60

        until(is_a_minute_joined)
        assert past.damaged == 0
    finally:
        writer.kill()
        writer.wait()


def test_a_second_writer_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    writer = subprocess.Popen([sys.executable, "-m", "tests.history.kill", "--write", str(path)])
    (tmp_path / "other").symlink_to(path)
    try:
        until(lambda: path.exists() and Recording(path).span())
        for name in ("r.sqlite", "other"):
            with pytest.raises(ConfigError, match=f"process {writer.pid} records into it: end that one"):
                Recorder(tmp_path / name, FACTS)
    finally:
        writer.kill()
        writer.wait()
    with recording(path) as recorder:  # the lock of a process that was killed is gone
        recorder.keep(tick(10**6))
    assert numbers(path)[-1] == 10**6


def not_sqlite(path: Path) -> None:
    path.write_text("[general]\ninterval_s = 1\n")


def another_program(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE notes (text)")


def newer(path: Path) -> None:
    make_recording(path, FACTS)
    open_connection(path, "rw").execute(f"PRAGMA user_version = {RECORDING_SCHEMA + 1}")


def cut_off(path: Path) -> None:
    with recording(path) as recorder:
        keep(recorder, range(30))
    os.truncate(path, path.stat().st_size - 5000)


def head_only(path: Path) -> None:
    make_recording(path, FACTS)
    os.truncate(path, 60)


BAD = {
    "not SQLite": (not_sqlite, "is no recording of gpumon"),
    "another program's": (another_program, "is a database of another program"),
    "newer": (
        newer,
        f"was written by a newer gpumon (schema {RECORDING_SCHEMA + 1}; this one reads {RECORDING_SCHEMA}): "
        "update gpumon",
    ),
    "cut off": (cut_off, "is damaged or cut off; take another copy of it"),
    "head": (head_only, "is no recording of gpumon"),
    "empty": (Path.touch, "is empty"),
    "folder": (Path.mkdir, "is a folder: name a file in it"),
    "pipe": (os.mkfifo, "is no file"),
}


@pytest.mark.parametrize("what", BAD)
def test_what_is_no_recording_is_refused_in_one_line_and_left_alone(tmp_path: Path, what: str) -> None:
    path = tmp_path / "r.sqlite"
    make_it, message = BAD[what]
    make_it(path)
    before = path.read_bytes() if path.is_file() else b""
    for opened in (lambda: Recording(path), lambda: Recorder(path, FACTS)):
        with pytest.raises(ConfigError) as refused:
            opened()
        assert str(refused.value).startswith(f"{path}: ")
        assert message in str(refused.value)
        assert "\n" not in str(refused.value)
    assert (path.read_bytes() if path.is_file() else b"") == before


def test_a_file_that_is_not_there_can_only_be_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such file"):
        Recording(tmp_path / "none.sqlite")
    with pytest.raises(ConfigError, match="there is no such folder"):
        Recorder(tmp_path / "no" / "r.sqlite", FACTS)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changed", "message"), [({"host": "other"}, "host box"), ({"simulated": "yes"}, "simulated and real ones")]
)
def test_recordings_of_two_things_do_not_mix(tmp_path: Path, changed: dict[str, str], message: str) -> None:
    path = tmp_path / "r.sqlite"
    make_recording(path, FACTS)
    with pytest.raises(ConfigError, match=message):
        Recorder(path, FACTS | changed)


def test_only_its_user_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    with recording(path) as recorder:
        keep(recorder, range(3))
        assert {each.stat().st_mode & 0o77 for each in tmp_path.iterdir()} == {0}


def test_a_clock_set_back_begins_another_run(tmp_path: Path) -> None:
    """100 s, back by 60 s, 30 s more: what was before stays, and the newest counts where two are of one time."""
    path = tmp_path / "r.sqlite"
    with recording(path) as recorder:
        keep(recorder, range(100))
        for number in range(100, 130):
            recorder.keep(tick(number, WALL_S + number - 60))
    past = Recording(path)
    assert past.span() == (WALL_S, WALL_S + 99)
    at_50 = past.frames(WALL_S + 50, WALL_S + 50)
    assert [each.seq for each in at_50] == [110]
    assert [each.seq for each in past.frames(0.0, WALL_S + 69)] == [*range(40), *range(100, 130)]
    assert [each.seq for each in past.frames(0.0, WALL_S + 80)] == [*range(81)], "as it was before the clock went back"
    assert (past.before(WALL_S + 40), past.after(WALL_S + 39)) == (WALL_S + 39, WALL_S + 40)
    assert (past.before(WALL_S + 70), past.after(WALL_S + 69)) == (WALL_S + 69, WALL_S + 70)
    steps, at_s = 0, past.after(0.0)
    while at_s is not None:
        steps, at_s = steps + 1, past.after(at_s)
    assert steps == 100


def test_a_clock_that_leaps_ahead_leaves_a_gap(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    with recording(path, keep_s=3600.0) as recorder:
        keep(recorder, range(100))
        for number in range(100, 130):
            recorder.keep(tick(number, WALL_S + 1e8 + number))
    past = Recording(path)
    assert [each.seq for each in past.frames(0.0, EVER)] == [*range(130)], "a wrong clock makes nothing old at once"
    assert past.after(WALL_S + 99) == WALL_S + 1e8 + 100


@pytest.mark.parametrize("ahead_s", [300.0, 1e8])
def test_what_is_recorded_after_a_clock_was_ahead_is_there_at_once(tmp_path: Path, ahead_s: float) -> None:
    """60 s, then a clock that is wrong for 20 s, then the right one again: real time has not passed the false one."""
    path = tmp_path / "r.sqlite"
    with recording(path, keep_s=3600.0) as recorder:
        keep(recorder, range(60))
        for number in range(60, 80):
            recorder.keep(tick(number, WALL_S + ahead_s + number))
        keep(recorder, range(80, 200))
    past = Recording(path)
    assert past.span() == (WALL_S, WALL_S + ahead_s + 79)
    right = [*range(60), *range(80, 200)]
    assert [each.seq for each in past.frames(0.0, EVER)] == [*right, *range(60, 80)]
    assert [each.seq for each in past.frames(0.0, WALL_S + 199)] == right
    assert [each.seq for each in past.frames(0.0, WALL_S + 250)] == right
    assert [each.seq for each in past.frames(WALL_S + 190, WALL_S + 260)] == [*range(190, 200)]
    assert [each.seq for each in past.frames(WALL_S + ahead_s + 70, EVER)] == [*range(70, 80)]
    assert {event.code for event in past.events(0.0, EVER)} == {f"number {number}" for number in (0, 50, 100, 150)}


FULL = """
import resource, sys, time
from pathlib import Path
from gpumon.history.reader import Recording
from tests.history.test_recorder import FACTS, Recorder, keep, numbers, tick, until
path = Path(sys.argv[1])
recorder = Recorder(path, FACTS)
keep(recorder, range(100))
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
number = 100
while recorder.fault() is None and number < 5000:
    recorder.keep(tick(number)); number += 1
    until(lambda: recorder._waiting.empty())
until(lambda: recorder.fault() is not None)
print(number, recorder.fault().text)
there = numbers(path)
print(there == list(range(len(there))), len(there) >= recorder.written - 1)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
while recorder.fault() is not None:
    recorder.keep(tick(number)); number += 1
    time.sleep(0.05)
recorder.close()
print(numbers(path)[-1] >= number - 2, recorder.dropped > 0, recorder.fault())
"""


def test_a_file_that_can_not_grow_stops_the_recording_until_it_can(tmp_path: Path) -> None:
    """The limit on file sizes makes the kernel refuse writes on the same path as a full disk does."""
    path = tmp_path / "r.sqlite"
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    stopped, read, gone_on = done.stdout.splitlines()
    number, text = stopped.split(" ", 1)
    assert int(number) < 5000
    assert text.startswith(f"recording stopped: {path}: this process may write no larger file: raise `ulimit -f`; ")
    assert "what was written stays readable, gpumon tries again" in text
    assert read == "True True"
    assert gone_on == "True True None"


def mounted(folder: Path) -> bool:
    """Whether a disk of 1 MB could be mounted there."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)]
    return subprocess.run(mount, capture_output=True, check=False).returncode == 0


def test_a_full_disk_is_named_and_what_is_there_stays_readable(tmp_path: Path) -> None:
    folder = tmp_path / "small"
    if not mounted(folder):
        pytest.skip("mounting a small disk takes root")
    path = folder / "r.sqlite"
    try:
        with recording(path) as recorder:
            keep(recorder, range(20))
            until(lambda: recorder.written == 20)
            filler = folder / "filler"
            with pytest.raises(OSError, match="No space"):
                filler.write_bytes(bytes(2 << 20))
            number = 20
            while recorder.fault() is None and number < 1000:
                keep(recorder, range(number, number + 1))
                number += 1
            fault = recorder.fault()
            assert fault is not None
            assert fault.text.startswith(f"recording stopped: {path}: the disk is full; what was written stays")
            assert set(range(20)) <= set(numbers(path))
            filler.unlink()
            until(lambda: recorder.keep(tick(number)) or recorder.fault() is None)
        assert numbers(path)[-1] == number
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_where_nothing_can_be_written_a_recording_can_be_read(tmp_path: Path) -> None:
    folder = tmp_path / "small"
    if not mounted(folder):
        pytest.skip("mounting a small disk takes root")
    path, killed = folder / "r.sqlite", folder / "killed.sqlite"
    try:
        with recording(path) as recorder:
            keep(recorder, range(20))
        writer = subprocess.Popen([sys.executable, "-m", "tests.history.kill", "--write", str(killed)])
        until(lambda: killed.exists() and len(numbers(killed)) > 20)
        writer.kill()
        writer.wait()
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        assert numbers(path) == [*range(20)]
        assert numbers(killed)[:20] == [*range(20)]
        subprocess.run(["mount", "-o", "remount,rw", str(folder)], check=True)
        Path(f"{killed}-shm").unlink()
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        with pytest.raises(ConfigError, match=r"killed\.sqlite-wal belongs to it, and can be used only where"):
            Recording(killed)
        with pytest.raises(ConfigError, match=r"r\.sqlite: cannot be written: Read-only file system"):
            Recorder(path, FACTS)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


COPY = """
import resource, sys
from pathlib import Path
from gpumon.history.memory import MemoryStore
from gpumon.history.recorder import write_recording
from tests.history.ticks import FACTS, tick
ring = MemoryStore(1800.0, 24e6)
for number in range(100):
    ring.keep(tick(number))
for most in (4096, 30000):
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
    try:
        write_recording(Path(sys.argv[1]), ring, FACTS)
    except OSError as failure:
        print(failure.strerror)
"""


def test_a_copy_that_does_not_fit_is_an_error_of_the_disk_and_leaves_nothing(tmp_path: Path) -> None:
    """Neither where the first page does not fit, nor where a later one does not; and never what was there before."""
    path = tmp_path / "copy"
    for before in (None, "precious"):
        if before is not None:
            path.write_text(before)
        done = subprocess.run(
            [sys.executable, "-c", COPY, str(path)], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines() == [TOO_LARGE, TOO_LARGE if before is None else "File exists"]
        assert [each.read_text() for each in tmp_path.iterdir()] == ([] if before is None else [before])


def test_a_file_that_was_taken_away_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    with recording(path) as recorder:
        keep(recorder, range(10))
        path.rename(tmp_path / "old.sqlite")
        keep(recorder, range(10, 20))
    assert numbers(path) == [*range(10, 20)]
    assert numbers(tmp_path / "old.sqlite") == [*range(10)]


def test_a_frame_that_can_not_be_kept_costs_itself_only(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    with recording(path) as recorder:
        keep(recorder, range(10))
        recorder.keep(tick(10)._replace(frame=replace(frame(10), seq=object())))
        until(lambda: recorder.fault() is not None)
        assert "please report: TypeError" in recorder.fault().text
        number = 11
        until(lambda: recorder.keep(tick(number)) or recorder.fault() is None)
    assert numbers(path)[:10] == [*range(10)]
    assert numbers(path)[-1] == 11


def test_a_slow_disk_costs_frames_and_no_time(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    with recording(path) as recorder:
        keep(recorder, range(5))
        other = open_connection(path, "rw")
        other.execute("BEGIN IMMEDIATE")  # a lock that another program holds
        for number in range(5, 200):
            recorder.keep(tick(number))
        assert recorder.dropped > 100
        assert "the disk does not keep up" in recorder.fault().text
        other.execute("ROLLBACK")
        until(lambda: recorder._waiting.empty())
        keep(recorder, range(200, 210))
        assert recorder.fault() is None
    assert {*range(5), *range(200, 210)} <= set(numbers(path))


def test_all_of_a_past_is_written_into_a_new_file(tmp_path: Path) -> None:
    with recording(tmp_path / "r.sqlite") as recorder:
        keep(recorder, range(130))
        for number in range(130, 140):
            recorder.keep(tick(number, WALL_S + 7200 + number))
    past = Recording(tmp_path / "r.sqlite")
    write_recording(tmp_path / "copy.sqlite", past, FACTS)
    copy = Recording(tmp_path / "copy.sqlite")
    for told in ("frames", "points", "events"):
        assert getattr(copy, told)(0.0, EVER) == getattr(past, told)(0.0, EVER)
    with pytest.raises(FileExistsError):
        write_recording(tmp_path / "copy.sqlite", past, FACTS)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["copy.sqlite", "r.sqlite"]


def test_a_disk_without_room_leaves_no_half_a_copy(tmp_path: Path) -> None:
    with recording(tmp_path / "r.sqlite") as recorder:
        keep(recorder, range(300))
    past = Recording(tmp_path / "r.sqlite")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, limits[1]))
    try:
        with pytest.raises(OSError, match=TOO_LARGE):
            write_recording(tmp_path / "copy.sqlite", past, FACTS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [each.name for each in tmp_path.iterdir()] == ["r.sqlite"]


MOUNTS = """\
/dev/sda1 / ext4 rw 0 0
nas:/home /home nfs4 rw 0 0
/dev/sdb1 /home/local\\040disk ext4 rw 0 0
host:/x /mnt/ssh fuse.sshfs rw 0 0
"""


@pytest.mark.parametrize(
    ("folder", "is_remote"),
    [("/var", False), ("/home/me", True), ("/home/local disk/me", False), ("/mnt/ssh", True), ("/mnt/sshd", False)],
)
def test_network_file_systems_are_known(tmp_path: Path, folder: str, is_remote: bool) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS)
    assert is_remote_path(Path(folder, "r.sqlite"), mounts) is is_remote


def test_the_journal_of_a_local_file_is_wal(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    make_recording(path, FACTS)
    connection = open_connection(path, "rw")
    choose_journal(connection, path)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_limit_on_the_size_of_files_is_told_as_one(tmp_path: Path) -> None:
    """Another file would not be larger."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, before[1]))
    try:
        with pytest.raises(ConfigError, match=r"may write no larger file: raise `ulimit -f`$"):
            Recorder(tmp_path / "r.sqlite", FACTS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not (tmp_path / "r.sqlite").exists()

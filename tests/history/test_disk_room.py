"""A small disk that fills up, as the recording on it sees it."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpumon.history.disk_room import DiskRoom
from gpumon.history.recorder import Recorder
from tests.history.test_recorder import recording, until
from tests.history.ticks import tick
from tests.records import replace

MB = 1 << 20
EVERY_S = 20.0


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A disk of 64 MB, mounted."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "none", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small disk takes root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path, megabytes: int) -> None:
    """Have another program's file of so many MB on the disk."""
    with (folder / "filler").open("ab") as filler:
        filler.truncate(megabytes * MB)
        os.posix_fallocate(filler.fileno(), 0, megabytes * MB)


def test_a_disk_that_fills_up_is_told_with_the_time_and_no_longer_once_it_does_not(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small") as folder:
        room = DiskRoom(folder / "r.sqlite")
        told: list[float] = []
        for step in range(60):
            fill(folder, step + 1)
            room.look(step * EVERY_S)
            text = room.forecast(step * EVERY_S)
            words = re.fullmatch(r"its disk is full in about (\S+) (min|h)? ?at this rate \(.* to .*\)", text)
            if words is not None and words[2] == "min":
                left_s = 60.0 * float(words[1])
                told.append(left_s / (EVERY_S * (64 - step - 1)))
        assert len(told) > 20
        assert all(0.9 <= share <= 1.1 for share in told)
        for step in range(60, 120):
            room.look(step * EVERY_S)
        assert room.forecast(119 * EVERY_S) == ""


def test_a_disk_whose_room_comes_and_goes_is_not_forecast(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small") as folder:
        room = DiskRoom(folder / "r.sqlite")
        for step in range(120):
            fill(folder, 20 + step % 7)
            room.look(step * EVERY_S)
            assert room.forecast(step * EVERY_S) == ""


def test_the_recording_says_that_its_disk_fills_up(tmp_path: Path) -> None:
    def later(recorder: Recorder, number: int) -> None:
        kept = tick(number)
        recorder.keep(kept._replace(frame=replace(kept.frame, monotonic_s=number * EVERY_S)))
        until(lambda: recorder.written == number + 1)

    with small_disk(tmp_path / "small") as folder:
        path = folder / "r.sqlite"
        with recording(path) as recorder:
            for number in range(40):
                fill(folder, number + 1)
                later(recorder, number)
            until(lambda: recorder.fault() is not None)
            fault = recorder.fault()
            assert fault is not None
            assert fault.text.startswith(f"{path}: its disk is full in about ")
            assert "--keep-gb" in fault.text
            (folder / "filler").unlink()
            for number in range(40, 60):
                later(recorder, number)
            until(lambda: recorder.fault() is None)

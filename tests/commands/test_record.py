"""`gpumon record` as others use it: real processes, a fake driver, a replayed engine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.history.reader import Recording
from tests.fakes.engine import FakeEngine
from tests.fakes.nvml.driver import FakeDriver
from tests.program import Started, started, user_environment

GPUMON = [sys.executable, "-m", "gpumon", "record"]


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """No config of the user, no setting of the caller, no NVIDIA driver of the machine."""
    return user_environment(tmp_path, PYTHONUNBUFFERED="1")


@pytest.fixture
def engine() -> Iterator[FakeEngine]:
    made = FakeEngine("vllm-staircase", speed=4.0, start_s=60.0).start()
    yield made
    made.close()


def begun(env: dict[str, str], *arguments: str) -> Started:
    return started([*GPUMON, *arguments], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def frames(path: Path) -> int:
    return len(Recording(path).frames(0.0, 4e9)) if path.exists() else 0


def ended(process: Started, path: Path, count: int, number: int = signal.SIGINT) -> list[str]:
    """The lines of a recorder that is stopped when it has written so many frames."""
    end_s = time.monotonic() + 60.0
    while frames(path) < count:
        assert process.poll() is None, process.communicate()
        if time.monotonic() >= end_s:
            process.send_signal(signal.SIGINT)
            raise AssertionError(process.communicate())
        time.sleep(0.1)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    return out.splitlines()


def test_gpus_and_engines_are_recorded_until_a_signal(
    tmp_path: Path, env: dict[str, str], fake_driver: FakeDriver, engine: FakeEngine
) -> None:
    fake_driver.write(fake_driver.busy_h100s(2))
    path = tmp_path / "box.sqlite"
    options = (str(path), "--endpoint", engine.url, "--interval", "0.25", "--keep-days", "1", "--keep-gb=0.5")
    first = ended(begun(fake_driver.env(**env), *options), path, 12)
    assert first[0] == f"recording this host into {path}: the last 1 day, at most 0.5 GB; Ctrl+C ends it"
    assert first[1].startswith("recorded ")
    assert len(first) == 2
    kept = Recording(path).frames(0.0, 4e9)
    assert {len(frame.gpus) for frame in kept[4:]} == {2}
    assert kept[-1].engines[0].ranks[0].counters
    assert not any(frame.simulated for frame in kept)
    again = ended(begun(fake_driver.env(**env), *options), path, len(kept) + 4, signal.SIGTERM)
    assert again[0].startswith(f"recording this host on into {path}")
    assert Recording(path).frames(0.0, 4e9)[: len(kept)] == kept


def test_a_demo_has_a_file_of_its_own_and_says_what_it_is(tmp_path: Path, env: dict[str, str]) -> None:
    folder = tmp_path / ".local/share/gpumon/recordings"
    path = folder / f"{os.uname().nodename}-simulated.sqlite"
    out = ended(begun(env, "--demo", "--interval=0.25"), path, 3)
    assert out[0].startswith(f"recording the simulated server into {path}: the last 7 days, at most 2 GB")
    assert all(frame.simulated for frame in Recording(path).frames(0.0, 4e9))
    assert [each.name for each in folder.iterdir()] == [path.name]


def refused(env: dict[str, str], *arguments: str) -> tuple[int, str]:
    process = begun(env, *arguments)
    _, err = process.communicate(timeout=60)
    assert err.count("\n") == 1
    return process.returncode, err


def test_without_anything_to_monitor_no_file_is_left(tmp_path: Path, env: dict[str, str]) -> None:
    path = tmp_path / "r.sqlite"
    code, err = refused(env, str(path), "--no-nvml", "--no-discovery")
    assert (code, list(tmp_path.iterdir())) == (3, [])
    assert "nothing to monitor" in err


def test_a_bad_file_ends_with_2_and_is_left_alone(tmp_path: Path, env: dict[str, str]) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("mine")
    code, err = refused(env, str(path), "--demo")
    assert (code, path.read_text()) == (2, "mine")
    assert err.startswith(f"gpumon: {path}: is no recording of gpumon")
    code, err = refused({**env, "HOME": ""}, "--demo")
    assert code == 2
    assert "no folder for recordings: name a file, or set XDG_DATA_HOME or HOME" in err


def test_a_second_recorder_names_the_first(tmp_path: Path, env: dict[str, str]) -> None:
    path = tmp_path / "r.sqlite"
    first = begun(env, str(path), "--demo")
    try:
        end_s = time.monotonic() + 60.0
        while not frames(path):
            assert time.monotonic() < end_s
            time.sleep(0.1)
        code, err = refused(env, str(path), "--demo")
        assert (code, f"process {first.pid} records into it" in err) == (2, True)
    finally:
        first.kill()
        first.communicate()

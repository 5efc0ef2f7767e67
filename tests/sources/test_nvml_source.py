"""A worker that hangs, stops, crashes, talks nonsense or cannot be killed: the monitor goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import psutil
import pytest

from gpumon.sources.driver.source import DriverSource, WorkerPatience, spawn
from gpumon.sources.driver.wire import Timings
from tests.fakes.nvml.driver import FakeDriver
from tests.sources.nvml.rig import INTERVAL_S, LIMITS, TIMINGS, Rig, faults, library_with, running

BUSY = "nvmlDeviceGetUtilizationRates"
TWO = "gpus 2\ngpu * busy 50\n"


def alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def ended(pid: int, within_s: float = 60.0) -> bool:
    """Whether the process ends in time."""
    end_s = time.monotonic() + within_s
    while alive(pid) and time.monotonic() < end_s:
        await asyncio.sleep(0.02)
    return not alive(pid)


async def test_start_and_poll_return_at_once_whatever_the_driver_does(fake_driver: FakeDriver) -> None:
    fake_driver.write("init hang\n")
    source = DriverSource(1.0, env=fake_driver.env(), limits=WorkerPatience(init_s=60.0, answer_s=60.0, die_s=60.0))
    before_s = time.monotonic()
    await source.start()
    for _ in range(3):
        await source.poll(time.monotonic())
    await source.close()
    assert time.monotonic() - before_s < 55.0


async def test_a_driver_that_hangs_as_a_whole_leaves_old_readings_and_ends_in_a_new_worker(
    fake_driver: FakeDriver,
) -> None:
    async with running(fake_driver, TWO) as rig:
        healthy = await rig.until(lambda found: bool(found.gpus) and not found.faults)
        fake_driver.write(f"{TWO}call nvmlDeviceGetCount_v2 hang\n")
        late = await rig.until(lambda found: "has not answered for" in faults(found))
        age_s = time.monotonic() - late.gpus[0].monotonic_s
        gone = await rig.until(lambda found: not found.pids)
        fake_driver.write(TWO)
        again = await rig.until(lambda found: not found.faults)
    assert late.pids == healthy.pids
    assert f"pid {late.pids[0]}" in faults(late)
    assert [gpu.busy_ratio for gpu in late.gpus] == [0.5, 0.5]
    assert age_s > 1.5 * INTERVAL_S
    assert "did not answer for" in faults(gone)
    assert [gpu.uuid for gpu in gone.gpus] == [gpu.uuid for gpu in healthy.gpus]
    assert again.pids not in ((), healthy.pids)
    assert await ended(healthy.pids[0])


async def test_a_stopped_worker_is_late_then_replaced(fake_driver: FakeDriver) -> None:
    async with running(fake_driver, TWO) as rig:
        found = await rig.until(lambda found: bool(found.gpus))
        os.kill(found.pids[0], signal.SIGSTOP)
        late = await rig.until(lambda found: bool(found.faults))
        again = await rig.until(lambda after: after.pids not in ((), found.pids) and not after.faults)
    assert "has not answered" in faults(late)
    assert again.gpus[0].monotonic_s > late.gpus[0].monotonic_s
    assert await ended(found.pids[0])


async def test_a_worker_that_goes_on_in_time_is_kept(fake_driver: FakeDriver) -> None:
    async with running(fake_driver, TWO, limits=WorkerPatience(answer_s=20.0)) as rig:
        found = await rig.until(lambda found: bool(found.gpus))
        os.kill(found.pids[0], signal.SIGSTOP)
        await rig.until(lambda found: bool(found.faults))
        os.kill(found.pids[0], signal.SIGCONT)
        again = await rig.until(lambda found: not found.faults)
    assert again.pids == found.pids
    assert again.gpus[0].monotonic_s > found.gpus[0].monotonic_s


async def test_a_crash_is_named_and_every_new_worker_waits_longer(fake_driver: FakeDriver) -> None:
    async with running(fake_driver, TWO) as rig:
        await rig.until(lambda found: bool(found.gpus))
        fake_driver.write(f"{TWO}gpu 0 call {BUSY} crash\n")
        crashed = await rig.until(lambda found: bool(found.faults))
        started: dict[int, float] = {}
        while len(started) < 4:
            found = await rig.poll()
            for pid in found.pids:
                started.setdefault(pid, time.monotonic())
        fake_driver.write(TWO)
        again = await rig.until(lambda found: not found.faults)
    assert "SIGSEGV" in faults(crashed)
    assert len(crashed.gpus) == 2
    first, *_, last = started.values()
    assert last - first > 0.2 + 0.4 + 0.8
    assert [gpu.busy_ratio for gpu in again.gpus] == [0.5, 0.5]


def python_that(tmp_path: Path, script: str) -> str:
    """An interpreter for the worker that does something else."""
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(program)


NONSENSE = {
    "read x; printf '\\377\\377\\377\\377garbage'; exec sleep 60": "no report",
    "read x; printf '\\000\\000\\000\\005abcdefgh'; exec sleep 60": "no report",
    "read x; printf '\\000\\000\\001\\000truncated'; exit 3": "status 3",
    "echo 'cannot open shared object' >&2; exit 1": "cannot open shared object",
    "read x; exec >&-; exec sleep 60": "closed its pipe",
    "exec <&- >&-; exec sleep 60": "pipe",
    "printf '\\033[31mred\\n' >&2; exit 7": "\\x1b[31mred",
}
"""What a worker does, and what is said of it."""


async def test_a_worker_that_talks_nonsense_is_replaced(fake_driver: FakeDriver, tmp_path: Path) -> None:
    """All of them at once, each with a source of its own."""
    replaced = []
    for number, (script, text) in enumerate(NONSENSE.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        replaced.append(assert_is_replaced(fake_driver, python_that(folder, script), text))
    await asyncio.gather(*replaced)


async def assert_is_replaced(driver: FakeDriver, python: str, text: str) -> None:
    """Another worker takes the place of one that this interpreter runs, and this text is said of it."""
    source = DriverSource(INTERVAL_S, python=python, env=driver.env(), limits=LIMITS)
    rig = Rig(source)
    await source.start()
    try:
        first = await rig.until(lambda found: bool(found.pids))
        found = await rig.until(lambda found: text in faults(found))
        second = await rig.until(lambda found: found.pids not in ((), first.pids))
    finally:
        await source.close()
    assert found.gpus == ()
    assert second.pids != first.pids


async def test_a_worker_that_floods_stderr_harms_nobody(fake_driver: FakeDriver, tmp_path: Path) -> None:
    flood = python_that(tmp_path, f'yes flood | head -c 4000000 >&2; exec {sys.executable} "$@"')
    fake_driver.write(TWO)
    source = DriverSource(INTERVAL_S, python=flood, env=fake_driver.env(), timings=TIMINGS)
    rig = Rig(source)
    await source.start()
    try:
        found = await rig.until(lambda found: bool(found.gpus) and not found.faults)
    finally:
        await source.close()
    assert found.faults == ()


async def test_what_the_driver_library_prints_does_not_reach_the_pipe(fake_driver: FakeDriver, tmp_path: Path) -> None:
    env = library_with("noise.c", tmp_path)
    code = "import ctypes; ctypes.CDLL('libnvidia-ml.so.1')"
    loaded = subprocess.run([sys.executable, "-c", code], env={**os.environ, **env}, capture_output=True, check=True)
    assert b"driver noise" in loaded.stdout
    async with running(fake_driver, TWO, env=env, spawn=spawn) as rig:
        found = await rig.until(lambda found: bool(found.gpus) and not found.faults)
    assert found.faults == ()
    assert len(found.gpus) == 2


@pytest.mark.parametrize("fault", ["", f"gpu 0 call {BUSY} hang\n", "init hang\n"])
async def test_closing_leaves_no_process_and_takes_no_time(fake_driver: FakeDriver, fault: str) -> None:
    async with running(fake_driver, f"{TWO}{fault}", limits=WorkerPatience(die_s=60.0)) as rig:
        found = await rig.until(lambda found: bool(found.pids))
        await rig.poll()
        before_s = time.monotonic()
        await rig.source.close()
        took_s = time.monotonic() - before_s
    assert took_s < 55.0
    assert not alive(found.pids[0])
    assert (await rig.source.poll(time.monotonic())).pids == ()


async def test_the_worker_is_out_of_reach_of_the_terminal(fake_driver: FakeDriver) -> None:
    async with running(fake_driver, TWO) as rig:
        found = await rig.until(lambda found: bool(found.gpus))
        (pid,) = found.pids
        assert os.getsid(pid) == pid != os.getsid(0)
        os.kill(pid, signal.SIGINT)
        after = await rig.until(lambda found: bool(found.gpus) and not found.faults)
    assert after.pids == (pid,)


PARENT = """
import asyncio, sys, time
from gpumon.sources.driver.source import DriverSource

async def main():
    source = DriverSource(0.2)
    await source.start()
    for _ in range(5):
        found = await source.poll(time.monotonic())
        await asyncio.sleep(0.2)
    print(found.pids[0], flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.parametrize("fault", ["", f"gpu 0 call {BUSY} hang\n", "init hang\n"])
async def test_a_worker_does_not_outlive_a_monitor_that_was_killed(fake_driver: FakeDriver, fault: str) -> None:
    fake_driver.write(f"{TWO}{fault}")
    parent = subprocess.Popen([sys.executable, "-c", PARENT], env=fake_driver.env(), stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(await asyncio.to_thread(parent.stdout.readline))
    assert alive(pid)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert await ended(pid)


class Stuck:
    """A process handle in D state: killing it has no effect until the test lets it go. The one fake of this file."""

    def __init__(self) -> None:
        self.pid = 4242
        self.stdin: IO[bytes] | None = None
        self.stdout: IO[bytes] | None = None
        self.stderr: IO[bytes] | None = None
        self.kills = 0
        self.status: int | None = None
        self._ends = [os.pipe() for _ in range(3)]
        self.stdin = os.fdopen(self._ends[0][1], "wb", buffering=0)
        self.stdout = os.fdopen(self._ends[1][0], "rb", buffering=0)
        self.stderr = os.fdopen(self._ends[2][0], "rb", buffering=0)

    def poll(self) -> int | None:
        return self.status

    def kill(self) -> None:
        self.kills += 1

    def let_go(self) -> None:
        """It ends at last."""
        self.status = -9
        for descriptor in (self._ends[0][0], self._ends[1][1], self._ends[2][1]):
            os.close(descriptor)


async def test_there_is_never_more_than_one_unkillable_worker() -> None:
    made: list[Stuck] = []

    def spawn(command: Sequence[str], env: Mapping[str, str] | None) -> Stuck:
        made.append(Stuck())
        return made[-1]

    source = DriverSource(INTERVAL_S, limits=WorkerPatience(init_s=0.5, die_s=0.3, backoff_s=0.1), spawn_worker=spawn)
    rig = Rig(source)
    await source.start()
    stuck = await rig.until(lambda found: "cannot be killed" in faults(found))
    for _ in range(5):
        await rig.poll()
    assert (len(made), made[0].kills) == (1, 1)
    assert "pid 4242" in faults(stuck)
    assert "no new one" in faults(stuck)
    made[0].let_go()
    await rig.until(lambda _: len(made) == 2)
    before_s = time.monotonic()
    await source.close()
    assert time.monotonic() - before_s < 55.0
    assert made[1].kills == 1
    made[1].let_go()


async def test_faults_are_dated_by_their_cause(fake_driver: FakeDriver) -> None:
    async with running(fake_driver, "init driver_not_loaded\n", timings=Timings(init_retry_s=0.2)) as rig:
        first = await rig.until(lambda found: "not loaded" in faults(found))
        for _ in range(4):
            later = await rig.poll()
        fake_driver.write("init no_permission\n")
        other = await rig.until(lambda found: "no permission" in faults(found))
    assert later.faults[0].since_wall_s == first.faults[0].since_wall_s
    assert other.faults[0].since_wall_s > first.faults[0].since_wall_s


def test_the_monitor_does_not_load_the_driver_itself() -> None:
    code = "import sys, gpumon.sources.driver.source; print('pynvml' in sys.modules, 'psutil' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]

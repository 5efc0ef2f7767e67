"""Who fills the cores: looked for while they are full, among real processes."""

from __future__ import annotations

import contextlib
import getpass
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from gpumon.readings.frame import HostProcess
from gpumon.readings.missing import WARMING_UP
from gpumon.sources.cpu_consumers import MOST_LISTED, CpuConsumers
from tests.fakes.http_server import wait_until

BUSY = "import time\nprint(flush=True)\nend = time.time() + 120\nwhile time.time() < end: pass"


@pytest.fixture
def busy() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with contextlib.suppress(PermissionError):  # where root asks, whatever else the machine does
            os.setpriority(os.PRIO_PROCESS, process.pid, -15)
        yield process
        process.kill()


def processor_s(process: subprocess.Popen[bytes]) -> float:
    times = psutil.Process(process.pid).cpu_times()
    return times.user + times.system


def of(found: tuple[HostProcess, ...], pid: int) -> HostProcess | None:
    return next((one for one in found if one.pid == pid), None)


@pytest.fixture
def resting() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def test_a_process_that_spins_is_named_while_the_host_is_full(
    busy: subprocess.Popen[bytes], resting: subprocess.Popen[bytes]
) -> None:
    consumers = CpuConsumers(look_s=0.3, first_s=0.3)
    before_s = processor_s(busy)
    assert wait_until(lambda: of(consumers.top(0.97), busy.pid) is not None)
    spent_s = processor_s(busy) - before_s
    found = consumers.top(0.97)
    one = of(found, busy.pid)
    assert one is not None
    assert "python" in one.name
    assert one.user == getpass.getuser()
    assert 0.5 <= one.cores <= (spent_s + 0.02) / 0.3, "by ticks of 10 ms over looks at least 0.3 s apart"
    assert len(found) <= MOST_LISTED
    assert [each.cores for each in found] == sorted((each.cores for each in found), reverse=True)
    assert of(found, resting.pid) is None, "what rests is not named"


def test_nothing_is_looked_at_while_it_is_not(busy: subprocess.Popen[bytes]) -> None:
    consumers = CpuConsumers(look_s=0.0, first_s=0.0)
    for _ in range(5):
        for cpu_ratio in (0.5, WARMING_UP):
            assert consumers.top(cpu_ratio) == ()
        time.sleep(0.02)

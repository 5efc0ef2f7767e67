"""Processes of this host that start again what has ended."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpumon.sources.family import read_process
from gpumon.sources.last_seen.processes.look import RestartScan
from gpumon.sources.last_seen.processes.origin import origin_of
from gpumon.sources.last_seen.records import TICKS_PER_S


def started(*command: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize(
    "entry_point", [(), ("sh", "-c", 'sleep 1; exec "$@"', "entry")], ids=["at once", "by a script"]
)
def test_a_server_is_met_whatever_starts_it(tmp_path: Path, entry_point: tuple[str, ...]) -> None:
    """As the entry point of a container: it looks at the GPUs, then the engine's program takes its place."""
    program = tmp_path / "vllm"
    program.write_text("import time\ntime.sleep(60)\n")
    command = (sys.executable, str(program), "serve", "m")
    first = started(*command)
    record = read_process(first.pid)
    while record is None or not record.argv:  # the kernel is about to set its arguments
        time.sleep(0.01)
        record = read_process(first.pid)
    ended = origin_of(record)
    first.kill()
    first.wait()
    scan = RestartScan()
    assert scan.find([ended]) == {}
    time.sleep(2.0 / TICKS_PER_S)  # of two that began in one tick of the kernel's clock none is known to be the later
    second = started(*entry_point, *command)
    try:
        end_s = time.monotonic() + 20.0
        found = scan.find([ended])
        while not found and time.monotonic() < end_s:
            time.sleep(0.2)
            found = scan.find([ended])
        assert found[ended.id].pid == second.pid
    finally:
        second.kill()
        second.wait()

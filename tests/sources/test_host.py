"""The machine's figures, and gpumon's own cost, held against psutil and a process that is known to be busy."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from gpumon.readings.frame import HostReading
from gpumon.readings.missing import WARMING_UP, Missing, Reading, Reason
from gpumon.sources import host
from gpumon.sources.host import HostMeter

BUSY = "import time\nprint(flush=True)\nend = time.time() + 60\nwhile time.time() < end: pass"


def test_the_machine_is_the_one_it_runs_on() -> None:
    meter = HostMeter()
    first = meter.read(())
    time.sleep(0.1)
    second = meter.read(())
    memory = psutil.virtual_memory()
    assert first.name == socket.gethostname()
    assert first.memory_total_bytes == memory.total
    assert first.memory_used_bytes == pytest.approx(memory.total - memory.available, rel=0.2)
    assert first.cpu_ratio == WARMING_UP
    assert first.self_cpu_ratio == WARMING_UP
    assert not isinstance(second.cpu_ratio, Missing)
    assert 0.0 <= second.cpu_ratio <= 1.0


def test_own_cost_counts_the_worker_too() -> None:
    worker = subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE)
    try:
        assert worker.stdout is not None
        worker.stdout.readline()
        meter = HostMeter()
        meter.read((worker.pid,))
        spent_s, began_s = psutil.Process(worker.pid).cpu_times().user, time.monotonic()
        time.sleep(1.0)
        found = meter.read((worker.pid,))
        busy = (psutil.Process(worker.pid).cpu_times().user - spent_s) / (time.monotonic() - began_s)
        own_pss = psutil.Process().memory_full_info().pss
        worker_pss = psutil.Process(worker.pid).memory_full_info().pss
    finally:
        worker.kill()
        worker.communicate()
    assert not isinstance(found.self_cpu_ratio, Missing)
    assert found.self_cpu_ratio == pytest.approx(busy, abs=0.15)
    assert found.self_cpu_ratio > 0.1
    assert found.self_pss_bytes == pytest.approx(own_pss + worker_pss, rel=0.1)


def test_a_worker_that_is_gone_is_no_zero_and_a_new_one_starts_afresh() -> None:
    worker = subprocess.Popen(["sleep", "60"])
    meter = HostMeter(pss_s=0.0)
    assert meter.read((worker.pid,)).self_pss_bytes == WARMING_UP
    worker.kill()
    worker.wait()
    gone = looked(meter, (worker.pid,), lambda pss: isinstance(pss, Missing) and pss.reason is Reason.ERROR)
    fresh = looked(meter, (), lambda pss: not isinstance(pss, Missing))
    assert isinstance(gone.self_cpu_ratio, Missing)
    assert isinstance(gone.self_pss_bytes, Missing)
    assert isinstance(fresh.self_cpu_ratio, float)
    assert fresh.self_pss_bytes == pytest.approx(psutil.Process(os.getpid()).memory_full_info().pss, rel=0.1)


def test_the_window_of_the_own_cost_begins_anew_with_another_worker() -> None:
    meter = HostMeter()
    meter.read(())
    assert meter.read((os.getppid(),)).self_cpu_ratio == WARMING_UP


def test_a_worker_that_holds_its_memory_lock_does_not_hold_up_the_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = os.getpid()
    for entry in Path("/proc").iterdir():
        if entry.name in ("stat", "meminfo", "zoneinfo", "vmstat"):
            (tmp_path / entry.name).symlink_to(entry)
    (tmp_path / str(pid)).mkdir()
    for name in ("stat", "statm", "status", "smaps"):
        (tmp_path / str(pid) / name).symlink_to(f"/proc/{pid}/{name}")
    os.mkfifo(tmp_path / str(pid) / "smaps_rollup")
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    monkeypatch.setattr(host, "PSS_SILENT_S", 0.3)
    meter, began = HostMeter(pss_s=0.0), time.monotonic()
    assert meter.read(()).self_pss_bytes == WARMING_UP
    assert meter.read(()).self_pss_bytes == WARMING_UP
    assert time.monotonic() - began < 0.3
    looked(meter, (), lambda pss: isinstance(pss, Missing) and pss.reason is Reason.STALE)
    (tmp_path / str(pid) / "smaps_rollup").write_text("Pss:    2048 kB\n")
    assert looked(meter, (), lambda pss: not isinstance(pss, Missing)).self_pss_bytes == 2048 * 1024


def looked(meter: HostMeter, pids: tuple[int, ...], accept: Callable[[Reading], bool]) -> HostReading:
    """The first reading with a memory figure that `accept` takes."""
    end_s = time.monotonic() + 5.0
    while not accept((reading := meter.read(pids)).self_pss_bytes):
        assert time.monotonic() < end_s
        time.sleep(0.01)
    return reading


def test_psutil_is_not_loaded_before_the_first_reading() -> None:
    code = "import sys; from gpumon.sources.host import HostMeter; HostMeter(); print('psutil' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"

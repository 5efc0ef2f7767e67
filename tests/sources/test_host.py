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
from gpumon.sources.host import ProcMeter
from gpumon.sources.host_load import CORES, DISKS, NETWORK, PRESSURES, HostLoad
from tests.fakes.http_server import wait_until

BUSY = "import time\nprint(flush=True)\nend = time.time() + 60\nwhile time.time() < end: pass"


def test_the_machine_is_the_one_it_runs_on() -> None:
    meter = ProcMeter()
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
        meter = ProcMeter()
        meter.read((worker.pid,))
        spent_s, began_s = psutil.Process(worker.pid).cpu_times().user, time.monotonic()
        assert wait_until(lambda: psutil.Process(worker.pid).cpu_times().user - spent_s > 0.5)
        found = meter.read((worker.pid,))
        busy = (psutil.Process(worker.pid).cpu_times().user - spent_s) / (time.monotonic() - began_s)
        own_pss = psutil.Process().memory_full_info().pss
        worker_pss = psutil.Process(worker.pid).memory_full_info().pss
    finally:
        worker.kill()
        worker.communicate()
    assert not isinstance(found.self_cpu_ratio, Missing)
    assert found.self_cpu_ratio == pytest.approx(busy, abs=0.15)
    assert found.self_cpu_ratio > busy / 2
    assert found.self_pss_bytes == pytest.approx(own_pss + worker_pss, rel=0.1)


def test_a_worker_that_is_gone_is_no_zero_and_a_new_one_starts_afresh() -> None:
    worker = subprocess.Popen(["sleep", "60"])
    meter = ProcMeter(pss_s=0.0)
    assert meter.read((worker.pid,)).self_pss_bytes == WARMING_UP
    worker.kill()
    worker.wait()
    gone = looked(meter, (worker.pid,), lambda pss: isinstance(pss, Missing) and pss.reason is Reason.ERROR)
    fresh = looked(meter, (), lambda pss: not isinstance(pss, Missing))
    assert isinstance(gone.self_cpu_ratio, Missing)
    assert isinstance(gone.self_pss_bytes, Missing)
    assert isinstance(fresh.self_cpu_ratio, float)
    assert fresh.self_pss_bytes == pytest.approx(psutil.Process(os.getpid()).memory_full_info().pss, rel=0.1)


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
    meter, began = ProcMeter(pss_s=0.0), time.monotonic()
    assert meter.read(()).self_pss_bytes == WARMING_UP
    assert meter.read(()).self_pss_bytes == WARMING_UP
    assert time.monotonic() - began < 55.0
    looked(meter, (), lambda pss: isinstance(pss, Missing) and pss.reason is Reason.STALE)
    (tmp_path / str(pid) / "smaps_rollup").write_text("Pss:    2048 kB\n")
    assert looked(meter, (), lambda pss: not isinstance(pss, Missing)).self_pss_bytes == 2048 * 1024


def looked(meter: ProcMeter, pids: tuple[int, ...], accept: Callable[[Reading], bool]) -> HostReading:
    """The first reading with a memory figure that `accept` takes."""
    end_s = time.monotonic() + 60.0
    while not accept((reading := meter.read(pids)).self_pss_bytes):
        assert time.monotonic() < end_s
        time.sleep(0.01)
    return reading


def test_psutil_is_not_loaded_before_the_first_reading() -> None:
    code = "import sys; from gpumon.sources.host import ProcMeter; ProcMeter(); print('psutil' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_cores_disks_network_and_pressure_come_from_the_real_kernel() -> None:
    load = HostLoad(look_s=0.0)
    first = load.figures()
    end_s = time.monotonic() + 0.3
    while time.monotonic() < end_s:
        pass
    second = load.figures()
    assert first["busiest_core_ratio"] == WARMING_UP
    assert set(second) == {*CORES, *DISKS, *NETWORK, *PRESSURES}
    busiest = second["busiest_core_ratio"]
    assert not isinstance(busiest, Missing)
    assert 0.3 < busiest <= 1.0, "this process kept a core busy, though it may have moved to another"
    for field in (*CORES, *PRESSURES):
        value = second[field]
        assert isinstance(value, Missing) or 0.0 <= value <= 1.0
    for field in (*DISKS, *NETWORK):
        value = second[field]
        assert isinstance(value, Missing) or value >= 0.0


def kernel(folder: Path, stat: str = "", disks: str = "", network: str = "", pressure: str = "") -> Path:
    """A /proc with these counters."""
    (folder / "net").mkdir(exist_ok=True)
    (folder / "stat").write_text(stat)
    (folder / "diskstats").write_text(disks)
    (folder / "net" / "dev").write_text(network)
    if pressure:
        (folder / "pressure").mkdir(exist_ok=True)
        for name in PRESSURES.values():
            (folder / "pressure" / name).write_text(pressure)
    return folder


def disk(name: str, read: int, written: int, busy_ms: int) -> str:
    """A line of /proc/diskstats; sectors of 512 bytes."""
    return f"   8       0 {name} 1 0 {read} 0 1 0 {written} 0 0 {busy_ms} 0\n"


def test_one_thread_at_its_limit_a_wait_for_the_disk_and_a_disk_that_is_never_free(tmp_path: Path) -> None:
    before = "cpu 0 0 0 2000 0 0 0 0 0 0\ncpu0 0 0 0 1000 0 0 0 0 0 0\ncpu1 0 0 0 1000 0 0 0 0 0 0\nintr 5\n"
    after = "cpu 100 0 0 2060 40 0 0 0 50 0\ncpu0 100 0 0 1000 0 0 0 0 50 0\ncpu1 0 0 0 1060 40 0 0 0 0 0\nintr 9\n"
    (tmp_path / "sys" / "block" / "sda").mkdir(parents=True)
    (tmp_path / "sys" / "block" / "dm-0").mkdir()
    (tmp_path / "sys" / "class" / "net" / "eth0" / "device").mkdir(parents=True)
    disks = disk("sda", 0, 0, 0) + disk("sda1", 0, 0, 0) + disk("dm-0", 0, 0, 0)
    zeros = "0 0 0 0 0 0 0 0 0 0\n"
    net = "Inter-| Receive\n face |bytes\n    lo: 9 0 0 0 0 0 0 0 9 0\n"
    load = HostLoad(kernel(tmp_path, before, disks, f"{net}  eth0: {zeros}  br0: {zeros}"), tmp_path / "sys", 0.0)
    load.figures()
    disks = disk("sda", 2000, 1000, 10**6) + disk("sda1", 9000, 9000, 10**6) + disk("dm-0", 9000, 9000, 10**6)
    net += "  eth0: 4000 0 0 0 0 0 0 0 2000 0\n  br0: 4000 0 0 0 0 0 0 0 9000 0\n"
    kernel(tmp_path, after, disks, net, "some avg10=12.50 avg60=0 avg300=0 total=1\nfull avg10=99.00 avg60=0\n")
    figures = load.figures()
    assert figures["busiest_core_ratio"] == 1.0
    assert figures["iowait_ratio"] == pytest.approx(0.2)
    assert figures["disk_busy_ratio"] == 1.0
    assert ratio(figures, "disk_read_bytes_per_s", "disk_write_bytes_per_s") == pytest.approx(2.0), "whole disks only"
    assert ratio(figures, "disk_read_bytes_per_s", "network_rx_bytes_per_s") == pytest.approx(2000 * 512 / 4000)
    assert ratio(figures, "network_rx_bytes_per_s", "network_tx_bytes_per_s") == pytest.approx(2.0)
    assert [figures[field] for field in PRESSURES] == [0.125] * 3


def test_a_disk_is_busy_for_as_long_as_the_kernel_counts_in_milliseconds(tmp_path: Path) -> None:
    (tmp_path / "sys" / "block" / "sda").mkdir(parents=True)
    load = HostLoad(kernel(tmp_path, disks=disk("sda", 0, 0, 0)), tmp_path / "sys", 0.0)
    load.figures()
    time.sleep(0.1)
    kernel(tmp_path, disks=disk("sda", 2000, 0, 20))
    figures = load.figures()
    assert ratio(figures, "disk_read_bytes_per_s", "disk_busy_ratio") == pytest.approx(2000 * 512 / 0.02)


def ratio(figures: dict[str, Reading], above: str, below: str) -> float:
    """One figure over another: what a look of unknown length says for certain."""
    over, under = figures[above], figures[below]
    assert not isinstance(over, Missing)
    assert not isinstance(under, Missing)
    return over / under


def test_in_a_container_what_is_not_there_says_why_and_is_no_zero(tmp_path: Path) -> None:
    load = HostLoad(tmp_path, tmp_path, 0.0)
    load.figures()
    figures = load.figures()
    for field in (*CORES, *DISKS, *NETWORK, *PRESSURES):
        value = figures[field]
        assert isinstance(value, Missing)
        assert value.reason is Reason.NOT_SUPPORTED
        assert value.detail

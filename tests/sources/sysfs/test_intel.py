"""Intel's GPUs by the files of the kernel: real files in a folder, and the real reader."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from gpumon.efficiency.deriver import Deriver
from gpumon.readings.frame import Frame, GpuReading, GpuState, HostReading
from gpumon.readings.missing import Missing, Reason
from gpumon.sources.driver.calls import CallTrace
from gpumon.sources.driver.fleet import DriverGpu, Pcie
from gpumon.sources.driver.source import INTEL, NVIDIA, vendor_of
from gpumon.sources.driver.wire import Timings
from gpumon.sources.packaged import gpu_catalogue
from gpumon.sources.sysfs.fdinfo import FdinfoClients
from gpumon.sources.sysfs.intel import IdleState, IntelGpu, intel
from gpumon.sources.sysfs.rates import GrowthRate
from tests.fakes.sysfs import Tree, write
from tests.sources.sysfs import dumps

EAGER = Timings(slow_s=0.0, minute_s=0.0)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def opened(tree: Tree) -> DriverGpu:
    driver = intel(tree.root)
    assert driver.count() == 1
    return driver.open(0, None, EAGER, CallTrace())


def read(gpu: DriverGpu) -> GpuReading:
    (reading,) = gpu.read(time.monotonic(), (), Pcie.OFF)
    return reading


def reason(value: object) -> Reason:
    assert isinstance(value, Missing), value
    return value.reason


def wait(seconds: float) -> None:
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        pass


def test_a_card_of_xe(tree: Tree) -> None:
    device = tree.card("card1", dumps.B580)
    gpu = opened(tree)
    begun_s = time.monotonic()
    first = read(gpu)
    read_s = time.monotonic()
    assert (first.name, first.uuid, first.source) == ("Intel Arc B580", "pci-0000:09:00.0", "sysfs")
    assert (first.temperature_c, first.memory_temperature_c) == pytest.approx((54.0, 56.0))
    assert (first.sm_clock_hz, first.sm_clock_max_hz) == (2400e6, 2850e6)
    assert first.energy_j == pytest.approx(11031.745544)
    assert [reason(first.power_w), reason(first.busy_ratio)] == [Reason.WARMING_UP] * 2
    assert isinstance(first.power_w, Missing)
    assert "first reading" in first.power_w.detail
    # The critical limit (I1) and the burst limit (PL2) are no sustained limit.
    assert reason(first.power_limit_w) is Reason.NOT_SUPPORTED
    assert reason(first.vram_total_bytes) is Reason.NOT_SUPPORTED
    assert reason(first.pcie_width) is Reason.NOT_SUPPORTED
    wait(0.05)
    energy = {"hwmon/hwmon2/energy1_input": f"{11031745544 + 2_000_000}\n"}
    write(device, {"tile0/gt0/gtidle/idle_residency_ms": "308617\n", **energy})
    least_s = time.monotonic() - read_s
    second = read(gpu)
    most_s = time.monotonic() - begun_s
    assert isinstance(second.power_w, float)
    assert 2.0 / most_s <= second.power_w <= 2.0 / least_s
    assert isinstance(second.busy_ratio, float)
    assert 1.0 - 0.010 / least_s <= second.busy_ratio <= 1.0 - 0.010 / most_s


def test_a_card_of_i915(tree: Tree) -> None:
    tree.card("card1", dumps.A380_I915)
    gpu = read(opened(tree))
    assert (gpu.name, gpu.temperature_c) == ("Intel Arc A380", 55.0)
    assert (gpu.sm_clock_hz, gpu.sm_clock_max_hz) == (600e6, 2450e6)
    assert gpu.power_limit_w == pytest.approx(55.0)
    assert (reason(gpu.power_default_w), reason(gpu.busy_ratio)) == (Reason.OFF, Reason.WARMING_UP)
    assert gpu.energy_j == pytest.approx(25637.161804)


def test_where_the_counter_of_the_card_stands_at_0_its_package_counts(tree: Tree) -> None:
    device = tree.card("card1", dumps.B580)
    write(device, {"hwmon/hwmon2/energy1_input": "0\n"})
    assert read(opened(tree)).energy_j == pytest.approx(19014.248107)
    write(device, {"hwmon/hwmon2/energy2_input": "0\n"})
    assert reason(read(opened(tree)).energy_j) is Reason.NOT_SUPPORTED


def test_a_counter_of_energy_that_stands_still_is_no_power_of_0(tree: Tree) -> None:
    tree.card("card1", dumps.B580)
    gpu = opened(tree)
    read(gpu)
    still = read(gpu)
    assert [reason(still.energy_j), reason(still.power_w)] == [Reason.STALE] * 2
    assert reason(still.vram_used_bytes) in (Reason.IDLE, Reason.NO_PERMISSION)


def test_idle_time_becomes_busy_by_the_time_that_passed() -> None:
    idle = IdleState("gtidle/idle_residency_ms")
    assert reason(idle.busy_ratio(1000.0, 10.0)) is Reason.WARMING_UP
    assert idle.busy_ratio(1250.0, 11.0) == pytest.approx(0.75)
    assert idle.busy_ratio(3255.0, 13.0) == 0.0  # the clock and the counter are read one after the other
    assert reason(idle.busy_ratio(50.0, 14.0)) is Reason.RESET
    assert idle.busy_ratio(550.0, 15.0) == pytest.approx(0.5)
    assert reason(idle.busy_ratio(9_000_000.0, 16.0)) is Reason.RESET
    assert reason(idle.busy_ratio(9_000_500.0, 17.0)) is Reason.WARMING_UP
    assert reason(idle.busy_ratio(0.0, 18.0)) is Reason.NOT_SUPPORTED
    missing = Missing(Reason.NO_PERMISSION)
    assert idle.busy_ratio(missing, 19.0) is missing
    assert reason(idle.busy_ratio(500.0, 20.0)) is Reason.WARMING_UP


def test_a_rate_of_two_readings_at_one_moment_stays() -> None:
    rate = GrowthRate()
    rate.update(10.0, 1.0)
    assert rate.update(12.0, 2.0) == 2.0
    assert rate.update(13.0, 2.0) == 2.0


def test_processes_and_their_engines(tree: Tree) -> None:
    tree.card("card1", dumps.B580)
    fdinfo = (
        "drm-driver:\txe\ndrm-client-id:\t3\ndrm-pdev:\t0000:09:00.0\ndrm-total-vram0:\t23992 KiB\n"
        "drm-resident-vram0:\t23 MiB\ndrm-cycles-rcs:\t0\ndrm-total-cycles-rcs:\t{total}\n"
        "drm-cycles-ccs:\t{busy}\ndrm-total-cycles-ccs:\t{total}\ndrm-engine-capacity-ccs:\t4\n"
    )
    tree.process(os.getpid(), {"9": fdinfo.format(busy=1000, total=5000)})
    gpu = opened(tree)
    (process,) = read(gpu).processes
    assert (process.pid, process.vram_bytes) == (os.getpid(), 23.0 * 2**20)
    tree.process(os.getpid(), {"9": fdinfo.format(busy=5000, total=7000)})
    (process,) = read(gpu).processes
    assert process.sm_ratio == pytest.approx(0.5)


def test_used_memory_is_a_sum_over_all_processes_or_nothing(tree: Tree) -> None:
    tree.card("card1", dumps.B580)
    of_card = "drm-pdev:\t0000:09:00.0\ndrm-client-id:\t{}\ndrm-resident-vram0:\t100 MiB\n"
    tree.process(11, {"3": of_card.format(1)})
    tree.process(12, {"3": of_card.format(2), "4": of_card.format(2)})
    driver = intel(tree.root)
    driver.count()
    card = driver.open(0, None, EAGER, CallTrace()).handle
    used = {}
    for is_root in (True, False):
        clients = FdinfoClients(tree.proc, is_root=is_root)
        used[is_root] = read(IntelGpu(0, "pci-0", card, EAGER, CallTrace(), clients, tree.root)).vram_used_bytes
    assert used[True] == 200.0 * 2**20
    assert reason(used[False]) is Reason.NO_PERMISSION
    namespace = tree.proc / "self/ns/pid"
    namespace.unlink()
    namespace.symlink_to("pid:[4026532999]")
    clients = FdinfoClients(tree.proc, is_root=True)
    in_container = read(IntelGpu(0, "pci-0", card, EAGER, CallTrace(), clients, tree.root))
    assert reason(in_container.vram_used_bytes) is Reason.NO_PERMISSION


def test_memory_by_the_files_of_intels_own_packages(tree: Tree) -> None:
    card = tree.card("card1", dumps.A380_I915) / "drm/card1"
    write(card, {"lmem_total_bytes": "6442450944\n", "lmem_avail_bytes": "4294967296\n"})
    gpu = read(opened(tree))
    assert (gpu.vram_total_bytes, gpu.vram_used_bytes) == (6442450944.0, 2147483648.0)


def test_the_gpu_of_the_cpu_is_shown_only_if_asked(tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dev = tmp_path / "dev"
    dev.mkdir()
    monkeypatch.delenv("GPUMON_INTEGRATED_GPUS", raising=False)
    tree.card("card0", dumps.INTEGRATED)
    assert (vendor_of(dev, tree.sys), intel(tree.root).count()) == (NVIDIA, 0)
    monkeypatch.setenv("GPUMON_INTEGRATED_GPUS", "1")
    assert (vendor_of(dev, tree.sys), intel(tree.root).count()) == (INTEL, 1)
    monkeypatch.setenv("GPUMON_INTEGRATED_GPUS", "0")
    tree.card("card1", dumps.B580)
    assert (vendor_of(dev, tree.sys), intel(tree.root).count()) == (INTEL, 1)


def test_a_name_of_pci_ids(tree: Tree) -> None:
    device = tree.card("card1", dumps.B580)
    write(device, {"uevent": dumps.B580["device/uevent"].replace("E20B", "56BC")})
    assert read(opened(tree)).name == "Intel GPU 8086:56bc"
    listed = "1000  Broadcom\n\t56bc  Wrong\n8086  Intel Corporation\n\t56bc  DG2 [Arc A370E]\n\t\t8086 1  Sub\n"
    write(tree.root, {"usr/share/misc/pci.ids": listed})
    assert read(opened(tree)).name == "Intel Arc A370E"


def test_a_card_without_sensors_is_a_row_with_reasons(tree: Tree) -> None:
    tree.card("card1", {"device/uevent": dumps.B580["device/uevent"]})
    gpu = read(opened(tree))
    figures = (gpu.busy_ratio, gpu.power_w, gpu.temperature_c, gpu.sm_clock_hz, gpu.energy_j)
    assert {reason(figure) for figure in figures} == {Reason.NOT_SUPPORTED}
    assert gpu.state is GpuState.OK


def test_the_page_names_the_kernels_files(tree: Tree) -> None:
    tree.card("card1", dumps.B580)
    gpu = read(opened(tree))
    frame = Frame(1, 1e9, gpu.monotonic_s, 1.0, HostReading("a"), (gpu,))
    (shown,) = Deriver(gpu_catalogue()).derive(frame).snapshot.gpus
    named = " ".join(shown.sources.values())
    assert "idle_residency_ms" in shown.sources["busy_ratio"]
    assert "nvml" not in named
    assert "mem_info_vram" not in named

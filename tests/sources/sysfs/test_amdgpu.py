"""AMD's GPUs by the files of the kernel: real files in a folder, the real reader, and the real worker."""

from __future__ import annotations

import errno
import os
import sys
import time
from pathlib import Path

import psutil
import pytest

from gpumon.efficiency.peaks import gpu_facts
from gpumon.readings.check import CheckState
from gpumon.readings.frame import GpuReading, GpuState
from gpumon.readings.missing import MAY_BE_IN_AMDSMI, Missing, Reason
from gpumon.sources.driver.calls import CallTrace, HandleStaleError
from gpumon.sources.driver.fleet import DriverGpu, DriverGpus, Pcie
from gpumon.sources.driver.source import AMD, NVIDIA, DriverSource, vendor_of
from gpumon.sources.driver.wire import Chosen, Timings
from gpumon.sources.gpu_checks import driver_checks, gpu_checks
from gpumon.sources.packaged import gpu_catalogue
from gpumon.sources.source import Contribution
from gpumon.sources.sysfs.amdgpu import amdgpu
from gpumon.sources.sysfs.checks import sysfs_checks
from gpumon.sources.sysfs.driver import SysfsDriver
from gpumon.sources.sysfs.files import RULES, code_of
from tests.each_row import each_row
from tests.fakes.sysfs import Tree, write
from tests.records import replace
from tests.sources.nvml.rig import INTERVAL_S, LIMITS, TIMINGS, Rig
from tests.sources.sysfs import dumps

EAGER = Timings(slow_s=0.0, minute_s=0.0)
"""Everything is due at each reading."""


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def opened(driver: SysfsDriver, index: int = 0) -> DriverGpu:
    assert driver.count() > index
    return driver.open(index, None, EAGER, CallTrace())


def read(gpu: DriverGpu) -> GpuReading:
    (reading,) = gpu.read(time.monotonic(), (), Pcie.OFF)
    return reading


def reason(value: object) -> Reason:
    assert isinstance(value, Missing), value
    return value.reason


def test_every_figure_of_a_radeon(tree: Tree) -> None:
    bridge = {"vendor": "0x1002\n", "current_link_speed": "8.0 GT/s PCIe\n", "current_link_width": "8\n"}
    bridge |= {"max_link_speed": "16.0 GT/s PCIe\n", "max_link_width": "16\n"}
    root_port = {"vendor": "0x1022\n", "current_link_width": "1\n"}
    tree.card("card0", dumps.RX_7900_XTX, (root_port, bridge, {"vendor": "0x1002\n"}))
    gpu = read(opened(amdgpu(tree.root)))
    assert (gpu.index, gpu.uuid, gpu.source, gpu.state) == (0, "pci-0000:03:00.0", "sysfs", GpuState.OK)
    assert gpu.name == "AMD Radeon RX 7900 XTX"
    assert (gpu.busy_ratio, gpu.memory_busy_ratio) == pytest.approx((0.03, 0.01))
    assert (gpu.vram_used_bytes, gpu.vram_total_bytes) == (1272893440.0, 25753026560.0)
    assert (gpu.power_w, gpu.power_limit_w, gpu.power_default_w) == pytest.approx((68.0, 290.0, 290.0))
    assert (gpu.temperature_c, gpu.memory_temperature_c) == pytest.approx((61.0, 68.0))
    assert (gpu.sm_clock_hz, gpu.memory_clock_hz) == (31e6, 1249e6)
    assert (gpu.sm_clock_max_hz, gpu.memory_clock_max_hz) == (2219e6, 1249e6)
    assert gpu.fan_ratio == pytest.approx(0.2)
    # The link is that of the slot, above the switch on the card, and not that of the CPU's root port.
    assert (gpu.pcie_generation, gpu.pcie_generation_max) == (3.0, 4.0)
    assert (gpu.pcie_width, gpu.pcie_width_max) == (8.0, 16.0)
    assert gpu.energy_j == MAY_BE_IN_AMDSMI
    assert reason(gpu.ecc_corrected) is Reason.NOT_SUPPORTED
    peaks = gpu_catalogue().match(gpu_facts(gpu))
    assert peaks is not None
    assert peaks.bandwidth_bytes_per_s == 960e9


def test_an_instinct_has_error_counts_compute_units_and_the_processes_of_rocm(tree: Tree) -> None:
    tree.card("card1", dumps.MI300X)
    tree.kfd(1, 51545, dumps.MI300X_NODE, {os.getpid(): 150 << 30, 999_999_999: 1 << 20})
    gpu = read(opened(amdgpu(tree.root)))
    assert (gpu.uuid, gpu.name, gpu.sm_count) == ("amdgpu-1a2b3c4d5e6f7788", "AMD Instinct MI300X", 304.0)
    assert (gpu.ecc_corrected, gpu.ecc_uncorrected) == (5.0, 1.0)
    assert (gpu.power_w, gpu.temperature_c) == pytest.approx((612.0, 71.0))
    assert gpu.sm_clock_max_hz == 2100e6
    own, other = gpu.processes
    assert (own.pid, own.user, own.vram_bytes) == (os.getpid(), psutil.Process().username(), 150.0 * 2**30)
    assert (other.name, other.vram_bytes) == ("999999999 (host)", 2.0**20)
    peaks = gpu_catalogue().match(gpu_facts(gpu))
    assert peaks is not None
    assert peaks.name == "Instinct MI300X"


def test_the_process_list_of_fdinfo(tree: Tree) -> None:
    tree.card("card0", dumps.RX_7900_XTX)
    of_card = "drm-driver:\tamdgpu\ndrm-pdev:\t0000:03:00.0\n"
    compute = f"{of_card}drm-client-id:\t7\ndrm-memory-vram:\t2048 KiB\ndrm-engine-compute:\t{{}} ns\n"
    tree.process(os.getpid(), {"5": compute.format(10**9), "6": compute.format(10**9), "7": "pos:\t0\n"})
    elsewhere = "drm-driver:\tamdgpu\ndrm-pdev:\t0000:99:00.0\ndrm-client-id:\t7\ndrm-memory-vram:\t9 MiB\n"
    tree.process(1, {"3": elsewhere})
    gpu = opened(amdgpu(tree.root))
    begun_s = time.monotonic()
    (first,) = read(gpu).processes
    assert (first.pid, first.vram_bytes) == (os.getpid(), 2048.0 * 1024)
    assert reason(first.sm_ratio) is Reason.WARMING_UP
    first_s = time.monotonic()
    while time.monotonic() - first_s < 0.02:
        pass
    busy_ns = 10**9 + 10_000_000
    tree.process(os.getpid(), {"5": compute.format(busy_ns), "6": compute.format(busy_ns)})
    (second,) = read(gpu).processes
    longest_s = time.monotonic() - begun_s
    assert isinstance(second.sm_ratio, float)
    assert 0.01 / longest_s <= second.sm_ratio <= 0.5


def test_a_card_that_the_catalogue_lacks_goes_by_libdrm_then_its_ids(tree: Tree) -> None:
    tree.card("card0", dumps.RX_580)
    gpu = read(opened(amdgpu(tree.root)))
    assert (gpu.name, gpu.uuid) == ("AMD GPU 1002:67df", "pci-0000:09:00.0")
    assert gpu.temperature_c == 44.0
    write(tree.root, {"usr/share/libdrm/amdgpu.ids": "# List\n67DF,\tE7,\tRadeon RX 580 Series\n"})
    assert read(opened(amdgpu(tree.root))).name == "Radeon RX 580 Series"


def test_a_list_of_levels_that_ends_below_the_boost_is_no_highest_clock(tree: Tree) -> None:
    device = tree.card("card0", dumps.RX_9070_XT)
    gpu = opened(amdgpu(tree.root))
    assert read(gpu).sm_clock_max_hz == 1000e6
    write(device, {"hwmon/hwmon5/freq1_input": "2970000000\n"})
    boosted = read(gpu)
    assert (boosted.sm_clock_hz, reason(boosted.sm_clock_max_hz)) == (2970e6, Reason.INVALID)
    write(device, {"hwmon/hwmon5/freq1_input": "100000000\n"})
    assert reason(read(gpu).sm_clock_max_hz) is Reason.INVALID


@pytest.mark.parametrize(
    ("file", "text", "field", "why"),
    [
        ("gpu_busy_percent", "N/A\n", "busy_ratio", Reason.NOT_SUPPORTED),
        ("gpu_busy_percent", "", "busy_ratio", Reason.NOT_SUPPORTED),
        ("gpu_busy_percent", "65535\n", "busy_ratio", Reason.INVALID),
        ("gpu_busy_percent", "140\n", "busy_ratio", Reason.INVALID),
        ("gpu_busy_percent", "-1\n", "busy_ratio", Reason.INVALID),
        ("gpu_busy_percent", "\x1b[2J", "busy_ratio", Reason.INVALID),
        ("gpu_busy_percent", "nan\n", "busy_ratio", Reason.INVALID),
        ("mem_info_vram_used", "18446744073709551615\n", "vram_used_bytes", Reason.NOT_SUPPORTED),
        ("mem_info_vram_used", "99999999999999\n", "vram_used_bytes", Reason.INVALID),
        ("hwmon/hwmon8/power1_average", "65535000000\n", "power_w", Reason.INVALID),
        ("hwmon/hwmon8/temp2_input", "-273150\n", "temperature_c", Reason.INVALID),
        ("hwmon/hwmon8/power1_cap", "0\n", "power_limit_w", Reason.NOT_SUPPORTED),
        ("current_link_speed", "Unknown\n", "pcie_generation", Reason.INVALID),
        ("current_link_speed", "7.0 GT/s PCIe\n", "pcie_generation", Reason.INVALID),
        ("pp_dpm_sclk", "\n", "sm_clock_max_hz", Reason.NOT_SUPPORTED),
    ],
)
def test_what_can_not_be_is_no_number(tree: Tree, file: str, text: str, field: str, why: Reason) -> None:
    device = tree.card("card0", dumps.RX_7900_XTX)
    write(device, {file: text})
    gpu = read(opened(amdgpu(tree.root)))
    value = getattr(gpu, field)
    assert reason(value) is why
    assert "\x1b" not in value.detail
    assert gpu.state is GpuState.OK


def test_files_that_are_missing_or_fail_cost_one_figure_each(tree: Tree) -> None:
    device = tree.card("card0", dumps.RX_7900_XTX)
    (device / "mem_busy_percent").unlink()
    (device / "mem_info_vram_used").unlink()
    (device / "mem_info_vram_used").mkdir()
    busy = device / "gpu_busy_percent"
    busy.unlink()
    busy.symlink_to("/proc/self/mem")  # reading its beginning is an I/O error
    pipe = device / "hwmon/hwmon8/power1_average"
    pipe.unlink()
    os.mkfifo(pipe)  # no writer: an empty answer, and no wait
    gpu = opened(amdgpu(tree.root))
    reading = read(gpu)
    assert [reason(reading.memory_busy_ratio), reason(reading.vram_used_bytes)] == [Reason.NOT_SUPPORTED] * 2
    assert reason(reading.busy_ratio) is Reason.ERROR
    assert reason(reading.power_w) is Reason.NOT_SUPPORTED
    assert (reading.state, reading.temperature_c) == (GpuState.OK, 61.0)
    busy.unlink()
    busy.write_text("12\n")
    later = time.monotonic() + 10.0
    (after,) = gpu.read(later, (), Pcie.OFF)
    assert after.busy_ratio == pytest.approx(0.12)
    busy.unlink()
    busy.symlink_to("/proc/self/mem")
    gpu.read(later + 1.0, (), Pcie.OFF)
    assert list(gpu.troubles()) == ["device/gpu_busy_percent"]


def test_a_card_that_sleeps_is_not_woken(tree: Tree) -> None:
    device = tree.card("card0", dumps.RX_7900_XTX)
    gpu = opened(amdgpu(tree.root))
    awake = read(gpu)
    write(device, {"power/runtime_status": "suspended\n"})
    (device / "hwmon/hwmon8/temp2_input").unlink()  # a reading would notice that
    asleep = read(gpu)
    assert reason(asleep.busy_ratio) is Reason.OFF
    assert (asleep.vram_total_bytes, asleep.state) == (awake.vram_total_bytes, GpuState.OK)
    write(device, {"power/runtime_status": "active\n", "hwmon/hwmon8/temp2_input": "40000\n"})
    assert read(gpu).temperature_c == 40.0


def test_a_card_that_sleeps_from_the_first_look_on_says_so(tree: Tree) -> None:
    device = tree.card("card0", dumps.RX_7900_XTX)
    write(device, {"power/runtime_status": "suspended\n"})
    gpu = opened(amdgpu(tree.root))
    asleep = read(gpu)
    for reading in (asleep.busy_ratio, asleep.temperature_c, asleep.vram_total_bytes):
        assert reason(reading) is Reason.OFF
    assert reason(asleep.energy_j) is Reason.NOT_SUPPORTED
    write(device, {"power/runtime_status": "active\n"})
    assert isinstance(read(gpu).vram_total_bytes, float)


def test_new_sensor_folders_after_a_reload_are_found(tree: Tree) -> None:
    device = tree.card("card0", dumps.RX_7900_XTX)
    driver = amdgpu(tree.root)
    gpu = opened(driver)
    read(gpu)
    assert driver.open(0, gpu, EAGER, CallTrace()) is gpu
    (device / "hwmon/hwmon8").rename(device / "hwmon/hwmon3")
    with pytest.raises(HandleStaleError):
        read(gpu)
    driver.count()
    fresh = driver.open(0, gpu, EAGER, CallTrace())
    assert fresh is not gpu
    assert read(fresh).power_w == pytest.approx(68.0)


def test_a_card_that_is_unplugged_stays_as_lost(tree: Tree) -> None:
    tree.card("card0", dumps.RX_7900_XTX)
    tree.card("card1", dumps.MI300X)
    tree.card("card2", dumps.B580)
    fleet = DriverGpus(amdgpu(tree.root), EAGER, Chosen())
    rows = fleet.read(time.monotonic())
    assert [(row.index, row.name) for row in rows] == [
        (0, "AMD Radeon RX 7900 XTX"),
        (1, "AMD Instinct MI300X"),
    ]
    tree.unplug("card1")
    rows = fleet.read(time.monotonic())
    assert [row.state for row in rows] == [GpuState.OK, GpuState.LOST]
    assert "unplugged" in rows[1].state_text
    tree.unplug("card0")
    assert [row.state for row in fleet.read(time.monotonic())] == [GpuState.LOST, GpuState.LOST]


async def test_the_real_worker_reads_them(tree: Tree) -> None:
    tree.card("card0", dumps.MI300X)
    worker = replace(AMD, module="tests.fakes.sysfs_driver")
    env = {**os.environ, "GPUMON_FAKE_SYSFS": str(tree.root)}
    source = DriverSource(INTERVAL_S, worker, env=env, limits=LIMITS, timings=TIMINGS)
    await source.start()
    try:
        found = await Rig(source).until(lambda found: bool(found.gpus))
    finally:
        await source.close()
    (gpu,) = found.gpus
    assert (gpu.name, gpu.state, gpu.busy_ratio) == ("AMD Instinct MI300X", GpuState.OK, pytest.approx(0.97))
    assert found.driver == "amdgpu (sysfs), unverified on hardware"
    assert not found.faults


def test_cards_of_one_chip_are_told_apart(tree: Tree) -> None:
    """Virtual functions have the number of their chip."""
    tree.card("card1", dumps.MI300X)
    second = {**dumps.MI300X, "device/uevent": dumps.MI300X["device/uevent"].replace("05:00.0", "05:02.0")}
    tree.card("card2", second)
    driver = amdgpu(tree.root)
    assert [opened(driver, index).uuid for index in (0, 1)] == ["pci-0000:05:00.0", "pci-0000:05:02.0"]


def test_which_driver_a_host_without_nodes_has(tree: Tree, tmp_path: Path) -> None:
    dev = tmp_path / "dev"
    dev.mkdir()
    assert vendor_of(dev, tree.sys) is NVIDIA
    tree.card("card0", dumps.RX_7900_XTX)
    assert vendor_of(dev, tree.sys) is AMD
    (dev / "nvidiactl").touch()
    assert vendor_of(dev, tree.sys) is NVIDIA


async def test_the_doctor_says_what_amd_smi_would_add_and_how_to_install_it(tree: Tree) -> None:
    tree.card("card0", dumps.RX_7900_XTX)
    gpu = read(opened(amdgpu(tree.root)))
    found = Contribution(gpus=(gpu,), driver="amdgpu (sysfs), unverified on hardware")
    checks = [*await driver_checks(found, AMD), *gpu_checks(found.gpus, gpu_catalogue())]
    by_name = {check.name: check for check in checks}
    assert "throttling, XGMI links, bad pages" in by_name["AMD SMI"].text
    assert "amd-smi-lib" in by_name["AMD SMI"].fix
    assert by_name["0"].text == "AMD Radeon RX 7900 XTX"
    assert "960 GB/s" in by_name["0 peaks"].text
    assert by_name["0 activity"].state is CheckState.OFF
    assert [check for check in sysfs_checks(found, AMD, tree.sys) if check.name == "integrated GPU"] == []


def test_the_doctor_names_the_gpu_of_the_cpu(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPUMON_INTEGRATED_GPUS", raising=False)
    tree.card("card0", dumps.INTEGRATED)
    (check,) = sysfs_checks(Contribution(), NVIDIA, tree.sys)
    assert "0000:00:02.0" in check.text
    assert "GPUMON_INTEGRATED_GPUS=1" in check.fix
    monkeypatch.setenv("GPUMON_INTEGRATED_GPUS", "1")
    assert list(sysfs_checks(Contribution(), NVIDIA, tree.sys)) == []


@each_row(
    ("code", "why", "is_usual"),
    [
        (errno.EBUSY, Reason.ERROR, True),
        (errno.ETIME, Reason.ERROR, True),
        (errno.EPERM, Reason.OFF, True),
        (errno.EACCES, Reason.NO_PERMISSION, False),
        (errno.EOPNOTSUPP, Reason.NOT_SUPPORTED, False),
        (errno.EREMOTEIO, Reason.ERROR, False),
    ],
)
def test_what_the_kernels_error_numbers_mean(code: int, why: Reason, is_usual: bool) -> None:
    number = code_of(OSError(code, os.strerror(code)))
    assert number is not None
    rule = RULES[number]
    assert (rule.reason, rule.usual) == (why, is_usual)


def test_the_doctor_has_the_line_that_installs_the_binding(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.card("card0", dumps.RX_7900_XTX)
    found = Contribution(gpus=(read(opened(amdgpu(tree.root))),))
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    (check,) = sysfs_checks(found, AMD, tree.sys)
    assert check.text.startswith("its Python package amdsmi is not installed")
    assert check.fix.startswith(f"{sys.executable} -m pip install 'amdsmi>=7.0'")

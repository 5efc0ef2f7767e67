"""AMD's GPUs: the real binding on a fake of AMD's library, in the real worker."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from gpumon.config.schema import Config
from gpumon.efficiency.deriver import Deriver
from gpumon.efficiency.peaks import gpu_facts
from gpumon.readings.amd import AMDSMI_FIGURES
from gpumon.readings.cadence import MINUTE, SLOW, TICK
from gpumon.readings.frame import Frame, GpuState, HostReading
from gpumon.readings.missing import Missing, Reason
from gpumon.sources.driver.calls import CallTrace
from gpumon.sources.driver.fleet import Pcie
from gpumon.sources.driver.source import AMD, DriverSource, vendor_of
from gpumon.sources.gpu_checks import driver_checks, gpu_checks
from gpumon.sources.packaged import gpu_catalogue
from gpumon.sources.source import Contribution
from gpumon.sources.sysfs.rates import FIRST_READING
from gpumon.specs.gpus import bandwidth_peak
from gpumon.specs.precision import Precision
from gpumon.tui.detail.blocks import Figure
from gpumon.tui.detail.gpu import sections
from gpumon.tui.view import View
from tests.efficiency.back_ends import unreadable_amd_gpu
from tests.fakes.amd.library import FakeAmd
from tests.sources.nvml.rig import INTERVAL_S, LIMITS, TIMINGS, Rig, faults

MIB = 2.0**20


@pytest.fixture
def amd(tmp_path: Path) -> FakeAmd:
    return FakeAmd(tmp_path)


@asynccontextmanager
async def running(amd: FakeAmd, script: str) -> AsyncIterator[Rig]:
    amd.write(script)
    source = DriverSource(INTERVAL_S, AMD, env=amd.env(), limits=LIMITS, timings=TIMINGS)
    await source.start()
    try:
        yield Rig(source)
    finally:
        await source.close()


def rows(count: int) -> Callable[[Contribution], bool]:
    return lambda found: [gpu.state for gpu in found.gpus].count(GpuState.OK) == count


async def test_every_figure_of_an_mi300x(amd: FakeAmd) -> None:
    script = f"""gpus 1
0 busy 63
0 umc 41
0 used_mib 150000
0 power_w 612
0 hotspot_c 71
0 memory_c 58
0 clock_mhz 2090
0 memory_mhz 1300
0 energy_j 123456
0 corrected 3
0 process {os.getpid()}
"""
    async with running(amd, script) as rig:
        (gpu,) = await rig.gpus(1)
        found = await rig.poll()
    assert (gpu.index, gpu.uuid, gpu.source) == (0, "2fff75a1-0000-1000-80fa-000000000000", "amdsmi")
    assert (gpu.name, gpu.sm_count) == ("AMD Instinct MI300X", 304.0)
    assert (gpu.busy_ratio, gpu.memory_busy_ratio) == pytest.approx((0.63, 0.41))
    assert (gpu.vram_used_bytes, gpu.vram_total_bytes) == (150000 * MIB, 196592 * MIB)
    assert (gpu.power_w, gpu.power_limit_w, gpu.power_default_w) == (612.0, 750.0, 750.0)
    assert (gpu.temperature_c, gpu.memory_temperature_c) == (71.0, 58.0)
    assert (gpu.sm_clock_hz, gpu.sm_clock_max_hz, gpu.memory_clock_hz) == (2090e6, 2100e6, 1300e6)
    assert gpu.energy_j == pytest.approx(123456.0)
    assert (gpu.ecc_corrected, gpu.ecc_uncorrected) == (3.0, 0.0)
    assert isinstance(gpu.dram_active_ratio, Missing)
    (process,) = gpu.processes
    assert (process.pid, process.user) == (os.getpid(), psutil.Process().username())
    assert process.vram_bytes == 150000 * MIB
    assert "unverified on hardware" in found.driver
    peaks = gpu_catalogue().match(gpu_facts(gpu))
    assert peaks is not None
    assert peaks.flops_per_s[Precision.BF16] == pytest.approx(1307.4e12)
    assert peaks.bandwidth_bytes_per_s == pytest.approx(5325e9)


async def test_mi200_gives_its_average_power_and_each_die_is_a_gpu(amd: FakeAmd) -> None:
    script = "gpus 2\n* name AMD Instinct MI250X\n* vram_mib 65520\n* units 110\n* power_w 65535\n* average_w 305\n"
    async with running(amd, script) as rig:
        gpus = await rig.gpus(1)
    assert [gpu.power_w for gpu in gpus] == [305.0, 305.0]
    peaks = gpu_catalogue().match(gpu_facts(gpus[1]))
    assert peaks is not None
    assert (peaks.bandwidth_bytes_per_s, peaks.flops_per_s[Precision.BF16]) == (1638.4e9, 191.5e12)


async def test_peak_throttling_bad_pages_and_links_of_an_mi355x(amd: FakeAmd) -> None:
    script = """gpus 1
* name AMD Instinct MI355X
* units 256
* vram_mib 294896
0 peak_gbs 7300
0 ppt 1
0 hbm 1
0 bad_pages 7
0 pending 2
0 links 8
0 xgmi 7
0 xgmi_up 6
0 read_kb 1000000
0 write_kb 2000000
0 lanes 8
0 mts 16000
"""
    async with running(amd, script) as rig:
        (gpu,) = await rig.gpus(1)
        assert gpu.throttle == ("sw_power_cap", "hw_thermal_slowdown")
        assert (gpu.bad_pages, gpu.bad_pages_pending) == (7.0, 2.0)
        assert (gpu.xgmi_links, gpu.xgmi_links_up) == (7.0, 6.0)
        assert (gpu.pcie_width, gpu.pcie_width_max) == (8.0, 16.0)
        assert (gpu.pcie_generation, gpu.pcie_generation_max) == (4.0, 5.0)
        facts = gpu_facts(gpu)
        found = bandwidth_peak(facts, gpu_catalogue().match(facts))
        assert found is not None
        assert found[0] == 7300e9
        assert "AMD SMI vram_max_bandwidth" in found[1]
        assert "-9% from catalogue" in found[1]
        await rig.until(lambda found: found.gpus[0].nvlink_tx_bytes_per_s == 0.0)
        amd.write(script.replace("write_kb 2000000", "write_kb 3000000"))
        moved = await rig.until(lambda found: found.gpus[0].nvlink_tx_bytes_per_s not in (0.0, FIRST_READING))
    sent = moved.gpus[0].nvlink_tx_bytes_per_s
    assert isinstance(sent, float)
    # Seven of the eight links are XGMI's: 7e9 bytes between two looks at least 0.3 s apart.
    assert 7e9 / 120.0 < sent <= 7e9 / 0.25
    assert moved.gpus[0].nvlink_rx_bytes_per_s == 0.0


async def test_the_page_names_amds_calls_and_its_faults(amd: FakeAmd) -> None:
    async with running(amd, "gpus 1\n0 bad_pages 3\n0 pending 2\n0 xgmi 7\n0 xgmi_up 6\n") as rig:
        gpus = await rig.gpus(1)
    frame = Frame(1, 1e9, gpus[0].monotonic_s, 1.0, HostReading("a"), gpus)
    snapshot = Deriver(gpu_catalogue()).derive(frame).snapshot
    (shown,) = snapshot.gpus
    named = {field: text for field, text in shown.sources.items() if "nvml" in text.casefold() or "GPM" in text}
    assert set(named) <= {"bandwidth_bytes_per_s"}
    assert shown.sources["busy_ratio"] == "amdsmi_get_gpu_activity gfx_activity"
    texts = " ".join(fault.text for fault in snapshot.faults)
    assert "2 bad memory pages wait to be taken out of use" in texts
    assert "6 of 7 XGMI links are up" in texts
    page = sections(shown, snapshot, View(Config()), None)
    names = {entry.name for section in page for entry in section.entries if isinstance(entry, Figure)}
    assert {"XGMI links up", "XGMI sent", "bad pages to go"} <= names
    assert "NVLink sent" not in names


async def test_a_card_before_mi300_has_no_peak_and_no_links(amd: FakeAmd) -> None:
    async with running(amd, "gpus 1\n0 violation_status 2\n0 gpu_bad_page_info 2\n0 peak_gbs 0\n") as rig:
        (gpu,) = await rig.gpus(1)
    figures = (gpu.memory_peak_bytes_per_s, gpu.bad_pages, gpu.nvlink_tx_bytes_per_s)
    assert [figure.reason for figure in figures if isinstance(figure, Missing)] == [Reason.NOT_SUPPORTED] * 3
    assert gpu.throttle == ()
    assert gpu.state is GpuState.OK


async def test_partitions_that_share_a_uuid_are_rows_of_their_own(amd: FakeAmd) -> None:
    script = """gpus 8
* uuid 0
* bus 5
* units 38
* vram_mib 24574
1 partition 1
2 partition 2
3 gpu_kfd_info 2
3 function 3
4 gpu_kfd_info 2
4 function 3
4 bus 6
5 partition 5
6 partition 6
7 partition 7
"""
    async with running(amd, script) as rig:
        await rig.until(rows(8))
        gpus = await rig.gpus(1)
    uuids = [gpu.uuid.removeprefix("2fff75a1-0000-1000-80fa-000000000000") for gpu in gpus]
    assert uuids[:3] == ["", "/1", "/2"]
    assert uuids[5:] == ["/5", "/6", "/7"]
    assert sorted(uuids[3:5]) in (["/3", "/3@0000:05:00.3"], ["/3", "/3@0000:06:00.3"])
    peaks = gpu_catalogue().match(gpu_facts(gpus[1]))
    assert peaks is not None
    assert peaks.flops_per_s[Precision.BF16] == pytest.approx(1307.4e12 / 8)
    assert (peaks.bandwidth_bytes_per_s, peaks.sm_count) == (5325e9, 38.0)
    assert peaks.note.startswith("one of 8 partitions")


async def test_what_a_card_lacks_and_what_can_not_be_is_no_number(amd: FakeAmd) -> None:
    script = "gpus 1\n0 gpu_total_ecc_count 2\n0 umc 65535\n0 power_w 4300000\n0 hotspot_c 10\n0 power_cap_info 10\n"
    async with running(amd, script) as rig:
        (gpu,) = await rig.gpus(1)
    missing = (gpu.ecc_corrected, gpu.memory_busy_ratio, gpu.power_w, gpu.power_limit_w)
    reasons = [value.reason for value in missing if isinstance(value, Missing)]
    assert reasons == [Reason.NOT_SUPPORTED, Reason.NOT_SUPPORTED, Reason.INVALID, Reason.NO_PERMISSION]
    assert (gpu.state, gpu.temperature_c) == (GpuState.OK, 10.0)


async def test_a_call_that_hangs_costs_one_row_and_one_that_fails_later_is_a_dated_fault(amd: FakeAmd) -> None:
    async with running(amd, "gpus 3\n") as rig:
        await rig.until(rows(3))
        amd.write("gpus 3\n1 gpu_activity -1\n2 power_info 8\n")
        found = await rig.until(lambda found: "does not return" in faults(found) and "power_info" in faults(found))
        before = [gpu.monotonic_s for gpu in found.gpus]
        await rig.poll()
        after = await rig.poll()
    assert "GPU 1: amdsmi_get_gpu_activity does not return" in faults(found)
    assert "GPU 2: amdsmi_get_power_info worked before and fails now" in faults(found)
    ages = [gpu.monotonic_s - begun for gpu, begun in zip(after.gpus, before, strict=True)]
    assert (ages[0] > 0, ages[1], ages[2] > 0) == (True, 0.0, True)
    assert after.pids == found.pids


async def test_a_driver_that_is_not_loaded_is_named_and_comes_back(amd: FakeAmd) -> None:
    async with running(amd, "gpus 2\n0 init 34\n") as rig:
        found = await rig.until(lambda found: "modprobe amdgpu" in faults(found))
        assert not found.gpus
        amd.write("gpus 2\n")
        found = await rig.until(rows(2))
    assert not found.faults


async def test_without_the_library_it_says_what_to_install(amd: FakeAmd) -> None:
    amd.write("gpus 1\n")
    env = {key: value for key, value in amd.env().items() if key != "LD_LIBRARY_PATH"}
    source = DriverSource(INTERVAL_S, AMD, env=env, limits=LIMITS, timings=TIMINGS)
    await source.start()
    try:
        found = await Rig(source).until(lambda found: "amd-smi-lib" in faults(found))
    finally:
        await source.close()
    assert not found.gpus


def test_which_driver_this_host_has(tmp_path: Path) -> None:
    assert vendor_of(tmp_path).source == "nvml"
    (tmp_path / "kfd").touch()
    assert vendor_of(tmp_path) is AMD
    (tmp_path / "nvidiactl").touch()
    assert vendor_of(tmp_path).source == "nvml"


async def test_the_doctor_says_that_it_was_never_tried(amd: FakeAmd) -> None:
    async with running(amd, "gpus 2\n") as rig:
        await rig.gpus(1)
        found = await rig.source.poll(time.monotonic())
        checks = [*await driver_checks(found, AMD), *gpu_checks(found.gpus, gpu_catalogue())]
    text = "\n".join(f"{check.name} {check.text} {check.fix}" for check in checks)
    assert "AMD" in text
    assert "unverified on hardware" in text
    assert "5325 GB/s" in text
    assert "NVIDIA" not in text
    assert "NVreg" not in text


class CallNames(CallTrace):
    """Names of the calls that were made."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def begin(self, name: str) -> None:
        super().begin(name)
        self.names.add(name)


def test_each_call_is_made_as_often_as_the_source_of_its_figures_says() -> None:
    trace = CallNames()
    with unreadable_amd_gpu(trace) as gpu:
        gpu.read(1000.0, (), Pcie.OFF)
        for passed_s, due in ((1.0, (TICK,)), (4.0, (TICK, SLOW)), (60.0, (TICK, SLOW, MINUTE))):
            trace.names.clear()
            gpu.read(1000.0 + passed_s, (), Pcie.OFF)
            expected = {figure.call for figure in AMDSMI_FIGURES if figure.when in due}
            assert trace.names - {"amdsmi_get_gpu_asic_info"} == expected

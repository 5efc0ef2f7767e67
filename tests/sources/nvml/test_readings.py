"""Every figure of a GPU, from the driver's calls through the worker to the reading."""

from __future__ import annotations

import getpass
import os
import time
from collections import Counter

import psutil
import pytest

from gpumon.readings.frame import GpuReading, GpuState
from gpumon.readings.missing import WARMING_UP, Missing, Reason
from gpumon.readings.nvml import NVML_FIGURES
from gpumon.sources.driver.source import spawn
from gpumon.sources.driver.wire import Timings
from tests.fakes.nvml.driver import FakeDriver
from tests.sources.nvml.rig import running

MIB = 1048576.0

H100 = """
gpus 1
profile h100-sxm
gpu 0 busy 91
gpu 0 membusy 71
gpu 0 sm 64
gpu 0 occupancy 31
gpu 0 tensor 22
gpu 0 dram 66.5
gpu 0 pcie_tx_mibs 900
gpu 0 pcie_rx_mibs 1400
gpu 0 nvlink_tx_mibs 30000
gpu 0 nvlink_rx_mibs 20000
gpu 0 used_mib 70000
gpu 0 power_w 612
gpu 0 temp_c 64
gpu 0 mem_temp_c 81
gpu 0 sm_clock_mhz 1905
gpu 0 throttle 0x45
gpu 0 ecc_uncorrected 2
gpu 0 ecc_corrected 7
gpu 0 remap_pending 1
"""

H100_FIGURES = {
    "busy_ratio": 0.91,
    "memory_busy_ratio": 0.71,
    "sm_active_ratio": 0.64,
    "sm_occupancy_ratio": 0.31,
    "tensor_active_ratio": 0.22,
    "dram_active_ratio": 0.665,
    "pcie_tx_bytes_per_s": 900 * MIB,
    "pcie_rx_bytes_per_s": 1400 * MIB,
    "nvlink_tx_bytes_per_s": 30000 * MIB,
    "nvlink_rx_bytes_per_s": 20000 * MIB,
    "vram_used_bytes": 70000 * MIB,
    "vram_total_bytes": 81559 * MIB,
    "vram_reserved_bytes": 551 * MIB,
    "power_w": 612.0,
    "power_limit_w": 700.0,
    "power_default_w": 700.0,
    "temperature_c": 64.0,
    "memory_temperature_c": 81.0,
    "sm_clock_hz": 1905e6,
    "sm_clock_max_hz": 1980e6,
    "memory_clock_hz": 2619e6,
    "memory_clock_max_hz": 2619e6,
    "memory_bus_bits": 5120.0,
    "sm_count": 132.0,
    "ecc_uncorrected": 2.0,
    "ecc_corrected": 7.0,
    "remap_pending": 1.0,
    "remap_failed": 0.0,
    "pcie_generation": 5.0,
    "pcie_generation_max": 5.0,
    "pcie_width": 16.0,
    "pcie_width_max": 16.0,
    "persistence_mode": 1.0,
    "ecc_mode": 1.0,
}


def reason(reading: GpuReading, field: str) -> Reason | None:
    """Why a field is missing; None where it is there."""
    value = getattr(reading, field)
    return value.reason if isinstance(value, Missing) else None


async def test_every_figure_of_an_h100(fake_driver: FakeDriver) -> None:
    async with running(fake_driver, H100, spawn=spawn) as rig:
        (gpu,) = await rig.gpus()
        found = await rig.poll()
        workers = [psutil.Process(pid).cmdline() for pid in found.pids]
    assert {field: getattr(gpu, field) for field in H100_FIGURES} == pytest.approx(H100_FIGURES)
    assert (gpu.index, gpu.name, gpu.state, gpu.compute_capability) == (0, "NVIDIA H100 80GB HBM3", GpuState.OK, "9.0")
    assert gpu.architecture == 9, "NVML_DEVICE_ARCH_HOPPER"
    assert gpu.throttle == ("sw_power_cap", "hw_thermal_slowdown")
    assert gpu.uuid.startswith("GPU-")
    assert not gpu.vram_shared
    assert not gpu.mig
    assert (found.driver, found.cuda) == ("580.95.05", "13.0")
    assert found.faults == ()
    assert ["gpumon.sources.nvml.driver" in command for command in workers] == [True]
    assert abs(found.gpus[0].monotonic_s - time.monotonic()) < 20.0


def test_each_row_of_the_table_of_calls_has_one_number(fake_driver: FakeDriver) -> None:
    fake_driver.write(f"{H100}gpu 0 fan 30\n")
    answers = fake_driver.ask("""
        from gpumon.sources.nvml import figures

        nvmlInit()
        gpu = nvmlDeviceGetHandleByIndex(0)
        answer = {}
        for gauge in (*figures.TICK, *figures.SLOW, *figures.ENERGY, *figures.MINUTE):
            _, call, arguments = gauge.calls[0]
            try:
                told = globals()[call](gpu, *arguments)
            except NVMLError_FunctionNotFound:
                answer[gauge.field] = [False, f"tests/fakes/nvml/src has no {call}"]
                continue
            number = gauge.part_of(told) if gauge.part_of else told
            fault = f"{call} gives {told}: `part` in its row (gpumon/readings/nvml.py) says which is {gauge.field}"
            answer[gauge.field] = [isinstance(number, (int, float)), fault]
    """)
    assert set(answers) == {figure.field for figure in NVML_FIGURES}, "each is read at some time"
    for is_number, fault in answers.values():
        assert is_number, fault


async def test_gpm_needs_two_samples_and_says_so(fake_driver: FakeDriver) -> None:
    async with running(fake_driver, H100) as rig:
        await rig.source.ready(60.0)
        first = (await rig.poll()).gpus[0]
        second = (await rig.until(lambda found: found.gpus[0].sm_active_ratio != WARMING_UP)).gpus[0]
    assert first.sm_active_ratio == WARMING_UP
    assert first.busy_ratio == 0.91
    assert second.sm_active_ratio == pytest.approx(0.64)


async def test_samples_of_gpm_lie_apart_where_a_call_before_the_first_is_slow(fake_driver: FakeDriver) -> None:
    slow = f"{H100}gpu 0 call nvmlDeviceGetPowerManagementDefaultLimit hang:0.4\n"
    async with running(fake_driver, slow) as rig:
        await rig.source.ready(60.0)
        activities = [(await rig.poll()).gpus[0].sm_active_ratio for _ in range(12)]
    numbers = [activity for activity in activities if activity != WARMING_UP]
    assert numbers
    assert numbers == pytest.approx([0.64] * len(numbers)), "two samples that are too close give nothing, or zeros"


async def test_energy_is_the_integral_of_power(fake_driver: FakeDriver) -> None:
    async with running(fake_driver, "gpu 0 power_w 500\n") as rig:
        before = (await rig.gpus(0))[0]
        after = (await rig.gpus(4))[0]
    joules = after.energy_j - before.energy_j
    seconds = after.monotonic_s - before.monotonic_s
    assert joules / seconds == pytest.approx(500.0, rel=0.5), "each is taken at a moment of its own"


async def test_a_bit_without_a_name_is_shown_as_it_is(fake_driver: FakeDriver) -> None:
    async with running(fake_driver, "gpu 0 throttle 0x1082\n") as rig:
        (gpu,) = await rig.gpus(0)
    assert gpu.throttle == ("applications_clocks_setting", "hw_power_brake_slowdown", "0x1000")


async def test_a_gpu_without_gpm_has_nvlink_from_its_counters(fake_driver: FakeDriver) -> None:
    script = "profile a100-sxm\ngpu 0 busy 50\ngpu 0 nvlink_tx_mibs 1000\ngpu 0 nvlink_rx_mibs 500\n"
    async with running(fake_driver, script) as rig:
        # A rate is off where the worker loses its core between the counter and its clock.
        near = pytest.approx(1000 * MIB, rel=0.05)
        (gpu,) = (await rig.until(lambda found: bool(found.gpus) and found.gpus[0].nvlink_tx_bytes_per_s == near)).gpus
    assert gpu.busy_ratio == 0.5
    assert gpu.sm_count == 108.0
    assert [reason(gpu, field) for field in ("sm_active_ratio", "dram_active_ratio", "pcie_tx_bytes_per_s")] == [
        Reason.NOT_SUPPORTED
    ] * 3
    assert "Hopper" in gpu.sm_active_ratio.detail
    assert gpu.nvlink_rx_bytes_per_s == pytest.approx(gpu.nvlink_tx_bytes_per_s / 2, rel=0.4)


async def test_unified_memory_is_the_hosts_and_says_so(fake_driver: FakeDriver) -> None:
    async with running(fake_driver, "profile gb10\ngpu 0 busy 40\n") as rig:
        (gpu,) = await rig.gpus(0)
    host = psutil.virtual_memory()
    assert gpu.vram_shared
    assert gpu.vram_total_bytes == host.total
    assert gpu.vram_used_bytes == pytest.approx(host.total - host.available, rel=0.2)
    assert gpu.busy_ratio == 0.4
    for field in ("memory_busy_ratio", "memory_bus_bits", "memory_clock_hz", "power_limit_w", "pcie_width"):
        assert reason(gpu, field) is Reason.NOT_SUPPORTED, field


MEMORIES = [
    (("total_mib 0",), False),
    (("total_mib unsupported",), False),
    (("total_mib 0", "name NVIDIA Thor"), True),
    (("total_mib unsupported", "addressing 2"), True),
    (("call nvmlDeviceGetMemoryInfo* unknown", "name NVIDIA GB10"), False),
]
"""What the driver says of a GPU, and whether its memory is the host's."""


async def test_only_a_gpu_without_framebuffer_falls_to_host_memory(fake_driver: FakeDriver) -> None:
    lines = [f"gpu {index} {line}\n" for index, (lines, _) in enumerate(MEMORIES) for line in lines]
    async with running(fake_driver, f"gpus {len(MEMORIES)}\n{''.join(lines)}") as rig:
        gpus = await rig.gpus(0)
    for gpu, (said, shared) in zip(gpus, MEMORIES, strict=True):
        assert gpu.vram_shared is shared, said
        assert isinstance(gpu.vram_total_bytes, Missing) is not shared


async def test_numbers_that_can_not_be_are_no_numbers(fake_driver: FakeDriver) -> None:
    script = "gpu 0 busy 250\ngpu 0 sm nan\ngpu 0 dram 4000\ngpu 0 tensor 30\ngpu 0 temp_c 9999\n"
    async with running(fake_driver, script) as rig:
        (gpu,) = await rig.gpus()
    wrong = ("busy_ratio", "sm_active_ratio", "dram_active_ratio", "temperature_c")
    assert [reason(gpu, field) for field in wrong] == [Reason.INVALID] * 4
    assert gpu.tensor_active_ratio == pytest.approx(0.3)


async def test_inside_a_vgpu_gpm_is_not_even_tried(fake_driver: FakeDriver) -> None:
    async with running(fake_driver, "gpu 0 virtualization 2\ngpu 0 busy 10\n") as rig:
        (gpu,) = await rig.gpus()
    assert reason(gpu, "sm_active_ratio") is Reason.NOT_SUPPORTED
    assert "vGPU" in gpu.sm_active_ratio.detail
    assert gpu.busy_ratio == 0.1
    assert fake_driver.calls()["nvmlGpmSampleGet"] == 0


async def test_gpm_that_fails_only_when_sampled_is_off_for_good(fake_driver: FakeDriver) -> None:
    async with running(fake_driver, "gpu 0 call nvmlGpmSampleGet not_supported\n") as rig:
        (gpu,) = await rig.gpus(4)
    assert reason(gpu, "dram_active_ratio") is Reason.NOT_SUPPORTED
    assert fake_driver.calls()["nvmlGpmSampleGet"] == 1


async def test_restricted_gpm_names_the_switch_and_is_tried_again_later(fake_driver: FakeDriver) -> None:
    script = "gpu 0 sm 50\ngpu 0 call nvmlGpmSampleGet no_permission\n"
    async with running(fake_driver, script, timings=Timings(permission_s=2.5)) as rig:
        (gpu,) = await rig.gpus(2)
        assert reason(gpu, "sm_active_ratio") is Reason.NO_PERMISSION
        assert "NVreg_RestrictProfilingToAdminUsers" in gpu.sm_active_ratio.detail
        assert fake_driver.calls()["nvmlGpmSampleGet"] == 1
        fake_driver.write("gpu 0 sm 50\n")
        found = await rig.until(lambda found: not isinstance(found.gpus[0].sm_active_ratio, Missing))
    assert found.gpus[0].sm_active_ratio == pytest.approx(0.5)


async def test_mig_slices_are_rows_of_their_own(fake_driver: FakeDriver) -> None:
    script = "profile h100-mig\ngpu 0/0 sm 40\ngpu 0/0 dram 20\ngpu 0/1 process 2000000000 1000\ngpu 0 power_w 333\n"
    async with running(fake_driver, script) as rig:
        parent, first, second = await rig.gpus()
    assert parent.mig
    assert parent.power_w == 333.0
    assert reason(parent, "busy_ratio") is Reason.UNDER_MIG
    assert reason(parent, "sm_active_ratio") is Reason.UNDER_MIG
    assert parent.processes == ()
    assert [part.parent_uuid for part in (first, second)] == [parent.uuid] * 2
    assert len({parent.uuid, first.uuid, second.uuid}) == 3
    assert (first.mig_profile, first.index, first.sm_count) == ("3g.40gb", 0, 60.0)
    assert first.sm_active_ratio == pytest.approx(0.4)
    assert first.dram_active_ratio == pytest.approx(0.2)
    assert second.vram_used_bytes == 1000 * MIB
    assert [process.pid for process in second.processes] == [2000000000]
    for field in ("busy_ratio", "power_w", "temperature_c", "pcie_tx_bytes_per_s", "nvlink_rx_bytes_per_s"):
        assert reason(first, field) is Reason.UNDER_MIG, field


async def test_mig_slices_come_and_go(fake_driver: FakeDriver) -> None:
    async with running(fake_driver, "profile h100-sxm\ngpu 0 busy 20\n") as rig:
        (whole,) = await rig.gpus(0)
        fake_driver.write("profile h100-sxm\ngpu 0 mig 3 2g.20gb\n")
        split = (await rig.until(lambda found: len(found.gpus) == 4)).gpus
        fake_driver.write("profile h100-sxm\ngpu 0 mig 1 7g.80gb\n")
        one = (await rig.until(lambda found: found.gpus[-1].mig_profile == "7g.80gb")).gpus
        fake_driver.write("profile h100-sxm\ngpu 0 busy 20\n")
        (again,) = (await rig.until(lambda found: not found.gpus[0].mig)).gpus
    assert whole.busy_ratio == again.busy_ratio == 0.2
    assert {part.mig_profile for part in split[1:]} == {"2g.20gb"}
    assert len(one) == 2
    assert not again.mig


async def test_slices_that_are_closed_to_the_user_are_named(fake_driver: FakeDriver) -> None:
    script = "profile h100-mig\ngpu 0 call nvmlDeviceGetMigDeviceHandleByIndex no_permission\n"
    async with running(fake_driver, script) as rig:
        (parent,) = await rig.gpus(0)
    assert parent.mig
    assert "nvidia-caps" in parent.state_text


async def test_processes_have_name_user_memory_and_share(fake_driver: FakeDriver) -> None:
    own, gone = os.getpid(), 2_000_000_000
    script = (
        f"gpu 0 process {own} 4096 compute 60\ngpu 0 process {own} 4096 graphics\n"
        f"gpu 0 process {gone} 9000 compute 250\ngpu 0 process {os.getppid()} - mps\n"
    )
    async with running(fake_driver, script) as rig:
        (gpu,) = await rig.gpus(0)
    foreign, mine, parent = gpu.processes
    assert (foreign.pid, foreign.name, foreign.user) == (gone, f"{gone} (host)", "")
    assert isinstance(foreign.sm_ratio, Missing)
    assert (mine.pid, mine.name, mine.user) == (own, psutil.Process(own).name(), getpass.getuser())
    assert (mine.vram_bytes, mine.type) == (4096 * MIB, "compute")
    assert mine.sm_ratio == pytest.approx(0.6)
    assert (parent.pid, parent.type) == (os.getppid(), "mps")
    assert parent.vram_bytes == Missing(Reason.NOT_SUPPORTED)


async def test_a_gpu_without_processes_has_none(fake_driver: FakeDriver) -> None:
    async with running(fake_driver, "gpus 1\n") as rig:
        (gpu,) = await rig.gpus(0)
    assert gpu.processes == ()


async def test_the_tiers_keep_their_pace(fake_driver: FakeDriver) -> None:
    timings = Timings(slow_s=1.2, energy_s=600.0, minute_s=600.0)
    async with running(fake_driver, "gpus 1\ngpu 0 process 1 100\n", timings=timings) as rig:
        await rig.gpus(9)
        lines = fake_driver.call_lines()
    calls = Counter(line.name for line in lines)
    looks = calls["nvmlDeviceGetCurrPcieLinkWidth"]
    ticks = calls["nvmlDeviceGetUtilizationRates"]
    assert ticks >= 10
    for name in ("MemoryInfo_v2", "PowerUsage", "CurrentClocksEventReasons"):
        assert calls[f"nvmlDeviceGet{name}"] == ticks, name
    assert calls["nvmlGpmSampleGet"] >= ticks - 1
    assert looks >= 2
    elapsed_s = lines[-1].realtime_s - lines[0].realtime_s
    assert looks <= 2 + elapsed_s / timings.slow_s, "a busy machine makes one look late, and not more of them"
    for name in ("RemappedRows", "Name"):
        assert calls[f"nvmlDeviceGet{name}"] == 1, name
    assert calls["nvmlDeviceGetTotalEnergyConsumption"] == 2, "the second soon after the first"
    assert calls["nvmlInitWithFlags"] == 1


async def test_an_energy_counter_that_could_not_be_read_is_read_again_soon(fake_driver: FakeDriver) -> None:
    timings = Timings(energy_s=600.0, backoff_s=0.1)
    failing = "gpus 1\ngpu 0 call nvmlDeviceGetTotalEnergyConsumption unknown\n"
    async with running(fake_driver, failing, timings=timings) as rig:
        while fake_driver.calls()["nvmlDeviceGetTotalEnergyConsumption"] < 2:
            (failed,) = await rig.gpus(1)
        fake_driver.write("gpus 1\n")
        await rig.until(lambda found: not isinstance(found.gpus[0].energy_j, Missing))
    assert isinstance(failed.energy_j, Missing)


async def test_unsupported_calls_are_made_once_and_the_pcie_meter_never(fake_driver: FakeDriver) -> None:
    async with running(fake_driver, "gpus 2\nprofile gb10\n") as rig:
        await rig.gpus(6)
        calls = fake_driver.calls()
    assert calls["nvmlDeviceGetUtilizationRates"] >= 14
    for name in ("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryBusWidth"):
        assert calls[name] == 2, name
    assert calls["nvmlDeviceGetPcieThroughput"] == 0
    assert not [name for name in calls if name.startswith(("nvmlDeviceSet", "nvmlGpmSet"))]


async def test_an_old_driver_is_read_through_its_older_calls(tmp_path_factory: pytest.TempPathFactory) -> None:
    lacking = [
        *("nvmlDeviceGetTemperatureV", "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetMemoryInfo_v2"),
        *(f"nvmlDeviceGet{kind}RunningProcesses_v3" for kind in ("Compute", "Graphics", "MPSCompute")),
        *("nvmlDeviceGetMemoryBusWidth", "nvmlGpmQueryDeviceSupport", "nvmlGpmSampleGet", "nvmlGpmSampleAlloc"),
    ]
    driver = FakeDriver(tmp_path_factory.mktemp("old"), log=True, without=lacking)
    script = f"gpu 0 temp_c 55\ngpu 0 throttle 4\ngpu 0 used_mib 1000\ngpu 0 process {os.getpid()} 500\n"
    async with running(driver, script) as rig:
        (gpu,) = await rig.gpus()
    assert gpu.temperature_c == 55.0
    assert gpu.throttle == ("sw_power_cap",)
    assert gpu.vram_used_bytes == (1000 + 551) * MIB
    assert reason(gpu, "vram_reserved_bytes") is Reason.NOT_SUPPORTED
    assert reason(gpu, "memory_bus_bits") is Reason.NOT_SUPPORTED
    assert reason(gpu, "sm_active_ratio") is Reason.NOT_SUPPORTED
    assert [process.pid for process in gpu.processes] == [os.getpid()]

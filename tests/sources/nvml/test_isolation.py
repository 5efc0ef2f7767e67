"""What one GPU costs the others: a call that hangs, for every call; and calls that worked before and fail now."""

from __future__ import annotations

import statistics
import time
from itertools import pairwise
from pathlib import Path

import pytest

from gpumon.readings.frame import GpuReading, GpuState
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.nvml import NVML_FIGURES
from gpumon.sources.driver.source import DriverSource
from gpumon.sources.driver.wire import Timings
from tests.fakes.nvml.driver import FakeDriver
from tests.sources.nvml.rig import INTERVAL_S, faults, running

HEALTHY = "gpus 3\ngpu * busy 50\n"
QUICK = Timings(slow_s=0.3, minute_s=0.5, reprobe_s=0.4, permission_s=300.0, backoff_s=0.3, open_s=0.5)
OTHER_CALLS_TEXT = """
DeviceGetArchitecture DeviceGetComputeRunningProcesses_v3 DeviceGetCudaComputeCapability
DeviceGetCurrentClocksEventReasons DeviceGetFieldValues DeviceGetGraphicsRunningProcesses_v3 DeviceGetHandleByIndex_v2
DeviceGetNvLinkState DeviceGetMPSComputeRunningProcesses_v3 DeviceGetMemoryInfo_v2 DeviceGetMigMode DeviceGetName
DeviceGetNumGpuCores DeviceGetEccMode DeviceGetPciInfo_v3 DeviceGetUUID DeviceGetUtilizationRates
DeviceGetVirtualizationMode DeviceRegisterEvents GpmMetricsGet GpmQueryDeviceSupport GpmSampleGet
"""
"""Calls beside those of the figures that NVML gives as they are."""
BINDING = {"DeviceGetEccMode": "DeviceGetCurrentEccMode"}
"""Calls that pynvml makes in a function of another name."""
FIGURES_CALLS = {figure.call.removeprefix("nvml") for figure in NVML_FIGURES}
CALLS = sorted({*OTHER_CALLS_TEXT.split(), *FIGURES_CALLS} - {*BINDING.values()})
SERVERS = 4
"""Servers over which the calls are spread: on each GPU of one, but for the first and the last, another call hangs."""


@pytest.mark.parametrize("server", range(SERVERS))
async def test_a_call_that_hangs_costs_one_row(fake_driver: FakeDriver, server: int) -> None:
    hung = dict(enumerate(CALLS[server::SERVERS], 1))
    last = len(hung) + 1
    hangs = "".join(f"gpu {index} call nvml{call} hang\n" for index, call in hung.items())
    async with running(fake_driver, f"gpus {last + 1}\ngpu * busy 50\n{hangs}", timings=QUICK) as rig:
        first = await rig.until(lambda found: [gpu.state for gpu in found.gpus].count(GpuState.OK) >= 2)
        moments: set[tuple[float, float]] = set()
        while len(moments) < 7:
            found = await rig.poll()
            moments.add((found.gpus[0].monotonic_s, found.gpus[last].monotonic_s))
            assert [found.gpus[i].state for i in (0, last)] == [GpuState.OK] * 2
        asked = {each.name for each in fake_driver.call_lines() if each.device in map(str, hung)}
    assert asked <= {f"nvml{name}" for name in CALLS}, "OTHER_CALLS_TEXT has each call beside those of NVML_FIGURES"
    assert found.pids == first.pids, "the worker is kept"
    gaps = [b - a for row in zip(*sorted(moments), strict=True) for a, b in pairwise(row)]
    assert statistics.median(gaps) < 5 * INTERVAL_S, "the rows of the others stay live"
    assert [gpu.index for gpu in found.gpus] == list(range(last + 1))
    for index, call in hung.items():
        if call == "GpmMetricsGet":  # made at the second look only
            assert f"GPU {index}: nvmlGpmMetricsGet does not return" in faults(found)
        elif call != "DeviceRegisterEvents":  # that one costs the Xid events alone
            assert found.gpus[index].state is GpuState.INITIALISING, call
            named = BINDING.get(call, call).partition("_v")[0]
            assert f"nvml{named}" in found.gpus[index].state_text


async def test_a_call_that_begins_to_hang_is_named_and_its_row_goes_on_when_it_returns(fake_driver: FakeDriver) -> None:
    async with running(fake_driver, HEALTHY) as rig:
        before = await rig.until(lambda found: len(found.gpus) == 3)
        fake_driver.write(f"{HEALTHY}gpu 1 call nvmlDeviceGetPowerUsage hang:3\n")
        hung = await rig.until(lambda found: bool(found.faults))
        fake_driver.write(HEALTHY)
        after = await rig.until(lambda found: not found.faults)
    assert faults(hung).startswith("GPU 1: nvmlDeviceGetPowerUsage does not return")
    assert time.time() - 60 < hung.faults[0].since_wall_s <= time.time()
    assert hung.gpus[0].monotonic_s - hung.gpus[1].monotonic_s > 0.8
    assert hung.pids == before.pids == after.pids
    assert after.gpus[1].monotonic_s > hung.gpus[1].monotonic_s
    assert after.gpus[1].uuid == before.gpus[1].uuid


FAILING = {1: ("no_permission", GpuState.NO_PERMISSION), 2: ("timeout", GpuState.ERROR), 3: ("unknown", GpuState.ERROR)}
"""Index of a GPU -> what all its calls answer, and its state then."""


async def test_gpus_whose_calls_all_fail_are_not_ok_and_come_back_soon(fake_driver: FakeDriver) -> None:
    healthy = "gpus 5\ngpu * busy 50\n"
    failing = healthy + "".join(f"gpu {index} call nvml* {answer}\n" for index, (answer, _) in FAILING.items())
    async with running(fake_driver, healthy, timings=QUICK) as rig:
        await rig.gpus(3)
        fake_driver.write(failing)
        bad = await rig.until(lambda found: all(found.gpus[index].state is not GpuState.OK for index in FAILING))
        for _ in range(8):
            later = await rig.poll()
            assert {index: later.gpus[index].state for index in FAILING} == {
                index: state for index, (_, state) in FAILING.items()
            }
        fake_driver.write(healthy)
        healed = await rig.until(lambda found: {gpu.state for gpu in found.gpus} == {GpuState.OK} and not found.faults)
    assert len(bad.faults) == len(later.faults) == len(FAILING)
    for index, first, last in zip(FAILING, bad.faults, later.faults, strict=True):
        assert first.text.startswith(f"GPU {index}: ")
        assert "worked before and fails now" in first.text
        assert last.text.startswith(f"GPU {index}: ")
        assert last.since_wall_s == first.since_wall_s
    assert [later.gpus[i].busy_ratio for i in (0, 4)] == [0.5, 0.5]
    assert [gpu.power_w for gpu in healed.gpus] == [70.0] * 5


async def test_a_gpu_that_is_lost_while_its_calls_are_refused_is_lost(fake_driver: FakeDriver) -> None:
    async with running(fake_driver, HEALTHY, timings=QUICK) as rig:
        await rig.gpus(0)
        fake_driver.write(f"{HEALTHY}gpu 1 call nvml* no_permission\n")
        await rig.until(lambda found: found.gpus[1].state is GpuState.NO_PERMISSION)
        fake_driver.write(f"{HEALTHY}gpu 1 fault lost\n")
        await rig.until(lambda found: found.gpus[1].state is GpuState.LOST)


def reason(gpu: GpuReading) -> Reason | None:
    return gpu.power_w.reason if isinstance(gpu.power_w, Missing) else None


async def test_a_call_that_worked_and_fails_is_a_fault_and_asked_again(fake_driver: FakeDriver) -> None:
    answers = {1: "not_supported", 2: "function_not_found", 3: "no_permission", 4: "timeout"}
    healthy = "gpus 5\ngpu * busy 50\n"
    refusals = "".join(f"gpu {index} call nvmlDeviceGetPowerUsage {answer}\n" for index, answer in answers.items())
    async with running(fake_driver, healthy, timings=QUICK) as rig:
        await rig.gpus(0)
        fake_driver.write(healthy + refusals)
        bad = await rig.until(lambda found: all(reason(found.gpus[index]) is not None for index in answers))
        fake_driver.write(healthy)
        healed = await rig.until(lambda found: [gpu.power_w for gpu in found.gpus] == [70.0] * 5)
    assert {gpu.state for gpu in bad.gpus} == {GpuState.OK}
    for index, answer in answers.items():
        assert reason(bad.gpus[index]) is (Reason.NO_PERMISSION if answer == "no_permission" else Reason.ERROR)
        assert f"GPU {index}: nvmlDeviceGetPowerUsage worked before" in faults(bad)
    assert bad.gpus[0].power_w == 70.0
    assert healed.faults == ()


IMPOSSIBLE = [
    ("used_mib 90000", "vram_used_bytes"),
    ("power_w 4294967", "power_w"),
    ("power_w 1500", "power_w"),
    ("temp_c 255", "temperature_c"),
    ("mem_temp_c 4000", "memory_temperature_c"),
    ("sm_clock_mhz 4000", "sm_clock_hz"),
    ("mem_clock_mhz 90000", "memory_clock_hz"),
    ("power_limit_w 4294967", "power_limit_w"),
    ("ecc_uncorrected 18446744073709000000", "ecc_uncorrected"),
    ("pcie_gen 4000000000", "pcie_generation"),
    ("dram 400", "dram_active_ratio"),
    ("nvlink_rx_mibs 1e12", "nvlink_rx_bytes_per_s"),
]
"""What the driver says, and the field that it is said of."""


async def test_a_number_that_can_not_be_is_invalid_and_quoted(fake_driver: FakeDriver) -> None:
    lines = "".join(f"gpu {index} {line}\n" for index, (line, _) in enumerate(IMPOSSIBLE, 1))
    async with running(fake_driver, f"gpus {len(IMPOSSIBLE) + 1}\n{lines}") as rig:
        well, *bad = await rig.gpus(3)
    for gpu, (line, field) in zip(bad, IMPOSSIBLE, strict=True):
        value = getattr(gpu, field)
        assert isinstance(value, Missing), line
        assert value.reason is Reason.INVALID
        assert value.detail.startswith("the driver says ")
        assert not isinstance(getattr(well, field), Missing)
        assert gpu.state is GpuState.OK


async def test_an_energy_counter_that_jumps_is_invalid_once(fake_driver: FakeDriver) -> None:
    async with running(fake_driver, "gpus 1\ngpu 0 power_w 400\n") as rig:
        (before,) = await rig.gpus(2)
        fake_driver.write("loaded 1635689600\ngpus 1\ngpu 0 power_w 1e9\n")
        found = (await rig.until(lambda found: isinstance(found.gpus[0].energy_j, Missing))).gpus[0]
        fake_driver.write("gpus 1\ngpu 0 power_w 400\n")
        after = (await rig.until(lambda found: not isinstance(found.gpus[0].energy_j, Missing))).gpus[0]
    assert not isinstance(before.energy_j, Missing)
    assert isinstance(found.energy_j, Missing)
    assert found.energy_j.reason is Reason.INVALID
    assert "J more than the last time" in found.energy_j.detail
    assert not isinstance(after.energy_j, Missing)


async def test_a_limit_that_was_raised_is_read_before_the_power_is_judged(fake_driver: FakeDriver) -> None:
    slow = Timings(minute_s=600.0)
    async with running(fake_driver, "gpus 1\ngpu 0 power_limit_w 150\ngpu 0 power_w 140\n", timings=slow) as rig:
        await rig.gpus(0)
        fake_driver.write("gpus 1\ngpu 0 power_limit_w 700\ngpu 0 power_w 650\n")
        found = await rig.until(lambda found: found.gpus[0].power_w != 140.0)
    assert (found.gpus[0].power_w, found.gpus[0].power_limit_w) == (650.0, 700.0)


async def test_a_driver_that_supports_no_call_any_more_is_no_lack_of_permission(fake_driver: FakeDriver) -> None:
    async with running(fake_driver, HEALTHY, timings=QUICK) as rig:
        await rig.gpus(0)
        fake_driver.write(f"{HEALTHY}gpu 1 call nvml* not_supported\n")
        bad = await rig.until(lambda found: found.gpus[1].state is not GpuState.OK)
    assert bad.gpus[1].state is GpuState.ERROR
    assert "not supported, and it worked before" in faults(bad)


async def test_the_worker_gets_no_variable_with_a_key(fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver's library runs in it, and whatever that loads."""
    secrets = ("VLLM_API_KEY", "NVIDIA_API_KEY", "NGC_API_KEY", "HF_TOKEN", "MY_ENGINE")
    for name, value in {**fake_driver.env(), **dict.fromkeys(secrets, "open-sesame")}.items():
        monkeypatch.setenv(name, value)
    fake_driver.write(HEALTHY)
    source = DriverSource(1.0)
    await source.start()
    try:
        await source.ready(60.0)
        found = await source.poll(time.monotonic())
        (pid,) = found.pids
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    finally:
        await source.close()
    assert found.gpus
    assert b"PATH=" in environment
    assert b"open-sesame" not in environment

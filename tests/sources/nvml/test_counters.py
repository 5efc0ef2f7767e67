"""Throttle counters and batched fields: the driver's nanoseconds, what a GPU lacks, what it refuses, what falls."""

from __future__ import annotations

import time

import pytest

from gpumon.efficiency.deriver import Deriver
from gpumon.readings.frame import Frame, GpuReading, HostReading
from gpumon.readings.missing import Missing, Reason
from gpumon.sources.driver.wire import Timings
from gpumon.sources.nvml.figures import CounterRate
from gpumon.sources.packaged import gpu_catalogue
from tests.fakes.nvml.driver import FakeDriver
from tests.sources.nvml.rig import INTERVAL_S, Rig, running

CAUSES = {
    "sw_power_cap",
    "sync_boost",
    "board_limit",
    "reliability",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
}
QUICK = Timings(slow_s=0.1, minute_s=0.3)
SHARES = """
gpu 0 throttled_power_cap 0.5
gpu 0 throttled_hw_thermal 0.25
gpu 0 throttled_low_utilization 0.75
"""


async def test_each_cause_is_counted_in_seconds_since_the_driver_was_loaded(fake_driver: FakeDriver) -> None:
    script = "loaded 1735689600\n" + SHARES
    async with running(fake_driver, script, timings=QUICK) as rig:
        before = (await rig.gpus(0))[0]
        after = (await rig.gpus(8))[0]
    assert set(before.throttle_s) == CAUSES
    grown = {cause: after.throttle_s[cause] - before.throttle_s[cause] for cause in CAUSES}
    assert grown["hw_thermal_slowdown"] > 0.2
    assert grown["sw_power_cap"] == pytest.approx(2 * grown["hw_thermal_slowdown"], rel=0.01)
    assert grown["sw_power_cap"] <= 0.55 * (after.monotonic_s - before.monotonic_s) + 0.1
    assert sum(grown[cause] for cause in CAUSES if "thermal" not in cause) == pytest.approx(grown["sw_power_cap"])
    assert before.throttle_s["sw_power_cap"] > 1e7


async def test_counters_that_the_gpu_lacks_are_left_out_and_not_asked_again(fake_driver: FakeDriver) -> None:
    lacking = "gpu 0 throttled_sync_boost unsupported\ngpu 0 throttled_power_brake unsupported\n"
    async with running(fake_driver, lacking + "gpu 0 mem_temp_c 81\n", timings=QUICK) as rig:
        first = (await rig.gpus(3))[0]
        fake_driver.write("gpu 0 mem_temp_c 82\n")
        later = (await rig.until(lambda found: found.gpus[0].memory_temperature_c == 82.0)).gpus[0]
    assert set(first.throttle_s) == set(later.throttle_s) == CAUSES - {"sync_boost", "hw_power_brake_slowdown"}
    assert first.memory_temperature_c == 81.0


async def test_a_gpu_without_any_of_the_fields_is_asked_once(fake_driver: FakeDriver) -> None:
    keys = ("power_cap", "sync_boost", "board_limit", "low_utilization", "reliability", "sw_thermal", "hw_thermal")
    lines = [f"gpu 0 throttled_{key} unsupported" for key in (*keys, "power_brake")]
    lines += ["gpu 0 mem_temp_c unsupported", "gpu 0 nvlink_links unsupported", "gpu 0 recovery unsupported"]
    async with running(fake_driver, "\n".join(lines) + "\n", timings=QUICK) as rig:
        gpu = (await rig.gpus(6))[0]
        calls = fake_driver.calls()
    assert gpu.throttle_s == {}
    assert gpu.memory_temperature_c == Missing(Reason.NOT_SUPPORTED)
    assert calls["nvmlDeviceGetFieldValues"] == 3, "once per tier"
    assert calls["nvmlDeviceGetUtilizationRates"] > 5


async def test_fields_that_the_driver_refuses_cost_only_themselves(fake_driver: FakeDriver) -> None:
    script = SHARES + "gpu 0 busy 40\ngpu 0 call nvmlDeviceGetFieldValues no_permission\n"
    async with running(fake_driver, script, timings=QUICK) as rig:
        (gpu,) = await rig.gpus(3)
    assert gpu.throttle_s == {}
    assert isinstance(gpu.memory_temperature_c, Missing)
    assert gpu.memory_temperature_c.reason is Reason.NO_PERMISSION
    assert (gpu.busy_ratio, gpu.pcie_generation_max) == (0.4, 5.0)


async def derived(rig: Rig, deriver: Deriver, ticks: int) -> dict[str, float]:
    for seq in range(ticks):
        gpus = await rig.gpus(1)
        at_s = gpus[0].monotonic_s
        shown = deriver.derive(Frame(seq, at_s, at_s, 1.0, HostReading(), gpus)).snapshot.gpus[0]
    return shown.throttle_s


async def test_a_counter_that_falls_takes_nothing_from_the_time_shown(fake_driver: FakeDriver) -> None:
    deriver = Deriver(gpu_catalogue())
    async with running(fake_driver, "gpu 0 throttled_power_cap 1\n", timings=QUICK) as rig:
        await rig.gpus(0)
        begun_s = time.monotonic()
        up = await derived(rig, deriver, 3)
        up_s = time.monotonic()
        fake_driver.write("gpu 0 throttled_power_cap -1000\n")
        written_s = time.monotonic()
        fallen = await derived(rig, deriver, 3)
        fallen_s = time.monotonic()
        fake_driver.write("gpu 0 throttled_power_cap 1\n")
        again = await derived(rig, deriver, 3)
        again_s = time.monotonic()
    late_s = 2 * INTERVAL_S
    assert 0.5 < up["sw_power_cap"] < up_s - begun_s + late_s
    assert up["sw_power_cap"] <= fallen["sw_power_cap"] <= up["sw_power_cap"] + written_s - up_s + late_s
    assert fallen["sw_power_cap"] + 0.5 < again["sw_power_cap"] < fallen["sw_power_cap"] + again_s - fallen_s + late_s


async def test_the_link_is_read_often_and_its_best_rarely(fake_driver: FakeDriver) -> None:
    script = "profile a100-sxm\ngpu 0 pcie_gen 1\ngpu 0 pcie_width 8\ngpu 0 fan 43\n"
    async with running(fake_driver, script, timings=Timings(slow_s=0.3, minute_s=600.0)) as rig:
        gpu: GpuReading = (await rig.gpus(6))[0]
        calls = fake_driver.calls()
    assert (gpu.pcie_generation, gpu.pcie_generation_max, gpu.pcie_width, gpu.pcie_width_max) == (1.0, 4.0, 8.0, 16.0)
    assert gpu.fan_ratio == pytest.approx(0.43)
    assert calls["nvmlDeviceGetMaxPcieLinkGeneration"] == 1
    assert calls["nvmlDeviceGetCurrPcieLinkGeneration"] >= 3
    assert calls["nvmlDeviceGetPcieThroughput"] == 0


def test_a_counter_of_links_is_in_kib_and_timed_by_the_driver() -> None:
    rate = CounterRate()
    assert isinstance(rate.bytes_per_s((1000.0, 1_000_000)), Missing)
    assert rate.bytes_per_s((3000.0, 3_000_000)) == 1000.0 * 1024.0
    assert isinstance(rate.bytes_per_s((4000.0, 3_000_000)), Missing), "no time has passed"
    assert rate.bytes_per_s((4500.0, 3_500_000)) == 1000.0 * 1024.0
    fallen = rate.bytes_per_s((10.0, 4_500_000))
    assert isinstance(fallen, Missing)
    assert fallen.reason is Reason.RESET

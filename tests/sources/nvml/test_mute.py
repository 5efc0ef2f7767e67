"""A GPU whose driver calls do not return, through a real worker: it alone is mute, and the others go on."""

from __future__ import annotations

import time

import msgspec
import pytest

from gpumon.readings.frame import GpuReading, GpuState
from gpumon.sources.driver.mute import MutePatience
from gpumon.sources.driver.source import WorkerPatience
from gpumon.sources.source import Contribution
from tests.fakes.nvml.driver import FakeDriver
from tests.sources.nvml.rig import INTERVAL_S, faults, running
from tests.sources.nvml.test_isolation import QUICK

FOUR = "gpus 4\ngpu * busy 50\ngpu 2 process 4711 1000\n"
POWER = "nvmlDeviceGetPowerUsage"
SOON = MutePatience(
    call_s=1.5,
    reading_s=2.0,
    open_s=4.0,
    later_s=0.2,
    fresh_s=0.8,
    suspected_s=1.0,
    waking_s=3.0,
    probe_s=2.0,
    retry_s=1.0,
)
LIMITS = WorkerPatience(init_s=10.0, answer_s=3.0, hang_s=1.2, die_s=0.3, backoff_s=0.2, backoff_most_s=0.8)
STALE_S = 8 * INTERVAL_S
"""A reading that is no older is fresh, also on a busy machine."""


def states(found: Contribution) -> list[GpuState]:
    return [gpu.state for gpu in found.gpus]


def are_fresh(gpus: list[GpuReading]) -> bool:
    """Whether all of these were read just now."""
    return all(gpu.state is GpuState.OK and time.monotonic() - gpu.monotonic_s < STALE_S for gpu in gpus)


def others_of(found: Contribution, index: int) -> list[GpuReading]:
    return [gpu for gpu in found.gpus if gpu.index != index]


@pytest.mark.parametrize("how", ["hang", "jam"])
async def test_a_gpu_whose_calls_do_not_return_is_mute_and_the_others_go_on(fake_driver: FakeDriver, how: str) -> None:
    """`jam`: the call holds the driver's lock, so that the calls for all others wait for it."""
    async with running(fake_driver, FOUR, timings=QUICK, limits=LIMITS, mute=SOON) as rig:
        before = await rig.until(lambda found: states(found) == [GpuState.OK] * 4 and not found.faults)
        fake_driver.write(f"{FOUR}gpu 2 call {POWER} {how}\n")
        mute = await rig.until(lambda found: found.gpus[2].state is GpuState.MUTE and are_fresh(others_of(found, 2)))
        later = await rig.until(lambda found: found.gpus[0].monotonic_s > mute.gpus[0].monotonic_s + 3.0)
        fake_driver.write(FOUR)
        again = await rig.until(lambda found: are_fresh(list(found.gpus)) and not found.faults)
    row = mute.gpus[2]
    assert row.state_text == POWER
    assert [process.pid for process in row.processes] == [4711], "what ran on it"
    assert row.monotonic_s < mute.gpus[0].monotonic_s
    assert "GPU 2" not in faults(mute), "its verdict says it"
    assert later.gpus[2].state is GpuState.MUTE
    assert later.gpus[2].monotonic_s == row.monotonic_s, "tries in vain do not make it younger"
    assert [gpu.uuid for gpu in again.gpus] == [gpu.uuid for gpu in before.gpus]


async def test_gpus_that_wake_one_after_the_other_are_not_mute(fake_driver: FakeDriver) -> None:
    """Each takes 1.5 s, which together is longer than a call may take, and than the first GPU takes to answer."""
    slow = "".join(f"gpu {index} call nvmlDeviceGetHandleByIndex_v2 hang:{1.5 * index}\n" for index in range(1, 5))
    patience = msgspec.structs.replace(SOON, open_s=3.0)
    script = f"gpus 5\ngpu * persistence 0\n{slow}"
    async with running(fake_driver, script, timings=QUICK, limits=LIMITS, mute=patience) as rig:
        seen: set[GpuState] = set()

        def all_open(found: Contribution) -> bool:
            seen.update(states(found))
            return states(found) == [GpuState.OK] * 5

        await rig.until(all_open)
    assert GpuState.MUTE not in seen


@pytest.mark.parametrize(("persistence", "least_s", "most_s"), [(1, 1.5, 3.9), (0, 4.0, 20.0)])
async def test_a_gpu_that_never_opens_is_mute_as_soon_as_it_cannot_be_asleep(
    fake_driver: FakeDriver, persistence: int, least_s: float, most_s: float
) -> None:
    """Where the driver keeps GPUs open, none has to wake, which takes up to 11 s each."""
    script = f"gpus 4\ngpu * persistence {persistence}\ngpu 2 call nvmlDeviceGetHandleByIndex_v2 hang\n"
    limits = msgspec.structs.replace(LIMITS, init_s=20.0)
    async with running(fake_driver, script, timings=QUICK, limits=limits, mute=SOON) as rig:
        await rig.until(lambda found: len(found.gpus) == 4 and are_fresh(others_of(found, 2)))
        began_s = time.monotonic()
        await rig.until(lambda found: found.gpus[2].state is GpuState.MUTE)
        took_s = time.monotonic() - began_s
    assert took_s <= most_s
    assert took_s >= least_s - 1.5, "its call began before the others answered"


async def test_two_gpus_that_jam_the_driver_one_after_the_other_are_both_left_out(fake_driver: FakeDriver) -> None:
    async with running(fake_driver, FOUR, timings=QUICK, limits=LIMITS, mute=SOON) as rig:
        await rig.until(lambda found: states(found) == [GpuState.OK] * 4 and not found.faults)
        fake_driver.write(f"{FOUR}gpu 2 call {POWER} jam\n")
        await rig.until(lambda found: found.gpus[2].state is GpuState.MUTE and are_fresh(others_of(found, 2)))
        fake_driver.write(f"{FOUR}gpu 2 call {POWER} jam\ngpu 0 call nvmlDeviceGetMemoryInfo_v2 jam\n")
        both = await rig.until(
            lambda found: states(found)[::2] == [GpuState.MUTE] * 2 and are_fresh(list(found.gpus[1::2]))
        )
    assert [gpu.index for gpu in both.gpus] == [0, 1, 2, 3]


async def test_the_only_gpu_is_mute_by_itself(fake_driver: FakeDriver) -> None:
    one = "gpus 1\ngpu * busy 50\n"
    async with running(fake_driver, one, timings=QUICK, limits=LIMITS, mute=SOON) as rig:
        await rig.until(lambda found: states(found) == [GpuState.OK])
        fake_driver.write(f"{one}gpu 0 call {POWER} jam\n")
        await rig.until(lambda found: states(found) == [GpuState.MUTE])
        fake_driver.write(one)
        await rig.until(lambda found: states(found) == [GpuState.OK] and not found.faults)


@pytest.mark.parametrize("call", ["nvml*", "nvmlDeviceGet*"])
async def test_a_driver_that_is_slow_or_hangs_as_a_whole_accuses_no_gpu(fake_driver: FakeDriver, call: str) -> None:
    """Each call takes half of the patience: a reading of a GPU takes many times that."""
    async with running(fake_driver, FOUR, timings=QUICK, limits=LIMITS, mute=SOON) as rig:
        before = await rig.until(lambda found: states(found) == [GpuState.OK] * 4 and not found.faults)
        fake_driver.write(f"{FOUR}call {call} hang:0.7\n")
        await never_mute(rig.poll, 4.0)
        fake_driver.write(f"{FOUR}call {call} hang\n")
        await never_mute(rig.poll, 5.0)
        fake_driver.write(FOUR)
        again = await rig.until(lambda found: are_fresh(list(found.gpus)))
    assert [gpu.uuid for gpu in again.gpus] == [gpu.uuid for gpu in before.gpus]


async def never_mute(poll, seconds: float) -> None:  # type: ignore[no-untyped-def]
    """Poll for so long: no GPU is called mute meanwhile."""
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        found = await poll()
        assert GpuState.MUTE not in states(found)
        assert len(found.gpus) == 4


async def test_a_gpu_whose_every_call_ends_in_a_timeout_is_mute_too(fake_driver: FakeDriver) -> None:
    """None of its calls takes long enough by itself, but together they give no reading."""
    async with running(fake_driver, FOUR, timings=QUICK, limits=LIMITS, mute=SOON) as rig:
        await rig.until(lambda found: states(found) == [GpuState.OK] * 4 and not found.faults)
        fake_driver.write(f"{FOUR}gpu 1 call nvmlDeviceGet* hang:1\n")
        await rig.until(lambda found: found.gpus[1].state is GpuState.MUTE and are_fresh(others_of(found, 1)))


async def test_beside_lost_gpus_one_that_hangs_is_mute_and_all_are_known_by_their_names(
    fake_driver: FakeDriver,
) -> None:
    """The next worker cannot open the lost ones, and leaves the mute one out."""
    three = "gpus 3\n"
    async with running(fake_driver, three, timings=QUICK, limits=LIMITS, mute=SOON) as rig:
        before = await rig.until(lambda found: states(found) == [GpuState.OK] * 3 and not found.faults)
        fake_driver.write(f"{three}gpu 0 fault lost\ngpu 1 call {POWER} jam\ngpu 2 fault lost\n")
        mute = await rig.until(lambda found: states(found) == [GpuState.LOST, GpuState.MUTE, GpuState.LOST])
        fake_driver.write(three)
        again = await rig.until(lambda found: states(found) == [GpuState.OK] * 3)
    assert [gpu.uuid for gpu in mute.gpus] == [gpu.uuid for gpu in before.gpus]
    assert [gpu.uuid for gpu in again.gpus] == [gpu.uuid for gpu in before.gpus]

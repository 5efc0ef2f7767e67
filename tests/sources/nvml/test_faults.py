"""What the driver can answer instead of a figure, and how little of the screen each answer costs."""

from __future__ import annotations

import os
import statistics
import time
from collections import Counter

import pytest

from gpumon.readings.frame import GpuReading, GpuState
from gpumon.readings.missing import Missing, Reason
from gpumon.sources.driver.wire import Timings
from gpumon.sources.source import Contribution
from tests.fakes.nvml.driver import FakeDriver
from tests.records import replace
from tests.sources.nvml.rig import TIMINGS, faults, running

POWER = "nvmlDeviceGetPowerUsage"


def power(gpu: GpuReading) -> Reason | float:
    """The power, or why it is missing."""
    return gpu.power_w.reason if isinstance(gpu.power_w, Missing) else gpu.power_w


FAILURES = [
    ("not_supported", Reason.NOT_SUPPORTED, False),
    ("invalid_argument", Reason.NOT_SUPPORTED, False),
    ("function_not_found", Reason.NOT_SUPPORTED, False),
    ("argument_version_mismatch", Reason.NOT_SUPPORTED, False),
    ("deprecated", Reason.NOT_SUPPORTED, False),
    ("no_permission", Reason.NO_PERMISSION, False),
    ("not_found", Reason.ERROR, True),
    ("no_data", Reason.ERROR, True),
    ("not_ready", Reason.ERROR, True),
    ("invalid_state", Reason.ERROR, True),
    ("timeout", Reason.ERROR, True),
    ("insufficient_size", Reason.ERROR, True),
]
"""An answer of the driver, why the figure is missing, and whether it is asked for again at the next tick."""


async def test_one_call_that_fails_costs_one_figure(fake_driver: FakeDriver) -> None:
    answers = "".join(f"gpu {index} call {POWER} {answer}\n" for index, (answer, _, _) in enumerate(FAILURES))
    script = f"gpus {len(FAILURES) + 1}\ngpu * power_w 300\ngpu * busy 60\n{answers}"
    patient = replace(TIMINGS, permission_s=300.0)  # on a busy machine 0.8 s pass between two readings
    async with running(fake_driver, script, timings=patient) as rig:
        *failing, last = await rig.gpus(2)
    assert power(last) == 300.0
    asked = Counter(call.device for call in fake_driver.call_lines() if call.name == POWER)
    for gpu, (answer, why, asked_again) in zip(failing, FAILURES, strict=True):
        assert power(gpu) == why, answer
        assert (gpu.state, gpu.busy_ratio, gpu.temperature_c) == (GpuState.OK, 0.6, 30.0)
        assert (asked[str(gpu.index)] > 1) is asked_again, answer


WHOLE_GPU = [
    ("insufficient_power", GpuState.ERROR, "power cable"),
    ("irq_issue", GpuState.ERROR, "interrupts"),
    ("operating_system", GpuState.ERROR, "its /dev/nvidia* node"),
    ("corrupted_inforom", GpuState.OK, "InfoROM"),
]
"""An answer about the whole GPU, its state, and what its row says."""


async def test_an_answer_about_the_whole_gpu_badges_its_row_and_keeps_the_figures(fake_driver: FakeDriver) -> None:
    healthy = f"gpus {len(WHOLE_GPU)}\ngpu * busy 60\n"
    answers = "".join(f"gpu {index} call {POWER} {answer}\n" for index, (answer, _, _) in enumerate(WHOLE_GPU))
    async with running(fake_driver, healthy + answers) as rig:
        gpus = await rig.gpus(1)
        fake_driver.write(healthy)
        found = await rig.until(lambda found: not any(isinstance(gpu.power_w, Missing) for gpu in found.gpus))
    for gpu, (_, state, text) in zip(gpus, WHOLE_GPU, strict=True):
        assert (gpu.state, gpu.busy_ratio) == (state, 0.6)
        assert text in gpu.state_text
    assert {(gpu.state, gpu.state_text) for gpu in found.gpus} == {(GpuState.OK, "")}


async def test_three_unknown_errors_degrade_the_row_and_slow_the_call_down(fake_driver: FakeDriver) -> None:
    async with running(fake_driver, f"gpu 0 busy 60\ngpu 0 call {POWER} unknown\n") as rig:
        seen = [await rig.gpus(0), *[await rig.gpus(1) for _ in range(4)]]
        calls = fake_driver.calls()
        fake_driver.write("gpu 0 busy 60\n")
        healed = await rig.until(lambda found: found.gpus[0].state is GpuState.OK)
    states = [gpu.state for (gpu,) in seen]
    assert states[0] is GpuState.OK
    assert states[-1] is GpuState.ERROR
    assert states == sorted(states, key=lambda state: state is GpuState.ERROR), "once it is bad it stays so"
    assert POWER in seen[-1][0].state_text
    assert seen[-1][0].busy_ratio == 0.6
    assert 3 <= calls[POWER] < calls["nvmlDeviceGetUtilizationRates"] - 1
    assert healed.gpus[0].power_w == 70.0


async def test_a_call_that_was_refused_is_tried_again_after_a_while(fake_driver: FakeDriver) -> None:
    async with running(fake_driver, f"gpu 0 call {POWER} no_permission\n", timings=Timings(permission_s=2.5)) as rig:
        (gpu,) = await rig.gpus(1)
        assert power(gpu) is Reason.NO_PERMISSION
        fake_driver.write("gpu 0 power_w 200\n")
        (before,) = (await rig.poll()).gpus
        found = await rig.until(lambda found: power(found.gpus[0]) == 200.0)
    assert power(before) is Reason.NO_PERMISSION
    assert found.faults == ()


async def test_one_lost_gpu_of_eight_costs_one_row(fake_driver: FakeDriver) -> None:
    healthy = fake_driver.busy_h100s(8)
    async with running(fake_driver, healthy) as rig:
        before = await rig.gpus()
        fake_driver.write(f"{healthy}gpu 5 fault lost\n")
        await rig.until(lambda found: found.gpus[5].state is GpuState.LOST)
        found = await rig.poll()
        asked = fake_driver.calls()["nvmlDeviceGetUtilizationRates"]
        still = (await rig.poll()).gpus
        assert fake_driver.calls()["nvmlDeviceGetUtilizationRates"] - asked == 7
        fake_driver.write(healthy)
        back = await rig.until(lambda found: found.gpus[5].state is GpuState.OK)
    lost = found.gpus[5]
    assert [gpu.state for gpu in found.gpus if gpu is not lost] == [GpuState.OK] * 7
    assert [gpu.index for gpu in found.gpus] == list(range(8))
    assert (lost.uuid, lost.name) == (before[5].uuid, before[5].name)
    assert "fallen off the bus" in lost.state_text
    assert isinstance(lost.busy_ratio, Missing)
    assert lost.busy_ratio.reason is Reason.LOST
    assert lost.processes == ()
    assert still[5].monotonic_s == lost.monotonic_s < found.gpus[4].monotonic_s
    others = [gpu for gpu in found.gpus if gpu is not lost]
    assert not any(isinstance(gpu.sm_active_ratio, Missing) for gpu in others)
    assert back.gpus[5].uuid == lost.uuid
    assert not isinstance(back.gpus[5].busy_ratio, Missing)


async def test_a_process_list_that_fails_leaves_the_last_one(fake_driver: FakeDriver) -> None:
    listed = f"gpus 1\ngpu 0 process {os.getpid()} 700\n"
    async with running(fake_driver, listed) as rig:
        (before,) = await rig.gpus()
        fake_driver.write(listed + "gpu 0 call nvmlDeviceGetComputeRunningProcesses* timeout\n")
        asked = fake_driver.calls()["nvmlDeviceGetComputeRunningProcesses_v3"]
        while fake_driver.calls()["nvmlDeviceGetComputeRunningProcesses_v3"] < asked + 3:
            (found,) = (await rig.poll()).gpus
            assert [process.pid for process in found.processes] == [os.getpid()]
        fake_driver.write("gpus 1\n")
        await rig.until(lambda found: found.gpus[0].processes == ())
    assert [process.pid for process in before.processes] == [os.getpid()]


async def test_each_gpu_has_the_moment_of_its_own_energy(fake_driver: FakeDriver) -> None:
    """Slow calls shift when a GPU is read inside the tick; its energy over its own time is still its power."""
    slow = "gpu * call nvmlDeviceGetComputeRunningProcesses_v3 hang:0.04\n"
    async with running(fake_driver, f"gpus 4\ngpu * power_w 400\n{slow}") as rig:
        last = await rig.gpus()
        powers, moments = [], set()
        for _ in range(8):
            new = (await rig.until(lambda found, last=last: found.gpus[3].monotonic_s > last[3].monotonic_s)).gpus
            powers += [joules(b, a) / (b.monotonic_s - a.monotonic_s) for a, b in zip(last, new, strict=True)]
            moments |= {gpu.monotonic_s for gpu in new}
            last = new
    assert len(moments) == 4 * 8
    # On a busy machine a worker may lose its core between a call and its clock.
    assert statistics.median(powers) == pytest.approx(400.0, rel=0.05)


def joules(after: GpuReading, before: GpuReading) -> float:
    """What the counter grew by."""
    assert not isinstance(after.energy_j, Missing)
    assert not isinstance(before.energy_j, Missing)
    return after.energy_j - before.energy_j


BAD = [
    ("reset_required", GpuState.RESET_REQUIRED, "gpu-reset"),
    ("lost", GpuState.LOST, "dmesg"),
    ("no_permission", GpuState.NO_PERMISSION, "/dev/nvidia"),
]
"""A fault of a GPU, its state, and what its row says."""


async def test_a_gpu_that_is_bad_from_the_start(fake_driver: FakeDriver) -> None:
    healthy = f"gpus {len(BAD) + 2}\ngpu * busy 10\n"
    bad = "".join(f"gpu {index} fault {fault}\n" for index, (fault, _, _) in enumerate(BAD, 1))
    async with running(fake_driver, healthy + bad) as rig:
        gpus = await rig.gpus(3)
        fake_driver.write(healthy)
        healed = (await rig.until(lambda found: {gpu.state for gpu in found.gpus} == {GpuState.OK})).gpus
    assert [gpus[i].state for i in (0, -1)] == [GpuState.OK] * 2
    assert [gpu.index for gpu in gpus] == list(range(len(BAD) + 2))
    for gpu, (fault, state, text) in zip(gpus[1:-1], BAD, strict=True):
        assert gpu.state is state, fault
        assert text in gpu.state_text
        assert isinstance(gpu.vram_total_bytes, Missing)
    assert [gpu.busy_ratio for gpu in healed] == [0.1] * (len(BAD) + 2)


async def test_hot_plug_and_unplug(fake_driver: FakeDriver) -> None:
    async with running(fake_driver, "gpus 2\ngpu * busy 10\n") as rig:
        two = await rig.gpus(0)
        fake_driver.write("gpus 3\ngpu * busy 10\n")
        three = (await rig.until(lambda found: len(found.gpus) == 3)).gpus
        fake_driver.write("gpus 1\ngpu * busy 10\n")
        one = (await rig.until(lambda found: found.gpus[1].state is GpuState.LOST)).gpus
    assert [gpu.uuid for gpu in three][:2] == [gpu.uuid for gpu in two]
    assert [gpu.state for gpu in three] == [GpuState.OK] * 3
    assert [gpu.state for gpu in one] == [GpuState.OK, GpuState.LOST, GpuState.LOST]
    assert "unplugged" in one[2].state_text
    assert one[0].busy_ratio == 0.1


async def test_a_stale_handle_is_fetched_again_without_harm_to_the_others(fake_driver: FakeDriver) -> None:
    healthy = "gpus 2\ngpu * busy 10\ngpu * sm 20\n"
    async with running(fake_driver, healthy) as rig:
        await rig.gpus()
        fake_driver.write(f"{healthy}gpu 0 call nvmlDeviceGetUtilizationRates invalid_argument\n")
        after = (await rig.until(lambda found: isinstance(found.gpus[0].busy_ratio, Missing))).gpus
        found = await rig.until(lambda found: found.gpus[0].state is GpuState.OK)
    assert found.gpus[0].power_w == 70.0
    assert after[1].sm_active_ratio == pytest.approx(0.2)
    assert found.gpus[1].sm_active_ratio == pytest.approx(0.2)


async def test_a_gpu_that_answers_but_needs_a_reset_says_so(fake_driver: FakeDriver) -> None:
    async with running(fake_driver, "gpu 0 busy 10\ngpu 0 recovery 1\n") as rig:
        (gpu,) = await rig.gpus(0)
    assert (gpu.state, gpu.busy_ratio) == (GpuState.RESET_REQUIRED, 0.1)
    assert "reset" in gpu.state_text


async def test_a_driver_that_forgot_its_session_is_opened_again_in_the_same_worker(fake_driver: FakeDriver) -> None:
    async with running(fake_driver, "gpus 1\n") as rig:
        await rig.gpus(0)
        fake_driver.write("gpus 1\ncall nvmlDeviceGetCount_v2 uninitialized\n")
        closed = await rig.until(lambda found: bool(found.faults))
        fake_driver.write("gpus 1\n")
        again = await rig.until(lambda found: not found.faults)
    assert "closed its session" in faults(closed)
    assert len(closed.gpus) == 1
    assert again.pids == closed.pids
    assert fake_driver.calls()["nvmlInitWithFlags"] >= 2


async def test_an_updated_driver_needs_a_new_worker(fake_driver: FakeDriver) -> None:
    async with running(fake_driver, "gpus 1\n") as rig:
        first = await rig.until(lambda found: bool(found.gpus))
        fake_driver.write("gpus 1\ninit version_mismatch\ncall nvmlDeviceGet* version_mismatch\n")
        broken = await rig.until(lambda found: "updated" in faults(found))
        later = await rig.until(lambda found: found.pids not in ((), first.pids))
        still = await rig.until(lambda found: "updated" in faults(found))
        fake_driver.write("gpus 1\n")
        again = await rig.until(lambda found: not found.faults)
    assert "reboot" in faults(broken)
    assert len(broken.gpus) == 1
    assert still.faults[0].since_wall_s == broken.faults[0].since_wall_s
    assert again.pids != first.pids
    assert later.pids != first.pids


def codes(found: Contribution, index: int = 0) -> list[int]:
    """Xid codes of one GPU."""
    return [event.code for event in found.gpus[index].xid]


async def test_an_xid_arrives_and_outlives_its_worker(fake_driver: FakeDriver) -> None:
    async with running(fake_driver, "gpus 2\n") as rig:
        quiet = await rig.gpus(0)
        fake_driver.write("gpus 2\ngpu 1 xid 79\ngpu 1 xid 31\n")
        found = await rig.until(lambda found: len(codes(found, 1)) == 2)
        os.kill(found.pids[0], 9)
        fresh = await rig.until(lambda after: after.pids not in ((), found.pids) and not after.faults)
        fake_driver.write("gpus 2\ngpu 1 xid 79\ngpu 1 xid 31\ngpu 1 xid 48\n")
        more = await rig.until(lambda found: 48 in codes(found, 1))
    assert quiet[1].xid == ()
    assert codes(found, 0) == []
    assert codes(found, 1) == [79, 31]
    assert abs(found.gpus[1].xid[0].wall_s - time.time()) < 30.0
    assert codes(fresh, 1)[:2] == [79, 31]
    assert codes(more, 1)[:2] == [79, 31]


async def test_xids_are_bounded(fake_driver: FakeDriver) -> None:
    async with running(fake_driver, "gpus 1\n") as rig:
        await rig.gpus(0)
        fake_driver.write("gpus 1\n" + "".join(f"gpu 0 xid {code}\n" for code in range(100, 120)))
        found = await rig.until(lambda found: 119 in codes(found))
    assert codes(found) == list(range(104, 120))

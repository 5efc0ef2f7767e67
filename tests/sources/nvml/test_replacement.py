"""A worker whose GPUs do not answer: kept while one of them does, replaced when none does."""

from __future__ import annotations

from gpumon.readings.frame import GpuState
from gpumon.sources.driver.source import WorkerPatience
from tests.fakes.nvml.driver import FakeDriver
from tests.sources.nvml.rig import faults, running
from tests.sources.nvml.test_isolation import HEALTHY, QUICK


async def test_a_worker_is_kept_while_one_gpu_answers_and_replaced_when_none_does(
    fake_driver: FakeDriver,
) -> None:
    others = "call nvmlDeviceGetMemoryInfo_v2 hang"
    hang = f"{HEALTHY}gpu 1 call nvmlDeviceGetPowerUsage hang\n"
    limits = WorkerPatience(init_s=3.0, answer_s=1.5, backoff_s=0.2)
    async with running(fake_driver, HEALTHY, timings=QUICK, limits=limits) as rig:
        before = await rig.until(lambda found: [gpu.state for gpu in found.gpus] == [GpuState.OK] * 3)
        fake_driver.write(hang)
        hung_s = (await rig.until(lambda found: bool(found.faults))).gpus[1].monotonic_s
        fake_driver.write(HEALTHY)
        kept = await rig.until(lambda found: found.gpus[0].monotonic_s - hung_s > 2 * limits.answer_s)
        fake_driver.write(f"{hang}gpu 0 {others}\ngpu 2 {others}\n")
        late = await rig.until(lambda found: "has not answered for" in faults(found) or not found.pids)
        gone = await rig.until(lambda found: not found.pids)
        await rig.until(lambda found: bool(found.pids))
        still = await rig.until(lambda found: not found.pids)
        fake_driver.write(HEALTHY)
        again = await rig.until(lambda found: not found.faults)
    assert kept.pids == before.pids
    assert kept.gpus[1].monotonic_s == hung_s
    assert faults(kept).startswith("GPU 1: nvmlDeviceGetPowerUsage does not return")
    assert {fault.source for found in (late, gone, still) for fault in found.faults} == {"nvml"}
    assert "did not answer for" in faults(gone)
    assert [gpu.uuid for gpu in still.gpus] == [gpu.uuid for gpu in before.gpus], "rows stand until there are new ones"
    assert [gpu.state for gpu in again.gpus] == [GpuState.OK] * 3
    assert again.gpus[1].monotonic_s > still.gpus[0].monotonic_s

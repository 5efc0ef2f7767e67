"""The ways in which the driver cannot be opened: each is named with its fix, and tried again."""

from __future__ import annotations

import os
import time
from pathlib import Path

from gpumon.readings.frame import NO_DRIVER
from gpumon.sources.driver.source import DriverSource, WorkerPatience
from gpumon.sources.nvml.driver import without_library
from tests.fakes.nvml.driver import FakeDriver
from tests.sources.nvml.rig import INTERVAL_S, LIMITS, TIMINGS, Rig, faults, running

REFUSALS = {
    "driver_not_loaded": ("not loaded", "modprobe nvidia", "/dev/nvidia*"),
    "no_permission": ("no permission", "/dev/nvidiactl"),
    "operating_system": ("blocks", "container"),
    "version_mismatch": ("updated under the running kernel module", "reboot"),
    "unknown": ("unknown error", "dmesg"),
    "gpu_lost": ("lost a GPU", "reboot"),
    "in_use": ("NVML code 19",),
}
"""What opening the driver answers -> what its fault says."""


async def test_a_driver_that_can_not_be_opened_is_named_with_the_fix(fake_driver: FakeDriver) -> None:
    async with running(fake_driver, "init driver_not_loaded\n") as rig:
        for refusal, texts in REFUSALS.items():
            fake_driver.write(f"init {refusal}\n")
            found = await rig.until(lambda found, texts=texts: all(text in faults(found) for text in texts))
            assert found.gpus == ()
            assert [fault.source for fault in found.faults] == ["nvml"]
        fake_driver.write("init ok\n")
        opened = await rig.until(lambda found: bool(found.gpus) and not found.faults)
    assert opened.driver == "580.95.05"


async def test_only_a_version_mismatch_costs_the_worker(fake_driver: FakeDriver) -> None:
    async with running(fake_driver, "init driver_not_loaded\n") as rig:
        found = await rig.until(lambda found: "not loaded" in faults(found))
        started = fake_driver.calls()["nvmlInitWithFlags"]
        await rig.until(lambda _: fake_driver.calls()["nvmlInitWithFlags"] >= started + 2)
        fake_driver.write("gpus 1\n")
        opened = await rig.until(lambda found: bool(found.gpus))
    assert opened.pids == found.pids


async def test_no_library_at_all(tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("this is no library")
    source = DriverSource(INTERVAL_S, env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}, timings=TIMINGS)
    rig = Rig(source)
    await source.start()
    try:
        found = await rig.until(lambda found: "no NVIDIA driver library" in faults(found))
    finally:
        await source.close()
    assert "--gpus all" in faults(found)
    assert found.gpus == ()


def test_a_library_that_is_missing_beside_a_kernel_module_is_no_host_without_a_driver(tmp_path: Path) -> None:
    assert without_library(tmp_path / "version").startswith(NO_DRIVER)
    (tmp_path / "version").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05")
    assert without_library(tmp_path / "version").startswith("the NVIDIA kernel driver runs, but its library")


async def test_a_driver_without_gpus_is_no_failure(fake_driver: FakeDriver) -> None:
    async with running(fake_driver, "gpus 0\n") as rig:
        found = await rig.until(lambda found: "lists no GPU" in faults(found))
        fake_driver.write("gpus 1\n")
        plugged = await rig.until(lambda found: bool(found.gpus))
    assert found.driver == "580.95.05"
    assert plugged.faults == ()


async def test_a_slow_driver_shows_that_it_initialises(fake_driver: FakeDriver) -> None:
    async with running(fake_driver, "gpus 2\ninit hang:2.5\n") as rig:
        started_s = time.monotonic()
        found = await rig.poll()
        assert "initialising the NVIDIA driver (" in faults(found)
        assert found.gpus == ()
        opened = await rig.until(lambda found: not found.faults)
        assert time.monotonic() - started_s > 2.3
    assert len(opened.gpus) == 2
    assert opened.pids == found.pids


async def test_ready_waits_for_a_slow_driver_and_not_for_a_dead_one(fake_driver: FakeDriver) -> None:
    async with running(fake_driver, "gpus 1\ninit hang:0.8\n") as rig:
        await rig.source.ready(60.0)
        assert len((await rig.source.poll(time.monotonic())).gpus) == 1
    started_s = time.monotonic()
    async with running(fake_driver, "init driver_not_loaded\n") as rig:
        await rig.source.ready(60.0)
        assert "not loaded" in faults(await rig.source.poll(time.monotonic()))
    async with running(fake_driver, "init hang\n") as rig:
        await rig.source.ready(0.5)
    assert time.monotonic() - started_s < 55.0


async def test_a_driver_that_never_opens_gets_a_new_worker_at_the_deadline(fake_driver: FakeDriver) -> None:
    limits = WorkerPatience(init_s=1.0, answer_s=30.0, die_s=0.3, backoff_s=0.2)
    async with running(fake_driver, "gpus 1\ninit hang\n", limits=limits) as rig:
        first = await rig.poll()
        gone = await rig.until(lambda found: not found.pids)
        fake_driver.write("gpus 1\n")
        opened = await rig.until(lambda found: bool(found.gpus))
    assert "did not answer" in faults(gone)
    assert "next try in" in faults(gone)
    assert opened.pids != first.pids


async def test_a_python_that_is_not_there_is_named(fake_driver: FakeDriver) -> None:
    source = DriverSource(INTERVAL_S, python="/no/such/python", env=fake_driver.env(), limits=LIMITS)
    await source.start()
    found = await Rig(source).poll()
    await source.close()
    assert "cannot be started" in faults(found)
    assert "No such file" in faults(found)

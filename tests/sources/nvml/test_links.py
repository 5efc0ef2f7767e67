"""Links of a GPU as the driver tells of them: NVLinks that are up, counters of errors, lanes; and a changed limit."""

from __future__ import annotations

from pathlib import Path

import pynvml

from gpumon.readings.frame import GpuReading
from gpumon.readings.missing import Missing, Reason
from gpumon.sources.driver.wire import Timings
from tests.fakes.nvml.driver import FakeDriver
from tests.sources.nvml.rig import running

SOON = Timings(slow_s=0.3, links_s=0.3, minute_s=0.5)


async def gpus_of(driver: FakeDriver, script: str) -> tuple[GpuReading, ...]:
    async with running(driver, script, timings=SOON) as rig:
        return await rig.gpus()


async def test_nvlinks_that_are_down_are_named_and_errors_counted(fake_driver: FakeDriver) -> None:
    whole, partly, without = await gpus_of(
        fake_driver,
        "gpus 3\ngpu 1 nvlink_down 6\ngpu 1 nvlink_errors 41\ngpu 1 pcie_replays 7\ngpu 2 profile l4\n"
        "gpu 1 pcie_width 4\ngpu 1 pcie_gen 1\n",
    )
    assert (whole.nvlinks, whole.nvlinks_active, whole.nvlinks_down) == (18.0, 18.0, ())
    assert (partly.nvlinks, partly.nvlinks_active) == (18.0, 12.0)
    assert partly.nvlinks_down == (12, 13, 14, 15, 16, 17)
    assert (partly.nvlink_errors, partly.pcie_replays) == (41.0, 7.0)
    assert (partly.pcie_width, partly.pcie_width_max, partly.pcie_generation) == (4.0, 16.0, 1.0)
    assert without.nvlinks == Missing(Reason.NOT_SUPPORTED)
    assert without.nvlinks_active == Missing(Reason.NOT_SUPPORTED)
    assert without.nvlink_errors == Missing(Reason.NOT_SUPPORTED)


async def test_nvlink_5_counts_its_errors_in_fields_of_its_own(fake_driver: FakeDriver) -> None:
    """A Blackwell has none of the older counters; an older GPU none of the newer, and is not asked for them again."""
    newer, older = await gpus_of(
        fake_driver,
        "gpus 2\ngpu 0 name NVIDIA B200\ngpu 0 nvlink5_errors 1200\ngpu 1 nvlink_errors 3\n",
    )
    assert newer.nvlink_errors == 1200.0
    assert older.nvlink_errors == 3.0


async def test_a_link_that_cannot_be_read_is_none_that_is_down(fake_driver: FakeDriver) -> None:
    (read,) = await gpus_of(fake_driver, "gpus 1\ngpu 0 nvlink_unread 1\n")
    assert isinstance(read.nvlinks_active, Missing)
    assert read.nvlinks_active.reason is not Reason.NOT_SUPPORTED
    assert (read.nvlinks, read.nvlinks_down) == (read.nvlinks_active, ())


async def test_links_that_go_down_and_a_limit_that_is_lowered_show_within_seconds(fake_driver: FakeDriver) -> None:
    async with running(fake_driver, "gpus 1\n", timings=SOON) as rig:
        await rig.until(lambda found: bool(found.gpus) and found.gpus[0].nvlinks_active == 18.0)
        fake_driver.write("gpus 1\ngpu 0 nvlink_down 1\ngpu 0 power_limit_w 350\n")
        await rig.until(lambda found: found.gpus[0].nvlinks_down == (17,) and found.gpus[0].power_limit_w == 350.0)


async def test_a_gpu_without_nvlink_is_asked_once(tmp_path: Path) -> None:
    driver = FakeDriver(tmp_path, log=True)
    async with running(driver, "gpus 1\nprofile l4\n", timings=SOON) as rig:
        await rig.gpus(8)
    assert driver.calls()["nvmlDeviceGetNvLinkState"] <= pynvml.NVML_NVLINK_MAX_LINKS

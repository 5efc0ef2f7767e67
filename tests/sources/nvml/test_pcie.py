"""PCIe traffic of GPUs without GPM: measured only of those that are asked for, one of them a tick."""

from __future__ import annotations

import pytest

from gpumon.readings.frame import GpuReading
from gpumon.readings.missing import Missing
from gpumon.sources.driver.wire import MOST_WATCHED, Requests, request_line
from tests.each_row import each_row
from tests.fakes.nvml.driver import FakeDriver
from tests.sources.nvml.rig import Rig, running

MIB = float(1 << 20)
MOVES = "".join(f"gpu {at} pcie_tx_mibs 300\ngpu {at} pcie_rx_mibs 2100\n" for at in range(3))
AMPERE = f"gpus 3\nprofile a100-sxm\n{MOVES}"


def traffic(gpu: GpuReading) -> tuple[object, object]:
    return gpu.pcie_tx_bytes_per_s, gpu.pcie_rx_bytes_per_s


def is_measured(gpu: GpuReading) -> bool:
    return not isinstance(gpu.pcie_tx_bytes_per_s, Missing)


async def watched(rig: Rig, uuids: frozenset[str]) -> tuple[GpuReading, ...]:
    """The readings once all these GPUs, and no other, have PCIe traffic."""
    rig.source.watch_pcie(uuids)
    found = await rig.until(lambda found: {gpu.uuid for gpu in found.gpus if is_measured(gpu)} == uuids)
    return found.gpus


async def test_pcie_is_measured_of_the_gpus_asked_for_and_only_as_long(fake_driver: FakeDriver) -> None:
    async with running(fake_driver, AMPERE) as rig:
        gpus = await rig.gpus()
        assert not any(is_measured(gpu) for gpu in gpus)
        assert fake_driver.calls()["nvmlDeviceGetPcieThroughput"] == 0
        first, second, _ = (gpu.uuid for gpu in gpus)
        gpus = await watched(rig, frozenset({first, second}))
        assert traffic(gpus[0]) == traffic(gpus[1]) == (300 * MIB, 2100 * MIB)
        gpus = await watched(rig, frozenset())
        calls = fake_driver.calls()["nvmlDeviceGetPcieThroughput"]
        await rig.gpus(4)
        assert fake_driver.calls()["nvmlDeviceGetPcieThroughput"] == calls


async def test_one_gpu_is_measured_a_tick(fake_driver: FakeDriver) -> None:
    async with running(fake_driver, AMPERE) as rig:
        gpus = await rig.gpus()
        await watched(rig, frozenset(gpu.uuid for gpu in gpus))
        before = fake_driver.calls()
        await rig.gpus(6)
        after = fake_driver.calls()
    ticks = (after["nvmlDeviceGetUtilizationRates"] - before["nvmlDeviceGetUtilizationRates"]) / len(gpus)
    calls = after["nvmlDeviceGetPcieThroughput"] - before["nvmlDeviceGetPcieThroughput"]
    both_ways = 2 * ticks
    assert calls == pytest.approx(both_ways, abs=5), "ticks that had begun, and those that have not ended"


async def test_what_gpm_measures_is_not_asked_for_twice(fake_driver: FakeDriver) -> None:
    async with running(fake_driver, f"gpus 3\nprofile h100-sxm\n{MOVES}") as rig:
        (gpu, *_) = await rig.gpus()
        rig.source.watch_pcie(frozenset({gpu.uuid}))
        (gpu, *_) = await rig.gpus(4)
        assert is_measured(gpu)
        assert fake_driver.calls()["nvmlDeviceGetPcieThroughput"] == 0


@each_row("size", [1, 3, 4096])
def test_requests_come_in_any_pieces(size: int) -> None:
    asked = [frozenset(), frozenset({"GPU-1", "MIG-2"}), frozenset()]
    stream = b"".join(request_line(uuids) for uuids in asked)
    inbox = Requests()
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert [uuids for piece in pieces for uuids in inbox.feed(piece)] == asked


def test_a_request_is_one_line_whatever_the_driver_calls_its_gpus() -> None:
    odd = {"GPU-1", "a b", "a\nb", "gpü", *(f"GPU-{at:036d}" for at in range(200))}
    line = request_line(odd)
    assert line.count(b"\n") == 1
    assert len(line) < 4096  # what a pipe takes at once
    (named,) = Requests().feed(line)
    assert named <= odd
    assert len(named) == MOST_WATCHED

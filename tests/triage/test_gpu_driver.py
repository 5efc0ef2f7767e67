"""Faults of the fake driver through the whole chain: pynvml, worker, collector, triage."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from gpumon.collector import Collector
from gpumon.efficiency.deriver import Deriver
from gpumon.readings.frame import EngineReading, GpuReading, HostReading
from gpumon.readings.snapshot import Event, EventKind, Level, Limit, Snapshot, Verdict
from gpumon.sources.driver.source import DriverSource
from gpumon.sources.packaged import gpu_catalogue
from gpumon.triage.render import actions_text, event_text, verdict_text
from gpumon.triage.thresholds import Thresholds
from gpumon.triage.triage import Triage
from tests.fakes.nvml.driver import FakeDriver
from tests.sources.nvml.rig import LIMITS, TIMINGS

INTERVAL_S = 0.25
CALM = "gpus 2\nprofile h100-sxm\ngpu * busy 90\n"


class Meter:
    def read(self, pids: tuple[int, ...]) -> HostReading:
        return HostReading("box")


class Nothing:
    def attach(self, reading: EngineReading, gpus: tuple[GpuReading, ...]) -> EngineReading:
        return reading

    def label(self, gpus: tuple[GpuReading, ...], engines: tuple[EngineReading, ...]) -> tuple[GpuReading, ...]:
        return gpus


class Chain:
    """A collector on the fake driver that is ticked until a verdict stands."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self.events: list[Event] = []

    async def until(self, accept: Callable[[Snapshot], bool], within_s: float = 60.0) -> Snapshot:
        end_s = time.monotonic() + within_s
        while True:
            snapshot = await self._collector.tick()
            self.events += snapshot.events
            if accept(snapshot):
                return snapshot
            assert time.monotonic() < end_s, f"not within {within_s} s: {snapshot.verdicts}"
            await asyncio.sleep(INTERVAL_S)

    async def verdict(self, limit: Limit, level: Level, within_s: float = 60.0) -> Verdict:
        """The verdict on GPU 1, once it is that."""

        def found(snapshot: Snapshot) -> Verdict | None:
            of_one = (each for each in snapshot.verdicts if each.scope == "gpu 1")
            return next((each for each in of_one if (each.code, each.level) == (limit, level)), None)

        verdict = found(await self.until(lambda snapshot: found(snapshot) is not None, within_s))
        assert verdict is not None
        return verdict


@asynccontextmanager
async def chain(driver: FakeDriver, script: str = CALM) -> AsyncIterator[Chain]:
    driver.write(script)
    source = DriverSource(INTERVAL_S, env=driver.env(), timings=TIMINGS, limits=LIMITS)
    triage = Triage(Thresholds(hold_s=0.5))
    collector = Collector([source], Deriver(gpu_catalogue()), Meter(), Nothing(), interval_s=INTERVAL_S, triage=triage)
    await collector.open()
    try:
        yield Chain(collector)
    finally:
        await collector.stop()


async def test_an_xid_becomes_a_verdict_and_an_event_at_once(fake_driver: FakeDriver) -> None:
    async with chain(fake_driver) as made:
        await made.until(lambda snapshot: len(snapshot.gpus) == 2)
        fake_driver.write(f"{CALM}gpu 1 xid 48\n")
        found = await made.verdict(Limit.HARDWARE_FAULT, Level.CRITICAL)
    assert "Xid 48" in verdict_text(found)
    assert "--gpu-reset -i 1" in actions_text(found)
    assert [event.scope for event in made.events if event.kind is EventKind.XID] == ["gpu 1"]


async def test_a_lost_gpu_is_critical_and_comes_back(fake_driver: FakeDriver) -> None:
    async with chain(fake_driver) as made:
        await made.until(lambda snapshot: len(snapshot.gpus) == 2)
        fake_driver.write(f"{CALM}gpu 1 fault lost\n")
        found = await made.verdict(Limit.HARDWARE_FAULT, Level.CRITICAL)
        fake_driver.write(CALM)
        await made.until(lambda snapshot: not [each for each in snapshot.verdicts if each.code is Limit.HARDWARE_FAULT])
    assert verdict_text(found).startswith("lost")
    assert "power-cycle" in actions_text(found)
    assert [event_text(event).partition(":")[0] for event in made.events if event.kind is EventKind.GPU] == [
        "lost",
        "back",
    ]


async def test_heat_is_throttled_and_a_power_cap_is_not(fake_driver: FakeDriver) -> None:
    capped = f"{CALM}gpu 0 throttle 0x4\ngpu 1 throttle 0x4\n"
    async with chain(fake_driver, capped) as made:
        await made.until(lambda snapshot: len(snapshot.gpus) == 2)
        fake_driver.write(f"{CALM}gpu 0 throttle 0x4\ngpu 1 throttle 0x48\ngpu 1 sm_clock_mhz 600\n")
        found = await made.verdict(Limit.THROTTLED, Level.CRITICAL)
        last = await made.until(lambda snapshot: True)
    assert "heat" in verdict_text(found)
    assert not [each for each in last.verdicts if each.scope == "gpu 0" and each.code is Limit.THROTTLED]
    assert [event.scope for event in made.events if event.kind is EventKind.THROTTLE] == ["gpu 1"]

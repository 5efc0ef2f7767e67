"""What joins the screen to a collector that is built late."""

from __future__ import annotations

import asyncio

import pytest

from gpumon.config.options import Options
from gpumon.config.schema import Config
from gpumon.readings.snapshot import Snapshot
from gpumon.wiring import LateCollector


async def test_the_end_of_a_collector_says_what_ended_it() -> None:
    def sink(snapshot: Snapshot) -> None:
        raise ValueError(f"cannot show {len(snapshot.gpus)}")

    collector = LateCollector(Config(), Options(demo=True))
    await collector.start(sink)
    with pytest.raises(ValueError, match="cannot show"):
        await asyncio.wait_for(collector.ended(), 5.0)
    await collector.stop()


async def test_stopping_it_is_no_failure() -> None:
    collector = LateCollector(Config(), Options(demo=True))
    await collector.start(lambda _: None)
    end = asyncio.create_task(collector.ended())
    await asyncio.sleep(0.05)
    await collector.stop()
    await asyncio.wait({end}, timeout=5.0)
    assert end.cancelled()

"""What a screen is attached to: a session over a source that is built late."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gpumon.config.options import Options
from gpumon.config.schema import Config, Model, Sizing
from gpumon.readings.snapshot import Snapshot
from gpumon.session import Session, ThisHost


async def test_the_end_of_a_session_says_what_ended_it() -> None:
    def sink(snapshot: Snapshot) -> None:
        raise ValueError(f"cannot show {len(snapshot.gpus)}")

    session = Session(Config(), ThisHost(Config(), Options(demo=True)))
    await session.start(sink)
    with pytest.raises(ValueError, match="cannot show"):
        await asyncio.wait_for(session.ended(), 60.0)
    await session.stop()


async def test_stopping_it_is_no_failure() -> None:
    session = Session(Config(), ThisHost(Config(), Options(demo=True)))
    await session.start(lambda _: None)
    end = asyncio.create_task(session.ended())
    await asyncio.sleep(0.05)
    await session.stop()
    await asyncio.wait({end}, timeout=60.0)
    assert end.cancelled()


async def test_what_sizing_knows_grows_with_what_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUMON_PROFILES", str(tmp_path))
    entry = Model(match="mine-*", params_b=7.0, layers=32, hidden=4096, heads=32)
    sizing = Sizing(price_per_gpu_hour=3.0, prices={"H200 SXM 141GB": 4.0})
    config = Config(model=(entry,), sizing=sizing)
    session = Session(config, ThisHost(config, Options(demo=True)))
    before = session.known()
    assert before.llm("mine-7b") is not None
    assert before.llm("other-7b") is None
    assert list(before.prices.values()) == [4.0]
    seen: list[Snapshot] = []
    await session.start(seen.append)
    for _ in range(600):
        if seen and session.known().own and session.known().profiles:
            break
        await asyncio.sleep(0.1)
    known = session.known()
    assert known == session.known()
    assert known != before
    assert known.profiles
    assert {engine.model for engine in seen[-1].engines if engine.dimensions.llm} <= set(known.own)
    assert known.prices[seen[-1].gpus[0].gpu_type] == 3.0
    assert session.calibration is session.calibration
    await session.stop()

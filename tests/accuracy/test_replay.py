"""Totals within 1 % and 10 s rates within 5 % of what the client counted, on replays at recorded speed."""

from __future__ import annotations

import asyncio

import pytest

from gpumon.readings.frame import EndpointState
from gpumon.readings.missing import Missing
from tests.accuracy.replay import CAPTURES, Replay, judge, replay

STARVED = "vllm-starved-host"
"""Recorded by a scraper that was itself starved: its rates are no truth, its totals are."""


@pytest.fixture(scope="module")
def replays() -> dict[str, Replay]:
    async def everything() -> list[Replay]:
        return list(await asyncio.gather(*(replay(name) for name in CAPTURES)))

    return dict(zip(CAPTURES, asyncio.run(everything()), strict=True))


@pytest.mark.parametrize("name", CAPTURES)
def test_totals_are_what_the_client_counted(replays: dict[str, Replay], name: str):
    result = judge(replays[name])
    assert result.decode_truth > 1000
    assert result.decode_error <= 0.01
    assert result.prompt_error <= 0.01


@pytest.mark.parametrize("name", [name for name in CAPTURES if name != STARVED])
def test_steady_rates_are_what_the_client_saw(replays: dict[str, Replay], name: str):
    result = judge(replays[name])
    assert result.rate_error <= 0.05


def test_enough_steady_windows_were_compared(replays: dict[str, Replay]):
    assert sum(len(judge(replays[name]).rate_errors) for name in CAPTURES if name != STARVED) >= 60


@pytest.mark.parametrize("name", CAPTURES)
def test_nothing_is_negative_and_nothing_spikes(replays: dict[str, Replay], name: str):
    result = judge(replays[name])
    assert not result.negative
    assert 0 < result.highest_rate <= 1.5 * result.highest_truth


def test_a_restart_is_a_gap_and_not_a_zero(replays: dict[str, Replay]):
    ticks = replays["vllm-lifecycle"].ticks
    down = [tick for tick in ticks if tick.reading.state is EndpointState.REFUSED]
    assert len(down) > 20
    assert all(isinstance(tick.engine.decode_tokens_per_s, Missing) for tick in down)
    assert all(tick.decode_tick != tick.decode_tick for tick in down), "a gap in the chart"
    assert any(tick.reading.state is EndpointState.OK for tick in ticks[ticks.index(down[-1]) - 60 :])


def test_a_hung_server_goes_stale_and_comes_back(replays: dict[str, Replay]):
    states = [tick.reading.state for tick in replays["vllm-hang-and-dead-engine"].ticks]
    hung = states.index(EndpointState.TIMEOUT)
    assert EndpointState.OK in states[hung:]
    assert states[-1] is EndpointState.REFUSED

"""The MFU and MBU derived for each simulated engine against what its own physics did, from page to snapshot."""

from __future__ import annotations

import asyncio

import pytest

from gpumon.demo.scenarios import DEMO
from gpumon.demo.source import SimulatedServer
from gpumon.efficiency.deriver import Deriver
from gpumon.readings.flat import value_of
from gpumon.readings.frame import EndpointState, EngineKind, EngineReading, Frame, HostReading
from gpumon.readings.missing import number
from gpumon.readings.snapshot import Engine, Snapshot
from gpumon.sources.engines.vllm import VllmAdapter
from gpumon.sources.exposition import Scanner
from gpumon.sources.packaged import gpu_catalogue, llm_catalogue
from tests.demo.truth import Truth, server_truth
from tests.records import replace

FROM_S = 20
TO_S = 300
TICK_S = 2
NAMES = ("llama-70b", "qwen-moe", "llama-8b")


class Reader:
    """Polls the pages of all engines in simulated time."""

    def __init__(self, server: SimulatedServer) -> None:
        self._server = server
        self._adapters = [VllmAdapter() for _ in server.engines]
        self._scanners = [Scanner(adapter.wanted_names) for adapter in self._adapters]

    def frame(self, at_s: float) -> Frame:
        self._server.advance(at_s)
        gpus = tuple(gpu.reading(at_s) for gpu in self._server.gpus)
        readings = []
        for engine, adapter, scanner in zip(self._server.engines, self._adapters, self._scanners, strict=True):
            page = adapter.read(scanner.scan(engine.answer("/metrics").body))
            readings.append(
                EngineReading(
                    name=engine.actor.name,
                    url=f"http://{engine.actor.name}",
                    state=EndpointState.OK,
                    monotonic_s=at_s,
                    kind=EngineKind.VLLM,
                    interval_s=TICK_S,
                    model=page.model,
                    started_wall_s=page.started_wall_s,
                    exact_steps=page.exact_steps,
                    live=dict(page.live),
                    info=dict(page.info),
                    ranks=page.ranks,
                    gpus=tuple(gpus[index].uuid for index in engine.actor.gpus),
                    llm=llm_catalogue().find(page.model),
                )
            )
        return Frame(0, 1.8e9 + at_s, at_s, TICK_S, HostReading(), gpus, tuple(readings), simulated=True)


@pytest.fixture(scope="module")
def seen() -> tuple[list[Snapshot], Truth, Truth]:
    """Snapshots of five simulated minutes, and the truth at their beginning and end."""
    server = SimulatedServer(replace(DEMO, warm_s=120.0), seed=3)
    reader, deriver = Reader(server), Deriver(gpu_catalogue())
    snapshots: list[Snapshot] = []
    before = server_truth(server)
    for at_s in range(0, TO_S + 1, TICK_S):
        snapshot = deriver.derive(reader.frame(float(at_s))).snapshot
        if at_s == FROM_S:
            before = server_truth(server)
        elif at_s > FROM_S:
            snapshots.append(snapshot)
    asyncio.run(server.close())
    return snapshots, before, server_truth(server)


def engines(snapshots: list[Snapshot], name: str) -> list[Engine]:
    return [engine for snapshot in snapshots for engine in snapshot.engines if engine.name == name]


def mean(values: list[float | None]) -> float:
    """An engine without a request in the window is a zero here: nothing was needed."""
    return sum(value or 0.0 for value in values) / len(values)


@pytest.mark.parametrize("name", NAMES)
def test_mfu_and_mbu_are_those_of_the_physics(seen: tuple[list[Snapshot], Truth, Truth], name: str) -> None:
    snapshots, before, after = seen
    shown = engines(snapshots, name)
    start, end = before.engines[name], after.engines[name]
    seconds = after.at_s - before.at_s
    mfu = (end.flops - start.flops) / seconds / end.peak_flops_per_s
    mbu = (end.model_bytes - start.model_bytes) / seconds / end.peak_bytes_per_s
    assert mean([number(each.efficiency.mfu_ratio) for each in shown]) == pytest.approx(mfu, rel=0.05)
    assert mean([number(each.efficiency.mbu_ratio) for each in shown]) == pytest.approx(mbu, rel=0.05)
    assert max(number(each.efficiency.mfu_ratio) or 0.0 for each in shown) < 0.7
    assert max(number(each.efficiency.mbu_ratio) or 0.0 for each in shown) < 0.85


@pytest.mark.parametrize("name", NAMES)
def test_token_rates_are_those_of_the_engine(seen: tuple[list[Snapshot], Truth, Truth], name: str) -> None:
    snapshots, before, after = seen
    shown = engines(snapshots, name)
    start, end = before.engines[name], after.engines[name]
    seconds = after.at_s - before.at_s
    decode = (end.decode_tokens - start.decode_tokens) / seconds
    prefill = (end.prefill_tokens - start.prefill_tokens) / seconds
    assert mean([number(each.rates.decode_tokens_per_s) for each in shown]) == pytest.approx(decode, rel=0.03)
    assert mean([number(each.rates.prefill_tokens_per_s) for each in shown]) == pytest.approx(prefill, rel=0.03)


def test_the_gpus_read_somewhat_more_than_the_model_needs(seen: tuple[list[Snapshot], Truth, Truth]) -> None:
    """MBU counts weights and KV reads; the GPU's own counter also sees activations and writes."""
    snapshots, _, _ = seen
    for index in range(7):
        gpus = [snapshot.gpus[index] for snapshot in snapshots]
        read = mean([number(gpu.bandwidth_bytes_per_s) for gpu in gpus])
        needed = mean([number(gpu.mbu_ratio) for gpu in gpus]) * 3352.32e9
        assert 1.02 <= read / needed <= 1.25


def test_busy_is_not_efficient(seen: tuple[list[Snapshot], Truth, Truth]) -> None:
    """What the demo is there to show: seven GPUs nearly always busy, at a fraction of their arithmetic."""
    snapshots, _, _ = seen
    for index in range(7):
        gpus = [snapshot.gpus[index] for snapshot in snapshots]
        busy, mfu = (mean([number(value_of(gpu, name)) for gpu in gpus]) for name in ("busy_ratio", "mfu_ratio"))
        assert busy > 0.7
        assert mfu < 0.3

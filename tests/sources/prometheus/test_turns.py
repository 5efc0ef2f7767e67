"""A large fleet through a real Prometheus: the loads of all hosts at every refresh, and their pages in turn."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from gpumon.config.schema import Config
from gpumon.config.schema import Prometheus as Settings
from gpumon.fleet.fleet import Fleet
from gpumon.fleet.snapshot import FleetSnapshot
from gpumon.readings.fleet import FleetFrame
from gpumon.readings.frame import EngineReading
from gpumon.readings.quantities import DECODE_TOKENS, RUNNING
from gpumon.session.build import deriver_maker
from gpumon.session.live_fleet import LiveFleet
from gpumon.sources.prometheus import source as sources
from gpumon.sources.prometheus import turns
from gpumon.sources.prometheus.answers import Vector
from gpumon.sources.prometheus.source import FleetSource
from gpumon.sources.prometheus.turns import Turns
from tests.fakes.backfill import Scraped, store
from tests.fakes.prometheus import Prometheus
from tests.perf.farm import AGE_S, fleet

BEGIN_S: Final = 1_795_950_000.0
EVERY_S: Final = 15.0
HOSTS: Final = 5
SCRAPES: Final = 14
DIES_S: Final = BEGIN_S + 10.5 * EVERY_S
"""From then on the exporter of `gpu-004` does not answer."""


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("turns")
    end_s = BEGIN_S + SCRAPES * EVERY_S
    targets = []
    for target in fleet(HOSTS, 8, 4 * HOSTS, started_s=BEGIN_S - AGE_S):
        dies_s = DIES_S if target.labels["instance"] == "gpu-004:9400" else end_s + 1.0
        pages = target.pages

        def page(at_s: float, pages=pages, dies_s=dies_s) -> bytes:  # type: ignore[no-untyped-def]
            return pages.page(at_s) if at_s < dies_s else b""

        targets.append(Scraped({"job": target.job, **target.labels}, page, BEGIN_S, end_s))
    store(folder, targets, EVERY_S)
    with Prometheus(folder) as prometheus:
        yield prometheus


class Moments:
    """The refreshes of a fleet that takes turns from two targets on, a host at each."""

    def __init__(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sources, "TARGETS_AT_ONCE", 2)
        monkeypatch.setattr(turns, "_FEWEST_HOSTS", 1)
        self.now_s = BEGIN_S
        config = Config(prometheus=Settings(url=url, interval_s=EVERY_S))
        self.source = FleetSource(config.prometheus, wall=lambda: self.now_s)
        monkeypatch.setattr(type(self.source._server_clock), "is_due", property(lambda _: False))
        self.fleet = Fleet(deriver_maker(config))
        self.queries: list[str] = []
        query = self.source.api.query

        async def noted(promql: str, *more: Any) -> list[Vector]:
            self.queries.append(promql)
            return await query(promql, *more)

        monkeypatch.setattr(self.source.api, "query", noted)

    async def next(self, scrape: int) -> FleetFrame:
        """The refresh a moment after a scrape."""
        self.queries.clear()
        self.now_s = BEGIN_S + scrape * EVERY_S + 5.0
        frame = await self.source.next_frame()
        assert not frame.faults, frame.faults
        self.fleet.take(frame)
        return frame


def decoded(engine: EngineReading) -> float:
    """Tokens that an engine has counted."""
    return sum(rank.counters[DECODE_TOKENS] for rank in engine.ranks)


def read(frame: FleetFrame) -> list[str]:
    """The hosts whose pages were read."""
    return [host.name for host in frame.hosts if host.is_read]


async def test_a_large_fleet_is_read_in_turn_and_has_the_load_of_every_host(
    scraped: Prometheus, monkeypatch: pytest.MonkeyPatch
):
    moments = Moments(scraped.url, monkeypatch)
    first = await moments.next(1)
    names = [host.name for host in first.hosts]
    assert names == [f"gpu-{number:03}" for number in range(HOSTS)]
    assert read(first) == []
    assert not any("_bucket" in promql for promql in moments.queries)
    assert all(host.gpus for host in first.hosts)

    turn = [await moments.next(2 + number) for number in range(HOSTS)]
    assert [read(frame) for frame in turn] == [[name] for name in names]
    assert [frame.unread for frame in turn] == [4, 3, 2, 1, 0]
    assert {frame.turn_s for frame in turn} == {HOSTS * EVERY_S}

    # From now on each host's row has its loads of now, whoever is read.
    whole = FleetSource(moments.source._config, wall=lambda: moments.now_s)
    for scrape in (8, 9):
        frame = await moments.next(scrape)
        beside = await whole.frame(frame.wall_s)
        for host, as_read in zip(frame.hosts, beside.hosts, strict=True):
            if host.is_read:
                continue
            assert host.engine_loads.keys() == {engine.key for engine in as_read.engines}
            for engine in as_read.engines:
                running = sum(rank.gauges[RUNNING] for rank in engine.ranks)
                assert host.engine_loads[engine.key].running == running
            for gpu in as_read.gpus:
                assert host.gpu_loads[gpu.uuid].busy_ratio == pytest.approx(gpu.busy_ratio)
                assert host.gpu_loads[gpu.uuid].power_w == pytest.approx(gpu.power_w)
                assert host.gpu_loads[gpu.uuid].vram_used_bytes == gpu.vram_used_bytes
            shown = moments.fleet.snapshot.host(host.name)
            for engine in shown.snapshot.engines:
                assert engine.load.running == host.engine_loads[engine.key].running
    later = {engine.key: engine for host in beside.hosts for engine in host.engines}
    before = await whole.frame(frame.wall_s - EVERY_S)
    for host in before.hosts:
        loads = next(each for each in frame.hosts if each.name == host.name).engine_loads
        for engine in host.engines:
            if engine.key in loads:
                grown = decoded(later[engine.key]) - decoded(engine)
                assert loads[engine.key].decode_tokens_per_s == pytest.approx(grown / EVERY_S)
    await whole.close()
    await moments.source.close()


async def test_a_small_fleet_has_rates_as_soon_as_its_pages_are_read(
    scraped: Prometheus, monkeypatch: pytest.MonkeyPatch
):
    config = Config(prometheus=Settings(url=scraped.url, interval_s=EVERY_S))
    source = FleetSource(config.prometheus, wall=lambda: BEGIN_S + 9 * EVERY_S + 5.0)
    monkeypatch.setattr(type(source._server_clock), "is_due", property(lambda _: False))
    live = LiveFleet(config, lambda: source)
    has_rates = asyncio.Event()

    def show(snapshot: FleetSnapshot) -> None:
        engines = [engine for host in snapshot.hosts for engine in host.snapshot.engines]
        if engines and all(isinstance(engine.rates.decode_tokens_per_s, float) for engine in engines):
            has_rates.set()

    await live.begin(show, lambda _: None)
    running = asyncio.create_task(live.run())
    # The clock stands: no later refresh has a newer scrape.
    await asyncio.wait_for(has_rates.wait(), 120.0)
    running.cancel()
    await live.end()


async def test_loads_of_engines_at_one_address_in_two_regions_are_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    running = {"a": 5.0, "b": 9.0}
    end_s = BEGIN_S + SCRAPES * EVERY_S
    targets = []
    for region, count in running.items():
        page = f'vllm:num_requests_running{{model_name="m",engine="0"}} {count}'.encode()
        labels = {"job": "llm", "instance": "n1:8000", "region": region, "node": region}
        targets.append(Scraped(labels, lambda _, page=page: page, BEGIN_S, end_s))
        labels = {"job": "llm", "instance": f"{region}:8000", "node": f"z{region}"}
        targets.append(Scraped(labels, lambda _, page=page: page, BEGIN_S, end_s))
    store(tmp_path, targets, EVERY_S)
    with Prometheus(tmp_path) as prometheus:
        moments = Moments(prometheus.url, monkeypatch)
        for scrape in range(1, 5):
            frame = await moments.next(scrape)
        await moments.source.close()
    unread = {host.name: host.engine_loads for host in frame.hosts if not host.is_read}
    assert {"a", "b"} <= unread.keys()
    for region, count in running.items():
        assert unread[region]["n1:8000"].running == count


async def test_a_host_whose_target_goes_down_is_read_at_once(scraped: Prometheus, monkeypatch: pytest.MonkeyPatch):
    moments = Moments(scraped.url, monkeypatch)
    for scrape in range(4, 11):
        await moments.next(scrape)
    assert moments.fleet.snapshot.host("gpu-004").exporters_down == 0
    frame = await moments.next(11)
    assert "gpu-004" in read(frame)
    assert moments.fleet.snapshot.host("gpu-004").exporters_down == 1
    await moments.source.close()


async def test_a_host_that_is_looked_at_is_read_at_every_refresh(scraped: Prometheus, monkeypatch: pytest.MonkeyPatch):
    moments = Moments(scraped.url, monkeypatch)
    for scrape in range(1, 7):
        await moments.next(scrape)
    moments.source.look_at("gpu-002")
    for scrape in (7, 8, 9):
        assert "gpu-002" in read(await moments.next(scrape))
    await moments.source.close()


def test_what_fails_whole_does_not_make_a_refresh_read_everything():
    hosts = [f"gpu-{number}" for number in range(1000)]
    choice = Turns()
    assert len(choice.choose(hosts, urgent=hosts)) == 250
    assert len(choice.choose(hosts, urgent=[])) == 125
    assert choice.turn_s(1000, 15.0) == 120.0


@pytest.mark.parametrize("flapping", [10, 150, 250])
def test_hosts_that_go_up_and_down_all_the_time_keep_no_other_waiting_for_more_than_two_turns(flapping: int):
    hosts = [f"gpu-{number:03}" for number in range(250)]
    choice = Turns()
    read: set[str] = set()
    for _ in range(16):
        chosen = choice.choose(hosts, urgent=hosts[:flapping])
        assert len(chosen) <= 64
        choice.note(chosen)
        read |= {*chosen}
    assert read == {*hosts}

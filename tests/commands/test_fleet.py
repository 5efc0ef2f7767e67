"""A fleet from a real Prometheus that scrapes replayed engines: rates at once, one host, the past, and printed."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpumon.commands.settings import settings as settings_of
from gpumon.commands.watch import print_fleet
from gpumon.config.options import Options
from gpumon.config.schema import Config
from gpumon.config.schema import Prometheus as Settings
from gpumon.fleet.rows import by_host, by_model, total_row
from gpumon.fleet.snapshot import FleetSnapshot, HostState
from gpumon.readings.missing import NOT_EXPOSED, Missing
from gpumon.readings.snapshot import Latency, Snapshot
from gpumon.session.fleet import FleetSession
from gpumon.session.fleet_host import chart_spans
from gpumon.session.live_fleet import moments_before
from tests.fakes.engine import FakeEngine
from tests.fakes.prometheus import Prometheus, free_port

HOSTS = ("gpu01", "gpu02")
SCRAPED_S = 12
"""Scrapes before the first test: rates of 3 s ago need a moment 5 s before that, whichever test comes first."""
LONG_S = 60.0


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Two hosts with an engine each, scraped every second for some seconds."""
    with contextlib.ExitStack() as stack:
        engines = [FakeEngine("vllm-poisson", start_s=20.0 + 5.0 * number).start() for number in range(len(HOSTS))]
        for engine in engines:
            stack.callback(engine.close)
        targets = "".join(
            f"\n    - {{targets: ['{engine.url.partition('://')[2]}'], labels: {{node: {name}, rack: r1}}}}"
            for name, engine in zip(HOSTS, engines, strict=True)
        )
        scrapes = [f"  - job_name: vllm\n    static_configs:{targets}"]
        server = stack.enter_context(Prometheus(tmp_path_factory.mktemp("prometheus"), scrapes))
        server.until(f"count_over_time(vllm:num_requests_running[1m]) >= {SCRAPED_S}", results=2, timeout_s=60.0)
        yield server


def config(url: str) -> Config:
    return Config(prometheus=Settings(url=url, interval_s=1.0))


@contextlib.asynccontextmanager
async def controlled(url: str) -> AsyncIterator[FleetSession]:
    control = FleetSession(config(url))
    try:
        yield control
    finally:
        await control.stop()


@contextlib.asynccontextmanager
async def answered(url: str) -> AsyncIterator[tuple[FleetSession, FleetSnapshot]]:
    """A session with its first answer; a new one until that has all rates: a busy Prometheus misses scrapes."""
    end_s = time.monotonic() + LONG_S
    while True:
        async with controlled(url) as control:
            snapshot = await control.fleet.ask_once()
            rates = decodes(snapshot)
            if rates and all(isinstance(rate, float) for rate in rates):
                yield control, snapshot
                return
            assert time.monotonic() < end_s, rates


async def until(done: Callable[[], bool]) -> None:
    end_s = time.monotonic() + LONG_S
    while not done():
        assert time.monotonic() < end_s
        await asyncio.sleep(0.05)


def decodes(snapshot: FleetSnapshot) -> list[object]:
    return [engine.rates.decode_tokens_per_s for host in snapshot.hosts for engine in host.snapshot.engines]


def printed_decodes(answer: dict[str, Any]) -> list[float | None]:
    return [host["snapshot"]["engines"][0]["decode_tokens_per_s"] for host in answer["hosts"]]


def names(snapshot: FleetSnapshot) -> tuple[str, ...]:
    return tuple(host.name for host in snapshot.hosts)


async def test_the_first_refresh_has_rates_at_once(prometheus: Prometheus):
    async with answered(prometheus.url) as (control, snapshot):
        assert names(snapshot) == HOSTS
        assert len(decodes(snapshot)) == len(HOSTS)
        assert snapshot.queries > 0
        assert snapshot.hosts[0].labels["rack"] == "r1"
        assert control.place == prometheus.url.partition("://")[2]


async def test_it_goes_on_asking_and_gathers_for_sizing(prometheus: Prometheus):
    seen: list[FleetSnapshot] = []
    async with controlled(prometheus.url) as control:
        assert control.fleet.span() is None
        await control.start(seen.append)
        await until(lambda: len({snapshot.wall_s for snapshot in seen}) >= 3)
        assert names(seen[0]) == HOSTS
        assert [snapshot.wall_s for snapshot in seen] == sorted(snapshot.wall_s for snapshot in seen)
        await until(lambda: {host.state for host in seen[-1].hosts} == {HostState.OK})
        span = control.fleet.span()
        assert span is not None
        assert span[1] >= seen[0].wall_s
        await until(lambda: bool(control.calibration.in_flight()))
        assert control.catalogues().gpus is not None
        control.set_interval(0.1)
        assert control.interval_s == 1.0


async def test_a_refresh_comes_when_it_is_asked_for(prometheus: Prometheus):
    seen: list[FleetSnapshot] = []
    control = FleetSession(Config(prometheus=Settings(url=prometheus.url, interval_s=3600.0)))
    await control.start(seen.append)
    try:
        await until(lambda: bool(seen) and not control.fleet.asking)
        count = len(seen)
        control.refresh()
        await until(lambda: len(seen) > count)
    finally:
        await control.stop()


async def test_the_past_is_asked_for_at_its_time(prometheus: Prometheus):
    async with answered(prometheus.url) as (control, now):
        before_s = now.wall_s - 3.0
        past = await control.fleet.at(before_s)
        assert past.wall_s == before_s
        assert names(past) == HOSTS
        assert all(isinstance(rate, float) for rate in decodes(past))
        long_ago = await control.fleet.at(now.wall_s - 7 * 86400.0)
        assert long_ago.hosts == ()
        assert long_ago.wall_s == now.wall_s - 7 * 86400.0
        # On a machine that has no time it may have grown late meanwhile, and is of the same moment then.
        assert control.fleet.snapshot.wall_s == now.wall_s


async def test_a_host_has_its_past_at_once_and_follows_the_fleet(prometheus: Prometheus):
    seen: list[FleetSnapshot] = []
    shown: list[Snapshot] = []
    async with controlled(prometheus.url) as control:
        await control.start(seen.append)
        await until(lambda: bool(seen) and bool(seen[-1].hosts))
        host = control.host("gpu02")
        await host.start(shown.append)
        await until(lambda: len({snapshot.wall_s for snapshot in shown}) >= 3)
        newest = shown[-1]
        # Of 20 s, as a Prometheus on a busy machine misses scrapes.
        decode = host.history.buckets("decode", int(newest.wall_s), 20, 1.0)
        assert sum(value == value for value in decode) >= 4
        await until(lambda: host.history.latest("decode", shown[-1].wall_s) >= 0.0)
        assert [engine.name for engine in newest.engines] == [
            engine.name for engine in seen[-1].hosts[1].snapshot.engines
        ]
        assert host.interval_s == control.interval_s
        assert newest.engines[0].latency.e2e_s.p95 != NOT_EXPOSED

        def measured() -> list[Latency]:
            """Of an engine on a host that is not opened: without those for which its Prometheus missed scrapes."""
            unopened = [fleet.hosts[0].snapshot.engines[0].latency for fleet in seen if fleet.hosts[0].snapshot.engines]
            return [latency for latency in unopened if isinstance(latency.ttft_s.p95, float)]

        await until(lambda: bool(measured()))
        assert {(latency.e2e_s.p95, latency.queue_s.p95) for latency in measured()} == {(NOT_EXPOSED, NOT_EXPOSED)}
        host.set_interval(0.2)
        assert control.interval_s == 1.0
        await host.stop()
        count = len(shown)
        control.refresh()
        last = len(seen)
        await until(lambda: len(seen) > last)
        assert len(shown) == count


def test_charts_begin_coarse_and_end_with_each_scrape():
    assert chart_spans(0.0, 1800.0, 15.0) == [(0.0, 1800.0, 15.0)]
    assert chart_spans(0.0, 1800.0, 1.0) == [(0.0, 1725.0, 15.0), (1740.0, 1800.0, 1.0)]
    assert chart_spans(0.0, 1800.0, 5.0) == [(0.0, 1485.0, 15.0), (1500.0, 1800.0, 5.0)]
    assert chart_spans(0.0, 1800.0, 60.0) == [(0.0, 1800.0, 60.0)]
    assert chart_spans(1790.0, 1800.0, 1.0) == [(1790.0, 1800.0, 1.0)]


async def test_sizing_has_seen_what_was_before_the_first_answer(prometheus: Prometheus):
    async with controlled(prometheus.url) as control:
        await control.start(lambda _: None)
        await until(lambda: bool(control.calibration.observed()))
        (seen,) = {(each.model, bool(each.time)) for each in control.calibration.observed()}
        assert seen[1]


async def test_one_goes_to_and_fro_in_the_past_of_a_host(prometheus: Prometheus):
    async with controlled(prometheus.url) as control:
        now = await control.fleet.ask_once()
        timeline = control.host("gpu01").timeline
        assert timeline is not None
        there = await timeline.at(now.wall_s - 2.0)
        assert there is not None
        assert now.wall_s - 4.0 <= there.snapshot.wall_s <= now.wall_s - 2.0
        before = await timeline.step(there.snapshot.wall_s, -1)
        assert before is not None
        assert 0.5 <= there.snapshot.wall_s - before.snapshot.wall_s <= 1.5
        again = await timeline.step(before.snapshot.wall_s, 1)
        assert again is not None
        assert again.snapshot is there.snapshot
        assert await timeline.change(now.wall_s - 7 * 86400.0, -1) is None
        with pytest.raises(OSError, match="not written"):
            await timeline.write("nowhere")
        assert await control.host("nobody").timeline.at(now.wall_s) is None  # type: ignore[union-attr]


async def test_a_prometheus_that_is_gone_leaves_what_was_known(prometheus: Prometheus, tmp_path: Path):
    scrape = f"  - job_name: self\n    static_configs: [{{targets: ['127.0.0.1:{free_port()}']}}]"
    with Prometheus(tmp_path, [scrape]) as other:
        control = FleetSession(config(other.url))
        first = await control.fleet.ask_once()
        assert first.hosts == ()
    try:
        gone = await control.fleet.ask_once()
        assert gone.faults
        assert gone.faults[0].text.isprintable()
    finally:
        await control.stop()


def test_it_is_printed_as_a_table_and_as_json(prometheus: Prometheus):
    written: list[str | bytes] = []
    assert print_fleet(config(prometheus.url), Options(count=1), "plain", written.append) == 0
    for count in (2, 10, 50):  # a snapshot that has grown late is printed again, on a machine that has no time
        objects = []
        assert print_fleet(config(prometheus.url), Options(count=count), "json", objects.append) == 0
        assert len(objects) == count
        answers = [json.loads(printed) for printed in objects]
        times = [answer["time"] for answer in answers]
        assert times == sorted(times)
        complete = [answer for answer in answers if all(isinstance(rate, float) for rate in printed_decodes(answer))]
        if times[-1] > times[0] and complete:
            break
    assert times[-1] > times[0]
    (table,) = written
    assert isinstance(table, str)
    assert "2 hosts" in table
    assert all(name in table for name in HOSTS)
    one = complete[0]
    assert [host["name"] for host in one["hosts"]] == list(HOSTS)
    assert one["hosts"][0]["snapshot"]["engines"][0]["kind"] == "vllm"
    assert one["total"]["decode_tokens_per_s"] == pytest.approx(sum(printed_decodes(one)))
    assert one["total"]["mfu_ratio"]["value"] is None
    assert "mfu_ratio" in one["total"]["missing"]


def test_a_prometheus_without_any_host_is_nothing_to_monitor_and_names_what_is_down(tmp_path: Path):
    with Prometheus(tmp_path) as empty:
        written: list[str | bytes] = []
        assert print_fleet(config(empty.url), Options(count=1), "plain", written.append) == 3
        assert "no engine, no GPU and no gpumon is among its series" in str(written[0])
    address = f"127.0.0.1:{free_port()}"
    scrape = f"  - job_name: gpumon\n    static_configs: [{{targets: ['{address}']}}]"
    with Prometheus(tmp_path, [scrape]) as down:
        down.until("count_over_time(up[1m]) >= 2")
        assert print_fleet(config(down.url), Options(count=1), "plain", written.append) == 3
        assert f"1 targets are down (up is 0), such as {address} (gpumon)" in str(written[1])


@pytest.mark.parametrize(("given", "seconds"), [(None, 15.0), ("2", 2.0), ("0.5", 1.0)])
def test_an_interval_that_is_given_is_that_of_the_fleet(tmp_path: Path, given: str | None, seconds: float):
    settings = tmp_path / "config.toml"
    settings.write_text("")
    chosen = argparse.Namespace(interval=given, prometheus="http://prometheus:9090", config=str(settings))
    assert settings_of(chosen).loaded.config.prometheus.interval_s == seconds


def test_no_answer_at_all_is_a_failure_that_says_why():
    written: list[str | bytes] = []
    url = f"http://127.0.0.1:{free_port()}"
    assert print_fleet(config(url), Options(count=1), "plain", written.append) == 1
    assert isinstance(written[0], str)
    assert "no answer yet" in written[0]
    assert "fault prometheus" in written[0]


async def test_figures_of_an_idle_fleet_are_not_zero_where_nothing_is_known(prometheus: Prometheus):
    async with answered(prometheus.url) as (control, snapshot):
        gpus = [gpu for host in snapshot.hosts for gpu in host.snapshot.gpus]
        mfu = [engine.efficiency.mfu_ratio for host in snapshot.hosts for engine in host.snapshot.engines]
        assert gpus == []
        assert all(isinstance(ratio, Missing) for ratio in mfu)
        rows = by_host(snapshot, control.prices)
        assert [row.name for row in rows] == list(HOSTS)
        for row in (*rows, *by_model(snapshot, control.prices), total_row(rows)):
            unknown = row.busy_ratio.value, row.mfu_ratio.value, row.mbu_ratio.value, row.power_w.value
            assert all(isinstance(value, Missing) for value in (*unknown, row.idle_gpus.value, row.tokens_per_j))
            assert isinstance(row.decode_tokens_per_s, float)


@pytest.mark.parametrize(("step_s", "moments"), [(15.0, 3), (30.0, 2), (60.0, 2), (5.0, 7), (1.0, 7)])
def test_verdicts_have_held_long_enough_at_the_first_answer(step_s: float, moments: int) -> None:
    before = moments_before(1000.0, step_s, 30.0)
    assert len(before) == moments
    assert before == sorted(before)
    assert 1000.0 - before[-1] == max(5.0, step_s)
    assert 1000.0 - before[1] >= 30.0

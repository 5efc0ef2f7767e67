"""How a fleet is asked for: whose clock, what is given up, what is counted, which addresses a past is asked for."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from gpumon.config.schema import Prometheus as Settings
from gpumon.readings.fleet import FleetFrame
from gpumon.sources.exposition import Series
from gpumon.sources.prometheus.answers import Matrix
from gpumon.sources.prometheus.api import PrometheusApi
from gpumon.sources.prometheus.past import FEWEST_STEPS, MOST_PAST_POINTS, PrometheusPast
from gpumon.sources.prometheus.queries import exporters_of_range, queries, targets_of_range, with_scrape_times
from gpumon.sources.prometheus.source import FleetSource
from tests.fakes.backfill import Scraped, store
from tests.fakes.http_server import LoopbackServer, Reply, Request
from tests.fakes.prometheus import Prometheus
from tests.sources.prometheus.answering import Api, asked, success, vector

LONG_S = 30.0


def texts(frame: FleetFrame) -> str:
    return "; ".join(fault.text for fault in frame.faults)


@pytest.mark.parametrize(("off_s", "said"), [(40.0, "40 s ahead of"), (-400.0, "400 s behind"), (1.0, "")])
async def test_the_servers_clock_is_taken_and_one_that_is_off_is_told(off_s: float, said: str):
    api = Api()
    api.engine(api.target({"job": "llm", "instance": "n:8000"}, time.time() - 3.0))
    with api.server as server:
        source = FleetSource(Settings(url=server.url), wall=lambda: time.time() + off_s)
        frame = await source.frame()
        now_s = time.time()
        await source.close()
    assert all(abs(at_s - now_s) < LONG_S for at_s in api.asked_s)
    assert frame.wall_s == pytest.approx(now_s, abs=LONG_S)
    assert ("this machine's clock is" in texts(frame)) is bool(said)
    assert said in texts(frame)


async def test_answers_as_of_a_while_ago_are_no_wrong_clock():
    """A VictoriaMetrics before 1.80 ignores latency_offset; the Date header of its answers is right."""
    api = Api()
    api.engine(api.target({"job": "llm", "instance": "n:8000"}, time.time() - 33.0))
    api.now_s = lambda: time.time() - 30.0
    api.date_s = time.time
    with api.server as server:
        source = FleetSource(Settings(url=server.url))
        frame = await source.frame()
        await source.close()
    assert "this machine's clock is" not in texts(frame)
    assert "it answers as of 30 s ago" in texts(frame) or "it answers as of 31 s ago" in texts(frame)
    assert "-search.latencyOffset=1s" in texts(frame)
    assert frame.wall_s < time.time() - 29.0


async def test_a_query_that_fails_leaves_none_behind():
    hung, end = threading.Event(), threading.Event()

    def answer(request: Request) -> Reply:
        query = asked(request)["query"]
        if query.startswith(("timestamp(", "up")):
            return vector([])
        if "vllm:" in query and "process_start" not in query:
            hung.wait(LONG_S)
            return Reply(status=503, body=b'{"status":"error","error":"too many samples"}')
        hung.set()
        end.wait(LONG_S)
        return vector([])

    with LoopbackServer(answer) as server:
        source = FleetSource(Settings(url=server.url, timeout_s=LONG_S))
        before = asyncio.all_tasks()
        frame = await asyncio.wait_for(source.frame(1000.0), LONG_S / 2)
        left = asyncio.all_tasks() - before
        await source.close()
        end.set()
    assert "too many samples" in texts(frame)
    assert left == set()


@pytest.mark.parametrize("begin", ["timestamp(", "up{", "up"])
async def test_a_query_beyond_a_limit_of_the_server_costs_its_own_part_alone(begin: str):
    api = Api()
    api.engine(api.target({"job": "llm", "instance": "n:8000"}))
    api.limited = (begin,)
    with api.server as server:
        source = FleetSource(Settings(url=server.url))
        frame = await source.frame(1000.0)
        await source.close()
    assert [host.name for host in frame.hosts] == ["n"]
    assert "a part is missing: 422" in texts(frame)
    assert "max number of series" in texts(frame)


async def test_frames_at_once_count_their_own_queries():
    api = Api()
    api.engine(api.target({"job": "llm", "instance": "n:8000"}))
    with api.server as server:
        source = FleetSource(Settings(url=server.url))
        await source.frame(1000.0)
        found = await asyncio.gather(*(source.frame(1000.0 + number) for number in range(3)))
        past = asyncio.gather(source.past("n", 900.0, 1000.0, 10.0), source.frame(1000.0))
        beside = (await past)[1]
        await source.close()
    assert [frame.queries for frame in (*found, beside)] == [7, 7, 7, 7]
    assert sum(frame.cost_s for frame in found) < LONG_S


async def test_another_times_faults_do_not_change_since_when_the_present_has_its():
    api = Api()
    api.engine(api.target({"job": "llm", "instance": "n:8000"}))
    api.warnings = ["a store does not answer"]
    walls = iter((1000.0, 1000.0, 1000.0, 1100.0, 1100.0, 1100.0))
    with api.server as server:
        api.now_s = lambda: 1000.0
        source = FleetSource(Settings(url=server.url), wall=lambda: next(walls))
        first = await source.frame()
        api.warnings = []
        back = await source.frame(500.0)
        api.warnings = ["a store does not answer"]
        second = await source.frame()
        await source.close()
    assert "a store does not answer" not in texts(back)
    assert [fault.since_wall_s for fault in second.faults] == [fault.since_wall_s for fault in first.faults]


class Left(NamedTuple):
    """A Prometheus that has scraped nothing for two days."""

    prometheus: Prometheus
    begin_s: float
    """The first scrape of the host `a`, which answered for half a minute."""


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Left]:
    folder = tmp_path_factory.mktemp("left")
    begin_s = round(time.time() - 2 * 86400.0)
    page = b'vllm:num_requests_running{engine="0",model_name="m"} 4\n'
    labels = {"job": "vllm", "instance": "10.0.0.1:8000", "node": "a"}
    store(folder, [Scraped(labels, lambda _: page, begin_s, begin_s + 30.0)], 1.0)
    with Prometheus(folder) as prometheus:
        yield Left(prometheus, begin_s)


def test_lookups_are_promql_and_not_too_long(left: Left):
    for match in ("", 'cluster="a",env=~"prod.*"'):
        asked_for = (
            with_scrape_times(queries(match).scraped, match),
            targets_of_range(match, 3600.0),
            exporters_of_range(["n", 'a"b.c'], match, 0.2),
        )
        for query in asked_for:
            assert left.prometheus.query(query) == []
            assert len(query) < 8 * 1024
            assert ('cluster="a"' in query) is bool(match)


async def test_the_past_of_a_host_that_is_gone_is_found(left: Left):
    source = FleetSource(Settings(url=left.prometheus.url, interval_s=1.0))
    past = await source.past("a", left.begin_s + 5.0, left.begin_s + 25.0, 1.0)
    await source.close()
    assert past
    assert {host.name for _, host in past} == {"a"}


async def test_a_prometheus_without_gpus_and_engines_says_so(left: Left):
    source = FleetSource(Settings(url=left.prometheus.url, interval_s=1.0))
    frame = await source.frame()
    await source.close()
    assert frame.hosts == ()
    assert "no engine, no GPU and no gpumon is among its series" in texts(frame)


async def test_a_past_is_asked_for_at_the_addresses_of_then():
    api = Api()
    api.engine(api.target({"job": "llm", "instance": "10.0.0.1:8000", "node": "n"}))
    api.up_once = [
        {"job": "llm", "instance": "10.0.0.2:8000", "node": "n"},
        {"job": "llm", "instance": "10.0.0.3:8000", "node": "other"},
        {"job": "llm", "instance": "10.0.0.4:8000", "namespace": "s", "pod": "chat-0"},
    ]
    gone = {"job": "dcgm", "instance": "10.0.0.5:9400", "Hostname": "n"}
    api.exporters_once = [({**gone, "exported_namespace": "s", "exported_pod": "chat-0"}, "1")]
    with api.server as server:
        source = FleetSource(Settings(url=server.url))
        await source.frame(1000.0)
        await source.past("n", 900.0, 1000.0, 10.0)
        api.exporters_once = []
        for host in ("other", "never"):
            await source.past(host, 900.0, 1000.0, 10.0)
        await source.close()
    ranges = [query for query in api.queries if query.startswith("up{instance=") and "[" not in query]
    assert [query.count(":8000") + query.count(":9400") for query in ranges] == [4, 1]
    assert all(f"10\\\\.0\\\\.0\\\\.{last}:" in ranges[0] for last in (1, 2, 4, 5))


async def test_a_host_with_many_series_gets_fewer_moments_and_its_answers_are_freed():
    labels = {"job": "llm", "instance": "n:8000"}
    api = PrometheusApi(Settings(url="http://127.0.0.1:1"))
    asked_for = queries()
    # In whole milliseconds, as a query says them: a longer step would put the last moment behind the end.
    assert PrometheusPast(api, asked_for, start_s=0.0, end_s=6000.0, step_s=1.0, series=100).step_s == 10.016
    few = PrometheusPast(api, asked_for, start_s=0.0, end_s=6000.0, step_s=1.0, series=MOST_PAST_POINTS).step_s
    assert few == pytest.approx(6000.0 / (FEWEST_STEPS - 1), abs=0.001)
    assert few * (FEWEST_STEPS - 1) <= 6000.0
    points = [[float(at), "1"] for at in range(0, 60, 10)]

    def answer(request: Request) -> Reply:
        names = ("vllm:num_requests_running",) if "vllm:" in asked(request)["query"] else ("up",)
        metric = [{"metric": {"__name__": name, "model_name": "m", **labels}, "values": points} for name in names]
        return success({"resultType": "matrix", "result": metric})

    with LoopbackServer(answer) as server:
        api = PrometheusApi(Settings(url=server.url))
        past = PrometheusPast(api, asked_for, start_s=0.0, end_s=50.0, step_s=10.0)
        await past.ask()
        await api.close()
    matrices: list[Matrix] = past._answers[2]
    moments = [[vector.series for vector in moment.engines] for moment in past._moments()]
    assert [len(each) for each in moments] == [1] * 6
    assert moments[0] == moments[5]
    assert isinstance(moments[0][0], Series)
    assert [matrix.points for matrix in matrices] == [[]]

"""What a frame is made of: the queries' text, scrape intervals, scrapes in flight, bounds, silent exporters."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.config.schema import Prometheus
from gpumon.readings.fleet import FleetFrame
from gpumon.readings.frame import EndpointState
from gpumon.sources.exposition import MOST_SAMPLES, Series
from gpumon.sources.prometheus import answers as answers_file
from gpumon.sources.prometheus.answers import Matrix, Vector
from gpumon.sources.prometheus.api import PrometheusApi
from gpumon.sources.prometheus.hosts import HostLabels
from gpumon.sources.prometheus.intervals import Intervals
from gpumon.sources.prometheus.memory import Memory
from gpumon.sources.prometheus.models import Models
from gpumon.sources.prometheus.moment import build_frame
from gpumon.sources.prometheus.queries import (
    ENGINE_NAMES,
    GPU_NAMES,
    Answers,
    join_matchers,
    matchers_of_label,
    pattern,
    queries,
    scrapes,
)
from gpumon.sources.prometheus.targets import ReplicaChoice, Target
from tests.fakes.http_server import LoopbackServer
from tests.fakes.prometheus import Prometheus as Server
from tests.sources.prometheus.answering import vector

LLM = {"job": "llm", "instance": "n:8000"}
DCGM = {"job": "dcgm", "instance": "n:9400"}
MOST_QUERY_BYTES = 16 * 1024


@given(st.sets(st.from_regex(r"[a-c:_]{1,4}(_bucket|_count|_sum)?", fullmatch=True), min_size=1, max_size=12))
def test_a_pattern_matches_its_names_alone(names: set[str]):
    for name in names:
        more = {f"{name}_{end}" for end in ("bucket", "count", "sum")}
        for several in (names, names | more):
            found = re.compile(pattern(several))
            assert all(found.fullmatch(one) for one in several)
            assert not any(found.fullmatch(one + "x") for one in several)
            assert not found.fullmatch("d")


def test_queries_are_promql_and_not_too_long(tmp_path: Path):
    with Server(tmp_path) as prometheus:
        for match in ("", 'cluster="a",env=~"prod.*"', ' cluster="a", '):
            for query in queries(match):
                assert len(query) < MOST_QUERY_BYTES
                assert prometheus.query(query) == []
                assert ('cluster="a"' in query) is bool(match)
        addresses = ['a"b\\c', "x\ny", "*.{}|", "\x1b"]
        assert prometheus.query(scrapes(addresses)) == []
    named = re.compile(pattern(ENGINE_NAMES | GPU_NAMES))
    assert all(named.fullmatch(name) for name in ENGINE_NAMES | GPU_NAMES)


@given(st.text(min_size=1, max_size=8))
def test_any_address_is_matched_literally(value: str):
    text = matchers_of_label("", "instance", [value]).removeprefix('instance=~"').removesuffix('"')
    assert not re.search(r'(?<!\\)(?:\\\\)*"', text), "it ends the string"
    assert "\n" not in text


def test_matchers_are_joined_without_empty_ones():
    assert join_matchers("", ' a="b", ', 'c="d"') == 'a="b",c="d"'


def target(labels: dict[str, str], replica: str = "") -> Target:
    return Target(labels, tuple(sorted(labels.items())), replica, has_up=True)


def learned(intervals: Intervals, *times: float) -> float:
    """Seconds between scrapes after these were looked at."""
    intervals.learn([Matrix(Series("up", LLM), [(at, 1.0) for at in times])])
    return intervals.of(target(LLM))


def test_intervals_are_the_usual_ones_and_may_grow_again():
    intervals = Intervals(15.0)
    assert intervals.of(target(LLM)) == 15.0
    assert learned(intervals, 0.0, 29.9, 60.1, 90.0) == 30.0
    assert learned(intervals, 100.0, 105.01, 110.0, 115.0) == 5.0
    assert learned(intervals, *(5.0 * number for number in range(40)), 260.0, 320.0, 380.0) == 60.0
    assert intervals.copy().of(target(LLM)) == 60.0
    assert intervals.lacks(["llm", "other"])
    assert not intervals.lacks(["llm"])


def test_two_servers_a_second_apart_make_no_interval_of_a_second():
    memory = Memory(Intervals(15.0))
    learned(memory.intervals, 30.0, 45.0, 60.0, 75.0, 90.0)
    for at_s in (100.0, 101.0, 115.0, 116.0, 131.0):
        scraped = [Vector(Series("", labels), at_s, at_s - 1.0) for labels in (LLM, DCGM)]
        frame = moment(memory, at_s, at_s, scraped=scraped, again=scraped)
    assert frame.hosts[0].interval_s == 15.0


def test_the_chosen_replica_stays_until_it_has_fallen_behind():
    first, second = target(LLM, "a"), target(LLM, "b")
    choice = ReplicaChoice()
    chosen = []
    for at, behind in ((100.0, 1.0), (115.0, -1.0), (130.0, 40.0)):
        times = {first: at - behind, second: at}
        chosen += [one.replica for one in choice.one_per_page([first, second], times, 30.0)]
    assert chosen == ["b", "b", "b"]
    assert [one.replica for one in choice.one_per_page([first, second], {first: 200.0, second: 150.0}, 30.0)] == ["a"]


def moment(memory: Memory, at_s: float, tokens: float, **changes: object) -> FleetFrame:
    """An engine and a GPU, scraped 5 s before."""
    up = [Vector(Series("up", labels), at_s, 1.0) for labels in (LLM, DCGM)]
    scraped = [Vector(Series("", labels), at_s, at_s - 5.0) for labels in (LLM, DCGM)]
    engine = {"model_name": "m", "engine": "0", **LLM}
    engines = [
        Vector(Series("vllm:generation_tokens_total", engine), at_s, tokens),
        Vector(Series("vllm:num_requests_running", engine), at_s, 1.0),
    ]
    gpu = {"UUID": "GPU-a", "gpu": "0", "modelName": "NVIDIA H100", **DCGM}
    gpus = [Vector(Series("DCGM_FI_DEV_GPU_UTIL", gpu), at_s, 50.0)]
    made = Answers(at_s, scraped, up, engines, [], gpus, [], scraped)._replace(**changes)
    return build_frame(made, memory, Models((), ()), HostLabels(("instance",)))


def decoded(frame: FleetFrame) -> float:
    return frame.hosts[0].engines[0].ranks[0].counters["decode_tokens"]


def test_a_page_that_was_scraped_between_two_queries_waits_for_the_next_frame():
    memory = Memory(Intervals(15.0))
    assert decoded(moment(memory, 100.0, 1.0)) == 1.0
    later = [Vector(Series("", LLM), 115.0, 114.9), Vector(Series("", DCGM), 115.0, 110.0)]
    between = moment(memory, 115.0, 2.0, again=later)
    assert decoded(between) == 1.0
    assert between.hosts[0].engines[0].monotonic_s == 95.0
    assert between.hosts[0].gpus[0].monotonic_s == 95.0, "nothing has changed in its page"
    assert decoded(moment(memory, 130.0, 3.0)) == 3.0


def test_the_same_scrape_is_read_once():
    memory = Memory(Intervals(15.0))
    first = moment(memory, 100.0, 1.0)
    scraped = [Vector(Series("", labels), 104.0, 95.0) for labels in (LLM, DCGM)]
    second = moment(memory, 104.0, 1.0, scraped=scraped, again=scraped)
    assert second.hosts[0].engines[0].monotonic_s == first.hosts[0].engines[0].monotonic_s == 95.0
    assert second.hosts[0].engines[0].ranks is first.hosts[0].engines[0].ranks


def test_an_exporter_that_falls_silent_leaves_old_gpus_and_a_fault():
    memory = Memory(Intervals(15.0))
    moment(memory, 100.0, 1.0)
    up = [Vector(Series("up", LLM), 115.0, 1.0), Vector(Series("up", DCGM), 115.0, 0.0)]
    frames = [moment(memory, at_s, 1.0, up=up, gpus=[]) for at_s in (115.0, 130.0)]
    for frame in frames:
        (host,) = frame.hosts
        assert [gpu.monotonic_s for gpu in host.gpus] == [95.0]
        assert "cannot scrape this host's dcgm-exporter" in host.faults[0].text
        assert host.faults[0].since_wall_s == 115.0
    assert moment(memory, 145.0, 1.0).hosts[0].faults == ()


def test_a_target_that_is_gone_is_no_host_any_more():
    memory = Memory(Intervals(15.0))
    moment(memory, 100.0, 1.0)
    up = [Vector(Series("up", DCGM), 115.0, 1.0)]
    frame = moment(memory, 115.0, 1.0, up=up, engines=[])
    assert [len(host.engines) for host in frame.hosts] == [0]
    assert memory.engines == {}


def test_a_restarted_engine_is_read_anew():
    memory = Memory(Intervals(15.0))
    assert decoded(moment(memory, 100.0, 1000.0)) == 1000.0
    again = moment(memory, 115.0, 3.0)
    assert decoded(again) == 3.0
    assert again.hosts[0].engines[0].state is EndpointState.OK


def test_a_page_beyond_the_bound_is_cut_and_says_so():
    labels = {"model_name": "m", **LLM}
    many = [
        Vector(Series("vllm:num_requests_running", {**labels, "engine": str(number)}), 100.0, 1.0)
        for number in range(MOST_SAMPLES + 10)
    ]
    first = Vector(Series("vllm:generation_tokens_total", {**labels, "engine": "0"}), 100.0, 7.0)
    frame = moment(Memory(Intervals(15.0)), 100.0, 1.0, engines=[first, *many])
    assert decoded(frame) == 7.0
    assert "more series than gpumon reads" in frame.hosts[0].faults[0].text


async def test_an_answer_beyond_the_bound_is_cut_and_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(answers_file, "MOST_SERIES", 3)
    with LoopbackServer(lambda _: vector([({"a": str(number)}, "1") for number in range(5)])) as server:
        api = PrometheusApi(Prometheus(url=server.url))
        found = await api.query("up", 1.0)
        warnings = api.take_warnings()
        await api.close()
    assert len(found) == 3
    assert "more series than gpumon reads" in warnings[0]

"""Fleets as people scrape them, over some minutes: the rows are right, or give a reason."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpumon.config.schema import Config, Prometheus
from gpumon.fleet.fleet import Fleet
from gpumon.fleet.snapshot import HostShown, HostState
from gpumon.readings.frame import EndpointState, GpuState
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.verdict import Limit
from gpumon.session.build import deriver_maker
from gpumon.sources.engines.adapter import START_TIME
from gpumon.sources.prometheus import contents
from gpumon.sources.prometheus import source as sources
from gpumon.sources.prometheus.source import FleetSource
from tests.sources.prometheus.answering import Api
from tests.sources.prometheus.test_engine_gpus import SMALL, engine, exporter
from tests.sources.prometheus.test_grouping import api_again

REFRESH_S = 15.0
TOKENS_PER_S = 1000.0


async def host_after(api: Api, minutes: float, at: Callable[[Api, float], None]) -> HostShown:
    """The only host after so long."""
    (host,) = await hosts_after(api, minutes, at)
    return host


async def hosts_after(api: Api, minutes: float, at: Callable[[Api, float], None]) -> tuple[HostShown, ...]:
    """The hosts after so long; `at` sets the series of each scrape, whose Unix time it is given."""
    now_s = 10_000.0
    end_s = now_s + 60.0 * minutes
    fleet = Fleet(deriver_maker(Config(), None))
    api.now_s = lambda: now_s
    with api.server as server:
        source = FleetSource(Prometheus(url=server.url), wall=lambda: now_s, clock=lambda: now_s)
        while now_s <= end_s:
            scraped_s = now_s - now_s % api.scrape_s
            api.up = [(labels, value, scraped_s) for labels, value, _ in api.up]
            at(api, scraped_s)
            for _ in fleet.steps(await source.frame()):
                pass
            now_s += REFRESH_S
        await source.close()
    return fleet.snapshot.hosts


def measured(api: Api, scraped_s: float) -> None:
    """Power is another figure at each scrape: a page on which nothing ever changes is old."""
    watts = str(300.0 + scraped_s % 600.0 / 15.0)
    gpus = {labels["UUID"]: {**labels, "__name__": "DCGM_FI_DEV_POWER_USAGE"} for labels, _ in api.series["gpus"]}
    others = [one for one in api.series["gpus"] if one[0]["__name__"] != "DCGM_FI_DEV_POWER_USAGE"]
    api.series["gpus"] = [*others, *((labels, watts) for labels in gpus.values())]


def counted(api: Api, scraped_s: float) -> None:
    """The engine has decoded `TOKENS_PER_S` since it started."""
    measured(api, scraped_s)
    decoded = TOKENS_PER_S * scraped_s
    api.series["engines"] = [
        (labels, str(decoded) if labels["__name__"] == "vllm:generation_tokens_total" else value)
        for labels, value in api.series["engines"]
    ]


async def test_scrapes_of_a_minute_give_rates_that_are_right_and_nothing_is_old():
    api = Api()
    api.scrape_s = 60.0
    exporter(api, "n1", range(2), held=range(2))
    engine(api, "n1", SMALL)
    host = await host_after(api, 8.0, counted)
    (row,) = host.snapshot.engines
    assert row.rates.decode_tokens_per_s == pytest.approx(TOKENS_PER_S, rel=0.01)
    assert {gpu.reading.state for gpu in host.snapshot.gpus} == {GpuState.OK}
    assert [gpu.reading.busy_ratio for gpu in host.snapshot.gpus] == [0.5, 0.5]


async def test_an_exporter_without_profiling_has_busy_and_memory_and_a_reason_for_the_rest():
    api = Api()
    exporter(api, "n1", range(1), held=range(1))
    host = await host_after(api, 2.0, measured)
    (gpu,) = host.snapshot.gpus
    assert gpu.reading.busy_ratio == 0.5
    assert gpu.reading.vram_used_bytes == 75_000 * 2**20
    for value in (gpu.reading.sm_active_ratio, gpu.reading.tensor_active_ratio, gpu.bandwidth_bytes_per_s):
        assert isinstance(value, Missing), "a figure that nobody measures is no zero"
        assert value.reason in (Reason.NOT_SUPPORTED, Reason.NOT_EXPOSED)


async def test_gpus_without_work_are_idle_and_have_no_engine():
    api = Api()
    exporter(api, "n1", range(4), held=(0,))
    api.series["gpus"] = [
        (labels, "0" if labels["__name__"] == "DCGM_FI_DEV_GPU_UTIL" and labels["gpu"] != "0" else value)
        for labels, value in api.series["gpus"]
    ]
    engine(api, "n1", SMALL)
    host = await host_after(api, 3.0, counted)
    assert host.snapshot.engines[0].hardware.gpus == (0,)
    assert [gpu.reading.busy_ratio for gpu in host.snapshot.gpus] == [0.5, 0.0, 0.0, 0.0]
    assert [bool(gpu.engines) for gpu in host.snapshot.gpus] == [True, False, False, False]


QUEUEING = {
    "num_requests_running": 256.0,
    "num_requests_waiting": 300.0,
    "kv_cache_usage_perc": 0.4,
}
PER_S = {
    "generation_tokens_total": TOKENS_PER_S,
    "prompt_tokens_total": 2 * TOKENS_PER_S,
    "prompt_tokens_by_source_total": 2 * TOKENS_PER_S,
    "request_success_total": 5.0,
    "request_prompt_tokens_sum": 2 * TOKENS_PER_S,
    "request_prompt_tokens_count": 5.0,
    "request_generation_tokens_sum": TOKENS_PER_S,
    "request_generation_tokens_count": 5.0,
}


def queueing(api: Api, scraped_s: float) -> None:
    """All slots run, more requests wait, and the KV pool has room."""
    measured(api, scraped_s)
    own = {label: value for label, value in api.series["engines"][0][0].items() if label != "__name__"}
    own["source"] = "local_compute"
    shown = QUEUEING | {name: rate * scraped_s for name, rate in PER_S.items()}
    api.series["engines"] = [({**own, "__name__": f"vllm:{name}"}, str(value)) for name, value in shown.items()]


async def test_an_engine_whose_requests_queue_is_named_so_with_its_figures():
    api = Api()
    exporter(api, "n1", range(1), held=range(1))
    api.series["gpus"] = [
        (labels, "97" if labels["__name__"] == "DCGM_FI_DEV_GPU_UTIL" else value)
        for labels, value in api.series["gpus"]
    ]
    engine(api, "n1", SMALL)
    host = await host_after(api, 4.0, queueing)
    (row,) = host.snapshot.engines
    assert (row.load.running, row.load.waiting) == (256.0, 300.0)
    (verdict,) = host.snapshot.verdicts
    assert (verdict.scope, verdict.code) == (row.name, Limit.QUEUE_LIMIT)


@pytest.mark.parametrize("back", [True, False])
async def test_a_gpu_that_leaves_the_page_is_lost_after_three_scrapes_until_it_is_back(back: bool):
    api = Api()
    exporter(api, "n1", range(2))
    whole = list(api.series["gpus"])
    begun_s = 10_000.0

    def without_the_second(api: Api, scraped_s: float) -> None:
        is_there = scraped_s < begun_s + 60.0 or (back and scraped_s > begun_s + 240.0)
        api.series["gpus"] = [one for one in whole if is_there or one[0]["gpu"] == "0"]
        measured(api, scraped_s)

    host = await host_after(api, 5.0, without_the_second)
    assert [gpu.reading.state for gpu in host.snapshot.gpus] == [GpuState.OK, GpuState.OK if back else GpuState.LOST]
    lost = [verdict for verdict in host.snapshot.verdicts if verdict.cause == "lost"]
    assert [verdict.scope for verdict in lost] == ([] if back else ["gpu 1"])


@pytest.mark.parametrize("label", ["cluster", "region"])
async def test_a_host_that_leaves_is_no_lost_gpu_of_one_elsewhere_with_its_address(label: str):
    api = Api()
    for place in ("a", "b"):
        labels = api.target({"job": "dcgm", "instance": "n1:9400", label: place})
        api.gpu(labels, f"GPU-{place}", 0, Hostname="n1")

    def without_the_first(api: Api, scraped_s: float) -> None:
        if scraped_s > 10_060.0:
            api.up = [one for one in api.up if one[0][label] == "b"]
            api.series["gpus"] = [one for one in api.series["gpus"] if one[0][label] == "b"]
        measured(api, scraped_s)

    hosts = await hosts_after(api, 5.0, without_the_first)
    (here,) = (host for host in hosts if host.state is not HostState.GONE)
    assert [(gpu.reading.uuid, gpu.reading.state) for gpu in here.snapshot.gpus] == [("GPU-b", GpuState.OK)]


@pytest.mark.parametrize("router", ["litellm_in_flight_requests", "vllm_router_requests_total"])
async def test_a_router_beside_gpus_that_train_is_no_engine_apart(router: str):
    api = Api()
    exporter(api, "n1", range(2), held=range(2))
    engine(api, "n1", SMALL)
    exporter(api, "n2", range(2), held=range(2))
    labels = api.target({"job": "router", "instance": "10.9.0.1:4000"})
    api.series["engines"].append(({"__name__": router, **labels}, "3"))
    counted(api, 990.0)
    with api.server as server:
        source = FleetSource(Prometheus(url=server.url))
        frame = await source.frame(1000.0)
        await source.close()
    assert {host.name: len(host.engines) for host in frame.hosts} == {"n1": 1, "n2": 0, "10.9.0.1": 1}
    assert not [fault.text for fault in frame.faults if "may be the same machines" in fault.text]


def without_figures(api: Api, scraped_s: float) -> None:
    """From a minute on the engine's page has none."""
    counted(api, scraped_s)
    if scraped_s >= 10_060.0:
        api.series["engines"] = []


async def test_an_engine_whose_page_has_no_figures_for_long_has_left(monkeypatch: pytest.MonkeyPatch):
    """As from the agent of a Ray whose replica runs on another node by now."""
    monkeypatch.setattr(contents, "_NO_FIGURES_S", 60.0)
    api = Api()
    exporter(api, "n1", range(2), held=range(2))
    engine(api, "n1", SMALL)
    host = await host_after(api, 3.0, without_figures)
    assert host.snapshot.engines == ()


async def test_an_engine_whose_page_has_no_figures_any_more_stays_and_says_so():
    """As vLLM that was started again with --disable-log-stats."""
    api = Api()
    exporter(api, "n1", range(2), held=range(2))
    engine(api, "n1", SMALL)
    host = await host_after(api, 3.0, without_figures)
    (row,) = host.snapshot.engines
    assert row.state is EndpointState.METRICS_OFF
    assert row.model == SMALL
    assert isinstance(row.rates.decode_tokens_per_s, Missing)
    assert "its page has no figures of an engine any more" in row.fault
    assert not [verdict for verdict in host.snapshot.verdicts if verdict.code is Limit.IDLE_VRAM_HELD]


async def test_what_the_server_refuses_to_tell_is_neither_lost_nor_gone():
    api = Api()
    exporter(api, "n1", range(2), held=range(2))
    engine(api, "n1", SMALL)
    # The smallest of the queries: it is answered where that for the engines is beyond a limit.
    of_llm = [labels for labels, _, _ in api.up if labels["job"] == "llm"]
    api.series["started"] = [({"__name__": START_TIME, **labels}, "9000") for labels in of_llm]

    def refused_later(api: Api, scraped_s: float) -> None:
        counted(api, scraped_s)
        now_refused = {10_065.0: {"gpus"}, 10_200.0: {"engines"}}
        api.refused = now_refused.get(scraped_s, api.refused)

    host = await host_after(api, 2.75, refused_later)
    assert [gpu.reading.state for gpu in host.snapshot.gpus] == [GpuState.STALE, GpuState.STALE]
    assert not [verdict for verdict in host.snapshot.verdicts if verdict.cause == "lost"]
    host = await host_after(api_again(api), 5.0, refused_later)
    assert [gpu.reading.state for gpu in host.snapshot.gpus] == [GpuState.OK, GpuState.OK]
    assert [engine.hardware.gpus for engine in host.snapshot.engines] == [(0, 1)]


@pytest.mark.parametrize("lacks_targets", [False, True])
async def test_what_a_partial_answer_lacks_is_neither_lost_nor_gone_nor_switched_off(lacks_targets: bool):
    """As of a Thanos one of whose stores does not answer: what it has may be the pages, or their `up` as well."""
    api = Api()
    exporter(api, "n1", range(2), held=range(2))
    engine(api, "n1", SMALL)

    def partial_later(api: Api, scraped_s: float) -> None:
        counted(api, scraped_s)
        if scraped_s >= 10_065.0:
            api.warnings = ["No StoreAPIs matched for this query"]
            api.series["gpus"] = []
            api.series["engines"] = []
            if lacks_targets:
                api.up_warnings = api.warnings
                api.up = []

    host = await host_after(api, 8.0, partial_later)
    assert host.state is HostState.STALE
    assert [gpu.reading.state for gpu in host.snapshot.gpus] == [GpuState.STALE, GpuState.STALE]
    assert [(engine.state, engine.model) for engine in host.snapshot.engines] == [(EndpointState.OK, SMALL)]
    assert not [verdict for verdict in host.snapshot.verdicts if verdict.code is Limit.HARDWARE_FAULT]
    assert isinstance(host.snapshot.engines[0].rates.decode_tokens_per_s, Missing), "nothing new was heard of it"


async def test_a_target_that_partial_answers_lack_for_long_is_gone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sources, "_UP_KEPT_S", 60.0)
    api = Api()
    exporter(api, "n1", range(2))
    api.up_warnings = ["No StoreAPIs matched for this query"]

    def taken_away(api: Api, scraped_s: float) -> None:
        counted(api, scraped_s)
        if scraped_s >= 10_065.0:
            api.series["gpus"] = []
            api.up = []

    host = await host_after(api, 6.0, taken_away)
    assert host.state is HostState.GONE


async def test_a_warning_about_another_answer_hides_no_gpu_that_is_lost():
    api = Api()
    exporter(api, "n1", range(2), held=range(2))
    engine(api, "n1", SMALL)
    api.up_warnings = ["metric might not be a gauge"]

    def without_one(api: Api, scraped_s: float) -> None:
        counted(api, scraped_s)
        if scraped_s >= 10_065.0:
            api.series["gpus"] = [row for row in api.series["gpus"] if row[0]["gpu"] == "0"]

    host = await host_after(api, 4.0, without_one)
    assert [gpu.reading.state for gpu in host.snapshot.gpus] == [GpuState.OK, GpuState.LOST]


async def test_a_partial_answer_about_the_past_has_no_targets_of_now():
    api = Api()
    exporter(api, "n1", range(2))
    api.up = [(labels, value, 10_000.0) for labels, value, _ in api.up]
    with api.server as server:
        source = FleetSource(Prometheus(url=server.url), wall=lambda: 10_000.0, clock=lambda: 10_000.0)
        assert [host.name for host in (await source.frame()).hosts] == ["n1"]
        api.up = [(labels, 0.0, scraped_s) for labels, _, scraped_s in api.up]
        assert [host.name for host in (await source.frame()).hosts] == ["n1"]
        api.up_warnings = ["No StoreAPIs matched for this query"]
        api.series["gpus"] = []
        api.up = []
        past = await source.frame(9_000.0)
        await source.close()
    assert past.hosts == ()

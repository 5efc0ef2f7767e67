"""A fleet read from a real Prometheus that scrapes recorded pages of real engines and of a dcgm-exporter."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gpumon.config.schema import Model
from gpumon.config.schema import Prometheus as Settings
from gpumon.efficiency.deriver import Deriver
from gpumon.readings.fleet import FleetFrame, HostFrame
from gpumon.readings.frame import EndpointState, EngineKind, Frame, HostReading
from gpumon.readings.missing import Missing, number
from gpumon.readings.quantities import E2E
from gpumon.sources.engines.registry import BY_KIND
from gpumon.sources.exposition import Scanner
from gpumon.sources.packaged import gpu_catalogue
from gpumon.sources.prometheus.queries import ALL_BUCKETS, FLEET_BUCKETS
from gpumon.sources.prometheus.source import FleetSource
from tests.fakes.engine import Capture, FakeEngine
from tests.fakes.http_server import LoopbackServer, Reply, Request
from tests.fakes.prometheus import Prometheus

DATA = Path(__file__).parents[2] / "data"
DCGM = (DATA / "pages" / "dcgm" / "a100-all.prom").read_bytes()
CAPTURES = {
    "vllm": "vllm-poisson",
    "vllm-dp": "vllm-dp2",
    "vllm-old": "vllm-0.9",
    "sglang": "sglang-basic",
    "llamacpp": "llamacpp-basic",
    "triton": "triton-two-models",
}
TINY = Model(
    match="tiny-llama",
    params_b=0.02,
    layers=4,
    hidden=256,
    heads=8,
    kv_heads=4,
    head_dim=32,
    vocab=32000,
    weight_precision="bf16",
)


def item(job: str, port: int, path: str = "/metrics", **labels: str) -> str:
    """An item of scrape_configs."""
    named = ", ".join(f"{name}: {value!r}" for name, value in labels.items())
    target = f"{{targets: ['127.0.0.1:{port}'], labels: {{{named}}}}}"
    return f"- {{job_name: {job}, metrics_path: {path}, static_configs: [{target}]}}"


@contextlib.asynccontextmanager
async def watching(
    url: str, match: str = "", models: Sequence[Model] = (), buckets: frozenset[str] = FLEET_BUCKETS
) -> AsyncIterator[FleetSource]:
    """A source of the series that match."""
    source = FleetSource(Settings(url=url, interval_s=1.0, match=match), models, buckets=buckets)
    try:
        yield source
    finally:
        await source.close()


async def framed(source: FleetSource, right: Callable[[FleetFrame], object], timeout_s: float = 60.0) -> FleetFrame:
    """The first frame that is right."""
    end_s = time.monotonic() + timeout_s
    while not right(frame := await source.frame()):
        assert time.monotonic() < end_s, frame
        # Prometheus takes 5 s to its first scrape, and a frame asks several queries.
        await asyncio.sleep(0.5)
    return frame


def one(frame: FleetFrame) -> HostFrame:
    (host,) = frame.hosts
    return host


def pages() -> dict[str, bytes]:
    """A page of each capture, and one of a dcgm-exporter."""
    found = {name: max(Capture(of).scrapes, key=lambda each: len(each.body)).body for name, of in CAPTURES.items()}
    return found | {"dcgm": DCGM}


class Scraped(NamedTuple):
    """A Prometheus for all tests, with a cluster for each of them, as its first scrapes take five seconds to come."""

    prometheus: Prometheus
    pages: dict[str, bytes]
    """Those of the cluster `pages`: they stand still, each on a host of its own."""
    pages_port: int
    leaving: LoopbackServer
    """The engine of host `a` in the cluster `pair`, where a second one serves on host `b`."""

    def watching(self, cluster: str, *more: Any) -> contextlib.AbstractAsyncContextManager[FleetSource]:
        """A source of that cluster alone."""
        return watching(self.prometheus.url, f'cluster="{cluster}"', *more)


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    """It scrapes pages that stand still, an engine at a steady rate, a replayed one, and a pair."""
    bodies = pages()

    def answer(request: Request) -> Reply:
        return Reply(body=bodies[request.path[1:]])

    with contextlib.ExitStack() as stack:
        still = stack.enter_context(LoopbackServer(answer))
        even = stack.enter_context(LoopbackServer(steady(1000.0)))
        replayed = stack.enter_context(FakeEngine("vllm-poisson", start_s=20.0))
        pair = [stack.enter_context(LoopbackServer(steady(10.0))) for _ in range(2)]
        jobs = [
            # A label of the target's that the page has too becomes exported_...: the adapter must not notice.
            item(name, still.port, f"/{name}", cluster="pages", node=f"host-{name}", model_name="x", engine="y")
            for name in bodies
        ]
        jobs.append(item("even", even.port, cluster="even"))
        jobs.append(item("replayed", replayed.server.port, cluster="replayed"))
        jobs.append(item("pair-a", pair[0].port, cluster="pair", node="a"))
        jobs.append(item("pair-b", pair[1].port, cluster="pair", node="b"))
        prometheus = stack.enter_context(Prometheus(tmp_path_factory.mktemp("scraped"), jobs))
        yield Scraped(prometheus, bodies, still.port, pair[0])


async def test_figures_are_those_of_the_pages_themselves(scraped: Scraped):
    async with scraped.watching("pages", [TINY], ALL_BUCKETS) as source:
        frame = await framed(source, lambda frame: len(frame.hosts) == len(scraped.pages))
    async with scraped.watching("pages", [TINY]) as source:
        await source.frame()
        await source.settle()
        fewer = await source.frame()
        source.look_at("host-vllm")
        looked_at = await source.frame()
    assert frame.faults == ()
    assert frame.interval_s == 1.0
    assert_buckets(fewer, frame, full=())
    # All these pages have one address, by which more is asked of a host.
    assert_buckets(looked_at, frame, full=[host.name for host in frame.hosts])
    assert looked_at.queries == fewer.queries + 1
    hosts = {host.name.removeprefix("host-"): host for host in frame.hosts}
    for name in CAPTURES:
        readings = hosts[name].engines
        adapter = BY_KIND[readings[0].kind].adapter()
        scanned = Scanner(adapter.wanted_names).scan(scraped.pages[name])
        direct = sorted(adapter.read_all(scanned), key=lambda page: page.part)
        assert [reading.ranks for reading in readings] == [page.ranks for page in direct], name
        assert any(rank.counters for reading in readings for rank in reading.ranks), name
        for reading, page in zip(readings, direct, strict=True):
            assert (reading.model, reading.part, reading.live) == (page.model, page.part, dict(page.live))
            assert (reading.exact_steps, reading.started_wall_s) == (page.exact_steps, page.started_wall_s)
            assert reading.state is EndpointState.OK
            assert 0.0 <= frame.wall_s - reading.monotonic_s < 30.0
    assert hosts["vllm"].engines[0].llm is not None
    assert hosts["vllm"].engines[0].name == f"vllm:{scraped.pages_port}"
    assert hosts["vllm"].labels == {"cluster": "pages", "node": "host-vllm", "model_name": "x", "engine": "y"}
    assert [gpu.uuid[-4:] for gpu in hosts["dcgm"].gpus] == ["a100", "a101"]
    assert number(hosts["dcgm"].gpus[0].sm_clock_hz) == 1410e6


AT_END = {EngineKind.SGLANG, EngineKind.TGI, EngineKind.TENSORRT_LLM}
"""They may count tokens at a request's end alone."""


def assert_buckets(frame: FleetFrame, whole: FleetFrame, full: Sequence[str]) -> None:
    """All sums and counts are those of the whole; the buckets, too, but of four quantities, unless of a full host."""
    for host, other in zip(frame.hosts, whole.hosts, strict=True):
        for reading, expected in zip(host.engines, other.engines, strict=True):
            for rank, entire in zip(reading.ranks, expected.ranks, strict=True):
                assert (rank.counters, rank.gauges) == (entire.counters, entire.gauges)
                assert rank.histograms.keys() == entire.histograms.keys()
                for quantity, found in rank.histograms.items():
                    wanted = entire.histograms[quantity]
                    assert (found.sum, found.count, found.counts[-1]) == (wanted.sum, wanted.count, wanted.counts[-1])
                    kept = (
                        quantity in FLEET_BUCKETS or host.name in full or (reading.kind in AT_END and quantity == E2E)
                    )
                    assert found.bounds == (wanted.bounds if kept else (float("inf"),)), (host.name, quantity)


def steady(rate: float) -> Callable[[Request], Reply]:
    """A vLLM that has made `rate` tokens per second ever since."""
    begun_s = time.monotonic()

    def answer(_: Request) -> Reply:
        tokens = rate * (time.monotonic() - begun_s)
        labels = '{engine="0",model_name="tiny-llama"}'
        lines = (
            f"vllm:generation_tokens_total{labels} {tokens}",
            f"vllm:prompt_tokens_total{labels} {2.0 * tokens}",
            f"vllm:num_requests_running{labels} 4",
            "process_start_time_seconds 1700000000",
        )
        return Reply(body="\n".join((*lines, "")).encode())

    return answer


async def test_rates_are_those_of_the_engine_whenever_frames_are_asked_for(scraped: Scraped):
    deriver = Deriver(gpu_catalogue())
    rates: list[float] = []
    async with scraped.watching("even") as source:
        end_s = time.monotonic() + 60.0
        while time.monotonic() < end_s and not (rates and abs(rates[-1] / 1000.0 - 1.0) < 0.01):
            frame = await source.frame()
            engines = frame.hosts[0].engines if frame.hosts else ()
            # Not the scrapes' interval: a frame may repeat a scrape, or leave one out.
            await asyncio.sleep(0.37)
            seen = Frame(len(rates), frame.wall_s, frame.wall_s, 1.0, HostReading(), (), engines)
            told = [engine.rates.decode_tokens_per_s for engine in deriver.derive(seen).snapshot.engines]
            rates += [each for each in told if not isinstance(each, Missing)]
    assert rates
    assert rates[-1] == pytest.approx(1000.0, rel=0.01)
    assert min(rates) > 500.0, "a scrape that is seen twice is no standstill"


async def test_a_replayed_engine_counts_as_when_it_is_polled_itself(scraped: Scraped):
    tokens = 'vllm:generation_tokens_total{cluster="replayed"}[1m]'
    scraped.prometheus.until(f"count_over_time({tokens}) > 6")
    async with scraped.watching("replayed") as source:
        frame = await source.frame()
        name = one(frame).name
        past = await source.past(name, frame.wall_s - 5.0, frame.wall_s, 1.0)
        (reading,) = one(frame).engines
        raw = scraped.prometheus.query(tokens, frame.wall_s)[0]
    stored = {float(at): float(value) for at, value in raw["values"]}  # type: ignore[attr-defined]
    assert stored[reading.monotonic_s] == reading.ranks[0].counters["decode_tokens"]
    told = {each.monotonic_s: each.ranks[0].counters["decode_tokens"] for _, host in past for each in host.engines}
    assert len(told) >= 4
    assert all(stored[at] == value for at, value in told.items())
    assert [at for at, _ in past] == sorted(at for at, _ in past)


async def test_a_target_that_goes_down_is_refused_and_keeps_its_last_figures(scraped: Scraped):
    async with scraped.watching("pair") as source:
        before = await framed(source, lambda frame: len(frame.hosts) == 2)
        scraped.leaving.refuse()
        after = await framed(source, lambda frame: frame.hosts[0].engines[0].state is EndpointState.REFUSED)
        scraped.leaving.listen()
        again = await framed(source, lambda frame: frame.hosts[0].engines[0].state is EndpointState.OK)
    (reading,) = after.hosts[0].engines
    assert "cannot scrape it (up is 0)" in reading.fault
    assert reading.ranks
    assert reading.monotonic_s < after.wall_s
    assert after.hosts[1].engines[0].state is EndpointState.OK
    assert again.hosts[0].engines[0].name == before.hosts[0].engines[0].name
    assert again.hosts[0].engines[0].fault == ""


async def test_a_page_without_up_is_dated_by_its_own_series(scraped: Scraped):
    match = 'model_name="tiny-llama",cluster="even"'
    source = FleetSource(Settings(url=scraped.prometheus.url, match=match, interval_s=15.0))
    frame = await framed(source, lambda frame: frame.hosts)
    found = scraped.prometheus.query('timestamp(vllm:num_requests_running{cluster="even"})', frame.wall_s)
    await source.settle()
    again = await source.frame()
    await source.close()
    (reading,) = one(frame).engines
    assert [float(each["value"][1]) for each in found] == [reading.monotonic_s]  # type: ignore[index]
    assert reading.monotonic_s < frame.wall_s
    assert "1 targets have no series `up`" in "; ".join(fault.text for fault in frame.faults)
    assert again.queries == 7


async def test_looking_back_leaves_the_present_alone(scraped: Scraped):
    async with scraped.watching("even") as source:
        first = await framed(source, lambda frame: frame.hosts)
        second = await framed(
            source, lambda frame: one(frame).engines[0].monotonic_s > one(first).engines[0].monotonic_s
        )
        back = await source.frame(first.wall_s)
        before = await source.frame(first.wall_s - 3600.0)
        third = await source.frame()
    assert one(back).engines[0].ranks == one(first).engines[0].ranks
    assert one(back).engines[0].monotonic_s == one(first).engines[0].monotonic_s
    assert back.wall_s == pytest.approx(first.wall_s, abs=0.001)
    assert before.hosts == ()
    counted = [one(frame).engines[0].ranks[0].counters["decode_tokens"] for frame in (first, second, third)]
    assert counted == sorted(counted)
    assert one(third).engines[0].state is EndpointState.OK


async def test_a_prometheus_that_stops_is_a_fault_and_nothing_is_shown_as_new(tmp_path: Path):
    with LoopbackServer(steady(10.0)) as server:
        async with contextlib.AsyncExitStack() as stack:
            prometheus = stack.enter_context(Prometheus(tmp_path, [item("vllm", server.port)]))
            source = await stack.enter_async_context(watching(prometheus.url))
            await framed(source, lambda frame: frame.hosts)
            prometheus.__exit__()
            frame = await source.frame()
            later = await source.frame()
    assert frame.hosts == ()
    assert "is the Prometheus up?" in frame.faults[0].text
    assert later.faults[0].since_wall_s == frame.faults[0].since_wall_s

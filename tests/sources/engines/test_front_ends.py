"""Routers and proxies in front of two vLLM servers, over real HTTP: what is theirs, and that no token counts twice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec
import pytest

from gpumon.config.schema import Endpoint
from gpumon.efficiency.backends import backend_url, host_port_of
from gpumon.efficiency.deriver import Derived, Deriver
from gpumon.efficiency.service import ROUTER_KINDS, engines_in_sums
from gpumon.outputs.json import as_object
from gpumon.readings import quantities as q
from gpumon.readings.frame import EndpointState, EngineKind, EngineReading, Frame, HostReading
from gpumon.readings.missing import Missing, number
from gpumon.readings.snapshot import Engine
from gpumon.sources.endpoint import NO_SCAN, EndpointSource
from gpumon.sources.engines.front_end import kind_of_status
from gpumon.sources.engines.registry import BY_KIND
from gpumon.sources.packaged import gpu_catalogue
from gpumon.sources.prometheus.engine import kind_of
from tests.each_row import each_row
from tests.fakes.http_server import LoopbackServer, Reply, Request
from tests.records import replace
from tests.sources.engines.contract import Case, Reader, cases, metrics_path
from tests.sources.polling import PATIENT, always, first, polling
from tests.sources.test_probe import serving, text

TOKENS = 100.0
"""Tokens/s of each server."""
REQUESTS = 3.0
"""Requests/s to each server."""
MODEL = "Qwen/Qwen3-8B"


class Clock:
    """Time that stands still until it is set."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def vllm(clock: Clock) -> Callable[[Request], Reply]:
    """A server of the model that generates tokens all the time."""

    def answer(request: Request) -> Reply:
        labels = f'{{engine="0",model_name="{MODEL}"}}'
        lines = (
            f"vllm:generation_tokens_total{labels} {TOKENS * clock.now_s}",
            f"vllm:prompt_tokens_total{labels} {TOKENS * clock.now_s}",
            f'vllm:request_success_total{{engine="0",finished_reason="stop",model_name="{MODEL}"}} '
            f"{REQUESTS * clock.now_s}",
            f"vllm:num_requests_running{labels} 4",
            f"vllm:num_requests_waiting{labels} 0",
            "process_start_time_seconds 1.7e9",
        )
        pages = {"/metrics": text(("\n".join(lines) + "\n").encode())}
        return pages.get(request.path, Reply(404))

    return answer


def stack(seconds: float, backends: list[str]) -> str:
    """The page of the production stack's router: every tenth request to the second backend ends in an error."""
    lines = [f'vllm:num_incoming_requests_total{{model="{MODEL}"}} {2 * REQUESTS * seconds}']
    failed = 0.1 * REQUESTS * seconds
    for server, errors in zip(backends, (0.0, failed), strict=True):
        labels = f'model="{MODEL}",server="{server}"'
        lines += [
            f'vllm:num_requests_running{{server="{server}"}} 4',
            f'vllm:current_qps{{server="{server}"}} {REQUESTS}',
            f'vllm:healthy_pods_total{{server="{server}"}} 1',
            f"vllm:output_tokens_total{{{labels}}} {TOKENS * seconds}",
            f'vllm:request_latency_seconds_count{{{labels},status="success"}} {REQUESTS * seconds - errors}',
        ]
    labels = f'model="{MODEL}",server="{backends[1]}"'
    lines.append(f'vllm:request_latency_seconds_count{{{labels},status="error"}} {failed}')
    lines.append(f'vllm:request_errors_total{{{labels},error_type="ServerDisconnectedError"}} {failed}')
    return "\n".join(lines) + "\n"


def smg(seconds: float, backends: list[str]) -> str:
    """The page of SGLang's router, the second backend behind an open circuit breaker."""
    labels = f'router_type="http",model="{MODEL}",endpoint="chat"'
    lines = [
        f"smg_router_requests_total{{{labels}}} {2 * REQUESTS * seconds}",
        f'smg_router_tokens_total{{{labels},token_type="output"}} {2 * TOKENS * seconds}',
        'smg_http_inflight_request_age_count{gt="0",le="30"} 5',
        'smg_http_inflight_request_age_count{gt="30",le="60"} 3',
    ]
    for server in backends:
        is_open = int(server == backends[1])
        lines += [
            f'smg_worker_health{{worker="{server}"}} 1',
            f'smg_worker_cb_state{{worker="{server}"}} {is_open}',
            f'smg_worker_cb_outcomes_total{{worker="{server}",outcome="success"}} {REQUESTS * seconds}',
            f'smg_worker_requests_active{{worker="{server}"}} 4',
        ]
    return "\n".join(lines) + "\n"


def litellm(seconds: float, backends: list[str]) -> str:
    """The page of LiteLLM's proxy, under an alias of the model."""
    ended = "litellm_proxy_total_requests_metric_total"
    lines = [
        f'{ended}{{requested_model="chat",status_code="200"}} {1.8 * REQUESTS * seconds}',
        f'{ended}{{requested_model="chat",status_code="500"}} {0.2 * REQUESTS * seconds}',
        f'{ended}{{requested_model="",status_code="200"}} {seconds}',
        f'litellm_proxy_failed_requests_metric_total{{exception_status="500"}} {0.2 * REQUESTS * seconds}',
        f'litellm_proxy_failed_requests_metric_total{{exception_status="400"}} {seconds}',
        # Without a key: somebody looks for open servers.
        f'litellm_proxy_failed_requests_metric_total{{exception_status="None",requested_model="chat"}} {seconds}',
        f'litellm_proxy_failed_requests_metric_total{{exception_status="500",requested_model=""}} {seconds}',
        f'litellm_output_tokens_metric_total{{model="{MODEL}"}} {2 * TOKENS * seconds}',
        "litellm_in_flight_requests 9",
    ]
    for server in backends:
        labels = f'api_base="{server}/v1",litellm_model_name="{MODEL}",model_id="{server}"'
        lines += [
            f"litellm_deployment_state{{{labels}}} 0",
            # A cooldown of hours ago, which is never taken back.
            f'litellm_deployment_state{{api_base="{server}/v1",litellm_model_name="chat",model_id="{server}"}} 2',
            f"litellm_deployment_total_requests_total{{{labels}}} {REQUESTS * seconds}",
            f'litellm_deployment_success_responses_total{{{labels},requested_model="chat"}} {REQUESTS * seconds}',
        ]
    return "\n".join(lines) + "\n"


@asynccontextmanager
async def polled(
    clock: Clock, page: Callable[[float, list[str]], str], path: str = "/metrics", backends: int = 2
) -> AsyncIterator[list[EndpointSource]]:
    """A front end and as many of its two backends as are polled, all on loopback."""
    async with AsyncExitStack() as stack_:
        urls = sorted(stack_.enter_context(LoopbackServer(vllm(clock))).url for _ in range(2))

        def answer(request: Request) -> Reply:
            if request.path == path:
                return text(page(clock.now_s, urls).encode())
            return Reply(404)

        front = stack_.enter_context(LoopbackServer(answer))
        sources = []
        for url in (front.url, *urls[:backends]):
            source = EndpointSource(Endpoint(url=url), 2.0, clock, limits=PATIENT)
            stack_.push_async_callback(source.close)
            sources.append(source)
        yield sources


async def derived(clock: Clock, sources: list[EndpointSource], seconds: int = 20) -> Derived:
    """What is shown after so many seconds, of polls every 2 s."""
    deriver = Deriver(gpu_catalogue())
    for _ in range(0, seconds, 2):
        clock.now_s += 2.0
        for source in sources:
            await source.scrape()
            await source.ready(60.0)
        readings = tuple(source.reading for source in sources)
        last = deriver.derive(Frame(0, clock.now_s, clock.now_s, 2.0, HostReading(), engines=readings))
    return last


def front_of(last: Derived) -> Engine:
    front, *_ = last.snapshot.engines
    assert front.state is EndpointState.OK, front.fault
    return front


@pytest.mark.parametrize(
    ("page", "path", "kind", "running"),
    [
        (stack, "/metrics", EngineKind.VLLM_STACK, None),
        (smg, "/metrics", EngineKind.SMG, 8.0),
        (litellm, "/metrics/", EngineKind.LITELLM, 8.0),
    ],
    ids=["production stack", "smg", "litellm"],
)
async def test_a_front_ends_requests_and_tokens_are_those_of_its_backends_and_in_no_sum(
    page: Callable[[float, list[str]], str], path: str, kind: EngineKind, running: float | None
) -> None:
    clock = Clock()
    async with polled(clock, page, path) as sources:
        last = await derived(clock, sources)
    front, *servers = last.snapshot.engines
    assert (front.kind, [server.kind for server in servers]) == (kind, [EngineKind.VLLM] * 2)
    assert front.rates.requests_per_s == pytest.approx(2 * REQUESTS)
    assert number(front.load.running) == running
    assert isinstance(front.rates.decode_tokens_per_s, Missing)
    assert isinstance(front.efficiency.mfu_ratio, Missing)
    assert engines_in_sums(last.snapshot.engines) == servers
    assert last.points["decode"] == pytest.approx(2 * TOKENS)
    assert last.points["running"] == 8.0
    (replicas,) = last.snapshot.replicas
    assert (replicas.engines, replicas.requests_per_s) == (tuple(each.name for each in servers), pytest.approx(6.0))
    assert [backend.engine for backend in front.backends] == [server.name for server in servers]
    assert [backend.requests_per_s for backend in front.backends] == [pytest.approx(REQUESTS)] * 2
    assert last.snapshot.faults == () or all(fault.source != front.name for fault in last.snapshot.faults)


async def test_each_backend_has_its_own_state_and_failures() -> None:
    clock = Clock()
    async with polled(clock, smg) as sources:
        front = front_of(await derived(clock, sources))
    assert [backend.ready for backend in front.backends] == [1.0, 0.0]
    assert (front.load.backends_known, front.load.backends_ready) == (2.0, 1.0)
    async with polled(clock, stack) as sources:
        front = front_of(await derived(clock, sources))
    assert [number(backend.failures_per_s) for backend in front.backends] == [0.0, pytest.approx(0.1 * REQUESTS)]
    assert front.rates.failures_per_s == pytest.approx(0.1 * REQUESTS)
    async with polled(clock, litellm, "/metrics/") as sources:
        front = front_of(await derived(clock, sources))
    assert [backend.ready for backend in front.backends] == [1.0, 1.0]
    assert front.rates.failures_per_s == pytest.approx(0.2 * REQUESTS)  # wrong requests and health checks are none


async def test_nobody_is_asked_because_a_front_end_names_it() -> None:
    clock = Clock()
    asked: list[str] = []

    def stranger(request: Request) -> Reply:
        asked.append(request.path)
        return Reply(404)

    with LoopbackServer(stranger) as server:
        page = smg(1000.0, [server.url, "http://10.0.0.7:8000"]).encode()
        source = await first(always(text(page)))
    assert asked == []
    frame = Frame(0, clock.now_s, clock.now_s, 2.0, HostReading(), engines=(source.reading,))
    shown = Deriver(gpu_catalogue()).derive(frame).snapshot.engines[0]
    assert {backend.engine for backend in shown.backends} == {""}
    assert {backend.rank for backend in source.reading.backends} == {server.url, "http://10.0.0.7:8000"}


async def test_backends_stand_in_recordings_and_in_json() -> None:
    clock = Clock()
    async with polled(clock, smg, backends=1) as sources:
        last = await derived(clock, sources)
        frame = Frame(0, 0.0, 0.0, 2.0, HostReading(), engines=tuple(source.reading for source in sources))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(frame), type=Frame) == frame
    printed = as_object(last.snapshot)["engines"][0]
    assert (printed["backends_known"], printed["backends_ready"], printed["mfu_ratio"]) == (2.0, 1.0, None)
    polled_one, other = printed["backends"]
    assert (polled_one["engine"], other["engine"]) == (last.snapshot.engines[1].name, "")
    assert (polled_one["running"], polled_one["ready"], other["ready"]) == (4.0, 1.0, 0.0)
    assert other["missing"] == {"waiting": "not_exposed", "failures_per_s": "not_exposed"}


async def test_a_front_end_that_does_not_answer_has_no_backends() -> None:
    clock = Clock()
    async with polled(clock, smg) as sources:
        await derived(clock, sources)
        clock.now_s += 60.0
        reading = sources[0].reading
        frame = Frame(0, clock.now_s, clock.now_s, 2.0, HostReading(), engines=(reading,))
        shown = Deriver(gpu_catalogue()).derive(frame).snapshot.engines[0]
    assert shown.backends == ()
    assert isinstance(shown.load.backends_known, Missing)


async def test_a_routers_page_is_none_of_vllm_although_its_names_begin_so() -> None:
    page = stack(1000.0, ["http://a:1", "http://b:1"]).encode()
    source = await first(always(text(page)), engine="vllm")
    assert source.reading.state is EndpointState.WRONG_ENGINE
    assert "metrics of vLLM production stack, and the config says vLLM" in source.reading.fault
    source = await first(always(text(page)))
    assert (source.reading.kind, source.reading.model) == (EngineKind.VLLM_STACK, MODEL)


async def test_litellms_page_stands_behind_a_redirect_and_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    page = litellm(1000.0, ["http://a:1", "http://b:1"]).encode()

    def guarded(request: Request) -> Reply:
        if request.path == "/metrics":
            return Reply(307, headers={"Location": "/metrics/"})
        if request.path != "/metrics/":
            return Reply(404)
        if request.headers.get("authorization") == "Bearer sk-1":
            return text(page)
        return Reply(401)

    reading = (await first(guarded)).reading
    assert (reading.state, "api_key_env" in reading.fault) == (EndpointState.UNAUTHORIZED, True)
    monkeypatch.setenv("LITELLM_KEY", "sk-1")
    with LoopbackServer(guarded) as server:
        async with polling(server.url, interval_s=60.0, api_key_env="LITELLM_KEY") as source:
            assert (source.reading.state, source.reading.kind) == (EndpointState.OK, EngineKind.LITELLM)
    with serving({"/metrics": Reply(307, headers={"Location": "/elsewhere"})}) as server:
        async with polling(server.url, interval_s=60.0) as source:
            assert "redirected to /elsewhere" in source.reading.fault


def test_a_backends_address_is_read_without_what_may_be_secret_in_it() -> None:
    (reading,) = Reader(BY_KIND[EngineKind.LITELLM]).read(
        {
            "/metrics/": b'litellm_deployment_total_requests_total{api_base="https://me:pw@host:1/v1?key=sk-1#x"} 5\n'
            b'litellm_deployment_total_requests_total{api_base="https://me:p@w@other/v1"} 5\n'
            b'litellm_deployment_total_requests_total{api_base=""} 5\n'
            b'litellm_deployment_total_requests_total{api_base="None"} 5\n'
        }
    )
    assert [backend.rank for backend in reading.backends] == ["https://host:1/v1", "https://other/v1"]


@each_row(
    ("pods", "ready", "names", "known"),
    [
        # After a rolling update: the counts of the pods that were replaced are still there.
        (("new-a", "new-b"), 2, ["new-a", "new-b"], 2.0),
        # A version without gauges by pod names those that got a request.
        ((), 5, ["new-a", "old-a", "old-b"], 5.0),
    ],
)
def test_a_gateways_pods_are_those_that_there_are_now(
    pods: tuple[str, ...], ready: int, names: list[str], known: float
) -> None:
    lines = [f"llm_d_epp_ready_endpoints {ready}", 'llm_d_epp_request_total{model_name="m"} 10']
    lines += [f'llm_d_epp_per_endpoint_queue_size{{model_server_endpoint="{pod}"}} 0' for pod in pods]
    for pod in ("new-a", "old-a", "old-b"):
        lines.append(f'llm_d_epp_scheduler_attempts_total{{endpoint_name="{pod}"}} 4')
    (reading,) = Reader(BY_KIND[EngineKind.GATEWAY]).read({"/metrics": "\n".join([*lines, ""]).encode()})
    assert [backend.rank for backend in reading.backends] == names
    assert reading.ranks[0].gauges["backends"] == known


def test_a_release_without_counts_by_backend_has_its_own_rates_of_requests() -> None:
    """Production stack 0.1.9: only gauges, of which the running requests never fall again."""
    page = 'vllm:current_qps{server="http://a:1"} 1.5\nvllm:num_requests_running{server="http://a:1"} 70\n'
    (reading,) = Reader(BY_KIND[EngineKind.VLLM_STACK]).read({"/metrics": page.encode()})
    shown = Deriver(gpu_catalogue()).derive(Frame(0, 0.0, 0.0, 2.0, HostReading(), engines=(named(reading),)))
    (backend,) = shown.snapshot.engines[0].backends
    assert (backend.requests_per_s, isinstance(backend.running, Missing)) == (1.5, True)


def named(reading: EngineReading) -> EngineReading:
    """The reading as an endpoint gives it."""
    return replace(reading, name="front", url="http://127.0.0.1:9")


@each_row(
    ("address", "server", "url"),
    [
        ("http://127.0.0.1:8000/v1", ("localhost", 8000), "http://127.0.0.1:8000"),
        ("http://localhost:8000", ("localhost", 8000), "http://localhost:8000"),
        ("http://[::1]:8000/", ("localhost", 8000), "http://[::1]:8000"),
        ("https://api.example/v1", ("api.example", 443), "https://api.example"),
        ("grpc://10.0.0.7:50051", ("10.0.0.7", 50051), ""),
        ("unix:///tmp/x", None, ""),
        ("http://host:99999999", None, ""),
        ("http://[::1", None, ""),
        ("llama-0-rank-1", None, ""),
        ("", None, ""),
    ],
)
def test_an_address_is_the_same_server_however_it_is_written(
    address: str, server: tuple[str, int] | None, url: str
) -> None:
    assert (host_port_of(address), backend_url(address)) == (server, url)


@each_row(
    ("status", "quantity"),
    [
        *((status, q.FAILURES) for status in ("500", "503", "408")),
        *((status, "") for status in ("200", "400", "401", "404", "None", "")),
        ("429", q.REJECTIONS),
        ("499", q.ABORTS),
    ],
)
def test_what_failed_is_told_from_what_was_wrong_by_the_status(status: str, quantity: str) -> None:
    assert kind_of_status(status) == quantity


@each_row("case", [case for case in cases() if case.row.kind in ROUTER_KINDS], named=lambda case: case.name)
def test_a_prometheus_that_scrapes_a_front_end_gives_the_same_figures(case: Case) -> None:
    reader = Reader(case.row)
    path = metrics_path(case.row, case.polls[0])
    values = reader.scanner.scan(case.polls[0][path]).values
    assert kind_of(values) is case.row
    (direct,) = reader.read(case.polls[0])
    (scraped,) = case.row.adapter().read_all(NO_SCAN._replace(values=values))
    assert (scraped.ranks, scraped.backends) == (direct.ranks, direct.backends)


def test_backends_beyond_a_bound_are_counted_and_not_read() -> None:
    reader = Reader(BY_KIND[EngineKind.SMG])
    lines = "".join(f'smg_worker_health{{worker="http://10.0.0.1:{port}"}} 1\n' for port in range(1000, 1300))
    (reading,) = reader.read({"/metrics": lines.encode()})
    assert len(reading.backends) == 256
    assert reading.ranks[0].gauges[q.BACKENDS] == reading.ranks[0].gauges[q.BACKENDS_READY] == 300.0

"""TensorRT-LLM: its Prometheus page, and that nobody's JSON records are taken."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EndpointState, EngineKind, EngineReading, HistogramReading
from gpumon.sources.engines.adapter import Page
from gpumon.sources.engines.detect import sample_names
from gpumon.sources.engines.registry import BY_KIND
from gpumon.sources.engines.trtllm import SWITCH, TrtllmAdapter
from tests.fakes.http_server import LoopbackServer, Reply, Request
from tests.sources.engines.contract import PAGES, Reader
from tests.sources.polling import polling, until

FOLDER = PAGES / "trtllm"
PROMETHEUS = "/prometheus/metrics"
RECORDS = "/metrics"
JSON = "application/json"
ITERATION = b'[{"iter": 1, "iterLatencyMS": 12.5, "numActiveRequests": 2, "numQueuedRequests": 0}]'
CARDS = (
    b'{"object":"list","data":[{"id":"Llama-3.1-8B-Instruct","object":"model","created":0,"owned_by":"tensorrt_llm"}]}'
)


def body(name: str) -> bytes:
    return (FOLDER / name).read_bytes()


def page(reader: Reader, text: bytes) -> EngineReading:
    (found,) = reader.read({PROMETHEUS: text})
    return found


def trtllm() -> Reader:
    return Reader(BY_KIND[EngineKind.TENSORRT_LLM])


def changed(text: bytes, values: Mapping[str, float]) -> bytes:
    """The page with other values of the metrics named."""
    lines = []
    for line in text.decode().splitlines():
        name = line.partition("{")[0]
        lines.append(
            f"{line.rpartition(' ')[0]} {values[name]}" if name in values and not line.startswith("#") else line
        )
    return "\n".join(lines).encode() + b"\n"


class Server:
    """trtllm-serve with what it is given; it counts who asks for its records."""

    def __init__(self, *, prometheus: bytes | None = None, records: bytes = b"[]", cards: bytes = CARDS) -> None:
        self.prometheus, self.records, self.cards = prometheus, records, cards
        self.asked: list[str] = []

    def __call__(self, request: Request) -> Reply:
        self.asked.append(request.path)
        pages = {
            PROMETHEUS: None if self.prometheus is None else Reply(200, self.prometheus),
            RECORDS: Reply(200, self.records, JSON),
            "/v1/models": Reply(200, self.cards, JSON),
            "/version": Reply(200, b'{"version":"1.3.0"}', JSON),
        }
        return pages.get(request.path) or Reply(404, b'{"detail":"Not Found"}', JSON)

    @property
    def drained(self) -> int:
        return self.asked.count(RECORDS)


async def polled(server: Server, *, polls: int = 3, suffix: str = "", **settings: object) -> EngineReading:
    """The reading after some polls."""
    with LoopbackServer(server) as loopback:
        async with polling(loopback.url + suffix, **settings) as source:
            asked = len(server.asked)
            assert await until(lambda: len(server.asked) >= asked + polls)
            return source.reading


@pytest.mark.parametrize("engine", ["auto", "trtllm"])
@pytest.mark.parametrize("suffix", ["", "/metrics", "/v1"])
@pytest.mark.parametrize(
    "server",
    [
        Server(prometheus=body("iterations.prom")),
        Server(prometheus=b""),
        Server(prometheus=None),
        Server(prometheus=None, records=ITERATION),
    ],
    ids=["metrics", "nothing counted yet", "metrics off", "records waiting"],
)
async def test_records_are_never_taken(engine: str, suffix: str, server: Server) -> None:
    await polled(Server(prometheus=server.prometheus, records=server.records), engine=engine, suffix=suffix)
    again = Server(prometheus=server.prometheus, records=server.records)
    await polled(again, engine=engine, suffix=suffix)
    assert again.drained == 0


@pytest.mark.parametrize("engine", ["auto", "trtllm"])
async def test_a_server_with_metrics_is_read_with_its_model_and_version(engine: str) -> None:
    reading = await polled(Server(prometheus=body("iterations.prom")), engine=engine)
    assert (reading.state, reading.kind) == (EndpointState.OK, EngineKind.TENSORRT_LLM)
    assert (reading.model, reading.version) == ("Llama-3.1-8B-Instruct", "1.3.0")
    assert reading.model_root == "meta-llama/Llama-3.1-8B-Instruct"
    assert (reading.tp, reading.pp) == (2, 1)
    assert reading.from_documentation
    assert reading.advance[q.DECODE_TOKENS] is Advance.END


@pytest.mark.parametrize("engine", ["auto", "trtllm"])
async def test_a_server_without_metrics_is_told_how_to_switch_them_on(engine: str) -> None:
    reading = await polled(Server(prometheus=None), engine=engine)
    assert reading.state is EndpointState.METRICS_OFF
    assert SWITCH in reading.fault
    assert "return_perf_metrics: true" in reading.fault
    assert "enable_iter_perf_stats: true" in reading.fault
    assert len(reading.fault) <= 200


@pytest.mark.parametrize(("engine", "state"), [("trtllm", EndpointState.STARTING), ("auto", EndpointState.NOT_METRICS)])
async def test_a_server_that_has_served_nothing_says_so(engine: str, state: EndpointState) -> None:
    reading = await polled(Server(prometheus=b""), engine=engine)
    assert reading.state is state
    assert "served nothing yet" in reading.fault


async def test_an_unsigned_list_of_records_is_not_polled_on() -> None:
    """A proxy may hide the signature: the first answer is lost then, but no other."""
    server = Server(prometheus=None, records=ITERATION, cards=b'{"data":[]}')
    reading = await polled(server, polls=1)
    assert reading.state is EndpointState.NOT_METRICS
    assert "/prometheus/metrics" in reading.fault


def test_the_rate_is_what_generating_requests_get_in_the_mean_time_of_a_token() -> None:
    found = page(trtllm(), body("iterations.prom"))
    (rank,) = found.ranks
    assert rank.gauges[q.DECODE_RATE] == 15 / (0.46875 / 40)
    assert found.advance[q.DECODE_RATE] is Advance.DERIVED


def test_the_time_per_token_is_that_of_the_requests_that_ended_last() -> None:
    reader, first = trtllm(), body("iterations.prom")
    assert page(reader, first).ranks[0].gauges[q.DECODE_RATE] == 1280.0
    itl = "trtllm_time_per_output_token_seconds"
    few = {f"{itl}_sum": 0.46875 + 9 * 0.5, f"{itl}_count": 49, "trtllm_iteration_latency_seconds": 0.03}
    assert page(reader, changed(first, few)).ranks[0].gauges[q.DECODE_RATE] == 1280.0
    more = {f"{itl}_sum": 0.46875 + 15 * 0.03125, f"{itl}_count": 55, "trtllm_iteration_latency_seconds": 0.04}
    assert page(reader, changed(first, more)).ranks[0].gauges[q.DECODE_RATE] == pytest.approx(15 / 0.03125)


def test_no_rate_before_a_request_has_ended() -> None:
    lines = [line for line in body("iterations.prom").splitlines() if b"time_per_output_token" not in line]
    assert q.DECODE_RATE not in page(trtllm(), b"\n".join(lines)).ranks[0].gauges


def test_the_time_per_token_is_remembered() -> None:
    reader, text = trtllm(), body("iterations.prom")
    page(reader, text)
    lines = [line for line in text.splitlines() if b"time_per_output_token" not in line]
    cut = changed(b"\n".join(lines), {"trtllm_iteration_latency_seconds": 0.03, "trtllm_num_generation_requests": 30})
    assert page(reader, cut).ranks[0].gauges[q.DECODE_RATE] == 2560.0


def test_a_gauge_that_stayed_behind_is_no_running_request() -> None:
    """Its gauges are of the last iteration: an idle server goes on saying that a request runs."""
    reader, text = trtllm(), body("iterations.prom")
    busy = page(reader, text).ranks[0].gauges
    idle = page(reader, changed(text, {"trtllm_scheduled_batch_size": 0})).ranks[0].gauges
    assert (busy[q.RUNNING], idle[q.RUNNING], idle[q.DECODE_RATE]) == (17.0, 0.0, 0.0)
    assert page(trtllm(), changed(text, {"trtllm_scheduled_batch_size": 0})).ranks[0].gauges[q.DECODE_RATE] == 0.0


def test_without_the_scheduled_batch_it_is_idle_after_two_polls_without_an_iteration() -> None:
    lines = [line for line in body("iterations.prom").splitlines() if b"scheduled_batch_size" not in line]
    reader, text = trtllm(), b"\n".join(lines)
    seen = [page(reader, text).ranks[0].gauges for _ in range(3)]
    assert [gauges[q.RUNNING] for gauges in seen] == [17.0, 17.0, 0.0]
    assert [gauges[q.DECODE_RATE] for gauges in seen] == [1280.0, 0.0, 0.0]
    again = page(reader, changed(text, {"trtllm_iteration_latency_seconds": 0.02})).ranks[0].gauges
    assert again[q.RUNNING] == 17.0
    assert again[q.DECODE_RATE] == 1280.0


def test_one_of_the_ranks_says_how_many_run_where_there_are_no_iteration_statistics() -> None:
    found = page(trtllm(), body("requests.prom"))
    assert found.ranks[0].gauges == {q.RUNNING: 16.0}
    assert len(found.ranks) == 1


def test_mean_lengths_have_no_quantiles() -> None:
    (rank,) = page(trtllm(), body("iterations.prom")).ranks
    assert rank.histograms[q.PROMPT_LENGTH] == HistogramReading((float("inf"),), (40.0,), 40960.0, 40.0)


def test_nothing_drafted_is_not_less_than_one_token_a_step() -> None:
    text = changed(body("iterations.prom"), {"trtllm_spec_decode_acceptance_length": 0.0})
    found = page(trtllm(), text)
    assert q.MEAN_ACCEPTED not in found.ranks[0].gauges
    assert q.MEAN_ACCEPTED not in found.live


def test_a_worker_of_dynamo_is_read_where_the_records_would_stand() -> None:
    for prefix in ("trtllm_", "trtllm:"):
        names = [b"request_success", b"e2e_request", b"time_to_first", b"time_per_output", b"request_queue"]
        lines = [
            line.replace(b"# TYPE ", b"# TYPE " + prefix.encode(), 1) if line.startswith(b"# TYPE") else line
            for line in body("old.prom").splitlines()
        ]
        lines = [prefix.encode() + line if any(line.startswith(name) for name in names) else line for line in lines]
        lines += [
            b'dynamo_component_requests_total{dynamo_component="tensorrt_llm",dynamo_endpoint="generate",'
            b'dynamo_namespace="dynamo",model="Qwen/Qwen3-0.6B"} 2',
            b'dynamo_component_kvstats_gpu_cache_usage_percent{dynamo_component="tensorrt_llm"} 0.5',
        ]
        text = b"\n".join(lines)
        (found,) = trtllm().read({RECORDS: text})
        assert found.ranks[0].counters == {q.REQUESTS: 40.0}
        assert found.ranks[0].gauges == {q.KV_USAGE: 0.5}
        assert found.info["dynamo_component"] == "tensorrt_llm"
        assert TrtllmAdapter.claims(Page(RECORDS, frozenset(sample_names(text)), text))


@pytest.mark.parametrize(
    ("path", "text", "ours"),
    [
        (PROMETHEUS, body("old.prom"), True),
        ("", body("old.prom"), True),
        (RECORDS, body("old.prom").replace(b'engine_type="undefined",', b""), False),
        (PROMETHEUS, b"", False),
        (RECORDS, b"", False),
        (PROMETHEUS, b"prometheus_build_info{} 1\n", False),
        (RECORDS, b'[{"name":"x"}]', False),
        (RECORDS, b"[1", False),
        ("/v1/metrics", b"[]", False),
    ],
)
def test_what_is_taken_for_its_page(path: str, text: bytes, ours: bool) -> None:
    assert TrtllmAdapter.claims(Page(path, frozenset(sample_names(text)), text)) is ours

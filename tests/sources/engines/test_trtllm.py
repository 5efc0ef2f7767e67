"""TensorRT-LLM: its Prometheus page, and that nobody's JSON records are taken."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EndpointState, EngineKind, EngineReading
from gpumon.sources.engines.registry import BY_KIND
from gpumon.sources.engines.trtllm import SWITCH
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


def test_a_gauge_that_stayed_behind_is_no_running_request() -> None:
    """Its gauges are of the last iteration: an idle server goes on saying that a request runs."""
    reader, text = trtllm(), body("iterations.prom")
    busy = page(reader, text).ranks[0].gauges
    idle = page(reader, changed(text, {"trtllm_scheduled_batch_size": 0})).ranks[0].gauges
    assert (busy[q.RUNNING], idle[q.RUNNING], idle[q.DECODE_RATE]) == (17.0, 0.0, 0.0)
    assert page(trtllm(), changed(text, {"trtllm_scheduled_batch_size": 0})).ranks[0].gauges[q.DECODE_RATE] == 0.0

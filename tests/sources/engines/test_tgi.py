"""TGI: live tokens from what each step hands out, /info beside the page, and over HTTP."""

from __future__ import annotations

from gpumon.readings import quantities as q
from gpumon.readings.frame import EndpointState, EngineKind, EngineReading
from gpumon.sources.engines.registry import BY_KIND
from tests.fakes.http_server import LoopbackServer, Reply, Request
from tests.sources.engines.contract import PAGES, Reader
from tests.sources.polling import polling, until

METRICS, INFO = "/metrics", "/info"
FOLDER = PAGES / "tgi"
RUNNING = (FOLDER / "running.prom").read_bytes()
EMITTED = b"tgi_request_skipped_tokens_count"
BEYOND = b"tgi_request_skipped_tokens_sum"


def tgi() -> Reader:
    return Reader(BY_KIND[EngineKind.TGI])


def page(reader: Reader, text: bytes) -> EngineReading:
    (found,) = reader.read({METRICS: text})
    return found


def without(text: bytes, *names: bytes) -> bytes:
    return b"\n".join(line for line in text.splitlines() if not line.startswith(names))


def server(request: Request) -> Reply:
    info = (FOLDER / "info.json").read_bytes()
    pages = {METRICS: Reply(200, RUNNING, "text/plain; charset=utf-8"), INFO: Reply(200, info, "application/json")}
    return pages.get(request.path, Reply(404, b""))


async def test_model_and_version_come_from_its_own_page() -> None:
    with LoopbackServer(server) as loopback:
        async with polling(loopback.url) as source:
            assert await until(lambda: "identity" in source.reading.info)
            reading = source.reading
            polls = len([request for request in loopback.requests if request.path == METRICS])
            assert await until(lambda: len(loopback.requests) > polls + 10)
        asked = [request.path for request in loopback.requests]
    assert (reading.state, reading.kind, reading.version) == (EndpointState.OK, EngineKind.TGI, "3.3.6")
    assert reading.model == reading.model_root == "meta-llama/Llama-3.1-8B-Instruct"
    assert reading.from_documentation
    assert asked.count(INFO) == 1
    assert asked.count("/version") == 0


async def test_a_server_that_has_served_nothing_yet_is_starting() -> None:
    def fresh(request: Request) -> Reply:
        return Reply(200, b"" if request.path == METRICS else b"{}")

    with LoopbackServer(fresh) as loopback:
        async with polling(loopback.url, engine="tgi") as source:
            assert source.reading.state is EndpointState.STARTING
            assert "TGI" in source.reading.fault


def test_half_of_the_tokens_is_no_restart() -> None:
    reader = tgi()
    assert page(reader, RUNNING).ranks[0].counters[q.DECODE_TOKENS] == 700.0
    cut = page(reader, without(RUNNING, BEYOND))
    assert q.DECODE_TOKENS not in cut.ranks[0].counters
    assert q.DECODE_TOKENS not in cut.live
    assert page(reader, RUNNING).ranks[0].counters[q.DECODE_TOKENS] == 700.0


def test_an_answer_of_another_kind_takes_only_the_model() -> None:
    for info in (b"", b"[]", b"\xff", b'{"model_id":7,"version":null,"max_total_tokens":"x\\u0000"}', b"<html>"):
        (found,) = tgi().read({METRICS: RUNNING, INFO: info})
        assert found.ranks[0].counters[q.DECODE_TOKENS] == 700.0
        assert isinstance(found.model, str)

"""SGLang, llama.cpp and Ollama over real HTTP: keys, switches that are off, routers, and nothing but GET."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from gpumon.efficiency.deriver import Deriver
from gpumon.readings import quantities as q
from gpumon.readings.frame import EndpointState, EngineKind, Frame, HostReading
from gpumon.readings.missing import Missing, Reason
from gpumon.sources.packaged import gpu_catalogue
from tests.fakes.engine import Capture, other_pages
from tests.fakes.http_server import LoopbackServer, Reply, Request
from tests.sources.engines.contract import PAGES
from tests.sources.polling import first, polling, until

KEY = "k-secret"
LLAMA = Capture("llamacpp-basic")
LLAMA_PAGES = {
    **other_pages("llamacpp"),
    "/metrics": Reply(200, LLAMA.at(30.0).body),
    "/slots": Reply(200, LLAMA.answer("slots", 30.0).body, "application/json"),
}
SGLANG_PAGES = {
    **other_pages("sglang"),
    "/metrics": Reply(200, Capture("sglang-basic").at(30.0).body),
    "/server_info": Reply(200, (PAGES / "sglang" / "server_info.json").read_bytes(), "application/json"),
}
NOT_SUPPORTED = Reply(501, b'{"error":{"code":501,"message":"Start it with `--metrics`"}}', "application/json")


def serving(pages: Mapping[str, Reply], open_paths: tuple[str, ...] = ()) -> Callable[[Request], Reply]:
    """A server that wants a key for all its paths but these, if any are named."""

    def answer(request: Request) -> Reply:
        keyed = request.headers.get("authorization") == f"Bearer {KEY}"
        if open_paths and request.path not in open_paths and not keyed:
            return Reply(401, b'{"error":{"code":401,"message":"Invalid API Key"}}', "application/json")
        return pages.get(request.path, Reply(404, b'{"detail":"Not Found"}', "application/json"))

    return answer


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    file = tmp_path / "key"
    file.write_text(KEY + "\n")
    return str(file)


async def test_all_pages_of_a_guarded_llama_cpp_are_read_with_the_key(key_file: str) -> None:
    with LoopbackServer(serving(LLAMA_PAGES, ("/health",))) as server:
        async with polling(server.url, api_key_file=key_file) as source:
            assert await until(lambda: len(server.requests) > 12)
            reading = source.reading
    assert (reading.state, reading.kind) == (EndpointState.OK, EngineKind.LLAMA_CPP)
    assert reading.ranks[0].counters[q.DECODE_TOKENS] > 10_000
    assert reading.ranks[0].gauges[q.MOST_RUNNING] == 4.0
    assert reading.model_root == "tiny-llama.gguf"
    assert KEY not in f"{reading} {source!r} {source.url}"


async def test_sglangs_settings_are_guarded_where_its_metrics_are_not(key_file: str) -> None:
    answer = serving(SGLANG_PAGES, ("/metrics", "/health"))
    source = await first(answer, api_key_file=key_file)
    reading = source.reading
    assert (reading.state, reading.kind, reading.version) == (EndpointState.OK, EngineKind.SGLANG, "0.5.23")
    assert reading.model_root == "/models/Qwen3-30B-A3B-FP8"
    assert (reading.tp, reading.dp) == (4, 2)
    assert reading.info["cache_dtype"] == "fp8_e4m3"
    without = (await first(answer)).reading
    assert (without.state, without.version, without.tp) == (EndpointState.OK, "", 0)
    assert without.ranks[0].counters == reading.ranks[0].counters


async def test_llama_cpp_without_metrics_tells_what_runs_and_no_tokens() -> None:
    with LoopbackServer(serving({**LLAMA_PAGES, "/metrics": NOT_SUPPORTED})) as server:
        async with polling(server.url) as source:
            assert await until(lambda: len(server.requests) > 12)
            reading = source.reading
        asked = [request.path for request in server.requests]
    assert (reading.state, reading.kind) == (EndpointState.OK, EngineKind.LLAMA_CPP)
    assert reading.ranks[0].gauges[q.RUNNING] == 4.0
    assert reading.ranks[0].counters == {}
    deriver = Deriver(gpu_catalogue())
    (engine,) = deriver.derive(Frame(1, 0.0, reading.monotonic_s, 1.0, HostReading(), (), (reading,))).snapshot.engines
    off = Missing(Reason.OFF, "start it with --metrics")
    assert (engine.rates.decode_tokens_per_s, engine.rates.prefill_tokens_per_s) == (off, off)
    assert asked.count("/metrics") == 1
    assert asked.count("/slots") > 5
    assert asked.count("/props") == 1


async def test_ollama_tells_its_loaded_models_by_get_alone() -> None:
    pages = {
        "/api/ps": Reply(200, (PAGES / "ollama" / "loaded.ps.json").read_bytes(), "application/json; charset=utf-8"),
        "/api/version": Reply(200, b'{"version":"0.33.0"}', "application/json; charset=utf-8"),
        "/": Reply(200, b"Ollama is running"),
    }
    with LoopbackServer(serving(pages)) as server:
        async with polling(server.url) as source:
            assert await until(lambda: bool(source.reading.version))
            readings = source.readings
    assert [reading.part for reading in readings] == ["llama3.3:70b", "nomic-embed-text:latest", "smollm2:135m"]
    assert {(reading.kind, reading.version) for reading in readings} == {(EngineKind.OLLAMA, "0.33.0")}
    assert [reading.info["on_gpu_ratio"] for reading in readings] == ["0.500", "1.000", "0.000"]
    assert {request.method for request in server.requests} == {"GET"}
    assert not [request for request in server.requests if request.path == "/api/show"]

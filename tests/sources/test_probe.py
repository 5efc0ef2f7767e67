"""What a server is told by through real HTTP: paths, pages, keys, switches that are off, and what must not be asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from gpumon.efficiency.deriver import Deriver
from gpumon.readings import quantities as q
from gpumon.readings.frame import EndpointState, EngineKind, Frame, HostReading
from gpumon.readings.missing import Missing, Reason
from gpumon.sources.endpoint import BackOff
from gpumon.sources.packaged import gpu_catalogue
from tests.fakes.engine import Capture, other_pages
from tests.fakes.http_server import LoopbackServer, Reply, Request
from tests.sources.engines.contract import PAGES
from tests.sources.polling import PAGE, QUICK, first, polling, until

NIM = (
    b'num_requests_running{model_name="m"} 1\nnum_request_max{model_name="m"} 8\n'
    b'generation_tokens_total{model_name="m"} 5\nprompt_tokens_total{model_name="m"} 7\n'
)
TRTLLM = (
    b'trtllm_generation_tokens_total{model_name="m",engine_type="trtllm"} 5\n'
    b'trtllm_kv_cache_utilization{model_name="m",engine_type="trtllm"} 0.5\n'
)
LLAMA = b"llamacpp:n_decode_total 5\nllamacpp:n_busy_slots_per_decode 1\nllamacpp:requests_processing 1\n"
OLLAMA = b'{"models":[{"name":"m:latest","model":"m:latest","size":10,"size_vram":10,"context_length":4096}]}'
SIGNED = b'{"object":"list","data":[{"id":"m","object":"model","owned_by":"tensorrt_llm"}]}'


def serving(pages: Mapping[str, Reply], other: int = 404) -> LoopbackServer:
    """A server with these pages and nothing else."""
    return LoopbackServer(lambda request: pages.get(request.path, Reply(other)))


def text(body: bytes) -> Reply:
    return Reply(200, body, "text/plain; version=0.0.4")


def json(body: bytes) -> Reply:
    return Reply(200, body, "application/json")


@pytest.mark.parametrize(
    ("pages", "kind"),
    [
        ({"/metrics": text(PAGE)}, EngineKind.VLLM),
        ({"/v1/metrics": text(NIM)}, EngineKind.NIM),
        ({"/prometheus/metrics": text(TRTLLM), "/metrics": json(b"[]")}, EngineKind.TENSORRT_LLM),
        ({"/api/ps": json(OLLAMA)}, EngineKind.OLLAMA),
        ({"/v1/metrics": text(PAGE)}, EngineKind.NIM),
    ],
    ids=["vllm", "nim", "trtllm", "ollama", "nim 2 (vllm inside)"],
)
async def test_a_server_is_found_out_by_what_it_answers_where(pages: Mapping[str, Reply], kind: EngineKind) -> None:
    with serving(pages) as server:
        async with polling(server.url) as source:
            assert source.reading.state is EndpointState.OK, source.reading.fault
            assert source.reading.kind is kind
            begun = len(server.requests)
            assert await until(lambda: len(server.requests) > begun + 3)
            again = {request.path for request in server.requests[begun:]}
            assert again & set(pages)
            assert not again - {*pages, "/v1/models", "/version", "/slots", "/props"}


@pytest.mark.parametrize("signed", [True, False], ids=["signed", "no model list"])
async def test_json_metrics_of_tensorrt_llm_are_not_drained(*, signed: bool) -> None:
    pages = {"/metrics": json(b'[{"iter": 1}]'), **({"/v1/models": json(SIGNED)} if signed else {})}
    for settings in ({"engine": "trtllm"}, {}) if signed else ({"engine": "trtllm"},):
        with serving(pages) as server:
            async with polling(server.url, **settings) as source:
                assert source.reading.state is EndpointState.METRICS_OFF
                assert "return_perf_metrics" in source.reading.fault
            assert not [request for request in server.requests if request.path == "/metrics"]


async def test_the_api_key_goes_out_only_where_the_page_asks_for_it(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("sesame")

    def guarded(request: Request) -> Reply:
        if request.headers.get("authorization") != "Bearer sesame":
            return Reply(401)
        return text(LLAMA) if request.path == "/metrics" else Reply(404)

    with LoopbackServer(guarded) as server:
        async with polling(server.url, engine="llamacpp", api_key_file=str(key)) as source:
            assert source.reading.state is EndpointState.OK, source.reading.fault
    with serving({"/metrics": text(LLAMA)}) as server:
        async with polling(server.url, engine="llamacpp", api_key_file=str(key)) as source:
            assert source.reading.state is EndpointState.OK
        assert not [one for one in server.requests if one.path == "/metrics" and "authorization" in one.headers]


@pytest.mark.parametrize("status", [401, 403])
async def test_a_key_that_does_not_open_the_page_says_why(
    status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("QWEN_KEY", raising=False)
    monkeypatch.setenv("WRONG_KEY", "open-says-me")
    monkeypatch.setenv("BARE_KEY", "  ")
    (tmp_path / "empty").write_text("\n")
    why = {
        ("api_key_env", "QWEN_KEY"): "api_key_env: QWEN_KEY is not set: export it before starting gpumon",
        ("api_key_env", "BARE_KEY"): "the key in BARE_KEY is empty: put the bare key there",
        ("api_key_env", "WRONG_KEY"): "the key was refused: check what WRONG_KEY holds",
        ("api_key_file", f"{tmp_path}/none"): f"api_key_file: no such file: {tmp_path}/none",
        ("api_key_file", f"{tmp_path}/empty"): f"the key in file {tmp_path}/empty is empty: put the bare key there",
        ("api_key_file", str(tmp_path)): f"api_key_file: file {tmp_path} cannot be read (",
    }
    with serving({}, other=status) as server:
        for (setting, place), words in why.items():
            for engine in ("auto", "vllm"):
                async with polling(server.url, engine=engine, **{setting: place}) as source:
                    assert source.reading.state is EndpointState.UNAUTHORIZED
                    assert source.reading.fault.startswith(f"{status}: {words}")
                    assert "open-says-me" not in f"{source.reading} {source!r}"


async def test_another_engine_than_the_config_says_is_named() -> None:
    with serving({"/metrics": text(LLAMA)}) as server:
        async with polling(server.url, engine="vllm") as source:
            assert source.reading.state is EndpointState.WRONG_ENGINE
            assert "llama.cpp" in source.reading.fault
            assert "vLLM" in source.reading.fault


async def test_records_that_may_be_somebody_elses_are_taken_once_at_most() -> None:
    """A TensorRT-LLM server that nothing tells from others: its model list is guarded."""
    pages = {"/metrics": json(b'[{"iter": 1}]'), "/v1/models": Reply(401)}
    with serving(pages) as server:
        async with polling(server.url, back_off=BackOff(0.005, 0.005)) as source:
            assert source.reading.state is EndpointState.NOT_METRICS
            assert await until(lambda: len(server.requests) > 40)
            asked = [request.path for request in server.requests]
            assert asked.count("/metrics") == 1
            assert "/prometheus/metrics" in source.reading.fault


async def test_what_may_drain_is_not_asked_while_the_server_does_not_say_who_it_is() -> None:
    with serving({"/metrics": json(b'[{"iter": 1}]'), "/v1/models": Reply(200, SIGNED, delay_s=9.0)}) as server:
        async with polling(server.url, limits=QUICK) as source:
            assert source.reading.state is EndpointState.TIMEOUT
            assert "/metrics" not in {request.path for request in server.requests}


@pytest.mark.parametrize(
    ("path", "pages", "asked", "engine"),
    [
        ("/prometheus/metrics", {"/prometheus/metrics": text(TRTLLM)}, {"/prometheus/metrics"}, "auto"),
        ("/v1/metrics", {"/v1/metrics": text(NIM)}, {"/v1/metrics"}, "auto"),
        ("/metrics", {"/metrics": text(LLAMA)}, {"/metrics", "/slots"}, "llamacpp"),
        ("/prometheus/metrics", {"/prometheus/metrics": text(PAGE)}, {"/prometheus/metrics"}, "auto"),
    ],
    ids=["trtllm", "nim", "llama.cpp", "vllm behind a gateway"],
)
async def test_a_url_that_names_the_page_is_asked_for_that_page(
    path: str, pages: Mapping[str, Reply], asked: set[str], engine: str
) -> None:
    with serving(pages) as server:
        async with polling(server.url + path, engine=engine) as source:
            assert source.reading.state is EndpointState.OK, source.reading.fault
            paths = [request.path for request in server.requests]
        assert paths[0] == path
        assert asked <= set(paths)
        assert not set(paths) - {*asked, "/v1/models", "/version", "/v1/version", "/props"}


KEY = "k-secret"
RECORDED = Capture("llamacpp-basic")
LLAMA_PAGES = {
    **other_pages("llamacpp"),
    "/metrics": Reply(200, RECORDED.at(30.0).body),
    "/slots": Reply(200, RECORDED.answer("slots", 30.0).body, "application/json"),
}
SGLANG_PAGES = {
    **other_pages("sglang"),
    "/metrics": Reply(200, Capture("sglang-basic").at(30.0).body),
    "/server_info": Reply(200, (PAGES / "sglang" / "server_info.json").read_bytes(), "application/json"),
}
NOT_SUPPORTED = Reply(501, b'{"error":{"code":501,"message":"Start it with `--metrics`"}}', "application/json")


def guarding(pages: Mapping[str, Reply], open_paths: tuple[str, ...] = ()) -> Callable[[Request], Reply]:
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
    with LoopbackServer(guarding(LLAMA_PAGES, ("/health",))) as server:
        async with polling(server.url, api_key_file=key_file) as source:
            assert await until(lambda: len(server.requests) > 12)
            reading = source.reading
    assert (reading.state, reading.kind) == (EndpointState.OK, EngineKind.LLAMA_CPP)
    assert reading.ranks[0].counters[q.DECODE_TOKENS] > 10_000
    assert reading.ranks[0].gauges[q.MOST_RUNNING] == 4.0
    assert reading.model_root == "tiny-llama.gguf"
    assert KEY not in f"{reading} {source!r} {source.url}"


async def test_sglangs_settings_are_guarded_where_its_metrics_are_not(key_file: str) -> None:
    answer = guarding(SGLANG_PAGES, ("/metrics", "/health"))
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
    with LoopbackServer(guarding({**LLAMA_PAGES, "/metrics": NOT_SUPPORTED})) as server:
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
    with LoopbackServer(guarding(pages)) as server:
        async with polling(server.url) as source:
            assert await until(lambda: bool(source.reading.version))
            readings = source.readings
    assert [reading.part for reading in readings] == ["llama3.3:70b", "nomic-embed-text:latest", "smollm2:135m"]
    assert {(reading.kind, reading.version) for reading in readings} == {(EngineKind.OLLAMA, "0.33.0")}
    assert [reading.info["on_gpu_ratio"] for reading in readings] == ["0.500", "1.000", "0.000"]
    assert {request.method for request in server.requests} == {"GET"}
    assert not [request for request in server.requests if request.path == "/api/show"]

"""Triton: many models on one page, its backends beside its own counters, and over HTTP."""

from __future__ import annotations

import math

import pytest

from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EndpointState, EngineKind, EngineReading, RankReading
from gpumon.sources.engines.registry import BY_KIND
from tests.fakes.engine import FakeEngine
from tests.fakes.http_server import LoopbackServer, Reply, Request
from tests.sources.engines.contract import PAGES, Reader
from tests.sources.polling import polling, until

METRICS = "/metrics"
FOLDER = PAGES / "triton"
STEPS = 'nv_trt_llm_general_metrics{general_type="iteration_counter",model="m",version="1"}'
GENERATING = (
    'nv_trt_llm_inflight_batcher_metrics{inflight_batcher_specific_metric="generation_requests",model="m",version="1"}'
)


def triton() -> Reader:
    return Reader(BY_KIND[EngineKind.TRITON])


def parts(reader: Reader, text: str | bytes) -> dict[str, EngineReading]:
    found = reader.read({METRICS: text if isinstance(text, bytes) else text.encode()})
    return {page.part: page for page in found}


def only(text: str) -> RankReading:
    (page,) = parts(triton(), text).values()
    (rank,) = page.ranks
    return rank


def decoded(reader: Reader, steps: float, generating: float) -> float:
    page = parts(reader, f"{STEPS} {steps}\n{GENERATING} {generating}\n")["m"]
    assert page.advance[q.DECODE_TOKENS] is Advance.DERIVED
    assert page.exact_steps
    return page.ranks[0].counters[q.DECODE_TOKENS]


async def test_each_model_is_an_engine_of_its_own() -> None:
    with FakeEngine("triton-basic", start_s=41.5) as fake:
        async with polling(fake.url, interval_s=60.0) as source:
            readings = {reading.part: reading for reading in source.readings}
    assert readings.keys() == {"embed", "flaky"}
    embed = readings["embed"]
    assert (embed.state, embed.kind, embed.model) == (EndpointState.OK, EngineKind.TRITON, "embed")
    assert embed.name.endswith("/embed")
    assert len({reading.key for reading in readings.values()}) == 2
    assert not embed.from_documentation
    assert readings["flaky"].ranks[0].counters[q.FAILURES] > 0


async def test_its_metrics_port_is_asked_for_nothing_but_metrics() -> None:
    def server(request: Request) -> Reply:
        page = (FOLDER / "models.prom").read_bytes()
        return Reply(200, page) if request.path == METRICS else Reply(404, b"")

    with LoopbackServer(server) as loopback:
        async with polling(loopback.url, engine="triton"):
            assert await until(lambda: len(loopback.requests) > 3)
        assert {request.path for request in loopback.requests} == {METRICS}


async def test_a_server_without_models_is_starting() -> None:
    with FakeEngine("triton-basic") as fake:
        async with polling(fake.url, interval_s=60.0) as source:
            assert source.reading.state is EndpointState.STARTING
            assert "Triton" in source.reading.fault


def test_means_without_quantiles() -> None:
    rank = only(
        'nv_inference_request_success{model="m",version="1"} 4\n'
        'nv_inference_request_duration_us{model="m",version="1"} 6000000\n'
        'nv_inference_queue_duration_us{model="m",version="1"} 1000000\n'
    )
    assert rank.histograms[q.E2E].bounds == (math.inf,)
    assert (rank.histograms[q.E2E].sum, rank.histograms[q.E2E].count) == (6.0, 4.0)
    assert rank.histograms[q.QUEUE].sum == 1.0


@pytest.mark.parametrize("left_out", ["nv_inference_request_success", "nv_inference_request_duration_us"])
def test_no_mean_of_half_a_pair(left_out: str) -> None:
    names = ("nv_inference_request_success", "nv_inference_request_duration_us", "nv_inference_count")
    rank = only("".join(f'{name}{{model="m",version="1"}} 4\n' for name in names if name != left_out))
    assert q.E2E not in rank.histograms


def test_the_sample_of_its_documentation_is_no_histogram() -> None:
    """It writes the buckets without `_bucket` and under another TYPE; a server does not."""
    name = "nv_inference_first_response_histogram_ms"
    rank = only(
        f'nv_inference_count{{model="m",version="1"}} 37\n{name}_count{{model="m",version="1"}} 37\n'
        f'{name}_sum{{model="m",version="1"}} 10771\n{name}{{model="m",version="1",le="100"}} 8\n'
    )
    assert q.TTFT not in rank.histograms


def test_milliseconds_become_seconds() -> None:
    asr = parts(triton(), (FOLDER / "models.prom").read_bytes())["asr"].ranks[0].histograms[q.TTFT]
    assert asr.bounds == (0.1, 0.5, 2.0, 5.0, math.inf)
    assert asr.counts == (8.0, 30.0, 36.0, 37.0, 37.0)


def test_a_request_that_its_client_took_back_is_no_failure() -> None:
    rank = only(
        'nv_inference_request_success{model="m",version="1"} 5\n'
        'nv_inference_request_failure{model="m",reason="CANCELED",version="1"} 2\n'
        'nv_inference_request_failure{model="m",reason="REJECTED",version="1"} 1\n'
    )
    assert rank.counters == {q.REQUESTS: 8.0, q.FAILURES: 1.0}


def test_one_model_of_the_vllm_backend_is_one_engine() -> None:
    found = parts(triton(), (FOLDER / "vllm.prom").read_bytes())
    assert found.keys() == {"vllm_model"}
    assert found["vllm_model"].live[q.WAITING] == "vllm:num_requests_waiting"
    assert found["vllm_model"].live[q.REQUESTS].startswith("nv_inference_request_success")


def test_gpu_series_make_no_model() -> None:
    assert (
        parts(triton(), 'nv_gpu_memory_total_bytes{gpu_uuid="GPU-1"} 5\nnv_gpu_utilization{gpu_uuid="GPU-1"} 0\n') == {}
    )


def test_tokens_of_the_tensorrt_llm_backend_add_up_over_polls() -> None:
    reader = triton()
    assert decoded(reader, 1000, 4) == 0.0
    assert decoded(reader, 1100, 8) == 600.0
    assert decoded(reader, 1100, 0) == 600.0
    assert decoded(reader, 1150, 0) == 600.0
    assert decoded(reader, 1160, 2) == 610.0


def test_an_engine_that_started_anew_counts_from_nothing() -> None:
    reader = triton()
    decoded(reader, 1000, 4)
    assert decoded(reader, 1100, 4) == 400.0
    assert decoded(reader, 10, 4) == 0.0
    assert decoded(reader, 20, 4) == 40.0


def test_two_models_of_the_backend_do_not_mix() -> None:
    reader = triton()
    for steps, expected in ((100, 0.0), (150, 100.0)):
        text = f"{STEPS} {steps}\n{GENERATING} 2\n"
        other = text.replace('"m"', '"n"').replace(f" {steps}", f" {2 * steps}")
        found = parts(reader, text + other)
        assert found["m"].ranks[0].counters[q.DECODE_TOKENS] == expected
        assert found["n"].ranks[0].counters[q.DECODE_TOKENS] == 2 * expected


def test_a_poll_without_the_gauge_takes_nothing_away() -> None:
    reader = triton()
    decoded(reader, 1000, 4)
    assert decoded(reader, 1100, 4) == 400.0
    assert q.DECODE_TOKENS not in parts(reader, f"{STEPS} 1150\n")["m"].ranks[0].counters
    assert decoded(reader, 1200, 4) == 800.0


def test_versions_of_a_model_are_added_up() -> None:
    rank = only(
        "".join(
            f'nv_trt_llm_kv_cache_block_metrics{{kv_cache_block_type="{kind}",model="m",version="{version}"}} {value}\n'
            for version, blocks, size, used in (("1", 100, 64, 0.5), ("2", 50, 32, 0.25))
            for kind, value in (("max", blocks), ("tokens_per", size), ("fraction", used))
        )
    )
    assert rank.gauges == {q.POOL_TOKENS: 100 * 64 + 50 * 32, q.KV_USAGE: 0.5}


def test_versions_of_a_model_make_steps_of_their_own() -> None:
    """100 steps of 2 requests and 10 of 8: 280 tokens, not 110 x 10."""
    reader, found = triton(), {}
    for first, second in ((100, 50), (200, 60)):
        text = f"{STEPS} {first}\n{GENERATING} 2\n"
        other = text.replace('version="1"', 'version="2"').replace(f" {first}", f" {second}").replace(" 2\n", " 8\n")
        found = parts(reader, text + other)
    assert found["m"].ranks[0].counters[q.DECODE_TOKENS] == 280.0
    assert found["m"].ranks[0].counters[q.STEPS] == 260.0

"""Triton: many models on one page, its backends beside its own counters, and over HTTP."""

from __future__ import annotations

import pytest

from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EndpointState, EngineKind, EngineReading, RankReading
from gpumon.sources.engines.registry import BY_KIND
from tests.fakes.engine import FakeEngine
from tests.sources.engines.contract import PAGES, Reader
from tests.sources.polling import polling

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


@pytest.mark.parametrize("left_out", ["nv_inference_request_success", "nv_inference_request_duration_us"])
def test_no_mean_of_half_a_pair(left_out: str) -> None:
    names = ("nv_inference_request_success", "nv_inference_request_duration_us", "nv_inference_count")
    rank = only("".join(f'{name}{{model="m",version="1"}} 4\n' for name in names if name != left_out))
    assert q.E2E not in rank.histograms


def test_a_request_that_its_client_took_back_is_no_failure() -> None:
    rank = only(
        'nv_inference_request_success{model="m",version="1"} 5\n'
        'nv_inference_request_failure{model="m",reason="CANCELED",version="1"} 2\n'
        'nv_inference_request_failure{model="m",reason="REJECTED",version="1"} 1\n'
    )
    assert rank.counters == {q.REQUESTS: 8.0, q.FAILURES: 1.0}


def test_tokens_of_the_tensorrt_llm_backend_add_up_over_polls() -> None:
    reader = triton()
    assert decoded(reader, 1000, 4) == 0.0
    assert decoded(reader, 1100, 8) == 600.0
    assert decoded(reader, 1100, 0) == 600.0
    assert decoded(reader, 1150, 0) == 600.0
    assert decoded(reader, 1160, 2) == 610.0


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

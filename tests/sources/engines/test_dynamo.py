"""Dynamo: a frontend is no replica of its workers, and its workers are engines like any other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpumon.readings import quantities as q
from gpumon.readings.frame import EndpointState, EngineKind
from gpumon.sources.engines.adapter import MOST_PARTS
from gpumon.sources.engines.registry import BY_KIND
from tests.fakes.http_server import Reply
from tests.sources.engines.contract import PAGES, Reader
from tests.sources.polling import always, first

ROW = BY_KIND[EngineKind.DYNAMO]


def body(name: str, folder: str = "dynamo") -> bytes:
    return (PAGES / folder / f"{name}.prom").read_bytes()


def test_a_model_that_somebody_asked_for_and_nobody_serves_is_no_row():
    assert b"nobody/serves-this" in body("frontend-1")
    parts = Reader(ROW).read({"/metrics": body("frontend-1")})
    assert [part.model for part in parts] == ["meta-llama/Llama-3.3-70B-Instruct", "Qwen/Qwen3-0.6B"]


def traffic(requests: int, cached_share: float, lag: int) -> Iterator[tuple[bytes, float]]:
    """Pages of a frontend, and the prefill computed till then: what was cached is told `lag` requests later."""
    prompts = [400.0 + 37.0 * (n % 11) for n in range(requests)]
    for booked in (*range(1, requests + 1), *[requests] * lag):
        told = max(0, booked - lag) if booked < requests else requests
        cached = sum(cached_share * n for n in prompts[:told])
        lines = [
            f'dynamo_frontend_output_tokens_total{{model="m"}} {booked}',
            f'dynamo_frontend_input_sequence_tokens_bucket{{model="m",le="+Inf"}} {booked}',
            f'dynamo_frontend_input_sequence_tokens_sum{{model="m"}} {sum(prompts[:booked])}',
            f'dynamo_frontend_input_sequence_tokens_count{{model="m"}} {booked}',
            f'dynamo_frontend_cached_tokens_sum{{model="m"}} {cached}',
            f'dynamo_frontend_cached_tokens_count{{model="m"}} {told}',
        ]
        yield "\n".join(lines).encode(), sum((1.0 - cached_share) * n for n in prompts[:booked])


@pytest.mark.parametrize("cached_share", [0.0, 0.3, 0.9])
def test_computed_prefill_is_right_though_input_is_booked_before_what_of_it_was_cached(cached_share: float):
    reader, seen = Reader(ROW), []
    for page, truth in traffic(400, cached_share, lag=20):
        (part,) = reader.read({"/metrics": page})
        if (computed := part.ranks[0].counters.get(q.PREFILL_COMPUTED)) is not None and truth > 20_000.0:
            seen.append(computed / truth - 1.0)
    assert max(map(abs, seen)) < 0.03
    assert abs(seen[-1]) < 0.01, "in all, once every request has been told of"


def test_ever_more_models_are_bounded():
    page = "".join(f'dynamo_frontend_output_tokens_total{{model="m{n:03}"}} {n}\n' for n in range(MOST_PARTS + 5))
    reader = Reader(ROW)
    assert len(reader.read({"/metrics": page.encode()})) == MOST_PARTS
    assert reader.adapter.cut


async def test_a_frontend_says_that_it_is_one_over_http():
    source = await first(always(Reply(200, body("frontend-1"))))
    llama, qwen = source.readings
    assert {llama.kind, qwen.kind} == {EngineKind.DYNAMO}
    assert qwen.info["frontend"] == "yes"
    assert (qwen.model, qwen.part, qwen.state) == ("Qwen/Qwen3-0.6B", "qwen/qwen3-0.6b", EndpointState.OK)
    assert llama.key != qwen.key


async def test_a_frontend_that_served_nothing_yet_is_starting():
    source = await first(always(Reply(200, body("idle"))))
    assert source.reading.state is EndpointState.STARTING
    assert "Dynamo answers" in source.reading.fault


async def test_a_worker_is_its_engine_with_its_place_in_the_deployment():
    source = await first(always(Reply(200, body("dynamo-worker", "vllm"))))
    assert source.reading.kind is EngineKind.VLLM
    assert source.reading.info["dynamo_component"] == "backend"
    assert "frontend" not in source.reading.info
    assert source.reading.ranks[0].gauges[q.KV_USAGE] == 0.125


async def test_the_workers_own_gauge_of_the_cache_serves_where_the_engines_is_missing():
    lines = [
        line
        for line in body("dynamo-worker", "vllm").splitlines(keepends=True)
        if not line.startswith(b"vllm:kv_cache_usage_perc")
    ]
    source = await first(always(Reply(200, b"".join(lines))))
    assert source.reading.ranks[0].gauges[q.KV_USAGE] == 0.0625
    assert source.reading.live[q.KV_USAGE] == "dynamo_component_gpu_cache_usage_percent"

"""The /metrics text: what an independent parser makes of it."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from gpumon.demo.engine_model import EngineModel
from gpumon.demo.scenario import Actor
from gpumon.demo.scenarios import DEMO
from gpumon.demo.serving import SimulatedEngine
from gpumon.demo.vllm_page import VllmPage, go_number
from tests.each_row import each_row

STARTED = 1_795_195_904.28


def engine_of(actor: Actor, until_s: float = 300.0) -> SimulatedEngine:
    engine = SimulatedEngine(actor, 1, 0.0, STARTED)
    engine.advance(until_s)
    return engine


@pytest.fixture(scope="module", params=DEMO.cast, ids=lambda actor: actor.name)
def engine(request: pytest.FixtureRequest) -> SimulatedEngine:
    return engine_of(request.param)


def samples(engine: SimulatedEngine) -> Iterator[Sample]:
    for family in text_string_to_metric_families(engine.answer("/metrics").body.decode()):
        yield from family.samples


def value(server: SimulatedEngine, name: str, **labels: str) -> float:
    found = [
        each.value
        for each in samples(server)
        if each.name == name and all(each.labels.get(key) == text for key, text in labels.items())
    ]
    assert len(found) == 1, (name, labels, found)
    return found[0]


def test_every_histogram_is_cumulative_and_agrees_with_its_count(engine: SimulatedEngine) -> None:
    seen = 0
    for family in text_string_to_metric_families(engine.answer("/metrics").body.decode()):
        if family.type != "histogram":
            continue
        seen += 1
        for rank in range(len(engine.ranks)):
            mine = [each for each in family.samples if each.labels["engine"] == str(rank)]
            buckets = [(float(each.labels["le"]), each.value) for each in mine if each.name.endswith("_bucket")]
            counts = [count for _, count in buckets]
            (count,) = (each.value for each in mine if each.name.endswith("_count"))
            (total,) = (each.value for each in mine if each.name.endswith("_sum"))
            assert [bound for bound, _ in buckets] == sorted({bound for bound, _ in buckets})
            assert counts == sorted(counts)
            assert buckets[-1] == (math.inf, count)
            assert count > 0
            lowest = sum(
                (here - before) * bound
                for (bound, _), before, here in zip(buckets, counts, counts[1:], strict=False)
                if bound < math.inf
            )
            assert lowest <= total
    assert seen == 16


def test_the_page_shows_the_counters(engine: SimulatedEngine) -> None:
    for number, rank in enumerate(engine.ranks):
        at = {"engine": str(number), "model_name": engine.actor.model}
        counters = rank.counters
        assert value(engine, "vllm:generation_tokens_total", **at) == counters.generation_tokens > 0
        assert value(engine, "vllm:prompt_tokens_total", **at) == counters.prompt_tokens > 0
        computed = value(engine, "vllm:prompt_tokens_by_source_total", source="local_compute", **at)
        cached = value(engine, "vllm:prompt_tokens_by_source_total", source="local_cache_hit", **at)
        assert computed + cached == counters.prompt_tokens
        assert value(engine, "vllm:prompt_tokens_cached_total", **at) == cached
        assert value(engine, "vllm:num_requests_running", **at) == rank.running
        assert value(engine, "vllm:kv_cache_usage_perc", **at) == pytest.approx(rank.blocks.usage_ratio)
        assert value(engine, "vllm:request_success_total", finished_reason="stop", **at) == counters.stopped
        assert value(engine, "vllm:inter_token_latency_seconds_count", **at) == counters.itl.count


def test_one_process_shows_its_start_and_several_do_not(engine: SimulatedEngine) -> None:
    names = {each.name for each in samples(engine)}
    alone = len(engine.ranks) == 1
    assert ("process_start_time_seconds" in names) == alone
    assert any(name.endswith("_created") for name in names) == alone
    steps = value(engine, "vllm:iteration_tokens_total_count", engine="0")
    real = engine.ranks[0].meter(300.0).steps
    # Two API servers each count a step of theirs; chunks without output are not counted.
    assert 0.8 * real <= steps <= real if alone else real < steps <= 2 * real


def test_the_cache_configuration_gives_the_pool(engine: SimulatedEngine) -> None:
    found = [each for each in samples(engine) if each.name == "vllm:cache_config_info"]
    assert [each.labels["engine"] for each in found] == [str(number) for number in range(len(engine.ranks))]
    labels = found[0].labels
    limits = engine.actor.limits
    assert labels["cache_dtype"] == "auto"
    assert int(labels["kv_cache_size_tokens"]) == (limits.kv_pool_blocks - 1) * 16
    assert int(labels["num_gpu_blocks"]) == limits.kv_pool_blocks * len(engine.ranks)


def test_other_paths() -> None:
    engine = engine_of(DEMO.cast[0], 1.0)
    assert engine.answer("/version").body == b'{"version":"0.32.0"}'
    assert b'"root":"RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic"' in engine.answer("/v1/models").body
    assert (engine.answer("/health").status, engine.answer("/health").body) == (200, b"")
    assert engine.answer("/server_info").status == 404


@each_row(
    ("number", "text"),
    [
        (0.0, "0.0"),
        (19456, "19456.0"),
        (999999.5, "999999.5"),
        (1e6, "1e+06"),
        (1234567.25, "1.23456725e+06"),
        (1.33538512896e11, "1.33538512896e+11"),
        (1795195904.28, "1.79519590428e+09"),
        (0.00001, "1e-05"),
    ],
)
def test_numbers_look_as_prometheus_prints_them(number: float, text: str) -> None:
    assert go_number(number) == text
    assert float(text) == number


def test_a_page_of_an_idle_engine_is_all_zeros() -> None:
    actor = DEMO.cast[1]

    class Silence:
        def next_s(self) -> float:
            return math.inf

    model = EngineModel(actor.instance, actor.limits, Silence())  # type: ignore[arg-type]
    model.advance(100.0)
    families = text_string_to_metric_families(VllmPage(actor, [model], STARTED).text())
    values = {
        each.name: each.value
        for family in families
        for each in family.samples
        if each.name.startswith("vllm:") and not each.name.endswith("_created")
    }
    assert {name for name, shown in values.items() if shown} == {"vllm:cache_config_info"}

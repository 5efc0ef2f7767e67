"""Ray Serve LLM: several replicas of several models on one page, and every counter twice."""

from __future__ import annotations

from gpumon.readings import quantities as q
from gpumon.readings.frame import EndpointState, EngineKind
from gpumon.sources.engines.adapter import MOST_RANKS
from gpumon.sources.engines.registry import BY_KIND
from tests.fakes.http_server import Reply
from tests.sources.engines.contract import PAGES, Reader, figures
from tests.sources.polling import always, first

ROW = BY_KIND[EngineKind.RAY]


def body(name: str) -> bytes:
    return (PAGES / "ray" / f"{name}.prom").read_bytes()


def test_the_gauge_and_the_counter_of_one_count_are_not_added():
    twice = figures(Reader(ROW).read({"/metrics": body("vllm")}))
    lines = [line for line in body("vllm").splitlines(keepends=True) if b"ray_vllm_generation_tokens{" not in line]
    assert twice == figures(Reader(ROW).read({"/metrics": b"".join(lines)}))
    assert twice["qwen3-8b", "k3v9x2ab", q.DECODE_TOKENS] == 3000.0


def test_settings_that_name_no_replica_go_to_the_only_one():
    config = b'ray_vllm_cache_config_info{block_size="16",num_gpu_blocks="500"} 1.0\n'
    one = b'ray_vllm_num_requests_running{ReplicaId="r1",engine="0",model_name="m"} 1\n'
    other = b'ray_vllm_num_requests_running{ReplicaId="r2",engine="0",model_name="m"} 1\n'
    (page,) = Reader(ROW).read({"/metrics": one + config})
    assert page.ranks[0].gauges[q.POOL_TOKENS] == 8000.0
    (page,) = Reader(ROW).read({"/metrics": one + other + config})
    assert q.POOL_TOKENS not in page.live


def test_a_counter_of_a_replica_that_was_replaced_does_not_fall_for_the_others():
    reader = Reader(ROW)
    before = figures(reader.read({"/metrics": body("vllm")}))
    after = figures(reader.read({"/metrics": body("vllm").replace(b"p0q8r7cd", b"n3wn3wn3")}))
    same = {key for key in before if key[1] == "k3v9x2ab"}
    assert {key: after[key] for key in same} == {key: before[key] for key in same}
    assert ("qwen3-8b", "n3wn3wn3", q.DECODE_TOKENS) in after


def test_ever_more_replicas_are_bounded():
    page = "".join(
        f'ray_vllm_generation_tokens_total{{ReplicaId="r{n:04}",engine="0",model_name="m"}} 1\n'
        for n in range(MOST_RANKS + 5)
    )
    reader = Reader(ROW)
    (found,) = reader.read({"/metrics": page.encode()})
    assert len(found.ranks) == MOST_RANKS
    assert reader.adapter.cut


async def test_a_node_is_an_engine_for_each_model_over_http():
    source = await first(always(Reply(200, body("vllm"))))
    assert [(reading.kind, reading.model) for reading in source.readings] == [
        (EngineKind.RAY, "llama-70b"),
        (EngineKind.RAY, "qwen3-8b"),
    ]
    assert {reading.state for reading in source.readings} == {EndpointState.OK}
    assert len({reading.name for reading in source.readings}) == 2

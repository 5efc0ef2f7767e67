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


def test_where_there_are_only_gauges_they_are_the_counts():
    (page,) = Reader(ROW).read({"/metrics": body("only-gauges")})
    assert [rank.counters[q.DECODE_TOKENS] for rank in page.ranks] == [3000.0, 6000.0]


def test_both_spellings_of_a_name_are_not_added():
    colons = body("vllm").replace(b"ray_vllm_", b"ray_vllm:")
    once = figures(Reader(ROW).read({"/metrics": body("vllm")}))
    assert figures(Reader(ROW).read({"/metrics": colons})) == once
    assert figures(Reader(ROW).read({"/metrics": colons + body("vllm")})) == once


def test_each_replica_has_the_pool_of_its_own_settings():
    qwen = Reader(ROW).read({"/metrics": body("vllm")})[1]
    assert [rank.gauges[q.POOL_TOKENS] for rank in qwen.ranks] == [16000.0, 32000.0]


def test_settings_that_name_no_replica_go_to_the_only_one():
    config = b'ray_vllm_cache_config_info{block_size="16",num_gpu_blocks="500"} 1.0\n'
    one = b'ray_vllm_num_requests_running{ReplicaId="r1",engine="0",model_name="m"} 1\n'
    other = b'ray_vllm_num_requests_running{ReplicaId="r2",engine="0",model_name="m"} 1\n'
    (page,) = Reader(ROW).read({"/metrics": one + config})
    assert page.ranks[0].gauges[q.POOL_TOKENS] == 8000.0
    (page,) = Reader(ROW).read({"/metrics": one + other + config})
    assert q.POOL_TOKENS not in page.live


def test_without_ids_a_model_is_one_rank():
    page = b'ray_vllm_generation_tokens_total{ReplicaId="",engine="0",model_name="m"} 7\n'
    (found,) = Reader(ROW).read({"/metrics": page})
    assert [(rank.rank, rank.counters[q.DECODE_TOKENS]) for rank in found.ranks] == [("0", 7.0)]


def test_data_parallel_ranks_inside_a_replica_keep_their_numbers():
    page = "".join(
        f'ray_vllm_generation_tokens_total{{ReplicaId="r1",engine="{n}",model_name="m"}} {n + 1}\n' for n in (0, 1)
    )
    (found,) = Reader(ROW).read({"/metrics": page.encode()})
    assert {rank.rank: rank.counters[q.DECODE_TOKENS] for rank in found.ranks} == {"r1": 1.0, "r1/1": 2.0}


def test_a_counter_of_a_replica_that_was_replaced_does_not_fall_for_the_others():
    reader = Reader(ROW)
    before = figures(reader.read({"/metrics": body("vllm")}))
    after = figures(reader.read({"/metrics": body("vllm").replace(b"p0q8r7cd", b"n3wn3wn3")}))
    same = {key for key in before if key[1] == "k3v9x2ab"}
    assert {key: after[key] for key in same} == {key: before[key] for key in same}
    assert ("qwen3-8b", "n3wn3wn3", q.DECODE_TOKENS) in after


def test_tensor_parallel_schedulers_are_workers_of_their_own_and_count_once():
    (page,) = Reader(ROW).read({"/metrics": body("sglang")})
    (rank,) = page.ranks
    assert (rank.gauges[q.RUNNING], rank.gauges[q.WAITING]) == (4.0, 1.0)
    assert rank.counters[q.PREFILL_COMPUTED] == 800.0


def test_two_replicas_of_sglang_are_two_ranks_by_their_first_schedulers():
    second = body("sglang")
    for old, new in (
        (b"t" * 56, b"u" * 56),
        (b"aa11bb22", b"cc33dd44"),
        (b"0" * 56, b"8" * 56),
        (b"1" * 56, b"9" * 56),
    ):
        second = second.replace(b'"' + old + b'"', b'"' + new + b'"')
    (page,) = Reader(ROW).read({"/metrics": body("sglang") + second})
    assert sum(rank.gauges.get(q.RUNNING, 0.0) for rank in page.ranks) == 8.0
    assert sum(rank.counters.get(q.PREFILL_COMPUTED, 0.0) for rank in page.ranks) == 1600.0


def test_two_engines_that_serve_one_name_are_two_rows():
    both = body("sglang") + b'ray_vllm_generation_tokens_total{ReplicaId="r1",engine="0",model_name="qwen3-8b"} 7\n'
    assert {part.part for part in Reader(ROW).read({"/metrics": both})} == {"qwen3-8b (vllm)", "qwen3-8b (sglang)"}


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

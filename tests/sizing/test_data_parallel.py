"""Data-parallel attention: ranks with the attention and their KV cache for themselves, and the experts spread."""

from __future__ import annotations

import pytest

from gpumon.efficiency.traffic import kv_bytes_per_token
from gpumon.sizing import memory
from gpumon.sizing.latency import Mix
from gpumon.sizing.plan import plan
from gpumon.sizing.resolve import resolve
from gpumon.sizing.roofline import InstanceSetting, step_cost
from gpumon.sizing.scenario import Scenario, Server, Workload
from gpumon.specs.llm import LlmSpec
from tests.records import replace
from tests.sizing.questions import KNOWN

DEEPSEEK = "deepseek-ai/DeepSeek-V3"
H200 = "H200 SXM 141GB"
WORKLOAD = Workload(DEEPSEEK, 512.0, prompt_tokens=4000.0, answer_tokens=1000.0, itl_p95_ms=60.0, dp=8)
SCENARIO = Scenario(server=(Server(H200),), workload=(WORKLOAD,))


def deepseek() -> LlmSpec:
    found = KNOWN.llm(DEEPSEEK)
    assert found is not None
    return found


def test_each_rank_holds_all_but_the_experts() -> None:
    llm = deepseek()
    experts = llm.experts * llm.expert_read_bytes
    rest = memory.weight_bytes(llm) - experts
    assert memory.loaded_bytes(llm, 8) == pytest.approx(experts + 8.0 * rest)
    assert memory.loaded_bytes(llm, 1) == memory.loaded_bytes(llm)
    size = KNOWN.gpus.find(H200).memory_bytes
    visible = size - 0.5 * 2.0**30
    left = 8.0 * (0.92 * visible - memory.overhead_bytes(llm, 8)) - experts - 8.0 * rest
    tokens = memory.pool_tokens(llm, size, 8, 1, 0.92, dp=8)
    assert tokens == pytest.approx(left / kv_bytes_per_token(llm, tp=1))
    assert memory.instance_bytes(llm, 8, 1, 0.0, 0.0, 8) == pytest.approx(
        experts + 8.0 * rest + 8.0 * memory.overhead_bytes(llm, 8)
    )


def test_a_latent_cache_is_not_copied_to_every_gpu() -> None:
    """MLA under TP 8 holds each token eight times; under DP 8 once, at the price of eight copies of the attention."""
    tensor = resolve(replace(WORKLOAD, dp=None, tp=8), SCENARIO, KNOWN)
    ranks = resolve(WORKLOAD, SCENARIO, KNOWN)
    assert (tensor.gpus, tensor.tp, tensor.dp) == (8, 8, 1)
    assert (ranks.gpus, ranks.tp, ranks.dp) == (8, 1, 8)
    found = plan(SCENARIO, KNOWN).workloads[0]
    one = plan(replace(SCENARIO, workload=(replace(WORKLOAD, dp=None, tp=8),)), KNOWN).workloads[0]
    held = {each.kind.value: each.concurrency for each in found.limits}
    copied = {each.kind.value: each.concurrency for each in one.limits}
    assert held["KV"] > 4.0 * copied["KV"]
    assert (found.dp, found.tp, found.gpus_per_instance) == (8, 1, 8)


def test_a_step_by_hand() -> None:
    """Reads: the rest whole, a share of the experts per rank; exchanges: the experts' alone, of all ranks' tokens."""
    llm = deepseek()
    gpu = KNOWN.gpus.find(H200)
    mix = Mix(4000.0, 1000.0, 1.0)
    cost = step_cost(InstanceSetting(llm, gpu, 8, 1, mix, 8))
    experts = llm.experts * llm.expert_read_bytes
    rest = llm.read_bytes - experts
    assert cost.weights_s == pytest.approx((rest + experts / 8.0) / gpu.bandwidth_bytes_per_s)
    moved = llm.layers * llm.hidden * 2.0 * 2.0 * 7.0 / 8.0
    assert cost.link_s == pytest.approx(moved / gpu.link_bytes_per_s)
    tensor = step_cost(InstanceSetting(llm, gpu, 8, 8, mix))
    assert tensor.link_s == pytest.approx(2.0 * cost.link_s)
    assert cost.kv_s == pytest.approx(tensor.kv_s / 8.0)


def test_ranks_of_one_gpu_have_the_errors_that_were_measured() -> None:
    measured = resolve(WORKLOAD, SCENARIO, KNOWN)
    assert measured.band.rows == 62
    two = replace(WORKLOAD, dp=4, tp=2)
    found = resolve(two, SCENARIO, KNOWN)
    assert found.gpus == 8
    assert not found.band
    assert any("no reference row has 4 data-parallel ranks of TP 2" in note for note in found.notes)


def test_an_instance_stands_in_one_domain() -> None:
    pairs = replace(SCENARIO, server=(Server(H200, nvlink_gpus=4),))
    problem = plan(pairs, KNOWN).workloads[0].problem
    assert problem == "8 data-parallel ranks do not stand in one NVLink domain of 4 GPUs: fewer ranks"


def test_ranks_that_take_fewer_gpus_are_named_and_not_taken() -> None:
    """Nobody typed them, and engines share experts only where they are told to."""
    open_to_all = replace(WORKLOAD, dp=None)
    found = plan(replace(SCENARIO, workload=(open_to_all,)), KNOWN).workloads[0]
    shared = plan(SCENARIO, KNOWN).workloads[0]
    assert found.dp == 1
    assert isinstance(found.gpus, float)
    assert isinstance(shared.gpus, float)
    assert shared.gpus < found.gpus
    named = f"TP 1 x DP 8 would take {shared.gpus:,.0f} GPUs instead of {found.gpus:,.0f}"
    assert named in found.notes
    assert not any("would take" in note for note in shared.notes)
    dense = replace(open_to_all, model="meta-llama/Llama-3.3-70B-Instruct", itl_p95_ms=30.0)
    plain = plan(replace(SCENARIO, workload=(dense,)), KNOWN).workloads[0]
    assert not any("DP" in note for note in plain.notes)


def test_a_dense_model_has_nothing_to_share() -> None:
    dense = replace(WORKLOAD, model="meta-llama/Llama-3.3-70B-Instruct")
    problem = plan(replace(SCENARIO, workload=(dense,)), KNOWN).workloads[0].problem
    assert problem == "DP 8: data-parallel ranks share experts, which this model has none of; ask for more instances"


def test_a_request_stands_on_one_rank() -> None:
    """All ranks together hold a long request that none of them holds."""
    asked = replace(WORKLOAD, kv_pool_tokens=8 * 100_000.0, prompt_tokens=95_000.0, answer_tokens=1000.0)
    found = plan(replace(SCENARIO, workload=(asked,)), KNOWN).workloads[0]
    assert found.problem.startswith("not even one request at a time: 90% of the KV cache's 800,000 tokens")
    held = plan(replace(SCENARIO, workload=(replace(asked, prompt_tokens=80_000.0),)), KNOWN).workloads[0]
    assert {each.kind.value: each.concurrency for each in held.limits}["KV"] == pytest.approx(8 * 90_000 / 81_000)

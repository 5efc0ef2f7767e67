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


def test_ranks_beyond_a_domain_share_experts_over_slower_links() -> None:
    """Two NVLink domains of four in a server: the experts' exchanges go over PCIe, and each step takes longer."""
    whole = plan(SCENARIO, KNOWN).workloads[0]
    pairs = plan(replace(SCENARIO, server=(Server(H200, nvlink_gpus=4),)), KNOWN).workloads[0]
    assert (whole.problem, pairs.problem) == ("", "")
    assert isinstance(whole.capacity_per_instance, float)
    assert isinstance(pairs.capacity_per_instance, float)
    assert pairs.capacity_per_instance < whole.capacity_per_instance


def test_experts_over_two_servers() -> None:
    """16 ranks: each instance has two servers whole."""
    spread = plan(replace(SCENARIO, workload=(replace(WORKLOAD, dp=16),)), KNOWN)
    row = spread.workloads[0]
    assert (row.problem, row.gpus_per_instance, row.dp) == ("", 16, 16)
    assert isinstance(row.instances, float)
    assert (row.gpus, row.servers, spread.totals.servers) == tuple(n * row.instances for n in (16.0, 2.0, 2.0))
    slow = Server(H200, network="Ethernet 25")
    over_tcp = plan(replace(SCENARIO, server=(slow,), workload=(replace(WORKLOAD, dp=16),)), KNOWN).workloads[0]
    assert isinstance(over_tcp.capacity_per_instance, float)
    assert over_tcp.capacity_per_instance < 8.0
    assert over_tcp.network == "Ethernet 25, 0.390625 GB/s a GPU"
    few = f"each of {over_tcp.instances:,.0f} instances holds {over_tcp.capacity_per_instance:.0f} request"
    assert any(note.startswith(few) for note in over_tcp.notes)


def test_ranks_that_take_fewer_gpus_are_taken() -> None:
    open_to_all = replace(WORKLOAD, dp=None)
    found = plan(replace(SCENARIO, workload=(open_to_all,)), KNOWN).workloads[0]
    shared = plan(SCENARIO, KNOWN).workloads[0]
    tensor = plan(replace(SCENARIO, workload=(replace(open_to_all, tp=8),)), KNOWN).workloads[0]
    assert (found.tp, found.dp, found.gpus) == (shared.tp, shared.dp, shared.gpus)
    assert isinstance(tensor.gpus, float)
    assert isinstance(shared.gpus, float)
    assert shared.gpus < tensor.gpus
    assert f"TP 1 x DP 8 would take {shared.gpus:,.0f} GPUs instead of {tensor.gpus:,.0f}" in tensor.notes
    dense = replace(open_to_all, model="meta-llama/Llama-3.3-70B-Instruct", itl_p95_ms=30.0)
    plain = plan(replace(SCENARIO, workload=(dense,)), KNOWN).workloads[0]
    assert plain.dp == 1


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

"""Prefill and decode on pools of their own: each part by hand, and the split that needs the fewest GPUs."""

from __future__ import annotations

import math
from typing import Any

import pytest

from gpumon.efficiency.traffic import kv_bytes_per_token
from gpumon.sizing.accuracy import REACHED
from gpumon.sizing.answer import DisaggregatedPlan, WorkloadPlan
from gpumon.sizing.disaggregated import MOST_BUSY, NOT_MEASURED, PROMPTS_ALONE, Prefill
from gpumon.sizing.latency import Mix, largest_load
from gpumon.sizing.plan import plan
from gpumon.sizing.profile import Observed, Origin, Point
from gpumon.sizing.resolve import resolve
from gpumon.sizing.roofline import InstanceSetting, layers_s, prompt_s, roofline
from gpumon.sizing.scenario import Disaggregated, Scenario, Server, Workload, with_disaggregation
from gpumon.specs.llm import LlmSpec
from tests.each_row import each_row
from tests.records import replace
from tests.sizing.questions import KNOWN, SEVENTY

SEVENTY_B = "meta-llama/Llama-3.3-70B-Instruct-FP8"
H100 = "H100 SXM5 80GB"
LINK = 50.0
WORKLOAD = Workload(
    SEVENTY_B,
    12.0,
    target_kind="requests_per_s",
    prompt_tokens=8000.0,
    answer_tokens=300.0,
    itl_p95_ms=30.0,
    disaggregated=Disaggregated(prefill_tp=2, decode_tp=4, link_gb_per_s=LINK),
)
SCENARIO = Scenario(server=(Server(H100),), workload=(WORKLOAD,))


def asked(scenario: Scenario = SCENARIO, **fields: Any) -> WorkloadPlan:
    """The answer to the one workload with other fields."""
    workload = replace(scenario.workload[0], **fields)
    return plan(replace(scenario, workload=(workload,)), KNOWN).workloads[0]


def split(scenario: Scenario = SCENARIO, **fields: Any) -> DisaggregatedPlan:
    found = asked(scenario, **fields).disaggregated
    assert found is not None
    assert found.problem == ""
    return found


def number(value: object) -> float:
    assert isinstance(value, float | int)
    return float(value)


def seventy() -> LlmSpec:
    llm = KNOWN.llm(SEVENTY_B)
    assert llm is not None
    return llm


def test_each_part_by_hand() -> None:
    """12 requests/s of 8,000 / 300 tokens: prompts on pairs, tokens on fours, the cache over two links of 50 GB/s."""
    found = split()
    llm = seventy()
    gpu = KNOWN.gpus.find(H100)
    pair = InstanceSetting(llm, gpu, 2, 2, Mix(8000.0, 300.0))
    prompt = PROMPTS_ALONE[False] * prompt_s(pair) + layers_s(pair)
    size = 8000.0 * kv_bytes_per_token(llm)
    moved_s = size / (2.0 * LINK * 1e9)
    curve = roofline(InstanceSetting(llm, gpu, 4, 4, Mix(8000.0, 300.0, 1.0)))
    planned = math.floor(0.8 * largest_load(lambda load: curve.itl_s(load) <= 0.030))
    stay_s = moved_s + 299.0 * curve.itl_s(planned)
    prefills = math.ceil(12.0 * prompt / 0.8)
    decodes = math.ceil(12.0 * stay_s / planned)
    assert found.prefill is not None
    assert found.decode is not None
    assert (found.prefill.instances, found.prefill.gpus, found.prefill.tp) == (prefills, 2 * prefills, 2)
    assert (found.decode.instances, found.decode.gpus, found.decode.tp) == (decodes, 4 * decodes, 4)
    assert found.decode.running == planned
    assert found.gpus == 2 * prefills + 4 * decodes
    assert number(found.transfer_bytes) == pytest.approx(size)
    assert number(found.transfer_s) == pytest.approx(moved_s)
    assert number(found.itl_s) == pytest.approx(curve.itl_s(planned))
    carried = min(prefills * 0.8 / prompt, decodes * planned / stay_s)
    assert number(found.tokens_per_s_per_gpu) == pytest.approx(carried * 300.0 / number(found.gpus))
    busy = 12.0 * prompt / prefills
    queued = busy ** (math.sqrt(2.0 * (prefills + 1.0)) - 1.0) / (2.0 * prefills * (1.0 - busy)) * prompt
    assert number(found.ttft_s) == pytest.approx(queued + prompt + moved_s)
    assert found.text.startswith(f"{prefills} prefill of TP 2 + {decodes} decode of TP 4, {found.gpus:.0f} GPUs; ")


def test_the_catalogue_has_the_link_where_none_is_typed() -> None:
    found = split(disaggregated=Disaggregated(prefill_tp=2, decode_tp=4))
    link = KNOWN.gpus.find(H100).link_bytes_per_s * REACHED.link
    assert number(found.transfer_s) == pytest.approx(number(found.transfer_bytes) / (2.0 * link))
    assert "the pools need more than one server: link_gb_per_s tells the network between them" in found.notes


def test_a_slow_link_takes_more_prefill_instances() -> None:
    """At 0.2 GB/s a pair sends one cache of 1.3 GB in 3.3 s, and computes three prompts meanwhile."""
    found = split(disaggregated=Disaggregated(prefill_tp=2, decode_tp=4, link_gb_per_s=0.2))
    assert found.prefill is not None
    assert found.prefill.instances == math.ceil(12.0 * number(found.transfer_s))
    assert number(found.prefill.requests_per_s) == pytest.approx(1.0 / number(found.transfer_s))


def test_the_saving_is_against_the_plan_beside_it() -> None:
    whole = asked()
    found = split()
    assert found.aggregated_gpus == whole.gpus
    assert number(found.saving_ratio) == pytest.approx(1.0 - number(found.gpus) / number(whole.gpus))
    assert number(found.aggregated_tokens_per_s_per_gpu) > 0.0
    assert NOT_MEASURED in found.notes


def test_the_searched_split_needs_no_more_than_any_typed_one() -> None:
    best = split(disaggregated=Disaggregated(link_gb_per_s=LINK))
    for prefill_tp in (2, 4, 8):
        for decode_tp in (2, 4, 8):
            asked_for = Disaggregated(prefill_tp=prefill_tp, decode_tp=decode_tp, link_gb_per_s=LINK)
            found = asked(disaggregated=asked_for).disaggregated
            assert found is not None
            if not found.problem:
                assert number(found.gpus) >= number(best.gpus)
    assert best.prefill is not None
    assert best.decode is not None
    assert best.prefill.tp < best.decode.tp


@each_row(("kind", "target"), [("concurrency", 150.0), ("users", 400.0), ("requests_per_s", 9.0)])
def test_targets_become_one_rate(kind: str, target: float) -> None:
    """In flight and users by Little's law with the time that a request takes in both pools."""
    found = split(target=target, target_kind=kind, think_s=20.0)
    whole_s = number(found.transfer_s) + 299.0 * number(found.itl_s)
    assert found.prefill is not None
    prompt = 0.8 / number(found.prefill.requests_per_s)
    expected = {
        "concurrency": target / (prompt + whole_s),
        "users": target / (prompt + whole_s + 20.0),
        "requests_per_s": target,
    }
    assert number(found.requests_per_s) == pytest.approx(expected[kind])


def test_a_queue_by_hand() -> None:
    """One server: M/D/1, busy / (2 (1 - busy)) services. Of four at the same busy share the queue is far shorter."""
    instance = resolve(WORKLOAD, SCENARIO, KNOWN)
    one = Prefill(instance, 0.5, 1)
    assert one.wait_s(1, 1.6) == pytest.approx(0.8 / (2.0 * 0.2) * 0.5)
    assert one.wait_s(1, 2.0) == math.inf
    assert one.wait_s(4, 6.4) < 0.3 * one.wait_s(1, 1.6)
    assert Prefill(instance, 0.5, 4).wait_s(1, 6.4) == one.wait_s(4, 6.4)


def test_a_ttft_goal_that_is_to_count_adds_prefill_instances() -> None:
    free = split()
    assert free.prefill is not None
    alone_s = 0.8 / number(free.prefill.requests_per_s) + number(free.transfer_s)
    goal_ms = (0.2 * number(free.ttft_s) + 0.8 * alone_s) * 1e3
    noted = split(ttft_p95_ms=goal_ms)
    assert noted.gpus == free.gpus
    assert any(note.startswith("TTFT goal not used") for note in noted.notes)
    held = split(replace(SCENARIO, assume_ttft=True), ttft_p95_ms=goal_ms)
    assert number(held.ttft_s) * 1e3 <= goal_ms
    assert number(held.gpus) > number(free.gpus)
    never = asked(replace(SCENARIO, assume_ttft=True), ttft_p95_ms=10.0).disaggregated
    assert never is not None
    assert "without a queue, goal 10 ms: more TP would help" in never.problem
    assert never.text == f"no answer: {never.problem}"


def test_a_ttft_that_was_measured_with_decoding_beside_it_decides_no_pool() -> None:
    points = tuple(Point(load, itl_s=0.02 + 1e-4 * load, ttft_s=0.5 + 0.01 * load) for load in (1.0, 4.0, 16.0, 32.0))
    seen = Observed(
        Origin.LIVE, "e", SEVENTY_B, points, gpu=H100, gpus=2, tp=2, prompt_tokens=8000.0, answer_tokens=300.0
    )
    free = split(seen=seen)
    noted = split(seen=seen, ttft_p95_ms=number(free.ttft_s) * 1e3 * 0.99)
    assert noted.gpus == free.gpus
    assert "TTFT goal not used: not measured on such pools; assume_ttft plans by the estimate" in noted.notes


def test_an_e2e_goal_leaves_decode_what_the_first_token_leaves() -> None:
    found = split(itl_p95_ms=None, e2e_p95_ms=6000.0)
    assert found.prefill is not None
    first_s = 0.8 / number(found.prefill.requests_per_s) + number(found.transfer_s)
    assert first_s + 299.0 * number(found.itl_s) < 6.0
    late = asked(itl_p95_ms=None, e2e_p95_ms=300.0).disaggregated
    assert late is not None
    assert late.problem.startswith("the E2E goal is over before the first token: ")


def test_an_itl_goal_that_prompts_break_leaves_the_pools_an_answer() -> None:
    """One prompt of 100,000 tokens for each 20 tokens slows a step far beyond the goal; decode alone meets it."""
    long = replace(WORKLOAD, target=0.5, prompt_tokens=100_000.0, answer_tokens=20.0, tp=8)
    found = plan(replace(SCENARIO, workload=(long,)), KNOWN).workloads[0]
    assert found.problem.startswith("not even one request at a time: ITL")
    assert found.disaggregated is not None
    assert found.disaggregated.problem == ""
    assert found.disaggregated.text.endswith("GPUs; no aggregated plan")


def test_what_was_measured_moves_into_decode() -> None:
    found = plan(with_disaggregation(SEVENTY), KNOWN).workloads[0].disaggregated
    assert found is not None
    assert "decode: re-scaled from what was measured with prompts in its steps" in found.notes


def test_spares_stand_in_both_pools() -> None:
    plain = split()
    spare = split(spare_instances=1)
    assert number(spare.gpus) == number(plain.gpus) + 2.0 + 4.0
    assert spare.tokens_per_s_per_gpu == plain.tokens_per_s_per_gpu


def test_prefill_is_never_planned_to_its_brim() -> None:
    found = split(replace(SCENARIO, planning_factor=1.0))
    assert found.prefill is not None
    pair = InstanceSetting(seventy(), KNOWN.gpus.find(H100), 2, 2, Mix(8000.0, 300.0))
    prompt = PROMPTS_ALONE[False] * prompt_s(pair) + layers_s(pair)
    assert number(found.prefill.requests_per_s) == pytest.approx(MOST_BUSY / prompt)


def test_ranks_compute_prompts_side_by_side() -> None:
    """A prefill instance of eight data-parallel ranks, decode under TP 8."""
    moe = replace(
        WORKLOAD,
        model="deepseek-ai/DeepSeek-V3",
        target=4.0,
        itl_p95_ms=60.0,
        disaggregated=Disaggregated(prefill_tp=1, prefill_dp=8, decode_tp=8),
    )
    scenario = replace(SCENARIO, server=(Server("H200 SXM 141GB"),), workload=(moe,))
    found = plan(scenario, KNOWN).workloads[0].disaggregated
    assert found is not None
    assert found.prefill is not None
    assert found.decode is not None
    assert (found.prefill.tp, found.prefill.dp, found.decode.tp, found.decode.dp) == (1, 8, 8, 1)
    assert "of TP 1 x DP 8 + " in found.text


def test_without_lengths_or_a_model_there_is_no_split() -> None:
    unknown = asked(model="acme/none", capacity_per_instance=10.0, target_kind="concurrency", tp=1).disaggregated
    assert unknown is not None
    assert unknown.problem == "needs the model's dimensions, prompt_tokens and answer_tokens"
    assert asked(disaggregated=None).disaggregated is None

"""Speculative decoding as an input: the step that yields several tokens, and what was measured with it."""

from __future__ import annotations

import pytest

from gpumon.efficiency.flops import decode_flops_per_token
from gpumon.sizing.accuracy import REACHED
from gpumon.sizing.latency import NO_SPECULATION, Speculation
from gpumon.sizing.measured_instance import speculation_of
from gpumon.sizing.plan import plan
from gpumon.sizing.resolve import resolve
from gpumon.sizing.roofline import layers_s, prompt_s, roofline, step_cost
from gpumon.sizing.scenario import Scenario, Server, Workload
from tests.records import replace
from tests.sizing.questions import KNOWN, NIM_70B, SEVENTY
from tests.sizing.rows import ROWS, setting

THREE = Speculation(3.0, 2.1)
SEEN = replace(NIM_70B, tokens_per_step=3.1, drafted_per_step=3.0)


def test_a_step_by_hand() -> None:
    """70B FP8 on two H100: reads once per step, 4 tokens verified, 3.1 kept, 3 of them computed beside the read.

    Each of the three takes a layer more, and the head of 128,256 x 8,192 at 16 bit.
    """
    alone = setting(ROWS["N1"])
    drafted = replace(alone, speculation=THREE)
    plain = step_cost(alone)
    cost = step_cost(drafted)
    new_per_token = alone.mix.prompt_tokens / alone.mix.answer_tokens
    peak = alone.gpus * alone.gpu.flops_per_s[alone.llm.precision]
    drafts_s = 3.0 * decode_flops_per_token(alone.llm, alone.mix.context_tokens) / peak / 3.1
    assert cost.weights_s == plain.weights_s
    assert cost.kv_s == pytest.approx(plain.kv_s / 3.1)
    assert cost.prefill_s == pytest.approx(plain.prefill_s + drafts_s)
    assert cost.link_s == pytest.approx(plain.link_s * (4.0 / 3.1 + new_per_token) / (1.0 + new_per_token))
    curve = roofline(drafted)
    heads_s = 3.0 * 128_256 * 8192 * 2.0 / (2 * alone.gpu.bandwidth_bytes_per_s * REACHED.weights)
    once_s = (plain.weights_s / REACHED.weights + layers_s(alone)) * (1.0 + 3.0 / 80.0)
    assert curve.base_s == pytest.approx((once_s + heads_s) / 3.1)
    slope_s = cost.kv_s / REACHED.kv + cost.link_s / REACHED.link + cost.prefill_s / REACHED.prefill
    slope_s += REACHED.sequence_s / 3.1
    assert curve.slope_s == pytest.approx(slope_s)
    assert prompt_s(drafted) == prompt_s(alone)


def test_a_mixture_of_experts_reads_the_experts_of_all_verified_tokens() -> None:
    llm = KNOWN.llm("Qwen/Qwen3-235B-A22B")
    assert llm is not None
    at = replace(setting(ROWS["N1"]), llm=llm, speculation=THREE)
    curve = roofline(at)
    assert curve.experts_per_token == pytest.approx(128.0 * (1.0 - (1.0 - 8.0 / 128.0) ** 4.0))
    plain = roofline(replace(at, speculation=NO_SPECULATION))
    assert curve.weight_ratio(5.0) == pytest.approx(plain.weight_ratio(20.0), rel=0.01)  # the drafter reads heads


def test_one_sequence_gains_most_and_a_full_batch_least() -> None:
    at = setting(ROWS["N1"])
    plain = roofline(at)
    drafted = roofline(replace(at, speculation=THREE))
    one = plain.itl_s(1.0) / drafted.itl_s(1.0)
    many = plain.itl_s(256.0) / drafted.itl_s(256.0)
    assert 1.0 < many < one < 3.1


def test_as_it_was_measured_is_the_default() -> None:
    """Points with speculation have it in them; nobody has to type it, and nothing is counted twice."""
    assert speculation_of(None) == speculation_of(NIM_70B) == NO_SPECULATION
    assert speculation_of(SEEN) == THREE
    assert speculation_of(replace(SEEN, drafted_per_step=None)) == Speculation(2.1, 2.1)
    workload = replace(SEVENTY.workload[0], seen=SEEN)
    found = resolve(workload, SEVENTY, KNOWN)
    assert found.speculation == THREE
    assert found.source.value == "measured"
    assert found.curve == resolve(SEVENTY.workload[0], SEVENTY, KNOWN).curve
    assert found.band


def test_another_speculation_than_the_measured_one_is_an_estimate() -> None:
    workload = replace(SEVENTY.workload[0], seen=SEEN, speculative=NO_SPECULATION)
    found = resolve(workload, SEVENTY, KNOWN)
    with_it = resolve(replace(workload, speculative=None), SEVENTY, KNOWN)
    assert found.source.value == "rescaled"
    assert not found.band
    assert "without speculation: not measured, estimate by roofline" in found.notes
    was = setting(ROWS["N1"])
    assert found.curve is not None
    assert with_it.curve is not None
    for running in (1.0, 85.2):
        expected = roofline(was).itl_s(running) / roofline(replace(was, speculation=THREE)).itl_s(running)
        assert found.curve.itl_s(running) / with_it.curve.itl_s(running) == pytest.approx(expected, rel=0.02)


def test_the_plan_takes_fewer_instances_and_says_what_it_stands_on() -> None:
    workload = Workload(
        "meta-llama/Llama-3.3-70B-Instruct-FP8", 400.0, prompt_tokens=500.0, answer_tokens=500.0, itl_p95_ms=15.0, tp=4
    )
    scenario = Scenario(server=(Server("H100 SXM5 80GB"),), workload=(workload,))
    plain = plan(scenario, KNOWN).workloads[0]
    drafted = plan(replace(scenario, workload=(replace(workload, speculative=THREE),)), KNOWN).workloads[0]
    assert isinstance(plain.instances, float)
    assert isinstance(drafted.instances, float)
    assert drafted.instances < plain.instances
    note = "speculation (2.1 of 3 drafted tokens kept) not measured: estimate by roofline, with a drafter of one layer"
    assert note in drafted.notes
    assert drafted.tokens_per_step == pytest.approx(3.1)
    assert plain.tokens_per_step == 1.0


def test_what_can_not_be_kept_is_refused() -> None:
    workload = replace(SEVENTY.workload[0], speculative=Speculation(3.0, 4.0))
    found = resolve(workload, SEVENTY, KNOWN)
    assert found.problem == "speculative: accepted 4 is more than the 3 tokens that are drafted"

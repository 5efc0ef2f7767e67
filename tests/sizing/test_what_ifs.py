"""Every what-if moves the answer the way that physics does: measured, re-scaled and roofline, of each kind of model."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from gpumon.sizing.accuracy import first_token_cost
from gpumon.sizing.answer import LimitKind, WorkloadPlan
from gpumon.sizing.plan import plan
from gpumon.sizing.profile import Observed, Origin, Point
from gpumon.sizing.resolve import resolve
from gpumon.sizing.scenario import Scenario, Server, Workload
from tests.each_row import each_row
from tests.records import replace
from tests.sizing.questions import KNOWN, changed

H100, A100, H200 = "H100 SXM5 80GB", "A100 SXM4 80GB", "H200 SXM 141GB"
MODELS = {
    "dense": ("meta-llama/Llama-3.1-8B-Instruct", 1, H100),
    "moe": ("Qwen/Qwen3-30B-A3B", 2, H100),
    "mla": ("deepseek-ai/DeepSeek-V3", 8, H200),
    "hybrid": ("Qwen/Qwen3-Next-80B-A3B-Instruct", 4, H100),
}
SOURCES = ("measured", "rescaled", "roofline")


@functools.cache
def best_profile(kind: str) -> Observed:
    """An engine that is 15% slower than the roofline, with a pool 3% off the formula."""
    model, tp, gpu = MODELS[kind]
    asked = Workload(model, 1.0, prompt_tokens=1000.0, answer_tokens=500.0, prefix_hit_ratio=0.3, tp=tp)
    scenario = Scenario(server=(Server(gpu),), workload=(asked,))
    instance = resolve(asked, scenario, KNOWN)
    [kv] = [limit for limit in plan(scenario, KNOWN).workloads[0].limits if limit.kind is LimitKind.KV]
    assert instance.curve is not None
    assert instance.first.line is not None
    assert instance.llm is not None
    points = tuple(
        Point(float(load), itl_s=1.15 * instance.curve.itl_s(load), ttft_s=1.3 * instance.first.line.ttft_s(load))
        for load in (1, 4, 8, 16, 32)
    )
    request = 1500.0 + bool(instance.llm.states) * 600.0
    return Observed(
        Origin.LIVE, "vllm:8000", model, points, gpu=gpu, gpus=tp, tp=tp, prompt_tokens=1000.0, answer_tokens=500.0,
        prefix_hit_ratio=0.3, itl_tail_ratio=1.2, kv_pool_tokens=1.03 * kv.concurrency * request / 0.9,
        weight_precision=instance.llm.precision.value, kv_precision=instance.llm.kv_precision.value,
    )  # fmt: skip


def scenario_of(kind: str, source: str) -> Scenario:
    model, tp, gpu = MODELS[kind]
    here = {"measured": gpu, "rescaled": H200 if gpu == H100 else "B200 SXM 180GB", "roofline": gpu}[source]
    workload = Workload(
        model, 4000.0, tp=tp, prompt_tokens=1000.0, answer_tokens=500.0, prefix_hit_ratio=0.3,
        seen=None if source == "roofline" else best_profile(kind),
    )  # fmt: skip
    return Scenario(
        itl_p95_ms=60.0, ttft_p95_ms=2000.0, assume_ttft=True, server=(Server(here, gpus=16),), workload=(workload,)
    )


def row(scenario: Scenario) -> WorkloadPlan:
    return plan(scenario, KNOWN).workloads[0]


def limit(plan: WorkloadPlan, kind: LimitKind) -> float:
    return next((each.concurrency for each in plan.limits if each.kind is kind), float("inf"))


MORE, LESS, SAME = 1, -1, 0
WHAT_IFS: list[tuple[dict[str, Any], dict[LimitKind, int]]] = [
    ({"prompt_tokens": 2000.0}, {LimitKind.KV: LESS, LimitKind.ITL: LESS, LimitKind.TTFT: LESS}),
    ({"prompt_tokens": 500.0}, {LimitKind.KV: MORE, LimitKind.ITL: MORE, LimitKind.TTFT: MORE}),
    ({"answer_tokens": 1000.0}, {LimitKind.KV: LESS, LimitKind.TTFT: SAME}),
    ({"answer_tokens": 250.0}, {LimitKind.KV: MORE, LimitKind.TTFT: SAME}),
    ({"prefix_hit_ratio": 0.8}, {LimitKind.KV: SAME, LimitKind.ITL: MORE, LimitKind.TTFT: MORE}),
    ({"prefix_hit_ratio": 0.0}, {LimitKind.ITL: LESS, LimitKind.TTFT: LESS}),
    ({"weight_precision": "int4"}, {LimitKind.KV: MORE, LimitKind.ITL: MORE, LimitKind.TTFT: SAME}),
    ({"kv_precision": "fp8"}, {LimitKind.KV: MORE, LimitKind.ITL: MORE, LimitKind.TTFT: SAME}),
    ({"tp": 16}, {LimitKind.KV: MORE, LimitKind.ITL: MORE}),
    ({"pp": 2}, {LimitKind.KV: MORE, LimitKind.ITL: MORE, LimitKind.TTFT: LESS}),
    ({"itl_p95_ms": 80.0}, {LimitKind.KV: SAME, LimitKind.ITL: MORE, LimitKind.TTFT: SAME}),
    ({"itl_p95_ms": 40.0}, {LimitKind.KV: SAME, LimitKind.ITL: LESS, LimitKind.TTFT: SAME}),
    ({"itl_tail_ratio": 1.5}, {LimitKind.KV: SAME, LimitKind.ITL: LESS, LimitKind.TTFT: SAME}),
    ({"ttft_p95_ms": 1000.0}, {LimitKind.KV: SAME, LimitKind.ITL: SAME, LimitKind.TTFT: LESS}),
]


@functools.cache
def unchanged(kind: str, source: str) -> WorkloadPlan:
    """The answer that each change is held against."""
    return row(scenario_of(kind, source))


@each_row("source", SOURCES)
@each_row("kind", MODELS)
@each_row(("fields", "moves"), WHAT_IFS, named=[str(fields) for fields, _ in WHAT_IFS])
def test_each_bound_moves_the_right_way(
    kind: str, source: str, fields: dict[str, Any], moves: dict[LimitKind, int]
) -> None:
    before = unchanged(kind, source)
    after = row(changed(scenario_of(kind, source), **fields))
    for name, move in moves.items():
        was, now = limit(before, name), limit(after, name)
        if was == now == float("inf"):
            continue
        # int4 is widened to 16 bit: where FP8 was computed with, prefill gets slower and the TTFT with it; and so do
        # the layers of a mixture of experts.
        if name is LimitKind.TTFT and fields.get("weight_precision") == "int4" and kind != "dense":
            assert now < was
        elif move == SAME:
            assert now == pytest.approx(was, rel=1e-9), name
        else:
            assert (now - was) * move > 0, (name, was, now)


@each_row("kind", MODELS)
def test_gpus_with_more_bandwidth_memory_and_flops_carry_more(kind: str) -> None:
    scenario = scenario_of(kind, "measured")
    gpus = ("H200 SXM 141GB", "B200 SXM 180GB")
    slow, fast = (row(replace(scenario, server=(Server(gpu, 16),))) for gpu in gpus)
    for name in (LimitKind.KV, LimitKind.ITL):
        assert limit(slow, name) < limit(fast, name)


@each_row("kind", MODELS)
def test_a_pool_that_was_seen_is_moved_and_not_replaced(kind: str) -> None:
    """With the formula's pool instead, one that an engine made larger would shrink at a what-if that frees memory."""
    scenario = scenario_of(kind, "measured")
    seen = scenario.workload[0].seen
    assert seen is not None
    larger = replace(seen, kv_pool_tokens=1.02 * (seen.kv_pool_tokens or 0.0))
    twice = row(changed(scenario, seen=larger, kv_precision="fp8"))
    one = row(changed(scenario, seen=larger))
    assert limit(twice, LimitKind.KV) > 1.2 * limit(one, LimitKind.KV)
    assert "re-scaled" in next(each.text for each in twice.limits if each.kind is LimitKind.KV)
    if kind != "hybrid":  # whose state does not shrink with the KV cache
        assert limit(twice, LimitKind.KV) == pytest.approx(2 * limit(one, LimitKind.KV))


def test_a_pool_that_can_not_be_moves_nothing() -> None:
    scenario = scenario_of("dense", "measured")
    seen = replace(scenario.workload[0].seen, kv_pool_tokens=1e9)
    after = row(changed(scenario, seen=seen, kv_precision="fp8"))
    assert "from memory" in next(each.text for each in after.limits if each.kind is LimitKind.KV)


def test_a_typed_pool_stands_above_what_was_seen_to_run() -> None:
    small = row(changed(scenario_of("dense", "measured"), kv_pool_tokens=15_000.0))
    assert limit(small, LimitKind.KV) == pytest.approx(9.0)  # 0.9 * 15,000 / 1,500, though 32 were seen


def test_typed_prefill_passes_the_stages_one_after_the_other() -> None:
    scenario = changed(scenario_of("dense", "roofline"), prefill_tokens_per_s=20_000.0, target=1.0)
    one, two = row(scenario), row(changed(scenario, pp=2))
    prompts_s = 700.0 / 20_000.0
    cost = first_token_cost("")
    # The message from stage to stage takes some microseconds besides.
    assert two.ttft_s == pytest.approx(one.ttft_s + (cost.prompt + cost.prompt_each) * prompts_s, rel=1e-3)
    assert two.ttft_s > one.ttft_s + (cost.prompt + cost.prompt_each) * prompts_s


def test_fewer_than_one_request_decode_alone() -> None:
    """The experts of a tenth of a sequence are those of one: a mean below 1 has idle moments, not lighter steps."""
    scenario = changed(scenario_of("moe", "roofline"), target=1.0)
    one, spread = row(scenario), row(changed(scenario, spare_instances=9))
    assert spread.running == pytest.approx(0.1)
    assert spread.itl_s == one.itl_s


@each_row("rate", [1e-6, 1e-3, 0.7])
def test_a_small_rate_is_not_rounded_away(rate: float) -> None:
    answer = row(changed(scenario_of("dense", "roofline"), target=rate, target_kind="requests_per_s"))
    assert answer.requests_per_s == pytest.approx(rate, rel=1e-6)

"""What bounds the requests in flight of one instance, the bound that holds first in front."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Final

from gpumon.sizing import memory
from gpumon.sizing.answer import Limit, LimitKind
from gpumon.sizing.instance import Instance
from gpumon.sizing.observed import Origin
from gpumon.sizing.scenario import Scenario

KV_SHARE: Final = 0.9
"""Of the KV pool that is planned with: measured plateaus lie 10 to 12 % below the formula (sizing fact sheet, 1.4)."""
MOST: Final = 1e6
"""Requests in flight beyond which no single instance is believed."""


def limits_of(instance: Instance, scenario: Scenario) -> tuple[Limit, ...]:
    """All bounds that are known, by rising concurrency. Empty where nothing bounds it: nothing is known then."""
    found = [limit for limit in _all(instance, scenario) if not math.isinf(limit.concurrency)]
    return tuple(sorted(found, key=lambda limit: limit.concurrency))


def impossible(limit: Limit) -> str:
    """Why an instance can not carry even one request within `limit`, and what would help."""
    helps = {
        LimitKind.ITL: "more TP, narrower weights or a faster GPU would help; more instances would not",
        LimitKind.TTFT: "more TP, a shorter prompt or prefix hits would help; more instances would not",
        LimitKind.E2E: "shorter answers, more TP or a faster GPU would help; more instances would not",
        LimitKind.KV: "more GPUs per instance, an FP8 KV cache or shorter requests would help",
        LimitKind.PREFILL: "more TP or prefix hits would help",
    }
    return f"not even one request at a time: {limit.text}; {helps.get(limit.kind, 'change that bound')}"


def kv_pool_tokens(instance: Instance, scenario: Scenario) -> tuple[float, str] | None:
    """Tokens that the KV cache of one instance holds, and who says so: typed, seen, re-scaled, or from memory."""
    if instance.workload.kv_pool_tokens is not None:
        return instance.workload.kv_pool_tokens, "typed"
    if instance.alike and instance.seen is not None and instance.seen.kv_pool_tokens is not None:
        return instance.seen.kv_pool_tokens, "seen"
    if instance.llm is None or instance.gpu is None:
        return None
    llm, size, shift = instance.llm, instance.gpu.memory_bytes, instance.pool_shift_ratio
    tokens = memory.pool_tokens(llm, size, instance.gpus, instance.tp, scenario.usable_memory_ratio, shift or 0.0)
    return tokens, "from memory" if shift is None else "re-scaled"


def _all(instance: Instance, scenario: Scenario) -> Iterator[Limit]:
    yield from _typed(instance)
    yield from _kv(instance, scenario)
    yield from _latencies(instance)
    yield from _prefill(instance)
    engine = instance.workload.max_num_seqs or (instance.seen.max_num_seqs if instance.seen is not None else None)
    if engine is not None:
        yield Limit(LimitKind.MAX_NUM_SEQS, float(engine), f"the engine runs at most {engine} together")


def _typed(instance: Instance) -> Iterator[Limit]:
    typed, seen = instance.workload.capacity_per_instance, instance.seen
    if typed is not None:
        yield Limit(LimitKind.TYPED, typed, f"typed: {typed:g} per instance")
    elif seen is not None and instance.alike and instance.same_mix and seen.origin is not Origin.LIVE:
        if seen.concurrency is not None:
            yield Limit(LimitKind.KNEE, seen.concurrency, f"{seen.name} is at its best at {seen.concurrency:g}")
        elif seen.points:
            last = seen.points[-1].running
            yield Limit(LimitKind.RANGE, last, f"{seen.name} was measured up to {last:g}")


def _kv(instance: Instance, scenario: Scenario) -> Iterator[Limit]:
    pool = kv_pool_tokens(instance, scenario)
    if pool is None or instance.prompt_tokens is None or instance.answer_tokens is None:
        return
    tokens, said = pool
    request = _taken(instance, instance.prompt_tokens + instance.answer_tokens)
    if request > 0 and not math.isinf(request) and not math.isinf(tokens):
        held = KV_SHARE * tokens / request
        text = f"the KV cache holds {tokens:,.0f} tokens ({said}), {request:,.0f} a request"
        ran = 0.0 if said == "typed" else ran_together(instance)
        if ran > held:
            held = ran
            text = f"as many as were seen to run together, {ran:,.0f}, more than {tokens:,.0f} tokens ({said}) tell"
        yield Limit(LimitKind.KV, held, text)


def _taken(instance: Instance, context_tokens: float) -> float:
    """Tokens of the pool that a request takes."""
    if instance.llm is None or not instance.llm.linear_state_elements:
        return context_tokens
    return memory.request_tokens(instance.llm, context_tokens, instance.tp)


def ran_together(instance: Instance) -> float:
    """Most requests that this instance was seen to run, in the room that those of today take: a fact against any
    formula. Prefix hits are taken to have needed no room, so that fewer of them leave less of it."""
    seen = instance.seen
    if seen is None or not instance.alike or instance.prompt_tokens is None or instance.answer_tokens is None:
        return 0.0
    ran = max((point.running for point in seen.points), default=0.0)
    if seen.prompt_tokens is None or seen.answer_tokens is None:
        return ran if instance.same_mix else 0.0
    was = seen.prefix_hit_ratio or 0.0
    took = _taken(instance, seen.prompt_tokens * (1.0 - was) + seen.answer_tokens)
    takes = _taken(instance, instance.prompt_tokens * (1.0 - min(was, instance.hit_ratio)) + instance.answer_tokens)
    return ran * took / takes


def _latencies(instance: Instance) -> Iterator[Limit]:
    curve, ttft = instance.curve, instance.ttft
    goal_itl, goal_ttft, goal_e2e = instance.goal_itl_s, instance.goal_ttft_s, instance.goal_e2e_s
    if goal_itl is not None and curve is not None:
        running = curve.running_at(goal_itl)
        at = max(1.0, min(running, MOST))
        yield Limit(LimitKind.ITL, running, _missed("ITL", curve.itl_s(at), goal_itl, at))
    if goal_ttft is not None and ttft is not None:
        running = ttft.running_at(goal_ttft)
        at = max(1.0, min(running, MOST))
        yield Limit(LimitKind.TTFT, running, _missed("TTFT", ttft.ttft_s(at), goal_ttft, at))
    if goal_e2e is not None and curve is not None and instance.answer_tokens is not None:
        running = largest(lambda load: (instance.response_s(load) or math.inf) <= goal_e2e)
        at = max(1.0, min(running, MOST))
        yield Limit(LimitKind.E2E, running, _missed("E2E", instance.response_s(at) or math.nan, goal_e2e, at))


def _missed(name: str, seconds: float, goal_s: float, at: float) -> str:
    return f"{name} {seconds * 1e3:,.1f} ms at {at:.0f}, goal {goal_s * 1e3:,.1f} ms as a mean"


def _prefill(instance: Instance) -> Iterator[Limit]:
    """Output tokens can not come faster than their prompts are computed: X <= R_p*OSL/(ISL*(1-hit))."""
    rate, curve = instance.workload.prefill_tokens_per_s, instance.curve
    if rate is None or curve is None or instance.prompt_tokens is None or instance.answer_tokens is None:
        return
    computed = instance.prompt_tokens * (1.0 - instance.hit_ratio)
    if computed <= 0:
        return
    most = rate * instance.answer_tokens / computed
    yield Limit(
        LimitKind.PREFILL,
        curve.running_at_rate(most),
        f"{rate:,.0f} prompt tokens/s allow {most:,.0f} output tokens/s",
    )


def largest(holds: Callable[[float], bool], most: float = MOST) -> float:
    """Largest load from 1 to `most` for which `holds`, which ends to hold once; 0 if not even 1, inf if all."""
    if not holds(1.0):
        return 0.0
    if holds(most):
        return math.inf
    low, high = 1.0, most
    for _ in range(44):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low

"""Limits of the requests in flight of one instance, and which of them holds first."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Final

from gpumon.efficiency.lengths import KV_SHARE, requests_that_fit
from gpumon.efficiency.traffic import kv_stored_bytes
from gpumon.sizing import memory
from gpumon.sizing.answer import Limit, LimitKind
from gpumon.sizing.instance import Instance
from gpumon.sizing.knee import LEAST_GAIN, gain_per_doubling, load_of_point
from gpumon.sizing.latency import MOST_SEQUENCES, Curve, Tail, largest_load, largest_load_within
from gpumon.sizing.profile import Observed, Origin
from gpumon.sizing.scenario import Catalogues, Scenario

OPERATING_POINTS: Final = frozenset({LimitKind.TYPED, LimitKind.KNEE, LimitKind.RANGE})
"""Bounds that are capacities to plan with already: the planning factor does not apply."""
EXTRAPOLATED: Final = 1.05
"""Times the largest load that was measured beyond which a fit is extrapolated."""


def limits_of(instance: Instance, scenario: Scenario) -> tuple[Limit, ...]:
    """All bounds that are known, the one that holds first in front; empty where nothing is known.

    The loads that the bounds allow to plan with are in order: an end of a sweep that was moved to another mix counts as
    it is, and a KV cache just above it with the planning factor, which is less. What a load test ran as it is, is a
    fact, and no share of a formula goes before it.
    """
    limits = [
        *_operating_point(instance, scenario),
        *_kv(instance, scenario),
        *_latencies(instance, scenario),
        *_prefill(instance),
    ]
    engine = instance.workload.max_num_seqs or (instance.seen.max_num_seqs if instance.seen is not None else None)
    if engine is not None:
        limits.append(
            Limit(LimitKind.MAX_NUM_SEQS, float(engine), f"the engine runs at most {engine} requests at once")
        )
    tested = instance.alike and instance.same_mix
    factor = 1.0 if tested else scenario.planning_factor
    finite = (limit for limit in limits if not math.isinf(limit.concurrency))
    return tuple(sorted(finite, key=lambda limit: planned_load(limit, factor)))


def planned_load(limit: Limit, planning_factor: float) -> float:
    """Requests in flight that a bound allows to plan with."""
    if limit.kind in OPERATING_POINTS:
        return limit.concurrency
    return limit.concurrency * planning_factor


def kv_pool_tokens(instance: Instance, scenario: Scenario) -> tuple[float, str] | None:
    """Tokens that the KV cache of one instance holds, and who says so: typed, seen, re-scaled, or from memory."""
    if instance.workload.kv_pool_tokens is not None:
        return instance.workload.kv_pool_tokens, "typed"
    if instance.alike and instance.seen is not None and instance.seen.kv_pool_tokens is not None:
        return instance.seen.kv_pool_tokens, "seen"
    if instance.llm is None or instance.gpu is None:
        return None
    shift = instance.pool_shift_ratio
    tokens = memory.pool_tokens(
        instance.llm,
        instance.gpu.memory_bytes,
        instance.gpus,
        instance.tp,
        scenario.usable_memory_ratio,
        shift or 0.0,
        instance.dp,
        instance.startup,
    )
    return tokens, "from memory" if shift is None else "re-scaled"


def ttft_decides(instance: Instance, scenario: Scenario) -> bool:
    """Whether a TTFT goal bounds the requests in flight: where TTFT was measured, or an estimate is to count."""
    return instance.first.line is not None and (instance.first.decides or scenario.assume_ttft)


def _operating_point(instance: Instance, scenario: Scenario) -> Iterator[Limit]:
    """The load that was typed, or up to which a load test or a table says that more load pays."""
    typed = instance.workload.capacity_per_instance
    if typed is not None:
        yield Limit(LimitKind.TYPED, typed, f"typed: {typed:g} per instance")
        return
    seen = instance.seen
    if seen is None or seen.origin is Origin.LIVE or _goal_decides(instance, scenario):
        return
    if instance.alike and instance.same_mix:
        yield from _tested(seen)
    elif seen.origin is Origin.SWEEP and instance.curve is not None:
        yield from _moved(instance.curve, seen)


def _goal_decides(instance: Instance, scenario: Scenario) -> bool:
    """Whether a latency goal sets the capacity: where throughput stopped following the load is advice then."""
    asked = instance.workload
    if asked.ttft_p95_ms is not None and ttft_decides(instance, scenario):
        return True
    return instance.curve is not None and (asked.itl_p95_ms is not None or asked.e2e_p95_ms is not None)


def _tested(seen: Observed) -> Iterator[Limit]:
    """The operating point of what was seen: the knee of its sweep, or the end of it where there is none."""
    last = max((load_of_point(point) for point in seen.points), default=math.inf)
    if seen.concurrency is not None and (seen.concurrency < last or seen.origin is Origin.TABLE):
        yield Limit(LimitKind.KNEE, seen.concurrency, f"the knee of {seen.name} is at {seen.concurrency:g}")
    elif seen.points:
        yield Limit(LimitKind.RANGE, last, f"{seen.name} was measured up to {last:g}")


def _moved(curve: Curve, seen: Observed) -> Iterator[Limit]:
    """Limits for another TP, GPU or mix: no load beyond the one that was tested, nor one that does not pay here."""
    for limit in _tested(seen):
        pays = largest_load(lambda running: _gain(curve, running) >= LEAST_GAIN)
        if pays < limit.concurrency:
            text = f"above {pays:.0f} twice the load adds less than {LEAST_GAIN:.0%} throughput"
            yield Limit(LimitKind.KNEE, pays, text)
        else:
            yield limit


def _gain(curve: Curve, running: float) -> float:
    """Throughput that a load adds to that of half of it, as a share."""
    return gain_per_doubling(curve.tokens_per_s(running / 2.0), curve.tokens_per_s(running), 2.0)


def _kv(instance: Instance, scenario: Scenario) -> Iterator[Limit]:
    """The bound of the KV cache."""
    pool = kv_pool_tokens(instance, scenario)
    if pool is None or instance.prompt_tokens is None or instance.answer_tokens is None:
        return
    tokens, source = pool
    context = instance.prompt_tokens + instance.answer_tokens
    request = _taken(instance, context)
    if request <= 0 or math.isinf(request) or math.isinf(tokens):
        return
    room, whole = _pool_text(instance, tokens, request, context)
    held, conditions = _held(instance, tokens, request, context)
    ran = 0.0
    if source != "typed":
        ran = ran_together(instance)
    if ran > held:
        yield Limit(LimitKind.KV, ran, f"{ran:,.0f} ran at once here, more than {room} ({source}) would hold")
    else:
        text = f"{KV_SHARE:.0%} of the KV cache's {room} ({source}), {whole}{conditions}"
        yield Limit(LimitKind.KV, held, text)


def _held(instance: Instance, tokens: float, request: float, context: float) -> tuple[float, str]:
    """Requests that a pool of so many tokens holds, and what bounds them beside its size: ranks, spread of lengths."""
    held = requests_that_fit(tokens, request, KV_SHARE)
    one_rank = held / instance.dp
    if one_rank < 1.0:
        held = one_rank  # a request stands on one rank
    conditions = ""
    if instance.dp > 1:
        conditions = f", over {instance.dp} ranks"
    spread = _held_at_p95(instance, tokens, request / context)
    if spread < held:
        held = spread
        conditions += f"; with the spread of the lengths p95 of {spread:,.0f} requests takes it"
    return held, conditions


def _pool_text(instance: Instance, tokens: float, request: float, context: float) -> tuple[str, str]:
    """Size of the pool, and of a request of so many tokens in it."""
    if instance.llm is None or instance.llm.uniform:
        return f"{tokens:,.0f} tokens", f"{request:,.0f} per request"
    # Its tokens differ in bytes: those at the end of a long request take less than the first ones.
    request_gb = kv_stored_bytes(instance.llm, context, instance.tp) / 1e9
    return f"{request_gb * tokens / request:,.3g} GB", f"{request_gb:,.3g} GB per request"


def _held_at_p95(instance: Instance, tokens: float, taken: float) -> float:
    """Requests whose p95 fills the pool; infinite where nobody tells how lengths spread.

    `taken`: tokens of the pool that a token of context takes. Each rank holds its own requests, so that fewer of them
    level each other out.
    """
    if instance.held is None:
        return math.inf
    return instance.dp * instance.held.running_in(KV_SHARE * tokens / taken / instance.dp)


def _taken(instance: Instance, context_tokens: float) -> float:
    """Tokens of the pool that a request takes."""
    if instance.llm is None:
        return context_tokens
    return memory.request_tokens(instance.llm, context_tokens, instance.tp)


def ran_together(instance: Instance) -> float:
    """Most requests that this instance was seen to run, in the room that those of today take: a fact against any
    formula. Prefix hits are taken to have needed no room, so that fewer of them leave less of it."""
    seen = instance.seen
    if seen is None or not instance.alike or instance.prompt_tokens is None or instance.answer_tokens is None:
        return 0.0
    ran = seen.most_running or 0.0
    hits = seen.prefix_hit_ratio or 0.0
    took = _took(instance, seen, hits)
    if took is None:
        return ran if instance.same_mix else 0.0
    takes = _taken(instance, instance.prompt_tokens * (1.0 - min(hits, instance.hit_ratio)) + instance.answer_tokens)
    if takes <= 0.0:
        return 0.0
    return ran * took / takes


def _took(instance: Instance, seen: Observed, hits: float) -> float | None:
    """Tokens of the pool that a request took that was seen; None where its lengths are not known."""
    if seen.prompt_tokens is None or seen.answer_tokens is None:
        return None
    return _taken(instance, seen.prompt_tokens * (1.0 - hits) + seen.answer_tokens)


def _latencies(instance: Instance, scenario: Scenario) -> Iterator[Limit]:
    curve = instance.curve
    ttft = None
    if ttft_decides(instance, scenario):
        ttft = instance.first.line
    asked = instance.workload
    if asked.itl_p95_ms is not None and curve is not None:
        running = largest_load_within(asked.itl_p95_ms / 1e3, curve.itl_s, instance.itl_tail)
        yield Limit(LimitKind.ITL, running, _missed("ITL", curve.itl_s, instance.itl_tail, asked.itl_p95_ms, running))
    if asked.ttft_p95_ms is not None and ttft is not None:
        running = largest_load_within(asked.ttft_p95_ms / 1e3, ttft.ttft_s, instance.ttft_tail)
        text = _missed("TTFT", ttft.ttft_s, instance.ttft_tail, asked.ttft_p95_ms, running)
        yield Limit(LimitKind.TTFT, running, text)
    if asked.e2e_p95_ms is not None and curve is not None and instance.answer_tokens is not None:
        yield _e2e(instance, curve, asked.e2e_p95_ms, instance.answer_tokens)


def _e2e(instance: Instance, curve: Curve, goal_ms: float, answer_tokens: float) -> Limit:
    """The bound of a goal for the whole request: its p95 is taken to have the tail of its parts."""
    tail = instance.itl_tail
    ttft = instance.first.line

    def p95_s(running: float) -> float:
        if ttft is not None:
            first_s = ttft.ttft_s(running)
        else:
            first_s = 0.0
        decode_s = curve.itl_s(running) * max(0.0, answer_tokens - 1.0)
        # One ratio stands for the whole; one that follows the load of the ITL says nothing of the TTFT.
        if tail.mean_s:
            first_tail = instance.ttft_tail
        else:
            first_tail = tail
        return decode_s * tail.ratio_at(running) + first_s * first_tail.ratio_at(running)

    running = largest_load(lambda load: p95_s(load) <= goal_ms / 1e3)
    return Limit(LimitKind.E2E, running, _missed("E2E", p95_s, Tail(known=tail.known), goal_ms, running))


def _missed(name: str, mean_s: Callable[[float], float], tail: Tail, goal_ms: float, running: float) -> str:
    load = max(1.0, min(running, MOST_SEQUENCES))
    quantile = "p95 " if tail.known else ""
    end = "" if tail.known else " as a mean"
    value_ms = mean_s(load) * tail.ratio_at(load) * 1e3
    return f"{name} {quantile}{value_ms:,.1f} ms at {load:.0f}, goal {goal_ms:,.1f} ms{end}"


def _prefill(instance: Instance) -> Iterator[Limit]:
    """Output tokens cannot come faster than their prompts are computed: X <= R_p*OSL/(ISL*(1-hit))."""
    rate = instance.workload.prefill_tokens_per_s
    curve = instance.curve
    if rate is None or curve is None or instance.prompt_tokens is None or instance.answer_tokens is None:
        return
    computed = instance.prompt_tokens * (1.0 - instance.hit_ratio)
    if computed <= 0:
        return
    most = rate * instance.answer_tokens / computed
    yield Limit(
        LimitKind.PREFILL,
        largest_load(lambda running: curve.tokens_per_s(running) <= most),
        f"{rate:,.0f} prompt tokens/s allow {most:,.0f} output tokens/s",
    )


def binding(limits: tuple[Limit, ...]) -> Limit:
    """The bound that holds first; a typed capacity is the user's word against the formulas."""
    for limit in limits:
        if limit.kind is LimitKind.TYPED:
            return limit
    return limits[0]


def unknown_model(model: str, catalogues: Catalogues) -> str:
    """Advice about a model whose dimensions are not known; empty where they are."""
    if catalogues.llm(model) is not None:
        return ""
    near = ", ".join(row.name for row in catalogues.llms.nearest(model, 3))
    nearest = "to have it,"
    if near:
        nearest = f"nearest: {near}; name one of these, or"
    return f"no model {model[:80]!r} is known; {nearest} add a [[model]] table with its dimensions to the config"

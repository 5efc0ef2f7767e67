"""Limits of the requests in flight of one instance, and which of them holds first."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

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
"""Factor of the largest measured load above which a fit is extrapolated."""
_NAMED_NEIGHBOURS: Final = 3
"""Known models that are named beside an unknown one."""
_LONGEST_MODEL: Final = 80
"""Characters of the name of an unknown model."""


class KvPool(NamedTuple):
    """Size of the KV cache of one instance."""

    tokens: float
    source: str
    """typed, seen, re-scaled (as seen on another GPU or TP), or from memory."""


def limits_of(instance: Instance, scenario: Scenario) -> tuple[Limit, ...]:
    """All bounds that are known, the one that holds first in front; empty where nothing is known.

    They are in the order of the loads that they allow to plan with, so that a KV cache just above the end of a sweep
    may hold before it, by the planning factor. If this very instance and mix were load-tested, they are in the order of
    the bounds themselves: what ran is a fact, and no share of a formula goes before it.
    """
    limits = [
        *_operating_point_limit(instance, scenario),
        *_kv_limit(instance, scenario),
        *_latency_limits(instance, scenario),
        *_prefill_limit(instance),
    ]
    max_num_seqs = instance.workload.max_num_seqs
    if max_num_seqs is None and instance.seen is not None:
        max_num_seqs = instance.seen.max_num_seqs
    if max_num_seqs is not None:
        text = f"the engine runs at most {max_num_seqs} requests at once"
        limits.append(Limit(LimitKind.MAX_NUM_SEQS, float(max_num_seqs), text))
    factor = scenario.planning_factor
    if instance.alike and instance.same_mix:
        factor = 1.0
    finite = (limit for limit in limits if not math.isinf(limit.concurrency))
    return tuple(sorted(finite, key=lambda limit: planned_load(limit, factor)))


def planned_load(limit: Limit, planning_factor: float) -> float:
    """Requests in flight that a bound allows to plan with: a share of it, unless it is an operating point."""
    if limit.kind in OPERATING_POINTS:
        return limit.concurrency
    return limit.concurrency * planning_factor


def kv_pool_of(instance: Instance, scenario: Scenario) -> KvPool | None:
    """Size of the KV cache of one instance, from the first source that has it; None where it is not known."""
    if instance.workload.kv_pool_tokens is not None:
        return KvPool(instance.workload.kv_pool_tokens, "typed")
    if instance.alike and instance.seen is not None and instance.seen.kv_pool_tokens is not None:
        return KvPool(instance.seen.kv_pool_tokens, "seen")
    if instance.llm is None or instance.gpu is None:
        return None
    shift_ratio = instance.pool_shift_ratio
    tokens = memory.pool_tokens(
        instance.llm,
        instance.gpu.memory_bytes,
        gpus=instance.gpus,
        tp=instance.tp,
        usable_ratio=scenario.usable_memory_ratio,
        shift_ratio=shift_ratio or 0.0,
        dp=instance.dp,
        startup=instance.startup,
    )
    if shift_ratio is None:
        return KvPool(tokens, "from memory")
    return KvPool(tokens, "re-scaled")


def ttft_decides(instance: Instance, scenario: Scenario) -> bool:
    """Whether a TTFT goal bounds the requests in flight: where TTFT was measured, or an estimate is to count."""
    return instance.first.line is not None and (instance.first.decides or scenario.assume_ttft)


def _operating_point_limit(instance: Instance, scenario: Scenario) -> Iterator[Limit]:
    """The load that was typed, or up to which a load test or a table says that more load pays.

    None of a running engine: it shows what it was sent, not how far it can go. None with a latency goal either, which
    decides instead.
    """
    typed = instance.workload.capacity_per_instance
    if typed is not None:
        yield Limit(LimitKind.TYPED, typed, f"typed: {typed:g} per instance")
        return
    seen = instance.seen
    if seen is None or seen.origin is Origin.LIVE or _goal_decides(instance, scenario):
        return
    if instance.alike and instance.same_mix:
        yield from _seen_operating_point(seen)
    elif seen.origin is Origin.SWEEP and instance.curve is not None:
        yield from _moved_operating_point(instance.curve, seen)


def _goal_decides(instance: Instance, scenario: Scenario) -> bool:
    """Whether a latency goal sets the capacity: the load at which throughput stopped following is advice then."""
    goals = instance.workload
    if goals.ttft_p95_ms is not None and ttft_decides(instance, scenario):
        return True
    return instance.curve is not None and (goals.itl_p95_ms is not None or goals.e2e_p95_ms is not None)


def _seen_operating_point(seen: Observed) -> Iterator[Limit]:
    """The operating point of a load test: the knee of its sweep, or the end of it where there is none.

    A table has the best concurrency, whether or not it has points.
    """
    largest_load = max((load_of_point(point) for point in seen.points), default=math.inf)
    knee = seen.concurrency
    if knee is not None and (knee < largest_load or seen.origin is Origin.TABLE):
        yield Limit(LimitKind.KNEE, knee, f"the knee of {seen.name} is at {knee:g}")
    elif seen.points:
        yield Limit(LimitKind.RANGE, largest_load, f"{seen.name} was measured up to {largest_load:g}")


def _moved_operating_point(curve: Curve, seen: Observed) -> Iterator[Limit]:
    """Limits for another TP, GPU or mix: no load beyond the one that was tested, nor one that does not pay here."""
    for limit in _seen_operating_point(seen):
        paying = largest_load(lambda running: _throughput_gain(curve, running) >= LEAST_GAIN)
        if paying < limit.concurrency:
            text = f"above {paying:.0f} twice the load adds less than {LEAST_GAIN:.0%} throughput"
            yield Limit(LimitKind.KNEE, paying, text)
        else:
            yield limit


def _throughput_gain(curve: Curve, running: float) -> float:
    """Throughput that a load adds to that of half of it, as a share."""
    return gain_per_doubling(curve.tokens_per_s(running / 2.0), curve.tokens_per_s(running), 2.0)


def _kv_limit(instance: Instance, scenario: Scenario) -> Iterator[Limit]:
    """The bound of the KV cache: as many requests as fit into it, or as were seen to run there if these are more."""
    pool = kv_pool_of(instance, scenario)
    if pool is None or instance.prompt_tokens is None or instance.answer_tokens is None:
        return
    context = instance.prompt_tokens + instance.answer_tokens
    request_tokens = _request_tokens(instance, context)
    if request_tokens <= 0 or math.isinf(request_tokens) or math.isinf(pool.tokens):
        return
    pool_size, request_size = _pool_texts(instance, pool.tokens, request_tokens, context)
    fitting, conditions = _fitting_requests(instance, pool.tokens, request_tokens, context)
    ran = 0.0
    if pool.source != "typed":  # a typed size is the user's word, which is not contradicted
        ran = most_seen_running(instance)
    if ran > fitting:
        text = f"{ran:,.0f} ran at once here, more than {pool_size} ({pool.source}) would hold"
        yield Limit(LimitKind.KV, ran, text)
    else:
        text = f"{KV_SHARE:.0%} of the KV cache's {pool_size} ({pool.source}), {request_size}{conditions}"
        yield Limit(LimitKind.KV, fitting, text)


def _fitting_requests(
    instance: Instance, pool_tokens: float, request_tokens: float, context_tokens: float
) -> tuple[float, str]:
    """Requests that fit into a pool, and what bounds them beside its size, in words: ranks, spread of lengths."""
    fitting = requests_that_fit(pool_tokens, request_tokens, KV_SHARE)
    on_one_rank = fitting / instance.dp
    if on_one_rank < 1.0:
        fitting = on_one_rank  # a request stands on one rank, so that not even one fits
    conditions = ""
    if instance.dp > 1:
        conditions = f", over {instance.dp} ranks"
    fitting_at_p95 = _fitting_at_p95(instance, pool_tokens, request_tokens / context_tokens)
    if fitting_at_p95 < fitting:
        fitting = fitting_at_p95
        conditions += f"; with the spread of the lengths p95 of {fitting:,.0f} requests takes it"
    return fitting, conditions


def _pool_texts(
    instance: Instance, pool_tokens: float, request_tokens: float, context_tokens: float
) -> tuple[str, str]:
    """Size of the pool, and that of a request in it: in tokens, or in bytes where these differ from token to token."""
    if instance.llm is None or instance.llm.uniform:
        return f"{pool_tokens:,.0f} tokens", f"{request_tokens:,.0f} per request"
    # Those at the end of a long request take less than the first ones.
    request_gb = kv_stored_bytes(instance.llm, context_tokens, instance.tp) / 1e9
    return f"{request_gb * pool_tokens / request_tokens:,.3g} GB", f"{request_gb:,.3g} GB per request"


def _fitting_at_p95(instance: Instance, pool_tokens: float, tokens_per_context_token: float) -> float:
    """Requests whose p95 fills the pool; infinite where nobody tells how lengths spread.

    `tokens_per_context_token`: tokens of the pool that a token of context takes. Each rank holds its own requests, so
    that fewer of them level each other out.
    """
    if instance.tokens_in_flight is None:
        return math.inf
    context_tokens = KV_SHARE * pool_tokens / tokens_per_context_token
    return instance.dp * instance.tokens_in_flight.running_in(context_tokens / instance.dp)


def _request_tokens(instance: Instance, context_tokens: float) -> float:
    """Tokens of the pool that a request takes."""
    if instance.llm is None:
        return context_tokens
    return memory.request_tokens(instance.llm, context_tokens, instance.tp)


def most_seen_running(instance: Instance) -> float:
    """Most requests that this instance was seen to run, scaled to the room that those of today take; 0 if unknown.

    It is a fact against any formula. Prefix hits are taken to have needed no room, so that fewer hits leave less of it.
    """
    seen = instance.seen
    if seen is None or not instance.alike:
        return 0.0
    ran = seen.most_running or 0.0
    seen_hit_ratio = seen.prefix_hit_ratio or 0.0
    # More hits than were seen are not counted on.
    hit_ratio = min(seen_hit_ratio, instance.hit_ratio)
    tokens = _own_tokens(instance, instance.prompt_tokens, instance.answer_tokens, hit_ratio)
    if tokens is None or tokens <= 0.0:
        return 0.0
    seen_tokens = _own_tokens(instance, seen.prompt_tokens, seen.answer_tokens, seen_hit_ratio)
    if seen_tokens is None:
        return ran if instance.same_mix else 0.0
    return ran * seen_tokens / tokens


def _own_tokens(instance: Instance, prompt: float | None, answer: float | None, hit_ratio: float) -> float | None:
    """Tokens of the pool that a request takes beside its prefix hits; None where its lengths are not known."""
    if prompt is None or answer is None:
        return None
    return _request_tokens(instance, prompt * (1.0 - hit_ratio) + answer)


def _latency_limits(instance: Instance, scenario: Scenario) -> Iterator[Limit]:
    """The bounds of the latency goals that there are, each at the largest load whose p95 is within it."""
    curve = instance.curve
    goals = instance.workload
    if goals.itl_p95_ms is not None and curve is not None:
        tail = instance.itl_tail
        running = largest_load_within(goals.itl_p95_ms / 1e3, curve.itl_s, tail)
        text = _latency_text("ITL", curve.itl_s, tail, goals.itl_p95_ms, running)
        yield Limit(LimitKind.ITL, running, text)
    ttft_line = instance.first.line
    if goals.ttft_p95_ms is not None and ttft_line is not None and ttft_decides(instance, scenario):
        tail = instance.ttft_tail
        running = largest_load_within(goals.ttft_p95_ms / 1e3, ttft_line.ttft_s, tail)
        text = _latency_text("TTFT", ttft_line.ttft_s, tail, goals.ttft_p95_ms, running)
        yield Limit(LimitKind.TTFT, running, text)
    if goals.e2e_p95_ms is not None and curve is not None and instance.answer_tokens is not None:
        yield _e2e_limit(instance, curve, goals.e2e_p95_ms, instance.answer_tokens)


def _e2e_limit(instance: Instance, curve: Curve, goal_ms: float, answer_tokens: float) -> Limit:
    """The bound of a goal for the whole request: its p95 is taken to have the tail of its parts.

    A TTFT that is not known counts as 0.
    """
    itl_tail = instance.itl_tail
    ttft_line = instance.first.line
    # A constant ratio stands for the whole; one that follows the load of the ITL says nothing of the TTFT.
    ttft_tail = itl_tail
    if itl_tail.mean_s:
        ttft_tail = instance.ttft_tail

    def p95_s(running: float) -> float:
        ttft_s = 0.0
        if ttft_line is not None:
            ttft_s = ttft_line.ttft_s(running)
        decode_s = curve.itl_s(running) * max(0.0, answer_tokens - 1.0)
        return decode_s * itl_tail.ratio_at(running) + ttft_s * ttft_tail.ratio_at(running)

    running = largest_load(lambda load: p95_s(load) <= goal_ms / 1e3)
    no_further_tail = Tail(known=itl_tail.known)  # `p95_s` has it in
    return Limit(LimitKind.E2E, running, _latency_text("E2E", p95_s, no_further_tail, goal_ms, running))


def _latency_text(name: str, mean_s: Callable[[float], float], tail: Tail, goal_ms: float, running: float) -> str:
    """A latency at the load that its goal allows, beside the goal: `ITL p95 48.3 ms at 61, goal 50.0 ms`."""
    load = max(1.0, min(running, MOST_SEQUENCES))
    quantile = "p95 " if tail.known else ""
    end = "" if tail.known else " as a mean"
    value_ms = mean_s(load) * tail.ratio_at(load) * 1e3
    return f"{name} {quantile}{value_ms:,.1f} ms at {load:.0f}, goal {goal_ms:,.1f} ms{end}"


def _prefill_limit(instance: Instance) -> Iterator[Limit]:
    """The bound of a typed prefill rate: output tokens cannot come faster than their prompts are computed.

    X <= R_p*OSL/(ISL*(1-hit)), with X and R_p in output and prompt tokens per second.
    """
    prompt_tokens_per_s = instance.workload.prefill_tokens_per_s
    curve = instance.curve
    if prompt_tokens_per_s is None or curve is None or instance.prompt_tokens is None or instance.answer_tokens is None:
        return
    computed = instance.prompt_tokens * (1.0 - instance.hit_ratio)
    if computed <= 0:
        return
    most_per_s = prompt_tokens_per_s * instance.answer_tokens / computed
    running = largest_load(lambda load: curve.tokens_per_s(load) <= most_per_s)
    text = f"{prompt_tokens_per_s:,.0f} prompt tokens/s allow {most_per_s:,.0f} output tokens/s"
    yield Limit(LimitKind.PREFILL, running, text)


def binding(limits: tuple[Limit, ...]) -> Limit:
    """The bound that holds first, of at least one; a typed capacity is the user's word against the formulas."""
    for limit in limits:
        if limit.kind is LimitKind.TYPED:
            return limit
    return limits[0]


def unknown_model(model: str, catalogues: Catalogues) -> str:
    """Advice about a model whose dimensions are not known; empty where they are."""
    if catalogues.llm(model) is not None:
        return ""
    names = ", ".join(row.name for row in catalogues.llms.nearest(model, _NAMED_NEIGHBOURS))
    advice = "to have it,"
    if names:
        advice = f"nearest: {names}; name one of these, or"
    name = model[:_LONGEST_MODEL]
    return f"no model {name!r} is known; {advice} add a [[model]] table with its dimensions to the config"

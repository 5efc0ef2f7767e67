"""Limits of the requests in flight of one instance, and which of them holds first."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from gpumon.efficiency.lengths import KV_SHARE, requests_that_fit
from gpumon.efficiency.traffic import kv_stored_bytes
from gpumon.sizing import memory
from gpumon.sizing.answer import Basis, Limit, LimitKind
from gpumon.sizing.engine_limits import planned_slots
from gpumon.sizing.goals import Goal, basis_of, formula_s, goals_of, least_p95_s, simulated_s, ttft_decides
from gpumon.sizing.instance import Instance
from gpumon.sizing.interpolated import ItlCurve
from gpumon.sizing.knee import LEAST_GAIN, gain_per_doubling, load_of_point
from gpumon.sizing.latency import MOST_SEQUENCES, largest_load
from gpumon.sizing.profile import Observed, Origin
from gpumon.sizing.scenario import Catalogues, Scenario
from gpumon.sizing.tails import InstanceTails, PendingError, largest_load_that

OPERATING_POINTS: Final = frozenset({LimitKind.TYPED, LimitKind.KNEE, LimitKind.RANGE})
"""Bounds that are capacities to plan with already: the planning factor does not apply."""
_EXACT: Final = OPERATING_POINTS | {LimitKind.MAX_NUM_SEQS}
"""Bounds that are facts: so many run, whatever a formula says, and no share of them is planned with."""
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
        *_prefill_limit(instance),
    ]
    pool = kv_pool_of(instance, scenario)
    slots = planned_slots(instance, pool.tokens if pool is not None else None)
    if slots is not None:
        text = f"the engine runs at most {slots.value:,} requests at once: {slots.source}"
        limits.append(Limit(LimitKind.MAX_NUM_SEQS, float(slots.value), text))
    most = min((limit.concurrency for limit in limits), default=MOST_SEQUENCES)
    if most >= 1.0:  # else no load has a latency
        limits += _goal_limits(instance, scenario, most)
    factor = 1.0 if instance.alike and instance.same_mix else scenario.planning_factor
    finite = (limit for limit in limits if not math.isinf(limit.concurrency))
    return tuple(sorted(finite, key=lambda limit: planned_load(limit, factor)))


def planned_load(limit: Limit, planning_factor: float) -> float:
    """Requests in flight that a bound allows to plan with: a share of it, unless it is a fact."""
    if limit.kind in _EXACT:
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
    if seen is None or seen.origin is Origin.LIVE:
        return
    # Where a latency goal sets the capacity, the load at which throughput stopped following is advice.
    bases = (basis_of(instance, scenario, goal) for goal, _ in goals_of(instance.workload))
    if any(basis is not Basis.UNKNOWN for basis in bases):
        return
    if instance.alike and instance.same_mix:
        yield from _seen_operating_point(seen)
    elif seen.origin is Origin.SWEEP and instance.curve is not None:
        yield from _moved_operating_point(instance.curve, seen)


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


def _moved_operating_point(curve: ItlCurve, seen: Observed) -> Iterator[Limit]:
    """Limits for another TP, GPU or mix: no load beyond the one that was tested, nor one that does not pay here."""

    def pays(running: float) -> bool:
        gain = gain_per_doubling(curve.tokens_per_s(running / 2.0), curve.tokens_per_s(running), 2.0)
        return gain >= LEAST_GAIN

    for limit in _seen_operating_point(seen):
        paying = largest_load(pays)
        if paying < limit.concurrency:
            text = f"above {paying:.0f} twice the load adds less than {LEAST_GAIN:.0%} throughput"
            yield Limit(LimitKind.KNEE, paying, text)
        else:
            yield limit


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
    # A typed size is the user's word, which is not contradicted.
    ran = most_seen_running(instance) if pool.source != "typed" else 0.0
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
    conditions = f", over {instance.dp} ranks" if instance.dp > 1 else ""
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


def _goal_limits(instance: Instance, scenario: Scenario, most: float) -> Iterator[Limit]:
    """The bounds of the latency goals, each at the largest load at which the figure that it judges is within it.

    `most`: requests in flight that anything else lets in; more are not simulated.
    """
    for goal, goal_s in goals_of(instance.workload):
        basis = basis_of(instance, scenario, goal)
        if basis is Basis.UNKNOWN:
            continue
        if basis is Basis.SIMULATED and instance.tails is not None:
            try:
                yield _simulated_limit(instance, instance.tails, goal, goal_s, most)
            except PendingError:
                basis = Basis.PENDING
            else:
                continue
        latency_s = formula_s(instance, goal)
        by_estimate = goal.kind is LimitKind.TTFT and not ttft_decides(instance, scenario)
        if latency_s is not None and not by_estimate:
            yield _formula_limit(latency_s, goal, goal_s, basis)


def _formula_limit(latency_s: Callable[[float], float], goal: Goal, goal_s: float, basis: Basis) -> Limit:
    """The bound of a goal by a latency over the load, which rises."""
    running = largest_load(lambda load: latency_s(load) <= goal_s)
    load = max(1.0, min(running, MOST_SEQUENCES))
    name = goal.name
    end = ""
    if basis in (Basis.MEAN_ONLY, Basis.PENDING):
        name = goal.kind.value
        end = " as a mean" if basis is Basis.MEAN_ONLY else " as a mean, simulating"
    text = f"{name} {latency_s(load) * 1e3:,.1f} ms at {load:.0f}, goal {goal_s * 1e3:,.1f} ms{end}"
    return Limit(goal.kind, running, text)


def _simulated_limit(instance: Instance, tails: InstanceTails, goal: Goal, goal_s: float, most: float) -> Limit:
    """The bound of a goal by simulated requests. Raises PendingError while these are not simulated."""

    def holds(load: float) -> bool:
        """Whether the goal holds at a load; the mean, which is there at once, is within it wherever the p95 is."""
        if least_p95_s(instance, goal, load) > goal_s:
            return False
        p95 = tails.at(load)
        latency_s = simulated_s(instance, goal, p95, load)
        return p95.keeps_up and (latency_s is None or latency_s <= goal_s)

    running = largest_load_that(holds, most)
    load = max(1.0, min(running, most))
    latency_s = simulated_s(instance, goal, tails.at(load), load)
    value = "-" if latency_s is None else f"{latency_s * 1e3:,.1f} ms"
    text = f"{goal.name} {value} at {load:.0f}, goal {goal_s * 1e3:,.1f} ms, simulated"
    return Limit(goal.kind, running, text)


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
    advice = f"nearest: {names}; name one of these, or" if names else "to have it,"
    name = model[:_LONGEST_MODEL]
    return f"no model {name!r} is known; {advice} add a [[model]] table with its dimensions to the config"

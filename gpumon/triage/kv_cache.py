"""Rules on a full KV cache: requests wait for room in it or lose it, or one prompt holds most of it."""

from __future__ import annotations

import math
from typing import Final

from gpumon.efficiency import traffic
from gpumon.readings.snapshot import Engine, Gpu
from gpumon.readings.verdict import Action, Confidence, Evidence, Limit, Parameters
from gpumon.specs.precision import Precision
from gpumon.triage.advice import advice
from gpumon.triage.demand import steady_count, turned_away
from gpumon.triage.finding import Cause, Finding, Quantity, Remedy, params
from gpumon.triage.hour import HOUR_FIELDS
from gpumon.triage.progress.tokens import gives_no_tokens
from gpumon.triage.replicas import with_roomy_replicas
from gpumon.triage.samples import KEPT_S
from gpumon.triage.saturation import MOSTLY, arithmetic_is_full, moments_of_waiting, while_waiting
from gpumon.triage.sentences import KV_USAGE, MORE_INSTANCES, SPARE, WAITING
from gpumon.triage.signals import KV_REQUESTS_SOURCE, Case, finite, kv_requests, running_request_tokens

_NARROW_FORMATS: Final = ("fp8", "int8", "int4", "mxfp4", "nvfp4", "q8", "q4")
"""Formats of a KV cache that is small already."""
_LITTLE_MEMORY_SHARE: Final = 0.8
"""Share of the GPU's memory given to an engine below which more of it is the first thing to do: 0.9 is usual."""
_MOST_MEMORY_SHARE: Final = 0.95
"""Share of the GPU's memory from which on there is nothing left to give: activations and graphs need the rest."""
_LEAST_USAGE_WITHOUT_ROOM: Final = 0.5
"""KV use below which the cache is not what a prompt waits for, however long the prompt is."""
_MEMORY_STEP: Final = 0.05
"""Steps in which a share of the memory is advised: people write 0.85, and the load wavers by more than a hundredth."""
_ROUNDING: Final = 1e-6
"""Difference of two shares in percent that is none."""
KV_ROOM: Final = 0.85
"""KV use that more slots or instances may lead to."""
_LONG_CONTEXT_SHARE: Final = 0.5
"""Mean context, of the longest that is allowed, from which on a lower limit frees room: shorter ones never meet it."""
_GIANT_SHARE: Final = 0.5
"""Share of the KV pool that one request holds, from which on it keeps the others out."""
_CONTEXT_ROUNDING: Final = 1.1
"""Times the longest context up to which a share of the pool may be one request: the usual of the others is a guess."""
_LEAST_GIANT_SAMPLES: Final = 5
"""Samples of the last 3 min with a queue that make one request the cause of it."""
_MOST_INSTANCES: Final = 1e6
"""Bound of a number of instances: a pool that holds next to nothing would need more than can be counted."""
MOST_TIMES: Final = 4.0
"""Times the present instances, up to which requests in flight tell how many are needed: more of them are the backlog of
an overload, which grows with every minute of it."""


REQUEST_PREEMPTIONS: Final = Quantity(
    "request_preemptions", "each request was preempted {value:factor} before it ended", field="preemptions_mean"
)
PREEMPTIONS: Final = Quantity(
    "preemptions",
    "{value:per_minute} preemptions a minute",
    field="preemptions_per_s",
    limit="kv_preemptions_per_s",
)
ONE_REQUEST_HOLDS: Final = Quantity(
    "one_request_holds", "one request holds about {value:percent} of the KV cache[: {tokens:tokens} tokens]"
)
KV_HOLDS: Final = Quantity("kv_holds", "it holds about {value:requests} requests of {tokens:tokens} tokens")
LIMIT_PROMPT: Final = Remedy("limit_prompt", "lower {flag}, or limit the prompts at the gateway")
LONG_PROMPTS_APART: Final = Remedy("long_prompts_apart", "long prompts to an instance of their own")
LOWER_CONTEXT: Final = Remedy("lower_context", "lower {flag}")
FP8_KV: Final = Remedy("fp8_kv", "{flag} (holds twice as many)")
MORE_KV_MEMORY: Final = Remedy("more_kv_memory", "raise {flag}[ from {now} to {wanted}| (now {now})]")

KV_FULL: Final = Cause(
    "kv_full",
    Limit.KV_CACHE_FULL,
    (
        "[{waiting:wait}|{thrown:per_minute} preempted a minute]: KV cache {usage:percent} full[ at "
        "{running:of_requests}[ of {tokens:tokens} tokens]]" + SPARE
    ),
)


def kv_cache(case: Case) -> Finding | None:
    """Rule: the KV cache is full, and requests wait for it or are thrown out of it."""
    engine = case.serving_engine()
    usage = case.mean("kv_usage_ratio")
    if engine is None or usage is None or not _costs_requests(case):
        return None
    is_full = usage >= _full_at(case)
    if not is_full and not _is_blocked(case, engine, usage):
        return None
    running = case.mean("running")
    waiting = case.waiting_mean()
    preemptions_per_s = case.mean("preemptions_per_s") or 0.0
    parameters = params(usage=usage, running=running, tokens=running_request_tokens(engine))
    if waiting:
        parameters |= params(waiting=waiting)
    else:
        parameters |= params(thrown=preemptions_per_s)
    evidence = (*_evidence(case, engine, usage, waiting, preemptions_per_s), *case.late_latencies())
    confidence = Confidence.HIGH if is_full else Confidence.MEDIUM
    load = None if running is None else running + waiting
    actions = more_kv(case, engine, load, kv_requests(engine))
    finding = KV_FULL.finding(
        parameters=parameters,
        evidence=evidence,
        actions=actions,
        confidence=confidence,
    )
    return with_roomy_replicas(case, finding, "kv_usage_ratio")


def _is_blocked(case: Case, engine: Engine, usage: float) -> bool:
    """Whether requests wait because the next prompt does not fit in what is left of the cache.

    Room in it would help nobody where the scheduler or the arithmetic is full, or nothing moves.
    """
    if case.waiting_mean() <= 0.0 or not _lacks_room(engine, usage):
        return False
    return not (case.is_pinned() or gives_no_tokens(case) or arithmetic_is_full(case, case.activity()))


def _costs_requests(case: Case) -> bool:
    """Whether requests wait or are thrown out, and not because the arithmetic is at its limit.

    Where requests pile up behind the arithmetic, a larger cache would only hold more of them.
    """
    if preempts(case):
        return True
    return case.waiting_mean() > 0.0 and not arithmetic_is_full(case, case.activity())


def _full_at(case: Case) -> float:
    """KV use from which on the cache counts as full; a verdict that stands goes at a lower one.

    An engine preempts where no block is free, and frees those of a request by it: what polls see lies below then.
    """
    limits = case.thresholds
    if Limit.KV_CACHE_FULL in case.limits_before or preempts(case):
        return limits.kv_full_ratio - limits.kv_full_band_ratio
    return limits.kv_full_ratio


def preempts(case: Case) -> bool:
    """Whether requests are thrown out of the cache often enough to say so."""
    return (case.mean("preemptions_per_s") or 0.0) >= case.thresholds.kv_preemptions_per_s


def _lacks_room(engine: Engine, usage: float) -> bool:
    """Whether the next prompt does not fit in the rest of the pool."""
    pool = finite(engine.load.kv_pool_tokens)
    prompt = finite(engine.load.prompt_tokens_mean)
    if not pool or not prompt:
        return False
    return usage >= _LEAST_USAGE_WITHOUT_ROOM and (1.0 - usage) * pool < prompt


def _evidence(case: Case, engine: Engine, usage: float, waiting: float, preemptions_per_s: float) -> list[Evidence]:
    """Figures that show a full cache, and how many requests it holds."""
    limits = case.thresholds
    evidence = [case.evidence(KV_USAGE, usage, limit=limits.kv_full_ratio)]
    if waiting > 0.0:
        evidence.append(case.evidence(WAITING, waiting))
    if preemptions_per_s > 0.0:
        evidence.append(case.evidence(PREEMPTIONS, preemptions_per_s))
    times = finite(engine.load.preemptions_mean)
    if times:
        evidence.append(case.evidence(REQUEST_PREEMPTIONS, times))
    fits = kv_requests(engine)
    tokens = running_request_tokens(engine)
    if fits is not None and tokens is not None:
        evidence.append(KV_HOLDS.evidence(fits, source=KV_REQUESTS_SOURCE, parameters=params(tokens=tokens)))
    return evidence


def more_kv(case: Case, engine: Engine, load: float | None, fits: float | None) -> tuple[Action, ...]:
    """Actions that make room for `load` requests at once, and for what is turned away beside them; one instance's pool
    holds `fits`. Without a number where one of the two is not known."""
    words = advice(engine.kind)
    actions = [MORE_INSTANCES.action(**_instances_parameters(case, engine, load, fits))]
    tokens = running_request_tokens(engine)
    longest_tokens = engine.options.told("context_tokens")
    if tokens and longest_tokens and tokens >= _LONG_CONTEXT_SHARE * longest_tokens:
        actions.append(LOWER_CONTEXT.action(flag=words.longest_context))
    precision = engine.dimensions.kv_precision or engine.options.kv_dtype
    if words.fp8_kv and not precision.startswith(_NARROW_FORMATS):
        actions.append(FP8_KV.action(flag=words.fp8_kv))
    share = engine.options.told("memory_share_ratio")
    if not words.memory:
        return tuple(actions)
    if share is None:
        return (*actions, MORE_KV_MEMORY.action(flag=words.memory))
    if share >= _MOST_MEMORY_SHARE:
        return tuple(actions)
    wanted = _wanted_memory_share(case, engine, share, load) if words.is_memory_of_all else None
    more = MORE_KV_MEMORY.action(flag=words.memory, now=f"{share:g}", wanted=wanted and f"{wanted:g}")
    # With little memory this is the first thing to do: it costs nothing, and there is much to take.
    return (more, *actions) if share < _LITTLE_MEMORY_SHARE else (*actions, more)


def _wanted_memory_share(case: Case, engine: Engine, share: float, load: float | None) -> float | None:
    """Share of a GPU's memory with which the KV cache holds `load` requests, as far as the GPU has it;
    None where a size is not known, or other programs leave no more than it has."""
    most = min((_most_memory_share(gpu, engine.name, share) for gpu in case.gpus), default=0.0)
    most_percent = math.floor(most * 100.0 + _ROUNDING)
    missing_bytes = None if load is None else _missing_kv_bytes(engine, load)
    if missing_bytes is None or most_percent <= share * 100.0:
        return None
    least_vram = min(finite(gpu.reading.vram_total_bytes) or math.inf for gpu in case.gpus)
    wanted = share + missing_bytes / least_vram
    steps = steady_count(case, "kv_memory", min(wanted, 1.0) / _MEMORY_STEP)
    percent = min(round(steps * _MEMORY_STEP * 100.0), most_percent)
    return percent / 100.0 if percent > share * 100.0 + _ROUNDING else None


def _missing_kv_bytes(engine: Engine, load: float) -> float | None:
    """Bytes of each GPU that the KV cache lacks for `load` requests and some room; None where a size is not known."""
    llm = engine.dimensions.llm
    tokens = running_request_tokens(engine)
    pool = finite(engine.load.kv_pool_tokens)
    tp = engine.hardware.tp
    if llm is None or not llm.attention or not llm.uniform or not tokens or not pool or not tp:
        return None
    precision = Precision(engine.dimensions.kv_precision or llm.kv_precision)
    gpus_of_rank = tp * max(1, engine.hardware.pp)
    token_bytes = traffic.kv_bytes_per_token(llm, precision, tp) / gpus_of_rank
    missing_tokens = max(0.0, load * tokens / KV_ROOM - pool) / max(1, engine.hardware.ranks)
    return missing_tokens * token_bytes


def _most_memory_share(gpu: Gpu, engine: str, share: float) -> float:
    """Share of a GPU's memory that an engine can have beside the other programs on it; 0 where that is not known."""
    total = finite(gpu.reading.vram_total_bytes)
    used = finite(gpu.reading.vram_used_bytes)
    if not total or used is None:
        return 0.0
    own = sum(finite(process.vram_bytes) or 0.0 for process in gpu.reading.processes if process.engine == engine)
    others = max(0.0, used - max(own, share * total))
    return min(_MOST_MEMORY_SHARE, 1.0 - others / total)


def _instances_parameters(case: Case, engine: Engine, load: float | None, fits: float | None) -> Parameters:
    """Instances that `load` requests need, as parameters of the action; empty where the load does not tell it."""
    if load is None or not fits:
        return {}
    instances_now = max(1, engine.hardware.ranks)
    rejected = turned_away(case)
    instances = steady_count(case, "kv", min((load + rejected) / fits * instances_now / KV_ROOM, _MOST_INSTANCES))
    if not instances_now < instances <= MOST_TIMES * instances_now:
        return {}
    parameters = params(instances=float(instances), now=float(instances_now), requests=load + rejected)
    if rejected >= 0.5:
        parameters |= params(turned_away=rejected)
    return parameters


ONE_PROMPT: Final = Cause(
    "one_prompt",
    Limit.KV_CACHE_FULL,
    (
        "one request fills {share:percent} of the KV cache[ ({tokens:tokens} tokens)]: up to "
        "{waiting:requests} wait for it"
    ),
    confidence=Confidence.MEDIUM,
)


def one_prompt(case: Case) -> Finding | None:
    """Rule: one request holds most of the KV cache, and the others wait until it ends."""
    engine = case.serving_engine()
    if engine is None or not case.recent.mean("waiting", KEPT_S):
        return None
    shares = _shares_of_largest(case, engine)
    giant_shares = [share for share in shares if _GIANT_SHARE <= share <= _largest_share(engine)]
    if len(giant_shares) < _LEAST_GIANT_SAMPLES or len(giant_shares) < MOSTLY * len(shares):
        return None
    share = sum(giant_shares) / len(giant_shares)
    pool = finite(engine.load.kv_pool_tokens)
    tokens = share * pool if pool else None
    waiting = max(while_waiting(case, "waiting"))
    usage = max(while_waiting(case, "kv_usage_ratio"))
    source = "KV usage - the usual of the others"
    evidence = (
        ONE_REQUEST_HOLDS.evidence(share, source=source, parameters=params(tokens=tokens)),
        case.evidence(KV_USAGE, usage, limit=case.thresholds.kv_full_ratio),
        case.evidence(WAITING, waiting),
        *case.late_latencies(),
    )
    parameters = params(share=share, tokens=tokens, waiting=waiting)
    return ONE_PROMPT.finding(
        parameters=parameters,
        evidence=evidence,
        actions=(LIMIT_PROMPT.action(flag=advice(engine.kind).longest_context), LONG_PROMPTS_APART.action()),
    )


def _largest_share(engine: Engine) -> float:
    """Share of the KV pool that one request can hold at most: no request is longer than the context allows."""
    pool = finite(engine.load.kv_pool_tokens)
    longest_tokens = finite(engine.options.context_tokens)
    if not pool or not longest_tokens:
        return 1.0
    return min(1.0, _CONTEXT_ROUNDING * longest_tokens / pool)


def _all_are_long(engine: Engine, usage: float, count: float) -> bool:
    """Whether so many requests of the usual length fill the pool by themselves: then it is not one that does."""
    pool = finite(engine.load.kv_pool_tokens)
    tokens = _usual_prompt(engine)
    return bool(pool and tokens) and count * (tokens or 0.0) >= MOSTLY * usage * (pool or math.inf)


def _usual_prompt(engine: Engine) -> float | None:
    """Tokens of the prompts that half of the last requests had at least; without their spread, of the mean one."""
    window = engine.load.window
    shorter = [bound for bound, share in window.prompt_lengths if share <= 0.5] if window is not None else []
    if shorter:
        return shorter[-1]
    return finite(engine.load.prompt_tokens_mean)


def _shares_of_largest(case: Case, engine: Engine) -> list[float]:
    """Share of the KV pool that the largest request held, at each sample of the last minutes with a queue and a full
    pool.

    It is what is in use, less what the other requests usually take.
    """
    waits = moments_of_waiting(case)
    running = dict(case.recent.values("running", KEPT_S))
    usual = _usual_share(case)
    shares: list[float] = []
    for sampled_s, usage in case.recent.values("kv_usage_ratio", KEPT_S):
        count = running.get(sampled_s, 0.0)
        if usage < case.thresholds.kv_full_ratio or sampled_s not in waits or count < 1.0:
            continue
        others = usage * (1.0 - 1.0 / count)
        if usual is not None and not _all_are_long(engine, usage, count):
            others = min(usage, (count - 1.0) * usual)
        shares.append(usage - others)
    return shares


def _usual_share(case: Case) -> float | None:
    """Share of the KV pool that a request took in the quieter half of the last hour; None where that is not known."""
    usage_index = HOUR_FIELDS.index("kv_usage_ratio")
    running_index = HOUR_FIELDS.index("running")
    shares: list[float] = []
    for slot in case.recent.hour.slots:
        used = slot.means[usage_index]
        count = slot.means[running_index]
        if used is not None and count is not None and count >= 1.0:
            shares.append(used / count)
    shares.sort()
    if shares:
        # The middle of the quieter half.
        return shares[len(shares) // 4]
    return None

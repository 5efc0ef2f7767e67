"""What holds an engine back: the KV cache, the scheduler's queue, arithmetic, or memory bandwidth."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from gpumon.efficiency.lengths import KV_SHARE
from gpumon.readings.missing import NOT_EXPOSED
from gpumon.readings.snapshot import Engine
from gpumon.readings.verdict import Action, Confidence, Evidence, Level, Limit, Signal
from gpumon.specs.hints import CONTEXT_LEN
from gpumon.triage.advice import advice, fewer_prompt_tokens, quantise
from gpumon.triage.host import profile
from gpumon.triage.hour import FIELDS
from gpumon.triage.replicas import beside
from gpumon.triage.samples import KEPT_S
from gpumon.triage.signals import (
    FULL_SLOTS,
    NOW_S,
    PINNED_S,
    PINNED_SHARE,
    TOKENS,
    UNSEEN,
    Activity,
    Case,
    Finding,
    action,
    ask,
    finite,
    kv_requests,
    lacking,
    missing,
    no_bandwidth,
    no_compute,
    params,
    request_tokens,
    unsure,
)
from gpumon.triage.stall import SM_AT_WORK, computes

NARROW_BITS: Final = ("fp8", "int8", "int4", "mxfp4", "nvfp4", "q8", "q4")
"""Formats of a KV cache that is small already."""
SPLIT: Final = 0.5
"""Part of the arithmetic that is prefill's, from which on the queue is one of prompts."""
HOST_WAIT: Final = 0.8
"""Busy share below which GPUs wait for the host: requests that then wait at no known limit are not the scheduler's."""
LITTLE_SHARE: Final = 0.8
"""Share of the GPU's memory given to an engine below which more of it is the first thing to do: 0.9 is usual."""
MOST_SHARE: Final = 0.95
"""The same from which on there is nothing left to give: activations and graphs need the rest."""
KV_ROOM: Final = 0.85
"""KV use that more slots may lead to."""
MOST_SLOTS: Final = 2.0
"""No step of a setting is larger than this factor: what comes then has to be seen first."""
LONG: Final = 0.5
"""Mean context, of the longest that is allowed, from which on a lower limit frees room: shorter ones never meet it."""
SUPPORTED: Final = 0.55
"""DRAM activity that a high MBU must come with, where it is measured."""
MOST_BATCH: Final = 4.0
"""A batch so many times as large is outside what was seen."""
LEAST_BATCH: Final = 1.1
MOST_PREFILL: Final = 0.15
"""Prefill MFU up to which the time per token is that of decode steps: beyond it a bigger batch brings prompts along."""
GIANT: Final = 0.5
"""Share of the KV pool that one request holds, from which on it keeps the others out."""
GIANT_SAMPLES: Final = 5
"""Samples of the last 3 min with a queue that make one request the cause of it."""
PAUSE_S: Final = 2.0
"""So long without a token, a poll of an engine, is no step that reads the weights."""
MOST_TIMES: Final = 4.0
"""Times the instances that there are, up to which requests in flight tell how many are needed: more of them are the
backlog of an overload, which grows with every minute of it."""
BURST: Final = 2.0
"""Times the mean number waiting that the most of 3 min must be, so that it is one of bursts."""


def kv_cache(case: Case) -> Finding | None:
    """The KV cache is full, and requests wait for it or are thrown out of it."""
    engine, limits = case.served(), case.thresholds
    if engine is None:
        return None
    waiting, thrown = case.waiting_mean(), case.mean("preemptions_per_s") or 0.0
    usage = case.mean("kv_usage_ratio")
    if usage is None or not (waiting > 0.0 or thrown >= limits.kv_preemptions_per_s):
        return None
    if thrown < limits.kv_preemptions_per_s and _computes(case, case.activity()):
        return None  # requests pile up behind the arithmetic: a larger cache would only hold more of them
    full_at = limits.kv_full_ratio - (limits.kv_full_band_ratio if Limit.KV_CACHE_FULL in case.near else 0.0)
    if usage < full_at and not (waiting > 0.0 and _no_room(engine, usage) and not _other_limit(case)):
        return None
    running, fits, each = case.mean("running") or 0.0, kv_requests(engine), request_tokens(engine)
    slow = case.late()
    proof = [case.evidence("kv_usage", "kv_usage_ratio", usage, "kv", limits.kv_full_ratio)]
    if waiting > 0.0:
        proof.append(case.evidence("waiting", "waiting", waiting, "waiting"))
    if thrown > 0.0:
        proof.append(case.evidence("preemptions", "preemptions_per_s", thrown, "preempt", limits.kv_preemptions_per_s))
    if fits is not None and each is not None:
        held = params(tokens=each)
        proof.append(Evidence("kv_holds", fits, source="KV pool / tokens of a running request", parameters=held))
    said = params(
        usage=usage, running=running, tokens=each, waiting=waiting or None, thrown=None if waiting else thrown
    )
    sure = Confidence.HIGH if usage >= full_at else Confidence.MEDIUM
    fixes = _more_kv(case, engine, running + waiting, fits)
    found = Finding(Limit.KV_CACHE_FULL, "kv_full", said, (*proof, *slow), fixes, Level.WARN, sure)
    return beside(case, found, "kv_usage_ratio")


def one_prompt(case: Case) -> Finding | None:
    """One request holds most of the KV cache, and the others wait until it ends."""
    engine, limits = case.served(), case.thresholds
    if engine is None or not case.recent.mean("waiting", KEPT_S):
        return None
    shares = _of_the_largest(case)
    giant = [share for share in shares if share >= GIANT]
    if len(giant) < GIANT_SAMPLES or len(giant) < SPLIT * len(shares):
        return None
    share = sum(giant) / len(giant)
    pool = finite(engine.load.kv_pool_tokens)
    tokens = share * pool if pool else None
    most = max(_while_waiting(case, "waiting"))
    said = params(share=share, tokens=tokens, waiting=most)
    usage = max(_while_waiting(case, "kv_usage_ratio"))
    proof = (
        Evidence(
            "one_request_holds", share, source="KV usage - the usual of the others", parameters=params(tokens=tokens)
        ),
        case.evidence("kv_usage", "kv_usage_ratio", usage, "kv", limits.kv_full_ratio),
        case.evidence("waiting", "waiting", most, "waiting"),
        *case.late(),
    )
    fixes = (action("limit_prompt", flag=advice(engine.kind).length), action("long_prompts_apart"))
    return Finding(Limit.KV_CACHE_FULL, "one_prompt", said, proof, fixes, Level.WARN, Confidence.MEDIUM)


def _of_the_largest(case: Case) -> list[float]:
    """Share of the KV pool that the largest request held, of each sample of the last minutes with a queue and a full
    pool: what is in use, less what the other requests usually take."""
    waits = {at_s for at_s, count in case.recent.values("waiting", KEPT_S) if count >= case.thresholds.queue_waiting}
    full_at = case.thresholds.kv_full_ratio
    full = [sample for sample in case.recent.values("kv_usage_ratio", KEPT_S) if sample[1] >= full_at]
    if not waits or not full:
        return []
    running = dict(case.recent.values("running", KEPT_S))
    usual = _usual_share(case)
    found = []
    for at_s, usage in full:
        count = running.get(at_s, 0.0)
        if at_s not in waits or count < 1.0:
            continue
        others = usage * (1.0 - 1.0 / count) if usual is None else min(usage, (count - 1.0) * usual)
        found.append(usage - others)
    return found


def _usual_share(case: Case) -> float | None:
    """Share of the KV pool that a request took in the quieter half of the last hour; None where that is not known."""
    hour = case.recent.hour
    usage, running = FIELDS.index("kv_usage_ratio"), FIELDS.index("running")
    pairs = [(slot.means[usage], slot.means[running]) for slot in hour.slots]
    shares = sorted(used / count for used, count in pairs if used is not None and count is not None and count >= 1.0)
    return shares[len(shares) // 4] if shares else None


def _no_room(engine: Engine, usage: float) -> bool:
    """The next prompt does not fit in what is left of the pool."""
    pool, prompt = finite(engine.load.kv_pool_tokens), finite(engine.load.prompt_tokens_mean)
    return bool(pool and prompt and usage >= 0.5 and (1.0 - usage) * pool < prompt)


def _other_limit(case: Case) -> bool:
    """Room in the pool would help none of those that wait: the scheduler is full, or the GPUs compute all they can."""
    return case.pinned() or mute(case) or _computes(case, case.activity())


def mute(case: Case) -> bool:
    """No token comes out: a long prompt is computed, of which nothing counts until its end, or it hangs."""
    quiet_s = case.still_s(TOKENS)
    return quiet_s is not None and quiet_s >= case.thresholds.stalled_s / 2


def _more_kv(case: Case, engine: Engine, load: float, fits: float | None) -> tuple[Action, ...]:
    words = advice(engine.kind)
    instances = max(1, engine.hardware.ranks)
    wanted = math.ceil(min(load / fits * instances / KV_ROOM, 1e6)) if fits else 0
    info = case.info
    counts = instances < wanted <= MOST_TIMES * instances
    known = params(instances=float(wanted), now=float(instances), requests=load) if counts else {}
    done = [Action("more_instances", known)]
    if (each := request_tokens(engine)) and each >= LONG * _longest(info):
        done.append(action("lower_context", flag=words.length))
    kept = engine.dimensions.kv_precision or info.get("cache_dtype", "")
    if words.fp8_kv and not kept.startswith(NARROW_BITS):
        done.append(action("fp8_kv", flag=words.fp8_kv))
    share = info.get("gpu_memory_utilization", "")
    known_share = share.isascii() and share.replace(".", "", 1).isdigit() and len(share) < 8
    if words.memory and not (known_share and float(share) >= MOST_SHARE):
        # What costs nothing comes first, where there is much of it to take.
        first = known_share and float(share) < LITTLE_SHARE
        more = action("more_kv_memory", flag=words.memory, now=share if known_share else None)
        done.insert(0 if first else len(done), more)
    return tuple(done)


def _longest(info: Mapping[str, str]) -> float:
    """Tokens of the longest context that the engine allows; infinite where it does not say."""
    given = (info.get(name, "") for name in (CONTEXT_LEN, "max_model_len"))
    return next((float(word) for word in given if word.isascii() and word.isdigit() and len(word) < 12), math.inf)


def queue(case: Case) -> Finding | None:
    """Requests wait although the KV cache, the arithmetic and the bandwidth have room: the scheduler holds them."""
    engine, limits = case.served(), case.thresholds
    waiting = 0.0 if engine is None else case.waiting_mean()
    if engine is None or waiting < limits.queue_waiting or mute(case):
        return None
    seen, share = case.activity(), _queued_share(engine)
    if share is not None and share < limits.queue_ttft_ratio:
        return None
    held_back, known, reads = case.pinned(), case.slots(), _reads(case, seen)
    if _computes(case, seen) or (reads and not (held_back and _mostly_weights(engine))):
        return None
    usage, running = case.mean("kv_usage_ratio"), case.mean("running") or 0.0
    unknown = [no_compute(engine, seen), no_bandwidth(engine, seen)]
    if usage is None and not (held_back and known):
        unknown.append(missing("kv_usage", engine.load.kv_usage_ratio))
    proof = [*_queue_proof(case, engine, waiting, share)]
    if usage is not None:
        proof.append(case.evidence("kv_usage", "kv_usage_ratio", usage, "kv", limits.kv_full_ratio))
    proof += [*case.work(seen), *case.late()]
    if open_ := tuple(one for one in unknown if one):
        return unsure(open_, tuple(proof), Level.WARN if case.late() else Level.NOTE, ask(open_))
    if not held_back and seen.busy is not None and seen.busy < HOST_WAIT:
        return None
    said = params(
        waiting=waiting,
        running=running,
        slots=known[0] if known is not None and held_back else None,
        usage=usage,
        room="weights" if reads else "all",
    )
    sure = Confidence.HIGH if held_back and known is not None and share is not None else Confidence.MEDIUM
    fixes = (
        _more_slots(case, engine, running, waiting)
        if held_back
        else (action("bigger_steps", flag=advice(engine.kind).budget), action("more_instances"))
    )
    found = Finding(Limit.QUEUE_LIMIT, "queue_slots" if held_back else "queue_steps", said, tuple(proof), fixes)
    return beside(case, found._replace(confidence=sure), "running")


def _while_waiting(case: Case, field: str) -> list[float]:
    """Samples of the last minutes at whose moments requests waited."""
    waits = {at_s for at_s, count in case.recent.values("waiting", KEPT_S) if count >= case.thresholds.queue_waiting}
    return [value for at_s, value in case.recent.values(field, KEPT_S) if at_s in waits]


def _computed(case: Case) -> bool:
    """The arithmetic was at its limit while requests waited: what came late then is still in the latencies of now."""
    mfu = _while_waiting(case, "mfu_ratio")
    return bool(mfu) and sum(mfu) / len(mfu) >= case.thresholds.compute_queued_mfu_ratio


def bursts(case: Case) -> Finding | None:
    """Latency beyond its goal that is mostly time in the queue, while on average hardly anyone waits.

    What was full while they waited is the limit: the KV cache, or the scheduler's slots; arithmetic has its own rule.
    """
    engine, slow = case.served(), case.late()
    if engine is None or not slow or mute(case):
        return None
    share, counts = _queued_share(engine), [value for _, value in case.recent.values("waiting", KEPT_S)]
    if share is None or share < case.thresholds.queue_ttft_ratio or not counts or case.recent.seconds < PINNED_S:
        return None
    most, usual = max(counts), sum(counts) / len(counts)
    if most < case.thresholds.queue_waiting or most < BURST * usual:
        return None
    if not _has_passed(counts, most):
        return None  # more and more wait: that it passes, as a burst does, was not seen yet
    known, limits = case.slots(), case.thresholds
    if _computes(case, case.activity()) or _computed(case):
        return None
    usage = _while_waiting(case, "kv_usage_ratio")
    full = [value for value in usage if value >= limits.kv_full_ratio]
    if usage and len(full) >= SPLIT * len(usage):
        said = params(most=most, usual=usual, share=share, usage=max(full))
        shown = case.evidence("kv_usage", "kv_usage_ratio", max(full), "kv", limits.kv_full_ratio)
        proof = (*slow, shown, *_queue_proof(case, engine, usual, share))
        fixes = _more_kv(case, engine, (case.mean("running") or 0.0) + usual, kv_requests(engine))
        level, sure = Level.WARN, Confidence.MEDIUM
        return Finding(Limit.KV_CACHE_FULL, "kv_bursts", said, proof, fixes, level, sure)
    running = _while_waiting(case, "running")
    full_at = FULL_SLOTS * known[0] if known is not None else max(running, default=0.0) * (1.0 - PINNED_SHARE)
    if not running or sorted(running)[len(running) // 2] < full_at:
        return None
    said = params(most=most, usual=usual, share=share, slots=None if known is None else known[0])
    words = advice(engine.kind)
    proof = (*slow, *_queue_proof(case, engine, usual, share))
    fixes = (action("smooth_bursts"), action("raise_slots", flag=words.slots), action("more_instances"))
    return Finding(Limit.QUEUE_LIMIT, "queue_bursts", said, proof, fixes, Level.WARN, Confidence.MEDIUM)


def _has_passed(counts: Sequence[float], most: float) -> bool:
    """Whether a queue of at least half its greatest length has since gone down to a quarter of that."""
    grown = next((at for at, count in enumerate(counts) if count >= most / 2.0), len(counts))
    return any(count <= most / 4.0 for count in counts[grown:])


def _mostly_weights(engine: Engine) -> bool:
    """Most of what it reads are weights: more sequences share them, so that full bandwidth still has room."""
    weights, reads = finite(engine.efficiency.weight_bytes_per_s), finite(engine.efficiency.bytes_per_s)
    return bool(weights and reads and weights >= SPLIT * reads)


def _queued_share(engine: Engine) -> float | None:
    """Part of the time to first token that is spent waiting."""
    queued, first = finite(engine.latency.queue_s.mean), finite(engine.latency.ttft_s.mean)
    return min(queued / first, 1.0) if queued is not None and first else None


def _queue_proof(case: Case, engine: Engine, waiting: float, share: float | None) -> list[Evidence]:
    limits, known, running = case.thresholds, case.slots(), case.mean("running")
    proof = [case.evidence("waiting", "waiting", waiting, "waiting", limits.queue_waiting, window_s=NOW_S)]
    if refused := finite(engine.rates.rejections_per_s):
        proof.append(case.evidence("rejections", "rejections_per_s", refused))
    if running is not None:
        proof.append(case.evidence("running", "running", running, "running", None if known is None else known[0]))
    if known is not None:
        proof.append(Evidence("slots", known[0], source=known[1]))
    queued = finite(engine.latency.queue_s.mean)
    if share is not None and queued is not None:
        proof.append(case.evidence("queue_share", "queue_s", share, "queue", limits.queue_ttft_ratio, seconds=queued))
    return proof


def _more_slots(case: Case, engine: Engine, running: float, waiting: float) -> tuple[Action, ...]:
    """The scheduler's limit, and how far it can go by the room that there is. The setting is that of one rank, and its
    value of now is told only where the engine's page or command line gives it."""
    words = advice(engine.kind)
    usage = case.mean("kv_usage_ratio")
    factor = min(MOST_SLOTS, KV_ROOM / usage) if usage else MOST_SLOTS
    wanted = min(running + waiting, running * factor)
    if wanted <= running * 1.05:
        return (action("more_instances_no_kv", flag=words.slots),)
    ranks = max(1, engine.hardware.ranks)
    known = case.slots()
    raised = action(
        "raise_slots",
        flag=words.slots,
        now=None if known is None else known[0] / ranks,
        wanted=float(math.floor(wanted / ranks + 1e-6)),
        usage=usage if factor < MOST_SLOTS else None,
    )
    if wanted >= running + waiting - 1.0:
        return (raised,)
    return (raised, action("more_instances_for_rest"))


def _computes(case: Case, seen: Activity) -> bool:
    """Arithmetic is at its limit."""
    limits = case.thresholds
    mfu, prefill = case.mean("mfu_ratio"), case.mean("mfu_prefill_ratio")
    if seen.tensor is not None and seen.tensor >= limits.compute_tensor_ratio:
        return True
    if mfu is None or mfu >= limits.compute_mfu_ratio:
        return mfu is not None
    queued = case.waiting_mean() >= limits.queue_waiting and mfu >= limits.compute_queued_mfu_ratio
    return queued and prefill is not None and prefill >= SPLIT * mfu and not case.pinned()


def _reads(case: Case, seen: Activity) -> bool:
    """Memory bandwidth is at its limit; a measured figure that says otherwise outweighs MBU."""
    limits = case.thresholds
    if seen.dram is not None and seen.dram >= limits.bandwidth_dram_ratio:
        return True
    mbu = case.mean("mbu_ratio")
    return mbu is not None and mbu >= limits.bandwidth_mbu_ratio and (seen.dram is None or seen.dram >= SUPPORTED)


def long_prefill(case: Case) -> Finding | None:
    """No token comes for long, and its GPUs compute all the while: a prompt is at work, of which none counts yet."""
    engine, quiet_s = case.served(), case.still_s(TOKENS)
    if engine is None or quiet_s is None or not mute(case) or not case.mean("running"):
        return None
    seen = case.activity()
    at_work = seen.tensor is not None and seen.tensor >= case.thresholds.communication_tensor_ratio
    guessed = seen.tensor is None and (seen.sm is None or seen.sm >= SM_AT_WORK)
    if not at_work and not (guessed and computes(case, seen, NOW_S, case.thresholds)):
        return None
    slow, waiting = case.late(), case.waiting_mean()
    # MFU and MBU show none of a prompt until its end.
    measured = [one for one in case.work(seen) if one.quantity not in ("mfu", "mbu")]
    proof = [case.evidence("no_token", "decode_tokens_per_s", quiet_s, "decode"), *measured]
    if seen.sm is not None:
        proof.append(case.of_gpus("sm_active", "sm_active_ratio", seen.sm, "sm"))
    prompt = finite(engine.load.prompt_tokens_mean)
    said = params(seconds=quiet_s, tensor=seen.tensor, sm=seen.sm, waiting=waiting or None, tokens=prompt)
    # Whoever waits for its first token has waited that long already.
    overdue = quiet_s >= (case.goals.ttft_s or case.thresholds.late_ttft_s)
    level = Level.WARN if waiting or slow or overdue else Level.NOTE
    sure = Confidence.HIGH if at_work else Confidence.LOW
    fixes = (action("wait_for_prefill"), *_less_work(case, engine, of_prompts=True))
    return Finding(Limit.COMPUTE_BOUND, "long_prefill", said, (*proof, *slow), fixes, level, sure)


def compute(case: Case) -> Finding | None:
    """The tensor cores are at their limit."""
    engine = case.served()
    if engine is None or not _computes(case, case.activity()) or not case.works():
        return None
    waiting, slow = case.waiting_mean(), case.late()
    seen, others = case.own_activity(urgent=bool(waiting or slow))
    if not _computes(case, seen):
        return None
    mfu, prefill = case.mean("mfu_ratio"), case.mean("mfu_prefill_ratio")
    measured = seen.tensor is not None and seen.tensor >= case.thresholds.compute_tensor_ratio
    proof = list(case.work(seen))
    if prefill is not None:
        proof.append(case.evidence("mfu_prefill", "mfu_prefill_ratio", prefill, "mfu"))
    if waiting:
        proof.append(case.evidence("waiting", "waiting", waiting, "waiting"))
    of_prompts = prefill is not None and mfu is not None and prefill >= SPLIT * mfu
    shared = others if measured else ""
    said = params(
        tensor=seen.tensor if measured else None,
        mfu=None if measured else mfu,
        shared=shared,
        prefill=prefill / mfu if of_prompts and prefill is not None and mfu else None,
        waiting=waiting or None,
    )
    sure = Confidence.LOW if engine.contradicts or shared else Confidence.HIGH if measured else Confidence.MEDIUM
    level = Level.WARN if waiting or slow else Level.NOTE
    alone = (action("own_gpus", shared=shared),) if shared else ()
    fixes = (*alone, *_less_work(case, engine, of_prompts=of_prompts))
    finding = Finding(Limit.COMPUTE_BOUND, "compute_full", said, (*proof, *slow), fixes, level, sure)
    return beside(case, finding, "running" if waiting or slow else "")


def _less_work(case: Case, engine: Engine, *, of_prompts: bool) -> tuple[Action, ...]:
    other = action("split_prefill") if of_prompts else action("more_gpus", flag=advice(engine.kind).tp)
    faster, more = (*quantise(engine), other), action("more_instances")
    if case.waiting_mean():  # more is asked than these GPUs compute: other steps make none of it
        return (more, *faster)
    return (*(fewer_prompt_tokens(engine, case.info) if of_prompts else ()), *faster, more)


def bandwidth(case: Case) -> Finding | None:
    """The memory is read as fast as it can be."""
    engine = case.served()
    if engine is None or not (_reads(case, case.activity()) or _reads(case, UNSEEN)) or not case.works():
        return None
    batch, slow, waiting = finite(engine.rates.batch), case.late(), case.waiting_mean()
    seen, others = case.own_activity(urgent=bool(waiting or slow))
    if not _reads(case, seen):
        return None
    full = seen.dram is not None and seen.dram >= case.thresholds.bandwidth_dram_ratio
    share, shared = (seen.dram, others) if full else (case.mean("mbu_ratio"), "")
    bigger = _more_batch(case)
    proof = [*case.work(seen), *slow]
    if batch:
        proof.append(case.evidence("batch", "batch", batch, "running"))
    wider: dict[str, float | str] = {}
    if bigger is not None:
        proof.append(bigger)
        wider = {"wider": bigger.value if isinstance(bigger.value, float) else 0.0, **bigger.parameters}
    measured = seen.dram is not None
    low = bool(shared) or (engine.contradicts and not measured)
    sure = Confidence.LOW if low else Confidence.HIGH if measured else Confidence.MEDIUM
    said = params(share=share, shared=shared, batch=batch) | wider
    # Where queueing makes the first token late, reading faster lets nobody in.
    queued = (_queued_share(engine) or 0.0) >= case.thresholds.queue_ttft_ratio
    tokens_late = any(one.quantity != "ttft_p95" for one in slow)
    suffers = bool(slow) or (waiting >= case.thresholds.queue_waiting and not _pauses(case))
    level = Level.WARN if suffers and (tokens_late or not queued) else Level.NOTE
    fixes = [action("own_gpus", shared=shared)] if shared else []
    if bigger is not None or _room(case, engine) is None:
        fixes.append(Action("bigger_batch", wider))
    fixes += [
        *quantise(engine),
        action("more_gpus", flag=advice(engine.kind).tp, now=float(engine.hardware.tp) or None),
    ]
    finding = Finding(Limit.BANDWIDTH_BOUND, "bandwidth_full", said, tuple(proof), tuple(fixes), level, sure)
    return beside(case, finding, "running" if slow or waiting else "")


def _pauses(case: Case) -> bool:
    """No token came in the last poll: those that wait then wait for what holds it, not for its memory."""
    quiet_s = case.still_s(TOKENS)
    return quiet_s is not None and quiet_s >= PAUSE_S


def _more_batch(case: Case) -> Evidence | None:
    """The largest batch of a rank that fits and meets the goal of time per token: `batch 50 still meets 40 ms`.

    The bytes of a step are weights + batch x KV of a sequence, and its time goes with them as long as memory bounds it
    (sizing: ITL(b) = a + c x b). So ITL(b') = ITL(b) x (W + b' k) / (W + b k). Not for a MoE, whose weights read grow
    with the batch, nor beside much prefill. The p95 of a goal is taken at the distance from the mean that it has now.
    """
    engine, goal = case.engine, case.goals.itl_s
    if engine is None or engine.dimensions.llm is None or engine.dimensions.llm.experts:
        return None
    batch, itl = finite(engine.rates.batch), finite(engine.latency.itl_mean_s)
    weights, context = finite(engine.efficiency.weight_bytes), finite(engine.load.context_tokens)
    each, prefill = finite(engine.dimensions.kv_bytes_per_token), case.mean("mfu_prefill_ratio")
    if not (batch and itl and weights and each and context) or prefill is None or prefill > MOST_PREFILL:
        return None
    room, kv = _room(case, engine), each * context
    most = MOST_BATCH * batch if room is None else min(MOST_BATCH * batch, room)
    if goal:
        p95, middle = finite(engine.latency.itl_s.p95), finite(engine.latency.itl_s.mean)
        tail = min(2.0, max(1.0, p95 / middle)) if p95 is not None and middle else 1.0  # buckets are coarse
        most = min(most, (goal / tail / itl * (weights + batch * kv) - weights) / kv)
    if not math.isfinite(most) or most < LEAST_BATCH * batch or most - batch < 1.0:
        return None
    wanted = float(math.floor(most))
    then_s = itl * (weights + wanted * kv) / (weights + batch * kv)
    said = params(goal_s=goal) if goal else params(then_s=then_s)
    source = "ITL x (weights + batch x KV) / (weights + batch now x KV)"
    return Evidence("wider_batch", wanted, NOT_EXPOSED, source, f"itl@{case.key}", said)


def _room(case: Case, engine: Engine) -> float | None:
    """Sequences of one rank that KV pool and scheduler take; None where neither is known."""
    ranks, fits, known = max(1, engine.hardware.ranks), kv_requests(engine), case.slots()
    bounds = [] if fits is None else [KV_SHARE * fits / ranks]
    bounds += [] if known is None else [known[0] / ranks]
    return min(bounds) if bounds else None


def unexplained(case: Case) -> Finding | None:
    """Latency beyond its goal, or the default, with no figure near its limit."""
    engine, slow = case.served(), case.late()
    explained = any(limit is not Limit.FAILING for limit in case.found)
    if engine is None or not slow or explained or _computed(case):
        return None
    hidden = lacking(engine, case.activity())
    if not hidden:
        return unsure((Signal("why_late"),), slow, Level.WARN, (profile(case),))
    return unsure(hidden, slow, Level.WARN, ask(hidden) or (profile(case),))

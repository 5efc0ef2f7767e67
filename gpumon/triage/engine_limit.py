"""What holds an engine back: the KV cache, the scheduler's queue, arithmetic, or memory bandwidth."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from gpumon.readings.snapshot import Confidence, Engine, Evidence, Level, Limit
from gpumon.specs.hints import CONTEXT_LEN
from gpumon.triage.advice import advice
from gpumon.triage.engine_replicas import Spare, apart, spare
from gpumon.triage.engine_signals import (
    UNSEEN,
    Activity,
    activity,
    evidence,
    finite,
    held,
    latency,
    mean,
    missing,
    no_bandwidth,
    no_compute,
    of_gpus,
    own_activity,
    percent,
    pinned,
    request_tokens,
    requests,
    served,
    slots,
    tokens,
    works,
)
from gpumon.triage.engine_state import TOKENS, still_s
from gpumon.triage.engine_wider import more_batch, quantise
from gpumon.triage.goals import missed
from gpumon.triage.rule import Finding, Unsure
from gpumon.triage.scene import Scene

NARROW_BITS: Final = frozenset({"fp8", "int8", "int4", "mxfp4", "nvfp4"})
"""Formats of a KV cache that is small already."""
SPLIT: Final = 0.5
"""Part of the arithmetic that is prefill's, from which on the queue is one of prompts."""
AWAKE: Final = 0.8
"""Busy share below which GPUs wait for the host: requests that then wait at no known limit are not the scheduler's."""
LITTLE_SHARE: Final = 0.8
"""Share of the GPU's memory given to an engine below which more of it is the first thing to do: 0.9 is usual."""
KV_ROOM: Final = 0.85
"""KV use that more slots may lead to."""
MOST_SLOTS: Final = 2.0
"""No step of a setting is larger than this factor: what comes then has to be seen first."""
LONG: Final = 0.5
"""Mean context, of the longest that is allowed, from which on a lower limit frees room: shorter ones never meet it."""
SUPPORTED: Final = 0.55
"""DRAM activity that a high MBU must come with, where it is measured."""


def kv_cache(scene: Scene) -> Finding | None:
    """The KV cache is full, and requests wait for it or are thrown out of it."""
    engine, limits = served(scene), scene.thresholds
    if engine is None:
        return None
    waiting, thrown = _waiting(scene), mean(scene, "preemptions_per_s") or 0.0
    if not (waiting > 0.0 or thrown >= limits.kv_preemptions_per_s):
        return None
    usage = mean(scene, "kv_usage_ratio")
    if usage is None:
        return None
    full_at = limits.kv_full_ratio - (limits.kv_full_band_ratio if Limit.KV_CACHE in scene.near else 0.0)
    full = usage >= full_at or (waiting > 0.0 and _no_room(engine, usage) and not _held(scene))
    if not full:
        return None
    running = mean(scene, "running") or 0.0
    proof = [evidence(scene, f"KV cache {percent(usage)}", "kv_usage_ratio", usage, "kv")]
    if waiting > 0.0:
        proof.append(evidence(scene, f"{requests(waiting)} waiting", "waiting", waiting, "waiting"))
    if thrown > 0.0:
        text = f"{_a_minute(thrown)} preemptions a minute"
        proof.append(evidence(scene, text, "preemptions_per_s", thrown, "preempt"))
    fits, each = held(engine), request_tokens(engine)
    size = f" of {tokens(each)} tokens" if each else ""
    if fits is not None and each is not None:
        text = f"it holds about {requests(fits)} requests{size}"
        proof.append(Evidence(text, "KV pool / tokens of a running request", fits))
    then = f"{requests(waiting)} wait" if waiting > 0.0 else f"{_a_minute(thrown)} thrown out a minute"
    text = f"KV cache {percent(usage)} full at {requests(running)} requests{size}: {then}"
    sure = Confidence.HIGH if usage >= full_at else Confidence.MEDIUM
    beside = spare(scene, "kv_usage_ratio")
    action = _more_kv(scene, engine, running + waiting, fits) if beside is None else ""
    return _beside(scene, Finding(text, tuple(proof), action, Level.WARN, sure), beside)


def _beside(scene: Scene, finding: Finding, spare: Spare | None) -> Finding:
    """The finding beside the engine's replicas: first of all those that have room can take some of its requests."""
    if spare is not None:
        action = f"{spare.action}; else {finding.action}" if finding.action else spare.action
        proof = (spare.proof, *finding.evidence)
        finding = finding._replace(text=f"{finding.text}, while {spare.text}", action=action, evidence=proof)
    return apart(scene, finding, spare)


def _a_minute(per_s: float) -> str:
    """A rate of 10 s is known to so much only: `about 38`."""
    return f"about {min(per_s * 60.0, 1e9):.0f}" if per_s * 60.0 >= 0.5 else "less than one"


def _held(scene: Scene) -> bool:
    """Room in the pool would help none of those that wait: the scheduler is full, or the GPUs compute all they can."""
    return pinned(scene) or _mute(scene) or _computes(scene, activity(scene))


def _mute(scene: Scene) -> bool:
    """No token comes out: a long prompt is computed, of which nothing counts until its end, or it hangs."""
    quiet_s = still_s(scene, TOKENS)
    return quiet_s is not None and quiet_s >= scene.thresholds.stalled_s / 2


def _no_room(engine: Engine, usage: float) -> bool:
    """The next prompt does not fit in what is left of the pool."""
    pool, prompt = finite(engine.load.kv_pool_tokens), finite(engine.load.prompt_tokens_mean)
    return bool(pool and prompt and usage >= 0.5 and (1.0 - usage) * pool < prompt)


def _more_kv(scene: Scene, engine: Engine, load: float, fits: float | None) -> str:
    words = advice(engine.kind)
    instances = max(1, engine.hardware.ranks)
    wanted = math.ceil(min(load / fits * instances / KV_ROOM, 1e6)) if fits else 0
    more = f"{wanted} instances instead of {instances} for these {requests(load)} requests"
    info = scene.reading.info if scene.reading is not None else {}
    done = [more if wanted > instances else "more instances"]
    if (each := request_tokens(engine)) and each >= LONG * _longest(info):
        done.append(f"lower {words.length}")
    kept = engine.dimensions.kv_precision or info.get("cache_dtype", "")
    if words.fp8_kv and not kept.startswith((*NARROW_BITS, "q8", "q4")):
        done.append(f"{words.fp8_kv} (holds twice as many)")
    share = info.get("gpu_memory_utilization", "")
    known = share.replace(".", "", 1).isdigit() and len(share) < 8
    if words.memory:
        # What costs nothing comes first, where there is much of it to take.
        first = known and float(share) < LITTLE_SHARE
        done.insert(0 if first else len(done), f"raise {words.memory}" + (f" (now {share})" if known else ""))
    return "; ".join(done)


def _longest(info: Mapping[str, str]) -> float:
    """Tokens of the longest context that the engine allows; infinite where it does not say."""
    told = (info.get(name, "") for name in (CONTEXT_LEN, "max_model_len"))
    return next((float(word) for word in told if word.isascii() and word.isdigit() and len(word) < 12), math.inf)


def queue(scene: Scene) -> Finding | Unsure | None:
    """Requests wait although the KV cache, the arithmetic and the bandwidth have room: the scheduler holds them."""
    engine = served(scene)
    waiting = 0.0 if engine is None else _waiting(scene)
    if engine is None or waiting < scene.thresholds.queue_waiting:
        return None
    if _mute(scene):
        return None
    seen, share = activity(scene), _queued_share(engine)
    if share is not None and share < scene.thresholds.queue_ttft_ratio:
        return None
    held_back, known = pinned(scene), slots(scene)
    reads = _reads(scene, seen)
    if _computes(scene, seen) or (reads and not (held_back and _mostly_weights(engine))):
        return None
    usage = mean(scene, "kv_usage_ratio")
    unknown = [no_compute(engine, seen), no_bandwidth(engine, seen)]
    if usage is None and not (held_back and known):
        unknown.append(missing("KV cache use", engine.load.kv_usage_ratio))
    lacking = tuple(text for text in unknown if text)
    proof = (*_queue_proof(scene, engine, waiting, share), *_room(scene, seen, usage))
    if lacking:
        return Unsure(lacking, proof)
    if not held_back and seen.busy is not None and seen.busy < AWAKE:
        return None
    running = mean(scene, "running") or 0.0
    sure = held_back and known is not None and share is not None
    why = f"{requests(waiting)} wait while {requests(running)} run"
    at = f" of {requests(known[0])}" if known is not None and held_back else ""
    where = "a bigger batch reads its weights as often" if reads else "compute and bandwidth have room"
    where = where if usage is None else f"KV cache at {percent(usage)}, {where}"
    action = _more_slots(scene, engine, running, waiting) if held_back else _bigger_steps(engine)
    confidence = Confidence.HIGH if sure else Confidence.MEDIUM
    finding = Finding(f"{why}{at}: {where}", proof, action, Level.WARN, confidence)
    return _beside(scene, finding, spare(scene, "running"))


def _mostly_weights(engine: Engine) -> bool:
    """Most of what it reads are weights: more sequences share them, so that full bandwidth still has room."""
    weights, reads = finite(engine.efficiency.weight_bytes_per_s), finite(engine.efficiency.bytes_per_s)
    return bool(weights and reads and weights >= SPLIT * reads)


def _waiting(scene: Scene) -> float:
    """Mean requests that wait for room; less than half a request now and then is none."""
    deferred = None if scene.engine is None else finite(scene.engine.load.waiting_deferred)
    waiting = (mean(scene, "waiting") or 0.0) - (deferred or 0.0)
    return waiting if waiting >= 0.5 else 0.0


def _queued_share(engine: Engine) -> float | None:
    """Part of the time to first token that is spent waiting."""
    queued, first = finite(engine.latency.queue_s.mean), finite(engine.latency.ttft_s.mean)
    return min(queued / first, 1.0) if queued is not None and first else None


def _queue_proof(scene: Scene, engine: Engine, waiting: float, share: float | None) -> tuple[Evidence, ...]:
    proof = [evidence(scene, f"{requests(waiting)} waiting, mean of 10 s", "waiting", waiting, "waiting")]
    if refused := finite(engine.rates.rejections_per_s):
        text = f"{requests(refused)} requests/s are turned away"
        proof.append(evidence(scene, text, "rejections_per_s", refused))
    running, known = mean(scene, "running"), slots(scene)
    if running is not None:
        proof.append(evidence(scene, f"{requests(running)} running", "running", running, "running"))
    if known is not None:
        proof.append(Evidence(f"at most {requests(known[0])} run at once", known[1], known[0]))
    queued = finite(engine.latency.queue_s.mean)
    if share is not None and queued is not None:
        text = f"{percent(share)} of the time to first token is queueing ({latency(queued)})"
        proof.append(evidence(scene, text, "queue_s", queued, "queue"))
    return tuple(proof)


def _room(scene: Scene, seen: Activity, usage: float | None) -> tuple[Evidence, ...]:
    """What is not the limit."""
    proof = []
    if usage is not None:
        proof.append(evidence(scene, f"KV cache {percent(usage)}", "kv_usage_ratio", usage, "kv"))
    return (*proof, *_work(scene, seen))


def _work(scene: Scene, seen: Activity) -> tuple[Evidence, ...]:
    """What the arithmetic and the memory do, measured before modelled."""
    proof = []
    for value, text, field, chart in (
        (seen.tensor, "tensor cores", "tensor_active_ratio", "tensor"),
        (seen.dram, "DRAM", "bandwidth_bytes_per_s", "dram"),
    ):
        if value is not None:
            proof.append(of_gpus(scene, f"{text} {percent(value)} active", field, value, chart))
    for name in ("mfu", "mbu"):
        share = mean(scene, f"{name}_ratio")
        if share is not None:
            proof.append(evidence(scene, f"{name.upper()} {percent(share)}", f"{name}_ratio", share, name))
    return tuple(proof)


def _more_slots(scene: Scene, engine: Engine, running: float, waiting: float) -> str:
    """The scheduler's limit, and how far it can go by the room that there is."""
    words, ratio = advice(engine.kind), MOST_SLOTS
    now, why = running, ""
    usage = mean(scene, "kv_usage_ratio")
    if usage and KV_ROOM / usage < ratio:
        ratio, why = KV_ROOM / usage, f": the KV cache at {percent(usage)} has no room for more"
    wanted = math.floor(min(running + waiting, running * ratio) + 1e-6)
    if wanted <= now * 1.05:
        return f"more instances: the KV cache has no room for a higher {words.slots}"
    rest = "" if wanted >= running + waiting - 1.0 else "; more instances for the rest"
    return f"raise {words.slots} from {requests(now)} to {wanted}{why}{rest}"


def _bigger_steps(engine: Engine) -> str:
    words = advice(engine.kind)
    return f"raise {words.budget}, so that a step takes more prompts in; else more instances"


def _computes(scene: Scene, seen: Activity) -> bool:
    """Arithmetic is at its limit."""
    limits = scene.thresholds
    mfu, prefill = mean(scene, "mfu_ratio"), mean(scene, "mfu_prefill_ratio")
    if seen.tensor is not None and seen.tensor >= limits.compute_tensor_ratio:
        return True
    if mfu is None:
        return False
    if mfu >= limits.compute_mfu_ratio:
        return True
    queued = _waiting(scene) >= limits.queue_waiting and mfu >= limits.compute_queued_mfu_ratio
    return queued and prefill is not None and prefill >= SPLIT * mfu and not pinned(scene)


def _reads(scene: Scene, seen: Activity) -> bool:
    """Memory bandwidth is at its limit; a measured figure that says otherwise outweighs MBU."""
    limits = scene.thresholds
    if seen.dram is not None and seen.dram >= limits.bandwidth_dram_ratio:
        return True
    mbu = mean(scene, "mbu_ratio")
    return mbu is not None and mbu >= limits.bandwidth_mbu_ratio and (seen.dram is None or seen.dram >= SUPPORTED)


def compute(scene: Scene) -> Finding | None:
    """The tensor cores are at their limit."""
    engine = served(scene)
    if engine is None or not _computes(scene, activity(scene)) or not works(scene):
        return None
    waiting, late = _waiting(scene), missed(scene)
    seen, others = own_activity(scene, urgent=bool(waiting or late))
    if not _computes(scene, seen):
        return None
    mfu, prefill = mean(scene, "mfu_ratio"), mean(scene, "mfu_prefill_ratio")
    measured = seen.tensor is not None and seen.tensor >= scene.thresholds.compute_tensor_ratio
    proof = list(_work(scene, seen))
    if prefill is not None:
        proof.append(evidence(scene, f"prefill MFU {percent(prefill)}", "mfu_prefill_ratio", prefill, "mfu"))
    if waiting:
        proof.append(evidence(scene, f"{requests(waiting)} waiting", "waiting", waiting, "waiting"))
    of_prompts = prefill is not None and mfu is not None and prefill >= SPLIT * mfu
    share = f"tensor cores {percent(seen.tensor or 0.0)} active" if measured else f"MFU {percent(mfu or 0.0)}"
    parts = f", {percent(prefill / mfu)} of it prefill" if of_prompts and prefill is not None and mfu else ""
    then = f": {requests(waiting)} wait" if waiting else ""
    shared = others if measured else ""
    text = f"computes at its limit: {share}{_shared(shared)}{parts}{then}"
    sure = Confidence.LOW if engine.contradicts or shared else Confidence.HIGH if measured else Confidence.MEDIUM
    level = Level.WARN if waiting or late else Level.NOTE
    finding = Finding(text, (*proof, *late), f"{_alone(shared)}{_less_work(engine, of_prompts)}", level, sure)
    return _beside(scene, finding, spare(scene, "running") if waiting or late else None)


def _shared(others: str) -> str:
    return f", shared with {others}" if others else ""


def _alone(others: str) -> str:
    return f"GPUs that it does not share with {others}; " if others else ""


def _less_work(engine: Engine, of_prompts: bool) -> str:
    words = advice(engine.kind)
    done = []
    if of_prompts:
        done += [words.prefix] if words.prefix else []
        done += [f"{words.chunked} with a smaller {words.budget}"] if words.chunked else []
    done += quantise(engine)
    done.append("prefill and decode on GPUs of their own" if of_prompts else f"more GPUs per instance ({words.tp})")
    return "; ".join((*done, "more instances"))


def bandwidth(scene: Scene) -> Finding | None:
    """The memory is read as fast as it can be."""
    engine = served(scene)
    if engine is None or not (_reads(scene, activity(scene)) or _reads(scene, UNSEEN)) or not works(scene):
        return None
    batch, late, waiting = finite(engine.rates.batch), missed(scene), _waiting(scene)
    seen, others = own_activity(scene, urgent=bool(waiting or late))
    if not _reads(scene, seen):
        return None
    mbu = mean(scene, "mbu_ratio")
    full = seen.dram is not None and seen.dram >= scene.thresholds.bandwidth_dram_ratio
    share, shared = (seen.dram, others) if full else (mbu, "")
    at = f" at batch {requests(batch)}" if batch else ""
    bigger = more_batch(scene)
    promise = "" if bigger is None else f": {bigger.text}"
    proof = [*_work(scene, seen), *late]
    if batch:
        proof.append(evidence(scene, f"batch {requests(batch)}", "batch", batch, "running"))
    if bigger is not None:
        proof.append(bigger)
    measured = seen.dram is not None
    sure = Confidence.LOW if engine.contradicts and not measured else Confidence.HIGH
    sure = sure if measured or sure is Confidence.LOW else Confidence.MEDIUM
    sure = Confidence.LOW if shared else sure
    finding = Finding(
        f"reads {percent(share or 0.0)} of HBM{_shared(shared)}{at}{promise}",
        tuple(proof),
        f"{_alone(shared)}{_fewer_bytes(engine, bigger)}",
        Level.WARN if late or waiting else Level.NOTE,
        sure,
    )
    return _beside(scene, finding, spare(scene, "running") if late or waiting else None)


def _fewer_bytes(engine: Engine, bigger: Evidence | None) -> str:
    words = advice(engine.kind)
    batch = "a bigger batch (send it more requests at once)"
    if bigger is not None:
        batch = f"{batch}: up to {requests(finite(bigger.value) or 0.0)}"
    wider = f"more GPUs per instance ({words.tp}{f', now {engine.hardware.tp}' if engine.hardware.tp else ''})"
    return "; ".join((batch, *quantise(engine), wider))

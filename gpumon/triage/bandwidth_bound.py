"""Rule on memory that is read as fast as it can be, and how much larger a batch may be."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from gpumon.efficiency.lengths import KV_SHARE
from gpumon.readings.goals import Goals
from gpumon.readings.missing import number
from gpumon.readings.snapshot import Engine
from gpumon.readings.verdict import Action, Confidence, Evidence, Level, Limit, Parameters, Team
from gpumon.triage.advice import advice, quantise
from gpumon.triage.finding import Cause, Finding, Quantity, Remedy, params
from gpumon.triage.replicas import with_roomy_replicas
from gpumon.triage.saturation import bandwidth_is_full, queued_share
from gpumon.triage.sentences import MORE_GPUS, OWN_GPUS, SHARED, SPARE
from gpumon.triage.signals import TOKEN_TOTALS, UNSEEN, Case, GpuActivity, finite, kv_requests

MOST_BATCH: Final = 4.0
"""Times the batch of now up to which a larger one is advised: beyond it nothing was measured."""
LEAST_BATCH: Final = 1.1
"""Times the batch of now from which on a larger one is worth advising."""
_MOST_PREFILL: Final = 0.15
"""Prefill MFU up to which the time per token is that of decode steps: beyond it a bigger batch brings prompts along."""
_PAUSE_S: Final = 2.0
"""Seconds without a token, a poll of an engine, from which on no step reads the weights."""


BATCH: Final = Quantity("batch", "batch {value:requests}", field="batch", chart="running")
WIDER_BATCH: Final = Quantity(
    "wider_batch",
    ("room to batch {value:requests}, which [meets {goal_s:latency}|takes about {then_s:latency} a token]"),
)
BIGGER_BATCH: Final = Remedy(
    "bigger_batch", "send it more requests at once[, up to {wider:requests}]: a larger batch", team=Team.CLIENT
)

BANDWIDTH_FULL: Final = Cause(
    "bandwidth_full",
    Limit.BANDWIDTH_BOUND,
    (
        "memory bandwidth {share:percent}"
        + SHARED
        + "[ at batch {batch:requests}][: room to batch {wider:requests}, which [meets "
        "{goal_s:latency}|takes about {then_s:latency} a token]]" + SPARE
    ),
)


def bandwidth(case: Case) -> Finding | None:
    """Rule: the memory is read as fast as it can be."""
    engine = case.serving_engine()
    if engine is None or not _may_be_full(case) or not case.has_work():
        return None
    suffers = bool(case.late_latencies() or case.waiting_mean())
    activity, neighbour_names = case.own_activity(urgent=suffers)
    if not bandwidth_is_full(case, activity):
        return None
    share = case.mean("mbu_ratio")
    shared = ""
    is_possible = share is None or share <= 1.0  # more is a KV cache in which blocks are lost, or a wrong model
    if activity.dram is not None and (activity.dram >= case.thresholds.bandwidth_dram_ratio or not is_possible):
        share = activity.dram
        shared = neighbour_names
    bigger_batch = _bigger_batch(case, engine)
    batch_parameters = _wider_parameters(bigger_batch)
    finding = BANDWIDTH_FULL.finding(
        parameters=params(share=share, shared=shared, batch=finite(engine.rates.batch)) | batch_parameters,
        evidence=tuple(_evidence_of_bandwidth(case, engine, activity, bigger_batch)),
        actions=_actions(case, engine, shared, batch_parameters),
        level=_level(case, engine),
        confidence=_confidence(engine, shared, is_measured=activity.dram is not None),
    )
    if suffers:
        return with_roomy_replicas(case, finding, "running")
    return with_roomy_replicas(case, finding, "")


def _evidence_of_bandwidth(
    case: Case, engine: Engine, activity: GpuActivity, bigger: Evidence | None
) -> list[Evidence]:
    """Figures of the work that is done, of late requests, and of the batch with the one that it could be."""
    evidence = [*case.work_evidence(activity), *case.late_latencies()]
    batch = finite(engine.rates.batch)
    if batch:
        evidence.append(case.evidence(BATCH, batch))
    if bigger is not None:
        evidence.append(bigger)
    return evidence


def _may_be_full(case: Case) -> bool:
    """Whether DRAM activity or MBU is at its limit, whatever the other says: a cheap first look.

    `UNSEEN` judges by MBU alone.
    """
    return bandwidth_is_full(case, case.activity()) or bandwidth_is_full(case, UNSEEN)


def _wider_parameters(bigger: Evidence | None) -> Parameters:
    """Numbers of a bigger batch in sentence and action; empty without one."""
    if bigger is None:
        return {}
    return {"wider": number(bigger.value) or 0.0, **bigger.parameters}


def _level(case: Case, engine: Engine) -> Level:
    """A warning where requests suffer from slow reads. Where queueing alone makes the first token late, reading faster
    lets nobody in."""
    slow = case.late_latencies()
    waits = case.waiting_mean() >= case.thresholds.queue_waiting and not _pauses(case)
    if not slow and not waits:
        return Level.NOTE
    tokens_late = any(evidence.quantity not in ("ttft_p95", "ttft_kept") for evidence in slow)
    queued = (queued_share(engine) or 0.0) >= case.thresholds.queue_ttft_ratio
    if tokens_late or not queued:
        return Level.WARN
    return Level.NOTE


def _confidence(engine: Engine, shared: str, *, is_measured: bool) -> Confidence:
    """How sure it is: little where others use the GPUs, or signals contradict and DRAM activity is not measured."""
    if shared or (engine.contradicts and not is_measured):
        return Confidence.LOW
    if is_measured:
        return Confidence.HIGH
    return Confidence.MEDIUM


def _actions(case: Case, engine: Engine, shared: str, wider: Parameters) -> tuple[Action, ...]:
    """Actions against slow reads, the cheapest first."""
    actions: list[Action] = []
    if shared:
        actions.append(OWN_GPUS.action(shared=shared))
    if wider or (_room(case, engine) is None and Limit.FORECAST not in case.standing_limits):
        actions.append(BIGGER_BATCH.action(**wider))
    actions += quantise(engine)
    actions.append(MORE_GPUS.action(flag=advice(engine.kind).tp, now=float(engine.hardware.tp) or None))
    return tuple(actions)


def _pauses(case: Case) -> bool:
    """Whether no token came in the last poll: requests then wait for whatever has stopped the engine."""
    quiet_s = case.unmoved_s(TOKEN_TOTALS)
    return quiet_s is not None and quiet_s >= _PAUSE_S


class _Step(NamedTuple):
    """A decode step as it is now: its batch, its time, and the bytes that it reads."""

    batch: float
    itl_s: float
    weight_bytes: float
    kv_bytes: float
    """KV cache of one sequence."""

    def itl_s_at(self, batch: float) -> float:
        """Time per token with another batch: ITL x (weights + batch x KV) / (weights + batch now x KV)."""
        bytes_now = self.weight_bytes + self.batch * self.kv_bytes
        return self.itl_s * (self.weight_bytes + batch * self.kv_bytes) / bytes_now

    def batch_at(self, itl_s: float) -> float:
        """The batch whose step takes so long."""
        bytes_now = self.weight_bytes + self.batch * self.kv_bytes
        return (itl_s / self.itl_s * bytes_now - self.weight_bytes) / self.kv_bytes


def _bigger_batch(case: Case, engine: Engine) -> Evidence | None:
    """The largest batch of a rank that fits and meets the goal of time per token: `batch 50 still meets 40 ms`.

    The bytes of a step are weights + batch x KV of a sequence, and its time goes with them as long as memory bounds it
    (sizing: ITL(b) = a + c x b). So ITL(b') = ITL(b) x (W + b' k) / (W + b k). Not for a MoE, whose weights read grow
    with the batch, nor beside much prefill. The p95 of a goal is taken at the distance from the mean that it has now.
    None of an engine that will be full soon: it has requests enough.
    """
    if Limit.FORECAST in case.standing_limits or engine.dimensions.llm is None or engine.dimensions.llm.experts:
        return None
    prefill = case.mean("mfu_prefill_ratio")
    if prefill is None or prefill > _MOST_PREFILL:
        return None
    step = _decode_step(engine)
    if step is None:
        return None
    most = _largest_batch(case, engine, step)
    if not math.isfinite(most) or most < LEAST_BATCH * step.batch or most - step.batch < 1.0:
        return None
    batch = float(math.floor(most))
    if case.goals.token_s:
        parameters = params(goal_s=case.goals.token_s)
    else:
        parameters = params(then_s=step.itl_s_at(batch))
    source = "ITL x (weights + batch x KV) / (weights + batch now x KV)"
    return WIDER_BATCH.evidence(batch, source=source, chart=f"itl@{case.key}", parameters=parameters)


def _decode_step(engine: Engine) -> _Step | None:
    """The engine's mean decode step; None where a part of it is not known."""
    batch = finite(engine.rates.batch)
    itl_s = finite(engine.latency.itl_mean_s)
    weight_bytes = finite(engine.efficiency.weight_bytes)
    context_tokens = finite(engine.load.context_tokens)
    bytes_per_token = finite(engine.dimensions.kv_bytes_per_token)
    if not (batch and itl_s and weight_bytes and bytes_per_token and context_tokens):
        return None
    return _Step(batch, itl_s, weight_bytes, bytes_per_token * context_tokens)


def _largest_batch(case: Case, engine: Engine, step: _Step) -> float:
    """The largest batch that has room in the KV cache and meets the goal."""
    most = MOST_BATCH * step.batch
    room = _room(case, engine)
    if room is not None:
        most = min(most, room)
    if case.goals.token_s:
        longest_s = case.goals.token_s / _tail(case.goals, engine)
        most = min(most, step.batch_at(longest_s))
    return most


def _tail(goals: Goals, engine: Engine) -> float:
    """p95 of what the goal judges / its mean, 1 to 2, as histograms have coarse buckets; 1 where it is not known."""
    judged = engine.latency.itl_s if goals.tpot_s is None else engine.latency.tpot_s
    p95 = finite(judged.p95)
    mean = finite(judged.mean)
    if goals.tpot_s is None and goals.itl_s is None:  # the goal is one of a mean
        return 1.0
    if p95 is None or not mean:
        return 1.0
    return min(2.0, max(1.0, p95 / mean))


def _room(case: Case, engine: Engine) -> float | None:
    """Sequences of one rank that KV pool and scheduler take; None where neither is known."""
    ranks = max(1, engine.hardware.ranks)
    bounds: list[float] = []
    fits = kv_requests(engine)
    if fits is not None:
        bounds.append(KV_SHARE * fits / ranks)
    slots = case.slots()
    if slots is not None:
        bounds.append(slots.number / ranks)
    return min(bounds, default=None)

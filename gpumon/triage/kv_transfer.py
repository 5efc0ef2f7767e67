"""KV cache between engines: requests that wait for it, whose stall is the other side's, and what nobody fetches."""

from __future__ import annotations

import math
from typing import Final

from gpumon.efficiency.checks import ROLES
from gpumon.readings.frame import EngineReading
from gpumon.readings.quantities import KV_EXPIRED, KV_TRANSFERRED_BYTES
from gpumon.readings.snapshot import Engine
from gpumon.readings.verdict import Action, Confidence, Evidence, Limit
from gpumon.triage.finding import Cause, Finding, Quantity, Remedy, params
from gpumon.triage.progress.tokens import SUSPECTED_S, without_tokens_s
from gpumon.triage.progress.work import sign_evidence, work_signs
from gpumon.triage.sentences import NO_TOKEN
from gpumon.triage.signals import MINUTE_S, Case, finite

ROLE: Final = "role"
"""Key in `EngineReading.info`: `prefill` or `decode`, of a server whose halves run apart (SGLang)."""
_CONNECTOR: Final = "--kv-transfer-config"
"""Option of a vLLM that gets or gives KV cache."""
_LEAST_EXPIRED: Final = 3.0
"""Requests of a minute whose KV cache nobody fetched that make a verdict: one may be a client that hung up."""
_LEAST_EXPIRED_STANDING: Final = 1.0
"""Requests of a minute whose KV cache nobody fetched from which on the verdict goes on to stand."""


KV_TRANSFER_FAILURES: Final = Quantity(
    "kv_transfer_failures", "{value:per_minute} KV transfers fail a minute", field="kv_transfer_failures_per_s"
)
KV_LATE_READS: Final = Quantity(
    "kv_late_reads",
    ("{value:per_minute} reads of KV cache a minute ended after it was given up: their answers may be wrong"),
    field="kv_late_reads_per_s",
)
KV_EXPIRED_FIGURE: Final = Quantity("kv_expired", "{value:per_minute} requests a minute whose KV cache expired")
KV_FETCH_STAGES: Final = Quantity(
    "kv_fetch_stages",
    ("[{waiting:requests} not asked for, ]{value:requests} on their way[, {done:requests} here and waiting for room]"),
    field="kv_fetch_running",
)
PREFILL_RETRIES: Final = Quantity(
    "prefill_retries",
    "{value:per_minute} prompts a minute are put off after their prefill began",
    field="prefill_retries_per_s",
)
WAITING_FOR_KV: Final = Quantity(
    "waiting_for_kv", "{value:requests} requests wait for a KV transfer", field="waiting_deferred", chart="waiting"
)
CHECK_PREFILL_SIDE: Final = Remedy(
    "check_prefill_side",
    (
        "look at the prefill side, or the store, that sends its KV cache[ ({engine})]: does it serve, what does its "
        "log say, does the link between them work (NIXL, UCX, RDMA)?"
    ),
)
CHECK_DECODE_SIDE: Final = Remedy(
    "check_decode_side",
    (
        "look at the decode side that takes its KV cache[ ({engine})]: does it serve, does it have "
        "room, does the link between them work (NIXL, UCX, RDMA)?"
    ),
)


def waiting_for_kv(case: Case) -> float:
    """Mean requests that wait for KV cache of another engine or store; 0 where none does, or it cannot be told.

    vLLM counts those that wait for a LoRA slot among the same: without a KV connector, and beside requests that run,
    it is not known what they wait for. Before 0.20 they are not counted apart: while none runs, all wait for it.
    """
    if case.newest("waiting_deferred") is None and exchanges_kv(case) and case.newest("running") == 0.0:
        return case.mean("waiting") or 0.0
    deferred = case.mean("waiting_deferred") or 0.0
    if case.engine is not None:  # where the KV cache has come, a request waits for room here
        deferred -= finite(case.engine.load.kv_fetch_done) or 0.0
    if deferred < case.thresholds.queue_waiting:
        return 0.0
    if exchanges_kv(case) or not case.mean("running"):
        return deferred
    return 0.0


def exchanges_kv(case: Case) -> bool:
    """Whether the engine exchanges KV cache with others, by its metrics, its role or its command line."""
    reading = case.reading
    if reading is not None and (KV_TRANSFERRED_BYTES in reading.live or ROLE in reading.info):
        return True
    if case.engine is None:
        return False
    processes = [process for gpu in case.gpus for process in gpu.reading.processes]
    return any(process.engine == case.engine.name and _CONNECTOR in process.command for process in processes)


def explains_stall(case: Case) -> bool:
    """Whether most of its requests wait for KV cache: no token is then no fault of its own."""
    waiting = waiting_for_kv(case)
    return waiting > 0.0 and waiting >= (case.newest("running") or 0.0)


KV_TRANSFER_WAITS: Final = Cause(
    "kv_transfer_waits",
    Limit.KV_TRANSFER,
    (
        "{waiting:requests} requests wait for [{role=prefill}the decode side to take their KV "
        "cache|{role=decode}KV cache of the prefill side|KV cache from another engine or a store][; no "
        "token for {seconds:lasted}]"
    ),
)


def transfer_waits(case: Case) -> Finding | None:
    """Rule: requests wait for KV cache of another engine, and users feel it or no token comes."""
    engine = case.serving_engine()
    waiting = waiting_for_kv(case)
    if engine is None or not waiting or case.waiting_mean() > waiting:
        return None
    seconds = without_tokens_s(case) or 0.0
    stalls = seconds >= SUSPECTED_S
    if not stalls and not case.late_latencies():
        return None
    parameters = params(waiting=waiting)
    evidence = [case.evidence(WAITING_FOR_KV, waiting)]
    began_s = math.inf
    if stalls:
        parameters |= params(seconds=seconds)
        evidence.append(case.evidence(NO_TOKEN, seconds))
        began_s = case.now_s - seconds
    parameters |= params(role=case.info.get(ROLE))
    confidence = Confidence.HIGH if exchanges_kv(case) else Confidence.LOW
    return KV_TRANSFER_WAITS.finding(
        parameters=parameters,
        evidence=(*evidence, *_transfer_evidence(case, engine), *case.late_latencies()),
        actions=(check_other_side(case),),
        confidence=confidence,
        began_s=began_s,
    )


KV_EXPIRES: Final = Cause(
    "kv_expires",
    Limit.KV_TRANSFER,
    "the KV cache of {expired:requests} requests expired in {seconds:lasting}: no engine fetched it in time",
)


def cache_expires(case: Case) -> Finding | None:
    """Rule: other engines do not fetch its KV cache in time.

    Its prefill was for nothing then: it is done again, or the request fails.
    """
    engine = case.serving_engine()
    per_s = case.mean("kv_expired_per_s", MINUTE_S)
    seconds = min(MINUTE_S, case.recent.seconds)
    if engine is None or not per_s:
        return None
    expired = per_s * seconds
    least = _LEAST_EXPIRED_STANDING if Limit.KV_TRANSFER in case.limits_before else _LEAST_EXPIRED
    if expired < least:
        return None
    evidence = [KV_EXPIRED_FIGURE.evidence(per_s, source=case.counter_source(KV_EXPIRED, seconds))]
    late_reads = finite(engine.rates.kv_late_reads_per_s)
    if late_reads:
        evidence.append(case.evidence(KV_LATE_READS, late_reads))
    evidence += _failure_evidence(case, engine)
    evidence += case.late_latencies()
    parameters = params(expired=expired, seconds=seconds)
    return KV_EXPIRES.finding(
        parameters=parameters,
        evidence=tuple(evidence),
        actions=(_check_side(case, prefills=True),),
    )


def _transfer_evidence(case: Case, engine: Engine) -> list[Evidence]:
    """Evidence of its transfers: bytes that move, and transfers that failed."""
    links = [sign for sign in work_signs(case, engine) if sign.name in ("kv", "nvlink", "pcie")]
    return [*_stage_evidence(case, engine), *sign_evidence(links), *_failure_evidence(case, engine)]


def _stage_evidence(case: Case, engine: Engine) -> list[Evidence]:
    """Evidence of how far the KV cache is that requests wait for, where the engine tells; and of prompts put off."""
    evidence = []
    load = engine.load
    on_their_way = finite(load.kv_fetch_running)
    if on_their_way is not None:
        waiting = finite(load.kv_fetch_waiting) or None
        done = finite(load.kv_fetch_done) or None
        evidence.append(case.evidence(KV_FETCH_STAGES, on_their_way, waiting=waiting, done=done))
    retries = finite(engine.rates.prefill_retries_per_s)
    if retries:
        evidence.append(case.evidence(PREFILL_RETRIES, retries))
    return evidence


def _failure_evidence(case: Case, engine: Engine) -> list[Evidence]:
    """Evidence of transfers that failed; empty where none did."""
    failures = finite(engine.rates.kv_transfer_failures_per_s)
    if failures:
        return [case.evidence(KV_TRANSFER_FAILURES, failures)]
    return []


def check_other_side(case: Case) -> Action:
    """The action to look at the other side: who sends its KV cache, or for a prefill engine who takes it."""
    return _check_side(case, prefills=case.reading is not None and _is_prefill(case.reading))


def _check_side(case: Case, *, prefills: bool) -> Action:
    """The action to look at the engines that are the other half of one that prefills, or that does not."""
    names = []
    for engine, reading in zip(case.snapshot.engines, case.frame.engines, strict=True):
        is_half = any(role in reading.info for role in ROLES)
        if is_half and engine.key != case.key and _is_prefill(reading) is not prefills:
            names.append(engine.name)
    remedy = CHECK_DECODE_SIDE if prefills else CHECK_PREFILL_SIDE
    return remedy.action(engine=names[0] if len(names) == 1 else None)


def _is_prefill(reading: EngineReading) -> bool:
    """Whether it is the half of a server that computes prompts."""
    return any(reading.info.get(role) == "prefill" for role in ROLES)

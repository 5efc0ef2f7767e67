"""Rules on arithmetic: the tensor cores are at their limit, or a long prompt is computed."""

from __future__ import annotations

from typing import Final

from gpumon.readings.snapshot import Engine
from gpumon.readings.verdict import Action, Confidence, Evidence, Level, Limit, Parameters
from gpumon.triage.advice import advice, fewer_prompt_tokens, quantise
from gpumon.triage.finding import Cause, Finding, Remedy, for_later, params
from gpumon.triage.progress.tokens import gives_no_tokens
from gpumon.triage.progress.work import SM_AT_WORK, computes
from gpumon.triage.replicas import with_roomy_replicas
from gpumon.triage.saturation import arithmetic_is_full, drafts_times, prefill_share
from gpumon.triage.sentences import (
    ACCEPTANCE,
    MFU_PREFILL,
    MORE_GPUS,
    MORE_INSTANCES,
    NO_TOKEN,
    OWN_GPUS,
    PREFIX_CACHING,
    QUANTISE_WEIGHTS,
    SHARED,
    SM_ACTIVE,
    SMALLER_CHUNKS,
    SPARE,
    STOP_SPECULATION,
    TOKENS_PER_STEP,
    WAITING,
)
from gpumon.triage.signals import NOW_S, TOKEN_TOTALS, Case, GpuActivity, finite

_COSTLY_DRAFTS: Final = 2.0
"""Tokens that a step computes for each that it yields, from which on full arithmetic is better spent without drafts."""
_RESTARTS: Final = frozenset(remedy.code for remedy in (PREFIX_CACHING, SMALLER_CHUNKS, QUANTISE_WEIGHTS, MORE_GPUS))
"""Actions that take a restart of this engine: its options are read as it begins."""
_NEXT_PROMPT_S: Final = 25.0
"""Seconds for which full arithmetic after a long prompt is not a verdict of its own: the next prompt may be as long.
Shorter than the time that a verdict takes to go, so that the one on long prompts stands."""
_NEXT_QUIET_S: Final = 5.0
"""Seconds without a token after which that next prompt counts as long, too: less than the first one needs."""
_QUIET_POLLS: Final = 2.0
"""Polls of an engine that those seconds have to hold, at least: a counter that is read seldom moves seldom."""


WAIT_FOR_PREFILL: Final = Remedy("wait_for_prefill", "wait: it works on a prompt")
SPLIT_PREFILL: Final = Remedy("split_prefill", "prefill and decode on GPUs of their own")

LONG_PREFILL: Final = Cause(
    "long_prefill",
    Limit.COMPUTE_BOUND,
    (
        "long prefill: no token for {seconds:lasted} while its GPUs compute ([tensor cores "
        "{tensor:percent} active|SM {sm:percent} active|by their power])[: {waiting:wait}]"
    ),
)


def long_prefill(case: Case) -> Finding | None:
    """Rule: no token comes for long while the GPUs compute: a long prompt is at work, of which nothing counts yet."""
    engine = case.serving_engine()
    quiet_s = case.unmoved_s(TOKEN_TOTALS)
    if engine is None or quiet_s is None or not case.mean("running"):
        return None
    if not gives_no_tokens(case) and not _is_next_prompt(case, quiet_s):
        return None
    activity = case.activity()
    confidence = _confidence_of_prefill(case, activity)
    if confidence is None:
        return None
    parameters = params(
        seconds=quiet_s,
        tensor=activity.tensor,
        sm=activity.sm,
        waiting=case.waiting_mean() or None,
        tokens=finite(engine.load.prompt_tokens_mean),
    )
    case.recent.long_prefill_s = case.now_s
    level = Level.WARN if _is_prefill_felt(case, quiet_s) else Level.NOTE
    evidence = (*_evidence_of_prefill(case, activity, quiet_s), *case.late_latencies())
    return LONG_PREFILL.finding(
        parameters=parameters,
        evidence=evidence,
        actions=(WAIT_FOR_PREFILL.action(), *_less_work_by_time(case, engine)),
        level=level,
        confidence=confidence,
    )


def _less_work_by_time(case: Case, engine: Engine) -> list[Action]:
    """Actions against long prompts: those for now, then those for later: a restart ends the prompt that is at work."""
    for_now = []
    after_it = []
    for action in _less_work(case, engine, of_prompts=True):
        if action.code in _RESTARTS:
            after_it.append(for_later(action))
        else:
            for_now.append(action)
    return for_now + after_it


def _had_long_prompt(case: Case) -> bool:
    """Whether a long prompt was at work a moment ago."""
    return case.now_s - case.recent.long_prefill_s < _NEXT_PROMPT_S


def _is_left_to_long_prompts(case: Case) -> bool:
    """Whether full arithmetic is that of long prompts, on which a verdict stands: one that comes and goes is none."""
    return Limit.COMPUTE_BOUND in case.standing_limits and _had_long_prompt(case)


def _is_next_prompt(case: Case, quiet_s: float) -> bool:
    """Whether the engine is at work on another long prompt after the last one, by a shorter time without a token."""
    if case.reading is None or not _had_long_prompt(case):
        return False
    return quiet_s >= max(_NEXT_QUIET_S, _QUIET_POLLS * case.reading.interval_s)


def _confidence_of_prefill(case: Case, activity: GpuActivity) -> Confidence | None:
    """How sure it is that the GPUs compute; None where they do not."""
    if activity.tensor is not None:
        return Confidence.HIGH if activity.tensor >= case.thresholds.communication_tensor_ratio else None
    if activity.sm is not None and activity.sm < SM_AT_WORK:
        return None
    return Confidence.LOW if computes(case, activity, NOW_S, case.thresholds) else None


def _is_prefill_felt(case: Case, quiet_s: float) -> bool:
    """Whether users notice: whoever waits for its first token has waited that long already."""
    longest_s = case.goals.ttft_s or case.thresholds.late_ttft_s
    return quiet_s >= longest_s or bool(case.waiting_mean()) or bool(case.late_latencies())


def _evidence_of_prefill(case: Case, activity: GpuActivity, quiet_s: float) -> list[Evidence]:
    """Figures of a prompt at work, without MFU and MBU, which show none of it until its end."""
    evidence = [case.evidence(NO_TOKEN, quiet_s)]
    evidence += [of_work for of_work in case.work_evidence(activity) if of_work.quantity not in ("mfu", "mbu")]
    if activity.sm is not None:
        evidence.append(case.gpu_evidence(SM_ACTIVE, activity.sm))
    return evidence


COMPUTE_FULL: Final = Cause(
    "compute_full",
    Limit.COMPUTE_BOUND,
    (
        "[{waiting:wait}: ][tensor cores {tensor:percent} active|MFU {mfu:percent}]"
        + SHARED
        + "[, {prefill:percent} of it prefill]"
        + SPARE
    ),
    level=Level.NOTE,
)


def compute(case: Case) -> Finding | None:
    """Rule: the arithmetic of an engine's GPUs is at its limit, by their tensor cores or by MFU."""
    engine = case.serving_engine()
    if engine is None or _is_left_to_long_prompts(case) or not arithmetic_is_full(case, case.activity()):
        return None
    if not case.has_work():  # what fills its GPUs may be another program's
        return None
    suffers = bool(case.waiting_mean() or case.late_latencies())
    activity, others = case.own_activity(urgent=suffers)
    if not arithmetic_is_full(case, activity):
        return None
    is_measured = activity.tensor is not None and activity.tensor >= case.thresholds.compute_tensor_ratio
    # MFU is the engine's own work; the tensor cores' activity may be that of others.
    shared = others if is_measured else ""
    of_prompts = prefill_share(case) is not None
    actions = _less_work(case, engine, of_prompts=of_prompts)
    drafts = _costly_drafts(case, engine)
    if drafts:
        actions = (STOP_SPECULATION.action(), *actions)
    if shared:
        actions = (OWN_GPUS.action(shared=shared), *actions)
    finding = COMPUTE_FULL.finding(
        parameters=_parameters(case, activity, shared, is_measured=is_measured),
        evidence=(*_evidence_of_compute(case, activity), *drafts, *case.late_latencies()),
        actions=actions,
        confidence=_confidence(engine, shared, is_measured=is_measured),
    )
    if suffers:
        return with_roomy_replicas(case, finding._replace(level=Level.WARN), "running")
    return with_roomy_replicas(case, finding, "")


def _costly_drafts(case: Case, engine: Engine) -> tuple[Evidence, ...]:
    """Evidence that speculation costs more than it gives: steps compute far more tokens than they yield, and arithmetic
    is what is full. Empty where it does not, or is off."""
    per_step = finite(engine.rates.tokens_per_step)
    times = drafts_times(case)
    if per_step is None or times < _COSTLY_DRAFTS:
        return ()
    evidence = [case.evidence(TOKENS_PER_STEP, per_step, limit=times * per_step)]
    acceptance = case.mean("acceptance_ratio")
    if acceptance is not None:
        evidence.append(case.evidence(ACCEPTANCE, acceptance))
    return tuple(evidence)


def _parameters(case: Case, activity: GpuActivity, shared: str, *, is_measured: bool) -> Parameters:
    """Numbers of the sentence: the tensor cores' activity where it is measured, else MFU."""
    if is_measured:
        work = params(tensor=activity.tensor)
    else:
        work = params(mfu=case.mean("mfu_ratio"))
    prefill = prefill_share(case) or None
    return work | params(shared=shared, prefill=prefill, waiting=case.waiting_mean() or None)


def _evidence_of_compute(case: Case, activity: GpuActivity) -> list[Evidence]:
    """Figures of the work that is done, of that prefill's, and of requests that wait."""
    evidence = list(case.work_evidence(activity))
    prefill = case.mean("mfu_prefill_ratio")
    if prefill is not None:
        evidence.append(case.evidence(MFU_PREFILL, prefill))
    waiting = case.waiting_mean()
    if waiting:
        evidence.append(case.evidence(WAITING, waiting))
    return evidence


def _confidence(engine: Engine, shared: str, *, is_measured: bool) -> Confidence:
    """How sure it is: little where signals contradict or others use the GPUs, too."""
    if engine.contradicts or shared:
        return Confidence.LOW
    if is_measured:
        return Confidence.HIGH
    return Confidence.MEDIUM


def _less_work(case: Case, engine: Engine, *, of_prompts: bool) -> tuple[Action, ...]:
    """Actions against full arithmetic; where requests wait, more instances are the first."""
    more = MORE_INSTANCES.action()
    if of_prompts:
        other = SPLIT_PREFILL.action()
    else:
        other = MORE_GPUS.action(flag=advice(engine.kind).tp)
    faster = (*quantise(engine), other)
    if case.waiting_mean():
        return (more, *faster)
    if of_prompts:
        return (*fewer_prompt_tokens(engine), *faster, more)
    return (*faster, more)

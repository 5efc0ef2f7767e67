"""Rules on arithmetic: the tensor cores are at their limit, or a long prompt is computed."""

from __future__ import annotations

from gpumon.readings.snapshot import Engine
from gpumon.readings.verdict import Action, Confidence, Evidence, Level, Limit, Parameters
from gpumon.triage.advice import advice, fewer_prompt_tokens, quantise
from gpumon.triage.replicas import beside
from gpumon.triage.saturation import SPLIT, arithmetic_is_full, is_mute
from gpumon.triage.signals import NOW_S, TOKENS, Activity, Case, Finding, action, finite, params
from gpumon.triage.stall import SM_AT_WORK, computes


def long_prefill(case: Case) -> Finding | None:
    """No token comes for long, and its GPUs compute all the while: a prompt is at work, of which none counts yet."""
    engine = case.served()
    quiet_s = case.still_s(TOKENS)
    if engine is None or quiet_s is None or not is_mute(case) or not case.mean("running"):
        return None
    seen = case.activity()
    at_work = seen.tensor is not None and seen.tensor >= case.thresholds.communication_tensor_ratio
    if not at_work and not _may_compute(case, seen):
        return None
    slow = case.late()
    waiting = case.waiting_mean()
    said = params(
        seconds=quiet_s,
        tensor=seen.tensor,
        sm=seen.sm,
        waiting=waiting or None,
        tokens=finite(engine.load.prompt_tokens_mean),
    )
    # Whoever waits for its first token has waited that long already.
    overdue = quiet_s >= (case.goals.ttft_s or case.thresholds.late_ttft_s)
    if waiting or slow or overdue:
        level = Level.WARN
    else:
        level = Level.NOTE
    confidence = Confidence.HIGH if at_work else Confidence.LOW
    proof = (*_evidence_of_prefill(case, seen, quiet_s), *slow)
    actions = (action("wait_for_prefill"), *_less_work(case, engine, of_prompts=True))
    return Finding(Limit.COMPUTE_BOUND, "long_prefill", said, proof, actions, level, confidence)


def _may_compute(case: Case, seen: Activity) -> bool:
    """Whether the GPUs may compute where their tensor cores' activity is not known, by all else that is."""
    if seen.tensor is not None:
        return False
    if seen.sm is not None and seen.sm < SM_AT_WORK:
        return False
    return computes(case, seen, NOW_S, case.thresholds) is True


def _evidence_of_prefill(case: Case, seen: Activity, quiet_s: float) -> list[Evidence]:
    """Figures of a prompt at work. MFU and MBU show none of it until its end, so they are not among them."""
    proof = [case.evidence("no_token", "decode_tokens_per_s", quiet_s, "decode")]
    proof += [evidence for evidence in case.work(seen) if evidence.quantity not in ("mfu", "mbu")]
    if seen.sm is not None:
        proof.append(case.of_gpus("sm_active", "sm_active_ratio", seen.sm, "sm"))
    return proof


def compute(case: Case) -> Finding | None:
    """The tensor cores are at their limit."""
    engine = case.served()
    if engine is None or not arithmetic_is_full(case, case.activity()) or not case.works():
        return None
    waiting = case.waiting_mean()
    slow = case.late()
    suffers = bool(waiting or slow)
    seen, others = case.own_activity(urgent=suffers)
    if not arithmetic_is_full(case, seen):
        return None
    is_measured = seen.tensor is not None and seen.tensor >= case.thresholds.compute_tensor_ratio
    shared = others if is_measured else ""
    of_prompts = _prefill_share(case) is not None
    actions = _less_work(case, engine, of_prompts=of_prompts)
    if shared:
        actions = (action("own_gpus", shared=shared), *actions)
    finding = Finding(
        Limit.COMPUTE_BOUND,
        "compute_full",
        _parameters(case, seen, shared, is_measured=is_measured),
        (*_evidence_of_compute(case, seen), *slow),
        actions,
        Level.WARN if suffers else Level.NOTE,
        _confidence(engine, shared, is_measured=is_measured),
    )
    return beside(case, finding, "running" if suffers else "")


def _prefill_share(case: Case) -> float | None:
    """Part of the MFU that is prefill's, where that is most of it; None elsewhere."""
    mfu = case.mean("mfu_ratio")
    prefill = case.mean("mfu_prefill_ratio")
    if mfu is None or prefill is None or prefill < SPLIT * mfu:
        return None
    return prefill / mfu if mfu else 0.0


def _parameters(case: Case, seen: Activity, shared: str, *, is_measured: bool) -> Parameters:
    """Numbers of the sentence: the tensor cores' activity where it is measured, else MFU."""
    return params(
        tensor=seen.tensor if is_measured else None,
        mfu=None if is_measured else case.mean("mfu_ratio"),
        shared=shared,
        prefill=_prefill_share(case) or None,
        waiting=case.waiting_mean() or None,
    )


def _evidence_of_compute(case: Case, seen: Activity) -> list[Evidence]:
    """Figures of the work that is done, of that prefill's, and of requests that wait."""
    proof = list(case.work(seen))
    prefill = case.mean("mfu_prefill_ratio")
    if prefill is not None:
        proof.append(case.evidence("mfu_prefill", "mfu_prefill_ratio", prefill, "mfu"))
    waiting = case.waiting_mean()
    if waiting:
        proof.append(case.evidence("waiting", "waiting", waiting, "waiting"))
    return proof


def _confidence(engine: Engine, shared: str, *, is_measured: bool) -> Confidence:
    """How sure it is: little where signals contradict or others use the GPUs, too."""
    if engine.contradicts or shared:
        return Confidence.LOW
    return Confidence.HIGH if is_measured else Confidence.MEDIUM


def _less_work(case: Case, engine: Engine, *, of_prompts: bool) -> tuple[Action, ...]:
    """Actions against full arithmetic; where requests wait, more instances are the first."""
    more = action("more_instances")
    if of_prompts:
        other = action("split_prefill")
    else:
        other = action("more_gpus", flag=advice(engine.kind).tp)
    faster = (*quantise(engine), other)
    if case.waiting_mean():
        return (more, *faster)
    if of_prompts:
        return (*fewer_prompt_tokens(engine, case.info), *faster, more)
    return (*faster, more)

"""Speculation that does not pay: the draft's tokens are accepted far less than in the hour before, or hardly."""

from __future__ import annotations

from typing import Final

from gpumon.readings.verdict import Evidence, Level, Limit
from gpumon.triage.finding import Cause, Finding, Remedy, params
from gpumon.triage.sentences import ACCEPTANCE, ITL_BEFORE, STOP_SPECULATION, TOKENS_PER_STEP
from gpumon.triage.signals import MINUTE_S, Case, finite

_ACCEPTANCE_LEFT: Final = 0.5
"""Part of its acceptance of before to which it falls where a draft does not fit any more: prompts of another kind
change it by a third."""
_LEAST_ACCEPTANCE: Final = 0.2
"""Acceptance below which most of what the draft computes is thrown away."""
_LEAST_TOKENS_PER_STEP: Final = 1.3
"""Tokens per step and sequence from which on speculation pays all the same: drafts and checks cost 10% to 30%."""
_SLOWER_TIMES: Final = 1.5
"""Times its time per token of before from which on users see the difference."""
CHECK_DRAFT_MODEL: Final = Remedy(
    "check_draft_model",
    ("find what changed (prompts, language, temperature, model without its draft); speculation off until then"),
)
ACCEPTANCE_FELL: Final = Cause(
    "acceptance_fell",
    Limit.SPECULATION_LOW,
    "{now:percent} of the draft tokens are accepted, {before:percent} before[: {per_step:factor} tokens per step]",
)
ACCEPTANCE_LOW: Final = Cause(
    "acceptance_low",
    Limit.SPECULATION_LOW,
    (
        "{now:percent} of the draft tokens are accepted[, {per_step:factor} tokens per step]: "
        "speculation costs more than it gives"
    ),
    level=Level.NOTE,
)


def lost_speculation(case: Case) -> Finding | None:
    """Rule: the draft's tokens are accepted far less than they were, or hardly ever."""
    engine = case.serving_engine()
    acceptance = case.mean("acceptance_ratio")
    if engine is None or acceptance is None or not case.mean("running"):
        return None
    per_step = finite(engine.rates.tokens_per_step)
    before = case.recent.hour.before_fall("acceptance_ratio", acceptance, _ACCEPTANCE_LEFT)
    if before is None and not _is_hardly_accepted(case, acceptance, per_step):
        return None
    parameters = params(now=acceptance, before=before, per_step=per_step)
    slower = slower_tokens(case)
    evidence = _speculation_evidence(case, acceptance, before, per_step, slower)
    if before is None:
        return ACCEPTANCE_LOW.finding(
            parameters=parameters,
            evidence=evidence,
            actions=(STOP_SPECULATION.action(),),
        )
    level = Level.WARN if case.late_latencies() or slower is not None else Level.NOTE
    return ACCEPTANCE_FELL.finding(
        parameters=parameters,
        evidence=evidence,
        actions=(CHECK_DRAFT_MODEL.action(),),
        level=level,
    )


def _speculation_evidence(
    case: Case, acceptance: float, before: float | None, per_step: float | None, slower: Evidence | None
) -> tuple[Evidence, ...]:
    """Acceptance beside its own of before, tokens of a step, and latencies that are longer or late."""
    evidence = [case.evidence(ACCEPTANCE, acceptance, limit=before)]
    if per_step is not None:
        evidence.append(case.evidence(TOKENS_PER_STEP, per_step))
    if slower is not None:
        evidence.append(slower)
    return (*evidence, *case.late_latencies())


def _is_hardly_accepted(case: Case, acceptance: float, per_step: float | None) -> bool:
    """Whether drafts give next to nothing, seen for a minute."""
    if per_step is None or case.recent.seconds < MINUTE_S:
        return False
    return acceptance < _LEAST_ACCEPTANCE and per_step < _LEAST_TOKENS_PER_STEP


def slower_tokens(case: Case) -> Evidence | None:
    """Evidence of the time per token beside its own of before; None where it is not far longer."""
    itl_s = case.mean("itl_mean_s")
    if itl_s is None:
        return None
    itl_before_s = case.recent.hour.before_rise("itl_mean_s", itl_s, _SLOWER_TIMES)
    if itl_before_s is None:
        return None
    return case.evidence(ITL_BEFORE, itl_s, limit=itl_before_s)

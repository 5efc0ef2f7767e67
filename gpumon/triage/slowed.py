"""An engine that takes far longer for the same work than it did: since when, and what changed at that time."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final, NamedTuple

from gpumon.readings.verdict import Action, Confidence, Evidence, Level, Limit
from gpumon.triage.change import Change, exact_change, find_rise, level_until
from gpumon.triage.finding import Cause, Finding, Quantity, params
from gpumon.triage.host import input_starved, profile_action
from gpumon.triage.neighbours import NEIGHBOUR, neighbour
from gpumon.triage.onset import (
    CLOCK_REASON_WORDS,
    NOT_SET,
    RARE,
    actions_against,
    rank_of,
    remembered_slowdown,
    turn_parameters,
    turns_around,
    turns_evidence,
    wall_s,
)
from gpumon.triage.replicas import replica_cases
from gpumon.triage.samples import STEP_EXCESS
from gpumon.triage.saturation import arithmetic_is_full
from gpumon.triage.sentences import COMPARE_REPLICAS, INSPECT_GPU, ITL_BEFORE, LOOK_AT_TIME, OWN_GPUS, TURNED
from gpumon.triage.signals import MINUTE_S, NOW_S, Case
from gpumon.triage.speculation import lost_speculation
from gpumon.triage.turns import PROCESS, Turn

SLOWER_TIMES: Final = 1.5
"""Times its time per step of before, at like work, from which on an engine is slower: users see the difference, and the
figure varies by a tenth at most while nothing is wrong."""
_LEAST_TIMES: Final = {STEP_EXCESS: SLOWER_TIMES, "itl_mean_s": 2.0}
"""Figure -> times that of before from which on an engine is slower; of the time per token twice, as it goes with the
requests that run."""
_AS_MUCH: Final = 1.1
"""Times the tokens or prompts of before up to which they are as many."""
_EXCESS_SOURCE: Final = "ITL x tokens per step / (bytes of a step / peak bandwidth)"
"""Formula of the time of a step beside that of its bytes."""
_FELT_TIMES: Final = 1.25
"""Times its ITL of before from which on users may see it."""
_KNOWN_AFTER_S: Final = 40.0
"""Seconds after which it is known whether a figure has changed at once: its window of 10 s has passed twice."""
_MORE_LOAD: Final = 1.3
"""Times the requests, tokens or prompts of before from which on a load is another one."""
_MUCH_PREFILL: Final = 0.15
"""Prefill MFU from which on more prompts than before may be what makes steps long."""
_COLD_S: Final = 60.0
"""Seconds after a start in which kernels are still compiled and tuned with the first requests."""


EXCESS_OF_REPLICAS: Final = Quantity(
    "excess_of_replicas",
    (
        "a step takes {value:factor} the time of its bytes at the peak bandwidth, [at its "
        "{others:count} replicas|at its replica] {limit:factor}"
    ),
)
STEP_EXCESS_FIGURE: Final = Quantity(
    "step_excess", ("a step takes {value:factor} the time of its bytes at the peak bandwidth, {limit:factor} before")
)
RUNNING_BEFORE: Final = Quantity("running_before", "{value:requests} running, {limit:requests} before", field="running")

SINCE_CHANGE: Final = Cause(
    "since_change",
    Limit.SLOWED_DOWN,
    (
        "ITL [{before:latency} -> ]{now:latency} since {began:clock}[ at like work ({times:factor} "
        "the time of a step)]" + TURNED
    ),
)
DRIFT: Final = Cause(
    "drift",
    Limit.SLOWED_DOWN,
    (
        "ITL [{before:latency} -> ]{now:latency}, little by little since {began:clock}[ at like work "
        "({times:factor} the time of a step)]" + TURNED
    ),
)


class Slowdown(NamedTuple):
    """How much slower an engine is than it was."""

    change: Change
    """Change of the time of a step beside that of its bytes; where these are not known, of the time per token."""
    excess: float
    """The same figure now."""
    causes: tuple[Turn, ...]
    """Changes at that time, the most telling first."""


def slowed_down(case: Case) -> Finding | None:
    """Rule: a decode step takes far longer than before for the bytes that it reads, and no other load explains it."""
    slowdown = _slowdown(case)
    if slowdown is None or _is_told_elsewhere(case, slowdown.causes):
        return None
    change, excess, causes = slowdown
    if causes and causes[0].setting == PROCESS:
        return _arrived_finding(case, causes[0], slowdown)
    itl_s = case.mean("itl_mean_s")
    itl_before_s = _level_before(case, "itl_mean_s", change.began_s)
    times = excess / change.before if _judged_figure(case) == STEP_EXCESS else None
    parameters = params(now=itl_s, before=itl_before_s, times=times, began=wall_s(case, change.began_s))
    cause = SINCE_CHANGE if change.is_sudden else DRIFT
    return cause.finding(
        parameters=parameters | turn_parameters(causes),
        evidence=_slowdown_evidence(case, slowdown),
        actions=actions_against(causes)
        or (LOOK_AT_TIME.action(began=wall_s(case, change.began_s)), profile_action(case)),
        level=Level.WARN,
        confidence=Confidence.HIGH if causes else Confidence.MEDIUM,
        began_s=change.began_s,
    )


def _is_told_elsewhere(case: Case, causes: Sequence[Turn]) -> bool:
    """Whether another verdict has the cause: that of another rule, or that of a GPU."""
    if all(cause.setting in NOT_SET for cause in causes) and _has_other_cause(case):
        return True
    # A clock that is held down, and that nobody set: a throttled GPU has its own verdict, and what is left after that
    # is the work that piled up.
    if not causes or rank_of(causes[0]) == 0 or causes[0].gpu is None:
        return False
    if Limit.THROTTLED in case.found_limits:
        return True
    return causes[0].setting == "clock_reason" and not _is_held(case, causes[0])


def _slowdown_evidence(case: Case, slowdown: Slowdown) -> tuple[Evidence, ...]:
    """Changes at that time, and the figures of before and now."""
    change, excess, causes = slowdown
    evidence = list(turns_evidence(case, causes))
    itl_s = case.mean("itl_mean_s")
    itl_before_s = _level_before(case, "itl_mean_s", change.began_s)
    if itl_s is not None and itl_before_s is not None:
        evidence.append(case.evidence(ITL_BEFORE, itl_s, limit=itl_before_s))
    if _judged_figure(case) == STEP_EXCESS:
        evidence.append(STEP_EXCESS_FIGURE.evidence(excess, limit=change.before, source=_EXCESS_SOURCE))
    return (*evidence, *_load_evidence(case, change.began_s), *case.late_latencies())


def _arrived_finding(case: Case, arrived: Turn, slowdown: Slowdown) -> Finding:
    """The finding on a program that began on its GPU when it became slower: a neighbour, whose use of the GPU nothing
    measures."""
    figures = params(
        process=arrived.after,
        gpu=f"gpu {arrived.gpu}",
        itl_s=case.mean("itl_mean_s"),
        itl_before_s=_level_before(case, "itl_mean_s", slowdown.change.began_s),
    )
    return NEIGHBOUR.finding(
        parameters=figures,
        evidence=_slowdown_evidence(case, slowdown),
        actions=(OWN_GPUS.action(process=arrived.after),),
        began_s=slowdown.change.began_s,
    )


SLOWER_THAN_REPLICAS: Final = Cause(
    "slower_than_replicas",
    Limit.SLOWED_DOWN,
    (
        "[ITL {itl_s:latency}, {others_itl_s:latency} [at its {others:count} replicas|at its "
        "replica]: a step takes {now:factor} the time of its bytes, theirs {before:factor}|a step "
        "takes {now:factor} the time of its bytes, [at its {others:count} replicas|at its replica] "
        "{before:factor}]"
    ),
    confidence=Confidence.MEDIUM,
)


def slower_than_replicas(case: Case) -> Finding | None:
    """Rule: for a minute a decode step has taken far longer than at the replicas for the bytes that it reads."""
    beside = _beside_replicas(case)
    if (
        beside is None
        or _may_compute_prompt(case)
        or beside.excess < SLOWER_TIMES * beside.others_excess
        or _has_other_cause(case)
    ):
        return None
    number = float(beside.others) if beside.others > 1 else None
    compared = params(others=number)
    evidence = EXCESS_OF_REPLICAS.evidence(
        beside.excess, limit=beside.others_excess, source=_EXCESS_SOURCE, parameters=compared
    )
    parameters = params(
        now=beside.excess,
        before=beside.others_excess,
        itl_s=case.mean("itl_mean_s", MINUTE_S),
        others_itl_s=beside.others_itl_s,
    )
    return SLOWER_THAN_REPLICAS.finding(
        parameters=parameters | compared,
        evidence=(evidence, *case.late_latencies()),
        actions=(_look_at_gpus(case), COMPARE_REPLICAS.action()),
    )


class _Beside(NamedTuple):
    """An engine beside its replicas; means of a minute."""

    excess: float
    """Time of its steps beside that of their bytes."""
    others: int
    """Replicas that it is held against."""
    others_excess: float
    """Median of theirs."""
    others_itl_s: float | None
    """Median of their time per token."""


def _beside_replicas(case: Case) -> _Beside | None:
    """An engine beside those replicas that are like it; None where it cannot be held against any."""
    engine = case.serving_engine()
    excess = case.mean(STEP_EXCESS, MINUTE_S)
    if engine is None or excess is None or not _decodes(case):
        return None
    if case.recent.seconds < MINUTE_S or _computes_anew(case):
        return None
    others = [other for other in replica_cases(case, engine) if _is_alike(other, case)]
    prefills = _minute_means(others, "mfu_prefill_ratio")
    prefill = case.mean("mfu_prefill_ratio", MINUTE_S) or 0.0
    if not others or prefill > max(_MUCH_PREFILL, *prefills):
        return None
    their_excess = median(_minute_means(others, STEP_EXCESS))
    return _Beside(excess, len(others), their_excess, median(_minute_means(others, "itl_mean_s")) or None)


def _may_compute_prompt(case: Case) -> bool:
    """Whether its GPUs compute, or may compute, a long prompt, of which nothing counts before its end: tokens beside it
    come with each of its parts."""
    activity = case.activity()
    if activity.tensor is None:
        return not case.mean("prefill_tokens_per_s")
    return arithmetic_is_full(case, activity)


def _minute_means(cases: Sequence[Case], field: str) -> list[float]:
    """Mean of a figure of each engine over the last minute; 0 where it is not known."""
    return [case.mean(field, MINUTE_S) or 0.0 for case in cases]


def _computes_anew(case: Case) -> bool:
    """Whether an engine has just begun, or has thrown requests out of its KV cache: nothing counts that work."""
    has_begun = any(age_s < _COLD_S + MINUTE_S for age_s in case.restart_ages_s)
    return has_begun or bool(case.mean("preemptions_per_s", MINUTE_S))


def _is_alike(other: Case, case: Case) -> bool:
    """Whether another replica runs on as many GPUs of the same type, its steps are known, and it is not slower than
    before itself."""
    if other.key == case.key or other.mean(STEP_EXCESS, MINUTE_S) is None:
        return False
    if other.engine is None or case.engine is None or other.recent.slowdown is not None:
        return False
    hardware = case.engine.hardware
    return other.engine.hardware.gpu_type == hardware.gpu_type and other.engine.hardware.tp == hardware.tp


def _look_at_gpus(case: Case) -> Action:
    """Look at the GPU of an engine with the lowest clock, else at its process."""
    clocks = [(case.gpu_mean(gpu, "sm_clock_hz"), gpu.reading.index) for gpu in case.gpus]
    known = [(clock_hz, index) for clock_hz, index in clocks if clock_hz is not None]
    if known:
        return INSPECT_GPU.action(index=float(min(known)[1]))
    return profile_action(case)


def _slowdown(case: Case) -> Slowdown | None:
    """How much slower an engine has become at like work; None where it has not, or where a load may be why.

    What is slower stays so until it is nearly as fast as before, or an hour has made it the usual.
    """
    field = _judged_figure(case)
    excess = case.mean(field)
    if excess is None or not _decodes(case):
        return None
    recent = case.recent
    remembered = remembered_slowdown(case, excess)
    if remembered is not None:
        change, causes = remembered
        return Slowdown(change, excess, causes)
    found = find_rise(recent.hour.timed_values(field), excess, _LEAST_TIMES[field])
    if found is None or _is_other_work(case, found.began_s) or not _is_felt(case, found.began_s):
        return None
    if field != STEP_EXCESS and _has_more_to_do(case, found.began_s):
        return None
    change = exact_change(case.recent.values(field, case.recent.seconds), found, excess, NOW_S)
    causes = turns_around(case, case.gpus, change.began_s)
    if case.now_s - change.began_s >= _KNOWN_AFTER_S:
        recent.slowdown = (change, causes)
    return Slowdown(change, excess, causes)


def _judged_figure(case: Case) -> str:
    """The figure by which an engine is held against itself: the time of a step beside that of its bytes, where its
    model and its GPUs are known, else the time per token."""
    if case.recent.last(STEP_EXCESS) is not None or case.recent.hour.values(STEP_EXCESS):
        return STEP_EXCESS
    return "itl_mean_s"


def _has_more_to_do(case: Case, began_s: float) -> bool:
    """Whether an engine gives more tokens, or computes more prompts, than on average before: without the bytes of a
    step any such load may be why tokens take longer."""
    for field in ("decode_tokens_per_s", "prefill_tokens_per_s"):
        before = _level_before(case, field, began_s)
        now = case.mean(field, MINUTE_S)
        if before is not None and now is not None and now > _AS_MUCH * before:
            return True
    return False


def _level_before(case: Case, field: str, began_s: float) -> float | None:
    """Median of a figure in the slots that ended before a change."""
    return level_until(case.recent.hour.timed_values(field), began_s)


def _decodes(case: Case) -> bool:
    """Whether an engine has requests that get their tokens in its own time: not after a stall."""
    engine = case.serving_engine()
    return engine is not None and not engine.asleep and bool(case.mean("running")) and not case.after_stall()


def _is_felt(case: Case, began_s: float) -> bool:
    """Whether tokens take longer, too: with shorter contexts a step has fewer bytes, which are an estimate."""
    itl_s = case.mean("itl_mean_s")
    before_s = _level_before(case, "itl_mean_s", began_s)
    return itl_s is not None and before_s is not None and itl_s >= _FELT_TIMES * before_s


def _is_other_work(case: Case, began_s: float) -> bool:
    """Whether it has other work than before, which may be why steps take longer: far more of it than at any time,
    kernels that are compiled after a start, or prompts that are computed anew after a preemption, which nothing counts.

    More requests at once are no other load where they give no more tokens: they are there because answers take longer.
    """
    if any(age_s < _COLD_S for age_s in case.restart_ages_s) or case.mean("preemptions_per_s", MINUTE_S):
        return True
    if _is_more(case, "running", began_s) and _is_more(case, "decode_tokens_per_s", began_s):
        return True
    prefill = case.mean("mfu_prefill_ratio", MINUTE_S) or 0.0
    return prefill >= _MUCH_PREFILL and _is_more(case, "prefill_tokens_per_s", began_s)


def _is_more(case: Case, field: str, began_s: float) -> bool:
    """Whether a figure is far above the highest that it had before a change."""
    before = [value for end_s, value in case.recent.hour.timed_values(field) if end_s <= began_s]
    now = case.mean(field, MINUTE_S)
    return now is not None and now > _MORE_LOAD * max(before, default=0.0)


def _has_other_cause(case: Case) -> bool:
    """Whether another rule has the cause: a program beside it, a draft that does not fit, a host that holds it up."""
    return any(rule(case) is not None for rule in (neighbour, lost_speculation, input_starved))


def _is_held(case: Case, turn: Turn) -> bool:
    """Whether a clock is still held by the reason of a turn."""
    for gpu in case.gpus:
        for reason, words in CLOCK_REASON_WORDS.items():
            if gpu.reading.index == turn.gpu and words == turn.after and (case.gpu_mean(gpu, reason) or 0.0) > RARE:
                return True
    return False


def _load_evidence(case: Case, began_s: float) -> list[Evidence]:
    """Requests that run beside those of before: the load is no cause."""
    running = case.mean("running", MINUTE_S)
    before = _level_before(case, "running", began_s)
    if running is None or before is None:
        return []
    return [case.evidence(RUNNING_BEFORE, running, limit=before)]

"""An engine without tokens, or a training run without steps, in steps: wait or check, then restart."""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, NamedTuple

from gpumon.efficiency.service import FRONTENDS
from gpumon.readings.flat import value_of
from gpumon.readings.frame import EndpointState, GpuState, Phase
from gpumon.readings.missing import number
from gpumon.readings.quantities import (
    DECODE_TOKENS,
    PAUSED,
    PREFILL_CACHED,
    PREFILL_COMPUTED,
    PROMPT_TOKENS,
    SLEEP_OPERATIONS,
    WEIGHT_UPDATES,
)
from gpumon.readings.snapshot import Engine
from gpumon.readings.verdict import Action, Confidence, Evidence, Level, Limit, Parameters, Team
from gpumon.triage.advice import advice
from gpumon.triage.engine_state import (
    broken_gpus,
    gpu_names,
    is_broken_waited_for,
    look_and_restart,
    processes_of,
    wait_or_check,
)
from gpumon.triage.finding import Cause, Finding, Quantity, Remedy, params, unsure, yes_if
from gpumon.triage.kv_transfer import check_other_side, explains_stall
from gpumon.triage.progress.tokens import without_tokens_s
from gpumon.triage.progress.work import (
    QUIET_S,
    GpuWork,
    WorkKind,
    gpu_work,
    nothing_moves,
    sign_evidence,
    work_parameters,
    work_signs,
)
from gpumon.triage.samples import KEPT_S, STALLED
from gpumon.triage.sentences import ASLEEP_FIGURE, KV_USAGE, NO_TOKEN, RUNNING, WAITING
from gpumon.triage.signals import AFTER_STALL_S, TOKEN_TOTALS, YES, Case, finite

_REST: Final = (
    "[its GPUs are not working (memory bandwidth {dram:percent}[, tensor cores {tensor:percent}]"
    "[, busy {busy:percent}])|its GPUs are idle (SM {sm:percent})|its GPUs are idle ({busy:percent} busy)]"
)
_LOAD: Final = "[, {running:requests} running][, {waiting:requests} waiting]"
_AT_WORK: Final = (
    "[; CPU {cpu:percent} of a core][; PCIe {pcie:bytes}/s][; NVLink {nvlink:bytes}/s]"
    "[; KV cache moves at {kv:bytes}/s][; the host's disks read {disk:bytes}/s]"
    "[; its GPUs move memory (memory bandwidth {reads:percent})]"
)
"""Template of the signs of work."""
_LONGEST_TTFT_S: Final = KEPT_S - 10.0
"""A longer time to first token is one of queueing: the requests that run give tokens all the same. The samples reach
back a little beyond it."""
_STALL_TTFT_TIMES: Final = 3.0
"""Times the usual time to first token from which on a time without a token is a stall."""
_STEP_TOTALS: Final = ("tokens_total.trained", "tokens_total.samples")
"""Sampled fields that move with each step of a training run."""
_GOES_ON_S: Final = 15.0
"""Seconds after the end of such a hold in which the first token may still be on its way."""
_SILENT_STATES: Final = frozenset(
    {EndpointState.TIMEOUT, EndpointState.REFUSED, EndpointState.DOWN, EndpointState.DRAINING}
)
"""States of an engine that does not answer, which have verdicts of their own."""
_GAUGES_SETTLE_S: Final = 5.0
"""Seconds at the begin of a stall in which gauges may still move for the last token before it."""
_TOKEN_COUNTERS: Final = (DECODE_TOKENS, PREFILL_COMPUTED, PREFILL_CACHED, PROMPT_TOKENS)
"""Counters that move with the first token of an engine's process."""


NO_STEP: Final = Quantity("no_step", "no step for {value:lasted}", field="decode_tokens_per_s", chart="")
GPU_ACTIVITY: Final = Quantity("gpu_activity", "GPU activity unknown")
WEIGHT_UPDATES_FIGURE: Final = Quantity(
    "weight_updates", "{value:requests} operations of a weight update in flight", field=WEIGHT_UPDATES
)
SLEEP_OPERATIONS_FIGURE: Final = Quantity(
    "sleep_operations", "{value:requests} operations of its sleep mode in flight", field=SLEEP_OPERATIONS
)
PAUSED_REQUESTS: Final = Quantity("paused_requests", "{value:requests} requests held by the server", field=PAUSED)
_HOLDS: Final = (PAUSED_REQUESTS, WEIGHT_UPDATES_FIGURE, SLEEP_OPERATIONS_FIGURE)
"""Gauges of a server that says itself that it gives no token on purpose."""
FIND_STUCK_REQUEST: Final = Remedy(
    "find_stuck_request",
    (
        "find the request at the head of its queue, which needs more than there is[ (KV cache: "
        "{tokens:tokens} tokens)], and let its client take it back; limit requests at the gateway[, "
        "or lower {flag}]; of an engine that a trainer pauses: resume it"
    ),
)
FIX_GPU_FIRST: Final = Remedy(
    "fix_gpu_first", "fix {gpus} first: a restart on the same GPUs fails until then", team=Team.HARDWARE
)
WAIT_FOR_COMPILE: Final = Remedy(
    "wait_for_compile",
    (
        "wait: the first request [{eager=yes}loads its kernels, for minutes|compiles kernels and "
        "graphs for minutes]; look at its log"
    ),
)
SEND_ONE_REQUEST: Final = Remedy("send_one_request", "send it one request: if a token comes, only its gauges froze")
STOP_EXPORTER: Final = Remedy(
    "stop_exporter", "where it has ended, stop its exporter or take it out of the config", team=Team.OWNER
)

RUN_ENDED: Final = Cause(
    "run_ended",
    Limit.HUNG,
    "no {unit} for {seconds:lasted}: " + _REST + ", and next to no memory is held on them: it seems to have ended",
    level=Level.NOTE,
    confidence=Confidence.MEDIUM,
)
RUN_HUNG_OR_ENDED: Final = Cause(
    "run_hung_or_ended",
    Limit.HUNG,
    "no {unit} for {seconds:lasted}: " + _REST + ": it hangs, or has ended and left its exporter",
    confidence=Confidence.MEDIUM,
)


class Stall(NamedTuple):
    """Requests, or a training run, that make no progress."""

    unit: str
    """`token` or `step`."""
    seconds: float
    """For how long."""
    least_s: float
    """Seconds from which on that is worth a word."""
    parameters: Parameters
    """Parameters of the verdict's sentence: how long, how many requests run and wait."""
    evidence: tuple[Evidence, ...]

    def with_evidence(self, *evidence: Evidence, **parameters: float | str | None) -> Stall:
        """This stall with more evidence and parameters."""
        return self._replace(
            evidence=(*self.evidence, *evidence), parameters={**self.parameters, **params(**parameters)}
        )


def hung(case: Case) -> Finding | None:
    """Rule: requests run and no token comes, or a training run makes no step, and its GPUs do not compute."""
    engine = case.engine
    if engine is None or engine.kind in FRONTENDS or engine.state in _SILENT_STATES:
        return None
    training = engine.phase is Phase.TRAINING
    stall = _stalled_run(case) if training else _stalled_requests(case, engine)
    if stall is None:
        return None
    finding = _lost_gpu_finding(case, engine, stall)
    if finding is None and training:
        finding = _run_without_steps(case, engine, stall)
    elif finding is None:
        finding = _engine_without_tokens(case, engine, stall)
    if finding is None:
        return None
    return finding._replace(began_s=case.now_s - stall.seconds)


def _stalled_run(case: Case) -> Stall | None:
    """A training run without a step for longer than validation or a checkpoint takes."""
    least_s = case.thresholds.stalled_training_s
    seconds = case.unmoved_s(_STEP_TOTALS)
    if seconds is None or seconds < least_s:
        return None
    evidence = case.evidence(NO_STEP, seconds, limit=least_s)
    return Stall(
        unit="step",
        seconds=seconds,
        least_s=least_s,
        parameters=params(seconds=seconds, unit="step"),
        evidence=(evidence,),
    )


def _stalled_requests(case: Case, engine: Engine) -> Stall | None:
    """Requests without a token for longer than a slow first token takes."""
    seconds = without_tokens_s(case)
    if seconds is None or seconds < case.thresholds.stalled_s:
        return None
    least_s = max(case.thresholds.stalled_s, min(_STALL_TTFT_TIMES * _usual_ttft_s(case), _LONGEST_TTFT_S))
    if seconds < least_s:
        return None
    evidence = case.evidence(NO_TOKEN, seconds, limit=least_s)
    stall = Stall(
        unit="token",
        seconds=seconds,
        least_s=least_s,
        parameters=params(seconds=seconds, unit="token"),
        evidence=(evidence,),
    )
    for quantity in (RUNNING, WAITING):
        count = finite(value_of(engine, quantity.field))
        if count:
            stall = stall.with_evidence(case.evidence(quantity, count), **{quantity.code: count})
    return stall


def _usual_ttft_s(case: Case) -> float:
    """Longest mean time to first token of the last minutes; what a stall before this one did to it is left out."""
    stalls_s = [at_s for at_s, stalled in case.recent.values(STALLED, KEPT_S) if stalled]
    usual_s = 0.0
    for at_s, ttft_s in case.recent.values("ttft_s.mean", KEPT_S):
        stalls_before = bisect_right(stalls_s, at_s)
        if not stalls_before or at_s >= stalls_s[stalls_before - 1] + AFTER_STALL_S:
            usual_s = max(usual_s, ttft_s)
    return usual_s


HUNG_LOST_GPU: Final = Cause(
    "hung_lost_gpu",
    Limit.HUNG,
    (
        "no {unit} for {seconds:lasted}"
        + _LOAD
        + ": {gpus}, which it runs on, [{mute=yes}[{several=yes}do|does] not answer the "
        "driver|[{several=yes}are|is] lost]"
    ),
    level=Level.CRITICAL,
)


def _lost_gpu_finding(case: Case, engine: Engine, stall: Stall) -> Finding | None:
    """The finding on a GPU of the engine that is lost, which comes first; None where all are there."""
    broken = broken_gpus(case)
    if not broken:
        return None
    lost = gpu_names(broken)
    fix = FIX_GPU_FIRST.action(gpus=lost)
    is_mute = any(gpu.reading.state is GpuState.MUTE for gpu in broken)
    parameters = stall.parameters | params(gpus=lost, several=yes_if(len(broken) > 1), mute=yes_if(is_mute))
    totals: tuple[str, ...] = _STEP_TOTALS if engine.phase is Phase.TRAINING else TOKEN_TOTALS
    if is_broken_waited_for(case, engine, broken, totals):
        parameters |= params(waits="for_it")
    return HUNG_LOST_GPU.finding(
        parameters=parameters,
        evidence=stall.evidence,
        actions=(fix,),
    )


HUNG_SPINNING: Final = Cause(
    "hung_spinning",
    Limit.HUNG,
    "no {unit} for {seconds:lasted}" + _LOAD + ": " + _REST,
    level=Level.CRITICAL,
)


def _run_without_steps(case: Case, engine: Engine, stall: Stall) -> Finding | None:
    """The finding on a training run that hangs, or has ended and left its exporter; None while its GPUs work."""
    gpus = gpu_work(case, stall.least_s)
    if gpus.work in (WorkKind.COMPUTES, WorkKind.MOVES):
        return None
    if gpus.work is WorkKind.UNKNOWN:
        return unsure(gpus.missing)._replace(evidence=stall.evidence)
    stall = stall.with_evidence(*gpus.evidence, **gpus.parameters)
    restart = look_and_restart(processes_of(case, engine))
    if gpus.work is WorkKind.SPINS:
        return HUNG_SPINNING.finding(
            parameters=stall.parameters,
            evidence=stall.evidence,
            actions=(restart,),
        )
    cause = RUN_ENDED if _memory_is_free(case) else RUN_HUNG_OR_ENDED
    return cause.finding(
        parameters=stall.parameters,
        evidence=stall.evidence,
        actions=(STOP_EXPORTER.action(), _only_if_needed(restart)),
    )


def _memory_is_free(case: Case) -> bool:
    """Whether next to no memory of its GPUs is held: a run that lives holds some."""
    limit = case.thresholds.held_ratio
    for gpu in case.gpus:
        used = number(gpu.reading.vram_used_bytes)
        total = number(gpu.reading.vram_total_bytes)
        if used is None or not total or used > limit * total:
            return False
    return True


def _engine_without_tokens(case: Case, engine: Engine, stall: Stall) -> Finding | None:
    """The finding on an engine that is paused, compiles, or may or does hang; None while its GPUs compute.

    One that waits for another engine's KV cache has a rule of its own.
    """
    paused = _paused_finding(case, engine, stall)
    if paused is not None:
        case.recent.held_s = case.now_s
        return paused
    gpus = gpu_work(case, stall.least_s)
    if gpus.work is WorkKind.COMPUTES or case.now_s - case.recent.held_s < _GOES_ON_S:
        return None
    return _finding_on_stall(case, engine, stall, gpus)


def _finding_on_stall(case: Case, engine: Engine, stall: Stall, gpus: GpuWork) -> Finding | None:
    """The finding on an engine without tokens that nobody holds, and whose GPUs do not compute; None where the other
    side of a KV transfer explains it."""
    is_still = nothing_moves(case, engine, stall.seconds)
    is_late = stall.seconds >= max(case.thresholds.hung_s, stall.least_s)
    if explains_stall(case) and not (is_late and is_still):
        return None  # it waits for the other side: rules of `kv_transfer` say so
    stall = _with_signs(case, engine, stall, gpus)
    if gpus.work is not WorkKind.SPINS and _gave_tokens(case) and _is_passed_over(case, stall.seconds, is_late=is_late):
        return _stuck_finding(case, engine, stall)
    if _compiles(case, stall.seconds):
        return _compiling_finding(engine, stall)
    if gpus.work in (WorkKind.RESTS, WorkKind.SPINS) and (is_late or is_still):
        return _hang_finding(case, engine, stall, gpus.work)
    # It is too early for a restart, or not sure: it may compile, load weights or wait for others.
    check = wait_or_check(case, processes_of(case, engine), is_late=is_late)
    return NO_TOKENS.finding(parameters=stall.parameters, evidence=stall.evidence, actions=(check,))


HUNG_COMPILING: Final = Cause(
    "hung_compiling",
    Limit.HUNG,
    (
        "no {unit} for {seconds:lasted}"
        + _LOAD
        + ": "
        + _REST
        + "; no token yet: [{eager=yes}its first kernels are loaded?|compiling?]"
    ),
    level=Level.NOTE,
    confidence=Confidence.LOW,
)


def _compiling_finding(engine: Engine, stall: Stall) -> Finding:
    """The finding on an engine that may compile for its first requests; after `compile_s` it hangs."""
    eager = yes_if(engine.options.is_on("eager"))  # it makes no graphs, and still loads kernels
    return HUNG_COMPILING.finding(
        parameters=stall.parameters | params(eager=eager),
        evidence=stall.evidence,
        actions=(WAIT_FOR_COMPILE.action(eager=eager),),
    )


def _is_passed_over(case: Case, seconds: float, *, is_late: bool) -> bool:
    """Whether its scheduler has looked at requests that wait for room, and lets none of them run.

    A scheduler that hangs counts neither the requests that wait nor new ones: a queue that moves is alive. One that
    stands still was alive when it counted them.
    """
    if case.newest("running") != 0.0 or not case.waiting_mean():
        return False
    if case.recent.steady_s("running") < min(seconds, case.thresholds.stalled_s) - _GAUGES_SETTLE_S:
        return False
    return not is_late or _load_moves(case, seconds)


STUCK_WAITING: Final = Cause(
    "stuck_waiting",
    Limit.HUNG,
    (
        "{waiting:requests} waiting, none running, no {unit} for {seconds:lasted}[: KV cache[ of "
        "{pool:tokens} tokens] {usage:percent} full]: the first of them finds no room, or it is "
        "paused"
    ),
    confidence=Confidence.MEDIUM,
)


def _stuck_finding(case: Case, engine: Engine, stall: Stall) -> Finding:
    """The finding on requests that wait for room while none runs: the first of them fits nowhere, or it is paused."""
    usage = case.newest("kv_usage_ratio")
    pool_tokens = finite(engine.load.kv_pool_tokens)
    if usage is not None:
        stall = stall.with_evidence(case.evidence(KV_USAGE, usage), usage=usage)
    level = Level.CRITICAL if stall.seconds >= QUIET_S and _load_moves(case, stall.seconds) else Level.WARN
    restart = look_and_restart(processes_of(case, engine))
    find = FIND_STUCK_REQUEST.action(flag=advice(engine.kind).longest_context, tokens=pool_tokens)
    return STUCK_WAITING.finding(
        parameters=stall.parameters | params(pool=pool_tokens),
        evidence=stall.evidence,
        actions=(find, _only_if_needed(restart)),
        level=level,
    )


def _with_signs(case: Case, engine: Engine, stall: Stall, gpus: GpuWork) -> Stall:
    """The stall with what its GPUs, processes and links do."""
    signs = work_signs(case, engine)
    activity = gpus.evidence or (GPU_ACTIVITY.evidence(),)  # without a value: it is named as not known
    reads = gpus.parameters["dram"] if gpus.work is WorkKind.MOVES else None
    return stall.with_evidence(
        *activity, *sign_evidence(signs), **gpus.parameters, **work_parameters(signs), reads=reads
    )


PAUSED_ON_PURPOSE: Final = Cause(
    "paused",
    Limit.HUNG,
    (
        "no {unit} for {seconds:lasted}"
        + _LOAD
        + ": paused ([asleep: {how}|{weight_updates:requests} operations of a weight update in "
        "flight|{sleep_operations:requests} operations of its sleep mode in "
        "flight|{paused_requests:requests} requests held while its weights are updated])"
    ),
)


def _paused_finding(case: Case, engine: Engine, stall: Stall) -> Finding | None:
    """The finding on an engine that somebody put to sleep, or that holds its requests for new weights; else None."""
    evidence: list[Evidence] = []
    held: dict[str, float] = {}
    for quantity in _HOLDS:
        count = _gauge_sum(case, quantity.field)
        if count:
            held[quantity.code] = count
            evidence.append(case.evidence(quantity, count))
    if engine.asleep:
        evidence.append(ASLEEP_FIGURE.evidence(parameters=params(how=engine.asleep)))
    if not evidence:
        return None
    stall = stall.with_evidence(*evidence, how=engine.asleep, **held)
    level = Level.WARN if stall.seconds >= case.thresholds.hung_s else Level.NOTE
    wait = wait_or_check(case, processes_of(case, engine), is_paused=True)
    return PAUSED_ON_PURPOSE.finding(
        parameters=stall.parameters,
        evidence=stall.evidence,
        actions=(wait,),
        level=level,
    )


def _gauge_sum(case: Case, gauge: str) -> float:
    """A gauge of the server's page, summed over its ranks; 0 where it has none."""
    if case.reading is None:
        return 0.0
    return sum(finite(rank.gauges.get(gauge)) or 0.0 for rank in case.reading.ranks)


def _compiles(case: Case, seconds: float) -> bool:
    """Whether it may still compile: its process gave no token yet, and its first requests are minutes old at most."""
    # The samples begin with gpumon: for how long the same requests run is known only beyond `KEPT_S`.
    steady_s = max(KEPT_S, case.recent.steady_s("running"))
    return not _gave_tokens(case) and min(seconds, steady_s) < case.thresholds.compile_s


def _gave_tokens(case: Case) -> bool:
    """Whether a token of its process was counted: by the engine, else by gpumon."""
    counts = []
    if case.reading is not None:
        for rank in case.reading.ranks:
            counts += [rank.counters[name] for name in _TOKEN_COUNTERS if name in rank.counters]
    if counts:
        return any(counts)
    if case.engine is None:
        return False
    totals = case.engine.tokens_total
    return any(map(number, (totals.decode, totals.prefill_computed, totals.prefill_cached)))


NO_TOKENS: Final = Cause(
    "no_tokens",
    Limit.HUNG,
    "no {unit} for {seconds:lasted}" + _LOAD + ": wait or check" + _AT_WORK,
    confidence=Confidence.MEDIUM,
)


HUNG_IDLE: Final = Cause(
    "hung_idle",
    Limit.HUNG,
    "no {unit} for {seconds:lasted}" + _LOAD + ": " + _REST,
    level=Level.CRITICAL,
    confidence=Confidence.LOW,
)
HUNG_OR_FROZEN: Final = Cause(
    "hung_or_frozen",
    Limit.HUNG,
    "no {unit} for {seconds:lasted}" + _LOAD + ": " + _REST + ": it hangs, or its gauges froze after an abort",
    confidence=Confidence.MEDIUM,
)


def _hang_finding(case: Case, engine: Engine, stall: Stall, work: WorkKind) -> Finding:
    """The finding on an engine that hangs, or whose gauges froze: engines renew them with their steps.

    After an abort of all requests there is no step (vLLM #22545).
    """
    restart = look_and_restart(processes_of(case, engine))
    parameters = stall.parameters
    evidence = stall.evidence
    if work is WorkKind.SPINS:
        return HUNG_SPINNING.finding(
            parameters=parameters,
            evidence=evidence,
            actions=(restart,),
        )
    if explains_stall(case):
        return HUNG_IDLE.finding(
            parameters=parameters,
            evidence=evidence,
            actions=(check_other_side(case), _only_if_needed(restart)),
        )
    # Requests wait and are not taken, or came and went: its gauges are alive, so that the engine hangs itself.
    if "waiting" in parameters or _load_moves(case, stall.seconds):
        return HUNG_IDLE.finding(
            parameters=parameters,
            evidence=evidence,
            actions=(restart,),
            confidence=Confidence.MEDIUM,
        )
    return HUNG_OR_FROZEN.finding(
        parameters=parameters,
        evidence=evidence,
        actions=(SEND_ONE_REQUEST.action(), _only_if_needed(restart)),
    )


def _load_moves(case: Case, seconds: float) -> bool:
    """Whether requests came or went meanwhile, so that its gauges are alive."""
    for field in ("running", "waiting"):
        values = [
            value
            for at_s, value in case.recent.values(field, seconds)
            if at_s > case.now_s - seconds + _GAUGES_SETTLE_S
        ]
        if values and max(values) != min(values):
            return True
    return False


def _only_if_needed(last_resort: Action) -> Action:
    """The action, to take only where the one before it does not help: what may be healthy is not restarted."""
    return Action(last_resort.code, last_resort.parameters | params(otherwise=YES))

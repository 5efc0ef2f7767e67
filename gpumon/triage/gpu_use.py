"""Rules on GPUs without an engine: they do nothing, little, or work for a program."""

from __future__ import annotations

from typing import Final, NamedTuple

from gpumon.efficiency.faults import is_free
from gpumon.readings.frame import EndpointState, GpuState
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading
from gpumon.readings.snapshot import Gpu
from gpumon.readings.text import clean
from gpumon.readings.verdict import Action, Confidence, Evidence, Level, Limit, Parameters, Signal, Team
from gpumon.triage.finding import Cause, Finding, Remedy, params, unsure, yes_if
from gpumon.triage.gpu_figures import (
    asleep_s,
    gpu_of,
    idle_cost,
    is_explained,
    program_names,
    unplaced_engines,
    vram_evidence,
    vram_in_use,
)
from gpumon.triage.gpu_hardware import broken
from gpumon.triage.gpu_memory import is_told_of_another
from gpumon.triage.programs import waits_for_rank
from gpumon.triage.samples import KEPT_S
from gpumon.triage.savings import with_savings
from gpumon.triage.sentences import (
    ADD_ENDPOINT,
    BUSY,
    FIND_HOLDER,
    GPU_STATE,
    IDLE_TIME,
    MAP_ENGINE,
    NOT_VISIBLE,
    SAVES,
    SM_ACTIVE,
    TENSOR_ACTIVE,
)
from gpumon.triage.signals import MINUTE_S, NOW_S, Case, finite, gpu_chart

_LEAST_SAMPLED_S: Final = KEPT_S - 30.0
"""Seconds of samples from which on the use of a GPU is judged: its verdict, which must hold for 30 s, comes after 3
min."""
_WELL_USED_SM: Final = 0.5
"""SM activity from which on a GPU is well used."""
_PAUSE_S: Final = 5.0
"""Seconds for which a GPU did nothing after which it is not said to work."""
_UNUSABLE_STATES: Final = frozenset({GpuState.LOST, GpuState.MUTE, GpuState.RESET_REQUIRED, GpuState.INITIALISING})
"""States in which there is no question of use."""
_GONE_STATES: Final = frozenset({EndpointState.REFUSED, EndpointState.DOWN})
"""States of an engine whose process is not there any more, or is a new one."""


ASK_OWNER: Final = Remedy(
    "ask_owner",
    ("ask its owner whether it is still needed" + SAVES + ": it can be ended, or share its GPU with others"),
)
SHARE_GPU_OR_BATCH: Final = Remedy(
    "share_gpu_or_batch", "let it share its GPU with others, or give it larger batches", team=Team.OWNER
)
USE_FREE_GPU: Final = Remedy("use_free_gpu", "free for other work" + SAVES)

GPU_IDLE: Final = Cause(
    "gpu_idle",
    Limit.IDLE,
    "idle for {seconds:lasted}[: {cost:money}][, with {processes} on it|{free=yes}, nothing runs on it]",
    level=Level.NOTE,
    confidence=Confidence.MEDIUM,
)


def gpu_under_used(case: Case) -> Finding | None:
    """Rule: a GPU without an engine does little or nothing."""
    idle_s = asleep_s(case)
    if is_explained(case) or _is_split(case) or max(case.recent.seconds, idle_s) < _LEAST_SAMPLED_S:
        return None
    fault = broken(case)
    if fault is not None and fault.level in (Level.CRITICAL, Level.WARN):
        return None  # it is not free for other work
    use = _mean_use(case)
    if use is None or use.share >= case.thresholds.busy_low_ratio:
        return None
    if idle_s > MINUTE_S:
        return _idle_finding(case, idle_s)
    return _hardly_used_finding(case, use)


def _idle_finding(case: Case, idle_s: float) -> Finding:
    """The finding on a GPU that does nothing, with who holds its memory and what that costs."""
    gpu = gpu_of(case)
    limits = case.thresholds
    code = Limit.IDLE
    evidence = [case.evidence(IDLE_TIME, idle_s, limit=limits.gpu_idle_s)]
    vram = vram_in_use(gpu)
    if vram is not None:
        used, total = vram
        evidence.append(vram_evidence(case, used, total))
        if used >= limits.held_ratio * total:
            code = Limit.IDLE_VRAM_HELD
    parameters = params(
        seconds=idle_s, processes=program_names(gpu), free=yes_if(_runs_nothing(case)), cost=idle_cost(case, gpu)
    )
    actions: tuple[Action, ...] = (_use_action(case, gpu, ASK_OWNER),)
    if unplaced_engines(case) is None:
        actions = with_savings(actions, 1.0, idle_cost(case, gpu))
    began_s = case.now_s - idle_s
    return GPU_IDLE.finding(
        limit=code,
        parameters=parameters,
        evidence=tuple(evidence),
        actions=actions,
        began_s=began_s,
    )


GPU_HARDLY_USED: Final = Cause(
    "gpu_hardly_used",
    Limit.LOW_EFFICIENCY,
    "[{busy:percent} busy|SM {sm:percent} active] over 3 min[, with {processes} on it|{free=yes}, nothing runs on it]",
    level=Level.NOTE,
    confidence=Confidence.MEDIUM,
)


def _hardly_used_finding(case: Case, use: _Use) -> Finding:
    """The finding on a GPU that does little."""
    gpu = gpu_of(case)
    limit = case.thresholds.busy_low_ratio
    if use.is_busy:
        evidence = [case.evidence(BUSY, use.share, limit=limit, window_s=KEPT_S)]
    else:
        evidence = [_sm_evidence(gpu, use.share, limit)]
    vram = vram_in_use(gpu)
    if vram is not None:
        evidence.append(vram_evidence(case, *vram))
    parameters = use.parameters | params(processes=program_names(gpu), free=yes_if(_runs_nothing(case)))
    return GPU_HARDLY_USED.finding(
        parameters=parameters,
        evidence=tuple(evidence),
        actions=(_use_action(case, gpu, SHARE_GPU_OR_BATCH),),
    )


def _runs_nothing(case: Case) -> bool:
    """Whether nothing runs on the GPU: no process is listed, and no memory is in use."""
    return case.gpu_reading is not None and is_free(case.gpu_reading)


def _use_action(case: Case, gpu: Gpu, program_action: Remedy) -> Action:
    """The action for a GPU with little work: name its engine, act on its program (`program_action`), or use it."""
    engine_names = unplaced_engines(case)
    if engine_names:
        return MAP_ENGINE.action(engines=engine_names)
    if engine_names is not None:
        # A server's process is seen, and no engine is listed that it may be.
        return ADD_ENDPOINT.action()
    if gpu.reading.processes:
        return program_action.action()
    if _runs_nothing(case):
        return USE_FREE_GPU.action()
    return FIND_HOLDER.action(index=float(gpu.reading.index))


def works_without_engine(case: Case) -> Finding | None:
    """Rule: a GPU without an engine works: healthy where its own activity shows that, else nobody can tell."""
    gpu = gpu_of(case)
    if is_explained(case) or _is_split(case) or gpu.reading.state in _UNUSABLE_STATES or waits_for_rank(case):
        return None
    use = _mean_use(case)
    if use is None:
        return _unknown_busy(gpu)
    least_busy = case.thresholds.busy_low_ratio
    if case.recent.seconds < MINUTE_S or use.share < least_busy or _worked_for_ended_engine(case, least_busy):
        return None
    return _at_work_finding(case, gpu, use)


GPU_AT_WORK: Final = Cause(
    "gpu_at_work",
    Limit.HEALTHY,
    "{processes}: SM active {sm:percent}",
    level=Level.OK,
    confidence=Confidence.MEDIUM,
)


def _at_work_finding(case: Case, gpu: Gpu, use: _Use) -> Finding | None:
    """The finding on a GPU that works: healthy where its SMs show it, else nobody can tell."""
    sm = finite(case.recent.mean("sm_active_ratio", MINUTE_S))
    evidence = _evidence_of_work(case, gpu, use, sm)
    programs = program_names(gpu) or NOT_VISIBLE
    if sm is None or not _is_well_used(case, sm):
        if asleep_s(case) > _PAUSE_S:  # its last minutes are of before
            return None
        engine_names = unplaced_engines(case)
        parameters = use.parameters | params(processes=programs, engines=engine_names)
        fix = _fix_of_unknown_work(case, engine_names)
        return unsure((Signal("gpu_work", fix=fix, parameters=parameters),), evidence)
    if is_told_of_another(case):
        return None
    if case.found_limits:  # a locked clock, a program's Xid, a wait for the host: it works, and something stands
        return None
    parameters = params(processes=programs, sm=sm)
    return GPU_AT_WORK.finding(
        parameters=parameters,
        evidence=evidence,
    )


def _is_well_used(case: Case, sm: float) -> bool:
    """Whether the SMs of a GPU were active enough in the last minute, or in those seconds of it in which it worked."""
    busy = finite(case.recent.mean("busy_ratio", MINUTE_S))
    if sm >= _WELL_USED_SM or not busy:
        return sm >= _WELL_USED_SM
    return busy >= case.thresholds.busy_low_ratio and sm / busy >= _WELL_USED_SM


def _unknown_busy(gpu: Gpu) -> Finding:
    """The finding on a GPU whose driver does not tell how busy it is."""
    state = GPU_STATE.evidence(source="NVML", parameters=params(state=gpu.reading.state.value))
    reading: Reading = gpu.reading.busy_ratio
    if isinstance(reading, Missing):
        why = clean(reading.detail, 80) or reading.reason.value.replace("_", " ")
    else:
        why = gpu.reading.state.value.replace("_", " ")
    return unsure((Signal("busy", parameters=params(why=why)),), (state,))


def _evidence_of_work(case: Case, gpu: Gpu, use: _Use, sm: float | None) -> tuple[Evidence, ...]:
    """Busy share, and the activity of SMs and tensor cores, as far as they are known."""
    evidence = []
    if use.is_busy:
        evidence.append(case.evidence(BUSY, use.share, window_s=KEPT_S))
    if sm is not None:
        evidence.append(_sm_evidence(gpu, sm))
    tensor = finite(case.recent.mean("tensor_active_ratio", MINUTE_S))
    if tensor is not None:
        source = gpu.reading.activity_source or "GPM"
        evidence.append(TENSOR_ACTIVE.evidence(tensor, source=source, chart=gpu_chart(gpu, "tensor")))
    return tuple(evidence)


def _sm_evidence(gpu: Gpu, sm: float, limit: Reading = NOT_EXPOSED) -> Evidence:
    """Evidence of the activity of a GPU's SMs."""
    return SM_ACTIVE.evidence(sm, limit, gpu.reading.activity_source or "GPM", gpu_chart(gpu, "sm"))


def _worked_for_ended_engine(case: Case, least_busy: float) -> bool:
    """Whether the work was that of an engine that has ended, whose new process is given a minute."""
    ended_engines = [engine for engine in case.engines if engine.state in _GONE_STATES]
    if not ended_engines:
        return False
    busy_now = finite(case.recent.mean("busy_ratio", NOW_S)) or 0.0
    return busy_now < least_busy or any((finite(engine.age_s) or 0.0) < MINUTE_S for engine in ended_engines)


def _fix_of_unknown_work(case: Case, engine_names: str | None) -> str:
    """Code of the fix for a GPU whose work nobody tells of."""
    if engine_names:
        return "map_engine"
    if case.engines:
        return ""
    return "add_endpoint"


class _Use(NamedTuple):
    """Use of a GPU over the last minutes."""

    share: float
    is_busy: bool
    """It is the busy share; else SM activity."""

    @property
    def parameters(self) -> Parameters:
        """The share in sentences, by what it is."""
        return params(busy=self.share) if self.is_busy else params(sm=self.share)


def _mean_use(case: Case) -> _Use | None:
    """The use of a GPU: its busy share; of a MIG slice, for which there is none, its SM activity."""
    busy = finite(case.recent.mean("busy_ratio", KEPT_S))
    if busy is not None:
        return _Use(busy, is_busy=True)
    sm = finite(case.recent.mean("sm_active_ratio", KEPT_S))
    return None if sm is None else _Use(sm, is_busy=False)


def _is_split(case: Case) -> bool:
    """Whether a GPU is split: its slices are judged one by one."""
    return case.gpu_reading is not None and case.gpu_reading.mig and not case.gpu_reading.parent_uuid

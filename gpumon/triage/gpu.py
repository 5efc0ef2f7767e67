"""GPUs: broken hardware, clocks held down, and memory or time that nobody uses."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from gpumon.efficiency.faults import is_free, may_be_anywhere
from gpumon.readings.dcgm import DCGM
from gpumon.readings.frame import EndpointState, EngineKind, Frame, GpuReading, GpuState, Phase, XidEvent
from gpumon.readings.missing import Missing, Reading, number
from gpumon.readings.prices import price_of_hour
from gpumon.readings.process_words import name_processes, program_text
from gpumon.readings.snapshot import Engine, Gpu, Process
from gpumon.readings.text import clean
from gpumon.readings.verdict import Action, Confidence, Evidence, Level, Limit, Parameters, Signal
from gpumon.triage.host import has_name
from gpumon.triage.marks import URGENCY
from gpumon.triage.samples import AWAKE, KEPT_S, Recent
from gpumon.triage.savings import with_savings
from gpumon.triage.signals import (
    MINUTE_S,
    NOW_S,
    Case,
    Finding,
    action,
    finite,
    gpu_chart,
    params,
    unsure,
)
from gpumon.triage.thresholds import Thresholds
from gpumon.triage.xid import RESET, Xid, xid_of

_GAUGE_XID_S: Final = 86400.0
"""Seconds for which a critical Xid in a dcgm-exporter's gauge is reported: the gauge stands until the GPU is reset."""
OFF_THE_BUS: Final = 79
"""Xid of a GPU that has fallen off the bus."""
ECC_SOURCE: Final = "nvmlDeviceGetTotalEccErrors"
ROWS_SOURCE: Final = "nvmlDeviceGetRemappedRows"
REASONS_SOURCE: Final = "nvmlDeviceGetCurrentClocksEventReasons"
_BUSY_SOURCE: Final = "nvmlDeviceGetUtilizationRates"
_MEMORY_SOURCE: Final = "nvmlDeviceGetMemoryInfo"


def _gpu(case: Case) -> Gpu:
    """The GPU that a rule on GPUs is asked about."""
    assert case.gpu is not None, "not a GPU"
    return case.gpu


def broken(case: Case) -> Finding | None:
    """The worst that is wrong with a GPU's hardware, and all else that is."""
    return _worst([*_state_faults(case), *_xid_faults(case, is_application=False), *_memory_faults(case)])


def program_fault(case: Case) -> Finding | None:
    """Xids that a program caused: the hardware is fine."""
    return _worst([*_xid_faults(case, is_application=True)])


def _worst(findings: list[Finding]) -> Finding | None:
    """The most urgent finding, with the evidence of all."""
    if not findings:
        return None
    findings.sort(key=lambda finding: URGENCY[finding.level])
    evidence: list[Evidence] = []
    for finding in findings:
        evidence += finding.evidence
    return findings[0]._replace(evidence=tuple(evidence))


def _fault(
    case: Case, level: Level, cause: str, evidence: Evidence, actions: tuple[str, ...], **values: float | str | None
) -> Finding:
    """A fault of the hardware. On a GPU that nobody uses it is no more than a warning."""
    fixes = tuple(action(code, index=float(_gpu(case).index)) for code in actions)
    parameters = params(**values)
    if level is Level.CRITICAL and is_unused(case):
        level = Level.WARN
        parameters |= params(unused="yes")
    return Finding(Limit.HARDWARE_FAULT, cause, parameters, (evidence,), fixes, level)


def gpus_in_use(frame: Frame) -> set[str]:
    """GPUs with a process or an engine on them, or on one of their slices."""
    in_use: set[str] = set()
    for engine in frame.engines:
        in_use.update(engine.gpus)
    for reading in frame.gpus:
        if reading.processes:
            in_use.add(reading.uuid)
    parents = set()
    for reading in frame.gpus:
        if reading.parent_uuid and reading.uuid in in_use:
            parents.add(reading.parent_uuid)
    return in_use | parents


def is_unused(case: Case) -> bool:
    """Whether a GPU was free when that was seen last, and has been for 10 minutes as far as it was seen: a program that
    its fault has just ended did use it."""
    recent = case.recent
    return recent.free_s > recent.used_s and case.now_s - recent.used_s >= case.thresholds.gpu_idle_s


def _state_faults(case: Case) -> Iterator[Finding]:
    """The fault of a GPU that is lost, or that needs a reset."""
    gpu = _gpu(case)
    if gpu.state not in (GpuState.LOST, GpuState.RESET_REQUIRED):
        return
    parameters = params(state=gpu.state.value, what=clean(gpu.state_text, 120))
    evidence = Evidence("gpu_state", source="NVML", parameters=parameters)
    if gpu.state is GpuState.RESET_REQUIRED:
        yield _fault(case, Level.CRITICAL, "reset_required", evidence, RESET)
        return
    seconds = None
    if gpu.age_s >= 1.0:
        seconds = gpu.age_s
    actions = xid_of(OFF_THE_BUS).actions
    yield _fault(case, Level.CRITICAL, "lost", evidence, actions, xid=_xid_of_loss(case), seconds=seconds)


def _xid_of_loss(case: Case) -> float | None:
    """The Xid that tells why the GPU is lost: that it fell off the bus, else the newest critical one."""
    codes = [event.code for event in _xid_log(case)]
    if OFF_THE_BUS in codes:
        return float(OFF_THE_BUS)
    for code in reversed(codes):
        if xid_of(code).level is Level.CRITICAL:
            return float(code)
    return None


def _xid_log(case: Case) -> Sequence[XidEvent]:
    """The Xids of the GPU, the newest last."""
    if case.gpu_reading is None:
        return ()
    return case.gpu_reading.xid


def _xid_events(case: Case) -> dict[int, list[XidEvent]]:
    """The Xids of the GPU by their code."""
    by_code: dict[int, list[XidEvent]] = {}
    for event in _xid_log(case):
        by_code.setdefault(event.code, []).append(event)
    return by_code


def _xid_faults(case: Case, *, is_application: bool) -> Iterator[Finding]:
    """A finding for each code that came lately, with how often and when last."""
    by_code = _xid_events(case)
    if not by_code:
        return
    if is_application:
        cause = "xid_program"
        processes = name_processes(_gpu(case).processes)
    else:
        cause = "xid"
        processes = ""
    for code, events in by_code.items():
        kind = xid_of(code)
        ago_s = case.frame.wall_s - events[-1].wall_s
        if kind.is_application is not is_application or ago_s > _xid_kept_s(case, kind):
            continue
        times = None
        if len(events) > 1:
            times = float(len(events))
        how_often = params(times=times, ago=max(0.0, ago_s))
        evidence = Evidence("xid", float(code), source="NVML Xid event", parameters=how_often)
        fault = _fault(case, kind.level, cause, evidence, kind.actions, xid=float(code), processes=processes)
        yield fault._replace(confidence=kind.confidence)


def _xid_kept_s(case: Case, kind: Xid) -> float:
    """Seconds for which an Xid is reported."""
    kept_s = case.thresholds.xid_s
    if kind.is_application:
        kept_s = case.thresholds.xid_application_s
    is_gauge = case.gpu_reading is not None and case.gpu_reading.source == DCGM
    if is_gauge and kind.level is Level.CRITICAL:
        return max(kept_s, _GAUGE_XID_S)
    return kept_s


def _memory_faults(case: Case) -> Iterator[Finding]:
    """Faults of its memory: rows that cannot be remapped, uncorrectable errors, rows that wait for a reset."""
    gpu = _gpu(case)
    if finite(gpu.remap_failed):
        evidence = Evidence("remap_failed", gpu.remap_failed, source=ROWS_SOURCE)
        yield _fault(case, Level.CRITICAL, "remap_failed", evidence, ("replace_gpu",))
    ecc_count = finite(gpu.ecc_uncorrected)
    if ecc_count:
        yield _ecc_fault(case, ecc_count)
    if finite(gpu.remap_pending):
        evidence = Evidence("remap_pending", gpu.remap_pending, source=ROWS_SOURCE)
        yield _fault(case, Level.WARN, "remap_pending", evidence, RESET)


def _ecc_fault(case: Case, count: float) -> Finding:
    """The finding on uncorrectable ECC errors: critical while more of them come."""
    risen = ecc_risen(case.recent) or None
    evidence = Evidence("ecc_uncorrected", count, source=ECC_SOURCE, parameters=params(risen=risen))
    if risen:
        fixes = ("reset_gpu", "diagnose_if_again")
        return _fault(case, Level.CRITICAL, "ecc_rising", evidence, fixes, count=count, risen=risen)
    fixes = ("reset_when_free", "replace_if_again")
    return _fault(case, Level.WARN, "ecc", evidence, fixes, count=count, risen=risen)


def ecc_risen(recent: Recent) -> float:
    """Uncorrectable ECC errors of a GPU that came in the last 3 minutes."""
    values = recent.values("ecc_uncorrected", KEPT_S)
    if not values:
        return 0.0
    _, first = values[0]
    _, last = values[-1]
    return last - first


SLOWDOWNS: Final[Mapping[str, str]] = {
    "hw_thermal_slowdown": "thermal",
    "hw_power_brake_slowdown": "power_brake",
    "sw_thermal_slowdown": "thermal_driver",
    "hw_slowdown": "hardware_slowdown",
}
"""Clock event reasons that are faults -> cause, the most telling first: `hw_slowdown` comes with the two above."""
_SET_BY_SOMEBODY: Final = {
    "applications_clocks_setting": "application_clocks",
}
"""Clock event reasons that are settings -> cause."""
_FIXES: Final = {
    "thermal": "check_cooling",
    "thermal_driver": "check_cooling",
    "power_brake": "check_power_supply",
    "hardware_slowdown": "check_cooling_and_power",
    "application_clocks": "reset_application_clocks",
}
"""Cause -> code of the action against it."""
POWER_CAP: Final = "sw_power_cap"
"""Clock event reason: the power limit holds the clock."""
_FAR_BELOW: Final = 0.7
"""Clock, of the highest, below which a slowdown costs at least 30 % of the speed."""
SLOWDOWN_OVER_S: Final = 20.0
"""Seconds without it after which a slowdown is over: protection against heat comes and goes within seconds."""
PAST_S: Final = 3.0
"""Seconds without it after which the verdict says that it was."""
_BAND: Final = 0.1
"""Share by which the load and the clock may go back while a verdict stands."""
_SHARE_BAND: Final = 0.5
"""Share by which the time slowed down may go back while a verdict stands: it is of one minute, and comes in bursts."""
_STEADY: Final = 0.02
"""Most that a locked clock moves, as a share of the highest: one that power or heat decides goes up and down."""
_MOST_OF_THE_TIME: Final = 0.5
"""Share of the last minute in which the power limit, or a setting, must have held a clock to explain it."""
_LOWERED: Final = 0.95
"""Power limit, of the card's default, below which somebody lowered it."""
COOLER: Final = (0.4, 0.7)
"""Least and most of the power limit in force that is advised against heat."""
_VISIBLE_HZ: Final = 5e6
"""Difference of two clocks that shows: they are written in GHz with two decimals."""
BELOW_DRAW: Final = 0.9
"""A power limit against heat is at most this much of what the GPU draws: one above it changes nothing."""


def throttled(case: Case) -> Finding | None:
    """Clocks held down by a fault, by a lowered power limit, or by a lock; else far below the highest under load."""
    gpu = _gpu(case)
    if gpu.mig_profile:
        return None
    least_share = case.thresholds.throttled_ratio
    if Limit.THROTTLED in case.near:
        least_share *= 1.0 - _SHARE_BAND
    shares = {}
    active = []
    for reason in SLOWDOWNS:
        shares[reason] = _active_share(case.recent, reason)
        if shares[reason] > least_share:
            active.append(reason)
    if active:
        past_s = min(_past_s(case.recent, reason) for reason in active)
        if past_s < SLOWDOWN_OVER_S:
            return _slowed_finding(case, gpu, active[0], shares, past_s)
    return _held_down_finding(case, gpu)


def slowed_lately(recent: Recent, limits: Thresholds) -> bool:
    """Whether a fault held its clocks down in the last minute."""
    return any(_active_share(recent, reason) > limits.throttled_ratio for reason in SLOWDOWNS)


def _past_s(recent: Recent, reason: str) -> float:
    """Seconds since a clock event reason was active last; 0 while it is."""
    if recent.last(reason):
        return 0.0
    return recent.steady_s(reason)


def _active_share(recent: Recent, reason: str) -> float:
    """Share of the last minute in which a clock event reason was active."""
    if recent.last(reason) == 0.0 and recent.steady_s(reason) >= min(MINUTE_S, recent.seconds):
        return 0.0
    return recent.mean(reason, MINUTE_S) or 0.0


class _Clock(NamedTuple):
    """SM clock in Hz: mean of the last minute, the highest that the card has, and the newest."""

    mean: float
    most: float
    newest: float


def _clock(case: Case, gpu: Gpu) -> _Clock | None:
    """The clock of a GPU; None where it is not known."""
    mean_hz = finite(case.recent.mean("sm_clock_hz", MINUTE_S))
    most_hz = finite(gpu.sm_clock_max_hz)
    newest_hz = finite(case.recent.last("sm_clock_hz"))
    if mean_hz is None or not most_hz:
        return None
    return _Clock(mean_hz, most_hz, newest_hz or mean_hz)


def _slowed_finding(case: Case, gpu: Gpu, reason: str, shares: Mapping[str, float], past_s: float) -> Finding:
    """The finding on a clock that the driver slows down for `reason`, or did until `past_s` ago."""
    cause = SLOWDOWNS[reason]
    is_over = past_s >= PAST_S
    clock = _clock(case, gpu)
    busy = finite(case.recent.mean("busy_ratio", MINUTE_S))
    level = _level_of_slowdown(case, clock, busy, is_over=is_over)
    parameters: Parameters = {}
    if is_over:
        parameters |= params(was="yes")
    if level is Level.NOTE:
        parameters |= params(idle="yes")
    if is_over:
        parameters |= params(ended=case.frame.wall_s - past_s)
    if clock is not None and level is not Level.NOTE:
        clock_hz = clock.mean
        if is_over:
            clock_hz = clock.newest
        parameters |= params(clock_hz=clock_hz, clock_max_hz=clock.most)
    actions = [action(_FIXES[cause], index=float(gpu.index))]
    if cause.startswith("thermal"):
        parameters |= params(celsius=finite(gpu.temperature_c))
        actions += _cooler_actions(case, gpu)
    proof = (*_evidence_of_slowdown(case, gpu, shares), *_load_evidence(case, gpu, clock, busy))
    return Finding(Limit.THROTTLED, cause, parameters, proof, tuple(actions), level)


def _evidence_of_slowdown(case: Case, gpu: Gpu, shares: Mapping[str, float]) -> Iterator[Evidence]:
    """The driver's reasons with their share of the time, and the temperature."""
    limit = case.thresholds.throttled_ratio
    for reason, share in shares.items():
        if share > 0.0:
            counted = params(reason=reason, counted=gpu.throttle_s.get(reason, 0.0) or None)
            yield Evidence("throttle_share", share, limit, REASONS_SOURCE, parameters=counted)
    temperature = finite(gpu.temperature_c)
    if temperature is not None:
        yield Evidence("temperature", temperature, source="NVML", chart=gpu_chart(gpu, "temp"))


def _level_of_slowdown(case: Case, clock: _Clock | None, busy: float | None, *, is_over: bool) -> Level:
    """Critical while it costs users or much of a loaded GPU's clock; a note where the GPU does nothing."""
    if busy is not None and busy < AWAKE:
        return Level.NOTE
    if is_over:
        return Level.WARN
    if _is_felt(case):
        return Level.CRITICAL
    is_loaded = (busy or 0.0) >= case.thresholds.loaded_ratio
    if is_loaded and clock is not None and _is_far_below(clock):
        return Level.CRITICAL
    return Level.WARN


def _is_felt(case: Case) -> bool:
    """Whether users of an engine on the GPU wait for what it does."""
    return any(case.suffers(engine) for engine in case.engines)


def _is_far_below(clock: _Clock) -> bool:
    """Whether a clock is so far below the highest that much of the speed is lost."""
    return clock.mean < _FAR_BELOW * clock.most


def _load_evidence(case: Case, gpu: Gpu, clock: _Clock | None, busy: float | None) -> Iterator[Evidence]:
    """Clock, busy share and power of the last minute."""
    if clock is not None:
        newest: Parameters = {}
        if abs(clock.newest - clock.mean) >= _VISIBLE_HZ:
            newest = params(newest=clock.newest)
        yield Evidence("sm_clock", clock.mean, clock.most, "nvmlDeviceGetClockInfo", gpu_chart(gpu, "clock"), newest)
    if busy is not None:
        yield Evidence(
            "busy", busy, source=_BUSY_SOURCE, chart=gpu_chart(gpu, "busy"), parameters=params(window_s=MINUTE_S)
        )
    watts = finite(case.recent.mean("power_w", MINUTE_S))
    if watts is not None:
        yield Evidence("power", watts, gpu.power_limit_w, "NVML", gpu_chart(gpu, "power"))


class _HeldClock(NamedTuple):
    """A clock under load below the highest, and what is known of why."""

    clock: _Clock
    busy: float
    """Mean of the last minute."""
    is_capped: bool
    """The power limit holds it most of the time."""
    has_lowered_limit: bool
    """The power limit is below the card's default."""
    is_locked: bool
    """It stands still, and no power limit explains that."""
    setting: str | None
    """Cause by a setting that the driver names."""
    peers_wait: bool
    """Other GPUs of its instance run faster, and wait for it."""

    @property
    def is_sure(self) -> bool:
        """Whether a setting explains the clock."""
        return self.has_lowered_limit or (self.is_locked and self.setting is not None)

    @property
    def cause(self) -> str:
        """Code of the verdict's sentence."""
        if self.is_capped:
            return "power_cap"
        if self.setting:
            return self.setting
        if self.is_locked:
            return "locked_clock"
        return "low_clock"


def _held_down_finding(case: Case, gpu: Gpu) -> Finding | None:
    """Clocks below the highest under load, and no fault: a power limit, a lock, or nobody who says so."""
    held = _held_clock(case, gpu)
    if held is None or not _is_worth_saying(case, held):
        return None
    is_felt = held.peers_wait or _is_felt(case)
    is_wrong = held.has_lowered_limit or held.cause != "power_cap"
    level = Level.NOTE
    if is_felt and is_wrong:
        level = Level.WARN
    confidence = Confidence.MEDIUM
    if held.is_sure:
        confidence = Confidence.HIGH
    return Finding(
        Limit.THROTTLED,
        held.cause,
        _held_parameters(gpu, held),
        tuple(_load_evidence(case, gpu, held.clock, held.busy)),
        (_unlock_action(gpu, held),),
        level,
        confidence,
    )


def _is_worth_saying(case: Case, held: _HeldClock) -> bool:
    """Whether the clock is lowered by a setting, or so low that it matters; in the first minute a setting has to be
    sure."""
    is_explained = held.has_lowered_limit or (held.is_locked and held.peers_wait)
    if case.recent.seconds < MINUTE_S and not is_explained:
        return False
    if held.has_lowered_limit or held.is_locked:
        return True
    return held.clock.mean < case.thresholds.clock_low_ratio * _clock_band(case) * held.clock.most


def _clock_band(case: Case) -> float:
    """Factor of the thresholds of a clock: while the verdict stands it may rise a little further."""
    if Limit.THROTTLED in case.near:
        return 1.0 + _BAND
    return 1.0


def _held_clock(case: Case, gpu: Gpu) -> _HeldClock | None:
    """State of a loaded GPU's clock; None where there is nothing to look back for, as nearly always."""
    if _runs_freely(case, gpu):
        return None
    clock = _clock(case, gpu)
    busy = finite(case.recent.mean("busy_ratio", MINUTE_S))
    if clock is None or busy is None or case.recent.seconds < NOW_S:
        return None
    if busy < _least_busy(case):
        return None
    is_capped = _active_share(case.recent, POWER_CAP) > _MOST_OF_THE_TIME
    return _HeldClock(
        clock,
        busy,
        is_capped,
        has_lowered_limit=is_capped and _is_lowered(gpu),
        is_locked=not is_capped and _stands_low(case, clock),
        setting=_setting_cause(case.recent),
        peers_wait=any(_peers_wait(case, gpu, engine, clock) for engine in case.engines),
    )


def _runs_freely(case: Case, gpu: Gpu) -> bool:
    """Whether the newest clock gives no reason to look back: it is not known, or high and not capped."""
    newest_hz = finite(case.recent.last("sm_clock_hz"))
    most_hz = finite(gpu.sm_clock_max_hz)
    if newest_hz is None or not most_hz:
        return True
    if Limit.THROTTLED in case.near or newest_hz < case.thresholds.clock_locked_ratio * most_hz:
        return False
    return not case.recent.last(POWER_CAP)


def _least_busy(case: Case) -> float:
    """Busy share from which on a GPU counts as loaded; a little lower for one whose clock was low before."""
    loaded_ratio = case.thresholds.loaded_ratio
    if Limit.THROTTLED in case.near:
        return loaded_ratio * (1.0 - _BAND)
    return loaded_ratio


def _setting_cause(recent: Recent) -> str | None:
    """Cause by a setting that the driver named most of the time."""
    for reason, cause in _SET_BY_SOMEBODY.items():
        if _active_share(recent, reason) > _MOST_OF_THE_TIME:
            return cause
    return None


def _is_lowered(gpu: Gpu) -> bool:
    """Whether somebody set its power limit below the card's default."""
    limit = finite(gpu.power_limit_w)
    default = finite(gpu.power_default_w)
    return bool(limit and default and limit < _LOWERED * default)


def _stands_low(case: Case, clock: _Clock) -> bool:
    """Whether the clock of the last minute stood still, far below the highest."""
    values = [value for _, value in case.recent.values("sm_clock_hz", MINUTE_S)]
    is_still = max(values) - min(values) <= _STEADY * clock.most
    return is_still and clock.mean < case.thresholds.clock_locked_ratio * _clock_band(case) * clock.most


def _held_parameters(gpu: Gpu, held: _HeldClock) -> Parameters:
    """Figures of its sentence."""
    parameters = params(index=float(gpu.index), clock_hz=held.clock.mean, clock_max_hz=held.clock.most)
    if held.is_capped:
        parameters |= params(limit_w=finite(gpu.power_limit_w))
    if held.has_lowered_limit:
        parameters |= params(default_w=finite(gpu.power_default_w))
    return parameters


def _unlock_action(gpu: Gpu, held: _HeldClock) -> Action:
    """Action that gives the GPU its clock back."""
    index = float(gpu.index)
    if held.cause == "power_cap":
        return action("restore_power_limit", index=index, watts=finite(gpu.power_default_w))
    return action(_FIXES.get(held.cause, "reset_locked_clocks"), index=index)


def _peers_wait(case: Case, gpu: Gpu, engine: Engine, clock: _Clock) -> bool:
    """Whether other GPUs of the same tensor-parallel instance run at higher clocks: they wait for this one."""
    if engine.hardware.tp < 2:
        return False
    for peer in case.snapshot.gpus:
        if peer.uuid == gpu.uuid or engine.name not in peer.engines:
            continue
        peer_hz = case.gpu_mean(peer, "sm_clock_hz", MINUTE_S) or 0.0
        if peer_hz > clock.mean / _FAR_BELOW:
            return True
    return False


def _cooler_actions(case: Case, gpu: Gpu) -> Iterator[Action]:
    """The action to lower the power limit below what the GPU draws, so that its clock holds still; none if that is too
    low."""
    limit = finite(gpu.power_limit_w)
    draw = finite(case.recent.mean("power_w", MINUTE_S))
    if not limit or not draw:
        return
    least_share, most_share = COOLER
    watts = math.floor(min(BELOW_DRAW * draw, most_share * limit) / 10.0 + 1e-9) * 10.0
    if watts >= least_share * limit:
        yield action("lower_power_limit", index=float(gpu.index), watts=watts, limit_w=limit)


POOLED: Final = frozenset(
    {
        *(EngineKind.VLLM, EngineKind.SGLANG, EngineKind.TENSORRT_LLM, EngineKind.TGI, EngineKind.NIM),
        *(EngineKind.LMDEPLOY, EngineKind.DYNAMO, EngineKind.RAY, EngineKind.LLAMA_CPP, EngineKind.OLLAMA),
        *(EngineKind.TEI, EngineKind.APHRODITE, EngineKind.TOKENSPEED, EngineKind.VLLM_OMNI, EngineKind.FASTDEPLOY),
        *(EngineKind.MAX, EngineKind.XINFERENCE, EngineKind.SGLANG_DIFFUSION),
    }
)
"""Engines that take their memory when they load a model: how full the VRAM is says nothing of them."""
_LEAST_SAMPLED_S: Final = KEPT_S - 30.0
"""Seconds of samples from which on the use of a GPU is judged: its verdict, which must hold for 30 s, comes after 3
min."""
_AT_WORK_SM: Final = 0.5
"""SM activity from which on a GPU is well used."""
_SILENT: Final = frozenset({GpuState.LOST, GpuState.RESET_REQUIRED, GpuState.INITIALISING})
"""States in which there is no question of use."""
_GONE: Final = frozenset({EndpointState.REFUSED, EndpointState.DOWN})
"""States of an engine whose process is not there any more, or is a new one."""
_EXPLAINED: Final = frozenset({EndpointState.OK, EndpointState.STARTING, EndpointState.TIMEOUT})
"""States of an engine whose own verdicts explain the use of its GPU, or that pass."""
_SERVER: Final = re.compile(
    r"(?:^|[\s/])(?:vllm|sglang|trtllm|tritonserver|text-generation|llama-server|ollama|lmdeploy|fastdeploy|tokenspeed|xinference)\b"
    r"|\bsglang::|ray::(?:ServeReplica|RayWorkerWrapper)|::(?:EngineCore|Worker|APIServer)",
    re.IGNORECASE,
)
"""Names of the processes of engines: of their program, or the title that they give themselves."""


def _unplaced_engines(case: Case) -> str | None:
    """Names of listed engines that may run on a GPU without one; empty where only a server's process is seen.

    None where nothing looks like an engine.
    """
    gpu = _gpu(case)
    reading = case.gpu_reading
    if reading is None or case.engines:
        return None
    is_server = any(has_name(_SERVER, process) for process in gpu.processes)
    if not is_server and not _hides_programs(gpu, reading):
        return None
    names = _unmapped_engines(case)
    if names or is_server:
        return names
    return None


def _hides_programs(gpu: Gpu, reading: GpuReading) -> bool:
    """Whether a program is on the GPU whose command line cannot be read."""
    if gpu.processes:
        return any(not process.command for process in gpu.processes)
    return not is_free(reading)


def _unmapped_engines(case: Case) -> str:
    """Names of up to three engines whose GPUs are not known."""
    names = []
    for engine in case.frame.engines:
        if may_be_anywhere(engine):
            names.append(clean(engine.name, 40))
    return " or ".join(names[:3])


def _asleep_s(case: Case) -> float:
    """For how long a GPU has done nothing; 0 where it works, or where nobody knows."""
    if case.recent.last("awake") != 0.0:
        return 0.0
    sampled_s = case.recent.steady_s("awake")
    if case.gpu_reading is None or not case.gpu_reading.idle_since_wall_s:
        return max(sampled_s, 0.0)
    return max(sampled_s, case.frame.wall_s - case.gpu_reading.idle_since_wall_s)


def _vram(gpu: Gpu) -> tuple[float, float] | None:
    """Bytes of VRAM in use and in all; None where they are not known, or are the host's."""
    used = finite(gpu.vram_used_bytes)
    total = finite(gpu.vram_total_bytes)
    if gpu.vram_shared or used is None or not total:
        return None
    return (used, total)


def _vram_evidence(gpu: Gpu, used: float, total: float, limit: float | None = None) -> Evidence:
    """Evidence of the VRAM in use, beside all of it or a share (`limit`) of it."""
    limit_bytes = total
    if limit is not None:
        limit_bytes = limit * total
    return Evidence("vram_used", used, limit_bytes, _MEMORY_SOURCE, gpu_chart(gpu, "vram"), params(total=total))


def _idle_cost(case: Case, gpu: Gpu) -> float | None:
    """Price of an idle GPU per hour; None where none is known, as of a part of a GPU."""
    if gpu.parent_uuid:
        return None
    return number(price_of_hour(gpu.gpu_type, case.prices))


def memory_idle(case: Case) -> Finding | None:
    """Memory held on a GPU without an engine that has done nothing for long."""
    gpu = _gpu(case)
    idle_s = _asleep_s(case)
    limits = case.thresholds
    if _is_explained(case) or idle_s < limits.gpu_idle_s:
        return None
    vram = _vram(gpu)
    if vram is None:
        return None
    engine = _unplaced_engines(case)
    used, total = vram
    if engine or used < limits.held_ratio * total:
        return None
    holders = _memory_holders(gpu)
    proof = [
        _vram_evidence(gpu, used, total, limits.held_ratio),
        Evidence("idle_time", idle_s, limits.gpu_idle_s, _BUSY_SOURCE, gpu_chart(gpu, "busy")),
    ]
    for process in holders[:4]:
        proof.append(_vram_of_process(process))
    parameters: Parameters = {}
    if holders:
        parameters |= params(processes=name_processes(holders))
    if len(holders) > 1:
        parameters |= params(several="yes")
    parameters |= params(vram_bytes=used, seconds=idle_s, cost=_idle_cost(case, gpu))
    fixes = _free_memory_actions(holders, used, may_serve=engine is not None)
    if engine is None:
        fixes = with_savings(fixes, 1.0, _idle_cost(case, gpu))
    began_s = case.now_s - idle_s
    return Finding(Limit.IDLE_VRAM_HELD, "vram_held", parameters, tuple(proof), fixes, Level.NOTE, began_s=began_s)


def _memory_holders(gpu: Gpu) -> list[Process]:
    """The processes that hold memory of the GPU."""
    holders = []
    for process in gpu.processes:
        if (finite(process.vram_bytes) or 0.0) > 0.0:
            holders.append(process)
    return holders


def _free_memory_actions(holders: Sequence[Process], vram_bytes: float, *, may_serve: bool) -> tuple[Action, ...]:
    """Actions that end the programs which hold memory; where one may be an engine, it is asked for an answer before."""
    if not holders:
        return (action("find_hidden_process"),)
    users = set()
    for process in holders:
        if process.user:
            users.add(clean(process.user, 24))
    owners = ", ".join(sorted(users))
    if not may_serve:
        return (action("end_program", owner=owners, vram_bytes=vram_bytes),)
    return (
        action("add_endpoint", if_it_answers="yes"),
        action("end_program", owner=owners, vram_bytes=vram_bytes, otherwise="yes"),
    )


def _vram_of_process(process: Process) -> Evidence:
    """Evidence of the VRAM that a process holds."""
    return Evidence(
        "process_vram", process.vram_bytes, source="NVML processes", parameters=params(process=program_text(process))
    )


def vram_full(case: Case) -> Finding | None:
    """VRAM nearly full under programs that allocate as they go: out of memory is near.

    An engine fills its share by design, so nothing is said where the memory may be that of one.
    """
    gpu = _gpu(case)
    limits = case.thresholds
    vram = _vram(gpu)
    if vram is None:
        return None
    used, total = vram
    if used < limits.vram_note_ratio * total:
        return None
    trains = any(engine.phase is Phase.TRAINING for engine in case.engines)
    if not _grows(case, gpu, trains=trains):
        return None
    proof = [_vram_evidence(gpu, used, total, limits.vram_note_ratio)]
    for process in gpu.processes[:3]:
        if finite(process.vram_bytes) is not None:
            proof.append(_vram_of_process(process))
    parameters = params(share=used / total, left=total - used, processes=_program_names(gpu) or "training")
    if trains:
        fix = action("less_vram")
    else:
        fix = action("keep_vram_free")
    level = Level.NOTE
    if used >= limits.vram_warn_ratio * total:
        level = Level.WARN
    return Finding(Limit.MEMORY_FULL, "vram_full", parameters, tuple(proof), (fix,), level)


def _grows(case: Case, gpu: Gpu, *, trains: bool) -> bool:
    """Whether the programs on the GPU take memory as they go: they work, and are no engine."""
    if _is_pooled(case, gpu) or _asleep_s(case) > 0.0 or _unplaced_engines(case) is not None:
        return False
    return trains or not _may_be_an_engine(case)


def _is_pooled(case: Case, gpu: Gpu) -> bool:
    """Whether the memory is a MIG slice's, or taken by an engine when it loads its model."""
    return bool(gpu.mig_profile) or any(engine.kind in POOLED for engine in case.engines)


def _may_be_an_engine(case: Case) -> bool:
    """Whether the holder of the memory may be an engine: it is not visible, or has no command line that tells."""
    processes = _gpu(case).processes
    return not processes or any(not process.command and not process.name for process in processes)


def gpu_under_used(case: Case) -> Finding | None:
    """A GPU without an engine that does little or nothing."""
    idle_s = _asleep_s(case)
    if _is_explained(case) or _is_parent(case) or max(case.recent.seconds, idle_s) < _LEAST_SAMPLED_S:
        return None
    fault = broken(case)
    if fault is not None and fault.level in (Level.CRITICAL, Level.WARN):
        return None  # it is not free for other work
    busy = _mean_busy(case)
    if busy is None or busy >= case.thresholds.busy_low_ratio:
        return None
    if idle_s > MINUTE_S:
        return _idle_finding(case, idle_s)
    return _hardly_used_finding(case, busy)


def _idle_finding(case: Case, idle_s: float) -> Finding:
    """The finding on a GPU that does nothing, with who holds its memory and what that costs."""
    gpu = _gpu(case)
    limits = case.thresholds
    code = Limit.IDLE
    proof = [Evidence("idle_time", idle_s, limits.gpu_idle_s, _BUSY_SOURCE, gpu_chart(gpu, "busy"))]
    vram = _vram(gpu)
    if vram is not None:
        used, total = vram
        proof.append(_vram_evidence(gpu, used, total))
        if used >= limits.held_ratio * total:
            code = Limit.IDLE_VRAM_HELD
    parameters = params(
        seconds=idle_s, processes=_program_names(gpu), free=_free_word(case), cost=_idle_cost(case, gpu)
    )
    actions: tuple[Action, ...] = (_use_action(case, gpu, "ask_owner"),)
    if _unplaced_engines(case) is None:
        actions = with_savings(actions, 1.0, _idle_cost(case, gpu))
    began_s = case.now_s - idle_s
    return Finding(code, "gpu_idle", parameters, tuple(proof), actions, Level.NOTE, Confidence.MEDIUM, began_s)


def _hardly_used_finding(case: Case, busy: float) -> Finding:
    """The finding on a GPU that does little."""
    gpu = _gpu(case)
    window = params(window_s=KEPT_S)
    proof = [Evidence("busy", busy, case.thresholds.busy_low_ratio, _BUSY_SOURCE, gpu_chart(gpu, "busy"), window)]
    vram = _vram(gpu)
    if vram is not None:
        proof.append(_vram_evidence(gpu, *vram))
    parameters = params(busy=busy, processes=_program_names(gpu), free=_free_word(case))
    actions = (_use_action(case, gpu, "share_gpu_or_batch"),)
    code = Limit.LOW_EFFICIENCY
    return Finding(code, "gpu_hardly_used", parameters, tuple(proof), actions, Level.NOTE, Confidence.MEDIUM, math.inf)


def _free_word(case: Case) -> str:
    """`yes`, a word of the sentence, where nothing runs on the GPU: no process is listed, and no memory is in use."""
    reading = case.gpu_reading
    if reading is not None and is_free(reading):
        return "yes"
    return ""


def _program_names(gpu: Gpu) -> str | None:
    """Names of the programs on a GPU; None where none is listed."""
    if gpu.processes:
        return name_processes(gpu.processes)
    return None


def _use_action(case: Case, gpu: Gpu, program_action: str) -> Action:
    """The action for a GPU with little work: name its engine, act on its program (code `program_action`), or use it."""
    engine = _unplaced_engines(case)
    if engine:
        return action("map_engine", engines=engine)
    if engine is not None:
        return action("add_endpoint")
    if gpu.processes:
        return action(program_action)
    return action("use_free_gpu")


def works_without_engine(case: Case) -> Finding | None:
    """A GPU without an engine that works: healthy where its own activity shows that, else nobody can tell."""
    gpu = _gpu(case)
    if _is_explained(case) or _is_parent(case) or gpu.state in _SILENT:
        return None
    busy = _mean_busy(case)
    if busy is None:
        return _unknown_busy(gpu)
    busy_low_ratio = case.thresholds.busy_low_ratio
    if case.recent.seconds < MINUTE_S or busy < busy_low_ratio or _worked_for_what_ended(case, busy_low_ratio):
        return None
    return _at_work_finding(case, gpu, busy)


def _at_work_finding(case: Case, gpu: Gpu, busy: float) -> Finding | None:
    """The finding on a GPU that works: healthy where its SMs show it, else nobody can tell."""
    sm = finite(case.recent.mean("sm_active_ratio", MINUTE_S))
    proof = _proof_of_work(case, gpu, busy, sm)
    programs = _program_names(gpu) or "a program that is not visible here"
    if sm is None or sm < _AT_WORK_SM:
        engine = _unplaced_engines(case)
        parameters = params(processes=programs, busy=busy, engines=engine)
        return unsure((Signal("gpu_work", fix=_fix_of_unknown_work(case, engine), parameters=parameters),), proof)
    if case.found_limits:  # a locked clock, a program's Xid, a wait for the host: it works, and something stands
        return None
    parameters = params(processes=programs, sm=sm)
    return Finding(Limit.HEALTHY, "gpu_at_work", parameters, proof, (), Level.OK, Confidence.MEDIUM)


def _unknown_busy(gpu: Gpu) -> Finding:
    """The driver does not tell how busy the GPU is."""
    state = Evidence("gpu_state", source="NVML", parameters=params(state=gpu.state.value))
    return unsure((Signal("busy", parameters=params(why=_why_busy_unknown(gpu))),), (state,))


def _proof_of_work(case: Case, gpu: Gpu, busy: float, sm: float | None) -> tuple[Evidence, ...]:
    """Busy share, and the activity of SMs and tensor cores as far as it is known."""
    proof = [
        Evidence("busy", busy, source=_BUSY_SOURCE, chart=gpu_chart(gpu, "busy"), parameters=params(window_s=KEPT_S))
    ]
    source = gpu.activity_source or "GPM"
    if sm is not None:
        proof.append(Evidence("sm_active", sm, source=source, chart=gpu_chart(gpu, "sm")))
    tensor = finite(case.recent.mean("tensor_active_ratio", MINUTE_S))
    if tensor is not None:
        proof.append(Evidence("tensor_active", tensor, source=source, chart=gpu_chart(gpu, "tensor")))
    return tuple(proof)


def _worked_for_what_ended(case: Case, busy_low_ratio: float) -> bool:
    """Whether the work was that of an engine that has ended, whose new process is given a minute."""
    ended_engines = []
    for engine in case.engines:
        if engine.state in _GONE:
            ended_engines.append(engine)
    if not ended_engines:
        return False
    busy_now = finite(case.recent.mean("busy_ratio", NOW_S)) or 0.0
    return busy_now < busy_low_ratio or any((finite(engine.age_s) or 0.0) < MINUTE_S for engine in ended_engines)


def _fix_of_unknown_work(case: Case, unplaced: str | None) -> str:
    """Code of the fix for a GPU whose work nobody tells of."""
    if unplaced:
        return "map_engine"
    if case.engines:
        return ""
    return "add_endpoint"


def _mean_busy(case: Case) -> float | None:
    """Busy share of the last minutes; of a MIG slice, for which there is none, its SM activity."""
    busy = finite(case.recent.mean("busy_ratio", KEPT_S))
    if busy is None:
        return finite(case.recent.mean("sm_active_ratio", KEPT_S))
    return busy


def _is_explained(case: Case) -> bool:
    """Whether an engine on it has figures, or a verdict for having none; or an engine lost another of its GPUs."""
    if any(engine.state in _EXPLAINED for engine in case.engines):
        return True
    lost = set()
    for gpu in case.snapshot.gpus:
        if gpu.state in (GpuState.LOST, GpuState.RESET_REQUIRED):
            lost.add(gpu.uuid)
    for reading in case.frame.engines:
        if case.key in reading.gpus and not lost.isdisjoint(reading.gpus):
            return True
    return False


def _is_parent(case: Case) -> bool:
    """Whether a GPU is split: its slices are judged one by one."""
    return case.gpu_reading is not None and case.gpu_reading.mig and not case.gpu_reading.parent_uuid


def _why_busy_unknown(gpu: Gpu) -> str:
    """Why the busy share is not known, in words."""
    reading: Reading = gpu.busy_ratio
    if isinstance(reading, Missing):
        return clean(reading.detail, 80) or reading.reason.value.replace("_", " ")
    return gpu.state.value.replace("_", " ")

"""Rules on the hardware of a GPU: lost, Xids, uncorrectable errors of its memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from gpumon.readings.dcgm import DCGM
from gpumon.readings.format import beyond_loss
from gpumon.readings.frame import OFF_THE_BUS, EndpointState, Frame, GpuState, UnseenGpus, XidEvent
from gpumon.readings.process_words import name_processes
from gpumon.readings.snapshot import Gpu
from gpumon.readings.text import clean
from gpumon.readings.verdict import Evidence, Level, Limit, Parameters, Team
from gpumon.triage.finding import Cause, Finding, Quantity, Remedy, params, yes_if
from gpumon.triage.gpu_figures import gpu_of
from gpumon.triage.marks import URGENCY
from gpumon.triage.progress.tokens import SUSPECTED_S
from gpumon.triage.sentences import DIAGNOSE_IF_AGAIN, GPU_STATE, REPLACE_IF_AGAIN, RESET_GPU, RESET_WHEN_FREE
from gpumon.triage.signals import TOKEN_TOTALS, YES, Case, finite
from gpumon.triage.xid import RESET, xid_of

_UNUSED: Final = "[{unused=yes}; nothing runs on it]"
_MOST_SIGHTS: Final = 4
"""Runs of gpumon, at most, of which the evidence says what GPUs they saw that are not visible now."""
_MOST_UUIDS: Final = 3
"""GPUs of one such run, at most, that are named by UUID, as other GPUs have their indices now."""
_UUID_CHARACTERS: Final = 40
"""Characters of a UUID: `GPU-` and 36 more."""


UNSEEN_GPUS_FIGURE: Final = Quantity(
    "unseen_gpus", ("{what} {since}: seen {seen:clock} by pid {pid:count}, with {count:gpus}[, by {asked}][; {why}]")
)
XID_FIGURE: Final = Quantity("xid", "Xid {value:count}: {value:xid} ([{times:count} times, last ]{ago:lasted} ago)")
REMAP_FAILED_FIGURE: Final = Quantity("remap_failed", "row remapping failed", field="remap_failed")
REMAP_PENDING_FIGURE: Final = Quantity("remap_pending", "a row waits to be remapped", field="remap_pending")
ECC_UNCORRECTED: Final = Quantity(
    "ecc_uncorrected",
    "{value:ecc_errors} since the driver was loaded[, {risen:count} of them in the last 3 min]",
    field="ecc_uncorrected",
)
END_HOLDERS: Final = Remedy(
    "end_holders",
    (
        "drain it, then end what holds it: sudo fuser -v /dev/nvidia{index:count} lists it, monitors "
        "and DCGM, too; a process that does not end (state D) ends with a reboot only"
    ),
    team=Team.HARDWARE,
)
RESET_MUTE_GPU: Final = Remedy(
    "reset_mute_gpu",
    (
        "once nothing holds it: sudo nvidia-smi --gpu-reset -i {index:count}; where that is refused, "
        "or hangs, as nvidia-smi may at this GPU: drain the node and reboot it"
    ),
    team=Team.HARDWARE,
)
READ_DRIVER_LOG: Final = Remedy(
    "read_driver_log",
    "`dmesg -T | grep -iE 'xid|gsp'` says why: after Xid 119 or 120 update the driver",
    team=Team.HARDWARE,
)
REPLACE_GPU: Final = Remedy(
    "replace_gpu",
    "drain it and replace this GPU (RMA): it has no spare memory rows left where it needs one",
    team=Team.HARDWARE,
)
FIND_SILENT_GPU: Final = Remedy(
    "find_silent_gpu",
    (
        "nvidia-smi -L and `dmesg | grep -i xid` on its host show whether the driver still lists it; "
        "nothing to do where it was taken out on purpose: acknowledge this"
    ),
    team=Team.HOST,
)
SEE_ALL_GPUS: Final = Remedy(
    "see_all_gpus",
    (
        "nothing to do where this process is given fewer GPUs on purpose (Slurm, a container, "
        "another exporter); else nvidia-smi -L and lspci -d 10de: on the host itself"
    ),
    team=Team.HOST,
)

LOST: Final = Cause(
    "lost",
    Limit.HARDWARE_FAULT,
    "[{there:count} of {count:gpus}: silent since {since:clock}[, last Xid {xid:count} ({xid:xid_head})]"
    "|[Xid {xid:count} ({xid:xid_head}), ]lost[ for {seconds:lasted}]]" + _UNUSED,
    level=Level.CRITICAL,
)
MUTE: Final = Cause(
    "mute",
    Limit.HARDWARE_FAULT,
    (
        "[Xid {xid:count} ({xid:xid_head}), ]its driver calls have hung[ for {seconds:lasted}][ "
        "({call})][{works=yes}; {engines} on it still give[{one=yes}s] tokens]" + _UNUSED
    ),
    level=Level.CRITICAL,
)
RESET_REQUIRED: Final = Cause(
    "reset_required",
    Limit.HARDWARE_FAULT,
    "needs a reset" + _UNUSED,
    level=Level.CRITICAL,
)
REMAP_FAILED: Final = Cause(
    "remap_failed",
    Limit.HARDWARE_FAULT,
    "a memory row could not be remapped" + _UNUSED,
    level=Level.CRITICAL,
)
REMAP_PENDING: Final = Cause(
    "remap_pending",
    Limit.HARDWARE_FAULT,
    "a memory row waits to be remapped: the next reset does it",
)
ECC_RISING: Final = Cause(
    "ecc_rising",
    Limit.HARDWARE_FAULT,
    "uncorrectable ECC errors rise: {count:count}, {risen:count} more" + _UNUSED,
    level=Level.CRITICAL,
)
ECC: Final = Cause(
    "ecc",
    Limit.HARDWARE_FAULT,
    "{count:ecc_errors} since the driver was loaded",
)
XID: Final = Cause(
    "xid",
    Limit.HARDWARE_FAULT,
    "Xid {xid:count}: {xid:xid}" + _UNUSED,
)
XID_PROGRAM: Final = Cause(
    "xid_program",
    Limit.HARDWARE_FAULT,
    "Xid {xid:count}: {xid:xid}[; on it now: {processes}]",
)


def broken(case: Case) -> Finding | None:
    """Rule: the worst fault of a GPU's hardware, with the evidence of all its faults."""
    return _most_urgent([*_state_faults(case), *_xid_faults(case, is_application=False), *_memory_faults(case)])


def program_fault(case: Case) -> Finding | None:
    """Rule: Xids that a program caused, while the hardware is fine."""
    return _most_urgent([*_xid_faults(case, is_application=True)])


UNSEEN_GPUS: Final = Cause(
    "unseen_gpus",
    Limit.NOT_VISIBLE,
    "{what} not visible here {since}[: {why}] (seen {seen:clock} by pid {pid:count} with {count:gpus}[, by {asked}])",
    level=Level.NOTE,
)


def unseen_gpus(case: Case) -> Finding | None:
    """Rule: GPUs that were listed before are not to be seen here now; that is no sign of anything wrong with them."""
    unseen = case.frame.host.unseen_gpus
    if not unseen:
        return None
    evidence = [UNSEEN_GPUS_FIGURE.evidence(parameters=_unseen_parameters(sight)) for sight in unseen[:_MOST_SIGHTS]]
    return UNSEEN_GPUS.finding(
        parameters=evidence[0].parameters,
        evidence=tuple(evidence),
        actions=(SEE_ALL_GPUS.action(),),
    )


def _unseen_parameters(sight: UnseenGpus) -> Parameters:
    """Parameters of the sentence on GPUs that one run saw."""
    since = "any more" if sight.in_this_run else "since the last start"
    names = []
    if sight.indices:
        names.append(f"gpu {index_ranges(sight.indices)}")
    names += [clean(uuid, _UUID_CHARACTERS) for uuid in sight.uuids[:_MOST_UUIDS]]
    if len(sight.uuids) > _MOST_UUIDS:
        names.append(f"{len(sight.uuids) - _MOST_UUIDS} more")
    return params(
        what=", ".join(names),
        since=since,
        seen=sight.seen_wall_s,
        pid=float(sight.pid),
        count=float(sight.count),
        asked=clean(sight.asked, 90) or None,
        why=clean(sight.why, 200) or None,
    )


def index_ranges(indices: Sequence[int]) -> str:
    """Indices in increasing order as ranges: `0, 2-63`."""
    ranges: list[list[int]] = []
    for index in indices:
        if ranges and index == ranges[-1][1] + 1:
            ranges[-1][1] = index
        else:
            ranges.append([index, index])
    return ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in ranges)


def _most_urgent(findings: list[Finding]) -> Finding | None:
    """The most urgent finding, with the evidence of all."""
    if not findings:
        return None
    findings.sort(key=lambda finding: URGENCY[finding.level])
    evidence = tuple(proof for finding in findings for proof in finding.evidence)
    return findings[0]._replace(evidence=evidence)


def _hardware_fault(
    case: Case,
    cause: Cause,
    evidence: Evidence,
    remedies: tuple[Remedy, ...],
    *,
    level: Level | None = None,
    **values: float | str | None,
) -> Finding:
    """A fault of the hardware. On a GPU that nobody uses it is no more than a warning."""
    actions = tuple(remedy.action(index=float(gpu_of(case).reading.index)) for remedy in remedies)
    parameters = params(**values)
    level = level or cause.level
    if level is Level.CRITICAL and is_unused(case):
        level = Level.WARN
        parameters |= params(unused=YES)
    return cause.finding(parameters=parameters, evidence=(evidence,), actions=actions, level=level)


def gpus_in_use(frame: Frame) -> set[str]:
    """GPUs with a process or an engine on them, or on one of their slices."""
    in_use = {uuid for engine in frame.engines for uuid in engine.gpus}
    in_use |= {reading.uuid for reading in frame.gpus if reading.processes}
    parents = {reading.parent_uuid for reading in frame.gpus if reading.parent_uuid and reading.uuid in in_use}
    return in_use | parents


def is_unused(case: Case) -> bool:
    """Whether a GPU was free when that was seen last, and has been for 10 minutes as far as it was seen: a program that
    its fault has just ended did use it."""
    recent = case.recent
    return recent.free_s > recent.used_s and case.now_s - recent.used_s >= case.thresholds.gpu_idle_s


def _state_faults(case: Case) -> Iterator[Finding]:
    """The fault of a GPU that is lost, or that needs a reset."""
    gpu = gpu_of(case)
    if gpu.reading.state is GpuState.MUTE:
        yield _mute_fault(case, gpu)
        return
    if gpu.reading.state not in (GpuState.LOST, GpuState.RESET_REQUIRED):
        return
    parameters = params(state=gpu.reading.state.value, what=clean(beyond_loss(gpu.reading.state_text), 120))
    is_exporters = case.gpu_reading is not None and case.gpu_reading.source == DCGM
    evidence = GPU_STATE.evidence(source="dcgm-exporter" if is_exporters else "NVML", parameters=parameters)
    if gpu.reading.state is GpuState.RESET_REQUIRED:
        yield _hardware_fault(case, RESET_REQUIRED, evidence, RESET)
        return
    if is_exporters:
        yield _silent_fault(case, gpu, evidence)
        return
    seconds = gpu.age_s if gpu.age_s >= 1.0 else None
    actions = xid_of(OFF_THE_BUS).actions
    yield _hardware_fault(case, LOST, evidence, actions, xid=_xid_of_loss(case), seconds=seconds)


def _silent_fault(case: Case, gpu: Gpu, evidence: Evidence) -> Finding:
    """The fault of a GPU that its dcgm-exporter shows no more: critical where the last Xid that it showed says why."""
    xid = _xid_of_loss(case)
    level = Level.WARN if xid is None else Level.CRITICAL
    actions = (FIND_SILENT_GPU,) if xid is None else xid_of(round(xid)).actions
    since_s = case.frame.wall_s - gpu.age_s
    whole = [reading for reading in case.frame.gpus if not reading.parent_uuid]
    there = [reading for reading in whole if reading.state is not GpuState.LOST]
    figures = {"xid": xid, "since": since_s, "there": float(len(there)), "count": float(len(whole))}
    fault = _hardware_fault(case, LOST, evidence, actions, level=level, **figures)
    return fault._replace(began_s=case.now_s - gpu.age_s)


def _mute_fault(case: Case, gpu: Gpu) -> Finding:
    """The fault of a GPU whose driver calls do not return: a warning while its engines give tokens."""
    call = clean(gpu.reading.state_text, 60)
    parameters = params(state=gpu.reading.state.value, what=call)
    evidence = GPU_STATE.evidence(source="NVML", parameters=parameters)
    working = []
    for engine in case.engines:
        engine_case = case.case_of(engine)
        quiet_s = engine_case.unmoved_s(TOKEN_TOTALS) if engine_case is not None else None
        if engine.state is EndpointState.OK and quiet_s is not None and quiet_s < SUSPECTED_S:
            working.append(clean(engine.name, 40))
    fault = _hardware_fault(
        case,
        MUTE,
        evidence,
        (END_HOLDERS, RESET_MUTE_GPU, READ_DRIVER_LOG),
        xid=_xid_of_loss(case),
        seconds=gpu.age_s,
        call=call,
        works=yes_if(bool(working)),
        engines=" and ".join(working),
        one=yes_if(len(working) == 1),
        level=Level.WARN if working else None,
    )
    return fault._replace(began_s=case.now_s - gpu.age_s)


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
        cause = XID_PROGRAM
        processes = name_processes(gpu_of(case).reading.processes)
    else:
        cause = XID
        processes = ""
    for code, events in by_code.items():
        kind = xid_of(code)
        ago_s = case.frame.wall_s - events[-1].wall_s
        kept_s = case.thresholds.xid_application_s if kind.is_application else case.thresholds.xid_s
        is_over = ago_s > kept_s and not _stands(case, code)
        if kind.is_application is not is_application or is_over:
            continue
        times = float(len(events)) if len(events) > 1 else None
        how_often = params(times=times, ago=max(0.0, ago_s))
        evidence = XID_FIGURE.evidence(float(code), source="NVML Xid event", parameters=how_often)
        fault = _hardware_fault(
            case, cause, evidence, kind.actions, xid=float(code), processes=processes, level=kind.level
        )
        yield fault._replace(confidence=kind.confidence)


def _stands(case: Case, code: int) -> bool:
    """Whether a dcgm-exporter still shows this critical Xid: its gauge goes back when the GPU is reset."""
    is_shown = case.gpu_reading is not None and case.gpu_reading.standing_xid == code
    return is_shown and xid_of(code).level is Level.CRITICAL


def _memory_faults(case: Case) -> Iterator[Finding]:
    """Faults of its memory: rows that cannot be remapped, uncorrectable errors, rows that wait for a reset."""
    gpu = gpu_of(case)
    failed = finite(gpu.reading.remap_failed)
    if failed:
        evidence = case.evidence(REMAP_FAILED_FIGURE, failed)
        yield _hardware_fault(case, REMAP_FAILED, evidence, (REPLACE_GPU,))
    ecc_count = finite(gpu.reading.ecc_uncorrected)
    if ecc_count:
        yield _ecc_fault(case, ecc_count)
    pending = finite(gpu.reading.remap_pending)
    if pending:
        evidence = case.evidence(REMAP_PENDING_FIGURE, pending)
        yield _hardware_fault(case, REMAP_PENDING, evidence, RESET)


def _ecc_fault(case: Case, count: float) -> Finding:
    """The finding on uncorrectable ECC errors: critical while more of them come."""
    risen = case.recent.growth("ecc_uncorrected") or None
    evidence = case.evidence(ECC_UNCORRECTED, count, risen=risen)
    if risen:
        remedies = (RESET_GPU, DIAGNOSE_IF_AGAIN)
        return _hardware_fault(case, ECC_RISING, evidence, remedies, count=count, risen=risen)
    remedies = (RESET_WHEN_FREE, REPLACE_IF_AGAIN)
    return _hardware_fault(case, ECC, evidence, remedies, count=count, risen=risen)

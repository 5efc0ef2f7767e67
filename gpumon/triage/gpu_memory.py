"""Rules on the memory of a GPU: held by programs that do nothing, or nearly full."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from gpumon.readings.frame import EndpointState, EngineKind, GpuProcess, GpuReading, Phase
from gpumon.readings.process_words import name_processes, program_text
from gpumon.readings.snapshot import Gpu
from gpumon.readings.text import clean
from gpumon.readings.verdict import Action, Confidence, Evidence, Level, Limit, Parameters, Team
from gpumon.specs.units import GIB
from gpumon.triage.finding import Cause, Finding, Quantity, Remedy, params, yes_if
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
from gpumon.triage.gpu_hardware import index_ranges
from gpumon.triage.programs import ProgramGpus, once_for, program_of, waits_for_rank
from gpumon.triage.savings import with_savings
from gpumon.triage.sentences import ADD_ENDPOINT, FIND_HOLDER, IDLE_TIME, SAVES
from gpumon.triage.signals import YES, Case, finite

_MEMORY_AT_LOAD: Final = frozenset(
    {
        *(EngineKind.VLLM, EngineKind.SGLANG, EngineKind.TENSORRT_LLM, EngineKind.TGI, EngineKind.NIM),
        *(EngineKind.LMDEPLOY, EngineKind.DYNAMO, EngineKind.RAY, EngineKind.LLAMA_CPP, EngineKind.OLLAMA),
        *(EngineKind.TEI, EngineKind.APHRODITE, EngineKind.TOKENSPEED, EngineKind.VLLM_OMNI, EngineKind.FASTDEPLOY),
        *(EngineKind.MAX, EngineKind.XINFERENCE, EngineKind.SGLANG_DIFFUSION),
    }
)
"""Engines that take their memory when they load a model: how full the VRAM is says nothing of them."""
_LEAST_UNLISTED: Final = 0.2
"""Share of a GPU's memory that must be held by nothing listed where processes are listed, too: memory that is managed
(CUDA's unified memory) is no process's in the driver's list."""
_LEAST_UNLISTED_BYTES: Final = 2.0 * GIB
"""Less is what a driver and its contexts take: below 1 GiB each. A choice between that and a small model."""
_STILL_S: Final = 60.0
"""Seconds in which a GPU without a listed process must have done nothing: else a program that is not listed works."""
_LISTING_SOURCES: Final = ("nvml", "simulator")
"""`GpuReading.source` of GPUs whose processes are all listed, as far as the pid namespace reaches."""
_HOST_COHERENT: Final = re.compile(r"\bG[BH]200\b|\bGB300\b")
"""Names of GPUs whose memory the host uses, too: the kernel's own pages there are no process's."""
_MOST_HOLDERS_IDLE: Final = 4
"""Processes whose memory is in the evidence of `memory_idle`."""
_MOST_HOLDERS_FULL: Final = 3
"""Processes whose memory is in the evidence of `vram_full`, where each of many holds little."""


VRAM_LISTED: Final = Quantity("vram_listed", "listed processes hold {value:gib}")
PROCESS_VRAM: Final = Quantity("process_vram", "{process} holds [{value:gib}|memory]")
FIND_HIDDEN_PROCESS: Final = Remedy(
    "find_hidden_process",
    ("start gpumon with --pid=host (Kubernetes: hostPID: true) to see it, or look with nvidia-smi on the host"),
    team=Team.HOST,
)
FIND_LEAK: Final = Remedy(
    "find_leak",
    (
        "if there is none: an MPS server (pgrep -a nvidia-cuda-mps), else a context that its driver "
        "leaked: sudo nvidia-smi --gpu-reset -i {index:count} while nothing runs on it"
    ),
    team=Team.HOST,
)
END_PROGRAM: Final = Remedy(
    "end_program",
    ("[{otherwise=yes}else ]ask [{owner}|its owner] to end it, or end it" + SAVES + ": that frees {vram_bytes:gib}"),
)
LESS_VRAM: Final = Remedy(
    "less_vram",
    (
        "smaller micro-batch with gradient accumulation, activation checkpointing, "
        "PYTORCH_ALLOC_CONF=expandable_segments:True; torch.cuda.memory_reserved() shows how much is "
        "only cached"
    ),
    team=Team.OWNER,
)
KEEP_VRAM_FREE: Final = Remedy(
    "keep_vram_free", "start nothing more there and no larger batches until memory is freed", team=Team.OWNER
)

VRAM_UNLISTED: Final = Cause(
    "vram_unlisted",
    Limit.IDLE_VRAM_HELD,
    (
        "{vram_bytes:gib} of {total:gib} are held by no process that is listed[ beside "
        "{processes}][{hidden=yes}: this gpumon is in a container, and sees its processes only]"
    ),
    level=Level.NOTE,
)


def memory_unlisted(case: Case) -> Finding | None:
    """Rule: memory of a GPU is in use, and the processes that are listed do not hold it.

    Where nothing is listed at all, an engine that is known or may be there holds it, or a program at work does: other
    rules tell of those.
    """
    gpu = gpu_of(case)
    reading = case.gpu_reading
    vram = vram_in_use(gpu)
    if reading is None or vram is None or not _would_be_listed(gpu, reading):
        return None
    used, total = vram
    listed = _listed_bytes(gpu)
    if listed is None or (not gpu.reading.processes and not _is_left_alone(case)):
        return None
    least_share = _LEAST_UNLISTED if gpu.reading.processes else case.thresholds.held_ratio
    unlisted = used - listed
    if unlisted < max(least_share * total, _LEAST_UNLISTED_BYTES):
        return None
    hidden = yes_if(reading.own_namespace)
    index = float(gpu.reading.index)
    evidence = [vram_evidence(case, used, total), VRAM_LISTED.evidence(listed, source="NVML processes")]
    actions = [FIND_HOLDER.action(index=index), FIND_LEAK.action(index=index)]
    if reading.own_namespace:
        actions.insert(0, FIND_HIDDEN_PROCESS.action())
    return VRAM_UNLISTED.finding(
        parameters=params(vram_bytes=unlisted, total=total, hidden=hidden, processes=program_names(gpu)),
        evidence=tuple(evidence),
        actions=tuple(actions),
        confidence=Confidence.MEDIUM if gpu.reading.processes or hidden else Confidence.HIGH,
    )


def _listed_bytes(gpu: Gpu) -> float | None:
    """Bytes that the listed processes hold together; None where one of them does not tell."""
    held = [finite(process.vram_bytes) for process in gpu.reading.processes]
    known = [size for size in held if size is not None]
    return sum(known) if len(known) == len(held) else None


def _would_be_listed(gpu: Gpu, reading: GpuReading) -> bool:
    """Whether whoever holds memory of a GPU is in its list of processes. Exporters and slices have no such list."""
    if reading.source not in _LISTING_SOURCES or not reading.lists_processes:
        return False
    return not (gpu.reading.parent_uuid or reading.mig or _HOST_COHERENT.search(gpu.reading.name))


def _is_left_alone(case: Case) -> bool:
    """Whether a GPU without a listed process does nothing, and no engine that may still run is or may be on it."""
    if any(engine.state is not EndpointState.DOWN for engine in case.engines) or unplaced_engines(case):
        return False
    return (case.recent.mean("awake", _STILL_S) or 0.0) == 0.0


VRAM_HELD: Final = Cause(
    "vram_held",
    Limit.IDLE_VRAM_HELD,
    (
        "[{cost:money} idle: ][{processes} {several=yes}hold|{processes} holds|no process that is "
        "visible from here holds] {vram_bytes:gib} and nothing computes for {seconds:lasted}"
    ),
    level=Level.NOTE,
)


def memory_idle(case: Case) -> Finding | None:
    """Rule: memory held on a GPU without an engine that has done nothing for long."""
    gpu = gpu_of(case)
    idle_s = asleep_s(case)
    limits = case.thresholds
    if is_explained(case) or idle_s < limits.gpu_idle_s:
        return None
    vram = vram_in_use(gpu)
    if vram is None:
        return None
    engine_names = unplaced_engines(case)
    used, total = vram
    if engine_names or used < limits.held_ratio * total:
        return None
    holders = [process for process in gpu.reading.processes if (finite(process.vram_bytes) or 0.0) > 0.0]
    evidence = [
        vram_evidence(case, used, total, limits.held_ratio),
        case.evidence(IDLE_TIME, idle_s, limit=limits.gpu_idle_s),
    ]
    evidence += [_vram_of_process(process) for process in holders[:_MOST_HOLDERS_IDLE]]
    parameters: Parameters = {}
    if holders:
        parameters |= params(processes=name_processes(holders))
    parameters |= params(several=yes_if(len(holders) > 1))
    parameters |= params(vram_bytes=used, seconds=idle_s, cost=idle_cost(case, gpu))
    actions = _free_memory_actions(holders, used, may_serve=engine_names is not None)
    if engine_names is None:
        actions = with_savings(actions, 1.0, idle_cost(case, gpu))
    began_s = case.now_s - idle_s
    return VRAM_HELD.finding(
        parameters=parameters,
        evidence=tuple(evidence),
        actions=actions,
        began_s=began_s,
    )


def _free_memory_actions(holders: Sequence[GpuProcess], vram_bytes: float, *, may_serve: bool) -> tuple[Action, ...]:
    """Actions that end the programs which hold memory; where one may be an engine, it is asked for an answer before."""
    if not holders:
        return (FIND_HIDDEN_PROCESS.action(),)
    users = {clean(process.user, 24) for process in holders if process.user}
    owners = ", ".join(sorted(users))
    if not may_serve:
        return (END_PROGRAM.action(owner=owners, vram_bytes=vram_bytes),)
    return (
        ADD_ENDPOINT.action(if_it_answers=YES),
        END_PROGRAM.action(owner=owners, vram_bytes=vram_bytes, otherwise=YES),
    )


def _vram_of_process(process: GpuProcess) -> Evidence:
    """Evidence of the VRAM that a process holds."""
    return PROCESS_VRAM.evidence(
        process.vram_bytes, source="NVML processes", parameters=params(process=program_text(process))
    )


VRAM_FULL: Final = Cause(
    "vram_full",
    Limit.MEMORY_FULL,
    "VRAM {share:percent}, {left:gib} left for {processes}[ on gpu {on}]: a larger batch may run out of memory",
)


def vram_full(case: Case) -> Finding | None:
    """Rule: VRAM nearly full under programs that allocate as they go: out of memory is near.

    An engine fills its share by design, so nothing is said where the memory may be that of one.
    """
    gpu = gpu_of(case)
    limits = case.thresholds
    full_gpus = _told_as_full(case)
    if not full_gpus or full_gpus[0].reading.uuid != gpu.reading.uuid:  # that one speaks for all of them
        return None
    used, total = max(map(_vram_of, full_gpus), key=lambda vram: vram[0] / vram[1])
    evidence = [vram_evidence(case, used, total, limits.vram_note_ratio)]
    holders = gpu.reading.processes[:_MOST_HOLDERS_FULL]
    evidence += [_vram_of_process(process) for process in holders if finite(process.vram_bytes) is not None]
    parameters = params(share=used / total, left=total - used, processes=program_names(gpu) or "training")
    program = program_of(case)
    if program is not None and len(full_gpus) > 1:
        on = index_ranges(sorted(full.reading.index for full in full_gpus))
        parameters |= params(processes=program.name, on=on)
    remedy = LESS_VRAM if _trains(case) else KEEP_VRAM_FREE
    level = Level.WARN if used >= limits.vram_warn_ratio * total else Level.NOTE
    return VRAM_FULL.finding(
        parameters=parameters,
        evidence=tuple(evidence),
        actions=(remedy.action(),),
        level=level,
    )


def is_told_of_another(case: Case) -> bool:
    """Whether the verdict on the nearly full memory of another GPU of the same program tells of this one, too."""
    full_gpus = _told_as_full(case)
    return bool(full_gpus) and full_gpus[0].reading.uuid != gpu_of(case).reading.uuid


def _told_as_full(case: Case) -> list[Gpu]:
    """The GPUs of one program whose VRAM is nearly full, the one that speaks for all first; empty where there is none
    to tell of."""
    gpu = gpu_of(case)
    if not _is_full(gpu, case.thresholds.vram_note_ratio):
        return []
    if not _takes_memory_as_it_goes(case, gpu, trains=_trains(case)) or waits_for_rank(case):
        return []
    program = program_of(case)
    return [gpu] if program is None else once_for(case, program, _full_gpus)


def _trains(case: Case) -> bool:
    """Whether a training run is on the GPU."""
    return any(engine.phase is Phase.TRAINING for engine in case.engines)


def _full_gpus(case: Case, program: ProgramGpus) -> list[Gpu]:
    """The GPUs of a program whose VRAM is nearly full."""
    return [gpu for gpu in program.gpus if _is_full(gpu, case.thresholds.vram_note_ratio)]


def _vram_of(gpu: Gpu) -> tuple[float, float]:
    """Bytes of VRAM in use and in all, of a GPU that tells both."""
    vram = vram_in_use(gpu)
    assert vram is not None, "it was asked before"
    return vram


def _is_full(gpu: Gpu, ratio: float) -> bool:
    """Whether at least this share of a GPU's VRAM is in use."""
    vram = vram_in_use(gpu)
    return vram is not None and vram[0] >= ratio * vram[1]


def _takes_memory_as_it_goes(case: Case, gpu: Gpu, *, trains: bool) -> bool:
    """Whether the programs on the GPU take memory as they go: they work, and are no engine."""
    # The memory of a MIG slice is its own, and engines take theirs as they load the model.
    if gpu.reading.mig_profile or any(engine.kind in _MEMORY_AT_LOAD for engine in case.engines):
        return False
    if asleep_s(case) > 0.0 or unplaced_engines(case) is not None:
        return False
    # A holder that is not visible, or has no command line that tells, may be an engine.
    return trains or (
        bool(gpu.reading.processes) and all(process.command or process.name for process in gpu.reading.processes)
    )

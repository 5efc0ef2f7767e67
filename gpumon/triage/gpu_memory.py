"""Rules on the memory of a GPU: held by programs that do nothing, or nearly full."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpumon.readings.frame import EngineKind, Phase
from gpumon.readings.process_words import name_processes, program_text
from gpumon.readings.snapshot import Gpu, Process
from gpumon.readings.text import clean
from gpumon.readings.verdict import Action, Evidence, Level, Limit, Parameters
from gpumon.triage.gpu_figures import (
    BUSY_SOURCE,
    asleep_s,
    gpu_of,
    idle_cost,
    is_explained,
    program_names,
    unplaced_engines,
    vram_evidence,
    vram_in_use,
)
from gpumon.triage.savings import with_savings
from gpumon.triage.signals import YES, Case, Finding, action, finite, gpu_chart, params, yes_if

_MEMORY_AT_LOAD: Final = frozenset(
    {
        *(EngineKind.VLLM, EngineKind.SGLANG, EngineKind.TENSORRT_LLM, EngineKind.TGI, EngineKind.NIM),
        *(EngineKind.LMDEPLOY, EngineKind.DYNAMO, EngineKind.RAY, EngineKind.LLAMA_CPP, EngineKind.OLLAMA),
        *(EngineKind.TEI, EngineKind.APHRODITE, EngineKind.TOKENSPEED, EngineKind.VLLM_OMNI, EngineKind.FASTDEPLOY),
        *(EngineKind.MAX, EngineKind.XINFERENCE, EngineKind.SGLANG_DIFFUSION),
    }
)
"""Engines that take their memory when they load a model: how full the VRAM is says nothing of them."""
_MOST_HOLDERS_IDLE: Final = 4
"""Processes whose memory is in the evidence of `memory_idle`."""
_MOST_HOLDERS_FULL: Final = 3
"""Processes whose memory is in the evidence of `vram_full`, where each of many holds little."""


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
    holders = _memory_holders(gpu)
    evidence = [
        vram_evidence(gpu, used, total, limits.held_ratio),
        Evidence("idle_time", idle_s, limit=limits.gpu_idle_s, source=BUSY_SOURCE, chart=gpu_chart(gpu, "busy")),
    ]
    for process in holders[:_MOST_HOLDERS_IDLE]:
        evidence.append(_vram_of_process(process))
    parameters: Parameters = {}
    if holders:
        parameters |= params(processes=name_processes(holders))
    parameters |= params(several=yes_if(len(holders) > 1))
    parameters |= params(vram_bytes=used, seconds=idle_s, cost=idle_cost(case, gpu))
    fixes = _free_memory_actions(holders, used, may_serve=engine_names is not None)
    if engine_names is None:
        fixes = with_savings(fixes, 1.0, idle_cost(case, gpu))
    began_s = case.now_s - idle_s
    return Finding(
        code=Limit.IDLE_VRAM_HELD,
        cause="vram_held",
        parameters=parameters,
        evidence=tuple(evidence),
        actions=fixes,
        level=Level.NOTE,
        began_s=began_s,
    )


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
        action("add_endpoint", if_it_answers=YES),
        action("end_program", owner=owners, vram_bytes=vram_bytes, otherwise=YES),
    )


def _vram_of_process(process: Process) -> Evidence:
    """Evidence of the VRAM that a process holds."""
    return Evidence(
        "process_vram", process.vram_bytes, source="NVML processes", parameters=params(process=program_text(process))
    )


def vram_full(case: Case) -> Finding | None:
    """Rule: VRAM nearly full under programs that allocate as they go: out of memory is near.

    An engine fills its share by design, so nothing is said where the memory may be that of one.
    """
    gpu = gpu_of(case)
    limits = case.thresholds
    vram = vram_in_use(gpu)
    if vram is None:
        return None
    used, total = vram
    if used < limits.vram_note_ratio * total:
        return None
    trains = any(engine.phase is Phase.TRAINING for engine in case.engines)
    if not _takes_memory_as_it_goes(case, gpu, trains=trains):
        return None
    evidence = [vram_evidence(gpu, used, total, limits.vram_note_ratio)]
    for process in gpu.processes[:_MOST_HOLDERS_FULL]:
        if finite(process.vram_bytes) is not None:
            evidence.append(_vram_of_process(process))
    parameters = params(share=used / total, left=total - used, processes=program_names(gpu) or "training")
    if trains:
        fix = action("less_vram")
    else:
        fix = action("keep_vram_free")
    level = Level.NOTE
    if used >= limits.vram_warn_ratio * total:
        level = Level.WARN
    return Finding(
        code=Limit.MEMORY_FULL,
        cause="vram_full",
        parameters=parameters,
        evidence=tuple(evidence),
        actions=(fix,),
        level=level,
    )


def _takes_memory_as_it_goes(case: Case, gpu: Gpu, *, trains: bool) -> bool:
    """Whether the programs on the GPU take memory as they go: they work, and are no engine."""
    if _is_taken_at_load(case, gpu) or asleep_s(case) > 0.0 or unplaced_engines(case) is not None:
        return False
    return trains or not _may_be_an_engine(case)


def _is_taken_at_load(case: Case, gpu: Gpu) -> bool:
    """Whether the memory is a MIG slice's, or taken by an engine when it loads its model."""
    return bool(gpu.mig_profile) or any(engine.kind in _MEMORY_AT_LOAD for engine in case.engines)


def _may_be_an_engine(case: Case) -> bool:
    """Whether the holder of the memory may be an engine: it is not visible, or has no command line that tells."""
    processes = gpu_of(case).processes
    return not processes or any(not process.command and not process.name for process in processes)

"""Is a GPU used? Its memory held for nothing, nearly full, idle, or at work; engines speak for the GPUs they are on."""

from __future__ import annotations

import math
from typing import Final

from gpumon.readings.frame import EndpointState, EngineKind, GpuState, Phase
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.process_words import program
from gpumon.readings.snapshot import Confidence, Evidence, Gpu, Level, Process
from gpumon.readings.text import clean
from gpumon.triage.engine_signals import finite, lasted, of_gpu, percent
from gpumon.triage.gpu_words import asleep_s, gib, hourly, named, unplaced, vram
from gpumon.triage.rule import Finding, Unsure
from gpumon.triage.scene import AWAKE, KEPT_S, Scene

POOLED: Final = frozenset(
    {
        *(EngineKind.VLLM, EngineKind.SGLANG, EngineKind.TENSORRT_LLM, EngineKind.TGI, EngineKind.NIM),
        *(EngineKind.LMDEPLOY, EngineKind.DYNAMO, EngineKind.RAY, EngineKind.LLAMA_CPP, EngineKind.OLLAMA),
        EngineKind.TEI,
    }
)
"""Engines that take their memory when they load a model: how full the VRAM is says nothing of them."""
SHOWN_S: Final = 60.0
_SILENT: Final = frozenset({GpuState.LOST, GpuState.RESET_REQUIRED, GpuState.INITIALISING})
"""States in which there is no question of use."""
_TELLING: Final = frozenset({EndpointState.OK, EndpointState.STARTING, EndpointState.TIMEOUT})
"""States of an engine that its own verdicts tell of, or that pass."""
_BUSY: Final = "nvmlDeviceGetUtilizationRates"
_MEMORY: Final = "nvmlDeviceGetMemoryInfo"


def memory_idle(scene: Scene) -> Finding | None:
    """Memory held on a GPU without an engine that has done nothing for long."""
    gpu, idle_s = scene.gpu, asleep_s(scene)
    if gpu is None or _is_told(scene) or idle_s < scene.thresholds.gpu_idle_s or (room := vram(gpu)) is None:
        return None
    engine = unplaced(scene)
    if engine is not None and engine.listed:
        return None
    used, total = room
    if used < scene.thresholds.held_ratio * total:
        return None
    holders = [process for process in gpu.processes if (finite(process.vram_bytes) or 0.0) > 0.0]
    evidence = (
        Evidence(f"VRAM {percent(used / total)}: {gib(used)} of {gib(total)}", _MEMORY, used, of_gpu(gpu, "vram")),
        Evidence(f"at most {percent(AWAKE)} busy for {lasted(idle_s)}", _BUSY, idle_s, of_gpu(gpu, "busy")),
        *(_holds(process) for process in holders[:4]),
    )
    if not holders:
        who = f"{gib(used)} held by no process that is visible from here"
        action = f"nvidia-smi on the host (a container hides other processes), or fuser -v /dev/nvidia{gpu.index}"
    else:
        who = f"{named(holders)} {'holds' if len(holders) == 1 else 'hold'} {gib(used)}"
        action = f"ask {_owners(holders)} to end it, or end it; then the GPU is free for {gib(total)}"
        action = action if engine is None else f"{engine.fix} if its server still answers; else {action}"
    text = f"{who} and nothing computes for {lasted(idle_s)}{hourly(scene, gpu)}"
    return Finding(text, evidence, action, Level.NOTE, began_s=scene.now_s - idle_s)


def _holds(process: Process) -> Evidence:
    held = finite(process.vram_bytes) or 0.0
    return Evidence(f"{program(process)} holds {held / (1 << 20):,.0f} MiB", "NVML processes", process.vram_bytes)


def _owners(processes: list[Process]) -> str:
    users = sorted({clean(process.user, 24) for process in processes if process.user})
    return ", ".join(users) or "its owner"


def memory_full(scene: Scene) -> Finding | None:
    """VRAM nearly full under programs that allocate as they go: out of memory is near."""
    gpu = scene.gpu
    room = vram(gpu) if gpu is not None else None
    if gpu is None or room is None or gpu.mig_profile or any(engine.kind in POOLED for engine in scene.engines):
        return None
    used, total = room
    limits = scene.thresholds
    if used < limits.vram_note_ratio * total or asleep_s(scene) > 0.0 or unplaced(scene) is not None:
        return None
    level = Level.WARN if used >= limits.vram_warn_ratio * total else Level.NOTE
    trains = any(engine.phase is Phase.TRAINING for engine in scene.engines)
    who = named(gpu.processes) if gpu.processes else "training" if trains else "programs that are not visible here"
    evidence = (
        Evidence(f"VRAM {percent(used / total)}: {gib(used)} of {gib(total)}", _MEMORY, used, of_gpu(gpu, "vram")),
        *(_holds(process) for process in gpu.processes[:3] if finite(process.vram_bytes) is not None),
    )
    text = f"VRAM {percent(used / total)}, {gib(total - used)} left for {who}: a larger batch may run out of memory"
    action = (
        "smaller micro-batch with gradient accumulation, activation checkpointing, PYTORCH_ALLOC_CONF="
        "expandable_segments:True; torch.cuda.memory_reserved() tells how much is only cached"
    )
    return Finding(text, evidence, action, level)


def under_used(scene: Scene) -> Finding | None:
    """A GPU without an engine that does little or nothing."""
    gpu = scene.gpu
    if gpu is None or _is_told(scene) or _is_parent(scene) or scene.recent.seconds < KEPT_S - 30.0:
        return None
    busy = _mean_busy(scene)
    if busy is None or busy >= scene.thresholds.busy_low_ratio:
        return None
    idle_s = asleep_s(scene)
    rests = idle_s > SHOWN_S
    shown = f"at most {percent(AWAKE)} busy for {lasted(idle_s)}" if rests else f"busy {percent(busy)} over 3 min"
    evidence = [Evidence(shown, _BUSY, busy, of_gpu(gpu, "busy"))]
    room = vram(gpu)
    if room is not None:
        text = f"VRAM {gib(room[0])} of {gib(room[1])}"
        evidence.append(Evidence(text, _MEMORY, room[0], of_gpu(gpu, "vram")))
    loaded = f", with {named(gpu.processes)} on it" if gpu.processes else ", nothing runs on it"
    said = f"idle for {lasted(idle_s)}" if rests else f"{percent(busy)} busy over 3 min"
    text = f"{said}{loaded}{hourly(scene, gpu) if rests else ''}"
    action = "free for other work"
    if gpu.processes:
        still = "ask its owner whether it is still needed: it can be ended, or share its GPU with others"
        action = still if rests else "let it share its GPU with others, or give it larger batches"
    engine = unplaced(scene)
    action = action if engine is None else f"{engine.fix}: its own figures tell what it is used for"
    began_s = scene.now_s - idle_s if rests else math.inf
    return Finding(text, tuple(evidence), action, Level.NOTE, Confidence.MEDIUM, began_s)


def at_work(scene: Scene) -> Finding | Unsure | None:
    """A GPU without an engine that works: healthy where its own activity shows that, else nobody can tell."""
    gpu = scene.gpu
    if gpu is None or _is_told(scene) or _is_parent(scene) or gpu.state in _SILENT:
        return None
    busy = _mean_busy(scene)
    if busy is None:
        return Unsure((f"busy share ({_why(gpu)})",), (Evidence(f"state {gpu.state.value}", "NVML"),))
    if scene.recent.seconds < SHOWN_S:
        return None
    evidence = [Evidence(f"busy {percent(busy)} over 3 min", _BUSY, busy, of_gpu(gpu, "busy"))]
    tensor = finite(scene.recent.mean("tensor_active_ratio", SHOWN_S))
    sm = finite(scene.recent.mean("sm_active_ratio", SHOWN_S))
    for name, value, chart in (("SM active", sm, "sm"), ("tensor active", tensor, "tensor")):
        if value is not None:
            evidence.append(
                Evidence(
                    f"{name} {percent(value)}, mean of 60 s", gpu.activity_source or "GPM", value, of_gpu(gpu, chart)
                )
            )
    if busy < scene.thresholds.busy_low_ratio:
        return None
    who = named(gpu.processes) if gpu.processes else "a program that is not visible here"
    if sm is not None and sm >= 0.5:
        return Finding(f"{who}: SM active {percent(sm)}", tuple(evidence), "", Level.OK, Confidence.MEDIUM)
    engine = unplaced(scene)
    fix = "no engine is known here, add its URL with --endpoint" if engine is None else engine.fix
    asked = f"what {who} does with it (busy {percent(busy)}): {fix}"
    return Unsure((asked,), tuple(evidence))


def _mean_busy(scene: Scene) -> float | None:
    """Busy share of the last minutes; of a MIG slice, for which there is none, its SM activity."""
    busy = finite(scene.recent.mean("busy_ratio", KEPT_S))
    return finite(scene.recent.mean("sm_active_ratio", KEPT_S)) if busy is None else busy


def _is_told(scene: Scene) -> bool:
    """Whether an engine on it has figures, or a verdict for having none."""
    return any(engine.state in _TELLING for engine in scene.engines)


def _is_parent(scene: Scene) -> bool:
    """Whether a GPU is split: its slices are told one by one."""
    return scene.gpu_reading is not None and scene.gpu_reading.mig and not scene.gpu_reading.parent_uuid


def _why(gpu: Gpu) -> str:
    said: Reading = gpu.busy_ratio
    if isinstance(said, Missing):
        return clean(said.detail, 80) or said.reason.value.replace("_", " ")
    return gpu.state.value.replace("_", " ")

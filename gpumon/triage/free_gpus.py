"""GPUs of this host that are free for one more instance of an engine."""

from __future__ import annotations

import math
from typing import Final

from gpumon.readings.format import spans
from gpumon.readings.frame import GpuState
from gpumon.readings.snapshot import Gpu
from gpumon.readings.verdict import Action, Family, Level
from gpumon.triage.finding import Finding, params
from gpumon.triage.signals import MINUTE_S, Case, finite

ADDS_INSTANCES: Final = frozenset({"more_instances", "more_instances_for_rest", "more_instances_no_kv"})
"""Actions that need GPUs."""
SAME_SIZE: Final = 0.99
"""Share of the VRAM of an engine's own GPUs that another one must have: drivers reserve a little more or less of it."""


def with_free_gpus(case: Case, finding: Finding) -> Finding:
    """The finding, with the free GPUs that more instances of its engine fit on."""
    if not any(action.code in ADDS_INSTANCES for action in finding.actions):
        return finding
    free = free_gpus(case)
    if not free:
        return finding
    actions = tuple(_on(action, case, free) for action in finding.actions)
    return finding._replace(actions=actions)


def _on(action: Action, case: Case, free: list[int]) -> Action:
    """The action with the GPUs of as many instances as it asks for; where fewer fit, with the number of those."""
    if action.code not in ADDS_INSTANCES:
        return action
    wanted = finite(_number(action, "instances")) or 2.0
    now = finite(_number(action, "now")) or 1.0
    size = instance_gpus(case)
    more = max(1, round(wanted - now))
    fit = len(free) // size
    shown = free[: size * more]
    word = "GPU" if len(shown) == 1 else "GPUs"
    gpus = f"{word} {spans(shown)}"
    if fit >= more:
        return Action(action.code, action.parameters | params(free=gpus))
    return Action(action.code, action.parameters | params(partly=gpus, fit=float(fit)))


def _number(action: Action, name: str) -> float | None:
    value = action.parameters.get(name)
    if isinstance(value, float):
        return value
    return None


def instance_gpus(case: Case) -> int:
    """GPUs of one instance of the engine on this host; 0 where they are not known."""
    ranks = max(1, case.engine.hardware.ranks) if case.engine is not None else 1
    if len(case.gpus) % ranks == 0:
        return len(case.gpus) // ranks
    return len(case.gpus)


def free_gpus(case: Case) -> list[int]:
    """Indices of free GPUs, a whole number of instances of them; empty where not even one fits."""
    size = instance_gpus(case)
    if not size:
        return []
    least_bytes = math.inf
    for gpu in case.gpus:
        total = finite(gpu.reading.vram_total_bytes)
        if total is None or gpu.reading.parent_uuid:
            return []
        least_bytes = min(least_bytes, SAME_SIZE * total)
    free = [gpu.reading.index for gpu in case.snapshot.gpus if _is_free(case, gpu, least_bytes)]
    return free[: len(free) // size * size]


def _is_free(case: Case, gpu: Gpu, least_bytes: float) -> bool:
    """Whether a GPU works, is large enough, and nothing has run on it for a minute."""
    recent = case.recents.get(gpu.reading.uuid)
    if recent is None or recent.free_s < case.now_s or case.now_s - recent.used_s < MINUTE_S:
        return False
    total = finite(gpu.reading.vram_total_bytes)
    if total is None or total < least_bytes:
        return False
    return _is_whole(case, gpu) and not _is_faulty(case, gpu)


def _is_whole(case: Case, gpu: Gpu) -> bool:
    """Whether a GPU is neither a MIG slice nor split into such."""
    return not (gpu.reading.mig_profile or gpu.reading.parent_uuid or _is_split(case, gpu))


def _is_faulty(case: Case, gpu: Gpu) -> bool:
    """Whether a GPU does not answer, or a verdict on it says that it is broken or slow."""
    if gpu.reading.state is not GpuState.OK:
        return True
    verdicts = case.standing.get(gpu.reading.uuid, ())
    return any(verdict.family is Family.STATE and verdict.level in (Level.CRITICAL, Level.WARN) for verdict in verdicts)


def _is_split(case: Case, gpu: Gpu) -> bool:
    """Whether MIG is on: only its slices can be used."""
    return any(reading.uuid == gpu.reading.uuid and reading.mig for reading in case.frame.gpus)

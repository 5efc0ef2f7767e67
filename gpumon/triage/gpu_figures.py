"""Figures of a GPU that several rules take: its VRAM, its idle time, its programs, and engines that may be on it."""

from __future__ import annotations

import re
from typing import Final

from gpumon.efficiency.faults import is_free, may_be_anywhere
from gpumon.readings.frame import EndpointState, GpuReading, GpuState
from gpumon.readings.missing import number
from gpumon.readings.prices import price_of_hour
from gpumon.readings.process_words import name_processes
from gpumon.readings.snapshot import Gpu
from gpumon.readings.text import clean
from gpumon.readings.verdict import Evidence
from gpumon.triage.finding import Quantity
from gpumon.triage.host import has_name
from gpumon.triage.signals import Case, finite

_SELF_EXPLAINING: Final = frozenset({EndpointState.OK, EndpointState.STARTING, EndpointState.TIMEOUT})
"""States of an engine whose own verdicts explain the use of its GPU, or that pass."""
_SERVER_NAME: Final = re.compile(
    r"(?:^|[\s/])(?:vllm|sglang|trtllm|tritonserver|text-generation|llama-server|ollama|lmdeploy|fastdeploy|tokenspeed|xinference)\b"
    r"|\bsglang::|ray::(?:ServeReplica|RayWorkerWrapper)|::(?:EngineCore|Worker|APIServer)",
    re.IGNORECASE,
)
"""Names of the processes of engines: of their program, or the title that they give themselves."""


VRAM_USED: Final = Quantity("vram_used", "VRAM {value:gib} of {total:gib}", field="vram_used_bytes")


def gpu_of(case: Case) -> Gpu:
    """The GPU that a rule on GPUs is asked about."""
    assert case.gpu is not None, "not a GPU"
    return case.gpu


def unplaced_engines(case: Case) -> str | None:
    """Names of the listed engines that may run on a GPU on which none is known to run: `a or b`.

    Empty where a server's process is seen on it, and no engine is listed that it may be; None where nothing looks like
    an engine.
    """
    gpu = gpu_of(case)
    reading = case.gpu_reading
    if reading is None or case.engines:
        return None
    is_server = any(has_name(_SERVER_NAME, process) for process in gpu.reading.processes)
    if not is_server and not _hides_programs(gpu, reading):
        return None
    names = [clean(engine.name, 40) for engine in case.frame.engines if may_be_anywhere(engine)]
    return " or ".join(names[:3]) if names or is_server else None


def _hides_programs(gpu: Gpu, reading: GpuReading) -> bool:
    """Whether a program is on the GPU whose command line cannot be read."""
    if gpu.reading.processes:
        return any(not process.command for process in gpu.reading.processes)
    return not is_free(reading)


def asleep_s(case: Case) -> float:
    """For how long a GPU has done nothing; 0 where it works, or where nobody knows."""
    if case.recent.last("awake") != 0.0:
        return 0.0
    sampled_s = case.recent.steady_s("awake")
    if case.gpu_reading is None or not case.gpu_reading.idle_since_wall_s:
        return max(sampled_s, 0.0)
    return max(sampled_s, case.frame.wall_s - case.gpu_reading.idle_since_wall_s)


def vram_in_use(gpu: Gpu) -> tuple[float, float] | None:
    """Bytes of VRAM in use and in all; None where they are not known, or are the host's."""
    used = finite(gpu.reading.vram_used_bytes)
    total = finite(gpu.reading.vram_total_bytes)
    if gpu.reading.vram_shared or used is None or not total:
        return None
    return (used, total)


def vram_evidence(case: Case, used: float, total: float, limit: float = 1.0) -> Evidence:
    """Evidence of the VRAM in use on a GPU, beside a share (`limit`) of all."""
    return case.evidence(VRAM_USED, used, limit=limit * total, total=total)


def idle_cost(case: Case, gpu: Gpu) -> float | None:
    """Price of an idle GPU per hour; None where none is known, as of a part of a GPU."""
    if gpu.reading.parent_uuid:
        return None
    return number(price_of_hour(gpu.gpu_type, case.prices))


def program_names(gpu: Gpu) -> str | None:
    """Names of the programs on a GPU; None where none is listed."""
    if gpu.reading.processes:
        return name_processes(gpu.reading.processes)
    return None


def is_explained(case: Case) -> bool:
    """Whether an engine on it has figures, or a verdict for having none; or an engine lost another of its GPUs."""
    if any(engine.state in _SELF_EXPLAINING for engine in case.engines):
        return True
    lost = {
        gpu.reading.uuid
        for gpu in case.snapshot.gpus
        if gpu.reading.state in (GpuState.LOST, GpuState.MUTE, GpuState.RESET_REQUIRED)
    }
    return any(case.key in reading.gpus and not lost.isdisjoint(reading.gpus) for reading in case.frame.engines)

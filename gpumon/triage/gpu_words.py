"""How GPU rules name processes, memory and money."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from typing import Final, NamedTuple

from gpumon.efficiency.faults import is_free, is_unmapped
from gpumon.readings.format import GIB
from gpumon.readings.process_words import program, titled
from gpumon.readings.snapshot import Gpu, Process
from gpumon.readings.text import clean
from gpumon.triage.engine_fewer import money
from gpumon.triage.engine_signals import finite
from gpumon.triage.scene import Scene

_MOST: Final = 3
"""Processes that are named."""
_SERVER: Final = re.compile(
    r"(?:^|[\s/])(?:vllm|sglang|trtllm|tritonserver|text-generation|llama-server|ollama|lmdeploy)\b"
    r"|\bsglang::|ray::(?:ServeReplica|RayWorkerWrapper)|::(?:EngineCore|Worker|APIServer)",
    re.IGNORECASE,
)
"""How the processes of engines are called: by their program, or by the title that they give themselves."""
SPINNER: Final = re.compile(r"\bsglang\b", re.IGNORECASE)
"""The same of an engine whose scheduler keeps a core at 100 % while it is idle (sglang#9863)."""


class Unplaced(NamedTuple):
    """An engine that probably runs on a GPU, and that nobody knows to run there."""

    listed: bool
    """It is one of those that are shown; else only its process is seen."""
    fix: str


def unplaced(scene: Scene) -> Unplaced | None:
    """Of a GPU without an engine: one that it may have."""
    gpu, reading = scene.gpu, scene.gpu_reading
    if gpu is None or reading is None or scene.engines:
        return None
    named_so = any(is_called(_SERVER, process) for process in gpu.processes)
    unknown = any(not process.command for process in gpu.processes) or not (gpu.processes or is_free(reading))
    found = islice(filter(is_unmapped, scene.frame.engines), _MOST) if named_so or unknown else ()
    if names := [clean(engine.name, 40) for engine in found]:
        return Unplaced(True, f"add gpus to the [[endpoint]] of {' or '.join(names)}")
    return Unplaced(False, "add the engine's URL with --endpoint") if named_so else None


def is_called(pattern: re.Pattern[str], process: Process) -> bool:
    """Whether a process has such a name, title or script."""
    return bool(pattern.search(process.name) or pattern.search(titled(process)))


def named(processes: Sequence[Process]) -> str:
    """The processes that hold most, by name, pid and user."""
    ranked = sorted(processes, key=lambda process: -(finite(process.vram_bytes) or 0.0))
    words = ", ".join(program(process) for process in ranked[:_MOST])
    more = len(ranked) - _MOST
    return f"{words} and {more} more" if more > 0 else words


def gib(size_bytes: float) -> str:
    """`38 GiB`, `0.4 GiB`."""
    size = size_bytes / GIB
    return f"{size:.0f} GiB" if size >= 9.5 else f"{size:.1f} GiB"


def hourly(scene: Scene, gpu: Gpu) -> str:
    """What an idle GPU costs, as the end of a sentence; empty where no price is known, as of a part of a GPU."""
    price = 0.0 if gpu.parent_uuid else scene.prices.get(gpu.gpu_type, scene.prices.get("", 0.0))
    return f": {money(price)} idle" if price > 0.0 else ""


def asleep_s(scene: Scene) -> float:
    """For how long a GPU has done nothing; 0 where it works, or where nobody knows."""
    return scene.recent.steady_s("awake") if scene.recent.last("awake") == 0.0 else 0.0


def vram(gpu: Gpu) -> tuple[float, float] | None:
    """Bytes of VRAM in use and in all; None where they are not known, or are the host's."""
    used, total = finite(gpu.vram_used_bytes), finite(gpu.vram_total_bytes)
    return None if gpu.vram_shared or used is None or not total else (used, total)

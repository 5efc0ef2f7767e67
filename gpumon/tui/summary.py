"""Everything in one line, for a terminal too small for tables."""

from __future__ import annotations

from gpumon.readings.format import cells, count, ratio, watts
from gpumon.readings.frame import EndpointState, GpuState
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading
from gpumon.readings.snapshot import Snapshot
from gpumon.tui.line import Piece, Row


def summary(snapshot: Snapshot | None, width: int, *, paused: bool) -> Row:
    """The most important first, as many whole parts as fit into `width` cells."""
    if snapshot is None:
        return (("gpumon: starting", "text"),)
    row: list[Piece] = []
    used = 0
    for text, tone in _parts(snapshot, paused=paused):
        gap = 1 if row else 0
        if used + gap + cells(text) > width:
            break
        row += [(" " * gap, "text"), (text, tone)]
        used += gap + cells(text)
    return tuple(row)


def _parts(snapshot: Snapshot, *, paused: bool) -> list[Piece]:
    gpus, engines = [gpu for gpu in snapshot.gpus if not gpu.parent_uuid], snapshot.engines
    lost = sum(gpu.state is not GpuState.OK for gpu in gpus)
    down = sum(engine.state is not EndpointState.OK for engine in engines)
    parts: list[Piece] = [("SIM", "badge")] if snapshot.simulated else []
    parts += [("PAUSED", "badge_paused")] if paused else []
    parts.append((f"{len(gpus)} GPU", "text"))
    parts += [(f"{lost} DOWN", "critical")] if lost else []
    parts += [(f"busy {ratio(_mean([gpu.busy_ratio for gpu in gpus]))}", "text")] if gpus else []
    parts += [(f"{down} engine DOWN", "critical")] if down else []
    if engines:
        parts.append((f"mfu {ratio(_mean([gpu.mfu_ratio for gpu in gpus]))}", "text"))
        parts.append((f"mbu {ratio(_mean([gpu.mbu_ratio for gpu in gpus]))}", "text"))
        parts.append((f"{count(_sum([engine.decode_tokens_per_s for engine in engines]))} tok/s", "text"))
    parts += [(watts(_sum([gpu.power_w for gpu in gpus])), "text")] if gpus else []
    parts += [(f"{len(snapshot.faults)} faults", "warn")] if snapshot.faults else []
    return parts


def _known(readings: list[Reading]) -> list[float]:
    return [reading for reading in readings if not isinstance(reading, Missing)]


def _mean(readings: list[Reading]) -> Reading:
    known = _known(readings)
    return sum(known) / len(known) if known else NOT_EXPOSED


def _sum(readings: list[Reading]) -> Reading:
    known = _known(readings)
    return sum(known) if known else NOT_EXPOSED

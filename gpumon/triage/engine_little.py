"""Whether an engine does little: idle, or far fewer requests than it could run."""

from __future__ import annotations

from typing import Final, NamedTuple

from gpumon.readings.snapshot import Engine
from gpumon.triage.engine_signals import NOW_S, Activity, activity, held, mean, served, slots
from gpumon.triage.engine_state import TOKENS, still_s
from gpumon.triage.scene import KEPT_S, Scene

FULL: Final = 0.9
"""Share of the time over which use is judged that has to have been seen."""
LEAST_USAGE: Final = 0.01
"""KV cache use below which its rounding decides what fits (SGLang tells it in steps of 0.01)."""


class Little(NamedTuple):
    """What an engine does that does little; means over the time in which use is judged."""

    room: tuple[float, str]
    """`capacity`."""
    running: float
    seen: Activity
    arithmetic: float
    reads: float


def idle_s(scene: Scene) -> float | None:
    """For how long no request has been there; None where one is or just was, or where nothing tells."""
    recent = scene.recent
    loads = [field for field in ("running", "waiting", "inferences_per_s") if recent.last(field) is not None]
    if any(recent.last(field) != 0.0 for field in loads):
        return None
    counts = still_s(scene, TOKENS)
    if not loads and counts is None:
        return None
    quiet_s = min([*(recent.steady_s(field) for field in loads), *([] if counts is None else [counts])])
    return quiet_s if quiet_s >= NOW_S else None


def is_idle(scene: Scene) -> bool:
    """Whether it has had no request for so long that it is told as idle."""
    quiet_s = idle_s(scene)
    return quiet_s is not None and quiet_s >= scene.thresholds.idle_s


def left_s(scene: Scene) -> float:
    """For how long it has to be seen yet before its use is judged; none is left at 0 and below."""
    return FULL * min(scene.thresholds.under_used_s, KEPT_S) - scene.recent.seconds


def few(scene: Scene) -> Little | None:
    """What an engine does that is told to run few requests; None where its use is not judged, or it is not that."""
    engine = served(scene)
    if engine is None or scene.found or is_idle(scene) or left_s(scene) > 0.0:
        return None
    return little(scene, engine)


def little(scene: Scene, engine: Engine) -> Little | None:
    """Its use as far as it was seen, where that is far below what it could do, and its figures can be believed."""
    seconds = min(scene.thresholds.under_used_s, KEPT_S)
    running = mean(scene, "running", seconds)
    if not running or engine.contradicts:
        return None
    room, limits = capacity(scene, engine, running), scene.thresholds
    if room is None or running > limits.under_used_slots_ratio * room[0]:
        return None
    seen = activity(scene, seconds)
    arithmetic = _either(mean(scene, "mfu_ratio", seconds), seen.tensor)
    reads = _either(mean(scene, "mbu_ratio", seconds), seen.dram)
    if arithmetic is None or reads is None:
        return None
    if arithmetic > limits.under_used_mfu_ratio or reads > limits.under_used_mbu_ratio:
        return None
    return Little(room, running, seen, arithmetic, reads)


def _either(modelled: float | None, measured: float | None) -> float | None:
    return measured if modelled is None else modelled


def capacity(scene: Scene, engine: Engine, running: float) -> tuple[float, str] | None:
    """Requests that an engine can run at once, and what bounds them: its slots, or its KV pool."""
    found = [] if (known := slots(scene)) is None else [known]
    if (fits := held(engine)) is not None:
        found.append((fits, "KV pool / tokens of a running request"))
    elif (usage := mean(scene, "kv_usage_ratio", min(scene.thresholds.under_used_s, KEPT_S)) or 0.0) >= LEAST_USAGE:
        found.append((running / usage, "requests running / KV cache use"))
    return min(found) if found and min(found)[0] >= 1.0 else None

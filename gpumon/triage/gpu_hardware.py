"""Is a GPU broken? Lost, in need of a reset, with memory errors, or with an Xid of the driver."""

from __future__ import annotations

from typing import Final, NamedTuple

from gpumon.readings.format import age
from gpumon.readings.frame import GpuState, XidEvent
from gpumon.readings.missing import Reading
from gpumon.readings.snapshot import Confidence, Evidence, Level
from gpumon.readings.text import clean
from gpumon.triage.engine_signals import finite
from gpumon.triage.gpu_words import named
from gpumon.triage.rule import Finding
from gpumon.triage.scene import KEPT_S, Recent, Scene
from gpumon.triage.xid import RESET, XIDS, xid_of

_URGENCY: Final = {level: at for at, level in enumerate(Level)}
OFF_THE_BUS: Final = 79
XID_SOURCE: Final = "NVML Xid event"
ECC_SOURCE: Final = "nvmlDeviceGetTotalEccErrors"
ROWS_SOURCE: Final = "nvmlDeviceGetRemappedRows"


class _Sign(NamedTuple):
    """One thing that is wrong."""

    level: Level
    text: str
    action: str
    evidence: Evidence
    confidence: Confidence = Confidence.HIGH


def broken(scene: Scene) -> Finding | None:
    """The worst that is wrong with a GPU's hardware, and all else that is."""
    signs = sorted((*_state(scene), *_xids(scene, is_application=False), *_memory(scene)), key=_urgency)
    return _finding(scene, signs)


def program_fault(scene: Scene) -> Finding | None:
    """Xids that a program caused: the hardware is fine."""
    return _finding(scene, sorted(_xids(scene, is_application=True), key=_urgency))


def _urgency(sign: _Sign) -> int:
    return _URGENCY[sign.level]


def _finding(scene: Scene, signs: list[_Sign]) -> Finding | None:
    if not signs or scene.gpu is None:
        return None
    worst = signs[0]
    action = worst.action.replace("{index}", str(scene.gpu.index))
    return Finding(worst.text, tuple(sign.evidence for sign in signs), action, worst.level, worst.confidence)


def _state(scene: Scene) -> list[_Sign]:
    gpu = scene.gpu
    if gpu is None or gpu.state not in (GpuState.LOST, GpuState.RESET_REQUIRED):
        return []
    said = f": {clean(gpu.state_text, 120)}" if gpu.state_text else ""
    if gpu.state is GpuState.LOST:
        lost = f"lost for {age(gpu.age_s)}" if gpu.age_s >= 1.0 else "lost"
        text, action = f"{_why_lost(scene)}{lost}", XIDS[OFF_THE_BUS].action
    else:
        text, action = "needs a reset", RESET
    return [_Sign(Level.CRITICAL, text, action, Evidence(f"state {gpu.state.value}{said}", "NVML"))]


def _why_lost(scene: Scene) -> str:
    """What the driver said of it, as the beginning of a sentence: `fell off the bus (Xid 79), `."""
    codes = [event.code for event in scene.gpu_reading.xid] if scene.gpu_reading is not None else []
    if OFF_THE_BUS in codes:
        return f"fell off the bus (Xid {OFF_THE_BUS}), "
    code = next((code for code in reversed(codes) if xid_of(code).level is Level.CRITICAL), None)
    return "" if code is None else f"Xid {code} ({xid_of(code).text.partition(':')[0]}), "


def _xids(scene: Scene, *, is_application: bool) -> list[_Sign]:
    """One sign for each code that came lately, with how often and when last."""
    newest: dict[int, list[XidEvent]] = {}
    for event in scene.gpu_reading.xid if scene.gpu_reading is not None else ():
        newest.setdefault(event.code, []).append(event)
    signs = []
    limits = scene.thresholds
    for code, events in newest.items():
        kind = xid_of(code)
        ago_s = scene.frame.wall_s - events[-1].wall_s
        kept_s = limits.xid_application_s if kind.is_application else limits.xid_s
        if kind.is_application is not is_application or ago_s > kept_s:
            continue
        times = f"{len(events)} times, last " if len(events) > 1 else ""
        shown = Evidence(f"Xid {code}: {kind.text} ({times}{age(max(0.0, ago_s))} ago)", XID_SOURCE, float(code))
        text = f"Xid {code}: {kind.text}"
        if is_application and scene.gpu is not None and scene.gpu.processes:
            text += f"; on it now: {named(scene.gpu.processes)}"
        signs.append(_Sign(kind.level, text, kind.action, shown, kind.confidence))
    return signs


def _memory(scene: Scene) -> list[_Sign]:
    gpu = scene.gpu
    if gpu is None:
        return []
    signs = []
    if _count(gpu.remap_failed):
        shown = Evidence("row remapping failed", ROWS_SOURCE, gpu.remap_failed)
        action = "drain it and replace this GPU (RMA): it has no spare memory rows left where it needs one"
        signs.append(_Sign(Level.CRITICAL, "a memory row could not be remapped", action, shown))
    if count := _count(gpu.ecc_uncorrected):
        signs.append(_ecc(scene, count))
    if _count(gpu.remap_pending):
        shown = Evidence("a row waits to be remapped", ROWS_SOURCE, gpu.remap_pending)
        signs.append(_Sign(Level.WARN, "a memory row waits to be remapped: the next reset does it", RESET, shown))
    return signs


def _ecc(scene: Scene, count: float) -> _Sign:
    risen = ecc_risen(scene.recent)
    kept = f"{count:.0f} uncorrectable ECC error{'' if count == 1.0 else 's'} since the driver was loaded"
    if risen > 0.0:
        action = f"{RESET}; if more come after that: dcgmi diag -r 3, then replace the GPU"
        shown = Evidence(f"{kept}, {risen:.0f} of them in the last 3 min", ECC_SOURCE, count)
        return _Sign(Level.CRITICAL, f"uncorrectable ECC errors rise: {count:.0f}, {risen:.0f} more", action, shown)
    action = f"{RESET} when it is free; if more come after that, replace it"
    return _Sign(Level.WARN, kept, action, Evidence(kept, ECC_SOURCE, count))


def ecc_risen(recent: Recent) -> float:
    """Uncorrectable ECC errors of a GPU that came in the last 3 minutes."""
    values = recent.values("ecc_uncorrected", KEPT_S)
    return values[-1][1] - values[0][1] if values else 0.0


def _count(reading: Reading) -> float:
    return finite(reading) or 0.0

"""How the level of a verdict is marked: the same on every screen and in every text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from gpumon.efficiency.faults import is_told
from gpumon.readings.snapshot import Family, FaultShown, Gpu, Kind, Level, Limit, Snapshot, Verdict
from gpumon.readings.verdict import URGENCY as URGENCY


class Mark(msgspec.Struct, frozen=True):
    """Mark in front of a verdict."""

    glyph: str
    plain: str
    """Its stand-in in ASCII."""
    tone: str
    """Tone on the screen."""
    word: str


MARKS: Final[Mapping[Level, Mark]] = {
    Level.CRITICAL: Mark("✗", "x", "critical", "critical"),
    Level.WARN: Mark("!", "!", "warn", "warning"),
    Level.NOTE: Mark("+", "+", "note", "note"),
    Level.OK: Mark("●", "*", "ok", "ok"),
}
"""Level -> its mark."""
_MOST_PEERS: Final = 2
"""GPUs that are named as those which another one waits for: the age of its reading stays in view at 60 columns."""
GPU_DEGRADED: Final = "gpu_degraded"
"""Cause of the verdict on an engine of which a GPU is broken or slow, which has a verdict of its own."""
ABSENT_S: Final[Mapping[Level, float]] = {
    Level.CRITICAL: 300.0,
    Level.WARN: 300.0,
    Level.NOTE: 900.0,
    Level.OK: 300.0,
}
"""Level of a verdict -> seconds for which a run must not find it to know that it is over. Verdicts come, and come back,
after 30 s of a window of 1 to 3 minutes; those on waste after 10 minutes, as does any note that came and went."""
URGENT: Final = (Level.CRITICAL, Level.WARN)
"""Levels at which somebody suffers."""


def counted_verdicts(snapshot: Snapshot) -> Sequence[Verdict]:
    """The verdicts that somebody still has to take on: those that are not acknowledged."""
    return [verdict for verdict in snapshot.verdicts if verdict.acknowledged is None]


def keys_of(snapshot: Snapshot) -> set[str]:
    """Stable ids of the engines and GPUs that are listed; "" for the host."""
    return {"", *(engine.key for engine in snapshot.engines), *(gpu.reading.uuid for gpu in snapshot.gpus)}


def states_by_key(verdicts: Sequence[Verdict], kind: Kind) -> dict[str, Verdict]:
    """Key of a thing -> the verdict on its state."""
    return {verdict.key: verdict for verdict in verdicts if verdict.kind is kind and verdict.family is Family.STATE}


def urgent_by_key(verdicts: Sequence[Verdict], kind: Kind) -> dict[str, Verdict]:
    """Key of a thing -> its worst verdict, of those with a level that is urgent."""
    worst: dict[str, Verdict] = {}
    for verdict in verdicts:
        if verdict.kind is kind and verdict.level in URGENT:
            worst.setdefault(verdict.key, verdict)
    return worst


def urgent_by_gpu(snapshot: Snapshot) -> dict[str, Verdict]:
    """UUID of a GPU -> the worst urgent verdict on it, or on an engine that runs on it; of two alike the GPU's own.

    That one GPU of an engine is broken or slow says nothing of the others, unless they wait for it.
    """
    worst = urgent_by_key(snapshot.verdicts, Kind.GPU)
    by_key = urgent_by_key(snapshot.verdicts, Kind.ENGINE)
    by_engine = {engine.name: by_key[engine.key] for engine in snapshot.engines if engine.key in by_key}
    if not by_engine:
        return worst
    for gpu in snapshot.gpus:
        for name in gpu.engines:
            verdict = by_engine.get(name)
            if verdict is None or not _is_more_urgent(verdict, worst.get(gpu.reading.uuid)):
                continue
            if verdict.cause != GPU_DEGRADED or peers_waited_for(gpu, verdict):
                worst[gpu.reading.uuid] = verdict
    return worst


def peers_waited_for(gpu: Gpu, verdict: Verdict) -> str:
    """The other GPUs for which this one waits, by the verdict on its engine; empty: it waits for none.

    Of many the first two are named: `gpu 10, gpu 11 and 5 more`.
    """
    if verdict.kind is not Kind.ENGINE or verdict.parameters.get("waits") != "for_it":
        return ""
    peers = verdict.parameters.get("gpus") or verdict.parameters.get("gpu")
    index = verdict.parameters.get("index")
    if isinstance(index, float):
        peers = f"gpu {index:.0f}"
    if not isinstance(peers, str):
        return ""
    names = peers.split(" and ")
    if f"gpu {gpu.reading.index}" in names:
        return ""
    if len(names) <= _MOST_PEERS:
        return peers
    return f"{', '.join(names[:_MOST_PEERS])} and {len(names) - _MOST_PEERS} more"


def _is_more_urgent(verdict: Verdict, other: Verdict | None) -> bool:
    """Whether a verdict is more urgent than the one that is known, if there is one."""
    return other is None or URGENCY[verdict.level] < URGENCY[other.level]


def untold_faults(faults: Iterable[FaultShown], verdicts: Iterable[Verdict]) -> Iterator[FaultShown]:
    """Faults but those that an urgent verdict on the same thing tells."""
    limits: dict[str, set[Limit]] = {}
    for verdict in verdicts:
        if verdict.level in URGENT:
            limits.setdefault(verdict.scope, set()).add(verdict.code)
    for fault in faults:
        if not any(is_told(fault.code, limit) for limit in limits.get(fault.source, ())):
            yield fault

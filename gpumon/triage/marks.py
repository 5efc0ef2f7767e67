"""How the level of a verdict is marked: the same on every screen and in every text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from gpumon.readings.snapshot import Family, Kind, Level, Snapshot, Verdict


class Mark(NamedTuple):
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
    Level.NOTE: Mark("+", "+", "accent", "note"),
    Level.OK: Mark("●", "*", "ok", "ok"),
}
"""Level -> its mark."""
URGENT: Final = (Level.CRITICAL, Level.WARN)
"""Levels at which somebody suffers."""
URGENCY: Final = {level: place for place, level in enumerate(Level)}
"""Level -> its place, the most urgent first."""


def states_by_key(verdicts: Sequence[Verdict], kind: Kind) -> dict[str, Verdict]:
    """Key of a thing -> the verdict on its state."""
    key = {}
    for verdict in verdicts:
        if verdict.kind is kind and verdict.family is Family.STATE:
            key[verdict.key] = verdict
    return key


def urgent_by_key(verdicts: Sequence[Verdict], kind: Kind) -> dict[str, Verdict]:
    """Key of a thing -> its worst verdict, of those with a level that is urgent."""
    worst: dict[str, Verdict] = {}
    for verdict in verdicts:
        if verdict.kind is kind and verdict.level in URGENT:
            worst.setdefault(verdict.key, verdict)
    return worst


def urgent_by_gpu(snapshot: Snapshot) -> dict[str, Verdict]:
    """UUID of a GPU -> the worst urgent verdict on it, or on an engine that runs on it; of two alike the GPU's own.

    A limit of an engine that is a mere warning, such as its queue, says nothing about its GPUs.
    """
    worst = urgent_by_key(snapshot.verdicts, Kind.GPU)
    carried = [
        verdict for verdict in snapshot.verdicts if verdict.level is Level.CRITICAL or verdict.family is Family.STATE
    ]
    of_engines = urgent_by_key(carried, Kind.ENGINE)
    if not of_engines:
        return worst
    named = {}
    for engine in snapshot.engines:
        if engine.key in of_engines:
            named[engine.name] = of_engines[engine.key]
    for gpu in snapshot.gpus:
        for verdict in (named[name] for name in gpu.engines if name in named):
            own = worst.get(gpu.uuid)
            if own is None or URGENCY[verdict.level] < URGENCY[own.level]:
                worst[gpu.uuid] = verdict
    return worst

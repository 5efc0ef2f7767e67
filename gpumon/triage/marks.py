"""How the level of a verdict is marked: the same on every screen and in every text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from gpumon.readings.verdict import Level


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

"""Glyphs and tones of verdicts and events: the same in lists, tables, pages and charts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gpumon.readings.snapshot import Event, EventKind, Kind, Level, Limit, Snapshot, Verdict
from gpumon.triage.marks import MARKS, URGENCY, urgent_by_gpu, urgent_by_key
from gpumon.triage.render import BRIEF
from gpumon.tui.palette import Glyphs

LEVEL_MARKS: Final[dict[Level, tuple[str, str, str]]] = {
    level: (mark.glyph, mark.tone, mark.word) for level, mark in MARKS.items()
}
"""Glyph, tone and word of each level."""
_BY_GLYPH: Final = {mark.glyph: mark.tone for mark in MARKS.values()}
_UNKNOWN: Final = ("?", "muted", "signals are missing")
EVENTS: Final[dict[EventKind, tuple[str, str, str]]] = {
    EventKind.XID: ("X", "X", "Xid"),
    EventKind.GPU: ("×", "G", "GPU"),
    EventKind.RESTART: ("●", "R", "restart"),
    EventKind.ENGINE: ("▸", "E", "engine"),
    EventKind.THROTTLE: ("↓", "T", "throttle"),
    EventKind.MODEL: ("▓", "M", "model"),
    EventKind.REPLICAS: ("‖", "N", "replicas"),
    EventKind.GAIN: ("✓", "+", "what an action brought"),
    EventKind.VERDICT: ("◆", "V", "verdict"),
}
"""Glyph, its stand-in in ASCII, and the word of each kind, the most telling first."""
_RANK: Final = {kind: at for at, kind in enumerate(EVENTS)}


def mark(verdict: Verdict) -> tuple[str, str, str]:
    """Glyph, tone and word of how urgent a verdict is."""
    return _UNKNOWN if verdict.code is Limit.UNKNOWN else LEVEL_MARKS[verdict.level]


def event_mark(event: Event, glyphs: Glyphs) -> tuple[str, str]:
    """Glyph of an event's kind, in the tone of its level."""
    glyph, plain, _ = EVENTS[event.kind]
    return plain if glyphs == "ascii" else glyph, LEVEL_MARKS[event.level][1]


def glyph_legend(events: Iterable[Event], glyphs: Glyphs) -> str:
    """Meanings of the glyphs of these events: `✗ Xid ● restart`."""
    kinds = sorted({event.kind for event in events}, key=_RANK.__getitem__)
    return " ".join(f"{EVENTS[kind][glyphs == 'ascii']} {EVENTS[kind][2]}" for kind in kinds)


def most_urgent(events: Iterable[Event]) -> Event:
    """The most urgent of several events: by level, then by kind."""
    return min(events, key=lambda event: (URGENCY[event.level], _RANK[event.kind]))


def tone_of_text(text: str) -> str:
    """The tone of a text that begins with the glyph of a level: `✗ gpu 3 LOST` is critical."""
    return _BY_GLYPH.get(text[:1], "warn")


def remarked(word: str, tone: str, level: Level) -> tuple[str, str]:
    """A state's word with the mark and tone of the verdict on it; what is as urgent keeps its own tone."""
    glyph, level_tone, _ = LEVEL_MARKS[level]
    own, _, rest = word.partition(" ")
    if own == glyph:
        return word, tone
    return f"{glyph} {rest.strip()}", level_tone


def urgent_in(snapshot: Snapshot, kind: Kind) -> dict[str, Verdict]:
    """Key of a row of that kind -> the verdict that marks it."""
    if kind is Kind.GPU:
        return urgent_by_gpu(snapshot)
    return urgent_by_key(snapshot.verdicts, kind)


def badge(verdict: Verdict) -> tuple[str, str]:
    """A glyph and a word in at most 11 cells, and their tone."""
    glyph, tone, _ = mark(verdict)
    return f"{glyph} {BRIEF[verdict.code]}", tone

"""Glyphs and tones of verdicts and events: the same in lists, tables, pages and charts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from gpumon.readings.snapshot import Event, EventKind, Kind, Level, Limit, Snapshot, Verdict
from gpumon.triage.marks import MARKS, URGENCY, URGENT, urgent_by_gpu, urgent_by_key
from gpumon.triage.render import BRIEF_NAMES
from gpumon.triage.roots import Root
from gpumon.tui.palette import Glyphs


class LevelMark(NamedTuple):
    """How a level is shown."""

    glyph: str
    tone: str
    word: str


class EventMark(NamedTuple):
    """How a kind of event is shown."""

    glyph: str
    plain: str
    """Its stand-in in ASCII."""
    word: str


LEVEL_MARKS: Final = {level: LevelMark(mark.glyph, mark.tone, mark.word) for level, mark in MARKS.items()}
_TONES_BY_GLYPH: Final = {mark.glyph: mark.tone for mark in MARKS.values()}
QUESTION: Final = LevelMark("?", "muted", "signals are missing")
EVENTS: Final = {
    EventKind.XID: EventMark("X", "X", "Xid"),
    EventKind.GPU: EventMark("×", "G", "GPU"),
    EventKind.RESTART: EventMark("●", "R", "restart"),
    EventKind.ENGINE: EventMark("▸", "E", "engine"),
    EventKind.THROTTLE: EventMark("↓", "T", "throttle"),
    EventKind.MODEL: EventMark("▓", "M", "model"),
    EventKind.REPLICAS: EventMark("‖", "N", "replicas"),
    EventKind.GAIN: EventMark("✓", "+", "what an action brought"),
    EventKind.VERDICT: EventMark("◆", "V", "verdict"),
}
"""The kinds of events, the most telling first."""
_RANKS: Final = {kind: rank for rank, kind in enumerate(EVENTS)}


def mark(verdict: Verdict) -> LevelMark:
    """How the urgency of a verdict is shown: by its level, or as a question."""
    if is_question(verdict):
        return QUESTION
    return LEVEL_MARKS[verdict.level]


def root_mark(root: Root) -> LevelMark:
    """How the urgency of a cause and of all that comes of it is shown."""
    if root.level in URGENT:
        return LEVEL_MARKS[root.level]
    return mark(root.first)


def is_question(verdict: Verdict) -> bool:
    """Whether a verdict says no more than that signals are missing: nobody suffers as far as is known."""
    return verdict.code is Limit.UNKNOWN and verdict.level not in URGENT


def event_mark(event: Event, glyphs: Glyphs) -> tuple[str, str]:
    """Glyph of an event's kind, and the tone of its level."""
    return _event_glyph(event.kind, glyphs), LEVEL_MARKS[event.level].tone


def _event_glyph(kind: EventKind, glyphs: Glyphs) -> str:
    if glyphs == "ascii":
        return EVENTS[kind].plain
    return EVENTS[kind].glyph


def glyph_legend(events: Iterable[Event], glyphs: Glyphs) -> str:
    """Meanings of the glyphs of these events: `X Xid ● restart`."""
    kinds = sorted({event.kind for event in events}, key=_RANKS.__getitem__)
    return " ".join(f"{_event_glyph(kind, glyphs)} {EVENTS[kind].word}" for kind in kinds)


def most_urgent(events: Iterable[Event]) -> Event:
    """The most urgent of several events: by level, then by kind."""
    return min(events, key=lambda event: (URGENCY[event.level], _RANKS[event.kind]))


def tone_of_text(text: str) -> str:
    """The tone of a text that begins with the glyph of a level: `✗ gpu 3 LOST` is critical."""
    return _TONES_BY_GLYPH.get(text[:1], "warn")


def remarked(word: str, tone: str, level: Level) -> tuple[str, str]:
    """A state's word with the mark and tone of the verdict on it; what is as urgent keeps its own tone."""
    level_mark = LEVEL_MARKS[level]
    own_glyph, _, rest = word.partition(" ")
    if own_glyph == level_mark.glyph:
        return word, tone
    return f"{level_mark.glyph} {rest.strip()}", level_mark.tone


def urgent_in(snapshot: Snapshot, kind: Kind) -> dict[str, Verdict]:
    """Key of a row of that kind -> the verdict that marks it."""
    if kind is Kind.GPU:
        return urgent_by_gpu(snapshot)
    return urgent_by_key(snapshot.verdicts, kind)


def badge(verdict: Verdict) -> tuple[str, str]:
    """A glyph and a word in at most 11 cells, and their tone."""
    glyph, tone, _ = mark(verdict)
    return f"{glyph} {BRIEF_NAMES[verdict.code]}", tone

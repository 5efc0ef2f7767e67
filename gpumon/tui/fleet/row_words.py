"""The state of a row of a fleet, or its worst verdict: behind its columns, and as a whole sentence."""

from __future__ import annotations

from typing import Final, NamedTuple

from gpumon.fleet.row import STATE_LEVELS, FleetRow, has_nothing
from gpumon.fleet.snapshot import HostState
from gpumon.readings.format import age, cells, cut, left
from gpumon.readings.snapshot import Level
from gpumon.readings.text import clean
from gpumon.triage.marks import URGENCY, URGENT
from gpumon.triage.render import BRIEF_NAMES, LIMIT_NAMES, actions_text
from gpumon.tui import line
from gpumon.tui.triage_words import LEVEL_MARKS, mark

_STATES: Final[dict[HostState, tuple[str, str]]] = {
    state: (f"{LEVEL_MARKS[level].glyph} {state.name}", LEVEL_MARKS[level].tone)
    for state, level in STATE_LEVELS.items()
}
"""State of a host of which nothing new is known -> its word and tone."""
_BRIEF_ROOM: Final = 24
"""Cells of a verdict below which it is its name alone: a part of its sentence would say nothing."""
_BRIEF_STATES: Final = {HostState.UNREACHABLE: "✗ NO ANSWER"}
"""Shorter words of states, for a narrow verdict."""
_HEAD_CELLS: Final = 11
"""Cells of a verdict's glyph and name before its sentence."""


def _state_of(row: FleetRow, now_s: float) -> line.Piece | None:
    """The state of a row of which nothing new is known, with the time since when: `✗ STALE 2m`. None where something is
    known of one of its hosts, and where a verdict on it is more urgent."""
    if row.state not in _STATES or row.troubled < len(row.hosts):
        return None
    # A verdict on a host that is gone is no news any more.
    has_news = row.state is not HostState.GONE
    if has_news and row.level is not None and URGENCY[row.level] < URGENCY[STATE_LEVELS[row.state]]:
        return None
    word, tone = _STATES[row.state]
    seen_s = max((host.seen_wall_s for host in row.parts.hosts), default=0.0)
    silent_s = now_s - seen_s
    if silent_s >= 1.0:
        word = f"{word} {age(silent_s)}"
    return word, tone


def state_or_verdict(row: FleetRow, now_s: float, room: int) -> line.Row:
    """The state of a row in `room` cells, else its worst verdict; where room is short, its name."""
    brief = room < _BRIEF_ROOM
    state = _state_of(row, now_s)
    if state is not None:
        word, tone = state
        if brief:
            text = _brief_state(row, word, room)
        else:
            text = f"{word}{_fault_text(row)}"
        return ((" " + cut(text, room - 1), tone),)
    verdict = row.worst
    unanswered = _unanswered(row, brief=brief)
    if unanswered and (verdict is None or verdict.level not in URGENT):
        return ((" " + cut(unanswered, room - 1), "warn"),)
    if verdict is None:
        return _host_notice(row, room)
    glyph, tone, _ = mark(verdict)
    head = f"{glyph} {BRIEF_NAMES[verdict.code]}"
    if brief:
        return ((" " + cut(head, room - 1), tone),)
    text_tone = "text"
    if verdict.level is Level.OK or tone == "muted":
        text_tone = "muted"
    text = cut(clean(row.verdict, 300), room - _HEAD_CELLS - 2)  # 2: the blanks before both
    return ((" " + left(head, _HEAD_CELLS), tone), (" " + text, text_tone))


def _brief_state(row: FleetRow, word: str, room: int) -> str:
    """The word of a state, or a shorter one where that would be cut."""
    if cells(word) < room:
        return word
    return _BRIEF_STATES.get(row.state, word)


def _unanswered(row: FleetRow, *, brief: bool) -> str:
    """Engines, else exporters, that do not answer; empty where all do."""
    if row.silent:
        if brief:
            return f"! {row.silent} silent"
        return _silent_text(row)
    if row.exporters_down:
        return "! exporter down"
    return ""


def _host_notice(row: FleetRow, room: int) -> line.Row:
    """The notice on a host that answers and has no verdict: it has no GPU, or its gpumon has a fault."""
    if not row.verdict:
        return ()
    text = clean(row.verdict, 300)
    tone = "muted"
    if not any(map(has_nothing, row.parts.hosts)):
        text = f"! {text}"
        tone = "warn"
    return ((" " + cut(text, room - 1), tone),)


class RowSentence(NamedTuple):
    """A whole sentence on a row: what is wrong, and what to do."""

    glyph: str
    tone: str
    """Tone of the glyph."""
    text: str
    """Empty where there is nothing to say."""


NO_SENTENCE: Final = RowSentence("", "text", "")


def row_sentence(row: FleetRow, now_s: float) -> RowSentence:
    """The state of a row, else its engines that do not answer, else its worst verdict or its notice.

    `now_s`: the Unix time to which it is counted how long a host has not answered.
    """
    name = clean(row.name, 60)
    state = _state_of(row, now_s)
    verdict = row.worst
    if state is not None:
        state_text, tone = state
        glyph, _, words = state_text.partition(" ")
        return RowSentence(glyph, tone, f"{name}: {words}{_fault_text(row)}")
    if row.silent and (verdict is None or verdict.level not in URGENT):
        return RowSentence("!", "warn", f"{name}: {_silent_text(row).removeprefix('! ')}")
    if verdict is None and row.verdict:
        return RowSentence("", "text", f"{name}: {clean(row.verdict, 400)}")
    if verdict is None:
        return NO_SENTENCE
    glyph, tone, _ = mark(verdict)
    action = ""
    if verdict.actions:
        action = f" - {clean(actions_text(verdict), 400)}"
    return RowSentence(glyph, tone, f"{name}: {LIMIT_NAMES[verdict.code]}: {clean(row.verdict, 400)}{action}")


def _silent_text(row: FleetRow) -> str:
    """Number of engines that do not answer, and why the first of them does not."""
    first = next(row_engine for row_engine in row.parts.engines if not row_engine.answers)
    where = ""
    if len(row.hosts) > 1:
        where = f"{clean(first.host, 40)} "
    why = ""
    if first.engine.fault:
        why = f": {where}{clean(first.engine.name, 40)}: {clean(first.engine.fault, 200)}"
    return f"! {row.silent} silent{why}"


def _fault_text(row: FleetRow) -> str:
    """The last fault of the row's hosts, behind a colon; empty where there is none."""
    faults = [fault for host in row.parts.hosts for fault in host.snapshot.faults]
    if faults:
        return f": {clean(faults[-1].text, 200)}"
    return ""

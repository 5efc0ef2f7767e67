"""The state of a row of a fleet, or its worst verdict: behind its columns, and as a whole sentence."""

from __future__ import annotations

from typing import Final, NamedTuple

from gpumon.fleet.row import STATE_LEVELS, FleetRow, has_nothing, row_maintenance
from gpumon.fleet.snapshot import HostState
from gpumon.readings.format import age, cut, left, wall_of
from gpumon.readings.snapshot import Level, Verdict
from gpumon.readings.text import clean
from gpumon.triage.marks import URGENCY, URGENT
from gpumon.triage.render import BRIEF_NAMES, LIMIT_NAMES, NOT_KNOWN, actions_text, verdict_text
from gpumon.tui import line
from gpumon.tui.fold import cut_to_lines
from gpumon.tui.table import clock
from gpumon.tui.triage_words import LEVEL_MARKS, mark
from gpumon.tui.widgets.title_bar import date_text

_BRIEF_ROOM: Final = 24
"""Cells of a verdict below which it is its name alone: a part of its sentence would say nothing."""
_BRIEF_MAINTENANCE: Final = "silenced"
_BRIEF_STATES: Final = {HostState.UNREACHABLE: "no answer"}
"""State of a row whose word has no room beside its mark in the cells of a brief verdict -> a shorter one."""
_HEAD_CELLS: Final = 11
"""Cells of a verdict's glyph and name before its sentence."""


class _State(NamedTuple):
    """The state of a row of which nothing new is known."""

    glyph: str
    tone: str
    words: str
    """The state, and the time since when: `stale 2m`."""


def _state_of(row: FleetRow, now_s: float) -> _State | None:
    """The state of a row; None where one of its hosts answers, and where a verdict on it is more urgent."""
    if row.state is HostState.STARTING:
        return _State("…", "muted", _timed_state(row, now_s))
    if row.state not in STATE_LEVELS:
        return None
    # A verdict on a host that is gone is no news any more.
    has_news = row.state is not HostState.GONE
    if has_news and row.level is not None and URGENCY[row.level] < URGENCY[STATE_LEVELS[row.state]]:
        return None
    state_mark = LEVEL_MARKS[STATE_LEVELS[row.state]]
    return _State(state_mark.glyph, state_mark.tone, _timed_state(row, now_s))


def _timed_state(row: FleetRow, now_s: float) -> str:
    """The word for the state of a row, and how long ago something of it was seen."""
    seen_s = max((host.seen_wall_s for host in row.parts.hosts), default=0.0)
    silent_s = now_s - seen_s
    return f"{row.state.value} {age(silent_s)}" if silent_s >= 1.0 else row.state.value


def state_or_verdict(row: FleetRow, now_s: float, room: int) -> line.Row:
    """The state of a row in `room` cells, else its worst verdict: a sentence, or its name alone where room is short.

    `now_s`: the Unix time to which it is counted how long a host has not answered.
    """
    return state_or_verdict_lines(row, now_s, room, 1)[0]


def state_or_verdict_lines(row: FleetRow, now_s: float, room: int, most: int) -> list[line.Row]:
    """The same in at most `most` lines, at least one.

    A verdict has one line: its figures change, and the rows below would go up and down with its length.
    """
    silence = maintenance_text(row, now_s)
    if silence:
        text = silence if room >= _BRIEF_ROOM else _BRIEF_MAINTENANCE
        return [((" " + cut(text, room - 1), "muted"),)]
    if room < _BRIEF_ROOM:
        return [_brief_words(row, now_s, room)]
    standing = _standing_words(row, now_s)
    if standing is not None:
        texts = cut_to_lines(standing.text, room - 1, most)
        return [((" " + text, standing.tone),) for text in texts]
    if row.worst is None:
        return [()]
    return [_verdict_words(row.worst, room)]


def maintenance_text(row: FleetRow, now_s: float) -> str:
    """Until when a row's hosts are in maintenance, with the date where that is not the one of `now_s`, why and by whom;
    empty where they are in none."""
    found = row_maintenance(row)
    if found is None:
        return ""
    why = f": {clean(found.reason, 200)}" if found.reason else ""
    if not found.until:
        return f"taken out{why}"
    until = date_text(wall_of(found.until), now_s).rpartition(":")[0]  # no seconds
    return f"maintenance until {until}{why} ({clean(found.who, 40)})"


def _brief_words(row: FleetRow, now_s: float, room: int) -> line.Row:
    """The state of a row, engines that do not answer, or the name of its worst verdict."""
    state = _state_of(row, now_s)
    if state is not None:
        # Without its time, or in shorter words, where these would be cut: the mark stays, as of every other trouble.
        brief = _BRIEF_STATES.get(row.state, row.state.value)
        forms = (f"{state.glyph} {state.words}", f"{state.glyph} {row.state.value}", f"{state.glyph} {brief}")
        return ((" " + line.first_that_fits(forms, room - 1), state.tone),)
    verdict = row.worst
    unanswered = _unanswered(row, brief=True)
    if unanswered and (verdict is None or verdict.level not in URGENT):
        return ((" " + cut(unanswered, room - 1), "warn"),)
    if verdict is not None:
        glyph, tone, _ = mark(verdict)
        return ((" " + cut(f"{glyph} {BRIEF_NAMES[verdict.code]}", room - 1), tone),)
    notice = _host_notice(row)
    if notice is None:
        return ()
    return ((" " + cut(notice.text, room - 1), notice.tone),)


class _Words(NamedTuple):
    """A sentence with its glyph, in one tone."""

    text: str
    tone: str


def _standing_words(row: FleetRow, now_s: float) -> _Words | None:
    """The sentence that takes the place of a verdict: a state, engines that do not answer, or a notice; else None."""
    state = _state_of(row, now_s)
    if state is not None:
        return _Words(f"{state.glyph} {state.words}{_fault_text(row)}", state.tone)
    verdict = row.worst
    unanswered = _unanswered(row, brief=False)
    if unanswered and (verdict is None or verdict.level not in URGENT):
        return _Words(unanswered, "warn")
    if verdict is None:
        return _host_notice(row)
    return None


def _verdict_words(verdict: Verdict, room: int) -> line.Row:
    """The name of a verdict and its sentence, which is cut."""
    glyph, tone, _ = mark(verdict)
    text_tone = "muted" if verdict.level is Level.OK or tone == "muted" else "text"
    text = cut(_scoped_text(verdict), room - _HEAD_CELLS - 2)  # 2: the blanks before both
    return ((" " + left(f"{glyph} {BRIEF_NAMES[verdict.code]}", _HEAD_CELLS), tone), (" " + text, text_tone))


def _scoped_text(verdict: Verdict) -> str:
    """The verdict's sentence behind its scope, with the times of day as the screen has them: `row.verdict` has UTC."""
    text = verdict_text(verdict, clock).removeprefix(NOT_KNOWN)  # the name of the limit says so before it: `unknown`
    return clean(f"{verdict.scope}: {text}", 400)


def _unanswered(row: FleetRow, *, brief: bool) -> str:
    """Engines, else exporters, that do not answer; empty where all do."""
    if row.silent:
        if brief:
            return f"! {row.silent} silent"
        return f"! {_silent_text(row)}"
    if row.exporters_down:
        return f"! {HostState.PARTIAL.value}" if brief else f"! {HostState.PARTIAL.value}: exporter down"
    return ""


def _host_notice(row: FleetRow) -> _Words | None:
    """The notice on a host that answers and has no verdict: it has no GPU, or its gpumon has a fault; else None."""
    if not row.verdict:
        return None
    text = clean(row.verdict, 300)
    if any(map(has_nothing, row.parts.hosts)):
        return _Words(text, "muted")
    return _Words(f"! {text}", "warn")


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

    `now_s`: the same as for `state_or_verdict`.
    """
    name = clean(row.name, 60)
    silence = maintenance_text(row, now_s)
    if silence:
        return RowSentence("", "muted", f"{name}: {silence}")
    state = _state_of(row, now_s)
    verdict = row.worst
    if state is not None:
        return RowSentence(state.glyph, state.tone, f"{name}: {state.words}{_fault_text(row)}")
    if row.silent and (verdict is None or verdict.level not in URGENT):
        return RowSentence("!", "warn", f"{name}: {_silent_text(row)}")
    if verdict is None and row.verdict:
        return RowSentence("", "text", f"{name}: {clean(row.verdict, 400)}")
    if verdict is None:
        return NO_SENTENCE
    glyph, tone, _ = mark(verdict)
    action = f" - {clean(actions_text(verdict), 400)}" if verdict.actions else ""
    return RowSentence(glyph, tone, f"{name}: {LIMIT_NAMES[verdict.code]}: {_scoped_text(verdict)}{action}")


def _silent_text(row: FleetRow) -> str:
    """Number of engines that do not answer, and why the first of them does not."""
    first = next(row_engine for row_engine in row.parts.engines if not row_engine.answers)
    where = f"{clean(first.host, 40)} " if len(row.hosts) > 1 else ""
    why = f": {where}{clean(first.engine.name, 40)}: {clean(first.engine.fault, 200)}" if first.engine.fault else ""
    return f"{row.silent} silent{why}"


def _fault_text(row: FleetRow) -> str:
    """The last fault of the row's hosts, behind a colon; empty where there is none."""
    faults = [fault for host in row.parts.hosts for fault in host.snapshot.faults]
    if faults:
        return f": {clean(faults[-1].text, 200)}"
    return ""

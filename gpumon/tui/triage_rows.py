"""Rows of the triage pane: faults, verdicts and events as rows, the most urgent first. `triage_lines` lays them out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from gpumon.efficiency.faults import is_loud
from gpumon.readings.format import memory
from gpumon.readings.frame import EndpointState, GpuState
from gpumon.readings.missing import Missing
from gpumon.readings.snapshot import Event, FaultShown, Kind, Level, Limit, Snapshot, Verdict
from gpumon.readings.text import clean
from gpumon.triage.engine_down import engines_just_ended
from gpumon.triage.marks import URGENT, untold_faults
from gpumon.triage.progress.tokens import engines_without_token, no_token_text
from gpumon.triage.render import (
    NARROW_NAMES,
    acknowledged_text,
    action_texts,
    event_text,
    evidence_text,
    shown_text,
    verdict_text,
)
from gpumon.triage.roots import Root, affected_by, name_together, root_text, roots_of, split_gpus
from gpumon.tui.line import Piece
from gpumon.tui.palette import Glyphs
from gpumon.tui.table import clock, spans
from gpumon.tui.triage_verdicts import verdict_key
from gpumon.tui.triage_words import EVENTS, LEVEL_MARKS, QUESTION, event_mark, is_question, mark, root_mark

MOST_TEXT: Final = 1000
"""Characters of one text."""
LINES_OF_LEVEL: Final[dict[Level, int]] = {Level.CRITICAL: 5, Level.WARN: 3, Level.NOTE: 2, Level.OK: 1}
"""Lines that a row of this level asks for: enough to read what to do to its end, of what is critical."""
_SHORT_OF_MEMORY: Final = frozenset(("host_memory_full", "host_memory_waits", "cgroup_full"))
"""Causes of verdicts on the host's memory."""
_MOST_PROCESSES: Final = 3
"""Processes that are named as those that hold the host's memory."""
_UP_OR_STARTING: Final = frozenset((EndpointState.OK, EndpointState.STARTING, GpuState.OK, GpuState.INITIALISING))
"""States of what works, or may work at the next reading."""
_NOT_SERVING: Final = {Limit.ASLEEP: "asleep", Limit.STARTING: "starting"}
"""Verdicts of an engine with which nothing is wrong, and that serves nobody -> the state of that engine."""
HEALTHY: Final = "healthy"
"""Key of the row that stands for all that is healthy."""
JUST_ENDED: Final = "just_ended"
"""Key of the row on engines that have just ended."""
NO_TOKEN: Final = "no_token"
"""Key of the row on engines that have given no token for a moment."""


class Item(NamedTuple):
    """One row, and what may stand below it."""

    key: str
    """Identity of the row from one snapshot to the next."""
    mark: Piece
    """A glyph between blanks, and its tone."""
    label: str
    """The limit, `fault`, or the kind of event, in words; empty: the text has the row to itself."""
    scope: str
    """Name of the engine, GPU or host that the row is about; a fault's source."""
    since: str
    """RFC 3339; empty: it has no time."""
    text: str
    """The sentence of a verdict, the text of a fault, or what happened."""
    actions: tuple[str, ...] = ()
    """Actions, the best first."""
    evidence: tuple[str, ...] = ()
    source: str = ""
    """Source of a fault, or key of the thing of an event; empty for all else."""
    is_verdict: bool = False
    """Whether it is a verdict, which has a page of its own."""
    level: Level = Level.OK
    """Level of a verdict or a fault; `ok` for events."""
    quiet: bool = False
    """Whether it can wait until there is room: what is healthy, and what cannot be told."""
    past: bool = False
    """Whether it happened, and limits nothing now."""
    at_s: float = 0.0
    """When it happened (Unix time)."""
    tone: str = "text"
    """Tone of the text."""
    waits: bool = False
    """Whether it says that there is no verdict now."""
    affected: str = ""
    """Its consequences in words: `3 GPUs and llama-70b wait for it`; the text ends with it."""
    consequences: int = 0
    """Lines at the beginning of `evidence` that are its consequences."""
    is_consequence: bool = False
    """Whether it comes of the row above, which is counted in its place."""

    acknowledged: str = ""
    """Who knows of it, until when and why; empty: nobody said so."""
    same: tuple[str, ...] = ()
    """Keys of the other verdicts that the row stands for."""

    @property
    def trouble(self) -> bool:
        """Whether somebody suffers, this is why, and nobody has acknowledged it."""
        return self.level in URGENT and not self.is_consequence and not self.acknowledged


def triage_items(
    snapshot: Snapshot,
    verdicts: Sequence[Verdict],
    events: Sequence[Event],
    glyphs: Glyphs,
    *,
    unfolded: bool,
    without_verdict: Sequence[str] = (),
    suspicions: Sequence[Item] = (),
    hold_s: float = 0.0,
    had_verdicts: bool = False,
) -> list[Item]:
    """Urgent verdicts, faults, other verdicts, one row for all that are healthy unless `unfolded`, then what happened.

    `events`: oldest first; the newest comes first here. `without_verdict`: what has no verdict yet; `suspicions`:
    as `suspicions` gives them; `hold_s`: seconds that a verdict takes at least; `had_verdicts`: whether there were
    verdicts before.
    """
    healthy = [verdict for verdict in verdicts if verdict.level is Level.OK]
    rows = _problem_rows(snapshot, verdicts, suspicions, unfolded=unfolded)
    if not rows:
        rows.append(_no_problem_row(healthy, without_verdict, hold_s, named=not unfolded, had_verdicts=had_verdicts))
        if not unfolded:
            healthy = []
    if unfolded or len(healthy) == 1:
        rows += [item_of(verdict, snapshot) for verdict in healthy]
    elif healthy:
        text = _healthy_text(healthy)
        mark_ok = (" ● ", "ok")
        rows.append(Item(key=HEALTHY, mark=mark_ok, label="", scope="", since="", text=text, quiet=True, tone="muted"))
    return [*rows, *_event_items(events, glyphs)]


def _problem_rows(
    snapshot: Snapshot, verdicts: Sequence[Verdict], suspicions: Sequence[Item], *, unfolded: bool
) -> list[Item]:
    """Urgent verdicts, then faults, then suspicions, then notes, with the faults that ask for nobody, then what
    somebody has acknowledged.

    What comes of a verdict has rows of its own where they are `unfolded`.
    """
    urgent = []
    notes = []
    acknowledged = []
    for root in roots_of(verdicts):
        rows = [root_item(root, snapshot, folded=not unfolded)]
        if unfolded:
            rows += [_consequence_item(verdict, rows[0], snapshot) for verdict in root.consequences]
        if root.acknowledged is not None:
            acknowledged += rows
        elif root.level in URGENT:
            urgent += rows
        else:
            notes += rows
    faults = []
    down = _names_of_down(snapshot)
    for fault in sorted(untold_faults(snapshot.faults, verdicts), key=lambda fault: fault.source not in down):
        if is_loud(fault, snapshot.engines):
            faults.append(_fault_item(fault))
        else:
            notes.append(_quiet_fault_item(fault))
    return [*urgent, *faults, *suspicions, *notes, *acknowledged]


def suspicions(snapshot: Snapshot) -> tuple[Item, ...]:
    """Rows for what may be trouble and has no verdict yet: engines that have just ended, and engines that have given no
    token for a moment."""
    rows = []
    ended = [engine.name for engine in engines_just_ended(snapshot)]
    if ended:
        rows.append(_suspicion(JUST_ENDED, f"{name_together(ended)} ended just now: may be restarting", ended[0]))
    without_token = [engine.name for engine in engines_without_token(snapshot)]
    if without_token:
        rows.append(_suspicion(NO_TOKEN, no_token_text(without_token), without_token[0]))
    return tuple(rows)


def _suspicion(key: str, text: str, engine: str) -> Item:
    """A row that leads to the page of an engine."""
    glyph, tone, _ = QUESTION
    mark_of_question = (f" {glyph} ", tone)
    return Item(
        key=key, mark=mark_of_question, label="", scope="", since="", text=clean(text, MOST_TEXT), source=engine
    )


def _names_of_down(snapshot: Snapshot) -> set[str]:
    """Names of the engines and GPUs that do not work."""
    engines = {engine.name for engine in snapshot.engines if engine.state not in _UP_OR_STARTING}
    gpus = {f"gpu {gpu.reading.index}" for gpu in snapshot.gpus if gpu.reading.state not in _UP_OR_STARTING}
    return engines | gpus


def _no_problem_row(
    healthy: Sequence[Verdict], without_verdict: Sequence[str], hold_s: float, *, named: bool, had_verdicts: bool
) -> Item:
    """The row that says that there is no problem, or no verdict yet. `named`: it names what is healthy, as that has no
    rows of its own."""
    waits = bool(without_verdict) and not healthy
    if waits and had_verdicts:
        text = f"no verdict now: checking {_scopes_text(without_verdict)}"
    elif waits:
        text = f"first verdicts after {hold_s:.0f} s of traffic; utilisation after 2 to 3 min"
    else:
        is_judged = not any("evaluating" in verdict.parameters for verdict in healthy)
        parts = ["no problem found" if is_judged else "no problem found so far"]
        if healthy and named:
            parts.append(_healthy_text(healthy))
        if without_verdict:
            parts.append(f"checking {_scopes_text(without_verdict)}")
        text = "; ".join(parts)
    return Item(
        key=HEALTHY,
        mark=("   ", "muted"),
        label="",
        scope="",
        since="",
        text=text,
        tone="muted",
        waits=waits,
    )


def names_without_verdict(snapshot: Snapshot) -> tuple[str, ...]:
    """Names of what is up or starting and has no verdict yet; a GPU with engines is judged by what they do."""
    with_verdict = {verdict.key for verdict in snapshot.verdicts}
    names = [
        engine.name for engine in snapshot.engines if engine.state in _UP_OR_STARTING and engine.key not in with_verdict
    ]
    for gpu in snapshot.gpus:
        is_alone = not gpu.engines and not gpu.reading.parent_uuid
        if gpu.reading.state in _UP_OR_STARTING and is_alone and gpu.reading.uuid not in with_verdict:
            names.append(f"gpu {gpu.reading.index}")
    return tuple(names)


def _healthy_text(healthy: Sequence[Verdict]) -> str:
    """`3 healthy: vllm:8000, gpu 0-3, host; asleep: b; use of vllm:8001 judged in 2 min`."""
    by_state: dict[str, dict[str, None]] = {"healthy": {}, "starting": {}, "asleep": {}}
    """State -> the scopes in it, each once, in their order."""
    minutes_by_scope: dict[str, float] = {}
    """Scope -> minutes until there is a verdict on its use, of those that have none yet."""
    for verdict in healthy:
        evaluating = verdict.parameters.get("evaluating")
        if isinstance(evaluating, float):
            minutes_by_scope[verdict.scope] = evaluating
        else:
            state = _NOT_SERVING.get(verdict.code, "healthy")
            by_state[state][verdict.scope] = None
    for scope in (*by_state["starting"], *by_state["asleep"]):  # what it was before stays a verdict for a moment
        by_state["healthy"].pop(scope, None)
    parts: list[str] = []
    for state, scopes in by_state.items():
        if scopes:
            count = f"{len(scopes)} " if state == "healthy" else ""
            parts.append(f"{count}{state}: {_scopes_text(list(scopes))}")
    if minutes_by_scope:
        most_minutes = max(minutes_by_scope.values())
        parts.append(f"use of {_scopes_text(list(minutes_by_scope))} judged in {most_minutes:.0f} min")
    return "; ".join(parts)


def _scopes_text(scopes: Sequence[str]) -> str:
    """Names of things in a line, GPUs as ranges at its end: `vllm:8000, gpu 0-3`."""
    gpus, names = split_gpus(scopes)
    if gpus:
        names.append(f"gpu {spans(gpus)}")
    return ", ".join(names)


def item_of(verdict: Verdict, snapshot: Snapshot) -> Item:
    """The row of a verdict; `snapshot`: that of its host."""
    glyph, tone, _ = mark(verdict)
    tone_of_text = "text"
    acknowledged = ""
    if verdict.acknowledged is not None:
        acknowledged = clean(acknowledged_text(verdict.acknowledged, clock), MOST_TEXT)
        tone = "muted"
        tone_of_text = "muted"
    evidence: list[str] = []
    if verdict.kind is Kind.HOST:
        evidence += _texts_of_heaviest(verdict, snapshot)
    evidence += [f"· {evidence_text(figure)}" for figure in verdict.evidence]
    return Item(
        key=verdict_key(verdict),
        mark=(f" {glyph} ", tone),
        label=NARROW_NAMES[verdict.code],
        scope=clean(verdict.scope),
        since=verdict.since,
        text=clean(shown_text(verdict, clock), MOST_TEXT),
        actions=tuple(clean(text, MOST_TEXT) for text in action_texts(verdict)),
        evidence=tuple(clean(text, MOST_TEXT) for text in evidence),
        is_verdict=True,
        level=verdict.level,
        quiet=verdict.level is Level.OK or is_question(verdict) or bool(acknowledged),
        tone=tone_of_text,
        acknowledged=acknowledged,
    )


def root_item(root: Root, snapshot: Snapshot, *, folded: bool = True) -> Item:
    """The row of a cause, or of several things that are alike: with the words of the first, at the level of the worst
    that comes of it; it opens the page of the first. `folded`: what comes of it has no rows of its own."""
    item = item_of(root.first, snapshot)
    glyph, tone, _ = root_mark(root)
    if root.acknowledged is not None:
        tone = "muted"
    consequences = []
    if folded:
        consequences = [f"└ {consequence_text(verdict)}" for verdict in root.consequences]
    return item._replace(
        mark=(f" {glyph} ", tone),
        scope=clean(root.scope),
        text=clean(root_text(root, snapshot, clock), MOST_TEXT),
        actions=tuple(clean(text, MOST_TEXT) for text in action_texts(root.advised)),
        evidence=(*consequences, *item.evidence),
        level=root.level,
        affected=clean(affected_by(root, snapshot).text, MOST_TEXT),
        consequences=len(consequences),
        same=tuple(map(verdict_key, root.verdicts[1:])),
    )


def consequence_text(verdict: Verdict) -> str:
    """A consequence in a line: `✗ llama-70b hung: no token for over 30 s`."""
    glyph, _, _ = mark(verdict)
    words = f"{glyph} {verdict.scope} {NARROW_NAMES[verdict.code]}"
    sentence = verdict_text(verdict, clock)
    if sentence:
        words = f"{words}: {sentence}"
    return clean(words, MOST_TEXT)


def _consequence_item(verdict: Verdict, cause: Item, snapshot: Snapshot) -> Item:
    """The row of a consequence below that of its cause, without what that says already."""
    item = item_of(verdict, snapshot)
    actions = tuple(action for action in item.actions if action not in cause.actions)
    evidence = tuple(figure for figure in item.evidence if figure not in cause.evidence)
    return item._replace(scope=f"└ {item.scope}", actions=actions, evidence=evidence, is_consequence=True)


def _texts_of_heaviest(verdict: Verdict, snapshot: Snapshot) -> Iterator[str]:
    """The processes on the GPUs that hold most of the host's memory, where that is short."""
    if verdict.cause not in _SHORT_OF_MEMORY:
        return
    processes = {process.pid: process for gpu in snapshot.gpus for process in gpu.reading.processes}
    with_memory = [
        (process.rss_bytes, process) for process in processes.values() if not isinstance(process.rss_bytes, Missing)
    ]
    with_memory.sort(key=lambda pair: -pair[0])
    for rss_bytes, process in with_memory[:_MOST_PROCESSES]:
        yield f"· pid {process.pid} {process.name} ({process.user}): {memory(rss_bytes)} GiB of memory"


def _fault_item(fault: FaultShown) -> Item:
    """A fault as a row: a warning."""
    return Item(
        key=f"fault/{fault.source}/{fault.text}",
        mark=(" ! ", "warn"),
        label="fault",
        scope=fault.source,
        since=fault.since,
        text=fault.text,
        source=fault.source,
        level=Level.WARN,
    )


def _quiet_fault_item(fault: FaultShown) -> Item:
    """A fault as a note: it can wait until there is room."""
    glyph, tone, _ = LEVEL_MARKS[Level.NOTE]
    return _fault_item(fault)._replace(mark=(f" {glyph} ", tone), level=Level.NOTE, quiet=True)


def _event_items(events: Sequence[Event], glyphs: Glyphs) -> list[Item]:
    """Rows of events, the newest first; one that came several times is one row, with how often and when first."""
    first: dict[tuple[str, ...], Event] = {}
    newest: dict[tuple[str, ...], Event] = {}
    times: Counter[tuple[str, ...]] = Counter()
    for event in events:
        meaning = (event.kind.value, event.key, event.scope, event_text(event, clock))
        first.setdefault(meaning, event)
        newest.pop(meaning, None)  # what happens again goes to the end
        newest[meaning] = event
        times[meaning] += 1
    return [_event_item(event, first[key], times[key], glyphs) for key, event in reversed(newest.items())]


def _event_item(event: Event, first: Event, times: int, glyphs: Glyphs) -> Item:
    """The row of an event that came `times` times, for the first time as `first`."""
    glyph, tone = event_mark(event, glyphs)
    if times > 1:
        text = f"x{times}, first {clock(first.wall_s)}: {event_text(event, clock)}"
    else:
        text = event_words(event)
    return Item(
        key=_event_key(event),
        mark=(f" {glyph} ", tone),
        label=EVENTS[event.kind].word,
        scope=clean(event.scope),
        since="",
        text=clean(text, MOST_TEXT),
        source=event.key,
        past=True,
        at_s=event.wall_s,
    )


def event_words(event: Event, time_text: Callable[[float], str] = clock) -> str:
    """Text of an event; of a verdict that held for a while before it was given, since when it has. `time_text` gives a
    Unix time as the screen has it."""
    since = time_text(event.since_s) if event.since_s else ""
    text = event_text(event, clock)
    if since and since != time_text(event.wall_s):
        return f"since {since}: {text}"
    return text


def _event_key(event: Event) -> str:
    """Key of the row of an event; the same for all that say the same."""
    return f"event/{event.kind.value}/{event.key}/{event.scope}/{event_text(event, clock)}"


def row_key_of(event: Event, snapshot: Snapshot) -> str:
    """Key of the row that tells an event best: the verdict that it gave, while that stands; else its own."""
    # An event that gave no verdict, or ended one, has no code: no verdict has None.
    code = event.verdict.code if event.verdict is not None and event.code != "verdict_over" else None
    for verdict in snapshot.verdicts:
        if (verdict.key, verdict.code) == (event.key, code) and verdict.level is not Level.OK:
            return verdict_key(verdict)
    return _event_key(event)


def page_of(item: Item, snapshot: Snapshot) -> tuple[str, str] | None:
    """Kind and key of the page that a row opens: the verdict's own, or that of the engine or GPU that it is about."""
    if item.is_verdict:
        return "verdict", item.key
    if not item.source:
        return None
    for engine in snapshot.engines:
        if item.source in (engine.key, engine.name):
            return "engine", engine.key
    for gpu in snapshot.gpus:
        if item.source in (gpu.reading.uuid, f"gpu {gpu.reading.index}"):
            return "gpu", gpu.reading.uuid
    return None


def numbers_in(ranges: str) -> list[int]:
    """`0-2,5` as numbers; what is no number or range is left out."""
    numbers: list[int] = []
    for span in ranges.replace(" ", ",").split(","):
        first, _, last = span.partition("-")
        last = last or first
        if first.isdecimal() and last.isdecimal():
            numbers += range(int(first), int(last) + 1)
    return numbers

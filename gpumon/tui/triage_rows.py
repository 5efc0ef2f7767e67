"""Rows of the triage pane: faults, verdicts and events as rows, the most urgent first. `triage_lines` lays them out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from gpumon.efficiency.faults import is_loud, is_told
from gpumon.readings.format import memory
from gpumon.readings.frame import EndpointState, GpuState
from gpumon.readings.missing import Missing
from gpumon.readings.snapshot import Event, FaultShown, Kind, Level, Limit, Snapshot, Verdict
from gpumon.readings.text import clean
from gpumon.triage.marks import URGENT
from gpumon.triage.no_token import no_token_text
from gpumon.triage.render import (
    NARROW_NAMES,
    action_texts,
    event_text,
    evidence_text,
    verdict_text,
)
from gpumon.tui.line import Piece
from gpumon.tui.palette import Glyphs
from gpumon.tui.table import clock, spans
from gpumon.tui.triage_verdicts import verdict_key
from gpumon.tui.triage_words import EVENTS, LEVEL_MARKS, QUESTION, event_mark, is_question, mark

MOST_TEXT: Final = 1000
"""Characters of one text."""
_GPU: Final = re.compile(r"gpu (\d{1,6})")
"""Scope of what is about one whole GPU: a MIG slice is none."""
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

    @property
    def trouble(self) -> bool:
        """Whether somebody suffers."""
        return self.level in URGENT


def triage_items(
    snapshot: Snapshot,
    verdicts: Sequence[Verdict],
    events: Sequence[Event],
    glyphs: Glyphs,
    *,
    unfolded: bool,
    without_verdict: Sequence[str] = (),
    without_token: Sequence[str] = (),
    hold_s: float = 0.0,
    had_verdicts: bool = False,
) -> list[Item]:
    """Urgent verdicts, faults, other verdicts, one row for all that are healthy unless `unfolded`, then what happened.

    `events`: oldest first; the newest comes first here. `without_verdict`: what has no verdict yet; `without_token`:
    engines that have given no token for a moment; `hold_s`: seconds that a verdict takes at least; `had_verdicts`:
    whether there were verdicts before.
    """
    healthy = [verdict for verdict in verdicts if verdict.level is Level.OK]
    rows = _problem_rows(snapshot, verdicts, without_token)
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
    return [*_group_gpus(rows), *_event_items(events, glyphs)]


def _problem_rows(snapshot: Snapshot, verdicts: Sequence[Verdict], without_token: Sequence[str]) -> list[Item]:
    """Urgent verdicts, then faults, then engines without a token, then notes, with the faults that ask for nobody."""
    urgent = []
    notes = []
    for verdict in verdicts:
        if verdict.level in URGENT:
            urgent.append(item_of(verdict, snapshot))
        elif verdict.level is Level.NOTE:
            notes.append(item_of(verdict, snapshot))
    faults = []
    for fault in _faults_to_show(snapshot, verdicts):
        if is_loud(fault, snapshot.engines):
            faults.append(_fault_item(fault))
        else:
            notes.append(_quiet_fault_item(fault))
    if without_token:
        faults.append(_no_token_item(without_token))
    return [*urgent, *faults, *notes]


def _no_token_item(names: Sequence[str]) -> Item:
    """The row for engines that have given no token for a moment; it leads to the page of the first."""
    glyph, tone, _ = QUESTION
    text = clean(no_token_text(names), MOST_TEXT)
    return Item(key=NO_TOKEN, mark=(f" {glyph} ", tone), label="", scope="", since="", text=text, source=names[0])


def _group_gpus(rows: Sequence[Item]) -> list[Item]:
    """Rows of GPUs that say the same, with the same thing to do, as one: `gpu 0-7`; it opens the page of the first."""
    by_meaning: dict[object, list[Item]] = {}
    for item in rows:
        key: object = item.key
        if item.actions and _GPU.fullmatch(item.scope):
            key = (item.label, item.level, item.actions)
        by_meaning.setdefault(key, []).append(item)
    return [_join_rows(items) for items in by_meaning.values()]


def _gpus_of(scopes: Iterable[str]) -> list[int]:
    """Numbers of the GPUs among the scopes."""
    gpus = []
    for scope in scopes:
        match = _GPU.fullmatch(scope)
        if match is not None:
            gpus.append(int(match[1]))
    return gpus


def _join_rows(items: Sequence[Item]) -> Item:
    """One row for the rows of several GPUs, with the text of the first; the first row where there is one GPU."""
    first = items[0]
    gpus = _gpus_of(item.scope for item in items)
    if len(set(gpus)) < 2:
        return first
    text = first.text
    if any(item.text != first.text for item in items):
        text = f"{first.scope}: {first.text}"
    return first._replace(scope=f"gpu {spans(gpus)}", text=text)


def _faults_to_show(snapshot: Snapshot, verdicts: Sequence[Verdict]) -> Iterator[FaultShown]:
    """Faults but those that an urgent verdict on the same thing tells; first those of what is down."""
    limits: dict[str, set[Limit]] = {}
    for verdict in verdicts:
        if verdict.level in URGENT:
            limits.setdefault(verdict.scope, set()).add(verdict.code)
    down = _names_of_down(snapshot)
    for fault in sorted(snapshot.faults, key=lambda fault: fault.source not in down):
        if not any(is_told(fault.code, limit) for limit in limits.get(fault.source, ())):
            yield fault


def _names_of_down(snapshot: Snapshot) -> set[str]:
    """Names of the engines and GPUs that do not work."""
    down = set()
    for engine in snapshot.engines:
        if engine.state not in _UP_OR_STARTING:
            down.add(engine.name)
    for gpu in snapshot.gpus:
        if gpu.state not in _UP_OR_STARTING:
            down.add(f"gpu {gpu.index}")
    return down


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
        parts = ["no problem found"]
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
    names = []
    for engine in snapshot.engines:
        if engine.state in _UP_OR_STARTING and engine.key not in with_verdict:
            names.append(engine.name)
    for gpu in snapshot.gpus:
        is_alone = not gpu.engines and not gpu.parent_uuid
        if gpu.state in _UP_OR_STARTING and is_alone and gpu.uuid not in with_verdict:
            names.append(f"gpu {gpu.index}")
    return tuple(names)


def _healthy_text(healthy: Sequence[Verdict]) -> str:
    """`3 healthy: vllm:8000, gpu 0-3, host; asleep: b; utilisation verdict in 2 min`."""
    by_state: dict[str, dict[str, None]] = {"healthy": {}, "starting": {}, "asleep": {}}
    """State -> the scopes in it, each once, in their order."""
    minutes: list[float] = []
    """Minutes until there is a verdict on utilisation."""
    for verdict in healthy:
        state = _NOT_SERVING.get(verdict.code, "healthy")
        by_state[state][verdict.scope] = None
        evaluating = verdict.parameters.get("evaluating")
        if isinstance(evaluating, float):
            minutes.append(evaluating)
    parts: list[str] = []
    for state, scopes in by_state.items():
        if scopes:
            count = ""
            if state == "healthy":
                count = f"{len(scopes)} "
            parts.append(f"{count}{state}: {_scopes_text(list(scopes))}")
    if minutes:
        parts.append(f"utilisation verdict in {max(minutes):.0f} min")
    return "; ".join(parts)


def _scopes_text(scopes: Sequence[str]) -> str:
    """Names of things in a line, GPUs as ranges at its end: `vllm:8000, gpu 0-3`."""
    gpus = _gpus_of(scopes)
    names = []
    for scope in scopes:
        if not _GPU.fullmatch(scope):
            names.append(scope)
    if gpus:
        names.append(f"gpu {spans(gpus)}")
    return ", ".join(names)


def item_of(verdict: Verdict, snapshot: Snapshot) -> Item:
    """The row of a verdict; `snapshot`: that of its host."""
    glyph, tone, _ = mark(verdict)
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
        text=clean(verdict_text(verdict, clock), MOST_TEXT),
        actions=tuple(clean(text, MOST_TEXT) for text in action_texts(verdict)),
        evidence=tuple(clean(text, MOST_TEXT) for text in evidence),
        is_verdict=True,
        level=verdict.level,
        quiet=verdict.level is Level.OK or is_question(verdict),
    )


def _texts_of_heaviest(verdict: Verdict, snapshot: Snapshot) -> Iterator[str]:
    """The processes on the GPUs that hold most of the host's memory, where that is short."""
    if verdict.cause not in _SHORT_OF_MEMORY:
        return
    processes = {process.pid: process for gpu in snapshot.gpus for process in gpu.processes}
    with_memory = []
    for process in processes.values():
        if not isinstance(process.rss_bytes, Missing):
            with_memory.append((process.rss_bytes, process))
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
    items = []
    for key, event in reversed(newest.items()):
        items.append(_event_item(event, first[key], times[key], glyphs))
    return items


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
    since = ""
    if event.since_s:
        since = time_text(event.since_s)
    text = event_text(event, clock)
    if since and since != time_text(event.wall_s):
        return f"since {since}: {text}"
    return text


def _event_key(event: Event) -> str:
    """Key of the row of an event; the same for all that say the same."""
    return f"event/{event.kind.value}/{event.key}/{event.scope}/{event_text(event, clock)}"


def row_key_of(event: Event, snapshot: Snapshot) -> str:
    """Key of the row that tells an event best: the verdict that it gave, while that stands; else its own."""
    code = None  # no verdict has it
    if event.verdict is not None and event.code != "verdict_over":
        code = event.verdict.code
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
        if item.source in (gpu.uuid, f"gpu {gpu.index}"):
            return "gpu", gpu.uuid
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

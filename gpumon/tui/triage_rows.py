"""What the triage pane lists: faults, verdicts and events as rows, the most urgent first, without a screen."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from gpumon.efficiency.faults import is_told
from gpumon.readings.format import cells, cut, left
from gpumon.readings.frame import EndpointState, GpuState
from gpumon.readings.snapshot import Event, FaultShown, Level, Limit, Snapshot, Verdict
from gpumon.readings.text import clean
from gpumon.triage.render import NARROW, actions_text, event_text, evidence_text, verdict_text
from gpumon.tui.fold import folded
from gpumon.tui.line import Piece, Row
from gpumon.tui.palette import Glyphs
from gpumon.tui.table import clock, moment, spans
from gpumon.tui.triage_words import EVENTS, URGENT, event_mark, mark

STANDS_S: Final = 10.0
"""Verdicts that stand are painted with newer figures this often, all at one beat: figures of each second would repaint
the pane."""
_LEAST_TEXT: Final = 20
"""Cells of a text per line, however narrow the pane."""
_TEXT: Final = 1000
"""Characters of one text."""
_MOST_SCOPE: Final = 24
_LEAST_SCOPE: Final = 12
"""Cells of the column of scopes: as many as the longest needs, but no more than a quarter of the pane."""
_DATED: Final = 100
"""Cells of a pane from which verdicts have the time since which they stand, too."""
_GPU: Final = re.compile(r"gpu (\d{1,6})")
_MONEY: Final = re.compile(r"\d[\d,.]{0,12} \$/h(?: idle)?")
_LEAST_ACTION: Final = 24
"""Cells from which an action behind a text says something."""


_COMING: Final = frozenset((EndpointState.OK, EndpointState.STARTING, GpuState.OK, GpuState.INITIALISING))
"""States of what works, or may work at the next reading."""
HEALTHY: Final = "healthy"
"""Key of the row that stands for many."""


class Item(NamedTuple):
    """One row, and what may stand below it."""

    key: str
    mark: Piece
    what: str
    """The limit, `fault`, or the kind of event, in words; empty: the text has the row to itself."""
    scope: str
    since: str
    """RFC 3339; empty: it has no time."""
    text: str
    below: tuple[Piece, ...] = ()
    """Evidence and action."""
    action: str = ""
    """The action alone, for the line of its text."""
    about: str = ""
    """Of a fault its source, of an event the key of its thing."""
    judged: bool = False
    """It is a verdict, which has a page of its own."""
    trouble: bool = False
    quiet: bool = False
    """It can wait until there is room: what is healthy, and what cannot be told."""
    past: bool = False
    """It happened: it limits nothing now."""
    at_s: float = 0.0
    """When it happened (Unix time)."""
    tone: str = "text"


def verdict_key(verdict: Verdict) -> str:
    """What a verdict is known by from one snapshot to the next, whatever it says then."""
    return f"{verdict.kind.value}/{verdict.family.value}/{verdict.key}"


class Steady:
    """The verdicts as they are painted: those that stand get newer figures together, once in `STANDS_S`."""

    def __init__(self) -> None:
        self._painted: dict[str, Verdict] = {}
        self._beat_s = 0.0
        """When all had the figures of that moment."""
        self._given: tuple[Verdict, ...] = ()
        self._of: Snapshot | None = None

    def of(self, snapshot: Snapshot) -> tuple[Verdict, ...]:
        """The verdicts of a snapshot; the same ones as before where all of them stand."""
        if snapshot is self._of:
            return self._given
        follows = self._of is not None and 0.0 < snapshot.wall_s - self._of.wall_s <= 2.5 * snapshot.interval_s
        if not follows or snapshot.wall_s - self._beat_s >= STANDS_S:
            self._beat_s, self._painted = snapshot.wall_s, {}
        before = self._painted
        self._of, self._painted = snapshot, {}
        for verdict in snapshot.verdicts:
            key = verdict_key(verdict)
            was = before.get(key, verdict)
            self._painted[key] = was if _kind(was) == _kind(verdict) else verdict
        given = tuple(self._painted.values())
        if len(given) != len(self._given) or any(a is not b for a, b in zip(given, self._given, strict=True)):
            self._given = given
        return self._given


def _kind(verdict: Verdict) -> tuple[object, ...]:
    """What a row says that may not wait: that it is over, too."""
    return verdict.code, verdict.level, verdict.scope, bool(verdict.until or "was" in verdict.parameters)


def items(
    snapshot: Snapshot,
    verdicts: Sequence[Verdict],
    events: Sequence[Event],
    glyphs: Glyphs,
    *,
    unfolded: bool,
    coming: Sequence[str] = (),
    hold_s: float = 0.0,
) -> list[Item]:
    """Urgent verdicts, faults, other verdicts, one row for all that are healthy unless `unfolded`, then what happened.

    `events`: oldest first; the newest comes first here. `coming`: what has no verdict yet; `hold_s`: seconds that one
    takes at least.
    """
    healthy = [verdict for verdict in verdicts if verdict.level is Level.OK]
    urgent = [_of_verdict(verdict) for verdict in verdicts if verdict.level in URGENT]
    others = [_of_verdict(verdict) for verdict in verdicts if verdict.level is Level.NOTE]
    found = [*urgent, *map(_of_fault, _untold(snapshot, verdicts)), *others]
    if not found:
        found.append(_nothing(healthy, coming, hold_s, named=not unfolded))
        healthy = healthy if unfolded else []
    if unfolded or len(healthy) == 1:
        found += [_of_verdict(verdict) for verdict in healthy]
    elif healthy:
        found.append(Item(HEALTHY, (" ● ", "ok"), "", "", "", _names(healthy), quiet=True, tone="muted"))
    return found + _of_events(events, glyphs)


def _untold(snapshot: Snapshot, verdicts: Sequence[Verdict]) -> Iterator[FaultShown]:
    """Faults but those of a GPU that an urgent verdict on it tells; first those of engines and GPUs that are down."""
    told = {(verdict.scope, verdict.code) for verdict in verdicts if verdict.level in URGENT}
    down = {engine.name for engine in snapshot.engines if engine.state not in _COMING}
    down |= {f"gpu {gpu.index}" for gpu in snapshot.gpus if gpu.state not in _COMING}
    for fault in sorted(snapshot.faults, key=lambda fault: fault.source not in down):
        if not any(fault.source == scope and is_told(fault.code, limit) for scope, limit in told):
            yield fault


def _nothing(healthy: Sequence[Verdict], coming: Sequence[str], hold_s: float, *, named: bool) -> Item:
    """`named`: those that are healthy have no rows of their own below."""
    if coming and not healthy:
        text = f"collecting {hold_s:.0f} s of data (utilisation verdicts: 2 to 3 min)"
    else:
        names = [_names(healthy)] if healthy and named else []
        names += [f"evaluating: {_joined(coming)}"] if coming else []
        names += [] if healthy else ["no fault, no verdict"]
        text = f"nothing limits: {'; '.join(names)}" if names else "nothing limits"
    return Item(HEALTHY, ("   ", "muted"), "", "", "", text, tone="muted")


def unjudged(snapshot: Snapshot) -> tuple[str, ...]:
    """Names of what is up or starting and has no verdict yet; a GPU with engines is judged by what they do."""
    judged = {verdict.key for verdict in snapshot.verdicts}
    engines = (each for each in snapshot.engines if each.state in _COMING and each.key not in judged)
    alone = (each for each in snapshot.gpus if each.state in _COMING and not each.engines and not each.parent_uuid)
    return (
        *(engine.name for engine in engines),
        *(f"gpu {gpu.index}" for gpu in alone if gpu.uuid not in judged),
    )


def _names(healthy: Sequence[Verdict]) -> str:
    """`3 healthy: vllm:8000, gpu 0-3, host; asleep: b; evaluating use: 2 min more`."""
    scopes = list(dict.fromkeys(one.scope for one in healthy if one.code is not Limit.ASLEEP))
    asleep = list(dict.fromkeys(one.scope for one in healthy if one.code is Limit.ASLEEP))
    later = [minutes for one in healthy if isinstance(minutes := one.parameters.get("evaluating"), float)]
    parts = [f"{len(scopes)} healthy: {_joined(scopes)}"] if scopes else []
    parts += [f"asleep: {_joined(asleep)}"] if asleep else []
    parts += [f"evaluating use: {max(later):.0f} min more"] if later else []
    return "; ".join(parts)


def _joined(scopes: Sequence[str]) -> str:
    """`vllm:8000, gpu 0-3`."""
    gpus = [int(found[1]) for scope in scopes if (found := _GPU.fullmatch(scope))]
    named = [scope for scope in scopes if not _GPU.fullmatch(scope)]
    return ", ".join([*named, *([f"gpu {spans(gpus)}"] if gpus else [])])


def _of_verdict(verdict: Verdict) -> Item:
    glyph, tone, _ = mark(verdict)
    below = [(f"· {evidence_text(one)}{f' ({one.source})' if one.source else ''}", "muted") for one in verdict.evidence]
    action = f"→ {clean(actions_text(verdict), _TEXT)}" if verdict.actions else ""
    below += [(action, "accent")] if action else []
    return Item(
        key=verdict_key(verdict),
        mark=(f" {glyph} ", tone),
        what=NARROW[verdict.code],
        scope=clean(verdict.scope),
        since=verdict.since,
        text=clean(verdict_text(verdict), _TEXT),
        below=tuple((clean(text, _TEXT), tone) for text, tone in below),
        action=action,
        judged=True,
        trouble=verdict.level in URGENT,
        quiet=verdict.level is Level.OK or verdict.code is Limit.UNKNOWN,
    )


def _of_fault(fault: FaultShown) -> Item:
    key = f"fault/{fault.source}/{fault.text}"
    named = ("fault", fault.source, fault.since, fault.text)
    return Item(key, (" ! ", "warn"), *named, about=fault.source, trouble=True)


def _of_events(events: Sequence[Event], glyphs: Glyphs) -> list[Item]:
    """The newest first; one that came several times is one row, with how often and when first."""
    first: dict[tuple[str, ...], Event] = {}
    newest: dict[tuple[str, ...], Event] = {}
    times: Counter[tuple[str, ...]] = Counter()
    for event in events:
        same = (event.kind.value, event.key, event.scope, event_text(event))
        first.setdefault(same, event)
        newest.pop(same, None)
        newest[same] = event
        times[same] += 1
    return [_of_event(event, first[same], times[same], glyphs) for same, event in reversed(newest.items())]


def _of_event(event: Event, first: Event, times: int, glyphs: Glyphs) -> Item:
    glyph, tone = event_mark(event, glyphs)
    told = f"x{times}, first {clock(first.wall_s)}: {event_text(event)}" if times > 1 else happened(event)
    named = (EVENTS[event.kind][2], clean(event.scope), "", clean(told, _TEXT))
    return Item(_event_key(event), (f" {glyph} ", tone), *named, about=event.key, past=True, at_s=event.wall_s)


def happened(event: Event, at: Callable[[float], str] = clock) -> str:
    """What an event says; of a verdict that held for a while before it was given, since when it has."""
    since = at(event.since_s) if event.since_s else ""
    said = event_text(event)
    return f"since {since}: {said}" if since and since != at(event.wall_s) else said


def _event_key(event: Event) -> str:
    return f"event/{event.kind.value}/{event.key}/{event.scope}/{event_text(event)}"


def row_of(event: Event, snapshot: Snapshot) -> str:
    """Key of the row that tells an event best: the verdict that it gave, while that stands; else its own."""
    given = event.verdict.code if event.verdict is not None and event.code != "verdict_over" else None
    for verdict in snapshot.verdicts:
        if (verdict.key, verdict.code) == (event.key, given) and verdict.level is not Level.OK:
            return verdict_key(verdict)
    return _event_key(event)


def page_of(item: Item, snapshot: Snapshot) -> tuple[str, str] | None:
    """Kind and key of the page that a row opens: the verdict's own, or that of the engine or GPU that it is about."""
    if item.judged:
        return "verdict", item.key
    for engine in snapshot.engines if item.about else ():
        if item.about in (engine.key, engine.name):
            return "engine", engine.key
    for gpu in snapshot.gpus if item.about else ():
        if item.about in (gpu.uuid, f"gpu {gpu.index}"):
            return "gpu", gpu.uuid
    return None


class Columns(NamedTuple):
    """Cells of what stands before a text."""

    what: int
    scope: int
    dated: bool
    """Whether verdicts have a time, too."""
    width: int

    def before(self, item: Item, since: str) -> list[Piece]:
        """Mark, limit, scope, and when."""
        pieces: list[Piece] = [item.mark]
        if item.what:
            tone = "muted" if item.past else item.mark[1] if item.trouble else "text"
            pieces += [(left(item.what, self.what) + " ", tone), (left(item.scope, self.scope) + " ", "text")]
        if since and (self.dated or item.past or item.what == "fault"):
            pieces.append((f"{since} ", "muted"))
        elif self.dated and item.what:
            pieces.append((" " * 9, "muted"))
        return pieces


def columns(shown: Sequence[Item], width: int) -> Columns:
    """As wide as what is shown needs, within bounds."""
    most = min(_MOST_SCOPE, max(_LEAST_SCOPE, width // 4))
    named = [item for item in shown if item.what]
    what = max((cells(item.what) for item in named), default=0)
    return Columns(what, min(most, max((cells(item.scope) for item in named), default=0)), width >= _DATED, width)


def lines(item: Item, of: Columns, most: int) -> tuple[list[Row], bool]:
    """A row and what stands below it in at most `most` lines, and whether its text was cut for that.

    Of what is urgent the action has its part of the last line: what to do is read before all of the reasons.
    """
    before = of.before(item, clock_of(item))
    indent = sum(cells(text) for text, _ in before)
    room = max(_LEAST_TEXT, of.width - indent)
    texts = folded(item.text, room)
    shares = item.trouble and item.action and room >= 2 * _LEAST_ACTION
    shared = room - min(cells(item.action) + 1, _LEAST_ACTION) if shares else room
    is_cut = len(texts) > most or (len(texts) == most and cells(texts[-1]) > shared)
    if is_cut:
        texts = (*texts[: most - 1], _cut(" ".join(texts[most - 1 :]), shared))
    rows: list[Row] = [(*before, (texts[0], item.tone))]
    rows += [((" " * indent + line, item.tone),) for line in texts[1:]]
    for text, tone in item.below:
        start = 3 + (of.what + 1 if item.what else 0)
        folds = folded(text, max(_LEAST_TEXT, of.width - start - 2))
        rows += [((" " * (start + (2 if at else 0)) + line, tone),) for at, line in enumerate(folds)]
    if len(rows) > most:
        last, is_cut = rows[most - 1], True
        bare = item.action and most == len(texts) and sum(cells(text) for text, _ in last) + _LEAST_ACTION <= of.width
        rows[most - 1] = _acted(last, item.action, of.width) if bare else _unfinished(last, of.width)
        if item.trouble and item.action and most > len(texts):
            start = 3 + (of.what + 1 if item.what else 0)
            rows[most - 1] = ((" " * start + cut(item.action, of.width - start), "accent"),)
    return rows[:most], is_cut


def _cut(text: str, room: int) -> str:
    """Cut at its end, or before what it costs."""
    found = list(_MONEY.finditer(text))
    if cells(text) <= room or not found or cells(text[: found[-1].end()]) < room:
        return cut(text, room)
    cost = f" {found[-1][0]}"
    return cut(text[: found[-1].start()], room - cells(cost)) + cost if cells(cost) < room // 2 else cut(text, room)


def _acted(row: Row, action: str, width: int) -> Row:
    """A text that leaves room, with what to do behind it."""
    room = width - sum(cells(piece) for piece, _ in row) - 1
    return (*row, (" " + cut(action, room), "accent"))


def _unfinished(row: Row, width: int) -> Row:
    """The last line of a text that goes on."""
    *before, (text, tone) = row
    room = width - sum(cells(piece) for piece, _ in before)
    more = f"{text} …" if cells(text) + 2 <= room else cut(f"{text}  ", room)
    return (*before, (text if text.endswith("…") else more, tone))


def clock_of(item: Item) -> str:
    """Local time of day since which it stands, or at which it happened."""
    if item.past:
        return clock(item.at_s)
    local = moment(item.since) if item.since else None
    return local.strftime("%H:%M:%S") if local is not None else left(item.since, 8) if item.since else ""

"""What the triage pane lists: faults, verdicts and events as rows, the most urgent first, without a screen."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from gpumon.readings.format import cells, cut, left
from gpumon.readings.snapshot import Event, FaultShown, Level, Limit, Snapshot, Verdict
from gpumon.readings.text import clean
from gpumon.tui.fold import folded
from gpumon.tui.line import Piece, Row
from gpumon.tui.palette import Glyphs
from gpumon.tui.table import clock, moment, spans
from gpumon.tui.triage_words import EVENTS, LIMITS, URGENT, event_mark, mark, said

STANDS_S: Final = 10.0
"""A verdict that stands is painted with newer figures this often: figures of each second would repaint the pane."""
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
    """The verdicts as they are painted: one that stands gets newer figures at most every `STANDS_S`."""

    def __init__(self) -> None:
        self._painted: dict[str, tuple[float, Verdict]] = {}
        self._given: tuple[Verdict, ...] = ()
        self._of: Snapshot | None = None

    def of(self, snapshot: Snapshot) -> tuple[Verdict, ...]:
        """The verdicts of a snapshot; the same ones as before where all of them stand."""
        if snapshot is self._of:
            return self._given
        follows = self._of is not None and 0.0 < snapshot.wall_s - self._of.wall_s <= 2.5 * snapshot.interval_s
        before = self._painted if follows else {}
        self._of, self._painted = snapshot, {}
        for verdict in snapshot.verdicts:
            key = verdict_key(verdict)
            at_s, was = before.get(key, (snapshot.wall_s, verdict))
            same = (was.limit, was.level, was.scope) == (verdict.limit, verdict.level, verdict.scope)
            stands = same and snapshot.wall_s - at_s < STANDS_S
            self._painted[key] = (at_s, was) if stands else (snapshot.wall_s, verdict)
        given = tuple(verdict for _, verdict in self._painted.values())
        if len(given) != len(self._given) or any(a is not b for a, b in zip(given, self._given, strict=True)):
            self._given = given
        return self._given


def items(
    snapshot: Snapshot, verdicts: Sequence[Verdict], events: Sequence[Event], glyphs: Glyphs, *, unfolded: bool
) -> list[Item]:
    """Urgent verdicts, faults, other verdicts, one row for all that are healthy unless `unfolded`, then what happened.

    `events`: oldest first; the newest comes first here.
    """
    healthy = [verdict for verdict in verdicts if verdict.level is Level.OK]
    urgent = [_of_verdict(verdict) for verdict in verdicts if verdict.level in URGENT]
    others = [_of_verdict(verdict) for verdict in verdicts if verdict.level is Level.NOTE]
    found = [*urgent, *map(_of_fault, snapshot.faults), *others]
    if not found:
        found.append(_nothing([] if unfolded else healthy, said=bool(healthy)))
        healthy = healthy if unfolded else []
    if unfolded or len(healthy) == 1:
        found += [_of_verdict(verdict) for verdict in healthy]
    elif healthy:
        found.append(Item(HEALTHY, (" ● ", "ok"), "", "", "", _names(healthy), quiet=True, tone="muted"))
    return found + [_of_event(event, glyphs) for event in reversed(events)]


def _nothing(healthy: Sequence[Verdict], *, said: bool) -> Item:
    """`said`: those that are healthy have their own rows below, or are named here."""
    names = f": {_names(healthy)}" if healthy else "" if said else ": no fault, no verdict"
    return Item(HEALTHY, ("   ", "muted"), "", "", "", f"nothing limits{names}", tone="muted")


def _names(healthy: Sequence[Verdict]) -> str:
    """`3 healthy: vllm:8000, gpu 0-3, host`."""
    scopes = list(dict.fromkeys(verdict.scope for verdict in healthy))
    gpus = [int(found[1]) for scope in scopes if (found := _GPU.fullmatch(scope))]
    named = [scope for scope in scopes if not _GPU.fullmatch(scope)]
    return f"{len(scopes)} healthy: {', '.join([*named, *([f'gpu {spans(gpus)}'] if gpus else [])])}"


def _of_verdict(verdict: Verdict) -> Item:
    glyph, tone, _ = mark(verdict)
    below = [("· " + (f"{one.text} ({one.source})" if one.source else one.text), "muted") for one in verdict.evidence]
    below += [(f"→ {verdict.action}", "accent")] if verdict.action else []
    return Item(
        key=verdict_key(verdict),
        mark=(f" {glyph} ", tone),
        what=LIMITS[verdict.limit],
        scope=clean(verdict.scope),
        since=verdict.since,
        text=clean(said(verdict), _TEXT),
        below=tuple((clean(text, _TEXT), tone) for text, tone in below),
        judged=True,
        trouble=verdict.level in URGENT,
        quiet=verdict.level is Level.OK or verdict.limit is Limit.CANNOT_TELL,
    )


def _of_fault(fault: FaultShown) -> Item:
    key = f"fault/{fault.source}/{fault.text}"
    named = ("fault", fault.source, fault.since, fault.text)
    return Item(key, (" ! ", "warn"), *named, about=fault.source, trouble=True)


def _of_event(event: Event, glyphs: Glyphs) -> Item:
    glyph, tone = event_mark(event, glyphs)
    key = f"event/{event.wall_s}/{event.kind.value}/{event.key}/{event.text}"
    named = (EVENTS[event.kind][2], clean(event.scope), "", clean(event.text, _TEXT))
    return Item(key, (f" {glyph} ", tone), *named, about=event.key, past=True, at_s=event.wall_s)


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
    """A row and what stands below it in at most `most` lines, and whether its text was cut for that."""
    before = of.before(item, clock_of(item))
    indent = sum(cells(text) for text, _ in before)
    room = max(_LEAST_TEXT, of.width - indent)
    texts = folded(item.text, room)
    is_cut = len(texts) > most
    if is_cut:
        texts = (*texts[: most - 1], cut(" ".join(texts[most - 1 :]), room))
    rows: list[Row] = [(*before, (texts[0], item.tone))]
    rows += [((" " * indent + line, item.tone),) for line in texts[1:]]
    for text, tone in item.below:
        start = 3 + (of.what + 1 if item.what else 0)
        folds = folded(text, max(_LEAST_TEXT, of.width - start - 2))
        rows += [((" " * (start + (2 if at else 0)) + line, tone),) for at, line in enumerate(folds)]
    if len(rows) > most:
        rows[most - 1], is_cut = _unfinished(rows[most - 1], of.width), True
    return rows[:most], is_cut


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

"""Pane 5: what does not work, what limits, and what happened."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Final

from gpumon.readings.format import cells, counted
from gpumon.readings.history import History
from gpumon.readings.snapshot import Kind, Level, Snapshot
from gpumon.tui.everywhere import engines_on
from gpumon.tui.line import Row
from gpumon.tui.palette import Palette
from gpumon.tui.rows import Listing, ListView
from gpumon.tui.triage_rows import (
    CHANGED_S,
    LINES,
    Item,
    Steady,
    TriageColumns,
    columns,
    item_lines,
    numbers_in,
    page_of,
    recent_changes,
    triage_items,
    unjudged,
)
from gpumon.tui.view import View
from gpumon.tui.widgets.list_pane import ListPane, highlight_row
from gpumon.tui.widgets.pane import Pane

_MOST_LOUD: Final = 16
"""Lines of faults and verdicts that it asks for."""
_MOST_REST: Final = 10
"""Lines of evidence, of what is healthy, and of events that it asks for where there is plenty."""
_FIRST: Final = {Level.CRITICAL: 5, Level.WARN: 2, Level.NOTE: 1, Level.OK: 1}
"""Lines that come before the charts, by the worst level."""
_NOTHING_ASKED: Final = (None, None, None, None)
_EVENTS: Final = 200
"""Events that it lists."""
_ALL: Final = 1000
_ROOMY: Final = 80
"""Cells of a rule that has room to name what is not in view."""


SHRINKS_S: Final = 60.0
"""A smaller number must be enough for so long."""


class Settled:
    """Lines that are asked for, so that other panes do not jump: more at once, fewer only after a while."""

    def __init__(self) -> None:
        self._lines = 0
        self._most = 0
        """Most that was asked for since it was fewer than `_lines`."""
        self._since_s: float | None = None
        """Since when it is (Unix time)."""

    def of(self, lines: int, now_s: float) -> int:
        """Lines to ask for where `lines` are needed now."""
        if lines >= self._lines:
            self._lines = lines
            self._since_s = None
        elif self._since_s is None or now_s < self._since_s:
            self._most = lines
            self._since_s = now_s
        else:
            self._most = max(self._most, lines)
            if now_s - self._since_s >= SHRINKS_S:
                self._lines = self._most
                self._since_s = None
        return self._lines


class TriagePane(ListPane[Item]):
    """The worst first, with what to do; below them what changed of late. Evidence and events where there is room."""

    def __init__(self, palette: Palette, view: View, history: History) -> None:
        listing = Listing[Item](
            thing="verdict",
            title="triage",
            command="pane.faults",
            items=lambda snapshot, _: self.items(snapshot),
            key=lambda item: item.key,
            words=lambda item, _: " ".join((item.what, item.scope, item.text, *item.evidence, *item.actions)),
            gpus=_gpus_of,
            engines=_engines_of,
            row=lambda _item, _width, _pane: (),
            nothing=lambda _width, _pane: ((("   starting …", "muted"),),),
            trouble=lambda item, _: _alarm_of(item),
        )
        super().__init__(palette, view, listing)
        self._history = history
        self._steady = Steady()
        self._cut = False
        self._asked: tuple[object, ...] = _NOTHING_ASKED
        """The snapshot that the items were made of, and how."""
        self._made: tuple[object, ...] = ()
        self._made_items: list[Item] = []
        self._judged = False
        """Whether a GPU or an engine ever had a verdict: one that hangs loses it until the next one is sure."""
        self._wanted_of: tuple[Sequence[Item], int, tuple[int, int, int]] = ((), 0, (1, 0, 1))
        self._settled = _settling()
        self._item_of: list[int] = []
        """Place of the item of each line in view."""

    def read_from(self, history: History) -> None:
        """Events of another past."""
        self._history = history
        self._asked = _NOTHING_ASKED

    def jump(self) -> None:
        """The figures of just the moment that comes."""
        self._steady = Steady()
        self._settled = _settling()
        self._asked = _NOTHING_ASKED

    def items(self, snapshot: Snapshot) -> Sequence[Item]:
        """Verdicts, faults and events, made anew only where one of them is another.

        The pane, its height and the headline ask for those of one snapshot: what they are made of is read once.
        """
        unfolded = self.zoomed or self.narrowed
        asked = (snapshot, self._history, unfolded, self.palette.glyphs)
        if all(new is old for new, old in zip(asked, self._asked, strict=True)):
            return self._made_items
        self._asked = asked
        verdicts = self._steady.of(snapshot)
        happened = self._history.events(-math.inf, snapshot.wall_s)[-_EVENTS:]
        coming = unjudged(snapshot)
        self._judged = self._judged or any(verdict.kind is not Kind.HOST for verdict in snapshot.verdicts)
        made = (verdicts, snapshot.faults, happened, unfolded, coming, self._judged, self.palette.glyphs)
        if made != self._made:
            self._made = made
            self._made_items = triage_items(
                *(snapshot, verdicts, happened, self.palette.glyphs),
                unfolded=unfolded,
                coming=coming,
                hold_s=self.view.config.triage.hold_s,
                judged=self._judged,
            )
        return self._made_items

    def pages(self) -> Sequence[str]:
        """The verdicts."""
        pages = []
        for item in self.listed_items():
            if item.judged:
                pages.append(item.key)
        return pages

    def open(self) -> tuple[str, str] | None:
        """The verdict's page, or that of the thing which a fault or an event is about."""
        item = self.selected
        snapshot = self.snapshot
        if item is not None and snapshot is not None:
            return page_of(item, snapshot)
        return None

    def _every(self) -> str:
        return counted(self._total, "row")

    def more(self) -> str:
        """How to read what is cut, unless the rule says so by itself."""
        if not self._cut or self.scrolls:
            return ""
        zoom = self.view.keymap.first("zoom")
        pane = self.view.keymap.first(self.KEY)
        if self.has_focus:
            return f"{zoom}: whole text"
        hint = f"{pane} {zoom}: whole text"
        if cells(hint) + 5 > self.note_room:
            return hint
        return f"keys {hint}"

    def alarm(self) -> str:
        """The first trouble that is not in view, and how many more there are."""
        if self.size.width < _ROOMY:
            return ""
        in_view = set(self._item_of)
        alarms = []
        for place, item in enumerate(self.listed_items()):
            if place not in in_view and item.trouble:
                alarms.append(_alarm_of(item))
        if len(alarms) > 1:
            return f"{alarms[0]} +{len(alarms) - 1}"
        return "".join(alarms)

    def lines_wanted(self, snapshot: Snapshot, width: int) -> tuple[int, int, int]:
        """Lines for verdicts and faults; for evidence, events and what is healthy, where there is plenty; and of the
        first those that come before the charts: as many as the worst level needs, whatever the texts are.

        All grow at once, and shrink only after a while: what comes and goes does not move the other panes.
        """
        listed = self.items(snapshot)
        if self._wanted_of[1] != width:
            self._settled = _settling()
        if self._wanted_of[0] is not listed or self._wanted_of[1] != width:
            self._wanted_of = (listed, width, _lines_of(listed, width))
        first, rest, urgent = (
            settled.of(lines_now, snapshot.wall_s)
            for settled, lines_now in zip(self._settled, self._wanted_of[2], strict=True)
        )
        return first, rest, urgent

    def in_view(self, width: int, room: int) -> tuple[Sequence[Row], int]:
        """The items in view with all their lines, and at the foot what changed."""
        chosen = self.listed_items()
        if not chosen or room < 1:
            self._item_of = []
            self._cut = False
            return super().in_view(width, room)
        places = self._places(chosen, width, room)
        counts = self._counts(chosen, places, room)
        foot = self._foot(chosen, width, room, counts)
        room -= len(foot)
        top_before = self._top
        self._overflow = _last_top(counts, room)
        if self.shows_cursor:
            self._scroll_to_cursor(counts, room)
        self._top = max(0, min(self._top, self._overflow))
        if self._top != top_before:
            places = self._places(chosen, width, room)
        counts = self._with_spare(chosen, places, counts, room)
        rows = self._drawn_items(chosen, places, counts, room)
        if foot:
            rows += [()] * (room - len(rows))
        return [*rows, *foot], len(chosen)

    def _places(self, chosen: Sequence[Item], width: int, room: int) -> TriageColumns:
        """Columns as wide as the rows in view need; zoomed, as all rows need."""
        if self.zoomed:
            return columns(chosen, width)
        return columns(chosen[self._top : self._top + room], width)

    def _scroll_to_cursor(self, counts: Sequence[int], room: int) -> None:
        """Have all lines of the item under the cursor in view."""
        self._top = min(self._top, self._at)
        while sum(counts[self._top : self._at + 1]) > room and self._top < self._at:
            self._top += 1
        self._keep_cursor()

    def _drawn_items(
        self, chosen: Sequence[Item], places: TriageColumns, counts: Sequence[int], room: int
    ) -> list[Row]:
        """The lines of the items from the first in view on, as far as they fit."""
        rows: list[Row] = []
        self._item_of = []
        self._cut = False
        advised: set[str] = set()
        for place in range(self._top, len(chosen)):
            if len(rows) >= room:
                break
            item = chosen[place]
            most = min(counts[place], room - len(rows))
            if most == 1 and advised.intersection(item.actions[:1]):
                item = item._replace(actions=())  # a row above has this action: its single line says why
            advised.update(item.actions[:1])
            drawn, is_cut = item_lines(item, places, most, whole=True)
            self._cut = self._cut or is_cut
            if self.shows_cursor and place == self._at:
                drawn = [highlight_row(drawn[0]), *drawn[1:]]
            rows += drawn
            self._item_of += [place] * len(drawn)
        self._in_view = len(set(self._item_of))
        return rows

    def _foot(self, chosen: Sequence[Item], width: int, room: int, counts: Sequence[int]) -> Sequence[Row]:
        """The latest changes, unless the worst verdict needs the line."""
        snapshot = self.snapshot
        if self.zoomed or self.narrowed or snapshot is None or room < 2:
            return ()
        if chosen[0].trouble and counts[0] >= room:
            return ()
        if chosen[-1].past and sum(counts) <= room:
            return ()  # all that happened is listed
        events = self._history.events(snapshot.wall_s - CHANGED_S, snapshot.wall_s)
        return (recent_changes(events, snapshot.wall_s, width, self.palette.glyphs),)

    def _counts(self, chosen: Sequence[Item], places: TriageColumns, room: int) -> list[int]:
        """Lines of each item: all where the pane is zoomed, else as many of its level's as it has a use for."""
        counts = []
        for item in chosen:
            if item.past:
                counts.append(1)
            elif self.zoomed:
                counts.append(len(item_lines(item, places, room, whole=True)[0]))
            else:
                counts.append(len(item_lines(item, places, LINES[item.level])[0]))
        return counts

    def _with_spare(self, chosen: Sequence[Item], places: TriageColumns, counts: list[int], room: int) -> list[int]:
        """Lines that are left go to whole texts and evidence, in order."""
        spare = room - sum(counts[self._top :])
        for number in range(self._top, len(chosen)):
            if spare > 0 and not chosen[number].past:
                whole = len(item_lines(chosen[number], places, _ALL, whole=True)[0])
                more = max(0, min(spare, whole - counts[number]))
                counts[number] += more
                spare -= more
        return counts

    def _scrolled(self, total: int, room: int, focused: bool) -> str:
        """Which items are in view."""
        return super()._scrolled(total, min(room, self._in_view), focused)

    def watch_has_focus(self, has_focus: bool) -> None:
        """Show the worst again once another pane has the focus; a page or a question gives it back."""
        super().watch_has_focus(has_focus)
        if not has_focus and self.is_mounted and not self.filter_text:
            taken = self.screen.focused
            if isinstance(taken, Pane) and taken.KEY and taken is not self:
                self.move_to_first()

    def item_at(self, line: int, x: int) -> int | None:  # noqa: ARG002 - a row takes the whole width
        """Place of the item at a line of the view: items have several lines."""
        if 0 <= line < len(self._item_of):
            return self._item_of[line]
        return None


def _alarm_of(item: Item) -> str:
    """The item in brief where it is a trouble, empty where it is none."""
    if item.trouble:
        return f"{item.mark[0].strip()} {item.what} {item.scope}"
    return ""


def _gpus_of(item: Item, pane: ListView) -> Collection[int]:
    """The GPUs that it is about, or those of its engine."""
    kind, _, gpus = item.scope.partition(" ")
    if kind == "gpu" and gpus[:1].isdecimal():
        return numbers_in(gpus.partition(" ")[0])  # of a MIG slice, its parent
    engines = pane.snapshot.engines if pane.snapshot is not None else ()
    return next((engine.hardware.gpus for engine in engines if engine.name == item.scope), ())


def _engines_of(item: Item, pane: ListView) -> Collection[str]:
    """The engine that it is about, or those on its GPUs."""
    return (item.scope, *engines_on(pane.snapshot, _gpus_of(item, pane)))


def _settling() -> tuple[Settled, Settled, Settled]:
    return Settled(), Settled(), Settled()


def _lines_of(listed: Sequence[Item], width: int) -> tuple[int, int, int]:
    """See `lines_wanted`; one line of each is for what changed."""
    now = [item for item in listed if not item.past]
    loud = [item for item in now if not item.quiet]
    places = columns(now, width)
    every = sum(len(item_lines(item, places, LINES[item.level])[0]) for item in loud)
    evidence = sum(len(item.evidence) for item in loud if item.trouble)
    rest = evidence + len(listed) - len(loud)
    first = _FIRST[loud[0].level] if loud else 1
    return 1 + min(_MOST_LOUD, max(first, every)), min(_MOST_REST, rest), 1 + first


def _last_top(counts: Sequence[int], room: int) -> int:
    """The first item in view where the last one is at the foot."""
    top = len(counts)
    for count in reversed(counts):
        if count > room:
            break
        room -= count
        top -= 1
    return min(top, len(counts) - 1)

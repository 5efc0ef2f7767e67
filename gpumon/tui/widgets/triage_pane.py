"""Pane 5: what does not work, what limits, and what happened."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from gpumon.readings.format import cells, counted
from gpumon.readings.history import History
from gpumon.readings.snapshot import Kind, Level, Snapshot
from gpumon.tui.everywhere import engines_on
from gpumon.tui.line import Row
from gpumon.tui.palette import Glyphs, Palette
from gpumon.tui.rows import Listing, ListScene, are_same_objects
from gpumon.tui.triage_lines import CHANGED_S, TriageColumns, columns_for, item_lines, recent_changes
from gpumon.tui.triage_rows import (
    LINES_OF_LEVEL,
    Item,
    names_without_verdict,
    numbers_in,
    page_of,
    suspicions,
    triage_items,
)
from gpumon.tui.triage_verdicts import SteadyVerdicts
from gpumon.tui.view import View
from gpumon.tui.widgets.list_pane import ListPane, highlight_row
from gpumon.tui.widgets.pane import LinesInView, Pane

_MOST_LOUD: Final = 16
"""Lines of faults and verdicts that it asks for."""
_MOST_QUIET: Final = 10
"""Lines of evidence, of what is healthy, and of events that it asks for where there is plenty."""
_FIRST_LINES: Final = {Level.CRITICAL: 5, Level.WARN: 2, Level.NOTE: 1, Level.OK: 1}
"""Lines that come before the charts, by the worst level."""
_MOST_EVENTS: Final = 200
"""Events that it lists."""
_NO_LIMIT: Final = 1000
"""Lines: more than any item has."""
_ROOMY_WIDTH: Final = 80
"""Cells of a rule that has room to name what is not in view."""
SHRINKS_S: Final = 60.0
"""Seconds for which fewer lines must be enough before fewer are asked for."""


class LineDemand:
    """Number of lines that is asked for, so that other panes do not jump: more at once, fewer only after a while."""

    def __init__(self) -> None:
        self._lines = 0
        self._most = 0
        """The most lines that were needed since these are fewer than `_lines`."""
        self._since_s: float | None = None
        """Unix time since which fewer are needed; None: as many are."""

    def settle(self, lines: int, now_s: float) -> int:
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


class TriageLines(NamedTuple):
    """Lines of a triage pane."""

    loud: int = 0
    """For verdicts and faults."""
    quiet: int = 0
    """For evidence, events and what is healthy, where there is plenty."""
    urgent: int = 0
    """Lines of `loud` that come before the charts: as many as the worst level needs, whatever the texts are."""


class _LineDemands(NamedTuple):
    """A demand for each number of `TriageLines`."""

    loud: LineDemand
    quiet: LineDemand
    urgent: LineDemand

    def settle(self, needed: TriageLines, now_s: float) -> TriageLines:
        """The lines to ask for where these are needed now."""
        return TriageLines(
            loud=self.loud.settle(needed.loud, now_s),
            quiet=self.quiet.settle(needed.quiet, now_s),
            urgent=self.urgent.settle(needed.urgent, now_s),
        )


class _NeededLines(NamedTuple):
    """The lines that items need in a pane of some width."""

    items: Sequence[Item]
    width: int
    lines: TriageLines


class _ItemsInputs(NamedTuple):
    """The snapshot that items are made of, and how: while they are the same objects, so are the items."""

    snapshot: Snapshot | None = None
    history: History | None = None
    unfolded: bool | None = None
    glyphs: Glyphs | None = None


class TriagePane(ListPane[Item]):
    """The worst first, with what to do; below them what changed of late. Evidence and events where there is room."""

    def __init__(self, palette: Palette, view: View, history: History) -> None:
        super().__init__(palette, view, _LISTING)
        self._history = history
        self._steady_verdicts = SteadyVerdicts()
        self._is_cut = False
        """Whether a text in view is cut."""
        self._items_asked_for = _ItemsInputs()
        self._items_inputs: tuple[object, ...] = ()
        """All that the items were made of: while it is equal, so are they."""
        self._items_of_snapshot: list[Item] = []
        self._had_verdict = False
        """Whether a GPU or an engine ever had a verdict: one that hangs loses it until the next one is sure."""
        self._needed_lines = _NeededLines((), width=0, lines=TriageLines(loud=1, quiet=0, urgent=1))
        """The lines that the items need now."""
        self._demands = _new_demands()

    def read_from(self, history: History) -> None:
        """Events of another past."""
        self._history = history
        self._items_asked_for = _ItemsInputs()

    def prepare_for_jump(self) -> None:
        """Forget figures and lines of the moments before: the next snapshot is shown as it is."""
        self._steady_verdicts = SteadyVerdicts()
        self._demands = _new_demands()
        self._items_asked_for = _ItemsInputs()

    def all_items(self) -> Sequence[Item]:
        """Verdicts, faults and events."""
        return self.items(self.snapshot) if self.snapshot is not None else ()

    def lines_without_rows(self, width: int) -> Sequence[Row]:  # noqa: ARG002 - they are short
        """The line before the first snapshot: any other has a row."""
        return ((("   starting …", "muted"),),)

    def items(self, snapshot: Snapshot) -> Sequence[Item]:
        """Verdicts, faults and events, made anew only where one of them is another.

        The pane, its height and the headline ask for those of one snapshot: what they are made of is read once.
        """
        unfolded = self.zoomed or self.filter.narrows
        asked_for = _ItemsInputs(snapshot, self._history, unfolded, self.palette.glyphs)
        if are_same_objects(asked_for, self._items_asked_for):
            return self._items_of_snapshot
        self._items_asked_for = asked_for
        verdicts = self._steady_verdicts.hold(snapshot)
        events = self._history.events(-math.inf, snapshot.wall_s)[-_MOST_EVENTS:]
        without_verdict = names_without_verdict(snapshot)
        suspicions_now = suspicions(snapshot)
        self._had_verdict = self._had_verdict or any(verdict.kind is not Kind.HOST for verdict in snapshot.verdicts)
        inputs = (
            verdicts,
            snapshot.faults,
            events,
            unfolded,
            without_verdict,
            suspicions_now,
            self._had_verdict,
            self.palette.glyphs,
        )
        if inputs != self._items_inputs:
            self._items_inputs = inputs
            self._items_of_snapshot = triage_items(
                snapshot,
                verdicts,
                events,
                self.palette.glyphs,
                unfolded=unfolded,
                without_verdict=without_verdict,
                suspicions=suspicions_now,
                hold_s=self.view.config.triage.hold_s,
                had_verdicts=self._had_verdict,
            )
        return self._items_of_snapshot

    def page_of(self, item: Item) -> tuple[str, str] | None:
        """The verdict's page, or that of the thing which a fault or an event is about."""
        return page_of(item, self.snapshot) if self.snapshot is not None else None

    def total_text(self) -> str:
        """The number of rows, for the rule."""
        return counted(self.total, "row")

    def more_note(self, room: int) -> str:
        """How to read what is cut, unless the rule says so by itself, or the pane has the whole screen already."""
        if not self._is_cut or self.scrolls or self.zoomed:
            return ""
        zoom = self.view.keymap.first("zoom")
        pane = self.view.keymap.first(self.command)
        if self.has_focus:
            return f"{zoom}: whole text"
        hint = f"{pane} {zoom}: whole text"
        hint_with_word = f"keys {hint}"
        if cells(hint_with_word) > room:
            return hint
        return hint_with_word

    def alarm(self) -> str:
        """The first trouble that is not in view, and how many more there are, if the rule has room for it."""
        if self.size.width < _ROOMY_WIDTH:
            return ""
        return super().alarm()

    def trouble(self, item: Item) -> str:
        """The item in brief where it is a trouble, empty where it is none."""
        if item.trouble:
            return f"{item.mark[0].strip()} {item.label} {item.scope}"
        return ""

    def lines_wanted(self, snapshot: Snapshot, width: int) -> TriageLines:
        """The lines that the pane asks for in `width` cells.

        All numbers grow at once, and shrink only after a while: what comes and goes does not move the other panes.
        """
        items = self.items(snapshot)
        if self._needed_lines.width != width:
            self._demands = _new_demands()
        if self._needed_lines.items is not items or self._needed_lines.width != width:
            self._needed_lines = _NeededLines(items, width, _lines_for(items, width))
        return self._demands.settle(self._needed_lines.lines, snapshot.wall_s)

    def in_view(self, width: int, room: int) -> LinesInView:
        """The items in view with all their lines, and at the foot what changed."""
        listed = self.listed_items()
        if not listed or room < 1:
            self._is_cut = False
            return super().in_view(width, room)
        item_columns = self._columns_for(listed, width, room)
        lines_of_items = self._lines_per_item(listed, item_columns, room)
        foot = self._foot(listed, width, room, lines_of_items)
        room -= len(foot)
        top_before = self.scrolling.top
        if self.shows_cursor:
            self._scroll_to_cursor(lines_of_items, room)
        self.scrolling.settle(_last_top(lines_of_items, room))
        if self.scrolling.top != top_before:  # other rows are in view now
            item_columns = self._columns_for(listed, width, room)
        lines_of_items = self._with_spare(listed, item_columns, lines_of_items, room)
        rows, places = self._drawn_items(listed, item_columns, lines_of_items, room)
        if foot:
            rows += [()] * (room - len(rows))
        return LinesInView([*rows, *foot], len(listed), places)

    def _columns_for(self, listed: Sequence[Item], width: int, room: int) -> TriageColumns:
        """Columns as wide as the rows in view need; zoomed, as all rows need."""
        if self.zoomed:
            return columns_for(listed, width)
        return columns_for(listed[self.scrolling.top : self.scrolling.top + room], width)

    def _scroll_to_cursor(self, lines_of_items: Sequence[int], room: int) -> None:
        """Have all lines of the item under the cursor in view."""
        top = min(self.scrolling.top, self.cursor.place)
        while sum(lines_of_items[top : self.cursor.place + 1]) > room and top < self.cursor.place:
            top += 1
        self.scrolling.top = top
        self.keep_cursor()

    def _drawn_items(
        self, listed: Sequence[Item], item_columns: TriageColumns, lines_of_items: Sequence[int], room: int
    ) -> tuple[list[Row], list[int]]:
        """The lines of the items from the first in view on, as far as they fit, and the place of each one's item."""
        rows: list[Row] = []
        places: list[int] = []
        self._is_cut = False
        advised: set[str] = set()
        for place in range(self.scrolling.top, len(listed)):
            if len(rows) >= room:
                break
            item = listed[place]
            most = min(lines_of_items[place], room - len(rows))
            if most == 1 and advised.intersection(item.actions[:1]):
                item = item._replace(actions=())  # a row above has this action: its single line says why
            advised.update(item.actions[:1])
            item_rows, is_cut = item_lines(item, item_columns, most, with_evidence=True)
            self._is_cut = self._is_cut or is_cut
            if self.shows_cursor and place == self.cursor.place:
                item_rows = [highlight_row(item_rows[0]), *item_rows[1:]]
            rows += item_rows
            places += [place] * len(item_rows)
        return rows, places

    def _foot(self, listed: Sequence[Item], width: int, room: int, lines_of_items: Sequence[int]) -> Sequence[Row]:
        """The latest changes, unless the worst verdict needs the line."""
        snapshot = self.snapshot
        if self.zoomed or self.filter.narrows or snapshot is None or room < 2:
            return ()
        if listed[0].trouble and lines_of_items[0] >= room:
            return ()
        if listed[-1].past and sum(lines_of_items) <= room:
            return ()  # all that happened is listed
        events = self._history.events(snapshot.wall_s - CHANGED_S, snapshot.wall_s)
        return (recent_changes(events, snapshot.wall_s, width, self.palette.glyphs),)

    def _lines_per_item(self, listed: Sequence[Item], item_columns: TriageColumns, room: int) -> list[int]:
        """Lines of each item: all where the pane is zoomed, else as many of its level's as it has a use for."""
        lines_of_items = []
        for place, item in enumerate(listed):
            if item.past:
                lines_of_items.append(1)
            elif item.consequences and self.shows_cursor and place == self.cursor.place:
                # Under the cursor what comes of it is unfolded.
                most = LINES_OF_LEVEL[item.level] + item.consequences
                lines_of_items.append(len(item_lines(item, item_columns, most, with_evidence=True)[0]))
            elif self.zoomed:
                lines_of_items.append(len(item_lines(item, item_columns, room, with_evidence=True)[0]))
            else:
                lines_of_items.append(len(item_lines(item, item_columns, LINES_OF_LEVEL[item.level])[0]))
        return lines_of_items

    def _with_spare(
        self, listed: Sequence[Item], item_columns: TriageColumns, lines_of_items: list[int], room: int
    ) -> list[int]:
        """The lines of each item, with those that are left given to whole texts and evidence, in order; those of events
        are whole where the pane is zoomed."""
        spare = room - sum(lines_of_items[self.scrolling.top :])
        for number in range(self.scrolling.top, len(listed)):
            if spare > 0 and (self.zoomed or not listed[number].past):
                whole, _ = item_lines(listed[number], item_columns, _NO_LIMIT, with_evidence=True)
                more = max(0, min(spare, len(whole) - lines_of_items[number]))
                lines_of_items[number] += more
                spare -= more
        return lines_of_items

    def scroll_note(self, total: int, room: int, focused: bool) -> str:
        """Which items are in view."""
        return super().scroll_note(total, min(room, len(set(self.shown_lines.places))), focused)

    def watch_has_focus(self, has_focus: bool) -> None:
        """Show the worst again once another pane has the focus; a page or a question will give it back, so that they
        change nothing."""
        super().watch_has_focus(has_focus)
        if not has_focus and self.is_mounted and not self.filter.text:
            focused = self.screen.focused
            if isinstance(focused, Pane) and focused.command and focused is not self:
                self.move_to_first()


def _gpus_of(item: Item, scene: ListScene) -> Collection[int]:
    """The GPUs that it is about, or those of its engine."""
    kind, _, gpus = item.scope.partition(" ")
    if kind in ("gpu", "GPUs") and gpus[:1].isdecimal():
        return numbers_in(gpus.partition(" ")[0])  # of a MIG slice, its parent
    engines = scene.snapshot.engines if scene.snapshot is not None else ()
    return next((engine.hardware.gpus for engine in engines if engine.name == item.scope), ())


def _engines_of(item: Item, scene: ListScene) -> Collection[str]:
    """The engine that it is about, or those on its GPUs."""
    return (item.scope, *engines_on(scene.snapshot, _gpus_of(item, scene)))


_LISTING: Final = Listing[Item](
    thing="verdict",
    title="triage",
    key=lambda item: item.key,
    command="pane.faults",
    words=lambda item, _: " ".join((item.label, item.scope, item.text, *item.evidence, *item.actions)),
    gpus=_gpus_of,
    engines=_engines_of,
)
"""Verdicts, faults and events."""


def _new_demands() -> _LineDemands:
    """Demands that know of no moment before."""
    return _LineDemands(LineDemand(), LineDemand(), LineDemand())


def _lines_for(listed: Sequence[Item], width: int) -> TriageLines:
    """The lines that are needed now; one line of `loud` and `urgent` is for what changed."""
    present = [item for item in listed if not item.past]
    loud = [item for item in present if not item.quiet]
    item_columns = columns_for(present, width)
    loud_lines = sum(len(item_lines(item, item_columns, LINES_OF_LEVEL[item.level])[0]) for item in loud)
    evidence_lines = sum(len(item.evidence) for item in loud if item.trouble)
    quiet_lines = evidence_lines + len(listed) - len(loud)
    urgent_lines = _FIRST_LINES[loud[0].level] if loud else 1
    return TriageLines(
        loud=1 + min(_MOST_LOUD, max(urgent_lines, loud_lines)),
        quiet=min(_MOST_QUIET, quiet_lines),
        urgent=1 + urgent_lines,
    )


def _last_top(lines_of_items: Sequence[int], room: int) -> int:
    """The first item in view where the last one is at the foot."""
    top = len(lines_of_items)
    for count in reversed(lines_of_items):
        if count > room:
            break
        room -= count
        top -= 1
    return min(top, len(lines_of_items) - 1)

"""A part of the screen under a rule that carries its key, its name, and what it does not show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, NamedTuple

from textual import events

from gpumon.readings.format import cells, counted, cut
from gpumon.readings.history import History
from gpumon.readings.snapshot import Snapshot
from gpumon.tui.charts.axis import NOW
from gpumon.tui.line import Piece, Row, cells_of
from gpumon.tui.palette import Palette
from gpumon.tui.scrolling import Scrolling
from gpumon.tui.search import Search
from gpumon.tui.table import clock
from gpumon.tui.triage_words import tone_of_text
from gpumon.tui.view import View
from gpumon.tui.widgets.board import Board

_LEAST_NOTE: Final = 20
"""Cells in which a note that is cut still says something."""
_LEAST_TITLE: Final = 8
"""Cells of a title on the rule, at least."""
_BESIDE_TITLE: Final = 30
"""Cells of the rule that a title leaves for the rest, unless it has its least cells."""
_BARE_RULE: Final = 6
"""Cells of the rule that are neither key, name nor note: its bits of line and the blanks around the notes."""
_ENDS_OF_RULE: Final = 3
"""Bits of line that every rule has: before the key, behind it, and at the right end."""
_AROUND_ASIDE: Final = 4
"""Cells beside the further pieces on the rule: a bit of line and a blank before them, and the same behind them."""
_MOST_SOUGHT_CELLS: Final = 20
"""Cells of the text that is looked for, in the note on it."""
SEPARATOR: Final = " · "
"""Between two notes on the rule."""
_WHEEL_LINES: Final = 3
"""Lines by which the wheel scrolls."""
_LINES_NOT_PAGED: Final = 3
"""Lines of a pane that a page key does not move by: the rule, the header, and one that stays in view."""


class LinesInView(NamedTuple):
    """The lines of a pane below its header that are in view."""

    rows: Sequence[Row]
    total: int
    """Lines that there are in all; rows of a list are counted as one each."""
    places: Sequence[int] = ()
    """Place of the row of the list that each line belongs to; on a wall, the places of the tiles in view."""


class Pane(Board, can_focus=True):
    """Rule, fixed header, and lines that scroll where they do not all fit."""

    command: str = ""
    """Id of the command that goes to the pane."""
    heading: str = ""
    """Name on the rule."""
    ZOOMS: ClassVar[bool] = True
    """Whether it can have the whole screen."""
    TIMELESS: ClassVar[bool] = False
    """Whether it shows no moment, so that the keys which move in time keep their other meaning there."""
    PRIVATE: ClassVar[bool] = False
    """Whether bundles leave it out."""

    def __init__(self, palette: Palette, view: View) -> None:
        super().__init__(palette)
        self.view = view
        self.hint = ""
        """The screen's addition to the rule: panes without a place, and their keys."""
        self.zoomed = False
        """Whether the pane has the whole screen."""
        self.snapshot: Snapshot | None = None
        """The snapshot on the screen."""
        self.past = False
        """Whether that is a moment that the user went back to, or one of a recording."""
        self.paused = False
        """Whether the display is frozen, so that keys move in time."""
        self.scrolling = Scrolling()
        """Which lines below the header are in view."""
        self.shown_lines = LinesInView((), 0)
        """The lines below the header that were painted last."""
        self.head_lines = 0
        """Lines of the header, as it was painted last."""
        self.search = Search()
        """Search in the lines."""

    def show(self, snapshot: Snapshot) -> None:
        """Paint a snapshot."""
        self.snapshot = snapshot
        self.update()

    def read_from(self, history: History) -> None:
        """Take the series from another history: that of a moment of the past, or the live one again."""

    @property
    def moment(self) -> str:
        """The moment that is shown, as a time axis calls it: now, or the time of day in the past."""
        if self.snapshot is None or not self.past:
            return NOW
        return clock(self.snapshot.wall_s)

    def drop_content(self) -> None:
        """Forget what must not stay once the page is closed."""

    def prepare_for_jump(self) -> None:
        """Prepare for a snapshot of any time, which need not follow the one before."""

    def title(self) -> str:
        """The name on the rule."""
        return self.heading

    def head(self, width: int) -> Sequence[Row]:  # noqa: ARG002 - for panes that have an answer
        """Lines below the rule that do not scroll."""
        return ()

    def body(self, width: int, height: int) -> Sequence[Row]:
        """All lines that may scroll; `height` is how many are visible."""
        raise NotImplementedError

    def note(self, room: int) -> str:  # noqa: ARG002 - for panes that have an answer
        """Note on the right side of the rule, where it has `room` cells: it is cut, or left out, where it is longer."""
        return ""

    def aside(self, room: int) -> Sequence[Piece]:  # noqa: ARG002 - for panes that have an answer
        """Further pieces on the rule in `room` cells."""
        return ()

    def alarm(self) -> str:
        """Trouble that is not in view: on the rule, before everything else."""
        return ""

    def open(self) -> tuple[str, str] | None:
        """Do what Enter does here; returns a thing (gpu, engine, process) and its key where that has a detail page."""
        return None

    def back(self) -> bool:
        """Do what Esc does here first; returns whether there was something to go back from."""
        return False

    def take_key(self, key: str, character: str | None = None) -> bool:  # noqa: ARG002 - for panes that have an answer
        """Do what a key (by Textual's name) does here in place of its command; returns whether it does something."""
        return False

    def take_paste(self, text: str) -> None:
        """Take what was pasted, where something is typed here."""

    def change(self, step: int) -> bool:  # noqa: ARG002 - for panes that have an answer
        """Do what - and + do here; returns whether they do something of their own."""
        return False

    def step_sideways(self, step: int) -> bool:
        """Do what ← and → do here; returns whether they do something."""
        return self.change(step)

    @property
    def is_covered(self) -> bool:
        """Whether something else stands where its lines are, so that keys must not act on them."""
        return False

    def write(self) -> bool:
        """Do what the key for saving does here; returns whether it does something of its own."""
        return False

    @property
    def scrolls(self) -> bool:
        """Whether there is more than what is visible."""
        return self.scrolling.last > 0

    def in_view(self, width: int, room: int) -> LinesInView:
        """The lines in view, and how many there are in all."""
        body = self.body(width, room)
        if self.search.text:
            line = self.search.look_into(body)
            if line is not None and not self.scrolling.top <= line < self.scrolling.top + room:
                self.scrolling.top = max(0, line - room // 3)  # a third of the view stands above the match
        self.scrolling.settle(len(body) - room)
        rows = body[self.scrolling.top : self.scrolling.top + room]
        if self.search.text:
            rows = self.search.mark(rows, self.scrolling.top)
        return LinesInView(rows, len(body))

    def find(self, text: str) -> None:
        """Mark all places of a text, and go to the first one; an empty text ends the search."""
        self.search.begin(text)
        self.update()

    def is_title(self, row: Row) -> bool:
        """Whether a line has the title of a section: strong, behind a single blank."""
        for text, tone in row:
            if tone == "strong" and text.startswith(" ") and not text.startswith("  ") and text.strip():
                return True
        return False

    def jump_section(self, step: int) -> bool:
        """Go to the next (1) or previous (-1) section, behind the last one to the first; returns whether there is more
        than what is in view."""
        if not self.scrolling.last:
            return False
        body = self.body(self.size.width, self.size.height - 1 - self.head_lines)
        titles = [line for line, row in enumerate(body) if self.is_title(row)]
        if step < 0:
            self.scrolling.top = max([line for line in titles if line < self.scrolling.top], default=0)
        elif self.scrolling.top >= self.scrolling.last:  # the last line is in view
            self.scrolling.top = 0
        else:
            next_title = min([line for line in titles if line > self.scrolling.top], default=0)
            self.scrolling.top = min(next_title, self.scrolling.last)
        self.update()
        return True

    def step_match(self, step: int) -> None:
        """Go to the next (1) or previous (-1) place of the text that is looked for."""
        self.search.step(step)
        self.update()

    @property
    def opens_here(self) -> bool:
        """Whether Enter opens something: while a search is open only where its match is a link."""
        return True

    def rows(self, width: int, height: int) -> Sequence[Row]:
        """The rule, the header and the visible part of the body."""
        # With two lines, the one below the rule is for the body.
        head: Sequence[Row] = self.head(width) if height > 2 else ()
        self.head_lines = len(head)
        room = max(0, height - 1 - len(head))
        self.shown_lines = self.in_view(width, room)
        return (self.rule(width, self.shown_lines.total, room), *head, *self.shown_lines.rows)

    def rule(self, width: int, total: int, room: int) -> Row:
        """The first line: key and name, what stands beside them, then trouble out of view and notes at the right end.

        `total`: lines that the body has; `room`: lines of it that are visible.
        """
        focused = self.has_focus
        name = f" {cut(self.title(), max(_LEAST_TITLE, width - _BESIDE_TITLE))} "
        key = "─"
        key_tone = "border"
        if self.command:
            key = self.view.keymap.first(self.command)
            key_tone = "accent"
        room_of_notes = max(0, width - cells(name) - cells(key) - _BARE_RULE)
        alarm = cut(self.alarm(), max(0, room_of_notes // 2))
        alarm_tone = tone_of_text(alarm)
        if alarm:
            room_of_notes -= cells(alarm) + 3  # its two blanks, and the divider
            alarm = f" {alarm} "
        notes = self._notes_text(self.scroll_note(total, room, focused), room_of_notes)
        if notes:
            notes = f" {notes} "
        divider = "─" if alarm and notes else ""
        free = width - _ENDS_OF_RULE - cells(key) - cells(name) - cells(alarm) - len(divider) - cells(notes)
        aside = list(self.aside(free - _AROUND_ASIDE))
        if aside:
            aside = [("─ ", "border"), *aside, (" ", "border")]
        line = "─" * (free - cells_of(aside))
        return (
            ("─", "border"),
            (key, key_tone),
            ("─", "border"),
            (name, "focus" if focused else "text"),
            *aside,
            (line, "border"),
            (alarm, alarm_tone),
            (divider, "border"),
            (notes, "hint"),
            ("─", "border"),
        )

    def _notes_text(self, scroll: str, room_of_notes: int) -> str:
        """Search, lines in view, note and hint in at most so many cells; the note gives way first."""
        room = room_of_notes
        for text in (scroll, self.hint):
            if text:
                room -= len(SEPARATOR) + cells(text)
        note = self.note(room)
        if cells(note) > room:
            note = cut(note, room) if room >= _LEAST_NOTE else ""
        search_note = ""
        if self.search.text:
            search_note = f'"{cut(self.search.text, _MOST_SOUGHT_CELLS)}" {self.search.count_text()}'
        return cut(SEPARATOR.join(filter(None, (search_note, scroll, note, self.hint))), room_of_notes)

    def scroll_note(self, total: int, room: int, focused: bool) -> str:
        """Numbers of the lines in view, of `total`, and the keys that show the others; empty if all are in view.
        `room`: lines below the header; `focused`: whether the pane has the keys."""
        if room and not self.scrolling.last:
            return ""
        if not room:
            if total:
                return f"{counted(total, 'row')}: {self.keys_to_more(focused)}"
            return self.keys_to_more(focused)
        rows = f"{self.scrolling.top + 1}-{self.scrolling.top + room}" if room > 1 else f"{self.scrolling.top + 1}"
        return f"{rows} of {total}: {self.keys_to_more(focused)}"

    def keys_to_more(self, focused: bool) -> str:
        """The keys that show what is left out."""
        key = self.view.keymap.first
        if not focused and self.command:
            return f"keys {key(self.command)} {key('zoom')}"
        down_and_up = f"{key('down')} {key('up')}"
        if self.zoomed or not self.ZOOMS:
            return down_and_up
        return f"{down_and_up} or {key('zoom')}"

    def move(self, lines: int) -> None:
        """Move the view by a number of lines."""
        self.scrolling.move(lines)
        self.update()

    def to_top(self) -> None:
        """Begin with the first line when it is painted next."""
        self.scrolling.top = 0

    def move_pages(self, pages: int) -> None:
        """Move by so many pages."""
        self.move(pages * self.page_step())

    def page_step(self) -> int:
        """Lines that a page key moves by: those below rule and header, but one."""
        return max(1, self.size.height - _LINES_NOT_PAGED)

    def watch_has_focus(self, has_focus: bool) -> None:
        """Mark the rule, or unmark it."""
        super().watch_has_focus(has_focus)
        self.update()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """The wheel scrolls."""
        event.stop()
        self.move(_WHEEL_LINES)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """The wheel scrolls."""
        event.stop()
        self.move(-_WHEEL_LINES)

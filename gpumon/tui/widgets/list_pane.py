"""A pane with one row per thing: it paints those that its filter lets through, and keeps its cursor in view."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Generic, TypeVar

from textual import events

from gpumon.readings.format import ELLIPSIS, cells, counted, cut, left
from gpumon.readings.snapshot import Snapshot, Verdict
from gpumon.triage.marks import states_by_key
from gpumon.tui.explained_columns import FIRST_FIGURE, explained_columns
from gpumon.tui.left_out import LeftOutColumns
from gpumon.tui.line import Piece, Row
from gpumon.tui.list_cursor import ListCursor
from gpumon.tui.list_filter import ListFilter
from gpumon.tui.palette import Palette
from gpumon.tui.rows import Listing, ListScene, Order, are_same_objects, hint_on_bounds
from gpumon.tui.search import marked_cell
from gpumon.tui.table import Table
from gpumon.tui.triage_words import tone_of_text, urgent_in
from gpumon.tui.view import View
from gpumon.tui.widgets.pane import SEPARATOR, LinesInView, Pane

T = TypeVar("T")
"""Rows of a list."""
_DOUBLE_CLICK: Final = 2
"""Clicks that open a row."""
_MOST_FILTER_CELLS: Final = 20
"""Cells of the filter in the note on the rule."""
_WORDS_AROUND_FILTER: Final = 50
"""Cells of the words around the filter in the line that nothing matches it."""
_LEAST_FILTER_CELLS: Final = 8
"""Cells of the filter in that line, however narrow the pane."""
_CURSOR_GLYPH: Final = "▸"
_ASIDE_GAP: Final = " · "
"""Between the words of columns left out and the further pieces on the rule."""


class ListPane(Pane, Generic[T]):
    """Shows the things of a `Listing`; formats only the rows in view. A subclass says which there are, and draws
    them."""

    def __init__(
        self, palette: Palette, view: View, listing: Listing[T], row_filter: ListFilter[T] | None = None
    ) -> None:
        """`row_filter`: of a list that filters and sorts otherwise than by words and figures."""
        super().__init__(palette, view)
        self.listing = listing
        self.filter = row_filter or ListFilter(listing, view)
        self.command = listing.command
        self.heading = listing.title
        self.urgent: Mapping[str, Verdict] = {}
        """Key of a row -> its worst verdict, where that is urgent."""
        self.states: Mapping[str, Verdict] = {}
        """Key of a row -> the verdict on its state."""
        self.shift = 0
        """Columns that are scrolled out on the left."""
        self.cell = ""
        """The column of the cell cursor; empty: there is none."""
        self._left_out = LeftOutColumns(listing.table) if listing.leaves_out and listing.table is not None else None
        """The columns that are left out; None: all have their place."""
        self.cursor = ListCursor()
        self._listed_state: tuple[object, ...] = ()
        """All that the listed rows were made of: while these are the same objects, so are the rows."""
        self._items: list[T] = []
        """The rows that are listed."""
        self.total = 0
        """Number of rows without a filter."""

    def all_items(self) -> Sequence[T]:
        """All rows there are, in their own order."""
        raise NotImplementedError

    def row(self, item: T, width: int, scene: ListScene) -> Row:
        """A row in so many cells, of a pane whose rows have a line each."""
        raise NotImplementedError

    def header(self, table: Table[T], width: int, scene: ListScene) -> Row:
        """The headers of the columns in so many cells."""
        return table.head(width, scene.view, scene.shift)

    def lines_without_rows(self, width: int) -> Sequence[Row]:  # noqa: ARG002 - for panes that have an answer
        """The text in so many cells where there is no row at all."""
        return ()

    def trouble(self, item: T) -> str:  # noqa: ARG002 - for panes that have an answer
        """The trouble of a row's thing, with its name; empty without one."""
        return ""

    def page_of(self, item: T) -> tuple[str, str] | None:
        """The kind and key of a row's page; None where it has none."""
        return (self.listing.thing, self.listing.key(item))

    def further_aside(self, room: int) -> Sequence[Piece]:  # noqa: ARG002 - for panes that have an answer
        """Pieces on the rule behind the words of the columns left out, in so many cells."""
        return ()

    def show(self, snapshot: Snapshot) -> None:
        """Paint a snapshot."""
        if self.listing.kind is not None:
            self.urgent = urgent_in(snapshot, self.listing.kind)
            self.states = states_by_key(snapshot.verdicts, self.listing.kind)
        super().show(snapshot)
        if self._left_out is not None:
            self._left_out.choose(self.all_items())

    @property
    def columns_hidden(self) -> frozenset[str]:
        """The columns that the user hides, and those that are left out."""
        if self._left_out is None or not self._left_out.names:
            return self.view.hidden
        return self.view.hidden | self._left_out.names

    def scene(self) -> ListScene:
        """Everything that the rows are read and drawn from now."""
        return ListScene(
            view=self.view if self._left_out is None else self.view.without(self._left_out.names),
            snapshot=self.snapshot,
            urgent=self.urgent,
            states=self.states,
            filter_text=self.filter.text,
            shift=self.shift,
        )

    def head(self, width: int) -> Sequence[Row]:
        """Column headers, once there is a row."""
        table = self.columns()
        if table is None or not (self.listed_items() or self.total):
            return ()
        return (self.header(table, width, self.scene()),)

    def aside(self, room: int) -> Sequence[Piece]:
        """The words of the columns left out, then the further pieces of the list."""
        words = ""
        if self._left_out is not None and self.columns() is not None:
            words = self._left_out.text(self.size.width, self.view.hidden)
        size = cells(words)
        if not words or size > room:
            return self.further_aside(room)
        pieces = self.further_aside(room - size - len(_ASIDE_GAP))
        if not pieces:
            return ((words, "hint"),)
        return ((words + _ASIDE_GAP, "hint"), *pieces)

    def alarm(self) -> str:
        """The worst row with trouble that is not in view, the first of equals, and how many more there are."""
        in_view = set(self.shown_lines.places)
        unseen = [item for place, item in enumerate(self.listed_items()) if place not in in_view]
        troubles = [trouble for item in unseen if (trouble := self.trouble(item))]
        troubles.sort(key=lambda trouble: tone_of_text(trouble) != "critical")
        if not troubles:
            return ""
        if len(troubles) == 1:
            return troubles[0]
        return f"{troubles[0]} +{len(troubles) - 1}"

    def page_keys(self) -> Sequence[str]:
        """Keys of the rows whose things have a page of this kind, in order."""
        keys = []
        for item in self.listed_items():
            page = self.page_of(item)
            if page is not None and page[0] == self.listing.thing:
                keys.append(page[1])
        return keys

    def listed_items(self) -> list[T]:
        """The rows that pass the filter, in order."""
        state = (self.snapshot, *self.filter.state)
        if not are_same_objects(state, self._listed_state):
            self._listed_state = state
            items = self.all_items()
            self.total = len(items)
            self._items = self.filter.choose(items, self.scene())
            self.cursor.follow([self.listing.key(item) for item in self._items])
        return self._items

    def list_anew(self) -> None:
        """Make the list of the rows again when it is asked for next: it stands on more than the snapshot."""
        self._listed_state = ()

    def keep_cursor(self) -> None:
        """Give the cursor of a thing that is gone to the row in its place; what a filter hides gets it back."""
        if not self.filter.narrows:
            self.cursor.take_row()

    @property
    def selected(self) -> T | None:
        """The thing under the cursor."""
        items = self.listed_items()
        if not items:
            return None
        return items[self.cursor.place]

    @property
    def shows_cursor(self) -> bool:
        """Whether the cursor is marked, and kept in view.

        `has_focus` waits for a message: a key typed at once with the one that closes a page comes before it.
        """
        return self.has_focus or (self.is_attached and self.screen.focused is self)

    def in_view(self, width: int, room: int) -> LinesInView:
        """The rows in view."""
        items = self.listed_items()
        if not items:
            self.scrolling.settle(0)
            lines = self.none_matches_lines(width) if self.total else self.lines_without_rows(width)
            return LinesInView(lines[:room], len(lines))
        if self.shows_cursor:
            self.scrolling.bring_into_view(self.cursor.place, 1, room)
            self.keep_cursor()
        self.scrolling.settle(len(items) - room)
        scene = self.scene()
        rows = [self.row(item, width, scene) for item in items[self.scrolling.top : self.scrolling.top + room]]
        cursor_line = self.cursor.place - self.scrolling.top
        if self.shows_cursor and 0 <= cursor_line < len(rows):
            rows[cursor_line] = self._with_cell(highlight_row(rows[cursor_line]))
        return LinesInView(rows, len(items), range(self.scrolling.top, self.scrolling.top + len(rows)))

    def _with_cell(self, row: Row) -> Row:
        """The row under the cursor with its cell marked, where there is a cell cursor in view."""
        table = self.columns()
        if not self.cell or table is None:
            return row
        first = 0
        for column in table.columns(self.size.width, self.columns_hidden, self.shift):
            if column.name == self.cell:
                return marked_cell(row, first, column.width)
            first += column.width
        return row

    def _explained_in_view(self) -> list[str]:
        """The columns in view that the cell cursor may stand on, from left to right."""
        table = self.columns()
        explained = explained_columns(self.listing.thing)
        if table is None:
            return []
        return [
            column.name
            for column in table.columns(self.size.width, self.columns_hidden, self.shift)
            if column.name in explained
        ]

    def next_cell(self) -> bool:
        """Show the cell cursor, or move it to the next column, behind the last one to the first; returns whether there
        is a column for it."""
        names = self._explained_in_view()
        if not names:
            return False
        if self.cell in names:
            self.cell = names[(names.index(self.cell) + 1) % len(names)]
        elif FIRST_FIGURE in names:
            self.cell = FIRST_FIGURE
        else:
            self.cell = names[0]
        self.update()
        return True

    def _step_cell(self, step: int) -> None:
        """Move the cell cursor to the column on the right (1) or the left (-1); at the edge the columns scroll."""
        names = self._explained_in_view()
        place = names.index(self.cell) + step if self.cell in names else 0
        if not 0 <= place < len(names):
            self._scroll_columns(step)
            names = self._explained_in_view()
            place = max(0, min(len(names) - 1, place))
        if names:
            self.cell = names[place]
        self.update()

    def none_matches_text(self, width: int) -> str:
        """The sentence that nothing passes the filter, and how to drop that."""
        room = max(_LEAST_FILTER_CELLS, width - _WORDS_AROUND_FILTER)
        filter_text = cut(self.filter.text or self.filter.everywhere, room)
        return f'none of {self.total_text()} matches "{filter_text}"; {self.keys_back()}: all rows'

    def none_matches_lines(self, width: int) -> Sequence[Row]:
        """The lines in place of the rows where the filter lets none through: one, as some panes have no second; the
        rule has the filter and the number of rows."""
        hint = hint_on_bounds(self.filter.text, self.listing.title)
        text = f"{hint}; {self.keys_back()}: all rows" if hint else self.none_matches_text(width)
        return [((f"   {text}", "muted"),)]

    def total_text(self) -> str:
        """Number of rows without a filter, with their name: `8 gpus`."""
        name = self.listing.thing if self.total == 1 else self.heading
        return f"{self.total} {name}"

    def keys_back(self) -> str:
        """The keys that drop the filter: where something else has the focus, first the one that comes here."""
        key = self.view.keymap.first
        if self.has_focus or not self.command:
            return key("back")
        return f"{key(self.command)} {key('back')}".strip()

    def note(self, room: int) -> str:
        """Note on the filter, the order, and the columns and rows that are left out."""
        parts = []
        count = f"{len(self.listed_items())} of {self.total}"
        if self.filter.text:
            parts.append(self._filter_note(count, room))
        elif self.filter.everywhere:
            parts.append(count)
        order = self.filter.order
        if order is not None:
            arrow = "↓" if order.descending is not self.filter.turned else "↑"
            parts.append(f"by {order.name} {arrow}")
        if self.shift:
            parts.append(f"{self.view.keymap.first('left')} {counted(self.shift, 'column')}")
        parts += self._hidden_columns_note(_room_behind(parts, room))
        more_note = self.more_note(_room_behind(parts, room))
        if more_note:
            parts.append(more_note)
        return _join_within(parts, room)

    def _filter_note(self, count: str, room: int) -> str:
        """The filter with how many rows it leaves, and the keys that drop it, if they fit in the `room`."""
        text = f'filter "{cut(self.filter.text, _MOST_FILTER_CELLS)}": {count}'
        with_keys = f"{text} ({self.keys_back()}: all)"
        if cells(with_keys) <= room:
            return with_keys
        return text

    def _hidden_columns_note(self, room: int) -> list[str]:
        """Number of columns without room, and the keys that show them if these fit in the `room`; without keys in a
        paused display, where they move in time."""
        table = self.columns()
        if table is None or not self.listed_items():
            return []
        number = table.number_beyond(self.size.width, self.columns_hidden, self.shift)
        if not number:
            return []
        text = f"+{counted(number, 'column')}"
        key = self.view.keymap.first
        if self.has_focus or not self.command:
            with_keys = f"{text}: {key('right')}"
        else:
            with_keys = f"{text}: keys {key(self.command)} {key('right')}"
        if self.paused or cells(with_keys) > room:
            return [text]
        return [with_keys]

    def more_note(self, room: int) -> str:  # noqa: ARG002 - for panes that have an answer
        """Note in so many cells on what the rows leave out; empty here, for panes that cut them."""
        return ""

    def move(self, lines: int) -> None:
        """Move the cursor; where it is not marked, as under the wheel, the view."""
        if not self.shows_cursor:
            super().move(lines)
            return
        if self.listed_items():  # none while something else stands in their place
            self.cursor.put_on(self.cursor.place + lines)
        self.update()

    def columns(self) -> Table[T] | None:
        """The table whose columns scroll sideways; None without one."""
        return self.listing.table

    def step_sideways(self, step: int) -> bool:
        """Scroll the columns, as long as there are others; while the display is paused the keys move in time."""
        if self.columns() is None or self.paused:
            return super().step_sideways(step)
        if self.cell:
            self._step_cell(step)
        else:
            self._scroll_columns(step)
        return True

    def _scroll_columns(self, step: int) -> None:
        """Scroll by one column to the right (1) or to the left (-1), as far as there are others."""
        table = self.columns()
        if table is not None:
            most = table.most_shift(self.size.width, self.columns_hidden)
            self.shift = max(0, min(most, self.shift + step))
            self.update()

    def go_to(self, key: str) -> None:
        """Put the cursor on a thing."""
        self.cursor.go_to(key)
        self.update()

    def forget(self) -> None:
        """Draw everything anew at the next paint; list the rows anew, too: levels are others now, and with them the
        words that the filter looks into."""
        self.list_anew()
        super().forget()

    def open(self) -> tuple[str, str] | None:
        """The kind and key of the page of the row under the cursor; None where it has none."""
        item = self.selected
        if item is None:
            return None
        return self.page_of(item)

    def back(self) -> bool:
        """Drop the cell cursor, then the filter."""
        if self.cell:
            self.cell = ""
            self.update()
            return True
        if not self.filter.text:
            return False
        self.set_filter("")
        return True

    def set_filter(self, text: str) -> None:
        """Show the rows that a text lets through."""
        self.filter.set_text(text)
        self.update()

    def sort(self, order: Order[T] | None) -> None:
        """Sort by an order (None: as the rows came); the same order again turns it round."""
        self.filter.sort(order)
        self.update()

    def move_to_first(self) -> None:
        """Put the cursor on the first row, whatever thing that will be of, and show it."""
        self.cursor.begin()
        self.scrolling.top = 0
        self.update()

    def on_click(self, event: events.Click) -> None:
        """A click puts the cursor on a row, and a second one opens it; one on the header of a column sorts by it."""
        line = event.y - 1 - self.head_lines
        if self.is_covered:
            return
        if -self.head_lines <= line < 0:
            self._sort_by_column(event.x)
            return
        place = self.item_at(line, event.x)
        if place is None:
            return
        key_before = self.cursor.key
        self.cursor.put_on(place)
        self.update()
        if event.chain == _DOUBLE_CLICK and self.cursor.key == key_before:
            self.screen.call_later(self.screen.run_action, "do('open')")

    def item_at(self, line: int, x: int) -> int | None:  # noqa: ARG002 - a row takes the whole width
        """Place of the row at a line of the view and a cell of the pane; None where there is none."""
        places = self.shown_lines.places
        if 0 <= line < len(places) and places[line] < len(self.listed_items()):
            return places[line]
        return None

    def _sort_by_column(self, x: int) -> None:
        """Sort by the column that has a cell; the same column again turns the order round."""
        table = self.columns()
        if table is None:
            return
        name = table.column_at(x, self.size.width, self.columns_hidden, self.shift)
        for order in self.listing.orders:
            if (order.column or order.name) == name:
                self.sort(order)


def _room_behind(parts: Iterable[str], room: int) -> int:
    """Cells that these parts of a note in `room` cells leave for a further one."""
    return room - sum(cells(part) + len(SEPARATOR) for part in parts)


def _join_within(parts: Sequence[str], room: int) -> str:
    """As many parts of a note, the most important first, as fit; an ellipsis for those that do not, or of the first one
    as much as fits."""
    whole = SEPARATOR.join(parts)
    kept = len(parts)
    while kept > 1 and cells(whole) > room:
        kept -= 1
        whole = SEPARATOR.join((*parts[:kept], ELLIPSIS))
    return whole


def highlight_row(row: Row) -> Row:
    """The row under the cursor: on the selected background, and with a glyph, as colour alone is not enough.

    A mark in the glyph's place moves into the next cell, and the text behind it gives up a blank, or its last cell.
    """
    (first, first_tone), *rest = row
    if not first.startswith(" ") and rest:
        (second, second_tone), *rest = rest
        first = f" {first}"
        if second.endswith(" "):
            second = second[:-1]
        else:
            second = left(second, cells(second) - 1)
        rest = [(second, second_tone), *rest]
    pieces = [(_CURSOR_GLYPH + first[1:], first_tone), *rest]
    return tuple((text, f"{tone}@") for text, tone in pieces)

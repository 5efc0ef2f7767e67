"""The fleet's table: a row per host, per model, or per owner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Final, NamedTuple, TypeVar

from gpumon.fleet.row import STATE_LEVELS, FleetRow
from gpumon.fleet.rows import total_row
from gpumon.fleet.select import KINDS
from gpumon.fleet.snapshot import HostState
from gpumon.readings.format import counted
from gpumon.readings.snapshot import Level
from gpumon.readings.text import clean
from gpumon.triage.render import BRIEF_NAMES
from gpumon.tui import line
from gpumon.tui.fleet import columns
from gpumon.tui.fleet.moment import HOSTS, FleetMoment, RowSubject
from gpumon.tui.fleet.row_filter import FleetFilter
from gpumon.tui.fleet.row_words import state_or_verdict, state_or_verdict_lines
from gpumon.tui.keys import keys_of_scope
from gpumon.tui.palette import Palette
from gpumon.tui.rows import Listing, ListScene, Order, has_bound
from gpumon.tui.table import Table
from gpumon.tui.triage_words import mark
from gpumon.tui.view import View
from gpumon.tui.widgets.list_pane import ListPane
from gpumon.tui.widgets.pane import LinesInView

T = TypeVar("T")
"""Rows of a list."""
_MOST_MORE_LINES: Final = 3
"""Most further lines of the words behind a row: as many as the sentences of unreachable hosts take at 120 columns."""
_MOST_REASON_LINES: Final = 20
"""Most lines of the reason why there is no fleet."""
_MOST_ROWS_WITH_WORDS: Final = 60
"""Rows of a table beyond which no lines are kept for their words."""
SCOPE: Final = "fleet"
"""Scope of its keys in the table of keys."""
_GLOB_TO_ANY: Final = str.maketrans(dict.fromkeys("*?[]\"'", "?"))
"""Characters with a meaning in a selection -> `?`, which matches any character, these among them."""


_LISTING: Final = Listing[FleetRow](
    thing="host",
    title="hosts",
    key=lambda row: row.key,
    filters="word, host=gpu0* verdict=kv label!=x",
    orders=columns.ORDERS,
)
"""The hosts, models or owners of a fleet."""


class _TableState(NamedTuple):
    """State that the table of another kind of rows comes back with."""

    filter_text: str = ""
    cursor: str | None = None
    """Key of the row under the cursor; None: it was never moved."""


class RowsPane(ListPane[FleetRow]):
    """The table of a fleet: its cursor stays on its row, and rows keep their order until the figures change."""

    ZOOMS: ClassVar[bool] = False
    filter: FleetFilter

    def __init__(self, palette: Palette, view: View) -> None:
        super().__init__(palette, view, _LISTING, FleetFilter(_LISTING, view))
        self.grouping = HOSTS
        """The kind of thing that a row stands for."""
        self.cursor_moved: Callable[[], None] = lambda: None
        """Called after the cursor may be on another row."""
        self._shown: FleetMoment | None = None
        self._left_tables: dict[RowSubject, _TableState] = {}
        """The tables of the other kinds of rows, as they were left."""
        self._summed_rows: list[FleetRow] | None = None
        """The rows whose sum is `_sum`."""
        self._sum: FleetRow | None = None
        self._words: dict[str, list[line.Row]] = {}
        """Key of a row -> the words behind its columns, of rows where these take several lines."""

    def show_fleet(self, moment: FleetMoment) -> None:
        """Paint a moment of the fleet."""
        self._shown = moment
        self.show(moment.whole)

    @property
    def count(self) -> int:
        """Number of rows that the filter lets through."""
        return len(self.listed_items())

    @property
    def more_lines(self) -> int:
        """Lines below rows that words which are too long could use."""
        if self.count > _MOST_ROWS_WITH_WORDS:
            return 0
        words = self._words_of_several_lines(self.size.width, self.count * (1 + _MOST_MORE_LINES))
        return sum(len(lines) - 1 for lines in words.values())

    @property
    def filtered_sum(self) -> FleetRow | None:
        """The sum of the rows that the filter lets through; None where there is no filter."""
        if not self.filter.selection or self._shown is None:
            return None
        rows = self.listed_items()
        if rows is not self._summed_rows:
            self._summed_rows = rows
            self._sum = total_row(rows)
        return self._sum

    def columns(self) -> Table[FleetRow]:
        """The columns of the present kind of rows."""
        sort = self.filter.order.name if self.filter.order is not None else ""
        has_engines = self._shown is None or self._shown.total.engines > 0
        return columns.fleet_columns(self.grouping.kind, self.size.width, self.view, sort, has_engines=has_engines)

    def turn_to(self, grouping: RowSubject) -> None:
        """Show rows of another kind; the table of each kind keeps its filter and its cursor, which leaves a group only
        for one of the host that was chosen before."""
        row = self.selected
        # None is chosen among rows of another kind, and where the cursor was never moved.
        chosen_host = row.name if row is not None and self.cursor.key is not None and self.grouping == HOSTS else ""
        self._left_tables[self.grouping] = _TableState(self.filter.text, self.cursor.key)
        self.grouping = grouping
        table = self._left_tables.get(grouping, _TableState())
        # The rows are listed anew, from the top.
        self.list_anew()
        self.cursor.begin(table.cursor)
        self.scrolling.top = 0
        self.set_filter(table.filter_text)
        if chosen_host:
            self._go_to_group_of(chosen_host)

    def _go_to_group_of(self, host: str) -> None:
        """Put the cursor on the first row with something of a host, unless its own row has, too."""
        row = self.selected
        if row is not None and host in row.hosts:
            return
        for other in self.listed_items():
            if host in other.hosts:
                self.go_to(other.key)
                return

    def narrow_to_model(self, row: FleetRow) -> bool:
        """Show the hosts that serve the model of a row; returns whether the row has a model."""
        if not row.models:
            return False
        # One model may have several names, with and without its organisation: all end with the shortest.
        name = min(row.models, key=len)
        if not all(model.lower().endswith(name.lower()) for model in row.models):
            name = row.name
        name = name.translate(_GLOB_TO_ANY)
        if len(row.models) > 1:
            name = f"*{name}"
        self.turn_to(HOSTS)
        self.set_filter(f'model="{name}"')
        return True

    def narrow_to_owner(self, row: FleetRow) -> None:
        """Show the hosts with something of an owner; `row`: a row of the label that the table shows."""
        label = self.grouping.label
        self.turn_to(HOSTS)
        self.set_filter(f'{label}="{row.key.translate(_GLOB_TO_ANY)}"')

    def set_filter(self, text: str) -> None:
        """Show the rows that match a selection; a text that is none lets all rows through, and the rule says why."""
        super().set_filter(text)
        self.cursor_moved()

    def all_items(self) -> Sequence[FleetRow]:
        """All rows of the present kind, whatever the filter is."""
        if self._shown is None:
            return ()
        return self._shown.rows(self.grouping)

    def title(self) -> str:
        """The kind of rows."""
        if self.grouping.label:
            return f"owners ({clean(self.grouping.label, 20)})"
        return self.grouping.plural

    def note(self, room: int) -> str:
        """The filter and what is wrong with it, the order, columns without a place."""
        if self.filter.error:
            return f"no filter: {self.filter.error}"
        return super().note(room)

    def lines_without_rows(self, width: int) -> Sequence[line.Row]:
        """Why there is no row."""
        shown = self._shown
        if shown is None:
            return line.wrap_line("asking the Prometheus: waiting for its first answer …", width, "muted")
        if shown.fleet.faults and not shown.fleet.wall_s:
            fault = shown.fleet.faults[0]
            return line.wrap_line(
                f"✗ {clean(fault.source, 40)}: {clean(fault.text, 2000)}", width, "warn", most=_MOST_REASON_LINES
            )
        if not shown.fleet.hosts:
            text = (
                "the Prometheus has no host with GPUs or engines at this time: it should scrape dcgm-exporter, the "
                "engines' /metrics or gpumon serve-metrics; [prometheus] match may leave them out"
            )
            return line.wrap_line(text, width, "muted")
        return line.wrap_line("no engine runs here", width, "muted")

    def none_matches_lines(self, width: int) -> Sequence[line.Row]:
        """The lines of a table without rows: nothing passes the filter, there is no label of that name, or a figure was
        typed with a bound, which is a word here."""
        if has_bound(self.filter.text):
            sort = self.view.keymap.first("sort")
            text = f"the filter of a fleet bounds no figure: {sort} sorts by one; {self.keys_back()}: all rows"
        else:
            text = self._unknown_label() or self.none_matches_text(width)
        return line.wrap_line(text, width, "muted")

    def total_text(self) -> str:
        """Number of all rows: `12 hosts`."""
        return counted(self.total, self.grouping.kind)

    def _unknown_label(self) -> str:
        """The sentence on a label of the filter that nothing has; empty where there is none."""
        if self._shown is None:
            return ""
        known_labels = set(self._shown.owners.labels)
        for row in self._shown.rows(self.grouping):
            known_labels.update(row.labels)
        for name in self.filter.selection.labels:
            if name not in known_labels:
                labels = " ".join(sorted(clean(label, 40) for label in known_labels)) or "none"
                kinds = " ".join(KINDS)
                return f"nothing has a label {clean(name, 40)}: there are {kinds}, and of the targets {labels}"
        return ""

    def in_view(self, width: int, room: int) -> LinesInView:
        """The rows in view; words that are too long go on below their row, as far as there are lines to spare."""
        self._words = self._words_of_several_lines(width, room)
        in_view = super().in_view(width, room)
        if not self._words:
            return in_view
        items = self.listed_items()
        indent = " " * self.columns().cells_used(width, self.view, self.shift)
        lines: list[line.Row] = []
        places: list[int] = []
        for place, row in enumerate(in_view.rows):  # all are in view
            more = self._words.get(items[place].key, [])[1:]
            lines.append(row)
            for words in more:
                lines.append(((indent, "text"), *words))
            places += [place] * (1 + len(more))
        return LinesInView(lines, in_view.total, places)

    def _words_of_several_lines(self, width: int, room: int) -> dict[str, list[line.Row]]:
        """The words of rows that take several lines, where all rows fit into `room` lines with some to spare."""
        items = self.listed_items()
        spare = room - len(items)
        words_by_key: dict[str, list[line.Row]] = {}
        if spare <= 0:
            return words_by_key
        words_cells = self._words_cells(width)
        for item in items:
            lines = state_or_verdict_lines(item, self._wall_s, words_cells, 1 + min(spare, _MOST_MORE_LINES))
            if len(lines) > 1:
                words_by_key[item.key] = lines
                spare -= len(lines) - 1
        return words_by_key

    def _words_cells(self, width: int) -> int:
        """Cells behind the columns."""
        return width - self.columns().cells_used(width, self.view, self.shift)

    @property
    def _wall_s(self) -> float:
        """Time of the moment that is shown (Unix time); 0 before the first one."""
        if self._shown is None:
            return 0.0
        return self._shown.fleet.wall_s

    def header(self, table: Table[FleetRow], width: int, scene: ListScene) -> line.Row:
        """The headers of the columns, and of the words behind them."""
        return (*super().header(table, width, scene), ("  verdict", "muted"))

    def row(self, item: FleetRow, width: int, scene: ListScene) -> line.Row:
        """One host, model or owner, with its state or worst verdict behind the columns."""
        # No host of these has figures.
        tone = "muted" if item.state in STATE_LEVELS or item.state is HostState.STARTING else "text"
        pieces = self.columns().row(item, width, scene.view, tone, shift=scene.shift)
        words = self._words.get(item.key)
        if words is None:
            return (*pieces, *state_or_verdict(item, self._wall_s, self._words_cells(width)))
        return (*pieces, *words[0])

    def trouble(self, item: FleetRow) -> str:
        """The name of a row and its worst verdict, where that is critical; else empty."""
        verdict = item.worst
        if verdict is None or item.level is not Level.CRITICAL:
            return ""
        return f"{mark(verdict).glyph} {clean(item.name, 40)} {BRIEF_NAMES[verdict.code]}"

    def take_key(self, key: str, character: str | None = None) -> bool:  # noqa: ARG002 - the signature of Pane
        """Run the command of a key of a fleet's screen; returns whether it has one."""
        return run_fleet_key(self, key)

    def move(self, lines: int) -> None:
        """Move the cursor."""
        super().move(lines)
        self.cursor_moved()

    def sort(self, order: Order[FleetRow] | None) -> None:
        """Sort by an order; the same order again turns it round."""
        super().sort(order)
        self.cursor_moved()

    @property
    def shows_cursor(self) -> bool:
        """Always true: the foot is about the row under the cursor."""
        return True


def run_fleet_key(pane: ListPane[T], key: str) -> bool:
    """Run the command that a key has on a fleet's screen alone; returns whether it has one."""
    command = keys_of_scope(pane.view.keymap, SCOPE).get(key)
    if command is None:
        return False
    pane.screen.call_later(pane.screen.run_action, f"do('{command}')")
    return True

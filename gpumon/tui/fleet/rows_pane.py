"""The fleet's table: a row per host, per model, or per owner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import ClassVar, Final, TypeVar

from gpumon.fleet.order import sort_fleet_rows
from gpumon.fleet.row import FleetRow
from gpumon.fleet.rows import total_row
from gpumon.fleet.select import KINDS, Selection, SelectionError
from gpumon.fleet.snapshot import HostState
from gpumon.readings.format import counted, cut
from gpumon.readings.missing import Missing
from gpumon.readings.snapshot import Level
from gpumon.readings.text import clean
from gpumon.triage.render import BRIEF
from gpumon.tui import line
from gpumon.tui.fleet import columns
from gpumon.tui.fleet.shown import HOSTS, FleetMoment, RowSubject
from gpumon.tui.keys import keys_of_scope
from gpumon.tui.palette import Palette
from gpumon.tui.rows import Listing, ListView, Order
from gpumon.tui.table import Table
from gpumon.tui.triage_words import mark
from gpumon.tui.view import View
from gpumon.tui.widgets.list_pane import ListPane

T = TypeVar("T")
"""Rows of a list."""
_MOST_LINES: Final = 20
"""Most lines of the reason why there is no fleet."""
SCOPE: Final = "fleet"
"""Scope of its keys in the table of keys."""
_GLOB: Final = str.maketrans(dict.fromkeys("*?[]\"'", "?"))
"""Characters with a meaning in a selection, to the one that matches any character."""


class RowsPane(ListPane[FleetRow]):
    """The selection stays on its host or model; the rows keep their order until the figures change."""

    ZOOMS: ClassVar[bool] = False

    def __init__(self, palette: Palette, view: View) -> None:
        listing = Listing[FleetRow](
            thing="host",
            title="hosts",
            items=lambda _snapshot, _pane: self._all_rows(),
            key=lambda row: row.key,
            words=lambda row, _: row.name,
            gpus=lambda _row, _pane: (),
            row=self._row,
            head=lambda width, _: (*self.table.head(width, self.view, self.shift), ("  verdict", "muted")),
            nothing=self._nothing,
            orders=columns.ORDERS,
            trouble=_trouble,
            filters="word, host=gpu0* verdict=kv label!=x",
        )
        super().__init__(palette, view, listing)
        self.grouping = HOSTS
        """The kind of thing that a row stands for."""
        self.order = columns.ORDERS[0]
        self.moved: Callable[[], None] = lambda: None
        """Called after the cursor may be on another row."""
        self.error = ""
        """Why the filter is none; it lets all rows through then."""
        self._shown: FleetMoment | None = None
        self._others: dict[RowSubject, tuple[str, str]] = {}
        """Filter and cursor of the tables that are not shown."""
        self._summed: tuple[list[FleetRow] | None, FleetRow | None] = (None, None)
        """Rows in view, and their sum."""

    def show_fleet(self, moment: FleetMoment) -> None:
        """Paint a moment of the fleet."""
        self._shown = moment
        self.show(moment.whole)

    @property
    def count(self) -> int:
        """Rows that there are."""
        return len(self.listed_items())

    @property
    def sum(self) -> FleetRow | None:
        """The sum of the rows that the filter lets through; None where there is no filter."""
        if not self.filter_text or self.error or self._shown is None:
            return None
        chosen = self.listed_items()
        if chosen is not self._summed[0]:
            self._summed = (chosen, total_row(chosen))
        return self._summed[1]

    @property
    def table(self) -> Table[FleetRow]:
        """The columns of what a row is now."""
        sort = ""
        if self.order is not None:
            sort = self.order.name
        return columns.fleet_columns(self.grouping.kind, self.size.width, self.view, sort)

    def columns(self) -> Table[FleetRow]:
        """They scroll sideways."""
        return self.table

    def turn_to(self, grouping: RowSubject) -> None:
        """Other rows; each table keeps its filter and its cursor."""
        self._others[self.grouping] = (self.filter_text, self._cursor)
        self.grouping = grouping
        wanted, self._cursor = self._others.get(grouping, ("", ""))
        self._listed_state = ()
        self._place = 0
        self._top = 0
        self.filter(wanted)

    def narrow_to_model(self, row: FleetRow) -> bool:
        """The hosts that serve a model; returns whether the row is one's."""
        if not row.models:
            return False
        shortest = min(row.models, key=len)
        same = all(model.lower().endswith(shortest.lower()) for model in row.models)
        name = (shortest if same else row.name).translate(_GLOB)
        if len(row.models) > 1:
            name = f"*{name}"
        self.turn_to(HOSTS)
        self.filter(f'model="{name}"')
        return True

    def narrow_to_owner(self, row: FleetRow) -> None:
        """The hosts with something of an owner; `row`: one of this label's."""
        label = self.grouping.label
        self.turn_to(HOSTS)
        self.filter(f'{label}="{row.key.translate(_GLOB)}"')

    def filter(self, text: str) -> None:
        """Show what matches; what is no selection lets all rows through, and the rule says why."""
        self.filter_text = text.strip()
        try:
            Selection.parse(self.filter_text)
            self.error = ""
        except SelectionError as refused:
            self.error = clean(str(refused), 200)
        self.update()
        self.moved()

    def _all_rows(self) -> Sequence[FleetRow]:
        if self._shown is None:
            return ()
        return self._shown.rows(self.grouping)

    def passes(self, item: FleetRow) -> bool:
        """Whether the filter lets a row through."""
        return bool(self.error) or _selection(self.filter_text).matches(item)

    def in_order(self, items: Sequence[FleetRow]) -> list[FleetRow]:
        """The rows as rows of a fleet are sorted everywhere; turned round, what nothing is known of stays first, and
        a figure that is missing last."""
        order = self.order
        rows = sort_fleet_rows(items, "name" if order is None else order.name)
        if order is None or not self.turned:
            return rows
        if order.name == "name":
            return rows[::-1]
        blank = []
        known = []
        missing = []
        for row in rows:
            if row.state is not HostState.OK:
                blank.append(row)
            elif isinstance(order.value(row), Missing):
                missing.append(row)
            else:
                known.append(row)
        return [*blank, *reversed(known), *missing]

    def title(self) -> str:
        """The kind of rows."""
        if self.grouping.label:
            return f"owners ({clean(self.grouping.label, 20)})"
        return self.grouping.plural

    def _keys_back(self) -> str:
        return self.view.keymap.first("back")

    def note(self) -> str:
        """The filter and what is wrong with it, the order, columns without a place."""
        if self.error:
            return f"no filter: {self.error}"
        return super().note()

    def _nothing(self, width: int, _: ListView) -> Sequence[line.Row]:
        """Why there is no row."""
        shown = self._shown
        if shown is None:
            return line.wrap_line("asking the Prometheus: waiting for its first answer …", width, "muted")
        if shown.fleet.faults and not shown.fleet.wall_s:
            fault = shown.fleet.faults[0]
            return line.wrap_line(
                f"✗ {clean(fault.source, 40)}: {clean(fault.text, 2000)}", width, "warn", most=_MOST_LINES
            )
        if not shown.fleet.hosts:
            text = (
                "the Prometheus has no host with GPUs or engines at this time: it should scrape dcgm-exporter, the "
                "engines' /metrics or gpumon serve-metrics; [prometheus] match may leave them out"
            )
            return line.wrap_line(text, width, "muted")
        return line.wrap_line("no engine runs here", width, "muted")

    def _none_matches(self, width: int) -> Sequence[line.Row]:
        """Tells that nothing passes the filter, and if so, that no row has such a label."""
        unknown = self._unknown_label()
        if unknown:
            return line.wrap_line(unknown, width, "muted")
        wanted = cut(self.filter_text, max(8, width - 50))
        text = f'none of {self._total_text()} matches "{wanted}"; {self._keys_back()}: all rows'
        return line.wrap_line(text, width, "muted")

    def _total_text(self) -> str:
        return counted(self._total, self.grouping.kind)

    def _unknown_label(self) -> str:
        """Why a filter by a label that there is not can match nothing; empty where it has none."""
        if self._shown is None:
            return ""
        there = set(self._shown.owners.labels)
        for row in self._shown.rows(self.grouping):
            there.update(row.labels)
        for name in _selection(self.filter_text).labels:
            if name not in there:
                labels = " ".join(sorted(clean(label, 40) for label in there)) or "none"
                kinds = " ".join(KINDS)
                return f"nothing has a label {clean(name, 40)}: there are {kinds}, and of the targets {labels}"
        return ""

    def _row(self, item: FleetRow, width: int, _: ListView) -> line.Row:
        """One host or model, its worst verdict behind."""
        tone = "muted"
        if item.troubled < max(1, len(item.hosts)):
            tone = "text"
        pieces = self.table.row(item, width, self.view, tone, shift=self.shift)
        room = width - self.table.used(width, self.view, self.shift)
        wall_s = self._shown.fleet.wall_s if self._shown is not None else 0.0
        return (*pieces, *columns.state_or_verdict(item, wall_s, room))

    def take(self, key: str, character: str | None = None) -> bool:  # noqa: ARG002 - the signature of Pane
        """Keys of a fleet's screen alone."""
        return run_fleet_key(self, key)

    def move(self, lines: int) -> None:
        """Move the cursor."""
        super().move(lines)
        self.moved()

    def sort(self, order: Order[FleetRow] | None) -> None:
        """Sort so; the same order again turns it round."""
        super().sort(order)
        self.moved()

    def back(self) -> bool:
        """Drop the filter."""
        if not self.filter_text:
            return False
        self.filter("")
        return True

    @property
    def shows_cursor(self) -> bool:
        """Always: the foot is about its row."""
        return True


def _trouble(row: FleetRow, _: ListView) -> str:
    """Its worst verdict where it is critical, with its name."""
    worst = row.worst if row.level is Level.CRITICAL else None
    if worst is not None:
        return f"{mark(worst)[0]} {clean(row.name, 40)} {BRIEF[worst.code]}"
    return ""


@lru_cache(maxsize=8)
def _selection(text: str) -> Selection:
    return Selection.parse(text)


def run_fleet_key(pane: ListPane[T], key: str) -> bool:
    """Run the command that a key has on a fleet's screen alone; returns whether it has one."""
    command = keys_of_scope(pane.view.keymap, SCOPE).get(key)
    if command is None:
        return False
    pane.screen.call_later(pane.screen.run_action, f"do('{command}')")
    return True

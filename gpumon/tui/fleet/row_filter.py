"""Which rows of a fleet's table pass, and their order: a selection as commands take it, and the order they print."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.fleet.order import sort_fleet_rows
from gpumon.fleet.row import STATE_LEVELS, FleetRow
from gpumon.fleet.select import Selection, SelectionError
from gpumon.readings.missing import Missing
from gpumon.readings.text import clean
from gpumon.tui.list_filter import ListFilter
from gpumon.tui.rows import Listing, ListScene
from gpumon.tui.view import View


class FleetFilter(ListFilter[FleetRow]):
    """The filter and the order of a fleet's table: it begins with the first order there is."""

    def __init__(self, listing: Listing[FleetRow], view: View) -> None:
        super().__init__(listing, view)
        self.order = listing.orders[0]
        self.selection = Selection()
        """The text, read; empty where it cannot be: it lets all rows through then."""
        self.error = ""
        """Why the text cannot be read; empty: it can."""

    def set_text(self, text: str) -> None:
        """Filter by a selection."""
        super().set_text(text)
        try:
            self.selection = Selection.parse(self.text)
            self.error = ""
        except SelectionError as error:
            self.selection = Selection()
            self.error = clean(str(error), 200)

    def passing(self, items: Sequence[FleetRow], scene: ListScene) -> list[FleetRow]:  # noqa: ARG002 - the signature of ListFilter
        """The rows that the selection lets through."""
        return [row for row in items if self.selection.matches(row)]

    def in_order(self, items: Sequence[FleetRow]) -> list[FleetRow]:
        """The rows as they are sorted everywhere. Turned round, hosts that are not OK stay first, and rows whose figure
        is missing last."""
        order = self.order
        rows = sort_fleet_rows(items, "name" if order is None else order.name)
        if order is None or not self.turned:
            return rows
        if order.name == "name":
            return rows[::-1]
        not_ok = []
        known = []
        missing = []
        for row in rows:
            if row.state in STATE_LEVELS:
                not_ok.append(row)
            elif isinstance(order.value(row), Missing):
                missing.append(row)
            else:
                known.append(row)
        return [*not_ok, *reversed(known), *missing]

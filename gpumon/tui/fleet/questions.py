"""What the drawer asks of the fleet's screen: which rows are wanted, and in which order."""

from __future__ import annotations

from gpumon.tui.fleet.rows_pane import RowsPane
from gpumon.tui.screens.questions import order_of as order_of_list
from gpumon.tui.widgets.drawer import Question


def filter_of(pane: RowsPane) -> Question:
    """The filter of the table; rows follow while it is typed."""
    before = pane.wanted
    return Question(
        f"filter {pane.title()}:",
        changed=pane.filter,
        dropped=lambda: pane.filter(before),
        text=before,
        hint="word, host=gpu0* verdict=kv label!=x · Enter: keep · Esc: as before",
    )


def order_of(pane: RowsPane) -> Question:
    """The order of the table's rows."""
    return order_of_list(pane)._replace(title=f"sort {pane.title()} by")

"""What the drawer asks of the fleet's screen: which rows are wanted."""

from __future__ import annotations

from gpumon.tui.fleet.rows_pane import RowsPane
from gpumon.tui.widgets.drawer import Question


def filter_of(pane: RowsPane) -> Question:
    """The filter of the table; rows follow while it is typed."""
    before = pane.wanted
    return Question(
        f"filter {pane.title()}:",
        changed=pane.filter,
        dropped=lambda: pane.filter(before),
        text=before,
        hint="word, host=gpu0* model=*llama* label!=x · Enter: keep · Esc: as before",
    )

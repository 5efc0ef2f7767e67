"""Which part of the fleet's screen gets how many lines."""

from __future__ import annotations

from typing import Final, NamedTuple

from gpumon.tui.layout import LEAST_HEIGHT, LEAST_WIDTH

FOOT_HEIGHT: Final = 30
"""Lines of the screen from which the host under the cursor has a place at the foot."""
_LEAST_ROWS: Final = 8
"""Rows of the table that come before the foot."""
_LEAST_FOOT: Final = 4
_LEAST_BODY: Final = 6
"""Lines of table below which the sentence of a row has none."""
_WIDE: Final = 150
"""Columns from which the summary needs one line only."""


class FleetPlan(NamedTuple):
    """Lines of each part; 0 is hidden. All 0 is the summary alone."""

    faults: int = 0
    summary: int = 0
    table: int = 0
    foot: int = 0
    said: int = 0
    """Lines of what is wrong with the row under the cursor."""
    page: int = 0
    """Lines of what covers the table: the help, or the sizing panel."""
    drawer: int = 0

    @property
    def tiny(self) -> bool:
        """Whether there is room for a summary only."""
        return not any(self)


def plan(
    width: int,
    height: int,
    *,
    rows: int,
    foot: int,
    faults: int,
    said: int,
    drawer: int,
    covered: bool,
) -> FleetPlan:
    """The lines of each part on a screen of `width` x `height` cells.

    `rows`: lines of the table's body; `foot`: lines that the foot could use; `faults`: lines of the faults;
    `said`: lines of what is wrong with the row under the cursor. Faults and that sentence have a line each, and more
    where rows leave some. `covered`: the help or the sizing panel stands over the table.
    """
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        return FleetPlan()
    drawer = min(drawer, height - 2 - 3)
    body = height - 2 - drawer
    if covered:
        return FleetPlan(page=body, drawer=drawer)
    summary = 1 if width >= _WIDE else 2
    free = max(0, body - summary - 2 - rows - min(1, faults))
    faults = min(faults, 1 + free)
    body -= faults + summary
    lines = 0
    if height >= FOOT_HEIGHT:
        most = body - 2 - min(rows, max(_LEAST_ROWS, (body - 2) // 2))
        lines = min(foot, most) if min(foot, most) >= _LEAST_FOOT else 0
    said = 0 if lines or not rows or body < _LEAST_BODY else min(said, max(1, body - 2 - rows))
    return FleetPlan(faults, summary, body - lines - said, lines, said, 0, drawer)

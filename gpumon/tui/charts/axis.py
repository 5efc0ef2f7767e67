"""The time axis under the charts: how long ago, and what the clock said."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime, timezone
from typing import Final

from gpumon.readings.format import period
from gpumon.tui.charts.series import Grid
from gpumon.tui.line import Piece

_TICKS_S: Final = (5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0)
"""Times between two labels that there may be."""
_ROUNDING: Final = 1e-9
"""Part of a step by which a quotient of two times may miss a whole number."""
_SHORT_SPAN_S: Final = 120.0
"""Span up to which labels need not be whole minutes apart."""
_RULE: Final = "─"
_LABEL_SPACING: Final = 12
"""Cells from the begin of one label to that of the next, at least."""
NOW: Final = "now"
"""The right edge of what is live."""


def time_labels(grid: Grid, edge: str = NOW) -> list[Piece]:
    """Labels for round times before the right edge (`-5 min`), whose own label is `edge`, on a rule; the same at every
    moment."""
    tick_s = _tick_s(grid)
    labels = [
        (grid.columns - round(ticks * tick_s / grid.column_s), f"-{_ago(ticks * tick_s, tick_s)}")
        for ticks in range(int(grid.span_s / tick_s + _ROUNDING), 0, -1)
    ]
    return _with_labels([*labels, (grid.columns - len(edge), edge)], grid.columns)


def clock_labels(grid: Grid, first: int) -> list[Piece]:
    """Labels with the time of day at round times from column number `first` on: charts that grow to the right move no
    label."""
    tick_s = _tick_s(grid)
    number = math.ceil(first * grid.column_s / tick_s - _ROUNDING)
    labels = []
    column = round(number * tick_s / grid.column_s) - first
    while column < grid.columns:
        labels.append((column, o_clock(number * tick_s, tick_s)))
        number += 1
        column = round(number * tick_s / grid.column_s) - first
    return _with_labels(labels, grid.columns)


def _tick_s(grid: Grid) -> float:
    """Seconds between two labels: the least step with room for them, in whole minutes unless the span is short."""
    least_s = 60.0 if grid.span_s > _SHORT_SPAN_S else 0.0
    for tick_s in _TICKS_S:
        if tick_s >= least_s and tick_s / grid.column_s >= _LABEL_SPACING:
            return tick_s
    return _TICKS_S[-1]


def _ago(seconds: float, tick_s: float) -> str:
    """How long ago a label is: `30s`, `5 min`; a minute among whole minutes is `1 min`, and not `60s`."""
    if tick_s % 60.0 or seconds > 60.0:
        return period(seconds)
    return "1 min"


def o_clock(at_s: float, tick_s: float) -> str:
    """Local time of day of a Unix time, with seconds unless the times beside it are whole minutes away (`tick_s`)."""
    time = datetime.fromtimestamp(at_s, timezone.utc).astimezone()
    if tick_s % 60.0:
        return time.strftime("%H:%M:%S")
    return time.strftime("%H:%M")


def _with_labels(labels: Iterable[tuple[int, str]], columns: int) -> list[Piece]:
    """Labels at their columns, with a rule between them; one that has no room is left out."""
    labels = [label for label in labels if label[0] >= 0]
    pieces: list[Piece] = []
    used = 0
    for place, (start, label) in enumerate(labels):
        end = start + len(label)
        if place < len(labels) - 1:
            has_room = end + 1 <= labels[-1][0]  # the last label, which names the right edge, goes before the others
        else:
            has_room = end <= columns
        if start < used or not has_room:
            continue
        pieces += [(_RULE * (start - used), "border"), (label, "muted")]
        used = end
    pieces.append((_RULE * (columns - used), "border"))
    return [piece for piece in pieces if piece[0]]

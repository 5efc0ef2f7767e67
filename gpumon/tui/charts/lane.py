"""The events on the time axis of the charts: one line, a glyph in the column in which something happened."""

from __future__ import annotations

import math
from typing import Final

from gpumon.readings.history import History
from gpumon.readings.snapshot import Event
from gpumon.tui.charts.series import Grid
from gpumon.tui.line import Piece
from gpumon.tui.palette import Glyphs
from gpumon.tui.triage_words import event_mark, most_urgent

NAME: Final = "events"


def happened(history: History, grid: Grid, now_s: float) -> list[Event]:
    """Events in the columns of a chart, oldest first."""
    edge_s = (math.floor(now_s / grid.column_s) + 1) * grid.column_s
    oldest_s = edge_s - grid.span_s
    return [event for event in history.events(oldest_s - grid.column_s, now_s) if event.wall_s >= oldest_s]


class Lane:
    """A column is a fixed bucket of wall time, as in the charts above it: the line changes only where they shift."""

    def __init__(self, history: History, grid: Grid, glyphs: Glyphs) -> None:
        self._history = history
        self._grid = grid
        self._glyphs = glyphs

    def pieces(self, now_s: float) -> list[Piece]:
        """As many cells as the charts have columns; of several events in one the most urgent shows."""
        columns, column_s = self._grid
        newest = math.floor(now_s / column_s)
        found: dict[int, list[Event]] = {}
        for event in happened(self._history, self._grid, now_s):
            found.setdefault(columns - 1 - newest + math.floor(event.wall_s / column_s), []).append(event)
        row: list[Piece] = []
        at = 0
        for place, events in sorted(found.items()):
            row += [(" " * (place - at), "text"), event_mark(most_urgent(events), self._glyphs)]
            at = place + 1
        return [piece for piece in (*row, (" " * (columns - at), "text")) if piece[0]]

"""Area charts under one time axis, for a pane of many lines."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Final

from gpumon.readings.history import History
from gpumon.tui.charts.axis import ago
from gpumon.tui.charts.curves import CHARTS, Figures, ordered
from gpumon.tui.charts.lane import NAME, Lane
from gpumon.tui.charts.plot import LABEL, Plot, labels
from gpumon.tui.charts.raster import RASTERS
from gpumon.tui.charts.series import Series, grid
from gpumon.tui.charts.window import window
from gpumon.tui.line import Piece, Row
from gpumon.tui.palette import Glyphs

_SIDE_BY_SIDE: Final = 160
"""Cells from which the charts stand in two stacks."""


class Areas:
    """As many charts as fit into `height` lines of `width` cells, each at least `least` lines high.

    Charts of nothing but `empty` keys come last. `cursor`: a chart (its place in `CHARTS`) that must be among them;
    `first`: how many charts were left out before it so far. `lane`: a line above the axis is for what happened.
    """

    def __init__(
        self,
        history: History,
        width: int,
        height: int,
        span_s: float,
        *,
        glyphs: Glyphs = "braille",
        least: int = 3,
        empty: Collection[str] = (),
        cursor: int = 0,
        first: int = 0,
        lane: bool = False,
    ) -> None:
        self.order = ordered(empty)
        self._across = 2 if width >= _SIDE_BY_SIDE else 1
        room = (width - 1) // self._across
        self.grid = grid(max(1, room - LABEL - 1), span_s)
        self._label = room - self.grid.columns - 1
        self._lane = Lane(history, self.grid, glyphs) if lane else None
        height -= 2 if lane else 1
        down = max(1, min(-(-len(CHARTS) // self._across), height // least))
        self.first, end = window(len(CHARTS), self._across, down, first, self.order.index(cursor))
        down = -(-(end - self.first) // self._across)
        self._heights = [height // down + (at < height % down) for at in range(down)]
        self._shown = self.order[self.first : end]
        self.left_out = len(CHARTS) - len(self._shown)
        self._glyphs = glyphs
        self._live = RASTERS[glyphs].live
        self._plots = [Plot(CHARTS[at], glyphs) for at in self._shown]
        count, bucket_s = self.grid.columns * self._live, self.grid.column_s / self._live
        self._series = {
            curve.key: Series(history, curve.key, count, bucket_s, self._live)
            for plot in self._plots
            for curve in plot.chart.curves
        }
        self._ago = self._axis()

    def rows(self, now_s: float, figures: Figures, marked: int | None = None) -> list[Row]:
        """The lines at one moment of wall time, the axis last; the chart `marked` carries a mark."""
        newest = math.floor(now_s / self.grid.column_s) * self._live + self._live - 1
        values = {key: series.values(newest, now_s) for key, series in self._series.items()}
        texts = figures.at(now_s)
        rows: list[Row] = []
        for at, height in enumerate(self._heights):
            lines: list[list[Piece]] = [[] for _ in range(height)]
            for place in range(at * self._across, min((at + 1) * self._across, len(self._plots))):
                plot, chosen = self._plots[place], self._shown[place] == marked
                named = labels(plot.chart, texts, height, self._label - 6, self._glyphs, marked=chosen)
                for line, label, drawn in zip(lines, named, plot.lines(values, height, newest), strict=True):
                    line += [*label, *drawn, (" ", "text")]
            rows += [tuple(line) for line in lines]
        return [*rows, *self._events(now_s), self._ago]

    def at(self, x: int, y: int) -> int | None:
        """The chart (its place in `CHARTS`) at a cell of the body."""
        for row, height in enumerate(self._heights):
            if 0 <= y < height:
                place = row * self._across + min(self._across - 1, x // (self._label + self.grid.columns + 1))
                return self._shown[place] if place < len(self._shown) else None
            y -= height
        return None

    def _events(self, now_s: float) -> list[Row]:
        if self._lane is None:
            return []
        name: Piece = (f"{NAME} ".rjust(self._label), "muted")
        return [self._beside([name, *self._lane.pieces(now_s), (" ", "text")])]

    def _axis(self) -> Row:
        return self._beside([("0└".rjust(self._label), "muted"), *ago(self.grid), (" ", "text")])

    def _beside(self, stack: list[Piece]) -> Row:
        """The same under each stack."""
        return tuple(stack * min(self._across, len(self._plots)))

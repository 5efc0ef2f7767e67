"""The series that a verdict stands on, one below the other, over one time axis with what happened."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from gpumon.readings.history import History
from gpumon.tui.charts.axis import ago
from gpumon.tui.charts.curves import Chart, Figures
from gpumon.tui.charts.lane import NAME, Lane
from gpumon.tui.charts.plot import LABEL, Plot, labels
from gpumon.tui.charts.raster import RASTERS
from gpumon.tui.charts.series import Series, grid
from gpumon.tui.line import Row
from gpumon.tui.palette import Glyphs

LEAST: Final = 3
MOST: Final = 7
"""Lines of one chart."""


class Evidence:
    """Charts of `each` lines in `width` cells, the events and the axis below them."""

    def __init__(
        self, history: History, charts: Sequence[Chart], width: int, each: int, span_s: float, glyphs: Glyphs
    ) -> None:
        self._each = each
        self._figures = Figures(history)
        self._live = RASTERS[glyphs].live
        self._glyphs = glyphs
        self.grid = grid(max(1, width - LABEL - 2), span_s)
        self._label = width - self.grid.columns - 2
        self._plots = [Plot(chart, glyphs) for chart in charts]
        count, bucket_s = self.grid.columns * self._live, self.grid.column_s / self._live
        self._series = {
            curve.key: Series(history, curve.key, count, bucket_s, self._live)
            for chart in charts
            for curve in chart.curves
        }
        self._lane = Lane(history, self.grid, glyphs)

    def rows(self, now_s: float) -> list[Row]:
        """The lines at one moment of wall time."""
        newest = math.floor(now_s / self.grid.column_s) * self._live + self._live - 1
        values = {key: series.values(newest, now_s) for key, series in self._series.items()}
        rows: list[Row] = []
        for plot in self._plots:
            texts = self._figures.at(now_s, plot.chart.curves)
            named = labels(plot.chart, texts, self._each, self._label - 6, self._glyphs, marked=False)
            drawn = plot.lines(values, self._each, newest)
            rows += [(*label, *line) for label, line in zip(named, drawn, strict=True)]
        rows.append(((f"{NAME} ".rjust(self._label), "muted"), *self._lane.pieces(now_s)))
        return [*rows, (("0└".rjust(self._label), "muted"), *ago(self.grid))]

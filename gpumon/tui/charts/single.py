"""One chart over the whole pane: a finer scale, what it was at least and at most, and each GPU by itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from gpumon.readings.history import History
from gpumon.tui.charts.axis import ago, clock, o_clock
from gpumon.tui.charts.curves import CHARTS, Curve, Figures
from gpumon.tui.charts.lane import NAME, Lane
from gpumon.tui.charts.plot import LABEL, Plot, Values, labels, named, summary
from gpumon.tui.charts.raster import RASTERS, area, spark
from gpumon.tui.charts.series import Series, grid
from gpumon.tui.line import Piece, Row
from gpumon.tui.palette import Glyphs

_LANE_FROM: Final = 5
"""Lines from which what happened has one of them."""
_CLOCK_FROM: Final = 8
"""Lines from which the clock times have one of them."""
_LEAST_AREA: Final = 6
"""Lines of the chart before any GPU has one."""
_SUMMARY: Final = 5
"""Lines that a curve's name and its summary take; the last one may be missing."""
_MOST_LINES: Final = 3
"""Lines of one GPU, where there are enough."""


class Single:
    """One chart on a scale of its own, and below it the same of each GPU, up to 100 %, where the history has it."""

    def __init__(
        self,
        history: History,
        chart: int,
        width: int,
        height: int,
        span_s: float,
        *,
        glyphs: Glyphs = "braille",
        gpus: Sequence[int] = (),
        lane: bool = False,
    ) -> None:
        self.chart = CHARTS[chart]._replace(full=0.0)
        self._glyphs = glyphs
        self._live = RASTERS[glyphs].live
        self.grid = grid(max(1, width - LABEL - 2), span_s)
        self._label = width - self.grid.columns - 2
        known = set(history.keys())
        apart = [
            curve._replace(name=f"GPU {index}", key=f"{curve.key}:{index}")
            for curve in self.chart.curves
            for index in gpus
            if f"{curve.key}:{index}" in known
        ]
        self._lane = Lane(history, self.grid, glyphs) if lane and height >= _LANE_FROM else None
        height -= self._lane is not None
        axis = (height > 1) + (height >= _CLOCK_FROM)
        spare = max(0, height - axis - _LEAST_AREA)
        self._each = max(1, min(_MOST_LINES, spare // 2 // len(apart))) if apart else 1
        self._apart: list[Curve] = apart[: spare // self._each]
        self.left_out = len(apart) - len(self._apart)
        self._height = height - axis - self._each * len(self._apart)
        self._axis = axis
        self._plot = Plot(self.chart, glyphs)
        self._series = {curve.key: self._reading(history, curve, self._live) for curve in self.chart.curves}
        lines = self._live if self._each > 1 else 1
        self._series |= {curve.key: self._reading(history, curve, lines) for curve in self._apart}

    def _reading(self, history: History, curve: Curve, live: int) -> Series:
        return Series(history, curve.key, self.grid.columns * live, self.grid.column_s / live, live)

    def rows(self, now_s: float, figures: Figures) -> list[Row]:
        """The lines at one moment of wall time."""
        column = math.floor(now_s / self.grid.column_s)
        newest = (column + 1) * self._live - 1
        values = {curve.key: self._series[curve.key].values(newest, now_s) for curve in self.chart.curves}
        texts = figures.at(now_s, (*self.chart.curves, *self._apart))
        drawn = self._plot.lines(values, self._height, newest)
        label = self._label - 6
        said = self._said(texts, values, label, newest)
        rows: list[Row] = [(*name, *line) for name, line in zip(said[: self._height], drawn, strict=True)]
        corner = "0└".rjust(self._label)
        if self._lane is not None:
            rows.append(((f"{NAME} ".rjust(self._label), "muted"), *self._lane.pieces(now_s)))
        if self._axis > 0:
            rows.append(((corner, "muted"), *ago(self.grid)))
        if self._axis > 1:
            rows.append(((" " * self._label, "text"), *clock(self.grid, now_s)))
        for curve in self._apart:
            rows += self._of_gpu(curve, texts[curve.key], column, now_s)
        return rows

    def _said(self, texts: dict[str, str], values: Values, width: int, newest: int) -> list[list[Piece]]:
        """Names and figures; below each, where there is room, what it was at least, on average, and at most."""
        said = labels(self.chart, texts, max(self._height, len(self.chart.curves)), width, self._glyphs, marked=False)
        each = min(_SUMMARY, self._height // len(self.chart.curves))
        if each < _SUMMARY - 1:
            return said
        bucket_s = self.grid.column_s / self._live
        oldest = newest + 1 - self.grid.columns * self._live
        lines: list[list[Piece]] = []
        for curve, line in zip(self.chart.curves[::-1], said, strict=False):
            found = summary(curve, values[curve.key], width, lambda at: o_clock((oldest + at) * bucket_s, bucket_s))
            lines += [line, *found[: each - 1]]
        return lines + [[(" " * width, "text")]] * (self._height - len(lines))

    def _of_gpu(self, curve: Curve, figure: str, column: int, now_s: float) -> list[Row]:
        live = self._live if self._each > 1 else 1
        values = self._series[curve.key].values((column + 1) * live - 1, now_s)
        lines: list[list[Piece]] = (
            area([(values, curve.tone)], self._each, self._glyphs)
            if self._each > 1
            else [[(spark(values), curve.tone)]]
        )
        names = [[(" ", "text"), (" ", "text"), *named(curve, figure, self._label - 8)]]
        names += [[(" " * (self._label - 6), "text")]] * (len(lines) - 1)
        ruler = "│".rjust(6)
        return [(*name, (ruler, "muted"), *line) for name, line in zip(names, lines, strict=True)]

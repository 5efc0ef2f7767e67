"""Area charts under one time axis, for a pane of many lines."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Final

from gpumon.readings.format import left, period, right, round_number
from gpumon.readings.history import History
from gpumon.tui.charts.curves import CHARTS, Chart, most, nice
from gpumon.tui.charts.raster import area
from gpumon.tui.charts.series import Series, column_seconds
from gpumon.tui.line import Piece, Row

_LABEL: Final = 28
"""Cells of name, value and scale to the left of a chart."""
_SIDE_BY_SIDE: Final = 160
"""Cells from which the charts stand in two stacks."""
_TICKS_S: Final = (60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 14400.0, 43200.0, 86400.0)
_TICK_CELLS: Final = 14

Values = dict[str, list[float]]
"""The buckets of each series, oldest first."""


class Areas:
    """As many charts as fit into `height` lines of `width` cells, each at least `least` lines high.

    Charts of nothing but `empty` keys come last.
    """

    def __init__(
        self,
        history: History,
        width: int,
        height: int,
        interval_s: float,
        *,
        blocks: bool,
        least: int = 3,
        empty: Collection[str] = (),
    ) -> None:
        self._history = history
        self._across = 2 if width >= _SIDE_BY_SIDE else 1
        self.columns = (width - 1) // self._across - _LABEL - 1
        self.column_s = column_seconds(self.columns, interval_s)
        down = max(1, min(-(-len(CHARTS) // self._across), (height - 1) // least))
        self._heights = [(height - 1) // down + (at < (height - 1) % down) for at in range(down)]
        charts = sorted(CHARTS, key=lambda chart: all(curve.key in empty for curve in chart.curves))
        shown = charts[: down * self._across]
        self.left_out = len(CHARTS) - len(shown)
        self._live = 1 if blocks else 2
        self._areas = [_Area(chart, self._live, blocks=blocks) for chart in shown]
        self._series = {
            curve.key: Series(history, curve.key, self.columns * self._live, self.column_s / self._live, self._live)
            for chart in shown
            for curve in chart.curves
        }

    def rows(self, now_s: float) -> list[Row]:
        """The lines at one moment of wall time, the axis last."""
        newest = math.floor(now_s / self.column_s) * self._live + self._live - 1
        values = {key: series.values(newest, now_s) for key, series in self._series.items()}
        texts = {curve.key: curve.latest(self._history, now_s) for chart in CHARTS for curve in chart.curves}
        rows: list[Row] = []
        for at, height in enumerate(self._heights):
            side_by_side = self._areas[at * self._across : (at + 1) * self._across]
            drawn = [each.lines(values, texts, height, newest) for each in side_by_side]
            rows += [tuple(piece for lines in drawn for piece in lines[line]) for line in range(height)]
        return [*rows, self._axis()]

    def _axis(self) -> Row:
        tick_s = next((tick for tick in _TICKS_S if tick / self.column_s >= _TICK_CELLS), _TICKS_S[-1])
        row: list[Piece] = [(" " * (_LABEL - 1) + "└", "border")]
        at = 0
        for ticks in range(int(self.columns * self.column_s / tick_s), 0, -1):
            label = f"-{period(ticks * tick_s)}"
            start = self.columns - round(ticks * tick_s / self.column_s)
            row += [("─" * (start - at), "border"), (label, "muted")]
            at = start + len(label)
        row += [("─" * (self.columns - at - 3), "border"), ("now ", "muted")]
        return tuple(row * self._across)


class _Area:
    """One chart. Finished columns are drawn once per bucket; in between only the newest one is."""

    def __init__(self, chart: Chart, live: int, *, blocks: bool) -> None:
        self._chart = chart
        self._live = live
        self._blocks = blocks
        self._top = 0.0
        self._drawn: tuple[int, int, float] = (-1, 0, 0.0)
        self._past: list[list[Piece]] = []
        self._past_most = 0.0

    def lines(self, values: Values, texts: dict[str, str], height: int, newest: int) -> list[list[Piece]]:
        """Labels, scale and curves, from the top down."""
        curves = [values[curve.key] for curve in self._chart.curves]
        past, now = [of[: -self._live] for of in curves], [of[-self._live :] for of in curves]
        if newest != self._drawn[0]:
            self._past_most = self._highest(past)
        top = self._chart.full or self._scale(max(self._past_most, self._highest(now)))
        if self._drawn != (newest, height, top):
            self._drawn = (newest, height, top)
            self._past = self._area(past, top, height)
        parts = zip(self._labels(curves, texts, top, height), self._past, self._area(now, top, height), strict=True)
        return [[*label, *old, *new, (" ", "text")] for label, old, new in parts]

    def _area(self, curves: list[list[float]], top: float, height: int) -> list[list[Piece]]:
        tones = [curve.tone for curve in self._chart.curves]
        layers = [([value / top for value in of], tone) for of, tone in zip(self._stacked(curves), tones, strict=True)]
        return area(layers, height, blocks=self._blocks)

    def _stacked(self, curves: list[list[float]]) -> list[list[float]]:
        if not self._chart.stacked:
            return curves
        return [curves[0], [_plus(a, b) for a, b in zip(*curves, strict=True)]]

    def _highest(self, curves: list[list[float]]) -> float:
        return 0.0 if self._chart.full else max(map(most, self._stacked(curves)))

    def _scale(self, highest: float) -> float:
        """The scale grows as it must and shrinks late, so that it seldom moves."""
        if highest > self._top or nice(highest) < self._top / 2.0:
            self._top = nice(highest)
        return self._top or 1.0

    def _labels(self, curves: list[list[float]], texts: dict[str, str], top: float, height: int) -> list[list[Piece]]:
        named = self._chart.curves[::-1]
        scale = "100%" if self._chart.full else round_number(top) + self._chart.unit if self._highest(curves) else ""
        lines: list[list[Piece]] = []
        for at in range(height):
            ruler: Piece = (f"{scale:>5}┤" if at == 0 else "     │", "muted")
            if at >= len(named):
                lines.append([(" " * (_LABEL - 6), "text"), ruler])
                continue
            curve = named[at]
            words = f" {left(curve.name, 13)} {right(texts[curve.key], 5)}"
            lines.append([(" ", "text"), ("▒" if curve.tone == "busy" else "█", curve.tone), (words, "text"), ruler])
        return lines


def _plus(one: float, other: float) -> float:
    return one if other != other else other if one != one else one + other

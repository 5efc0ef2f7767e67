"""One-line sparks, for a pane of few lines."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Final

from gpumon.readings.format import cut, left, ratio, right
from gpumon.readings.history import History
from gpumon.tui.charts.axis import ago
from gpumon.tui.charts.curves import CHART_OF, ONE_LINE, SPARKS, Figures, most, nice
from gpumon.tui.charts.lane import NAME, Lane
from gpumon.tui.charts.plot import mark
from gpumon.tui.charts.raster import spark
from gpumon.tui.charts.series import Series, grid
from gpumon.tui.charts.window import window
from gpumon.tui.line import Piece, Row
from gpumon.tui.palette import Glyphs

_WIDTH: Final = 38
"""Least cells of one spark with its label, where there are several lines."""
_IN_ONE_LINE: Final = 4
"""Sparks side by side where there is a single line."""
_BESIDE: Final = 8
"""Cells of the figure and of the blanks around it."""


class Sparks:
    """As many sparks as fit into `height` lines of `width` cells, and the time axis where a line is to spare.

    Those of `empty` keys come last. `cursor`: a chart (its place in `CHARTS`) whose sparks must be among them; `first`:
    how many sparks were left out before it so far. `lane`: where there is a line for it, it shows what happened.
    """

    def __init__(
        self,
        history: History,
        width: int,
        height: int,
        span_s: float,
        *,
        glyphs: Glyphs = "braille",
        empty: Collection[str] = (),
        cursor: int = 0,
        first: int = 0,
        lane: bool = False,
    ) -> None:
        curves = sorted(SPARKS if height > 1 else ONE_LINE, key=lambda curve: curve.key in empty)
        self.order = list(dict.fromkeys(CHART_OF[curve.key] for curve in curves))
        widest = max(1, width // _WIDTH)
        enough = (across for across in range(1, widest) if -(-len(curves) // across) < height)
        self._across = next(enough, widest) if height > 1 else _IN_ONE_LINE
        self._word = 7 if height > 1 else 5
        label = self._word + _BESIDE
        room = (width - 1) // self._across
        self.grid = grid(max(1, room - label), span_s)
        self._pad = " " * max(0, room - label - self.grid.columns)
        wanted = [at for at, curve in enumerate(curves) if CHART_OF[curve.key] == cursor]
        self.first, end = window(len(curves), self._across, height, first, *wanted)
        self._curves = curves[self.first : end]
        self.left_out = len(curves) - len(self._curves)
        self._mark = mark(glyphs)
        self._series = [Series(history, curve.key, self.grid.columns, self.grid.column_s, 1) for curve in self._curves]
        self._ago: tuple[Row, ...] = ()
        if -(-len(self._curves) // self._across) < height:
            axis: list[Piece] = [(" " * (label + len(self._pad)), "text"), *ago(self.grid)]
            self._ago = (tuple(axis * min(self._across, len(self._curves))),)
        spare = height - -(-len(self._curves) // self._across) - len(self._ago)
        self._lane = Lane(history, self.grid, glyphs) if lane and self._ago and spare > 0 else None
        self._name: Piece = (f"{NAME} ".rjust(label + len(self._pad)), "muted")

    def rows(self, now_s: float, figures: Figures, marked: int | None = None) -> list[Row]:
        """The lines at one moment of wall time; the sparks of the chart `marked` carry a mark.

        Of how many a sum is, where not of all, stands over the oldest of its spark.
        """
        newest = math.floor(now_s / self.grid.column_s)
        texts = figures.at(now_s)
        sparks: list[tuple[Piece, ...]] = []
        for curve, series in zip(self._curves, self._series, strict=True):
            values = series.values(newest, now_s)
            top = 1.0 if curve.text is ratio else nice(most(values))
            chosen = CHART_OF[curve.key] == marked
            figure, _, of = texts[curve.key].partition(" ")
            over = cut(f"{of} " if of else "", len(values))
            sparks.append(
                (
                    (self._mark if chosen else " ", "focus"),
                    (left(curve.word, self._word), "focus" if chosen else "text"),
                    (f" {right(figure, 5)} {over}{self._pad}", "text"),
                    (spark([value / top for value in values])[len(over) :], curve.tone),
                )
            )
        across = self._across
        lines = [
            tuple(piece for pieces in sparks[at : at + across] for piece in pieces)
            for at in range(0, len(sparks), across)
        ]
        if self._lane is not None:
            stack = [self._name, *self._lane.pieces(now_s)]
            lines.append(tuple(stack * min(across, len(self._curves))))
        return [*lines, *self._ago]

    def at(self, x: int, y: int) -> int | None:
        """The chart (its place in `CHARTS`) at a cell of the body."""
        width = self._word + _BESIDE + len(self._pad) + self.grid.columns
        place = y * self._across + min(self._across - 1, x // width)
        return CHART_OF[self._curves[place].key] if 0 <= place < len(self._curves) else None

"""One-line sparks, for a pane of few lines."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Final

from gpumon.readings.format import left, ratio, right
from gpumon.readings.history import History
from gpumon.tui.charts.curves import ONE_LINE, SPARKS, most, nice
from gpumon.tui.charts.raster import spark
from gpumon.tui.charts.series import Series, column_seconds
from gpumon.tui.line import Piece, Row

_WIDTH: Final = 38
"""Least cells of one spark with its label, where there are several lines."""
_BESIDE: Final = 8
"""Cells of the value and of the blanks around it."""


class Sparks:
    """As many sparks as fit into `height` lines of `width` cells; those of `empty` keys come last."""

    def __init__(
        self, history: History, width: int, height: int, interval_s: float, empty: Collection[str] = ()
    ) -> None:
        curves = sorted(SPARKS if height > 1 else ONE_LINE, key=lambda curve: curve.key in empty)
        self._history = history
        self._across = max(1, width // _WIDTH) if height > 1 else len(ONE_LINE)
        self._word = 7 if height > 1 else 5
        self.columns = max(1, (width - 1) // self._across - self._word - _BESIDE)
        self.column_s = column_seconds(self.columns, interval_s)
        shown = min(len(curves), height * self._across)
        self.left_out = len(SPARKS) - shown
        self._curves = curves[:shown]
        self._series = [Series(history, curve.key, self.columns, self.column_s, 1) for curve in self._curves]

    def rows(self, now_s: float) -> list[Row]:
        """The lines at one moment of wall time."""
        newest = math.floor(now_s / self.column_s)
        sparks: list[tuple[Piece, Piece]] = []
        for curve, series in zip(self._curves, self._series, strict=True):
            values = series.values(newest, now_s)
            top = 1.0 if curve.text is ratio else nice(most(values))
            label = f" {left(curve.word, self._word)} {right(curve.latest(self._history, now_s), 5)} "
            sparks.append(((label, "text"), (spark([value / top for value in values]), curve.tone)))
        across = self._across
        return [
            tuple(piece for pieces in sparks[at : at + across] for piece in pieces)
            for at in range(0, len(sparks), across)
        ]

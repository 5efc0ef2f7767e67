"""One chart of a pane: its names and figures, its scale, and its curves."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from gpumon.readings.format import cells, left, right
from gpumon.tui.charts.curves import Chart, Curve, most, nice
from gpumon.tui.charts.raster import KEYS, RASTERS, area
from gpumon.tui.line import Piece
from gpumon.tui.palette import Glyphs

LABEL: Final = 28
"""Cells of name, figure and scale to the left of a chart."""
_RULER: Final = 6
_SUMMED: Final = LABEL - _RULER
"""Cells up to the end of a figure."""
_FIGURE: Final = _SUMMED - 2
"""The same without the two of the cursor and the key."""
_STEPS: Final = ((15, (5, 4)), (12, (4, 5)), (8, (4, 2)), (6, (2,)))
"""Height from which a scale may have so many steps; the first number that divides the height is taken."""

Values = Mapping[str, list[float]]
"""The buckets of each series, oldest first."""


class Plot:
    """One chart. Finished columns are drawn once per bucket; in between only the newest one is."""

    def __init__(self, chart: Chart, glyphs: Glyphs) -> None:
        self.chart = chart
        self._glyphs = glyphs
        self._live = RASTERS[glyphs].live
        self._top = 0.0
        self._drawn: tuple[int, int, float] = (-1, 0, 0.0)
        self._past: list[list[Piece]] = []
        self._past_most = 0.0

    def lines(self, values: Values, height: int, newest: int) -> list[list[Piece]]:
        """Scale and curves, from the top down."""
        curves = [values[curve.key] for curve in self.chart.curves]
        past, now = [of[: -self._live] for of in curves], [of[-self._live :] for of in curves]
        if newest != self._drawn[0]:
            self._past_most = self._highest(past)
        highest = max(self._past_most, self._highest(now))
        top = self.chart.full or self._scale(highest)
        if self._drawn != (newest, height, top):
            self._drawn = (newest, height, top)
            self._past = self._area(past, top, height)
        ruler = self._ruler(top, height) if self.chart.full or highest else {}
        lines = []
        for at, (old, new) in enumerate(zip(self._past, self._area(now, top, height), strict=True)):
            tick = f"{ruler[at]:>5}┤" if at in ruler else "┤".rjust(_RULER) if at == 0 else "│".rjust(_RULER)
            lines.append([(tick, "muted"), *old, *new])
        return lines

    def _ruler(self, top: float, height: int) -> dict[int, str]:
        """Line -> value of its upper edge."""
        options = next((steps for least, steps in _STEPS if height >= least), (1,))
        steps = next((steps for steps in options if height % steps == 0), options[0])
        return {
            height - round(height * step / steps): self.chart.scale(top * step / steps) for step in range(1, steps + 1)
        }

    def _area(self, curves: list[list[float]], top: float, height: int) -> list[list[Piece]]:
        tones = [curve.tone for curve in self.chart.curves]
        layers = [([value / top for value in of], tone) for of, tone in zip(self._stacked(curves), tones, strict=True)]
        return area(layers, height, self._glyphs)

    def _stacked(self, curves: list[list[float]]) -> list[list[float]]:
        if not self.chart.stacked:
            return curves
        return [curves[0], [_plus(a, b) for a, b in zip(*curves, strict=True)]]

    def _highest(self, curves: list[list[float]]) -> float:
        return 0.0 if self.chart.full else max(map(most, self._stacked(curves)))

    def _scale(self, highest: float) -> float:
        """The scale grows as it must and shrinks late, so that it seldom moves."""
        if highest > self._top or nice(highest) < self._top / 2.0:
            self._top = nice(highest)
        return self._top or 1.0


def labels(
    chart: Chart, texts: Mapping[str, str], height: int, width: int, glyphs: Glyphs, *, marked: bool
) -> list[list[Piece]]:
    """Names and figures of a chart in `width` cells and `height` lines, from the top down."""
    lines: list[list[Piece]] = []
    for at, curve in enumerate(chart.curves[::-1][:height]):
        cursor = mark(glyphs) if marked and at == 0 else " "
        key = KEYS[glyphs][len(chart.curves) - 1 - at]
        lines.append([(cursor, "focus"), (key, curve.tone), *named(curve, texts[curve.key], width - 2, marked=marked)])
    return lines + [[(" " * width, "text")]] * (height - len(lines))


def named(curve: Curve, figure: str, width: int, *, marked: bool = False) -> list[Piece]:
    """A name and a figure, in `width` cells: one of more than 5 cells takes the place of the longer name."""
    if cells(figure) > 5:
        if cells(figure) + cells(curve.word) > _FIGURE - 2:
            figure = figure.replace(" of ", " ")
        room = _FIGURE - 1 - cells(figure)
        return [
            (f" {left(curve.word, max(0, room))}", "focus" if marked else "text"),
            (f"{figure}{' ' * (width - _FIGURE)}", "text"),
        ]
    return [
        (f" {left(curve.name, 13)}", "focus" if marked else "text"),
        (f" {right(figure, 5)}{' ' * (width - _FIGURE)}", "text"),
    ]


def mark(glyphs: Glyphs) -> str:
    """What stands before the chosen chart."""
    return ">" if glyphs == "ascii" else "▸"


def summary(curve: Curve, values: Sequence[float], width: int, when: Callable[[int], str]) -> list[list[Piece]]:
    """Lowest, mean and highest of what is drawn, a line each, and when the highest was: `when` of its place.

    Each column is a mean: what is read now may be above the highest of them.
    """
    known = [value for value in values if value == value]
    found = (min(known), sum(known) / len(known), max(known)) if known else (math.nan,) * 3
    at = f"at {when(values.index(found[2]))}" if known else ""
    words = ("lowest column", "mean", "highest column")
    said = [f"  {left(word, 14)} {right(curve.said(value), 5)}" for word, value in zip(words, found, strict=True)]
    return [[(left(text, width), "text")] for text in (*said, right(at, _SUMMED))]


def _plus(one: float, other: float) -> float:
    return one if other != other else other if one != one else one + other

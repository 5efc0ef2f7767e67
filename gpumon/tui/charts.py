"""The charts: which series, on which scale, under one time axis; as curves where there is room, else as sparks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from gpumon.readings.format import amount, count, left, period, ratio, right, round_number, watts, whole
from gpumon.readings.history import History
from gpumon.readings.missing import NOT_EXPOSED, Reading
from gpumon.tui.line import Piece, Row
from gpumon.tui.raster import area, nice, spark
from gpumon.tui.series import Series, column_seconds


class Curve(NamedTuple):
    """One series: its names on a chart and on a spark, its key in the history, tone and number format."""

    name: str
    word: str
    key: str
    tone: str
    text: Callable[[Reading], str]


class Chart(NamedTuple):
    """One or two curves on one scale; the first is in front, or below where they are stacked."""

    curves: tuple[Curve, ...]
    unit: str = ""
    full: float = 0.0
    """The top of the scale; 0: a round number above the highest value."""
    stacked: bool = False


CHARTS: Final = (
    Chart((Curve("SM active", "sm", "sm", "sm", ratio), Curve("busy", "busy", "busy", "busy", ratio)), "%", 1.0),
    Chart((Curve("MFU", "mfu", "mfu", "mfu", ratio),), "%", 1.0),
    Chart((Curve("MBU", "mbu", "mbu", "mbu", ratio),), "%", 1.0),
    Chart((Curve("decode tok/s", "decode", "decode", "tokens", count),)),
    Chart((Curve("prefill tok/s", "prefill", "prefill", "tokens", count),)),
    Chart(
        (Curve("running", "run", "running", "accent", whole), Curve("waiting", "wait", "waiting", "warn", whole)),
        stacked=True,
    ),
    Chart((Curve("memory B/s", "B/s", "bandwidth", "mbu", amount),)),
    Chart((Curve("power", "power", "power", "muted", watts),), "W"),
)
"""Most telling first: a small screen shows the first ones."""

ONE_LINE: Final = ("busy", "mfu", "mbu", "decode")
"""Keys of the sparks where there is a single line."""
_BRIEF: Final = {"decode": "tok/s"}
SPARKS: Final = tuple(curve for chart in CHARTS for curve in (reversed(chart.curves) if chart.full else chart.curves))
LEAST_CHART: Final = 3
"""Lines that a chart needs at least, unless all are asked for."""
CHARTS_FROM: Final = 10
"""Lines from which there are charts and not sparks."""
_LABEL: Final = 28
"""Cells of name, value and scale to the left of a chart."""
_SPARK_LABEL: Final = 8
"""Beside the word: the value and blanks."""
_TWO_COLUMNS: Final = 160
"""Cells from which the charts stand in two columns."""
_TICKS_S: Final = (60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 14400.0, 43200.0, 86400.0)


class Charts:
    """The charts for one size of the pane. Holds only what it last read of the history, and the finished columns."""

    def __init__(
        self, history: History, width: int, height: int, interval_s: float, all_of_them: bool, *, blocks: bool
    ) -> None:
        self._as_sparks = height < CHARTS_FROM
        self._sparks = tuple(curve for curve in SPARKS if height > 1 or curve.key in ONE_LINE)
        self._word = 7 if height > 1 else 5
        if self._as_sparks:
            self._columns = max(1, width // 38) if height > 1 else len(self._sparks)
            self._cells = (width - 1) // self._columns - self._word - _SPARK_LABEL
            lines = height
        else:
            self._columns = 2 if width >= _TWO_COLUMNS else 1
            self._cells = (width - 1) // self._columns - _LABEL - 1
            lines = min(-(-len(CHARTS) // self._columns), (height - 1) // (LEAST_CHART if not all_of_them else 2))
        self._heights = [(height - 1) // lines + (at < (height - 1) % lines) for at in range(lines)]
        self._shown = lines * self._columns
        drawn = [curve for chart in CHARTS[: self._shown] for curve in chart.curves]
        curves = self._sparks[: self._shown] if self._as_sparks else drawn
        self.column_s = column_seconds(self._cells, interval_s)
        self._step = 1 if blocks or self._as_sparks else 2
        self._series = {
            curve.key: Series(history, curve.key, self._cells * self._step, self.column_s / self._step, self._step)
            for curve in curves
        }
        self._areas = [_Area(chart, blocks=blocks) for chart in CHARTS]

    @property
    def left_out(self) -> int:
        """Charts or sparks that found no place."""
        return max(0, len(SPARKS if self._as_sparks else CHARTS) - self._shown)

    @property
    def span(self) -> str:
        """How far back the charts reach, and what a column is."""
        return f"last {period(self._cells * self.column_s)} · {period(self.column_s)} a column"

    def rows(self, now_s: float) -> list[Row]:
        """The lines at one moment of wall time."""
        newest = math.floor(now_s / self.column_s) * self._step + self._step - 1
        values = {key: series.values(newest) for key, series in self._series.items()}
        return self._spark_rows(values) if self._as_sparks else self._chart_rows(values, newest)

    def _spark_rows(self, values: dict[str, list[float]]) -> list[Row]:
        rows: list[Row] = []
        for first in range(0, min(self._shown, len(self._sparks)), self._columns):
            row: list[Piece] = []
            for curve in self._sparks[first : first + self._columns]:
                of = values[curve.key]
                top = 1.0 if curve.text is ratio else nice(_most(of))
                row.append(
                    (
                        f" {left(curve.word if self._word > 5 else _BRIEF.get(curve.word, curve.word), self._word)} {right(_latest(curve, of, 1), 5)} ",
                        "text",
                    )
                )
                row.append((spark([value / top for value in of]), curve.tone))
            rows.append(tuple(row))
        return rows

    def _chart_rows(self, values: dict[str, list[float]], newest: int) -> list[Row]:
        rows: list[Row] = []
        for at, height in enumerate(self._heights):
            row = range(at * self._columns, min(len(CHARTS), (at + 1) * self._columns))
            charts = [self._areas[number].lines(values, height, self._step, newest) for number in row]
            rows += [tuple(piece for lines in charts for piece in lines[line]) for line in range(height)]
        return [*rows, self._axis()]

    def _axis(self) -> Row:
        tick_s = next((tick for tick in _TICKS_S if tick / self.column_s >= 14), _TICKS_S[-1])
        line = ["─"] * self._cells
        for ticks in range(1, int(self._cells * self.column_s / tick_s) + 1):
            label = f"-{period(ticks * tick_s)}"
            at = self._cells - round(ticks * tick_s / self.column_s)
            line[at : at + len(label)] = label
        line[-3:] = "now"
        block: list[Piece] = [(" " * (_LABEL - 1) + "└", "border"), ("".join(line) + " ", "border")]
        return tuple(block * self._columns)


class _Area:
    """One chart. Finished columns are drawn once per bucket; in between only the newest one is."""

    def __init__(self, chart: Chart, *, blocks: bool) -> None:
        self._chart = chart
        self._blocks = blocks
        self._top = 0.0
        self._drawn: tuple[int, int, float] = (-1, 0, 0.0)
        self._past: list[list[Piece]] = []
        self._past_most = 0.0

    def lines(self, values: dict[str, list[float]], height: int, step: int, newest: int) -> list[list[Piece]]:
        """Labels, scale and curves, from the top down."""
        chart = self._chart
        curves = [values[curve.key] for curve in chart.curves]
        if newest != self._drawn[0]:
            self._past_most = self._highest([of[:-step] for of in curves])
        top = chart.full or self._scale(max(self._past_most, self._highest([of[-step:] for of in curves])))
        if self._drawn != (newest, height, top):
            self._drawn = (newest, height, top)
            self._past = self._area([of[:-step] for of in curves], top, height)
        new = self._area([of[-step:] for of in curves], top, height)
        labels = self._labels(curves, top, height, step)
        return [[*label, *old, *last, (" ", "text")] for label, old, last in zip(labels, self._past, new, strict=True)]

    def _area(self, curves: list[list[float]], top: float, height: int) -> list[list[Piece]]:
        of = self._stacked(curves)
        tones = [curve.tone for curve in self._chart.curves]
        layers = [([value / top for value in values], tone) for values, tone in zip(of, tones, strict=True)]
        return area(layers, height, blocks=self._blocks)

    def _stacked(self, curves: list[list[float]]) -> list[list[float]]:
        if not self._chart.stacked:
            return curves
        return [curves[0], [_plus(a, b) for a, b in zip(*curves, strict=True)]]

    def _highest(self, curves: list[list[float]]) -> float:
        return 0.0 if self._chart.full else max(map(_most, self._stacked(curves)))

    def _scale(self, most: float) -> float:
        """The scale grows as it must and shrinks late, so that it seldom moves."""
        if most > self._top or nice(most) < self._top / 2.0:
            self._top = nice(most)
        return self._top or 1.0

    def _labels(self, curves: list[list[float]], top: float, height: int, step: int) -> list[list[Piece]]:
        named = list(zip(self._chart.curves, curves, strict=True))[::-1]
        scale = "100%" if self._chart.full else round_number(top) + self._chart.unit
        lines: list[list[Piece]] = []
        for at in range(height):
            ruler: Piece = (f"{scale:>5}┤" if at == 0 else "     │", "muted")
            if at >= len(named):
                lines.append([(" " * (_LABEL - 6), "text"), ruler])
                continue
            curve, of = named[at]
            words = f" {left(curve.name, 13)} {right(_latest(curve, of, step), 5)}"
            lines.append([(" ", "text"), ("▒" if curve.tone == "busy" else "█", curve.tone), (words, "text"), ruler])
        return lines


def _latest(curve: Curve, values: list[float], step: int) -> str:
    """The newest value there is in the newest cell and the one before, as text."""
    value = next((value for value in reversed(values[-2 * step :]) if value == value), None)
    return curve.text(NOT_EXPOSED if value is None else value)


def _most(values: Iterable[float]) -> float:
    return max((value for value in values if value == value), default=0.0)


def _plus(one: float, other: float) -> float:
    return one if other != other else other if one != one else one + other

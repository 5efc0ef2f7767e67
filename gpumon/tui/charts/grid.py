"""Charts side by side over one time axis: areas under a line with their names and figures, or sparks of one line."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from gpumon.readings.format import cells, cut, left, right
from gpumon.readings.history import History
from gpumon.readings.snapshot import Event
from gpumon.tui.charts.axis import NOW, ago, o_clock
from gpumon.tui.charts.curves import Chart, Curve, Figures, most, nice
from gpumon.tui.charts.raster import KEYS, RASTERS, area, spark
from gpumon.tui.charts.series import Series, grid
from gpumon.tui.charts.tints import graded, labelled, place_of, ruled, runs_of, tinted, tone_of_level
from gpumon.tui.levels import HOT, Level
from gpumon.tui.line import Piece, Row, cells_of
from gpumon.tui.palette import Glyphs
from gpumon.tui.triage_words import event_mark, most_urgent

_LEAST_WIDTH: Final = 38
"""Cells of one chart, at least, where there are several lines."""
_LEAST_SPARK: Final = 19
"""The same of a spark in a line that is alone."""
_LEAST_AREA: Final = 2
"""Lines of a chart from which it is an area under its legend; with fewer it would be a legend alone, and is a spark."""
_MOST_ACROSS: Final = 4
_WORD: Final = 8
_SHORT_WORD: Final = 5
"""Cells of the name before a spark."""
_FIGURE: Final = 5
_EXTREMES: Final = 100
"""Cells of one chart from which it says what was lowest and highest, and when."""

Values = Mapping[str, list[float]]
"""The buckets of each series, oldest first."""
Texts = Mapping[str, str]
"""The figure of each series as text."""
Levels = Mapping[str, Level]
"""The levels of figures, by their keys in `levels.LEVELS`."""


class Style(NamedTuple):
    """How charts are drawn: how far they go back, with what characters, and by which levels they are coloured."""

    span_s: float
    glyphs: Glyphs
    levels: Levels


class Charts:
    """As many of `charts` as fit into `height` lines of `width` cells, and the time axis with what happened.

    Areas have `least` lines each at least, their names included; `least` of 1 are sparks, and so are areas that have no
    room for more. `cursor`: the one that must
    be in view; `first`: how many were left out before it so far. `across`: so many side by side; 0: as many as fit.
    """

    def __init__(
        self,
        history: History,
        charts: Sequence[Chart],
        width: int,
        height: int,
        style: Style,
        *,
        least: int = 3,
        across: int = 0,
        cursor: int = 0,
        first: int = 0,
        axis: bool = True,
    ) -> None:
        self._history = history
        self._levels = style.levels
        self._glyphs = glyphs = style.glyphs
        self._sparks = least == 1 or height - (axis and height > 1) < _LEAST_AREA
        narrow = self._sparks and height == 1
        fits = max(1, width // (_LEAST_SPARK if narrow else _LEAST_WIDTH))
        self._across = across or min(fits, _MOST_ACROSS, max(1, len(charts)))
        self._word = _SHORT_WORD if narrow else _WORD
        needed = -(-len(charts) // self._across)
        self._has_axis = axis and height > 1 and (height > needed or not self._sparks)
        height -= self._has_axis
        if self._sparks:
            live = 1
            before = 3 + self._word + _FIGURE
            down = max(1, min(needed, height))
            self._heights = [1] * down
        else:
            live = RASTERS[glyphs].live
            before = 0
            down = max(1, min(needed, height // least))
            self._heights = _shares(height, down)
        row = cursor // self._across
        first_row = min(first // self._across, needed - down)
        first_row = max(row - down + 1, min(first_row, row))
        self.first = max(0, first_row * self._across)
        self.shown = charts[self.first : self.first + down * self._across]
        self.left_out = len(charts) - len(self.shown)
        self._room = width // self._across
        self._before = before
        self.grid = grid(max(1, self._room - before - 1), style.span_s)
        self._pad = self._room - 1 - before - self.grid.columns
        self._plots = [_Plot(chart, glyphs, _level_of(chart, style.levels)) for chart in self.shown]
        self._live = live
        size = self.grid.columns * live
        bucket_s = self.grid.column_s / live
        self._series = {
            curve.key: Series(history, curve.key, size, bucket_s, live)
            for chart in self.shown
            for curve in chart.curves
        }

    def _word_of(self, curve: Curve) -> str:
        """The short name of a curve: whole, or its first word if there is no room for more."""
        if cells(curve.word) <= self._word:
            return curve.word
        return curve.word.partition(" ")[0]

    def rows(self, now_s: float, figures: Figures, marked: int | None = None, edge: str = NOW) -> list[Row]:
        """The lines at one moment of wall time, the axis last, which calls that moment `edge`; the chart at place
        `marked` of all carries a mark."""
        newest = math.floor(now_s / self.grid.column_s) * self._live + self._live - 1
        values = {key: series.values(newest, now_s) for key, series in self._series.items()}
        figures.at(now_s, [curve for chart in self.shown for curve in chart.curves])
        rows: list[Row] = []
        for at, height in enumerate(self._heights):
            lines: list[list[Piece]] = [[] for _ in range(height)]
            for place in range(at * self._across, min((at + 1) * self._across, len(self.shown))):
                chosen = self.first + place == marked
                if self._sparks:
                    lines[0] += self._spark(self.shown[place].curves[0], values, figures, chosen=chosen)
                    continue
                plot = self._plots[place]
                plot.mean = figures.means.get(plot.chart.curves[0].key)
                lines[0] += self._legend(plot, values, figures, newest, marked=chosen)
                for line, drawn in zip(lines[1:], plot.lines(values, height - 1, newest), strict=True):
                    line += [(" " * self._pad, "text"), *drawn, (" ", "text")]
            rows += [tuple(line) for line in lines]
        if self._has_axis:
            return [*rows, self._axis(now_s, edge)]
        return rows

    def at(self, x: int, y: int) -> int | None:
        """The place of the chart at a cell."""
        for row, height in enumerate(self._heights):
            if 0 <= y < height:
                place = row * self._across + min(self._across - 1, x // self._room)
                if place < len(self.shown):
                    return self.first + place
                return None
            y -= height
        return None

    def _legend(self, plot: _Plot, values: Values, figures: Figures, newest: int, *, marked: bool) -> list[Piece]:
        """Names and figures on the left, the scale on the right, between them what else has room."""
        chart = plot.chart
        extremes = self._room >= _EXTREMES and len(chart.curves) == 1
        said = [self._said(curve, figures) for curve in chart.curves]
        made_of = (plot.scale(values, newest), marked, said, figures.note)
        if made_of == plot.made_of and not extremes:
            return plot.legend
        plot.made_of = made_of
        pieces = self._names(chart, said, marked=marked)
        scale = f"0-{chart.scale(plot.top)}"
        room = self._room - 1 - cells_of(pieces)
        if room < cells(scale):
            scale = ""
        room -= cells(scale)
        between = _note_of(plot, figures)
        if extremes:
            between = self._extremes(chart.curves[0], values[chart.curves[0].key], newest) or between
        if cells(between) + 2 > room:
            between = ""
        pieces += [(between, "hint"), (" " * max(0, room - cells(between)), "text"), (scale, "hint"), (" ", "text")]
        plot.legend = _fitting(pieces, self._room)
        return plot.legend

    def _names(self, chart: Chart, said: Sequence[Piece], *, marked: bool) -> list[Piece]:
        """Keys, names and figures of the curves, from the top down."""
        long = sum(cells(curve.name) + cells(text) + 5 for curve, (text, _) in zip(chart.curves, said, strict=True))
        tone_of_names = "focus" if marked else "muted"
        pieces: list[Piece] = [(mark(self._glyphs), "focus") if marked else (" ", "text")]
        for place in reversed(range(len(chart.curves))):
            curve = chart.curves[place]
            name = curve.name if long < self._room else curve.word
            pieces += [(KEYS[self._glyphs][place], curve.tone), (f" {name} ", tone_of_names)]
            pieces += [said[place], ("  ", "text")]
        return pieces

    def _said(self, curve: Curve, figures: Figures) -> Piece:
        """The newest figure of a curve in the tone of its level, with a mark if it is not calm."""
        text = figures.texts[curve.key]
        level = self._levels.get(curve.level)
        if level is None or not figures.values[curve.key] >= level.warm:
            return text, "text"
        tone = tone_of_level(figures.values[curve.key], level, "text")
        return f"{text}!", HOT if tone == "hot" else tone

    def _extremes(self, curve: Curve, values: Sequence[float], newest: int) -> str:
        """Lowest, mean and highest of what is drawn; each column is a mean, so that a reading may be above."""
        known = []
        for value in values:
            if value == value:
                known.append(value)
        if not known:
            return ""
        bucket_s = self.grid.column_s / self._live
        when = o_clock((newest + 1 - len(values) + values.index(max(known))) * bucket_s, bucket_s)
        mean = curve.said(sum(known) / len(known))
        return f"lowest {curve.said(min(known))} · mean {mean} · highest {curve.said(max(known))} at {when}"

    def _spark(self, curve: Curve, values: Values, figures: Figures, *, chosen: bool) -> list[Piece]:
        """Name, figure and curve; of how many a sum is, where not of all, stands over the oldest of it."""
        known = values[curve.key]
        if curve.text(1.0) == "100%":
            top = 1.0
        else:
            top = nice(most(known))
        text, tone = self._said(curve, figures)
        figure, _, of = text.partition(" ")
        is_high = figure.endswith("!")
        figure = right(figure.rstrip("!"), _FIGURE) + ("!" if is_high else " ")
        over = cut(f"{of} " if of else "", self.grid.columns)
        drawn = spark([value / top for value in known])[len(over) :]
        level = self._levels.get(curve.level)
        if level is not None:
            runs = runs_of(known[len(over) :], 1, level, curve.tone)
        else:
            runs = [(len(drawn), curve.tone)]
        return [
            (mark(self._glyphs), "focus") if chosen else (" ", "text"),
            (left(self._word_of(curve), self._word), "focus" if chosen else "muted"),
            (f" {figure}", tone),
            (over + " " * self._pad, "text"),
            *tinted(drawn, runs),
            (" ", "text"),
        ]

    def _axis(self, now_s: float, edge: str) -> Row:
        """How long ago under each column of charts, and a glyph where something happened."""
        pieces = ago(self.grid, edge)
        happened: dict[int, list[Event]] = {}
        columns, column_s = self.grid
        newest = math.floor(now_s / column_s)
        for event in self._history.events((newest + 1 - columns) * column_s, now_s):
            happened.setdefault(columns - 1 - newest + math.floor(event.wall_s / column_s), []).append(event)
        if happened:
            chars = []
            for text, tone in pieces:
                for character in text:
                    chars.append((character, tone))
            for column, events in happened.items():
                free = [at for at in range(columns) if chars[at][1] == "border"]
                if 0 <= column < columns and free:
                    at = min(free, key=lambda place: abs(place - column))
                    chars[at] = event_mark(most_urgent(events), self._glyphs)
            pieces = _joined(chars)
        stack = [(" " * (self._before + self._pad), "text"), *pieces, (" ", "text")]
        return tuple(stack * min(self._across, len(self.shown)))


class _Plot:
    """One chart. Finished columns are drawn once per bucket; in between only the newest one is."""

    def __init__(self, chart: Chart, glyphs: Glyphs, level: Level | None) -> None:
        self.chart = chart
        self._glyphs = glyphs
        self._level = level
        self._live = RASTERS[glyphs].live
        self.top = chart.full
        """Top of the scale."""
        self.made_of: tuple[object, ...] = ()
        self.legend: list[Piece] = []
        """Its legend, and what that was made of."""
        self.mean: float | None = None
        """The mean since the engines started, where it stands in for the past."""
        self._newest = -1
        self._past_most = 0.0
        self._drawn: tuple[int, int, float, str] = (-1, 0, 0.0, "")
        self._past: list[list[Piece]] = []

    def scale(self, values: Values, newest: int) -> float:
        """The top of the scale at bucket `newest`. It grows as it must and shrinks late, so that it seldom moves."""
        if not self.chart.full:
            curves = self._stacked([values[curve.key] for curve in self.chart.curves])
            if newest != self._newest:
                self._past_most = max(most(of[: -self._live]) for of in curves)
                self._newest = newest
            highest = max(self._past_most, self.mean or 0.0, *(most(of[-self._live :]) for of in curves))
            if highest > self.top or nice(highest) < self.top / 2.0:
                self.top = nice(highest)
        self.top = self.top or 1.0
        return self.top

    def lines(self, values: Values, height: int, newest: int) -> list[list[Piece]]:
        """The curves, from the top down."""
        curves = [values[curve.key] for curve in self.chart.curves]
        label = self._label()
        drawn = (newest, height, self.top, label)
        if self._drawn != drawn:
            self._drawn = drawn
            self._past = self._area([of[: -self._live] for of in curves], self.top, height, label)
        now = self._area([of[-self._live :] for of in curves], self.top, height)
        return [[*old, *new] for old, new in zip(self._past, now, strict=True)]

    def _label(self) -> str:
        """Name of a mean since the start; empty without one."""
        if self.mean is None:
            return ""
        return f"mean since start {self.chart.curves[0].said(self.mean)}"

    @property
    def has_rule(self) -> bool:
        """Whether there is a line where the curve is no longer calm: one above the scale is not drawn."""
        return self._level is not None and self._level.warm <= self.top

    def rule_words(self) -> str:
        """The threshold in the legend."""
        assert self._level is not None
        glyph = "-" if self._glyphs == "ascii" else "┄"
        return f"{glyph} {self.chart.curves[0].said(self._level.warm)}"

    def _area(self, curves: list[list[float]], top: float, height: int, label: str = "") -> list[list[Piece]]:
        """The curves as lines, each darker than the one above it, in the colours of their levels, before the lines of
        the mean since the start, which `label` names, and of the threshold."""
        tones = [curve.tone for curve in self.chart.curves]
        layers = []
        for of, tone in zip(self._stacked(curves), tones, strict=True):
            layers.append(([value / top for value in of], tone))
        lines = area(layers, height, self._glyphs)
        if self._level is not None:
            runs = runs_of(curves[0], self._live, self._level, tones[0])
            lines = [tinted("".join(text for text, _ in line), runs) for line in lines]
        lines = graded(lines)
        if self.mean is not None and label:
            lines = labelled(lines, place_of(self.mean / top, height, self._glyphs), label)
        if self._level is None:
            return lines
        return ruled(lines, place_of(self._level.warm / top, height, self._glyphs))

    def _stacked(self, curves: list[list[float]]) -> list[list[float]]:
        if not self.chart.stacked or len(curves) < 2:
            return curves
        return [curves[0], [_plus(a, b) for a, b in zip(*curves, strict=True)]]


def _shares(lines: int, rows: int) -> list[int]:
    """Lines of each row of charts; the first rows have what is left over."""
    return [lines // rows + (row < lines % rows) for row in range(rows)]


def _level_of(chart: Chart, levels: Levels) -> Level | None:
    """The levels by which a chart is coloured; None for two curves, whose colours tell them apart."""
    if len(chart.curves) > 1:
        return None
    return levels.get(chart.curves[0].level)


def _note_of(plot: _Plot, figures: Figures) -> str:
    """The threshold of a chart, else the basis of its means."""
    if plot.has_rule:
        return plot.rule_words()
    for curve in plot.chart.curves:
        if curve.key in figures.note:
            return figures.note[curve.key]
    return ""


def mark(glyphs: Glyphs) -> str:
    """The mark before the chosen chart."""
    return ">" if glyphs == "ascii" else "▸"


def _plus(one: float, other: float) -> float:
    if other != other:
        return one
    if one != one:
        return other
    return one + other


def _joined(chars: Sequence[tuple[str, str]]) -> list[Piece]:
    """Characters of one tone as one piece."""
    pieces: list[Piece] = []
    for character, tone in chars:
        if pieces and pieces[-1][1] == tone:
            pieces[-1] = (pieces[-1][0] + character, tone)
        else:
            pieces.append((character, tone))
    return pieces


def _fitting(pieces: Sequence[Piece], width: int) -> list[Piece]:
    """The pieces in exactly `width` cells."""
    found: list[Piece] = []
    for text, tone in pieces:
        if (room := width - cells_of(found)) > 0 and text:
            found.append((text if cells(text) <= room else left(text, room), tone))
    return [*found, (" " * (width - cells_of(found)), "text")]

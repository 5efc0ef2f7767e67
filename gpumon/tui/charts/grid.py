"""Charts side by side over one time axis: areas under a line with their names and figures, or sparks of one line."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from gpumon.readings.format import cells, cut, left, ratio, right
from gpumon.readings.history import History
from gpumon.readings.snapshot import Event
from gpumon.tui.charts.axis import NOW, clock_labels, o_clock, time_labels
from gpumon.tui.charts.curves import Chart, ChartCurve, CurveTexts, highest_of, round_up
from gpumon.tui.charts.raster import CURVE_KEYS, RASTERS, area, height_steps, spark
from gpumon.tui.charts.series import ChartSeries, make_grid
from gpumon.tui.charts.tints import (
    HOT_CURVE,
    in_tones,
    line_place,
    shade_lines,
    tone_of_level,
    tone_runs,
    with_label,
    with_rule,
)
from gpumon.tui.levels import HOT, LevelBounds
from gpumon.tui.line import Piece, Row, cells_of, join_tones
from gpumon.tui.palette import Glyphs
from gpumon.tui.triage_words import event_mark, most_urgent

_LEAST_WIDTH: Final = 38
"""Cells of one chart, at least, where there are several lines."""
_LEAST_SPARK_WIDTH: Final = 33
"""Cells of one spark, at least, where there is one line alone."""
_LEGEND_AND_AREA_LINES: Final = 2
"""Lines of a chart from which it is an area under its legend; with fewer it would be a legend alone, and is a spark."""
_MOST_ACROSS: Final = 4
"""Charts side by side, at most."""
_WORD_CELLS: Final = 8
"""Cells of the name before a spark."""
_FIGURE_CELLS: Final = 5
"""Cells of the figure before a spark, without its mark."""
_SPARK_GAPS: Final = 3
"""Cells before a spark beside its name and figure: the marker, a blank, and the mark of a level."""
_EXTREMES_WIDTH: Final = 100
"""Cells of one chart from which it says what was lowest and highest, and when."""
_BESIDE_NAME: Final = 5
"""Cells of a curve in the legend beside its name and its figure: its key, a blank on each side of the name, and two
behind the figure."""

_Values = Mapping[str, list[float]]
"""The buckets of each series, oldest first."""
LevelsByCurve = Mapping[str, LevelBounds]
"""The levels of figures, by their keys in `levels.LEVEL_BOUNDS`."""


class Style(msgspec.Struct, frozen=True):
    """How charts are drawn: how far they go back, with what characters, and by which levels they are coloured."""

    span_s: float
    glyphs: Glyphs
    levels: LevelsByCurve


class _Plan(msgspec.Struct, frozen=True):
    """How charts divide a pane among them."""

    sparks: bool
    """Whether each is a spark of one line, not an area."""
    across: int
    """Charts side by side."""
    heights: list[int]
    """Lines of each row of charts."""
    axis: bool
    """Whether the last line is the time axis."""


def _plan_charts(number: int, width: int, height: int, least: int, across: int, *, axis: bool) -> _Plan:
    """Divide `height` lines of `width` cells among a number of charts of at least `least` lines each. `across`: so many
    side by side; 0: as many as fit. `axis`: whether there may be a time axis."""
    may_have_axis = axis and height > 1
    sparks = least == 1 or height - may_have_axis < _LEGEND_AND_AREA_LINES
    least_width = _LEAST_SPARK_WIDTH if sparks and height == 1 else _LEAST_WIDTH
    if not across:
        across = min(max(1, width // least_width), _MOST_ACROSS, max(1, number))
        if axis:  # without one they stand below others, in lines that are counted by their widest form
            across = _even_across(number, across)
    rows_needed = math.ceil(number / across)
    has_axis = may_have_axis and (height > rows_needed or not sparks)  # sparks come before the axis
    height -= has_axis
    if sparks:
        heights = [1] * max(1, min(rows_needed, height))
    else:
        heights = _divide_lines(height, max(1, min(rows_needed, height // least)))
    return _Plan(sparks=sparks, across=across, heights=heights, axis=has_axis)


def _even_across(number: int, fits: int) -> int:
    """Charts side by side: as many as fit, or fewer where that leaves no place empty."""
    for across in range(fits, fits // 2, -1):
        if number % across == 0:
            return across
    return fits


class Charts:
    """As many of `charts` as fit into `height` lines of `width` cells, and the time axis with what happened.

    Areas have `least` lines each at least, their names included; with `least` 1 they are sparks, and so they are where
    there is no room for more. `cursor`: place of the chart that must be in view; `first`: how many were left out before
    the first so far. `across`: so many side by side; 0: as many as fit. `axis`: whether there may be a time axis.
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
        self._glyphs = style.glyphs
        plan = _plan_charts(len(charts), width, height, least, across, axis=axis)
        self._sparks = plan.sparks
        self._across = plan.across
        self._has_axis = plan.axis
        self._heights = plan.heights
        self.first = _first_in_view(plan, len(charts), cursor=cursor, first=first)
        """Number of charts that are left out before the first in view."""
        self.shown = charts[self.first : self.first + len(plan.heights) * plan.across]
        """The charts in view."""
        self.left_out = len(charts) - len(self.shown)
        """Number of charts that are left out, before and behind those in view."""
        self._chart_cells = width // plan.across
        """Cells of one chart."""
        self._values_per_cell = 1
        """Values of a curve that one cell shows."""
        self._lead_cells = 0
        """Cells of the name and the figure before a spark; 0 for areas, which have them in their legend."""
        self._future_columns = 0
        """Columns at the right edge whose time has not come, as of the last call of `rows`."""
        self._newest_begun = 0
        """Number of the newest bucket that has begun, as of the last call of `rows`: later ones are drawn like it."""
        if plan.sparks:
            self._lead_cells = _SPARK_GAPS + _WORD_CELLS + _FIGURE_CELLS
        else:
            self._values_per_cell = RASTERS[style.glyphs].values_per_cell
        self.grid = make_grid(max(1, self._chart_cells - self._lead_cells - 1), style.span_s)
        self._blanks_before_columns = self._chart_cells - 1 - self._lead_cells - self.grid.columns
        """Blanks before the columns, which may not fill the cells of a chart."""
        changing_values = self._values_per_cell * self.grid.step  # of the columns by which charts move on
        self._plots = [
            _Plot(chart, style.glyphs, _level_of(chart, style.levels), changing_values) for chart in self.shown
        ]
        self._curves = [curve for chart in self.shown for curve in chart.curves]
        size = self.grid.columns * self._values_per_cell
        bucket_s = self.grid.column_s / self._values_per_cell
        self._series = {}
        for curve in self._curves:
            self._series[curve.key] = ChartSeries(history, curve.key, size, bucket_s, changing_values)

    def _word_of(self, curve: ChartCurve) -> str:
        """The short name of a curve: whole, or its first word if there is no room for more."""
        if cells(curve.word) <= _WORD_CELLS:
            return curve.word
        return curve.word.partition(" ")[0]

    def rows(self, now_s: float, figures: CurveTexts, marked: int | None = None, edge: str = NOW) -> list[Row]:
        """The lines at a Unix time, the axis last, which calls that moment `edge`; the chart at place `marked` of all
        carries a mark."""
        newest = (self.grid.newest(now_s) + 1) * self._values_per_cell - 1
        self._newest_begun = math.floor(now_s * self._values_per_cell / self.grid.column_s)
        self._future_columns = self._count_future_columns(now_s)
        before_history = self._future_columns * self._values_per_cell
        values = {key: series.values(newest, now_s)[before_history:] for key, series in self._series.items()}
        figures.texts_at(now_s, self._curves)
        rows: list[Row] = []
        for row, height in enumerate(self._heights):
            lines: list[list[Piece]] = [[] for _ in range(height)]
            for place in range(row * self._across, min((row + 1) * self._across, len(self.shown))):
                chosen = self.first + place == marked
                if self._sparks:
                    lines[0] += self._spark_pieces(self.shown[place].curves[0], values, figures, chosen=chosen)
                else:
                    self._draw_area(lines, self._plots[place], values, figures, newest, marked=chosen)
            rows += [tuple(line) for line in lines]
        if self._has_axis:
            return [*rows, self._axis_row(now_s, edge)]
        return rows

    def _count_future_columns(self, now_s: float) -> int:
        """Columns that are left for what comes, while the history is shorter than the charts go back: the curves begin
        at the left edge then, and grow to the right, so that nothing that was drawn moves."""
        oldest = self.grid.newest(now_s) - self.grid.columns + 1
        first_s = min(self._history.first_s, now_s)
        columns = math.floor(first_s / self.grid.column_s) - oldest
        return max(0, min(self.grid.columns - self.grid.step, columns))

    def _draw_area(
        self, lines: list[list[Piece]], plot: _Plot, values: _Values, figures: CurveTexts, newest: int, *, marked: bool
    ) -> None:
        """Add one chart to the lines of its row: its legend to the first, its curves to the others."""
        plot.mean = figures.means.get(plot.chart.curves[0].key)
        lines[0] += self._legend_pieces(plot, values, figures, newest, marked=marked)
        future_values = self._future_columns * self._values_per_cell
        curve_lines = plot.lines(values, len(lines) - 1, newest, future_values)
        for line, curve_line in zip(lines[1:], curve_lines, strict=True):
            line += [(" " * self._blanks_before_columns, "text"), *curve_line, (" ", "text")]

    def chart_at(self, x: int, y: int) -> int | None:
        """The place of the chart at a cell, among all charts; None where there is none."""
        for row, height in enumerate(self._heights):
            if 0 <= y < height:
                place = row * self._across + min(self._across - 1, x // self._chart_cells)
                if place < len(self.shown):
                    return self.first + place
                return None
            y -= height
        return None

    def _legend_pieces(
        self, plot: _Plot, values: _Values, figures: CurveTexts, newest: int, *, marked: bool
    ) -> list[Piece]:
        """The line above a chart: names and figures on the left, the scale on the right, between them what else has
        room."""
        chart = plot.chart
        has_extremes = self._chart_cells >= _EXTREMES_WIDTH and len(chart.curves) == 1
        texts = [self._text_of(curve, figures) for curve in chart.curves]
        legend_inputs = (plot.update_top(values, newest), marked, texts, figures.notes)
        if legend_inputs == plot.legend_inputs and not has_extremes:  # the inputs do not have what extremes are of
            return plot.legend
        plot.legend_inputs = legend_inputs
        pieces = self._name_pieces(chart, texts, marked=marked)
        scale = f"0-{chart.scale(plot.top)}"
        room = self._chart_cells - 1 - cells_of(pieces)
        if room < cells(scale):
            scale = ""
        room -= cells(scale)
        between = _note_between(plot, figures)
        if has_extremes:
            between = self._extremes_text(chart.curves[0], values[chart.curves[0].key], newest) or between
        if cells(between) + 2 > room:
            between = ""
        pieces += [(between, "hint"), (" " * max(0, room - cells(between)), "text"), (scale, "hint"), (" ", "text")]
        plot.legend = _cut_to_width(pieces, self._chart_cells)
        return plot.legend

    def _name_pieces(self, chart: Chart, texts: Sequence[Piece], *, marked: bool) -> list[Piece]:
        """Keys, names and figures of the curves, from the top down."""
        cells_with_names = sum(
            cells(curve.name) + cells(text) + _BESIDE_NAME for curve, (text, _) in zip(chart.curves, texts, strict=True)
        )
        has_room = cells_with_names < self._chart_cells
        tone_of_names = "focus" if marked else "muted"
        pieces = [self._marker(marked=marked)]
        for place in reversed(range(len(chart.curves))):
            curve = chart.curves[place]
            name = curve.name if has_room else curve.word
            pieces += [(CURVE_KEYS[self._glyphs][place], curve.tone), (f" {name} ", tone_of_names)]
            pieces += [texts[place], ("  ", "text")]
        return pieces

    def _marker(self, *, marked: bool) -> Piece:
        """The mark before the chosen chart, a blank before each other."""
        if not marked:
            return " ", "text"
        if self._glyphs == "ascii":
            return ">", "focus"
        return "▸", "focus"

    def _text_of(self, curve: ChartCurve, figures: CurveTexts) -> Piece:
        """The newest figure of a curve in the tone of its level, with a mark if it is not calm."""
        text = figures.texts[curve.key]
        level = self._levels.get(curve.level)
        if level is None or not figures.values[curve.key] >= level.warm:  # a gap (NaN) is not high
            return text, "text"
        tone = tone_of_level(figures.values[curve.key], level, "text")
        if tone == HOT_CURVE:  # a tone of curves; this is text
            tone = HOT
        return f"{text}!", tone

    def _extremes_text(self, curve: ChartCurve, values: Sequence[float], newest: int) -> str:
        """Lowest, mean and highest of what is drawn; each column is a mean, so that a reading may be above."""
        oldest = newest + 1 - len(values)
        begun = values[: self._newest_begun + 1 - oldest]  # without those whose time has not come
        known = [value for value in begun if not math.isnan(value)]  # and without gaps
        if not known:
            return ""
        bucket_s = self.grid.column_s / self._values_per_cell
        highest = max(known)
        when = o_clock((oldest + begun.index(highest)) * bucket_s, bucket_s)
        mean = curve.text_of(sum(known) / len(known))
        return f"lowest {curve.text_of(min(known))} · mean {mean} · highest {curve.text_of(highest)} at {when}"

    def _spark_pieces(self, curve: ChartCurve, values: _Values, figures: CurveTexts, *, chosen: bool) -> list[Piece]:
        """Name, figure and curve. The coverage of a sum (`of 3/4`), if that is not of all, stands over its oldest
        columns."""
        buckets = values[curve.key]
        top = 1.0 if curve.text is ratio else round_up(highest_of(buckets))  # 1: all of it, for shares
        text, tone = self._text_of(curve, figures)
        figure, _, coverage = text.partition(" ")
        level_mark = "!" if figure.endswith("!") else " "
        figure = figure.rstrip("!")
        if cells(figure) <= _FIGURE_CELLS:  # a bound (`<100ms`) may take the place of the mark
            figure = right(figure, _FIGURE_CELLS) + level_mark
        if coverage:
            coverage = cut(f"{coverage} ", self.grid.columns)
        spark_text = spark([value / top for value in buckets])[len(coverage) :]
        level = self._levels.get(curve.level)
        if level is not None:
            runs = tone_runs(buckets[len(coverage) :], 1, level, curve.tone)
        else:
            runs = [(len(spark_text), curve.tone)]
        return [
            self._marker(marked=chosen),
            (left(self._word_of(curve), _WORD_CELLS), "focus" if chosen else "muted"),
            (f" {figure}", tone),
            (coverage + " " * self._blanks_before_columns, "text"),
            *in_tones(spark_text, runs),
            (" " * (self._future_columns + 1), "text"),
        ]

    def _axis_row(self, now_s: float, edge: str) -> Row:
        """The last line: how long ago, under each chart of a row, and a glyph where something happened."""
        if self._future_columns:  # the right edge is in the future: the time of day is written
            pieces = clock_labels(self.grid, self._first_column(now_s))
        else:
            pieces = time_labels(self.grid, edge)
        events_at = self._events_at(now_s)
        if events_at:
            pieces = self._with_events(pieces, events_at)
        pieces_of_chart = [(" " * (self._lead_cells + self._blanks_before_columns), "text"), *pieces, (" ", "text")]
        return tuple(pieces_of_chart * min(self._across, len(self.shown)))

    def _first_column(self, now_s: float) -> int:
        """Number of the column at the left edge."""
        return self.grid.newest(now_s) + 1 - self.grid.columns + self._future_columns

    def _events_at(self, now_s: float) -> dict[int, list[Event]]:
        """Column of the axis -> the events in it."""
        column_s = self.grid.column_s
        first = self._first_column(now_s)
        events_at: dict[int, list[Event]] = {}
        for event in self._history.events(first * column_s, now_s):
            column = math.floor(event.wall_s / column_s) - first
            events_at.setdefault(column, []).append(event)
        return events_at

    def _with_events(self, pieces: Sequence[Piece], events_at: Mapping[int, list[Event]]) -> list[Piece]:
        """The axis with a glyph for the events of each column, beside the words that stand there."""
        columns = self.grid.columns
        characters = [(character, tone) for text, tone in pieces for character in text]
        for column, events in events_at.items():
            free = [place for place in range(columns) if characters[place][1] == "border"]  # the line between words
            if 0 <= column < columns and free:
                nearest = min(free, key=lambda place: abs(place - column))
                characters[nearest] = event_mark(most_urgent(events), self._glyphs)
        return join_tones(characters)


class _Plot:
    """One chart as an area. Finished columns are drawn once per step; in between only the newest `changing_values`
    are: those of the columns by which the chart moves on next."""

    def __init__(self, chart: Chart, glyphs: Glyphs, level: LevelBounds | None, changing_values: int) -> None:
        self.chart = chart
        self._glyphs = glyphs
        self._level = level
        self._values_per_cell = RASTERS[glyphs].values_per_cell
        self._changing_values = changing_values
        self.top = chart.full
        """Top of the scale."""
        self.legend: list[Piece] = []
        self.legend_inputs: tuple[object, ...] = ()
        """All that the legend was made of: while it is equal, so is the legend."""
        self.mean: float | None = None
        """The mean since the engines started, where it stands in for the past."""
        self._newest = -1
        """Number of the bucket for which `_past_highest` was looked up."""
        self._past_highest = 0.0
        """Highest value of the finished columns."""
        self._lines_inputs: tuple[object, ...] = ()
        """All that finished and future columns were made of."""
        self._past: list[list[Piece]] = []
        """The lines of the finished columns."""
        self._future: list[list[Piece]] = []
        """The lines of the columns whose time has not come."""
        self._heights: list[object] = []
        """Heights and tones of the newest columns, as they were drawn last."""
        self._lines: list[list[Piece]] = []
        """The lines that were drawn last."""

    def update_top(self, values: _Values, newest: int) -> float:
        """Set the top of the scale for the buckets up to number `newest`, and return it. It grows as it must and
        shrinks late, so that it seldom moves."""
        if not self.chart.full:
            curves = self._stacked([values[curve.key] for curve in self.chart.curves])
            if newest != self._newest:
                self._past_highest = max(highest_of(curve[: -self._changing_values]) for curve in curves)
                self._newest = newest
            newest_highest = max(highest_of(curve[-self._changing_values :]) for curve in curves)
            highest = max(self._past_highest, newest_highest, self.mean or 0.0)
            if highest > self.top or round_up(highest) < self.top / 2.0:
                self.top = round_up(highest)
        self.top = self.top or 1.0
        return self.top

    def lines(self, values: _Values, height: int, newest: int, future_values: int) -> list[list[Piece]]:
        """The curves up to the bucket number `newest`, from the top down, with room for `future_values` behind them."""
        curves = [values[curve.key] for curve in self.chart.curves]
        label = self._label()
        inputs = (newest, future_values, height, self.top, label)
        newest_values = [curve[-self._changing_values :] for curve in curves]
        heights = self._heights_of(newest_values, height)
        if self._lines_inputs == inputs and self._heights == heights:
            return self._lines
        if self._lines_inputs != inputs:
            self._lines_inputs = inputs
            self._past = self._area([curve[: -self._changing_values] for curve in curves], height, label)
            self._future = self._area([[math.nan] * future_values for _ in curves], height, label)
        self._heights = heights
        newest_lines = self._area(newest_values, height)
        self._lines = []
        for past, now, future in zip(self._past, newest_lines, self._future, strict=True):
            self._lines.append([*past, *now, *future])
        return self._lines

    def _heights_of(self, curves: list[list[float]], height: int) -> list[object]:
        """The heights of the columns as they are drawn, and their tones: where these are equal so is the drawing."""
        steps = height * RASTERS[self._glyphs].steps_per_line
        heights: list[object] = [
            [height_steps(value / self.top, steps) for value in curve] for curve in self._stacked(curves)
        ]
        if self._level is not None:
            heights.append(tone_runs(curves[0], self._values_per_cell, self._level, ""))
        return heights

    def _label(self) -> str:
        """Name of a mean since the start; empty without one."""
        if self.mean is None:
            return ""
        return f"mean since start {self.chart.curves[0].text_of(self.mean)}"

    def rule_text(self) -> str:
        """The threshold in the legend, from which the curve is no longer calm; empty where none is drawn, as it is
        above the scale."""
        if self._level is None or self._level.warm > self.top:
            return ""
        glyph = "-" if self._glyphs == "ascii" else "┄"
        return f"{glyph} {self.chart.curves[0].text_of(self._level.warm)}"

    def _area(self, curves: list[list[float]], height: int, label: str = "") -> list[list[Piece]]:
        """The curves as lines, each darker than the one above it, in the colours of their levels, with the lines of the
        mean since the start, which `label` names, and of the threshold behind them."""
        top = self.top
        tones = [curve.tone for curve in self.chart.curves]
        layers = [
            ([value / top for value in curve], tone) for curve, tone in zip(self._stacked(curves), tones, strict=True)
        ]
        lines = area(layers, height, self._glyphs)
        if self._level is not None:
            runs = tone_runs(curves[0], self._values_per_cell, self._level, tones[0])
            lines = [in_tones("".join(text for text, _ in line), runs) for line in lines]
        lines = shade_lines(lines)
        if self.mean is not None and label:
            lines = with_label(lines, line_place(self.mean / top, height, self._glyphs), label)
        if self._level is None:
            return lines
        return with_rule(lines, line_place(self._level.warm / top, height, self._glyphs))

    def _stacked(self, curves: list[list[float]]) -> list[list[float]]:
        """The curves of a stack, the second one on top of the first; all others as they are."""
        if not self.chart.stacked or len(curves) < 2:
            return curves
        return [curves[0], [_add_known(a, b) for a, b in zip(*curves, strict=True)]]


def _divide_lines(lines: int, rows: int) -> list[int]:
    """Lines of each row of charts; the first rows have what is left over."""
    return [lines // rows + (row < lines % rows) for row in range(rows)]


def _level_of(chart: Chart, levels: LevelsByCurve) -> LevelBounds | None:
    """The levels by which a chart is coloured; None for two curves, whose colours tell them apart."""
    if len(chart.curves) > 1:
        return None
    return levels.get(chart.curves[0].level)


def _note_between(plot: _Plot, figures: CurveTexts) -> str:
    """The threshold of a chart, else the basis of its means."""
    rule_text = plot.rule_text()
    if rule_text:
        return rule_text
    for curve in plot.chart.curves:
        if curve.key in figures.notes:
            return figures.notes[curve.key]
    return ""


def _first_in_view(plan: _Plan, number: int, *, cursor: int, first: int) -> int:
    """The place of the first of `number` charts in view: as it was (`first`), but for the cursor in view, and no empty
    row at the end."""
    rows_in_view = len(plan.heights)
    rows_needed = math.ceil(number / plan.across)
    cursor_row = cursor // plan.across
    first_row = min(first // plan.across, rows_needed - rows_in_view)
    first_row = max(cursor_row - rows_in_view + 1, min(first_row, cursor_row))
    return max(0, first_row * plan.across)


def _add_known(lower: float, upper: float) -> float:
    """Sum of two values; a gap (NaN) in one of them adds nothing."""
    if math.isnan(upper):
        return lower
    if math.isnan(lower):
        return upper
    return lower + upper


def _cut_to_width(pieces: Sequence[Piece], width: int) -> list[Piece]:
    """The pieces in exactly `width` cells."""
    pieces_that_fit: list[Piece] = []
    room = width
    for text, tone in pieces:
        if not text or room <= 0:
            continue
        if cells(text) > room:
            text = left(text, room)
        pieces_that_fit.append((text, tone))
        room -= cells(text)
    return [*pieces_that_fit, (" " * room, "text")]

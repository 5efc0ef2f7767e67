"""How pictures of the sizing panel are drawn: characters, a canvas of dots, axes with even ticks, and legends."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

from gpumon.readings.format import cells, cut, left, right, round_number
from gpumon.readings.text import clean
from gpumon.tui.fold import folded
from gpumon.tui.line import Piece, Row, cells_of, join_tones
from gpumon.tui.palette import Glyphs
from gpumon.tui.sizing.fields import with_field_names

_LARGEST_FIGURE: Final = 1e15
"""Larger figures are taken for infinite: they are not drawn."""
_BEYOND: Final = 2.0
"""Heights or widths of a canvas from which on a value is no further away: it cannot overflow."""
_TOLERANCE: Final = 1e-9
"""A value that is so little below the begin of a cell is in it: the difference is an error of floats."""
_ROUND_FACTORS: Final = (1.0, 2.0, 2.5, 3.0, 4.0, 5.0, 10.0, 20.0)
"""Factors of a power of ten that are a step of an axis. The last is needed where rounding makes the power too small."""
_LOG_FACTORS: Final = ((1.0, 2.0, 5.0), (1.0, 3.0), (1.0,))
"""Factors of a power of ten at which a logarithmic axis has ticks: the first that have room."""
_LEAST_LOG_DISTANCE: Final = 2
"""Cells between two ticks of a logarithmic axis, at least."""
_LEAST_QUARTER: Final = 20.0
"""Steps of 2.5 x 10^n are taken above this: 25, 250; smaller ones have a digit behind the point."""
LegendLines: TypeAlias = Sequence[tuple[int, int]]
"""Height of a picture, and the lines that its legend may have from this height on; the largest height first."""
SAMPLE_CELLS: Final = 2
"""Cells of the sample of a horizontal line in the legend."""
_LEGEND_LINES: Final[LegendLines] = ((12, 3), (7, 2), (5, 1))
_LEAST_WIDTH: Final = 16
_LEAST_HEIGHT: Final = 3
"""Below this size there is room for the legend alone."""
_LEAST_LABEL: Final = 3
"""Least cells of the labels at the left."""


class Marks(NamedTuple):
    """The characters of a picture, and the samples of lines that a legend shows."""

    point: str
    """A measured point."""
    plan: str
    """The planned point."""
    goal: str
    """A cell of a horizontal line."""
    limit: str
    """A cell of a vertical line."""
    thick: str
    """Sample of a line that was measured."""
    thin: str
    """Sample of a line that nothing measured."""
    side: str
    """The axis at the left, and the bar between two GPUs."""
    tick: str
    """The axis at the left, where it has a label."""
    corner: str
    rule: str
    """The axis below."""
    joined: str
    """Between GPUs that one instance takes."""
    free: str
    """A GPU that nothing is on."""
    dot: str
    """Between words."""


_BRAILLE_MARKS: Final = Marks(
    point="●",
    plan="◆",
    goal="┄",
    limit="┊",
    thick="⠶⠶",
    thin="⠒⠒",
    side="│",
    tick="┤",
    corner="└",
    rule="─",
    joined="─",
    free="·",
    dot=" · ",
)
_ASCII_MARKS: Final = Marks(
    point="o",
    plan="@",
    goal=".",
    limit=":",
    thick="--",
    thin="-- -",
    side="|",
    tick="+",
    corner="`",
    rule="-",
    joined="-",
    free=".",
    dot=", ",
)
CHART_MARKS: Final[dict[Glyphs, Marks]] = {
    "braille": _BRAILLE_MARKS,
    "blocks": _BRAILLE_MARKS._replace(thick="▀▀", thin="▀▀ ▀"),
    "ascii": _ASCII_MARKS,
}
_DOTS: Final[dict[Glyphs, tuple[int, int]]] = {"braille": (2, 4), "blocks": (1, 2), "ascii": (1, 3)}
"""Columns and lines of dots in a cell."""
_BRAILLE_BITS: Final = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))
"""The bit of each dot in a character of Braille: of the left column from below, then of the right one."""
_BRAILLE_BLANK: Final = 0x2800
"""The character of Braille without a dot."""
_SINGLE_COLUMN: Final[dict[Glyphs, str]] = {"blocks": " ▄▀█", "ascii": " _-/'|/|"}
"""The character of each set of dots in one column, the lowest dot counting 1."""
_THICKNESS: Final[dict[Glyphs, int]] = {"braille": 2, "blocks": 1, "ascii": 1}
"""Lines of dots of a curve that was measured; one that nothing measured has one."""
_GAP_EVERY: Final[dict[Glyphs, int]] = {"braille": 0, "blocks": 4, "ascii": 4}
"""Every so many columns one is left out of a curve that nothing measured, as its line can be no thinner; 0: none is."""


def can_be_drawn(value: float | None) -> bool:
    """Whether a figure can be drawn: a number from 0 to 1e15."""
    return value is not None and 0.0 <= value <= _LARGEST_FIGURE


class Canvas:
    """Character cells from x = 0 at the left to `right`, and from y = 0 at the bottom to `top`."""

    def __init__(self, columns: int, lines: int, right: float, top: float, glyphs: Glyphs) -> None:
        """`columns`, `lines`: size in cells; `right`, `top`: the largest x and y."""
        self.columns = columns
        self.lines = lines
        self._right = right if right > 0.0 else 1.0
        self._top = top if top > 0.0 else 1.0
        self._glyphs = glyphs
        self._dots: dict[tuple[int, int], tuple[int, str]] = {}
        """Line and column of a cell -> its dots of curves as bits, and their tone."""
        self._characters: dict[tuple[int, int], Piece] = {}
        """Line and column of a cell -> the character that is shown instead of its dots."""

    def column_of(self, x: float) -> int:
        """The column of cells that `x` is in; the last one for what lies beyond."""
        return _cell_of(x, self._right, self.columns)

    def line_of(self, y: float) -> int:
        """The line of cells that `y` is in, counted from the top; the uppermost for what lies beyond."""
        return self.lines - 1 - _cell_of(y, self._top, self.lines)

    def draw_curve(self, value: Callable[[float], float], measured: Callable[[float], bool], tone: str) -> None:
        """Draw a connected line through all columns: thin, or broken, and muted at each x that was not `measured`."""
        dots_a_column, dots_a_line = _DOTS[self._glyphs]
        columns = self.columns * dots_a_column
        lines = self.lines * dots_a_line
        last_height: int | None = None
        for column in range(columns):
            x = (column + 0.5) / columns * self._right
            y = value(x)
            if not can_be_drawn(y):
                last_height = None
                continue
            height = min(math.floor(min(y / self._top, _BEYOND) * lines), lines)
            if measured(x):
                self._draw_stroke(column, last_height, height, _THICKNESS[self._glyphs], tone)
            elif not self._is_gap(column):
                self._draw_stroke(column, last_height, height, 1, "muted")
            last_height = height

    def _is_gap(self, column: int) -> bool:
        """Whether a column of dots is left out of a curve that nothing measured."""
        period = _GAP_EVERY[self._glyphs]
        return period > 0 and column % period == period - 1

    def _draw_stroke(self, column: int, last_height: int | None, height: int, thickness: int, tone: str) -> None:
        """Draw the dots of one column of a curve, up or down from its height in the column before."""
        first = height
        if last_height is not None and last_height < height:
            first = last_height + 1
        elif last_height is not None and last_height > height:
            first = last_height - 1
        lowest = min(first, height) - (thickness - 1)
        for dot_height in range(max(0, lowest), max(first, height) + 1):
            self._draw_dot(column, dot_height, tone)

    def _draw_dot(self, column: int, height: int, tone: str) -> None:
        """Draw one dot; a cell of a measured curve keeps its tone where a muted one crosses it."""
        dots_a_column, dots_a_line = _DOTS[self._glyphs]
        if height >= self.lines * dots_a_line:
            return
        cell = (self.lines - 1 - height // dots_a_line, column // dots_a_column)
        if self._glyphs == "braille":
            bit = _BRAILLE_BITS[column % dots_a_column][height % dots_a_line]
        else:
            bit = 1 << height % dots_a_line
        bits, cell_tone = self._dots.get(cell, (0, "muted"))
        if tone != "muted":
            cell_tone = tone
        self._dots[cell] = (bits | bit, cell_tone)

    def draw_horizontal(self, y: float, glyph: str, tone: str) -> None:
        """Draw a horizontal line behind all that is there."""
        line = self.line_of(y)
        self._draw_behind(((line, column) for column in range(self.columns)), glyph, tone)

    def draw_vertical(self, x: float, glyph: str, tone: str) -> None:
        """Draw a vertical line behind all that is there."""
        column = self.column_of(x)
        self._draw_behind(((line, column) for line in range(self.lines)), glyph, tone)

    def _draw_behind(self, places: Iterable[tuple[int, int]], glyph: str, tone: str) -> None:
        """Draw a character in those cells that are empty."""
        for cell in places:
            if cell not in self._dots:
                self._characters.setdefault(cell, (glyph, tone))

    def draw_mark(self, x: float, y: float, glyph: str, tone: str) -> None:
        """Draw a character at a point, before all that is there."""
        self.set_cell(self.line_of(y), self.column_of(x), glyph, tone)

    def set_cell(self, line: int, column: int, glyph: str, tone: str) -> None:
        """Draw a character in a cell, before all that is there."""
        self._characters[line, column] = (glyph, tone)

    def is_blank(self, cell: tuple[int, int]) -> bool:
        """Whether nothing is drawn in a cell (line and column)."""
        return cell not in self._characters and cell not in self._dots

    def rows(self) -> list[list[Piece]]:
        """The lines from the top down, each in `columns` cells; neighbours of one tone are one piece."""
        return [self._row(line) for line in range(self.lines)]

    def _row(self, line: int) -> list[Piece]:
        """The cells of one line, neighbours of one tone as one piece."""
        row = [(line, column) for column in range(self.columns)]
        return join_tones(self._characters.get(cell) or self._dotted_cell(cell) for cell in row)

    def _dotted_cell(self, cell: tuple[int, int]) -> Piece:
        """The dots of a cell as a character; a blank for none."""
        bits, tone = self._dots.get(cell, (0, "text"))
        if not bits:
            return " ", "text"
        if self._glyphs == "braille":
            return chr(_BRAILLE_BLANK | bits), tone
        return _SINGLE_COLUMN[self._glyphs][bits], tone


def _cell_of(value: float, end: float, size: int) -> int:
    """The cell of `size` cells from 0 to `end` that a value is in; the first or last one for a value beyond."""
    cell = math.floor(min(value / end, _BEYOND) * size + _TOLERANCE)
    return min(size - 1, max(0, cell))


class LegendEntry(NamedTuple):
    """One entry of a legend."""

    glyph: str
    tone: str
    text: str


class Scale(NamedTuple):
    """The values of an axis: from 0 to at least `most`."""

    most: float
    unit: float = 1.0
    """Divisor with which a value is written."""

    def axis(self, size: int, spacing: Spacing) -> Axis:
        """The axis of these values in so many cells."""
        return Axis.of(self, size, spacing)


class LogScale(NamedTuple):
    """The values of a logarithmic axis, from `least` on; a canvas has `place` of a value in place of it."""

    least: float
    """Above 0."""
    most: float
    unit: float = 1.0
    """Divisor with which a value is written."""

    def place(self, value: float) -> float:
        """Decades above the least value; 0 for what lies below."""
        if value <= self.least:
            return 0.0
        return math.log10(value / self.least)

    def value(self, place: float) -> float:
        """The value at a place."""
        return self.least * math.pow(10.0, place)

    def axis(self, size: int, spacing: Spacing) -> LogAxis:
        """The axis of these values in so many cells."""
        return LogAxis(self, size, least_distance=max(_LEAST_LOG_DISTANCE, min(spacing.distances)))


class Spacing(NamedTuple):
    """How far ticks may stand apart."""

    distances: tuple[int, ...]
    """Cells between two ticks, the best first."""
    most_waste: float
    """How many times the largest value the end of the axis may be at most, if a distance is to be taken."""


LINE_SPACING: Final = Spacing((3, 4, 2, 5, 6, 1), 1.25)
"""Spacing of the ticks of a vertical axis."""
COLUMN_SPACING: Final = Spacing((10, 9, 11, 8, 12, 7, 13, 14, 15, 16), 1.1)
"""Spacing of the ticks of a horizontal axis."""


class Axis(NamedTuple):
    """Ticks that stand a whole number of cells apart, so that all distances are the same."""

    step: float
    """Value between two ticks, in the unit that is written."""
    cells_a_step: int
    size: int
    """Cells of the whole axis."""
    unit: float
    """Divisor with which a value is written."""

    @classmethod
    def of(cls, scale: Scale, size: int, spacing: Spacing) -> Axis:
        """The axis with the first distance of ticks that leaves little room behind the largest value."""
        most = scale.most / scale.unit
        distances = [distance for distance in spacing.distances if distance < size] or [size]
        axes = []
        for distance in distances:
            step = _round_step(most * distance / size)
            axes.append(cls(step, cells_a_step=distance, size=size, unit=scale.unit))
        for axis in axes:
            if axis.end <= most * spacing.most_waste:
                return axis
        return min(axes, key=lambda axis: axis.end)

    @property
    def end(self) -> float:
        """The value at the end of the axis, in the unit that is written."""
        return self.step * self.size / self.cells_a_step

    @property
    def most(self) -> float:
        """The value at the end of the axis, in the unit of the scale."""
        return self.end * self.unit

    def ticks(self) -> list[tuple[int, str]]:
        """Cell and text of each tick, from 0 on."""
        return [
            (cell, _tick_text(self.step * number)) for number, cell in enumerate(range(0, self.size, self.cells_a_step))
        ]


class LogAxis(NamedTuple):
    """Ticks at 1, 2 and 5 of each decade, or fewer where they have no room."""

    scale: LogScale
    size: int
    """Cells of the whole axis."""
    least_distance: int
    """Cells between two ticks, at least."""

    @property
    def most(self) -> float:
        """The place at the end of the axis."""
        return self.scale.place(self.scale.most)

    def ticks(self) -> list[tuple[int, str]]:
        """Cell and text of each tick."""
        for factors in _LOG_FACTORS:
            ticks = self._ticks_at(factors)
            distances = [after - before for (before, _), (after, _) in pairwise(ticks)]
            if ticks and min(distances, default=self.size) >= self.least_distance:
                return ticks
        return self._ticks_at(_LOG_FACTORS[-1])

    def _ticks_at(self, factors: Sequence[float]) -> list[tuple[int, str]]:
        """The ticks at these factors of the powers of ten in the unit that is written."""
        least = self.scale.least / self.scale.unit
        most = self.scale.most / self.scale.unit
        ticks = []
        for power in range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1):
            for factor in factors:
                value = factor * 10.0**power
                if least * (1.0 - _TOLERANCE) <= value <= most:
                    cell = _cell_of(self.scale.place(value * self.scale.unit), self.most, self.size)
                    ticks.append((cell, _tick_text(value)))
        return ticks


def _round_step(least: float) -> float:
    """The smallest of 1, 2, 2.5, 3, 4, 5 x 10^n that is at least `least`; 1 for 0, and for what has no logarithm."""
    if not 1e-300 < least < 1e300:
        return 1.0
    power = 10.0 ** math.floor(math.log10(least))
    steps = (power * factor for factor in _ROUND_FACTORS if factor != 2.5 or power * factor >= _LEAST_QUARTER)
    return next(step for step in steps if step >= least * (1.0 - _TOLERANCE))


def _tick_text(value: float) -> str:
    """The label of a tick; values below a thousandth with an exponent where that is shorter."""
    if value == 0.0 or value >= 1e-3:
        return round_number(value)
    return f"{value:.2g}"


def legend_lines(height: int, lines_by_height: LegendLines = _LEGEND_LINES) -> int:
    """Lines that the legend of a picture of some height may have."""
    for least_height, lines in lines_by_height:
        if height >= least_height:
            return lines
    return 0


def framed_picture(
    size: tuple[int, int],
    title: str,
    scales: tuple[Scale | LogScale, Scale | LogScale],
    legend: Sequence[LegendEntry],
    glyphs: Glyphs,
    draw: Callable[[Canvas], None],
    lines_by_height: LegendLines = _LEGEND_LINES,
) -> list[Row]:
    """A picture in `size` (width and height) with title, scales of x and y, and legend; the legend alone where there is
    no room for more. `draw` draws its inside; `lines_by_height`: lines of the legend."""
    width, height = size
    if width < _LEAST_WIDTH or height < _LEAST_HEIGHT:
        return legend_rows(legend, width, height)
    legend_below = legend_rows(legend, width, legend_lines(height, lines_by_height))
    lines = height - 2 - len(legend_below)  # without the title and the horizontal axis
    scale_x, scale_y = scales
    y = scale_y.axis(lines, LINE_SPACING)
    labels = {lines - 1 - line: text for line, text in y.ticks()}
    label_cells = max(_LEAST_LABEL, *map(cells, labels.values()))
    x = scale_x.axis(width - label_cells - 1, COLUMN_SPACING)
    canvas = Canvas(x.size, lines, right=x.most, top=y.most, glyphs=glyphs)
    draw(canvas)
    marks = CHART_MARKS[glyphs]
    rows: list[Row] = []
    if legend_below:
        rows.append(to_width([(cut(title, width), "strong")], width))
    else:  # a picture that is so low has its legend in the place of the title
        rows.append(legend_rows(legend, width, 1)[0])
    for line, row in enumerate(canvas.rows()):
        label = labels.get(line, "")
        edge = marks.tick if label else marks.side
        rows.append(to_width([(right(label, label_cells) + edge, "muted"), *row], width))
    axis_row = to_width([(" " * label_cells + marks.corner, "muted"), *_ruler(x, marks)], width)
    return [*rows, axis_row, *legend_below]


def _ruler(axis: Axis | LogAxis, marks: Marks) -> list[Piece]:
    """The horizontal axis: each label begins at its column, those without room are left out."""
    ruler: list[Piece] = []
    end = 0
    for start, label in axis.ticks():
        if end <= start and start + len(label) <= axis.size:
            ruler += [(marks.rule * (start - end), "border"), (label, "muted")]
            end = start + len(label)
    return [*ruler, (marks.rule * (axis.size - end), "border")]


def legend_rows(entries: Sequence[LegendEntry], width: int, most: int) -> list[Row]:
    """A legend in at most `most` lines, each entry in the first line that has room; entries left out are counted."""
    for number in range(len(entries), 0, -1):
        shown = list(entries[:number])
        if number < len(entries):
            shown.append(LegendEntry("", "muted", f"+{len(entries) - number}"))
        lines = _side_by_side(shown, width)
        if len(lines) <= most or number == 1:
            return [to_width(line, width) for line in lines[: max(0, most)]]
    return []


def _side_by_side(entries: Sequence[LegendEntry], width: int) -> list[list[Piece]]:
    """The entries of a legend in as many lines as they take, each in the first line that has room."""
    lines: list[list[Piece]] = []
    for entry in entries:
        if entry.glyph:
            pieces = [(f"{entry.glyph} ", entry.tone), (entry.text, "text")]
        else:
            pieces = [(entry.text, entry.tone)]
        line = next((line for line in lines if cells_of(line) + 2 + cells_of(pieces) <= width), None)
        if line is None:
            lines.append(pieces)
        else:
            line += [("  ", "text"), *pieces]
    return lines


def reason_rows(title: str, text: str, width: int, height: int, tone: str = "muted") -> list[Row]:
    """The title of a picture that cannot be drawn, where there is room for it, and the reason."""
    rows: list[Row] = []
    if height > 1:
        rows.append(to_width([(cut(title, width), "strong")], width))
    lines = folded(clean(with_field_names(text)), max(1, width))[: max(0, height - len(rows))]
    return rows + [[(left(line, width), tone)] for line in lines]


def to_width(row: Row, width: int) -> list[Piece]:
    """A row in exactly `width` cells: cut at the right, or filled up with blanks."""
    room = max(0, width)
    pieces: list[Piece] = []
    for text, tone in row:
        shown = left(text, room) if cells(text) > room else text
        if shown:
            pieces.append((shown, tone))
        room -= cells(shown)
    if room:
        pieces.append((" " * room, "text"))
    return pieces


def to_height(rows: Sequence[Row], width: int, height: int) -> list[Row]:
    """Exactly `height` rows: cut at the end, or filled up with blank ones."""
    blank: Row = [(" " * width, "text")] if width > 0 else []
    return [*rows[: max(0, height)], *([blank] * (height - len(rows)))]

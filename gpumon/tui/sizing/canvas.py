"""How pictures of the sizing panel are drawn: characters, a canvas of dots, axes with even ticks, and legends."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from gpumon.readings.format import cells, cut, left, right, round_number
from gpumon.readings.text import clean
from gpumon.tui.fold import folded
from gpumon.tui.line import Piece, Row, cells_of
from gpumon.tui.palette import Glyphs
from gpumon.tui.sizing.fields import with_field_names

_MOST: Final = 1e15
"""Larger figures are taken for infinite: nothing is drawn of them."""


class Marks(NamedTuple):
    """The characters of a picture, and the samples of lines that a legend shows."""

    point: str
    plan: str
    goal: str
    limit: str
    thick: str
    """Sample of a line that was measured."""
    thin: str
    """Sample of a line that nothing measured."""
    side: str
    tick: str
    corner: str
    rule: str
    joined: str
    free: str
    dot: str
    """Between words."""


CHART_MARKS: Final[dict[Glyphs, Marks]] = {
    "braille": Marks("●", "◆", "┄", "┊", "⠶⠶", "⠒⠒", "│", "┤", "└", "─", "─", "·", " · "),
    "blocks": Marks("●", "◆", "┄", "┊", "▀▀", "▀▀ ▀", "│", "┤", "└", "─", "─", "·", " · "),
    "ascii": Marks("o", "@", ".", ":", "--", "-- -", "|", "+", "`", "-", "-", ".", ", "),
}
_DOTS: Final[dict[Glyphs, tuple[int, int]]] = {"braille": (2, 4), "blocks": (1, 2), "ascii": (1, 3)}
"""Columns and lines of dots in a cell."""
_BRAILLE: Final = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))
"""The bit of each dot of a cell: of the left column from below, then of the right one."""
_SINGLE: Final[dict[Glyphs, str]] = {"blocks": " ▄▀█", "ascii": " _-/'|/|"}
"""The character of each set of dots in one column, the lowest dot counting 1."""
_THICK: Final[dict[Glyphs, int]] = {"braille": 2, "blocks": 1, "ascii": 1}
"""Lines of dots of a curve that was measured; one that nothing measured has one."""
_GAP: Final[dict[Glyphs, int]] = {"braille": 0, "blocks": 4, "ascii": 4}
"""Columns after which one is left out of a curve that nothing measured, if lines can be no thinner; 0: none is."""


def can_be_drawn(value: float | None) -> bool:
    """Whether a figure can be drawn: a number from 0 to 1e15."""
    return value is not None and 0.0 <= value <= _MOST


class Canvas:
    """Character cells from x = 0 at the left to `right`, and from y = 0 at the bottom to `top`."""

    def __init__(self, columns: int, lines: int, right: float, top: float, glyphs: Glyphs) -> None:
        self.columns = columns
        self.lines = lines
        self._right = right if right > 0.0 else 1.0
        self._top = top if top > 0.0 else 1.0
        self._glyphs = glyphs
        self._dots: dict[tuple[int, int], tuple[int, str]] = {}
        self._over: dict[tuple[int, int], Piece] = {}

    def column(self, x: float) -> int:
        """The column of cells that `x` is in; the last one for what lies beyond."""
        return _cell_of(x, self._right, self.columns)

    def line(self, y: float) -> int:
        """The line of cells that `y` is in, counted from the top; the uppermost for what lies beyond."""
        return self.lines - 1 - _cell_of(y, self._top, self.lines)

    def curve(self, value: Callable[[float], float], measured: Callable[[float], bool], tone: str) -> None:
        """A connected line through all columns; thin, or broken, and muted where nothing measured it."""
        wide, high = _DOTS[self._glyphs]
        columns = self.columns * wide
        lines = self.lines * high
        before: int | None = None
        for column in range(columns):
            x = (column + 0.5) / columns * self._right
            y = value(x)
            if not can_be_drawn(y):
                before = None
                continue
            now = min(math.floor(min(y / self._top, 2.0) * lines), lines)
            if measured(x):
                self._stroke(column, before, now, _THICK[self._glyphs], tone)
            elif not self._is_gap(column):
                self._stroke(column, before, now, 1, "muted")
            before = now

    def _is_gap(self, column: int) -> bool:
        """Whether a column of dots is left out of a curve that nothing measured."""
        gap = _GAP[self._glyphs]
        return gap > 0 and column % gap == gap - 1

    def _stroke(self, column: int, before: int | None, now: int, thick: int, tone: str) -> None:
        """The dots of one column, from the height of the column before on."""
        first = now
        if before is not None and before < now:
            first = before + 1
        elif before is not None and before > now:
            first = before - 1
        lowest = min(first, now) - (thick - 1)
        for height in range(max(0, lowest), max(first, now) + 1):
            self._dot(column, height, tone)

    def _dot(self, column: int, height: int, tone: str) -> None:
        """One dot; a cell of a measured curve keeps its tone where a muted one crosses it."""
        wide, high = _DOTS[self._glyphs]
        if height >= self.lines * high:
            return
        cell = (self.lines - 1 - height // high, column // wide)
        if self._glyphs == "braille":
            bit = _BRAILLE[column % 2][height % 4]
        else:
            bit = 1 << height % high
        bits, shown = self._dots.get(cell, (0, "muted"))
        self._dots[cell] = (bits | bit, shown if tone == "muted" else tone)

    def across(self, y: float, glyph: str, tone: str) -> None:
        """A horizontal line behind all else."""
        line = self.line(y)
        self._behind(((line, column) for column in range(self.columns)), glyph, tone)

    def down(self, x: float, glyph: str, tone: str) -> None:
        """A vertical line behind curves."""
        column = self.column(x)
        self._behind(((line, column) for line in range(self.lines)), glyph, tone)

    def _behind(self, places: Iterable[tuple[int, int]], glyph: str, tone: str) -> None:
        for cell in places:
            if cell not in self._dots:
                self._over.setdefault(cell, (glyph, tone))

    def mark(self, x: float, y: float, glyph: str, tone: str) -> None:
        """One cell, before all that is there."""
        self._over[self.line(y), self.column(x)] = (glyph, tone)

    def put(self, line: int, column: int, glyph: str, tone: str) -> None:
        """One cell by its place, before curves, where nothing else is marked."""
        self._over.setdefault((line, column), (glyph, tone))

    def set(self, line: int, column: int, glyph: str, tone: str) -> None:
        """One cell by its place, before all that is there."""
        self._over[line, column] = (glyph, tone)

    def rows(self) -> list[list[Piece]]:
        """The lines from the top down, each in `columns` cells; neighbours of one tone are one piece."""
        return [self._row(line) for line in range(self.lines)]

    def _row(self, line: int) -> list[Piece]:
        row: list[Piece] = []
        for column in range(self.columns):
            cell = (line, column)
            text, tone = self._over.get(cell) or self._dotted(cell)
            if row and row[-1][1] == tone:
                before, _ = row.pop()
                text = before + text
            row.append((text, tone))
        return row

    def _dotted(self, cell: tuple[int, int]) -> Piece:
        bits, tone = self._dots.get(cell, (0, "text"))
        if not bits:
            return " ", "text"
        if self._glyphs == "braille":
            return chr(0x2800 | bits), tone
        return _SINGLE[self._glyphs][bits], tone


def _cell_of(value: float, end: float, size: int) -> int:
    """The cell of `size` cells from 0 to `end` that a value is in; the first or last one for a value beyond."""
    cell = math.floor(min(value / end, 2.0) * size + 1e-9)
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


_ROUND: Final = (1.0, 2.0, 2.5, 3.0, 4.0, 5.0, 10.0, 20.0)
_LEAST_QUARTER: Final = 20.0
"""Steps of 2.5 are written from 25 on: smaller ones have a digit behind the point."""


class Spacing(NamedTuple):
    """How far ticks may stand apart."""

    distances: tuple[int, ...]
    """Cells between two ticks, the best first."""
    waste: float
    """The end of the axis over the largest value that a better distance may cost."""


LINE_SPACING: Final = Spacing((3, 4, 2, 5, 6, 1), 1.25)
COLUMN_SPACING: Final = Spacing((10, 9, 11, 8, 12, 7, 13, 14, 15, 16), 1.1)


class Axis(NamedTuple):
    """Ticks that stand a whole number of cells apart, so that all distances are the same."""

    step: float
    """Between two ticks, in the unit that is written."""
    cells_a_step: int
    size: int
    """Cells of the whole axis."""
    unit: float

    @classmethod
    def of(cls, scale: Scale, size: int, spacing: Spacing) -> Axis:
        """The axis with the first distance of ticks that leaves little room behind the largest value."""
        most = scale.most / scale.unit
        fitting = [distance for distance in spacing.distances if distance < size] or [size]
        axes = []
        for distance in fitting:
            axes.append(cls(_round_step(most * distance / size), distance, size, scale.unit))
        good = (axis for axis in axes if axis.end <= most * spacing.waste)
        return next(good, min(axes, key=lambda axis: axis.end))

    @property
    def end(self) -> float:
        """The value at the end of the axis, in the unit that is written."""
        return self.step * self.size / self.cells_a_step

    @property
    def most(self) -> float:
        """The value at the end of the axis."""
        return self.end * self.unit

    def ticks(self) -> list[tuple[int, str]]:
        """Cell and text of each tick, from 0 on."""
        cells_of = range(0, self.size, self.cells_a_step)
        ticks = []
        for number, cell in enumerate(cells_of):
            ticks.append((cell, _written(self.step * number)))
        return ticks


def _round_step(least: float) -> float:
    """The smallest of 1, 2, 2.5, 3, 4, 5 x 10^n that is at least so much; 1 for nothing."""
    if not 1e-300 < least < 1e300:
        return 1.0
    size = 10.0 ** math.floor(math.log10(least))
    steps = (size * factor for factor in _ROUND if factor != 2.5 or size * factor >= _LEAST_QUARTER)
    return next(step for step in steps if step >= least * (1.0 - 1e-9))


def _written(value: float) -> str:
    """A figure of an axis."""
    if value == 0.0 or value >= 1e-3:
        return round_number(value)
    return f"{value:.2g}"


_LEGENDS: Final = ((12, 3), (7, 2), (5, 1))
"""Height from which a legend may have so many lines."""
_LEAST_WIDTH = 16
_LEAST_HEIGHT = 3
"""Below this size there is room for the legend alone."""


def framed(
    size: tuple[int, int],
    title: str,
    scales: tuple[Scale, Scale],
    legend: Sequence[LegendEntry],
    glyphs: Glyphs,
    draw: Callable[[Canvas], None],
    legends: Sequence[tuple[int, int]] = _LEGENDS,
) -> list[Row]:
    """A picture in `size` (width and height) with title, scales of x and y, and legend; the legend alone where there is
    no room for more. `draw` draws its inside; `legends`: lines of the legend from a height on."""
    width, height = size
    if width < _LEAST_WIDTH or height < _LEAST_HEIGHT:
        return flowed(legend, width, height)
    keys = flowed(legend, width, next((lines for least, lines in legends if height >= least), 0))
    lines = height - 2 - len(keys)
    scale_x, scale_y = scales
    y = Axis.of(scale_y, lines, LINE_SPACING)
    labels = {lines - 1 - line: text for line, text in y.ticks()}
    side = max(3, *map(cells, labels.values()))
    x = Axis.of(scale_x, width - side - 1, COLUMN_SPACING)
    canvas = Canvas(x.size, lines, x.most, y.most, glyphs)
    draw(canvas)
    marks = CHART_MARKS[glyphs]
    rows: list[Row] = []
    if keys:
        rows.append(to_width([(cut(title, width), "strong")], width))
    else:
        rows.append(flowed(legend, width, 1)[0])
    for line, row in enumerate(canvas.rows()):
        label = labels.get(line, "")
        edge = marks.tick if label else marks.side
        rows.append(to_width([(right(label, side) + edge, "muted"), *row], width))
    return [*rows, to_width([(" " * side + marks.corner, "muted"), *_ruler(x, marks)], width), *keys]


def _ruler(axis: Axis, marks: Marks) -> list[Piece]:
    """The line below a picture: each label begins at its column."""
    ruler: list[Piece] = []
    end = 0
    for start, label in axis.ticks():
        if end <= start and start + len(label) <= axis.size:
            ruler += [(marks.rule * (start - end), "border"), (label, "muted")]
            end = start + len(label)
    return [*ruler, (marks.rule * (axis.size - end), "border")]


def flowed(keys: Sequence[LegendEntry], width: int, most: int) -> list[Row]:
    """A legend in at most `most` lines, each entry in the first line that has room; what is left out is counted."""
    for kept in range(len(keys), 0, -1):
        if kept < len(keys):
            left_out = [LegendEntry("", "muted", f"+{len(keys) - kept}")]
        else:
            left_out = []
        lines = _lines_of([*keys[:kept], *left_out], width)
        if len(lines) <= most or kept == 1:
            return [to_width(line, width) for line in lines[: max(0, most)]]
    return []


def _lines_of(keys: Sequence[LegendEntry], width: int) -> list[list[Piece]]:
    """The entries of a legend side by side, in as many lines as they take."""
    lines: list[list[Piece]] = []
    for key in keys:
        if key.glyph:
            pieces = [(f"{key.glyph} ", key.tone), (key.text, "text")]
        else:
            pieces = [(key.text, key.tone)]
        line = next((line for line in lines if cells_of(line) + 2 + cells_of(pieces) <= width), None)
        if line is None:
            lines.append(pieces)
        else:
            line += [("  ", "text"), *pieces]
    return lines


def reason(title: str, text: str, width: int, height: int, tone: str = "muted") -> list[Row]:
    """A picture that cannot be drawn: its title and why."""
    rows: list[Row] = []
    if height > 1:
        rows.append(to_width([(cut(title, width), "strong")], width))
    lines = folded(clean(with_field_names(text)), max(1, width))[: max(0, height - len(rows))]
    return rows + [[(left(line, width), tone)] for line in lines]


def to_width(row: Row, width: int) -> list[Piece]:
    """A row in exactly `width` cells."""
    room = max(0, width)
    pieces: list[Piece] = []
    for text, tone in row:
        if cells(text) <= room:
            shown = text
        else:
            shown = left(text, room)
        if shown:
            pieces.append((shown, tone))
        room -= cells(shown)
    if room:
        pieces.append((" " * room, "text"))
    return pieces


def to_height(rows: Sequence[Row], width: int, height: int) -> list[Row]:
    """Exactly `height` rows: what is too much is left out, blank rows fill up."""
    blank: Row = []
    if width > 0:
        blank = [(" " * width, "text")]
    return [*rows[: max(0, height)], *([blank] * (height - len(rows)))]

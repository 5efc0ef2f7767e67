"""What stands around a plot: a title in words, scales with round figures, and a legend that says what is drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from gpumon.readings.format import cells, cut, left, right, round_number
from gpumon.readings.text import clean
from gpumon.tui.charts.curves import nice
from gpumon.tui.fold import folded
from gpumon.tui.line import Piece, Row
from gpumon.tui.palette import Glyphs
from gpumon.tui.sizing.canvas import MARKS, Canvas, fitted
from gpumon.tui.sizing.fields import labelled

_LEGENDS: Final = ((18, 4), (12, 3), (7, 2), (5, 1))
"""Height from which a legend may have so many lines."""
_LEAST: Final = (16, 3)
"""Width and height under which there is only a legend."""
_NAME: Final = 6
"""Cells of a name that are worth showing."""


class Key(NamedTuple):
    """One entry of a legend."""

    glyph: str
    tone: str
    text: str
    short: str = ""
    """The same where there is little room; empty: `text`."""


class Title(NamedTuple):
    """What a picture shows, in words."""

    what: str
    name: str = ""
    """Of the workload."""
    more: str = ""
    """Said where there is room."""
    short: str = ""
    """Instead of `what` where the legend stands beside it; empty: `what`."""


class Scale(NamedTuple):
    """An axis from 0 on."""

    most: float
    """The highest value that has to be seen."""
    unit: float = 1.0
    """What a value is divided by to be written."""
    whole: bool = False
    """There is nothing between two whole numbers."""


class Plot:
    """One plot in `width` cells and `height` lines. What is drawn on `canvas` comes out framed in `rows`.

    `canvas` is None where there is no room for one.
    """

    def __init__(
        self,
        size: tuple[int, int],
        title: Title,
        scales: tuple[Scale, Scale],
        words: str,
        legend: Sequence[Key],
        glyphs: Glyphs,
    ) -> None:
        """`scales`: of x and y. `words`: what the x axis counts."""
        self._width, self._height = size
        self._legend, self._glyphs, self._words = legend, glyphs, words
        self._keys: list[Row] = []
        self.canvas: Canvas | None = None
        if self._width < _LEAST[0] or self._height < _LEAST[1]:
            return
        allowed = next((lines for least, lines in _LEGENDS if self._height >= least), 0)
        self._keys = flowed(legend, self._width, allowed)
        self._title = titled(title, self._width, () if allowed else legend)
        lines = self._height - 2 - len(self._keys)
        x, y = scales
        top = y.most * 1.05
        ticks = _ticks(y, top, max(1, lines // 2))
        self._labels = [(value, _figure(value, y)) for value in reversed(ticks)]
        self._side = max(3, *(len(label) for _, label in self._labels))
        columns = self._width - self._side - 1
        self._x, right_x = x, x.most * 1.05
        self._steps = _ticks(x, right_x, max(1, columns // 8))
        self.canvas = Canvas(columns, lines, right_x, top, glyphs)

    def rows(self) -> list[Row]:
        """All lines, from the top down."""
        if self.canvas is None:
            return flowed(self._legend, self._width, self._height)
        marks, canvas = MARKS[self._glyphs], self.canvas
        labels: dict[int, str] = {}
        for value, label in self._labels:
            labels.setdefault(canvas.line(value), label)
        rows: list[Row] = [self._title]
        for at, row in enumerate(canvas.rows()):
            label = labels.get(at, "")
            side = right(label, self._side) + (marks.tick if label else marks.side)
            rows.append(fitted([(side, "muted"), *row], self._width))
        return [*rows, self._ruler(canvas), *self._keys]

    def _ruler(self, canvas: Canvas) -> Row:
        """The x axis with its figures on it, and what it counts where there is room or the title does not say so."""
        marks, words = MARKS[self._glyphs], f" {self._words}"
        labels = [(canvas.column(value), _figure(value, self._x)) for value in self._steps]
        used = max(start + len(label) for start, label in labels) + 1
        if canvas.columns < 24 or (self._keys and used + cells(words) > canvas.columns):
            words = ""
        end = canvas.columns - cells(words)
        row: list[Piece] = [(" " * self._side + marks.corner, "muted")]
        at = 0
        for start, label in labels:
            if start < at or start + len(label) > end:
                continue
            row += [(marks.rule * (start - at), "border"), (label, "muted")]
            at = start + len(label) + 1
            row.append((marks.rule if at <= end else "", "border"))
        return fitted([*row, (marks.rule * (end - at), "border"), (words, "muted")], self._width)


def _ticks(scale: Scale, top: float, lots: int) -> list[float]:
    """At most about `lots` round steps from 0 to `top`, and at least one where that can be."""
    step = nice(top / (lots + 0.99))
    if step > top:
        step = next((step / part for part in (2.0, 2.5, 5.0, 10.0) if step / part <= top), step)
    step = max(1.0, math.ceil(step)) if scale.whole else step
    return [step * at for at in range(min(int(top / step + 1e-9), 40) + 1)]


def _figure(value: float, scale: Scale) -> str:
    value /= scale.unit
    return round_number(value) if value == 0.0 or value >= 1e-3 else f"{value:.0e}"


def titled(title: Title, width: int, legend: Sequence[Key] = ()) -> Row:
    """What is shown; then whose it is, and more words, as far as there is room.

    `legend`: where no line is left for it, as much of it as fits stands behind the first words.
    """
    room = width - cells(title.what)
    row: list[Piece] = [(title.what, "strong")]
    if legend:
        first = title.short or title.what
        keys = flowed([key._replace(text=key.short or key.text) for key in legend], width - cells(first) - 2, 1)
        return fitted([(first, "strong"), ("  ", "text"), *(keys[0] if keys else ())], width)
    more = f" {title.more}" if title.more else ""
    name = f": {title.name}" if title.name else ""
    if more and cells(more) + min(cells(name), 2 + 2 * _NAME) <= room:
        row.append((more, "muted"))
        room -= cells(more)
    if name and room >= 2 + _NAME:
        row.append((cut(name, room), "text"))
    return fitted(row, width)


def flowed(keys: Sequence[Key], width: int, most: int) -> list[Row]:
    """A legend in at most `most` lines: whole entries, in short words where need be; what is left out is counted."""
    if most <= 0:
        return []
    short = [key._replace(text=key.short or key.text) for key in keys]
    lines: list[list[Piece]] = []
    for form in (keys, short):
        lines, _ = _wrapped(form, width)
        if len(lines) <= most:
            return [fitted(line, width) for line in lines]
    for kept in range(len(keys) - 1, 0, -1):
        lines, room = _wrapped(short[:kept], width)
        more = f"  +{len(keys) - kept}"
        if len(lines) <= most and (kept == 1 or len(more) <= room):
            lines[-1].append((more if len(more) <= room else "", "muted"))
            break
    return [fitted(line, width) for line in lines[:most]]


def _wrapped(keys: Sequence[Key], width: int) -> tuple[list[list[Piece]], int]:
    """Each entry in the first line that has room for it; and the room that is left in the last one."""
    lines: list[list[Piece]] = []
    rooms: list[int] = []
    for key in keys:
        pieces = [(f"{key.glyph} " if key.glyph else "", key.tone), (key.text, "text" if key.glyph else key.tone)]
        size = sum(cells(text) for text, _ in pieces)
        at = next((at for at, room in enumerate(rooms) if size + 2 <= room), None)
        if at is None:
            lines.append(pieces)
            rooms.append(width - size)
        else:
            lines[at] += [("  ", "text"), *pieces]
            rooms[at] -= size + 2
    return lines, rooms[-1] if rooms else width


def said(title: Title, text: str, width: int, height: int, tone: str = "muted") -> list[Row]:
    """A picture that can not be drawn: its title and why."""
    rows: list[Row] = [titled(title, width)] if height > 1 else []
    return rows + [
        [(left(line, width), tone)]
        for line in folded(clean(labelled(text)), max(1, width))[: max(0, height - len(rows))]
    ]


def filled(rows: Sequence[Row], width: int, height: int) -> list[Row]:
    """Exactly `height` rows."""
    blank: Row = [(" " * max(0, width), "text")] if width > 0 else []
    return [*rows[: max(0, height)], *([blank] * (height - len(rows)))]

"""A field of character cells to draw on: curves of small dots, marks over them, words where there is room."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from gpumon.readings.format import cells, left
from gpumon.tui.line import Piece, Row
from gpumon.tui.palette import Glyphs

_MOST: Final = 1e15
"""Larger figures are taken for infinite: nothing is drawn of them."""


class Marks(NamedTuple):
    """The characters of a picture, and the samples of lines that a legend shows."""

    point: str
    plan: str
    goal: str
    limit: str
    solid: str
    dashed: str
    side: str
    tick: str
    corner: str
    rule: str
    joined: str
    free: str
    taken: str
    """A GPU that something else holds."""
    dot: str
    """Between words."""


MARKS: Final[dict[Glyphs, Marks]] = {
    "braille": Marks("●", "◆", "┄", "┊", "⠒⠒", "⠒ ⠒", "│", "┤", "└", "─", "─", "·", "×", " · "),
    "blocks": Marks("●", "◆", "┄", "┊", "▀▀", "▀ ▀", "│", "┤", "└", "─", "─", "·", "×", " · "),
    "ascii": Marks("o", "@", ".", ":", "--", "- -", "|", "+", "`", "-", "-", ".", "#", ", "),
}
_DOTS: Final[dict[Glyphs, tuple[int, int]]] = {"braille": (2, 4), "blocks": (1, 2), "ascii": (1, 3)}
"""Columns and lines of dots in a cell."""
_BRAILLE: Final = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))
"""The bit of each dot of a cell: of the left column from below, then of the right one."""
_SINGLE: Final[dict[Glyphs, str]] = {"blocks": " ▄▀█", "ascii": " _-/'|/|"}
"""The character of each set of dots in one column, the lowest dot counting 1."""
_DASH: Final[dict[Glyphs, int]] = {"braille": 3, "blocks": 1, "ascii": 1}
"""Columns of dots that are drawn, and then left out, of a curve that nothing measured."""


def usable(value: float | None) -> bool:
    """Whether a figure can be drawn: a number from 0 to 1e15."""
    return value is not None and 0.0 <= value <= _MOST


class Canvas:
    """Cells from x = 0 at the left to `right`, and from y = 0 at the bottom to `top`."""

    def __init__(self, columns: int, lines: int, right: float, top: float, glyphs: Glyphs) -> None:
        self.columns = columns
        self.lines = lines
        self._right = right if right > 0.0 else 1.0
        self._top = top if top > 0.0 else 1.0
        self._glyphs = glyphs
        self._dots: dict[tuple[int, int], tuple[int, str]] = {}
        self._over: dict[tuple[int, int], Piece] = {}
        self._marked: set[tuple[int, int]] = set()
        """Cells that nothing may be written over."""

    def column(self, x: float) -> int:
        """The column of cells that `x` is in; the last one for what lies beyond."""
        return _place(x / self._right, self.columns)

    def line(self, y: float) -> int:
        """The line of cells that `y` is in, counted from the top; the uppermost for what lies beyond."""
        return self.lines - 1 - _place(y / self._top, self.lines)

    def curve(self, value: Callable[[float], float], measured: Callable[[float], bool], tone: str) -> None:
        """A line through all columns; dashed and muted where it is not measured."""
        wide, high = _DOTS[self._glyphs]
        columns, lines, dash = self.columns * wide, self.lines * high, _DASH[self._glyphs]
        before: int | None = None
        for at in range(columns):
            x = (at + 0.5) / columns * self._right
            y = value(x)
            if not usable(y):
                before = None
                continue
            now = min(math.floor(min(y / self._top, 2.0) * lines), lines)
            first = now if before is None else min(now, before + 1) if now >= before else max(now, before - 1)
            solid = measured(x)
            if solid or at // dash % 2 == 0:
                for dot in range(min(first, now), max(first, now) + 1):
                    if dot < lines:
                        self._dot(at, dot, tone if solid else "muted")
            before = now

    def _dot(self, column: int, line: int, tone: str) -> None:
        wide, high = _DOTS[self._glyphs]
        cell = (self.lines - 1 - line // high, column // wide)
        bits, shown = self._dots.get(cell, (0, tone))
        bit = _BRAILLE[column % 2][line % 4] if self._glyphs == "braille" else 1 << line % high
        self._dots[cell] = (bits | bit, tone if shown == "muted" else shown)

    def across(self, y: float, glyph: str, tone: str) -> None:
        """A horizontal line behind all else."""
        line = self.line(y)
        for column in range(self.columns):
            self._behind(line, column, glyph, tone)

    def down(self, x: float, glyph: str, tone: str) -> None:
        """A vertical line behind curves."""
        column = self.column(x)
        for line in range(self.lines):
            self._behind(line, column, glyph, tone)

    def _behind(self, line: int, column: int, glyph: str, tone: str) -> None:
        if (line, column) not in self._dots:
            self._over.setdefault((line, column), (glyph, tone))

    def mark(self, x: float, y: float, glyph: str, tone: str) -> None:
        """One cell, before all that is there."""
        cell = (self.line(y), self.column(x))
        self._over[cell] = (glyph, tone)
        self._marked.add(cell)

    def along(self, y: float, text: str, tone: str) -> None:
        """Words on a horizontal line, as far left as there is room; nothing where there is none."""
        line = self.line(y)
        self._write(((line, start) for start in range(1, self.columns - cells(text))), text, tone, on_goal=True)

    def beside(self, x: float, text: str, tone: str) -> None:
        """Words to the left of a vertical line, else to its right, as low as there is room."""
        column = self.column(x)
        starts = (column - cells(text), column + 1)
        self._write(((line, start) for line in range(self.lines - 1, -1, -1) for start in starts), text, tone)

    def _write(self, places: Iterable[tuple[int, int]], text: str, tone: str, *, on_goal: bool = False) -> None:
        for line, start in places:
            found = [(line, column) for column in range(start, start + len(text))]
            if (
                start >= 0
                and start + len(text) <= self.columns
                and not any(self._taken(cell, on_goal) for cell in found)
            ):
                self._over |= {cell: (character, tone) for cell, character in zip(found, text, strict=True)}
                self._marked |= set(found)
                return

    def _taken(self, cell: tuple[int, int], on_goal: bool) -> bool:
        free = on_goal and self._over.get(cell, (" ", ""))[0] == MARKS[self._glyphs].goal
        return cell in self._dots or cell in self._marked or (cell in self._over and not free)

    def rows(self) -> list[list[Piece]]:
        """What was drawn, from the top down, each line in `columns` cells."""
        return [joined(self._cell(line, column) for column in range(self.columns)) for line in range(self.lines)]

    def _cell(self, line: int, column: int) -> Piece:
        over = self._over.get((line, column))
        if over is not None:
            return over
        bits, tone = self._dots.get((line, column), (0, "text"))
        if not bits:
            return " ", "text"
        return (chr(0x2800 | bits) if self._glyphs == "braille" else _SINGLE[self._glyphs][bits]), tone


def _place(share: float, parts: int) -> int:
    """In which of equal parts a share lies."""
    return min(parts - 1, max(0, math.floor(min(share, 2.0) * parts + 1e-9)))


def joined(pieces: Iterable[Piece]) -> list[Piece]:
    """Pieces with neighbours of one tone made one."""
    row: list[Piece] = []
    for text, tone in pieces:
        if row and row[-1][1] == tone:
            row[-1] = (row[-1][0] + text, tone)
        elif text:
            row.append((text, tone))
    return row


def fitted(row: Row, width: int) -> list[Piece]:
    """A row in exactly `width` cells."""
    room, pieces = max(0, width), []
    for text, tone in row:
        size = cells(text)
        if size > room:
            text, size = left(text, room), room
        if text:
            pieces.append((text, tone))
        room -= size
    return pieces + ([(" " * room, "text")] if room else [])

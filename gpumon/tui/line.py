"""One line of the screen: as a strip for Textual, and as the fewest bytes for the terminal.

Textual writes a full colour code and a reset around every piece of text, and everything up to the last changed cell
of a line. Over SSH that is several times the text itself. A `Line` writes only changes of codes, and where a part of
it is asked for only the cells that differ from the line before, with the cursor moved over the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

from rich.console import Console
from rich.segment import Segment
from textual.strip import Strip

from gpumon.readings.format import cells, cut, left
from gpumon.tui.palette import FILLERS, NEUTRAL, Code, Palette

Piece = tuple[str, str]
"""A text and its tone (a key of `palette.TONES`)."""
Row = Sequence[Piece]

_LEAST_JUMP: Final = 5
"""Cells that it takes for moving the cursor to be shorter than writing them again."""
_CHUNK_CELLS: Final = 16
"""Cells that are compared at once."""
_ASCII_GLYPHS: Final = str.maketrans(
    {
        **dict(zip("–…·°≥≤×●‖", "-~. ><x*=", strict=True)),
        **dict(zip("█▒░─│┤┴┼└", "#=.-||++`", strict=True)),
        **dict(zip("▁▂▃▄▅▆▇", "_.-~=+*", strict=True)),
        **dict(zip("↑↓←→✗✓▸", "^v<>x*>", strict=True)),
        "╱": "/",
    }
)
"""ASCII stand-ins, cell by cell."""
_UNSURE_WIDTH: Final = re.compile("[^ -~·°×–…≥≤←-↓─-▟▸◆●‖✓✗⠀-⣿]")
"""Characters that are not known to take one cell: their line is always written whole."""


Ranges = list[tuple[int, int]]
"""First cell of each part of a line, and the cell after its last."""
_INDENT: Final = "   "
"""Blanks before each line of a wrapped sentence."""
_MARGIN_CELLS: Final = len(_INDENT) + 1
"""Cells of a wrapped line without text: the indent, and one that stays blank at the right edge."""


class _Comparison(NamedTuple):
    """A line compared with the one that it replaces."""

    old: Line
    new: Line
    ranges: Ranges
    """Cells that differ."""


class LineSlot:
    """One line's place on the terminal."""

    __slots__ = ("compared", "part", "shown")

    def __init__(self) -> None:
        self.shown: Line | None = None
        """The line that stands there now; None: not known."""
        self.compared: _Comparison | None = None
        """The line that stood there when the next one was made, and what differs in that next one."""
        self.part = _ChangedCells()
        """The strip that Textual gets in place of the line's first cells."""


class Line(Strip):
    """A row of exactly `width` cells; two lines look the same where `characters` and `marks` do."""

    __slots__ = ("characters", "marks", "palette", "slot", "wide")

    def __init__(self, row: Row, width: int, palette: Palette, slot: LineSlot) -> None:
        pieces = _fit_to_width(row, width, palette)
        styles = palette.styles
        super().__init__([Segment(text, styles[tone]) for text, tone in pieces], width)
        self.characters = "".join([text for text, _ in pieces])
        self.marks = "".join([palette.mark(text, tone) for text, tone in pieces])
        self.wide = _UNSURE_WIDTH.search(self.characters) is not None
        self.palette = palette
        self.slot = slot

    def replaces(self, before: Line) -> Ranges:
        """The ranges of `changes`, kept for the moment when the line is written: then it need not be compared again."""
        ranges = self.changes(before)
        self.slot.compared = _Comparison(before, self, ranges)
        return ranges

    def changes(self, before: Line | None) -> Ranges:
        """Ranges of cells that differ from another line; the whole line where that is not known, or where a character
        may take more than one cell."""
        if before is None or self.wide or before.wide or len(self.characters) != len(before.characters):
            looks_same = before is not None and before.characters == self.characters and before.marks == self.marks
            if looks_same:
                return []
            return [(0, len(self.characters))]
        return _changed_ranges(before, self)

    def render(self, console: Console) -> str:  # noqa: ARG002 - Strip's signature
        """The whole line for the terminal; from now on the terminal shows it."""
        self.slot.shown = self
        return _encode(self, [(0, len(self.characters))])

    def divide(self, cuts: Iterable[int]) -> Sequence[Strip]:
        """As `Strip.divide`. Parts are written by themselves: what the terminal shows is not known then."""
        cuts = list(cuts)
        if cuts == [self.cell_length]:
            return [self]
        self.slot.shown = None
        return super().divide(cuts)

    def crop(self, start: int, end: int | None = None) -> Strip:
        """As `Strip.crop`; a part from the first cell on is for the terminal: it writes what is not shown yet."""
        if start == 0 and end is not None and end < self.cell_length:
            self.slot.part.line = self
            return self.slot.part
        if start:  # a part from the middle is written by itself; a crop to the full width is the line itself
            self.slot.shown = None
        return super().crop(start, end)


class _ChangedCells(Strip):
    """The cells of a line that differ from the line that the terminal shows in its place.

    There is one in each slot, and it has no segments: Textual does nothing but write it, and to make a strip of each
    line took longer than to write it.
    """

    __slots__ = ("line",)

    def __init__(self) -> None:
        super().__init__((), 0)
        self.line: Line | None = None

    def render(self, console: Console) -> str:  # noqa: ARG002 - Strip's signature
        """Text and control sequences that turn the shown line into the new one; the cursor stands at its start."""
        line = self.line
        if line is None:
            return ""
        slot = line.slot
        shown = slot.shown
        compared = slot.compared
        if compared is not None and compared.old is shown and compared.new is line:
            ranges = compared.ranges
        else:
            ranges = line.changes(shown)
        slot.shown = line
        slot.compared = None
        return _encode(line, ranges)


def cells_of(pieces: Iterable[Piece]) -> int:
    """Cells that pieces of a line take together."""
    return sum(cells(text) for text, _ in pieces)


def join_tones(pieces: Iterable[Piece]) -> list[Piece]:
    """The pieces, neighbours of one tone as one piece."""
    return [("".join([text for text, _ in alike]), tone) for tone, alike in groupby(pieces, key=itemgetter(1))]


def first_that_fits(texts: Sequence[str], room: int) -> str:
    """The first text of at most `room` cells; the last one, cut, where all are longer."""
    return next((text for text in texts if cells(text) <= room), cut(texts[-1], max(0, room)))


def _fit_to_width(row: Row, width: int, palette: Palette) -> list[Piece]:
    """The pieces in exactly `width` cells, without empty ones, in the characters of the palette."""
    pieces: list[Piece] = []
    has_stand_ins = palette.ascii or palette.textures
    room = width
    for text, tone in row:
        size = cells(text)
        if size > room:
            text = left(cut(text, room), room)
            size = room
        if has_stand_ins:
            text = _with_stand_ins(text, tone, palette)
        if not text:
            continue
        if pieces and pieces[-1][1] == tone:
            pieces[-1] = (pieces[-1][0] + text, tone)
        else:
            pieces.append((text, tone))
        room -= size
    if room > 0:
        filler = FILLERS[pieces[-1][1]] if pieces else "text"
        pieces.append((" " * room, filler))
    return pieces


def _with_stand_ins(text: str, tone: str, palette: Palette) -> str:
    """The text in the characters that the palette has for bars, and in ASCII where it must be, with `?` for a
    character that has no stand-in; as wide as before."""
    if tone in palette.textures:
        text = text.translate(palette.textures[tone])
    if not palette.ascii or text.isascii():
        return text
    text = text.translate(_ASCII_GLYPHS)
    if text.isascii():
        return text
    return "".join([character if character.isascii() else "?" * cells(character) for character in text])


def _changed_ranges(old: Line, new: Line) -> Ranges:
    """Ranges of cells to write, near ones joined."""
    ranges: Ranges = []
    old_text = old.characters
    new_text = new.characters
    old_marks = old.marks
    new_marks = new.marks
    for chunk in range(0, len(new_text), _CHUNK_CELLS):
        end = chunk + _CHUNK_CELLS
        if old_text[chunk:end] == new_text[chunk:end] and old_marks[chunk:end] == new_marks[chunk:end]:
            continue
        for cell in range(chunk, min(end, len(new_text))):
            if old_text[cell] == new_text[cell] and old_marks[cell] == new_marks[cell]:
                continue
            if ranges and (cell == ranges[-1][1] or _is_bridged(new_marks, ranges[-1][1], cell)):
                ranges[-1] = (ranges[-1][0], cell + 1)
            else:
                ranges.append((cell, cell + 1))
    return ranges


def _is_bridged(marks: str, start: int, end: int) -> bool:
    """Whether to write the unchanged cells between two changed ones: they are few, and need no code of their own."""
    if end - start >= _LEAST_JUMP:
        return False
    between = marks[start:end]
    for mark in (NEUTRAL, marks[start - 1], marks[end]):
        between = between.replace(mark, "")
    return not between


def _selection(code: Code, base: str | None) -> str:
    """The control sequence that selects a tone after one with another base; empty where nothing is to be selected."""
    parts = [part for part in code if part]
    if base:
        parts.insert(0, "0")
    if not parts:
        return ""
    return f"\x1b[{';'.join(parts)}m"


def _encode(line: Line, ranges: Ranges) -> str:
    """The ranges of a line as text and codes, from its first cell on; ends with all codes reset."""
    codes = line.palette.codes
    ground = line.palette.ground
    text = line.characters
    marks = line.marks
    out: list[str] = []
    cursor = 0
    base: str | None = None
    colour = ""
    for start, end in ranges:
        if start != cursor:
            out.append(f"\x1b[{start - cursor}C")
        cursor = end
        while start < end:
            mark = marks[start]
            stop = _end_of_run(marks, start, end)
            code = codes[mark]
            if mark != NEUTRAL or base != ground:  # blanks on the plain ground need no code once it is selected
                if code.base != base:
                    out.append(_selection(code, base))
                elif code.colour != colour:
                    out.append(f"\x1b[{code.colour}m")
                base, colour = code
            out.append(text[start:stop])
            start = stop
    if base or colour:
        out.append("\x1b[0m")
    return "".join(out)


def _end_of_run(marks: str, start: int, end: int) -> int:
    """The first cell after `start`, and before `end`, that has another mark; else `end`."""
    mark = marks[start]
    stop = start + 1
    while stop < end and marks[stop] == mark:
        stop += 1
    return stop


def wrap_line(text: str, width: int, tone: str, most: int = 3) -> list[Row]:
    """A sentence over at most `most` lines of `width` cells, broken at blanks; the last is cut where it must be."""
    lines: list[Row] = []
    room = width - _MARGIN_CELLS
    words = text.split()
    while words and len(lines) < most:
        line = words.pop(0)
        while words and cells(line) + 1 + cells(words[0]) <= room:
            line += " " + words.pop(0)
        if words and len(lines) == most - 1:
            line += " " + " ".join(words)
        lines.append(((_INDENT + cut(line, room), tone),))
    return lines

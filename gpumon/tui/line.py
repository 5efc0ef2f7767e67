"""One line of the screen: as a strip for Textual, and as the fewest bytes for the terminal.

Textual writes a full colour code and a reset around every piece of text, and a whole line for one changed digit. Over
SSH that is several times the text itself. A `Line` writes only code changes; its `Patch` only the cells that differ
from what the terminal shows, with the cursor moved over the rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from rich.console import Console
from rich.segment import Segment
from textual.strip import Strip

from gpumon.readings.format import cells, cut, left
from gpumon.tui.palette import FILLERS, NEUTRAL, Palette
from gpumon.tui.shift import Cells, shifted

Piece = tuple[str, str]
"""A text and its tone (a key of `palette.TONES`)."""
Row = Sequence[Piece]

_JUMP: Final = 5
"""Cells that it takes for moving the cursor to be shorter than writing them again."""
_CHUNK: Final = 16
"""Cells that are compared at once."""
_MANY: Final = 8
"""Changed cells from which it is worth looking whether they moved."""
_PLAIN: Final = str.maketrans(
    {
        **dict(zip("–…·°≥≤×●‖", "-~. ><x*=", strict=True)),
        **dict(zip("█▒░─│┤┴┼└", "#=.-||++`", strict=True)),
        **dict(zip("▁▂▃▄▅▆▇", "_.-~=+*", strict=True)),
        **dict(zip("↑↓←→✗✓▸", "^v<>x*>", strict=True)),
    }
)
"""ASCII stand-ins, cell by cell."""
_UNSURE: Final = re.compile("[^ -~·°×–…≥≤←-↓─-▟▸◆●‖✓✗⠀-⣿]")
"""Characters that are not known to take one cell: their line is always written whole."""


class Slot:
    """One line's place on the terminal, and what stands there now (None: not known).

    `admits` is asked, with the text that is to be written and whether that is the whole line, if the terminal has
    room for it now; where it has not, nothing is written, and whoever said so has to have the line painted later.
    """

    __slots__ = ("admits", "lead", "shown")

    def __init__(self, admits: Callable[[str, bool], bool] | None = None, column: int = 0) -> None:
        self.admits = admits
        self.lead = f"\x1b[{column + 1}G" if column else ""
        """Goes to its first column: what stands left of it may not have been written."""
        self.shown: Line | None = None


class Line(Strip):
    """A row of exactly `width` cells. Equal rows have equal `characters` and `marks`."""

    __slots__ = ("characters", "marks", "palette", "slot", "wide")

    def __init__(self, row: Row, width: int, palette: Palette, slot: Slot) -> None:
        pieces = _sized(row, width, palette.ascii)
        styles = palette.styles
        super().__init__([Segment(text, styles[tone]) for text, tone in pieces], width)
        self.characters = "".join([text for text, _ in pieces])
        self.marks = "".join([palette.mark(text, tone) for text, tone in pieces])
        self.wide = _UNSURE.search(self.characters) is not None
        self.palette = palette
        self.slot = slot

    def same(self, other: Line) -> bool:
        """Whether both look the same."""
        return self.characters == other.characters and self.marks == other.marks

    def render(self, console: Console) -> str:  # noqa: ARG002 - Strip's signature
        """The whole line for the terminal; from now on the terminal shows it."""
        slot, text = self.slot, self.whole()
        if slot.admits is not None and not slot.admits(text, True):
            return ""
        slot.shown = self
        return slot.lead + text

    def whole(self) -> str:
        """All its cells for the terminal."""
        if self._render_cache is None:
            self._render_cache = _encode(self, [(0, len(self.characters))])
        return self._render_cache

    def change(self) -> str:
        """What turns what its slot shows into this line."""
        shown = self.slot.shown
        if shown is None or shown.wide or self.wide or len(shown.characters) != len(self.characters):
            return self.whole()
        before, now = Cells(shown.characters, shown.marks), Cells(self.characters, self.marks)
        ranges = _changes(before, now)
        text = _encode(self, ranges)
        if not self.palette.shifts or sum(end - start for start, end in ranges) < _MANY:
            return text
        moves, cursor, moved = shifted(before, now)
        other = moves + _encode(self, _changes(moved, now), cursor)
        return other if moves and len(other.encode()) < len(text.encode()) else text

    def crop(self, start: int, end: int | None = None) -> Strip:
        """As `Strip.crop`; but a crop of just the last cell is what `Board.update` asks a patch with."""
        width = self._cell_length or 0
        if start == 0 and end == width - 1:
            return Patch(self)
        if start != 0 or (end is not None and end < width):
            self.slot.shown = None
        return super().crop(start, end)


class Patch(Strip):
    """The cells of a line that differ from what its slot shows."""

    __slots__ = ("line",)

    def __init__(self, line: Line) -> None:
        self.line = line
        self._segments = line._segments
        self._cell_length = line._cell_length

    def render(self, console: Console) -> str:  # noqa: ARG002 - Strip's signature
        """What turns the shown line into the new one; the cursor stands at the line's start."""
        line, slot = self.line, self.line.slot
        text = line.change()
        if slot.admits is not None and not slot.admits(text, False):
            return ""
        slot.shown = line
        return text


def _sized(row: Row, width: int, plain: bool) -> list[Piece]:
    """The pieces in exactly `width` cells, without empty ones, in ASCII where that is wanted."""
    pieces: list[Piece] = []
    room = width
    for text, tone in row:
        size = cells(text)
        if size > room:
            text, size = left(cut(text, room), room), room
        if plain and not text.isascii():
            text = _in_ascii(text)
        if not text:
            continue
        if pieces and pieces[-1][1] == tone:
            pieces[-1] = (pieces[-1][0] + text, tone)
        else:
            pieces.append((text, tone))
        room -= size
    if room > 0:
        pieces.append((" " * room, FILLERS[pieces[-1][1]] if pieces else "text"))
    return pieces


def _in_ascii(text: str) -> str:
    text = text.translate(_PLAIN)
    return text if text.isascii() else "".join(c if c.isascii() else "?" * cells(c) for c in text)


def _changes(old: Cells, new: Cells) -> list[tuple[int, int]]:
    """Ranges of cells to write, near ones joined."""
    ranges: list[tuple[int, int]] = []
    a, b, c, d = old.characters, new.characters, old.marks, new.marks
    for chunk in range(0, len(b), _CHUNK):
        end = chunk + _CHUNK
        if a[chunk:end] == b[chunk:end] and c[chunk:end] == d[chunk:end]:
            continue
        for at in range(chunk, min(end, len(b))):
            if a[at] == b[at] and c[at] == d[at]:
                continue
            if ranges and at - ranges[-1][1] < _JUMP:
                ranges[-1] = (ranges[-1][0], at + 1)
            else:
                ranges.append((at, at + 1))
    return ranges


def _encode(line: Line, ranges: list[tuple[int, int]], cursor: int = 0) -> str:
    """The ranges of a line as text and codes, from the cell `cursor` on; ends with all codes reset."""
    codes, ground = line.palette.codes, line.palette.ground
    text, marks = line.characters, line.marks
    out: list[str] = []
    base: str | None = None
    colour = ""
    for start, end in ranges:
        if start != cursor:
            out.append(f"\x1b[{abs(start - cursor)}{'C' if start > cursor else 'D'}")
        cursor = end
        while start < end:
            mark, stop = marks[start], start + 1
            while stop < end and marks[stop] == mark:
                stop += 1
            code = codes[mark]
            if mark != NEUTRAL or base != ground:
                if code.base != base:
                    selected = ";".join(part for part in ("0" if base else "", *code) if part)
                    out.append(f"\x1b[{selected}m" if selected else "")
                elif code.colour != colour:
                    out.append(f"\x1b[{code.colour}m")
                base, colour = code
            out.append(text[start:stop])
            start = stop
    if base or colour:
        out.append("\x1b[0m")
    return "".join(out)

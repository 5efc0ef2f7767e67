"""Curves coloured by level, cell by cell, and the dim line at the value from which on they are no longer calm."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from gpumon.tui.levels import LevelBounds
from gpumon.tui.line import Piece
from gpumon.tui.palette import SHADES, Glyphs, shaded

TonedRun = tuple[int, str]
"""Neighbouring cells of one tone: their number and the tone."""
_RULES: Final[dict[Glyphs, str]] = {"braille": "⡀⠄⠂⠁", "blocks": "┄", "ascii": "-"}
"""Characters of the line at a threshold, one for each height that it may have within a cell, from below."""
_BLANKS: Final = re.compile("( +)")
"""Blanks as a group: `split` keeps them."""
_LABEL_MARGIN: Final = 4
"""Cells of the line that stay beside a label: one before it, its two blanks, and one behind it."""


def tone_of_level(value: float, level: LevelBounds, calm: str) -> str:
    """The tone of a curve at a value; calm for a gap."""
    if value >= level.hot:
        return "hot"
    if value >= level.warm:
        return "warn"
    return calm


def tone_runs(values: Sequence[float], per_cell: int, level: LevelBounds, calm: str) -> list[TonedRun]:
    """The tones of all cells. `per_cell` values make a cell, which has the tone of the highest of them."""
    if not any(value >= level.warm for value in values):
        return [(len(values) // per_cell, calm)]
    runs: list[TonedRun] = []
    for start in range(0, len(values), per_cell):
        highest = max(values[start : start + per_cell], key=_gaps_lowest)
        tone = tone_of_level(highest, level, calm)
        if runs and runs[-1][1] == tone:
            runs[-1] = (runs[-1][0] + 1, tone)
        else:
            runs.append((1, tone))
    return runs


def _gaps_lowest(value: float) -> float:
    """Sort key of a value: a gap (NaN, which is not equal to itself) is less than any."""
    if value == value:
        return value
    return float("-inf")


def tinted(text: str, runs: Sequence[TonedRun]) -> list[Piece]:
    """A line of a curve in the tones of its cells."""
    pieces: list[Piece] = []
    start = 0
    for length, tone in runs:
        pieces.append((text[start : start + length], tone))
        start += length
    return pieces


def graded(lines: Sequence[list[Piece]]) -> list[list[Piece]]:
    """The lines of an area from the top down, each darker than the one above it."""
    height = len(lines)
    grades: list[list[Piece]] = []
    for number, line in enumerate(lines):
        shade = number * SHADES // height
        grades.append([(text, shaded(tone, shade)) for text, tone in line])
    return grades


class LinePlace(msgspec.Struct, frozen=True):
    """Place of a line, counted from the top, and its character."""

    line: int
    rule: str


def line_place(share: float, height: int, glyphs: Glyphs) -> LinePlace | None:
    """The place of a line at `share` of the height; None if that is above it."""
    if not 0.0 < share <= 1.0:
        return None
    rules = _RULES[glyphs]
    steps = height * len(rules)
    step = min(steps - 1, int(share * steps))
    return LinePlace(height - 1 - step // len(rules), rules[step % len(rules)])


def ruled(lines: list[list[Piece]], place: LinePlace | None) -> list[list[Piece]]:
    """The lines of an area with the line at `place` drawn through its blank cells; None: as they are."""
    if place is None:
        return lines
    return [*lines[: place.line], _across(lines[place.line], place.rule), *lines[place.line + 1 :]]


def with_label(lines: list[list[Piece]], place: LinePlace | None, label: str) -> list[list[Piece]]:
    """The lines of an area with a labelled line at `place`, in the first blank that has room for it; without room as
    they are."""
    if place is None:
        return lines
    line = lines[place.line]
    text = "".join(piece for piece, _ in line)
    blank = re.search(f" {{{len(label) + _LABEL_MARGIN},}}", text)
    if blank is None:
        return lines
    rest = place.rule * (blank.end() - blank.start() - len(label) - 3)
    pieces = [*_cells_between(line, 0, blank.start()), (place.rule, "border"), (f" {label} ", "hint"), (rest, "border")]
    pieces += _cells_between(line, blank.end(), len(text))
    return [*lines[: place.line], pieces, *lines[place.line + 1 :]]


def _cells_between(line: list[Piece], start: int, end: int) -> list[Piece]:
    """The cells of a line from `start` to before `end`."""
    pieces: list[Piece] = []
    column = 0
    for text, tone in line:
        part = text[max(0, start - column) : max(0, end - column)]
        if part:
            pieces.append((part, tone))
        column += len(text)
    return pieces


def _across(line: list[Piece], rule: str) -> list[Piece]:
    """A line with `rule` in each of its blank cells."""
    pieces: list[Piece] = []
    for text, tone in line:
        for part in _BLANKS.split(text):
            if part.isspace():
                pieces.append((rule * len(part), "border"))
            elif part:
                pieces.append((part, tone))
    return pieces

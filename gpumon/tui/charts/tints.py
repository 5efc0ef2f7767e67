"""Curves coloured by level, cell by cell, and the dim line at the value from which on they are no longer calm."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Final

import msgspec

from gpumon.tui.levels import WARM, LevelBounds
from gpumon.tui.line import Piece
from gpumon.tui.palette import SHADES, Glyphs, shaded

HOT_CURVE: Final = "hot"
"""Tone of a curve that is hot."""
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
        return HOT_CURVE
    if value >= level.warm:
        return WARM
    return calm


def tone_runs(values: Sequence[float], per_cell: int, level: LevelBounds, calm: str) -> list[TonedRun]:
    """The tones of all cells. `per_cell` values make a cell, which has the tone of the highest of them."""
    if not any(value >= level.warm for value in values):
        return [(len(values) // per_cell, calm)]
    runs: list[TonedRun] = []
    for start in range(0, len(values), per_cell):
        highest = max(values[start : start + per_cell], key=lambda value: -math.inf if math.isnan(value) else value)
        tone = tone_of_level(highest, level, calm)
        if runs and runs[-1][1] == tone:
            runs[-1] = (runs[-1][0] + 1, tone)
        else:
            runs.append((1, tone))
    return runs


def in_tones(text: str, runs: Sequence[TonedRun]) -> list[Piece]:
    """The text of a line in pieces, each in the tone of its run."""
    pieces: list[Piece] = []
    start = 0
    for length, tone in runs:
        pieces.append((text[start : start + length], tone))
        start += length
    return pieces


def shade_lines(lines: Sequence[list[Piece]]) -> list[list[Piece]]:
    """The lines of an area from the top down, each darker than the one above it."""
    height = len(lines)
    shaded_lines: list[list[Piece]] = []
    for number, line in enumerate(lines):
        shade = number * SHADES // height
        shaded_lines.append([(text, shaded(tone, shade)) for text, tone in line])
    return shaded_lines


class LinePlace(msgspec.Struct, frozen=True):
    """Place of a line, counted from the top, and its character."""

    line: int
    rule: str


def line_place(share: float, height: int, glyphs: Glyphs) -> LinePlace | None:
    """The place of a line at `share` of the height; None if that is above it, or nothing."""
    if not 0.0 < share <= 1.0:
        return None
    rules = _RULES[glyphs]
    steps = height * len(rules)
    step = min(steps - 1, int(share * steps))
    return LinePlace(height - 1 - step // len(rules), rules[step % len(rules)])


def with_rule(lines: list[list[Piece]], place: LinePlace | None) -> list[list[Piece]]:
    """The lines of an area with the line at `place` drawn through its blank cells; None: as they are."""
    if place is None:
        return lines
    return [*lines[: place.line], _fill_blanks(lines[place.line], place.rule), *lines[place.line + 1 :]]


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
    room = blank.end() - blank.start()
    rest = room - len(label) - (_LABEL_MARGIN - 1)
    pieces = [
        *_cells_between(line, 0, blank.start()),
        (place.rule, "border"),
        (f" {label} ", "hint"),
        (place.rule * rest, "border"),
        *_cells_between(line, blank.end(), len(text)),
    ]
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


def _fill_blanks(line: list[Piece], rule: str) -> list[Piece]:
    """A line with `rule` in each of its blank cells."""
    pieces: list[Piece] = []
    for text, tone in line:
        for part in _BLANKS.split(text):
            if part.isspace():
                pieces.append((rule * len(part), "border"))
            elif part:
                pieces.append((part, tone))
    return pieces

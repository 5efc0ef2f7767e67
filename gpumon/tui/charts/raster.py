"""Curves as characters: braille areas over several lines, and one-line sparks of eighth blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpumon.tui.line import Piece

Glyphs = dict[tuple[int, ...], str]
"""A cell's filled levels to its character."""
_LEFT: Final = (0x00, 0x40, 0x44, 0x46, 0x47)
_RIGHT: Final = (0x00, 0x80, 0xA0, 0xB0, 0xB8)
"""Braille dots of a column filled from below to 0..4."""
_BRAILLE: Final[Glyphs] = {
    (a, b): chr(0x2800 | left | right) if a or b else " "
    for a, left in enumerate(_LEFT)
    for b, right in enumerate(_RIGHT)
}
_EIGHTHS: Final = " ▁▂▃▄▅▆▇█"
_BLOCKS: Final[Glyphs] = {(at,): block for at, block in enumerate(_EIGHTHS)}

Values = Sequence[float]
"""Shares of the full height, oldest first; NaN is a gap."""
Layer = tuple[Values, str]
"""A curve and its tone."""


def spark(values: Values) -> str:
    """One line; a zero keeps the baseline, a gap is blank."""
    return "".join([_EIGHTHS[level(value, 8)] for value in values])


def level(value: float, most: int) -> int:
    """Height of a share in steps of 1/`most`: 0 only for a gap, so that a zero and nothing differ."""
    return 0 if value != value else max(1, round(max(0.0, min(value, 1.0)) * most))


def area(layers: Sequence[Layer], height: int, *, blocks: bool = False) -> list[list[Piece]]:
    """Lines from the top down. The first layer is in front: its area covers that of the next, which shows above it.

    In braille two values make a cell, with `blocks` one. One or two layers.
    """
    per_line = 8 if blocks else 4
    glyphs, step = (_BLOCKS, 1) if blocks else (_BRAILLE, 2)
    most = height * per_line
    levels = [[level(value, most) for value in values] for values, _ in layers]
    lines = []
    for low in range(most - per_line, -1, -per_line):
        clamp = [0] * low + list(range(per_line + 1)) + [per_line] * most
        fills = [_columns([clamp[at] for at in front], step) for front in levels]
        if len(fills) > 1:
            lines.append(_two(fills, layers, glyphs))
        else:
            lines.append([("".join([glyphs[fill] for fill in fills[0]]), layers[0][1])])
    return lines


def _columns(values: list[int], step: int) -> list[tuple[int, ...]]:
    """The values of each cell."""
    return list(zip(*[values[first::step] for first in range(step)], strict=True))


def _two(fills: list[list[tuple[int, ...]]], layers: Sequence[Layer], glyphs: Glyphs) -> list[Piece]:
    """A line of two layers: filled to the higher one, in the front tone where that fills at least half of the dots."""
    pieces: list[Piece] = []
    for front, back in zip(*fills, strict=True):
        top = back if back >= front else tuple(map(max, front, back))
        glyph = glyphs[top]
        tone = layers[0 if 2 * sum(front) >= sum(top) else 1][1]
        if pieces and (tone == pieces[-1][1] or glyph == " "):
            pieces[-1] = (pieces[-1][0] + glyph, pieces[-1][1])
        else:
            pieces.append((glyph, tone))
    return pieces

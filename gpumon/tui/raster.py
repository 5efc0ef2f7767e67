"""Curves as characters: braille areas over several lines, and one-line sparks of eighth blocks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from gpumon.tui.line import Piece

_LEFT: Final = (0x00, 0x40, 0x44, 0x46, 0x47)
_RIGHT: Final = (0x00, 0x80, 0xA0, 0xB0, 0xB8)
"""Braille dots of a column filled from below to 0..4."""
_EIGHTHS: Final = " ▁▂▃▄▅▆▇█"

Values = Sequence[float]
"""Shares of the full height, oldest first; NaN is a gap."""
Layer = tuple[Values, str]
"""A curve and its tone."""


def spark(values: Values) -> str:
    """One line; a zero keeps the baseline, a gap is blank."""
    return "".join([_EIGHTHS[level(value, 8)] for value in values])


def level(value: float, most: int) -> int:
    """Height of a share in steps of 1/`most`: 0 only for a gap, so that a zero and nothing differ."""
    return 0 if value != value else max(1, min(most, round(value * most)))


def area(layers: Sequence[Layer], height: int, *, blocks: bool = False) -> list[list[Piece]]:
    """Lines from the top down. The first layer is in front: its area covers that of the next, which shows above it.

    In braille two values make a cell, with `blocks` one.
    """
    step = 1 if blocks else 2
    per_line = 8 if blocks else 4
    levels = [tuple(level(value, height * per_line) for value in values) for values, _ in layers]
    tones = tuple(tone for _, tone in layers)
    lines = []
    for line in range(height - 1, -1, -1):
        low = line * per_line
        cells = [
            _cell(tuple(_inside(front[at : at + step], low, per_line) for front in levels), tones)
            for at in range(0, len(levels[0]), step)
        ]
        lines.append(_joined(cells))
    return lines


def _inside(heights: Sequence[int], low: int, most: int) -> tuple[int, ...]:
    return tuple([min(max(height - low, 0), most) for height in heights])


@lru_cache(maxsize=4096)
def _cell(fills: tuple[tuple[int, ...], ...], tones: tuple[str, ...]) -> Piece:
    """One character: dots up to the highest layer, in the tone of the front layer that fills at least half of them."""
    top = tuple(max(column) for column in zip(*fills, strict=True))
    total = sum(top)
    tone = next((tone for fill, tone in zip(fills, tones, strict=True) if 2 * sum(fill) >= total), tones[-1])
    if not total:
        return " ", tone
    if len(top) == 1:
        return _EIGHTHS[top[0]], tone
    return chr(0x2800 | _LEFT[top[0]] | _RIGHT[top[1]]), tone


def _joined(cells: Sequence[Piece]) -> list[Piece]:
    pieces: list[Piece] = []
    for text, tone in cells:
        if pieces and (tone == pieces[-1][1] or text == " "):
            pieces[-1] = (pieces[-1][0] + text, pieces[-1][1])
        else:
            pieces.append((text, tone))
    return pieces


def nice(most: float) -> float:
    """The smallest of 1, 2, 5 x 10^n that is at least `most`; 1 for nothing."""
    if not 0.0 < most < 1e300:
        return 1.0
    size = 1.0
    while size > most:
        size /= 10.0
    while size * 10.0 < most:
        size *= 10.0
    return next(size * factor for factor in (1.0, 2.0, 5.0, 10.0) if size * factor >= most)

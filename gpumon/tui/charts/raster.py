"""Curves as characters: areas over several lines in braille, blocks or ASCII, and one-line sparks of eighth blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from gpumon.tui.line import Piece
from gpumon.tui.palette import Glyphs

_Values = Sequence[float]
"""Shares of the full height, oldest first; NaN is a gap."""
RasterLayer = tuple[_Values, str]
"""A curve and its tone."""


class Raster(NamedTuple):
    """How fine the characters of one kind draw."""

    values_per_cell: int
    """Columns of dots that a cell has: each shows a value."""
    steps_per_line: int
    """Heights that a line can show, above nothing."""


RASTERS: Final[dict[Glyphs, Raster]] = {
    "braille": Raster(values_per_cell=2, steps_per_line=4),
    "blocks": Raster(values_per_cell=1, steps_per_line=8),
    "ascii": Raster(values_per_cell=1, steps_per_line=3),
}
_LEFT: Final = (0x00, 0x40, 0x44, 0x46, 0x47, 0x47)
_RIGHT: Final = (0x00, 0x80, 0xA0, 0xB0, 0xB8, 0xB8)
"""Braille dots of a column filled from below to 0..4."""
_LIGHT_LEFT: Final = (0x00, 0x40, 0x44, 0x42, 0x43, 0x42)
_LIGHT_RIGHT: Final = (0x00, 0x80, 0x20, 0x30, 0x28, 0x28)
"""Every second dot, and the topmost: a layer behind another differs from it without colour, too."""
_EIGHTHS: Final = " ▁▂▃▄▅▆▇█"
_FRONT: Final[dict[Glyphs, str]] = {"blocks": _EIGHTHS + "█", "ascii": " .:##"}
_BEHIND: Final[dict[Glyphs, str]] = {"blocks": " ▁░░░▒▒▒▒▒", "ascii": " -==="}
CURVE_KEYS: Final[dict[Glyphs, tuple[str, str]]] = {"braille": ("⣿", "⡪"), "blocks": ("█", "▒"), "ascii": ("#", "=")}
"""A full cell of the front layer, and of the one behind."""


def spark(values: _Values) -> str:
    """One line; a zero keeps the baseline, a gap is blank."""
    return "".join([_EIGHTHS[height_steps(value, 8)] for value in values])


def height_steps(value: float, most: int) -> int:
    """Height of a share in steps of 1/`most`: 0 only for a gap and 1 only for a zero, so that nothing, zero and little
    differ."""
    if value != value:
        return 0
    if value <= 0.0:
        return 1
    if value >= 1.0:
        return max(2, most)
    steps = round(value * most)
    if steps > 2:
        return steps
    return 2


def area(layers: Sequence[RasterLayer], height: int, glyphs: Glyphs = "braille") -> list[list[Piece]]:
    """Lines from the top down. The first layer is in front: its area covers that of the next, which shows above it.

    One or two layers; in braille two values make a cell.
    """
    live, steps = RASTERS[glyphs]
    most = height * steps
    levels = []
    for values, _ in layers:
        levels.append([height_steps(value, most) for value in values])
    nothing: list[list[int]] = []
    if len(levels) == 1:
        nothing = [[0] * len(levels[0][first::live]) for first in range(live)]
    cells = _CELLS[glyphs]
    lines = []
    for low in range(most - steps, -1, -steps):
        clamp = [0] * low + list(range(steps + 1)) + [steps + 1] * most
        line = []
        for layer in levels:
            for first in range(live):
                line.append([clamp[fill] for fill in layer[first::live]])
        drawn = [cells[cell] for cell in zip(*line, *nothing, strict=True)]
        lines.append(_pieces(drawn, layers))
    return lines


def _pieces(cells: Sequence[tuple[str, int]], layers: Sequence[RasterLayer]) -> list[Piece]:
    """Characters and the layers that they belong to, joined; a blank takes the tone before it."""
    if len(layers) == 1:
        return [("".join([glyph for glyph, _ in cells]), layers[0][1])]
    pieces: list[Piece] = []
    for glyph, layer in cells:
        tone = layers[layer][1]
        if pieces and (glyph == " " or tone == pieces[-1][1]):
            pieces[-1] = (pieces[-1][0] + glyph, pieces[-1][1])
        else:
            pieces.append((glyph, tone))
    return pieces


def _braille(a: int, b: int, c: int, d: int) -> tuple[str, int]:
    """The cell of two columns, in front filled to `a` and `b`, behind to `c` and `d`, and the layer it belongs to."""
    dots = _LEFT[a] | _RIGHT[b]
    if c > a:
        dots |= _LIGHT_LEFT[c]
    if d > b:
        dots |= _LIGHT_RIGHT[d]
    glyph = " "
    if dots:
        glyph = chr(0x2800 | dots)
    is_front = 2 * (a + b) >= max(a, c) + max(b, d)
    return glyph, 0 if is_front else 1


def _single(glyphs: Glyphs, front: int, behind: int) -> tuple[str, int]:
    """A cell in which the front layer ends and the one behind goes on belongs to the one that takes more of it."""
    fronts = _FRONT[glyphs]
    behinds = _BEHIND[glyphs]
    shows = front >= behind or front > len(fronts) // 2 - 1
    return (fronts[front], 0) if shows else (behinds[behind], 1)


class _Cells(dict[tuple[int, ...], tuple[str, int]]):
    """How far the layers fill the columns of a cell -> its character and its layer; made when first drawn."""

    def __init__(self, draw: Callable[..., tuple[str, int]]) -> None:
        super().__init__()
        self._draw = draw

    def __missing__(self, fills: tuple[int, ...]) -> tuple[str, int]:
        cell = self[fills] = self._draw(*fills)
        return cell


_CELLS: Final[dict[Glyphs, _Cells]] = {
    "braille": _Cells(_braille),
    "blocks": _Cells(partial(_single, "blocks")),
    "ascii": _Cells(partial(_single, "ascii")),
}

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
_BRAILLE: Final = 0x2800
"""The character without dots; a dot is a bit."""
_LEFT: Final = (0x00, 0x40, 0x44, 0x46, 0x47, 0x47)
_RIGHT: Final = (0x00, 0x80, 0xA0, 0xB0, 0xB8, 0xB8)
"""Braille dots of the left and the right column of a cell that is filled from below to height 0..4; the last entry is
for a curve that ends above the cell."""
_LIGHT_LEFT: Final = (0x00, 0x40, 0x44, 0x42, 0x43, 0x42)
_LIGHT_RIGHT: Final = (0x00, 0x80, 0x20, 0x30, 0x28, 0x28)
"""The same of a layer behind another, with every second dot, and the topmost: it differs without colour, too."""
_EIGHTHS: Final = " ▁▂▃▄▅▆▇█"
"""A cell that is filled to so many eighths."""
_FRONT: Final[dict[Glyphs, str]] = {"blocks": _EIGHTHS + "█", "ascii": " .:##"}
_BEHIND: Final[dict[Glyphs, str]] = {"blocks": " ▁░░░▒▒▒▒▒", "ascii": " -==="}
"""A cell that the front layer, or the one behind it, fills to so many steps; the last one is for a curve that ends
above the cell."""
CURVE_KEYS: Final[dict[Glyphs, tuple[str, str]]] = {"braille": ("⣿", "⡪"), "blocks": ("█", "▒"), "ascii": ("#", "=")}
"""A full cell of the front layer, and of the one behind."""


def spark(values: _Values) -> str:
    """The values, which are shares of the full height, as one line; a zero keeps the baseline, a gap is blank."""
    return "".join([_EIGHTHS[height_steps(value, len(_EIGHTHS) - 1)] for value in values])


def height_steps(value: float, most: int) -> int:
    """Height of a share in steps of 1/`most`: 0 only for a gap and 1 only for a zero, so that nothing, zero and little
    differ."""
    if value != value:  # a gap: NaN is not equal to itself
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
    per_cell, steps = RASTERS[glyphs]
    most = height * steps
    heights_of_layers = [[height_steps(value, most) for value in values] for values, _ in layers]
    layer_behind: list[list[int]] = []
    if len(layers) == 1:  # a cell is cells_of_line of two layers: the one behind is empty then
        layer_behind = [[0] * len(heights_of_layers[0][first::per_cell]) for first in range(per_cell)]
    cells = _CELLS[glyphs]
    lines = []
    for low in range(most - steps, -1, -steps):
        # Height on the whole chart -> height within this line, one step more for a curve that ends above it.
        height_in_line = [0] * low + list(range(steps + 1)) + [steps + 1] * most
        columns_of_dots = []
        for heights in heights_of_layers:
            for first in range(per_cell):
                columns_of_dots.append([height_in_line[height] for height in heights[first::per_cell]])
        cells_of_line = [cells[fills] for fills in zip(*columns_of_dots, *layer_behind, strict=True)]
        lines.append(_join_cells(cells_of_line, layers))
    return lines


def _join_cells(cells: Sequence[tuple[str, int]], layers: Sequence[RasterLayer]) -> list[Piece]:
    """Characters in the tones of the layers (by number) that they belong to, neighbours of one tone as one piece; a
    blank takes the tone before it."""
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


def _braille_cell(left: int, right: int, left_behind: int, right_behind: int) -> tuple[str, int]:
    """The character of a cell whose two columns are filled to these heights, and the layer whose tone it has."""
    dots = _LEFT[left] | _RIGHT[right]
    if left_behind > left:
        dots |= _LIGHT_LEFT[left_behind]
    if right_behind > right:
        dots |= _LIGHT_RIGHT[right_behind]
    glyph = chr(_BRAILLE | dots) if dots else " "
    # The layer in front has the tone where it has at least half of the dots.
    is_front = 2 * (left + right) >= max(left, left_behind) + max(right, right_behind)
    layer = 0 if is_front else 1
    return glyph, layer


def _one_column_cell(glyphs: Glyphs, front: int, behind: int) -> tuple[str, int]:
    """The character of a cell that the layers fill to these heights, and the layer whose tone it has.

    Where the front layer ends in it and the one behind goes on, it shows the one that takes more of it.
    """
    front_glyphs = _FRONT[glyphs]
    is_half_full = front > len(front_glyphs) // 2 - 1
    if front >= behind or is_half_full:
        return front_glyphs[front], 0
    return _BEHIND[glyphs][behind], 1


class _Cells(dict[tuple[int, ...], tuple[str, int]]):
    """How far the layers fill the columns of a cell -> its character and its layer; made when first drawn."""

    def __init__(self, draw: Callable[..., tuple[str, int]]) -> None:
        super().__init__()
        self._draw = draw

    def __missing__(self, fills: tuple[int, ...]) -> tuple[str, int]:
        cell = self[fills] = self._draw(*fills)
        return cell


_CELLS: Final[dict[Glyphs, _Cells]] = {
    "braille": _Cells(_braille_cell),
    "blocks": _Cells(partial(_one_column_cell, "blocks")),
    "ascii": _Cells(partial(_one_column_cell, "ascii")),
}

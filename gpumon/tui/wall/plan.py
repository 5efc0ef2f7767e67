"""Places of the tiles of the wall: the largest form of which all tiles fit, else the smallest, which scrolls."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec

_MOST_LABEL: Final = 20
"""Cells of a host's name beside its tiles, at most."""
_LEAST_LABEL: Final = 6
"""The same, at least."""
_MOST_ACROSS: Final = 16
"""Tiles of a host in one line beside its name, at most."""
_MOST_FEWER: Final = 2
"""A line may have so many times fewer tiles than fit where that makes all lines equally long."""
_FEW_LINES: Final = 10
"""Lines that the wall takes among other panes, at most, where a smaller form needs no more."""


class TileForm(msgspec.Struct, frozen=True):
    """How large a tile is: cells and lines, the gap to the next one included.

    A tile has its least size until all fit, then it is stretched, up to its greatest.
    """

    name: str
    width: int
    height: int
    most_width: int
    most_height: int


CARD: Final = TileForm("card", 19, 8, 60, 30)
"""The figure, the other figures as bars, the engine, the state and a chart."""
BOX: Final = TileForm("box", 13, 3, 24, 4)
"""Number and state, figure, engine."""
LINE: Final = TileForm("line", 13, 1, 24, 1)
"""Number, figure, state."""
NUMBER_TILE: Final = TileForm("number", 6, 1, 6, 1)
"""Mark and figure."""
PAIR: Final = TileForm("pair", 3, 1, 3, 1)
"""Mark and digit."""
DOT: Final = TileForm("dot", 1, 1, 1, 1)
"""A digit, or the mark in its place."""
_FORMS: Final = (CARD, BOX, LINE, NUMBER_TILE, PAIR, DOT)
"""The largest first."""
_BESIDE: Final = (NUMBER_TILE, PAIR, DOT)
"""Forms of which the tiles of a host stand beside its name, and not below."""


class TilePlace(msgspec.Struct, frozen=True):
    """Place of the first cell of a tile."""

    line: int
    column: int


class Label(msgspec.Struct, frozen=True):
    """The name of a host on the wall."""

    line: int
    column: int
    width: int
    group: int
    """Number of the host among all."""


class WallPlan(msgspec.Struct, frozen=True):
    """The tiles of a wall, in their order."""

    form: TileForm
    width: int
    height: int
    """Cells and lines of a tile, the gap to the next one included."""
    places: tuple[TilePlace, ...]
    """Place of each tile."""
    labels: tuple[Label, ...]
    """Names of the hosts; none on the wall of one machine."""
    lines: int
    """Lines of the whole wall."""

    def beside(self, tile: int, lines: int) -> int:
        """The tile that stands `lines` rows of tiles below a tile (above it where that is negative), in the nearest
        column."""
        starts = sorted({place.line for place in self.places})
        own = self.places[tile]
        line = starts[max(0, min(len(starts) - 1, starts.index(own.line) + lines))]
        in_line = [number for number, place in enumerate(self.places) if place.line == line]
        return min(in_line, key=lambda number: abs(self.places[number].column - own.column))

    def tile_at(self, line: int, column: int) -> int | None:
        """The tile at a cell; None where there is none."""
        for number, place in enumerate(self.places):
            if 0 <= line - place.line < self.height and 0 <= column - place.column < self.width:
                return number
        return None


@lru_cache(maxsize=32)
def wall_plan(sizes: tuple[int, ...], label: int, width: int, room: int) -> WallPlan:
    """The places of all tiles in `room` lines of `width` cells.

    `sizes`: number of GPUs of each host. `label`: cells of the longest name of a host; 0 where no names are shown.
    """
    for form in _FORMS:
        plan = _stretched_plan(sizes, label, width, room, form)
        if plan is not None and plan.lines <= room:
            return plan
    return _plan_in_form(sizes, label, width, DOT, DOT.height)


def lines_wanted(gpus: int, width: int) -> int:
    """Lines that the wall of one machine takes among other panes."""
    for form in (LINE, NUMBER_TILE, PAIR):
        lines = -(-gpus // _even_across(max(1, gpus), max(1, width // form.width)))
        if lines <= _FEW_LINES:
            return lines
    return _FEW_LINES


def _stretched_plan(sizes: tuple[int, ...], label: int, width: int, room: int, form: TileForm) -> WallPlan | None:
    """All tiles in one form, stretched over the lines that there are; None where not even one tile has room."""
    if form.width > width:
        return None
    least = _plan_in_form(sizes, label, width, form, form.height)
    if least.lines > room or form.height == form.most_height:
        return least
    headings = len(sizes) if label else 0  # lines with the names of hosts
    rows = (least.lines - headings) // form.height
    height = min(form.most_height, (room - headings) // rows)
    return _plan_in_form(sizes, label, width, form, height)


def _plan_in_form(sizes: tuple[int, ...], label: int, width: int, form: TileForm, height: int) -> WallPlan:
    """The places of all tiles in one form, `height` lines each, however many lines that takes in all."""
    if label and form in _BESIDE:
        return _plan_beside_names(sizes, label, width, form)
    return _plan_below_names(sizes, label, width, form, height)


def _plan_below_names(sizes: Sequence[int], label: int, width: int, form: TileForm, height: int) -> WallPlan:
    """The tiles of each host below its name, over the whole width."""
    across = _even_across(max(sizes), max(1, width // form.width))
    cells = min(form.most_width, width // across)
    places: list[TilePlace] = []
    labels: list[Label] = []
    line = 0
    for group, size in enumerate(sizes):
        if label:
            labels.append(Label(line, 0, width, group))
            line += 1
        places += [TilePlace(line + tile // across * height, tile % across * cells) for tile in range(size)]
        line += -(-size // across) * height
    return WallPlan(form, cells, height, tuple(places), tuple(labels), line)


def _plan_beside_names(sizes: Sequence[int], label: int, width: int, form: TileForm) -> WallPlan:
    """The tiles of each host beside its name, as many hosts side by side as fit."""
    name = max(_LEAST_LABEL, min(label, _MOST_LABEL, width - 2 - form.width))
    tiles = min(max(sizes), _MOST_ACROSS, max(1, (width - name - 2) // form.width))
    least_block = name + 1 + tiles * form.width + 1  # a blank behind the name, and one behind the tiles
    across = max(1, width // least_block)
    block = width // across
    places: list[TilePlace] = []
    labels: list[Label] = []
    line = 0
    for first in range(0, len(sizes), across):
        beside = sizes[first : first + across]
        for number, size in enumerate(beside):
            left = number * block
            labels.append(Label(line, left, name, first + number))
            first_cell = left + name + 1
            places += [TilePlace(line + tile // tiles, first_cell + tile % tiles * form.width) for tile in range(size)]
        line += max(-(-size // tiles) for size in beside)
    return WallPlan(form, form.width, 1, tuple(places), tuple(labels), line)


def _even_across(tiles: int, fits: int) -> int:
    """Tiles in a line: as many as fit, or fewer where all lines then have the same number, or nearly so."""
    if tiles <= fits:
        return tiles
    for across in range(fits, fits // _MOST_FEWER, -1):
        if tiles % across == 0:
            return across
    lines = -(-tiles // fits)
    return -(-tiles // lines)

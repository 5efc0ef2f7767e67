"""Places of the tiles of the wall: the largest form of which all tiles fit, else the smallest, which scrolls."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec

LEAST_STRIP_CELLS: Final = 5
"""Cells from which on a strip says something."""
_MOST_LABEL: Final = 20
"""Cells of a host's name beside its tiles, at most."""
_LEAST_LABEL: Final = 6
"""Cells of a host's name beside its tiles, at least."""
_MOST_ACROSS: Final = 16
"""Tiles of a host in one line beside its name, at most."""
_BLANKS_OF_HOST: Final = 2
"""A blank behind a host's name, and one behind its tiles."""
_LEAST_STRIPS: Final = 2 * LEAST_STRIP_CELLS + 2
"""Cells of both strips of a host, at least, with the blanks behind them."""
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
    """Its least cells and lines."""
    most_width: int
    most_height: int


CARD: Final = TileForm("card", width=19, height=8, most_width=200, most_height=60)
"""The figure, the other figures as bars, the engine, the state and a chart."""
BOX: Final = TileForm("box", width=13, height=3, most_width=24, most_height=4)
"""Number and state, figure, engine."""
STRIP: Final = TileForm("strip", width=18, height=1, most_width=200, most_height=1)
"""Number, figure, state, and the last five minutes as a strip."""
LINE: Final = TileForm("line", width=13, height=1, most_width=24, most_height=1)
"""Number, figure, state."""
SHORT_LINE: Final = TileForm("short line", width=9, height=1, most_width=12, most_height=1)
"""Number, figure, mark."""
NUMBER_TILE: Final = TileForm("number", width=6, height=1, most_width=6, most_height=1)
"""Mark and figure."""
PAIR: Final = TileForm("pair", width=3, height=1, most_width=3, most_height=1)
"""Mark and digit."""
DOT: Final = TileForm("dot", width=1, height=1, most_width=1, most_height=1)
"""A digit, or the mark in its place."""
_FORMS: Final = (CARD, BOX, LINE, SHORT_LINE, NUMBER_TILE, PAIR, DOT)
"""The largest first."""
_FORMS_BESIDE_NAMES: Final = (NUMBER_TILE, PAIR, DOT)
"""Forms of which the tiles of a host stand beside its name, and not below."""


class TilePlace(msgspec.Struct, frozen=True):
    """Place of the first cell of a tile."""

    line: int
    column: int


class Label(msgspec.Struct, frozen=True):
    """The place of a host's name on the wall, or of its strips."""

    line: int
    column: int
    width: int
    group: int
    """Number of the host among all."""


class WallPlan(msgspec.Struct, frozen=True):
    """The tiles of a wall, in their order."""

    form: TileForm
    width: int
    """Cells of a tile, the gap to the next one included."""
    height: int
    """Lines of a tile, the gap to the next one included."""
    places: tuple[TilePlace, ...]
    """Place of each tile."""
    labels: tuple[Label, ...]
    """Names of the hosts; none on the wall of one machine."""
    lines: int
    """Lines of the whole wall."""
    strips: tuple[Label, ...] = ()
    """Places of the strips of the hosts."""

    def beside(self, tile: int, lines: int) -> int:
        """The tile that stands `lines` rows of tiles below a tile (above it where that is negative), in the nearest
        column."""
        lines_of_tiles = sorted({place.line for place in self.places})
        own_place = self.places[tile]
        row = lines_of_tiles.index(own_place.line) + lines
        line = lines_of_tiles[max(0, min(len(lines_of_tiles) - 1, row))]
        tiles_in_line = [number for number, place in enumerate(self.places) if place.line == line]
        return min(tiles_in_line, key=lambda number: abs(self.places[number].column - own_place.column))

    def tile_at(self, line: int, column: int) -> int | None:
        """The tile at a cell; None where there is none."""
        for number, place in enumerate(self.places):
            if 0 <= line - place.line < self.height and 0 <= column - place.column < self.width:
                return number
        return None


@lru_cache(maxsize=32)
def wall_plan(sizes: tuple[int, ...], label_cells: int, width: int, room: int, *, strips: bool = False) -> WallPlan:
    """The places of all tiles in `room` lines of `width` cells.

    `sizes`: number of GPUs of each host. `label_cells`: cells of the longest name of a host; 0: no names are shown.
    `strips`: GPUs that have no card have a strip where all of these fit; with names each host has its strips.
    """
    for form in _FORMS:
        if form is BOX and strips and not label_cells:
            plan_of_strips = _strip_plan(sum(sizes), width, room)
            if plan_of_strips is not None:
                return plan_of_strips
        plan = _stretched_plan(sizes, label_cells, width, room, form)
        if plan is not None and plan.lines <= room:
            return _with_host_strips(plan, sizes, label_cells, width, room) if strips and label_cells else plan
    return _plan_in_form(sizes, label_cells, width, DOT, DOT.height)


def _strip_plan(tiles: int, width: int, room: int) -> WallPlan | None:
    """A strip for each tile, as few in a line as fit; None where they have no room."""
    if room < 1:
        return None
    across = math.ceil(tiles / room)
    if width // across < STRIP.width:
        return None
    return _plan_below_names((tiles,), 0, width, STRIP, STRIP.height, across)


def _with_host_strips(plan: WallPlan, sizes: tuple[int, ...], label_cells: int, width: int, room: int) -> WallPlan:
    """A plan with hosts, and their strips behind their names or their tiles, as long as the lines allow."""
    if plan.form not in _FORMS_BESIDE_NAMES:
        name_cells = max(_LEAST_LABEL, min(label_cells, _MOST_LABEL))
        labels = []
        strips = []
        for place in plan.labels:
            labels.append(msgspec.structs.replace(place, width=name_cells))
            room_of_strips = width - name_cells - 1
            strips.append(Label(place.line, name_cells + 1, room_of_strips, group=place.group))
        return msgspec.structs.replace(plan, labels=tuple(labels), strips=tuple(strips))
    for across in range(1, len(sizes) + 1):
        longer = _plan_beside_names(sizes, label_cells, width, plan.form, across)
        if longer.lines <= room:
            return longer
    return plan


def lines_wanted(gpus: int, width: int) -> int:
    """Lines that the wall of one machine takes among other panes."""
    for form in (LINE, SHORT_LINE, NUMBER_TILE, PAIR):
        lines = math.ceil(gpus / _even_across(max(1, gpus), max(1, width // form.width)))
        if lines <= _FEW_LINES:
            return lines
    return _FEW_LINES


def _stretched_plan(sizes: tuple[int, ...], label_cells: int, width: int, room: int, form: TileForm) -> WallPlan | None:
    """All tiles in one form, stretched over the lines that there are; None where not even one tile has room."""
    if form.width > width:
        return None
    least = _plan_in_form(sizes, label_cells, width, form, form.height)
    if least.lines > room or form.height == form.most_height:
        return least
    headings = len(sizes) if label_cells else 0  # lines with the names of hosts
    if form is CARD and not label_cells:
        across = _cards_across(sum(sizes), width, room)
        height = min(form.most_height, room // math.ceil(sum(sizes) / across))
        return _plan_below_names(sizes, label_cells, width, form, height, across)
    rows = (least.lines - headings) // form.height
    height = min(form.most_height, (room - headings) // rows)
    return _plan_in_form(sizes, label_cells, width, form, height)


def _cards_across(tiles: int, width: int, room: int) -> int:
    """Cards in a line: those that leave the fewest places of `room` lines empty, and of these the ones nearest to
    square; a cell is twice as high as wide."""

    def badness(across: int) -> tuple[int, float]:
        rows = math.ceil(tiles / across)
        return across * rows - tiles, abs(width / across - 2.0 * (room // rows))

    fits = [
        across
        for across in range(1, min(tiles, width // CARD.width) + 1)
        if math.ceil(tiles / across) * CARD.height <= room
    ]
    return min(fits, key=badness)


def _plan_in_form(sizes: tuple[int, ...], label_cells: int, width: int, form: TileForm, height: int) -> WallPlan:
    """The places of all tiles in one form, `height` lines each, however many lines that takes in all."""
    if label_cells and form in _FORMS_BESIDE_NAMES:
        return _plan_beside_names(sizes, label_cells, width, form)
    return _plan_below_names(sizes, label_cells, width, form, height)


def _plan_below_names(
    sizes: Sequence[int], label_cells: int, width: int, form: TileForm, height: int, across: int = 0
) -> WallPlan:
    """The tiles of each host below its name, over the whole width; `across`: so many in a line, 0: as many as fit."""
    across = across or _even_across(max(sizes), max(1, width // form.width))
    cells = min(form.most_width, width // across)
    places: list[TilePlace] = []
    labels: list[Label] = []
    line = 0
    for group, size in enumerate(sizes):
        if label_cells:
            labels.append(Label(line, 0, width, group=group))
            line += 1
        for tile in range(size):
            places.append(TilePlace(line + tile // across * height, tile % across * cells))
        line += math.ceil(size / across) * height
    return WallPlan(
        form=form,
        width=cells,
        height=height,
        places=tuple(places),
        labels=tuple(labels),
        lines=line,
    )


def _plan_beside_names(
    sizes: Sequence[int], label_cells: int, width: int, form: TileForm, fewer_across: int = 0
) -> WallPlan:
    """The tiles of each host beside its name, as many hosts side by side as fit; `fewer_across`: so many, with strips
    behind the tiles where they have room, 0: without."""
    name_cells = max(_LEAST_LABEL, min(label_cells, _MOST_LABEL, width - _BLANKS_OF_HOST - form.width))
    tiles_that_fit = max(1, (width - name_cells - _BLANKS_OF_HOST) // form.width)
    tiles_in_line = min(max(sizes), _MOST_ACROSS, tiles_that_fit)
    hosts_across = max(1, width // (name_cells + tiles_in_line * form.width + _BLANKS_OF_HOST))
    hosts_across = min(hosts_across, fewer_across) if fewer_across else hosts_across
    host_cells = width // hosts_across
    strip_column = name_cells + 1 + tiles_in_line * form.width + 1
    strip_cells = host_cells - strip_column - 1
    places: list[TilePlace] = []
    labels: list[Label] = []
    strips: list[Label] = []
    line = 0
    for first in range(0, len(sizes), hosts_across):
        sizes_beside = sizes[first : first + hosts_across]
        for number, size in enumerate(sizes_beside):
            name_column = number * host_cells
            labels.append(Label(line, name_column, name_cells, group=first + number))
            if fewer_across and strip_cells >= _LEAST_STRIPS:
                strips.append(Label(line, name_column + strip_column, strip_cells, group=first + number))
            tiles_column = name_column + name_cells + 1
            for tile in range(size):
                row_of_tile = line + tile // tiles_in_line
                places.append(TilePlace(row_of_tile, tiles_column + tile % tiles_in_line * form.width))
        line += math.ceil(max(sizes_beside) / tiles_in_line)  # the host with the most tiles
    return WallPlan(
        form=form,
        width=form.width,
        height=1,
        places=tuple(places),
        labels=tuple(labels),
        lines=line,
        strips=tuple(strips),
    )


def _even_across(tiles: int, fits: int) -> int:
    """Tiles in a line: as many as fit, or fewer where all lines then have the same number, or nearly so."""
    if tiles <= fits:
        return tiles
    for across in range(fits, fits // _MOST_FEWER, -1):
        if tiles % across == 0:
            return across
    lines = math.ceil(tiles / fits)
    return math.ceil(tiles / lines)

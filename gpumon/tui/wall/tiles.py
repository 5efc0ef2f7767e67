"""A tile of the wall as rows: in tints of the figure's hue, or where the terminal has none, with digits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from gpumon.readings.format import cells, cut, left, phrase, right, short
from gpumon.readings.missing import Missing
from gpumon.readings.snapshot import Gpu
from gpumon.readings.text import clean
from gpumon.tui.charts.raster import CURVE_KEYS
from gpumon.tui.line import Piece, Row, cells_of
from gpumon.tui.palette import HATCH, Glyphs, Palette, tint
from gpumon.tui.view import View
from gpumon.tui.wall.figures import WALL_FIGURES, CardCurve, WallFigure, step_of
from gpumon.tui.wall.plan import BOX, CARD, DOT, LINE, NUMBER_TILE, PAIR, TileForm, WallPlan

_CURSOR: Final = "badge_paused"
"""Tone of the tile under the cursor."""
_MARKS: Final = {"warn": "badge", "critical": "alarm", "alarm": "alarm"}
"""Tone of a state that is trouble -> tone of its mark."""
_NUMBER: Final = 4
"""Cells of a figure on a tile."""
_INDEX: Final = 3
_NAME: Final = 6
"""Cells of a figure's name on a card."""
_LEAST_CHART: Final = 1


class Tile(msgspec.Struct, frozen=True):
    """A GPU on the wall."""

    gpu: Gpu
    state: str
    """Its state in at most 11 cells, as in the table of GPUs."""
    tone: str
    host: str = ""
    """Empty where all GPUs are of one machine."""
    verdict: str = ""
    """The urgent verdict on it, in a sentence."""

    @property
    def mark(self) -> str:
        """Mark of trouble; a blank where there is none."""
        return self.state[:1] if self.tone in _MARKS else " "

    @property
    def word(self) -> str:
        """The state without its mark."""
        return self.state[1:].strip()


class TileSettings(msgspec.Struct, frozen=True):
    """Settings that all tiles of a wall share."""

    figure: WallFigure
    view: View
    palette: Palette
    chart: Callable[[Gpu, int, int], Sequence[Row]]
    """The past of the figure in so many cells and lines; without rows where it has none."""


def explain_tile(tile: Tile, look: TileSettings, room: int) -> list[Piece]:
    """The tile under the cursor, for the rule: host, GPU, figure, state, engine, verdict."""
    gpu = tile.gpu
    figure = look.figure
    value = figure.value(gpu)
    if isinstance(value, Missing):
        shown = phrase(value)
    else:
        shown = figure.text(value, look.view)
    state = tile.state.strip()
    if tile.verdict:
        state = f"{state}: {tile.verdict}"
    parts: list[Piece] = [
        (f"{clean(tile.host, 40)} gpu {gpu.index}".strip(), "strong"),
        (f"{figure.name} {shown}", "text"),
        (clean(" ".join(gpu.engines), 80) or "no engine", "text"),
        (clean(state, 200), tile.tone),
        (clean(gpu.name, 60).removeprefix("NVIDIA "), "muted"),
    ]
    if tile.mark != " ":
        parts[2], parts[3] = parts[3], parts[2]
    pieces: list[Piece] = []
    for text, tone in parts:
        if pieces:
            between = " · "
        else:
            between = ""
        text = cut(text, room - cells(between))
        if not text:
            continue
        pieces += [(between, "border"), (text, tone)]
        room -= cells(between) + cells(text)
    return pieces


def wall_rows(
    plan: WallPlan,
    tile_of: Callable[[int], Tile],
    names: Sequence[Piece],
    look: TileSettings,
    lines: range,
    cursor: int | None,
) -> list[Row]:
    """The lines in view. `names`: names of the hosts, by their number; `cursor`: the chosen tile."""
    parts: list[list[tuple[int, Row]]] = [[] for _ in lines]
    for label in plan.labels:
        if label.line in lines:
            name, tone = names[label.group]
            parts[label.line - lines.start].append((label.column, ((left(name, label.width), tone),)))
    for number, place in enumerate(plan.places):
        if place.line + plan.height <= lines.start or place.line >= lines.stop:
            continue
        rows = _DRAW[plan.form](tile_of(number), look, plan.width, plan.height, number == cursor)
        for down, row in enumerate(rows):
            if place.line + down in lines:
                parts[place.line + down - lines.start].append((place.column, row))
    return [_joined(row) for row in parts]


def _joined(parts: list[tuple[int, Row]]) -> Row:
    """Parts of a line at their columns, with blanks between them."""
    pieces: list[Piece] = []
    end = 0
    for column, row in sorted(parts, key=lambda part: part[0]):
        if column > end:
            pieces.append((" " * (column - end), "text"))
        pieces += row
        end = column + cells_of(row)
    return tuple(pieces)


def _ground(tile: Tile, look: TileSettings, cursor: bool) -> str:
    """Tone of a tile: the tint of its figure, the colour of its level where that is high, plain without a figure."""
    if cursor:
        return _CURSOR
    share = look.figure.share(tile.gpu, look.view)
    if isinstance(share, Missing):
        return "muted"
    high = look.figure.high_tone(tile.gpu, look.view)
    if high:
        return _MARKS[high]
    if look.palette.tinted:
        return tint(look.figure.hue, step_of(share))
    return "text"


def _mark(tile: Tile, ground: str) -> Piece:
    return tile.mark, _MARKS.get(tile.tone, ground)


def _digit(tile: Tile, look: TileSettings) -> str:
    """The tenth of the figure; hatched where it is not measured."""
    share = look.figure.share(tile.gpu, look.view)
    if isinstance(share, Missing):
        return HATCH
    return str(step_of(share))


def _figure(tile: Tile, look: TileSettings) -> str:
    """The figure in 4 cells; the reason where it is not measured, hatched cells where that has no room."""
    value = look.figure.value(tile.gpu)
    if not isinstance(value, Missing):
        return right(look.figure.short(tile.gpu, look.view), _NUMBER)
    why = short(value, _NUMBER)
    if len(why) < 2:
        return HATCH * _NUMBER
    return right(why, _NUMBER)


def _dot(tile: Tile, look: TileSettings, _width: int, _height: int, cursor: bool) -> list[Row]:
    ground = _ground(tile, look, cursor)
    mark = _mark(tile, ground)
    if mark[0] != " ":
        return [((mark[0], ground if cursor else mark[1]),)]
    return [((_digit(tile, look), ground),)]


def _pair(tile: Tile, look: TileSettings, _width: int, _height: int, cursor: bool) -> list[Row]:
    ground = _ground(tile, look, cursor)
    digit = _digit(tile, look)
    mark = _mark(tile, ground)
    if mark[0] == " " and digit == HATCH:
        mark = (HATCH, ground)
    return [(mark, (digit, ground))]


def _number(tile: Tile, look: TileSettings, _width: int, _height: int, cursor: bool) -> list[Row]:
    ground = _ground(tile, look, cursor)
    figure = _figure(tile, look)
    mark = _mark(tile, ground)
    if mark[0] == " " and figure.startswith(HATCH):
        mark = (HATCH, ground)
    return [(mark, (figure, ground))]


def _line(tile: Tile, look: TileSettings, width: int, _height: int, cursor: bool) -> list[Row]:
    ground = _ground(tile, look, cursor)
    index = right(str(tile.gpu.index), _INDEX)
    room = max(0, width - 1 - _INDEX - 1 - _NUMBER)
    text = ""
    if tile.mark != " ":
        text = cut(tile.word, room)
    elif cells(" ".join(tile.gpu.engines)) < room:
        text = clean(" " + " ".join(tile.gpu.engines), 60)
    return [((index, ground), (_figure(tile, look), ground), _mark(tile, ground), (left(text, room), ground))]


def _box(tile: Tile, look: TileSettings, width: int, height: int, cursor: bool) -> list[Row]:
    ground = _ground(tile, look, cursor)
    room = width - 1
    engines = clean(" ".join(tile.gpu.engines), 60)
    word = tile.word if tile.mark != " " else ""
    head: Row = (
        (f"{right(str(tile.gpu.index), _INDEX)} ", ground),
        _mark(tile, ground),
        (left(f" {word}", room - _INDEX - 2), ground),
    )
    figure = _figure(tile, look)
    filler = " "
    if figure.startswith(HATCH):
        filler = HATCH
    rows: list[Row] = [
        head,
        (((figure + filler * room)[:room], ground),),
        ((left(f" {engines}", room), ground),),
    ]
    return rows[:height]


def _card(tile: Tile, look: TileSettings, width: int, height: int, cursor: bool) -> list[Row]:
    """A head in the colour of the figure, the other figures as bars, and the past of the figure below."""
    ground = _ground(tile, look, cursor)
    room = width - 2
    engines = clean(" ".join(tile.gpu.engines), 60) or "no engine"
    figure = _figure(tile, look)
    name = cut(f" {tile.gpu.index} {look.figure.name}", room - _NUMBER - 3)
    head = f"{left(name, room - _NUMBER - 3)} {figure}"
    rows: list[Row] = [((head, ground), (" ", ground), _mark(tile, ground))]
    state = ""
    if room > 24 or tile.mark != " ":
        state = left(f" {tile.state}", min(room, 13))
    rows.append(((state, tile.tone), (left(f" {engines}", room - cells(state)), "text")))
    rows += [_bar(tile.gpu, other, look, room) for other in WALL_FIGURES[: max(0, height - 3)]]
    spare = height - 1 - len(rows)
    if spare >= _LEAST_CHART:
        rows += look.chart(tile.gpu, room, spare)[:spare]
    return rows[: height - 1]


def _bar(gpu: Gpu, figure: WallFigure, look: TileSettings, room: int) -> Row:
    """Name, figure and bar; hatched where it is not measured."""
    share = figure.share(gpu, look.view)
    size = max(0, room - _NAME - _NUMBER - 3)
    text = right(figure.short(gpu, look.view), _NUMBER)
    tone = figure.high_tone(gpu, look.view) or "text"
    name = (f" {left(figure.word or figure.name, _NAME)}", "muted")
    if isinstance(share, Missing):
        return (name, (text, "muted"), (f" {HATCH * size} ", "border"))
    filled = int(min(1.0, share) * size + 0.5)
    if share > 0.0:
        filled = max(1, filled)
    bar: Row = ((" " + "█" * filled, figure.hue), ("·" * (size - filled) + " ", "border"))
    return (name, (text, tone), *bar)


def card_legend(curves: Sequence[CardCurve], scale: str, width: int, glyphs: Glyphs) -> Row:
    """The line over a card's chart: its curves from the top down, and the scale where it fits."""
    pieces: list[Piece] = []
    for curve, key in reversed(list(zip(curves, CURVE_KEYS[glyphs], strict=False))):
        pieces += [(f" {key} ", curve.hue), (curve.name, "muted")]
    room = max(0, width - cells_of(pieces))
    if cells(scale) >= room:
        scale = ""
    pieces.append((right(scale, room), "hint"))
    return tuple(pieces)


_DRAW: Final[dict[TileForm, Callable[[Tile, TileSettings, int, int, bool], list[Row]]]] = {
    CARD: _card,
    BOX: _box,
    LINE: _line,
    NUMBER_TILE: _number,
    PAIR: _pair,
    DOT: _dot,
}

"""A tile of the wall as rows: in tints of the figure's hue, or where the terminal has none, with digits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from gpumon.readings.format import cells, cut, left, phrase, right, short
from gpumon.readings.missing import Missing
from gpumon.readings.process_words import program_title
from gpumon.readings.snapshot import Gpu
from gpumon.readings.text import clean
from gpumon.tui.charts.raster import CURVE_KEYS
from gpumon.tui.levels import CALM
from gpumon.tui.line import Piece, Row, cells_of
from gpumon.tui.palette import HATCH, Glyphs, Palette, tint
from gpumon.tui.table import is_absent
from gpumon.tui.view import View
from gpumon.tui.wall.figures import WALL_FIGURES, CardCurve, WallFigure, step_of
from gpumon.tui.wall.plan import BOX, CARD, DOT, LINE, NUMBER_TILE, PAIR, SHORT_LINE, STRIP, TileForm, WallPlan

_CURSOR_TONE: Final = "badge_paused"
"""Tone of the tile under the cursor."""
_TONES_OF_MARKS: Final = {"warn": "badge", "critical": "alarm", "alarm": "alarm"}
"""Tone of a state that is trouble -> tone of its mark."""
_FIGURE_CELLS: Final = 4
"""Cells of a figure on a tile."""
_STATE_ROOM: Final = 24
"""Cells of a card from which it has the state even if that is no trouble."""
_STATE_CELLS: Final = 13
"""Cells of the state on a card, at most."""
_MOST_ENGINES: Final = 60
"""Characters of the names of engines on a tile."""
_LEAST_WORD_CELLS: Final = 4
"""Cells in which a state that is cut still says something."""
_INDEX_CELLS: Final = 2
"""Cells of a GPU's number on a tile."""
_NAME_CELLS: Final = 6
"""Cells of a figure's name on a card."""
_ROOMY_STRIP: Final = 36
"""Cells from which on a strip leaves room for the state or the engine."""
_TEXT_BESIDE_STRIP: Final = 12
"""Cells of the state or the engine behind a strip, at least."""
_AROUND_STRIP: Final = 2
"""Blanks before a strip, and between it and the next tile."""
_LEAST_CHART_LINES: Final = 1
"""Lines that are left on a card, from which it has a chart."""


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
        if self.has_trouble:
            return self.state[:1]
        return " "

    @property
    def has_trouble(self) -> bool:
        """Whether its state is trouble."""
        return self.tone in _TONES_OF_MARKS

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
    strip: Callable[[Gpu, int], Row]
    """The last five minutes of the figure in so many cells; empty where it has none."""


def explain_tile(tile: Tile, settings: TileSettings, room: int) -> list[Piece]:
    """The tile under the cursor, for the rule: host, GPU, figure, state, engine, verdict; nothing where there is no
    room for its name."""
    gpu = tile.gpu
    figure = settings.figure
    value = figure.value(gpu)
    value_text = phrase(value) if isinstance(value, Missing) else figure.text(value, settings.view)
    state = tile.state.strip()
    if tile.verdict:
        state = f"{state}: {tile.verdict}"
    name: Piece = (f"{clean(tile.host, 40)} gpu {gpu.reading.index}".strip(), "strong")
    figure_piece: Piece = (f"{figure.name} {value_text}", "text")
    engines: Piece = (clean(" ".join(gpu.engines), 80) or "no engine", "text")
    state_piece: Piece = (clean(state, 200), tile.tone)
    gpu_type: Piece = (clean(gpu.reading.name, 60).removeprefix("NVIDIA "), "muted")
    if cells(name[0]) > room:
        return []
    parts = [name, figure_piece, engines, state_piece, gpu_type]
    if tile.has_trouble:
        parts = [name, figure_piece, state_piece, engines, gpu_type]
    pieces: list[Piece] = []
    for text, tone in parts:
        between = " · " if pieces else ""
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
    settings: TileSettings,
    lines: range,
    cursor: int | None,
    host_strips: Callable[[int, int], Row] = lambda _group, _cells: (),
) -> list[Row]:
    """The lines of a wall that are in view.

    `names`: names of the hosts, by their number; `lines`: numbers of the lines in view; `cursor`: the chosen tile;
    `host_strips`: the strips of a host, by its number, in so many cells.
    """
    parts: list[list[tuple[int, Row]]] = [[] for _ in lines]
    """For each line in view its parts, with the columns that they begin at."""
    for label in plan.labels:
        if label.line in lines:
            name, tone = names[label.group]
            parts[label.line - lines.start].append((label.column, ((left(name, label.width), tone),)))
    for strip in plan.strips:
        if strip.line in lines:
            parts[strip.line - lines.start].append((strip.column, host_strips(strip.group, strip.width)))
    for number, place in enumerate(plan.places):
        if place.line + plan.height <= lines.start or place.line >= lines.stop:
            continue
        rows = _DRAWINGS[plan.form](tile_of(number), settings, plan.width, plan.height, number == cursor)
        for down, row in enumerate(rows):
            if place.line + down in lines:
                parts[place.line + down - lines.start].append((place.column, row))
    return [_join_parts(row) for row in parts]


def _join_parts(parts: list[tuple[int, Row]]) -> Row:
    """Parts of a line at their columns, with blanks between them."""
    pieces: list[Piece] = []
    end = 0
    for column, row in sorted(parts, key=lambda part: part[0]):
        if column > end:
            pieces.append((" " * (column - end), "text"))
        pieces += row
        end = column + cells_of(row)
    return tuple(pieces)


def _tile_tone(tile: Tile, settings: TileSettings, cursor: bool) -> str:
    """Tone of a tile: the tint of its figure, the colour of its level where that is high, plain without a figure."""
    if cursor:
        return _CURSOR_TONE
    share = settings.figure.share(tile.gpu, settings.view)
    if isinstance(share, Missing):
        return "muted"
    high = settings.figure.high_tone(tile.gpu, settings.view)
    if high:
        return _TONES_OF_MARKS[high]
    if settings.palette.tinted:
        return tint(settings.figure.hue, step_of(share))
    return "text"  # where tints cannot be told apart, the digit says it


def _mark_of(tile: Tile, tile_tone: str) -> Piece:
    """The mark of trouble in its tone; a blank in the tone of the tile without trouble."""
    return tile.mark, _TONES_OF_MARKS.get(tile.tone, tile_tone)


def _digit_text(tile: Tile, settings: TileSettings) -> str:
    """The tenth of the figure; hatched where it is not measured."""
    share = settings.figure.share(tile.gpu, settings.view)
    if isinstance(share, Missing):
        return HATCH
    return str(step_of(share))


def _figure_text(tile: Tile, settings: TileSettings) -> str:
    """The figure in 4 cells; the reason where it is not measured, hatched cells where that has no room."""
    value = settings.figure.value(tile.gpu)
    if not isinstance(value, Missing):
        return right(settings.figure.short(tile.gpu, settings.view), _FIGURE_CELLS)
    why = short(value, _FIGURE_CELLS)
    if len(why) < 2:
        return HATCH * _FIGURE_CELLS
    return right(why, _FIGURE_CELLS)


def _draw_dot(tile: Tile, settings: TileSettings, _width: int, _height: int, cursor: bool) -> list[Row]:
    """A tile of one cell: its mark, else the digit of the figure."""
    tile_tone = _tile_tone(tile, settings, cursor)
    if not tile.has_trouble:
        return [((_digit_text(tile, settings), tile_tone),)]
    if cursor:
        return [((tile.mark, tile_tone),)]
    return [(_mark_of(tile, tile_tone),)]


def _draw_pair(tile: Tile, settings: TileSettings, _width: int, _height: int, cursor: bool) -> list[Row]:
    """A tile of two cells: its mark and the digit of the figure."""
    tile_tone = _tile_tone(tile, settings, cursor)
    digit = _digit_text(tile, settings)
    mark = _mark_of(tile, tile_tone)
    if not tile.has_trouble and digit == HATCH:  # all of the tile is hatched
        mark = (HATCH, tile_tone)
    return [(mark, (digit, tile_tone))]


def _draw_number(tile: Tile, settings: TileSettings, _width: int, _height: int, cursor: bool) -> list[Row]:
    """A tile with its mark and the figure."""
    tile_tone = _tile_tone(tile, settings, cursor)
    figure = _figure_text(tile, settings)
    mark = _mark_of(tile, tile_tone)
    if not tile.has_trouble and figure.startswith(HATCH):  # all of the tile is hatched
        mark = (HATCH, tile_tone)
    return [(mark, (figure, tile_tone))]


def _draw_line(tile: Tile, settings: TileSettings, width: int, _height: int, cursor: bool) -> list[Row]:
    """A tile of one line: number, figure, mark, and the state or the engine; a state takes the place of a figure that
    is not measured."""
    tile_tone = _tile_tone(tile, settings, cursor)
    index = right(str(tile.gpu.reading.index), _INDEX_CELLS)
    figure = _figure_text(tile, settings)
    room = max(0, width - 1 - _INDEX_CELLS - 1)  # 1: the mark, and the gap to the next tile
    if tile.has_trouble and isinstance(settings.figure.value(tile.gpu), Missing):
        figure = " " if cells(tile.word) < room else ""
    room = max(0, room - cells(figure))
    engines = " ".join(tile.gpu.engines)
    text = ""
    if tile.has_trouble:
        text = cut(tile.word, room) if room >= _LEAST_WORD_CELLS else ""
    elif cells(engines) < room:
        text = clean(f" {engines}", _MOST_ENGINES)
    return [((index, tile_tone), (figure, tile_tone), _mark_of(tile, tile_tone), (left(text, room), tile_tone))]


def _draw_strip(tile: Tile, settings: TileSettings, width: int, _height: int, cursor: bool) -> list[Row]:
    """A tile of one line: number, figure, mark, the last five minutes; then the state, the engine or the program."""
    tile_tone = _tile_tone(tile, settings, cursor)
    head: Row = (
        ("▸" if cursor else " ", "accent"),
        (right(str(tile.gpu.reading.index), _INDEX_CELLS), tile_tone),
        (f" {_figure_text(tile, settings)}", tile_tone),
        _mark_of(tile, tile_tone),
    )
    room = width - cells_of(head) - _AROUND_STRIP
    strip = settings.strip(tile.gpu, room - _TEXT_BESIDE_STRIP if room >= _ROOMY_STRIP else room)
    text = tile.word if tile.has_trouble else clean(" ".join(tile.gpu.engines), _MOST_ENGINES)
    if not text and tile.gpu.reading.processes:
        text = clean(program_title(tile.gpu.reading.processes[0]), _MOST_ENGINES)
    rest = left(f" {text}", max(1, room - cells_of(strip)))
    return [(*head, (" ", "text"), *strip, (rest, "text"))]


def _draw_box(tile: Tile, settings: TileSettings, width: int, height: int, cursor: bool) -> list[Row]:
    """A tile of three lines: number and state, figure, engine."""
    tile_tone = _tile_tone(tile, settings, cursor)
    room = width - 1
    engines = clean(" ".join(tile.gpu.engines), _MOST_ENGINES)
    word = tile.word if tile.has_trouble else ""
    head: Row = (
        (f"{right(str(tile.gpu.reading.index), _INDEX_CELLS)} ", tile_tone),
        _mark_of(tile, tile_tone),
        (left(f" {word}", room - _INDEX_CELLS - 2), tile_tone),
    )
    figure = _figure_text(tile, settings)
    filler = HATCH if figure.startswith(HATCH) else " "
    rows: list[Row] = [
        head,
        (((figure + filler * room)[:room], tile_tone),),
        ((left(f" {engines}", room), tile_tone),),
    ]
    return rows[:height]


def _draw_card(tile: Tile, settings: TileSettings, width: int, height: int, cursor: bool) -> list[Row]:
    """A head in the colour of the figure, the other figures as bars, and the past of the figure below."""
    tile_tone = _tile_tone(tile, settings, cursor)
    room = width - 2
    engines = clean(" ".join(tile.gpu.engines), _MOST_ENGINES)
    figure = _figure_text(tile, settings)
    name = cut(f" {tile.gpu.reading.index} {settings.figure.name}", room - _FIGURE_CELLS - 3)
    head = f"{left(name, room - _FIGURE_CELLS - 3)} {figure}"
    rows: list[Row] = [((head, tile_tone), (" ", tile_tone), _mark_of(tile, tile_tone))]
    state = ""
    if room > _STATE_ROOM or tile.has_trouble:
        state = left(f" {tile.state}", min(room, _STATE_CELLS))
    rows.append(((state, tile.tone), (left(f" {engines}", room - cells(state)), "text")))
    others = [other for other in WALL_FIGURES if not is_absent(other.value(tile.gpu))]
    strip = settings.strip(tile.gpu, room - 1)
    lines_of_strip = 1 if strip else 0
    rows += [_figure_bar(tile.gpu, other, settings, room) for other in others[: max(0, height - 3 - lines_of_strip)]]
    spare = height - 1 - len(rows)
    if spare > _LEAST_CHART_LINES or not strip:
        rows += settings.chart(tile.gpu, room, spare)[:spare]
    else:
        rows.append(((" ", "text"), *strip, (" ", "text")))
    return rows[: height - 1]


def _figure_bar(gpu: Gpu, figure: WallFigure, settings: TileSettings, room: int) -> Row:
    """Name, figure and bar; hatched where it is not measured."""
    share = figure.share(gpu, settings.view)
    size = max(0, room - _NAME_CELLS - _FIGURE_CELLS - 3)
    text = right(figure.short(gpu, settings.view), _FIGURE_CELLS)
    tone = figure.high_tone(gpu, settings.view) or "text"
    name = (f" {left(figure.word or figure.name, _NAME_CELLS)}", "muted")
    if isinstance(share, Missing):
        return (name, (text, "muted"), (f" {HATCH * size} ", "border"))
    filled = int(min(1.0, share) * size + 0.5)
    if share > 0.0:
        filled = max(1, filled)
    bar_tone = figure.hue
    if figure.row.level:
        bar_tone = figure.high_tone(gpu, settings.view) or CALM
    bar: Row = ((" " + "█" * filled, bar_tone), ("·" * (size - filled) + " ", "border"))
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


_DRAWINGS: Final[dict[TileForm, Callable[[Tile, TileSettings, int, int, bool], list[Row]]]] = {
    CARD: _draw_card,
    BOX: _draw_box,
    STRIP: _draw_strip,
    LINE: _draw_line,
    SHORT_LINE: _draw_line,
    NUMBER_TILE: _draw_number,
    PAIR: _draw_pair,
    DOT: _draw_dot,
}

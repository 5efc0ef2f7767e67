"""The live roofline: a mark per engine at its MBU and MFU, with its last five minutes, under the roof of its GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from gpumon.efficiency.points import AT
from gpumon.efficiency.roofline import RooflinePoint, roofline_point, trail
from gpumon.readings.format import cut, left, phrase, ratio
from gpumon.readings.history import History
from gpumon.readings.missing import Missing
from gpumon.readings.snapshot import Engine
from gpumon.readings.text import clean
from gpumon.tui.fold import folded
from gpumon.tui.line import Piece, Row
from gpumon.tui.palette import Glyphs
from gpumon.tui.sizing.canvas import CHART_MARKS, Canvas, LegendEntry, Scale, framed_picture, to_width

LEAST_ROOFLINE_WIDTH: Final = 120
"""Columns of the screen from which there is a roofline."""
LEAST_ROOFLINE_HEIGHT: Final = 8
"""Lines from which it says something."""
_TRAIL_S: Final = 300.0
"""Seconds that a trail goes back."""
_STEP_S: Final = 5.0
"""Seconds between two places of a trail: the history has sums of 5 s."""
_LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""Marks of the engines, in turn."""
_TONES: Final = ("tokens", "mfu", "mbu", "sm", "accent", "busy")
"""Tones of the engines, in turn; letters tell them apart without colour."""
_LIST_WIDTH: Final = 46
"""Cells of the list of engines beside the picture, with the gap before it."""
_GAP: Final = "  "
"""Blanks between the picture and the list."""
_LIST_CELLS: Final = _LIST_WIDTH - len(_GAP)
"""Cells of the list itself."""
_NAME_CELLS: Final = 20
"""Cells of an engine's name in the list."""
_DECODE: Final = "d"
"""Mark of the part of an engine's MFU that decode has."""
_TITLE: Final = "MFU % over MBU %"
_PERCENT: Final = 0.01
"""Unit of the axes."""


class _PlottedEngine(NamedTuple):
    """An engine with its mark."""

    letter: str
    tone: str
    engine: Engine
    point: RooflinePoint
    """Its place now."""
    trail: Sequence[tuple[float, float]]
    """MBU and MFU of its last minutes, oldest first."""


def roofline_rows(
    engines: Sequence[Engine], history: History | None, wall_s: float, size: tuple[int, int], glyphs: Glyphs
) -> list[Row]:
    """The picture and the list of engines beside it, in `size` (cells and lines), at one moment (Unix time)."""
    width, height = size
    plotted = [_with_mark(number, engine, history, wall_s) for number, engine in enumerate(engines)]
    list_rows = _list_rows(plotted, _LIST_CELLS, height)
    list_rows += [(), *_headroom_note(plotted, _LIST_CELLS)]
    picture = _picture_rows(plotted, width - _LIST_WIDTH, height, glyphs)
    rows: list[Row] = []
    for number in range(height):
        left_part = to_width(_row_at(picture, number), width - _LIST_WIDTH)
        rows.append((*left_part, (_GAP, "text"), *_row_at(list_rows, number)))
    return rows


def _row_at(rows: Sequence[Row], number: int) -> Row:
    """The row of that number; an empty one behind the last."""
    if number < len(rows):
        return rows[number]
    return ()


def _with_mark(number: int, engine: Engine, history: History | None, wall_s: float) -> _PlottedEngine:
    """An engine with its mark, and its trail up to a Unix time; `number`: its place among all engines."""
    letter = _LETTERS[number % len(_LETTERS)]
    places: Sequence[tuple[float, float]] = ()
    if history is not None:
        read = partial(
            history.buckets,
            newest_bucket=int(wall_s // _STEP_S),
            count=int(_TRAIL_S / _STEP_S),
            width_s=_STEP_S,
            until_s=wall_s,
        )
        places = trail(read(f"mbu{AT}{engine.key}"), read(f"mfu{AT}{engine.key}"))
    return _PlottedEngine(
        letter=letter,
        tone=_TONES[number % len(_TONES)],
        engine=engine,
        point=roofline_point(engine),
        trail=places,
    )


def _picture_rows(plotted: Sequence[_PlottedEngine], width: int, height: int, glyphs: Glyphs) -> list[Row]:
    """The picture: axes, roof, ridge, trails and marks. Both axes end at 100%, or at the highest figure above that."""
    most_x = 1.0
    most_y = 1.0
    for plotted_engine in plotted:
        mbu = plotted_engine.point.mbu
        mfu = plotted_engine.point.mfu
        if not isinstance(mbu, Missing):
            most_x = max(most_x, mbu)
        if not isinstance(mfu, Missing):
            most_y = max(most_y, mfu)
    scales = (Scale(most_x, _PERCENT), Scale(most_y, _PERCENT))
    draw = partial(_draw_inside, plotted=plotted, glyphs=glyphs)
    return framed_picture((width, height), _TITLE, scales, _legend(glyphs), glyphs, draw)


def _legend(glyphs: Glyphs) -> Sequence[LegendEntry]:
    """The marks of the picture, and what they stand for."""
    marks = CHART_MARKS[glyphs]
    return (
        LegendEntry(marks.goal, "warn", "roof: 100%"),
        LegendEntry(marks.thin, "muted", "ridge: both at once"),
        LegendEntry(marks.free, "text", f"last {_TRAIL_S / 60:.0f} min"),
        LegendEntry(_DECODE, "text", "decode alone; up to the letter: prefill"),
    )


def _draw_inside(canvas: Canvas, *, plotted: Sequence[_PlottedEngine], glyphs: Glyphs) -> None:
    """Draw the inside of the picture: what lies behind comes first."""
    marks = CHART_MARKS[glyphs]
    # The ridge, MFU = MBU, up to the corner; never solid, as nothing measured it.
    canvas.draw_curve(lambda mbu: mbu if mbu <= 1.0 else -1.0, lambda _: False, "muted")
    for plotted_engine in plotted:
        for mbu, mfu in plotted_engine.trail:
            canvas.draw_mark(mbu, mfu, marks.free, plotted_engine.tone)
    # Words stand where no line is: below the roof at the left, at the foot, and beside the ridge.
    below_roof = max(canvas.line_of(0.93), canvas.line_of(1.0) + 1)
    _write_word(canvas, below_roof, 0.03, "prefill: compute first", "hint")
    _write_word(canvas, canvas.line_of(0.08), 0.60, "decode: bandwidth first", "hint")
    _write_word(canvas, canvas.line_of(0.62), 0.70, "ridge", "hint")
    canvas.draw_horizontal(1.0, marks.goal, "warn")
    canvas.draw_vertical(1.0, marks.limit, "warn")
    for plotted_engine in plotted:
        point = plotted_engine.point
        if isinstance(point.mbu, Missing) or isinstance(point.mfu_decode, Missing):
            continue
        canvas.draw_mark(point.mbu, point.mfu_decode, _DECODE, plotted_engine.tone)
    cells_in_use: set[tuple[int, int]] = set()
    for plotted_engine in plotted:
        point = plotted_engine.point
        if not isinstance(point.mbu, Missing) and not isinstance(point.mfu, Missing):
            cell = _free_cell(canvas.line_of(point.mfu), canvas.column_of(point.mbu), cells_in_use)
            cells_in_use.add(cell)
            canvas.set_cell(*cell, plotted_engine.letter, plotted_engine.tone)


def _free_cell(line: int, column: int, cells_in_use: set[tuple[int, int]]) -> tuple[int, int]:
    """The cell of an engine's letter: the next one to the right where engines stand at one place."""
    while (line, column) in cells_in_use:
        column += 1
    return line, column


def _write_word(canvas: Canvas, line: int, mbu: float, text: str, tone: str) -> None:
    """Write words into a line of the picture, from an MBU on; as far as the picture goes."""
    first = canvas.column_of(mbu)
    for number, character in enumerate(text):
        if first + number < canvas.columns:
            canvas.set_cell(line, first + number, character, tone)


def _list_rows(plotted: Sequence[_PlottedEngine], width: int, height: int) -> list[Row]:
    """The engines with two lines each, with one where there is no room for two, and how many have none."""
    lines_of_engines = [_engine_lines(plotted_engine, width) for plotted_engine in plotted]
    rows = [row for lines in lines_of_engines for row in lines]
    if len(rows) > height:
        rows = [lines[0] for lines in lines_of_engines]
    if len(rows) > height:
        unseen = len(rows) - height + 1
        rows = [*rows[: height - 1], ((f"+{unseen} more", "muted"),)]
    return rows


def _engine_lines(plotted_engine: _PlottedEngine, width: int) -> list[Row]:
    """Two lines of an engine in the list: its name with its figures, then its headroom; or why it has no place."""
    name = left(clean(plotted_engine.engine.name, 40), _NAME_CELLS)
    point = plotted_engine.point
    head: list[Piece] = [(f"{plotted_engine.letter} ", plotted_engine.tone), (name, "strong")]
    if point.missing is not None:
        missing = []
        for word, value in (("MFU", point.mfu), ("MBU", point.mbu)):
            if isinstance(value, Missing):
                missing.append(f"{word} {phrase(value)}")
        return [to_width(head, width), to_width([(f"  {', '.join(missing)}", "muted")], width)]
    head.append((f" MFU {ratio(point.mfu)} MBU {ratio(point.mbu)}", "text"))
    return [to_width(head, width), to_width([(f"  {_headroom_text(point)}", "muted")], width)]


def _headroom_text(point: RooflinePoint) -> str:
    """FLOP/byte against the ridge, and which side of the roof is how far away."""
    parts = []
    if not isinstance(point.intensity, Missing) and not isinstance(point.ridge, Missing):
        parts.append(f"{point.intensity:.0f} of {point.ridge:.0f} FLOP/B")
    headroom = point.headroom
    if isinstance(headroom, Missing):
        parts.append(phrase(headroom))
    else:
        side = "bandwidth" if point.meets_bandwidth else "compute"
        parts.append(f"peak {side} at {headroom:.1f}x")
    return ", ".join(parts)


def _headroom_note(plotted: Sequence[_PlottedEngine], width: int) -> list[Row]:
    """The meaning of the headroom, by the first engine that has one."""
    for plotted_engine in plotted:
        headroom = plotted_engine.point.headroom
        if isinstance(headroom, Missing):
            continue
        side = "bandwidth" if plotted_engine.point.meets_bandwidth else "compute"
        times = f"{headroom:.1f}"
        text = (
            f"{times}x: at the same FLOP/B {plotted_engine.letter} could do {times} times as much until {side} is at "
            f"its peak; triage's headroom ends earlier, where {side} counts as full"
        )
        return [((line, "hint"),) for line in folded(text, width)]
    return []


def too_small_note(width: int) -> Sequence[Row]:
    """The note in place of the roofline on a small screen."""
    text = f" the roofline needs {LEAST_ROOFLINE_WIDTH} columns and {LEAST_ROOFLINE_HEIGHT} lines"
    return (((cut(text, width), "muted"),),)

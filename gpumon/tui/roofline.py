"""The live roofline: each engine at its FLOP/byte and the TFLOP/s of one of its GPUs, with its last five minutes."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Final, NamedTuple, TypeAlias

from gpumon.efficiency.points import AT
from gpumon.efficiency.roofline import Place, Roof, RooflinePoint, roofline_point
from gpumon.readings.format import counted, left, phrase, ratio, right, round_number
from gpumon.readings.history import History
from gpumon.readings.missing import Missing
from gpumon.readings.snapshot import Engine
from gpumon.readings.text import clean
from gpumon.sizing.doubled_batch import DoubledBatch
from gpumon.tui.line import Piece, Row
from gpumon.tui.palette import Glyphs
from gpumon.tui.plotted import (
    CHOSEN,
    FEW_LINES,
    TONES,
    TRAIL_MARKS,
    TRAIL_TEXT,
    Cell,
    entries_and_sentence,
    read_trail,
    sentence_rows,
    with_list,
    write_label,
)
from gpumon.tui.sizing.canvas import CHART_MARKS, Canvas, LegendEntry, LogScale, framed_picture, reason_rows, to_width

Doubled: TypeAlias = Callable[[Engine], DoubledBatch | str]
"""An engine at twice its batch, or why that is not known."""
_LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""Marks of the engines, in turn; their small letters stand for decode alone."""
_TWICE: Final = "2"
"""Behind the letter of an engine: at twice its batch."""
_NAME_CELLS: Final = 18
"""Cells of an engine's name in the list."""
_TITLE: Final = "TFLOP/s of a GPU over FLOP/byte, both logarithmic"
_TERA: Final = 1e12
_BELOW_LEAST: Final = 0.5
"""Times the least value of a mark that an axis begins at."""
_ABOVE_MOST: Final = 1.6
"""Times the highest value that an axis ends at."""
_BESIDE_RIDGE: Final = 4.0
"""Times the ridge that is in view, so that both parts of the roof are."""
_LEAST_SPAN: Final = 30.0
"""Times the begin of the y axis that its end is, at least."""


class _PlottedEngine(NamedTuple):
    """An engine with its mark."""

    letter: str
    tone: str
    engine: Engine
    point: RooflinePoint
    trail: Sequence[Place]
    """Places of its last minutes, oldest first."""

    @property
    def place(self) -> Place | None:
        """Its place now; None where it has none."""
        return self.point.place(self.point.mbu, self.point.mfu)

    @property
    def decode_place(self) -> Place | None:
        """The place of its decode alone; None where that is not known."""
        return self.point.place(self.point.mbu, self.point.mfu_decode)


class _Chosen(NamedTuple):
    """The engine under the cursor."""

    number: int
    doubled: DoubledBatch | str
    """It at twice its batch, or why that is not known; empty where nobody asked."""


def roofline_rows(
    engines: Sequence[Engine],
    history: History | None,
    wall_s: float,
    size: tuple[int, int],
    glyphs: Glyphs,
    chosen: str = "",
    doubled: Doubled | None = None,
) -> list[Row]:
    """The picture and the list of engines, in `size` (cells and lines), at one moment (Unix time).

    `chosen`: key of the engine under the cursor, else the first. `doubled`: None where nobody can work it out.
    """
    plotted = [_with_mark(number, engine, history, wall_s) for number, engine in enumerate(engines)]
    number = next((number for number, engine in enumerate(engines) if engine.key == chosen), 0)
    estimate: DoubledBatch | str = doubled(engines[number]) if doubled is not None else ""
    cursor = _Chosen(number, estimate)
    return with_list(
        size,
        lambda width, height: _picture_rows(plotted, cursor, (width, height), glyphs),
        lambda width, height: _list_rows(plotted, cursor, width, height),
    )


def _with_mark(number: int, engine: Engine, history: History | None, wall_s: float) -> _PlottedEngine:
    """An engine with its mark, and its trail up to a Unix time; `number`: its place among all engines."""
    point = roofline_point(engine)
    shares = read_trail(history, f"mbu{AT}{engine.key}", f"mfu{AT}{engine.key}", wall_s)
    places = [point.place(mbu, mfu) for mbu, mfu in shares]
    return _PlottedEngine(
        letter=_LETTERS[number % len(_LETTERS)],
        tone=TONES[number % len(TONES)],
        engine=engine,
        point=point,
        trail=[place for place in places if place is not None],
    )


def _doubled_place(plotted_engine: _PlottedEngine, doubled: DoubledBatch | str) -> Place | None:
    """The place of an engine at twice its batch; None where that is not known."""
    if isinstance(doubled, str):
        return None
    return plotted_engine.point.place(doubled.mbu_ratio, doubled.mfu_ratio)


# --- the picture


class _Axes(NamedTuple):
    """Scales of both axes."""

    x: LogScale
    y: LogScale

    def column(self, canvas: Canvas, intensity: float) -> int:
        """The column of a FLOP/byte."""
        return canvas.column_of(self.x.place(intensity))

    def line(self, canvas: Canvas, flops_per_s: float) -> int:
        """The line of a rate."""
        return canvas.line_of(self.y.place(flops_per_s))

    def cell(self, canvas: Canvas, place: Place) -> Cell:
        """The cell of a place."""
        return self.line(canvas, place.flops_per_s), self.column(canvas, place.intensity)


def _picture_rows(
    plotted: Sequence[_PlottedEngine], cursor: _Chosen, size: tuple[int, int], glyphs: Glyphs
) -> list[Row]:
    """The picture: axes, roofs, trails and marks; the reason where no engine has a roof."""
    roofs = _roofs_of(plotted)
    if not roofs:
        width, height = size
        reason = plotted[cursor.number].point.missing
        text = "no roof: " + (phrase(reason) if reason is not None else "no peak is known")
        return reason_rows(_TITLE, text, width, height)
    axes = _axes_of(plotted, cursor, roofs)
    draw = partial(_draw_inside, axes=axes, plotted=plotted, cursor=cursor, roofs=roofs, glyphs=glyphs)
    legend = _legend(plotted[cursor.number], cursor, glyphs)
    return framed_picture(size, _TITLE, (axes.x, axes.y), legend, glyphs, draw)


def _roofs_of(plotted: Sequence[_PlottedEngine]) -> list[Roof]:
    """The roofs of all engines, each once."""
    roofs: list[Roof] = []
    for plotted_engine in plotted:
        roof = plotted_engine.point.roof
        if not isinstance(roof, Missing) and roof not in roofs:
            roofs.append(roof)
    return roofs


def _axes_of(plotted: Sequence[_PlottedEngine], cursor: _Chosen, roofs: Sequence[Roof]) -> _Axes:
    """Axes that hold all marks, and both parts of each roof."""
    places = []
    for plotted_engine in plotted:
        places += [*plotted_engine.trail, plotted_engine.place, plotted_engine.decode_place]
    places.append(_doubled_place(plotted[cursor.number], cursor.doubled))
    intensities = [place.intensity for place in places if place is not None]
    rates = [place.flops_per_s for place in places if place is not None]
    ridges = [roof.ridge for roof in roofs]
    peaks = [roof.flops_per_s for roof in roofs]
    x = LogScale(
        _round_down(min([*intensities, min(ridges) / _BESIDE_RIDGE]) * _BELOW_LEAST),
        max([*(intensity * _ABOVE_MOST for intensity in intensities), max(ridges) * _BESIDE_RIDGE]),
    )
    y = LogScale(
        _round_down(min([*(rate * _BELOW_LEAST for rate in rates), max(peaks) / _LEAST_SPAN])),
        max([*rates, *peaks]) * _ABOVE_MOST,
        _TERA,
    )
    return _Axes(x, y)


def _round_down(value: float) -> float:
    """The next 1, 2 or 5 times a power of ten below, at which an axis begins."""
    power = math.pow(10.0, math.floor(math.log10(value)))
    for factor in (5.0, 2.0):
        if value >= factor * power:
            return factor * power
    return power


def _legend(chosen: _PlottedEngine, cursor: _Chosen, glyphs: Glyphs) -> Sequence[LegendEntry]:
    """The marks of the picture, and what they stand for."""
    marks = CHART_MARKS[glyphs]
    letter = chosen.letter
    entries = [
        LegendEntry(marks.goal, "muted", "roof: peak bandwidth, then peak FLOP/s"),
        LegendEntry(letter.lower(), chosen.tone, f"decode of {letter} alone; up to {letter}: prefill"),
    ]
    if not isinstance(cursor.doubled, str):
        entries.append(LegendEntry(f"{letter}{_TWICE}", chosen.tone, "twice the batch, an estimate"))
    return (
        *entries,
        LegendEntry(f"{marks.free} {TRAIL_MARKS[glyphs]}", "text", TRAIL_TEXT),
    )


def _draw_inside(
    canvas: Canvas,
    *,
    axes: _Axes,
    plotted: Sequence[_PlottedEngine],
    cursor: _Chosen,
    roofs: Sequence[Roof],
    glyphs: Glyphs,
) -> None:
    """Draw the inside of the picture: what lies behind comes first, and words are where they hide no mark."""
    for roof in roofs:
        _draw_roof(canvas, axes, roof, glyphs)
    chosen = plotted[cursor.number]
    for plotted_engine in sorted(plotted, key=lambda plotted_engine: plotted_engine is chosen):  # the chosen one last
        mark = TRAIL_MARKS[glyphs] if plotted_engine is chosen else CHART_MARKS[glyphs].free
        for place in plotted_engine.trail:
            canvas.set_cell(*axes.cell(canvas, place), mark, plotted_engine.tone)
    marks = _marks_of(canvas, axes, plotted, cursor)
    _write_peaks(canvas, axes, roofs, set(marks))
    for cell, (glyph, tone) in marks.items():
        canvas.set_cell(*cell, glyph, tone)


def _marks_of(canvas: Canvas, axes: _Axes, plotted: Sequence[_PlottedEngine], cursor: _Chosen) -> Mapping[Cell, Piece]:
    """Cell -> letter of an engine and its tone; those of the chosen one at twice its batch and of its decode alone give
    way to them."""
    chosen = plotted[cursor.number]
    marks: dict[Cell, Piece] = {}
    doubled = _doubled_place(chosen, cursor.doubled)
    if doubled is not None:
        line, column = axes.cell(canvas, doubled)
        column = min(column, canvas.columns - 2)
        marks[line, column] = (chosen.letter, chosen.tone)
        marks[line, column + 1] = (_TWICE, chosen.tone)
    if chosen.decode_place is not None:
        marks[axes.cell(canvas, chosen.decode_place)] = (chosen.letter.lower(), chosen.tone)
    letters: dict[Cell, Piece] = {}
    for plotted_engine in plotted:
        if plotted_engine.place is not None:
            cell = _free_cell(canvas, axes.cell(canvas, plotted_engine.place), letters)
            tone = CHOSEN if plotted_engine is chosen else plotted_engine.tone
            letters[cell] = (plotted_engine.letter, tone)
    return {**marks, **letters}


def _draw_roof(canvas: Canvas, axes: _Axes, roof: Roof, glyphs: Glyphs) -> None:
    """Draw the roof of one type of GPU."""
    goal = CHART_MARKS[glyphs].goal
    top = axes.line(canvas, roof.flops_per_s)
    for column in range(axes.column(canvas, roof.ridge), canvas.columns):
        canvas.set_cell(top, column, goal, "muted")
    for line, column in _slope(canvas, axes, roof):
        canvas.set_cell(line, column, goal, "muted")


def _slope(canvas: Canvas, axes: _Axes, roof: Roof) -> list[Cell]:
    """The cells of a roof below its ridge, from the left."""
    most_x = axes.x.place(axes.x.most)
    slope = []
    for column in range(axes.column(canvas, roof.ridge)):
        intensity = axes.x.value((column + 0.5) / canvas.columns * most_x)
        rate = intensity * roof.bandwidth_bytes_per_s
        if rate >= axes.y.least:
            slope.append((axes.line(canvas, rate), column))
    return slope


def _write_peaks(canvas: Canvas, axes: _Axes, roofs: Sequence[Roof], taken: set[Cell]) -> None:
    """Write the peaks of the roofs beside them, each once: below, else above. `taken`: cells that they leave free."""
    bandwidths = set()
    for roof in sorted(roofs, key=lambda roof: roof.flops_per_s):
        ridge_column = axes.column(canvas, roof.ridge)
        peak = f"{roof.flops_per_s / _TERA:,.0f} TFLOP/s {roof.precision.upper()}".strip()
        top = axes.line(canvas, roof.flops_per_s)
        last_column = max(0, canvas.columns - len(peak))
        columns = range(min(ridge_column + 1, last_column), last_column + 1)
        write_label(canvas, product((top + 1, top - 1, top + 2, top + 3), columns), peak, taken)
        if roof.bandwidth_bytes_per_s in bandwidths:
            continue
        bandwidths.add(roof.bandwidth_bytes_per_s)
        end_by_line = dict(_slope(canvas, axes, roof))  # line -> its last column of the slope
        from_middle = sorted(end_by_line.items(), key=lambda end: abs(end[1] - ridge_column // 2))
        places = [(line, column + 2) for line, column in from_middle]
        write_label(canvas, places, f"{roof.bandwidth_bytes_per_s / _TERA:.2f} TB/s", taken)


def _free_cell(canvas: Canvas, cell: Cell, cells_in_use: Collection[Cell]) -> Cell:
    """The cell of an engine's letter: where engines stand at one place the next one to the right, at the edge to the
    left."""
    line, column = cell
    for free_column in (*range(column, canvas.columns), *range(column - 1, -1, -1)):
        if (line, free_column) not in cells_in_use:
            return line, free_column
    return cell


# --- the list


def _list_rows(plotted: Sequence[_PlottedEngine], cursor: _Chosen, width: int, height: int) -> list[Row]:
    """The engines around the chosen one, and what there is to say of that."""
    chosen = plotted[cursor.number]
    text = _sentence(chosen, cursor.doubled)
    if height <= FEW_LINES:  # below the picture of a small screen
        return [_entry(chosen, chosen=True, width=width, of=len(plotted)), *sentence_rows(text, width, height - 1)]
    head = to_width([(f"    {left('engine', _NAME_CELLS)}  mfu   mbu FLOP/B", "muted")], width)
    entries = [
        _entry(plotted_engine, chosen=number == cursor.number, width=width)
        for number, plotted_engine in enumerate(plotted)
    ]
    return [head, *entries_and_sentence(entries, cursor.number, text, width, height - 1)]


def _entry(plotted_engine: _PlottedEngine, *, chosen: bool, width: int, of: int = 0) -> Row:
    """An engine in the list: its mark, its name and its figures, or why it has no place. `of`: number of all, where it
    stands alone."""
    name = left(clean(plotted_engine.engine.name, 40), _NAME_CELLS)
    point = plotted_engine.point
    cursor = "▸ " if chosen else "  "
    head: list[Piece] = [
        (cursor, "accent"),
        (plotted_engine.letter, CHOSEN if chosen else plotted_engine.tone),
        (f" {name}", "strong"),
    ]
    if point.missing is not None or isinstance(point.intensity, Missing):
        head.append((f" {_what_is_missing(point)}", "muted"))
    else:
        figures = f" {right(ratio(point.mfu, 4), 4)}  {right(ratio(point.mbu, 4), 4)}"
        figures = f"{figures} {right(round_number(round(point.intensity)), 6)}"
        if of:  # without a head over the columns
            figures = f" mfu {ratio(point.mfu)}  mbu {ratio(point.mbu)}"
        head.append((figures, "text"))
    if of:
        head.append((f"  1 of {counted(of, 'engine')}", "muted"))
    return to_width(head, width)


def _what_is_missing(point: RooflinePoint) -> str:
    """Why an engine has no place: the figures that are missing, each with its reason."""
    missing = [
        f"{word} {phrase(value)}"
        for word, value in (("MFU", point.mfu), ("MBU", point.mbu))
        if isinstance(value, Missing)
    ]
    if not missing and isinstance(point.roof, Missing):
        missing.append(f"peak {phrase(point.roof)}")
    return ", ".join(missing) or "idle"


def _sentence(plotted_engine: _PlottedEngine, doubled: DoubledBatch | str) -> str:
    """FLOP/byte against the ridge, which side of the roof is how far away, and what twice the batch would bring."""
    point = plotted_engine.point
    letter = plotted_engine.letter
    if point.missing is not None or isinstance(point.intensity, Missing) or isinstance(point.ridge, Missing):
        return f"{letter} has no place: {_what_is_missing(point)}."
    side = "bandwidth" if point.meets_bandwidth else "compute"
    parts = [f"{letter}: {point.intensity:,.0f} FLOP/byte, ridge {point.ridge:,.0f}"]
    headroom = point.headroom
    if not isinstance(headroom, Missing) and headroom < 1.0:
        parts.append(
            f"It is beyond the roof, by {side}: the dimensions of its model or the peak are wrong, or it runs on more "
            "GPUs than these"
        )
    elif not isinstance(headroom, Missing):
        parts.append(
            f"At the same FLOP/byte it could do {headroom:.1f} times as much until {side} is at its peak; triage's "
            f"headroom ends earlier, where {side} counts as full"
        )
    if doubled:
        parts.append(_doubled_text(letter, point, doubled))
    return ". ".join(parts)


def _doubled_text(letter: str, point: RooflinePoint, doubled: DoubledBatch | str) -> str:
    """The estimate of twice the batch in words, or why it is not known."""
    if isinstance(doubled, str):
        return f"Twice the batch: not known, {doubled}"
    place = point.place(doubled.mbu_ratio, doubled.mfu_ratio)
    text = (
        f"{letter}{_TWICE}, twice the batch ({doubled.sequences:.0f} sequences): {doubled.tokens_ratio:.1f} times the "
        "tokens/s"
    )
    if place is not None:
        text += f" at {place.intensity:,.0f} FLOP/byte"
    text += ", an estimate by the formulas of sizing"
    if doubled.kv_room is not None and doubled.kv_room < 2.0:
        text += f"; the KV cache holds {doubled.kv_room:.1f} times the batch of now"
    return text

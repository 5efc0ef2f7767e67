"""The plot of one workload: ITL of an instance over its requests in flight; and what pictures are drawn with."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from gpumon.readings.format import cells, cut, left, right, round_number, whole
from gpumon.readings.missing import number
from gpumon.readings.text import clean
from gpumon.sizing.answer import Limit, LimitKind, Source, WorkloadPlan
from gpumon.sizing.capacity import EXTRAPOLATED
from gpumon.sizing.instance import Instance
from gpumon.tui.charts.curves import nice
from gpumon.tui.fold import folded
from gpumon.tui.line import Piece, Row
from gpumon.tui.palette import Glyphs
from gpumon.tui.sizing.fields import labelled

NO_POINTS: Final = "no points yet: a fit needs 5 levels of load"
_MOST: Final = 1e15
"""Larger figures are taken for infinite: nothing is drawn of them."""


class Marks(NamedTuple):
    """The characters of a picture, and the samples of lines that a legend shows."""

    point: str
    plan: str
    goal: str
    limit: str
    solid: str
    dashed: str
    side: str
    tick: str
    corner: str
    rule: str
    joined: str
    free: str
    dot: str
    """Between words."""


MARKS: Final[dict[Glyphs, Marks]] = {
    "braille": Marks("●", "◆", "┄", "┊", "⠒⠒", "⠒ ⠒", "│", "┤", "└", "─", "─", "·", " · "),
    "blocks": Marks("●", "◆", "┄", "┊", "▀▀", "▀ ▀", "│", "┤", "└", "─", "─", "·", " · "),
    "ascii": Marks("o", "@", ".", ":", "--", "- -", "|", "+", "`", "-", "-", ".", ", "),
}
_DOTS: Final[dict[Glyphs, tuple[int, int]]] = {"braille": (2, 4), "blocks": (1, 2), "ascii": (1, 3)}
"""Columns and lines of dots in a cell."""
_BRAILLE: Final = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))
"""The bit of each dot of a cell: of the left column from below, then of the right one."""
_SINGLE: Final[dict[Glyphs, str]] = {"blocks": " ▄▀█", "ascii": " _-/'|/|"}
"""The character of each set of dots in one column, the lowest dot counting 1."""
_DASH: Final[dict[Glyphs, int]] = {"braille": 3, "blocks": 1, "ascii": 1}
"""Columns of dots that are drawn, and then left out, of a curve that nothing measured."""


def usable(value: float | None) -> bool:
    """Whether a figure can be drawn: a number from 0 to 1e15."""
    return value is not None and 0.0 <= value <= _MOST


class Canvas:
    """Character cells from x = 0 at the left to `right`, and from y = 0 at the bottom to `top`."""

    def __init__(self, columns: int, lines: int, right: float, top: float, glyphs: Glyphs) -> None:
        self.columns = columns
        self.lines = lines
        self._right = right if right > 0.0 else 1.0
        self._top = top if top > 0.0 else 1.0
        self._glyphs = glyphs
        self._dots: dict[tuple[int, int], tuple[int, str]] = {}
        self._over: dict[tuple[int, int], Piece] = {}

    def column(self, x: float) -> int:
        """The column of cells that `x` is in; the last one for what lies beyond."""
        return min(self.columns - 1, max(0, math.floor(min(x / self._right, 2.0) * self.columns + 1e-9)))

    def line(self, y: float) -> int:
        """The line of cells that `y` is in, counted from the top; the uppermost for what lies beyond."""
        return self.lines - 1 - min(self.lines - 1, max(0, math.floor(min(y / self._top, 2.0) * self.lines + 1e-9)))

    def curve(self, value: Callable[[float], float], measured: Callable[[float], bool], tone: str) -> None:
        """A line through all columns; dashed and muted where it is not measured."""
        wide, high = _DOTS[self._glyphs]
        columns, lines, dash = self.columns * wide, self.lines * high, _DASH[self._glyphs]
        before: int | None = None
        for at in range(columns):
            x = (at + 0.5) / columns * self._right
            y = value(x)
            if not usable(y):
                before = None
                continue
            now = min(math.floor(min(y / self._top, 2.0) * lines), lines)
            first = now if before is None else min(now, before + 1) if now >= before else max(now, before - 1)
            solid = measured(x)
            if solid or at // dash % 2 == 0:
                for dot in range(min(first, now), min(lines, max(first, now) + 1)):
                    cell = (self.lines - 1 - dot // high, at // wide)
                    bits, shown = self._dots.get(cell, (0, "muted"))
                    bit = _BRAILLE[at % 2][dot % 4] if self._glyphs == "braille" else 1 << dot % high
                    self._dots[cell] = (bits | bit, tone if solid or shown != "muted" else "muted")
            before = now

    def across(self, y: float, glyph: str, tone: str) -> None:
        """A horizontal line behind all else."""
        self._behind(((self.line(y), column) for column in range(self.columns)), glyph, tone)

    def down(self, x: float, glyph: str, tone: str) -> None:
        """A vertical line behind curves."""
        self._behind(((line, self.column(x)) for line in range(self.lines)), glyph, tone)

    def _behind(self, found: Iterable[tuple[int, int]], glyph: str, tone: str) -> None:
        for cell in found:
            if cell not in self._dots:
                self._over.setdefault(cell, (glyph, tone))

    def mark(self, x: float, y: float, glyph: str, tone: str) -> None:
        """One cell, before all that is there."""
        self._over[self.line(y), self.column(x)] = (glyph, tone)

    def rows(self) -> list[list[Piece]]:
        """What was drawn, from the top down, each line in `columns` cells; neighbours of one tone in one piece."""
        lines = []
        for line in range(self.lines):
            row: list[Piece] = []
            for column in range(self.columns):
                text, tone = self._over.get((line, column)) or self._dotted((line, column))
                if row and row[-1][1] == tone:
                    row[-1] = (row[-1][0] + text, tone)
                else:
                    row.append((text, tone))
            lines.append(row)
        return lines

    def _dotted(self, cell: tuple[int, int]) -> Piece:
        bits, tone = self._dots.get(cell, (0, "text"))
        if not bits:
            return " ", "text"
        return (chr(0x2800 | bits) if self._glyphs == "braille" else _SINGLE[self._glyphs][bits]), tone


class Key(NamedTuple):
    """One entry of a legend."""

    glyph: str
    tone: str
    text: str


class Scale(NamedTuple):
    """An axis from 0 to a little more than `most`."""

    most: float
    unit: float = 1.0
    """What a value is divided by to be written."""

    def ticks(self, lots: int) -> list[float]:
        """At most about `lots` round steps from 0, and at least one where that can be."""
        top = self.most * 1.05
        step = nice(top / (lots + 0.99))
        if step > top:
            step = next((step / part for part in (2.0, 2.5, 5.0, 10.0) if step / part <= top), step)
        return [step * at for at in range(min(int(top / step + 1e-9), 40) + 1)]

    def text(self, value: float) -> str:
        """A figure of the axis."""
        value /= self.unit
        return round_number(value) if value == 0.0 or value >= 1e-3 else f"{value:.0e}"


_LEGENDS: Final = ((12, 3), (7, 2), (5, 1))
"""Height from which a legend may have so many lines."""


def framed(
    size: tuple[int, int],
    title: str,
    scales: tuple[Scale, Scale],
    legend: Sequence[Key],
    glyphs: Glyphs,
    draw: Callable[[Canvas], None],
) -> list[Row]:
    """What `draw` draws, with its title, scales of x and y, and legend, in `size` (width and height); the legend alone
    where there is no room for more."""
    (width, height), marks, (x, y) = size, MARKS[glyphs], scales
    if width < 16 or height < 3:
        return flowed(legend, width, height)
    keys = flowed(legend, width, next((lines for least, lines in _LEGENDS if height >= least), 0))
    lines = height - 2 - len(keys)
    ticks = [(value, y.text(value)) for value in reversed(y.ticks(max(1, lines // 2)))]
    side = max(3, *(len(label) for _, label in ticks))
    canvas = Canvas(width - side - 1, lines, x.most * 1.05, y.most * 1.05, glyphs)
    draw(canvas)
    labels: dict[int, str] = {}
    for value, label in ticks:
        labels.setdefault(canvas.line(value), label)
    rows: list[Row] = [fitted([(cut(title, width), "strong")], width) if keys else flowed(legend, width, 1)[0]]
    for at, row in enumerate(canvas.rows()):
        label = labels.get(at, "")
        rows.append(fitted([(right(label, side) + (marks.tick if label else marks.side), "muted"), *row], width))
    ruler: list[Piece] = [(" " * side + marks.corner, "muted")]
    at = 0
    for value in x.ticks(max(1, canvas.columns // 8)):
        start, label = canvas.column(value), x.text(value)
        if at <= start and start + len(label) <= canvas.columns:
            ruler += [(marks.rule * (start - at), "border"), (label, "muted")]
            at = start + len(label)
    return [*rows, fitted([*ruler, (marks.rule * (canvas.columns - at), "border")], width), *keys]


def flowed(keys: Sequence[Key], width: int, most: int) -> list[Row]:
    """A legend in at most `most` lines, each entry in the first line that has room; what is left out is counted."""
    for kept in range(len(keys), 0, -1):
        shown = [*keys[:kept], *([Key("", "muted", f"+{len(keys) - kept}")] if kept < len(keys) else [])]
        lines: list[list[Piece]] = []
        for key in shown:
            pieces = [(f"{key.glyph} " if key.glyph else "", key.tone), (key.text, "text" if key.glyph else key.tone)]
            size = sum(cells(text) for text, _ in pieces)
            for line in lines:
                if sum(cells(text) for text, _ in line) + size + 2 <= width:
                    line += [("  ", "text"), *pieces]
                    break
            else:
                lines.append(pieces)
        if len(lines) <= most or kept == 1:
            return [fitted(line, width) for line in lines[: max(0, most)]]
    return []


def reason(title: str, text: str, width: int, height: int, tone: str = "muted") -> list[Row]:
    """A picture that can not be drawn: its title and why."""
    rows: list[Row] = [fitted([(cut(title, width), "strong")], width)] if height > 1 else []
    lines = folded(clean(labelled(text)), max(1, width))[: max(0, height - len(rows))]
    return rows + [[(left(line, width), tone)] for line in lines]


def fitted(row: Row, width: int) -> list[Piece]:
    """A row in exactly `width` cells."""
    room, pieces = max(0, width), []
    for text, tone in row:
        size = cells(text)
        if size > room:
            text, size = left(text, room), room
        if text:
            pieces.append((text, tone))
        room -= size
    return pieces + ([(" " * room, "text")] if room else [])


def filled(rows: Sequence[Row], width: int, height: int) -> list[Row]:
    """Exactly `height` rows."""
    blank: Row = [(" " * max(0, width), "text")] if width > 0 else []
    return [*rows[: max(0, height)], *([blank] * (height - len(rows)))]


_NEAR: Final = 2.0
"""Limits up to so many times what else is shown are drawn; the others are only named."""
_FAR: Final = 2.5
"""The same of a goal above the curve."""
_LINES: Final = {Source.MEASURED: "fit", Source.SWEEP: "sweep", Source.RESCALED: "re-scaled"}
"""What the curve is called by its source; else it is a roofline."""


def latency(width: int, height: int, instance: Instance, plan: WorkloadPlan, glyphs: Glyphs) -> list[Row]:
    """ITL of one instance over its requests in flight: what was measured, the curve (dashed where nothing was), the
    goal, the limits and the planned point."""
    marks, curve, fit = MARKS[glyphs], instance.curve, instance.fitted
    low, high = (fit.low, fit.high) if fit is not None else (0.0, 0.0)
    measured = instance.seen.points if instance.seen is not None and instance.alike else ()
    points = [(each.running, each.itl_s) for each in measured if usable(each.running) and usable(each.itl_s)]
    why = instance.problem or next(iter(instance.notes), "") if curve is None else ""
    title = f"ITL over requests in flight of one instance: {clean(plan.name)}"
    if not points and curve is None:
        return reason(title, why or NO_POINTS, width, height)

    def seen(running: float) -> bool:
        """Whether the curve is within what was measured, or near to it."""
        return high > 0.0 and low / EXTRAPOLATED <= running <= high * EXTRAPOLATED

    planned = running if usable(running := number(plan.running)) else None
    limits = [each for each in plan.limits if usable(each.concurrency) and each.kind is not LimitKind.ITL]
    base = max([*(x for x, _ in points), planned or 0.0, high if usable(high) else 0.0])
    base = base or (limits[0].concurrency if limits else 0.0) or 1.0
    near = [limit for limit in limits if limit.concurrency <= _NEAR * base][:2]
    most_x = max([base, *(limit.concurrency for limit in near)])
    heights = [y for _, y in points if y is not None]
    if curve is not None:
        heights += [y for share in (0.25, 0.5, 0.75, 1.05) if usable(y := curve.itl_s(most_x * share))]
    most_y = max(heights, default=0.0)
    goal = instance.goal_itl_s if usable(instance.goal_itl_s) else None
    goal_shown = goal is not None and goal <= _FAR * (most_y or goal)
    most_y = max(most_y, goal if goal is not None and goal_shown else 0.0) or 1.0
    at_plan = curve.itl_s(planned) if planned is not None and curve is not None else None
    at_plan = at_plan if usable(at_plan) else None

    keys = list[Key]()
    if planned is not None:
        text = "not known" if at_plan is None else _time(at_plan)
        doubt = "" if at_plan is None or seen(planned) else " extrapolated" if high > 0.0 else " not measured"
        keys.append(Key(marks.plan, "focus", f"planned {whole(planned)}: {text}{doubt}"))
    if goal is not None:
        asked = instance.workload.itl_p95_ms
        p95 = _time(asked / 1e3) if asked is not None and usable(asked) else ""
        text = f"goal {p95} p95 is {_time(goal)} mean" if p95 and p95 != _time(goal) else f"goal {_time(goal)}"
        keys.append(Key(marks.goal * 2, "warn", text + ("" if goal_shown else ", above the scale")))
    if curve is not None:
        scaled = fit is not None and fit.anchored and instance.source is not Source.RESCALED
        line = "scaled roofline" if scaled else _LINES.get(instance.source, "roofline")
        line += f" {instance.band.short}" if instance.band else ""
        unseen = high <= 0.0
        keys.append(Key(marks.dashed, "muted", f"{line}, not measured") if unseen else Key(marks.solid, "accent", line))
        beyond = most_x > high * EXTRAPOLATED
        if high > 0.0 and (beyond or low / EXTRAPOLATED >= 1.0):
            text = f"beyond {whole(high)}" if beyond else f"below {whole(low)}"
            keys.append(Key(marks.dashed, "muted", f"extrapolated {text}"))
    keys += [Key(marks.limit, "critical", f"{_word(each)} limit {whole(each.concurrency)}") for each in near]
    if points:
        keys.append(Key(marks.point, "tokens", f"{len(points)} measured"))
    if curve is None:
        keys.append(Key("", "muted", f"no line: {clean(labelled(why)) or NO_POINTS}"))
    far = [f"{_word(each)} limit {whole(each.concurrency)}, far right" for each in limits[:1] if each not in near]
    keys += [Key("", "muted", text) for text in far]

    def draw(canvas: Canvas) -> None:
        if curve is not None:
            canvas.curve(curve.itl_s, seen, "accent")
        for limit in near:
            canvas.down(limit.concurrency, marks.limit, "critical")
        if goal is not None and goal_shown:
            canvas.across(goal, marks.goal, "warn")
        for x, y in points:
            canvas.mark(x, y or 0.0, marks.point, "tokens")
        if planned is not None:
            canvas.mark(planned, at_plan or 0.0, marks.plan, "focus")

    unit, sign = (1e-3, "ms") if most_y < 10.0 else (1.0, "s")
    title = title.replace("ITL", f"ITL in {sign}", 1)
    return framed((width, height), title, (Scale(most_x), Scale(most_y, unit)), keys, glyphs, draw)


def _time(value: float) -> str:
    """An ITL or a goal with three digits and its unit."""
    return f"{value * 1e3:.3g} ms" if value < 0.9995 else f"{value:,.3g} s" if value < 999.5 else f"{value:,.0f} s"


def _word(limit: Limit) -> str:
    return "max seqs" if limit.kind is LimitKind.MAX_NUM_SEQS else limit.kind.value

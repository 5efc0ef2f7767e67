"""Plots of one workload over requests in flight: ITL and throughput of an instance, and the instances of a target."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from gpumon.readings.format import cells, count, cut, left, right, round_number, whole
from gpumon.readings.missing import number
from gpumon.readings.text import clean
from gpumon.sizing.answer import Limit, LimitKind, Source, WorkloadPlan
from gpumon.sizing.capacity import EXTRAPOLATED
from gpumon.sizing.instance import Instance
from gpumon.sizing.profile import Point
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
    in_use: str
    """A GPU that something else uses."""
    dot: str
    """Between words."""


MARKS: Final[dict[Glyphs, Marks]] = {
    "braille": Marks("●", "◆", "┄", "┊", "⠒⠒", "⠒ ⠒", "│", "┤", "└", "─", "─", "·", "×", " · "),
    "blocks": Marks("●", "◆", "┄", "┊", "▀▀", "▀ ▀", "│", "┤", "└", "─", "─", "·", "×", " · "),
    "ascii": Marks("o", "@", ".", ":", "--", "- -", "|", "+", "`", "-", "-", ".", "#", ", "),
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
        self._marked: set[tuple[int, int]] = set()
        """Cells that nothing may be written over."""

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
        cell = (self.line(y), self.column(x))
        self._over[cell] = (glyph, tone)
        self._marked.add(cell)

    def along(self, y: float, text: str, tone: str) -> None:
        """Words on a horizontal line, as far left as there is room; nothing where there is none."""
        starts = ((self.line(y), start) for start in range(1, self.columns - cells(text)))
        self._write(starts, text, tone, over=MARKS[self._glyphs].goal)

    def beside(self, x: float, text: str, tone: str) -> None:
        """Words to the left of a vertical line, else to its right, as low as there is room."""
        column = self.column(x)
        starts = (column - cells(text), column + 1)
        self._write(((line, start) for line in range(self.lines - 1, -1, -1) for start in starts), text, tone)

    def _write(self, starts: Iterable[tuple[int, int]], text: str, tone: str, over: str = "") -> None:
        """At the first start where all cells are free, or have the character `over`."""
        for line, start in starts:
            found = [(line, column) for column in range(start, start + len(text))]
            if start < 0 or start + len(text) > self.columns or any(cell in self._dots for cell in found):
                continue
            if self._marked.isdisjoint(found) and all(self._over.get(cell, (over, ""))[0] == over for cell in found):
                self._over |= {cell: (character, tone) for cell, character in zip(found, text, strict=True)}
                self._marked |= set(found)
                return

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
    short: str = ""
    """The same where there is little room; empty: `text`."""


class Title(NamedTuple):
    """What a picture shows, in words."""

    what: str
    name: str = ""
    """Of the workload."""
    short: str = ""
    """Instead of `what` where the legend stands beside it; empty: `what`."""


class Scale(NamedTuple):
    """An axis from 0 to a little more than `most`."""

    most: float
    unit: float = 1.0
    """What a value is divided by to be written."""
    whole: bool = False
    """There is nothing between two whole numbers."""

    def ticks(self, lots: int) -> list[float]:
        """At most about `lots` round steps from 0, and at least one where that can be."""
        top = self.most * 1.05
        step = nice(top / (lots + 0.99))
        if step > top:
            step = next((step / part for part in (2.0, 2.5, 5.0, 10.0) if step / part <= top), step)
        step = max(1.0, math.ceil(step)) if self.whole else step
        return [step * at for at in range(min(int(top / step + 1e-9), 40) + 1)]

    def text(self, value: float) -> str:
        """A figure of the axis."""
        value /= self.unit
        return round_number(value) if value == 0.0 or value >= 1e-3 else f"{value:.0e}"


Draw = Callable[[Canvas], None]
_LEGENDS: Final = ((18, 4), (12, 3), (7, 2), (5, 1))
"""Height from which a legend may have so many lines."""


def framed(
    size: tuple[int, int], title: Title, scales: tuple[Scale, Scale], legend: Sequence[Key], glyphs: Glyphs, draw: Draw
) -> list[Row]:
    """What `draw` draws, with its title, scales of x and y, and legend, in `size` (width and height); the legend alone
    where there is no room for more."""
    width, height = size
    if width < 16 or height < 3:
        return flowed(legend, width, height)
    marks, (x, y) = MARKS[glyphs], scales
    allowed = next((lines for least, lines in _LEGENDS if height >= least), 0)
    keys = flowed(legend, width, allowed)
    lines = height - 2 - len(keys)
    ticks = [(value, y.text(value)) for value in reversed(y.ticks(max(1, lines // 2)))]
    side = max(3, *(len(label) for _, label in ticks))
    canvas = Canvas(width - side - 1, lines, x.most * 1.05, y.most * 1.05, glyphs)
    draw(canvas)
    labels: dict[int, str] = {}
    for value, label in ticks:
        labels.setdefault(canvas.line(value), label)
    rows: list[Row] = [titled(title, width, () if allowed else legend)]
    for at, row in enumerate(canvas.rows()):
        label = labels.get(at, "")
        rows.append(fitted([(right(label, side) + (marks.tick if label else marks.side), "muted"), *row], width))
    return [*rows, _ruler(canvas, x, side, width, marks, bool(keys)), *keys]


def _ruler(canvas: Canvas, x: Scale, side: int, width: int, marks: Marks, titled_whole: bool) -> Row:
    """The x axis with its figures on it, and what it counts where there is room or the title does not say so."""
    labels = [(canvas.column(value), x.text(value)) for value in x.ticks(max(1, canvas.columns // 8))]
    used = max(start + len(label) for start, label in labels) + 1
    words = " in flight"
    if canvas.columns < 24 or (titled_whole and used + cells(words) > canvas.columns):
        words = ""
    end, at = canvas.columns - cells(words), 0
    row: list[Piece] = [(" " * side + marks.corner, "muted")]
    for start, label in labels:
        if at <= start and start + len(label) <= end:
            row += [(marks.rule * (start - at), "border"), (label, "muted")]
            at = start + len(label) + 1
            row.append((marks.rule if at <= end else "", "border"))
    return fitted([*row, (marks.rule * (end - at), "border"), (words, "muted")], width)


def titled(title: Title, width: int, legend: Sequence[Key] = ()) -> Row:
    """What is shown and whose it is, as far as there is room.

    `legend`: where no line is left for it, as much of it as fits stands behind the first words.
    """
    if legend:
        first = title.short or title.what
        keys = flowed([key._replace(text=key.short or key.text) for key in legend], width - cells(first) - 2, 1)
        return fitted([(first, "strong"), ("  ", "text"), *(keys[0] if keys else ())], width)
    room = width - cells(title.what)
    name = cut(f": {title.name}", room) if title.name and room >= 8 else ""
    return fitted([(title.what, "strong"), (name, "text")], width)


def flowed(keys: Sequence[Key], width: int, most: int) -> list[Row]:
    """A legend in at most `most` lines: whole entries, in short words where need be; what is left out is counted."""
    if most <= 0 or width <= 0:
        return []
    short = [key._replace(text=key.short or key.text) for key in keys]
    for form in (keys, short):
        lines = _legend(form, width)
        if len(lines) <= most:
            return [fitted(line, width) for line in lines]
    for kept in range(len(keys) - 1, 0, -1):
        lines = _legend([*short[:kept], Key("", "muted", f"+{len(keys) - kept}")], width)
        if len(lines) <= most:
            return [fitted(line, width) for line in lines]
    return [fitted(line, width) for line in _legend(short[:1], width)]


def _legend(keys: Sequence[Key], width: int) -> list[list[Piece]]:
    """Each entry in the first line that has room for it."""
    lines: list[list[Piece]] = []
    for key in keys:
        pieces = [(f"{key.glyph} " if key.glyph else "", key.tone), (key.text, "text" if key.glyph else key.tone)]
        size = sum(cells(text) for text, _ in pieces)
        for line in lines:
            if sum(cells(text) for text, _ in line) + size + 2 <= width:
                line += [("  ", "text"), *pieces]
                break
        else:
            lines.append(pieces)
    return lines


def reason(title: Title, text: str, width: int, height: int, tone: str = "muted") -> list[Row]:
    """A picture that can not be drawn: its title and why."""
    rows: list[Row] = [titled(title, width)] if height > 1 else []
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
_MOST_LIMITS: Final = 2
_LINES: Final = {
    Source.MEASURED: ("fitted line", "fit"),
    Source.SWEEP: ("line through the sweep", "sweep"),
    Source.RESCALED: ("re-scaled", "re-scaled"),
    Source.ROOFLINE: ("roofline", "roofline"),
}
"""The curve by its source, and in a word."""


def itl(width: int, height: int, instance: Instance, plan: WorkloadPlan, glyphs: Glyphs) -> list[Row]:
    """ITL over the requests in flight of one instance."""
    points = [(point.running, point.itl_s) for point in _points(instance)]
    known = [(x, y) for x, y in points if y is not None and usable(x) and usable(y)]
    value = instance.curve.itl_s if instance.curve is not None else None
    others = [limit for limit in plan.limits if limit.kind is not LimitKind.ITL]
    latency = _Latency(instance, plan, known, value, others, glyphs)
    goal = instance.goal_itl_s if usable(instance.goal_itl_s) else None
    high = latency.most_y
    shown = goal is not None and goal <= _FAR * (high or goal)
    high = max(high, goal) if goal is not None and shown else high or 1.0
    unit, name = (1e-3, "ms") if high < 10.0 else (1.0, "s")
    title = Title(f"ITL in {name} over requests in flight of one instance", clean(plan.name), f"ITL {name}")
    keys = list[Key]()
    if goal is not None:
        asked = instance.workload.itl_p95_ms
        p95 = _time(asked / 1e3) if asked is not None and usable(asked) else ""
        text = f"goal {p95} p95 is {_time(goal)} mean" if p95 and p95 != _time(goal) else f"goal {_time(goal)}"
        where = ("", "") if shown else (", above the scale", " above")
        keys.append(Key(MARKS[glyphs].goal * 2, "warn", text + where[0], f"goal {_time(goal)}{where[1]}"))
    return latency.rows((width, height), title, Scale(high, unit), _time, keys, goal if shown else None)


def throughput(width: int, height: int, instance: Instance, plan: WorkloadPlan, glyphs: Glyphs) -> list[Row]:
    """Output tokens per second over the requests in flight of one instance."""
    points = []
    for point in _points(instance):
        rate = point.tokens_per_s
        if rate is None and point.itl_s is not None and point.itl_s > 0.0:
            rate = point.running / point.itl_s
        if rate is not None and usable(rate) and usable(point.running):
            points.append((point.running, rate))
    value = instance.curve.tokens_per_s if instance.curve is not None else None
    latency = _Latency(instance, plan, points, value, plan.limits, glyphs)
    title = Title("tokens/s over requests in flight of one instance", clean(plan.name), "tok/s")
    scale = Scale(latency.most_y or 1.0)
    return latency.rows((width, height), title, scale, lambda y: f"{count(y)} tok/s", [], None)


def _points(instance: Instance) -> Sequence[Point]:
    return instance.seen.points if instance.seen is not None and instance.alike else ()


def _time(value: float) -> str:
    """An ITL or a goal with three digits and its unit."""
    return f"{value * 1e3:.3g} ms" if value < 0.9995 else f"{value:,.3g} s" if value < 999.5 else f"{value:,.0f} s"


class _Latency:
    """What both plots of an instance have: measured points, the curve, the planned point and the limits."""

    def __init__(
        self,
        instance: Instance,
        plan: WorkloadPlan,
        points: Sequence[tuple[float, float]],
        value: Callable[[float], float] | None,
        limits: Sequence[Limit],
        glyphs: Glyphs,
    ) -> None:
        self._instance, self._points, self._value, self._glyphs = instance, points, value, glyphs
        fitted_to = instance.fitted
        self._low, self._high = (fitted_to.low, fitted_to.high) if fitted_to is not None else (0.0, 0.0)
        self._plan = planned if usable(planned := number(plan.running)) else None
        bounds = [limit for limit in limits if usable(limit.concurrency)]
        base = max([x for x, _ in points] + [self._plan or 0.0, self._high if usable(self._high) else 0.0])
        base = base or (bounds[0].concurrency if bounds else 0.0) or 1.0
        self._near = [limit for limit in bounds if limit.concurrency <= _NEAR * base][:_MOST_LIMITS]
        self._far = [limit for limit in bounds[:1] if limit not in self._near]
        self.most_x = max([base, *(limit.concurrency for limit in self._near)])
        values = [y for _, y in points]
        if value is not None:
            values += [y for share in (0.25, 0.5, 0.75, 1.05) if usable(y := value(self.most_x * share))]
        self.most_y = max(values, default=0.0)
        """Highest value of points and curve; 0 where all are."""

    def _measured(self, running: float) -> bool:
        """Whether the curve is within what was measured, or near to it."""
        return self._high > 0.0 and self._low / EXTRAPOLATED <= running <= self._high * EXTRAPOLATED

    def rows(
        self,
        size: tuple[int, int],
        title: Title,
        scale: Scale,
        written: Callable[[float], str],
        goal_keys: list[Key],
        goal: float | None,
    ) -> list[Row]:
        """The plot; where there is neither a point nor a curve, why not."""
        instance, marks = self._instance, MARKS[self._glyphs]
        why = instance.problem or next(iter(instance.notes), "") if instance.curve is None else ""
        if not self._points and self._value is None:
            return reason(title, why or NO_POINTS, *size)
        planned = self._value(self._plan) if self._plan is not None and self._value is not None else None
        planned = planned if usable(planned) else None
        keys, dashed = list[Key](), self._dashed_keys()
        doubt = ""
        if self._plan is not None:
            if planned is not None and not self._measured(self._plan):
                doubt = " extrapolated" if self._high > 0.0 else " not measured"
            at = f"{whole(self._plan)}: {written(planned) if planned is not None else 'not known'}"
            short = f"{at}{doubt}".replace(" tok/s", "")
            keys.append(Key(marks.plan, "focus", f"planned {at}{',' if doubt else ''}{doubt}", short))
        keys += [*(() if doubt else dashed), *goal_keys, *self._solid_keys()]
        for limit in self._near:
            text = f"{_word(limit)} limit {whole(limit.concurrency)}"
            keys.append(Key(marks.limit, "critical", text, text.replace(" limit", "")))
        for limit in self._far:
            text = f"{_word(limit)} limit {whole(limit.concurrency)}"
            keys.append(Key("", "muted", f"{text}, far right", f"{text.replace(' limit', '')} far"))
        if self._points:
            n = len(self._points)
            keys.append(Key(marks.point, "tokens", f"{n} point{'s' * (n != 1)} measured", f"{n} measured"))
        if self._value is None:
            keys.append(Key("", "muted", f"no line: {clean(labelled(why)) or NO_POINTS}", "no line yet"))
        keys += dashed if doubt else ()

        def draw(canvas: Canvas) -> None:
            if self._value is not None:
                canvas.curve(self._value, self._measured, "accent")
            for limit in self._near:
                canvas.down(limit.concurrency, marks.limit, "critical")
            if goal is not None:
                canvas.across(goal, marks.goal, "warn")
            for x, y in self._points:
                canvas.mark(x, y, marks.point, "tokens")
            if self._plan is not None:
                canvas.mark(self._plan, planned or 0.0, marks.plan, "focus")
            if goal is not None:
                canvas.along(goal, " goal ", "warn")
            for limit in self._near:
                canvas.beside(limit.concurrency, _word(limit), "critical")

        return framed(size, title, (Scale(self.most_x), scale), keys, self._glyphs, draw)

    def _name(self) -> tuple[str, str]:
        """Of the curve, with its band, and in a word."""
        instance = self._instance
        fitted_to, source = instance.fitted, instance.source
        scaled = fitted_to is not None and fitted_to.anchored and source is not Source.RESCALED
        name = (
            ("roofline scaled to what was measured", "scaled roofline") if scaled else _LINES.get(source, ("line",) * 2)
        )
        band = f" {instance.band.short}" if instance.band else ""
        return f"{name[0]}{band}", f"{name[1]}{band}"

    def _solid_keys(self) -> list[Key]:
        """Of the part of the curve that was measured."""
        if self._value is None or self._high <= 0.0:
            return []
        return [Key(MARKS[self._glyphs].solid, "accent", *self._name())]

    def _dashed_keys(self) -> list[Key]:
        """Of the part of the curve that was not."""
        dashed = MARKS[self._glyphs].dashed
        if self._value is None:
            return []
        if self._high <= 0.0:
            name, short = self._name()
            return [Key(dashed, "muted", f"{name}, not measured", short)]
        beyond = self.most_x > self._high * EXTRAPOLATED
        if not beyond and self._low / EXTRAPOLATED < 1.0:
            return []
        text = f"extrapolated beyond {whole(self._high)}" if beyond else f"extrapolated below {whole(self._low)}"
        return [Key(dashed, "muted", text, "extrapolated")]


def _word(limit: Limit) -> str:
    return "max seqs" if limit.kind is LimitKind.MAX_NUM_SEQS else limit.kind.value


def instances(width: int, height: int, plan: WorkloadPlan, here: int | None, glyphs: Glyphs) -> list[Row]:
    """Instances that each number of requests in flight takes. `here`: instances that run now; None: not known."""
    title, marks = Title("instances over requests in flight", clean(plan.name), short="instances"), MARKS[glyphs]
    each, target, needed = number(plan.capacity_per_instance), number(plan.concurrency), number(plan.instances)
    if each is None or not usable(each) or each <= 0.0:
        return reason(title, plan.problem or "no capacity of one instance is known yet", width, height)
    if target is None or not usable(target):
        return reason(title, plan.problem or "the target in requests in flight is not known", width, height)

    def steps(requests: float) -> float:
        return math.ceil(min(requests / each, 1e300) - 1e-9) + plan.spares

    mark = needed if needed is not None and usable(needed) else steps(target) if target else 0.0
    carried = here * each if here else 0.0
    # What runs here is in view where it is not far more than what is asked.
    most_x = max(1.5 * target or 4.0 * each, carried * 1.1 if carried <= 3.0 * target else 0.0)
    shown = here is not None and 0 <= here <= 3.0 * max(steps(most_x), mark)
    most_y = max(steps(most_x), mark, float(here or 0) if shown else 0.0, 1.0)
    keys = [Key(marks.plan, "focus", f"target {_whole(target)}: {_whole(mark)} needed", f"{_whole(mark)} needed")]
    if here is not None:
        text = f"{_whole(here)} here now" + (f", carry {_whole(carried)}" if carried else "")
        text += "" if shown else ", above the scale"
        keys.append(Key(marks.goal * 2, "ok", text, f"{_whole(here)} here"))
    spare = f", {plan.spares} spare" if plan.spares else ""
    keys.append(Key(marks.solid, "accent", f"{count(each)} per instance{spare}"))
    if mark > steps(target) and target:
        keys.append(Key("", "muted", "more than the steps: a rate or queue bound", "above the steps"))

    def draw(canvas: Canvas) -> None:
        canvas.curve(steps, lambda _: True, "accent")
        if here is not None and shown:
            canvas.across(float(here), marks.goal, "ok")
        canvas.down(target, marks.limit, "muted")
        canvas.mark(target, mark, marks.plan, "focus")

    return framed((width, height), title, (Scale(most_x), Scale(most_y, whole=True)), keys, glyphs, draw)


def _whole(value: float) -> str:
    return f"{value:,.0f}" if value < 1e5 else whole(value)

"""ITL and throughput of one instance over its requests in flight: points, curve, goal, limits and plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from gpumon.readings.format import count, whole
from gpumon.readings.missing import number
from gpumon.readings.text import clean
from gpumon.sizing.accuracy import NO_BAND, Band
from gpumon.sizing.answer import Limit, LimitKind, Source, WorkloadPlan
from gpumon.sizing.capacity import EXTRAPOLATED
from gpumon.sizing.latency import Curve
from gpumon.sizing.profile import Point
from gpumon.tui.line import Row
from gpumon.tui.palette import Glyphs
from gpumon.tui.sizing.canvas import MARKS, Marks, usable
from gpumon.tui.sizing.fields import labelled
from gpumon.tui.sizing.plot_frame import Key, Plot, Scale, Title, said

if TYPE_CHECKING:
    from gpumon.sizing.instance import Instance

BEYOND: Final = EXTRAPOLATED
"""Times the measured range from which a curve is extrapolated (sizing fact sheet, 1.4)."""
NO_POINTS: Final = "no points yet: a fit needs 5 levels of load"
_NEAR: Final = 2.0
"""Limits up to so many times what else is shown are drawn; the others are only said."""
_FAR: Final = 2.5
"""The same of a goal above the curve."""
_MOST_LIMITS: Final = 2
_SOURCES: Final = {
    Source.MEASURED: ("fitted line", "fit"),
    Source.SWEEP: ("line through the sweep", "sweep"),
    Source.RESCALED: ("re-scaled", "re-scaled"),
    Source.ROOFLINE: ("roofline", "roofline"),
}
_SCALED: Final = ("roofline scaled to what was measured", "scaled roofline")


class CurvePicture(msgspec.Struct, frozen=True):
    """What is known of the latency of one instance. Seconds; requests in flight of one instance."""

    name: str
    points: tuple[Point, ...] = ()
    curve: Curve | None = None
    low: float = 0.0
    high: float = 0.0
    """Range of running that the curve was fitted to; 0 and 0: nothing of it was measured here."""
    goal_s: float | None = None
    """ITL, as a mean."""
    goal_p95_s: float | None = None
    """The same as it was asked for; None: as the mean."""
    planned_running: float | None = None
    limits: tuple[Limit, ...] = ()
    """The first to hold first."""
    source: Source = Source.NONE
    band: Band = NO_BAND
    anchored: bool = False
    """The curve is the roofline, scaled to points that are too few for a line."""
    reason: str = ""
    """Why there is no curve."""

    def measured(self, running: float) -> bool:
        """Whether the curve is within what was measured, or near to it."""
        return self.high > 0.0 and self.low / BEYOND <= running <= self.high * BEYOND


def curve_picture(instance: Instance, plan: WorkloadPlan) -> CurvePicture:
    """The picture of a resolved instance and its plan."""
    fitted, goal_ms = instance.fitted, instance.workload.itl_p95_ms
    own = instance.seen is not None and instance.alike
    return CurvePicture(
        name=plan.name,
        points=instance.seen.points if instance.seen is not None and own else (),
        curve=instance.curve,
        low=fitted.low if fitted is not None else 0.0,
        high=fitted.high if fitted is not None else 0.0,
        goal_s=instance.goal_itl_s,
        goal_p95_s=None if goal_ms is None else goal_ms / 1e3,
        planned_running=number(plan.running),
        limits=plan.limits,
        source=instance.source,
        band=instance.band,
        anchored=fitted is not None and fitted.anchored and instance.source is not Source.RESCALED,
        reason=instance.problem or next(iter(instance.notes), "") if instance.curve is None else "",
    )


def itl(width: int, height: int, picture: CurvePicture, glyphs: Glyphs) -> list[Row]:
    """ITL over the requests in flight of one instance."""
    title = Title("ITL in ms over requests in flight", clean(picture.name), "of one instance", "ITL ms")
    points = [(point.running, point.itl_s) for point in picture.points if usable(point.running) and usable(point.itl_s)]
    known = [(x, y) for x, y in points if y is not None]
    value = picture.curve.itl_s if picture.curve is not None else None
    others = [limit for limit in picture.limits if limit.kind is not LimitKind.ITL]
    scene = _Scene(picture, known, value, others, glyphs)
    if scene.nothing:
        return said(title, picture.reason or NO_POINTS, width, height)
    goal = picture.goal_s if picture.goal_s is not None and usable(picture.goal_s) else None
    most = scene.most_y
    shown = goal is not None and goal <= _FAR * (most or goal)
    most = max(most, goal) if goal is not None and shown else most or 1.0
    keys = scene.keys(_time, _goal_keys(picture, goal, shown, scene.marks))
    unit = 1e-3 if most < 10.0 else 1.0
    if unit == 1.0:
        title = title._replace(what="ITL in s over requests in flight", short="ITL s")
    plot = Plot((width, height), title, (Scale(scene.most_x), Scale(most, unit)), "in flight", keys, glyphs)
    if plot.canvas is not None:
        scene.draw(plot, goal if shown else None)
    return plot.rows()


def throughput(width: int, height: int, picture: CurvePicture, glyphs: Glyphs) -> list[Row]:
    """Output tokens per second over the requests in flight of one instance."""
    title = Title("tokens/s over requests in flight", clean(picture.name), "of one instance", "tok/s")
    known = [(point.running, rate) for point in picture.points if (rate := _rate(point)) is not None]
    scene = _Scene(
        picture, known, picture.curve.tokens_per_s if picture.curve is not None else None, picture.limits, glyphs
    )
    if scene.nothing:
        return said(title, picture.reason or NO_POINTS, width, height)
    keys = scene.keys(lambda y: f"{count(y)} tok/s", [])
    most = scene.most_y or 1.0
    plot = Plot((width, height), title, (Scale(scene.most_x), Scale(most)), "in flight", keys, glyphs)
    if plot.canvas is not None:
        scene.draw(plot, None)
    return plot.rows()


def _time(value: float) -> str:
    """An ITL or a goal with three digits and its unit."""
    return f"{value * 1e3:.3g} ms" if value < 0.9995 else f"{value:,.3g} s" if value < 999.5 else f"{value:,.0f} s"


def _rate(point: Point) -> float | None:
    """Tokens per second of a point: as measured, else what its ITL comes to."""
    if not usable(point.running):
        return None
    rate = point.tokens_per_s
    if rate is None and point.itl_s is not None and point.itl_s > 0.0:
        rate = point.running / point.itl_s
    return rate if usable(rate) else None


def _goal_keys(picture: CurvePicture, goal: float | None, shown: bool, marks: Marks) -> list[Key]:
    if goal is None:
        return []
    asked = picture.goal_p95_s
    text = f"goal {_time(goal)}"
    if asked is not None and usable(asked) and _time(asked) != _time(goal):
        text = f"goal {_time(asked)} p95 is {_time(goal)} mean"
    where = "" if shown else ", above the scale"
    return [Key(marks.goal * 2, "warn", text + where, f"goal {_time(goal)}{'' if shown else ' above'}")]


class _Scene:
    """What both plots have: points, a curve, the plan and the limits."""

    def __init__(
        self,
        picture: CurvePicture,
        points: list[tuple[float, float]],
        value: Callable[[float], float] | None,
        limits: list[Limit] | tuple[Limit, ...],
        glyphs: Glyphs,
    ) -> None:
        self._picture, self._points, self._value = picture, points, value
        self.marks = MARKS[glyphs]
        self._plan = picture.planned_running if usable(picture.planned_running) else None
        bounds = [limit for limit in limits if usable(limit.concurrency)]
        base = max([x for x, _ in points] + [self._plan or 0.0, picture.high if usable(picture.high) else 0.0])
        base = base or (bounds[0].concurrency if bounds else 0.0) or 1.0
        self._near = [limit for limit in bounds if limit.concurrency <= _NEAR * base][:_MOST_LIMITS]
        self._far = [limit for limit in bounds[:1] if limit not in self._near]
        self.most_x = max([base, *(limit.concurrency for limit in self._near)])

    @property
    def nothing(self) -> bool:
        """There is neither a point nor a curve."""
        return not self._points and self._value is None

    @property
    def most_y(self) -> float:
        """Highest value of points and curve; 0 where all are."""
        values = [y for _, y in self._points]
        if self._value is not None:
            values += [y for share in (0.25, 0.5, 0.75, 1.05) if usable(y := self._value(self.most_x * share))]
        return max(values, default=0.0)

    def _planned(self) -> float | None:
        """The curve at the planned point."""
        if self._plan is None or self._value is None:
            return None
        y = self._value(self._plan)
        return y if usable(y) else None

    def keys(self, written: Callable[[float], str], goal: list[Key]) -> list[Key]:
        """The legend, what matters most first."""
        marks, picture, found = self.marks, self._picture, list[Key]()
        if self._plan is not None:
            y = self._planned()
            figure = written(y) if y is not None else "not known"
            doubt = self._doubt(self._plan) if y is not None else ""
            at = f"{whole(self._plan)}: {figure}"
            found.append(
                Key(
                    marks.plan,
                    "focus",
                    f"planned {at}{',' if doubt else ''}{doubt}",
                    f"{at}{doubt}".replace(" tok/s", ""),
                )
            )
        dashed, curve = self._curve_keys()
        early = dashed if not (self._plan is not None and self._doubt(self._plan)) else []
        found += [*early, *goal, *curve]
        for limit in self._near:
            kind = _word(limit)
            found.append(Key(marks.limit, "critical", f"{kind} limit {whole(limit.concurrency)}",
                             f"{kind} {whole(limit.concurrency)}"))  # fmt: skip
        for limit in self._far:
            text = f"{_word(limit)} limit {whole(limit.concurrency)}, far right"
            found.append(Key("", "muted", text, f"{_word(limit)} {whole(limit.concurrency)} far"))
        if self._points:
            n = len(self._points)
            found.append(Key(marks.point, "tokens", f"{n} point{'s' * (n != 1)} measured", f"{n} measured"))
        if self._value is None:
            reason = clean(labelled(picture.reason)) or NO_POINTS
            found.append(Key("", "muted", f"no line: {reason}", "no line yet"))
        return found if early else [*found, *dashed]

    def _doubt(self, running: float) -> str:
        """What is said of a point of the curve that nobody saw."""
        if self._picture.measured(running):
            return ""
        return " extrapolated" if self._picture.high > 0.0 else " not measured"

    def _curve_keys(self) -> tuple[list[Key], list[Key]]:
        """Of the dashed part of the curve, and of the solid one."""
        marks, picture = self.marks, self._picture
        if self._value is None:
            return [], []
        name, short = _SCALED if picture.anchored else _SOURCES.get(picture.source, ("line", "line"))
        band = f" {picture.band.short}" if picture.band else ""
        if picture.high <= 0.0:
            return [Key(marks.dashed, "muted", f"{name}{band}, not measured", f"{short}{band}")], []
        solid = [Key(marks.solid, "accent", f"{name}{band}", f"{short}{band}")]
        if self.most_x > picture.high * BEYOND:
            text = f"extrapolated beyond {whole(picture.high)}"
        elif picture.low / BEYOND >= 1.0:
            text = f"extrapolated below {whole(picture.low)}"
        else:
            return [], solid
        return [Key(marks.dashed, "muted", text, "extrapolated")], solid

    def draw(self, plot: Plot, goal: float | None) -> None:
        """Curve, goal, limits, points, plan: each before the one before it."""
        canvas, marks = plot.canvas, self.marks
        if canvas is None:
            return
        if self._value is not None:
            canvas.curve(self._value, self._picture.measured, "accent")
        for limit in self._near:
            canvas.down(limit.concurrency, marks.limit, "critical")
        if goal is not None:
            canvas.across(goal, marks.goal, "warn")
        for x, y in self._points:
            canvas.mark(x, y, marks.point, "tokens")
        if self._plan is not None:
            canvas.mark(self._plan, self._planned() or 0.0, marks.plan, "focus")
        if goal is not None:
            canvas.along(goal, " goal ", "warn")
        for limit in self._near:
            canvas.beside(limit.concurrency, _word(limit), "critical")


def _word(limit: Limit) -> str:
    return "max seqs" if limit.kind is LimitKind.MAX_NUM_SEQS else limit.kind.value

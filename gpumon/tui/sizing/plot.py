"""The plot of one workload: ITL of an instance over its requests in flight."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from gpumon.readings.format import whole
from gpumon.readings.missing import number
from gpumon.readings.text import clean
from gpumon.sizing.answer import Limit, LimitKind, Source, WorkloadPlan
from gpumon.sizing.capacity import EXTRAPOLATED
from gpumon.sizing.goals import TOKEN_KINDS, goals_of
from gpumon.sizing.instance import Instance
from gpumon.sizing.interpolated import ItlCurve
from gpumon.tui.line import Row
from gpumon.tui.palette import Glyphs
from gpumon.tui.sizing.canvas import (
    CHART_MARKS,
    SAMPLE_CELLS,
    Canvas,
    LegendEntry,
    Marks,
    Scale,
    can_be_drawn,
    framed_picture,
    reason_rows,
)
from gpumon.tui.sizing.fields import with_field_names

NO_POINTS: Final = "no points yet: a fit needs 5 levels of load"
_FURTHEST_LIMIT: Final = 2.0
"""Limits up to so many times the largest load that is shown anyway are drawn."""
_MOST_LIMITS: Final = 2
"""Limits that are drawn, the first to hold first."""
_HIGHEST_GOAL: Final = 2.5
"""A goal up to so many times the highest ITL is drawn; one above is only named."""
_HEADROOM: Final = 1.05
"""Room on the x axis behind the last limit or point."""
_CURVE_NAMES: Final = {Source.MEASURED: "fit", Source.SWEEP: "sweep", Source.RESCALED: "re-scaled"}
"""Name of the curve by its source; else it is a roofline."""
_SAMPLES: Final = (0.25, 0.5, 0.75, _HEADROOM)
"""Shares of the largest load at which the curve is asked for its height: the last is the end of the axis."""
_SECONDS_FROM_S: Final = 10.0
"""From this ITL on the y axis is in seconds."""


class MeasuredRange(NamedTuple):
    """The requests in flight between which something was measured; `high` is 0 where nothing was."""

    low: float
    high: float

    @property
    def empty(self) -> bool:
        """Whether nothing was measured."""
        return self.high <= 0.0

    def covers(self, running: float) -> bool:
        """Whether a load is within what was measured, or near to it."""
        return not self.empty and self.low / EXTRAPOLATED <= running <= self.high * EXTRAPOLATED


class _Plot(NamedTuple):
    """Everything that is drawn, in requests in flight and seconds."""

    points: list[tuple[float, float]]
    """Measured loads and their ITL."""
    curve: ItlCurve | None
    measured: MeasuredRange
    planned: float | None
    """The load of an instance at the target; None where it is not known."""
    planned_s: float | None
    """ITL at the planned load; None where it is not known."""
    goal_s: float | None
    goal_in_view: bool
    missed_goal: str
    """The goal for tokens that not even one request meets, so that no load stands for it; empty: there is none."""
    limits: list[Limit]
    """The limits that are drawn."""
    beyond: list[Limit]
    """The first limit, where it lies too far to the right to be drawn."""
    most_x: float
    """The largest load of the x axis."""
    most_s: float
    """The largest ITL of the y axis."""


def latency_chart(width: int, height: int, instance: Instance, plan: WorkloadPlan, glyphs: Glyphs) -> list[Row]:
    """ITL of one instance over its requests in flight: points that were measured, the curve (thin where it is
    extrapolated), the goal, the limits and the planned load."""
    plot = _plot_of(instance, plan)
    title = f"over requests in flight of one instance: {clean(plan.name)}"
    if not plot.points and plot.curve is None:
        return reason_rows(f"ITL {title}", _why_no_curve(instance) or NO_POINTS, width, height)
    marks = CHART_MARKS[glyphs]
    if plot.most_s >= _SECONDS_FROM_S:
        unit = "s"
        scale_y = Scale(plot.most_s)
    else:
        unit = "ms"
        scale_y = Scale(plot.most_s, unit=1e-3)
    return framed_picture(
        size=(width, height),
        title=f"ITL in {unit} {title}",
        scales=(Scale(plot.most_x), scale_y),
        legend=list(_legend_entries(plot, instance, marks)),
        glyphs=glyphs,
        draw=lambda canvas: _draw(canvas, plot, marks),
    )


def _why_no_curve(instance: Instance) -> str:
    """The reason why an instance has no curve; empty if it has one, or the reason is not known."""
    if instance.curve is not None:
        return ""
    return instance.problem or next(iter(instance.notes), "")


def _plot_of(instance: Instance, plan: WorkloadPlan) -> _Plot:
    """The values and the extent of the plot of one workload."""
    measured = _measured_range(instance)
    points = _measured_points(instance)
    planned = _drawable(number(plan.running))
    limits = _load_limits(plan)
    least_extent = _least_extent(points, planned, measured, limits)
    furthest = _FURTHEST_LIMIT * least_extent
    drawn_limits = [limit for limit in limits if limit.concurrency <= furthest][:_MOST_LIMITS]
    most_x = max([least_extent, *(limit.concurrency for limit in drawn_limits)])
    highest_s = _highest_s(points, instance.curve, most_x)
    goal_s = _drawable(_goal_as_mean_s(instance, plan))
    goal_in_view = False
    if goal_s is not None and (not highest_s or goal_s <= _HIGHEST_GOAL * highest_s):
        goal_in_view = True
        highest_s = max(highest_s, goal_s)
    return _Plot(
        points=points,
        curve=instance.curve,
        measured=measured,
        planned=planned,
        planned_s=_itl_s(instance.curve, planned),
        goal_s=goal_s,
        goal_in_view=goal_in_view,
        missed_goal=_missed_goal(instance, plan) if goal_s is None else "",
        limits=drawn_limits,
        beyond=[limit for limit in limits[:1] if limit not in drawn_limits],
        most_x=most_x * _HEADROOM,
        most_s=highest_s or 1.0,
    )


def _goal_as_mean_s(instance: Instance, plan: WorkloadPlan) -> float | None:
    """The goal for tokens that holds first, as a mean: that of the load up to which it holds; None without one."""
    curve = instance.curve
    if instance.itl_tail.known and instance.goal_itl_s is not None:
        return instance.goal_itl_s
    for limit in plan.limits:
        if limit.kind in TOKEN_KINDS and curve is not None and can_be_drawn(limit.concurrency):
            return curve.itl_s(limit.concurrency) if limit.concurrency >= 1.0 else None
    return None


def _missed_goal(instance: Instance, plan: WorkloadPlan) -> str:
    """The goal for tokens that not even one request meets: `TPOT p95 15 ms`; empty where there is none."""
    missed_kinds = {limit.kind for limit in plan.limits if limit.concurrency < 1.0}
    for goal, goal_s in goals_of(instance.workload):
        if goal.kind in TOKEN_KINDS and goal.kind in missed_kinds:
            return f"{goal.name} {_time_text(goal_s)}"
    return ""


def _load_limits(plan: WorkloadPlan) -> list[Limit]:
    """The limits of requests in flight, in their order, but those of goals for tokens, which are drawn as the goal."""
    return [limit for limit in plan.limits if can_be_drawn(limit.concurrency) and limit.kind not in TOKEN_KINDS]


def _measured_range(instance: Instance) -> MeasuredRange:
    """The loads between which the fit has points; an empty range without a fit."""
    fit = instance.fitted
    if fit is None:
        return MeasuredRange(0.0, 0.0)
    return MeasuredRange(fit.low, fit.high)


def _drawable(value: float | None) -> float | None:
    """A figure, or None if it cannot be drawn."""
    if can_be_drawn(value):
        return value
    return None


def _measured_points(instance: Instance) -> list[tuple[float, float]]:
    """Loads and ITL that were measured on an instance like this one."""
    if instance.seen is None or not instance.alike:
        return []
    return [
        (point.running, point.itl_s)
        for point in instance.seen.points
        if point.itl_s is not None and can_be_drawn(point.running) and can_be_drawn(point.itl_s)
    ]


def _least_extent(
    points: list[tuple[float, float]], planned: float | None, measured: MeasuredRange, limits: list[Limit]
) -> float:
    """The load that the x axis shows at least: what was measured and planned; else the first limit."""
    loads = [running for running, _ in points]
    if planned is not None:
        loads.append(planned)
    if can_be_drawn(measured.high):
        loads.append(measured.high)
    extent = max(loads, default=0.0)
    if not extent and limits:
        extent = limits[0].concurrency
    return extent or 1.0


def _highest_s(points: list[tuple[float, float]], curve: ItlCurve | None, most_x: float) -> float:
    """The highest ITL of points and curve; 0 where there is none."""
    heights = [itl_s for _, itl_s in points]
    if curve is not None:
        for share in _SAMPLES:
            itl_s = curve.itl_s(most_x * share)
            if can_be_drawn(itl_s):
                heights.append(itl_s)
    return max(heights, default=0.0)


def _itl_s(curve: ItlCurve | None, running: float | None) -> float | None:
    """ITL that a curve has at a load; None where that cannot be told."""
    if curve is None or running is None:
        return None
    return _drawable(curve.itl_s(running))


def _draw(canvas: Canvas, plot: _Plot, marks: Marks) -> None:
    """Draw the plot: the curve first, as lines stay behind it, then the points, which stand before all."""
    if plot.curve is not None:
        canvas.draw_curve(plot.curve.itl_s, plot.measured.covers, "accent")
    for limit in plot.limits:
        canvas.draw_vertical(limit.concurrency, marks.limit, "critical")
    if plot.goal_s is not None and plot.goal_in_view:
        canvas.draw_horizontal(plot.goal_s, marks.goal, "warn")
    for running, itl_s in plot.points:
        canvas.draw_mark(running, itl_s, marks.point, "tokens")
    if plot.planned is not None:
        canvas.draw_mark(plot.planned, plot.planned_s or 0.0, marks.plan, "focus")


def _legend_entries(plot: _Plot, instance: Instance, marks: Marks) -> Iterator[LegendEntry]:
    """The entries of the legend, the most telling first."""
    if plot.planned is not None:
        yield LegendEntry(marks.plan, "focus", _planned_text(plot, plot.planned))
    if plot.goal_s is not None:
        goal = _goal_text(instance, plot.goal_s)
        if not plot.goal_in_view:
            goal = f"{goal}, above the scale"
        yield LegendEntry(marks.goal * SAMPLE_CELLS, "warn", goal)
    if plot.missed_goal:
        yield LegendEntry("", "critical", f"goal {plot.missed_goal} is missed even by one request alone")
    if plot.curve is not None:
        yield from _curve_entries(plot, instance, marks)
    for limit in plot.limits:
        yield LegendEntry(marks.limit, "critical", f"{_limit_name(limit)} limit {whole(limit.concurrency)}")
    if plot.points:
        yield LegendEntry(marks.point, "tokens", f"{len(plot.points)} measured")
    if plot.curve is None:
        why = clean(with_field_names(_why_no_curve(instance))) or NO_POINTS
        yield LegendEntry("", "muted", f"no line: {why}")
    for limit in plot.beyond:
        yield LegendEntry("", "muted", f"{_limit_name(limit)} limit {whole(limit.concurrency)}, far right")


def _planned_text(plot: _Plot, running: float) -> str:
    """The planned load with its ITL, and how far that may be trusted."""
    itl = _time_text(plot.planned_s) if plot.planned_s is not None else "not known"
    return f"planned {whole(running)}: {itl}{_doubt_text(plot, running)}"


def _doubt_text(plot: _Plot, running: float) -> str:
    """How far the planned point may be trusted, as the legend says it."""
    if plot.planned_s is None or plot.measured.covers(running):
        return ""
    if plot.measured.empty:
        return " not measured"
    return " extrapolated"


def _goal_text(instance: Instance, goal_s: float) -> str:
    """The goal of the mean, which is drawn; before it the goal that was asked for, where that is another time."""
    mean = _time_text(goal_s)
    for goal, asked_s in goals_of(instance.workload):
        asked = _time_text(asked_s)
        if goal.kind in TOKEN_KINDS and asked != mean and can_be_drawn(asked_s):
            return f"goal {goal.name} {asked} is {mean} mean"
    return f"goal {mean}"


def _curve_entries(plot: _Plot, instance: Instance, marks: Marks) -> Iterator[LegendEntry]:
    """Name of the curve, and the loads at which it is extrapolated."""
    name = _CURVE_NAMES.get(instance.source, "roofline")
    if instance.fitted is not None and instance.fitted.anchored and instance.source is not Source.RESCALED:
        name = "scaled roofline"
    if instance.band:
        name = f"{name} {instance.band.short}"
    if plot.measured.empty:
        yield LegendEntry(marks.thin, "muted", f"{name}, not measured")
        return
    yield LegendEntry(marks.thick, "accent", name)
    extrapolated = list[str]()
    if plot.measured.low / EXTRAPOLATED >= 1.0:  # there is no load below one request
        extrapolated.append(f"below {whole(plot.measured.low)}")
    if plot.most_x > plot.measured.high * EXTRAPOLATED * _HEADROOM:
        extrapolated.append(f"beyond {whole(plot.measured.high)}")
    if extrapolated:
        yield LegendEntry(marks.thin, "muted", f"extrapolated {' and '.join(extrapolated)}")


def _time_text(value_s: float) -> str:
    """An ITL or a goal with three digits and its unit."""
    if value_s < 0.9995:  # from here on it is rounded to 1000 ms
        return f"{value_s * 1e3:.3g} ms"
    if value_s < 999.5:  # from here on three digits would be written with an exponent
        return f"{value_s:,.3g} s"
    return f"{value_s:,.0f} s"


def _limit_name(limit: Limit) -> str:
    """The name of a limit in the legend."""
    if limit.kind is LimitKind.MAX_NUM_SEQS:
        return "max seqs"
    return str(limit.kind.value)

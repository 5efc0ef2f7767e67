"""The picture of a simulation: requests of one instance over time, with its percentiles beside the formula's means."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from gpumon.readings import format as human
from gpumon.readings.missing import Missing
from gpumon.readings.text import clean
from gpumon.sizing.simulate.experiment import Simulation
from gpumon.sizing.simulate.figures import Figures, QueuePoint
from gpumon.tui.line import Row
from gpumon.tui.palette import Glyphs
from gpumon.tui.sizing.canvas import (
    CHART_MARKS,
    Canvas,
    LegendEntry,
    LegendLines,
    Marks,
    Scale,
    framed_picture,
    reason_rows,
)

_LEGEND_LINES: Final[LegendLines] = ((9, 4), (7, 3), (5, 1))
"""More than other pictures have: the percentiles of three latencies are the answer."""
_HEADROOM: Final = 1.05
"""End of the y axis over the largest number of requests."""


def simulation_rows(width: int, height: int, simulation: Simulation | None, glyphs: Glyphs) -> list[Row]:
    """Running and waiting requests of one instance at its share of the target; the formula's mean is a line across."""
    title = "simulation of one instance"
    if simulation is None:
        return reason_rows(title, "no answer yet", width, height)
    if not simulation.figures:
        return reason_rows(title, simulation.problem, width, height)
    (figures,) = simulation.figures  # there is one where there is no problem
    marks = CHART_MARKS[glyphs]
    name = clean(simulation.name)
    long_title = f"{title}, running and waiting requests over seconds: {name}, {simulation.arrivals}"
    most = max((max(point.running, point.waiting) for point in figures.queue), default=1.0)
    formula_running = simulation.formula.running
    if not isinstance(formula_running, Missing):
        most = max(most, formula_running)

    def draw(canvas: Canvas) -> None:
        canvas.draw_curve(_over_time(figures.queue, "waiting"), _all_simulated, "warn")
        canvas.draw_curve(_over_time(figures.queue, "running"), _all_simulated, "accent")
        if not isinstance(formula_running, Missing):
            canvas.draw_horizontal(formula_running, marks.goal, "muted")

    return framed_picture(
        size=(width, height),
        title=long_title,
        scales=(Scale(figures.seconds), Scale(max(1.0, most * _HEADROOM))),
        legend=_legend_entries(simulation, figures, marks),
        glyphs=glyphs,
        draw=draw,
        lines_by_height=_LEGEND_LINES,
    )


def _all_simulated(_time_s: float) -> bool:
    """Whether a curve is known at a time: it is at every time, so that no part of it is drawn thin."""
    return True


def _over_time(queue: Sequence[QueuePoint], name: str) -> Callable[[float], float]:
    """A function from a time in seconds to a figure of the queue at the last moment before it; moments of a queue are
    evenly spaced."""
    values = [float(getattr(point, name)) for point in queue]
    step_s = 1.0
    if len(queue) > 1:
        step_s = queue[1].time_s - queue[0].time_s

    def value(time_s: float) -> float:
        return values[min(len(values) - 1, max(0, int(time_s / step_s)))]

    return value


def _legend_entries(simulation: Simulation, figures: Figures, marks: Marks) -> list[LegendEntry]:
    """The lines, and each latency beside its goal and its formula."""
    formula = simulation.formula
    entries = [LegendEntry(marks.thick, "accent", "running"), LegendEntry(marks.thick, "warn", "waiting")]
    if not isinstance(formula.running, Missing):
        entries.append(LegendEntry(marks.goal * 2, "muted", f"formula {human.whole(formula.running)} running"))
    latencies = (
        ("TTFT", figures.ttft_s, simulation.goal_ttft_s, formula.ttft_s),
        ("ITL", figures.itl_s, simulation.goal_itl_s, formula.itl_s),
        ("E2E", figures.e2e_s, simulation.goal_e2e_s, formula.e2e_s),
    )
    for name, spread, goal_s, formula_s in latencies:
        text = f"{name} p50 {human.seconds(spread.p50)} p95 {human.seconds(spread.p95)} p99 {human.seconds(spread.p99)}"
        text += f" (mean {human.seconds(spread.mean)}, formula {human.seconds(formula_s)})"
        tone = "text"
        if not isinstance(goal_s, Missing):
            text += f" goal {human.seconds(goal_s)}"
            tone = "critical" if name in simulation.missed else "ok"
        entries.append(LegendEntry("", tone, text))
    if figures.queue_grows:
        entries.append(LegendEntry("", "critical", "the queue grows: it does not keep up"))
    if not isinstance(figures.goodput_ratio, Missing):
        entries.append(LegendEntry("", "text", f"goodput {figures.goodput_ratio:.0%}"))
    return entries

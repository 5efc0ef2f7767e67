"""The picture of a simulation: requests of one instance over time, with its percentiles beside the formula's means."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from gpumon.readings import format as human
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.text import clean
from gpumon.sizing.simulate.experiment import Simulation
from gpumon.sizing.simulate.figures import Figures, QueuePoint
from gpumon.tui.line import Row
from gpumon.tui.palette import Glyphs
from gpumon.tui.sizing.canvas import CHART_MARKS, Canvas, LegendEntry, Marks, Scale, framed_picture, reason_rows

_LEGENDS: Final = ((9, 4), (7, 3), (5, 1))
"""Lines of the legend from a height on: the percentiles of three latencies are the answer."""
_HEADROOM = 1.05
"""Room above the highest value."""


def queue_lines(width: int, height: int, simulation: Simulation | None, glyphs: Glyphs) -> list[Row]:
    """Running and waiting requests of one instance at its share of the target; the formula's mean is a line across."""
    title = "simulation of one instance"
    if simulation is None:
        return reason_rows(title, "no answer yet", width, height)
    if not simulation.figures:
        return reason_rows(title, simulation.problem, width, height)
    figures = simulation.figures[0]
    marks = CHART_MARKS[glyphs]
    name = clean(simulation.name)
    text = f"{title}, running and waiting requests over seconds: {name}, {simulation.arrivals}"
    most = max((max(point.running, point.waiting) for point in figures.queue), default=1.0)
    formula = simulation.formula.running
    if not isinstance(formula, Missing):
        most = max(most, formula)
    scales = (Scale(figures.seconds), Scale(max(1.0, most * _HEADROOM)))
    keys = _legend(simulation, figures, marks)

    def draw(canvas: Canvas) -> None:
        canvas.draw_curve(_over_time(figures.queue, "waiting"), lambda _: True, "warn")
        canvas.draw_curve(_over_time(figures.queue, "running"), lambda _: True, "accent")
        if not isinstance(formula, Missing):
            canvas.draw_horizontal(formula, marks.goal, "muted")

    return framed_picture((width, height), text, scales, keys, glyphs, draw, _LEGENDS)


def _over_time(queue: Sequence[QueuePoint], name: str) -> Callable[[float], float]:
    """A figure of the queue at a time: that of the nearest moment."""
    values = [float(getattr(point, name)) for point in queue]
    if len(queue) > 1:
        apart_s = queue[1].time_s - queue[0].time_s
    else:
        apart_s = 1.0

    def value(time_s: float) -> float:
        return values[min(len(values) - 1, max(0, int(time_s / apart_s)))]

    return value


def _legend(simulation: Simulation, figures: Figures, marks: Marks) -> list[LegendEntry]:
    """The lines, and each latency beside its goal and its formula."""
    keys = [LegendEntry(marks.thick, "accent", "running"), LegendEntry(marks.thick, "warn", "waiting")]
    if not isinstance(simulation.formula.running, Missing):
        keys.append(LegendEntry(marks.goal * 2, "muted", f"formula {human.whole(simulation.formula.running)} running"))
    latencies = (
        ("TTFT", figures.ttft_s, simulation.goal_ttft_s, simulation.formula.ttft_s),
        ("ITL", figures.itl_s, simulation.goal_itl_s, simulation.formula.itl_s),
        ("E2E", figures.e2e_s, simulation.goal_e2e_s, simulation.formula.e2e_s),
    )
    for name, spread, goal_s, formula_s in latencies:
        text = f"{name} p50 {_time(spread.p50)} p95 {_time(spread.p95)} p99 {_time(spread.p99)}"
        text += f" (mean {_time(spread.mean)}, formula {_time(formula_s)})"
        tone = "text"
        if not isinstance(goal_s, Missing):
            text += f" goal {_time(goal_s)}"
            tone = "critical" if name in simulation.missed else "ok"
        keys.append(LegendEntry("", tone, text))
    if figures.queue_grows:
        keys.append(LegendEntry("", "critical", "the queue grows: it does not keep up"))
    if not isinstance(figures.goodput_ratio, Missing):
        keys.append(LegendEntry("", "text", f"goodput {figures.goodput_ratio:.0%}"))
    return keys


def _time(seconds: Reading) -> str:
    return human.seconds(seconds)

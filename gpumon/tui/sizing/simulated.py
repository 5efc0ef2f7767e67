"""The picture of a simulation: requests of one instance over time, with its percentiles beside the formula's means."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from gpumon.readings import format as human
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.text import clean
from gpumon.sizing.simulate.experiment import Simulation
from gpumon.sizing.simulate.figures import Figures, QueuePoint, Spread
from gpumon.tui.line import Row
from gpumon.tui.palette import Glyphs
from gpumon.tui.sizing.canvas import (
    CHART_MARKS,
    SAMPLE_CELLS,
    Canvas,
    LegendEntry,
    LegendLines,
    Marks,
    Scale,
    framed_picture,
    reason_rows,
)

_LEGEND_LINES: Final[LegendLines] = ((9, 4), (7, 3), (5, 1))
"""Height of the picture, and lines of its legend from there on: more than other pictures have, as the percentiles of
three latencies are the answer."""
_HEADROOM: Final = 1.05
"""The end of the y axis as a multiple of the largest number of requests."""


class _Latency(NamedTuple):
    """A simulated latency, in seconds, beside what was to come of it."""

    name: str
    spread: Spread
    """Its mean and percentiles."""
    goal_s: Reading
    formula_s: Reading
    """Its mean by the formula of the plan."""


def simulation_rows(width: int, height: int, simulation: Simulation | None, glyphs: Glyphs) -> list[Row]:
    """The picture of a simulation: running and waiting requests of one instance over time, and the formula's mean as a
    horizontal line; the reason instead where there is no simulation."""
    title = "simulation of one instance"
    if simulation is None:
        return reason_rows(title, "no answer yet", width, height)
    if not simulation.figures:
        return reason_rows(title, simulation.problem, width, height)
    (figures,) = simulation.figures  # there is one where there is no problem
    if not figures.queue:
        return reason_rows(title, "no request was served: all were refused", width, height)
    marks = CHART_MARKS[glyphs]
    name = clean(simulation.name)
    long_title = f"{title}, running and waiting requests over seconds: {name}, {simulation.arrivals}"
    waiting = [float(point.waiting) for point in figures.queue]
    running = [float(point.running) for point in figures.queue]
    step_s = _step_s(figures.queue)
    most_requests = max(*running, *waiting)
    formula_running = simulation.formula.running
    if not isinstance(formula_running, Missing):
        most_requests = max(most_requests, formula_running)

    def draw(canvas: Canvas) -> None:
        canvas.draw_curve(_value_over_time(waiting, step_s), _is_simulated, "warn")
        canvas.draw_curve(_value_over_time(running, step_s), _is_simulated, "accent")
        if not isinstance(formula_running, Missing):
            canvas.draw_horizontal(formula_running, marks.goal, "muted")

    return framed_picture(
        size=(width, height),
        title=long_title,
        scales=(Scale(figures.seconds), Scale(max(1.0, most_requests * _HEADROOM))),
        legend=_legend_entries(simulation, figures, marks),
        glyphs=glyphs,
        draw=draw,
        lines_by_height=_LEGEND_LINES,
    )


def _is_simulated(_time_s: float) -> bool:
    """Whether a curve is known at a time: it is at every time, so that no part of it is drawn thin."""
    return True


def _step_s(queue: Sequence[QueuePoint]) -> float:
    """Seconds between two moments of the queue, which are evenly spaced."""
    return queue[1].time_s - queue[0].time_s


def _value_over_time(values: Sequence[float], step_s: float) -> Callable[[float], float]:
    """A function from a time in seconds to the value of the step in which that lies: each value is that of the middle
    of a step of `step_s`, the first of which begins at 0."""

    def value_at(time_s: float) -> float:
        return values[min(len(values) - 1, max(0, int(time_s / step_s)))]

    return value_at


def _legend_entries(simulation: Simulation, figures: Figures, marks: Marks) -> list[LegendEntry]:
    """The legend: the two curves, the formula's line, each latency beside its goal and its formula, what is wrong with
    the queue, and the goodput."""
    formula = simulation.formula
    entries = [LegendEntry(marks.thick, "accent", "running"), LegendEntry(marks.thick, "warn", "waiting")]
    if not isinstance(formula.running, Missing):
        entries.append(
            LegendEntry(marks.goal * SAMPLE_CELLS, "muted", f"formula {human.whole(formula.running)} running")
        )
    for latency in _latencies(simulation, figures):
        entries.append(_latency_entry(latency, missed=latency.name in simulation.missed))
    if "ITL mean" in simulation.missed:
        text = f"ITL mean {human.seconds(figures.itl_s.mean)} goal {human.seconds(simulation.goal_itl_mean_s)}"
        entries.append(LegendEntry("", "critical", text))
    if figures.queue_grows:
        entries.append(LegendEntry("", "critical", "the queue grows: it does not keep up"))
    if not isinstance(figures.goodput_ratio, Missing):
        entries.append(LegendEntry("", "text", f"goodput {figures.goodput_ratio:.0%}"))
    return entries


def _latencies(simulation: Simulation, figures: Figures) -> list[_Latency]:
    """The latencies of the legend. Of those per token it has the ones with a goal, and ITL where none has: there is
    room for three."""
    formula = simulation.formula
    ttft = _Latency("TTFT", figures.ttft_s, simulation.goal_ttft_s, formula.ttft_s)
    # The formulas know one time per token, which stands beside both.
    tpot = _Latency("TPOT", figures.tpot_s, simulation.goal_tpot_s, formula.itl_s)
    itl = _Latency("ITL", figures.itl_s, simulation.goal_itl_s, formula.itl_s)
    e2e = _Latency("E2E", figures.e2e_s, simulation.goal_e2e_s, formula.e2e_s)
    per_token = [latency for latency in (tpot, itl) if not isinstance(latency.goal_s, Missing)]
    return [ttft, *(per_token or [itl]), e2e]


def _latency_entry(latency: _Latency, *, missed: bool) -> LegendEntry:
    """The line of the legend for a latency; `missed`: it does not keep its goal."""
    spread = latency.spread
    name = latency.name
    text = f"{name} p50 {human.seconds(spread.p50)} p95 {human.seconds(spread.p95)} p99 {human.seconds(spread.p99)}"
    text += f" (mean {human.seconds(spread.mean)}, formula {human.seconds(latency.formula_s)})"
    if isinstance(latency.goal_s, Missing):
        return LegendEntry("", "text", text)
    text += f" goal {human.seconds(latency.goal_s)}"
    if missed:
        return LegendEntry("", "critical", text)
    return LegendEntry("", "ok", text)

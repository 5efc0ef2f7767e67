"""Simulations in words: percentiles beside the formulas' means, goodput, the queue over time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from gpumon.outputs.tables import GAP, INDENT, PrintedColumn, labelled, table, wrapped
from gpumon.outputs.units import NONE, seconds_text
from gpumon.readings.format import counted, least_time
from gpumon.readings.missing import Missing, Reading, Reason, number
from gpumon.readings.text import clean
from gpumon.sizing.layouts import Layout
from gpumon.sizing.simulate.batch import BLOCK
from gpumon.sizing.simulate.experiment import Simulation
from gpumon.sizing.simulate.figures import TOO_FEW_REQUESTS, Figures, QueuePoint, RequestGoals
from gpumon.sizing.simulate.self_check import CheckedFigure, SelfCheck

_LABEL_CELLS: Final = 12
"""Cells of the labels in front of facts."""
_QUEUE_COLUMNS: Final = 10
"""Moments of the queue over time that are printed."""
_WHOLE_FROM: Final = 99.95
"""From there on a figure has no decimals: it is rounded to 100 at least."""
_LONGEST_TEXT: Final = 400
"""Characters of a text from a file or an engine."""


def report(answers: Sequence[Simulation], width: int) -> str:
    """The text of all simulations, one below the other."""
    lines: list[str] = []
    for answer in answers:
        if lines:
            lines.append("")
        lines += _simulation_lines(answer, width)
    return "\n".join(lines) + "\n"


def _simulation_lines(answer: Simulation, width: int) -> Iterator[str]:
    """One simulated workload: engines, latencies, goals and queue, or why there is no answer."""
    name = clean(answer.name, 60)
    if answer.problem:
        yield from wrapped(f"{name}: not simulated: {clean(answer.problem, _LONGEST_TEXT)}", width, "", INDENT)
        yield from _check_lines(answer.check, width)
        return
    yield from wrapped(f"{name}: {_replicas_text(answer)}", width, "", INDENT)
    yield from _fact_line("arrivals", f"{answer.arrivals}, seed {answer.seed}", width)
    yield from _fact_line("engine", _limits_text(answer), width)
    yield from _check_lines(answer.check, width)
    for figures in answer.figures:  # one entry: only an answer with a problem has none
        for line in table(_latency_columns(answer, figures), width - len(INDENT)):
            yield INDENT + line
        yield from _fact_line("goals", _goals_text(answer, figures), width)
        yield from _fact_line("served", _served_text(figures), width)
        yield from _fact_line("GPU-hours", f"{figures.gpu_hours:.3g}", width)
        if figures.queue:
            for line in table(list(_queue_columns(figures.queue)), width - len(INDENT)):
                yield INDENT + line
    for note in answer.notes:
        yield from _fact_line("note", clean(note, _LONGEST_TEXT), width)


def _check_lines(check: SelfCheck | None, width: int) -> Iterator[str]:
    """Lines of the figures that were recorded beside the simulated ones, and of what follows for the fit."""
    if check is None:
        return
    if check.figures:
        columns = [_row_names("measured", "simulated", "error")]
        for figure in check.figures:
            measured = least_time(figure.measured) if figure.is_least else _checked_text(figure, figure.measured)
            texts = [measured, _checked_text(figure, figure.simulated)]
            error = NONE if isinstance(figure.error_ratio, Missing) else f"{figure.error_ratio:+.0%}"
            columns.append(PrintedColumn(figure.name, [*texts, error], right=True))
        for line in table(columns, width - len(INDENT)):
            yield INDENT + line
    verdict = f"not farther off what was recorded than {check.text}"
    if check.refuted:
        verdict = f"refuted by what was recorded, so that nothing here is measured: {check.text}"
    elif not check.figures:
        verdict = check.text
    yield from _fact_line("fit", clean(verdict, _LONGEST_TEXT), width)


def _checked_text(figure: CheckedFigure, value: Reading) -> str:
    """A value of a checked figure: a time, or of the throughput tokens per second."""
    if figure.name == "throughput":
        return _number_text(value)
    return seconds_text(value)


def _fact_line(label: str, text: str, width: int) -> Iterator[str]:
    """A fact in lines of at most `width` cells."""
    return labelled(label, text, width, room=_LABEL_CELLS)


def _replicas_text(answer: Simulation) -> str:
    """Number, split and GPUs of the replicas, and their router."""
    gpus = f"{answer.gpus} x {clean(answer.gpu, 40)}" if answer.gpu else counted(answer.gpus, "GPU")
    router = f", {answer.router}" if answer.replicas > 1 else ""
    layout = Layout(answer.tp, answer.pp, answer.dp).text
    return f"{counted(answer.replicas, 'replica')} of {layout} on {gpus}{router}"


def _limits_text(answer: Simulation) -> str:
    """Limits of one engine: requests, tokens of a step, KV cache."""
    return (
        f"max_num_seqs {answer.max_num_seqs:,}, max_num_batched_tokens {answer.max_num_batched_tokens:,}, "
        f"KV cache {answer.kv_blocks * BLOCK:,} tokens"
    )


def _latency_columns(answer: Simulation, figures: Figures) -> list[PrintedColumn]:
    """A row per latency; the formulas' means stand beside them."""
    spreads = (figures.ttft_s, figures.itl_s, figures.tpot_s, figures.e2e_s)
    goals = (answer.goal_ttft_s, answer.goal_itl_s, answer.goal_tpot_s, answer.goal_e2e_s)
    # The formulas know one time per token, which stands beside both ITL and TPOT.
    means = (answer.formula.ttft_s, answer.formula.itl_s, answer.formula.itl_s, answer.formula.e2e_s)
    columns = [_row_names("TTFT", "ITL", "TPOT", "E2E")]
    for statistic in ("mean", "p50", "p95", "p99"):
        columns.append(_time_column(statistic, [getattr(spread, statistic) for spread in spreads]))
    columns.append(_time_column("goal p95", goals))
    columns.append(_time_column("formula mean", means))
    return columns


def _time_column(title: str, values: Sequence[Reading]) -> PrintedColumn:
    """A column of times in seconds."""
    return PrintedColumn(title, list(map(seconds_text, values)), right=True)


def _row_names(*names: str) -> PrintedColumn:
    """Names of rows, as wide as the labels above the table with the gap behind this column."""
    return PrintedColumn("", [f"{name:<{_LABEL_CELLS - len(GAP)}}" for name in names])


def _goals_text(answer: Simulation, figures: Figures) -> str:
    """Whether the goals are held, and the goodput."""
    of_p95 = (answer.goal_ttft_s, answer.goal_tpot_s, answer.goal_itl_s, answer.goal_e2e_s)
    if all(isinstance(goal, Missing) for goal in (*of_p95, answer.goal_itl_mean_s)):
        return "none given: --ttft, --tpot, --itl, --itl-mean, --e2e"
    if isinstance(figures.goodput_ratio, Missing) and figures.goodput_ratio.reason is not Reason.NOT_GIVEN:
        return "not held: no request was served"
    verdict = "held"
    if answer.missed:
        figures_missed = [name if name == "ITL mean" else f"{name} p95" for name in answer.missed]
        verdict = f"missed: {', '.join(figures_missed)}"
    elif figures.queue_grows:
        verdict = "not held: the replicas do not keep up"
    elif figures.refused:
        verdict = "not held: requests are longer than the KV cache"
    elif answer.check is not None and answer.check.refuted:
        verdict = "not known: the fit is refuted by what was recorded"
    elif not answer.holds:
        verdict = f"not known: {TOO_FEW_REQUESTS} ({figures.requests:,.0f} in all)"
    return f"{verdict}{_goodput_text(answer, figures)}"


def _goodput_text(answer: Simulation, figures: Figures) -> str:
    """The latencies that goodput is of, its share and its rate; empty where none has a goal."""
    if isinstance(figures.goodput_ratio, Missing):
        return ""
    goals = RequestGoals(
        ttft_s=number(answer.goal_ttft_s),
        tpot_s=number(answer.goal_tpot_s),
        itl_s=number(answer.goal_itl_s),
        e2e_s=number(answer.goal_e2e_s),
    )
    *others, last = goals.of_each_request
    latencies = f"{', '.join(others)} and {last} of each request within their goals"
    if not others:
        latencies = f"{last} of each request within its goal"
    share = f"{figures.goodput_ratio:.1%} of the requests, {_number_text(figures.goodput_per_s)}/s"
    return f"; goodput ({latencies}) {share}"


def _served_text(figures: Figures) -> str:
    """Requests and tokens that were served, cached, preempted and refused."""
    parts = [
        f"{figures.requests:,.0f} requests in {figures.seconds:,.0f} s",
        f"{_number_text(figures.requests_per_s)} requests/s",
        f"{_number_text(figures.tokens_per_s)} output tokens/s",
    ]
    if not isinstance(figures.hit_ratio, Missing) and figures.hit_ratio > 0.0:
        parts.append(f"prefix hits {figures.hit_ratio:.0%}")
    if figures.preemptions:
        parts.append(f"{figures.preemptions:,.0f} preemptions")
    if figures.refused:
        parts.append(f"{figures.refused:,.0f} refused, longer than the KV cache")
    return ", ".join(parts)


def _queue_columns(points: Sequence[QueuePoint]) -> Iterator[PrintedColumn]:
    """Waiting and running requests at some ten of the moments; a narrow width has fewer."""
    yield _row_names("waiting", "running")
    step = max(1, len(points) // _QUEUE_COLUMNS)
    for point in points[step // 2 :: step]:
        title = f"{point.time_s:,.0f} s"
        yield PrintedColumn(title, [f"{point.waiting:,.0f}", f"{point.running:,.0f}"], right=True, keep=1)


def _number_text(value: Reading) -> str:
    """A number without decimals above 100, else in three digits."""
    if isinstance(value, Missing):
        return NONE
    if value >= _WHOLE_FROM:
        return f"{value:,.0f}"
    return f"{value:.3g}"

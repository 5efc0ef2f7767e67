"""Comparison of a sizing's report: types of GPU side by side, the best figures marked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from gpumon.outputs.tables import NEVER_DROPPED, PrintedColumn
from gpumon.outputs.units import NONE, seconds_text
from gpumon.sizing.answer import Answer, Compared, WorkloadPlan
from gpumon.sizing.compare import ComparedFigure, Comparison
from gpumon.sizing.document.forms import figure_text, printable_name, printable_text
from gpumon.sizing.document.plan import FORMS_OF_TOTALS
from gpumon.sizing.document.row import Row
from gpumon.sizing.document.workload import SOURCE_WORDS
from gpumon.sizing.goals import TOKEN_GOALS, judged_goal
from gpumon.sizing.scenario import Scenario

_BEST: Final = "*"
"""Mark of the best figure of a column."""
_WORKLOAD_FORMS: Final[dict[str, Callable[[WorkloadPlan], str]]] = {
    "layout": lambda plan: plan.layout.removeprefix("TP ") or NONE,
    "itl_s": lambda plan: seconds_text(plan.itl_s),
    "limit": lambda plan: plan.limit or NONE,
    "source": lambda plan: f"{SOURCE_WORDS[plan.source]} {plan.errors_short}".strip() or NONE,
}
"""Field of a workload's plan -> its form, for the columns of a comparison."""


def comparison_table(answer: Answer, scenario: Scenario) -> list[PrintedColumn]:
    """Types of GPU side by side: the columns that have a figure, the best ones marked."""
    if not answer.compared:
        return []
    columns = [PrintedColumn("GPU", [_compared_name(row) for row in answer.compared])]
    for figure in Comparison.of(answer, scenario).shown:
        texts = _align_marks([_compared_text(row, figure) for row in answer.compared])
        is_number = figure.key not in ("limit", "source")
        # The types themselves are never left out, so all figures rank below them.
        keep = min(figure.keep, NEVER_DROPPED - 1)
        columns.append(PrintedColumn(figure.title, texts, right=is_number, keep=keep))
    return columns


def _align_marks(texts: Sequence[str]) -> Sequence[str]:
    """The cells of a column with a blank in place of each mark that is missing, so that digits are below each other."""
    if not any(text.endswith(_BEST) for text in texts):
        return texts
    return [text if text.endswith(_BEST) else f"{text} " for text in texts]


def _compared_name(row: Compared) -> str:
    """Name of a type, marked where it is the one that was planned with."""
    if row.as_planned:
        return f"{printable_name(row.gpu)} (as planned)"
    if row.pooled:
        return f"{printable_name(row.gpu)} (prefill and decode apart)"
    return printable_name(row.gpu)


def _compared_text(row: Compared, figure: ComparedFigure) -> str:
    """One cell of the comparison; several workloads have a text each, in their order: `4/8`."""
    if row.problem:
        return NONE
    plans = [plan for plan in row.workloads if not plan.problem]
    if figure.key == "source" and len(plans) > 1:
        return "/".join(dict.fromkeys(SOURCE_WORDS[plan.source] for plan in plans))
    if figure.of_workload:
        texts = [_workload_text(plan, figure) for plan in plans]
        if figure.key == "limit":
            texts = list(dict.fromkeys(texts))
        return "/".join(texts)
    form = FORMS_OF_TOTALS.get(figure.key, figure_text)
    text = form(getattr(row.totals, figure.key)) or NONE
    if figure.key in row.best:
        return f"{text}{_BEST}"
    return text


def _workload_text(plan: WorkloadPlan, figure: ComparedFigure) -> str:
    """The figure of one workload; in the column of a goal the one that it judges."""
    if figure.title not in TOKEN_GOALS:
        return _WORKLOAD_FORMS[figure.key](plan)
    goal = judged_goal(plan, figure.title)
    return seconds_text(goal.value_s) if goal is not None else NONE


def comparison_notes(answer: Answer, scenario: Scenario) -> Iterator[Row]:
    """Why a type has no answer, what the marks mean, and what all types have in common."""
    if not answer.compared:
        return
    comparison = Comparison.of(answer, scenario)
    for compared in answer.compared:
        if compared.problem:
            yield Row(printable_name(compared.gpu), (printable_text(compared.problem),))
    if comparison.best:
        yield Row("best", (f"{_BEST} {', '.join(comparison.best)}",))
    yield Row("compared", (comparison.like_for_like,))

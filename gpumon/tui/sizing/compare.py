"""The same question on several types of GPU, a row each: what it takes, what it costs, where that comes from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from gpumon.readings.format import DASH, cells, cut, left, right, seconds, whole
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.text import clean
from gpumon.sizing.answer import Answer, Totals, WorkloadPlan
from gpumon.sizing.plan import Column
from gpumon.tui.fold import folded
from gpumon.tui.line import Piece, Row
from gpumon.tui.sizing.canvas import filled, fitted
from gpumon.tui.sizing.effects import SOURCES
from gpumon.tui.sizing.fields import labelled

_NAMES: Final = (13, 20)
"""Fewest and most cells of the name of a GPU."""
_REASON_LINES: Final = 3


def _counted(value: Reading) -> str:
    return f"{value:,.0f}" if not isinstance(value, Missing) and 0.0 <= value < 99_999.5 else whole(value)


def _money(value: Reading) -> str:
    """In at most 6 cells."""
    if isinstance(value, Missing) or not 0.0 <= value < 99_999.5:
        return whole(value)
    return f"{value:.2f}" if value < 99.995 else f"{value:.1f}" if value < 999.95 else f"{value:,.0f}"


class _Field(NamedTuple):
    """One column, of the totals or of the chosen workload."""

    title: str
    width: int
    text: Callable[[Totals, WorkloadPlan | None], str]
    words: bool = False
    """Flush left, behind two blanks."""

    def shown(self, text: str) -> str:
        return "  " + left(text, self.width - 2) if self.words else right(text, self.width)


_FIELDS: Final = (
    _Field("inst", 6, lambda totals, _: _counted(totals.instances)),
    _Field("GPUs", 7, lambda totals, _: _counted(totals.gpus)),
    _Field("$/h", 8, lambda totals, _: _money(totals.price_per_hour)),
    _Field("ITL mean", 10, lambda _, plan: DASH if plan is None else seconds(plan.itl_s)),
    _Field("$/1M tok", 10, lambda totals, _: _money(totals.price_per_mtok)),
    _Field("servers", 9, lambda totals, _: _counted(totals.servers)),
    _Field("from", 21, lambda _, plan: DASH if plan is None else _source(plan), words=True),
)
"""The most important first: as many are shown as fit."""


def _source(plan: WorkloadPlan) -> str:
    return f"{SOURCES[plan.source] or DASH} {plan.band.short}".rstrip()


def lines(width: int, height: int, columns: Sequence[Column], workload: int = 0) -> list[Row]:
    """The table in exactly `height` rows of `width` cells, with ITL and source of one workload."""
    if width <= 0 or height <= 0:
        return []
    if not columns:
        return filled([fitted([("nothing to compare yet", "muted")], width)], width, height)
    without, foot = columns[0].answer.without, list[Row]()
    if without and all(column.answer.without == without for column in columns):
        # The same workloads have no answer on any type: the answers of the others.
        columns = [
            replace(each, answer=replace(each.answer, totals=each.answer.totals_without, problem=""))
            for each in columns
        ]
        names = ", ".join(clean(name).rpartition("/")[2] for name in without)
        foot = [fitted([(f"without {names}", "warn")], width)] if height >= 3 else []
    name = max(3, min(width, max(_NAMES[0], min(max(cells(clean(each.gpu)) for each in columns), _NAMES[1]))))
    fields = [
        each for at, each in enumerate(_FIELDS) if name + sum(field.width for field in _FIELDS[: at + 1]) <= width
    ]
    room = height - 1 - len(foot)
    wrong = sum(1 for column in columns if _problem(column.answer))
    most = max(1, min(_REASON_LINES, 1 + (room - len(columns)) // wrong)) if wrong else 1
    rows = list[Row]()
    for at, column in enumerate(columns):
        start: Piece = (left(clean(column.gpu), name), "text" if at else "strong")
        if problem := _problem(column.answer):
            rows += _reason(start, problem, most, width)
        else:
            plans = column.answer.workloads
            plan = plans[workload] if 0 <= workload < len(plans) else plans[0] if plans else None
            texts = [(each.shown(each.text(column.answer.totals, plan)), "text") for each in fields]
            rows.append(fitted([start, *texts], width))
    if len(rows) > room > 0:
        left_out = len(columns) - max(0, room - 1)
        rows = [*rows[: room - 1], fitted([(f"+ {left_out} more in a taller window", "muted")], width)]
    titles = "".join(each.shown(each.title) for each in fields)
    return filled([fitted([(left("GPU", name) + titles, "muted")], width), *rows, *foot], width, height)


def _problem(answer: Answer) -> str:
    """Why there is no answer on this type; empty where there is one."""
    if not answer.problem and not isinstance(answer.totals.instances, Missing):
        return ""
    found = next((plan for plan in answer.workloads if plan.problem), None)
    if found is None:
        return clean(labelled(answer.problem)) or "no answer"
    problem = labelled(found.problem)
    return clean(problem if len(answer.workloads) == 1 else f"{cut(found.name, _NAMES[1])}: {problem}")


def _reason(start: Piece, problem: str, most: int, width: int) -> list[Row]:
    """In up to `most` lines why there are no figures."""
    room = max(1, width - cells(start[0]) - 2)
    texts = list(folded(problem, room))
    if len(texts) > most:
        texts = [*texts[: most - 1], cut(" ".join(texts[most - 1 :]), room)]
    blank: Piece = (" " * cells(start[0]), "text")
    return [fitted([blank if at else start, ("  ", "text"), (text, "warn")], width) for at, text in enumerate(texts)]

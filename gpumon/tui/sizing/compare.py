"""The same question on several types of GPU, a row each: what it takes, what it costs, where that comes from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from gpumon.readings.format import DASH, cells, cut, figure, left, right, seconds, watts, whole
from gpumon.readings.missing import Missing, Reading, number
from gpumon.readings.text import clean
from gpumon.sizing.answer import Answer, WorkloadPlan
from gpumon.sizing.plan import Column
from gpumon.tui.fold import folded
from gpumon.tui.line import Piece, Row
from gpumon.tui.sizing.fields import labelled
from gpumon.tui.sizing.plot import filled, fitted
from gpumon.tui.sizing.values import SOURCES
from gpumon.tui.table import unseen

_NAMES: Final = (13, 20)
"""Fewest and most cells of the name of a GPU."""
_REASON_LINES: Final = 3
_BEST: Final = "*"


def _counted(value: Reading) -> str:
    return f"{value:,.0f}" if not isinstance(value, Missing) and 0.0 <= value < 99_999.5 else whole(value)


def _money(value: Reading) -> str:
    """In at most 6 cells."""
    if isinstance(value, Missing) or not 0.0 <= value < 99_999.5:
        return whole(value)
    return f"{value:.2f}" if value < 99.995 else f"{value:.1f}" if value < 999.95 else f"{value:,.0f}"


class _Field(NamedTuple):
    """One column: a figure of the totals, or words about the chosen workload."""

    title: str
    width: int
    keep: int
    """Of those that do not all fit the lowest goes first."""
    key: str = ""
    """Of the totals."""
    text: Callable[[Reading], str] = _counted
    best: str = ""
    """What the answer with the best value is called; empty where there is no better."""
    rises: bool = False
    """More of it is better."""
    words: Callable[[WorkloadPlan], str] | None = None

    def known(self, columns: Sequence[Column]) -> list[float]:
        """The figures of the answers that hold."""
        found = [number(getattr(each.answer.totals, self.key)) for each in columns if not _problem(each.answer)]
        return [value for value in found if value is not None]

    def cell(self, answer: Answer, plan: WorkloadPlan | None, best: str) -> Piece:
        """Figures flush right and words flush left, each with two blanks before it."""
        if self.words is not None:
            return "  " + left(self.words(plan) if plan is not None else DASH, self.width - 2), "muted"
        text = self.text(getattr(answer.totals, self.key))
        return right(text, self.width - 1) + (_BEST if text == best else " "), "ok" if text == best else "text"


_FIELDS: Final = (
    _Field("inst", 7, 7, "instances"),
    _Field("GPUs", 8, 9, "gpus", best="fewest GPUs"),
    _Field("ITL mean", 10, 6, words=lambda plan: right(seconds(plan.itl_s), 8)),
    _Field("servers", 9, 2, "servers"),
    _Field("$/h", 9, 8, "price_per_hour", _money, "cheapest"),
    _Field("$/1M tok", 10, 5, "price_per_mtok", _money, "cheapest token"),
    _Field("max power", 11, 3, "power_w", watts, "least power"),
    _Field("tok/J", 8, 0, "tokens_per_j", figure, "most tokens/J", rises=True),
    _Field("from", 21, 4, words=lambda plan: f"{SOURCES[plan.source] or DASH} {plan.band.short}".rstrip()),
    _Field("limit", 13, 1, words=lambda plan: plan.limit or DASH),
)


def lines(width: int, height: int, columns: Sequence[Column], workload: int = 0) -> list[Row]:
    """The table in exactly `height` rows of `width` cells, with source and limit of one workload."""
    if width <= 0 or height <= 0:
        return []
    if not columns:
        return filled([fitted([("nothing to compare yet", "muted")], width)], width, height)
    without = columns[0].answer.without
    if any(column.answer.without != without for column in columns):
        without = ()
    if without:
        # The same workloads have no answer on any type: the answers of the others.
        columns = [
            replace(each, answer=replace(each.answer, totals=each.answer.totals_without, problem=""))
            for each in columns
        ]
    name = max(3, min(width, max(_NAMES[0], min(max(cells(clean(each.gpu)) for each in columns), _NAMES[1]))))
    fields, hidden = list(_FIELDS), list[str]()
    # A column without a figure goes before all that have one.
    empty = {each.title for each in fields if each.key and not each.known(columns)}
    for each in sorted(_FIELDS, key=lambda each: (each.title not in empty, each.keep)):
        if name + sum(one.width for one in fields) > width:
            fields.remove(each)
            hidden.insert(0, each.title)
    best = {}
    for each in fields:
        known = each.known(columns) if each.best else []
        if len({each.text(value) for value in known}) > 1:
            best[each.title] = each.text(max(known) if each.rises else min(known))
    foot = list[Row]()
    if height >= 3:
        names = ", ".join(clean(name).rpartition("/")[2] for name in without)
        foot += [fitted([(f"without {names}", "warn")], width)] if without else []
        words = ", ".join(each.best for each in fields if each.title in best)
        if words and height - 1 - len(columns) - len(foot) > bool(hidden):
            foot.append(fitted([(_BEST, "ok"), (f" {words}", "muted")], width))
        foot += [fitted([(unseen(tuple(hidden), width), "muted")], width)] if hidden else []
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
            texts = [each.cell(column.answer, plan, best.get(each.title, "")) for each in fields]
            rows.append(fitted([start, *texts], width))
    if len(rows) > room > 0:
        left_out = len(columns) - max(0, room - 1)
        rows = [*rows[: room - 1], fitted([(f"+ {left_out} more in a taller window", "muted")], width)]
    titles = [
        "  " + left(each.title, each.width - 2) if each.words else right(each.title, each.width - 1) + " "
        for each in fields
    ]
    head = fitted([(left("GPU", name), "muted"), *((title, "muted") for title in titles)], width)
    return filled([head, *rows, *foot], width, height)


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

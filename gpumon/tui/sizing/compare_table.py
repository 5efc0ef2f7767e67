"""The same question on several types of GPU, a row each: what it takes, what it costs, where that comes from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from msgspec.structs import replace

from gpumon.readings.format import DASH, cells, cut, figure, left, right, seconds, watts, whole
from gpumon.readings.missing import Missing, Reading, number
from gpumon.readings.text import clean
from gpumon.sizing.answer import Answer, Source, WorkloadPlan
from gpumon.sizing.plan import Column
from gpumon.tui.fold import folded
from gpumon.tui.line import Piece, Row
from gpumon.tui.sizing.canvas import fitted
from gpumon.tui.sizing.fields import labelled
from gpumon.tui.sizing.plot_frame import filled
from gpumon.tui.table import unseen

_NAMES: Final = (13, 20)
"""Fewest and most cells of the name of a GPU."""
_REASON_LINES: Final = 3
_BEST: Final = "*"
_SOURCES: Final = {Source.RESCALED: "re-scaled", Source.NONE: DASH}


def _counted(value: Reading) -> str:
    return f"{value:,.0f}" if not isinstance(value, Missing) and 0.0 <= value < 99_999.5 else whole(value)


def _money(value: Reading) -> str:
    """In at most 6 cells."""
    if isinstance(value, Missing) or not 0.0 <= value < 99_999.5:
        return whole(value)
    return f"{value:.2f}" if value < 99.995 else f"{value:.1f}" if value < 999.95 else f"{value:,.0f}"


class _Field(NamedTuple):
    """One column of figures."""

    title: str
    width: int
    value: Callable[[Answer], Reading]
    text: Callable[[Reading], str]
    best: str = ""
    """What the answer with the best value is called; empty where there is no better."""
    rises: bool = False
    """More of it is better."""


class _Word(NamedTuple):
    """One column of words about the chosen workload."""

    title: str
    width: int
    text: Callable[[WorkloadPlan], str]


def _source(plan: WorkloadPlan) -> str:
    name = _SOURCES.get(plan.source, plan.source.value)
    return f"{name} {plan.band.short}".rstrip()


_FIELDS: Final[tuple[_Field | _Word, ...]] = (
    _Field("inst", 7, lambda answer: answer.totals.instances, _counted),
    _Field("GPUs", 8, lambda answer: answer.totals.gpus, _counted, "fewest GPUs"),
    _Word("ITL mean", 10, lambda plan: right(seconds(plan.itl_s), 8)),
    _Field("servers", 9, lambda answer: answer.totals.servers, _counted),
    _Field("$/h", 9, lambda answer: answer.totals.price_per_hour, _money, "cheapest"),
    _Field("$/1M tok", 10, lambda answer: answer.totals.price_per_mtok, _money, "cheapest token"),
    _Field("max power", 11, lambda answer: answer.totals.power_w, watts, "least power"),
    _Field("tok/J", 8, lambda answer: answer.totals.tokens_per_j, figure, "most tokens/J", rises=True),
    _Word("from", 21, _source),
    _Word("limit", 13, lambda plan: plan.limit or DASH),
)
"""Figures flush right and words flush left, each with two blanks before it."""
_DROPS: Final = ("tok/J", "limit", "servers", "max power", "from", "$/1M tok", "ITL mean", "inst", "$/h", "GPUs")
"""What a narrower place does without, first to last."""


def lines(width: int, height: int, columns: Sequence[Column], workload: int = 0) -> list[Row]:
    """The table in exactly `height` rows of `width` cells. `workload`: of which source and limit are said."""
    if width <= 0 or height <= 0:
        return []
    if not columns:
        return filled([fitted([("nothing to compare yet", "muted")], width)], width, height)
    columns, without = _alike(columns)
    fields, hidden, name = _fitting(width, columns)
    best = _best(columns, fields)
    foot = _foot(fields, best, hidden, width, height - 1 - len(columns) - bool(without)) if height >= 3 else []
    if without and height >= 3:
        foot = [fitted([(without, "warn")], width), *foot]
    room = height - 1 - len(foot)
    wrong = sum(1 for column in columns if _problem(column.answer))
    most = max(1, min(_REASON_LINES, 1 + (room - len(columns)) // wrong)) if wrong else 1
    draw = partial(_rows, fields=fields, name=name, best=best, workload=workload, most=most, width=width)
    rows = [row for at, column in enumerate(columns) for row in draw(column, first=at == 0)]
    if len(rows) > room > 0:
        left_out = len(columns) - max(0, room - 1)
        rows = [*rows[: room - 1], fitted([(f"+ {left_out} more in a taller window", "muted")], width)]
    head: list[Piece] = [(left("GPU", name), "muted"), *((_titled(field), "muted") for field in fields)]
    return filled([fitted(head, width), *rows, *foot], width, height)


def _alike(columns: Sequence[Column]) -> tuple[Sequence[Column], str]:
    """Where the same workloads have no answer on any type, the answers of the others, and which those without are."""
    missing = columns[0].answer.without
    if not missing or any(column.answer.without != missing for column in columns):
        return columns, ""
    of_others = [
        replace(column, answer=replace(column.answer, totals=column.answer.totals_without, problem=""))
        for column in columns
    ]
    return of_others, f"without {', '.join(clean(each).rpartition('/')[2] for each in missing)}"


def _fitting(width: int, columns: Sequence[Column]) -> tuple[list[_Field | _Word], list[str], int]:
    """Columns that have room, titles of those that have none, and the cells of a name."""
    longest = max(cells(clean(column.gpu)) for column in columns)
    name = max(3, min(width, max(_NAMES[0], min(longest, _NAMES[1]))))
    fields, hidden = list(_FIELDS), list[str]()
    empty = {field.title for field in fields if isinstance(field, _Field) and not _known(field, columns)}
    for title in sorted(_DROPS, key=lambda title: title not in empty):
        if name + sum(field.width for field in fields) <= width:
            break
        fields = [field for field in fields if field.title != title]
        hidden.append(title)
    return fields, hidden[::-1], name


def _best(columns: Sequence[Column], fields: Sequence[_Field | _Word]) -> dict[str, str]:
    """Title of a column -> its best figure as text, where not all are alike."""
    found: dict[str, str] = {}
    for field in fields:
        if not isinstance(field, _Field) or not field.best:
            continue
        known = _known(field, columns)
        texts = {field.text(value) for value in known}
        if len(texts) > 1:
            found[field.title] = field.text(max(known) if field.rises else min(known))
    return found


def _known(field: _Field, columns: Sequence[Column]) -> list[float]:
    """The figures of the answers that hold."""
    found = [number(field.value(column.answer)) for column in columns if not _problem(column.answer)]
    return [value for value in found if value is not None]


def _problem(answer: Answer) -> str:
    """Why there is no answer on this type; empty where there is one."""
    if not answer.problem and not isinstance(answer.totals.instances, Missing):
        return ""
    found = next((plan for plan in answer.workloads if plan.problem), None)
    if found is None:
        return clean(labelled(answer.problem)) or "no answer"
    problem = labelled(found.problem)
    return clean(problem if len(answer.workloads) == 1 else f"{cut(found.name, _NAMES[1])}: {problem}")


def _rows(
    column: Column,
    *,
    fields: Sequence[_Field | _Word],
    name: int,
    best: dict[str, str],
    workload: int,
    most: int,
    width: int,
    first: bool,
) -> list[Row]:
    """One type of GPU: its figures, or in up to `most` lines why there are none."""
    start: Piece = (left(clean(column.gpu), name), "strong" if first else "text")
    problem = _problem(column.answer)
    if problem:
        room = max(1, width - name - 2)
        said = list(folded(problem, room))
        if len(said) > most:
            said = [*said[: most - 1], cut(" ".join(said[most - 1 :]), room)]
        blank: Piece = (" " * name, "text")
        return [fitted([blank if at else start, ("  ", "text"), (text, "warn")], width) for at, text in enumerate(said)]
    plans = column.answer.workloads
    plan = plans[workload] if 0 <= workload < len(plans) else plans[0] if plans else None
    return [fitted([start, *(_cell(field, column.answer, plan, best) for field in fields)], width)]


def _cell(field: _Field | _Word, answer: Answer, plan: WorkloadPlan | None, best: dict[str, str]) -> Piece:
    if isinstance(field, _Word):
        return "  " + left(field.text(plan) if plan is not None else DASH, field.width - 2), "muted"
    text = field.text(field.value(answer))
    marked = best.get(field.title) == text
    return right(text, field.width - 1) + (_BEST if marked else " "), "ok" if marked else "text"


def _titled(field: _Field | _Word) -> str:
    if isinstance(field, _Word):
        return "  " + left(field.title, field.width - 2)
    return right(field.title, field.width - 1) + " "


def _foot(
    fields: Sequence[_Field | _Word], best: dict[str, str], hidden: Sequence[str], width: int, room: int
) -> list[Row]:  # fmt: skip
    """Which columns have no room, and what the mark means where `room` lines are left for both."""
    words = [field.best for field in fields if isinstance(field, _Field) and field.title in best]
    rows: list[Row] = []
    if words and room >= 1 + bool(hidden):
        rows.append(fitted([(_BEST, "ok"), (f" {', '.join(words)}", "muted")], width))
    if hidden:
        rows.append(fitted([(unseen(tuple(hidden), width), "muted")], width))
    return rows

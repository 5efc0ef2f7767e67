"""The same question on several types of GPU, a row each: what it takes, what it costs, where that comes from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from gpumon.readings.format import DASH, cells, cut, figure, left, right, seconds, watts, whole
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.text import clean
from gpumon.sizing.answer import Compared, WorkloadPlan
from gpumon.sizing.compare import COMPARISON_FIGURES, ComparedFigure, Comparison
from gpumon.tui.fold import folded
from gpumon.tui.line import Piece, Row
from gpumon.tui.sizing.canvas import to_height, to_width
from gpumon.tui.sizing.effects import SOURCES
from gpumon.tui.sizing.fields import with_field_names
from gpumon.tui.table import left_out_note

_NAMES: Final = (13, 20)
"""Fewest and most cells of the name of a GPU."""
_REASON_LINES: Final = 3
_BEST: Final = "*"
_LIMITS: Final = {"max_num_seqs": "seqs"}
_AS_PLANNED: Final = "as planned"


def _counted(value: Reading) -> str:
    if not isinstance(value, Missing) and 0.0 <= value < 99_999.5:
        return f"{value:,.0f}"
    return whole(value)


def _money(value: Reading) -> str:
    """In at most 6 cells."""
    if isinstance(value, Missing) or not 0.0 <= value < 99_999.5:
        return whole(value)
    if value < 99.995:
        return f"{value:.2f}"
    if value < 999.95:
        return f"{value:.1f}"
    return f"{value:,.0f}"


def _source(plan: WorkloadPlan) -> str:
    return f"{SOURCES[plan.source] or DASH} {plan.band.short}".rstrip()


def _tensor_parallel(plan: WorkloadPlan) -> str:
    if plan.tp:
        return f"{plan.tp}"
    return DASH


class _Form(NamedTuple):
    """A column as it is drawn: its width, and the text of a figure of the totals, or of a workload."""

    width: int
    total: Callable[[Reading], str] = _counted
    words: Callable[[WorkloadPlan], str] | None = None
    flush_left: bool = False

    def shown(self, text: str) -> str:
        """The text in the width: figures flush right with room for a mark, words flush left behind two blanks."""
        if self.flush_left:
            return "  " + left(text, self.width - 2)
        if text.endswith(_BEST):
            return right(text, self.width)
        return right(text, self.width - 1) + " "


_FORMS: Final = {
    "tp": _Form(5, words=_tensor_parallel),
    "instances": _Form(7),
    "gpus": _Form(7),
    "servers": _Form(9),
    "price_per_hour": _Form(8, _money),
    "price_per_mtok": _Form(10, _money),
    "itl_s": _Form(10, words=lambda plan: seconds(plan.itl_s)),
    "limit": _Form(9, words=lambda plan: _LIMITS.get(plan.limit, plan.limit) or DASH, flush_left=True),
    "power_w": _Form(11, watts),
    "tokens_per_j": _Form(8, figure),
    "source": _Form(21, words=_source, flush_left=True),
}
"""By the key of the figure."""


def comparison_lines(width: int, height: int, comparison: Comparison, workload: int = 0) -> list[Row]:
    """The table in exactly `height` rows of `width` cells, with TP, limit, ITL and source of one workload."""
    if width <= 0 or height <= 0:
        return []
    if not comparison.rows:
        return to_height([to_width([("nothing to compare yet", "muted")], width)], width, height)
    name_width = _name_width(comparison, width)
    figures = _fitting(comparison.shown or COMPARISON_FIGURES, width - name_width)
    hidden = tuple(figure.title for figure in comparison.shown if figure not in figures)
    # Sums that lack a workload say so, even if a row has to give way.
    least = int(bool(comparison.without) and height >= 3)
    foot = _foot(comparison, figures, hidden, width)[: max(least, height - 1 - len(comparison.rows))]
    room = max(0, height - 1 - len(foot))
    rows = _rows(comparison, figures, workload, name_width, width, room)
    if len(rows) > room > 0:
        left_out = len(comparison.rows) - max(0, room - 1)
        rows = [*rows[: room - 1], to_width([(f"+ {left_out} more in a taller window", "muted")], width)]
    titles = "".join([_FORMS[figure.key].shown(figure.title) for figure in figures])
    return to_height([to_width([(left("GPU", name_width) + titles, "muted")], width), *rows, *foot], width, height)


def _rows(
    comparison: Comparison, figures: Sequence[ComparedFigure], workload: int, name_width: int, width: int, room: int
) -> list[Row]:
    """A row of figures for each type of GPU; for one without an answer the reason, in as many lines as there is room
    for."""
    most = _reason_lines(comparison, room)
    rows: list[Row] = []
    for compared in comparison.rows:
        tone = "muted" if compared.as_planned else "text"
        name: Piece = (left(cut(_name(compared), name_width - 1), name_width), tone)
        if compared.problem:
            rows += _reason(name, _problem(compared), most, width)
        else:
            rows.append(to_width([name, *_cells(compared, figures, workload)], width))
    return rows


def _name_width(comparison: Comparison, width: int) -> int:
    """Cells of the first column: the longest name within bounds, and a blank."""
    least, most = _NAMES
    longest = max(cells(_name(row)) for row in comparison.rows)
    return max(3, min(width, max(least, min(longest, most)) + 1))


def _reason_lines(comparison: Comparison, room: int) -> int:
    """Lines of each row's reason for having no figures: rows share what is spare."""
    rows_without = sum(1 for row in comparison.rows if row.problem)
    if not rows_without:
        return 1
    spare = room - len(comparison.rows)
    return max(1, min(_REASON_LINES, 1 + spare // rows_without))


def _name(row: Compared) -> str:
    """The type of GPU; `as planned` for the plan itself."""
    if row.as_planned:
        return _AS_PLANNED
    return clean(row.gpu)


def _fitting(figures: Sequence[ComparedFigure], room: int) -> list[ComparedFigure]:
    """The columns that have room, in their order: the least important ones leave first."""
    kept = list(figures)
    while kept and sum(_FORMS[figure.key].width for figure in kept) > room:
        kept.remove(min(kept, key=lambda figure: figure.keep))
    return kept


def _cells(row: Compared, figures: Sequence[ComparedFigure], workload: int) -> list[Piece]:
    """The figures of one row, the best ones marked."""
    plan = _plan_of(row, workload)
    pieces: list[Piece] = []
    for column in figures:
        form = _FORMS[column.key]
        text = DASH
        if form.words is None:
            text = form.total(getattr(row.totals, column.key))
        elif plan is not None:
            text = form.words(plan)
        tone = "text"
        if column.key in row.best:
            text = f"{text}{_BEST}"
            tone = "ok"
        if row.as_planned:
            tone = "muted"
        pieces.append((form.shown(text), tone))
    return pieces


def _plan_of(row: Compared, workload: int) -> WorkloadPlan | None:
    """The plan of a workload on one type of GPU; that of the first workload if it has none."""
    if not row.workloads:
        return None
    if 0 <= workload < len(row.workloads):
        return row.workloads[workload]
    return row.workloads[0]


def _foot(comparison: Comparison, figures: Sequence[ComparedFigure], hidden: tuple[str, ...], width: int) -> list[Row]:
    """Lines below the table, the most important first."""
    rows: list[Row] = []
    if comparison.without:
        names = ", ".join(clean(name).rpartition("/")[2] for name in comparison.without)
        rows.append(to_width([(f"without {names}", "warn")], width))
    marked = {key for row in comparison.rows for key in row.best}
    best = [figure.best for figure in figures if figure.key in marked]
    if best:
        rows.append(to_width([(_BEST, "ok"), (f" {', '.join(best)}", "muted")], width))
    if comparison.unpriced:
        rows += _folded("no price: [prices] of the config, or typed with the server", width)
    if hidden:
        rows.append(to_width([(left_out_note(hidden, width), "muted")], width))
    return [*rows, *_folded(comparison.like_for_like, width)]


def _folded(text: str, width: int) -> list[Row]:
    """A sentence in as many lines as it takes."""
    return [to_width([(line, "muted")], width) for line in folded(text, width)]


def _problem(row: Compared) -> str:
    """Why there is no answer on this type."""
    plan = next((plan for plan in row.workloads if plan.problem), None)
    if plan is None:
        return clean(with_field_names(row.problem)) or "no answer"
    problem = with_field_names(plan.problem)
    if len(row.workloads) > 1:
        problem = f"{cut(plan.name, _NAMES[1])}: {problem}"
    return clean(problem)


def _reason(start: Piece, problem: str, most: int, width: int) -> list[Row]:
    """The reason why there are no figures, in up to `most` lines behind the name of the GPU."""
    room = max(1, width - cells(start[0]) - 2)
    texts = list(folded(problem, room))
    if len(texts) > most:
        texts = [*texts[: most - 1], cut(" ".join(texts[most - 1 :]), room)]
    blank: Piece = (" " * cells(start[0]), "text")
    begins = [start, *[blank] * (len(texts) - 1)]
    rows: list[Row] = []
    for begin, text in zip(begins, texts, strict=True):
        rows.append(to_width([begin, ("  ", "text"), (text, "warn")], width))
    return rows

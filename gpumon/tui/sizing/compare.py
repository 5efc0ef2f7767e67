"""The same question on several types of GPU, a row each: what it takes, what it costs, where that comes from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from gpumon.readings.format import DASH, cells, cut, figure, left, right, seconds, watts, whole
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.text import clean
from gpumon.sizing.answer import Compared, WorkloadPlan
from gpumon.sizing.compare import COMPARISON_FIGURES, ComparedFigure, Comparison
from gpumon.sizing.document.workload import SOURCE_WORDS
from gpumon.sizing.goals import TOKEN_GOALS
from gpumon.tui.fold import cut_to_lines, folded
from gpumon.tui.line import Piece, Row
from gpumon.tui.sizing.canvas import to_height, to_width
from gpumon.tui.sizing.effective_values import judged_text
from gpumon.tui.sizing.fields import with_field_names
from gpumon.tui.table import left_out_note

_NAME_CELLS: Final = (13, 20)
"""Fewest and most cells of the name of a GPU."""
_MOST_REASON_LINES: Final = 3
"""Lines of the reason why a type of GPU has no figures."""
_BEST_MARK: Final = "*"
_LIMIT_NAMES: Final = {"max_num_seqs": "seqs"}
"""Limits whose names are too long for the table."""
_AS_PLANNED: Final = "as planned"
_ROUNDS_TO_100_000: Final = 99_999.5
"""From here on a figure has six digits, for which there is no room: it is written with a unit, `100k`."""


def _count_text(value: Reading) -> str:
    """A number of things, with all its digits up to five."""
    if not isinstance(value, Missing) and 0.0 <= value < _ROUNDS_TO_100_000:
        return f"{value:,.0f}"
    return whole(value)


def _money_text(value: Reading) -> str:
    """An amount of money in at most 6 cells."""
    if isinstance(value, Missing) or not 0.0 <= value < _ROUNDS_TO_100_000:
        return whole(value)
    if value < 99.995:
        return f"{value:.2f}"
    if value < 999.95:
        return f"{value:.1f}"
    return f"{value:,.0f}"


def _source_text(plan: WorkloadPlan) -> str:
    """The origin of a capacity, with the errors of its ITL."""
    return f"{SOURCE_WORDS[plan.source] or DASH} {plan.errors_short}".rstrip()


def _layout_text(plan: WorkloadPlan) -> str:
    """Tensor parallelism, with `+` where there are stages or ranks besides; a dash where there is no answer."""
    if plan.tp:
        return f"{plan.tp}+" if plan.pp > 1 or plan.dp > 1 else f"{plan.tp}"
    return DASH


def _limit_text(plan: WorkloadPlan) -> str:
    """The limit that holds first; a dash for none."""
    return _LIMIT_NAMES.get(plan.limit, plan.limit) or DASH


class _ColumnForm(NamedTuple):
    """How a column is drawn."""

    width: int
    total_text: Callable[[Reading], str] = _count_text
    """The text of a figure of the totals."""
    plan_text: Callable[[WorkloadPlan], str] | None = None
    """The text of a workload, for a column that is not of the totals; None: it is."""
    flush_left: bool = False

    def fit(self, text: str) -> str:
        """The text in the width: figures flush right with room for a mark, words flush left behind two blanks."""
        if self.flush_left:
            return "  " + left(text, self.width - 2)
        if text.endswith(_BEST_MARK):
            return right(text, self.width)
        return right(text, self.width - 1) + " "


_FORMS: Final = {
    "layout": _ColumnForm(5, plan_text=_layout_text),
    "instances": _ColumnForm(7),
    "gpus": _ColumnForm(7),
    "servers": _ColumnForm(9),
    "price_per_hour": _ColumnForm(8, _money_text),
    "price_per_mtok": _ColumnForm(10, _money_text),
    "itl_s": _ColumnForm(10, plan_text=lambda plan: seconds(plan.itl_s)),
    "limit": _ColumnForm(9, plan_text=_limit_text, flush_left=True),
    "power_w": _ColumnForm(11, watts),
    "tokens_per_j": _ColumnForm(8, figure),
    "source": _ColumnForm(21, plan_text=_source_text, flush_left=True),
}
"""Key of a figure (`ComparedFigure.key`) -> the form of its column."""


def comparison_rows(width: int, height: int, comparison: Comparison, workload: int = 0) -> list[Row]:
    """The table in exactly `height` rows of `width` cells; TP, limit, ITL and source are those of one workload, by its
    number."""
    if width <= 0 or height <= 0:
        return []
    if not comparison.rows:
        return to_height([to_width([("nothing to compare yet", "muted")], width)], width, height)
    name_width = _name_width(comparison, width)
    columns = _fitting_columns(comparison.shown or COMPARISON_FIGURES, width - name_width)
    hidden_titles = tuple(column.title for column in comparison.shown if column not in columns)
    foot_room = height - 1 - len(comparison.rows)
    if comparison.without and height >= 3:  # sums that lack a workload say so, even if a row has to give way
        foot_room = max(1, foot_room)
    foot = _foot(comparison, columns, hidden_titles, width)[: max(0, foot_room)]
    room = max(0, height - 1 - len(foot))
    rows = _gpu_rows(comparison, columns, workload=workload, name_width=name_width, width=width, room=room)
    rows = _with_left_out(rows, len(comparison.rows), width, room)
    titles = "".join([_FORMS[column.key].fit(column.title) for column in columns])
    head = to_width([(left("GPU", name_width) + titles, "muted")], width)
    return to_height([head, *rows, *foot], width, height)


def _with_left_out(rows: list[Row], types: int, width: int, room: int) -> list[Row]:
    """The rows in `room` lines; where that is too few, the last line counts the types of GPU that are left out."""
    if not len(rows) > room > 0:
        return rows
    left_out = types - (room - 1)
    return [*rows[: room - 1], to_width([(f"+ {left_out} more in a taller window", "muted")], width)]


def _gpu_rows(
    comparison: Comparison, columns: Sequence[ComparedFigure], *, workload: int, name_width: int, width: int, room: int
) -> list[Row]:
    """A row of figures for each type of GPU; for one without an answer the reason, in as many lines as there is room
    for."""
    most = _reason_lines(comparison, room)
    rows: list[Row] = []
    for compared in comparison.rows:
        tone = "muted" if compared.as_planned else "text"
        name: Piece = (left(cut(_name(compared), name_width - 1), name_width), tone)
        if compared.problem:
            rows += _reason_rows(name, _problem_text(compared), most, width)
        else:
            rows.append(to_width([name, *_cells(compared, columns, workload)], width))
    return rows


def _name_width(comparison: Comparison, width: int) -> int:
    """Cells of the first column: the longest name within bounds, and a blank."""
    least, most = _NAME_CELLS
    longest = max(cells(_name(row)) for row in comparison.rows)
    return max(3, min(width, max(least, min(longest, most)) + 1))


def _reason_lines(comparison: Comparison, room: int) -> int:
    """Lines that each row without figures may have for its reason: these rows share the lines that are spare."""
    rows_without = sum(1 for row in comparison.rows if row.problem)
    if not rows_without:
        return 1
    spare = room - len(comparison.rows)
    return max(1, min(_MOST_REASON_LINES, 1 + spare // rows_without))


def _name(row: Compared) -> str:
    """The type of GPU; `as planned` for the plan itself."""
    if row.as_planned:
        return _AS_PLANNED
    return clean(row.gpu)


def _fitting_columns(figures: Sequence[ComparedFigure], room: int) -> list[ComparedFigure]:
    """The columns that have room, in their order: the least important ones leave first."""
    columns = list(figures)
    while columns and sum(_FORMS[column.key].width for column in columns) > room:
        columns.remove(min(columns, key=lambda column: column.keep))
    return columns


def _cells(row: Compared, columns: Sequence[ComparedFigure], workload: int) -> list[Piece]:
    """The figures of one row, the best ones marked."""
    plan = _plan_of(row, workload)
    pieces: list[Piece] = []
    for column in columns:
        form = _FORMS[column.key]
        text = DASH
        if form.plan_text is None:
            text = form.total_text(getattr(row.totals, column.key))
        elif plan is not None and column.title in TOKEN_GOALS:
            text = judged_text(plan, column.title)
        elif plan is not None:
            text = form.plan_text(plan)
        tone = "text"
        if column.key in row.best:
            text = f"{text}{_BEST_MARK}"
            tone = "ok"
        if row.as_planned:
            tone = "muted"
        is_open = form.flush_left and column is columns[-1]  # words at the end have the rest of the row
        pieces.append((f"  {text}" if is_open else form.fit(text), tone))
    return pieces


def _plan_of(row: Compared, workload: int) -> WorkloadPlan | None:
    """The plan of a workload on one type of GPU; that of the first workload if it has none."""
    if not row.workloads:
        return None
    if 0 <= workload < len(row.workloads):
        return row.workloads[workload]
    return row.workloads[0]


def _foot(
    comparison: Comparison, columns: Sequence[ComparedFigure], hidden_titles: tuple[str, ...], width: int
) -> list[Row]:
    """Lines below the table, the most important first."""
    rows: list[Row] = []
    if comparison.without:
        names = ", ".join(clean(name).rpartition("/")[2] for name in comparison.without)
        rows.append(to_width([(f"without {names}", "warn")], width))
    marked_keys = {key for row in comparison.rows for key in row.best}
    best_texts = [column.best for column in columns if column.key in marked_keys]
    if best_texts:
        rows.append(to_width([(_BEST_MARK, "ok"), (f" {', '.join(best_texts)}", "muted")], width))
    if comparison.unpriced:
        rows += _sentence_rows("no price: [prices] of the config, or typed with the server", width)
    if hidden_titles:
        rows.append(to_width([(left_out_note(hidden_titles, width), "muted")], width))
    return [*rows, *_sentence_rows(comparison.like_for_like, width)]


def _sentence_rows(text: str, width: int) -> list[Row]:
    """A sentence in as many lines as it takes."""
    return [to_width([(line, "muted")], width) for line in folded(text, width)]


def _problem_text(row: Compared) -> str:
    """Why there is no answer on a type of GPU: the problem of the first workload that has one, with its name."""
    plan = next((plan for plan in row.workloads if plan.problem), None)
    if plan is None:
        return clean(with_field_names(row.problem)) or "no answer"
    problem = with_field_names(plan.problem)
    if len(row.workloads) > 1:
        problem = f"{cut(plan.name, _NAME_CELLS[1])}: {problem}"
    return clean(problem)


def _reason_rows(name: Piece, problem: str, most: int, width: int) -> list[Row]:
    """The reason why there are no figures, in up to `most` lines behind the name of the GPU."""
    name_cells = cells(name[0])
    texts = cut_to_lines(problem, max(1, width - name_cells - 2), most)
    begin = name
    rows: list[Row] = []
    for text in texts:
        rows.append(to_width([begin, ("  ", "text"), (text, "warn")], width))
        begin = (" " * name_cells, "text")
    return rows

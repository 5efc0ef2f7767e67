"""The same question on several types of GPU, a row each: what it takes, what it costs, where that comes from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from gpumon.readings.format import DASH, cells, cut, figure, left, right, seconds, watts, whole
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.text import clean
from gpumon.sizing.answer import Compared, WorkloadPlan
from gpumon.sizing.compare import FIGURES, Comparison, Figure
from gpumon.tui.fold import folded
from gpumon.tui.line import Piece, Row
from gpumon.tui.sizing.canvas import filled, fitted
from gpumon.tui.sizing.effects import SOURCES
from gpumon.tui.sizing.fields import labelled
from gpumon.tui.table import unseen

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


class _Form(NamedTuple):
    """A column as it is drawn: its width, and the text of a figure of the totals, or of a workload."""

    width: int
    total: Callable[[Reading], str] = _counted
    words: Callable[[WorkloadPlan], str] | None = None
    flush_left: bool = False

    def shown(self, text: str) -> str:
        """In its width: figures flush right with room for a mark, words flush left behind two blanks."""
        if self.flush_left:
            return "  " + left(text, self.width - 2)
        marked = text.endswith(_BEST)
        if marked:
            return right(text, self.width)
        return right(text, self.width - 1) + " "


_FORMS: Final = {
    "tp": _Form(5, words=lambda plan: f"{plan.tp}" if plan.tp else DASH),
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


def lines(width: int, height: int, comparison: Comparison, workload: int = 0) -> list[Row]:
    """The table in exactly `height` rows of `width` cells, with TP, limit, ITL and source of one workload."""
    if width <= 0 or height <= 0:
        return []
    if not comparison.rows:
        return filled([fitted([("nothing to compare yet", "muted")], width)], width, height)
    name_width = _name_width(comparison, width)
    figures = _fitting(comparison.shown or FIGURES, width - name_width)
    hidden = tuple(figure.title for figure in comparison.shown if figure not in figures)
    # Sums that lack a workload say so, even if a row has to give way.
    if comparison.without and height >= 3:
        least = 1
    else:
        least = 0
    foot = _foot(comparison, figures, hidden, width)[: max(least, height - 1 - len(comparison.rows))]
    room = max(0, height - 1 - len(foot))
    most = _reason_lines(comparison, room)
    rows: list[Row] = []
    for row in comparison.rows:
        start: Piece = (left(cut(_name(row), name_width - 1), name_width), "muted" if row.as_planned else "text")
        if row.problem:
            rows += _reason(start, _problem(row), most, width)
        else:
            rows.append(fitted([start, *_cells(row, figures, workload)], width))
    if len(rows) > room > 0:
        left_out = len(comparison.rows) - max(0, room - 1)
        rows = [*rows[: room - 1], fitted([(f"+ {left_out} more in a taller window", "muted")], width)]
    titles = "".join([_FORMS[figure.key].shown(figure.title) for figure in figures])
    return filled([fitted([(left("GPU", name_width) + titles, "muted")], width), *rows, *foot], width, height)


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
    """The type of GPU; of the plan itself that it is it."""
    if row.as_planned:
        return _AS_PLANNED
    return clean(row.gpu)


def _fitting(figures: Sequence[Figure], room: int) -> list[Figure]:
    """The columns that have room, in their order: the least important ones leave first."""
    kept = list(figures)
    while kept and sum(_FORMS[each.key].width for each in kept) > room:
        kept.remove(min(kept, key=lambda each: each.keep))
    return kept


def _cells(row: Compared, figures: Sequence[Figure], workload: int) -> list[Piece]:
    """The figures of one row, the best ones marked."""
    plans = row.workloads
    plan = None
    if plans:
        if 0 <= workload < len(plans):
            plan = plans[workload]
        else:
            plan = plans[0]
    pieces: list[Piece] = []
    for each in figures:
        form = _FORMS[each.key]
        best = each.key in row.best
        if form.words is None:
            text = form.total(getattr(row.totals, each.key))
        else:
            if plan is None:
                text = DASH
            else:
                text = form.words(plan)
        tone = "ok" if best else "text"
        if row.as_planned:
            tone = "muted"
        pieces.append((form.shown(f"{text}{_BEST}" if best else text), tone))
    return pieces


def _foot(comparison: Comparison, figures: Sequence[Figure], hidden: tuple[str, ...], width: int) -> list[Row]:
    """Lines below the table, the most important first."""
    rows: list[Row] = []
    if comparison.without:
        names = ", ".join(clean(name).rpartition("/")[2] for name in comparison.without)
        rows.append(fitted([(f"without {names}", "warn")], width))
    marked = {key for row in comparison.rows for key in row.best}
    best = [figure.best for figure in figures if figure.key in marked]
    if best:
        rows.append(fitted([(_BEST, "ok"), (f" {', '.join(best)}", "muted")], width))
    if comparison.unpriced:
        rows += _folded("no price: [sizing.prices] of the config, or typed with the server", width)
    if hidden:
        rows.append(fitted([(unseen(hidden, width), "muted")], width))
    return [*rows, *_folded(comparison.like_for_like, width)]


def _folded(text: str, width: int) -> list[Row]:
    """A sentence in as many lines as it takes."""
    return [fitted([(line, "muted")], width) for line in folded(text, width)]


def _problem(row: Compared) -> str:
    """Why there is no answer on this type."""
    found = next((plan for plan in row.workloads if plan.problem), None)
    if found is None:
        return clean(labelled(row.problem)) or "no answer"
    problem = labelled(found.problem)
    return clean(problem if len(row.workloads) == 1 else f"{cut(found.name, _NAMES[1])}: {problem}")


def _reason(start: Piece, problem: str, most: int, width: int) -> list[Row]:
    """In up to `most` lines why there are no figures."""
    room = max(1, width - cells(start[0]) - 2)
    texts = list(folded(problem, room))
    if len(texts) > most:
        texts = [*texts[: most - 1], cut(" ".join(texts[most - 1 :]), room)]
    blank: Piece = (" " * cells(start[0]), "text")
    return [fitted([blank if at else start, ("  ", "text"), (text, "warn")], width) for at, text in enumerate(texts)]

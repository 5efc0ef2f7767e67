"""The upper part of the sizing panel: goals, servers, and the table of workloads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from gpumon.readings.format import cells, count, cut, left, right, seconds, whole
from gpumon.readings.missing import Missing
from gpumon.readings.text import clean
from gpumon.sizing.answer import Answer, Source, WorkloadPlan
from gpumon.sizing.scenario import Scenario, Server, Workload
from gpumon.tui.line import Piece, Row
from gpumon.tui.sizing.edits import Edit
from gpumon.tui.sizing.fields import GOALS, SERVER, WORKLOAD, Place, field, holder

_TARGET: Final = 11
_PER: Final = 15
_COUNT: Final = 6
_TIME: Final = 7
_SHARED: Final = "*"
"""Behind the servers of a workload that others stand on, too."""
_LEAST_NAME: Final = 17
_CELLS: Final = {
    GOALS: ("itl_p95_ms", "ttft_p95_ms", "e2e_p95_ms"),
    SERVER: ("gpus", "gpu", "price_per_gpu_hour"),
    WORKLOAD: ("target",),
}
"""What can be changed in the row itself; the first is where the cursor comes to."""
_MARKS: Final[dict[Source, tuple[str, str]]] = {
    Source.MEASURED: ("●", "ok"),
    Source.SWEEP: ("sweep", "text"),
    Source.RESCALED: ("~", "text"),
    Source.ROOFLINE: ("?", "warn"),
    Source.TYPED: ("typed", "muted"),
    Source.NONE: ("", "muted"),
}
_LIMITS: Final = {"max_num_seqs": "seqs", "typed": ""}
"""Names of limits that are too long for the table, or said by the mark."""


class Stop(NamedTuple):
    """A row that the cursor goes to."""

    section: str
    at: int

    def place(self, cell: int) -> Place:
        """The field of one of its cells."""
        keys = _CELLS[self.section]
        return Place(self.section, self.at, field(self.section, keys[max(0, min(cell, len(keys) - 1))]))

    @property
    def cells(self) -> int:
        """How many fields it shows."""
        return len(_CELLS[self.section])


def stops(scenario: Scenario) -> list[Stop]:
    """Goals, server shapes, workloads; there is a row for a server even where none is given."""
    return [
        Stop(GOALS, 0),
        *(Stop(SERVER, at) for at in range(max(1, len(scenario.server)))),
        *(Stop(WORKLOAD, at) for at in range(len(scenario.workload))),
    ]


class Sheet(NamedTuple):
    """What the rows are painted from."""

    scenario: Scenario
    answer: Answer | None
    """Of `scenario`, or the last one that there was: it is painted grey then."""
    stop: Stop
    cell: int
    edit: Edit | None
    grey: bool
    focused: bool
    frozen: Mapping[int, str]
    """Age of what a workload was measured by, where it is not measured any more."""
    prices: Mapping[str, float] = MappingProxyType({})
    """Of GPUs, where none was typed."""
    here: int = 0
    """Instances of the chosen workload that run now, on GPUs of the type that is planned with."""
    measured: float | None = None
    """Most requests in flight that the chosen workload was measured at."""
    kv_ratio: float | None = None
    """How full the fullest KV cache is of the instances of it that run here."""
    held: tuple[str, ...] = ()
    """Which GPUs here something else holds."""

    def plan(self, at: int) -> WorkloadPlan | None:
        """The answer for one workload; none for one that was added since."""
        answer = self.answer
        return answer.workloads[at] if answer is not None and at < len(answer.workloads) else None

    def tone(self, tone: str) -> str:
        """A tone of the answer."""
        return "muted" if self.grey else tone


def above(sheet: Sheet, width: int) -> Iterator[tuple[Stop, Row]]:
    """Goals and servers."""
    for stop in stops(sheet.scenario):
        if stop.section == GOALS:
            yield stop, _goals(sheet, stop, width)
        elif stop.section == SERVER:
            yield stop, _server(sheet, stop, width)


def table(sheet: Sheet, width: int, left_out: str = "") -> tuple[Row, list[tuple[Stop, Row]]]:
    """Header and rows of the workloads; `left_out` says how many of them have no place."""
    more = _more(width)
    name = width - 2 - _TARGET - _PER - 2 * _COUNT - sum(figure.width for figure in more)
    sizes = (("target", _TARGET), ("per inst", _PER), ("inst", _COUNT), ("GPUs", _COUNT))
    titles = [left(f"  {left_out or 'model'}", name + 2), *(right(text, size) for text, size in sizes)]
    titles += [right(figure.title, figure.width) for figure in more]
    rows = [(stop, _workload(sheet, stop, name, more)) for stop in stops(sheet.scenario) if stop.section == WORKLOAD]
    return (("".join(titles), "muted"),), rows


class _Figure(NamedTuple):
    """A column of panels that are wide enough."""

    title: str
    said: str
    """The title where there is room for a longer one."""
    width: int
    text: Callable[[WorkloadPlan], str]


def _servers(plan: WorkloadPlan) -> str:
    """Servers that hold it; marked where other workloads stand there, too."""
    shared = not isinstance(plan.servers_shared, Missing) and plan.servers_shared > 0
    return f"{whole_count(plan.servers)}{_SHARED if shared else ''}"


_MORE: Final = (
    _Figure("servers", "servers", 8, _servers),
    _Figure("each", "each", _TIME, lambda plan: whole(plan.running)),
    _Figure("ITL", "ITL mean", _TIME, lambda plan: seconds(plan.itl_s)),
    _Figure("TTFT", "TTFT mean", _TIME, lambda plan: seconds(plan.ttft_s)),
    _Figure("E2E", "E2E mean", _TIME, lambda plan: seconds(plan.e2e_s)),
)
"""Servers, requests in flight of each instance at the target, and its latencies there."""


def _more(width: int) -> tuple[_Figure, ...]:
    """As many as there is room for; where there is more, the titles say which latencies they are."""
    room = width - 2 - _LEAST_NAME - _TARGET - _PER - 2 * _COUNT
    shown = [each for at, each in enumerate(_MORE) if sum(figure.width for figure in _MORE[: at + 1]) <= room]
    said = [each._replace(title=each.said, width=max(each.width, cells(each.said) + 1)) for each in shown]
    return tuple(said if sum(figure.width for figure in said) <= room else shown)


def _goals(sheet: Sheet, stop: Stop, width: int) -> Row:
    pieces: list[Piece] = [_begin(sheet, stop, "goals  ")]
    for cell, name in enumerate(("ITL", "TTFT", "E2E")):
        place = stop.place(cell)
        value = getattr(sheet.scenario, place.field.key)
        pieces.append((f"{name} {'≤ ' if value is not None else ''}", "muted"))
        pieces += _cell(sheet, stop, cell, place.field.shown(value), 7)
        pieces.append(("  ", "text"))
    means = any(figure.title != figure.said for figure in _more(width))
    said = "p95; columns: means" if means else "p95"
    return (*pieces, (cut(said, max(3, width - sum(cells(text) for text, _ in pieces))), "muted"))


def _server(sheet: Sheet, stop: Stop, width: int) -> Row:
    begin = _begin(sheet, stop, "server ")
    server = holder(sheet.scenario, SERVER, stop.at)
    if not isinstance(server, Server):
        return (begin, *_cell(sheet, stop, 0, "as seen; g chooses the GPU type", 0))
    price = server.price_per_gpu_hour
    price = sheet.prices.get(server.gpu) if price is None else price
    cost = "–" if price is None else f"{price:g}"
    limit = f"  at most {server.count}" if server.count else ""
    spares = sheet.scenario.spare_servers
    spare = f"  N+{spares}" if spares else ""
    gpu = cut(clean(server.gpu, 60), max(8, width - 32 - len(limit) - len(spare)))
    return (
        begin,
        *_cell(sheet, stop, 0, f"{server.gpus}", 4),
        ("x ", "muted"),
        *_cell(sheet, stop, 1, gpu, 0),
        ("  ", "text"),
        *_cell(sheet, stop, 2, cost, 6),
        (f" /GPU-h{limit}{spare}", "muted"),
    )


def _begin(sheet: Sheet, stop: Stop, name: str) -> Piece:
    at = stop == sheet.stop
    return f"{'▸' if at else ' '}{name}", "focus" if at and sheet.focused else "muted"


def _cell(sheet: Sheet, stop: Stop, cell: int, shown: str, width: int) -> list[Piece]:
    """One value, marked where the cursor is on it, or as it is typed."""
    here = stop == sheet.stop and cell == sheet.cell
    edit = sheet.edit
    if here and edit is not None and edit.place == stop.place(cell):
        room = max(width, 6, cells(edit.text.text) + 1)
        return [("[", "muted"), *edit.pieces(room), ("]", "muted")]
    if here and sheet.focused:
        return [("[", "muted"), (shown, "strong@"), ("]", "muted")]
    return [(shown, "text")]


def _workload(sheet: Sheet, stop: Stop, name_width: int, more: Sequence[_Figure]) -> Row:
    workload = sheet.scenario.workload[stop.at]
    plan = sheet.plan(stop.at)
    here = stop == sheet.stop
    name = left(cut(short_name(workload), name_width - 1), name_width)
    tone = "@" if here and sheet.focused else ""
    begin: Piece = (f"{'▸' if here else ' '}{name}", f"{'strong' if here else 'text'}{tone}")
    target = _target(sheet, stop, workload)
    if plan is None:
        return (begin, *target)
    values = [(right(whole_count(value), _COUNT), sheet.tone("strong")) for value in (plan.instances, plan.gpus)]
    if plan.problem:
        values = [(right("–", _COUNT), sheet.tone("warn"))] * 2
    figures = [(right("–" if plan.problem else figure.text(plan), figure.width), sheet.tone("text")) for figure in more]
    return (begin, *target, *_per_instance(sheet, stop.at, plan), *values, *figures)


def _target(sheet: Sheet, stop: Stop, workload: Workload) -> list[Piece]:
    sign = {"users": "u", "requests_per_s": "/s"}.get(workload.target_kind, "")
    room = _TARGET - 1
    if sheet.edit is not None and stop == sheet.stop and sheet.edit.place == stop.place(0):
        return [(" ", "text"), ("[", "muted"), *sheet.edit.pieces(room - 2), ("]", "muted")]
    shown = f"{field(WORKLOAD, 'target').shown(workload.target)}{sign}"
    if stop == sheet.stop and sheet.focused:
        return [(" ", "text"), ("[", "muted"), (right(shown, room - 2), "strong@"), ("]", "muted")]
    return [(right(f"{shown} ", _TARGET), "text")]


def _per_instance(sheet: Sheet, at: int, plan: WorkloadPlan) -> list[Piece]:
    """Capacity, the limit that holds first, and who says so."""
    mark, tone = _MARKS[plan.source]
    frozen = sheet.frozen.get(at, "")
    if frozen and plan.source in (Source.MEASURED, Source.RESCALED):
        mark, tone = f"{mark if plan.source is Source.RESCALED else ''}‖{frozen}", "warn"
    if plan.extrapolated:
        mark, tone = f"{mark}!", "warn"
    if isinstance(plan.capacity_per_instance, Missing) or plan.problem:
        return [(right("no answer", _PER), sheet.tone("warn"))]
    said = f"{whole_count(plan.capacity_per_instance)} {_LIMITS.get(plan.limit, plan.limit)}".rstrip()
    return [(right(said, _PER - 1 - cells(mark)), sheet.tone("text")), (f" {mark}", sheet.tone(tone))]


def whole_count(value: float | Missing) -> str:
    """Instances, GPUs: whole where they are few, never rounded down to none."""
    return count(value) if isinstance(value, Missing) or value > 99_999 else f"{value:,.0f}" if value >= 1 else "–"


def short_name(workload: Workload) -> str:
    """Its name without the organisation, safe to print."""
    return clean(workload.name or workload.model.rpartition("/")[2] or workload.model, 60)

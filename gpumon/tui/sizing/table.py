"""The upper part of the sizing panel: goals, servers and the table of workloads; or all fields of one row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from gpumon.config.keymap import Keymap
from gpumon.readings.format import cells, count, cut, left, right, seconds, whole
from gpumon.readings.missing import Missing
from gpumon.readings.text import clean
from gpumon.sizing.answer import Basis, Source, WorkloadPlan
from gpumon.sizing.goals import TOKEN_GOALS, first_judged, judged_goal
from gpumon.sizing.scenario import Server, Workload
from gpumon.tui.line import Piece, Row, cells_of
from gpumon.tui.palette import Glyphs
from gpumon.tui.sizing.calculation import waits
from gpumon.tui.sizing.effective_values import effective_value, judged_text
from gpumon.tui.sizing.fields import (
    GOALS,
    SERVER,
    SIGNS,
    TARGETS,
    WORKLOAD,
    FieldPlace,
    Value,
    field_of,
    row_struct,
)
from gpumon.tui.sizing.offer import Offer
from gpumon.tui.sizing.server_blocks import BlockScale
from gpumon.tui.sizing.state import PanelState, Stop

_GOALS_SHOWN: Final = {"tpot_p95_ms": "TPOT", "itl_p95_ms": "ITL", "ttft_p95_ms": "TTFT", "e2e_p95_ms": "E2E"}
"""Key of a goal that the row of goals has -> its name there."""
_KEYS_OF_GOALS: Final = {f"{name} p95": key for key, name in _GOALS_SHOWN.items()}
"""Name of such a goal -> its key."""
_JUDGED: Final = {"ITL": TOKEN_GOALS, "TTFT": ("TTFT p95",), "E2E": ("E2E p95",)}
"""Title of a column of means -> the figures that goals may judge instead, the first one that does is shown."""
_LINES_BESIDE: Final = 4
"""Lines beside goals, servers and workloads where there is room: the titles, a blank line before and one behind, and
one that is spare."""
_CELLS_BESIDE_GPU: Final = 34
"""Cells of a server's row beside the type of its GPUs: its name, their number, brackets, and the price with its
unit."""
_LEAST_GPU_CELLS: Final = 8
"""Cells of that type, however narrow the panel is."""
_LONGEST_GPU: Final = 60
"""Characters of that type."""
_TARGET_CELLS: Final = 11
_CAPACITY_CELLS: Final = 15
"""Cells of the capacity of an instance, its limit, and the mark of its source."""
_COUNT_CELLS: Final = 6
"""Cells of the number of instances, and of that of GPUs."""
_CURSOR_CELLS: Final = 2
"""Cells of the mark of the cursor, and of the blank behind the name."""
_FIRST_CELLS: Final = _CURSOR_CELLS + _TARGET_CELLS + _CAPACITY_CELLS + 2 * _COUNT_CELLS
"""Cells of all that each panel shows of a workload, but for its name."""
_LEAST_NAME_CELLS: Final = 16
"""Cells that columns of wider panels leave to the name of a workload."""
_FIELD_NAME_CELLS: Final = 21
_FIELD_VALUE_CELLS: Final = 16
_SOURCE_MARKS: Final[dict[Source, tuple[str, str]]] = {
    Source.MEASURED: ("●", "ok"),
    Source.SWEEP: ("sweep", "text"),
    Source.RESCALED: ("~", "text"),
    Source.ROOFLINE: ("?", "warn"),
    Source.TYPED: ("typed", "muted"),
    Source.NONE: ("", "muted"),
}
"""Source of a capacity -> its mark and tone."""
_LIMIT_NAMES: Final = {"max_num_seqs": "seqs", "typed": ""}
"""Limits whose names are too long for the table, or told by the mark of the source."""
_TARGET_SIGNS: Final = {"users": "u", "requests_per_s": "/s"}
"""Kind of a target -> its unit in the table; requests in flight need none."""


class PanelLine(NamedTuple):
    """One line of the panel."""

    stop: int
    """Number of the row or field that the cursor is on in this line; -1: it does not go there."""
    row: Row
    value_ends: tuple[int, ...] = ()
    """Cells at which the values of the row end, if there are several."""

    def value_at(self, x: int) -> int:
        """Number of the value of the row at a cell: the first one that ends behind it, else the last."""
        before = sum(end <= x for end in self.value_ends)
        return min(before, max(0, len(self.value_ends) - 1))


def still_line(row: Row) -> PanelLine:
    """A line that the cursor does not go to."""
    return PanelLine(-1, row)


BLANK_LINE: Final = still_line(())


class Scene(NamedTuple):
    """State of the panel, and its place on the screen."""

    state: PanelState
    focused: bool
    ages: Mapping[int, str]
    """Number of a workload that is not measured any more -> the age of the figures that it was measured by."""
    picture: str
    """Which picture, one of `layout.PICTURES`."""
    picture_first: bool
    """Whether it was asked for: then it has room before what is written about the workload."""
    glyphs: Glyphs
    keymap: Keymap
    width: int
    height: int
    scrolled_lines: int = 0
    """Lines about the workload that are above those in view."""
    offer: Offer | None = None
    """Newer figures that a key takes."""
    now_s: float = float("-inf")
    """Unix time of the snapshot that was looked at last, for the age of what the panel works on."""
    block_scale: BlockScale | None = None
    """Scale of the blocks of servers; None where there are none."""

    def tone(self, usual: str) -> str:
        """The tone of a part of the answer: its usual one, or muted where the answer is an older one."""
        return "muted" if self.state.stale else usual


class _Column(NamedTuple):
    """A column of panels that are wide enough."""

    title: str
    width: int
    text: Callable[[Scene, int, WorkloadPlan], str]
    """The text of a workload, by its number and plan."""
    long_title: str = ""
    """Title where there is room for a longer one."""


def _weights_text(scene: Scene, workload: int, _: WorkloadPlan) -> str:
    """The number format of the weights in effect."""
    place = FieldPlace(WORKLOAD, workload, field_of(WORKLOAD, "weight_precision"))
    return place.field.shown(effective_value(place, scene.state.version, scene.state.calculation).value)


def _goals_text(scene: Scene, workload: int, _: WorkloadPlan) -> str:
    """The goals of a workload in the order of the goals' row: `40ms`, `40ms/1s`, `–/1s`."""
    scenario = scene.state.scenario
    goals_ms = [getattr(scenario.workload[workload], key) or getattr(scenario, key) for key in _GOALS_SHOWN]
    while goals_ms and goals_ms[-1] is None:
        goals_ms.pop()
    return "/".join([_goal_text(goal_ms) for goal_ms in goals_ms]) or "–"


def _goal_text(goal_ms: float | None) -> str:
    """A goal: `40ms`, `1s`; a dash for none."""
    if goal_ms is None:
        return "–"
    if goal_ms < 1000.0:
        return f"{goal_ms:.4g}ms"
    return f"{goal_ms / 1e3:.4g}s"


def _servers_text(_: Scene, __: int, plan: WorkloadPlan) -> str:
    """Servers that hold a workload; marked where other workloads are on them, too."""
    text = whole_count(plan.servers)
    if not isinstance(plan.servers_shared, Missing) and plan.servers_shared > 0:
        return f"{text}*"
    return text


def _tp_text(_: Scene, __: int, plan: WorkloadPlan) -> str:
    """Tensor parallelism, with `+` where there are stages or ranks besides; a dash where there is no answer."""
    if plan.tp:
        return f"{plan.tp}+" if plan.pp > 1 or plan.dp > 1 else f"{plan.tp}"
    return "–"


_GOALS_COLUMN: Final = _Column("goals", 0, _goals_text)
"""The column without its width: it is as wide as the longest goals, and left out where no goal is set."""
_COLUMNS: Final = (
    _Column("TP", 4, _tp_text),
    _Column("weights", 8, _weights_text),
    _GOALS_COLUMN,
    _Column("servers", 8, _servers_text),
    _Column("ITL", 7, lambda _, __, plan: seconds(plan.itl_s), "ITL mean"),
    _Column("TTFT", 7, lambda _, __, plan: seconds(plan.ttft_s), "TTFT mean"),
    _Column("E2E", 7, lambda _, __, plan: seconds(plan.e2e_s), "E2E mean"),
    _Column("running", 8, lambda _, __, plan: whole(plan.running)),
)
"""Columns of wider panels. Latencies and requests in flight are those of one instance at the target."""


def _fitting_columns(scene: Scene) -> tuple[_Column, ...]:
    """As many columns as there is room for; where there is more, the titles say which latencies they are."""
    room = scene.width - _FIRST_CELLS - _LEAST_NAME_CELLS
    shown: list[_Column] = []
    for column in _all_columns(scene):
        if _width(shown) + column.width > room:
            break
        shown.append(column)
    with_long_titles = [_with_long_title(column) for column in shown]
    if _width(with_long_titles) <= room:
        return tuple(with_long_titles)
    return tuple(shown)


def _width(columns: Sequence[_Column]) -> int:
    """Cells of some columns."""
    return sum(column.width for column in columns)


def _all_columns(scene: Scene) -> list[_Column]:
    """All columns; that of goals as wide as the longest, and only where one is set."""
    answer = scene.state.calculation.answer
    goals = set[str]()
    if answer is not None:
        plans = answer.workloads[: len(scene.state.scenario.workload)]
        goals = {_goals_text(scene, number, plan) for number, plan in enumerate(plans)}
        goals.discard("–")
    columns: list[_Column] = []
    for column in _COLUMNS:
        if column is not _GOALS_COLUMN:
            columns.append(_judged_column(scene, column))
        elif goals:
            longest = max(cells(text) for text in (column.title, *goals))
            columns.append(column._replace(width=2 + longest))
    return columns


def _judged_column(scene: Scene, column: _Column) -> _Column:
    """The column of a latency with the figure that a goal judges; as it is where no goal does."""
    answer = scene.state.calculation.answer
    plans = answer.workloads if answer is not None else ()
    name = first_judged(_JUDGED.get(column.title, ()), plans)
    if not name:
        return column
    return _Column(name, max(column.width, cells(name) + 1), lambda _, __, plan: judged_text(plan, name))


def _with_long_title(column: _Column) -> _Column:
    """The column with its longer title, if it has one."""
    if not column.long_title:
        return column
    return column._replace(title=column.long_title, width=cells(column.long_title) + 1)


def scenario_table(scene: Scene, room: int) -> list[PanelLine]:
    """Goals, servers, workloads in `room` lines; where not all fit, those around the cursor."""
    top = _goals_and_servers(scene)
    key = scene.keymap.first
    if not scene.state.scenario.workload:
        text = f"no workload: {key('sizing.add')} adds one, {key('sizing.load')} loads a file"
        return [*top, BLANK_LINE, still_line(((f"  {text}", "warn"),)), BLANK_LINE]
    columns = _fitting_columns(scene)
    name_width = scene.width - _FIRST_CELLS - _width(columns)
    body = [
        PanelLine(number, _workload_row(scene, stop, name_width, columns))
        for number, stop in enumerate(scene.state.stops)
        if stop.section == WORKLOAD
    ]
    blank: list[PanelLine] = [BLANK_LINE] if room >= len(top) + len(body) + _LINES_BESIDE else []
    lines = max(1, room - len(top) - 1 - 2 * len(blank))
    first_title = f"{len(body) - lines} more: {key('up')} {key('down')}" if len(body) > lines else "model"
    titles = still_line(((_titles(first_title, name_width, columns), "muted"),))
    return [*top, *blank, titles, *_lines_around(body, scene.state.row, lines), *blank]


def _goals_and_servers(scene: Scene) -> list[PanelLine]:
    """The row of the goals, then one for each type of server."""
    lines: list[PanelLine] = []
    for number, stop in enumerate(scene.state.stops):
        if stop.section == GOALS:
            row, ends = _goals_row(scene, stop)
            lines.append(PanelLine(number, row, ends))
        elif stop.section == SERVER:
            row, ends = _server_row(scene, stop)
            lines.append(PanelLine(number, row, ends))
    return lines


def _titles(first: str, name_width: int, columns: Sequence[_Column]) -> str:
    """The titles of the columns, `first` over the models."""
    titles = [
        left(f"  {first}", name_width + _CURSOR_CELLS),
        right("target", _TARGET_CELLS),
        right("per inst", _CAPACITY_CELLS),
        right("inst", _COUNT_CELLS),
        right("GPUs", _COUNT_CELLS),
    ]
    titles += [right(column.title, column.width) for column in columns]
    return "".join(titles)


def _lines_around(lines: list[PanelLine], cursor: int, room: int) -> list[PanelLine]:
    """As many lines as there is room for, with that of the cursor in the middle."""
    if len(lines) <= room:
        return lines
    cursor_line = next((number for number, line in enumerate(lines) if line.stop == cursor), 0)
    first = max(0, min(cursor_line - room // 2, len(lines) - room))
    return lines[first : first + room]


def _goals_row(scene: Scene, stop: Stop) -> tuple[Row, tuple[int, ...]]:
    """The goals of all workloads, each with the figure that it judges, and which figures the columns of latencies have;
    and where each goal ends."""
    ends: list[int] = []
    pieces: list[Piece] = [_row_name(scene, stop, "goals  ")]
    for cell, place in enumerate(stop.places()):
        name = _GOALS_SHOWN[place.field.key]
        value = getattr(scene.state.scenario, place.field.key)
        sign = "" if value is None else "≤ "
        pieces.append((f"{name} {sign}", "muted"))
        pieces += _cell(scene, stop, cell, place.field.shown(value))
        if value is not None:
            pieces += _judged_figure(scene, f"{name} p95")
        pieces.append(("  ", "text"))
        ends.append(cells_of(pieces))
    text = "p95"
    answer = scene.state.calculation.answer
    if answer is not None and waits(answer):
        text = "p95: simulating …"
    elif any(column.title in _JUDGED for column in _fitting_columns(scene)):  # else the titles say `mean` or `p95`
        text = "p95; columns: means"
    room = scene.width - cells_of(pieces)
    if room >= cells("p95"):
        pieces.append((cut(text, room), "muted"))
    return tuple(pieces), tuple(ends)


def _judged_figure(scene: Scene, name: str) -> list[Piece]:
    """The figure of the chosen workload that a goal judges, beside it: ` 33ms`, ` mean 28ms` where only that is known;
    nothing where it has a goal of its own, or no answer."""
    plan = scene.state.calculation.plan(scene.state.workload_number)
    goal = None if plan is None else judged_goal(plan, name)
    shared_s = (getattr(scene.state.scenario, _KEYS_OF_GOALS[name]) or 0.0) / 1e3
    if goal is None or goal.goal_s != shared_s or isinstance(goal.value_s, Missing):
        return []
    if goal.basis is Basis.PENDING:
        return [(" …", "muted")]
    tone = "ok" if goal.value_s <= goal.goal_s else "warn"
    if goal.basis is Basis.MEAN_ONLY:
        least = ">" if goal.is_least else ""
        return [(f" mean {least}{seconds(goal.value_s)}", scene.tone("warn"))]
    return [(f" {seconds(goal.value_s)}", scene.tone(tone))]


def _server_row(scene: Scene, stop: Stop) -> tuple[Row, tuple[int, ...]]:
    """GPUs, type and price of a server, and how many there may be; and where each of its values ends."""
    name = _row_name(scene, stop, "server ")
    scenario = scene.state.scenario
    server = row_struct(scenario, SERVER, stop.number)
    if not isinstance(server, Server):
        text = f"as detected; {scene.keymap.first('sizing.gpu')} chooses the GPU type"
        return (name, *_cell(scene, stop, 0, text)), ()
    price = server.price_per_gpu_hour
    if price is None:
        price = scene.state.calculation.catalogues.price(server.gpu)
    price_text = "no price"
    unit = ""
    if price is not None:
        price_text = f"{price:g}"
        unit = " per GPU-h"
    limit = f"  at most {server.count}" if server.count else ""
    spare = f"  N+{scenario.spare_servers}" if scenario.spare_servers else ""
    room = scene.width - _CELLS_BESIDE_GPU - len(limit) - len(spare)
    gpu = cut(clean(server.gpu, _LONGEST_GPU), max(_LEAST_GPU_CELLS, room))
    parts: tuple[list[Piece], ...] = (
        [name, *_cell(scene, stop, 0, f"{server.gpus}"), ("x ", "muted")],
        [*_cell(scene, stop, 1, gpu), ("  ", "text")],
        [*_cell(scene, stop, 2, price_text), (f"{unit}{limit}{spare}", "muted")],
    )
    ends = tuple(accumulate(cells_of(part) for part in parts))
    return tuple(piece for part in parts for piece in part), ends


def _row_name(scene: Scene, stop: Stop, name: str) -> Piece:
    """The name of a row, with a mark where the cursor is on it."""
    if stop != scene.state.stop:
        return f" {name}", "muted"
    return f"▸{name}", "focus" if scene.focused else "muted"


def _cell(scene: Scene, stop: Stop, cell: int, text: str) -> list[Piece]:
    """One value of a row, in brackets where the cursor is on it; the text that is typed while it is edited."""
    has_cursor = stop == scene.state.stop and cell == scene.state.cell
    edit = scene.state.edit
    if has_cursor and edit is not None:
        return [("[", "muted"), *edit.pieces(max(6, cells(edit.text) + 1)), ("]", "muted")]
    if has_cursor and scene.focused:
        return [("[", "muted"), (text, "strong@"), ("]", "muted")]
    return [(text, "text")]


def _workload_row(scene: Scene, stop: Stop, name_width: int, columns: Sequence[_Column]) -> Row:
    """The name, the target and the answer of a workload; the answer is left out where there is none yet."""
    workload = scene.state.scenario.workload[stop.number]
    plan = scene.state.calculation.plan(stop.number)
    has_cursor = stop == scene.state.stop
    name = left(cut(_short_name(workload), name_width - 1), name_width)
    begin = (f" {name}", "text")
    if has_cursor:
        begin = (f"▸{name}", "strong@" if scene.focused else "strong")
    target = _target_pieces(scene, workload, has_cursor=has_cursor)
    if plan is None:
        return (begin, *target)
    capacity = _capacity_pieces(scene, stop.number, plan)
    return (begin, *target, *capacity, *_figures(scene, stop.number, plan, columns))


def _figures(scene: Scene, workload: int, plan: WorkloadPlan, columns: Sequence[_Column]) -> list[Piece]:
    """Instances, GPUs and the further columns of a workload, by its number; dashes where it has no answer."""
    if plan.problem:
        figures = [(right("–", _COUNT_CELLS), scene.tone("warn"))] * 2
        return figures + [(right("–", column.width), scene.tone("text")) for column in columns]
    figures = [
        (right(text, _COUNT_CELLS), scene.tone("strong")) for text in (whole_count(plan.instances), _gpus_text(plan))
    ]
    for column in columns:
        figures.append((right(column.text(scene, workload, plan), column.width), scene.tone("text")))
    return figures


def _gpus_text(plan: WorkloadPlan) -> str:
    """GPUs of a workload; a range of them as `27-34`, or where that has no room by its middle, as `~1310`."""
    text = whole_count(plan.gpus)
    if plan.gpus_range is None:
        return text
    span = f"{whole_count(plan.gpus_range.low)}-{whole_count(plan.gpus_range.high)}"
    if cells(span) < _COUNT_CELLS and not isinstance(plan.gpus_range.high, Missing):
        return span
    return f"~{text}"


def _target_pieces(scene: Scene, workload: Workload, *, has_cursor: bool) -> list[Piece]:
    """The target with its unit, in brackets where the cursor is on it; the text that is typed while it is edited."""
    edit = scene.state.edit
    room = _TARGET_CELLS - cells(" []")
    if has_cursor and edit is not None:
        return [(" [", "muted"), *edit.pieces(room), ("]", "muted")]
    sign = _TARGET_SIGNS.get(workload.target_kind, "")
    text = f"{field_of(WORKLOAD, 'target').shown(workload.target)}{sign}"
    if has_cursor and scene.focused:
        return [(" [", "muted"), (right(text, room), "strong@"), ("]", "muted")]
    return [(right(f"{text} ", _TARGET_CELLS), "text")]


def _capacity_pieces(scene: Scene, workload: int, plan: WorkloadPlan) -> list[Piece]:
    """Capacity of an instance, the limit that holds first, and the mark of its source."""
    if isinstance(plan.capacity_per_instance, Missing) or plan.problem:
        return [(right("no answer", _CAPACITY_CELLS), scene.tone("warn"))]
    mark, tone = _source_mark(plan, scene.ages.get(workload, ""))
    limit = _LIMIT_NAMES.get(plan.limit, plan.limit)
    text = f"{whole_count(plan.capacity_per_instance)} {limit}".rstrip()
    room = _CAPACITY_CELLS - 1 - cells(mark)
    return [(right(text, room), scene.tone("text")), (f" {mark}", scene.tone(tone))]


def _source_mark(plan: WorkloadPlan, frozen_age: str) -> tuple[str, str]:
    """The mark of the source of a capacity, and its tone; `frozen_age`: age of figures that nothing renews any more."""
    mark, tone = _SOURCE_MARKS[plan.source]
    if frozen_age and plan.source is Source.MEASURED:
        mark = f"‖{frozen_age}"
        tone = "warn"
    elif frozen_age and plan.source is Source.RESCALED:
        mark = f"{mark}‖{frozen_age}"
        tone = "warn"
    if plan.extrapolated:
        mark = f"{mark}!"
        tone = "warn"
    return mark, tone


def whole_count(value: float | Missing) -> str:
    """A number of instances, GPUs or requests: whole up to five digits, a dash below 1: never `0`."""
    if isinstance(value, Missing) or value > 99_999:
        return count(value)
    if value >= 1:
        return f"{value:,.0f}"
    return "–"


def _short_name(workload: Workload) -> str:
    """The name of a workload, or of its model without the organisation, safe to print."""
    return clean(workload.name or workload.model.rpartition("/")[2] or workload.model, 60)


def fields_page(scene: Scene, room: int) -> list[PanelLine]:
    """All fields of the opened row in `room` lines; where not all fit, those around the cursor."""
    stop = scene.state.stop
    places = stop.places(all_fields=True)
    cursor = min(scene.state.cell, len(places) - 1)
    lines: list[PanelLine] = [
        PanelLine(number, _field_row(scene, place, has_cursor=number == cursor)) for number, place in enumerate(places)
    ]
    title = f" {_opened_name(scene, stop)}: field {cursor + 1} of {len(places)}"
    title_tone = "focus" if scene.focused else "strong"
    title_line = still_line(((cut(title, scene.width), title_tone),))
    return [title_line, *_lines_around(lines, cursor, max(1, room - 2)), BLANK_LINE]


def _opened_name(scene: Scene, stop: Stop) -> str:
    """The name of an opened row."""
    row = row_struct(scene.state.scenario, stop.section, stop.number)
    if isinstance(row, Workload):
        return _short_name(row)
    if stop.section == GOALS:
        return "goals and planning"
    if stop.number:
        return f"server {stop.number + 1}"
    return "server"


def _field_row(scene: Scene, place: FieldPlace, *, has_cursor: bool) -> Row:
    """Name, value in effect, and its origin; the field under the cursor is marked."""
    state = scene.state
    is_marked = has_cursor and scene.focused
    name: Piece = (f" {left(place.field.name, _FIELD_NAME_CELLS)}", "text")
    if is_marked:
        name = (f"▸{left(place.field.name, _FIELD_NAME_CELLS - 1)}[", "text@")
    room = scene.width - cells(name[0])
    if state.edit is not None and state.edit.place == place:
        reason = cut(state.edit.reason, max(0, room - _FIELD_VALUE_CELLS - 3))  # 3: the bracket, a blank, the margin
        return (name, *state.edit.pieces(_FIELD_VALUE_CELLS), (f"] {reason}", "warn"))
    in_effect = effective_value(place, state.version, state.calculation)
    value = cut(_value_text(scene, place, in_effect.value), max(0, room - 2))  # 2: the bracket and the margin
    if is_marked:
        value = f"{value}]"
    value_cells = max(_FIELD_VALUE_CELLS, cells(value))
    origin = cut(clean(in_effect.origin, 60), max(0, room - value_cells - 2))  # 2: a blank and the margin
    value_tone = scene.tone("text")
    origin_tone = "muted"
    if in_effect.origin == "typed":
        value_tone = "strong"
        origin_tone = "accent"
    ground = "@" if is_marked else ""
    return (name, (left(value, value_cells), f"{value_tone}{ground}"), (f" {origin}", f"{origin_tone}{ground}"))


def _value_text(scene: Scene, place: FieldPlace, value: Value) -> str:
    """The value of a field as text; a target with the unit of its kind."""
    text = clean(place.field.shown(value), 60)
    row = row_struct(scene.state.scenario, place.section, place.number)
    if place.field.key == "target_kind":
        return TARGETS[text]
    if place.field.is_target and isinstance(row, Workload):
        return f"{text} {SIGNS.get(row.target_kind, '')}".rstrip()
    return text

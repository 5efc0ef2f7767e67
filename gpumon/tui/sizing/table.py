"""The upper part of the sizing panel: goals, servers and the table of workloads; or all fields of one row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from gpumon.config.keymap import Keymap
from gpumon.readings.format import cells, count, cut, left, right, seconds, whole
from gpumon.readings.missing import Missing
from gpumon.readings.text import clean
from gpumon.sizing.answer import Source, WorkloadPlan
from gpumon.sizing.scenario import Server, Workload
from gpumon.tui.line import Piece, Row, cells_of
from gpumon.tui.palette import Glyphs
from gpumon.tui.sizing.effects import effect
from gpumon.tui.sizing.fields import GOALS_SECTION, SERVER, SIGNS, TARGETS, WORKLOAD, FieldPlace, Value, field, holder
from gpumon.tui.sizing.state import PanelState, Stop

GOAL_KEYS: Final = ("itl_p95_ms", "ttft_p95_ms", "e2e_p95_ms")
_TARGET: Final = 11
_PER: Final = 15
_COUNT: Final = 6
_LEAST_NAME: Final = 16
_FIELD_NAME: Final = 21
_FIELD_VALUE: Final = 16
_MARKS: Final[dict[Source, tuple[str, str]]] = {
    Source.MEASURED: ("●", "ok"),
    Source.SWEEP: ("sweep", "text"),
    Source.RESCALED: ("~", "text"),
    Source.ROOFLINE: ("?", "warn"),
    Source.TYPED: ("typed", "muted"),
    Source.NONE: ("", "muted"),
}
_LIMITS: Final = {"max_num_seqs": "seqs", "typed": ""}
"""Names of limits that are too long for the table, or named by the mark."""
Lines = list[tuple[int, Row]]
"""Rows with the place that the cursor has in each, -1 for none."""


class Scene(NamedTuple):
    """State of the panel, and its place on the screen."""

    state: PanelState
    focused: bool
    ages: Mapping[int, str]
    """Age of what a workload was measured by, where it is not measured any more."""
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

    def tone(self, tone: str) -> str:
        """A tone of the answer: muted where that is an older one."""
        return "muted" if self.state.stale else tone


class _Column(NamedTuple):
    """A column of panels that are wide enough."""

    title: str
    width: int
    text: Callable[[Scene, int, WorkloadPlan], str]
    long_title: str = ""
    """Title where there is room for a longer one."""


def _weights(scene: Scene, workload: int, _: WorkloadPlan) -> str:
    place = FieldPlace(WORKLOAD, workload, field(WORKLOAD, "weight_precision"))
    return place.field.shown(effect(place, scene.state.version, scene.state.calculation).value)


def _goals_of(scene: Scene, workload: int, _: WorkloadPlan) -> str:
    """Its goals in the order of the goals' row: `40ms`, `40ms/1s`, `–/1s`."""
    scenario = scene.state.scenario
    values = []
    for key in GOAL_KEYS:
        values.append(getattr(scenario.workload[workload], key) or getattr(scenario, key))
    while values and values[-1] is None:
        values.pop()
    return "/".join([_goal_text(goal_ms) for goal_ms in values]) or "–"


def _goal_text(goal_ms: float | None) -> str:
    """A goal: `40ms`, `1s`; a dash for none."""
    if goal_ms is None:
        return "–"
    if goal_ms < 1000.0:
        return f"{goal_ms:.4g}ms"
    return f"{goal_ms / 1e3:.4g}s"


def _servers(_: Scene, __: int, plan: WorkloadPlan) -> str:
    """Servers that hold it; marked where other workloads are on them, too."""
    shared = not isinstance(plan.servers_shared, Missing) and plan.servers_shared > 0
    return f"{whole_count(plan.servers)}{'*' if shared else ''}"


def _tensor_parallel(_: Scene, __: int, plan: WorkloadPlan) -> str:
    if plan.tp:
        return f"{plan.tp}"
    return "–"


_GOALS_COLUMN: Final = _Column("goals", 0, _goals_of)
"""As wide as the longest; not there where no goal is set."""
_COLUMNS: Final = (
    _Column("TP", 4, _tensor_parallel),
    _Column("weights", 8, _weights),
    _GOALS_COLUMN,
    _Column("servers", 8, _servers),
    _Column("ITL", 7, lambda _, __, plan: seconds(plan.itl_s), "ITL mean"),
    _Column("TTFT", 7, lambda _, __, plan: seconds(plan.ttft_s), "TTFT mean"),
    _Column("E2E", 7, lambda _, __, plan: seconds(plan.e2e_s), "E2E mean"),
    _Column("running", 8, lambda _, __, plan: whole(plan.running)),
)
"""Latencies and requests in flight are those of one instance at the target."""


def _columns(scene: Scene) -> tuple[_Column, ...]:
    """As many as there is room for; where there is more, the titles say which latencies they are."""
    room = scene.width - 2 - _LEAST_NAME - _TARGET - _PER - 2 * _COUNT
    shown: list[_Column] = []
    for column in _known_columns(scene):
        if sum(other.width for other in shown) + column.width > room:
            break
        shown.append(column)
    wide = [_with_long_title(column) for column in shown]
    if sum(column.width for column in wide) <= room:
        return tuple(wide)
    return tuple(shown)


def _known_columns(scene: Scene) -> list[_Column]:
    """All columns; that of goals as wide as the longest, and only where one is set."""
    answer = scene.state.calculation.answer
    if answer is not None:
        plans = answer.workloads[: len(scene.state.scenario.workload)]
    else:
        plans = ()
    goals = {_goals_of(scene, place, plan) for place, plan in enumerate(plans)}
    goals.discard("–")
    columns: list[_Column] = []
    for column in _COLUMNS:
        if column is not _GOALS_COLUMN:
            columns.append(column)
        elif goals:
            longest = max(cells(text) for text in (column.title, *goals))
            columns.append(column._replace(width=2 + longest))
    return columns


def _with_long_title(column: _Column) -> _Column:
    if not column.long_title:
        return column
    return column._replace(title=column.long_title, width=cells(column.long_title) + 1)


def scenario_table(scene: Scene, room: int) -> Lines:
    """Goals, servers, workloads in `room` lines; where not all fit, those around the cursor."""
    top = _goals_and_servers(scene)
    key = scene.keymap.first
    if not scene.state.scenario.workload:
        text = f"no workload: {key('sizing.add')} adds one, {key('sizing.load')} loads a file"
        return [*top, (-1, ()), (-1, ((f"  {text}", "warn"),)), (-1, ())]
    columns = _columns(scene)
    name_width = scene.width - 2 - _TARGET - _PER - 2 * _COUNT - sum(column.width for column in columns)
    body = _workloads(scene, name_width, columns)
    blank: Lines = []
    if room >= len(top) + len(body) + 4:
        blank = [(-1, ())]
    lines = max(1, room - len(top) - 1 - 2 * len(blank))
    first_title = "model"
    if len(body) > lines:
        first_title = f"{len(body) - lines} more: {key('up')} {key('down')}"
    titles = _titles(first_title, name_width, columns)
    return [*top, *blank, (-1, ((titles, "muted"),)), *_around(body, scene.state.row, lines), *blank]


def _goals_and_servers(scene: Scene) -> Lines:
    """The row of the goals, then one for each type of server."""
    lines: Lines = []
    for place, stop in enumerate(scene.state.stops):
        if stop.section == GOALS_SECTION:
            lines.append((place, _goals(scene, stop)))
        elif stop.section == SERVER:
            lines.append((place, _server(scene, stop)))
    return lines


def _workloads(scene: Scene, name_width: int, columns: Sequence[_Column]) -> Lines:
    """A row for each workload."""
    lines: Lines = []
    for place, stop in enumerate(scene.state.stops):
        if stop.section == WORKLOAD:
            lines.append((place, _workload(scene, stop, name_width, columns)))
    return lines


def _titles(first: str, name_width: int, columns: Sequence[_Column]) -> str:
    """The titles of the columns, `first` over the models."""
    titles = [left(f"  {first}", name_width + 2), right("target", _TARGET), right("per inst", _PER)]
    titles += [right("inst", _COUNT), right("GPUs", _COUNT)]
    titles += [right(column.title, column.width) for column in columns]
    return "".join(titles)


def _around(body: Lines, cursor: int, room: int) -> Lines:
    """As many rows as there is room for, with that of the cursor in the middle."""
    if len(body) <= room:
        return body
    chosen = next((number for number, (stop, _) in enumerate(body) if stop == cursor), 0)
    first = max(0, min(chosen - room // 2, len(body) - room))
    return body[first : first + room]


def _goals(scene: Scene, stop: Stop) -> Row:
    """The goals of all workloads, and which figures the columns of latencies have."""
    pieces: list[Piece] = [_begin(scene, stop, "goals  ")]
    for cell, (name, place) in enumerate(zip(("ITL", "TTFT", "E2E"), stop.places(), strict=True)):
        value = getattr(scene.state.scenario, place.field.key)
        sign = "" if value is None else "≤ "
        pieces.append((f"{name} {sign}", "muted"))
        pieces += [*_cell(scene, stop, cell, place.field.shown(value)), ("  ", "text")]
    text = "p95"
    if any(column.title == "ITL" for column in _columns(scene)):
        text = "p95; columns: means"
    return (*pieces, (cut(text, max(3, scene.width - cells_of(pieces))), "muted"))


def _server(scene: Scene, stop: Stop) -> Row:
    """GPUs, type and price of a server, and how many there may be."""
    begin = _begin(scene, stop, "server ")
    scenario = scene.state.scenario
    server = holder(scenario, SERVER, stop.number)
    if not isinstance(server, Server):
        return (begin, *_cell(scene, stop, 0, f"as detected; {scene.keymap.first('sizing.gpu')} chooses the GPU type"))
    price = server.price_per_gpu_hour
    if price is None:
        price = scene.state.calculation.catalogues.price(server.gpu)
    price_text = "no price"
    unit = ""
    if price is not None:
        price_text = f"{price:g}"
        unit = " per GPU-h"
    limit = ""
    if server.count:
        limit = f"  at most {server.count}"
    spare = ""
    if scenario.spare_servers:
        spare = f"  N+{scenario.spare_servers}"
    gpu = cut(clean(server.gpu, 60), max(8, scene.width - 34 - len(limit) - len(spare)))
    return (
        begin,
        *_cell(scene, stop, 0, f"{server.gpus}"),
        ("x ", "muted"),
        *_cell(scene, stop, 1, gpu),
        ("  ", "text"),
        *_cell(scene, stop, 2, price_text),
        (f"{unit}{limit}{spare}", "muted"),
    )


def _begin(scene: Scene, stop: Stop, name: str) -> Piece:
    """The name of a row, with a mark where the cursor is on it."""
    if stop != scene.state.stop:
        return f" {name}", "muted"
    return f"▸{name}", "focus" if scene.focused else "muted"


def _cell(scene: Scene, stop: Stop, cell: int, text: str) -> list[Piece]:
    """One value, marked where the cursor is on it, or as it is typed."""
    here = stop == scene.state.stop and cell == scene.state.cell
    edit = scene.state.edit
    if here and edit is not None:
        return [("[", "muted"), *edit.pieces(max(6, cells(edit.text) + 1)), ("]", "muted")]
    if here and scene.focused:
        return [("[", "muted"), (text, "strong@"), ("]", "muted")]
    return [(text, "text")]


def _workload(scene: Scene, stop: Stop, name_width: int, columns: Sequence[_Column]) -> Row:
    workload = scene.state.scenario.workload[stop.number]
    plan = scene.state.calculation.plan(stop.number)
    here = stop == scene.state.stop
    name = left(cut(_short_name(workload), name_width - 1), name_width)
    begin = (f" {name}", "text")
    if here:
        begin = (f"▸{name}", "strong@" if scene.focused else "strong")
    target = _target(scene, here, workload)
    if plan is None:
        return (begin, *target)
    return (begin, *target, *_per_instance(scene, stop.number, plan), *_figures(scene, stop.number, plan, columns))


def _figures(scene: Scene, workload: int, plan: WorkloadPlan, columns: Sequence[_Column]) -> list[Piece]:
    """Instances, GPUs and the further columns of a workload; dashes where it has no answer."""
    if plan.problem:
        figures = [(right("–", _COUNT), scene.tone("warn"))] * 2
        return figures + [(right("–", column.width), scene.tone("text")) for column in columns]
    figures = []
    for value in (plan.instances, plan.gpus):
        figures.append((right(whole_count(value), _COUNT), scene.tone("strong")))
    for column in columns:
        figures.append((right(column.text(scene, workload, plan), column.width), scene.tone("text")))
    return figures


def _target(scene: Scene, here: bool, workload: Workload) -> list[Piece]:
    """The target with its unit, in brackets where the cursor is on it."""
    edit = scene.state.edit
    room = _TARGET - 3
    if here and edit is not None:
        return [(" [", "muted"), *edit.pieces(room), ("]", "muted")]
    sign = {"users": "u", "requests_per_s": "/s"}.get(workload.target_kind, "")
    shown = f"{field(WORKLOAD, 'target').shown(workload.target)}{sign}"
    if here and scene.focused:
        return [(" [", "muted"), (right(shown, room), "strong@"), ("]", "muted")]
    return [(right(f"{shown} ", _TARGET), "text")]


def _per_instance(scene: Scene, workload: int, plan: WorkloadPlan) -> list[Piece]:
    """Capacity, the limit that holds first, and where it comes from."""
    mark, tone = _MARKS[plan.source]
    frozen = scene.ages.get(workload, "")
    if frozen and plan.source in (Source.MEASURED, Source.RESCALED):
        mark = f"{mark if plan.source is Source.RESCALED else ''}‖{frozen}"
        tone = "warn"
    if plan.extrapolated:
        mark = f"{mark}!"
        tone = "warn"
    if isinstance(plan.capacity_per_instance, Missing) or plan.problem:
        return [(right("no answer", _PER), scene.tone("warn"))]
    text = f"{whole_count(plan.capacity_per_instance)} {_LIMITS.get(plan.limit, plan.limit)}".rstrip()
    return [(right(text, _PER - 1 - cells(mark)), scene.tone("text")), (f" {mark}", scene.tone(tone))]


def whole_count(value: float | Missing) -> str:
    """Instances, GPUs: whole where they are few, never rounded down to none."""
    if isinstance(value, Missing) or value > 99_999:
        return count(value)
    if value >= 1:
        return f"{value:,.0f}"
    return "–"


def _short_name(workload: Workload) -> str:
    """Its name without the organisation, safe to print."""
    return clean(workload.name or workload.model.rpartition("/")[2] or workload.model, 60)


def fields_page(scene: Scene, room: int) -> Lines:
    """All fields of the opened row in `room` lines; where not all fit, those around the cursor."""
    stop = scene.state.stop
    places = scene.state.stop.places(all_fields=True)
    chosen = min(scene.state.cell, len(places) - 1)
    title = f" {_name_of(scene, stop)}: field {chosen + 1} of {len(places)}"
    rows: Lines = []
    for number, place in enumerate(places):
        rows.append((number, _field(scene, place, here=number == chosen)))
    tone = "focus" if scene.focused else "strong"
    return [(-1, ((cut(title, scene.width), tone),)), *_around(rows, chosen, max(1, room - 2)), (-1, ())]


def _name_of(scene: Scene, stop: Stop) -> str:
    """The name of an opened row."""
    row = holder(scene.state.scenario, stop.section, stop.number)
    if isinstance(row, Workload):
        return _short_name(row)
    if stop.section == GOALS_SECTION:
        return "goals and planning"
    if stop.number:
        return f"server {stop.number + 1}"
    return "server"


def _field(scene: Scene, place: FieldPlace, *, here: bool) -> Row:
    """Name, value in effect, and where that comes from; the field under the cursor is marked."""
    state = scene.state
    width = scene.width
    marked = here and scene.focused
    begin: Piece = (f" {left(place.field.name, _FIELD_NAME)}", "text")
    if marked:
        begin = (f"▸{left(place.field.name, _FIELD_NAME - 1)}[", "text@")
    if state.edit is not None and state.edit.place == place:
        reason = cut(state.edit.reason, max(0, width - _FIELD_NAME - _FIELD_VALUE - 4))
        return (begin, *state.edit.pieces(_FIELD_VALUE), (f"] {reason}", "warn"))
    in_effect = effect(place, state.version, state.calculation)
    value = cut(_value_text(scene, place, in_effect.value), max(0, width - _FIELD_NAME - 3))
    if marked:
        value = f"{value}]"
    room = max(_FIELD_VALUE, cells(value))
    origin = cut(clean(in_effect.origin, 60), max(0, width - _FIELD_NAME - room - 3))
    if in_effect.origin == "typed":
        tones = ("strong", "accent")
    else:
        tones = (scene.tone("text"), "muted")
    ground = "@" if marked else ""
    return (begin, (left(value, room), f"{tones[0]}{ground}"), (f" {origin}", f"{tones[1]}{ground}"))


def _value_text(scene: Scene, place: FieldPlace, value: Value) -> str:
    """The value of a field as text; a target with the unit of its kind."""
    text = clean(place.field.shown(value), 60)
    row = holder(scene.state.scenario, place.section, place.number)
    if place.field.key == "target_kind":
        return TARGETS[text]
    if place.field.is_target and isinstance(row, Workload):
        return f"{text} {SIGNS.get(row.target_kind, '')}".rstrip()
    return text

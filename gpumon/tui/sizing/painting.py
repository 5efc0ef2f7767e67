"""The lines of the sizing panel from top to bottom: rows, figures, notes, and a picture in what is left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from gpumon.config.keymap import Keymap
from gpumon.readings.format import cut
from gpumon.sizing.plan import named
from gpumon.tui.line import Row
from gpumon.tui.palette import Glyphs
from gpumon.tui.sizing import field_list, result, sheet
from gpumon.tui.sizing.fields import SERVER, WORKLOAD
from gpumon.tui.sizing.pictures import Kind, Shown, stack
from gpumon.tui.sizing.plot_latency import curve_picture
from gpumon.tui.sizing.sheet import Sheet
from gpumon.tui.sizing.state import PanelState
from gpumon.tui.widgets.pane import wrapped

if TYPE_CHECKING:
    from gpumon.sizing.answer import WorkloadPlan

_LEAST_PICTURE: Final = 10
"""Lines below which a picture tells nothing."""
_WANTED: Final = 12
"""Lines of a picture that was asked for, with a blank one."""
_LEAST_WANTED: Final = 6
"""Below that what was asked for is not drawn."""
_USUAL_ROWS: Final = 4
_LEAST_FIELDS: Final = 12
"""Lines for the fields of one row before words have room."""
_LEAST_ROWS: Final = 2
"""Workloads in view however low the panel is."""
_MOST_NOTES: Final = 4
"""Lines of notes before they are scrolled, so that pictures have room."""
_FOOT: Final = 8
"""Lines from which the last one says what keys do."""
PICTURE: Final = -2
Lines = list[tuple[int, Row]]
"""Rows with the place that the cursor has in each, -1 for none, `PICTURE` in a picture."""


class Scene(NamedTuple):
    """What is painted, and where."""

    state: PanelState
    focused: bool
    ages: Mapping[int, str]
    what: str
    """Which picture, or `gpus`."""
    wanted: bool
    """Whether it was asked for: then it has room before what is said about the workload."""
    glyphs: Glyphs
    keymap: Keymap
    width: int
    height: int
    notes_from: int = 0
    """Lines of what is said about the workload that are above those in view."""

    @property
    def sheet(self) -> Sheet:
        """The rows' own view of it."""
        state = self.state
        answer = state.last.answer
        return Sheet(
            state.scenario, answer, state.stop, -1 if state.opened else state.cell, state.edit, state.stale,
            self.focused, self.ages, state.last.known.prices, *state.seen, held=state.last.held.reasons,
        )  # fmt: skip


def painted(scene: Scene) -> Lines:
    """At most `scene.height` lines."""
    shown = scene.sheet
    share = _share(scene, shown)
    asked = share.asked
    below = [*share.fixed, *share.words[scene.notes_from :][: share.room]]
    foot = _foot(scene, "a taller window has room for it" if share.crowded else _hidden(scene, share))
    room = max(0, scene.height - len(foot))
    left = room - len(below)
    above = _fields(scene, left) if scene.state.opened else _table(scene, shown, max(share.least, left - asked))
    lines: Lines = [*above[:room], *((-1, row) for row in below)]
    free = room - len(lines)
    if scene.state.scenario.workload and free > (_LEAST_WANTED if asked else _LEAST_PICTURE):
        lines += [(-1, ()), *((PICTURE, row) for row in _picture(scene, free - 1))]
    lines += [(-1, ())] * (room - len(lines))
    return [*lines[:room], *((-1, row) for row in foot)][: scene.height]


class _Share(NamedTuple):
    """How the lines are shared between rows, words and a picture that was asked for."""

    least: int
    """Lines of the rows."""
    asked: int
    """Lines of the picture."""
    crowded: bool
    """Whether there is no room for the picture."""
    fixed: list[Row]
    """Words that are always in view."""
    words: list[Row]
    """Those that can be scrolled."""
    room: int
    """How many of these are in view."""


def _share(scene: Scene, shown: Sheet) -> _Share:
    room = max(0, scene.height - (2 if scene.state.opened else 1) * (scene.height >= _FOOT))
    words, needed = _below(scene, shown), len(result.need(shown, scene.width))
    notes = result.notes(shown, scene.width) if _says_all(scene) else []
    rows = min(len(shown.scenario.workload), _USUAL_ROWS if scene.wanted else _LEAST_ROWS)
    least = _LEAST_FIELDS if scene.state.opened else len(shown.scenario.server) + 2 + rows
    asked = _asked_lines(scene)
    crowded = asked > 0 and room - least - needed <= _LEAST_WANTED
    asked = 0 if crowded else asked
    usual = len(words) + min(len(notes), _MOST_NOTES)
    words += notes
    most = min(usual, max(needed if asked else 2, room - least - (asked or 1)))
    fixed = min(needed, most)
    return _Share(least, asked, crowded, words[:fixed], words[fixed:], most - fixed)


def leaf(scene: Scene, pages: int) -> int | None:
    """From which line on the words are in view some pages on; None where all of them are in view as it is."""
    share = _share(scene, scene.sheet)
    most = len(share.words) - share.room
    if most <= 0 or not share.room or scene.state.opened:
        return None
    return max(0, min(most, scene.notes_from + pages * share.room))


def _hidden(scene: Scene, share: _Share) -> str:
    """How many lines of words are not in view, and the keys that bring them there."""
    key = scene.keymap.first
    above, below = scene.notes_from, max(0, len(share.words) - share.room - scene.notes_from)
    if scene.state.opened or (not above and not below):
        return ""
    if share.asked or not share.room:
        return f"{_lines(below)} of notes: {key('back') if share.asked else 'a taller window'}"
    keys = " ".join(filter(None, (key("page.down") if below else "", key("page.up") if above else "")))
    return f"{_lines(below)} below: {keys}" if below else f"{_lines(above)} above: {keys}"


def _lines(number: int) -> str:
    return f"{number} line{'s' * (number != 1)}"


def _asked_lines(scene: Scene) -> int:
    """Lines that what was asked for takes of those that words would have."""
    if not scene.wanted or not scene.state.scenario.workload or scene.state.opened:
        return 0
    return len(scene.state.columns) + 4 if scene.what == "gpus" else _WANTED


def pictured(lines: Lines) -> bool:
    """Whether there was room for a picture."""
    return any(stop == PICTURE for stop, _ in lines)


def _table(scene: Scene, shown: Sheet, room: int) -> Lines:
    """Goals, servers, workloads; where not all fit, those around the cursor."""
    order = {stop: at for at, stop in enumerate(scene.state.stops)}
    top: Lines = [(order[stop], row) for stop, row in sheet.above(shown, scene.width) if stop in order]
    header, rows = sheet.table(shown, scene.width)
    if not rows:
        key = scene.keymap.first
        said = f"no workload: {key('sizing.add')} adds one, {key('sizing.load')} loads a file"
        return [*top, (-1, ()), (-1, ((f"  {said}", "warn"),)), (-1, ())]
    body: Lines = [(order[stop], row) for stop, row in rows if stop in order]
    spaced = room >= len(top) + len(body) + 4
    places = max(1, room - len(top) - (3 if spaced else 1))
    out = len(body) - places
    if out > 0:
        move = f"{scene.keymap.first('up')} {scene.keymap.first('down')}"
        header, _ = sheet.table(shown, scene.width, f"{out} more: {move}")
    body = _around(body, scene.state.row, places)
    blank: Lines = [(-1, ())] if spaced else []
    return [*top, *blank, (-1, header), *body, *blank]


def _around(body: Lines, cursor: int, places: int) -> Lines:
    if len(body) <= places:
        return body
    at = next((at for at, (stop, _) in enumerate(body) if stop == cursor), 0)
    first = max(0, min(at - places // 2, len(body) - places))
    return body[first : first + places]


def _fields(scene: Scene, room: int) -> Lines:
    """All fields of the opened row; where not all fit, those around the cursor."""
    state, asked = scene.state, scene.state.asked
    places = field_list.places(state.stop)
    at = min(state.cell, len(places) - 1)
    rows: Lines = [
        (
            number,
            field_list.line(
                place, asked, scene.width, here=number == at and scene.focused, edit=state.edit, grey=state.stale
            ),
        )
        for number, place in enumerate(places)
    ]
    title = f" {field_list.title(asked, state.stop)}: field {at + 1} of {len(places)}"
    lines = _around(rows, at, max(1, room - 2))
    return [(-1, ((cut(title, scene.width), "focus" if scene.focused else "strong"),)), *lines, (-1, ())]


def _below(scene: Scene, shown: Sheet) -> list[Row]:
    """Figures, the most important first."""
    rows = result.need(shown, scene.width)
    if scene.state.last.failed:
        rows += wrapped(scene.state.last.failed, scene.width, "critical", most=3)
    if not _says_all(scene):
        return rows
    rows += result.other_packing(shown)
    rows += result.planned_with(scene.state.asked_of_workload, scene.state.workload, scene.width)
    rows += result.about(shown, scene.width)
    return rows


def _says_all(scene: Scene) -> bool:
    """Whether more than what is needed is said: the fields of a server are about no workload."""
    return not (scene.state.stop.section == SERVER and scene.state.opened)


def _picture(scene: Scene, height: int) -> list[Row]:
    state = scene.state
    if scene.what == "gpus":
        from gpumon.tui.sizing import compare_table

        return compare_table.lines(scene.width, height, state.columns, state.workload)
    answer = state.last.answer
    if answer is None:
        return []
    instance = state.last.instance(state.workload)
    plan: WorkloadPlan | None = answer.workloads[state.workload] if state.workload < len(answer.workloads) else None
    curve = curve_picture(instance, plan) if instance is not None and plan is not None else None
    here = state.last.here.get(plan.model) if plan is not None else None
    here_held, known = state.last.held.by_server, state.last.known
    held = {server.gpu: here_held.get(named(server, known).gpu, ()) for server in state.scenario.server}
    shown = Shown(state.scenario, answer, state.workload, curve, here=here, packing=state.scenario.packing, held=held)
    return stack(scene.width, height, shown, scene.glyphs, first=cast("Kind", scene.what))


def _foot(scene: Scene, first: str = "") -> list[Row]:
    """What the keys do right here, behind what has to be said first."""
    state, key = scene.state, scene.keymap.first
    if scene.height < _FOOT:
        return []
    if state.edit is not None:
        reason = state.edit.reason
        said = reason or "answered as you type"
        keys = f" · {key('open')}: take it · {key('back')}: as it was" + (f" · {first}" if first else "")
        return [((f" {cut(said + keys, scene.width - 2)}", "warn" if reason else "muted"),)]
    if state.opened:
        return wrapped(field_list.means(state.place), scene.width, "muted", most=2)
    step = f"{key('sizing.more')} {key('sizing.less')}: step"
    beside = f" · {key('left')} {key('right')}: beside" if state.stop.cells > 1 else ""
    twice = f"{key('sizing.double')}: twice · " if state.stop.section == WORKLOAD else ""
    twice += f"{key('sizing.double.all')}: all twice"
    keys = f"type a number · {step}{beside} · {twice}"
    said = f"{first} · {keys}" if first else keys
    return [((f" {cut(said, scene.width - 2)}", "muted"),)]

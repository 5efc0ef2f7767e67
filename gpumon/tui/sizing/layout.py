"""The lines of the sizing panel from top to bottom: rows, figures, notes, and pictures in what is left."""

from __future__ import annotations

from typing import Final, NamedTuple

from gpumon.readings.format import cut
from gpumon.tui.line import Row, wrapped
from gpumon.tui.sizing import answer, compare, placement, plot
from gpumon.tui.sizing.canvas import filled, reason
from gpumon.tui.sizing.edit import Edit
from gpumon.tui.sizing.fields import SERVER, WORKLOAD
from gpumon.tui.sizing.table import Lines, Scene, fields_page, table

VIEWS: Final = ("itl", "gpus", "packing")
"""What is below the figures: the plot, other types of GPU side by side, or servers and GPUs."""
_LEAST_OF_SEVERAL: Final = 7
_LEAST_PICTURE: Final = 10
"""Lines below which a picture tells nothing."""
_WANTED: Final = 12
"""Lines of a picture that was asked for, with a blank one."""
_LEAST_WANTED: Final = 6
"""Below that what was asked for is not drawn."""
_LEAST_FIELDS: Final = 12
"""Lines for the fields of one row before words have room."""
_LEAST_ROWS, _USUAL_ROWS = 2, 4
"""Workloads in view however low the panel is, and beside a picture that was asked for."""
_MOST_NOTES: Final = 4
"""Lines of notes before they are scrolled, so that pictures have room."""
_LEAST_FOOT: Final = 8
"""Lines from which the last one names keys."""


class Page(NamedTuple):
    """The lines, and what of them can be scrolled."""

    lines: Lines
    pictured: bool
    """Whether there was room for a picture."""
    notes_from: int = 0
    """Lines about the workload that are above those in view."""
    most_from: int = 0
    """The same at most."""
    leaf: int = 0
    """Lines that are in view of those that can be scrolled."""


def page(scene: Scene) -> Page:
    """At most `scene.height` lines."""
    state = scene.state
    feet = _feet(scene) if scene.height >= _LEAST_FOOT else 0
    room = max(0, scene.height - feet)
    words = answer.need(scene)
    needed = len(words)
    if state.calculation.failed:
        words += wrapped(state.calculation.failed, scene.width, "critical", most=3)
    notes = list[Row]()
    if not (state.opened and state.stop.section == SERVER):  # the fields of a server are about no workload
        words += answer.about(scene)
        notes = answer.notes(scene)
    rows = min(len(state.scenario.workload), _USUAL_ROWS if scene.wanted else _LEAST_ROWS)
    least = _LEAST_FIELDS if state.opened else len(state.scenario.server) + 2 + rows
    asked = 0
    if scene.wanted and state.scenario.workload and not state.opened:
        asked = len(state.calculation.columns) + 4 if scene.view == "gpus" else _WANTED
        if scene.view == "packing":
            asked = min(_WANTED, 1 + len(_packing(scene, _WANTED)))
    crowded = asked > 0 and room - least - needed <= _LEAST_WANTED
    asked = 0 if crowded else asked
    usual = len(words) + min(len(notes), _MOST_NOTES)
    most = min(usual, max(needed if asked else 2, room - least - (asked or 1)))
    fixed = min(needed, most)
    scrolled, leaf = [*words[fixed:], *notes], most - fixed
    most_from = max(0, len(scrolled) - leaf) if leaf and not state.opened else 0
    start = min(scene.notes_from, most_from)
    below = [*words[:fixed], *scrolled[start : start + leaf]]

    key, first = scene.keymap.first, ""
    over, under = start, max(0, len(scrolled) - leaf - start)
    if crowded:
        first = "a taller window has room for it"
    elif not state.opened and (over or under) and (asked or not leaf):
        first = f"{_lines(under)} of notes: {key('back') if asked else 'a taller window'}"
    elif not state.opened and under:
        first = f"{_lines(under)} below: {' '.join(filter(None, (key('page.down'), key('page.up') if over else '')))}"
    elif not state.opened and over:
        first = f"{_lines(over)} above: {key('page.up')}"
    left = room - len(below)
    above = fields_page(scene, left) if state.opened else table(scene, max(least, left - asked))
    lines: Lines = [*above[:room], *((-1, row) for row in below)]
    free = room - len(lines)
    pictured = bool(state.scenario.workload) and (free >= asked > 0 or free > _LEAST_PICTURE)
    if pictured:
        lines += [(-1, ()), *((-1, row) for row in _pictures(scene, free - 1))]
    lines += [(-1, ())] * (room - len(lines))
    foot = [(-1, row) for row in _foot(scene, first)] if feet else []
    return Page([*lines[:room], *foot][: scene.height], pictured, start, most_from, leaf)


def _lines(number: int) -> str:
    return f"{number} line{'s' * (number != 1)}"


def _feet(scene: Scene) -> int:
    """Lines of the foot."""
    edit = scene.state.edit
    if edit is not None and edit.reason:
        return len(_mend(scene, edit))
    return 2 if scene.state.opened else 1


def _foot(scene: Scene, first: str) -> list[Row]:
    """What the keys do right here, behind what has to be told first."""
    state = scene.state
    key = scene.keymap.first
    if state.edit is not None:
        return _foot_of_edit(scene, state.edit, first)
    if state.opened:
        field = state.place.field
        how = f"Type a number, {field.kind.name}." if field.kind is not None else "← → or Enter for the list."
        return wrapped(f"{field.means} {how}", scene.width, "muted", most=2)
    parts = [first, "type a number", f"{key('sizing.more')} {key('sizing.less')}: step"]
    parts += [f"{key('left')} {key('right')}: beside"] if len(state.stop.places()) > 1 else []
    parts += [f"{key('sizing.double')}: double"] if state.stop.section == WORKLOAD else []
    parts.append(f"{key('sizing.double.all')}: double all")
    return [((f" {cut(' · '.join(filter(None, parts)), scene.width - 2)}", "muted"),)]


def _foot_of_edit(scene: Scene, edit: Edit, first: str) -> list[Row]:
    """Whether what is typed is answered; else what is wrong with it, what is allowed, and how to mend it."""
    key = scene.keymap.first
    if edit.reason:
        return _mend(scene, edit)
    parts = [edit.refused or "answered as you type", f"{key('open')}: take it", f"{key('back')}: as it was", first]
    return [((f" {cut(' · '.join(filter(None, parts)), scene.width - 2)}", "muted"),)]


def _mend(scene: Scene, edit: Edit) -> list[Row]:
    """What is wrong with what is typed, what is allowed, and how to mend it."""
    field = edit.place.field
    begin = f"{edit.refused}: " if edit.refused else ""
    wrong = f"{begin}{field.name}: {edit.reason}; allowed: {field.allowed}"
    keys = f" Backspace: delete · Ctrl+U: clear · {scene.keymap.first('back')}: as it was"
    return [*wrapped(wrong, scene.width, "warn", most=2), ((cut(keys, scene.width - 1), "warn"),)]


def _pictures(scene: Scene, height: int) -> list[Row]:
    """What was asked for; else the plot, and the servers below it where there is room for both."""
    width = scene.width
    if scene.view == "gpus":
        return compare.lines(width, height, scene.state.calculation.columns, scene.state.workload)
    first, other = (_plot, _packing) if scene.view == "itl" else (_packing, _plot)
    if height < 2 * _LEAST_OF_SEVERAL + 1:
        return filled(first(scene, height), width, height)
    packing = _packing(scene, height // 2)
    size = height - 1 - len(packing)
    plot_ = filled(_plot(scene, size), width, size)
    return [*plot_, (), *packing] if other is _packing else [*packing, (), *plot_]


def _plot(scene: Scene, height: int) -> list[Row]:
    calculation, at = scene.state.calculation, scene.state.workload
    plan, instance = calculation.plan(at), calculation.instance(at)
    if plan is None or instance is None:
        problem = plan.problem if plan is not None else ""
        return reason("ITL over requests in flight", problem or "no answer yet", scene.width, height)
    return plot.latency(scene.width, height, instance, plan, scene.glyphs)


def _packing(scene: Scene, height: int) -> list[Row]:
    """Servers and GPUs, in at most so many lines."""
    calculation, scenario = scene.state.calculation, scene.state.scenario
    if calculation.answer is None:
        return reason("servers and GPUs", "no answer yet", scene.width, height)
    return placement.placement(scene.width, height, calculation.answer, scenario, scene.glyphs)

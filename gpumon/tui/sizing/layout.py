"""The lines of the sizing panel from top to bottom: rows, figures, notes, and pictures in what is left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from gpumon.readings.format import cut
from gpumon.tui.line import Row, wrap_line
from gpumon.tui.sizing import answer, compare, placement, plot, simulated
from gpumon.tui.sizing.canvas import reason_rows, to_height
from gpumon.tui.sizing.edit import Edit
from gpumon.tui.sizing.fields import SERVER, WORKLOAD
from gpumon.tui.sizing.table import Lines, Scene, fields_page, scenario_table

PICTURES: Final = ("itl", "gpus", "packing", "simulated")
"""Pictures below the figures: the plot, other types of GPU side by side, servers and GPUs, or a simulation."""
_LEAST_OF_SEVERAL: Final = 7
_LEAST_PICTURE: Final = 10
"""Lines below which a picture tells nothing."""
_WANTED: Final = 12
"""Lines of a picture that was asked for, with a blank one."""
_LEAST_WANTED: Final = 6
"""Below that what was asked for is not drawn."""
_LEAST_FIELDS: Final = 12
"""Lines for the fields of one row before words have room."""
_LEAST_ROWS: Final = 2
"""Workloads in view however low the panel is."""
_USUAL_ROWS: Final = 4
"""Workloads in view beside a picture that was asked for."""
_MOST_NOTES: Final = 4
"""Lines of notes before they are scrolled, so that pictures have room."""
_CROWDED: Final = "a taller window has room for it"
_LEAST_FOOT: Final = 8
"""Lines from which the last one names keys."""


class PanelPage(NamedTuple):
    """The lines, and what of them can be scrolled."""

    lines: Lines
    pictured: bool
    """Whether there was room for a picture."""
    scrolled_lines: int = 0
    """Lines about the workload that are scrolled out of view above."""
    most_scrolled: int = 0
    """How many lines can be scrolled out of view above."""
    page_lines: int = 0
    """Lines about the workload in view, which one page key scrolls by."""


class _Text(NamedTuple):
    """The text below the rows."""

    needed: list[Row]
    """The need and what is here: in view however low the panel is."""
    about: list[Row]
    """Facts on the chosen workload."""
    notes: list[Row]

    @property
    def usual(self) -> int:
        """Lines that it has where there is room."""
        return len(self.needed) + len(self.about) + min(len(self.notes), _MOST_NOTES)


class _Below(NamedTuple):
    """The part of the text that is in view."""

    rows: list[Row]
    lines_above: int
    """Lines that are scrolled out of view above."""
    lines_below: int
    """The same below."""
    page_lines: int
    """Lines in view of those that can be scrolled."""
    most_scrolled: int
    """How many lines can be scrolled out of view above."""


def panel_page(scene: Scene) -> PanelPage:
    """At most `scene.height` lines."""
    feet = 0
    if scene.height >= _LEAST_FOOT:
        feet = _feet(scene)
    room = max(0, scene.height - feet)
    text = _text(scene)
    least = _least_above(scene)
    picture_lines = _picture_lines(scene)
    crowded = picture_lines > 0 and room - least - len(text.needed) <= _LEAST_WANTED
    if crowded:
        picture_lines = 0
    below = _below(scene, text, room - least, picture_lines)
    left = room - len(below.rows)
    if scene.state.opened:
        above = fields_page(scene, left)
    else:
        above = scenario_table(scene, max(least, left - picture_lines))
    lines: Lines = [*above[:room], *_without_cursor(below.rows)]
    free = room - len(lines)
    pictured = _has_picture(scene, free, picture_lines)
    if pictured:
        lines += [(-1, ()), *_without_cursor(_pictures(scene, free - 1))]
    lines += [(-1, ())] * (room - len(lines))
    foot: Lines = []
    if feet:
        first = _CROWDED
        if not crowded:
            first = _out_of_view(scene, below, picture_lines)
        foot = _without_cursor(_foot(scene, first))
    return PanelPage(
        [*lines[:room], *foot][: scene.height], pictured, below.lines_above, below.most_scrolled, below.page_lines
    )


def _without_cursor(rows: Sequence[Row]) -> Lines:
    """Rows that the cursor does not go to."""
    return [(-1, row) for row in rows]


def _has_picture(scene: Scene, free: int, picture_lines: int) -> bool:
    """Whether `free` lines are enough for a picture. One that was asked for, in so many lines, takes the room that the
    words left, be it less than it wanted."""
    least = _LEAST_PICTURE
    if picture_lines:
        least = min(picture_lines - 1, _LEAST_WANTED)
    return bool(scene.state.scenario.workload) and free > least


def _text(scene: Scene) -> _Text:
    """The figures, what is known of the chosen workload, and the notes."""
    state = scene.state
    about = list[Row]()
    notes = list[Row]()
    if state.calculation.failure:
        about += wrap_line(state.calculation.failure, scene.width, "critical", most=3)
    if not (state.opened and state.stop.section == SERVER):  # the fields of a server are about no workload
        about += answer.about_rows(scene)
        notes = answer.note_rows(scene)
    return _Text(answer.need_rows(scene), about, notes)


def _least_above(scene: Scene) -> int:
    """Lines for the rows, or for the fields of one, before words have room."""
    if scene.state.opened:
        return _LEAST_FIELDS
    scenario = scene.state.scenario
    rows = min(len(scenario.workload), _USUAL_ROWS if scene.picture_first else _LEAST_ROWS)
    return len(scenario.server) + 2 + rows


def _picture_lines(scene: Scene) -> int:
    """Lines of the picture that was asked for, with a blank one; 0 if none was."""
    state = scene.state
    if not scene.picture_first or not state.scenario.workload or state.opened:
        return 0
    if scene.picture == "gpus":
        return len(state.calculation.comparison.rows) + 4
    if scene.picture == "packing":
        return min(_WANTED, 1 + len(_packing(scene, _WANTED)))
    return _WANTED


def _below(scene: Scene, text: _Text, room: int, picture_lines: int) -> _Below:
    """The text in `room` lines, of which a picture that was asked for takes `picture_lines`."""
    if picture_lines:
        least = len(text.needed)
    else:
        least = 2
    most = min(text.usual, max(least, room - (picture_lines or 1)))
    fixed = min(len(text.needed), most)
    scrolled = [*text.needed[fixed:], *text.about, *text.notes]
    page_lines = most - fixed
    if page_lines and not scene.state.opened:
        most_scrolled = max(0, len(scrolled) - page_lines)
    else:
        most_scrolled = 0
    start = min(scene.scrolled_lines, most_scrolled)
    rows = [*text.needed[:fixed], *scrolled[start : start + page_lines]]
    return _Below(rows, start, max(0, len(scrolled) - page_lines - start), page_lines, most_scrolled)


def _out_of_view(scene: Scene, below: _Below, picture_lines: int) -> str:
    """How many lines of the text are out of view, and the keys that bring them."""
    key = scene.keymap.first
    if scene.state.opened or not (below.lines_above or below.lines_below):
        return ""
    if picture_lines:
        return f"{_lines(below.lines_below)} of notes: {key('back')}"
    if not below.page_lines:
        return f"{_lines(below.lines_below)} of notes: a taller window"
    if not below.lines_below:
        return f"{_lines(below.lines_above)} above: {key('page.up')}"
    keys = [key("page.down")]
    if below.lines_above:
        keys.append(key("page.up"))
    return f"{_lines(below.lines_below)} below: {' '.join(filter(None, keys))}"


def _lines(number: int) -> str:
    return f"{number} line{'s' * (number != 1)}"


def _feet(scene: Scene) -> int:
    """Lines of the foot."""
    edit = scene.state.edit
    if edit is not None and edit.reason:
        return len(_mend(scene, edit))
    return 2 if scene.state.opened else 1


def _foot(scene: Scene, first: str) -> list[Row]:
    """The keys of this place, behind what has to be told first."""
    state = scene.state
    key = scene.keymap.first
    if state.edit is not None:
        return _foot_of_edit(scene, state.edit, first)
    if state.opened:
        field = state.place.field
        how = "← → or Enter for the list."
        if field.kind is not None:
            how = f"Type a number, {field.kind.example}."
        return wrap_line(f"{field.means} {how}", scene.width, "muted", most=2)
    parts = [first, "type a number", f"{key('sizing.more')} {key('sizing.less')}: step"]
    if len(state.stop.places()) > 1:
        parts.append(f"{key('left')} {key('right')}: beside")
    if state.stop.section == WORKLOAD:
        parts.append(f"{key('sizing.double')}: double")
    parts.append(f"{key('sizing.double.all')}: double all")
    return [((f" {cut(' · '.join(filter(None, parts)), scene.width - 2)}", "muted"),)]


def _foot_of_edit(scene: Scene, edit: Edit, first: str) -> list[Row]:
    """The foot while something is typed: whether it is answered, else how to mend it."""
    key = scene.keymap.first
    if edit.reason:
        return _mend(scene, edit)
    parts = [edit.key_note or "answered as you type", f"{key('open')}: take it", f"{key('back')}: as it was", first]
    return [((f" {cut(' · '.join(filter(None, parts)), scene.width - 2)}", "muted"),)]


def _mend(scene: Scene, edit: Edit) -> list[Row]:
    """The fault of a text that is no value, what is allowed, and how to mend it."""
    field = edit.place.field
    begin = ""
    if edit.key_note:
        begin = f"{edit.key_note}: "
    wrong = f"{begin}{field.name}: {edit.reason}; allowed: {field.allowed}"
    keys = f" Backspace: delete · Ctrl+U: clear · {scene.keymap.first('back')}: as it was"
    return [*wrap_line(wrong, scene.width, "warn", most=2), ((cut(keys, scene.width - 1), "warn"),)]


def _pictures(scene: Scene, height: int) -> list[Row]:
    """The picture that was asked for; else the plot, and the servers below it where there is room for both."""
    width = scene.width
    if scene.picture == "gpus":
        return compare.comparison_rows(width, height, scene.state.calculation.comparison, scene.state.workload_number)
    if scene.picture == "simulated":
        simulation = scene.state.calculation.simulation(scene.state.workload_number)
        return to_height(simulated.simulation_rows(width, height, simulation, scene.glyphs), width, height)
    plot_first = scene.picture == "itl"
    if height < 2 * _LEAST_OF_SEVERAL + 1:
        if plot_first:
            picture = _plot(scene, height)
        else:
            picture = _packing(scene, height)
        return to_height(picture, width, height)
    packing = _packing(scene, height // 2)
    size = height - 1 - len(packing)
    plotted = to_height(_plot(scene, size), width, size)
    return [*plotted, (), *packing] if plot_first else [*packing, (), *plotted]


def _plot(scene: Scene, height: int) -> list[Row]:
    calculation = scene.state.calculation
    plan = calculation.plan(scene.state.workload_number)
    instance = calculation.instance(scene.state.workload_number)
    if plan is None or instance is None:
        problem = plan.problem if plan is not None else ""
        return reason_rows("ITL over requests in flight", problem or "no answer yet", scene.width, height)
    return plot.latency_chart(scene.width, height, instance, plan, scene.glyphs)


def _packing(scene: Scene, height: int) -> list[Row]:
    """Servers and GPUs, in at most so many lines."""
    calculation = scene.state.calculation
    if calculation.answer is None:
        return reason_rows("servers and GPUs", "no answer yet", scene.width, height)
    return placement.placement_rows(scene.width, height, calculation.answer, scene.state.scenario, scene.glyphs)

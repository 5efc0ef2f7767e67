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
from gpumon.tui.sizing.table import BLANK_LINE, PanelLine, Scene, fields_page, scenario_table, still_line

PICTURES: Final = ("itl", "gpus", "packing", "simulated")
"""Pictures below the figures: the plot, other types of GPU side by side, servers and GPUs, or a simulation."""
_LEAST_OF_TWO: Final = 7
"""Least lines of each of two pictures, one below the other."""
_LEAST_PICTURE: Final = 6
"""Lines that a picture needs if nobody asked for it, with the blank one before it."""
_ASKED_PICTURE: Final = 12
"""Lines of a picture that was asked for, with the blank one before it."""
_LEAST_ASKED_PICTURE: Final = 6
"""Lines below which even a picture that was asked for is not drawn."""
_LEAST_FIELDS: Final = 12
"""Lines for the fields of one row before words have room."""
_LEAST_WORKLOADS: Final = 2
"""Workloads in view however low the panel is."""
_WORKLOADS_BESIDE_PICTURE: Final = 4
"""Workloads in view beside a picture that was asked for."""
_LEAST_TEXT: Final = 2
"""Lines of text in view however low the panel is: the need, and what is here."""
_MOST_NOTES: Final = 4
"""Lines of notes before they are scrolled, so that pictures have room."""
_NO_ROOM_FOR_PICTURE: Final = "a taller window has room for it"
_LEAST_WITH_FOOT: Final = 8
"""Lines of a panel from which the last one names keys."""


class PanelPage(NamedTuple):
    """The lines of the panel, and what of them can be scrolled."""

    lines: list[PanelLine]
    has_picture: bool
    """Whether there was room for a picture."""
    scrolled_lines: int = 0
    """Lines about the workload that are scrolled out of view above."""
    most_scrolled: int = 0
    """How many lines can be scrolled out of view above."""
    page_lines: int = 0
    """Lines about the workload in view, which one page key scrolls by."""
    blocks_line: int = -1
    """Number of the line with the blocks of servers; -1: they are not in view."""


class _Text(NamedTuple):
    """The text below the rows."""

    need: list[Row]
    """The need and what is here: in view however low the panel is."""
    about: list[Row]
    """Facts about the chosen workload."""
    notes: list[Row]

    @property
    def usual(self) -> int:
        """Number of lines that it has where there is room."""
        return len(self.need) + len(self.about) + min(len(self.notes), _MOST_NOTES)


class _TextInView(NamedTuple):
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
    """At most `scene.height` lines: the rows, the text, pictures in the room that is left, and the foot.

    The text has the lines that the rows can do without; a picture that was asked for comes before most of it.
    """
    foot_lines = _foot_lines(scene) if scene.height >= _LEAST_WITH_FOOT else 0
    room = max(0, scene.height - foot_lines)
    text = _text(scene)
    least_above = _least_above(scene)
    picture_lines = _asked_picture_lines(scene)
    crowded = picture_lines > 0 and room - least_above - len(text.need) <= _LEAST_ASKED_PICTURE
    if crowded:
        picture_lines = 0
    in_view = _text_in_view(scene, text, room - least_above, picture_lines)
    room_above = room - len(in_view.rows)
    if scene.state.opened:
        above = fields_page(scene, room_above)
    else:
        above = scenario_table(scene, max(least_above, room_above - picture_lines))
    lines = [*above[:room], *_still_lines(in_view.rows)]
    blocks_line = next((place for place, line in enumerate(lines) if _has_blocks(line.row)), -1)
    free = room - len(lines)
    has_picture = _has_picture(scene, free, picture_lines)
    if has_picture:
        lines += [BLANK_LINE, *_still_lines(_pictures(scene, free - 1))]
    lines += [BLANK_LINE] * (room - len(lines))
    foot: list[PanelLine] = []
    if foot_lines:
        notice = _NO_ROOM_FOR_PICTURE if crowded else _out_of_view_text(scene, in_view, picture_lines)
        foot = _still_lines(_foot(scene, notice))
    return PanelPage(
        lines=[*lines[:room], *foot][: scene.height],
        has_picture=has_picture,
        scrolled_lines=in_view.lines_above,
        most_scrolled=in_view.most_scrolled,
        page_lines=in_view.page_lines,
        blocks_line=blocks_line,
    )


def _has_blocks(row: Row) -> bool:
    """Whether a row has the blocks of servers."""
    return bool(row) and row[0][0] == answer.BLOCKS_LABEL


def _still_lines(rows: Sequence[Row]) -> list[PanelLine]:
    """Lines that the cursor does not go to."""
    return [still_line(row) for row in rows]


def _has_picture(scene: Scene, free: int, picture_lines: int) -> bool:
    """Whether `free` lines are enough for a picture. One that was asked for (`picture_lines`, else 0) takes the room
    that the text left, even if it is less."""
    least = min(picture_lines - 1, _LEAST_ASKED_PICTURE) if picture_lines else _LEAST_PICTURE
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
    return _Text(need=answer.need_rows(scene), about=about, notes=notes)


def _least_above(scene: Scene) -> int:
    """Lines for the rows, or for the fields of one, before text has room."""
    if scene.state.opened:
        return _LEAST_FIELDS
    scenario = scene.state.scenario
    least_workloads = _WORKLOADS_BESIDE_PICTURE if scene.picture_first else _LEAST_WORKLOADS
    return len(scenario.server) + 2 + min(len(scenario.workload), least_workloads)  # 2: the goals, and the titles


def _asked_picture_lines(scene: Scene) -> int:
    """Lines of the picture that was asked for, with a blank one; 0 if none was."""
    state = scene.state
    if not scene.picture_first or not state.scenario.workload or state.opened:
        return 0
    if scene.picture == "gpus":
        # The blank line, the titles, and the two lines of the foot that tell the most.
        return len(state.calculation.comparison.rows) + 4
    if scene.picture == "packing":
        return min(_ASKED_PICTURE, 1 + len(_packing(scene, _ASKED_PICTURE)))
    return _ASKED_PICTURE


def _text_in_view(scene: Scene, text: _Text, room: int, picture_lines: int) -> _TextInView:
    """The text in `room` lines, of which a picture that was asked for takes `picture_lines`."""
    least = _LEAST_TEXT
    blank_or_picture = 1
    if picture_lines:
        least = len(text.need)
        blank_or_picture = picture_lines
    lines = min(text.usual, max(least, room - blank_or_picture))
    fixed = min(len(text.need), lines)
    scrolling = [*text.need[fixed:], *text.about, *text.notes]
    page_lines = lines - fixed
    # With an opened row, the keys that scroll go through its fields.
    most_scrolled = max(0, len(scrolling) - page_lines) if page_lines and not scene.state.opened else 0
    start = min(scene.scrolled_lines, most_scrolled)
    end = start + page_lines
    return _TextInView(
        rows=[*text.need[:fixed], *scrolling[start:end]],
        lines_above=start,
        lines_below=max(0, len(scrolling) - end),
        page_lines=page_lines,
        most_scrolled=most_scrolled,
    )


def _out_of_view_text(scene: Scene, in_view: _TextInView, picture_lines: int) -> str:
    """How many lines of the text are out of view, and the keys that bring them; empty if none is."""
    key = scene.keymap.first
    if scene.state.opened or not (in_view.lines_above or in_view.lines_below):
        return ""
    if picture_lines:
        return f"{_line_count(in_view.lines_below)} of notes: {key('back')}"
    if not in_view.page_lines:
        return f"{_line_count(in_view.lines_below)} of notes: a taller window"
    if not in_view.lines_below:
        return f"{_line_count(in_view.lines_above)} above: {key('page.up')}"
    keys = [key("page.down")]
    if in_view.lines_above:
        keys.append(key("page.up"))
    return f"{_line_count(in_view.lines_below)} below: {' '.join(filter(None, keys))}"


def _line_count(number: int) -> str:
    """A number of lines: `1 line`, `2 lines`."""
    return f"{number} line{'s' * (number != 1)}"


def _foot_lines(scene: Scene) -> int:
    """Number of lines of the foot."""
    edit = scene.state.edit
    if edit is not None and edit.reason:
        return len(_mending_rows(scene, edit))
    return 2 if scene.state.opened else 1


def _foot(scene: Scene, notice: str) -> list[Row]:
    """The keys of this place, behind a notice."""
    state = scene.state
    key = scene.keymap.first
    if state.edit is not None:
        return _foot_of_edit(scene, state.edit, notice)
    if state.opened:
        field = state.place.field
        how = f"Type a number, {field.kind.example}." if field.kind is not None else "← → or Enter for the list."
        return wrap_line(f"{field.means} {how}", scene.width, "muted", most=2)
    parts = [notice, "type a number", f"{key('sizing.more')} {key('sizing.less')}: step"]
    if len(state.stop.places()) > 1:
        parts.append(f"{key('left')} {key('right')}: beside")
    if state.stop.section == WORKLOAD:
        parts.append(f"{key('sizing.double')}: double")
    parts.append(f"{key('sizing.double.all')}: double all")
    if scene.block_scale is not None:
        parts.append("mouse: drag the servers")
    return [((f" {cut(' · '.join(filter(None, parts)), scene.width - 2)}", "muted"),)]


def _foot_of_edit(scene: Scene, edit: Edit, notice: str) -> list[Row]:
    """The foot while something is typed: the keys that take or drop it, or how to mend a text that is no value."""
    key = scene.keymap.first
    if edit.reason:
        return _mending_rows(scene, edit)
    parts = [edit.key_note or "answered as you type", f"{key('open')}: use it", f"{key('back')}: as before", notice]
    return [((f" {cut(' · '.join(filter(None, parts)), scene.width - 2)}", "muted"),)]


def _mending_rows(scene: Scene, edit: Edit) -> list[Row]:
    """The fault of a text that is no value, what is allowed, and how to mend it."""
    field = edit.place.field
    begin = f"{edit.key_note}: " if edit.key_note else ""
    wrong = f"{begin}{field.name}: {edit.reason}; allowed: {field.allowed}"
    keys = f" Backspace: delete · Ctrl+U: clear · {scene.keymap.first('back')}: as before"
    return [*wrap_line(wrong, scene.width, "warn", most=2), ((cut(keys, scene.width - 1), "warn"),)]


def _pictures(scene: Scene, height: int) -> list[Row]:
    """The picture that was asked for; else the plot, and the servers below it where there is room for both."""
    width = scene.width
    if scene.picture == "gpus":
        return compare.comparison_rows(width, height, scene.state.calculation.comparison, scene.state.workload_number)
    if scene.picture == "simulated":
        simulation = scene.state.calculation.simulation(scene.state.workload_number)
        return to_height(simulated.simulation_rows(width, height, simulation, scene.glyphs), width, height)
    is_plot_first = scene.picture == "itl"
    if height < 2 * _LEAST_OF_TWO + 1:
        picture = _plot(scene, height) if is_plot_first else _packing(scene, height)
        return to_height(picture, width, height)
    packing = _packing(scene, height // 2)
    plot_height = height - 1 - len(packing)
    plotted = to_height(_plot(scene, plot_height), width, plot_height)
    if is_plot_first:
        return [*plotted, (), *packing]
    return [*packing, (), *plotted]


def _plot(scene: Scene, height: int) -> list[Row]:
    """ITL over requests in flight of the chosen workload, or why there is no such picture."""
    calculation = scene.state.calculation
    plan = calculation.plan(scene.state.workload_number)
    instance = calculation.instance(scene.state.workload_number)
    if plan is None or instance is None:
        problem = plan.problem if plan is not None and plan.problem else "no answer yet"
        return reason_rows("ITL over requests in flight", problem, scene.width, height)
    return plot.latency_chart(scene.width, height, instance, plan, scene.glyphs)


def _packing(scene: Scene, height: int) -> list[Row]:
    """Servers and GPUs, in at most so many lines."""
    calculation = scene.state.calculation
    if calculation.answer is None:
        return reason_rows("servers and GPUs", "no answer yet", scene.width, height)
    return placement.placement_rows(scene.width, height, calculation.answer, scene.state.scenario, scene.glyphs)

"""The detail page: every figure of one GPU, engine, process or verdict, and where it comes from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Final, NamedTuple

from gpumon.efficiency.service import Service
from gpumon.readings.format import cells, cut
from gpumon.readings.history import History
from gpumon.readings.snapshot import Engine, Gpu, Snapshot, Verdict
from gpumon.tui.charts.grid import Style
from gpumon.tui.detail import verdict
from gpumon.tui.detail.blocks import TWO_COLUMNS_WIDTH, Heights, Section, is_at_place, lay_out
from gpumon.tui.detail.gpu import ThrottleWatch
from gpumon.tui.detail.sections import sections_of
from gpumon.tui.detail.state import FAULTS_TITLE, Topic, head_lines, trouble_sections
from gpumon.tui.detail.thing_charts import ChartPlan, ThingCharts, engine_keys, engine_plan
from gpumon.tui.detail.things import ShownKey, is_blank, linked_page, page_title, things_of_kind
from gpumon.tui.detail.users import users_sections
from gpumon.tui.fold import folded as folded_text
from gpumon.tui.keys import keys_of_scope
from gpumon.tui.levels import levels_in
from gpumon.tui.line import Piece, Row
from gpumon.tui.palette import Palette
from gpumon.tui.screens.context import KeysChanged
from gpumon.tui.search import selected_row
from gpumon.tui.services import service_shown
from gpumon.tui.view import View
from gpumon.tui.widgets.pane import LinesInView, Pane

_NO_THING: Final[ShownKey] = ("", "")
_FOLDED_INDENT: Final = 2
"""Cells before the titles of folded sections."""
_ROOFLINE_LINES: Final = 28
"""Lines of the roofline on an engine's page."""
_TROUBLE_WIDTH: Final = TWO_COLUMNS_WIDTH - 1
"""Most cells of the sections on what is wrong: in one column, as they are read from top to bottom."""


class _Layout(NamedTuple):
    """The lines of a snapshot for one size."""

    snapshot: Snapshot
    width: int
    height: int
    rows: list[Row]


class DetailPage(Pane):
    """Follows its thing from snapshot to snapshot; keeps the last figures of one that is gone."""

    ZOOMS: ClassVar[bool] = False

    def __init__(self, palette: Palette, view: View) -> None:
        super().__init__(palette, view)
        self._topic = _empty_topic(_NO_THING)
        self._watch: ThrottleWatch | None = None
        """How long the GPU was throttled while the page was open."""
        self._title = ""
        """Title of the thing as it was when it was there last."""
        self._history: History | None = None
        self._charts = ThingCharts()
        self.unfolded = False
        """Whether figures are shown that are read by those alone who look for them; stays so from thing to thing."""
        self._keys_in: Callable[[str], Sequence[str]] = lambda _: ()
        """The keys of all things of a kind, as their list shows them."""
        self._trail: list[ShownKey] = []
        """Things shown before, for the way back."""
        self._layout: _Layout | None = None
        """The lines as they were laid out last; None once they do not hold any more."""
        self._place = ""
        """The figure or section that the page was opened at."""
        self._goes_to_place = False
        """Whether that has to come into view at the next paint."""
        self._heights: Heights = {}
        """Most lines that the entries took so far, for the width `_heights_width`."""
        self._heights_width = 0

    @property
    def thing(self) -> ShownKey:
        """Kind and key of the thing shown."""
        return self._topic.key

    def look_at(self, thing: ShownKey, keys_in: Callable[[str], Sequence[str]] = lambda _: ()) -> None:
        """Show another thing: its kind (gpu, engine, process, verdict) and its key (UUID, URL, pid, `verdict_key`).

        `keys_in`: the keys of all things of a kind as their list shows them, for the way from one to the next.
        """
        self._keys_in = keys_in
        if not self.display:
            self._trail = []
        elif self._topic.key not in (_NO_THING, thing):
            trail = _extend_trail(self._trail, self._topic.key)
            self._trail = _extend_trail(trail, thing)[:-1]  # the thing itself is not on the way back to others
        self._turn_to(thing)

    def read_from(self, history: History) -> None:
        """Take the charts from other series."""
        self._history = history
        self._layout = None

    def prepare_for_jump(self) -> None:
        """Keep no figures of the thing: the snapshots seen before may be later than those that come."""
        self._topic = _empty_topic(self._topic.key)
        self._watch = None

    def _turn_to(self, thing: ShownKey) -> None:
        """Show another thing from its top, without anything of the one before."""
        self._topic = _empty_topic(thing)
        self._watch = None
        self._place = ""
        self._title = ""
        self._heights = {}
        self.scrolling.top = 0
        if self.snapshot is not None:
            self._follow(self.snapshot)
        self.update()

    def show(self, snapshot: Snapshot) -> None:
        """Show a snapshot; a page that is not open does not follow its thing."""
        if self.display:
            self._follow(snapshot)
        super().show(snapshot)

    def _follow(self, snapshot: Snapshot) -> None:
        """Take the thing as a snapshot has it; figures that it has no longer stay, with their time."""
        self._layout = None
        topic = self._topic
        kind, key = topic.key
        thing = things_of_kind(snapshot, kind).get(key)
        if thing is None:
            self._topic = topic._replace(now=None, gone_wall_s=topic.gone_wall_s or snapshot.wall_s)
            return
        if is_blank(thing) and topic.figures is not None and not is_blank(topic.figures):
            self._topic = topic._replace(now=thing, gone_wall_s=0.0)
            return
        age_s = thing.age_s if isinstance(thing, Gpu | Engine) else 0.0
        figures_wall_s = snapshot.wall_s - age_s
        self._topic = Topic(topic.key, now=thing, figures=thing, figures_wall_s=figures_wall_s, gone_wall_s=0.0)
        if isinstance(thing, Gpu) and not is_blank(thing):
            if self._watch is None:
                self._watch = ThrottleWatch(thing.throttle_s)
            self._watch = self._watch.follow(thing.throttle_s, figures_wall_s)

    def forget(self) -> None:
        """Lay the page out anew, as its units or levels are others now."""
        self._layout = None
        super().forget()

    def title(self) -> str:
        """Name of the thing shown."""
        thing = self._topic.now or self._topic.figures
        if thing is not None or not self._title:
            self._title = page_title(self._topic.key, thing)
        return self._title

    def note(self, room: int) -> str:  # noqa: ARG002 - the signature of Pane
        """The place of the thing in its list (`3/8`), and where Enter goes."""
        if self.snapshot is None:
            return ""
        keys = self._listed_keys(self.snapshot)
        _, key = self._topic.key
        parts = []
        if key in keys and len(keys) > 1:
            parts.append(f"{keys.index(key) + 1}/{len(keys)}")
        name = self._link_name()
        if name:
            parts.append(f"{self.view.keymap.first('open')}: {name}")
        return " · ".join(parts)

    def _link_name(self) -> str:
        """Name of the page that Enter goes on to: `gpu 3`, `engine vllm:8000`; empty where there is none."""
        link = self.open()
        if link is None or self.snapshot is None:
            return ""
        kind, key = link
        thing = things_of_kind(self.snapshot, kind).get(key)
        return page_title(link, thing).partition(" · ")[0]

    @property
    def opens_here(self) -> bool:
        """Whether Enter goes on to another page: while a search is open only where its match names that page."""
        return not self.search.text or self.search.stands_on(self._link_name().removeprefix("engine "))

    def open(self) -> ShownKey | None:
        """The page that Enter goes on to: what the thing runs on, or what runs on it."""
        if self.snapshot is None:
            return None
        return linked_page(self.snapshot, self._topic.now or self._topic.figures)

    def back(self) -> bool:
        """Go back to the thing that was looked at before; returns whether there is one."""
        if not self._trail:
            return False
        self._turn_to(self._trail.pop())
        return True

    def point_to(self, place: str) -> None:
        """Show and mark the figure of this name, or the section of this title."""
        self._place = place
        self._goes_to_place = True
        self.unfolded = True
        self._layout = None
        self.update()

    def in_view(self, width: int, room: int) -> LinesInView:
        """The lines in view, with the one that the page was opened at marked."""
        if not self._place:
            return super().in_view(width, room)
        line = self._line_of_place(width, room)
        if line is None:
            return super().in_view(width, room)
        if self._goes_to_place:
            self._goes_to_place = False
            self.scrolling.top = max(0, line - 1)  # the line above it shows that there is more
        in_view = super().in_view(width, room)
        rows = in_view.rows
        line_in_view = line - self.scrolling.top
        if 0 <= line_in_view < len(rows):
            rows = [*rows[:line_in_view], selected_row(rows[line_in_view]), *rows[line_in_view + 1 :]]
        return in_view._replace(rows=rows)

    def _line_of_place(self, width: int, room: int) -> int | None:
        """Number of the line that the page was opened at; None where it was opened at its top or has no such line."""
        if not self._place:
            return None
        for line, row in enumerate(self.body(width, room)):
            if is_at_place(row, self._place):
                return line
        return None

    def step_sideways(self, step: int) -> bool:
        """Go to the next (1) or previous (-1) thing of the same list; returns whether there is another one."""
        if self.snapshot is None:
            return False
        kind, key = self._topic.key
        keys = self._listed_keys(self.snapshot)
        if all(other == key for other in keys):
            return False
        place = keys.index(key) + step if key in keys else 0
        self._turn_to((kind, keys[place % len(keys)]))
        return True

    def _listed_keys(self, snapshot: Snapshot) -> Sequence[str]:
        """The keys of the thing's list as it is shown; all keys of its kind where that list leaves the thing out."""
        kind, key = self._topic.key
        keys = self._keys_in(kind)
        if key in keys:
            return keys
        return list(things_of_kind(snapshot, kind))

    def head(self, width: int) -> Sequence[Row]:
        """State of the thing, age of its figures, and since when."""
        if self.snapshot is None:
            return ()
        rows = head_lines(self._topic, self.snapshot, self.view.levels)
        return [_cut_row(row, width) for row in rows]

    def body(self, width: int, height: int) -> Sequence[Row]:
        """All figures, laid out once per snapshot and width, and the charts of a verdict."""
        snapshot = self.snapshot
        if snapshot is None:
            return ()
        layout = self._layout
        if layout is None or layout.snapshot is not snapshot or (layout.width, layout.height) != (width, height):
            layout = _Layout(snapshot, width, height, self._lay_out_rows(snapshot, width, height))
            self._layout = layout
        if isinstance(self._topic.figures, Verdict):
            keys = verdict.evidence_keys(self._topic.figures)
            plan = verdict.evidence_plan(height - len(layout.rows))
            return [*layout.rows, *self._chart_rows(keys, snapshot, width, plan)]
        return layout.rows

    def _chart_rows(
        self, keys: Sequence[str], snapshot: Snapshot, width: int, plan: Callable[[int], ChartPlan]
    ) -> Sequence[Row]:
        """Charts of some series up to the moment that is shown."""
        if self._history is None:
            return ()
        style = Style(self.view.config.screen.span_s, self.palette.glyphs, levels_in(self.view))
        return self._charts.rows(keys, self._history, snapshot, self.moment, width, style, plan)

    def _lay_out_rows(self, snapshot: Snapshot, width: int, height: int) -> list[Row]:
        """The lines of the page: what users got and its charts, what is wrong, all figures, the roofline. What is wrong
        comes first where the thing gives no figures now."""
        if self._heights_width != width:
            self._heights = {}
            self._heights_width = width
        rows, sections = self._lead_and_figures(snapshot, width, height)
        folded = [section for section in sections if section.folded]
        if folded and not self.unfolded and not self.search.text:
            sections = [section for section in sections if not section.folded]
            rows += lay_out(sections, width, old=self._topic.old, heights=self._heights)
            return [*rows, (), *self._folded_rows(folded, width)]
        rows += lay_out(sections, width, old=self._topic.old, heights=self._heights)
        return rows + self._roofline_rows(snapshot, width)

    def _lead_and_figures(self, snapshot: Snapshot, width: int, height: int) -> tuple[list[Row], list[Section]]:
        """The first lines of the page, and the sections below them: those of the newest figures that there are, none
        before the thing was seen."""
        thing = self._topic.figures
        troubles = trouble_sections(self._topic, snapshot, self.view.levels)
        if thing is None:
            return _trouble_rows(troubles, width), []
        sections = sections_of(thing, snapshot, self.view, watch=self._watch, history=self._history)
        if not isinstance(thing, Engine) or is_blank(thing):
            return _trouble_rows(troubles, width), sections
        lead = users_sections(thing, self.view)
        if lead and not self._topic.old:
            return self._lead_rows(thing, lead, troubles, snapshot, width, height), sections
        return _trouble_rows(troubles, width), [*lead, *sections]

    def _lead_rows(
        self,
        engine: Engine,
        lead: Sequence[Section],
        troubles: Sequence[Section],
        snapshot: Snapshot,
        width: int,
        height: int,
    ) -> list[Row]:
        """The first lines of an engine's page: faults, what its users got, charts, and what limits it.

        Faults and limits have their place beside the others where the screen is wide."""
        charts = self._chart_rows(engine_keys(engine.key), snapshot, width, engine_plan(width, height))
        if width >= TWO_COLUMNS_WIDTH:
            beside = [section._replace(side=1) for section in troubles]
            return [*lay_out([*lead, *beside], width), *charts, ()]
        faults = [section for section in troubles if section.title == FAULTS_TITLE]
        limits = [section for section in troubles if section.title != FAULTS_TITLE]
        return [*_trouble_rows(faults, width), *lay_out(lead, width), *charts, (), *_trouble_rows(limits, width)]

    def _folded_rows(self, sections: Sequence[Section], width: int) -> Sequence[Row]:
        """The titles of the sections that are folded, and the key that unfolds them."""
        titles = ", ".join(section.title for section in sections)
        key = self.view.keymap.first("detail.unfold")
        lines = folded_text(f"{titles}, roofline", width - _FOLDED_INDENT)
        return [
            ((f" more: {key}", "accent"), (", each figure with its source and formula", "muted")),
            *(((" " * _FOLDED_INDENT + line, "muted"),) for line in lines),
        ]

    def take_key(self, key: str, character: str | None = None) -> bool:  # noqa: ARG002 - the signature of Pane
        """Unfold, or fold again, all figures."""
        if keys_of_scope(self.view.keymap, "detail").get(key) != "detail.unfold":
            return False
        self.toggle_fold()
        return True

    def toggle_fold(self) -> None:
        """Show all figures, or fold again those that are read by those alone who look for them."""
        self.unfolded = not self.unfolded
        self._layout = None
        self.update()
        self.post_message(KeysChanged())

    def find(self, text: str) -> None:
        """Search in all figures: while a search is open nothing is folded."""
        if bool(text) is not bool(self.search.text):
            self._layout = None
        super().find(text)

    def _roofline_rows(self, snapshot: Snapshot, width: int) -> list[Row]:
        """The roofline of an engine that answers and generates tokens."""
        from gpumon.tui.roofline import roofline_rows

        thing = self._topic.figures
        if not isinstance(thing, Engine) or is_blank(thing):
            return []
        if service_shown(thing) is not Service.GENERATION:
            return []
        size = (width, _ROOFLINE_LINES)
        roofline = roofline_rows([thing], self._history, snapshot.wall_s, size, self.palette.glyphs)
        return [(), ((" roofline", "strong"),), *roofline]


def _trouble_rows(troubles: Sequence[Section], width: int) -> list[Row]:
    """The sections on what is wrong with a thing, and a blank line; nothing where all is well."""
    if not troubles:
        return []
    return [*lay_out(troubles, min(width, _TROUBLE_WIDTH)), ()]


def _empty_topic(thing: ShownKey) -> Topic:
    """A thing of which nothing was seen yet."""
    return Topic(thing, now=None, figures=None, figures_wall_s=0.0, gone_wall_s=0.0)


def _extend_trail(trail: Sequence[ShownKey], thing: ShownKey) -> list[ShownKey]:
    """The trail with a thing at its end; cut behind it where it is on the trail, so that going round adds nothing."""
    if thing in trail:
        return [*trail[: trail.index(thing) + 1]]
    return [*trail, thing]


def _cut_row(row: Row, width: int) -> Row:
    """The row in at most `width` cells."""
    pieces: list[Piece] = []
    for text, tone in row:
        short_text = cut(text, width)
        width -= cells(short_text)
        pieces.append((short_text, tone))
    return tuple(pieces)

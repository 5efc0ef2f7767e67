"""The detail page: every figure of one GPU, engine, process or verdict, and where it comes from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from gpumon.efficiency.service import Service
from gpumon.readings.format import cells, cut
from gpumon.readings.history import History
from gpumon.readings.snapshot import Engine, Gpu, Snapshot, Verdict
from gpumon.tui.charts.grid import Style
from gpumon.tui.detail import verdict
from gpumon.tui.detail.blocks import Heights, Section, is_at_place, lay_out
from gpumon.tui.detail.gpu import ThrottleWatch
from gpumon.tui.detail.sections import sections_of
from gpumon.tui.detail.state import Topic, head_lines, trouble_sections
from gpumon.tui.detail.things import ShownKey, is_blank, linked_page, page_title, things_of_kind
from gpumon.tui.levels import levels_in
from gpumon.tui.line import Piece, Row
from gpumon.tui.palette import Palette
from gpumon.tui.search import selected_row
from gpumon.tui.services import service_shown
from gpumon.tui.view import View
from gpumon.tui.widgets.pane import Pane

_NOTHING: ShownKey = ("", "")
_ROOFLINE_LINES = 28
"""Lines of the roofline on an engine's page."""


class DetailPage(Pane):
    """Follows its thing from snapshot to snapshot; keeps the last figures of one that is gone."""

    ZOOMS: ClassVar[bool] = False

    def __init__(self, palette: Palette, view: View) -> None:
        super().__init__(palette, view)
        self._topic = Topic(_NOTHING, None, None, 0.0, 0.0)
        self._watch: ThrottleWatch | None = None
        self._name = ""
        """Its title, as it was there last."""
        self._history: History | None = None
        self._charts = verdict.EvidenceCharts()
        self._keys_in: Callable[[str], Sequence[str]] = lambda _: ()
        self._trail: list[ShownKey] = []
        """Things shown before, for the way back."""
        self._laid_out: tuple[Snapshot | None, int, list[Row]] = (None, 0, [])
        self._place = ""
        """The figure or section that the page was opened at."""
        self._goes_to_place = False
        """Whether it has to come into view at the next paint."""
        self._heights: tuple[int, Heights] = (0, {})
        """For one width: lines that the entries took so far."""

    @property
    def thing(self) -> ShownKey:
        """The thing shown."""
        return self._topic.key

    def look_at(self, thing: ShownKey, keys_in: Callable[[str], Sequence[str]] = lambda _: ()) -> None:
        """Show another thing: its kind (gpu, engine, process, verdict) and its key (UUID, URL, pid, `verdict_key`).

        `keys_in`: the keys of all things of a kind as their list shows them, for the way from one to the next.
        """
        self._keys_in = keys_in
        if not self.display:
            self._trail = []
        elif self._topic.key not in (_NOTHING, thing):
            self._trail = _way(_way(self._trail, self._topic.key), thing)[:-1]
        self._turn_to(thing)

    def read_from(self, history: History) -> None:
        """Charts of other series."""
        self._history = history
        self._laid_out = (None, 0, [])

    def prepare_for_jump(self) -> None:
        """Carry nothing over: the snapshots seen before may be later than those that come."""
        self._topic = Topic(self._topic.key, None, None, 0.0, 0.0)
        self._watch = None

    def _turn_to(self, thing: ShownKey) -> None:
        self._topic = Topic(thing, None, None, 0.0, 0.0)
        self._watch = None
        self._place = ""
        self._name = ""
        self._heights = (0, {})
        self._top = 0
        if self.snapshot is not None:
            self._follow(self.snapshot)
        self.update()

    def show(self, snapshot: Snapshot) -> None:
        """Follow the thing while it is looked at."""
        if self.display:
            self._follow(snapshot)
        super().show(snapshot)

    def _follow(self, snapshot: Snapshot) -> None:
        """Take the thing as a snapshot has it; figures that it has no longer stay, with their time."""
        self._laid_out = (None, 0, [])
        before = self._topic
        now = things_of_kind(snapshot, before.key[0]).get(before.key[1])
        if now is None:
            self._topic = before._replace(now=None, gone_wall_s=before.gone_wall_s or snapshot.wall_s)
            return
        if is_blank(now) and before.figures is not None and not is_blank(before.figures):
            self._topic = before._replace(now=now, gone_wall_s=0.0)
            return
        age_s = 0.0
        if isinstance(now, Gpu | Engine):
            age_s = now.age_s
        self._topic = Topic(before.key, now, now, snapshot.wall_s - age_s, 0.0)
        if isinstance(now, Gpu) and not is_blank(now):
            if self._watch is None:
                self._watch = ThrottleWatch(now.throttle_s)
            self._watch = self._watch.follow(now.throttle_s, self._topic.figures_wall_s)

    def forget(self) -> None:
        """Units or levels are others now."""
        self._laid_out = (None, 0, [])
        super().forget()

    def title(self) -> str:
        """Name of the thing shown."""
        thing = self._topic.now or self._topic.figures
        if thing is not None or not self._name:
            self._name = page_title(self._topic.key, thing)
        return self._name

    def note(self) -> str:
        """Which of its list it is, and where Enter goes."""
        if self.snapshot is None:
            return ""
        names = self._names(self.snapshot)
        parts = []
        if self._topic.key[1] in names and len(names) > 1:
            parts.append(f"{names.index(self._topic.key[1]) + 1}/{len(names)}")
        name = self._link()
        if name:
            parts.append(f"{self.view.keymap.first('open')}: {name}")
        return " · ".join(parts)

    def _link(self) -> str:
        """Name of the page that Enter goes on to: `gpu 3`, `engine vllm:8000`; empty where there is none."""
        other = self.open()
        if other is None or self.snapshot is None:
            return ""
        return page_title(other, things_of_kind(self.snapshot, other[0]).get(other[1])).partition(" · ")[0]

    @property
    def opens_here(self) -> bool:
        """Whether the match that a search is at is the name of the page which Enter goes on to."""
        return not self.search.text or self.search.stands_on(self._link().removeprefix("engine "))

    def open(self) -> ShownKey | None:
        """Enter goes on to what it runs on, or what runs on it."""
        if self.snapshot is None:
            return None
        return linked_page(self.snapshot, self._topic.now or self._topic.figures)

    def back(self) -> bool:
        """Back to what was looked at before."""
        if not self._trail:
            return False
        self._turn_to(self._trail.pop())
        return True

    def point_to(self, place: str) -> None:
        """Show and mark the figure of this name, or the section of this title."""
        self._place = place
        self._goes_to_place = True
        self.update()

    def in_view(self, width: int, room: int) -> tuple[Sequence[Row], int]:
        """The lines in view, with the one that the page was opened at marked."""
        if not self._place:
            return super().in_view(width, room)
        line = next((place for place, row in enumerate(self.body(width, room)) if is_at_place(row, self._place)), -1)
        if self._goes_to_place and line >= 0:
            self._goes_to_place = False
            self._top = max(0, line - 1)
        rows, total = super().in_view(width, room)
        place = line - self._top
        if line >= 0 and 0 <= place < len(rows):
            rows = [*rows[:place], selected_row(rows[place]), *rows[place + 1 :]]
        return rows, total

    def step_aside(self, step: int) -> bool:
        """Go to the next (1) or previous (-1) thing of the same list; returns whether there is another one."""
        if self.snapshot is None:
            return False
        kind, key = self._topic.key
        names = self._names(self.snapshot)
        if not [name for name in names if name != key]:
            return False
        if key in names:
            place = names.index(key) + step
        else:
            place = 0
        self._turn_to((kind, names[place % len(names)]))
        return True

    def _names(self, snapshot: Snapshot) -> Sequence[str]:
        """The keys of its list as it is shown; of all things of its kind where the list leaves it out."""
        kind, key = self._topic.key
        shown = self._keys_in(kind)
        if key in shown:
            return shown
        return list(things_of_kind(snapshot, kind))

    def head(self, width: int) -> Sequence[Row]:
        """State, age and since when."""
        if self.snapshot is None:
            return ()
        result = []
        for row in head_lines(self._topic, self.snapshot, self.view.levels):
            result.append(_within(row, width))
        return result

    def body(self, width: int, height: int) -> Sequence[Row]:
        """All figures, set once per snapshot and width, and the charts of a verdict."""
        snapshot, laid_width, rows = self._laid_out
        if snapshot is None or snapshot is not self.snapshot or laid_width != width:
            if self.snapshot is None:
                return ()
            rows = self._rows_of(self.snapshot, width)
            self._laid_out = (self.snapshot, width, rows)
        if isinstance(self._topic.figures, Verdict):
            return [*rows, *self._evidence(width, height - len(rows))]
        return rows

    def _evidence(self, width: int, room: int) -> Sequence[Row]:
        snapshot = self.snapshot
        about = self._topic.figures
        if self._history is None or snapshot is None or not isinstance(about, Verdict):
            return ()
        style = Style(self.view.config.screen.span_s, self.palette.glyphs, levels_in(self.view))
        place = verdict.ChartPlace(width, room, style)
        return self._charts.rows(about, self._history, snapshot.wall_s, self.moment, place)

    def _rows_of(self, snapshot: Snapshot, width: int) -> list[Row]:
        wrong = trouble_sections(self._topic, snapshot, self.view.levels)
        if wrong:
            rows = lay_out(wrong, min(width, 139))
        else:
            rows = []
        if rows:
            rows.append(())
        if self._heights[0] != width:
            self._heights = (width, {})
        rows += lay_out(self._sections(snapshot), width, old=self._topic.old, heights=self._heights[1])
        return rows + self._roofline(snapshot, width)

    def _roofline(self, snapshot: Snapshot, width: int) -> list[Row]:
        """The roofline of an engine that answers and generates tokens, where there is room for it."""
        from gpumon.tui.roofline import LEAST_ROOFLINE_WIDTH, roofline_rows

        thing = self._topic.figures
        if not isinstance(thing, Engine) or is_blank(thing) or width < LEAST_ROOFLINE_WIDTH:
            return []
        if service_shown(thing) is not Service.GENERATION:
            return []
        size = (width, _ROOFLINE_LINES)
        picture = roofline_rows([thing], self._history, snapshot.wall_s, size, self.palette.glyphs)
        return [(), ((" roofline", "strong"),), *picture]

    def _sections(self, snapshot: Snapshot) -> list[Section]:
        thing = self._topic.figures
        if thing is None:
            return []
        return sections_of(thing, snapshot, self.view, watch=self._watch, history=self._history)


def _way(trail: Sequence[ShownKey], thing: ShownKey) -> list[ShownKey]:
    """The trail up to a thing: back to where it was looked at before, so that going round makes it no longer."""
    if thing in trail:
        return [*trail[: trail.index(thing) + 1]]
    return [*trail, thing]


def _within(row: Row, width: int) -> Row:
    """The row in so many cells; what does not fit is cut."""
    pieces: list[Piece] = []
    for text, tone in row:
        shown = cut(text, width)
        width -= cells(shown)
        pieces.append((shown, tone))
    return tuple(pieces)

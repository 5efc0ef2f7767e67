"""The history pane: charts of the last minutes or hours on one time axis, or one of them alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Final

from textual import events

from gpumon.readings.format import cells, counted, period
from gpumon.readings.history import History
from gpumon.readings.snapshot import Event, Snapshot
from gpumon.tui.charts.areas import Areas
from gpumon.tui.charts.curves import CHARTS, SPARKS, Figures
from gpumon.tui.charts.series import SPANS_S
from gpumon.tui.charts.single import Single
from gpumon.tui.charts.sparks import Sparks
from gpumon.tui.line import Row
from gpumon.tui.palette import Palette
from gpumon.tui.triage_words import legend
from gpumon.tui.view import View
from gpumon.tui.widgets.pane import Pane, wrapped

_AREAS_FROM: Final = 10
"""Lines from which there are areas and not sparks."""
_AREAS_TO: Final = 7
"""Lines down to which they stay areas: as few as rows of the triage pane leave that are not urgent."""
_ROOMY: Final = 120
"""Cells of a rule that has room for what the glyphs of the events mean."""
_KEYS: Final = frozenset(curve.key for curve in SPARKS)
_SETTLED_S: Final = 30.0
"""Seconds after which a series without a value is not just late."""


class HistoryPane(Pane):
    """Areas under one time axis, sparks where there are few lines, or one chart alone."""

    KEY: ClassVar[str] = "pane.history"
    TITLE: ClassVar[str] = "history"

    def __init__(self, palette: Palette, view: View, history: History) -> None:
        super().__init__(palette, view)
        self._history = history
        self._figures = Figures(history)
        self._configured_s = view.config.screen.span_s
        self.span_s = self._configured_s
        """Seconds that the charts go back."""
        self.cursor = 0
        """The chosen chart: its place in `CHARTS`."""
        self.opened = False
        """Whether the chosen chart has the pane to itself."""
        self._charts: Areas | Sparks | Single | None = None
        self._built: tuple[object, ...] = ()
        self._first = 0
        self._seen: set[str] = set()
        self.filling = False
        """Whether the past of the charts is still being read."""
        self._first_s = math.inf
        self.calm_lines = 0
        """Lines that it would have if nothing but what is urgent stood in the triage pane: they choose the charts, so
        that what comes and goes there does not."""
        self._focused_before = False
        """Whether the pane had the focus when the mouse button went down."""

    def read_from(self, history: History) -> None:
        """Charts of other series."""
        self._history, self._figures, self._charts = history, Figures(history), None

    def show(self, snapshot: Snapshot) -> None:
        """Paint the history up to a snapshot."""
        self._figures.of(snapshot)
        super().show(snapshot)

    def step_span(self, step: int) -> None:
        """Go to the next longer (1) or shorter (-1) span."""
        others = [span_s for span_s in SPANS_S if (span_s - self.span_s) * step > 0.0]
        if others:
            self.span_s = min(others) if step > 0 else max(others)
            self.update()

    def move(self, lines: int) -> None:
        """Choose another chart."""
        order = self._charts.order if isinstance(self._charts, Areas | Sparks) else range(len(CHARTS))
        place = list(order).index(self.cursor) + lines
        self.cursor = order[max(0, min(len(order) - 1, place))]
        self.update()

    def page(self) -> int:
        """Charts that a page key moves by."""
        return 4

    def open(self) -> None:
        """Give the chosen chart the pane to itself."""
        self.opened = True
        self.update()

    def back(self) -> bool:
        """All charts again."""
        was, self.opened = self.opened, False
        self.update()
        return was

    def watch_has_focus(self, has_focus: bool) -> None:
        """Show the first charts again once another pane has the focus; a page or the drawer gives it back."""
        super().watch_has_focus(has_focus)
        if not has_focus and not self.opened and self.is_mounted:
            taken = self.screen.focused
            if isinstance(taken, Pane) and taken.KEY and taken is not self:
                self.cursor = self._first = 0
                self.update()

    def focus_on_click(self) -> bool:
        """Asked at mouse-down, before the click gives the pane the focus."""
        self._focused_before = self.has_focus
        return super().focus_on_click()

    def on_click(self, event: events.Click) -> None:
        """A click chooses a chart; a click on the chosen one opens it, where the pane had the focus already."""
        if isinstance(self._charts, Areas | Sparks):
            chart = self._charts.at(event.x, event.y - 1)
            self.opened = chart is not None and chart == self.cursor and self._focused_before
            self.cursor = self.cursor if chart is None else chart
            self.update()

    @property
    def scrolls(self) -> bool:
        """Whether there are charts to move to."""
        return True

    def title(self) -> str:
        """The pane, or the chart that it shows."""
        return f"{self.TITLE} · {CHARTS[self.cursor].name}" if self.opened else self.TITLE

    def note(self) -> str:
        """The span and the keys that change it, and what found no place; the most telling first where room is short."""
        charts = self._charts
        if charts is None:
            return ""
        key = self.view.keymap.first
        span = f"last {period(charts.grid.span_s)}"
        keys = f"{key('span.shorter')} {key('span.longer')}".strip()
        parts = [(2, f"{span} ({keys})" if keys else span)]
        if self.filling:
            parts.insert(0, (-1, "loading the past …"))
        if charts.left_out:
            how = f"{key('down')} {key('up')}" if self.has_focus else f"keys {key(self.KEY)} {key('zoom')}"
            left_out = (
                f"{counted(charts.left_out, 'GPU')}: taller window" if self.opened else f"{charts.left_out} more: {how}"
            )
            parts.insert(0, (0, left_out))
        if self.has_focus:
            parts.append((1, f"{key('back')}: all charts" if self.opened else f"{key('open')}: one chart"))
        marks = self._marks() if self.has_focus or self.size.width >= _ROOMY else ""
        if marks and self.has_focus:
            parts.append((4, marks))
        parts.append((3, f"{period(charts.grid.column_s)} a column"))
        if marks and not self.has_focus:
            parts.append((4, marks))
        room = max(self.note_room, cells(parts[0][1]))
        fitting: list[tuple[int, str]] = []
        for part in parts:
            if sum(cells(text) + 3 for _, text in [*fitting, part]) - 3 <= room:
                fitting.append(part)
        return " · ".join(text for _, text in sorted(fitting))

    def _marks(self) -> str:
        """What the glyphs of the events mean."""
        return legend(self._happened(self.snapshot), self.palette.glyphs) if self.snapshot is not None else ""

    def body(self, width: int, height: int) -> Sequence[Row]:
        """The charts."""
        snapshot = self.snapshot
        if snapshot is None:
            return wrapped("starting …", width, "muted")
        if height < 1:
            return ()
        if self._configured_s != self.view.config.screen.span_s:
            self._configured_s = self.span_s = self.view.config.screen.span_s
        charts = self._fitting(snapshot, width, height)
        if not snapshot.gpus and not snapshot.engines and not self._seen:
            return wrapped("nothing to chart: there is no GPU and no engine", width, "muted")
        if isinstance(charts, Single):
            return charts.rows(snapshot.wall_s, self._figures)
        return charts.rows(snapshot.wall_s, self._figures, self.cursor if self.has_focus else None)

    def _fitting(self, snapshot: Snapshot, width: int, height: int) -> Areas | Sparks | Single:
        """The charts for this size, the same ones as long as nothing but time changes."""
        empty = self._empty(snapshot)
        gpus = tuple(gpu.index for gpu in snapshot.gpus if not gpu.parent_uuid) if self.opened else ()
        known = len(self._history.keys()) if self.opened else 0
        glyphs = self.palette.glyphs
        lane = bool(self._happened(snapshot))
        areas = height >= _AREAS_TO and max(height, self.calm_lines - 1) >= _AREAS_FROM
        kind = (areas, self.zoomed, self.opened)
        wanted = (width, height, self.span_s, kind, empty, glyphs, self.cursor, gpus, known, lane)
        if self._charts is None or self._built != wanted:
            self._built = wanted
            self._charts = self._made(width, height, empty, gpus, areas=areas, lane=lane)
            if not isinstance(self._charts, Single):
                self._first = self._charts.first
        return self._charts

    def _made(
        self, width: int, height: int, empty: frozenset[str], gpus: tuple[int, ...], *, areas: bool, lane: bool
    ) -> Areas | Sparks | Single:
        size, glyphs = (width, height, self.span_s), self.palette.glyphs
        if self.opened:
            return Single(self._history, self.cursor, *size, glyphs=glyphs, gpus=gpus, lane=lane)
        place = {"cursor": self.cursor, "first": self._first}
        if not areas:
            return Sparks(self._history, *size, glyphs=glyphs, empty=empty, lane=lane, **place)
        least = 2 if self.zoomed else 3
        return Areas(self._history, *size, glyphs=glyphs, least=least, empty=empty, lane=lane, **place)

    def _happened(self, snapshot: Snapshot) -> Sequence[Event]:
        """Events in the time that is charted, oldest first."""
        return self._history.events(snapshot.wall_s - self.span_s, snapshot.wall_s)

    def _empty(self, snapshot: Snapshot) -> frozenset[str]:
        """Series that never had a value. With GPUs there is none at first: most figures come within seconds."""
        now_s = snapshot.wall_s
        self._first_s = min(self._first_s, now_s)
        self._seen |= {key for key in _KEYS - self._seen if not math.isnan(self._history.latest(key, now_s))}
        return frozenset() if snapshot.gpus and now_s < self._first_s + _SETTLED_S else _KEYS - self._seen

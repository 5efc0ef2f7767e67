"""The history pane: charts of the last minutes or hours on one time axis, or one of them alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from textual import events

from gpumon.config.validate import with_setting
from gpumon.figures.charted import CHARTED, SERIES_OF
from gpumon.figures.gpu import SHARES_OF_PEAKS
from gpumon.readings.flat import value_of
from gpumon.readings.format import cells, period
from gpumon.readings.history import History
from gpumon.readings.snapshot import Engine, Snapshot
from gpumon.tui.charts.curves import CHARTS, OF_ENGINES, SPARKS, Chart, CurveTexts, parts_of, with_data
from gpumon.tui.charts.grid import Charts, Style
from gpumon.tui.charts.series import SPANS_S
from gpumon.tui.levels import levels_in
from gpumon.tui.line import Row, wrap_line
from gpumon.tui.palette import Palette
from gpumon.tui.table import is_lasting
from gpumon.tui.triage_words import glyph_legend
from gpumon.tui.view import View
from gpumon.tui.widgets.pane import SEPARATOR, Pane

if TYPE_CHECKING:
    from gpumon.sizing.doubled_batch import DoubledBatch
    from gpumon.specs.gpu import GpuSpec

_LEAST_AREAS_HEIGHT: Final = 7
"""Lines of the pane from which there are areas and not sparks."""
_LEAST_AREA_LINES: Final = 3
"""Lines of an area, at least, with its legend."""
_LEAST_SPARK_LINES: Final = 1
"""Lines of a spark."""
_LEAST_OPENED_LINES: Final = 2
"""Lines of the chart that has the pane to itself, at least: with fewer it is a spark."""
_PARTS_SHARE: Final = 0.5
"""Share of a zoomed pane that the same chart of each GPU or engine may take."""
_PARTS_ACROSS: Final = 4
"""Charts of single things side by side, at most."""
_PART_WIDTH: Final = 38
"""Cells of a chart of a single thing, at least."""
_PAGE: Final = 4
"""Charts that a page key moves by."""
_LINES_OF_PARTS: Final = ((30, 4), (16, 3))
"""Lines of the pane -> lines of each row of charts of single things from there on; below, each has one line."""
_ROOMY_WIDTH: Final = 120
"""Cells of a rule that has room for what the glyphs of the events mean."""
_ALL_SERIES: Final = frozenset(curve.key for curve in SPARKS)
"""Keys of the series that are charted."""
_SINGLE_CURVES: Final = tuple(Chart((curve,)) for curve in SPARKS)
"""The charts as they are where each has one line."""
_SHARES_OF_PEAKS: Final = frozenset(SERIES_OF[field] for field in SHARES_OF_PEAKS)
"""Series of engines that need a GPU."""
_GROWING_S: Final = (30.0, 60.0, 120.0, 180.0, 300.0)
"""Spans that the charts grow through from the first reading on: each step draws all of them anew, so they are few.
Whoever chooses a longer span wants to see where the past begins."""
_LATE_S: Final = 30.0
"""Seconds after the first snapshot for which engines may be late with their figures: their charts keep their places."""
_NOTHING: Final = "nothing to chart: there is no GPU and no engine; gpumon demo shows a simulated server"
"""In place of the charts of a host that has nothing to monitor."""


class _NotePlace(IntEnum):
    """The parts of the note, in the order in which they stand on the rule."""

    LOADING = 0
    LEFT_OUT = 1
    WAY = 2
    SPAN = 3
    BASIS = 4
    COLUMN = 5
    GLYPHS = 6


class _NotePart(NamedTuple):
    """A part of the note on the rule."""

    place: _NotePlace
    text: str


class Shows(Enum):
    """Contents of the pane."""

    CHARTS = "charts"
    ROOFLINE = "roofline"
    MAP = "map of GPUs"


class HistoryPane(Pane):
    """Areas over one time axis, or sparks where there are few lines; zoomed, or with one chart alone, the chosen
    chart of each GPU or engine stands below."""

    command: str = "pane.history"
    heading: str = "history"
    AWAITS_LAYOUT = True

    def __init__(
        self, palette: Palette, view: View, history: History, find_gpu: Callable[[str], GpuSpec | None] = lambda _: None
    ) -> None:
        """`find_gpu`: the entry of a type of GPU in the catalogue."""
        super().__init__(palette, view)
        self._find_gpu = find_gpu
        self._history = history
        self._texts = CurveTexts(history)
        self.cursor = 0
        """Place of the chosen chart among those that there are."""
        self.opened = False
        """Whether the chosen chart has the pane to itself."""
        self.shows = Shows.CHARTS
        """Contents of the pane now."""
        self._chosen_gpu = ""
        """UUID of the GPU that is chosen on the map; empty: the first."""
        self._chosen_engine = ""
        """Key of the engine that is chosen on the roofline; empty: the first."""
        self._doubled: tuple[Engine, DoubledBatch | str] | None = None
        """The engine of the roofline that was looked at last, and it at twice its batch, or why that is not known."""
        self._charts: Charts | None = None
        """The charts, or the one that has the pane to itself."""
        self._parts: Charts | None = None
        """The charts of single GPUs or engines below the others."""
        self._charts_inputs: tuple[object, ...] = ()
        """All that the charts were made of: while it is equal, so are they."""
        self._first_chart = 0
        """Place of the first chart in view."""
        self._shows_sparks = False
        """Whether there are sparks and not areas."""
        self._ever_seen: set[str] = set()
        """Series that ever had a value: their charts stay for the session."""
        self._drawn_series: frozenset[str] = frozenset()
        """Series whose charts are drawn."""
        self.is_past_loading = False
        """Whether the past of the charts is still being read."""
        self._first_shown_s = math.inf
        """Unix time of the first snapshot that was shown."""
        self._focused_before = False
        """Whether the pane had the focus when the mouse button went down."""

    def read_from(self, history: History) -> None:
        """Take the series of the charts from another history."""
        self._texts = CurveTexts(history)
        self._history = history
        self._charts = None

    def show(self, snapshot: Snapshot) -> None:
        """Paint the history up to a snapshot."""
        self._texts.read(snapshot)
        self._update_drawn_series(snapshot)
        super().show(snapshot)

    @property
    def span_s(self) -> float:
        """Seconds that the charts may go back, of the settings."""
        return self.view.config.screen.span_s

    @property
    def charted_s(self) -> float:
        """Seconds that the charts go back now: the chosen span, or the shortest that holds all there is so far."""
        if self.snapshot is None or self.span_s > _GROWING_S[-1]:
            return self.span_s
        kept_s = self.snapshot.wall_s - self._history.first_s
        long_enough_s = [span_s for span_s in _GROWING_S if span_s >= kept_s]
        return min([self.span_s, *long_enough_s])

    def step_span(self, step: int) -> None:
        """Go to the next longer (1) or shorter (-1) span, in the settings: nothing else says how far charts go back."""
        chosen_s = self.span_s
        spans_s = [span_s for span_s in SPANS_S if (span_s - chosen_s) * step > 0.0]  # those in that direction
        next_s = min(spans_s, key=lambda span_s: abs(span_s - chosen_s), default=chosen_s)
        self.view.config = with_setting(self.view.config, "screen", "span_s", next_s)
        self.update()

    def move(self, lines: int) -> None:
        """Choose the chart, the GPU or the engine that is so many places on."""
        if self.shows is Shows.MAP:
            self._chosen_gpu = self._key_at(self._place_on_picture() + lines)
        elif self.shows is Shows.ROOFLINE:
            self._chosen_engine = self._key_at(self._place_on_picture() + lines)
        else:
            last = len(self._available_charts()) - 1
            self.cursor = max(0, min(last, self.cursor + lines))
        self.update()

    def _keys_on_picture(self) -> Sequence[str]:
        """Keys of the GPUs of the map, or of the engines of the roofline."""
        if self.snapshot is None:
            return ()
        if self.shows is Shows.MAP:
            from gpumon.tui.activity_map import gpus_on_map

            return [gpu.reading.uuid for gpu in gpus_on_map(self.snapshot)]
        return [engine.key for engine in self.snapshot.engines]

    def _key_at(self, place: int) -> str:
        """The key at a place of the picture's list, or at the nearest one; empty where it has none."""
        keys = self._keys_on_picture()
        if not keys:
            return ""
        return keys[max(0, min(len(keys) - 1, place))]

    def _place_on_picture(self) -> int:
        """The place of what is chosen in the picture's list."""
        keys = self._keys_on_picture()
        chosen = self._chosen_gpu if self.shows is Shows.MAP else self._chosen_engine
        return keys.index(chosen) if chosen in keys else 0

    def step_sideways(self, step: int) -> bool:
        """Choose the GPU or the engine before or behind; while the display is paused the keys move in time."""
        if self.shows is Shows.CHARTS or self.paused:
            return super().step_sideways(step)
        self.move(step)
        return True

    def _available_charts(self) -> list[Chart]:
        """The charts that have data, in order; all of them as long as none has."""
        charts = _SINGLE_CURVES if self._shows_sparks and not self.opened else CHARTS
        return with_data(charts, self._drawn_series) or list(charts)

    def _update_drawn_series(self, snapshot: Snapshot) -> None:
        """Take note of which series have data by now; the chosen chart stays the chosen one among their charts."""
        series = self._series_to_draw(snapshot)
        if series == self._drawn_series:
            return
        chosen = {curve.key for curve in self._chosen_chart().curves}
        self._drawn_series = series
        if self.has_focus or self.opened:
            self.cursor = 0
            for place, chart in enumerate(self._available_charts()):
                if chosen.intersection(curve.key for curve in chart.curves):
                    self.cursor = place
                    break

    def _series_to_draw(self, snapshot: Snapshot) -> frozenset[str]:
        """Series that ever had a value, and at first those that engines will soon have."""
        for key in _ALL_SERIES - self._ever_seen:
            if self._history.has_values(key):
                self._ever_seen.add(key)
        self._first_shown_s = min(self._first_shown_s, snapshot.wall_s)
        if not snapshot.engines or snapshot.wall_s >= self._first_shown_s + _LATE_S:
            return frozenset(self._ever_seen)
        late_series = {key for key in OF_ENGINES if _may_come(key, snapshot.engines)}
        if not snapshot.gpus:
            late_series -= _SHARES_OF_PEAKS
        return frozenset(self._ever_seen | late_series)

    def page_step(self) -> int:
        """Charts that a page key moves by."""
        return _PAGE

    def open(self) -> None:
        """Give the chosen chart the pane to itself; turn from the roofline to the map, and back."""
        if self.shows is Shows.CHARTS:
            self.opened = True
        elif self.other_picture is not None:
            self.shows = self.other_picture
        self.update()

    def back(self) -> bool:
        """Show all charts again; returns whether one had the pane to itself."""
        was_opened = self.opened
        self.opened = False
        self.update()
        return was_opened

    def picture_is_next(self, lines: int) -> bool:
        """Whether a step leads from the last chart to the roofline or the map, or from there to the charts."""
        if self.shows is not Shows.CHARTS:
            return lines < 0 and self._place_on_picture() == 0
        at_last = self.cursor == len(self._available_charts()) - 1
        return lines > 0 and at_last and not self.opened and self.first_picture is not None

    @property
    def first_picture(self) -> Shows | None:
        """The picture that comes first: the roofline where an engine has a place on it, else the map; None where
        there is neither an engine nor a GPU."""
        from gpumon.efficiency.roofline import roofline_point

        snapshot = self.snapshot
        if snapshot is None:
            return None
        if any(roofline_point(engine).missing is None for engine in snapshot.engines):
            return Shows.ROOFLINE
        if snapshot.gpus:
            return Shows.MAP
        return Shows.ROOFLINE if snapshot.engines else None

    @property
    def other_picture(self) -> Shows | None:
        """The picture that takes the place of this one: the map, or the roofline; None where there is only one."""
        snapshot = self.snapshot
        if snapshot is None or not snapshot.engines or not snapshot.gpus:
            return None
        return Shows.MAP if self.shows is Shows.ROOFLINE else Shows.ROOFLINE

    def turn_picture(self) -> None:
        """Show the roofline, or the map, in the place of the charts; or the charts again."""
        if self.shows is Shows.CHARTS:
            self.shows = self.first_picture or Shows.MAP
        else:
            self.shows = Shows.CHARTS
        self.update()

    def watch_has_focus(self, has_focus: bool) -> None:
        """Show the first charts again once another pane has the focus; a page or a question will give it back, so that
        they change nothing."""
        super().watch_has_focus(has_focus)
        if not has_focus and not self.opened and self.is_mounted:
            focused = self.screen.focused
            if isinstance(focused, Pane) and focused.command and focused is not self:
                self.cursor = 0
                self._first_chart = 0
                self.update()

    def focus_on_click(self) -> bool:
        """Note whether the pane has the focus: Textual asks at mouse-down, before the click gives it."""
        self._focused_before = self.has_focus
        return super().focus_on_click()

    def on_click(self, event: events.Click) -> None:
        """A click chooses a chart; a click on the chosen one opens it, where the pane had the focus already."""
        if self._charts is not None and not self.opened:
            chart = self._charts.chart_at(event.x, event.y - 1)
            self.opened = chart is not None and chart == self.cursor and self._focused_before
            if chart is not None:
                self.cursor = chart
            self.update()

    @property
    def scrolls(self) -> bool:
        """Whether there are charts to move to."""
        return True

    def title(self) -> str:
        """The name of the pane, and of the one chart that it shows."""
        if self.shows is not Shows.CHARTS:
            return f"{self.heading} · {self.shows.value}"
        if self.opened:
            return f"{self.heading} · {self._chosen_chart().name}"
        return self.heading

    def _chosen_chart(self) -> Chart:
        """The chart that the cursor is on."""
        charts = self._available_charts()
        return charts[min(self.cursor, len(charts) - 1)]

    def note(self, room: int) -> str:
        """The span and the keys that change it, and what found no place; the most telling first where room is short."""
        charts = self._charts
        if self.shows is not Shows.CHARTS:
            return self._note_of_picture(room) if self.has_focus else ""
        if charts is None or self.size.height == 1:  # the title alone says by which keys to get here
            return ""
        parts = self._parts_of_note(charts)
        most_cells = max(room, cells(parts[0].text))
        fitting: list[_NotePart] = []
        for part in parts:
            if cells(SEPARATOR.join([text for _, text in [*fitting, part]])) <= most_cells:
                fitting.append(part)
        return SEPARATOR.join([text for _, text in sorted(fitting)])

    def _note_of_picture(self, room: int) -> str:
        """The keys that turn to the other picture, that lead back, and that choose, as far as `room` goes."""
        key = self.view.keymap.first
        parts = []
        if self.other_picture is not None:
            parts.append(f"{key('open')}: {self.other_picture.value}")
        parts.append(f"{key('back')}: charts")
        if len(self._keys_on_picture()) > 1:
            thing = "GPU" if self.shows is Shows.MAP else "engine"
            parts.append(f"{key('up')} {key('down')}: {thing}")
        while len(parts) > 1 and cells(SEPARATOR.join(parts)) > room:
            parts.pop()
        return SEPARATOR.join(parts)

    def _parts_of_note(self, charts: Charts) -> list[_NotePart]:
        """The parts of the note, the most telling first."""
        key = self.view.keymap.first
        column = _NotePart(_NotePlace.COLUMN, f"{period(charts.grid.column_s)} a column")
        glyphs = _NotePart(_NotePlace.GLYPHS, self._legend_of_events())
        parts: list[_NotePart] = []
        if charts.left_out:
            if self.has_focus:
                keys = f"{key('down')} {key('up')}"
            elif not self.command:
                keys = "a taller window"
            else:
                keys = f"keys {key(self.command)} {key('zoom')}"
            parts.append(_NotePart(_NotePlace.LEFT_OUT, f"{charts.left_out} more: {keys}"))
        if self.is_past_loading:
            parts.append(_NotePart(_NotePlace.LOADING, "loading the past …"))
        parts.append(_NotePart(_NotePlace.SPAN, self.span_note()))
        if self._texts.basis:
            parts.append(_NotePart(_NotePlace.BASIS, self._texts.basis))
        if self.has_focus:
            way = f"{key('back')}: all charts" if self.opened else f"{key('open')}: one chart"
            parts += [_NotePart(_NotePlace.WAY, way), glyphs, column]
        elif self.size.width >= _ROOMY_WIDTH:
            parts += [column, glyphs]
        else:
            parts.append(column)
        return [part for part in parts if part.text]

    def span_note(self) -> str:
        """The span of the charts, and the keys that change it."""
        key = self.view.keymap.first
        span = f"last {period(self.charted_s)}"
        keys = f"{key('span.shorter')} {key('span.longer')}".strip()
        if keys:
            return f"{span} ({keys})"
        return span

    def _legend_of_events(self) -> str:
        """Meanings of the glyphs of the events in the time that is charted."""
        if self.snapshot is None:
            return ""
        now_s = self.snapshot.wall_s
        return glyph_legend(self._history.events(now_s - self.charted_s, now_s), self.palette.glyphs)

    def body(self, width: int, height: int) -> Sequence[Row]:
        """The charts, the roofline or the map, or why there is none."""
        snapshot = self.snapshot
        if snapshot is None:
            return wrap_line("starting …", width, "muted")
        if height < 1:
            return ()
        if not snapshot.gpus and not snapshot.engines and not self._ever_seen:
            return wrap_line(_NOTHING, width, "muted")
        if self.shows is not Shows.CHARTS:
            return self._picture_rows(snapshot, width, height)
        if not self._drawn_series:
            return wrap_line("nothing to chart yet: no figure has come", width, "muted")
        return self._chart_rows(snapshot, width, height)

    def _chart_rows(self, snapshot: Snapshot, width: int, height: int) -> Sequence[Row]:
        """The charts, and below them those of single GPUs or engines."""
        self._shows_sparks = height < _LEAST_AREAS_HEIGHT
        charts, parts = self._fit_charts(snapshot, width, height)
        marked = self.cursor if self.has_focus and not self.opened else None
        rows = charts.rows(snapshot.wall_s, self._texts, marked, self.moment)
        if parts is not None:
            return [*rows, *parts.rows(snapshot.wall_s, self._texts)]
        return rows

    def _picture_rows(self, snapshot: Snapshot, width: int, height: int) -> Sequence[Row]:
        """The engines below the roof of their GPUs, or the GPUs on their map."""
        from gpumon.tui.activity_map import bounds_of, map_rows
        from gpumon.tui.plotted import LEAST_HEIGHT
        from gpumon.tui.roofline import roofline_rows

        if height < LEAST_HEIGHT:
            return wrap_line(f" the {self.shows.value} needs {LEAST_HEIGHT} lines", width, "muted")
        size = (width, height)
        glyphs = self.palette.glyphs
        if self.shows is Shows.MAP:
            bounds = bounds_of(self.view.config.triage)
            chosen = self._key_at(self._place_on_picture())
            return map_rows(snapshot, self._history, bounds, chosen, size, glyphs)
        if not snapshot.engines:
            return wrap_line("no roofline: there is no engine", width, "muted")
        return roofline_rows(
            snapshot.engines, self._history, snapshot.wall_s, size, glyphs, self._chosen_engine, self._double
        )

    def _double(self, engine: Engine) -> DoubledBatch | str:
        """An engine at twice its batch; worked out once for each of its figures."""
        from gpumon.sizing.doubled_batch import doubled_batch

        if self._doubled is not None and self._doubled[0] is engine:
            return self._doubled[1]
        spec = self._find_gpu(self._gpu_type_of(engine))
        estimate: DoubledBatch | str = "the type of its GPUs is not in the catalogue"
        if spec is not None:
            estimate = doubled_batch(engine, spec)
        self._doubled = (engine, estimate)
        return estimate

    def _gpu_type_of(self, engine: Engine) -> str:
        """The catalogue's name of an engine's GPUs; empty where it is not known."""
        if self.snapshot is not None:
            for gpu in self.snapshot.gpus:
                if gpu.reading.index in engine.hardware.gpus and gpu.gpu_type:
                    return gpu.gpu_type
        return engine.hardware.gpu_type

    def _fit_charts(self, snapshot: Snapshot, width: int, height: int) -> tuple[Charts, Charts | None]:
        """The charts for this size, and below them those of single things (None without any); the same ones as long as
        nothing but time changes."""
        charts = self._available_charts()
        style = Style(self.charted_s, self.palette.glyphs, levels_in(self.view))
        parts: list[Chart] = []
        if self.opened or self.zoomed:
            parts = parts_of(self._chosen_chart(), self._history.keys(), snapshot)
        inputs = (width, height, style, self.opened, self.zoomed, self.cursor, charts, parts)
        if self._charts is None or self._charts_inputs != inputs:
            self._charts_inputs = inputs
            parts_height = _lines_of_parts(len(parts), width, height)
            self._charts = self._charts_in(charts, width, height - parts_height, style)
            self._parts = self._parts_in(parts, width, parts_height, style)
        return self._charts, self._parts

    def _charts_in(self, charts: Sequence[Chart], width: int, height: int, style: Style) -> Charts:
        """All charts, or the one alone that has the pane to itself."""
        if self.opened:
            chart = self._chosen_chart()
            return Charts(self._history, [chart], width, height, style, least=_LEAST_OPENED_LINES, across=1)
        least = _LEAST_SPARK_LINES if self._shows_sparks else _LEAST_AREA_LINES
        all_charts = Charts(
            self._history,
            charts,
            width,
            height,
            style,
            least=least,
            cursor=min(self.cursor, len(charts) - 1),
            first=self._first_chart,
        )
        self._first_chart = all_charts.first
        return all_charts

    def _parts_in(self, parts: Sequence[Chart], width: int, height: int, style: Style) -> Charts | None:
        """The charts of single GPUs or engines; None if there are none."""
        if not height:
            return None
        least = _LEAST_AREA_LINES
        if height < _LEAST_AREA_LINES * math.ceil(len(parts) / _PARTS_ACROSS):
            least = _LEAST_SPARK_LINES
        return Charts(self._history, parts, width, height, style, least=least, axis=False)


def _may_come(key: str, engines: Sequence[Engine]) -> bool:
    """Whether one of the engines has the figure of a series, or may soon have it."""
    row, _ = CHARTED[key]
    return any(not is_lasting(value_of(engine, row.field)) for engine in engines)


def _lines_of_parts(number: int, width: int, height: int) -> int:
    """Lines of a pane of `width` x `height` cells that the charts of a number of single GPUs or engines take."""
    across = max(1, min(_PARTS_ACROSS, width // _PART_WIDTH))
    lines = next((lines for least, lines in _LINES_OF_PARTS if height >= least), 1)
    rows = math.ceil(number / across)
    return min(rows * lines, int(height * _PARTS_SHARE))

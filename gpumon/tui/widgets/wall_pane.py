"""A list of GPUs that may be shown as a wall of tiles: zoomed, where rows do not fit, or where the user wants it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, TypeVar

from gpumon.readings.format import cells, period
from gpumon.readings.history import History
from gpumon.readings.missing import Missing
from gpumon.readings.snapshot import Gpu, Snapshot
from gpumon.readings.text import clean
from gpumon.tui.charts.raster import RASTERS, RasterLayer, area
from gpumon.tui.charts.series import ChartSeries, make_grid
from gpumon.tui.line import Piece, Row
from gpumon.tui.palette import Palette
from gpumon.tui.rows import Listing
from gpumon.tui.table import Table
from gpumon.tui.view import View
from gpumon.tui.wall.figures import WALL_FIGURES, WallFigure, first_figure, next_figure
from gpumon.tui.wall.plan import LEAST_STRIP_CELLS, STRIP, WallPlan, wall_plan
from gpumon.tui.wall.strips import STRIP_S, StripReader, strip_row
from gpumon.tui.wall.tiles import Tile, TileSettings, card_legend, explain_tile, wall_rows
from gpumon.tui.widgets.list_pane import ListPane
from gpumon.tui.widgets.pane import LinesInView

T = TypeVar("T")
"""Rows of a list."""
_LEAST_CHART_WIDTH: Final = 8
"""Cells of a card from which it has a chart."""
_LEAST_CAPTION_HEIGHT: Final = 3
"""Lines of a chart from which one of them says what it shows."""
_RULE_AND_HEADER: Final = 2
"""Lines of the pane that are no rows."""
_MOST_HOST_NAME: Final = 40
"""Characters of the name of a host."""


class WallShape(Enum):
    """The shape that the user chose."""

    AUTO = "auto"
    """Rows where all of them fit, else the wall; zoomed the wall."""
    WALL = "wall"
    ROWS = "rows"


class WallPane(ListPane[T]):
    """Rows of GPUs, or a wall of tiles of which the cursor moves in two dimensions."""

    def __init__(self, palette: Palette, view: View, listing: Listing[T], history: History | None = None) -> None:
        """`history`: series that rows and tiles may show."""
        super().__init__(palette, view, listing)
        self.history = history
        self.shape = WallShape.AUTO
        self._chosen_figure: WallFigure | None = None
        """The figure that the user chose; None: the first that the GPUs have."""
        self._first_figure: WallFigure = WALL_FIGURES[0]
        self._first_figure_snapshot: Snapshot | None = None
        """The snapshot of which `_first_figure` is."""
        self.painted_plan: WallPlan | None = None
        """The tiles as they were painted last; None: rows were."""
        self._series: dict[tuple[str, int, float], ChartSeries] = {}
        """Key of a series, columns, and seconds of a column -> the series in these."""
        self._strips = StripReader()

    def tile_of(self, item: T) -> Tile:
        """The tile of a row."""
        raise NotImplementedError

    def host_of(self, item: T) -> str:  # noqa: ARG002 - for walls of several hosts
        """The host of a row; tiles of a host stand together. Empty on the wall of one machine."""
        return ""

    @property
    def shows_tiles(self) -> bool:
        """Whether there are tiles and not rows."""
        if self.shape is not WallShape.AUTO:
            return self.shape is WallShape.WALL
        return self.zoomed or len(self.listed_items()) > self.size.height - _RULE_AND_HEADER

    def toggle_tiles(self) -> None:
        """Show rows in place of the wall, or the wall in place of rows: by itself if that is what there would be."""
        wants_tiles = not self.shows_tiles
        self.shape = WallShape.AUTO
        if self.shows_tiles is not wants_tiles:
            self.shape = WallShape.WALL if wants_tiles else WallShape.ROWS
        self.scrolling.top = 0
        self.update()

    def show_next_figure(self) -> None:
        """Colour the tiles by another figure."""
        self._chosen_figure = next_figure(self.figure, self._gpus())
        self.update()

    @property
    def figure(self) -> WallFigure:
        """The figure that colours the tiles: the one that was chosen, else the first that the GPUs have."""
        if self._chosen_figure is not None:
            return self._chosen_figure
        if self._first_figure_snapshot is not self.snapshot:
            self._first_figure_snapshot = self.snapshot
            self._first_figure = first_figure(self._gpus())
        return self._first_figure

    def _gpus(self) -> list[Gpu]:
        """The GPUs of all rows."""
        return [self.tile_of(item).gpu for item in self.listed_items()]

    def read_from(self, history: History) -> None:
        """Take the series of the charts from another history."""
        self._series.clear()
        self._strips.forget()
        self.history = history

    def title(self) -> str:
        """The name on the rule, and the figure that colours the tiles."""
        name = super().title()
        if self.shows_tiles:
            return f"{name} · {self.figure.name}{self.strips_text()}"
        return name

    def strips_text(self) -> str:
        """The meaning of the strips, behind the name; empty without any."""
        plan = self.painted_plan
        if plan is not None and plan.form is STRIP:
            return f" · last {period(STRIP_S)}"
        return ""

    def columns(self) -> Table[T] | None:
        """The columns of the rows; tiles have none."""
        if self.shows_tiles:
            return None
        return super().columns()

    def aside(self, room: int) -> Sequence[Piece]:
        """The tile under the cursor in words; of rows what their list has."""
        item = self.selected
        if not self.shows_tiles or item is None or not self.shows_cursor:
            return super().aside(room)
        return explain_tile(self.tile_of(item), self._tile_settings(), room)

    def in_view(self, width: int, room: int) -> LinesInView:
        """The rows, or the tiles, in view."""
        items = self.listed_items()
        if not self.shows_tiles or not items or room < 1:
            self.painted_plan = None
            return super().in_view(width, room)
        plan, names = self._plan(items, width, room)
        self.painted_plan = plan
        self.cell = ""  # tiles have no cells
        if self.shows_cursor:
            self._keep_in_view(plan, room)
            self.keep_cursor()
        self.scrolling.settle(plan.lines - room)
        lines = range(self.scrolling.top, self.scrolling.top + room)
        rows = wall_rows(
            plan,
            lambda number: self.tile_of(items[number]),
            names,
            self._tile_settings(),
            lines=lines,
            cursor=self.cursor.place if self.shows_cursor else None,
            host_strips=self.host_strips(list(dict.fromkeys(map(self.host_of, items)))),
        )
        places = [number for number, place in enumerate(plan.places) if place.line in lines]
        return LinesInView(rows, plan.lines, places)

    def host_strips(self, hosts: Sequence[str]) -> Callable[[int, int], Row]:  # noqa: ARG002 - for walls of several hosts
        """The strips of a host, by its number among these, in so many cells; none on the wall of one machine."""
        return lambda _group, _cells: ()

    def _plan(self, items: Sequence[T], width: int, room: int) -> tuple[WallPlan, Sequence[Piece]]:
        """The places of the tiles, and the names of their hosts where there are several."""
        gpus_of_host = Counter(self.host_of(item) for item in items)
        if len(gpus_of_host) == 1 or self.filter.order is not None:  # in another order, hosts do not stand together
            strips = self.zoomed and self.history is not None
            return wall_plan((len(items),), 0, width, room, strips=strips), ()
        names = [(clean(host, _MOST_HOST_NAME), "muted") for host in gpus_of_host]
        label_cells = max(cells(name) for name, _ in names)
        return wall_plan(tuple(gpus_of_host.values()), label_cells, width, room, strips=self.zoomed), names

    def _keep_in_view(self, plan: WallPlan, room: int) -> None:
        """Scroll so far that the tile under the cursor is in view."""
        line = plan.places[self.cursor.place].line
        self.scrolling.bring_into_view(line, plan.height, room)
        if line < plan.height:
            self.scrolling.top = 0  # so that the name of its host, above it, is in view

    def _tile_settings(self) -> TileSettings:
        """Settings of all tiles."""
        return TileSettings(
            figure=self.figure,
            view=self.view,
            palette=self.palette,
            chart=self._chart_rows,
            strip=self._strip_of,
        )

    def _strip_of(self, gpu: Gpu, room: int) -> Row:
        """The last five minutes of a GPU on a wall of full height; a MIG slice has none of its own."""
        full = self.figure.full(gpu, self.view)
        series = self.figure.series
        if not self.zoomed or self.history is None or self.snapshot is None or room < LEAST_STRIP_CELLS:
            return ()
        if gpu.reading.parent_uuid or isinstance(full, Missing) or not series:
            return ()
        values = self._strips.values(self.history, f"{series}:{gpu.reading.index}", room, self.snapshot.wall_s)
        return strip_row([value / full for value in values], self.figure, self.view, self.palette)

    def _chart_rows(self, gpu: Gpu, width: int, height: int) -> Sequence[Row]:
        """The past of the figure under a line with its name; a MIG slice has none of its own."""
        full = self.figure.full(gpu, self.view)
        if self.snapshot is None or gpu.reading.parent_uuid or width < _LEAST_CHART_WIDTH or isinstance(full, Missing):
            return ()
        curves = self.figure.curves
        layers: list[RasterLayer] = []
        for curve in curves:
            values = self._past_values(f"{curve.series}:{gpu.reading.index}", width - 1, self.snapshot.wall_s)
            layers.append(([value / full for value in values], curve.hue))
        rows: list[Row] = []
        if height >= _LEAST_CAPTION_HEIGHT:
            rows.append(card_legend(curves, f"0-{self.figure.text(full, self.view)}", width, self.palette.glyphs))
            height -= 1
        for line in area(layers, height, self.palette.glyphs):
            rows.append(((" ", "text"), *line))
        return rows

    def _past_values(self, key: str, room: int, wall_s: float) -> Sequence[float]:
        """The values of a series up to a Unix time in `room` cells, as far back as the charts go, after gaps for the
        cells that these columns do not fill."""
        per_cell = RASTERS[self.palette.glyphs].values_per_cell
        columns, column_s = make_grid(room, self.view.config.screen.span_s)
        series_key = (key, columns, column_s)
        series = self._series.get(series_key)
        if series is None and self.history is not None:
            series = ChartSeries(self.history, key, columns * per_cell, column_s / per_cell, changing=per_cell)
            self._series[series_key] = series
        if series is None:
            return ()
        newest = (int(wall_s // column_s) + 1) * per_cell - 1  # the last value of the cell that this moment is in
        return [math.nan] * ((room - columns) * per_cell) + list(series.values(newest, wall_s))

    def move(self, lines: int) -> None:
        """Move the cursor up or down by a tile; by more lines, as those of a page, by the tiles that these lines have;
        to an end by as many lines as there are tiles, or more."""
        items = self.listed_items()
        plan = self.painted_plan
        if not self.shows_tiles or not self.shows_cursor or plan is None or len(items) != len(plan.places):
            super().move(lines)
            return
        if abs(lines) >= len(items):
            self.cursor.put_on(self.cursor.place + lines)
        else:
            direction = 1 if lines > 0 else -1
            tiles = max(1, abs(lines) // plan.height)
            self.cursor.put_on(plan.beside(self.cursor.place, direction * tiles))
        self.update()

    def step_sideways(self, step: int) -> bool:
        """Move the cursor to the tile beside; while the display is paused the keys move in time."""
        if not self.shows_tiles or not self.listed_items() or self.paused:
            return super().step_sideways(step)
        self.cursor.put_on(self.cursor.place + step)
        self.update()
        return True

    def item_at(self, line: int, x: int) -> int | None:
        """Place of the row, or of the tile, at a line of the view and a cell of the pane."""
        plan = self.painted_plan
        if not self.shows_tiles or plan is None:
            return super().item_at(line, x)
        tile = plan.tile_at(line + self.scrolling.top, x)
        if tile is not None and tile < len(self.listed_items()):
            return tile
        return None

    def scroll_note(self, total: int, room: int, focused: bool) -> str:
        """Numbers of the lines in view, without the keys: the rule has to have room for the tile under the cursor."""
        if not self.shows_tiles or not focused:
            return super().scroll_note(total, room, focused)
        if self.scrolling.last:
            return f"{self.scrolling.top + 1}-{self.scrolling.top + room} of {total}"
        return ""

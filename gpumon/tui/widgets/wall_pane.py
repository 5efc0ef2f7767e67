"""A list of GPUs that may be shown as a wall of tiles: zoomed, where rows do not fit, or where the user wants it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, TypeVar

from gpumon.readings.format import cells
from gpumon.readings.history import History
from gpumon.readings.missing import Missing
from gpumon.readings.snapshot import Gpu
from gpumon.readings.text import clean
from gpumon.tui.charts.raster import RASTERS, RasterLayer, area
from gpumon.tui.charts.series import ChartSeries, make_grid
from gpumon.tui.line import Piece, Row
from gpumon.tui.palette import Palette
from gpumon.tui.rows import Listing
from gpumon.tui.table import ScrolledTable
from gpumon.tui.view import View
from gpumon.tui.wall.figures import WALL_FIGURES, WallFigure, next_figure
from gpumon.tui.wall.plan import WallPlan, wall_plan
from gpumon.tui.wall.tiles import Tile, TileSettings, card_legend, explain_tile, wall_rows
from gpumon.tui.widgets.list_pane import ListPane

T = TypeVar("T")
_LEAST_CHART: Final = 8
"""Cells of a card from which it has a chart."""
_LEAST_CAPTION: Final = 3
"""Lines of a chart from which one of them says what it shows."""


class WallShape(Enum):
    """The shape that the user chose."""

    AUTO = "auto"
    """Rows where all of them fit, else the wall; zoomed the wall."""
    WALL = "wall"
    ROWS = "rows"


class WallPane(ListPane[T]):
    """Rows of GPUs, or a wall of tiles of which the cursor moves in two dimensions."""

    def __init__(
        self,
        palette: Palette,
        view: View,
        listing: Listing[T],
        tile_of: Callable[[T, ListPane[T]], Tile],
        host_of: Callable[[T], str],
        history: History | None = None,
    ) -> None:
        """`tile_of`: the tile of a row. `host_of`: its host, where they are of several; tiles of a host stand
        together."""
        super().__init__(palette, view, listing, history)
        self._tile_of = tile_of
        self._host_of = host_of
        self.shape = WallShape.AUTO
        self.figure: WallFigure = WALL_FIGURES[0]
        """The figure that colours the tiles."""
        self._planned: WallPlan | None = None
        """The tiles as they were painted last."""
        self._series: dict[tuple[str, int, float], ChartSeries] = {}

    @property
    def walled(self) -> bool:
        """Whether there are tiles and not rows."""
        if self.shape is not WallShape.AUTO:
            return self.shape is WallShape.WALL
        return self.zoomed or len(self.listed_items()) > self.size.height - 2

    def turn(self) -> None:
        """Rows in place of the wall, or the wall in place of rows."""
        walled = not self.walled
        self.shape = WallShape.AUTO
        if self.walled is not walled:
            self.shape = WallShape.WALL if walled else WallShape.ROWS
        self._top = 0
        self.update()

    def show_next_figure(self) -> None:
        """Colour the tiles by another figure."""
        self.figure = next_figure(self.figure)
        self.update()

    def read_from(self, history: History) -> None:
        """Other series from now on."""
        self._series.clear()
        super().read_from(history)

    def title(self) -> str:
        """The name on the rule, and what the colours mean."""
        name = super().title()
        if self.walled:
            return f"{name} · {self.figure.name}"
        return name

    def head(self, width: int) -> Sequence[Row]:
        """Column headers of the rows."""
        if self.walled:
            return ()
        return super().head(width)

    def columns(self) -> ScrolledTable | None:
        """The columns of the rows; tiles have none."""
        return None if self.walled else super().columns()

    def aside(self, room: int) -> Sequence[Piece]:
        """The tile under the cursor in words."""
        item = self.selected
        if not self.walled or item is None or not self.shows_cursor:
            return super().aside(room)
        return explain_tile(self._tile_of(item, self), self._look(), room)

    def alarm(self) -> str:
        """The worst tile with trouble that is not in view, and how many more there are."""
        plan = self._planned
        if not self.walled or plan is None:
            return super().alarm()
        unseen = []
        for item, place in zip(self.listed_items(), plan.places, strict=False):
            if not self._top <= place.line < self._top + self._in_view:
                unseen.append(item)
        return self.worst_trouble(unseen)

    def in_view(self, width: int, room: int) -> tuple[Sequence[Row], int]:
        """The rows, or the tiles, in view."""
        items = self.listed_items()
        if not self.walled or not items or room < 1:
            self._planned = None
            return super().in_view(width, room)
        plan, names = self._plan(items, width, room)
        self._planned = plan
        self.cell = ""
        self._overflow = max(0, plan.lines - room)
        self._in_view = room
        if self.shows_cursor:
            self._keep_in_view(plan, room)
            self._keep_cursor()
        self._top = max(0, min(self._top, self._overflow))
        lines = range(self._top, self._top + room)
        cursor = self._place if self.shows_cursor else None
        rows = wall_rows(plan, lambda number: self._tile_of(items[number], self), names, self._look(), lines, cursor)
        return rows, plan.lines

    def _plan(self, items: Sequence[T], width: int, room: int) -> tuple[WallPlan, Sequence[Piece]]:
        """The places of the tiles, and the names of their hosts where there are several."""
        sizes: dict[str, int] = {}
        for item in items:
            host = self._host_of(item)
            sizes[host] = sizes.get(host, 0) + 1
        if len(sizes) == 1 or self.order is not None:
            return wall_plan((len(items),), 0, width, room), ()
        names = [(clean(host, 40), "muted") for host in sizes]
        label = max(cells(name) for name, _ in names)
        return wall_plan(tuple(sizes.values()), label, width, room), names

    def _keep_in_view(self, plan: WallPlan, room: int) -> None:
        """Scroll so far that the tile under the cursor is in view."""
        line = plan.places[self._place].line
        self._top = max(line + plan.height - room, min(self._top, line))
        if line < plan.height:
            self._top = 0  # the name of its host above it

    def _look(self) -> TileSettings:
        return TileSettings(self.figure, self.view, self.palette, self._chart)

    def _chart(self, gpu: Gpu, width: int, height: int) -> Sequence[Row]:
        """The past of the figure under a line with its name; a MIG slice has none of its own."""
        full = self.figure.full(gpu, self.view)
        if self.snapshot is None or gpu.parent_uuid or width < _LEAST_CHART or isinstance(full, Missing):
            return ()
        curves = self.figure.curves
        layers: list[RasterLayer] = []
        for curve in curves:
            values = self._past(f"{curve.series}:{gpu.index}", width - 1, self.snapshot.wall_s)
            layers.append(([value / full for value in values], curve.hue))
        caption = card_legend(curves, f"0-{self.figure.text(full, self.view)}", width, self.palette.glyphs)
        if height < _LEAST_CAPTION:
            chart = []
            for line in area(layers, height, self.palette.glyphs):
                chart.append(((" ", "text"), *line))
            return chart
        return [caption, *(((" ", "text"), *line) for line in area(layers, height - 1, self.palette.glyphs))]

    def _past(self, key: str, room: int, wall_s: float) -> Sequence[float]:
        """A series in so many columns, as far back as the charts go."""
        live = RASTERS[self.palette.glyphs].values_per_cell
        columns, column_s = make_grid(room, self.view.config.screen.span_s)
        known = (key, columns, column_s)
        series = self._series.get(known)
        if series is None and self.history is not None:
            series = ChartSeries(self.history, key, columns * live, column_s / live, live)
            self._series[known] = series
        if series is None:
            return ()
        newest = int(wall_s // column_s) * live + live - 1
        return [math.nan] * ((room - columns) * live) + list(series.values(newest, wall_s))

    def move(self, lines: int) -> None:
        """Move the cursor up or down, a tile per line."""
        items = self.listed_items()
        plan = self._planned
        if not self.walled or not self.shows_cursor or plan is None or len(items) != len(plan.places):
            super().move(lines)
            return
        if abs(lines) >= len(items):
            if lines < 0:
                self._place = 0
            else:
                self._place = len(items) - 1
        elif abs(lines) == 1:
            self._place = plan.beside(self._place, lines)
        else:
            tiles = max(1, abs(lines) // plan.height)
            self._place = plan.beside(self._place, tiles if lines > 0 else -tiles)
        self._cursor = self.listing.key(items[self._place])
        self.update()

    def step_aside(self, step: int) -> bool:
        """Move the cursor to the tile beside; while the display is paused the keys move in time."""
        items = self.listed_items()
        if not self.walled or not items or self.paused:
            return super().step_aside(step)
        self._place = max(0, min(len(items) - 1, self._place + step))
        self._cursor = self.listing.key(items[self._place])
        self.update()
        return True

    def item_at(self, line: int, x: int) -> int | None:
        """Place of the row, or of the tile, at a line of the view and a cell of the pane."""
        plan = self._planned
        if not self.walled or plan is None:
            return super().item_at(line, x)
        tile = plan.tile_at(line + self._top, x)
        if tile is not None and tile < len(self.listed_items()):
            return tile
        return None

    def _scroll_note(self, total: int, room: int, focused: bool) -> str:
        """Which lines are in view; the rule has to have room for the tile under the cursor."""
        if not self.walled or not focused:
            return super()._scroll_note(total, room, focused)
        if self._overflow:
            return f"{self._top + 1}-{self._top + room} of {total}"
        return ""

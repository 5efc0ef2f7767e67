"""Each GPU's own history behind its row, on a very wide screen: the figures that have room, as sparks of one scale."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec

from gpumon.efficiency.activity import dram_share
from gpumon.figures.figure import Figure
from gpumon.figures.gpu import GPU
from gpumon.readings.flat import value_of
from gpumon.readings.format import left, period, ratio
from gpumon.readings.history import History
from gpumon.readings.missing import Missing
from gpumon.readings.snapshot import Gpu
from gpumon.tui.charts.raster import spark
from gpumon.tui.charts.series import ChartSeries, Grid, make_grid
from gpumon.tui.line import Piece
from gpumon.tui.rows import ListScene

_SCALE_TOPS: Final = (0.1, 0.25, 0.5, 1.0)
"""Shares that may fill a spark's line."""
_SPARK_GAP: Final = 2
"""Cells before a spark."""
_LEAST_SPARK_CELLS: Final = 20
"""Cells of a spark, at least."""
_SPARK_CELLS_OF_TWO: Final = 40
"""Cells of each spark, at least, where there are two."""
_NO_GRID: Final = Grid(columns=0, column_s=1.0)
"""The grid where no spark has room."""


class _SparkFigure(msgspec.Struct, frozen=True):
    """A figure whose history stands behind the rows, as sparks."""

    series: str
    row: Figure

    @property
    def tone(self) -> str:
        """The tone of its curve."""
        return self.row.charted.tone if self.row.charted is not None else "text"

    def is_known(self, gpu: Gpu) -> bool:
        """Whether a GPU has the figure now; of its bandwidth alone one that is measured."""
        reading = dram_share(gpu) if self.series == "dram" else value_of(gpu, self.row.field)
        return not isinstance(reading, Missing)


_SPARK_FIGURES: Final = (
    _SparkFigure("mfu", GPU["mfu_ratio"]),
    _SparkFigure("dram", GPU["bandwidth_bytes_per_s"]),
    _SparkFigure("busy", GPU["busy_ratio"]),
)
"""The most telling first. Busy comes last: it is a flat line on every GPU that serves requests."""


class GpuSparks:
    """Each GPU's own history behind its row, on a very wide screen."""

    def __init__(self) -> None:
        self._series: dict[str, ChartSeries] = {}
        """Key of a figure of a GPU -> its values, in the columns of `_grid`."""
        self._history: History | None = None
        self._grid = _NO_GRID
        self._known: set[str] = set()
        """Keys of figures that a GPU had once."""
        self._tops: dict[str, float] = {}
        """Figure -> the share that fills a line; all GPUs have the same one."""

    def titles(self, room: int, scene: ListScene) -> list[Piece]:
        """Titles of the figures whose sparks have room in so many cells behind the table's header, with the share that
        fills a line."""
        figures, time_grid = self._figures_that_fit(room, scene)
        titles: list[Piece] = []
        for place, figure in enumerate(figures):
            self._tops[figure.series] = self._scale_top(figure)
            title = f"{figure.row.short} 0-{ratio(self._tops[figure.series])}"
            if place == 0:
                title += f", last {period(scene.view.config.screen.span_s)}"
            titles += [(" " * _SPARK_GAP, "text"), (left(title, time_grid.columns), figure.tone)]
        return titles

    def sparks(self, gpu: Gpu, room: int, scene: ListScene, history: History | None) -> list[Piece]:
        """The sparks of a GPU in so many cells behind its row, from its series in `history`."""
        figures, time_grid = self._figures_that_fit(room, scene)
        if not figures or scene.snapshot is None:
            return []
        if self._history is not history or self._grid != time_grid:
            self._history = history
            self._grid = time_grid
            self._series.clear()
        sparks: list[Piece] = []
        for figure in figures:
            sparks += [(" " * _SPARK_GAP, "text"), (self._spark_text(figure, gpu, scene.snapshot.wall_s), figure.tone)]
        return sparks

    def _figures_that_fit(self, room: int, scene: ListScene) -> tuple[Sequence[_SparkFigure], Grid]:
        """The figures whose histories have room in so many cells, and the grid of each."""
        if "gpus.history" in scene.view.hidden or scene.shift or scene.snapshot is None:
            return (), _NO_GRID
        number, time_grid = _grid_for(room, scene.view.config.screen.span_s)
        if not number:
            return (), time_grid
        self._note_known(scene.snapshot.gpus)
        figures: Sequence[_SparkFigure] = [figure for figure in _SPARK_FIGURES if figure.series in self._known]
        if not figures:
            figures = _SPARK_FIGURES[-1:]
        return figures[:number], time_grid

    def _note_known(self, gpus: Sequence[Gpu]) -> None:
        """Remember which figures the GPUs have: one that is missing for a moment keeps its place."""
        for figure in _SPARK_FIGURES:
            if figure.series not in self._known and any(figure.is_known(gpu) for gpu in gpus):
                self._known.add(figure.series)

    def _scale_top(self, figure: _SparkFigure) -> float:
        """The share that fills a line: the least step above all that is shown."""
        highest_of_gpus = [
            series.highest for key, series in self._series.items() if key.startswith(f"{figure.series}:")
        ]
        highest = max(highest_of_gpus, default=1.0)
        return next((top for top in _SCALE_TOPS if highest <= top), 1.0)

    def _spark_text(self, figure: _SparkFigure, gpu: Gpu, wall_s: float) -> str:
        """The history of a figure up to a Unix time, as characters; blanks where there is none."""
        columns = self._grid.columns
        column_s = self._grid.column_s
        if gpu.reading.parent_uuid or self._history is None:  # the history has the whole GPU only
            return " " * columns
        key = f"{figure.series}:{gpu.reading.index}"
        series = self._series.get(key)
        if series is None:
            series = ChartSeries(self._history, key, columns, column_s, 1)
            self._series[key] = series
        values = series.values(int(wall_s // column_s), wall_s)
        top = self._tops.get(figure.series, 1.0)
        return spark([value / top for value in values])


@lru_cache(maxsize=64)
def _grid_for(room: int, span_s: float) -> tuple[int, Grid]:
    """How many histories fit into so many cells, and the grid of each."""
    if room >= 2 * (_SPARK_CELLS_OF_TWO + _SPARK_GAP):
        number = 2
    elif room >= _LEAST_SPARK_CELLS + _SPARK_GAP:
        number = 1
    else:
        return 0, _NO_GRID
    return number, make_grid(room // number - _SPARK_GAP, span_s)

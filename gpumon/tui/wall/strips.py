"""Heat strips: the last five minutes of a figure as cells, each as strong as the figure was then."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from gpumon.readings.history import History
from gpumon.tui.charts.series import ChartSeries
from gpumon.tui.line import Piece, Row, join_tones
from gpumon.tui.palette import Palette, tint
from gpumon.tui.view import View
from gpumon.tui.wall.figures import WallFigure, step_of

STRIP_S: Final = 300.0
"""Seconds from the begin of a strip to its end."""
MOST_STRIP_CELLS: Final = 60
"""Cells of the longest strip: the history has sums of 5 s."""
_MOST_READ: Final = 2048
"""Most strips that are kept as they were read."""
_STEP_S: Final = STRIP_S / MOST_STRIP_CELLS
"""The seconds of a cell are a multiple of this."""
_SINGLE_PRECISION: Final = 1e-6
"""Part of a share by which the history may miss it: 0.9 is kept as a little less than nine tenths."""
_GAP: Final = "·"
"""A cell of a time of which nothing is known."""
_ASCII_GAP: Final = "."
_SHADES: Final = " ░▒▓█"
"""Cells of a terminal without tints, the faintest first."""


class StripGrid(NamedTuple):
    """The cells of a strip, and the seconds of each."""

    cells: int
    cell_s: float


def strip_grid(room: int) -> StripGrid:
    """The grid of a strip in `room` cells: as many as fit, each of whole steps."""
    steps = math.ceil(MOST_STRIP_CELLS / max(1, room))
    return StripGrid(math.ceil(MOST_STRIP_CELLS / steps), steps * _STEP_S)


class StripReader:
    """The values of strips, of which only what is new is read."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, StripGrid], ChartSeries] = {}

    def forget(self) -> None:
        """Forget all that was read: another history comes."""
        self._series.clear()

    def values(self, history: History, key: str, room: int, wall_s: float) -> Sequence[float]:
        """Values of a series up to a Unix time, for the cells of a strip in `room`; NaN is a gap."""
        grid = strip_grid(room)
        series = self._series.get((key, grid))
        if series is None:
            if len(self._series) >= _MOST_READ:  # those of other figures and sizes
                self._series.clear()
            series = ChartSeries(history, key, grid.cells, grid.cell_s, changing=1)
            self._series[key, grid] = series
        return series.values(int(wall_s // grid.cell_s), wall_s)


def strip_row(shares: Sequence[float], figure: WallFigure, view: View, palette: Palette) -> Row:
    """The cells of a strip by the shares of the figure's full value; neighbours that look the same are one piece."""
    cell = _cell_in(figure, view, palette)
    return tuple(join_tones(cell(share + _SINGLE_PRECISION) for share in shares))


def _cell_in(figure: WallFigure, view: View, palette: Palette) -> Callable[[float], Piece]:
    """How a share looks in a cell: in tints of the figure's hue, as a digit in ASCII, else as a shade."""

    def cell(share: float) -> Piece:
        if math.isnan(share):
            return (_ASCII_GAP if palette.ascii else _GAP), "border"
        high = figure.high_tone_of(share, view)
        if palette.ascii:
            return str(step_of(share)), high or "text"
        if palette.tinted:
            return " ", _GROUNDS_OF_LEVELS.get(high) or tint(figure.hue, step_of(share))
        shade = math.ceil((share - 2.0 * _SINGLE_PRECISION) * (len(_SHADES) - 1))
        shade = max(0, min(len(_SHADES) - 1, shade))
        return _SHADES[shade], high or "text"

    return cell


_GROUNDS_OF_LEVELS: Final = {"warn": "badge", "critical": "alarm"}
"""Tone of a level above calm -> the tone with its colour as the ground."""

"""The figures that tiles of the wall are coloured by."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from gpumon.efficiency.ratio import divide
from gpumon.figures.figure import Figure
from gpumon.figures.gpu import GPU
from gpumon.figures.unit import BYTES, CELSIUS, SHARE, WATTS
from gpumon.readings.flat import value_of
from gpumon.readings.format import celsius, fahrenheit, ratio, watts
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.snapshot import Gpu
from gpumon.tui.charts.curves import name_alone
from gpumon.tui.levels import is_high, level_of, tone_of
from gpumon.tui.palette import TINTS
from gpumon.tui.table import is_lasting
from gpumon.tui.view import View

_SHORT_CELLS: Final = 4
"""Cells of a figure on a tile, its unit included."""
_ROUNDING: Final = 1e-9
"""Part of a tenth by which a share may miss it in floating point: 0.3 is just below three tenths."""


class CardCurve(msgspec.Struct, frozen=True):
    """A series of a GPU's history, as a card charts it."""

    name: str
    series: str
    hue: str
    """One of `palette.HUES`."""


class WallFigure(msgspec.Struct, frozen=True):
    """One figure of a GPU, and what its colours mean."""

    row: Figure
    hue: str
    """One of `palette.HUES`."""
    curves: tuple[CardCurve, ...]
    """One or two curves on one scale; the first is in front."""
    word: str = ""
    """Its name in at most 5 cells, where `name` is longer."""

    @property
    def name(self) -> str:
        """Its name."""
        return self.row.name

    def value(self, gpu: Gpu) -> Reading:
        """The figure of a GPU; of an amount of memory the share of all there is."""
        value: Reading = value_of(gpu, self.row.field)
        if self.row.unit is BYTES:
            return divide(value, value_of(gpu, self.row.within))
        return value

    def full(self, gpu: Gpu, view: View) -> Reading:
        """The value that has the strongest colour: all of a share, the limit of power, the hot end of a temperature."""
        if self.row.unit is WATTS:
            limit: Reading = value_of(gpu, self.row.within)
            return limit
        return level_of(self.row.level, view).hot if self.row.unit is CELSIUS else 1.0

    def text(self, value: Reading, view: View) -> str:
        """A value with its unit, or why it is missing."""
        if self.row.unit is WATTS:
            return watts(value)
        if self.row.unit is not CELSIUS:
            return ratio(value)
        if isinstance(value, Missing):
            return celsius(value)
        return f"{fahrenheit(value)}°F" if view.fahrenheit else f"{celsius(value)}°C"

    def share(self, gpu: Gpu, view: View) -> Reading:
        """The figure as a share of the value that has the strongest colour; not clamped."""
        return divide(self.value(gpu), self.full(gpu, view))

    @property
    def series(self) -> str:
        """Name of its series in the history; empty where it has none."""
        return self.row.charted.series if self.row.charted is not None else ""

    @property
    def worst_is_high(self) -> bool:
        """Whether the highest of several GPUs is the worst one; of shares of work it is the lowest."""
        return bool(self.row.level)

    def short(self, gpu: Gpu, view: View) -> str:
        """The figure in at most 4 cells."""
        value = self.value(gpu)
        if self.row.unit in (SHARE, BYTES):
            return ratio(value, _SHORT_CELLS)
        text = self.text(value, view)
        return text if len(text) <= _SHORT_CELLS else text.rstrip("WCF°")[:_SHORT_CELLS]

    def high_tone(self, gpu: Gpu, view: View) -> str:
        """The tone of its level where that is above calm; else empty."""
        if not self.row.level:
            return ""
        # The level of power is for a share of the limit, not for watts.
        value = self.share(gpu, view) if self.row.unit is WATTS else self.value(gpu)
        tone = tone_of(self.row.level, value, view)
        return tone if is_high(tone) else ""

    def high_tone_of(self, share: float, view: View) -> str:
        """The tone of the level of a share of the full value, where that is above calm; else empty."""
        if not self.row.level:
            return ""
        value = share * level_of(self.row.level, view).hot if self.row.unit is CELSIUS else share
        tone = tone_of(self.row.level, value, view)
        return tone if is_high(tone) else ""


def step_of(share: float) -> int:
    """The tint, and the digit, of a share: its tenth; 9 from 90% on."""
    tenth = int(share * TINTS + _ROUNDING)
    return max(0, min(TINTS - 1, tenth))


def _curves(**hue_by_series: str) -> tuple[CardCurve, ...]:
    """Curves of a card by their series, in these hues."""
    return tuple(CardCurve(name_alone(series), series, hue) for series, hue in hue_by_series.items())


_EFFICIENCY: Final = _curves(mfu="mfu", mbu="mbu")
WALL_FIGURES: Final = (
    WallFigure(GPU["mfu_ratio"], "mfu", _EFFICIENCY),
    WallFigure(GPU["mbu_ratio"], "mbu", _EFFICIENCY),
    WallFigure(GPU["sm_active_ratio"], "sm", _curves(sm="sm", busy="busy"), word="sm"),
    WallFigure(GPU["busy_ratio"], "busy", _curves(sm="sm", busy="busy")),
    WallFigure(GPU["vram_used_bytes"], "mbu", _curves(vram="mbu")),
    WallFigure(GPU["power_w"], "sm", _curves(power="sm")),
    WallFigure(GPU["temperature_c"], "sm", _curves(temp="sm"), word="temp"),
)
"""In the order in which the key shows them."""
_BUSY: Final = next(figure for figure in WALL_FIGURES if figure.row is GPU["busy_ratio"])
"""The figure that every driver gives."""


def first_figure(gpus: Iterable[Gpu]) -> WallFigure:
    """The first figure that half of the GPUs have, or will soon have; busy where there is none."""
    gpus = list(gpus)
    for figure in WALL_FIGURES:
        if 2 * _number_with(figure, gpus) >= len(gpus) > 0:
            return figure
    return _BUSY


def _number_with(figure: WallFigure, gpus: Iterable[Gpu]) -> int:
    """Number of the GPUs that have a figure, or will soon have it."""
    return sum(not is_lasting(figure.value(gpu)) for gpu in gpus)


def next_figure(figure: WallFigure, gpus: Iterable[Gpu]) -> WallFigure:
    """The next figure that one of the GPUs has; after the last one the first."""
    gpus = list(gpus)
    place = WALL_FIGURES.index(figure) + 1
    for following in (*WALL_FIGURES[place:], *WALL_FIGURES[:place]):
        if _number_with(following, gpus):
            return following
    return figure

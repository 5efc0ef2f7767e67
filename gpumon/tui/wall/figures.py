"""The figures that tiles of the wall are coloured by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from gpumon.efficiency.ratio import divide
from gpumon.readings.format import celsius, fahrenheit, ratio, watts
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.snapshot import Gpu
from gpumon.tui.levels import is_high, level_of, tone_of
from gpumon.tui.palette import TINTS
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

    name: str
    hue: str
    """One of `palette.HUES`."""
    curves: tuple[CardCurve, ...]
    """One or two curves on one scale; the first is in front."""
    value: Callable[[Gpu], Reading]
    """Reads the figure of a GPU."""
    full: Callable[[Gpu, View], Reading]
    """The value that has the strongest colour."""
    text: Callable[[Reading, View], str]
    """A value with its unit, or why it is missing."""
    level: str = ""
    """Name of its level in `levels.LEVEL_BOUNDS`; empty where it has none."""
    word: str = ""
    """Its name in at most 5 cells, where `name` is longer."""

    def share(self, gpu: Gpu, view: View) -> Reading:
        """The figure as a share of the value that has the strongest colour; not clamped."""
        return divide(self.value(gpu), self.full(gpu, view))

    def short(self, gpu: Gpu, view: View) -> str:
        """The figure in at most 4 cells."""
        value = self.value(gpu)
        if self.text is _percent:
            return ratio(value, _SHORT_CELLS)
        text = self.text(value, view).replace(" ", "")
        if len(text) <= _SHORT_CELLS:
            return text
        return text.rstrip("WCF°")[:_SHORT_CELLS]

    def high_tone(self, gpu: Gpu, view: View) -> str:
        """The tone of its level where that is above calm; else empty."""
        if not self.level:
            return ""
        value = self.value(gpu)
        if self.name == "power":  # its level is a share of the limit, not watts
            value = self.share(gpu, view)
        tone = tone_of(self.level, value, view)
        if is_high(tone):
            return tone
        return ""


def step_of(share: float) -> int:
    """The tint, and the digit, of a share: its tenth; 9 from 90 % on."""
    tenth = int(share * TINTS + _ROUNDING)
    return max(0, min(TINTS - 1, tenth))


def _vram_share(gpu: Gpu) -> Reading:
    return divide(gpu.vram_used_bytes, gpu.vram_total_bytes)


# Values with the strongest colour.


def _full_share(_gpu: Gpu, _view: View) -> Reading:
    return 1.0


def _power_limit(gpu: Gpu, _view: View) -> Reading:
    return gpu.power_limit_w


def _hot_from(_gpu: Gpu, view: View) -> Reading:
    return level_of("temperature", view).hot


# Values with their units.


def _percent(value: Reading, _view: View) -> str:
    return ratio(value)


def _watts(value: Reading, _view: View) -> str:
    return watts(value)


def _degrees(value: Reading, view: View) -> str:
    if isinstance(value, Missing):
        return celsius(value)
    if view.fahrenheit:
        return f"{fahrenheit(value)}°F"
    return f"{celsius(value)}°C"


_EFFICIENCY: Final = (CardCurve("MFU", "mfu", "mfu"), CardCurve("MBU", "mbu", "mbu"))
_ACTIVITY: Final = (CardCurve("SM", "sm", "sm"), CardCurve("busy", "busy", "busy"))
_VRAM: Final = (CardCurve("VRAM", "vram", "mbu"),)
_POWER: Final = (CardCurve("power", "power", "sm"),)
_HEAT: Final = (CardCurve("°C", "temp", "sm"),)
WALL_FIGURES: Final = (
    WallFigure(
        name="MFU",
        hue="mfu",
        curves=_EFFICIENCY,
        value=lambda gpu: gpu.mfu_ratio,
        full=_full_share,
        text=_percent,
    ),
    WallFigure(
        name="MBU",
        hue="mbu",
        curves=_EFFICIENCY,
        value=lambda gpu: gpu.mbu_ratio,
        full=_full_share,
        text=_percent,
    ),
    WallFigure(
        name="busy",
        hue="busy",
        curves=_ACTIVITY,
        value=lambda gpu: gpu.busy_ratio,
        full=_full_share,
        text=_percent,
    ),
    WallFigure(
        name="VRAM",
        hue="mbu",
        curves=_VRAM,
        value=_vram_share,
        full=_full_share,
        text=_percent,
        level="vram",
    ),
    WallFigure(
        name="power",
        hue="sm",
        curves=_POWER,
        value=lambda gpu: gpu.power_w,
        full=_power_limit,
        text=_watts,
        level="power",
    ),
    WallFigure(
        name="temperature",
        hue="sm",
        curves=_HEAT,
        value=lambda gpu: gpu.temperature_c,
        full=_hot_from,
        text=_degrees,
        level="temperature",
        word="temp",
    ),
)
"""In the order in which the key shows them."""


def next_figure(figure: WallFigure) -> WallFigure:
    """The figure after this one; after the last one the first."""
    return WALL_FIGURES[(WALL_FIGURES.index(figure) + 1) % len(WALL_FIGURES)]

"""Which series are charted: names, tones, number formats and scales, the most telling first."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from gpumon.readings.format import amount, count, ratio, watts, whole
from gpumon.readings.history import History
from gpumon.readings.missing import NOT_EXPOSED, Reading


class Curve(NamedTuple):
    """One series: its names on a chart and on a spark, its key in the history, tone and number format."""

    name: str
    word: str
    key: str
    tone: str
    text: Callable[[Reading], str]

    def latest(self, history: History, wall_s: float) -> str:
        """The value of the point at `wall_s`, as text; a dash where it has none."""
        value = history.latest(self.key, wall_s)
        return self.text(NOT_EXPOSED if value != value else value)


class Chart(NamedTuple):
    """One or two curves on one scale; the first is in front, or below where they are stacked."""

    curves: tuple[Curve, ...]
    unit: str = ""
    full: float = 0.0
    """The top of the scale; 0: a round number above the highest value."""
    stacked: bool = False


BUSY: Final = Curve("busy", "busy", "busy", "busy", ratio)
SM: Final = Curve("SM active", "sm", "sm", "sm", ratio)
MFU: Final = Curve("MFU", "mfu", "mfu", "mfu", ratio)
MBU: Final = Curve("MBU", "mbu", "mbu", "mbu", ratio)
DECODE: Final = Curve("decode tok/s", "decode", "decode", "tokens", count)
PREFILL: Final = Curve("prefill tok/s", "prefill", "prefill", "tokens", count)
RUNNING: Final = Curve("running", "run", "running", "accent", whole)
WAITING: Final = Curve("waiting", "wait", "waiting", "warn", whole)
MEMORY: Final = Curve("memory B/s", "B/s", "bandwidth", "mbu", amount)
POWER: Final = Curve("power", "power", "power", "muted", watts)

CHARTS: Final = (
    Chart((SM, BUSY), full=1.0),
    Chart((MFU,), full=1.0),
    Chart((MBU,), full=1.0),
    Chart((DECODE,)),
    Chart((PREFILL,)),
    Chart((RUNNING, WAITING), stacked=True),
    Chart((MEMORY,)),
    Chart((POWER,), unit="W"),
)
SPARKS: Final = (BUSY, SM, MFU, MBU, DECODE, PREFILL, RUNNING, WAITING, MEMORY, POWER)
ONE_LINE: Final = (BUSY, MFU, MBU, DECODE._replace(word="tok/s"))
"""The sparks where there is a single line."""


def most(values: Iterable[float]) -> float:
    """The highest value; 0 where there is none."""
    return max((value for value in values if value == value), default=0.0)


def nice(value: float) -> float:
    """The smallest of 1, 2, 5 x 10^n that is at least `value`; 1 for nothing."""
    if not 1e-300 < value < 1e300:
        return 1.0
    size = 10.0 ** math.floor(math.log10(value))
    return next(size * factor for factor in (1.0, 2.0, 5.0, 10.0, 20.0) if size * factor >= value)

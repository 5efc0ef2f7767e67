"""Which series are charted: names, tones, number formats and scales, the most telling first."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from gpumon.efficiency.points import AT, HOST, OF_GPU, SILENT, in_use
from gpumon.efficiency.service import adding_up
from gpumon.readings.flat import value_of
from gpumon.readings.format import DASH, amount, celsius, count, ratio, round_number, seconds, watts, whole
from gpumon.readings.history import History
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading
from gpumon.readings.snapshot import Snapshot


class Curve(NamedTuple):
    """One series: its names above a chart and beside a spark, its key in the history, tone and number format."""

    name: str
    word: str
    key: str
    tone: str
    text: Callable[[Reading], str]
    mean_s: float = 0.0
    """The figure beside it is the mean of so many seconds, as in the rows that it is the sum of; 0: the newest one."""

    def said(self, value: float) -> str:
        """A value as text; a dash for a gap."""
        return self.text(NOT_EXPOSED if value != value else value)


class Chart(NamedTuple):
    """One or two curves on one scale; the first is in front, or below where they are stacked."""

    curves: tuple[Curve, ...]
    unit: str = ""
    full: float = 0.0
    """The top of the scale; 0: a round number above the highest value."""
    stacked: bool = False

    @property
    def name(self) -> str:
        """Names of the curves, from the top down."""
        return ", ".join(curve.name for curve in self.curves[::-1])

    def scale(self, value: float) -> str:
        """A value of the scale, in at most 5 cells."""
        if self.curves[0].text is ratio:
            return f"{value * 100.0:.3g}%"
        text = round_number(value)
        return text + self.unit if len(text + self.unit) <= 5 else text


_ROWS_S: Final = 10.0
"""Rates and bandwidth stand in rows as means of so long; their curves are of each reading."""

BUSY: Final = Curve("busy", "busy", "busy", "busy", ratio)
SM: Final = Curve("SM active", "sm", "sm", "sm", ratio)
MFU: Final = Curve("MFU", "mfu", "mfu", "mfu", ratio)
MBU: Final = Curve("MBU", "mbu", "mbu", "mbu", ratio)
DECODE: Final = Curve("decode tok/s", "decode", "decode", "tokens", count, _ROWS_S)
PREFILL: Final = Curve("prefill tok/s", "prefill", "prefill", "tokens", count)
TTFT: Final = Curve("TTFT p95, worst", "ttft", "ttft", "accent", seconds)
ITL: Final = Curve("ITL p95, worst", "itl", "itl", "accent", seconds)
KV: Final = Curve("KV cache, fullest", "kv", "kv", "mbu", ratio)
RUNNING: Final = Curve("running", "run", "running", "accent", whole)
WAITING: Final = Curve("waiting", "wait", "waiting", "warn", whole)
VRAM: Final = Curve("VRAM, fullest", "vram", "vram", "mbu", ratio)
POWER: Final = Curve("power", "power", "power", "sm", watts)
HEAT: Final = Curve("°C, hottest", "°C", "temp", "warn", celsius)
MEMORY: Final = Curve("memory B/s", "B/s", "bandwidth", "mbu", amount, _ROWS_S)

CHARTS: Final = (
    Chart((SM, BUSY), full=1.0),
    Chart((MFU, MBU), full=1.0),
    Chart((DECODE,)),
    Chart((PREFILL,)),
    Chart((TTFT,), unit="s"),
    Chart((ITL,), unit="s"),
    Chart((KV,), full=1.0),
    Chart((RUNNING, WAITING), stacked=True),
    Chart((POWER,), unit="W"),
    Chart((HEAT,), full=100.0),
    Chart((VRAM,), full=1.0),
    Chart((MEMORY,)),
)
SPARKS: Final = (*(BUSY, MFU, MBU, DECODE, SM, PREFILL, TTFT, ITL, KV, WAITING, RUNNING, POWER, HEAT, VRAM, MEMORY),)
"""The same one by one, where each has a line alone; the most telling four first."""
CHART_OF: Final = {curve.key: at for at, chart in enumerate(CHARTS) for curve in chart.curves}
"""Key of a series -> the place of its chart in `CHARTS`."""
_SHARES: Final = {
    **{curve.key: (curve.word.upper(), curve.tone) for curve in (SM, MFU, MBU)},
    "busy": ("busy", "busy"),
    "tensor": ("tensor", "sm"),
    "dram": ("DRAM", "mbu"),
    "vram": ("VRAM", "mbu"),
    "kv": ("KV cache", "mbu"),
    "cpu": ("CPU", "busy"),
    "core": ("1 core", "busy"),
    "iowait": ("iowait", "warn"),
    "io": ("IO wait", "warn"),
    "disk": ("disk", "busy"),
}
"""Series of single things that are shares of 1: names and tones."""
_AMOUNTS: Final[dict[str, tuple[str, str, Callable[[Reading], str], str]]] = {
    "running": ("running", "accent", whole, ""),
    "waiting": ("waiting", "warn", whole, ""),
    "decode": ("decode tok/s", "tokens", count, ""),
    "prefill": ("prefill tok/s", "tokens", count, ""),
    "preempt": ("preemptions/s", "warn", count, ""),
    "ttft": ("TTFT p95", "accent", seconds, "s"),
    "itl": ("ITL p95", "accent", seconds, "s"),
    "queue": ("queue, mean", "warn", seconds, "s"),
    "power": ("power", "sm", watts, "W"),
    "clock": ("clock", "accent", amount, "Hz"),
    "temp": ("°C", "warn", celsius, ""),
    "net": ("net B/s", "accent", amount, ""),
}
"""The others: names, tones, how their figures are written, and units."""


def chart_of(key: str, thing: str = "") -> Chart | None:
    """The chart of one series alone, named by `thing` if that is given; None where the key means nothing."""
    mark = AT if AT in key else OF_GPU
    base, found, number = key.partition(mark)
    if not found:
        whole_ = CHARTS[CHART_OF[key]] if key in CHART_OF else None
        own = [curve for curve in whole_.curves if curve.key == key] if whole_ is not None else []
        return whole_._replace(curves=tuple(own), stacked=False) if whole_ is not None else None
    if base not in _SHARES and base not in _AMOUNTS:
        return None
    name, tone, text, unit = (*_SHARES[base], ratio, "") if base in _SHARES else _AMOUNTS[base]
    thing = thing or (f"gpu {number}" if mark == OF_GPU else "host" if number == HOST else "")
    full = 1.0 if base in _SHARES else 100.0 if base == HEAT.key else 0.0
    return Chart((Curve(f"{thing} {name}".strip(), thing or name, key, tone, text),), unit, full)


def parts_of(chart: Chart, known: Collection[str], snapshot: Snapshot) -> list[Chart]:
    """The same of each GPU, or of each engine, as far as the history has it."""
    names = {f"{OF_GPU}{gpu.index}": f"gpu {gpu.index}" for gpu in snapshot.gpus if not gpu.parent_uuid}
    names |= {f"{AT}{engine.key}": engine.name for engine in snapshot.engines}
    keys = ((f"{curve.key}{thing}", name) for thing, name in names.items() for curve in chart.curves[::-1])
    return [part for key, name in keys if key in known and (part := chart_of(key, name)) is not None]


def _engines(field: str) -> Callable[[Snapshot], list[Reading]]:
    return lambda snapshot: [value_of(engine, field) for engine in adding_up(snapshot.engines)]


def _gpus(field: str) -> Callable[[Snapshot], list[Reading]]:
    return lambda snapshot: [getattr(gpu, field) for gpu in snapshot.gpus]


_SUMMED: Final[Mapping[str, tuple[Curve, Callable[[Snapshot], list[Reading]]]]] = MappingProxyType(
    {
        curve.key: (curve, parts)
        for curve, parts in (
            (DECODE, _engines("decode_tokens_per_s")),
            (PREFILL, _engines("prefill_tokens_per_s")),
            (RUNNING, _engines("running")),
            (WAITING, _engines("waiting")),
            (MEMORY, _gpus("bandwidth_bytes_per_s")),
            (POWER, _gpus("power_w")),
        )
    }
)
"""Key of a series that is a sum -> what it is the sum of."""
_MEANS: Final = frozenset((BUSY.key, SM.key, MFU.key, MBU.key))
"""Keys of means over the GPUs in use."""


class Figures:
    """The values of one moment as text: read once, whatever is drawn how often of it."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._now_s = math.nan
        self._texts: dict[str, str] = {}
        self.note: dict[str, str] = {}
        """Key -> of what it is the mean, where that is not everything."""

    def at(self, now_s: float, curves: Iterable[Curve] = SPARKS) -> dict[str, str]:
        """Key -> the value at `now_s`, a dash where that is a gap."""
        if now_s != self._now_s:
            self._now_s = now_s
            self._texts = {}
        for curve in curves:
            if curve.key not in self._texts:
                self._texts[curve.key] = curve.said(self._history.latest(curve.key, now_s, curve.mean_s))
        return self._texts

    def of(self, snapshot: Snapshot) -> None:
        """Read those of a snapshot. While a sum has a gap, as something in it just fell silent, it is said of the
        others, with how many these are: `4.3k of 3/4`."""
        used, every = len(in_use(snapshot.gpus)), len(snapshot.gpus)
        self.note = dict.fromkeys(_MEANS, f"mean of {used} of {every} GPUs: others unused") if used < every else {}
        for key, text in self.at(snapshot.wall_s).items():
            if text == DASH and key in _SUMMED:
                curve, readings = _SUMMED[key][0], _SUMMED[key][1](snapshot)
                known = [reading for reading in readings if not isinstance(reading, Missing)]
                silent = sum(isinstance(reading, Missing) and reading.reason in SILENT for reading in readings)
                if known and silent:
                    self._texts[key] = f"{curve.text(sum(known))} of {len(known)}/{len(known) + silent}"


def ordered(charts: Sequence[Chart], empty: Collection[str]) -> list[Chart]:
    """The charts; those of nothing but `empty` keys come last."""
    return sorted(charts, key=lambda chart: all(curve.key in empty for curve in chart.curves))


def most(values: Iterable[float]) -> float:
    """The highest value; 0 where there is none."""
    return max((value for value in values if value == value), default=0.0)


def nice(value: float) -> float:
    """The smallest of 1, 2, 5 x 10^n that is at least `value`; 1 for nothing."""
    if not 1e-300 < value < 1e300:
        return 1.0
    size = 10.0 ** math.floor(math.log10(value))
    return next(size * factor for factor in (1.0, 2.0, 5.0, 10.0, 20.0) if size * factor >= value)

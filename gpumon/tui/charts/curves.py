"""Which series are charted: names, tones, number formats and scales, the most telling first."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, NamedTuple

from gpumon.efficiency.points import AT, HOST_SERIES, OF_GPU, SILENT_REASONS, in_use
from gpumon.efficiency.service import engines_in_sums
from gpumon.figures.engine import ENGINE
from gpumon.figures.gpu import GPU
from gpumon.readings.flat import value_of
from gpumon.readings.format import DASH, amount, celsius, count, ratio, round_number, seconds, watts, whole
from gpumon.readings.history import History
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading
from gpumon.readings.snapshot import Snapshot


class ChartCurve(NamedTuple):
    """One series: its names above a chart and beside a spark, its key in the history, tone and number format."""

    name: str
    word: str
    key: str
    tone: str
    text: Callable[[Reading], str]
    level: str = ""
    """The key in `levels.LEVEL_BOUNDS` by whose levels it is coloured; its tone is that of calm then."""
    mean_s: float = 0.0
    """The figure beside it is the mean of so many seconds, as in the rows that it is the sum of; 0: the newest one."""

    def text_of(self, value: float) -> str:
        """A value as text; a dash for a gap (NaN)."""
        if math.isnan(value):
            return self.text(NOT_EXPOSED)
        return self.text(value)


class Chart(NamedTuple):
    """One or two curves on one scale; the first is in front, or below where they are stacked."""

    curves: tuple[ChartCurve, ...]
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
        if len(text + self.unit) <= _MOST_SCALE_CELLS:
            return text + self.unit
        return text


_ROW_MEAN_S: Final = 10.0
"""Seconds of which rates and bandwidth are the means in the tables' rows; their curves are of each reading."""
_FULL_HEAT_C: Final = 100.0
"""The top of the scale of temperatures."""
_MOST_SCALE_CELLS: Final = 5
"""Cells of a value of a scale."""
_SINCE_START_S: Final = 60.0
"""Seconds after the first reading in which means since the start of the engines stand in for the past."""
_BUSY: Final = ChartCurve(GPU["busy_ratio"].name, GPU["busy_ratio"].short, "busy", "busy", ratio)
_SM: Final = ChartCurve(GPU["sm_active_ratio"].name, GPU["sm_active_ratio"].short, "sm", "sm", ratio)
MFU: Final = ChartCurve(GPU["mfu_ratio"].name, GPU["mfu_ratio"].short, "mfu", "mfu", ratio)
_MBU: Final = ChartCurve(GPU["mbu_ratio"].name, GPU["mbu_ratio"].short, "mbu", "mbu", ratio)
DECODE: Final = ChartCurve(
    f"{ENGINE['decode_tokens_per_s'].name} tok/s",
    ENGINE["decode_tokens_per_s"].short,
    "decode",
    "tokens",
    count,
    mean_s=_ROW_MEAN_S,
)
_PREFILL: Final = ChartCurve(
    f"{ENGINE['prefill_tokens_per_s'].name} tok/s", ENGINE["prefill_tokens_per_s"].short, "prefill", "tokens", count
)
_TTFT: Final = ChartCurve(
    f"{ENGINE['ttft_s.p95'].name}, worst", ENGINE["ttft_s.p95"].short, "ttft", "ok", seconds, "ttft"
)
_ITL: Final = ChartCurve(f"{ENGINE['itl_s.p95'].name}, worst", ENGINE["itl_s.p95"].short, "itl", "ok", seconds, "itl")
TTFT_OK: Final = ChartCurve(
    f"{ENGINE['ttft_goal.low_ratio'].name}, worst", ENGINE["ttft_goal.low_ratio"].short, "ttft_ok", "accent", ratio
)
ITL_OK: Final = ChartCurve(
    f"{ENGINE['itl_goal.low_ratio'].name}, worst", ENGINE["itl_goal.low_ratio"].short, "itl_ok", "tokens", ratio
)
KV: Final = ChartCurve(
    f"{ENGINE['kv_usage_ratio'].name}, fullest", ENGINE["kv_usage_ratio"].short, "kv", "ok", ratio, "kv"
)
_RUNNING: Final = ChartCurve(ENGINE["running"].name, ENGINE["running"].short, "running", "accent", whole)
_WAITING: Final = ChartCurve(ENGINE["waiting"].name, ENGINE["waiting"].short, "waiting", "warn", whole)
_VRAM: Final = ChartCurve(
    f"{GPU['vram_used_bytes'].name}, fullest", GPU["vram_used_bytes"].short, "vram", "ok", ratio, "vram"
)
_POWER: Final = ChartCurve(GPU["power_w"].name, GPU["power_w"].short, "power", "sm", watts)
HEAT: Final = ChartCurve("°C, hottest", "°C", "temp", "ok", celsius, "temperature")
MEMORY: Final = ChartCurve(
    f"{GPU['bandwidth_bytes_per_s'].name} B/s",
    GPU["bandwidth_bytes_per_s"].short,
    "bandwidth",
    "mbu",
    amount,
    mean_s=_ROW_MEAN_S,
)

CHARTS: Final = (
    Chart((_SM, _BUSY), full=1.0),
    Chart((MFU, _MBU), full=1.0),
    Chart((DECODE,)),
    Chart((_PREFILL,)),
    Chart((_TTFT,), unit="s"),
    Chart((_ITL,), unit="s"),
    Chart((ITL_OK, TTFT_OK), full=1.0),
    Chart((KV,), full=1.0),
    Chart((_RUNNING, _WAITING), stacked=True),
    Chart((_POWER,), unit="W"),
    Chart((HEAT,), full=_FULL_HEAT_C),
    Chart((_VRAM,), full=1.0),
    Chart((MEMORY,)),
)
SPARKS: Final = (
    *(_BUSY, MFU, _MBU, DECODE, _SM, _PREFILL, _TTFT, _ITL, KV, _WAITING, _RUNNING, _POWER, HEAT, _VRAM, MEMORY),
    *(TTFT_OK, ITL_OK),
)
"""The same one by one, where each has a line alone; the most telling four first."""
OF_ENGINES: Final = frozenset(curve.key for curve in (MFU, _MBU, DECODE, _PREFILL, _TTFT, _ITL, KV, _RUNNING, _WAITING))
"""Keys of the series that only engines have; they need some polls, or a request."""
CHART_OF: Final = {curve.key: place for place, chart in enumerate(CHARTS) for curve in chart.curves}
"""Key of a series -> the place of its chart in `CHARTS`."""
_LEVELS: Final = {
    **{curve.key: curve.level for curve in (_TTFT, _ITL, KV, _VRAM, HEAT)},
    **{name: name for name in ("cpu", "core", "iowait", "disk")},
}
"""Series of single things that have levels, and the keys of these in `levels.LEVEL_BOUNDS`."""


class _Format(NamedTuple):
    """The chart of a series of single things."""

    name: str
    tone: str
    text: Callable[[Reading], str]
    """How its figures are written."""
    unit: str = ""
    full: float = 0.0
    """The top of the scale; 0: a round number above the highest value."""


def _share_format(name: str, tone: str) -> _Format:
    """The chart of a share of 1."""
    return _Format(name, tone, ratio, full=1.0)


_FORMATS: Final = {
    **{curve.key: _share_format(curve.word.upper(), curve.tone) for curve in (_SM, MFU, _MBU)},
    "ttft_ok": _share_format(ENGINE["ttft_goal.low_ratio"].name, "accent"),
    "itl_ok": _share_format(ENGINE["itl_goal.low_ratio"].name, "tokens"),
    "busy": _share_format("busy", "busy"),
    "tensor": _share_format(GPU["tensor_active_ratio"].short, "sm"),
    "dram": _share_format(GPU["bandwidth_bytes_per_s"].short, "mbu"),
    "vram": _share_format("VRAM", "ok"),
    "kv": _share_format("KV cache", "ok"),
    "cpu": _share_format("CPU", "ok"),
    "core": _share_format("1 core", "ok"),
    "iowait": _share_format("iowait", "ok"),
    "io": _share_format("IO wait", "warn"),
    "disk": _share_format("disk", "ok"),
    "running": _Format("running", "accent", whole),
    "waiting": _Format("waiting", "warn", whole),
    "decode": _Format("decode tok/s", "tokens", count),
    "prefill": _Format("prefill tok/s", "tokens", count),
    "preempt": _Format("preemptions/s", "warn", count),
    "ttft": _Format("TTFT p95", "ok", seconds, "s"),
    "itl": _Format("ITL p95", "ok", seconds, "s"),
    "queue": _Format("queue, mean", "warn", seconds, "s"),
    "power": _Format("power", "sm", watts, "W"),
    "clock": _Format(GPU["sm_clock_hz"].short, "accent", amount, "Hz"),
    "temp": _Format("°C", "ok", celsius, full=_FULL_HEAT_C),
    "net": _Format("net B/s", "accent", amount),
}
"""Begin of the key of a series of single things (an engine, a GPU, the host) -> its chart."""


def chart_of(key: str, thing: str = "") -> Chart | None:
    """The chart of one series alone, named by `thing` if that is given; None where the key means nothing."""
    mark = AT if AT in key else OF_GPU
    base, divider, number = key.partition(mark)
    if not divider:
        return _host_chart_of(key)
    form = _FORMATS.get(base)
    if form is None:
        return None
    if not thing:
        thing = _thing_name(mark, number)
    title = f"{thing} {form.name}".strip()
    curve = ChartCurve(
        name=title,
        word=thing or form.name,
        key=key,
        tone=form.tone,
        text=form.text,
        level=_LEVELS.get(base, ""),
    )
    return Chart((curve,), form.unit, form.full)


def _host_chart_of(key: str) -> Chart | None:
    """The chart of one series of the whole host, without the curves that share its chart."""
    if key not in CHART_OF:
        return None
    chart = CHARTS[CHART_OF[key]]
    curves = tuple(curve for curve in chart.curves if curve.key == key)
    return chart._replace(curves=curves, stacked=False)


def _thing_name(mark: str, number: str) -> str:
    """The name of a GPU or of the host by the end of a key; empty for an engine, whose name is not in its key."""
    if mark == OF_GPU:
        return f"gpu {number}"
    if number == HOST_SERIES:
        return "host"
    return ""


def parts_of(chart: Chart, known_series: Collection[str], snapshot: Snapshot) -> list[Chart]:
    """The charts of each GPU, or of each engine, that together make this chart, as far as the history has them: curves
    that share a chart share it there, too."""
    parts: list[Chart] = []
    for suffix, name in _suffixes(snapshot).items():
        charts = []
        for curve in chart.curves:
            key = f"{curve.key}{suffix}"
            if key not in known_series:
                continue
            part = chart_of(key, name)
            if part is not None:
                charts.append(part)
        if charts:
            parts.append(_as_one_chart(charts, chart))
    return parts


def _suffixes(snapshot: Snapshot) -> dict[str, str]:
    """End of the keys of a GPU or of an engine -> its name."""
    names = {}
    for gpu in snapshot.gpus:
        if not gpu.parent_uuid:
            names[f"{OF_GPU}{gpu.index}"] = f"gpu {gpu.index}"
    for engine in snapshot.engines:
        names[f"{AT}{engine.key}"] = engine.name
    return names


def _as_one_chart(parts: Sequence[Chart], whole_chart: Chart) -> Chart:
    """Charts of one thing as one, as in the chart of all things: the name of the thing stands before the curve that is
    named first, which is the last; the others have the names that they have there."""
    curves = [part.curves[0] for part in parts]
    names = {curve.key: curve.name for curve in whole_chart.curves}
    for place, curve in enumerate(curves[:-1]):
        divider = AT if AT in curve.key else OF_GPU
        name = names[curve.key.partition(divider)[0]]
        curves[place] = curve._replace(name=name, word=name)
    return parts[-1]._replace(curves=tuple(curves), stacked=whole_chart.stacked)


def _engine_field(field: str) -> Callable[[Snapshot], list[Reading]]:
    """The function that reads a field of all engines that count in sums."""
    return lambda snapshot: [value_of(engine, field) for engine in engines_in_sums(snapshot.engines)]


def _gpu_field(field: str) -> Callable[[Snapshot], list[Reading]]:
    """The function that reads a field of all GPUs."""
    return lambda snapshot: [getattr(gpu, field) for gpu in snapshot.gpus]


class _Sum(NamedTuple):
    """A series that is a sum."""

    curve: ChartCurve
    parts_in: Callable[[Snapshot], list[Reading]]
    """The readings that it is the sum of."""


_SUMS: Final = {
    total.curve.key: total
    for total in (
        _Sum(DECODE, _engine_field("decode_tokens_per_s")),
        _Sum(_PREFILL, _engine_field("prefill_tokens_per_s")),
        _Sum(_RUNNING, _engine_field("running")),
        _Sum(_WAITING, _engine_field("waiting")),
        _Sum(MEMORY, _gpu_field("bandwidth_bytes_per_s")),
        _Sum(_POWER, _gpu_field("power_w")),
    )
}
"""Key of a series that is a sum -> the readings of it."""
_MEANS: Final = frozenset((_BUSY.key, _SM.key, MFU.key, _MBU.key))
"""Keys of means over the GPUs in use."""
_SINCE_START: Final[dict[str, tuple[str, Callable[[list[float]], float]]]] = {
    DECODE.key: ("decode_tokens_per_s", math.fsum),
    _PREFILL.key: ("prefill_tokens_per_s", math.fsum),
    _TTFT.key: ("ttft_s", max),
    _ITL.key: ("itl_s", max),
}
"""Key of a series -> the field of `SinceStart`, and how those of several engines become one."""


def means_since_start(snapshot: Snapshot) -> dict[str, float]:
    """Key of a series -> the mean since the engines started, if all of them know theirs."""
    engines = engines_in_sums(snapshot.engines)
    means: dict[str, float] = {}
    for key, (field, combine) in _SINCE_START.items():
        readings = [getattr(engine.since_start, field) for engine in engines]
        values = []
        for reading in readings:
            if not isinstance(reading, Missing):
                values.append(reading)
        if values and len(values) == len(readings):
            means[key] = combine(values)
    return means


class CurveTexts:
    """The values of one moment as text, which are read once, however many charts show them."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._now_s = math.nan
        self.values: dict[str, float] = {}
        """Key -> the value of that moment; NaN is a gap."""
        self.texts: dict[str, str] = {}
        """Key -> that value as text."""
        self.notes: dict[str, str] = {}
        """Key -> the GPUs that it is the mean of, where these are not all."""
        self.means: dict[str, float] = {}
        """Key -> the mean since the engines started; in the first minute only."""

    def texts_at(self, now_s: float, curves: Iterable[ChartCurve] = SPARKS) -> dict[str, str]:
        """Key -> the text of its value at a Unix time, a dash for a gap."""
        if now_s != self._now_s:
            self._now_s = now_s
            self.texts = {}
            self.values = {}
        for curve in curves:
            if curve.key not in self.texts:
                value = self._history.latest(curve.key, now_s, curve.mean_s)
                self.values[curve.key] = value
                self.texts[curve.key] = curve.text_of(value)
        return self.texts

    def read(self, snapshot: Snapshot) -> None:
        """Read the values of a snapshot, and what notes and means its charts have."""
        used = len(in_use(snapshot.gpus))
        total = len(snapshot.gpus)
        if used < total:
            self.notes = dict.fromkeys(_MEANS, f"mean of {used} of {total} GPUs: others unused")
        else:
            self.notes = {}
        is_first = snapshot.wall_s - self._history.first_s < _SINCE_START_S
        if is_first:
            self.means = means_since_start(snapshot)
        else:
            self.means = {}
        for key, text in self.texts_at(snapshot.wall_s).items():
            if text == DASH and key in _SUMS:
                parts = _SUMS[key].parts_in(snapshot)
                self.texts[key] = _partial_sum_text(_SUMS[key].curve, parts) or text


def _partial_sum_text(curve: ChartCurve, readings: Iterable[Reading]) -> str:
    """A sum with a gap, because something in it just fell silent: what the others have, and how many they are, as
    `4.3k of 3/4`. Empty if nothing has a value, or nothing is silent."""
    values = []
    silent = 0
    for reading in readings:
        if not isinstance(reading, Missing):
            values.append(reading)
        elif reading.reason in SILENT_REASONS:
            silent += 1
    if not values or not silent:
        return ""
    return f"{curve.text(sum(values))} of {len(values)}/{len(values) + silent}"


def with_data(charts: Sequence[Chart], known_series: Collection[str]) -> list[Chart]:
    """The charts in their order, of the curves that are known alone; one without any is left out."""
    charts_with_data: list[Chart] = []
    for chart in charts:
        curves = tuple(curve for curve in chart.curves if curve.key in known_series)
        if curves:
            charts_with_data.append(chart._replace(curves=curves))
    return charts_with_data


def highest_of(values: Iterable[float]) -> float:
    """The highest value; 0 where there is none."""
    return max((value for value in values if value == value), default=0.0)  # no gap: NaN is not equal to itself


def round_up(value: float) -> float:
    """The smallest of 1, 2, 5 x 10^n that is at least `value`; 1 for nothing, and beyond what a float can be scaled."""
    if not 1e-300 < value < 1e300:
        return 1.0
    size = 10.0 ** math.floor(math.log10(value))
    # The last factor is for a logarithm that was rounded down.
    return next(size * factor for factor in (1.0, 2.0, 5.0, 10.0, 20.0) if size * factor >= value)

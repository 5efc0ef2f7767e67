"""Which series are charted: names, tones, number formats and scales, the most telling first."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from gpumon.efficiency.points import AT, HOST_SERIES, OF_GPU, in_use
from gpumon.efficiency.service import engines_in_sums
from gpumon.figures import unit
from gpumon.figures.charted import CHARTED, MEAN_SERIES, SERIES_OF, SUM_SERIES, WORST_SERIES
from gpumon.figures.figure import Charted, Figure
from gpumon.figures.gpu import GPU, SHARES_OF_PEAKS
from gpumon.figures.unit import Unit
from gpumon.readings.flat import value_of
from gpumon.readings.format import (
    DASH,
    amount,
    celsius,
    count,
    quantile,
    ratio,
    round_number,
    seconds,
    watts,
    whole,
)
from gpumon.readings.history import History
from gpumon.readings.missing import NOT_EXPOSED, SILENT_REASONS, Missing, Reading, or_nan
from gpumon.readings.snapshot import Quantiles, Snapshot
from gpumon.tui.levels import CALM


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
        if self.curves[0].text is seconds and 0.0 < value < 1.0:
            return f"{round_number(value * 1e3)}ms"
        text = round_number(value)
        if len(text + self.unit) <= _MOST_SCALE_CELLS:
            return text + self.unit
        return text


_FULL_HEAT_C: Final = 100.0
"""The top of the scale of temperatures."""
_MOST_SCALE_CELLS: Final = 5
"""Cells of a value of a scale."""
_SINCE_START_S: Final = 60.0
"""Seconds after the first reading in which means since the start of the engines stand in for the past."""
_TEXTS: Final[Mapping[Unit, Callable[[Reading], str]]] = {
    unit.SHARE: ratio,
    unit.TOKENS_PER_S: count,
    unit.PER_S: count,
    unit.REQUESTS: whole,
    unit.SECONDS: seconds,
    unit.WATTS: watts,
    unit.HERTZ: amount,
    unit.CELSIUS: celsius,
    unit.BYTES_PER_S_OF_PEAK: amount,
}
"""Unit of a figure -> how a chart writes it: digits that change with every reading are left out."""


def _unit_of(row: Figure, charted: Charted) -> Unit:
    """The unit of the series of a figure."""
    return unit.SHARE if charted.share_of else row.unit


def _text_of(row: Figure, charted: Charted) -> Callable[[Reading], str]:
    """How charts write a figure. Raises ValueError where its unit has no row of `_TEXTS`."""
    charted_unit = _unit_of(row, charted)
    if charted_unit not in _TEXTS:
        raise ValueError(f"{row.field} is charted, and no row of _TEXTS says how charts write its unit")
    return _TEXTS[charted_unit]


def _name_of(row: Figure, charted: Charted) -> str:
    """The name of a figure on charts; a rate has its unit there."""
    if charted.name or row.unit not in (unit.TOKENS_PER_S, unit.BYTES_PER_S_OF_PEAK):
        return charted.name or row.name
    return f"{row.name} {row.unit.symbol.partition(',')[0]}"


def _curve_of(row: Figure, charted: Charted) -> ChartCurve:
    """The curve of a figure in the chart of all things."""
    return ChartCurve(
        name=_name_of(row, charted) + charted.of_all,
        word=row.short,
        key=charted.series,
        tone=charted.tone,
        text=_text_of(row, charted),
        level=row.level if charted.tone == CALM else "",
        mean_s=charted.mean_s,
    )


CURVES: Final = {series: _curve_of(row, charted) for series, (row, charted) in CHARTED.items()}
"""Name of a series -> its curve in the chart of all things."""
_TOPS: Final = {unit.SHARE: 1.0, unit.CELSIUS: _FULL_HEAT_C}
"""Unit -> the top of its scale, where that is fixed."""
_SCALED: Final = (unit.SECONDS, unit.WATTS, unit.HERTZ)
"""Units that stand beside a scale."""


def _chart(*series: str, stacked: bool = False) -> Chart:
    """The chart of all things with these series, the first one in front."""
    charted_unit = _unit_of(*CHARTED[series[0]])
    symbol = charted_unit.symbol if charted_unit in _SCALED else ""
    return Chart(tuple(CURVES[name] for name in series), symbol, _TOPS.get(charted_unit, 0.0), stacked)


CHARTS: Final = (
    _chart("sm", "busy"),
    _chart("mfu", "mbu"),
    _chart("tensor"),
    _chart("decode"),
    _chart("prefill"),
    _chart("ttft"),
    _chart("itl"),
    _chart("itl_ok", "ttft_ok"),
    _chart("kv"),
    _chart("running", "waiting", stacked=True),
    _chart("bandwidth"),
    _chart("vram"),
    _chart("power"),
    _chart("temp"),
)
SPARKS: Final = tuple(
    CURVES[series]
    for series in (
        *("decode", "mfu", "busy", "tensor", "mbu", "sm", "bandwidth", "prefill", "ttft", "itl", "kv", "waiting"),
        *("running", "vram", "power", "temp", "ttft_ok", "itl_ok"),
    )
)
"""The same one by one, where each has a line alone; the most telling first."""
_IN_PLACE_OF: Final = {"tensor": frozenset(SERIES_OF[field] for field in SHARES_OF_PEAKS)}
"""Series -> others that say more: it is charted where there is none of these."""
OF_ENGINES: Final = frozenset(("mfu", "mbu", "decode", "prefill", "ttft", "itl", "kv", "running", "waiting"))
"""Keys of the series that only engines have; they need some polls, or a request."""
CHART_OF: Final = {curve.key: place for place, chart in enumerate(CHARTS) for curve in chart.curves}
"""Key of a series -> the place of its chart in `CHARTS`."""
_QUANTILES: Final = {
    series: row.field.partition(".")[0] for series, row in WORST_SERIES.items() if row.field.endswith(".p95")
}
"""Series of a p95 -> the field of an engine's latencies that has its quantiles."""
_LEVELS: Final = {
    **{series: curve.level for series, curve in CURVES.items() if curve.level},
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


def _format_of(row: Figure, charted: Charted) -> _Format:
    """The chart of a figure of one thing."""
    charted_unit = _unit_of(row, charted)
    return _Format(
        charted.alone or _name_of(row, charted),
        charted.tone,
        _text_of(row, charted),
        charted_unit.symbol if charted_unit in _SCALED else "",
        _TOPS.get(charted_unit, 0.0),
    )


_FORMATS: Final = {
    **{series: _format_of(row, charted) for series, (row, charted) in CHARTED.items()},
    "dram": _share_format(GPU["bandwidth_bytes_per_s"].short, "mbu"),
    "cpu": _share_format("CPU", "ok"),
    "core": _share_format("1 core", "ok"),
    "iowait": _share_format("iowait", "ok"),
    "io": _share_format("IO wait", "warn"),
    "disk": _share_format("disk", "ok"),
    "net": _Format("net B/s", "accent", amount),
}
"""Begin of the key of a series of single things (an engine, a GPU, the host) -> its chart."""


def name_alone(series: str) -> str:
    """The name of a series on the chart of one thing."""
    return _FORMATS[series].name


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
    names = {
        f"{OF_GPU}{gpu.reading.index}": f"gpu {gpu.reading.index}"
        for gpu in snapshot.gpus
        if not gpu.reading.parent_uuid
    }
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


def _parts_of_sum(row: Figure, snapshot: Snapshot) -> list[Reading]:
    """The readings that the sum of a figure is made of: of all GPUs, or of all engines that count in sums."""
    if GPU.get(row.field) is row:
        return [value_of(gpu, row.field) for gpu in snapshot.gpus]
    return [value_of(engine, row.field) for engine in engines_in_sums(snapshot.engines)]


_SINCE_START: Final[dict[str, tuple[str, Callable[[list[float]], float]]]] = {
    "decode": ("decode_tokens_per_s", math.fsum),
    "prefill": ("prefill_tokens_per_s", math.fsum),
    "ttft": ("ttft_s", max),
    "itl": ("itl_s", max),
}
"""Key of a series -> the field of `SinceStart`, and how those of several engines become one."""


def means_since_start(snapshot: Snapshot) -> dict[str, float]:
    """Key of a series -> the mean since the engines started, if all of them know theirs."""
    engines = engines_in_sums(snapshot.engines)
    means: dict[str, float] = {}
    for key, (field, combine) in _SINCE_START.items():
        readings = [getattr(engine.since_start, field) for engine in engines]
        values = [reading for reading in readings if not isinstance(reading, Missing)]
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
        self.basis = ""
        """The same in short, for all of them."""
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
        self.notes = {}
        self.basis = ""
        if used < total:
            self.notes = dict.fromkeys(MEAN_SERIES, f"mean of {used} of {total} GPUs: others unused")
            self.basis = f"means: {used} of {total} GPUs"
        is_first = snapshot.wall_s - self._history.first_s < _SINCE_START_S
        if is_first:
            self.means = means_since_start(snapshot)
        else:
            self.means = {}
        for key, text in self.texts_at(snapshot.wall_s).items():
            if text == DASH and key in SUM_SERIES:
                parts = _parts_of_sum(SUM_SERIES[key], snapshot)
                self.texts[key] = _partial_sum_text(CURVES[key], parts) or text
        self._write_bounds(snapshot)

    def _write_bounds(self, snapshot: Snapshot) -> None:
        """Write a quantile in the first or the last bucket of its histogram as the bound that it is: `<10ms`."""
        for series, field in _QUANTILES.items():
            shown: dict[str, Quantiles] = {}
            for engine in snapshot.engines:
                quantiles = getattr(engine.latency, field)
                if not isinstance(quantiles.p95, Missing):
                    shown[f"{series}{AT}{engine.key}"] = quantiles
            if shown:
                shown[series] = max(shown.values(), key=attrgetter("p95"))
            for key, quantiles in shown.items():
                text = quantile(quantiles)
                if text.startswith(("<", ">")):
                    self.texts[key] = text
                    self.values[key] = or_nan(quantiles.p95)


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


def _is_charted(key: str, known_series: Collection[str]) -> bool:
    """Whether a series has values, and none that says more has."""
    return key in known_series and not _IN_PLACE_OF.get(key, frozenset()).intersection(known_series)


def with_data(charts: Sequence[Chart], known_series: Collection[str]) -> list[Chart]:
    """The charts in their order, of the curves that are known alone; one without any is left out."""
    charts_with_data: list[Chart] = []
    for chart in charts:
        curves = tuple(curve for curve in chart.curves if _is_charted(curve.key, known_series))
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

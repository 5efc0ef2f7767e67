"""One tick's points for the charts: means of shares, sums of amounts, gaps where a sum is not known; then the series of
single things: `busy:3` of a GPU, `kv@KEY` of an engine, `iowait@host`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final

import msgspec

from gpumon.efficiency.activity import dram_share
from gpumon.efficiency.goodput import promised_itl, promised_ttft
from gpumon.efficiency.merged import merge_things
from gpumon.efficiency.ratio import divide, plus
from gpumon.efficiency.service import engines_in_sums
from gpumon.figures.charted import CHARTED, MEAN_SERIES, SERIES_OF, SUM_SERIES, WORST_SERIES
from gpumon.figures.engine import ENGINE
from gpumon.figures.figure import HIGHER, Charted, Figure, Figures
from gpumon.figures.gpu import GPU, SHARES_OF_PEAKS, USE
from gpumon.readings.flat import getter
from gpumon.readings.frame import EndpointState, HostReading
from gpumon.readings.missing import SILENT_REASONS, Missing, Reading, or_nan
from gpumon.readings.snapshot import Engine, Gpu, physical_gpus

NAN: Final = float("nan")
SETTLED_S: Final = 30.0
"""Seconds for which a sum is a gap after one of its parts fell silent; then it is the sum of the others."""

OF_GPU: Final = ":"
"""Between the name of a series and the index of a GPU."""
AT: Final = "@"
"""Between the name of a series and `Engine.key`, or `HOST_SERIES`."""
HOST_SERIES: Final = "host"
MOST_CHARTED_GPUS: Final = 128
MOST_CHARTED_ENGINES: Final = 12
"""Things of a kind that have all their series: what a history may take is bounded."""
_LEAST_BUSY: Final = 0.01
"""Busy share from which on a GPU works."""


_Read = Callable[[Any], Reading]
_OWN_READS: Final[dict[str, _Read]] = {
    "ttft_ok": lambda engine: promised_ttft(engine.goodput),
    "itl_ok": lambda engine: promised_itl(engine.goodput),
}
"""Series -> what reads it of its thing, where that is more than a field."""


def _read_of(kind: type[Gpu] | type[Engine], row: Figure, charted: Charted) -> _Read:
    """The reader of a figure's series."""
    if charted.series in _OWN_READS:
        return _OWN_READS[charted.series]
    read = getter(kind, row.field)
    if not charted.share_of:
        return read
    read_all = getter(kind, charted.share_of)
    return lambda thing: divide(read(thing), read_all(thing))


def _reads_of(kind: type[Gpu] | type[Engine], rows: Figures) -> dict[str, _Read]:
    """Name of each series of a GPU or an engine -> what reads it."""
    return {
        series: _read_of(kind, row, charted) for series, (row, charted) in CHARTED.items() if rows.get(row.field) is row
    }


_READS_OF_HOST: Final[dict[str, _Read]] = {
    "cpu": attrgetter("cpu_ratio"),
    "core": attrgetter("busiest_core_ratio"),
    "iowait": attrgetter("iowait_ratio"),
    "io": attrgetter("io_pressure_ratio"),
    "disk": attrgetter("disk_busy_ratio"),
    "net": lambda host: plus(host.network_rx_bytes_per_s, host.network_tx_bytes_per_s),
}
_READS_OF_GPU: Final = _reads_of(Gpu, GPU)
_READS_OF_ENGINE: Final = {
    **_reads_of(Engine, ENGINE),
    **{SERIES_OF[field]: getter(Engine, field) for field in SHARES_OF_PEAKS},
}
_OF_EVERY_GPU: Final = tuple(SERIES_OF[field] for field in USE)
"""Series that all GPUs have, however many there are, with gaps where one lacks the figure."""
_FURTHER_READS_OF_GPU: Final = {
    **{series: read for series, read in _READS_OF_GPU.items() if series not in (*_OF_EVERY_GPU, "bandwidth")},
    "dram": dram_share,
}
"""Further series of a GPU, which verdicts stand on; its bandwidth is a share there."""


class _Part(msgspec.Struct, frozen=True):
    """A thing that was counted; times are of the monotonic clock."""

    silent_s: float | None = None
    """When it fell silent; None once it is counted again for good."""
    back_s: float = 0.0
    """Since when it is counted again."""


_ANSWERS: Final = _Part()
"""A part that has answered for long."""


class SumsOfThings:
    """Sums over things that come and go; remembers when each of them fell silent."""

    def __init__(self) -> None:
        self._parts: dict[str, dict[str, _Part]] = {}
        """Series -> thing that was counted."""

    def add_up(self, series: str, parts: Iterable[tuple[str, Reading]], now_s: float) -> float:
        """The sum of what the named things report; NaN while one of them has just fallen silent, or none reports.

        A part that drops out makes a step that looks like less load or less power, though nobody knows what it does
        now. But a GPU that is lost for good must not blank the chart for good, so the gap ends after `SETTLED_S`, or
        when the part answers again: then what is left is all that there is. It is a gap of at least one tick. One that
        comes and goes makes one gap: the next is not before it has answered for `SETTLED_S`.
        """
        before = self._parts.get(series, {})
        now: dict[str, _Part] = {}
        total = 0.0
        is_any_known = False
        is_whole = True
        for thing, reading in parts:
            last = before.get(thing)
            if not isinstance(reading, Missing):
                total = total + reading
                is_any_known = True
                now[thing] = _answering_part(last, now_s)
            elif last is not None and reading.reason in SILENT_REASONS:
                silent_s = now_s if last.silent_s is None else last.silent_s
                now[thing] = _Part(silent_s)
                is_whole = is_whole and now_s - silent_s >= SETTLED_S
        self._parts[series] = now
        if is_any_known and is_whole:
            return total
        return NAN


def _answering_part(last: _Part | None, now_s: float) -> _Part:
    """Memory of a part that answers now: until it has done so for a while, when it fell silent before."""
    if last is None or last.silent_s is None:
        return _ANSWERS
    back_s = last.back_s or now_s
    if now_s - back_s >= SETTLED_S:
        return _ANSWERS
    return _Part(silent_s=last.silent_s, back_s=back_s)


def chart_points(
    gpus: Sequence[Gpu],
    engines: Sequence[Engine],
    decode_rates: Sequence[Reading],
    bandwidths: Sequence[Reading],
    host: HostReading,
    totals: SumsOfThings,
    now_s: float,
) -> dict[str, float]:
    """This tick's value of each series: shares over the GPUs that report them, by the rules of their
    rows, and sums of amounts (see `SumsOfThings`).

    `decode_rates` are the engines' decode rates and `bandwidths` the GPUs' bandwidths at this tick: those of the things
    themselves are means of a window. What is charted always comes first, for a history that is full takes no more.
    """
    decode_rate_of = {engine.key: decode_rate for engine, decode_rate in zip(engines, decode_rates, strict=True)}
    engines_summed = engines_in_sums(engines)
    uuids = [gpu.reading.uuid for gpu in gpus]
    keys = [engine.key for engine in engines_summed]
    now: dict[str, Iterable[Reading]] = {"bandwidth": bandwidths, "decode": [decode_rate_of[key] for key in keys]}
    used_gpus = in_use(gpus)
    points = {series: or_nan(merge_things(row, used_gpus).value) for series, row in MEAN_SERIES.items()}
    for series, row in WORST_SERIES.items():
        if series in _READS_OF_GPU:
            points[series] = _worst(row, map(_READS_OF_GPU[series], gpus))
        else:
            points[series] = _worst(row, map(_READS_OF_ENGINE[series], engines))
    for series in SUM_SERIES:
        if series in _READS_OF_GPU:
            parts = zip(uuids, now.get(series) or map(_READS_OF_GPU[series], gpus), strict=True)
        else:
            parts = zip(keys, now.get(series) or map(_READS_OF_ENGINE[series], engines_summed), strict=True)
        points[series] = totals.add_up(series, parts, now_s)
    points["replicas"] = _replicas(engines_summed)
    return points | _points_of_gpus(gpus) | _points_of_things(gpus, engines, host)


def _replicas(engines: Sequence[Engine]) -> float:
    """Number of engines that answer; a gap where there is none at all."""
    if not engines:
        return NAN
    return float(sum(engine.state is EndpointState.OK for engine in engines))


def _points_of_gpus(gpus: Sequence[Gpu]) -> dict[str, float]:
    """The charted shares of every GPU; a MIG slice carries its parent's index and has none."""
    points: dict[str, float] = {}
    for gpu in gpus:
        if gpu.reading.parent_uuid:
            continue
        for series, key in zip(_OF_EVERY_GPU, _keys(_OF_EVERY_GPU, OF_GPU, str(gpu.reading.index)), strict=True):
            points[key] = or_nan(_READS_OF_GPU[series](gpu))
    return points


def _points_of_things(gpus: Sequence[Gpu], engines: Sequence[Engine], host: HostReading) -> dict[str, float]:
    """Series that verdicts stand on. A thing that lacks a figure has no series of it, which saves its memory."""
    points = _known_points(_READS_OF_HOST, host, AT, HOST_SERIES)
    for gpu in physical_gpus(gpus)[:MOST_CHARTED_GPUS]:
        points |= _known_points(_FURTHER_READS_OF_GPU, gpu, OF_GPU, str(gpu.reading.index))
    for engine in engines[:MOST_CHARTED_ENGINES]:
        points |= _known_points(_READS_OF_ENGINE, engine, AT, engine.key)
    return points


@lru_cache(maxsize=64)
def _keys(names: tuple[str, ...], between: str, thing: str) -> tuple[str, ...]:
    """Keys of a thing's series: the same at every tick, and making them is a fifth of what all points cost."""
    return tuple(f"{name}{between}{thing}" for name in names)


def _known_points(
    reads: Mapping[str, _Read], thing: Gpu | Engine | HostReading, between: str, name: str
) -> dict[str, float]:
    """Key of each series of a thing -> its point, of those that are known."""
    points: dict[str, float] = {}
    for key, read in zip(_keys(tuple(reads), between, name), reads.values(), strict=True):
        reading = read(thing)
        if not isinstance(reading, Missing):
            points[key] = reading
    return points


def in_use(gpus: Sequence[Gpu]) -> Sequence[Gpu]:
    """The GPUs that a mean is over: idle spares, with no engine, no process and no work, would only dilute it; all of
    them where there is nothing else."""
    used = [
        gpu for gpu in gpus if gpu.engines or gpu.reading.processes or or_nan(gpu.reading.busy_ratio) >= _LEAST_BUSY
    ]
    return used or gpus


def _worst(row: Figure, readings: Iterable[Reading]) -> float:
    """The worst known reading, which is the smallest where more is better; NaN where none is known."""
    known = [reading for reading in readings if not isinstance(reading, Missing)]
    if not known:
        return NAN
    return min(known) if row.better == HIGHER else max(known)

"""One tick's points for the charts: means of shares, sums of amounts, gaps where a sum is not known; then the series of
single things: `busy:3` of a GPU, `kv@KEY` of an engine, `iowait@host`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from gpumon.efficiency.goodput import promised_itl, promised_ttft
from gpumon.efficiency.merged import merge_known
from gpumon.efficiency.ratio import divide, plus
from gpumon.efficiency.service import engines_in_sums
from gpumon.figures.gpu import GPU
from gpumon.readings.flat import value_of
from gpumon.readings.frame import EndpointState, HostReading
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading, Reason, or_nan
from gpumon.readings.snapshot import BandwidthSource, Engine, Gpu, physical_gpus

NAN: Final = float("nan")
SETTLED_S: Final = 30.0
"""Seconds for which a sum is a gap after one of its parts fell silent; then it is the sum of the others."""
SILENT_REASONS: Final = frozenset({Reason.LOST, Reason.STALE, Reason.UNREACHABLE})
"""Why a thing that was counted does not answer any more; any other reason is a thing that answers."""

OF_GPU: Final = ":"
"""Between the name of a series and the index of a GPU."""
AT: Final = "@"
"""Between the name of a series and `Engine.key`, or `HOST_SERIES`."""
HOST_SERIES: Final = "host"
MOST_CHARTED_GPUS: Final = 128
MOST_CHARTED_ENGINES: Final = 12
"""Things of a kind that have all their series: what a history may take is bounded."""
_HOST_SERIES: Final = ("cpu", "core", "iowait", "io", "disk", "net")
_GPU_SERIES: Final = ("sm", "tensor", "dram", "power", "clock", "vram", "temp")
"""`dram` is the share of the peak bandwidth where that is measured, `vram` the share in use."""
_ENGINE_SERIES: Final = (
    "running", "waiting", "kv", "decode", "prefill", "mfu", "mbu",
    "ttft", "itl", "queue", "preempt", "ttft_ok", "itl_ok",
)  # fmt: skip
"""Latencies are p95 of the last minute, the time in the queue its mean: rules compare that with the mean TTFT. Shares
within the goals are the least that is certain."""
_LEAST_BUSY: Final = 0.01
"""Busy share from which on a GPU works."""
MEASURED_BANDWIDTHS: Final = (BandwidthSource.GPM, BandwidthSource.DCGM)
"""Sources of a bandwidth that is neither modelled nor an upper bound."""


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
                silent_s = last.silent_s
                if silent_s is None:
                    silent_s = now_s
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
    used_gpus = in_use(gpus)

    def over_gpus(name: str, readings: Iterable[Reading]) -> float:
        return totals.add_up(name, zip(uuids, readings, strict=True), now_s)

    def over_engines(name: str, readings: Iterable[Reading]) -> float:
        return totals.add_up(name, zip(keys, readings, strict=True), now_s)

    points = {
        "busy": _over_gpus(used_gpus, "busy_ratio"),
        "sm": _over_gpus(used_gpus, "sm_active_ratio"),
        "tensor": _over_gpus(used_gpus, "tensor_active_ratio"),
        "mfu": _over_gpus(used_gpus, "mfu_ratio"),
        "mbu": _over_gpus(used_gpus, "mbu_ratio"),
        "vram": _largest(divide(gpu.reading.vram_used_bytes, gpu.reading.vram_total_bytes) for gpu in gpus),
        "temp": _largest(_figures(gpus, "temperature_c")),
        "kv": _largest(_figures(engines, "kv_usage_ratio")),
        "ttft": _largest(_figures(engines, "ttft_s.p95")),
        "itl": _largest(_figures(engines, "itl_s.p95")),
        "ttft_ok": _smallest(promised_ttft(engine.goodput) for engine in engines),
        "itl_ok": _smallest(promised_itl(engine.goodput) for engine in engines),
        "bandwidth": over_gpus("bandwidth", bandwidths),
        "power": over_gpus("power", _figures(gpus, "power_w")),
        "prefill": over_engines("prefill", _figures(engines_summed, "prefill_tokens_per_s")),
        "decode": over_engines("decode", [decode_rate_of[key] for key in keys]),
        "running": over_engines("running", _figures(engines_summed, "running")),
        "waiting": over_engines("waiting", _figures(engines_summed, "waiting")),
        "replicas": _replicas(engines_summed),
    }
    return points | _points_of_gpus(gpus) | _points_of_things(gpus, engines, host)


def _figures(things: Iterable[Gpu | Engine], path: str) -> list[Reading]:
    """One figure of every GPU or engine, by its flat path."""
    return [value_of(thing, path) for thing in things]


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
        busy, mfu, mbu = _keys(("busy", "mfu", "mbu"), OF_GPU, str(gpu.reading.index))
        points[busy] = or_nan(gpu.reading.busy_ratio)
        points[mfu] = or_nan(gpu.mfu_ratio)
        points[mbu] = or_nan(gpu.mbu_ratio)
    return points


def _points_of_things(gpus: Sequence[Gpu], engines: Sequence[Engine], host: HostReading) -> dict[str, float]:
    """Series that verdicts stand on. A thing that lacks a figure has no series of it, which saves its memory."""
    points = _known_points(_keys(_HOST_SERIES, AT, HOST_SERIES), _host_readings(host))
    for gpu in physical_gpus(gpus)[:MOST_CHARTED_GPUS]:
        points.update(_known_points(_keys(_GPU_SERIES, OF_GPU, str(gpu.reading.index)), _gpu_readings(gpu)))
    for engine in engines[:MOST_CHARTED_ENGINES]:
        points.update(_known_points(_keys(_ENGINE_SERIES, AT, engine.key), _engine_readings(engine)))
    return points


@lru_cache(maxsize=64)
def _keys(names: tuple[str, ...], between: str, thing: str) -> tuple[str, ...]:
    """Keys of a thing's series: the same at every tick, and making them is a fifth of what all points cost."""
    return tuple(f"{name}{between}{thing}" for name in names)


def _known_points(keys: Iterable[str], readings: Iterable[Reading]) -> dict[str, float]:
    """Key of a series -> its point, of those that are known."""
    pairs = zip(keys, readings, strict=True)
    return {key: reading for key, reading in pairs if not isinstance(reading, Missing)}


def _host_readings(host: HostReading) -> tuple[Reading, ...]:
    """The host's readings in the order of `_HOST_SERIES`."""
    return (
        host.cpu_ratio,
        host.busiest_core_ratio,
        host.iowait_ratio,
        host.io_pressure_ratio,
        host.disk_busy_ratio,
        plus(host.network_rx_bytes_per_s, host.network_tx_bytes_per_s),
    )


def _gpu_readings(gpu: Gpu) -> tuple[Reading, ...]:
    """A GPU's readings in the order of `_GPU_SERIES`."""
    dram: Reading = NOT_EXPOSED
    if gpu.bandwidth_source in MEASURED_BANDWIDTHS:
        dram = divide(gpu.bandwidth_bytes_per_s, gpu.bandwidth_peak_bytes_per_s)
    return (
        gpu.reading.sm_active_ratio,
        gpu.reading.tensor_active_ratio,
        dram,
        gpu.power_w,
        gpu.reading.sm_clock_hz,
        divide(gpu.reading.vram_used_bytes, gpu.reading.vram_total_bytes),
        gpu.reading.temperature_c,
    )


def _engine_readings(engine: Engine) -> tuple[Reading, ...]:
    """An engine's readings in the order of `_ENGINE_SERIES`."""
    load = engine.load
    rates = engine.rates
    latency = engine.latency
    efficiency = engine.efficiency
    return (
        load.running,
        load.waiting,
        load.kv_usage_ratio,
        rates.decode_tokens_per_s,
        rates.prefill_tokens_per_s,
        efficiency.mfu_ratio,
        efficiency.mbu_ratio,
        latency.ttft_s.p95,
        latency.itl_s.p95,
        latency.queue_s.mean,
        rates.preemptions_per_s,
        promised_ttft(engine.goodput),
        promised_itl(engine.goodput),
    )


def in_use(gpus: Sequence[Gpu]) -> Sequence[Gpu]:
    """The GPUs that a mean is over: idle spares, with no engine, no process and no work, would only dilute it; all of
    them where there is nothing else."""
    used = [
        gpu for gpu in gpus if gpu.engines or gpu.reading.processes or or_nan(gpu.reading.busy_ratio) >= _LEAST_BUSY
    ]
    return used or gpus


def _largest(readings: Iterable[Reading]) -> float:
    """The largest known reading; NaN where none is known."""
    return max((reading for reading in readings if not isinstance(reading, Missing)), default=NAN)


def _smallest(readings: Iterable[Reading]) -> float:
    """The smallest known reading; NaN where none is known."""
    return min((reading for reading in readings if not isinstance(reading, Missing)), default=NAN)


def _over_gpus(gpus: Sequence[Gpu], field: str) -> float:
    """A figure of the GPUs of which it is known, by the rule of its row; NaN where it is known of none."""
    row = GPU[field]
    weights = _figures(gpus, row.weight) if row.weight else ()
    return or_nan(merge_known(row, _figures(gpus, field), weights).value)

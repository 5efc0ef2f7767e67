"""A GPU's raw readings, its engines and its peaks to the `Gpu` that is shown."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from math import isclose
from typing import Final, NamedTuple

import msgspec

from gpumon.efficiency.peaks import Peak, flops_peak_of, is_format_assumed
from gpumon.efficiency.provenance import (
    MEMORY_OF_HOST,
    MEMORY_V1,
    MEMORY_V2,
    OTHER_LIBRARIES,
    SYSFS_INTEL,
    ExporterPart,
    gpu_sources,
)
from gpumon.efficiency.ratio import busy, divide, plus
from gpumon.efficiency.restarts import growth_of
from gpumon.efficiency.tracks import GAP_INTERVALS, RATE_S
from gpumon.figures.gpu import IN_ROWS
from gpumon.readings.dcgm import DCGM
from gpumon.readings.flat import replace_fields
from gpumon.readings.frame import (
    GPU_FIGURES,
    EndpointState,
    EngineReading,
    Frame,
    GpuProcess,
    GpuReading,
    GpuState,
)
from gpumon.readings.missing import NOT_SUPPORTED, WARMING_UP, Missing, Reading, Reason, number
from gpumon.readings.smi import SMI
from gpumon.readings.snapshot import BandwidthSource, Engine, Gpu
from gpumon.readings.sysfs import SYSFS
from gpumon.readings.text import MOST_CHARACTERS, clean
from gpumon.specs.precision import Precision

BUSY_MEAN_MINUTES: Final = 60
"""Minutes of the window of `busy_mean_ratio`, also those in which nothing was read."""
ENERGY_S: Final = 0.9
"""Least time between two energy readings: the counters move in steps of up to 100 ms."""
MOST_POWER_W: Final = 20_000.0
"""No GPU draws as much (a GB300 superchip with its CPU: 2.9 kW): an energy counter that grew faster has jumped."""
_BLANK: Final = {
    GpuState.STALE: Missing(Reason.STALE),
    GpuState.MUTE: Missing(Reason.STALE, "the driver's calls for it do not return"),
    GpuState.LOST: Missing(Reason.LOST),
    GpuState.INITIALISING: Missing(Reason.WARMING_UP),
}
"""States in which a GPU has no figures at all."""
_SILENT: Final = (GpuState.LOST, GpuState.ERROR, GpuState.MUTE)
"""States whose age counts from the last good answer, however often it was tried again since."""
_TEXTS: Final = {
    "uuid": MOST_CHARACTERS,
    "name": MOST_CHARACTERS,
    "state_text": MOST_CHARACTERS,
    "parent_uuid": MOST_CHARACTERS,
    "mig_profile": MOST_CHARACTERS,
    "compute_capability": MOST_CHARACTERS,
    "host": 64,
}
"""Texts of a reading that come from outside and are shown -> characters that are kept of them."""
_KEPT: Final = frozenset(
    (
        *("bandwidth_peak_bytes_per_s", "flops_peak_per_s", "achievable_ratio", "activity_age_s", "busy_mean_ratio"),
        *("cost_per_hour", "unused_s", "unused_cost", "energy_cost"),
    )
)
"""Derived figures that a GPU has though it does not answer."""
_UNREAD: Final = tuple(
    field.name
    for field in msgspec.structs.fields(Gpu)
    if isinstance(field.default, Missing) and field.name not in _KEPT
)
"""Derived figures that a GPU does not have while it does not answer."""
MOST_WINDOW_S: Final = 120.0
"""Longest window of GPUs that are read more often than their engines: every reading in it is kept."""
COUNTER_SLACK_S: Final = 10.0
"""A counter of seconds is read every few ticks: it may have grown by that much more than the clock since the last."""
COMMAND_CHARACTERS: Final = 512
"""Characters of a process's command line that are shown."""
_OLD_EXPORTER: Final = Missing(Reason.STALE, "the dcgm-exporter has not measured it anew for 3 of its intervals")
_UNMEASURED: Final = Missing(Reason.UNKNOWN_GPU, "nobody has measured it on this type of GPU in this format")
_SEVERAL_PRECISIONS: Final = Missing(
    Reason.NOT_MODELLED, "its engines compute in several precisions, each with a peak of its own"
)
_UNDER_MIG: Final = Missing(Reason.UNDER_MIG)
_RANK_RESTS: Final = Missing(
    Reason.IDLE, "its data-parallel rank does nothing; the engine's figure is a mean over its ranks"
)
_SAME_PEAK: Final = 0.01
"""Share by which the peak bandwidths of two GPUs of one type may differ, as their clocks do."""
RESTING_BUSY_RATIO: Final = 0.02
"""Busy share below which a GPU does nothing for its engine; a kernel runs now and then all the same."""


class _CounterValue(NamedTuple):
    """A counter of the driver as it was read."""

    value: float
    """In joules of energy, or seconds slowed down."""
    read_s: float
    """When it was read (monotonic)."""


class _BusyMinute(NamedTuple):
    """How busy a GPU was in one minute."""

    minute: int
    """Number of the minute on the monotonic clock."""
    busy_s: float
    read_s: float
    """Seconds of it that readings cover."""


class GpuTrack:
    """Readings of one GPU from frame to frame: its means, energy and time slowed down."""

    reading: GpuReading
    """The newest one; `take` sets it."""

    def __init__(self) -> None:
        self.state = GpuState.INITIALISING
        self.age_s = 0.0
        """Seconds since it was read; of a silent GPU, since it answered last."""
        self.read_s = 0.0
        """Seconds since it was read, also by a try that failed."""
        self.why_blank: Missing | None = None
        """Why it has no figures now."""
        self.window_s = RATE_S
        """Length of the means: that of the token rates."""
        self._longest_s = 0.0
        """Longest time between two readings that was no pause at the newest one."""
        self.energy_j: Reading = WARMING_UP
        """Energy since gpumon started."""
        self._energy_counter: _CounterValue | None = None
        """The newest value of the energy counter; None before a base line."""
        self._energies: deque[_CounterValue] = deque()
        """Values of the energy counter in the last `window_s`, without a gap; their slope is the power."""
        self.answered_s: float | None = None
        """When it answered last as it should (monotonic); of a GPU that never did: when that was seen first."""
        self._last_s: float | None = None
        """When the newest reading with figures was made (monotonic)."""
        self.throttle_s: dict[str, float] = {}
        """Cause -> seconds slowed down since gpumon started; replaced, never changed, as snapshots share it."""
        self._throttle_counters: dict[str, float] = {}
        """Cause -> the driver's counter as it was read last: the same values again are no new reading."""
        self._counted: dict[str, _CounterValue] = {}
        """Cause -> the newest value of its counter."""
        self._processes: tuple[tuple[GpuProcess, ...], tuple[GpuProcess, ...]] = ((), ())
        """The driver's newest list of processes, and the same as it is shown."""
        self._busy: deque[_BusyMinute] = deque()
        """Minutes of the last hour."""
        self._recent: deque[GpuReading] = deque()
        """Readings without a gap; the first is `window_s` old or older and only dates the second."""

    def take(self, reading: GpuReading, frame: Frame, window_s: float) -> None:
        """Take in a frame's reading.

        One older than `GAP_INTERVALS` intervals has no figures, whatever state the GPU was in.
        """
        interval_s = frame.interval_s
        if reading.source == DCGM:
            interval_s = max(interval_s, reading.activity_interval_s)
        if self.answered_s is None or reading.state not in _SILENT:
            self.answered_s = reading.monotonic_s
        self.why_blank = _BLANK.get(reading.state)
        self.reading = reading
        self.state = reading.state
        self.read_s = max(0.0, frame.monotonic_s - reading.monotonic_s)
        if self.why_blank is None and self.read_s > GAP_INTERVALS * interval_s:
            self.why_blank = Missing(Reason.STALE)
            if self.state is GpuState.OK:
                self.state = GpuState.STALE
        self.age_s = self.read_s
        if self.state in _SILENT:
            self.age_s = max(self.read_s, frame.monotonic_s - self.answered_s)
        if self.why_blank is None:
            # An exporter's counters are dated to a poll only, which over 2 minutes matters little.
            longest_s = max(window_s, MOST_WINDOW_S) if reading.source == DCGM else window_s
            self.add(reading, (GAP_INTERVALS + 1) * interval_s, longest_s)

    def add(self, reading: GpuReading, longest_s: float, window_s: float = RATE_S) -> None:
        """Take in one reading; a pause longer than `longest_s` counts as missing time, not as busy or idle.

        A pause that was none by the `longest_s` of the reading before it is none either. Means are of `window_s`.
        """
        self.window_s = window_s
        now_s = reading.monotonic_s
        if self._last_s is not None and now_s <= self._last_s:
            return
        allowed_s = max(longest_s, self._longest_s)
        self._longest_s = longest_s
        elapsed_s = now_s - self._last_s if self._last_s is not None else 0.0
        is_gap = elapsed_s > allowed_s
        if is_gap:
            self._recent.clear()
        self._recent.append(reading)
        while len(self._recent) > 2 and self._recent[1].monotonic_s <= now_s - window_s:
            self._recent.popleft()
        self._add_energy(reading.energy_j, now_s, is_gap=is_gap)
        if reading.throttle_s and reading.throttle_s != self._throttle_counters:
            self._add_throttle(reading.throttle_s, now_s)
        if is_gap:
            self._add_busy(reading.busy_ratio, now_s, 0.0)
        else:
            self._add_busy(reading.busy_ratio, now_s, elapsed_s)
        self._last_s = now_s

    def _add_busy(self, busy_ratio: Reading, now_s: float, elapsed_s: float) -> None:
        """Add the time since the last reading to the minute of now, and drop minutes that are over an hour old."""
        minute = int(now_s // 60)
        while self._busy and self._busy[0].minute <= minute - BUSY_MEAN_MINUTES:
            self._busy.popleft()
        if isinstance(busy_ratio, Missing) or elapsed_s <= 0.0:
            return
        busy_s = 0.0
        read_s = 0.0
        if self._busy and self._busy[-1].minute == minute:
            _, busy_s, read_s = self._busy.pop()
        busy_s += busy_ratio * elapsed_s
        self._busy.append(_BusyMinute(minute, busy_s=busy_s, read_s=read_s + elapsed_s))

    def _add_energy(self, energy_j: Reading, now_s: float, *, is_gap: bool) -> None:
        """Take in the energy counter. The energy of a gap, or of readings that failed, counts, but is no power.

        One that fell began anew with the driver, as in a report; one that jumped is a new base line.
        """
        if isinstance(energy_j, Missing):
            self._lose_energy(energy_j)
            return
        if is_gap:
            self._energies.clear()
        if self._energy_counter is None:
            self._begin_energy(energy_j, now_s)
            return
        last_j, last_s = self._energy_counter
        growth_j = growth_of(last_j, energy_j)
        if growth_j > MOST_POWER_W * max(now_s - last_s, ENERGY_S):
            self._begin_energy(energy_j, now_s)
            return
        if energy_j < last_j:
            self._count_energy(growth_j)
            self._begin_energy(energy_j, now_s)
            return
        if energy_j == last_j:
            return  # the counter is not read at every tick
        if self._energies and now_s - last_s < ENERGY_S:
            return  # over a shorter time its steps make its slope noise
        self._count_energy(growth_j)
        self._energy_counter = _CounterValue(energy_j, now_s)
        self._add_to_slope(energy_j, now_s)

    def _lose_energy(self, why: Missing) -> None:
        """Take in that the counter could not be read, or (`invalid`) counts nonsense, after which it needs a new base
        line."""
        self._energies.clear()
        if why.reason is Reason.INVALID:
            self._energy_counter = None
        if isinstance(self.energy_j, Missing):
            self.energy_j = why

    def _count_energy(self, growth_j: float) -> None:
        """Add to the energy since gpumon started."""
        if isinstance(self.energy_j, Missing):
            self.energy_j = growth_j
        else:
            self.energy_j += growth_j

    def _add_to_slope(self, energy_j: float, now_s: float) -> None:
        """Append a reading of the counter, and drop those before the window."""
        self._energies.append(_CounterValue(energy_j, now_s))
        if len(self._energies) <= 2:
            return
        elapsed_s = now_s - self._energies[-2].read_s
        start_s = now_s - self.window_s + elapsed_s / 2  # readings are never exactly an interval apart
        while len(self._energies) > 2 and self._energies[1].read_s <= start_s:
            self._energies.popleft()

    def _begin_energy(self, energy_j: float, now_s: float) -> None:
        """Take the counter as a new base line."""
        self._energy_counter = _CounterValue(energy_j, now_s)
        self._energies.clear()
        self._energies.append(self._energy_counter)

    @property
    def power(self) -> tuple[Reading, bool]:
        """The power in watts as the GPU reports it, else the mean by the energy counter; and whether it is that.

        The GPU's own is a mean of 1 s (Ampere and newer, but not GA100). The counter's slope from tick to tick would
        be wrong by a tenth: it moves every 100 ms on an H200.
        """
        own = self.reading.power_w
        if isinstance(own, Missing):
            return self._mean_power_by_energy(own)
        return own, False

    @property
    def mean_power_w(self) -> Reading:
        """Mean power over the last `window_s`, the window of the token rates.

        Tokens per joule are tokens/s over these watts: over those of the last second they would be wrong by as much
        as the load has changed within the window.
        """
        if self.why_blank is not None:
            return self.why_blank
        own = self.recent_mean("power_w")
        if isinstance(own, Missing):
            own, _ = self._mean_power_by_energy(own)
        return own

    def _mean_power_by_energy(self, missing: Missing) -> tuple[Reading, bool]:
        """The mean power over about `window_s` by the energy counter, and True; else `missing`, and False.

        A counter that has not moved within two windows stands still: its slope is not the power.
        """
        if len(self._energies) < 2 or self._last_s is None:
            return missing, False
        first_j, first_s = self._energies[0]
        last_j, last_s = self._energies[-1]
        if self._last_s - last_s > 2 * self.window_s:
            return missing, False
        return (last_j - first_j) / (last_s - first_s), True

    def _add_throttle(self, counted_s: dict[str, float], now_s: float) -> None:
        """Add what the counters have grown by; one that fell (reset) or outran the clock (garbage) is a new base
        line."""
        totals = dict(self.throttle_s)
        for cause, new_s in counted_s.items():
            old_s, read_s = self._counted.get(cause, _CounterValue(new_s, now_s))
            growth_s = new_s - old_s
            totals.setdefault(cause, 0.0)
            if 0.0 <= growth_s <= now_s - read_s + COUNTER_SLACK_S:
                totals[cause] += growth_s
            self._counted[cause] = _CounterValue(new_s, now_s)
        self.throttle_s = totals
        self._throttle_counters = counted_s

    def recent_mean(self, field: str) -> Reading:
        """Mean of a field over the last `window_s`, as long as MBU's window; the reason where the newest reading lacks
        it.

        A reading stands for the time since the one before.
        """
        if not self._recent:
            return WARMING_UP
        newest: Reading = getattr(self._recent[-1], field)
        if isinstance(newest, Missing):
            return newest
        before_s = max(self._recent[0].monotonic_s, self._recent[-1].monotonic_s - self.window_s)
        total = 0.0
        known_s = 0.0
        for reading in islice(self._recent, 1, None):
            value = getattr(reading, field)
            length_s = reading.monotonic_s - before_s
            before_s = reading.monotonic_s
            if not isinstance(value, Missing):
                total += value * length_s
                known_s += length_s
        if known_s > 0.0:
            return total / known_s
        return newest

    @property
    def shown_processes(self) -> tuple[GpuProcess, ...]:
        """The processes as they are shown; the same objects again while the driver's list stays the same."""
        newest = self.reading.processes
        last, shown = self._processes
        if newest != last:
            shown = tuple(
                msgspec.structs.replace(
                    process,
                    name=clean(process.name),
                    user=clean(process.user, 32),
                    container=clean(process.container, 64),
                    engine=clean(process.engine),
                    command=clean(process.command, COMMAND_CHARACTERS),
                    pod=clean(process.pod, 64),
                    pod_name=clean(process.pod_name, 128),
                    job=clean(process.job, 32),
                    container_name=clean(process.container_name, 128),
                )
                for process in newest
            )
            self._processes = (newest, shown)
        return shown

    @property
    def busy_mean_ratio(self) -> Reading:
        """Mean of busy over the last hour, missing time excluded."""
        read_s = sum(minute.read_s for minute in self._busy)
        if read_s > 0:
            return busy(sum(minute.busy_s for minute in self._busy), read_s)
        return WARMING_UP


def over_window(gpu: Gpu) -> Gpu:
    """The GPU with busy, SM active, tensor active and power as rows show them: of the same window as its bandwidth, MFU
    and MBU. Those of a gpumon that does not tell such means stay as they are."""
    means = {row.field: getattr(gpu, field) for field, row in IN_ROWS.items()}
    known = {field: mean for field, mean in means.items() if not isinstance(mean, Missing)}
    return replace_fields(gpu, known)


def without_old(frame: Frame) -> Frame:
    """The frame without those figures of a dcgm-exporter that stand still for longer than 3 of its intervals.

    Their GPU itself may be read as ever (by NVML, or because the exporter's other figures move).
    """

    def stands_still(gpu: GpuReading) -> bool:
        longest_s = GAP_INTERVALS * max(gpu.activity_interval_s, frame.interval_s)
        return bool(gpu.from_dcgm) and frame.monotonic_s - gpu.activity_monotonic_s > longest_s

    if not any(map(stands_still, frame.gpus)):
        return frame
    gpus = []
    for gpu in frame.gpus:
        if stands_still(gpu):
            gpu = msgspec.structs.replace(gpu, **dict.fromkeys(gpu.from_dcgm, _OLD_EXPORTER))
        gpus.append(gpu)
    return msgspec.structs.replace(frame, gpus=tuple(gpus))


def derive_gpu(
    track: GpuTrack,
    peak: Peak,
    engines: Sequence[Engine],
    engine_readings: Sequence[EngineReading],
    why_no_engine: Missing,
) -> Gpu:
    """The shown GPU; `engines` are those that run on it, with their readings; `why_no_engine` says why there is
    none."""
    reading = track.reading
    mbu_ratio = _sum_of_engines(track, engines, "mbu_ratio", why_no_engine)
    bandwidth, source = _bandwidth(reading, track, peak, mbu_ratio)
    if source is BandwidthSource.ENGINE and not _read_alike(engines, engine_readings, peak):
        source = BandwidthSource.ENGINE_MEAN
    flops_peak, precision = _flops_peak(reading, peak, engine_readings, why_no_engine)
    achievable = _achievable_ratio(peak, flops_peak, precision)
    gpu_type = peak.spec.name if peak.spec is not None and peak.spec.listed else ""
    power_w, by_energy = track.power
    energy_j = reading.energy_j if isinstance(reading.energy_j, Missing) else track.energy_j
    gpu = Gpu(
        reading=_shown_reading(track),
        age_s=track.age_s,
        bandwidth_bytes_per_s=bandwidth,
        bandwidth_source=source,
        busy_window_ratio=_comparable_with_mbu(mbu_ratio, track, "busy_ratio"),
        sm_active_window_ratio=_comparable_with_mbu(mbu_ratio, track, "sm_active_ratio"),
        tensor_active_window_ratio=_comparable_with_mbu(mbu_ratio, track, "tensor_active_ratio"),
        power_window_w=power_w if isinstance(mbu_ratio, Missing) else track.mean_power_w,
        bandwidth_peak_bytes_per_s=peak.bandwidth_bytes_per_s,
        bandwidth_peak_unverified=peak.bandwidth_unverified,
        peak_source=peak.source,
        peak_unverified=peak.unverified or any(is_format_assumed(peak, engine) for engine in engine_readings),
        gpu_type=gpu_type,
        mfu_ratio=_sum_of_engines(track, engines, "mfu_ratio", why_no_engine),
        mbu_ratio=mbu_ratio,
        power_w=power_w,
        energy_j=energy_j,
        nvlink_bytes_per_s=plus(reading.nvlink_rx_bytes_per_s, reading.nvlink_tx_bytes_per_s),
        pcie_bytes_per_s=plus(reading.pcie_rx_bytes_per_s, reading.pcie_tx_bytes_per_s),
        tokens_per_j=_tokens_per_j(track, engines, why_no_engine),
        throttle_s=track.throttle_s,
        xid=tuple(event.code for event in reading.xid),
        engines=tuple(engine.name for engine in engines),
        busy_mean_ratio=track.busy_mean_ratio,
        flops_peak_per_s=flops_peak,
        flops_peak_precision=precision,
        achievable_ratio=achievable,
        activity_age_s=_activity_age_s(track),
        sources=_sources(
            track, peak, source, by_energy, precision, achievable, bandwidth_is_mean=not isinstance(mbu_ratio, Missing)
        ),
    )
    if track.why_blank is None:
        return gpu
    return msgspec.structs.replace(gpu, **dict.fromkeys(_UNREAD, track.why_blank))


def _shown_reading(track: GpuTrack) -> GpuReading:
    """The newest reading of a GPU with its texts safe to print, and without figures where it has none now."""
    reading = track.reading
    changes: dict[str, object] = {"processes": track.shown_processes}
    for field, most in _TEXTS.items():
        text = getattr(reading, field)
        safe_text = clean(text, most)
        if safe_text is not text:
            changes[field] = safe_text
    if track.why_blank is not None:
        changes |= dict.fromkeys(GPU_FIGURES, track.why_blank)
        changes |= {"state": track.state, "throttle": (), "processes": ()}
    return msgspec.structs.replace(reading, **changes)


def _tokens_per_j(track: GpuTrack, engines: Sequence[Engine], why_no_engine: Missing) -> Reading:
    """Decode tokens per joule; of an engine on several GPUs, be they of other hosts, each has an equal share of the
    tokens."""
    if not engines:
        return why_no_engine
    if _rests(track, engines):
        return _RANK_RESTS
    shares = [divide(engine.rates.decode_tokens_per_s, engine.hardware.gpu_count) for engine in engines]
    return divide(plus(*shares), track.mean_power_w)


def _activity_age_s(track: GpuTrack) -> Reading:
    """Seconds since the activity was measured, by the driver or by the exporter."""
    reading = track.reading
    if not reading.activity_source:
        return NOT_SUPPORTED
    measured_s = reading.activity_monotonic_s if reading.activity_source == DCGM else reading.monotonic_s
    return max(0.0, track.read_s + reading.monotonic_s - measured_s)


def _sources(
    track: GpuTrack,
    peak: Peak,
    bandwidth: BandwidthSource,
    by_energy: bool,
    precision: str,
    achievable: Reading,
    *,
    bandwidth_is_mean: bool,
) -> dict[str, str]:
    """Field -> the call or formula behind it."""
    reading = track.reading
    spec = peak.spec
    flops_source = ""
    achieved_source = ""
    if spec is not None:
        flops_source = spec.source
        if not isinstance(achievable, Missing):
            achieved_source = spec.achieved_source
    reader = ""
    if reading.source in OTHER_LIBRARIES:
        reader = reading.source
        if reader == SYSFS and reading.name.startswith("Intel"):
            reader = SYSFS_INTEL
    exporter = ExporterPart(
        reading.from_dcgm,
        round(reading.activity_interval_s),
        alone=reading.source == DCGM,
        smi=reading.source == SMI,
        reader=reader,
    )
    return gpu_sources(
        bandwidth=bandwidth,
        from_energy=by_energy,
        has_gpm=reading.sm_active_ratio != NOT_SUPPORTED,
        memory_call=_memory_source(reading),
        peak_source=peak.bandwidth_source,
        flops_source=flops_source,
        precision=precision,
        achieved_source=achieved_source,
        window_s=round(track.window_s),
        exporter=exporter,
        bandwidth_is_mean=bandwidth_is_mean,
    )


def _memory_source(reading: GpuReading) -> str:
    """The call that gave a GPU's memory."""
    if reading.vram_shared:
        return MEMORY_OF_HOST
    if not isinstance(reading.vram_reserved_bytes, Missing):
        return MEMORY_V2
    if isinstance(reading.vram_used_bytes, Missing):
        return f"{MEMORY_V2}, else {MEMORY_V1}"
    return MEMORY_V1


def _rests(track: GpuTrack, engines: Sequence[Engine]) -> bool:
    """Whether a GPU does nothing while other data-parallel ranks of its engine work: figures of the engine are means
    over all ranks, and not this one's."""
    for engine in engines:
        mfu = engine.efficiency.mfu_ratio
        if engine.hardware.ranks < 2 or mfu == 0.0:
            return False
    busy_ratio = track.recent_mean("busy_ratio")
    return not isinstance(busy_ratio, Missing) and busy_ratio < RESTING_BUSY_RATIO


def _sum_of_engines(track: GpuTrack, engines: Sequence[Engine], share: str, why_no_engine: Missing) -> Reading:
    """Share of a peak (a field of `Efficiency`) that a GPU's engines use together; `why_no_engine` where there is
    none."""
    if track.reading.mig or track.reading.parent_uuid:
        return _UNDER_MIG
    if not engines:
        return why_no_engine
    if _rests(track, engines):
        return _RANK_RESTS
    return plus(*(getattr(engine.efficiency, share) for engine in engines))


def _flops_peak(
    reading: GpuReading, peak: Peak, engine_readings: Sequence[EngineReading], why_no_engine: Missing
) -> tuple[Reading, str]:
    """Peak FLOP/s at the precision of the engines' arithmetic, and that precision."""
    if reading.mig or reading.parent_uuid:
        return _UNDER_MIG, ""
    peaks: set[float] = set()
    names: set[str] = set()
    for engine in engine_readings:
        flops_per_s, precision = flops_peak_of(peak, engine)
        if isinstance(flops_per_s, Missing):
            return flops_per_s, ""
        peaks.add(flops_per_s)
        names.add(precision)
    if not peaks:
        return why_no_engine, ""
    precisions = "+".join(sorted(names))
    if len(peaks) > 1:
        return _SEVERAL_PRECISIONS, precisions
    return peaks.pop(), precisions


def _achievable_ratio(peak: Peak, flops_peak: Reading, precision: str) -> Reading:
    """Share of a GPU's FLOP/s peak that products of large matrices reached; missing where nobody measured it."""
    if isinstance(flops_peak, Missing):
        return flops_peak
    if peak.spec is None:
        return _UNMEASURED
    ratios = {peak.spec.achievable_ratio(Precision(name)) for name in precision.split("+")}
    ratio = ratios.pop()
    if ratio is None or ratios:
        return _UNMEASURED
    return ratio


def _bandwidth(reading: GpuReading, track: GpuTrack, peak: Peak, mbu_ratio: Reading) -> tuple[Reading, BandwidthSource]:
    """Bandwidth by the best source: measured, then the engines' modelled bytes (`>=`), then the upper bound (`<=`).

    Beside an MBU it is a mean over the same window, so that the two can be compared; without one the newest reading,
    as busy and SM active are. DCGM's figure is a mean already, over its exporter's interval, and is shown as it is
    until the next one.
    """
    if track.why_blank is not None:
        return track.why_blank, BandwidthSource.NONE
    peak_bytes_per_s = peak.bandwidth_bytes_per_s
    if isinstance(peak_bytes_per_s, Missing):
        return peak_bytes_per_s, BandwidthSource.NONE
    if reading.activity_source == DCGM and not isinstance(reading.dram_active_ratio, Missing):
        return reading.dram_active_ratio * peak_bytes_per_s, BandwidthSource.DCGM
    measured = _comparable_with_mbu(mbu_ratio, track, "dram_active_ratio")
    if not isinstance(measured, Missing):
        return measured * peak_bytes_per_s, BandwidthSource.GPM
    return _unmeasured_bandwidth(track, mbu_ratio, peak_bytes_per_s)


def _read_alike(engines: Sequence[Engine], readings: Sequence[EngineReading], peak: Peak) -> bool:
    """Whether each GPU of an engine reads as many bytes as its others: it is alone, or equal GPUs share each layer."""
    own_peak = number(peak.bandwidth_bytes_per_s) or 0.0
    for engine, reading in zip(engines, readings, strict=True):
        count: Reading = engine.hardware.gpu_count
        # Ranks have requests of their own, and experts tokens of their own; without `tp` the split is not known.
        differs = max(len(reading.ranks), reading.dp) > 1 or reading.options.expert_parallel == 1.0
        if count != 1.0 and (differs or reading.tp != count):
            return False
        mean_peak = divide(engine.efficiency.peak_bandwidth_bytes_per_s, count)
        if not isclose(number(mean_peak) or 0.0, own_peak, rel_tol=_SAME_PEAK):
            return False
    return True


def _comparable_with_mbu(mbu_ratio: Reading, track: GpuTrack, field: str) -> Reading:
    """A figure of a GPU as it compares with an MBU: its mean over the MBU's window; without an MBU the newest
    reading."""
    if isinstance(mbu_ratio, Missing):
        newest: Reading = getattr(track.reading, field)
        return newest
    return track.recent_mean(field)


def _unmeasured_bandwidth(
    track: GpuTrack, mbu_ratio: Reading, peak_bytes_per_s: float
) -> tuple[Reading, BandwidthSource]:
    """Bandwidth by the engines' modelled bytes where there are any, else the upper bound."""
    bound = _comparable_with_mbu(mbu_ratio, track, "memory_busy_ratio")
    if not isinstance(mbu_ratio, Missing) and (mbu_ratio > 0 or isinstance(bound, Missing)):
        return mbu_ratio * peak_bytes_per_s, BandwidthSource.ENGINE
    if not isinstance(bound, Missing):
        return bound * peak_bytes_per_s, BandwidthSource.UPPER_BOUND
    return bound, BandwidthSource.NONE


def with_clearer_reasons(gpu: Gpu, engines: Sequence[Engine]) -> Gpu:
    """The GPU with `off` as the reason of its shares where its engine answers, but has its metrics off."""
    missing = gpu.mfu_ratio
    if not isinstance(missing, Missing) or missing.reason is not Reason.UNREACHABLE:
        return gpu
    states = {engine.state for engine in engines if engine.name in gpu.engines}
    off = Missing(Reason.OFF)
    if EndpointState.METRICS_OFF in states:
        return msgspec.structs.replace(gpu, mfu_ratio=off, mbu_ratio=off)
    return gpu

"""A GPU's raw readings, its engines and its peaks to the `Gpu` that is shown."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from operator import attrgetter
from typing import Final

import msgspec

from gpumon.efficiency.peaks import Peak, assumes, flops_peak_of
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
from gpumon.efficiency.tracks import GAP, RATE_S
from gpumon.readings.dcgm import DCGM
from gpumon.readings.frame import EndpointState, EngineReading, Frame, GpuProcess, GpuReading, GpuState
from gpumon.readings.missing import NOT_SUPPORTED, WARMING_UP, Missing, Reading, Reason
from gpumon.readings.smi import SMI
from gpumon.readings.snapshot import BandwidthSource, Engine, Gpu, Process
from gpumon.readings.text import clean
from gpumon.specs.precision import Precision

BUSY_MEAN_MINUTES: Final = 60
"""Length of the window of `busy_mean_ratio`, whether read or not."""
ENERGY_S: Final = 0.9
"""Least time between two energy readings: the counters move in steps of up to 100 ms."""
MOST_POWER_W: Final = 20_000.0
"""No GPU draws as much (a GB300 superchip with its CPU: 2.9 kW): an energy counter that grew faster has jumped."""
_BLANK: Final = {
    GpuState.STALE: Missing(Reason.STALE),
    GpuState.LOST: Missing(Reason.LOST),
    GpuState.INITIALISING: Missing(Reason.WARMING_UP),
}
"""States in which a GPU has no figures at all."""
_SILENT: Final = (GpuState.LOST, GpuState.ERROR)
"""States whose age counts from the last good answer, however often it was tried again since."""
_READINGS: Final = tuple(field.name for field in msgspec.structs.fields(Gpu) if isinstance(field.default, Missing))
_GAUGES: Final = tuple(
    name for name in _READINGS if name in GpuReading.__struct_fields__ and name not in ("power_w", "energy_j")
)
"""Fields of `Gpu` that are shown as they were read."""
_GAUGES_OF: Final = attrgetter(*_GAUGES)
_KEPT: Final = frozenset(
    (
        *("bandwidth_peak_bytes_per_s", "flops_peak_per_s", "achievable_ratio", "activity_age_s", "busy_mean_ratio"),
        *("cost_per_hour", "unused_s", "unused_cost", "energy_cost"),
    )
)
"""Readings that a GPU has though it does not answer."""
_UNREAD: Final = tuple(name for name in _READINGS if name not in _KEPT)
"""Readings that a GPU does not have while it does not answer."""
MOST_WINDOW_S: Final = 120.0
"""Longest window of GPUs that are read more often than their engines: every reading in it is kept."""
COUNTER_SLACK_S: Final = 10.0
"""A counter of seconds is read every few ticks: it may have grown by that much more than the clock since the last."""
COMMAND_CHARACTERS: Final = 512
_OLD_EXPORTER: Final = Missing(Reason.STALE, "the dcgm-exporter has not measured it anew for 3 of its intervals")
_UNMEASURED: Final = Missing(Reason.UNKNOWN_GPU, "nobody has measured it on this type of GPU in this format")
_SEVERAL: Final = Missing(Reason.NOT_MODELLED, "its engines compute in several precisions, each with a peak of its own")
_UNDER_MIG: Final = Missing(Reason.UNDER_MIG)
_RANK_RESTS: Final = Missing(
    Reason.IDLE, "its data-parallel rank does nothing; the engine's figure is a mean over its ranks"
)
RESTS: Final = 0.02
"""Busy share below which a GPU does nothing for its engine: less than a kernel now and then."""


class GpuTrack:
    """Memory of one GPU between frames."""

    reading: GpuReading
    """The newest one; `take` sets it."""

    def __init__(self) -> None:
        self.state = GpuState.INITIALISING
        self.age_s = 0.0
        """Since it was read; of a GPU that is silent since it answered last."""
        self.read_s = 0.0
        """Since it was read."""
        self.blank: Missing | None = None
        """Why it has no figures now."""
        self.window_s = RATE_S
        """Length of the means: that of the token rates."""
        self._longest_s = 0.0
        self.energy_j: Reading = WARMING_UP
        self._counter: tuple[float, float] | None = None
        """The newest value of the energy counter, and when it was read; None before a base line."""
        self._energies: deque[tuple[float, float]] = deque()
        """Such readings of the last `window_s`, without a gap: the power is their slope."""
        self.answered_s: float | None = None
        """When it answered last as it should (monotonic); of one that never did: when that was seen first."""
        self._last_s: float | None = None
        self.throttle_s: dict[str, float] = {}
        """Since gpumon started, by cause; replaced, never changed."""
        self._read_s: dict[str, float] = {}
        """The driver's counters as they were read last."""
        self._counted: dict[str, tuple[float, float]] = {}
        """Each counter's newest value, and when it was read."""
        self._processes: tuple[tuple[GpuProcess, ...], tuple[Process, ...]] = ((), ())
        self._busy: deque[tuple[int, float, float]] = deque()
        self._recent: deque[GpuReading] = deque()
        """Without a gap; the first stands at or before `window_s` ago and only dates the second."""

    def take(self, reading: GpuReading, frame: Frame, window_s: float) -> None:
        """Take in a frame's reading. One older than `GAP` intervals has no figures, whatever state the GPU was in."""
        interval_s = frame.interval_s
        if reading.source == DCGM:
            interval_s = max(interval_s, reading.activity_interval_s)
        if self.answered_s is None or reading.state not in _SILENT:
            self.answered_s = reading.monotonic_s
        self.blank = _BLANK.get(reading.state)
        self.reading = reading
        self.state = reading.state
        self.read_s = max(0.0, frame.monotonic_s - reading.monotonic_s)
        if self.blank is None and self.read_s > GAP * interval_s:
            self.state = GpuState.STALE if self.state is GpuState.OK else self.state
            self.blank = Missing(Reason.STALE)
        self.age_s = self.read_s
        if self.state in _SILENT:
            self.age_s = max(self.read_s, frame.monotonic_s - self.answered_s)
        if self.blank is None:
            # An exporter's counters are dated to a poll only, which over 2 minutes matters little.
            if reading.source == DCGM:
                longest_s = max(window_s, MOST_WINDOW_S)
            else:
                longest_s = window_s
            self.add(reading, (GAP + 1) * interval_s, longest_s)

    def add(self, reading: GpuReading, longest_s: float, window_s: float = RATE_S) -> None:
        """Take in one reading; a pause longer than `longest_s` counts as missing time, not as busy or idle.

        A pause that was none by the `longest_s` of the reading before it is none either. Means are of `window_s`.
        """
        self.window_s = window_s
        now_s = reading.monotonic_s
        if self._last_s is not None and now_s <= self._last_s:
            return
        longest_before_s = self._longest_s
        self._longest_s = longest_s
        longest_s = max(longest_s, longest_before_s)
        elapsed_s = now_s - self._last_s if self._last_s is not None else 0.0
        if elapsed_s > longest_s:
            self._recent.clear()
        self._recent.append(reading)
        while len(self._recent) > 2 and self._recent[1].monotonic_s <= now_s - window_s:
            self._recent.popleft()
        self._add_energy(reading.energy_j, now_s, gap=elapsed_s > longest_s)
        if reading.throttle_s and reading.throttle_s != self._read_s:
            self._add_throttle(reading.throttle_s, now_s)
        self._add_busy(reading.busy_ratio, now_s, elapsed_s if elapsed_s <= longest_s else 0.0)
        self._last_s = now_s

    def _add_busy(self, busy_ratio: Reading, now_s: float, elapsed_s: float) -> None:
        minute = int(now_s // 60)
        while self._busy and self._busy[0][0] <= minute - BUSY_MEAN_MINUTES:
            self._busy.popleft()
        if not isinstance(busy_ratio, Missing) and elapsed_s > 0.0:
            _, busy_s, seen_s = self._busy.pop() if self._busy and self._busy[-1][0] == minute else (minute, 0.0, 0.0)
            self._busy.append((minute, busy_s + busy_ratio * elapsed_s, seen_s + elapsed_s))

    def _add_energy(self, energy_j: Reading, now_s: float, *, gap: bool) -> None:
        """The energy of a gap, or of readings that failed, counts, but is no power.

        A counter that fell (reset) or jumped is a new base line.
        """
        if isinstance(energy_j, Missing):
            self._lose_energy(energy_j)
            return
        if gap:
            self._energies.clear()
        if self._counter is None:
            self._begin_energy(energy_j, now_s)
            return
        last_j, last_s = self._counter
        if not 0.0 <= energy_j - last_j <= MOST_POWER_W * max(now_s - last_s, ENERGY_S):
            self._begin_energy(energy_j, now_s)
            return
        if energy_j == last_j:
            return  # the counter is not read at every tick
        if self._energies and now_s - last_s < ENERGY_S:
            return  # over a shorter time its steps make its slope noise
        self._count_energy(energy_j - last_j)
        self._counter = (energy_j, now_s)
        self._add_to_slope(energy_j, now_s)

    def _lose_energy(self, why: Missing) -> None:
        """Take in that the counter could not be read."""
        self._energies.clear()
        if why.reason is Reason.INVALID:
            self._counter = None
        if isinstance(self.energy_j, Missing):
            self.energy_j = why

    def _count_energy(self, grown_j: float) -> None:
        """Add to the energy since gpumon started."""
        if isinstance(self.energy_j, Missing):
            self.energy_j = grown_j
        else:
            self.energy_j += grown_j

    def _add_to_slope(self, energy_j: float, now_s: float) -> None:
        """Append a reading of the counter, and drop those before the window."""
        self._energies.append((energy_j, now_s))
        if len(self._energies) <= 2:
            return
        _, last_s = self._energies[-2]
        start_s = now_s - self.window_s + (now_s - last_s) / 2  # readings are never exactly an interval apart
        while len(self._energies) > 2 and self._energies[1][1] <= start_s:
            self._energies.popleft()

    def _begin_energy(self, energy_j: float, now_s: float) -> None:
        """Take the counter as a new base line."""
        self._counter = (energy_j, now_s)
        self._energies.clear()
        self._energies.append(self._counter)

    @property
    def power(self) -> tuple[Reading, bool]:
        """The power in watts as the GPU reports it, else the mean by the energy counter; and whether it is that.

        The GPU's own is a mean of 1 s (Ampere and newer, but not GA100). The counter's slope from tick to tick would
        be wrong by a tenth: it moves every 100 ms on an H200.
        """
        own = self.reading.power_w
        if isinstance(own, Missing):
            return self._by_energy(own)
        return own, False

    @property
    def mean_power_w(self) -> Reading:
        """Mean power over the last `window_s`, the window of the token rates.

        Tokens per joule are tokens/s over these watts: over those of the last second they would be wrong by as much
        as the load has changed within the window.
        """
        if self.blank is not None:
            return self.blank
        own = self.recent("power_w")
        if isinstance(own, Missing):
            own, _ = self._by_energy(own)
        return own

    def _by_energy(self, missing: Missing) -> tuple[Reading, bool]:
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
        """Grow by what the counters did. One that fell (reset), or outran the clock (garbage), is a new base line."""
        totals = dict(self.throttle_s)
        for cause, new_s in counted_s.items():
            old_s, read_s = self._counted.get(cause, (new_s, now_s))
            grown_s = new_s - old_s
            most_s = now_s - read_s + COUNTER_SLACK_S
            totals[cause] = totals.get(cause, 0.0) + (grown_s if 0.0 <= grown_s <= most_s else 0.0)
            self._counted[cause] = (new_s, now_s)
        self.throttle_s = totals
        self._read_s = counted_s

    def recent(self, field: str) -> Reading:
        """Mean of a field over the last `window_s`, as long as MBU's window; its reason where the newest has none.

        A reading stands for the time since the one before.
        """
        newest: Reading = getattr(self._recent[-1], field) if self._recent else WARMING_UP
        if isinstance(newest, Missing):
            return newest
        before_s = max(self._recent[0].monotonic_s, self._recent[-1].monotonic_s - self.window_s)
        total = 0.0
        seen_s = 0.0
        for reading in islice(self._recent, 1, None):
            value = getattr(reading, field)
            length_s = reading.monotonic_s - before_s
            before_s = reading.monotonic_s
            if not isinstance(value, Missing):
                total += value * length_s
                seen_s += length_s
        return total / seen_s if seen_s > 0.0 else newest

    def processes(self, read: tuple[GpuProcess, ...]) -> tuple[Process, ...]:
        """The processes as they are shown; the same objects again while the driver's list stays the same."""
        if read != self._processes[0]:
            self._processes = (read, tuple(_process(process) for process in read))
        return self._processes[1]

    @property
    def busy_mean_ratio(self) -> Reading:
        """Mean of busy over the last hour, missing time excluded."""
        seen_s = sum(seen for _, _, seen in self._busy)
        if seen_s > 0:
            return busy(sum(busy_s for _, busy_s, _ in self._busy), seen_s)
        return WARMING_UP


def without_old(frame: Frame) -> Frame:
    """The frame without those figures of a dcgm-exporter that stand still for longer than 3 of its intervals.

    Their GPU itself may be read as ever (by NVML, or because the exporter's other figures move).
    """

    def stands_still(gpu: GpuReading) -> bool:
        longest_s = GAP * max(gpu.activity_interval_s, frame.interval_s)
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
    track: GpuTrack, peak: Peak, engines: Sequence[Engine], read: Sequence[EngineReading], alone: Missing
) -> Gpu:
    """The shown GPU; `engines` are those that run on it, `read` their polls; `alone` says why there is none."""
    reading = track.reading
    mbu_ratio = _of_engines(track, engines, "mbu_ratio", alone)
    bandwidth, source = _bandwidth(reading, track, peak, mbu_ratio)
    flops_peak, precision = _flops_peak(reading, peak, read, alone)
    achievable = _achievable_ratio(peak, flops_peak, precision)
    spec = peak.spec
    power_w, by_energy = track.power
    gpu = Gpu(
        index=reading.index,
        uuid=clean(reading.uuid),
        name=clean(reading.name),
        state=track.state,
        age_s=track.age_s,
        state_text=clean(reading.state_text),
        parent_uuid=clean(reading.parent_uuid),
        mig_profile=clean(reading.mig_profile),
        compute_capability=clean(reading.compute_capability),
        host=clean(reading.host, 64),
        **dict(zip(_GAUGES, _GAUGES_OF(reading), strict=True)),
        vram_shared=reading.vram_shared,
        bandwidth_bytes_per_s=bandwidth,
        bandwidth_source=source,
        bandwidth_peak_bytes_per_s=peak.bandwidth_bytes_per_s,
        bandwidth_peak_unverified=peak.bandwidth_unverified,
        peak_source=peak.source,
        peak_unverified=peak.unverified or any(assumes(peak, engine) for engine in read),
        gpu_type=spec.name if spec is not None and spec.listed else "",
        mfu_ratio=_of_engines(track, engines, "mfu_ratio", alone),
        mbu_ratio=mbu_ratio,
        power_w=power_w,
        energy_j=reading.energy_j if isinstance(reading.energy_j, Missing) else track.energy_j,
        nvlink_bytes_per_s=plus(reading.nvlink_rx_bytes_per_s, reading.nvlink_tx_bytes_per_s),
        pcie_bytes_per_s=plus(reading.pcie_rx_bytes_per_s, reading.pcie_tx_bytes_per_s),
        tokens_per_j=_tokens_per_j(track, engines, alone),
        throttle=reading.throttle,
        throttle_s=track.throttle_s,
        xid=tuple(event.code for event in reading.xid),
        engines=tuple(engine.name for engine in engines),
        processes=track.processes(reading.processes),
        busy_mean_ratio=track.busy_mean_ratio,
        flops_peak_per_s=flops_peak,
        flops_peak_precision=precision,
        achievable_ratio=achievable,
        activity_source=reading.activity_source,
        activity_age_s=_activity_age_s(track),
        sources=_sources(
            track, peak, source, by_energy, precision, achievable, beside_mbu=not isinstance(mbu_ratio, Missing)
        ),
    )
    if track.blank is None:
        return gpu
    unread = dict.fromkeys(_UNREAD, track.blank)
    return msgspec.structs.replace(gpu, **unread, throttle=(), processes=())


def _tokens_per_j(track: GpuTrack, engines: Sequence[Engine], alone: Missing) -> Reading:
    """Decode tokens per joule: of an engine on several GPUs this one has its share of the tokens."""
    if not engines:
        return alone
    if _is_of_resting_rank(track, engines):
        return _RANK_RESTS
    shares = []
    for engine in engines:
        shares.append(divide(engine.rates.decode_tokens_per_s, float(len(engine.hardware.gpus))))
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
    beside_mbu: bool,
) -> dict[str, str]:
    """Field -> the call or formula behind it."""
    reading = track.reading
    spec = peak.spec
    flops_source = ""
    achieved_source = ""
    if spec is not None:
        flops_source = spec.source
        if isinstance(achievable, Missing):
            achieved_source = ""
        else:
            achieved_source = spec.achieved_source
    reader = ""
    if reading.source in OTHER_LIBRARIES:
        reader = reading.source
        if reader == "sysfs" and reading.name.startswith("Intel"):
            reader = SYSFS_INTEL
    exporter = ExporterPart(
        reading.from_dcgm,
        round(reading.activity_interval_s),
        alone=reading.source == DCGM,
        smi=reading.source == SMI,
        reader=reader,
    )
    return gpu_sources(
        bandwidth,
        by_energy,
        reading.sm_active_ratio != NOT_SUPPORTED,
        _memory(reading),
        peak.bandwidth_source,
        flops_source,
        precision,
        achieved_source,
        round(track.window_s),
        exporter,
        beside_mbu=beside_mbu,
    )


def _memory(reading: GpuReading) -> str:
    if reading.vram_shared:
        return MEMORY_OF_HOST
    if not isinstance(reading.vram_reserved_bytes, Missing):
        return MEMORY_V2
    if isinstance(reading.vram_used_bytes, Missing):
        return f"{MEMORY_V2}, else {MEMORY_V1}"
    return MEMORY_V1


def _is_of_resting_rank(track: GpuTrack, engines: Sequence[Engine]) -> bool:
    """Whether a GPU does nothing while other data-parallel ranks of its engine work: figures of the engine are means
    over all ranks, and not this one's."""
    for engine in engines:
        mfu = engine.efficiency.mfu_ratio
        if engine.hardware.ranks < 2 or mfu == 0.0:
            return False
    busy = track.recent("busy_ratio")
    return not isinstance(busy, Missing) and busy < RESTS


def _of_engines(track: GpuTrack, engines: Sequence[Engine], share: str, alone: Missing) -> Reading:
    """Share of a peak (a field of `Efficiency`) that its engines use together; `alone` where there is none."""
    if track.reading.mig or track.reading.parent_uuid:
        return _UNDER_MIG
    if not engines:
        return alone
    if _is_of_resting_rank(track, engines):
        return _RANK_RESTS
    return plus(*(getattr(engine.efficiency, share) for engine in engines))


def _flops_peak(reading: GpuReading, peak: Peak, read: Sequence[EngineReading], alone: Missing) -> tuple[Reading, str]:
    """Peak FLOP/s at the precision of the engines' arithmetic, and that precision."""
    if reading.mig or reading.parent_uuid:
        return _UNDER_MIG, ""
    peaks: set[float] = set()
    names: set[str] = set()
    for engine in read:
        flops_per_s, precision = flops_peak_of(peak, engine)
        if isinstance(flops_per_s, Missing):
            return flops_per_s, ""
        peaks.add(flops_per_s)
        names.add(precision)
    if not peaks:
        return alone, ""
    return peaks.pop() if len(peaks) == 1 else _SEVERAL, "+".join(sorted(names))


def _achievable_ratio(peak: Peak, flops_peak: Reading, precision: str) -> Reading:
    """Share of that peak that products of large matrices reached; missing where nobody measured it."""
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
    """The best source there is: measured, then the engines' modelled bytes (`>=`), then the upper bound (`<=`).

    Beside an MBU it is a mean over the same window, so that the two can be compared; without one the newest reading,
    as busy and SM active are. DCGM's figure is a mean already, over its exporter's interval, and is shown as it is
    until the next one.
    """
    if track.blank is not None:
        return track.blank, BandwidthSource.NONE
    most = peak.bandwidth_bytes_per_s
    if isinstance(most, Missing):
        return most, BandwidthSource.NONE
    if reading.activity_source == DCGM and not isinstance(reading.dram_active_ratio, Missing):
        return reading.dram_active_ratio * most, BandwidthSource.DCGM
    measured = _beside(mbu_ratio, track, "dram_active_ratio")
    if not isinstance(measured, Missing):
        return measured * most, BandwidthSource.GPM
    return _unmeasured_bandwidth(track, mbu_ratio, most)


def _beside(mbu_ratio: Reading, track: GpuTrack, field: str) -> Reading:
    """A figure of a GPU to compare with an MBU: its mean over that one's window; without an MBU the newest reading."""
    if isinstance(mbu_ratio, Missing):
        newest: Reading = getattr(track.reading, field)
        return newest
    return track.recent(field)


def _unmeasured_bandwidth(track: GpuTrack, mbu_ratio: Reading, most: float) -> tuple[Reading, BandwidthSource]:
    """The engines' modelled bytes where there are any, else the upper bound; of a GPU with this peak."""
    bound = _beside(mbu_ratio, track, "memory_busy_ratio")
    if not isinstance(mbu_ratio, Missing) and (mbu_ratio > 0 or isinstance(bound, Missing)):
        return mbu_ratio * most, BandwidthSource.ENGINE
    if not isinstance(bound, Missing):
        return bound * most, BandwidthSource.UPPER_BOUND
    return bound, BandwidthSource.NONE


def _process(read: GpuProcess) -> Process:
    return Process(
        pid=read.pid,
        name=clean(read.name),
        user=clean(read.user, 32),
        vram_bytes=read.vram_bytes,
        container=clean(read.container, 64),
        engine=clean(read.engine),
        command=clean(read.command, COMMAND_CHARACTERS),
        sm_ratio=read.sm_ratio,
        type=read.type,
        pod=clean(read.pod, 64),
        pod_name=clean(read.pod_name, 128),
        job=clean(read.job, 32),
        cpu_ratio=read.cpu_ratio,
        rss_bytes=read.rss_bytes,
        started_s=read.started_s,
        children_cpu_ratio=read.children_cpu_ratio,
        container_name=clean(read.container_name, 128),
    )


def with_clearer_reasons(gpu: Gpu, engines: Sequence[Engine]) -> Gpu:
    """The GPU as a person reads it: with the better reason where its engine answers, but has its metrics off."""
    missing = gpu.mfu_ratio
    if not isinstance(missing, Missing) or missing.reason is not Reason.UNREACHABLE:
        return gpu
    states = set()
    for engine in engines:
        if engine.name in gpu.engines:
            states.add(engine.state)
    off = Missing(Reason.OFF)
    if EndpointState.METRICS_OFF in states:
        return msgspec.structs.replace(gpu, mfu_ratio=off, mbu_ratio=off)
    return gpu

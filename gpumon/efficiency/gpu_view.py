"""A GPU's raw reading, its engines and its peaks to the `Gpu` that is shown."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from operator import attrgetter
from typing import Any, Final, NamedTuple

from gpumon.efficiency.engine import Peak, assumes, plus
from gpumon.efficiency.gpu_engines import achievable_ratio, of_engines, peak_and_precision, tokens_per_j
from gpumon.efficiency.provenance import MEMORY_OF_HOST, MEMORY_V1, MEMORY_V2, Exporter, gpu_sources
from gpumon.efficiency.ratio import busy
from gpumon.efficiency.renewed import from_elsewhere
from gpumon.efficiency.windows import GAP, RATE_S
from gpumon.readings.dcgm import DCGM
from gpumon.readings.frame import EngineReading, GpuProcess, GpuReading, GpuState
from gpumon.readings.missing import WARMING_UP, Missing, Reading, Reason
from gpumon.readings.snapshot import BandwidthSource, Engine, Gpu, Process
from gpumon.readings.text import clean

BUSY_MEAN_MINUTES = 60
"""Length of the window of `busy_mean_ratio`, whether read or not."""
POWER_S = 0.9
"""Least time between the two energy readings that power is taken from."""
MOST_POWER_W = 20_000.0
"""No GPU draws as much (a GB300 superchip with its CPU: 2.9 kW): an energy counter that grew faster has jumped."""
BLANK = {
    GpuState.STALE: Missing(Reason.STALE),
    GpuState.LOST: Missing(Reason.LOST),
    GpuState.INITIALISING: Missing(Reason.WARMING_UP),
}
"""States in which a GPU has no figures at all."""
SILENT = (GpuState.LOST, GpuState.ERROR)
"""States whose age counts from the last good answer, however often it was tried again since."""
GAUGES = (
    "busy_ratio",
    "sm_active_ratio",
    "tensor_active_ratio",
    "vram_used_bytes",
    "vram_total_bytes",
    "power_limit_w",
    "temperature_c",
    "sm_clock_hz",
    "ecc_uncorrected",
    "remap_pending",
    "memory_temperature_c",
    "sm_occupancy_ratio",
    "memory_busy_ratio",
    "sm_clock_max_hz",
    "memory_clock_hz",
    "memory_clock_max_hz",
    "vram_reserved_bytes",
    "pcie_tx_bytes_per_s",
    "pcie_rx_bytes_per_s",
    "nvlink_tx_bytes_per_s",
    "nvlink_rx_bytes_per_s",
    "pcie_generation",
    "pcie_generation_max",
    "pcie_width",
    "pcie_width_max",
    "ecc_corrected",
    "remap_failed",
)
"""Fields of `Gpu` that are shown as they were read."""
_GAUGES_OF = attrgetter(*GAUGES)
COUNTER_SLACK_S = 10.0
"""A counter of seconds is read every few ticks: it may have grown by that much more than the clock since the last."""
COMMAND_CHARACTERS = 512


class GpuTrack:
    """What has to be remembered of one GPU between frames."""

    def __init__(self) -> None:
        self.window_s = RATE_S
        """Length of the means: that of the token rates."""
        self._longest_s = 0.0
        self.energy_j: Reading = WARMING_UP
        self.power_w: Reading = WARMING_UP
        """Mean between the two newest energy readings; missing after a gap, a reset, or without the counter."""
        self._energies: deque[tuple[float, float]] = deque()
        """The counter and when it was read, without gap or reset; the first stands about `window_s` ago."""
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

    def hear(self, reading: GpuReading) -> float:
        """When the GPU answered last as it should, this reading included."""
        if self.answered_s is None or reading.state not in SILENT:
            self.answered_s = reading.monotonic_s
        return self.answered_s

    def add(self, reading: GpuReading, longest_s: float, window_s: float = RATE_S) -> None:
        """Take in one reading; a pause longer than `longest_s` counts as missing time, not as busy or idle.

        A pause that was none by the `longest_s` of the reading before it is none either. Means are of `window_s`.
        """
        self.window_s = window_s
        now_s = reading.monotonic_s
        if self._last_s is not None and now_s <= self._last_s:
            return
        self._longest_s, longest_s = longest_s, max(longest_s, self._longest_s)
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
        """The energy of a gap counts, but is no power. A counter that fell (reset) or jumped is a new base line."""
        if isinstance(energy_j, Missing):
            self.power_w = energy_j
            self._energies.clear()
            self.energy_j = energy_j if isinstance(self.energy_j, Missing) else self.energy_j
            return
        last_j, last_s = self._energies[-1] if self._energies else (energy_j, now_s)
        another = not 0.0 <= energy_j - last_j <= MOST_POWER_W * max(now_s - last_s, POWER_S)
        if self._energies and not gap and not another and now_s - last_s < POWER_S:
            return  # the driver's counter moves in steps: over a shorter time its slope is noise
        if self._energies and not another:
            self.energy_j = energy_j - last_j + (0.0 if isinstance(self.energy_j, Missing) else self.energy_j)
        if gap or another or not self._energies:
            self._energies.clear()
            self.power_w = WARMING_UP
        else:
            self.power_w = (energy_j - last_j) / (now_s - last_s)
        self._energies.append((energy_j, now_s))
        start_s = now_s - self.window_s + (now_s - last_s) / 2  # readings are never exactly an interval apart
        while len(self._energies) > 2 and self._energies[1][1] <= start_s:
            self._energies.popleft()

    @property
    def mean_power_w(self) -> Reading:
        """Mean power over the last `window_s`, the window of the token rates: by the energy counter where there is one.

        Tokens per joule are tokens/s over these watts: over those of the last second they would be wrong by as much
        as the load has changed within the window.
        """
        if len(self._energies) < 2:
            return self.recent("power_w")
        (first_j, first_s), (last_j, last_s) = self._energies[0], self._energies[-1]
        return (last_j - first_j) / (last_s - first_s)

    def _add_throttle(self, counted_s: dict[str, float], now_s: float) -> None:
        """Grow by what the counters did. One that fell (reset), or outran the clock (garbage), is a new base line."""
        totals = dict(self.throttle_s)
        for cause, new_s in counted_s.items():
            old_s, read_s = self._counted.get(cause, (new_s, now_s))
            grown_s = new_s - old_s
            most_s = now_s - read_s + COUNTER_SLACK_S
            totals[cause] = totals.get(cause, 0.0) + (grown_s if 0.0 <= grown_s <= most_s else 0.0)
            self._counted[cause] = (new_s, now_s)
        self.throttle_s, self._read_s = totals, counted_s

    def recent(self, field: str) -> Reading:
        """Mean of a field over the last `window_s`, as long as MBU's window; its reason where the newest has none.

        A reading stands for the time since the one before.
        """
        newest: Reading = getattr(self._recent[-1], field) if self._recent else WARMING_UP
        if isinstance(newest, Missing):
            return newest
        before_s = max(self._recent[0].monotonic_s, self._recent[-1].monotonic_s - self.window_s)
        total = seen_s = 0.0
        for reading in islice(self._recent, 1, None):
            value, length_s = getattr(reading, field), reading.monotonic_s - before_s
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
        return busy(sum(busy_s for _, busy_s, _ in self._busy), seen_s) if seen_s > 0 else WARMING_UP


class Standing(NamedTuple):
    """How a GPU's reading stands at a moment: state to show, age in seconds, and why it has no figures if so."""

    state: GpuState
    age_s: float
    """Since it was read; of a GPU that is silent since it answered last."""
    blank: Missing | None
    read_s: float
    """Seconds since it was read."""


def standing_of(reading: GpuReading, answered_s: float, now_s: float, interval_s: float) -> Standing:
    """A reading older than `GAP` intervals has no figures, whatever state the GPU was in."""
    read_s = max(0.0, now_s - reading.monotonic_s)
    state, blank = reading.state, BLANK.get(reading.state)
    if blank is None and read_s > GAP * interval_s:
        state = GpuState.STALE if state is GpuState.OK else state
        blank = Missing(Reason.STALE)
    age_s = max(read_s, now_s - answered_s) if state in SILENT else read_s
    return Standing(state, age_s, blank, read_s)


def power_of(reading: GpuReading, track: GpuTrack, standing: Standing) -> Reading:
    """Watts: from the energy counter where this reading has it, else as the driver reports them."""
    if standing.blank is not None:
        return standing.blank
    return track.power_w if _by_energy(reading, track) else reading.power_w


def _by_energy(reading: GpuReading, track: GpuTrack) -> bool:
    """A dcgm-exporter's counter is dated to a poll of its page only: too roughly for a difference of two."""
    if reading.source == DCGM and not isinstance(reading.power_w, Missing):
        return False
    return not isinstance(reading.energy_j, Missing) and not isinstance(track.power_w, Missing)


def mean_power_of(track: GpuTrack, standing: Standing) -> Reading:
    """Watts over the window of the token rates: those that tokens and FLOPs per joule are worked out with."""
    return track.mean_power_w if standing.blank is None else standing.blank


def derive_gpu(
    reading: GpuReading,
    track: GpuTrack,
    standing: Standing,
    peak: Peak,
    engines: Sequence[Engine],
    read: Sequence[EngineReading],
    alone: Missing,
) -> Gpu:
    """The shown GPU; `engines` are those that run on it, `read` their polls; `alone` says why there is none."""
    state, age_s, blank, read_s = standing
    bandwidth, source = _bandwidth(reading, track, peak, engines) if blank is None else (blank, BandwidthSource.NONE)
    flops_peak, precision = peak_and_precision(reading, peak, read, alone)
    achievable = achievable_ratio(peak, flops_peak, precision)
    return Gpu(
        index=reading.index,
        **_identity(_TEXTS_OF(reading)),
        state=state,
        age_s=age_s,
        **_gauges(reading, blank),
        **(_live(reading, track, standing, engines, alone) if blank is None else dict.fromkeys(_LIVE, blank)),
        **_peaks(peak, assumed=any(assumes(peak, engine) for engine in read)),
        vram_shared=reading.vram_shared,
        bandwidth_bytes_per_s=bandwidth,
        bandwidth_source=source,
        power_w=power_of(reading, track, standing),
        throttle=reading.throttle if blank is None else (),
        xid=tuple(event.code for event in reading.xid),
        engines=tuple(engine.name for engine in engines),
        processes=track.processes(reading.processes) if blank is None else (),
        busy_mean_ratio=track.busy_mean_ratio,
        flops_peak_per_s=flops_peak,
        flops_peak_precision=precision,
        achievable_ratio=achievable,
        throttle_s=track.throttle_s,
        sources=_sources(reading, track, source, peak, precision, measured=not isinstance(achievable, Missing)),
        **from_elsewhere(reading, read_s),
    )


_LIVE: Final = ("mfu_ratio", "mbu_ratio", "energy_j", "nvlink_bytes_per_s", "pcie_bytes_per_s", "tokens_per_j")
"""Fields that `_live` gives."""


def _live(
    reading: GpuReading, track: GpuTrack, standing: Standing, engines: Sequence[Engine], alone: Missing
) -> dict[str, Reading]:
    """What a GPU that answers does, of which nothing is known of another."""
    found = (
        of_engines(reading, [engine.efficiency.mfu_ratio for engine in engines], alone),
        of_engines(reading, [engine.efficiency.mbu_ratio for engine in engines], alone),
        reading.energy_j if isinstance(reading.energy_j, Missing) else track.energy_j,
        plus(reading.nvlink_rx_bytes_per_s, reading.nvlink_tx_bytes_per_s),
        plus(reading.pcie_rx_bytes_per_s, reading.pcie_tx_bytes_per_s),
        tokens_per_j(engines, mean_power_of(track, standing)) if engines else alone,
    )
    return dict(zip(_LIVE, found, strict=True))


def _gauges(reading: GpuReading, blank: Missing | None) -> dict[str, Any]:
    values = _GAUGES_OF(reading) if blank is None else (blank,) * len(GAUGES)
    return dict(zip(GAUGES, values, strict=True))


def _peaks(peak: Peak, *, assumed: bool) -> dict[str, Any]:
    return {
        "bandwidth_peak_bytes_per_s": peak.bandwidth_bytes_per_s,
        "peak_source": clean(peak.source),
        "peak_unverified": peak.unverified or assumed,
        "bandwidth_peak_unverified": peak.bandwidth_unverified,
        "gpu_type": peak.spec.name if peak.spec is not None and peak.spec.listed else "",
    }


def _sources(
    reading: GpuReading, track: GpuTrack, bandwidth: BandwidthSource, peak: Peak, precision: str, *, measured: bool
) -> dict[str, str]:
    gpm = reading.sm_active_ratio
    return gpu_sources(
        bandwidth,
        _by_energy(reading, track),
        not (isinstance(gpm, Missing) and gpm.reason is Reason.NOT_SUPPORTED),
        _memory(reading),
        peak.bandwidth_source,
        peak.spec.source if peak.spec is not None else "",
        precision,
        peak.spec.achieved_source if peak.spec is not None and measured else "",
        round(track.window_s),
        Exporter(reading.from_dcgm, round(reading.activity_interval_s), alone=reading.source == DCGM),
    )


def _memory(reading: GpuReading) -> str:
    if reading.vram_shared:
        return MEMORY_OF_HOST
    if not isinstance(reading.vram_reserved_bytes, Missing):
        return MEMORY_V2
    return f"{MEMORY_V2}, else {MEMORY_V1}" if isinstance(reading.vram_used_bytes, Missing) else MEMORY_V1


_TEXTS = ("uuid", "name", "state_text", "parent_uuid", "mig_profile", "compute_capability")
_TEXTS_OF = attrgetter(*_TEXTS)


@lru_cache(maxsize=256)
def _identity(texts: tuple[str, ...]) -> dict[str, Any]:
    return {name: clean(text) for name, text in zip(_TEXTS, texts, strict=True)}


def _bandwidth(
    reading: GpuReading, track: GpuTrack, peak: Peak, engines: Sequence[Engine]
) -> tuple[Reading, BandwidthSource]:
    """The best source there is: measured, then the engines' modelled bytes (`>=`), then the upper bound (`<=`).

    Means over the window of MBU, so that the two can be compared; but DCGM's figure is a mean already, over its
    exporter's interval, and is shown as it is until the next one.
    """
    most = peak.bandwidth_bytes_per_s
    if isinstance(most, Missing):
        return most, BandwidthSource.NONE
    if reading.activity_source == DCGM and not isinstance(reading.dram_active_ratio, Missing):
        return reading.dram_active_ratio * most, BandwidthSource.DCGM
    measured = track.recent("dram_active_ratio")
    if not isinstance(measured, Missing):
        return measured * most, BandwidthSource.GPM
    share = of_engines(reading, [engine.efficiency.mbu_ratio for engine in engines], Missing(Reason.NO_ENGINE))
    bound = track.recent("memory_busy_ratio")
    if not isinstance(share, Missing) and (share > 0 or isinstance(bound, Missing)):
        return share * most, BandwidthSource.ENGINE
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
    )

"""A GPU's raw reading, its engines and its peaks to the `Gpu` that is shown."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from gpumon.efficiency.engine import Peak, plus
from gpumon.efficiency.engine_view import per
from gpumon.efficiency.ratio import busy
from gpumon.efficiency.windows import GAP
from gpumon.readings.frame import GpuReading, GpuState
from gpumon.readings.missing import WARMING_UP, Missing, Reading, Reason
from gpumon.readings.snapshot import BandwidthSource, Engine, Gpu, Process
from gpumon.readings.text import clean

BUSY_MEAN_MINUTES = 60
"""Length of the window of `busy_mean_ratio`."""
POWER_S = 0.9
"""Least time between the two energy readings that power is taken from."""
BLANK = {
    GpuState.STALE: Missing(Reason.STALE),
    GpuState.LOST: Missing(Reason.LOST),
    GpuState.INITIALISING: Missing(Reason.WARMING_UP),
}
"""States in which a GPU has no figures at all."""
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
)
"""Fields of `Gpu` that are shown as they were read."""


class GpuTrack:
    """What has to be remembered of one GPU between frames."""

    def __init__(self) -> None:
        self.energy_j: Reading = WARMING_UP
        self.power_w: Reading = WARMING_UP
        self._raw: tuple[float, float] | None = None
        self._last_s: float | None = None
        self._busy: deque[tuple[int, float, float]] = deque(maxlen=BUSY_MEAN_MINUTES)

    def add(self, reading: GpuReading, longest_s: float) -> None:
        """Take in one reading; a pause longer than `longest_s` counts as missing time, not as busy or idle."""
        now_s = reading.monotonic_s
        if self._last_s is not None and now_s <= self._last_s:
            return
        self._add_energy(reading.energy_j, now_s)
        elapsed_s = now_s - self._last_s if self._last_s is not None else 0.0
        if not isinstance(reading.busy_ratio, Missing) and 0.0 < elapsed_s <= longest_s:
            minute = int(now_s // 60)
            _, busy_s, seen_s = self._busy.pop() if self._busy and self._busy[-1][0] == minute else (minute, 0.0, 0.0)
            self._busy.append((minute, busy_s + reading.busy_ratio * elapsed_s, seen_s + elapsed_s))
        self._last_s = now_s

    def _add_energy(self, energy_j: Reading, now_s: float) -> None:
        if isinstance(energy_j, Missing):
            self.power_w, self._raw = energy_j, None
            self.energy_j = energy_j if isinstance(self.energy_j, Missing) else self.energy_j
            return
        if self._raw is not None and now_s - self._raw[1] < POWER_S:
            return  # the driver's counter moves in steps: over a shorter time its slope is noise
        if self._raw is not None and energy_j >= self._raw[0]:
            joules, seconds = energy_j - self._raw[0], now_s - self._raw[1]
            self.power_w = joules / seconds
            self.energy_j = joules + (0.0 if isinstance(self.energy_j, Missing) else self.energy_j)
        self._raw = (energy_j, now_s)

    @property
    def busy_mean_ratio(self) -> Reading:
        """Mean of busy over the last hour, missing time excluded."""
        seen_s = sum(seen for _, _, seen in self._busy)
        return busy(sum(busy_s for _, busy_s, _ in self._busy), seen_s) if seen_s > 0 else WARMING_UP


class Standing(NamedTuple):
    """How a GPU's reading stands at a moment: state to show, age in seconds, and why it has no figures if so."""

    state: GpuState
    age_s: float
    blank: Missing | None


def standing_of(reading: GpuReading, now_s: float, interval_s: float) -> Standing:
    """A reading older than `GAP` intervals has no figures, whatever state the GPU was in."""
    age_s = max(0.0, now_s - reading.monotonic_s)
    blank = BLANK.get(reading.state)
    if blank is None and age_s > GAP * interval_s:
        state = GpuState.STALE if reading.state is GpuState.OK else reading.state
        return Standing(state, age_s, Missing(Reason.STALE))
    return Standing(reading.state, age_s, blank)


def power_of(reading: GpuReading, track: GpuTrack, standing: Standing) -> Reading:
    """Watts: from the energy counter where this reading has it, else as the driver reports them."""
    if standing.blank is not None:
        return standing.blank
    known = not isinstance(reading.energy_j, Missing) and not isinstance(track.power_w, Missing)
    return track.power_w if known else reading.power_w


def derive_gpu(
    reading: GpuReading,
    track: GpuTrack,
    standing: Standing,
    peak: Peak,
    engines: Sequence[Engine],
) -> Gpu:
    """The shown GPU; `engines` are those that run on it."""
    state, age_s, blank = standing

    def live(value: Reading) -> Reading:
        return value if blank is None else blank

    bandwidth, source = _bandwidth(reading, peak, engines) if blank is None else (blank, BandwidthSource.NONE)
    power_w = power_of(reading, track, standing)
    gauges: dict[str, Any] = {name: live(getattr(reading, name)) for name in GAUGES}
    return Gpu(
        **_identity(reading),
        state=state,
        age_s=age_s,
        **gauges,
        vram_shared=reading.vram_shared,
        bandwidth_bytes_per_s=bandwidth,
        bandwidth_source=source,
        bandwidth_peak_bytes_per_s=peak.bandwidth_bytes_per_s,
        peak_source=clean(peak.source),
        mfu_ratio=_of_engines(reading, blank, [engine.mfu_ratio for engine in engines]),
        mbu_ratio=_of_engines(reading, blank, [engine.mbu_ratio for engine in engines]),
        power_w=power_w,
        energy_j=live(reading.energy_j if isinstance(reading.energy_j, Missing) else track.energy_j),
        nvlink_bytes_per_s=live(plus(reading.nvlink_rx_bytes_per_s, reading.nvlink_tx_bytes_per_s)),
        pcie_bytes_per_s=live(plus(reading.pcie_rx_bytes_per_s, reading.pcie_tx_bytes_per_s)),
        throttle=reading.throttle if blank is None else (),
        xid=tuple(event.code for event in reading.xid),
        engines=tuple(engine.name for engine in engines),
        processes=_processes(reading) if blank is None else (),
        busy_mean_ratio=track.busy_mean_ratio,
        tokens_per_j=live(_tokens_per_j(engines, power_w)),
    )


def _identity(reading: GpuReading) -> dict[str, Any]:
    texts = ("uuid", "name", "state_text", "parent_uuid", "mig_profile")
    return {"index": reading.index, **{name: clean(getattr(reading, name)) for name in texts}}


def _of_engines(reading: GpuReading, blank: Missing | None, parts: list[Reading]) -> Reading:
    if blank is not None:
        return blank
    if reading.mig or reading.parent_uuid:
        return Missing(Reason.UNDER_MIG)
    return plus(*parts) if parts else Missing(Reason.NO_ENGINE)


def _bandwidth(reading: GpuReading, peak: Peak, engines: Sequence[Engine]) -> tuple[Reading, BandwidthSource]:
    """The best source there is: measured, then the engines' modelled bytes (`>=`), then the upper bound (`<=`)."""
    most = peak.bandwidth_bytes_per_s
    if isinstance(most, Missing):
        return most, BandwidthSource.NONE
    if not isinstance(reading.dram_active_ratio, Missing):
        return reading.dram_active_ratio * most, BandwidthSource.GPM
    share = _of_engines(reading, None, [engine.mbu_ratio for engine in engines])
    if not isinstance(share, Missing):
        return share * most, BandwidthSource.ENGINE
    if not isinstance(reading.memory_busy_ratio, Missing):
        return reading.memory_busy_ratio * most, BandwidthSource.UPPER_BOUND
    return reading.memory_busy_ratio, BandwidthSource.NONE


def _tokens_per_j(engines: Sequence[Engine], power_w: Reading) -> Reading:
    if not engines:
        return Missing(Reason.NO_ENGINE)
    return per(plus(*(per(engine.decode_tokens_per_s, float(len(engine.gpus))) for engine in engines)), power_w)


def _processes(reading: GpuReading) -> tuple[Process, ...]:
    return tuple(
        Process(
            pid=process.pid,
            name=clean(process.name),
            user=clean(process.user, 32),
            vram_bytes=process.vram_bytes,
            container=clean(process.container, 64),
            engine=clean(process.engine),
        )
        for process in reading.processes
    )

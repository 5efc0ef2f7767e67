"""The simulated GPUs: what NVML would show while the engines do their work."""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec

from gpumon.readings.frame import GpuProcess, GpuReading, GpuState
from gpumon.readings.missing import NOT_SUPPORTED, Missing, Reading, Reason, number
from gpumon.sources.simulator.engine_model import Meter
from gpumon.sources.simulator.physics import MIB, Chip, ModelCopy

RESERVED_BYTES = 565 * MIB
"""Memory of an 80 GB card that the driver keeps."""

INLET_C = (27.0, 28.5, 30.0, 31.0, 28.0, 29.5, 31.5, 30.5)
"""Air temperature at each slot: the ones behind others are warmer."""

SILICON = (1.0, 0.985, 1.01, 0.99, 1.015, 0.995, 1.005, 0.98)
"""No two chips draw the same power for the same work."""

HEAT_C_PER_W = 0.058
HEAT_LAG_S = 18.0
IDLE_W = 71.0
CONTEXT_W = 116.0
"""Power without any process, and with one that does nothing: its context keeps the clocks up."""
SM_W = 130.0
TENSOR_W = 330.0
DRAM_W = 250.0
"""Power at full activity, on top."""
BURST_W = 200.0
"""Within a second the draw swings by that much around its mean: bursts meet the power cap, which only counters see."""
IDLE_CLOCK_HZ = 345e6
LOWEST_CLOCK = 0.2
"""However low the power limit, a GPU under load runs at so much of its clock."""
_NEVER_S = dict.fromkeys(
    ("sync_boost", "board_limit", "reliability", "sw_thermal_slowdown", "hw_thermal_slowdown"), 0.0
)
"""Causes that never hold these clocks down."""
_NO_SAMPLE = Missing(Reason.IDLE, "no sample of this process in the last seconds")


class AverageWork(msgspec.Struct, frozen=True):
    """Average work of one GPU: ratios of time, of the peaks, and bytes/s over its links."""

    busy_ratio: float = 0.0
    kernel_ratio: float = 0.0
    mfu_ratio: float = 0.0
    flops_per_s: float = 0.0
    dram_ratio: float = 0.0
    nvlink_bytes_per_s: float = 0.0
    pcie_bytes_per_s: float = 0.0


class GpuPace(NamedTuple):
    """How fast a GPU is for one of its programs."""

    clock: float = 1.0
    """SM clock, as a share of the highest."""
    others: float = 0.0
    """Share of the time that other programs compute there: kernels of two processes take turns."""


def share_time(first: AverageWork, second: AverageWork) -> AverageWork:
    """Two programs on one GPU, each of which has half of the time while both have work."""
    share = 1.0 - 0.5 * second.busy_ratio
    other = 1.0 - 0.5 * first.busy_ratio
    return AverageWork(
        busy_ratio=min(1.0, first.busy_ratio + second.busy_ratio),
        # The first one's kernels have been stretched by the wait for the second's.
        kernel_ratio=min(1.0, share * first.kernel_ratio + other * second.kernel_ratio),
        mfu_ratio=first.mfu_ratio + other * second.mfu_ratio,
        flops_per_s=first.flops_per_s + other * second.flops_per_s,
        dram_ratio=first.dram_ratio + other * second.dram_ratio,
        nvlink_bytes_per_s=first.nvlink_bytes_per_s + other * second.nvlink_bytes_per_s,
        pcie_bytes_per_s=first.pcie_bytes_per_s + other * second.pcie_bytes_per_s,
    )


def work_between(instance: ModelCopy, before: Meter, after: Meter, seconds: float) -> AverageWork:
    """Average work of each GPU of a rank between two meters, `seconds` apart.

    Tensor parallelism all-reduces the hidden state twice a layer; a ring moves 2 (n - 1) / n of it through each GPU.
    """
    shape = instance.shape
    gpus = instance.gpus
    tokens_per_s = (after.tokens - before.tokens) / seconds
    nvlink = instance.chip.nvlink
    reduced_bytes = 2 * shape.layers * shape.hidden * 2.0 * 2 * (gpus - 1) / gpus
    dram_bytes_per_s = (after.dram_bytes - before.dram_bytes) / seconds / gpus
    flops_per_s = (after.flops - before.flops) / seconds / gpus
    return AverageWork(
        busy_ratio=(after.busy_s - before.busy_s) / seconds,
        kernel_ratio=(after.kernel_s - before.kernel_s) / seconds,
        mfu_ratio=flops_per_s * gpus / instance.peak_flops_per_s,
        flops_per_s=flops_per_s,
        dram_ratio=dram_bytes_per_s / instance.chip.bytes_per_s,
        nvlink_bytes_per_s=tokens_per_s * reduced_bytes if nvlink else 0.0,
        pcie_bytes_per_s=2e5 * (after.steps - before.steps) / seconds
        + (60.0 + (0.0 if nvlink else reduced_bytes)) * tokens_per_s
        + (after.link_bytes - before.link_bytes) / seconds / gpus,
    )


class SimulatedGpu:
    """One GPU with its heat and its energy counter. `advance` says how long it did what."""

    def __init__(self, chip: Chip, index: int, processes: tuple[GpuProcess, ...]) -> None:
        self._chip = chip
        self._index = index
        self._processes = processes
        self._work = AverageWork()
        self._limit_w = chip.power_limit_w
        self.clock_share = 1.0
        """SM clock under load, as a share of the highest: below 1 where it is held down, or over its power limit."""
        self._over = False
        self._power_w = CONTEXT_W if processes else IDLE_W
        self._heat_c = self._target_c()
        self.energy_j = 3.6e6 * (400 + 35 * index)
        """Counter since the driver was loaded, which is days ago."""
        self.flops = 0.0
        self.dram_bytes = 0.0
        self.uuid = f"GPU-00000000-0000-4000-8000-{index:012d}"
        self._still = _still(chip, index, self.uuid, processes)
        self._capped_s = 310.0 + 45.0 * index
        """Seconds under the power cap since the driver was loaded."""

    @property
    def index(self) -> int:
        """Number of its slot."""
        return self._index

    def advance(self, seconds: float, work: AverageWork, clock_share: float = 1.0, limit_w: float = math.inf) -> None:
        """Do `work` for `seconds`, with the SM clock held to a share of the highest, and less over the power limit.

        Work was done at the clock of the call before. Dynamic power goes with the square of the clock: voltage goes
        with it too, if less than in proportion.
        """
        self._limit_w = min(limit_w, self._chip.power_limit_w)
        self._work = work
        share = SILICON[self._index % len(SILICON)]
        still_w = share * ((CONTEXT_W if self._processes else IDLE_W) + DRAM_W * work.dram_ratio)
        active_w = share * (SM_W * self._sm_active() + TENSOR_W * self._tensor_active())
        wanted_w = still_w + clock_share**2 * active_w
        self._over = wanted_w > self._limit_w
        self._power_w = min(wanted_w, self._limit_w)
        if self._over:
            room = max(0.0, self._limit_w - still_w) / active_w
        else:
            room = 1.0
        self.clock_share = max(LOWEST_CLOCK, min(clock_share, math.sqrt(room)))
        self.energy_j += self._power_w * seconds
        over_w = wanted_w + BURST_W - self._limit_w
        self._capped_s += seconds * min(1.0, max(0.0, over_w / (2 * BURST_W)))
        self.flops += work.flops_per_s * seconds
        self.dram_bytes += work.dram_ratio * self._chip.bytes_per_s * seconds
        self._heat_c += (self._target_c() - self._heat_c) * (1.0 - math.exp(-seconds / HEAT_LAG_S))

    def _target_c(self) -> float:
        return INLET_C[self._index % len(INLET_C)] + HEAT_C_PER_W * self._power_w

    def _sm_active(self) -> float:
        """SMs hold warps nearly all through a kernel, and a third of the time between kernels."""
        return min(1.0, 0.94 * self._work.kernel_ratio + 0.3 * (self._work.busy_ratio - self._work.kernel_ratio))

    def _tensor_active(self) -> float:
        """A good GEMM keeps the pipe at about three quarters of its speed at this clock while it is active."""
        return min(1.0, self._work.mfu_ratio / (0.75 * self.clock_share))

    def initialising(self, monotonic_s: float) -> GpuReading:
        """Its reading while the simulation warms up."""
        return GpuReading(self._index, self.uuid, self._chip.name, GpuState.INITIALISING, monotonic_s)

    def reading(self, monotonic_s: float) -> GpuReading:
        """Its reading as of NVML, with ratios over the last `advance`."""
        work = self._work
        sm = self._sm_active()
        return msgspec.structs.replace(
            self._still,
            monotonic_s=monotonic_s,
            busy_ratio=round(min(1.0, work.busy_ratio), 2),
            memory_busy_ratio=round(min(1.0, 1.25 * work.dram_ratio), 2),
            sm_active_ratio=sm,
            sm_occupancy_ratio=0.3 * sm,
            tensor_active_ratio=self._tensor_active(),
            dram_active_ratio=work.dram_ratio,
            pcie_tx_bytes_per_s=1e6 + 0.3 * work.pcie_bytes_per_s,
            pcie_rx_bytes_per_s=1e6 + work.pcie_bytes_per_s,
            nvlink_tx_bytes_per_s=work.nvlink_bytes_per_s if self._chip.nvlink else NOT_SUPPORTED,
            nvlink_rx_bytes_per_s=work.nvlink_bytes_per_s if self._chip.nvlink else NOT_SUPPORTED,
            power_w=round(self._power_w, 3),
            energy_j=round(self.energy_j, 3),
            temperature_c=float(round(self._heat_c)),
            memory_temperature_c=float(round(self._heat_c + 6.0 + 12.0 * work.dram_ratio)),
            sm_clock_hz=self._clock_hz(),
            power_limit_w=self._limit_w,
            power_default_w=self._chip.power_limit_w,
            throttle=("sw_power_cap",) if self._over else (),
            throttle_s={**_NEVER_S, "sw_power_cap": self._capped_s},
            processes=self._shares(),
        )

    def _shares(self) -> tuple[GpuProcess, ...]:
        """The processes with their share of the SMs: the first has all of it, one that ran nothing has no sample."""
        share: Reading = round(min(1.0, self._work.busy_ratio), 2) if self._work.busy_ratio > 0 else _NO_SAMPLE
        shares = []
        for place, process in enumerate(self._processes):
            shares.append(msgspec.structs.replace(process, sm_ratio=_NO_SAMPLE if place else share))
        return tuple(shares)

    def _clock_hz(self) -> float:
        """Full clock while a context is there, less where it is held down, in the driver's steps of 15 MHz."""
        full_hz = self._chip.sm_clock_hz if self._processes else IDLE_CLOCK_HZ
        return round(full_hz * self.clock_share / 15e6) * 15e6


def _still(chip: Chip, index: int, uuid: str, processes: tuple[GpuProcess, ...]) -> GpuReading:
    """The part of a GPU's reading that does not change with its work."""
    return GpuReading(
        index=index,
        uuid=uuid,
        name=chip.name,
        state=GpuState.OK,
        monotonic_s=0.0,
        source="simulator",
        activity_source="gpm",
        vram_used_bytes=sum(number(process.vram_bytes) or 0.0 for process in processes),
        vram_total_bytes=chip.memory_bytes,
        vram_reserved_bytes=RESERVED_BYTES,
        sm_clock_max_hz=chip.sm_clock_hz,
        memory_clock_hz=chip.memory_clock_hz,
        memory_clock_max_hz=chip.memory_clock_hz,
        memory_bus_bits=float(chip.memory_bus_bits),
        sm_count=float(chip.sm_count),
        compute_capability="9.0",
        ecc_uncorrected=0.0,
        ecc_corrected=0.0,
        remap_pending=0.0,
        remap_failed=0.0,
        pcie_generation=chip.pcie_generation,
        pcie_generation_max=chip.pcie_generation,
        pcie_width=16.0,
        pcie_width_max=16.0,
        persistence_mode=1.0,
        ecc_mode=1.0,
        processes=processes,
    )

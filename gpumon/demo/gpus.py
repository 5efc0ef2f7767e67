"""The simulated GPUs: the readings that NVML would give while the engines do their work."""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec

from gpumon.demo.engine_model import Meter
from gpumon.demo.physics import Chip, ModelCopy
from gpumon.readings.frame import GpuProcess, GpuReading, GpuState
from gpumon.readings.missing import NOT_SUPPORTED, Missing, Reading, Reason, number
from gpumon.specs.units import MIB

_J_PER_KWH = 3.6e6

# Figures of an H100 SXM: the simulator has no other architecture, and its PCIe card is taken to draw alike. They are
# choices: the project has no recording of such a GPU that they were read from.
RESERVED_BYTES = 565 * MIB
"""Memory of an 80 GB card that the driver keeps."""

NVLINKS = 18
"""NVLinks of an H100 SXM."""

INLET_C = (27.0, 28.5, 30.0, 31.0, 28.0, 29.5, 31.5, 30.5)
"""Air temperature at each slot: slots behind others are warmer."""

SILICON = (1.0, 0.985, 1.01, 0.99, 1.015, 0.995, 1.005, 0.98)
"""Power of each slot's chip, relative to the mean: no two chips draw the same for the same work."""

HEAT_C_PER_W = 0.058
"""Degrees above the air for each watt."""
HEAT_LAG_S = 18.0
"""Time constant with which the temperature follows the power."""
_IDLE_MEMORY_C = 6.0
"""Degrees by which idle memory is warmer than the chip."""
_BUSY_MEMORY_C = 12.0
"""Further degrees at full memory traffic."""
IDLE_W = 71.0
"""Power without any process."""
CONTEXT_W = 116.0
"""Power with a process that does nothing: its context keeps the clocks up."""
SM_W = 130.0
"""Power of the SMs at full activity, on top of CONTEXT_W."""
TENSOR_W = 330.0
"""Power of the tensor cores at full activity, on top."""
VECTOR_W = 330.0
"""Power of the FP32 and FP64 units at full activity, on top: a dense FP32 product draws as much as one of 16 bit."""
DRAM_W = 250.0
"""Power of the memory at full traffic, on top."""
BURST_W = 200.0
"""Swing of the draw around its mean within a second.

Bursts meet the power cap while the mean is below it: then `throttle_s` grows and no throttle reason is shown.
"""
IDLE_CLOCK_HZ = 345e6
"""SM clock without any process."""
_CLOCK_STEP_HZ = 15e6
"""The driver sets clocks in such steps."""
LOWEST_CLOCK = 0.2
"""Share of its highest clock at which a GPU under load runs however low the power limit."""
_SM_IN_KERNEL = 0.94
"""SM activity within a kernel: SMs hold warps nearly all the time."""
_SM_BETWEEN_KERNELS = 0.3
"""SM activity between kernels."""
_GEMM_SPEED = 0.75
"""Share of the tensor cores' speed that a good GEMM reaches while it keeps them active."""
_OCCUPANCY = 0.3
"""SM occupancy at full SM activity."""
_MEMORY_BUSY = 1.25
"""`memory_busy_ratio` of the driver for each unit of real memory traffic."""
_ALL_REDUCES_PER_LAYER = 2
"""All-reduces of tensor parallelism: after the attention and after the MLP."""
_BYTES_16_BIT = 2.0
_PCIE_BYTES_PER_STEP = 2e5
"""Bytes over PCIe that a step costs: launches and block tables."""
_PCIE_BYTES_PER_TOKEN = 60.0
"""Bytes over PCIe that a token costs: its ids and its text."""
_PCIE_IDLE_BYTES_PER_S = 1e6
"""PCIe traffic of an idle GPU in each direction."""
_PCIE_TX_SHARE = 0.3
"""Bytes that a GPU sends over PCIe for each byte that it receives."""
_THROTTLE_S_OF_NEVER = dict.fromkeys(
    ("sync_boost", "board_limit", "reliability", "sw_thermal_slowdown", "hw_thermal_slowdown"), 0.0
)
"""Causes that never hold these clocks down, each with its 0 s."""
_NO_SAMPLE = Missing(Reason.IDLE, "no sample of this process in the last seconds")


class AverageWork(msgspec.Struct, frozen=True):
    """Average work of one GPU: ratios of time, of the peaks, and bytes/s over its links."""

    busy_ratio: float = 0.0
    """Share of the time in which a step runs."""
    kernel_ratio: float = 0.0
    """Share of the time in which a kernel computes."""
    mfu_ratio: float = 0.0
    """FLOP/s as a share of the peak."""
    flops_per_s: float = 0.0
    dram_ratio: float = 0.0
    """Memory traffic as a share of the peak."""
    nvlink_bytes_per_s: float = 0.0
    pcie_bytes_per_s: float = 0.0
    vector_ratio: float = 0.0
    """Activity of the FP32 and FP64 units, of a program that does not use the tensor cores."""


class GpuPace(NamedTuple):
    """How fast a GPU is for one of its programs."""

    clock: float = 1.0
    """SM clock, as a share of the highest."""
    others: float = 0.0
    """Share of the time that other programs compute there: kernels of two processes take turns."""


def combine_programs(first: AverageWork, second: AverageWork) -> AverageWork:
    """Work of one GPU with two programs, each of which has half of the time while both have work.

    The FLOPs and bytes of the first are right as they are: its steps were simulated with the second beside them
    (`GpuPace.others`). The second is simulated as if it were alone, and is scaled to its share of the time.
    """
    first_share = 1.0 - 0.5 * second.busy_ratio
    second_share = 1.0 - 0.5 * first.busy_ratio
    return AverageWork(
        busy_ratio=min(1.0, first.busy_ratio + second.busy_ratio),
        # Kernel time of the first includes its waits for kernels of the second: `first_share` takes them out.
        kernel_ratio=min(1.0, first_share * first.kernel_ratio + second_share * second.kernel_ratio),
        mfu_ratio=first.mfu_ratio + second_share * second.mfu_ratio,
        flops_per_s=first.flops_per_s + second_share * second.flops_per_s,
        dram_ratio=first.dram_ratio + second_share * second.dram_ratio,
        nvlink_bytes_per_s=first.nvlink_bytes_per_s + second_share * second.nvlink_bytes_per_s,
        pcie_bytes_per_s=first.pcie_bytes_per_s + second_share * second.pcie_bytes_per_s,
        vector_ratio=first.vector_ratio + second_share * second.vector_ratio,
    )


def work_between(model_copy: ModelCopy, before: Meter, after: Meter, seconds: float) -> AverageWork:
    """Average work of each GPU of a model copy between two meters, `seconds` apart.

    Tensor parallelism all-reduces the hidden state twice a layer; a ring moves 2 (n - 1) / n of it through each GPU.
    KV cache that is sent elsewhere or fetched (`Meter.link_bytes`) passes PCIe, also where there is NVLink.
    """
    shape = model_copy.shape
    gpus = model_copy.gpus
    tokens_per_s = (after.tokens - before.tokens) / seconds
    state_bytes_per_token = _ALL_REDUCES_PER_LAYER * shape.layers * shape.hidden * _BYTES_16_BIT
    reduced_bytes_per_token = state_bytes_per_token * 2 * (gpus - 1) / gpus
    nvlink_bytes_per_token = 0.0
    pcie_bytes_per_token = _PCIE_BYTES_PER_TOKEN
    if model_copy.chip.nvlink:
        nvlink_bytes_per_token = reduced_bytes_per_token
    else:
        pcie_bytes_per_token += reduced_bytes_per_token
    steps_per_s = (after.steps - before.steps) / seconds
    link_bytes_per_s = (after.link_bytes - before.link_bytes) / seconds / gpus
    dram_bytes_per_s = (after.dram_bytes - before.dram_bytes) / seconds / gpus
    flops_per_s = (after.flops - before.flops) / seconds / gpus
    return AverageWork(
        busy_ratio=(after.busy_s - before.busy_s) / seconds,
        kernel_ratio=(after.kernel_s - before.kernel_s) / seconds,
        mfu_ratio=flops_per_s * gpus / model_copy.peak_flops_per_s,  # the peak is that of all its GPUs
        flops_per_s=flops_per_s,
        dram_ratio=dram_bytes_per_s / model_copy.chip.bytes_per_s,
        nvlink_bytes_per_s=tokens_per_s * nvlink_bytes_per_token,
        pcie_bytes_per_s=(_PCIE_BYTES_PER_STEP * steps_per_s + pcie_bytes_per_token * tokens_per_s + link_bytes_per_s),
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
        self._over_limit = False
        """It draws as much power as it may: its work would take more."""
        self._power_w = CONTEXT_W if processes else IDLE_W
        self._heat_c = self._target_c()
        self.energy_j = _J_PER_KWH * (400 + 35 * index)
        """Counter since the driver was loaded, which is days ago: it begins elsewhere on each GPU."""
        self.flops = 0.0
        """FLOPs so far: the truth that tests hold figures against."""
        self.dram_bytes = 0.0
        """Bytes of memory traffic so far: the same truth."""
        self.uuid = f"GPU-00000000-0000-4000-8000-{index:012d}"
        self._constant_reading = _constant_reading(chip, index, self.uuid, processes)
        self._capped_s = 310.0 + 45.0 * index
        """Seconds under the power cap since the driver was loaded: another number on each GPU."""

    @property
    def index(self) -> int:
        """Number of its slot."""
        return self._index

    def advance(
        self, seconds: float, work: AverageWork, most_clock_share: float = 1.0, limit_w: float = math.inf
    ) -> None:
        """Do `work` for `seconds`, with the SM clock at most at a share of the highest, and lower at the power limit.

        `work` was computed at the clock of the call before, which is `self.clock_share` until this one ends. Dynamic
        power goes with the square of the clock: the voltage falls with it, if less than in proportion.
        """
        self._limit_w = min(limit_w, self._chip.power_limit_w)
        self._work = work
        silicon = SILICON[self._index % len(SILICON)]
        base_w = silicon * ((CONTEXT_W if self._processes else IDLE_W) + DRAM_W * work.dram_ratio)
        active_w = silicon * (
            SM_W * self._sm_active() + TENSOR_W * self._tensor_active() + VECTOR_W * work.vector_ratio
        )
        unlimited_w = base_w + most_clock_share**2 * active_w
        self._over_limit = unlimited_w > self._limit_w
        self._power_w = min(unlimited_w, self._limit_w)
        allowed_w = self._limit_w - base_w
        if not self._over_limit:
            active_share = 1.0
        elif allowed_w > 0.0:
            active_share = allowed_w / active_w
        else:
            active_share = 0.0
        self.clock_share = max(LOWEST_CLOCK, min(most_clock_share, math.sqrt(active_share)))
        self.energy_j += self._power_w * seconds
        # The draw swings by BURST_W around its mean: this share of the swing is above the limit.
        over_w = unlimited_w + BURST_W - self._limit_w
        self._capped_s += seconds * min(1.0, max(0.0, over_w / (2 * BURST_W)))
        self.flops += work.flops_per_s * seconds
        self.dram_bytes += work.dram_ratio * self._chip.bytes_per_s * seconds
        self._heat_c += (self._target_c() - self._heat_c) * (1.0 - math.exp(-seconds / HEAT_LAG_S))

    def _target_c(self) -> float:
        """The temperature that it would reach if the power stayed as it is now."""
        return INLET_C[self._index % len(INLET_C)] + HEAT_C_PER_W * self._power_w

    def _sm_active(self) -> float:
        """SM activity, as a ratio."""
        work = self._work
        between_ratio = work.busy_ratio - work.kernel_ratio
        return min(1.0, _SM_IN_KERNEL * work.kernel_ratio + _SM_BETWEEN_KERNELS * between_ratio)

    def _tensor_active(self) -> float:
        """Tensor core activity, as a ratio; at a lower clock the same work keeps them active for longer.

        In a reading it belongs to the clock that the reading shows beside it, which the last `advance` set at its end.
        """
        return min(1.0, self._work.mfu_ratio / (_GEMM_SPEED * self.clock_share))

    def initialising_reading(self, monotonic_s: float) -> GpuReading:
        """Its reading while the simulation warms up."""
        return GpuReading(self._index, self.uuid, self._chip.name, GpuState.INITIALISING, monotonic_s)

    def reading(self, monotonic_s: float) -> GpuReading:
        """Its reading as NVML would give it, with ratios over the last `advance`."""
        work = self._work
        sm = self._sm_active()
        nvlink_bytes_per_s: Reading = work.nvlink_bytes_per_s if self._chip.nvlink else NOT_SUPPORTED
        return msgspec.structs.replace(
            self._constant_reading,
            monotonic_s=monotonic_s,
            busy_ratio=round(min(1.0, work.busy_ratio), 2),
            memory_busy_ratio=round(min(1.0, _MEMORY_BUSY * work.dram_ratio), 2),
            sm_active_ratio=sm,
            sm_occupancy_ratio=_OCCUPANCY * sm,
            tensor_active_ratio=self._tensor_active(),
            dram_active_ratio=work.dram_ratio,
            pcie_tx_bytes_per_s=_PCIE_IDLE_BYTES_PER_S + _PCIE_TX_SHARE * work.pcie_bytes_per_s,
            pcie_rx_bytes_per_s=_PCIE_IDLE_BYTES_PER_S + work.pcie_bytes_per_s,
            nvlink_tx_bytes_per_s=nvlink_bytes_per_s,
            nvlink_rx_bytes_per_s=nvlink_bytes_per_s,
            power_w=round(self._power_w, 3),
            energy_j=round(self.energy_j, 3),
            temperature_c=float(round(self._heat_c)),
            memory_temperature_c=float(round(self._heat_c + _IDLE_MEMORY_C + _BUSY_MEMORY_C * work.dram_ratio)),
            sm_clock_hz=self._clock_hz(),
            power_limit_w=self._limit_w,
            power_default_w=self._chip.power_limit_w,
            throttle=("sw_power_cap",) if self._over_limit else (),
            throttle_s={**_THROTTLE_S_OF_NEVER, "sw_power_cap": self._capped_s},
            processes=self._processes_with_shares(),
        )

    def _processes_with_shares(self) -> tuple[GpuProcess, ...]:
        """The processes with their share of the SMs: the first has all of it, the others have no sample."""
        first_share: Reading = _NO_SAMPLE
        if self._work.busy_ratio > 0:
            first_share = round(min(1.0, self._work.busy_ratio), 2)
        processes = []
        for index, process in enumerate(self._processes):
            share = first_share if index == 0 else _NO_SAMPLE
            processes.append(msgspec.structs.replace(process, sm_ratio=share))
        return tuple(processes)

    def _clock_hz(self) -> float:
        """SM clock: the full one while a context is there, less where it is held down, in the driver's steps."""
        full_hz = self._chip.sm_clock_hz if self._processes else IDLE_CLOCK_HZ
        return round(full_hz * self.clock_share / _CLOCK_STEP_HZ) * _CLOCK_STEP_HZ


def _constant_reading(chip: Chip, index: int, uuid: str, processes: tuple[GpuProcess, ...]) -> GpuReading:
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
        nvlinks=float(NVLINKS) if chip.nvlink else NOT_SUPPORTED,
        nvlinks_active=float(NVLINKS) if chip.nvlink else NOT_SUPPORTED,
        nvlink_errors=0.0 if chip.nvlink else NOT_SUPPORTED,
        pcie_replays=0.0,
        persistence_mode=1.0,
        ecc_mode=1.0,
        processes=processes,
    )

"""Peaks of a GPU, and the facts of its driver: peaks by number format, memory bandwidth, memory size."""

from __future__ import annotations

from enum import Enum

import msgspec

from gpumon.specs.precision import Precision


class PeaksOrigin(str, Enum):
    """Source of the peaks of a GPU."""

    CATALOGUE = "catalogue"
    CONFIG = "config"
    DERIVED = "derived"
    """From what the driver tells: no row has this name."""


class GpuSpec(msgspec.Struct, frozen=True):
    """Peaks of one GPU type; FLOP/s dense (never the 2:4 sparse figure of data sheets)."""

    name: str
    """Short name, e.g. `H100 SXM 80GB`."""
    architecture: str
    bandwidth_bytes_per_s: float
    """Peak of the memory; 0 where not known."""
    memory_bytes: float
    """0 where not known."""
    flops_per_s: dict[Precision, float]
    """Dense peak per format, with FP32 accumulation for the 16-bit ones. A format that the GPU lacks is not in it; 0.0
    where the GPU has the format and its peak is not known."""
    origin: PeaksOrigin = PeaksOrigin.CATALOGUE
    verified: bool = True
    """At least two sources agree on the peaks, or the user gave them."""
    how: str = ""
    """How derived peaks were worked out, or why there are none."""
    note: str = ""
    """Further facts about the row, for people."""
    tdp_w: float = 0.0
    link_bytes_per_s: float = 0.0
    """Link to the other GPUs of its server, one direction: NVLink, else PCIe x16; 0: not known."""
    has_nvlink: bool = False
    """Whether that link is NVLink or xGMI."""
    pcie_bytes_per_s: float = 0.0
    """PCIe x16, one direction; 0: not known."""
    sm_count: float = 0.0
    """0 where not known."""
    achieved_flops_per_s: dict[Precision, float] = {}
    """Measured rate of products of large matrices, if a source has one; never a denominator of MFU."""
    achieved_source: str = ""

    @property
    def source(self) -> str:
        """Source of the peaks, as it is shown."""
        if self.origin is PeaksOrigin.DERIVED:
            return f"derived: {self.how}"
        origin: str = self.origin.value
        if self.verified:
            return origin
        return f"{origin} (unverified)"

    @property
    def listed(self) -> bool:
        """Whether its name is one that sizing and prices can look up."""
        return self.origin is not PeaksOrigin.DERIVED

    def achievable_ratio(self, precision: Precision) -> float | None:
        """Share of the dense peak that products of large matrices reached; None where no source measured it."""
        achieved = self.achieved_flops_per_s.get(precision)
        peak = self.flops_per_s.get(precision)
        if achieved and peak:
            return achieved / peak
        return None


class GpuFacts(msgspec.Struct, frozen=True):
    """Facts of a GPU from its driver, as far as its peaks depend on them."""

    name: str
    memory_total_bytes: float | None = None
    sm_count: float | None = None
    max_sm_clock_hz: float | None = None
    max_mem_clock_hz: float | None = None
    bus_bits: float | None = None
    compute_capability: str = ""
    """CUDA's, e.g. `9.0`."""
    architecture: int = 0
    """NVML_DEVICE_ARCH_*; 0: not told."""
    memory_peak_bytes_per_s: float | None = None
    """Peak of its memory, where the driver has it as one figure."""

    @property
    def bandwidth_bytes_per_s(self) -> float | None:
        """Peak = maximum memory clock x 2 (double data rate) x bus width / 8; None where either is not known.

        Reproduces the data sheets within 2.5% (they round down). NVML has neither figure on GB10, Thor and vGPU. Where
        the driver has the peak itself, it is that.
        """
        if self.memory_peak_bytes_per_s:
            return self.memory_peak_bytes_per_s
        if not self.max_mem_clock_hz or not self.bus_bits or self.max_mem_clock_hz < 0 or self.bus_bits < 0:
            return None
        return self.max_mem_clock_hz * 2.0 * self.bus_bits / 8.0

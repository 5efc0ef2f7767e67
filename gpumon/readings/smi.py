"""Columns of `nvidia-smi --query-gpu` (csv, nounits): names, the field that each fills, and units."""

from __future__ import annotations

from typing import Final

import msgspec

from gpumon.specs.units import MHZ, MIB, PERCENT

SMI: Final = "nvidia-smi"
"""`GpuReading.source` of a GPU that only nvidia-smi tells of: that of a host without gpumon."""


class SmiColumn(msgspec.Struct, frozen=True):
    """One figure: the name that nvidia-smi gives it, the field of `GpuReading`, and the factor to that field's unit."""

    name: str
    field: str
    factor: float = 1.0


SMI_FIGURES: Final = (
    SmiColumn("utilization.gpu", "busy_ratio", PERCENT),
    SmiColumn("utilization.memory", "memory_busy_ratio", PERCENT),
    SmiColumn("memory.total", "vram_total_bytes", MIB),
    SmiColumn("memory.used", "vram_used_bytes", MIB),
    SmiColumn("memory.reserved", "vram_reserved_bytes", MIB),
    SmiColumn("power.draw", "power_w"),
    SmiColumn("enforced.power.limit", "power_limit_w"),
    SmiColumn("power.default_limit", "power_default_w"),
    SmiColumn("temperature.gpu", "temperature_c"),
    SmiColumn("temperature.memory", "memory_temperature_c"),
    SmiColumn("clocks.sm", "sm_clock_hz", MHZ),
    SmiColumn("clocks.max.sm", "sm_clock_max_hz", MHZ),
    SmiColumn("clocks.mem", "memory_clock_hz", MHZ),
    SmiColumn("clocks.max.mem", "memory_clock_max_hz", MHZ),
    SmiColumn("pcie.link.gen.current", "pcie_generation"),
    SmiColumn("pcie.link.gen.max", "pcie_generation_max"),
    SmiColumn("pcie.link.width.current", "pcie_width"),
    SmiColumn("pcie.link.width.max", "pcie_width_max"),
    SmiColumn("fan.speed", "fan_ratio", PERCENT),
    SmiColumn("ecc.errors.corrected.volatile.total", "ecc_corrected"),
    SmiColumn("ecc.errors.uncorrected.volatile.total", "ecc_uncorrected"),
)
"""Memory in MiB, power in W, clocks in MHz, shares in percent."""

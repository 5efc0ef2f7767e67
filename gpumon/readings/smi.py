"""Columns of `nvidia-smi --query-gpu` (csv, nounits): names, the field that each fills, and units."""

from __future__ import annotations

from typing import Final, NamedTuple

SMI: Final = "nvidia-smi"
"""`GpuReading.source` of a GPU that only nvidia-smi tells of: that of a host without gpumon."""
MIB: Final = 1048576.0
MHZ: Final = 1e6
PERCENT: Final = 0.01


class Column(NamedTuple):
    """One figure: the name that nvidia-smi gives it, the field of `GpuReading`, and the factor to that field's unit."""

    name: str
    field: str
    factor: float = 1.0


FIGURES: Final = (
    Column("utilization.gpu", "busy_ratio", PERCENT),
    Column("utilization.memory", "memory_busy_ratio", PERCENT),
    Column("memory.total", "vram_total_bytes", MIB),
    Column("memory.used", "vram_used_bytes", MIB),
    Column("memory.reserved", "vram_reserved_bytes", MIB),
    Column("power.draw", "power_w"),
    Column("enforced.power.limit", "power_limit_w"),
    Column("power.default_limit", "power_default_w"),
    Column("temperature.gpu", "temperature_c"),
    Column("temperature.memory", "memory_temperature_c"),
    Column("clocks.sm", "sm_clock_hz", MHZ),
    Column("clocks.max.sm", "sm_clock_max_hz", MHZ),
    Column("clocks.mem", "memory_clock_hz", MHZ),
    Column("clocks.max.mem", "memory_clock_max_hz", MHZ),
    Column("pcie.link.gen.current", "pcie_generation"),
    Column("pcie.link.gen.max", "pcie_generation_max"),
    Column("pcie.link.width.current", "pcie_width"),
    Column("pcie.link.width.max", "pcie_width_max"),
    Column("fan.speed", "fan_ratio", PERCENT),
    Column("ecc.errors.corrected.volatile.total", "ecc_corrected"),
    Column("ecc.errors.uncorrected.volatile.total", "ecc_uncorrected"),
)
"""Memory in MiB, power in W, clocks in MHz, shares in percent."""

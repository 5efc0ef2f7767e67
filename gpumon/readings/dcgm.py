"""DCGM's metrics of a GPU: names on a dcgm-exporter's page, the field that each fills, its unit and bounds."""

from __future__ import annotations

from typing import Final

import msgspec

from gpumon.figures.gpu import GPU
from gpumon.readings.missing import Missing, Reason
from gpumon.specs.units import MHZ, MIB, PERCENT

DCGM: Final = "dcgm"
"""`GpuReading.source` of a GPU that only an exporter tells of, and `activity_source` of what DCGM measured."""
GPM: Final = "gpm"
"""`activity_source` of what NVML's GPM measured: it comes before DCGM's."""

NOT_ON_PAGE: Final = Missing(Reason.NOT_EXPOSED, "not on the page of the dcgm-exporter")
NOT_OF_GPU: Final = Missing(Reason.NOT_EXPOSED, "on the page of the dcgm-exporter for other GPUs only")
"""A figure whose counter is exported: of this GPU there is no value, or it does not have what is counted."""
NOT_READ: Final = Missing(Reason.NOT_EXPOSED, "gpumon does not read it from a dcgm-exporter")
"""A figure without a metric in `DCGM_METRICS`: what the hardware has is not known."""


class DcgmMetric(msgspec.Struct, frozen=True):
    """One figure: the field of `GpuReading`, its names with the factor to the field's unit, and its bounds.

    Names: those of the exporter's default-counters.csv first, then the unit-suffixed ones of DCGM 4.7 (fields 1600 to
    1628), which hold the same figure.
    """

    field: str
    names: tuple[tuple[str, float], ...]
    most: float
    """Largest number that can be true, as its row has it: DCGM's blanks (2^47, 2^63 and beyond) lie above."""
    above: float = -1.0
    """True values are larger than this: some GPUs print 0 for a temperature that they do not have."""
    profiled: bool = False
    """A mean over the exporter's interval, from the hardware's counters; the others are samples."""
    whole_gpu: bool = False
    """Under MIG the exporter repeats it at every slice, but it is the whole GPU's."""


ENGINE_ACTIVE: Final = "engine_active_ratio"
"""Not a field of its own: `busy_ratio` where NVML's utilisation is not there (MIG)."""
FREE_BYTES: Final = "vram_free_bytes"
"""Not a field: with `vram_used_bytes` it makes the total."""
XID: Final = "xid"
"""The last Xid error's number; 0: none."""


_BOUNDED_AS: Final = {ENGINE_ACTIVE: "sm_active_ratio", FREE_BYTES: "vram_total_bytes"}
"""Series that is no field of its own -> the field whose bound it has."""
_MOST_XID: Final = 1e4


def _metric(
    field: str,
    *names: tuple[str, float],
    profiled: bool = False,
    whole_gpu: bool = False,
    above_zero: bool = False,
) -> DcgmMetric:
    """A row of the table. `names`: each without `DCGM_FI_`, and its factor; `above_zero`: a 0 is no true value."""
    above = 0.0 if above_zero else -1.0
    return DcgmMetric(
        field=field,
        names=tuple((f"DCGM_FI_{name}", factor) for name, factor in names),
        most=GPU[_BOUNDED_AS.get(field, field)].largest if field != XID else _MOST_XID,
        above=above,
        profiled=profiled,
        whole_gpu=whole_gpu,
    )


DCGM_METRICS: Final = (
    _metric("busy_ratio", ("DEV_GPU_UTIL", PERCENT), ("DEV_GPU_UTIL_RATIO", 1.0), whole_gpu=True),
    _metric("memory_busy_ratio", ("DEV_MEM_COPY_UTIL", PERCENT), ("DEV_MEMORY_UTIL_RATIO", 1.0), whole_gpu=True),
    _metric(ENGINE_ACTIVE, ("PROF_GR_ENGINE_ACTIVE", 1.0), ("PROF_GR_ENGINE_UTIL_RATIO", 1.0), profiled=True),
    _metric("sm_active_ratio", ("PROF_SM_ACTIVE", 1.0), ("PROF_SM_UTIL_RATIO", 1.0), profiled=True),
    _metric("sm_occupancy_ratio", ("PROF_SM_OCCUPANCY", 1.0), ("PROF_SM_OCCUPANCY_RATIO", 1.0), profiled=True),
    _metric("tensor_active_ratio", ("PROF_PIPE_TENSOR_ACTIVE", 1.0), ("PROF_TENSOR_UTIL_RATIO", 1.0), profiled=True),
    _metric("dram_active_ratio", ("PROF_DRAM_ACTIVE", 1.0), ("PROF_DRAM_UTIL_RATIO", 1.0), profiled=True),
    _metric("pcie_tx_bytes_per_s", ("PROF_PCIE_TX_BYTES", 1.0), profiled=True, whole_gpu=True),
    _metric("pcie_rx_bytes_per_s", ("PROF_PCIE_RX_BYTES", 1.0), profiled=True, whole_gpu=True),
    _metric("nvlink_tx_bytes_per_s", ("PROF_NVLINK_TX_BYTES", 1.0), profiled=True, whole_gpu=True),
    _metric("nvlink_rx_bytes_per_s", ("PROF_NVLINK_RX_BYTES", 1.0), profiled=True, whole_gpu=True),
    _metric("vram_used_bytes", ("DEV_FB_USED", MIB), ("DEV_FB_USED_BYTES", 1.0)),
    _metric(FREE_BYTES, ("DEV_FB_FREE", MIB), ("DEV_FB_FREE_BYTES", 1.0)),
    _metric("vram_reserved_bytes", ("DEV_FB_RESERVED", MIB), ("DEV_FB_RESERVED_BYTES", 1.0)),
    _metric("vram_total_bytes", ("DEV_FB_TOTAL", MIB), ("DEV_FB_CAPACITY_BYTES", 1.0), above_zero=True),
    _metric("power_w", ("DEV_POWER_USAGE", 1.0), ("DEV_BOARD_POWER_WATTS", 1.0), whole_gpu=True),
    _metric(
        "power_limit_w",
        ("DEV_ENFORCED_POWER_LIMIT", 1.0),
        ("DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS", 1.0),
        ("DEV_POWER_MGMT_LIMIT", 1.0),
        ("DEV_BOARD_POWER_LIMIT_REQUESTED_WATTS", 1.0),
        whole_gpu=True,
        above_zero=True,
    ),
    _metric("energy_j", ("DEV_TOTAL_ENERGY_CONSUMPTION", 0.001), ("DEV_GPU_ENERGY_JOULES_TOTAL", 1.0), whole_gpu=True),
    _metric("temperature_c", ("DEV_GPU_TEMP", 1.0), ("DEV_GPU_TEMP_CELSIUS", 1.0), whole_gpu=True, above_zero=True),
    _metric(
        "memory_temperature_c",
        ("DEV_MEMORY_TEMP", 1.0),
        ("DEV_MEMORY_TEMP_CELSIUS", 1.0),
        whole_gpu=True,
        above_zero=True,
    ),
    _metric("sm_clock_hz", ("DEV_SM_CLOCK", MHZ), ("DEV_SM_CLOCK_HERTZ", 1.0), whole_gpu=True),
    _metric(
        "sm_clock_max_hz",
        ("DEV_MAX_SM_CLOCK", MHZ),
        ("DEV_SM_MAX_CLOCK_HERTZ", 1.0),
        whole_gpu=True,
        above_zero=True,
    ),
    _metric("memory_clock_hz", ("DEV_MEM_CLOCK", MHZ), ("DEV_MEMORY_CLOCK_HERTZ", 1.0), whole_gpu=True),
    _metric(
        "memory_clock_max_hz",
        ("DEV_MAX_MEM_CLOCK", MHZ),
        ("DEV_MEMORY_MAX_CLOCK_HERTZ", 1.0),
        whole_gpu=True,
        above_zero=True,
    ),
    _metric("ecc_uncorrected", ("DEV_ECC_DBE_VOL_TOTAL", 1.0), whole_gpu=True),
    _metric("ecc_corrected", ("DEV_ECC_SBE_VOL_TOTAL", 1.0), whole_gpu=True),
    _metric("remap_pending", ("DEV_ROW_REMAP_PENDING", 1.0), whole_gpu=True),
    _metric("remap_failed", ("DEV_ROW_REMAP_FAILURE", 1.0), ("DEV_ROW_REMAP_FAILED", 1.0), whole_gpu=True),
    _metric("pcie_generation", ("DEV_PCIE_LINK_GEN", 1.0), whole_gpu=True, above_zero=True),
    _metric("pcie_generation_max", ("DEV_PCIE_MAX_LINK_GEN", 1.0), whole_gpu=True, above_zero=True),
    _metric("pcie_width", ("DEV_PCIE_LINK_WIDTH", 1.0), whole_gpu=True, above_zero=True),
    _metric("pcie_width_max", ("DEV_PCIE_MAX_LINK_WIDTH", 1.0), whole_gpu=True, above_zero=True),
    _metric(XID, ("DEV_XID_ERRORS", 1.0), ("DEV_XID_ERROR", 1.0), whole_gpu=True),
)
"""All metrics that are read. They are per GPU; ratios are 0 to 1.

PCIe and NVLink are rates in bytes/s although some counters files call them counters (dcgm-exporter issues 87 and 88).
`DCGM_FI_DEV_GPU_UTIL_RATIO` is a share only since DCGM 4.7; in 4.6 it was a percentage under the same name.
"""

PERCENT_ONCE: Final = "DCGM_FI_DEV_GPU_UTIL_RATIO"
"""A page with a number above 1 under this name means percent."""
RATIOS: Final = ("sm_active_ratio", "sm_occupancy_ratio", "tensor_active_ratio", "dram_active_ratio")
"""Fields that are shares."""
RATES: Final = ("pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s", "nvlink_tx_bytes_per_s", "nvlink_rx_bytes_per_s")
"""Fields that are bytes per second."""
NAME_OF: Final = {metric.field: metric.names[0][0] for metric in DCGM_METRICS}
"""Field -> the metric's usual name."""
PROFILED: Final = frozenset(metric.field for metric in DCGM_METRICS if metric.profiled)
"""Fields of the metrics that are means from the counters of the hardware."""

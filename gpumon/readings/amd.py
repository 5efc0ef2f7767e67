"""Figures that AMD's library gives: the field that each fills, its call, how often it is read, and its unit."""

from __future__ import annotations

from typing import Final

import msgspec

from gpumon.readings.cadence import MINUTE, SLOW, TICK
from gpumon.specs.units import MHZ, MIB, MICRO, PERCENT

AMDSMI: Final = "amdsmi"
"""`GpuReading.source` of a GPU that AMD's library tells of."""
_GB: Final = 1e9
_CURRENT: Final = "AmdSmiTemperatureMetric.CURRENT"
ENERGY: Final = "amdsmi_get_energy_count"
VIOLATIONS: Final = "amdsmi_get_violation_status"
BAD_PAGES: Final = "amdsmi_get_gpu_bad_page_info"
XGMI_LINKS: Final = "amdsmi_get_gpu_xgmi_link_status"
PCIE_LINK: Final = "amdsmi_get_pcie_info"
XGMI_TRAFFIC: Final = "amdsmi_get_link_metrics"
PROCESSES: Final = "amdsmi_get_gpu_process_list"


class AmdSmiFigure(msgspec.Struct, frozen=True):
    """One figure: the field of `GpuReading`, the call of amdsmi, and when it is made, in the words of its source."""

    field: str
    call: str
    when: str = TICK
    factor: float = 1.0
    """From the library's unit to that of the field."""
    keys: tuple[str, ...] = ()
    """Keys of the number in the answer, best first; none: the answer is the number."""
    arguments: tuple[str, ...] = ()
    """Arguments behind the device: names of amdsmi's enumerators."""
    words: str = ""
    """Text of the source behind the call, with the blank or comma before it."""
    computed: bool = False
    """The answer is not a number: the driver counts or computes with it."""

    @property
    def key(self) -> str:
        """The call with its clock or sensor, by which it pauses and is told to users."""
        if not self.arguments:
            return self.call
        _, _, name = self.arguments[0].partition(".")
        return f"{self.call} {name}"

    @property
    def source(self) -> str:
        """The source of the figure, as users read it."""
        return f"{self.key}{self.words}{self.when}"


def _activity(field: str, key: str, note: str = "") -> AmdSmiFigure:
    """A share of the time in which a part of the GPU was busy."""
    return AmdSmiFigure(field, "amdsmi_get_gpu_activity", factor=PERCENT, keys=(key,), words=f" {key}{note}")


def _clock(field: str, clock: str, key: str) -> AmdSmiFigure:
    """A clock of the GPU."""
    return AmdSmiFigure(field, "amdsmi_get_clock_info", factor=MHZ, keys=(key,), arguments=(f"AmdSmiClkType.{clock}",))


def _temperature(field: str, sensor: str) -> AmdSmiFigure:
    """The present temperature of a sensor."""
    return AmdSmiFigure(field, "amdsmi_get_temp_metric", arguments=(f"AmdSmiTemperatureType.{sensor}", _CURRENT))


AMDSMI_FIGURES: Final = (
    _activity("busy_ratio", "gfx_activity"),
    _activity("memory_busy_ratio", "umc_activity", ": a share of time"),
    AmdSmiFigure("vram_used_bytes", "amdsmi_get_gpu_vram_usage", factor=MIB, keys=("vram_used",)),
    AmdSmiFigure("vram_total_bytes", "amdsmi_get_gpu_vram_usage", factor=MIB, keys=("vram_total",)),
    # The current power on MI300 and newer, the average on those before.
    AmdSmiFigure(
        "power_w",
        "amdsmi_get_power_info",
        keys=("current_socket_power", "average_socket_power"),
        words=f", else the increase of {ENERGY} / time",
    ),
    AmdSmiFigure("power_limit_w", "amdsmi_get_power_cap_info", MINUTE, MICRO, keys=("power_cap",)),
    AmdSmiFigure("power_default_w", "amdsmi_get_power_cap_info", MINUTE, MICRO, keys=("default_power_cap",)),
    AmdSmiFigure("energy_j", ENERGY, words=", since gpumon started", computed=True),
    _temperature("temperature_c", "HOTSPOT"),
    _temperature("memory_temperature_c", "VRAM"),
    _clock("sm_clock_hz", "GFX", "clk"),
    _clock("sm_clock_max_hz", "GFX", "max_clk"),
    # The clock of the memory's controller. No bus width is read, so that the catalogue alone gives the bandwidth.
    _clock("memory_clock_hz", "MEM", "clk"),
    AmdSmiFigure("memory_peak_bytes_per_s", "amdsmi_get_gpu_vram_info", MINUTE, _GB, keys=("vram_max_bandwidth",)),
    AmdSmiFigure("throttle", VIOLATIONS, SLOW, words=", the active ones", computed=True),
    AmdSmiFigure("ecc_uncorrected", "amdsmi_get_gpu_total_ecc_count", MINUTE, keys=("uncorrectable_count",)),
    AmdSmiFigure("ecc_corrected", "amdsmi_get_gpu_total_ecc_count", MINUTE, keys=("correctable_count",)),
    AmdSmiFigure("bad_pages", BAD_PAGES, MINUTE, computed=True),
    AmdSmiFigure("bad_pages_pending", BAD_PAGES, MINUTE, computed=True),
    AmdSmiFigure("xgmi_links", XGMI_LINKS, MINUTE, computed=True),
    AmdSmiFigure("xgmi_links_up", XGMI_LINKS, MINUTE, computed=True),
    AmdSmiFigure("pcie_generation", PCIE_LINK, SLOW, computed=True),
    AmdSmiFigure("pcie_generation_max", PCIE_LINK, SLOW, computed=True),
    AmdSmiFigure("pcie_width", PCIE_LINK, SLOW, computed=True),
    AmdSmiFigure("pcie_width_max", PCIE_LINK, SLOW, computed=True),
    *(
        AmdSmiFigure(field, XGMI_TRAFFIC, SLOW, words=", increase of all XGMI links / time", computed=True)
        for field in ("nvlink_tx_bytes_per_s", "nvlink_rx_bytes_per_s")
    ),
    AmdSmiFigure("processes", PROCESSES, SLOW, words=" and /proc", computed=True),
)
"""All that is read of a GPU by calls of the library."""

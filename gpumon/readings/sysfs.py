"""Figures that files of the kernel give: the field that each fills, where it is, how often it is read, and its unit."""

from __future__ import annotations

from typing import Final

import msgspec

from gpumon.readings.cadence import MINUTE, SLOW, TICK
from gpumon.specs.units import MICRO, MILLI, PERCENT

SYSFS: Final = "sysfs"
"""`GpuReading.source` of a GPU that is read by the files of the kernel."""
_PWM_MOST: Final = 255.0
"""`pwm1` of a fan at full speed."""


class SysfsFigure(msgspec.Struct, frozen=True):
    """One figure: the field of `GpuReading`, where it is, and when it is read, in the words of its source."""

    field: str
    when: str = TICK
    factor: float = 1.0
    """From the kernel's unit to that of the field."""
    files: tuple[str, ...] = ()
    """Files of the PCI device, best first."""
    sensors: tuple[str, ...] = ()
    """Files of hwmon, best first."""
    channels: tuple[str, ...] = ()
    """Labels of channels of hwmon, best first, whose present value it is."""
    words: str = ""
    """Text of the source in the place of the names of the files."""

    @property
    def computed(self) -> bool:
        """Whether the class of the driver's cards works it out: no file, sensor or channel has it as it is."""
        return not (self.files or self.sensors or self.channels)

    @property
    def source(self) -> str:
        """The source of the figure, as users read it."""
        folder = "hwmon " if self.sensors or self.channels else ""
        words = self.words or ", else ".join(self.files or self.sensors)
        return f"{folder}{words}{self.when}"


AMDGPU_FIGURES: Final = (
    SysfsFigure("memory_temperature_c", factor=MILLI, channels=("temp mem",), words="temp*_input of the memory"),
    SysfsFigure("busy_ratio", factor=PERCENT, files=("gpu_busy_percent",)),
    SysfsFigure(
        "memory_busy_ratio", factor=PERCENT, files=("mem_busy_percent",), words="mem_busy_percent: a share of time"
    ),
    SysfsFigure("vram_used_bytes", files=("mem_info_vram_used",)),
    SysfsFigure("vram_total_bytes", MINUTE, files=("mem_info_vram_total",)),
    # Most cards have one of both; where there are two, the mean of the last moments comes first.
    SysfsFigure("power_w", factor=MICRO, sensors=("power1_average", "power1_input")),
    SysfsFigure("power_limit_w", MINUTE, MICRO, sensors=("power1_cap",)),
    SysfsFigure("power_default_w", MINUTE, MICRO, sensors=("power1_cap_default",)),
    SysfsFigure(
        "temperature_c",
        factor=MILLI,
        channels=("temp junction", "temp edge", "temp1"),
        words="temp*_input of the junction, else of the edge",
    ),
    SysfsFigure(
        "fan_ratio",
        factor=1.0 / _PWM_MOST,
        sensors=("pwm1",),
        words="pwm1 / 255: the speed that is wanted, not measured",
    ),
    # The driver's channel 1 is always that of the shaders, and 2 that of the memory.
    SysfsFigure("sm_clock_hz", channels=("freq sclk",), words="freq1_input"),
    SysfsFigure("sm_clock_max_hz", MINUTE, words="highest level of pp_dpm_sclk"),
    SysfsFigure("memory_clock_hz", channels=("freq mclk",), words="freq2_input"),
    SysfsFigure("memory_clock_max_hz", MINUTE, words="highest level of pp_dpm_mclk"),
    SysfsFigure("ecc_uncorrected", MINUTE, words="sum of ras/*_err_count"),
    SysfsFigure("ecc_corrected", MINUTE, words="sum of ras/*_err_count"),
    SysfsFigure("pcie_generation", SLOW, words="current_link_* of the PCI device in the slot"),
    SysfsFigure("pcie_width", SLOW, words="current_link_* of the PCI device in the slot"),
    SysfsFigure("pcie_generation_max", SLOW, words="max_link_* of the same"),
    SysfsFigure("pcie_width_max", SLOW, words="max_link_* of the same"),
    SysfsFigure("processes", SLOW, words="/sys/class/kfd/kfd/proc, /proc/PID/fdinfo and /proc"),
)
"""All that is read of a card of amdgpu."""
INTEL_FIGURES: Final = (
    SysfsFigure("memory_temperature_c", factor=MILLI, channels=("temp vram",), words="temp*_input of the memory"),
    SysfsFigure(
        "busy_ratio",
        words="1 - increase of the idle time / time: idle_residency_ms (xe), rc6_residency_ms (i915)",
    ),
    SysfsFigure("vram_used_bytes", SLOW, words="lmem_total_bytes - lmem_avail_bytes, else the sum over all processes"),
    SysfsFigure("vram_total_bytes", MINUTE, words="lmem_total_bytes, else physical_vram_size_bytes"),
    SysfsFigure("power_w", words="increase of hwmon energy*_input / time"),
    SysfsFigure("power_limit_w", MINUTE, words="hwmon power*_max (PL1)"),
    SysfsFigure("power_default_w", MINUTE, words="hwmon power*_rated_max"),
    SysfsFigure("energy_j", words="hwmon energy*_input of the card, else of its package, since gpumon started"),
    SysfsFigure("temperature_c", factor=MILLI, channels=("temp pkg", "temp1"), words="temp*_input of the package"),
    SysfsFigure("sm_clock_hz", words="act_freq (xe), rps_act_freq_mhz, else gt_act_freq_mhz (i915)"),
    SysfsFigure("sm_clock_max_hz", MINUTE, words="rp0_freq (xe), rps_RP0_freq_mhz, else gt_RP0_freq_mhz (i915)"),
    SysfsFigure("processes", SLOW, words="/proc/PID/fdinfo and /proc"),
)
"""All that is read of a card of xe or i915."""

"""Figures that NVML gives as they are: the field that each fills, its call, how often it is read, and its unit."""

from __future__ import annotations

from typing import Final

import msgspec

from gpumon.readings.cadence import MINUTE, SLOW, TICK
from gpumon.specs.units import MHZ, MILLI, PERCENT

ENERGY: Final = ", since gpumon started"
"""Read every ten seconds, and counted from the first reading on: on an H200 the call takes 3 ms of processor time, more
than all that is read at a tick."""


class NvmlFigure(msgspec.Struct, frozen=True):
    """One figure: the field of `GpuReading`, the call of pynvml, and when it is made, in the words of its source."""

    field: str
    call: str
    when: str = TICK
    factor: float = 1.0
    """From the driver's unit to that of the field."""
    older: str = ""
    """The call of drivers that do not have the first."""
    constants: tuple[str, ...] = ()
    """Arguments behind the device: names of pynvml's constants, without their `NVML_`."""
    words: str = ""
    """Meaning of these arguments, behind the call."""
    part: int | str | None = None
    """The figure in an answer of several numbers: its place in a list, its name in a record. Rows of one call follow
    each other: it is made once for them."""
    library_call: str = ""
    """The call by the name of NVML itself, where pynvml has another one for it."""
    note: str = ""
    """A remark on the figure, at the end of its source."""

    @property
    def source(self) -> str:
        """The source of the figure, as users read it."""
        call = self.library_call or self.call
        older = f", else {self.older}" if self.older else ""
        words = f" {self.words}" if self.words else ""
        note = f": {self.note}" if self.note else ""
        return f"{call}{older}{words}{self.when}{note}"


NVML_FIGURES: Final = (
    NvmlFigure("power_w", "nvmlDeviceGetPowerUsage", factor=MILLI),
    NvmlFigure(
        "temperature_c", "nvmlDeviceGetTemperatureV", older="nvmlDeviceGetTemperature", constants=("TEMPERATURE_GPU",)
    ),
    NvmlFigure("sm_clock_hz", "nvmlDeviceGetClockInfo", factor=MHZ, constants=("CLOCK_SM",), words="SM"),
    NvmlFigure("memory_clock_hz", "nvmlDeviceGetClockInfo", factor=MHZ, constants=("CLOCK_MEM",), words="MEM"),
    NvmlFigure("pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration", SLOW, note="idle GPUs train the link down"),
    NvmlFigure("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth", SLOW),
    NvmlFigure("fan_ratio", "nvmlDeviceGetFanSpeed", SLOW, PERCENT, note="the speed that is wanted, not measured"),
    NvmlFigure(
        "power_limit_w", "nvmlDeviceGetEnforcedPowerLimit", SLOW, MILLI, older="nvmlDeviceGetPowerManagementLimit"
    ),
    NvmlFigure("energy_j", "nvmlDeviceGetTotalEnergyConsumption", ENERGY, MILLI),
    NvmlFigure("power_default_w", "nvmlDeviceGetPowerManagementDefaultLimit", MINUTE, MILLI),
    NvmlFigure("sm_clock_max_hz", "nvmlDeviceGetMaxClockInfo", MINUTE, MHZ, constants=("CLOCK_SM",), words="SM"),
    NvmlFigure("memory_clock_max_hz", "nvmlDeviceGetMaxClockInfo", MINUTE, MHZ, constants=("CLOCK_MEM",), words="MEM"),
    NvmlFigure("memory_bus_bits", "nvmlDeviceGetMemoryBusWidth", MINUTE),
    NvmlFigure("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth", MINUTE),
    NvmlFigure("pcie_generation_max", "nvmlDeviceGetMaxPcieLinkGeneration", MINUTE),
    NvmlFigure("persistence_mode", "nvmlDeviceGetPersistenceMode", MINUTE),
    NvmlFigure("ecc_mode", "nvmlDeviceGetCurrentEccMode", MINUTE, library_call="nvmlDeviceGetEccMode, the current one"),
    NvmlFigure("remap_pending", "nvmlDeviceGetRemappedRows", MINUTE, part=2),
    NvmlFigure("remap_failed", "nvmlDeviceGetRemappedRows", MINUTE, part=3),
    *(
        NvmlFigure(
            f"ecc_{kind}",
            "nvmlDeviceGetTotalEccErrors",
            MINUTE,
            constants=(f"MEMORY_ERROR_TYPE_{kind.upper()}", "VOLATILE_ECC"),
            words=f"{kind}, since the driver was loaded",
        )
        for kind in ("uncorrected", "corrected")
    ),
)
"""The figures, in the order in which they are read.

The link is trained down on an idle GPU, and somebody may change the power limit, which is to be told before the engine
is blamed: both are read every few seconds. Boards that the server cools have no fan.
"""

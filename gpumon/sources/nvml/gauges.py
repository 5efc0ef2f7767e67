"""Tables of the plain figures of a GPU: which driver call gives which field, at which scale, in which tier."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import pynvml

from gpumon.readings.frame import GpuReading
from gpumon.readings.missing import NOT_SUPPORTED, Missing, Reading, Reason
from gpumon.sources.nvml.calls import Calls

INVALID = Missing(Reason.INVALID, "the driver sent a number that can not be")
FIGURES = tuple(field.name for field in msgspec.structs.fields(GpuReading) if field.default is NOT_SUPPORTED)
"""Names of all fields of a GpuReading that are a Reading."""


class Gauge(NamedTuple):
    """One field: its calls (key, pynvml name, arguments), best first, and the factor to the field's unit."""

    field: str
    calls: tuple[tuple[str, str, tuple[Any, ...]], ...]
    scale: float = 1.0
    most: float = 1e18
    """A larger number can not be true."""


def _one(field: str, name: str, *args: Any, scale: float = 1.0, most: float = 1e18, key: str = "") -> Gauge:
    return Gauge(field, ((key or name, name, args),), scale, most)


MHZ = 1e6

TICK: tuple[Gauge, ...] = (
    _one("energy_j", "nvmlDeviceGetTotalEnergyConsumption", scale=1e-3),
    _one("power_w", "nvmlDeviceGetPowerUsage", scale=1e-3, most=1e5),
    Gauge(
        "temperature_c",
        (
            ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperatureV", (pynvml.NVML_TEMPERATURE_GPU,)),
            ("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperature", (pynvml.NVML_TEMPERATURE_GPU,)),
        ),
        most=1000.0,
    ),
    _one("sm_clock_hz", "nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_SM, scale=MHZ, most=1e11, key="SM clock"),
    _one("memory_clock_hz", "nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_MEM, scale=MHZ, most=1e11, key="memory clock"),
)
"""Read at every tick; the energy counter first, right after its moment was noted."""

SLOW: tuple[Gauge, ...] = (
    _one("pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration", most=100.0),
    _one("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth", most=64.0),
)
"""Read every few seconds: the link is trained down on an idle GPU."""

MINUTE: tuple[Gauge, ...] = (
    Gauge(
        "power_limit_w",
        (
            ("nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetEnforcedPowerLimit", ()),
            ("nvmlDeviceGetPowerManagementLimit", "nvmlDeviceGetPowerManagementLimit", ()),
        ),
        scale=1e-3,
        most=1e5,
    ),
    _one(
        "sm_clock_max_hz", "nvmlDeviceGetMaxClockInfo", pynvml.NVML_CLOCK_SM, scale=MHZ, most=1e11, key="top SM clock"
    ),
    _one(
        "memory_clock_max_hz",
        "nvmlDeviceGetMaxClockInfo",
        pynvml.NVML_CLOCK_MEM,
        scale=MHZ,
        most=1e11,
        key="top memory clock",
    ),
    _one("memory_bus_bits", "nvmlDeviceGetMemoryBusWidth", most=1e6),
    _one("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth", most=64.0),
    _one("pcie_generation_max", "nvmlDeviceGetMaxPcieLinkGeneration", most=100.0),
    _one(
        "ecc_uncorrected",
        "nvmlDeviceGetTotalEccErrors",
        pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
        pynvml.NVML_VOLATILE_ECC,
        key="uncorrected ECC errors",
    ),
    _one(
        "ecc_corrected",
        "nvmlDeviceGetTotalEccErrors",
        pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED,
        pynvml.NVML_VOLATILE_ECC,
        key="corrected ECC errors",
    ),
)
"""Read once a minute. ECC counts are those since the driver was loaded."""

THROTTLE_CALLS: tuple[tuple[str, str, tuple[Any, ...]], ...] = (
    ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksEventReasons", ()),
    ("nvmlDeviceGetCurrentClocksThrottleReasons", "nvmlDeviceGetCurrentClocksThrottleReasons", ()),
)
THROTTLE = {
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
"""Clock event reasons by bit, as nvidia-smi names them; 0x1 (idle) is no limit."""

_CORES_PER_SM_64 = frozenset({(6, 0), (7, 0), (7, 2), (7, 5), (8, 0)})
"""Compute capabilities with 64 FP32 cores per SM (GP100, Volta, Turing, GA100); all others since Maxwell have 128."""


def read_gauges(calls: Calls, handle: Any, gauges: tuple[Gauge, ...], values: dict[str, Any]) -> None:
    """Put each gauge's number, or why there is none, into `values` under its field's name."""
    for field, alternatives, scale, most in gauges:
        raw = calls.first(handle, alternatives)
        if raw.__class__ is Missing:
            values[field] = raw
        else:
            values[field] = raw * scale if 0 <= raw * scale <= most else INVALID


def throttle_names(mask: int) -> tuple[str, ...]:
    """Names of the bits of a clock event mask; a bit that is not known is named by its value."""
    mask &= ~0x1
    names = [name for bit, name in THROTTLE.items() if mask & bit]
    rest = mask & ~sum(THROTTLE)
    return (*names, hex(rest)) if rest else tuple(names)


def cores_to_sms(cores: Reading, capability: tuple[int, int] | None) -> Reading:
    """Number of SMs from the number of CUDA cores that the driver reports."""
    if isinstance(cores, Missing):
        return cores
    if capability is None:
        return NOT_SUPPORTED
    return cores / (64 if capability in _CORES_PER_SM_64 else 128)

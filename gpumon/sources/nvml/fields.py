"""Batched field values of the driver: memory temperature, counters of NVLink and throttling, the advised recovery."""

from __future__ import annotations

from typing import Any

import pynvml

from gpumon.readings.frame import GpuState
from gpumon.readings.missing import WARMING_UP, Missing, Reading, Reason
from gpumon.sources.nvml.calls import RULES, Calls

MEMORY_TEMPERATURE = 82
NVLINK_TX_KIB = 138
NVLINK_RX_KIB = 139
RECOVERY_ACTION = 230
ALL_LINKS = 0xFFFFFFFF
"""Scope of an NVLink field: the sum over all links."""

THROTTLE_NS = {
    74: "sw_power_cap",
    76: "sync_boost",
    77: "board_limit",
    79: "reliability",
    269: "sw_thermal_slowdown",
    270: "hw_thermal_slowdown",
    271: "hw_power_brake_slowdown",
}
"""Counters of the nanoseconds that clocks were held down, since the driver was loaded, by cause (those that the active
clock event reasons have too are named alike). Field 78, low utilization, is no throttling: clocks are low where there
is little to do."""

SLOW: tuple[tuple[int, int], ...] = (
    (MEMORY_TEMPERATURE, 0),
    (NVLINK_TX_KIB, ALL_LINKS),
    (NVLINK_RX_KIB, ALL_LINKS),
    *((field, 0) for field in THROTTLE_NS),
)
MINUTE: tuple[tuple[int, int], ...] = ((RECOVERY_ACTION, 0),)

RECOVERY: dict[int, tuple[GpuState, str]] = {
    1: (GpuState.RESET_REQUIRED, "the driver advises a reset of this GPU"),
    2: (GpuState.RESET_REQUIRED, "the driver advises a reboot"),
    3: (GpuState.OK, "the driver advises to drain peer-to-peer traffic"),
    4: (GpuState.RESET_REQUIRED, "the driver advises to drain and reset this GPU"),
    5: (GpuState.OK, "the driver advises to recover its IMEX domain"),
}
"""NVML's recovery actions; 0 is none. A GPU that needs one can still answer every other call."""

_MEMBERS = {
    pynvml.NVML_VALUE_TYPE_DOUBLE: "dVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_INT: "siVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_SHORT: "usVal",
}

Stamped = tuple[Reading, int]
"""A field's value and the driver's own time stamp of it in microseconds."""


class Batch:
    """Fields that are read in one call; one that the GPU does not have is not asked for again."""

    def __init__(self, wanted: tuple[tuple[int, int], ...]) -> None:
        self._key = f"nvmlDeviceGetFieldValues {wanted[0][0]}"
        self._all = self._asked = wanted
        self._unsupported: dict[int, Stamped] = {}

    def read(self, calls: Calls, handle: Any) -> dict[int, Stamped]:
        """Each field's value and time stamp."""
        found = dict(self._unsupported)
        answers = calls.read(self._key, "nvmlDeviceGetFieldValues", handle, self._asked) if self._asked else ()
        if isinstance(answers, Missing):
            return {**found, **{field: (answers, 0) for field, _ in self._asked}}
        for (field, _), answer in zip(self._asked, answers, strict=True):
            found[field] = (_value(answer), int(answer.timestamp))
        self._leave_out(found)
        return found

    def forget(self) -> None:
        """Ask for every field again."""
        self._asked, self._unsupported = self._all, {}

    def _leave_out(self, found: dict[int, Stamped]) -> None:
        lacking = {
            field
            for field, (value, _) in found.items()
            if isinstance(value, Missing) and value.reason is Reason.NOT_SUPPORTED
        }
        if len(lacking) > len(self._unsupported):
            self._unsupported = {field: found[field] for field in lacking}
            self._asked = tuple(pair for pair in self._all if pair[0] not in lacking)


def throttle_s(found: dict[int, Stamped]) -> dict[str, float]:
    """Seconds throttled by cause, of those counters that gave a number."""
    counted = ((cause, found[field][0]) for field, cause in THROTTLE_NS.items())
    return {cause: value * 1e-9 for cause, value in counted if not isinstance(value, Missing) and 0.0 <= value < 1e19}


def _value(answer: Any) -> Reading:
    if answer.nvmlReturn != pynvml.NVML_SUCCESS:
        rule = RULES.get(answer.nvmlReturn)
        return Missing(rule.reason if rule else Reason.ERROR, rule.detail if rule else "")
    member = _MEMBERS.get(answer.valueType)
    return float(getattr(answer.value, member)) if member else Missing(Reason.INVALID)


class CounterRate:
    """The rate of a KiB counter between two looks, by the driver's own time stamps."""

    def __init__(self) -> None:
        self._last: tuple[float, int] | None = None

    def bytes_per_s(self, stamped: Stamped) -> Reading:
        """Bytes per second since the last call; Missing at first and after the counter fell (GPU reset)."""
        value, stamp_us = stamped
        if isinstance(value, Missing):
            self._last = None
            return value
        last, self._last = self._last, (value, stamp_us)
        if last is None or stamp_us <= last[1]:
            return WARMING_UP
        if value < last[0]:
            return Missing(Reason.RESET)
        return (value - last[0]) * 1024.0 / ((stamp_us - last[1]) * 1e-6)

"""Batched field values of the driver: memory temperature, NVLink byte counters, the advised recovery action."""

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

SLOW: tuple[tuple[int, int], ...] = ((MEMORY_TEMPERATURE, 0), (NVLINK_TX_KIB, ALL_LINKS), (NVLINK_RX_KIB, ALL_LINKS))
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


def read_fields(calls: Calls, handle: Any, wanted: tuple[tuple[int, int], ...]) -> dict[int, Stamped]:
    """Each wanted field's value and time stamp; a field that this GPU does not have is Missing."""
    answers = calls.read(f"nvmlDeviceGetFieldValues {wanted[0][0]}", "nvmlDeviceGetFieldValues", handle, wanted)
    if isinstance(answers, Missing):
        return {field: (answers, 0) for field, _ in wanted}
    return {field: (_value(answer), int(answer.timestamp)) for (field, _), answer in zip(wanted, answers, strict=True)}


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

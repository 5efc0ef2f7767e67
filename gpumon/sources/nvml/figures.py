"""Tables of a GPU's figures: which driver calls and fields give which figure, at which scale."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import pynvml

from gpumon.readings import cadence, nvml
from gpumon.readings.frame import GpuState
from gpumon.readings.missing import NOT_SUPPORTED, WARMING_UP, Missing, Reading, Reason
from gpumon.readings.nvml import NvmlFigure
from gpumon.sources.driver.calls import NOT_ANY_MORE, Calls

UNIFIED = re.compile(r"\b(GB10|Thor|Orin|Spark)\b", re.IGNORECASE)
"""Names of parts whose GPU uses the host's memory; the driver answers NOT_SUPPORTED or a total of 0 there."""


class NvmlGauge(NamedTuple):
    """One field: its calls (key, pynvml name, arguments), best first, and the factor to the field's unit."""

    field: str
    calls: tuple[tuple[str, str, tuple[Any, ...]], ...]
    scale: float = 1.0
    part_of: Callable[[Any], float] | None = None
    """Takes the field's number out of an answer of several; None: the answer is that number."""


def _gauge(figure: NvmlFigure) -> NvmlGauge:
    """The gauge of a figure that NVML gives as it is."""
    arguments = tuple(getattr(pynvml, f"NVML_{constant}") for constant in figure.constants)
    calls = []
    for call in filter(None, (figure.call, figure.older)):
        # Calls of one function with other arguments are told apart by their keys.
        key = f"{call} ({figure.field})" if arguments else call
        calls.append((key, call, arguments))
    part_of: Callable[[Any], float] | None = None
    if isinstance(figure.part, int):
        part_of = itemgetter(figure.part)
    elif figure.part is not None:
        part_of = attrgetter(figure.part)
    return NvmlGauge(figure.field, tuple(calls), figure.factor, part_of)


def _gauges(when: str) -> tuple[NvmlGauge, ...]:
    """The gauges that are read together."""
    return tuple(_gauge(figure) for figure in nvml.NVML_FIGURES if figure.when == when)


_KIB = 1024.0
TICK = _gauges(cadence.TICK)
SLOW = _gauges(cadence.SLOW)
ENERGY = _gauges(nvml.ENERGY)
MINUTE = _gauges(cadence.MINUTE)
POWER_LIMIT = tuple(gauge for gauge in SLOW if gauge.field == "power_limit_w")
THROTTLE_CALLS: tuple[tuple[str, str, tuple[Any, ...]], ...] = (
    ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksEventReasons", ()),
    ("nvmlDeviceGetCurrentClocksThrottleReasons", "nvmlDeviceGetCurrentClocksThrottleReasons", ()),
)
_WITH_64_CORES_PER_SM = frozenset({(6, 0), (7, 0), (7, 2), (7, 5), (8, 0)})
"""Compute capabilities with 64 FP32 cores per SM (GP100, Volta, Turing, GA100); all others since Maxwell have 128."""


def read_gauges(calls: Calls, handle: Any, gauges: tuple[NvmlGauge, ...], values: dict[str, Any]) -> None:
    """Put each gauge's number, or why there is none, into `values` under its field's name."""
    answer: Any = None
    answered: tuple[tuple[str, str, tuple[Any, ...]], ...] = ()
    for field, alternatives, scale, part_of in gauges:
        if alternatives != answered:
            answer = calls.first_supported(handle, alternatives)
            answered = alternatives
        if answer.__class__ is Missing:
            values[field] = answer
        else:
            values[field] = (part_of(answer) if part_of else answer) * scale


def cores_to_sms(cores: Reading, capability: tuple[int, int] | None) -> Reading:
    """Number of SMs from the number of CUDA cores that the driver reports."""
    if isinstance(cores, Missing):
        return cores
    if capability is None:
        return NOT_SUPPORTED
    cores_per_sm = 64 if capability in _WITH_64_CORES_PER_SM else 128
    return cores / cores_per_sm


_MEMORY_CALLS: tuple[tuple[str, str, tuple[Any, ...]], ...] = (
    ("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo", (pynvml.nvmlMemory_v2,)),
    ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo", ()),
)


_ATS = 2
"""NVML_DEVICE_ADDRESSING_MODE_ATS: the GPU walks the host's page tables."""


class MemoryFigure(NamedTuple):
    """Memory of a device in bytes."""

    used: Reading
    """With the first version of the driver's call, what the driver reserves is counted as used."""
    total: Reading
    reserved: Reading
    shared: bool = False
    """Whether it is the host's memory."""


def read_memory(calls: Calls, handle: Any, name: str) -> MemoryFigure:
    """The memory of the device; that of the host where the driver says that there is no framebuffer.

    `name`: that of the device.
    """
    record = calls.first_supported(handle, _MEMORY_CALLS)
    if not isinstance(record, Missing) and record.total > 0:
        reserved: Reading = float(record.reserved) if getattr(record, "reserved", None) is not None else NOT_SUPPORTED
        return MemoryFigure(float(record.used), float(record.total), reserved)
    if isinstance(record, Missing) and record.reason is not Reason.NOT_SUPPORTED:
        return MemoryFigure(record, record, record)
    if UNIFIED.search(name):
        mode = _ATS
    else:
        mode = calls.read("nvmlDeviceGetAddressingMode", handle)
    if isinstance(mode, Missing) or mode != _ATS:
        return MemoryFigure(NOT_SUPPORTED, NOT_SUPPORTED, NOT_SUPPORTED)
    import psutil

    host = psutil.virtual_memory()
    return MemoryFigure(float(host.total - host.available), float(host.total), NOT_SUPPORTED, shared=True)


# Numbers of NVML's fields (NVML_FI_*).
MEMORY_TEMPERATURE_FIELD = 82
NVLINK_TX_KIB = 138
NVLINK_RX_KIB = 139
RECOVERY_ACTION = 230
ALL_LINKS = 0xFFFFFFFF
"""Scope of an NVLink field: the sum over all links."""

_MOST_NS = 1e19
"""Three hundred years: a counter from there on (2^64 - 1 is 1.8e19) holds no time."""
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

# Fields with their scopes (0: the GPU), by how often they are read.
SLOW_FIELDS: tuple[tuple[int, int], ...] = (
    (MEMORY_TEMPERATURE_FIELD, 0),
    (NVLINK_TX_KIB, ALL_LINKS),
    (NVLINK_RX_KIB, ALL_LINKS),
    *((field, 0) for field in THROTTLE_NS),
)
MINUTE_FIELDS: tuple[tuple[int, int], ...] = ((RECOVERY_ACTION, 0),)

_PCIE_REPLAYS = 94
_NVLINK_ERRORS = (38, 45, 52, 59)
"""CRC errors of control and of data packets, replays and recoveries, each over all NVLinks up to NVLink 4."""
_NVLINK5_ERRORS = (
    pynvml.NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS,
    pynvml.NVML_FI_DEV_NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS,
    pynvml.NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS,
)
"""Packets that came with errors, errors of the link itself, and its recoveries, from NVLink 5 (Blackwell) on, which has
none of those above. Their scope is a link, or all of them (DCGM asks for all). Symbols that the link's code corrects
are no errors."""
LINK_FIELDS: tuple[tuple[int, int], ...] = (
    *((field, 0) for field in (_PCIE_REPLAYS, *_NVLINK_ERRORS)),
    *((field, ALL_LINKS) for field in _NVLINK5_ERRORS),
)

RECOVERY: dict[int, tuple[GpuState, str]] = {
    1: (GpuState.RESET_REQUIRED, "the driver advises a reset of this GPU"),
    2: (GpuState.RESET_REQUIRED, "the driver advises a reboot"),
    3: (GpuState.OK, "the driver advises to drain peer-to-peer traffic"),
    4: (GpuState.RESET_REQUIRED, "the driver advises to drain and reset this GPU"),
    5: (GpuState.OK, "the driver advises to recover its IMEX domain"),
}
"""NVML's recovery actions; 0 is none. A GPU that needs one can still answer every other call."""

_MEMBER_OF_TYPE = {
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


class FieldBatch:
    """Fields that are read in one call; one that the GPU does not have is not asked for again."""

    def __init__(self, fields: tuple[tuple[int, int], ...]) -> None:
        """`fields`: each with its scope."""
        self._worked: set[int] = set()
        """Fields that have had a value."""
        self._key = f"nvmlDeviceGetFieldValues {fields[0][0]}"
        self._all = fields
        self._supported = fields
        """Fields that are asked for."""
        self._unsupported: dict[int, Stamped] = {}
        """The answers of those that are not."""

    def read(self, calls: Calls, handle: Any) -> dict[int, Stamped]:
        """Each field's value and time stamp by its number."""
        stamped = dict(self._unsupported)
        if not self._supported:
            return stamped
        answers = calls.read("nvmlDeviceGetFieldValues", handle, self._supported, key=self._key)
        if isinstance(answers, Missing):
            for field, _ in self._supported:
                stamped[field] = (answers, 0)
            return stamped
        for (field, _), answer in zip(self._supported, answers, strict=True):
            stamped[field] = (self._value_of(calls, field, answer), int(answer.timestamp))
        self._leave_out_unsupported(stamped)
        return stamped

    def _value_of(self, calls: Calls, field: int, answer: Any) -> Reading:
        """The value of a field; one that worked before is not called unsupported, but gone."""
        value = _value(calls, answer)
        if not isinstance(value, Missing):
            self._worked.add(field)
        elif _is_not_supported(value) and field in self._worked:
            return NOT_ANY_MORE
        return value

    def _leave_out_unsupported(self, stamped: Mapping[int, Stamped]) -> None:
        """Do not ask again for the fields that the GPU does not have."""
        lacking = {field for field, (value, _) in stamped.items() if _is_not_supported(value)}
        if len(lacking) > len(self._unsupported):
            self._unsupported = {field: stamped[field] for field in lacking}
            self._supported = tuple(pair for pair in self._all if pair[0] not in lacking)

    def forget(self) -> None:
        """Ask for every field again."""
        self._worked = set()
        self._supported = self._all
        self._unsupported = {}


def _is_not_supported(value: Reading) -> bool:
    """Whether the GPU does not have this field."""
    return isinstance(value, Missing) and value.reason is Reason.NOT_SUPPORTED


def throttle_s(stamped: dict[int, Stamped]) -> dict[str, float]:
    """Seconds throttled by cause, of those counters that gave a number."""
    seconds = {}
    for field, cause in THROTTLE_NS.items():
        nanoseconds, _ = stamped[field]
        if not isinstance(nanoseconds, Missing) and 0.0 <= nanoseconds < _MOST_NS:
            seconds[cause] = nanoseconds * 1e-9
    return seconds


def link_errors(stamped: Mapping[int, Stamped]) -> tuple[Reading, Reading]:
    """Replays of PCIe, and the errors of all NVLinks."""
    replays, _ = stamped[_PCIE_REPLAYS]
    errors: Reading = NOT_SUPPORTED
    for field in (*_NVLINK_ERRORS, *_NVLINK5_ERRORS):
        count, _ = stamped[field]
        if not isinstance(count, Missing):
            errors = count + (0.0 if isinstance(errors, Missing) else errors)
    return replays, errors


def _value(calls: Calls, answer: Any) -> Reading:
    """The number in one field's answer, or why there is none."""
    if answer.nvmlReturn != pynvml.NVML_SUCCESS:
        return calls.meaning(answer.nvmlReturn)
    member = _MEMBER_OF_TYPE.get(answer.valueType)
    if member:
        return float(getattr(answer.value, member))
    return Missing(Reason.INVALID)


class CounterRate:
    """The rate of a counter of KiB from one reading to the next, by the driver's own time stamps."""

    def __init__(self) -> None:
        self._last: tuple[float, int] | None = None
        """The counter when it was read last (KiB), and its time stamp (microseconds)."""

    def bytes_per_s(self, stamped: Stamped) -> Reading:
        """Bytes per second since the last call; Missing at first and after the counter fell (GPU reset)."""
        value, stamp_us = stamped
        if isinstance(value, Missing):
            self._last = None
            return value
        last = self._last
        self._last = (value, stamp_us)
        if last is None:
            return WARMING_UP
        last_value, last_stamp_us = last
        if stamp_us <= last_stamp_us:
            return WARMING_UP
        if value < last_value:
            return Missing(Reason.RESET)
        seconds = (stamp_us - last_stamp_us) * 1e-6
        return (value - last_value) * _KIB / seconds

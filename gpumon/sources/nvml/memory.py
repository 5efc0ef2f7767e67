"""Memory of a GPU: the driver's v2 record, else v1, else the host's memory where the GPU has none of its own."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import pynvml

from gpumon.readings.missing import NOT_SUPPORTED, Missing, Reading, Reason
from gpumon.sources.nvml.calls import Calls

_UNIFIED = re.compile(r"\b(GB10|Thor|Orin|Spark)\b", re.IGNORECASE)
"""Names of parts whose GPU uses the host's memory; the driver answers NOT_SUPPORTED or a total of 0 there."""
_CALLS: tuple[tuple[str, str, tuple[Any, ...]], ...] = (
    ("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo", (pynvml.nvmlMemory_v2,)),
    ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo", ()),
)


_ATS = 2
"""NVML_DEVICE_ADDRESSING_MODE_ATS: the GPU walks the host's page tables."""


class Memory(NamedTuple):
    """Bytes. v1 counts what the driver reserves as used; v2 keeps it apart. `shared`: it is the host's memory."""

    used: Reading
    total: Reading
    reserved: Reading
    shared: bool = False


def read_memory(calls: Calls, handle: Any, name: str) -> Memory:
    """The memory of the device; host memory stands in only where the driver says that there is no framebuffer."""
    record = calls.first(handle, _CALLS)
    if not isinstance(record, Missing) and record.total > 0:
        reserved = getattr(record, "reserved", None)
        return Memory(float(record.used), float(record.total), NOT_SUPPORTED if reserved is None else float(reserved))
    if isinstance(record, Missing) and record.reason is not Reason.NOT_SUPPORTED:
        return Memory(record, record, record)
    if _UNIFIED.search(name) or _addresses_host_memory(calls, handle):
        return _host_memory()
    return Memory(NOT_SUPPORTED, NOT_SUPPORTED, NOT_SUPPORTED)


def _addresses_host_memory(calls: Calls, handle: Any) -> bool:
    mode = calls.read("nvmlDeviceGetAddressingMode", "nvmlDeviceGetAddressingMode", handle)
    return not isinstance(mode, Missing) and mode == _ATS


def _host_memory() -> Memory:
    import psutil

    host = psutil.virtual_memory()
    return Memory(float(host.total - host.available), float(host.total), NOT_SUPPORTED, shared=True)

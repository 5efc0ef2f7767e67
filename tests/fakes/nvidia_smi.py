"""An `nvidia-smi` for tests: the queries that gpumon sends, answered from the driver library by NVIDIA's own binding.

On the fake driver library it prints what the script of that says, in the form of the real program: `[N/A]` for what a
GPU does not have, and for an unknown column one line and exit code 2. `GPUMON_FAKE_SMI_LACKS` names columns that this
version does not know yet.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml

MIB = 1 << 20


def memory(handle: Any, part: str) -> int:
    """MiB of a part of the memory."""
    return int(getattr(pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2), part)) // MIB


def watts(milliwatts: int) -> str:
    return f"{milliwatts / 1000.0:.2f}"


def ecc(handle: Any, kind: int) -> int:
    return int(pynvml.nvmlDeviceGetTotalEccErrors(handle, kind, pynvml.NVML_VOLATILE_ECC))


def capability(handle: Any) -> str:
    return "{}.{}".format(*pynvml.nvmlDeviceGetCudaComputeCapability(handle))


QUERIES: dict[str, Callable[[Any], object]] = {
    "index": pynvml.nvmlDeviceGetIndex,
    "uuid": pynvml.nvmlDeviceGetUUID,
    "name": pynvml.nvmlDeviceGetName,
    "compute_cap": capability,
    "mig.mode.current": lambda handle: ("Disabled", "Enabled")[pynvml.nvmlDeviceGetMigMode(handle)[0]],
    "clocks_event_reasons.active": lambda handle: f"{pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle):#018x}",
    "clocks_throttle_reasons.active": lambda handle: (
        f"{pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle):#018x}"
    ),
    "utilization.gpu": lambda handle: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu,
    "utilization.memory": lambda handle: pynvml.nvmlDeviceGetUtilizationRates(handle).memory,
    "memory.total": lambda handle: memory(handle, "total"),
    "memory.used": lambda handle: memory(handle, "used"),
    "memory.reserved": lambda handle: memory(handle, "reserved"),
    "power.draw": lambda handle: watts(pynvml.nvmlDeviceGetPowerUsage(handle)),
    "enforced.power.limit": lambda handle: watts(pynvml.nvmlDeviceGetEnforcedPowerLimit(handle)),
    "power.default_limit": lambda handle: watts(pynvml.nvmlDeviceGetPowerManagementDefaultLimit(handle)),
    "temperature.gpu": lambda handle: pynvml.nvmlDeviceGetTemperatureV(handle, pynvml.NVML_TEMPERATURE_GPU),
    "clocks.sm": lambda handle: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
    "clocks.max.sm": lambda handle: pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM),
    "clocks.mem": lambda handle: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM),
    "clocks.max.mem": lambda handle: pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_MEM),
    "pcie.link.gen.current": pynvml.nvmlDeviceGetCurrPcieLinkGeneration,
    "pcie.link.gen.max": pynvml.nvmlDeviceGetMaxPcieLinkGeneration,
    "pcie.link.width.current": pynvml.nvmlDeviceGetCurrPcieLinkWidth,
    "pcie.link.width.max": pynvml.nvmlDeviceGetMaxPcieLinkWidth,
    "fan.speed": pynvml.nvmlDeviceGetFanSpeed,
    "ecc.errors.corrected.volatile.total": lambda handle: ecc(handle, pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
    "ecc.errors.uncorrected.volatile.total": lambda handle: ecc(handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
}
NOT_THERE = ("temperature.memory",)
"""Columns that are known and that no GPU of the fake driver has."""


def cell(query: Callable[[Any], object], handle: Any) -> str:
    """What is printed of one figure."""
    try:
        return str(query(handle))
    except pynvml.NVMLError_GpuIsLost:
        return "[GPU is lost]"
    except pynvml.NVMLError_NoPermission:
        return "[Insufficient Permissions]"
    except pynvml.NVMLError:
        return "[N/A]"


def gpus(columns: list[str]) -> int:
    """One line per GPU."""
    lacks = os.environ.get("GPUMON_FAKE_SMI_LACKS", "").split(",")
    for column in columns:
        if column in lacks or (column not in QUERIES and column not in NOT_THERE):
            print(f'Field "{column}" is not a valid field to query.')
            return 2
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        queries = (QUERIES.get(column) for column in columns)
        print(", ".join("[N/A]" if query is None else cell(query, handle) for query in queries))
    return 0


def apps() -> int:
    """One line per process and GPU."""
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle):
            name = Path(f"/proc/{process.pid}/comm").read_text().strip()
            print(f"{process.pid}, {pynvml.nvmlDeviceGetUUID(handle)}, {process.usedGpuMemory // MIB}, {name}")
    return 0


def main(words: list[str]) -> int:
    """Answer one query."""
    options = dict(word.removeprefix("--").split("=", 1) for word in words)
    assert options["format"] == "csv,noheader,nounits"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        print("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest")
        print("NVIDIA driver is installed and running.")
        return 9
    if "query-compute-apps" in options:
        assert options["query-compute-apps"] == "pid,gpu_uuid,used_memory,process_name"
        return apps()
    return gpus(options["query-gpu"].split(","))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

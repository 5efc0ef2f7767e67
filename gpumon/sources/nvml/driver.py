"""NVML as a driver of the worker: opening it, what its return codes mean, and its GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pynvml

from gpumon.readings.frame import NO_DRIVER, GpuState
from gpumon.readings.missing import Reason
from gpumon.sources.driver.calls import NEVER, UNKNOWN_CODE, Api, CallPause, CallRule, CallTrace
from gpumon.sources.driver.fleet import DriverGpu
from gpumon.sources.driver.names import ProcessNames, in_own_namespace
from gpumon.sources.driver.wire import Timings
from gpumon.sources.nvml.gpm import GpmRequest
from gpumon.sources.nvml.gpu import NvmlGpu, NvmlSession
from gpumon.sources.nvml.xid import XidWatch

_NO_UTF8 = -1
"""Stands for an answer whose text cannot be read."""
_CABLE = "its external power cable is not attached"
_INTERRUPTS = "the kernel has trouble with its interrupts"
_BLOCKED = "blocked by the operating system: in a container, pass its /dev/nvidia* node"
_NO_VALUE = "the driver has no value right now"
_KERNEL_DRIVER: Final = Path("/proc/driver/nvidia/version")
"""There while the kernel module is loaded, also in a container."""
_LIBRARY_LOST: Final = (
    "the NVIDIA kernel driver runs, but its library (libnvidia-ml.so.1) is not found: install the driver's user part; "
    "in a container, start it with --gpus all (NVIDIA Container Toolkit)"
)
# Names of NVML's return codes without NVML_ERROR_, and what they mean for a call.
_RULES: tuple[tuple[str, CallRule], ...] = (
    ("INVALID_ARGUMENT NOT_SUPPORTED", NEVER),
    (
        "FUNCTION_NOT_FOUND ARGUMENT_VERSION_MISMATCH DEPRECATED",
        CallRule(Reason.NOT_SUPPORTED, CallPause.FOREVER, "this driver version does not have the call"),
    ),
    ("NO_PERMISSION", CallRule(Reason.NO_PERMISSION, CallPause.PERMISSION, "the driver refuses this to your user")),
    ("NOT_FOUND INSUFFICIENT_SIZE NO_DATA NOT_READY", CallRule(Reason.ERROR, CallPause.TICK, _NO_VALUE, usual=True)),
    ("INVALID_STATE", CallRule(Reason.ERROR, CallPause.TICK, _NO_VALUE)),
    ("TIMEOUT", CallRule(Reason.ERROR, CallPause.TICK, "the driver ran out of time")),
    ("INSUFFICIENT_POWER", CallRule(Reason.ERROR, CallPause.TICK, _CABLE, GpuState.ERROR)),
    ("IRQ_ISSUE", CallRule(Reason.ERROR, CallPause.TICK, _INTERRUPTS, GpuState.ERROR)),
    ("CORRUPTED_INFOROM", CallRule(Reason.ERROR, CallPause.BACK_OFF, "the GPU's InfoROM is corrupted", GpuState.OK)),
    ("OPERATING_SYSTEM", CallRule(Reason.ERROR, CallPause.BACK_OFF, _BLOCKED, GpuState.ERROR)),
    (
        "IN_USE MEMORY INSUFFICIENT_RESOURCES",
        CallRule(Reason.ERROR, CallPause.BACK_OFF, "the driver lacks resources for this call"),
    ),
    ("UNKNOWN", UNKNOWN_CODE),
)
# Return code -> the fault of a driver that cannot be used, and the fix.
_FIXES: dict[int, str] = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: (
        f"{NO_DRIVER} (libnvidia-ml.so.1): install the NVIDIA driver; "
        "in a container, start it with --gpus all (NVIDIA Container Toolkit)"
    ),
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (
        "the NVIDIA kernel driver is not loaded: sudo modprobe nvidia, then see dmesg; "
        "in a container, pass the /dev/nvidia* device nodes"
    ),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "the driver was updated under the running kernel module: reboot, or reload the nvidia kernel modules"
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: (
        "no permission to open the NVIDIA driver: check the access rights of /dev/nvidiactl and /dev/nvidia0 "
        "(often the group video or render); in a container, its device list"
    ),
    pynvml.NVML_ERROR_OPERATING_SYSTEM: (
        "the operating system blocks the NVIDIA driver: in a container, pass the /dev/nvidia* device nodes"
    ),
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "the NVIDIA driver library is too old: gpumon needs driver 450 or newer",
    pynvml.NVML_ERROR_UNKNOWN: (
        "the NVIDIA driver fails with an unknown error: see dmesg (NVRM, Xid); "
        "a container loses its devices after systemctl daemon-reload: restart the container"
    ),
    pynvml.NVML_ERROR_UNINITIALIZED: "the NVIDIA driver closed its session",
    pynvml.NVML_ERROR_GPU_IS_LOST: "the NVIDIA driver lost a GPU while it started: see dmesg for the Xid, then reboot",
}


def _code_of(error: Exception) -> int | None:
    """NVML's return code that an exception of pynvml stands for; None: the exception is a fault of gpumon's own."""
    if isinstance(error, pynvml.NVMLError):
        return int(error.value)
    if isinstance(error, (AttributeError, pynvml.NVMLLibraryMismatchError)):
        return int(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    if isinstance(error, ValueError):
        return _NO_UTF8
    return None


def without_library(kernel_driver: Path) -> str:
    """The fault of a library that is not found: that of a host without a driver, unless its kernel module is loaded."""
    if kernel_driver.exists():
        return _LIBRARY_LOST
    return _FIXES[pynvml.NVML_ERROR_LIBRARY_NOT_FOUND]


class Nvml:
    """The NVIDIA driver."""

    source = "nvml"
    api = Api(
        functions=pynvml,
        code_of=_code_of,
        rules={
            **{getattr(pynvml, f"NVML_ERROR_{name}"): rule for names, rule in _RULES for name in names.split()},
            _NO_UTF8: CallRule(Reason.INVALID, CallPause.TICK, "the driver sent text that is no UTF-8", usual=True),
        },
        down={
            pynvml.NVML_ERROR_GPU_IS_LOST: (
                GpuState.LOST,
                "fallen off the bus: see dmesg for the Xid; it needs a power cycle",
            ),
            pynvml.NVML_ERROR_RESET_REQUIRED: (
                GpuState.RESET_REQUIRED,
                "needs a reset: stop its processes, then nvidia-smi --gpu-reset or reboot",
            ),
        },
        refused={
            pynvml.NVML_ERROR_NO_PERMISSION: (
                GpuState.NO_PERMISSION,
                "not open to you: check the permissions of its /dev/nvidia* node, or the container's device list",
            ),
            pynvml.NVML_ERROR_INSUFFICIENT_POWER: (GpuState.ERROR, _CABLE),
            pynvml.NVML_ERROR_IRQ_ISSUE: (GpuState.ERROR, _INTERRUPTS),
            pynvml.NVML_ERROR_OPERATING_SYSTEM: (GpuState.ERROR, _BLOCKED),
        },
        driver_down=frozenset(
            {
                pynvml.NVML_ERROR_UNINITIALIZED,
                pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
                pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
            }
        ),
        stale=frozenset({pynvml.NVML_ERROR_GPU_NOT_FOUND}),
        stale_if_worked=frozenset({pynvml.NVML_ERROR_INVALID_ARGUMENT}),
    )
    no_gpu = "the NVIDIA driver runs but lists no GPU: see lspci and dmesg; in a container, start it with --gpus all"
    reload = frozenset({pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH})

    def start(self) -> int:
        """Load the library and initialise it, without touching a GPU yet."""
        try:
            pynvml.nvmlInitWithFlags(pynvml.NVML_INIT_FLAG_NO_GPUS)
        except pynvml.NVMLError as error:
            return int(error.value)
        return 0

    def explain(self, code: int) -> str:
        """The fault behind a return code, and the fix."""
        if code == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
            return without_library(_KERNEL_DRIVER)
        return _FIXES.get(code, f"the NVIDIA driver cannot be used (NVML code {code}): see dmesg")

    def versions(self) -> tuple[str, str]:
        """Versions of the driver and of CUDA."""
        try:
            driver = str(pynvml.nvmlSystemGetDriverVersion())
        except (pynvml.NVMLError, ValueError):
            driver = ""
        try:
            cuda = int(pynvml.nvmlSystemGetCudaDriverVersion())
        except pynvml.NVMLError:
            return driver, ""
        return driver, f"{cuda // 1000}.{cuda % 1000 // 10}"

    def events(self) -> XidWatch:
        """A watch of Xid errors, which begins with the first GPU."""
        return XidWatch(self.api.driver_down)

    def count(self) -> int:
        """GPUs that it lists."""
        return int(pynvml.nvmlDeviceGetCount())

    def open(self, index: int, last: DriverGpu | None, timings: Timings, trace: CallTrace) -> DriverGpu:
        """The GPU at an index: `last` where it is still that one."""
        trace.begin("nvmlDeviceGetHandleByIndex")
        handle: Any = pynvml.nvmlDeviceGetHandleByIndex(index)
        trace.begin("nvmlDeviceGetUUID")
        uuid = str(pynvml.nvmlDeviceGetUUID(handle))
        if last is not None and last.uuid == uuid:
            return last
        session = NvmlSession(
            self.api,
            timings,
            request=GpmRequest(),
            names=ProcessNames(),
            trace=trace,
            own_namespace=in_own_namespace(),
        )
        return NvmlGpu(index, handle, uuid, session)


DRIVER = Nvml()

"""Opening the NVIDIA driver: which way it failed, and what to do about it."""

from __future__ import annotations

import pynvml

FIXES: dict[int, str] = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: (
        "no NVIDIA driver library (libnvidia-ml.so.1): install the NVIDIA driver; "
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
"""Text for the user by NVML code: what is wrong, and the fix."""
NO_GPU = "the NVIDIA driver runs but lists no GPU: see lspci and dmesg; in a container, start it with --gpus all"


def open_driver() -> int:
    """Load the library and initialise it, without touching a GPU yet; gives NVML's code, 0 for success.

    It may take many seconds, or hang, where the driver does.
    """
    try:
        pynvml.nvmlInitWithFlags(pynvml.NVML_INIT_FLAG_NO_GPUS)
    except pynvml.NVMLError as error:
        return int(error.value)
    return 0


def explain(code: int) -> str:
    """What the user reads about a driver that can not be used."""
    return FIXES.get(code, f"the NVIDIA driver can not be used (NVML code {code}): see dmesg")


def versions() -> tuple[str, str]:
    """Driver version and the newest CUDA version that it supports; empty where it does not tell."""
    try:
        driver = str(pynvml.nvmlSystemGetDriverVersion())
    except (pynvml.NVMLError, ValueError):
        driver = ""
    try:
        cuda = int(pynvml.nvmlSystemGetCudaDriverVersion())
    except pynvml.NVMLError:
        return driver, ""
    return driver, f"{cuda // 1000}.{cuda % 1000 // 10}"

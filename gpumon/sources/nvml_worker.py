"""The process that talks to the NVIDIA driver: one report on stdout for each byte on stdin, until stdin ends."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
from typing import BinaryIO

import msgspec
import pynvml

from gpumon.sources.nvml.calls import DriverDownError
from gpumon.sources.nvml.fleet import Fleet
from gpumon.sources.nvml.wire import Report, Timings, pack

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


class Reporter:
    """Holds the driver open and answers with reports; an init that failed is tried again at its own pace."""

    def __init__(self, timings: Timings) -> None:
        self._timings = timings
        self._fleet: Fleet | None = None
        self._versions = ("", "")
        self._code = 0
        self._retry_s = 0.0
        self._seq = 0

    def report(self) -> Report:
        """The newest readings; blocks as long as the driver does."""
        self._seq += 1
        now_s = time.monotonic()
        if self._fleet is None and now_s >= self._retry_s:
            self._open(now_s)
        if self._fleet is None:
            return self._failed()
        try:
            gpus = self._fleet.read(time.monotonic())
        except DriverDownError as down:
            self._fleet, self._code = None, down.code
            return self._failed()
        driver, cuda = self._versions
        fleet, error = self._fleet, "" if gpus else NO_GPU
        return Report(self._seq, True, gpus, driver, cuda, error, fleet.faults, fleet.silent_s)

    def _open(self, now_s: float) -> None:
        self._code = open_driver()
        self._retry_s = now_s + self._timings.init_retry_s
        if self._code == 0:
            self._versions = versions()
            self._fleet = Fleet(self._timings)

    def _failed(self) -> Report:
        leaving = self._code == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
        return Report(self._seq, False, error=explain(self._code), leaving=leaving)


def _take_stdout() -> BinaryIO:
    """The pipe to the monitor, moved away from descriptor 1: what the driver library prints goes to stderr."""
    pipe = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    return pipe


def _listen(requests: threading.Semaphore) -> None:
    """Runs in a thread, so that the end of stdin ends this process even while the driver hangs."""
    while asked := os.read(0, 4096):
        requests.release(len(asked))
    os._exit(0)


def _write(pipe: BinaryIO, message: bytes) -> None:
    rest = memoryview(message)
    while rest:
        rest = rest[pipe.write(rest) or 0 :]


def main(arguments: list[str]) -> None:
    """Serve until stdin ends; `arguments` may hold the timings as JSON."""
    timings = msgspec.json.decode(arguments[0], type=Timings) if arguments else Timings()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe = _take_stdout()
    requests = threading.Semaphore(0)
    threading.Thread(target=_listen, args=(requests,), name="requests", daemon=True).start()
    reporter = Reporter(timings)
    while True:
        requests.acquire()
        report = reporter.report()
        try:
            _write(pipe, pack(report))
        except BrokenPipeError:
            os._exit(0)
        if report.leaving:
            os._exit(0)
        if report.seq == 1:
            gc.collect()
            gc.freeze()


if __name__ == "__main__":
    main(sys.argv[1:])

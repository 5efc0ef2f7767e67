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
from gpumon.sources.nvml.driver import NO_GPU, explain, open_driver, versions
from gpumon.sources.nvml.fleet import Fleet
from gpumon.sources.nvml.wire import Report, Timings, pack


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
        return Report(self._seq, True, gpus, driver, cuda, "" if gpus else NO_GPU)

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

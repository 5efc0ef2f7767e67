"""The process that talks to a GPU driver: one report on stdout for each line on stdin, until stdin ends.

python -m gpumon.sources.driver MODULE [TIMINGS as JSON]; MODULE has the vendor's driver as `DRIVER`.
"""

from __future__ import annotations

import gc
import importlib
import os
import queue
import signal
import threading
import time

import msgspec

from gpumon.sources.driver.calls import DriverDownError
from gpumon.sources.driver.fleet import Driver, DriverGpus
from gpumon.sources.driver.wire import Requests, Timings, WorkerReport, pack


class Reporter:
    """Holds the driver open and answers with reports; an init that failed is tried again at its own pace."""

    def __init__(self, driver: Driver, timings: Timings) -> None:
        self._driver = driver
        self._timings = timings
        self._fleet: DriverGpus | None = None
        self._versions = ("", "")
        self._code = 0
        self._retry_s = 0.0
        self._seq = 0

    def report(self, watched: frozenset[str]) -> WorkerReport:
        """The newest readings, with PCIe traffic of the GPUs `watched` (uuids). Blocks as long as the driver does."""
        self._seq += 1
        now_s = time.monotonic()
        if self._fleet is None and now_s >= self._retry_s:
            self._code = self._driver.start()
            self._retry_s = now_s + self._timings.init_retry_s
            if self._code == 0:
                self._versions = self._driver.versions()
                self._fleet = DriverGpus(self._driver, self._timings)
        fleet = self._fleet
        if fleet is not None:
            try:
                gpus = fleet.read(time.monotonic(), watched)
                error = "" if gpus else self._driver.no_gpu
                return WorkerReport(self._seq, True, gpus, *self._versions, error, fleet.faults, fleet.silent_s)
            except DriverDownError as down:
                self._fleet = None
                self._code = down.code
        leaving = self._code in self._driver.reload
        return WorkerReport(self._seq, False, error=self._driver.explain(self._code), leaving=leaving)


def _listen(requests: queue.SimpleQueue[frozenset[str]]) -> None:
    """Runs in a thread, so that the end of stdin ends this process even while the driver hangs."""
    lines = Requests()
    while piece := os.read(0, 4096):
        for watched in lines.feed(piece):
            requests.put(watched)
    os._exit(0)


def main(module: str, timings: str = "{}") -> None:
    """Serve until stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The pipe to the monitor leaves descriptor 1: what the driver library prints goes to stderr.
    pipe = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    requests: queue.SimpleQueue[frozenset[str]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(requests,), name="requests", daemon=True).start()
    reporter = Reporter(importlib.import_module(module).DRIVER, msgspec.json.decode(timings, type=Timings))
    while True:
        report = reporter.report(requests.get())
        rest = memoryview(pack(report))
        try:
            while rest:
                rest = rest[pipe.write(rest) or 0 :]
        except BrokenPipeError:
            os._exit(0)
        if report.leaving:
            os._exit(0)
        if report.seq == 1:
            gc.collect()
            gc.freeze()

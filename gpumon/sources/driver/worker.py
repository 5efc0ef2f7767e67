"""The process that talks to a GPU driver: one report on stdout for each line on stdin, until stdin ends.

python -m gpumon.sources.driver MODULE [TIMINGS [CHOSEN]], both as JSON; MODULE has the vendor's driver as `DRIVER`.
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
from gpumon.sources.driver.wire import Chosen, Requests, Timings, WorkerReport, pack_report


class Reporter:
    """Holds the driver open and answers with reports; an init that failed is tried again at its own pace."""

    def __init__(self, driver: Driver, timings: Timings, chosen: Chosen) -> None:
        self._driver = driver
        self._timings = timings
        self._chosen = chosen
        self._gpus: DriverGpus | None = None
        """None until the driver is initialised."""
        self._versions = ("", "")
        """Versions of the driver, and of CUDA or ROCm."""
        self._code = 0
        """The library's code of the last init, or of the error that ended the session."""
        self._retry_s = 0.0
        """When to initialise it again (monotonic)."""
        self._seq = 0

    def report(self, watched: frozenset[str]) -> WorkerReport:
        """The newest readings, with PCIe traffic of the GPUs `watched` (uuids). Blocks as long as the driver does."""
        self._seq += 1
        now_s = time.monotonic()
        if self._gpus is None and now_s >= self._retry_s:
            self._code = self._driver.start()
            self._retry_s = now_s + self._timings.init_retry_s
            if self._code == 0:
                self._versions = self._driver.versions()
                self._gpus = DriverGpus(self._driver, self._timings, self._chosen)
        gpus = self._gpus
        if gpus is not None:
            try:
                return self._ready_report(gpus, watched)
            except DriverDownError as down:
                self._gpus = None
                self._code = down.code
        error = self._driver.explain(self._code)
        leaving = self._code in self._driver.reload
        return WorkerReport(self._seq, ready=False, error=error, leaving=leaving)

    def _ready_report(self, gpus: DriverGpus, watched: frozenset[str]) -> WorkerReport:
        """The report of a driver that is open. Raises DriverDownError."""
        readings = gpus.read(time.monotonic(), watched)
        driver, cuda = self._versions
        return WorkerReport(
            self._seq,
            ready=True,
            gpus=readings,
            driver=driver,
            cuda=cuda,
            error="" if readings else self._driver.no_gpu,
            faults=gpus.faults,
            silent_s=gpus.silent_s,
            pending=gpus.pending,
        )


def _listen(requests: queue.SimpleQueue[frozenset[str]]) -> None:
    """Put the requests on stdin into the queue; the end of stdin ends this process.

    It runs in a thread of its own, so that this holds while the driver hangs, too.
    """
    lines = Requests()
    while piece := os.read(0, 4096):
        for watched in lines.feed(piece):
            requests.put(watched)
    os._exit(0)


def main(module: str, timings: str = "{}", chosen: str = "{}") -> None:
    """Serve until stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The pipe to the monitor leaves descriptor 1: what the driver library prints goes to stderr.
    pipe = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    requests: queue.SimpleQueue[frozenset[str]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(requests,), name="requests", daemon=True).start()
    driver: Driver = importlib.import_module(module).DRIVER
    reporter = Reporter(driver, msgspec.json.decode(timings, type=Timings), msgspec.json.decode(chosen, type=Chosen))
    while True:
        report = reporter.report(requests.get())
        unsent = memoryview(pack_report(report))
        try:
            while unsent:
                unsent = unsent[pipe.write(unsent) or 0 :]
        except BrokenPipeError:
            os._exit(0)
        if report.leaving:
            os._exit(0)
        if report.seq == 1:
            # What is there after the first report stays: no later collection has to look at it.
            gc.collect()
            gc.freeze()

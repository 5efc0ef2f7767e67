"""The driver's worker, traced: prints as JSON the files that a GPU's clock passes, from the driver call to the pipe.

python -m tests.architecture.traced_worker CLOCK_HZ        (with the fake driver in its environment)
"""

from __future__ import annotations

import json
import struct
import sys
import time
from typing import Any, Final

from gpumon.sources.driver.wire import Chosen, Timings, WorkerReport, pack_report
from gpumon.sources.driver.worker import Reporter
from gpumon.sources.nvml.driver import DRIVER
from tests.architecture.tracing import Recorder, way_of

PATIENCE_S: Final = 60.0


def main(clock_hz: float) -> None:
    """Ask for reports until one has the clock."""
    in_mhz = round(clock_hz / 1e6)
    packed = struct.pack(">d", clock_hz)

    def mark(value: Any) -> str:
        if isinstance(value, bytes):
            return "packed" if packed in value else ""
        if isinstance(value, (float, int)):
            return "clock" if value in (clock_hz, in_mhz) else ""
        return ""

    recorder = Recorder()
    recorder.start()
    recorder.keeps_returned = True
    reporter = Reporter(DRIVER, Timings(), Chosen())
    end_s = time.monotonic() + PATIENCE_S
    while not has_clock(report := reporter.report(frozenset()), clock_hz):
        assert time.monotonic() < end_s, "the driver gave no clock"
        time.sleep(0.01)
    pack_report(report)
    recorder.keeps_returned = False
    way = way_of(recorder.returned, mark, first="sources/driver/calls.py")
    print(json.dumps(way))


def has_clock(report: WorkerReport, clock_hz: float) -> bool:
    """Whether its GPU was read."""
    return any(gpu.sm_clock_hz == clock_hz for gpu in report.gpus)


if __name__ == "__main__":
    main(float(sys.argv[1]))

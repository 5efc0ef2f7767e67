"""What all GPUs of one worker have in common."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.sources.nvml.gpm import Request
from gpumon.sources.nvml.processes import Names
from gpumon.sources.nvml.wire import Timings


class Session(NamedTuple):
    """Timings, the one GPM request record, and the names of processes."""

    timings: Timings
    request: Request
    names: Names

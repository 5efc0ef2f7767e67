"""The machine that gpumon runs on, and what gpumon itself costs it."""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from gpumon.readings.frame import HostReading
from gpumon.readings.missing import WARMING_UP, Missing, Reading, Reason
from gpumon.sources.cpu_consumers import CpuConsumers
from gpumon.sources.host_load import HostLoad
from gpumon.sources.offload import daemon_thread

if TYPE_CHECKING:
    import psutil

_WINDOW_S = 10.0
"""Seconds of which own CPU is a mean: the kernel counts a process's time in steps of 10 ms."""
PSS_S = 30.0
"""Seconds between two looks at the own memory: the kernel walks all pages for it."""
PSS_SILENT_S = 5.0
"""Seconds after which a look at the own memory is said to hang."""


class ProcMeter:
    """Reads /proc, partly through psutil, which is imported at the first reading and not before."""

    def __init__(self, window_s: float = _WINDOW_S, pss_s: float = PSS_S) -> None:
        self._window_s = window_s
        self._pss_s = pss_s
        self._name = socket.gethostname()
        self._load = HostLoad()
        self._consumers = CpuConsumers()
        self._busy: tuple[float, float] | None = None
        """Busy and total seconds of all cores at the last call."""
        self._own: deque[tuple[float, float]] = deque()
        """Monotonic time, and CPU seconds of gpumon by then, of the last `window_s`."""
        self._own_pids: tuple[int, ...] = ()
        """The processes that these are of."""
        self._workers: dict[int, psutil.Process] = {}
        """Pid -> a worker of gpumon's."""
        self._pss: Reading = WARMING_UP
        """Own memory, as it was read last."""
        self._pss_asked_s = float("-inf")
        """When the last look at the own memory began (monotonic)."""
        self._pss_look: Future[Reading] | None = None
        """The look that is under way."""

    def read(self, pids: tuple[int, ...]) -> HostReading:
        """The machine since the last call; gpumon and its children `pids` over the last seconds, and their memory."""
        import psutil

        memory = psutil.virtual_memory()
        own_pids = (os.getpid(), *pids)
        load: dict[str, Any] = self._load.figures()
        cpu_ratio = self._cpu_ratio()
        return HostReading(
            name=self._name,
            cpu_ratio=cpu_ratio,
            memory_used_bytes=float(memory.total - memory.available),
            memory_total_bytes=float(memory.total),
            self_cpu_ratio=self._own_ratio(own_pids),
            self_pss_bytes=self._own_pss(own_pids),
            consumers=self._consumers.top(cpu_ratio),
            **load,
        )

    def _cpu_ratio(self) -> Reading:
        """Share of all cores in use since the last call. Guests are in `user` already, so they are taken off."""
        import psutil

        times = psutil.cpu_times()
        idle_s = times.idle + getattr(times, "iowait", 0.0)
        total_s = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
        before = self._busy
        self._busy = (total_s - idle_s, total_s)
        if before is None or total_s <= before[1]:
            return WARMING_UP
        return min(1.0, max(0.0, (self._busy[0] - before[0]) / (total_s - before[1])))

    def _own_ratio(self, pids: tuple[int, ...]) -> Reading:
        """CPU of gpumon's processes over the last `window_s`, as a share of one core.

        A worker that is replaced takes its counter along: a new window begins.
        """
        now_s = time.monotonic()
        if pids != self._own_pids:
            self._own.clear()
            self._workers.clear()
            self._own_pids = pids
        spent_s = [self._cpu_s(pid) for pid in pids]
        if None in spent_s:
            return Missing(Reason.ERROR, "the worker process is gone")
        self._own.append((now_s, sum(spent for spent in spent_s if spent is not None)))
        while len(self._own) > 2 and self._own[1][0] < now_s - self._window_s:
            self._own.popleft()
        (since_s, before_s) = self._own[0]
        (_, after_s) = self._own[-1]
        if now_s <= since_s:
            return WARMING_UP
        return (after_s - before_s) / (now_s - since_s)

    def _own_pss(self, pids: tuple[int, ...]) -> Reading:
        """Own memory in bytes, as a thread read it last.

        The kernel takes the worker's memory lock for it, which a driver call may hold.
        """
        now_s = time.monotonic()
        if self._pss_look is not None and self._pss_look.done():
            self._pss = self._pss_look.result()
            self._pss_look = None
        if self._pss_look is None and now_s - self._pss_asked_s >= self._pss_s:
            self._pss_asked_s = now_s
            self._pss_look = daemon_thread(_pss_bytes, pids)
        if self._pss_look is not None and now_s - self._pss_asked_s > PSS_SILENT_S:
            self._pss = Missing(Reason.STALE, "the worker process hangs inside the driver")
        return self._pss

    def _cpu_s(self, pid: int) -> float | None:
        """CPU time of this process or a worker so far; None where that one has ended."""
        import psutil

        if pid == os.getpid():
            return time.process_time()
        try:
            if pid not in self._workers:  # making one costs three times what its reading does
                self._workers[pid] = psutil.Process(pid)
            times = self._workers[pid].cpu_times()
        except psutil.Error:
            return None
        return float(times.user + times.system)


def _pss_bytes(pids: tuple[int, ...]) -> Reading:
    """Memory of these processes, of shared pages their part; in a thread."""
    import psutil

    try:
        return float(sum(psutil.Process(pid).memory_full_info().pss for pid in pids))
    except (psutil.Error, OSError):
        return Missing(Reason.ERROR, "the memory of the worker process cannot be read")

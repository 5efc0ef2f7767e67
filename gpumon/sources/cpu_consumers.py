"""Finds the processes that use the host's cores, only while nearly all cores are in use."""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final, NamedTuple

from gpumon.readings.frame import HostProcess
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.text import clean
from gpumon.sources.offload import daemon_thread

if TYPE_CHECKING:
    import psutil

SATURATED: Final = 0.85
"""Share of all cores from which on it is worth a walk over all processes: `cpu_high_ratio` of triage."""
_CALM_S: Final = 30.0
"""Seconds below that share after which the last result is dropped: the load of a compile job has short gaps."""
FIRST_S: Final = 2.0
"""Seconds between the first two looks: CPU time is a difference, so that nothing is known before the second."""
_LOOK_S: Final = 10.0
"""Seconds between two looks after that: one costs about 30 us per process."""
MOST_LISTED: Final = 5
"""Processes that are listed."""
_LEAST_CORES: Final = 0.5
"""Cores that a process must use to be listed: one that uses less does not fill the host."""


class _CpuTimes(NamedTuple):
    """CPU time of all processes at one moment."""

    read_s: float
    """Monotonic time."""
    seconds: dict[tuple[int, float], float]
    """(pid, start time) -> CPU seconds so far."""


class CpuConsumers:
    """Keeps the largest CPU consumers of the last look; a thread takes the looks, as /proc may hang."""

    def __init__(self, saturated: float = SATURATED, look_s: float = _LOOK_S, first_s: float = FIRST_S) -> None:
        self._saturated = saturated
        self._look_s = look_s
        self._first_s = first_s
        self._look: Future[tuple[_CpuTimes, tuple[HostProcess, ...]]] | None = None
        """The look that is under way."""
        self._last_times: _CpuTimes | None = None
        self._top: tuple[HostProcess, ...] = ()
        self._due_s = 0.0
        """Monotonic time of the next look."""
        self._high_s = float("-inf")
        """Monotonic time when the cores were last nearly all in use."""

    def top(self, cpu_ratio: Reading) -> tuple[HostProcess, ...]:
        """The top consumers, the largest first; none where the host is not saturated, or nothing is known yet."""
        now_s = time.monotonic()
        if not isinstance(cpu_ratio, Missing) and cpu_ratio >= self._saturated:
            self._high_s = now_s
        if now_s - self._high_s > _CALM_S:
            self._last_times = None
            self._top = ()
            return ()
        self._take_result(now_s)
        is_saturated = self._high_s == now_s
        if self._look is None and now_s >= self._due_s and is_saturated:
            self._look = daemon_thread(_look_at_processes, self._last_times)
        return self._top

    def _take_result(self, now_s: float) -> None:
        """Keep the result of the look that was under way, if it has ended, and set the time of the next."""
        if self._look is None or not self._look.done():
            return
        look = self._look
        self._look = None
        if look.exception() is not None:
            self._due_s = now_s + self._look_s
            return
        # A first look has no difference to show: the second follows sooner.
        wait_s = self._first_s if self._last_times is None else self._look_s
        self._last_times, self._top = look.result()
        self._due_s = now_s + wait_s


def _look_at_processes(before: _CpuTimes | None) -> tuple[_CpuTimes, tuple[HostProcess, ...]]:
    """The CPU time of all processes, and those that used most since the look before (none without one)."""
    import psutil

    seconds: dict[tuple[int, float], float] = {}
    used: list[tuple[float, psutil.Process]] = []
    now_s = time.monotonic()
    for process in psutil.process_iter():
        try:
            key = (process.pid, process.create_time())
            times = process.cpu_times()
        except (psutil.Error, OSError):
            continue
        seconds[key] = times.user + times.system
        if before is not None and key in before.seconds:
            used.append((seconds[key] - before.seconds[key], process))
    times_now = _CpuTimes(now_s, seconds)
    if before is None or now_s <= before.read_s:
        return times_now, ()
    used.sort(key=lambda used_by: used_by[0], reverse=True)
    elapsed_s = now_s - before.read_s
    top = [
        _host_process(process, cpu_s / elapsed_s)
        for cpu_s, process in used[:MOST_LISTED]
        if cpu_s >= _LEAST_CORES * elapsed_s
    ]
    return times_now, tuple(top)


def _host_process(process: psutil.Process, cores: float) -> HostProcess:
    """A consumer of so many cores; its name and user are empty where they may not be read."""
    import psutil

    name = ""
    user = ""
    try:
        name = clean(process.name(), 32)
        user = clean(process.username(), 32)
    except (psutil.Error, OSError, KeyError):
        pass
    return HostProcess(process.pid, name, user, cores)

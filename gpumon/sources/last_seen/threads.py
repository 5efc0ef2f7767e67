"""Threads of processes that wait in the kernel: a process whose first thread goes on may have one that never will."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.sources.last_seen.records import ProcessId

_LOOK_S: Final = 10.0
"""Seconds between two looks at the threads of a process: an engine has hundreds, and each is a file to read. Those that
read a disk are caught in state D now and then, but not the same one from look to look."""
_MOST_THREADS: Final = 1024
"""Threads of a process that are looked at."""


class _Look(NamedTuple):
    """Threads of a process at one look."""

    at_s: float
    """Monotonic."""
    waiting: frozenset[str]
    """Ids of threads in uninterruptible sleep."""
    waits_on: bool
    """One of them was so at the look before, too."""


class ThreadsScan:
    """Looks at the threads of processes now and then. For a thread, one call at a time."""

    def __init__(self) -> None:
        self._looks: dict[ProcessId, _Look] = {}
        """The newest look at each process."""

    def has_one_that_waits(self, process_id: ProcessId, now_s: float) -> bool:
        """Whether a thread of a process was in uninterruptible sleep at the last two looks, 10 s apart."""
        before = self._looks.get(process_id)
        if before is not None and now_s - before.at_s < _LOOK_S:
            return before.waits_on
        waiting = frozenset(_waiting_threads(process_id[0]))
        waits_on = before is not None and not before.waiting.isdisjoint(waiting)
        self._looks[process_id] = _Look(now_s, waiting, waits_on)
        return waits_on

    def forget_others(self, processes: Iterable[ProcessId]) -> None:
        """Forget the processes that nobody asks about any more."""
        kept = set(processes)
        self._looks = {key: look for key, look in self._looks.items() if key in kept}


def _waiting_threads(pid: int) -> Iterable[str]:
    """Ids of the threads of a process that are in state D of proc_pid_stat(5), as far as they can be read."""
    try:
        folders = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return
    for folder in folders[:_MOST_THREADS]:
        try:
            stat = (folder / "stat").read_bytes()
        except OSError:  # it has ended meanwhile
            continue
        if stat.rpartition(b")")[2].split()[0] == b"D":
            yield folder.name

"""Processes that were started by the command of an engine that has ended: it comes back, and is on no GPU yet."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from gpumon.sources.discovery.command_line import launch
from gpumon.sources.discovery.servers import server_in
from gpumon.sources.discovery.shown_command import shown_command
from gpumon.sources.family import NewPids, ProcessRecord, ancestry, is_alive, read_process
from gpumon.sources.last_seen.records import TICKS_PER_S, EngineOrigin, ProcessId

_YOUNG_S: Final = 120.0
"""Seconds after its start in which a process may become another program: the entry point of a container looks at GPUs
and files first, and has the engine's program take its place then (a choice)."""


class RestartScan:
    """Finds them, a look with each call. For a thread, one call at a time."""

    def __init__(self) -> None:
        self._new = NewPids()
        self._servers: dict[int, ProcessRecord] = {}
        """Servers of engines, by pid."""
        self._young: set[int] = set()
        """Processes that began lately: they are read at each look."""

    def find(self, ended: Iterable[EngineOrigin]) -> dict[ProcessId, ProcessRecord]:
        """Each of these processes that have ended -> the newest server of the same user and command, begun after it."""
        for pid in {*self._new.look(), *self._young}:
            self._read(pid)
        for pid, server in list(self._servers.items()):
            if not is_alive(server):
                del self._servers[pid]
        found: dict[ProcessId, ProcessRecord] = {}
        for server in sorted(self._servers.values(), key=lambda server: server.started):
            command = shown_command(server.argv)
            for origin in ended:
                is_same = (origin.command, origin.uid) == (command, server.uid)
                if is_same and command and server.started > origin.started:
                    found[origin.id] = server
        return found

    def _read(self, pid: int) -> None:
        """Note a process, if it is the server of an engine."""
        self._servers.pop(pid, None)
        self._young.discard(pid)
        process = read_process(pid)
        if process is None:
            return
        if time.clock_gettime(time.CLOCK_BOOTTIME) - process.started / TICKS_PER_S < _YOUNG_S:
            self._young.add(pid)
        started = launch(process.argv)
        if started is None or started.part:
            return
        found = server_in(ancestry(pid))
        if found is not None and found[0].pid == pid:
            self._servers[pid] = found[0]

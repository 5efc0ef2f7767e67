"""One look at the processes of engines: whether they go on, what those do that start, who starts one again."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from gpumon.readings.frame import EngineKind, PartState
from gpumon.sources.discovery.command_line import launch
from gpumon.sources.discovery.coreless import CORES
from gpumon.sources.discovery.servers import server_in
from gpumon.sources.discovery.shown_command import shown_command
from gpumon.sources.family import NewPids, ProcessRecord, ancestry, children_by_parent, is_alive, read_process
from gpumon.sources.last_seen.processes.origin import is_frozen, oom_kills, origin_of
from gpumon.sources.last_seen.processes.process_state import ServerWork
from gpumon.sources.last_seen.processes.tree import PartsScan, ThreadsScan, is_exiting, part_state
from gpumon.sources.last_seen.records import TICKS_PER_S, EngineOrigin, ProcessId, ProcessPart
from gpumon.sources.sockets import open_at

_MOST_COUNTERS_BYTES: Final = 65536
"""Bytes of /proc/PID/io that are read: far more than it has."""
_YOUNG_S: Final = 120.0
"""Seconds after its start in which a process may become another program: the entry point of a container looks at GPUs
and files first, and has the engine's program take its place then (a choice)."""


class Use(NamedTuple):
    """Resources used by a server's processes since they began."""

    at_s: float
    """Monotonic time of the look."""
    read_bytes: float | None
    cpu_s: float | None


class ProcessLook(NamedTuple):
    """Result of one look at the processes."""

    origins: Mapping[ProcessId, EngineOrigin]
    """Servers that were asked for, with where they run."""
    states: Mapping[ProcessId, PartState]
    """Condition of those processes that were asked for and do not go on."""
    uses: Mapping[ProcessId, Use]
    """Resources that servers which start have used so far."""
    closed: Mapping[ProcessId, int] = {}
    """Servers of those asked for that have closed their port -> connections to it that are still open."""
    restarts: Mapping[ProcessId, EngineOrigin] = {}
    """Servers of those asked for that have ended -> the newest process of the same command."""


class ServerProcesses(NamedTuple):
    """A server to look at."""

    server: ProcessRecord
    gpu_pids: tuple[int, ...]
    kind: EngineKind = EngineKind.UNKNOWN
    coreless: bool = False
    """Its core is gone, and maybe was never seen."""
    port: int = 0
    """Port that it listens on in its own network namespace; 0: not known."""


class LookOrder(NamedTuple):
    """The processes to look at."""

    servers: Mapping[ProcessId, ServerProcesses]
    """Servers that run as far as is known."""
    known_origins: Mapping[ProcessId, EngineOrigin]
    """Origins of an earlier look: they are not read again."""
    watched: Iterable[EngineOrigin] = ()
    """Processes of which it is asked, too, how they are."""
    starting: Iterable[ProcessId] = ()
    """Servers whose resources are asked for."""
    scanned: Collection[ProcessId] = ()
    """Servers whose trees are looked through."""
    refusing: Collection[ProcessId] = ()
    """Servers whose port refuses connections."""


def look_at_processes(order: LookOrder, scan: PartsScan, restarts: RestartScan) -> ProcessLook:
    """Look at processes: where servers run, how their processes are, what starting servers do.

    For a thread, as /proc can be slow.
    """
    origins = {}
    for server_id, asked in order.servers.items():
        origin = order.known_origins.get(server_id) or origin_of(asked.server)
        if origin.gpu_pids != asked.gpu_pids:
            origin = msgspec.structs.replace(origin, gpu_pids=asked.gpu_pids)
        if origin.cgroup:
            origin = msgspec.structs.replace(origin, oom_kills=oom_kills(origin.cgroup))
        origins[server_id] = origin
    if order.scanned:
        _scan(order, origins, scan)
    uses = {server_id: _use(origins[server_id]) for server_id in order.starting if server_id in origins}
    states = _states([*origins.values(), *order.watched], scan.threads)
    ended = [origin for origin in order.watched if states.get(origin.id) is PartState.GONE]
    begun = {}
    if ended:
        begun = {ended_id: origin_of(server) for ended_id, server in restarts.find(ended).items()}
    return ProcessLook(origins, states, uses, _closed_servers(order), begun)


def _closed_servers(order: LookOrder) -> dict[ProcessId, int]:
    """Servers that have closed their port and go on -> connections to it that are still open."""
    closed = {}
    for server_id in order.refusing:
        asked = order.servers.get(server_id)
        if asked is None or not asked.port or is_exiting(server_id):
            continue
        found = open_at(asked.server.pid, asked.port)
        if found is not None and not found[0]:
            closed[server_id] = found[1]
    return closed


def _scan(order: LookOrder, origins: dict[ProcessId, EngineOrigin], scan: PartsScan) -> None:
    """Look through the trees of the servers that are to be scanned, and note their parts in their origins."""
    children = children_by_parent()
    now_s = time.monotonic()
    on_gpus: set[int] = set()
    for asked in order.servers.values():
        on_gpus.update(asked.gpu_pids)
    scan.forget_others(on_gpus)
    for server_id in order.scanned:
        if server_id in origins:
            asked = order.servers[server_id]
            parts = scan.parts(asked.server, asked.kind, asked.gpu_pids, children, now_s)
            if asked.coreless:
                parts = (*parts, ProcessPart(CORES[asked.kind], 0, 0))
            origins[server_id] = msgspec.structs.replace(origins[server_id], parts=parts)


def _states(origins: Iterable[EngineOrigin], threads: ThreadsScan) -> dict[ProcessId, PartState]:
    """Condition of the processes of these servers, of those that do not go on."""
    states: dict[ProcessId, PartState] = {}
    now_s = time.monotonic()
    met: set[ProcessId] = set()
    for origin in origins:
        if not origin.pid:
            continue
        is_stopped = is_frozen(origin.cgroup)
        for process_id in {origin.id, *(part.id for part in origin.parts)}:
            state = part_state(process_id)
            met.add(process_id)
            if is_stopped and state is not PartState.GONE:
                state = PartState.FROZEN
            if state is PartState.RUNS and threads.has_one_that_waits(process_id, now_s):
                state = PartState.THREAD_UNINTERRUPTIBLE
            if state is not PartState.RUNS:
                states[process_id] = state
    threads.forget_others(met)
    return states


def works(before: Mapping[ProcessId, Use], after: Mapping[ProcessId, Use]) -> dict[ProcessId, ServerWork]:
    """Work of servers between two looks, by process."""
    works_by_id = {}
    for server_id, use in after.items():
        old = before.get(server_id)
        if old is None or use.at_s <= old.at_s:
            continue
        seconds = use.at_s - old.at_s
        works_by_id[server_id] = ServerWork(
            read_bytes_per_s=_growth_per_s(old.read_bytes, use.read_bytes, seconds),
            cpu_cores=_growth_per_s(old.cpu_s, use.cpu_s, seconds),
        )
    return works_by_id


def _growth_per_s(before: float | None, after: float | None, seconds: float) -> float | None:
    """Growth of a counter per second; None where it is not known, or fell as a process of the server ended."""
    if before is None or after is None or after < before:
        return None
    return (after - before) / seconds


def _use(origin: EngineOrigin) -> Use:
    """Bytes read from disks and CPU time of a server and its processes on GPUs."""
    read_bytes: float | None = None
    cpu_s: float | None = None
    for pid in {origin.pid, *origin.gpu_pids}:
        with contextlib.suppress(OSError, KeyError, ValueError):
            read_bytes = _read_bytes(pid) + (read_bytes or 0.0)
        with contextlib.suppress(OSError, IndexError, ValueError):
            cpu_s = _cpu_s(pid) + (cpu_s or 0.0)
    return Use(time.monotonic(), read_bytes, cpu_s)


def _read_bytes(pid: int) -> float:
    """Bytes that a process has read from disks. Raises OSError, KeyError or ValueError where it does not tell."""
    with Path(f"/proc/{pid}/io").open("rb") as file:
        lines = file.read(_MOST_COUNTERS_BYTES).splitlines()
    counters = dict(line.split(b": ", 1) for line in lines if b": " in line)
    return float(counters[b"read_bytes"])


def _cpu_s(pid: int) -> float:
    """CPU seconds of a process: fields 14 and 15 of /proc/PID/stat. Raises OSError, IndexError or ValueError."""
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


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

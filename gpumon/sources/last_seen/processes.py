"""Processes of engines as /proc tells them: where one runs, whether it lives, what one does that starts."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from gpumon.readings.frame import EngineKind, PartState
from gpumon.sources.discovery.coreless import CORES
from gpumon.sources.discovery.shown_command import shown_command
from gpumon.sources.driver.names import pod_and_job
from gpumon.sources.engine_log.outputs import targets_of
from gpumon.sources.family import ProcessRecord, children_by_parent
from gpumon.sources.last_seen.around import ServerWork
from gpumon.sources.last_seen.process_tree import PartsScan, is_exiting, process_state
from gpumon.sources.last_seen.records import TICKS_PER_S, EngineOrigin, ProcessId, ProcessPart
from gpumon.sources.last_seen.relaunch import relaunch_command
from gpumon.sources.last_seen.restarts import RestartScan
from gpumon.sources.last_seen.threads import ThreadsScan
from gpumon.sources.sockets import open_at

CONTAINER: Final = re.compile(r"^(?:.*[/-])?([0-9a-f]{64})(?:\.scope)?(?:/|$)")
"""The innermost container's id in a cgroup path (Docker, containerd, CRI-O, Podman)."""
UNIT: Final = re.compile(r"[A-Za-z0-9@._:\\-]{1,200}\.service")
"""A systemd unit's name that needs no quoting."""
POD: Final = re.compile(r"(?:[a-z0-9.-]{1,63}/)?[a-z0-9.-]{1,253}")
_FILE: Final = re.compile(r"/[A-Za-z0-9_@%+=:,./-]{1,250}")
"""A path that needs no quoting."""
_MANAGER: Final = re.compile(r"user@\d+\.service")
"""The unit of a user's own systemd: what runs under it are units of that one."""
_CGROUPS: Final = Path("/sys/fs/cgroup")
_MOST_COUNTERS_BYTES: Final = 65536
"""Bytes of /proc/PID/io that are read: far more than it has."""


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
    uses = {}
    for server_id in order.starting:
        if server_id in origins:
            uses[server_id] = _use(origins[server_id])
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
            state = process_state(process_id)
            met.add(process_id)
            if is_stopped and state is not PartState.GONE:
                state = PartState.FROZEN
            if state is PartState.RUNS and threads.has_one_that_waits(process_id, now_s):
                state = PartState.THREAD_UNINTERRUPTIBLE
            if state is not PartState.RUNS:
                states[process_id] = state
    threads.forget_others(met)
    return states


def origin_of(server: ProcessRecord) -> EngineOrigin:
    """Origin of a process, as far as this user may read it."""
    cgroup = _cgroup(server.pid)
    container = CONTAINER.search(cgroup)
    pod, _ = pod_and_job(server.pid, in_pod="kubepods" in cgroup)
    unit = ""
    is_user_unit = False
    container_id = ""
    if container is None:
        unit, is_user_unit = unit_of(cgroup)
    else:
        # The unit of a process in a container is that of the runtime.
        container_id = container.group(1)
    if not POD.fullmatch(pod):
        pod = ""
    return EngineOrigin(
        pid=server.pid,
        started=server.started,
        command=shown_command(server.argv),
        unit=unit,
        is_user_unit=is_user_unit,
        container=container_id,
        pod=pod,
        output=_output(server.pid),
        uid=server.uid,
        cgroup=cgroup,
        oom_kills=oom_kills(cgroup),
        relaunch=relaunch_command(server),
    )


def unit_of(cgroup: str) -> tuple[str, bool]:
    """The innermost systemd service of a cgroup path, and whether it belongs to a user's own systemd."""
    parts = [part for part in cgroup.split("/") if part]
    for part in reversed(parts):
        if UNIT.fullmatch(part) and not _MANAGER.fullmatch(part):
            return part, any(_MANAGER.fullmatch(other) for other in parts)
    return "", False


def oom_kills(cgroup: str) -> int:
    """Processes of a cgroup that the kernel killed for want of memory; -1: not readable."""
    if not cgroup or ".." in cgroup.split("/"):
        return -1
    try:
        text = (_CGROUPS / cgroup.lstrip("/") / "memory.events").read_text()
    except OSError:
        return -1
    for line in text.splitlines():
        name, _, count = line.partition(" ")
        if name == "oom_kill" and count.isdecimal():
            return int(count)
    return -1


def is_frozen(cgroup: str) -> bool:
    """Whether a cgroup is frozen, as `docker pause` and `systemctl freeze` do."""
    if not cgroup or ".." in cgroup.split("/"):
        return False
    try:
        text = (_CGROUPS / cgroup.lstrip("/") / "cgroup.events").read_text()
    except OSError:
        return False
    return "frozen 1" in text.splitlines()


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


def boot_id() -> str:
    """Id of this boot of the host; empty where it is not told."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def place() -> str:
    """Place in which this process runs: its namespaces of pids and networks, which give pids and ports their meaning.

    The number of a namespace may be given again once it has ended: the start of its first process is told, too. Empty
    where it is not known.
    """
    try:
        pids = Path("/proc/self/ns/pid").readlink()
        networks = Path("/proc/self/ns/net").readlink()
    except OSError:
        return ""
    started = ""
    with contextlib.suppress(OSError, IndexError):
        started = Path("/proc/1/stat").read_text(errors="replace").rpartition(")")[2].split()[19]
    return f"{pids} {started} {networks}"


def _cgroup(pid: int) -> str:
    """The process's path in the unified hierarchy; with cgroups of version 1 that of the first controller."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    paths = {}
    for line in lines:
        # `hierarchy:controllers:path`; hierarchy 0 is the unified one.
        if line.count(":") >= 2:
            hierarchy, _, path = line.split(":", 2)
            paths[hierarchy] = path
    path = paths.get("0") or next(iter(paths.values()), "")
    if len(path) < 512 and path.isprintable():
        return path
    return ""


def _output(pid: int) -> str:
    """The file that a process writes its log into, by its name on this host; of several the first one."""
    try:
        if Path(f"/proc/{pid}/root").readlink() != Path("/"):
            return ""
    except OSError:
        return ""
    for target in targets_of(pid).values():
        if _FILE.fullmatch(target) and not target.startswith("/dev/"):
            return target
    return ""


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

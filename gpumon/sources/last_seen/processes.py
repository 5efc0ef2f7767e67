"""Processes of engines as /proc tells them: where one runs, whether it lives, what one does that starts."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from gpumon.sources.discovery.shown_command import shown_command
from gpumon.sources.driver.names import pod_and_job
from gpumon.sources.engine_log.outputs import targets_of
from gpumon.sources.family import ProcessRecord
from gpumon.sources.last_seen.around import ServerWork
from gpumon.sources.last_seen.records import TICKS_PER_S, EngineOrigin, ProcessId

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
    ended: frozenset[ProcessId]
    """Processes that were asked for and are gone."""
    uses: Mapping[ProcessId, Use]
    """Resources that servers which start have used so far."""


def look_at_processes(
    servers: Mapping[ProcessId, tuple[ProcessRecord, tuple[int, ...]]],
    known_origins: Mapping[ProcessId, EngineOrigin],
    watched: Iterable[EngineOrigin],
    starting: Iterable[ProcessId],
) -> ProcessLook:
    """Look at processes: where servers run, which processes have ended, what starting servers do.

    For a thread, as /proc can be slow. `servers`: those that run as far as is known, each with its processes on GPUs;
    those of `known_origins` are not read again. `watched`: processes of which it is asked, too, whether they live.
    """
    origins = {}
    for server_id, (server, gpu_pids) in servers.items():
        origin = known_origins.get(server_id) or origin_of(server)
        if origin.gpu_pids != gpu_pids:
            origin = msgspec.structs.replace(origin, gpu_pids=gpu_pids)
        if origin.cgroup:
            origin = msgspec.structs.replace(origin, oom_kills=oom_kills(origin.cgroup))
        origins[server_id] = origin
    ids = set(servers)
    for origin in watched:
        if origin.pid:
            ids.add(origin.id)
    uses = {}
    for server_id in starting:
        if server_id in origins:
            uses[server_id] = _use(origins[server_id])
    return ProcessLook(origins, frozenset(filter(has_ended, ids)), uses)


def has_ended(server_id: ProcessId) -> bool:
    """Whether that very process is gone; one that its parent has not waited for is, too."""
    pid, started = server_id
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except FileNotFoundError:
        return True
    except OSError as error:
        return isinstance(error, ProcessLookupError)
    fields = stat.rpartition(b")")[2].split()
    return fields[0] in (b"Z", b"X") or int(fields[19]) != started


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


def pid_namespace() -> str:
    """Name of the namespace whose pids this process sees; empty where it is not told."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


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

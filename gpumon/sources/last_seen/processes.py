"""Processes of engines as /proc tells them: where one runs, whether it lives, what one does that starts."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from gpumon.sources.discovery.command_line import shown_command
from gpumon.sources.driver.names import pod_and_job
from gpumon.sources.engine_log.outputs import targets_of
from gpumon.sources.family import ProcessRecord
from gpumon.sources.last_seen.memory import ServerWork
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
    uses: Mapping[ProcessId, Use]


def look_at_processes(
    servers: Mapping[ProcessId, tuple[ProcessRecord, tuple[int, ...]]],
    known: Mapping[ProcessId, EngineOrigin],
    watched: Iterable[EngineOrigin],
    starting: Iterable[ProcessId],
) -> ProcessLook:
    """Called in a thread: /proc can be slow.

    `servers` run as far as is known, each with its processes on GPUs; those `known` are not read again.
    `watched` are looked at whether they live.
    """
    origins = {}
    for server_id, (server, gpu_pids) in servers.items():
        origin = known.get(server_id) or origin_of(server)
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
    unit, is_user_unit = unit_of(cgroup) if container is None else ("", False)
    return EngineOrigin(
        pid=server.pid,
        started=server.started,
        command=shown_command(server.argv),
        unit=unit,
        is_user_unit=is_user_unit,
        container=container.group(1) if container is not None else "",
        pod=pod if POD.fullmatch(pod) else "",
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
    """Work of servers between two looks."""
    works_by_id = {}
    for server_id, use in after.items():
        old = before.get(server_id)
        if old is None or use.at_s <= old.at_s:
            continue
        seconds = use.at_s - old.at_s
        works_by_id[server_id] = ServerWork(
            _rate(old.read_bytes, use.read_bytes, seconds), _rate(old.cpu_s, use.cpu_s, seconds)
        )
    return works_by_id


def _rate(before: float | None, after: float | None, seconds: float) -> float | None:
    if before is None or after is None or after < before:
        return None
    return (after - before) / seconds


def boot_id() -> str:
    """Tells this boot of the host from all others; empty where it is not told."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def pid_namespace() -> str:
    """Tells the pids that this process sees from those of a container; empty where it is not told."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _cgroup(pid: int) -> str:
    """Path in the unified hierarchy; of version 1 that of the first controller."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    paths = {}
    for line in lines:
        if line.count(":") >= 2:
            paths[line.split(":", 2)[0]] = line.split(":", 2)[2]
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
    read_bytes: list[float] = []
    cpu_s: list[float] = []
    for pid in {origin.pid, *origin.gpu_pids}:
        try:
            with Path(f"/proc/{pid}/io").open("rb") as file:
                counters = dict(
                    line.split(b": ", 1) for line in file.read(_MOST_COUNTERS_BYTES).splitlines() if b": " in line
                )
            read_bytes.append(float(counters[b"read_bytes"]))
        except (OSError, KeyError, ValueError):
            pass
        try:
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
            cpu_s.append((int(fields[11]) + int(fields[12])) / TICKS_PER_S)
        except (OSError, IndexError, ValueError):
            pass
    return Use(time.monotonic(), sum(read_bytes) if read_bytes else None, sum(cpu_s) if cpu_s else None)

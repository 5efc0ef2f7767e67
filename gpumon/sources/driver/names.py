"""Processes that a driver lists, as /proc has them: name, user, command line, container and pod."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.readings.missing import NOT_EXPOSED, WARMING_UP, Reading
from gpumon.sources.discovery.command_line import shown_command
from gpumon.sources.driver.container_names import CONTAINER_NAMES, ContainerNames

_CONTAINER = re.compile(r"^(?:.*[/-])?([0-9a-f]{64})(?:\.scope)?(?:/|$)", re.MULTILINE)
"""The innermost container's id in a cgroup path (Docker, containerd, CRI-O, Podman); what runs in it may have cgroups
of its own below (Podman's `container`, systemd's `init.scope`)."""
_POD = re.compile(r"kubepods[^\n]*?[/-]pod([0-9a-f][0-9a-f_-]{30,34}[0-9a-f])(?:\.slice)?(?:/|$)", re.MULTILINE)
"""A pod's uid in a cgroup path of Kubernetes: systemd's slices write its dashes as underscores."""
_JOB = re.compile(r"/job_(\d{1,12})(?:/|$)", re.MULTILINE)
"""A job in a cgroup path of Slurm."""
_NAMESPACE = "root/var/run/secrets/kubernetes.io/serviceaccount/namespace"
_COMMAND_CHARACTERS = 513
"""One more than is shown, so that what is cut is marked as such."""


class _Look(NamedTuple):
    """A process as /proc has it; empty texts where it says nothing to this user."""

    name: str = ""
    user: str = ""
    container: str = ""
    command: str = ""
    pod: str = ""
    pod_name: str = ""
    job: str = ""
    cpu_ratio: Reading = NOT_EXPOSED
    """1 is one core."""
    rss_bytes: Reading = NOT_EXPOSED
    started_s: float = 0.0
    children_cpu_ratio: Reading = NOT_EXPOSED
    """CPU of its child processes and their descendants: compilers, mostly."""
    container_name: str = ""
    """Name of its container, where Docker tells it to this user."""


_MOST_READ: Final = 1 << 16
"""Bytes of a file of /proc that are read: more than the kernel gives at once of any of these."""
MOST_CHILDREN: Final = 64
"""Processes below one that are looked at."""


class ProcessNames:
    """Processes as /proc has them; looked up once per pid and round."""

    def __init__(self, containers: ContainerNames = CONTAINER_NAMES) -> None:
        self._containers = containers
        self._known: dict[int, _Look] = {}
        self._places: dict[tuple[int, float], tuple[str, str]] = {}
        """Pod's name and Slurm job of a process (pid, start): they do not change."""
        self._commands: dict[int, tuple[int, str]] = {}
        """Hash of a process's command line, by pid, and how that is shown. The line itself, which may hold a secret, is
        not kept."""
        self._cpu: dict[tuple[int, str], tuple[float, float]] = {}
        """When a process (pid, `own` or `children`) was looked up last, and how long it had been on a core by then."""
        self._round_s = 0.0

    def of(self, pid: int, round_s: float) -> _Look:
        """The process as it is now; `round_s` is the time of the tick, within which nothing is asked twice."""
        if round_s != self._round_s:
            self._cpu = {key: sample for key, sample in self._cpu.items() if key[0] in self._known}
            self._places = {key: place for key, place in self._places.items() if key[0] in self._known}
            self._commands = {pid: command for pid, command in self._commands.items() if pid in self._known}
            self._known.clear()
            self._round_s = round_s
        if pid not in self._known:
            self._known[pid] = self._look_up(pid)
        return self._known[pid]

    def _look_up(self, pid: int) -> _Look:
        """A pid that /proc does not have is the host's, seen from inside a container: it is named as such."""
        import psutil

        try:
            process = psutil.Process(pid)
            name = process.name()
        except psutil.NoSuchProcess:
            return _Look(f"{pid} (host)")
        except (psutil.Error, OSError, ValueError):
            return _Look()
        user = ""
        command = ""
        container = ""
        container_name = ""
        pod = ""
        job = ""
        cpu: Reading = NOT_EXPOSED
        children_cpu: Reading = NOT_EXPOSED
        rss: Reading = NOT_EXPOSED
        started_s = 0.0
        with process.oneshot():
            with contextlib.suppress(psutil.Error, OSError, ValueError, KeyError):
                user = process.username()
            with contextlib.suppress(psutil.Error, OSError, ValueError):
                command = self._command_of(pid, process.cmdline())
            with contextlib.suppress(psutil.Error, OSError, ValueError):
                started_s = process.create_time()
                rss = float(process.memory_info().rss)
                times = process.cpu_times()
                cpu = self._cpu_of(pid, "own", times.user + times.system)
                ended_s = times.children_user + times.children_system
                children_cpu = self._cpu_of(pid, "children", ended_s + _running_children_s(pid))
        with contextlib.suppress(OSError):
            text = _read(f"/proc/{pid}/cgroup")
            (container, pod) = groups(text)
            container_name = self._containers.of(text)
            matched = _JOB.search(text)
            job = ""
            if matched:
                job = matched.group(1)
        key = (pid, started_s)
        if key not in self._places:
            self._places[key] = pod_and_job(pid, in_pod=bool(pod))
        pod_name, other = self._places[key]
        texts = (_encodable(name), _encodable(user), container, _encodable(command, _COMMAND_CHARACTERS), pod)
        return _Look(*texts, pod_name, job or other, cpu, rss, started_s, children_cpu, container_name)

    def _command_of(self, pid: int, argv: Sequence[str]) -> str:
        """A command line as everybody may read it, worked out anew once it is another one."""
        hashed = hash(tuple(argv))
        known = self._commands.get(pid)
        if known is None or known[0] != hashed:
            known = (hashed, shown_command(argv))
            self._commands[pid] = known
        return known[1]

    def _cpu_of(self, pid: int, whose: str, used_s: float) -> Reading:
        """Share of one core since the round before."""
        now_s = time.monotonic()
        at_s, before_s = self._cpu.get((pid, whose), (0.0, 0.0))
        self._cpu[pid, whose] = (now_s, used_s)
        if at_s and now_s > at_s and used_s >= before_s:
            return (used_s - before_s) / (now_s - at_s)
        return WARMING_UP


def _running_children_s(pid: int) -> float:
    """CPU seconds of the processes below one, ended children of theirs included; what cannot be read is left out."""
    total_s = 0.0
    left = _children(pid)
    for _ in range(MOST_CHILDREN):
        if not left:
            break
        child = left.pop()
        total_s += _cpu_s(child)
        left += _children(child)
    return total_s


def _children(pid: int) -> list[int]:
    """The processes that the main thread of one has started; none where the kernel does not list them."""
    try:
        children = []
        for word in _read(f"/proc/{pid}/task/{pid}/children").split():
            children.append(int(word))
        return children
    except (OSError, ValueError):
        return []


def _cpu_s(pid: int) -> float:
    """CPU seconds of a process and of its children that have ended: fields 14 to 17 of /proc/PID/stat (proc(5))."""
    try:
        fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return 0.0


def _read(path: str) -> str:
    """A short file of /proc, read every few seconds: pathlib would take three times as long. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _MOST_READ).decode("utf-8", "replace")
    finally:
        os.close(descriptor)


def pod_and_job(pid: int, *, in_pod: bool) -> tuple[str, str]:
    """`namespace/name` of the pod and the Slurm job, where this user may read them; nothing else of the environment is
    kept. What lies in the process's own root is its user's: a link there leads no further than that user may read."""
    try:
        with Path(f"/proc/{pid}/environ").open("rb") as stream:
            pairs = (part.decode(errors="replace").partition("=") for part in stream.read(1 << 18).split(b"\0"))
            known = {name: value for name, _, value in pairs if name in ("HOSTNAME", "POD_NAME", "SLURM_JOB_ID")}
    except OSError:
        known = {}
    name = ""
    if in_pod:
        name = known.get("POD_NAME") or known.get("HOSTNAME", "")
    with contextlib.suppress(OSError, ValueError):
        if name:
            # No other process of a GPU needs it, and the worker would load sockets and JSON with it.
            from gpumon.sources.model_files import open_file, reader_of

            with open_file(Path(f"/proc/{pid}/{_NAMESPACE}"), reader_of(pid)) as file:
                name = f"{file.read(64).decode('utf-8', 'replace').strip()}/{name}"
    return _encodable(name), _encodable(known.get("SLURM_JOB_ID", ""), 32)


def groups(text: str) -> tuple[str, str]:
    """Short container id and pod uid of a process, from its /proc/PID/cgroup; empty where it is in none."""
    container = _CONTAINER.search(text)
    pod = _POD.search(text)
    return container.group(1)[:12] if container else "", pod.group(1).replace("_", "-") if pod else ""


def _encodable(text: str, most: int = 256) -> str:
    """/proc gives any bytes; what is no UTF-8 becomes a question mark. Cut to `most` characters."""
    return text[:most].encode("utf-8", "replace").decode()

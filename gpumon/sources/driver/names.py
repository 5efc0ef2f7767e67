"""Processes that a driver lists, as /proc has them: name, user, command line, container and pod."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.readings.frame import GpuProcess
from gpumon.readings.missing import NOT_EXPOSED, WARMING_UP, Reading, number
from gpumon.sources.discovery.shown_command import shown_command
from gpumon.sources.driver.container_names import CONTAINER_NAMES, ContainerNames

HOST_NAMESPACE: Final = "pid:[4026531836]"
"""Link of the first pid namespace (PROC_PID_INIT_INO of include/linux/proc_ns.h): a container sees its own alone."""
CONTAINER: Final = re.compile(r"^(?:.*[/-])?([0-9a-f]{64})(?:\.scope)?(?:/|$)", re.MULTILINE)
"""The innermost container's id in a cgroup path (Docker, containerd, CRI-O, Podman); what runs in it may have cgroups
of its own below (Podman's `container`, systemd's `init.scope`)."""
_MANAGER: Final = re.compile(r"/user@(\d{1,10})\.service(?:/|$)")
"""The cgroup that systemd gives to a user, with his number: what lies below has the names that he gave it."""
_POD = re.compile(r"kubepods[^\n]*?[/-]pod([0-9a-f][0-9a-f_-]{30,34}[0-9a-f])(?:\.slice)?(?:/|$)", re.MULTILINE)
"""A pod's uid in a cgroup path of Kubernetes: systemd's slices write its dashes as underscores."""
_JOB = re.compile(r"/job_(\d{1,12})(?:/|$)", re.MULTILINE)
"""A job in a cgroup path of Slurm."""
_NAMESPACE = "root/var/run/secrets/kubernetes.io/serviceaccount/namespace"
"""File below /proc/PID with the namespace of the pod that a process is in."""
_COMMAND_CHARACTERS = 513
"""Characters of a command line that are kept: one more than is shown, so that what is cut is marked as such."""
_MOST_NAMESPACE_BYTES = 64
"""Bytes that are read of a pod's namespace: its name is a DNS label, of 63 at most (RFC 1123)."""
_MOST_JOB_CHARACTERS = 32
"""Characters that are kept of the number of a Slurm job."""
_CONTAINER_CHARACTERS = 12
"""Characters of a container's id that are kept, as `docker ps` shows it."""


def in_own_namespace(proc: Path = Path("/proc")) -> bool:
    """Whether this process is in another pid namespace than the first one, as in a container."""
    try:
        return str((proc / "self" / "ns" / "pid").readlink()) != HOST_NAMESPACE
    except OSError:
        return False


class ProcessFacts(NamedTuple):
    """Facts of a process as /proc tells them; empty texts where it says nothing to this user."""

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


_PLACE_VARIABLES: Final = ("HOSTNAME", "POD_NAME", "SLURM_JOB_ID")
_MOST_READ: Final = 1 << 16
"""Bytes of a file of /proc that are read: more than the kernel gives at once of any of these."""
_MOST_ENVIRONMENT: Final = 1 << 18
"""Bytes of a process's environment that are read: Kubernetes puts a variable for each service into it."""
MOST_CHILDREN: Final = 64
"""Processes below one that are looked at."""


class ProcessNames:
    """Processes as /proc has them; looked up once per pid and round."""

    def __init__(self, containers: ContainerNames = CONTAINER_NAMES) -> None:
        self._containers = containers
        self._facts: dict[int, ProcessFacts] = {}
        self._places: dict[tuple[int, float], tuple[str, str]] = {}
        """Pid and start of a process -> its pod's name and its Slurm job, which do not change."""
        self._commands: dict[int, tuple[int, str]] = {}
        """Pid -> hash of the process's command line, and how that is shown.

        The line itself, which may hold a secret, is not kept."""
        self._cpu: dict[tuple[int, str], tuple[float, float]] = {}
        """Pid, and `own` or `children` -> when that was looked up last (monotonic), and its seconds of CPU by then."""
        self._round_s = 0.0

    def of(self, pid: int, round_s: float) -> ProcessFacts:
        """The process as it is now; `round_s` is the time of the tick, within which nothing is asked twice."""
        if round_s != self._round_s:
            self._cpu = {key: sample for key, sample in self._cpu.items() if key[0] in self._facts}
            self._places = {key: place for key, place in self._places.items() if key[0] in self._facts}
            self._commands = {pid: command for pid, command in self._commands.items() if pid in self._facts}
            self._facts.clear()
            self._round_s = round_s
        if pid not in self._facts:
            self._facts[pid] = self._look_up(pid)
        return self._facts[pid]

    def _look_up(self, pid: int) -> ProcessFacts:
        """Read the facts of a process.

        A pid that /proc does not have is the host's, seen from inside a container, and is named as such.
        """
        import psutil

        try:
            process = psutil.Process(pid)
            name = process.name()
        except psutil.NoSuchProcess:
            return ProcessFacts(f"{pid} (host)")
        except (psutil.Error, OSError, ValueError):
            return ProcessFacts()
        facts = ProcessFacts(name=_encodable(name))
        with process.oneshot():
            # Each group on its own: what this user may not read is left out.
            with contextlib.suppress(psutil.Error, OSError, ValueError, KeyError):
                facts = facts._replace(user=_encodable(process.username()))
            with contextlib.suppress(psutil.Error, OSError, ValueError):
                command = self._shown_command(pid, process.cmdline())
                facts = facts._replace(command=_encodable(command, _COMMAND_CHARACTERS))
            with contextlib.suppress(psutil.Error, OSError, ValueError):
                facts = facts._replace(started_s=process.create_time())
                facts = facts._replace(rss_bytes=float(process.memory_info().rss))
                times = process.cpu_times()
                facts = facts._replace(cpu_ratio=self._cpu_ratio(pid, "own", times.user + times.system))
                children_s = times.children_user + times.children_system + _running_children_s(pid)
                facts = facts._replace(children_cpu_ratio=self._cpu_ratio(pid, "children", children_s))
        job = ""
        with contextlib.suppress(OSError):
            cgroup = _read(f"/proc/{pid}/cgroup")
            container, pod = container_and_pod(cgroup)
            container_name = self._containers.of(cgroup) if container else ""
            facts = facts._replace(container=container, pod=pod, container_name=container_name)
            job_match = _JOB.search(cgroup)
            if job_match:
                job = job_match.group(1)
        process_id = (pid, facts.started_s)
        if process_id not in self._places:
            self._places[process_id] = pod_and_job(pid, in_pod=bool(facts.pod))
        pod_name, job_of_environment = self._places[process_id]
        return facts._replace(pod_name=pod_name, job=job or job_of_environment)

    def _shown_command(self, pid: int, argv: Sequence[str]) -> str:
        """A command line as everybody may read it, worked out anew once it is another one."""
        hashed = hash(tuple(argv))
        last_hashed, shown = self._commands.get(pid, (0, ""))
        if pid not in self._commands or last_hashed != hashed:
            shown = shown_command(argv)
            self._commands[pid] = (hashed, shown)
        return shown

    def _cpu_ratio(self, pid: int, whose: str, used_s: float) -> Reading:
        """Share of one core since the last round; `used_s`: how long it has been on a core so far."""
        now_s = time.monotonic()
        last_s, last_used_s = self._cpu.get((pid, whose), (0.0, 0.0))
        self._cpu[pid, whose] = (now_s, used_s)
        if last_s and now_s > last_s and used_s >= last_used_s:
            return (used_s - last_used_s) / (now_s - last_s)
        return WARMING_UP


def _running_children_s(pid: int) -> float:
    """CPU seconds of the processes below one, ended children of theirs included; what cannot be read is left out."""
    total_s = 0.0
    unread = _children(pid)
    for _ in range(MOST_CHILDREN):
        if not unread:
            break
        child = unread.pop()
        total_s += _cpu_s(child)
        unread += _children(child)
    return total_s


def _children(pid: int) -> list[int]:
    """The processes that the main thread of one has started; none where the kernel does not list them."""
    try:
        return [int(word) for word in _read(f"/proc/{pid}/task/{pid}/children").split()]
    except (OSError, ValueError):
        return []


def _cpu_s(pid: int) -> float:
    """CPU seconds of a process and of its children that have ended: fields 14 to 17 of /proc/PID/stat (proc(5))."""
    try:
        # Behind the name in parentheses, which may hold anything, field 3 is the first.
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
    """`namespace/name` of the pod of a process, and its Slurm job; empty where this user may not read them.

    What lies in the process's own root is its user's: a link there leads no further than that user may read.
    """
    variables = _place_variables(pid)
    name = ""
    if in_pod:
        name = variables.get("POD_NAME") or variables.get("HOSTNAME", "")
    with contextlib.suppress(OSError, ValueError):
        if name:
            # Only pods need it, and the worker would load sockets and JSON with it.
            from gpumon.sources.checked_open import open_file
            from gpumon.sources.reading_user import reader_of

            with open_file(Path(f"/proc/{pid}/{_NAMESPACE}"), reader_of(pid)) as file:
                name = f"{file.read(_MOST_NAMESPACE_BYTES).decode('utf-8', 'replace').strip()}/{name}"
    return _encodable(name), _encodable(variables.get("SLURM_JOB_ID", ""), _MOST_JOB_CHARACTERS)


def _place_variables(pid: int) -> dict[str, str]:
    """The variables of a process that name its pod or job; nothing else of its environment is kept."""
    try:
        with Path(f"/proc/{pid}/environ").open("rb") as stream:
            parts = stream.read(_MOST_ENVIRONMENT).split(b"\0")
    except OSError:
        return {}
    variables = (part.decode(errors="replace").partition("=") for part in parts)
    return {name: value for name, _, value in variables if name in _PLACE_VARIABLES}


def largest_first(process: GpuProcess) -> tuple[float, int]:
    """Sort key of a GPU's processes: by their memory, those of unknown memory last, and then by pid."""
    return -(number(process.vram_bytes) or 0.0), process.pid


def container_and_pod(text: str) -> tuple[str, str]:
    """Short container id and pod uid of a process, from its /proc/PID/cgroup; empty where it is in none.

    Also where another user chose the names of its cgroups: he could have somebody's container shown, and restarted.
    """
    container = ""
    container_match = CONTAINER.search(text)
    if container_match and not is_of_other_user(container_match[0]):
        container = container_match.group(1)[:_CONTAINER_CHARACTERS]
    pod = ""
    pod_match = _POD.search(text)
    if pod_match and not is_of_other_user(text[: pod_match.end()].rpartition("\n")[2]):
        pod = pod_match.group(1).replace("_", "-")
    return container, pod


def is_of_other_user(cgroup: str) -> bool:
    """Whether a cgroup lies in what systemd has given to another user than gpumon's."""
    return any(int(uid) != os.geteuid() for uid in _MANAGER.findall(cgroup))


def _encodable(text: str, most: int = 256) -> str:
    """The text cut to `most` characters. /proc gives any bytes: what is no UTF-8 becomes a question mark."""
    return text[:most].encode("utf-8", "replace").decode()

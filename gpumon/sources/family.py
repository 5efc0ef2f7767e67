"""Processes of this host as /proc tells them: one process, its ancestors and descendants, a GPU process's family."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

CLIMBS: Final = 3
"""Generations that are climbed from a listening worker to the main process of its server."""
_MOST_ANCESTORS: Final = 64
"""Generations of a process that are looked at: no server has so many, and /proc may change under the climb."""
INIT_PID: Final = 1
_ENDED_STATES: Final = (b"Z", b"X")
"""States of a process that has ended: zombie and dead."""
HOST_INITS: Final = frozenset({"systemd", "init"})
"""Names of a host's first process, which is left out: it is everybody's ancestor and holds other processes' sockets.
The first process of a container is often the very server."""
MOST_ARGUMENTS_BYTES: Final = 64 * 1024
"""Bytes of a command line that are read."""
MOST_VARIABLES_BYTES: Final = 256 * 1024
"""Bytes of an environment that are read."""
NEW_LOOKS: Final = 2
"""Looks at which a process counts as new: one that was just forked still has the command line of its parent."""
_WORKER_MARKS: Final = ("multiprocessing.spawn", "multiprocessing.forkserver", "::")
"""Parts of the command line of a process that a server started as a part of itself (such as `VLLM::EngineCore`)."""


class ProcessRecord(NamedTuple):
    """One process. Its texts come from outside, and its arguments may hold secrets: they are never shown whole."""

    pid: int
    parent: int
    started: int
    """Clock ticks from boot to its start: tells it from a later process with the same pid."""
    name: str
    """At most 15 characters (`comm`)."""
    argv: tuple[str, ...]
    """Its arguments, or the title that it gave itself; empty for a kernel thread and a zombie."""
    uid: int
    """Effective user."""
    session: int = 0
    """The pid that leads its session; 0: one outside of this PID namespace."""

    def __repr__(self) -> str:
        return f"Process({self.pid})"


def read_process(pid: int) -> ProcessRecord | None:
    """The process, or None where /proc has none of that pid. Fields by proc_pid_stat(5) and proc_pid_status(5)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes().decode("utf-8", "replace")
        status = Path(f"/proc/{pid}/status").read_bytes()
        with Path(f"/proc/{pid}/cmdline").open("rb") as file:
            command = file.read(MOST_ARGUMENTS_BYTES)
    except OSError:
        return None
    name, _, rest = stat.partition("(")[2].rpartition(")")  # the name may have parentheses itself
    fields = rest.split()  # from the third of the file on: the state is fields[0]
    uids = next((line.split() for line in status.splitlines() if line.startswith(b"Uid:")), [])
    argv = tuple(word for word in command.decode("utf-8", "replace").split("\0") if word)
    if len(uids) > 2:  # `Uid:`, the real one, the effective one, ...
        uid = int(uids[2])
    else:
        uid = -1
    return ProcessRecord(
        pid=pid,
        parent=int(fields[1]),
        started=int(fields[19]),
        name=name,
        argv=argv,
        uid=uid,
        session=int(fields[3]),
    )


def is_alive(server: ProcessRecord) -> bool:
    """Whether that very process is still there."""
    try:
        stat = Path(f"/proc/{server.pid}/stat").read_bytes()
    except OSError:
        return False
    fields = stat.rpartition(b")")[2].split()
    return fields[0] not in _ENDED_STATES and int(fields[19]) == server.started


class ReadOnce(dict[int, ProcessRecord | None]):
    """Processes by pid, each read when it is first asked for. It lives for one look: a process may change."""

    def __missing__(self, pid: int) -> ProcessRecord | None:
        record = read_process(pid)
        self[pid] = record
        return record


def ancestry(pid: int, read: ReadOnce | None = None) -> tuple[ProcessRecord, ...]:
    """The process and its ancestors, the nearest first, a host's init left out; empty where /proc does not have it."""
    if read is None:
        read = ReadOnce()
    line: list[ProcessRecord] = []
    while pid > 0 and len(line) < _MOST_ANCESTORS:
        record = read[pid]
        if record is None:
            break
        if pid == INIT_PID and record.name in HOST_INITS:
            break
        if line and _is_adopted(line[-1], record):
            break
        line.append(record)
        pid = record.parent
    return tuple(line)


def _is_adopted(child: ProcessRecord, parent: ProcessRecord) -> bool:
    """Whether init is the parent of this process only because the one that started it has ended."""
    return parent.pid == INIT_PID and child.session != parent.session


def all_pids() -> list[int]:
    """The pids of all processes that this PID namespace shows."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


class NewPids:
    """Tells which processes are new, a look with each call. For a thread, one call at a time."""

    def __init__(self) -> None:
        self._looks: dict[int, int] = {}
        """Pid -> looks that gave it."""

    def look(self) -> list[int]:
        """Pids that fewer than `NEW_LOOKS` looks have given so far."""
        looks = {}
        new = []
        for pid in all_pids():
            before = self._looks.get(pid, 0)
            looks[pid] = min(before + 1, NEW_LOOKS)
            if before < NEW_LOOKS:
                new.append(pid)
        self._looks = looks
        return new


def children_by_parent() -> dict[int, list[int]]:
    """Parent -> its children, of all processes of the host: not for every tick."""
    children: dict[int, list[int]] = {}
    for pid in all_pids():
        with contextlib.suppress(OSError, IndexError, ValueError):
            stat = Path(f"/proc/{pid}/stat").read_bytes()
            parent = int(stat.rpartition(b")")[2].split()[1])
            children.setdefault(parent, []).append(pid)
    return children


def descendants(pid: int, children: Mapping[int, Sequence[int]] | None = None) -> frozenset[int]:
    """The pids of all descendants of a process, by `children_by_parent`, which is called where it is not given."""
    if children is None:
        children = children_by_parent()
    pids: set[int] = set()
    unvisited = [pid]
    while unvisited:
        for child in children.get(unvisited.pop(), ()):
            if child not in pids:
                pids.add(child)
                unvisited.append(child)
    return frozenset(pids)


class ProcessFamily:
    """The processes on the GPUs and their ancestors."""

    def __init__(self, gpu_pids: Iterable[int]) -> None:
        self._read = ReadOnce()
        self.chains = {pid: ancestry(pid, self._read) for pid in gpu_pids}
        """GPU process -> itself and its ancestors, the nearest first; empty where /proc does not have it."""
        self.members = frozenset(member.pid for member in chain.from_iterable(self.chains.values()))

    def gpu_processes_of(self, pids: Collection[int]) -> frozenset[int]:
        """The GPU processes among `pids` and their descendants; else those of the server that `pids` are workers of.

        A server with several API processes listens in children that are siblings of the one that holds the GPU.
        """
        for _ in range(CLIMBS):
            owned = frozenset(pid for pid in self.chains if self._leads_to(pid, pids))
            if owned or not pids:
                return owned
            pids = frozenset(server_process(pid, self._read) for pid in pids) - {0}
        return frozenset()

    def _leads_to(self, gpu_pid: int, pids: Collection[int]) -> bool:
        """Whether a GPU process or an ancestor of it is among `pids`."""
        return any(member.pid in pids for member in self.chains[gpu_pid])


def server_process(pid: int, read: ReadOnce | None = None) -> int:
    """The pid of the server that a process is a worker of, or 0.

    It is the parent, if that runs the same program and forked the worker or started it by multiprocessing.
    """
    if read is None:
        read = ReadOnce()
    worker = read[pid]
    if worker is None or worker.parent <= 0:
        return 0
    parent = read[worker.parent]
    if parent is None or _is_adopted(worker, parent) or executable_path(pid) != executable_path(parent.pid):
        return 0
    command = "\0".join(worker.argv)
    is_marked = any(mark in command for mark in _WORKER_MARKS)
    if is_marked or worker.argv == parent.argv:
        return parent.pid
    return 0


def executable_path(pid: int) -> str:
    """Path of the program that a process runs; empty where Linux hides it from this user."""
    try:
        return str(Path(f"/proc/{pid}/exe").readlink())
    except OSError:
        return ""


def variables_of(pid: int, names: Collection[str]) -> dict[str, str] | None:
    """The variables of these names that are set and not empty; None where Linux hides them from this user."""
    return matching_variables(pid, names.__contains__)


def matching_variables(pid: int, is_wanted: Callable[[str], bool]) -> dict[str, str] | None:
    """The variables that are set and not empty, of the names that are wanted; None where Linux hides them."""
    try:
        with Path(f"/proc/{pid}/environ").open("rb") as file:
            text = file.read(MOST_VARIABLES_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
    variables = (entry.partition("=") for entry in text.split("\0"))
    return {name: value for name, _, value in variables if value and is_wanted(name)}

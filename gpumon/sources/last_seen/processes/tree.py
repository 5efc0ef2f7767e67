"""Processes of an engine: which of its tree it cannot serve without, what they are called, and whether they go on."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.readings.frame import EngineKind, PartState
from gpumon.readings.text import clean
from gpumon.sources.discovery.command_line import launch
from gpumon.sources.discovery.coreless import CORES
from gpumon.sources.family import ProcessRecord, descendants, read_process
from gpumon.sources.last_seen.records import ProcessId, ProcessPart

GPU_PROCESS: Final = "GPU process"
"""Role of a process on a GPU that has no title of its own."""
_FRONT: Final = "API server"
"""Role of a server that hands its requests to other processes of its own."""
_ALONE: Final = "server"
"""Role of a server that does everything itself."""
_ROLES: Final = {"EngineCore": "engine core", "APIServer": "API server", "DPCoordinator": "DP coordinator"}
"""Names in titles that are words of no language."""
_RANK: Final = re.compile(r"[A-Z]{2,4}\d{1,5}|\d{1,5}")
"""A rank, or a number, in a title: `TP0`."""
_MOST_ROLE: Final = 40
"""Characters of a role."""
_GPU_WORKER_KINDS: Final = frozenset(
    {
        EngineKind.VLLM,
        EngineKind.SGLANG,
        EngineKind.APHRODITE,
        EngineKind.TGI,
        EngineKind.TENSORRT_LLM,
        EngineKind.LMDEPLOY,
        EngineKind.FASTDEPLOY,
    }
)
"""Engines whose processes on GPUs live as long as the server: others start and end them with each model."""
_SETTLED_S: Final = 60.0
"""Seconds for which a process without a title is on a GPU of a server that listens until it counts as a part of it: a
helper that tunes kernels is gone by then."""
_STATES: Final = {
    b"T": PartState.STOPPED,
    b"t": PartState.TRACED,
    b"D": PartState.UNINTERRUPTIBLE,
}
"""Letters of proc_pid_stat(5) that say that a process does nothing."""
_ENDED: Final = frozenset({b"Z", b"X"})
_EXITING: Final = 0x4
"""PF_EXITING of linux/sched.h, in the flags of proc_pid_stat(5)."""
_LOOK_S: Final = 10.0
"""Seconds between two looks at the threads of a process: an engine has hundreds, and each is a file to read. Those that
read a disk are caught in state D now and then, but not the same one from look to look."""
_MOST_THREADS: Final = 1024
"""Threads of a process that are looked at."""


class PartsScan:
    """Looks through the trees of servers. For a thread, one call at a time."""

    def __init__(self) -> None:
        self._seen_s: dict[ProcessId, float] = {}
        """Process on a GPU without a title -> when it was first seen (monotonic)."""
        self.threads = ThreadsScan()
        """Looks at the threads of their processes."""

    def parts(
        self,
        server: ProcessRecord,
        kind: EngineKind,
        gpu_pids: Collection[int],
        children: Mapping[int, Sequence[int]],
        now_s: float,
    ) -> tuple[ProcessPart, ...]:
        """The processes without which a server serves nobody, itself first; `children` as of `children_by_parent`."""
        parts = []
        for pid in sorted(descendants(server.pid, children)):
            record = read_process(pid)
            if record is None or part_state((pid, record.started)) is PartState.GONE:
                continue
            role = role_of(record)
            if not role and pid in gpu_pids and kind in _GPU_WORKER_KINDS and self._is_settled(record, now_s):
                role = GPU_PROCESS
            if role:
                parts.append(ProcessPart(role, pid, record.started))
        own_role = _FRONT if parts or kind in CORES else _ALONE
        return (ProcessPart(own_role, server.pid, server.started), *parts)

    def forget_others(self, pids: Collection[int]) -> None:
        """Forget the processes that are on no GPU any more."""
        self._seen_s = {key: seen_s for key, seen_s in self._seen_s.items() if key[0] in pids}

    def _is_settled(self, record: ProcessRecord, now_s: float) -> bool:
        """Whether a process without a title has been on a GPU for long enough."""
        return now_s - self._seen_s.setdefault((record.pid, record.started), now_s) >= _SETTLED_S


def role_of(process: ProcessRecord) -> str:
    """The role that a process of an engine gives itself as its title; empty where it has none."""
    started = launch(process.argv)
    if started is None or not started.part or not process.argv:
        return ""
    title = process.argv[0].split(" ")[0].partition("::")[2]
    words = title.split("_")
    ranks = [word for word in words[1:] if _RANK.fullmatch(word)]
    names = [word for word in words if word not in ranks]
    name = _ROLES.get("_".join(names), " ".join(names))
    if name == "Worker":
        name = "worker"
    return clean(" ".join((name, *ranks)), _MOST_ROLE)


def merge_parts(
    remembered: Iterable[ProcessPart], living: Sequence[ProcessPart], ended: Collection[ProcessId]
) -> tuple[ProcessPart, ...]:
    """The parts that live, and those remembered that are gone and that no new one has taken the place of."""
    remembered = tuple(remembered)
    living = _without_stand_ins(living, remembered, ended)
    living_ids = {part.id for part in living}
    new_roles = [part.role for part in living if part not in remembered]
    missing = []
    for part in remembered:
        if part.id in living_ids:
            continue
        if part.id in ended and part.role in new_roles:
            new_roles.remove(part.role)
        else:
            missing.append(part)
    return (*living, *missing)


def _without_stand_ins(
    living: Iterable[ProcessPart], remembered: Iterable[ProcessPart], ended: Collection[ProcessId]
) -> tuple[ProcessPart, ...]:
    """The parts that live, without a core that was never seen (no pid) where the one that it stands for was."""
    gone_roles = {part.role for part in remembered if part.pid and part.id in ended}
    return tuple(part for part in living if part.pid or part.role not in gone_roles)


def has_ended(process_id: ProcessId) -> bool:
    """Whether that very process is gone; one that its parent has not waited for is, too."""
    return part_state(process_id) is PartState.GONE


def is_exiting(process_id: ProcessId) -> bool:
    """Whether that process has ended, or the kernel is taking it down: its ports are closed, and its memory is not
    free yet."""
    pid, started = process_id
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return True
    return int(fields[19]) != started or fields[0] in _ENDED or bool(int(fields[6]) & _EXITING)


def part_state(process_id: ProcessId) -> PartState:
    """Condition of that very process; `RUNS`, too, where Linux hides it: what cannot be seen is not gone."""
    pid, started = process_id
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return PartState.GONE
    except OSError:
        return PartState.RUNS
    fields = stat.rpartition(b")")[2].split()
    if int(fields[19]) != started:
        return PartState.GONE
    # A first thread that has ended is a zombie, too, while other threads of its process go on.
    if fields[0] in _ENDED and int(fields[17]) <= 1:
        return PartState.GONE
    return _STATES.get(fields[0], PartState.RUNS)


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

"""Servers that listen though the process that would answer is gone: no process of theirs is on a GPU any more."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from gpumon.readings.frame import EngineKind
from gpumon.sources.discovery.command_line import launch, option_key
from gpumon.sources.discovery.servers import EngineProcess, server_in
from gpumon.sources.family import (
    NewPids,
    ProcessRecord,
    ancestry,
    children_by_parent,
    descendants,
    is_alive,
    read_process,
    variables_of,
)

CORES: Final[Mapping[EngineKind, str]] = {
    EngineKind.VLLM: "engine core",
    EngineKind.APHRODITE: "engine core",
    EngineKind.SGLANG: "scheduler",
}
"""Engines whose server opens its port once its core is ready, and never computes itself: the role of that core."""
_CORE_MARKS: Final = ("::EngineCore", "::Worker", "::scheduler", "multiprocessing.spawn", "multiprocessing.forkserver")
"""Parts of the command line of a core, or of a process that may be one under another title."""
_TRACKER: Final = "multiprocessing.resource_tracker"
_CORE_ELSEWHERE: Final = {
    "--headless": None,
    "--data-parallel-size-local": "0",
    "-dpl": "0",
    "--data-parallel-backend": "ray",
    "-dpb": "ray",
    "--disable-frontend-multiprocessing": None,
}
"""Options of a server whose core is no process below it -> the value that says so; None: any."""
_IN_ONE: Final = "VLLM_ENABLE_V1_MULTIPROCESSING"
"""Variable that puts a core into the server's own process."""
_CHOSEN_GPUS: Final = "CUDA_VISIBLE_DEVICES"
_UUID_PREFIXES: Final = ("GPU-", "MIG-")


class CorelessServers:
    """Finds them, a look with each call. For a thread, one call at a time."""

    def __init__(self) -> None:
        self._new = NewPids()
        self._servers: dict[int, EngineProcess] = {}
        """Servers of engines with a core, by pid."""

    def find(self, with_gpus: Iterable[int], uuids: Collection[str]) -> list[EngineProcess]:
        """Servers without a core on the GPUs of these UUIDs; `with_gpus`: pids of those with processes on GPUs."""
        for pid in self._new.look():
            self._read(pid)
        known = set(with_gpus)
        suspects = []
        for pid, server in list(self._servers.items()):
            if not is_alive(server.process):
                del self._servers[pid]
            elif pid not in known and not _is_of_other_gpus(pid, uuids):
                suspects.append(server)
        if not suspects:
            return []
        children = children_by_parent()
        return [server for server in suspects if _has_lost_core(server.process, children)]

    def _read(self, pid: int) -> None:
        """Note the server that a process is, if it is one with a core."""
        self._servers.pop(pid, None)
        process = read_process(pid)
        if process is None:
            return
        started = launch(process.argv)
        if started is None or started.part or started.kind not in CORES:
            return
        server = server_in(ancestry(pid))
        if server is not None and server.process.pid == pid and not _is_core_elsewhere(server.process):
            self._servers[pid] = server


def _has_lost_core(server: ProcessRecord, children: Mapping[int, Sequence[int]]) -> bool:
    """Whether a server had processes of its own, and none of those that are left is its core, or may be one.

    A zombie that it has not waited for, or the tracker that Python starts beside a first child, tells of such.
    """
    had_children = False
    for pid in descendants(server.pid, children):
        process = read_process(pid)
        if process is None:
            continue
        if not is_alive(process):
            had_children = True
            continue
        command = " ".join(process.argv)
        if process.argv == server.argv or any(mark in command for mark in _CORE_MARKS):
            return False
        had_children = had_children or _TRACKER in command
    return had_children


def _is_of_other_gpus(pid: int, uuids: Collection[str]) -> bool:
    """Whether a server was given GPUs by UUID, and none of them is here: a job or a container sees some of a host's
    GPUs, and maybe all of its processes. CUDA takes the first characters of a UUID, too."""
    chosen = (variables_of(pid, {_CHOSEN_GPUS}) or {}).get(_CHOSEN_GPUS, "")
    names = [name.strip() for name in chosen.split(",") if name.strip()]
    if not names or not all(name.startswith(_UUID_PREFIXES) for name in names):
        return False
    return not any(uuid.startswith(name) for name in names for uuid in uuids)


def _is_core_elsewhere(server: ProcessRecord) -> bool:
    """Whether its command line or its environment says that its core is no process below it."""
    words = list(server.argv)
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        key = option_key(name)
        if key not in _CORE_ELSEWHERE:
            continue
        if not equals and index + 1 < len(words):
            value = words[index + 1]
        if _CORE_ELSEWHERE[key] in (None, value):
            return True
    variables = variables_of(server.pid, {_IN_ONE})
    return variables is not None and variables.get(_IN_ONE) == "0"

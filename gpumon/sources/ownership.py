"""On which GPUs of this host an endpoint runs: its listening process, that one's family, and the GPUs they hold."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.config.ownership import user_name
from gpumon.readings.frame import GpuReading
from gpumon.readings.text import clean
from gpumon.sources.family import ProcessFamily, all_pids
from gpumon.sources.held_gpus import HeldGpus
from gpumon.sources.sockets import Listener, LocalAddress, Locator, find_listeners, reached, socket_holders

_SEARCH_AGAIN_S = 10.0
"""Seconds before the holder of a socket that nobody was seen to hold is looked for again."""
SET_GPUS = "set gpus = [..] for this endpoint in the config"
OWNED = "process"
"""How GPUs are known that an engine's processes hold, as in `EngineReading.gpus_source`."""


class _Owner(NamedTuple):
    """GPU processes that belong to an endpoint."""

    pids: frozenset[int]
    text: str
    """Why it is on no GPU, where these processes hold none."""
    server: int = 0
    """The process that listens; 0: not known."""


_NOT_LOOKED: Final = _Owner(frozenset(), "")


class Ownership:
    """Answers from what was found last: `look` belongs into a thread, as sockets and /proc can be slow or hang."""

    def __init__(self) -> None:
        self._seen_owners: dict[str, _Owner] = {}
        """URL -> what the last look found."""
        self._told_owners: dict[str, _Owner] = {}
        """URL -> what discovery told (`tell`): it knows better than the look."""
        self._locate = Locator()
        self._held: dict[str, HeldGpus] = {}
        """URL -> the GPUs on which the endpoint's processes were seen last."""
        self._holders: dict[LocalAddress, tuple[tuple[Listener, ...], frozenset[int], float]] = {}
        """Address -> its sockets when it was looked at last, their holders, and the moment of that look (monotonic)."""

    def tell(self, url: str, pids: frozenset[int]) -> None:
        """Note the GPU processes of the server at `url`, as discovery knows them; none: they are looked for again."""
        self._told_owners.pop(url, None)
        if pids:
            self._told_owners[url] = _Owner(pids, "its processes are on no GPU right now")

    def forget(self, url: str) -> None:
        """Forget the server at `url`: nobody asks for it any more."""
        for memory in (self._told_owners, self._held, self._seen_owners):
            memory.pop(url, None)

    def gpus_of(self, url: str, gpus: tuple[GpuReading, ...]) -> tuple[tuple[str, ...], str]:
        """UUIDs of the GPUs that the server at `url` runs on and `process`; or none, and the reason. Never waits.

        The reason is empty until the first look is done.
        """
        owner = self._told_owners.get(url) or self._seen_owners.get(url) or _NOT_LOOKED
        before = self._held.get(url)
        if before is None:
            if not owner.pids:
                return (), owner.text
            before = HeldGpus()
        held = before.follow(owner.pids, owner.server, gpus, _is_alive)
        self._held[url] = held
        if held.by_gpu:
            return tuple(held.by_gpu), OWNED
        return (), held.left_text or owner.text

    def pids_of(self, url: str) -> frozenset[int]:
        """The GPU processes of the server at `url`, as far as they are known by now. Never waits."""
        owner = self._told_owners.get(url) or self._seen_owners.get(url)
        if owner is None:
            return frozenset()
        return owner.pids

    def look(self, urls: Iterable[str], family: ProcessFamily) -> None:
        """Find the GPU processes of the servers at these URLs, in the family of all of them."""
        on_port: dict[int, list[Listener]] = {}
        for listener in find_listeners():
            on_port.setdefault(listener.port, []).append(listener)
        self._seen_owners = {url: self._find_owner(url, family, on_port) for url in urls}

    def _find_owner(self, url: str, family: ProcessFamily, on_port: Mapping[int, list[Listener]]) -> _Owner:
        """The GPU processes of the server at a URL, or why there are none."""
        place = self._locate(url)
        if isinstance(place, str):
            return _Owner(frozenset(), place)
        sockets = reached(place, on_port.get(place.port, ()))
        if not sockets:
            text = f"no process of this host listens on port {place.port}: it may be in a container; {SET_GPUS}"
            return _Owner(frozenset(), text)
        pids = self._holders_of(place, sockets, family)
        if not pids:
            return _Owner(frozenset(), _hidden_text(place.port, sockets))
        return _Owner(family.gpu_processes_of(pids), _no_gpu_text(place.port, min(pids)), min(pids))

    def _holders_of(self, place: LocalAddress, sockets: tuple[Listener, ...], family: ProcessFamily) -> frozenset[int]:
        """Processes that hold the sockets.

        Looking through all processes is dear: once per set of sockets, and again after a while where none was seen (a
        socket may be on its way from one process to another), or at once where all of them have ended.
        """
        last_sockets, pids, looked_s = self._holders.get(place, ((), frozenset(), 0.0))
        is_due = not pids and time.monotonic() - looked_s >= _SEARCH_AGAIN_S
        have_ended = bool(pids) and not any(map(_is_alive, pids))
        if last_sockets != sockets or is_due or have_ended:
            inodes = [listener.inode for listener in sockets]
            pids = socket_holders(inodes, family.members) or socket_holders(inodes, all_pids())
            self._holders[place] = (sockets, pids, time.monotonic())
        return pids


def _is_alive(pid: int) -> bool:
    """Whether there is a process of that pid."""
    return Path(f"/proc/{pid}").exists()


def _hidden_text(port: int, sockets: tuple[Listener, ...]) -> str:
    """Why a socket that is there has no process that can be seen."""
    uid = sockets[0].uid
    if os.geteuid() in (0, uid):
        return f"port {port} is served from outside this PID namespace, as by a container; {SET_GPUS}"
    return f"port {port} belongs to user {user_name(uid)}, and Linux hides other users' sockets; {SET_GPUS}"


def _no_gpu_text(port: int, pid: int) -> str:
    """Why a server whose process is known has no GPU."""
    try:
        name = clean(Path(f"/proc/{pid}/comm").read_text(errors="replace").strip(), 32)
    except OSError:
        name = "ended"
    return f"process {pid} ({name}) listens on port {port} but runs nothing on a GPU of this host; {SET_GPUS}"

"""On which GPUs of this host an endpoint runs: its listening process, that one's family, and the GPUs they hold."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.readings.frame import GpuReading
from gpumon.readings.text import clean
from gpumon.sources.family import ProcessFamily, all_pids, user_name
from gpumon.sources.held_gpus import HeldGpus
from gpumon.sources.sockets import Listener, LocalAddress, Locator, listening, reached, socket_holders

_AGAIN_S = 10.0
"""Seconds before the holder of a socket that nobody was seen to hold is looked for again."""
SET_GPUS = "set gpus = [..] for this endpoint in the config"
OWNED = "process"


class _Verdict(NamedTuple):
    """GPU processes that belong to an endpoint, and what to say where they hold no GPU."""

    pids: frozenset[int]
    text: str
    server: int = 0
    """The process that listens; 0: not known."""


_NOT_LOOKED: Final = _Verdict(frozenset(), "")


class Ownership:
    """Answers from what was found last: `look` belongs into a thread, as sockets and /proc can be slow or hang."""

    def __init__(self) -> None:
        self._verdicts: dict[str, _Verdict] = {}
        """By URL, from the last look."""
        self._told: dict[str, _Verdict] = {}
        """By URL, from one who knows better: it counts before the look."""
        self._locate = Locator()
        self._held: dict[str, HeldGpus] = {}
        """By URL: the GPUs on which the endpoint's processes were seen last."""
        self._holders: dict[LocalAddress, tuple[tuple[Listener, ...], frozenset[int], float]] = {}

    def tell(self, url: str, pids: frozenset[int]) -> None:
        """The GPU processes of the server at `url`, from one who knows better; none: they are looked for again."""
        self._told.pop(url, None)
        if pids:
            self._told[url] = _Verdict(pids, "its processes are on no GPU right now")

    def forget(self, url: str) -> None:
        """Nobody asks for the server at `url` any more."""
        for memory in (self._told, self._held, self._verdicts):
            memory.pop(url, None)

    def gpus_of(self, url: str, gpus: tuple[GpuReading, ...]) -> tuple[tuple[str, ...], str]:
        """UUIDs of the GPUs that the server at `url` runs on and `process`; or none, and the reason. Never waits.

        The reason is empty until the first look is done.
        """
        verdict = self._told.get(url) or self._verdicts.get(url) or _NOT_LOOKED
        before = self._held.get(url)
        if before is None:
            if not verdict.pids:
                return (), verdict.text
            before = HeldGpus()
        held = before.follow(verdict.pids, verdict.server, gpus, _is_alive)
        self._held[url] = held
        if held.by_gpu:
            return tuple(held.by_gpu), OWNED
        return (), held.left_text or verdict.text

    def pids_of(self, url: str) -> frozenset[int]:
        """The GPU processes of the server at `url`, as far as they are known by now. Never waits."""
        verdict = self._told.get(url) or self._verdicts.get(url)
        if verdict is None:
            return frozenset()
        return verdict.pids

    def look(self, urls: Iterable[str], family: ProcessFamily) -> None:
        """Find the GPU processes of the servers at these URLs, in the family of all of them."""
        table = listening()
        on_port: dict[int, list[Listener]] = {}
        for listener in table:
            on_port.setdefault(listener.port, []).append(listener)
        self._verdicts = {url: self._verdict_of(url, family, on_port) for url in urls}

    def _verdict_of(self, url: str, family: ProcessFamily, on_port: Mapping[int, list[Listener]]) -> _Verdict:
        """The GPU processes of the server at a URL, or why there are none."""
        place = self._locate(url)
        if isinstance(place, str):
            return _Verdict(frozenset(), place)
        sockets = reached(place, on_port.get(place.port, ()))
        if not sockets:
            text = f"no process of this host listens on port {place.port}: it may be in a container; {SET_GPUS}"
            return _Verdict(frozenset(), text)
        pids = self._holders_of(place, sockets, family)
        if not pids:
            return _Verdict(frozenset(), _hidden_text(place.port, sockets))
        return _Verdict(family.gpu_processes_of(pids), _no_gpu_text(place.port, min(pids)), min(pids))

    def _holders_of(self, place: LocalAddress, sockets: tuple[Listener, ...], family: ProcessFamily) -> frozenset[int]:
        """Processes that hold the sockets.

        Looking through all processes is dear: once per set of sockets, and again after a while where none was seen (a
        socket may be on its way from one process to another), or at once where all of them have ended.
        """
        last_sockets, pids, looked_s = self._holders.get(place, ((), frozenset(), 0.0))
        is_due = not pids and time.monotonic() - looked_s >= _AGAIN_S
        have_ended = bool(pids) and not any(map(_is_alive, pids))
        if last_sockets != sockets or is_due or have_ended:
            inodes = [listener.inode for listener in sockets]
            pids = socket_holders(inodes, family.members) or socket_holders(inodes, all_pids())
            self._holders[place] = (sockets, pids, time.monotonic())
        return pids


def _is_alive(pid: int) -> bool:
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

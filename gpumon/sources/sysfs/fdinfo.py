"""Processes that have a GPU open, with their memory and time on it: /proc/PID/fdinfo of those that this user may read.

Keys and units are those of Documentation/gpu/drm-usage-stats.rst (Linux 6.12): memory in bytes, KiB or MiB, engine time
in ns, cycles of an engine beside the cycles that have passed. `drm-client-id` tells open files of one client apart from
those of another; it is unique within a device. amdgpu writes `drm-memory-vram`, xe `drm-resident-vram0` and i915
`drm-resident-local0`.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading
from gpumon.sources.sysfs.files import read_text
from gpumon.sources.sysfs.rates import FIRST_READING

_PROC: Final = Path("/proc")
NODES: Final = ("/dev/dri/render", "/dev/dri/card")
"""Beginnings of the device nodes of graphics cards."""
HOST_NAMESPACE: Final = "pid:[4026531836]"
"""Link of the first pid namespace (PROC_PID_INIT_INO of include/linux/proc_ns.h): a container sees its own alone."""
ALL_S: Final = 60.0
"""Between two looks at the open files of all processes: /proc has a link for each."""
YOUNG_S: Final = 60.0
"""A process is looked at each time for so long after it was first seen: an engine opens its GPU after its imports."""
_MOST_FILES: Final = 65536
"""Open files that one look reads the links of."""
_MEMORY: Final = (
    re.compile(r"drm-resident-(?:vram|local)\d*"),
    re.compile(r"drm-memory-(?:vram|local)\d*"),
    re.compile(r"drm-total-(?:vram|local)\d*"),
)
"""Keys of memory on the card, best first; a card with several tiles has one for each."""
_UNITS: Final = {"": 1.0, "B": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}
_TIME: Final = re.compile(r"drm-engine-(?!capacity-)(\S+)")
_CYCLES: Final = re.compile(r"drm-cycles-(\S+)")


class ClientUsage(NamedTuple):
    """Memory and busy share of one process on one GPU, summed over its clients."""

    vram_bytes: Reading = NOT_EXPOSED
    engine_ratio: Reading = NOT_EXPOSED
    """Share of time of its busiest engine since the look before; user queues of ROCm are not in it."""


class _Client(NamedTuple):
    """One open file of a GPU."""

    slot: str
    client: str
    vram_bytes: Reading
    engines: tuple[tuple[str, float, float], ...]
    """(engine, busy, passed): ns and 0, or cycles and cycles that have passed; both by the engine's capacity."""


class OpenProcesses(NamedTuple):
    """The processes with open GPUs at one moment."""

    at_s: float
    usage: dict[str, dict[int, ClientUsage]]
    """PCI address -> pid -> usage."""
    is_whole: bool
    """Whether every process of the host is among them."""


class FdinfoClients:
    """Looks at the processes' open files; shared by the GPUs of a host, which are read in threads of their own."""

    def __init__(self, proc: Path = _PROC, *, is_root: bool | None = None) -> None:
        """`is_root`: nothing is hidden from this user by the way in which /proc is mounted; None: ask the kernel."""
        self._proc = proc
        self._is_root = os.geteuid() == 0 if is_root is None else is_root
        self._lock = threading.Lock()
        self._look = OpenProcesses(float("-inf"), {}, is_whole=False)
        self._all_due_s = float("-inf")
        self._first_seen: dict[int, float] = {}
        self._holders: set[int] = set()
        self._unread: set[int] = set()
        self._engines: dict[tuple[str, str, str], tuple[float, float, float]] = {}
        """Busy and passed time of an engine of a client (slot, client, engine), and when they were read."""

    def look(self, now_s: float, every_s: float) -> OpenProcesses:
        """The newest look, at most `every_s` old."""
        with self._lock:
            if now_s - self._look.at_s >= every_s:
                self._look = self._look_again(now_s)
            return self._look

    def _look_again(self, now_s: float) -> OpenProcesses:
        """Look at the open files of the processes that are due."""
        pids = self._due(now_s)
        files_left = _MOST_FILES
        clients: dict[tuple[str, str], tuple[int, _Client, float]] = {}
        for pid in pids:
            files = self._files(pid, files_left)
            files_left -= len(files)
            holds = False
            for path in files:
                client = _client_of(path)
                if client is not None:
                    holds = True
                    clients.setdefault((client.slot, client.client), (pid, client, time.monotonic()))
            if holds:
                self._holders.add(pid)
            else:
                self._holders.discard(pid)
        is_host = _link(str(self._proc / "self" / "ns" / "pid")) == HOST_NAMESPACE
        return OpenProcesses(
            now_s, self._sum_by_process(clients), is_whole=self._is_root and is_host and not self._unread
        )

    def _due(self, now_s: float) -> list[int]:
        """Processes to look at: known holders and young ones; each minute all."""
        running = set(_pids(self._proc))
        self._holders &= running
        self._unread &= running
        self._first_seen = {pid: seen_s for pid, seen_s in self._first_seen.items() if pid in running}
        is_all = now_s >= self._all_due_s
        if is_all:
            self._all_due_s = now_s + ALL_S
        due = []
        for pid in sorted(running):
            seen_s = self._first_seen.setdefault(pid, now_s)
            if is_all or pid in self._holders or now_s - seen_s < YOUNG_S:
                due.append(pid)
        return due

    def _files(self, pid: int, most: int) -> list[Path]:
        """The fdinfo of a process's files that are nodes of graphics cards."""
        folder = self._proc / str(pid)
        files = []
        try:
            with os.scandir(folder / "fd") as entries:
                for count, entry in enumerate(entries):
                    if count >= most:
                        break
                    if _link(entry.path).startswith(NODES):
                        files.append(folder / "fdinfo" / entry.name)
        except PermissionError:
            self._unread.add(pid)
            return []
        except OSError:
            return []
        self._unread.discard(pid)
        return files

    def _sum_by_process(
        self, clients: dict[tuple[str, str], tuple[int, _Client, float]]
    ) -> dict[str, dict[int, ClientUsage]]:
        """Usage by GPU and process; a client that two processes share counts for the first."""
        usage: dict[str, dict[int, ClientUsage]] = {}
        newest: dict[tuple[str, str, str], tuple[float, float, float]] = {}
        busy: dict[tuple[str, int, str], Reading] = {}
        for pid, client, at_s in clients.values():
            of_gpu = usage.setdefault(client.slot, {})
            of_gpu[pid] = ClientUsage(_plus(of_gpu.get(pid, ClientUsage()).vram_bytes, client.vram_bytes))
            for engine, spent, passed in client.engines:
                key = (client.slot, client.client, engine)
                newest[key] = (spent, passed, at_s)
                share = _share(self._engines.get(key), newest[key])
                place = (client.slot, pid, engine)
                busy[place] = _at_most_all(_plus(busy.get(place, NOT_EXPOSED), share))
        self._engines = newest
        for (slot, pid, _), share in busy.items():
            of_process = usage[slot][pid]
            usage[slot][pid] = of_process._replace(engine_ratio=_largest(of_process.engine_ratio, share))
        return usage


def _pids(proc: Path) -> Iterator[int]:
    """The pids of all processes that this PID namespace shows."""
    try:
        names = os.listdir(proc)  # noqa: PTH208 - a Path for each process is not needed
    except OSError:
        return
    for name in names:
        if name.isdecimal():
            yield int(name)


def _link(path: str) -> str:
    """Target of a link; empty where it cannot be read."""
    try:
        return os.readlink(path)  # noqa: PTH115 - a Path for each open file costs more than the call
    except OSError:
        return ""


def _client_of(path: Path) -> _Client | None:
    """The client of an open file; None where it has none, or is closed by now."""
    try:
        text = read_text(path)
    except OSError:
        return None
    values: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon and key.startswith("drm-"):
            values[key.strip()] = value.strip()
    slot = values.get("drm-pdev", "").lower()
    if not slot or "drm-client-id" not in values:
        return None
    return _Client(slot, values["drm-client-id"], _memory_bytes(values), tuple(_engines(values)))


def _memory_bytes(values: dict[str, str]) -> Reading:
    """Memory on the card, by the best key that there is."""
    for pattern in _MEMORY:
        amounts = [_amount(value) for key, value in values.items() if pattern.fullmatch(key)]
        known = [amount for amount in amounts if amount is not None]
        if known:
            return sum(known)
    return NOT_EXPOSED


def _amount(text: str) -> float | None:
    """`23992 KiB` in bytes; None where it is no amount."""
    number, _, unit = text.partition(" ")
    factor = _UNITS.get(unit.strip())
    if factor is None or not number.isdecimal():
        return None
    return int(number) * factor


def _engines(values: dict[str, str]) -> Iterator[tuple[str, float, float]]:
    """Name, time or cycles spent, and cycles passed (0 for times) of each engine."""
    for key, value in values.items():
        time_of = _TIME.fullmatch(key)
        cycles_of = _CYCLES.fullmatch(key)
        spent = value.partition(" ")[0]
        if not spent.isdecimal():
            continue
        if time_of is not None:
            yield time_of[1], int(spent) * 1e-9 / _capacity(values, time_of[1]), 0.0
        elif cycles_of is not None:
            passed = values.get(f"drm-total-cycles-{cycles_of[1]}", "")
            if passed.isdecimal():
                yield cycles_of[1], int(spent) / _capacity(values, cycles_of[1]), float(passed)


def _capacity(values: dict[str, str], engine: str) -> int:
    """Number of alike engines that the counter of `engine` stands for."""
    text = values.get(f"drm-engine-capacity-{engine}", "")
    if text.isdecimal() and int(text) > 0:
        return int(text)
    return 1


def _share(before: tuple[float, float, float] | None, after: tuple[float, float, float]) -> Reading:
    """Share of time between two readings of an engine's (spent, passed, at)."""
    if before is None:
        return FIRST_READING
    passed = after[1] - before[1]
    if after[1] == 0.0:
        passed = after[2] - before[2]
    spent = after[0] - before[0]
    if passed <= 0.0 or spent < 0.0:  # the kernel may step back for a moment, and catches up
        return FIRST_READING
    return min(1.0, spent / passed)


def _plus(first: Reading, second: Reading) -> Reading:
    """Sum; one that is missing is left out."""
    if isinstance(first, Missing):
        return second
    if isinstance(second, Missing):
        return first
    return first + second


def _at_most_all(share: Reading) -> Reading:
    """A sum of shares of one engine: its parts are not read at the same time, so that it may come to more than all."""
    if isinstance(share, Missing):
        return share
    return min(1.0, share)


def _largest(first: Reading, second: Reading) -> Reading:
    if isinstance(first, Missing):
        return second
    if isinstance(second, Missing):
        return first
    return max(first, second)

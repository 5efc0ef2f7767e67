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
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading
from gpumon.sources.driver.names import HOST_NAMESPACE
from gpumon.sources.sysfs.files import read_text
from gpumon.sources.sysfs.rates import FIRST_READING

_PROC: Final = Path("/proc")
NODES: Final = ("/dev/dri/render", "/dev/dri/card")
"""Beginnings of the device nodes of graphics cards."""
ALL_S: Final = 60.0
"""Seconds between two looks at the open files of all processes: /proc has a link for each."""
YOUNG_S: Final = 60.0
"""Seconds for which a new process is looked at each time: an engine opens its GPU only after its imports."""
_MOST_FILES: Final = 65536
"""Open files that one look reads the links of."""
_MEMORY_KEYS: Final = (
    re.compile(r"drm-resident-(?:vram|local)\d*"),
    re.compile(r"drm-memory-(?:vram|local)\d*"),
    re.compile(r"drm-total-(?:vram|local)\d*"),
)
"""Keys of memory on the card, best first; a card with several tiles has one for each."""
_UNITS: Final = {"": 1.0, "B": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}
"""Unit of an amount -> its bytes."""
_TIME_KEY: Final = re.compile(r"drm-engine-(?!capacity-)(\S+)")
"""Key of an engine's time, with the name of the engine."""
_CYCLES_KEY: Final = re.compile(r"drm-cycles-(\S+)")
"""Key of an engine's cycles, with the name of the engine."""


class ClientUsage(NamedTuple):
    """Memory and busy share of one process on one GPU, summed over its clients."""

    vram_bytes: Reading = NOT_EXPOSED
    engine_ratio: Reading = NOT_EXPOSED
    """Share of time of its busiest engine since the look before; user queues of ROCm are not in it."""


class _EngineWork(NamedTuple):
    """Counters of one engine of a GPU for one client."""

    engine: str
    """Name, such as `gfx` or `ccs`."""
    spent: float
    """Seconds or cycles of work, divided by the number of alike engines."""
    passed: float
    """Cycles that have passed; 0 where `spent` is a time."""


class _Client(NamedTuple):
    """One open file of a GPU."""

    slot: str
    """PCI address."""
    client_id: str
    vram_bytes: Reading
    works: tuple[_EngineWork, ...]


class _WorkSeen(NamedTuple):
    """Counters of an engine, and the monotonic time at which they were read."""

    work: _EngineWork
    at_s: float


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
        if is_root is None:
            is_root = os.geteuid() == 0
        self._proc = proc
        self._is_root = is_root
        self._lock = threading.Lock()
        self._look = OpenProcesses(float("-inf"), {}, is_whole=False)
        self._all_due_s = float("-inf")
        """When the next look at all processes is due."""
        self._first_seen: dict[int, float] = {}
        """pid -> when the process was first seen."""
        self._holders: set[int] = set()
        """Processes that had a GPU open at the last look."""
        self._unread: set[int] = set()
        """Processes whose files this user may not read."""
        self._works: dict[tuple[str, str, str], _WorkSeen] = {}
        """(slot, client id, engine) -> its counters at the last look."""

    def look(self, now_s: float, every_s: float) -> OpenProcesses:
        """The newest look; a new one where it is `every_s` old."""
        with self._lock:
            if now_s - self._look.at_s >= every_s:
                self._look = self._look_again(now_s)
            return self._look

    def _look_again(self, now_s: float) -> OpenProcesses:
        """Look at the open files of the processes that are due."""
        pids = self._due_pids(now_s)
        files_left = _MOST_FILES
        # Slot and id of a client -> the process that it was seen in first, itself, and when (monotonic).
        clients: dict[tuple[str, str], tuple[int, _Client, float]] = {}
        for pid in pids:
            files = self._gpu_files(pid, files_left)
            files_left -= len(files)
            holds_gpu = False
            for path in files:
                client = _read_client(path)
                if client is not None:
                    holds_gpu = True
                    # A client that several processes share, or have open twice, counts once.
                    clients.setdefault((client.slot, client.client_id), (pid, client, time.monotonic()))
            if holds_gpu:
                self._holders.add(pid)
            else:
                self._holders.discard(pid)
        sees_host = _link_target(str(self._proc / "self" / "ns" / "pid")) == HOST_NAMESPACE
        is_whole = self._is_root and sees_host and not self._unread
        return OpenProcesses(now_s, self._sum_by_process(clients.values()), is_whole)

    def _due_pids(self, now_s: float) -> list[int]:
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

    def _gpu_files(self, pid: int, most: int) -> list[Path]:
        """The fdinfo of a process's open files that are nodes of graphics cards; `most` open files are looked at."""
        folder = self._proc / str(pid)
        files = []
        try:
            with os.scandir(folder / "fd") as entries:
                for count, entry in enumerate(entries):
                    if count >= most:
                        break
                    if _link_target(entry.path).startswith(NODES):
                        files.append(folder / "fdinfo" / entry.name)
        except PermissionError:
            self._unread.add(pid)
            return []
        except OSError:
            return []
        self._unread.discard(pid)
        return files

    def _sum_by_process(self, clients: Iterable[tuple[int, _Client, float]]) -> dict[str, dict[int, ClientUsage]]:
        """Usage by GPU and process: memory of all clients, and the share of the engine that they keep busiest."""
        usage: dict[str, dict[int, ClientUsage]] = {}
        works: dict[tuple[str, str, str], _WorkSeen] = {}
        busy: dict[tuple[str, int, str], Reading] = {}
        for pid, client, at_s in clients:
            gpu_usage = usage.setdefault(client.slot, {})
            before = gpu_usage.get(pid, ClientUsage())
            gpu_usage[pid] = ClientUsage(_sum_known(before.vram_bytes, client.vram_bytes))
            for work in client.works:
                client_key = (client.slot, client.client_id, work.engine)
                works[client_key] = _WorkSeen(work, at_s)
                share = _busy_share(self._works.get(client_key), works[client_key])
                process_key = (client.slot, pid, work.engine)
                busy[process_key] = _at_most_all(_sum_known(busy.get(process_key, NOT_EXPOSED), share))
        self._works = works
        for (slot, pid, _), share in busy.items():
            process_usage = usage[slot][pid]
            engine_ratio = _largest_known(process_usage.engine_ratio, share)
            usage[slot][pid] = process_usage._replace(engine_ratio=engine_ratio)
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


def _link_target(path: str) -> str:
    """Target of a link; empty where it cannot be read."""
    try:
        return os.readlink(path)  # noqa: PTH115 - a Path for each open file costs more than the call
    except OSError:
        return ""


def _read_client(path: Path) -> _Client | None:
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
    return _Client(slot, values["drm-client-id"], _memory_bytes(values), tuple(_engine_works(values)))


def _memory_bytes(values: dict[str, str]) -> Reading:
    """Memory on the card, by the best key that there is."""
    for pattern in _MEMORY_KEYS:
        amounts = [_amount_bytes(value) for key, value in values.items() if pattern.fullmatch(key)]
        known = [amount for amount in amounts if amount is not None]
        if known:
            return sum(known)
    return NOT_EXPOSED


def _amount_bytes(text: str) -> float | None:
    """`23992 KiB` in bytes; None where it is no amount."""
    number, _, unit = text.partition(" ")
    factor = _UNITS.get(unit.strip())
    if factor is None or not number.isdecimal():
        return None
    return int(number) * factor


def _engine_works(values: dict[str, str]) -> Iterator[_EngineWork]:
    """Counters of each engine: a time in ns (amdgpu, i915), or cycles (xe)."""
    for key, value in values.items():
        time_key = _TIME_KEY.fullmatch(key)
        cycles_key = _CYCLES_KEY.fullmatch(key)
        spent = value.partition(" ")[0]
        if not spent.isdecimal():
            continue
        if time_key is not None:
            engine = time_key[1]
            yield _EngineWork(engine, int(spent) * 1e-9 / _capacity(values, engine), 0.0)
        elif cycles_key is not None:
            engine = cycles_key[1]
            passed = values.get(f"drm-total-cycles-{engine}", "")
            if passed.isdecimal():
                yield _EngineWork(engine, int(spent) / _capacity(values, engine), float(passed))


def _capacity(values: dict[str, str], engine: str) -> int:
    """Number of alike engines that the counter of `engine` stands for."""
    text = values.get(f"drm-engine-capacity-{engine}", "")
    if text.isdecimal() and int(text) > 0:
        return int(text)
    return 1


def _busy_share(before: _WorkSeen | None, after: _WorkSeen) -> Reading:
    """Share of time in which an engine worked between two readings."""
    if before is None:
        return FIRST_READING
    passed = after.at_s - before.at_s if after.work.passed == 0.0 else after.work.passed - before.work.passed
    spent = after.work.spent - before.work.spent
    if passed <= 0.0 or spent < 0.0:  # the kernel may step back for a moment, and catches up
        return FIRST_READING
    return min(1.0, spent / passed)


def _sum_known(first: Reading, second: Reading) -> Reading:
    """The sum of two figures; one that is missing is left out."""
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


def _largest_known(first: Reading, second: Reading) -> Reading:
    """The larger of two figures; one that is missing is left out."""
    if isinstance(first, Missing):
        return second
    if isinstance(second, Missing):
        return first
    return max(first, second)

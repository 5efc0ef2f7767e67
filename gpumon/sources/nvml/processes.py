"""Processes on a GPU: the driver's lists joined with names and users from /proc."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any, NamedTuple

import pynvml

from gpumon.readings.frame import GpuProcess
from gpumon.readings.missing import NOT_SUPPORTED, Missing, Reading, Reason
from gpumon.sources.discovery.command_line import shown_command
from gpumon.sources.nvml.calls import Calls

MOST = 256
"""Processes kept of one GPU."""
KEPT_S = 60.0
"""How long a list stands in for calls that fail: as long as the longest pause between them."""
_KINDS = ("Compute", "Graphics", "MPSCompute")
_TYPES = {"Compute": "compute", "Graphics": "graphics", "MPSCompute": "mps"}
_LISTS = {
    kind: tuple((name, name, ()) for name in (f"nvmlDeviceGet{kind}RunningProcesses{v}" for v in ("_v3", "_v2")))
    for kind in _KINDS
}
_NO_SAMPLE = Missing(Reason.IDLE, "no sample of this process in the last seconds")
_CONTAINER = re.compile(r"^(?:.*[/-])?([0-9a-f]{64})(?:\.scope)?(?:/|$)", re.MULTILINE)
"""The innermost container's id in a cgroup path (Docker, containerd, CRI-O, Podman); what runs in it may have cgroups
of its own below (Podman's `container`, systemd's `init.scope`)."""
_POD = re.compile(r"kubepods[^\n]*?[/-]pod([0-9a-f][0-9a-f_-]{30,34}[0-9a-f])(?:\.slice)?(?:/|$)", re.MULTILINE)
"""A pod's uid in a cgroup path of Kubernetes: systemd's slices write its dashes as underscores."""
_COMMAND_CHARACTERS = 512


class Look(NamedTuple):
    """What /proc says about a process; empty texts where it says nothing to this user."""

    name: str = ""
    user: str = ""
    container: str = ""
    command: str = ""
    pod: str = ""


class Names:
    """What /proc says about processes; looked up once per pid and round."""

    def __init__(self) -> None:
        self._known: dict[int, Look] = {}
        self._round_s = 0.0

    def of(self, pid: int, round_s: float) -> Look:
        """The process as it is now; `round_s` is the time of the tick, within which nothing is asked twice."""
        if round_s != self._round_s:
            self._known.clear()
            self._round_s = round_s
        found = self._known.get(pid)
        if found is None:
            found = self._known[pid] = _look_up(pid)
        return found


def _look_up(pid: int) -> Look:
    """A pid that /proc does not have is the host's, seen from inside a container: it is named as such."""
    import psutil

    try:
        process = psutil.Process(pid)
        name = process.name()
    except psutil.NoSuchProcess:
        return Look(f"{pid} (host)")
    except (psutil.Error, OSError, ValueError):
        return Look()
    try:
        user = process.username()
    except (psutil.Error, OSError, ValueError, KeyError):
        user = ""
    try:
        command = shown_command(process.cmdline())
    except (psutil.Error, OSError, ValueError):
        command = ""
    try:
        container, pod = groups(Path(f"/proc/{pid}/cgroup").read_text(errors="replace"))
    except OSError:
        container = pod = ""
    return Look(_encodable(name), _encodable(user), container, _encodable(command, _COMMAND_CHARACTERS), pod)


def groups(text: str) -> tuple[str, str]:
    """Short container id and pod uid of a process, from its /proc/PID/cgroup; empty where it is in none."""
    container, pod = _CONTAINER.search(text), _POD.search(text)
    return container.group(1)[:12] if container else "", pod.group(1).replace("_", "-") if pod else ""


def _encodable(text: str, most: int = 256) -> str:
    """/proc gives any bytes; what is no UTF-8 becomes a question mark. Cut to `most` characters."""
    return text[:most].encode("utf-8", "replace").decode()


def avoid_wrong_records(calls: Calls) -> None:
    """Leave the v3 lists alone on drivers 535.43 to 535.86, whose records are longer than everyone else's."""
    present = {name for name in ("ConfComputeMemSizeInfo", "RunningProcessDetailList") if _has(f"nvmlDeviceGet{name}")}
    if present == {"ConfComputeMemSizeInfo"}:
        for kind in _KINDS:
            calls.close(_LISTS[kind][0][0], NOT_SUPPORTED)


def _has(symbol: str) -> bool:
    return pynvml.nvmlLib is not None and hasattr(pynvml.nvmlLib, symbol)


class Processes:
    """The processes on one device."""

    def __init__(self, calls: Calls, handle: Any, names: Names, window_s: float) -> None:
        self._calls = calls
        self._handle = handle
        self._names = names
        self._window_s = window_s
        self._lists: dict[str, tuple[float, Any]] = {}

    def read(self) -> tuple[GpuProcess, ...]:
        """All of them, biggest first; the SM share is the newest sample of the last `window_s`."""
        found: dict[int, tuple[str, Reading]] = {}
        for kind in _KINDS:
            for record in self._records(kind):
                vram: Reading = NOT_SUPPORTED if record.usedGpuMemory is None else float(record.usedGpuMemory)
                if record.pid not in found or isinstance(found[record.pid][1], Missing):
                    found[record.pid] = (found[record.pid][0] if record.pid in found else _TYPES[kind], vram)
        if not found:
            return ()
        shares = _sm_shares(self._calls, self._handle, self._window_s)
        rows = []
        for pid, (kind, vram) in list(found.items())[:MOST]:
            look = self._names.of(pid, self._calls.now_s)
            share = shares if isinstance(shares, Missing) else shares.get(pid, _NO_SAMPLE)
            process = GpuProcess(
                pid, look.name, look.user, vram, look.container, share, kind, command=look.command, pod=look.pod
            )
            rows.append(process)
        rows.sort(key=lambda row: (0.0 if isinstance(row.vram_bytes, Missing) else -row.vram_bytes, row.pid))
        return tuple(rows)

    def _records(self, kind: str) -> Any:
        """The driver's list. A call that fails says nothing about the processes: the last list stands for a while."""
        records = self._calls.first(self._handle, _LISTS[kind])
        now_s = self._calls.now_s
        if not isinstance(records, Missing):
            self._lists[kind] = (now_s, records)
            return records
        since_s, kept = self._lists.get(kind, (0.0, ()))
        return kept if records.reason is Reason.ERROR and now_s - since_s <= KEPT_S else ()


def _sm_shares(calls: Calls, handle: Any, window_s: float) -> dict[int, float] | Missing:
    """SM share by pid. The driver's list also holds processes that are gone and values above 100 %: both are noise."""
    since_us = int((time.time() - window_s) * 1e6)
    samples = calls.read("nvmlDeviceGetProcessUtilization", "nvmlDeviceGetProcessUtilization", handle, since_us)
    if isinstance(samples, Missing):
        return {} if samples.reason is Reason.ERROR else samples
    newest: dict[int, tuple[int, float]] = {}
    for sample in samples:
        if sample.smUtil <= 100 and sample.timeStamp > max(since_us, newest.get(sample.pid, (0, 0.0))[0]):
            newest[sample.pid] = (sample.timeStamp, sample.smUtil / 100.0)
    return {pid: share for pid, (_, share) in newest.items()}

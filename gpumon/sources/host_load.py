"""Load of the machine's cores, disks and network, from the kernel's counters in /proc, which are read every 2 s."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from operator import sub
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.readings.missing import WARMING_UP, Missing, Reading, Reason

_LOOK_S: Final = 1.9
"""Seconds between two looks, so that every second tick of 1 s is one: /proc/stat grows with the number of cores."""
SECTOR: Final = 512
"""Bytes of a sector in /proc/diskstats, whatever size the disk's own sectors have."""
VIRTUAL: Final = ("loop", "ram", "zram", "dm-", "md", "sr", "fd")
"""Begins of names of block devices that are no disk, or that lie on a disk which is counted anyway."""
PRESSURES: Final = {
    "cpu_pressure_ratio": "cpu",
    "io_pressure_ratio": "io",
    "memory_pressure_ratio": "memory",
}
"""Field -> file in /proc/pressure."""
_STAT_COLUMNS: Final = 8
"""Columns of /proc/stat that are summed up: user, nice, system, idle, iowait, irq, softirq, steal. The two guest
columns that follow are part of `user` and `nice` already."""
_IDLE: Final = 3
"""Column of a core's idle time in /proc/stat."""
_IOWAIT: Final = 4
"""Column of a core's wait for disks in /proc/stat."""
_DISK_COLUMNS: Final = 13
"""Columns of /proc/diskstats that every kernel has: the third is the name, `_SECTORS_READ` and so on count from 0."""
_SECTORS_READ: Final = 5
_SECTORS_WRITTEN: Final = 9
_BUSY_MS: Final = 12
_NET_COLUMNS: Final = 9
"""Columns of /proc/net/dev up to the bytes sent; the first is the bytes received."""
_BYTES_SENT: Final = 8

# Fields of `HostReading` by where they are from.
CORES: Final = ("busiest_core_ratio", "iowait_ratio")
DISKS: Final = ("disk_read_bytes_per_s", "disk_write_bytes_per_s", "disk_busy_ratio")
NETWORK: Final = ("network_rx_bytes_per_s", "network_tx_bytes_per_s")
NO_PRESSURE: Final = Missing(Reason.NOT_SUPPORTED, "this kernel or container has no /proc/pressure (CONFIG_PSI, psi=1)")
NO_STAT: Final = Missing(Reason.NOT_SUPPORTED, "no /proc/stat here")
NO_DISK: Final = Missing(Reason.NOT_SUPPORTED, "no disk in /proc/diskstats")
NO_NETWORK: Final = Missing(Reason.NOT_SUPPORTED, "no interface but loopback in /proc/net/dev")

Rows = dict[str, tuple[float, ...]]
"""Counters by core, disk or interface."""


class _Look(NamedTuple):
    """The kernel's counters at one moment."""

    read_s: float
    """Monotonic time."""
    cores: Rows
    disks: Rows
    network: Rows


class HostLoad:
    """Reads the counters and keeps the figures of the last look; `proc` and `sys` are where the kernel shows them."""

    def __init__(self, proc: Path = Path("/proc"), sys: Path = Path("/sys"), look_s: float = _LOOK_S) -> None:
        self._stat = proc / "stat"
        self._diskstats = proc / "diskstats"
        self._net = proc / "net" / "dev"
        self._pressures = {field: proc / "pressure" / name for field, name in PRESSURES.items()}
        self._sys = sys
        self._look_s = look_s
        self._last: _Look | None = None
        self._figures: dict[str, Reading] = {}
        self._is_real: dict[str, bool] = {}
        """Name of a disk, or `net/` and that of an interface -> whether a device is behind it."""

    def figures(self) -> dict[str, Reading]:
        """The fields of `HostReading` on load; rates are means between the last two looks."""
        now_s = time.monotonic()
        if self._last is None or now_s - self._last.read_s >= self._look_s:
            look = _Look(now_s, self._cores(), self._disks(), self._network())
            self._figures = {
                **_core_figures(self._last, look),
                **_disk_figures(self._last, look),
                **_network_figures(self._last, look),
            }
            self._figures |= {field: _pressure(path) for field, path in self._pressures.items()}
            self._last = look
        return self._figures

    def _cores(self) -> Rows:
        """(idle, iowait, total) in ticks by core; `cpu` is the row of all cores together."""
        rows: Rows = {}
        for line in _lines(self._stat):
            if not line.startswith("cpu"):
                break
            name, *words = line.split()
            ticks = [float(word) for word in words[:_STAT_COLUMNS]]
            if len(ticks) > _IOWAIT:
                rows[name] = (ticks[_IDLE], ticks[_IOWAIT], sum(ticks))
        return rows

    def _disks(self) -> Rows:
        """(bytes read, bytes written, seconds with a request in flight) of whole disks."""
        rows: Rows = {}
        for line in _lines(self._diskstats):
            words = line.split()
            if len(words) < _DISK_COLUMNS or not self._is_disk(words[2]):
                continue
            read_bytes = float(words[_SECTORS_READ]) * SECTOR
            written_bytes = float(words[_SECTORS_WRITTEN]) * SECTOR
            rows[words[2]] = (read_bytes, written_bytes, float(words[_BUSY_MS]) * 1e-3)
        return rows

    def _is_disk(self, name: str) -> bool:
        """Whether a block device is a whole disk: partitions have no folder in /sys/block."""
        if name.startswith(VIRTUAL):
            return False
        return self._look_once(name, lambda: (self._sys / "block" / name).exists())

    def _network(self) -> Rows:
        """(bytes received, bytes sent) of the interfaces with a device; in a container, of all but loopback.

        A bridge or a bond has no device: its bytes are counted at the interfaces below it, once.
        """
        rows: Rows = {}
        for line in _lines(self._net):
            name, colon, rest = line.partition(":")
            words = rest.split()
            if colon and len(words) >= _NET_COLUMNS and name.strip() != "lo":
                rows[name.strip()] = (float(words[0]), float(words[_BYTES_SENT]))
        self._forget_interfaces(rows)
        real = {name: row for name, row in rows.items() if self._has_device(name)}
        return real or rows

    def _has_device(self, interface: str) -> bool:
        """Whether an interface is hardware; none is in a container."""
        return self._look_once(
            f"net/{interface}", lambda: (self._sys / "class" / "net" / interface / "device").exists()
        )

    def _forget_interfaces(self, present: Collection[str]) -> None:
        """Forget the interfaces that are gone: a container's end of a veth has a new name each time."""
        for name in list(self._is_real):
            if name.startswith("net/") and name.removeprefix("net/") not in present:
                del self._is_real[name]

    def _look_once(self, name: str, look: Callable[[], bool]) -> bool:
        """The result of the first look at a device: devices keep their kind."""
        if name not in self._is_real:
            self._is_real[name] = look()
        return self._is_real[name]


def _lines(path: Path) -> list[str]:
    """Lines of a file of the kernel; none where the file is absent or refused to this user or container."""
    try:
        with path.open("rb", buffering=0) as file:
            text: bytes = b"".join(iter(lambda: file.read(1 << 16), b""))
    except OSError:
        return []
    return text.decode("ascii", "replace").splitlines()


def _pressure(path: Path) -> Reading:
    """Share of the last ten seconds in which some task waited."""
    for line in _lines(path):
        word, _, rest = line.partition(" avg10=")
        if word == "some":
            return min(1.0, float(rest.split()[0]) / 100.0)
    return NO_PRESSURE


def _growth(before: Rows, after: Rows) -> Rows:
    """Growth of the counters of the rows that are in both; a row that fell (a device was replaced) is left out."""
    growth: Rows = {}
    for name, row in after.items():
        if name not in before:
            continue
        increase = tuple(map(sub, row, before[name]))
        if min(increase) >= 0.0:
            growth[name] = increase
    return growth


def _core_figures(before: _Look | None, after: _Look) -> dict[str, Reading]:
    """The busiest core, and the share of all in which a core waited for disks."""
    if not after.cores:
        return dict.fromkeys(CORES, NO_STAT)
    old: Rows = before.cores if before else {}
    # Not `_growth`: idle and iowait may step back by a little.
    rows = {name: tuple(map(sub, row, old[name])) for name, row in after.cores.items() if name in old}
    _, iowait_ticks, total_ticks = rows.pop("cpu", (0.0, 0.0, 0.0))
    busy_ratios = [1.0 - (idle + iowait) / total for idle, iowait, total in rows.values() if total > 0.0]
    figures: dict[str, Reading] = dict.fromkeys(CORES, WARMING_UP)
    if busy_ratios:
        figures["busiest_core_ratio"] = _clamp_ratio(max(busy_ratios))
    if total_ticks > 0.0:
        figures["iowait_ratio"] = _clamp_ratio(iowait_ticks / total_ticks)
    return figures


def _clamp_ratio(value: float) -> float:
    """The value, or the nearer of 0 and 1: the kernel's idle and iowait counters may step back by a little."""
    return min(1.0, max(0.0, value))


def _disk_figures(before: _Look | None, after: _Look) -> dict[str, Reading]:
    """Bytes/s of all disks, and the share of time in which the busiest one had a request in flight."""
    if not after.disks:
        return dict.fromkeys(DISKS, NO_DISK)
    if before:
        rows = _growth(before.disks, after.disks)
    else:
        rows = {}
    if before is None or not rows:
        return dict.fromkeys(DISKS, WARMING_UP)
    seconds = after.read_s - before.read_s
    read_bytes, written_bytes, busy_s = zip(*rows.values(), strict=True)
    return {
        "disk_read_bytes_per_s": sum(read_bytes) / seconds,
        "disk_write_bytes_per_s": sum(written_bytes) / seconds,
        "disk_busy_ratio": min(1.0, max(busy_s) / seconds),
    }


def _network_figures(before: _Look | None, after: _Look) -> dict[str, Reading]:
    """Bytes/s that all interfaces received and sent."""
    if not after.network:
        return dict.fromkeys(NETWORK, NO_NETWORK)
    if before:
        rows = _growth(before.network, after.network)
    else:
        rows = {}
    if before is None or not rows:
        return dict.fromkeys(NETWORK, WARMING_UP)
    seconds = after.read_s - before.read_s
    totals = map(sum, zip(*rows.values(), strict=True))
    return {field: total / seconds for field, total in zip(NETWORK, totals, strict=True)}

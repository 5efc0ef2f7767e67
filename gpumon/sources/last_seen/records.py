"""Record of an engine that served: its last reading, its process, and how it ended. Written as JSON."""

from __future__ import annotations

import os
from typing import Final

import msgspec

from gpumon.readings.frame import Departure, EngineReading, LastFigures

TICKS_PER_S: Final = float(os.sysconf("SC_CLK_TCK"))
SHOWN_AFTER_END_S: Final = 86400.0
"""Seconds for which an engine that ended, and a GPU that is not listed any more, are shown."""
SHOWN_AFTER_STOP_S: Final = 600.0
"""Seconds for which an engine is shown that somebody stopped (`Departure.planned`, by which `is_over` in causes.py
chooses between the two)."""
MOST_REMEMBERED_ENGINES: Final = 64
"""Engines that are remembered."""
ProcessId = tuple[int, int]
"""Pid and start in clock ticks since boot: tells a process from a later one with the same pid."""


class ProcessPart(msgspec.Struct, frozen=True):
    """One process of a server that served: the server itself, its core, each worker."""

    role: str
    """As `EnginePart.role`."""
    pid: int
    started: int
    """Its start in clock ticks since boot."""

    @property
    def id(self) -> ProcessId:
        """Pid and start, which tell it from every other process of this boot."""
        return self.pid, self.started


class EngineOrigin(msgspec.Struct, frozen=True):
    """The process that serves, and where it runs: read while it lives. Texts come from outside."""

    pid: int = 0
    """Main process of the server; 0: not known."""
    started: int = 0
    """Its start in clock ticks since boot."""
    gpu_pids: tuple[int, ...] = ()
    """Its processes on GPUs."""
    command: str = ""
    """Command line as `shown_command` gives it: without what may be a secret."""
    unit: str = ""
    """systemd unit; empty where it runs in none."""
    is_user_unit: bool = False
    """The unit belongs to the user's own systemd."""
    container: str = ""
    """Id of its container, 64 hexadecimal digits."""
    pod: str = ""
    """`namespace/name` of its pod."""
    output: str = ""
    """The file that its standard output goes to."""
    uid: int = -1
    """Effective user of the process; -1: not known."""
    cgroup: str = ""
    """Path of its cgroup below /sys/fs/cgroup."""
    oom_kills: int = -1
    """Processes of that cgroup that the kernel had killed for want of memory by then; -1: not known."""
    parts: tuple[ProcessPart, ...] = ()
    """Its processes without which it serves nobody, itself first; empty: its tree was not looked at."""
    relaunch: str = ""
    """Folder, variables and command line that started it, as a shell takes them, without what may be a secret."""
    runs_elsewhere: bool = False
    """Its file system is not that of this host: its command line says nothing of programs here."""

    @property
    def id(self) -> ProcessId:
        """Pid and start, which tell it from every other process of this boot."""
        return self.pid, self.started

    @property
    def started_s(self) -> float:
        """Its start in seconds since boot, time asleep included."""
        return self.started / TICKS_PER_S


NO_ORIGIN = EngineOrigin()


class KnownEngine(msgspec.Struct):
    """An engine that answered at least once."""

    reading: EngineReading
    """Its last good reading, without histograms."""
    served_wall_s: float
    """When it answered last (Unix time)."""
    begun_wall_s: float
    """When it answered first after it was not there, as far as that was seen."""
    busy_wall_s: float = 0.0
    """When a request ran or waited last; 0: never seen."""
    tells_load: bool = False
    """It tells how many requests run or wait."""
    figures: LastFigures = LastFigures()
    """Figures of its last answer."""
    origin: EngineOrigin = NO_ORIGIN
    departure: Departure | None = None
    """How it ended; None while it serves."""
    closed_wall_s: float = 0.0
    """Since when its port is closed while its process goes on (Unix time); 0: it is not, so far as that was seen."""
    place: str = ""
    """Place of the gpumon that saw it, as `place` of processes/origin.py gives it: elsewhere its pid is another
    process, and its port another port."""

    @property
    def changed_wall_s(self) -> float:
        """When it answered last, or ended (Unix time)."""
        if self.departure is None:
            return self.served_wall_s
        return max(self.served_wall_s, self.departure.wall_s)


class View(msgspec.Struct, frozen=True):
    """Limits of a process to some of the GPUs of its host, as far as its surroundings tell."""

    variables: dict[str, str] = {}
    """The variables that limit it -> their values."""
    nodes: tuple[str, ...] = ()
    """Device nodes of GPUs that it may open."""


class Listed(msgspec.Struct, frozen=True):
    """A GPU that was listed."""

    uuid: str
    index: int
    name: str
    source: str
    """As `GpuReading.source`."""
    listed_wall_s: float
    """When it was listed last (Unix time)."""
    bus_id: str = ""
    """PCI address as sysfs writes it; empty: not known."""
    had_device: bool = False
    """Whether sysfs showed its PCI device then."""


class Sight(msgspec.Struct):
    """GPUs that one run was shown by one way of asking, and that no later run was shown by the same."""

    asked: str
    """Source that was asked: the driver with its version, or the URL of an exporter and its name for the host."""
    pid: int
    """Process of that run."""
    count: int
    """GPUs that it was shown together."""
    view: View
    """The limits of that process."""
    gpus: list[Listed]


class WrittenMemory(msgspec.Struct):
    """Contents of the file."""

    version: int
    host: str
    boot: str
    """Id of the boot in which it was written: processes and GPUs of another one are gone."""
    engines: list[KnownEngine] = []
    sights: list[Sight] = []


def without_bulk(reading: EngineReading) -> EngineReading:
    """A reading as it is remembered: histograms and earlier readings are most of its size, and no page shows them."""
    ranks = tuple(msgspec.structs.replace(rank, histograms={}) for rank in reading.ranks)
    return msgspec.structs.replace(reading, ranks=ranks, earlier=(), fault="")

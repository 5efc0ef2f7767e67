"""State of the processes around the engines at a tick, as the memory of engines is given it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gpumon.readings.frame import PartState
from gpumon.sources.last_seen.records import EngineOrigin, ProcessId


class ServerWork(NamedTuple):
    """Work of a server's processes at a moment. None: not readable by this user."""

    read_bytes_per_s: float | None = None
    cpu_cores: float | None = None


class ProcessState(NamedTuple):
    """Known state of the engines' processes at a tick."""

    servers: Mapping[str, EngineOrigin] = {}
    """Servers that run now, by the URL at which they are polled."""
    listening: frozenset[str] = frozenset()
    """URLs of `servers` at which they listen."""
    ended: frozenset[ProcessId] = frozenset()
    """Processes that are gone."""
    states: Mapping[ProcessId, PartState] = {}
    """Condition of processes that do not go on: stopped, traced, frozen, in uninterruptible sleep, or gone."""
    closed: Mapping[ProcessId, int] = {}
    """Servers that have closed their port and go on -> connections to it that are still open."""
    restarts: Mapping[ProcessId, EngineOrigin] = {}
    """Servers that have ended -> the newest process of the same command, which may start it again."""
    works: Mapping[ProcessId, ServerWork] = {}
    """Work of servers that do not listen yet."""
    passing: frozenset[str] = frozenset()
    """URLs of servers that others start and end at will: the end of such a one is no event."""
    looks: bool = False
    """Whether servers of this host are looked for: then one that is remembered and not found has ended."""
    rebooted: bool = False
    """Whether this host was started anew since the memory was written."""
    slept_s: float = 0.0
    """Seconds for which this host slept since its boot: the start of a process counts them, the monotonic clock does
    not."""


class Tick(NamedTuple):
    """The moment of a tick, and what was seen around the engines by then."""

    processes: ProcessState
    wall_s: float
    """Unix time."""
    now_s: float
    """Monotonic time."""

"""Engines of which a process is gone or stands still while others live: noted over time, for their readings."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import msgspec

from gpumon.readings.frame import EndpointState, EnginePart, EngineReading, PartsReport, PartState
from gpumon.sources.last_seen.causes import command_of, restart_command, unfreeze_command
from gpumon.sources.last_seen.processes.process_state import Tick
from gpumon.sources.last_seen.records import EngineOrigin, ProcessId, ProcessPart

HELD_S: Final = {
    PartState.GONE: 30.0,
    PartState.STOPPED: 2.0,
    PartState.FROZEN: 2.0,
    PartState.TRACED: 20.0,
    PartState.UNINTERRUPTIBLE: 30.0,
    PartState.THREAD_UNINTERRUPTIBLE: 20.0,
}
"""Seconds for which a process must be seen in a state until it is told. An engine that ends as a whole, or that puts
another process in the place of one, takes less than 30; a debugger that saves stacks (py-spy, gcore) seconds; a disk
or a driver that is slow, too. A thread has waited for 10 s when it is seen to."""
FIRST_S: Final = 1.5
"""The same of a process that was so when this gpumon began: nobody knows since when, and two looks agree. Not of the
states that processes pass through: any that reads a disk waits for it at two looks now and then."""
_LASTING: Final = frozenset({PartState.GONE, PartState.STOPPED, PartState.FROZEN})
"""States that no process passes through."""
_BEGUN_S: Final = 15.0
"""Seconds after its first look in which a gpumon begins."""
_MOST_PARTS: Final = 16
"""Processes of one engine that are told."""
_ORDER: Final = list(PartState)

_Member = tuple[ProcessId, ProcessId]
"""A server, and a process of it: a core that was never seen has no id of its own."""


class _Since(NamedTuple):
    """The state of a process, and since when."""

    state: PartState
    now_s: float
    """Monotonic time."""
    wall_s: float
    """Unix time."""
    held_s: float
    """Seconds after which it is told."""


class PartsWatch:
    """Notes since when processes of engines are gone or stand still. Knows no clock and does no I/O."""

    def __init__(self) -> None:
        self._since: dict[_Member, _Since] = {}
        self._begun_s = math.inf
        """When it was asked first (monotonic)."""
        self._alive: set[_Member] = set()
        """Processes that this run has seen at work."""
        self._last: dict[str, tuple[EngineReading, PartsReport, EngineReading]] = {}
        """Key of an engine -> its last reading without and with the report: the same object while nothing changes."""
        self._met: set[_Member] = set()
        """Processes that were asked about at this tick."""

    def end_tick(self) -> None:
        """Forget the processes that nobody has asked about since the last call."""
        self._since = {key: since for key, since in self._since.items() if key in self._met}
        self._alive &= self._met
        self._met = set()

    def with_parts(
        self, reading: EngineReading, origin: EngineOrigin, gpus: tuple[str, ...], tick: Tick
    ) -> EngineReading:
        """The reading with its processes, if one of them is gone or stands still; else as it is.

        `gpus`: those that it ran on when it answered last.
        """
        report = self._report(reading, origin, tick)
        if report is None:
            self._last.pop(reading.key, None)
            return reading
        before = self._last.get(reading.key)
        if before is not None and before[0] is reading and before[1] == report:
            return before[2]
        shown = msgspec.structs.replace(reading, parts=report, gpus=reading.gpus or gpus)
        self._last[reading.key] = (reading, report, shown)
        return shown

    def _report(self, reading: EngineReading, origin: EngineOrigin, tick: Tick) -> PartsReport | None:
        """The processes of an engine; None where all of them are well, or it has ended as a whole."""
        if not origin.pid or reading.state is EndpointState.DOWN or origin.id in tick.processes.ended:
            return None
        processes = origin.parts or (ProcessPart("server", origin.pid, origin.started),)
        parts = list(filter(None, [self._part(process, origin.id, tick) for process in processes]))
        troubled = [part for part in parts if part.state is not PartState.RUNS]
        if not troubled:
            return None
        troubled.sort(key=lambda part: _ORDER.index(part.state))
        others = [part for part in parts if part.state is PartState.RUNS]
        return PartsReport(
            parts=(*troubled, *others)[:_MOST_PARTS],
            listens=reading.state is not EndpointState.REFUSED,
            restart=restart_command(origin),
            unfreeze=unfreeze_command(origin),
            command=command_of(origin),
        )

    def _part(self, process: ProcessPart, server: ProcessId, tick: Tick) -> EnginePart | None:
        """A process as it is told; None while it has not been in its state for long enough."""
        member = (server, process.id)
        self._met.add(member)
        self._begun_s = min(self._begun_s, tick.now_s)
        state = tick.processes.states.get(process.id, PartState.RUNS)
        if process.id in tick.processes.ended:
            state = PartState.GONE
        if state is PartState.RUNS:
            self._alive.add(member)
            self._since.pop(member, None)
            return EnginePart(process.role, process.pid)
        since = self._since.get(member)
        if since is None or since.state is not state:
            was_so = member not in self._alive and tick.now_s - self._begun_s < _BEGUN_S
            held_s = FIRST_S if was_so and state in _LASTING else HELD_S[state]
            since = _Since(state, tick.now_s, tick.wall_s, held_s)
            self._since[member] = since
        if tick.now_s - since.now_s < since.held_s:
            return None
        return EnginePart(process.role, process.pid, state, since.wall_s)

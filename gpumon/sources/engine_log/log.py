"""The log of one engine, as it is looked at: kept within bounds, masked, and read on from where it was left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from gpumon.readings.frame import EngineKind
from gpumon.readings.log_text import LogLine, LogReader, LogView, begins_record
from gpumon.sources.engine_log.follow import LogFollower, OneReadAtATime
from gpumon.sources.engine_log.places import LOGS
from gpumon.sources.engine_log.requests import EngineRequestsReader
from gpumon.sources.engine_log.tails import Added, first_record
from gpumon.sources.family import all_pids, read_process, server_process
from gpumon.sources.last_seen.processes.origin import origin_of
from gpumon.sources.last_seen.records import NO_ORIGIN, EngineOrigin
from gpumon.sources.sockets import LocalAddress, find_listeners, locate, reached, socket_holders

MOST_LOG_LINES: Final = 5000
"""Lines that are kept of a log."""


class EngineLogReader:
    """The log of an engine; `read` is called again and again while it is looked at."""

    def __init__(self, origin: Callable[[], EngineOrigin], logs: Path = LOGS) -> None:
        """`origin`: where the engine runs as far as is known by now; called in a thread, and may block."""
        self._origin = origin
        self._logs = logs
        self._follower = LogFollower(origin, logs)
        self._in_thread = OneReadAtATime(self._read)
        self._reader = LogReader()
        self._lines: list[LogLine] = []
        self._rest: tuple[LogLine, ...] = ()
        """A last line without its end; none or one."""
        self._dropped = 0
        """Number of lines that are not kept any more."""
        self._generation = 0
        """Number of times that the log was another one, or was cut off; views have it."""
        self._shown: tuple[LogLine, ...] = ()
        """`_lines` and `_rest`, as one object for views."""

    async def read(self) -> LogView | None:
        """The log as far as it is read by now; None while an earlier read has not come back."""
        return await self._in_thread()

    def turn(self, step: int) -> None:
        """Read the next (1) or the previous (-1) of its logs from now on."""
        self._follower.turn(step)

    def requests(self, kind: EngineKind) -> EngineRequestsReader:
        """The requests that the same engine logs, read apart from this."""
        return EngineRequestsReader(self._origin, kind, self._logs)

    def _read(self) -> LogView:
        """Read on, and return the whole view; in a thread."""
        followed = self._follower.read()
        if followed.is_other:
            self._begin_anew()
        self._add_lines(followed.added)
        return LogView(
            place=followed.place.words,
            lines=self._shown,
            unfinished=len(self._rest),
            dropped=self._dropped,
            generation=self._generation,
            fault=followed.added.fault,
            command=followed.place.command,
            logs=followed.places,
        )

    def _begin_anew(self) -> None:
        """Forget all lines: another log follows."""
        self._reader = LogReader()
        self._lines = []
        self._rest = ()
        self._shown = ()
        self._dropped = 0
        self._generation += 1

    def _add_lines(self, added: Added) -> None:
        """Add what was read to the lines, or put it in their place, and drop the oldest beyond `MOST_LOG_LINES`."""
        if added.fault:
            return
        lines: Sequence[str] = added.lines
        if added.anew:
            self._begin_anew()
            if added.cut:
                lines = lines[first_record(lines, begins_record) :]
        elif not lines and not added.rest:
            return
        self._lines += self._reader.lines(lines)
        if added.rest:
            self._rest = (self._reader.copy().line(added.rest),)
        else:
            self._rest = ()
        excess = len(self._lines) - MOST_LOG_LINES
        if excess > 0:
            del self._lines[:excess]
            self._dropped += excess
        self._shown = (*self._lines, *self._rest)


def serving_origin(url: str) -> EngineOrigin:
    """Origin of the server that listens at a URL of this host; an empty one where no process is known. Blocks."""
    address = locate(url)
    if not isinstance(address, LocalAddress):
        return NO_ORIGIN
    sockets = reached(address, find_listeners())
    if not sockets:
        return NO_ORIGIN
    pids = socket_holders([listener.inode for listener in sockets], all_pids())
    if not pids:
        return NO_ORIGIN
    pid = min(pids)
    server = read_process(server_process(pid) or pid)
    if server is not None:
        return origin_of(server)
    return NO_ORIGIN

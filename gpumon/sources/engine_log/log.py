"""The log of one engine, as it is looked at: kept within bounds, masked, and read on from where it was left."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from gpumon.readings.log_text import LogLine, LogReader, LogView, begins_record
from gpumon.sources.engine_log.places import LOGS, Place, places_of
from gpumon.sources.engine_log.tails import Added, tail_of, whole_records
from gpumon.sources.family import all_pids, process, server_of
from gpumon.sources.last_seen.processes import has_ended, origin_of
from gpumon.sources.last_seen.records import NO_ORIGIN, Origin
from gpumon.sources.offload import in_daemon_thread
from gpumon.sources.sockets import Place as Address
from gpumon.sources.sockets import holders, listening, locate, reached

MOST_LINES: Final = 5000
"""Lines that are kept of a log."""
AGAIN_S: Final = 5.0
"""Seconds before a log that was not found, or cannot be read, is looked for again."""


class EngineLog:
    """The log of an engine; `read` is called again and again while it is looked at."""

    def __init__(self, origin: Callable[[], Origin], logs: Path = LOGS) -> None:
        """`origin`: where the engine runs as far as is known by now; called in a thread, and may block."""
        self._origin_now = origin
        self._logs = logs
        self._origin: Origin | None = None
        self._was_live = False
        self._places: tuple[Place, ...] = ()
        self._chosen = 0
        self._tail: Callable[[], Added] = Added
        self._reader = LogReader()
        self._lines: list[LogLine] = []
        self._rest: tuple[LogLine, ...] = ()
        self._dropped = 0
        self._anew = 0
        self._fault = ""
        self._is_reading = False
        self._step = 0
        """The log to go to at the next read, from the one that is read."""
        self._found_s = float("-inf")
        self._shown: tuple[LogLine, ...] = ()

    async def read(self) -> LogView | None:
        """The log as far as it is read by now; None while an earlier read has not come back."""
        if self._is_reading:
            return None
        self._is_reading = True
        return await in_daemon_thread(self._read)

    def turn(self, step: int) -> None:
        """Read the next (1) or the previous (-1) of its logs from now on."""
        self._step += step

    def _read(self) -> LogView:
        step = self._step
        self._step -= step
        try:
            self._find()
            if step and len(self._places) > 1:
                self._choose((self._chosen + step) % len(self._places))
            self._take(self._tail())
        finally:
            self._is_reading = False
        place = self._places[self._chosen]
        return LogView(
            place=place.words,
            lines=self._shown,
            open=len(self._rest),
            dropped=self._dropped,
            anew=self._anew,
            fault=self._fault,
            command=place.command,
            places=len(self._places),
        )

    def _find(self) -> None:
        """Look where its log is: at first, when its process is another one or has ended, and while it is unreadable."""
        origin = self._origin_now()
        is_live = bool(origin.pid) and not has_ended(origin.id)
        is_known = self._origin is not None and self._origin.id == origin.id and self._was_live is is_live
        is_fresh = time.monotonic() - self._found_s < AGAIN_S
        if is_known and (is_fresh or not self._fault):
            return
        places = places_of(origin, self._logs)
        self._found_s = time.monotonic()
        self._origin = origin
        self._was_live = is_live
        words = [place.words for place in self._places]
        self._places = places
        if words != [place.words for place in places]:
            self._choose(0)
        else:
            self._tail = tail_of(places[self._chosen])

    def _choose(self, number: int) -> None:
        self._chosen = number
        self._tail = tail_of(self._places[number])
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._reader = LogReader()
        self._lines = []
        self._rest = ()
        self._shown = ()
        self._dropped = 0
        self._anew += 1

    def _take(self, added: Added) -> None:
        """Take what was read."""
        self._fault = added.fault
        if added.fault:
            return
        lines: Sequence[str] = added.lines
        if added.anew:
            self._begin_anew()
            if added.cut:
                lines = list(whole_records(lines, begins_record))
        elif not lines and not added.rest:
            return
        self._lines += self._reader.lines(lines)
        if added.rest:
            self._rest = (self._reader.copy().line(added.rest),)
        else:
            self._rest = ()
        excess = len(self._lines) - MOST_LINES
        if excess > 0:
            del self._lines[:excess]
            self._dropped += excess
        self._shown = (*self._lines, *self._rest)


def serving_origin(url: str) -> Origin:
    """Origin of the server that listens at a URL of this host; an empty one where no process is known. Blocks."""
    address = locate(url)
    if not isinstance(address, Address):
        return NO_ORIGIN
    sockets = reached(address, listening())
    if sockets:
        pids = holders([listener.inode for listener in sockets], all_pids())
    else:
        pids = frozenset()
    if not pids:
        return NO_ORIGIN
    pid = min(pids)
    server = process(server_of(pid) or pid)
    if server is not None:
        return origin_of(server)
    return NO_ORIGIN

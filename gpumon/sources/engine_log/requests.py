"""The requests that an engine logs, read on while they are looked at. Nothing of them is written anywhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from gpumon.readings.access_log import ACCESS_LOG_HINTS, silence_of
from gpumon.readings.frame import EngineKind
from gpumon.readings.log_text import begins_record
from gpumon.readings.request_feed import RequestFeed, RequestView
from gpumon.sources.engine_log.follow import LogFollower, OneReadAtATime
from gpumon.sources.engine_log.places import LOGS
from gpumon.sources.engine_log.tails import Added, first_record
from gpumon.sources.family import read_process
from gpumon.sources.last_seen.records import NO_ORIGIN, EngineOrigin


class EngineRequestsReader:
    """The requests of one engine; `read` is called again and again while they are looked at."""

    def __init__(self, origin: Callable[[], EngineOrigin], kind: EngineKind, logs: Path = LOGS) -> None:
        """`origin`: where the engine runs as far as is known by now; called in a thread, and may block."""
        self._follower = LogFollower(origin, logs)
        self._in_thread = OneReadAtATime(self._read)
        self._kind = kind
        self._feed = RequestFeed(kind)
        self._generation = 0
        self._asked = NO_ORIGIN.id
        """The process whose command line was looked at."""
        self._silence = ""

    async def read(self) -> RequestView | None:
        """Requests as far as they were read by now; None while an earlier read has not come back."""
        return await self._in_thread()

    def turn(self, step: int) -> None:
        """Read the next (1) or the previous (-1) of its logs from now on."""
        self._follower.turn(step)

    def _read(self) -> RequestView:
        """Read on, and return the whole view; in a thread."""
        followed = self._follower.read()
        if followed.is_other:
            self._begin_anew()
        self._take(followed.added)
        return self._feed.view()._replace(
            place=followed.place.words,
            generation=self._generation,
            fault=followed.added.fault,
            command=followed.place.command,
            silence=self._silence_now() or ACCESS_LOG_HINTS.get(self._kind, ""),
            logs=followed.places,
        )

    def _begin_anew(self) -> None:
        self._feed = RequestFeed(self._kind)
        self._generation += 1

    def _take(self, added: Added) -> None:
        """Take complete lines: a line that has no end yet may be of a longer one."""
        if added.fault:
            return
        first = 0
        read = time.strftime("%H:%M:%S")
        if added.anew:
            self._begin_anew()
            read = ""
            if added.cut:
                first = first_record(added.lines, begins_record)
        self._feed.take(added.lines[first:], added.stamps[first:], read)

    def _silence_now(self) -> str:
        """Why the engine writes no request lines, as far as its command line tells."""
        origin = self._follower.origin
        if origin.id != self._asked:
            self._asked = origin.id
            server = read_process(origin.pid) if origin.pid else None
            if server is not None and server.started == origin.started:
                self._silence = silence_of(self._kind, server.argv)
            else:
                self._silence = ""
        return self._silence

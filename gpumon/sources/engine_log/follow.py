"""An engine's log that is followed: where it is, and what is added to it from read to read."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, NamedTuple, TypeVar

from gpumon.sources.engine_log.places import LOGS, LogPlace, places_of
from gpumon.sources.engine_log.tails import Added, log_tail
from gpumon.sources.last_seen.processes.tree import has_ended
from gpumon.sources.last_seen.records import NO_ORIGIN, EngineOrigin
from gpumon.sources.offload import in_daemon_thread

ResultT = TypeVar("ResultT")
_SEARCH_AGAIN_S: Final = 5.0
"""Seconds before a log that was not found, or cannot be read, is looked for again."""


class Followed(NamedTuple):
    """Result of one read."""

    added: Added
    place: LogPlace
    places: int
    """How many logs the engine has."""
    is_other: bool
    """Another log is read than at the last time: nothing of that one counts any more."""


class LogFollower:
    """Finds the log of an engine, and reads what is added to it. All calls but `turn` block: for a thread."""

    def __init__(self, origin: Callable[[], EngineOrigin], logs: Path = LOGS) -> None:
        """`origin`: where the engine runs as far as is known by now."""
        self._origin_now = origin
        self._logs = logs
        self._origin: EngineOrigin | None = None
        self._was_live = False
        self._places: tuple[LogPlace, ...] = ()
        self._chosen = 0
        """Index in `_places` of the log that is read."""
        self._read_added: Callable[[], Added] = Added
        """Reads what was added to it since the call before."""
        self._fault = ""
        """Why the last read failed; empty where it did not."""
        self._step = 0
        """The log to go to at the next read, from the one that is read."""
        self._searched_s = float("-inf")
        """Monotonic time of the last search."""
        self._is_other = False
        """Whether this read is of another log than the last one."""

    @property
    def origin(self) -> EngineOrigin:
        """The process and place of the engine at the last read."""
        return self._origin or NO_ORIGIN

    def turn(self, step: int) -> None:
        """Read the next (1) or the previous (-1) of its logs from now on."""
        self._step += step

    def read(self) -> Followed:
        """Read what was added since the last read."""
        step = self._step
        self._step -= step  # not = 0: the screen's thread may have called `turn` meanwhile
        self._is_other = False
        self._find_places()
        if step and len(self._places) > 1:
            self._choose((self._chosen + step) % len(self._places))
        added = self._read_added()
        self._fault = added.fault
        return Followed(added, self._places[self._chosen], len(self._places), self._is_other)

    def _find_places(self) -> None:
        """Look for its log: at first, when its process is another one or has ended, and while the log is unreadable."""
        origin = self._origin_now()
        is_live = bool(origin.pid) and not has_ended(origin.id)
        is_known = self._origin is not None and self._origin.id == origin.id and self._was_live is is_live
        is_fresh = time.monotonic() - self._searched_s < _SEARCH_AGAIN_S
        if is_known and (is_fresh or not self._fault):
            return
        places = places_of(origin, self._logs)
        self._searched_s = time.monotonic()
        self._origin = origin
        self._was_live = is_live
        words = [place.words for place in self._places]
        self._places = places
        if words != [place.words for place in places]:
            self._choose(0)
        else:
            self._read_added = log_tail(places[self._chosen])

    def _choose(self, index: int) -> None:
        """Read another one of the places from its beginning."""
        self._chosen = index
        self._read_added = log_tail(self._places[index])
        self._is_other = True


class OneReadAtATime(Generic[ResultT]):
    """Runs a reader in a thread, one read at a time: while a log hangs it is not asked again."""

    def __init__(self, read: Callable[[], ResultT]) -> None:
        self._read = read
        self._is_reading = False

    async def __call__(self) -> ResultT | None:
        """The reader's result; None while an earlier read has not come back."""
        if self._is_reading:
            return None
        self._is_reading = True
        return await in_daemon_thread(self._read_alone)

    def _read_alone(self) -> ResultT:
        """Read in the thread; the next read may begin even where this one fails."""
        try:
            return self._read()
        finally:
            self._is_reading = False

"""The newest requests of an engine's log, the newest errors, and how many ended how. Kept in memory alone."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from gpumon.readings.frame import EngineKind
from gpumon.readings.log_text import MOST_LINE_CHARACTERS, LogReader, without_escapes
from gpumon.readings.request_lines import LoggedRequest, TimeOrigin, forms_of, request_of, stamp_of

MOST_FEED_REQUESTS: Final = 500
"""Most requests that are kept, the newest ones, and as many errors."""
_END_CHARACTERS: Final = 256
"""Characters of the end of a long line that are looked at."""


class RequestView(NamedTuple):
    """An engine's requests as far as they were read by now."""

    place: str = ""
    """Place of the log, in words. Text from outside, safe to show."""
    newest: Sequence[LoggedRequest] = ()
    """The newest first."""
    errors: Sequence[LoggedRequest] = ()
    """The newest that failed, the newest first: they reach back further than `newest`."""
    counts: Mapping[str, int] = MappingProxyType({})
    """Outcome (`200`, `ok`, ...) -> requests, health checks and scrapes left out."""
    polls: int = 0
    """Health checks, scrapes and other questions about the server."""
    failed_polls: int = 0
    lines: int = 0
    """Lines that were read."""
    generation: int = 0
    """Grows whenever counting begins anew: the log was truncated, or another one is read."""
    fault: str = ""
    """Why the log cannot be read; empty where it can."""
    command: str = ""
    """Command that shows the log."""
    silence: str = ""
    """Why the log has no request lines, or may have none, and what brings them; empty: nothing is known."""
    logs: int = 1
    """How many logs the engine has."""


class RequestFeed:
    """Takes lines of a log in their order, and keeps the requests among them."""

    def __init__(self, kind: EngineKind) -> None:
        self._forms = forms_of(kind)
        self._reader = LogReader()
        """Knows which lines are of a prompt that goes on."""
        self._newest_time = ""
        """Time of the newest line that has one."""
        self._newest: deque[LoggedRequest] = deque(maxlen=MOST_FEED_REQUESTS)
        self._errors: deque[LoggedRequest] = deque(maxlen=MOST_FEED_REQUESTS)
        self._counts: Counter[str] = Counter()
        self._polls = 0
        self._failed_polls = 0
        self._lines = 0
        self._view = RequestView()

    def take(self, lines: Sequence[str], stamps: Sequence[str] = (), read_time: str = "") -> None:
        """Take complete lines. `stamps`: the time that a runtime wrote before each, or nothing. `read_time`: the time
        now, if the lines were written since the last call; empty if they may be of any time."""
        for index, line in enumerate(lines):
            self._lines += 1
            stamp = stamps[index] if index < len(stamps) else ""
            request = self._read_request(line, stamp_of(stamp), read_time)
            if request is not None:
                self._keep(request)
        if lines:
            self._view = RequestView(
                newest=tuple(reversed(self._newest)),
                errors=tuple(reversed(self._errors)),
                counts=dict(self._counts),
                polls=self._polls,
                failed_polls=self._failed_polls,
                lines=self._lines,
            )

    def view(self) -> RequestView:
        """All that was read by now; the same object while nothing was added."""
        return self._view

    def _read_request(self, line: str, stamp: str, read_time: str) -> LoggedRequest | None:
        """The request that a line is about, with the best time that there is for it."""
        plain = without_escapes(_both_ends(line.rstrip("\r\n").rpartition("\r")[2]))
        if self._reader.goes_on_in(plain):
            return None
        request = request_of(plain, self._forms)
        if request is None:
            self._reader.line(line)
            self._newest_time = stamp or stamp_of(plain) or self._newest_time
            return None
        self._reader.pass_record(plain)
        if request.clock is TimeOrigin.LINE:
            self._newest_time = request.time
            return request
        if stamp:
            self._newest_time = stamp
            return request._replace(time=stamp, clock=TimeOrigin.LINE)
        if read_time:
            return request._replace(time=read_time, clock=TimeOrigin.READ)
        if self._newest_time:
            return request._replace(time=self._newest_time, clock=TimeOrigin.AFTER)
        return request

    def _keep(self, request: LoggedRequest) -> None:
        """Count a request, and keep it unless it only asks about the server."""
        if request.is_poll:
            self._polls += 1
            if request.is_error:
                self._failed_polls += 1
            return
        self._counts[request.outcome] += 1
        self._newest.append(request)
        if request.is_error:
            self._errors.append(request)


def _both_ends(line: str) -> str:
    """Both ends of a line that is too long: the status stands behind the query, and nobody hides by a long one."""
    if len(line) <= MOST_LINE_CHARACTERS:
        return line
    return line[: MOST_LINE_CHARACTERS - _END_CHARACTERS] + line[-_END_CHARACTERS:]

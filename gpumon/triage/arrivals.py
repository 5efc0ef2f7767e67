"""Requests that arrived at an engine and left it in the last minutes, by what its page counts."""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import Final, NamedTuple

from gpumon.readings.frame import EngineReading
from gpumon.readings.quantities import REQUESTS, RUNNING, WAITING

WINDOW_S: Final = 300.0
"""How far back arrivals are known: a batch that was sent before has been sent as a whole."""
_STEP_S: Final = 5.0
"""Seconds between two points that are kept."""


class RequestFlow(NamedTuple):
    """Changes over some seconds, in requests."""

    seconds: float
    arrived: float
    """Requests that came."""
    finished: float
    """Requests that ended."""
    queue_change: float
    """Requests waiting now, less those at the beginning."""


class _Point(NamedTuple):
    """Requests of an engine at one poll."""

    at_s: float
    """Monotonic."""
    waiting: float
    running: float
    finished: float
    """Since its process began."""

    @property
    def total(self) -> float:
        """All requests that have ever come."""
        return self.waiting + self.running + self.finished


class Arrivals:
    """Counts of the last 5 minutes. An engine that does not count finished requests has none."""

    def __init__(self) -> None:
        self._points: deque[_Point] = deque()
        self._newest: _Point | None = None

    def add(self, now_s: float, reading: EngineReading) -> None:
        """Take the counts of one poll."""
        finished = _sum_over_ranks(reading, REQUESTS, are_gauges=False)
        running = _sum_over_ranks(reading, RUNNING, are_gauges=True)
        waiting = _sum_over_ranks(reading, WAITING, are_gauges=True)
        if finished is None or running is None or waiting is None:
            return
        point = _Point(now_s, waiting, running, finished)
        if self._newest is not None and finished < self._newest.finished:  # it began anew
            self._points.clear()
        self._newest = point
        if not self._points or now_s - self._points[-1].at_s >= _STEP_S:
            self._points.append(point)
        while len(self._points) > 1 and self._points[1].at_s <= now_s - WINDOW_S:
            self._points.popleft()

    def flow(self) -> RequestFlow | None:
        """Flow of requests in the last 5 minutes, or since it is watched; None where no figure tells."""
        if self._newest is None or not self._points:
            return None
        return _flow(self._points[0], self._newest)

    def since_burst(self, least: float) -> RequestFlow | None:
        """Flow of requests since one burst of at least so many requests in 5 s ended; None where there was none, or
        several: more may follow."""
        if self._newest is None:
            return None
        bursts = 0
        end: _Point | None = None
        for before, after in pairwise(self._points):
            if after.total - before.total < least:
                continue
            if end is not before:
                bursts += 1
            end = after
        if end is None or bursts > 1:
            return None
        return _flow(end, self._newest)


def _flow(first: _Point, last: _Point) -> RequestFlow | None:
    """Flow between two points; None where they are one."""
    seconds = last.at_s - first.at_s
    if seconds <= 0.0:
        return None
    arrived = max(0.0, last.total - first.total)
    return RequestFlow(seconds, arrived, last.finished - first.finished, last.waiting - first.waiting)


def _sum_over_ranks(reading: EngineReading, quantity: str, *, are_gauges: bool) -> float | None:
    """A counter, or a gauge, summed over the ranks; None where one of them lacks it."""
    total = 0.0
    for rank in reading.ranks:
        value = rank.gauges.get(quantity) if are_gauges else rank.counters.get(quantity)
        if value is None:
            return None
        total += value
    if reading.ranks:
        return total
    return None

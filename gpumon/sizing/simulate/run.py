"""Plays requests against replicas behind a router."""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final, NamedTuple

from gpumon.sizing.simulate.cost import StepTime
from gpumon.sizing.simulate.requests import PlayedRequest, RequestSource
from gpumon.sizing.simulate.router import Router
from gpumon.sizing.simulate.scheduler import EngineLimits, Log, Replica

_TOLD_EVERY: Final = 128
"""Events, some 2 ms of them, after which it is told how far a simulation is: who is told may have it wait or end."""
_LEAST_S: Final = 1e-9
"""Seconds that stand for none, by which a time is divided."""


class _Arrival(NamedTuple):
    """A request that is still to be queued."""

    due_s: float
    """Time at which it is in the queue of a replica."""
    number: int
    """Keeps requests that are due at one time in their order."""
    request: PlayedRequest


class _StretchEnd(NamedTuple):
    """The end of a replica's stretch of steps, as it was planned once: the replica may have planned anew since."""

    end_s: float
    replica: int
    """Number of the replica."""


def play(
    source: RequestSource,
    cost: StepTime,
    limits: EngineLimits,
    replicas: int,
    router: Router,
    delay_s: float = 0.0,
    tell: Callable[[float], None] | None = None,
) -> Log:
    """Serve all requests of a source, each queued `delay_s` after it arrived. The same arguments give the same log.

    `tell` is told the share of the time of arrivals that has passed. Raises ValueError for terms of a step that are
    negative.
    """
    cost = cost.checked()
    log = Log()
    log.delay_s = delay_s
    log.counted_from_s = source.counted_from_s
    log.counted_until_s = source.counted_until_s
    game = _Game(source, [Replica(cost, limits, log) for _ in range(replicas)], router, delay_s)
    while game.goes_on:
        for _ in range(_TOLD_EVERY):
            if not game.goes_on:
                break
            game.take_next_event()
        if tell is not None:
            tell(min(1.0, game.now_s / max(source.seconds, _LEAST_S)))
    return log


class _Game:
    """A simulation under way: arrivals and ends of stretches, taken in the order of their times."""

    def __init__(self, source: RequestSource, replicas: list[Replica], router: Router, delay_s: float) -> None:
        self._source = source
        self._replicas = replicas
        self._router = router
        self._delay_s = delay_s
        self._arrivals: list[_Arrival] = []
        """Heap."""
        self._ends: list[_StretchEnd] = []
        """Heap; a stretch that was planned anew is in it more than once."""
        self._sent = 0
        """Requests that were sent; the number of the next one."""
        for request in source.first():
            self._add_arrival(request)

    @property
    def goes_on(self) -> bool:
        """Whether a request is still to arrive or to be answered."""
        return bool(self._arrivals or self._ends)

    @property
    def now_s(self) -> float:
        """Time of the next arrival; infinite once all have come."""
        if not self._arrivals:
            return math.inf
        return self._arrivals[0].due_s

    def take_next_event(self) -> None:
        """Queue the next request, or end the next stretch, whichever comes first; of both at one time the request."""
        next_end_s = self._ends[0].end_s if self._ends else math.inf
        if self._arrivals and self._arrivals[0].due_s <= next_end_s:
            self._queue_request()
        else:
            self._end_stretch()

    def _add_arrival(self, request: PlayedRequest) -> None:
        heappush(self._arrivals, _Arrival(request.arrival_s + self._delay_s, self._sent, request))
        self._sent += 1

    def _queue_request(self) -> None:
        """Queue the next request at the replica that the router chooses."""
        due_s, _, request = heappop(self._arrivals)
        index = self._router(self._replicas, request)
        self._replicas[index].add(request, due_s)
        self._note_end(index)

    def _end_stretch(self) -> None:
        """End the next stretch of steps; clients whose requests ended with it may send another."""
        end_s, index = heappop(self._ends)
        if self._replicas[index].end_s != end_s:  # it was planned anew since
            return
        for served in self._replicas[index].advance():
            following = self._source.after(served.request, served.end_s)
            if following is not None:
                self._add_arrival(following)
        self._note_end(index)

    def _note_end(self, index: int) -> None:
        """Note the end of a replica's stretch, if it has one."""
        if not math.isinf(self._replicas[index].end_s):
            heappush(self._ends, _StretchEnd(self._replicas[index].end_s, index))

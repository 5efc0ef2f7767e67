"""Plays requests against replicas behind a router."""

from __future__ import annotations

import math
from heapq import heapify, heappop, heappush

from gpumon.sizing.simulate.cost import StepTime
from gpumon.sizing.simulate.requests import PlayedRequest, RequestSource
from gpumon.sizing.simulate.router import Router
from gpumon.sizing.simulate.scheduler import EngineLimits, Log, Replica


def play(
    source: RequestSource, cost: StepTime, limits: EngineLimits, replicas: int, router: Router, delay_s: float = 0.0
) -> Log:
    """Serve all requests of a source, each `delay_s` after it arrived. The same arguments give the same log.

    ValueError on terms of a step that are negative.
    """
    cost = cost.checked()
    log = _begun_log(source, delay_s)
    engines = _idle_replicas(cost, limits, log, replicas)
    arrivals = _arrivals(source, delay_s)
    number = len(arrivals)
    ends: list[tuple[float, int]] = []
    while arrivals or ends:
        next_end_s = ends[0][0] if ends else math.inf
        if arrivals and arrivals[0][0] <= next_end_s:
            now_s, _, request = heappop(arrivals)
            replica = router(engines, request)
            engines[replica].add(request, now_s)
        else:
            now_s, replica = heappop(ends)
            if engines[replica].end_s != now_s:  # it was planned anew since
                continue
            for served in engines[replica].advance():
                following = source.after(served.request, served.end_s)
                if following is not None:
                    number += 1
                    heappush(arrivals, (following.arrival_s + delay_s, number, following))
        if not math.isinf(engines[replica].end_s):
            heappush(ends, (engines[replica].end_s, replica))
    return log


def _idle_replicas(cost: StepTime, limits: EngineLimits, log: Log, number: int) -> list[Replica]:
    """So many replicas that write what they serve to one log."""
    return [Replica(cost, limits, log) for _ in range(number)]


def _begun_log(source: RequestSource, delay_s: float) -> Log:
    """A log without entries of the requests of a source."""
    log = Log()
    log.delay_s = delay_s
    log.counted_from_s = source.counted_from_s
    log.counted_until_s = source.counted_until_s
    return log


def _arrivals(source: RequestSource, delay_s: float) -> list[tuple[float, int, PlayedRequest]]:
    """Heap of the first requests of a source: when each arrives, its number, and itself."""
    arrivals = []
    for number, request in enumerate(source.first()):
        arrivals.append((request.arrival_s + delay_s, number, request))
    heapify(arrivals)
    return arrivals

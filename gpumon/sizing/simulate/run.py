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
    """Serve all requests of a source, each queued `delay_s` after it arrived. The same arguments give the same log.

    Raises ValueError for terms of a step that are negative.
    """
    cost = cost.checked()
    log = _empty_log(source, delay_s)
    engines = [Replica(cost, limits, log) for _ in range(replicas)]
    arrivals = _first_arrivals(source, delay_s)
    sent = len(arrivals)
    ends: list[tuple[float, int]] = []  # heap of the end of each replica's stretch of steps, and its index
    while arrivals or ends:
        next_end_s = math.inf
        if ends:
            next_end_s, _ = ends[0]
        if arrivals and arrivals[0][0] <= next_end_s:
            now_s, _, request = heappop(arrivals)
            index = router(engines, request)
            engines[index].add(request, now_s)
        else:
            now_s, index = heappop(ends)
            if engines[index].end_s != now_s:  # it was planned anew since
                continue
            for served in engines[index].advance():
                following = source.after(served.request, served.end_s)
                if following is not None:
                    sent += 1
                    heappush(arrivals, (following.arrival_s + delay_s, sent, following))
        if not math.isinf(engines[index].end_s):
            heappush(ends, (engines[index].end_s, index))
    return log


def _empty_log(source: RequestSource, delay_s: float) -> Log:
    """A log without entries for the requests of a source."""
    log = Log()
    log.delay_s = delay_s
    log.counted_from_s = source.counted_from_s
    log.counted_until_s = source.counted_until_s
    return log


def _first_arrivals(source: RequestSource, delay_s: float) -> list[tuple[float, int, PlayedRequest]]:
    """Heap of the first requests of a source, each with its time of arrival in the queue and its number.

    The number keeps requests of one time in their order.
    """
    arrivals = []
    for number, request in enumerate(source.first()):
        arrivals.append((request.arrival_s + delay_s, number, request))
    heapify(arrivals)
    return arrivals

"""What is left when one instance or one server is lost, and how fast that is."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gpumon.readings.missing import Reading
from gpumon.sizing.answer import Degraded
from gpumon.sizing.demand import NOT_GIVEN, Demand


def degraded_of(demand: Demand, on_one_server: int) -> tuple[Degraded, ...]:
    """Without one instance, and without the server that holds most of them."""
    found = [_without(demand, "instance", 1)]
    if on_one_server > 1:
        found.append(_without(demand, "server", on_one_server))
    return tuple(found)


def _without(demand: Demand, lost: str, number: int) -> Degraded:
    """Survivors carry N/(N-k) of the load."""
    left = demand.instances - number
    if left < 1:
        return Degraded(lost, 0, text="nothing is left: requests fail until it is back")
    running = demand.running(left)
    most = demand.limits[0].concurrency if demand.limits else math.inf
    curve, ttft = demand.instance.curve, demand.instance.ttft
    bounded = not math.isinf(running)
    itl: Reading = curve.itl_s(running) if curve is not None and bounded else NOT_GIVEN
    first: Reading = ttft.ttft_s(running) if ttft is not None and bounded else NOT_GIVEN
    missed = list(_missed(demand, running))
    if not bounded:
        text = "the rest can not serve this rate: the queue grows without end"
    elif missed:
        text = f"{' and '.join(missed)} would be missed: {running:,.1f} each"
    elif running > most * (1 + 1e-9):
        text = f"requests queue: {running:,.1f} each, {most:,.0f} fit"
    else:
        text = f"within all limits: {running:,.1f} each"
    return Degraded(lost, left, running if bounded else NOT_GIVEN, itl, first, text)


def _missed(demand: Demand, running: float) -> Iterator[str]:
    for limit in demand.limits:
        if limit.kind.value in ("ITL", "TTFT", "E2E") and running > limit.concurrency * (1 + 1e-9):
            yield f"the {limit.kind.value} goal"

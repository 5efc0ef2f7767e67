"""p95 of the latencies of an instance under a load, as somebody works it out where nobody measured it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

_STEP: Final = 1.06
"""Factor from one tried load to the next; below 33 each number of requests is tried."""
_MOST_TRIED: Final = 100_000.0
"""Load beyond which none is tried."""


class P95(NamedTuple):
    """p95 of an instance's latencies under one load, in seconds; None where there is none."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    """Over requests, of the mean time between the tokens of each."""
    itl_s: float | None = None
    """Over the gaps between two tokens."""
    e2e_s: float | None = None
    keeps_up: bool = True
    """Whether all requests fit, and no queue grows."""


class PendingError(Exception):
    """A p95 is not worked out yet."""


class InstanceTails(Protocol):
    """p95 of the latencies of one instance."""

    def at(self, running: float) -> P95:
        """The p95 with so many requests in flight on average. Raises PendingError while it is not worked out."""


TailsOf = Callable[..., "InstanceTails | None"]
"""Gives the p95 of an instance of a scenario, with the catalogues as third argument; None where it has none."""


def largest_load_that(holds: Callable[[float], bool], most: float) -> float:
    """The largest tried load at which a goal holds: 0 where it does not with one request, infinite where it does at
    `most`.

    The tried loads depend neither on the goal nor on `most`, so that the bisection ends at no larger one for a stricter
    goal, even where the latency does not rise evenly with the load.
    """
    if not holds(_TRIED_LOADS[0]):
        return 0.0
    low = 0
    high = len(_TRIED_LOADS)
    while high - low > 1:
        middle = (low + high) // 2
        load = _TRIED_LOADS[middle]
        if load <= most and holds(load):
            low = middle
        else:
            high = middle
    is_last = high == len(_TRIED_LOADS) or _TRIED_LOADS[high] > most
    if is_last and holds(max(1.0, most)):
        return math.inf
    return _TRIED_LOADS[low]


def _tried_loads() -> tuple[float, ...]:
    """Loads at which a latency is looked at, rising from 1."""
    loads = [1.0]
    while loads[-1] < _MOST_TRIED:
        loads.append(loads[-1] + max(1.0, math.floor(loads[-1] * (_STEP - 1.0))))
    return tuple(loads)


_TRIED_LOADS: Final = _tried_loads()

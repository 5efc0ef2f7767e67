"""How much slower the slow ones are: p95 over the mean of a latency, as a function of load where points tell it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from statistics import median
from typing import Final, NamedTuple

MOST: Final = 1e6
"""Requests in flight beyond which no single instance is believed."""
_LEAST_LEVELS: Final = 3
_LEAST_SPREAD: Final = 1.5
"""Highest over lowest load of a line; from levels closer than that its slope is noise."""


class Sample(NamedTuple):
    """Mean and p95 of a latency at one level of load, seconds."""

    running: float
    mean_s: float
    p95_s: float


class Tail(NamedTuple):
    """p95 / mean of a latency over the requests in flight.

    It is no constant: at low load the mean falls while p95 is held up by the prefills of others. With a line, p95 =
    base_s + slope_s*b beside the mean that was fitted to the same points; what is re-scaled keeps the ratio at that b.
    Beyond the loads that were seen the two lines may cross, so that the ratio stays at least what it was at the last.
    """

    ratio: float = 1.0
    """At any load, where there is no line."""
    known: bool = False
    """Typed or seen; else p95 is taken to be the mean."""
    base_s: float = 0.0
    slope_s: float = 0.0
    high: float = MOST
    """Highest load that the line was seen at, at least 1."""
    mean_s: Callable[[float], float] | None = None
    """Mean over b that the line stands beside; None: the ratio is constant."""

    def at(self, running: float) -> float:
        """p95 / mean with so many in flight, at least 1 where it follows the load."""
        if self.mean_s is None:
            return self.ratio
        running = max(1.0, running)
        mean_s, last = self.mean_s(running), self.at(self.high) if running > self.high else 1.0
        return max(last, (self.base_s + self.slope_s * running) / mean_s) if mean_s > 0.0 else self.ratio


def tail_of(samples: Sequence[Sample], mean_s: Callable[[float], float] | None, otherwise: float | None) -> Tail:
    """The tail from samples: a line over at least three levels, else the median ratio, else `otherwise`, else 1."""
    ratio, line = _fitted(tuple(samples))
    if ratio is None:
        return Tail(otherwise or 1.0, otherwise is not None)
    if line is None or mean_s is None:
        return Tail(ratio, known=True)
    return Tail(ratio, True, *line, mean_s)


def mean_at_goal(goal_s: float, mean_s: Callable[[float], float] | None, tail: Tail) -> float:
    """The mean at which p95 comes to the goal: goal / ratio, with the ratio at the load where that happens."""
    if tail.mean_s is None or mean_s is None:
        return goal_s / tail.at(1.0)
    return goal_s / tail.at(max(1.0, min(largest_within(goal_s, mean_s, tail), MOST)))


def largest_within(goal_s: float, mean_s: Callable[[float], float], tail: Tail) -> float:
    """Largest load whose p95 is within the goal; 0 if not even 1, infinite if all."""
    return largest(lambda running: mean_s(running) * tail.at(running) <= goal_s)


def largest(holds: Callable[[float], bool], most: float = MOST) -> float:
    """Largest load from 1 to `most` for which `holds`, which ends to hold once; 0 if not even 1, inf if all."""
    if not holds(1.0):
        return 0.0
    if holds(most):
        return math.inf
    low, high = 1.0, most
    for _ in range(44):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


@lru_cache(maxsize=256)
def _fitted(samples: tuple[Sample, ...]) -> tuple[float | None, tuple[float, float, float] | None]:
    """Median ratio, and base and slope (at least 0) of the p95 by Theil-Sen with the highest load.

    The same is asked at every keystroke.
    """
    usable = [each for each in samples if each.running > 0.0 and each.mean_s > 0.0 and 0.0 < each.p95_s < math.inf]
    if not usable:
        return None, None
    ratio = max(1.0, median(each.p95_s / each.mean_s for each in usable))
    loads = sorted({each.running for each in usable})
    if len(loads) < _LEAST_LEVELS or loads[-1] < _LEAST_SPREAD * loads[0]:
        return ratio, None
    slopes = [
        (two.p95_s - one.p95_s) / (two.running - one.running)
        for at, one in enumerate(usable)
        for two in usable[at + 1 :]
        if two.running != one.running
    ]
    slope_s = max(0.0, median(slopes))
    return ratio, (median(each.p95_s - slope_s * each.running for each in usable), slope_s, max(1.0, loads[-1]))

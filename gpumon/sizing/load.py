"""From a target to requests in flight, instances, and the load of each: Little's law on the latency of an instance."""

from __future__ import annotations

import math
from typing import NamedTuple

from gpumon.sizing.instance import Instance
from gpumon.sizing.queueing import highest_load, in_flight
from gpumon.sizing.scenario import Workload

MOST_INSTANCES = 10_000_000
"""More than that is no answer."""
_EPSILON = 1e-9
_NO_END = 1e9
"""Requests in flight of one instance at which its queue is taken to grow without end."""


class Load(NamedTuple):
    """Instances for a target, without spares."""

    instances: int
    queue: bool = False
    """More instances than capacity alone asks for, so that few enough requests wait."""
    problem: str = ""


def load_of(instance: Instance, planned: float, slots: float, wait_ratio: float | None) -> Load:
    """Instances so that each carries at most `planned` requests in flight.

    `slots`: what one can carry at most; `wait_ratio`: with all instances behind one router, at most this share of the
    requests may find no free slot (Erlang C, Poisson arrivals).
    """
    workload = instance.workload
    response_s = instance.response_s(planned)
    if workload.target_kind != "concurrency" and response_s is None:
        what = "users" if workload.target_kind == "users" else "requests per second"
        return Load(0, problem=f"{what} need a response time: give prompt and answer tokens, or a concurrency")
    share = _in_flight(workload, response_s)
    exact = share / planned
    if exact > MOST_INSTANCES:
        return Load(0, problem=f"{exact:.2g} instances: check the target and the capacity per instance")
    instances = max(1, math.ceil(exact - _EPSILON))
    queue = False
    if wait_ratio is not None:
        more = _for_queue(instances, max(1.0, slots), share, wait_ratio)
        if more is None:
            return Load(0, problem=f"no number of instances keeps waits below {wait_ratio:g}")
        queue, instances = more > instances, more
    return Load(instances, queue)


def equilibrium(instance: Instance, instances: int) -> float:
    """Requests in flight of each of `instances` at the target: fewer are faster, so of users and rates fewer stay.

    Infinite where a rate is more than they can ever serve.
    """
    workload = instance.workload
    if workload.target_kind == "concurrency":
        return workload.target / instances

    def wanted(running: float) -> float:
        return _in_flight(workload, instance.response_s(running)) / instances

    low, high = 0.0, wanted(0.0)
    while wanted(high) > high:
        low, high = high, 2.0 * high
        if high >= _NO_END:
            return math.inf
    for _ in range(44):
        middle = (low + high) / 2.0
        low, high = (middle, high) if wanted(middle) > middle else (low, middle)
    return high


def _in_flight(workload: Workload, response_s: float | None) -> float:
    if workload.target_kind == "concurrency" or response_s is None:
        return workload.target
    if workload.target_kind == "users":
        return in_flight(workload.target, response_s, workload.think_s) if response_s > 0 else 0.0
    return workload.target * response_s


def _for_queue(instances: int, slots: float, asked: float, wait_ratio: float) -> int | None:
    """The smallest number whose slots together let at most `wait_ratio` of the requests wait."""

    def enough(number: int) -> bool:
        together = max(1, math.floor(number * slots))
        return asked <= highest_load(together, wait_ratio) * together

    low = high = instances
    while not enough(high):
        low, high = high, high * 2
        if high > MOST_INSTANCES:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return low if enough(low) else high

"""Figures of a simulation: percentiles of the latencies, goodput under goals, the queue over time, GPU-hours."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from gpumon.efficiency.quantiles import ENOUGH
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.sizing.simulate.scheduler import Log, ServedRequest

QUEUE_POINTS: Final = 60
"""Moments of the queue over time."""
TOO_FEW_REQUESTS: Final = f"fewer than {ENOUGH} requests tell the p95 of a goal"
"""Why no goal is held: of many requests few may have a TPOT, as answers of one token have none."""
_LEAST_GROWTH: Final = 1.5
"""Factor from the middle of the arrivals to their last tenth by which the waiting requests of a growing queue rise."""
_LEAST_QUEUE: Final = 0.02
"""Share of all requests that wait at the end of the arrivals below which no queue counts as growing."""
_LEAST_SPAN_S: Final = 1e-9
"""Seconds that rates are taken over at least, as they are divided by them."""
_PERCENTILES: Final = (0.5, 0.95, 0.99)
"""Percentiles of a `Spread`, as shares."""
_NO_GOAL: Final = Missing(Reason.NOT_GIVEN)
_TOO_FEW: Final = Missing(Reason.FEW)


class RequestGoals(NamedTuple):
    """Latency goals in seconds; None: no goal. All are of the p95, but for `itl_mean_s`."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    """Over requests, of the mean between the tokens of each."""
    itl_s: float | None = None
    """Over the gaps between two tokens."""
    itl_mean_s: float | None = None
    e2e_s: float | None = None

    @property
    def given(self) -> bool:
        """Whether there is any goal."""
        return any(goal is not None for goal in self)

    @property
    def of_each_request(self) -> tuple[str, ...]:
        """Names of the latencies that are judged request by request: no single request has the mean over the tokens of
        all, and its gaps have a mean, its TPOT, for want of a p95."""
        token_goal_s = self.itl_s if self.tpot_s is None else self.tpot_s
        goals = (("TTFT", self.ttft_s), ("TPOT", token_goal_s), ("E2E", self.e2e_s))
        return tuple(name for name, goal_s in goals if goal_s is not None)


class Spread(msgspec.Struct, frozen=True):
    """Distribution of a latency over all requests, that of the ITL over all tokens, in seconds; of fewer than 20 it is
    the mean alone."""

    mean: Reading = _TOO_FEW
    p50: Reading = _TOO_FEW
    p95: Reading = _TOO_FEW
    p99: Reading = _TOO_FEW


class QueuePoint(msgspec.Struct, frozen=True):
    """Requests of all replicas at one moment."""

    time_s: float
    """Since the first arrival could be."""
    waiting: float
    running: float


class Figures(msgspec.Struct, frozen=True):
    """Latencies, throughput and queue of the requests of one simulation."""

    requests: float
    """Requests that were served."""
    seconds: float
    """From the start to the last answer."""
    ttft_s: Spread
    itl_s: Spread
    e2e_s: Spread
    tpot_s: Spread
    """The mean between the tokens of each request, over all requests."""
    requests_per_s: Reading
    """Requests served per second; of clients while all of them are there."""
    tokens_per_s: Reading
    """Output tokens per second, in the same time."""
    goodput_ratio: Reading
    """Share of the requests that met all goals; missing without a goal."""
    goodput_per_s: Reading
    """Requests per second that met all goals."""
    queue: tuple[QueuePoint, ...]
    most_waiting: float
    """Requests that waited at the worst of those moments."""
    queue_grows: bool
    """The replicas do not keep up: the queue grows as long as requests arrive."""
    preemptions: float
    refused: float
    """Requests that are longer than the KV cache of a replica."""
    hit_ratio: Reading
    """Share of the prompt tokens that came from the prefix cache."""
    gpu_hours: float


def figures_of(log: Log, goals: RequestGoals, gpus: int) -> Figures:
    """The figures of a log. `gpus`: those of all replicas together."""
    # Those that arrived while the whole load was there; all if none did.
    arrived = [served for served in log.served if log.counted_from_s <= served.request.arrival_s < log.counted_until_s]
    counted = arrived or log.served
    seconds = max((served.end_s for served in log.served), default=0.0)
    queue = queue_of(log.served, log.delay_s)
    flow = _flow_of(log, goals, counted, seconds)
    hit_ratio: Reading = log.hit_tokens / log.prompt_tokens if log.prompt_tokens else _TOO_FEW
    return Figures(
        requests=float(len(log.served)),
        seconds=seconds,
        ttft_s=_spread_of(served.ttft_s for served in counted),
        itl_s=_weighted_spread(log.gaps),
        e2e_s=_spread_of(served.e2e_s for served in counted),
        tpot_s=_spread_of(served.mean_gap_s for served in counted if served.request.answer > 1),
        requests_per_s=flow.requests_per_s,
        tokens_per_s=flow.tokens_per_s,
        goodput_ratio=flow.goodput_ratio,
        goodput_per_s=flow.goodput_per_s,
        queue=queue,
        most_waiting=max((point.waiting for point in queue), default=0.0),
        queue_grows=_queue_grows(queue, log.served),
        preemptions=float(log.preemptions),
        refused=float(log.refused),
        hit_ratio=hit_ratio,
        gpu_hours=gpus * seconds / 3600.0,
    )


class _Flow(NamedTuple):
    """Amounts per second while the whole load was there; by default nothing is known."""

    requests_per_s: Reading = _TOO_FEW
    tokens_per_s: Reading = _TOO_FEW
    goodput_ratio: Reading = _TOO_FEW
    """Share of the counted requests that met all goals."""
    goodput_per_s: Reading = _TOO_FEW


def _flow_of(log: Log, goals: RequestGoals, counted: Sequence[ServedRequest], seconds: float) -> _Flow:
    """Requests and tokens that ended while the whole load was there, per second of that time.

    `counted`: requests that goodput is of. `seconds`: from the start to the last answer.
    """
    flow = _Flow() if not counted or seconds <= 0.0 else _known_flow(log, goals, counted, seconds)
    if goals.of_each_request:
        return flow
    return flow._replace(goodput_ratio=_NO_GOAL, goodput_per_s=_NO_GOAL)


def _known_flow(log: Log, goals: RequestGoals, counted: Sequence[ServedRequest], seconds: float) -> _Flow:
    """The flow of a simulation in which some requests are counted."""
    span_s = max(_LEAST_SPAN_S, min(seconds, log.counted_until_s) - log.counted_from_s)
    ended = [served for served in log.served if log.counted_from_s <= served.end_s <= log.counted_until_s]
    tokens = sum(served.request.answer for served in ended)
    within_goals = sum(meets(served, goals) for served in counted)
    goodput_ratio = within_goals / len(counted)
    return _Flow(
        requests_per_s=len(ended) / span_s,
        tokens_per_s=tokens / span_s,
        goodput_ratio=goodput_ratio,
        goodput_per_s=goodput_ratio * len(ended) / span_s,
    )


def meets(served: ServedRequest, goals: RequestGoals) -> bool:
    """Whether a request met all goals: its TTFT, the mean between its tokens, and its E2E.

    That mean is held against the goal of the TPOT, or else against that of the gaps, which no single request has a p95
    of.
    """
    if goals.ttft_s is not None and served.ttft_s > goals.ttft_s:
        return False
    if goals.e2e_s is not None and served.e2e_s > goals.e2e_s:
        return False
    token_goal_s = goals.itl_s if goals.tpot_s is None else goals.tpot_s
    if token_goal_s is None or served.request.answer < 2:  # one token has no time between tokens
        return True
    return served.mean_gap_s <= token_goal_s


class JudgedFigure(NamedTuple):
    """The figure of a simulation that a goal judges."""

    name: str
    goal_s: float | None
    value_s: Reading


def judged_figures(figures: Figures, goals: RequestGoals) -> tuple[JudgedFigure, ...]:
    """The figure of each goal, in the order of the goals; of one that is not given, too."""
    return (
        JudgedFigure("TTFT", goals.ttft_s, figures.ttft_s.p95),
        JudgedFigure("TPOT", goals.tpot_s, figures.tpot_s.p95),
        JudgedFigure("ITL", goals.itl_s, figures.itl_s.p95),
        JudgedFigure("ITL mean", goals.itl_mean_s, figures.itl_s.mean),
        JudgedFigure("E2E", goals.e2e_s, figures.e2e_s.p95),
    )


def missed_goals(figures: Figures, goals: RequestGoals) -> tuple[str, ...]:
    """Names of the latencies that are beyond their goals."""
    return tuple(
        name
        for name, goal_s, value_s in judged_figures(figures, goals)
        if goal_s is not None and not isinstance(value_s, Missing) and value_s > goal_s
    )


def untold_goals(figures: Figures, goals: RequestGoals) -> tuple[str, ...]:
    """Names of the latencies with a goal of which too few requests tell."""
    return tuple(
        name
        for name, goal_s, value_s in judged_figures(figures, goals)
        if goal_s is not None and value_s == _TOO_FEW and not _needs_no_gap(name, figures)
    )


def _needs_no_gap(name: str, figures: Figures) -> bool:
    """Whether a latency is one between tokens, and all answers are of one token: then there is none."""
    return name in ("TPOT", "ITL", "ITL mean") and isinstance(figures.itl_s.mean, Missing)


def holds_goals(figures: Figures, goals: RequestGoals) -> bool:
    """Whether each latency is within its goal, every request fits, and the queue does not grow."""
    if figures.queue_grows or figures.refused or not figures.requests:
        return False
    return not missed_goals(figures, goals) and not untold_goals(figures, goals)


def queue_of(served: Sequence[ServedRequest], delay_s: float = 0.0) -> tuple[QueuePoint, ...]:
    """Waiting and running requests at 60 moments between the first arrival and the last answer.

    `delay_s`: seconds between the arrival of a request and its place in the queue.
    """
    if not served:
        return ()
    arrivals = sorted(answered.request.arrival_s + delay_s for answered in served)
    admitted = sorted(answered.admitted_s for answered in served)
    ends = sorted(answered.end_s for answered in served)
    last_s = ends[-1]
    points = []
    for number in range(QUEUE_POINTS):
        time_s = last_s * (number + 0.5) / QUEUE_POINTS
        begun = bisect_right(admitted, time_s)
        waiting = bisect_right(arrivals, time_s) - begun
        running = begun - bisect_right(ends, time_s)
        points.append(QueuePoint(time_s, float(waiting), float(running)))
    return tuple(points)


def _queue_grows(queue: Sequence[QueuePoint], served: Sequence[ServedRequest]) -> bool:
    """Whether more and more requests wait as long as requests arrive."""
    if not served:
        return False
    last_arrival_s = max(answered.request.arrival_s for answered in served)
    points = [point for point in queue if point.time_s <= last_arrival_s]
    tenth = max(1, len(points) // 10)
    middle = points[len(points) // 2 :][:tenth]
    end = points[-tenth:]
    if not middle:
        return False
    waiting_at_end = _mean_waiting(end)
    if waiting_at_end <= _LEAST_QUEUE * len(served):
        return False
    return waiting_at_end > _LEAST_GROWTH * _mean_waiting(middle)


def _mean_waiting(points: Sequence[QueuePoint]) -> float:
    """Mean of the waiting requests over some moments."""
    return sum(point.waiting for point in points) / len(points)


def _spread_of(values: Iterable[float]) -> Spread:
    """Mean and percentiles of values."""
    ordered = sorted(values)
    if not ordered:
        return Spread()
    count = len(ordered)
    if count < ENOUGH:
        return Spread(sum(ordered) / count)
    quantiles = [ordered[max(0, math.ceil(share * count) - 1)] for share in _PERCENTILES]
    return Spread(sum(ordered) / count, *quantiles)


def _weighted_spread(values: Mapping[float, float]) -> Spread:
    """Mean and percentiles of values, each with the number of times that it occurred."""
    total = sum(values.values())
    if total <= 0.0:
        return Spread()
    ordered = sorted(values.items())
    mean = sum(value * number for value, number in ordered) / total
    if total < ENOUGH:
        return Spread(mean)
    quantiles = [_quantile(ordered, share * total) for share in _PERCENTILES]
    return Spread(mean, *quantiles)


def _quantile(ordered: Sequence[tuple[float, float]], rank: float) -> float:
    """The value at a rank among rising values, each with its number."""
    passed = 0.0
    for value, number in ordered:
        passed += number
        if passed >= rank:
            return value
    largest, _ = ordered[-1]
    return largest

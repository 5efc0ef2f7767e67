"""Sums over a stretch of time: means by seconds, growth of counters, requests within goals, and what may be missing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from gpumon.efficiency.counted import AS_LONG_AS_S, CountedSoFar
from gpumon.efficiency.goodput import Bounds, goal_bounds, share_within
from gpumon.efficiency.ratio import divide, plus
from gpumon.efficiency.restarts import growth_of
from gpumon.readings.frame import EngineReading
from gpumon.readings.goals import Goals
from gpumon.readings.missing import NOT_EXPOSED, NOT_SUPPORTED, WARMING_UP, Missing, Reading, Reason, number
from gpumon.readings.period import GoalPeriod, GoodputPeriod
from gpumon.readings.snapshot import Goodput, WithinGoal

TOKEN_FIELDS: Final = {
    "prefill_computed_tokens": "prefill_computed",
    "prefill_cached_tokens": "prefill_cached",
    "decode_tokens": "decode",
    "trained_tokens": "trained",
}
"""Fields of a stretch and those of `TokensTotal` that they come from."""
_GOALS: Final = ("ttft_goal", "itl_goal", "tpot_goal")
"""Fields of `Goodput` and of `GoodputPeriod`."""


class TimeMean:
    """Mean of a figure, weighted by the seconds that its values stand for, and by what its row says."""

    __slots__ = ("seconds", "total", "weight")

    def __init__(self) -> None:
        self.seconds = 0.0
        """Seconds (or GPU-seconds) of which it is known."""
        self.total = 0.0
        self.weight = 0.0

    def add(self, value: float, seconds: float, weight: float = 1.0) -> None:
        """Take in a value; NaN is a gap."""
        if not math.isnan(value):
            self.total += value * seconds * weight
            self.weight += seconds * weight
            self.seconds += seconds

    def add_mean(self, other: TimeMean) -> None:
        """Take in all that another mean is made of."""
        self.total += other.total
        self.weight += other.weight
        self.seconds += other.seconds

    def reading(self, otherwise: Missing) -> Reading:
        """The mean; `otherwise` where there is no value."""
        return self.total / self.weight if self.weight else otherwise


class KnownTotal:
    """Sum of growths, and the seconds of which they are known."""

    __slots__ = ("seconds", "total")

    def __init__(self) -> None:
        self.seconds = 0.0
        self.total = 0.0

    def add(self, growth: Reading, seconds: float) -> None:
        """Take in the growth over some seconds, if it is known."""
        if not isinstance(growth, Missing):
            self.total += growth
            self.seconds += seconds

    @property
    def reading(self) -> Reading:
        """The sum; missing where no growth was known."""
        return self.total if self.seconds else NOT_SUPPORTED


class CounterGrowth:
    """Grows a total by a counter that may begin anew."""

    __slots__ = ("_most_per_s", "last", "seconds", "total")

    def __init__(self, begins_at: float | None = None, most_per_s: float = math.inf) -> None:
        """`begins_at`: what it had before the first value, where that is known; `most_per_s`: fastest growth that can
        be true."""
        self.last = begins_at
        self._most_per_s = most_per_s
        self.total = 0.0
        self.seconds = 0.0

    def grow(self, value: Reading, seconds: float) -> Reading:
        """As `add`; missing where there was no value before, or is none now, or one of both cannot be true."""
        seconds_before = self.seconds
        is_first = self.last is None
        growth = self.add(value, seconds)
        if isinstance(value, Missing):
            return value
        is_base_line = is_first or (seconds > 0.0 and self.seconds == seconds_before)
        return WARMING_UP if is_base_line else growth

    def add(self, value: Reading, seconds: float) -> float:
        """Take in the counter's newest value, and return its growth; `seconds`: since the one before."""
        counter = number(value)
        growth = 0.0
        if counter is not None and self.last is not None:
            growth = growth_of(self.last, counter)
            if growth > self._most_per_s * max(AS_LONG_AS_S, seconds):
                growth = 0.0  # it has jumped: this is a base line
            else:
                self.total += growth
                self.seconds += seconds
        self.last = counter
        return growth

    @property
    def reading(self) -> Reading:
        """The growth; missing where the counter was not seen twice."""
        if self.seconds:
            return self.total
        return NOT_EXPOSED


class _GoalTotal:
    """Requests, or tokens, of which it is known how many kept a goal."""

    __slots__ = ("count", "goal_s", "high", "low", "other_goals", "users_count", "users_low")

    def __init__(self) -> None:
        self.count = 0.0
        self.low = 0.0
        """Number that was within the goal at least."""
        self.high = 0.0
        """Number that was within the goal at most."""
        self.users_low = 0.0
        """Number that was within the goal at least, as users see it."""
        self.users_count = 0.0
        """Number of which that is known: an older gpumon does not say it."""
        self.goal_s: Reading = NOT_EXPOSED
        self.other_goals = False
        """Whether some were held against another goal."""

    def add(self, share: WithinGoal) -> None:
        """Take in the share of some of them; one that is not known adds nothing."""
        count = number(share.count)
        low = number(share.low_ratio)
        high = number(share.high_ratio)
        if count is None or low is None or high is None:
            return
        self._take_goal(share.goal_s)
        self.count += count
        self.low += low * count
        self.high += high * count
        users_low = number(share.users_low_ratio)
        if users_low is not None:
            self.users_count += count
            self.users_low += users_low * count

    def add_sum(self, other: _GoalTotal) -> None:
        """Take in all that another sum has."""
        if not other.count:
            return
        self._take_goal(other.goal_s)
        self.count += other.count
        self.low += other.low
        self.high += other.high
        self.users_count += other.users_count
        self.users_low += other.users_low

    def _take_goal(self, goal_s: Reading) -> None:
        """Note the goal of some of them."""
        if isinstance(self.goal_s, Missing):
            self.goal_s = goal_s
        self.other_goals = self.other_goals or goal_s != self.goal_s

    def period(self) -> GoalPeriod:
        """The sum as a period of a report has it."""
        if not self.count:
            return GoalPeriod()
        if self.other_goals:
            goal_s: Reading = Missing(Reason.NOT_SUPPORTED, "the engines have other goals")
        else:
            goal_s = self.goal_s
        users_low_ratio: Reading = self.users_low / self.count if self.users_count == self.count else NOT_EXPOSED
        return GoalPeriod(
            count=self.count,
            within_low=self.low,
            within_high=self.high,
            low_ratio=self.low / self.count,
            high_ratio=self.high / self.count,
            goal_s=goal_s,
            users_low_ratio=users_low_ratio,
        )


class GoodputTotal:
    """Requests and tokens within the goals, by field of `Goodput`."""

    __slots__ = ("goals", "itl_assumed", "ttft_assumed")

    def __init__(self) -> None:
        self.goals = {field: _GoalTotal() for field in _GOALS}
        self.ttft_assumed = False
        self.itl_assumed = False

    def add_sum(self, other: GoodputTotal) -> None:
        """Take in all that another sum has."""
        for field, goal in self.goals.items():
            goal.add_sum(other.goals[field])
        self.ttft_assumed = self.ttft_assumed or other.ttft_assumed
        self.itl_assumed = self.itl_assumed or other.itl_assumed

    def add_rate(self, goodput: Goodput, requests: float) -> None:
        """Take in `requests` that ended while the shares of the last minutes were `goodput`, as a gpumon exports
        them."""
        self.ttft_assumed = self.ttft_assumed or goodput.ttft_goal_assumed
        self.itl_assumed = self.itl_assumed or goodput.itl_goal_assumed
        for field in ("ttft_goal", "tpot_goal"):
            share: WithinGoal = getattr(goodput, field)
            of_requests = msgspec.structs.replace(share, count=requests)
            self.goals[field].add(of_requests)

    def period(self) -> GoodputPeriod:
        """The sums as a period of a report has them."""
        goals = {field: goal.period() for field, goal in self.goals.items()}
        return GoodputPeriod(**goals, ttft_goal_assumed=self.ttft_assumed, itl_goal_assumed=self.itl_assumed)


class GoodputGrowth:
    """Counts what one engine serves within its goals, from reading to reading of its histograms."""

    def __init__(self, goals: Goals) -> None:
        self._bounds: Bounds = goal_bounds(goals)
        self._counted = CountedSoFar()

    def begin_anew(self) -> None:
        """Take the next histograms as a base line."""
        self._counted = CountedSoFar()

    def take(self, reading: EngineReading, wall_s: float) -> GoodputTotal:
        """Take in a reading made at `wall_s` (Unix). Returns the requests and tokens since the one before."""
        total = GoodputTotal()
        total.ttft_assumed = self._bounds.ttft_assumed
        total.itl_assumed = self._bounds.itl_assumed
        counted = self._counted.take(reading, wall_s)
        if counted is None:
            return total
        for growth in counted.ranks.values():
            for bound in self._bounds.by_field(reading.kind):
                observed = growth.histogram(bound.quantity)
                if observed is not None and len(observed.bounds) > 1:
                    total.goals[bound.field].add(share_within(observed, bound.bound_s, bound.http_s))
        return total


def all_tokens(totals: Mapping[str, Reading]) -> Reading:
    """Prompt and decode tokens together; missing where no decode tokens are counted."""
    prompts = [totals[field] for field in ("prefill_computed_tokens", "prefill_cached_tokens")]
    return plus(totals["decode_tokens"], sum_of_known(prompts))


def sum_of_all(readings: Sequence[Reading]) -> Reading:
    """The sum; the first reason where a part is missing."""
    if not readings:
        return NOT_EXPOSED
    numbers = []
    for reading in readings:
        if isinstance(reading, Missing):
            return reading
        numbers.append(reading)
    return math.fsum(numbers)


def sum_of_known(readings: Iterable[Reading]) -> Reading:
    """The sum of what was counted: an engine that counts no such tokens has none."""
    known_readings = [reading for reading in readings if not isinstance(reading, Missing)]
    return sum_of_all(known_readings)


def quotient(dividend: Reading, divisor: Reading) -> Reading:
    """`dividend / divisor`; idle where there is nothing to divide by."""
    return divide(dividend, divisor, Missing(Reason.IDLE))

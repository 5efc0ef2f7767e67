"""Goodput: the share of an engine's requests (or tokens) of the last minutes whose latency was within its goal."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from gpumon.efficiency.tracks import RATE_S, CounterWindow, Track
from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EngineKind, HistogramReading
from gpumon.readings.goals import ASSUMED_ITL_S, ASSUMED_TTFT_S, HTTP_S, PROMISED, Goals
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading, Reason, number
from gpumon.readings.snapshot import Goodput, WithinGoal

_BOUND_TOLERANCE: Final = 1e-9
"""Relative difference up to which a bound is the goal: engines print 0.05 in several ways."""
_WITH_MEAN_ITL: Final = frozenset({EngineKind.TGI, EngineKind.TENSORRT_LLM})
"""Kinds whose ITL histogram has one mean per request, not a gap per token."""
_OTHER_GOALS: Final = Missing(Reason.NOT_SUPPORTED, "the engines have other goals")
_IDLE: Final = Missing(Reason.IDLE)
_NO_TOKEN: Final = Missing(Reason.IDLE, "no token comes while requests run or wait: they may all be late")
_PROMPT_COUNTERS: Final = (q.PREFILL_COMPUTED, q.PREFILL_CACHED)
"""Counters that move while an engine computes prompts."""
_FULL_WINDOW: Final = 0.8
"""Share of a window's length that the polls have to cover: they come a second late now and then."""
NO_GOAL: Final = Missing(Reason.NOT_GIVEN, "[goals] has no such goal")


class BoundOfField(NamedTuple):
    """A field of `Goodput` and what it is worked out from."""

    field: str
    quantity: str
    """Histogram of the latency."""
    bound_s: float
    http_s: float = 0.0
    """Longest time that a user waits in addition: before a first token, not between two."""


class Bounds(msgspec.Struct, frozen=True):
    """Latencies that requests are held against."""

    ttft_s: float
    tpot_s: float
    """For a request's mean time between its tokens."""
    itl_s: float
    """For the gap between two tokens."""
    ttft_assumed: bool
    """The config has no such goal."""
    itl_assumed: bool

    def by_field(self, kind: EngineKind) -> tuple[BoundOfField, ...]:
        """The fields of `Goodput` that engines of a kind have, with their bounds."""
        ttft = BoundOfField("ttft_goal", q.TTFT, self.ttft_s, HTTP_S)
        if kind in _WITH_MEAN_ITL:
            return (ttft, BoundOfField("tpot_goal", q.ITL, self.tpot_s))
        return (ttft, BoundOfField("itl_goal", q.ITL, self.itl_s), BoundOfField("tpot_goal", q.TPOT, self.tpot_s))


def goal_bounds(goals: Goals) -> Bounds:
    """The bounds of these goals. Without a goal of its own a latency is held against the one that is assumed.

    A request's mean and a gap have one goal where only one of them has a goal: an engine may export the other alone.
    """
    ttft_s = ASSUMED_TTFT_S if goals.ttft_s is None else goals.ttft_s
    return Bounds(
        ttft_s=ttft_s,
        tpot_s=goals.tpot_s or goals.itl_s or ASSUMED_ITL_S,
        itl_s=goals.itl_s or goals.tpot_s or ASSUMED_ITL_S,
        ttft_assumed=goals.ttft_s is None,
        itl_assumed=goals.itl_s is None and goals.tpot_s is None,
    )


def derive_goodput(track: Track, goals: Goals) -> Goodput:
    """The shares of the last minutes."""
    bounds = goal_bounds(goals)
    kind = track.reading.kind if track.reading is not None else EngineKind.UNKNOWN
    stands_still = _stands_still(track, max(RATE_S, bounds.ttft_s))
    shares = {}
    for bound in bounds.by_field(kind):
        share = _within_goal(track, bound)
        if stands_still and not isinstance(share.count, Missing):
            # The share of those that ended before says nothing of those that have waited ever since.
            share = _unknown_share(_NO_TOKEN, share.goal_s, count=0.0)
        shares[bound.field] = share
    return Goodput(**shares, ttft_goal_assumed=bounds.ttft_assumed, itl_goal_assumed=bounds.itl_assumed)


def _stands_still(track: Track, seconds: float) -> bool:
    """Whether requests have run or waited in the last `seconds` without a break, and no token was counted."""
    if track.advance_of(q.DECODE_TOKENS) is not Advance.LIVE:
        return False
    window = track.window(max(seconds, track.short.seconds))
    if window.length_s < _FULL_WINDOW * seconds or _counts_tokens(window):
        return False
    gauges = (window.samples(q.RUNNING), window.samples(q.WAITING))
    return any(samples and min(samples) > 0.0 for samples in gauges)


def _counts_tokens(window: CounterWindow) -> bool:
    """Whether an engine has counted a token in a window; True also where that is not known of generated ones."""
    if window.rate(q.DECODE_TOKENS) != 0.0:
        return True
    return any(number(window.rate(counter)) for counter in _PROMPT_COUNTERS)


def no_goodput(why: Missing) -> Goodput:
    """Goodput with every share missing for one reason."""
    unknown = _unknown_share(why, why, why)
    return Goodput(ttft_goal=unknown, itl_goal=unknown, tpot_goal=unknown)


def _unknown_share(why: Missing, goal_s: Reading, count: Reading) -> WithinGoal:
    """A share that is missing for one reason."""
    return WithinGoal(low_ratio=why, high_ratio=why, goal_s=goal_s, count=count, users_low_ratio=why)


def _within_goal(track: Track, bound: BoundOfField) -> WithinGoal:
    """The share of a histogram's observations of the last minutes that were within a goal."""
    observed = track.minutes.histogram(bound.quantity)
    why = track.why_no_rate_yet if observed is None and track.has_histogram(bound.quantity) else NOT_EXPOSED
    if observed is None or len(observed.bounds) < 2:
        return _unknown_share(why, bound.bound_s, why)
    return share_within(observed, bound.bound_s, bound.http_s)


def share_within(observed: HistogramReading, goal_s: float, http_s: float = 0.0) -> WithinGoal:
    """The share of observations that were at most as long as a goal.

    It is exact where the goal is the bound of a bucket, else it lies between the shares at the bounds around it. Who
    waits up to `http_s` longer than is observed surely kept the goal only where the engine was so much faster.
    """
    count = observed.counts[-1]
    if count <= 0.0:
        return _unknown_share(_IDLE, goal_s, count=0.0)
    return WithinGoal(
        low_ratio=_least_within(observed, goal_s) / count,
        high_ratio=most_within(observed, goal_s) / count,
        goal_s=goal_s,
        count=count,
        users_low_ratio=_least_within(observed, goal_s - http_s) / count,
    )


def _least_within(observed: HistogramReading, limit_s: float) -> float:
    """Number of observations that were surely within a limit: those up to the last bound that is not above it."""
    within = 0.0
    for bound, cumulative in zip(observed.bounds, observed.counts, strict=True):
        if bound > limit_s and not _is_limit(bound, limit_s):
            break
        within = cumulative
    return within


def most_within(observed: HistogramReading, limit_s: float) -> float:
    """Number of observations that can have been within a limit: those up to the first bound that is not below it."""
    for bound, cumulative in zip(observed.bounds, observed.counts, strict=True):
        if bound >= limit_s or _is_limit(bound, limit_s):
            return cumulative
    return observed.counts[-1]


def _is_limit(bound: float, limit_s: float) -> bool:
    """Whether the bound of a bucket is a limit."""
    return math.isclose(bound, limit_s, rel_tol=_BOUND_TOLERANCE)


def share_of_all(shares: Iterable[WithinGoal]) -> WithinGoal:
    """The share over the requests of several engines; missing where one of them has none, or another goal."""
    observed: list[WithinGoal] = []
    goal_s: Reading = NOT_EXPOSED
    for share in shares:
        if isinstance(share.count, Missing):
            return _unknown_share(share.count, share.goal_s, share.count)
        if isinstance(goal_s, Missing):
            goal_s = share.goal_s
        if share.goal_s != goal_s:
            return _unknown_share(_OTHER_GOALS, _OTHER_GOALS, _OTHER_GOALS)
        observed.append(share)
    if isinstance(goal_s, Missing):
        return WithinGoal()
    count = math.fsum(number(share.count) or 0.0 for share in observed)
    if count <= 0.0:
        return _unknown_share(_IDLE, goal_s, count=0.0)
    return WithinGoal(
        low_ratio=_ratio_of_all(observed, "low_ratio"),
        high_ratio=_ratio_of_all(observed, "high_ratio"),
        goal_s=goal_s,
        count=count,
        users_low_ratio=_ratio_of_all(observed, "users_low_ratio"),
    )


def _ratio_of_all(shares: Iterable[WithinGoal], field: str) -> Reading:
    """The mean of a ratio, weighted by requests; the first reason of one that has requests and no ratio."""
    within = 0.0
    total = 0.0
    for share in shares:
        count = number(share.count)
        ratio: Reading = getattr(share, field)
        if not count:
            continue
        if isinstance(ratio, Missing):
            return ratio
        within += ratio * count
        total += count
    return within / total if total else _IDLE


def field_of_itl_goal(goodput: Goodput) -> str:
    """Field with the share within the ITL goal: of requests by their mean where some of these ended, else of tokens."""
    if isinstance(goodput.tpot_goal.low_ratio, Missing):
        return "itl_goal"
    return "tpot_goal"


def within_itl_goal(goodput: Goodput) -> WithinGoal:
    """The share within the ITL goal, of requests or of tokens."""
    share: WithinGoal = getattr(goodput, field_of_itl_goal(goodput))
    return share


def is_in_doubt(least: Reading, most: Reading) -> bool:
    """Whether it is not known if the promised share kept a goal: it lies between the least and the largest share."""
    if isinstance(least, Missing) or isinstance(most, Missing):
        return False
    return least < PROMISED <= most


def promised_ttft(goodput: Goodput) -> Reading:
    """The least share of requests within the TTFT goal; missing where that is only assumed."""
    if goodput.ttft_goal_assumed:
        return NO_GOAL
    return goodput.ttft_goal.low_ratio


def promised_itl(goodput: Goodput) -> Reading:
    """The least share within the ITL goal; missing where that is only assumed."""
    if goodput.itl_goal_assumed:
        return NO_GOAL
    return within_itl_goal(goodput).low_ratio


def within_both_goals(goodput: Goodput) -> tuple[float, float] | None:
    """Least and largest share of requests within both goals as users see it, which no engine counts; None where one is
    not known of requests.

    At worst each request misses one goal alone, at best those that miss one are those that miss the other.
    """
    ttft = goodput.ttft_goal
    tpot = goodput.tpot_goal
    bounds = (ttft.users_low_ratio, ttft.high_ratio, tpot.users_low_ratio, tpot.high_ratio)
    known_bounds = [bound for bound in bounds if not isinstance(bound, Missing)]
    if len(known_bounds) < len(bounds):
        return None
    ttft_low, ttft_high, tpot_low, tpot_high = known_bounds
    return max(0.0, ttft_low + tpot_low - 1.0), min(ttft_high, tpot_high)

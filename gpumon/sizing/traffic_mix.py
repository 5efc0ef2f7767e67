"""Traffic mixes: mean lengths that belong together, the operating points of one mix, and how its lengths spread."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from gpumon.sizing.length_tail import LengthShare, problem_of
from gpumon.sizing.profile import MOST_POINTS, Point, load_level, merge_points

MOST_WINDOWS: Final = 8
"""Windows kept of one bucket; the oldest goes first."""
_MOST_TAILS: Final = 16
"""Ratios of p95 to the mean that are kept of one mix; the oldest goes first."""
_KEPT_S: Final = 4 * 3600.0
"""Windows this much older than the newest one of their mix are dropped: drivers, clocks and neighbours change."""
_SAME_FACTOR: Final = 1.5
"""Mean lengths within this factor are one mix."""
_STEADY_AFTER: Final = 20
"""Windows, or histograms of lengths, from which on a mean moves by a twentieth of the difference to the next one."""
_ROUNDING_TOKENS: Final = 16.0
"""Added to the computed tokens of two prompts before these are compared: a prefix cache hits whole blocks, so that a
few tokens more or less say nothing. vLLM's block has 16 by default (`CacheConfig.DEFAULT_BLOCK_SIZE`)."""


class MeanLengths(NamedTuple):
    """Mean lengths of the requests of a mix."""

    prompt_tokens: float
    """Cached ones included."""
    answer_tokens: float
    hit_ratio: float | None
    """Share of the prompt's tokens that came from the prefix cache; None: not known."""

    def distance(self, other: MeanLengths) -> float:
        """Largest logarithm of a ratio between the two: of prompts, of computed prompts, of answers."""
        pairs = zip(self._compared_tokens(), other._compared_tokens(), strict=True)
        return max(abs(math.log(ours / theirs)) for ours, theirs in pairs)

    def moved_towards(self, target: MeanLengths, share: float) -> MeanLengths:
        """This one moved by a share of the way to another."""
        prompt = self.prompt_tokens + share * (target.prompt_tokens - self.prompt_tokens)
        answer = self.answer_tokens + share * (target.answer_tokens - self.answer_tokens)
        hit = self.hit_ratio
        if hit is None:
            hit = target.hit_ratio
        elif target.hit_ratio is not None:
            hit += share * (target.hit_ratio - hit)
        return MeanLengths(prompt, answer, hit)

    def _compared_tokens(self) -> tuple[float, float, float]:
        """Tokens of the prompt, of its computed part and of the answer; never 0, so that they have a logarithm."""
        computed = self.prompt_tokens * (1.0 - (self.hit_ratio or 0.0))
        return self.prompt_tokens + 1.0, computed + _ROUNDING_TOKENS, self.answer_tokens + 1.0


class MixPoints:
    """Windows of one traffic mix by load level. At most 64 levels of 8 windows (140 kB), of the last 4 hours."""

    def __init__(self, traffic: MeanLengths) -> None:
        self.traffic = traffic
        self.last_s = -math.inf
        """End of the newest window."""
        self.tpot_tails: deque[float] = deque(maxlen=_MOST_TAILS)
        """p95 / mean of the TPOT over requests, of the last windows."""
        self.itl_tails: deque[float] = deque(maxlen=_MOST_TAILS)
        """p95 / mean of the ITL in the last windows, where it can be told."""
        self.ttft_tails: deque[float] = deque(maxlen=_MOST_TAILS)
        """p95 / mean of the TTFT in the last windows without a queue, where it can be told."""
        self._window_count = 0
        self._buckets: dict[int, deque[tuple[float, Point]]] = {}
        """Load level -> (end of the window, its point), the newest last."""
        self._points: tuple[Point, ...] | None = ()
        """Points of the buckets; None: they have to be merged anew."""

    def covers(self, traffic: MeanLengths, requests: float) -> bool:
        """Whether `traffic`, the mean of so many requests, is this mix: a mean of few is itself uncertain."""
        return self.traffic.distance(traffic) <= math.log(_SAME_FACTOR) + 1.0 / math.sqrt(max(requests, 1.0))

    def add(self, time_s: float, point: Point, traffic: MeanLengths) -> None:
        """Take one window in; the mix's lengths follow. Too old windows go, and of too many buckets the stalest."""
        self._window_count += 1
        self.traffic = self.traffic.moved_towards(traffic, 1.0 / min(self._window_count, _STEADY_AFTER))
        self.last_s = max(self.last_s, time_s)
        bucket = self._buckets.setdefault(load_level(point.running), deque(maxlen=MOST_WINDOWS))
        bucket.append((time_s, point))
        self._drop_old_windows()
        while len(self._buckets) > MOST_POINTS:
            del self._buckets[min(self._buckets, key=lambda level: self._buckets[level][-1][0])]
        self._points = None

    def _drop_old_windows(self) -> None:
        """Drop the windows that are hours older than the newest one, and buckets without any left."""
        for level, windows in list(self._buckets.items()):
            while windows and windows[0][0] < self.last_s - _KEPT_S:
                windows.popleft()
            if not windows:
                del self._buckets[level]

    def points(self) -> tuple[Point, ...]:
        """A point per bucket by rising load: medians of its windows, with their number as weight."""
        if self._points is None:
            points = [merge_points([point for _, point in windows]) for _, windows in sorted(self._buckets.items())]
            self._points = tuple(points)
        return self._points


LengthSteps = tuple[tuple[float, float], ...]
"""(upper bound of a length in tokens, share of the requests that are at most so long), by rising bound."""


class LengthMeans:
    """A histogram of lengths over some minutes: each one that is taken in moves its shares towards its own."""

    def __init__(self) -> None:
        self._steps: LengthSteps = ()
        self._taken = 0

    def take(self, steps: LengthSteps) -> None:
        """Take in the histogram of the last minute. Other bounds than before are another engine's: all starts anew."""
        if not steps or problem_of(_length_shares(steps)):
            return
        if _bounds(steps) != _bounds(self._steps):
            self._steps = steps
            self._taken = 1
            return
        self._taken = min(self._taken + 1, _STEADY_AFTER)
        mean = [
            (bound, before + (now - before) / self._taken)
            for (bound, before), (_, now) in zip(self._steps, steps, strict=True)
        ]
        self._steps = tuple(mean)

    def shares(self) -> tuple[LengthShare, ...]:
        """The histogram with the bounds of those steps alone that requests are in: the upper one and the one below."""
        edges = []
        last = len(self._steps) - 1
        for index, (bound, share) in enumerate(self._steps):
            before = self._steps[index - 1][1] if index else 0.0
            after = self._steps[index + 1][1] if index < last else share
            if share > before or after > share:
                edges.append((bound, min(share, 1.0)))
        return _length_shares(edges)


def _bounds(steps: LengthSteps) -> list[float]:
    """The upper bounds of the lengths."""
    return [bound for bound, _ in steps]


def _length_shares(steps: Iterable[tuple[float, float]]) -> tuple[LengthShare, ...]:
    """The steps as a profile has them."""
    return tuple(LengthShare(bound, share) for bound, share in steps)

"""Operating points of one traffic mix, window by window: medians per bucket of concurrency, bounded and aged."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from statistics import median
from typing import Final, NamedTuple

from gpumon.readings.snapshot import Quantiles
from gpumon.sizing.observed import MOST_POINTS, Point, level

MOST_WINDOWS: Final = 8
"""Of one bucket; the oldest goes first."""
MOST_TAILS: Final = 16
KEPT_S: Final = 4 * 3600.0
"""Windows this much older than the newest one of their mix are dropped: drivers, clocks and neighbours change."""
SAME_FACTOR: Final = 1.5
"""Mean lengths within this factor are one mix."""
COARSEST: Final = 2.0
"""Upper over lower bound of a histogram's bucket above which a quantile in it says too little."""
_STEADY_AFTER: Final = 20
"""Windows after which a mix's mean lengths move by no more than a twentieth of the difference."""
_ROUNDING_TOKENS: Final = 16.0


class Traffic(NamedTuple):
    """Mean lengths in tokens, cached ones in the prompt included; the hit ratio is None where it is not known."""

    prompt_tokens: float
    answer_tokens: float
    hit_ratio: float | None

    def distance(self, other: Traffic) -> float:
        """Largest logarithm of a ratio between the two: of prompts, of computed prompts, of answers."""
        return max(abs(math.log(a / b)) for a, b in zip(self._costs(), other._costs(), strict=True))

    def moved(self, to: Traffic, share: float) -> Traffic:
        """This one moved by a share of the way to another."""
        hit = to.hit_ratio
        if hit is not None and self.hit_ratio is not None:
            hit = self.hit_ratio + share * (hit - self.hit_ratio)
        return Traffic(
            self.prompt_tokens + share * (to.prompt_tokens - self.prompt_tokens),
            self.answer_tokens + share * (to.answer_tokens - self.answer_tokens),
            self.hit_ratio if hit is None else hit,
        )

    def _costs(self) -> tuple[float, float, float]:
        computed = self.prompt_tokens * (1.0 - (self.hit_ratio or 0.0))
        return self.prompt_tokens + 1.0, computed + _ROUNDING_TOKENS, self.answer_tokens + 1.0


class Seen(NamedTuple):
    """One window of one instance; None is not known."""

    time_s: float
    running: float
    itl_s: float
    ttft_s: float | None = None
    tokens_per_s: float | None = None
    requests_per_s: float | None = None
    power_w: float | None = None
    busy_ratio: float | None = None
    itl_p95_s: float | None = None
    """Where it can be told; of the same load as the means."""
    ttft_p95_s: float | None = None


class Gathered:
    """The windows of one mix. At most 64 buckets of 8 windows (140 kB), of the last 4 hours."""

    def __init__(self, traffic: Traffic) -> None:
        self.traffic = traffic
        self.windows = 0
        """Taken in, dropped ones included."""
        self.last_s = -math.inf
        self._buckets: dict[int, deque[Seen]] = {}
        self._itl_tails: deque[float] = deque(maxlen=MOST_TAILS)
        self._ttft_tails: deque[float] = deque(maxlen=MOST_TAILS)
        self._points: tuple[Point, ...] | None = ()

    def holds(self, traffic: Traffic, requests: float) -> bool:
        """Whether `traffic`, the mean of so many requests, is this mix: a mean of few is itself uncertain."""
        return self.traffic.distance(traffic) <= math.log(SAME_FACTOR) + 1.0 / math.sqrt(max(requests, 1.0))

    def add(self, seen: Seen, traffic: Traffic) -> None:
        """Take one window in; the mix's lengths follow."""
        self.windows += 1
        self.traffic = self.traffic.moved(traffic, 1.0 / min(self.windows, _STEADY_AFTER))
        self.last_s = max(self.last_s, seen.time_s)
        self._buckets.setdefault(level(seen.running), deque(maxlen=MOST_WINDOWS)).append(seen)
        self._forget()
        self._points = None

    def add_tails(self, itl: float | None, ttft: float | None) -> None:
        """Take in p95 / mean of two latencies; None: not to be told."""
        for tails, ratio in ((self._itl_tails, itl), (self._ttft_tails, ttft)):
            if ratio is not None:
                tails.append(ratio)

    @property
    def itl_tail_ratio(self) -> float | None:
        """p95 / mean of the ITL, median of the last windows."""
        return median(self._itl_tails) if self._itl_tails else None

    @property
    def ttft_tail_ratio(self) -> float | None:
        """The same of the TTFT of requests that did not queue."""
        return median(self._ttft_tails) if self._ttft_tails else None

    def points(self) -> tuple[Point, ...]:
        """Medians per bucket by rising concurrency, with the number of windows as weight."""
        if self._points is None:
            self._points = tuple(_point(self._buckets[key]) for key in sorted(self._buckets))
        return self._points

    def _forget(self) -> None:
        """Drop what is too old, and the buckets not met for longest where there are too many."""
        for key, seen in list(self._buckets.items()):
            while seen and seen[0].time_s < self.last_s - KEPT_S:
                seen.popleft()
            if not seen:
                del self._buckets[key]
        while len(self._buckets) > MOST_POINTS:
            del self._buckets[min(self._buckets, key=lambda key: self._buckets[key][-1].time_s)]


def tail_ratio(latency: Quantiles) -> float | None:
    """p95 / mean, at least 1; None with few observations or where p95 fell in an open, first or too wide bucket."""
    p95, mean, low, high = latency.p95, latency.mean, latency.p95_low, latency.p95_high
    if not (isinstance(p95, float) and isinstance(mean, float) and isinstance(low, float) and isinstance(high, float)):
        return None
    if not 0.0 < mean < math.inf or not math.isfinite(p95) or low <= 0.0 or high > COARSEST * low:
        return None
    return max(1.0, p95 / mean)


def _point(windows: Iterable[Seen]) -> Point:
    seen = list(windows)
    return Point(
        running=median(one.running for one in seen),
        itl_s=median(one.itl_s for one in seen),
        ttft_s=_median(one.ttft_s for one in seen),
        tokens_per_s=_median(one.tokens_per_s for one in seen),
        requests_per_s=_median(one.requests_per_s for one in seen),
        power_w=_median(one.power_w for one in seen),
        busy_ratio=_median(one.busy_ratio for one in seen),
        itl_p95_s=_median(one.itl_p95_s for one in seen),
        ttft_p95_s=_median(one.ttft_p95_s for one in seen),
        weight=len(seen),
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None

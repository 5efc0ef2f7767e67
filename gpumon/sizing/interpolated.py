"""ITL through measured points: between them no faster and no slower than they are, and a model beyond them alone."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

import msgspec

from gpumon.efficiency.ratio import require_not_negative
from gpumon.sizing.latency import Curve


class Interpolated(msgspec.Struct, frozen=True):
    """Mean ITL of one instance with b sequences running, through its measured points.

    Between two points it rises from one to the other in the shape of the model, so that it is exact at both and never
    outside of them. Below the first point and above the last one it is the model, scaled to that point.
    """

    loads: tuple[float, ...]
    """Running sequences of the points, rising; at least one."""
    itls_s: tuple[float, ...]
    """Seconds per output token at these loads, never falling."""
    model: Curve
    most_tokens_per_s: float = math.inf
    """Output tokens per second that no load goes beyond: the most that a load test measured."""

    def itl_s(self, running: float) -> float:
        """Mean seconds per output token with `running` sequences. Raises ValueError for a negative or infinite load."""
        require_not_negative("running", running)
        return max(self._through_points_s(running), running / self.most_tokens_per_s)

    def _through_points_s(self, running: float) -> float:
        """Seconds per output token by points and model, whatever throughput that is."""
        above = bisect_right(self.loads, running)
        if above == 0 or above == len(self.loads):
            end = min(above, len(self.loads) - 1)
            return self.itls_s[end] * self.model.itl_s(running) / self.model.itl_s(self.loads[end])
        low = self.loads[above - 1]
        high = self.loads[above]
        low_s = self.model.itl_s(low)
        high_s = self.model.itl_s(high)
        if high_s > low_s:
            share = (self.model.itl_s(running) - low_s) / (high_s - low_s)
        else:
            share = (running - low) / (high - low)
        return self.itls_s[above - 1] + share * (self.itls_s[above] - self.itls_s[above - 1])

    def tokens_per_s(self, running: float) -> float:
        """Output tokens per second of `running` sequences: b / ITL(b)."""
        if require_not_negative("running", running):
            return running / self.itl_s(running)
        return 0.0

    def moved(self, model: Curve) -> Interpolated:
        """The line of another server or other lengths, by their model: each point stays as far from it as it was."""
        itls_s = [
            itl_s * model.itl_s(running) / self.model.itl_s(running)
            for running, itl_s in zip(self.loads, self.itls_s, strict=True)
        ]
        rising_s = never_falling(itls_s, [1.0] * len(itls_s))
        return Interpolated(self.loads, rising_s, model, self.most_tokens_per_s * self.itls_s[-1] / rising_s[-1])


ItlCurve = Curve | Interpolated
"""Mean ITL over the running sequences: by a model alone, or through measured points."""


def never_falling(values: Sequence[float], weights: Sequence[float]) -> tuple[float, ...]:
    """The nearest values that never fall (isotonic regression): where values fall, each is the weighted mean of them.

    Pool adjacent violators (Ayer et al. 1955): the least squares solution.
    """
    pools: list[tuple[float, float, int]] = []  # mean, weight, number of values
    for value, weight in zip(values, weights, strict=True):
        mean = value
        count = 1
        while pools and pools[-1][0] > mean:
            last_mean, last_weight, last_count = pools.pop()
            mean = (last_mean * last_weight + mean * weight) / (last_weight + weight)
            weight += last_weight
            count += last_count
        pools.append((mean, weight, count))
    return tuple(mean for mean, _, count in pools for _ in range(count))

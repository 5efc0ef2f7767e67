"""Bounded history of plotted values: rings of doubles in which NaN is a gap."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping
from typing import Final

_STEP_BACK_S: Final = 1.0
"""The clock wanders by less; by more, it was set back, and what lies before is another past."""


class Ring:
    """A fixed number of the newest (time, value) pairs. Appending past the end overwrites the oldest."""

    __slots__ = ("_next", "_size", "_times", "_values", "capacity")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._times = array("d", bytes(8 * capacity))
        self._values = array("d", bytes(8 * capacity))
        self._next = 0
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def append(self, time_s: float, value: float) -> None:
        """Add one value; NaN is a gap."""
        self._times[self._next] = time_s
        self._values[self._next] = value
        self._next = (self._next + 1) % self.capacity
        self._size = min(self._size + 1, self.capacity)

    def since(self, time_s: float) -> Iterable[tuple[float, float]]:
        """The pairs at or after `time_s`, newest first, back to where the clock was set back."""
        at = self._next
        later_s = math.inf
        for _ in range(self._size):
            at = (at - 1) % self.capacity
            if not time_s <= self._times[at] <= later_s + _STEP_BACK_S:
                return
            later_s = self._times[at]
            yield later_s, self._values[at]


class History:
    """Named series over the same wall clock, for charts. Memory is bounded by `capacity` x `most_series`."""

    def __init__(self, capacity: int = 7200, most_series: int = 128) -> None:
        self._capacity = capacity
        self._most = most_series
        self._rings: dict[str, Ring] = {}

    def append(self, wall_s: float, points: Mapping[str, float]) -> None:
        """Add one point per series; a series not in `points` gets nothing, and so shows a gap there."""
        for key, value in points.items():
            ring = self._rings.get(key)
            if ring is None:
                if len(self._rings) >= self._most:
                    continue
                ring = self._rings[key] = Ring(self._capacity)
            ring.append(wall_s, value)

    def keys(self) -> tuple[str, ...]:
        """Names of the series seen so far, in order of appearance."""
        return tuple(self._rings)

    def latest(self, key: str, wall_s: float) -> float:
        """The value of the point at exactly `wall_s`, whatever came after it; NaN where there is none."""
        ring = self._rings.get(key)
        for time_s, value in ring.since(wall_s) if ring is not None else ():
            if time_s == wall_s:
                return value
        return math.nan

    def buckets(
        self, key: str, newest_bucket: int, count: int, width_s: float, until_s: float = math.inf
    ) -> list[float]:
        """Means of `count` buckets of `width_s` seconds of wall time, oldest first.

        Bucket n covers [n * width_s, (n + 1) * width_s); `newest_bucket` is the last one returned. A bucket without a
        value is NaN. Points after `until_s` do not count: a paused display shows the same however often it is drawn.
        """
        sums = [0.0] * count
        counts = [0] * count
        ring = self._rings.get(key)
        first = newest_bucket - count + 1
        for time_s, value in ring.since(first * width_s) if ring is not None else ():
            at = math.floor(time_s / width_s) - first
            if 0 <= at < count and time_s <= until_s and value == value:
                sums[at] += value
                counts[at] += 1
        return [s / n if n else math.nan for s, n in zip(sums, counts, strict=True)]

"""One engine's polls over time: counters to totals and rates, with restarts, gaps and bunched polls handled."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gpumon.efficiency.quantiles import difference, mean, merge
from gpumon.readings.frame import EndpointState, EngineReading, HistogramReading, RankReading
from gpumon.readings.missing import NOT_EXPOSED, WARMING_UP, Missing, Reading, Reason
from gpumon.readings.quantities import DECODE_TOKENS, PREFILL_CACHED, PREFILL_COMPUTED, RUNNING

KEPT_S = 60.0
"""Longest ordinary window (quantiles)."""
MOST_KEPT_S = 600.0
"""Longest window at all (prefill of very long prompts)."""
GAP = 3.0
"""A pause of more than this many intervals starts the windows over."""
TOTALS = (PREFILL_COMPUTED, PREFILL_CACHED, DECODE_TOKENS)


class Point(NamedTuple):
    """The state of all ranks at one poll."""

    monotonic_s: float
    ranks: Mapping[str, RankReading]

    def counter(self, quantity: str) -> float | None:
        """Sum over the ranks; None where no rank has it."""
        return _sum(rank.counters.get(quantity) for rank in self.ranks.values())

    def gauge(self, quantity: str) -> float | None:
        """Sum over the ranks; None where no rank has it."""
        return _sum(rank.gauges.get(quantity) for rank in self.ranks.values())

    def histogram(self, quantity: str) -> HistogramReading | None:
        """Sum over the ranks; None where no rank has it."""
        found = (rank.histograms.get(quantity) for rank in self.ranks.values())
        return merge([histogram for histogram in found if histogram is not None])


class Track:
    """The window of one engine. Times are seconds of `Frame.monotonic_s`'s clock."""

    def __init__(self) -> None:
        self.points: deque[Point] = deque()
        self.totals: dict[str, float] = {}
        self.was_reset = False
        self._known: dict[str, RankReading] = {}
        self._last_s = float("-inf")
        self._started_wall_s = 0.0
        self._seen_down = False
        self.keep_s = KEPT_S

    def add(self, reading: EngineReading) -> bool:
        """Take in one poll. Returns whether it was a new good answer."""
        if reading.state is not EndpointState.OK:
            # Without a fault it is `starting` only because it has not been polled yet.
            down = reading.fault and reading.state is EndpointState.STARTING
            self._seen_down = self._seen_down or bool(down) or reading.state is EndpointState.REFUSED
            return False
        if reading.monotonic_s <= self._last_s or not reading.ranks:
            return False
        reset = self._restarted(reading)
        self._count(reading, from_zero=reset or (not self._known and self._seen_down))
        if reset:
            self.points.clear()
            self._known.clear()
            self.was_reset = True
        self._known.update((rank.rank, _carried(self._known.get(rank.rank), rank)) for rank in reading.ranks)
        self._started_wall_s = reading.started_wall_s or self._started_wall_s
        self._append(reading)
        self._last_s = reading.monotonic_s
        return True

    def _restarted(self, reading: EngineReading) -> bool:
        if not self._known:
            return False
        started = reading.started_wall_s
        if started and self._started_wall_s and abs(started - self._started_wall_s) > 1.0:
            return True
        return any(_fell(self._known.get(rank.rank), rank) for rank in reading.ranks)

    def _count(self, reading: EngineReading, *, from_zero: bool) -> None:
        """Grow the totals; a counter seen for the first time is a base line unless the engine started just now."""
        for rank in reading.ranks:
            known = None if from_zero else self._known.get(rank.rank)
            for quantity in TOTALS:
                new = rank.counters.get(quantity)
                if new is None:
                    continue
                old = 0.0 if from_zero else known.counters.get(quantity, new) if known else new
                self.totals[quantity] = self.totals.get(quantity, 0.0) + max(0.0, new - old)

    def _append(self, reading: EngineReading) -> None:
        now_s, interval_s = reading.monotonic_s, reading.interval_s
        if self.points:
            since_s = now_s - self.points[-1].monotonic_s
            if since_s > max(GAP * interval_s, 3.0):
                self.points.clear()
            elif since_s < interval_s / 2:
                return
        self.points.append(Point(now_s, dict(self._known)))
        if len(self.points) > 2:
            self.was_reset = False
        while self.points[0].monotonic_s < now_s - self.keep_s - interval_s:
            self.points.popleft()

    def window(self, seconds: float) -> tuple[Point, Point] | None:
        """Oldest and newest point of the last `seconds` (half a poll of slack); None with fewer than two points."""
        if len(self.points) < 2:
            return None
        newest = self.points[-1]
        slack_s = (newest.monotonic_s - self.points[-2].monotonic_s) / 2
        start_s = newest.monotonic_s - seconds - slack_s
        oldest = next(point for point in self.points if point.monotonic_s >= start_s)
        return (oldest, newest) if oldest is not newest else (self.points[-2], newest)

    def inside(self, seconds: float) -> list[Point]:
        """The points of the last `seconds`, oldest first."""
        start_s = self.points[-1].monotonic_s - seconds if self.points else 0.0
        return [point for point in self.points if point.monotonic_s >= start_s]

    @property
    def not_yet(self) -> Missing:
        """Why there is no rate: restarted a moment ago, or too few polls."""
        return Missing(Reason.RESET) if self.was_reset else WARMING_UP

    def rate(self, quantity: str, seconds: float) -> Reading:
        """Mean increase per second of a counter over the last `seconds`."""
        pair = self.window(seconds)
        if pair is None:
            return self.not_yet if self._exposed(quantity) else NOT_EXPOSED
        old, new = pair[0].counter(quantity), pair[1].counter(quantity)
        if old is None or new is None:
            return NOT_EXPOSED
        return (new - old) / (pair[1].monotonic_s - pair[0].monotonic_s)

    def histogram(self, quantity: str, seconds: float) -> HistogramReading | None:
        """Observations of the last `seconds`; None where not exposed or without two points."""
        pair = self.window(seconds)
        return difference(pair[0].histogram(quantity), pair[1].histogram(quantity)) if pair else None

    def rank_mean(self, rank: str, quantity: str, seconds: float) -> Reading:
        """Mean of a histogram over the last `seconds` for one rank."""
        pair = self.window(seconds)
        if pair is None:
            return self.not_yet
        old, new = (point.ranks.get(rank) for point in pair)
        if old is None or new is None:
            return NOT_EXPOSED
        return mean(difference(old.histograms.get(quantity), new.histograms.get(quantity)))

    def duty(self, rank: str, seconds: float) -> Reading:
        """Share of the polls of the last `seconds` at which this rank had a request running."""
        seen = [point.ranks[rank].gauges.get(RUNNING) for point in self.inside(seconds) if rank in point.ranks]
        known = [running for running in seen if running is not None]
        return sum(running > 0 for running in known) / len(known) if known else NOT_EXPOSED

    def gauge(self, quantity: str) -> Reading:
        """The newest value, summed over the ranks."""
        if not self.points:
            return NOT_EXPOSED
        ranks = self._known.values()
        found = _sum(rank.gauges.get(quantity) for rank in ranks)
        return NOT_EXPOSED if found is None else found

    def gauge_mean(self, quantity: str) -> Reading:
        """The newest value, averaged over the ranks."""
        found = [rank.gauges[quantity] for rank in self._known.values() if quantity in rank.gauges]
        return sum(found) / len(found) if found else NOT_EXPOSED

    def _exposed(self, quantity: str) -> bool:
        return any(quantity in rank.counters for rank in self._known.values())


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _fell(old: RankReading | None, new: RankReading) -> bool:
    if old is None:
        return False
    if any(value < old.counters.get(quantity, value) for quantity, value in new.counters.items()):
        return True
    return any(
        quantity in old.histograms and histogram.count < old.histograms[quantity].count
        for quantity, histogram in new.histograms.items()
    )


def _carried(old: RankReading | None, new: RankReading) -> RankReading:
    """`new` with the series that this poll lacked taken from `old`: absent in one answer is not gone."""
    if old is None or (old.counters.keys() <= new.counters.keys() and old.histograms.keys() <= new.histograms.keys()):
        return new
    return RankReading(new.rank, {**old.counters, **new.counters}, new.gauges, {**old.histograms, **new.histograms})

"""One engine's polls over time: counters to totals and rates, with restarts, gaps and bunched polls handled."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gpumon.efficiency.quantiles import difference, mean, merge
from gpumon.efficiency.resets import LEFT, began_anew, carried, fell, series
from gpumon.readings.frame import Advance, EndpointState, EngineReading, HistogramReading, RankReading
from gpumon.readings.missing import NOT_EXPOSED, WARMING_UP, Missing, Reading, Reason
from gpumon.readings.quantities import (
    DECODE_TOKENS,
    PREFILL_CACHED,
    PREFILL_COMPUTED,
    RUNNING,
    SAMPLES,
    TRAINED_TOKENS,
)

RATE_S = 10.0
"""Window of the shown rates, where readings come often enough for it."""
QUANTILE_S = 60.0
"""Window of the latency quantiles, likewise."""
LEAST_INTERVALS = 2.0
"""A window holds at least so many intervals between readings: it grows with them."""
MOST_KEPT_S = 600.0
"""Longest window that a long prompt asks for."""
GAP = 3.0
"""A pause of more than this many intervals starts the windows over."""
GONE_S = 10.0
"""A rank that no answer held for this long is gone."""
TOTALS = (PREFILL_COMPUTED, PREFILL_CACHED, DECODE_TOKENS, TRAINED_TOKENS, SAMPLES)


def grown(shortest_s: float, cadence_s: float) -> float:
    """Seconds of a window of at least `shortest_s` over readings that come every `cadence_s` seconds."""
    return max(shortest_s, LEAST_INTERVALS * cadence_s)


class Point(NamedTuple):
    """The state of all ranks at one poll."""

    monotonic_s: float
    ranks: Mapping[str, RankReading]
    carried: Mapping[str, frozenset[str]] = {}
    """Rank -> counters and histograms that this answer lacked: they stand as they were, and tell nothing of it."""

    def total(self, counter: str) -> float | None:
        """A counter, summed over the ranks; None where none has it."""
        return sum_known(rank.counters.get(counter) for rank in self.ranks.values())


class _Asked:
    """What has been asked of the points as they stand: several figures stand on the same window."""

    __slots__ = ("counters", "histograms", "inside", "rates", "windows")

    def __init__(self) -> None:
        self.windows: dict[float, tuple[Point, Point] | None] = {}
        self.inside: dict[float, list[Point]] = {}
        self.rates: dict[tuple[str, float], float | None] = {}
        self.histograms: dict[tuple[str, float], HistogramReading | None] = {}
        self.counters: set[str] | None = None
        """What any of its ranks counts; None until it is asked for."""


class Track:
    """The window of one engine. Times are seconds of `Frame.monotonic_s`'s clock, `wall_s` is Unix time."""

    def __init__(self) -> None:
        self.points: deque[Point] = deque()
        self.totals: dict[str, float] = {}
        self.polls = 0
        """Good answers taken in."""
        self.was_reset = False
        self.several_servers = False
        """The process start time changed back: a balancer sends the polls to several servers in turn."""
        self.keep_s = QUANTILE_S
        self.cadence_s = 0.0
        """Seconds between two readings: the longer of the engine's interval and the frames'."""
        self._paced_s = 0.0
        """The cadence when the newest point came: a pause that was none then is none after a change to a shorter."""
        self._known: dict[str, RankReading] = {}
        self._counted: dict[str, dict[str, float]] = {}
        """Rank -> counter -> up to where it is in the totals."""
        self._seen_s: dict[str, float] = {}
        self.last_s = float("-inf")
        """When the newest good answer was read."""
        self._good_wall_s = float("inf")
        """Unix time of the last good poll; of the first look where there was none."""
        self._started: deque[float] = deque(maxlen=4)
        self._moves: dict[str, Advance] = {}
        self.rate_s, self.quantile_s = RATE_S, QUANTILE_S
        """Windows of the rates and of the quantiles at this cadence."""
        self._asked = _Asked()

    def add(self, reading: EngineReading, wall_s: float, frames_s: float = 0.0) -> bool:
        """Take in one poll made at `wall_s`. Returns whether it was a new good answer.

        A frame has only the newest poll: where frames come every `frames_s`, slower than the polls, they set the pace.
        """
        self._pace(max(reading.interval_s, frames_s))
        if self._good_wall_s == float("inf"):
            self._good_wall_s = wall_s
        if reading.state is not EndpointState.OK or reading.monotonic_s <= self.last_s or not reading.ranks:
            return False
        self._asked = _Asked()
        another = self._is_another(reading)
        newborn = reading.started_wall_s > self._good_wall_s
        less = any(fell(self._known.get(rank.rank), rank) for rank in reading.ranks)
        reset = self._is_other_series(reading) or another or less
        if another:
            self._known.clear()
            self._counted.clear()
        self._count(reading, newborn=newborn)
        if reset:
            self.points.clear()
            self.was_reset = True
        self._remember(reading)
        self._append(reading)
        self.last_s, self._good_wall_s = reading.monotonic_s, wall_s
        self.polls += 1
        return True

    def _pace(self, cadence_s: float) -> None:
        if cadence_s != self.cadence_s:
            self.cadence_s = cadence_s
            self.rate_s, self.quantile_s = grown(RATE_S, cadence_s), grown(QUANTILE_S, cadence_s)

    def _is_another(self, reading: EngineReading) -> bool:
        """Whether the process that answered is not the one that answered before."""
        started = reading.started_wall_s
        if not started:
            return False
        same = [abs(started - known) <= 1.0 for known in self._started]
        self.several_servers = self.several_servers or (any(same) and not same[-1])
        if not any(same):
            self._started.append(started)
        elif not same[-1]:
            self._started.rotate(-1 - same.index(True))
        return bool(same) and not same[-1]

    def _is_other_series(self, reading: EngineReading) -> bool:
        """Whether a counter moves otherwise than before: it is another series then, with a base line of its own."""
        moves = {name: reading.advance.get(name, Advance.LIVE) for name in TOTALS if name in reading.live}
        changed = {name for name, how in moves.items() if self._moves.get(name, how) is not how}
        self._moves.update(moves)
        for counted in self._counted.values():
            for name in changed:
                counted.pop(name, None)
        return bool(changed)

    def _count(self, reading: EngineReading, *, newborn: bool) -> None:
        """Grow the totals.

        A counter that began anew adds what it has counted since. One that fell and did not adds nothing until it is
        where it was: an old answer came late, or a part of a sum was missing. One that is seen for the first time is a
        base line, unless its process started after the last good poll (or the first look): then all of it is new.
        """
        for rank in reading.ranks:
            counted = self._counted.setdefault(rank.rank, {})
            anew = not reading.started_wall_s and began_anew(self._known.get(rank.rank), rank)
            for quantity in TOTALS:
                new = rank.counters.get(quantity)
                if new is None:
                    continue
                old = counted.get(quantity, 0.0 if newborn else new)
                if new < LEFT * old and (anew or reading.advance.get(quantity) is Advance.DERIVED):
                    old, counted[quantity] = 0.0, new
                counted[quantity] = max(counted.get(quantity, old), new)
                self.totals[quantity] = self.totals.get(quantity, 0.0) + max(0.0, new - old)

    def _remember(self, reading: EngineReading) -> None:
        """Keep the ranks' newest series; a rank absent from one answer is not gone, one absent for long is."""
        now_s = reading.monotonic_s
        for rank in reading.ranks:
            self._known[rank.rank] = carried(self._known.get(rank.rank), rank)
            self._seen_s[rank.rank] = now_s
        oldest_s = now_s - max(GAP * self.cadence_s, GONE_S)
        for name in [name for name, seen_s in self._seen_s.items() if seen_s < oldest_s]:
            del self._seen_s[name]
            self._known.pop(name, None)
            self._counted.pop(name, None)

    def _append(self, reading: EngineReading) -> None:
        now_s, interval_s = reading.monotonic_s, reading.interval_s
        if self.points:
            since_s = now_s - self.points[-1].monotonic_s
            if since_s > max(GAP * max(self.cadence_s, self._paced_s), 3.0):
                self.points.clear()
            elif since_s < interval_s / 2:
                return
        self._paced_s = self.cadence_s
        self.points.append(Point(now_s, dict(self._known), self._carried_in(reading)))
        if len(self.points) > 2:
            self.was_reset = False
        while self.points[0].monotonic_s < now_s - self.keep_s - self.cadence_s:
            self.points.popleft()

    def _carried_in(self, reading: EngineReading) -> dict[str, frozenset[str]]:
        """What is known and this poll lacked, by rank."""
        here = {rank.rank: rank for rank in reading.ranks}
        lacking = ((name, known, here.get(name)) for name, known in self._known.items() if here.get(name) is not known)
        return {name: series(known) - (series(one) if one is not None else frozenset()) for name, known, one in lacking}

    def length_s(self, seconds: float) -> float:
        """What a window of `seconds` truly spans; `seconds` itself with fewer than two points."""
        pair = self.window(seconds)
        return seconds if pair is None else pair[1].monotonic_s - pair[0].monotonic_s

    def window(self, seconds: float) -> tuple[Point, Point] | None:
        """Oldest and newest point of the last `seconds` (half a poll of slack); None with fewer than two points."""
        windows = self._asked.windows
        if seconds not in windows:
            windows[seconds] = self._found(seconds)
        return windows[seconds]

    def _found(self, seconds: float) -> tuple[Point, Point] | None:
        if len(self.points) < 2:
            return None
        newest = self.points[-1]
        slack_s = (newest.monotonic_s - self.points[-2].monotonic_s) / 2
        start_s = newest.monotonic_s - seconds - slack_s
        oldest = next(point for point in self.points if point.monotonic_s >= start_s)
        return (oldest, newest) if oldest is not newest else (self.points[-2], newest)

    def inside(self, seconds: float) -> list[Point]:
        """The points of the last `seconds`, oldest first."""
        inside = self._asked.inside
        if seconds not in inside:
            start_s = self.points[-1].monotonic_s - seconds if self.points else 0.0
            inside[seconds] = [point for point in self.points if point.monotonic_s >= start_s]
        return inside[seconds]

    @property
    def not_yet(self) -> Missing:
        """Why there is no rate: restarted a moment ago, or too few polls."""
        return Missing(Reason.RESET) if self.was_reset else WARMING_UP

    def rate(self, quantity: str, seconds: float) -> Reading:
        """Mean increase per second of a counter over the last `seconds`."""
        rates, asked = self._asked.rates, (quantity, seconds)
        if asked not in rates:
            rates[asked] = self._summed(quantity, seconds)
        found = rates[asked]
        if found is None:
            return self.not_yet if self.counts(quantity) else NOT_EXPOSED
        return found

    def _summed(self, quantity: str, seconds: float) -> float | None:
        """The same over all ranks; None where one of them has no two points of its own."""
        pair = self.window(seconds)
        found: float | None = None
        for rank in pair[1].ranks if pair is not None else ():
            ends = self._ends(rank, quantity, seconds)
            if ends is None:
                return None
            one = _rate(rank, quantity, ends)
            if one is not None:
                found = one if found is None else found + one
        return found

    def rank_rate(self, rank: str, quantity: str, seconds: float) -> Reading:
        """Increase per second of one rank's counter."""
        found = _rate(rank, quantity, self._ends(rank, quantity, seconds))
        if found is None:
            return self.not_yet if self.counts(quantity) else NOT_EXPOSED
        return found

    def _ends(self, rank: str, quantity: str, seconds: float) -> tuple[Point, Point] | None:
        """The window, from the first to the last of its points that do not carry a rank's series from before; None with
        fewer than two of them."""
        pair = self.window(seconds)
        if pair is None or not (pair[0].carried or pair[1].carried):
            return pair
        if not any(quantity in point.carried.get(rank, ()) for point in pair):
            return pair
        inside = (point for point in self.points if point.monotonic_s >= pair[0].monotonic_s)
        told = [point for point in inside if quantity not in point.carried.get(rank, ())]
        return (told[0], told[-1]) if len(told) > 1 else None

    def rank_rates(self, quantity: str, seconds: float) -> list[float]:
        """Increase per second of a counter, for each rank that has it at both ends of the window."""
        pair = self.window(seconds)
        found = [] if pair is None else [self.rank_rate(rank, quantity, seconds) for rank in pair[1].ranks]
        return [rate for rate in found if not isinstance(rate, Missing)]

    def histogram(self, quantity: str, seconds: float) -> HistogramReading | None:
        """Observations of the last `seconds`; None where not exposed or without two points."""
        pair = self.window(seconds)
        if pair is None:
            return None
        histograms, asked = self._asked.histograms, (quantity, seconds)
        if asked not in histograms:
            found = [self._observed(rank, quantity, seconds) for rank in pair[1].ranks]
            histograms[asked] = merge([histogram for histogram in found if histogram is not None])
        return histograms[asked]

    def _observed(self, rank: str, quantity: str, seconds: float) -> HistogramReading | None:
        ends = self._ends(rank, quantity, seconds)
        if ends is None:
            return None
        old, new = ends[0].ranks.get(rank), ends[1].ranks.get(rank)
        if old is None or new is None:
            return None
        return difference(old.histograms.get(quantity), new.histograms.get(quantity))

    def rank_mean(self, rank: str, quantity: str, seconds: float) -> Reading:
        """Mean of a histogram over the last `seconds` for one rank."""
        pair = self.window(seconds)
        return self.not_yet if pair is None else mean(self._observed(rank, quantity, seconds))

    def rank_samples(self, rank: str, quantity: str, seconds: float) -> list[float]:
        """One rank's gauge at each poll of the last `seconds` that had it, oldest first."""
        seen = (point.ranks[rank].gauges.get(quantity) for point in self.inside(seconds) if rank in point.ranks)
        return [value for value in seen if value is not None]

    def samples(self, quantity: str, seconds: float) -> list[float]:
        """A gauge, summed over the ranks, at each poll of the last `seconds` that had it, oldest first."""
        polls = (point.ranks.values() for point in self.inside(seconds))
        told = ([rank.gauges[quantity] for rank in ranks if quantity in rank.gauges] for ranks in polls)
        return [sum(values) for values in told if values]

    def duty(self, rank: str, seconds: float) -> Reading:
        """Share of the polls of the last `seconds` at which this rank had a request running."""
        known = self.rank_samples(rank, RUNNING, seconds)
        return sum(running > 0 for running in known) / len(known) if known else NOT_EXPOSED

    def gauge(self, quantity: str) -> Reading:
        """The newest value, summed over the ranks."""
        found = sum_known(self._gauges(quantity))
        return NOT_EXPOSED if found is None else found

    def gauge_mean(self, quantity: str) -> Reading:
        """The newest value, averaged over the ranks."""
        found = self._gauges(quantity)
        return sum(found) / len(found) if found else NOT_EXPOSED

    def _gauges(self, quantity: str) -> list[float]:
        """The newest value of each rank that has it; of none where a rank has lost it: the rest is not the whole."""
        lacking = [name for name, rank in self._known.items() if quantity not in rank.gauges]
        before = (point.ranks[name].gauges for name in lacking for point in self.points if name in point.ranks)
        lost = any(quantity in gauges for gauges in before)
        return [] if lost else [rank.gauges[quantity] for rank in self._known.values() if quantity in rank.gauges]

    def has_histogram(self, quantity: str) -> bool:
        """Whether the engine exports it at all."""
        return any(quantity in rank.histograms for rank in self._known.values())

    def counts(self, quantity: str) -> bool:
        """Whether the engine exports this counter at all."""
        if self._asked.counters is None:
            self._asked.counters = {name for rank in self._known.values() for name in rank.counters}
        return quantity in self._asked.counters

    def counted(self, quantity: str) -> float | None:
        """The newest value of a counter, summed over the ranks; None where it is not exported."""
        return sum_known(rank.counters.get(quantity) for rank in self._known.values())


def sum_known(values: Iterable[float | None]) -> float | None:
    """The sum of the values that are there; None where none is."""
    total: float | None = None
    for value in values:
        if value is not None:
            total = value if total is None else total + value
    return total


def _rate(rank: str, counter: str, ends: tuple[Point, Point] | None) -> float | None:
    """Increase per second of one rank's counter; None unless the rank has it at both ends."""
    if ends is None:
        return None
    old, new = ends[0].ranks.get(rank), ends[1].ranks.get(rank)
    before = old.counters.get(counter) if old is not None else None
    after = new.counters.get(counter) if new is not None else None
    return None if before is None or after is None else (after - before) / (ends[1].monotonic_s - ends[0].monotonic_s)

"""One engine's polls over time: counters to totals and windows, with restarts, gaps and bunched polls handled."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from gpumon.efficiency.births import before_first_count, has_all_series, series_of, with_zeros
from gpumon.efficiency.counted import RANK_GONE_S, CountedSoFar, EngineGrowth, most_per_s
from gpumon.efficiency.plausible import NOTHING_WRONG
from gpumon.efficiency.quantiles import longest, merge, observations_between
from gpumon.efficiency.ratio import larger
from gpumon.efficiency.served_time import served_between
from gpumon.readings import quantities as q
from gpumon.readings.bounds import invalid_reading
from gpumon.readings.frame import Advance, EndpointState, EngineReading, HistogramReading, RankReading
from gpumon.readings.missing import NOT_EXPOSED, WARMING_UP, Missing, Reading, Reason

RATE_S: Final = 10.0
"""Window of the shown rates, where readings come often enough for it."""
QUANTILE_S: Final = 60.0
"""Window of the latency quantiles, where readings come often enough for it."""
MINUTES_S: Final = 120.0
"""Window of shares of requests, where readings come often enough for it, as few requests end in one minute. All frames
of a little more than that are derived before a moment of the past (`history.derivation.DENSE_S`), so that its shares
are what they were."""
MINUTES_MARK_S: Final = 10.0
"""One poll in each span of so many seconds is kept for that window alone. The spans begin at multiples of it, so that
the same polls are kept whenever the watching began."""
LEAST_INTERVALS: Final = 2.0
"""A window holds at least so many intervals between readings: it grows with them."""
MOST_KEPT_S: Final = 600.0
"""Longest window that a long prompt asks for, and for which polls are kept."""
GAP_INTERVALS: Final = 3.0
"""A pause of more than this many intervals starts the windows over."""
_LEAST_GAP_S: Final = 3.0
"""Shortest pause that starts the windows over, however often an engine is polled: one answer may take a second."""
TOTALS: Final[tuple[str, ...]] = (
    q.PREFILL_COMPUTED,
    q.PREFILL_CACHED,
    q.DECODE_TOKENS,
    q.TRAINED_TOKENS,
    q.SAMPLES,
    q.REQUESTS,
)
"""Counters whose increase is added up since gpumon began, over restarts of the engine."""

MEAN_S: Final = 600.0
"""Longest window of the long mean."""
LEAST_MEAN_S: Final = 10.0
"""Shortest window of the long mean, of tokens that are counted as they come."""
LEAST_END_S: Final = 60.0
"""Shortest window of the long mean, of tokens that are counted at the end of their request: with a longer request it is
as long as that."""
MARK_S: Final = 10.0
"""Seconds between two marks of the long mean: 61 of them, however often the engine is polled."""


def window_for(shortest_s: float, cadence_s: float) -> float:
    """Length (s) of a window over readings that come every `cadence_s` seconds: longer than `shortest_s` if few
    come."""
    return max(shortest_s, LEAST_INTERVALS * cadence_s)


def _forgotten_after_s(cadence_s: float) -> float:
    """Seconds after which an answer says nothing about the next one: a rank that it had is gone, a model that it lacked
    may have counted meanwhile, and counters that fell do not come back."""
    return max(GAP_INTERVALS * cadence_s, RANK_GONE_S)


class PollPoint(NamedTuple):
    """The state of all ranks at one poll."""

    monotonic_s: float
    ranks: Mapping[str, RankReading]
    lacked: Mapping[str, frozenset[str]]
    """Rank -> counters and histograms that this answer lacked. `ranks` has their older values, which say nothing about
    this poll."""

    def total(self, counter: str) -> float | None:
        """A counter, summed over the ranks; None where none has it."""
        return _sum_counters(self.ranks.values(), counter)

    def running(self) -> float | None:
        """Requests running on all ranks."""
        return _sum_gauges(self.ranks.values(), q.RUNNING)


class SumAndCount(NamedTuple):
    """Sum and count of a histogram, without its buckets."""

    total: float
    """Sum of the observations, in the histogram's unit."""
    observations: float
    """Number of observations."""

    @property
    def mean(self) -> Reading:
        """Mean of the observations, in the histogram's unit; `idle` where there was none."""
        if self.observations > 0:
            return self.total / self.observations
        return Missing(Reason.IDLE)


class _Growth(NamedTuple):
    """Growth of one rank's counter within a window."""

    amount: float
    """Increase, in the counter's unit."""
    seconds: float
    """Time between the two polls that it was seen in."""

    @property
    def per_s(self) -> float:
        """Mean increase per second."""
        return self.amount / self.seconds


class CounterWindow:
    """Counters and gauges of an engine in the last `seconds`, half a poll more or less."""

    __slots__ = ("_histograms", "_track", "inside", "length_s", "points", "seconds")

    def __init__(self, track: Track, seconds: float, points: list[PollPoint] | None = None) -> None:
        """`points` are the polls to choose from, oldest first; without them those of the track."""
        self._track = track
        self.seconds = seconds
        if points is None:
            points = track.points
        newest_s = points[-1].monotonic_s if points else 0.0
        # The time alone sorts before any point of that time: bisect finds the first point at or after it.
        self.inside = points[bisect_left(points, (newest_s - seconds,)) :]
        """The polls of the last `seconds`, oldest first: those of the samples of gauges."""
        self.points: list[PollPoint] = []
        """The polls from the one that begins it to the newest, between which counters grow; none where there are fewer
        than two."""
        self.length_s = seconds
        """Its true length; the length that was asked for where there are fewer than two polls."""
        if len(points) > 1:
            # Polls do not come to the moment: one that is half an interval too old begins the window, too.
            slack_s = (newest_s - points[-2].monotonic_s) / 2
            first = bisect_left(points, (newest_s - seconds - slack_s,))
            self.points = points[min(first, len(points) - 2) :]
            self.length_s = newest_s - self.points[0].monotonic_s
        self._histograms: dict[str, HistogramReading | None] = {}
        """Histograms that were asked for: several figures need the same, and nothing in a window costs more to work
        out."""

    def _newest_ranks(self) -> Iterable[str]:
        """Ranks of the newest poll; none with fewer than two polls."""
        if self.points:
            return self.points[-1].ranks
        return ()

    def _all_ranks(self) -> Iterable[str]:
        """Ranks of all polls, those that have gone within the window, too; none with fewer than two polls."""
        if not self.points or self.points[0].ranks.keys() == self.points[-1].ranks.keys():
            return self._newest_ranks()
        return dict.fromkeys(rank for point in self.points for rank in point.ranks)

    def increase(self, quantity: str) -> Reading:
        """Growth of a counter in the window, over all ranks: of one that came or went within it as far as it was
        seen."""
        growths = self._growths(quantity, self._all_ranks())
        if isinstance(growths, Missing):
            return growths
        return math.fsum(growth.amount for growth in growths)

    def rate(self, quantity: str) -> Reading:
        """Mean increase per second of a counter, over all ranks: of one that joined within the window since then."""
        growths = self._growths(quantity, self._newest_ranks())
        if isinstance(growths, Missing):
            return growths
        return sum(growth.per_s for growth in growths)

    def rank_rate(self, rank: str, quantity: str) -> Reading:
        """Increase per second of one rank's counter."""
        growths = self._growths(quantity, [rank])
        if isinstance(growths, Missing):
            return growths
        return growths[0].per_s

    def rank_rates(self, quantity: str) -> list[float]:
        """Increase per second of a counter, for each rank that has it at both ends of the window."""
        rates = []
        for rank in self._newest_ranks():
            rate = self.rank_rate(rank, quantity)
            if not isinstance(rate, Missing):
                rates.append(rate)
        return rates

    def histogram(self, quantity: str) -> HistogramReading | None:
        """Observations in the window; None where not exposed or with fewer than two polls."""
        if not self.points:
            return None
        if quantity not in self._histograms:
            differences = []
            for rank in self._all_ranks():
                ends = self._histograms_at_ends(rank, quantity)
                observed = observations_between(*ends) if ends is not None else None
                if observed is not None:
                    differences.append(observed)
            self._histograms[quantity] = merge(differences)
        return self._histograms[quantity]

    def sum_and_count(self, quantity: str) -> SumAndCount | None:
        """Sum and number of the observations of a histogram in the window; None where `histogram` is None."""
        by_rank = []
        for rank in self._all_ranks():
            observed = self._rank_sum_and_count(rank, quantity)
            if observed is not None:
                by_rank.append(observed)
        if not by_rank:
            return None
        if len(by_rank) == 1:
            return by_rank[0]
        return SumAndCount(
            total=sum(observed.total for observed in by_rank),
            observations=sum(observed.observations for observed in by_rank),
        )

    def mean(self, quantity: str) -> Reading:
        """Mean of a histogram; warming up where the engine has it and the window does not yet."""
        observed = self.sum_and_count(quantity)
        if observed is None:
            if self._track.has_histogram(quantity):
                return self._track.why_no_rate_yet
            return NOT_EXPOSED
        return observed.mean

    def rank_mean(self, rank: str, quantity: str) -> Reading:
        """Mean of a histogram of one rank."""
        if not self.points:
            return self._track.why_no_rate_yet
        observed = self._rank_sum_and_count(rank, quantity)
        if observed is None:
            return NOT_EXPOSED
        return observed.mean

    def samples(self, quantity: str) -> list[float]:
        """A gauge, summed over the ranks, at each poll that had it, oldest first."""
        samples = []
        for point in self.inside:
            total = _sum_gauges(point.ranks.values(), quantity)
            if total is not None:
                samples.append(total)
        return samples

    def rank_samples(self, rank: str, quantity: str) -> list[float]:
        """One rank's gauge at each poll that had it, oldest first."""
        return [
            point.ranks[rank].gauges[quantity]
            for point in self.inside
            if rank in point.ranks and quantity in point.ranks[rank].gauges
        ]

    def _growths(self, quantity: str, ranks: Iterable[str]) -> list[_Growth] | Missing:
        """Growth of a counter of each rank that has it at both ends. Why it is not known where none has, where one that
        is still there was seen twice and had it in fewer than two answers, or where it grew faster than can be."""
        growths = []
        for rank in ranks:
            ends = self._end_points(rank, quantity)
            if ends is None and self.points and rank in self.points[-1].ranks:
                return self._why_no_rate(quantity)
            growth = None if ends is None else _growth(rank, quantity, ends)
            if growth is None:
                continue
            if growth.per_s > most_per_s(quantity):
                return invalid_reading(growth.per_s, "more a second than can be", "its page")
            growths.append(growth)
        return growths or self._why_no_rate(quantity)

    def _why_no_rate(self, quantity: str) -> Missing:
        """Why a counter has no rate in this window: too few polls of it yet, or it is not exported."""
        if self._track.has_counter(quantity):
            return self._track.why_no_rate_yet
        return NOT_EXPOSED

    def _end_points(self, rank: str, quantity: str) -> tuple[PollPoint, PollPoint] | None:
        """First and last poll of the window that have a rank, and whose answers had this series of it; None with fewer
        than two. Those of the window for a rank that it has not seen twice."""
        if not self.points:
            return None
        first = self.points[0]
        last = self.points[-1]
        is_in_both = rank in first.ranks and rank in last.ranks
        if is_in_both and not (first.lacked or last.lacked):
            return first, last
        seen = [point for point in self.points if rank in point.ranks]
        answers = [point for point in seen if quantity not in point.lacked.get(rank, ())]
        if len(answers) > 1:
            return (answers[0], answers[-1])
        return None if len(seen) > 1 else (first, last)

    def _histograms_at_ends(self, rank: str, quantity: str) -> tuple[HistogramReading, HistogramReading] | None:
        """A histogram of one rank at the window's begin and at its end; None where one of them lacks it."""
        ends = self._end_points(rank, quantity)
        if ends is None or rank not in ends[0].ranks or rank not in ends[1].ranks:
            return None
        old = ends[0].ranks[rank].histograms.get(quantity)
        new = ends[1].ranks[rank].histograms.get(quantity)
        if old is None or new is None:
            return None
        return (old, new)

    def _rank_sum_and_count(self, rank: str, quantity: str) -> SumAndCount | None:
        """Sum and number of the observations of one rank in the window; None where they are not known, or fell."""
        ends = self._histograms_at_ends(rank, quantity)
        if ends is None:
            return None
        old, new = ends
        if new.count < old.count or new.sum < old.sum:
            return None
        return SumAndCount(total=new.sum - old.sum, observations=new.count - old.count)


class Track:
    """The polls of one engine. Times are seconds of `Frame.monotonic_s`'s clock, `wall_s` is Unix time."""

    def __init__(self) -> None:
        # What the newest poll was.
        self.reading: EngineReading | None = None
        """The newest one, whether it was answered or not."""
        self.polls = 0
        """Good answers taken in."""
        self.last_s = float("-inf")
        """When the newest good answer was read."""
        self.cadence_s = 0.0
        """Seconds between two readings: the longer of the engine's interval and the frames'."""
        self._frames_s = -1.0
        """Interval of the frames at the newest reading; below 0 before the first."""
        # Polls and their windows.
        self.points: list[PollPoint] = []
        """Polls of the windows of the rates and the quantiles, oldest first."""
        self._old_points: list[PollPoint] = []
        """Polls older than those of `points`, one per `MINUTES_MARK_S`."""
        self._cadence_of_newest_s = 0.0
        """The cadence when the newest point came. After a change to a shorter one, the pause before the next point is
        still judged by this."""
        self.keep_s = QUANTILE_S
        """How far `points` go back; a long prompt asks for more."""
        self.quantile_s = QUANTILE_S
        """Length of the window of the quantiles at this cadence."""
        self.minutes = CounterWindow(self, 0.0)
        self.short = self.minutes
        self.long = self.minutes
        """Windows at this cadence: `minutes` of shares of requests, `short` of the rates, `long` of the quantiles."""
        # Sums over all polls.
        self.totals: dict[str, float] = {}
        """Quantity -> what the engine counted since gpumon began."""
        self._counted = CountedSoFar()
        """Values up to which its series are in the totals."""
        self.mean = LongMean()
        """Long mean of the generated tokens."""
        self.load_so_far = SeenLoad()
        """Requests that ran and waited since the first poll."""
        # The newest values of each rank.
        self._ranks: dict[str, RankReading] = {}
        """Newest values of each rank: series that one answer lacks are not gone."""
        self._counter_names: set[str] = set()
        """Counters of the newest values."""
        self._gauge_names: set[str] = set()
        """Gauges that any answer had."""
        self.wrong_gauges: Mapping[str, Missing] = NOTHING_WRONG
        """Gauge -> why what the newest page says of it is no reading."""
        self._last_answer_s: dict[str, float] = {}
        """Rank -> when an answer had it last, on the monotonic clock."""
        # How the process and its counters changed.
        self._was_reset = False
        """No rate may be taken yet: the counters began anew less than three points ago."""
        self._fell_s = float("-inf")
        """When counters fell, on the monotonic clock."""
        self._ranks_before_fall: dict[str, RankReading] = {}
        """Ranks as they were before that."""

    @property
    def good_wall_s(self) -> float:
        """Unix time of the last good poll."""
        return self._counted.processes.good_wall_s

    @property
    def several_servers(self) -> bool:
        """Whether a balancer sends the polls to several servers in turn."""
        return self._counted.processes.several_servers

    def add(self, reading: EngineReading, wall_s: float, frames_s: float = 0.0) -> bool:
        """Take in one poll made at `wall_s`, with what it tells of before. Returns whether it was a new good answer.

        A frame has only the newest poll: where frames come every `frames_s`, slower than the polls, they set the pace.
        Earlier polls that its source has fill the windows; what they counted was before gpumon began.
        """
        if reading is self.reading and frames_s == self._frames_s:
            return False
        self.reading = reading
        self._frames_s = frames_s
        has_earlier = False
        if reading.state is EndpointState.OK:
            for earlier in reading.earlier:
                earlier_wall_s = wall_s - (reading.monotonic_s - earlier.monotonic_s)
                has_earlier |= self._add_poll(earlier, earlier_wall_s, frames_s)
        self._add_before_first_count(reading, wall_s, frames_s)
        tokens_before = self.totals.get(q.DECODE_TOKENS, 0.0)
        before_s = self.last_s
        is_added = self._add_poll(reading, wall_s, frames_s)
        self.short = CounterWindow(self, window_for(RATE_S, self.cadence_s))
        self.long = CounterWindow(self, self.quantile_s)
        self.minutes = CounterWindow(self, window_for(MINUTES_S, self.cadence_s), [*self._old_points, *self.points])
        if is_added:
            tokens = self.totals.get(q.DECODE_TOKENS, 0.0) - tokens_before
            self._extend_mean(reading, tokens, reading.monotonic_s - before_s)
        # A source has earlier polls at hand only when it begins: nothing of gpumon's own time is in the totals.
        if has_earlier:
            self.totals = dict.fromkeys(self.totals, 0.0)
        return is_added

    def _add_before_first_count(self, reading: EngineReading, wall_s: float, frames_s: float) -> None:
        """Take in zeros of the last answer that had nothing of this model, if that was a moment ago."""
        absent_s = reading.absent_s
        if absent_s is None or self.polls > 0:
            return
        since_s = reading.monotonic_s - absent_s
        if since_s <= _forgotten_after_s(max(reading.interval_s, frames_s)):
            self._add_poll(before_first_count(reading, absent_s), wall_s - since_s, frames_s)

    def _add_poll(self, reading: EngineReading, wall_s: float, frames_s: float) -> bool:
        """Take in one poll alone, without what it tells of before. Returns whether it was a new good answer."""
        self.cadence_s = max(reading.interval_s, frames_s)
        self.quantile_s = window_for(QUANTILE_S, self.cadence_s)
        counted = self._counted.take(reading, wall_s)
        if counted is None:
            return False
        # The order matters: `_begin_at_zero` needs the newest values as the poll before left them, which `_remember`
        # replaces, and the point is made of what it leaves.
        if self._note_break(reading, counted):
            self._drop_points()
            self._was_reset = True
        self._begin_at_zero(reading, counted)
        for quantity in TOTALS:
            growth = counted.counter(quantity)
            if growth is not None:
                self.totals[quantity] = self.totals.get(quantity, 0.0) + growth
        self._remember(reading)
        self._append_point(reading)
        gap_s = max(GAP_INTERVALS * self.cadence_s, _LEAST_GAP_S)
        self.load_so_far.add(reading, self.points[-1].running(), self.gauge(q.WAITING), gap_s)
        self.last_s = reading.monotonic_s
        self.polls += 1
        return True

    def _note_break(self, reading: EngineReading, counted: EngineGrowth) -> bool:
        """Note whether the counters go on from the last answer, and forget what another process counted.

        Returns whether they do not, so that no rate may be taken between the last answer and this one.
        """
        is_other_process = counted.process.is_other
        has_jumped = self._note_fall(reading, is_other_process=is_other_process)
        if is_other_process:
            self._ranks.clear()
        return is_other_process or has_jumped or not counted.changed.isdisjoint(TOTALS)

    def _note_fall(self, reading: EngineReading, *, is_other_process: bool) -> bool:
        """Note whether counters fell, or are back after a fall. Returns whether one of both is so.

        A page that lacks one series of a sum makes the sum fall, and rise again with the next page: neither is counted.
        """
        if any(_has_fewer(self._ranks.get(rank.rank), rank) for rank in reading.ranks):
            self._fell_s = reading.monotonic_s
            self._ranks_before_fall = {}
            if not is_other_process:  # the counters of another process do not come back
                self._ranks_before_fall = dict(self._ranks)
            return True
        if is_other_process or not self._is_back(reading):
            return False
        self._fell_s = float("-inf")
        self._ranks_before_fall = {}
        return True

    def _is_back(self, reading: EngineReading) -> bool:
        """Whether a counter that fell is back at its old value: an answer lacked some series, so this is not growth."""
        before = self._ranks_before_fall
        if reading.monotonic_s - self._fell_s > _forgotten_after_s(self.cadence_s):
            return False
        for rank in reading.ranks:
            if (
                rank.rank in before
                and rank.rank in self._ranks
                and _rose_past(self._ranks[rank.rank], before[rank.rank], rank)
            ):
                return True
        return False

    def _begin_at_zero(self, reading: EngineReading, counted: EngineGrowth) -> None:
        """Give the points so far the series that came with their first count, at 0."""
        for rank in reading.ranks:
            so_far = self._ranks.get(rank.rank)
            born = counted.born.get(rank.rank)
            if so_far is None or not born:
                continue
            self._ranks[rank.rank] = with_zeros(so_far, rank, born)
            self.points = [_with_zeros_at(point, rank, born) for point in self.points]
            self._old_points = [_with_zeros_at(point, rank, born) for point in self._old_points]

    def _remember(self, reading: EngineReading) -> None:
        """Keep the ranks' newest series; a rank absent from one answer is not gone, one absent for long is."""
        now_s = reading.monotonic_s
        for rank in reading.ranks:
            self._ranks[rank.rank] = _with_lacked(self._ranks.get(rank.rank), rank)
            self._last_answer_s[rank.rank] = now_s
            self._gauge_names.update(rank.gauges)
        oldest_s = now_s - _forgotten_after_s(self.cadence_s)
        gone = [name for name, answer_s in self._last_answer_s.items() if answer_s < oldest_s]
        for name in gone:
            del self._last_answer_s[name]
            self._ranks.pop(name, None)
        self._counter_names = set()
        for rank in self._ranks.values():
            self._counter_names.update(rank.counters)

    def _append_point(self, reading: EngineReading) -> None:
        """Append a point of the newest values, unless the last one is less than half an interval old.

        A pause begins the windows anew.
        """
        now_s = reading.monotonic_s
        interval_s = reading.interval_s
        if self.points:
            since_s = now_s - self.points[-1].monotonic_s
            if since_s > max(GAP_INTERVALS * max(self.cadence_s, self._cadence_of_newest_s), _LEAST_GAP_S):
                self._drop_points()
            elif since_s < interval_s / 2:
                return
        self._cadence_of_newest_s = self.cadence_s
        answered = {rank.rank: rank for rank in reading.ranks}
        lacked = {}
        for name, newest in self._ranks.items():
            # `_with_lacked` hands on the answer itself where that lacked nothing.
            if answered.get(name) is not newest:
                lacked[name] = series_of(newest)
                if name in answered:
                    lacked[name] -= series_of(answered[name])
        self.points.append(PollPoint(now_s, dict(self._ranks), lacked))
        if len(self.points) > 2:
            self._was_reset = False
        self._retire_points(bisect_left(self.points, (now_s - self.keep_s - self.cadence_s,)), now_s)

    def _drop_points(self) -> None:
        """Begin all windows anew."""
        self.points.clear()
        self._old_points.clear()

    def _retire_points(self, number: int, now_s: float) -> None:
        """Take the oldest points out of `points`; some of them are kept for the window of minutes."""
        for point in self.points[:number]:
            if not self._old_points or _mark_number(point) != _mark_number(self._old_points[-1]):
                self._old_points.append(point)
        del self.points[:number]
        oldest_s = now_s - window_for(MINUTES_S, self.cadence_s) - max(MINUTES_MARK_S, self.cadence_s)
        del self._old_points[: bisect_left(self._old_points, (oldest_s,))]

    def _extend_mean(self, reading: EngineReading, tokens: float, elapsed_s: float) -> None:
        """Add the generated `tokens` of the last `elapsed_s` seconds to the long mean.

        They are those of the counter, which is right over a gap, too; else those of the engine's own rate, which says
        nothing about a gap.
        """
        per_s = _sum_gauges(self.points[-1].ranks.values(), q.DECODE_RATE)
        if self.has_counter(q.DECODE_TOKENS):
            self.mean.add(reading.monotonic_s, tokens, elapsed_s, self.cadence_s)
            if reading.advance.get(q.DECODE_TOKENS) is Advance.END:
                self.mean.note_longest(longest(self.long.histogram(q.E2E)))
        elif per_s is not None:
            sampled_s = elapsed_s if elapsed_s <= GAP_INTERVALS * self.cadence_s else 0.0
            self.mean.add(reading.monotonic_s, per_s * sampled_s, sampled_s, self.cadence_s)

    def window(self, seconds: float) -> CounterWindow:
        """The window of the last `seconds`."""
        for window in (self.short, self.long):
            if window.seconds == seconds:
                return window
        return CounterWindow(self, seconds)

    @property
    def why_no_rate_yet(self) -> Missing:
        """Why a window has no rate yet: the engine restarted a moment ago, or there are too few polls."""
        if self._was_reset:
            return Missing(Reason.RESET)
        return WARMING_UP

    def gauge(self, quantity: str) -> Reading:
        """The newest value of a gauge, summed over the ranks."""
        if quantity in self.wrong_gauges:
            return self.wrong_gauges[quantity]
        total = sum_known_values(self._gauges(quantity))
        if total is None:
            return NOT_EXPOSED
        return total

    def gauge_most(self, quantity: str) -> Reading:
        """The newest value of a gauge, the most of all ranks."""
        if quantity in self.wrong_gauges:
            return self.wrong_gauges[quantity]
        values = self._gauges(quantity)
        return max(values) if values else NOT_EXPOSED

    def gauge_mean(self, quantity: str) -> Reading:
        """The newest value of a gauge, averaged over the ranks."""
        if quantity in self.wrong_gauges:
            return self.wrong_gauges[quantity]
        values = self._gauges(quantity)
        if values:
            return sum(values) / len(values)
        return NOT_EXPOSED

    def _gauges(self, quantity: str) -> list[float]:
        """The newest value of each rank that has it; of none where a rank has lost it: the rest is not the whole."""
        if quantity not in self._gauge_names:
            return []
        values = []
        for name, rank in self._ranks.items():
            if quantity in rank.gauges:
                values.append(rank.gauges[quantity])
            elif any(name in point.ranks and quantity in point.ranks[name].gauges for point in self.points):
                return []
        return values

    def has_histogram(self, quantity: str) -> bool:
        """Whether the engine exports this histogram at all."""
        return any(quantity in rank.histograms for rank in self._ranks.values())

    def has_counter(self, quantity: str) -> bool:
        """Whether the engine exports this counter at all."""
        return quantity in self._counter_names

    def advance_of(self, counter: str) -> Advance | None:
        """When a counter moves; None where it is not exported."""
        if self.reading is None or counter not in self._counter_names:
            return None
        return self.reading.advance.get(counter, Advance.LIVE)

    def newest_count(self, quantity: str) -> float | None:
        """The newest value of a counter, summed over the ranks; None where it is not exported."""
        return _sum_counters(self._ranks.values(), quantity)


class SeenLoad:
    """Load of an engine over all polls so far: how long it had any, and the most requests that ran and waited."""

    def __init__(self) -> None:
        self.seconds = 0.0
        """Seconds between polls, without pauses."""
        self.busy_s = 0.0
        """Part of them in which requests were served."""
        self.peak_running: Reading = NOT_EXPOSED
        self.peak_waiting: Reading = NOT_EXPOSED
        self._last: EngineReading | None = None
        """The last poll with a number of running requests."""

    def add(self, reading: EngineReading, running: float | None, waiting: Reading, gap_s: float) -> None:
        """Take in a poll. A pause of more than `gap_s` is not counted: nobody knows what ran in it."""
        if running is None:
            return
        last = self._last
        self._last = reading
        if last is not None:
            elapsed_s = reading.monotonic_s - last.monotonic_s
            served = served_between(last, reading, elapsed_s)
            if 0.0 < elapsed_s <= gap_s:
                self.seconds += elapsed_s
                self.busy_s += served.seconds
            if served.has_counted:
                running = max(running, 1.0)
        self.peak_running = larger(self.peak_running, running)
        self.peak_waiting = larger(self.peak_waiting, waiting)


def _mark_number(point: PollPoint) -> int:
    """Number of the span of `MINUTES_MARK_S` that a poll lies in."""
    return int(point.monotonic_s // MINUTES_MARK_S)


class _Mark(NamedTuple):
    """A point on the way of the long mean."""

    monotonic_s: float
    tokens: float
    """Generated since the first mark."""
    counted_s: float
    """Part of the time since the first mark in which they were counted."""


class LongMean:
    """Mean tokens per second over minutes: right in the long run even where they are counted when a request ends.

    Tokens and the seconds in which they came are kept at marks. Time that nobody looked at is in neither or in both.
    """

    def __init__(self) -> None:
        self._marks: deque[_Mark] = deque()
        self._newest: _Mark | None = None
        self._longest_s = 0.0

    def add(self, now_s: float, tokens: float, counted_s: float, cadence_s: float = 0.0) -> None:
        """Go on to `now_s`: `tokens` more came in `counted_s` more seconds. The first call only sets the start.

        A counter that was read over a gap gives its tokens and the gap's seconds; the samples of a gauge give neither.
        """
        last = self._newest
        if last is None:
            self._newest = _Mark(now_s, tokens=0.0, counted_s=0.0)
            self._marks.append(self._newest)
            return
        self._newest = _Mark(now_s, tokens=last.tokens + tokens, counted_s=last.counted_s + counted_s)
        if now_s - self._marks[-1].monotonic_s >= MARK_S:
            self._marks.append(self._newest)
        start_s = now_s - window_for(MEAN_S, cadence_s)
        while len(self._marks) > 1 and self._marks[0].monotonic_s < start_s:
            self._marks.popleft()

    def note_longest(self, longest_s: float) -> None:
        """Note how long a request took: tokens counted at its end came over all of that time."""
        self._longest_s = max(self._longest_s, min(longest_s, MEAN_S))

    def per_s(self, *, at_end: bool) -> Reading:
        """The mean in tokens/s; `at_end`: they are counted when their request ends, and a short window may hold one
        jump."""
        if self._newest is None:
            return WARMING_UP
        start = self._marks[0]
        seconds = self._newest.counted_s - start.counted_s
        least_s = max(LEAST_END_S, self._longest_s) if at_end else LEAST_MEAN_S
        # Marks come every 10 s at best, so a full window is that much shorter than the longest.
        if seconds <= 0.0 or seconds < min(least_s, MEAN_S - 2 * MARK_S):
            return WARMING_UP
        return (self._newest.tokens - start.tokens) / seconds


def sum_known_values(values: Iterable[float | None]) -> float | None:
    """The sum of the values that are there; None where none is."""
    total: float | None = None
    for value in values:
        if value is not None:
            total = (total or 0.0) + value
    return total


def _sum_counters(ranks: Iterable[RankReading], counter: str) -> float | None:
    """A counter, summed over the ranks that have it; None where none has."""
    return sum_known_values([rank.counters.get(counter) for rank in ranks])


def _sum_gauges(ranks: Iterable[RankReading], gauge: str) -> float | None:
    """A gauge, summed over the ranks that have it; None where none has."""
    return sum_known_values([rank.gauges.get(gauge) for rank in ranks])


def _growth(rank: str, counter: str, ends: tuple[PollPoint, PollPoint]) -> _Growth | None:
    """Growth of one rank's counter between two polls; None unless both have it."""
    old = ends[0].ranks.get(rank)
    new = ends[1].ranks.get(rank)
    before = old.counters.get(counter) if old is not None else None
    after = new.counters.get(counter) if new is not None else None
    if before is None or after is None:
        return None
    return _Growth(after - before, ends[1].monotonic_s - ends[0].monotonic_s)


def _with_zeros_at(point: PollPoint, rank: RankReading, born: frozenset[str]) -> PollPoint:
    """The point with a rank's newborn series at 0; as it is where it does not know the rank."""
    rank_then = point.ranks.get(rank.rank)
    if rank_then is None:
        return point
    return point._replace(ranks={**point.ranks, rank.rank: with_zeros(rank_then, rank, born)})


def _has_fewer(old: RankReading | None, new: RankReading) -> bool:
    """Whether one of a rank's counters or histograms has less than in the poll before."""
    if old is None:
        return False
    if any(value < old.counters.get(quantity, value) for quantity, value in new.counters.items()):
        return True
    for quantity, histogram in new.histograms.items():
        before = old.histograms.get(quantity)
        if before is not None and (histogram.count < before.count or histogram.sum < before.sum):
            return True
    return False


def _rose_past(last: RankReading, before_fall: RankReading, new: RankReading) -> bool:
    """Whether one of a rank's counters or histograms is at least what it was before a fall, and was less in the `last`
    poll; a series that one of the three lacks does not count."""
    for name, value in new.counters.items():
        if name not in last.counters or name not in before_fall.counters:
            continue
        if last.counters[name] < before_fall.counters[name] <= value:
            return True
    for name, histogram in new.histograms.items():
        if name not in last.histograms or name not in before_fall.histograms:
            continue
        if last.histograms[name].count < before_fall.histograms[name].count <= histogram.count:
            return True
    return False


def _with_lacked(old: RankReading | None, newest: RankReading) -> RankReading:
    """`newest` with the counters and histograms that this poll lacked taken from `old`: absent in one answer is not
    gone."""
    if old is None or has_all_series(newest, old):
        return newest
    return RankReading(
        rank=newest.rank,
        counters={**old.counters, **newest.counters},
        gauges=newest.gauges,  # a gauge says nothing about a later moment
        histograms={**old.histograms, **newest.histograms},
    )

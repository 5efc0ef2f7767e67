"""Which series make which figure of a page: worked out once, and right for every later page with the same series."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from operator import le
from typing import Final, NamedTuple

from gpumon.readings.frame import Advance, HistogramReading
from gpumon.sources.engines.page_figures import MOST_RANKS, PageFigures, Rank, is_usable, usable_samples
from gpumon.sources.engines.tables import FoundSeries, Metric, Rule, Tables
from gpumon.sources.exposition import Series

_MOST_BUCKETS: Final = 2048
"""Buckets of one histogram of one rank: one with more is left out."""
_Put = Callable[[Rank, str, float], None]
"""Puts the value of a quantity into a rank."""


class _Part(NamedTuple):
    """A series that is all of a counter or gauge of a rank, or a part of it, and how it gets there."""

    put: _Put
    rank: str
    """Name of the rank."""
    quantity: str
    series: Series


class _Histogram:
    """One histogram of one rank. While nothing is observed, each page gives the same `HistogramReading`."""

    __slots__ = ("_bounds", "_last", "_places", "_row", "_series", "quantity", "rank")

    def __init__(self, rank: str, quantity: str, bounds: tuple[float, ...], series: Sequence[Sequence[Series]]) -> None:
        """`series`: for each bound the series that are added up, then those of the sum, last those of the count."""
        self.rank = rank
        self.quantity = quantity
        self._bounds = bounds
        self._series = [summands[0] for summands in series]
        """The first series of each place, and after them all further ones: most histograms have none of these."""
        self._places: list[int] = []
        """Place in the row to which each of the further series is added."""
        for place, summands in enumerate(series):
            self._series += summands[1:]
            self._places += [place] * (len(summands) - 1)
        self._row: tuple[float, ...] = ()
        """Values of `_series` on the last page, where further series are added up."""
        self._last: HistogramReading | None = None
        """The histogram of the last page; None where it was not usable."""

    def reading(self, values: Mapping[Series, float]) -> HistogramReading | None:
        """The histogram, or None where a part is no number, or the buckets do not rise."""
        row = tuple(map(values.__getitem__, self._series))
        if self._is_unchanged(row):
            return self._last
        if self._places:
            self._row = row
        first_further = len(row) - len(self._places)
        # Added to 0, as in any sum: a zero has no sign then.
        sums = [*map((0.0).__add__, row[:first_further])]
        for place, value in zip(self._places, row[first_further:], strict=True):
            sums[place] += value
        *counts, total, count = sums
        rising = counts[0] >= 0.0 and all(map(le, counts, counts[1:]))
        # The buckets rise: if the last one is usable, all of them are.
        if not (rising and is_usable(counts[-1]) and is_usable(total) and is_usable(count)):
            self._last = None
            return None
        self._last = HistogramReading(self._bounds, tuple(counts), total, count)
        return self._last

    def _is_unchanged(self, row: tuple[float, ...]) -> bool:
        """Whether these are the values of the last page. Its reading has them, unless its sums have further series."""
        if self._places:
            return row == self._row
        last = self._last
        return last is not None and row == (*last.counts, last.sum, last.count)


class Plan:
    """The series of each figure of a page.

    A series whose value is not usable gets no place in a plan. A plan without such a gap was made by the labels alone,
    and holds for every page with the same series whose values are usable.
    """

    def __init__(self) -> None:
        self.ranks: dict[str, None] = {}
        """Names of the ranks, in the order in which the page has them: a set that keeps its order."""
        self.parts: list[_Part] = []
        self.histograms: list[_Histogram] = []
        self.live: dict[str, str] = {}
        """As in `PageFigures`, like `advance`."""
        self.advance: dict[str, Advance] = {}
        self.cut = False
        """The page has more than `MOST_RANKS` ranks: the others were left out."""

    def page_figures(self, values: Mapping[Series, float]) -> PageFigures | None:
        """The figures of a page with the plan's series; None if a value is not usable: the page needs its own plan."""
        row = [values[part.series] for part in self.parts]
        if not all(map(is_usable, row)):
            return None
        ranks = {name: Rank(name) for name in self.ranks}
        for (put, rank, quantity, _), value in zip(self.parts, row, strict=True):
            put(ranks[rank], quantity, value)
        for histogram in self.histograms:
            reading = histogram.reading(values)
            if reading is not None:
                ranks[histogram.rank].histograms[histogram.quantity] = reading
        return PageFigures(ranks, self.live.copy(), self.advance.copy())

    def add_rank(self, name: str) -> str | None:
        """Add a rank unless it is there already; returns its name, or None where there is no room for it."""
        if name not in self.ranks:
            if len(self.ranks) >= MOST_RANKS:
                self.cut = True
                return None
            self.ranks[name] = None
        return name


class PlanMaker:
    """Makes the plans of one server's pages by the tables of its engine."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.chosen: dict[str, int] = {}
        """Quantity -> place in its rule of the metric that it was read from last."""
        self._bounds: dict[str, tuple[float, ...]] = {}
        """Quantity -> the bounds that its histogram had last."""

    def make_plan(self, samples: Mapping[str, FoundSeries]) -> Plan:
        """How a page of these series is read."""
        plan = Plan()
        if self._tables.ignored:
            samples = {name: self._tables.without_ignored(series) for name, series in samples.items()}
        for counter in self._tables.counters:
            self._plan_number(plan, samples, counter, _add_counter)
        gauge_samples = samples
        if self._tables.priority_label:
            gauge_samples = {name: self._tables.without_parts(series) for name, series in samples.items()}
        for gauge in self._tables.gauges:
            put = _add_gauge if gauge.added else _raise_gauge
            self._plan_number(plan, gauge_samples, gauge, put)
        for histogram in self._tables.histograms:
            metric, _ = self._first_metric(histogram, partial(_bucket_samples, samples))
            if metric is not None:
                plan.live[histogram.quantity] = str(metric)
                plan.histograms += self._histograms(plan, samples, histogram.quantity, metric.name)
        return plan

    def _plan_number(self, plan: Plan, page: Mapping[str, FoundSeries], number: Rule, put: _Put) -> None:
        """Plan a counter or gauge: the series of its metric, and of the metrics that are added to it."""
        metric, samples = self._first_metric(number, partial(usable_samples, page))
        if metric is None:
            return
        for name in number.also:
            samples = [*samples, *usable_samples(page, Metric(name))]
        for series, _ in self._tables.without_repeats(samples):
            rank = plan.add_rank(self._tables.rank_of(series))
            if rank is not None:
                plan.parts.append(_Part(put, rank, number.quantity, series))
        plan.live[number.quantity] = str(metric)
        added_count = sum(name in page for name in number.also)
        if added_count:
            plan.live[number.quantity] = f"{metric} + {added_count} others"
        if metric.advance is not Advance.LIVE:
            plan.advance[number.quantity] = metric.advance

    def _first_metric(
        self, choice: Rule, samples_of: Callable[[Metric], FoundSeries]
    ) -> tuple[Metric | None, FoundSeries]:
        """The best metric of a rule that the page has, and its samples; None if it has none.

        A metric that was read before and is absent now is not replaced by a worse one, whose total would be another.
        """
        worst = self.chosen.get(choice.quantity, len(choice.metrics) - 1)
        for place, metric in enumerate(choice.metrics[: worst + 1]):
            samples = samples_of(metric)
            if samples:
                self.chosen[choice.quantity] = place
                return metric, samples
        return None, []

    def _histograms(
        self, plan: Plan, samples: Mapping[str, FoundSeries], quantity: str, name: str
    ) -> Iterator[_Histogram]:
        """The histograms of a quantity: one for each rank that has buckets, a sum and a count."""
        buckets_of = self._buckets_of_ranks(plan, samples, name)
        sums = self._series_of_ranks(plan, samples, f"{name}_sum")
        counts = self._series_of_ranks(plan, samples, f"{name}_count")
        for rank, buckets in buckets_of.items():
            if rank not in sums or rank not in counts or len(buckets) > _MOST_BUCKETS:
                continue
            buckets.setdefault(math.inf, counts[rank])  # some exporters leave out the bucket of all
            bounds = tuple(sorted(buckets))
            if bounds == self._bounds.get(quantity):
                # Many polls are kept in memory: all of them share one tuple of bounds.
                bounds = self._bounds[quantity]
            else:
                bounds = _shared_bounds(bounds)
            self._bounds[quantity] = bounds
            series = [buckets[bound] for bound in bounds]
            yield _Histogram(rank, quantity, bounds, [*series, sums[rank], counts[rank]])

    def _buckets_of_ranks(
        self, plan: Plan, samples: Mapping[str, FoundSeries], name: str
    ) -> dict[str, dict[float, list[Series]]]:
        """Rank -> upper bound -> the series of the buckets; a bucket whose bound is no number is left out."""
        buckets_of: dict[str, dict[float, list[Series]]] = {}
        for rank, all_series in self._series_of_ranks(plan, samples, f"{name}_bucket").items():
            for series in all_series:
                bound = _bucket_bound(series.labels.get("le", ""))
                if not math.isnan(bound):
                    buckets = buckets_of.setdefault(rank, {})
                    buckets.setdefault(bound, []).append(series)
        return buckets_of

    def _series_of_ranks(self, plan: Plan, samples: Mapping[str, FoundSeries], name: str) -> dict[str, list[Series]]:
        """Rank -> its series of this name."""
        series_of: dict[str, list[Series]] = {}
        for series, _ in self._tables.without_repeats(samples.get(name, [])):
            rank = plan.add_rank(self._tables.rank_of(series))
            if rank is not None:
                series_of.setdefault(rank, []).append(series)
        return series_of


@lru_cache(maxsize=512)
def _shared_bounds(bounds: tuple[float, ...]) -> tuple[float, ...]:
    """One tuple for equal bounds: hundreds of engines of a fleet have the same."""
    return bounds


def _bucket_samples(samples: Mapping[str, FoundSeries], metric: Metric) -> FoundSeries:
    """The samples of a histogram's buckets; `samples` are those of the whole page by name."""
    return samples.get(f"{metric.name}_bucket", [])


def _add_counter(rank: Rank, quantity: str, value: float) -> None:
    """Add a part of a counter to what the rank has of it; one of the three functions that `_Part.put` may be."""
    rank.counters[quantity] = rank.counters.get(quantity, 0.0) + value


def _raise_gauge(rank: Rank, quantity: str, value: float) -> None:
    """Set a gauge that may be written several times: the highest holds."""
    rank.gauges[quantity] = max(value, rank.gauges.get(quantity, 0.0))


def _add_gauge(rank: Rank, quantity: str, value: float) -> None:
    """Add a part of a gauge, such as a queue of one reason, to what the rank has of it."""
    rank.gauges[quantity] = rank.gauges.get(quantity, 0.0) + value


def _bucket_bound(text: str) -> float:
    """A bucket's upper bound; NaN where it is none. Nothing that is observed here is negative."""
    try:
        bound = float(text)
    except ValueError:
        return math.nan
    if bound >= 0.0:
        return bound
    return math.nan

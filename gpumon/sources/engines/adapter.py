"""What an adapter of a serving engine is: tables from canonical quantities to metric names, and how series combine."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

from gpumon.readings.frame import EngineKind, HistogramReading, RankReading
from gpumon.sources.exposition import Scan, Series

MOST_RANKS: Final = 256
"""Data-parallel ranks read from one page."""
MOST_BUCKETS: Final = 2048
START_TIME: Final = "process_start_time_seconds"
"""Written by every single-process exporter of the Prometheus client libraries; absent in multi-process mode."""

Found = list[tuple[Series, float]]


class Metric(NamedTuple):
    """A metric that a quantity may be read from. `where` picks the series that have this label value."""

    name: str
    label: str = ""
    value: str = ""

    def __str__(self) -> str:
        return f'{self.name}{{{self.label}="{self.value}"}}' if self.label else self.name


class Rule(NamedTuple):
    """Where one quantity is read: the first of `metrics` that the page has, never two of them together."""

    quantity: str
    metrics: tuple[Metric, ...]


class Tables(NamedTuple):
    """An engine in tables.

    Within a rank the series of a counter or histogram are added (they split it by a label such as the finish reason),
    those of a gauge are one figure written several times (a dead process leaves an old one behind): the highest holds.
    """

    rank_label: str
    """The label that tells data-parallel ranks apart; a series without it belongs to rank 0."""
    counters: tuple[Rule, ...]
    gauges: tuple[Rule, ...]
    histograms: tuple[Rule, ...]
    extra: tuple[str, ...] = ()
    """Other sample names that the adapter looks at itself."""


class Rank:
    """The reading of one rank while it is put together."""

    __slots__ = ("counters", "gauges", "histograms", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.counters: dict[str, float] = {}
        self.gauges: dict[str, float] = {}
        self.histograms: dict[str, HistogramReading] = {}


class EnginePage(NamedTuple):
    """One scrape in canonical quantities; the fields are those of `EngineReading`."""

    ranks: tuple[RankReading, ...]
    live: Mapping[str, str]
    info: Mapping[str, str]
    model: str
    started_wall_s: float
    exact_steps: bool
    cut: bool = False
    """It has more than `MOST_RANKS` ranks: the others were left out."""


class Adapter:
    """Turns the pages of one server into canonical quantities. It may remember, so each endpoint has its own.

    NaN, infinite and negative values are dropped: what is left out of a page is not zero.
    """

    kind: EngineKind = EngineKind.UNKNOWN
    tables: Tables

    def __init__(self) -> None:
        self._chosen: dict[str, int] = {}
        self._cut = False

    @property
    def wanted(self) -> frozenset[str]:
        """Names of all samples that `read` uses."""
        names = {*self.tables.extra, START_TIME}
        for rule in (*self.tables.counters, *self.tables.gauges):
            names.update(metric.name for metric in rule.metrics)
        for rule in self.tables.histograms:
            names.update(metric.name + end for metric in rule.metrics for end in ("_bucket", "_sum", "_count"))
        return frozenset(names)

    def read(self, scan: Scan) -> EnginePage:
        """The page as readings; without ranks where it has no series of this engine."""
        raise NotImplementedError

    def collect(self, found: Mapping[str, Found]) -> tuple[dict[str, Rank], dict[str, str]]:
        """Ranks filled from the tables, and which metric each quantity was read from."""
        self._cut = False
        ranks: dict[str, Rank] = {}
        live: dict[str, str] = {}
        for rules, put in ((self.tables.counters, _add_counter), (self.tables.gauges, _raise_gauge)):
            for rule in rules:
                metric, series = self._first(rule, lambda metric: picked(found, metric))
                for one, value in series:
                    if (rank := self._rank(ranks, one)) is not None:
                        put(rank, rule.quantity, value)
                if metric is not None:
                    live[rule.quantity] = str(metric)
        for rule in self.tables.histograms:
            metric, _ = self._first(rule, lambda metric: found.get(metric.name + "_bucket", []))
            if metric is not None:
                live[rule.quantity] = str(metric)
                self._histograms(ranks, found, rule.quantity, metric.name)
        return ranks, live

    def _first(self, rule: Rule, series_of: Callable[[Metric], Found]) -> tuple[Metric | None, Found]:
        """The best metric that the page has. One that was seen before and is absent now is not replaced by a worse."""
        last = self._chosen.get(rule.quantity, len(rule.metrics) - 1)
        for at, metric in enumerate(rule.metrics[: last + 1]):
            if series := series_of(metric):
                self._chosen[rule.quantity] = at
                return metric, series
        return None, []

    def _rank(self, ranks: dict[str, Rank], series: Series) -> Rank | None:
        name = series.labels.get(self.tables.rank_label, "0")
        if name not in ranks:
            if len(ranks) >= MOST_RANKS:
                self._cut = True
                return None
            ranks[name] = Rank(name)
        return ranks[name]

    def _histograms(self, ranks: dict[str, Rank], found: Mapping[str, Found], quantity: str, name: str) -> None:
        parts: dict[str, _Parts] = {}
        for end in ("_bucket", "_sum", "_count"):
            for series, value in found.get(name + end, ()):
                if (rank := self._rank(ranks, series)) is not None:
                    part = parts.setdefault(rank.name, _Parts({}, {}))
                    if end == "_bucket":
                        if math.isnan(bound := _bound(series.labels.get("le", ""))):
                            continue
                        part.buckets[bound] = part.buckets.get(bound, 0.0) + value
                    else:
                        part.totals[end] = part.totals.get(end, 0.0) + value
        for rank_name, part in parts.items():
            if (histogram := part.histogram()) is not None:
                ranks[rank_name].histograms[quantity] = histogram


class _Parts(NamedTuple):
    buckets: dict[float, float]
    totals: dict[str, float]

    def histogram(self) -> HistogramReading | None:
        """The histogram, or None where a part is missing, no number, or the buckets do not rise."""
        count, total = self.totals.get("_count"), self.totals.get("_sum")
        if count is None or total is None or not 0 < len(self.buckets) <= MOST_BUCKETS:
            return None
        buckets = dict(self.buckets)
        buckets.setdefault(math.inf, count)
        bounds = tuple(sorted(buckets))
        counts = tuple(buckets[bound] for bound in bounds)
        rising = all(low <= high for low, high in pairwise((0.0, *counts)))
        sane = rising and all(map(usable, (total, count, counts[-1])))
        return HistogramReading(bounds, counts, total, count) if sane else None


def by_name(scan: Scan) -> dict[str, Found]:
    """The samples of a scan, grouped by metric name."""
    found: dict[str, Found] = {}
    for series, value in scan.values.items():
        found.setdefault(series.name, []).append((series, value))
    return found


def picked(found: Mapping[str, Found], metric: Metric) -> Found:
    """The usable series of a metric."""
    return [
        (one, value)
        for one, value in found.get(metric.name, ())
        if usable(value) and (not metric.label or one.labels.get(metric.label) == metric.value)
    ]


def usable(value: float) -> bool:
    """Whether a value can be a count or a gauge here: finite and not negative."""
    return 0.0 <= value < math.inf


def frozen(ranks: Iterable[Rank]) -> tuple[RankReading, ...]:
    """The ranks as readings, in the order of their numbers."""
    ordered = sorted(ranks, key=lambda rank: (len(rank.name), rank.name))
    return tuple(RankReading(rank.name, rank.counters, rank.gauges, rank.histograms) for rank in ordered)


def _add_counter(rank: Rank, quantity: str, value: float) -> None:
    rank.counters[quantity] = rank.counters.get(quantity, 0.0) + value


def _raise_gauge(rank: Rank, quantity: str, value: float) -> None:
    rank.gauges[quantity] = max(value, rank.gauges.get(quantity, 0.0))


def _bound(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan

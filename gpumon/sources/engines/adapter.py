"""What an adapter of a serving engine is: tables from canonical quantities to metric names, and how series combine."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from operator import le
from types import MappingProxyType
from typing import ClassVar, Final, NamedTuple

from gpumon.readings.frame import Advance, EngineKind, HistogramReading, RankReading
from gpumon.sources.exposition import MOST_SAMPLES, Scan, Series

MOST_RANKS: Final = 256
"""Data-parallel ranks read from one page."""
MOST_WIDTHS: Final = 64 * MOST_RANKS
MOST_PARTS: Final = 32
"""Models read from the page of one server that has several."""
MOST_BUCKETS: Final = 2048
MOST_DIGITS: Final = 15
"""Of a count that a label holds."""
MOST_VALUE: Final = 1e30
"""No engine counts as far: the FLOPs of a hundred thousand GPUs in a year are 3e27."""
LEAST_VALUE: Final = 1e-30
_ONE: Final = (1, 0)
"""The width of a figure that is and was one series."""
PATIENT: Final = 5
"""Polls in a row after which a series that was a part of a figure is taken to be gone for good."""
START_TIME: Final = "process_start_time_seconds"
"""Written by every single-process exporter of the Prometheus client libraries; absent in multi-process mode."""

Found = list[tuple[Series, float]]
Bodies = Mapping[str, bytes]
"""Path below the server's base URL -> what it answered there just now, or, of a rarely asked one, last."""
NO_BODIES: Final[Bodies] = MappingProxyType({})


class Metric(NamedTuple):
    """A metric that a quantity may be read from. `where` picks the series that have this label value."""

    name: str
    label: str = ""
    value: str = ""
    advance: Advance = Advance.LIVE
    """When it moves. Said of token counts; requests and latencies of ended requests are what they say."""

    def __str__(self) -> str:
        return f'{self.name}{{{self.label}="{self.value}"}}' if self.label else self.name


class Rule(NamedTuple):
    """Where one quantity is read: the first of `metrics` that the page has, never two of them together."""

    quantity: str
    metrics: tuple[Metric, ...]
    added: bool = False
    """A gauge whose series are parts of a whole (queues by reason): they are added up."""


class Companion(NamedTuple):
    """Another page of the server that the adapter reads."""

    path: str
    every_s: float = 0.0
    """Seconds between two looks; 0: with every poll."""


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
    repeated: tuple[str, ...] = ()
    """Labels of processes that all report the same figures (tensor-parallel ranks): the lowest of each counts."""
    part_label: str = ""
    """The label that tells several models on one page apart: each is an engine of its own."""


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
    """It has more than `MOST_RANKS` ranks, or `MOST_PARTS` models: the others were left out."""
    advance: Mapping[str, Advance] = MappingProxyType({})
    part: str = ""
    model_root: str = ""
    version: str = ""
    tp: int = 0
    pp: int = 0
    dp: int = 0


class Collected(NamedTuple):
    """What the tables gave: ranks, the metric behind each quantity, and when it moves where that is not live."""

    ranks: dict[str, Rank]
    live: dict[str, str]
    advance: dict[str, Advance]


class Page(NamedTuple):
    """A server's first answer, by which its kind is told."""

    path: str
    names: frozenset[str]
    """Sample names of its first lines."""
    body: bytes


class Adapter:
    """Turns the pages of one server into canonical quantities. It may remember, so each endpoint has its own.

    NaN, infinite and negative values are dropped: what is left out of a page is not zero.
    """

    kind: EngineKind = EngineKind.UNKNOWN
    tables: Tables
    prefixes: ClassVar[tuple[str, ...]] = ()
    """Sample names begin so on a page of this engine."""
    companions: tuple[Companion, ...] = ()
    """Pages asked beside the metrics. An adapter may change its own: a server's pages differ by version."""
    from_documentation: ClassVar[bool] = False
    """Never held against a recording of a real engine."""

    def __init__(self) -> None:
        self._chosen: dict[str, int] = {}
        self._cut = False
        self._parts: dict[str, Adapter] = {}
        self._widths: dict[tuple[str, str], tuple[int, int]] = {}
        """(Rank, quantity) -> series that it is made of, and for how many polls there were fewer."""
        self._places: dict[Series, tuple[str, float]] = {}
        """What `_place` said."""
        self._bounds: dict[str, tuple[float, ...]] = {}
        """Quantity -> the bounds that its histogram had last."""

    @classmethod
    def claims(cls, page: Page) -> bool:
        """Whether this is a page of this engine."""
        return any(name.startswith(cls.prefixes) for name in page.names)

    @property
    def wanted(self) -> frozenset[str]:
        """Names of all samples that `read` uses."""
        names = {*self.tables.extra, START_TIME}
        for rule in (*self.tables.counters, *self.tables.gauges):
            names.update(metric.name for metric in rule.metrics)
        for rule in self.tables.histograms:
            names.update(metric.name + end for metric in rule.metrics for end in ("_bucket", "_sum", "_count"))
        return frozenset(names)

    def read(self, scan: Scan, bodies: Bodies = NO_BODIES) -> EnginePage:
        """The page as readings; without ranks where it has no series of this engine."""
        raise NotImplementedError

    def read_all(self, scan: Scan, bodies: Bodies = NO_BODIES) -> tuple[EnginePage, ...]:
        """One page for each model of the server, those without ranks left out."""
        label = self.tables.part_label
        if not label:
            pages = [self.read(scan, bodies)]
        else:
            scans: dict[str, dict[Series, float]] = {}
            for series, value in scan.values.items():
                scans.setdefault(series.labels.get(label, ""), {})[series] = value
            names = sorted(scans)[:MOST_PARTS]
            self._parts = {name: self._parts.get(name) or type(self)() for name in names}
            cut = len(scans) > MOST_PARTS
            read = ((name, self._parts[name].read(scan._replace(values=scans[name]), bodies)) for name in names)
            pages = [page._replace(part=name, cut=page.cut or cut) for name, page in read]
        return tuple(page for page in pages if page.ranks)

    def collect(self, found: Mapping[str, Found]) -> Collected:
        """What the tables give of a page."""
        self._cut = False
        taken = Collected({}, {}, {})
        ranks, live, advance = taken
        for rules, gauges in ((self.tables.counters, False), (self.tables.gauges, True)):
            for rule in rules:
                metric, series = self._first(rule, lambda metric: picked(found, metric))
                put = _raise_gauge if gauges and not rule.added else _add_gauge if gauges else _add_counter
                for one, value in (whole := self._whole(rule.quantity, self._unrepeated(series))):
                    if (rank := self._rank(ranks, one)) is not None:
                        put(rank, rule.quantity, value)
                if metric is not None and whole:
                    live[rule.quantity] = str(metric)
                    if metric.advance is not Advance.LIVE:
                        advance[rule.quantity] = metric.advance
        for rule in self.tables.histograms:
            metric, _ = self._first(rule, lambda metric: found.get(metric.name + "_bucket", []))
            if metric is not None:
                live[rule.quantity] = str(metric)
                self._histograms(ranks, found, rule.quantity, metric.name)
        return taken

    def _whole(self, quantity: str, series: Found) -> Found:
        """The series of the ranks of which none is missing that was there lately: the rest of a sum is no figure."""
        if (
            len(series) == 1
            and self._widths.get((series[0][0].labels.get(self.tables.rank_label, "0"), quantity)) == _ONE
        ):
            return series
        ranks = Counter(one.labels.get(self.tables.rank_label, "0") for one, _ in series)
        if len(self._widths) > MOST_WIDTHS:
            self._widths.clear()
        short = set()
        for rank, count in ranks.items():
            width, polls = self._widths.get((rank, quantity), (0, 0))
            if count < width and polls < PATIENT:
                short.add(rank)
                self._widths[rank, quantity] = (width, polls + 1)
            else:
                self._widths[rank, quantity] = (count, 0)
        if not short:
            return series
        return [(one, value) for one, value in series if one.labels.get(self.tables.rank_label, "0") not in short]

    def _unrepeated(self, series: Found) -> Found:
        """Of series that differ in nothing but who reports them, the one of the lowest reporter."""
        repeated = self.tables.repeated
        if not repeated or len(series) < 2:
            return series
        best: dict[tuple[tuple[str, str], ...], tuple[tuple[float, ...], Series, float]] = {}
        for one, value in series:
            same = tuple(sorted((name, text) for name, text in one.labels.items() if name not in repeated))
            order = tuple(_order(one.labels.get(name, "")) for name in repeated)
            if same not in best or order < best[same][0]:
                best[same] = (order, one, value)
        return [(one, value) for _, one, value in best.values()]

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
            for series, value in self._unrepeated(found.get(name + end, [])):
                rank_name, bound = self._places.get(series) or self._place(series)
                part = parts.get(rank_name)
                if part is None:
                    if self._rank(ranks, series) is None:
                        continue
                    part = parts[rank_name] = _Parts({}, {})
                if end != "_bucket":
                    part.totals[end] = part.totals.get(end, 0.0) + value
                elif bound == bound:
                    part.buckets[bound] = part.buckets.get(bound, 0.0) + value
        for rank_name, part in parts.items():
            if (histogram := part.histogram(self._bounds.get(quantity, ()))) is not None:
                ranks[rank_name].histograms[quantity] = histogram
                self._bounds[quantity] = histogram.bounds

    def _place(self, series: Series) -> tuple[str, float]:
        """A series' rank and, of a bucket, its bound (NaN where it has none)."""
        if len(self._places) >= MOST_SAMPLES:
            self._places.clear()
        place = series.labels.get(self.tables.rank_label, "0"), _bound(series.labels.get("le", ""))
        self._places[series] = place
        return place


class _Parts(NamedTuple):
    buckets: dict[float, float]
    totals: dict[str, float]

    def histogram(self, known: tuple[float, ...]) -> HistogramReading | None:
        """The histogram, or None where a part is missing, no number, or the buckets do not rise.

        `known`: bounds that it may have; it shares them then, as many polls are kept and all have the same.
        """
        count, total, buckets = self.totals.get("_count"), self.totals.get("_sum"), self.buckets
        if count is None or total is None or not 0 < len(buckets) <= MOST_BUCKETS:
            return None
        buckets.setdefault(math.inf, count)
        bounds = tuple(buckets)
        if bounds == known:
            bounds, counts = known, tuple(buckets.values())
        else:
            bounds = tuple(sorted(buckets))
            counts = tuple(map(buckets.__getitem__, bounds))
        rising = counts[0] >= 0.0 and all(map(le, counts, counts[1:]))
        sane = rising and usable(total) and usable(count) and usable(counts[-1])
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
    """Whether a value can be a count or a gauge here: 0, or of a size whose sums and quotients stay finite."""
    return value == 0.0 or LEAST_VALUE < value < MOST_VALUE


def started_wall_s(found: Mapping[str, Found]) -> float:
    """Unix time at which the exporter's process started; 0 where the page does not say."""
    return next((value for _, value in found.get(START_TIME, ()) if usable(value)), 0.0)


def whole_number(text: str) -> int:
    """A label's whole number; 0 where it is none (`None`, empty, negative, absurdly long)."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS else 0


def only_mean(total: float, count: float) -> HistogramReading | None:
    """Observations of which only sum and number are known, as a histogram of one open bucket: it has a mean and no
    quantiles. None where they are no observations."""
    return HistogramReading((math.inf,), (count,), total, count) if usable(total) and usable(count) else None


def frozen(ranks: Iterable[Rank]) -> tuple[RankReading, ...]:
    """The ranks as readings, in the order of their numbers; sums that are too large for a number are left out."""
    ordered = sorted(ranks, key=lambda rank: (len(rank.name), rank.name))
    return tuple(
        RankReading(rank.name, _usable_of(rank.counters), _usable_of(rank.gauges), rank.histograms) for rank in ordered
    )


def _usable_of(values: Mapping[str, float]) -> dict[str, float]:
    return {quantity: value for quantity, value in values.items() if usable(value)}


def _add_counter(rank: Rank, quantity: str, value: float) -> None:
    rank.counters[quantity] = rank.counters.get(quantity, 0.0) + value


def _raise_gauge(rank: Rank, quantity: str, value: float) -> None:
    rank.gauges[quantity] = max(value, rank.gauges.get(quantity, 0.0))


def _add_gauge(rank: Rank, quantity: str, value: float) -> None:
    rank.gauges[quantity] = rank.gauges.get(quantity, 0.0) + value


def _order(text: str) -> float:
    """A rank's number; what has none comes last."""
    return float(text) if text.isascii() and text.isdecimal() else math.inf


def _bound(text: str) -> float:
    """A bucket's upper bound; NaN where it is none. Nothing that is observed here is negative."""
    try:
        bound = float(text)
    except ValueError:
        return math.nan
    return bound if bound >= 0.0 else math.nan

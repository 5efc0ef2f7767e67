"""An engine's page becomes an `EngineReading` here, in one step: tables say which series make which quantity.

`Adapter` reads any engine that its tables describe; an engine's own module has those tables, and what they cannot say.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from operator import le
from types import MappingProxyType
from typing import ClassVar, Final, NamedTuple

import msgspec

from gpumon.readings.frame import Advance, EndpointState, EngineKind, EngineReading, HistogramReading, RankReading
from gpumon.sources.exposition import Scan, Series

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


class Page(NamedTuple):
    """A server's first answer, by which its kind is told."""

    path: str
    names: frozenset[str]
    """Sample names of its first lines."""
    body: bytes


class Rank:
    """The reading of one rank while it is put together."""

    __slots__ = ("counters", "gauges", "histograms", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.counters: dict[str, float] = {}
        self.gauges: dict[str, float] = {}
        self.histograms: dict[str, HistogramReading] = {}


class Figures(NamedTuple):
    """One model's page while it is put together: `ranks` by name, and the rest as in `EngineReading`."""

    ranks: dict[str, Rank]
    live: dict[str, str]
    advance: dict[str, Advance]
    info: dict[str, str]


class Part(NamedTuple):
    """A series that is all of a counter or gauge of a rank, or a part of it."""

    put: Callable[[Rank, str, float], None]
    rank: str
    quantity: str
    series: Series


class Histogram:
    """One histogram of one rank. Whoever reads it twice while nothing was observed gets the same object twice."""

    __slots__ = ("_bounds", "_last", "_more", "_row", "_series", "quantity", "rank")

    def __init__(self, rank: str, quantity: str, bounds: tuple[float, ...], series: Sequence[Sequence[Series]]) -> None:
        """`series`: of each bound those that are added up, and then those of the sum and those of the count."""
        self.rank, self.quantity, self._bounds = rank, quantity, bounds
        self._series = [each[0] for each in series] + [one for each in series for one in each[1:]]
        self._more = [at for at, each in enumerate(series) for _ in each[1:]]
        self._row: tuple[float, ...] = ()
        self._last: HistogramReading | None = None

    def reading(self, values: Mapping[Series, float]) -> HistogramReading | None:
        """The histogram, or None where a part is no number, or the buckets do not rise."""
        row = tuple(map(values.__getitem__, self._series))
        if row != self._row:
            self._row = row
            self._last = self._read(row)
        return self._last

    def _read(self, row: tuple[float, ...]) -> HistogramReading | None:
        first = len(row) - len(self._more)
        # Added to 0, as in any sum: a zero has no sign then.
        sums = [*map((0.0).__add__, row[:first])]
        for at, value in zip(self._more, row[first:], strict=True):
            sums[at] += value
        *counts, total, count = sums
        rising = counts[0] >= 0.0 and all(map(le, counts, counts[1:]))
        sane = rising and usable(total) and usable(count) and usable(counts[-1])
        return HistogramReading(self._bounds, tuple(counts), total, count) if sane else None


class Plan:
    """Where each figure of a page comes from.

    It holds for the next page with the same series as long as it is `steady` and all of its values are usable: then
    the labels alone made it.
    """

    __slots__ = ("advance", "cut", "histograms", "live", "parts", "ranks", "steady")

    def __init__(self) -> None:
        self.ranks: dict[str, None] = {}
        """Names, in the order in which the page has them."""
        self.parts: list[Part] = []
        self.histograms: list[Histogram] = []
        self.live: dict[str, str] = {}
        self.advance: dict[str, Advance] = {}
        self.cut = False
        """Ranks beyond the bound were left out."""
        self.steady = True
        """Nothing was left out for its value, or for what other pages had: the next page may be read by it."""

    def collected(self, values: Mapping[Series, float]) -> Figures | None:
        """The figures of a page; None where one is not usable, which the plan did not reckon with."""
        row = [values[part.series] for part in self.parts]
        if not all(map(usable, row)):
            return None
        ranks = {name: Rank(name) for name in self.ranks}
        for (put, rank, quantity, _), value in zip(self.parts, row, strict=True):
            put(ranks[rank], quantity, value)
        for histogram in self.histograms:
            if (reading := histogram.reading(values)) is not None:
                ranks[histogram.rank].histograms[histogram.quantity] = reading
        return Figures(ranks, self.live.copy(), self.advance.copy(), {})


def usable(value: float) -> bool:
    """Whether a value can be a count or a gauge here: 0, or of a size whose sums and quotients stay finite."""
    return value == 0.0 or LEAST_VALUE < value < MOST_VALUE


def add_counter(rank: Rank, quantity: str, value: float) -> None:
    """A counter is the sum of its series."""
    rank.counters[quantity] = rank.counters.get(quantity, 0.0) + value


def raise_gauge(rank: Rank, quantity: str, value: float) -> None:
    """Of a gauge's series the highest holds."""
    rank.gauges[quantity] = max(value, rank.gauges.get(quantity, 0.0))


def add_gauge(rank: Rank, quantity: str, value: float) -> None:
    """A gauge whose series are parts of a whole is their sum."""
    rank.gauges[quantity] = rank.gauges.get(quantity, 0.0) + value


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
        self.cut = False
        """The last page has more than `MOST_RANKS` ranks, or `MOST_PARTS` models: the others were left out."""
        self.unsupported = ""
        """Why the last page is one that this adapter does not read, in one line with the fix."""
        self._parts: dict[str, Adapter] = {}
        self._widths: dict[tuple[str, str], tuple[int, int]] = {}
        """(Rank, quantity) -> series that it is made of, and for how many polls there were fewer."""
        self._layout: tuple[list[Series], list[str], list[int]] | None = None
        """The series of the last page, its names, and how many series each has."""
        self._plan = Plan()
        """How a page of that layout is read."""
        self._bounds: dict[str, tuple[float, ...]] = {}
        """Quantity -> the bounds that its histogram had last."""

    @classmethod
    def claims(cls, page: Page) -> bool:
        """Whether this is a page of this engine."""
        return any(name.startswith(cls.prefixes) for name in page.names)

    @classmethod
    def of(cls, page: Page) -> type[Adapter]:  # noqa: ARG003
        """The adapter that reads this page and those like it; another where its names are the server's own choice."""
        return cls

    @property
    def wanted(self) -> frozenset[str]:
        """Names of all samples that `read` uses."""
        names = {*self.tables.extra, START_TIME}
        for rule in (*self.tables.counters, *self.tables.gauges):
            names.update(metric.name for metric in rule.metrics)
        for rule in self.tables.histograms:
            names.update(metric.name + end for metric in rule.metrics for end in ("_bucket", "_sum", "_count"))
        return frozenset(names)

    @cached_property
    def _deciding(self) -> frozenset[str]:
        """Names of the samples that are left out of a plan where they are not usable."""
        rules = (*self.tables.counters, *self.tables.gauges)
        return frozenset(metric.name for rule in rules for metric in rule.metrics)

    def read(self, scan: Scan, bodies: Bodies = NO_BODIES) -> EngineReading:
        """The page as a reading, which has neither name, url nor moment yet; without ranks where it has no series of
        this engine."""
        raise NotImplementedError

    def reading(
        self,
        figures: Figures,
        *,
        model: str = "",
        model_root: str = "",
        version: str = "",
        started_wall_s: float = 0.0,
        exact_steps: bool = False,
        tp: int = 0,
        pp: int = 0,
        dp: int = 0,
    ) -> EngineReading:
        """The figures as a reading; those that are too large for a number are left out."""
        ordered = sorted(figures.ranks.values(), key=lambda rank: (len(rank.name), rank.name))
        return EngineReading(
            name="",
            url="",
            state=EndpointState.OK,
            monotonic_s=0.0,
            kind=self.kind,
            version=version,
            model=model,
            model_root=model_root,
            started_wall_s=started_wall_s,
            exact_steps=exact_steps,
            live=figures.live,
            info=figures.info,
            ranks=tuple(
                RankReading(rank.name, _usable_of(rank.counters), _usable_of(rank.gauges), rank.histograms)
                for rank in ordered
            ),
            advance=figures.advance,
            from_documentation=self.from_documentation,
            tp=tp,
            pp=pp,
            dp=dp,
        )

    def read_all(self, scan: Scan, bodies: Bodies = NO_BODIES) -> tuple[EngineReading, ...]:
        """A reading for each model of the server, those without ranks left out."""
        label = self.tables.part_label
        if not label:
            readings = [self.read(scan, bodies)]
        else:
            scans: dict[str, dict[Series, float]] = {}
            for series, value in scan.values.items():
                scans.setdefault(series.labels.get(label, ""), {})[series] = value
            names = sorted(scans)[:MOST_PARTS]
            self._parts = {name: self._parts.get(name) or type(self)() for name in names}
            readings = [
                msgspec.structs.replace(self._parts[name].read(scan._replace(values=scans[name]), bodies), part=name)
                for name in names
            ]
            self.cut = len(scans) > MOST_PARTS or any(part.cut for part in self._parts.values())
        return tuple(reading for reading in readings if reading.ranks)

    def collect(self, found: Mapping[str, Found]) -> Figures:
        """What the tables give of a page."""
        values = dict(chain.from_iterable(found.values()))
        layout = [*values], [*found], [*map(len, found.values())]
        taken = self._plan.collected(values) if layout == self._layout else None
        if taken is None:
            self._plan = self._planned(found)
            deciding = (value for one, value in values.items() if one.name in self._deciding)
            self._layout = layout if self._plan.steady and all(map(usable, deciding)) else None
            taken = self._plan.collected(values)
            assert taken is not None, "a plan has usable values only"
        self.cut = self._plan.cut
        return taken

    def _planned(self, found: Mapping[str, Found]) -> Plan:
        plan = Plan()
        for rules, gauges in ((self.tables.counters, False), (self.tables.gauges, True)):
            for rule in rules:
                metric, series = self._first(rule, lambda metric: picked(found, metric))
                put = raise_gauge if gauges and not rule.added else add_gauge if gauges else add_counter
                alone = self._unrepeated(series)
                for one, _ in (whole := self._whole(rule.quantity, alone)):
                    if (rank := self._rank(plan, one)) is not None:
                        plan.parts.append(Part(put, rank, rule.quantity, one))
                if len(whole) < len(alone):
                    plan.steady = False
                if metric is not None and whole:
                    plan.live[rule.quantity] = str(metric)
                    if metric.advance is not Advance.LIVE:
                        plan.advance[rule.quantity] = metric.advance
        for rule in self.tables.histograms:
            metric, _ = self._first(rule, lambda metric: found.get(metric.name + "_bucket", []))
            if metric is not None:
                plan.live[rule.quantity] = str(metric)
                plan.histograms += self._histograms(plan, found, rule.quantity, metric.name)
        return plan

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

    def _rank(self, plan: Plan, series: Series) -> str | None:
        name = series.labels.get(self.tables.rank_label, "0")
        if name not in plan.ranks:
            if len(plan.ranks) >= MOST_RANKS:
                plan.cut = True
                return None
            plan.ranks[name] = None
        return name

    def _histograms(self, plan: Plan, found: Mapping[str, Found], quantity: str, name: str) -> Iterator[Histogram]:
        """The histogram of each rank that has all parts of one."""
        of_rank: dict[str, dict[float, list[Series]]] = {}
        sums: dict[str, list[Series]] = {}
        counts: dict[str, list[Series]] = {}
        for end, totals in (("_bucket", None), ("_sum", sums), ("_count", counts)):
            for series, _ in self._unrepeated(found.get(name + end, [])):
                if (rank := self._rank(plan, series)) is None:
                    continue
                if totals is not None:
                    totals.setdefault(rank, []).append(series)
                elif (bound := _bound(series.labels.get("le", ""))) == bound:
                    of_rank.setdefault(rank, {}).setdefault(bound, []).append(series)
        for rank, buckets in of_rank.items():
            if rank in sums and rank in counts and len(buckets) <= MOST_BUCKETS:
                buckets.setdefault(math.inf, counts[rank])
                bounds = tuple(sorted(buckets))
                if bounds == self._bounds.get(quantity):
                    # Many polls are kept, and all share one.
                    bounds = self._bounds[quantity]
                self._bounds[quantity] = bounds
                yield Histogram(rank, quantity, bounds, [*map(buckets.__getitem__, bounds), sums[rank], counts[rank]])


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


def started_wall_s(found: Mapping[str, Found]) -> float:
    """Unix time at which the exporter's process started; 0 where the page does not say."""
    return next((value for _, value in found.get(START_TIME, ()) if usable(value)), 0.0)


def labels_of(found: Mapping[str, Found], name: str) -> Mapping[str, str]:
    """Labels of the first series of a name, such as the settings in an `_info` metric; empty where there is none."""
    return next((series.labels for series, _ in found.get(name, ())), {})


def first_label(found: Mapping[str, Found], label: str, names: Iterable[str]) -> str:
    """The first value that a label has in the series of these names, such as the model; empty where it has none."""
    return next((text for name in names for one, _ in found.get(name, ()) if (text := one.labels.get(label, ""))), "")


def whole_number(text: str) -> int:
    """A label's whole number; 0 where it is none (`None`, empty, negative, absurdly long)."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS else 0


def only_mean(total: float, count: float) -> HistogramReading | None:
    """Observations of which only sum and number are known, as a histogram of one open bucket: it has a mean and no
    quantiles. None where they are no observations."""
    return HistogramReading((math.inf,), (count,), total, count) if usable(total) and usable(count) else None


def _usable_of(values: Mapping[str, float]) -> dict[str, float]:
    return {quantity: value for quantity, value in values.items() if usable(value)}


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

"""An engine's page becomes an `EngineReading` here, in one step: tables say which series make which quantity.

`Adapter` reads any engine that its tables describe; an engine's own module has those tables, what they cannot say, and
how it is started (`LaunchForm`), by which discovery tells a server.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from operator import le
from types import MappingProxyType
from typing import ClassVar, Final, NamedTuple

from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EndpointState, EngineKind, EngineReading, HistogramReading, RankReading
from gpumon.sources.exposition import Scan, Series

OptionNames = Mapping[str, str]
"""Setting -> the options or variables that give it, with spaces between them."""
_NONE: Final[OptionNames] = MappingProxyType({})
HOST_PORT: Final[OptionNames] = {"host": "--host", "port": "--port"}
NODE: Final = "it is one of several nodes: only the first has metrics; add that node's URL"
UNIX_SOCKET: Final = "it serves on a Unix socket only: start it with --host and --port"


class Catch(NamedTuple):
    """An option that leaves a process without a page of its own, unless it has one of the `harmless` values."""

    option: str
    why: str
    harmless: tuple[str, ...] = ()


class LaunchForm(NamedTuple):
    """One way to start an engine. `options` and `variables` (of the environment) are by what they say:

    host, port, address (both in one), model, served_name, tp, pp, dp (numbers), on, off (metrics), key (an API key is
    asked for), tls, prefix (path that its pages stand below), quantization, kv_dtype, state_dtype and convolution_dtype
    (in the engine's words), gpu_layers (layers on the GPUs), experts_on_cpu (of all layers or of so many), placement
    (tensors by device), cpu_offload_gb (GiB of each GPU's weights), embeds (it generates nothing), file (options stand
    in a file too).
    """

    kind: EngineKind
    title: str
    commands: tuple[str, ...]
    """Program or Python module, and the words that follow it."""
    options: OptionNames = _NONE
    variables: OptionNames = _NONE
    positional: bool = False
    """A word that belongs to no option is the model."""
    other_commands: tuple[str, ...] = ()
    """First words after the command that make it another one, which is no server."""
    catches: tuple[Catch, ...] = ()
    why_no_page: str = ""
    """Why it has no page that gpumon can read."""
    part: bool = False
    """A process of an engine, not its server."""
    servers_below: tuple[EngineKind, ...] = ()
    """Children of these kinds are servers of their own, and this one only hands requests on to them."""
    wrapper: bool = False
    """Counts only where no process below it is known as a server."""
    takes_usual_port: bool = True
    """It takes the kind's usual port where none is said."""
    why_no_port: str = ""
    """Why it has no page where neither options nor variables name a port."""


METRICS_PATH: Final = "/metrics"
MOST_RANKS: Final = 256
"""Data-parallel ranks read from one page."""
MOST_PARTS: Final = 32
"""Models read from the page of one server that has several."""
MOST_REMEMBERED: Final = 64 * MOST_RANKS
"""Entries of a memory by rank before it is emptied."""
MOST_BUCKETS: Final = 2048
"""Buckets of one histogram of one rank: one with more is left out."""
MOST_VALUE: Final = 1e30
"""No engine counts as far: the FLOPs of a hundred thousand GPUs in a year are 3e27."""
LEAST_VALUE: Final = 1e-30
"""Values from there to 0 are left out: quotients by them may not be finite."""
START_TIME: Final = "process_start_time_seconds"
"""Written by every single-process exporter of the Prometheus client libraries; absent in multi-process mode."""

FoundSeries = list[tuple[Series, float]]
"""Samples of one metric name: series with their values."""
Bodies = Mapping[str, bytes]
"""Path below the server's base URL -> what it answered there just now, or, of a rarely asked one, last."""
NO_BODIES: Final[Bodies] = MappingProxyType({})


SeriesOfNames = Mapping[str, list[Series]]
"""The series of a page by the name of their metric, in its order."""


class SamplesOfNames(Mapping[str, FoundSeries]):
    """The samples of a page by the name of their metric.

    They are put together when they are asked for: a page has hundreds, and a plan takes nearly all of them by their
    series.
    """

    def __init__(self, series_of: SeriesOfNames, values: Mapping[Series, float]) -> None:
        self._series_of = series_of
        self._values = values

    def __getitem__(self, name: str) -> FoundSeries:
        return [(series, self._values[series]) for series in self._series_of[name]]

    def __contains__(self, name: object) -> bool:
        return name in self._series_of

    def __iter__(self) -> Iterator[str]:
        return iter(self._series_of)

    def __len__(self) -> int:
        return len(self._series_of)


class Samples(NamedTuple):
    """All samples of a page: the value of each series, the samples of each name, and how many these are."""

    values: Mapping[Series, float]
    by_name: Mapping[str, FoundSeries]
    numbers: list[int]


class Metric(NamedTuple):
    """A metric that a quantity may be read from. `where` picks the series that have this label value."""

    name: str
    label: str = ""
    value: str = ""
    advance: Advance = Advance.LIVE
    """When it moves. Said of token counts; requests and latencies of ended requests are what they say."""

    def __str__(self) -> str:
        if self.label:
            return f'{self.name}{{{self.label}="{self.value}"}}'
        return self.name


class Rule(NamedTuple):
    """The source of one quantity: the first of `metrics` that the page has, never two of them together."""

    quantity: str
    metrics: tuple[Metric, ...]
    added: bool = False
    """A gauge whose series are parts of a whole (queues by reason): they are added up."""
    also: tuple[str, ...] = ()
    """Other gauges of which the same holds, taken together with the first of `metrics`."""


def rule(
    quantity: str, *names: str, prefix: str = "", advance: Advance = Advance.LIVE, label: str = "", value: str = ""
) -> Rule:
    """A rule of metrics that differ in name only."""
    return Rule(quantity, tuple(Metric(prefix + name, label, value, advance) for name in names))


class CompanionPage(NamedTuple):
    """Another page of the server that the adapter reads."""

    path: str
    every_s: float = 0.0
    """Seconds between two requests; 0: with every poll."""


class Tables(NamedTuple):
    """An engine in tables.

    Within a rank the series of a counter or histogram are added (they split it by a label such as the finish reason),
    those of a gauge are one figure written several times (a dead process leaves an old one behind): the highest holds.
    """

    rank_label: str
    """The label that tells data-parallel ranks apart; a series without it belongs to rank 0."""
    counters: tuple[Rule, ...] = ()
    gauges: tuple[Rule, ...] = ()
    histograms: tuple[Rule, ...] = ()
    extra: tuple[str, ...] = ()
    """Other sample names that the adapter looks at itself."""
    repeated: tuple[str, ...] = ()
    """Labels of processes that all report the same figures (tensor-parallel ranks): the lowest of each counts."""
    part_label: str = ""
    """The label that tells several models on one page apart: each is an engine of its own."""
    model: tuple[str, ...] = ()
    """Label that names the model, and the samples that have it; any where none is named."""
    ignored: tuple[tuple[str, str], ...] = ()
    """Labels with a value by which a series is left out: it counts something else than the others of its name."""


class FirstAnswer(NamedTuple):
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


class PageFigures:
    """One model's page while it is put together: `ranks` by name, and the rest as in `EngineReading`."""

    def __init__(self, ranks: dict[str, Rank], live: dict[str, str], advance: dict[str, Advance]) -> None:
        self.ranks = ranks
        self.live = live
        self.advance = advance
        self.info: dict[str, str] = {}
        self.model = ""
        self.model_root = ""
        self.version = ""
        self.part = ""
        self.started_wall_s = 0.0
        self.exact_steps = False
        self.tp = 0
        self.pp = 0
        self.dp = 0
        self.backends: dict[str, Rank] = {}
        """A front end's figures of its backends, by address or name."""
        self.samples: Mapping[str, FoundSeries] = {}
        """The samples of the page, by name."""
        self.bodies: Bodies = NO_BODIES
        self.open_metrics = False

    def samples_of(self, metric: Metric) -> FoundSeries:
        """The usable samples of a metric."""
        return usable_samples(self.samples, metric)

    def total(self, metric: Metric) -> float:
        """Sum of the usable series of a metric."""
        return series_sum(self.samples_of(metric))

    def counter_total(self, quantity: str) -> float:
        """Sum of a counter over all ranks; a rank without it adds nothing."""
        return sum(rank.counters.get(quantity, 0.0) for rank in self.ranks.values())

    def labels(self, name: str) -> Mapping[str, str]:
        """Labels of the first series of a name, such as the settings in an `_info` metric; empty without one."""
        return next((series.labels for series, _ in self.samples.get(name, ())), {})

    def first_label(self, label: str, names: Iterable[str]) -> str:
        """The first value that a label has in the series of these names; empty where it has none."""
        for name in names:
            for series, _ in self.samples.get(name, ()):
                text = series.labels.get(label, "")
                if text:
                    return text
        return ""

    def put(
        self, values: dict[str, float], quantity: str, value: float, source: str, advance: Advance = Advance.LIVE
    ) -> None:
        """Put a figure that was worked out into the counters or gauges (`values`) of a rank, with where it is from."""
        values[quantity] = value
        self.live[quantity] = source
        self.advance.pop(quantity, None)
        if advance is not Advance.LIVE:
            self.advance[quantity] = advance

    def leave_out(self, quantity: str) -> None:
        """Take a counter or gauge out of all ranks, as if the page did not have it."""
        self.live.pop(quantity, None)
        self.advance.pop(quantity, None)
        for rank in self.ranks.values():
            rank.counters.pop(quantity, None)
            rank.gauges.pop(quantity, None)


_Put = Callable[[Rank, str, float], None]
"""Puts the value of a quantity into a rank."""


class _Part(NamedTuple):
    """A series that is all of a counter or gauge of a rank, or a part of it, and how it gets there."""

    put: _Put
    rank: str
    quantity: str
    series: Series


class _Histogram:
    """One histogram of one rank. Whoever reads it twice while nothing was observed gets the same object twice."""

    __slots__ = ("_bounds", "_last", "_places", "_row", "_series", "quantity", "rank")

    def __init__(self, rank: str, quantity: str, bounds: tuple[float, ...], series: Sequence[Sequence[Series]]) -> None:
        """`series`: for each bound the series that are added up, then those of the sum, then those of the count."""
        self.rank = rank
        self.quantity = quantity
        self._bounds = bounds
        # The first series of each place, and after them all further ones: most histograms have none of these.
        self._series = [added[0] for added in series]
        self._places: list[int] = []
        """Place in the row to which each of the further series is added."""
        for place, added in enumerate(series):
            self._series += added[1:]
            self._places += [place] * (len(added) - 1)
        self._row: tuple[float, ...] = ()
        self._last: HistogramReading | None = None

    def reading(self, values: Mapping[Series, float]) -> HistogramReading | None:
        """The histogram, or None where a part is no number, or the buckets do not rise."""
        row = tuple(map(values.__getitem__, self._series))
        if row != self._row:
            self._row = row
            first_further = len(row) - len(self._places)
            # Added to 0, as in any sum: a zero has no sign then.
            sums = [*map((0.0).__add__, row[:first_further])]
            for place, value in zip(self._places, row[first_further:], strict=True):
                sums[place] += value
            *counts, total, count = sums
            rising = counts[0] >= 0.0 and all(map(le, counts, counts[1:]))
            sane = rising and is_usable(total) and is_usable(count) and is_usable(counts[-1])
            if sane:
                self._last = HistogramReading(self._bounds, tuple(counts), total, count)
            else:
                self._last = None
        return self._last


class _Plan:
    """The series of each figure of a page.

    It holds for the next page with the same series as long as all of its values are usable: then the labels alone made
    it.
    """

    def __init__(self) -> None:
        self.ranks: dict[str, None] = {}
        """Names of the ranks, in the order in which the page has them."""
        self.parts: list[_Part] = []
        self.histograms: list[_Histogram] = []
        self.live: dict[str, str] = {}
        self.advance: dict[str, Advance] = {}
        self.cut = False
        """Ranks beyond the bound were left out."""

    def page_figures(self, values: Mapping[Series, float]) -> PageFigures | None:
        """The figures of a page; None where one is not usable, which the plan did not expect."""
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


def _buckets(samples: Mapping[str, FoundSeries], metric: Metric) -> FoundSeries:
    """The buckets of a histogram."""
    return samples.get(f"{metric.name}_bucket", [])


def is_usable(value: float) -> bool:
    """Whether a value can be a count or a gauge here: 0, or of a size whose sums and quotients stay finite."""
    return value == 0.0 or LEAST_VALUE < value < MOST_VALUE


# The next three are what `_Part.put` may be.


def _add_counter(rank: Rank, quantity: str, value: float) -> None:
    rank.counters[quantity] = rank.counters.get(quantity, 0.0) + value


def _raise_gauge(rank: Rank, quantity: str, value: float) -> None:
    rank.gauges[quantity] = max(value, rank.gauges.get(quantity, 0.0))


def _add_gauge(rank: Rank, quantity: str, value: float) -> None:
    rank.gauges[quantity] = rank.gauges.get(quantity, 0.0) + value


class Adapter:
    """Turns the pages of one server into canonical quantities. It may remember, so each endpoint has its own.

    NaN, infinite and negative values are dropped: what is left out of a page is not zero.
    """

    kind: EngineKind = EngineKind.UNKNOWN
    tables: Tables = Tables("")
    prefixes: ClassVar[tuple[str, ...]] = ()
    """Sample names begin so on a page of this engine."""
    companions: tuple[CompanionPage, ...] = ()
    """Pages asked beside the metrics. An adapter may change its own: a server's pages differ by version."""
    from_documentation: ClassVar[bool] = False
    """Never held against a recording of a real engine."""

    def __init__(self) -> None:
        self._chosen: dict[str, int] = {}
        """Quantity -> place of the metric in its rule that it was read from last."""
        self.cut = False
        """The last page has more than `MOST_RANKS` ranks, or `MOST_PARTS` models: the others were left out."""
        self._parts: dict[str, Adapter] = {}
        """Model -> its adapter, where the server has several."""
        self._series: list[Series] = []
        """The series of the last page."""
        self._series_of: SeriesOfNames = {}
        """The series of the last page by their names."""
        self._layout: tuple[list[Series], list[str], list[int]] | None = None
        """The series of the last page, its names, and how many series each has."""
        self._plan = _Plan()
        """How a page of that layout is read."""
        self._bounds: dict[str, tuple[float, ...]] = {}
        """Quantity -> the bounds that its histogram had last."""
        self._remainders: dict[str, tuple[float, float]] = {}
        """Rank -> the whole and the remainder that it had last."""

    @classmethod
    def claims(cls, page: FirstAnswer) -> bool:
        """Whether this is a page of this engine."""
        return any(name.startswith(cls.prefixes) for name in page.names)

    @property
    def wanted_names(self) -> frozenset[str]:
        """Names of all samples that `read` uses."""
        names = {*self.tables.extra, START_TIME, *self._names_of_numbers}
        for histogram in self.tables.histograms:
            for end in ("_bucket", "_sum", "_count"):
                names.update(metric.name + end for metric in histogram.metrics)
        return frozenset(names)

    def page_names(self, name: str) -> frozenset[str]:
        """Names that a page may have for a name of the tables: the same one, unless the engine is read as another."""
        return frozenset({name})

    @cached_property
    def _names_of_numbers(self) -> frozenset[str]:
        """Names of the samples of counters and gauges: one that is not usable is left out of a plan."""
        names: set[str] = set()
        for number in (*self.tables.counters, *self.tables.gauges):
            names.update(metric.name for metric in number.metrics)
            names.update(number.also)
        return frozenset(names)

    def read_all(self, scan: Scan, bodies: Bodies = NO_BODIES) -> tuple[EngineReading, ...]:
        """A reading for each model of the server, those without ranks left out."""
        if self.tables.part_label:
            readings = self._read_parts(scan, bodies)
        else:
            readings = [self.read(scan, bodies)]
        result = []
        for reading in readings:
            if reading.ranks:
                result.append(reading)
        return tuple(result)

    def _read_parts(self, scan: Scan, bodies: Bodies) -> list[EngineReading]:
        """The readings of a server of several models, each by an adapter of its own."""
        values_of: dict[str, dict[Series, float]] = {}
        started = 0.0
        for series, value in scan.values.items():
            model = self.part_of(series)
            if model:
                values_of.setdefault(model, {})[series] = value
            elif series.name == START_TIME and is_usable(value):
                started = value
        models = sorted(values_of)[:MOST_PARTS]
        self._parts = {model: self._parts.get(model) or type(self)() for model in models}
        readings = []
        for model, adapter in self._parts.items():
            readings.append(adapter.read(scan._replace(values=values_of[model]), bodies, model, started))
        self.cut = len(values_of) > MOST_PARTS or any(adapter.cut for adapter in self._parts.values())
        return readings

    def part_of(self, series: Series) -> str:
        """The model that a series is of; empty for the server's own."""
        return series.labels.get(self.tables.part_label, "")

    def read(
        self, scan: Scan, bodies: Bodies = NO_BODIES, part: str = "", started_wall_s: float = 0.0
    ) -> EngineReading:
        """The page as a reading, which has neither name, url nor moment yet; without ranks where it has no series of
        this engine. `part`: the model that the page is of, where its server has several; `started_wall_s`: start of
        the server, where the page of one model does not have it."""
        series = [*scan.values]
        if series != self._series:
            self._series = series
            self._series_of = series_by_name(series)
        samples = named_samples(scan.values, self._series_of)
        figures = self.collect(samples)
        figures.samples = samples.by_name
        figures.bodies = bodies
        figures.open_metrics = scan.open_metrics
        figures.part = part
        starts = (value for _, value in samples.by_name.get(START_TIME, ()) if is_usable(value))
        figures.started_wall_s = next(starts, started_wall_s)
        if self.tables.model:
            label, *names = self.tables.model
            figures.model = figures.first_label(label, names or samples.by_name)
        self.refine(figures)
        return self.reading(figures)

    def refine(self, figures: PageFigures) -> None:
        """Add the figures that the tables cannot describe: an engine's own module does."""

    def reading(self, figures: PageFigures) -> EngineReading:
        """The figures as a reading; those that are too large for a number are left out."""
        ordered = sorted(figures.ranks.values(), key=lambda rank: (len(rank.name), rank.name))
        return EngineReading(
            name="",
            url="",
            state=EndpointState.OK,
            monotonic_s=0.0,
            kind=self.kind,
            version=figures.version,
            model=figures.model,
            model_root=figures.model_root,
            part=figures.part,
            started_wall_s=figures.started_wall_s,
            exact_steps=figures.exact_steps,
            live=figures.live,
            info=figures.info,
            ranks=tuple(map(_rank_reading, ordered)),
            advance=figures.advance,
            from_documentation=self.from_documentation,
            tp=figures.tp,
            pp=figures.pp,
            dp=figures.dp,
            backends=tuple(map(_rank_reading, figures.backends.values())),
        )

    def collect(self, samples: Samples) -> PageFigures:
        """The figures of a page by the tables."""
        values = samples.values
        groups = samples.by_name
        layout = [*values], [*groups], samples.numbers
        figures = None
        if layout == self._layout:
            figures = self._plan.page_figures(values)
        if figures is None:
            self._plan = self._make_plan(groups)
            numbers = (value for series, value in values.items() if series.name in self._names_of_numbers)
            if all(map(is_usable, numbers)):
                self._layout = layout
            else:
                # The next page may have the same series with usable values: it gets a plan of its own.
                self._layout = None
            figures = self._plan.page_figures(values)
            assert figures is not None, "a plan has usable values only"
        self.cut = self._plan.cut
        return figures

    def work_out_prefill(self, figures: PageFigures, *, cache_off: bool = False) -> None:
        """Computed prefill = prompt - cached, where the engine does not count it, but its cached tokens (`cache_off`:
        there are none)."""
        live = figures.live
        cached_by = live.get(q.PREFILL_CACHED, "")
        if not cached_by and not cache_off:
            return
        if q.PREFILL_COMPUTED in self._chosen or q.PROMPT_TOKENS not in live:
            return
        cached_tokens = self._subtract_cached(figures, has_cache=bool(cached_by))
        live[q.PREFILL_COMPUTED] = f"{live[q.PROMPT_TOKENS]} - {cached_by or '0 (prefix caching is off)'}"
        advance = figures.advance.get(q.PROMPT_TOKENS)
        # Once there are cached tokens, and those are counted at the end of a request, the difference is right only in
        # the long run.
        if cached_tokens and figures.advance.get(q.PREFILL_CACHED) is Advance.END:
            advance = Advance.END
        if advance is not None:
            figures.advance[q.PREFILL_COMPUTED] = advance

    def _subtract_cached(self, figures: PageFigures, *, has_cache: bool) -> float:
        """Put computed prefill into each rank; returns the cached tokens of all of them."""
        total_cached = 0.0
        for rank in figures.ranks.values():
            prompt = rank.counters.get(q.PROMPT_TOKENS)
            if has_cache:
                cached = rank.counters.get(q.PREFILL_CACHED)
            else:
                cached = 0.0
            if prompt is not None and cached is not None:
                rank.counters[q.PREFILL_COMPUTED] = self.remainder(rank.name, prompt, cached)
                total_cached += cached
        return total_cached

    def remainder(self, rank: str, whole: float, part: float) -> float:
        """Whole - part of a rank, which never falls but with the whole itself (a restart): the two are counted at
        different moments, so that their difference may fall for a while."""
        # Taken out and put in again, so that the ranks that were not seen for longest are first.
        last_whole, last_remainder = self._remainders.pop(rank, (0.0, 0.0))
        difference = max(0.0, whole - part)
        if whole >= last_whole:
            difference = max(difference, last_remainder)
        self._remainders[rank] = (whole, difference)
        while len(self._remainders) > 2 * MOST_RANKS:
            del self._remainders[next(iter(self._remainders))]
        return difference

    def _make_plan(self, samples: Mapping[str, FoundSeries]) -> _Plan:
        """How a page of these series is read."""
        plan = _Plan()
        if self.tables.ignored:
            samples = {name: self._without_ignored(series) for name, series in samples.items()}
        for counter in self.tables.counters:
            self._plan_number(plan, samples, counter, _add_counter)
        for gauge in self.tables.gauges:
            put = _add_gauge if gauge.added else _raise_gauge
            self._plan_number(plan, samples, gauge, put)
        for histogram in self.tables.histograms:
            metric, _ = self._first_metric(histogram, partial(_buckets, samples))
            if metric is not None:
                plan.live[histogram.quantity] = str(metric)
                plan.histograms += self._histograms(plan, samples, histogram.quantity, metric.name)
        return plan

    def _without_ignored(self, samples: FoundSeries) -> FoundSeries:
        """The samples without those whose labels say that they are to be left out."""
        counted = []
        for series, value in samples:
            if not any(series.labels.get(label) == ignored for label, ignored in self.tables.ignored):
                counted.append((series, value))
        return counted

    def _plan_number(self, plan: _Plan, page: Mapping[str, FoundSeries], number: Rule, put: _Put) -> None:
        """Plan a counter or gauge: the series of its metric, and of the metrics that are added to it."""
        metric, samples = self._first_metric(number, partial(usable_samples, page))
        if metric is None:
            return
        for name in number.also:
            samples = [*samples, *usable_samples(page, Metric(name))]
        for series, _ in self._unrepeated(samples):
            rank = plan.add_rank(self._rank_of(series))
            if rank is not None:
                plan.parts.append(_Part(put, rank, number.quantity, series))
        plan.live[number.quantity] = str(metric)
        added_count = sum(name in page for name in number.also)
        if added_count:
            plan.live[number.quantity] = f"{metric} + {added_count} others"
        if metric.advance is not Advance.LIVE:
            plan.advance[number.quantity] = metric.advance

    def _rank_of(self, series: Series) -> str:
        """Name of the rank that a series is of: 0 without a label that tells."""
        return series.labels.get(self.tables.rank_label, "0")

    def _unrepeated(self, samples: FoundSeries) -> FoundSeries:
        """The samples, but of series that differ in nothing but who reports them, only that of the lowest reporter."""
        repeated = self.tables.repeated
        if not repeated or len(samples) < 2:
            return samples
        lowest: dict[tuple[object, ...], tuple[tuple[float, ...], Series, float]] = {}
        """Name and other labels -> reporter, series and value of the lowest reporter so far."""
        for series, value in samples:
            labels = sorted(item for item in series.labels.items() if item[0] not in repeated)
            identity = (series.name, *labels)
            reporter = tuple(_reporter_number(series.labels.get(name, "")) for name in repeated)
            if identity not in lowest or reporter < lowest[identity][0]:
                lowest[identity] = (reporter, series, value)
        return [(series, value) for _, series, value in lowest.values()]

    def _first_metric(
        self, choice: Rule, samples_of: Callable[[Metric], FoundSeries]
    ) -> tuple[Metric | None, FoundSeries]:
        """The best metric of a rule that the page has, and its samples. One that was seen before and is absent now is
        not replaced by a worse one, whose total would be another."""
        last = self._chosen.get(choice.quantity, len(choice.metrics) - 1)
        for place, metric in enumerate(choice.metrics[: last + 1]):
            samples = samples_of(metric)
            if samples:
                self._chosen[choice.quantity] = place
                return metric, samples
        return None, []

    def _histograms(
        self, plan: _Plan, samples: Mapping[str, FoundSeries], quantity: str, name: str
    ) -> Iterator[_Histogram]:
        """The histograms of a quantity: one for each rank that has buckets, a sum and a count."""
        buckets_of = self._buckets_of_ranks(plan, samples, name)
        sums = self._series_of_ranks(plan, samples, f"{name}_sum")
        counts = self._series_of_ranks(plan, samples, f"{name}_count")
        for rank, buckets in buckets_of.items():
            if rank not in sums or rank not in counts or len(buckets) > MOST_BUCKETS:
                continue
            buckets.setdefault(math.inf, counts[rank])
            bounds = tuple(sorted(buckets))
            if bounds == self._bounds.get(quantity):
                # Many polls are kept in memory: all of them share one tuple of bounds.
                bounds = self._bounds[quantity]
            self._bounds[quantity] = bounds
            yield _Histogram(rank, quantity, bounds, [*map(buckets.__getitem__, bounds), sums[rank], counts[rank]])

    def _buckets_of_ranks(
        self, plan: _Plan, samples: Mapping[str, FoundSeries], name: str
    ) -> dict[str, dict[float, list[Series]]]:
        """Rank -> upper bound -> the series of the buckets; a bucket whose bound is no number is left out."""
        of_rank: dict[str, dict[float, list[Series]]] = {}
        for rank, several in self._series_of_ranks(plan, samples, f"{name}_bucket").items():
            for series in several:
                bound = _bound(series.labels.get("le", ""))
                if not math.isnan(bound):
                    of_rank.setdefault(rank, {}).setdefault(bound, []).append(series)
        return of_rank

    def _series_of_ranks(self, plan: _Plan, samples: Mapping[str, FoundSeries], name: str) -> dict[str, list[Series]]:
        """Rank -> its series of this name."""
        of_rank: dict[str, list[Series]] = {}
        for series, _ in self._unrepeated(samples.get(name, [])):
            rank = plan.add_rank(self._rank_of(series))
            if rank is not None:
                of_rank.setdefault(rank, []).append(series)
        return of_rank


class EngineRow(NamedTuple):
    """One kind of engine: its adapter, where its metrics stand, how they are switched on, and how it is started."""

    title: str
    """As its makers write it."""
    adapter: type[Adapter]
    port: int
    """Default port; never a sign of the kind."""
    paths: tuple[str, ...] = (METRICS_PATH,)
    """Paths below the base URL where its metrics may stand, the best first."""
    switch: str = ""
    """The option that switches its metrics on; empty where they are on unless switched off."""
    models_path: str = "/v1/models"
    """Path of its list of models; empty where there is none."""
    json_paths: tuple[str, ...] = ()
    """Paths that answer JSON: the adapter reads it from the bodies."""
    drain_paths: tuple[str, ...] = ()
    """Paths that may give what they have only once: never asked where that is known."""
    version_path: str = ""
    """Path of its version as JSON `{"version": ...}`; empty where there is none, or where the adapter finds it."""
    forms: tuple[LaunchForm, ...] = ()
    """How it is started, for discovery."""
    names_from: str = ""
    """Version of the source or documentation that its names are from, and its date where that is known."""
    instead: tuple[EngineKind, ...] = ()
    """Kinds that the same command starts with other models or options: their pages tell which one it is."""

    @property
    def kind(self) -> EngineKind:
        """The kind that the adapter reads."""
        return self.adapter.kind


class Failures(NamedTuple):
    """The counter of failed requests, where an engine counts them by cause and apart from those that it served."""

    name: str
    cause: str
    """Its label that says why."""
    client: str = ""
    """The cause that is the client's wish: a request that was aborted, and no failure."""
    turned_away: str = ""
    """The cause of requests that were turned away, as the queue was full: no failure of one that ran."""
    besides: bool = True
    """They are not in the engine's count of requests, and are added to it."""

    def put(self, figures: PageFigures) -> None:
        """Put failed, aborted and rejected requests into each rank, and the causes into `info`."""
        causes: dict[str, float] = {}
        for series, value in figures.samples_of(Metric(self.name)):
            cause = series.labels.get(self.cause, "")
            causes[cause] = causes.get(cause, 0.0) + value
        if not causes or not figures.ranks:
            return
        for rank in figures.ranks.values():
            self._put_into(rank, figures, causes)
        tell_causes(figures, causes)

    def _put_into(self, rank: Rank, figures: PageFigures, causes: Mapping[str, float]) -> None:
        """Put the requests by cause into one rank."""
        no_failures = {self.client: q.ABORTS, self.turned_away: q.REJECTIONS}
        # An engine that counts no aborts has "" as their cause, which is that of a series without the label, too.
        failed = sum(value for cause, value in causes.items() if not cause or cause not in no_failures)
        figures.put(rank.counters, q.FAILURES, failed, self.name)
        for cause, quantity in no_failures.items():
            if cause:
                source = str(Metric(self.name, self.cause, cause))
                figures.put(rank.counters, quantity, causes.get(cause, 0.0), source)
        if self.besides and q.REQUESTS in rank.counters:
            rank.counters[q.REQUESTS] += failed + causes.get(self.client, 0.0)
            figures.live[q.REQUESTS] += f" + {self.name}"


def tell_causes(figures: PageFigures, causes: Mapping[str, float]) -> None:
    """Note the causes of failed requests since the engine started: `BACKEND ×256, REJECTED ×3`; text from outside."""
    counted = []
    for cause, value in sorted(causes.items()):
        if cause and value:
            counted.append(f"{cause} ×{value:.0f}")
    if counted:
        figures.info["failures_by_cause"] = ", ".join(counted)


def named_samples(values: Mapping[Series, float], series_of: SeriesOfNames | None = None) -> Samples:
    """The samples of a page, grouped by metric name. `series_of`: its series by name, where that was done already."""
    if series_of is None:
        series_of = series_by_name(values)
    numbers = [*map(len, series_of.values())]
    return Samples(values, SamplesOfNames(series_of, values), numbers)


def series_by_name(all_series: Iterable[Series]) -> SeriesOfNames:
    """The series of a page, grouped by metric name."""
    groups: dict[str, list[Series]] = {}
    for series in all_series:
        groups.setdefault(series.name, []).append(series)
    return groups


def usable_samples(samples: Mapping[str, FoundSeries], metric: Metric) -> FoundSeries:
    """The usable samples of a metric, of all that a page has by name."""
    usable = []
    for series, value in samples.get(metric.name, ()):
        if is_usable(value) and (not metric.label or series.labels.get(metric.label) == metric.value):
            usable.append((series, value))
    return usable


def _rank_reading(rank: Rank) -> RankReading:
    """The rank as it goes into an `EngineReading`."""
    return RankReading(rank.name, _usable_of(rank.counters), _usable_of(rank.gauges), rank.histograms)


def series_sum(samples: FoundSeries) -> float:
    """Sum of the values of these series."""
    return sum(value for _, value in samples)


def whole_number(text: str) -> int:
    """A label's whole number; 0 where it is none (`None`, empty, negative, absurdly long)."""
    # More digits than 15 are no longer exact as a float.
    if text.isascii() and text.isdecimal() and len(text) <= 15:
        return int(text)
    return 0


class Scaled:
    """Histograms in another unit than the canonical one. Whoever reads one twice gets the same object twice."""

    def __init__(self, factor: float) -> None:
        """`factor`: what a value is multiplied by, such as 0.001 from milliseconds to seconds."""
        self._factor = factor
        self._last: dict[tuple[str, str], tuple[HistogramReading, HistogramReading]] = {}
        """Rank and quantity -> the last histogram, in its unit and in the canonical one."""

    def put(self, rank: Rank, quantities: Iterable[str]) -> None:
        """Scale these histograms of a rank."""
        for quantity in quantities:
            reading = rank.histograms.get(quantity)
            if reading is not None:
                rank.histograms[quantity] = self._scaled((rank.name, quantity), reading)

    def _scaled(self, key: tuple[str, str], reading: HistogramReading) -> HistogramReading:
        """The histogram in the canonical unit; `key`: its rank and quantity."""
        last, last_scaled = self._last.get(key, (None, None))
        if last is reading and last_scaled is not None:
            return last_scaled
        bounds = tuple(bound * self._factor for bound in reading.bounds)
        if last_scaled is not None and last_scaled.bounds == bounds:
            # Many polls are kept in memory: all of them share one tuple of bounds.
            bounds = last_scaled.bounds
        scaled = HistogramReading(bounds, reading.counts, reading.sum * self._factor, reading.count)
        if len(self._last) >= MOST_REMEMBERED:
            self._last.clear()
        self._last[key] = (reading, scaled)
        return scaled


def only_mean(total: float, count: float) -> HistogramReading | None:
    """Observations of which only sum and number are known, as a histogram of one open bucket: it has a mean and no
    quantiles. None where they are no observations."""
    if is_usable(total) and is_usable(count):
        return HistogramReading((math.inf,), (count,), total, count)
    return None


def _usable_of(values: Mapping[str, float]) -> dict[str, float]:
    """The figures without those that are too large: sums and quotients of usable values may be."""
    usable_figures = {}
    for quantity, value in values.items():
        if is_usable(value):
            usable_figures[quantity] = value
    return usable_figures


def _reporter_number(text: str) -> float:
    """Number of the process that reports, by its label; what has none comes last."""
    if text.isascii() and text.isdecimal():
        return float(text)
    return math.inf


def _bound(text: str) -> float:
    """A bucket's upper bound; NaN where it is none. Nothing that is observed here is negative."""
    try:
        bound = float(text)
    except ValueError:
        return math.nan
    return bound if bound >= 0.0 else math.nan

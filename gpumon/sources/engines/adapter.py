"""An engine's page becomes an `EngineReading` here, in one step: tables say which series make which quantity.

`Adapter` reads any engine that its tables describe; an engine's own module has those tables, what they cannot say, and
how it is started (`LaunchForm`), by which discovery tells a server.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar, Final, NamedTuple

from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EndpointState, EngineKind, EngineReading, RankReading
from gpumon.sources.engines.launch_form import LaunchForm
from gpumon.sources.engines.page_figures import (
    MOST_RANKS,
    NO_BODIES,
    Bodies,
    PageFigures,
    Rank,
    Samples,
    SeriesOfNames,
    is_usable,
    named_samples,
    series_by_name,
)
from gpumon.sources.engines.plan import Plan, PlanMaker
from gpumon.sources.engines.tables import CompanionPage, Tables
from gpumon.sources.exposition import Scan, Series

METRICS_PATH: Final = "/metrics"
MOST_PARTS: Final = 32
"""Models read from the page of one server that has several."""
START_TIME: Final = "process_start_time_seconds"
"""Written by every single-process exporter of the Prometheus client libraries; absent in multi-process mode."""


_MOST_REMAINDERS: Final = 2 * MOST_RANKS
"""Ranks of which a remainder is remembered: those of the page, and as many that are gone."""


class FirstAnswer(NamedTuple):
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
    tables: Tables = Tables("")
    prefixes: ClassVar[tuple[str, ...]] = ()
    """Sample names begin so on a page of this engine."""
    companions: tuple[CompanionPage, ...] = ()
    """Pages asked beside the metrics. An adapter may change its own: a server's pages differ by version."""
    from_documentation: ClassVar[bool] = False
    """Never held against a recording of a real engine."""

    def __init__(self) -> None:
        self.cut = False
        """The last page has more than `MOST_RANKS` ranks, or `MOST_PARTS` models: the others were left out."""
        self._parts: dict[str, Adapter] = {}
        """Model -> its adapter, where the server has several."""
        self._series: list[Series] = []
        """The series of the last page."""
        self._series_of: SeriesOfNames = {}
        """The series of the last page by the names of their metrics."""
        self._layout: tuple[list[Series], list[str], list[int]] | None = None
        """The pages that `_plan` holds for: series, names, and number of series of each name; None: for none."""
        self._plan = Plan()
        """How the last page was read."""
        self._remainders: dict[str, tuple[float, float]] = {}
        """Rank -> the whole and the remainder that it had last, as in `remainder`."""

    @classmethod
    def claims(cls, page: FirstAnswer) -> bool:
        """Whether this is a page of this engine."""
        return any(name.startswith(cls.prefixes) for name in page.names)

    @cached_property
    def _plan_maker(self) -> PlanMaker:
        """The maker of plans; made when it is first needed, as a feed makes its tables later than this class."""
        return PlanMaker(self.tables)

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
        result = [reading for reading in readings if reading.ranks]
        return tuple(result)

    def _read_parts(self, scan: Scan, bodies: Bodies) -> list[EngineReading]:
        """The readings of a server of several models, each by an adapter of its own."""
        values_of: dict[str, dict[Series, float]] = {}
        """Model -> its part of the page."""
        started_wall_s = 0.0
        for series, value in scan.values.items():
            model = self.part_of(series)
            if model:
                values_of.setdefault(model, {})[series] = value
            elif series.name == START_TIME and is_usable(value):
                started_wall_s = value
        models = sorted(values_of)[:MOST_PARTS]
        self._parts = {model: self._parts.get(model) or type(self)() for model in models}
        readings = [
            adapter.read(scan._replace(values=values_of[model]), bodies, model, started_wall_s)
            for model, adapter in self._parts.items()
        ]
        self.cut = len(values_of) > MOST_PARTS or any(adapter.cut for adapter in self._parts.values())
        return readings

    def part_of(self, series: Series) -> str:
        """The model that a series is of; empty for the server's own."""
        return series.labels.get(self.tables.part_label, "")

    def read(
        self, scan: Scan, bodies: Bodies = NO_BODIES, part: str = "", started_wall_s: float = 0.0
    ) -> EngineReading:
        """The page as a reading, which has neither name, url nor moment yet: its figures by the tables (`collect`),
        with those that they cannot describe (`refine`), as they go out (`reading`).

        It has no ranks where the page has no series of this engine. `part`: the model that the page is of, where its
        server has several; `started_wall_s`: start of the server (Unix time), where the page does not have it.
        """
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
        if self.tables.model_label:
            names = self.tables.model_samples or samples.by_name
            figures.model = figures.first_label(self.tables.model_label, names)
        self.refine(figures)
        return self.reading(figures)

    def refine(self, figures: PageFigures) -> None:
        """Add the figures that the tables cannot describe: an engine's own module does."""

    def reading(self, figures: PageFigures) -> EngineReading:
        """The figures as a reading; those that are too large for a number are left out."""
        # By length first: ranks are numbers, and 10 comes after 9.
        ranks = sorted(figures.ranks.values(), key=lambda rank: (len(rank.name), rank.name))
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
            ranks=tuple(map(_rank_reading, ranks)),
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
        series = [*values]
        if series == self._series:
            series = self._series  # one list for both
        layout = series, [*samples.by_name], samples.numbers
        figures = self._plan.page_figures(values) if layout == self._layout else None
        if figures is None:
            self._plan = self._plan_maker.make_plan(samples.by_name)
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
        """Put computed prefill = prompt - cached into the figures, where the engine counts those two alone.

        `cache_off`: prefix caching is off, so that no token is cached.
        """
        live = figures.live
        cached_by = live.get(q.PREFILL_CACHED, "")
        if not cached_by and not cache_off:
            return
        if q.PREFILL_COMPUTED in self._plan_maker.chosen or q.PROMPT_TOKENS not in live:
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
            cached = rank.counters.get(q.PREFILL_CACHED) if has_cache else 0.0
            if prompt is not None and cached is not None:
                rank.counters[q.PREFILL_COMPUTED] = self.remainder(rank.name, prompt, cached)
                total_cached += cached
        return total_cached

    def remainder(self, rank: str, whole: float, part: float) -> float:
        """Whole - part of a rank, as a counter: it never falls but with the whole itself (a restart).

        Engines count the two at different moments, so that their difference may fall for a while.
        """
        # Taken out and put in again below: the ranks that were not seen for longest are first then, and forgotten.
        last_whole, last_remainder = self._remainders.pop(rank, (0.0, 0.0))
        difference = max(0.0, whole - part)
        if whole >= last_whole:
            difference = max(difference, last_remainder)
        self._remainders[rank] = (whole, difference)
        while len(self._remainders) > _MOST_REMAINDERS:
            del self._remainders[next(iter(self._remainders))]
        return difference


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
    changes_each_s: float = 0.0
    """Seconds between two changes of its page, where these are rare: polled more often, its counters stand still and
    then jump. 0: it changes with each step."""
    instead: tuple[EngineKind, ...] = ()
    """Kinds that the same command starts with other models or options: their pages tell which one it is."""

    @property
    def kind(self) -> EngineKind:
        """The kind that the adapter reads."""
        return self.adapter.kind


def _rank_reading(rank: Rank) -> RankReading:
    """The rank as it goes into an `EngineReading`."""
    return RankReading(rank.name, _usable_of(rank.counters), _usable_of(rank.gauges), rank.histograms)


def _usable_of(values: Mapping[str, float]) -> dict[str, float]:
    """The figures without those that are too large: sums of usable values may be."""
    return {quantity: value for quantity, value in values.items() if is_usable(value)}

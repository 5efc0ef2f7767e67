"""A [[feed]] with a url: a metrics page that the user's selectors map to canonical quantities.

The series that a selector names are added up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Final
from urllib.parse import urlsplit

from gpumon.config.feed_rules import FEED_QUANTITIES, HIGHEST, MetricType
from gpumon.config.schema import Feed
from gpumon.config.selector import Selector, parse_selector
from gpumon.readings import quantities as q
from gpumon.readings.frame import EndpointState, EngineKind, EngineReading
from gpumon.readings.text import clean
from gpumon.sources.endpoint import BACK_OFF, ENDPOINT_LIMITS, BackOff, EndpointSource, ServerProcess
from gpumon.sources.engines.adapter import METRICS_PATH, START_TIME, Adapter, EngineRow, FirstAnswer
from gpumon.sources.engines.detect import Refusal, refusal_of_content
from gpumon.sources.engines.page_figures import PageFigures, Samples
from gpumon.sources.engines.tables import FoundSeries, Metric, Rule, Tables
from gpumon.sources.exposition import Scan
from gpumon.sources.feed_readings import advance_of, as_feed, endpoint_of
from gpumon.sources.fetch import HttpAnswer, Limits
from gpumon.sources.probe import ProbedServer, probe_configured

_HISTOGRAM_ENDS: Final = ("_bucket", "_sum", "_count")
_NO_PAGE: Final = "404: no such page: check the url of this [[feed]]"


class GenericAdapter(Adapter):
    """One feed. Series that match are added, in histograms bucket by bucket; of `HIGHEST` the highest counts."""

    kind = EngineKind.GENERIC
    feed: Feed
    part: str = ""

    def __init__(self) -> None:
        super().__init__()
        feed = self.feed
        self.selectors: dict[str, Selector] = {name: parse_selector(text) for name, text in feed.quantities.items()}
        rules: dict[MetricType, list[Rule]] = {kind: [] for kind in MetricType}
        for name in self.selectors:
            metric = Metric(name, advance=advance_of(name, feed))
            rules[FEED_QUANTITIES[name]].append(Rule(name, (metric,), added=name not in HIGHEST))
        self.tables = Tables(
            rank_label="",
            counters=tuple(rules[MetricType.COUNTER]),
            gauges=tuple(rules[MetricType.GAUGE]),
            histograms=tuple(rules[MetricType.HISTOGRAM]),
        )

    @classmethod
    def claims(cls, page: FirstAnswer) -> bool:  # noqa: ARG003 - the signature of Adapter
        """The user says so."""
        return True

    @property
    def wanted_names(self) -> frozenset[str]:
        """The metrics that the selectors name."""
        names = {START_TIME}
        for quantity, chosen in self.selectors.items():
            names.update(chosen.name + end for end in _name_ends(quantity))
        return frozenset(names)

    def collect(self, samples: Samples) -> PageFigures:
        """The figures of a page by the tables, which name each series by its quantity (`_selected_series`)."""
        by_name = self._selected_series(samples.by_name)
        values = dict(chain.from_iterable(by_name.values()))
        numbers = [len(series) for series in by_name.values()]
        figures = super().collect(Samples(values, by_name, numbers))
        figures.live.update((quantity, self.feed.quantities[quantity]) for quantity in figures.live)
        figures.exact_steps = q.STEPS in figures.live
        return figures

    def reading(self, figures: PageFigures) -> EngineReading:
        """The page in canonical quantities; no rank where no selector takes a series of it."""
        return as_feed(super().reading(figures), self.feed, self.part)

    def _selected_series(self, page: Mapping[str, FoundSeries]) -> dict[str, FoundSeries]:
        """The series of a page that the selectors take, by the name of the quantity.

        Those of a histogram stand under that name with `_bucket`, `_sum` and `_count`.
        """
        selected: dict[str, FoundSeries] = {}
        for quantity, chosen in self.selectors.items():
            for end in _name_ends(quantity):
                matching = [
                    (series, value) for series, value in page.get(chosen.name + end, ()) if chosen.takes(series.labels)
                ]
                if matching:
                    selected[quantity + end] = matching
        return selected


def _name_ends(quantity: str) -> Sequence[str]:
    """The ends of a quantity's sample names: those of a histogram, or none."""
    if FEED_QUANTITIES[quantity] is MetricType.HISTOGRAM:
        return _HISTOGRAM_ENDS
    return ("",)


def engine_row_of(feed: Feed, part: str, *, named_page: bool) -> EngineRow:
    """The feed as a row of the registry: it is read where the user says, and asked for no model and no version.

    `named_page`: the URL is that of the page itself, not of its server.
    """
    adapter = type("FeedAdapter", (GenericAdapter,), {"feed": feed, "part": part})
    path = "" if named_page else METRICS_PATH
    return EngineRow("the feed", adapter, port=0, paths=(path,), models_path="", version_path="")


class PageFeed(EndpointSource):
    """One feed with a url. `part` is its name where other feeds or endpoints read the same server."""

    def __init__(
        self,
        feed: Feed,
        part: str = "",
        clock: Callable[[], float] = time.monotonic,
        *,
        limits: Limits = ENDPOINT_LIMITS,
        back_off: BackOff = BACK_OFF,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Raises ValueError where the feed's URL is malformed."""
        self.feed = feed
        endpoint = endpoint_of(feed)
        super().__init__(endpoint, feed.interval_s, clock, limits=limits, back_off=back_off, wall=wall)
        named_page = bool(urlsplit(endpoint.url).path.strip("/"))
        self._row = engine_row_of(feed, part, named_page=named_page)
        self.readings = (as_feed(self.reading, feed, part),)

    async def _probe(self) -> tuple[ProbedServer, HttpAnswer] | Refusal:
        """The server with its first page, which is read by the selectors whatever it is. Raises FetchError."""
        return await probe_configured(self.fetcher, self.url, self.endpoint, self._row)

    def _fail(self, refusal: Refusal) -> None:
        """Note that a poll failed."""
        if refusal.state is EndpointState.METRICS_OFF:  # its advice is for an engine
            refusal = Refusal(EndpointState.HTTP_ERROR, _NO_PAGE)
        super()._fail(refusal)

    def _unread_refusal(self, server: ProbedServer, answer: HttpAnswer) -> Refusal:  # noqa: ARG002 - the signature of EndpointSource
        """The refusal of a page without a series that a selector takes."""
        refusal = refusal_of_content(answer.body, answer.content_type, EngineKind.UNKNOWN)
        if refusal.state is EndpointState.NOT_METRICS:
            return refusal
        text = f"none of its metrics is on this page: {self._with_sources(tuple(self.feed.quantities))}"
        return Refusal(EndpointState.NOT_METRICS, text)

    def _name(self, kind: EngineKind, part: str = "") -> str:  # noqa: ARG002 - the signature of EndpointSource
        """The name that the user gave it, or kind and port."""
        return self.feed.name or f"{EngineKind.GENERIC.value}:{self.url.port}"

    def _keep_notices(self, scan: Scan, process: ServerProcess) -> None:
        """Keep what is to be told of the newest page: for a feed, also quantities without a series on it."""
        super()._keep_notices(scan, process)
        absent = [name for name in self.feed.quantities if not any(name in reading.live for reading in self.readings)]
        if absent:
            text = f"no series on the page for {self._with_sources(absent)}"
            self._notices[text] = self._notices.get(text, self._wall())

    def _with_sources(self, quantities: Sequence[str]) -> str:
        """Quantities with the selectors of their series: `running = name{...}`."""
        return clean(", ".join(f"{name} = {self.feed.quantities[name]}" for name in quantities), 200)

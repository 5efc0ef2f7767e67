"""The metrics page of a [[feed]]: an endpoint of which the user says what it is and what its metrics mean.

The series that the user's selectors name are added up to canonical quantities.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from gpumon.config.feed_rules import HIGHEST, QUANTITIES, Kind, server, shared
from gpumon.config.schema import Config, Feed
from gpumon.config.selector import Selector, selector
from gpumon.readings import quantities as q
from gpumon.readings.frame import EndpointState, EngineKind, EngineReading
from gpumon.readings.text import clean
from gpumon.sources.endpoint import BACK_OFF, LIMITS, BackOff, EndpointSource
from gpumon.sources.engines.adapter import (
    METRICS,
    START_TIME,
    Adapter,
    Figures,
    Found,
    Metric,
    Page,
    Row,
    Rule,
    Tables,
)
from gpumon.sources.engines.detect import Refusal, by_content
from gpumon.sources.exposition import Scan
from gpumon.sources.feeds.described import advance_of, as_feed, endpoint_of
from gpumon.sources.feeds.file import FileFeed
from gpumon.sources.fetch import Answer, Limits
from gpumon.sources.probe import Server, described

ENDS: Final = ("_bucket", "_sum", "_count")
NO_PAGE: Final = "404: no such page: check the url of this [[feed]]"


class GenericAdapter(Adapter):
    """One feed. Series that match are added, in histograms bucket by bucket; of `HIGHEST` the highest counts."""

    kind = EngineKind.GENERIC
    feed: Feed
    part: str = ""

    def __init__(self) -> None:
        super().__init__()
        feed = self.feed
        self.selectors: dict[str, Selector] = {name: selector(text) for name, text in feed.quantities.items()}
        rules: dict[Kind, list[Rule]] = {kind: [] for kind in Kind}
        for name in self.selectors:
            metric = Metric(name, advance=advance_of(name, feed))
            rules[QUANTITIES[name]].append(Rule(name, (metric,), added=name not in HIGHEST))
        self.tables = Tables(
            rank_label="",
            counters=tuple(rules[Kind.COUNTER]),
            gauges=tuple(rules[Kind.GAUGE]),
            histograms=tuple(rules[Kind.HISTOGRAM]),
        )

    @classmethod
    def claims(cls, page: Page) -> bool:  # noqa: ARG003
        """The user says so."""
        return True

    @property
    def wanted(self) -> frozenset[str]:
        """The metrics that the selectors name."""
        names = {START_TIME}
        for quantity, chosen in self.selectors.items():
            ends = ENDS if QUANTITIES[quantity] is Kind.HISTOGRAM else ("",)
            names.update(chosen.name + end for end in ends)
        return frozenset(names)

    def collect(self, found: Mapping[str, Found]) -> Figures:
        """What the selectors take of a page: they stand under the quantity's name with the ends of a histogram."""
        figures = super().collect(self._chosen_series(found))
        figures.live.update((quantity, self.feed.quantities[quantity]) for quantity in figures.live)
        figures.exact_steps = q.STEPS in figures.live
        return figures

    def reading(self, figures: Figures) -> EngineReading:
        """The page in canonical quantities; no rank where no selector takes a series of it."""
        return as_feed(super().reading(figures), self.feed, self.part)

    def _chosen_series(self, page: Mapping[str, Found]) -> dict[str, Found]:
        found: dict[str, Found] = {}
        for quantity, chosen in self.selectors.items():
            for end in ENDS if QUANTITIES[quantity] is Kind.HISTOGRAM else ("",):
                series = [(one, value) for one, value in page.get(chosen.name + end, ()) if chosen.takes(one.labels)]
                if series:
                    found[quantity + end] = series
        return found


def row_of(feed: Feed, part: str, *, named_page: bool) -> Row:
    """The feed as a row of the registry: it is read where the user says, and asked for no model and no version."""
    adapter = type("FeedAdapter", (GenericAdapter,), {"feed": feed, "part": part})
    return Row("the feed", adapter, 0, paths=("" if named_page else METRICS,), models_path="", version_path="")


class PageFeed(EndpointSource):
    """One feed with a url. `part` is its name where other feeds or endpoints read the same server."""

    def __init__(
        self,
        feed: Feed,
        part: str = "",
        clock: Callable[[], float] = time.monotonic,
        *,
        limits: Limits = LIMITS,
        back_off: BackOff = BACK_OFF,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Raises ValueError where the feed's URL is malformed."""
        self.feed = feed
        endpoint = endpoint_of(feed)
        super().__init__(endpoint, feed.interval_s, clock, limits=limits, back_off=back_off, wall=wall)
        row = row_of(feed, part, named_page=bool(urlsplit(endpoint.url).path.strip("/")))
        self._probe = partial(described, self._fetcher, self.url, self.endpoint, row)
        self._blank = as_feed(self._blank, feed, part)
        self.readings = (self._blank,)

    def _fail(self, refusal: Refusal) -> None:
        off = refusal.state is EndpointState.METRICS_OFF
        super()._fail(Refusal(EndpointState.HTTP_ERROR, NO_PAGE) if off else refusal)

    def _unread(self, server: Server, answer: Answer) -> Refusal:  # noqa: ARG002
        refusal = by_content(answer.body, answer.content_type, EngineKind.UNKNOWN)
        if refusal.state is EndpointState.NOT_METRICS:
            return refusal
        text = f"none of its metrics is on this page: {self._said(tuple(self.feed.quantities))}"
        return Refusal(EndpointState.NOT_METRICS, text)

    def _name(self, kind: EngineKind, part: str = "") -> str:  # noqa: ARG002
        return self.feed.name or f"{EngineKind.GENERIC.value}:{self.url.port}"

    def _notice(self, scan: Scan) -> None:
        super()._notice(scan)
        absent = [name for name in self.feed.quantities if not any(name in one.live for one in self.readings)]
        if absent:
            text = f"no series on the page for {self._said(absent)}"
            self._notices[text] = self._notices.get(text, self._wall())

    def _said(self, quantities: Sequence[str]) -> str:
        """Quantities with their series."""
        return clean(", ".join(f"{name} = {self.feed.quantities[name]}" for name in quantities), 200)


def feeds_of(config: Config) -> tuple[list[PageFeed], list[FileFeed]]:
    """The feeds of the config with a url, and those with a file; not started."""
    several = shared(config)
    pages: list[PageFeed] = []
    files: list[FileFeed] = []
    for feed in config.feed:
        part = feed.name if server(feed) in several else ""
        if feed.url:
            pages.append(PageFeed(feed, part))
        else:
            files.append(FileFeed(feed, part))
    return pages, files

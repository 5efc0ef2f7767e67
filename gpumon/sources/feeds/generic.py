"""Reads the metrics page of a feed: the series that the user's selectors name, added up to canonical quantities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpumon.config.feed_rules import HIGHEST, QUANTITIES, Kind
from gpumon.config.schema import Feed
from gpumon.config.selector import Selector, selector
from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EngineKind, EngineReading
from gpumon.sources.engines.adapter import (
    NO_BODIES,
    START_TIME,
    Adapter,
    Bodies,
    Found,
    Metric,
    Page,
    Rule,
    Tables,
    by_name,
    started_wall_s,
)
from gpumon.sources.engines.registry import METRICS, Row
from gpumon.sources.exposition import Scan
from gpumon.sources.feeds.described import as_feed

ENDS: Final = ("_bucket", "_sum", "_count")
PROMPTS: Final = frozenset({q.PROMPT_TOKENS, q.PREFILL_COMPUTED, q.PREFILL_CACHED})


def advance_of(quantity: str, feed: Feed) -> Advance:
    """When a quantity of a feed moves: counters with the work, unless the user says at the end; gauges as they are.

    A server may book a whole prompt at once, when it is done: no rate of it is shorter than the times to first token
    where these are told.
    """
    if quantity in feed.at_end:
        return Advance.END
    if quantity in PROMPTS and q.TTFT in feed.quantities:
        return Advance.PROMPT
    return Advance.SAMPLED if quantity.endswith("_per_s") else Advance.LIVE


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

    def read(self, scan: Scan, bodies: Bodies = NO_BODIES) -> EngineReading:  # noqa: ARG002
        """The page in canonical quantities; no rank where no selector takes a series of it."""
        page = by_name(scan)
        figures = self.collect(self._chosen_series(page))
        figures.live.update((quantity, self.feed.quantities[quantity]) for quantity in figures.live)
        reading = self.reading(
            figures, model=self.feed.model, started_wall_s=started_wall_s(page), exact_steps=q.STEPS in figures.live
        )
        return as_feed(reading, self.feed, self.part)

    def _chosen_series(self, page: Mapping[str, Found]) -> dict[str, Found]:
        """The series that each selector takes, under the quantity's name with the ends of a histogram."""
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

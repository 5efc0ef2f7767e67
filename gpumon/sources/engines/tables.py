"""An engine in tables: which metrics of its page are which quantity, and which labels tell ranks and models."""

from __future__ import annotations

import math
from typing import NamedTuple

from gpumon.readings.frame import Advance
from gpumon.sources.exposition import Series

FoundSeries = list[tuple[Series, float]]
"""Samples of one metric name: series with their values."""


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
    """Names of other gauges that are parts of the same whole: they are added to the first of `metrics`."""


def rule(
    quantity: str,
    *names: str,
    prefix: str = "",
    advance: Advance = Advance.LIVE,
    label: str = "",
    value: str = "",
    added: bool = False,
) -> Rule:
    """A rule whose metrics differ in name only; `prefix` stands before each name, `added` is that of the rule."""
    return Rule(quantity, tuple(Metric(prefix + name, label, value, advance) for name in names), added)


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
    model_label: str = ""
    """The label that names the model; empty where none does."""
    model_samples: tuple[str, ...] = ()
    """Names of the samples in which that label is looked for; empty: in all."""
    ignored: tuple[tuple[str, str], ...] = ()
    """Labels with a value by which a series is left out: it counts something else than the others of its name."""

    priority_label: str = ""
    """The label by which gauges are split into parts beside their whole, which has it empty: the parts are left out."""

    def rank_of(self, series: Series) -> str:
        """Name of the data-parallel rank that a series is of: 0 without a label that tells."""
        return series.labels.get(self.rank_label, "0")

    def without_ignored(self, samples: FoundSeries) -> FoundSeries:
        """The samples without those whose labels say that they are to be left out."""
        return [
            (series, value)
            for series, value in samples
            if not any(series.labels.get(label) == ignored for label, ignored in self.ignored)
        ]

    def without_parts(self, samples: FoundSeries) -> FoundSeries:
        """The samples of a gauge without the parts by priority, where the whole is there, too."""
        wholes = [item for item in samples if not item[0].labels.get(self.priority_label)]
        return wholes or samples

    def without_repeats(self, samples: FoundSeries) -> FoundSeries:
        """The samples, but of series that differ in nothing but who reports them, only that of the lowest reporter."""
        if not self.repeated or len(samples) < 2:
            return samples
        lowest: dict[tuple[object, ...], tuple[tuple[float, ...], Series, float]] = {}
        """Name and other labels -> reporter, series and value of the lowest reporter so far."""
        for series, value in samples:
            labels = sorted(item for item in series.labels.items() if item[0] not in self.repeated)
            identity = (series.name, *labels)
            reporter = tuple(_reporter_number(series.labels.get(name, "")) for name in self.repeated)
            if identity not in lowest or reporter < lowest[identity][0]:
                lowest[identity] = (reporter, series, value)
        return [(series, value) for _, series, value in lowest.values()]


def _reporter_number(text: str) -> float:
    """Number of the process that reports, by its label; what has none comes last."""
    if text.isascii() and text.isdecimal():
        return float(text)
    return math.inf

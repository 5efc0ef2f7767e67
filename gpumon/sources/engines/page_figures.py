"""One page of an engine: its samples by name, and its figures by rank while they are put together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from gpumon.readings.frame import Advance, HistogramReading
from gpumon.readings.quantities import PREFILL_CACHED, PREFILL_COMPUTED, PROMPT_TOKENS
from gpumon.sources.engines.tables import FoundSeries, Metric
from gpumon.sources.exposition import Series

MOST_RANKS: Final = 256
"""Data-parallel ranks read from one page."""
MOST_REMEMBERED: Final = 64 * MOST_RANKS
"""Entries of a memory by rank before it is emptied: pages may name ever new ranks."""
MOST_VALUE: Final = 1e30
"""No engine counts as far: the FLOPs of a hundred thousand GPUs in a year are 3e27."""
_MOST_DIGITS: Final = 15
"""Digits of a whole number that a float holds exactly."""
LEAST_VALUE: Final = 1e-30
"""Values from there to 0 are left out: quotients by them may not be finite."""
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


def is_usable(value: float) -> bool:
    """Whether a value can be a count or a gauge here: 0, or of a size whose sums and quotients stay finite."""
    return value == 0.0 or LEAST_VALUE < value < MOST_VALUE


def usable_samples(samples: Mapping[str, FoundSeries], metric: Metric) -> FoundSeries:
    """The usable samples of a metric; `samples` are those of the whole page by name."""
    return [
        (series, value)
        for series, value in samples.get(metric.name, ())
        if is_usable(value) and (not metric.label or series.labels.get(metric.label) == metric.value)
    ]


def series_sum(samples: FoundSeries) -> float:
    """Sum of the values of these series."""
    return sum(value for _, value in samples)


def whole_number(text: str) -> int:
    """A label's whole number; 0 where it is none (`None`, empty, negative, absurdly long)."""
    if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS:
        return int(text)
    return 0


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
        """Quantity -> the metric that it was read from, or how it was worked out."""
        self.advance = advance
        """Quantity -> when its metric moves, where that is not at once."""
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

    @property
    def first_rank(self) -> Rank | None:
        """The rank whose name comes first; None on a page without ranks."""
        return self.ranks[min(self.ranks)] if self.ranks else None

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
        """Put a figure that was worked out into `values`, the counters or the gauges of a rank.

        `source` says how it was worked out, `advance` when it moves.
        """
        values[quantity] = value
        self.live[quantity] = source
        self.advance.pop(quantity, None)
        if advance is not Advance.LIVE:
            self.advance[quantity] = advance

    def put_prompts(self, rank: Rank, source: str) -> None:
        """Put the prompt tokens of a rank that counts them as their prefill begins: the computed and the cached."""
        computed = rank.counters.get(PREFILL_COMPUTED)
        cached = rank.counters.get(PREFILL_CACHED)
        if computed is not None and cached is not None:
            self.put(rank.counters, PROMPT_TOKENS, computed + cached, source, Advance.PROMPT)

    def leave_out(self, quantity: str) -> None:
        """Take a counter or gauge out of all ranks, as if the page did not have it."""
        self.live.pop(quantity, None)
        self.advance.pop(quantity, None)
        for rank in self.ranks.values():
            rank.counters.pop(quantity, None)
            rank.gauges.pop(quantity, None)

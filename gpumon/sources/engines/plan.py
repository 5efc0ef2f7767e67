"""Which series of a page make which figure: worked out once, and good for every page with the same series."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import le
from typing import Final, NamedTuple

from gpumon.readings.frame import Advance, HistogramReading
from gpumon.sources.exposition import Series

MOST_VALUE: Final = 1e30
"""No engine counts as far: the FLOPs of a hundred thousand GPUs in a year are 3e27."""
LEAST_VALUE: Final = 1e-30


class Rank:
    """The reading of one rank while it is put together."""

    __slots__ = ("counters", "gauges", "histograms", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.counters: dict[str, float] = {}
        self.gauges: dict[str, float] = {}
        self.histograms: dict[str, HistogramReading] = {}


class Collected(NamedTuple):
    """What the tables gave: ranks, the metric behind each quantity, and when it moves where that is not live."""

    ranks: dict[str, Rank]
    live: dict[str, str]
    advance: dict[str, Advance]


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

    def collected(self, values: Mapping[Series, float]) -> Collected | None:
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
        return Collected(ranks, self.live.copy(), self.advance.copy())


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

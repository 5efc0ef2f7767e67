"""Histograms that need work: in another unit than the canonical one, or of which only the mean is known."""

from __future__ import annotations

import math
from collections.abc import Iterable

from gpumon.readings.frame import HistogramReading
from gpumon.sources.engines.page_figures import MOST_REMEMBERED, Rank, is_usable


class Scaled:
    """Histograms in another unit than the canonical one. One without a change since the last page stays the same."""

    def __init__(self, factor: float) -> None:
        """`factor`: canonical units in one of the engine's, such as 0.001 for milliseconds."""
        self._factor = factor
        self._last: dict[tuple[str, str], tuple[HistogramReading, HistogramReading]] = {}
        """Rank and quantity -> the last histogram, in its unit and in the canonical one."""

    def put(self, rank: Rank, quantities: Iterable[str]) -> None:
        """Replace these histograms of a rank by those in the canonical unit."""
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

"""Latencies and throughput of a model's engines while their traffic was recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from gpumon.efficiency.quantiles import merge_common, observations_between, quantiles
from gpumon.readings import quantities as q
from gpumon.readings.frame import HistogramReading
from gpumon.readings.snapshot import Quantiles

LATENCIES: Final = (q.TTFT, q.ITL, q.TPOT, q.E2E)
"""Histograms that are kept, in seconds."""


class MeasuredRun(NamedTuple):
    """Figures of all engines of a model, from the first to the last reading of a recording."""

    instances: int
    """Data-parallel ranks count one by one."""
    in_flight: float
    """Mean requests of one instance, running and waiting."""
    latencies: Mapping[str, Quantiles]
    """By quantity; those that the engines export."""
    tokens_per_s: float
    """Output tokens per second."""


class RunRecorder:
    """Adds up what the ranks of a model did between their readings."""

    def __init__(self) -> None:
        self._histograms: dict[str, HistogramReading] = {}
        self._covered_s: dict[tuple[str, str, str, str], float] = {}
        """Rank of an engine -> seconds between its readings."""
        self._request_seconds = 0.0
        self._tokens = 0.0

    def add(
        self,
        rank: tuple[str, str, str, str],
        seconds: float,
        in_flight: float,
        tokens: float,
        histograms: Mapping[str, tuple[HistogramReading | None, HistogramReading | None]],
    ) -> None:
        """Add a stretch of one rank: its mean requests, its output tokens, and each histogram before and after."""
        self._covered_s[rank] = self._covered_s.get(rank, 0.0) + seconds
        self._request_seconds += in_flight * seconds
        self._tokens += tokens
        for quantity, (old, new) in histograms.items():
            growth = observations_between(old, new)
            if growth is None:
                continue
            before = self._histograms.get(quantity)
            both = growth if before is None else merge_common([before, growth])
            if both is not None:
                self._histograms[quantity] = both

    def run(self) -> MeasuredRun | None:
        """Figures of all stretches; None while there is none."""
        covered_s = sum(self._covered_s.values())
        if covered_s <= 0.0:
            return None
        latencies = {quantity: quantiles(histogram) for quantity, histogram in self._histograms.items()}
        return MeasuredRun(
            instances=len(self._covered_s),
            in_flight=self._request_seconds / covered_s,
            latencies=latencies,
            tokens_per_s=self._tokens / max(self._covered_s.values()),
        )

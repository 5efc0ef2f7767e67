"""The load of one target's engines, read from a few series by the engine's own adapter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpumon.efficiency.counted import most_per_s
from gpumon.efficiency.plausible import plausible_engine
from gpumon.efficiency.restarts import growth_of
from gpumon.readings import quantities as q
from gpumon.readings.fleet import EngineLoad
from gpumon.readings.frame import Advance, EngineReading
from gpumon.sources.endpoint import NO_SCAN
from gpumon.sources.engines.adapter import EngineRow
from gpumon.sources.exposition import Series


class EngineLoadReader:
    """Reads the load of one target's engines, with the engine's own adapter."""

    def __init__(self, row: EngineRow) -> None:
        self.row = row
        self._adapter = row.adapter()
        self._scraped_s = 0.0
        """Unix time of the newest scrape that was read."""
        self._decoded: dict[str, float] = {}
        """Part -> decode tokens counted by the newest scrape."""
        self.loads: Mapping[str, EngineLoad] = {}
        """Part of the page (a model, where there are several) -> load of that engine."""

    def take(self, values: dict[Series, float], scraped_s: float) -> None:
        """Read a scrape into `loads`, unless it is the last one."""
        if scraped_s > self._scraped_s:
            readings = self._adapter.read_all(NO_SCAN._replace(values=values))
            elapsed_s = scraped_s - self._scraped_s
            self.loads = {reading.part: self._load(reading, elapsed_s) for reading in readings}
            self._scraped_s = scraped_s

    def _load(self, reading: EngineReading, elapsed_s: float) -> EngineLoad:
        """The load of one engine, `elapsed_s` after the scrape before. Counters that fell began anew, as for `rate`."""
        reading, _ = plausible_engine(reading)
        usages = [rank.gauges[q.KV_USAGE] for rank in reading.ranks if q.KV_USAGE in rank.gauges]
        decoded = _sum_over_ranks(rank.counters.get(q.DECODE_TOKENS) for rank in reading.ranks)
        before = self._decoded.get(reading.part)
        decode_per_s = None
        if decoded is not None:
            self._decoded[reading.part] = decoded
            is_live = reading.advance.get(q.DECODE_TOKENS, Advance.LIVE) is Advance.LIVE
            if before is not None and is_live:
                per_s = growth_of(before, decoded) / elapsed_s
                decode_per_s = per_s if per_s <= len(reading.ranks) * most_per_s(q.DECODE_TOKENS) else None
        return EngineLoad(
            running=_sum_over_ranks(rank.gauges.get(q.RUNNING) for rank in reading.ranks),
            waiting=_sum_over_ranks(rank.gauges.get(q.WAITING) for rank in reading.ranks),
            kv_usage_ratio=sum(usages) / len(usages) if usages else None,
            decode_tokens_per_s=decode_per_s,
        )


def _sum_over_ranks(values: Iterable[float | None]) -> float | None:
    """The sum of a figure over all ranks; None where one of them has none."""
    total = 0.0
    has_values = False
    for value in values:
        if value is None:
            return None
        total += value
        has_values = True
    return total if has_values else None

"""Whether a server's page is of another process than the page before."""

from __future__ import annotations

import math

from gpumon.readings.frame import EngineReading
from gpumon.readings.quantities import DECODE_TOKENS


def restarted(old: tuple[EngineReading, ...], pages: tuple[EngineReading, ...]) -> bool:
    """Whether these pages are of another process than the last ones."""
    before = {reading.part: reading for reading in old}
    return any(page.part in before and _another(before[page.part], page) for page in pages)


def _another(old: EngineReading, page: EngineReading) -> bool:
    if old.started_wall_s and page.started_wall_s:
        return abs(old.started_wall_s - page.started_wall_s) > 1.0
    before = {rank.rank: rank.counters.get(DECODE_TOKENS, 0.0) for rank in old.ranks}
    return any(rank.counters.get(DECODE_TOKENS, math.inf) < before.get(rank.rank, 0.0) for rank in page.ranks)

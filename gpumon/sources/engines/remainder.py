"""A counter that an engine does not have: what is left of one of its counters without another, and never falls."""

from __future__ import annotations

from typing import Final

from gpumon.sources.engines.adapter import MOST_RANKS

REMEMBERED: Final = 2 * MOST_RANKS
"""Ranks remembered from one page to the next; the ones not seen for longest are forgotten first."""


class Remainder:
    """Whole - part, such as prompt tokens less those from the cache. The two are counted at different moments, so
    the difference may fall for a while: it stands still instead, until the whole itself falls (a restart)."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, float]] = {}

    def of(self, rank: str, whole: float, part: float) -> float:
        """The remainder of a rank's newest counts."""
        last_whole, last = self._last.pop(rank, (0.0, 0.0))
        left = max(0.0, whole - part, last if whole >= last_whole else 0.0)
        self._last[rank] = (whole, left)
        while len(self._last) > REMEMBERED:
            del self._last[next(iter(self._last))]
        return left

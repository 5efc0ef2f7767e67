"""Mean tokens per second over minutes: right in the long run even where tokens are counted when a request ends."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from gpumon.efficiency.windows import grown
from gpumon.readings.missing import WARMING_UP, Reading

MEAN_S: Final = 600.0
"""Longest window."""
LEAST_S: Final = 10.0
"""Shortest window of tokens that are counted as they come."""
LEAST_END_S: Final = 60.0
"""The same of tokens that are counted at the end of their request; with a longer request it is as long as that."""
MARK_S: Final = 10.0
"""Seconds between two marks: 61 of them, however often the engine is polled."""


class Mark(NamedTuple):
    at_s: float
    tokens: float
    seen_s: float


class LongMean:
    """Tokens and the seconds in which they came, at marks. Time that nobody looked at is in neither or in both."""

    def __init__(self) -> None:
        self._marks: deque[Mark] = deque()
        self._newest: Mark | None = None
        self._longest_s = 0.0

    def add(self, at_s: float, tokens: float, seen_s: float, cadence_s: float = 0.0) -> None:
        """Go on to `at_s`: `tokens` more came in `seen_s` more seconds. The first call only sets the start.

        A counter that was read over a gap gives its tokens and the gap's seconds; the samples of a gauge give neither.
        """
        last = self._newest
        if last is None:
            self._newest = Mark(at_s, 0.0, 0.0)
            self._marks.append(self._newest)
            return
        self._newest = Mark(at_s, last.tokens + tokens, last.seen_s + seen_s)
        if at_s - self._marks[-1].at_s >= MARK_S:
            self._marks.append(self._newest)
        start_s = at_s - grown(MEAN_S, cadence_s)
        while len(self._marks) > 1 and self._marks[0].at_s < start_s:
            self._marks.popleft()

    def lasted(self, longest_s: float) -> None:
        """A request took so long: tokens counted at its end came over all of that time."""
        self._longest_s = max(self._longest_s, min(longest_s, MEAN_S))

    def per_s(self, *, at_end: bool) -> Reading:
        """The mean; `at_end`: the tokens are counted when their request ends, and a short window may hold one jump."""
        if self._newest is None:
            return WARMING_UP
        start = self._marks[0]
        seen_s = self._newest.seen_s - start.seen_s
        least_s = max(LEAST_END_S, self._longest_s) if at_end else LEAST_S
        # Marks come every 10 s at best, so a full window is that much shorter than the longest.
        if seen_s <= 0.0 or seen_s < min(least_s, MEAN_S - 2 * MARK_S):
            return WARMING_UP
        return (self._newest.tokens - start.tokens) / seen_s

"""Counters that an engine does not have, worked out from those that it has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from gpumon.readings import quantities as q
from gpumon.sources.engines.adapter import MOST_RANKS, Figures, Found, Metric, Rank, picked, usable

REMEMBERED: Final = 2 * MOST_RANKS
"""Ranks remembered from one page to the next; the ones not seen for longest are forgotten first."""
BY_CAUSE: Final = "failures_by_cause"
"""Key in `info`: `BACKEND 256, REJECTED 3`, since the engine started; text from outside."""


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


class Integral:
    """Adds up what a step counter grew by, times what a step yields (a gauge: its mean at the two polls): the tokens of
    an engine that counts none.

    The result never falls, unless the step counter does (the engine started anew): then it begins again at 0.
    """

    __slots__ = ("_each", "_steps", "_total")

    def __init__(self) -> None:
        self._steps: float | None = None
        self._each = 0.0
        self._total = 0.0

    def add(self, steps: float, each: float) -> float:
        """The sum up to a poll that found the step counter at `steps` and the gauge at `each`; 0 at the first."""
        if self._steps is not None:
            total = self._total + (steps - self._steps) * (self._each + each) / 2
            self._total = total if steps >= self._steps and usable(total) else 0.0
        self._steps, self._each = steps, each
        return self._total


class Failures(NamedTuple):
    """The counter of failed requests, where an engine counts them by cause and apart from those that it served."""

    name: str
    cause: str
    """Its label that says why."""
    client: str = ""
    """The cause that is the client's wish: a request that ended, and no failure."""
    besides: bool = True
    """They are not among the requests that the engine counts otherwise."""

    def put(self, rank: Rank, figures: Figures, found: Mapping[str, Found]) -> None:
        """Put them into the rank, with what tells of them."""
        live, causes = figures.live, dict[str, float]()
        for series, value in picked(found, Metric(self.name)):
            cause = series.labels.get(self.cause, "")
            causes[cause] = causes.get(cause, 0.0) + value
        if not causes:
            return
        rank.counters[q.FAILURES] = sum(value for cause, value in causes.items() if not cause or cause != self.client)
        live[q.FAILURES] = self.name
        if self.besides and q.REQUESTS in rank.counters:
            rank.counters[q.REQUESTS] += sum(causes.values())
            live[q.REQUESTS] = f"{live[q.REQUESTS]} + {self.name}"
        if said := ", ".join(f"{cause} {value:.0f}" for cause, value in sorted(causes.items()) if cause and value):
            figures.info[BY_CAUSE] = said

"""How often targets are scraped: by looking at the newest scrapes of one of each job, from time to time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from statistics import median
from typing import Final

from gpumon.sources.prometheus.answers import Matrix
from gpumon.sources.prometheus.targets import Target

USUAL_S: Final = (1.0, 2.0, 3.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0)
NEAR: Final = 0.08
"""Scrapes come a little early or late: what is so near to a usual interval is that one."""
LEAST_S: Final = 0.1
NEWEST: Final = 5
"""So many of the newest times between two scrapes are looked at: a scrape may be left out, an interval may change."""


class Intervals:
    """Seconds between two scrapes, by job: all targets of a job have one."""

    def __init__(self, default_s: float) -> None:
        self._default_s = default_s
        self._learned: dict[str, float] = {}

    def copy(self) -> Intervals:
        """What is known now."""
        other = Intervals(self._default_s)
        other._learned = dict(self._learned)
        return other

    def learn(self, found: Iterable[Matrix]) -> None:
        """The scrapes of a target or two of each job: the median of the newest times between."""
        for one in found:
            times = [at_s for at_s, _ in one.points]
            gaps = [after - before for before, after in pairwise(times) if after - before > LEAST_S]
            if gaps:
                self._learned[one.series.labels.get("job", "")] = _usual(median(gaps[-NEWEST:]))

    def of(self, target: Target) -> float:
        """Seconds between two scrapes of a target."""
        return self._learned.get(target.labels.get("job", ""), self._default_s)

    def lacks(self, jobs: Iterable[str]) -> bool:
        """Whether nothing was learned of one of these jobs."""
        return any(job not in self._learned for job in jobs)

    def most(self, targets: Iterable[Target]) -> float:
        """The interval that most of these have."""
        found = Counter(self.of(target) for target in targets)
        return found.most_common(1)[0][0] if found else self._default_s


def _usual(seconds: float) -> float:
    nearest = min(USUAL_S, key=lambda each: abs(each - seconds) / each)
    return nearest if abs(nearest - seconds) <= NEAR * nearest else max(LEAST_S, seconds)

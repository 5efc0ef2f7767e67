"""How often targets are scraped: by looking at the scrapes of one of each job, and by watching since."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise
from statistics import median
from typing import Final

from gpumon.sources.prometheus.answers import Matrix
from gpumon.sources.prometheus.targets import Target

USUAL_S: Final = (1.0, 2.0, 3.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0)
NEAR: Final = 0.08
"""Scrapes come a little early or late: what is so near to a usual interval is that one."""
LEAST_S: Final = 0.1


class Intervals:
    """Seconds between two scrapes, by job: all targets of a job have one."""

    def __init__(self, default_s: float) -> None:
        self._default_s = default_s
        self._learned: dict[str, float] = {}
        self._watched: dict[str, float] = {}
        self._last: dict[tuple[tuple[str, str], ...], float] = {}

    def copy(self) -> Intervals:
        """What is known, without the memory of single targets."""
        other = Intervals(self._default_s)
        other._learned, other._watched = dict(self._learned), dict(self._watched)
        return other

    def learn(self, found: Iterable[Matrix]) -> None:
        """The scrapes of a target or two of each job: the median of the times between them."""
        for one in found:
            times = [at_s for at_s, _ in one.points]
            gaps = [after - before for before, after in pairwise(times) if after - before > LEAST_S]
            if gaps:
                self._learned[one.series.labels.get("job", "")] = _usual(median(gaps))

    def see(self, scraped_s: Mapping[Target, float]) -> None:
        """When targets were scraped last: two scrapes in a row are an interval apart, or several."""
        newest: dict[tuple[tuple[str, str], ...], float] = {}
        for target, at_s in scraped_s.items():
            last_s = self._last.get(target.key, at_s)
            if at_s - last_s > LEAST_S and not target.replica:
                job = target.labels.get("job", "")
                self._watched[job] = min(_usual(at_s - last_s), self._watched.get(job, math.inf))
            newest[target.key] = max(at_s, newest.get(target.key, 0.0))
        self._last = newest

    def of(self, target: Target) -> float:
        """Seconds between two scrapes of a target."""
        job = target.labels.get("job", "")
        known = [each[job] for each in (self._learned, self._watched) if job in each]
        return min(known, default=self._default_s)

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

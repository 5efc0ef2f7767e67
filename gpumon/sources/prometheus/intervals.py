"""How often the targets of a Prometheus are scraped: learned from their scrapes, job by job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from statistics import median
from typing import Final

from gpumon.sources.prometheus.answers import Matrix
from gpumon.sources.prometheus.targets import Target

_USUAL_INTERVALS_S: Final = (1.0, 2.0, 3.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0)
_NEAR: Final = 0.08
"""Largest difference from a usual interval, as a share of it, at which it is that one: scrapes come early or late."""
_LEAST_INTERVAL_S: Final = 0.1
"""Seconds between two scrapes, at least: points that are closer come from one scrape."""
_NEWEST_GAPS: Final = 5
"""Number of newest gaps whose median is taken: a scrape may be left out, and an interval may change."""


class Intervals:
    """Seconds between two scrapes, by job: all targets of a job have one."""

    def __init__(self, default_s: float) -> None:
        """`default_s`: the interval of a job of which nothing was learned yet."""
        self._default_s = default_s
        self._learned: dict[str, float] = {}
        """Job -> its interval."""

    def copy(self) -> Intervals:
        """A copy, which learns apart from this one."""
        other = Intervals(self._default_s)
        other._learned = dict(self._learned)
        return other

    def learn(self, matrices: Iterable[Matrix]) -> None:
        """Learn from the scrapes of a target or two of each job: the median of the newest times between two of them."""
        for matrix in matrices:
            times = [at_s for at_s, _ in matrix.points]
            gaps = [
                later_s - earlier_s for earlier_s, later_s in pairwise(times) if later_s - earlier_s > _LEAST_INTERVAL_S
            ]
            if gaps:
                self._learned[matrix.series.labels.get("job", "")] = _usual_interval(median(gaps[-_NEWEST_GAPS:]))

    def of(self, target: Target) -> float:
        """Seconds between two scrapes of a target."""
        return self._learned.get(target.labels.get("job", ""), self._default_s)

    def lacks(self, jobs: Iterable[str]) -> bool:
        """Whether nothing was learned of one of these jobs."""
        return any(job not in self._learned for job in jobs)

    def most_common(self, targets: Iterable[Target]) -> float:
        """The interval that most of these targets have; the default without targets."""
        counts = Counter(self.of(target) for target in targets)
        if counts:
            return counts.most_common(1)[0][0]
        return self._default_s


def _usual_interval(seconds: float) -> float:
    """The usual interval that is near to these seconds; where none is, the seconds themselves."""
    nearest = min(_USUAL_INTERVALS_S, key=lambda usual_s: abs(usual_s - seconds) / usual_s)
    if abs(nearest - seconds) <= _NEAR * nearest:
        return nearest
    return max(_LEAST_INTERVAL_S, seconds)

"""One host's past from range queries: many moments at once, each put together as a moment of the whole fleet is."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from gpumon.readings.fleet import HostFrame
from gpumon.sources.prometheus.answers import Matrix, Vector
from gpumon.sources.prometheus.api import PrometheusApi
from gpumon.sources.prometheus.models import Models
from gpumon.sources.prometheus.moment import Answers, Memory, Moment
from gpumon.sources.prometheus.queries import Queries
from gpumon.sources.prometheus.targets import Target

MOST_STEPS: Final = 600
"""Moments of one past: no chart is wider, and a Prometheus gives 11,000 at most."""
LEAST_STEP_S: Final = 0.1


class Past:
    """One use: `ask`, then `frames` in a thread."""

    def __init__(self, api: PrometheusApi, asked: Queries, start_s: float, end_s: float, step_s: float) -> None:
        """The step is made longer where there would be more than `MOST_STEPS`."""
        self._api = api
        self._queries = asked
        self._start_s = start_s
        self.step_s = max(step_s, (end_s - start_s) / (MOST_STEPS - 1), LEAST_STEP_S)
        self._end_s = end_s
        self._answers: list[list[Matrix]] = []

    async def ask(self) -> None:
        """A constant number of range queries. Raises ApiFault."""
        self._answers = await asyncio.gather(
            *(self._api.query_range(each, self._start_s, self._end_s, self.step_s) for each in self._queries)
        )

    def frames(
        self, memory: Memory, models: Models, ladder: Sequence[str], host: str
    ) -> tuple[tuple[float, HostFrame], ...]:
        """The host at each moment at which there is something of it."""
        found: list[tuple[float, HostFrame]] = []
        moments = self._moments()
        for at in range(len(moments)):
            answers, moments[at] = moments[at], None
            if answers is None or not any((answers.engines, answers.gpus, answers.own)):
                continue
            frame = Moment(answers, memory, models, ladder).frame()
            found += [(answers.at_s, one) for one in frame.hosts if one.name == host]
        return tuple(found)

    def _moments(self) -> list[Answers | None]:
        steps = int((self._end_s - self._start_s) / self.step_s + 1e-6) + 1
        by_query = [self._by_step(each, steps) for each in self._answers]
        moments: list[Answers | None] = []
        for at in range(steps):
            scraped, up, engines, started, gpus, own = (each[at] for each in by_query)
            at_s = self._start_s + at * self.step_s
            moments.append(Answers(at_s, scraped, up, engines, started, gpus, own, scraped))
        return moments

    def _by_step(self, matrices: Iterable[Matrix], steps: int) -> list[list[Vector]]:
        found: list[list[Vector]] = [[] for _ in range(steps)]
        for one in matrices:
            for at_s, value in one.points:
                at = round((at_s - self._start_s) / self.step_s)
                if 0 <= at < steps:
                    found[at].append(Vector(one.series, at_s, value))
        return found


def instances_of(targets: Collection[Target]) -> frozenset[str]:
    """The addresses of these targets."""
    return frozenset(target.instance for target in targets)

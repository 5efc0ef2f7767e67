"""One host's past from range queries: many moments at once, each put together as a moment of the whole fleet is."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Collection, Coroutine, Iterator, Mapping
from itertools import chain
from typing import Final, TypeVar

from gpumon.readings.fleet import HostFrame
from gpumon.sources.prometheus.answers import Matrix, Vector
from gpumon.sources.prometheus.api import PrometheusApi
from gpumon.sources.prometheus.hosts import HostLabels
from gpumon.sources.prometheus.memory import Memory
from gpumon.sources.prometheus.models import Models
from gpumon.sources.prometheus.moment import build_frame
from gpumon.sources.prometheus.queries import PAGE_KINDS, Answers, Queries
from gpumon.sources.prometheus.targets import Target

T = TypeVar("T")
_MOST_STEPS: Final = 600
"""Moments of one past: no chart is wider, and a Prometheus gives 11,000 at most."""
FEWEST_STEPS: Final = 60
"""Moments that are asked for however many series there are."""
MOST_PAST_POINTS: Final = 600_000
"""Points of all series together: a host with many engines gets fewer moments, not a pause of many seconds."""
_LEAST_STEP_S: Final = 0.1
"""Seconds: nothing is scraped more often."""
_MOST_LACKING: Final = 3
"""Steps that a host's own gpumon may lack: the newest scrapes are not there yet."""


def most_steps(series: int) -> int:
    """Moments that are asked for at once, of so many series (0: it is not known)."""
    return min(_MOST_STEPS, max(FEWEST_STEPS, MOST_PAST_POINTS // max(1, series)))


def whole_ms(seconds: float) -> float:
    """A step in whole milliseconds, as a query names it, and no longer: else the last moment is behind the end."""
    return math.floor(round(seconds * 1e3, 3)) / 1e3


class PrometheusPast:
    """One use: `ask`, then `frames` in a thread."""

    def __init__(
        self,
        api: PrometheusApi,
        queries: Queries,
        *,
        start_s: float,
        end_s: float,
        step_s: float,
        series: int = 0,
        has_gpumon: bool = False,
    ) -> None:
        """`has_gpumon`: the host has a gpumon of its own now.

        The step is made longer where there would be more than `_MOST_STEPS` moments, or more than `MOST_PAST_POINTS`
        points of so many `series` (0: it is not known).
        """
        self._api = api
        self._queries = queries
        self._start_s = start_s
        self.step_s = whole_ms(max(step_s, (end_s - start_s) / (most_steps(series) - 1), _LEAST_STEP_S))
        self._end_s = end_s
        self._has_gpumon = has_gpumon
        self._answers: list[list[Matrix]] = []
        """An answer to each of the queries, in their order."""
        self._unasked: frozenset[str] = frozenset()
        """Kinds of pages that were not asked for."""

    async def ask(self) -> None:
        """Ask a constant number of range queries. Raises ApiFault.

        Where the host's own gpumon tells of all of this time, its other series are left alone, as in a moment of now:
        they are most of what would have to be read.
        """
        if self._has_gpumon:
            own = await self._ask_range(self._queries.own)
            if self._is_whole(own):
                scraped, up = await gather_queries(
                    self._ask_range(self._queries.scraped), self._ask_range(self._queries.up)
                )
                # In the order of `Queries`: nothing of engines, their starts, and GPUs.
                self._answers = [scraped, up, [], [], [], own]
                self._unasked = frozenset(PAGE_KINDS) - {"own"}
                return
        self._answers = await gather_queries(*map(self._ask_range, self._queries))

    async def _ask_range(self, promql: str) -> list[Matrix]:
        """The series of a query over the whole time. Raises ApiFault."""
        return await self._api.query_range(promql, self._start_s, self._end_s, self.step_s)

    def _is_whole(self, matrices: list[Matrix]) -> bool:
        """Whether one of these series has a point at almost every step."""
        longest = max((len(matrix.points) for matrix in matrices), default=0)
        return longest > 0 and longest + _MOST_LACKING >= self._steps

    @property
    def _steps(self) -> int:
        """Number of moments."""
        # Rounding must not cost the last moment.
        return int((self._end_s - self._start_s) / self.step_s + 1e-6) + 1

    def frames(
        self, memory: Memory, models: Models, names: HostLabels, sizes: Mapping[str, int], host: str
    ) -> tuple[tuple[float, HostFrame], ...]:
        """The host at each moment at which there is something of it."""
        host_frames: list[tuple[float, HostFrame]] = []
        for answers in self._moments():
            if not any((answers.engines, answers.gpus, answers.own)):
                continue
            frame = build_frame(answers, memory, models, names, sizes)
            for host_frame in frame.hosts:
                if host_frame.name == host:
                    host_frames.append((answers.at_s, host_frame))
            # The event loop and its screen go on in between.
            time.sleep(0)
        return tuple(host_frames)

    def _moments(self) -> Iterator[Answers]:
        """Moment after moment; what was used of the answers is freed."""
        # Points are taken from the end of a list: the oldest ones are put there.
        unread = self._answers
        for matrix in chain.from_iterable(unread):
            matrix.points.reverse()
        self._answers = []
        for step in range(self._steps):
            scraped, up, engines, started, gpus, own = (self._take_step(matrices, step) for matrices in unread)
            at_s = self._start_s + step * self.step_s
            yield Answers(
                at_s,
                scraped=scraped,
                up=up,
                engines=engines,
                started=started,
                gpus=gpus,
                own=own,
                again=scraped,
                incomplete=self._unasked,
            )

    def _take_step(self, matrices: list[Matrix], step: int) -> list[Vector]:
        """Take away the values of this step, and those of earlier ones; returns those of this step."""
        vectors: list[Vector] = []
        for matrix in matrices:
            while matrix.points:
                at_s, value = matrix.points[-1]
                step_of_point = round((at_s - self._start_s) / self.step_s)
                if step_of_point > step:
                    break
                matrix.points.pop()
                if step_of_point == step:
                    vectors.append(Vector(matrix.series, at_s, value))
        return vectors


async def gather_queries(*pending: Coroutine[object, object, T]) -> list[T]:
    """All answers; where one fails the others are given up, so that nothing is still asked afterwards."""
    tasks = [asyncio.ensure_future(work) for work in pending]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:  # also where it is cancelled
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def instances_of(targets: Collection[Target]) -> frozenset[str]:
    """The addresses of these targets."""
    return frozenset(target.instance for target in targets)

"""A fleet from a Prometheus: all its hosts at a moment, now or past, and one host's past in many steps."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Final

import msgspec

from gpumon.config.schema import Endpoint, Model, Prometheus
from gpumon.readings.exported import NAMES
from gpumon.readings.fleet import FleetFrame, HostFrame
from gpumon.readings.frame import Fault
from gpumon.sources.prometheus.api import ApiFault, PrometheusApi
from gpumon.sources.prometheus.models import Models
from gpumon.sources.prometheus.moment import SOURCE, Answers, Memory, Moment
from gpumon.sources.prometheus.past import Past, instances_of
from gpumon.sources.prometheus.queries import (
    FLEET_BUCKETS,
    Queries,
    left_out,
    matchers,
    own_names,
    queries,
    scrapes,
    selector,
)

LAG_S: Final = 2.0
"""Now is asked for so late: a scrape is dated by its begin, and is there, whole, at its end."""
LAG_SHARE: Final = 0.2
"""Of the interval, at most."""
LEARN_AGAIN_S: Final = 300.0
"""New jobs are looked at so often at most."""


class FleetSource:
    """Asks a Prometheus. Nothing that it answers raises: what is wrong is in the frame.

    `wall` (Unix time) and `clock` (monotonic) are there for tests.
    """

    def __init__(
        self,
        config: Prometheus,
        models: Sequence[Model] = (),
        endpoints: Sequence[Endpoint] = (),
        *,
        buckets: frozenset[str] = FLEET_BUCKETS,
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`endpoints`: what the config says of single engines, by their address. `buckets`: quantities whose
        distribution all hosts are asked for. Raises ValueError for a bad URL."""
        self.api = PrometheusApi(config, clock)
        self._config = config
        self._models = Models(models, endpoints)
        self._wall = wall
        self._clock = clock
        self._queries: Queries = queries(config.match, own_names(NAMES), buckets)
        self._left_out = left_out(buckets)
        self._looked_at = ""
        self._memory = Memory(config.interval_s)
        self._learn_again_s = -math.inf
        self._since: dict[str, float] = {}
        self._one_at_a_time = asyncio.Lock()
        self._newest: FleetFrame | None = None

    def __repr__(self) -> str:
        return f"FleetSource({self.api.base!r})"

    async def frame(self, at_s: float | None = None) -> FleetFrame:
        """All hosts at `at_s` (Unix time; None: now). Without hosts, but with a fault, where the Prometheus fails."""
        begun_s, before = self._clock(), self.api.requests
        now = at_s is None
        asked_s = at_s if at_s is not None else self._wall() - min(LAG_S, LAG_SHARE * self._config.interval_s)
        try:
            async with self._one_at_a_time:
                answers = await self._ask(asked_s)
                await self._learn(answers)
                frame = await self._built(answers, self._memory if now else self._memory.beside())
        except ApiFault as fault:
            frame = self._failed(fault.text, asked_s)
        except Exception as error:  # a fault of gpumon's own costs this frame only
            frame = self._failed(f"gpumon failed on the answers ({type(error).__name__}): please report", asked_s)
        else:
            if now:
                self._newest = frame
                await asyncio.to_thread(self.api.reader.forget)
            frame = msgspec.structs.replace(
                frame, faults=(*frame.faults, *self._faults(self.api.taken_warnings(), asked_s))
            )
        cost_s = self._clock() - begun_s
        return msgspec.structs.replace(frame, queries=self.api.requests - before, cost_s=cost_s)

    async def past(self, host: str, start_s: float, end_s: float, step_s: float) -> tuple[tuple[float, HostFrame], ...]:
        """One host at each step from `start_s` to `end_s` (Unix time), the oldest first; empty where nothing is known.

        A step is made longer where there would be more points than a Prometheus gives. Raises ApiFault.
        """
        if self._newest is None:
            await self.frame()
        targets = self._memory.hosts.get(host, ())
        if not targets or end_s < start_s:
            return ()
        match = matchers(self._config.match, "instance", instances_of(targets))
        past = Past(self.api, queries(match, own_names(NAMES)), start_s, end_s, step_s)
        await past.ask()
        memory = self._memory.beside()
        return await asyncio.to_thread(past.frames, memory, self._models, self._config.host_labels, host)

    def look_at(self, host: str) -> None:
        """Ask of this host, from the next frame on, for all distributions; "": of none."""
        self._looked_at = host

    async def close(self) -> None:
        """Hang up."""
        await self.api.close()

    async def _ask(self, at_s: float) -> Answers:
        """The answers to a constant number of queries. Raises ApiFault."""
        first, *others = self._queries
        scraped = await self.api.query(first, at_s)
        others += self._more()
        up, engines, started, gpus, own, *more = await asyncio.gather(*(self.api.query(each, at_s) for each in others))
        again = await self.api.query(first, at_s)
        return Answers(at_s, scraped, up, [*engines, *chain(*more)], started, gpus, own, again)

    def _more(self) -> list[str]:
        """What is asked beside of the host that is looked at."""
        instances = instances_of(self._memory.hosts.get(self._looked_at, ()))
        if not instances or not self._left_out:
            return []
        return [selector(self._left_out, matchers(self._config.match, "instance", instances))]

    async def _learn(self, answers: Answers) -> None:
        """Look at how often jobs are scraped that are new, but not all the time. Raises ApiFault."""
        if self._clock() < self._learn_again_s:
            return
        targets = [one for several in self._memory.hosts.values() for one in several]
        places = {target.labels.get("job", ""): target.instance for target in targets}
        places = places or await asyncio.to_thread(_places, answers)
        if places and self._memory.intervals.lacks(places):
            self._learn_again_s = self._clock() + LEARN_AGAIN_S
            asked = scrapes(places.values(), self._config.match)
            self._memory.intervals.learn(await self.api.samples(asked, answers.at_s))

    def _failed(self, text: str, at_s: float) -> FleetFrame:
        return FleetFrame(at_s, self._config.interval_s, faults=self._faults([text], at_s), answered=False)

    def _faults(self, texts: Iterable[str], at_s: float) -> tuple[Fault, ...]:
        """Faults of the server itself, each with the time since when it holds."""
        self._since = {text: self._since.get(text, at_s) for text in texts}
        return tuple(Fault(SOURCE, text, since) for text, since in self._since.items())

    async def _built(self, answers: Answers, memory: Memory) -> FleetFrame:
        moment = Moment(answers, memory, self._models, self._config.host_labels)
        return await asyncio.to_thread(moment.frame)


def _places(answers: Answers) -> dict[str, str]:
    """A target's address for each job that there is anything of."""
    series = (one.series.labels for each in (answers.engines, answers.gpus, answers.own) for one in each)
    return {labels.get("job", ""): labels.get("instance", "") for labels in series}

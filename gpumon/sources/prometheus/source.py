"""A fleet from a Prometheus: all its hosts at a moment, now or past, and one host's past in many steps."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Final

import msgspec

from gpumon.config.schema import Endpoint, Model, Prometheus
from gpumon.readings.exported import SAMPLE_NAMES
from gpumon.readings.fleet import FleetFrame, HostFrame
from gpumon.readings.frame import Fault, XidEvent
from gpumon.readings.text import clean
from gpumon.sources.prometheus.answers import Vector
from gpumon.sources.prometheus.api import ApiFault, PrometheusApi
from gpumon.sources.prometheus.hosts import HostLabels, host_of
from gpumon.sources.prometheus.memory import Answers, Memory
from gpumon.sources.prometheus.models import Models
from gpumon.sources.prometheus.moment import PROMETHEUS_SOURCE, build_frame
from gpumon.sources.prometheus.past import PrometheusPast, gather_queries, instances_of, most_steps
from gpumon.sources.prometheus.queries import (
    ALL_BUCKETS,
    FLEET_BUCKETS,
    REPORT_BUCKETS,
    TIME_FUNCTION,
    Queries,
    addresses,
    before,
    exporters_of_range,
    left_out,
    matchers_of_label,
    own_names,
    queries,
    scrapes,
    series_of_names,
    targets_of_range,
    with_scrape_times,
)
from gpumon.sources.prometheus.targets import Target

LAG_S: Final = 2.0
"""Now is asked for so late: a scrape is dated by its begin, and is there, whole, at its end."""
LAG_SHARE: Final = 0.2
"""Longest lag as a share of the interval."""
LEARN_AGAIN_S: Final = 60.0
"""How often jobs are scraped is looked at so often."""
LACKING_S: Final = 5.0
"""And so often where it is not known of a job, as nothing was scraped twice."""
CLOCK_AGAIN_S: Final = 300.0
"""The server's clock is looked at so often."""
BEFORE_AGAIN_S: Final = 600.0
"""The last day is looked at so often."""
_DAY_S: Final = 86400.0
_MOST_SKEW_S: Final = 5.0
DATE_S: Final = 1.0
"""A Date header is no more exact than this."""
_KEPT_S: Final = 15 * 86400.0
"""How far back one may go: what a Prometheus keeps unless it was told otherwise."""
LOOKS: Final = 8
"""Parts of a longer past at whose ends it is asked which hosts there were."""
SKEWED: Final = (
    "this machine's clock is {:.0f} s {} the Prometheus': its clock is taken, so ages may look wrong; set both by NTP"
)

BEHIND: Final = (
    "it answers as of {:.0f} s ago, so all figures are that old: a VictoriaMetrics before 1.80 needs "
    "-search.latencyOffset=1s, as it does not know latency_offset"
)


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
        self._labels = HostLabels(config.host_labels, config.cluster_labels)
        self._wall = wall
        self._clock = clock
        self._queries: Queries = queries(config.match, own_names(SAMPLE_NAMES), buckets)
        self._left_out = left_out(buckets)
        self._looked_at = ""
        self._memory = Memory(config.interval_s)
        self._learn_again_s = -math.inf
        self._clock_again_s = -math.inf
        self._before_again_s = -math.inf
        self._ahead_s = 0.0
        """How far its answers are ahead of this machine's clock."""
        self._clock_ahead_s = 0.0
        """How far its clock is ahead of this machine's."""
        self._sent = 0
        self._since: dict[str, float] = {}
        self._targets_span = (0.0, 0.0)
        self._targets_in_span: list[Vector] = []
        self._one_at_a_time = asyncio.Lock()
        self._newest: FleetFrame | None = None

    def __repr__(self) -> str:
        return f"FleetSource({self.api.base!r})"

    async def frame(self, at_s: float | None = None) -> FleetFrame:
        """All hosts at `at_s` (Unix time; None: now). Without hosts, but with a fault, where the Prometheus fails."""
        async with self._one_at_a_time:
            begun_s = self._clock()
            self._sent = 0
            frame = await self._frame(at_s)
            return msgspec.structs.replace(frame, queries=self._sent, cost_s=self._clock() - begun_s)

    async def _frame(self, at_s: float | None) -> FleetFrame:
        now = at_s is None
        asked_s = self._wall() if at_s is None else at_s
        try:
            if now:
                await self._look_at_clock()
                asked_s = self._wall() + self._ahead_s - min(LAG_S, LAG_SHARE * self._config.interval_s)
            answers = await self._ask(asked_s)
            await self._learn(answers)
            if now and self._newest is not None and self._clock() >= self._before_again_s:
                await self._look_back(answers.at_s)  # the first rows do not wait for it
            frame = await self._built(answers, self._memory if now else self._memory.beside())
        except ApiFault as fault:
            return self._failed(fault.text, asked_s, now)
        except Exception as error:  # a fault of gpumon's own costs this frame only
            text = f"gpumon failed on the answers ({type(error).__name__}): please report"
            return self._failed(text, asked_s, now)
        if now:
            self._newest = frame
            await asyncio.to_thread(self.api.reader.forget)
        faults = self._faults((*self.api.taken_warnings(), *self._skew()), asked_s, now)
        return msgspec.structs.replace(frame, faults=(*frame.faults, *faults))

    async def past(self, host: str, start_s: float, end_s: float, step_s: float) -> tuple[tuple[float, HostFrame], ...]:
        """One host at each step from `start_s` to `end_s` (Unix time), the oldest first; empty where nothing is known.

        A step is made longer where there would be more points than a Prometheus gives. Raises ApiFault.
        """
        if self._newest is None:
            await self.frame()
        if end_s < start_s:
            return ()
        targets = self._memory.hosts.get(host, ())
        asked = await self._asked_of(host, start_s, end_s, ALL_BUCKETS)
        if asked is None:
            return ()
        past = PrometheusPast(
            self.api, asked, start_s, end_s, step_s, self._memory.series_of(targets), own=self._has_gpumon(targets)
        )
        await past.ask()
        return await self._frames_of(past, self._memory.beside(), host)

    async def stretches(
        self, host: str, start_s: float, end_s: float, step_s: float, *, own: bool
    ) -> AsyncIterator[tuple[tuple[float, HostFrame], ...]]:
        """One host at every step from `start_s` to `end_s` (Unix time), the oldest first, in stretches that one answer
        each holds, however many days there are. Buckets are those of a report. Raises ApiFault.

        `own`: where the host's own gpumon tells of all of it, nothing else is asked for.
        """
        targets = self._memory.hosts.get(host, ())
        asked = await self._asked_of(host, start_s, end_s, REPORT_BUCKETS)
        if asked is None:
            return
        series = self._memory.series_of(targets)
        memory = self._memory.beside()
        steps = most_steps(series)
        own = own and self._has_gpumon(targets)
        begin_s = start_s
        while begin_s <= end_s:
            last_s = min(end_s, begin_s + step_s * (steps - 1))
            past = PrometheusPast(self.api, asked, begin_s, last_s, step_s, series, own=own)
            await past.ask()
            yield await self._frames_of(past, memory, host)
            begin_s += step_s * steps

    async def hosts_between(self, start_s: float, end_s: float) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names of the hosts that there were from then to then, as far as some moments in between tell, and what was
        wrong at the newest of them with a host. Raises ApiFault where none of the moments was answered."""
        if self._newest is None:
            await self.frame()
        names: dict[str, None] = {}
        faults: tuple[Fault, ...] = ()
        answered = False
        for place in range(LOOKS + 1):
            frame = await self.frame(start_s + (end_s - start_s) * place / LOOKS)
            answered = answered or frame.answered
            if frame.hosts or not frame.answered:
                faults = frame.faults
            names.update(dict.fromkeys(host.name for host in frame.hosts))
        if not answered:
            raise ApiFault(faults[0].text if faults else "no answer")
        return tuple(sorted(names)), tuple(fault.text for fault in faults)

    def host_of_series(self, labels: Mapping[str, str]) -> str:
        """The host, as it is shown, that a series with the labels of a target is of; empty where none tells it."""
        place = labels.get("job", ""), labels.get("instance", "")
        for name, targets in self._memory.hosts.items():
            for target in targets:
                if place == (target.labels.get("job", ""), target.instance):
                    return name
        bare = host_of(labels, {}, self._config.host_labels)
        for name in self._memory.hosts:
            if bare and bare in self._memory.names_of(name):
                return name
        return clean(bare, 120)

    def _has_gpumon(self, targets: Iterable[Target]) -> bool:
        """Whether a gpumon runs on the host of these targets now."""
        return any(target.key in self._memory.ready for target in targets)

    async def _asked_of(self, host: str, start_s: float, end_s: float, buckets: frozenset[str]) -> Queries | None:
        """The queries for one host's past; None where no target of it is known. Raises ApiFault."""
        targets = self._memory.hosts.get(host, ())
        instances = instances_of(targets) | await self._were(host, start_s, end_s)
        if not instances:
            return None
        match = matchers_of_label(self._config.match, "instance", instances)
        asked = queries(match, own_names(SAMPLE_NAMES), buckets)
        if self._memory.undated:
            return asked._replace(scraped=with_scrape_times(asked.scraped, match))
        return asked

    async def _frames_of(self, past: PrometheusPast, memory: Memory, host: str) -> tuple[tuple[float, HostFrame], ...]:
        return await asyncio.to_thread(
            past.frames, memory, self._models, self._labels, self._config.gpus_per_engine, host
        )

    async def _were(self, host: str, start_s: float, end_s: float) -> frozenset[str]:
        """Addresses that this host's targets had from then to then. Raises ApiFault."""
        names = self._memory.names_of(host)
        match = self._config.match
        seconds = end_s - start_s
        up, exporters = await gather_queries(
            self._targets_between(start_s, end_s),
            self.api.query(exporters_of_range(names, match, seconds), end_s),
        )
        return await asyncio.to_thread(addresses, up, exporters, names, self._config.host_labels)

    async def _targets_between(self, start_s: float, end_s: float) -> list[Vector]:
        """The targets that there were from then to then: asked once for all hosts of a report. Raises ApiFault."""
        if self._targets_span != (start_s, end_s):
            asked = targets_of_range(self._config.match, end_s - start_s)
            self._targets_in_span = await self.api.query(asked, end_s)
            self._targets_span = (start_s, end_s)
        return self._targets_in_span

    def lacks_gpumon(self, host: str) -> bool:  # noqa: ARG002 - as asked of each source of a fleet
        """Never: a Prometheus runs nothing on a host."""
        return False

    def install(self, host: str) -> None:
        """Nothing can be run there."""

    def look_at(self, host: str) -> None:
        """Ask of this host, from the next frame on, for all distributions; "": of none."""
        self._looked_at = host

    def first_s(self, newest_s: float) -> float:
        """Unix time of the oldest moment that can be asked for."""
        return newest_s - _KEPT_S

    async def settle(self) -> None:
        """Ask for the day before."""
        await self._look_back(self._wall())

    async def close(self) -> None:
        """Hang up."""
        await self.api.close()

    async def _ask(self, at_s: float) -> Answers:
        """The answers to a constant number of queries. Raises ApiFault."""
        first, *others = self._queries
        if self._memory.undated:
            first = with_scrape_times(first, self._config.match)
        others += self._more()
        scraped = await self._query(first, at_s)
        refused: list[ApiFault] = []

        async def tolerant(promql: str) -> list[Vector]:
            """A query that the server does not want costs what it asks for, and leaves the rest standing."""
            try:
                return await self._query(promql, at_s)
            except ApiFault as fault:
                if not fault.refused:
                    raise
                refused.append(fault)
                return []

        up, engines, started, gpus, own, *more = await gather_queries(*map(tolerant, others))
        if refused and not (engines or gpus or own):
            raise refused[0]
        self.api.warnings |= {f"a part is missing: {fault.text}": None for fault in refused}
        again = await self._query(first, at_s)
        return Answers(at_s, scraped, up, [*engines, *chain(*more)], started, gpus, own, again)

    async def _query(self, promql: str, at_s: float | None) -> list[Vector]:
        self._sent += 1
        return await self.api.query(promql, at_s)

    async def _look_at_clock(self) -> None:
        """How far the server's clock is ahead of this machine's, as far as an answer tells that. Raises ApiFault."""
        if self._clock() < self._clock_again_s:
            return
        begun_s = self._clock()
        sent_s = self._wall()
        clock = await self._query(TIME_FUNCTION, None)
        took_s = self._clock() - begun_s
        middle_s = sent_s + took_s / 2
        if clock:
            self._ahead_s = _beyond(clock[0].value - middle_s, took_s)
        else:
            self._ahead_s = 0.0
        date_s = self.api.date_s
        self._clock_ahead_s = self._ahead_s
        if date_s is not None and date_s - middle_s > self._ahead_s:
            self._clock_ahead_s = _beyond(date_s - middle_s, took_s + DATE_S)
        self._clock_again_s = self._clock() + CLOCK_AGAIN_S

    def _skew(self) -> tuple[str, ...]:
        """Notices of a clock that is off, and of answers that are older than that clock."""
        notices: list[str] = []
        off_s = abs(self._clock_ahead_s)
        if off_s > _MOST_SKEW_S:
            notices.append(SKEWED.format(off_s, "behind" if self._clock_ahead_s > 0.0 else "ahead of"))
        behind_s = self._clock_ahead_s - self._ahead_s
        if behind_s > _MOST_SKEW_S:
            notices.append(BEHIND.format(behind_s))
        return tuple(notices)

    def _more(self) -> list[str]:
        """The queries beside those of a frame, for the host that is looked at."""
        instances = instances_of(self._memory.hosts.get(self._looked_at, ()))
        if not instances or not self._left_out:
            return []
        return [series_of_names(self._left_out, matchers_of_label(self._config.match, "instance", instances))]

    async def _learn(self, answers: Answers) -> None:
        """Look at how often jobs are scraped, but not all the time. Raises ApiFault."""
        if self._clock() < self._learn_again_s:
            return
        targets = []
        for targets_of in self._memory.hosts.values():
            for target in targets_of:
                if target.known:
                    targets.append(target)
        places = {target.labels.get("job", ""): target.instance for target in targets}
        places = places or await asyncio.to_thread(_places, answers)
        if places:
            self._sent += 1
            asked = scrapes(places.values(), self._config.match)
            self._memory.intervals.learn(await self.api.samples(asked, answers.at_s))
            if self._memory.intervals.lacks(places):
                again_s = LACKING_S
            else:
                again_s = LEARN_AGAIN_S
            self._learn_again_s = self._clock() + again_s

    async def _look_back(self, at_s: float) -> None:
        """Look at the GPUs' day before: since when they are idle, and the Xid that stands. It may fail."""
        self._before_again_s = self._clock() + BEFORE_AGAIN_S
        try:
            busy, first, xids, changed = await gather_queries(
                *(self._query(query, at_s) for query in before(self._config.match))
            )
        except ApiFault:
            return
        memory = self._memory
        memory.idle_since_s = _by_uuid(first) | _by_uuid(busy)
        memory.xids = _xid_events(xids, _by_uuid(changed), at_s - _DAY_S)

    def _failed(self, text: str, at_s: float, now: bool) -> FleetFrame:
        return FleetFrame(at_s, self._config.interval_s, faults=self._faults([text], at_s, now), answered=False)

    def _faults(self, texts: Iterable[str], at_s: float, now: bool) -> tuple[Fault, ...]:
        """Faults of the server itself, each with the time since when it holds; another time's change nothing of it."""
        if now:
            since = {text: self._since.get(text, at_s) for text in texts}
        else:
            since = dict.fromkeys(texts, at_s)
        self._since = since if now else self._since
        return tuple(Fault(PROMETHEUS_SOURCE, text, since_s) for text, since_s in since.items())

    async def _built(self, answers: Answers, memory: Memory) -> FleetFrame:
        return await asyncio.to_thread(
            build_frame, answers, memory, self._models, self._labels, self._config.gpus_per_engine
        )


def _beyond(seconds: float, doubt_s: float) -> float:
    """A difference of clocks; 0 where it is within what the measurement can tell."""
    if abs(seconds) > doubt_s:
        return seconds
    return 0.0


def _uuid(vector: Vector) -> str:
    return vector.series.labels.get("UUID") or vector.series.labels.get("uuid", "")


def _by_uuid(vectors: Iterable[Vector]) -> dict[str, float]:
    """UUID of a GPU -> the value of its series."""
    return {_uuid(vector): vector.value for vector in vectors}


def _xid_events(xids: Iterable[Vector], changed_s: Mapping[str, float], otherwise_s: float) -> dict[str, XidEvent]:
    """UUID of a GPU -> the Xid that stands; one without a change within the day dates from `otherwise_s`."""
    events: dict[str, XidEvent] = {}
    for vector in xids:
        uuid = _uuid(vector)
        if uuid and 0.0 < vector.value < 1e4:
            events[uuid] = XidEvent(int(vector.value), changed_s.get(uuid, otherwise_s))
    return events


def _places(answers: Answers) -> dict[str, str]:
    """A target's address for each job that there is anything of."""
    places: dict[str, str] = {}
    for vector in chain(answers.engines, answers.gpus, answers.own):
        labels = vector.series.labels
        places[labels.get("job", "")] = labels.get("instance", "")
    return places

"""A fleet from a Prometheus: all its hosts at a moment, now or past, and one host's past in many steps."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Callable, Collection, Container, Iterable, Mapping, Sequence
from itertools import chain
from typing import Final

import msgspec

from gpumon.config.schema import Endpoint, Model, Prometheus
from gpumon.readings.exported import SAMPLE_NAMES
from gpumon.readings.fleet import FleetFrame, HostFrame, LabelsLine, NamedTarget
from gpumon.readings.frame import Fault
from gpumon.readings.text import clean
from gpumon.sources.prometheus.answers import Matrix, Vector
from gpumon.sources.prometheus.api import ApiFault, PrometheusApi
from gpumon.sources.prometheus.clock import ServerClock
from gpumon.sources.prometheus.cordons import cordons_of, cordons_query
from gpumon.sources.prometheus.expected import date_silence, expected_query, learn_expected, place_labels
from gpumon.sources.prometheus.expected_engines import engines_query, known_engines
from gpumon.sources.prometheus.hosts import HostLabels, host_of
from gpumon.sources.prometheus.intervals import Intervals
from gpumon.sources.prometheus.loads import unread_addresses
from gpumon.sources.prometheus.memory import Memory
from gpumon.sources.prometheus.models import Models
from gpumon.sources.prometheus.moment import PROMETHEUS_SOURCE, build_frame
from gpumon.sources.prometheus.names_table import named_targets
from gpumon.sources.prometheus.past import PrometheusPast, gather_queries, instances_of, most_steps
from gpumon.sources.prometheus.queries import (
    ALL_BUCKETS,
    FLEET_BUCKETS,
    PAGE_KINDS,
    REPORT_BUCKETS,
    Answers,
    Queries,
    addresses,
    chunks,
    exporters_of_range,
    first_look,
    left_out,
    load_queries,
    matchers_of_label,
    own_names,
    queries,
    queries_of_last_day,
    scrapes,
    series_of_names,
    targets_of_range,
    with_scrape_times,
)
from gpumon.sources.prometheus.standing import date_xids, keep_standing, standing_codes, uuid_of
from gpumon.sources.prometheus.targets import Target
from gpumon.sources.prometheus.turns import TARGETS_AT_ONCE, Turns
from gpumon.sources.prometheus.unread import unread_notices, unread_query

LAG_S: Final = 2.0
"""Seconds before now that are asked for as now: a scrape is dated by its begin, and is there, whole, at its end."""
LAG_SHARE: Final = 0.2
"""Longest lag as a share of the interval."""
LEARN_AGAIN_S: Final = 60.0
"""Seconds between two looks at the scrape intervals of all jobs."""
LACKING_S: Final = 5.0
"""Seconds between two looks while the interval of a job is not known, as nothing was scraped twice."""
CORDONS_AGAIN_S: Final = 60.0
"""Seconds between two looks at what schedulers have taken out."""
_UP_KEPT_S: Final = 3600.0
"""Seconds in which a target is there that only partial answers lack: it may have been taken away meanwhile."""
BEFORE_AGAIN_S: Final = 600.0
"""Seconds between two looks at the last day."""
_RETENTION_S: Final = 15 * 86400.0
"""Seconds that a Prometheus keeps unless it was told otherwise: how far back one may go."""
LOOKS: Final = 8
"""Parts of a longer past at whose ends it is asked which hosts there were."""


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
        """`endpoints`: what the config says of single engines. Raises ValueError for a bad URL.

        `buckets`: quantities whose distribution all hosts are asked for.
        """
        self.api = PrometheusApi(config, clock)
        self._config = config
        self._models = Models(models, endpoints)
        self._labels = HostLabels(config.host_labels, config.cluster_labels)
        self._wall = wall
        self._clock = clock
        self._queries: Queries = queries(config.match, own_names(SAMPLE_NAMES), buckets)
        self._buckets = buckets
        self._left_out = left_out(buckets)
        self._looked_at = ""
        """The host whose every distribution is asked for; empty for none."""
        self._memory = Memory(Intervals(config.interval_s))
        self._learn_again_s = -math.inf
        """Monotonic time of the next look at scrape intervals."""
        self._before_again_s = -math.inf
        """Monotonic time of the next look at the last day."""
        self._cordons_again_s = -math.inf
        """Monotonic time of the next look at what schedulers have taken out."""
        self._turns = Turns()
        self._unread: frozenset[str] = frozenset()
        """Addresses with engines or GPUs whose pages were never read."""
        self._states: dict[tuple[object, ...], float] = {}
        """Name and labels of each `up` and Xid -> its value at the last refresh of a large fleet."""
        self._server_clock = ServerClock(self.api, wall, clock)
        self._sent = 0
        """Number of queries for the newest frame."""
        self._fault_since_s: dict[str, float] = {}
        """Text of a fault of the server -> Unix time since when it holds."""
        self._targets_span_s = (0.0, 0.0)
        """The span of time whose targets were asked for last (Unix times)."""
        self._targets_in_span: list[Vector] = []
        """The targets of `_targets_span_s`."""
        self._one_at_a_time = asyncio.Lock()
        self._newest: FleetFrame | None = None
        """The newest frame of now; None before the first."""

    def __repr__(self) -> str:
        return f"FleetSource({self.api.base!r})"

    async def frame(self, at_s: float | None = None, hosts: Collection[str] | None = None) -> FleetFrame:
        """All hosts at `at_s` (Unix time; None: now). Without hosts, but with a fault, where the Prometheus fails.

        Of a past moment it may be these `hosts` alone.
        """
        async with self._one_at_a_time:
            begun_s = self._clock()
            self._sent = 0
            if at_s is None:
                fleet_frame = await self._frame_of_now(in_turn=False)
            else:
                fleet_frame = await self._frame_of_past(at_s, hosts)
            return msgspec.structs.replace(fleet_frame, queries=self._sent, cost_s=self._clock() - begun_s)

    async def next_frame(self) -> FleetFrame:
        """The fleet now, as far as this refresh reads it: all pages of a small one; of a large one the loads of all
        hosts, and the pages of those whose turn it is."""
        async with self._one_at_a_time:
            begun_s = self._clock()
            self._sent = 0
            fleet_frame = await self._frame_of_now(in_turn=True)
            return msgspec.structs.replace(fleet_frame, queries=self._sent, cost_s=self._clock() - begun_s)

    async def _frame_of_now(self, *, in_turn: bool) -> FleetFrame:
        """All hosts now; from this moment the memory learns. A fault is dated by when it began."""
        asked_s = self._wall()
        try:
            if self._server_clock.is_due:
                self._sent += 1
                await self._server_clock.measure()
            lag_s = min(LAG_S, LAG_SHARE * self._config.interval_s)
            asked_s = self._wall() + self._server_clock.answers_ahead_s - lag_s
            if in_turn:
                answers = await self._ask_in_turn(asked_s)
            else:
                answers = await self._ask(asked_s, self._memory)
            self._memory.begin_anew(answers.asked)
            await self._learn_intervals(answers)
            if self._newest is not None and self._clock() >= self._before_again_s:
                # Not for the first frame, whose rows do not wait for it.
                await self._look_back(answers.at_s)
            await self._learn_cordons(answers.at_s)
            await self._date_xids(answers, self._memory)
            frame = await self._build(answers, self._memory)
        except Exception as error:  # also a fault of gpumon's own: it costs this frame only
            return self._failed_frame(asked_s, self._faults_of_now([_failure_text(error)], asked_s))
        self._newest = frame
        await asyncio.to_thread(self.api.reader.forget)
        if answers.asked is not None:
            self._memory.target_finder.forget()
            frame = self._in_turn(frame, answers)
        faults = self._faults_of_now(self._take_notices(), asked_s)
        return msgspec.structs.replace(frame, faults=(*frame.faults, *faults))

    def _in_turn(self, frame: FleetFrame, answers: Answers) -> FleetFrame:
        """The frame of a refresh that read some of the hosts; who was read is noted for the next turns."""
        if not answers.asked:
            self._memory.note_glance()
        self._turns.note([host.name for host in frame.hosts if host.is_read])
        self._unread = unread_addresses(answers, self._memory)
        hosts = self._memory.hosts
        interval_s = max(frame.interval_s, self._config.interval_s)
        return msgspec.structs.replace(
            frame, turn_s=self._turns.turn_s(len(hosts), interval_s), unread=self._turns.count_unread(hosts)
        )

    async def _frame_of_past(self, at_s: float, hosts: Collection[str] | None) -> FleetFrame:
        """All hosts, or these, at a Unix time, as if gpumon had begun then: of the memory only the intervals learn."""
        memory = self._memory.for_other_times()
        memory.expected_gpus = dict(self._memory.expected_gpus)
        asked = self._addresses_of(hosts) if hosts is not None else None
        try:
            answers = await self._ask(at_s, memory, asked)
            await self._learn_intervals(answers)
            await self._date_xids(answers, memory)
            frame = await self._build(answers, memory)
        except Exception as error:  # also a fault of gpumon's own: it costs this frame only
            return self._failed_frame(at_s, _faults_at([_failure_text(error)], at_s))
        faults = _faults_at(self._take_notices(), at_s)
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
        past_queries = await self._queries_for_past(host, start_s, end_s, ALL_BUCKETS)
        if past_queries is None:
            return ()
        past_answers = PrometheusPast(
            self.api,
            past_queries,
            start_s=start_s,
            end_s=end_s,
            step_s=step_s,
            series=self._memory.count_series(targets),
            has_gpumon=self._has_gpumon(targets),
        )
        await past_answers.ask()
        return await self._read_past(past_answers, self._memory.for_other_times(), host)

    async def stretches(
        self, host: str, start_s: float, end_s: float, step_s: float, *, own: bool
    ) -> AsyncIterator[tuple[tuple[float, HostFrame], ...]]:
        """One host at every step from `start_s` to `end_s` (Unix time), the oldest first. Raises ApiFault.

        However many days these are, they come in stretches, each of one answer. Buckets are those of a report.
        `own`: where the host's own gpumon tells of all of a stretch, nothing else is asked for.
        """
        targets = self._memory.hosts.get(host, ())
        past_queries = await self._queries_for_past(host, start_s, end_s, REPORT_BUCKETS)
        if past_queries is None:
            return
        series = self._memory.count_series(targets)
        memory = self._memory.for_other_times()
        steps = most_steps(series)
        begin_s = start_s
        while begin_s <= end_s:
            last_s = min(end_s, begin_s + step_s * (steps - 1))
            past = PrometheusPast(
                self.api,
                past_queries,
                start_s=begin_s,
                end_s=last_s,
                step_s=step_s,
                series=series,
                has_gpumon=own and self._has_gpumon(targets),
            )
            await past.ask()
            yield await self._read_past(past, memory, host)
            begin_s += step_s * steps

    async def hosts_between(self, start_s: float, end_s: float) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names of the hosts between two Unix times, as far as the moments that bound `LOOKS` parts tell; and faults.

        The faults are those of the newest moment with a host, or of the newest that failed. Raises ApiFault where none
        of the moments was answered.
        """
        if self._newest is None:
            await self.frame()
        names: dict[str, None] = {}
        faults: tuple[Fault, ...] = ()
        answered = False
        for number in range(LOOKS + 1):
            frame = await self.frame(start_s + (end_s - start_s) * number / LOOKS)
            answered = answered or frame.answered
            if frame.hosts or not frame.answered:
                faults = frame.faults
            names.update(dict.fromkeys(host.name for host in frame.hosts))
        if not answered:
            text = faults[0].text if faults else "no answer"
            raise ApiFault(text)
        return tuple(sorted(names)), tuple(fault.text for fault in faults)

    def named_targets(self) -> list[NamedTarget]:
        """How the targets of the newest frame are named; empty before the first."""
        if self._newest is None:
            return []
        return named_targets(self._newest, self._memory, self._labels)

    async def use_labels(self, lines: Iterable[LabelsLine]) -> None:
        """Name hosts by other labels from the next frame on, which begins anew: all that is known hangs on names."""
        async with self._one_at_a_time:
            self._config = msgspec.structs.replace(self._config, **{line.key: line.labels for line in lines})
            self._labels = HostLabels(self._config.host_labels, self._config.cluster_labels)
            self._memory = Memory(self._memory.intervals.copy())
            self._turns = Turns()
            self._newest = None
            self._states = {}
            self._unread = frozenset()
            self._before_again_s = -math.inf
            self._cordons_again_s = -math.inf

    def host_of_series(self, labels: Mapping[str, str]) -> str:
        """The host, as it is shown, of a series with these labels of a target; empty where no label tells it."""
        address = labels.get("job", ""), labels.get("instance", "")
        for name, targets in self._memory.hosts.items():
            for target in targets:
                if address == (target.labels.get("job", ""), target.instance):
                    return name
        bare = host_of(labels, {}, self._config.host_labels)
        for name in self._memory.hosts:
            if bare and bare in self._memory.aliases_of(name):
                return name
        return clean(bare, 120)

    def _has_gpumon(self, targets: Iterable[Target]) -> bool:
        """Whether a gpumon runs on the host of these targets now."""
        return any(target.key in self._memory.own_pages for target in targets)

    async def _queries_for_past(
        self, host: str, start_s: float, end_s: float, buckets: frozenset[str]
    ) -> Queries | None:
        """The queries for one host's past; None where no target of it is known. Raises ApiFault."""
        targets = self._memory.hosts.get(host, ())
        instances = instances_of(targets) | await self._past_addresses(host, start_s, end_s)
        if not instances:
            return None
        match = matchers_of_label(self._config.match, "instance", instances)
        past_queries = queries(match, own_names(SAMPLE_NAMES), buckets)
        if self._memory.has_undated_targets:
            return past_queries._replace(scraped=with_scrape_times(past_queries.scraped, match))
        return past_queries

    async def _read_past(self, past: PrometheusPast, memory: Memory, host: str) -> tuple[tuple[float, HostFrame], ...]:
        """The frames of a host in these answers, each with its Unix time; put together in a thread."""
        return await asyncio.to_thread(
            past.frames, memory, self._models, self._labels, self._config.gpus_per_engine, host
        )

    async def _past_addresses(self, host: str, start_s: float, end_s: float) -> frozenset[str]:
        """Addresses that this host's targets had between two Unix times. Raises ApiFault."""
        names = self._memory.aliases_of(host)
        match = self._config.match
        seconds = end_s - start_s
        up, exporters = await gather_queries(
            self._targets_between(start_s, end_s),
            self.api.query(exporters_of_range(names, match, seconds), end_s),
        )
        return await asyncio.to_thread(addresses, up, exporters, names, self._config.host_labels)

    async def _targets_between(self, start_s: float, end_s: float) -> list[Vector]:
        """The targets that there were between two Unix times: asked once for all hosts of a report. Raises ApiFault."""
        if self._targets_span_s != (start_s, end_s):
            promql = targets_of_range(self._config.match, end_s - start_s)
            self._targets_in_span = await self.api.query(promql, end_s)
            self._targets_span_s = (start_s, end_s)
        return self._targets_in_span

    def lacks_gpumon(self, host: str) -> bool:  # noqa: ARG002 - as asked of each source of a fleet
        """Never: a Prometheus runs nothing on a host."""
        return False

    def install(self, host: str) -> None:
        """Nothing can be run there."""

    def look_at(self, host: str) -> None:
        """Ask for all distributions of this host from the next frame on; of no host where it is empty."""
        self._looked_at = host

    def first_s(self, newest_s: float) -> float:
        """Unix time of the oldest moment that can be asked for."""
        return newest_s - _RETENTION_S

    async def settle(self) -> None:
        """Look at the last day, which the first frame did not wait for."""
        await self._look_back(self._wall())

    async def close(self) -> None:
        """Hang up."""
        await self.api.close()

    async def _ask_in_turn(self, at_s: float) -> Answers:
        """The answers to the queries of a refresh. Raises ApiFault.

        Of a large fleet the first refresh has the loads of all alone; the others have these and the pages of the hosts
        whose turn it is.
        """
        targets = sum(map(len, self._memory.hosts.values()))
        if self._newest is None:
            return await self._look_first(at_s)
        if self._memory.has_undated_targets or targets <= TARGETS_AT_ONCE:
            return await self._ask(at_s, self._memory)
        place_labels = (*self._labels.clusters, *self._memory.target_finder.differing_labels())
        loads = load_queries(self._config.match, place_labels)
        scraped, up, engine_loads, gpu_loads, xids = await gather_queries(
            self._query_or_note(self._queries.scraped, at_s),
            self._ask_up(at_s, self._memory),
            *(self._query_or_note(promql, at_s) for promql in loads),
        )
        urgent = self._hosts_at(self._changed_addresses(up, xids, gpu_loads))
        chosen = self._turns.choose(self._memory.hosts, [self._looked_at, *urgent])
        asked = self._addresses_of(chosen) | frozenset(sorted(self._unread)[:TARGETS_AT_ONCE])
        (engines, started, gpus, own), incomplete = await self._ask_pages(at_s, asked)
        again = await self._query_or_note(self._queries.scraped, at_s)
        return Answers(
            at_s, scraped, up, engines, started, gpus, own, again, asked, incomplete, engine_loads, gpu_loads
        )

    async def _look_first(self, at_s: float) -> Answers:
        """The answers to the queries of the first refresh, which has the loads of engines and GPUs alone."""
        queries_of_look = first_look(self._queries, self._config.match)
        scraped, up, engines, started, gpus, own = await gather_queries(
            self._query_or_note(with_scrape_times(self._queries.scraped, self._config.match), at_s),
            *(self._query_or_note(promql, at_s) for promql in queries_of_look[1:]),
        )
        return Answers(at_s, scraped, up, engines, started, gpus, own, again=scraped, asked=frozenset())

    def _addresses_of(self, hosts: Iterable[str]) -> frozenset[str]:
        """The addresses of the targets of these hosts."""
        return frozenset().union(*(instances_of(self._memory.hosts.get(host, ())) for host in hosts))

    def _hosts_at(self, addresses: Container[str]) -> list[str]:
        """The hosts with a target at one of these addresses."""
        return [
            host
            for host, targets in self._memory.hosts.items()
            if any(target.instance in addresses for target in targets)
        ]

    def _changed_addresses(self, up: Iterable[Vector], xids: Iterable[Vector], gpu_loads: Iterable[Vector]) -> set[str]:
        """Addresses of the targets that went up or down, or show another Xid or other GPUs, since the last refresh."""
        states: dict[tuple[object, ...], float] = {}
        for vector in gpu_loads:
            labels = vector.series.labels
            states["", labels.get("instance", ""), labels.get("UUID") or labels.get("uuid", "")] = 1.0
        for vector in chain(up, xids):
            labels = vector.series.labels
            key = (vector.series.name, *(labels.get(name, "") for name in ("instance", "job", "UUID", "uuid")))
            states[key] = vector.value
        changed = {str(key[1]) for key in states.keys() ^ self._states.keys()}
        changed |= {str(key[1]) for key, value in states.items() if self._states.get(key, value) != value}
        is_first = not self._states
        self._states = states
        return set() if is_first else changed

    async def _ask(self, at_s: float, memory: Memory, asked: frozenset[str] | None = None) -> Answers:
        """The answers to the queries of a moment. Raises ApiFault.

        `asked`: addresses whose pages are read; None for all.
        """
        scrape_times = self._queries.scraped
        if self._memory.has_undated_targets:
            scrape_times = with_scrape_times(scrape_times, self._config.match)
        scraped, up = await gather_queries(self._query_or_note(scrape_times, at_s), self._ask_up(at_s, memory))
        (engines, started, gpus, own), incomplete = await self._ask_pages(at_s, asked)
        # Asked again at the end: a target whose time differs was scraped meanwhile.
        again = await self._query_or_note(scrape_times, at_s)
        return Answers(at_s, scraped, up, engines, started, gpus, own, again, asked, incomplete)

    async def _ask_pages(self, at_s: float, asked: frozenset[str] | None) -> tuple[list[list[Vector]], frozenset[str]]:
        """The series in the order of `PAGE_KINDS`, of these addresses (None: of all), and the kinds that lack some.

        A query that is refused gives none, and a notice, while others give some. Raises ApiFault.
        """
        refused: dict[str, list[ApiFault]] = {kind: [] for kind in PAGE_KINDS}
        partial: dict[str, list[str]] = {kind: [] for kind in PAGE_KINDS}
        asks = [
            self._query_or_note(promql, at_s, refused[kind], partial[kind])
            for part in self._page_queries(asked)
            for kind, promql in zip(PAGE_KINDS, (part.engines, part.started, part.gpus, part.own), strict=True)
        ]
        extra = [self._query_or_note(promql, at_s) for promql in self._extra_queries()]
        answered = await gather_queries(*asks, *extra)
        pages: list[list[Vector]] = [[], [], [], []]
        for number, vectors in enumerate(answered[: len(asks)]):
            pages[number % len(pages)] += vectors
        engines, _, gpus, own = pages
        if not (engines or gpus or own):
            for fault in chain(*refused.values()):
                raise fault
        for vectors in answered[len(asks) :]:
            engines += vectors
        return pages, frozenset(kind for kind in PAGE_KINDS if refused[kind] or partial[kind])

    async def _ask_up(self, at_s: float, memory: Memory) -> list[Vector]:
        """`up` of the targets; those of the last hour as well where the answer may lack some. The memory notes them.

        Raises ApiFault.
        """
        partial: list[str] = []
        up = await self._query_or_note(self._queries.up, at_s, partial=partial)
        if partial:
            told = {vector.series for vector in up}
            kept = [vector for vector in memory.up if at_s - vector.at_s < _UP_KEPT_S and vector.series not in told]
            up = kept + up
        memory.up = up
        return up

    def _page_queries(self, asked: frozenset[str] | None) -> list[Queries]:
        """The queries for the pages of these addresses, in parts that a server takes; None: those for all."""
        if asked is None:
            return [self._queries]
        matches = [matchers_of_label(self._config.match, "instance", instances) for instances in chunks(asked)]
        return [queries(match, own_names(SAMPLE_NAMES), self._buckets) for match in matches]

    async def _query_or_note(
        self, promql: str, at_s: float, refused: list[ApiFault] | None = None, partial: list[str] | None = None
    ) -> list[Vector]:
        """The series of a query; none where the server does not want this very query: a notice says so.

        `refused` takes its fault then, `partial` the query where its answer may lack series. Raises ApiFault where the
        server does not answer.
        """
        try:
            return await self._query(promql, at_s, partial)
        except ApiFault as fault:
            if not fault.refused:
                raise
            self._note_refusal(fault)
            if refused is not None:
                refused.append(fault)
            return []

    def _note_refusal(self, fault: ApiFault) -> None:
        """Note that the answer to one query is missing, for the notices of this frame."""
        self.api.warnings[f"a part is missing: {fault.text}"] = None

    async def _query(self, promql: str, at_s: float | None, partial: list[str] | None = None) -> list[Vector]:
        """The series of a query, which is counted; `partial` as of `PrometheusApi.query`. Raises ApiFault."""
        self._sent += 1
        return await self.api.query(promql, at_s, partial)

    async def _samples(self, promql: str, at_s: float) -> list[Matrix]:
        """The stored samples of a range, by a query that is counted. Raises ApiFault."""
        self._sent += 1
        return await self.api.samples(promql, at_s)

    def _extra_queries(self) -> list[str]:
        """The queries beside those of a frame, for the host that is looked at."""
        instances = instances_of(self._memory.hosts.get(self._looked_at, ()))
        if not instances or not self._left_out:
            return []
        return [series_of_names(self._left_out, matchers_of_label(self._config.match, "instance", instances))]

    async def _learn_intervals(self, answers: Answers) -> None:
        """Learn how often jobs are scraped, at most every `LACKING_S` or `LEARN_AGAIN_S`. Raises ApiFault."""
        if self._clock() < self._learn_again_s:
            return
        addresses_by_job = {
            target.labels.get("job", ""): target.instance
            for targets in self._memory.hosts.values()
            for target in targets
            if target.has_up
        }
        if not addresses_by_job:
            addresses_by_job = await asyncio.to_thread(_an_address_per_job, answers)
        if addresses_by_job:
            self._sent += 1
            promql = scrapes(addresses_by_job.values(), self._config.match)
            try:
                self._memory.intervals.learn(await self.api.samples(promql, answers.at_s))
            except ApiFault as fault:
                if not fault.refused:
                    raise
                self._note_refusal(fault)
            again_s = LACKING_S if self._memory.intervals.lacks(addresses_by_job) else LEARN_AGAIN_S
            self._learn_again_s = self._clock() + again_s

    async def _look_back(self, at_s: float) -> None:
        """Look at the days before: since when GPUs are idle, and which there were. What is not answered stays."""
        self._before_again_s = self._clock() + BEFORE_AGAIN_S
        match = self._config.match
        promql = (
            *queries_of_last_day(match),
            expected_query(self._labels, place_labels(self._memory), match),
            unread_query(match),
            engines_query(match),
        )
        busy, first, expected, unread, engines = await gather_queries(
            *(self._query_or_none(query, at_s) for query in promql)
        )
        if busy is not None and first is not None:
            self._memory.idle_since_s = _by_uuid(first) | _by_uuid(busy)
        if unread is not None:
            self._memory.unread = tuple(unread_notices(unread))
        if engines is not None:
            self._memory.known_engines = await asyncio.to_thread(known_engines, engines)
        if expected is not None:
            learn_expected(expected, self._labels, self._memory)
        with contextlib.suppress(ApiFault):
            await date_silence(self._memory, match, at_s, self._samples)

    async def _learn_cordons(self, at_s: float) -> None:
        """Look at what schedulers have taken out. What is not answered stays."""
        if self._clock() < self._cordons_again_s:
            return
        self._cordons_again_s = self._clock() + CORDONS_AGAIN_S
        answer = await self._query_or_none(cordons_query(self._config.match), at_s)
        if answer is not None:
            self._memory.cordons = cordons_of(answer, self._labels)

    async def _query_or_none(self, promql: str, at_s: float) -> list[Vector] | None:
        """The series of a query; None where it is not answered."""
        with contextlib.suppress(ApiFault):
            return await self._query(promql, at_s)
        return None

    async def _date_xids(self, answers: Answers, memory: Memory) -> None:
        """Find out since when the Xids stand that exporters show; asks only where one came. It may fail."""
        codes = standing_codes(answers.gpus)
        memory.xids = keep_standing(memory.xids, codes)
        undated = {uuid: code for uuid, code in codes.items() if code and uuid not in memory.xids}
        if not undated:
            return

        async def ask(promql: str) -> list[Vector]:
            """The series of a query, as of these answers."""
            return await self._query(promql, answers.at_s)

        with contextlib.suppress(ApiFault):
            memory.xids |= await date_xids(undated, self._config.match, answers.at_s, ask)

    def _failed_frame(self, at_s: float, faults: tuple[Fault, ...]) -> FleetFrame:
        """A frame without hosts, and with these faults."""
        return FleetFrame(at_s, self._config.interval_s, faults=faults, answered=False)

    def _take_notices(self) -> tuple[str, ...]:
        """The warnings of the newest answers, and what is to be said of the server's clock."""
        return (*self.api.take_warnings(), *self._server_clock.notices())

    def _faults_of_now(self, texts: Iterable[str], at_s: float) -> tuple[Fault, ...]:
        """Faults of the server itself, each with the time since when it holds."""
        self._fault_since_s = {text: self._fault_since_s.get(text, at_s) for text in texts}
        return tuple(Fault(PROMETHEUS_SOURCE, text, since_s) for text, since_s in self._fault_since_s.items())

    async def _build(self, answers: Answers, memory: Memory) -> FleetFrame:
        """The frame of these answers, put together in a thread."""
        return await asyncio.to_thread(
            build_frame, answers, memory, self._models, self._labels, self._config.gpus_per_engine
        )


def _failure_text(error: Exception) -> str:
    """The text of the fault of a frame that failed with this error."""
    if isinstance(error, ApiFault):
        return error.text
    return f"gpumon failed on the answers ({type(error).__name__}): please report"


def _faults_at(texts: Iterable[str], at_s: float) -> tuple[Fault, ...]:
    """Faults of the server at a moment of the past: since when they hold is not asked."""
    return tuple(Fault(PROMETHEUS_SOURCE, text, at_s) for text in dict.fromkeys(texts))


def _by_uuid(vectors: Iterable[Vector]) -> dict[str, float]:
    """UUID of a GPU -> the value of its series."""
    return {uuid_of(vector): vector.value for vector in vectors}


def _an_address_per_job(answers: Answers) -> dict[str, str]:
    """The address of one target of each job that has series in these answers."""
    labels_of_all = (vector.series.labels for vector in chain(answers.engines, answers.gpus, answers.own))
    return {labels.get("job", ""): labels.get("instance", "") for labels in labels_of_all}

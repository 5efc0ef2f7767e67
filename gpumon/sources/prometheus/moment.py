"""The answers for one moment put together: targets, their pages, hosts, and what is wrong, as one frame."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from gpumon.readings.exported import Sample, rebuilt
from gpumon.readings.fleet import FleetFrame, HostFrame
from gpumon.readings.frame import EngineReading, Fault, GpuReading, part_of_name
from gpumon.readings.snapshot import Snapshot
from gpumon.readings.text import clean
from gpumon.sources.engines.registry import Row
from gpumon.sources.exposition import Series
from gpumon.sources.prometheus import exporters
from gpumon.sources.prometheus.answers import Vector
from gpumon.sources.prometheus.engine import CUT, Engine, Scrape, kind_of, url_of
from gpumon.sources.prometheus.exporters import Exporter
from gpumon.sources.prometheus.hosts import CLUSTER, Pod, Seats, by_count, host_of, named_apart, port_of, shown, user_of
from gpumon.sources.prometheus.intervals import Intervals
from gpumon.sources.prometheus.models import Models
from gpumon.sources.prometheus.targets import Choice, Placer, Target

SOURCE: Final = "prometheus"
OFTEN: Final = 3
"""A page that was not scraped for so many intervals is old."""
NOTHING: Final = (
    "no engine, no GPU and no gpumon is among its series: does it scrape engines, dcgm-exporters or gpumon "
    "serve-metrics, and does [prometheus].match fit?"
)
NO_UP: Final = "{} targets have no series `up`: their figures are taken to be of the moment that was asked for"
TWICE: Final = "{} targets come from several Prometheus (a replica label): each counts once; ask for deduplication"
TWO_JOBS: Final = "{} engines are scraped by two jobs: each counts once"
TWO_EXPORTERS: Final = "{} GPUs are told by two exporters: each counts once"
CUT_GPUS: Final = "the dcgm-exporter has more GPUs than gpumon reads"

Key = tuple[tuple[str, str], ...]
Pages = dict[Target, dict[Series, float]]


class Answers(NamedTuple):
    """What was asked for one moment; in the order of `Queries`, and at the end the first again."""

    at_s: float
    scraped: Sequence[Vector]
    up: Sequence[Vector]
    engines: Sequence[Vector]
    started: Sequence[Vector]
    gpus: Sequence[Vector]
    own: Sequence[Vector]
    again: Sequence[Vector]


class Memory:
    """What stays from one moment to the next."""

    def __init__(self, default_s: float) -> None:
        self.placer = Placer()
        self.choice = Choice()
        self.intervals = Intervals(default_s)
        self.engines: dict[Key, Engine] = {}
        self.exporters: dict[Key, Exporter] = {}
        self.ready: dict[Key, tuple[float, Snapshot | None]] = {}
        self.jobs: dict[str, Row] = {}
        """Jobs all of whose targets are engines of one kind."""
        self.hosts: dict[str, tuple[Target, ...]] = {}
        """Host, as it is shown -> its targets."""
        self.clusters: set[str] = set()
        """That there ever were: one more must not rename a host twice."""
        self.since: dict[str, float] = {}

    def beside(self) -> Memory:
        """A fresh one for another time, with what is so at any time."""
        other = Memory(0.0)
        other.intervals, other.jobs, other.clusters = self.intervals.copy(), dict(self.jobs), set(self.clusters)
        return other


class _Host:
    """A machine while it is put together."""

    def __init__(self) -> None:
        self.gpus: dict[str, GpuReading] = {}
        self.engines: list[tuple[Target, Engine]] = []
        self.targets: list[Target] = []
        self.ready: Snapshot | None = None
        self.faults: dict[str, None] = {}


class Moment:
    """One use: `frame` takes in the answers and leaves in the memory what the next moment needs."""

    def __init__(self, answers: Answers, memory: Memory, models: Models, ladder: Sequence[str]) -> None:
        self._answers = answers
        self._memory = memory
        self._models = models
        self._ladder = ladder
        self._hosts: dict[tuple[str, str], _Host] = {}
        self._texts: dict[str, None] = {}
        self._lasting: dict[str, float] = {}
        self._seats = Seats()
        self._twice = Counter[str]()

    def frame(self) -> FleetFrame:
        """All hosts, by name."""
        answers, memory = self._answers, self._memory
        placer = memory.placer
        self._up = placer.know(answers.up)
        first = {placer.of_up(one.series.labels): one.value for one in answers.scraped}
        self._scraped = {placer.of_up(one.series.labels): one.value for one in answers.again}
        self._moving = {target for target, at_s in self._scraped.items() if first.get(target) != at_s}
        engines, gpus, own = (
            self._pages(each) for each in ((*answers.engines, *answers.started), answers.gpus, answers.own)
        )
        pages = {**engines, **gpus, **own}
        memory.intervals.see(self._scraped)
        patience_s = 2.0 * memory.intervals.most(pages)
        self._chosen = frozenset(memory.choice.of({**self._up, **pages}, self._scraped, patience_s))
        here = [target for target in pages if target in self._chosen]
        memory.clusters.update(target.labels.get(CLUSTER, "") for target in here)
        self._take_gpus(gpus)
        self._take_engines(engines)
        self._take_own(own)
        self._say(here)
        return self._whole(here)

    def _pages(self, vectors: Iterable[Vector]) -> Pages:
        """The series of each target, as its page wrote them."""
        pages: Pages = {}
        place = self._memory.placer.place
        for vector in vectors:
            placed = place(vector.series)
            page = pages.get(placed.target)
            if page is None:
                page = pages[placed.target] = {}
            page[placed.own] = vector.value
        return pages

    def _scrape(self, target: Target, values: dict[Series, float]) -> Scrape:
        at_s = self._scraped.get(target, self._answers.at_s)
        return Scrape(target, values, at_s, self._memory.intervals.of(target))

    def _host(self, target: Target, name: str) -> _Host:
        cluster = target.labels.get(CLUSTER, "") if len(self._memory.clusters) > 1 else ""
        host = self._hosts.setdefault((cluster, name), _Host())
        if not host.targets or host.targets[-1] is not target:
            host.targets.append(target)
        return host

    def _is_down(self, target: Target) -> bool:
        return self._up.get(target, 1.0) == 0.0

    def _take_gpus(self, pages: Pages) -> None:
        memory, kept = self._memory, {}
        silent = (target for target in self._chosen if self._is_down(target) and target.key in memory.exporters)
        for target in sorted({*pages, *silent} & self._chosen, key=lambda target: (not target.known, target.key)):
            exporter = memory.exporters.get(target.key) or Exporter(memory.intervals.of(target))
            kept[target.key] = exporter
            down = self._is_down(target)
            if down:
                exporter.miss()
            elif not (target in self._moving and exporter.gpus):
                exporter.take(self._scrape(target, pages[target]), self._ladder)
            for name, reading in exporter.gpus:
                host = self._host(target, name)
                self._twice["gpu"] += reading.uuid in host.gpus
                host.gpus.setdefault(reading.uuid, reading)
                if down or exporter.cut:
                    host.faults[exporters.DOWN if down else CUT_GPUS] = None
                for user in exporter.users.get(reading.uuid, ()):
                    self._seats.take(user, name, reading.uuid)
        memory.exporters = kept

    def _take_engines(self, pages: Pages) -> None:
        memory = self._memory
        kept: dict[Key, Engine] = {}
        found: list[tuple[Target, Engine]] = []
        for target, values in pages.items():
            if target not in self._chosen or self._is_down(target):
                continue
            engine = memory.engines.get(target.key)
            if not (engine is not None and target in self._moving):
                engine = self._read(engine, self._scrape(target, values))
            if engine is not None and engine.readings:
                kept[target.key] = engine
                found.append((target, engine))
        self._learn_jobs(found)
        for target in self._chosen:
            if not self._is_down(target) or not self._up:
                continue
            row = memory.jobs.get(target.labels.get("job", ""))
            engine = memory.engines.get(target.key) or (Engine(row) if row is not None else None)
            if engine is not None:
                engine.fail(target, self._answers.at_s, memory.intervals.of(target))
                kept[target.key] = engine
                found.append((target, engine))
        memory.engines = kept
        for target, engine in sorted(found, key=lambda each: each[0].key):
            self._seat(target, engine)

    def _read(self, engine: Engine | None, scrape: Scrape) -> Engine | None:
        """The engine with this scrape read; another where the page is of another kind now."""
        try:
            return self._read_page(engine, scrape)
        except Exception as error:  # a fault of gpumon's own costs this row only
            row = kind_of(scrape.values)
            failed = engine or (Engine(row) if row is not None else None)
            if failed is not None:
                text = f"gpumon failed on this page ({type(error).__name__}): please report"
                failed.fail(scrape.target, scrape.scraped_s, scrape.interval_s, text)
            return failed

    def _read_page(self, engine: Engine | None, scrape: Scrape) -> Engine | None:
        if engine is not None and engine.take(scrape, self._models):
            return engine
        row = kind_of(scrape.values)
        if row is None:
            return None
        fresh = Engine(row)
        return fresh if fresh.take(scrape, self._models) else None

    def _learn_jobs(self, found: Sequence[tuple[Target, Engine]]) -> None:
        """A target that is down is taken for an engine only in a job where all that is up is one."""
        answering = Counter(
            target.labels.get("job", "") for target, up in self._up.items() if up and target in self._chosen
        )
        rows: dict[str, list[Row]] = {}
        for target, engine in found:
            rows.setdefault(target.labels.get("job", ""), []).append(engine.row)
        for job, several in rows.items():
            if len({row.kind for row in several}) == 1 and len(several) == answering[job]:
                self._memory.jobs[job] = several[0]
            else:
                self._memory.jobs.pop(job, None)

    def _seat(self, target: Target, engine: Engine) -> None:
        """Put an engine on its host: that of its pod's GPUs, else by its labels."""
        user = user_of(target.labels, target.labels.get(CLUSTER, ""))
        name = (self._seats.host(user) if user is not None else "") or host_of(target.labels, {}, self._ladder)
        host = self._host(target, name)
        for at, (other, known) in enumerate(host.engines):
            if known.row.kind is engine.row.kind and url_of(other) == url_of(target) and port_of(target.instance):
                self._twice["job"] += 1
                behind_s = engine.readings[0].monotonic_s - known.readings[0].monotonic_s
                if behind_s > OFTEN * engine.readings[0].interval_s:
                    host.engines[at] = (target, engine)
                return
        host.engines.append((target, engine))
        if engine.cut:
            host.faults[CUT] = None

    def _take_own(self, pages: Pages) -> None:
        """What a host's own gpumon exports goes before what is worked out here, as long as it is fresh."""
        kept: dict[Key, tuple[float, Snapshot | None]] = {}
        for target, values in pages.items():
            if target not in self._chosen or self._is_down(target):
                continue
            scrape = self._scrape(target, values)
            known = self._memory.ready.get(target.key)
            if known is None or (known[0] != scrape.scraped_s and target not in self._moving):
                samples = (Sample(series.name, series.labels, value) for series, value in values.items())
                known = scrape.scraped_s, rebuilt(samples, scrape.scraped_s, scrape.interval_s)
            kept[target.key] = known
            old = self._answers.at_s - known[0] > OFTEN * scrape.interval_s
            if known[1] is not None and not old:
                labels = {"Hostname": known[1].host.name}
                self._host(target, host_of(target.labels, labels, self._ladder)).ready = known[1]
        self._memory.ready = kept

    def _say(self, here: Sequence[Target]) -> None:
        without = sum(not target.known for target in here)
        notices = (
            (NOTHING, not self._hosts),
            (NO_UP.format(without), without),
            (TWICE.format(self._memory.choice.repeated), self._memory.choice.repeated),
            (TWO_JOBS.format(self._twice["job"]), self._twice["job"]),
            (TWO_EXPORTERS.format(self._twice["gpu"]), self._twice["gpu"]),
        )
        self._texts |= {text: None for text, holds in notices if holds}

    def _whole(self, here: Sequence[Target]) -> FleetFrame:
        hosts = [self._one(cluster, name, host) for (cluster, name), host in self._hosts.items()]
        self._memory.hosts = {
            one.name: tuple(host.targets) for one, host in zip(hosts, self._hosts.values(), strict=True)
        }
        faults = tuple(Fault(SOURCE, text, self._since(text)) for text in self._texts)
        self._memory.since = self._lasting
        return FleetFrame(
            wall_s=self._answers.at_s,
            interval_s=self._memory.intervals.most(here),
            hosts=tuple(sorted(hosts, key=lambda host: host.name)),
            faults=faults,
        )

    def _since(self, what: str) -> float:
        """Since when something holds that holds now."""
        self._lasting[what] = self._memory.since.get(what, self._answers.at_s)
        return self._lasting[what]

    def _one(self, cluster: str, name: str, host: _Host) -> HostFrame:
        gpus = tuple(
            sorted(host.gpus.values(), key=lambda one: (one.index, one.parent_uuid or one.uuid, one.mig_instance))
        )
        return HostFrame(
            name=shown(name, cluster, len(self._memory.clusters)),
            gpus=() if host.ready is not None else gpus,
            engines=() if host.ready is not None else tuple(self._engines(host, gpus)),
            ready=host.ready,
            labels=_shared(host.targets),
            interval_s=self._memory.intervals.most(host.targets),
            faults=tuple(Fault(SOURCE, text, self._since(f"{cluster}/{name} {text}")) for text in host.faults),
        )

    def _engines(self, host: _Host, gpus: tuple[GpuReading, ...]) -> Iterable[EngineReading]:
        """The engines of a host with names of their own, and their GPUs as far as labels tell them."""
        names = named_apart((engine.readings[0].server_name, target.labels) for target, engine in host.engines)
        pods = Counter(
            user.pod for target, _ in host.engines if (user := user_of(target.labels, target.labels.get(CLUSTER, "")))
        )
        for name, (target, engine) in zip(names, host.engines, strict=True):
            for reading in engine.readings:
                uuids, source = self._gpus_of(target, reading, gpus, (len(host.engines), pods))
                yield msgspec.structs.replace(
                    reading, name=name + part_of_name(reading.part), gpus=uuids, gpus_source=source
                )

    def _gpus_of(
        self,
        target: Target,
        reading: EngineReading,
        gpus: tuple[GpuReading, ...],
        among: tuple[int, Mapping[Pod, int]],
    ) -> tuple[tuple[str, ...], str]:
        endpoint = self._models.endpoint(target.instance)
        if endpoint.gpus != "auto":
            by_index = {gpu.index: gpu.uuid for gpu in gpus if not gpu.parent_uuid}
            missing = [index for index in endpoint.gpus if index not in by_index]
            if missing:
                return (), f"the config names GPU {missing[0]}, its host has {sorted(by_index)}"
            return tuple(by_index[index] for index in endpoint.gpus), "config"
        if endpoint.gpu_type:
            return (), "config"
        user = user_of(target.labels, target.labels.get(CLUSTER, ""))
        if user is not None:
            uuids, source = self._seats.gpus(user, among[1][user.pod])
            here = {gpu.uuid for gpu in gpus}
            if uuids and here.issuperset(uuids):
                return uuids, source
            if not uuids and self._seats.host(user):
                return (), source
        return by_count(reading, among[0], gpus)


def _shared(targets: Sequence[Target]) -> dict[str, str]:
    """Labels that all these targets have alike, but for those of a single one."""
    first, *others = targets
    return {
        clean(name, 80): clean(value, 120)
        for name, value in first.labels.items()
        if name not in ("job", "instance") and all(other.labels.get(name) == value for other in others)
    }

"""The answers for one moment put together as one frame: targets and their pages, each read once (what is down stays as
it was), hosts, and what is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

import msgspec

from gpumon.readings.exported import Sample
from gpumon.readings.fleet import FleetFrame, HostFrame
from gpumon.readings.frame import EndpointState, EngineReading, Fault, GpuReading, part_of_name
from gpumon.readings.missing import Missing
from gpumon.readings.snapshot import Snapshot
from gpumon.readings.text import clean
from gpumon.sources.engines.adapter import Row
from gpumon.sources.engines.detect import Refusal
from gpumon.sources.exposition import Series
from gpumon.sources.prometheus import exporters
from gpumon.sources.prometheus.answers import Vector
from gpumon.sources.prometheus.engine import CUT, Engine, Scrape, kind_of, url_of
from gpumon.sources.prometheus.engine_gpus import EngineGpus, Placing, Seated, Seats
from gpumon.sources.prometheus.exporters import Exporter
from gpumon.sources.prometheus.hosts import (
    Labels,
    User,
    host_of,
    named_apart,
    port_of,
    same_pod,
    shown,
    user_of,
    without_port,
)
from gpumon.sources.prometheus.memory import Answers, Key, Memory, Pages, Place
from gpumon.sources.prometheus.models import Models
from gpumon.sources.prometheus.own import rebuilt
from gpumon.sources.prometheus.targets import Target
from gpumon.triage.peers import PeerError

OFTEN: Final = 3
"""A page that was not scraped for so many intervals is old."""
Found = Sequence[tuple[Target, Engine]]
SOURCE: Final = "prometheus"
NOTHING: Final = (
    "no engine, no GPU and no gpumon is among its series: does it scrape engines, dcgm-exporters or gpumon "
    "serve-metrics, and does [prometheus].match fit?"
)
DOWN: Final = "none of its targets answers: {} targets are down (up is 0), such as {}; its page /targets has the reason"
NO_UP: Final = "{} targets have no series `up`, so it is unknown whether they answer: does [prometheus].match fit `up`?"
TWICE: Final = "{} targets come from several Prometheus (a replica label): each counts once; ask for deduplication"
TWO_JOBS: Final = "{} engines are scraped by two jobs: each counts once"
TWO_EXPORTERS: Final = "{} GPUs come from two exporters: each counts once"
TWO_NAMES: Final = (
    "{} hosts have two names, such as {} and {}: each counts once; give all its targets one label of "
    "[prometheus].host_labels"
)
UNUSED: Final = "{} [[endpoint]] of the config match no engine here: {}; compare them with the label `instance`"
ONE_NAME: Final = (
    "{} machines are called {}: their GPUs have the same indices, so each is a host of its own; give them different "
    "labels of [prometheus].host_labels or cluster_labels"
)
CUT_GPUS: Final = "the dcgm-exporter has more GPUs than gpumon reads"
UNSEEN: Final = (
    "its gpumon serve-metrics sees {} of the {} engines that this Prometheus scrapes here, whose own series are taken: "
    "in a container it needs the host's PIDs and network (hostPID, hostNetwork), or the engines as [[endpoint]]"
)
OWN_DOWN: Final = "the Prometheus can not scrape this host's gpumon serve-metrics (up is 0): see its page /targets"


class Own(NamedTuple):
    """A host's own gpumon."""

    target: Target
    name: str
    """Of its host."""
    ready: Snapshot | None
    """None where it is down, or refused."""
    refused: str = ""
    """Why what it exports is not read: it is beyond the bounds of a snapshot."""


class _Host:
    """A machine while it is put together."""

    def __init__(self) -> None:
        self.gpus: dict[str, GpuReading] = {}
        self.engines: list[tuple[Target, Engine]] = []
        self.targets: list[Target] = []
        self.ready: Snapshot | None = None
        self.faults: dict[str, None] = {}
        self.down: set[Key] = set()
        """Exporters that do not answer."""


class Moment:
    """One use: `frame` takes in the answers and leaves in the memory what the next moment needs."""

    def __init__(
        self, answers: Answers, memory: Memory, models: Models, names: Labels, sizes: Mapping[str, int] = {}
    ) -> None:
        """`sizes`: GPUs of one engine by a glob of its model's name, from the config."""
        self._answers = answers
        self._memory = memory
        self._models = models
        self._labels = names
        self._sizes = sizes
        self._hosts: dict[Place, _Host] = {}
        self._texts: dict[str, None] = {}
        self._lasting: dict[str, float] = {}
        self._seats = Seats()
        self._twice = Counter[str]()
        self._gpus: set[str] = set()
        self._addresses: dict[str, set[str]] = {}
        self._apart: dict[tuple[Place, Key], str] = {}
        """Name that several machines have, and the exporter of one of them -> a name of its own."""

    def frame(self) -> FleetFrame:
        """All hosts, by name."""
        here, owns, found = self._take()
        self._tell_apart()
        self._join(owns, found)
        self._seat_gpus()
        self._seat_own(owns)
        for target, engine in found:
            self._seat(target, engine)
        self._say(here)
        return self._whole(here)

    def _take(self) -> tuple[list[Target], list[Own], Found]:
        """The targets that count, hosts' own gpumon, and the engines."""
        answers = self._answers
        memory = self._memory
        placer = memory.placer
        self._up = placer.know(answers.up)
        first, self._scraped = (placer.dates(each) for each in (answers.scraped, answers.again))
        self._moving = {target for target, at_s in self._scraped.items() if first.get(target) != at_s}
        engines, gpus, own = (
            self._pages(each) for each in ((*answers.engines, *answers.started), answers.gpus, answers.own)
        )
        pages = {**engines, **gpus, **own}
        patience_s = 2.0 * memory.intervals.most(pages)
        self._chosen = frozenset(memory.choice.of({**self._up, **pages}, self._scraped, patience_s))
        here = []
        for target in pages:
            if target in self._chosen:
                here.append(target)
        self._remember(here, pages)
        self._down = [target for target in self._chosen if self._is_down(target)]
        self._answering = Counter(job_of(target) for target, up in self._up.items() if up and target in self._chosen)
        self._take_exporters(gpus)
        return here, self._take_own(own), self._take_engines(engines)

    def _remember(self, here: Sequence[Target], pages: Pages) -> None:
        """Remember of the targets that count whether they are dated, how large their pages are, and their clusters."""
        memory = self._memory
        memory.undated = not here or any(not target.known for target in here)
        memory.sizes = {target.key: len(pages[target]) for target in here}
        for target in here:
            cluster = self._labels.cluster(target.labels)
            if cluster:
                memory.clusters.add(cluster)

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

    def _is_down(self, target: Target) -> bool:
        return self._up.get(target, 1.0) == 0.0

    def _take_exporters(self, pages: Pages) -> None:
        memory = self._memory
        kept = {}
        silent = (target for target in self._down if target.key in memory.exporters)
        order = sorted({*pages, *silent} & self._chosen, key=lambda one: (self._is_down(one), not one.known, one.key))
        for target in order:
            exporter = memory.exporters.get(target.key) or Exporter(memory.intervals.of(target))
            kept[target.key] = exporter
            if self._is_down(target):
                exporter.miss()
            elif not (target in self._moving and exporter.gpus):
                exporter.take(self._scrape(target, pages[target]), self._labels)
        memory.exporters = kept
        self._exporters = [(target, kept[target.key]) for target in order]
        answering = (target for target, one in self._exporters if one.gpus and not self._is_down(target))
        self._learn(memory.exporter_jobs, answering)

    def _take_engines(self, pages: Pages) -> list[tuple[Target, Engine]]:
        """The engines by their targets' labels; one that is down is as it was."""
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
        for target in self._down:
            row = memory.jobs.get(job_of(target))
            engine = memory.engines.get(target.key) or (Engine(row) if row is not None else None)
            if engine is not None:
                engine.fail(target, self._answers.at_s, memory.intervals.of(target))
                kept[target.key] = engine
                found.append((target, engine))
        memory.engines = kept
        return sorted(found, key=lambda each: each[0].key)

    def _read(self, engine: Engine | None, scrape: Scrape) -> Engine | None:
        """The engine with this scrape read; another where the page is of another kind now."""
        try:
            return self._read_page(engine, scrape)
        except Exception as error:  # a fault of gpumon's own costs this row only
            row = kind_of(scrape.values)
            failed = engine or (Engine(row) if row is not None else None)
            if failed is not None:
                text = f"gpumon failed on this page ({type(error).__name__}): please report"
                failed.fail(scrape.target, scrape.scraped_s, scrape.interval_s, Refusal(EndpointState.ERROR, text))
            return failed

    def _read_page(self, engine: Engine | None, scrape: Scrape) -> Engine | None:
        if engine is not None and engine.take(scrape, self._models):
            return engine
        row = kind_of(scrape.values)
        if row is None:
            return None
        fresh = Engine(row)
        if fresh.take(scrape, self._models):
            return fresh
        return None

    def _learn_jobs(self, found: Sequence[tuple[Target, Engine]]) -> None:
        """A target that is down is taken for an engine only in a job where all that is up is one."""
        rows: dict[str, list[Row]] = {}
        for target, engine in found:
            rows.setdefault(job_of(target), []).append(engine.row)
        for job, several in rows.items():
            if len({row.kind for row in several}) == 1 and len(several) == self._answering[job]:
                self._memory.jobs[job] = several[0]
            else:
                self._memory.jobs.pop(job, None)

    def _learn(self, jobs: set[str], answering: Iterable[Target]) -> None:
        """The same of other jobs: those all of whose targets that answer are among these."""
        found = Counter(map(job_of, answering))
        jobs.difference_update(self._answering)
        jobs.update(job for job, count in found.items() if count == self._answering[job])

    def _take_own(self, pages: Pages) -> list[Own]:
        """What hosts' own gpumon export, each with its host; None for one that is down."""
        kept: dict[Key, tuple[float, Snapshot | None]] = {}
        found: list[Own] = []
        for target, values in pages.items():
            if target not in self._chosen or self._is_down(target):
                continue
            scrape = self._scrape(target, values)
            known = self._memory.ready.get(target.key)
            if known is None or (known[0] != scrape.scraped_s and target not in self._moving):
                known = scrape.scraped_s, self._rebuilt(scrape)
            kept[target.key] = known
            old = self._answers.at_s - known[0] > OFTEN * scrape.interval_s
            refused = self._memory.refused.get(target.key, "")
            if known[1] is not None and not old:
                found.append(Own(target, self._own_host(target, known[1]), known[1]))
            elif refused:
                found.append(Own(target, self._own_host(target, None), None, refused))
        self._learn(self._memory.own_jobs, (target for target in pages if target.key in kept))
        for target in self._down:
            seen = self._memory.ready.get(target.key)
            if seen is not None:
                kept[target.key] = seen
                found.append(Own(target, self._own_host(target, seen[1]), None))
            elif job_of(target) in self._memory.own_jobs:
                found.append(Own(target, self._own_host(target, None), None))
        self._memory.ready = kept
        return found

    def _rebuilt(self, scrape: Scrape) -> Snapshot | None:
        """Snapshot that a host's own gpumon exports; None for other exporters, or where it exceeds the limits."""
        samples = (Sample(series.name, series.labels, value) for series, value in scrape.values.items())
        self._memory.refused.pop(scrape.target.key, None)
        try:
            return rebuilt(samples, scrape.scraped_s, scrape.interval_s)
        except PeerError as refused:
            self._memory.refused[scrape.target.key] = str(refused)
            return None

    def _own_host(self, target: Target, seen: Snapshot | None) -> str:
        return host_of(target.labels, {"Hostname": seen.host.name} if seen is not None else {}, self._labels.hosts)

    def _place(self, target: Target, name: str) -> Place:
        """A machine; of several of one name the one whose exporter has most labels in common with the target."""
        place = Place(self._cluster(target), name)
        names = {key: found for (where, key), found in self._apart.items() if where == place}
        if names:
            own = set(target.key)
            place = place._replace(
                name=names[max(names, key=lambda key: (key == target.key, len(own & set(key)), key))]
            )
        return place

    def _cluster(self, target: Target) -> str:
        """Where there are several; one that some targets do not name tells nothing apart."""
        if len(self._memory.clusters) > 1:
            return self._labels.cluster(target.labels)
        return ""

    def _host(self, target: Target, name: str) -> _Host:
        place = self._memory.machines.of(self._place(target, name))
        host = self._hosts.setdefault(place, _Host())
        if not host.targets or host.targets[-1] is not target:
            host.targets.append(target)
        return host

    def _tell_apart(self) -> None:
        """Exporters under one name that tell other GPUs of one index are of several machines, each with a name."""
        indices: dict[Place, dict[int, dict[str, Target]]] = {}
        for target, exporter in self._exporters:
            for name, reading in exporter.gpus:
                if reading.uuid in exporter.here and not reading.parent_uuid and not self._is_down(target):
                    here = indices.setdefault(self._place(target, name), {}).setdefault(reading.index, {})
                    here[reading.uuid] = target
        for place, by_index in indices.items():
            clashing = {id(one): one for uuids in by_index.values() if len(uuids) > 1 for one in uuids.values()}
            if len(clashing) > 1:
                for one in clashing.values():
                    self._apart[place, one.key] = f"{place.name}@{_apart_by(one, [*clashing.values()])}"
                self._texts[ONE_NAME.format(len(clashing), clean(place.name, 60))] = None

    def _join(self, owns: Sequence[Own], found: Sequence[tuple[Target, Engine]]) -> None:
        """Find out which names are of one machine, before anything is put on a host."""
        machines = self._memory.machines
        told = dict[Place, set[str]]()
        for target, exporter in self._exporters:
            for name, reading in exporter.gpus:
                if reading.uuid in exporter.here and not self._is_down(target):
                    told.setdefault(self._place(target, name), set()).add(reading.uuid)
        best = {}
        for one in owns:
            if one.ready is not None:
                best[self._place(one.target, one.name)] = one.ready
        for place, ready in best.items():
            told.setdefault(place, set()).update(gpu.uuid for gpu in ready.gpus if gpu.uuid)
        self._renamed = machines.see(told, best)
        self._know_users(frozenset(chain(*told.values())))
        for own in owns:
            self._know_address(own.target, own.name)
        self._lend_clusters((*told, *(self._place(target, self._name(target)) for target, _ in found)))

    def _lend_clusters(self, places: Iterable[Place]) -> None:
        """Take a machine that some targets name without a cluster for the one of that name in a cluster."""
        clusters: dict[str, set[str]] = {}
        for place in places:
            clusters.setdefault(place.name, set()).add(place.cluster)
        for name, several in clusters.items():
            if len(several) == 2 and "" in several:
                self._memory.machines.lend(Place("", name), Place(max(several), name))

    def _know_users(self, fresh: Collection[str]) -> None:
        """Who uses which GPUs; of an exporter that is down only where no other tells of them."""
        for target, exporter in self._exporters:
            for name, reading in exporter.gpus:
                kept = self._know_address(target, name)
                if self._is_down(target) and reading.uuid in fresh:
                    continue
                for user in exporter.users.get(reading.uuid, ()):
                    self._seats.take(self._of_cluster(user), kept, reading.uuid)

    def _know_address(self, target: Target, name: str) -> str:
        """Whose address a target has; the name under which that machine is shown."""
        kept = self._memory.machines.of(self._place(target, name)).name
        self._addresses.setdefault(without_port(target.instance), set()).add(kept)
        return kept

    def _seat_gpus(self) -> None:
        for target, exporter in self._exporters:
            down = self._is_down(target)
            for name, reading in exporter.gpus:
                host = self._host(target, name)
                counts = self._counts(host, target, reading)
                if counts:
                    host.gpus[reading.uuid] = self._with_past(reading)
                    self._gpus.add(reading.uuid)
                if down and (counts or not host.gpus):
                    host.faults[exporters.DOWN] = None
                    host.down.add(target.key)
                if exporter.cut:
                    host.faults[CUT_GPUS] = None
        for target in self._down:
            if job_of(target) in self._memory.exporter_jobs and target.key not in self._memory.exporters:
                host = self._host(target, self._name(target))
                host.faults |= {} if host.gpus else {exporters.DOWN: None}
                host.down.add(target.key)

    def _with_past(self, reading: GpuReading) -> GpuReading:
        """The GPU with what the day before tells of it."""
        memory = self._memory
        busy = reading.busy_ratio
        if not isinstance(busy, Missing) and busy > 0.0:
            memory.idle_since_s.pop(reading.uuid, None)
        idle_s = memory.idle_since_s.get(reading.uuid, 0.0)
        xid = memory.xids.get(reading.uuid)
        if not idle_s and (xid is None or reading.xid):
            return reading
        xids = reading.xid or ((xid,) if xid is not None else ())
        return msgspec.structs.replace(reading, idle_since_wall_s=idle_s, xid=xids)

    def _counts(self, host: _Host, target: Target, reading: GpuReading) -> bool:
        """Whether this account of a GPU is the one that is shown: what is up comes first, then what is not behind."""
        if reading.uuid not in self._gpus:
            return True
        self._twice["gpu"] += 1
        known = host.gpus.get(reading.uuid)
        patience_s = OFTEN * self._memory.intervals.of(target)
        return not self._is_down(target) and known is not None and reading.monotonic_s > known.monotonic_s + patience_s

    def _name(self, target: Target) -> str:
        """Host of an engine: that of its pod's GPUs, else by its labels; by its address where that is another's."""
        user = user_of(target.labels, self._cluster(target))
        seated = ""
        if user is not None:
            seated = self._seats.host(user)
        if user is not None and seated:
            self._memory.pods[user.pod] = seated
        elif user is not None:  # its exporter pauses: a pod stays where it runs
            seated = self._memory.pods.get(user.pod, "")
        name = seated or host_of(target.labels, {}, self._labels.hosts)
        if name == without_port(target.instance):
            near = self._addresses.get(name, set())
        else:
            near = set()
        if len(near) == 1:
            return next(iter(near))
        return name

    def _of_cluster(self, user: User) -> User:
        """A GPU's user, as its engine's labels call it."""
        if len(self._memory.clusters) > 1:
            return user
        return user._replace(pod=user.pod._replace(cluster=""))

    def _seat(self, target: Target, engine: Engine) -> None:
        """Put an engine on its host."""
        host = self._host(target, self._name(target))
        for at, (other, known) in enumerate(host.engines):
            if known.row.kind is engine.row.kind and _same(other, target):
                self._twice["job"] += 1
                if self._is_better((target, engine), (other, known)):
                    host.engines[at] = (target, engine)
                return
        host.engines.append((target, engine))
        if engine.cut:
            host.faults[CUT] = None

    def _is_better(self, one: tuple[Target, Engine], other: tuple[Target, Engine]) -> bool:
        """What is up goes before what is down; of two alike the first stays, unless it has fallen behind."""
        up, was_up = (not self._is_down(target) for target, _ in (one, other))
        behind_s = one[1].read_s - other[1].read_s
        return up > was_up or (up == was_up and behind_s > OFTEN * one[1].readings[0].interval_s)

    def _seat_own(self, owns: Sequence[Own]) -> None:
        """What a host's own gpumon exports goes before what is worked out here, as long as it is fresh."""
        for target, name, ready, refused in owns:
            host = self._host(target, name)
            if ready is not None:
                host.ready = ready
            elif refused:
                host.faults[refused] = None
                self._texts[f"{clean(name, 60)}: {refused}"] = None
            else:
                host.faults[OWN_DOWN] = None
                host.down.add(target.key)

    def _say(self, here: Sequence[Target]) -> None:
        without = sum(not target.known for target in here)
        down = clean(", ".join(sorted(f"{target.instance} ({job_of(target)})" for target in self._down)[:3]), 200)
        notices = (
            (NOTHING, not self._hosts and not down),
            (DOWN.format(len(self._down), down), not self._hosts and down),
            (NO_UP.format(without), without),
            (TWICE.format(self._memory.choice.repeated), self._memory.choice.repeated),
            (TWO_JOBS.format(self._twice["job"]), self._twice["job"]),
            (TWO_EXPORTERS.format(self._twice["gpu"]), self._twice["gpu"]),
            (self._two_names(), self._renamed),
        )
        self._texts |= {text: None for text, holds in notices if holds}

    def _two_names(self) -> str:
        first = self._renamed[0] if self._renamed else ()
        if first:
            return TWO_NAMES.format(len(self._renamed), *(clean(place.name, 60) for place in first))
        return ""

    def _whole(self, here: Sequence[Target]) -> FleetFrame:
        for host in self._hosts.values():
            self._merge_own(host)
        placed = self._placed()
        hosts = [self._one(place, host, placed) for place, host in self._hosts.items()]
        before = self._memory.hosts
        here_now = {one.key for host in self._hosts.values() for one in host.targets}
        self._memory.hosts = {
            one.name: tuple(host.targets) for one, host in zip(hosts, self._hosts.values(), strict=True)
        }
        if self._models.unused and any(host.engines for host in self._hosts.values()):
            unused = self._models.unused
            self._texts[UNUSED.format(len(unused), clean(", ".join(unused[:3]), 200))] = None
        faults = tuple(Fault(SOURCE, text, self._since(text)) for text in self._texts)
        self._memory.since = self._lasting
        return FleetFrame(
            wall_s=self._answers.at_s,
            interval_s=self._memory.intervals.most(here),
            hosts=tuple(sorted(hosts, key=lambda host: host.name)),
            faults=faults,
            moved=tuple(
                name
                for name, targets in before.items()
                if name not in self._memory.hosts and any(one.key in here_now for one in targets)
            ),
        )

    def _merge_own(self, host: _Host) -> None:
        """Keep of the engines that are scraped those that the host's own gpumon does not tell of.

        Where it tells of none, and a dcgm-exporter tells of GPUs, the host is worked out here: engines and GPUs belong
        together.
        """
        if host.ready is None:
            return
        unseen = _unseen(host.engines, host.ready)
        number = sum(len(engine.readings) for _, engine in host.engines)
        if unseen:
            seen = number - sum(len(engine.readings) for _, engine in unseen)
            host.faults[UNSEEN.format(seen or "none", number)] = None
        if host.gpus and unseen and not host.ready.engines:
            host.ready = None
        else:
            host.engines = unseen

    def _placed(self) -> dict[int, Placing]:
        """On which GPUs each reading (by its id) runs: of all hosts, as engines of one model tell of each other."""
        engines: dict[Place, list[Seated]] = {
            place: [
                Seated(reading, self._models.endpoint(target.instance), user_of(target.labels, self._cluster(target)))
                for target, engine in host.engines
                for reading in engine.readings
            ]
            for place, host in self._hosts.items()
        }
        pods = Counter(
            user.pod
            for host in self._hosts.values()
            for target, _ in host.engines
            if (user := user_of(target.labels, self._cluster(target))) is not None
        )
        known = {}
        for host in self._hosts.values():
            for uuid, gpu in host.gpus.items():
                known[uuid] = gpu
        answer = EngineGpus(self._seats, self._sizes, pods)
        first = {
            place: [answer.by_labels(one, tuple(self._hosts[place].gpus.values()), known) for one in several]
            for place, several in engines.items()
        }
        placed: dict[int, Placing] = {}
        for place, several in engines.items():
            found = answer.by_number(several, first[place], _in_order(self._hosts[place]))
            placed |= {id(one.reading): placing for one, placing in zip(several, found, strict=True)}
        return placed

    def _since(self, what: str) -> float:
        """Since when something holds that holds now."""
        self._lasting[what] = self._memory.since.get(what, self._answers.at_s)
        return self._lasting[what]

    def _one(self, place: Place, host: _Host, placed: Mapping[int, Placing]) -> HostFrame:
        engines: list[EngineReading] = []
        workers: dict[str, tuple[str, ...]] = {}
        for reading, placing in self._engines(host, placed):
            engines.append(reading)
            if placing.workers:
                workers[reading.key] = placing.workers
        return HostFrame(
            name=shown(place.name, place.cluster, len(self._memory.clusters)),
            gpus=() if host.ready is not None else _in_order(host),
            engines=tuple(engines),
            worker_gpus=workers,
            ready=host.ready,
            labels=_shared(host.targets),
            interval_s=self._memory.intervals.most(host.targets),
            faults=tuple(
                Fault(SOURCE, text, self._since(f"{place.cluster}/{place.name} {text}")) for text in host.faults
            ),
            exporters_down=len(host.down),
        )

    def _engines(self, host: _Host, placed: Mapping[int, Placing]) -> Iterable[tuple[EngineReading, Placing]]:
        """The engines of a host with names of their own and their GPUs, and what is known of those."""
        names = named_apart((engine.readings[0].server_name, target.labels) for target, engine in host.engines)
        urls = Counter(engine.readings[0].url for _, engine in host.engines)
        for name, (target, engine) in zip(names, host.engines, strict=True):
            for reading in engine.readings:
                placing = placed[id(reading)]
                pod = ""
                if urls[reading.url] > 1:
                    pod = f" {target.labels.get('pod', '')}"
                named = msgspec.structs.replace(
                    reading,
                    name=name + part_of_name(reading.part),
                    url=reading.url + pod.rstrip(),
                    gpus=placing.uuids,
                    gpus_source=placing.source,
                    gpu_type=placing.gpu_type,
                    gpu_count=placing.number,
                )
                yield named, placing


def _unseen(engines: Found, own: Snapshot) -> list[tuple[Target, Engine]]:
    """Scraped engines that a host's own gpumon does not tell of, by their kind and port, else by kind and model."""
    by_port = Counter((engine.kind, port_of(engine.url)) for engine in own.engines)
    by_model = Counter((engine.kind, engine.model) for engine in own.engines)
    unseen: list[tuple[Target, Engine]] = []
    for target, engine in engines:
        first = engine.readings[0]
        place = (engine.row.kind, port_of(target.instance))
        model = (engine.row.kind, first.model)
        if by_port[place] > 0:
            by_port[place] -= 1
            by_model[model] -= 1
        elif by_model[model] > 0:
            by_model[model] -= 1
        else:
            unseen.append((target, engine))
    return unseen


def _in_order(host: _Host) -> tuple[GpuReading, ...]:
    return tuple(sorted(host.gpus.values(), key=lambda one: (one.index, one.parent_uuid or one.uuid, one.mig_instance)))


def _apart_by(one: Target, others: Sequence[Target]) -> str:
    """What tells a machine's exporter from others: a label that differs for each, else its address."""
    for label, value in one.labels.items():
        if label not in ("job", "instance", "pod") and len({other.labels.get(label) for other in others}) == len(
            others
        ):
            return value
    return one.instance


def _same(one: Target, other: Target) -> bool:
    """Whether two jobs scrape one engine: at one address with a port, and no pod's name says otherwise."""
    same_address = url_of(one) == url_of(other) and port_of(one.instance) != ""
    return same_address and job_of(one) != job_of(other) and same_pod(one.labels, other.labels)


def _shared(targets: Sequence[Target]) -> dict[str, str]:
    """Labels that all these targets have alike, but for those of a single one."""
    first, *others = targets
    shared = {}
    for name, value in first.labels.items():
        if name not in ("job", "instance") and all(other.labels.get(name) == value for other in others):
            shared[clean(name, 80)] = clean(value, 120)
    return shared


def job_of(target: Target) -> str:
    """The job that scrapes a target."""
    return target.labels.get("job", "")

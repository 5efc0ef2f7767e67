"""The answers for one moment put together: targets, their pages, hosts, and what is wrong, as one frame."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Final

import msgspec

from gpumon.readings.fleet import FleetFrame, HostFrame
from gpumon.readings.frame import EngineReading, Fault, GpuReading, part_of_name
from gpumon.readings.snapshot import Snapshot
from gpumon.readings.text import clean
from gpumon.sources.prometheus import exporters
from gpumon.sources.prometheus.engine import CUT, Engine, url_of
from gpumon.sources.prometheus.hosts import (
    CLUSTER,
    Pod,
    Seats,
    User,
    by_count,
    host_of,
    named_apart,
    port_of,
    same_pod,
    shown,
    user_of,
    without_port,
)
from gpumon.sources.prometheus.machines import Place
from gpumon.sources.prometheus.memory import Answers, Memory
from gpumon.sources.prometheus.models import Models
from gpumon.sources.prometheus.taking import OFTEN, Own, Taking, job_of
from gpumon.sources.prometheus.targets import Target

SOURCE: Final = "prometheus"
NOTHING: Final = (
    "no engine, no GPU and no gpumon is among its series: does it scrape engines, dcgm-exporters or gpumon "
    "serve-metrics, and does [prometheus].match fit?"
)
DOWN: Final = (
    "nothing that is told here answers: {} targets are down (up is 0), such as {}; see the Prometheus' page /targets "
    "for the reason"
)
NO_UP: Final = "{} targets have no series `up`, so nothing tells whether they answer: does [prometheus].match fit `up`?"
TWICE: Final = "{} targets come from several Prometheus (a replica label): each counts once; ask for deduplication"
TWO_JOBS: Final = "{} engines are scraped by two jobs: each counts once"
TWO_EXPORTERS: Final = "{} GPUs are told by two exporters: each counts once"
TWO_NAMES: Final = (
    "{} hosts have two names, such as {} and {}: each counts once; give all its targets one label of "
    "[prometheus].host_labels"
)
CUT_GPUS: Final = "the dcgm-exporter has more GPUs than gpumon reads"
OWN_DOWN: Final = "the Prometheus can not scrape this host's gpumon serve-metrics (up is 0): see its page /targets"


class _Host:
    """A machine while it is put together."""

    def __init__(self) -> None:
        self.gpus: dict[str, GpuReading] = {}
        self.engines: list[tuple[Target, Engine]] = []
        self.targets: list[Target] = []
        self.ready: Snapshot | None = None
        self.faults: dict[str, None] = {}


class Moment(Taking):
    """One use: `frame` takes in the answers and leaves in the memory what the next moment needs."""

    def __init__(self, answers: Answers, memory: Memory, models: Models, ladder: Sequence[str]) -> None:
        super().__init__(answers, memory, models, ladder)
        self._hosts: dict[Place, _Host] = {}
        self._texts: dict[str, None] = {}
        self._lasting: dict[str, float] = {}
        self._seats = Seats()
        self._twice = Counter[str]()
        self._gpus: set[str] = set()
        self._addresses: dict[str, set[str]] = {}

    def frame(self) -> FleetFrame:
        """All hosts, by name."""
        here, owns, found = self._take()
        self._join(owns, found)
        self._seat_gpus()
        self._seat_own(owns)
        for target, engine in found:
            self._seat(target, engine)
        self._say(here)
        return self._whole(here)

    def _place(self, target: Target, name: str) -> Place:
        return Place(self._cluster(target), name)

    def _cluster(self, target: Target) -> str:
        """Where there are several; one that some targets do not name tells nothing apart."""
        return target.labels.get(CLUSTER, "") if len(self._memory.clusters) > 1 else ""

    def _host(self, target: Target, name: str) -> _Host:
        place = self._memory.machines.of(self._place(target, name))
        host = self._hosts.setdefault(place, _Host())
        if not host.targets or host.targets[-1] is not target:
            host.targets.append(target)
        return host

    def _join(self, owns: Sequence[Own], found: Sequence[tuple[Target, Engine]]) -> None:
        """Find out which names are of one machine, before anything is put on a host."""
        machines, told = self._memory.machines, dict[Place, set[str]]()
        for target, exporter in self._exporters:
            for name, reading in exporter.gpus:
                if reading.uuid in exporter.here and not self._is_down(target):
                    told.setdefault(self._place(target, name), set()).add(reading.uuid)
        best = {self._place(target, name): ready for target, name, ready in owns if ready is not None}
        for place, ready in best.items():
            told.setdefault(place, set()).update(gpu.uuid for gpu in ready.gpus if gpu.uuid)
        self._renamed = machines.see(told, best)
        self._know_users(frozenset(chain(*told.values())))
        for target, name, _ in owns:
            self._know_address(target, name)
        clusters: dict[str, set[str]] = {}
        for place in (*told, *(self._place(target, self._name(target)) for target, _ in found)):
            clusters.setdefault(place.name, set()).add(place.cluster)
        for name, several in clusters.items():
            if len(several) == 2 and "" in several:
                machines.lend(Place("", name), Place(max(several), name))

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
                    host.gpus[reading.uuid] = reading
                    self._gpus.add(reading.uuid)
                if down and (counts or not host.gpus):
                    host.faults[exporters.DOWN] = None
                if exporter.cut:
                    host.faults[CUT_GPUS] = None
        for target in self._down:
            if job_of(target) in self._memory.exporter_jobs and target.key not in self._memory.exporters:
                host = self._host(target, self._name(target))
                host.faults |= {} if host.gpus else {exporters.DOWN: None}

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
        name = (self._seats.host(user) if user is not None else "") or host_of(target.labels, {}, self._ladder)
        near = self._addresses.get(name, set()) if name == without_port(target.instance) else set()
        return next(iter(near)) if len(near) == 1 else name

    def _of_cluster(self, user: User) -> User:
        """A GPU's user, as its engine's labels call it."""
        return user if len(self._memory.clusters) > 1 else user._replace(pod=user.pod._replace(cluster=""))

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
        for target, name, ready in owns:
            host = self._host(target, name)
            if ready is not None:
                host.ready = ready
            else:
                host.faults[OWN_DOWN] = None

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
        return TWO_NAMES.format(len(self._renamed), *(clean(place.name, 60) for place in first)) if first else ""

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
            user.pod for target, _ in host.engines if (user := user_of(target.labels, self._cluster(target)))
        )
        urls = Counter(engine.readings[0].url for _, engine in host.engines)
        for name, (target, engine) in zip(names, host.engines, strict=True):
            for reading in engine.readings:
                uuids, source = self._gpus_of(target, reading, gpus, (len(host.engines), pods))
                pod = f" {target.labels.get('pod', '')}" if urls[reading.url] > 1 else ""
                yield msgspec.structs.replace(
                    reading,
                    name=name + part_of_name(reading.part),
                    url=reading.url + pod.rstrip(),
                    gpus=uuids,
                    gpus_source=source,
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
        user = user_of(target.labels, self._cluster(target))
        if user is not None:
            uuids, source = self._seats.gpus(user, among[1][user.pod])
            here = {gpu.uuid for gpu in gpus}
            if uuids and here.issuperset(uuids):
                return uuids, source
            if not uuids and self._seats.host(user):
                return (), source
        return by_count(reading, among[0], gpus)


def _same(one: Target, other: Target) -> bool:
    """Whether two jobs scrape one engine: at one address with a port, and no pod's name says otherwise."""
    same_address = url_of(one) == url_of(other) and port_of(one.instance) != ""
    return same_address and job_of(one) != job_of(other) and same_pod(one.labels, other.labels)


def _shared(targets: Sequence[Target]) -> dict[str, str]:
    """Labels that all these targets have alike, but for those of a single one."""
    first, *others = targets
    return {
        clean(name, 80): clean(value, 120)
        for name, value in first.labels.items()
        if name not in ("job", "instance") and all(other.labels.get(name) == value for other in others)
    }

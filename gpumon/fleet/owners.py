"""Fleet rows per owner: the value of a label of the pods, the series or the host of GPUs and engines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

from gpumon.fleet.parts import Parts, RowEngine, RowGpu
from gpumon.fleet.row import FleetRow, fleet_row, verdicts_on
from gpumon.fleet.rows import counted_hosts_of, whole_gpus, worker_gpus_by_engine
from gpumon.fleet.snapshot import FleetSnapshot, HostShown, HostState
from gpumon.readings.frame import GpuProcess
from gpumon.readings.snapshot import Engine, Gpu, physical_gpus

NAMESPACE: Final = "namespace"
"""Label with the namespace of a pod."""
USER: Final = "user"
"""Label with the user of a process."""
OF_SCRAPED_PODS: Final = frozenset({NAMESPACE, "pod"})
"""Labels of the scraped pod that a Prometheus gives every target. On a host's label they tell no owner: all its targets
may have the namespace of its monitoring."""
_MOST_LABELS: Final = 4
"""Most labels that are offered without being named in the config: a key goes through all of them."""
_MOST_VALUES: Final = 200
"""A label with more values tells things apart, not owners."""
OWNER_SEPARATOR: Final = " + "
"""Stands between the names of several owners, or models, of one GPU."""


def unowned_row_name(label: str) -> str:
    """Name of the row of everything that lacks a label."""
    return f"no {label} label"


class _ThingsOfOwner(NamedTuple):
    """The things of one owner while they are collected."""

    hosts: dict[str, HostShown]
    gpus: list[RowGpu]
    engines: list[RowEngine]


def by_owner(snapshot: FleetSnapshot, label: str, prices: Mapping[str, float]) -> list[FleetRow]:
    """A row per value of a label, by name; the last one has the GPUs, engines and hosts without it.

    Every GPU and every engine is in one row, so that the rows add up to the fleet. A GPU of several owners is in a row
    that names them all.
    """
    counted_hosts = counted_hosts_of(snapshot)
    worker_gpus = chain.from_iterable(worker_gpus_by_engine(counted_hosts).values())
    workers_by_uuid = {row_gpu.gpu.reading.uuid: row_gpu for row_gpu in worker_gpus}
    owners_of_workers = _owners_of_workers(snapshot.hosts, label)
    by_name: dict[str, _ThingsOfOwner] = {}
    for counted_host in counted_hosts:
        owners = HostOwners(counted_host.shown, label, owners_of_workers)
        gpus = list(whole_gpus(counted_host))
        for row_gpu in gpus:
            things = _things_of_owner(by_name, owners.gpu(row_gpu.gpu), counted_host.shown)
            things.gpus.append(workers_by_uuid.get(row_gpu.gpu.reading.uuid, row_gpu))
        for row_engine in counted_host.engines:
            things = _things_of_owner(by_name, owners.engine(row_engine.engine), counted_host.shown)
            things.engines.append(row_engine)
        if not gpus and not counted_host.engines:  # the host is in a row all the same
            _things_of_owner(by_name, owners.of_host, counted_host.shown)
    rows = []
    for name in sorted(by_name, key=lambda name: (not name, name)):  # what nobody owns comes last
        things = by_name[name]
        parts = Parts(tuple(things.hosts.values()), tuple(things.gpus), tuple(things.engines), prices)
        rows.append(fleet_row(name, name or unowned_row_name(label), parts, verdicts_on(parts, with_hosts=True)))
    return rows


def _things_of_owner(by_name: dict[str, _ThingsOfOwner], name: str, host: HostShown) -> _ThingsOfOwner:
    """The things of an owner, to add some on this host to; the owner is added if it is new."""
    things = by_name.get(name)
    if things is None:
        things = _ThingsOfOwner({}, [], [])
        by_name[name] = things
    things.hosts[host.name] = host
    return things


def _owners_of_workers(hosts: Iterable[HostShown], label: str) -> dict[str, str]:
    """UUID of a GPU of a worker pod -> owner of its engine, which is on another host."""
    owners_of_workers = {}
    for host in hosts:
        if not host.worker_gpus:
            continue
        owners = HostOwners(host, label, owners_of_workers={})
        for engine in host.snapshot.engines:
            for uuid in host.worker_gpus.get(engine.key, ()):
                owners_of_workers[uuid] = owners.engine(engine)
    return owners_of_workers


class HostOwners:
    """Finds the owner of each GPU and engine of one host, by one label."""

    def __init__(self, host: HostShown, label: str, owners_of_workers: Mapping[str, str]) -> None:
        """`owners_of_workers`: UUID of a GPU of a worker pod -> owner of its engine, which is on another host."""
        self.of_host = ""
        """The owner of the whole host; empty where its labels name none."""
        if label not in OF_SCRAPED_PODS:
            self.of_host = host.labels.get(label, "")
        self._host = host
        self._label = label
        self._owners_of_workers = owners_of_workers
        self._owners_of_gpu: dict[int, set[str]] = {}
        """Index of a GPU -> the owners that its labels and those of its processes name. MIG slices share an index."""
        for gpu in host.snapshot.gpus:
            self._owners_of_gpu.setdefault(gpu.reading.index, set()).update(self._own_owners(gpu))
        self._engine_owners_on_gpu: dict[int, set[str]] = {}
        """Index of a GPU -> the owners of the engines on it."""
        for engine in host.snapshot.engines:
            owners = self._labelled_owners(engine.key)
            for index in engine.hardware.gpus:
                self._engine_owners_on_gpu.setdefault(index, set()).update(owners)

    def gpu(self, gpu: Gpu) -> str:
        """The owner of a GPU: by its own labels and processes, its engines, the host; empty where none is known."""
        owners = self._owners_of_gpu.get(gpu.reading.index) or self._engine_owners_on_gpu.get(gpu.reading.index)
        if owners:
            return OWNER_SEPARATOR.join(sorted(owners))
        return self._owners_of_workers.get(gpu.reading.uuid, "") or self.of_host

    def engine(self, engine: Engine) -> str:
        """The owner of an engine: by its own labels, its GPUs, the host; empty where none is known."""
        owners = set(self._labelled_owners(engine.key))
        if not owners:
            for index in engine.hardware.gpus:
                owners |= self._owners_of_gpu.get(index, set())
        if owners:
            return OWNER_SEPARATOR.join(sorted(owners))
        return self.of_host

    def all(self) -> set[str]:
        """The owners of all GPUs and engines here, an empty name among them where one has no owner."""
        names = {self.gpu(gpu) for gpu in physical_gpus(self._host.snapshot.gpus)}
        for engine in self._host.snapshot.engines:
            names.add(self.engine(engine))
        return names or {self.of_host}

    def _labelled_owners(self, thing: str) -> list[str]:
        """The owners of a thing (UUID of a GPU, key of an engine) by the labels of its pod and its series."""
        label = self._host.owners.get(thing, {}).get(self._label, "")
        return [owner for owner in label.split(OWNER_SEPARATOR) if owner]

    def _own_owners(self, gpu: Gpu) -> Iterator[str]:
        """The owners that a GPU's own labels name, else those of its processes."""
        labelled = self._labelled_owners(gpu.reading.uuid)
        if labelled:
            yield from labelled
            return
        for process in gpu.reading.processes:
            owner = _owner_of_process(process, self._label)
            if owner:
                yield owner


def _owner_of_process(process: GpuProcess, label: str) -> str:
    """The namespace of a process's pod, or its user; empty for other labels."""
    if label == NAMESPACE:
        namespace, slash, _ = process.pod_name.partition("/")
        if slash:
            return namespace
        return ""
    if label == USER:
        return process.user
    return ""


def owners_on(host: HostShown, label: str) -> set[str]:
    """The owners of what is on a host; an empty name among them where something has none."""
    return HostOwners(host, label, owners_of_workers={}).all()


def owner_labels(snapshot: FleetSnapshot, configured: Sequence[str] = ()) -> tuple[str, ...]:
    """The labels by which rows can be grouped: those that the config names, else those that group the fleet.

    A label groups it if it has several values, and each of them is on two things on average.
    """
    if configured:
        return tuple(dict.fromkeys(configured))
    labels = _labels_of_things(snapshot)
    grouping = []
    for label, values in labels.items():
        groups = 1 < len(values) <= _MOST_VALUES and 2 * len(values) <= values.total()
        if label == NAMESPACE or groups:
            grouping.append(label)
    grouping.sort(key=lambda label: (label != NAMESPACE, label))  # the namespace comes first
    return tuple(grouping[:_MOST_LABELS])


def _labels_of_things(snapshot: FleetSnapshot) -> dict[str, Counter[str]]:
    """Label -> its values, each with the number of hosts, GPUs and engines that have it."""
    labels: dict[str, Counter[str]] = {}
    for host in snapshot.hosts:
        if host.state is HostState.GONE:
            continue
        for label, value in _label_pairs(host):
            labels.setdefault(label, Counter())[value] += 1
    return labels


def _label_pairs(host: HostShown) -> Iterator[tuple[str, str]]:
    """Each label of a host and of what is on it, with its value."""
    for label, value in host.labels.items():
        if label not in OF_SCRAPED_PODS:
            yield label, value
    for labels in host.owners.values():
        yield from labels.items()
    for gpu in host.snapshot.gpus:
        for process in gpu.reading.processes:
            for label in (NAMESPACE, USER):
                value = _owner_of_process(process, label)
                if value:
                    yield label, value

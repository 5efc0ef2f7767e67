"""Fleet rows per owner: the value of a label of the pods, the series or the host of GPUs and engines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from gpumon.fleet.parts import Parts, RowEngine, RowGpu
from gpumon.fleet.rows import FleetRow, fleet_row, placed_gpus, verdicts_on, wholes_of, worker_gpus
from gpumon.fleet.snapshot import FleetSnapshot, HostShown, HostState
from gpumon.readings.snapshot import Engine, Gpu, Process

NAMESPACE: Final = "namespace"
USER: Final = "user"
OF_SCRAPED_PODS: Final = frozenset({NAMESPACE, "pod"})
"""Labels of the scraped pod that a Prometheus gives every target. On a host's label they tell no owner: all its targets
may have the namespace of its monitoring."""
_MOST_LABELS: Final = 4
"""Most labels that are offered without being named in the config: a key goes through all of them."""
_MOST_VALUES: Final = 200
"""A label with more values tells things apart, not owners."""
OWNER_SEPARATOR: Final = " + "
"""Stands between the names of several owners, or models, of one GPU."""


def unowned(label: str) -> str:
    """Name of the row of everything that lacks a label."""
    return f"no {label} label"


class _Owned(NamedTuple):
    """The things of one owner while they are collected."""

    hosts: dict[str, HostShown]
    gpus: list[RowGpu]
    engines: list[RowEngine]


def by_owner(snapshot: FleetSnapshot, label: str, prices: Mapping[str, float]) -> list[FleetRow]:
    """A row per value of a label, by name; the last one has the GPUs, engines and hosts without it.

    Every GPU and every engine is in one row, so that the rows add up to the fleet. A GPU of several owners is in a row
    that names them all.
    """
    wholes = wholes_of(snapshot)
    of_workers = _by_uuid(worker_gpus(wholes))
    lent = _owners_of_workers(snapshot.hosts, label)
    by_name: dict[str, _Owned] = {}
    for whole in wholes:
        owners = HostOwners(whole.shown, label, lent)
        gpus = list(placed_gpus(whole))
        for placed in gpus:
            owned = _things_of(by_name, owners.gpu(placed.gpu), whole.shown)
            owned.gpus.append(of_workers.get(placed.gpu.uuid, placed))
        for served in whole.served:
            owned = _things_of(by_name, owners.engine(served.engine), whole.shown)
            owned.engines.append(served)
        if not gpus and not whole.served:  # the host is in a row all the same
            _things_of(by_name, owners.of_host, whole.shown)
    rows = []
    for name in sorted(by_name, key=_unowned_last):
        owned = by_name[name]
        parts = Parts(tuple(owned.hosts.values()), tuple(owned.gpus), tuple(owned.engines), prices)
        rows.append(fleet_row(name, name or unowned(label), parts, verdicts_on(parts, with_hosts=True)))
    return rows


def _unowned_last(name: str) -> tuple[bool, str]:
    return (not name, name)


def _things_of(by_name: dict[str, _Owned], name: str, host: HostShown) -> _Owned:
    """The things of an owner, to add some on this host to; the owner is added if it is new."""
    owned = by_name.get(name)
    if owned is None:
        owned = _Owned({}, [], [])
        by_name[name] = owned
    owned.hosts[host.name] = host
    return owned


def _by_uuid(of_workers: Mapping[str, Sequence[RowGpu]]) -> dict[str, RowGpu]:
    """The GPUs of worker pods by UUID, with the MFU and MBU of their engines."""
    by_uuid = {}
    for workers in of_workers.values():
        for placed in workers:
            by_uuid[placed.gpu.uuid] = placed
    return by_uuid


def _owners_of_workers(hosts: Iterable[HostShown], label: str) -> dict[str, str]:
    """UUID of a GPU of a worker pod -> owner of its engine, which is on another host."""
    lent = {}
    for host in hosts:
        if not host.worker_gpus:
            continue
        owners = HostOwners(host, label, lent={})
        for engine in host.snapshot.engines:
            for uuid in host.worker_gpus.get(engine.key, ()):
                lent[uuid] = owners.engine(engine)
    return lent


class HostOwners:
    """Finds the owner of each GPU and engine of one host, by one label."""

    def __init__(self, host: HostShown, label: str, lent: Mapping[str, str]) -> None:
        """`lent`: UUID of a GPU of a worker pod -> owner of its engine, which is on another host."""
        self.of_host = ""
        """The owner of the whole host; empty where its labels name none."""
        if label not in OF_SCRAPED_PODS:
            self.of_host = host.labels.get(label, "")
        self._host = host
        self._label = label
        self._lent = lent
        self._owners_of_gpu: dict[int, set[str]] = {}
        """Index of a GPU -> the owners that its labels and those of its processes name. MIG slices share an index."""
        for gpu in host.snapshot.gpus:
            self._owners_of_gpu.setdefault(gpu.index, set()).update(self._own_owners(gpu))
        self._engine_owners_on_gpu: dict[int, set[str]] = {}
        """Index of a GPU -> the owners of the engines on it."""
        for engine in host.snapshot.engines:
            owners = self._labelled_owners(engine.key)
            for index in engine.hardware.gpus:
                self._engine_owners_on_gpu.setdefault(index, set()).update(owners)

    def gpu(self, gpu: Gpu) -> str:
        """The owner of a GPU: by its own labels and processes, its engines, the host; empty where none is known."""
        owners = self._owners_of_gpu.get(gpu.index) or self._engine_owners_on_gpu.get(gpu.index)
        if owners:
            return OWNER_SEPARATOR.join(sorted(owners))
        return self._lent.get(gpu.uuid, "") or self.of_host

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
        names = set()
        for gpu in self._host.snapshot.gpus:
            if not gpu.parent_uuid:
                names.add(self.gpu(gpu))
        for engine in self._host.snapshot.engines:
            names.add(self.engine(engine))
        return names or {self.of_host}

    def _labelled_owners(self, thing: str) -> list[str]:
        """The owners of a thing (UUID of a GPU, key of an engine) by the labels of its pod and its series."""
        label = self._host.owners.get(thing, {}).get(self._label, "")
        return [owner for owner in label.split(OWNER_SEPARATOR) if owner]

    def _own_owners(self, gpu: Gpu) -> Iterator[str]:
        """The owners that a GPU's own labels name, else those of its processes."""
        labelled = self._labelled_owners(gpu.uuid)
        if labelled:
            yield from labelled
            return
        for process in gpu.processes:
            owner = _owner_of_process(process, self._label)
            if owner:
                yield owner


def _owner_of_process(process: Process, label: str) -> str:
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
    return HostOwners(host, label, lent={}).all()


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
    grouping.sort(key=_namespace_first)
    return tuple(grouping[:_MOST_LABELS])


def _namespace_first(label: str) -> tuple[bool, str]:
    return (label != NAMESPACE, label)


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
    for owned in host.owners.values():
        yield from owned.items()
    for gpu in host.snapshot.gpus:
        for process in gpu.processes:
            for label in (NAMESPACE, USER):
                value = _owner_of_process(process, label)
                if value:
                    yield label, value

"""Rows per owner: whom GPUs and engines are for, by a label of their pods, their series or their host."""

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
"""Labels that a Prometheus gives every target by its pod: all targets of a host may have the namespace of its
monitoring, which owns no GPU."""
_MOST_LABELS: Final = 4
"""Most labels that are offered without being named in the config: a key goes through all of them."""
_MOST_VALUES: Final = 200
"""A label with more values tells things apart, not owners."""
BETWEEN: Final = " + "
"""Between the names of several owners of one GPU."""


def unowned(label: str) -> str:
    """Name of the row of all that has no such label."""
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
    owned: dict[str, _Owned] = {}
    for whole in wholes:
        owners = HostOwners(whole.shown, label, lent)
        has_things = False
        for placed in placed_gpus(whole):
            group = _group(owned, owners.gpu(placed.gpu), whole.shown)
            group.gpus.append(of_workers.get(placed.gpu.uuid, placed))
            has_things = True
        for served in whole.served:
            group = _group(owned, owners.engine(served.engine), whole.shown)
            group.engines.append(served)
            has_things = True
        if not has_things:
            _group(owned, owners.of_host, whole.shown)
    names = sorted(owned, key=_unowned_last)
    rows = []
    for name in names:
        group = owned[name]
        parts = Parts(tuple(group.hosts.values()), tuple(group.gpus), tuple(group.engines), prices)
        rows.append(fleet_row(name, name or unowned(label), parts, verdicts_on(parts, hosts=True)))
    return rows


def _unowned_last(name: str) -> tuple[bool, str]:
    return (not name, name)


def _group(owned: dict[str, _Owned], name: str, host: HostShown) -> _Owned:
    """The things of an owner, which has some on this host."""
    group = owned.get(name)
    if group is None:
        group = _Owned({}, [], [])
        owned[name] = group
    group.hosts[host.name] = host
    return group


def _by_uuid(of_workers: Mapping[str, Sequence[RowGpu]]) -> dict[str, RowGpu]:
    """The GPUs of worker pods, which do what their engine does."""
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
        owners = HostOwners(host, label, {})
        for engine in host.snapshot.engines:
            for uuid in host.worker_gpus.get(engine.key, ()):
                lent[uuid] = owners.engine(engine)
    return lent


class HostOwners:
    """The owners of the GPUs and engines of one host, by one label."""

    def __init__(self, host: HostShown, label: str, lent: Mapping[str, str]) -> None:
        """`lent`: owners of GPUs by the engines of other hosts, whose worker pods are here."""
        self.of_host = ""
        """The owner of the whole host; empty where its labels name none."""
        if label not in OF_SCRAPED_PODS:
            self.of_host = host.labels.get(label, "")
        self._host = host
        self._label = label
        self._lent = lent
        self._told: dict[int, dict[str, None]] = {}
        """Index of a GPU -> the owners that its labels and those of its processes name."""
        for gpu in host.snapshot.gpus:
            self._told.setdefault(gpu.index, {}).update(dict.fromkeys(self._told_of(gpu)))
        self._by_engine: dict[int, dict[str, None]] = {}
        """Index of a GPU -> the owners of the engines on it."""
        for engine in host.snapshot.engines:
            owners = dict.fromkeys(self._own_labels(engine.key))
            for index in engine.hardware.gpus:
                self._by_engine.setdefault(index, {}).update(owners)

    def gpu(self, gpu: Gpu) -> str:
        """The owner of a GPU: by its own labels and processes, its engines, the host; empty where none is known."""
        told = self._told.get(gpu.index) or self._by_engine.get(gpu.index)
        if told:
            return BETWEEN.join(sorted(told))
        return self._lent.get(gpu.uuid, "") or self.of_host

    def engine(self, engine: Engine) -> str:
        """The owner of an engine: by its own labels, its GPUs, the host; empty where none is known."""
        told = dict.fromkeys(self._own_labels(engine.key))
        if not told:
            for index in engine.hardware.gpus:
                told.update(self._told.get(index, {}))
        if told:
            return BETWEEN.join(sorted(told))
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

    def _own_labels(self, thing: str) -> list[str]:
        """The owners of a thing by its own series."""
        label = self._host.owners.get(thing, {}).get(self._label, "")
        return [owner for owner in label.split(BETWEEN) if owner]

    def _told_of(self, gpu: Gpu) -> Iterator[str]:
        """The owners that a GPU's own labels name, else its processes."""
        own = self._own_labels(gpu.uuid)
        if own:
            yield from own
            return
        for process in gpu.processes:
            owner = _owner_of_process(process, self._label)
            if owner:
                yield owner


def _owner_of_process(process: Process, label: str) -> str:
    """The namespace of a process's pod, or its user; empty for other labels."""
    if label == NAMESPACE:
        namespace, slash, _ = process.pod_name.partition("/")
        return namespace if slash else ""
    if label == USER:
        return process.user
    return ""


def owners_on(host: HostShown, label: str) -> set[str]:
    """The owners of what is on a host; an empty name among them where something has none."""
    return HostOwners(host, label, {}).all()


def owner_labels(snapshot: FleetSnapshot, wanted: Sequence[str] = ()) -> tuple[str, ...]:
    """The labels that rows can go by: those that the config names, else those that group the fleet."""
    if wanted:
        return tuple(dict.fromkeys(wanted))
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

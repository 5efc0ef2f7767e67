"""Which machine each target of a moment is of, and the name under which that machine is shown."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

from gpumon.readings.fleet import LabelsLine
from gpumon.readings.frame import GpuReading
from gpumon.readings.snapshot import Snapshot
from gpumon.readings.text import clean
from gpumon.sources.prometheus.contents import Contents, OwnGpumon, ScrapedExporter
from gpumon.sources.prometheus.engine_gpus import PodGpus
from gpumon.sources.prometheus.hosts import INSTANCE, HostLabels, User, host_of, user_of, without_port
from gpumon.sources.prometheus.machine_names import MachineId
from gpumon.sources.prometheus.memory import Memory, Proposal
from gpumon.sources.prometheus.spelling import telling_labels, to_add
from gpumon.sources.prometheus.targets import LabelPairs, Target

ONE_NAME: Final = (
    "{} machines are called {}: their GPUs have the same indices, so each is a host of its own; give them different "
    "labels of [prometheus].host_labels or cluster_labels"
)
TWO_NAMES: Final = (
    "{} hosts have two names, such as {} and {}: each counts once; give all its targets one label of "
    "[prometheus].host_labels"
)
_SCRAPE_LABELS: Final = ("job", "instance", "pod")
"""Labels of the exporter, not of its machine."""

SeparatedNames = Mapping[MachineId, Mapping[LabelPairs, str]]
"""Name that several machines have -> the exporter of each of them -> the name of its machine."""


class MachineNaming:
    """Finds the machine of a target, by its labels and by what the memory knows of names."""

    def __init__(self, memory: Memory, labels: HostLabels, separated: SeparatedNames) -> None:
        self._memory = memory
        self._labels = labels
        self._separated = separated

    def cluster(self, target: Target) -> str:
        """Cluster of a target; empty while there is but one, which some targets may not name."""
        if len(self._memory.clusters) > 1:
            return self._labels.cluster(target.labels)
        return ""

    def user(self, target: Target) -> User | None:
        """The pod of a target; None where its labels name none."""
        return user_of(target.labels, self.cluster(target))

    def id_of(self, target: Target, name: str) -> MachineId:
        """The machine of a target, which labels call `name`.

        Of several machines of one name it is the one whose exporter has most labels in common with the target.
        """
        by_name = MachineId(self.cluster(target), name)
        names = self._separated.get(by_name)
        if not names:
            return by_name
        labels = set(target.key)
        nearest = max(names, key=lambda exporter: (exporter == target.key, len(labels & set(exporter)), exporter))
        return by_name._replace(name=names[nearest])

    def shown(self, target: Target, name: str) -> MachineId:
        """The machine of a target, which labels call `name`, under the name that is shown."""
        return self._memory.machines.shown_id(self.id_of(target, name))

    def label_name(self, target: Target) -> str:
        """Name of a target's machine by its labels alone."""
        return host_of(target.labels, {}, self._labels.hosts)

    def is_named(self, target: Target) -> bool:
        """Whether a label other than its address names a target's machine."""
        return any(target.labels.get(label, "").strip() for label in self._labels.hosts if label != INSTANCE)


class Naming(NamedTuple):
    """The machines of one moment."""

    machines: MachineNaming
    pod_gpus: PodGpus
    addresses: Mapping[str, Collection[str]]
    """Address of an exporter or a gpumon -> names of the machines there."""
    notices: Sequence[Proposal]
    """Notices about names, for the user, some with a line of the config."""
    two_names: str
    """Notice of machines that have two names; empty where there are none."""
    memory: Memory

    def host(self, target: Target) -> str:
        """Host of an engine: that of its pod's GPUs, else by its labels; by its address where that is another's."""
        name = self._pod_host(target) or self.machines.label_name(target)
        if name != without_port(target.instance):
            return name
        names_there = self.addresses.get(name, ())
        if len(names_there) == 1:
            return next(iter(names_there))
        return name

    def _pod_host(self, target: Target) -> str:
        """Host of the GPUs of a target's pod. A pod stays where it runs while its exporter pauses."""
        user = self.machines.user(target)
        if user is None:
            return ""
        host = self.pod_gpus.host(user)
        if not host:
            return self.memory.pods.get(user.pod, "")
        self.memory.pods[user.pod] = host
        return host


def name_machines(contents: Contents, memory: Memory, labels: HostLabels) -> Naming:
    """Find out which names are of one machine, before anything is put on a machine. The memory keeps what was found."""
    separated = _separate_names(contents.exporters, MachineNaming(memory, labels, {}))
    machines = MachineNaming(memory, labels, separated)
    snapshots = _snapshots_by_machine(contents.own_gpumons, machines)
    uuids = _uuids_by_machine(contents.exporters, snapshots, machines)
    renamed = memory.machines.learn(uuids, snapshots)
    naming = Naming(
        machines=machines,
        pod_gpus=_read_pod_gpus(contents.exporters, frozenset(chain(*uuids.values())), machines, memory),
        addresses=_addresses(contents, machines),
        notices=_one_name_notices(separated, labels.clusters),
        two_names=_two_names_notice(renamed),
        memory=memory,
    )
    engine_ids = [machines.id_of(target, naming.host(target)) for target, _ in contents.engines]
    _lend_clusters((*uuids, *engine_ids), memory)
    _join_spellings(uuids, engine_ids, memory)
    return naming


def _separate_names(exporters: Sequence[ScrapedExporter], machines: MachineNaming) -> SeparatedNames:
    """Names that several machines have: their exporters tell different GPUs of one index under it."""
    separated: dict[MachineId, dict[LabelPairs, str]] = {}
    for machine_id, by_index in _exporters_by_index(exporters, machines).items():
        clashing = _clashing_exporters(by_index.values())
        if len(clashing) > 1:
            names: dict[LabelPairs, str] = {}
            separated[machine_id] = names
            for target in clashing:
                names[target.key] = f"{machine_id.name}@{_distinction(target, clashing)}"
    return separated


def _clashing_exporters(gpus_by_index: Iterable[Mapping[str, Target]]) -> list[Target]:
    """Exporters that tell different GPUs of one index."""
    clashing: dict[LabelPairs, Target] = {}
    for exporter_by_uuid in gpus_by_index:
        if len(exporter_by_uuid) > 1:
            for target in exporter_by_uuid.values():
                clashing[target.key] = target
    return list(clashing.values())


def _exporters_by_index(
    exporters: Sequence[ScrapedExporter], machines: MachineNaming
) -> dict[MachineId, dict[int, dict[str, Target]]]:
    """Machine -> index -> UUIDs of the GPUs that exporters tell under it, each with the exporter."""
    indices: dict[MachineId, dict[int, dict[str, Target]]] = {}
    for scraped in exporters:
        for name, gpu in _gpus_on_page(scraped):
            if not gpu.parent_uuid:
                machine_id = machines.id_of(scraped.target, name)
                by_index = indices.setdefault(machine_id, {})
                by_index.setdefault(gpu.index, {})[gpu.uuid] = scraped.target
    return indices


def _gpus_on_page(scraped: ScrapedExporter) -> list[tuple[str, GpuReading]]:
    """GPUs on the newest page of an exporter that answers, each with its host's name."""
    if scraped.down:
        return []
    uuids = scraped.exporter.uuids_on_page
    return [(name, gpu) for name, gpu in scraped.exporter.gpus if gpu.uuid in uuids]


def _distinction(target: Target, exporters: Sequence[Target]) -> str:
    """Value by which one of these exporters differs from all others: that of the first such label, else its address."""
    for label, value in target.labels.items():
        if label in _SCRAPE_LABELS:
            continue
        values = {exporter.labels.get(label) for exporter in exporters}
        if len(values) == len(exporters):
            return value
    return target.instance


def _snapshots_by_machine(own_gpumons: Sequence[OwnGpumon], machines: MachineNaming) -> dict[MachineId, Snapshot]:
    """Machine -> what its own gpumon exports."""
    return {
        machines.id_of(own_gpumon.target, own_gpumon.host): own_gpumon.snapshot
        for own_gpumon in own_gpumons
        if own_gpumon.snapshot is not None
    }


def _uuids_by_machine(
    exporters: Sequence[ScrapedExporter], snapshots: Mapping[MachineId, Snapshot], machines: MachineNaming
) -> dict[MachineId, set[str]]:
    """Machine -> UUIDs of the GPUs that are told of it now."""
    uuids: dict[MachineId, set[str]] = {}
    for scraped in exporters:
        for name, gpu in _gpus_on_page(scraped):
            uuids.setdefault(machines.id_of(scraped.target, name), set()).add(gpu.uuid)
    for machine_id, snapshot in snapshots.items():
        uuids.setdefault(machine_id, set()).update(gpu.reading.uuid for gpu in snapshot.gpus if gpu.reading.uuid)
    return uuids


def _read_pod_gpus(
    exporters: Sequence[ScrapedExporter], present: Collection[str], machines: MachineNaming, memory: Memory
) -> PodGpus:
    """The pods that use each GPU; an exporter that is down counts only for GPUs that no other tells of."""
    pod_gpus = PodGpus()
    for target, exporter, down in exporters:
        for name, gpu in exporter.gpus:
            users = exporter.users.get(gpu.uuid, ())
            if not users or (down and gpu.uuid in present):
                continue
            host = machines.shown(target, name).name
            for user in users:
                pod_gpus.note(_engine_user(user, memory), host, gpu.uuid)
    return pod_gpus


def _engine_user(user: User, memory: Memory) -> User:
    """A GPU's user, as its engine's labels call it."""
    if len(memory.clusters) > 1:
        return user
    return user._replace(pod=user.pod._replace(cluster=""))


def _addresses(contents: Contents, machines: MachineNaming) -> dict[str, set[str]]:
    """Address of an exporter or a gpumon -> names under which the machines there are shown."""
    names = [
        (target, name) for target, exporter, _ in contents.exporters for name in {name for name, _ in exporter.gpus}
    ]
    for own_gpumon in contents.own_gpumons:
        names.append((own_gpumon.target, own_gpumon.host))
    addresses: dict[str, set[str]] = {}
    for target, name in names:
        address = without_port(target.instance)
        addresses.setdefault(address, set()).add(machines.shown(target, name).name)
    return addresses


def _lend_clusters(ids: Iterable[MachineId], memory: Memory) -> None:
    """Take a machine that some targets name without a cluster for the one of that name in a cluster."""
    clusters_by_name: dict[str, set[str]] = {}
    for machine_id in ids:
        clusters_by_name.setdefault(machine_id.name, set()).add(machine_id.cluster)
    for name, clusters in clusters_by_name.items():
        named_clusters = clusters - {""}
        if "" in clusters and len(named_clusters) == 1:
            memory.machines.show_under(MachineId("", name), MachineId(named_clusters.pop(), name))


def _join_spellings(gpu_ids: Collection[MachineId], engine_ids: Iterable[MachineId], memory: Memory) -> None:
    """Take a machine of engines for the one with GPUs whose name differs in case alone, or by a domain on one side."""
    by_short_name: dict[tuple[str, str], set[MachineId]] = {}
    for machine_id in gpu_ids:
        by_short_name.setdefault(_short_name(machine_id), set()).add(machine_id)
    for engine_id in engine_ids:
        if engine_id in gpu_ids:
            continue
        alike = [other for other in by_short_name.get(_short_name(engine_id), ()) if _is_one_spelling(engine_id, other)]
        if len(alike) == 1:
            memory.machines.show_under(engine_id, alike[0])


def _short_name(machine_id: MachineId) -> tuple[str, str]:
    """Cluster and first part of a machine's name, in lower case; of an address the whole."""
    name = machine_id.name.lower()
    if ":" in name or name.replace(".", "").isdecimal():
        return machine_id.cluster, name
    return machine_id.cluster, name.partition(".")[0]


def _is_one_spelling(machine_id: MachineId, other: MachineId) -> bool:
    """Whether two names with one first part may be of one machine: one of them names no domain, or both the same."""
    name = machine_id.name.lower()
    other_name = other.name.lower()
    return name == other_name or "." not in name or "." not in other_name


def _one_name_notices(separated: SeparatedNames, cluster_labels: Sequence[str]) -> list[Proposal]:
    """The notices of machines that have one name, with the line that tells them apart where a label does."""
    notices = []
    for machine_id, names in separated.items():
        notice = ONE_NAME.format(len(names), clean(machine_id.name, 60))
        telling = telling_labels([dict(key) for key in names])
        line = None
        if telling:
            line = LabelsLine("cluster_labels", (telling[0], *cluster_labels))
            notice += f"; {to_add(line)}"
        notices.append(Proposal(notice, line))
    return notices


def _two_names_notice(renamed: Sequence[tuple[MachineId, MachineId]]) -> str:
    """The notice of machines that have two names."""
    if not renamed:
        return ""
    alias, shown = renamed[0]
    return TWO_NAMES.format(len(renamed), clean(alias.name, 60), clean(shown.name, 60))

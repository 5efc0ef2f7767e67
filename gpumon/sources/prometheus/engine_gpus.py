"""Finds the GPUs of an engine, or their number, for the fleet's screen and `gpumon rules` alike.

Sources, the surest first: the config's [[endpoint]]; the pods that dcgm-exporters name, with worker pods of a
multi-node engine; the number of GPUs that one engine takes (config, its own page, other engines of the model), where
so many are; the GPUs of its host that hold memory. GPUs that cannot hold the model's weights are never the answer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import chain
from typing import Final, NamedTuple

from gpumon.config.schema import Endpoint
from gpumon.efficiency.peaks import gpu_facts
from gpumon.readings.frame import EngineReading, GpuReading
from gpumon.readings.missing import Missing
from gpumon.sources.attachment import BY_CONFIG, gpus_by_index
from gpumon.sources.packaged import gpu_catalogue
from gpumon.sources.prometheus.hosts import Pod, User

FROM_POD: Final = "pod (as the dcgm-exporter says)"
BY_VISIBLE: Final = "CUDA_VISIBLE_DEVICES, a label of its target"
FROM_WORKERS: Final = "pod and its worker pods (as the dcgm-exporter says)"
FROM_COUNT: Final = "the only engine of its host, and it takes all GPUs"
FROM_MEMORY: Final = "the only engine of its host, and these GPUs hold memory"
SHARE_OF: Final = "{} GPUs per engine ({}); not known which of its host's"
NO_POD: Final = (
    "no label says on which GPUs it runs: let the dcgm-exporter name pods (DCGM_EXPORTER_KUBERNETES), give this "
    "engine's address as [[endpoint]] with gpus = [..], or its model in [prometheus] gpus_per_engine"
)
_NO_GPU: Final = (
    "no GPU is under the name of its host: is its dcgm-exporter scraped, and up? Give both targets the same label "
    "'node' (see host_labels), or give gpu_type and gpu_count in [[endpoint]]"
)
SHARED_POD: Final = (
    "several engines run in its pod and share its GPUs as far as labels tell: relabel each one's CUDA_VISIBLE_DEVICES "
    "as a label of its target, or give its address as [[endpoint]] with gpus = [..]"
)
_TOO_LARGE: Final = (
    "its weights take {:.0f} GB, and the {} that labels give it have {:.0f}: has it worker pods? Give its model in "
    "[prometheus] gpus_per_engine, or gpu_type and gpu_count in [[endpoint]]"
)
_LEAST_HELD_RATIO: Final = 0.3
"""Share of a GPU's memory in use from which an engine, and no stray process, holds it."""
_WORKERS_OF: Final = (
    (re.compile(r"(.+)-head-[a-z0-9-]+"), r"{}-(.+-)?worker-.+"),  # KubeRay
    (re.compile(r"(.+-\d+)"), r"{}-\d+"),  # LeaderWorkerSet
)
"""Pattern of a leader pod's name, and of the names of its worker pods; {} is the group of the first."""


class GpuAssignment(NamedTuple):
    """The GPUs of an engine, as far as they are known."""

    uuids: tuple[str, ...] = ()
    """UUIDs of the GPUs that are known one by one."""
    source: str = ""
    """How the GPUs are known, or why they are not."""
    number: int = 0
    """Number of all its GPUs if `uuids` lacks some (they are on other hosts, or it is not known which); else 0."""
    gpu_type: str = ""
    """Catalogue name of the GPUs in `number`."""
    workers: tuple[str, ...] = ()
    """UUIDs of the GPUs of its worker pods; they are counted in `number`."""

    @property
    def gpus(self) -> int:
        """Number of GPUs; 0 where that is not known."""
        return max(len(self.uuids), self.number)


class PodGpus:
    """The GPUs that each pod uses, by the labels of dcgm-exporters."""

    def __init__(self) -> None:
        self._hosts: dict[Pod, dict[str, None]] = {}
        """Pod -> hosts of its GPUs."""
        self._gpus: dict[User, dict[str, None]] = {}
        """Pod and container -> UUIDs of its GPUs."""
        self._containers: dict[Pod, set[str]] = {}
        """Pod -> its containers that have GPUs."""

    def note(self, user: User, host: str, uuid: str) -> None:
        """Note a GPU that a pod uses, and the host of that GPU."""
        self._hosts.setdefault(user.pod, {})[host] = None
        self._gpus.setdefault(user, {})[uuid] = None
        self._containers.setdefault(user.pod, set()).add(user.container)

    def host(self, user: User) -> str:
        """Host of a pod's GPUs; empty where it has none, or GPUs of several."""
        hosts = self._hosts.get(user.pod, {})
        if len(hosts) == 1:
            return next(iter(hosts))
        return ""

    def gpus(self, user: User, engines: Counter[User]) -> tuple[tuple[str, ...], str]:
        """UUIDs of the GPUs of an engine's container, else of its pod, and how they are known; empty, and why.

        GPUs that several engines of the container or pod may have are given with `SHARED_POD`. `engines`: number of
        engines by pod and container.
        """
        containers = self._containers.get(user.pod, set())
        if not containers:
            return (), NO_POD
        in_pod = sum(count for other, count in engines.items() if other.pod == user.pod)
        if user.container and user.container in containers:
            return tuple(self._gpus[user]), FROM_POD if engines[user] == 1 else SHARED_POD
        return self._gpus_of_pod(user.pod), FROM_POD if in_pod == 1 else SHARED_POD

    def gpus_of_workers(self, leader: Pod, engines_by_pod: Mapping[Pod, int]) -> tuple[str, ...]:
        """UUIDs of the GPUs of a multi-node engine's worker pods: those of its name that serve nothing themselves."""
        for leader_name, worker_name in _WORKERS_OF:
            match = leader_name.fullmatch(leader.name)
            if match is None:
                continue
            pattern = re.compile(worker_name.format(re.escape(match[1])))
            pods = self._worker_pods(leader, pattern, engines_by_pod)
            if pods:
                uuids = chain.from_iterable(map(self._gpus_of_pod, sorted(pods)))
                return tuple(dict.fromkeys(uuids))
        return ()

    def _worker_pods(self, leader: Pod, name: re.Pattern[str], engines_by_pod: Mapping[Pod, int]) -> list[Pod]:
        """Pods in the leader's cluster and namespace whose names match, and that serve nothing themselves."""
        pods = []
        for pod in self._containers:
            is_beside = (pod.cluster, pod.namespace) == (leader.cluster, leader.namespace) and pod != leader
            if is_beside and name.fullmatch(pod.name) and not engines_by_pod.get(pod):
                pods.append(pod)
        return pods

    def _gpus_of_pod(self, pod: Pod) -> tuple[str, ...]:
        """UUIDs of the GPUs of all containers of a pod."""
        containers = sorted(self._containers[pod])
        return tuple(dict.fromkeys(uuid for container in containers for uuid in self._gpus[User(pod, container)]))


class HostedEngine(NamedTuple):
    """An engine of a host, with the facts that its GPUs are found by."""

    reading: EngineReading
    endpoint: Endpoint
    """Its entry in the config."""
    user: User | None
    """The pod and container of its target; None where no label tells it."""
    visible: str = ""
    """Its CUDA_VISIBLE_DEVICES, where a label of its target has them. Text from outside."""


class EngineGpus:
    """Finds the GPUs of all engines of a frame: `by_labels` for every host first, as `by_number` learns from it."""

    def __init__(self, pod_gpus: PodGpus, sizes: Mapping[str, int], users: Iterable[User]) -> None:
        """`sizes`: glob of a model's name -> GPUs of one engine; `users`: pod and container of each engine."""
        self._pod_gpus = pod_gpus
        self._configured_sizes = sizes
        self._engines = Counter(users)
        self._engines_by_pod = Counter(user.pod for user in self._engines.elements())
        self._learned: dict[str, Counter[int]] = {}
        """Model -> GPUs of an engine -> how many of its engines have so many."""

    def by_labels(
        self, engine: HostedEngine, gpus: Sequence[GpuReading], all_gpus: Mapping[str, GpuReading]
    ) -> GpuAssignment:
        """The GPUs of an engine by the config and by pods.

        `gpus` are those of its host, `all_gpus` those of the whole fleet by UUID.
        """
        endpoint = engine.endpoint
        if endpoint.gpus != "auto":
            return self._learn(engine, GpuAssignment(*gpus_by_index(endpoint.gpus, gpus)))
        if endpoint.gpu_type:
            assignment = GpuAssignment(source=BY_CONFIG, number=endpoint.gpu_count, gpu_type=endpoint.gpu_type)
            return self._learn(engine, assignment)
        if not gpus:
            return GpuAssignment(source=_NO_GPU)
        return self._by_user(engine, gpus, all_gpus)

    def _by_user(
        self, engine: HostedEngine, gpus: Sequence[GpuReading], all_gpus: Mapping[str, GpuReading]
    ) -> GpuAssignment:
        """The GPUs of an engine's pod and container; where no label tells them, those that CUDA shows to it."""
        whole_gpus = [gpu for gpu in gpus if not gpu.parent_uuid]
        if engine.user is None:
            return _visible_gpus(engine, whole_gpus, NO_POD)
        uuids, why = self._pod_gpus.gpus(engine.user, self._engines)
        if why == SHARED_POD:
            return _visible_gpus(engine, [all_gpus[uuid] for uuid in uuids if uuid in all_gpus], why)
        if not uuids:
            return _visible_gpus(engine, whole_gpus, why)
        if not {gpu.uuid for gpu in gpus}.issuperset(uuids):
            return GpuAssignment(source=NO_POD)
        return self._by_pod(engine, engine.user.pod, uuids, all_gpus)

    def _by_pod(
        self, engine: HostedEngine, pod: Pod, uuids: tuple[str, ...], all_gpus: Mapping[str, GpuReading]
    ) -> GpuAssignment:
        """The GPUs of a pod, with those of its worker pods on other hosts, unless the weights are not on so many."""
        if self._engines_by_pod[pod] == 1:
            workers = self._pod_gpus.gpus_of_workers(pod, self._engines_by_pod)
        else:
            workers = ()
        gpus = [all_gpus[uuid] for uuid in (*uuids, *workers) if uuid in all_gpus]
        assignment = GpuAssignment(uuids, FROM_POD)
        if workers:
            number = len({*uuids, *workers})
            assignment = GpuAssignment(uuids, FROM_WORKERS, number, gpu_type=_common_type(gpus), workers=workers)
        size = self._configured_size(engine.reading)
        if size > assignment.gpus:
            gpu_type = _common_type([all_gpus[uuid] for uuid in uuids])
            assignment = GpuAssignment(uuids, "[prometheus] gpus_per_engine", size, gpu_type)
        fault = _too_large_text(engine.reading, gpus, assignment.gpus)
        if fault:
            return GpuAssignment(source=fault)
        return self._learn(engine, assignment)

    def by_number(
        self, engines: Sequence[HostedEngine], assignments: Sequence[GpuAssignment], gpus: Sequence[GpuReading]
    ) -> list[GpuAssignment]:
        """The GPUs of a host's engines, now also of those that labels tell nothing of: by the number of GPUs.

        `assignments` are those by labels, in the order of the engines; `gpus` are those of the host.
        """
        results = list(assignments)
        unknown_indices = [
            index for index, assignment in enumerate(assignments) if assignment.source in (NO_POD, SHARED_POD, _NO_GPU)
        ]
        used = {uuid for assignment in assignments for uuid in assignment.uuids}
        free = [gpu for gpu in gpus if gpu.uuid not in used and not gpu.parent_uuid]
        if not unknown_indices or not free or any(gpu.mig for gpu in gpus):
            return results
        readings = [engines[index].reading for index in unknown_indices]
        # There may be no assignment for any: then all stay as they are.
        for index, assignment in zip(unknown_indices, self._by_free_gpus(readings, free), strict=False):
            results[index] = assignment
        return results

    def _by_free_gpus(self, readings: Sequence[EngineReading], free: Sequence[GpuReading]) -> list[GpuAssignment]:
        """The assignments of engines that labels tell nothing of; none where nothing else tells of them either."""
        if len(readings) == 1:
            assignment = self._only_engine(readings[0], free)
            if assignment is not None:
                return [assignment]
        return self._share_free_gpus(readings, free)

    def _only_engine(self, reading: EngineReading, free: Sequence[GpuReading]) -> GpuAssignment | None:
        """The GPUs of the only engine that labels tell nothing of; None where they are not known.

        They are known if it takes all free GPUs, or all of those whose memory is in use.
        """
        size, _ = self._engine_size(reading)
        in_use = [gpu for gpu in free if _is_in_use(gpu)]
        if size:
            for gpus in (free, in_use):
                if size == len(gpus):
                    return _assign(reading, gpus, FROM_COUNT)
            return None
        if in_use and reading.llm is not None:
            return _assign(reading, in_use, FROM_MEMORY)
        return None

    def _share_free_gpus(self, readings: Sequence[EngineReading], free: Sequence[GpuReading]) -> list[GpuAssignment]:
        """The number of free GPUs that each of these engines has; empty where that of one engine is not known."""
        assignments: list[GpuAssignment] = []
        total = 0
        for reading in readings:
            size, size_source = self._engine_size(reading)
            if not size:
                return []
            total += size
            source = SHARE_OF.format(size, size_source)
            assignment = GpuAssignment(source=source, number=size, gpu_type=_common_type(free))
            assignments.append(_unless_too_large(reading, assignment, free[:size]))
        if total > len(free):
            return []
        return assignments

    def sizes(self) -> Mapping[str, Mapping[int, int]]:
        """Model -> GPUs of an engine -> how many of its engines have so many."""
        return self._learned

    def _learn(self, engine: HostedEngine, assignment: GpuAssignment) -> GpuAssignment:
        """Note how many GPUs an engine of this model has; returns the assignment. Slices tell nothing of that."""
        if assignment.gpus and engine.reading.model and not any(uuid.startswith("MIG-") for uuid in assignment.uuids):
            self._learned.setdefault(engine.reading.model, Counter())[assignment.gpus] += 1
        return assignment

    def _configured_size(self, reading: EngineReading) -> int:
        """Number of GPUs of one engine of this model by the config; 0 where it does not say."""
        for glob, size in self._configured_sizes.items():
            if fnmatchcase(reading.model, glob):
                return size
        return 0

    def _engine_size(self, reading: EngineReading) -> tuple[int, str]:
        """Number of GPUs of one engine, and who says so; 0 where nobody does."""
        size = self._configured_size(reading)
        if size:
            return size, "[prometheus] gpus_per_engine"
        ranks = reading.tp * (reading.pp or 1) * (reading.dp or 1)
        if ranks:
            return ranks, "its own page"
        learned = self._learned.get(reading.model)
        if learned and len(learned) == 1:
            return next(iter(learned)), "other engines of its model"
        return 0, ""


def _visible_gpus(engine: HostedEngine, gpus: Sequence[GpuReading], otherwise: str) -> GpuAssignment:
    """The GPUs that a label with CUDA_VISIBLE_DEVICES picks of these, by number or UUID; else none, for that reason."""
    in_order = sorted(gpus, key=lambda gpu: gpu.index)
    uuids = []
    for word in filter(None, map(str.strip, engine.visible.split(","))):
        if word.isdecimal() and len(word) < 4 and int(word) < len(in_order):
            uuids.append(in_order[int(word)].uuid)
        elif any(gpu.uuid == word for gpu in in_order):
            uuids.append(word)
        else:
            return GpuAssignment(source=otherwise)
    return GpuAssignment(tuple(uuids), BY_VISIBLE if uuids else otherwise)


def _is_in_use(gpu: GpuReading) -> bool:
    """Whether much of a GPU's memory is in use."""
    used = gpu.vram_used_bytes
    total = gpu.vram_total_bytes
    return not isinstance(used, Missing) and not isinstance(total, Missing) and used > _LEAST_HELD_RATIO * total


def _assign(reading: EngineReading, gpus: Sequence[GpuReading], source: str) -> GpuAssignment:
    """The assignment of these GPUs, if they hold the model's weights."""
    uuids = tuple(gpu.uuid for gpu in gpus)
    return _unless_too_large(reading, GpuAssignment(uuids, source), gpus)


def _unless_too_large(reading: EngineReading, assignment: GpuAssignment, gpus: Sequence[GpuReading]) -> GpuAssignment:
    """The assignment; none where the GPUs do not hold the model's weights, or their type is not known."""
    fault = _too_large_text(reading, gpus, assignment.gpus)
    if fault or (assignment.number and not assignment.gpu_type):
        return GpuAssignment(source=fault)
    return assignment


def _too_large_text(reading: EngineReading, gpus: Sequence[GpuReading], count: int) -> str:
    """Why the model's weights cannot be on `count` GPUs, of which `gpus` are some; empty where they may be."""
    llm = reading.llm
    sizes_bytes = [gpu.vram_total_bytes for gpu in gpus if not isinstance(gpu.vram_total_bytes, Missing)]
    if llm is None or len(sizes_bytes) < len(gpus) or not sizes_bytes:
        return ""
    mean_bytes = sum(sizes_bytes) / len(sizes_bytes)
    room_bytes = mean_bytes * max(count, len(sizes_bytes))
    weights_bytes = llm.stored_bytes or llm.read_bytes
    if weights_bytes <= room_bytes:
        return ""
    gpus_text = "1 GPU" if count == 1 else f"{count} GPUs"
    return _TOO_LARGE.format(weights_bytes / 1e9, gpus_text, room_bytes / 1e9)


def _common_type(gpus: Sequence[GpuReading]) -> str:
    """Catalogue name of these GPUs where they are of one listed type; else empty."""
    names = {gpu.name for gpu in gpus}
    spec = gpu_catalogue().match(gpu_facts(gpus[0])) if len(names) == 1 else None
    if spec is not None and spec.listed:
        return spec.name
    return ""

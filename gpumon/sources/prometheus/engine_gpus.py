"""On which GPUs an engine runs, or how many it has: the one answer of the fleet's screen and of `gpumon rules`.

From the surest on: the config's [[endpoint]]; the pods that dcgm-exporters name, with worker pods of a multi-node
engine; the number of GPUs that one engine takes (config, its own page, other engines of the model), where so many are;
the GPUs of its host that hold memory. What does not hold the model's weights is no answer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import chain
from typing import Final, NamedTuple

from gpumon.config.schema import Endpoint
from gpumon.efficiency.peaks import gpu_facts
from gpumon.readings.frame import EngineReading, GpuReading
from gpumon.readings.missing import Missing
from gpumon.sources.packaged import gpu_catalogue
from gpumon.sources.prometheus.hosts import Pod, User

BY_CONFIG: Final = "config"
FROM_POD: Final = "pod (as the dcgm-exporter says)"
FROM_WORKERS: Final = "pod and its worker pods (as the dcgm-exporter says)"
FROM_COUNT: Final = "the only engine of its host, and it takes all GPUs"
FROM_MEMORY: Final = "the only engine of its host, and these GPUs hold memory"
SHARE_OF: Final = "{} GPUs per engine ({}); not known which of its host's"
NO_POD: Final = (
    "no label says on which GPUs it runs: let the dcgm-exporter name pods (DCGM_EXPORTER_KUBERNETES), give this "
    "engine's address as [[endpoint]] with gpus = [..], or its model in [prometheus] gpus_per_engine"
)
_NO_GPU: Final = (
    "no GPU is under the name of its host: scrape its dcgm-exporter, give both targets the same label 'node' (see "
    "host_labels), or give gpu_type and gpu_count in [[endpoint]]"
)
SHARED_POD: Final = "several engines run in its pod, and no label says which GPUs are whose"
_TOO_LARGE: Final = (
    "its weights take {:.0f} GB, and the {} that labels give it have {:.0f}: has it worker pods? Give its model in "
    "[prometheus] gpus_per_engine, or gpu_type and gpu_count in [[endpoint]]"
)
_LEAST_HELD_RATIO: Final = 0.3
"""Share of a GPU's memory in use from which an engine, and no stray process, holds it."""
_LEADER: Final = (
    (re.compile(r"(.+)-head-[a-z0-9-]+"), r"{}-(.+-)?worker-.+"),  # KubeRay
    (re.compile(r"(.+-\d+)"), r"{}-\d+"),  # LeaderWorkerSet
)
"""A leader's pod -> the pods of its workers."""


class Placing(NamedTuple):
    """The GPUs of an engine, as far as they are known."""

    uuids: tuple[str, ...] = ()
    source: str = ""
    """How it is known, or why not."""
    number: int = 0
    """All its GPUs, where that is more than `uuids` (some are on other hosts, or it is not known which)."""
    gpu_type: str = ""
    """Catalogue name of those."""
    workers: tuple[str, ...] = ()
    """GPUs of its worker pods; they are in `number`."""

    @property
    def gpus(self) -> int:
        """How many; 0 where that is not known."""
        return max(len(self.uuids), self.number)


class Seats:
    """Which GPUs each pod uses, by the labels of dcgm-exporters."""

    def __init__(self) -> None:
        self._hosts: dict[Pod, dict[str, None]] = {}
        """Pod -> hosts of its GPUs."""
        self._gpus: dict[User, dict[str, None]] = {}
        """Pod and container -> UUIDs of its GPUs."""
        self._containers: dict[Pod, set[str]] = {}
        """Pod -> its containers that have GPUs."""

    def take(self, user: User, host: str, uuid: str) -> None:
        """Note a GPU that a pod uses, and its host."""
        self._hosts.setdefault(user.pod, {})[host] = None
        self._gpus.setdefault(user, {})[uuid] = None
        self._containers.setdefault(user.pod, set()).add(user.container)

    def host(self, user: User) -> str:
        """Host of a pod's GPUs; empty where it has none, or GPUs of several."""
        hosts = self._hosts.get(user.pod, {})
        if len(hosts) == 1:
            return next(iter(hosts))
        return ""

    def gpus(self, user: User, engines: int) -> tuple[tuple[str, ...], str]:
        """GPUs of an engine in this pod, one of `engines` there; or none, and why."""
        containers = self._containers.get(user.pod, set())
        if not containers:
            return (), NO_POD
        if user.container in containers and (user.container or engines == 1):
            return tuple(self._gpus[user]), FROM_POD
        if engines > 1:
            return (), SHARED_POD
        return self._gpus_of_pod(user.pod), FROM_POD

    def of_workers(self, leader: Pod, engines: Mapping[Pod, int]) -> tuple[str, ...]:
        """GPUs of the worker pods of a multi-node engine: pods of its name that serve nothing themselves."""
        for named, workers in _LEADER:
            match = named.fullmatch(leader.name)
            if match is None:
                continue
            pods = self._pods_named(leader, re.compile(workers.format(re.escape(match[1]))), engines)
            if pods:
                return tuple(dict.fromkeys(chain.from_iterable(map(self._gpus_of_pod, sorted(pods)))))
        return ()

    def _pods_named(self, leader: Pod, name: re.Pattern[str], engines: Mapping[Pod, int]) -> list[Pod]:
        """Pods beside the leader's whose names match, and that serve nothing themselves."""
        pods = []
        for pod in self._containers:
            is_beside = pod[:2] == leader[:2] and pod != leader
            if is_beside and name.fullmatch(pod.name) and not engines.get(pod):
                pods.append(pod)
        return pods

    def _gpus_of_pod(self, pod: Pod) -> tuple[str, ...]:
        """UUIDs of the GPUs of all containers of a pod."""
        uuids: dict[str, None] = {}
        for container in sorted(self._containers[pod]):
            uuids.update(self._gpus[User(pod, container)])
        return tuple(uuids)


class Seated(NamedTuple):
    """An engine of a host, as labels tell."""

    reading: EngineReading
    endpoint: Endpoint
    user: User | None
    """The pod of its target."""


class EngineGpus:
    """Answers for all engines of a frame: `by_labels` for every host first, as the others learn from it."""

    def __init__(self, seats: Seats, sizes: Mapping[str, int], pods: Mapping[Pod, int]) -> None:
        """`sizes`: GPUs of one engine by a glob of its model's name. `pods`: how many engines each pod has."""
        self._seats = seats
        self._configured_sizes = sizes
        self._pods = pods
        self._learned: dict[str, Counter[int]] = {}
        """Model -> GPUs of an engine -> how many of its engines have so many."""

    def by_labels(self, engine: Seated, gpus: Sequence[GpuReading], all_gpus: Mapping[str, GpuReading]) -> Placing:
        """By the config and by pods; `gpus` are those of its host, `all_gpus` those of the whole fleet by UUID."""
        endpoint = engine.endpoint
        if endpoint.gpus != "auto":
            return self._by_indices(engine, endpoint.gpus, gpus)
        if endpoint.gpu_type:
            return self._learn(engine, Placing((), BY_CONFIG, endpoint.gpu_count, endpoint.gpu_type))
        if not gpus:
            return Placing((), _NO_GPU)
        if engine.user is None:
            return Placing((), NO_POD)
        uuids, why = self._seats.gpus(engine.user, self._pods[engine.user.pod])
        if not uuids:
            return Placing((), why)
        if not {gpu.uuid for gpu in gpus}.issuperset(uuids):
            return Placing((), NO_POD)
        return self._by_pod(engine, engine.user.pod, uuids, all_gpus)

    def _by_indices(self, engine: Seated, indices: Sequence[int], gpus: Sequence[GpuReading]) -> Placing:
        """The GPUs of the host that the config names."""
        by_index = {}
        for gpu in gpus:
            if not gpu.parent_uuid:
                by_index[gpu.index] = gpu.uuid
        for index in indices:
            if index not in by_index:
                return Placing((), f"the config names GPU {index}, its host has {sorted(by_index)}")
        return self._learn(engine, Placing(tuple(by_index[index] for index in indices), BY_CONFIG))

    def _by_pod(self, engine: Seated, pod: Pod, uuids: tuple[str, ...], all_gpus: Mapping[str, GpuReading]) -> Placing:
        """The GPUs of a pod, with those of its worker pods on other hosts, unless the weights are not on so many."""
        if self._pods[pod] == 1:
            workers = self._seats.of_workers(pod, self._pods)
        else:
            workers = ()
        gpus = []
        for uuid in (*uuids, *workers):
            if uuid in all_gpus:
                gpus.append(all_gpus[uuid])
        placing = Placing(uuids, FROM_POD)
        if workers:
            placing = Placing(uuids, FROM_WORKERS, len({*uuids, *workers}), _type_of(gpus), workers)
        size = self._configured_size(engine.reading)
        if size > placing.gpus:
            gpu_type = _type_of([all_gpus[uuid] for uuid in uuids])
            placing = Placing(uuids, "[prometheus] gpus_per_engine", size, gpu_type)
        fault = _too_large_text(engine.reading, gpus, placing.gpus)
        if fault:
            return Placing((), fault)
        return self._learn(engine, placing)

    def by_number(
        self, engines: Sequence[Seated], placings: Sequence[Placing], gpus: Sequence[GpuReading]
    ) -> list[Placing]:
        """The placings of a host's engines, with answers by their number for those that labels tell nothing of."""
        answers = list(placings)
        unknown = [index for index, placing in enumerate(placings) if placing.source in (NO_POD, _NO_GPU)]
        free = _free_gpus(placings, gpus)
        if not unknown or not free or any(gpu.mig for gpu in gpus):
            return answers
        readings = [engines[index].reading for index in unknown]
        for index, placing in zip(unknown, self._by_free_gpus(readings, free), strict=False):
            answers[index] = placing
        return answers

    def _by_free_gpus(self, readings: Sequence[EngineReading], free: Sequence[GpuReading]) -> list[Placing]:
        """The placings of engines that labels tell nothing of; none where nothing else tells of them either."""
        if len(readings) == 1:
            placing = self._only_engine(readings[0], free)
            if placing is not None:
                return [placing]
        return self._share_free_gpus(readings, free)

    def _only_engine(self, reading: EngineReading, free: Sequence[GpuReading]) -> Placing | None:
        """The GPUs of the only engine that labels tell nothing of, by how many it has or by the memory in use; None
        where neither tells."""
        size, _ = self._size(reading)
        in_use = [gpu for gpu in free if _is_in_use(gpu)]
        if size:
            for gpus in (free, in_use):
                if size == len(gpus):
                    return _placed_on(reading, gpus, FROM_COUNT)
            return None
        if in_use and reading.llm is not None:
            return _placed_on(reading, in_use, FROM_MEMORY)
        return None

    def _share_free_gpus(self, readings: Sequence[EngineReading], free: Sequence[GpuReading]) -> list[Placing]:
        """How many of the free GPUs each of these engines has, of all of them or, where one is not known, of none."""
        placings: list[Placing] = []
        total = 0
        for reading in readings:
            size, why = self._size(reading)
            if not size:
                return []
            total += size
            placing = Placing((), SHARE_OF.format(size, why), size, _type_of(free))
            placings.append(_unless_too_large(reading, placing, free[:size]))
        if total > len(free):
            return []
        return placings

    def sizes(self) -> Mapping[str, Mapping[int, int]]:
        """Model -> GPUs of an engine -> how many of its engines have so many."""
        return self._learned

    def _learn(self, engine: Seated, placing: Placing) -> Placing:
        """Note how many GPUs an engine of this model has; returns the placing. Slices tell nothing of that."""
        if placing.gpus and engine.reading.model and not any(uuid.startswith("MIG-") for uuid in placing.uuids):
            self._learned.setdefault(engine.reading.model, Counter())[placing.gpus] += 1
        return placing

    def _configured_size(self, reading: EngineReading) -> int:
        """GPUs of one engine of this model by the config; 0 where it does not say."""
        for glob, size in self._configured_sizes.items():
            if fnmatchcase(reading.model, glob):
                return size
        return 0

    def _size(self, reading: EngineReading) -> tuple[int, str]:
        """GPUs of one engine, and who says so; 0: nobody."""
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


def _free_gpus(placings: Sequence[Placing], gpus: Sequence[GpuReading]) -> list[GpuReading]:
    """The GPUs of a host that no engine is known to have."""
    used: set[str] = set()
    for placing in placings:
        used.update(placing.uuids)
    return [gpu for gpu in gpus if gpu.uuid not in used and not gpu.parent_uuid]


def _is_in_use(gpu: GpuReading) -> bool:
    """Whether much of its memory is in use."""
    used = gpu.vram_used_bytes
    total = gpu.vram_total_bytes
    return not isinstance(used, Missing) and not isinstance(total, Missing) and used > _LEAST_HELD_RATIO * total


def _placed_on(reading: EngineReading, gpus: Sequence[GpuReading], source: str) -> Placing:
    """The placing on these GPUs, if they hold the model's weights."""
    return _unless_too_large(reading, Placing(tuple(gpu.uuid for gpu in gpus), source), gpus)


def _unless_too_large(reading: EngineReading, placing: Placing, gpus: Sequence[GpuReading]) -> Placing:
    """The placing; none where the GPUs do not hold the model's weights, or their type is not known."""
    fault = _too_large_text(reading, gpus, placing.gpus)
    if fault or (placing.number and not placing.gpu_type):
        return Placing((), fault)
    return placing


def _too_large_text(reading: EngineReading, gpus: Sequence[GpuReading], count: int) -> str:
    """Why the weights are not on so many GPUs, of which these are some; empty where they may be, as far as is known."""
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


def _type_of(gpus: Sequence[GpuReading]) -> str:
    """Catalogue name of these GPUs where they are of one type; else empty."""
    names = {gpu.name for gpu in gpus}
    spec = None
    if len(names) == 1:
        spec = gpu_catalogue().match(gpu_facts(gpus[0]))
    if spec is not None and spec.listed:
        return spec.name
    return ""

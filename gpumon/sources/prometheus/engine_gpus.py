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
NO_GPU: Final = (
    "no GPU is under the name of its host: scrape its dcgm-exporter, give both targets the same label 'node' (see "
    "host_labels), or give gpu_type and gpu_count in [[endpoint]]"
)
SHARED_POD: Final = "several engines run in its pod, and no label says which GPUs are whose"
TOO_LARGE: Final = (
    "its weights take {:.0f} GB, and the {} that labels give it have {:.0f}: has it worker pods? Give its model in "
    "[prometheus] gpus_per_engine, or gpu_type and gpu_count in [[endpoint]]"
)
_HELD: Final = 0.3
"""Share of a GPU's memory in use from which an engine, and no stray process, holds it."""
_LEADER: Final = (
    (re.compile(r"(.+)-head-[a-z0-9-]+"), r"{}-(.+-)?worker-.+"),  # KubeRay
    (re.compile(r"(.+-\d+)"), r"{}-\d+"),  # LeaderWorkerSet
)
"""A leader's pod -> the pods of its workers."""


class Placing(NamedTuple):
    """What is known of an engine's GPUs."""

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
        self._gpus: dict[User, dict[str, None]] = {}
        self._containers: dict[Pod, set[str]] = {}

    def take(self, user: User, host: str, uuid: str) -> None:
        """A GPU that a pod uses."""
        self._hosts.setdefault(user.pod, {})[host] = None
        self._gpus.setdefault(user, {})[uuid] = None
        self._containers.setdefault(user.pod, set()).add(user.container)

    def host(self, user: User) -> str:
        """Host of a pod's GPUs; empty where it has none, or GPUs of several."""
        hosts = self._hosts.get(user.pod, {})
        return next(iter(hosts)) if len(hosts) == 1 else ""

    def gpus(self, user: User, engines: int) -> tuple[tuple[str, ...], str]:
        """GPUs of an engine in this pod, one of `engines` there; or none, and why."""
        containers = self._containers.get(user.pod, set())
        if not containers:
            return (), NO_POD
        if user.container in containers and (user.container or engines == 1):
            return tuple(self._gpus[user]), FROM_POD
        if engines > 1:
            return (), SHARED_POD
        return self._of_pod(user.pod), FROM_POD

    def of_workers(self, leader: Pod, engines: Mapping[Pod, int]) -> tuple[str, ...]:
        """GPUs of the worker pods of a multi-node engine: pods of its name that serve nothing themselves."""
        for named, workers in _LEADER:
            if found := named.fullmatch(leader.name):
                pattern = re.compile(workers.format(re.escape(found[1])))
                pods = [
                    pod
                    for pod in self._containers
                    if pod[:2] == leader[:2] and pod != leader and pattern.fullmatch(pod.name) and not engines.get(pod)
                ]
                if pods:
                    return tuple(dict.fromkeys(uuid for pod in sorted(pods) for uuid in self._of_pod(pod)))
        return ()

    def _of_pod(self, pod: Pod) -> tuple[str, ...]:
        containers = sorted(self._containers[pod])
        return tuple(dict.fromkeys(uuid for each in containers for uuid in self._gpus[User(pod, each)]))


class Seated(NamedTuple):
    """An engine of a host, as labels tell."""

    reading: EngineReading
    endpoint: Endpoint
    user: User | None
    """The pod of its target."""


class EngineGpus:
    """Answers for all engines of a frame: `by_labels` for every host first, as the others learn from it."""

    def __init__(self, seats: Seats, given: Mapping[str, int], pods: Mapping[Pod, int]) -> None:
        """`given`: GPUs of one engine by a glob of its model's name. `pods`: how many engines each pod has."""
        self._seats = seats
        self._given = given
        self._pods = pods
        self._learned: dict[str, Counter[int]] = {}

    def by_labels(self, one: Seated, gpus: Sequence[GpuReading], known: Mapping[str, GpuReading]) -> Placing:
        """By the config and by pods; `gpus` are those of its host, `known` all of the fleet by UUID."""
        endpoint = one.endpoint
        if endpoint.gpus != "auto":
            by_index = {gpu.index: gpu.uuid for gpu in gpus if not gpu.parent_uuid}
            missing = [index for index in endpoint.gpus if index not in by_index]
            if missing:
                return Placing((), f"the config names GPU {missing[0]}, its host has {sorted(by_index)}")
            return self._learn(one, Placing(tuple(by_index[index] for index in endpoint.gpus), BY_CONFIG))
        if endpoint.gpu_type:
            return self._learn(one, Placing((), BY_CONFIG, endpoint.gpu_count, endpoint.gpu_type))
        here = {gpu.uuid for gpu in gpus}
        if one.user is None:
            return Placing((), NO_POD if here else NO_GPU)
        uuids, why = self._seats.gpus(one.user, self._pods[one.user.pod])
        if not uuids or not here.issuperset(uuids):
            return Placing((), NO_GPU if not here else why if not uuids else NO_POD)
        workers = self._seats.of_workers(one.user.pod, self._pods) if self._pods[one.user.pod] == 1 else ()
        placing = Placing(uuids, FROM_POD)
        if workers:
            gpu_type = _type_of([known[uuid] for uuid in (*uuids, *workers) if uuid in known])
            placing = Placing(uuids, FROM_WORKERS, len({*uuids, *workers}), gpu_type, workers)
        given = self._size_given(one.reading)
        if given > placing.gpus:
            placing = Placing(uuids, "[prometheus] gpus_per_engine", given, _type_of([known[uuid] for uuid in uuids]))
        wrong = _too_large(one.reading, [known[uuid] for uuid in (*uuids, *workers) if uuid in known], placing.gpus)
        return Placing((), wrong) if wrong else self._learn(one, placing)

    def by_number(
        self, engines: Sequence[Seated], placings: Sequence[Placing], gpus: Sequence[GpuReading]
    ) -> list[Placing]:
        """The same, with answers for those of a host that labels tell nothing of."""
        open_at = [at for at, placing in enumerate(placings) if placing.source in (NO_POD, NO_GPU)]
        taken = {uuid for placing in placings for uuid in placing.uuids}
        free = [gpu for gpu in gpus if gpu.uuid not in taken and not gpu.parent_uuid]
        if not open_at or not free or any(gpu.mig for gpu in gpus):
            return list(placings)
        found = list(placings)
        held = [gpu for gpu in free if _holds(gpu)]
        readings = [engines[at].reading for at in open_at]
        sizes = [self._size(reading) for reading in readings]
        alone = len(readings) == 1
        if alone and sizes[0][0] and sizes[0][0] in (len(free), len(held)):
            mine = free if sizes[0][0] == len(free) else held
            found[open_at[0]] = _checked(readings[0], Placing(tuple(gpu.uuid for gpu in mine), FROM_COUNT), mine)
        elif all(size for size, _ in sizes) and sum(size for size, _ in sizes) <= len(free):
            for at, reading, (size, why) in zip(open_at, readings, sizes, strict=True):
                placing = Placing((), SHARE_OF.format(size, why), size, _type_of(free))
                found[at] = _checked(reading, placing, free[:size])
        elif alone and held and not sizes[0][0] and readings[0].llm is not None:
            placing = Placing(tuple(gpu.uuid for gpu in held), FROM_MEMORY)
            found[open_at[0]] = _checked(readings[0], placing, held)
        return found

    def sizes(self) -> Mapping[str, Mapping[int, int]]:
        """Model -> GPUs of an engine -> how many of its engines have so many."""
        return self._learned

    def _learn(self, one: Seated, placing: Placing) -> Placing:
        if placing.gpus and one.reading.model and not any(uuid.startswith("MIG-") for uuid in placing.uuids):
            self._learned.setdefault(one.reading.model, Counter())[placing.gpus] += 1
        return placing

    def _size_given(self, reading: EngineReading) -> int:
        return next((size for glob, size in self._given.items() if fnmatchcase(reading.model, glob)), 0)

    def _size(self, reading: EngineReading) -> tuple[int, str]:
        """GPUs of one engine, and who says so; 0: nobody."""
        if given := self._size_given(reading):
            return given, "[prometheus] gpus_per_engine"
        if told := reading.tp * (reading.pp or 1) * (reading.dp or 1):
            return told, "its own page"
        learned = self._learned.get(reading.model)
        if learned and len(learned) == 1:
            return next(iter(learned)), "other engines of its model"
        return 0, ""


def _holds(gpu: GpuReading) -> bool:
    used, total = gpu.vram_used_bytes, gpu.vram_total_bytes
    return not isinstance(used, Missing) and not isinstance(total, Missing) and used > _HELD * total


def _checked(reading: EngineReading, placing: Placing, gpus: Sequence[GpuReading]) -> Placing:
    wrong = _too_large(reading, gpus, placing.gpus)
    return Placing((), wrong) if wrong or (placing.number and not placing.gpu_type) else placing


def _too_large(reading: EngineReading, gpus: Sequence[GpuReading], count: int) -> str:
    """Why the weights are not on so many GPUs, of which these are some; empty where they may be, as far as is known."""
    llm, totals = reading.llm, [gpu.vram_total_bytes for gpu in gpus]
    known = [total for total in totals if not isinstance(total, Missing)]
    if llm is None or len(known) < len(totals) or not known:
        return ""
    room = sum(known) * max(count, len(known)) / len(known)
    weights = llm.stored_bytes or llm.read_bytes
    what = f"{count} GPU{'' if count == 1 else 's'}"
    return TOO_LARGE.format(weights / 1e9, what, room / 1e9) if weights > room else ""


def _type_of(gpus: Sequence[GpuReading]) -> str:
    """Catalogue name of these GPUs where they are of one type; else empty."""
    names = {gpu.name for gpu in gpus}
    spec = gpu_catalogue().match(gpu_facts(gpus[0])) if len(names) == 1 else None
    return spec.name if spec is not None and spec.listed else ""

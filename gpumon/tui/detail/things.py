"""The things that have a page: found in a snapshot by kind and key, with their names and what they lead to."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from gpumon.readings.frame import EndpointState, GpuProcess, GpuState
from gpumon.readings.missing import SILENT_REASONS, Missing, Reason
from gpumon.readings.snapshot import Engine, Gpu, Kind, Replicas, Snapshot, Verdict
from gpumon.readings.text import clean
from gpumon.triage.render import LIMIT_NAMES
from gpumon.tui.triage_verdicts import verdict_key

ShownKey = tuple[str, str]
"""Kind of a thing (gpu, engine, replicas, process, verdict) and its key (UUID, `Engine.key`, model, pid,
`verdict_key`)."""


class ProcessOnGpus(NamedTuple):
    """A process, with the GPUs that it was seen on."""

    pid: int
    by_gpu: tuple[tuple[Gpu, GpuProcess], ...]
    """Each of those GPUs, with the process as that GPU lists it."""


Thing = Gpu | Engine | Replicas | ProcessOnGpus | Verdict

_MOST_LINKS: Final = 4
"""Links followed from a thing to its engine. A verdict on a GPU needs two; links can go round, from GPU to engine."""
_REASONS_OF_STATES: Final = {
    GpuState.LOST: Missing(Reason.LOST),
    GpuState.MUTE: Missing(Reason.STALE),
    GpuState.STALE: Missing(Reason.STALE),
}
"""States of a GPU that leave it without any figure."""
_ANSWERING_STATES: Final = (
    EndpointState.OK,
    EndpointState.STARTING,
    EndpointState.TIMEOUT,
    EndpointState.HTTP_ERROR,
    EndpointState.ERROR,
)
"""States in which an engine may have figures all the same: one slow answer is no outage."""


def things_of_kind(snapshot: Snapshot, kind: str) -> dict[str, Thing]:
    """All things of one kind by their key, in the order of the snapshot; empty for a kind that has no pages."""
    if kind == "gpu":
        return {gpu.reading.uuid: gpu for gpu in snapshot.gpus}
    if kind == "engine":
        return {engine.key: engine for engine in snapshot.engines}
    if kind == "replicas":
        return {replicas.model: replicas for replicas in snapshot.replicas}
    if kind == "process":
        return _processes_by_pid(snapshot)
    if kind == "verdict":
        return {verdict_key(verdict): verdict for verdict in snapshot.verdicts}
    return {}


def _processes_by_pid(snapshot: Snapshot) -> dict[str, Thing]:
    """The processes of all GPUs: one that several GPUs list is one thing."""
    by_pid: dict[int, list[tuple[Gpu, GpuProcess]]] = {}
    for gpu in snapshot.gpus:
        for process in gpu.reading.processes:
            by_pid.setdefault(process.pid, []).append((gpu, process))
    return {str(pid): ProcessOnGpus(pid, tuple(by_gpu)) for pid, by_gpu in by_pid.items()}


def blank_reason(thing: Thing) -> Missing | None:
    """Why all figures of a thing are missing; None where they are not.

    One figure that every thing of its kind has stands for all of them.
    """
    if isinstance(thing, ProcessOnGpus | Replicas | Verdict):
        return None
    reading = thing.reading.vram_used_bytes if isinstance(thing, Gpu) else thing.load.running
    if isinstance(reading, Missing) and reading.reason in SILENT_REASONS:
        return reading
    if isinstance(thing, Gpu):
        return _REASONS_OF_STATES.get(thing.reading.state)
    if thing.state in _ANSWERING_STATES:
        return None
    return Missing(Reason.UNREACHABLE)


def is_blank(thing: Thing) -> bool:
    """Whether all figures of a thing are missing."""
    return blank_reason(thing) is not None


def page_title(key: ShownKey, thing: Thing | None) -> str:
    """Title of a page: `gpu 3 · NVIDIA H100 80GB HBM3`, `process 12345 · python`; of a thing not seen yet its key."""
    if isinstance(thing, Gpu):
        place = f"gpu {thing.reading.index}"
        if thing.reading.parent_uuid:
            place = f"slice {thing.reading.mig_profile} of {place}"
        return clean(_with_kind(place, thing.reading.name))
    if isinstance(thing, Engine):
        model = thing.model.rstrip("/").rpartition("/")[2]  # the last part of a path or of `owner/name`
        return clean(_with_kind(f"engine {thing.name}", model))
    if isinstance(thing, Replicas):
        return clean(f"{thing.title} · {thing.model}")
    if isinstance(thing, Verdict):
        return clean(f"{LIMIT_NAMES[thing.code]} · {thing.scope}")
    if thing is not None:
        return clean(f"process {thing.pid} · {thing.by_gpu[0][1].name}")
    return clean(" ".join(key)).strip()


def _with_kind(name: str, kind: str) -> str:
    """`gpu 3 · NVIDIA H100`; the name alone where the kind is not known."""
    if kind:
        return f"{name} · {kind}"
    return name


def engine_of_thing(snapshot: Snapshot, key: ShownKey) -> Engine | None:
    """The engine that a thing is, runs or belongs to, or that a verdict is about; None where there is none."""
    for _ in range(_MOST_LINKS):
        thing = things_of_kind(snapshot, key[0]).get(key[1])
        if isinstance(thing, Engine):
            return thing
        link = linked_page(snapshot, thing)
        if link is None:
            return None
        if isinstance(thing, ProcessOnGpus) and link[0] == "gpu":  # the engine of that GPU is not that of the process
            return None
        key = link
    return None


def linked_page(snapshot: Snapshot, thing: Thing | None) -> ShownKey | None:
    """The page that Enter goes on to; None where there is none.

    From an engine to its first GPU; from a GPU to its engine; from a process to its engine, else to its GPU; from
    replicas to the one that stands apart, else to the first; from a verdict to what it is about.
    """
    if isinstance(thing, Verdict):
        if thing.kind is Kind.HOST:
            return None
        return thing.kind.value, thing.key
    if isinstance(thing, Engine):
        return _first_gpu(snapshot, thing)
    if isinstance(thing, Replicas):
        return _named_engine(snapshot, thing.deviating) or _named_engine(snapshot, thing.engines)
    if isinstance(thing, Gpu):
        return _named_engine(snapshot, thing.engines)
    if thing is None:
        return None
    engine_names = [process.engine for _, process in thing.by_gpu]
    first_gpu, _ = thing.by_gpu[0]
    return _named_engine(snapshot, engine_names) or ("gpu", first_gpu.reading.uuid)


def _first_gpu(snapshot: Snapshot, engine: Engine) -> ShownKey | None:
    """The page of the first GPU of an engine; slices have the index of their GPU, and are passed over."""
    for gpu in snapshot.gpus:
        if gpu.reading.index in engine.hardware.gpus and not gpu.reading.parent_uuid:
            return "gpu", gpu.reading.uuid
    return None


def _named_engine(snapshot: Snapshot, names: Collection[str]) -> ShownKey | None:
    """The page of the first engine of the snapshot that has one of these names."""
    for engine in snapshot.engines:
        if engine.name in names:
            return "engine", engine.key
    return None


def container_of(process: GpuProcess) -> str:
    """Name and id of a process's container: `vllm (3f2a1c)`; empty where it is in none, or its cgroup names none."""
    if process.container_name:
        return f"{process.container_name} ({process.container})"
    return process.container

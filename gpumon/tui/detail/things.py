"""The things that have a page: found in a snapshot by kind and key, with their names and what they lead to."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from gpumon.readings.frame import EndpointState, GpuState
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Engine, Gpu, Kind, Process, Replicas, Snapshot, Verdict
from gpumon.readings.text import clean
from gpumon.triage.render import LIMIT_NAMES
from gpumon.tui.replica_rows import replicas_name
from gpumon.tui.triage_rows import verdict_key

ShownKey = tuple[str, str]
"""Kind (gpu, engine, replicas, process, verdict) and key (UUID, `Engine.key`, model, pid, `verdict_key`)."""


class ProcessOnGpus(NamedTuple):
    """A process, with the GPUs that it was seen on."""

    pid: int
    by_gpu: tuple[tuple[Gpu, Process], ...]
    """Each of those GPUs, with the process as that GPU lists it."""


Thing = Gpu | Engine | Replicas | ProcessOnGpus | Verdict

BLANK: Final = frozenset({Reason.LOST, Reason.STALE, Reason.UNREACHABLE})
"""Reasons that leave a thing without any figure: said once, at the top of its page."""
_MOST_STEPS: Final = 4
"""From a verdict on a GPU to its engine, with a step to spare."""
_STATES: Final = {GpuState.LOST: Missing(Reason.LOST), GpuState.STALE: Missing(Reason.STALE)}
_ANSWERS: Final = (
    EndpointState.OK,
    EndpointState.STARTING,
    EndpointState.TIMEOUT,
    EndpointState.HTTP_ERROR,
    EndpointState.ERROR,
)
"""States in which an engine may have figures all the same: one slow answer is no outage."""


def things_of_kind(snapshot: Snapshot, kind: str) -> dict[str, Thing]:
    """Key -> thing, of all things of one kind, in the order of their list."""
    if kind == "process":
        on: dict[str, list[tuple[Gpu, Process]]] = {}
        for gpu in snapshot.gpus:
            for process in gpu.processes:
                on.setdefault(str(process.pid), []).append((gpu, process))
        return {pid: ProcessOnGpus(there[0][1].pid, tuple(there)) for pid, there in on.items()}
    every: dict[str, list[tuple[str, Thing]]] = {
        "gpu": [(gpu.uuid, gpu) for gpu in snapshot.gpus],
        "engine": [(engine.key, engine) for engine in snapshot.engines],
        "replicas": [(replicas.model, replicas) for replicas in snapshot.replicas],
        "verdict": [(verdict_key(verdict), verdict) for verdict in snapshot.verdicts],
    }
    return dict(every.get(kind, ()))


def blank_reason(thing: Thing) -> Missing | None:
    """Why its figures are all missing, so that its last ones say more; None where they are not."""
    if isinstance(thing, ProcessOnGpus | Replicas | Verdict):
        return None
    if isinstance(thing, Gpu):
        reading = thing.vram_used_bytes
    else:
        reading = thing.load.running
    if isinstance(reading, Missing) and reading.reason in BLANK:
        return reading
    if isinstance(thing, Gpu):
        return _STATES.get(thing.state)
    if thing.state in _ANSWERS:
        return None
    return Missing(Reason.UNREACHABLE)


def is_blank(thing: Thing) -> bool:
    """Whether all its figures are missing."""
    return blank_reason(thing) is not None


def page_title(key: ShownKey, thing: Thing | None) -> str:
    """`gpu 3 · NVIDIA H100 80GB HBM3`, `engine vllm:8000 · Llama-3.3-70B`, `process 12345 · python`."""
    if isinstance(thing, Gpu):
        place = f"gpu {thing.index}"
        if thing.parent_uuid:
            place = f"slice {thing.mig_profile} of {place}"
        return clean(_joined(place, thing.name))
    if isinstance(thing, Engine):
        return clean(_joined(f"engine {thing.name}", thing.model.rstrip("/").rpartition("/")[2]))
    if isinstance(thing, Replicas):
        return clean(f"{replicas_name(thing)} · {thing.model}")
    if isinstance(thing, Verdict):
        return clean(f"{LIMIT_NAMES[thing.code]} · {thing.scope}")
    if thing is not None:
        return clean(f"process {thing.pid} · {thing.by_gpu[0][1].name}")
    return clean(" ".join(key)).strip()


def _joined(name: str, kind: str) -> str:
    """`gpu 3 · NVIDIA H100`; the name alone where the kind is not known."""
    if kind:
        return f"{name} · {kind}"
    return name


def engine_of_thing(snapshot: Snapshot, key: ShownKey) -> Engine | None:
    """The engine that a thing is, is about, or runs."""
    kind, name = key
    for _ in range(_MOST_STEPS):
        thing = things_of_kind(snapshot, kind).get(name)
        if isinstance(thing, Engine):
            return thing
        onward = linked_page(snapshot, thing)
        if onward is None or (isinstance(thing, ProcessOnGpus) and onward[0] == "gpu"):
            return None
        kind, name = onward
    return None


def linked_page(snapshot: Snapshot, thing: Thing | None) -> ShownKey | None:
    """The page that Enter goes on to: from an engine to its first GPU, from a GPU or a process to its engine, from
    replicas to the one that stands apart, else to the first; from a verdict to what it is about.

    Where there is none: from a process to its GPU.
    """
    if isinstance(thing, Verdict):
        return None if thing.kind is Kind.HOST else (thing.kind.value, thing.key)
    if isinstance(thing, Engine):
        return _first_gpu(snapshot, thing)
    if isinstance(thing, Replicas):
        return _named_engine(snapshot, thing.deviating) or _named_engine(snapshot, thing.engines)
    if isinstance(thing, Gpu):
        return _named_engine(snapshot, thing.engines)
    if thing is None:
        return None
    gpu, _ = thing.by_gpu[0]
    return _named_engine(snapshot, [process.engine for _, process in thing.by_gpu]) or ("gpu", gpu.uuid)


def _first_gpu(snapshot: Snapshot, engine: Engine) -> ShownKey | None:
    """The page of the first GPU of an engine."""
    for gpu in snapshot.gpus:
        if gpu.index in engine.hardware.gpus and not gpu.parent_uuid:
            return "gpu", gpu.uuid
    return None


def _named_engine(snapshot: Snapshot, names: Collection[str]) -> ShownKey | None:
    """The page of the first engine of the snapshot that has one of these names."""
    for engine in snapshot.engines:
        if engine.name in names:
            return "engine", engine.key
    return None


def container_of(process: Process) -> str:
    """Name and id of a process's container; empty where it is in none, or that is not told."""
    if process.container_name:
        return f"{process.container_name} ({process.container})"
    return process.container

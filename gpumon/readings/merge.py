"""Readings of several sources joined: GPUs by NVML and by a dcgm-exporter, and engines with names of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from gpumon.readings.dcgm import DCGM, GPM, RATES, RATIOS
from gpumon.readings.frame import EngineReading, Fault, GpuReading, GpuState
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.text import clean

MOST_PLACE: Final = 80
"""Most characters of a host and path in a name."""


def merge_dcgm(gpus: Sequence[GpuReading], host_name: str) -> tuple[GpuReading, ...]:
    """NVML's GPUs, with what it has not from DCGM's readings of the same UUID; then DCGM's GPUs of other hosts.

    `host_name` is that of this host. A GPU that NVML does not list is another host's unless its exporter stands on this
    one: its label says so, or other GPUs of that label are NVML's. Where NVML lists none at all, all are taken. Hosts
    and their GPUs keep the order in which they are given; an index that is taken already moves behind the others.
    """
    dcgm_gpus = [gpu for gpu in gpus if gpu.source == DCGM]
    if not dcgm_gpus:
        return tuple(gpus)
    nvml_gpus = [gpu for gpu in gpus if gpu.source != DCGM]
    by_identity = {identity: gpu for gpu in dcgm_gpus for identity in _identities(gpu)}
    joined = [_with_dcgm(gpu, by_identity) for gpu in nvml_gpus]
    for remote in _by_remote_host(dcgm_gpus, _local_labels(nvml_gpus, dcgm_gpus, host_name)):
        joined += _renumber(joined, remote)
    return tuple(joined)


def _by_remote_host(dcgm_gpus: Sequence[GpuReading], local_labels: set[str]) -> Iterable[list[GpuReading]]:
    """DCGM's readings of GPUs that are not this host's, those of one host together."""
    hosts: dict[str, list[GpuReading]] = {}
    for gpu in dcgm_gpus:
        if gpu.host not in local_labels:
            hosts.setdefault(gpu.host, []).append(gpu)
    return hosts.values()


def _local_labels(nvml_gpus: Sequence[GpuReading], dcgm_gpus: Sequence[GpuReading], host_name: str) -> set[str]:
    """Host labels of DCGM's readings that mean this host; none where NVML lists no GPU."""
    if not nvml_gpus:
        return set()
    own_identities = {identity for gpu in nvml_gpus for identity in _identities(gpu)}
    return {
        gpu.host
        for gpu in dcgm_gpus
        if own_identities.intersection(_identities(gpu)) or _is_same_host(gpu.host, host_name)
    }


def _renumber(joined: Sequence[GpuReading], remote: Sequence[GpuReading]) -> Sequence[GpuReading]:
    """The GPUs of another host, with indices behind those that are taken where one of theirs is."""
    used_indices = {gpu.index for gpu in joined}
    if used_indices.isdisjoint(gpu.index for gpu in remote):
        return remote
    shift = max(used_indices) + 1
    return [msgspec.structs.replace(gpu, index=gpu.index + shift) for gpu in remote]


def _identities(gpu: GpuReading) -> tuple[tuple[str, str], ...]:
    """The keys of a GPU or slice: its UUID; for a slice also its GPU's UUID with its GPU instance."""
    if gpu.parent_uuid and gpu.mig_instance:
        return (gpu.uuid, ""), (gpu.parent_uuid, gpu.mig_instance)
    return ((gpu.uuid, ""),)


def _is_same_host(label: str, host_name: str) -> bool:
    """Whether two names are of one host, with or without a domain."""
    return bool(label) and label.partition(".")[0].casefold() == host_name.partition(".")[0].casefold()


def _with_dcgm(gpu: GpuReading, by_identity: Mapping[tuple[str, str], GpuReading]) -> GpuReading:
    """NVML's reading with what it has not. What GPM measures is never replaced, nor what it is about to measure."""
    if gpu.state is not GpuState.OK:
        return gpu
    for identity in _identities(gpu):
        if identity in by_identity:
            return _with_figures_of(gpu, by_identity[identity])
    return gpu


def _with_figures_of(gpu: GpuReading, dcgm: GpuReading) -> GpuReading:
    """NVML's reading with the figures that it lacks and DCGM has."""
    fields = RATES if gpu.activity_source == GPM else (*RATIOS, *RATES)
    figures = {}
    for field in fields:
        own = getattr(gpu, field)
        figure = getattr(dcgm, field)
        is_lacking = isinstance(own, Missing) and own.reason is not Reason.WARMING_UP  # then NVML is about to have it
        if is_lacking and not isinstance(figure, Missing):
            figures[field] = figure
    if not figures:
        return gpu
    activity_source = DCGM if not figures.keys().isdisjoint(RATIOS) else gpu.activity_source
    return msgspec.structs.replace(
        gpu,
        **figures,
        activity_source=activity_source,
        activity_monotonic_s=dcgm.activity_monotonic_s,
        activity_interval_s=dcgm.activity_interval_s,
        from_dcgm=tuple(figures),
    )


def disambiguate_engines(
    parts: Iterable[tuple[Sequence[EngineReading], Sequence[Fault]]],
) -> tuple[tuple[EngineReading, ...], tuple[Fault, ...]]:
    """The engines of all sources, each with a name of its own, and the sources' faults under those names.

    `parts`: engines and faults of each source; a fault on an engine has its name as its source.
    """
    parts = tuple(parts)
    named_engines = with_unique_names(engine for engines, _ in parts for engine in engines)
    all_faults: list[Fault] = []
    start = 0
    for engines, faults in parts:
        end = start + len(engines)
        all_faults += _rename_faults(faults, engines, named_engines[start:end])
        start = end
    return named_engines, tuple(all_faults)


def with_unique_names(readings: Iterable[EngineReading]) -> tuple[EngineReading, ...]:
    """The readings, each with a name of its own: of one name each gets its host and path into it, then a number."""
    engines = tuple(readings)
    counts = Counter(engine.name for engine in engines)
    if len(counts) == len(engines):
        return engines
    used_names = {name for name, count in counts.items() if count == 1}
    engines_with_names = []
    for engine in engines:
        if counts[engine.name] > 1:
            unnumbered = _name_with_place(engine)
            name = unnumbered
            number = 1
            while name in used_names:
                number += 1
                name = f"{unnumbered} ({number})"
            used_names.add(name)
            engine = msgspec.structs.replace(engine, name=name)
        engines_with_names.append(engine)
    return tuple(engines_with_names)


def _rename_faults(
    faults: Sequence[Fault], before: Sequence[EngineReading], after: Sequence[EngineReading]
) -> tuple[Fault, ...]:
    """One source's faults under the names that its engines have now; a name that became several stays as it was."""
    names: dict[str, set[str]] = {}
    if faults:
        for old, new in zip(before, after, strict=True):
            names.setdefault(old.name, set()).add(new.name)
    renamed = []
    for fault in faults:
        sources = names.get(fault.source, set())
        if len(sources) == 1:
            fault = msgspec.structs.replace(fault, source=next(iter(sources)))
        renamed.append(fault)
    return tuple(renamed)


def _name_with_place(engine: EngineReading) -> str:
    """The name of an engine with host and path in the place of its port."""
    word = engine.server_name.partition(":")[0]
    place = engine.url.partition("://")[2] or engine.url.partition(":")[2]
    return f"{word}:{clean(place, MOST_PLACE)}{engine.name.removeprefix(engine.server_name)}"

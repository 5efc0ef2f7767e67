"""Free capacity of a fleet: GPUs by type, host and NVLink domain, what would fit there, and versions that differ."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from gpumon.fleet.free import TP_SIZES, Domain, Use, domains_of, type_of, worker_gpus
from gpumon.fleet.order import natural_order
from gpumon.fleet.row import FleetRow
from gpumon.fleet.snapshot import FleetSnapshot, HostShown, HostState
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading, Reason, number

_MOST_VALUES: Final = 200
"""A label with more values groups nothing."""


class TypeCapacity(msgspec.Struct, frozen=True):
    """All GPUs of one type."""

    gpu_type: str
    gpus: int
    uses: Mapping[str, int]
    """`Use` -> number of GPUs."""
    largest_tp: int
    """The largest tensor parallelism that fits anywhere; 0 where none is free."""
    largest_on: tuple[str, ...]
    """Hosts on which it fits, by name."""
    fits: Mapping[int, int]
    """Size of tensor parallelism, up to the largest domain -> instances of it that fit into free GPUs."""
    fragmented_ratio: Reading
    """Share of the free GPUs that stand in a domain of which others are taken: they are scattered."""


class ModelSpare(msgspec.Struct, frozen=True):
    """Room for one model."""

    model: str
    replicas: int
    """Engines that answer."""
    gpu_type: str
    """Type of GPU that most of them run on; empty: not known."""
    gpus_each: Reading
    """GPUs of one engine, as most of them have."""
    more: Reading
    """Further engines that fit into free GPUs of that type, each inside one domain."""
    running: Reading
    waiting: Reading
    kv_usage_ratio: Reading
    """KV usage of the fullest engine."""


class VersionSkew(msgspec.Struct, frozen=True):
    """Versions of one program in the fleet, the most frequent first; there are two at least."""

    program: str
    """`driver`, `gpumon`, or the kind of an engine."""
    versions: tuple[tuple[str, tuple[str, ...]], ...]
    """Version, and the hosts that have it, by name."""


class Capacity(msgspec.Struct, frozen=True):
    """Free GPUs, room for models, and versions that differ."""

    domains: tuple[Domain, ...]
    """By type, those with the most free GPUs first."""
    types: tuple[TypeCapacity, ...]
    """The type with the most GPUs first."""
    models: tuple[ModelSpare, ...]
    groups: Mapping[str, Mapping[str, tuple[int, int]]]
    """Label that groups hosts (rack, zone, cluster) -> its value -> free GPUs, and all GPUs."""
    skews: tuple[VersionSkew, ...]


def capacity_of(fleet: FleetSnapshot, models: Iterable[FleetRow] = ()) -> Capacity:
    """The free capacity of a fleet. `models`: its rows per model. Hosts that are gone are left out."""
    hosts = [host for host in fleet.hosts if host.state is not HostState.GONE]
    workers = worker_gpus(hosts)
    domains = [domain for host in hosts for domain in domains_of(host, workers)]
    domains.sort(key=lambda domain: (domain.gpu_type, -len(domain.free), natural_order(domain.host)))
    return Capacity(
        domains=tuple(domains),
        types=tuple(_types_of(domains)),
        models=tuple(_spare_of(row, domains) for row in models if row.models),
        groups=_groups_of(hosts, domains),
        skews=tuple(_skews_of(hosts)),
    )


def _types_of(domains: Sequence[Domain]) -> list[TypeCapacity]:
    """All GPUs of each type."""
    by_type: dict[str, list[Domain]] = defaultdict(list)
    for domain in domains:
        by_type[domain.gpu_type].append(domain)
    types = [_type_capacity(gpu_type, alike) for gpu_type, alike in by_type.items()]
    return sorted(types, key=lambda found: (-found.gpus, found.gpu_type))


def _type_capacity(gpu_type: str, alike: Sequence[Domain]) -> TypeCapacity:
    """The domains of one type of GPU together."""
    uses: Counter[str] = Counter()
    for domain in alike:
        uses.update(domain.uses)
    widest = max(domain.gpus for domain in alike)
    largest_tp = max(domain.largest_tp for domain in alike)
    largest_on = [domain.host for domain in alike if largest_tp and domain.largest_tp == largest_tp]
    return TypeCapacity(
        gpu_type=gpu_type,
        gpus=sum(domain.gpus for domain in alike),
        uses={use.value: uses[use.value] for use in Use if uses[use.value]},
        largest_tp=largest_tp,
        largest_on=tuple(sorted(largest_on, key=natural_order)),
        fits={size: _instances(alike, size) for size in TP_SIZES if size <= widest},
        fragmented_ratio=_fragmented(alike),
    )


def _instances(domains: Iterable[Domain], size: int) -> int:
    """Instances of so many GPUs that fit into free ones, each inside one domain."""
    return sum(len(domain.free) // size for domain in domains)


def _fragmented(domains: Sequence[Domain]) -> Reading:
    """Share of the free GPUs that stand in a domain of which others are taken."""
    free = sum(len(domain.free) for domain in domains)
    if not free:
        return Missing(Reason.IDLE, "no GPU is free")
    return sum(len(domain.free) for domain in domains if len(domain.free) < domain.gpus) / free


def _spare_of(row: FleetRow, domains: Sequence[Domain]) -> ModelSpare:
    """Room for a model, by its row."""
    sizes = _engine_sizes(row)
    gpu_type = ""
    gpus_each: Reading = NOT_EXPOSED
    more: Reading = NOT_EXPOSED
    if sizes:
        gpu_type, count = max(sizes, key=lambda size: (sizes[size], size))
        gpus_each = float(count)
        alike = [domain for domain in domains if domain.gpu_type == gpu_type]
        # An engine over several hosts needs whole domains; how they are joined is not known here.
        if any(domain.gpus >= count for domain in alike):
            more = float(_instances(alike, count))
    return ModelSpare(
        model=row.name,
        replicas=sum(part.in_totals and part.answers for part in row.parts.engines),
        gpu_type=gpu_type,
        gpus_each=gpus_each,
        more=more,
        running=row.running,
        waiting=row.waiting,
        kv_usage_ratio=row.kv_usage_ratio,
    )


def _engine_sizes(row: FleetRow) -> Counter[tuple[str, int]]:
    """(Type of GPU, number of them) of the engines of a row that are known -> engines that have so many."""
    types = {(host.name, gpu.reading.index): type_of(gpu) for host in row.parts.hosts for gpu in host.snapshot.gpus}
    sizes: Counter[tuple[str, int]] = Counter()
    for part in row.parts.engines:
        hardware = part.engine.hardware
        count = round(number(hardware.gpu_count) or len(hardware.gpus))
        gpu_type = hardware.gpu_type
        if hardware.gpus:
            gpu_type = types.get((part.host, hardware.gpus[0]), gpu_type)
        if part.in_totals and count and gpu_type:
            sizes[gpu_type, count] += 1
    return sizes


def _groups_of(hosts: Sequence[HostShown], domains: Iterable[Domain]) -> dict[str, dict[str, tuple[int, int]]]:
    """Free and all GPUs by the value of each label that groups hosts: it has several values, and one of them is that of
    several hosts."""
    values: dict[str, Counter[str]] = defaultdict(Counter)
    for host in hosts:
        for label, value in host.labels.items():
            values[label][value] += 1
    labels_of = {host.name: host.labels for host in hosts}
    groups: dict[str, dict[str, tuple[int, int]]] = {}
    for label in sorted(values):
        counts = values[label]
        if not 1 < len(counts) <= _MOST_VALUES or max(counts.values()) == 1:
            continue
        sums: dict[str, tuple[int, int]] = {}
        for domain in domains:
            value = labels_of[domain.host].get(label, "")
            free, gpus = sums.get(value, (0, 0))
            sums[value] = (free + len(domain.free), gpus + domain.gpus)
        groups[label] = {value: sums[value] for value in sorted(sums, key=natural_order)}
    return groups


def _skews_of(hosts: Iterable[HostShown]) -> Iterable[VersionSkew]:
    """Programs of which the fleet has several versions."""
    seen: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for host in hosts:
        if host.snapshot.host.driver:
            seen["driver"][host.snapshot.host.driver].add(host.name)
        if host.gpumon_version:
            seen["gpumon"][host.gpumon_version].add(host.name)
        for engine in host.snapshot.engines:
            if engine.version:
                seen[engine.kind.value][engine.version].add(host.name)
    for program in sorted(seen):
        versions = seen[program]
        if len(versions) > 1:
            ordered = sorted(versions, key=lambda version: (-len(versions[version]), version))
            named = [(version, tuple(sorted(versions[version], key=natural_order))) for version in ordered]
            yield VersionSkew(program, tuple(named))

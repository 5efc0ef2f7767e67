"""GPUs of a host that nothing uses: what each GPU is used for, and the largest tensor parallelism that fits."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import Final

import msgspec

from gpumon.fleet.snapshot import HostShown, HostState
from gpumon.readings.frame import GpuState
from gpumon.readings.missing import Missing, Reason, number
from gpumon.readings.snapshot import Gpu
from gpumon.readings.verdict import Family, Level

_HELD_RATIO: Final = 0.05
"""Share of a GPU's memory in use above which something holds it: an idle driver takes less."""
TP_SIZES: Final = (1, 2, 4, 8, 16, 32, 64)
"""Sizes of tensor parallelism that are asked for: heads divide by powers of two."""
_UNANSWERED: Final = frozenset({HostState.STARTING, HostState.STALE, HostState.UNREACHABLE, HostState.GONE})
_BROKEN: Final = frozenset({GpuState.LOST, GpuState.MUTE, GpuState.RESET_REQUIRED, GpuState.ERROR})


class Use(str, Enum):
    """Use of a GPU."""

    SERVING = "serving"
    """An engine runs on it, or a worker of one on another host."""
    HELD = "held"
    """Something else holds memory on it, or computes."""
    FREE = "free"
    BROKEN = "broken"
    """It does not answer, or a verdict on its state says that it is broken or slow."""
    SLICED = "sliced"
    """MIG is on: only its slices can be used."""
    OUT = "out"
    """Its host is in maintenance, or taken out by its scheduler."""
    UNKNOWN = "unknown"
    """Its memory in use is not known."""


class Domain(msgspec.Struct, frozen=True):
    """GPUs of one type on one host, which one instance can be spread over."""

    host: str
    gpu_type: str
    link: str
    """NVLink, PCIe, or empty: not known."""
    gpus: int
    uses: Mapping[str, int]
    """`Use` -> number of GPUs."""
    free: tuple[int, ...]
    """Indices of the free GPUs on the host."""

    @property
    def largest_tp(self) -> int:
        """The largest tensor parallelism that fits into the free GPUs; 0 where none is free."""
        return max((size for size in TP_SIZES if size <= len(self.free)), default=0)


def use_of(gpu: Gpu, host: HostShown, workers: Collection[str] = ()) -> Use:
    """The use of a whole GPU of a host. `workers`: UUIDs of GPUs of worker pods of engines elsewhere."""
    if host.maintenance is not None:
        return Use.OUT
    if host.state in _UNANSWERED or gpu.reading.state in (GpuState.STALE, GpuState.INITIALISING):
        return Use.UNKNOWN
    if gpu.reading.state in _BROKEN or _has_state_verdict(gpu, host):
        return Use.BROKEN
    if _is_sliced(gpu, host):
        return Use.SLICED
    if gpu.engines or gpu.reading.uuid in workers or any(process.engine for process in gpu.reading.processes):
        return Use.SERVING
    use = _use_without_engine(gpu)
    return Use.OUT if use is Use.FREE and host.taken_out else use


def _use_without_engine(gpu: Gpu) -> Use:
    """Whether something else holds a GPU, or it is free, or nothing tells."""
    used = number(gpu.reading.vram_used_bytes)
    total = number(gpu.reading.vram_total_bytes)
    if used is None or not total:
        return Use.UNKNOWN
    if used > _HELD_RATIO * total or (number(gpu.reading.busy_ratio) or 0.0) > 0.0:
        return Use.HELD
    return Use.FREE


def _is_sliced(gpu: Gpu, host: HostShown) -> bool:
    """Whether MIG is on."""
    peak = gpu.bandwidth_peak_bytes_per_s
    if isinstance(peak, Missing) and peak.reason is Reason.UNDER_MIG:
        return True
    return bool(gpu.reading.uuid) and any(other.reading.parent_uuid == gpu.reading.uuid for other in host.snapshot.gpus)


def _has_state_verdict(gpu: Gpu, host: HostShown) -> bool:
    """Whether a verdict says that a GPU is broken or slow."""
    for verdict in host.snapshot.verdicts:
        is_urgent = verdict.level in (Level.CRITICAL, Level.WARN)
        if verdict.key == gpu.reading.uuid and verdict.family is Family.STATE and is_urgent:
            return True
    return False


def worker_gpus(hosts: Iterable[HostShown]) -> set[str]:
    """UUIDs of the GPUs of worker pods of engines on other hosts."""
    return {uuid for host in hosts for uuids in host.worker_gpus.values() for uuid in uuids}


def domains_of(host: HostShown, workers: Collection[str]) -> Iterable[Domain]:
    """The domains of a host: its whole GPUs by type."""
    by_type: dict[str, list[Gpu]] = defaultdict(list)
    for gpu in host.snapshot.gpus:
        if not gpu.reading.parent_uuid:
            by_type[type_of(gpu)].append(gpu)
    for gpu_type, gpus in by_type.items():
        uses = {gpu.reading.uuid or str(gpu.reading.index): use_of(gpu, host, workers) for gpu in gpus}
        free = [gpu.reading.index for gpu in gpus if uses[gpu.reading.uuid or str(gpu.reading.index)] is Use.FREE]
        yield Domain(
            host=host.name,
            gpu_type=gpu_type,
            link=_link_of(gpus),
            gpus=len(gpus),
            uses=count_values(use.value for use in uses.values()),
            free=tuple(sorted(free)),
        )


def type_of(gpu: Gpu) -> str:
    """The catalogue's name of a GPU, else the driver's."""
    return gpu.gpu_type or gpu.reading.name


def _link_of(gpus: Sequence[Gpu]) -> str:
    """How the GPUs of a host are joined: as their links tell, else as their board does (SXM modules have NVLink)."""
    links = [links for gpu in gpus if (links := number(gpu.reading.nvlinks)) is not None]
    if links:
        return "NVLink" if min(links) > 0 else "PCIe"
    gpu_type = gpus[0].gpu_type
    if not gpu_type:
        return ""
    return "NVLink" if "SXM" in gpu_type else "PCIe"


def count_values(values: Iterable[str]) -> dict[str, int]:
    """Number of each use, in the order of `Use`; without those that no GPU has."""
    counts = Counter(values)
    return {use.value: counts[use.value] for use in Use if counts[use.value]}

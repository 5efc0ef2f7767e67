"""Many machines at one moment, as a Prometheus tells of them: what the fleet's screen is derived from."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from gpumon.readings.frame import EngineReading, Fault, GpuReading
from gpumon.readings.snapshot import Snapshot


class EngineLoad(msgspec.Struct, frozen=True, gc=False):
    """Figures of an engine that a large fleet is asked for at every refresh; None where they are not known."""

    running: float | None = None
    waiting: float | None = None
    kv_usage_ratio: float | None = None
    decode_tokens_per_s: float | None = None
    """Between its two newest scrapes."""


class GpuLoad(msgspec.Struct, frozen=True, gc=False):
    """Figures of a GPU that a large fleet is asked for at every refresh; None where they are not known."""

    busy_ratio: float | None = None
    vram_used_bytes: float | None = None
    power_w: float | None = None


class HostFrame(msgspec.Struct, frozen=True):
    """One machine: the raw series of its exporters and engines, or what its own gpumon exports."""

    name: str
    """Text from outside: escape before showing."""
    gpus: tuple[GpuReading, ...] = ()
    engines: tuple[EngineReading, ...] = ()
    exported_snapshot: Snapshot | None = None
    """Snapshot that a gpumon on that machine exports; `gpus` are then empty, and `engines` are those it lacks."""
    labels: dict[str, str] = {}
    """Labels of its scrape targets that all of them share, for filters. Text from outside."""
    interval_s: float = 15.0
    """Seconds between two scrapes of this machine."""
    faults: tuple[Fault, ...] = ()
    worker_gpus: dict[str, tuple[str, ...]] = {}
    """`EngineReading.key` -> UUIDs of the GPUs of its worker pods, most of them on other hosts."""
    exporters_down: int = 0
    """Exporters of this machine (its own gpumon is one) that do not answer."""
    owners: dict[str, dict[str, str]] = {}
    """UUID of a GPU or `EngineReading.key` -> labels of its pod and its series. Text from outside."""
    gpumon_version: str = ""
    """Version of the gpumon that runs on it; empty: none does, or it is not known. Text from outside."""
    taken_out: str = ""
    """How a scheduler has taken it out, such as `cordoned in Kubernetes`; empty: it has not."""
    is_read: bool = True
    """Whether its pages were read for this frame. Else its turn comes later: its readings are those of the last time,
    or of a first look that has the loads alone."""
    engine_loads: dict[str, EngineLoad] = {}
    """`EngineReading.key` -> figures of now, where the pages were not read."""
    gpu_loads: dict[str, GpuLoad] = {}
    """UUID of a GPU -> figures of now, where the pages were not read."""
    is_starting: bool = False
    """Whether its gpumon is being reached, or is up and has no figures yet."""


class LabelsLine(NamedTuple):
    """A line of `[prometheus]` in the config that would bring things of one machine under one name, or tell places
    apart."""

    key: str
    """`host_labels` or `cluster_labels`."""
    labels: tuple[str, ...]
    """Names of labels, the best first. Text from outside."""


class FleetFrame(msgspec.Struct, frozen=True):
    """All machines at `wall_s` (Unix time), the moment that was asked for. All clocks in it are Unix time."""

    wall_s: float
    interval_s: float
    """Seconds between two scrapes, as most targets have it."""
    hosts: tuple[HostFrame, ...] = ()
    """Sorted by name."""
    faults: tuple[Fault, ...] = ()
    queries: int = 0
    """Requests that the frame took."""
    cost_s: float = 0.0
    """Seconds from the first request to the last answer."""
    answered: bool = True
    """False where the Prometheus gave no usable answer: the hosts are then those of before, and `faults` say why."""
    merged_hosts: tuple[str, ...] = ()
    """Hosts of the frame before that turned out to be part of another host."""
    turn_s: float = 0.0
    """Seconds within which the pages of each host are read, where not all are at every refresh; else 0."""
    unread: int = 0
    """Number of hosts whose pages were not read yet."""
    proposals: tuple[LabelsLine, ...] = ()
    """Lines of the config that the notices in `faults` propose."""

    def host(self, name: str) -> HostFrame | None:
        """The host of a name; None if it has none."""
        return next((host for host in self.hosts if host.name == name), None)


class NamedTarget(NamedTuple):
    """A target, or all targets of a job that are not read. Texts are from outside."""

    job: str
    instance: str
    kind: str
    """`vllm`, `dcgm-exporter`, `gpumon`, or that it is not read."""
    host: str
    how: str
    """Label that names its machine."""
    gpus: str
    """Number of GPUs of an exporter or an engine; `?` for an engine of which it is not known."""

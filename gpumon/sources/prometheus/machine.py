"""The machines of one moment, each with its GPUs, its engines and its own gpumon; what two pages tell counts once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from gpumon.readings.frame import GpuReading, XidEvent
from gpumon.readings.missing import Missing
from gpumon.readings.snapshot import Snapshot
from gpumon.readings.text import clean
from gpumon.sources.prometheus import exporters
from gpumon.sources.prometheus.contents import OLD_INTERVALS, Contents, OwnGpumon, ScrapedEngine, ScrapedExporter
from gpumon.sources.prometheus.engine import TOO_MANY_SERIES, target_identity
from gpumon.sources.prometheus.hosts import port_of, same_pod
from gpumon.sources.prometheus.machine_names import MachineId
from gpumon.sources.prometheus.memory import Memory
from gpumon.sources.prometheus.naming import Naming
from gpumon.sources.prometheus.scraped import Scraped, job_of
from gpumon.sources.prometheus.targets import LabelPairs, Target

CUT_GPUS: Final = "the dcgm-exporter has more GPUs than gpumon reads"
_SEES_FEWER_ENGINES: Final = (
    "its gpumon serve-metrics sees {} of the {} engines that this Prometheus scrapes here, whose own series are taken: "
    "in a container it needs the host's PIDs and network (hostPID, hostNetwork), or the engines as [[endpoint]]"
)
OWN_DOWN: Final = "the Prometheus cannot scrape this host's gpumon serve-metrics (up is 0): see its page /targets"


class Machine:
    """A machine while it is put together."""

    def __init__(self) -> None:
        self.gpus: dict[str, GpuReading] = {}
        """GPUs and slices by UUID."""
        self.engines: list[ScrapedEngine] = []
        self.targets: list[Target] = []
        self.snapshot: Snapshot | None = None
        """Snapshot that its own gpumon exports."""
        self.gpumon_version = ""
        """Version of its own gpumon; empty: not known."""
        self.faults: dict[str, None] = {}
        """Texts, as a set that keeps its order."""
        self.exporters_down: set[LabelPairs] = set()
        """Exporters that do not answer, and its own gpumon where that does not."""

    def gpus_in_order(self) -> tuple[GpuReading, ...]:
        """GPUs by index, each slice after its GPU."""
        return tuple(sorted(self.gpus.values(), key=_gpu_order))


def _gpu_order(gpu: GpuReading) -> tuple[int, str, str]:
    """Sorts GPUs by index, each before its slices."""
    return gpu.index, gpu.parent_uuid or gpu.uuid, gpu.mig_instance


class MachineBuilder:
    """Puts what the pages tell on the machines: exporters first, then hosts' own gpumon, then engines.

    An engine goes to the machine of its GPUs, and the first exporter that tells of a GPU is the one that is shown.
    """

    def __init__(self, scraped: Scraped, naming: Naming, memory: Memory) -> None:
        self.machines: dict[MachineId, Machine] = {}
        self.refusals: list[str] = []
        """Notices of hosts whose own gpumon is not read."""
        self.repeated_gpus = 0
        """GPUs that two exporters tell of."""
        self.repeated_engines = 0
        """Engines that two jobs scrape."""
        self._scraped = scraped
        self._naming = naming
        self._memory = memory
        self._uuids: set[str] = set()
        """GPUs and slices that are on a machine by now."""

    def add_exporter(self, scraped: ScrapedExporter) -> None:
        """Put the GPUs of an exporter on their machines."""
        target, exporter, is_down = scraped
        for name, gpu in exporter.gpus:
            machine = self.machine_of(target, name)
            is_shown = self._count_gpu(machine, target, gpu)
            if is_shown:
                machine.gpus[gpu.uuid] = _with_last_day(gpu, self._memory)
                self._uuids.add(gpu.uuid)
            if is_down and (is_shown or not machine.gpus):
                machine.faults[exporters.EXPORTER_DOWN] = None
                machine.exporters_down.add(target.key)
            if exporter.cut:
                machine.faults[CUT_GPUS] = None

    def _count_gpu(self, machine: Machine, target: Target, gpu: GpuReading) -> bool:
        """Count a GPU that an exporter tells of. Returns whether this exporter's figures of it are shown.

        The first exporter's are, or those of one that is up where the first has fallen behind.
        """
        if gpu.uuid not in self._uuids:
            return True
        self.repeated_gpus += 1
        counted = machine.gpus.get(gpu.uuid)
        if counted is None or self._scraped.is_down(target):
            return False
        patience_s = OLD_INTERVALS * self._memory.intervals.of(target)
        return gpu.monotonic_s > counted.monotonic_s + patience_s

    def add_unread_exporter(self, target: Target) -> None:
        """Note on its machine an exporter that is down, and whose page was never read."""
        machine = self.machine_of(target, self._naming.host(target))
        if not machine.gpus:
            machine.faults[exporters.EXPORTER_DOWN] = None
        machine.exporters_down.add(target.key)

    def add_own_gpumon(self, own_gpumon: OwnGpumon) -> None:
        """Put on its machine what the host's own gpumon exports, or why there is nothing of it."""
        machine = self.machine_of(own_gpumon.target, own_gpumon.host)
        machine.gpumon_version = self._memory.own_versions.get(own_gpumon.target.key, "")
        if own_gpumon.snapshot is not None:
            machine.snapshot = own_gpumon.snapshot
        elif own_gpumon.refusal:
            machine.faults[own_gpumon.refusal] = None
            self.refusals.append(f"{clean(own_gpumon.host, 60)}: {own_gpumon.refusal}")
        else:
            machine.faults[OWN_DOWN] = None
            machine.exporters_down.add(own_gpumon.target.key)

    def add_engine(self, scraped: ScrapedEngine) -> None:
        """Put an engine on its machine."""
        target, engine = scraped
        machine = self.machine_of(target, self._naming.host(target))
        for index, listed in enumerate(machine.engines):
            if listed.engine.row.kind is engine.row.kind and _is_same_engine(listed.target, target):
                self.repeated_engines += 1
                if self._is_better(scraped, listed):
                    machine.engines[index] = scraped
                return
        machine.engines.append(scraped)
        if engine.cut:
            machine.faults[TOO_MANY_SERIES] = None

    def _is_better(self, scraped: ScrapedEngine, listed: ScrapedEngine) -> bool:
        """Whether the second account of an engine is better than the listed one: that is down, or has fallen behind."""
        is_down = self._scraped.is_down(scraped.target)
        listed_is_down = self._scraped.is_down(listed.target)
        if is_down != listed_is_down:
            return listed_is_down
        behind_s = scraped.engine.read_s - listed.engine.read_s
        return behind_s > OLD_INTERVALS * scraped.engine.readings[0].interval_s

    def machine_of(self, target: Target, name: str) -> Machine:
        """The machine of this name, which has the target from now on."""
        machine_id = self._naming.machines.shown(target, name)
        machine = self.machines.setdefault(machine_id, Machine())
        if not machine.targets or machine.targets[-1] is not target:
            machine.targets.append(target)
        return machine


def build_machines(scraped: Scraped, contents: Contents, naming: Naming, memory: Memory) -> MachineBuilder:
    """All machines with what stands on the pages. An engine that a host's own gpumon tells of is left to that."""
    builder = MachineBuilder(scraped, naming, memory)
    for exporter in contents.exporters:
        builder.add_exporter(exporter)
    for target in scraped.down:
        if job_of(target) in memory.exporter_jobs and target.key not in memory.exporters:
            builder.add_unread_exporter(target)
    for own_gpumon in contents.own_gpumons:
        builder.add_own_gpumon(own_gpumon)
    for engine in contents.engines:
        builder.add_engine(engine)
    return builder


def _with_last_day(gpu: GpuReading, memory: Memory) -> GpuReading:
    """The GPU with what the last day tells of it: since when it is idle, and the Xid that stands."""
    busy = gpu.busy_ratio
    if not isinstance(busy, Missing) and busy > 0.0:
        memory.idle_since_s.pop(gpu.uuid, None)
    idle_s = memory.idle_since_s.get(gpu.uuid, 0.0)
    xids = _with_standing_xid(gpu, memory.xids.get(gpu.uuid))
    if not idle_s and xids is gpu.xid:
        return gpu
    return msgspec.structs.replace(gpu, idle_since_wall_s=idle_s, xid=xids)


def _with_standing_xid(gpu: GpuReading, standing: XidEvent | None) -> tuple[XidEvent, ...]:
    """The Xids of a GPU, with the one that its gauge shows where gpumon did not see it come."""
    if standing is None or standing.code != gpu.standing_xid or any(event.code == standing.code for event in gpu.xid):
        return gpu.xid
    return tuple(sorted((*gpu.xid, standing), key=lambda event: event.wall_s))


def _is_same_engine(target: Target, other: Target) -> bool:
    """Whether two jobs scrape one engine: both at one address with a port, and no pod's name says otherwise."""
    same_address = target_identity(target) == target_identity(other) and port_of(target.instance) != ""
    return same_address and job_of(target) != job_of(other) and same_pod(target.labels, other.labels)


def merge_own(machine: Machine) -> None:
    """Keep of the engines that are scraped those that the host's own gpumon does not tell of.

    Where it tells of none, and a dcgm-exporter tells of GPUs, the host is worked out here: engines and GPUs belong
    together.
    """
    if machine.snapshot is None:
        return
    unseen = _engines_unseen(machine.engines, machine.snapshot)
    count = _count_readings(machine.engines)
    if unseen:
        seen_count = count - _count_readings(unseen)
        machine.faults[_SEES_FEWER_ENGINES.format(seen_count or "none", count)] = None
    if machine.gpus and unseen and not machine.snapshot.engines:
        machine.snapshot = None
    else:
        machine.engines = unseen


def _count_readings(engines: Sequence[ScrapedEngine]) -> int:
    """Number of engines: a page of several models is several."""
    return sum(len(engine.readings) for _, engine in engines)


def _engines_unseen(engines: Sequence[ScrapedEngine], snapshot: Snapshot) -> list[ScrapedEngine]:
    """Scraped engines that a host's own gpumon does not tell of, by their kind and port, else by kind and model."""
    by_port = Counter((engine.kind, port_of(engine.url)) for engine in snapshot.engines)
    by_model = Counter((engine.kind, engine.model) for engine in snapshot.engines)
    unseen: list[ScrapedEngine] = []
    for scraped in engines:
        kind = scraped.engine.row.kind
        port_key = (kind, port_of(scraped.target.instance))
        model_key = (kind, scraped.engine.readings[0].model)
        if by_port[port_key] > 0:
            by_port[port_key] -= 1
            by_model[model_key] -= 1
        elif by_model[model_key] > 0:
            by_model[model_key] -= 1
        else:
            unseen.append(scraped)
    return unseen

"""The answers for one moment put together as one frame of the fleet.

`build_frame` has the steps: the answers sorted by target, the pages read, the machines named, everything put on its
machine, and hosts made of the machines. Each step returns a record; the memory keeps what the next moment needs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from gpumon.readings.fleet import EngineLoad, FleetFrame, GpuLoad, HostFrame
from gpumon.readings.frame import EngineReading, Fault, GpuReading, part_of_name
from gpumon.readings.text import clean
from gpumon.sources.prometheus.alike_loads import alike_notice
from gpumon.sources.prometheus.contents import ScrapedExporter, read_pages
from gpumon.sources.prometheus.cordons import taken_out
from gpumon.sources.prometheus.duplicates import engines_once
from gpumon.sources.prometheus.engine_gpus import EngineGpus, GpuAssignment, HostedEngine
from gpumon.sources.prometheus.expected import add_silent
from gpumon.sources.prometheus.expected_engines import models_gone
from gpumon.sources.prometheus.hosts import HostLabels, distinction, host_name, named_apart, owner_of
from gpumon.sources.prometheus.loads import EngineLoads, read_engine_loads, read_gpu_loads
from gpumon.sources.prometheus.machine import Machine, MachineBuilder, build_machines, merge_own
from gpumon.sources.prometheus.machine_names import MachineId
from gpumon.sources.prometheus.memory import Memory
from gpumon.sources.prometheus.models import Models
from gpumon.sources.prometheus.naming import MachineNaming, Naming, name_machines
from gpumon.sources.prometheus.other_exporters import READ_IN_PART
from gpumon.sources.prometheus.proposals import host_label_proposal, loads_apart
from gpumon.sources.prometheus.queries import Answers
from gpumon.sources.prometheus.scraped import Scraped, job_of, sort_by_target
from gpumon.sources.prometheus.targets import Target

PROMETHEUS_SOURCE: Final = "prometheus"
"""Source of the faults of a fleet that comes from a Prometheus."""
_EXAMPLES: Final = 3
"""Targets that a notice names."""
_NOTHING: Final = (
    "no engine, no GPU and no gpumon is among its series: does it scrape engines, dcgm-exporters or gpumon "
    "serve-metrics, and does [prometheus].match fit?"
)
_DOWN: Final = (
    "none of its targets answers: {} targets are down (up is 0), such as {}; its page /targets has the reason"
)
NO_UP: Final = "{} targets have no series `up`, so it is unknown whether they answer: does [prometheus].match fit `up`?"
_TWICE: Final = "{} targets come from several Prometheus (a replica label): each counts once; ask for deduplication"
TWO_JOBS: Final = "{} engines are scraped by two jobs: each counts once"
TWO_EXPORTERS: Final = "{} GPUs come from two exporters: each counts once"
UNUSED: Final = "{} [[endpoint]] of the config match no engine here: {}; compare them with the label `instance`"


class FaultTimes(NamedTuple):
    """Since when each fault of one moment holds."""

    at_s: float
    last_since: Mapping[str, float]
    """Text or key of each fault of the last moment -> Unix time since when it held."""
    since: dict[str, float]
    """The same for this moment; `fault` adds to it."""

    def fault(self, text: str, key: str = "") -> Fault:
        """A fault that holds now. `key` identifies it where hosts may have the same text."""
        since_s = self.last_since.get(key or text, self.at_s)
        self.since[key or text] = since_s
        return Fault(PROMETHEUS_SOURCE, text, since_s)


def build_frame(
    answers: Answers, memory: Memory, models: Models, labels: HostLabels, sizes: Mapping[str, int] = {}
) -> FleetFrame:
    """All hosts, by name. `sizes`: GPUs of one engine by a glob of its model's name, from the config."""
    scraped = sort_by_target(answers, memory, labels)
    contents = read_pages(scraped, memory, models, labels)
    distinct = engines_once(contents.engines, MachineNaming(memory, labels, {}))
    contents = contents._replace(engines=distinct.engines)
    naming = name_machines(contents, memory, labels)
    builder = build_machines(scraped, contents, naming, memory)
    machines = builder.machines
    silent_notices = add_silent(builder, scraped, contents, naming, memory)
    texts = [
        *(proposal.notice for proposal in naming.notices),
        *distinct.notices,
        *builder.refusals,
        *silent_notices,
        *_notices(scraped, naming, builder, memory),
    ]
    for machine in machines.values():
        merge_own(machine)
    assignments = _assign_gpus(machines, naming, models, sizes)
    texts += _unused_endpoints(machines.values(), models)
    if "engines" not in scraped.incomplete:
        texts += models_gone(memory.known_engines, _models_now(machines.values(), scraped, memory))
    apart = host_label_proposal(machines.values(), contents, labels, memory)
    texts.append(apart.notice)
    if apart.notice and apart.line is None:
        texts.append(_alike_loads_notice(machines, scraped, memory))
    lines = dict.fromkeys(proposal.line for proposal in (*naming.notices, apart) if proposal.line is not None)
    fault_times = FaultTimes(scraped.at_s, last_since=memory.fault_since_s, since={})
    namespaces = _namespaces(contents.exporters)
    engine_loads = read_engine_loads(answers, scraped, memory)
    gpu_loads = read_gpu_loads(answers, scraped, memory)
    out = taken_out(machines, memory)
    hosts = []
    for machine_id, machine in machines.items():
        host = _host(machine_id, machine, assignments, namespaces, memory, fault_times, out.get(machine_id, ""))
        hosts.append(_with_loads(host, machine, scraped, engine_loads, gpu_loads))
    faults = tuple(fault_times.fault(text) for text in dict.fromkeys(texts) if text)
    memory.fault_since_s = fault_times.since
    targets_before = memory.hosts
    memory.hosts = {host.name: tuple(machine.targets) for host, machine in zip(hosts, machines.values(), strict=True)}
    if not answers.asked:
        with_or_down = {*scraped.with_page, *scraped.down}
        memory.unread_targets = Counter(job_of(target) for target in scraped.counted - with_or_down)
    return FleetFrame(
        wall_s=scraped.at_s,
        interval_s=memory.intervals.most_common(scraped.with_page),
        hosts=tuple(sorted(hosts, key=lambda host: host.name)),
        faults=faults,
        proposals=tuple(lines),
        merged_hosts=_moved_hosts(targets_before, memory.hosts, machines.values()),
    )


def _alike_loads_notice(machines: Mapping[MachineId, Machine], scraped: Scraped, memory: Memory) -> str:
    """The notice of engines and GPUs apart from each other whose loads move alike; the memory keeps their loads."""
    engines, hosts = loads_apart(machines)
    interval_s = memory.intervals.most_common(scraped.with_page)
    memory.load_tracks.note(engines, hosts, scraped.at_s, interval_s)
    return alike_notice(memory.load_tracks, len(memory.clusters))


def _notices(scraped: Scraped, naming: Naming, builder: MachineBuilder, memory: Memory) -> list[str]:
    """The notices about the targets, the most important first."""
    notices: list[str] = []
    down = scraped.down
    if not builder.machines and not down:
        notices.append(_NOTHING)
    if not builder.machines and down:
        notices.append(_DOWN.format(len(down), _examples(down)))
    counts = {
        NO_UP: sum(not target.has_up for target in scraped.with_page),
        _TWICE: memory.replica_choice.repeated,
        TWO_JOBS: builder.repeated_engines,
        TWO_EXPORTERS: builder.repeated_gpus,
    }
    for text, count in counts.items():
        if count:
            notices.append(text.format(count))
    if naming.two_names:
        notices.append(naming.two_names)
    exporters = Counter[str]()
    for target, exporter in scraped.other_exporters.items():
        if target.key in memory.exporters:
            exporters[exporter] += len(memory.exporters[target.key].uuids_on_page)
    notices += [READ_IN_PART.format(gpus, exporter) for exporter, gpus in exporters.items()]
    notices += memory.unread
    return notices


def _examples(targets: Sequence[Target]) -> str:
    """Some of the targets as a text, by their addresses and jobs."""
    names = sorted(f"{target.instance} ({job_of(target)})" for target in targets)
    return clean(", ".join(names[:_EXAMPLES]), 200)


def _models_now(machines: Iterable[Machine], scraped: Scraped, memory: Memory) -> Iterator[str]:
    """The models of all engines, those of hosts' own gpumon among them, and those that targets of now had in the last
    day: these are silent, not gone."""
    for target in scraped.counted:
        yield memory.known_engines.models.get((job_of(target), target.instance), "")
    for machine in machines:
        for _, engine in machine.engines:
            yield from (reading.model for reading in engine.readings)
        if machine.snapshot is not None:
            yield from (engine.model for engine in machine.snapshot.engines)


def _unused_endpoints(machines: Iterable[Machine], models: Models) -> list[str]:
    """The notice of [[endpoint]] entries that match no engine, where there are engines."""
    unused = models.unused
    if unused and any(machine.engines for machine in machines):
        return [UNUSED.format(len(unused), clean(", ".join(unused[:_EXAMPLES]), 200))]
    return []


def _assign_gpus(
    machines: Mapping[MachineId, Machine], naming: Naming, models: Models, sizes: Mapping[str, int]
) -> dict[int, GpuAssignment]:
    """Id of each engine's reading -> the GPUs that it runs on.

    All machines are looked at together, as engines of one model tell of each other.
    """
    users = [naming.machines.user(target) for machine in machines.values() for target, _ in machine.engines]
    engine_gpus = EngineGpus(naming.pod_gpus, sizes, [user for user in users if user is not None])
    gpus_by_uuid: dict[str, GpuReading] = {}
    for machine in machines.values():
        gpus_by_uuid.update(machine.gpus)
    hosted: dict[MachineId, list[HostedEngine]] = {}
    by_labels: dict[MachineId, list[GpuAssignment]] = {}
    for machine_id, machine in machines.items():
        hosted[machine_id] = _hosted_engines(machine, naming, models)
        gpus = tuple(machine.gpus.values())
        by_labels[machine_id] = [engine_gpus.by_labels(engine, gpus, gpus_by_uuid) for engine in hosted[machine_id]]
    assignments: dict[int, GpuAssignment] = {}
    for machine_id, engines in hosted.items():
        gpus_in_order = machines[machine_id].gpus_in_order()
        machine_assignments = engine_gpus.by_number(engines, by_labels[machine_id], gpus_in_order)
        for engine, assignment in zip(engines, machine_assignments, strict=True):
            assignments[id(engine.reading)] = assignment
    return assignments


def _hosted_engines(machine: Machine, naming: Naming, models: Models) -> list[HostedEngine]:
    """The engines of a machine, one for each model of a page."""
    hosted: list[HostedEngine] = []
    for target, engine in machine.engines:
        endpoint = models.endpoint(target.instance)
        user = naming.machines.user(target)
        labels = target.labels.items()
        visible = next((value for name, value in labels if name.upper() == "CUDA_VISIBLE_DEVICES"), "")
        for reading in engine.readings:
            hosted.append(HostedEngine(reading, endpoint, user, visible))
    return hosted


def _namespaces(exporters: Iterable[ScrapedExporter]) -> dict[str, str]:
    """UUID of a GPU or slice -> the namespaces of the pods that use it, as an exporter that answers has them."""
    namespaces: dict[str, str] = {}
    for _, exporter, _ in exporters:
        for uuid, users in exporter.users.items():
            names = sorted({clean(user.pod.namespace, 120) for user in users if user.pod.namespace})
            if names:
                namespaces.setdefault(uuid, " + ".join(names))
    return namespaces


def _host(
    machine_id: MachineId,
    machine: Machine,
    assignments: Mapping[int, GpuAssignment],
    namespaces: Mapping[str, str],
    memory: Memory,
    fault_times: FaultTimes,
    taken_out: str,
) -> HostFrame:
    """A machine as a host of the fleet: its engines with their GPUs, its labels, owners and faults."""
    engines: list[EngineReading] = []
    workers: dict[str, tuple[str, ...]] = {}
    owners: dict[str, dict[str, str]] = {}
    for reading, assignment, target in _named_engines(machine, assignments):
        engines.append(reading)
        owners[reading.key] = owner_of(target.labels)
        if assignment.workers:
            workers[reading.key] = assignment.workers
    for uuid in _gpu_uuids(machine):
        if uuid in namespaces:
            owners[uuid] = {"namespace": namespaces[uuid]}
    gpus: tuple[GpuReading, ...] = machine.gpus_in_order() if machine.snapshot is None else ()
    faults = [fault_times.fault(text, f"{machine_id.cluster}/{machine_id.name} {text}") for text in machine.faults]
    return HostFrame(
        name=host_name(machine_id.name, machine_id.cluster, len(memory.clusters)),
        gpus=gpus,
        engines=tuple(engines),
        worker_gpus=workers,
        exported_snapshot=machine.snapshot,
        labels=_shared_labels(machine.targets),
        interval_s=memory.intervals.most_common(machine.targets),
        faults=tuple(faults),
        exporters_down=len(machine.exporters_down),
        owners=owners,
        gpumon_version=machine.gpumon_version,
        taken_out=taken_out,
    )


def _with_loads(
    host: HostFrame, machine: Machine, scraped: Scraped, engine_loads: EngineLoads, gpu_loads: Mapping[str, GpuLoad]
) -> HostFrame:
    """The host; one whose pages were not asked for, with the loads of its engines and GPUs."""
    if any(map(scraped.is_asked, machine.targets)):
        return host
    loads: dict[str, EngineLoad] = {}
    readings = iter(host.engines)
    for target, engine in machine.engines:
        by_part = engine_loads.get(target.key, {})
        for _ in engine.readings:
            reading = next(readings)
            if reading.part in by_part:
                loads[reading.key] = by_part[reading.part]
    return msgspec.structs.replace(
        host,
        is_read=False,
        engine_loads=loads,
        gpu_loads={uuid: gpu_loads[uuid] for uuid in _gpu_uuids(machine) if uuid in gpu_loads},
    )


def _gpu_uuids(machine: Machine) -> list[str]:
    """UUIDs of the GPUs and slices of a machine, as its exporters or its own gpumon tell them."""
    if machine.snapshot is None:
        return list(machine.gpus)
    return [gpu.reading.uuid for gpu in machine.snapshot.gpus]


def _named_engines(
    machine: Machine, assignments: Mapping[int, GpuAssignment]
) -> Iterable[tuple[EngineReading, GpuAssignment, Target]]:
    """The engines of a host: each with a name of its own and its GPUs, then how these are known, and its target.

    Engines of several targets at one URL get into it what tells these apart, as it identifies them.
    """
    targets = [target.labels for target, _ in machine.engines]
    names = named_apart((engine.readings[0].server_name, target.labels) for target, engine in machine.engines)
    urls = Counter(engine.readings[0].url for _, engine in machine.engines)
    for name, (target, engine) in zip(names, machine.engines, strict=True):
        for reading in engine.readings:
            assignment = assignments[id(reading)]
            place = f" {distinction(target.labels, targets)}" if urls[reading.url] > 1 else ""
            named = msgspec.structs.replace(
                reading,
                name=name + part_of_name(reading.part),
                url=reading.url + place.rstrip(),
                gpus=assignment.uuids,
                gpus_source=assignment.source,
                gpu_type=assignment.gpu_type,
                gpu_count=assignment.number,
            )
            yield named, assignment, target


def _shared_labels(targets: Sequence[Target]) -> dict[str, str]:
    """Labels that all these targets have alike, except those that name a single one."""
    first_target, *further_targets = targets
    shared: dict[str, str] = {}
    for name, value in first_target.labels.items():
        is_shared = all(target.labels.get(name) == value for target in further_targets)
        if is_shared and name not in ("job", "instance"):
            shared[clean(name, 80)] = clean(value, 120)
    return shared


def _moved_hosts(
    last_targets: Mapping[str, Sequence[Target]], hosts: Collection[str], machines: Iterable[Machine]
) -> tuple[str, ...]:
    """Hosts that are gone while a target of theirs is on another one; `last_targets`: those of the last moment."""
    target_keys = {target.key for machine in machines for target in machine.targets}
    return tuple(
        name
        for name, targets in last_targets.items()
        if name not in hosts and any(target.key in target_keys for target in targets)
    )

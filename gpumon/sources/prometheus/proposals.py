"""Lines of the config that would bring engines and the GPUs of their machines under one name.

GPUs at work without an engine beside engines without GPUs are most often one machine under two names. Each label of
their targets is tried as the first of `host_labels`; one that gives GPUs to more engines, and takes no two machines for
one, is proposed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Final, NamedTuple

from gpumon.efficiency.ratio import plus
from gpumon.efficiency.service import FRONTENDS
from gpumon.readings.fleet import LabelsLine
from gpumon.readings.frame import GpuReading
from gpumon.readings.missing import Missing
from gpumon.readings.quantities import RUNNING
from gpumon.sources.prometheus.contents import Contents
from gpumon.sources.prometheus.hosts import INSTANCE, HostLabels, host_of
from gpumon.sources.prometheus.machine import Machine
from gpumon.sources.prometheus.machine_names import MachineId
from gpumon.sources.prometheus.memory import NO_PROPOSAL, Memory, Proposal
from gpumon.sources.prometheus.queries import LABEL_NAME
from gpumon.sources.prometheus.spelling import OF_SCRAPING, to_add
from gpumon.sources.prometheus.targets import LabelPairs, Target

APART: Final = (
    "{} engines have no GPU under the name of their host, and {} hosts with GPUs at work have no engine: they may be "
    "the same machines"
)
NO_LABEL: Final = (
    "no label names both: give all targets of a machine one label `node` (relabel_configs), or gpu_type and gpu_count "
    "in [[endpoint]]"
)
_SOUNDS_LIKE_MACHINE: Final = re.compile(r"node|host|machine|server|(^|_)ip$", re.IGNORECASE)
"""Names of labels that name a machine, most likely."""
_AT_WORK_RATIO: Final = 0.05
"""Busy share from which a GPU is at work."""
_MOST_LABELS: Final = 24
"""Labels that are tried."""
_MOST_PAIRED: Final = 8
"""Labels of each side that are tried in pairs."""


class _Place(NamedTuple):
    """The labels by which a target's machine is named."""

    target: Mapping[str, str]
    page: Mapping[str, str]

    def name(self, ladder: Sequence[str]) -> str:
        """Name of the machine by this ladder."""
        return host_of(self.target, self.page, ladder)


def host_label_proposal(
    machines: Iterable[Machine], contents: Contents, labels: HostLabels, memory: Memory
) -> Proposal:
    """The notice of engines and GPUs that are apart, and the line to add; an empty one where nothing is apart.

    The memory keeps it while the targets stay the same.
    """
    engines, idle_hosts = _things_apart(machines)
    if not engines or not idle_hosts:
        return NO_PROPOSAL
    targets = {scraped.target.key for scraped in contents.exporters}
    targets.update(scraped.target.key for scraped in contents.engines)
    asked = (len(engines), idle_hosts, targets)
    if memory.proposal[0] != asked:
        memory.proposal = (asked, _proposal(engines, idle_hosts, contents, labels))
    return memory.proposal[1]


def _proposal(engines: Sequence[Target], idle_hosts: int, contents: Contents, labels: HostLabels) -> Proposal:
    """The notice of these engines and so many hosts that are apart. Hosts that labels name may well be two."""
    exporters = [_Place(scraped.target.labels, scraped.exporter.page_labels) for scraped in contents.exporters]
    places = [_Place(target.labels, {}) for target, _ in contents.engines]
    ladder = _best_ladder(places, exporters, labels.hosts)
    apart = APART.format(len(engines), idle_hosts)
    if not ladder:
        names = [label for label in labels.hosts if label != INSTANCE]
        is_bare = any(not any(target.labels.get(name) for name in names) for target in engines)
        return Proposal(f"{apart}; {NO_LABEL}") if is_bare else NO_PROPOSAL
    line = LabelsLine("host_labels", tuple(ladder))
    return Proposal(f"{apart}; {to_add(line)}", line)


def _things_apart(machines: Iterable[Machine]) -> tuple[list[Target], int]:
    """The engines on machines without GPUs, and the number of machines with GPUs at work without an engine. Routers and
    frontends need no GPU."""
    engines: list[Target] = []
    hosts = 0
    for machine in machines:
        if machine.snapshot is not None or machine.exporters_down:
            continue
        if machine.engines and not machine.gpus:
            engines += [target for target, engine in machine.engines if engine.row.kind not in FRONTENDS]
        if not machine.engines and any(map(_is_at_work, machine.gpus.values())):
            hosts += 1
    return engines, hosts


def loads_apart(machines: Mapping[MachineId, Machine]) -> tuple[dict[LabelPairs, float], dict[MachineId, float]]:
    """Requests of each engine without GPUs, by the key of its target, and watts of the GPUs of each host without an
    engine; without those that are not known as a whole."""
    engines: dict[LabelPairs, float] = {}
    hosts: dict[MachineId, float] = {}
    for machine_id, machine in machines.items():
        if machine.engines and not machine.gpus:
            engines.update(_requests_of(machine))
        elif machine.gpus and not machine.engines:
            watts = plus(*(gpu.power_w for gpu in machine.gpus.values()))
            if not isinstance(watts, Missing):
                hosts[machine_id] = watts
    return engines, hosts


def _requests_of(machine: Machine) -> Iterator[tuple[LabelPairs, float]]:
    """Key of the target of each engine of a machine, and the requests that run on it, where all its ranks tell them.
    Routers and frontends need no GPU."""
    for target, engine in machine.engines:
        ranks = [rank for reading in engine.readings for rank in reading.ranks]
        running = [rank.gauges[RUNNING] for rank in ranks if RUNNING in rank.gauges]
        if running and len(running) == len(ranks) and engine.row.kind not in FRONTENDS:
            yield target.key, sum(running)


def _is_at_work(gpu: GpuReading) -> bool:
    """Whether a GPU computes."""
    return not isinstance(gpu.busy_ratio, Missing) and gpu.busy_ratio >= _AT_WORK_RATIO


def _best_ladder(engines: Sequence[_Place], exporters: Sequence[_Place], ladder: Sequence[str]) -> Sequence[str]:
    """The ladder that gives GPUs to most engines; empty where none gives them to more than the present one."""
    hosts_now = {place.name(ladder) for place in exporters}
    best: Sequence[str] = ()
    most = _count_matched(engines, hosts_now, ladder)
    for more in _candidates(engines, exporters):
        if most == len(engines):
            break
        # One host with GPUs is joined by any label that all share: only one that sounds like a machine is meant.
        if len(hosts_now) == 1 and not all(map(_SOUNDS_LIKE_MACHINE.search, more)):
            continue
        tried = list(dict.fromkeys((*more, *ladder)))
        hosts = {place.name(tried) for place in exporters}
        matched = _count_matched(engines, hosts, tried)
        if len(hosts) >= len(hosts_now) and matched > most:
            best = tried
            most = matched
    return best


def _count_matched(engines: Sequence[_Place], hosts: set[str], ladder: Sequence[str]) -> int:
    """Number of engines whose machine has an exporter."""
    return sum(place.name(ladder) in hosts for place in engines)


def _candidates(engines: Sequence[_Place], exporters: Sequence[_Place]) -> Iterator[tuple[str, ...]]:
    """Labels to try in front of a ladder: one, then one of the engines with one of the exporters."""
    of_engines = _label_names(place.target for place in engines)
    of_exporters = _label_names(labels for place in exporters for labels in (place.target, place.page))
    for name in dict.fromkeys((*of_engines, *of_exporters)):
        yield (name,)
    yield from product(of_engines[:_MOST_PAIRED], of_exporters[:_MOST_PAIRED])


def _label_names(places: Iterable[Mapping[str, str]]) -> list[str]:
    """Names of labels that may name a machine, those with the most values first; of those that a config takes."""
    values: dict[str, set[str]] = {}
    for labels in places:
        for name, value in labels.items():
            if name not in OF_SCRAPING and value and LABEL_NAME.fullmatch(name):
                values.setdefault(name, set()).add(value)
    return sorted(values, key=lambda name: (-len(values[name]), name))[:_MOST_LABELS]

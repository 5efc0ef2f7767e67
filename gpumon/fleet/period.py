"""Days of a fleet summed up by host, model or label: look after look at each host, then one record of all hosts.

A look is a host at one moment. Counters are counted by their growth from look to look. Gauges (whether an engine ran a
request, busy, MFU) stand for the time since the look before. Time without looks is in no sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from gpumon.efficiency.ratio import plus
from gpumon.efficiency.service import engines_in_sums
from gpumon.efficiency.span_counters import SpanCounters
from gpumon.fleet.grouping import BY_HOST, BY_MODEL, Groups
from gpumon.fleet.snapshot import HostShown
from gpumon.fleet.tally import GpuTally, GroupTally
from gpumon.readings.fleet_period import (
    FleetIncident,
    FleetPeriod,
    GroupPeriod,
    HostCoverage,
    UnplacedEngines,
    UnpricedGpus,
    Waster,
)
from gpumon.readings.format import rfc3339
from gpumon.readings.frame import EndpointState, EngineReading, GpuReading, GpuState
from gpumon.readings.goals import Goals
from gpumon.readings.missing import Missing, Reading, number
from gpumon.readings.prices import Prices, price_of_hour
from gpumon.readings.snapshot import Engine, Gpu
from gpumon.readings.verdict import Level
from gpumon.triage.marks import URGENCY

MOST_STEPS_APART: Final = 1.5
"""Most steps between two looks; after a longer time it is not known what was in between, and counting begins anew."""
MOST_WASTERS: Final = 20
"""Wasters that a report lists."""
MOST_INCIDENTS: Final = 100
"""Incidents that a report lists."""
VERDICT_SOURCE: Final = "verdict"
"""Source of incidents that a host's own gpumon exports."""
ALERT_SOURCE: Final = "alert"
"""Source of incidents that are alerts of a Prometheus."""
LABELS: Final = {BY_MODEL: "model_name"}
"""Grouping -> label of an alert that names its group, where that is not the grouping's own name."""
_MEASURED_THROUGHOUT: Final = 0.98
"""Share of the time from which on a host counts as measured throughout: a few looks may be lacking."""


class Basis(NamedTuple):
    """The step, prices, goals and groups with which all hosts are summed up."""

    step_s: float
    """Seconds between two looks."""
    prices: Prices
    goals: Goals
    groups: Callable[[HostShown], Groups]
    """Gives the groups of a host at one look."""


class HostLook(NamedTuple):
    """One moment of a host."""

    at_s: float
    """Unix time."""
    shown: HostShown
    readings: Sequence[EngineReading] = ()
    """Raw readings of the engines in `shown`, as far as there are any."""
    gpus: Sequence[GpuReading] = ()
    """Raw readings of the GPUs in `shown`, as far as there are any."""
    fresh_s: float = math.inf
    """Most seconds of age of a GPU's figures that are of this look: those of a silent exporter stay for some looks."""


class HostSums:
    """Sums of one host over its looks, which it takes in their order."""

    def __init__(self, basis: Basis) -> None:
        self.measured_s = 0.0
        """Seconds between looks that are not too far apart."""
        self.spans: list[tuple[float, float]] = []
        """Spans of Unix time in which it was looked at."""
        self.gpu_tallies: dict[tuple[str, str], GpuTally] = {}
        """UUID and group -> the sums of the GPU in that group."""
        self.engine_tallies: dict[str, GroupTally] = {}
        """Group -> the sums of its engines on this host."""
        self.last_groups: dict[str, str] = {}
        """Key and name of an engine, UUID of a GPU and `gpu 3` -> the group that it was in last."""
        self.groups_of_workers: dict[str, str] = {}
        """UUID of a GPU of a worker pod, on any host -> group of its engine on this host."""
        self.unplaced: dict[str, str] = {}
        """Name of an engine whose GPUs are not known -> group."""
        self.judges_itself = False
        """Whether its own gpumon exports its verdicts."""
        self.simulated = False
        self._basis = basis
        self._last_s = -math.inf
        """Unix time of the last look."""
        self._present: frozenset[str] = frozenset()
        """UUIDs of the GPUs in the last look."""
        self._counters = SpanCounters(basis.prices, basis.goals)

    def take(self, look: HostLook) -> None:
        """Add the time since the look before, with the figures of this look."""
        seconds = self._advance(look.at_s)
        shown = look.shown
        self.judges_itself = self.judges_itself or shown.own_gpumon
        self.simulated = self.simulated or shown.snapshot.simulated
        groups = self._basis.groups(shown)
        readings = {reading.key: reading for reading in look.readings}
        self._take_gpus(look, groups, readings, seconds)
        engines = engines_in_sums(shown.snapshot.engines)
        for engine in engines:
            self._take_engine(engine, groups, readings.get(engine.key), seconds, shown)
        self._counters.keep_engines({engine.key for engine in engines})

    def _advance(self, at_s: float) -> float:
        """Move on to a look; returns the seconds since the look before, 0 where what was in between is not known."""
        seconds = at_s - self._last_s
        if not 0.0 <= seconds <= MOST_STEPS_APART * self._basis.step_s:  # a clock may be set back
            self._counters.begin_anew()
            seconds = 0.0
            self.spans.append((at_s, at_s))
        begin_s, _ = self.spans[-1]
        self.spans[-1] = (begin_s, at_s)
        self._last_s = at_s
        self.measured_s += seconds
        return seconds

    def _take_gpus(self, look: HostLook, groups: Groups, readings: Mapping[str, EngineReading], seconds: float) -> None:
        """Add the GPUs whose figures are of this look. The counters of a GPU that comes back begin anew."""
        snapshot = look.shown.snapshot
        present = []
        for gpu in snapshot.gpus:
            if gpu.reading.parent_uuid or gpu.reading.state is GpuState.STALE or gpu.age_s > look.fresh_s:
                continue
            present.append(gpu.reading.uuid)
            engines = [engine for engine in snapshot.engines if gpu.reading.index in engine.hardware.gpus]
            gpu_seconds = seconds if gpu.reading.uuid in self._present else 0.0
            self._take_gpu(gpu, groups.gpu(gpu), engines, readings, seconds=gpu_seconds, look=look)
        self._counters.forget_gpus(self._present.difference(present))
        self._present = frozenset(present)

    @property
    def covered_s(self) -> float:
        """Seconds of which its GPUs are known: those of the best known one. Without a GPU, those of its looks."""
        seconds: dict[str, float] = {}
        for (uuid, _), tally in self.gpu_tallies.items():
            seconds[uuid] = seconds.get(uuid, 0.0) + tally.seconds
        return max(seconds.values(), default=self.measured_s)

    def _take_gpu(
        self,
        gpu: Gpu,
        group: str,
        engines: Sequence[Engine],
        readings: Mapping[str, EngineReading],
        seconds: float,
        look: HostLook,
    ) -> None:
        """Add `seconds` of a GPU with its figures. `engines`: those on it."""
        tally = self.gpu_tallies.get((gpu.reading.uuid, group))
        if tally is None:
            per_hour = price_of_hour(gpu.gpu_type, self._basis.prices.per_gpu_hour)
            tally = GpuTally(gpu.reading.index, gpu.gpu_type or gpu.reading.name, per_hour)
            self.gpu_tallies[gpu.reading.uuid, group] = tally
        self.last_groups[gpu.reading.uuid] = group
        self.last_groups[f"gpu {gpu.reading.index}"] = group
        for engine in engines:
            if engine.model:
                tally.models[engine.model] = None
        energy_j = _energy_j(gpu, look.gpus)
        growth = self._counters.take_gpu(gpu, energy_j, engines, readings, seconds=seconds, wall_s=look.at_s)
        tally.take(gpu, growth, seconds)

    def _take_engine(
        self, engine: Engine, groups: Groups, reading: EngineReading | None, seconds: float, shown: HostShown
    ) -> None:
        """Add what an engine served in `seconds`. `reading`: its raw reading, if there is one."""
        group = groups.engine(engine)
        self.last_groups[engine.key] = group
        self.last_groups[engine.name] = group
        tally = self.engine_tallies.get(group)
        if tally is None:
            tally = GroupTally(group)
            self.engine_tallies[group] = tally
        tally.hosts.add(shown.name)
        served = self._counters.take_engine(engine, reading, seconds=seconds, wall_s=self._last_s)
        tally.add_tokens(served.tokens)
        if served.goodput is not None:
            tally.goodput.add_sum(served.goodput)
        else:  # without histograms, from the shares and the rate that its own gpumon tells
            tally.goodput.add_rate(engine.goodput, (number(engine.rates.requests_per_s) or 0.0) * seconds)
        self._note_placement(engine, group, tally, groups, shown)

    def _note_placement(self, engine: Engine, group: str, tally: GroupTally, groups: Groups, shown: HostShown) -> None:
        """Note which GPUs of worker pods belong to the engine's group, and where its own are not all counted there.

        It is unplaced if its GPUs are not known; its group is shared if one of its GPUs is counted to another group.
        """
        workers = shown.worker_gpus.get(engine.key, ())
        for uuid in workers:
            self.groups_of_workers[uuid] = group
        own = set(engine.hardware.gpus)
        if not own and not workers and engine.state is EndpointState.OK:
            self.unplaced[engine.name] = group
        for gpu in shown.snapshot.gpus:
            if gpu.reading.index in own and not gpu.reading.parent_uuid and groups.gpu(gpu) != group:
                tally.shared = True


def _energy_j(gpu: Gpu, readings: Iterable[GpuReading]) -> Reading:
    """The energy that a GPU counted itself, since before the first look; else what its gpumon has counted so far."""
    for reading in readings:
        if reading.uuid == gpu.reading.uuid:
            return reading.energy_j
    return gpu.energy_j


class IncidentSeen(NamedTuple):
    """A verdict or alert from its first to its last moment, before its group is known."""

    host: str
    """Empty: no label names it."""
    key: str
    """Key of an engine, UUID of a GPU or `gpu 3`; empty: it is about the host."""
    labels: Mapping[str, str]
    scope: str
    what: str
    level: Level
    begin_s: float
    end_s: float
    """Unix times of the first and the last moment."""
    ended: bool
    """False: it still stood at the end of the report."""
    source: str
    """`VERDICT_SOURCE` or `ALERT_SOURCE`."""
    consequences: int = 0
    """Incidents that came of it."""


class RecordedIncidents(NamedTuple):
    """Incidents of the reported time, and whether they are those of all hosts."""

    incidents: tuple[IncidentSeen, ...] = ()
    known_everywhere: bool = False
    """Whether rules of gpumon are evaluated: then it is known of every host whether there was an alert."""


class ReportedTime(NamedTuple):
    """The time that is reported, and how it is grouped."""

    begin_s: float
    end_s: float
    """Unix times between which it lies."""
    by: str
    """`BY_HOST`, `BY_MODEL`, or a label."""
    notes: tuple[str, ...] = ()
    """Sentences for the reader of the report."""


def fleet_period(
    hosts: Mapping[str, HostSums], reported: ReportedTime, basis: Basis, recorded: RecordedIncidents
) -> FleetPeriod:
    """The report over all hosts, from the sums of each by its name."""
    measured = {name: sums for name, sums in hosts.items() if sums.measured_s > 0.0}
    gpus = list(_grouped_gpus(measured))
    groups = _groups(measured, gpus)
    incidents = _grouped_incidents(recorded, measured, reported.by)
    _count_incidents(groups, incidents, measured, recorded)
    total = _total(groups, measured, gpus)
    periods = [group.period() for group in groups.values()]
    periods.sort(key=_dearest_first)
    measured_s = _union_s(span for sums in measured.values() for span in sums.spans)
    return FleetPeriod(
        begin=rfc3339(reported.begin_s),
        end=rfc3339(reported.end_s),
        seconds=reported.end_s - reported.begin_s,
        measured_s=measured_s,
        step_s=basis.step_s,
        by=reported.by,
        hosts=len(measured),
        total=total.period(),
        groups=tuple(periods),
        wasters=_wasters(gpus),
        incidents=incidents[:MOST_INCIDENTS],
        incidents_left_out=max(0, len(incidents) - MOST_INCIDENTS),
        without_data=tuple(sorted(hosts.keys() - measured.keys())),
        partial=_partly_measured(measured, measured_s),
        unpriced=_unpriced(measured),
        unplaced=_unplaced(measured),
        notes=reported.notes,
        simulated=any(sums.simulated for sums in measured.values()),
    )


class _GroupedGpu(NamedTuple):
    """The sums of a GPU of a host in one group."""

    host: str
    uuid: str
    group: str
    tally: GpuTally


def _grouped_gpus(hosts: Mapping[str, HostSums]) -> Iterator[_GroupedGpu]:
    """The GPUs of all hosts with their groups. A GPU of a worker pod is in the group of its engine, on whichever host
    that is."""
    groups_of_workers: dict[str, str] = {}
    for sums in hosts.values():
        groups_of_workers.update(sums.groups_of_workers)
    for name, sums in hosts.items():
        for (uuid, own_group), tally in sums.gpu_tallies.items():
            group = groups_of_workers.get(uuid, own_group)
            yield _GroupedGpu(name, uuid, group, tally)


def _groups(hosts: Mapping[str, HostSums], gpus: Iterable[_GroupedGpu]) -> dict[str, GroupTally]:
    """The sums of each group over all hosts, by name of the group."""
    groups: dict[str, GroupTally] = {}
    groups_by_host: dict[str, set[str]] = {}  # host -> the groups of its GPUs
    for gpu in gpus:
        groups_by_host.setdefault(gpu.host, set()).add(gpu.group)
        if gpu.tally.seconds > 0.0:
            groups.setdefault(gpu.group, GroupTally(gpu.group)).add_gpu(gpu.host, gpu.uuid, gpu.tally)
    for sums in hosts.values():
        _add_engines(groups, sums)
    for name, sums in hosts.items():
        for group in sums.unplaced.values():
            # Where all GPUs of the host are its group's, it does not matter on which of them it ran.
            if group in groups and groups_by_host.get(name) != {group}:
                groups[group].unplaced = True
    return groups


def _add_engines(groups: dict[str, GroupTally], sums: HostSums) -> None:
    """Add the engines of a host to their groups. Engines without a GPU and without tokens make no new group."""
    for group, engines in sums.engine_tallies.items():
        if not engines.tokens and group not in groups:
            continue
        tally = groups.setdefault(group, GroupTally(group))
        tally.add_group(engines)
        tally.shared = tally.shared or engines.shared


def _total(groups: Mapping[str, GroupTally], hosts: Mapping[str, HostSums], gpus: Iterable[_GroupedGpu]) -> GroupTally:
    """All groups as one. No GPU is shared with another group in it; unplaced are engines on hosts without any GPU."""
    total = GroupTally("")
    for group in groups.values():
        total.add_group(group)
    total.unplaced = any(sums.unplaced and not sums.gpu_tallies for sums in hosts.values())
    for gpu in gpus:
        if gpu.tally.seconds > 0.0:
            total.add_gpu(gpu.host, gpu.uuid, gpu.tally)
    return total


def _dearest_first(group: GroupPeriod) -> tuple[bool, float, float, str]:
    """Sort key of groups: the most expensive first, the one without a name last."""
    return not group.name, -(number(group.cost) or 0.0), -group.gpu_s, group.name


def _union_s(spans: Iterable[tuple[float, float]]) -> float:
    """Seconds that are in at least one span."""
    covered_s = 0.0
    reached_s = -math.inf
    for begin_s, end_s in sorted(spans):
        covered_s += max(0.0, end_s - max(begin_s, reached_s))
        reached_s = max(reached_s, end_s)
    return covered_s


def _wasters(gpus: Iterable[_GroupedGpu]) -> tuple[Waster, ...]:
    """The hosts and groups with unused GPUs, sorted by the price of the unused time; without prices by that time."""
    unused: dict[tuple[str, str], list[GpuTally]] = {}
    for gpu in gpus:
        if gpu.tally.unused_s > 0.0:
            unused.setdefault((gpu.host, gpu.group), []).append(gpu.tally)
    wasters = []
    for (host, group), tallies in unused.items():
        models = dict.fromkeys(model for tally in tallies for model in tally.models)
        wasters.append(
            Waster(
                group=group,
                host=host,
                gpus=tuple(sorted({tally.index for tally in tallies})),
                gpu_type=", ".join(sorted({tally.gpu_type for tally in tallies})),
                models=tuple(models),
                gpu_s=sum(tally.seconds for tally in tallies),
                unused_gpu_s=sum(tally.unused_s for tally in tallies),
                unused_cost=plus(*(tally.unused_cost for tally in tallies)),
            )
        )
    wasters.sort(key=_most_wasted_first)
    return tuple(wasters[:MOST_WASTERS])


def _most_wasted_first(waster: Waster) -> tuple[float, float, str, str]:
    """Sort key of wasters: by the price of their unused time, then by that time, the most first."""
    return -(number(waster.unused_cost) or 0.0), -waster.unused_gpu_s, waster.host, waster.group


def _partly_measured(hosts: Mapping[str, HostSums], measured_s: float) -> tuple[HostCoverage, ...]:
    """Hosts that were not measured in all of the `measured_s` seconds in which some host was, the least first."""
    partial = []
    for name, sums in hosts.items():
        covered_s = sums.covered_s
        if covered_s < _MEASURED_THROUGHOUT * measured_s:
            partial.append(HostCoverage(name, covered_s))
    partial.sort(key=_least_measured_first)
    return tuple(partial)


def _least_measured_first(coverage: HostCoverage) -> tuple[float, str]:
    """Sort key of hosts: the one that was measured for the shortest time first."""
    return coverage.measured_s, coverage.host


def _unpriced(hosts: Mapping[str, HostSums]) -> tuple[UnpricedGpus, ...]:
    """GPUs without a price, by type."""
    uuids: dict[str, set[str]] = {}
    seconds: dict[str, float] = {}
    for sums in hosts.values():
        for (uuid, _), tally in sums.gpu_tallies.items():
            if isinstance(tally.per_hour, Missing):
                uuids.setdefault(tally.gpu_type, set()).add(uuid)
                seconds[tally.gpu_type] = seconds.get(tally.gpu_type, 0.0) + tally.seconds
    return tuple(UnpricedGpus(name, len(uuids[name]), seconds[name]) for name in sorted(uuids))


def _unplaced(hosts: Mapping[str, HostSums]) -> tuple[UnplacedEngines, ...]:
    """Engines whose GPUs are not known, by host."""
    return tuple(
        UnplacedEngines(name, tuple(sorted(sums.unplaced)), bool(sums.gpu_tallies))
        for name, sums in sorted(hosts.items())
        if sums.unplaced
    )


def _grouped_incidents(
    recorded: RecordedIncidents, hosts: Mapping[str, HostSums], by: str
) -> tuple[FleetIncident, ...]:
    """The incidents with their groups, the most urgent and longest first."""
    incidents = []
    for incident in recorded.incidents:
        if incident.source == ALERT_SOURCE and incident.host in hosts and hosts[incident.host].judges_itself:
            continue  # the rules on what that gpumon exports say the same again
        incidents.append(
            FleetIncident(
                group=_group_of(incident, hosts, by),
                host=incident.host,
                scope=incident.scope,
                what=incident.what,
                level=incident.level,
                begin=rfc3339(incident.begin_s),
                end=rfc3339(incident.end_s),
                seconds=incident.end_s - incident.begin_s,
                ended=incident.ended,
                source=incident.source,
                consequences=incident.consequences,
            )
        )
    incidents.sort(key=_most_urgent_first)
    return tuple(incidents)


def _most_urgent_first(incident: FleetIncident) -> tuple[int, float, str, str]:
    """Sort key of incidents: the most urgent first, then the longest."""
    return URGENCY[incident.level], -incident.seconds, incident.begin, incident.scope


def _group_of(incident: IncidentSeen, hosts: Mapping[str, HostSums], by: str) -> str:
    """The group of an incident: that of the thing it is on, that of its label, or the only one of its host.

    Empty where none of them tells.
    """
    if by == BY_HOST:
        return incident.host
    groups_of_things: Mapping[str, str] = hosts[incident.host].last_groups if incident.host in hosts else {}
    if incident.key in groups_of_things:
        return groups_of_things[incident.key]
    label = LABELS.get(by, by)
    if incident.labels.get(label):
        return incident.labels[label]
    groups = set(groups_of_things.values())
    if len(groups) == 1:
        return groups.pop()
    return ""


def _count_incidents(
    groups: dict[str, GroupTally],
    incidents: Iterable[FleetIncident],
    hosts: Mapping[str, HostSums],
    recorded: RecordedIncidents,
) -> None:
    """Add the incidents to their groups; those of groups without a GPU or an engine make a group of their own."""
    for group in groups.values():
        has_judging_host = any(hosts[name].judges_itself for name in group.hosts)
        group.incidents_known = recorded.known_everywhere or has_judging_host
    for incident in incidents:
        group = groups.setdefault(incident.group, GroupTally(incident.group))
        group.incidents_known = True
        group.incidents += 1
        group.critical += incident.level is Level.CRITICAL
        group.incident_s += incident.seconds

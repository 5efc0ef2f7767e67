"""Days of a fleet summed up by host, model or label: moment after moment of each host, then one record of all.

Counters count by their growth from look to look; gauges (whether an engine ran a request, busy, MFU) are those of the
looks, and stand for the time since the look before. A time without looks enters no sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from gpumon.efficiency.costs import energy_cost_of
from gpumon.efficiency.ratio import plus
from gpumon.efficiency.service import engines_in_sums
from gpumon.efficiency.sums import TOKEN_FIELDS, CounterGrowth, GoodputCount, UnusedTime
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
from gpumon.readings.missing import Missing, Reading, number, or_nan
from gpumon.readings.prices import Prices, price_of_hour
from gpumon.readings.snapshot import Engine, Gpu
from gpumon.readings.verdict import Level
from gpumon.triage.marks import URGENCY

_LATE: Final = 1.5
"""A look that comes after more than so many steps begins anew: what was in between is not known."""
MOST_WASTERS: Final = 20
MOST_INCIDENTS: Final = 100
VERDICT: Final = "verdict"
ALERT_KIND: Final = "alert"
"""Sources of incidents."""
LABELS: Final = {BY_MODEL: "model_name"}
"""Grouping -> label of an alert that names its group."""
_MEASURED_THROUGHOUT: Final = 0.98
"""Share of the time from which on a host counts as measured throughout."""


class Basis(NamedTuple):
    """Step, prices, goals and groups by which all hosts are summed up."""

    step_s: float
    prices: Prices
    goals: Goals
    groups: Callable[[HostShown], Groups]


class HostLook(NamedTuple):
    """One moment of a host."""

    at_s: float
    """Unix time."""
    shown: HostShown
    readings: Sequence[EngineReading] = ()
    """Raw readings of the engines in `shown`, as far as there are any. So `gpus`."""
    gpus: Sequence[GpuReading] = ()
    fresh_s: float = math.inf
    """Age up to which a GPU's figures are of now: those of an exporter that is silent stay for some looks."""


class HostSums:
    """One host: takes its looks in their order."""

    def __init__(self, basis: Basis) -> None:
        self.measured_s = 0.0
        self.spans: list[tuple[float, float]] = []
        """Stretches of Unix time in which it was looked at."""
        self.cards: dict[tuple[str, str], GpuTally] = {}
        """UUID and group -> the GPU while it was in that group."""
        self.engines: dict[str, GroupTally] = {}
        """Group -> what its engines served here."""
        self.things: dict[str, str] = {}
        """Key and name of an engine, UUID and index of a GPU -> the group that it was in last."""
        self.lent: dict[str, str] = {}
        """UUID of a GPU of a worker pod, on any host -> group of its engine here."""
        self.unplaced: dict[str, str] = {}
        """Names of engines whose GPUs are not known -> group."""
        self.judges_itself = False
        """Its own gpumon exports its verdicts."""
        self.simulated = False
        self._basis = basis
        self._last_s = -math.inf
        self._present: frozenset[str] = frozenset()
        self._energy: dict[str, CounterGrowth] = {}
        self._unused: dict[str, UnusedTime] = {}
        self._tokens: dict[tuple[str, str], CounterGrowth] = {}
        self._served: dict[str, GoodputCount] = {}

    def take(self, look: HostLook) -> None:
        """Take in a look."""
        seconds = self._advance(look.at_s)
        shown = look.shown
        self.judges_itself = self.judges_itself or shown.ready
        self.simulated = self.simulated or shown.snapshot.simulated
        groups = self._basis.groups(shown)
        readings = {reading.key: reading for reading in look.readings}
        self._take_gpus(look, groups, readings, seconds)
        counted = engines_in_sums(shown.snapshot.engines)
        for engine in counted:
            self._take_engine(engine, groups, readings.get(engine.key), seconds, shown)
        self._forget_others({engine.key for engine in counted})

    def _advance(self, at_s: float) -> float:
        """Seconds since the look before; 0 where what was in between is not known."""
        seconds = at_s - self._last_s
        if not 0.0 <= seconds <= _LATE * self._basis.step_s:  # a clock may be set back
            self._begin_anew()
            seconds = 0.0
            self.spans.append((at_s, at_s))
        self.spans[-1] = (self.spans[-1][0], at_s)
        self._last_s = at_s
        self.measured_s += seconds
        return seconds

    def _take_gpus(self, look: HostLook, groups: Groups, readings: Mapping[str, EngineReading], seconds: float) -> None:
        """Take in the GPUs whose figures are of this look. A GPU that comes back counts anew."""
        snapshot = look.shown.snapshot
        present = []
        for gpu in snapshot.gpus:
            if gpu.parent_uuid or gpu.state is GpuState.STALE or gpu.age_s > look.fresh_s:
                continue
            present.append(gpu.uuid)
            engines = [engine for engine in snapshot.engines if gpu.index in engine.hardware.gpus]
            before_s = seconds if gpu.uuid in self._present else 0.0
            self._take_gpu(gpu, groups.gpu(gpu), engines, readings, before_s, look)
        for uuid in self._present.difference(present):
            self._energy.pop(uuid, None)
            self._unused.pop(uuid, None)
        self._present = frozenset(present)

    @property
    def told_s(self) -> float:
        """Time of which its GPUs are known; of a host without a GPU, its engines."""
        seconds: dict[str, float] = {}
        for (uuid, _), card in self.cards.items():
            seconds[uuid] = seconds.get(uuid, 0.0) + card.seconds
        return max(seconds.values(), default=self.measured_s)

    def _begin_anew(self) -> None:
        """Take the next values of all counters as a base line."""
        for counted in (*self._energy.values(), *self._tokens.values()):
            counted.last = None
        for unused in self._unused.values():
            unused.begin_anew()
        for served in self._served.values():
            served.begin_anew()

    def _take_gpu(
        self,
        gpu: Gpu,
        group: str,
        engines: Sequence[Engine],
        readings: Mapping[str, EngineReading],
        seconds: float,
        look: HostLook,
    ) -> None:
        card = self.cards.get((gpu.uuid, group))
        if card is None:
            per_hour = price_of_hour(gpu.gpu_type, self._basis.prices.per_gpu_hour)
            card = GpuTally(gpu.index, gpu.gpu_type or gpu.name, per_hour)
            self.cards[gpu.uuid, group] = card
        self.things[gpu.uuid] = group
        self.things[f"gpu {gpu.index}"] = group
        card.seconds += seconds
        for engine in engines:
            if engine.model:
                card.models[engine.model] = None
        unused = self._unused.setdefault(gpu.uuid, UnusedTime()).add(gpu, engines, readings, seconds)
        if not isinstance(unused, Missing):
            card.unused += unused
            card.unused_s += seconds
        card.busy.add(or_nan(gpu.busy_ratio), seconds)
        card.mfu_s += _weigh(card.mfu.add, gpu.mfu_ratio, gpu.flops_peak_per_s, seconds)
        card.mbu_s += _weigh(card.mbu.add, gpu.mbu_ratio, gpu.bandwidth_peak_bytes_per_s, seconds)
        self._take_energy(card, gpu, seconds, look)

    def _take_energy(self, card: GpuTally, gpu: Gpu, seconds: float, look: HostLook) -> None:
        """Count its energy since the look before, if both looks tell it."""
        counted = self._energy.setdefault(gpu.uuid, CounterGrowth())
        is_first = counted.last is None
        joules = counted.add(_energy_j(gpu, look.gpus), seconds)
        if is_first or counted.last is None:
            return
        card.energy_j += joules
        card.energy_s += seconds
        cost = energy_cost_of(joules, self._basis.prices.per_kwh_at(look.at_s))
        card.energy_cost = plus(card.energy_cost, cost)

    def _forget_others(self, engines: Collection[str]) -> None:
        """Forget the counters of all engines but these: one that comes back counts anew."""
        for key in self._served.keys() - engines:
            del self._served[key]
        for key, field in [*self._tokens]:
            if key not in engines:
                del self._tokens[key, field]

    def _take_engine(
        self, engine: Engine, groups: Groups, reading: EngineReading | None, seconds: float, shown: HostShown
    ) -> None:
        group = groups.engine(engine)
        self.things[engine.key] = group
        self.things[engine.name] = group
        tally = self.engines.get(group)
        if tally is None:
            tally = GroupTally(group)
            self.engines[group] = tally
        tally.hosts.add(shown.name)
        grown = {}
        for field, total in TOKEN_FIELDS.items():
            counted = self._tokens.setdefault((engine.key, field), CounterGrowth())
            growth = counted.add(getattr(engine.tokens_total, total), seconds)
            if counted.seconds:
                grown[field] = growth
        tally.add_tokens(grown)
        if reading is not None:
            served = self._served.setdefault(engine.key, GoodputCount(self._basis.goals))
            tally.goodput.add_sum(served.growth(reading))
        else:
            tally.goodput.add_rate(engine.goodput, (number(engine.rates.requests_per_s) or 0.0) * seconds)
        self._place_engine(engine, group, tally, groups, shown)

    def _place_engine(self, engine: Engine, group: str, tally: GroupTally, groups: Groups, shown: HostShown) -> None:
        """Note where the GPUs of an engine are counted."""
        workers = shown.worker_gpus.get(engine.key, ())
        for uuid in workers:
            self.lent[uuid] = group
        own = set(engine.hardware.gpus)
        if not own and not workers and engine.state is EndpointState.OK:
            self.unplaced[engine.name] = group
        for gpu in shown.snapshot.gpus:
            if gpu.index in own and not gpu.parent_uuid and groups.gpu(gpu) != group:
                tally.shared = True


def _energy_j(gpu: Gpu, readings: Iterable[GpuReading]) -> Reading:
    """The energy counter of a GPU itself, which goes back beyond the first look; else what its gpumon counted."""
    for reading in readings:
        if reading.uuid == gpu.uuid:
            return reading.energy_j
    return gpu.energy_j


def _weigh(add: Callable[[float, float], None], ratio: Reading, peak: Reading, seconds: float) -> float:
    """Add a share of a peak, weighted with it; the seconds in which it is known."""
    if isinstance(ratio, Missing) or isinstance(peak, Missing):
        return 0.0
    add(ratio, seconds * peak)
    return seconds


class IncidentSeen(NamedTuple):
    """A verdict or alert from its first to its last moment, before it is known whose it is."""

    host: str
    """Empty: no label tells it."""
    key: str
    """Key of an engine, UUID or `gpu 3`; empty: a host's."""
    labels: Mapping[str, str]
    scope: str
    what: str
    level: Level
    begin_s: float
    """Unix time; so `end_s`."""
    end_s: float
    ended: bool
    source: str


class RecordedIncidents(NamedTuple):
    """Incidents of a stretch, and of which hosts they are recorded."""

    incidents: tuple[IncidentSeen, ...] = ()
    everywhere: bool = False
    """Rules of gpumon are evaluated, so that of every host is known whether there was an alert."""


class ReportedTime(NamedTuple):
    """The time that is reported."""

    begin_s: float
    """Unix time."""
    end_s: float
    by: str
    notes: tuple[str, ...] = ()


def fleet_period(
    hosts: Mapping[str, HostSums], stretch: ReportedTime, basis: Basis, recorded: RecordedIncidents
) -> FleetPeriod:
    """All hosts as one record."""
    measured = {name: sums for name, sums in hosts.items() if sums.measured_s > 0.0}
    cards = list(_cards(measured))
    groups = _groups(measured, cards)
    incidents = _attributed(recorded, measured, stretch.by)
    _count_incidents(groups, incidents, measured, recorded)
    total = _total(groups, measured, cards)
    periods = [group.period() for group in groups.values()]
    periods.sort(key=_dearest_first)
    measured_s = _union_s(span for sums in measured.values() for span in sums.spans)
    return FleetPeriod(
        begin=rfc3339(stretch.begin_s),
        end=rfc3339(stretch.end_s),
        seconds=stretch.end_s - stretch.begin_s,
        measured_s=measured_s,
        step_s=basis.step_s,
        by=stretch.by,
        hosts=len(measured),
        total=total.period(),
        groups=tuple(periods),
        wasters=_wasters(cards),
        incidents=incidents[:MOST_INCIDENTS],
        incidents_left_out=max(0, len(incidents) - MOST_INCIDENTS),
        without_data=tuple(sorted(hosts.keys() - measured.keys())),
        partial=_partial(measured, measured_s),
        unpriced=_unpriced(measured),
        unplaced=_unplaced(measured),
        notes=stretch.notes,
        simulated=any(sums.simulated for sums in measured.values()),
    )


def _lent(hosts: Mapping[str, HostSums]) -> dict[str, str]:
    """UUID of each GPU of a worker pod -> group of its engine."""
    lent: dict[str, str] = {}
    for sums in hosts.values():
        lent.update(sums.lent)
    return lent


class _Card(NamedTuple):
    """A GPU of a host while it was in a group."""

    host: str
    uuid: str
    group: str
    tally: GpuTally


def _cards(hosts: Mapping[str, HostSums]) -> Iterator[_Card]:
    """The GPUs of all hosts. A GPU of a worker pod is its engine's, which may be on another host."""
    lent = _lent(hosts)
    for name, sums in hosts.items():
        for (uuid, own_group), tally in sums.cards.items():
            group = lent.get(uuid, own_group)
            yield _Card(name, uuid, group, tally)


def _groups(hosts: Mapping[str, HostSums], cards: Iterable[_Card]) -> dict[str, GroupTally]:
    """The groups of all hosts."""
    groups: dict[str, GroupTally] = {}
    groups_on: dict[str, set[str]] = {}
    for card in cards:
        groups_on.setdefault(card.host, set()).add(card.group)
        if card.tally.seconds > 0.0:
            groups.setdefault(card.group, GroupTally(card.group)).add_gpu(card.host, card.uuid, card.tally)
    for sums in hosts.values():
        _add_engines(groups, sums)
    for name, sums in hosts.items():
        for group in sums.unplaced.values():
            # Where all GPUs of the host are its group's, it does not matter on which of them it ran.
            if group in groups and groups_on.get(name) != {group}:
                groups[group].unplaced = True
    return groups


def _add_engines(groups: dict[str, GroupTally], sums: HostSums) -> None:
    """Add what the engines of a host served to their groups; those without a GPU and without tokens make none."""
    for group, served in sums.engines.items():
        if not served.tokens and group not in groups:
            continue
        tally = groups.setdefault(group, GroupTally(group))
        tally.add_group(served)
        tally.shared = tally.shared or served.shared


def _total(groups: Mapping[str, GroupTally], hosts: Mapping[str, HostSums], cards: Iterable[_Card]) -> GroupTally:
    """All groups as one."""
    total = GroupTally("")
    for group in groups.values():
        total.add_group(group)
    total.unplaced = any(sums.unplaced and not sums.cards for sums in hosts.values())
    for card in cards:
        if card.tally.seconds > 0.0:
            total.add_gpu(card.host, card.uuid, card.tally)
    return total


def _dearest_first(group: GroupPeriod) -> tuple[bool, float, float, str]:
    return not group.name, -(number(group.cost) or 0.0), -group.gpu_s, group.name


def _union_s(spans: Iterable[tuple[float, float]]) -> float:
    """Seconds that are in at least one span."""
    covered_s = 0.0
    reached_s = -math.inf
    for begin_s, end_s in sorted(spans):
        covered_s += max(0.0, end_s - max(begin_s, reached_s))
        reached_s = max(reached_s, end_s)
    return covered_s


def _wasters(cards: Iterable[_Card]) -> tuple[Waster, ...]:
    """GPUs of a host and group together, by the price of their unused time; without prices by that time."""
    together: dict[tuple[str, str], list[GpuTally]] = {}
    for card in cards:
        if card.tally.unused > 0.0:
            together.setdefault((card.host, card.group), []).append(card.tally)
    wasters = []
    for (host, group), tallies in together.items():
        models: dict[str, None] = {}
        priced = []
        for tally in tallies:
            models.update(tally.models)
            priced.append(tally.unused_cost)
        wasters.append(
            Waster(
                group=group,
                host=host,
                gpus=tuple(sorted({tally.index for tally in tallies})),
                gpu_type=", ".join(sorted({tally.gpu_type for tally in tallies})),
                models=tuple(models),
                gpu_s=sum(tally.seconds for tally in tallies),
                unused_gpu_s=sum(tally.unused for tally in tallies),
                unused_cost=plus(*priced),
            )
        )
    wasters.sort(key=_most_wasted_first)
    return tuple(wasters[:MOST_WASTERS])


def _most_wasted_first(waster: Waster) -> tuple[float, float, str, str]:
    return -(number(waster.unused_cost) or 0.0), -waster.unused_gpu_s, waster.host, waster.group


def _partial(hosts: Mapping[str, HostSums], measured_s: float) -> tuple[HostCoverage, ...]:
    """Hosts of which a part of the time that others tell of is not known, the least known first."""
    partial = []
    for name, sums in hosts.items():
        if sums.told_s < _MEASURED_THROUGHOUT * measured_s:
            partial.append(HostCoverage(name, sums.told_s))
    partial.sort(key=_least_measured_first)
    return tuple(partial)


def _least_measured_first(coverage: HostCoverage) -> tuple[float, str]:
    return coverage.measured_s, coverage.host


def _unpriced(hosts: Mapping[str, HostSums]) -> tuple[UnpricedGpus, ...]:
    """GPUs without a price, by type."""
    uuids: dict[str, set[str]] = {}
    seconds: dict[str, float] = {}
    for sums in hosts.values():
        for (uuid, _), card in sums.cards.items():
            if isinstance(card.per_hour, Missing):
                uuids.setdefault(card.gpu_type, set()).add(uuid)
                seconds[card.gpu_type] = seconds.get(card.gpu_type, 0.0) + card.seconds
    return tuple(UnpricedGpus(name, len(uuids[name]), seconds[name]) for name in sorted(uuids))


def _unplaced(hosts: Mapping[str, HostSums]) -> tuple[UnplacedEngines, ...]:
    """Engines whose GPUs are not known, by host."""
    unplaced = []
    for name in sorted(hosts):
        sums = hosts[name]
        if sums.unplaced:
            unplaced.append(UnplacedEngines(name, tuple(sorted(sums.unplaced)), bool(sums.cards)))
    return tuple(unplaced)


def _attributed(recorded: RecordedIncidents, hosts: Mapping[str, HostSums], by: str) -> tuple[FleetIncident, ...]:
    """The incidents with their groups, the most urgent and longest first."""
    incidents = []
    for seen in recorded.incidents:
        if seen.source == ALERT_KIND and seen.host in hosts and hosts[seen.host].judges_itself:
            continue  # the rules on what that gpumon exports say the same again
        incidents.append(
            FleetIncident(
                group=_group_of(seen, hosts, by),
                host=seen.host,
                scope=seen.scope,
                what=seen.what,
                level=seen.level,
                begin=rfc3339(seen.begin_s),
                end=rfc3339(seen.end_s),
                seconds=seen.end_s - seen.begin_s,
                ended=seen.ended,
                source=seen.source,
            )
        )
    incidents.sort(key=_most_urgent_first)
    return tuple(incidents)


def _most_urgent_first(incident: FleetIncident) -> tuple[int, float, str, str]:
    return URGENCY[incident.level], -incident.seconds, incident.begin, incident.scope


def _group_of(seen: IncidentSeen, hosts: Mapping[str, HostSums], by: str) -> str:
    """The group of an incident: by the thing that it is on, by its label, or by its host where that has one group."""
    if by == BY_HOST:
        return seen.host
    things: Mapping[str, str] = {}
    if seen.host in hosts:
        things = hosts[seen.host].things
    if seen.key in things:
        return things[seen.key]
    label = LABELS.get(by, by)
    if seen.labels.get(label):
        return seen.labels[label]
    groups = set(things.values())
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
        judged = any(hosts[name].judges_itself for name in group.hosts)
        group.recorded = recorded.everywhere or judged
    for incident in incidents:
        group = groups.setdefault(incident.group, GroupTally(incident.group))
        group.recorded = True
        group.incidents += 1
        group.critical += incident.level is Level.CRITICAL
        group.incident_s += incident.seconds

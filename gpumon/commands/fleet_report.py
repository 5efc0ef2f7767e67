"""Reports by host, model or label: of a fleet from a Prometheus, or of a recording. `gpumon report --by`."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from gpumon.commands.options import UsageError
from gpumon.commands.streams import tell_progress

if TYPE_CHECKING:
    from gpumon.config.schema import Config
    from gpumon.fleet.grouping import ReportGrouping
    from gpumon.fleet.period import Basis, HostSums, RecordedIncidents
    from gpumon.history.reader import Recording
    from gpumon.readings.fleet_period import FleetPeriod
    from gpumon.sources.prometheus.source import FleetSource
    from gpumon.triage.fresh import MakeDeriver

_USUAL_S: Final = 7 * 86400.0
"""Seconds of a Prometheus that are reported without --from."""
STEPS_S: Final = (60.0, 120.0, 300.0, 600.0, 900.0, 1800.0)
"""Seconds between two looks at a fleet: the shortest with no more than `MOST_LOOKS` looks, at most the last one."""
MOST_LOOKS: Final = 20_000
"""Looks at all hosts together: a few minutes of work."""
LEAST_LOOKS: Final = 30
"""A short time is looked at so often at least, as far as it was scraped so often."""
MOST_FAILED: Final = 3
"""Hosts whose queries fail one after the other: then the server does, and not what is asked."""
_MOST_LABELS: Final = 30
"""Labels that an error names."""
_EARLY_S: Final = 0.01
"""Seconds that rounding may put a look before its time."""
_LABEL_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,127}")
"""The name of a label."""


class ReportWork(NamedTuple):
    """Basis, groups and deriver that the looks at all hosts share."""

    basis: Basis
    grouping: ReportGrouping
    make: MakeDeriver


def check_by(by: str) -> str:
    """The label that was asked for. Raises UsageError if it cannot be the name of a label."""
    if _LABEL_NAME.fullmatch(by):
        return by
    raise UsageError(f"--by: {by[:40]!a} is no label: give host, model, or a label such as namespace or team")


async def fleet_report(chosen: argparse.Namespace, config: Config, by: str) -> FleetPeriod:
    """The report of the hosts that the Prometheus of the settings scrapes. Raises ConfigError."""
    from gpumon.commands.past_load import prometheus_source, scraped_span
    from gpumon.config.errors import ConfigError
    from gpumon.fleet.grouping import ReportGrouping
    from gpumon.fleet.period import ReportedTime, fleet_period
    from gpumon.session.build import deriver_maker
    from gpumon.sources.prometheus.incidents import recorded_incidents

    async with prometheus_source(config) as (source, newest):
        begin_s, end_s = (round(at_s, 3) for at_s in scraped_span(chosen, newest.wall_s, _USUAL_S))
        if begin_s >= end_s:
            raise ConfigError(f"--from {chosen.since or '-7d'} is not before --to {chosen.until or 'now'}")
        names, notes = await source.hosts_between(begin_s, end_s)
        least_s = max(newest.interval_s, config.prometheus.interval_s)
        step_s = _choose_step_s(end_s - begin_s, len(names), least_s=least_s, asked_s=chosen.every_s)
        grouping = ReportGrouping(by)
        work = ReportWork(_basis(config, step_s, grouping), grouping, deriver_maker(config))
        hosts, refused = await _sum_up_hosts(source, names, (begin_s, end_s), work)
        if not any(sums.measured_s for sums in hosts.values()):
            raise ConfigError(_nothing_text(begin_s, end_s, step_s, has_hosts=bool(names)))
        recorded = await recorded_incidents(source, config.prometheus.match, begin_s, end_s)
    reported = ReportedTime(begin_s, end_s, by, (*notes, *refused))
    period = fleet_period(hosts, reported, work.basis, recorded)
    _check_label(period, grouping)
    return period


def _nothing_text(begin_s: float, end_s: float, step_s: float, *, has_hosts: bool) -> str:
    """Why there is nothing to report."""
    from gpumon.outputs.period import duration_text
    from gpumon.readings.format import rfc3339

    span = f"from {rfc3339(begin_s)} to {rfc3339(end_s)}"
    if has_hosts:
        return (
            f"prometheus: of no host it has scrapes at two looks, {duration_text(step_s)} apart, {span}: "
            "if it scrapes them since shortly only, take a shorter time (--from -10m), else a longer one"
        )
    return f"prometheus: it scraped no GPU and no engine {span}: does it keep data for so long, and does match fit?"


def _choose_step_s(seconds: float, hosts: int, *, least_s: float, asked_s: float) -> float:
    """Seconds between two looks, in whole milliseconds, that divide the reported `seconds` into whole steps.

    `asked_s`: the step of the command line; 0: by the number of hosts. `least_s`: scrapes come no faster.
    """
    step_s = asked_s or min(_usual_step_s(hosts * seconds), seconds / LEAST_LOOKS)
    step_s = max(step_s, least_s)
    steps = max(1, round(seconds / step_s))
    return math.floor(1e3 * seconds / steps) / 1e3  # down: rounding up would lose the last look


def _usual_step_s(host_seconds: float) -> float:
    """The shortest of `STEPS_S` with `MOST_LOOKS` looks at all hosts together at most, else the last one."""
    for step_s in STEPS_S:
        if host_seconds / step_s <= MOST_LOOKS:
            return step_s
    return STEPS_S[-1]


def _basis(config: Config, step_s: float, grouping: ReportGrouping) -> Basis:
    """Step, prices, goals and groups that the sums of all hosts share."""
    from gpumon.config.prices import goals_of, running_prices
    from gpumon.fleet.period import Basis
    from gpumon.sources.packaged import gpu_catalogue

    prices = running_prices(config, gpu_catalogue(config.gpu))
    return Basis(step_s, prices, goals_of(config.goals), grouping.groups)


async def _sum_up_hosts(
    source: FleetSource, names: tuple[str, ...], span: tuple[float, float], work: ReportWork
) -> tuple[Mapping[str, HostSums], list[str]]:
    """Name of each host -> its sums, and notes on hosts that failed. Raises ApiFault where several fail in a row."""
    from gpumon.fleet.period import HostSums
    from gpumon.sources.prometheus.api import ApiFault

    hosts = {}
    notes: list[str] = []
    failed_in_a_row = 0
    for number, name in enumerate(names):
        tell_progress(number, len(names))
        sums = HostSums(work.basis)
        hosts[name] = sums
        try:
            await _sum_up_host(source, name, span, work, sums)
            failed_in_a_row = 0
        except ApiFault as fault:
            failed_in_a_row += 1
            notes.append(f"{name}: {fault.text}")
            if failed_in_a_row >= min(MOST_FAILED, len(names)):
                raise
    tell_progress(len(names), len(names))
    return hosts, notes


async def _sum_up_host(
    source: FleetSource, name: str, span: tuple[float, float], work: ReportWork, sums: HostSums
) -> None:
    """Take all looks at a host into its sums. Raises ApiFault."""
    from gpumon.efficiency.tracks import GAP_INTERVALS
    from gpumon.fleet.period import HostLook
    from gpumon.fleet.pipeline import HostPipeline
    from gpumon.fleet.snapshot import HostShown

    begin_s, end_s = span
    step_s = work.basis.step_s
    pipeline = HostPipeline(work.make, charted=False, judged=False)
    # A look before the first one: windows and counters of the deriver need two.
    async for frames in source.stretches(name, begin_s - step_s, end_s, step_s, own=not work.grouping.by_label):
        for at_s, frame in frames:
            moment = pipeline.take(frame, at_s, max(frame.interval_s, step_s))
            if at_s < begin_s - _EARLY_S:
                continue
            shown = HostShown(
                name=name,
                labels=frame.labels,
                snapshot=moment.snapshot,
                state=moment.state,
                worker_gpus=frame.worker_gpus,
                own_gpumon=frame.exported_snapshot is not None,
                owners=frame.owners,
            )
            sums.take(HostLook(at_s, shown, frame.engines, frame.gpus, GAP_INTERVALS * frame.interval_s))


def _check_label(period: FleetPeriod, grouping: ReportGrouping) -> None:
    """Refuse a label that nothing has. Raises ConfigError."""
    from gpumon.config.errors import ConfigError
    from gpumon.readings.text import clean

    if not grouping.by_label or any(group.name for group in period.groups):
        return
    labels = [clean(label, 60) for label in sorted(grouping.labels)[:_MOST_LABELS]]
    raise ConfigError(f"--by {period.by}: nothing has such a label; there are {', '.join(('host', 'model', *labels))}")


def recording_report(recording: Recording, config: Config, by: str, span: tuple[float, float]) -> FleetPeriod:
    """The report of a recording by model, host or namespace, between two Unix times. Blocks. Raises ConfigError."""
    from gpumon.efficiency.deriver import Deriver
    from gpumon.fleet.grouping import ReportGrouping
    from gpumon.fleet.period import HostLook, HostSums, ReportedTime, fleet_period
    from gpumon.fleet.snapshot import HostShown
    from gpumon.history.sampling import SAMPLE_S, samples_of_past
    from gpumon.sources.packaged import gpu_catalogue

    grouping = ReportGrouping(by)
    basis = _basis(config, SAMPLE_S, grouping)
    sums = HostSums(basis)
    gpus = gpu_catalogue(config.gpu)
    name = ""
    for sample in samples_of_past(recording, lambda: Deriver(gpus, basis.goals, basis.prices), *span):
        name = sample.snapshot.host.name
        frame = sample.frame
        sums.take(HostLook(frame.wall_s, HostShown(name, {}, sample.snapshot), frame.engines, frame.gpus))
    period = fleet_period({name: sums}, ReportedTime(*span, by), basis, _incidents_of_recording(recording, name, *span))
    _check_label(period, grouping)
    return period


def _incidents_of_recording(recording: Recording, name: str, from_s: float, to_s: float) -> RecordedIncidents:
    """The incidents of a recording, which has all of them; those that came of another one are counted with that."""
    from gpumon.fleet.period import VERDICT_SOURCE, IncidentSeen, RecordedIncidents
    from gpumon.history.incidents import incidents
    from gpumon.readings.format import wall_of
    from gpumon.triage.marks import URGENCY

    worst, _ = incidents(recording.events(from_s, to_s), to_s)
    incidents_seen: list[IncidentSeen] = []
    for incident in worst:
        if incident.caused_by:
            root = incidents_seen[-1]
            level = min(root.level, incident.level, key=URGENCY.__getitem__)
            incidents_seen[-1] = root._replace(consequences=root.consequences + 1, level=level)
            continue
        begin_s = wall_of(incident.begin)
        end_s = begin_s + incident.seconds
        incidents_seen.append(
            IncidentSeen(
                host=name,
                key=incident.scope,
                labels={},
                scope=incident.scope,
                what=incident.text,
                level=incident.level,
                begin_s=begin_s,
                end_s=end_s,
                ended=incident.ended,
                source=VERDICT_SOURCE,
            )
        )
    return RecordedIncidents(tuple(incidents_seen), known_everywhere=True)

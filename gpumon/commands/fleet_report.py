"""Reports by host, model or label: of a fleet from a Prometheus, or of a recording. `gpumon report --by`."""

from __future__ import annotations

import argparse
import asyncio
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
_EARLY_S: Final = 0.01
"""Seconds that rounding may put a look before its time."""
_LABEL: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,127}")


class ReportWork(NamedTuple):
    """Basis, groups and deriver that the looks at all hosts share."""

    basis: Basis
    grouping: ReportGrouping
    make: MakeDeriver


def check_by(by: str) -> str:
    """The label that was asked for. Raises UsageError if it cannot be the name of a label."""
    if _LABEL.fullmatch(by):
        return by
    raise UsageError(f"--by: {by[:40]!a} is no label: give host, model, or a label such as namespace or team")


def fleet_report(chosen: argparse.Namespace, config: Config, by: str) -> FleetPeriod:
    """The days of the fleet that a Prometheus scrapes. Raises ConfigError."""
    return asyncio.run(_scraped(chosen, config, by))


async def _scraped(chosen: argparse.Namespace, config: Config, by: str) -> FleetPeriod:
    from gpumon.commands.past_load import prometheus_source, scraped_span
    from gpumon.config.errors import ConfigError
    from gpumon.fleet.grouping import ReportGrouping
    from gpumon.fleet.period import ReportedTime, fleet_period
    from gpumon.session.build import maker
    from gpumon.sources.prometheus.incidents import recorded_incidents

    async with prometheus_source(config) as (source, newest):
        begin_s, end_s = (round(at_s, 3) for at_s in scraped_span(chosen, newest.wall_s, _USUAL_S))
        if begin_s >= end_s:
            raise ConfigError(f"--from {chosen.since or '-7d'} is not before --to {chosen.until or 'now'}")
        names, notes = await source.hosts_between(begin_s, end_s)
        least_s = max(newest.interval_s, config.prometheus.interval_s)
        step_s = _step_s(end_s - begin_s, len(names), least_s, chosen.every_s)
        grouping = ReportGrouping(by)
        work = ReportWork(_basis(config, step_s, grouping), grouping, maker(config))
        hosts, refused = await _hosts(source, names, (begin_s, end_s), work)
        if not any(sums.measured_s for sums in hosts.values()):
            raise ConfigError(_nothing(begin_s, end_s, step_s, bool(names)))
        recorded = await recorded_incidents(source, config.prometheus.match, begin_s, end_s)
    return _with_label(
        fleet_period(hosts, ReportedTime(begin_s, end_s, by, (*notes, *refused)), work.basis, recorded), grouping
    )


def _nothing(begin_s: float, end_s: float, step_s: float, hosts: bool) -> str:
    """Why there is nothing to report."""
    from gpumon.outputs.period import duration_text
    from gpumon.readings.format import rfc3339

    span = f"from {rfc3339(begin_s)} to {rfc3339(end_s)}"
    if hosts:
        return (
            f"prometheus: of no host it has scrapes at two looks, {duration_text(step_s)} apart, {span}: "
            "if it scrapes them since shortly only, take a shorter time (--from -10m), else a longer one"
        )
    return f"prometheus: it scraped no GPU and no engine {span}: does it keep data for so long, and does match fit?"


def _step_s(seconds: float, hosts: int, least_s: float, asked_s: float) -> float:
    """Seconds between two looks, in whole milliseconds: a whole number of them is in the time, but for a second."""
    step_s = asked_s
    if not step_s:
        step_s = STEPS_S[-1]
        for candidate_s in STEPS_S:
            if hosts * seconds / candidate_s <= MOST_LOOKS:
                step_s = candidate_s
                break
        step_s = min(step_s, seconds / LEAST_LOOKS)
    step_s = max(step_s, least_s)
    return math.floor(1e3 * seconds / max(1, round(seconds / step_s))) / 1e3


def _basis(config: Config, step_s: float, grouping: ReportGrouping) -> Basis:
    from gpumon.config.prices import goals_of, running_prices
    from gpumon.fleet.period import Basis
    from gpumon.sources.packaged import gpu_catalogue

    prices = running_prices(config, gpu_catalogue(config.gpu))
    return Basis(step_s, prices, goals_of(config.goals), grouping.groups)


async def _hosts(
    source: FleetSource, names: tuple[str, ...], span: tuple[float, float], work: ReportWork
) -> tuple[Mapping[str, HostSums], list[str]]:
    """The sums of each host, and what was refused. Raises ApiFault where host after host fails."""
    from gpumon.fleet.period import HostSums
    from gpumon.sources.prometheus.api import ApiFault

    hosts = {}
    notes: list[str] = []
    failed = 0
    for number, name in enumerate(names):
        tell_progress(number, len(names))
        sums = HostSums(work.basis)
        hosts[name] = sums
        try:
            await _sum_up(source, name, span, work, sums)
            failed = 0
        except ApiFault as fault:
            failed += 1
            notes.append(f"{name}: {fault.text}")
            if failed >= min(MOST_FAILED, len(names)):
                raise
    tell_progress(len(names), len(names))
    return hosts, notes


async def _sum_up(source: FleetSource, name: str, span: tuple[float, float], work: ReportWork, sums: HostSums) -> None:
    """Take all looks at a host into its sums. Raises ApiFault."""
    from gpumon.efficiency.tracks import GAP
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
                ready=frame.exported_snapshot is not None,
                owners=frame.owners,
            )
            sums.take(HostLook(at_s, shown, frame.engines, frame.gpus, GAP * frame.interval_s))


def _with_label(period: FleetPeriod, grouping: ReportGrouping) -> FleetPeriod:
    """The same. Raises ConfigError where nothing has the label that it is grouped by."""
    from gpumon.config.errors import ConfigError
    from gpumon.readings.text import clean

    if not grouping.by_label or any(group.name for group in period.groups):
        return period
    labels = [clean(label, 60) for label in sorted(grouping.labels)[:30]]
    raise ConfigError(f"--by {period.by}: nothing has such a label; there are {', '.join(('host', 'model', *labels))}")


def recording_report(recording: Recording, config: Config, by: str, span: tuple[float, float]) -> FleetPeriod:
    """A stretch of a recording by model, host or namespace. Reads a disk."""
    from gpumon.efficiency.deriver import Deriver
    from gpumon.fleet.grouping import ReportGrouping
    from gpumon.fleet.period import HostLook, HostSums, ReportedTime, fleet_period
    from gpumon.fleet.snapshot import HostShown
    from gpumon.history.summary import SAMPLE_S, derived_samples
    from gpumon.sources.packaged import gpu_catalogue

    grouping = ReportGrouping(by)
    basis = _basis(config, SAMPLE_S, grouping)
    sums = HostSums(basis)
    gpus = gpu_catalogue(config.gpu)
    name = ""
    for sample in derived_samples(recording, lambda: Deriver(gpus, basis.goals, basis.prices), *span):
        name = sample.snapshot.host.name
        frame = sample.frame
        sums.take(HostLook(frame.wall_s, HostShown(name, {}, sample.snapshot), frame.engines, frame.gpus))
    period = fleet_period({name: sums}, ReportedTime(*span, by), basis, _recorded(recording, name, *span))
    return _with_label(period, grouping)


def _recorded(recording: Recording, name: str, from_s: float, to_s: float) -> RecordedIncidents:
    """The incidents of a recording, which has all of them."""
    from gpumon.fleet.period import VERDICT, IncidentSeen, RecordedIncidents
    from gpumon.history.summary import incidents
    from gpumon.readings.format import wall_of

    worst, _ = incidents(recording.events(from_s, to_s), to_s)
    seen = []
    for incident in worst:
        begin_s = wall_of(incident.begin)
        end_s = begin_s + incident.seconds
        seen.append(
            IncidentSeen(
                *(name, incident.scope, {}, incident.scope, incident.text),
                *(incident.level, begin_s, end_s, incident.ended, VERDICT),
            )
        )
    return RecordedIncidents(tuple(seen), everywhere=True)

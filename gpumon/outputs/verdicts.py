"""Triage of a moment as Markdown: verdicts with their evidence and actions, events, faults."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timezone

from gpumon.fleet.snapshot import FleetSnapshot, HostShown
from gpumon.outputs.brief import engine_columns, gpu_columns
from gpumon.outputs.fleet import urgent_verdicts
from gpumon.outputs.markdown import header_lines, markdown_table, safe, table_line
from gpumon.outputs.period import incident_table
from gpumon.outputs.tables import PrintedColumn
from gpumon.readings.period import Incident
from gpumon.readings.snapshot import FaultShown, Kind, Snapshot
from gpumon.readings.verdict import Event, Limit, Verdict
from gpumon.triage.render import (
    LIMIT_NAMES,
    action_note,
    action_text,
    event_text,
    evidence_text,
    signal_text,
    verdict_text,
)


def markdown(
    snapshot: Snapshot, events: Sequence[Event], span: tuple[float, float] | None, incidents: Sequence[Incident] = ()
) -> str:
    """Triage of a machine, to paste into a ticket.

    `span`: Unix times of the first and the last moment that is recorded beside it. `incidents`: made of the events.
    """
    return "\n".join(_machine_lines(snapshot, events, span, incidents)) + "\n"


def fleet_markdown(snapshot: FleetSnapshot) -> str:
    """Triage of a fleet: its hosts, and of their verdicts those that say what is wrong, the worst first."""
    return "\n".join(_fleet_lines(snapshot)) + "\n"


def _fleet_lines(snapshot: FleetSnapshot) -> Iterator[str]:
    """Hosts, verdicts and faults of a fleet."""
    yield f"# fleet, {_local_time(snapshot.wall_s)}"
    yield ""
    yield "Recorded: nothing; the past is in the Prometheus."
    yield from ("", "## Hosts", "", *_host_lines(snapshot.hosts))
    yield from ("", "## Verdicts")
    verdicts = urgent_verdicts(snapshot)
    for host, verdict in verdicts:
        yield from _verdict_lines(verdict, f"{host} ")
    if not verdicts:
        yield from ("", "None.")
    yield from ("", "## Faults", "", *_fault_lines(snapshot.faults))


def _host_lines(hosts: Sequence[HostShown]) -> Iterator[str]:
    """A table of the hosts."""
    if not hosts:
        yield "None."
        return
    yield from header_lines("host|state|GPUs:|engines:|last seen")
    for host in hosts:
        last_seen = _local_time(host.seen_wall_s) if host.seen_wall_s else "-"
        counts = (str(len(host.snapshot.gpus)), str(len(host.snapshot.engines)))
        yield table_line(safe(host.name), host.state.value, *counts, last_seen)


def _machine_lines(
    snapshot: Snapshot, events: Sequence[Event], span: tuple[float, float] | None, incidents: Sequence[Incident]
) -> Iterator[str]:
    """Everything of one machine that a ticket needs."""
    simulated = ", SIMULATED" if snapshot.simulated else ""
    yield f"# {safe(snapshot.host.name)}, {_local_time(snapshot.wall_s)}{simulated}"
    yield ""
    if span is None:
        recorded = "nothing"
    else:
        recorded = f"{_local_time(span[0])} to {_local_time(span[1])}"
        moment = datetime.fromtimestamp(snapshot.wall_s, timezone.utc)
        yield from (
            f"On the screen, from this folder: `gpumon replay recording.gpumon --at {moment:%Y-%m-%dT%H:%M:%SZ}`",
            "",
        )
    yield f"Recorded: {recorded}."
    yield from ("", "## Engines", "", *_table_or_none(engine_columns(snapshot)))
    # An index is another card's after a GPU is gone and the server was restarted: a ticket needs the UUID.
    uuids = PrintedColumn("UUID", [gpu.reading.uuid for gpu in snapshot.gpus])
    yield from ("", "## GPUs", "", *_table_or_none([*gpu_columns(snapshot), uuids]))
    yield from ("", "## Verdicts")
    for verdict in snapshot.verdicts:
        yield from _verdict_lines(verdict)
    if not snapshot.verdicts:
        yield from ("", "None.")
    if incidents:
        yield from ("", "## Incidents", "", *incident_table(incidents))
    yield from ("", "## What happened", "", *_event_lines(events))
    yield from ("", "## Faults", "", *_fault_lines(snapshot.faults))


def _table_or_none(columns: Sequence[PrintedColumn]) -> Iterator[str]:
    """A table, or that it has no rows."""
    if columns[0].texts:
        yield from markdown_table(columns)
    else:
        yield "None."


def _verdict_lines(verdict: Verdict, host: str = "") -> Iterator[str]:
    """A verdict with its evidence, missing signals and actions. `host`: of a fleet, with a blank behind it."""
    yield from ("", f"### {safe(host + verdict.scope)}: {LIMIT_NAMES[verdict.code]} ({verdict.level.value})", "")
    if verdict.kind is Kind.GPU:
        yield from (safe(verdict.key), "")
    if verdict.code is not Limit.UNKNOWN:
        yield from (safe(verdict_text(verdict)), "")
    for evidence in verdict.evidence:
        source = f" ({safe(evidence.source)})" if evidence.source else ""
        yield f"- {safe(evidence_text(evidence))}{source}"
    for signal in verdict.unknown:
        yield f"- missing: {safe(signal_text(signal))}"
    for action in verdict.actions:
        yield f"- **to do:** {safe(action_note(action) + action_text(action))}"
    yield f"- confidence {verdict.confidence.value}, since {safe(verdict.since)}"


def _event_lines(events: Sequence[Event]) -> Iterator[str]:
    """A table of the events."""
    if not events:
        yield "Nothing of note."
        return
    yield from ("All that is kept; `events` of snapshot.json has only what happened since the reading before it.", "")
    yield from header_lines("time|level|what|where|")
    for event in events:
        what = event.kind.value.replace("_", " ")
        since = ""
        if event.since_s and event.wall_s - event.since_s >= 1.0:
            since = f"since {_local_time(event.since_s)}: "
        yield table_line(
            _local_time(event.wall_s), event.level.value, what, safe(event.scope), safe(f"{since}{event_text(event)}")
        )


def _fault_lines(faults: Sequence[FaultShown]) -> Iterator[str]:
    """A table of the faults."""
    if not faults:
        yield "None."
        return
    yield from header_lines("since|source|")
    for fault in faults:
        yield table_line(safe(fault.since), safe(fault.source), safe(fault.text))


def _local_time(wall_s: float) -> str:
    """Local time with its offset from UTC: a bundle is read elsewhere."""
    return datetime.fromtimestamp(wall_s, timezone.utc).astimezone().isoformat(sep=" ", timespec="seconds")

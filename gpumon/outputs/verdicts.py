"""What triage says of a moment, as Markdown: verdicts with their evidence and actions, events, faults."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timezone

from gpumon.outputs.markdown import header, row, safe
from gpumon.readings.snapshot import FaultShown, Gpu, Kind, Snapshot
from gpumon.readings.verdict import Event, Verdict


def markdown(snapshot: Snapshot, events: Sequence[Event], span: tuple[float, float] | None) -> str:
    """To paste into a ticket. `span`: Unix times of the first and the last moment that is recorded beside it."""
    return "\n".join(_lines(snapshot, events, span)) + "\n"


def _lines(snapshot: Snapshot, events: Sequence[Event], span: tuple[float, float] | None) -> Iterator[str]:
    simulated = ", SIMULATED" if snapshot.simulated else ""
    yield f"# {safe(snapshot.host.name)}, {_time(snapshot.wall_s)}{simulated}"
    yield ""
    yield f"Recorded: {_time(span[0])} to {_time(span[1])}." if span is not None else "Recorded: nothing."
    yield from ("", "## GPUs", "", *_gpus(snapshot.gpus))
    yield from ("", "## Verdicts")
    for verdict in snapshot.verdicts:
        yield from _verdict(verdict)
    if not snapshot.verdicts:
        yield from ("", "None.")
    yield from ("", "## What happened", "", *_events(events))
    yield from ("", "## Faults", "", *_faults(snapshot.faults))


def _gpus(gpus: Sequence[Gpu]) -> Iterator[str]:
    """An index is another card's after a GPU is gone and the server was restarted: a ticket needs the UUID."""
    if not gpus:
        yield "None."
        return
    yield from header("GPU:|UUID|name|state|engines")
    for gpu in gpus:
        state = f"{gpu.state.value}: {gpu.state_text}" if gpu.state_text else gpu.state.value
        engines = ", ".join(gpu.engines)
        yield row(str(gpu.index), safe(gpu.uuid), safe(gpu.name) or "-", safe(state), safe(engines) or "-")


def _verdict(verdict: Verdict) -> Iterator[str]:
    limit = verdict.limit.value.replace("_", " ")
    yield from ("", f"### {safe(verdict.scope)}: {limit} ({verdict.level.value})", "")
    if verdict.kind is Kind.GPU:
        yield from (safe(verdict.key), "")
    if verdict.text:
        yield from (f"{safe(verdict.text)}", "")
    for evidence in verdict.evidence:
        yield f"- {safe(evidence.text)}" + (f" ({safe(evidence.source)})" if evidence.source else "")
    yield from (f"- missing: {safe(signal)}" for signal in verdict.unknown)
    if verdict.action:
        yield f"- **to do:** {safe(verdict.action)}"
    yield f"- confidence {verdict.confidence.value}, since {safe(verdict.since)}"


def _events(events: Sequence[Event]) -> Iterator[str]:
    if not events:
        yield "Nothing of note."
        return
    yield from header("time|level|what|where|")
    for event in events:
        what = event.kind.value.replace("_", " ")
        yield row(_time(event.wall_s), event.level.value, what, safe(event.scope), safe(event.text))


def _faults(faults: Sequence[FaultShown]) -> Iterator[str]:
    if not faults:
        yield "None."
        return
    yield from header("since|source|")
    for fault in faults:
        yield row(safe(fault.since), safe(fault.source), safe(fault.text))


def _time(wall_s: float) -> str:
    """Local, with its offset: a bundle is read elsewhere."""
    return datetime.fromtimestamp(wall_s, timezone.utc).astimezone().isoformat(sep=" ", timespec="seconds")

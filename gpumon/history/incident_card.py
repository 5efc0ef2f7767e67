"""The card of an incident, from what a past keeps: its events, and the points of its charts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Final

from msgspec.structs import replace

from gpumon.efficiency.points import AT, HOST_SERIES, OF_GPU
from gpumon.history.frame_store import FrameStore, Points
from gpumon.history.incidents import incidents
from gpumon.history.points import last_at_or_before
from gpumon.readings.format import rfc3339, wall_of
from gpumon.readings.frame import Frame
from gpumon.readings.incident_card import CardChart, CardEvent, ChainLink, IncidentCard
from gpumon.readings.missing import NOT_EXPOSED, Reading
from gpumon.readings.period import Incident
from gpumon.readings.text import clean
from gpumon.readings.verdict import Event, EventKind, Kind, Verdict
from gpumon.triage.chain import chain_of
from gpumon.triage.marks import URGENCY
from gpumon.triage.render import action_texts, event_text, evidence_text

MOST_CHARTS: Final = 3
_MOST_EVENTS: Final = 12
_MARGIN_OF_LENGTH: Final = 0.5
"""Part of the incident's length that charts show before and after it (a choice)."""
_SHORTEST_MARGIN_S: Final = 60.0
_LONGEST_MARGIN_S: Final = 900.0
_USUAL_SERIES: Final[dict[Kind, tuple[str, ...]]] = {
    Kind.ENGINE: ("waiting", "ttft", "decode"),
    Kind.GPU: ("busy", "power", "temp"),
    Kind.HOST: ("cpu", "iowait"),
}
"""Kind of a thing -> its series that are charted where its verdict names fewer than three."""
_WHOLE_HOST: Final = ("decode", "waiting", "busy")
"""Series of the whole host that fill up."""


def incident_card(past: FrameStore, from_s: float, to_s: float) -> IncidentCard | None:
    """The card of the most urgent incident that began in a span (Unix times), the longest of several; None where there
    was none. Reads a disk."""
    events = past.events(from_s, to_s)
    listed, _ = incidents(events, to_s)
    if not listed:
        return None
    root = listed[0]
    consequences = _consequences_in(listed)
    begin_s = wall_of(root.begin)
    end_s = max(wall_of(incident.end or incident.begin) for incident in (root, *consequences))
    margin_s = min(max((end_s - begin_s) * _MARGIN_OF_LENGTH, _SHORTEST_MARGIN_S), _LONGEST_MARGIN_S)
    span = past.span() or (from_s, to_s)
    charts_from_s = max(span[0], begin_s - margin_s)
    charts_to_s = min(span[1], end_s + margin_s)
    verdict = _worst_verdict(events, root)
    told = [_worst_verdict(events, incident) for incident in consequences]
    points = past.points(charts_from_s, charts_to_s)
    frame = _frame_at(past, end_s)
    names = _names_of_things(events, frame)
    charts = [
        _chart(series, names, points, begin_s, end_s) for series in _series_of(verdict, told, points)[:MOST_CHARTS]
    ]
    return IncidentCard(
        host=clean(frame.host.name, 200) if frame is not None else "",
        simulated=frame is not None and frame.simulated,
        root=root,
        consequences=tuple(consequences),
        begin_s=begin_s,
        end_s=end_s,
        from_s=charts_from_s,
        to_s=charts_to_s,
        chain=_chain(verdict, root, zip(told, consequences, strict=True)),
        evidence=tuple(map(evidence_text, verdict.evidence)) if verdict is not None else (),
        actions=tuple(action_texts(verdict)) if verdict is not None else (),
        charts=tuple(charts),
        events=_other_events(past.events(begin_s, charts_to_s), (root, *consequences)),
    )


def _consequences_in(listed: Sequence[Incident]) -> list[Incident]:
    """The incidents behind the first one that came of it, in the order in which they began."""
    consequences = takewhile(lambda incident: incident.caused_by, listed[1:])
    return sorted(consequences, key=lambda incident: wall_of(incident.begin))


def _worst_verdict(events: Iterable[Event], root: Incident) -> Verdict | None:
    """The verdict of an incident as it was told at its worst; None for an event. A thing may have had several of one id
    at once: words tell which it was."""
    told: list[Verdict] = []
    for event in events:
        verdict = event.verdict
        if verdict is None or verdict.id != root.id or not root.begin <= rfc3339(event.wall_s) <= root.end:
            continue
        if event_text(replace(event, code="verdict_began", parameters={})) == root.text:
            return verdict
        told.append(verdict)
    return min(told, key=lambda verdict: URGENCY[verdict.level], default=None)


def _chain(
    verdict: Verdict | None, root: Incident, told: Iterable[tuple[Verdict | None, Incident]]
) -> tuple[ChainLink, ...]:
    """The chain of the verdicts of an incident, each from its begin on; empty where the cause is an event."""
    if verdict is None:
        return ()
    suffering = [replace(worst, since=incident.begin) for worst, incident in told if worst is not None]
    return chain_of(replace(verdict, since=root.begin), suffering)


def _frame_at(past: FrameStore, wall_s: float) -> Frame | None:
    """The last frame up to a time."""
    last_s = last_at_or_before(past, wall_s)
    frames = [] if last_s is None else past.frames(last_s, last_s)
    return frames[-1] if frames else None


def _names_of_things(events: Iterable[Event], frame: Frame | None) -> dict[str, str]:
    """Key of a thing -> its shown name; a GPU has the end of the keys of its series as a key, too."""
    names = {event.key: clean(event.scope, 60) for event in events if event.key}
    for gpu in frame.gpus if frame is not None else ():
        names[f"{OF_GPU}{gpu.index}"] = f"gpu {gpu.index}"
    return names


def _series_of(verdict: Verdict | None, consequences: Sequence[Verdict | None], points: Sequence[Points]) -> list[str]:
    """Keys of the series that show an incident and have points, the most telling first: what its verdict rests on, the
    first of its thing, those of the other things that suffer."""
    known = {series for cell in points for series in cell.values}
    wanted: list[str] = []
    if verdict is not None:
        own_series = _usual_series(verdict)
        wanted += [evidence.chart for evidence in verdict.evidence if evidence.chart]
        wanted += own_series[:1]
        for consequence in consequences:
            if consequence is not None and consequence.key != verdict.key:
                wanted += _usual_series(consequence)
        wanted += own_series
    wanted += _WHOLE_HOST
    return [series for series in dict.fromkeys(wanted) if series in known]


def _usual_series(verdict: Verdict) -> list[str]:
    """The series of a verdict's thing."""
    end = _end_of_series(verdict)
    return [series + end for series in _USUAL_SERIES[verdict.kind]]


def _end_of_series(verdict: Verdict) -> str:
    """The end of the keys of the series of a verdict's thing."""
    if verdict.kind is Kind.HOST:
        return f"{AT}{HOST_SERIES}"
    if verdict.kind is Kind.GPU:
        return f"{OF_GPU}{verdict.scope.removeprefix('gpu ')}"
    return f"{AT}{verdict.key}"


def _chart(series: str, names: dict[str, str], points: Sequence[Points], begin_s: float, end_s: float) -> CardChart:
    """One series, and its means before, during and after the incident."""
    _, _, engine_key = series.partition(AT)
    _, gpu_mark, index = series.partition(OF_GPU)
    thing = names.get(engine_key, "") if AT in series else names.get(f"{gpu_mark}{index}", "")
    charted = [
        (cell.wall_s, cell.values[series]) for cell in points if not math.isnan(cell.values.get(series, math.nan))
    ]
    return CardChart(
        series=series,
        thing=thing,
        points=tuple(charted),
        before=_mean(value for at_s, value in charted if at_s < begin_s),
        during=_mean(value for at_s, value in charted if begin_s <= at_s <= end_s),
        after=_mean(value for at_s, value in charted if at_s > end_s),
    )


def _mean(values: Iterable[float]) -> Reading:
    """The mean; missing where there is no value."""
    known = list(values)
    return math.fsum(known) / len(known) if known else NOT_EXPOSED


def _other_events(events: Iterable[Event], told: Sequence[Incident]) -> tuple[CardEvent, ...]:
    """The events besides verdicts that are no incident of the card, the first ones."""
    texts = {incident.text for incident in told}
    others = []
    for event in events:
        text = event_text(event)
        if event.kind is not EventKind.VERDICT and text not in texts:
            others.append(CardEvent(event.wall_s, event.scope, text))
    return tuple(others[:_MOST_EVENTS])

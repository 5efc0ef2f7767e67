"""Incidents of a part of a past, from the events that are recorded of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from gpumon.readings.format import rfc3339
from gpumon.readings.period import Incident
from gpumon.readings.snapshot import Event, EventKind, Limit
from gpumon.triage.marks import URGENCY, URGENT
from gpumon.triage.render import event_text

MOST_LISTED_INCIDENTS: Final = 200
"""Incidents that a report lists."""
_NO_INCIDENTS: Final = frozenset({EventKind.REPLICAS})
"""Kinds that are no incidents: other events beside them tell the same."""
_EXPLAINED_BY_VERDICT: Final = frozenset({EventKind.GPU, EventKind.THROTTLE})
"""Kinds that say no more than the verdict of the same GPU that they lead to."""
_MOST_LEAD_S: Final = 60.0
"""Most seconds from such an event to the verdict that it leads to."""


def incidents(events: Sequence[Event], to_s: float) -> tuple[tuple[Incident, ...], int]:
    """Incidents up to a time, the most urgent and longest first, at most `MOST_LISTED_INCIDENTS`; and how many more.

    A change of verdict ends the incident that its thing was in; a change of its level does not, and the worst is told.
    An incident that began before the first event is not known. The same event of the same thing is one incident.
    """
    verdicts = _standing_verdicts(events, to_s)
    repeated_events: dict[tuple[EventKind, str, str], list[Event]] = {}
    for event in events:
        if event.kind is EventKind.VERDICT or event.level not in URGENT or event.kind in _NO_INCIDENTS:
            continue
        if event.kind in _EXPLAINED_BY_VERDICT and any(_explains(event, verdict) for verdict in verdicts):
            continue
        repeated_events.setdefault((event.kind, event.scope, event_text(event)), []).append(event)
    all_incidents = []
    for verdict in verdicts:
        all_incidents.append(_incident_of_verdict(verdict))
    for repeats in repeated_events.values():
        all_incidents.append(_incident_of_events(repeats))
    all_incidents.sort(key=lambda incident: (URGENCY[incident.level], -incident.seconds, incident.begin))
    return tuple(all_incidents[:MOST_LISTED_INCIDENTS]), max(0, len(all_incidents) - MOST_LISTED_INCIDENTS)


class _StandingVerdict(NamedTuple):
    """An urgent verdict, from its beginning to its end."""

    event: Event
    """The event with which it began, with its worst level."""
    end_s: float
    ended: bool
    """False where it stood until the end of the period."""


def _standing_verdicts(events: Sequence[Event], to_s: float) -> list[_StandingVerdict]:
    """The urgent verdicts of a period that ends at `to_s`."""
    verdicts: list[_StandingVerdict] = []
    standing: dict[tuple[str, str], Event] = {}
    for event in events:
        if event.kind is not EventKind.VERDICT:
            continue
        thing = (event.key, event.scope)
        begin_event = standing.pop(thing, None)
        if begin_event is not None and _goes_on(begin_event, event):
            standing[thing] = _worse(begin_event, event)
            continue
        if begin_event is not None:
            verdicts.append(_StandingVerdict(begin_event, event.wall_s, ended=True))
        if event.level in URGENT:
            standing[thing] = event
    for begin_event in standing.values():
        verdicts.append(_StandingVerdict(begin_event, to_s, ended=False))
    return verdicts


def _goes_on(begin_event: Event, event: Event) -> bool:
    """Whether an event is but another level of the verdict that began."""
    code = _verdict_code(begin_event)
    return event.level in URGENT and code is not None and code is _verdict_code(event)


def _worse(begin_event: Event, event: Event) -> Event:
    """The event with which a verdict began; with the level and words of a later event, if that is more urgent."""
    if URGENCY[begin_event.level] <= URGENCY[event.level]:
        return begin_event
    return msgspec.structs.replace(begin_event, verdict=event.verdict, level=event.level)


def _verdict_code(event: Event) -> Limit | None:
    """Code of the verdict that an event is about; None where it is over, or was recorded as a sentence alone."""
    if event.verdict is not None and event.code != "verdict_over":
        return event.verdict.code
    return None


def _explains(event: Event, verdict: _StandingVerdict) -> bool:
    """Whether an event happened to the same GPU just before a verdict, or while it stood."""
    if event.key != verdict.event.key:
        return False
    return _begin_s(verdict.event) - _MOST_LEAD_S <= event.wall_s <= verdict.end_s


def _begin_s(event: Event) -> float:
    """Unix time at which that began which an event tells of; it may be told a while later."""
    return event.since_s or event.wall_s


def _incident_of_events(repeats: Sequence[Event]) -> Incident:
    """The incident of one event that may have happened several times."""
    first = repeats[0]
    last = repeats[-1]
    text = event_text(first)
    end = ""
    if len(repeats) > 1:
        text = f"{text} ({len(repeats)} times)"
        end = rfc3339(last.wall_s)
    return Incident(
        kind=first.kind,
        scope=first.scope,
        text=text,
        level=first.level,
        begin=rfc3339(first.wall_s),
        end=end,
        seconds=last.wall_s - first.wall_s,
    )


def _incident_of_verdict(verdict: _StandingVerdict) -> Incident:
    """The incident of a verdict, from its beginning to its end."""
    begin_s = _begin_s(verdict.event)
    return Incident(
        kind=verdict.event.kind,
        scope=verdict.event.scope,
        text=event_text(verdict.event),
        level=verdict.event.level,
        begin=rfc3339(begin_s),
        end=rfc3339(verdict.end_s),
        seconds=max(0.0, verdict.end_s - begin_s),
        ended=verdict.ended,
    )

"""Incidents of a part of a past, from the events that are recorded of it: one for one cause, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from gpumon.readings.format import rfc3339, wall_of
from gpumon.readings.period import Incident
from gpumon.readings.snapshot import Event, EventKind, Limit
from gpumon.triage.causes import BEFORE_S
from gpumon.triage.marks import URGENCY, URGENT
from gpumon.triage.render import event_text

MOST_LISTED_INCIDENTS: Final = 200
"""Incidents that a report lists."""
_NO_INCIDENTS: Final = frozenset({EventKind.REPLICAS})
"""Kinds that are no incidents: other events beside them tell the same."""
_EXPLAINED_BY_VERDICT: Final = frozenset({EventKind.GPU, EventKind.THROTTLE, EventKind.XID})
"""Kinds that say no more than the verdict of the same GPU that they lead to."""
_MOST_LEAD_S: Final = 60.0
"""Most seconds from such an event to the verdict that it leads to."""


def incidents(events: Sequence[Event], to_s: float) -> tuple[tuple[Incident, ...], int]:
    """Incidents up to a time, the most urgent and longest first, each with what came of it; and how many more.

    At most `MOST_LISTED_INCIDENTS` are listed, those that came of another one not counted among the rest.
    Another verdict of the same family ends the incident that its thing was in; one of another family does not, nor does
    a change of level, and the worst is told.
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
    all_incidents = [_incident_of_verdict(verdict) for verdict in verdicts]
    for repeats in repeated_events.values():
        all_incidents.append(_incident_of_events(repeats))
    listed: list[Incident] = []
    left_out = 0
    for item in _items_of(all_incidents):
        if len(listed) + 1 + len(item.consequences) > MOST_LISTED_INCIDENTS:
            left_out += 1
        else:
            listed += (item.root, *item.consequences)
    return tuple(listed), left_out


class _Item(NamedTuple):
    """An incident that came of no other, and those that came of it."""

    root: Incident
    consequences: list[Incident]

    @property
    def order(self) -> tuple[int, float, str]:
        """Sort key: the most urgent first, then the longest. Whoever suffers from a root is as urgent as that."""
        urgency = min(URGENCY[incident.level] for incident in (self.root, *self.consequences))
        return urgency, -self.root.seconds, self.root.begin


def _items_of(all_incidents: Sequence[Incident]) -> list[_Item]:
    """One item for one cause, the most urgent first; what came of an incident that is not listed is an item itself."""
    items = []
    by_id: dict[str, list[_Item]] = {}
    for incident in all_incidents:
        if not incident.caused_by:
            items.append(_Item(incident, []))
            by_id.setdefault(incident.id, []).append(items[-1])
    for incident in all_incidents:
        if not incident.caused_by:
            continue
        causes = [item for item in by_id.get(incident.caused_by, ()) if _may_come_of(incident, item.root)]
        if causes:
            causes[-1].consequences.append(incident)
        else:
            items.append(_Item(msgspec.structs.replace(incident, caused_by=""), []))
    for item in items:
        item.consequences.sort(key=lambda incident: (URGENCY[incident.level], -incident.seconds, incident.begin))
    items.sort(key=lambda item: item.order)
    return items


def _may_come_of(incident: Incident, root: Incident) -> bool:
    """Whether an incident began while the one was there that it came of, or shortly before that was known."""
    begin_s = wall_of(incident.begin)
    return wall_of(root.begin) - BEFORE_S <= begin_s <= wall_of(root.end) + BEFORE_S


class _StandingVerdict(NamedTuple):
    """An urgent verdict, from its beginning to its end."""

    event: Event
    """The event with which it began, with its worst level."""
    end_s: float
    ended: bool
    """False where it stood until the end of the period."""
    caused_by: str
    """Id of the verdict that it came of, as far as that was known at the end; empty: of none."""


def _standing_verdicts(events: Sequence[Event], to_s: float) -> list[_StandingVerdict]:
    """The urgent verdicts of a period that ends at `to_s`."""
    verdicts: list[_StandingVerdict] = []
    standing: dict[tuple[str, str, str], Event] = {}
    for event in events:
        if event.kind is not EventKind.VERDICT:
            continue
        place = (event.key, event.scope, event.verdict.id if event.verdict is not None else "")
        begin_event = standing.pop(place, None)
        if begin_event is not None and _goes_on(begin_event, event):
            standing[place] = _worse(begin_event, event)
            continue
        if begin_event is not None:
            verdicts.append(_StandingVerdict(begin_event, event.wall_s, True, _cause_of(begin_event, event)))
        if event.level in URGENT:
            standing[place] = event
    for begin_event in standing.values():
        verdicts.append(_StandingVerdict(begin_event, to_s, False, _cause_of(begin_event, begin_event)))
    return verdicts


def _cause_of(begin_event: Event, end_event: Event) -> str:
    """Id of the verdict that a verdict came of: the event of its end has what was known of it last."""
    verdict = begin_event.verdict
    last = end_event.verdict
    if verdict is None:
        return ""
    if last is not None and last.id == verdict.id and last.code is verdict.code and last.caused_by:
        return last.caused_by
    return verdict.caused_by


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
    """Whether an event happened to the same GPU just before a verdict, or while it stood; an Xid is told by a verdict
    that names one."""
    if event.key != verdict.event.key:
        return False
    if event.kind is EventKind.XID and (verdict.event.verdict is None or "xid" not in verdict.event.verdict.parameters):
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
    event = verdict.event
    if event.verdict is not None:
        # What stood there before, and how urgent it was, is the incident before it.
        event = msgspec.structs.replace(event, code="verdict_began", parameters={})
    return Incident(
        kind=verdict.event.kind,
        scope=verdict.event.scope,
        text=event_text(event),
        level=verdict.event.level,
        begin=rfc3339(begin_s),
        end=rfc3339(verdict.end_s),
        seconds=max(0.0, verdict.end_s - begin_s),
        ended=verdict.ended,
        id=verdict.event.verdict.id if verdict.event.verdict is not None else "",
        caused_by=verdict.caused_by,
    )

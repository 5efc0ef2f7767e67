"""Events to incidents: verdicts with their length, and events that stand for themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from gpumon.readings.period import Incident
from gpumon.readings.snapshot import Event, EventKind, Level
from gpumon.readings.times import rfc3339

MOST: Final = 200
_URGENT: Final = frozenset({Level.CRITICAL, Level.WARN})
_ORDER: Final = {level: at for at, level in enumerate(Level)}
_QUIET: Final = frozenset({EventKind.REPLICAS})
"""Kinds that are told by others beside them."""
_TOLD: Final = frozenset({EventKind.GPU, EventKind.THROTTLE})
"""Kinds that say no more than the verdict of the same GPU that they lead to."""
_LEAD_S: Final = 60.0
"""For so long before a verdict what led to it may happen."""


def incidents(events: Sequence[Event], to_s: float) -> tuple[tuple[Incident, ...], int]:
    """The most urgent and longest ones first, at most `MOST`; and how many were left out.

    A change of verdict ends the incident that its thing was in; one of its level does not, and the worst is told. One
    that began before the first event is not known. The same event of the same thing stands there once.
    """
    lasting = _lasting_ones(events, to_s)
    moments: dict[tuple[EventKind, str, str], list[Event]] = {}
    for event in events:
        if event.kind is EventKind.VERDICT or event.level not in _URGENT or event.kind in _QUIET:
            continue
        if event.kind not in _TOLD or not any(_led_to(event, begun, end_s) for begun, end_s, _ in lasting):
            moments.setdefault((event.kind, event.scope, event.text), []).append(event)
    found = [_lasting(*one) for one in lasting] + [_moment(same) for same in moments.values()]
    found.sort(key=lambda one: (_ORDER[one.level], -one.seconds, one.begin))
    return tuple(found[:MOST]), max(0, len(found) - MOST)


def _lasting_ones(events: Sequence[Event], to_s: float) -> list[tuple[Event, float, bool]]:
    """Verdicts that hurt, when each was over, and whether it was."""
    found: list[tuple[Event, float, bool]] = []
    standing: dict[tuple[str, str], Event] = {}
    for event in events:
        if event.kind is EventKind.VERDICT:
            at = (event.key, event.scope)
            begun = standing.pop(at, None)
            if begun is not None and event.level in _URGENT and begun.limit is event.limit:
                standing[at] = min(begun, _worse(begun, event), key=lambda one: _ORDER[one.level])
                continue
            found += [] if begun is None else [(begun, event.wall_s, True)]
            if event.level in _URGENT:
                standing[at] = event
    return found + [(begun, to_s, False) for begun in standing.values()]


def _worse(begun: Event, event: Event) -> Event:
    """The verdict that began, as it was told when its level changed."""
    text = event.text.replace(f": now {event.level.value}: ", ": ", 1)
    return msgspec.structs.replace(begun, text=text, level=event.level)


def _led_to(event: Event, verdict: Event, end_s: float) -> bool:
    return event.key == verdict.key and _begin_s(verdict) - _LEAD_S <= event.wall_s <= end_s


def _begin_s(event: Event) -> float:
    return event.since_s or event.wall_s


def _moment(same: Sequence[Event]) -> Incident:
    first, last = same[0], same[-1]
    text = first.text if len(same) == 1 else f"{first.text} ({len(same)} times)"
    seconds = last.wall_s - first.wall_s
    end = rfc3339(last.wall_s) if len(same) > 1 else ""
    return Incident(first.kind, first.scope, text, first.level, rfc3339(first.wall_s), end, seconds)


def _lasting(event: Event, end_s: float, ended: bool) -> Incident:
    return Incident(
        kind=event.kind,
        scope=event.scope,
        text=event.text,
        level=event.level,
        begin=rfc3339(_begin_s(event)),
        end=rfc3339(end_s),
        seconds=max(0.0, end_s - _begin_s(event)),
        ended=ended,
    )

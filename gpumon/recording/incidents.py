"""Events to incidents: verdicts with their length, and events that stand for themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpumon.readings.period import Incident
from gpumon.readings.snapshot import Event, EventKind, Level
from gpumon.readings.times import rfc3339

MOST: Final = 200
_URGENT: Final = frozenset({Level.CRITICAL, Level.WARN})
_ORDER: Final = {level: at for at, level in enumerate(Level)}
_QUIET: Final = frozenset({EventKind.REPLICAS})
"""Kinds that are told by others beside them."""


def incidents(events: Sequence[Event], to_s: float) -> tuple[tuple[Incident, ...], int]:
    """The most urgent and longest ones first, at most `MOST`; and how many were left out.

    A change of verdict ends the incident that its thing was in. One that began before the first event is not known.
    """
    found: list[Incident] = []
    open_: dict[tuple[str, str], Event] = {}
    for event in events:
        if event.kind is not EventKind.VERDICT:
            if event.level in _URGENT and event.kind not in _QUIET:
                found.append(_moment(event))
            continue
        at = (event.key, event.scope)
        begun = open_.pop(at, None)
        if begun is not None:
            found.append(_lasting(begun, event.wall_s, ended=True))
        if event.level in _URGENT:
            open_[at] = event
    found += [_lasting(begun, to_s, ended=False) for begun in open_.values()]
    found.sort(key=lambda one: (_ORDER[one.level], -one.seconds, one.begin))
    return tuple(found[:MOST]), max(0, len(found) - MOST)


def _moment(event: Event) -> Incident:
    return Incident(event.kind, event.scope, event.text, event.level, rfc3339(event.wall_s))


def _lasting(event: Event, end_s: float, *, ended: bool) -> Incident:
    return Incident(
        kind=event.kind,
        scope=event.scope,
        text=event.text,
        level=event.level,
        begin=rfc3339(event.wall_s),
        end=rfc3339(end_s),
        seconds=max(0.0, end_s - event.wall_s),
        ended=ended,
    )

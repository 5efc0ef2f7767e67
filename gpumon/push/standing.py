"""The items of a snapshot that may be sent: its verdicts, and its alerts on figures."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from gpumon.outputs.json import as_object
from gpumon.outputs.private import nameless_verdict
from gpumon.push.records import SENT_LEVELS, Change, ChangeState
from gpumon.readings.snapshot import Snapshot
from gpumon.readings.text import clean
from gpumon.readings.verdict import Level, Limit, RaisedAlert, Verdict
from gpumon.triage.render import LIMIT_NAMES, actions_text, verdict_text
from gpumon.triage.silence import ALERT

_LONGEST_TEXT = 600
"""Characters of a verdict's sentence, and of its actions."""
MOST_NAME = 80
"""Characters of a name or a title."""
ID_DIGITS = 32
"""Hexadecimal digits of the id of a verdict's place, and of an incident."""
_NO_NEWS = frozenset({Limit.HEALTHY, Limit.EVALUATING, Limit.UNKNOWN})
"""Verdicts that are no news at level note; an unknown one that is more urgent has a fault beside it."""


class StandingItem(NamedTuple):
    """A verdict or an alert of this moment."""

    place: str
    """Key of the verdict or alert among all of this host."""
    key: str
    """Stable id of the engine or GPU; empty for the host, and for an alert."""
    code: str
    scope: str
    level: str
    thing: Verdict | RaisedAlert


def standing_items(snapshot: Snapshot) -> Iterator[StandingItem]:
    """Everything that stands in a snapshot at level note or above."""
    for verdict in snapshot.verdicts:
        level = verdict.level.value
        is_quiet = verdict.level is Level.NOTE and verdict.code in _NO_NEWS
        if level in SENT_LEVELS and not is_quiet:
            place = f"{verdict.kind.value}/{verdict.key}/{verdict.code.value}"
            yield StandingItem(
                place=place,
                key=verdict.key,
                code=verdict.code.value,
                scope=verdict.scope,
                level=level,
                thing=verdict,
            )
    for alert in snapshot.alerts:
        if not alert.level:  # one on a verdict is that verdict
            yield StandingItem(
                place=f"alert/{alert.name}/{alert.scope}",
                key="",
                code=ALERT,
                scope=alert.scope,
                level=Level.WARN.value,
                thing=alert,
            )


def keys_of(snapshot: Snapshot) -> set[str]:
    """Stable ids of the engines and GPUs that are listed; "" for the host."""
    keys = {""}
    keys.update(engine.key for engine in snapshot.engines)
    keys.update(gpu.uuid for gpu in snapshot.gpus)
    return keys


def change_that_began(item: StandingItem, snapshot: Snapshot, incident: str) -> Change:
    """The change of what has just begun, in words and figures, without names of processes and users."""
    host = clean(snapshot.host.name, MOST_NAME)
    thing = item.thing
    verdict: dict[str, Any] = {}
    if isinstance(thing, Verdict):
        public = nameless_verdict(thing)
        kind = thing.kind.value
        title = LIMIT_NAMES.get(thing.code, thing.code.value)
        text = verdict_text(public)
        action = actions_text(public)
        verdict = as_object(public)
    else:
        kind = ""
        title = thing.name
        text = thing.text
        action = thing.action
    return Change(
        state=ChangeState.BEGAN,
        id=identity(host, item.place),
        incident=incident,
        wall_s=snapshot.wall_s,
        since=thing.since,
        host=host,
        kind=kind,
        scope=clean(item.scope, MOST_NAME),
        code=item.code,
        level=item.level,
        title=clean(title, MOST_NAME),
        text=clean(text, _LONGEST_TEXT),
        action=clean(action, _LONGEST_TEXT),
        simulated=snapshot.simulated,
        verdict=verdict,
    )


def identity(host: str, place: str) -> str:
    """A short id of a verdict's place on a host, which holds no name from outside."""
    return hashlib.sha256(f"{host}\n{place}".encode("utf-8", "surrogatepass")).hexdigest()[:ID_DIGITS]

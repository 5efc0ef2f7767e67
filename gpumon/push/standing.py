"""The items of a snapshot that may be sent: its verdicts, and its alerts on figures."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from gpumon.outputs.json import as_object
from gpumon.outputs.private import nameless_verdict
from gpumon.push.records import Change, ChangeState
from gpumon.readings.snapshot import Snapshot
from gpumon.readings.text import clean
from gpumon.readings.verdict import Level, Limit, RaisedAlert, Verdict
from gpumon.triage.render import LIMIT_NAMES, actions_text, verdict_text
from gpumon.triage.roots import Root, root_text, roots_of
from gpumon.triage.silence import ALERT

_LONGEST_TEXT = 600
"""Characters of a verdict's sentence, and of its actions."""
MOST_NAME = 80
"""Characters of a name or a title."""
MOST_CONSEQUENCES = 16
"""Consequences that are sent with their cause."""
ID_DIGITS = 32
"""Hexadecimal digits of the id of a verdict's place, and of an incident."""
_NO_NEWS = frozenset({Limit.HEALTHY, Limit.EVALUATING, Limit.UNKNOWN, Limit.NOT_VISIBLE})
"""Verdicts that are no news at level note; an unknown one that is more urgent has a fault beside it."""


class StandingItem(NamedTuple):
    """A cause with all that comes of it, or an alert, of this moment."""

    places: tuple[str, ...]
    """Keys of the verdicts that are alike, or of the alert, among all of this host: one mostly."""
    key: str
    """Stable id of the engine or GPU; empty for the host, and for an alert."""
    code: str
    scope: str
    level: str
    thing: Root | RaisedAlert

    @property
    def is_acknowledged(self) -> bool:
        """Whether somebody has acknowledged it."""
        return isinstance(self.thing, Root) and self.thing.acknowledged is not None

    @property
    def scopes(self) -> list[str]:
        """Names of all things that it is about."""
        if isinstance(self.thing, Root):
            return [verdict.scope for verdict in self.thing.verdicts]
        return [self.scope]

    @property
    def place(self) -> str:
        """Key of the first verdict, or of the alert."""
        return self.places[0]


def place_of(verdict: Verdict) -> str:
    """Key of a verdict among all of its host."""
    return f"{verdict.kind.value}/{verdict.key}/{verdict.code.value}"


def standing_items(snapshot: Snapshot) -> Iterator[StandingItem]:
    """Everything that stands in a snapshot at level note or above, with its consequences."""
    for root in roots_of(snapshot.verdicts):
        if root.level is not Level.NOTE or root.first.code not in _NO_NEWS:
            yield item_of(root)
    for alert in snapshot.alerts:
        if not alert.level:  # one on a verdict is that verdict
            yield StandingItem(
                places=(f"alert/{alert.name}/{alert.scope}",),
                key="",
                code=ALERT,
                scope=alert.scope,
                level=Level.WARN.value,
                thing=alert,
            )


def item_of(root: Root) -> StandingItem:
    """A cause as what a receiver is told of."""
    return StandingItem(
        places=tuple(place_of(verdict) for verdict in root.verdicts),
        key=root.first.key,
        code=root.first.code.value,
        scope=root.scope,
        level=root.level.value,
        thing=root,
    )


def change_that_began(item: StandingItem, snapshot: Snapshot, incident: str) -> Change:
    """The change of what has just begun, in words and figures, without names of processes and users."""
    host = clean(snapshot.host.name, MOST_NAME)
    thing = item.thing
    verdict: dict[str, Any] = {}
    consequences: list[dict[str, Any]] = []
    if isinstance(thing, Root):
        public = Root(
            tuple(nameless_verdict(verdict) for verdict in thing.verdicts),
            tuple(nameless_verdict(verdict) for verdict in thing.consequences),
        )
        kind = public.first.kind.value
        title = LIMIT_NAMES.get(public.first.code, public.first.code.value)
        since = public.first.since
        text = _root_words(public, snapshot)
        action = actions_text(public.advised)
        verdict = as_object(public.first)
        consequences = [as_object(consequence) for consequence in public.consequences[:MOST_CONSEQUENCES]]
    else:
        kind = ""
        title = thing.name
        since = thing.since
        text = thing.text
        action = thing.action
    return Change(
        state=ChangeState.BEGAN,
        id=identity(host, item.place),
        incident=incident,
        wall_s=snapshot.wall_s,
        since=since,
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
        consequences=consequences,
    )


def _root_words(root: Root, snapshot: Snapshot) -> str:
    """The sentence of a cause, and a line for each thing that suffers from it."""
    lines = [root_text(root, snapshot)]
    for consequence in root.consequences[:MOST_CONSEQUENCES]:
        name = LIMIT_NAMES.get(consequence.code, consequence.code.value)
        lines.append(f"{clean(consequence.scope, MOST_NAME)}: {name}: {verdict_text(consequence)}")
    return "; ".join(lines)


def identity(host: str, place: str) -> str:
    """A short id of a verdict's place on a host, which holds no name from outside."""
    return hashlib.sha256(f"{host}\n{place}".encode("utf-8", "surrogatepass")).hexdigest()[:ID_DIGITS]

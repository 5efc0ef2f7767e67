"""Alerts: conditions that must hold for a while to be raised, and be gone for a while to be over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from gpumon.readings.format import rfc3339
from gpumon.readings.frame import Frame
from gpumon.readings.missing import NOT_EXPOSED
from gpumon.readings.snapshot import RaisedAlert, Snapshot
from gpumon.readings.text import clean
from gpumon.triage.condition import Condition, Sight

_MOST_TEXT: Final = 300
_MOST_ACTION: Final = 600


class AlertRule(NamedTuple):
    """One alert of the config. Times in seconds."""

    name: str
    condition: Condition
    for_s: float
    clear_s: float
    bell: bool = False
    title: bool = False
    command: tuple[str, ...] = ()


class AlertChange(NamedTuple):
    """An alert was raised, or is over."""

    rule: AlertRule
    alert: RaisedAlert
    raised: bool


class _State(NamedTuple):
    since_s: float
    """Monotonic: since when it holds without a break; once raised, when it held last."""
    since_wall_s: float
    """Unix time since when it holds, or held when it was raised."""
    held_s: float
    """Monotonic: when it held last."""
    missed: bool
    """The figure has been missing since."""
    raised: RaisedAlert | None


class Alerts:
    """Which alerts hold; knows no clock. A figure that is missing neither raises an alert nor ends one.

    One that is missing for as long as an alert waits to be raised is waited for anew.
    """

    def __init__(self, rules: Sequence[AlertRule] = ()) -> None:
        self._rules = tuple(rules)
        self._states: dict[tuple[int, str], _State] = {}

    def judge(self, frame: Frame, snapshot: Snapshot) -> tuple[Snapshot, tuple[AlertChange, ...]]:
        """The snapshot with the alerts that hold, and what changed since the one before."""
        if not self._rules:
            return snapshot, ()
        changes: list[AlertChange] = []
        for number, rule in enumerate(self._rules):
            sights = {sight.key: sight for sight in rule.condition.look(snapshot)}
            known = [key for at, key in self._states if at == number]
            for key in dict.fromkeys((*sights, *known)):
                change = self._step(number, rule, key, sights.get(key), frame)
                changes += [] if change is None else [change]
        raised = tuple(state.raised for state in self._states.values() if state.raised is not None)
        return msgspec.structs.replace(snapshot, alerts=raised), tuple(changes)

    def _step(self, number: int, rule: AlertRule, key: str, sight: Sight | None, frame: Frame) -> AlertChange | None:
        now_s, at = frame.monotonic_s, (number, key)
        state = self._states.get(at)
        holds = False if sight is None else sight.holds
        if holds is None:
            if state is not None:
                self._states[at] = state._replace(missed=True)
            return None
        if state is None or state.raised is None:
            if not holds or sight is None:
                self._states.pop(at, None)
                return None
            lapsed = state is not None and state.missed and now_s - state.held_s > rule.for_s
            since_s, wall_s = (now_s, frame.wall_s) if state is None or lapsed else (state.since_s, state.since_wall_s)
            if now_s - since_s < rule.for_s:
                self._states[at] = _State(since_s, wall_s, now_s, missed=False, raised=None)
                return None
            alert = _raised(rule, sight, wall_s)
            self._states[at] = _State(now_s, wall_s, now_s, missed=False, raised=alert)
            return AlertChange(rule, alert, raised=True)
        if holds:
            self._states[at] = state._replace(since_s=now_s, held_s=now_s, missed=False)
        elif now_s - state.since_s >= rule.clear_s:
            del self._states[at]
            return AlertChange(rule, state.raised, raised=False)
        return None


def _raised(rule: AlertRule, sight: Sight, since_wall_s: float) -> RaisedAlert:
    """A verdict has held for a while before it is given, and so before it was seen."""
    verdict, seen = sight.verdict, rfc3339(since_wall_s)
    return RaisedAlert(
        name=clean(rule.name, 80),
        scope=clean(sight.scope, 80),
        text=clean(sight.text, _MOST_TEXT),
        since=min(seen, verdict.since) if verdict is not None else seen,
        value=sight.value if sight.value is not None else NOT_EXPOSED,
        bell=rule.bell,
        title=rule.title,
        level=verdict.level.value if verdict is not None else "",
        action=clean(verdict.action, _MOST_ACTION) if verdict is not None else "",
    )

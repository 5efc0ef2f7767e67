"""Alerts: conditions on verdicts or figures that must hold for a while to be raised, and be gone to be over."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

import msgspec

from gpumon.readings.flat import flat_fields, value_of
from gpumon.readings.format import rfc3339
from gpumon.readings.frame import Frame, HostReading
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading
from gpumon.readings.snapshot import Engine, Gpu, Replicas, Snapshot
from gpumon.readings.text import clean
from gpumon.readings.verdict import LIMIT_CODES, Level, Limit, RaisedAlert, Verdict
from gpumon.triage.render import actions_text, verdict_text
from gpumon.triage.roots import root_text, roots_of

_FORMS: Final = (
    'a verdict such as kv_cache_full or "critical", or a figure with a limit such as "engines.kv_usage_ratio > 0.95"; '
    'after the first word [NAME] narrows it down: "engines[llama*].ttft_s.p95 > 2"'
)
_FIGURE: Final = re.compile(
    r"(?P<list>[a-z]+)\s*(\[(?P<glob>[^\]]+)\])?\.(?P<path>[a-z_0-9.]+)\s*(?P<sign>>=|<=|>|<)\s*(?P<number>[-+.\deE]+)"
)
_WORD: Final = re.compile(r"(?P<word>[a-z_]+)\s*(\[(?P<glob>[^\]]+)\])?")
_SIGNS: Final[dict[str, Callable[[float, float], bool]]] = {
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}
_LISTS: Final[dict[str, type[msgspec.Struct]]] = {
    "gpus": Gpu,
    "engines": Engine,
    "replicas": Replicas,
    "host": HostReading,
}
_LEVEL_ORDER: Final = {level.value: index for index, level in enumerate(Level)}
"""Word of a level -> its index, the most urgent first."""
_MOST_NAMED: Final = 8
"""Fields that are named in an error."""
_NUMBERS: Final = (Reading, float, int)
"""Types of fields that are numbers."""
_FINE: Final = frozenset({Limit.HEALTHY.value, Limit.EVALUATING.value})
"""Words of verdicts that no alert can be on."""


class Sight(NamedTuple):
    """How a condition stands with one thing."""

    key: str
    """Identity of the thing."""
    scope: str
    holds: bool | None
    """None: the figure is missing, so nobody knows."""
    text: str
    value: Reading
    verdict: Verdict | None = None
    """The verdict that raised it; None for a figure."""


class Condition(NamedTuple):
    """A parsed condition."""

    text: str
    look: Callable[[Snapshot], Iterator[Sight]]
    """Every thing that it is about, and how it stands there."""


def parse(text: str) -> Condition:
    """Read a condition. Raises ValueError, whose text ends a sentence that begins with the setting and its value."""
    text = text.strip()
    figure = _FIGURE.fullmatch(text)
    if figure is not None:
        return Condition(text, _figure_look(figure))
    word = _WORD.fullmatch(text)
    if word is None:
        raise ValueError(f"must be {_FORMS}")
    name = word["word"]
    glob = word["glob"] or "*"
    if name in _LEVEL_ORDER and name != Level.OK.value:
        return Condition(text, _level_look(glob, name))
    if name in LIMIT_CODES and name not in _FINE:
        return Condition(text, _verdict_look(glob, lambda verdict: verdict.code.value == name))
    known = sorted({*LIMIT_CODES, *_LEVEL_ORDER} - {*_FINE, Level.OK.value})
    raise ValueError(f"no verdict has this word; known: {', '.join(known)}; or write {_FORMS.partition(', or ')[2]}")


def _level_look(glob: str, level: str) -> Callable[[Snapshot], Iterator[Sight]]:
    """The look at a level: one sight per cause that is as urgent or more, by itself or by what comes of it, and that is
    about a thing of such a name, or has a consequence which is."""

    def look(snapshot: Snapshot) -> Iterator[Sight]:
        things: set[tuple[str, str]] = set()
        for root in roots_of(snapshot.verdicts):
            verdict = root.first
            thing = (verdict.kind.value, verdict.key)
            if _LEVEL_ORDER[root.level.value] > _LEVEL_ORDER[level] or thing in things:
                continue
            if any(fnmatchcase(one.scope, glob) for one in (*root.verdicts, *root.consequences)):
                things.add(thing)
                text = f"{verdict.code.value}: {root_text(root, snapshot)}"
                yield Sight(
                    key="/".join(thing),
                    scope=root.scope,
                    holds=True,
                    text=text,
                    value=NOT_EXPOSED,
                    verdict=msgspec.structs.replace(verdict, level=root.level),
                )

    return look


def _verdict_look(glob: str, matches: Callable[[Verdict], bool]) -> Callable[[Snapshot], Iterator[Sight]]:
    """The look at verdicts: one sight per thing of such a name, the first verdict on it that matches."""

    def look(snapshot: Snapshot) -> Iterator[Sight]:
        things: set[tuple[str, str]] = set()
        for verdict in sorted(snapshot.verdicts, key=_is_acknowledged):
            thing = (verdict.kind.value, verdict.key)
            if thing not in things and fnmatchcase(verdict.scope, glob) and matches(verdict):
                things.add(thing)
                text = f"{verdict.code.value}: {verdict_text(verdict)}"
                yield Sight(
                    key="/".join(thing),
                    scope=verdict.scope,
                    holds=True,
                    text=text,
                    value=NOT_EXPOSED,
                    verdict=verdict,
                )

    return look


def _is_acknowledged(verdict: Verdict | None) -> bool:
    """Whether somebody has acknowledged a verdict, so that it raises no alert."""
    return verdict is not None and verdict.acknowledged is not None


def _figure_look(words: re.Match[str]) -> Callable[[Snapshot], Iterator[Sight]]:
    """The look at a figure that a condition names. Raises ValueError where there is no such figure."""
    kind = _LISTS.get(words["list"])
    if kind is None:
        raise ValueError(f"must begin with {', '.join(_LISTS)} or a verdict's word")
    path = tuple(words["path"].split("."))
    _require_number(kind, path)
    try:
        limit = float(words["number"])
    except ValueError:
        raise ValueError("must end with a number, in the unit that the field's name has; shares are 0 to 1") from None
    glob = words["glob"] or "*"
    sign = words["sign"]
    compare = _SIGNS[words["sign"]]

    def look(snapshot: Snapshot) -> Iterator[Sight]:
        for key, names, thing in _things(snapshot, words["list"]):
            if not any(fnmatchcase(name, glob) for name in names):
                continue
            value = value_of(thing, words["path"])
            if isinstance(value, Missing):
                yield Sight(key, scope=names[0], holds=None, text="", value=value)
            else:
                text = f"{words['path']} {value:.4g} {sign} {limit:g}"
                is_beyond = compare(value, limit)
                yield Sight(key, scope=names[0], holds=is_beyond, text=text, value=float(value))

    return look


def _things(snapshot: Snapshot, name: str) -> Iterator[tuple[str, tuple[str, ...], msgspec.Struct]]:
    """Key, names (the shown one first) and struct of each thing in a list."""
    if name == "gpus":
        for gpu in snapshot.gpus:
            yield (gpu.reading.uuid, (f"gpu {gpu.reading.index}", str(gpu.reading.index), gpu.reading.uuid), gpu)
    elif name == "engines":
        for engine in snapshot.engines:
            yield (engine.key, (engine.name, engine.model), engine)
    elif name == "replicas":
        for group in snapshot.replicas:
            yield (group.model, (group.model,), group)
    else:
        yield ("host", ("host", snapshot.host.name), snapshot.host)


def _require_number(kind: type[msgspec.Struct], path: tuple[str, ...]) -> None:
    """Raises ValueError unless the path leads to a number."""
    field_type: Any = kind
    for depth, name in enumerate(path):
        types = _types_of_fields(field_type)
        if name not in types:
            before = ".".join(path[:depth]) or "it"
            raise ValueError(f"{before} has no field {name}; known there (docs/json.md): {_near(name, types)}")
        field_type = types[name]
    if field_type not in _NUMBERS:
        raise ValueError(f"{'.'.join(path)} is no number")


def _types_of_fields(field_type: Any) -> dict[str, Any]:
    """Name of a field of a struct -> its type; empty where the type is no struct."""
    if not _is_struct(field_type):
        return {}
    return {name: field.type for name, (_, field) in flat_fields(field_type).items()}


def _near(name: str, types: Mapping[str, Any]) -> str:
    """The fields whose names are like this one, else the first ones, of those that lead to a number."""
    names = [field for field, field_type in types.items() if field_type in _NUMBERS or _is_struct(field_type)]
    names.sort()
    near = get_close_matches(name, names, n=3, cutoff=0.4) or names[:_MOST_NAMED]
    return ", ".join(near) or "none"


def _is_struct(field_type: Any) -> bool:
    return isinstance(field_type, type) and issubclass(field_type, msgspec.Struct)


_MOST_TEXT: Final = 300
"""Characters of an alert's sentence."""
_MOST_ACTION: Final = 3000
"""Characters of an alert's actions: some hold the whole command line of an engine."""


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
    """How an alert stands with one thing."""

    since_s: float
    """Monotonic: since when its condition holds without a break; once raised, when it held last."""
    since_wall_s: float
    """Unix time since when it holds, or held when it was raised."""
    held_s: float
    """Monotonic: when it held last."""
    missed: bool
    """The figure has been missing since."""
    raised: RaisedAlert | None


class Alerts:
    """Which alerts hold; knows no clock. A figure that is missing neither raises an alert nor ends one.

    A figure that is missing for as long as its alert waits to be raised makes it wait anew.
    """

    def __init__(self, rules: Sequence[AlertRule] = ()) -> None:
        self._rules = tuple(rules)
        self._states: dict[tuple[int, str], _State] = {}
        """(Number of a rule, key of a thing) -> how the alert stands."""

    def judge(self, frame: Frame, snapshot: Snapshot) -> tuple[Snapshot, tuple[AlertChange, ...]]:
        """The snapshot with the alerts that hold, and what changed since the one before."""
        if not self._rules:
            return snapshot, ()
        changes: list[AlertChange] = []
        quiet: set[tuple[int, str]] = set()
        for number, rule in enumerate(self._rules):
            sights = {sight.key: sight for sight in rule.condition.look(snapshot)}
            quiet |= {(number, key) for key, sight in sights.items() if _is_acknowledged(sight.verdict)}
            keys_before = [key for rule_number, key in self._states if rule_number == number]
            for key in dict.fromkeys([*sights, *keys_before]):
                change = self._step(number, rule, key, sights.get(key), frame)
                if change is not None:
                    changes.append(change)
        return msgspec.structs.replace(snapshot, alerts=self._raised(quiet)), tuple(changes)

    def _raised(self, quiet: Set[tuple[int, str]]) -> tuple[RaisedAlert, ...]:
        """The alerts that are raised; neither the bell nor the mark of those in `quiet` calls anybody."""
        raised: list[RaisedAlert] = []
        for place, state in self._states.items():
            if state.raised is not None and place in quiet:
                raised.append(msgspec.structs.replace(state.raised, bell=False, title=False))
            elif state.raised is not None:
                raised.append(state.raised)
        return tuple(raised)

    def _step(self, number: int, rule: AlertRule, key: str, sight: Sight | None, frame: Frame) -> AlertChange | None:
        """Take in how a rule stands with one thing (`sight`; None: it is gone). Returns what changed."""
        place = (number, key)
        state = self._states.get(place)
        holds: bool | None = sight.holds if sight is not None else False
        if holds is None:
            if state is not None:
                self._states[place] = state._replace(missed=True)
            return None
        if state is not None and state.raised is not None:
            return self._step_raised(place, rule, state, state.raised, holds=holds, now_s=frame.monotonic_s)
        if not holds or sight is None or _is_acknowledged(sight.verdict):
            self._states.pop(place, None)
            return None
        return self._step_not_raised(place, rule, state, sight, frame)

    def _step_not_raised(
        self, place: tuple[int, str], rule: AlertRule, state: _State | None, sight: Sight, frame: Frame
    ) -> AlertChange | None:
        """Raise an alert whose condition has held for long enough."""
        now_s = frame.monotonic_s
        since_s = now_s
        wall_s = frame.wall_s
        if state is not None:
            is_lapsed = state.missed and now_s - state.held_s > rule.for_s
            if not is_lapsed:
                since_s = state.since_s
                wall_s = state.since_wall_s
        if now_s - since_s < rule.for_s:
            self._states[place] = _State(since_s, wall_s, now_s, missed=False, raised=None)
            return None
        alert = _raised_alert(rule, sight, wall_s)
        self._states[place] = _State(now_s, wall_s, now_s, missed=False, raised=alert)
        return AlertChange(rule, alert, raised=True)

    def _step_raised(
        self, place: tuple[int, str], rule: AlertRule, state: _State, raised: RaisedAlert, *, holds: bool, now_s: float
    ) -> AlertChange | None:
        """Clear an alert whose condition has been gone for long enough."""
        if holds:
            self._states[place] = state._replace(since_s=now_s, held_s=now_s, missed=False)
        elif now_s - state.since_s >= rule.clear_s:
            del self._states[place]
            return AlertChange(rule, raised, raised=False)
        return None


def _raised_alert(rule: AlertRule, sight: Sight, since_wall_s: float) -> RaisedAlert:
    """The alert that a sight raises. One on a verdict dates from the verdict's start, which is before it was given."""
    alert = RaisedAlert(
        name=clean(rule.name, 80),
        scope=clean(sight.scope, 80),
        text=clean(sight.text, _MOST_TEXT),
        since=rfc3339(since_wall_s),
        value=sight.value,
        bell=rule.bell,
        title=rule.title,
    )
    verdict = sight.verdict
    if verdict is None:
        return alert
    return msgspec.structs.replace(
        alert,
        since=min(alert.since, verdict.since),
        level=verdict.level.value,
        action=clean(actions_text(verdict), _MOST_ACTION),
    )

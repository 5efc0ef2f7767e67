"""Snapshots in, verdicts and events out: the same frames give the same verdicts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from gpumon.readings.format import clock_utc, rfc3339
from gpumon.readings.frame import EndpointState, EngineReading, Frame, GpuState
from gpumon.readings.snapshot import Confidence, Family, Kind, Level, Limit, Snapshot, Verdict
from gpumon.triage.engine_state import holders
from gpumon.triage.engine_use import stands_still
from gpumon.triage.events import Events
from gpumon.triage.hold import Holds
from gpumon.triage.rule import Finding, Rule, Unsure
from gpumon.triage.rules import RULES
from gpumon.triage.scene import Goals, Recent, Scene, scenes
from gpumon.triage.thresholds import Thresholds

_URGENCY: Final = {level: at for at, level in enumerate(Level)}
_FAMILIES: Final = {family: at for at, family in enumerate(Family)}
_LIMITS: Final = {limit: at for at, limit in enumerate(Limit)}


CANNOT_TELL: Final = "cannot tell: "
MANY: Final = 16
"""Engines up to which each is judged at every tick."""
REST_S: Final = 2.0
"""Of more, one is judged when it was polled anew, when the state of a GPU of it changed, and after so long or its
interval, as its GPUs and the host go on."""


FADES_S: Final = 5.0
"""A verdict that was not found for so long tells that its figures are of then."""
USED_S: Final = 4.0
"""For so long an engine's use counts as it was found."""


_since: Final = lru_cache(maxsize=1024)(rfc3339)
"""What stands has done so since the same time at every tick."""


class _Used(NamedTuple):
    at_s: float
    found: tuple[Limit, ...]
    """What stood before it."""
    rule: Rule | None
    answer: Finding | Unsure | None


class _Judged(NamedTuple):
    """The verdicts on an engine, on which of its polls they stand, and when (monotonic) they were given."""

    reading: EngineReading
    gpus: tuple[GpuState, ...]
    """How its GPUs were then."""
    at_s: float
    verdicts: tuple[Verdict, ...]


class Triage:
    """Holds the last minutes of each thing and the verdicts that stand; knows no clock and does no I/O."""

    def __init__(
        self,
        thresholds: Thresholds = Thresholds(),  # noqa: B008 - frozen
        prices: Mapping[str, float] = MappingProxyType({}),
        rules: Sequence[Rule] = RULES,
        goals: Goals = Goals(),  # noqa: B008 - immutable
    ) -> None:
        self._thresholds = thresholds
        self._prices = prices
        self._goals = goals
        self._rules = {
            (kind, family): tuple(rule for rule in rules if rule.family is family and kind in rule.kinds)
            for kind in Kind
            for family in Family
        }
        self._keys: set[str] = set()
        """Of the things in the frame before."""
        self._recents: dict[str, Recent] = {}
        self._holds = Holds()
        self._events = Events()
        self._last: dict[tuple[str, Family], Verdict] = {}
        self._judged: dict[str, _Judged] = {}
        self._used: dict[str, _Used] = {}

    def judge(self, frame: Frame, snapshot: Snapshot) -> Snapshot:
        """The snapshot with its verdicts, the most urgent first, and what happened since the one before."""
        self._sample(frame, snapshot)
        ranked = sorted((self._dated(verdict, frame) for verdict in self._found(frame, snapshot)), key=_rank)
        judged = msgspec.structs.replace(snapshot, verdicts=tuple(ranked))
        return msgspec.structs.replace(judged, events=self._events.between(frame, judged))

    def _found(self, frame: Frame, snapshot: Snapshot) -> list[Verdict]:
        around = (self._recents, self._thresholds, self._prices, self._goals)
        engines, others = self._stood(frame, snapshot), list[Verdict]()
        for scene in scenes(frame, snapshot, *around, engines):
            verdicts = tuple(self._verdicts(scene))
            if scene.reading is None:
                others += verdicts
                continue
            engines[scene.key] = verdicts
            if len(frame.engines) > MANY:
                states = tuple(gpu.state for gpu in scene.gpus)
                self._judged[scene.key] = _Judged(scene.reading, states, scene.now_s, verdicts)
        found = [*(verdict for verdicts in engines.values() for verdict in verdicts or ()), *others]
        self._last = {(verdict.key, verdict.family): verdict for verdict in found}
        return found

    def _stood(self, frame: Frame, snapshot: Snapshot) -> dict[str, tuple[Verdict, ...] | None]:
        """By key of an engine what was said of it just before; None where it is judged now.

        That is each one of few; of many those that were polled anew since, whose GPUs came or went, or that were
        judged long ago.
        """
        if len(frame.engines) <= MANY:
            return dict.fromkeys(engine.key for engine in snapshot.engines)
        now_s, given = frame.monotonic_s, dict[str, tuple[Verdict, ...] | None]()
        states = {gpu.uuid: gpu.state for gpu in snapshot.gpus}
        for reading, engine in zip(frame.engines, snapshot.engines, strict=True):
            last = self._judged.get(key := engine.key)
            gpus = tuple([states[uuid] for uuid in reading.gpus if uuid in states])
            same = last is not None and last.reading is reading and last.gpus == gpus
            if last is not None and same and now_s - last.at_s < max(REST_S, reading.interval_s):
                given[key] = last.verdicts
            else:
                given[key] = None
        return given

    def _sample(self, frame: Frame, snapshot: Snapshot) -> None:
        now_s, gpus = frame.monotonic_s, {gpu.uuid: gpu for gpu in snapshot.gpus}
        named = [engine.key for engine in snapshot.engines]
        keys = {"", *gpus, *named}
        if keys != self._keys:
            self._forget(keys)
        self._recent(Kind.HOST, "").add(now_s, snapshot.host)
        for gpu in snapshot.gpus:
            self._recent(Kind.GPU, gpu.uuid).add(now_s, gpu)
        for key, reading, engine in zip(named, frame.engines, snapshot.engines, strict=True):
            recent = self._recent(Kind.ENGINE, key)
            recent.add(now_s, engine)
            if engine.state is EndpointState.OK:
                own = [gpus[uuid] for uuid in reading.gpus if uuid in gpus]
                recent.holders = frozenset(holders(engine, own)) if own else frozenset()

    def _recent(self, kind: Kind, key: str) -> Recent:
        recent = self._recents.get(key)
        if recent is None:
            recent = self._recents[key] = Recent(kind)
        return recent

    def _forget(self, keys: set[str]) -> None:
        """Drop what is known of things that are not among these."""
        self._keys = keys
        self._recents = {key: recent for key, recent in self._recents.items() if key in keys}
        self._judged = {key: judged for key, judged in self._judged.items() if key in keys}
        self._used = {key: used for key, used in self._used.items() if key in keys}
        self._holds.forget(keys)

    def _verdicts(self, scene: Scene) -> Iterator[Verdict]:
        """Those that stand for it, none beside a critical one or a hang; a family is told what was found before."""
        alone = False
        if near := self._holds.near(scene.key):
            scene = scene._replace(near=near)
        for family in _FAMILIES:
            rule, answer = self._answer(scene, family)
            found = None if rule is None else rule.limit if isinstance(answer, Finding) else Limit.CANNOT_TELL
            verdict = self._standing(scene, family, rule, answer, found)
            if verdict is not None and not alone:
                alone = verdict.level is Level.CRITICAL or verdict.limit is Limit.STALLED
                yield verdict
            if found is not None:
                scene = scene._replace(found=(*scene.found, found))

    def _standing(
        self, scene: Scene, family: Family, rule: Rule | None, answer: Finding | Unsure | None, found: Limit | None
    ) -> Verdict | None:
        """The verdict that stands for a thing in a family, with the newest evidence that it has."""
        usual_s, now_s = self._thresholds.hold_s, scene.now_s
        own_s = self._leave_s(scene, family) if rule is None else rule.hold_s
        hold_s = usual_s if own_s is None else own_s
        wall_s = scene.frame.wall_s
        stands, since_s = self._holds.take(scene.key, family, found, hold_s, now_s, wall_s)
        if stands is None or (stands is Limit.HEALTHY and stands_still(scene)):
            return None
        if stands is found and answer is not None:
            if answer.began_s < math.inf:
                since_s = self._holds.onset_s(scene.key, family, answer.began_s, wall_s - now_s)
            said = _said(scene, family, stands, answer, since_s)
            level = self._holds.level(scene.key, family, said.level, usual_s, now_s)
            return said if level is said.level else msgspec.structs.replace(said, level=level)
        return self._last.get((scene.key, family))

    def _leave_s(self, scene: Scene, family: Family) -> float | None:
        """How long nothing must be found for what stands to go."""
        stands = self._holds.limit(scene.key, family)
        if stands is None:  # of most families nothing stands, at every tick
            return None
        rules = self._rules[scene.kind, family]
        own = (rule.leave_s for rule in rules if rule.limit is stands or stands is Limit.CANNOT_TELL)
        return next((leave_s for leave_s in own if leave_s is not None), None)

    def _dated(self, verdict: Verdict, frame: Frame) -> Verdict:
        """One that is not found any more says when it was: its figures are of then."""
        gone_s = self._holds.gone_s(verdict.key, verdict.family, frame.monotonic_s)
        if gone_s < FADES_S:
            return verdict
        unknown = CANNOT_TELL if verdict.limit is Limit.CANNOT_TELL else ""
        text = f"{unknown}until {clock_utc(frame.wall_s - gone_s)}: {verdict.text.removeprefix(unknown)}"
        return msgspec.structs.replace(verdict, text=text)

    def _answer(self, scene: Scene, family: Family) -> tuple[Rule | None, Finding | Unsure | None]:
        """What the rules say; an engine's use is a mean of minutes, so it is not worked out at every tick."""
        if family is not Family.USE or scene.kind is not Kind.ENGINE:
            return self._first(scene, family)
        scene.recent.found = scene.found
        last = self._used.get(scene.key)
        if last is None or last.found != scene.found or not 0.0 <= scene.now_s - last.at_s < USED_S:
            last = self._used[scene.key] = _Used(scene.now_s, scene.found, *self._first(scene, family))
        return last.rule, last.answer

    def _first(self, scene: Scene, family: Family) -> tuple[Rule | None, Finding | Unsure | None]:
        unsure: tuple[Rule | None, Finding | Unsure | None] = (None, None)
        for rule in self._rules[scene.kind, family]:
            answer = rule.find(scene)
            if isinstance(answer, Finding):
                return rule, answer
            if answer is not None and unsure[0] is None:
                unsure = (rule, answer)
        return unsure


def _said(scene: Scene, family: Family, limit: Limit, answer: Finding | Unsure, since_s: float) -> Verdict:
    text, action, level, confidence, unknown = (
        (answer.text, answer.action, answer.level, answer.confidence, ())
        if isinstance(answer, Finding)
        else (f"{CANNOT_TELL}{', '.join(answer.missing)}", "", Level.NOTE, Confidence.LOW, answer.missing)
    )
    return Verdict(
        scope=scene.name,
        limit=limit,
        evidence=answer.evidence,
        action=action,
        confidence=confidence,
        since=_since(since_s),
        kind=scene.kind,
        key=scene.key,
        family=family,
        level=level,
        text=text,
        unknown=unknown,
    )


def _rank(verdict: Verdict) -> tuple[int, int, int]:
    """The most urgent first; of equals what may be the cause of the other: broken hardware before a hang."""
    return _URGENCY[verdict.level], _FAMILIES[verdict.family], _LIMITS[verdict.limit]

"""Snapshots in, verdicts and events out: the same frames give the same verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from types import MappingProxyType
from typing import Final

import msgspec

from gpumon.readings.frame import Frame
from gpumon.readings.snapshot import Confidence, Family, Kind, Level, Limit, Snapshot, Verdict
from gpumon.triage.hold import Holds
from gpumon.triage.rule import Finding, Rule, Unsure
from gpumon.triage.rules import RULES
from gpumon.triage.scene import Recent, Scene, scenes
from gpumon.triage.thresholds import Thresholds

_URGENCY: Final = {level: at for at, level in enumerate(Level)}
_FAMILIES: Final = {family: at for at, family in enumerate(Family)}


class Triage:
    """Holds the last minutes of each thing and the verdicts that stand; knows no clock and does no I/O."""

    def __init__(
        self,
        thresholds: Thresholds = Thresholds(),  # noqa: B008 - frozen
        prices: Mapping[str, float] = MappingProxyType({}),
        rules: Sequence[Rule] = RULES,
    ) -> None:
        self._thresholds = thresholds
        self._prices = prices
        self._rules = {
            (kind, family): tuple(rule for rule in rules if rule.family is family and kind in rule.kinds)
            for kind in Kind
            for family in Family
        }
        self._recents: dict[str, Recent] = {}
        self._holds = Holds()
        self._last: dict[tuple[str, Family], Verdict] = {}

    def judge(self, frame: Frame, snapshot: Snapshot) -> Snapshot:
        """The snapshot with its verdicts, the most urgent first, and what happened since the one before."""
        self._sample(frame, snapshot)
        found = [
            verdict
            for scene in scenes(frame, snapshot, self._recents, self._thresholds, self._prices)
            for family in Family
            if (verdict := self._verdict(scene, family)) is not None
        ]
        self._last = {(verdict.key, verdict.family): verdict for verdict in found}
        ranked = sorted(found, key=lambda verdict: (_URGENCY[verdict.level], _FAMILIES[verdict.family]))
        return msgspec.structs.replace(snapshot, verdicts=tuple(ranked))

    def _sample(self, frame: Frame, snapshot: Snapshot) -> None:
        things: list[tuple[Kind, str, object]] = [(Kind.HOST, "", snapshot.host)]
        things += [(Kind.GPU, gpu.uuid, gpu) for gpu in snapshot.gpus]
        things += [(Kind.ENGINE, engine.key, engine) for engine in snapshot.engines]
        keys = {key for _, key, _ in things}
        self._recents = {key: recent for key, recent in self._recents.items() if key in keys}
        self._holds.forget(keys)
        for kind, key, thing in things:
            self._recents.setdefault(key, Recent(kind)).add(frame.monotonic_s, thing)

    def _verdict(self, scene: Scene, family: Family) -> Verdict | None:
        """The verdict that stands for a thing in a family, with the newest evidence that it has."""
        rule, answer = self._first(scene, family)
        found = None if rule is None else rule.limit if isinstance(answer, Finding) else Limit.CANNOT_TELL
        hold_s = self._thresholds.hold_s if rule is None or rule.hold_s is None else rule.hold_s
        wall_s = scene.frame.wall_s
        stands, since_s = self._holds.take(scene.key, family, found, hold_s, scene.now_s, wall_s)
        if stands is None:
            return None
        if stands is found and answer is not None:
            return _said(scene, family, stands, answer, since_s)
        return self._last.get((scene.key, family))

    def _first(self, scene: Scene, family: Family) -> tuple[Rule | None, Finding | Unsure | None]:
        unsure: tuple[Rule | None, Finding | Unsure | None] = (None, None)
        for rule in self._rules[scene.kind, family]:
            answer = rule.find(scene)
            if isinstance(answer, Finding):
                return rule, answer
            if isinstance(answer, Unsure) and unsure[0] is None:
                unsure = (rule, answer)
        return unsure


def _said(scene: Scene, family: Family, limit: Limit, answer: Finding | Unsure, since_s: float) -> Verdict:
    said = Verdict(
        scope=scene.name,
        limit=limit,
        evidence=answer.evidence,
        action="",
        confidence=Confidence.LOW,
        since=_rfc3339(since_s),
        kind=scene.kind,
        key=scene.key,
        family=family,
        level=Level.NOTE,
    )
    if isinstance(answer, Unsure):
        text = f"cannot tell: {', '.join(answer.missing)}"
        return msgspec.structs.replace(said, text=text, unknown=answer.missing)
    return msgspec.structs.replace(
        said, action=answer.action, confidence=answer.confidence, level=answer.level, text=answer.text
    )


def _rfc3339(wall_s: float) -> str:
    return datetime.fromtimestamp(wall_s, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")

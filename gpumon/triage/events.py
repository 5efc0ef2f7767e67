"""What happened between two snapshots: restarts, models, things that come and go, Xids, slowdowns, verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from gpumon.readings.format import rfc3339, wall_of
from gpumon.readings.frame import EndpointState, EngineReading, Frame, GpuReading, GpuState
from gpumon.readings.snapshot import Engine, Gpu, Snapshot
from gpumon.readings.text import clean
from gpumon.readings.verdict import Event, EventKind, Family, Level, Limit, Parameters, Verdict
from gpumon.triage.gpu import SLOWDOWNS
from gpumon.triage.xid import xid_of

SETTLE_S: Final = 10.0
"""For so long after something is seen first, what it turns out to be is no event: it was so before."""
APART_S: Final = 10.0
"""The same event of one thing is told at most once in this time: what flaps does not flood the list."""
MOST_TEXT: Final = 160
MOST_MODEL: Final = 80
MOST_GONE: Final = 256
"""Engines that are remembered after they are not listed any more: one that comes again is no new one."""
_DOWN: Final = frozenset({GpuState.LOST, GpuState.RESET_REQUIRED})
_QUIET: Final = frozenset({None, Limit.HEALTHY, Limit.ASLEEP, Limit.UNKNOWN})
"""A verdict that changes from one of these to another of these is no event."""


class _Seen(NamedTuple):
    """What is remembered of an engine, also while it does not answer."""

    since_s: float
    """Unix time at which it was seen first."""
    up: bool | None
    """None: it has neither answered nor settled yet."""
    said: EngineReading
    """What it said last."""


class _Fact(NamedTuple):
    """An event, and what tells whether another is the same."""

    same: str
    event: Event


class Events:
    """Compares each snapshot with the one before; knows no clock."""

    def __init__(self) -> None:
        self._before: Snapshot | None = None
        self._began_s = 0.0
        self._engines: dict[str, _Seen] = {}
        self._gone: dict[str, _Seen] = {}
        self._gpus: dict[str, tuple[Gpu, GpuReading]] = {}
        self._models: Counter[str] = Counter()
        self._verdicts: dict[tuple[str, Family], Verdict] = {}
        self._told: dict[tuple[EventKind, str, str], float] = {}

    def between(self, frame: Frame, snapshot: Snapshot) -> tuple[Event, ...]:
        """What is new in this snapshot, in the order engines, replicas, GPUs, verdicts."""
        wall_s = frame.wall_s
        if self._before is None:
            self._began_s = wall_s
        facts = (
            *self._of_engines(frame, snapshot),
            *self._of_replicas(snapshot),
            *self._of_gpus(frame, snapshot),
        )
        verdicts = self._of_verdicts(snapshot)
        told = tuple(fact.event for fact in (*facts, *verdicts) if self._is_news(fact))
        self._before = snapshot
        return told

    def _is_news(self, fact: _Fact) -> bool:
        """Whether it was not told just before; a clock that was set back makes all of it news again."""
        event = fact.event
        at = (event.kind, event.key or event.scope, fact.same)
        if 0.0 <= event.wall_s - self._told.get(at, -APART_S) < APART_S:
            return False
        self._told = {known: told_s for known, told_s in self._told.items() if 0.0 <= event.wall_s - told_s < APART_S}
        self._told[at] = event.wall_s
        return True

    def _of_engines(self, frame: Frame, snapshot: Snapshot) -> list[_Fact]:
        facts: list[_Fact] = []
        seen: dict[str, _Seen] = {}
        for reading, engine in zip(frame.engines, snapshot.engines, strict=True):
            known = self._engines.get(key := engine.key) or self._gone.pop(key, None)
            if known is not None and known.up and known.said is reading:  # between two polls
                seen[key] = known
                continue
            seen[key] = now = _seen(known, reading, frame.wall_s)
            if now is not known:
                facts += _of_engine(known, now, engine, frame.wall_s)
        for key in self._engines.keys() - seen.keys():
            gone = self._engines[key]
            if gone.up:
                facts.append(_engine_fact(gone, key, frame.wall_s, EventKind.ENGINE, "gone", Level.NOTE))
            if gone.up is not None:
                self._gone[key] = gone._replace(up=False)
        while len(self._gone) > MOST_GONE:
            del self._gone[next(iter(self._gone))]
        self._engines = seen
        return facts

    def _of_replicas(self, snapshot: Snapshot) -> list[_Fact]:
        """Models of which more or fewer engines answer, where there are several."""
        now = Counter([engine.model for engine in snapshot.engines if engine.model and _answers(engine.state)])
        before, self._models = self._models, now
        if snapshot.wall_s - self._began_s < SETTLE_S:
            return []
        facts = []
        for model in sorted(before.keys() | now.keys()):
            old, new = before[model], now[model]
            if old != new and max(old, new) > 1:
                scope, level = clean(model, MOST_MODEL), Level.NOTE if new > old else Level.WARN
                counts: Parameters = {"before": float(old), "now": float(new)}
                event = Event(snapshot.wall_s, EventKind.REPLICAS, scope, "replicas", level, parameters=counts)
                facts.append(_Fact(f"{old} {new}", event))
        return facts

    def _of_gpus(self, frame: Frame, snapshot: Snapshot) -> list[_Fact]:
        facts: list[_Fact] = []
        first = self._before is None or not self._gpus
        seen = {}
        for reading, gpu in zip(frame.gpus, snapshot.gpus, strict=True):
            seen[gpu.uuid] = (gpu, reading)
            known = self._gpus.get(gpu.uuid)
            facts += self._of_xids(known[1] if known else None, reading, gpu, frame.wall_s)
            if known is not None or not first:
                facts += _of_gpu(known[0] if known else None, gpu, frame.wall_s)
        self._gpus = seen
        return facts

    def _of_xids(self, known: GpuReading | None, reading: GpuReading, gpu: Gpu, wall_s: float) -> Iterator[_Fact]:
        """Xids that were not there before; of a GPU that is new those since the start."""
        if not reading.xid or (known is not None and known.xid == reading.xid):
            return
        old = frozenset(known.xid) if known is not None else frozenset()
        for xid in reading.xid:
            if xid not in old and (known is not None or xid.wall_s >= self._began_s):
                said: Parameters = {"xid": float(xid.code)}
                yield _Fact(str(xid.code), _event(wall_s, EventKind.XID, gpu, "xid", xid_of(xid.code).level, said))

    def _of_verdicts(self, snapshot: Snapshot) -> list[_Fact]:
        """Verdicts that came, changed (their level, too) or went."""
        now = {(verdict.key, verdict.family): verdict for verdict in snapshot.verdicts}
        before, self._verdicts = self._verdicts, now
        gone = [at for at in before if at not in now]
        if gone:
            things = {"", *(engine.key for engine in snapshot.engines), *(gpu.uuid for gpu in snapshot.gpus)}
            gone = [at for at in gone if at[0] in things]
        facts = []
        for at in (*now, *gone):
            old, new = before.get(at), now.get(at)
            if old is new:
                continue
            fact = _of_verdict(old, new, snapshot.wall_s)
            if fact is not None and (old is not None or not self._was_so(new)):
                facts.append(fact)
        return facts

    def _was_so(self, verdict: Verdict | None) -> bool:
        """Whether a first verdict that nobody suffers from tells what already was when its thing was seen first."""
        if verdict is None or verdict.level not in (Level.NOTE, Level.OK):
            return False
        known = self._engines.get(verdict.key)
        since_s = known.since_s if known is not None else self._began_s
        return verdict.since <= rfc3339(since_s + SETTLE_S)


def _seen(known: _Seen | None, reading: EngineReading, wall_s: float) -> _Seen:
    """What is known of an engine after this reading; what a silent one said last stays."""
    since_s = known.since_s if known is not None else wall_s
    up: bool | None = _answers(reading.state)
    if not up and (known is None or known.up is None) and wall_s - since_s < SETTLE_S:
        up = None
    if known is not None and (not _answers(reading.state) or reading.monotonic_s == known.said.monotonic_s):
        return known if known.up is up else known._replace(up=up)
    return _Seen(since_s, up, reading)


def _counters(reading: EngineReading) -> Mapping[str, float]:
    total: dict[str, float] = {}
    for rank in reading.ranks:
        for name, value in rank.counters.items():
            total[name] = total.get(name, 0.0) + value
    return total


def _of_engine(known: _Seen | None, now: _Seen, engine: Engine, wall_s: float) -> Iterator[_Fact]:
    if known is None:
        return
    of = (now, engine.key, wall_s)
    late = wall_s - now.since_s >= SETTLE_S
    if known.up and not now.up:
        state: Parameters = {"state": engine.state.value.replace("_", " ")}
        yield _engine_fact(*of, EventKind.ENGINE, "down", Level.WARN, state)
    elif now.up and not known.up and (known.up is False or late):
        yield _engine_fact(*of, EventKind.ENGINE, "answers", Level.OK)
    if _began_anew(known.said, now.said):
        yield _engine_fact(*of, EventKind.RESTART, "restarted", Level.WARN)
    before, model = known.said.model, now.said.model
    if model and model != before and (before or late):
        code = "model_changed" if before else "model_loaded"
        names: Parameters = {"before": clean(before, MOST_MODEL), "model": clean(model, MOST_MODEL)}
        yield _engine_fact(*of, EventKind.MODEL, code, Level.NOTE, names)


def _engine_fact(
    seen: _Seen,
    key: str,
    wall_s: float,
    kind: EventKind,
    code: str,
    level: Level,
    parameters: Parameters | None = None,
) -> _Fact:
    said = parameters or {}
    event = Event(wall_s, kind, clean(seen.said.name, MOST_MODEL), code, level, key, said)
    return _Fact("down" if code == "gone" else f"{code} {said.get('model', '')}", event)


def _began_anew(known: EngineReading, now: EngineReading) -> bool:
    """Another start of its process; where that is not told: all counters that moved are lower."""
    if known.started_wall_s > 0.0 and now.started_wall_s > 0.0:
        return abs(now.started_wall_s - known.started_wall_s) > 1.0
    before, after = _counters(known), _counters(now)
    moved = [name for name, value in before.items() if value > 0.0 and name in after]
    return bool(moved) and all(after[name] < before[name] for name in moved)


def _of_gpu(known: Gpu | None, gpu: Gpu, wall_s: float) -> Iterator[_Fact]:
    """Lost, back, slowed down; `known` is None for a GPU that was not listed before."""
    was_down = known is not None and known.state in _DOWN
    if gpu.state in _DOWN and not was_down:
        code = "gpu_lost" if gpu.state is GpuState.LOST else "gpu_reset_required"
        what: Parameters = {"what": clean(gpu.state_text, MOST_TEXT)} if gpu.state_text else {}
        yield _Fact("lost", _event(wall_s, EventKind.GPU, gpu, code, Level.CRITICAL, what))
    elif was_down and gpu.state is GpuState.OK:
        yield _Fact("back", _event(wall_s, EventKind.GPU, gpu, "gpu_back", Level.OK))
    if not gpu.throttle or known is None or known.state is not GpuState.OK or gpu.state is not GpuState.OK:
        return
    for reason, cause in SLOWDOWNS.items():
        if reason in gpu.throttle and reason not in known.throttle:
            said: Parameters = {"cause": cause}
            yield _Fact(reason, _event(wall_s, EventKind.THROTTLE, gpu, "throttling", Level.WARN, said))
            return


def _of_verdict(old: Verdict | None, new: Verdict | None, wall_s: float) -> _Fact | None:
    """A verdict that began, changed its level, or is over."""
    before, after = old.code if old is not None else None, new.code if new is not None else None
    verdict = new or old
    if verdict is None or (before in _QUIET and after in _QUIET):
        return None
    code, level, same, since_s = "verdict_over", Level.OK, f"{verdict.family.value} {before} {after}", 0.0
    said: Parameters = {}
    if before is after and old is not None and new is not None:
        if old.level is new.level:
            return None
        code, level, same = "verdict_level", new.level, f"{new.family.value} {new.level.value}"
    elif new is not None:
        code, level, since_s = "verdict_began", new.level, wall_of(new.since)
        said = {"before": before.value} if before is not None else {}
    scope = clean(verdict.scope, MOST_MODEL)
    event = Event(wall_s, EventKind.VERDICT, scope, code, level, verdict.key, said, since_s, verdict)
    return _Fact(same, event)


def _event(
    wall_s: float, kind: EventKind, gpu: Gpu, code: str, level: Level, parameters: Parameters | None = None
) -> Event:
    return Event(wall_s, kind, f"gpu {gpu.index}", code, level, gpu.uuid, parameters or {})


def _answers(state: EndpointState) -> bool:
    return state is EndpointState.OK

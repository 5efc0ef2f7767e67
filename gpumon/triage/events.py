"""Events between two snapshots: restarts, models, things that come and go, Xids, slowdowns, verdicts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Iterator, Mapping
from typing import Final, NamedTuple

from gpumon.efficiency.restarts import START_TOLERANCE_S
from gpumon.readings.format import beyond_loss, rfc3339, wall_of
from gpumon.readings.frame import EndpointState, EngineReading, Frame, GpuReading, GpuState, XidEvent
from gpumon.readings.snapshot import Engine, Gpu, Snapshot
from gpumon.readings.text import clean
from gpumon.readings.verdict import Event, EventKind, Family, Level, Limit, Parameters, Verdict
from gpumon.triage.gpu_clocks import SLOWDOWNS
from gpumon.triage.marks import keys_of
from gpumon.triage.xid import xid_of

_SETTLE_S: Final = 10.0
"""Seconds after something is seen first in which what it turns out to be is no event: it was so before. A verdict has
another cause once that has held for as long."""
_LEAST_GAP_S: Final = 10.0
"""Seconds in which the same event of one thing is reported once: what flaps does not flood the list."""
_IN_TURN_S: Final = 600.0
"""Seconds after an older process has answered for which another one is taken for that of another server."""
_MOST_TEXT: Final = 160
"""Characters of a GPU's state."""
MOST_MODEL: Final = 80
"""Characters of the name of a model or a thing."""
MOST_GONE: Final = 256
"""Engines that are remembered after they are not listed any more: one that comes again is no new one."""
_DOWN_STATES: Final = {
    GpuState.LOST: "gpu_lost",
    GpuState.MUTE: "gpu_mute",
    GpuState.RESET_REQUIRED: "gpu_reset_required",
}
_QUIET: Final = frozenset({Limit.HEALTHY, Limit.EVALUATING, Limit.ASLEEP, Limit.STARTING, Limit.UNKNOWN})
"""A verdict that changes from one of these to another of these is no event."""
_BEGAN: Final = "verdict_began"
_NEW_LEVEL: Final = "verdict_level"
_NEW_CAUSE: Final = "verdict_cause"
"""Codes of events of a verdict that stands."""
_Place = tuple[str, Family]
"""Key of a thing and family: one verdict stands there at most."""


class _EngineMemory(NamedTuple):
    """Memory of an engine, also while it does not answer."""

    since_s: float
    """Unix time at which it was seen first."""
    answers: bool | None
    """None: it has neither answered yet, nor been silent for long enough to be down."""
    last_answer: EngineReading
    """Its last answer; before that the first reading."""
    has_ended: bool = False
    """Its process has ended."""
    turned_back_s: float = -math.inf
    """Unix time at which a process answered last that is older than the one before: several servers answer in turn, as
    behind a load balancer."""


class _StandingVerdict(NamedTuple):
    """A verdict, and the cause of it that was reported last."""

    verdict: Verdict
    cause: str
    changed_s: float
    """Unix time since which it has had its cause; while another one settles, that of the reported one."""


class Events:
    """Compares each snapshot with the one before; knows no clock."""

    def __init__(self) -> None:
        self._began_s: float | None = None
        """Unix time of the first snapshot."""
        self._engines: dict[str, _EngineMemory] = {}
        """By `Engine.key`: those of the snapshot before."""
        self._gone: dict[str, _EngineMemory] = {}
        """By `Engine.key`: those that are not listed any more, the oldest first."""
        self._gpus: dict[str, tuple[Gpu, GpuReading]] = {}
        """By UUID: those of the snapshot before."""
        self.in_turn: frozenset[str] = frozenset()
        """By `Engine.key`: those whose URL several servers answer at in turn, so that another process is no restart."""
        self._models: Counter[str] = Counter()
        """Model -> engines of it that answered in the snapshot before."""
        self._verdicts: dict[_Place, _StandingVerdict] = {}
        self._reported: dict[object, float] = {}
        """Identity of an event -> Unix time at which it was reported last."""

    def between(self, frame: Frame, snapshot: Snapshot) -> tuple[Event, ...]:
        """Events of this snapshot, in the order engines, replicas, GPUs, verdicts."""
        if self._began_s is None:
            self._began_s = frame.wall_s
        events = [
            *self._engine_changes(frame, snapshot),
            *self._replica_changes(snapshot, self._began_s),
            *self._gpu_changes(frame, snapshot, self._began_s),
            *self._verdict_changes(snapshot, self._began_s),
        ]
        return tuple(event for event in events if self._note_news(event))

    def _note_news(self, event: Event) -> bool:
        """Note an event that was not reported just before. Returns whether it is news.

        A clock that was set back makes all of them news again.
        """
        parameters = tuple(value for name, value in event.parameters.items() if name != "state")
        verdict = event.verdict and (event.verdict.family, event.verdict.code, event.level)
        identity = (event.kind, event.key or event.scope, event.code, parameters, verdict)
        if 0.0 <= event.wall_s - self._reported.get(identity, -_LEAST_GAP_S) < _LEAST_GAP_S:
            return False
        for other, reported_s in list(self._reported.items()):
            if not 0.0 <= event.wall_s - reported_s < _LEAST_GAP_S:
                del self._reported[other]
        self._reported[identity] = event.wall_s
        return True

    def _engine_changes(self, frame: Frame, snapshot: Snapshot) -> list[Event]:
        """Engines that ended, answer again, began anew, changed their model, or are not listed any more."""
        events: list[Event] = []
        memories: dict[str, _EngineMemory] = {}
        for reading, engine in zip(frame.engines, snapshot.engines, strict=True):
            key = engine.key
            before = self._engines.get(key) or self._gone.pop(key, None)
            if before is not None and before.answers and before.last_answer is reading:  # no new poll
                memories[key] = before
                continue
            now = _updated_memory(before, reading, frame.wall_s)
            memories[key] = now
            if before is not None and now is not before:
                events += _engine_events(before, now, engine, frame.wall_s)
        for key in self._engines.keys() - memories.keys():
            events += self._gone_events(key, frame.wall_s)
        self._engines = memories
        self.in_turn = frozenset(key for key, memory in memories.items() if _is_in_turn(memory, frame.wall_s))
        return events

    def _gone_events(self, key: str, wall_s: float) -> Iterator[Event]:
        """The event of an engine that is not listed any more, which is remembered in case that it comes back."""
        gone = self._engines[key]
        if gone.answers is not None:
            self._gone[key] = gone._replace(answers=False)
        while len(self._gone) > MOST_GONE:
            del self._gone[next(iter(self._gone))]
        if gone.answers and not gone.has_ended:
            yield Event(
                wall_s=wall_s,
                kind=EventKind.ENGINE,
                scope=clean(gone.last_answer.name, MOST_MODEL),
                code="gone",
                level=Level.NOTE,
                key=key,
            )

    def _replica_changes(self, snapshot: Snapshot, began_s: float) -> Iterator[Event]:
        """Models of which more or fewer engines answer, where there are several."""
        before = self._models
        self._models = Counter()
        for engine in snapshot.engines:
            if engine.model and engine.state is EndpointState.OK:
                self._models[engine.model] += 1
        if snapshot.wall_s - began_s < _SETTLE_S:
            return
        for model in sorted(before.keys() | self._models.keys()):
            old = before[model]
            new = self._models[model]
            if old != new and max(old, new) > 1:
                level = Level.WARN if new < old else Level.NOTE
                counts: Parameters = {"before": float(old), "now": float(new)}
                name = clean(model, MOST_MODEL)
                yield Event(
                    wall_s=snapshot.wall_s,
                    kind=EventKind.REPLICAS,
                    scope=name,
                    code="replicas",
                    level=level,
                    parameters=counts,
                )

    def _gpu_changes(self, frame: Frame, snapshot: Snapshot, began_s: float) -> list[Event]:
        """New Xids, and GPUs that are lost, back or slowed down."""
        events: list[Event] = []
        gpus = {}
        for reading, gpu in zip(frame.gpus, snapshot.gpus, strict=True):
            gpus[gpu.reading.uuid] = (gpu, reading)
            before, reading_before = self._gpus.get(gpu.reading.uuid, (None, None))
            for xid in _new_xids(reading_before, reading, began_s):
                code: Parameters = {"xid": float(xid.code)}
                level = xid_of(xid.code).level
                events.append(_gpu_event(frame.wall_s, EventKind.XID, gpu, "xid", level, code))
            if before is not None or self._gpus:
                events += _gpu_events(before, gpu, frame.wall_s)
        self._gpus = gpus
        return events

    def _verdict_changes(self, snapshot: Snapshot, began_s: float) -> list[Event]:
        """Verdicts that came, changed (their level or cause, too) or went."""
        before = self._verdicts
        wall_s = snapshot.wall_s
        standing: dict[_Place, _StandingVerdict] = {}
        events: list[Event] = []
        for verdict in snapshot.verdicts:
            place = verdict.key, verdict.family
            old = before.get(place)
            code = _change_code(verdict, old)
            if code == _NEW_CAUSE and old is not None and wall_s - old.changed_s < _SETTLE_S:
                standing[place] = _StandingVerdict(verdict, old.cause, old.changed_s)
                continue
            standing[place] = _StandingVerdict(verdict, verdict.cause, wall_s)
            if code == _BEGAN and old is None and self._was_there_before(verdict, began_s):
                continue
            if code:
                events.append(_change_event(verdict, code, old, wall_s))
        events += _ended_events(before, standing, snapshot)
        self._verdicts = standing
        return events

    def _was_there_before(self, verdict: Verdict, began_s: float) -> bool:
        """Whether a first verdict is one that nobody suffers from, and that held when its thing was seen first."""
        if verdict.level not in (Level.NOTE, Level.OK):
            return False
        memory = self._engines.get(verdict.key)
        if memory is not None:
            began_s = memory.since_s
        return verdict.since <= rfc3339(began_s + _SETTLE_S)


def _new_xids(before: GpuReading | None, reading: GpuReading, began_s: float) -> list[XidEvent]:
    """Xids that came since the reading before; of a GPU that had none those since the first frame."""
    if before is None:
        return [xid for xid in reading.xid if xid.wall_s >= began_s]
    if reading.xid == before.xid:
        return []
    return [xid for xid in reading.xid if xid not in before.xid]


def _change_code(verdict: Verdict, old: _StandingVerdict | None) -> str:
    """Code of the event by which a verdict differs from the one that stood there; empty: none."""
    was_quiet = old is None or old.verdict.code in _QUIET
    if was_quiet and verdict.code in _QUIET:
        return ""
    if old is None or old.verdict.code is not verdict.code:
        return _BEGAN
    if old.verdict.level is not verdict.level:
        return _NEW_LEVEL
    if verdict.cause != old.cause and not verdict.until:
        return _NEW_CAUSE
    return ""


def _change_event(verdict: Verdict, code: str, old: _StandingVerdict | None, wall_s: float) -> Event:
    """The event of a verdict that began or changed."""
    parameters: Parameters = {}
    since_s = 0.0
    if code == _BEGAN:
        since_s = wall_of(verdict.since)
        if old is not None:
            parameters = {"before": old.verdict.code.value}
    elif code == _NEW_CAUSE:
        parameters = {"cause": verdict.cause}
    return _verdict_event(verdict, code, verdict.level, parameters, since_s, wall_s)


def _ended_events(
    before: Mapping[_Place, _StandingVerdict], standing: Mapping[_Place, _StandingVerdict], snapshot: Snapshot
) -> list[Event]:
    """Events of the verdicts that are over, of things that are still there."""
    gone = [old.verdict for place, old in before.items() if place not in standing and old.verdict.code not in _QUIET]
    if not gone:
        return []
    present = keys_of(snapshot)
    return [
        _verdict_event(verdict, "verdict_over", Level.OK, {}, 0.0, snapshot.wall_s)
        for verdict in gone
        if verdict.key in present
    ]


def _verdict_event(
    verdict: Verdict, code: str, level: Level, parameters: Parameters, since_s: float, wall_s: float
) -> Event:
    """An event on a verdict; `since_s` is its start (Unix time) where it began, else 0."""
    scope = clean(verdict.scope, MOST_MODEL)
    return Event(
        wall_s=wall_s,
        kind=EventKind.VERDICT,
        scope=scope,
        code=code,
        level=level,
        key=verdict.key,
        parameters=parameters,
        since_s=since_s,
        verdict=verdict,
    )


def _updated_memory(before: _EngineMemory | None, reading: EngineReading, wall_s: float) -> _EngineMemory:
    """Memory of an engine after this reading; the last answer of a silent one stays."""
    since_s = before.since_s if before is not None else wall_s
    has_ended = reading.departure is not None
    answers = _answers_now(before, reading, wall_s - since_s)
    is_new_answer = bool(answers) and (before is None or reading.monotonic_s != before.last_answer.monotonic_s)
    if before is None or is_new_answer:
        turned_back_s = -math.inf
        if before is not None:
            turned_back_s = wall_s if _is_older(reading, before.last_answer) else before.turned_back_s
        return _EngineMemory(since_s, answers, reading, has_ended, turned_back_s)
    if (before.answers, before.has_ended) == (answers, has_ended):
        return before
    return before._replace(answers=answers, has_ended=has_ended)


def _answers_now(before: _EngineMemory | None, reading: EngineReading, listed_s: float) -> bool | None:
    """Whether an engine answers; None for one that never did and has been listed for a moment only."""
    if reading.state is EndpointState.OK:
        return True
    never_judged = before is None or before.answers is None
    if never_judged and listed_s < _SETTLE_S:
        return None
    return False


def _engine_events(before: _EngineMemory, now: _EngineMemory, engine: Engine, wall_s: float) -> Iterator[Event]:
    """Events of an engine that does not answer any more, answers again, began anew, or serves another model."""
    name = clean(now.last_answer.name, MOST_MODEL)
    is_settled = wall_s - now.since_s >= _SETTLE_S
    if before.answers and not now.answers and not now.has_ended:  # an end has a verdict
        state: Parameters = {"state": engine.state.value.replace("_", " ")}
        yield Event(
            wall_s=wall_s,
            kind=EventKind.ENGINE,
            scope=name,
            code="down",
            level=Level.WARN,
            key=engine.key,
            parameters=state,
        )
    elif now.answers and not before.answers and (before.answers is False or is_settled):
        yield Event(
            wall_s=wall_s,
            kind=EventKind.ENGINE,
            scope=name,
            code="answers",
            level=Level.OK,
            key=engine.key,
        )
    if _began_anew(before.last_answer, now.last_answer) and not _is_in_turn(now, wall_s):
        yield Event(
            wall_s=wall_s,
            kind=EventKind.RESTART,
            scope=name,
            code="restarted",
            level=Level.WARN,
            key=engine.key,
        )
    code = _model_change(before.last_answer.model, now.last_answer.model, is_settled=is_settled)
    if code:
        models: Parameters = {
            "before": clean(before.last_answer.model, MOST_MODEL),
            "model": clean(now.last_answer.model, MOST_MODEL),
        }
        yield Event(
            wall_s=wall_s,
            kind=EventKind.MODEL,
            scope=name,
            code=code,
            level=Level.NOTE,
            key=engine.key,
            parameters=models,
        )


def _model_change(before: str, model: str, *, is_settled: bool) -> str:
    """Code of the event that an engine serves another model, or its first one; empty: none."""
    if not model or model == before:
        return ""
    if before:
        return "model_changed"
    if is_settled:
        return "model_loaded"
    return ""


def _is_older(reading: EngineReading, last: EngineReading) -> bool:
    """Whether a process answers that started before the one that answered last: a new one starts after it."""
    if not reading.started_wall_s or not last.started_wall_s:
        return False
    return reading.started_wall_s < last.started_wall_s - START_TOLERANCE_S


def _is_in_turn(memory: _EngineMemory, wall_s: float) -> bool:
    """Whether several servers have answered in turn of late."""
    return 0.0 <= wall_s - memory.turned_back_s < _IN_TURN_S  # the clock may have been ahead


def _began_anew(last: EngineReading, now: EngineReading) -> bool:
    """Whether its process is another one: by its start, else if all counters that had moved are lower now, of the ranks
    that both answers have."""
    if last.started_wall_s > 0.0 and now.started_wall_s > 0.0:
        return abs(now.started_wall_s - last.started_wall_s) > START_TOLERANCE_S
    ranks = {rank.rank for rank in last.ranks} & {rank.rank for rank in now.ranks}
    before = _counters(last, ranks)
    after = _counters(now, ranks)
    moved = [name for name, value in before.items() if value > 0.0 and name in after]
    return bool(moved) and all(after[name] < before[name] for name in moved)


def _counters(reading: EngineReading, ranks: Container[str]) -> Counter[str]:
    """Counters of some ranks, summed."""
    totals = Counter[str]()
    for rank in reading.ranks:
        if rank.rank in ranks:
            totals.update(rank.counters)
    return totals


def _gpu_events(before: Gpu | None, gpu: Gpu, wall_s: float) -> Iterator[Event]:
    """Events of a GPU that is lost, back or slowed down; `before` is None for one that was not listed before."""
    was_down = before is not None and before.reading.state in _DOWN_STATES
    if gpu.reading.state in _DOWN_STATES and not was_down:
        code = _DOWN_STATES[gpu.reading.state]
        parameters: Parameters = {}
        what = beyond_loss(gpu.reading.state_text)
        if what:
            parameters["what"] = clean(what, _MOST_TEXT)
        yield _gpu_event(wall_s, EventKind.GPU, gpu, code, Level.CRITICAL, parameters)
    elif was_down and gpu.reading.state is GpuState.OK:
        yield _gpu_event(wall_s, EventKind.GPU, gpu, "gpu_back", Level.OK)
    cause = _new_slowdown(before, gpu)
    if cause:
        yield _gpu_event(wall_s, EventKind.THROTTLE, gpu, "throttling", Level.WARN, {"cause": cause})


def _new_slowdown(before: Gpu | None, gpu: Gpu) -> str:
    """The first cause of a slowdown that was not there before, of a GPU that is and was well; empty: none."""
    if before is None or before.reading.state is not GpuState.OK or gpu.reading.state is not GpuState.OK:
        return ""
    for reason, cause in SLOWDOWNS.items():
        if reason in gpu.reading.throttle and reason not in before.reading.throttle:
            return cause.code
    return ""


def _gpu_event(
    wall_s: float, kind: EventKind, gpu: Gpu, code: str, level: Level, parameters: Parameters | None = None
) -> Event:
    """An event on a GPU, named by its index."""
    return Event(
        wall_s=wall_s,
        kind=kind,
        scope=f"gpu {gpu.reading.index}",
        code=code,
        level=level,
        key=gpu.reading.uuid,
        parameters=parameters or {},
    )

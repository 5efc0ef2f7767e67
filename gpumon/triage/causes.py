"""Which verdict is the cause of which: a lost GPU of the engine that hangs, a replica that is down of the one that has
too much to do, a host without memory of what is slow on it.

A verdict is called a consequence only where its own rule names the cause, or where a cause that can have it stands on
something that it needs (its GPUs, its backends, its twins, its host) and began at the same time or a little before.
All else stays apart: two troubles told as one hide the second.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec

from gpumon.readings.format import wall_of
from gpumon.readings.frame import Frame
from gpumon.readings.snapshot import Engine, Snapshot
from gpumon.readings.verdict import Family, Kind, Level, Limit, Verdict, verdict_id
from gpumon.triage.failing import LATE_BEFORE_TOKEN
from gpumon.triage.marks import GPU_DEGRADED, URGENT
from gpumon.triage.onset import HOST_TURNS
from gpumon.triage.programs import key_of

KeyT = TypeVar("KeyT")

BEFORE_S: Final = 15.0
"""How much earlier than its cause a consequence may seem to have begun: a GPU's last whole reading, an engine's last
token and a host's mean of 10 s are known that much apart."""
FOLLOWS_S: Final = 120.0
"""How long after its cause a consequence may begin at most: queues of replicas build up within a window of a minute
and the 30 s that a verdict takes; what begins later has a reason of its own."""
_STOPS: Final = frozenset({Limit.HUNG, Limit.UNRESPONSIVE, Limit.DOWN, Limit.FAILING})
"""An engine gives nothing, or errors."""
_OVERLOADED: Final = frozenset(
    {Limit.QUEUE_LIMIT, Limit.KV_CACHE_FULL, Limit.COMPUTE_BOUND, Limit.BANDWIDTH_BOUND, Limit.UNKNOWN}
)
"""An engine has more to do than it can: of `UNKNOWN` it is not known what is full."""
_SLOWED: Final = _OVERLOADED | {
    *(Limit.SLOWED_DOWN, Limit.STRAGGLER, Limit.INTERCONNECT_BOUND, Limit.LOW_EFFICIENCY, Limit.TRAFFIC_FELL)
}
"""An engine is slower than it was, and gets less done."""
_OF_GPU: Final[Mapping[Limit, frozenset[Limit]]] = {
    Limit.HARDWARE_FAULT: _STOPS | _SLOWED | {Limit.HARDWARE_FAULT},
    Limit.THROTTLED: _SLOWED | {Limit.THROTTLED},
    Limit.INTERCONNECT_BOUND: _SLOWED,
}
"""Limit of a GPU -> what it makes of the engines on it."""
_OF_HOST: Final[Mapping[Limit, frozenset[Limit]]] = {
    Limit.HOST_CPU: _SLOWED | {Limit.HOST_CPU, Limit.UNRESPONSIVE},
    Limit.HOST_DISK: frozenset({Limit.HOST_DISK, Limit.LOW_EFFICIENCY}),
    Limit.HOST_NETWORK: frozenset({Limit.HOST_NETWORK}),
    Limit.MEMORY_FULL: _SLOWED | {Limit.UNRESPONSIVE},
}
"""Limit of the host -> what it makes of the engines and GPUs on it."""
_OF_BACKEND: Final = _OVERLOADED | _STOPS
"""Limits of a front end that come of it while one of its backends does not serve."""
_SERVES_NOBODY: Final = frozenset({Limit.HUNG, Limit.UNRESPONSIVE, Limit.DOWN})
"""An engine's requests go to others, or wait there for good. One with too much to do is no cause for its twins."""
_ERRORS: Final = "errors"
"""Cause of the verdict on an engine that answers with errors, which its front end passes on."""
_NAMES_OTHER_SIDE: Final = frozenset({"kv_transfer_waits", "kv_expires", "hung_idle"})
"""Causes whose sentence names the engine on the other side of a KV transfer."""
_LATE: Final = frozenset(LATE_BEFORE_TOKEN.values())
"""Parameters of a verdict on clients that give up which say that they wait long for the first token."""
_PROGRAM: Final = "xid_program"
"""Cause of a GPU's verdict on an Xid that a program brought about."""
_OUT_OF_MEMORY: Final = "oom"
"""Cause of an engine's end: the kernel killed it, as the host had no memory left."""


_CHECKPOINT: Final = "checkpoint"
"""Cause of a verdict on a program that waits while its state is written."""
_MEMORY_FORECAST: Final = "host_memory_full_soon"
"""Cause of the forecast of when the host's memory is full."""
_SLOWER_PROGRAM: Final = "program_slower"
"""Cause of a verdict on a program that takes longer for the same work."""
_BUSY_CORES: Final = "cpu_rose"
"""Cause of a verdict on a host whose cores have more to do than before, for something else than its GPUs."""
_CAUSES_AS_NOTES: Final = frozenset({_CHECKPOINT, _BUSY_CORES})
"""Causes of notes that others may come of: they name what somebody or a program did, or what a GPU has become."""


class _Candidate(NamedTuple):
    """A verdict that may be the cause of another one."""

    verdict: Verdict
    is_named: bool = False
    """The rule of the other one has found this out itself: when both began says nothing more."""


class _Relations:
    """Dependencies between engines, GPUs and the host at one moment."""

    def __init__(self, frame: Frame, snapshot: Snapshot, verdicts: Iterable[Verdict]) -> None:
        self.causes = {verdict.id: verdict for verdict in verdicts if _can_be_cause(verdict)}
        """Verdicts that can be causes, by id."""
        self._snapshot = snapshot
        self._gpus = {reading.key: reading.gpus for reading in frame.engines}
        self._engines = {engine.key: engine for engine in snapshot.engines}
        self._broken = []
        """Engines that do not serve as they should, each with the verdict that says so."""
        for engine in snapshot.engines:
            for state in self.on(Kind.ENGINE, engine.key, Family.STATE):
                if state.code in _SERVES_NOBODY or state.cause == _ERRORS:
                    self._broken.append((engine, state))
        self._parents = {gpu.reading.uuid: gpu.reading.parent_uuid for gpu in snapshot.gpus if gpu.reading.parent_uuid}

    def on(self, kind: Kind, key: str, family: Family) -> Iterator[Verdict]:
        """The verdict of a family of a thing, where it can be a cause."""
        verdict = self.causes.get(verdict_id(kind, key, family))
        if verdict is not None:
            yield verdict

    def candidates(self, verdict: Verdict) -> Iterator[_Candidate]:
        """Verdicts that may be the cause of this one, the nearest first."""
        if verdict.kind is Kind.ENGINE:
            yield from self._of_own_gpus(verdict)
            yield from self._of_itself(verdict)
            yield from self._of_other_engines(verdict)
        elif verdict.kind is Kind.GPU:
            yield from self._of_program(verdict)
            yield from self._of_parent(verdict)
            yield from self._of_engines_on(verdict)
        elif verdict.code is Limit.HOST_DISK:
            yield from self._of_checkpoint()
        elif verdict.cause == _MEMORY_FORECAST:
            yield from self._of_short_memory()
        if verdict.kind is not Kind.HOST and verdict.cause != _CHECKPOINT:
            yield from self._of_host(verdict)

    def _of_checkpoint(self) -> Iterator[_Candidate]:
        """The verdict on a program that writes its state to the host's disks, and keeps them busy with that."""
        for gpu in self._snapshot.gpus:
            for wait in self.on(Kind.GPU, gpu.reading.uuid, Family.LIMIT):
                if wait.cause == _CHECKPOINT:
                    yield _Candidate(wait, is_named=True)

    def _of_short_memory(self) -> Iterator[_Candidate]:
        """The verdict that the host's memory is short by now: when all of it is used belongs to that."""
        for family in Family:
            for lack in self.on(Kind.HOST, "", family):
                if lack.code is Limit.MEMORY_FULL:
                    yield _Candidate(lack, is_named=True)

    def _of_program(self, verdict: Verdict) -> Iterator[_Candidate]:
        """Verdicts on the GPUs of a program that has become slower: it waits for the slowest of them. The one that its
        rule names is the cause, however late that was seen."""
        if verdict.cause != _SLOWER_PROGRAM:
            return
        keys = {gpu.reading.uuid: key_of(gpu) for gpu in self._snapshot.gpus}
        for gpu in self._snapshot.gpus:
            if keys[gpu.reading.uuid] is None or keys[gpu.reading.uuid] != keys.get(verdict.key):
                continue
            for fault in self.on(Kind.GPU, gpu.reading.uuid, Family.STATE):
                if fault.code in (Limit.THROTTLED, Limit.HARDWARE_FAULT):
                    yield _Candidate(fault, is_named=verdict.parameters.get("gpu") == float(gpu.reading.index))

    def _of_own_gpus(self, verdict: Verdict) -> Iterator[_Candidate]:
        """Verdicts on the GPUs of an engine, the first to begin first."""
        faults: list[Verdict] = []
        for uuid in self._gpus.get(verdict.key, ()):
            for family in (Family.STATE, Family.LIMIT):
                faults += self.on(Kind.GPU, uuid, family)
        for fault in sorted(faults, key=lambda fault: (fault.code is not verdict.code, fault.since)):
            is_its_fault = verdict.cause == GPU_DEGRADED and fault.code is verdict.code
            # Arithmetic that is full under a lower power limit is short of clock, however long ago somebody set it.
            is_short_of_clock = verdict.code is Limit.COMPUTE_BOUND and _is_lowered_limit(fault)
            is_named = is_its_fault or is_short_of_clock or verdict.cause == "hung_lost_gpu"
            if fault.cause != _PROGRAM and verdict.code in _OF_GPU.get(fault.code, ()):
                yield _Candidate(fault, is_named)

    def _of_itself(self, verdict: Verdict) -> Iterator[_Candidate]:
        """The limit of an engine whose clients give up or are turned away: it has more to do than it can."""
        is_late = verdict.cause in ("aborts", "aborts_midway") and not _LATE.isdisjoint(verdict.parameters)
        if verdict.code is Limit.FAILING and (is_late or verdict.cause == "rejections"):
            # Whoever stops an answer midway may be late for another reason than one that nobody knows.
            causes = _OVERLOADED - {Limit.UNKNOWN} if verdict.cause == "aborts_midway" else _OVERLOADED
            for limit in self.on(Kind.ENGINE, verdict.key, Family.LIMIT):
                if limit.code in causes:
                    yield _Candidate(limit, is_named=True)

    def _of_other_engines(self, verdict: Verdict) -> Iterator[_Candidate]:
        """Verdicts on the other side of a KV transfer, on backends, and on replicas."""
        engine = self._engines.get(verdict.key)
        if engine is None:
            return
        other_side = _named_engine(verdict) if verdict.cause in _NAMES_OTHER_SIDE else ""
        for other, state in self._broken:
            is_named = other.name == other_side
            if other.key != engine.key and (is_named or self._hands_on(engine, verdict, other, state)):
                yield _Candidate(state, is_named)

    def _hands_on(self, engine: Engine, verdict: Verdict, other: Engine, state: Verdict) -> bool:
        """Whether an engine has its trouble from another one: a front end from its backend, or a replica from the one
        whose requests it takes over."""
        if verdict.code in _OF_BACKEND and any(backend.engine == other.name for backend in engine.backends):
            return True
        takes_over = state.code in _SERVES_NOBODY and verdict.code in _OVERLOADED
        groups = self._snapshot.replicas
        return takes_over and any(engine.name in group.engines and other.name in group.engines for group in groups)

    def _of_parent(self, verdict: Verdict) -> Iterator[_Candidate]:
        """The verdict on the GPU that a MIG slice is part of."""
        parent = self._parents.get(verdict.key, "")
        if parent:
            for fault in self.on(Kind.GPU, parent, Family.STATE):
                yield _Candidate(fault, is_named=fault.code is verdict.code)

    def _of_engines_on(self, verdict: Verdict) -> Iterator[_Candidate]:
        """The end or hang of an engine on a GPU whose memory it left, or where it caused an Xid."""
        if verdict.family is not Family.USE and verdict.cause != _PROGRAM:
            return
        for key, gpus in self._gpus.items():
            if verdict.key in gpus:
                for state in self.on(Kind.ENGINE, key, Family.STATE):
                    if state.code in _STOPS:
                        yield _Candidate(state)

    def _of_host(self, verdict: Verdict) -> Iterator[_Candidate]:
        """Verdicts on the host."""
        was_killed = verdict.code is Limit.DOWN and verdict.parameters.get("cause") == _OUT_OF_MEMORY
        for family in Family:
            for lack in self.on(Kind.HOST, "", family):
                is_named = lack.code is verdict.code or (was_killed and lack.code is Limit.MEMORY_FULL)
                is_named = is_named or (lack.cause == _BUSY_CORES and verdict.parameters.get("setting") in HOST_TURNS)
                if is_named or verdict.code in _OF_HOST.get(lack.code, ()):
                    yield _Candidate(lack, is_named)


def _can_be_cause(verdict: Verdict) -> bool:
    """Whether something may come of a verdict: of a note only where it names what somebody, or a program, did."""
    if verdict.level in URGENT or verdict.cause in _CAUSES_AS_NOTES:
        return True
    # A limit, a clock or a link that was seen to change.
    return _is_lowered_limit(verdict) or "fell" in verdict.parameters


def _is_lowered_limit(verdict: Verdict) -> bool:
    """Whether a verdict is on a power limit that was lowered while gpumon watched."""
    return verdict.code is Limit.THROTTLED and "before_w" in verdict.parameters


def _named_engine(verdict: Verdict) -> str:
    """The engine that a verdict names as its other side; empty: none."""
    for parameters in (verdict.parameters, *(action.parameters for action in verdict.actions[:1])):
        name = parameters.get("engine")
        if isinstance(name, str):
            return name
    return ""


def _began_with(cause: Verdict, consequence: Verdict) -> bool:
    """Whether a consequence began when its cause did, or soon after."""
    after_s = wall_of(consequence.since) - wall_of(cause.since)
    return -BEFORE_S <= after_s <= FOLLOWS_S


def with_causes(
    frame: Frame, snapshot: Snapshot, verdicts: Sequence[Verdict], before: Mapping[str, str]
) -> list[Verdict]:
    """The verdicts, each with the id of the verdict that is at the root of it in `caused_by`.

    `before`: id of a verdict -> `caused_by` of the one that stood there a moment ago. As long as that cause stands, and
    may have this consequence, what stands there stays a consequence: an overload of the KV cache becomes one of the
    slots, and begins anew by its time.
    """
    relations = _Relations(frame, snapshot, verdicts)
    if not relations.causes:
        return list(verdicts)
    direct: dict[str, str] = {}
    for verdict in verdicts:
        if verdict.level is not Level.OK:
            cause = _cause_of(verdict, relations, before.get(verdict.id, ""))
            if cause:
                direct[verdict.id] = cause
    linked = []
    for verdict in verdicts:
        root = root_of(verdict.id, direct)
        if root != verdict.id:
            verdict = msgspec.structs.replace(verdict, caused_by=root)
        linked.append(verdict)
    return linked


def _cause_of(verdict: Verdict, relations: _Relations, before: str) -> str:
    """Id of the verdict that this one comes of; empty: of none that stands. `before`: root of what stood here."""
    for cause, is_named in relations.candidates(verdict):
        if cause.id == verdict.id:
            continue
        if is_named or cause.id == before or _began_with(cause, verdict):
            return cause.id
    return ""


def root_of(thing: KeyT, cause_of: Mapping[KeyT, KeyT]) -> KeyT:
    """The end of a chain of causes; the thing itself where the chain leads into a ring."""
    seen = [thing]
    while seen[-1] in cause_of:
        cause = cause_of[seen[-1]]
        if cause in seen:
            return thing
        seen.append(cause)
    return seen[-1]

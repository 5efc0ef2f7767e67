"""An engine beside the replicas of its model: which of them have room while it has none, and how it stands apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from gpumon.efficiency.checks import EMPTY, ROLES
from gpumon.efficiency.ratio import mean_known
from gpumon.readings.frame import EndpointState, EngineReading, GpuState
from gpumon.readings.snapshot import Engine
from gpumon.readings.verdict import Evidence, Level, Parameters
from gpumon.triage.signals import TOKEN_TOTALS, Case, Finding, action, first_known, gpus_of, params

_SEEN_S: Final = 30.0
"""Over so long a replica must have had room, as a limit must hold."""
_MOST: Final = 0.6
"""Part of an engine's own load up to which a replica has room for some of it: equal ones are within some ten percent.
Of its KV cache and of its slots no more may be in use either."""

EngineInstance = tuple[Engine, EngineReading]


class _Load(NamedTuple):
    """Load of one replica, means of `_SEEN_S`; None: not known right now."""

    key: str
    name: str
    role: str
    """Its part of the work: prefill and decode may run apart."""
    works: bool
    """Its GPUs are there, and requests that run get tokens."""
    waiting: float | None
    running: float | None
    kv_usage_ratio: float | None
    slots_ratio: float | None
    """Requests that run, of those that may at once."""


def replicas_of(case: Case, engine: Engine) -> list[EngineInstance]:
    """The engines that serve its model and answer, itself among them."""
    names = frozenset(_names(case, engine))
    pairs = zip(case.snapshot.engines, case.frame.engines, strict=True)
    replicas = []
    for sibling, reading in pairs:
        if sibling.name in names and sibling.state is EndpointState.OK:
            replicas.append((sibling, reading))
    return replicas


def alike(case: Case, engine: Engine) -> list[Case]:
    """`replicas`, each as it is judged itself."""
    by_uuid = {gpu.uuid: gpu for gpu in case.snapshot.gpus}
    cases = []
    for sibling, reading in replicas_of(case, engine):
        recent = case.others[sibling.key]
        own = case._replace(key=sibling.key, name=sibling.name, recent=recent, found=recent.found, near=frozenset())
        cases.append(own._replace(engine=sibling, reading=reading, gpus=gpus_of(reading, by_uuid)))
    return cases


def _names(case: Case, engine: Engine) -> tuple[str, ...]:
    """The engines of its group of replicas."""
    for group in case.snapshot.replicas:
        if engine.name in group.engines:
            return group.engines
    return (engine.name,)


def _loads(case: Case, engine: Engine) -> list[_Load]:
    """Loads of all its replicas; worked out once in a sample of the host, as each of many may be at its limit."""
    worked_out = case.others[""].worked_out
    key = ("loads of replicas", _names(case, engine))
    if key in worked_out:
        known: list[_Load] = worked_out[key]
        return known
    loads = [_load(replica) for replica in alike(case, engine)]
    worked_out[key] = loads
    return loads


def _load(case: Case) -> _Load:
    """The load of a replica in the last seconds."""
    running = case.mean("running", _SEEN_S)
    slots = case.slots()
    slots_ratio = None
    if running is not None and slots is not None:
        most, _ = slots
        slots_ratio = running / most
    return _Load(
        key=case.key,
        name=case.name,
        role=_role(case),
        works=_works(case, running),
        waiting=case.mean("waiting", _SEEN_S),
        running=running,
        kv_usage_ratio=case.mean("kv_usage_ratio", _SEEN_S),
        slots_ratio=slots_ratio,
    )


def _role(case: Case) -> str:
    """Part of the work that an engine does of prefill and decode; empty where it does both."""
    for key in ROLES:
        role = case.info.get(key, "")
        if role:
            return role
    return ""


def _works(case: Case, running: float | None) -> bool:
    """Whether an engine gives tokens for its requests, and all its GPUs are well."""
    if case.served() is None or any(gpu.state is not GpuState.OK for gpu in case.gpus):
        return False
    quiet_s = case.still_s(TOKEN_TOTALS)
    hangs = bool(running) and quiet_s is not None and quiet_s >= _SEEN_S
    return not hangs


def _has_room(replica: _Load, load: float | None, most: float) -> bool:
    """Its KV cache and its slots have, as far as they are known; where neither is, nothing is claimed."""
    if not replica.works or replica.waiting is None or replica.waiting > EMPTY:
        return False
    taken = first_known(replica.kv_usage_ratio, replica.slots_ratio)
    if taken is None or load is None or load > most:
        return False
    return max(taken, replica.slots_ratio or 0.0) <= _MOST


def beside_replicas(case: Case, finding: Finding, field: str) -> Finding:
    """The finding beside the engine's replicas: those that have room can take some of its requests, first of all.

    `field`: the load in which the engine has none (`running`, `kv_usage_ratio`); empty: they are not asked for.
    """
    own = None
    if field:
        own = case.mean(field)
    if not own:
        return apart(case, finding)
    others = _same_role(case)
    roomy = []
    for load in others:
        if _has_room(load, getattr(load, field), _MOST * own):
            roomy.append(load)
    if not roomy:
        return apart(case, finding)
    spare = _spare(roomy, len(others))
    proof = Evidence("replicas_with_room", float(len(roomy)), parameters=spare)
    return apart(
        case,
        finding._replace(
            parameters=finding.parameters | spare,
            evidence=(proof, *finding.evidence),
            actions=(action("spread_requests", **spare), *finding.actions),
        ),
    )


def _same_role(case: Case) -> list[_Load]:
    """The other replicas that do the same part of the work: prefill, decode, or both."""
    if case.engine is None:
        return []
    role = ""
    others = []
    for load in _loads(case, case.engine):
        if load.key == case.key:
            role = load.role
        else:
            others.append(load)
    return [load for load in others if load.role == role]


def _spare(roomy: Sequence[_Load], replicas: int) -> Parameters:
    """Who has room: the name of a single other replica, else how many of them; and how full they are on average."""
    spare_kv = mean_known(load.kv_usage_ratio for load in roomy)
    spare_running = mean_known(load.running for load in roomy)
    if replicas == 1:
        return params(replica=roomy[0].name, spare_kv=spare_kv, spare_running=spare_running)
    return params(roomy=float(len(roomy)), replicas=float(replicas), spare_kv=spare_kv, spare_running=spare_running)


def apart(case: Case, finding: Finding) -> Finding:
    """The finding, with what an engine differs in from its replicas."""
    engine = case.engine
    if engine is None or not engine.deviates:
        return finding
    level = finding.level
    if level is Level.OK:
        level = Level.NOTE
    evidence = (*finding.evidence, *engine.deviates)
    return finding._replace(evidence=evidence, level=level, actions=finding.actions or (action("compare_replicas"),))

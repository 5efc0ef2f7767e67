"""An engine beside the replicas of its model: which of them have room while it has none, and how it stands apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from gpumon.efficiency.checks import EMPTY_QUEUE, ROLES
from gpumon.efficiency.ratio import mean_known
from gpumon.readings.frame import EndpointState, EngineReading, GpuState
from gpumon.readings.snapshot import Engine
from gpumon.readings.verdict import REPLICAS_WITH_ROOM, Level, Parameters, Team
from gpumon.triage.finding import Finding, Quantity, Remedy, params
from gpumon.triage.sentences import COMPARE_REPLICAS
from gpumon.triage.signals import TOKEN_TOTALS, Case, first_known, gpus_of

_ROOM_S: Final = 30.0
"""Seconds for which a replica must have had room: as long as a limit must hold."""
_MOST_WITH_ROOM: Final = 0.6
"""Part of an engine's own load up to which a replica has room for some of it: equal ones are within some ten percent.
Of its KV cache and of its slots no more may be in use either."""

EngineInstance = tuple[Engine, EngineReading]
"""An engine, and its reading."""


REPLICAS_WITH_ROOM_FIGURE: Final = Quantity(
    REPLICAS_WITH_ROOM,
    (
        "[{replica}|{value:requests} of {replicas:requests} other replicas]: [KV cache "
        "{spare_kv:percent}, ][{spare_running:requests} running, ]none waiting"
    ),
)
SPREAD_REQUESTS: Final = Remedy(
    "spread_requests",
    (
        "spread its requests: [{replica} has|{roomy:requests} of its {replicas:requests} other "
        "replicas have] room, so look at the load balancer (its policy, weights, health checks, "
        "session or prefix affinity)"
    ),
    team=Team.SCHEDULER,
)


class _Load(NamedTuple):
    """Load of one replica, means of `_ROOM_S`; None: not known right now."""

    key: str
    name: str
    role: str
    """Its part of the work: prefill and decode may run apart."""
    is_at_work: bool
    """It is awake, its GPUs are there, and requests that run get tokens."""
    waiting: float | None
    running: float | None
    kv_usage_ratio: float | None
    slots_ratio: float | None
    """Requests that run, of those that may at once."""


def replicas_of(case: Case, engine: Engine) -> list[EngineInstance]:
    """The engines that serve its model and answer, itself among them."""
    names = frozenset(_names(case, engine))
    pairs = zip(case.snapshot.engines, case.frame.engines, strict=True)
    return [
        (sibling, reading) for sibling, reading in pairs if sibling.name in names and sibling.state is EndpointState.OK
    ]


def replica_cases(case: Case, engine: Engine) -> list[Case]:
    """The cases of the engines that serve its model and answer (`replicas_of`), its own among them."""
    by_uuid = {gpu.reading.uuid: gpu for gpu in case.snapshot.gpus}
    cases = []
    for sibling, reading in replicas_of(case, engine):
        recent = case.recents[sibling.key]
        own_case = case._replace(
            key=sibling.key,
            name=sibling.name,
            recent=recent,
            found_limits=recent.found_limits,
            limits_before=frozenset(),
            standing_limits=frozenset(),
            engine=sibling,
            reading=reading,
            gpus=gpus_of(reading, by_uuid),
        )
        cases.append(own_case)
    return cases


def _names(case: Case, engine: Engine) -> tuple[str, ...]:
    """The engines of its group of replicas."""
    for group in case.snapshot.replicas:
        if engine.name in group.engines:
            return group.engines
    return (engine.name,)


def _loads(case: Case, engine: Engine) -> list[_Load]:
    """Loads of all its replicas; worked out once in a sample of the host, as each of many may be at its limit."""
    worked_out = case.host_recent.worked_out
    key = ("loads of replicas", _names(case, engine))
    if key in worked_out:
        cached: list[_Load] = worked_out[key]
        return cached
    loads = [_load(replica) for replica in replica_cases(case, engine)]
    worked_out[key] = loads
    return loads


def _load(case: Case) -> _Load:
    """The load of a replica in the last seconds."""
    running = case.mean("running", _ROOM_S)
    slots = case.slots()
    slots_ratio = running / slots.number if running is not None and slots is not None else None
    return _Load(
        key=case.key,
        name=case.name,
        role=_role(case),
        is_at_work=_is_at_work(case, running),
        waiting=case.mean("waiting", _ROOM_S),
        running=running,
        kv_usage_ratio=case.mean("kv_usage_ratio", _ROOM_S),
        slots_ratio=slots_ratio,
    )


def _role(case: Case) -> str:
    """Part of the work that an engine does of prefill and decode; empty where it does both."""
    for key in ROLES:
        role = case.info.get(key, "")
        if role:
            return role
    return ""


def _is_at_work(case: Case, running: float | None) -> bool:
    """Whether an engine is awake and gives tokens for its requests, and all its GPUs are well."""
    engine = case.serving_engine()
    if engine is None or engine.asleep or any(gpu.reading.state is not GpuState.OK for gpu in case.gpus):
        return False
    quiet_s = case.unmoved_s(TOKEN_TOTALS)
    hangs = bool(running) and quiet_s is not None and quiet_s >= _ROOM_S
    return not hangs


def _has_room(replica: _Load, load: float | None, most: float) -> bool:
    """Whether its KV cache and its slots have room, as far as they are known; False where neither is.

    `load` is its load in what the engine has no room for, `most` the load up to which it could take some.
    """
    if not replica.is_at_work or replica.waiting is None or replica.waiting > EMPTY_QUEUE:
        return False
    used_share = first_known(replica.kv_usage_ratio, replica.slots_ratio)
    if used_share is None or load is None or load > most:
        return False
    return max(used_share, replica.slots_ratio or 0.0) <= _MOST_WITH_ROOM


def with_roomy_replicas(case: Case, finding: Finding, field: str) -> Finding:
    """The finding with the engine's replicas that have room: to send them some of its requests is the first action.

    `field` is the load in which the engine has no room (`running`, `kv_usage_ratio`); empty: none is looked for.
    """
    own_load = case.mean(field) if field else None
    if not own_load:
        return with_replica_comparison(case, finding)
    others = _same_role(case)
    roomy = [load for load in others if _has_room(load, getattr(load, field), _MOST_WITH_ROOM * own_load)]
    if not roomy:
        return with_replica_comparison(case, finding)
    room = _room_parameters(roomy, len(others))
    evidence = REPLICAS_WITH_ROOM_FIGURE.evidence(float(len(roomy)), parameters=room)
    return with_replica_comparison(
        case,
        finding._replace(
            parameters=finding.parameters | room,
            evidence=(evidence, *finding.evidence),
            actions=(SPREAD_REQUESTS.action(**room), *finding.actions),
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


def _room_parameters(roomy: Sequence[_Load], replicas: int) -> Parameters:
    """Who has room: the name of a single other replica, else how many of them; and how full they are on average."""
    spare_kv = mean_known(load.kv_usage_ratio for load in roomy)
    spare_running = mean_known(load.running for load in roomy)
    if replicas == 1:
        return params(replica=roomy[0].name, spare_kv=spare_kv, spare_running=spare_running)
    return params(roomy=float(len(roomy)), replicas=float(replicas), spare_kv=spare_kv, spare_running=spare_running)


def with_replica_comparison(case: Case, finding: Finding) -> Finding:
    """The finding, with what an engine differs in from its replicas."""
    engine = case.engine
    if engine is None or not engine.deviates:
        return finding
    level = Level.NOTE if finding.level is Level.OK else finding.level
    evidence = (*finding.evidence, *engine.deviates)
    actions = finding.actions or (COMPARE_REPLICAS.action(),)
    return finding._replace(evidence=evidence, level=level, actions=actions)

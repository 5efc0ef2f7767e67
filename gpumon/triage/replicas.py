"""An engine beside the replicas of its model: which of them have room while it has none, and how it stands apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from gpumon.efficiency.checks import EMPTY, ROLES
from gpumon.readings.frame import EndpointState, EngineReading, GpuState
from gpumon.readings.snapshot import Engine
from gpumon.readings.verdict import Evidence, Level, Parameters
from gpumon.triage.signals import TOKENS, Case, Finding, action, params

SEEN_S: Final = 30.0
"""Over so long a replica must have had room, as a limit must hold."""
MOST: Final = 0.6
"""Part of an engine's own load up to which a replica has room for some of it: equal ones are within some ten percent.
Of its KV cache and of its slots no more may be in use either."""

Instance = tuple[Engine, EngineReading]


class _Load(NamedTuple):
    """Load of one replica, means of `SEEN_S`; None: not known right now."""

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


def replicas(case: Case, engine: Engine) -> list[Instance]:
    """The engines that serve its model and answer, itself among them."""
    names = frozenset(_names(case, engine))
    pairs = zip(case.snapshot.engines, case.frame.engines, strict=True)
    replicas = []
    for one, reading in pairs:
        if one.name in names and one.state is EndpointState.OK:
            replicas.append((one, reading))
    return replicas


def alike(case: Case, engine: Engine) -> list[Case]:
    """`replicas`, each as it is judged itself."""
    gpus = {gpu.uuid: gpu for gpu in case.snapshot.gpus}
    found = []
    for one, reading in replicas(case, engine):
        own = tuple(gpus[uuid] for uuid in reading.gpus if uuid in gpus)
        recent = case.others[one.key]
        each = case._replace(key=one.key, name=one.name, recent=recent, found=recent.found, near=frozenset())
        found.append(each._replace(engine=one, reading=reading, gpus=own))
    return found


def _names(case: Case, engine: Engine) -> tuple[str, ...]:
    groups = (group.engines for group in case.snapshot.replicas if engine.name in group.engines)
    return next(groups, (engine.name,))


def _loads(case: Case, engine: Engine) -> list[_Load]:
    """Loads of all its replicas; worked out once in a sample of the host, as each of many may be at its limit."""
    kept = case.others[""].worked_out
    of = ("loads of replicas", _names(case, engine))
    if of not in kept:
        kept[of] = [_load(one) for one in alike(case, engine)]
    found: list[_Load] = kept[of]
    return found


def _load(case: Case) -> _Load:
    waiting, running, usage = (case.mean(field, SEEN_S) for field in ("waiting", "running", "kv_usage_ratio"))
    role = next((value for key in ROLES if (value := case.info.get(key, ""))), "")
    known = case.slots()
    if running is None or known is None:
        share = None
    else:
        share = running / known[0]
    quiet_s = case.still_s(TOKENS)
    hangs = bool(running) and quiet_s is not None and quiet_s >= SEEN_S
    works = case.served() is not None and not hangs and all(gpu.state is GpuState.OK for gpu in case.gpus)
    return _Load(case.key, case.name, role, works, waiting, running, usage, share)


def _has_room(one: _Load, load: float | None, most: float) -> bool:
    """Its KV cache and its slots have, as far as they are known; where neither is, nothing is claimed."""
    nobody_waits = one.waiting is not None and one.waiting <= EMPTY
    taken = [share for share in (one.kv_usage_ratio, one.slots_ratio) if share is not None]
    fits = load is not None and load <= most and bool(taken) and max(taken) <= MOST
    return one.works and nobody_waits and fits


def beside(case: Case, finding: Finding, field: str) -> Finding:
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
        if _has_room(load, getattr(load, field), MOST * own):
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
    loads = _loads(case, case.engine)
    roles = []
    for load in loads:
        if load.key == case.key:
            roles.append(load.role)
    role = roles[0] if roles else ""
    return [load for load in loads if load.key != case.key and load.role == role]


def _spare(roomy: Sequence[_Load], replicas: int) -> Parameters:
    """Who has room: the name of a single other replica, else how many of them; and how full they are on average."""
    usage = []
    for load in roomy:
        if load.kv_usage_ratio is not None:
            usage.append(load.kv_usage_ratio)
    running = []
    for load in roomy:
        if load.running is not None:
            running.append(load.running)
    spare_kv = None
    if usage:
        spare_kv = sum(usage) / len(usage)
    spare_running = None
    if running:
        spare_running = sum(running) / len(running)
    if replicas == 1:
        return params(replica=roomy[0].name, spare_kv=spare_kv, spare_running=spare_running)
    return params(roomy=float(len(roomy)), replicas=float(replicas), spare_kv=spare_kv, spare_running=spare_running)


def apart(case: Case, finding: Finding) -> Finding:
    """The finding, with what an engine differs in from its replicas."""
    engine = case.engine
    if engine is None or not engine.deviates:
        return finding
    return finding._replace(
        evidence=(*finding.evidence, *engine.deviates),
        level=Level.NOTE if finding.level is Level.OK else finding.level,
        actions=finding.actions or (action("compare_replicas"),),
    )

"""An engine beside the replicas of its model: which of them have room while it has none, and how it stands apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from gpumon.efficiency.checks import EMPTY, ROLES
from gpumon.readings.frame import EndpointState, EngineReading, GpuState
from gpumon.readings.snapshot import Engine, Evidence, Level
from gpumon.triage.engine_signals import mean, percent, requests, served, slots
from gpumon.triage.engine_state import TOKENS, still_s
from gpumon.triage.rule import Finding
from gpumon.triage.scene import Scene

SEEN_S: Final = 30.0
"""Over so long a replica must have had room, as a limit must hold."""
MOST: Final = 0.6
"""Part of an engine's own load up to which a replica has room for some of it: equal ones are within some ten percent.
Of its KV cache and of its slots no more may be in use either."""
APART: Final = "means of 60 s, held against those of its replicas"
LOOK: Final = "the load balancer (its policy, weights, health checks, session or prefix affinity)"

Instance = tuple[Engine, EngineReading]


class Spare(NamedTuple):
    """Replicas that could take some of what an engine has too much of."""

    text: str
    """`its 3 other replicas have room (KV cache 30 %, 8 running, none waiting)`."""
    action: str
    proof: Evidence


class _Load(NamedTuple):
    """What one replica has to do, means of `SEEN_S`; None: not known right now."""

    key: str
    name: str
    role: str
    """What it does of the work: prefill and decode may run apart."""
    works: bool
    """Its GPUs are there, and requests that run get tokens."""
    waiting: float | None
    running: float | None
    kv_usage_ratio: float | None
    slots_ratio: float | None
    """Requests that run, of those that may at once."""


def replicas(scene: Scene, engine: Engine) -> list[Instance]:
    """The engines that serve its model and answer, itself among them."""
    names = frozenset(_names(scene, engine))
    pairs = zip(scene.snapshot.engines, scene.frame.engines, strict=True)
    return [(one, reading) for one, reading in pairs if one.name in names and one.state is EndpointState.OK]


def alike(scene: Scene, engine: Engine) -> list[Scene]:
    """`replicas`, each as it is judged itself."""
    gpus = {gpu.uuid: gpu for gpu in scene.snapshot.gpus}
    found = []
    for one, reading in replicas(scene, engine):
        own, recent = tuple(gpus[uuid] for uuid in reading.gpus if uuid in gpus), scene.others[one.key]
        each = scene._replace(key=one.key, name=one.name, recent=recent, found=recent.found, near=frozenset())
        found.append(each._replace(engine=one, reading=reading, gpus=own))
    return found


def _names(scene: Scene, engine: Engine) -> tuple[str, ...]:
    groups = (group.engines for group in scene.snapshot.replicas if engine.name in group.engines)
    return next(groups, (engine.name,))


def spare(scene: Scene, field: str) -> Spare | None:
    """Its replicas that have room while it is at a limit; `field`: the load in which it has none (`running`, ...)."""
    engine, own = scene.engine, mean(scene, field)
    loads = [] if engine is None or not own else _loads(scene, engine)
    role = next((one.role for one in loads if one.key == scene.key), "")
    others = [one for one in loads if one.key != scene.key and one.role == role]
    roomy = [one for one in others if _has_room(one, getattr(one, field), MOST * (own or 0.0))]
    if not roomy:
        return None
    figures, all_of_them = _figures(roomy), f"its {len(others)} other replicas"
    who = all_of_them if len(roomy) == len(others) else f"{len(roomy)} of {all_of_them}"
    who = roomy[0].name if len(others) == 1 else who
    has = "has" if len(roomy) == 1 else "have"
    action = f"spread its requests: {who} {has} room, so look at {LOOK}"
    proof = Evidence(f"{who}: {figures}", f"{len(roomy)} replicas, mean of {SEEN_S:.0f} s", float(len(roomy)))
    return Spare(f"{who} {has} room ({figures})", action, proof)


def _loads(scene: Scene, engine: Engine) -> list[_Load]:
    """Of all its replicas; worked out once in a sample of the host, as each of many may be at its limit."""
    kept, of = scene.others[""].worked_out, ("loads of replicas", _names(scene, engine))
    if of not in kept:
        kept[of] = [_load(one) for one in alike(scene, engine)]
    found: list[_Load] = kept[of]
    return found


def _load(scene: Scene) -> _Load:
    waiting, running, usage = (mean(scene, field, SEEN_S) for field in ("waiting", "running", "kv_usage_ratio"))
    info = {} if scene.reading is None else scene.reading.info
    role = next((said for key in ROLES if (said := info.get(key, ""))), "")
    known = slots(scene)
    share = None if running is None or known is None else running / known[0]
    quiet_s = still_s(scene, TOKENS)
    hangs = bool(running) and quiet_s is not None and quiet_s >= SEEN_S
    works = served(scene) is not None and not hangs and all(gpu.state is GpuState.OK for gpu in scene.gpus)
    return _Load(scene.key, scene.name, role, works, waiting, running, usage, share)


def _has_room(one: _Load, load: float | None, most: float) -> bool:
    """Its KV cache and its slots have, as far as they are known; where neither is, nothing is claimed."""
    nobody_waits = one.waiting is not None and one.waiting <= EMPTY
    taken = [share for share in (one.kv_usage_ratio, one.slots_ratio) if share is not None]
    fits = load is not None and load <= most and bool(taken) and max(taken) <= MOST
    return one.works and nobody_waits and fits


def _figures(loads: Sequence[_Load]) -> str:
    """`KV cache 30 %, 8 running, none waiting`, means of them."""
    usage = [one.kv_usage_ratio for one in loads if one.kv_usage_ratio is not None]
    running = [one.running for one in loads if one.running is not None]
    parts = [f"KV cache {percent(sum(usage) / len(usage))}"] if usage else []
    parts += [f"{requests(sum(running) / len(running))} running"] if running else []
    return ", ".join((*parts, "none waiting"))


def apart(scene: Scene, finding: Finding, told: Spare | None = None) -> Finding:
    """The finding, with what an engine differs in from its replicas; `told`: the finding speaks of them already."""
    engine = scene.engine
    if engine is None or not engine.deviates:
        return finding
    proof = (*finding.evidence, *(Evidence(text, APART) for text in engine.deviates))
    if told is not None:
        return finding._replace(evidence=proof)
    text = f"{finding.text}; unlike its replicas: {engine.deviates[0]}"
    level = Level.NOTE if finding.level is Level.OK else finding.level
    action = finding.action or f"look at {LOOK}, and compare its GPU, clocks and options with those of its replicas"
    return finding._replace(text=text, evidence=proof, level=level, action=action)

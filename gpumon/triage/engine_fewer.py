"""On how many GPUs the same traffic would fit, and what the others cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from gpumon.efficiency.service import FRONTENDS
from gpumon.readings.frame import EndpointState
from gpumon.readings.snapshot import Engine, Gpu
from gpumon.triage.engine_little import Little, few
from gpumon.triage.engine_replicas import Instance, alike, replicas
from gpumon.triage.engine_signals import finite, mean
from gpumon.triage.scene import KEPT_S, Scene

OVERHEAD_BYTES: Final = 7.5e9
"""Of one GPU, beside weights and KV cache: activations and buffers (vLLM: 5 to 7 GiB)."""
RESERVED: Final = 0.9
"""Part of the memory that an engine takes."""
MOST_MFU: Final = 0.6
MOST_MBU: Final = 0.6
"""What the GPUs that are left may come to, on average: tuned stacks reach 50 % to 70 % of either."""


_THERE: Final = frozenset({EndpointState.OK, EndpointState.STARTING, EndpointState.TIMEOUT})


class Fewer(NamedTuple):
    """What the traffic needs."""

    needed: int
    here: int
    """GPUs, of those that have the model now."""
    instances: int
    """Instances that are needed; 0: it is one instance on fewer GPUs."""
    of: int
    """Instances that are here."""
    told_at: str = ""
    """The replica that tells it, where it is another."""


def fewer(scene: Scene, engine: Engine, room: float, running: float) -> Fewer | None:
    """Fewer instances of the model where it has several, else fewer GPUs for its one; None where it needs all."""
    siblings = replicas(scene, engine)
    ranks = max(1, engine.hardware.ranks)
    if not _taken(scene, {one.key for one, _ in siblings}).isdisjoint(_gpus(siblings)):
        return None
    if len(siblings) > 1:
        return _of_instances(scene, engine, siblings)
    gpus = finite(engine.hardware.gpu_count)
    if ranks > 1 and gpus:
        each = gpus / ranks
        k = _instances(scene, [engine], running, room / ranks, ranks)
        return Fewer(math.ceil(k * each), round(gpus), k, ranks) if k < ranks else None
    return _of_gpus(scene, engine, running)


def _gpus(instances: Sequence[Instance]) -> set[str]:
    return {uuid for _, reading in instances for uuid in reading.gpus}


def _taken(scene: Scene, keys: set[str]) -> set[str]:
    """GPUs that engines other than these run on: they do not become free."""
    others = (one for one in scene.frame.engines if one.state in _THERE and one.kind not in FRONTENDS)
    return {uuid for one in others if one.key not in keys for uuid in one.gpus}


def freed(scene: Scene, engine: Engine) -> int:
    """GPUs that an idle engine keeps from others: those whole ones that nothing else is at work on."""
    if not scene.gpus:
        return round(min(finite(engine.hardware.gpu_count) or 0.0, 1e6))
    taken = _taken(scene, {engine.key})
    return sum(not (gpu.parent_uuid or gpu.uuid in taken or _is_awake(scene, gpu)) for gpu in scene.gpus)


def _is_awake(scene: Scene, gpu: Gpu) -> bool:
    recent = scene.others.get(gpu.uuid)
    return recent is not None and (recent.mean("awake", KEPT_S) or 0.0) >= 0.5


def _of_instances(scene: Scene, engine: Engine, siblings: list[Instance]) -> Fewer | None:
    """The replicas together, each as large as the smallest that does little, and on such GPUs.

    The first that does little tells it: all of them find the same one.
    """
    sizes = {len(reading.gpus) or finite(one.hardware.gpu_count) for one, reading in siblings}
    if len(sizes) > 1 or len(_kinds(scene, siblings)) > 1 or not (size := sizes.pop()):
        return None
    loads = [_load(scene, one) for one, _ in siblings]
    known = [load for load in loads if load is not None]
    if len(known) < len(loads):
        return None
    judged = _judged(scene, engine, siblings)
    elsewhere = size * sum(not reading.gpus for _, reading in siblings)
    gpus = elsewhere + len(_gpus(siblings))
    room = min(work.room[0] for _, work in judged)
    k = _instances(scene, [one for one, _ in siblings], sum(known), room, len(siblings))
    needed = math.ceil(k * gpus / len(siblings))
    if needed >= gpus:
        return None
    first, _ = judged[0]
    return Fewer(needed, round(gpus), k, len(siblings), "" if first.key == engine.key else first.name)


def _judged(scene: Scene, engine: Engine, siblings: list[Instance]) -> list[tuple[Scene, Little]]:
    """Its replicas that do little, itself among them; worked out once in a sample of the host, as many of them may."""
    kept, of = scene.others[""].worked_out, ("replicas that do little", *(one.key for one, _ in siblings))
    if of not in kept:
        kept[of] = [(one, work) for one in alike(scene, engine) if (work := few(one)) is not None]
    found: list[tuple[Scene, Little]] = kept[of]
    return found


def _load(scene: Scene, engine: Engine) -> float | None:
    recent = scene.others.get(engine.key)
    return None if recent is None else finite(recent.mean("running", scene.thresholds.under_used_s))


def _kinds(scene: Scene, siblings: list[Instance]) -> set[str]:
    """Types of their GPUs: what fits on one says nothing of another, nor which is to stop."""
    types = {gpu.uuid: gpu.gpu_type for gpu in scene.snapshot.gpus}
    mapped = {types[uuid] for uuid in _gpus(siblings) if uuid in types}
    return mapped | {one.hardware.gpu_type for one, reading in siblings if not reading.gpus}


def _instances(scene: Scene, engines: list[Engine], running: float, each: float, here: int) -> int:
    """ceil(running / (slots of an instance x planning share)), and no more than its chips can do.

    Arithmetic and KV reads go with the traffic; weights are read once for all sequences of a batch.
    """
    wanted = running / (each * max(scene.thresholds.planning_ratio, 0.01))
    for shares, most in (([_mfu(one) for one in engines], MOST_MFU), ([_kv_mbu(one) for one in engines], MOST_MBU)):
        wanted = max(wanted, here * sum(shares) / len(shares) / most)
    return max(1, math.ceil(min(wanted, 1e6) - 1e-9))


def _mfu(engine: Engine) -> float:
    return min(finite(engine.efficiency.mfu_ratio) or 0.0, 1.0)


def _kv_mbu(engine: Engine) -> float:
    """The part of MBU that KV reads are; 0 where it is not known."""
    mbu, read, kv = (
        finite(engine.efficiency.mbu_ratio),
        finite(engine.efficiency.bytes_per_s),
        finite(engine.efficiency.kv_bytes_per_s),
    )
    return min(mbu * kv / read, 1.0) if mbu and read and kv else 0.0


def _of_gpus(scene: Scene, engine: Engine, running: float) -> Fewer | None:
    """One instance of fewer GPUs: half as many again and again, as long as memory and the chips allow."""
    now, mfu, mbu = len(scene.gpus), mean(scene, "mfu_ratio"), mean(scene, "mbu_ratio")
    if mfu is None or mbu is None:
        return None
    needed = now
    while needed and needed % 2 == 0:
        half = needed // 2
        if not fits(scene, engine, half, running) or mfu * now / half > MOST_MFU or mbu * now / half > MOST_MBU:
            break
        needed = half
    return Fewer(needed, now, 0, 1) if needed < now else None


def fits(scene: Scene, engine: Engine, gpus: int, running: float) -> bool | None:
    """Whether the weights and the KV cache of these requests fit on so many GPUs of its kind; None: not known."""
    sizes = [total for gpu in scene.gpus if (total := finite(gpu.vram_total_bytes))]
    weights = (
        None
        if engine.dimensions.llm is None
        else finite(engine.dimensions.llm.stored_bytes or engine.dimensions.llm.read_bytes)
    )
    if not weights or not sizes or len(sizes) < len(scene.gpus):
        return None
    room = gpus * (RESERVED * min(sizes) - OVERHEAD_BYTES) - weights
    kv, context = finite(engine.dimensions.kv_bytes_per_token), finite(engine.load.context_tokens)
    if room < 0.0:
        return False
    if kv is None or context is None:
        return None
    return running * kv * context <= room * scene.thresholds.planning_ratio


def price_per_hour(scene: Scene, engine: Engine) -> float | None:
    """Of one of its GPUs; None where none is given, or it has but a MIG slice of one."""
    if any(gpu.parent_uuid for gpu in scene.gpus):
        return None
    kinds = {gpu.gpu_type for gpu in scene.gpus} or {engine.hardware.gpu_type}
    prices = [scene.prices.get(kind, scene.prices.get("")) for kind in kinds]
    known = [price for price in prices if price is not None]
    return finite(sum(known) / len(known)) if known and len(known) == len(prices) else None


def money(per_hour: float) -> str:
    """`14.9 $/h`, in the user's currency."""
    return f"{per_hour:,.1f} $/h" if per_hour >= 0.95 else f"{per_hour:.2f} $/h"

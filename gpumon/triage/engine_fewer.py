"""On how many GPUs the same traffic would fit, and what the others cost."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from gpumon.readings.frame import EndpointState
from gpumon.readings.snapshot import Engine
from gpumon.triage.engine_signals import finite, held, mean, slots
from gpumon.triage.scene import KEPT_S, Scene

OVERHEAD_BYTES: Final = 7.5e9
"""Of one GPU, beside weights and KV cache: activations and buffers (vLLM: 5 to 7 GiB)."""
RESERVED: Final = 0.9
"""Part of the memory that an engine takes."""
MOST_MFU: Final = 0.6
MOST_MBU: Final = 0.6
"""What the GPUs that are left may come to, on average: tuned stacks reach 50 % to 70 % of either."""


LEAST_USAGE: Final = 0.01
"""KV cache use below which its rounding decides what fits (SGLang tells it in steps of 0.01)."""


class Fewer(NamedTuple):
    """What the traffic needs."""

    needed: int
    here: int
    """GPUs, of those that have the model now."""
    instances: int
    """Instances that are needed; 0: it is one instance on fewer GPUs."""
    of: int
    """Instances that are here."""


def capacity(scene: Scene, engine: Engine, running: float) -> tuple[float, str] | None:
    """Requests that an engine can run at once, and what bounds them: its slots, or its KV pool."""
    found = [] if (known := slots(scene)) is None else [known]
    fits, usage = held(engine), mean(scene, "kv_usage_ratio", min(scene.thresholds.under_used_s, KEPT_S))
    if fits is not None:
        found.append((fits, "KV pool / tokens of a running request"))
    elif usage and usage >= LEAST_USAGE:
        found.append((running / usage, "requests running / KV cache use"))
    return min(found) if found and min(found)[0] >= 1.0 else None


def fewer(scene: Scene, engine: Engine, room: float, running: float) -> Fewer | None:
    """Fewer instances of the model where it has several, else fewer GPUs for its one; None where it needs all."""
    siblings = _siblings(scene, engine)
    ranks = max(1, engine.ranks)
    if len(siblings) > 1:
        return _of_instances(scene, siblings, room)
    gpus = finite(engine.gpu_count)
    if ranks > 1 and gpus:
        each = gpus / ranks
        k = _instances(scene, [engine], running, room / ranks, ranks)
        return Fewer(math.ceil(k * each), round(gpus), k, ranks) if k < ranks else None
    return _of_gpus(scene, engine, running)


def _siblings(scene: Scene, engine: Engine) -> list[Engine]:
    """The engines that serve its model and answer, itself among them."""
    for group in scene.snapshot.replicas:
        if engine.name in group.engines:
            names = frozenset(group.engines)
            return [one for one in scene.snapshot.engines if one.name in names and one.state is EndpointState.OK]
    return [engine]


def _of_instances(scene: Scene, siblings: list[Engine], room: float) -> Fewer | None:
    """The replicas together, each as large as this one."""
    running, gpus = 0.0, 0.0
    for one in siblings:
        recent, count = scene.others.get(one.key), finite(one.gpu_count)
        load = None if recent is None else finite(recent.mean("running", scene.thresholds.under_used_s))
        if load is None or count is None:
            return None
        running, gpus = running + load, gpus + count
    k = _instances(scene, siblings, running, room, len(siblings))
    if k >= len(siblings) or not gpus:
        return None
    return Fewer(math.ceil(k * gpus / len(siblings)), round(gpus), k, len(siblings))


def _instances(scene: Scene, engines: list[Engine], running: float, each: float, here: int) -> int:
    """ceil(running / (slots of an instance x planning share)), and no more than its chips can do.

    Arithmetic and KV reads go with the traffic; weights are read once for all sequences of a batch.
    """
    wanted = running / (each * max(scene.thresholds.planning_ratio, 0.01))
    for shares, most in (([_mfu(one) for one in engines], MOST_MFU), ([_kv_mbu(one) for one in engines], MOST_MBU)):
        wanted = max(wanted, here * sum(shares) / len(shares) / most)
    return max(1, math.ceil(min(wanted, 1e6) - 1e-9))


def _mfu(engine: Engine) -> float:
    return min(finite(engine.mfu_ratio) or 0.0, 1.0)


def _kv_mbu(engine: Engine) -> float:
    """The part of MBU that KV reads are; 0 where it is not known."""
    mbu, read, kv = finite(engine.mbu_ratio), finite(engine.bytes_per_s), finite(engine.kv_bytes_per_s)
    return min(mbu * kv / read, 1.0) if mbu and read and kv else 0.0


def _of_gpus(scene: Scene, engine: Engine, running: float) -> Fewer | None:
    """One instance of fewer GPUs: half as many again and again, as long as memory and the chips allow."""
    sizes = [total for gpu in scene.gpus if (total := finite(gpu.vram_total_bytes))]
    llm, now = engine.llm, len(scene.gpus)
    weights = None if llm is None else finite(llm.stored_bytes or llm.read_bytes)
    mfu, mbu = mean(scene, "mfu_ratio"), mean(scene, "mbu_ratio")
    kv, context = finite(engine.kv_bytes_per_token), finite(engine.context_tokens)
    if not weights or not sizes or len(sizes) < now or mfu is None or mbu is None or kv is None or context is None:
        return None
    needs = weights + running / scene.thresholds.planning_ratio * kv * context if scene.thresholds.planning_ratio else 0
    needed = now
    while needed % 2 == 0:
        half = needed // 2
        if needs > half * (RESERVED * min(sizes) - OVERHEAD_BYTES) or not needs:
            break
        if mfu * now / half > MOST_MFU or mbu * now / half > MOST_MBU:
            break
        needed = half
    return Fewer(needed, now, 0, 1) if needed < now else None


def price_per_hour(scene: Scene, engine: Engine) -> float | None:
    """Of one of its GPUs; None where none is given."""
    kinds = {gpu.gpu_type for gpu in scene.gpus} or {engine.gpu_type}
    prices = [scene.prices.get(kind, scene.prices.get("")) for kind in kinds]
    known = [price for price in prices if price is not None]
    return finite(sum(known) / len(known)) if known and len(known) == len(prices) else None


def money(per_hour: float) -> str:
    """`14.9 $/h`, in the user's currency."""
    return f"{per_hour:,.1f} $/h" if per_hour >= 0.95 else f"{per_hour:.2f} $/h"

"""Is an engine or a training run stuck: it has work, gives nothing, and its GPUs do nothing either."""

from __future__ import annotations

from typing import Final

from gpumon.efficiency.frontends import FRONTENDS
from gpumon.readings.format import GIB
from gpumon.readings.frame import Advance, EndpointState, Phase
from gpumon.readings.missing import number
from gpumon.readings.snapshot import BandwidthSource, Confidence, Engine, Evidence, Gpu, Level, Process
from gpumon.triage.engine_signals import (
    ACTIVITY,
    activity,
    dram_of,
    evidence,
    finite,
    gpu_mean,
    lasting,
    now,
    of_gpus,
    percent,
    requests,
    served,
)
from gpumon.triage.rule import Finding, Unsure
from gpumon.triage.scene import KEPT_S, Scene

LONGEST_S: Final = KEPT_S - 10.0
"""A longer time to first token is one of queueing: the requests that run give tokens all the same."""
TTFT_TIMES: Final = 3.0
TOKENS: Final = ("tokens_total.decode", "tokens_total.prefill_computed", "tokens_total.prefill_cached")
_STEPS: Final = ("tokens_total.trained", "tokens_total.samples")
_COUNTED_AT_END: Final = Advance.END.value
_MOST_NAMED: Final = 4
_SILENT: Final = frozenset({EndpointState.TIMEOUT, EndpointState.REFUSED})
STEADY: Final = 0.9
"""Part of the memory that stays in use while an engine hangs: one that loads fills it."""


def stalled(scene: Scene) -> Finding | Unsure | None:
    """Requests run and no token comes, or it ceased to answer, while its GPUs do nothing."""
    engine = scene.engine
    if engine is None or engine.kind in FRONTENDS:
        return None
    if engine.state in _SILENT:
        return _silent(scene, engine)
    if engine.phase is Phase.TRAINING:
        return _stuck(scene, engine, "step", still_s(scene, _STEPS), scene.thresholds.stalled_training_s)
    return _no_tokens(scene) if served(scene) is not None else None


def still_s(scene: Scene, fields: tuple[str, ...]) -> float | None:
    """For how long none of these counters has moved; None where none is there."""
    known = [field for field in fields if scene.recent.last(field) is not None]
    return min(scene.recent.steady_s(field) for field in known) if known else None


def _no_tokens(scene: Scene) -> Finding | Unsure | None:
    engine = scene.engine
    assert engine is not None
    running, waiting = now(scene, "running"), now(scene, "waiting")
    if not (running or waiting) or engine.advances.get("decode_tokens_per_s", _COUNTED_AT_END) == _COUNTED_AT_END:
        return None
    seconds = still_s(scene, TOKENS)
    if seconds is None or seconds < scene.thresholds.stalled_s:
        return None
    ttft = max((value for _, value in scene.recent.values("ttft_s.mean", KEPT_S)), default=0.0)
    least_s = max(scene.thresholds.stalled_s, min(TTFT_TIMES * ttft, LONGEST_S))
    return _stuck(scene, engine, "token", seconds, least_s)


def _stuck(scene: Scene, engine: Engine, what: str, seconds: float | None, least_s: float) -> Finding | Unsure | None:
    """The verdict, once nothing has come for `least_s` and its GPUs do not work either: a long prefill's do."""
    if seconds is None or seconds < least_s:
        return None
    said = f"no {what} for {lasting(seconds)}"
    proof = _load(scene, engine, said, seconds)
    gpus = _resting(scene, min(seconds, least_s))
    if isinstance(gpus, Unsure):
        return Unsure(gpus.missing, proof)
    if gpus is None:
        return None
    running = finite(engine.running)
    load = f" with {requests(running)} running" if running else ""
    return Finding(
        f"{said}{load}: {gpus.text}",
        (*proof, gpus),
        _look(scene, engine),
        Level.CRITICAL,
        Confidence.HIGH if "busy" not in gpus.text or "DRAM" in gpus.text else Confidence.MEDIUM,
    )


def _load(scene: Scene, engine: Engine, said: str, seconds: float) -> tuple[Evidence, ...]:
    training = engine.phase is Phase.TRAINING
    field, chart = ("trained_tokens_per_s", "") if training else ("decode_tokens_per_s", "decode")
    proof = [evidence(scene, said, field, seconds, chart)]
    for name in () if training else ("running", "waiting"):
        value = finite(getattr(engine, name))
        if value:
            proof.append(evidence(scene, f"{requests(value)} {name}", name, value, name))
    return tuple(proof)


def _resting(scene: Scene, seconds: float) -> Evidence | Unsure | None:
    """The figure that says that its GPUs do nothing; None where one works."""
    limits = scene.thresholds
    seen = activity(scene, seconds)
    if not scene.gpus:
        return Unsure(("what its GPUs do (which GPUs? add gpus to its [[endpoint]])",))
    if seen.busy is None and seen.sm is None and seen.dram is None:
        return Unsure((f"what its GPUs do (no figure of them: {ACTIVITY})",))
    if seen.dram is not None:
        most = max(dram_of(scene, gpu, seconds) or 0.0 for gpu in scene.gpus)
        idle = most <= limits.stalled_dram_ratio
        text = f"its GPUs read no memory (DRAM {percent(most)}, busy {percent(seen.busy or 0.0)})"
        return of_gpus(scene, text, "bandwidth_bytes_per_s", most, "dram") if idle else None
    if seen.sm is not None and seen.sm <= limits.stalled_busy_ratio:
        return of_gpus(scene, f"its GPUs are idle (SM {percent(seen.sm)})", "sm_active_ratio", seen.sm, "sm")
    if seen.busy is not None and seen.busy <= limits.stalled_busy_ratio:
        return of_gpus(scene, f"its GPUs are idle ({percent(seen.busy)} busy)", "busy_ratio", seen.busy, "busy")
    bound = [share for gpu in scene.gpus if (share := _upper_bound(scene, gpu, seconds)) is not None]
    if len(bound) < len(scene.gpus):
        return Unsure((f"DRAM activity of its busy GPUs ({ACTIVITY})",))
    most = max(bound)
    if most > limits.stalled_dram_ratio:
        return None
    text = f"its GPUs are busy and read no memory (DRAM at most {percent(most)})"
    return of_gpus(scene, text, "bandwidth_bytes_per_s", most, "dram")


def _upper_bound(scene: Scene, gpu: Gpu, seconds: float) -> float | None:
    """Share of time in which a GPU read memory: next to none of it is next to no traffic."""
    peak, moved = finite(gpu.bandwidth_peak_bytes_per_s), gpu_mean(scene, gpu, "bandwidth_bytes_per_s", seconds)
    known = gpu.bandwidth_source is BandwidthSource.UPPER_BOUND and peak and moved is not None
    return moved / peak if known and moved is not None and peak else None


def _silent(scene: Scene, engine: Engine) -> Finding | None:
    """It does not answer, and its processes still hold their GPU: it hangs, and nobody restarts it."""
    holders, seconds = processes(scene, engine), finite(engine.age_s)
    if seconds is None or seconds < scene.thresholds.silent_s or not holders or _loads(scene, min(seconds, KEPT_S)):
        return None
    held = finite(sum(number(process.vram_bytes) or 0.0 for process in holders))
    memory = f"{held / GIB:.1f} GiB" if held else "their GPU"
    how = "refuses connections" if engine.state is EndpointState.REFUSED else "does not answer"
    text = f"{how} for {lasting(seconds)} while its processes hold {memory}"
    proof = (
        Evidence(f"{how} for {lasting(seconds)}", engine.url, seconds),
        Evidence(f"its processes hold {memory}: {_pids(holders)}", "processes of its GPUs", held or 0.0),
    )
    return Finding(text, proof, _look(scene, engine), Level.CRITICAL, Confidence.MEDIUM)


def _loads(scene: Scene, seconds: float) -> bool:
    """Its GPUs work, or their memory came or went meanwhile: it has just been started anew."""
    seen = activity(scene)
    if (seen.busy or 0.0) > scene.thresholds.stalled_busy_ratio and (seen.dram is None or seen.dram > 0.0):
        return True
    for gpu in scene.gpus:
        recent = scene.others.get(gpu.uuid)
        used = [] if recent is None else [value for _, value in recent.values("vram_used_bytes", seconds)]
        if not used or min(used) < STEADY * max(used):
            return True
    return False


def processes(scene: Scene, engine: Engine) -> list[Process]:
    """Its processes on its GPUs; where it has these GPUs alone, whatever runs there."""
    found = {process.pid: process for gpu in scene.gpus for process in gpu.processes if process.engine == engine.name}
    if not found and all(gpu.engines in ((), (engine.name,)) for gpu in scene.gpus):
        found = {process.pid: process for gpu in scene.gpus for process in gpu.processes if not process.engine}
    return list(found.values())


def _pids(holders: list[Process]) -> str:
    shown = ", ".join(str(process.pid) for process in holders[:_MOST_NAMED])
    more = f" and {len(holders) - _MOST_NAMED} more" if len(holders) > _MOST_NAMED else ""
    return f"pid {shown}{more}"


def _look(scene: Scene, engine: Engine) -> str:
    holders = processes(scene, engine)
    whose = f" of {_pids(holders)}" if holders else ""
    stack = "py-spy dump --pid" if holders else "py-spy dump"
    first = f" {holders[0].pid}" if holders else ""
    return f"save its log and the stacks{whose} ({stack}{first}), look for Xid and NCCL errors, then restart it"

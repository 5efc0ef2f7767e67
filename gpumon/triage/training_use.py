"""Is a training run worth its GPUs: how much of their arithmetic turns into steps."""

from __future__ import annotations

from gpumon.readings.engine_snapshot import value_of
from gpumon.readings.format import amount
from gpumon.readings.frame import EndpointState, Phase
from gpumon.readings.snapshot import Confidence, Engine, Evidence, Level
from gpumon.triage.engine_little import left_s
from gpumon.triage.engine_signals import activity, evidence, finite, lasting, mean, missing, of_gpus, percent
from gpumon.triage.engine_use import not_yet
from gpumon.triage.rule import Finding, Unsure
from gpumon.triage.scene import KEPT_S, Scene


def slow(scene: Scene) -> Finding | Unsure | None:
    """Little MFU although nothing else was found that holds the run back."""
    engine = _running(scene)
    if engine is None or left_s(scene) > 0.0:
        return None
    lacking = missing("MFU", engine.efficiency.mfu_ratio)
    if lacking is not None:
        return Unsure((lacking,))
    seconds = min(scene.thresholds.under_used_s, KEPT_S)
    mfu, seen = _little(scene), activity(scene, seconds)
    if mfu is None:
        return None
    busy = "" if seen.busy is None else f" while its GPUs are {percent(seen.busy)} busy"
    proof, over = _proof(scene, engine, mfu), f"mean of {lasting(seconds)}"
    if seen.busy is not None:
        proof = (*proof, of_gpus(scene, f"busy {percent(seen.busy)}, {over}", "busy_ratio", seen.busy, "busy"))
    if seen.tensor is not None:
        text = f"tensor cores {percent(seen.tensor)} active, {over}"
        proof = (*proof, of_gpus(scene, text, "tensor_active_ratio", seen.tensor, "tensor"))
    working = seen.busy is not None and seen.busy >= scene.thresholds.communication_busy_ratio
    action = (
        "a larger micro-batch, fused kernels (torch.compile, FlashAttention), bf16 or FP8 matmuls, less recomputation"
        if working
        else "look at what its steps wait for: data loading, checkpoints, logging, or other ranks"
    )
    return Finding(f"MFU {percent(mfu)}{busy}", proof, action, Level.NOTE, Confidence.MEDIUM)


def _little(scene: Scene) -> float | None:
    """MFU as far as it was seen, where that is little."""
    mfu = mean(scene, "mfu_ratio", min(scene.thresholds.under_used_s, KEPT_S))
    return mfu if mfu is not None and mfu < scene.thresholds.under_used_training_mfu_ratio else None


def well(scene: Scene) -> Finding | Unsure | None:
    """It trains, and nothing was found."""
    engine = _running(scene)
    if engine is None:
        return None
    lacking = missing("MFU", engine.efficiency.mfu_ratio)
    if lacking is not None:
        return Unsure((lacking,))
    mfu = mean(scene, "mfu_ratio")
    if mfu is None:
        return None
    trained = finite(engine.rates.trained_tokens_per_s)
    rate = f", {amount(trained)} tok/s" if trained else ""
    text, proof = f"MFU {percent(mfu)}{rate}", _proof(scene, engine, mfu)
    if left_s(scene) > 0.0 and _little(scene) is not None:
        later = not_yet(scene, left_s(scene))
        text, proof = f"{text}; {later.text}", (*proof, later)
    return Finding(text, proof, "", Level.OK, Confidence.MEDIUM)


def _running(scene: Scene) -> Engine | None:
    engine = scene.engine
    if engine is None or engine.phase is not Phase.TRAINING or engine.state is not EndpointState.OK or scene.found:
        return None
    return engine


def _proof(scene: Scene, engine: Engine, mfu: float) -> tuple[Evidence, ...]:
    found = [evidence(scene, f"MFU {percent(mfu)}", "mfu_ratio", mfu, "mfu")]
    for field, unit in (("trained_tokens_per_s", "tok/s"), ("samples_per_s", "samples/s")):
        value = finite(value_of(engine, field))
        if value:
            found.append(evidence(scene, f"{amount(value)} {unit}", field, value))
    return tuple(found)

"""How much more a memory-bound engine could do at once, and what makes it read less."""

from __future__ import annotations

import math
from typing import Final

from gpumon.efficiency.lengths import KV_SHARE
from gpumon.readings.snapshot import Engine, Evidence
from gpumon.triage.advice import advice
from gpumon.triage.engine_signals import finite, held, latency, mean, requests, slots
from gpumon.triage.scene import Scene

WIDE: Final = frozenset({"bf16", "fp16", "fp32"})
"""Formats of weights that can be halved."""
MOST: Final = 4.0
"""A batch so many times as large is outside what was seen."""
LEAST: Final = 1.1
MOST_PREFILL: Final = 0.15
"""Prefill MFU up to which the time per token is that of decode steps: beyond it a bigger batch brings prompts along."""


def quantise(engine: Engine) -> list[str]:
    """Smaller weights, where they are 16 bit."""
    words = advice(engine.kind)
    return (
        [f"{words.fp8_weights} halves the weights"]
        if engine.dimensions.weight_precision in WIDE and words.fp8_weights
        else []
    )


def more_batch(scene: Scene) -> Evidence | None:
    """The largest batch of a rank that fits and meets the goal of time per token: `batch 50 still meets 40 ms`.

    The bytes of a step are weights + batch x KV of a sequence, and its time goes with them as long as memory bounds it
    (sizing: ITL(b) = a + c x b). So ITL(b') = ITL(b) x (W + b' k) / (W + b k). Not for a MoE, whose weights read grow
    with the batch, nor beside much prefill. The p95 of a goal is taken at the distance from the mean that it has now.
    """
    engine, goal = scene.engine, scene.goals.itl_s
    if engine is None or engine.dimensions.llm is None or engine.dimensions.llm.experts:
        return None
    batch, itl, weights = (
        finite(engine.rates.batch),
        finite(engine.latency.itl_mean_s),
        finite(engine.efficiency.weight_bytes),
    )
    per_token, context = finite(engine.dimensions.kv_bytes_per_token), finite(engine.load.context_tokens)
    prefill = mean(scene, "mfu_prefill_ratio")
    if not (batch and itl and weights and per_token and context) or prefill is None or prefill > MOST_PREFILL:
        return None
    most, why = _room(scene, engine, batch), "still fits"
    if goal:
        allowed_s = goal / _tail(engine)
        allowed = (allowed_s / itl * (weights + batch * per_token * context) - weights) / (per_token * context)
        most, why = min(most, allowed), f"still meets {latency(goal)}"
    if not math.isfinite(most) or most < LEAST * batch or most - batch < 1.0:
        return None
    wanted = float(math.floor(most))
    then_s = itl * (weights + wanted * per_token * context) / (weights + batch * per_token * context)
    at = "" if goal else f", about {latency(then_s)} a token"
    source = "ITL x (weights + batch x KV) / (weights + batch now x KV)"
    return Evidence(f"batch {requests(wanted)} {why}{at}", source, wanted, f"itl@{scene.key}")


def _room(scene: Scene, engine: Engine, batch: float) -> float:
    """Sequences of one rank that KV pool and scheduler take."""
    ranks = max(1, engine.hardware.ranks)
    most = MOST * batch
    fits, known = held(engine), slots(scene)
    if fits is not None:
        most = min(most, KV_SHARE * fits / ranks)
    return most if known is None else min(most, known[0] / ranks)


def _tail(engine: Engine) -> float:
    """p95 / mean of the time per token; buckets are coarse, so between 1 and 2."""
    p95, middle = finite(engine.latency.itl_s.p95), finite(engine.latency.itl_s.mean)
    return min(2.0, max(1.0, p95 / middle)) if p95 is not None and middle else 1.0

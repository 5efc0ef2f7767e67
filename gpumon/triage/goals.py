"""Latencies that are promised, beside those that are seen."""

from __future__ import annotations

from gpumon.readings.snapshot import Evidence
from gpumon.triage.engine_signals import evidence, finite, latency
from gpumon.triage.scene import Scene


def missed(scene: Scene) -> tuple[Evidence, ...]:
    """The goals that this engine's p95 does not meet."""
    engine, goals, found = scene.engine, scene.goals, []
    if engine is None:
        return ()
    for name, field, of, goal in (
        ("TTFT", "ttft_s", engine.ttft_s, goals.ttft_s),
        ("ITL", "itl_s", engine.itl_s, goals.itl_s),
        ("E2E", "e2e_s", engine.e2e_s, goals.e2e_s),
    ):
        p95, low = finite(of.p95), finite(of.p95_low)
        # Of a histogram only the bucket is sure: its lower end has to be above the goal, too.
        if goal and p95 is not None and p95 > goal and (low is None or low >= goal):
            text = f"{name} p95 {latency(p95)} misses {latency(goal)}"
            found.append(evidence(scene, text, field, p95, field.removesuffix("_s") if field != "e2e_s" else ""))
    return tuple(found)

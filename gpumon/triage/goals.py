"""Latencies that are promised, or that were usual, beside those that are seen."""

from __future__ import annotations

from typing import Final

from gpumon.readings.snapshot import Evidence
from gpumon.triage.engine_signals import evidence, finite, latency, mean
from gpumon.triage.scene import KEPT_S, Scene

BEFORE_S: Final = 60.0
"""The latencies are means of so long: older samples have no request in common with the newest. The oldest ones that
are kept are held against it, so that a step is told for as long as can be."""
LEAST_BEFORE_S: Final = 30.0
"""So much of a time before is held against."""
GROWN: Final = 2.0
LEAST_GROWN_S: Final = 0.1
"""A TTFT is mostly queue and prompt: it varies with them; 100 ms more is nothing that a user notes."""


def missed(scene: Scene) -> tuple[Evidence, ...]:
    """The goals that this engine's p95 does not meet."""
    engine, goals, found = scene.engine, scene.goals, []
    if engine is None or not any(goals):
        return ()
    for name, field, of, goal in (
        ("TTFT", "ttft_s", engine.latency.ttft_s, goals.ttft_s),
        ("ITL", "itl_s", engine.latency.itl_s, goals.itl_s),
        ("E2E", "e2e_s", engine.latency.e2e_s, goals.e2e_s),
    ):
        p95, low = finite(of.p95), finite(of.p95_low)
        # Of a histogram only the bucket is sure: its lower end has to be above the goal, too.
        if goal and p95 is not None and p95 > goal and (low is None or low >= goal):
            text = f"{name} p95 {latency(p95)} misses {latency(goal)}"
            found.append(evidence(scene, text, field, p95, field.removesuffix("_s") if field != "e2e_s" else ""))
    return tuple(found)


def grown(scene: Scene) -> Evidence | None:
    """A time to first token that is far above its own mean of the minutes before: `TTFT 690 ms, 210 ms before`."""
    newest, usual = mean(scene, "ttft_s.mean"), scene.recent.mean("ttft_s.mean", KEPT_S)
    if newest is None or not usual or newest < usual + LEAST_GROWN_S / 2:
        return None
    seen = scene.recent.values("ttft_s.mean", KEPT_S)
    end_s = min(seen[0][0] + BEFORE_S, scene.now_s - BEFORE_S)
    old = [value for at_s, value in seen if at_s < end_s]
    before = sum(old) / len(old) if old and end_s - seen[0][0] >= LEAST_BEFORE_S else newest
    if newest < GROWN * before or newest < before + LEAST_GROWN_S:
        return None
    text = f"TTFT {latency(newest)}, {latency(before)} in the minutes before"
    return evidence(scene, text, "ttft_s", newest, "ttft")

"""A goal of p95 gives a capacity at which the simulated engine's own p95 comes near to it."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from gpumon.demo.counters import Histogram
from gpumon.demo.traffic import LogNormalLengths
from gpumon.sizing.answer import LimitKind
from gpumon.sizing.calibration import Calibration
from gpumon.sizing.plan import plan
from gpumon.sizing.profile import Observed
from gpumon.sizing.scenario import Catalogues, Scenario, Server, Workload
from gpumon.sources.packaged import gpu_catalogue, llm_catalogue, network_catalogue
from tests.accuracy.calibration import GPU
from tests.accuracy.pages import Where, snapshots
from tests.accuracy.staircase import ACTORS, Staircase

ACTOR = ACTORS["llama-8b"]
MIX: dict[str, Any] = {
    "prompt": LogNormalLengths(3000.0, 0.7, 128, 16000),
    "answer": LogNormalLengths(120.0, 0.6, 8, 1024),
    "hit": 0.4,
}
"""Long prompts and short answers: prefills interrupt the decoding, so p95 / mean changes with the load."""
STEPS = (4, 6, 8, 10, 12, 16, 20, 24, 32)
MOST_ERROR = 0.25
LEARNT_S = 40.0
"""Seconds of each step."""
LOOKED_S = 200.0
"""Seconds of the planned load, of which few pages are made, and none is read."""


class Gaps(Histogram):
    """The gaps between tokens, as a page shows them and one by one."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        super().__init__(bounds)
        self.all: list[tuple[float, int]] = []

    def observe(self, value: float, times: int = 1) -> None:
        """Keep it, too."""
        super().observe(value, times)
        self.all.append((value, times))

    def p95_s(self) -> float:
        """Exact."""
        left = 0.95 * self.count
        for value, times in sorted(self.all):
            left -= times
            if left <= 0:
                return value
        raise AssertionError("no gaps")


@functools.cache
def seen(seed: int) -> Observed:
    """What is learnt of the engine while it is walked up the stairs."""
    stairs, calibration = Staircase(ACTOR, [(LEARNT_S, clients) for clients in STEPS], seed=seed, **MIX), Calibration()
    for snapshot in snapshots(stairs.pages(), Where(llm_catalogue().find(ACTOR.model), GPU, 1)):
        calibration.take(snapshot)
    return calibration.observed()[0]


def truth_s(clients: int, seed: int) -> float:
    stairs = Staircase(ACTOR, [(LOOKED_S, clients)], seed=seed, **MIX)
    stairs.model.counters.itl = gaps = Gaps(stairs.model.counters.itl.bounds)
    for _ in stairs.pages(every_s=LOOKED_S / 20):
        pass
    return gaps.p95_s()


@pytest.mark.parametrize("goal_ms", [40.0, 60.0])
def test_the_p95_at_the_planned_load_is_near_the_goal(goal_ms: float):
    known, observed = Catalogues(gpu_catalogue(), llm_catalogue(), networks=network_catalogue()), seen(seed=1)
    workload = Workload(observed.model, 64, seen=observed)
    row = plan(Scenario(server=(Server(GPU),), itl_p95_ms=goal_ms, workload=(workload,)), known).workloads[0]
    limit = next(each for each in row.limits if each.kind is LimitKind.ITL)
    assert limit.text.startswith(f"ITL p95 {goal_ms} ms at ")
    assert truth_s(round(limit.concurrency), seed=7) * 1e3 == pytest.approx(goal_ms, rel=MOST_ERROR)

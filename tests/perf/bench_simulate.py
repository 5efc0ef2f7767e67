"""The CPU time of one simulated hour of 20 requests/s: `python -m tests.perf.bench_simulate`. The budget is 5 s."""

from __future__ import annotations

import time
from typing import Final, NamedTuple

from gpumon.sizing.simulate.cost import StepTime
from gpumon.sizing.simulate.figures import RequestGoals, figures_of
from gpumon.sizing.simulate.requests import RequestShape, RequestSource, lognormal, steady
from gpumon.sizing.simulate.router import ROUTERS
from gpumon.sizing.simulate.run import play
from gpumon.sizing.simulate.scheduler import EngineLimits

COST: Final = StepTime(0.008, 0.00005, 1 / 40_000, 1e-8, 1e-10)
LIMITS: Final = EngineLimits(256, 8192, 30_000)


class Case(NamedTuple):
    """What is simulated."""

    name: str
    variation: float
    replicas: int
    router: str = "least-loaded"
    groups: int = 0


CASES: Final = (
    Case("lengths all alike, one replica", 0.0, 1),
    Case("lognormal lengths, one replica", 1.0, 1),
    Case("lognormal lengths, 4 replicas", 1.0, 4),
    Case("4 replicas, prefix-aware over 200 groups", 1.0, 4, "prefix-aware", 200),
)


def bench(case: Case) -> None:
    """Print the CPU time of requests, simulation and figures."""
    began_s = time.process_time()
    lengths = RequestShape(
        lognormal(1000, case.variation), lognormal(200, case.variation), groups=case.groups, shared_tokens=512
    )
    requests = steady(20.0, 3600.0, lengths, 1)
    log = play(RequestSource(requests), COST, LIMITS, case.replicas, ROUTERS[case.router]())
    figures_of(log, RequestGoals(0.5, 0.05), case.replicas)
    print(f"{case.name}: {len(requests):,} requests, {time.process_time() - began_s:.2f} s")


if __name__ == "__main__":
    for each in CASES:
        bench(each)

"""Queues that have an answer on paper: M/D/1 and M/G/1 by Pollaczek and Khinchin."""

from __future__ import annotations

import pytest

from gpumon.sizing.simulate.cost import StepTime
from gpumon.sizing.simulate.requests import RequestShape, RequestSource, constant, lognormal, steady
from gpumon.sizing.simulate.router import ROUTERS
from gpumon.sizing.simulate.run import play
from gpumon.sizing.simulate.scheduler import EngineLimits
from tests.each_row import each_row

BASE_S, TOKEN_S, MEAN = 0.01, 1e-4, 1000
ONE_AT_A_TIME = EngineLimits(1, 10**6, 10**6)


@each_row("variation", [0.0, 0.5], named=["M/D/1", "M/G/1"])
@each_row(("busy", "allowed"), [(0.3, 0.06), (0.6, 0.06), (0.8, 0.08)])
def test_waiting_time(busy: float, allowed: float, variation: float) -> None:
    service_s = BASE_S + TOKEN_S * MEAN
    shape = RequestShape(lognormal(MEAN, variation), constant(1))
    requests = steady(busy / service_s, 16_000 * service_s / busy, shape, 3)
    log = play(RequestSource(requests), StepTime(BASE_S, 0.0, TOKEN_S), ONE_AT_A_TIME, 1, ROUTERS["round-robin"]())
    waited_s = sum(one.admitted_s - one.request.arrival_s for one in log.served) / len(log.served)
    times_s = [BASE_S + TOKEN_S * request.prompt for request in requests]
    rate = len(requests) / requests[-1].arrival_s
    mean_s = sum(times_s) / len(times_s)
    square_s = sum(time_s * time_s for time_s in times_s) / len(times_s)
    expected_s = rate * square_s / 2.0 / (1.0 - rate * mean_s)
    assert waited_s == pytest.approx(expected_s, rel=allowed)

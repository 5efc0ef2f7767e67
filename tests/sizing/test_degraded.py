"""One instance lost: what the rest does with its load, against a sweep that ran past its knee."""

from __future__ import annotations

from typing import Any

import pytest

from gpumon.readings.missing import Missing
from gpumon.sizing.answer import Degraded
from gpumon.sizing.placement import WorkloadPlacement
from gpumon.sizing.plan import plan
from gpumon.sizing.pools import WorkloadPart
from gpumon.sizing.profile import Origin
from gpumon.sizing.scenario import Scenario
from gpumon.sizing.search import demand_of
from gpumon.sizing.service import degraded_of
from tests.each_row import each_row
from tests.records import replace
from tests.sizing.questions import KNOWN, NIM_70B, SEVENTY, changed


def alone(scenario: Scenario = SEVENTY, **fields: Any) -> Degraded:
    """One of two instances, after the other one went."""
    scenario = changed(scenario, **fields)
    two = WorkloadPlacement(instances=2, most_on_a_server=1)
    [lost] = degraded_of([WorkloadPart(demand_of(scenario.workload[0], scenario, KNOWN), two)])
    return lost


@each_row(("offered", "ttft_s"), [(100.0, 8.0), (250.0, 88.6)])
def test_past_the_kv_limit_requests_wait_and_those_that_run_are_no_slower(offered: float, ttft_s: float) -> None:
    """[NIM] Llama-3.3-70B, 5000/500: ITL 92.9 ms at 100 and 93.2 ms at 250 users, of which 85 and 86 run."""
    lost = alone(target=offered)
    assert (lost.running, lost.itl_s) == (offered, pytest.approx(0.093, rel=0.05))
    assert lost.ttft_s == pytest.approx(ttft_s, rel=0.15)
    assert lost.text == f"requests queue: {offered:.0f} per instance, room for 86"


def test_who_waits_misses_the_goal_of_the_first_token() -> None:
    assert (
        alone(target=128.0, ttft_p95_ms=2000.0).text == "the TTFT goal would be missed: 128 per instance, room for 86"
    )
    assert (
        alone(target=128.0, e2e_p95_ms=60_000.0).text == "the E2E goal would be missed: 128 per instance, room for 86"
    )
    assert alone(target=80.0, ttft_p95_ms=2000.0).text == "within all limits: 80 per instance"


def test_a_rate_above_what_fits_is_never_worked_off() -> None:
    """85.5 at a time come to 1.8 requests a second."""
    assert "per instance" in alone(target=1.7, target_kind="requests_per_s").text
    lost = alone(target=2.0, target_kind="requests_per_s")
    assert lost.text == "the rest cannot serve this rate: the queue grows without end"
    assert isinstance(lost.running, Missing)


def test_a_typed_capacity_is_what_fits_whatever_a_formula_says() -> None:
    assert alone(target=90.0, capacity_per_instance=92.0).text == "within all limits: 90 per instance"
    assert alone(target=120.0, capacity_per_instance=92.0).text == "requests queue: 120 per instance, room for 92"


def test_beyond_the_end_of_a_sweep_nothing_is_promised() -> None:
    points = NIM_70B.points[:3]
    sweep = replace(NIM_70B, origin=Origin.SWEEP, points=points, kv_pool_tokens=1e6)
    without_goal = replace(SEVENTY, itl_p95_ms=None)
    [row] = plan(changed(without_goal, target=80.0, seen=sweep), KNOWN).workloads
    assert row.degraded[0].text == "more than was measured: 26.7 per instance"


def test_the_p95_that_misses_a_goal_stands_beside_the_mean_that_does_not() -> None:
    lost = alone(target=80.0, itl_p95_ms=100.0, itl_tail_ratio=1.2)
    assert lost.text == "the ITL goal would be missed: 80 per instance"
    assert not isinstance(lost.itl_s, Missing)
    assert not isinstance(lost.itl_p95_s, Missing)
    assert lost.itl_s < 0.1 < lost.itl_p95_s
    assert isinstance(alone(target=80.0).itl_p95_s, Missing)

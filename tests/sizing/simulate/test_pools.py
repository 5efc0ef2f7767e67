"""Requests through a prefill and a decode pool: the queue by hand, the means of the plan's formula."""

from __future__ import annotations

import pytest

from gpumon.readings.missing import number
from gpumon.sizing.disaggregated import best_split
from gpumon.sizing.scenario import Disaggregated, Scenario, Server, Workload
from gpumon.sizing.simulate.conditions import Conditions
from gpumon.sizing.simulate.pools import prefill_all, simulate_pools
from gpumon.sizing.simulate.requests import PlayedRequest
from tests.records import replace
from tests.sizing.questions import KNOWN

WORKLOAD = Workload(
    "meta-llama/Llama-3.3-70B-Instruct-FP8", 12.0, "requests_per_s", prompt_tokens=8000.0, answer_tokens=300.0,
    itl_p95_ms=40.0, disaggregated=Disaggregated(prefill_tp=2, decode_tp=4, link_gb_per_s=50.0),
)  # fmt: skip
SCENARIO = Scenario(server=(Server("H100 SXM5 80GB"),), workload=(WORKLOAD,))


def test_a_prompt_waits_for_the_first_free_rank_and_is_sent() -> None:
    split = best_split(WORKLOAD, Disaggregated(prefill_tp=2, decode_tp=4, link_gb_per_s=50.0), SCENARIO, KNOWN)
    one = split._replace(prefill_instances=1)
    whole = PlayedRequest(0.0, 8000, 300)
    half = PlayedRequest(0.0, 4000, 300)
    cached = PlayedRequest(0.0, 8000, 300, cached=6000)
    prompt_s = split.prefill.prompt_s
    transfer_s = split.transfer.time_s
    done = {each.request: each for each in prefill_all(one, [whole])}
    assert done[whole].sent_s == pytest.approx(prompt_s + transfer_s)
    queued = prefill_all(one, [half, replace_arrival(whole, 1e-6)])
    assert queued[1].began_s == pytest.approx(0.5 * prompt_s)
    assert queued[0].sent_s == pytest.approx(0.5 * prompt_s + 0.5 * transfer_s)
    two = split._replace(prefill_instances=2)
    assert prefill_all(two, [half, replace_arrival(whole, 1e-6)])[1].began_s == pytest.approx(1e-6)
    [hit] = prefill_all(one, [cached])
    assert hit.sent_s == pytest.approx(0.25 * prompt_s + transfer_s)


def replace_arrival(request: PlayedRequest, arrival_s: float) -> PlayedRequest:
    """The request at another time."""
    return request._replace(arrival_s=arrival_s)


def test_it_is_what_the_plan_says() -> None:
    """Even lengths and Poisson arrivals: TTFT and E2E within 15% of the formulas of the plan, the goal held."""
    found = simulate_pools(WORKLOAD, SCENARIO, KNOWN, Conditions(seconds=300.0))
    assert (found.problem, found.holds) == ("", True)
    [figures] = found.figures
    assert figures.ttft_s.mean == pytest.approx(number(found.formula.ttft_s), rel=0.15)
    assert figures.e2e_s.mean == pytest.approx(number(found.formula.e2e_s), rel=0.25)
    assert number(figures.requests_per_s) == pytest.approx(12.0, rel=0.1)
    split = best_split(WORKLOAD, WORKLOAD.disaggregated or Disaggregated(), SCENARIO, KNOWN)
    assert found.gpus == split.gpus
    assert found.replicas == split.prefill_instances + split.decode_instances
    assert any("prefill instances of TP 2 in front of" in note for note in found.notes)
    assert not any("same instances" in note for note in found.notes)


def test_targets_in_flight_arrive_at_the_rate_of_the_plan() -> None:
    in_flight = replace(WORKLOAD, target=100.0, target_kind="concurrency")
    found = simulate_pools(in_flight, replace(SCENARIO, workload=(in_flight,)), KNOWN, Conditions(seconds=60.0))
    split = best_split(in_flight, in_flight.disaggregated or Disaggregated(), SCENARIO, KNOWN)
    assert not found.problem
    assert found.arrivals.startswith(f"{split.requests_per_s:.3g} requests/s")


def test_pools_that_cannot_be_say_why() -> None:
    odd = replace(WORKLOAD, disaggregated=Disaggregated(prefill_tp=3))
    found = simulate_pools(odd, replace(SCENARIO, workload=(odd,)), KNOWN, Conditions())
    assert found.problem == "TP 3 does not divide the 64 heads: engines refuse it"
    assert not found.holds


def test_an_answer_of_one_token_ends_with_its_first() -> None:
    short = replace(WORKLOAD, answer_tokens=1.0)
    found = simulate_pools(short, replace(SCENARIO, workload=(short,)), KNOWN, Conditions(seconds=30.0))
    [figures] = found.figures
    assert figures.e2e_s == figures.ttft_s
    assert figures.requests > 0

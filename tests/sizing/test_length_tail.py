"""The KV cache that requests of unlike lengths hold together: by hand, by drawing requests, and through the plan."""

from __future__ import annotations

import math
import random

import pytest

from gpumon.sizing.length_tail import (
    Lengths,
    LengthShare,
    Moments,
    TokensInFlight,
    moments_of,
    problem_of,
    tokens_by_moments,
    tokens_in_flight_of,
)
from gpumon.sizing.plan import plan
from gpumon.sizing.scenario import Scenario, Server, Workload
from tests.each_row import each_row
from tests.records import replace
from tests.sizing.questions import KNOWN

EIGHT_B = "meta-llama/Llama-3.1-8B-Instruct"
SHORT_AND_LONG = (LengthShare(200.0, 0.9), LengthShare(20_000.0, 1.0))
"""Nine of ten up to 200 tokens, the others up to 20,000."""


def test_moments_by_hand() -> None:
    """A quarter evenly in 0 to 2, the others in 2 to 4: mean 1/4 + 9/4, square 1/3 + 7, cube 1/2 + 45/2."""
    found = moments_of((LengthShare(2.0, 0.25), LengthShare(4.0, 1.0)))
    assert found == pytest.approx((2.5, 1.0 / 3.0 + 7.0, 0.5 + 22.5))
    assert found.scaled(5.0) == pytest.approx((5.0, 4.0 * found.square, 8.0 * found.cube))


def test_requests_of_one_length_hold_their_prompt_and_half_of_their_answer() -> None:
    """The age of an answer is even between 0 and its length, whose variance is A^2 / 12."""
    held = tokens_by_moments(Moments.fixed(1000.0), Moments.fixed(600.0))
    assert held.mean == pytest.approx(1300.0)
    assert held.variance == pytest.approx(600.0**2 / 12.0)
    assert held.p95(100.0) == pytest.approx(130_000.0 + 1.645 * 10.0 * 600.0 / math.sqrt(12.0))
    assert held.running_in(held.p95(100.0)) == pytest.approx(100.0)


def test_without_variance_they_fit_by_their_mean() -> None:
    assert TokensInFlight(500.0, 0.0).running_in(10_000.0) == pytest.approx(20.0)


def test_p95_is_what_requests_drawn_one_by_one_hold() -> None:
    """80 in flight at random moments: answers drawn by their length, each at an even place inside itself."""
    draw = random.Random(7)
    prompts = [draw.lognormvariate(6.0, 1.0) for _ in range(4000)]
    answers = [draw.lognormvariate(5.0, 1.0) for _ in range(4000)]

    def moments(values: list[float]) -> Moments:
        count = len(values)
        return Moments(sum(values) / count, sum(x**2 for x in values) / count, sum(x**3 for x in values) / count)

    held = tokens_by_moments(moments(prompts), moments(answers))
    sums = []
    for _ in range(1500):
        picked = draw.choices(answers, answers, k=80)
        sums.append(sum(draw.choices(prompts, k=80)) + sum(answer * draw.random() for answer in picked))
    sums.sort()
    assert sums[int(0.95 * len(sums))] == pytest.approx(held.p95(80.0), rel=0.05)


def test_a_histogram_gets_the_mean_that_is_known() -> None:
    """Buckets are coarse, the mean of the requests is exact."""
    held = tokens_in_flight_of(Lengths(prompt=SHORT_AND_LONG), 3000.0, 100.0)
    assert held is not None
    assert held.mean == pytest.approx(3050.0)
    assert tokens_in_flight_of(Lengths(), 3000.0, 100.0) is None


@each_row(
    ("steps", "why"),
    [
        ((), ""),
        (SHORT_AND_LONG, ""),
        ((LengthShare(5.0, 0.5), LengthShare(5.0, 1.0)), "lengths must rise from step to step: 5 is behind 5"),
        ((LengthShare(5.0, 0.5), LengthShare(6.0, 0.4)), "shares must rise from 0 to 1: 0.4 is behind 0.5"),
        ((LengthShare(5.0, 0.5),), "the share of the last step is 0.5: it must be 1"),
        ((LengthShare(math.nan, 1.0),), "the length nan is no number of tokens"),
        ((LengthShare(1e10, 1.0),), "the length 1e+10 is no number of tokens"),
    ],
)
def test_what_is_no_histogram(steps: tuple[LengthShare, ...], why: str) -> None:
    assert problem_of(steps) == why


def capacity(lengths: Lengths | None) -> float:
    """Requests in flight that the KV cache of one instance holds."""
    workload = Workload(EIGHT_B, 500.0, prompt_tokens=2000.0, answer_tokens=400.0, tp=1, lengths=lengths)
    found = plan(Scenario(server=(Server("H100 SXM5 80GB"),), workload=(workload,)), KNOWN)
    (limit,) = [limit for limit in found.workloads[0].limits if limit.kind.value == "KV"]
    return limit.concurrency


def test_a_tail_takes_room_and_lengths_without_one_do_not() -> None:
    mean = capacity(None)
    alike = (LengthShare(1900.0, 0.0), LengthShare(2100.0, 1.0))
    assert capacity(Lengths(prompt=alike)) == mean
    tail = capacity(Lengths(prompt=SHORT_AND_LONG, answer=SHORT_AND_LONG))
    assert tail < 0.8 * mean
    held = tokens_in_flight_of(Lengths(prompt=SHORT_AND_LONG, answer=SHORT_AND_LONG), 2000.0, 400.0)
    assert held is not None
    assert held.p95(tail) == pytest.approx(2400.0 * mean)


def test_the_answer_says_that_the_spread_bounds_it() -> None:
    lengths = Lengths(prompt=SHORT_AND_LONG)
    workload = Workload(EIGHT_B, 500.0, prompt_tokens=2000.0, answer_tokens=400.0, tp=1, lengths=lengths)
    scenario = Scenario(server=(Server("H100 SXM5 80GB"),), workload=(workload,))
    found = plan(scenario, KNOWN).workloads[0]
    assert "with the spread of the lengths p95 of" in found.limits[0].text
    wrong = replace(workload, lengths=Lengths(prompt=(LengthShare(5.0, 0.5),)))
    problem = plan(replace(scenario, workload=(wrong,)), KNOWN).workloads[0].problem
    assert problem == "prompt lengths: the share of the last step is 0.5: it must be 1"

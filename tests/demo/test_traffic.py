"""Arrivals: rate, wave, lengths, determinism."""

from __future__ import annotations

import math

import pytest

from gpumon.demo.traffic import LogNormalLengths, SimulatedRequest, Traffic, TrafficDemand

DEMAND = TrafficDemand(
    requests_per_s=5.0,
    prompt=LogNormalLengths(1000.0, 0.8, 16, 9000),
    output=LogNormalLengths(200.0, 0.6, 8, 900),
    swing=0.5,
    period_s=600.0,
    returning=0.5,
    hit_share=0.6,
)


def arrivals(demand: TrafficDemand, seed: int, until_s: float) -> list[SimulatedRequest]:
    traffic = Traffic(demand, seed, 0.0)
    found = []
    while traffic.next_s() <= until_s:
        found.append(traffic.take())
    return found


def test_the_rate_swells_and_ebbs_around_its_mean() -> None:
    found = arrivals(DEMAND, 1, 6000.0)
    assert len(found) == pytest.approx(30000, rel=0.02)
    rising = sum(1 for each in found if each.arrival_s % 600.0 < 300.0)
    assert rising / len(found) == pytest.approx(0.5 + 0.5 * (1 + 0.25 / 7) / math.pi, abs=0.02)


def test_lengths_are_log_normal_within_their_bounds() -> None:
    found = arrivals(DEMAND, 2, 3000.0)
    prompts = sorted(each.prompt_tokens for each in found)
    assert prompts[len(prompts) // 2] == pytest.approx(1000, rel=0.05)
    assert prompts[0] >= 16
    assert prompts[-1] == 9000
    assert all(8 <= each.output_tokens <= 900 for each in found)
    assert {each.finish for each in found if each.output_tokens == 900} == {"length"}


def test_about_the_given_share_of_the_prompts_is_cached_in_whole_blocks() -> None:
    found = arrivals(DEMAND, 3, 3000.0)
    hit = sum(each.cached_tokens for each in found) / sum(each.prompt_tokens for each in found)
    assert hit == pytest.approx(0.3, abs=0.03)
    assert all(each.cached_tokens < each.prompt_tokens for each in found)
    assert all(each.cached_tokens % 16 == 0 for each in found)


def test_the_seed_decides() -> None:
    assert arrivals(DEMAND, 4, 200.0) == arrivals(DEMAND, 4, 200.0)
    assert arrivals(DEMAND, 4, 200.0) != arrivals(DEMAND, 5, 200.0)


def test_no_demand_no_arrivals() -> None:
    silent = TrafficDemand(0.0, DEMAND.prompt, DEMAND.output)
    assert Traffic(silent, 1, 0.0).next_s() == math.inf

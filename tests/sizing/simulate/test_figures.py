"""Percentiles, goodput, the queue over time, and when goals hold."""

from __future__ import annotations

import pytest

from gpumon.readings.missing import Missing
from gpumon.sizing.simulate.cost import StepTime
from gpumon.sizing.simulate.figures import RequestGoals, figures_of, holds_goals, missed_goals
from gpumon.sizing.simulate.requests import Clients, PlayedRequest, RequestShape, RequestSource, constant, steady
from gpumon.sizing.simulate.router import ROUTERS
from gpumon.sizing.simulate.run import play
from gpumon.sizing.simulate.scheduler import EngineLimits, Log, ServedRequest


def hundred() -> Log:
    """TTFT of 1 to 100 ms, 11 tokens at 10 ms to 1 s each."""
    log = Log()
    for at in range(1, 101):
        first_s = at / 1000.0
        log.served.append(ServedRequest(PlayedRequest(0.0, 10, 11), 0.0, first_s, first_s + 10 * at / 100.0))
        log.add_gaps(at / 100.0, 10, 1.0)
    return log


def test_percentiles_are_those_of_the_values() -> None:
    figures = figures_of(hundred(), RequestGoals(), 4)
    assert figures.ttft_s.p50 == pytest.approx(0.050)
    assert figures.ttft_s.p95 == pytest.approx(0.095)
    assert figures.ttft_s.p99 == pytest.approx(0.099)
    assert figures.ttft_s.mean == pytest.approx(0.0505)
    assert figures.itl_s.p95 == pytest.approx(0.95, rel=0.01)
    assert figures.tpot_s.p50 == pytest.approx(0.5)
    assert figures.e2e_s.p99 == pytest.approx(0.099 + 9.9)
    assert figures.seconds == pytest.approx(10.1)
    assert figures.requests_per_s == pytest.approx(100 / 10.1)
    assert figures.tokens_per_s == pytest.approx(1100 / 10.1)
    assert figures.gpu_hours == pytest.approx(4 * 10.1 / 3600)


def test_goodput_counts_requests_that_meet_every_goal() -> None:
    figures = figures_of(hundred(), RequestGoals(ttft_s=0.08, itl_s=0.6), 1)
    assert figures.goodput_ratio == pytest.approx(0.6)
    assert figures.goodput_per_s == pytest.approx(60 / 10.1)
    by_e2e = figures_of(hundred(), RequestGoals(e2e_s=5.05), 1)
    assert by_e2e.goodput_ratio == pytest.approx(0.5)


def test_without_a_goal_there_is_no_goodput() -> None:
    figures = figures_of(hundred(), RequestGoals(), 1)
    assert isinstance(figures.goodput_ratio, Missing)
    assert holds_goals(figures, RequestGoals())


def test_goals_are_held_to_the_p95() -> None:
    goals = RequestGoals(ttft_s=0.0951, itl_s=0.9)
    figures = figures_of(hundred(), goals, 1)
    assert missed_goals(figures, goals) == ("ITL",)
    assert not holds_goals(figures, goals)
    assert holds_goals(figures, RequestGoals(ttft_s=0.0951, itl_s=1.0))


def test_nothing_served_has_no_figures() -> None:
    figures = figures_of(Log(), RequestGoals(ttft_s=1.0), 1)
    assert isinstance(figures.ttft_s.p95, Missing)
    assert isinstance(figures.requests_per_s, Missing)
    assert not holds_goals(figures, RequestGoals(ttft_s=1.0))


def test_a_queue_that_grows_is_told() -> None:
    cost = StepTime(0.01, 0.0, 1e-4)
    limits = EngineLimits(1, 8192, 1000)
    shape = RequestShape(constant(900), constant(1))  # 0.1 s each, one at a time
    kept_up = figures_of(
        play(RequestSource(steady(7.0, 300.0, shape, 1)), cost, limits, 1, ROUTERS["round-robin"]()), RequestGoals(), 1
    )
    overrun = figures_of(
        play(RequestSource(steady(15.0, 300.0, shape, 1)), cost, limits, 1, ROUTERS["round-robin"]()), RequestGoals(), 1
    )
    assert not kept_up.queue_grows
    assert overrun.queue_grows
    assert overrun.most_waiting == pytest.approx(1500, rel=0.15)
    assert holds_goals(kept_up, RequestGoals())
    assert not holds_goals(overrun, RequestGoals())


def test_clients_that_come_one_by_one_are_counted_once_all_are_there() -> None:
    cost = StepTime(0.01, 0.001, 1e-4)
    clients = Clients(50, 60.0, RequestShape(constant(100), constant(50)), 1, spread_s=20.0)
    figures = figures_of(
        play(clients, cost, EngineLimits(64, 2048, 10_000), 1, ROUTERS["round-robin"]()), RequestGoals(), 1
    )
    # A step has 49 sequences, and for each that ends a prompt: one of 50 steps each.
    assert figures.itl_s.mean == pytest.approx(0.01 + 0.049 + 0.01, rel=0.03)
    assert figures.tokens_per_s == pytest.approx(50 / 0.069, rel=0.05)

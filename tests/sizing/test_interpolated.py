"""Points are the truth in their range: exact at each, between neighbours elsewhere, never more than was measured."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.sizing.answer import LimitKind, WorkloadPlan
from gpumon.sizing.fit import Fitted, fit
from gpumon.sizing.interpolated import Interpolated, never_falling
from gpumon.sizing.latency import Curve
from gpumon.sizing.plan import plan
from gpumon.sizing.profile import Observed, Origin, Point
from gpumon.sizing.scenario import Scenario, Server, Workload
from tests.each_row import each_row
from tests.sizing.questions import KNOWN

MODEL = "Qwen/Qwen3-32B"
H100 = "H100 SXM5 80GB"
MOE = Curve(0.020, 0.0001, resident_ratio=0.2, experts=128, experts_per_token=8)


def swept(*points: Point, gpu: str = H100) -> Observed:
    """A load test of one GPU, 1,000 tokens in and 200 out."""
    return Observed(
        Origin.SWEEP, "two", MODEL, points, gpu=gpu, gpus=1, tp=1, prompt_tokens=1000.0, answer_tokens=200.0,
        weight_precision="fp8", concurrency=points[-1].offered, kv_pool_tokens=1e6,
    )  # fmt: skip


TWO = swept(
    Point(1.0, itl_s=0.0104, offered=1.0, tokens_per_s=96.0),
    Point(128.0, itl_s=0.0612, offered=128.0, tokens_per_s=2090.0),
)


def planned(seen: Observed, itl_ms: float | None = None, **fields: float) -> WorkloadPlan:
    workload = Workload(MODEL, 1000.0, seen=seen, **fields)  # type: ignore[arg-type]
    scenario = Scenario(itl_p95_ms=itl_ms, planning_factor=1.0, server=(Server(H100),), workload=(workload,))
    return plan(scenario, KNOWN).workloads[0]


@each_row("gpu", [H100, ""])
def test_two_loads_are_enough_and_no_plan_is_better_than_they_are(gpu: str) -> None:
    """10.4 + 0.4 (b - 1) ms: 50 ms at 100."""
    row = planned(swept(*TWO.points, gpu=gpu), 50.0)
    assert (row.limit, row.limits[0].concurrency) == ("ITL", pytest.approx(100.0))
    assert row.itl_s == pytest.approx(0.050)
    assert row.tokens_per_s / row.instances < 2000.0
    assert not row.extrapolated
    assert -0.25 < row.band.low < 0.0 < row.band.high < 0.1


def test_beyond_the_last_load_no_throughput_is_above_the_most_that_was_measured() -> None:
    """At 2,090 tokens/s a goal of 100 ms is met by 209 at most; the line of the points would say 225."""
    row = planned(TWO, 100.0)
    [limit] = [each for each in row.limits if each.kind is LimitKind.ITL]
    assert limit.concurrency == pytest.approx(209.0)


def test_of_a_running_engine_the_throughput_goes_on() -> None:
    """It shows what it was sent, not how far it can go."""
    live = Observed(Origin.LIVE, "live", MODEL, TWO.points, gpu=H100, gpus=1, tp=1, prompt_tokens=1000.0,
                    answer_tokens=200.0, weight_precision="fp8", kv_pool_tokens=1e6)  # fmt: skip
    [limit] = [each for each in planned(live, 100.0).limits if each.kind is LimitKind.ITL]
    assert limit.concurrency > 215.0


def test_latencies_of_a_sweep_that_bends_are_those_of_its_points() -> None:
    """Where a line through all of them misses each."""
    figures = ((1.0, 0.008), (10.0, 0.010), (50.0, 0.016), (104.0, 0.030), (320.0, 0.085))
    seen = swept(*(Point(running, itl_s=itl_s, offered=running) for running, itl_s in figures))
    for running, itl_s in figures:
        row = planned(seen, capacity_per_instance=running)
        assert row.instances * row.running == pytest.approx(1000.0)
        one = planned(seen, itl_s * 1e3)
        [limit] = [each for each in one.limits if each.kind is LimitKind.ITL]
        assert limit.concurrency == pytest.approx(running)


def test_between_two_points_of_a_mixture_of_experts_it_rises_as_its_model_does() -> None:
    """Steep at first, as more and more experts are read."""
    line = Interpolated((1.0, 128.0), (0.010, 0.040), MOE)
    share = (MOE.itl_s(16.0) - MOE.itl_s(1.0)) / (MOE.itl_s(128.0) - MOE.itl_s(1.0))
    assert line.itl_s(16.0) == pytest.approx(0.010 + 0.030 * share)
    assert share > 15.0 / 127.0 * 3.0


def test_beyond_its_points_it_is_the_model_scaled_to_the_last_one() -> None:
    line = Interpolated((10.0, 20.0), (0.030, 0.040), Curve(0.010, 0.001))
    assert line.itl_s(30.0) == pytest.approx(0.040 * 0.040 / 0.030)
    assert line.itl_s(1.0) == pytest.approx(0.011 * 0.030 / 0.020)
    assert line.itl_s(15.0) == pytest.approx(0.035)
    assert line.tokens_per_s(20.0) == pytest.approx(500.0)


LOADS = st.lists(st.floats(1.0, 1e4), min_size=1, max_size=8, unique=True).map(sorted)
LATENCIES = st.lists(st.floats(1e-3, 10.0), min_size=8, max_size=8)
MODELS = st.sampled_from((Curve(0.010, 0.0003), Curve(0.5, 0.0), MOE))


@given(LOADS, LATENCIES, MODELS, st.sampled_from((math.inf, 50.0, 5000.0)), st.lists(st.floats(1.0, 1e5), min_size=2))
def test_it_never_falls_and_never_leaves_its_neighbours(
    loads: list[float], latencies: list[float], model: Curve, most: float, asked: list[float]
) -> None:
    itls_s = never_falling(latencies[: len(loads)], [1.0] * len(loads))
    line = Interpolated(tuple(loads), itls_s, model, most)
    values = [line.itl_s(load) for load in sorted((*loads, *asked))]
    for before, after in pairwise(values):
        assert after >= before * (1.0 - 1e-12)
    for load, itl_s in zip(loads, itls_s, strict=True):
        assert line.itl_s(load) == pytest.approx(max(itl_s, load / most))
    for load in asked:
        assert line.tokens_per_s(load) <= most * (1.0 + 1e-12)


@given(st.lists(st.tuples(st.floats(0.1, 10.0), st.floats(0.1, 5.0)), min_size=1, max_size=12))
def test_the_nearest_values_that_never_fall(pairs: list[tuple[float, float]]) -> None:
    values = [value for value, _ in pairs]
    weights = [weight for _, weight in pairs]
    rising = never_falling(values, weights)
    assert len(rising) == len(values)
    assert all(before <= after for before, after in pairwise(rising))
    kept = sum(value * weight for value, weight in zip(rising, weights, strict=True))
    assert kept == pytest.approx(sum(value * weight for value, weight in pairs))
    if values == sorted(values):
        assert rising == tuple(values)


def test_a_fall_becomes_the_mean_of_its_parts() -> None:
    assert never_falling([1.0, 3.0, 2.0, 4.0], [1.0, 1.0, 3.0, 1.0]) == (1.0, 2.25, 2.25, 4.0)


def test_one_slow_window_of_a_running_engine_does_not_move_all_loads_beyond_it() -> None:
    """The last of six levels is a third slower than the line of the others; a load test's counts as it is."""
    points = [Point(running, itl_s=0.010 + 0.001 * running) for running in (1.0, 2.0, 3.0, 4.0, 6.0)]
    points.append(Point(8.0, itl_s=0.018 * 4 / 3))
    live = fit(points, roof=None, noisy=True)
    swept = fit(points, roof=None, noisy=False)
    assert isinstance(live, Fitted)
    assert isinstance(swept, Fitted)
    assert live.line.itl_s(12.0) == pytest.approx(0.022, rel=0.03)
    assert swept.line.itl_s(8.0) == pytest.approx(0.024)


def test_levels_of_a_running_engine_that_bend_are_followed() -> None:
    """A single request takes 64 ms, where a line through all levels says 345."""
    figures = ((1.0, 0.064), (2.0, 0.150), (3.0, 0.345), (4.0, 0.350), (6.0, 0.355), (8.0, 0.360))
    found = fit([Point(running, itl_s=itl_s) for running, itl_s in figures], roof=None, noisy=True)
    assert isinstance(found, Fitted)
    assert found.line.itl_s(1.0) < 0.075
    assert found.line.itl_s(1.5) < 0.2

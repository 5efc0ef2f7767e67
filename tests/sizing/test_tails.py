"""p95 by load: from points, beside the mean, carried over to what is re-scaled, and what goals then allow."""

from __future__ import annotations

import pytest

from gpumon.readings.missing import Missing
from gpumon.sizing.answer import LimitKind, WorkloadPlan
from gpumon.sizing.fit import LatencySample, tail_of
from gpumon.sizing.latency import Curve
from gpumon.sizing.plan import plan
from gpumon.sizing.profile import Observed, Point
from gpumon.sizing.resolve import resolve
from gpumon.sizing.scenario import Scenario, Server
from tests.each_row import each_row
from tests.records import replace
from tests.sizing.questions import KNOWN, NIM_70B, SEVENTY, changed


def p95_s(running: float) -> float:
    return 0.060 + 0.0006 * running


TAILED = replace(
    NIM_70B,
    itl_tail_ratio=3.0,
    points=tuple(replace(point, itl_p95_s=p95_s(point.running)) for point in NIM_70B.points),
)
"""p95 is held up at low load: 3.2 times the mean alone, 1.2 times with 85 running."""


def asked(seen: Observed = TAILED, **fields: object) -> Scenario:
    return changed(replace(SEVENTY, planning_factor=1.0), seen=seen, **fields)


def row(scenario: Scenario) -> WorkloadPlan:
    return plan(scenario, KNOWN).workloads[0]


def itl_limit(scenario: Scenario) -> tuple[float, str]:
    return next((each.concurrency, each.text) for each in row(scenario).limits if each.kind is LimitKind.ITL)


MEAN = Curve(0.01, 0.0005)
mean = MEAN.itl_s


def test_a_line_over_three_levels_follows_the_load() -> None:
    tail = tail_of([LatencySample(b, mean(b), 0.04 + 0.0001 * b) for b in (4.0, 8.0, 16.0)], MEAN, 9.0)
    assert tail.known
    assert tail.ratio_at(8.0) * mean(8.0) == pytest.approx(0.0408)
    assert tail.ratio_at(1.0) > tail.ratio_at(16.0) > 1.0
    assert tail.ratio_at(12.0) < tail.ratio_at(8.0)


@each_row("p95_slope_s", [0.0, 0.0001, 0.0008])
def test_beyond_the_loads_that_were_seen_p95_does_not_fall_to_the_mean(p95_slope_s: float) -> None:
    """The mean may grow faster than the line of p95: further out the two would cross."""
    tail = tail_of([LatencySample(b, mean(b), 0.04 + p95_slope_s * b) for b in (4.0, 8.0, 16.0)], MEAN, None)
    last = tail.ratio_at(16.0)
    assert last > 2.0
    for running in (17.0, 100.0, 1e4):
        assert tail.ratio_at(running) == pytest.approx(max(last, (0.04 + p95_slope_s * running) / mean(running)))


def test_p95_never_falls_with_the_load() -> None:
    tail = tail_of([LatencySample(b, mean(b), 0.05 - 0.0005 * b) for b in (4.0, 8.0, 16.0)], MEAN, None)
    assert (tail.slope_s, tail.base_s) == (0.0, pytest.approx(0.046))


def test_loads_of_less_than_one_and_points_without_p95_are_no_end_of_the_line() -> None:
    idle = [LatencySample(b, mean(1.0), 0.04) for b in (0.2, 0.4, 0.8)]
    tail = tail_of([*idle, LatencySample(90.0, mean(90.0), float("inf"))], MEAN, None)
    assert tail.ratio_at(0.5) == tail.ratio_at(1.0) == tail.ratio_at(50.0) == pytest.approx(0.04 / mean(1.0))


@each_row("levels", [(8.0,), (4.0, 16.0), (8.0, 9.0, 10.0)])
def test_fewer_or_closer_levels_give_one_ratio(levels: tuple[float, ...]) -> None:
    tail = tail_of([LatencySample(b, mean(b), 2.0 * mean(b)) for b in levels], MEAN, 9.0)
    assert (tail.known, tail.ratio_at(1.0), tail.ratio_at(50.0)) == (True, pytest.approx(2.0), pytest.approx(2.0))


def test_without_levels_the_ratio_of_all_else_the_mean() -> None:
    assert tail_of([], MEAN, 1.5)[:2] == (1.5, True)
    assert tail_of([], MEAN, None)[:2] == (1.0, False)


def test_a_goal_is_held_by_the_p95_of_its_load() -> None:
    concurrency, text = itl_limit(asked())
    assert concurrency == pytest.approx((0.1 - 0.060) / 0.0006, rel=0.01)
    assert text == "ITL p95 100.0 ms at 67, goal 100.0 ms"
    one_ratio = replace(TAILED, points=NIM_70B.points)
    assert itl_limit(asked(one_ratio))[0] < 0.4 * concurrency
    scenario = asked()
    instance = resolve(scenario.workload[0], scenario, KNOWN)
    assert instance.goal_itl_s == pytest.approx(instance.itl_s(concurrency))
    assert instance.itl_tail_ratio == pytest.approx(0.1 / (instance.itl_s(concurrency) or 0.0))


def test_a_typed_ratio_stands_above_what_was_seen() -> None:
    typed = asked(itl_tail_ratio=2.0)
    instance = resolve(typed.workload[0], typed, KNOWN)
    assert instance.goal_itl_s == 0.05
    assert instance.itl_p95_s(10.0) == pytest.approx(2.0 * (instance.itl_s(10.0) or 0.0))


def test_what_is_re_scaled_keeps_the_ratio_of_the_same_load() -> None:
    scenario = asked()
    here = resolve(scenario.workload[0], scenario, KNOWN)
    scenario = replace(scenario, server=(Server("H200 SXM 141GB"),))
    there = resolve(scenario.workload[0], scenario, KNOWN)
    for running in (1.0, 10.0, 60.0):
        assert there.itl_tail.ratio_at(running) == pytest.approx(here.itl_tail.ratio_at(running))
    concurrency, _ = itl_limit(scenario)
    assert there.itl_p95_s(concurrency) == pytest.approx(0.1)


def test_the_plan_has_the_p95_at_its_load() -> None:
    found = row(asked())
    assert found.itl_p95_s == pytest.approx(p95_s(found.running), rel=0.02)  # type: ignore[arg-type]
    assert isinstance(found.ttft_p95_s, Missing)
    assert not any("p95 / mean" in note for note in found.notes)
    bare = row(asked(NIM_70B))
    assert isinstance(bare.itl_p95_s, Missing)
    assert any("p95 / mean of the ITL is not known" in note for note in bare.notes)
    assert itl_limit(asked(NIM_70B))[1].endswith("as a mean")


def test_ttft_follows_its_load_below_the_knee() -> None:
    points = tuple(
        replace(point, ttft_p95_s=0.8 + 0.004 * point.running if point.running < 60 else 30.0)
        for point in NIM_70B.points
    )
    scenario = asked(replace(NIM_70B, points=points), ttft_p95_ms=920.0)
    limit = next(each for each in row(scenario).limits if each.kind is LimitKind.TTFT)
    assert limit.concurrency == pytest.approx(30.0, rel=0.01)
    assert limit.text == "TTFT p95 920.0 ms at 30, goal 920.0 ms"


def test_points_of_nonsense_are_no_tail() -> None:
    points = (Point(0.0, 0.01, itl_p95_s=0.02), Point(3.0, 0.0, itl_p95_s=0.02))
    samples = [LatencySample(each.running, each.itl_s or 0.0, each.itl_p95_s or 0.0) for each in points]
    assert not tail_of(samples, MEAN, None).known

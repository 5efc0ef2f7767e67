"""The detector of change on series made by hand: levels, beginnings, steps, drifts, swings; lines with intervals."""

from __future__ import annotations

import random

import pytest

from gpumon.triage.change import Drift, drift, find_rise, trend
from tests.each_row import each_row


def noisy(levels: list[float], scatter: float = 0.02, seed: int = 1) -> list[tuple[float, float]]:
    """Slots of 20 s at these levels."""
    rng = random.Random(seed)
    return [(20.0 * at, level * (1.0 + rng.gauss(0.0, scatter))) for at, level in enumerate(levels)]


@each_row("seed", [1, 2, 3])
@each_row("after", [1, 5, 60])
def test_a_step_has_its_level_and_its_beginning(after: int, seed: int) -> None:
    change = find_rise(noisy([1.45] * 12 + [3.8] * after, seed=seed), 3.8, 1.5)
    assert change is not None
    assert change.before == pytest.approx(1.45, rel=0.03)
    assert change.began_s == 220.0
    assert change.is_sudden


@each_row("seed", [1, 2, 3])
def test_a_drift_begins_where_the_level_of_before_ends(seed: int) -> None:
    ramp = [1.45 * (1.0 + 0.1 * at) for at in range(1, 31)]
    change = find_rise(noisy([1.45] * 5 + ramp, seed=seed), ramp[-1], 1.5)
    assert change is not None
    assert change.before == pytest.approx(1.45, rel=0.05)
    assert 60.0 <= change.began_s <= 140.0
    assert not change.is_sudden


@each_row(
    "levels",
    [
        [1.45] * 2,  # too little of before
        [1.45] * 40,  # nothing has changed
        [1.45, 3.8] * 20,  # it swings so all along
        [3.8] * 40,  # as high as now since the beginning
    ],
)
def test_no_change_is_found_where_none_is(levels: list[float]) -> None:
    now = 3.8 if len(set(levels)) > 1 or levels[0] > 3.0 else 1.5
    assert find_rise(noisy(levels), now, 1.5) is None


def test_a_rise_below_the_factor_is_none() -> None:
    assert find_rise(noisy([1.45] * 12 + [2.0] * 4), 2.0, 1.5) is None


def test_a_line_holds_the_true_slope_in_its_interval() -> None:
    held = 0
    for seed in range(200):
        rng = random.Random(seed)
        values = [(10.0 * at, 0.2 + 0.002 * 10.0 * at + rng.gauss(0.0, 0.02)) for at in range(15)]
        line = trend(values, 0.5, 1.96)
        assert line is not None
        held += line.low_per_s <= 0.002 <= line.high_per_s
    assert held >= 180, "95% of 200, less what chance allows"


def test_values_that_only_scatter_have_no_trend() -> None:
    told = 0
    for seed in range(200):
        rng = random.Random(seed)
        told += trend([(10.0 * at, rng.gauss(0.5, 0.1)) for at in range(18)], 0.6, 1.96) is not None
    assert told == 0


def _queue(arrivals_per_s: float, served_per_s: float, seed: int) -> list[tuple[float, float]]:
    """Lengths of a long queue every 15 s for two minutes: what came is chance, and what went, too."""
    chance = random.Random(seed)
    length = 1000.0
    lengths = [(0.0, length)]
    for step in range(1, 9):
        for _ in range(150):
            length += (chance.random() < arrivals_per_s / 10.0) - (chance.random() < served_per_s / 10.0)
        lengths.append((15.0 * step, length))
    return lengths


def test_the_drift_of_a_queue_is_as_sure_as_two_counts_of_chance() -> None:
    held = 0
    for seed in range(200):
        found = drift(_queue(1.2, 1.0, seed), 1.0)
        assert found is not None
        held += abs(found.per_s - 0.2) <= 2.0 * found.error_per_s
    assert held >= 190


def test_the_time_to_a_limit_is_that_of_a_random_walk() -> None:
    rise = Drift(level=100.0, per_s=2.0, error_per_s=0.5, seen_s=112.0)
    seconds, deviation_s = rise.time_to(300.0)
    assert seconds == 100.0
    walk_s = (200.0 * 0.25 * 112.0 / 8.0) ** 0.5
    assert deviation_s == pytest.approx((walk_s**2 + 25.0**2) ** 0.5)


def test_one_burst_is_no_drift() -> None:
    lengths = [(15.0 * step, 0.0 if step < 5 else 400.0) for step in range(9)]
    found = drift(lengths, 10.0)
    assert found is not None
    assert found.per_s < 1.1 * found.error_per_s

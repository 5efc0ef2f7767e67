"""ITL over running sequences, and its inverses."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.sizing.latency import Curve, Mix, largest_load
from tests.each_row import each_row
from tests.sizing.rows import named

SECONDS = st.floats(1e-5, 1.0)
SLOPES = st.floats(1e-8, 0.1)
RUNNING = st.floats(1.0, 4096.0)
LINES = st.builds(Curve, SECONDS, SLOPES)
EXPERTS = st.sampled_from([(8, 2), (128, 8), (128, 4), (256, 8), (384, 8), (16, 1), (4, 4)])
MIXTURES = st.builds(
    lambda base, slope, resident, experts: Curve(base, slope, resident, *experts),
    SECONDS,
    SLOPES | st.just(0.0),
    st.floats(0.0, 1.0),
    EXPERTS,
)


def test_the_scaling_book_line_is_exact() -> None:
    """26 GB of weights and 6.7 GB of KV per sequence over 8 x 0.82 TB/s."""
    curve = Curve(26e9 / 6.56e12, 6.7e9 / 6.56e12)
    for row in named("S1-1 S1-16 S1-240"):
        running = float(row["running"])
        assert curve.itl_s(running) * 1e3 == pytest.approx(float(row["itl_ms"]), rel=0.002)
        assert curve.tokens_per_s(running) == pytest.approx(float(row["tokens_per_s"]), rel=0.002)


def test_half_of_the_highest_throughput_is_reached_at_base_over_slope() -> None:
    curve = Curve(0.01769, 0.000841)
    assert curve.tokens_per_s(0.01769 / 0.000841) == pytest.approx(0.5 / 0.000841)


@given(LINES | MIXTURES, RUNNING, st.floats(0.001, 100.0))
def test_more_sequences_are_never_faster_each_and_never_slower_together(
    curve: Curve, running: float, more: float
) -> None:
    assert 0.0 < curve.itl_s(running) <= curve.itl_s(running + more)
    assert curve.tokens_per_s(running + more) >= curve.tokens_per_s(running) * (1.0 - 1e-12)


def most_running(curve: Curve, itl_s: float) -> float:
    """Most sequences whose ITL is at most that."""
    return largest_load(lambda running: curve.itl_s(running) <= itl_s)


@given(LINES, RUNNING)
def test_the_largest_load_inverts_a_line(curve: Curve, running: float) -> None:
    assert most_running(curve, curve.itl_s(running)) == pytest.approx(running, rel=1e-6, abs=1e-6 * 1e3)


@given(LINES | MIXTURES, RUNNING)
def test_the_largest_load_just_meets_the_goal(curve: Curve, running: float) -> None:
    goal_s = curve.itl_s(running)
    found = most_running(curve, goal_s)
    assert found >= 1.0
    if math.isinf(found):
        assert curve.itl_s(1e9) <= goal_s * (1.0 + 1e-9) or curve.slope_s == 0.0
    else:
        assert curve.itl_s(found) == pytest.approx(goal_s, rel=1e-6)


def test_a_goal_below_one_sequence_allows_none() -> None:
    assert most_running(Curve(0.02, 0.001), 0.0205) == 0.0
    assert most_running(Curve(0.02, 0.0, 0.1, 128, 8), 0.001) == 0.0


def test_what_is_never_reached_is_infinite() -> None:
    assert math.isinf(most_running(Curve(0.02, 0.0), 0.02))
    assert math.isinf(most_running(Curve(0.02, 0.0, 0.1, 128, 8), 0.02))


def test_experts_are_counted_once() -> None:
    """Expected distinct experts of 128/8: 8, 52 and 126 at 1, 8 and 64 sequences."""
    curve = Curve(0.128, 0.0, 0.0, 128, 8)
    for running, touched in ((1, 8), (8, 52), (64, 126)):
        assert curve.itl_s(running) * 1e3 == pytest.approx(touched, abs=0.5)


@each_row("running", [-1.0, math.nan, math.inf])
def test_impossible_loads_are_named(running: float) -> None:
    for curve in (Curve(0.02, 0.001), Curve(0.02, 0.001, 0.1, 128, 8)):
        for asked in (curve.itl_s, curve.tokens_per_s):
            with pytest.raises(ValueError, match="finite"):
                asked(running)


@each_row(
    ("given", "said"),
    [
        ((0.0, 0.1), "base_s"),
        ((math.nan, 0.1), "base_s"),
        ((0.1, -0.1), "slope_s"),
        ((0.1, math.inf), "slope_s"),
        ((0.1, 0.1, 1.1), "resident_ratio"),
        ((0.1, 0.1, math.nan), "resident_ratio"),
        ((0.1, 0.1, 0.5, 8, 9), "experts_per_token"),
        ((0.1, 0.1, 0.5, 8, 0), "experts_per_token"),
    ],
)
def test_impossible_curves_are_named(given: tuple[float, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Curve(*given)


@each_row(
    ("given", "said"),
    [
        ((-1.0, 10.0), "prompt_tokens"),
        ((10.0, 0.0), "answer_tokens"),
        ((10.0, math.nan), "answer_tokens"),
        ((10.0, 10.0, 1.5), "prefix_hit_ratio"),
    ],
)
def test_impossible_mixes_are_named(given: tuple[float, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Mix(*given)


def test_cached_tokens_are_read_but_not_computed() -> None:
    mix = Mix(1000.0, 200.0, 0.75)
    assert (mix.new_tokens, mix.context_tokens) == (250.0, 1100.0)

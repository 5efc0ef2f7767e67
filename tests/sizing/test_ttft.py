"""TTFT below the knee, calibrated, and beyond it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.sizing.accuracy import band_of, first_token_cost
from gpumon.sizing.first_token import measured_first_token
from gpumon.sizing.fit import calibrated_ttft
from gpumon.sizing.latency import TtftLine, largest_load, queued_ttft_s
from gpumon.sizing.profile import Point
from gpumon.sizing.roofline import layers_s, prompt_s, ttft_line
from tests.each_row import each_row
from tests.sizing.rows import ROWS, named, point, setting

LINES = st.builds(TtftLine, st.floats(0.001, 10.0), st.floats(0.0, 1.0), st.floats(0.0, 0.1))


def errors(line: TtftLine | None, names: str) -> dict[str, float]:
    assert line is not None
    return {row["id"]: line.ttft_s(float(row["running"])) / (float(row["ttft_ms"]) / 1e3) - 1.0 for row in named(names)}


def test_the_line_by_hand() -> None:
    """70B FP8 on two H100, prompts of 5,000: the request's own prompt and steps, and a share of the 25 in flight."""
    at = setting(ROWS["N1"])
    alone_s, beside_s = prompt_s(at), layers_s(at)
    line = ttft_line(at, "vllm")
    cost = first_token_cost("vllm")
    steps = 5000.0 / 8192.0
    expected_s = beside_s * (cost.layers + 25.0 * cost.layers_each * steps)
    expected_s += alone_s * (cost.prompt + 25.0 * cost.prompt_each)
    assert line.ttft_s(25.0) == pytest.approx(expected_s)
    assert ttft_line(at, "sglang").ttft_s(32.0) > 2.0 * line.ttft_s(32.0)
    assert line.ttft_s(8.0) < ttft_line(at).ttft_s(8.0) < ttft_line(at, "sglang").ttft_s(8.0)


def test_most_published_rows_lie_in_the_band() -> None:
    """Of engines that are none of those that the constants are from, one load each."""
    inside = []
    for name in ("N1", "N2", "N7", "A1", "A10", "D1", "D6", "D10"):
        at = setting(ROWS[name])
        band = band_of("ttft any", at.tp, moe=False)
        measured_over = 1.0 / (1.0 + errors(ttft_line(at), name)[name]) - 1.0
        inside.append(band.low <= measured_over <= band.high)
    assert sum(inside) >= 5, inside


@each_row(("names", "worst"), [("N1 N2 N3 N4", 0.12), ("N7 N8 N9", 0.3), ("D6 D7 D8", 0.45), ("D10 D11", 0.01)])
def test_calibrated_to_a_sweep_it_follows_it(names: str, worst: float) -> None:
    line = calibrated_ttft(ttft_line(setting(named(names)[0])), tuple(point(row) for row in named(names)))
    found = errors(line, names)
    if len(found) > 2:
        assert max(map(abs, found.values())) <= worst, found
    assert any(abs(each) < 0.05 for each in found.values()) or len(found) < 3


def test_too_few_loads_move_the_line() -> None:
    """0.3 s measured where 0.15 were told, 0.4 where 0.2: what rises grows by the root of two."""
    line = TtftLine(0.1, 0.05 / (math.sqrt(3.0) - 1.0))
    told = [line.ttft_s(1.0), line.ttft_s(3.0)]
    two = (Point(1.0, ttft_s=2.0 * told[0]), Point(3.0, ttft_s=2.0 * told[1]))
    found = calibrated_ttft(line, two)
    assert found is not None
    assert found.crowd_s == pytest.approx(line.crowd_s * math.sqrt(2.0))
    # Both loads lie as far off the line.
    assert found.ttft_s(1.0) - 2.0 * told[0] == pytest.approx(2.0 * told[1] - found.ttft_s(3.0))
    assert calibrated_ttft(line, ()) == line
    assert calibrated_ttft(None, ()) is None


def test_two_loads_far_apart_are_a_line_through_both() -> None:
    """103 ms at 1 and 484 ms at 128, whatever a formula makes of one of them."""
    two = (Point(1.0, ttft_s=0.103), Point(128.0, ttft_s=0.484))
    found = calibrated_ttft(TtftLine(0.001, 0.2), two)
    assert found is not None
    assert [found.ttft_s(load) for load in (1.0, 64.0, 128.0)] == pytest.approx([0.103, 0.292, 0.484])
    assert calibrated_ttft(None, two) == found
    first = measured_first_token(TtftLine(0.001, 0.2), two, None, "")
    assert first.decides
    assert first.basis == "line through 2 loads"
    assert first.line == found


def test_points_past_the_knee_have_waited_and_are_left_out() -> None:
    seen = (Point(1.0, ttft_s=0.2, offered=1.0), Point(80.0, ttft_s=8.0, offered=100.0))
    assert calibrated_ttft(TtftLine(0.1, 0.0), seen) == TtftLine(0.2, 0.0)


@given(LINES, st.floats(1.0, 1000.0), st.floats(0.01, 100.0))
def test_a_moved_line_passes_through_the_load_that_is_known(line: TtftLine, running: float, ttft_s: float) -> None:
    moved = line.moved_to([(running, ttft_s)])
    assert moved.ttft_s(running) == pytest.approx(ttft_s)
    assert moved.fixed_s >= 0.0
    if moved.fixed_s > 0.0 and line.growth_s > 0.0:
        assert moved.growth_s == pytest.approx(line.growth_s * math.sqrt(ttft_s / line.ttft_s(running)))


@given(LINES, st.floats(0.002, 100.0))
def test_the_load_at_a_goal_is_where_the_goal_is_met(line: TtftLine, goal_s: float) -> None:
    running = largest_load(lambda load: line.ttft_s(load) <= goal_s)
    if running == 0.0:
        assert line.ttft_s(1.0) > goal_s
    elif not math.isinf(running):
        assert line.ttft_s(running) == pytest.approx(goal_s, rel=1e-6)


@each_row(("fixed", "crowd", "growth"), [(-0.1, 0.0, 0.0), (0.1, math.nan, 0.0), (0.1, 0.0, -1.0)])
def test_impossible_lines_are_named(fixed: float, crowd: float, growth: float) -> None:
    with pytest.raises(ValueError, match=r"fixed_s|crowd_s|growth_s"):
        TtftLine(fixed, crowd, growth)


@each_row("users", [150, 200, 250])
def test_past_the_knee_little_says_how_long(users: int) -> None:
    """NIM: 920 tok/s whatever is offered, so 250 users wait 88.6 s for the first token (measured)."""
    found = queued_ttft_s(users, 920 / 500, 500, 0.0932)
    assert found == pytest.approx(users / 1.84 - 499 * 0.0932)
    assert users != 250 or found == pytest.approx(88.605, rel=0.02)


def test_figures_that_do_not_belong_together_are_named() -> None:
    with pytest.raises(ValueError, match="decoding takes"):
        queued_ttft_s(10, 1.0, 1000, 0.1)

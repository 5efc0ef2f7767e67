"""TTFT below the knee, calibrated, and beyond it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.sizing.observed import Point
from gpumon.sizing.ttft import TtftLine, calibrated, queued_ttft_s, ttft_line
from tests.sizing.rows import ROWS, named, point, setting

LINES = st.builds(
    TtftLine, st.floats(0.0, 10.0), st.integers(1, 200), st.floats(0.1, 10.0), st.floats(0.0, 0.1) | st.just(0.0)
)


def errors(line: TtftLine, names: str) -> dict[str, float]:
    return {row["id"]: line.ttft_s(float(row["running"])) / (float(row["ttft_ms"]) / 1e3) - 1.0 for row in named(names)}


@pytest.mark.parametrize("name", ["N1", "A1", "A10", "D10", "A15"])
def test_one_prompt_alone_is_predicted(name: str) -> None:
    """Prefill at 55 % MFU and 0.8 ms a layer: within 20 % where prefill is most of it."""
    assert abs(errors(ttft_line(setting(ROWS[name])), name)[name]) < 0.20


@pytest.mark.parametrize(
    ("names", "worst"),
    [("N1 N2 N3 N4", 0.05), ("N7 N8 N9", 0.05), ("D6 D7 D8", 0.15), ("D1 D2 D3 D4 D5", 0.45), ("A1 A2 A3 A4", 0.15)],
)
def test_calibrated_to_a_sweep_it_follows_it(names: str, worst: float) -> None:
    line = calibrated(ttft_line(setting(named(names)[0])), tuple(point(row) for row in named(names)))
    found = errors(line, names)
    assert max(map(abs, found.values())) <= worst, found


def test_two_loads_do_not_make_a_growth() -> None:
    assert calibrated(ttft_line(setting(ROWS["D6"])), tuple(point(row) for row in named("D6 D7"))).growth_s == 0.0


def test_points_past_the_knee_do_not_count() -> None:
    line = ttft_line(setting(ROWS["N1"]))
    below = tuple(point(row) for row in named("N1 N2 N3 N4"))
    assert calibrated(line, (*below, *(point(row) for row in named("N5 N6")))) == calibrated(line, below)


def test_few_points_move_the_factor_only() -> None:
    line = TtftLine(0.3, 80)
    found = calibrated(line, (Point(1.0, ttft_s=2.0 * line.ttft_s(1.0)), Point(1.2, ttft_s=2.0 * line.ttft_s(1.2))))
    assert (found.factor, found.growth_s) == (pytest.approx(2.0), 0.0)


def test_nothing_usable_leaves_the_line() -> None:
    line = TtftLine(0.3, 80)
    for useless in (
        [],
        [Point(5.0)],
        [Point(5.0, ttft_s=0.0)],
        [Point(math.nan, ttft_s=0.1)],
        [Point(5.0, ttft_s=math.inf)],
    ):
        assert calibrated(line, tuple(useless)) == line
    assert calibrated(TtftLine(0.0, 0), (Point(5.0, ttft_s=0.1),)) == TtftLine(0.0, 0)


@given(st.lists(st.builds(Point, running=st.floats(0.0, 500.0), ttft_s=st.floats(1e-4, 100.0)), max_size=20))
def test_whatever_is_seen_gives_a_sane_line(seen: list[Point]) -> None:
    found = calibrated(TtftLine(0.3, 80), tuple(seen))
    assert 0.0 < found.ttft_s(1.0) <= found.ttft_s(100.0) < math.inf


def test_the_crowd_doubles_prefill_at_most() -> None:
    line = TtftLine(0.1, 10)
    assert line.ttft_s(1.0) == pytest.approx(0.108)
    assert line.ttft_s(0.0) == line.ttft_s(1.0)
    assert line.ttft_s(16.0) == pytest.approx(0.158)
    assert line.ttft_s(256.0) == line.ttft_s(4000.0) == pytest.approx(0.208)


@given(LINES, st.floats(1.0, 5000.0))
def test_running_at_inverts_it(line: TtftLine, running: float) -> None:
    goal_s = line.ttft_s(running)
    found = line.running_at(goal_s)
    if math.isinf(found):
        assert line.growth_s == 0.0
        assert line.ttft_s(256.0) <= goal_s
    else:
        assert line.ttft_s(found) == pytest.approx(goal_s, rel=1e-6)


def test_goals_out_of_reach_and_always_met() -> None:
    line = TtftLine(0.1, 10)
    assert line.running_at(0.05) == 0.0
    assert math.isinf(line.running_at(0.3))
    assert TtftLine(0.1, 10, growth_s=0.001).running_at(1.0) == pytest.approx(792.0)


@pytest.mark.parametrize(("name", "predicted_s", "off"), [("N5", 8.16, 0.03), ("N6", 89.4, 0.01), ("N10", 0.479, 0.04)])
def test_past_the_knee_little_law_gives_the_wait(name: str, predicted_s: float, off: float) -> None:
    row = ROWS[name]
    answer = float(row["answer"])
    rate = float(row["tokens_per_s"]) / answer
    found = queued_ttft_s(float(row["offered"]), rate, answer, float(row["itl_ms"]) / 1e3)
    assert found == pytest.approx(predicted_s, rel=0.002)
    assert found * 1e3 == pytest.approx(float(row["ttft_ms"]), rel=off)


def test_figures_that_do_not_belong_together_are_named() -> None:
    with pytest.raises(ValueError, match="decoding takes"):
        queued_ttft_s(10.0, 1.0, 500.0, 0.1)


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, math.inf])
def test_impossible_inputs_are_named(wrong: float) -> None:
    for given_ in (
        (wrong, 1.0, 500.0, 0.1),
        (10.0, wrong, 500.0, 0.1),
        (10.0, 1.0, wrong, 0.1),
        (10.0, 1.0, 5.0, wrong),
    ):
        with pytest.raises(ValueError, match="finite number above 0"):
            queued_ttft_s(*given_)
    with pytest.raises(ValueError, match="ttft_s"):
        TtftLine(0.1, 10).running_at(wrong)
    with pytest.raises(ValueError, match="factor"):
        TtftLine(0.1, 10, wrong)

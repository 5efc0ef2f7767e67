"""From points to a curve: published sweeps come out, spoiled points do no harm, too little says so."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.sizing.accuracy import band_of
from gpumon.sizing.fit import Fitted, fit
from gpumon.sizing.latency import Curve
from gpumon.sizing.profile import Point
from gpumon.sizing.roofline import roofline, weight_read_s
from tests.each_row import each_row
from tests.records import replace
from tests.sizing.rows import error, fitted, named, point, setting

SHAPE = Curve(0.02, 0.0008)
TRUE = Curve(0.018, 0.001)


def points(*running: float, curve: Curve = TRUE) -> list[Point]:
    return [Point(b, curve.itl_s(b)) for b in running]


def fitted_to(seen: list[Point], shape: Curve = SHAPE, floor_s: float = 0.005, least: int = 5) -> Fitted:
    found = fit(seen, roof=shape, floor_s=floor_s, least_buckets=least)
    assert isinstance(found, Fitted), found
    return found


def refused(seen: list[Point], roof: Curve | None = SHAPE, floor_s: float = 0.005) -> str:
    found = fit(seen, roof=roof, floor_s=floor_s)
    assert isinstance(found, str), found
    return found


def test_nim_70b_is_a_line() -> None:
    """The fact sheet's fit of N1 to N4: 17.69 ms and 0.841 ms, each row within 0.5%."""
    found = fitted("N1 N2 N3 N4")
    assert found.curve.base_s * 1e3 == pytest.approx(17.69, rel=0.005)
    assert found.curve.slope_s * 1e3 == pytest.approx(0.841, rel=0.005)
    assert max(abs(error(found.curve, row)) for row in named("N1 N2 N3 N4")) <= 0.0051
    assert (found.low, found.high, found.buckets, found.anchored) == (1.0, 50.0, 4, False)
    assert found.r2 > 0.999


def test_past_the_knee_points_stay_on_the_line_over_what_runs() -> None:
    """N5 and N6 offer 100 and 250; 85.5 run, whatever is offered, and the line still holds there."""
    running = [float(row["tokens_per_s"]) * float(row["itl_ms"]) / 1e3 for row in named("N5 N6")]
    assert sum(running) / 2 == pytest.approx(85.5, rel=0.002)
    found = fitted("N1 N2 N3 N4 N5 N6")
    assert max(abs(error(found.curve, row)) for row in named("N1 N2 N3 N4 N5 N6")) < 0.04
    assert found.curve.slope_s * 1e3 == pytest.approx(0.841, rel=0.01)


@each_row(
    ("names", "worst"),
    [("D1 D2 D3 D4 D5", 0.09), ("D6 D7 D8", 0.08), ("D10 D11 D12", 0.15), ("A1 A2 A3 A4", 0.05), ("A10 A11 A12", 0.02)],
)
def test_published_sweeps_are_lines(names: str, worst: float) -> None:
    """The fact sheet says 6 to 8% for D (15% for 7000/1000); D3 is 8.5% off the line through its neighbours."""
    found = fitted(names)
    errors = {row["id"]: round(error(found.curve, row), 3) for row in named(names)}
    assert max(map(abs, errors.values())) <= worst, errors
    assert found.band.widest() >= 0.04


def test_little_law_running_fits_as_well() -> None:
    """With running = tokens/s x ITL, as sweeps are imported, the line is the same within 4%."""
    rows = named("N1 N2 N3 N4 N5 N6")
    at = setting(rows[0])
    seen = [replace(point(row), running=float(row["tokens_per_s"]) * float(row["itl_ms"]) / 1e3) for row in rows]
    reads_s = weight_read_s(at)
    found = fit(seen, roof=roofline(at), floor_s=reads_s / 2)
    assert isinstance(found, Fitted)
    assert found.curve.slope_s * 1e3 == pytest.approx(0.841, rel=0.04)
    for each in seen:
        assert found.curve.itl_s(each.running) == pytest.approx(each.itl_s, rel=0.011)


def test_a_mixture_of_experts_is_no_line_but_fits() -> None:
    """A straight line through aiconfigurator's Qwen3-30B-A3B is 86% off (fact sheet, result 4)."""
    names = "Q1 Q2 Q4 Q8 Q16 Q32 Q64 Q128"
    curve = fitted(names).curve
    errors = {row["id"]: abs(error(curve, row)) for row in named(names)}
    assert errors.pop("Q16") < 0.25  # the source jumps from 13.0 to 21.3 ms between 16 and 32
    assert max(errors.values()) < 0.08, errors
    straight = fit([point(row) for row in named(names)], roof=None)
    assert isinstance(straight, Fitted)
    assert max(abs(error(straight.curve, row)) for row in named(names)) > 0.5


def test_three_rows_of_a_mixture_fit_too() -> None:
    curve = fitted("A16 A17 A18").curve
    assert max(abs(error(curve, row)) for row in named("A16 A17 A18")) < 0.05


@given(
    st.floats(0.006, 0.1),
    st.floats(1e-5, 5e-3),
    st.lists(st.integers(1, 512), min_size=5, max_size=30, unique=True),
)
def test_points_of_a_line_give_that_line(base_s: float, slope_s: float, running: list[int]) -> None:
    curve = Curve(base_s, slope_s)
    found = fit(points(*running, curve=curve), roof=SHAPE, floor_s=0.005)
    assert isinstance(found, Fitted)
    if not found.anchored:
        # Buckets of 10% hold the median of running and of ITL: both lie on the line, or between two of its points.
        assert found.curve.itl_s(found.high) == pytest.approx(curve.itl_s(found.high), rel=1e-6)
        assert found.curve.slope_s == pytest.approx(slope_s, rel=1e-6)
        assert found.r2 > 0.999


@given(
    st.lists(
        st.builds(
            Point,
            running=st.floats(allow_nan=True),
            itl_s=st.none() | st.floats(allow_nan=True),
            weight=st.integers(-1, 9),
        )
        | st.builds(Point, running=st.floats(0.0, 600.0), itl_s=st.floats(1e-4, 1.0)),
        max_size=40,
    ),
    st.sampled_from([None, SHAPE, Curve(1.0, 0.0), Curve(0.03, 0.0002, 0.1, 128, 8)]),
    st.sampled_from([0.0, 0.005]),
)
def test_whatever_is_seen_gives_a_sane_curve_or_a_reason(seen: list[Point], roof: Curve | None, floor_s: float) -> None:
    found = fit(seen, roof=roof, floor_s=floor_s)
    if isinstance(found, str):
        assert len(found) > 20
        return
    assert found.curve.base_s >= floor_s
    assert found.curve.slope_s >= 0.0
    assert 1.0 <= found.low <= found.high
    assert 0.0 <= found.r2 <= 1.0
    assert -0.9 <= found.band.low < 0.0 < found.band.high <= 0.9
    assert math.isfinite(found.curve.itl_s(found.high))
    assert found.text


def test_one_outlier_does_no_harm() -> None:
    for spoiled in range(8):
        seen = points(1, 2, 5, 10, 20, 40, 60, 80)
        seen[spoiled] = Point(seen[spoiled].running, 0.5)
        found = fitted_to(seen)
        assert found.curve.itl_s(50) == pytest.approx(TRUE.itl_s(50), rel=0.08), spoiled


def test_weights_count_in_the_medians() -> None:
    seen = [*points(1, 2, 5, 10, 20), Point(5.0, 0.9, weight=1), Point(5.0, 0.8, weight=1)]
    heavy = [replace(each, weight=10) if each.itl_s == TRUE.itl_s(each.running) else each for each in seen]
    found = fitted_to(heavy)
    assert found.curve.slope_s == pytest.approx(TRUE.slope_s)


def test_points_without_a_latency_are_left_out() -> None:
    seen = [*points(1, 2, 5, 10, 20), Point(30.0), Point(40.0, 0.0), Point(math.nan, 0.02), Point(50.0, math.inf)]
    assert fitted_to(seen) == fitted_to(points(1, 2, 5, 10, 20))
    assert refused([Point(30.0), Point(0.0, 0.02)]) == "no inter-token latency was measured"


@each_row(
    ("seen", "held_back", "worst"),
    [("N1", "N2 N3 N4", 0.25), ("N4", "N1 N2 N3", 0.25), ("A3", "A1 A2 A4", 0.25), ("D7", "D6 D8", 0.55)],
)
def test_one_load_scales_the_roofline(seen: str, held_back: str, worst: float) -> None:
    """One point says how fast it is there, the roofline how the others are; the sizing course's engine is far off."""
    found = fitted(seen, least_buckets=5)
    assert found.anchored
    assert "scaled" in found.text
    errors = {row["id"]: round(error(found.curve, row), 2) for row in named(held_back)}
    assert max(map(abs, errors.values())) <= worst, errors


@each_row(
    ("seen", "held_back"),
    [("N1 N2 N3", "N4 N5 N6"), ("D1 D2 D3 D4", "D5"), ("D1 D2 D4 D5", "D3"), ("A1 A2 A3", "A4")],
)
def test_a_fit_predicts_the_loads_that_it_did_not_see(seen: str, held_back: str) -> None:
    curve = fitted(seen).curve
    errors = {row["id"]: round(error(curve, row), 2) for row in named(held_back)}
    assert max(map(abs, errors.values())) <= 0.10, errors


def test_a_narrow_range_is_anchored_however_many_points() -> None:
    found = fitted_to([Point(12 + i / 10, 0.03) for i in range(60)])
    assert found.anchored
    assert found.curve.itl_s(15) == pytest.approx(0.03, rel=0.1)


def test_live_points_need_five_loads_a_sweep_three() -> None:
    assert fitted_to(points(1, 10, 100), least=5).anchored
    found = fitted_to(points(1, 10, 100), least=3)
    assert not found.anchored
    assert found.curve.slope_s == pytest.approx(TRUE.slope_s)


def test_too_little_with_nothing_to_anchor_to_says_so() -> None:
    assert refused(points(3, 4), roof=None) == "2 points at 3 to 4 running: too little for a line"


def test_falling_latency_is_refused() -> None:
    said = refused([Point(b, 0.1 / b) for b in (1, 2, 4, 8, 16, 32)])
    assert "falls as running rises" in said


def test_noise_that_falls_over_a_short_range_still_tells_the_level() -> None:
    seen = [Point(b, itl_s) for b, itl_s in ((2, 0.0215), (3, 0.021), (4, 0.0205), (5, 0.02), (6, 0.0195))]
    found = fitted_to(seen)
    assert found.anchored
    assert found.curve.itl_s(4) == pytest.approx(0.0205, rel=0.03)
    assert found.curve.slope_s > 0.0
    assert "falls as running rises" in refused(seen, roof=None)


def test_a_flat_line_is_flat() -> None:
    found = fitted_to([Point(b, 0.02 - b * 1e-6) for b in (1, 5, 10, 20, 40)])
    assert found.curve.slope_s == 0.0
    assert found.curve.base_s == pytest.approx(0.02, rel=0.01)
    assert "flat" in found.text


def test_idle_data_parallel_ranks_are_no_part_of_the_line() -> None:
    """Below 8 sequences on 8 ranks each token takes 3 times longer (vLLM #23752)."""
    slow = [Point(b, 0.09) for b in range(1, 8)]
    found = fitted_to([*slow, *points(8, 12, 16, 24, 32, 48)])
    assert found.low == 8.0
    assert found.curve.slope_s == pytest.approx(TRUE.slope_s)
    assert found.curve.base_s == pytest.approx(TRUE.base_s)
    assert "slower below 8, left out" in found.text


def test_a_stuck_reading_at_the_end_does_not_take_the_line_with_it() -> None:
    found = fitted_to([*points(1, 2, 3, 4, 5, 6, 8, 10, 12), Point(13.0, 0.019), Point(14.0, 0.019)])
    assert found.low == 1.0
    assert found.curve.itl_s(10) == pytest.approx(TRUE.itl_s(10), rel=0.1)


def test_faster_than_the_weights_can_be_read_is_refused() -> None:
    said = refused(points(1, 2, 5, 10, 20, curve=Curve(0.001, 1e-5)), floor_s=0.02)
    assert "less than reading the weights allows" in said
    assert "20.0 ms" in said


def test_the_base_is_held_at_its_floor() -> None:
    found = fitted_to([Point(b, 0.002 + 0.001 * b) for b in (8, 12, 16, 24, 32, 48)], floor_s=0.005)
    assert found.curve.base_s == 0.005
    assert found.curve.itl_s(24) == pytest.approx(0.026, rel=0.05)


def test_scatter_widens_the_band() -> None:
    noisy = [
        Point(each.running, (each.itl_s or 0) * (1.3 if at % 2 else 0.7))
        for at, each in enumerate(points(*range(1, 15)))
    ]
    wide, narrow = fitted_to(noisy).band, fitted_to(points(*range(1, 15))).band
    assert wide.widest() > 0.3
    assert (wide.rows, narrow) == (0, band_of("measured", 1, moe=False))


def test_negative_guards_are_named() -> None:
    with pytest.raises(ValueError, match="floor_s"):
        fit(points(1), roof=SHAPE, floor_s=-1.0)

"""Where an engine stands below its roof: ridge, FLOP/byte, and how far each side of the roof is."""

from __future__ import annotations

import math

import pytest

from gpumon.efficiency.roofline import RooflinePoint, roofline_point, trail
from gpumon.readings.missing import Missing, Reason
from tests.each_row import each_row
from tests.records import replace
from tests.tui import scenes

NO_FORMULA = Missing(Reason.NOT_MODELLED)


def placed(**figures: object) -> RooflinePoint:
    engine = scenes.snapshot(8, 1).engines[0]
    return roofline_point(replace(engine, **figures))


def test_an_h100_in_bf16_meets_both_peaks_at_295_flop_per_byte() -> None:
    where = placed(peak_flops_per_s=989.4e12, peak_bandwidth_bytes_per_s=3.352e12)
    assert where.ridge == pytest.approx(295.2, abs=0.1)


def test_the_share_of_the_ridge_is_mfu_over_mbu() -> None:
    where = placed(
        mfu_ratio=0.1,
        mbu_ratio=0.5,
        flops_per_s=98.94e12,
        bytes_per_s=1.676e12,
        peak_flops_per_s=989.4e12,
        peak_bandwidth_bytes_per_s=3.352e12,
    )
    assert isinstance(where.intensity, float)
    assert isinstance(where.ridge, float)
    assert where.intensity / where.ridge == pytest.approx(0.1 / 0.5)


@each_row(
    ("mbu", "mfu", "times", "bandwidth"), [(0.5, 0.1, 2.0, True), (0.2, 0.8, 1.25, False), (0.4, 1.6, 0.625, False)]
)
def test_the_nearer_side_of_the_roof_is_reached_first(mbu: float, mfu: float, times: float, bandwidth: bool) -> None:
    where = placed(mbu_ratio=mbu, mfu_ratio=mfu)
    assert where.headroom == pytest.approx(times)
    assert where.meets_bandwidth is bandwidth
    assert where.missing is None


def test_an_engine_that_does_nothing_has_no_headroom() -> None:
    assert placed(mbu_ratio=0.0, mfu_ratio=0.0).headroom == Missing(Reason.IDLE)


def test_an_engine_without_one_of_the_figures_says_which_and_has_no_place() -> None:
    assert placed(mfu_ratio=NO_FORMULA).missing is NO_FORMULA
    without = placed(mfu_ratio=0.2, mbu_ratio=NO_FORMULA)
    assert without.missing is NO_FORMULA
    assert without.headroom is NO_FORMULA
    assert without.meets_bandwidth is None


def test_a_trail_has_the_times_of_which_both_shares_are_known() -> None:
    gap = math.nan
    assert trail([0.1, gap, 0.3, 0.4], [0.01, 0.02, gap, 0.04]) == [(0.1, 0.01), (0.4, 0.04)]

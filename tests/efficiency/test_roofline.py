"""Where an engine stands below its roof: ridge, FLOP/byte, and how far each side of the roof is."""

from __future__ import annotations

import math

import pytest

from gpumon.efficiency.roofline import Place, Roof, RooflinePoint, roofline_point
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


def test_the_place_is_flop_per_byte_and_the_rate_of_one_gpu_of_four() -> None:
    where = placed(
        mfu_ratio=0.1,
        mbu_ratio=0.5,
        peak_flops_per_s=4 * 989.4e12,
        peak_bandwidth_bytes_per_s=4 * 3.352e12,
        gpu_count=4.0,
    )
    assert where.roof == Roof(pytest.approx(3.352e12), pytest.approx(989.4e12), "bf16")
    assert where.intensity == pytest.approx(98.94e12 / 1.676e12)
    assert where.place(where.mbu, where.mfu) == Place(pytest.approx(98.94e12 / 1.676e12), pytest.approx(98.94e12))


@each_row(
    ("mbu", "mfu"),
    [(0.0, 0.1), (0.5, 0.0), (1e-9, 0.1), (0.1, 1e6), (math.nan, 0.1), (0.1, math.nan), (NO_FORMULA, 0.1)],
)
def test_nothing_and_a_gap_have_no_place_on_logarithmic_axes(mbu: float, mfu: float) -> None:
    assert placed().place(mbu, mfu) is None


@each_row(
    ("mbu", "mfu", "times", "bandwidth"), [(0.5, 0.1, 2.0, True), (0.2, 0.8, 1.25, False), (0.4, 1.6, 0.625, False)]
)
def test_the_nearer_side_of_the_roof_is_reached_first(mbu: float, mfu: float, times: float, bandwidth: bool) -> None:
    where = placed(mbu_ratio=mbu, mfu_ratio=mfu)
    assert where.headroom == pytest.approx(times)
    assert where.meets_bandwidth is bandwidth
    assert where.missing is None


def test_an_engine_that_does_nothing_has_no_headroom_and_no_place() -> None:
    where = placed(mbu_ratio=0.0, mfu_ratio=0.0)
    assert where.headroom == Missing(Reason.IDLE)
    assert where.missing == Missing(Reason.IDLE)


def test_an_engine_without_one_of_the_figures_says_which_and_has_no_place() -> None:
    assert placed(mfu_ratio=NO_FORMULA).missing is NO_FORMULA
    without = placed(mfu_ratio=0.2, mbu_ratio=NO_FORMULA)
    assert without.missing is NO_FORMULA
    assert without.headroom is NO_FORMULA
    assert without.meets_bandwidth is None


def test_without_a_number_of_gpus_that_of_those_it_runs_on_is_taken() -> None:
    where = placed(gpu_count=Missing(Reason.NO_GPU), peak_flops_per_s=4e12, peak_bandwidth_bytes_per_s=4e12)
    assert where.roof == Roof(1e12, 1e12, "bf16")
    nowhere = placed(gpu_count=Missing(Reason.NO_GPU), gpus=())
    assert nowhere.roof == Missing(Reason.NO_GPU)

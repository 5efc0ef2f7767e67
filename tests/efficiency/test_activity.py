"""The region of a GPU by its own counters: what is measured, and no more."""

from __future__ import annotations

import math

import pytest

from gpumon.efficiency.activity import Region, activity_point, region_of, shares_of_regions, trail
from gpumon.readings.missing import NOT_SUPPORTED, Missing, Reason
from gpumon.readings.snapshot import BandwidthSource
from gpumon.triage.thresholds import Thresholds
from gpumon.tui.activity_map import bounds_of
from tests.each_row import each_row
from tests.tui import scenes

BOUNDS = bounds_of(Thresholds())
UNKNOWN = Missing(Reason.NO_PERMISSION)


def region(tensor: object, dram: float, sm: object = 0.5, busy: object = 1.0) -> Region | None:
    gpu = scenes.gpu(
        0,
        tensor_active_ratio=tensor,
        sm_active_ratio=sm,
        busy_ratio=busy,
        bandwidth_bytes_per_s=dram * scenes.PEAK,
    )
    return region_of(activity_point(gpu), BOUNDS)


@each_row(
    ("tensor", "dram", "sm", "busy", "expected"),
    [
        (0.60, 0.30, 0.9, 1.0, Region.COMPUTE),
        (0.59, 0.30, 0.9, 1.0, Region.BETWEEN),
        (0.10, 0.75, 0.9, 1.0, Region.MEMORY),
        (0.10, 0.74, 0.9, 1.0, Region.BETWEEN),
        (0.70, 0.80, 0.9, 1.0, Region.BOTH),
        (0.24, 0.39, 0.3, 1.0, Region.WAITING),
        (0.25, 0.39, 0.3, 1.0, Region.BETWEEN),
        (0.24, 0.40, 0.3, 1.0, Region.BETWEEN),
        (0.00, 0.10, 0.7, 1.0, Region.PLAIN),
        (0.00, 0.10, UNKNOWN, 1.0, Region.UNTOLD),
        (0.00, 0.10, UNKNOWN, 0.0, Region.IDLE),
        (0.30, 0.10, UNKNOWN, 1.0, Region.BETWEEN),
        (0.00, 0.00, 0.0, 0.05, Region.IDLE),
        (0.00, 0.00, 0.0, UNKNOWN, Region.UNTOLD),
        (0.00, 0.00, 0.3, UNKNOWN, Region.WAITING),
        (0.90, 0.00, 0.9, 0.0, Region.COMPUTE),
    ],
)
def test_the_region_is_that_of_its_bounds(
    tensor: float, dram: float, sm: object, busy: object, expected: Region
) -> None:
    assert region(tensor, dram, sm, busy) is expected


def test_sm_active_stands_for_tensor_cores_that_are_not_known_and_never_makes_a_gpu_compute_bound() -> None:
    gpu = scenes.gpu(0, tensor_active_ratio=UNKNOWN, sm_active_ratio=0.95, bandwidth_bytes_per_s=0.1 * scenes.PEAK)
    point = activity_point(gpu)
    assert point.by_sm
    assert point.pipe == 0.95
    assert region_of(point, BOUNDS) is Region.BETWEEN


@each_row("source", [BandwidthSource.UPPER_BOUND, BandwidthSource.ENGINE, BandwidthSource.NONE])
def test_a_bandwidth_that_is_modelled_or_a_bound_is_not_measured(source: BandwidthSource) -> None:
    point = activity_point(scenes.gpu(0, bandwidth_source=source))
    assert point.dram == NOT_SUPPORTED
    assert region_of(point, BOUNDS) is None
    assert point.missing == NOT_SUPPORTED


def test_what_neither_tells_is_missing_with_its_reason() -> None:
    point = activity_point(scenes.gpu(0, tensor_active_ratio=UNKNOWN, sm_active_ratio=UNKNOWN))
    assert not point.by_sm
    assert point.missing == UNKNOWN


def test_both_figures_are_of_the_same_window() -> None:
    gpu = scenes.gpu(0, tensor_active_ratio=0.9, tensor_active_window_ratio=0.4, busy_window_ratio=0.8)
    point = activity_point(gpu)
    assert point.pipe == pytest.approx(0.4)
    assert point.busy == pytest.approx(0.8)


def test_past_places_have_the_regions_of_their_bounds() -> None:
    places = [(0.3, 0.6)] * 5 + [(0.1, 0.1)] * 3 + [(0.8, 0.1)] + [(0.5, 0.5)]
    assert shares_of_regions(places, BOUNDS, by_sm=False) == [
        (Region.COMPUTE, 0.5),
        (Region.WAITING, 0.3),
        (Region.MEMORY, 0.1),
        (Region.BETWEEN, 0.1),
    ]
    assert shares_of_regions(places, BOUNDS, by_sm=True)[0] == (Region.BETWEEN, 0.6), "SMs tell no arithmetic"
    assert shares_of_regions([], BOUNDS, by_sm=False) == []


def test_a_trail_has_the_times_of_which_both_figures_are_known() -> None:
    gap = math.nan
    assert trail([0.1, gap, 0.3, 0.4], [0.01, 0.02, gap, 0.04]) == [(0.1, 0.01), (0.4, 0.04)]

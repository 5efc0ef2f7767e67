"""The definitions of busy, MFU and MBU, and that nothing is clamped or made up."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.efficiency.ratio import busy, mbu, mfu
from tests.each_row import each_row

HOUR = 3600.0
FLOPS = st.floats(0, 1e18)


def test_busy_five_of_ten_hours_is_half() -> None:
    assert busy(5 * HOUR, 10 * HOUR) == 0.5


def test_mfu_twenty_of_a_possible_hundred_tokens_per_second_is_a_fifth() -> None:
    flops_per_token = 16.06e9
    assert mfu(20 * flops_per_token, 1, 100 * flops_per_token) == pytest.approx(0.2)


def test_mbu_half_a_terabyte_of_one_is_half() -> None:
    assert mbu(500e9, 1, 1e12) == 0.5


@given(FLOPS, st.integers(1, 64), st.floats(1e9, 1e18), st.floats(0.1, 10))
def test_mfu_scales_linearly_and_divides_by_the_gpus(rate: float, gpus: int, peak: float, factor: float) -> None:
    assert mfu(rate * factor, gpus, peak) == pytest.approx(factor * mfu(rate, gpus, peak))
    assert mfu(rate, gpus, peak) == pytest.approx(mfu(rate / gpus, 1, peak))


@each_row("bad", [-1.0, math.nan, math.inf])
def test_bad_input_is_named(bad: float) -> None:
    for share in (mfu, mbu):
        with pytest.raises(ValueError, match="per_s"):
            share(bad, 1, 1.0)
        with pytest.raises(ValueError, match="n_gpus"):
            share(1.0, bad, 1.0)
        with pytest.raises(ValueError, match="peak"):
            share(1.0, 1, bad)
    with pytest.raises(ValueError, match="busy_s"):
        busy(bad, 1.0)
    with pytest.raises(ValueError, match="elapsed_s"):
        busy(1.0, bad)


@each_row("share", [mfu, mbu])
def test_without_a_peak_there_is_no_share(share: Callable[[float, float, float], float]) -> None:
    with pytest.raises(ValueError, match="peak"):
        share(0.0, 1, 0.0)
    with pytest.raises(ValueError, match="n_gpus"):
        share(0.0, 0.9, 1.0)

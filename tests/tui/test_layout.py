"""The lines of a screen are given out in a fixed order, and all of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.tui.layout import LEAST_HEIGHT, LEAST_WIDTH, PANES, Plan, plan


def test_80x24_holds_8_gpus_4_engines_a_chart_strip_and_the_fault_line() -> None:
    assert plan(80, 24, 8, 4, 1) == Plan(gpus=10, engines=6, history=4, faults=2)


def test_120x40_holds_16_gpus_and_charts() -> None:
    of = plan(120, 40, 16, 4, 0)
    assert of.gpus == 18
    assert of.engines == 6
    assert of.history >= 11


@pytest.mark.parametrize(("width", "height"), [(59, 40), (200, 14), (20, 3), (0, 0), (1, 1)])
def test_a_small_terminal_gets_the_summary(width: int, height: int) -> None:
    assert plan(width, height, 8, 4, 1).tiny


def test_a_low_screen_leaves_out_the_charts_first() -> None:
    assert plan(60, 15, 8, 4, 1).hidden == ("history",)


@given(
    st.integers(LEAST_WIDTH, 300),
    st.integers(LEAST_HEIGHT, 120),
    st.integers(0, 64),
    st.integers(0, 128),
    st.integers(0, 20),
)
def test_every_line_is_given_out_and_every_table_keeps_a_row(
    width: int, height: int, gpus: int, engines: int, faults: int
) -> None:
    of = plan(width, height, gpus, engines, faults)
    assert sum(of) == height - 2
    assert of.gpus >= 3
    assert of.engines >= 3
    assert of.faults >= 2


@given(st.integers(LEAST_HEIGHT, 120), st.integers(0, 64), st.integers(0, 64), st.integers(0, 9))
def test_a_higher_screen_takes_no_line_away(height: int, gpus: int, engines: int, faults: int) -> None:
    small, large = plan(80, height, gpus, engines, faults), plan(80, height + 1, gpus, engines, faults)
    assert large.gpus >= small.gpus - 2  # two lines go to the charts when they first get a place
    if small.history:
        assert all(more >= less for more, less in zip(large, small, strict=True))


@pytest.mark.parametrize("name", PANES)
def test_a_zoomed_pane_has_the_screen_alone(name: str) -> None:
    of = plan(80, 24, 8, 4, 1, zoomed=name)
    assert getattr(of, name) == 22
    assert len(of.hidden) == 3

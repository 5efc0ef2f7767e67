"""What is claimed of the simulation: captures of real engines, and published rows of servers."""

from __future__ import annotations

import pytest

from tests.accuracy.simulated import PHASES, Judged, both, judge, rows_as_shipped

MOST_ERROR = 0.25
STEADY = 0.3
"""Change of the measured TTFT between the halves of a phase above which its host was not the same."""


@pytest.fixture(scope="module")
def judged() -> list[Judged]:
    return [judge(phase) for phase in PHASES if phase.capture != "llamacpp-slots"]


def test_unseen_halves_of_captures(judged: list[Judged]) -> None:
    steady = [one for one in judged if abs(one.drift) < STEADY]
    assert len(steady) == 8
    for one in steady:
        assert abs(one.ttft) < MOST_ERROR, one
        assert abs(one.ttft_p95) < MOST_ERROR, one
        assert abs(one.itl) < 0.3, one


def test_published_rows_as_closed_loops() -> None:
    rows = rows_as_shipped("vllm", every=20)
    assert len(rows) > 40
    itl_off, itl_error = both([row.itl for row in rows])
    ttft_off, ttft_error = both([row.ttft for row in rows])
    assert abs(itl_off) < 0.08
    assert itl_error < 0.15
    assert abs(ttft_off) < 0.25
    assert ttft_error < 0.4

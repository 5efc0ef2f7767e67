"""Little's law against sweeps and the design guide."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest

from gpumon.sizing.design_guide import guide_profiles
from gpumon.sizing.latency import response_s
from tests.each_row import each_row

NIM = list(csv.DictReader((Path(__file__).parents[1] / "data" / "nim_runs.csv").read_text().splitlines()))


@each_row("row", [row for row in NIM if row["prompt"] == "5000"], named=lambda row: row["offered"])
def test_littles_law_on_the_5000_500_sweeps(row: dict[str, str]) -> None:
    """Ten rows of two models, 250 users past the knee too: rate x time = what the client held open."""
    took = response_s(float(row["ttft_ms"]) / 1e3, float(row["itl_ms"]) / 1e3, float(row["answer"]))
    rate = float(row["tokens_per_s"]) / float(row["answer"])
    assert rate * took == pytest.approx(float(row["offered"]), rel=0.01)


def test_littles_law_on_the_design_guide() -> None:
    """Dell H19686 table 10: 4 / 14.5 = 276 ms against 275, 397 / 396, 1108 / 1101, 1103 / 1100."""
    swept = [row for row in guide_profiles() if row.points]
    assert len(swept) == 4
    for row in swept:
        point = row.points[0]
        assert point.requests_per_s is not None
        assert point.e2e_s is not None
        assert row.concurrency is not None
        assert row.concurrency / point.requests_per_s == pytest.approx(point.e2e_s, rel=0.01)


def test_a_response_is_its_first_token_and_the_gaps_of_the_others() -> None:
    assert response_s(0.5, 0.02, 101) == pytest.approx(2.5)
    assert response_s(0.5, 0.02, 0) == 0.5
    with pytest.raises(ValueError, match="itl_s"):
        response_s(1.0, math.inf, 10)

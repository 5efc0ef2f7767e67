"""Sizing against measured servers: what is claimed of it, and that what is shipped is what the rows say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median

import pytest

from gpumon.sizing.accuracy import CLAIM, REACHED, band_of, first_token_cost
from tests.accuracy.silicon import DATA, Judged, Row, first_token_costs, fits_without, fitted, judge, ranks, read


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    found, left = read(DATA)
    assert sum(left.values()) == 31, left
    return found


@pytest.fixture(scope="module")
def judged(rows: list[Row]) -> list[Judged]:
    """By constants that have not seen the model."""
    fits = fits_without(rows, {row.family for row in rows})
    return [judge(row, *fits[row.family]) for row in rows]


def test_inter_token_latency(judged: list[Judged]) -> None:
    off = [1.0 / (1.0 + one.itl) - 1.0 for one in judged]
    assert len(off) == 2358
    assert abs(median(off)) < 0.03
    assert median(map(abs, off)) < 0.13


def test_first_token(judged: list[Judged]) -> None:
    off = [1.0 / (1.0 + one.ttft) - 1.0 for one in judged]
    assert abs(median(off)) < 0.1
    assert median(map(abs, off)) < 0.35


def test_capacity_at_the_measured_latency_by_tp(judged: list[Judged]) -> None:
    by_tp: dict[int, list[float]] = defaultdict(list)
    for one in judged:
        by_tp[one.row.tp].append(one.capacity)
    assert sorted(by_tp) == [1, 2, 4, 8]
    assert all(0.9 < median(ratios) < 1.1 for ratios in by_tp.values())


def shares(judged: Sequence[Judged], figure: str) -> float:
    """Of rows inside the shipped band."""
    inside = 0
    for one in judged:
        band = band_of(figure, one.row.tp, one.row.moe)
        inside += band.low <= getattr(one, figure) <= band.high
    return inside / len(judged)


@pytest.mark.parametrize("figure", ["itl", "ttft"])
def test_bands_hold_what_they_claim(judged: list[Judged], figure: str) -> None:
    assert shares(judged, figure) == pytest.approx(CLAIM, abs=0.03)
    for tp in (1, 2, 4, 8):
        assert shares([one for one in judged if one.row.tp == tp], figure) == pytest.approx(CLAIM, abs=0.05)


def test_what_is_shipped_is_what_the_rows_say(rows: list[Row]) -> None:
    """`python -m tests.accuracy.silicon --write` after a change of formulas or models."""
    for now, was in zip(fitted(rows), REACHED, strict=True):
        assert was == pytest.approx(now, rel=0.05)
    for engine, now in first_token_costs(rows, REACHED).items():
        assert first_token_cost(engine) == pytest.approx(now, rel=0.05, abs=0.01)


@pytest.mark.parametrize(
    ("columns", "meant"),
    [
        ((8, 1, 1), (8, 1)), ((4, 4, 1), (4, 1)), ((16, 4, 1), (4, 1)), ((64, 8, 1), (8, 1)), ((4, 16, 4), (4, 1)),
        ((2, 4, 2), (2, 1)), ((1, 8, 8), (1, 8)), ((1, 8, 64), (1, 8)), ((2, 0, 0), (2, 1)),
    ],
)  # fmt: skip
def test_parallelism_as_files_write_it(columns: tuple[int, int, int], meant: tuple[int, int]) -> None:
    assert ranks(*columns) == meant

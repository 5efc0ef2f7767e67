"""Sizing against measured servers: what is claimed of it, and that what is shipped is what the rows say."""

from __future__ import annotations

from collections import defaultdict
from statistics import median

import pytest

from gpumon.sizing.accuracy import REACHED, Band, FirstTokenCost, band_of, first_token_cost
from gpumon.sizing.measured_errors import BANDS, MEASURED_ARCHITECTURES, TTFT_FITS
from gpumon.sizing.scenario import Scenario
from tests.accuracy.silicon import (
    CONSTANTS_BEGIN,
    CONSTANTS_END,
    FACTOR,
    KINDS,
    TABLE,
    constants,
    module,
    shipped,
    ttft_capacities,
)
from tests.accuracy.silicon_bands import CLASSES, FIGURES, formula_bands, share_inside, unseen_groups, unseen_share
from tests.accuracy.silicon_fit import Fits, Judged, first_token_costs, fits_without, fitted, judge
from tests.accuracy.silicon_rows import DATA, FITS_NO_REQUEST, USABLE, Row, family_of, gpu_of, ranks, read

SIZING = DATA.parents[2] / "docs" / "sizing.md"


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    found, left = read(DATA)
    assert sum(left.values()) == 38, left
    return found


@pytest.fixture(scope="module")
def families(rows: list[Row]) -> Fits:
    """Constants that have not seen a model."""
    return fits_without(rows, {row.family for row in rows})


@pytest.fixture(scope="module")
def gpus(rows: list[Row]) -> Fits:
    """Constants that have not seen a type of GPU."""
    return fits_without(rows, {row.gpu for row in rows}, gpu_of)


@pytest.fixture(scope="module")
def judged(rows: list[Row], families: Fits) -> list[Judged]:
    """By constants that have not seen the model."""
    return [judge(row, *families[row.family]) for row in rows]


def test_rows_are_scored_with_the_memory_that_plans_use(rows: list[Row]) -> None:
    """A row whose weights leave no room for one request has no plan, and no score."""
    assert Scenario().usable_memory_ratio == USABLE == 0.92
    left = read(DATA)[1]
    assert left[FITS_NO_REQUEST] == 7
    assert all(1.0 <= row.running <= row.offered for row in rows)


def test_the_table_is_written_as_it_is_read() -> None:
    costs = {engine: FirstTokenCost(*fit) for engine, fit in TTFT_FITS.items()}
    bands = {figure: {cell: Band(*band) for cell, band in cells.items()} for figure, cells in BANDS.items()}
    assert module(REACHED, costs, bands, set(MEASURED_ARCHITECTURES)) == TABLE.read_text()


def test_inter_token_latency(judged: list[Judged]) -> None:
    off = [1.0 / (1.0 + one.itl) - 1.0 for one in judged]
    assert len(off) == 2351
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


@pytest.mark.parametrize("figure", ["itl", "ttft"])
def test_the_shipped_bands_are_those_of_the_rows(judged: list[Judged], figure: str) -> None:
    held = FIGURES[figure][1]
    assert share_inside(judged, shipped(judged), figure) == pytest.approx(held, abs=0.03)
    bands = formula_bands(judged)
    assert set(bands) == {*FIGURES, *CLASSES}
    for name in (figure, *CLASSES):
        for cell, band in bands[name].items():
            kept = band_of(name, *cell)
            assert (kept.low, kept.high) == pytest.approx((band.low, band.high), abs=0.03), (name, cell)


UNSEEN = pytest.mark.parametrize("unseen", ["families", pytest.param("gpus", marks=pytest.mark.wide)])
"""Fixture with constants that have not seen a part of the rows: the same code fits those without a type of GPU."""
GROUPS = {"families": family_of, "gpus": gpu_of}


@UNSEEN
def test_bands_hold_what_they_claim_of_models_and_gpus_that_they_have_not_seen(
    request: pytest.FixtureRequest, judged: list[Judged], unseen: str
) -> None:
    fits: Fits = request.getfixturevalue(unseen)
    groups = unseen_groups(judged, fits, GROUPS[unseen])
    shares = {name: unseen_share(groups, "itl", is_of) for name, is_of in KINDS.items()}
    assert len(shares) == 17
    wrong = {name: share for name, share in shares.items() if not 0.745 <= share <= 0.885}
    # Most rows with other weights of 4 bits are of gpt-oss-120b, most with data-parallel ranks of one GPU.
    least = {"families": {"other 4 bit": 0.65}, "gpus": {"other 4 bit": 0.65, "DP": 0.65}}[unseen]
    assert set(wrong) <= set(least), wrong
    for name, share in least.items():
        assert shares[name] >= share


@UNSEEN
@pytest.mark.parametrize(("engine", "least"), [("vllm", 0.9), ("trtllm", 0.7), ("sglang", 0.7)])
def test_capacity_at_a_measured_ttft_once_one_load_is_known(
    request: pytest.FixtureRequest, rows: list[Row], unseen: str, engine: str, least: float
) -> None:
    """Within a factor of two of what ran, without the model and without the GPU."""
    fits: Fits = request.getfixturevalue(unseen)
    own = [row for row in rows if row.engine == engine]
    ratios = ttft_capacities(own, fits, GROUPS[unseen])[1]
    near = [ratio for ratio in ratios if 1.0 / FACTOR <= ratio <= FACTOR]
    assert len(near) / len(ratios) >= least


def test_the_document_prints_the_constants_that_are_shipped() -> None:
    """`make silicon` writes them."""
    text = SIZING.read_text(encoding="utf-8")
    assert text.partition(CONSTANTS_BEGIN)[2].partition(CONSTANTS_END)[0].strip() == constants().strip()


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

"""Types of GPU side by side: figures that hold, reasons where there are none, and what has no room named."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import fields, replace

from gpumon.readings.format import cells
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.sizing.accuracy import Band
from gpumon.sizing.answer import NOT_KNOWN, Source, Totals
from gpumon.sizing.plan import Column
from gpumon.tui.line import Row
from gpumon.tui.palette import TONES
from gpumon.tui.sizing.compare import lines
from tests.tui.picture_scenes import answer_of, packed_of, plan_of, single, totals

NO = Missing(Reason.NOT_EXPOSED)


def text(rows: list[Row]) -> str:
    return "\n".join("".join(piece for piece, _ in row).rstrip() for row in rows)


FITTED = Band(-0.02, 0.06, 415)


def column(
    gpu: str, source: Source = Source.MEASURED, band: Band = FITTED, problem: str = "", **known: Reading
) -> Column:
    plan = replace(plan_of("Llama", NO if problem else 8.0), source=source, band=band, problem=problem)
    answer = answer_of((plan,), packed_of((single((0,)),)))
    problem = problem and f"Llama: {problem}"
    return Column(gpu, replace(answer, totals=totals(**known), problem=problem))


REASON = "not even one request at a time: ITL 62.5 ms at 1, goal 40.0 ms; more TP would help"
COLUMNS = (
    column("H100 SXM5 80GB", instances=16.0, gpus=32.0, servers=4.0, price_per_hour=79.68, price_per_mtok=2.72),
    column("H200 SXM 141GB", Source.RESCALED, Band(-0.12, 0.15, 229), instances=9.0, gpus=18.0, servers=3.0,
           price_per_hour=68.4, price_per_mtok=2.336),
    column("L40S", Source.NONE, problem=REASON),
    column("B200 SXM 180GB", Source.ROOFLINE, Band(-0.15, 0.38, 215), instances=5.0, gpus=5.0, servers=1.0,
           price_per_hour=NO, price_per_mtok=NO),
)  # fmt: skip


def test_the_whole_table() -> None:
    head, h100, h200, l40s, b200, *_ = text(lines(130, 6, COLUMNS)).splitlines()
    assert head.split() == ["GPU", "inst", "GPUs", "$/h", "ITL", "mean", "$/1M", "tok", "servers", "from"]
    assert h100.split()[3:] == ["16", "32", "79.68", "70ms", "2.72", "4", "measured", "-2..+6%"]
    assert h200.split()[3:] == ["9", "18", "68.40", "70ms", "2.34", "3", "re-scaled", "-12..+15%"]
    assert l40s.split(maxsplit=1) == ["L40S", REASON]
    assert b200.split()[3:] == ["5", "5", "–", "70ms", "–", "1", "roofline", "-15..+38%"]


def test_a_narrow_place_has_fewer_columns() -> None:
    assert text(lines(46, 7, COLUMNS)).splitlines()[0].split() == ["GPU", "inst", "GPUs", "$/h", "ITL", "mean"]
    seen = [len(text(lines(width, 7, COLUMNS)).splitlines()[0].split()) for width in range(30, 120)]
    assert seen == sorted(seen)


def test_a_reason_takes_the_lines_that_are_free() -> None:
    assert "goal 40.0 ms; more TP would help" in " ".join(text(lines(46, 12, COLUMNS)).split())
    assert "…" in text(lines(46, 5, COLUMNS))


NUMBERS = st.one_of(st.floats(0.0, 1e12), st.sampled_from([0.0, 1e300, math.inf, math.nan, -1.0]), st.just(NOT_KNOWN))
TOTALS = st.fixed_dictionaries({field.name: NUMBERS for field in fields(Totals)})
COLUMN = st.builds(
    lambda gpu, known, problem: column(gpu, problem=problem, **known),
    st.one_of(st.text(), st.sampled_from(["模型一二三四五六七八九十", "H100 SXM5 80GB"])),
    TOTALS,
    st.one_of(st.just(""), st.text()),
)


@given(st.lists(COLUMN, max_size=8), st.integers(0, 120), st.integers(0, 14), st.integers(-1, 3))
def test_every_row_is_exact(columns: list[Column], width: int, height: int, chosen: int) -> None:
    rows = lines(width, height, columns, chosen)
    assert len(rows) == (height if width else 0)
    assert {sum(cells(piece) for piece, _ in row) for row in rows} <= {width}
    assert {tone for row in rows for _, tone in row} <= set(TONES)
    assert not any(ord(character) < 32 for row in rows for piece, _ in row for character in piece)

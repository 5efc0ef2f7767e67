"""Types of GPU side by side: figures that hold, reasons where there are none, and what has no room named."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import fields, replace

from gpumon.readings.format import cells
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.sizing.accuracy import NO_BAND, Band
from gpumon.sizing.answer import NOT_KNOWN, Compared, Source, Totals
from gpumon.sizing.compare import COMPARISON_FIGURES, Comparison
from gpumon.tui.line import Row
from gpumon.tui.palette import TONES
from gpumon.tui.sizing.compare import comparison_rows
from tests.each_row import each_row
from tests.tui.picture_scenes import plan_of, totals

NO = Missing(Reason.NOT_EXPOSED)


def text(rows: list[Row]) -> str:
    return "\n".join("".join(piece for piece, _ in row).rstrip() for row in rows)


FITTED = Band(-0.02, 0.06, 415)


def compared(
    gpu: str,
    source: Source = Source.MEASURED,
    band: Band = FITTED,
    problem: str = "",
    best: str = "",
    *,
    as_planned: bool = False,
    **known: Reading,
) -> Compared:
    plan = replace(
        plan_of("Llama", NO if problem else 8.0), source=source, band=band, problem=problem, tp=2, layout="TP 2"
    )
    problem = problem and f"Llama: {problem}"
    return Compared(gpu, totals(**known), (plan,), tuple(best.split()), problem, as_planned)


REASON = "not even one request at a time: ITL 62.5 ms at 1, goal 40.0 ms; more TP would help"
H100 = {"instances": 16.0, "gpus": 32.0, "servers": 4.0, "price_per_hour": 79.68, "price_per_mtok": 2.72}
ROWS = (
    compared("H100 SXM5 80GB + L40S", as_planned=True, **{**H100, "gpus": 40.0}, power_w=28_000.0, tokens_per_j=0.3),
    compared("H100 SXM5 80GB", **H100, power_w=22_400.0, tokens_per_j=0.36, best="power_w"),
    compared("H200 SXM 141GB", Source.RESCALED, Band(-0.12, 0.15, 229), instances=9.0, gpus=18.0, servers=3.0,
             price_per_hour=68.4, price_per_mtok=2.336, power_w=NO, tokens_per_j=0.5,
             best="price_per_hour price_per_mtok tokens_per_j"),
    compared("L40S", Source.NONE, problem=REASON),
    compared("B200 SXM 180GB", Source.ROOFLINE, Band(-0.15, 0.38, 215), instances=5.0, gpus=5.0, servers=1.0,
             price_per_hour=NO, price_per_mtok=NO, power_w=NO, tokens_per_j=NO, best="gpus"),
)  # fmt: skip
COMPARISON = Comparison(ROWS)
UNPRICED = Comparison(
    tuple(replace(row, totals=replace(row.totals, price_per_hour=NO, price_per_mtok=NO)) for row in ROWS)
)


def test_the_source_is_not_cut_where_the_row_has_room() -> None:
    row = compared("L40S", Source.RESCALED, NO_BAND, **H100)
    source = f"re-scaled {row.workloads[0].errors_short}"
    assert source.endswith("either way")
    assert source in text(comparison_rows(120, 4, Comparison((row,))))


def test_the_whole_table() -> None:
    head, planned, h100, h200, l40s, b200, *foot = text(comparison_rows(130, 10, COMPARISON)).splitlines()
    assert [title for title in (figure.title for figure in COMPARISON_FIGURES) if title not in head] == []
    assert planned.split()[:5] == ["as", "planned", "2", "16", "40"]
    assert "  ".join(h100.split()[3:9]) == "2  16  32  4  79.68  2.72"
    assert h100.split()[-5:] == ["KV", "22kW*", "0.36", "measured", "-2..+6%"]
    assert h200.split()[5:9] == ["18", "3", "68.40*", "2.34*"]
    assert h200.split()[-4:] == ["–", "0.50*", "re-scaled", "-12..+15%"]
    assert l40s.split(maxsplit=1) == ["L40S", REASON]
    assert b200.split()[3:8] == ["2", "5", "5*", "1", "–"]
    assert foot == [
        "* fewest GPUs, cheapest, cheapest token, least power, most tokens/J",
        "same servers; TP of the fewest GPUs on each type; power: the boards' limits",
        *foot[2:],
    ]


def test_marks_are_green_and_the_plan_itself_is_muted() -> None:
    rows = comparison_rows(130, 8, COMPARISON)
    assert [piece.strip() for piece, tone in rows[3] if tone == "ok"] == ["68.40*", "2.34*", "0.50*"]
    assert {tone for piece, tone in rows[1] if piece.strip()} == {"muted"}


@each_row("width", [80, 120, 200])
def test_each_width_has_the_same_columns_but_for_the_least_important(width: int) -> None:
    head, *rest = text(comparison_rows(width, 12, COMPARISON)).splitlines()
    hidden = next((line for line in rest if line.startswith("wider window: ")), "")
    for figure in COMPARISON_FIGURES:
        assert (figure.title in head) != (figure.title in hidden)
    assert {"TP", "GPUs", "$/h", "limit"} <= set(head.split())
    assert bool(hidden) == (width < 120)
    marks = next(line for line in rest if line.startswith("*"))
    assert ("least power" in marks) == ("max power" in head)


def test_columns_without_a_figure_give_way_to_those_that_have_one() -> None:
    head, *rest = text(comparison_rows(80, 12, UNPRICED)).splitlines()
    assert "$" not in head
    assert {"power", "tok/J"} <= set(head.split())
    assert "no price: [prices] of the config, or typed with the server" in rest


def test_a_narrow_place_has_fewer_columns() -> None:
    assert text(comparison_rows(46, 8, COMPARISON)).splitlines()[0].split() == ["GPU", "TP", "inst", "GPUs", "$/h"]
    seen = [len(text(comparison_rows(width, 8, COMPARISON)).splitlines()[0].split()) for width in range(30, 130)]
    assert seen == sorted(seen)


def test_a_reason_takes_the_lines_that_are_free() -> None:
    assert "goal 40.0 ms; more TP would help" in " ".join(text(comparison_rows(46, 14, COMPARISON)).split())
    assert "…" in text(comparison_rows(46, 6, COMPARISON))


def test_sums_without_a_workload_say_so_in_the_lowest_place() -> None:
    assert "without 8B" in text(comparison_rows(60, 3, COMPARISON._replace(without=("acme/8B",))))


NUMBERS = st.one_of(st.floats(0.0, 1e12), st.sampled_from([0.0, 1e300, math.inf, math.nan, -1.0]), st.just(NOT_KNOWN))
TOTALS = st.fixed_dictionaries({field.name: NUMBERS for field in fields(Totals)})
ROW = st.builds(
    lambda gpu, known, problem: compared(gpu, problem=problem, **known),
    st.one_of(st.text(), st.sampled_from(["模型一二三四五六七八九十", "H100 SXM5 80GB"])),
    TOTALS,
    st.one_of(st.just(""), st.text()),
)


@given(st.lists(ROW, max_size=4), st.integers(0, 120), st.integers(0, 14), st.integers(-1, 3))
def test_every_row_is_exact(found: list[Compared], width: int, height: int, chosen: int) -> None:
    rows = comparison_rows(width, height, Comparison(tuple(found)), chosen)
    assert len(rows) == (height if width else 0)
    assert {sum(cells(piece) for piece, _ in row) for row in rows} <= {width}
    assert {tone for row in rows for _, tone in row} <= set(TONES)
    assert not any(ord(character) < 32 for row in rows for piece, _ in row for character in piece)

"""Types of GPU side by side: figures that hold, reasons where there are none, and what has no room named."""

from __future__ import annotations

import math

from hypothesis import given, settings
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
    column("H100 SXM5 80GB", instances=16.0, gpus=32.0, servers=4.0, price_per_hour=79.68, power_w=20400.0,
           price_per_mtok=2.72, tokens_per_j=0.358),
    column("H200 SXM 141GB", Source.RESCALED, Band(-0.12, 0.15, 229), instances=9.0, gpus=18.0, servers=3.0,
           price_per_hour=68.4, power_w=11500.0, price_per_mtok=2.336, tokens_per_j=0.635),
    column("L40S", Source.NONE, problem=REASON),
    column("B200 SXM 180GB", Source.ROOFLINE, Band(-0.15, 0.38, 215), instances=5.0, gpus=5.0, servers=1.0,
           price_per_hour=NO, power_w=5000.0, price_per_mtok=NO, tokens_per_j=1.46),
)  # fmt: skip


def test_the_whole_table() -> None:
    head, h100, h200, l40s, b200, foot = text(lines(130, 6, COLUMNS)).splitlines()
    assert head.split() == [
        "GPU", "inst", "GPUs", "ITL", "mean", "servers", "$/h", "$/1M", "tok", "max", "power", "tok/J", "from", "limit",
    ]  # fmt: skip
    assert h100.split()[3:] == ["16", "32", "70ms", "4", "79.68", "2.72", "20kW", "0.36", "measured", "-2..+6%", "KV"]
    assert h200.split()[3:] == [
        "9",
        "18",
        "70ms",
        "3",
        "68.40*",
        "2.34*",
        "12kW",
        "0.64",
        "re-scaled",
        "-12..+15%",
        "KV",
    ]
    assert l40s.split(maxsplit=1) == ["L40S", REASON]
    assert b200.split()[3:] == ["5", "5*", "70ms", "1", "–", "–", "5000W*", "1.46*", "roofline", "-15..+38%", "KV"]
    assert foot == "* fewest GPUs, cheapest, cheapest token, least power, most tokens/J"


def test_a_narrow_place_drops_columns_in_order_and_names_them() -> None:
    said = text(lines(46, 7, COLUMNS))
    assert said.splitlines()[0] == "GPU             inst    GPUs      $/h"
    assert said.splitlines()[-1] == "wider window: ITL mean, $/1M tok, from +4"
    seen = [len(text(lines(width, 7, COLUMNS)).splitlines()[0].split()) for width in range(30, 120)]
    assert seen == sorted(seen)


def test_a_reason_takes_the_lines_that_are_free() -> None:
    assert "goal 40.0 ms; more TP would help" in " ".join(text(lines(46, 12, COLUMNS)).split())
    assert "…" in text(lines(46, 7, COLUMNS))


NUMBERS = st.one_of(st.floats(0.0, 1e12), st.sampled_from([0.0, 1e300, math.inf, math.nan, -1.0]), st.just(NOT_KNOWN))
TOTALS = st.fixed_dictionaries({field.name: NUMBERS for field in fields(Totals)})
COLUMN = st.builds(
    lambda gpu, known, problem: column(gpu, problem=problem, **known),
    st.one_of(st.text(), st.sampled_from(["模型一二三四五六七八九十", "H100 SXM5 80GB"])),
    TOTALS,
    st.one_of(st.just(""), st.text()),
)


@settings(max_examples=120, deadline=None)
@given(st.lists(COLUMN, max_size=8), st.integers(0, 120), st.integers(0, 14), st.integers(-1, 3))
def test_every_row_is_exact(columns: list[Column], width: int, height: int, chosen: int) -> None:
    rows = lines(width, height, columns, chosen)
    assert len(rows) == (height if width else 0)
    assert {sum(cells(piece) for piece, _ in row) for row in rows} <= {width}
    assert {tone for row in rows for _, tone in row} <= set(TONES)
    assert not any(ord(character) < 32 for row in rows for piece, _ in row for character in piece)

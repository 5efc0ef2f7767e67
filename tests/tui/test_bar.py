"""The bar of a GPU: eighths of cells, stages nested in one line, and what is not measured is hatched."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from gpumon.config.schema import Screen
from gpumon.config.themes import load_theme
from gpumon.readings.frame import GpuState
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.readings.snapshot import Gpu
from gpumon.tui import gpu_table
from gpumon.tui.bar import bar
from gpumon.tui.line import Line, LineSlot, Row
from gpumon.tui.palette import BARS, HATCH, RAIL, STAGES, TIPS, Palette, bar_tone, levelled
from gpumon.tui.table import Table
from gpumon.tui.terminal import Depth
from tests.each_row import each_row
from tests.tui import scenes
from tests.tui.painted import PLAIN, gpu_row, seen, text

NONE = Missing(Reason.NOT_SUPPORTED)
SHARES = st.one_of(st.just(NONE), st.floats(min_value=0.0, max_value=1.2))
WIDE = 160
FUNNEL = slice(4, 24)
"""Cells of the bar in a wide row."""


def drawn(*shares: Reading, size: int = 8) -> str:
    return text(bar(tuple(zip(STAGES, shares, strict=False)), size))


def owners(row: Row) -> str:
    """The stage in front in each cell: its place among the stages, `.` on the rail."""
    stages = [levelled(stage, "ok") for stage in STAGES]
    return "".join(str([*stages, "track"].index(tone.partition("|")[0])) * len(piece) for piece, tone in row).replace(
        "4", "."
    )


def gpu(busy: Reading, sm: Reading, tensor: Reading, mfu: Reading, **others: object) -> Gpu:
    return scenes.gpu(0, busy_ratio=busy, sm_active_ratio=sm, tensor_active_ratio=tensor, mfu_ratio=mfu, **others)


@each_row(
    ("busy", "sm", "shown"),
    [
        (0.91, 0.64, "▇▇▇▇▇▏▇▎"),
        (1.0, 1.0, "▇▇▇▇▇▇▇▇"),
        (0.99, 0.02, "▏▇▇▇▇▇▇▉"),
        (0.03, 0.03, "▎▁▁▁▁▁▁▁"),
        (0.22, 0.22, "▇▊▁▁▁▁▁▁"),
        (0.0, 0.0, "▁▁▁▁▁▁▁▁"),
        (0.001, 0.0, "▏▁▁▁▁▁▁▁"),
        (0.5, NONE, "╱╱╱╱▁▁▁▁"),
        (0.22, NONE, "╱▊▁▁▁▁▁▁"),
        (NONE, 0.5, "▇▇▇▇╱╱╱╱"),
        (NONE, NONE, "╱╱╱╱╱╱╱╱"),
    ],
)
def test_the_bar_shows_sm_activity_within_busy(busy: Reading, sm: Reading, shown: str) -> None:
    assert drawn(busy, sm) == shown
    assert text(gpu_row(scenes.gpu(0, busy_ratio=busy, sm_active_ratio=sm), 91))[4:14] == drawn(busy, sm, size=10)


def test_each_eighth_of_a_cell_looks_different() -> None:
    bars = [drawn(eighths / 64, eighths / 64) for eighths in range(65)]
    assert len(set(bars)) == 65


def test_the_stages_of_a_funnel_are_nested_with_the_largest_at_the_back() -> None:
    row = bar((("busy", 1.0), ("sm", 0.75), ("tensor", 0.5), ("mfu", 0.25)), 24)
    assert owners(row) == "333333222222111111000000"
    assert owners(bar((("busy", 0.25), ("sm", 0.75)), 8)) == "001111..", "whatever their order"


@each_row(
    ("shares", "hatched"),
    [
        ((1.0, 0.75, NONE, 0.25), range(6, 18)),
        ((1.0, 0.75, 0.5, NONE), range(12)),
        ((1.0, NONE, NONE, 0.25), range(6, 24)),
        ((NONE, 0.75, 0.5, 0.25), range(18, 24)),
        ((0.5, NONE, NONE, NONE), range(12)),
        ((0.0, 0.0, 0.0, NONE), range(0)),
        ((1.0, 0.75, 0.5, 0.25), range(0)),
    ],
)
def test_a_stage_that_is_not_measured_is_hatched_where_it_may_end(shares: tuple[Reading, ...], hatched: range) -> None:
    shown = drawn(*shares, size=24)
    assert [cell for cell, character in enumerate(shown) if character == HATCH] == list(hatched)


@given(st.lists(SHARES, min_size=1, max_size=4), st.integers(5, 24))
def test_every_bar_has_its_cells(shares: list[Reading], size: int) -> None:
    row = bar(tuple(zip(STAGES, shares, strict=False)), size)
    assert len(text(row)) == size
    known = [share for share in shares if not isinstance(share, Missing)]
    if known and max(known) > 0.0:
        assert text(row)[0] not in (RAIL, " "), "what is above 0 is seen"


@each_row(("width", "cells"), [(80, 6), (90, 6), (91, 10), (120, 10), (130, 16), (159, 16), (160, 20), (300, 26)])
def test_the_bar_grows_with_the_screen_and_takes_no_column_s_place(width: int, cells: int) -> None:
    columns = gpu_table.TABLE.columns(width, frozenset())
    busy = next(column for column in columns if column.name == "busy")
    assert busy.width == cells + 5
    assert gpu_table.TABLE.cells_used(width, PLAIN) <= width


@each_row("table", [gpu_table.TABLE])
def test_no_column_goes_as_the_screen_gets_wider(table: Table[Gpu]) -> None:
    shown = [{column.name for column in table.columns(width, frozenset())} for width in range(60, 301)]
    for narrow, wide in itertools.pairwise(shown):
        assert narrow <= wide


def test_a_wide_screen_shows_busy_that_is_not_used() -> None:
    row = gpu_row(gpu(1.0, 0.5, 0.1, 0.04), WIDE)
    cells = [(piece, tone) for piece, tone in row if tone in BARS and not tone.startswith("vram")]
    assert owners(cells).count("0") == 10, "half of busy is no SM activity"
    head = text(gpu_table.TABLE.head(WIDE, PLAIN))
    assert "▇busy ▇sm ▇tensor ▇mfu" in head


def test_mfu_above_the_activity_of_the_tensor_cores_is_no_fault() -> None:
    shown = text(gpu_row(gpu(1.0, 0.8, 0.05, 0.3), WIDE))[FUNNEL]
    assert "!" not in shown


def test_a_hidden_column_is_no_stage() -> None:
    view = seen(screen=Screen(hidden_columns=("gpus.sm", "gpus.tensor", "gpus.mfu")))
    for width, cells in ((80, 6), (WIDE, 20)):
        assert text(gpu_row(gpu(1.0, NONE, NONE, NONE), width, view))[4 : 4 + cells] == "▇" * cells


def test_a_lost_gpu_is_hatched_and_not_idle() -> None:
    lost = scenes.dead_gpu(0, GpuState.LOST, 14.0, Missing(Reason.LOST))
    assert text(gpu_row(lost, WIDE))[FUNNEL] == HATCH * 20


@each_row(
    ("theme", "depth", "plain", "shown"),
    [
        ("default", Depth.TRUE, False, "▇▇▇▇▍▇▇▇▇▎▇▇▇▇▎▁▁"),
        ("mono", Depth.TRUE, False, "████▓▓▓▓▓▒▒▒▒▒▎▁▁"),
        ("ansi", Depth.ANSI, False, "████▓▓▓▓▓▒▒▒▒▒▎▁▁"),
        ("default", Depth.NONE, False, "████▓▓▓▓▓▒▒▒▒▒▎▁▁"),
        ("default", Depth.TRUE, True, "####%%%%%=====:__"),
    ],
)
def test_stages_have_characters_of_their_own_where_colours_do_not_tell_them_apart(
    theme: str, depth: Depth, plain: bool, shown: str
) -> None:
    row = bar((("sm", 0.84), ("tensor", 0.544), ("mfu", 0.2575)), 17)
    palette = Palette(load_theme(theme), depth, ascii=plain)
    assert Line(row, 17, palette, LineSlot()).characters == shown
    cursor = [(piece, f"{tone}@") for piece, tone in row]
    assert Line(cursor, 17, palette, LineSlot()).characters == shown, "under the cursor, too"


def test_two_stages_that_end_in_one_cell_have_its_two_colours() -> None:
    ((glyph, tone), *_) = bar((("busy", 0.11), ("sm", 0.04)), 8)
    assert glyph in TIPS
    assert tone == bar_tone("sm.ok", "busy.ok")

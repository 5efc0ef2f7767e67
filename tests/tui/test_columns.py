"""Columns keep their places and their widths at every width, whichever are hidden."""

from __future__ import annotations

import re
from collections.abc import Mapping
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.config.columns import HIDEABLE_COLUMNS, HIDEABLE_NAMES
from gpumon.config.schema import Goals, Screen
from gpumon.config.themes import load_theme
from gpumon.figures.figure import Column as FigureColumn
from gpumon.figures.figure import Figures
from gpumon.figures.gpu import GPU
from gpumon.readings.columns import TextColumn, pane_columns
from gpumon.readings.flat import flat_fields
from gpumon.readings.format import cells
from gpumon.readings.frame import EndpointState, GpuState
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.readings.snapshot import BandwidthSource, Engine, Gpu, Quantiles
from gpumon.tui import engine_table, gpu_table, process_table
from gpumon.tui.line import Line, LineSlot, Row
from gpumon.tui.palette import Palette
from gpumon.tui.table import Table, drawn_columns
from gpumon.tui.terminal import Depth
from gpumon.tui.view import View
from tests.each_row import each_row
from tests.records import replace
from tests.tui import scenes
from tests.tui.detail_scenes import flat, page_of
from tests.tui.painted import PLAIN, TABLES, engine_row, gpu_row, process, seen, text
from tests.tui.running import running, text_of

GPUS = [gpu for scene in scenes.SCENES.values() for gpu in scene().gpus]
ENGINES = [engine for scene in scenes.SCENES.values() for engine in scene().engines]
UP = [engine for engine in ENGINES if engine.state is EndpointState.OK]
BEHIND = {"gpus": {"history"}, "processes": {"command"}}
"""What a pane adds behind the columns of its table."""
PALETTES = {plain: Palette(load_theme("default"), Depth.TRUE, ascii=plain) for plain in (False, True)}


@each_row(
    "others",
    [
        {},
        {220: TextColumn[Gpu]("link", "link", 5, lambda gpu: gpu.reading.name)},
    ],
)
def test_two_columns_of_one_place_are_refused(others: Mapping[int, TextColumn[Gpu]]) -> None:
    limit = replace(GPU["power_limit_w"], column=FigureColumn("limit", 220, width=5))
    energy = replace(GPU["energy_j"], column=FigureColumn("energy", 220, width=6))
    rows = Figures(energy) if others else Figures(limit, energy)
    first = "link" if others else "limit"
    with pytest.raises(ValueError, match=rf"^gpus: columns {first} and energy have one place, 220; taken are \[220\]$"):
        pane_columns("gpus", Gpu, rows, others)


def test_a_column_that_nothing_draws_is_named() -> None:
    fan = replace(GPU["fan_ratio"], column=FigureColumn("fan", 210))
    columns = pane_columns("gpus", Gpu, Figures(fan), {})
    with pytest.raises(ValueError, match=r"^column fan has no width, and no row of _DRAWN draws it$"):
        drawn_columns(columns.extra, ())


@each_row("width", [80, 86, 100, 120, 160, 200, 300])
def test_a_wider_screen_adds_columns_and_moves_none(width: int) -> None:
    for gpu in GPUS:
        narrow, wide = text(gpu_row(gpu, 80)), text(gpu_row(gpu, width))
        assert cells(narrow) == 80
        assert wide.startswith(narrow[:4])
        assert narrow[10:20] in wide, "but for the bar, which is longer"
        assert narrow[33:] in wide, "and for that of VRAM, which has the total beside it"
        assert cells(wide) <= width
    for engine in UP:
        narrow, wide = text(engine_row(engine, 80)), text(engine_row(engine, width))
        assert cells(narrow) == 80
        assert wide.startswith(narrow[:7])
        assert narrow[-53:] in wide, "but for the model, whose name is longer"
        assert cells(wide) <= width
    assert text(gpu_table.TABLE.head(80, PLAIN))[25:] in text(gpu_table.TABLE.head(width, PLAIN))
    assert text(engine_table.TABLE.head(80, PLAIN))[27:] in text(engine_table.TABLE.head(width, PLAIN))


@each_row("width", [80, 120, 162, 170, 199, 200, 300])
def test_the_gpus_and_the_model_of_an_engine_stand_once_in_its_row(width: int) -> None:
    engine = scenes.engine(0, model="meta-llama/Llama-3.3-70B-Instruct", gpus=(3, 4, 5, 6))
    row = text(engine_row(engine, width))
    assert row.count("3-6") == 1
    assert row.count("Llama") == 1
    assert ("meta-llama/Llama-3.3-70B-Instruct" in row) is (width >= 199)


@each_row("width", [60, 66, 70, 76, 79])
def test_a_narrow_screen_leaves_out_whole_columns(width: int) -> None:
    for gpu in GPUS:
        assert cells(text(gpu_row(gpu, width))) <= width
    for engine in UP:
        assert cells(text(engine_row(engine, width))) <= width
    assert cells(text(gpu_table.TABLE.head(width, PLAIN))) == cells(text(gpu_row(GPUS[0], width)))
    assert "°C" not in text(gpu_table.TABLE.head(width, PLAIN))
    assert "model" not in text(engine_table.TABLE.head(width, PLAIN))


@each_row(
    ("ttft_range_s", "e2e_range_s", "shown"),
    [
        ((20.0, 40.0), (10.0, 15.0), ">20s"),
        ((10.0, 20.0), (10.0, 15.0), "12s"),
        ((1.0, 2.5), (1.0, 1.5), "1.2s"),
        ((1.5, 2.5), (1.0, 1.5), ">1.5s"),
        ((0.1, 0.25), (0.0, 0.3), "<300ms"),
    ],
)
def test_no_row_has_a_first_token_that_is_surely_after_the_end_of_its_request(
    ttft_range_s: tuple[float, float], e2e_range_s: tuple[float, float], shown: str
) -> None:
    """In an overload E2E is of requests that ended, and TTFT of later ones; buckets of vLLM. Quantiles in buckets that
    overlap may be those of the same requests."""
    ttft = Quantiles(p95=fmean(ttft_range_s), p95_low=ttft_range_s[0], p95_high=ttft_range_s[1], first_bound_s=0.001)
    e2e = Quantiles(p95=fmean(e2e_range_s), p95_low=e2e_range_s[0], p95_high=e2e_range_s[1], first_bound_s=0.3)
    engine = scenes.engine(0, ttft_s=ttft, e2e_s=e2e)
    head = text(engine_table.TABLE.head(160, PLAIN))
    end = head.index("e2e p95") + len("e2e p95")
    assert text(engine_row(engine, 160))[: end + 1].split()[-1].rstrip("!") == shown
    note = "E2E is of requests that ended, TTFT of later ones"
    assert (note in flat(page_of(replace(scenes.snapshot(), engines=(engine,)), "engine", engine.key))) == (
        shown.startswith(">")
    )


def test_the_fixed_order_of_what_a_wider_screen_adds() -> None:
    assert [column.title for column in gpu_table.EXTRA][:5] == ["tensor", "nvlink", "pcie", "tok/J", "clock"]
    assert [column.title for column in engine_table.EXTRA][:6] == [
        "e2e p95",
        "queue p95",
        "req/s",
        "ttft ok",
        "itl ok",
        "cached",
    ]


@each_row("table", TABLES)
@each_row("width", [60, 80, 120, 200, 300])
def test_columns_scroll_sideways_until_the_last_one_is_in_view(table: Table[Any], width: int) -> None:
    hidden: frozenset[str] = frozenset()
    most = table.most_shift(width, hidden)
    assert (most == 0) == (table.columns(width, hidden) == table.forms_on(width, hidden))
    fixed = {column for column in table.all if column.fixed}
    seen_: set[object] = set()
    for shift in range(most + 1):
        shown = table.columns(width, hidden, shift)
        assert fixed <= set(shown)
        assert table.cells_used(width, PLAIN, shift) <= width
        assert cells(text(table.head(width, PLAIN, shift))) == table.cells_used(width, PLAIN, shift)
        seen_ |= set(shown)
    assert seen_ == set(table.forms_on(width, hidden)), "each can be seen"


@each_row("table", TABLES)
@each_row("width", [60, 80, 120, 200, 300, 500])
def test_columns_beyond_the_edge_are_counted(table: Table[Any], width: int) -> None:
    hidden: frozenset[str] = frozenset()
    shown = table.columns(width, hidden)
    assert table.number_beyond(width, hidden) == len(table.forms_on(width, hidden)) - len(shown)
    most = table.most_shift(width, hidden)
    assert table.number_beyond(width, hidden, most) == 0
    left = [table.number_beyond(width, hidden, shift) for shift in range(most + 1)]
    assert left == sorted(left, reverse=True)


async def test_the_rule_says_how_many_columns_have_no_room_and_which_keys_show_them() -> None:
    async with running("live", 120, 40) as (app, pilot):
        gpus, engines = (next(line for line in text_of(app) if line.startswith(f"─{key}─")) for key in "12")
        hidden = app.monitor.body.panes["gpus"].columns_hidden
        number = gpu_table.TABLE.number_beyond(120, hidden)
        assert f"+{number} columns: Right" in gpus
        assert re.search(r"\+\d+ columns: keys 2 Right", engines)
        await pilot.press("right")
        gpus = next(line for line in text_of(app) if line.startswith("─1─"))
        assert f"+{gpu_table.TABLE.number_beyond(120, hidden, 1)} column" in gpus
        await pilot.press(*["right"] * 40)
        gpus = next(line for line in text_of(app) if line.startswith("─1─"))
        assert not re.search(r"\+\d+ column", gpus)
    async with running("live", 120, 40) as (app, pilot):
        await pilot.press("space")
        gpus = next(line for line in text_of(app) if line.startswith("─1─"))
        assert re.search(r"\+\d+ columns ", gpus)
        assert "Right" not in gpus, "it moves in time"


async def test_the_number_of_columns_stands_whole_where_its_key_has_no_room() -> None:
    async with running("live", 80, 24) as (app, pilot):
        await pilot.press("slash", *"vllm:8000", "enter", "o", "down", "down", "enter")
        gpus = next(line for line in text_of(app) if line.startswith("─1─"))
        assert re.search(r'filter "vllm:8000": \d of 8 \(Esc: all\) · by busy ↓ · \+\d+ columns ─$', gpus)


async def test_keys_scroll_the_columns_of_the_pane_that_has_them() -> None:
    async with running("live", 80, 24) as (app, pilot):
        before = text_of(app)
        await pilot.press("2", "right", "right")
        head = next(line for line in text_of(app) if line.startswith(" engine"))
        assert "wait" in head
        assert "model" not in head
        assert "Left 2 columns" in next(line for line in text_of(app) if line.startswith("─2─"))
        await pilot.press(*["right"] * 50)
        assert next(line for line in text_of(app) if line.startswith(" engine")).rstrip().endswith("url")
        assert text_of(app)[3] == before[3], "the others stay"
        await pilot.press(*["left"] * 60, "1")
        assert text_of(app)[2:13] == before[2:13]


def test_the_columns_that_can_be_hidden_are_those_of_the_tables() -> None:
    for table in TABLES:
        names = [column.name for column in table.all if not column.fixed]
        assert [name for name in HIDEABLE_COLUMNS[table.pane] if name not in BEHIND.get(table.pane, ())] == names
        assert BEHIND.get(table.pane, set()) <= set(HIDEABLE_COLUMNS[table.pane])
        assert len(set(names)) == len(names)
    assert {"gpus.power", "engines.version", "processes.pod"} <= HIDEABLE_NAMES
    assert not HIDEABLE_NAMES & {"gpus.index", "gpus.state", "engines.engine", "processes.pid"}


HOSTILE = st.sampled_from(["", "[bold red]x[/]", "日本語のとても長い名前", "e\u0301" * 9, "x" * 300, "\\x1b[31m", "‼️⚠️"])
READINGS = st.one_of(
    st.sampled_from(Reason).map(Missing),
    st.floats(min_value=0.0, max_value=1.2),
    st.floats(min_value=0.0, allow_nan=False),
    st.sampled_from([0.0, 0.95, 0.99, 1.0, 91.0, 105.0, 999.4, 999.6, 9.95, 1e308, float("inf")]),
)
HIDDEN = st.frozensets(st.sampled_from(sorted(HIDEABLE_NAMES)), max_size=12)
UNITS = st.tuples(st.sampled_from(["GiB", "GB"]), st.sampled_from(["C", "F"]))
VIEWS = st.builds(
    lambda hidden, units, goal: seen(
        screen=Screen(memory_unit=units[0], temperature_unit=units[1], hidden_columns=tuple(hidden)),
        goals=Goals(goal, goal, goal),
    ),
    HIDDEN,
    UNITS,
    st.sampled_from([None, 0.001, 100.0]),
)
QUANTILES = st.builds(Quantiles, p50=READINGS, p95=READINGS, p99=READINGS, mean=READINGS, first_bound_s=READINGS)


def number_fields(kind: type[Any]) -> list[str]:
    return [name for name, (_, field) in flat_fields(kind).items() if field.type == Reading]


@st.composite
def gpus(draw: st.DrawFn) -> Gpu:
    given_ = {name: draw(READINGS) for name in number_fields(Gpu)}
    names = {"index": draw(st.integers(0, 99)), "name": draw(HOSTILE), "engines": (draw(HOSTILE), draw(HOSTILE))}
    doubts = {"peak_unverified": draw(st.booleans()), "bandwidth_peak_unverified": draw(st.booleans())}
    state = {"state": draw(st.sampled_from(GpuState)), "bandwidth_source": draw(st.sampled_from(BandwidthSource))}
    return replace(scenes.gpu(0), **given_, **names, **doubts, **state)


@st.composite
def engines(draw: st.DrawFn) -> Engine:
    given_ = {name: draw(READINGS) for name in number_fields(Engine)}
    latencies = {name: draw(QUANTILES) for name in ("ttft_s", "itl_s", "e2e_s", "queue_s")}
    names = {name: draw(HOSTILE) for name in ("name", "model", "version", "gpu_type", "url", "precision")}
    doubts = {"peak_unverified": draw(st.booleans()), "bandwidth_peak_unverified": draw(st.booleans())}
    return replace(scenes.engine(0), **given_, **latencies, **names, **doubts, gpus=draw(st.sampled_from([(), (0, 2)])))


@st.composite
def runnings(draw: st.DrawFn) -> process_table.RunningProcess:
    names = {name: draw(HOSTILE) for name in ("user", "engine", "command", "pod", "type")}
    places = [process(draw(st.integers(1, 9_999_999)), vram_bytes=draw(READINGS), sm_ratio=draw(READINGS), **names)] * 2
    (running,) = process_table.running_processes(
        scenes.gpu(at, processes=(replace(each, vram_bytes=draw(READINGS)),)) for at, each in enumerate(places)
    )
    return running


def check(table: Table[Any], row: Row, head: Row, width: int, view: View, plain: bool) -> None:
    """Every column has its cells, and the line on the screen its width."""
    used = table.cells_used(width, view)
    assert used <= width
    assert cells(text(row)) >= used
    assert cells(text(head)) >= used
    line = Line(row, width, PALETTES[plain], LineSlot())
    assert cells(line.characters) == width
    assert not plain or line.characters.isascii()
    assert text(row)[0] == " "


WIDTHS = st.integers(60, 300)


@given(gpus(), WIDTHS, VIEWS, st.booleans())
def test_every_row_of_a_gpu_has_its_width(gpu: Gpu, width: int, view: View, plain: bool) -> None:
    row = gpu_row(gpu, width, view)
    check(gpu_table.TABLE, row, gpu_table.TABLE.head(width, view), width, view, plain)
    assert cells(text(row)) == cells(text(gpu_table.TABLE.head(width, view))) == gpu_table.TABLE.cells_used(width, view)


@given(engines(), WIDTHS, VIEWS, st.booleans())
def test_every_row_of_an_engine_has_its_width(engine: Engine, width: int, view: View, plain: bool) -> None:
    row = engine_row(engine, width, view)
    if "STALE" in text(row):
        assert isinstance(engine.load.running, Missing)
        return
    check(engine_table.TABLE, row, engine_table.TABLE.head(width, view), width, view, plain)
    assert (
        cells(text(row))
        == cells(text(engine_table.TABLE.head(width, view)))
        == engine_table.TABLE.cells_used(width, view)
    )


@given(runnings(), WIDTHS, VIEWS, st.booleans())
def test_every_row_of_a_process_has_its_width(
    running: process_table.RunningProcess, width: int, view: View, plain: bool
) -> None:
    row = process_table.process_row(running, width, view)
    check(process_table.TABLE, row, process_table.process_head(width, view), width, view, plain)
    assert cells(text(row)) == process_table.TABLE.cells_used(width, view) + cells(row[-1][0])


@given(st.sampled_from(TABLES), WIDTHS, HIDDEN)
def test_a_hidden_column_makes_room_and_moves_none_out_of_order(
    table: Table[Any], width: int, hidden: frozenset[str]
) -> None:
    every = [column.name for column in table.all]
    shown = [column.name for column in table.columns(width, hidden)]
    assert shown == sorted(shown, key=every.index)
    assert not hidden & {f"{table.pane}.{name}" for name in shown}
    before = [column.name for column in table.columns(width, frozenset()) if not table.hides(column, hidden)]
    assert set(before) <= set(shown)


def test_hiding_a_column_shows_the_next_one() -> None:
    view = seen(screen=Screen(hidden_columns=("gpus.power", "gpus.sm")))
    head = text(gpu_table.TABLE.head(80, view))
    assert "power" not in head
    assert "█sm" not in head
    assert head.rstrip().endswith("tensor")
    assert "62%" not in text(gpu_row(scenes.gpu(0, sm_active_ratio=0.62, mbu_ratio=0.5), 80, view))


def test_mfu_and_mbu_alone_say_in_short_why_they_are_missing() -> None:
    missing = Missing(Reason.UNKNOWN_MODEL)
    gpu = scenes.gpu(0, mfu_ratio=missing, mbu_ratio=missing)
    assert "unknown LLM" in text(gpu_row(gpu))
    for hidden in ("gpus.mfu", "gpus.mbu"):
        row = text(gpu_row(gpu, 80, seen(screen=Screen(hidden_columns=(hidden,)))))
        assert "unknown LLM" not in row
        assert " LLM? " in row


def test_units_are_those_of_the_settings_and_the_header_says_which() -> None:
    gpu = scenes.gpu(0, vram_used_bytes=64e9, vram_total_bytes=80e9, temperature_c=60.0, memory_temperature_c=70.0)
    assert " 59.6 " in text(gpu_row(gpu))
    assert "59.6/74.5" in text(gpu_row(gpu, 120))
    assert "vram GiB" in text(gpu_table.TABLE.head(80, PLAIN))
    view = seen(screen=Screen(memory_unit="GB", temperature_unit="F"))
    assert " 64.0 " in text(gpu_row(gpu, 80, view))
    assert " 140  " in text(gpu_row(gpu, 80, view))
    assert " 158 " in text(gpu_row(gpu, 300, view))
    for word in ("vram GB", "°F"):
        assert word in text(gpu_table.TABLE.head(80, view))
    (running,) = process_table.running_processes([scenes.gpu(0, processes=(process(vram_bytes=64e9),))])
    assert " 64.0 " in text(process_table.process_row(running, 80, view))
    assert "   GB " in text(process_table.process_head(80, view))


def test_what_a_row_is_known_by_can_not_be_hidden() -> None:
    everything = frozenset(f"{table.pane}.{column.name}" for table in TABLES for column in table.all)
    for table in TABLES:
        shown = [column.name for column in table.columns(300, everything)]
        assert shown == [column.name for column in table.all if column.fixed]
        assert shown, table.pane

"""The cell cursor: the last line has the formula of a cell, Enter opens the page at it; Tab jumps over sections."""

from __future__ import annotations

import msgspec

from gpumon.config.schema import Config
from gpumon.figures.gpu import IN_ROWS
from gpumon.readings.dcgm import NOT_ON_PAGE
from gpumon.readings.format import cells
from gpumon.readings.missing import NOT_EXPOSED
from gpumon.readings.snapshot import Goodput, Snapshot, WithinGoal
from gpumon.tui.app import MonitorApp
from gpumon.tui.detail.cell import Explained, explain_cell
from gpumon.tui.detail.things import things_of_kind
from gpumon.tui.engine_table import TABLE as ENGINES
from gpumon.tui.explained_columns import FACTS_BY_THING, FIELDS_BY_THING, explained_columns
from gpumon.tui.gpu_table import TABLE as GPUS
from gpumon.tui.pages.detail import DetailPage
from gpumon.tui.process_table import TABLE as PROCESSES
from gpumon.tui.search import CURRENT, marked_cell
from gpumon.tui.view import View
from gpumon.tui.widgets.list_pane import ListPane
from tests.each_row import each_row
from tests.tui import scenes
from tests.tui.detail_scenes import full_engine, full_gpu, full_snapshot
from tests.tui.running import foot, running, text_of, until
from tests.tui.test_keys import type_keys

COLUMNS = {
    "gpu": {column.name for column in GPUS.all},
    "engine": {column.name for column in ENGINES.all},
    "process": {column.name for column in PROCESSES.all},
}


def pane_of(app: MonitorApp, name: str) -> ListPane[object]:
    pane = app.monitor.panes[name]
    assert isinstance(pane, ListPane)
    return pane


@each_row("kind", COLUMNS)
def test_each_column_of_figures_is_explained_by_its_page(kind: str) -> None:
    snapshot = scenes.SCENES["live"]()
    assert FIELDS_BY_THING[kind].keys() <= COLUMNS[kind]
    first = next(iter(things_of_kind(snapshot, kind)))
    for column in FIELDS_BY_THING[kind]:
        cell = explain_cell((kind, first), column, snapshot, View(Config()))
        assert cell.text, column
        assert cell.place, f"{column}: no section of its page (gpumon/tui/detail) has a line of its figure"


@each_row(
    ("kind", "rest"), [("gpu", {"index", "state", "engines"}), ("engine", {"engine"}), ("process", {"pid", "gpus"})]
)
def test_the_cursor_stands_on_every_column_but_names(kind: str, rest: set[str]) -> None:
    assert COLUMNS[kind] - explained_columns(kind) == rest


@each_row("kind", COLUMNS)
def test_columns_of_words_are_explained_by_their_facts(kind: str) -> None:
    snapshot = scenes.SCENES["live"]()
    first = next(iter(things_of_kind(snapshot, kind)))
    for column, name in FACTS_BY_THING[kind].items():
        cell = explain_cell((kind, first), column, snapshot, View(Config()))
        assert cell.text.startswith(f"{name}: "), column
        assert cell.place == name


def test_a_share_within_a_goal_has_operands_window_goal_and_setting() -> None:
    snapshot = scenes.SCENES["live"]()
    by_request = WithinGoal(0.25, 0.25, 0.05, 200.0)
    by_token = WithinGoal(0.9, 0.9, 0.05, 5000.0)
    goodput = Goodput(WithinGoal(0.5, 0.5, 1.0, 200.0), by_token, by_request, True, True)
    ttft, itl = goal_cells(snapshot, goodput)
    assert ttft.text == (
        "TTFT in goal 50.00% = 100 of 200 requests within 1.000 s (assumed), last 2 min; config: [goals] ttft_p95_ms"
    )
    assert itl.text.startswith("TPOT in goal 25.00% = 50 of 200 requests within 50.00 ms (assumed), last 2 min")
    assert itl.place == "TPOT in goal"
    _, itl = goal_cells(snapshot, msgspec.structs.replace(goodput, tpot_goal=WithinGoal()))
    assert itl.text.startswith("ITL in goal 90.00% = 4,500 of 5,000 tokens within 50.00 ms (assumed)")


def goal_cells(snapshot: Snapshot, goodput: Goodput) -> list[Explained]:
    """The cells `ttft ok` and `itl ok` of an engine with these shares."""
    engine = msgspec.structs.replace(snapshot.engines[0], goodput=goodput)
    with_engine = msgspec.structs.replace(snapshot, engines=(engine,))
    key = ("engine", engine.key)
    return [explain_cell(key, column, with_engine, View(Config())) for column in ("ttft_ok", "itl_ok")]


def test_other_quantiles_are_explained_as_what_they_are() -> None:
    snapshot = scenes.SCENES["live"]()
    key = ("engine", snapshot.engines[0].key)
    text = explain_cell(key, "ttft_p50", snapshot, View(Config())).text
    assert text.startswith("TTFT p50 ")
    assert "of 50% of the requests" in text


def test_mfu_and_mbu_of_a_gpu_have_the_formula_of_its_engine() -> None:
    snapshot = full_snapshot()
    key = ("gpu", snapshot.gpus[0].reading.uuid)
    mfu, mbu = (explain_cell(key, column, snapshot, View(Config())).text for column in ("mfu", "mbu"))
    assert mfu == (
        "MFU 17.32% = vllm:8000: (prefill 1.136 PFLOP/s + decode 235.0 TFLOP/s) / (4 x 1.979 PFLOP/s fp8 dense)"
    )
    assert mbu == "MBU 38.04% = vllm:8000: (weights 3.527 TB/s + KV 1.573 TB/s) / (4 x 3.352 TB/s)"


def test_mfu_of_a_gpu_with_two_engines_says_where_their_formulas_are() -> None:
    names = ("vllm:8000", "vllm:8001")
    engines = tuple(full_engine(name=name, url=f"http://{name}") for name in names)
    snapshot = full_snapshot(gpus=(full_gpu(engines=names, mfu_ratio=0.3464),), engines=engines)
    text = explain_cell(("gpu", snapshot.gpus[0].reading.uuid), "mfu", snapshot, View(Config())).text
    assert text == "MFU 34.64% = vllm:8000 17.32% + vllm:8001 17.32%; their rows have the formulas"


def test_mfu_of_a_gpu_has_no_formula_while_the_share_of_its_engine_is_not_known() -> None:
    snapshot = full_snapshot(engines=(full_engine(mfu_ratio=NOT_EXPOSED),))
    text = explain_cell(("gpu", snapshot.gpus[0].reading.uuid), "mfu", snapshot, View(Config())).text
    assert "vllm:8000:" not in text
    assert "PFLOP/s" not in text


def test_a_figure_that_is_missing_says_why() -> None:
    snapshot = scenes.SCENES["live"]()
    gpu = snapshot.gpus[0].reading.uuid
    assert explain_cell(("gpu", "no such GPU"), "mfu", snapshot, View(Config())).text == ""
    assert "=" in explain_cell(("gpu", gpu), "vram", snapshot, View(Config())).text


def test_a_figure_that_an_exporter_does_not_tell_has_its_counter() -> None:
    snapshot = full_snapshot(gpus=(full_gpu(power_limit_w=NOT_ON_PAGE),))
    text = explain_cell(("gpu", snapshot.gpus[0].reading.uuid), "limit", snapshot, View(Config())).text
    missing = "power limit: not on the page of the dcgm-exporter"
    assert text == f"{missing} → its counters file (option -f) needs DCGM_FI_DEV_ENFORCED_POWER_LIMIT"


async def test_the_formula_of_the_cell_stands_on_the_last_line() -> None:
    async with running("live", 120, 40) as (app, pilot):
        await type_keys(app, pilot, "2", "i")
        await until(lambda: foot(app).startswith(" MFU 31.00% = (prefill"), pilot)
        await type_keys(app, pilot, "right")
        await until(lambda: foot(app).startswith(" MBU 62.00% = (weights"), pilot)
        await type_keys(app, pilot, "left", "left")
        await until(lambda: foot(app).startswith(" ITL p95 "), pilot)
        await type_keys(app, pilot, "j", "right")
        await until(lambda: foot(app).startswith(" MFU ") and "31.00%" not in foot(app), pilot)
        await type_keys(app, pilot, "escape")
        await until(lambda: "? help" in foot(app), pilot)
        assert pane_of(app, "engines").cell == ""


async def test_paused_the_arrows_stay_frames_and_the_key_goes_on() -> None:
    async with running("live", 120, 40) as (app, pilot):
        await type_keys(app, pilot, "2", "space", "i")
        pane = pane_of(app, "engines")
        assert pane.cell == "mfu"
        await type_keys(app, pilot, "right")
        assert pane.cell == "mfu"
        await type_keys(app, pilot, "i")
        assert pane.cell == "mbu"


async def test_the_cursor_scrolls_columns_that_do_not_fit() -> None:
    async with running("live", 80, 24) as (app, pilot):
        await type_keys(app, pilot, "2", "i", *["right"] * 3)
        pane = pane_of(app, "engines")
        assert pane.shift > 0
        assert pane.cell not in ("mfu", "mbu")
        assert foot(app).strip()


async def test_enter_opens_the_page_at_the_figure() -> None:
    async with running("live", 80, 24) as (app, pilot):
        await type_keys(app, pilot, "2", "i", "right", "enter")
        await until(lambda: app.monitor.pages.name == "detail", pilot)
        assert text_of(app)[5].startswith("  MBU  ")
        assert isinstance(app.monitor.pages.shown, DetailPage)


async def test_where_there_are_no_cells_the_key_says_so() -> None:
    async with running("live", 80, 24) as (app, pilot):
        await type_keys(app, pilot, "5", "i")
        await until(lambda: "cells are in the tables" in foot(app), pilot)


async def test_tab_jumps_over_the_sections_of_a_page() -> None:
    async with running("live", 80, 24) as (app, pilot):
        await type_keys(app, pilot, "2", "enter")
        seen = []
        for _ in range(3):
            await type_keys(app, pilot, "tab")
            seen.append(text_of(app)[4])
        assert [line.strip() for line in seen] == ["what limits it", "load", "rates"]
        await type_keys(app, pilot, "shift+tab")
        await until(lambda: text_of(app)[4].strip() == "load", pilot)
        assert app.monitor.pages.name == "detail"


@each_row("name", ["vllm  ", "語言  ", "é…▇·  "])
def test_a_cell_behind_wide_characters_is_marked_where_it_stands(name: str) -> None:
    row = ((name, "text"), ("12%", "text"), (" 34%", "muted"))
    marked = [text for text, tone in marked_cell(row, cells(name), 3) if tone == CURRENT]
    assert marked == ["12%"]


@each_row("kind", ["gpu", "engine", "process"])
def test_cells_of_what_is_lost_or_down_are_explained_too(kind: str) -> None:
    """The page of a lost GPU has its last facts alone."""
    explained = 0
    for scene in ("one_lost", "engines_down", "stale"):
        snapshot = scenes.SCENES[scene]()
        for name in things_of_kind(snapshot, kind):
            for column in COLUMNS[kind]:
                explained += bool(explain_cell((kind, name), column, snapshot, View(Config())).text)
    assert explained


def test_a_cell_that_shows_a_mean_is_explained_by_it() -> None:
    snapshot = scenes.SCENES["live"]()
    means = dict.fromkeys(IN_ROWS, 0.5)
    gpus = tuple(msgspec.structs.replace(gpu, **means) for gpu in snapshot.gpus)
    snapshot = msgspec.structs.replace(snapshot, gpus=gpus)
    key = next(iter(things_of_kind(snapshot, "gpu")))
    for column in ("busy", "sm", "tensor", "power"):
        assert "in its row" in explain_cell(("gpu", key), column, snapshot, View(Config())).text

"""The wall of GPUs: how large the tiles are, what they show, and what the cursor on them says and opens."""

from __future__ import annotations

from textual.pilot import Pilot

from gpumon.config.schema import Config
from gpumon.config.themes import load_theme
from gpumon.readings.missing import WARMING_UP, Missing, Reason
from gpumon.readings.snapshot import Gpu, Snapshot
from gpumon.tui.app import MonitorApp
from gpumon.tui.palette import HATCH, Palette, tint
from gpumon.tui.terminal import Depth
from gpumon.tui.view import View
from gpumon.tui.wall.figures import WALL_FIGURES, first_figure, next_figure, step_of
from gpumon.tui.wall.plan import (
    BOX,
    CARD,
    DOT,
    LINE,
    NUMBER_TILE,
    PAIR,
    TileForm,
    TilePlace,
    WallPlan,
    lines_wanted,
    wall_plan,
)
from gpumon.tui.wall.tiles import Tile, TileSettings, wall_rows
from gpumon.tui.widgets.wall_pane import WallPane
from tests.each_row import each_row
from tests.records import replace
from tests.tui import scenes
from tests.tui.feed import Still
from tests.tui.fleet_feed import Scrapes, bare, watching
from tests.tui.running import running, text_of, until
from tests.tui.test_keys import type_keys

EIGHT_EACH = (8,) * 125


def wall_of(app: MonitorApp) -> WallPane[Gpu]:
    pane = app.monitor.panes["gpus"]
    assert isinstance(pane, WallPane)
    return pane


def rule(app: MonitorApp) -> str:
    return next(line for line in text_of(app) if " gpus" in line[:12])


def still(gpus: int, **fields: object) -> Still:
    """A machine with so many GPUs, the first of them with other figures."""
    of = scenes.snapshot(gpus, 3)
    first, *rest = of.gpus
    snapshot = replace(of, gpus=(replace(first, **fields), *rest))
    return Still(snapshot, scenes.history(snapshot))


@each_row(
    ("sizes", "label", "width", "room", "form", "across"),
    [
        ((8,), 0, 120, 37, CARD, 4),
        ((8,), 0, 80, 21, CARD, 4),
        ((64,), 0, 120, 37, BOX, 8),
        ((64,), 0, 120, 8, LINE, 8),
        ((64,), 0, 120, 4, NUMBER_TILE, 16),
        ((1000,), 0, 120, 37, PAIR, 40),
        ((1000,), 0, 80, 20, DOT, 50),
        (EIGHT_EACH, 8, 120, 35, DOT, 0),
        ((8, 8, 8), 8, 120, 35, BOX, 8),
        ((1,), 0, 60, 12, CARD, 1),
    ],
)
def test_the_largest_form_in_which_all_tiles_fit(
    sizes: tuple[int, ...], label: int, width: int, room: int, form: TileForm, across: int
) -> None:
    plan = wall_plan(sizes, label, width, room)
    assert plan.form is form
    assert plan.lines <= room
    if across:
        assert sum(place.line == plan.places[0].line for place in plan.places) == across


@each_row("strips", [False, True])
@each_row("width", [60, 120, 200])
@each_row("room", [1, 9, 57])
@each_row("sizes", [(1,), (8,), (8, 8, 16), (3, 1), (64,), (72, 72), (1000,), EIGHT_EACH])
def test_no_tile_covers_another_or_leaves_the_screen(
    sizes: tuple[int, ...], room: int, width: int, strips: bool
) -> None:
    label = 9 if len(sizes) > 1 else 0
    plan = wall_plan(sizes, label, width, room, strips=strips)
    assert len(plan.places) == sum(sizes)
    taken = set()
    for place in plan.places:
        assert 0 <= place.column <= width - plan.width
        for line in range(place.line, place.line + plan.height):
            for column in range(place.column, place.column + plan.width):
                assert (line, column) not in taken
                taken.add((line, column))
    names = [
        (one.line, column)
        for one in (*plan.labels, *plan.strips)
        for column in range(one.column, one.column + one.width)
    ]
    assert len(set(names)) == len(names), "no name covers a strip"
    assert all(column < width for _, column in names)
    assert not set(names) & taken
    assert plan.lines == max(line for line, _ in taken) + 1
    assert plan.lines <= room or plan.form is DOT
    assert {one.group for one in plan.labels} == (set(range(len(sizes))) if label else set())


@each_row(("gpus", "width", "lines"), [(64, 120, 8), (16, 80, 4), (64, 80, 8), (9, 80, 3), (500, 120, 10)])
def test_the_wall_takes_few_lines_beside_other_panes(gpus: int, width: int, lines: int) -> None:
    wanted = lines_wanted(gpus, width)
    assert wanted <= 11
    assert abs(wanted - lines) <= 3
    assert wall_plan((gpus,), 0, width, wanted).lines <= wanted


@each_row("size", [(8,), (10,), (64,), (1000,)])
def test_every_tile_is_reached_and_named_by_its_own_cell(size: tuple[int, ...]) -> None:
    plan = wall_plan(size, 0, 120, 30)
    for number, place in enumerate(plan.places):
        assert plan.tile_at(place.line, place.column) == number
        assert plan.tile_at(place.line + plan.height - 1, place.column + plan.width - 1) == number
        below = plan.beside(number, 1)
        assert plan.places[below].line >= place.line
        assert plan.beside(below, -1) == number or plan.places[below].column != place.column or below == number
    assert plan.tile_at(plan.lines, 0) is None


@each_row(("share", "step"), [(0.0, 0), (0.099, 0), (0.1, 1), (0.3, 3), (0.999, 9), (1.0, 9), (1.4, 9)])
def test_a_share_has_the_digit_of_its_tenth(share: float, step: int) -> None:
    assert step_of(share) == step


def test_the_key_shows_each_figure_once_and_then_the_first() -> None:
    figure = WALL_FIGURES[0]
    names = []
    for _ in WALL_FIGURES:
        names.append(figure.name)
        figure = next_figure(figure, [scenes.gpu(0)])
    assert names == ["MFU", "MBU", "SM active", "busy", "VRAM", "power", "temperature"]
    assert figure is WALL_FIGURES[0]


def test_it_begins_with_the_first_figure_that_half_of_the_gpus_have() -> None:
    serving = scenes.gpu(0)
    program = scenes.gpu(1, **scenes.NO_ENGINE)
    old = replace(program, sm_active_ratio=MISSING)
    assert first_figure([serving, program]).name == "MFU"
    assert first_figure([serving, program, program]).name == "SM active"
    assert first_figure([old, old]).name == "busy"
    assert first_figure([replace(serving, mfu_ratio=WARMING_UP)]).name == "MFU", "it will soon come"
    assert first_figure([]).name == "busy"
    assert next_figure(WALL_FIGURES[-1], [old]).name == "busy", "the key leaves out what no GPU has"


MISSING = Missing(Reason.NOT_SUPPORTED)
LOST = Tile(scenes.gpu(3), "✗ LOST 48s", "alarm")
CALM = Tile(scenes.gpu(4, mfu_ratio=0.31, engines=()), "  ok", "muted")
NONE = Tile(scenes.gpu(5, mfu_ratio=MISSING, engines=()), "  ok", "muted")


def drawn(form: TileForm, tile: Tile, depth: Depth) -> list[tuple[str, str]]:
    """The pieces of a tile, all lines of it."""
    palette = Palette(load_theme("default"), depth)
    look = TileSettings(
        WALL_FIGURES[0], View(Config()), palette, lambda _gpu, _width, _height: (), lambda _gpu, _room: ()
    )
    plan = WallPlan(form, form.width, form.height, (TilePlace(0, 0),), (), form.height)
    rows = wall_rows(plan, lambda _: tile, (), look, range(form.height), None)
    return [piece for row in rows for piece in row]


@each_row("form", [BOX, LINE, NUMBER_TILE, PAIR, DOT])
@each_row("depth", [Depth.TRUE, Depth.NONE])
def test_trouble_is_marked_and_what_is_not_measured_is_hatched(form: TileForm, depth: Depth) -> None:
    lost = drawn(form, LOST, depth)
    calm = drawn(form, CALM, depth)
    none = drawn(form, NONE, depth)
    assert ("✗", "alarm") in lost
    assert HATCH in "".join(text for text, _ in none)
    assert "0" not in "".join(text for text, _ in none)
    assert HATCH not in "".join(text for text, _ in calm)
    figure = "31%" if form in (BOX, LINE, NUMBER_TILE) else "3"
    assert figure in "".join(text for text, _ in calm)
    ground = tint("mfu", 3) if depth is Depth.TRUE else "text"
    assert ground in {tone for _, tone in calm}


def test_a_state_takes_the_place_of_a_figure_that_is_not_measured() -> None:
    """`11perm!NO A…` was no word and no figure."""
    refused = replace(scenes.gpu(11), mfu_ratio=Missing(Reason.NO_PERMISSION))
    row = drawn(LINE, Tile(refused, "! NO ACCESS", "warn"), Depth.NONE)
    assert "".join(text for text, _ in row).strip() == "11!NO ACCESS"


async def press(pilot: Pilot[int], *keys: str) -> None:
    await pilot.press(*keys)
    await pilot.pause()


async def test_eight_gpus_fill_the_zoomed_pane_and_the_cursor_moves_in_two_dimensions() -> None:
    async with running(still(8), 120, 40) as (app, pilot):
        await press(pilot, "z", "f", "f", "f")
        lines = text_of(app)
        assert sum(line.count("VRAM") for line in lines) == 8
        assert sum(not line.strip() for line in lines) <= 4
        await press(pilot, "f", "f", "f", "f")
        assert "gpus · MFU ─ gpu 0 · MFU 31%" in rule(app)
        await press(pilot, "right", "down")
        assert "gpu 5 · MFU 33% · vllm:8001 · ok" in rule(app)
        await press(pilot, "left", "k")
        assert "gpu 0 · " in rule(app)
        await press(pilot, "G")
        assert "gpu 7 · " in rule(app)
        await press(pilot, "enter")
        assert any("─ gpu 7 · NVIDIA H100" in line for line in text_of(app))
        await press(pilot, "escape", "escape")
        assert "▸ 7" in "\n".join(text_of(app))


async def test_the_cursor_moves_before_a_slow_terminal_shows_that_there_are_fewer_gpus() -> None:
    async with running(still(16), 120, 40) as (app, pilot):
        await press(pilot, "z", "G")
        pane = wall_of(app)
        pane.snapshot = scenes.snapshot(8, 3)
        pane.move(1)
        assert pane.selected is not None
        assert pane.selected.reading.index == 7


async def test_a_key_colours_the_tiles_by_another_figure_with_its_unit() -> None:
    async with running(still(8), 120, 40) as (app, pilot):
        await press(pilot, "z")
        seen = []
        for _ in WALL_FIGURES:
            seen.append(rule(app).partition("gpu 0 · ")[2].partition(" ·")[0])
            await press(pilot, "f")
        assert seen == ["MFU 31%", "MBU 62%", "SM active 62%", "busy 93%", "VRAM 89%", "power 612W", "temperature 64°C"]
        assert "gpus · MFU" in rule(app)


async def test_a_click_chooses_a_tile() -> None:
    async with running(still(64), 120, 40) as (app, pilot):
        await press(pilot, "z")
        place = wall_plan((64,), 0, 120, 36, strips=True).places[19]
        await pilot.click(offset=(place.column + 2, place.line + 3))
        await pilot.pause()
        assert "gpu 19 · " in rule(app)


async def test_rows_that_do_not_fit_become_a_wall_by_themselves_and_a_key_brings_them_back() -> None:
    async with running(still(64), 120, 40) as (app, pilot):
        assert "gpus · MFU" in rule(app)
        assert wall_of(app).size.height <= 11
        await press(pilot, "W")
        assert "1-" in rule(app)
        assert "of 64" in rule(app)
        await press(pilot, "W")
        assert "gpus · MFU" in rule(app)
        await press(pilot, "slash", *"gpu7", "enter")
        await until(lambda: not wall_of(app).shows_tiles, pilot)
        assert "▸ 7" in "\n".join(text_of(app))


async def test_a_wall_in_the_place_of_rows_that_fit_takes_the_lines_that_its_tiles_fill() -> None:
    async with running(still(8), 120, 40) as (app, pilot):
        await press(pilot, "W")
        await until(lambda: wall_of(app).size.height == 5, pilot)  # its rule, and one line of tiles
        assert "gpus · MFU" in rule(app)
        assert "7" in text_of(app)[3]
        await press(pilot, "W")
        await until(lambda: wall_of(app).size.height == 10, pilot)


async def test_tiles_have_no_cells() -> None:
    async with running(still(8), 120, 40) as (app, pilot):
        await press(pilot, "i", "z", "right")
        assert wall_of(app).cell == ""
        assert "gpu 1 · " in rule(app)
        await press(pilot, "i", "right")
        assert wall_of(app).cell == ""
        assert "gpu 2 · " in rule(app)


async def test_the_arrows_move_in_time_while_the_wall_is_paused() -> None:
    async with running(still(8), 120, 40) as (app, pilot):
        await press(pilot, "z", "space", "right")
        assert "gpu 0 · " in rule(app)
        await press(pilot, "space", "right")
        assert "gpu 1 · " in rule(app)


async def test_what_is_not_measured_is_hatched_on_the_screen_and_named_on_the_rule() -> None:
    unknown = Missing(Reason.UNKNOWN_MODEL)
    async with running(still(8, mfu_ratio=unknown, mbu_ratio=unknown), 120, 40) as (app, pilot):
        await press(pilot, "z")
        first = text_of(app)[5][:28]
        assert first.split() == ["MFU", "LLM?", HATCH * len(first.split()[2])]
        assert "gpu 0 · MFU unknown LLM" in rule(app)


async def test_tiles_of_a_terminal_without_colours_have_digits() -> None:
    async with running(Still(scenes.snapshot(1000, 3)), 120, 40, ascii=True) as (app, pilot):
        await press(pilot, "z")
        body = "".join(text_of(app)[3:-2])
        assert body.isascii()
        assert set(body) <= set("0123456789 !")
        assert sum(character.isdigit() for character in body) == 1000


def with_ends(snapshot: Snapshot) -> Snapshot:
    """The last GPU is lost."""
    *others, last = snapshot.gpus
    gone = Missing(Reason.LOST)
    return replace(snapshot, gpus=(*others, replace(last, mfu_ratio=gone, mbu_ratio=gone, xid=(79,))))


async def test_a_wall_that_scrolls_names_the_trouble_out_of_view_and_keeps_the_cursor_in_view() -> None:
    async with running(Still(with_ends(scenes.snapshot(1000, 1))), 60, 15) as (app, pilot):
        await press(pilot, "z")
        assert "! gpu 999 Xid 79" in rule(app)
        await press(pilot, "G")
        assert "gpu 999 · " in rule(app)
        assert "! gpu 999 Xid 79" not in rule(app)
        assert "!" in "".join(text_of(app)[3:-1])


async def test_a_fleet_s_wall_has_all_gpus_by_host_and_opens_the_page_of_one() -> None:
    async with watching(Scrapes(3), 120, 40) as (app, pilot):
        await press(pilot, "z")
        lines = text_of(app)
        names = [line.split()[0] for line in lines if line.startswith("gpu0")]
        assert names == ["gpu01", "gpu02", "gpu03"]
        assert sum("✗ LOST" in line for line in lines) == 1
        await press(pilot, "down", "right", "right")
        assert "gpu02 gpu 2 · MFU lost · ✗ LOST" in rule(app)
        await press(pilot, "enter")
        await until(
            lambda: app.host_screen is not None and any("─ gpu 2 · NVIDIA H100" in line for line in text_of(app)), pilot
        )
        assert "gpu02" in text_of(app)[0]
        await press(pilot, "escape", "escape")
        await until(lambda: app.host_screen is None, pilot)
        await press(pilot, "escape")
        assert any(line.startswith("▸gpu02") for line in text_of(app))


async def test_a_fleet_s_wall_says_of_how_many_hosts_the_gpus_are_not_known() -> None:
    feed = Scrapes(3, wrong={"gpu03": lambda frame: replace(frame, gpus=())})
    async with watching(feed, 120, 40) as (app, pilot):
        await press(pilot, "z")
        assert "GPUs of 1 host unknown" in rule(app)
        assert "gpu03" not in text_of(app)


async def test_a_fleet_of_a_thousand_gpus_is_on_one_screen() -> None:
    others = {f"gpu{number:02d}": bare for number in range(2, 126)}
    async with watching(Scrapes(125, wrong=others), 120, 40) as (app, pilot):
        await press(pilot, "z")
        body = text_of(app)[5:-1]
        assert sum(line.count("gpu") for line in body) == 125
        assert "of" not in rule(app).partition("gpus")[2][-12:]
        assert any("gpus · SM active" in line for line in text_of(app)), "few of them have an engine"
        await press(pilot, "f")
        assert any("gpus · busy" in line for line in text_of(app))


async def test_the_filter_of_a_fleet_s_wall_bounds_figures_of_gpus() -> None:
    async with watching(Scrapes(3), 80, 24) as (app, pilot):
        await press(pilot, "z")
        await type_keys(app, pilot, "slash", *"busy>50", "enter")
        await until(lambda: 'filter "busy>50": ' in rule(app), pilot)
        assert 'filter "busy>50": 0' not in rule(app)
        await type_keys(app, pilot, "slash", "ctrl+u", *"kv>50", "enter")
        await until(lambda: any("no column kv here: it is in engines" in line for line in text_of(app)), pilot)

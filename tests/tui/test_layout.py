"""The lines of a screen are given out in a fixed order, and all of them; on the real screen, in one frame."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.screen import Screen

from gpumon.config.schema import Config
from gpumon.readings.snapshot import FaultShown
from gpumon.tui.layout import LEAST_HEIGHT, LEAST_WIDTH, PANES, Counts, Plan, pane_heights
from tests.each_row import each_row
from tests.records import replace
from tests.tui import scenes
from tests.tui.feed import Still
from tests.tui.running import running, text_of, until

SIZES = ((60, 15), (80, 24), (100, 30), (120, 40), (160, 50), (200, 60), (300, 80))
numbers = map(st.integers, (0, 0, 0, 0, 0, 0), (64, 128, 60, 20, 18, 6))
figures = tuple(numbers)
counts = st.builds(Counts, *figures, wall=st.just(0))
walled = st.builds(Counts, *figures, wall=st.integers(1, 20))
heights = st.integers(LEAST_HEIGHT, 120)


def fills(pane: str, of: Counts) -> int:
    """Lines that a table has something for."""
    return {
        "gpus": 2 + max(1, of.gpus),
        "engines": 2 + of.engines,
        "processes": 2 + of.processes,
        "triage": 1 + max(1, of.urgent, of.triage) + of.evidence,
    }[pane]


def test_80x24_holds_8_gpus_4_engines_a_chart_strip_and_the_fault_line() -> None:
    assert pane_heights(80, 24, Counts(8, 4, 12, 2, 0, 2)) == Plan(gpus=10, engines=6, history=2, triage=3, headline=1)


def test_80x24_holds_a_critical_verdict_beside_8_gpus() -> None:
    assert pane_heights(80, 24, Counts(8, 3, 12, 9, 4, 6)) == Plan(gpus=10, engines=5, triage=6, headline=1)
    assert pane_heights(80, 24, Counts(2, 1, 12, 9, 4, 6)) == Plan(gpus=4, engines=3, history=7, triage=7, headline=1)


def test_120x40_holds_16_gpus_and_charts() -> None:
    of = pane_heights(120, 40, Counts(16, 4, 20))
    assert (of.gpus, of.engines, of.triage) == (18, 6, 2)
    assert of.history >= 9


def test_120x40_shows_processes_at_first_sight() -> None:
    for first in (2, 6):
        of = pane_heights(120, 40, Counts(8, 3, 20, first, 3, first))
        assert of.processes >= 2 + 4
        assert of.history >= 9


def test_160x50_holds_16_gpus_12_engines_charts_and_processes() -> None:
    assert pane_heights(160, 50, Counts(16, 12, 60, 4)) == Plan(
        gpus=18, engines=14, history=9, processes=1, triage=5, headline=1
    )


def test_300x80_holds_everything() -> None:
    of = pane_heights(300, 80, Counts(16, 12, 20, 5))
    assert of == Plan(gpus=18, engines=14, history=20, processes=19, triage=6, headline=1)
    assert pane_heights(300, 80, Counts(8, 3, 10)) == Plan(
        gpus=10, engines=5, history=48, processes=12, triage=2, headline=1
    )


def test_with_next_to_nothing_to_show_the_charts_take_the_lines() -> None:
    assert pane_heights(300, 80, Counts(1)) == Plan(gpus=3, engines=2, history=68, processes=2, triage=2, headline=1)
    assert pane_heights(80, 24, Counts(1, 0, 3)) == Plan(
        gpus=3, engines=2, history=9, processes=5, triage=2, headline=1
    )


@each_row(("width", "height"), [(59, 40), (200, 14), (20, 3), (0, 0), (1, 1)])
@each_row("page", [True, False])
def test_a_small_terminal_gets_the_summary(width: int, height: int, page: bool) -> None:
    assert pane_heights(width, height, Counts(8, 4, 1), page=page, zoomed="gpus").tiny


def test_a_low_screen_leaves_out_charts_and_processes_first() -> None:
    assert pane_heights(60, 15, Counts(8, 4, 9, 1)) == Plan(gpus=6, engines=4, triage=2, headline=1)
    assert pane_heights(60, 15, Counts(8, 4, 9, 1)).hidden == ("history", "processes")


@given(st.integers(LEAST_WIDTH, 300), heights, counts, st.booleans(), st.sampled_from(("", *PANES)))
def test_every_line_is_given_out(width: int, height: int, of: Counts, page: bool, zoomed: str) -> None:
    lines = pane_heights(width, height, of, page=page, zoomed=zoomed)
    assert sum(lines) == height - 2
    assert min(lines) >= 0
    assert bool(lines.page) == page
    if zoomed and not page:
        shown = {name for name in PANES if name not in lines.hidden}
        assert zoomed in shown
        assert shown <= {zoomed, "history"}
        assert shown == {zoomed} or lines.history >= 5


@given(heights, counts)
def test_every_table_keeps_a_row_and_none_gets_lines_that_it_does_not_fill(height: int, of: Counts) -> None:
    lines = pane_heights(80, height, of)
    assert lines.gpus >= 3
    assert lines.engines >= min(3, fills("engines", of))
    assert lines.triage >= 2
    for name in ("gpus", "engines", "triage"):
        assert getattr(lines, name) <= fills(name, of)
    assert lines.processes <= max(2, fills("processes", of))


@given(heights, walled)
def test_a_wall_takes_no_more_lines_than_rows_or_tiles_fill(height: int, of: Counts) -> None:
    lines = pane_heights(80, height, of)
    assert sum(lines) == height - 2
    assert 3 <= lines.gpus <= max(3, fills("gpus", of), of.wall + 1)
    assert lines.engines >= min(3, fills("engines", of))
    assert lines.triage >= 2


@each_row("gpus", [10**6, 10**12])
def test_a_million_rows_are_planned_like_those_that_fit(gpus: int) -> None:
    assert pane_heights(80, 24, Counts(gpus, gpus)) == pane_heights(80, 24, Counts(64, 64))


@given(heights, counts)
def test_a_taller_screen_takes_no_line_from_anything(height: int, of: Counts) -> None:
    small, tall = pane_heights(80, height, of), pane_heights(80, height + 1, of)
    assert all(more >= less for more, less in zip(tall, small, strict=True))


@given(heights, counts)
def test_things_appear_in_one_order(height: int, of: Counts) -> None:
    lines = pane_heights(80, height, of)
    if lines.history:
        assert lines.gpus >= min(fills("gpus", of), 10)
        assert lines.engines >= min(fills("engines", of), 6)
        assert lines.triage >= 1 + of.urgent
    if lines.history > 2:
        assert (lines.gpus, lines.engines) == (fills("gpus", of), fills("engines", of))
    if lines.processes:
        assert lines.history >= 9
    if lines.history > 9:
        assert lines.triage >= min(1 + of.triage, 10)
        assert lines.processes >= min(2 + of.processes, 8) or not of.processes
    if lines.history > 20:
        assert lines.processes == 2 + of.processes or not of.processes


@given(st.integers(LEAST_WIDTH, 300), st.integers(LEAST_WIDTH, 300), heights, counts)
def test_the_width_moves_no_pane(one: int, other: int, height: int, of: Counts) -> None:
    assert pane_heights(one, height, of) == pane_heights(other, height, of)


@each_row("name", PANES)
def test_a_zoomed_pane_has_the_screen_alone(name: str) -> None:
    of = pane_heights(80, 24, Counts(8, 18, 17), zoomed=name)
    assert (getattr(of, name), of.headline) == (21, 1)
    assert len(of.hidden) == 4


@each_row("name", ["engines", "processes"])
def test_zoomed_tables_leave_the_lines_that_they_do_not_fill_to_the_charts(name: str) -> None:
    of = pane_heights(80, 24, Counts(8, 4, 4), zoomed=name)
    assert (getattr(of, name), of.history) == (6, 15)
    assert len(of.hidden) == 3


SAID = {
    "60x15": "3: history · 4: processes",
    "80x24": "key 4: processes",
}


@pytest.mark.parametrize("scene", ["live", "crowded", "empty"])
async def test_every_pane_without_a_place_is_named_with_its_key(scene: str) -> None:
    async with running(scene, *SIZES[0]) as (app, pilot):
        for width, height in SIZES:
            await pilot.resize_terminal(width, height)
            hidden = [name for name, pane in app.monitor.panes.items() if not pane.display]
            rule = next(line for line in text_of(app) if line.startswith("─5─"))
            for name in hidden:
                assert f"{PANES.index(name) + 1}: {name}" in rule
            assert ("key" in rule.split(":")[0]) == bool(hidden) or width < 80 or "keys" in rule
            assert SAID.get(f"{width}x{height}", "") in rule or scene == "empty"


async def test_a_fault_is_read_to_its_end_before_the_charts_grow() -> None:
    async with running("one_lost", 80, 24) as (app, _):
        lines = text_of(app)
        assert any(line.endswith("replace the GPU") for line in lines[-6:])
        assert sum("vllm:800" in line for line in lines) == 4
        assert any(line.startswith("─3─ history") for line in lines)


async def test_both_hidden_panes_and_more_faults_fit_into_60_columns() -> None:
    faults = tuple(FaultShown("nvml", f"fault {at}", "2025-10-09T08:53:08Z") for at in range(10))
    snapshot = replace(scenes.SCENES["crowded"](), faults=faults)
    async with running(Still(snapshot), 60, 15) as (app, _):
        rule = next(line for line in text_of(app) if line.startswith("─5─"))
        assert "1 of 10: keys 5 z · 3: history · 4: processes" in rule


async def test_a_cut_fault_is_named_beside_both_hidden_panes_in_60_columns() -> None:
    faults = (FaultShown("nvml", "GPU 5 has fallen off the bus " * 9, "2025-10-09T08:53:08Z"),)
    async with running(Still(replace(scenes.SCENES["crowded"](), faults=faults)), 60, 15) as (app, _):
        rule = next(line for line in text_of(app) if line.startswith("─5─"))
        assert "5 z: whole text · 3: history · 4: processes" in rule


async def test_the_keys_on_the_rules_are_the_users_own() -> None:
    async with running("live", 80, 24, config=Config(keys={"pane.processes": "P"})) as (app, _):
        assert "key P: processes" in next(line for line in text_of(app) if line.startswith("─5─"))


async def test_one_page_in_place_of_another() -> None:
    async with running("live", 80, 24) as (app, pilot):
        for key, title in (("question_mark", "help"), ("f2", "settings"), ("question_mark", "help")):
            await pilot.press(key)
            await until(lambda title=title: text_of(app)[2].startswith(f"─── {title}"), pilot)  # type: ignore[misc]
        await pilot.press("escape")
        await until(lambda: text_of(app)[2].startswith("─1─ gpus"), pilot)


async def test_the_rules_follow_the_width_alone() -> None:
    async with running("live", 80, 24) as (app, pilot):
        for width, said in ((79, "· 4: processes ─"), (80, "· key 4: processes ─")):
            await pilot.resize_terminal(width, 24)
            await until(
                lambda said=said: said in next(line for line in text_of(app) if "─5─" in line),  # type: ignore[misc]
                pilot,
            )


@pytest.mark.parametrize("keys", [(), ("question_mark",), ("3", "z")])
async def test_a_resize_keeps_every_pane_and_paints_once(
    keys: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    painted: list[str] = []
    async with running("live", 80, 24) as (app, pilot):
        await pilot.press(*keys)
        boards = [id(board) for board in app.monitor.boards()]
        display = app._display

        def note(screen: Screen[object], update: object) -> None:
            if update is not None:
                painted.append(type(update).__name__)
            display(screen, update)  # type: ignore[arg-type]

        monkeypatch.setattr(app, "_display", note)
        for size in [*SIZES, *SIZES[-2::-2]]:
            painted.clear()
            await pilot.resize_terminal(*size)
            await pilot.pause(0.05)
            assert painted.count("LayoutUpdate") <= 1, size
            assert painted, size
        assert [id(board) for board in app.monitor.boards()] == boards


@pytest.mark.parametrize(
    ("scene", "keys"),
    [
        ("live", ("space",)),
        pytest.param("live", ("2", "question_mark"), marks=pytest.mark.wide),
        ("sixteen_gpus", ("1", "z")),
        pytest.param("empty", (), marks=pytest.mark.wide),
    ],
)
async def test_a_screen_that_grew_is_the_one_that_was_started_at_that_size(scene: str, keys: tuple[str, ...]) -> None:
    fresh = {}  # without the title, which says how old the reading is that this feed never renews
    for size in SIZES[:3]:
        async with running(scene, *size) as (app, pilot):
            await pilot.press(*keys)
            await pilot.pause()
            fresh[size] = text_of(app)[1:]
    async with running(scene, 200, 60) as (app, pilot):
        await pilot.press(*keys)
        for size in ((40, 5), *SIZES[:3], (1, 1), *SIZES[2::-1]):
            await pilot.resize_terminal(*size)
            if size in fresh:
                await until(lambda size=size: text_of(app)[1:] == fresh[size], pilot)  # type: ignore[misc]


async def test_a_resize_to_one_line_and_back_gives_the_keys_back() -> None:
    async with running("live", 80, 24) as (app, pilot):
        await pilot.press("2")
        await pilot.resize_terminal(40, 5)
        await pilot.pause()
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        assert app.monitor.panes["engines"].has_focus
        await pilot.press("3")
        assert app.monitor.panes["history"].has_focus
        await pilot.resize_terminal(60, 15)
        await until(lambda: app.monitor.panes["gpus"].has_focus, pilot)


async def test_no_drawer_is_open_where_it_can_not_be_seen() -> None:
    async with running("live", 80, 24) as (app, pilot):
        await pilot.press("2", "slash", "x")
        assert app.monitor.question_bar is not None
        await pilot.resize_terminal(40, 5)
        await until(lambda: app.monitor.question_bar is None, pilot)
        await pilot.press("slash", "o", "colon")
        assert app.monitor.question_bar is None
        await pilot.resize_terminal(80, 24)
        await until(lambda: app.monitor.panes["engines"].has_focus, pilot)
        assert sum("vllm:80" in line[:12] for line in text_of(app)) == 3
        await pilot.resize_terminal(40, 5)
        await pilot.press("q")
        await until(lambda: app._exit, pilot)


async def test_a_page_waits_for_a_screen_that_can_show_it() -> None:
    async with running("live", 80, 24) as (app, pilot):
        await pilot.press("f2")
        page = text_of(app)
        await pilot.resize_terminal(40, 12)
        await until(lambda: text_of(app)[0].startswith("8 GPU"), pilot)
        await pilot.resize_terminal(80, 24)
        await until(lambda: text_of(app) == page, pilot)
        await pilot.resize_terminal(40, 12)
        await pilot.press("escape")  # nobody could see what it closes
        await pilot.resize_terminal(80, 24)
        await until(lambda: text_of(app) == page, pilot)
        await pilot.press("escape")
        await until(lambda: text_of(app)[2].startswith("─1─ gpus"), pilot)
        assert app.monitor.panes["gpus"].has_focus


async def test_keys_below_the_least_size_open_nothing_and_q_quits() -> None:
    async with running("live", 40, 12) as (app, pilot):
        before = text_of(app)
        for key in ("question_mark", "enter", "f2", "slash", "colon", "z", "w"):
            await pilot.press(key)
            assert text_of(app) == before, key
            await pilot.press("escape")
        await pilot.press("q")
        await until(lambda: app._exit, pilot)


async def test_pausing_below_the_least_size_says_so() -> None:
    async with running("live", 40, 5) as (app, pilot):
        await pilot.press("space")
        await until(lambda: text_of(app)[0].startswith("PAUSED 8 GPU"), pilot)

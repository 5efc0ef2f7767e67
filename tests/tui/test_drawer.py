"""The drawer: filter, sort, and every command by its name."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual import events

from gpumon.config.keymap import COMMANDS
from gpumon.config.themes import load_theme
from gpumon.readings.format import cells
from gpumon.tui.app import MonitorApp
from gpumon.tui.palette import Palette
from gpumon.tui.screens.questions import _rank
from gpumon.tui.terminal import Depth
from gpumon.tui.widgets.drawer import MOST_CHOICES, Choice
from tests.tui.running import running, text_of, until
from tests.tui.test_keys import disk_at, feed_of, focused, type_keys


def drawer_of(app: MonitorApp) -> list[str]:
    """The drawer's lines: the question and the choices in view."""
    lines = app.monitor.drawer.size.height if app.monitor.drawer.display else 0
    return text_of(app)[-1 - lines : -1]


def names_of(app: MonitorApp) -> list[str]:
    return [choice.name for choice in app.monitor.drawer._choices]


def rows_of(app: MonitorApp, text: str) -> int:
    return sum(text in line for line in text_of(app))


async def test_rows_follow_the_filter_while_it_is_typed_and_escape_brings_them_back() -> None:
    async with running("twelve_engines", 120, 50) as (app, pilot):
        await type_keys(app, pilot, "2", "z")
        assert rows_of(app, "vllm:80") == 12
        await type_keys(app, pilot, "/", *":8003")
        assert rows_of(app, "vllm:80") == 1
        assert drawer_of(app)[0].startswith(" filter engines: :8003")
        await type_keys(app, pilot, "escape")
        assert rows_of(app, "vllm:80") == 12
        assert focused(app) == "engines"
        await type_keys(app, pilot, "/", *":8003", "enter")
        assert rows_of(app, "vllm:80") == 1
        assert 'filter ":8003"' in "\n".join(text_of(app))
        await type_keys(app, pilot, "escape")
        assert rows_of(app, "vllm:80") == 12


async def test_the_cursor_stays_in_sight_of_a_text_too_long_for_its_line() -> None:
    async with running("live", 60, 15) as (app, pilot):
        await type_keys(app, pilot, "/", *("x" * 70), *"YZ")
        line = drawer_of(app)[0]
        assert line.startswith(" filter gpus: …xxx")
        assert line.endswith("xYZ")
        await type_keys(app, pilot, "left", "left", "left")
        assert drawer_of(app)[0].rstrip().endswith("xxYZ")
        await type_keys(app, pilot, *["left"] * 40)
        assert cells(drawer_of(app)[0]) <= 60
        await type_keys(app, pilot, "home")
        assert drawer_of(app)[0].startswith(" filter gpus: xxxxxxx")
        await type_keys(app, pilot, "ctrl+k", *("語" * 40), "Z")
        assert drawer_of(app)[0].endswith("語Z")
        assert cells(drawer_of(app)[0]) <= 60


async def test_a_filter_without_a_match_says_so_and_can_be_mended() -> None:
    async with running("twelve_engines", 120, 50) as (app, pilot):
        await type_keys(app, pilot, "2", "z", "/", *"zzz")
        assert 'matches "zzz"' in "\n".join(text_of(app))
        await type_keys(app, pilot, *["backspace"] * 3, *"-8003", "enter")
        assert rows_of(app, "vllm:80") == 11
        await type_keys(app, pilot, "/", "ctrl+u", "enter")
        assert rows_of(app, "vllm:80") == 12


async def test_q_typed_at_once_with_the_slash_is_text() -> None:
    async with running("live") as (app, pilot):
        await type_keys(app, pilot, "/", *"qwen")
        assert not app._exit
        assert drawer_of(app)[0].startswith(" filter gpus: qwen")


async def test_a_paste_is_text_without_control_characters() -> None:
    async with running("live") as (app, pilot):
        await type_keys(app, pilot, "/")
        app.monitor.drawer.post_message(events.Paste("ab\x1b[31m\nrm -rf"))
        await pilot.pause()
        assert drawer_of(app)[0].startswith(" filter gpus: ab[31m ")


async def test_sorting_and_turning_it_round() -> None:
    async with running("live", 120, 40) as (app, pilot):
        pane = app.monitor.panes["gpus"]
        await type_keys(app, pilot, "o")
        orders = names_of(app)
        assert orders[0] == "as it comes"
        await type_keys(app, pilot, "j", "enter")
        assert f"by {orders[1]}" in text_of(app)[1]
        first = text_of(app)[1]
        await type_keys(app, pilot, "o")
        assert drawer_of(app)[2].startswith(f"▸  {orders[1]}")
        await type_keys(app, pilot, "enter")
        assert text_of(app)[1] != first
        await type_keys(app, pilot, "o", "g", "enter")
        assert getattr(pane, "order", "") is None


async def test_a_pane_that_can_not_be_sorted_asks_nothing() -> None:
    async with running("live", 120, 40) as (app, pilot):
        await type_keys(app, pilot, "3", "o", "/")
        assert not app.monitor.drawer.open


async def test_every_command_is_found_by_its_name_and_its_id(tmp_path: Path) -> None:
    async with running("live", 120, 40, files=disk_at(tmp_path)) as (app, pilot):
        await type_keys(app, pilot, ":")
        for command in COMMANDS:
            if command.scope or command.id in ("palette", "left", "right"):
                assert command.does not in names_of(app)
                continue
            for text in (command.does, command.id):
                await type_keys(app, pilot, "ctrl+u", *text)
                assert command.does in names_of(app), text
        await type_keys(app, pilot, "ctrl+u", *"foo")
        assert "nothing matches" in "\n".join(drawer_of(app))
        await type_keys(app, pilot, "enter")
        assert not app.monitor.drawer.open
        assert "no such command: foo" in text_of(app)[-1]


@pytest.mark.parametrize(
    ("text", "rank"),
    [("", 0), ("zoom", 0), ("pane zoom", 1), ("PANE", 1), ("zmpn", None), ("z", 0), ("qq", None), ("xyz", None)],
)
def test_the_first_word_comes_before_the_others(text: str, rank: int | None) -> None:
    assert _rank(Choice("zoom the pane", "now: Enter; q x y", None, "z"), text) == rank


async def test_what_is_only_in_a_note_is_not_found() -> None:
    async with running("live", 120, 40) as (app, pilot):
        await type_keys(app, pilot, "2", "o", *["j"] * 7, "enter", ":", *"sort pow")
        assert names_of(app) == ["sort gpus by power"]
        await type_keys(app, pilot, "ctrl+u", *"turns it round")
        assert names_of(app) == []


@pytest.mark.parametrize(
    ("before", "typed", "pane"),
    [
        ((), "sort engines by TTFT", "engines"),
        (("2", "z"), "sort processes by user", "processes"),
        (("2", "enter"), "sort gpus by power", "gpus"),
        (("3",), "sort gpus by power", "gpus"),
        (("f2",), "sort engines by KV", "engines"),
    ],
)
async def test_the_rows_of_any_list_are_sorted_by_name_from_anywhere(
    before: tuple[str, ...], typed: str, pane: str
) -> None:
    async with running("live", 120, 40) as (app, pilot):
        await type_keys(app, pilot, *before, ":", *typed, "enter")
        await until(lambda: focused(app) == pane, pilot)
        assert app.monitor.page is None
        order = getattr(app.monitor.panes[pane], "order", None)
        assert order is not None
        assert order.name.startswith(typed.rpartition(" ")[2])


async def test_only_what_does_something_here_is_listed() -> None:
    async with running("live", 120, 40) as (app, pilot):
        await type_keys(app, pilot, "3", ":")
        names = names_of(app)
        assert "filter the rows" not in names
        assert "sort the rows" not in names
        assert "write an incident bundle" not in names
        assert not any(name.startswith("theme: ") for name in names)
        await type_keys(app, pilot, "escape", "1", ":")
        assert any(name.startswith("sort gpus by ") for name in names_of(app))
        await type_keys(app, pilot, "escape", "f2", ":")
        assert "zoom the pane, and back" not in names_of(app)
        assert "next: thing, value, frame" in names_of(app)


async def test_a_chosen_command_runs_where_the_keys_were_and_comes_first_next_time() -> None:
    async with running("live", 120, 40) as (app, pilot):
        await type_keys(app, pilot, "2", ":", *"zoom", "enter")
        await until(lambda: app.monitor.zoomed == "engines", pilot)
        await type_keys(app, pilot, ":")
        assert names_of(app)[0] == "zoom the pane, and back"
        await type_keys(app, pilot, "escape", "1", ":", *"sort gpus by VRAM", "enter")
        await until(lambda: "by VRAM" in text_of(app)[1], pilot)
        assert not app.monitor.drawer.open
        assert app.monitor.zoomed == "gpus"


async def test_a_theme_is_shown_while_the_cursor_is_on_it(tmp_path: Path) -> None:
    default, light = (Palette(load_theme(name), Depth.TRUE).codes for name in ("default", "light"))
    assert default != light
    async with running("live", 120, 40, files=disk_at(tmp_path)) as (app, pilot):
        await type_keys(app, pilot, ":")
        await until(lambda: "theme: light" in names_of(app), pilot)
        await type_keys(app, pilot, *"theme:")
        at = names_of(app).index("theme: light")
        await type_keys(app, pilot, *["down"] * at)
        await until(lambda: app.palette.codes == light, pilot)
        assert app.view.config.general.theme == "default"
        await type_keys(app, pilot, "escape")
        await until(lambda: app.palette.codes == default, pilot)
        await type_keys(app, pilot, ":", *"theme: light", "enter")
        await until(lambda: app.palette.codes == light, pilot)
        assert app.view.config.general.theme == "light"


@pytest.mark.parametrize(("width", "height"), [(60, 15), (80, 24), (200, 60)])
async def test_it_leaves_room_and_scrolls(width: int, height: int) -> None:
    async with running("live", width, height) as (app, pilot):
        await type_keys(app, pilot, ":")
        shown = drawer_of(app)
        assert len(shown) == 1 + min(MOST_CHOICES, height // 2)
        assert shown[1].startswith("▸")
        await type_keys(app, pilot, *["up"] * 2, *["pagedown"] * 20)
        last = names_of(app)[-1]
        assert drawer_of(app)[-1].startswith(f"▸  {last[:20]}")
        await type_keys(app, pilot, "x", "x")
        assert len(drawer_of(app)) == len(shown)


async def test_a_click_chooses() -> None:
    async with running("live", 120, 40) as (app, pilot):
        await type_keys(app, pilot, "o")
        orders = names_of(app)
        top = 40 - 1 - len(drawer_of(app))
        await pilot.click(offset=(5, top + 2))
        assert f"by {orders[1]}" in text_of(app)[1]
        assert focused(app) == "gpus"


async def test_a_snapshot_that_comes_meanwhile_disturbs_nothing() -> None:
    feed = feed_of("live")
    async with running(feed, 120, 40) as (app, pilot):
        await type_keys(app, pilot, ":", *"zo")
        before = drawer_of(app)
        assert feed._snapshot is not None
        feed.give(feed._snapshot)
        await pilot.pause()
        assert drawer_of(app) == before
        assert app.monitor.drawer.has_focus

"""Pages and panes: which of them has the keys, what lies below a page, and that nothing unseen is changed."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from gpumon.config.schema import Config
from gpumon.tui import app as gpumon_app
from gpumon.tui.app import MonitorApp
from gpumon.tui.layout import PANES
from gpumon.tui.pages.detail import DetailPage
from gpumon.tui.screens.palette import all_entries
from gpumon.tui.widgets.list_pane import ListPane
from tests.tui import scenes
from tests.tui.running import running, text_of, until
from tests.tui.test_keys import EVERY_KEY, disk_at, feed_of, focused, type_keys


def pane(app: MonitorApp, name: str) -> ListPane[Any]:
    found = app.monitor.panes[name]
    assert isinstance(found, ListPane)
    return found


def page_of(app: MonitorApp) -> str:
    return next((name for name, page in app.monitor.pages.by_name.items() if page is app.monitor.pages.shown), "")


async def resized(app: MonitorApp, pilot: Pilot[int], width: int, height: int) -> None:
    await pilot.resize_terminal(width, height)
    await until(lambda: len(text_of(app)) == height, pilot)


async def sorted_backwards(app: MonitorApp, pilot: Pilot[int]) -> list[str]:
    """The GPUs but the first two, by index, the last one first; their keys."""
    gpus = pane(app, "gpus")
    gpus.filter.text = "-GPU-00000000 -GPU-00000001"
    gpus.sort(next(order for order in gpus.listing.orders if order.name == "VRAM"))
    await pilot.pause()
    keys = [gpus.listing.key(item) for item in gpus.listed_items()]
    assert len(keys) == 6
    assert keys != sorted(keys)
    return keys


@pytest.mark.parametrize("opened", [("f2", "j"), ("?",), ("1", "enter"), ("f2", "g", "enter"), ("3",), ("2", "z")])
async def test_keys_change_nothing_that_is_too_small_to_be_seen(
    opened: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    feed = feed_of("live")
    async with running(feed, 80, 24, files=disk_at(tmp_path)) as (app, pilot):
        await type_keys(app, pilot, *opened)
        there = (page_of(app), focused(app), app.monitor.body.zoomed)
        await resized(app, pilot, 40, 5)
        await type_keys(app, pilot, *(key for key in EVERY_KEY if key not in ("space", "p", "+", "=", "-")))
        assert app.view.config == Config()
        assert feed.interval_s == 1.0
        await type_keys(app, pilot, "space")
        assert app.monitor.travel.paused
        await type_keys(app, pilot, "space")
        await resized(app, pilot, 80, 24)
        assert (page_of(app), focused(app), app.monitor.body.zoomed) == there
        assert app.monitor.body.history.span_s == 300.0
        assert not app.monitor.body.history.opened


@pytest.mark.parametrize("keys", [("4", "enter"), ("4", "/")])
async def test_the_keys_go_to_a_pane_that_can_be_seen(keys: tuple[str, ...]) -> None:
    async with running("live", 120, 60) as (app, pilot):
        await type_keys(app, pilot, *keys)
        await resized(app, pilot, 80, 24)
        await type_keys(app, pilot, "escape")
        await until(lambda: focused(app) == "gpus", pilot)
        assert app.monitor.panes["gpus"].display
        assert not app.monitor.panes["processes"].display
        await type_keys(app, pilot, "j")
        assert [line.split()[1] for line in text_of(app) if line.startswith("▸")] == ["1"]


async def test_tab_goes_through_all_panes_while_one_is_zoomed() -> None:
    async with running("live", 80, 24) as (app, pilot):
        await type_keys(app, pilot, "1", "z")
        for name in [*PANES[1:], PANES[0]]:
            await type_keys(app, pilot, "tab")
            assert (app.monitor.body.zoomed, focused(app)) == (name, name)
        for name in PANES[::-1]:
            await type_keys(app, pilot, "shift+tab")
            assert (app.monitor.body.zoomed, focused(app)) == (name, name)
            assert any(line.startswith(f"─{PANES.index(name) + 1}─ {name}") for line in text_of(app))


async def test_help_opens_at_its_first_line() -> None:
    async with running("live", 80, 24) as (app, pilot):
        await type_keys(app, pilot, "?")
        before = text_of(app)
        await type_keys(app, pilot, "pagedown")
        assert text_of(app) != before
        await type_keys(app, pilot, "?")
        await type_keys(app, pilot, "?")
        assert text_of(app) == before


async def test_a_key_typed_at_once_with_escape_moves_the_cursor_of_the_list_below() -> None:
    async with running("live", 80, 24) as (app, pilot):
        await type_keys(app, pilot, "?")
        await type_keys(app, pilot, "escape", "down", "down")
        assert [line.split()[1] for line in text_of(app) if line.startswith("▸")] == ["2"]


async def test_a_page_over_a_page_leads_back_to_it() -> None:
    async with running("live", 120, 40) as (app, pilot):
        await type_keys(app, pilot, "j", "enter", "right")
        before = text_of(app)
        await type_keys(app, pilot, "?", "f2")
        assert page_of(app) == "settings"
        await type_keys(app, pilot, "escape")
        assert page_of(app) == "help"
        await type_keys(app, pilot, "f2", "?")
        assert page_of(app) == "help"
        await type_keys(app, pilot, "escape")
        assert text_of(app) == before
        await type_keys(app, pilot, "f2", "f2")
        assert text_of(app) == before
        await type_keys(app, pilot, "escape")
        assert page_of(app) == ""
        assert focused(app) == "gpus"


async def test_a_page_that_was_covered_shows_the_newest_figures() -> None:
    feed = feed_of("live")
    async with running(feed, 120, 40) as (app, pilot):
        await type_keys(app, pilot, "enter", "?")
        later = scenes.snapshot(tick=7)
        feed.give(later)
        await until(lambda: app.monitor.shown is later, pilot)
        await type_keys(app, pilot, "escape")
        page = app.monitor.pages.shown
        assert isinstance(page, DetailPage)
        assert page._topic.figures is later.gpus[0]


async def test_a_pane_by_its_number_leaves_all_pages() -> None:
    async with running("live", 120, 40) as (app, pilot):
        await type_keys(app, pilot, "enter", "?", "f2", "2")
        assert page_of(app) == ""
        assert focused(app) == "engines"
        await type_keys(app, pilot, "f2", "escape")
        assert page_of(app) == ""


async def test_from_a_detail_to_the_next_one_as_the_list_has_them_and_back_to_it() -> None:
    async with running("live", 120, 40) as (app, pilot):
        keys = await sorted_backwards(app, pilot)
        await type_keys(app, pilot, "g", "enter")
        page = app.monitor.pages.shown
        assert isinstance(page, DetailPage)
        seen = [page.thing[1]]
        for _ in keys:
            assert f"{len(seen)}/6" in text_of(app)[2] or len(seen) > 6
            await type_keys(app, pilot, "right")
            seen.append(page.thing[1])
        assert seen == [*keys, keys[0]]
        await type_keys(app, pilot, "left", "left")
        assert page.thing[1] == keys[-2]
        await type_keys(app, pilot, "escape")
        gpus = pane(app, "gpus")
        assert gpus.listing.key(gpus.selected) == keys[-2]
        assert len([line for line in text_of(app) if line.startswith("▸")]) == 1


async def test_a_thing_that_its_list_leaves_out_is_among_all_of_its_kind() -> None:
    async with running("live", 120, 40) as (app, pilot):
        keys = await sorted_backwards(app, pilot)
        await type_keys(app, pilot, "g", "2", "g", "enter", "enter")
        page = app.monitor.pages.shown
        assert isinstance(page, DetailPage)
        assert page.thing == ("gpu", "GPU-00000000")
        assert "1/8" in text_of(app)[2]
        await type_keys(app, pilot, "1")
        gpus = pane(app, "gpus")
        assert gpus.listing.key(gpus.selected) == keys[0]


async def test_only_commands_that_do_something_here_are_offered(tmp_path: Path) -> None:
    async with running("live", 120, 40, files=disk_at(tmp_path)) as (app, pilot):

        def names() -> set[str]:
            return {entry.name for entry in all_entries(app.monitor)}

        elsewhere = {"read more often, as in btop", "read less often, as in btop", "write an incident bundle"}
        sideways = {"next: thing, value, columns", "back: thing, value, columns"}
        assert elsewhere <= names()
        await type_keys(app, pilot, "enter")
        assert elsewhere | sideways <= names()
        await type_keys(app, pilot, "escape", "f2")
        assert not elsewhere & names()
        assert sideways <= names()
        assert "zoom the pane, and back" not in names()
        await type_keys(app, pilot, "escape", "3")
        assert not any(name in names() for name in ("filter rows; search a page", "sort the rows"))


async def test_paused_names_the_moment_that_is_shown() -> None:
    feed = feed_of("live")
    async with running(feed) as (app, pilot):
        late = scenes.snapshot(tick=30)
        app.monitor.context.unix_time = lambda: late.wall_s + 50.0
        feed.give(late)
        await until(lambda: app.monitor.shown is late, pilot)
        await type_keys(app, pilot, "space")
        assert "PAUSED at 08:53:52" in text_of(app)[0]


class Ring:
    """An object in a cycle, as a screen that was left."""

    def __init__(self) -> None:
        self.itself = self


async def test_what_was_left_in_a_cycle_goes_by_time_and_not_by_the_number_of_what_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gpumon_app, "_COLLECT_EVERY_S", 0.05)
    async with running("live") as (_, pilot):
        gc.disable()
        try:
            left = weakref.ref(Ring())
            await until(lambda: left() is None, pilot)
        finally:
            gc.enable()

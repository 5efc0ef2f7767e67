"""What is asked at the foot of the screen: filter, sort, words to find; and every command by its name."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
from textual import events
from textual.widgets import Input

from gpumon.config.keymap import COMMANDS
from gpumon.readings.format import cells
from gpumon.tui.app import MonitorApp
from gpumon.tui.pages.detail import DetailPage
from gpumon.tui.screens.questions import MOST_CHOICES
from gpumon.tui.widgets.list_pane import ListPane
from tests.tui.running import commands_of, foot, names_of, question_of, run_named, running, text_of, until
from tests.tui.test_keys import disk_at, feed_of, focused, type_keys


def rows_of(app: MonitorApp, text: str) -> int:
    return sum(text in line for line in text_of(app))


async def test_rows_follow_the_filter_while_it_is_typed_and_escape_brings_them_back() -> None:
    async with running("twelve_engines", 120, 50) as (app, pilot):
        await type_keys(app, pilot, "2", "z")
        assert rows_of(app, "vllm:80") == 12
        await type_keys(app, pilot, "/", *":8003")
        await until(lambda: rows_of(app, "vllm:80") == 1, pilot)
        assert question_of(app)[0].startswith(" filter engines: :8003")
        await type_keys(app, pilot, "escape")
        await until(lambda: rows_of(app, "vllm:80") == 12, pilot)
        assert focused(app) == "engines"
        await type_keys(app, pilot, "/", *":8003", "enter")
        await until(lambda: 'filter ":8003"' in text_of(app)[2], pilot)
        assert rows_of(app, "vllm:80") == 1
        await type_keys(app, pilot, "escape")
        assert rows_of(app, "vllm:80") == 12


def fields_of(app: MonitorApp) -> int:
    """Number of fields of the application that something still refers to."""
    gc.collect()
    return sum(isinstance(thing, Input) and thing.app is app for thing in gc.get_objects())


async def test_a_question_that_was_closed_is_not_kept() -> None:
    async with running("live") as (app, pilot):
        for _ in range(3):
            await type_keys(app, pilot, "/", *"kv", "escape")
            await until(lambda: app.monitor.question_bar is None, pilot)
        await type_keys(app, pilot, "/")
        await until(lambda: app.monitor.question_bar is not None and fields_of(app) == 1, pilot)


async def test_the_cursor_stays_in_sight_of_a_text_too_long_for_its_line() -> None:
    async with running("live", 60, 15) as (app, pilot):
        await type_keys(app, pilot, "/", *("x" * 70), *"YZ")
        await until(lambda: question_of(app)[0].rstrip().endswith("xYZ"), pilot)
        await type_keys(app, pilot, "home", "ctrl+k", *("語" * 40), "Z")
        await until(lambda: question_of(app)[0].rstrip().endswith("語Z"), pilot)
        assert cells(question_of(app)[0]) <= 60


async def test_a_filter_without_a_match_says_so_and_can_be_corrected() -> None:
    async with running("twelve_engines", 120, 50) as (app, pilot):
        await type_keys(app, pilot, "2", "z", "/", *"zzz")
        await until(lambda: 'matches "zzz"' in "\n".join(text_of(app)), pilot)
        await type_keys(app, pilot, *["backspace"] * 3, *"-8003", "enter")
        await until(lambda: rows_of(app, "vllm:80") == 11, pilot)
        await type_keys(app, pilot, "/", "ctrl+u", "enter")
        await until(lambda: rows_of(app, "vllm:80") == 12, pilot)


async def test_q_typed_at_once_with_the_slash_is_text() -> None:
    async with running("live") as (app, pilot):
        await type_keys(app, pilot, "/", *"qwen")
        assert not app._exit
        await until(lambda: question_of(app)[0].startswith(" filter gpus: qwen"), pilot)


async def test_a_paste_is_text_without_control_characters() -> None:
    async with running("live") as (app, pilot):
        await type_keys(app, pilot, "/")
        assert app.monitor.question_bar is not None
        app.post_message(events.Paste("ab\x1b[31m\nrm -rf"))
        await until(lambda: "filter gpus: ab" in question_of(app)[0], pilot)
        assert "\x1b" not in "\n".join(text_of(app))
        assert "rm -rf" not in "\n".join(text_of(app))


async def test_sorting_and_reversing() -> None:
    async with running("live", 120, 40) as (app, pilot):
        pane = app.monitor.panes["gpus"]
        assert isinstance(pane, ListPane)
        await type_keys(app, pilot, "o")
        orders = names_of(app)
        assert orders[0] == "default order"
        await type_keys(app, pilot, "j", "enter")
        await until(lambda: f"by {orders[1]}" in text_of(app)[2], pilot)
        first = text_of(app)[2]
        await type_keys(app, pilot, "o")
        assert app.monitor.question_bar is not None
        assert app.monitor.question_bar.pointed_choice is not None
        assert app.monitor.question_bar.pointed_choice.name == orders[1]
        await type_keys(app, pilot, "enter")
        await until(lambda: text_of(app)[2] != first, pilot)
        await type_keys(app, pilot, "o", "g", "enter")
        await until(lambda: pane.filter.order is None, pilot)


async def test_a_pane_that_can_not_be_sorted_asks_nothing() -> None:
    async with running("live", 120, 40) as (app, pilot):
        await type_keys(app, pilot, "3", "o")
        assert app.monitor.question_bar is None


@pytest.mark.parametrize(("page", "word"), [(("?",), "straight"), (("enter",), "Tensor")])
async def test_words_are_found_on_a_page(page: tuple[str, ...], word: str) -> None:
    async with running("live", 60, 15) as (app, pilot):
        await type_keys(app, pilot, *page)
        word = next(line for line in text_of(app)[4:] if line.strip()).split()[-1]
        await type_keys(app, pilot, "G", "f3", *word, "enter")
        await until(lambda: app.monitor.question_bar is None, pilot)
        assert app.monitor.pages.shown is not None
        assert app.monitor.pages.shown.search.text == word
        assert any(word in line for line in text_of(app)[3:])
        await type_keys(app, pilot, "/", "escape")
        await until(lambda: app.monitor.pages.shown is not None and app.monitor.pages.shown.search.text == "", pilot)


async def test_a_search_counts_its_matches_and_enter_does_not_leave_the_page() -> None:
    async with running("live", 100, 30) as (app, pilot):
        await type_keys(app, pilot, "2", "enter", "/", *"MBU", "enter")
        await until(lambda: app.monitor.question_bar is None, pilot)
        page = app.monitor.pages.shown
        assert isinstance(page, DetailPage)
        thing = page.thing
        count = len(page.search.matches)
        assert count > 2
        assert page.search.count_text() == f"1 of {count}"
        assert any(f'"MBU" 1 of {count}' in line for line in text_of(app))
        await type_keys(app, pilot, "n", "n", "N")
        await until(lambda: any(f'"MBU" 2 of {count}' in line for line in text_of(app)), pilot)
        assert not app.monitor.paused
        await type_keys(app, pilot, "N", "N")
        await until(lambda: page.search.count_text() == f"{count} of {count}", pilot)
        await type_keys(app, pilot, "enter")
        await until(lambda: "this match is no link" in foot(app), pilot)
        assert page.thing == thing
        await type_keys(app, pilot, "escape")
        assert app.monitor.pages.shown is page
        assert not page.search.text
        await type_keys(app, pilot, "enter")
        await until(lambda: page.thing != thing, pilot)


async def test_enter_opens_the_link_that_a_match_is_a_part_of() -> None:
    async with running("live", 100, 30) as (app, pilot):
        await type_keys(app, pilot, "1", "enter", "/", *"vllm:80", "enter", "enter")
        page = app.monitor.pages.shown
        assert isinstance(page, DetailPage)
        await until(lambda: page.thing[0] == "engine", pilot)


async def test_every_command_is_found_by_its_name_and_its_id(tmp_path: Path) -> None:
    async with running("live", 120, 40, files=disk_at(tmp_path)) as (app, pilot):
        await type_keys(app, pilot, ":")
        listed = [command for command in COMMANDS if not command.scope]
        listed = [command for command in listed if command.id not in ("palette", "left", "right")]
        await until(lambda: {command.does for command in listed} <= {*commands_of(app)}, pilot)
        # All are listed, and found alike: some by their name, some by their id.
        for number, wanted in enumerate(listed[::7]):
            text = wanted.does if number % 2 else wanted.id
            await type_keys(app, pilot, "ctrl+u")
            app.post_message(events.Paste(text))
            await until(lambda does=wanted.does: does in commands_of(app), pilot)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("before", "typed", "pane"),
    [
        (("2", "z"), "sort processes by user", "processes"),
        (("f2",), "sort engines by KV", "engines"),
    ],
)
async def test_the_rows_of_any_list_are_sorted_by_name_from_anywhere(
    before: tuple[str, ...], typed: str, pane: str
) -> None:
    async with running("live", 120, 40) as (app, pilot):
        await type_keys(app, pilot, *before)
        await run_named(app, pilot, typed)
        await until(lambda: focused(app) == pane, pilot)
        assert app.monitor.pages.shown is None
        sorted_pane = app.monitor.panes[pane]
        assert isinstance(sorted_pane, ListPane)
        order = sorted_pane.filter.order
        assert order is not None
        assert order.name.startswith(typed.rpartition(" ")[2])


async def test_a_chosen_command_runs_where_the_keys_were() -> None:
    async with running("live", 120, 40) as (app, pilot):
        await type_keys(app, pilot, "2")
        await run_named(app, pilot, "zoom")
        await until(lambda: app.monitor.body.zoomed == "engines", pilot)


async def test_a_theme_is_a_command(tmp_path: Path) -> None:
    async with running("live", 120, 40, files=disk_at(tmp_path)) as (app, pilot):
        before = app.theme
        await run_named(app, pilot, "theme: light")
        await until(lambda: app.view.config.general.theme == "light", pilot)
        assert app.theme != before


@pytest.mark.parametrize(("width", "height"), [(60, 15), (200, 60)])
async def test_a_list_leaves_room_and_scrolls(width: int, height: int) -> None:
    async with running("live", width, height) as (app, pilot):
        await type_keys(app, pilot, "2", "o")
        await until(lambda: len(question_of(app)) == 1 + min(MOST_CHOICES, height // 2, len(names_of(app))), pilot)
        await type_keys(app, pilot, "up", "up", *["pagedown"] * 20)
        last = names_of(app)[-1]
        await until(lambda: last in question_of(app)[-1], pilot)


async def test_a_click_chooses() -> None:
    async with running("live", 120, 40) as (app, pilot):
        await type_keys(app, pilot, "o")
        await until(lambda: len(question_of(app)) > 3, pilot)
        orders = names_of(app)
        await pilot.click(offset=(5, 40 - 1 - len(question_of(app)) + 2))
        await until(lambda: f"by {orders[1]}" in text_of(app)[2], pilot)
        assert focused(app) == "gpus"


async def test_a_snapshot_that_comes_meanwhile_is_shown_and_disturbs_nothing() -> None:
    feed = feed_of("live")
    async with running(feed, 120, 40) as (app, pilot):
        await type_keys(app, pilot, "/", *"800")
        await until(lambda: "800" in question_of(app)[0], pilot)
        before = question_of(app)
        assert feed._snapshot is not None
        feed.give(feed._snapshot)
        await pilot.pause()
        assert question_of(app) == before
        assert app.monitor.question_bar is not None
        assert app.monitor.question_bar.input.has_focus


async def test_a_notice_stands_on_the_line_of_keys_and_goes_with_the_next_key() -> None:
    async with running("live", 80, 24) as (app, pilot):
        before = text_of(app)[:-1]
        app.monitor.say("wrote [b]something[/b]")
        await until(lambda: "wrote [b]something[/b]" in foot(app), pilot)
        assert text_of(app)[:-1] == before
        await type_keys(app, pilot, "j")
        await until(lambda: "quit" in foot(app), pilot)
        assert "wrote" not in "\n".join(text_of(app))


async def test_a_notice_goes_by_itself_and_an_urgent_one_stays() -> None:
    async with running("live", 80, 24) as (app, pilot):
        app.monitor.say("stays", urgent=True)
        await until(lambda: "stays" in foot(app), pilot)
        assert app.monitor.ends_notice is None
        app.monitor.say("goes")
        await until(lambda: "goes" in foot(app), pilot)
        await until(lambda: "quit" in foot(app), pilot)


async def test_a_long_notice_takes_lines_from_the_panes_and_covers_none() -> None:
    words = " ".join(f"word{number}" for number in range(20))
    async with running("live", 80, 24) as (app, pilot):
        app.monitor.say(words)
        await until(lambda: words in foot(app), pilot)
        lines = app.monitor.key_line.size.height
        assert lines > 1
        panes = [part for part in app.monitor.body.parts if part.display]
        assert panes[-1].region.bottom == 24 - lines
        await type_keys(app, pilot, "j")
        await until(lambda: app.monitor.key_line.size.height == 1, pilot)


async def test_a_long_notice_leaves_the_keys_where_they_are() -> None:
    words = " ".join(f"word{number}" for number in range(60))
    async with running("live", 80, 24) as (app, pilot):
        await type_keys(app, pilot, "3")
        history = app.monitor.panes["history"]
        app.monitor.say(words)
        await until(lambda: "word0 " in foot(app), pilot)
        assert app.monitor.key_line.size.height == 2
        assert history.has_focus
        app.monitor.say(words)
        await pilot.resize_terminal(40, 5)
        await until(lambda: len(text_of(app)) == 5, pilot)
        await pilot.resize_terminal(80, 24)
        await until(lambda: len(text_of(app)) == 24, pilot)
        assert "word0 " in foot(app)
        assert history.has_focus
        await type_keys(app, pilot, "2")
        app.monitor.say(words)
        await until(lambda: app.monitor.key_line.size.height == 3, pilot)
        assert app.monitor.panes["engines"].has_focus
        assert not history.display

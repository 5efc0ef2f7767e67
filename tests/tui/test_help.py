"""The help: the keys of what is below first, one command a line; what it says can be typed works."""

from __future__ import annotations

import re

import pytest
from textual import events
from textual.command import CommandPalette

from gpumon.config.keymap import COMMANDS, Keymap
from gpumon.config.schema import Config
from gpumon.tui.pages.help import LEGEND, QUESTIONS, TYPED, HelpPage
from gpumon.tui.widgets.list_pane import ListPane
from tests.tui import scenes
from tests.tui.feed import Still
from tests.tui.past import Kept
from tests.tui.running import commands_of, foot, running, text_of, until


async def help_lines(width: int, *keys: str) -> list[str]:
    """All lines of the help, opened behind these keys."""
    async with running("live", width, 200) as (app, pilot):
        await pilot.press(*keys, "question_mark")
        lines = text_of(app)
        begin = next(number for number, line in enumerate(lines) if line.startswith("─── help"))
        return lines[begin + 1 : -1]


@pytest.mark.parametrize("width", [60, 80, 120, 200])
async def test_each_command_has_one_line_with_all_of_its_keys(width: int) -> None:
    """In black and white keys and their meaning are told apart by two blanks, and gpumon's own cost by a blank line."""
    lines = await help_lines(width)
    page = "\n".join(lines[: lines.index(" glossary: header, name, unit, time it covers")])
    keymap = Keymap()
    for command in COMMANDS:
        if command.scope in ("", "sizing") and keymap.keys[command.id]:
            does = "detail" if command.id == "open" else command.does
            entry = rf"(?m)(?:^| ){re.escape(keymap.shown(command.id))}  +{re.escape(does)}(?:  |$| )"
            assert re.search(entry, f"{page}\n"), command
    assert "…" not in page.replace("– … n/a", "")
    [cost] = [number for number, line in enumerate(lines) if line.startswith(" gpumon itself")]
    assert not lines[cost - 1].strip()


@pytest.mark.parametrize(
    ("keys", "title", "own"),
    [
        ((), "keys of gpus", ("Enter", "/ F3", "o F6", "i", "W")),
        (("2",), "keys of engines", ("Enter", "/ F3", "o F6", "L", "F")),
        (("3",), "keys of history", ("Enter", "<", ">", "R")),
        (("W",), "keys of the wall", ("Enter", "f", "W")),
        (("2", "enter"), "keys of the page", ("L", "F")),
        (("f2",), "keys of settings", ("Enter",)),
        (("s",), "in the sizing panel", ("+ =", "-", "d")),
        (("2", "z", "question_mark", "f2"), "keys of engines", ("Enter", "L", "F")),
    ],
)
async def test_it_begins_with_the_keys_of_what_is_below(
    keys: tuple[str, ...], title: str, own: tuple[str, ...]
) -> None:
    lines = await help_lines(120, *keys)
    assert lines[0] == f" {title}"
    section = lines[1 : lines.index(" where to look")]
    for key in own:
        assert any(f" {key}  " in line for line in section), key


async def test_at_80x24_the_keys_of_the_pane_and_where_to_look_are_on_the_first_screen() -> None:
    async with running("live", 80, 24) as (app, pilot):
        await pilot.press("question_mark")
        page = text_of(app)
        assert page[2].startswith("─── help ──")
        assert page[3] == " keys of gpus"
        for asked, _ in QUESTIONS:
            assert any(line.startswith(f" {asked}") for line in page[4:14])
        await pilot.press("pagedown", "pagedown")
        below = "\n".join(text_of(app))
        assert all(mark in below for mark, _ in LEGEND)


@pytest.mark.parametrize("example", [example for example, _ in TYPED if example[0] == ":"])
async def test_what_can_be_typed_as_a_command_works(example: str) -> None:
    feed = Still(scenes.snapshot(), scenes.history(scenes.snapshot()))
    feed.timeline = Kept([scenes.snapshot(tick=tick) for tick in range(-1300, 1)])
    async with running(feed, 120, 40) as (app, pilot):
        await pilot.press("2", "colon")
        app.post_message(events.Paste(example[1:]))
        await until(lambda: 0 < len(commands_of(app)) < 40, pilot)
        await pilot.press("enter")
        await until(lambda: not isinstance(app.screen, CommandPalette), pilot)
        if example == ":sort":
            await until(lambda: app.monitor.question_bar is not None, pilot)
        elif example == ":-20m":
            await until(lambda: app.monitor.travel.paused, pilot)
        else:  # nothing is kept of that time
            await until(lambda: "03:10 is not kept here" in foot(app), pilot)


@pytest.mark.parametrize(
    ("example", "left"),
    [("/llama -8b", 1), ("/kv>80", 1), ("/ttft>500ms", 1), ("/gpu7", 1)],
)
async def test_what_can_be_typed_as_a_filter_works(example: str, left: int) -> None:
    assert example in [typed for typed, _ in TYPED]
    snapshot = scenes.SCENES["triage"]()
    async with running(Still(snapshot, scenes.history(snapshot)), 120, 40) as (app, pilot):
        await pilot.press("2", "slash")
        app.post_message(events.Paste(example[1:]))
        await pilot.press("enter")
        pane = app.monitor.panes["engines"]
        assert isinstance(pane, ListPane)
        await until(lambda: pane.filter.text == example[1:], pilot)
        assert len(pane.filter.passing(snapshot.engines, pane.scene())) == left


async def test_a_bound_in_the_palette_filters_all_panes() -> None:
    async with running("triage", 120, 40) as (app, pilot):
        await pilot.press("colon")
        app.post_message(events.Paste("kv>80"))
        await until(lambda: commands_of(app) == ["filter all panes: kv>80"], pilot)
        await pilot.press("enter")
        await until(lambda: app.monitor.view.everywhere == "kv>80", pilot)


async def test_the_help_says_how_to_scroll_where_it_does_not_fit() -> None:
    async with running("live", 60, 15) as (app, pilot):
        await pilot.press("question_mark")
        top = text_of(app)
        assert " of " in top[2]
        assert top[2].endswith("↓ ↑ ─")
        await pilot.press("G")
        assert "assumed" in text_of(app)[-2], "the last word of the glossary"
        await pilot.press("g")
        assert text_of(app) == top
        await pilot.press("j", "k", "pagedown", "pageup")
        assert text_of(app) == top


async def test_the_next_section_may_be_asked_for_before_the_help_has_its_width_again() -> None:
    async with running("live", 80, 24) as (app, pilot):
        await pilot.press("question_mark", "escape")
        app.monitor.action_do("help")
        app.monitor.action_do("pane.next")
        await until(lambda: "─── help ──" in "\n".join(text_of(app)), pilot)


async def test_the_help_names_the_users_own_keys() -> None:
    async with running("live", 80, 24, config=Config(keys={"sort": "S", "open": "d", "save": ""})) as (app, pilot):
        await pilot.press("question_mark")
        page = "\n".join(text_of(app))
        assert "1 then S: waste" in page
        assert "d on its row" in page
        assert "write what is shown" not in page


def test_help_texts_have_no_command_that_does_not_exist() -> None:
    ids = {f"{{{command.id}}}" for command in COMMANDS}
    for _, answer in QUESTIONS:
        for name in ids:
            answer = answer.replace(name, "")
        assert "{" not in answer
    assert HelpPage.command == ""

"""Every key does what the table of keys says, on the real application, and no key does harm anywhere."""

from __future__ import annotations

import asyncio
import math
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual.command import CommandList, CommandPalette
from textual.keys import _character_to_key
from textual.pilot import Pilot

from gpumon.commands.files import ScreenFiles
from gpumon.config.keymap import COMMANDS, Command, Keymap
from gpumon.config.load import load
from gpumon.config.schema import Config
from gpumon.config.themes import load_theme
from gpumon.readings.snapshot import Self
from gpumon.tui.app import MonitorApp
from gpumon.tui.control import INTERVALS_S
from gpumon.tui.layout import PANES
from gpumon.tui.widgets.list_pane import ListPane
from tests.records import replace
from tests.tui import scenes
from tests.tui.feed import Still, file_log
from tests.tui.past import Kept
from tests.tui.running import commands_of, foot, running, settle, text_of, until

BY_ID = {command.id: command for command in COMMANDS}
LEAVES = ("quit", "suspend")


def name_of(key: str) -> str:
    """A key as Textual names it."""
    return _character_to_key(key) if len(key) == 1 else key


def event(key: str) -> events.Key:
    return events.Key(name_of(key), key if len(key) == 1 else None)


async def type_keys(app: MonitorApp, pilot: Pilot[int], *keys: str) -> None:
    """Keys that come at once, as from a fast line; they are all answered when this returns."""
    for key in keys:
        app.post_message(event(key))
    await settle(pilot)


async def type_fast(app: MonitorApp, *keys: str) -> None:
    """As `type_keys`, without the time that Pilot waits for good measure: for hundreds of keys."""
    for key in keys:
        app.post_message(event(key))
    loop: Any = asyncio.get_running_loop()
    idle = 0
    while idle < 3:
        await asyncio.sleep(0)
        idle = 0 if loop._ready else idle + 1


def focused(app: MonitorApp) -> str:
    return next((name for name, pane in app.monitor.panes.items() if pane.has_focus), "")


def feed_of(scene: str) -> Still:
    snapshot = scenes.SCENES[scene]()
    return Still(snapshot, scenes.history(snapshot))


def feed_with_past(scene: str) -> Still:
    """A feed whose past can be gone through."""
    feed = feed_of(scene)
    feed.timeline = Kept([scenes.snapshot(tick=tick) for tick in range(-99, 1)])
    return feed


def signals_sent(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The signals that are sent to processes from now on: none reaches one."""
    signalled: list[object] = []
    for module, name in ((os, "kill"), (os, "killpg"), (signal, "pidfd_send_signal"), (signal, "raise_signal")):
        monkeypatch.setattr(module, name, lambda *arguments: signalled.append(arguments), raising=False)
    return signalled


def disk_at(folder: Path, text: str = "") -> ScreenFiles:
    """Real files in an own folder."""
    path = folder / "config.toml"
    path.write_text(text)
    return ScreenFiles(load(str(path), {}), {"HOME": str(folder)})


REQUESTS = """INFO:     10.0.0.9:1 - "POST /v1/rerank HTTP/1.1" 503 Service Unavailable
INFO:     10.0.0.9:1 - "POST /v1/completions HTTP/1.1" 200 OK
"""
CONTEXT: dict[str, tuple[str, ...]] = {
    "up": ("down", "down"),
    "page.up": ("end",),
    "top": ("end",),
    "back": ("?",),
    "pane.gpus": ("2",),
    "left": ("f2",),
    "right": ("f2",),
    "log": ("2",),
    "requests": ("2",),
    **{command.id: ("s",) for command in COMMANDS if command.scope},
    **{command.id: ("2", "L") for command in COMMANDS if command.scope == "log"},
    **{command.id: ("2", "F") for command in COMMANDS if command.scope == "requests"},
    **dict.fromkeys(("time.forth", "time.minute.forth", "time.frame.forth", "time.next", "time.live"), ("{",)),
    "time.frame.back": ("space",),
    "time.oldest": ("space",),
    "sizing.undo": ("s", "+"),
    "sizing.redo": ("s", "+", "u"),
    "sizing.reset": ("s", "+"),
}
"""What is pressed before a command can be seen to do something; most can at once."""


PRESSES: dict[str, list[tuple[Command, str]]] = {}
"""Commands and their keys that one application takes one after the other: a few, so that a failure has a short way.
Those of a fleet's table do nothing on the screen of a host."""
for _number, _command in enumerate(one for one in COMMANDS if one.id not in LEAVES and one.scope != "fleet"):
    _walk = f"{_command.scope or 'everywhere'} {_number // 12}"
    PRESSES.setdefault(_walk, []).extend((_command, key) for key in _command.keys)


@pytest.mark.parametrize("walk", PRESSES)
async def test_every_key_does_something_that_can_be_seen(
    walk: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    feed = feed_with_past("sixteen_gpus")
    (tmp_path / "vllm.log").write_text("INFO up\nERROR boom\n" + "INFO serves\n" * 99 + REQUESTS)
    feed.logs = {engine.key: file_log(tmp_path / "vllm.log") for engine in scenes.SCENES["sixteen_gpus"]().engines}
    async with running(feed, files=disk_at(tmp_path)) as (app, pilot):
        for command, key in PRESSES[walk]:
            assert command.id in app.monitor.commands, f"no function does {command.id}: tui/screens/commands.py"
            await type_keys(app, pilot, *["escape"] * 4)
            if app.monitor.travel.paused:
                await type_keys(app, pilot, "p")
            await type_keys(app, pilot, "1", "g", *CONTEXT.get(command.id, ()))
            before = text_of(app)
            read = feed.refreshed
            await type_keys(app, pilot, key)
            if command.id == "redraw":
                assert feed.refreshed == read + 1
            else:
                await until(lambda before=before: text_of(app) != before, pilot)  # type: ignore[misc]
            assert not app._exit, command.id


STEPS = [(), ("?",), ("/", "x"), (":",), ("i",), ("enter", "/", "M", "enter"), ("s", "1"), ("space",)]
"""Keys to every kind of place: a page, a question, the palette, the cells, a search, the panel, the past."""


@pytest.mark.parametrize("before", STEPS)
async def test_ctrl_c_quits_at_once(before: tuple[str, ...]) -> None:
    feed = feed_of("live")
    async with running(feed) as (app, pilot):
        await type_keys(app, pilot, *before, "ctrl+c")
        await until(lambda: app._exit, pilot)
    assert feed.stopped == 1


@pytest.mark.parametrize(
    ("before", "key"),
    [(("?",), "q"), (("enter",), "f10"), (("z",), "q"), (("s",), "f10"), (("/", "8", "0", "0", "3", "enter"), "q")],
)
async def test_quit_goes_back_first_and_quits_on_the_first_screen(before: tuple[str, ...], key: str) -> None:
    feed = feed_of("live")
    async with running(feed) as (app, pilot):
        await type_keys(app, pilot, "2")
        first = text_of(app)
        await type_keys(app, pilot, *before)
        assert text_of(app) != first
        await type_keys(app, pilot, key)
        await until(lambda: text_of(app) == first, pilot)
        assert not app._exit
        await type_keys(app, pilot, key)
        await until(lambda: app._exit, pilot)
    assert feed.stopped == 1


async def test_edits_of_the_sizing_panel_are_named_once_before_they_are_lost() -> None:
    async with running("live") as (app, pilot):
        await type_keys(app, pilot, "s", "plus", "q")
        assert not app.monitor.dock.open
        await type_keys(app, pilot, "q")
        await until(lambda: "1 change in sizing not saved: q again quits, s w saves" in foot(app), pilot)
        assert not app._exit
        await type_keys(app, pilot, "q")
        await until(lambda: app._exit, pilot)


@pytest.mark.parametrize("before", ["/", ":", "o"])
async def test_only_ctrl_c_quits_while_the_drawer_has_the_keys(before: str) -> None:
    async with running("live") as (app, pilot):
        await type_keys(app, pilot, before, "q")
        assert not app._exit
        await type_keys(app, pilot, "ctrl+c")
        await until(lambda: app._exit, pilot)


async def test_the_shell_is_a_key_away_even_while_typing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running("live") as (app, pilot):
        asked: list[bool] = []
        monkeypatch.setattr(app, "action_suspend_process", lambda: asked.append(True))
        await type_keys(app, pilot, "ctrl+z")
        await type_keys(app, pilot, "/", "a", "ctrl+z")
        assert len(asked) == 2


async def test_a_character_that_suspends_is_text_while_typing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = disk_at(tmp_path, '[keys]\nsuspend = "x, ctrl+z"\n')
    async with running("live", config=disk.settings) as (app, pilot):
        asked: list[bool] = []
        monkeypatch.setattr(app, "action_suspend_process", lambda: asked.append(True))
        await type_keys(app, pilot, "/", *"axb", "ctrl+z")
        assert len(asked) == 1
        assert app.monitor.question_bar is not None
        assert app.monitor.question_bar.input.value == "axb"
        await type_keys(app, pilot, "escape", "x")
        assert len(asked) == 2


PLACES: dict[str, tuple[str, ...]] = {
    **{name: (str(number),) for number, name in enumerate(PANES, start=1)},
    "zoomed": ("2", "z"),
    "paused": ("p",),
    "back in time": ("{",),
    "help": ("?",),
    "detail": ("1", "enter"),
    "settings": ("f2",),
    "filter": ("1", "/"),
    "sort": ("1", "o"),
    "palette": (":",),
    "number": ("f2", "g", "enter"),
    "choices": ("f2", "g", "j", "j", "enter"),
    "columns": ("f2", "g", *"jjjjjjjjj", "enter"),
    "sizing": ("s",),
    "sizing fields": ("s", "enter"),
    "sizing number": ("s", "5"),
    "sizing model": ("s", "a"),
}
"""Panes, pages and everything that the drawer asks, and the keys that lead there."""
SIZES = {"large": (80, 24), "small": (60, 15), "tiny": (40, 5)}
EVERY_KEY = [
    *dict.fromkeys(command.keys[0] for command in COMMANDS if command.keys and command.id not in LEAVES),
    *("left", "right", "backspace", "delete", "insert", "x", "K", "9", "d", "ctrl+k", "ctrl+d", "f9", "comma", "§"),
]


def place_of(app: MonitorApp) -> tuple[object, ...]:
    monitor = app.monitor
    return (
        monitor.pages.shown,
        app.screen,
        monitor.focused,
        monitor.body.zoomed,
        monitor.travel.paused,
    )


OFTEN = {
    "gpus": "tiny",
    "history": "small",
    "settings": "large",
    "palette": "small",
    "sizing": "small",
    "sizing number": "large",
}
"""Places where each key is pressed at every run, and the size of the screen: one of each kind of thing that takes
keys, and the least screen, on which no pane is to be seen."""


@pytest.mark.parametrize(
    ("place", "size"),
    [
        *OFTEN.items(),
        *(
            pytest.param(place, size, marks=pytest.mark.wide)
            for place in PLACES
            for size in SIZES
            if OFTEN.get(place) != size
        ),
    ],
)
async def test_no_key_does_harm_anywhere(
    place: str, size: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    signalled = signals_sent(monkeypatch)
    feed = feed_with_past("one_lost")
    async with running(feed, *SIZES[size], files=disk_at(tmp_path)) as (app, pilot):
        back = ("escape", "escape", "escape", "escape")
        await type_keys(app, pilot, *PLACES[place])
        there = place_of(app)
        left = 0
        for key in EVERY_KEY:
            await type_fast(app, key)
            shown = "\n".join(text_of(app))
            assert not app._exit, key
            assert "failed" not in shown, (key, shown)
            if place_of(app) != there:
                left += 1
                pause = ("p",) if app.monitor.travel.paused and app.monitor.question_bar is None else ()
                await type_fast(app, *back, *pause, *PLACES[place])
                there = place_of(app)
        await type_keys(app, pilot, *back)
        assert not app._exit
        assert app.monitor.pages.shown is None
        assert app.monitor.question_bar is None
        assert left >= 1
    assert signalled == []


async def test_escape_never_quits_and_leads_back_from_everywhere() -> None:
    async with running("live") as (app, pilot):
        await type_keys(app, pilot, "1", "g")
        await until(lambda: "Enter detail" in foot(app), pilot)
        # Without the title, which says how old the reading is that this feed never renews.
        before = text_of(app)[2:]
        for keys in (*PLACES.values(), *STEPS):
            await type_keys(app, pilot, *keys)
            await type_keys(app, pilot, *["escape"] * 5)
            if app.monitor.travel.paused:
                await type_keys(app, pilot, "p")
            assert not app._exit
            assert app.screen is app.monitor
            assert app.monitor.pages.shown is None
            assert app.monitor.question_bar is None
        await type_keys(app, pilot, "1", "g")
        await until(lambda: text_of(app)[2:] == before, pilot)


async def test_keys_work_on_a_screen_that_shows_a_summary_only() -> None:
    async with running("live", 40, 5) as (app, pilot):
        await type_keys(app, pilot, *(key for key in EVERY_KEY if key not in ("space", "p")))
        assert text_of(app)[0].startswith("8 GPU")
        await type_keys(app, pilot, "space")
        assert text_of(app)[0].startswith("PAUSED 8 GPU")


REMAPPED = {
    "zoom": ("F5, x", "z", ("f5", "x")),
    "pane.engines": ("ctrl+e", "2", ("ctrl+e",)),
    "help": ("h", "?", ("h",)),
    "span.longer": ("'", ">", ("'",)),
    "settings": ("alt+s", "f2", ("alt+s",)),
    "filter": ("ctrl+_", "/", ("ctrl+underscore",)),
}


async def test_a_remapped_key_does_it_and_the_old_one_does_not(tmp_path: Path) -> None:
    disk = disk_at(tmp_path, "[keys]\n" + "".join(f'"{name}" = "{own}"\n' for name, (own, _, _) in REMAPPED.items()))
    async with running("live", config=disk.settings) as (app, pilot):
        for old, key in ((old, key) for _, old, new in REMAPPED.values() for key in new):
            await type_keys(app, pilot, *["escape"] * 3, "1")
            before = text_of(app)
            await type_keys(app, pilot, old)
            assert text_of(app) == before, old
            await type_keys(app, pilot, key)
            await until(lambda before=before: text_of(app) != before, pilot)  # type: ignore[misc]


async def test_two_keys_exchanged_and_one_taken_away(tmp_path: Path) -> None:
    disk = disk_at(tmp_path, '[keys]\nzoom = "o"\nsort = "z"\npane.engines = ""\n')
    async with running("live", config=disk.settings) as (app, pilot):
        await type_keys(app, pilot, "o")
        assert app.monitor.body.zoomed == "gpus"
        await type_keys(app, pilot, "o", "z")
        assert app.monitor.body.zoomed == ""
        assert "sort gpus by" in "\n".join(text_of(app))
        await type_keys(app, pilot, "escape", "2")
        assert focused(app) == "gpus"


async def test_help_palette_and_key_line_show_the_keys_in_effect(tmp_path: Path) -> None:
    disk = disk_at(tmp_path, '[keys]\nhelp = "F4"\nquit = "Q"\nfilter = "ctrl+f"\n')
    async with running("live", 120, 40, config=disk.settings) as (app, pilot):
        line = foot(app)
        assert line.startswith(" F4 help")
        assert line.endswith("Q quit")
        assert "ctrl+f filter" in line
        await type_keys(app, pilot, "f4")
        shown = "\n".join(text_of(app))
        assert "ctrl+f" in shown
        assert " F4 " in shown
        await type_keys(app, pilot, "escape", ":")
        await until(lambda: any(re.search(r"search a page +ctrl\+f +filter", text) for text in text_of(app)), pilot)


@pytest.mark.parametrize(("key", "back"), [("?", "f1"), ("f1", "escape")])
async def test_help_and_back(key: str, back: str) -> None:
    async with running("live", 120, 60) as (app, pilot):
        before = text_of(app)
        await type_keys(app, pilot, key)
        shown = " ".join(text_of(app)).split()
        of_hosts = [command for command in COMMANDS if command.scope != "fleet"]
        for command in of_hosts:
            assert set(app.view.keymap.shown(command.id).split()) <= set(shown), command.id
        await type_keys(app, pilot, back)
        await until(lambda: text_of(app) == before, pilot)


async def test_help_scrolls_where_it_does_not_fit_and_q_still_quits() -> None:
    async with running("live", 60, 15) as (app, pilot):
        await type_keys(app, pilot, "?")
        top = text_of(app)
        await type_keys(app, pilot, "G")
        assert text_of(app) != top
        await type_keys(app, pilot, "g")
        assert text_of(app) == top
        await type_keys(app, pilot, "pagedown")
        assert text_of(app) != top
        await type_keys(app, pilot, "pageup", "up", "k")
        assert text_of(app) == top
        await type_keys(app, pilot, "q", "q")
        await until(lambda: app._exit, pilot)


@pytest.mark.parametrize("key", ["q", "escape"])
async def test_what_leads_back_lets_a_frozen_display_go_on_and_ends_nothing(key: str) -> None:
    async with running(feed_of("live")) as (app, pilot):
        await type_keys(app, pilot, "space")
        assert "PAUSED" in text_of(app)[0]
        await type_keys(app, pilot, key)
        await until(lambda: "PAUSED" not in text_of(app)[0], pilot)
        assert not app._exit
        await type_keys(app, pilot, "q")
        await until(lambda: app._exit, pilot)


@pytest.mark.parametrize("key", ["space", "p"])
async def test_pause_freezes_the_display_and_nothing_else(key: str) -> None:
    feed = feed_of("live")
    async with running(feed) as (app, pilot):
        await type_keys(app, pilot, key)
        frozen = text_of(app)
        assert "PAUSED" in frozen[0]
        assert "resume" in frozen[-1]
        later = replace(
            scenes.snapshot(tick=5), gpus=tuple(replace(gpu, busy_ratio=0.11) for gpu in scenes.snapshot().gpus)
        )
        feed.give(later)
        await until(lambda: app.monitor.latest is later, pilot)
        assert text_of(app) == frozen
        await type_keys(app, pilot, key)
        await until(lambda: " 11% " in text_of(app)[4], pilot)
        assert "PAUSED" not in text_of(app)[0]


async def test_a_paused_display_is_the_same_after_a_resize_and_a_zoom() -> None:
    feed = feed_of("live")
    async with running(feed, 120, 40) as (app, pilot):
        await type_keys(app, pilot, "space", "3", "z")
        zoomed = text_of(app)
        await type_keys(app, pilot, "z")
        frozen = text_of(app)
        for tick in range(1, 60):
            later = scenes.snapshot(tick=tick)
            feed.history.append(later.wall_s, dict.fromkeys(feed.history.keys(), 0.0))
            feed.give(later)
        await until(lambda: app.monitor.latest is later, pilot)
        await type_keys(app, pilot, "z")
        assert text_of(app) == zoomed
        await type_keys(app, pilot, "z")
        await pilot.resize_terminal(80, 24)
        await pilot.resize_terminal(120, 40)
        await until(lambda: text_of(app) == frozen, pilot)


async def test_keys_count_in_the_order_of_typing_whatever_has_the_focus_meanwhile() -> None:
    """The pane that had the focus may be busy while the question gets it."""
    async with running("live", 120, 40) as (app, pilot):
        await type_keys(app, pilot, "2", "/")
        pane = app.monitor.panes["engines"]
        question = app.monitor.question_bar
        assert isinstance(pane, ListPane)
        assert question is not None
        app.monitor.set_focus(pane)
        pane.call_later(asyncio.sleep, 0.5)
        await type_fast(app, "a", "b")
        app.monitor.set_focus(question.input)
        await type_fast(app, "c", "enter")
        await until(lambda: app.monitor.question_bar is None, pilot)
        assert pane.filter.text == "abc"


async def test_what_is_pasted_counts_in_its_turn_among_the_keys() -> None:
    async with running("live", 120, 40) as (app, pilot):
        app.post_message(event("2"))
        app.post_message(event("/"))
        app.post_message(events.Paste("bc"))
        await type_fast(app, "d", "enter")
        await until(lambda: app.monitor.question_bar is None, pilot)
        pane = app.monitor.panes["engines"]
        assert isinstance(pane, ListPane)
        assert pane.filter.text == "bcd"


@pytest.mark.parametrize("typed", [(), ("x",), ("a", "b", "backspace")])
async def test_a_key_behind_the_escape_of_the_palette_is_the_screens(typed: tuple[str, ...]) -> None:
    async with running("live", 120, 40) as (app, pilot):
        await type_fast(app, "2", ":", *typed, "escape", "3")
        await until(lambda: focused(app) == "history", pilot)


async def test_a_search_of_the_palette_that_finds_no_list_ends_no_screen() -> None:
    async with running("live", 120, 40) as (app, pilot):
        await pilot.press("colon")
        await until(lambda: isinstance(app.screen, CommandPalette) and commands_of(app) != [], pilot)
        await app.screen.query(CommandList).remove()  # as the end of the screen does
        await pilot.press("z")
        await settle(pilot)
        await pilot.press("escape")
        await until(lambda: app.screen is app.front, pilot)
        assert app.return_code is None


async def test_the_key_line_has_the_new_interval_when_the_notice_ends() -> None:
    async with running("live", 120, 40) as (app, pilot):
        await type_keys(app, pilot, "+")
        app.monitor.hush()
        await until(lambda: "+ - every 2 s" in foot(app), pilot)


async def test_pause_before_the_first_snapshot_does_nothing() -> None:
    feed = Still(None)
    app = MonitorApp(feed, load_theme("default"))
    async with app.run_test(size=(80, 24)) as pilot:
        await type_keys(app, pilot, "space", "w", ":", "escape", "f2", "escape", "enter")
        assert "starting" in text_of(app)[0]
        assert not app.monitor.travel.paused


async def test_the_refresh_rate_goes_through_its_steps() -> None:
    feed = feed_of("live")
    async with running(feed) as (app, pilot):
        assert "every 1 s" in foot(app)
        await type_keys(app, pilot, "-")
        assert feed.interval_s == 0.5
        await until(lambda: "every 0.5 s" in foot(app), pilot)
        await type_keys(app, pilot, "-", "-")
        assert feed.interval_s == min(INTERVALS_S)
        await type_keys(app, pilot, "+")
        assert feed.interval_s == 0.5
        feed.interval_s = 30.0
        await type_keys(app, pilot, "+", "+")
        assert feed.interval_s == max(INTERVALS_S)
        await until(lambda: "every 60 s" in foot(app), pilot)


async def test_a_rate_between_the_steps_goes_to_the_next_one() -> None:
    feed = feed_of("live")
    feed.interval_s = 3.0
    async with running(feed) as (app, pilot):
        await type_keys(app, pilot, "+")
        assert feed.interval_s == 5.0
        feed.interval_s = 3.0
        await type_keys(app, pilot, "-")
        assert feed.interval_s == 2.0


async def test_panes_by_number_and_in_turn() -> None:
    async with running("live", 160, 50) as (app, pilot):
        assert focused(app) == "gpus"
        for number, name in enumerate(PANES, start=1):
            await type_keys(app, pilot, str(number))
            assert focused(app) == name
        for name in PANES:
            await type_keys(app, pilot, "tab")
            assert focused(app) == name
        for name in [*PANES[::-1][1:], PANES[-1]]:
            await type_keys(app, pilot, "shift+tab")
            assert focused(app) == name


MOVES: list[tuple[list[str], int]] = [
    (["down"], 1),
    (["j", "j"], 2),
    (["down", "up"], 0),
    (["j", "j", "k"], 1),
    (["G"], 15),
    (["G", "g"], 0),
    (["end", "home"], 0),
    (["pagedown", "pageup"], 0),
    (["up"], 0),
    (["G", "down"], 15),
]
"""Keys from the first row on, and the row that they lead to."""


async def test_the_cursor_moves_and_stays_in_view() -> None:
    async with running("sixteen_gpus") as (app, pilot):
        await type_keys(app, pilot, "W")
        for keys, row in MOVES:
            await type_keys(app, pilot, "g", *keys)
            marked = [line for line in text_of(app) if line.startswith("▸")]
            assert [line.split()[0].lstrip("▸") or line.split()[1] for line in marked] == [str(row)], keys


@pytest.mark.parametrize("back", ["z", "escape"])
async def test_zoom_gives_a_pane_the_screen(back: str) -> None:
    async with running("twelve_engines") as (app, pilot):
        before = text_of(app)
        await type_keys(app, pilot, "2", "z")
        zoomed = text_of(app)
        assert zoomed[2].startswith("─2─ engines")
        assert sum("vllm:80" in line for line in zoomed) == 12
        assert "all panes" in zoomed[2]
        await type_keys(app, pilot, back, "1")
        await until(lambda: text_of(app) == before, pilot)


async def test_zoom_on_a_page_says_why_it_does_nothing() -> None:
    async with running("live") as (app, pilot):
        await type_keys(app, pilot, "?", "z")
        await until(lambda: "this has the whole screen: Esc shows the panes" in text_of(app)[-1], pilot)


async def test_a_pane_without_a_place_gets_the_screen_by_its_key() -> None:
    async with running("live", 60, 15) as (app, pilot):
        await type_keys(app, pilot, "3")
        assert text_of(app)[2].startswith("─3─ history")
        assert focused(app) == "history"
        await type_keys(app, pilot, "escape")
        assert text_of(app)[2].startswith("─1─ gpus")
        assert focused(app) == "gpus"
        await type_keys(app, pilot, "tab")
        assert focused(app) == "engines"
        await type_keys(app, pilot, "3", "1")
        assert focused(app) == "gpus"
        assert text_of(app)[2].startswith("─1─ gpus")


@pytest.mark.parametrize(("keys", "zoomed"), [("5z", "triage"), ("2z3", "history"), ("3z1z", "")])
async def test_keys_typed_at_once_act_on_the_pane_last_asked_for(keys: str, zoomed: str) -> None:
    async with running("one_lost") as (app, pilot):
        await type_keys(app, pilot, *keys)
        await until(lambda: app.monitor.body.zoomed == zoomed, pilot)


async def test_a_tab_pressed_twice_at_once_goes_two_panes_on() -> None:
    async with running("live") as (app, pilot):
        await type_keys(app, pilot, "tab", "tab")
        await until(lambda: focused(app) == "history", pilot)


async def test_nothing_zooms_where_there_is_no_pane_to_see() -> None:
    async with running("live", 40, 5) as (app, pilot):
        await type_keys(app, pilot, "4", "z")
        await pilot.resize_terminal(80, 24)
        assert app.monitor.body.zoomed == ""
        await until(lambda: "─2─ engines" in "\n".join(text_of(app)), pilot)


@pytest.mark.parametrize("key", ["r", "ctrl+l"])
async def test_redraw_reads_now(key: str) -> None:
    feed = feed_of("live")
    async with running(feed) as (app, pilot):
        before = text_of(app)
        await type_keys(app, pilot, key)
        assert feed.refreshed == 1
        assert text_of(app) == before


async def test_a_click_focuses_and_the_wheel_scrolls() -> None:
    async with running("sixteen_gpus") as (app, pilot):
        await type_keys(app, pilot, "W")
        engines = next(at for at, line in enumerate(text_of(app)) if line.startswith("─2─"))
        await pilot.click(offset=(5, engines + 2))
        assert focused(app) == "engines"
        await pilot.click(offset=(5, 5))
        assert focused(app) == "gpus"
        await until(lambda: text_of(app)[5].startswith("▸"), pilot)
        before = text_of(app)
        await pilot._post_mouse_events([events.MouseScrollDown], offset=(5, 5), button=0)
        await until(lambda: text_of(app) != before, pilot)
        await pilot._post_mouse_events([events.MouseScrollUp], offset=(5, 5), button=0)
        await until(lambda: text_of(app) == before, pilot)


async def test_a_key_behind_a_click_counts_after_it_however_busy_the_pane_is() -> None:
    """A slow line brings both in one read: Enter opens the row that was clicked on."""
    async with running("live", 120, 40) as (app, pilot):
        pane = app.monitor.panes["engines"]
        x = pane.region.x + 3
        y = next(number for number, line in enumerate(text_of(app)) if "vllm:8002" in line)
        pane.call_later(asyncio.sleep, 0.5)
        for kind in (events.MouseDown, events.MouseUp):
            app.post_message(kind(None, x, y, 0, 0, 1, False, False, False, screen_x=x, screen_y=y))
        await type_fast(app, "enter")
        await until(lambda: app.monitor.pages.shown is not None, pilot)
        assert "engine vllm:8002" in text_of(app)[2]


async def test_a_double_click_opens_the_row() -> None:
    async with running("sixteen_gpus") as (app, pilot):
        await type_keys(app, pilot, "W")
        await pilot.click(offset=(5, 6), times=2)
        await until(lambda: app.monitor.pages.name == "detail", pilot)
        assert any("gpu 2" in line for line in text_of(app)[:4])


async def test_a_click_on_a_header_sorts_and_the_next_one_reverses() -> None:
    async with running("sixteen_gpus") as (app, pilot):
        await type_keys(app, pilot, "W")
        pane = app.monitor.panes["gpus"]
        assert isinstance(pane, ListPane)
        head = next(at for at, line in enumerate(text_of(app)) if " mfu " in line)
        at = text_of(app)[head].index(" mfu ") + 1
        await pilot.click(offset=(at, head))
        await until(lambda: "by MFU ↓" in " ".join(text_of(app)), pilot)
        assert pane.filter.order is not None
        await pilot.click(offset=(at, head))
        await until(lambda: "by MFU ↑" in " ".join(text_of(app)), pilot)


async def test_a_click_on_the_line_of_keys_presses_the_key() -> None:
    async with running("sixteen_gpus") as (app, pilot):
        await pilot.click(offset=(foot(app).index("? help"), 23))
        await until(lambda: app.monitor.pages.name == "help", pilot)
        await pilot.click(offset=(foot(app).index("back"), 23))
        await until(lambda: app.monitor.pages.name == "", pilot)
        await pilot.click(offset=(foot(app).index("pause"), 23))
        await until(lambda: app.monitor.paused, pilot)
        await pilot.click(offset=(foot(app).index("resume"), 23))
        await until(lambda: not app.monitor.paused, pilot)
        await pilot.click(offset=(foot(app).index("q quit"), 23))
        await until(lambda: app._exit, pilot)


async def test_a_burst_of_snapshots_shows_the_newest_alone() -> None:
    feed = feed_of("live")
    async with running(feed) as (app, pilot):
        painted = []
        show = app.monitor.show
        app.monitor.show = lambda snapshot: (painted.append(snapshot), show(snapshot))[1]  # type: ignore[method-assign]
        burst = [scenes.snapshot(tick=tick) for tick in range(50)]
        for snapshot in burst:
            feed.give(snapshot)
        await until(lambda: app.monitor.shown is burst[-1], pilot)
        assert len(painted) <= 3


async def test_a_resize_storm_ends_at_the_last_size() -> None:
    async with running("live") as (app, pilot):
        expected = text_of(app)
        for width, height in ((200, 60), (1, 1), (20, 3), (60, 15), (500, 10), (79, 24), (3, 200), (120, 40), (80, 24)):
            await pilot.resize_terminal(width, height)
        await until(lambda: text_of(app) == expected, pilot)


COSTS = {0.011: "1.1%", 0.0: "0.0%", 0.2: "20%", math.nan: "–", 0.3: "30%", -1.0: "–", 0.4: "40%", math.inf: "–"}
"""Its own share of a core, as a reading and as it is shown; no two in a row are shown alike."""


async def test_its_own_cost_is_a_share_or_a_dash() -> None:
    feed = Still(scenes.snapshot())
    async with running(feed, 120, 100) as (app, pilot):
        await pilot.press("question_mark")
        for cpu, shown in COSTS.items():
            feed.give(replace(scenes.snapshot(), self_cost=Self(cpu, 6e7)))
            line = f" gpumon itself  {shown} of one core, 60.0MB of memory"
            await until(lambda line=line: line in text_of(app), pilot)  # type: ignore[misc]


async def test_a_late_collector_is_named() -> None:
    feed = feed_of("live")
    async with running(feed) as (app, pilot):
        app.monitor._arrived_s -= 12.0
        app.monitor._painted_s = 0.0
        await until(lambda: "no reading for 1" in text_of(app)[0], pilot)
        feed.give(scenes.snapshot(tick=1))
        await until(lambda: "no reading" not in text_of(app)[0], pilot)


def test_the_defaults_of_the_config_are_the_keys_of_the_table() -> None:
    assert Keymap(Config().keys).keys == {command.id: command.keys for command in COMMANDS}
    assert BY_ID["quit"].keys == ("q", "f10")

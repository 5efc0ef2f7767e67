"""Every key does what its binding says, on the real application."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace
from textual import events
from textual.binding import Binding

from gpumon.config.themes import load_theme
from gpumon.readings.snapshot import Self
from gpumon.tui.app import MonitorApp
from gpumon.tui.screens.help import HelpScreen
from gpumon.tui.screens.monitor import INTERVALS, MonitorScreen
from tests.tui import scenes
from tests.tui.feed import Still
from tests.tui.running import running, text_of, until

ALL = [binding for binding in (*MonitorApp.BINDINGS, *MonitorScreen.BINDINGS) if isinstance(binding, Binding)]
HELP = [binding for binding in HelpScreen.BINDINGS if isinstance(binding, Binding)]
TITLES = {"gpus": "1", "engines": "2", "history": "3", "faults": "4"}


def focused(app: MonitorApp) -> str:
    return next((name for name, pane in app.monitor.panes.items() if pane.has_focus), "")


def feed_of(scene: str) -> Still:
    snapshot = scenes.SCENES[scene]()
    return Still(snapshot, scenes.history(snapshot))


def test_every_key_is_a_binding_with_id_and_description() -> None:
    assert all(isinstance(binding, Binding) for binding in (*MonitorApp.BINDINGS, *MonitorScreen.BINDINGS))
    for binding in (*ALL, *HELP):
        assert binding.id
        assert binding.description
    keys = [key for binding in ALL for key in binding.key.split(",")]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
async def test_quit(key: str) -> None:
    feed = feed_of("live")
    async with running(feed) as (app, pilot):
        await pilot.press(key)
        await until(lambda: app._exit, pilot)
    assert feed.stopped == 1


@pytest.mark.parametrize("key", ["question_mark", "f1"])
@pytest.mark.parametrize("back", ["escape", "question_mark", "f1"])
async def test_help_and_back(key: str, back: str) -> None:
    async with running("live") as (app, pilot):
        before = text_of(app)
        await pilot.press(key)
        assert isinstance(app.screen, HelpScreen)
        shown = "\n".join(text_of(app))
        for binding in ALL:
            assert binding.description in shown
        await pilot.press(back)
        await until(lambda: app.screen is app.monitor, pilot)
        assert text_of(app) == before


async def test_help_scrolls_where_it_does_not_fit_and_q_still_quits() -> None:
    async with running("live", 60, 15) as (app, pilot):
        await pilot.press("question_mark")
        top = text_of(app)
        await pilot.press("G")
        end = text_of(app)
        assert end != top
        assert "LOST 14s" in end[-1]
        await pilot.press("g")
        assert text_of(app) == top
        await pilot.press("down", "j", "pagedown", "space")
        assert text_of(app) == end or text_of(app) != top
        await pilot.press("pageup", "pageup", "up", "k")
        assert text_of(app) == top
        await pilot.press("q")
        await until(lambda: app._exit, pilot)


@pytest.mark.parametrize("key", ["space", "p"])
async def test_pause_freezes_the_display_and_nothing_else(key: str) -> None:
    feed = feed_of("live")
    async with running(feed) as (app, pilot):
        await pilot.press(key)
        frozen = text_of(app)
        assert "PAUSED" in frozen[0]
        assert "resume" in frozen[-1]
        later = replace(
            scenes.snapshot(tick=5), gpus=tuple(replace(gpu, busy_ratio=0.11) for gpu in scenes.snapshot().gpus)
        )
        feed.give(later)
        await until(lambda: app.monitor.latest is later, pilot)
        assert text_of(app) == frozen
        await pilot.press(key)
        await until(lambda: " 11% " in text_of(app)[3], pilot)
        assert "PAUSED" not in text_of(app)[0]


async def test_a_paused_display_is_the_same_after_a_resize_and_a_zoom() -> None:
    feed = feed_of("live")
    async with running(feed, 120, 40) as (app, pilot):
        await pilot.press("space", "3", "z")
        zoomed = text_of(app)
        await pilot.press("z")
        frozen = text_of(app)
        for tick in range(1, 60):
            later = scenes.snapshot(tick=tick)
            feed.history.append(later.wall_s, dict.fromkeys(feed.history.keys(), 0.0))
            feed.give(later)
        await until(lambda: app.monitor.latest is later, pilot)
        await pilot.press("z")
        assert text_of(app) == zoomed
        await pilot.press("z")
        await pilot.resize_terminal(80, 24)
        await pilot.resize_terminal(120, 40)
        await until(lambda: text_of(app) == frozen, pilot)


async def test_pause_before_the_first_snapshot_does_nothing() -> None:
    feed = Still(None)
    app = MonitorApp(feed, load_theme("default"))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("space")
        assert "starting" in text_of(app)[0]
        assert not app.monitor.paused


async def test_the_refresh_rate_goes_through_its_steps() -> None:
    feed = feed_of("live")
    async with running(feed) as (app, pilot):
        assert "every 1s" in text_of(app)[-1]
        await pilot.press("plus")
        assert feed.interval_s == 0.5
        await until(lambda: "every 0.5s" in text_of(app)[-1], pilot)
        await pilot.press("plus", "plus", "plus")
        assert feed.interval_s == min(INTERVALS)
        await pilot.press("minus")
        assert feed.interval_s == 0.5
        feed.interval_s = 30.0
        await pilot.press("minus", "minus")
        assert feed.interval_s == max(INTERVALS)
        await until(lambda: "every 60s" in text_of(app)[-1], pilot)


async def test_a_rate_between_the_steps_goes_to_the_next_one() -> None:
    feed = feed_of("live")
    feed.interval_s = 3.0
    async with running(feed) as (_, pilot):
        await pilot.press("minus")
        assert feed.interval_s == 5.0
        feed.interval_s = 3.0
        await pilot.press("plus")
        assert feed.interval_s == 2.0


async def test_panes_by_number_and_in_turn() -> None:
    async with running("live") as (app, pilot):
        assert focused(app) == "gpus"
        for name, key in TITLES.items():
            await pilot.press(key)
            assert focused(app) == name
        for name in TITLES:
            await pilot.press("tab")
            assert focused(app) == name
        for name in [*list(TITLES)[::-1][1:], "faults"]:
            await pilot.press("shift+tab")
            assert focused(app) == name


@pytest.mark.parametrize(
    ("keys", "first"),
    [
        (["down"], 1),
        (["j", "j"], 2),
        (["down", "up"], 0),
        (["j", "j", "k"], 1),
        (["G"], 5),
        (["G", "g"], 0),
        (["pagedown"], 5),
        (["pagedown", "pageup"], 0),
        (["up"], 0),
        (["G", "down"], 5),
    ],
)
async def test_scrolling(keys: list[str], first: int) -> None:
    async with running("sixteen_gpus") as (app, pilot):
        assert "↑ ↓ scroll" in text_of(app)[-1]
        await pilot.press(*keys)
        assert text_of(app)[3].startswith(f" {first:2} ")
        assert f" {first + 1}-{first + 11} of 16" in text_of(app)[1]


async def test_nothing_scrolls_where_all_is_shown() -> None:
    async with running("live") as (app, pilot):
        before = text_of(app)
        assert "scroll" not in before[-1]
        await pilot.press("down", "G", "pagedown", "k")
        assert text_of(app) == before


@pytest.mark.parametrize("back", ["z", "escape"])
async def test_zoom_gives_a_pane_the_screen(back: str) -> None:
    async with running("twelve_engines") as (app, pilot):
        before = text_of(app)
        assert "keys 2 z" in "\n".join(before)
        await pilot.press("2", "z")
        zoomed = text_of(app)
        assert zoomed[1].startswith("─2─ engines")
        assert sum("vllm:80" in line for line in zoomed) == 12
        assert "all panes" in zoomed[-1]
        await pilot.press(back, "1")
        await until(lambda: text_of(app) == before, pilot)


async def test_escape_never_quits() -> None:
    async with running("live") as (app, pilot):
        before = text_of(app)
        await pilot.press("escape", "escape", "escape")
        assert not app._exit
        assert text_of(app) == before


async def test_a_pane_without_a_place_gets_the_screen_by_its_key() -> None:
    async with running("live", 60, 15) as (app, pilot):
        assert "history: key 3" in "\n".join(text_of(app))
        await pilot.press("3")
        assert text_of(app)[1].startswith("─3─ history")
        assert focused(app) == "history"
        await pilot.press("escape")
        assert text_of(app)[1].startswith("─1─ gpus")
        await pilot.press("tab")
        assert focused(app) != ""
        await pilot.press("3", "1")
        assert focused(app) == "gpus"
        assert text_of(app)[1].startswith("─1─ gpus")
        assert app.monitor.zoomed == "gpus"


@pytest.mark.parametrize(
    ("keys", "zoomed"), [("4z", "faults"), ("2z", "engines"), ("z4", "faults"), ("2z3", "history"), ("3z1z", "")]
)
async def test_keys_typed_at_once_act_on_the_pane_last_asked_for(keys: str, zoomed: str) -> None:
    async with running("one_lost") as (app, pilot):
        for key in keys:
            app.post_message(events.Key(key, key))
        await pilot.pause()
        await until(lambda: app.monitor.zoomed == zoomed, pilot)
        panes = [line for line in text_of(app) if line.startswith("─") and line[2] == "─"]
        assert [line[1] for line in panes] == ([TITLES[zoomed]] if zoomed else list("1234"))


async def test_a_tab_pressed_twice_at_once_goes_two_panes_on() -> None:
    async with running("live") as (app, pilot):
        for _ in range(2):
            app.post_message(events.Key("tab", None))
        await until(lambda: focused(app) == "history", pilot)


async def test_nothing_zooms_where_there_is_no_pane_to_see() -> None:
    async with running("live", 40, 5) as (app, pilot):
        await pilot.press("4", "z")
        await pilot.resize_terminal(80, 24)
        assert app.monitor.zoomed == ""
        await until(lambda: "─2─ engines" in "\n".join(text_of(app)), pilot)


@pytest.mark.parametrize("key", ["r", "ctrl+l"])
async def test_redraw_reads_now(key: str) -> None:
    feed = feed_of("live")
    async with running(feed) as (app, pilot):
        before = text_of(app)
        await pilot.press(key)
        assert feed.refreshed == 1
        assert text_of(app) == before


async def test_keys_work_on_a_screen_that_shows_a_summary_only() -> None:
    async with running("live", 40, 5) as (app, pilot):
        for binding in MonitorScreen.BINDINGS:
            assert isinstance(binding, Binding)
            if binding.id != "pause":
                await pilot.press(*binding.key.split(","))
        assert text_of(app)[0].startswith("8 GPU")
        await pilot.press("space")
        assert text_of(app)[0].startswith("PAUSED 8 GPU")


async def test_a_click_focuses_and_the_wheel_scrolls() -> None:
    async with running("sixteen_gpus") as (app, pilot):
        await pilot.click(offset=(5, 16))
        assert focused(app) == "engines"
        await pilot._post_mouse_events([events.MouseScrollDown], offset=(5, 5), button=0)
        assert text_of(app)[3].startswith("  3 ")
        await pilot._post_mouse_events([events.MouseScrollUp], offset=(5, 5), button=0)
        assert text_of(app)[3].startswith("  0 ")


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


@pytest.mark.parametrize(
    ("cpu", "shown"), [(0.011, "1.1%"), (0.0, "0.0%"), (0.2, "20%"), (math.nan, "–"), (-1.0, "–"), (math.inf, "–")]
)
async def test_its_own_cost_is_a_share_or_a_dash(cpu: float, shown: str) -> None:
    snapshot = replace(scenes.snapshot(), self_cost=Self(cpu, 6e7))
    async with running(Still(snapshot)) as (app, _):
        assert f" self {shown} " in text_of(app)[0]


async def test_a_late_collector_is_named() -> None:
    feed = feed_of("live")
    async with running(feed) as (app, pilot):
        app.monitor._arrived_s -= 12.0
        app.monitor._carried_s = 0.0
        await until(lambda: "no reading for 1" in text_of(app)[0], pilot)
        feed.give(scenes.snapshot(tick=1))
        await until(lambda: "no reading" not in text_of(app)[0], pilot)

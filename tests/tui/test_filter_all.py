"""One filter for GPUs, engines, processes, triage and events: an engine's GPUs and processes stay with it."""

from __future__ import annotations

import pytest

from gpumon.tui.app import MonitorApp
from gpumon.tui.widgets.list_pane import ListPane
from tests.tui import scenes
from tests.tui.running import foot, running, text_of, until
from tests.tui.test_keys import type_keys


def keys_in(app: MonitorApp, name: str) -> list[str]:
    pane = app.monitor.panes[name]
    assert isinstance(pane, ListPane)
    return [pane.listing.key(item) for item in pane.listed_items()]


async def test_one_text_filters_all_panes_and_escape_shows_all_again() -> None:
    snapshot = scenes.SCENES["live"]()
    engine = snapshot.engines[-1]
    gpus = [gpu.reading.uuid for gpu in snapshot.gpus if engine.name in gpu.engines]
    assert 0 < len(gpus) < len(snapshot.gpus)
    async with running("live", 120, 50) as (app, pilot):
        panes = ("gpus", "engines", "processes", "triage")
        before = {name: keys_in(app, name) for name in panes}
        await type_keys(app, pilot, "\\", *engine.name, "enter")
        await until(lambda: app.monitor.question_bar is None, pilot)
        assert keys_in(app, "engines") == [engine.key]
        assert keys_in(app, "gpus") == gpus
        pids = {
            str(process.pid) for gpu in snapshot.gpus if gpu.reading.uuid in gpus for process in gpu.reading.processes
        }
        assert pids.intersection(keys_in(app, "processes"))
        assert len(keys_in(app, "processes")) < len(before["processes"])
        assert f' filter "{engine.name}" ' in text_of(app)[0]
        assert "Esc all rows" in foot(app)
        await type_keys(app, pilot, "escape")
        assert "filter" not in text_of(app)[0]
        assert {name: keys_in(app, name) for name in panes} == before


@pytest.mark.parametrize("keys", ["3", "3R"])
async def test_charts_and_pictures_have_the_filter_of_all_panes(keys: str) -> None:
    async with running("live", 120, 50) as (app, pilot):
        await type_keys(app, pilot, *keys, "/", *"q8", "enter")
        await until(lambda: app.monitor.question_bar is None, pilot)
        assert app.is_running
        assert app.monitor.view.everywhere == "q8"


async def test_a_panes_own_filter_goes_first() -> None:
    async with running("live", 120, 50) as (app, pilot):
        await type_keys(app, pilot, "\\", *"vllm", "enter", "1", "/", *"gpu3", "enter")
        pane = app.monitor.panes["gpus"]
        assert isinstance(pane, ListPane)
        await until(lambda: len(pane.listed_items()) == 1, pilot)
        await type_keys(app, pilot, "escape")
        assert len(pane.listed_items()) > 1
        assert app.monitor.view.everywhere == "vllm"
        await type_keys(app, pilot, "escape")
        assert app.monitor.view.everywhere == ""


async def test_a_gpu_by_its_number_keeps_its_engine() -> None:
    snapshot = scenes.SCENES["live"]()
    engine = snapshot.engines[0]
    index = engine.hardware.gpus[0]
    async with running("live", 120, 50) as (app, pilot):
        await type_keys(app, pilot, "\\", *f"gpu{index}", "enter")
        await until(lambda: keys_in(app, "engines") == [engine.key], pilot)


async def test_nothing_that_matches_is_said_in_every_pane() -> None:
    async with running("live", 120, 50) as (app, pilot):
        await type_keys(app, pilot, "\\", *"zzz")
        await until(lambda: sum('matches "zzz"' in line for line in text_of(app)) >= 3, pilot)
        await type_keys(app, pilot, "escape")
        await until(lambda: app.monitor.view.everywhere == "", pilot)

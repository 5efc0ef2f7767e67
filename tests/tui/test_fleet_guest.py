"""A host of the fleet without gpumon: Enter on its row asks whether to run it there, once, and does nothing unasked."""

from __future__ import annotations

from tests.tui.fleet_feed import Scrapes, watching
from tests.tui.running import foot, text_of, until
from tests.tui.test_fleet_screen import cursor_of


async def test_enter_asks_before_anything_runs_on_a_host() -> None:
    source = Scrapes(3)
    async with watching(source, 120, 40) as (app, pilot):
        host = cursor_of(app)
        source.bare = {host}
        await pilot.press("enter")
        await until(lambda: any(f"no gpumon on {host}:" in line for line in text_of(app)), pilot)
        assert any("run gpumon there" in line and "temporary folder" in line for line in text_of(app))
        await pilot.press("escape")
        assert source.installed == []
        assert app.host_screen is None
        await pilot.press("enter", "enter")
        assert source.installed == [host]
        assert app.host_screen is None
        await pilot.press("enter")
        await until(lambda: app.host_screen is not None, pilot, 20.0)
        assert source.installed == [host]
        assert "no gpumon" not in foot(app)


async def test_the_host_can_be_opened_instead() -> None:
    source = Scrapes(3)
    async with watching(source, 120, 40) as (app, pilot):
        source.bare = {cursor_of(app)}
        await pilot.press("enter", "down", "enter")
        await until(lambda: app.host_screen is not None, pilot, 20.0)
        assert source.installed == []

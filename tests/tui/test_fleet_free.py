"""The page of what is free on the fleet's screen."""

from __future__ import annotations

import pytest

from gpumon.tui.fleet.app import FleetApp
from tests.tui.fleet_feed import Scrapes, watching
from tests.tui.running import text_of, until


def screen_of(app: FleetApp) -> str:
    return "\n".join(text_of(app))


async def test_a_key_shows_what_is_free_and_esc_the_hosts_again() -> None:
    async with watching(Scrapes(5), 120, 40) as (app, pilot):
        await pilot.press("C")
        await until(lambda: "what is free" in screen_of(app), pilot)
        shown = screen_of(app)
        assert "GPUs by type" in shown
        assert "of 40 free" in shown
        assert "room for more engines" in shown
        assert "free of all, by label" in shown
        await pilot.press("escape")
        await until(lambda: "what is free" not in screen_of(app), pilot)
        await pilot.press("m", "C")
        await until(lambda: "what is free" in screen_of(app), pilot)


async def test_a_small_screen_scrolls_the_page() -> None:
    async with watching(Scrapes(5), 80, 24) as (app, pilot):
        await pilot.press("C", "G")
        await until(lambda: "free of all, by label" in screen_of(app), pilot)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 60)])
async def test_no_text_of_the_page_is_cut(width: int, height: int) -> None:
    async with watching(Scrapes(5), width, height) as (app, pilot):
        await pilot.press("C")
        await until(lambda: "free of all, by label" in screen_of(app), pilot)
        behind_names = [row[30:] for row in text_of(app)[3:]]  # a long name is cut at 80 cells
        assert "KV " in "\n".join(behind_names)
        assert "…" not in "\n".join(behind_names)

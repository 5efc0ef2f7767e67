"""The real application, headless, on a feed that the test controls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from textual.pilot import Pilot

from gpumon.config.schema import Config, General
from gpumon.config.themes import load_theme
from gpumon.tui.app import MonitorApp
from gpumon.tui.control import Files
from tests.tui import scenes
from tests.tui.feed import Still


@asynccontextmanager
async def running(
    feed: Still | str,
    width: int = 80,
    height: int = 24,
    *,
    ascii: bool = False,  # noqa: A002
    config: Config | None = None,
    files: Files | None = None,
) -> AsyncIterator[tuple[MonitorApp, Pilot[int]]]:
    """The application with its first snapshot painted; `feed` is a scene's name or a feed."""
    if isinstance(feed, str):
        snapshot = scenes.SCENES[feed]()
        feed = Still(snapshot, scenes.history(snapshot))
    config = config or Config(general=General(ascii=ascii))
    app = MonitorApp(feed, load_theme("default"), config, files, wall=lambda: scenes.WALL_S)
    async with app.run_test(size=(width, height)) as pilot:
        await until(lambda: app.monitor.shown is not None, pilot)
        yield app, pilot


async def until(condition: Callable[[], bool], pilot: Pilot[int], seconds: float = 60.0) -> None:
    """Let the application work until something holds; the time is patience with a machine that is busy."""
    end_s = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < end_s:
        await pilot.pause()
        if condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it never came to hold")


def text_of(app: MonitorApp) -> list[str]:
    """The screen's lines as the compositor has them, without trailing blanks."""
    return [strip.text.rstrip() for strip in app.screen._compositor.render_strips()]

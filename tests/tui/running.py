"""The real application, headless, on a feed that the test controls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from textual import events
from textual.app import ScreenStackError
from textual.command import CommandPalette
from textual.pilot import Pilot, WaitForScreenTimeout
from textual.widgets import OptionList

from gpumon.config.schema import Config, General
from gpumon.config.themes import load_theme
from gpumon.tui.app import MonitorApp
from gpumon.tui.control import Files
from tests.tui import scenes
from tests.tui.feed import Still

MONOTONIC_S = 1000.0
"""What is shown grows no older in a test, however long that takes on a machine that is busy."""


@asynccontextmanager
async def running(
    feed: Still | str,
    width: int = 80,
    height: int = 24,
    *,
    ascii: bool = False,  # noqa: A002
    config: Config | None = None,
    files: Files | None = None,
    theme: str = "default",
) -> AsyncIterator[tuple[MonitorApp, Pilot[int]]]:
    """The application with its first snapshot painted; `feed` is a scene's name or a feed."""
    if isinstance(feed, str):
        snapshot = scenes.SCENES[feed]()
        feed = Still(snapshot, scenes.history(snapshot))
    config = config or Config(general=General(ascii=ascii))
    app = MonitorApp(
        feed, load_theme(theme), config, files, unix_time=lambda: scenes.WALL_S, monotonic=lambda: MONOTONIC_S
    )
    async with app.run_test(size=(width, height), notifications=True) as pilot:
        await until(lambda: app.monitor.shown is not None, pilot)
        yield app, pilot


async def until(condition: Callable[[], bool], pilot: Pilot[int], seconds: float = 60.0) -> None:
    """Let the application work until something holds; the time is patience with a machine that is busy."""
    end_s = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < end_s:
        await settle(pilot)
        if condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it never came to hold")


async def settle(pilot: Pilot[int]) -> None:
    """Let the application answer what it was sent; one that quits meanwhile has no screen, and no answer, any more."""
    try:
        await pilot.pause()
    except (ScreenStackError, WaitForScreenTimeout):
        if not pilot.app._exit:
            raise


def text_of(app: MonitorApp) -> list[str]:
    """The screen's lines as the compositor has them, without trailing blanks."""
    return [strip.text.rstrip() for strip in app.screen._compositor.render_strips()]


def foot(app: MonitorApp) -> str:
    """The line of keys, or the notice that stands there, in one line."""
    first, *rest = text_of(app)[-app.front.key_line.size.height :]
    return " ".join([first, *map(str.strip, rest)])


def question_of(app: MonitorApp) -> list[str]:
    """The lines of what is asked."""
    lines = app.front.question_bar.size.height if app.front.question_bar is not None else 0
    return text_of(app)[-1 - lines : -1]


def names_of(app: MonitorApp) -> list[str]:
    """What there is to choose from."""
    return [choice.name for choice in app.front.question_bar.choices] if app.front.question_bar is not None else []


def commands_of(app: MonitorApp) -> list[str]:
    """Names of the commands that the palette lists."""
    options = app.screen.query(OptionList).first().options
    return [str(option.prompt).strip().split("  ")[0] for option in options if option.prompt]


async def run_named(app: MonitorApp, pilot: Pilot[int], text: str) -> None:
    """Run a command by its name, which is pasted: the palette searches all commands again at every key."""
    await pilot.press("colon")
    app.post_message(events.Paste(text))
    await until(lambda: any(text in name for name in commands_of(app)) and len(commands_of(app)) < 9, pilot)
    await pilot.press("enter")
    await until(lambda: not isinstance(app.screen, CommandPalette), pilot)

"""Settings in effect on a screen: theme, keys, units, columns, levels, interval, characters."""

from __future__ import annotations

import os
from functools import partial
from typing import Final, TypeVar

from textual.app import App
from textual.theme import Theme as TextualTheme

from gpumon.config.errors import ConfigError
from gpumon.config.schema import Config
from gpumon.config.validate import with_setting
from gpumon.tui.control import Files
from gpumon.tui.palette import Palette
from gpumon.tui.screens.context import ChoicesChanged, ScreenContext, SettingsChanged, ThemeRead, WorkWanted
from gpumon.tui.terminal import chart_glyphs

_HALF_BRIGHT: Final = 128
"""Middle of the values of one part of a colour."""
Result = TypeVar("Result")
"""The result of a Textual application."""


def colour_textual(app: App[Result], palette: Palette) -> None:
    """Give Textual's own parts (questions, notices, the command palette) the colours of the theme."""
    theme = palette.theme
    if theme.is_terminals_own:  # the terminal's own colours
        app.theme = "ansi-dark"
        return
    name = f"gpumon-{hash(theme):x}"
    app.register_theme(
        TextualTheme(
            name,
            primary=theme.accent,
            secondary=theme.title,
            accent=theme.accent,
            foreground=theme.foreground,
            background=theme.background,
            surface=theme.background,
            panel=theme.selected,
            success=theme.ok,
            warning=theme.warn,
            error=theme.critical,
            dark=_is_dark(theme.background),
            variables={"text-muted": theme.muted},
        )
    )
    app.theme = name


def _is_dark(colour: str) -> bool:
    """Whether the mean of red, green and blue of a `#rrggbb` is in the darker half."""
    parts = bytes.fromhex(colour[1:])
    return sum(parts) / len(parts) < _HALF_BRIGHT


class ScreenSettings:
    """The settings that a screen shows by; another theme is read beside it."""

    def __init__(self, context: ScreenContext) -> None:
        self._screen_context = context
        self.themes: tuple[str, ...] = ()
        """Names of the themes there are, as of the last time that someone asked."""
        self.chosen_theme = context.view.config.general.theme
        """The theme that was to be the setting last, though it may be one that cannot be read."""

    def list_themes(self) -> None:
        """Find out which themes there are by now, beside the screen."""
        files = self._screen_context.files
        if files is not None:
            self._screen_context.post_message(WorkWanted("themes", partial(self._read_theme_names, files)))

    async def _read_theme_names(self, files: Files) -> None:
        """Read the names of the themes, and renew the choices of a question where they are others."""
        themes = await files.themes()
        if themes != self.themes:
            self.themes = themes
            self._screen_context.post_message(ChoicesChanged())

    def switch_theme(self, name: str, *, as_setting: bool = False) -> None:
        """Show the theme of that name, once it is read; with `as_setting` make it the setting. One that cannot be read
        changes nothing."""
        if as_setting:
            self.chosen_theme = name
        files = self._screen_context.files
        if files is not None:
            work = partial(self._load_theme, files, name, as_setting=as_setting)
            self._screen_context.post_message(WorkWanted("theme", work))

    async def _load_theme(self, files: Files, name: str, *, as_setting: bool) -> None:
        """Read a theme and have it shown; with `as_setting` make it the setting."""
        try:
            theme = await files.theme(name)
        except ConfigError as refused:
            self._screen_context.warn(str(refused))
            return
        view = self._screen_context.view
        if as_setting:
            view.config = with_setting(view.config, "general", "theme", name)
        self._screen_context.post_message(ThemeRead(theme))

    def apply(self, config: Config) -> None:
        """Take over other settings; `switch_theme` sees to the theme."""
        palette = self._screen_context.palette
        self._screen_context.view.use(config)
        palette.glyphs = chart_glyphs(config, os.environ)
        palette.ascii = palette.glyphs == "ascii"
        self._screen_context.post_message(SettingsChanged())

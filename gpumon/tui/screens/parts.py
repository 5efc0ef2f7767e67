"""Parts of a screen: the pages over its panes, the sizing panel beside or over them, and how all of it looks."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any

from textual.theme import Theme as TextualTheme

from gpumon.config.errors import ConfigError
from gpumon.config.validate import changed
from gpumon.readings.format import counted
from gpumon.tui.keys import keymap_of
from gpumon.tui.layout import panel_width
from gpumon.tui.terminal import drawn_with
from gpumon.tui.widgets.board import Board
from gpumon.tui.widgets.pane import Pane

if TYPE_CHECKING:
    from textual.app import App

    from gpumon.config.schema import Config
    from gpumon.config.themes import Theme
    from gpumon.tui.control import Files
    from gpumon.tui.palette import Palette
    from gpumon.tui.screens.monitor import MonitorScreen
    from gpumon.tui.sizing.panel import SizingPanel


def wear(app: App[Any], palette: Palette) -> None:
    """Give Textual's own parts (questions, notices, the command palette) the colours of the theme."""
    theme = palette.theme
    if theme.named:
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
            dark=sum(int(theme.background[at : at + 2], 16) for at in (1, 3, 5)) < 3 * 128,
            variables={"text-muted": theme.muted},
        )
    )
    app.theme = name


class Pages:
    """Pages that cover the panes: help, settings, the detail of a thing."""

    def __init__(self, screen: MonitorScreen) -> None:
        self._screen = screen
        self.shown: Pane | None = None
        self.made: dict[str, Pane] = {}
        """Pages that were needed so far, by name."""
        self.below: list[Pane] = []
        """Pages under the one that is shown, the lowest first."""

    @property
    def name(self) -> str:
        """Name of the page that is shown; empty without one."""
        return next((name for name, page in self.made.items() if page is self.shown), "")

    def named(self, name: str) -> Pane:
        """A page, imported, made and mounted when it is needed first."""
        screen = self._screen
        page = self.made.get(name)
        if page is None:
            page = self.made[name] = _class_of(name)(screen.palette, screen.view)
            page.display = False
            screen.mount(page, before=screen.key_line)
            screen.travel.read_from(screen.travel.history, anew=True)
        if screen.in_panes is not None:
            page.show(screen.in_panes)
        return page

    def toggle(self, name: str) -> None:
        """Open a page, or close it where it is open."""
        if not self._screen.tiny:
            page = self.named(name)
            if name == "settings":
                self._screen.looks.ask_themes()
            if self.shown is page:
                self.close()
            else:
                page.to_top()
                self.put_over(page)

    def put_over(self, page: Pane) -> None:
        """Show a page over what is shown."""
        if self._screen.tiny:
            return
        self._screen.remember()
        if self.shown is not None and page not in (self.shown, *self.below):
            self.below.append(self.shown)
        elif page in self.below:
            del self.below[self.below.index(page) :]
        self._turn_to(page)

    def close(self, *, all_of_them: bool = False) -> None:
        """Show what it covers again: the page below it, else all panes."""
        if self.shown is not None:
            self._screen.body.page_left(self._screen, self.shown)
        if all_of_them:
            self.below.clear()
        self._turn_to(self.below.pop() if self.below else None)

    def _turn_to(self, page: Pane | None) -> None:
        screen = self._screen
        if self.shown is not None and self.shown is not page:
            self.shown.find("")
        self.shown = page
        screen.lay_out()
        if page is not None and screen.in_panes is not None:
            page.show(screen.in_panes)
        screen.give_keys()
        screen.show_keys()


def _class_of(name: str) -> type[Pane]:
    """The class of a page: nothing of it is imported before it is needed."""
    if name == "help":
        from gpumon.tui.pages.help import HelpPage

        return HelpPage
    if name == "detail":
        from gpumon.tui.pages.detail import DetailPage

        return DetailPage
    if name == "log":
        from gpumon.tui.pages.log import LogPage

        return LogPage
    from gpumon.tui.pages.settings import SettingsPage

    return SettingsPage


class SizingDock:
    """The place of the sizing panel on the screen, and who has the keys beside it."""

    def __init__(self, screen: MonitorScreen) -> None:
        self._screen = screen
        self.panel: SizingPanel | None = None
        """Made when it is opened first."""
        self.open = False
        self.has_keys = False
        """Whether the panel has the keys, or had them before a page or a question took them."""
        self._named = 0
        """Changes that were named when the user wanted to quit."""

    @property
    def columns(self) -> int:
        """Columns of the panel where it stands beside the panes."""
        if self.open:
            return panel_width(self._screen.app.size.width)
        return 0

    @property
    def covers(self) -> bool:
        """Whether it stands over the panes."""
        return self.open and not self.columns

    @property
    def focused(self) -> bool:
        """Whether the panel has the keys now."""
        return self.panel is not None and self._screen.focused is self.panel

    def toggle(self) -> None:
        """Open the panel, or go to it; where it has the keys, close it."""
        screen = self._screen
        if screen.tiny:
            return
        if self.panel is None:
            from gpumon.tui.sizing.panel import SizingPanel

            self.panel = SizingPanel(screen.palette, screen.view)
            self.panel.display = False
            screen.mount(self.panel, before=screen.key_line)
        if self.open and self.focused:
            self.close()
            return
        screen.remember()
        self.open = self.has_keys = True
        if not self.columns:
            screen.pages.shown = None
            screen.pages.below.clear()
        screen.lay_out()
        self.show_newest()
        screen.set_focus(self.panel)
        screen.show_keys()

    def close(self) -> None:
        """Give its place back; what was asked there stays."""
        self.open = self.has_keys = False
        self._screen.lay_out()
        self._screen.give_keys()
        self._screen.show_keys()

    def keeps_edits(self) -> bool:
        """Whether the end would lose changes that nobody saved, and that were not yet named; they are named now."""
        changes = self.panel.changes if self.panel is not None else 0
        if changes == self._named:
            return False
        self._named = changes
        if not changes:
            return False
        keys = self._screen.view.keymap.first
        unsaved = f"{counted(changes, 'change')} in sizing not saved"
        saves = f"{keys('sizing')} {keys('sizing.save')} saves"
        self._screen.say(f"{unsaved}: {keys('quit')} again quits, {saves}", urgent=True)
        return True

    def leave(self) -> None:
        """Give the keys to the panes: from beside them it stays in sight."""
        self.has_keys = False
        if self.covers:
            self.open = False
            self._screen.lay_out()

    def show_newest(self) -> None:
        """Show the newest snapshot in the panel, whatever moment the panes show."""
        if self.panel is not None and self.open and self._screen.latest is not None:
            self.panel.show(self._screen.body.whole(self._screen.latest))

    def run(self, name: str) -> None:
        """One of the panel's commands."""
        if self.panel is not None and self.open and not self._screen.tiny:
            self._screen.set_focus(self.panel)
            self.panel.run(name)

    def place(self, lines: int) -> None:
        """Put the open panel beside the panes in so many lines, or over them where there is no room for both."""
        if self.panel is None:
            return
        whole = self._screen.app.size.width
        columns = self.columns
        shown = self.open and (columns > 0 or self._screen.pages.shown is None)
        self.panel.beside = columns > 0
        sized(self.panel, lines if shown else 0, columns or whole)
        self.panel.styles.layer = "beside" if columns else "base"
        if columns:
            self.panel.styles.offset = (whole - columns, 1)
        else:
            self.panel.styles.offset = (0, 0)


def sized(board: Board, lines: int, columns: int = 0) -> None:
    """Give a board its lines (0 hides it) and columns (0: all that there are)."""
    if lines and not board.display:
        board.forget()  # hidden boards are not kept up to date
    board.display = lines > 0
    if lines:
        board.styles.height = lines
        board.styles.width = columns or "100%"


class Looks:
    """Settings in effect: theme, keys, units, columns, levels, interval, characters."""

    def __init__(self, screen: MonitorScreen) -> None:
        self._screen = screen
        self.themes: tuple[str, ...] = ()
        """Names of the themes there are, as of the last time that someone asked."""
        self.asked_theme = screen.view.config.general.theme
        """The theme that was to be the setting last, though it may be one that cannot be read."""

    def ask_themes(self) -> None:
        """Look which themes there are by now."""
        if self._screen.files is not None:
            self._screen.run_alone("themes", partial(self._ask_themes, self._screen.files))

    async def _ask_themes(self, files: Files) -> None:
        themes = await files.themes()
        if themes != self.themes:
            self.themes = themes
            self._screen.renew()

    def wear(self, name: str, *, use: bool = False) -> None:
        """Show the theme of that name, once it is read; with `use` make it the setting. One that cannot be read
        changes nothing."""
        if use:
            self.asked_theme = name
        if self._screen.files is not None:
            self._screen.run_alone("theme", partial(self._wear, self._screen.files, name, use=use))

    async def _wear(self, files: Files, name: str, *, use: bool) -> None:
        screen = self._screen
        try:
            theme = await files.theme(name)
        except ConfigError as refused:
            screen.say(str(refused), urgent=True)
            return
        if use:
            screen.view.config = changed(screen.view.config, "general", "theme", name)
        if screen.asking is not None:
            screen.hush()  # what was wrong with a theme that the cursor has left
        self.show_theme(theme)

    def show_theme(self, theme: Theme) -> None:
        """Show a theme."""
        self._screen.palette.use(theme)
        wear(self._screen.app, self._screen.palette)
        self._screen.redraw()

    def apply(self, config: Config) -> None:
        """Take over other settings; `wear` sees to the theme."""
        screen = self._screen
        screen.view.use(config)
        screen.palette.glyphs = drawn_with(config, os.environ)
        screen.palette.ascii = screen.palette.glyphs == "ascii"
        screen.app.set_keymap(keymap_of(screen.view.keymap))
        interval_s = screen.body.settings[0].value(config)
        if interval_s != screen.control.interval_s:
            screen.control.set_interval(interval_s)
        screen.redraw()

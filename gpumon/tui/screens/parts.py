"""Parts of a screen: the pages over its panes, the sizing panel beside or over them, and the settings in effect."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from textual.app import App
from textual.theme import Theme as TextualTheme
from textual.widget import Widget
from textual.worker import WorkType

from gpumon.config.errors import ConfigError
from gpumon.config.schema import Config
from gpumon.config.themes import Theme
from gpumon.config.validate import with_setting
from gpumon.readings.format import counted
from gpumon.readings.snapshot import Snapshot
from gpumon.tui.control import Collecting, Files
from gpumon.tui.keys import keymap_of
from gpumon.tui.layout import panel_width
from gpumon.tui.palette import Palette
from gpumon.tui.terminal import chart_glyphs
from gpumon.tui.view import View
from gpumon.tui.widgets.pane import Pane

if TYPE_CHECKING:
    from gpumon.tui.settings_table import Setting
    from gpumon.tui.sizing.panel import SizingPanel

_HALF_BRIGHT: Final = 128
"""Middle of the values of one part of a colour."""
Result = TypeVar("Result")
"""The result of a Textual application."""


class PartsScreen(Protocol):
    """The screen as its pages, the sizing panel's dock and its settings know it."""

    control: Collecting
    files: Files | None
    palette: Palette
    view: View
    pages: Pages
    screen_settings: ScreenSettings

    @property
    def app(self) -> App[object]:
        """The application."""

    @property
    def settings(self) -> Sequence[Setting]:
        """The lines of the settings page; the first one is how often what is shown is renewed."""

    @property
    def tiny(self) -> bool:
        """Whether only a summary has room."""

    @property
    def is_asking(self) -> bool:
        """Whether a question is open."""

    @property
    def in_panes(self) -> Snapshot | None:
        """The snapshot that pages show; None: nothing yet."""

    @property
    def newest(self) -> Snapshot | None:
        """The newest snapshot as one machine, whatever moment the panes show; None: nothing yet."""

    def make_page(self, name: str) -> Pane:
        """A page by its name."""

    def make_sizing(self) -> SizingPanel:
        """The sizing panel."""

    def mount_pane(self, pane: Pane) -> None:
        """Mount a pane that was made late."""

    def draw_charts_anew(self) -> None:
        """Let all panes and pages read the series of the charts once more."""

    def before_page_closes(self, page: Pane) -> None:
        """Do what a page that is about to be closed leaves to do in the panes."""

    def has_focus_on(self, widget: Widget | None) -> bool:
        """Whether a widget has the focus."""

    def set_focus(self, widget: Widget | None) -> None:
        """Give the focus to a widget."""

    def remember_focus(self) -> None:
        """Note which pane has the focus."""

    def give_keys(self) -> None:
        """Give the keys to what lies on top."""

    def lay_out(self) -> None:
        """Give each part its lines."""

    def redraw(self) -> None:
        """Paint everything from scratch."""

    def show_keys(self) -> None:
        """Name the keys that do something here."""

    def say(self, text: str, *, urgent: bool = False) -> None:
        """Show a notice."""

    def hush(self) -> None:
        """Bring the keys back where a notice stands."""

    def renew_choices(self) -> None:
        """Renew the choices of the question, or of the palette."""

    def run_alone(self, group: str, work: WorkType[None]) -> None:
        """Work beside the screen, in place of what is left of the same group."""


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


class Pages:
    """Pages that cover the panes: help, settings, the detail of a thing."""

    def __init__(self, screen: PartsScreen) -> None:
        self._screen = screen
        self.shown: Pane | None = None
        """The page that covers the panes; None: these are in sight."""
        self.by_name: dict[str, Pane] = {}
        """Pages that were needed so far, by name."""
        self.covered: list[Pane] = []
        """Pages under the one that is shown, the lowest first."""

    @property
    def name(self) -> str:
        """Name of the page that is shown; empty without one."""
        return next((name for name, page in self.by_name.items() if page is self.shown), "")

    def prepare(self, name: str) -> Pane:
        """Have a page show what the panes show, and return it; it is made and mounted when it is needed first."""
        screen = self._screen
        page = self.by_name.get(name)
        if page is None:
            page = screen.make_page(name)
            self.by_name[name] = page
            page.display = False  # until it is put over the panes
            screen.mount_pane(page)
            screen.draw_charts_anew()  # its charts have not read their series yet
        if screen.in_panes is not None:
            page.show(screen.in_panes)
        return page

    def toggle(self, name: str) -> None:
        """Open a page, or close it where it is open."""
        if self._screen.tiny:
            return
        page = self.prepare(name)
        if name == "settings":
            self._screen.screen_settings.list_themes()
        if self.shown is page:
            self.close()
        else:
            page.to_top()
            self.put_over(page)

    def put_over(self, page: Pane) -> None:
        """Show a page over what is shown; one that lies below comes up again, without those over it."""
        if self._screen.tiny:
            return
        self._screen.remember_focus()
        if page in self.covered:
            del self.covered[self.covered.index(page) :]
        elif self.shown is not None and page is not self.shown:
            self.covered.append(self.shown)
        self._turn_to(page)

    def close(self, *, all_of_them: bool = False) -> None:
        """Show again what the page covers: the page below it, else all panes; with `all_of_them` all panes."""
        if self.shown is not None:
            self._screen.before_page_closes(self.shown)
        if all_of_them:
            self.covered.clear()
        page_below = None
        if self.covered:
            page_below = self.covered.pop()
        self._turn_to(page_below)

    def _turn_to(self, page: Pane | None) -> None:
        """Show a page, or with None the panes, and give it the keys; the search of the page before ends."""
        screen = self._screen
        if self.shown is not None and self.shown is not page:
            self.shown.find("")
        self.shown = page
        screen.lay_out()
        if page is not None and screen.in_panes is not None:
            page.show(screen.in_panes)
        screen.give_keys()
        screen.show_keys()


class SizingDock:
    """The place of the sizing panel on the screen, and who has the keys beside it."""

    def __init__(self, screen: PartsScreen) -> None:
        self._screen = screen
        self.panel: SizingPanel | None = None
        """The panel, which is made when it is opened first."""
        self.open = False
        """Whether the panel is in sight, or comes back once what covers it is closed."""
        self.has_keys = False
        """Whether the panel has the keys, or had them before a page or a question took them."""
        self._changes_named = 0
        """Number of the unsaved changes that were named when the user wanted to quit last."""

    @property
    def columns(self) -> int:
        """Columns of the panel where it stands beside the panes; 0 where it is closed or covers them."""
        if self.open:
            return panel_width(self._screen.app.size.width)
        return 0

    @property
    def covers(self) -> bool:
        """Whether the panel stands over the panes."""
        return self.open and not self.columns

    @property
    def focused(self) -> bool:
        """Whether the panel has the keys now."""
        return self.panel is not None and self._screen.has_focus_on(self.panel)

    def toggle(self) -> None:
        """Open the panel, or go to it; where it has the keys, close it."""
        screen = self._screen
        if screen.tiny:
            return
        if self.panel is None:
            self.panel = screen.make_sizing()
            self.panel.display = False
            screen.mount_pane(self.panel)
        if self.open and self.focused:
            self.close()
            return
        screen.remember_focus()
        if not self.open:
            self.panel.begin()
        self.open = True
        self.has_keys = True
        if self.covers:  # pages would lie over it
            screen.pages.shown = None
            screen.pages.covered.clear()
        screen.lay_out()
        self.show_newest()
        screen.set_focus(self.panel)
        screen.show_keys()

    def close(self) -> None:
        """Give the panel's place back to the panes; what was asked there stays."""
        self.open = False
        self.has_keys = False
        self._screen.lay_out()
        self._screen.give_keys()
        self._screen.show_keys()

    def warn_of_edits(self) -> bool:
        """Name changes that nobody saved and that the end would lose, once. Returns whether they were named now."""
        changes = 0
        if self.panel is not None:
            changes = self.panel.changes
        if changes == self._changes_named:
            return False
        self._changes_named = changes
        if not changes:
            return False
        key = self._screen.view.keymap.first
        unsaved = f"{counted(changes, 'change')} in sizing not saved"
        how_to_save = f"{key('sizing')} {key('sizing.save')} saves"
        self._screen.say(f"{unsaved}: {key('quit')} again quits, {how_to_save}", urgent=True)
        return True

    def release_keys(self) -> None:
        """Give the keys to the panes: a panel beside them stays in sight, one over them is closed."""
        self.has_keys = False
        if self.covers:
            self.open = False
            self._screen.lay_out()

    def show_newest(self) -> None:
        """Show the newest snapshot in the panel, whatever moment the panes show."""
        newest = self._screen.newest
        if self.panel is not None and self.open and newest is not None:
            self.panel.show(newest)

    def run(self, name: str) -> None:
        """Run one of the panel's commands, and give it the keys."""
        if self.panel is not None and self.open and not self._screen.tiny:
            self._screen.set_focus(self.panel)
            self.panel.run(name)

    def give(self, lines: int) -> None:
        """Put the open panel beside the panes in so many lines, or over them where there is no room for both."""
        panel = self.panel
        if panel is None:
            return
        screen_width = self._screen.app.size.width
        columns = self.columns
        panel.beside = columns > 0
        if columns:
            panel.give(lines, columns)
            panel.styles.layer = "beside"
            panel.styles.offset = (screen_width - columns, 1)  # below the title
            return
        in_sight = self.open and self._screen.pages.shown is None
        panel.give(lines if in_sight else 0, screen_width)
        panel.styles.layer = "base"
        panel.styles.offset = (0, 0)


class ScreenSettings:
    """Settings in effect: theme, keys, units, columns, levels, interval, characters."""

    def __init__(self, screen: PartsScreen) -> None:
        self._screen = screen
        self.themes: tuple[str, ...] = ()
        """Names of the themes there are, as of the last time that someone asked."""
        self.chosen_theme = screen.view.config.general.theme
        """The theme that was to be the setting last, though it may be one that cannot be read."""

    def list_themes(self) -> None:
        """Find out which themes there are by now, beside the screen."""
        if self._screen.files is not None:
            self._screen.run_alone("themes", partial(self._read_theme_names, self._screen.files))

    async def _read_theme_names(self, files: Files) -> None:
        """Read the names of the themes, and renew the choices of a question where they are others."""
        themes = await files.themes()
        if themes != self.themes:
            self.themes = themes
            self._screen.renew_choices()

    def switch_theme(self, name: str, *, as_setting: bool = False) -> None:
        """Show the theme of that name, once it is read; with `as_setting` make it the setting. One that cannot be read
        changes nothing."""
        if as_setting:
            self.chosen_theme = name
        if self._screen.files is not None:
            self._screen.run_alone("theme", partial(self._load_theme, self._screen.files, name, as_setting=as_setting))

    async def _load_theme(self, files: Files, name: str, *, as_setting: bool) -> None:
        """Read a theme and show it; with `as_setting` make it the setting."""
        screen = self._screen
        try:
            theme = await files.theme(name)
        except ConfigError as refused:
            screen.say(str(refused), urgent=True)
            return
        if as_setting:
            screen.view.config = with_setting(screen.view.config, "general", "theme", name)
        if screen.is_asking:  # the cursor went on from a theme that could not be read: its notice goes
            screen.hush()
        self.show_theme(theme)

    def show_theme(self, theme: Theme) -> None:
        """Paint everything in the colours of a theme."""
        self._screen.palette.use(theme)
        colour_textual(self._screen.app, self._screen.palette)
        self._screen.redraw()

    def apply(self, config: Config) -> None:
        """Take over other settings; `switch_theme` sees to the theme."""
        screen = self._screen
        screen.view.use(config)
        screen.palette.glyphs = chart_glyphs(config, os.environ)
        screen.palette.ascii = screen.palette.glyphs == "ascii"
        screen.app.set_keymap(keymap_of(screen.view.keymap))
        pace = screen.settings[0]  # how often what is shown is renewed
        interval_s = pace.value(config)
        if interval_s != screen.control.interval_s:
            screen.control.set_interval(interval_s)
        screen.redraw()

"""What keys do on every screen, and what can be chosen by name there."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from gpumon.config.errors import ConfigError
from gpumon.config.validate import changed
from gpumon.readings.text import clean
from gpumon.tui.control import Incident
from gpumon.tui.keys import keymap_of
from gpumon.tui.picture import picture
from gpumon.tui.screens.front import Front
from gpumon.tui.screens.notices import Notices
from gpumon.tui.settings_table import SETTINGS, Setting
from gpumon.tui.terminal import drawn_with
from gpumon.tui.widgets.list_pane import ListPane

if TYPE_CHECKING:
    from textual.app import App

    from gpumon.config.schema import Config
    from gpumon.config.themes import Theme
    from gpumon.tui.control import Collecting, Files
    from gpumon.tui.widgets.pane import Pane

_SAVING: Final = "save"
"""Group of the worker that writes a bundle."""
Picture = Callable[[], str]
"""The screen as SVG; takes a moment, in any thread."""


class CommonActions(Front):
    """Commands that every screen has."""

    SETTINGS: ClassVar[Sequence[Setting]] = SETTINGS
    """The lines of the settings page; the first one is how often what is shown is renewed."""
    themes: tuple[str, ...] = ()
    """Names of the themes there are, as of the last time that someone asked."""
    recent: tuple[str, ...] = ()
    """What was chosen by name, the newest first."""
    if TYPE_CHECKING:
        control: Collecting
        paused: bool
        freeze: Callable[[bool], None]
        action_frame: Callable[[int], None]

        @property
        def timely(self) -> bool: ...

    @abstractmethod
    def go_to_pane(self, name: str) -> None:
        """Give the keys to a pane, out of what covers it."""

    @abstractmethod
    def incident(self, screen: str, drawn: Picture) -> Incident | None:
        """What is shown, to be written down; None: nothing yet."""

    def made(self, name: str) -> type[Pane]:  # noqa: ARG002
        """The class of a page, imported when it is needed first; a screen has its own besides."""
        from gpumon.tui.pages.settings import SettingsPage

        return SettingsPage

    def change_speed(self, step: int) -> bool:  # noqa: ARG002
        """Play a recording faster (1) or slower (-1); returns whether this is one."""
        return False

    def leave_last(self) -> None:
        """Back was pressed where nothing covers the panes."""

    def action_quit(self) -> None:
        """Leave."""
        self.app.exit()

    def action_suspend(self) -> None:
        """To the shell."""
        self.app.action_suspend_process()

    def action_pause(self) -> None:
        """Freeze what is shown, or go on with the newest; in a recording from what is shown."""
        if self.in_panes is not None:
            self.freeze(not self.paused)

    def action_interval(self, step: int) -> None:
        """Go to the next longer or shorter interval; of a recording to another speed."""
        if self.current is not None and self.current.change(-step):
            return
        if self.change_speed(-step):
            return
        now, pace = self.control.interval_s, self.SETTINGS[0]
        if pace.stepped(now, step) != now:
            self.control.set_interval(pace.stepped(now, step))
            self.view.config = changed(self.view.config, pace.section, pace.key, self.control.interval_s)
        self.show_keys()

    def action_side(self, step: int) -> None:
        """The value or thing before or after, where there is one; else, paused, the frame."""
        if (self.current is None or not self.current.side(step)) and self.paused and self.timely:
            self.action_frame(step)

    def action_move(self, lines: int) -> None:
        """Move in the page or the focused pane."""
        if self.current is not None:
            self.current.move(lines)

    def action_leaf(self, pages: int) -> None:
        """Move by what is visible."""
        if self.current is not None:
            self.current.leaf(pages)

    def action_page(self, name: str) -> None:
        """Open a page, or close it where it is open."""
        if self.tiny:
            return
        page = self.page_named(name)
        if name == "settings":
            self.ask_themes()
        if self.page is page:
            self.close_page()
        else:
            self.put_over(page)

    def action_back(self) -> None:
        """Out of whatever is open, one step at a time; never quits."""
        if self.tiny:
            return
        if self.current is not None and self.current.back():
            self.show_keys()
        elif self.panel is not None and self.focused is self.panel:
            self.close_panel()
        elif self.page is not None:
            self.close_page()
        else:
            self.leave_last()

    def action_redraw(self) -> None:
        """Ask for what is shown anew, and paint everything from scratch."""
        self.control.refresh()
        self.redraw()

    def action_filter(self) -> None:
        """Type what rows must contain."""
        from gpumon.tui.screens import questions

        if isinstance(self.current, ListPane) and not self.current.covered:
            self.ask(questions.filter_of(self.current))

    def action_sort(self) -> None:
        """Choose the order of the rows."""
        from gpumon.tui.screens import questions

        if isinstance(self.current, ListPane) and self.current.orders():
            self.ask(questions.order_of(self.current))

    def action_palette(self) -> None:
        """Any command by its name."""
        from gpumon.tui.screens import questions

        self.ask(questions.palette(self))
        self.ask_themes()

    def ask_themes(self) -> None:
        """Look which themes there are by now."""
        if self.files is not None:
            self.run_alone("themes", partial(self._ask_themes, self.files))

    async def _ask_themes(self, files: Files) -> None:
        themes = await files.themes()
        if themes != self.themes:
            self.themes = themes
            self.drawer.renew()

    def wear(self, name: str) -> None:
        """Show the theme of that name, once it is read."""
        if self.files is not None:
            self.run_alone("theme", partial(self._wear, self.files, name))

    def use_theme(self, name: str) -> None:
        """Show the theme of that name and make it the setting; one that can not be read changes nothing."""
        self.asked_theme = name
        if self.files is not None:
            self.run_alone("theme", partial(self._wear, self.files, name, use=True))

    async def _wear(self, files: Files, name: str, *, use: bool = False) -> None:
        try:
            theme = await files.theme(name)
        except ConfigError as refused:
            self.say(str(refused))
            return
        if use:
            self.view.config = changed(self.view.config, "general", "theme", name)
        if self.drawer.open:
            self.unsay()  # what was wrong with a theme that the cursor has left
        self.show_theme(theme)

    def show_theme(self, theme: Theme) -> None:
        """Show a theme."""
        self.palette.use(theme)
        self.redraw()

    def apply(self, config: Config) -> None:
        """Other settings: keys, units, columns, levels, interval, characters; `use_theme` sees to the theme."""
        self.view.use(config)
        self.palette.glyphs = drawn_with(config, os.environ)
        self.palette.ascii = self.palette.glyphs == "ascii"
        self.app.set_keymap(keymap_of(self.view.keymap))
        interval_s = self.SETTINGS[0].value(config)
        if interval_s != self.control.interval_s:
            self.control.set_interval(interval_s)
        self.redraw()

    def action_save(self) -> None:
        """Write an incident bundle; in the settings and the sizing panel what they hold."""
        if self.current is not None and self.current.write():
            return
        if self.files is None:
            return
        if any(worker.group == _SAVING and not worker.is_finished for worker in self.app.workers):
            self.say("still writing the one before …")
            return
        strips = self.painted()
        screen = "\n".join(strip.text.rstrip() for strip in strips)
        incident = self.incident(screen, partial(picture, strips, self.app.size.width, "gpumon"))
        if incident is None:
            return
        self.say("writing an incident bundle …")
        self.app.run_worker(_save(self.app, self.files, incident), group=_SAVING)


async def _save(app: App[object], files: Files, incident: Incident) -> None:
    """Write a bundle and say how that went, on whatever screen is in front by then: a host's may have been left."""
    try:
        said = await files.save_bundle(incident)
    except Exception as error:  # what can not be written costs the bundle, not the screen
        said = f"the bundle can not be written: {clean(f'{type(error).__name__}: {error}', 200)}"
    if isinstance(app.screen, Notices):
        app.screen.say(said)

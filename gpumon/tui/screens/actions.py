"""What the keys do: one method per command of the table of keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from textual.screen import Screen

from gpumon.config.errors import ConfigError
from gpumon.config.validate import changed
from gpumon.tui.layout import PANES
from gpumon.tui.widgets.list_pane import ListPane
from gpumon.tui.widgets.pane import Pane

if TYPE_CHECKING:
    from gpumon.config.schema import Config
    from gpumon.config.themes import Theme
    from gpumon.readings.snapshot import Snapshot
    from gpumon.tui.control import Control, Files
    from gpumon.tui.palette import Palette
    from gpumon.tui.view import View
    from gpumon.tui.widgets.drawer import Drawer, Question
    from gpumon.tui.widgets.history_pane import HistoryPane

INTERVALS: Final = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Seconds between two readings that + and - go through."""


class Actions(Screen[None], inherit_bindings=False):
    """Commands of the monitor's screen."""

    _before = PANES[0]
    """The pane that had the focus before a page or the drawer took it."""
    themes: tuple[str, ...] = ()
    """Names of the themes there are, once someone asked."""
    recent: tuple[str, ...] = ()
    """What was chosen by name, the newest first."""

    if TYPE_CHECKING:
        control: Control
        files: Files | None
        palette: Palette
        view: View
        shown: Snapshot | None
        paused: bool
        zoomed: str
        page: Pane | None
        pages: dict[str, Pane]
        panes: dict[str, Pane]
        history: HistoryPane
        drawer: Drawer
        lay_out: Callable[[], None]
        show_keys: Callable[[], None]
        redraw: Callable[[], None]
        say: Callable[[str], None]
        apply: Callable[[Config], None]

        def freeze(self, paused: bool) -> None: ...
        @property
        def current(self) -> Pane | None: ...
        @property
        def tiny(self) -> bool: ...

    def action_quit(self) -> None:
        """Leave."""
        self.app.exit()

    def action_suspend(self) -> None:
        """To the shell."""
        self.app.action_suspend_process()

    def action_pause(self) -> None:
        """Freeze what is shown, or go on with the newest."""
        if self.shown is not None:
            self.freeze(not self.paused)

    def action_interval(self, step: int) -> None:
        """Go to the next longer or shorter interval."""
        if self.current is not None and self.current.change(-step):
            return
        now = self.control.interval_s
        others = [interval for interval in INTERVALS if (interval - now) * step > 1e-9]
        if others:
            interval_s = min(others) if step > 0 else max(others)
            self.control.set_interval(interval_s)
            self.view.config = changed(self.view.config, "general", "interval_s", interval_s)
        self.show_keys()

    def action_side(self, step: int) -> None:
        """The value before or after, where there is one to change."""
        if self.current is not None:
            self.current.side(step)

    def action_pane(self, number: int, step: int = 0) -> None:
        """Go to a pane by its number, or to the next one; zoomed where another was, or where it has no place."""
        if self.tiny:
            return
        if self.page is not None:
            self.close_page()
        name = PANES[number - 1]
        if step:
            visible = [name for name in PANES if self.panes[name].display]
            at = next((at for at, name in enumerate(visible) if self.panes[name] is self.focused), -(step > 0))
            name = visible[(at + step) % len(visible)]
        if self.zoomed or not self.panes[name].display:
            self._zoom(name)
        self.set_focus(self.panes[name])

    def action_move(self, lines: int) -> None:
        """Move in the page or the focused pane."""
        if self.current is not None:
            self.current.move(lines)

    def action_leaf(self, pages: int) -> None:
        """Move by what is visible."""
        if self.current is not None:
            self.current.move(pages * self.current.page())

    def action_open(self) -> None:
        """Enter: the detail of the row."""
        thing = self.current.open() if self.current is not None else None
        if thing is not None:
            from gpumon.tui.pages.detail import DetailPage

            page = self._page("detail")
            assert isinstance(page, DetailPage)
            page.look_at(thing)
            self._put_over(page)
        self.show_keys()

    def action_page(self, name: str) -> None:
        """Open a page, or close it where it is open."""
        page = self._page(name)
        if self.page is page:
            self.close_page()
        else:
            self._put_over(page)

    def action_back(self) -> None:
        """Out of whatever is open, one step at a time; never quits."""
        if self.current is not None and self.current.back():
            self.show_keys()
        elif self.page is not None:
            self.close_page()
        else:
            self._zoom("")

    def action_zoom(self) -> None:
        """The focused pane alone, or all again."""
        if not self.tiny and self.page is None:
            focused = next((name for name, pane in self.panes.items() if pane is self.focused), PANES[0])
            self._zoom("" if self.zoomed else focused)

    def action_span(self, step: int) -> None:
        """Longer or shorter charts."""
        self.history.step_span(step)
        self.view.config = changed(self.view.config, "screen", "span_s", self.history.span_s)

    def action_redraw(self) -> None:
        """Ask for a reading now, and paint everything from scratch."""
        self.control.refresh()
        self.redraw()

    def action_filter(self) -> None:
        """Type what rows must contain."""
        from gpumon.tui.screens import questions

        if isinstance(self.current, ListPane):
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
        if self.files is not None and not self.themes:
            self.run_worker(self._ask_themes(self.files), exclusive=True, group="themes")

    async def _ask_themes(self, files: Files) -> None:
        self.themes = await files.themes()
        self.drawer.renew()

    def wear(self, name: str) -> None:
        """Show the theme of that name, once it is read."""
        if self.files is not None:
            self.run_worker(self._wear(self.files, name), exclusive=True, group="theme")

    async def _wear(self, files: Files, name: str) -> None:
        try:
            theme = await files.theme(name)
        except ConfigError as refused:
            self.say(str(refused))
        else:
            self.show_theme(theme)

    def show_theme(self, theme: Theme) -> None:
        """Show a theme."""
        self.palette.use(theme)
        self.redraw()

    def action_save(self) -> None:
        """Write what is shown to files; on the settings page the settings."""
        if self.current is not None and self.current.write():
            return
        if self.shown is None or self.files is None:
            return
        screen = "\n".join(strip.text.rstrip() for strip in self._compositor.render_strips())
        self.run_worker(self._save(self.files, self.shown, screen), exclusive=True, group="save")

    async def _save(self, files: Files, snapshot: Snapshot, screen: str) -> None:
        self.say(await files.save_snapshot(snapshot, screen))

    def ask(self, question: Question) -> None:
        """Open the drawer with a question; it takes the keys until it is closed."""
        if self.tiny:
            return
        self._remember()
        self.drawer.ask(question)
        self.lay_out()
        self.set_focus(self.drawer)
        self.drawer.update()

    def drawer_closed(self) -> None:
        """The keys go back to where they were."""
        self.lay_out()
        self.set_focus(self.page or self.panes[self._before])

    def _remember(self) -> None:
        """Note which pane has the focus, for when what covers it is closed."""
        self._before = next((name for name, pane in self.panes.items() if pane is self.focused), self._before)

    def _page(self, name: str) -> Pane:
        """A page, made and mounted when it is needed first."""
        page = self.pages.get(name)
        if page is None:
            page = self.pages[name] = _made(name)(self.palette, self.view)
            page.display = False
            self.mount(page, before=self.drawer)
        if self.shown is not None:
            page.show(self.shown)
        return page

    def _put_over(self, page: Pane) -> None:
        if self.tiny:
            return
        self._remember()
        self.page = page
        self.lay_out()
        self.set_focus(page)
        self.show_keys()

    def close_page(self) -> None:
        """All panes again."""
        self.page = None
        self.lay_out()
        self.set_focus(self.panes[self._before])
        self.show_keys()

    def _zoom(self, name: str) -> None:
        if name != self.zoomed:
            self.zoomed = name
            self.lay_out()
            self.show_keys()


def _made(name: str) -> type[Pane]:
    """The class of a page, imported when it is needed first."""
    if name == "help":
        from gpumon.tui.pages.help import HelpPage

        return HelpPage
    if name == "detail":
        from gpumon.tui.pages.detail import DetailPage

        return DetailPage
    from gpumon.tui.pages.settings import SettingsPage

    return SettingsPage

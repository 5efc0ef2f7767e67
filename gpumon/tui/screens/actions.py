"""What the keys do: one method per command of the table of keys."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from gpumon.config.errors import ConfigError
from gpumon.config.validate import changed
from gpumon.readings.text import clean
from gpumon.tui.control import INTERVALS_S, Incident
from gpumon.tui.layout import PANES
from gpumon.tui.picture import picture
from gpumon.tui.screens.sizing import SizingActions
from gpumon.tui.screens.travel import TravelActions
from gpumon.tui.widgets.list_pane import ListPane
from gpumon.tui.widgets.pane import Pane
from gpumon.tui.widgets.triage_pane import TriagePane

if TYPE_CHECKING:
    from textual.worker import WorkType

    from gpumon.config.schema import Config
    from gpumon.config.themes import Theme
    from gpumon.readings.snapshot import Snapshot
    from gpumon.tui.control import Control, Files
    from gpumon.tui.palette import Palette
    from gpumon.tui.view import View
    from gpumon.tui.widgets.drawer import Drawer, Question
    from gpumon.tui.widgets.history_pane import HistoryPane


class Actions(TravelActions, SizingActions, inherit_bindings=False):
    """Commands of the monitor's screen."""

    _before = PANES[0]
    """The pane that had the focus before a page or the drawer took it."""
    themes: tuple[str, ...] = ()
    """Names of the themes there are, as of the last time that someone asked."""
    asked_theme = ""
    """The theme that was to be the setting last, though it may be one that can not be read."""
    _writing = False
    """Whether a bundle is being written."""
    recent: tuple[str, ...] = ()
    """What was chosen by name, the newest first."""
    if TYPE_CHECKING:
        control: Control
        files: Files | None
        palette: Palette
        view: View
        shown: Snapshot | None
        zoomed: str
        page: Pane | None
        pages: dict[str, Pane]
        below: list[Pane]
        panes: dict[str, Pane]
        history: HistoryPane
        drawer: Drawer
        lay_out: Callable[[], None]
        give_keys: Callable[[], None]
        show_keys: Callable[[], None]
        redraw: Callable[[], None]
        say: Callable[[str], None]
        unsay: Callable[[], None]
        apply: Callable[[Config], None]

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

    def action_interval(self, step: int) -> None:
        """Go to the next longer or shorter interval; of a recording to another speed."""
        if self.current is not None and self.current.change(-step):
            return
        if self.change_speed(-step):
            return
        now = self.control.interval_s
        others = [interval for interval in INTERVALS_S if (interval - now) * step > 1e-9]
        if others:
            interval_s = min(others) if step > 0 else max(others)
            self.control.set_interval(interval_s)
            self.view.config = changed(self.view.config, "general", "interval_s", interval_s)
        self.show_keys()

    def action_side(self, step: int) -> None:
        """The value or thing before or after, where there is one; else, paused, the frame."""
        if (self.current is None or not self.current.side(step)) and self.paused and self.timely:
            self.action_frame(step)

    def action_pane(self, number: int, step: int = 0) -> None:
        """Go to a pane by its number, or to the next one; zoomed where another was, or where it has no place."""
        if self.tiny:
            return
        if self.page is not None:
            self.below.clear()
            self.close_page()
        if not self.panel_columns:
            self._leave_panel()
        name = PANES[number - 1]
        if step:
            reached = [name for name in PANES if self.zoomed or self.panes[name].display]
            reached += ["sizing"] if self.panel_columns else []
            at = next((at for at, name in enumerate(reached) if self._named(name) is self.focused), -(step > 0))
            name = reached[(at + step) % len(reached)]
        if name == "sizing":
            self.set_focus(self.panel)
            return
        self._leave_panel()
        if self.zoomed or not self.panes[name].display:
            self._zoom(name)
        self.set_focus(self.panes[name])

    def _named(self, name: str) -> Pane | None:
        return self.panel if name == "sizing" else self.panes[name]

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
            page.look_at(thing, self.keys_in)
            self._put_over(page)
        elif isinstance(self.current, TriagePane) and self.current.selected is not None:
            self.say("this line has no page of its own: it is no verdict, and about no engine or GPU here")
        self.show_keys()

    def action_page(self, name: str) -> None:
        """Open a page, or close it where it is open."""
        if self.tiny:
            return
        page = self._page(name)
        if name == "settings":
            self.ask_themes()
        if self.page is page:
            self.close_page()
        else:
            self._put_over(page)

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
            self._zoom("")

    def action_zoom(self) -> None:
        """The focused pane alone, or all again."""
        if not self.tiny and not self.covered:
            focused = next((name for name, pane in self.panes.items() if pane is self.focused), PANES[0])
            self._zoom("" if self.zoomed else focused)

    def action_span(self, step: int) -> None:
        """Longer or shorter charts."""
        if self.tiny:
            return
        self.history.step_span(step)
        self.view.config = changed(self.view.config, "screen", "span_s", self.history.span_s)
        self.panes["gpus"].update()

    def action_redraw(self) -> None:
        """Ask for a reading now, and paint everything from scratch."""
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

    def run_alone(self, group: str, work: WorkType[None]) -> None:
        """Work beside the screen, in place of what is left of the same group."""
        self.run_worker(work, exclusive=True, group=group)

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

    def action_save(self) -> None:
        """Write an incident bundle; in the settings and the sizing panel what they hold."""
        if self.current is not None and self.current.write():
            return
        if self.shown is None or self.files is None:
            return
        if self._writing:
            self.say("still writing the one before …")
            return
        self._writing = True
        strips = self._compositor.render_strips()
        events = {event for history in self.histories for event in history.events(-math.inf, math.inf)}
        incident = Incident(
            self.shown,
            "\n".join(strip.text.rstrip() for strip in strips),
            partial(picture, strips, self.app.size.width, "gpumon"),
            tuple(sorted(events, key=lambda event: event.wall_s)),
            self.control.timeline,
        )
        self.say("writing an incident bundle …")
        self.run_worker(self._save(self.files, incident), group="save")

    async def _save(self, files: Files, incident: Incident) -> None:
        try:
            self.say(await files.save_bundle(incident))
        except Exception as error:  # what can not be written costs the bundle, not the screen
            self.say(f"the bundle can not be written: {clean(f'{type(error).__name__}: {error}', 200)}")
        finally:
            self._writing = False

    def ask(self, question: Question) -> None:
        """Open the drawer with a question; it takes the keys until it is closed."""
        if self.tiny:
            return
        self._remember()
        self.unsay()
        self.drawer.ask(question)
        self.lay_out()
        self.set_focus(self.drawer)
        self.drawer.update()

    def _remember(self) -> None:
        """Note which pane has the focus, for when what covers it is closed."""
        if self.panel is not None and self.focused is self.panel:
            self._panel_keys = True
            return
        focused = next((name for name, pane in self.panes.items() if pane is self.focused), "")
        if focused:
            self._before, self._panel_keys = focused, False

    def _page(self, name: str) -> Pane:
        """A page, made and mounted when it is needed first."""
        page = self.pages.get(name)
        if page is None:
            page = self.pages[name] = _made(name)(self.palette, self.view)
            page.display = False
            self.new_page(page)
            self.mount(page, before=self.drawer)
        if self.shown is not None:
            page.show(self.shown)
        return page

    def _put_over(self, page: Pane) -> None:
        if self.tiny:
            return
        self._remember()
        if self.page is not None and page not in (self.page, *self.below):
            self.below.append(self.page)
        elif page in self.below:
            del self.below[self.below.index(page) :]
        self._turn_to(page)

    def close_page(self) -> None:
        """What it covers again: the page below it, else all panes."""
        if self.page is self.pages.get("detail"):
            self._point_at_what_was_seen()
        self._turn_to(self.below.pop() if self.below else None)

    def _turn_to(self, page: Pane | None) -> None:
        self.page = page
        self.lay_out()
        if page is not None and self.shown is not None:
            page.show(self.shown)
        self.give_keys()
        self.show_keys()

    def _point_at_what_was_seen(self) -> None:
        """Put the list's cursor on the thing that the detail page went on to, if the list shows it."""
        from gpumon.tui.pages.detail import DetailPage

        assert isinstance(self.page, DetailPage)
        kind, key = self.page.thing
        pane = self._list_of(kind)
        if pane is not None and key in self.keys_in(kind):
            pane.go_to(key)

    def keys_in(self, kind: str) -> Sequence[str]:
        """The keys of the things of one kind (gpu, engine, process, verdict), filtered and sorted as their pane is."""
        pane = self._list_of(kind)
        return () if pane is None else pane.pages()

    def _list_of(self, kind: str) -> ListPane[Any] | None:
        """The pane that lists things of a kind; replicas stand in the engines'."""
        lists = (pane for pane in self.panes.values() if isinstance(pane, ListPane))
        return next((pane for pane in lists if kind == pane.THING), None)

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

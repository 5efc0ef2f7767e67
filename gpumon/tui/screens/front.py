"""What all screens are made of: the parts around the panes, pages over them, and what has the keys."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar, Protocol

from textual import events
from textual.geometry import Size
from textual.reactive import Reactive
from textual.strip import Strip
from textual.widget import Widget
from textual.worker import WorkType

from gpumon.config.keymap import COMMANDS, Command
from gpumon.readings.snapshot import Snapshot
from gpumon.tui.control import Files
from gpumon.tui.keys import bindings
from gpumon.tui.palette import Palette
from gpumon.tui.screens.notices import Notices
from gpumon.tui.screens.sizing import SizingActions, sized
from gpumon.tui.view import View
from gpumon.tui.widgets.board import Board
from gpumon.tui.widgets.drawer import Drawer, Question
from gpumon.tui.widgets.key_line import KeyLine
from gpumon.tui.widgets.pane import Pane


class Planned(Protocol):
    """The lines of each part, as far as every screen has them."""

    @property
    def tiny(self) -> bool:
        """Whether only a summary has room."""

    @property
    def page(self) -> int:
        """Of the page that covers the panes."""

    @property
    def drawer(self) -> int:
        """Of the drawer."""


class Front(SizingActions, Notices, inherit_bindings=False):
    """A screen with a title, panes or a page over them, the drawer, and a line of keys."""

    ALLOW_SELECT = False
    virtual_size = Reactive(Size(0, 0), layout=False, repaint=False)
    focused: Reactive[Widget | None] = Reactive(None, repaint=False)
    """Neither a new size nor another focus needs a second paint of the whole screen: boards show their focus."""
    BINDINGS: ClassVar = bindings()
    OFFERED: ClassVar[Sequence[Command]] = tuple(command for command in COMMANDS if not command.scope)
    """Commands that do something here, apart from the sizing panel's."""
    _before: str
    """The pane that had the focus before a page or the drawer took it."""

    def __init__(self, files: Files | None, palette: Palette, view: View, wall: Callable[[], float]) -> None:
        super().__init__()
        self._wall = wall
        self.files = files
        self.palette = palette
        self.view = view
        self.panes: dict[str, Pane] = {}
        """What takes the keys while nothing covers it, by name, top to bottom."""
        self.page: Pane | None = None
        self.pages: dict[str, Pane] = {}
        self.below: list[Pane] = []
        """Pages under the one that is shown, the lowest first."""
        self.asked_theme = view.config.general.theme
        """The theme that was to be the setting last, though it may be one that can not be read."""
        self._laid: tuple[object, ...] = ()
        self.drawer = Drawer(palette, self.drawer_closed)
        self.key_line = KeyLine(palette)

    @property
    @abstractmethod
    def planned(self) -> Planned:
        """The lines of each part."""

    @property
    @abstractmethod
    def in_panes(self) -> Snapshot | None:
        """What panes and pages show; None: nothing yet."""

    @abstractmethod
    def boards(self) -> Iterator[Board]:
        """Everything that is painted, top to bottom."""

    @abstractmethod
    def lay_out(self) -> None:
        """Give each part its lines; costs a layout only where that changes something."""

    def size_parts(self, wanted: Planned, panes: Iterable[tuple[Board, int]], title: Board, small: Board) -> None:
        """Give the panes their lines, and what is around and over them theirs; `small` takes the place of everything
        where only a summary has room."""
        whole, height = self.app.size
        panel = self.panel_columns
        for pane, lines in panes:
            sized(pane, lines, whole - panel)
        for page in self.pages.values():
            sized(page, wanted.page if page is self.page else 0, whole - panel)
        self.place_panel(0 if wanted.tiny else height - 2 - wanted.drawer, panel, whole)
        sized(self.drawer, wanted.drawer)
        sized(title, 0 if wanted.tiny else 1)
        sized(self.key_line, 0 if wanted.tiny else 1)
        sized(small, max(1, height) if wanted.tiny else 0)
        self.find_focus()

    @abstractmethod
    def show_keys(self) -> None:
        """Name the keys that do something here."""

    @abstractmethod
    def made(self, name: str) -> type[Pane]:
        """The class of a page, imported when it is needed first."""

    @property
    def tiny(self) -> bool:
        """Whether only a summary has room."""
        return self.planned.tiny

    @property
    def current(self) -> Pane | None:
        """What the keys are for: the page, else the pane with the focus; nothing where neither can be seen."""
        if self.tiny:
            return None
        if self.panel is not None and self.focused is self.panel:
            return self.panel
        if self.page is not None:
            return self.page
        return self.focused if isinstance(self.focused, Pane) else None

    def commands(self) -> Sequence[Command]:
        """What can be done by its name."""
        return (*self.OFFERED, *(command for command in COMMANDS if command.scope == "sizing" and self.panel_open))

    def give_keys(self) -> None:
        """Give the keys to what lies on top: the drawer, the page, the pane that had them, else the first one."""
        panel = self.panel if self.panel_open and (self._panel_keys or not self.panel_columns) else None
        panes = (self.panes[self._before], *self.panes.values())
        parts: tuple[Board | None, ...] = (self.drawer, self.page, panel, *panes)
        self.set_focus(next((part for part in parts if part is not None and part.display), None))

    def find_focus(self) -> None:
        """Give the keys to what can be seen, after what had them lost its place, or all had."""
        if self.key_line.is_mounted and not self.tiny and (self.focused is None or not self.focused.display):
            self.give_keys()

    def _remember(self) -> None:
        """Note which pane has the focus, for when what covers it is closed."""
        if self.panel is not None and self.focused is self.panel:
            self._panel_keys = True
            return
        focused = next((name for name, pane in self.panes.items() if pane is self.focused), "")
        if focused:
            self._before, self._panel_keys = focused, False

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
        self.show_keys()

    def drawer_closed(self) -> None:
        """The keys go back to where they were; what had to wait is said."""
        self.lay_out()
        self.give_keys()
        self.show_keys()
        self.say_what_waited()

    def page_named(self, name: str) -> Pane:
        """A page, made and mounted when it is needed first."""
        page = self.pages.get(name)
        if page is None:
            page = self.pages[name] = self.made(name)(self.palette, self.view)
            page.display = False
            self.new_page(page)
            self.mount(page, before=self.drawer)
        if self.in_panes is not None:
            page.show(self.in_panes)
        return page

    def put_over(self, page: Pane) -> None:
        """Show a page over what is shown."""
        if self.tiny:
            return
        self._remember()
        if self.page is not None and page not in (self.page, *self.below):
            self.below.append(self.page)
        elif page in self.below:
            del self.below[self.below.index(page) :]
        self._turn_to(page)

    def new_page(self, page: Pane) -> None:
        """A page was just made."""

    def close_page(self) -> None:
        """What it covers again: the page below it, else all panes."""
        self._turn_to(self.below.pop() if self.below else None)

    def _turn_to(self, page: Pane | None) -> None:
        self.page = page
        self.lay_out()
        if page is not None and self.in_panes is not None:
            page.show(self.in_panes)
        self.give_keys()
        self.show_keys()

    def painted(self) -> list[Strip]:
        """The lines of the screen, top to bottom."""
        width, height = self.app.size
        rows = [Strip.blank(width) for _ in range(height)]
        for board in self.query(Board):
            (x, y), lines = board.region.offset, board.painted if board.display else ()
            for at, line in enumerate(lines, y):
                if 0 <= at < height:
                    rows[at] = Strip.join([rows[at].crop(0, x), line, rows[at].crop(x + line.cell_length)])
        return rows

    def redraw(self) -> None:
        """Paint everything from scratch."""
        for board in self.boards():
            board.forget()
        self.refresh(layout=True)
        self.lay_out()
        self.show_keys()

    def run_alone(self, group: str, work: WorkType[None]) -> None:
        """Work beside the screen, in place of what is left of the same group."""
        self.run_worker(work, exclusive=True, group=group)

    def on_resize(self, event: events.Resize) -> None:  # noqa: ARG002
        """Lay out for the new size, before Textual arranges and paints it: one frame, without the old rows."""
        self.lay_out()

    def on_descendant_focus(self) -> None:
        """The keys that make sense depend on what has them."""
        self.show_keys()

"""Where the sizing panel is on the screen, who has the keys beside it, and the keys that open and leave it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from textual.screen import Screen

from gpumon.tui.layout import panel_width
from gpumon.tui.widgets.board import Board
from gpumon.tui.widgets.pane import Pane

if TYPE_CHECKING:
    from gpumon.readings.snapshot import Snapshot
    from gpumon.tui.palette import Palette
    from gpumon.tui.sizing.panel import SizingPanel
    from gpumon.tui.view import View
    from gpumon.tui.widgets.drawer import Drawer


class SizingActions(Screen[None]):
    """The part of the monitor's screen that is about the sizing panel."""

    panel: SizingPanel | None = None
    """Made when it is opened first."""
    panel_open = False
    _panel_keys = False
    """Whether the panel had the keys before a page or the drawer took them."""

    if TYPE_CHECKING:
        palette: Palette
        view: View
        drawer: Drawer
        latest: Snapshot | None
        page: Pane | None
        below: list[Pane]
        lay_out: Callable[[], None]
        give_keys: Callable[[], None]
        show_keys: Callable[[], None]
        say: Callable[[str], None]
        _remember: Callable[[], None]

        @property
        def tiny(self) -> bool: ...

    @property
    def panels(self) -> tuple[SizingPanel, ...]:
        """The sizing panel, once it was made."""
        return () if self.panel is None else (self.panel,)

    @property
    def panel_columns(self) -> int:
        """Columns of the sizing panel where it stands beside the panes."""
        return panel_width(self.app.size.width) if self.panel_open else 0

    @property
    def covered(self) -> bool:
        """Whether something stands over the panes."""
        return self.page is not None or (self.panel_open and not self.panel_columns)

    def action_sizing(self) -> None:
        """Open the sizing panel, or go to it; where it has the keys, close it."""
        if self.tiny:
            return
        if self.panel is None:
            from gpumon.tui.sizing.panel import SizingPanel

            self.panel = SizingPanel(self.palette, self.view)
            self.panel.display = False
            self.mount(self.panel, before=self.drawer)
        if self.panel_open and self.focused is self.panel:
            self.close_panel()
            return
        self._remember()
        self.panel_open = self._panel_keys = True
        if not self.panel_columns:
            self.page = None
            self.below.clear()
        self.lay_out()
        if self.latest is not None:
            self.panel.show(self.latest)
        self.set_focus(self.panel)
        self.show_keys()

    def close_panel(self) -> None:
        """Give its place back; what was asked there stays."""
        self.panel_open = self._panel_keys = False
        self.lay_out()
        self.give_keys()
        self.show_keys()

    def says_panel_covers(self) -> bool:
        """Whether the panel stands over the panes, so that there is no next one to see; it says how to close it."""
        covers = self.panel_open and not self.panel_columns
        if covers:
            self.say(f"sizing has the whole screen: {self.view.keymap.first('sizing')} closes it")
        return covers

    def _leave_panel(self) -> None:
        """Give the keys to the panes: from beside them it stays in sight."""
        self._panel_keys = False
        if self.panel_open and not self.panel_columns:
            self.panel_open = False
            self.lay_out()

    def action_size(self, name: str) -> None:
        """One of the sizing panel's commands."""
        if self.panel is not None and self.panel_open and not self.tiny:
            self.set_focus(self.panel)
            self.panel.run(name)

    def place_panel(self, lines: int, columns: int, whole: int) -> None:
        """Beside the panes, or over them where there is no room for both."""
        if self.panel is None:
            return
        shown = self.panel_open and (columns > 0 or self.page is None)
        self.panel.beside = columns > 0
        sized(self.panel, lines if shown else 0, columns or whole)
        self.panel.styles.layer = "beside" if columns else "base"
        self.panel.styles.offset = (whole - columns, 1) if columns else (0, 0)


def sized(board: Board, lines: int, columns: int = 0) -> None:
    """Give a board its lines (0 hides it) and columns (0: all that there are)."""
    if lines and not board.display:
        board.forget()  # hidden boards are not kept up to date
    board.display = lines > 0
    if lines:
        board.styles.height = lines
        board.styles.width = columns or "100%"

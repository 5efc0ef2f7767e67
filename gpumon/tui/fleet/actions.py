"""What the keys of the fleet's screen do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from gpumon.tui.control import INTERVALS_S
from gpumon.tui.fleet.travel import FleetTravel

if TYPE_CHECKING:
    from gpumon.tui.fleet.rows_pane import RowsPane
    from gpumon.tui.palette import Palette
    from gpumon.tui.sizing.panel import SizingPanel
    from gpumon.tui.widgets.drawer import Drawer, Question
    from gpumon.tui.widgets.pane import Pane

_LEAST_S: Final = 1.0
"""Shortest time between two refreshes that the keys go to: `[prometheus] interval_s` has the same bound."""


class FleetActions(FleetTravel, inherit_bindings=False):
    """Commands of the fleet's screen."""

    if TYPE_CHECKING:
        opens: Callable[[str, float | None], None]
        palette: Palette
        table: RowsPane
        page: Pane | None
        panel: SizingPanel | None
        drawer: Drawer
        ask: Callable[[Question], None]
        lay_out: Callable[[], None]
        look_at_row: Callable[[], None]
        give_keys: Callable[[], None]
        redraw: Callable[[], None]
        close_panel: Callable[[], None]
        _remember: Callable[[], None]

        @property
        def current(self) -> Pane | None: ...
        @property
        def panel_columns(self) -> int: ...
        @property
        def tiny(self) -> bool: ...

    def action_quit(self) -> None:
        """Leave."""
        self.app.exit()

    def action_suspend(self) -> None:
        """To the shell."""
        self.app.action_suspend_process()

    def action_redraw(self) -> None:
        """Ask now, and paint everything from scratch."""
        self.control.refresh()
        self.redraw()

    def action_interval(self, step: int) -> None:
        """Go to the next longer or shorter time between two refreshes."""
        now = self.control.interval_s
        others = [every for every in INTERVALS_S if every >= _LEAST_S and (every - now) * step > 1e-9]
        if others:
            self.control.set_interval(min(others) if step > 0 else max(others))
        self.show_keys()

    def run_move(self, lines: int) -> None:
        """Move in what has the keys."""
        if self.current is not None:
            self.current.move(lines)

    def action_move(self, lines: int) -> None:
        """Move in what has the keys."""
        self.run_move(lines)

    def action_leaf(self, pages: int) -> None:
        """Move by what is visible."""
        if self.current is not None:
            self.current.move(pages * self.current.page())

    def action_pane(self, number: int, step: int = 0) -> None:  # noqa: ARG002
        """From the sizing panel beside the table to the table, and back."""
        if self.page is None and self.panel is not None and self.panel_columns:
            self.set_focus(self.table if self.focused is self.panel else self.panel)

    def action_models(self) -> None:
        """A row per model instead of a row per host, and back."""
        if self.current is self.table:
            self.table.turn_to_models(not self.table.models)
            self.follow_table()

    def action_open(self) -> None:
        """Enter: the host's own screen; of a model the hosts that serve it."""
        current = self.current
        if current is not self.table:
            if current is not None:
                current.open()
            self.show_keys()
            return
        row = self.table.selected
        if row is None:
            return
        if not self.table.models:
            at_s = self.shown.fleet.wall_s if self.paused and self.shown is not None else None
            self.opens(self.table.key_of(row), at_s)
        elif self.table.narrow_to_model(row):
            self.follow_table()
        else:
            self.say(f"no engine runs there: {self.view.keymap.first('fleet.models')} shows all hosts")

    def action_zoom(self) -> None:
        """Nothing of a fleet has a larger form but its hosts."""
        key = self.view.keymap.first
        self.say(f"nothing to zoom here: {key('open')} opens the host, where {key('zoom')} zooms a pane")

    def follow_table(self) -> None:
        self.look_at_row()
        self.show_keys()

    def action_back(self) -> None:
        """Out of whatever is open, one step at a time; never quits."""
        if self.tiny:
            return
        if self.current is not None and self.current.back():
            self.follow_table()
        elif self.panel is not None and self.focused is self.panel:
            self.close_panel()
        elif self.page is not None:
            self.action_page("help")

    def action_page(self, name: str) -> None:  # noqa: ARG002
        """Open the help, or close it."""
        if self.tiny:
            return
        if self.page is None:
            from gpumon.tui.fleet.help import FleetHelp

            self._remember()
            self.page = FleetHelp(self.palette, self.view)
            self.mount(self.page, before=self.drawer)
        else:
            page, self.page = self.page, None
            page.remove()
        self.lay_out()
        self.give_keys()
        self.show_keys()

    def action_filter(self) -> None:
        """Type which rows are wanted."""
        from gpumon.tui.fleet.questions import filter_of

        if self.current is self.table:
            self.ask(filter_of(self.table))

    def action_sort(self) -> None:
        """Choose the order of the rows."""
        from gpumon.tui.fleet.questions import order_of

        if self.current is self.table:
            self.ask(order_of(self.table))

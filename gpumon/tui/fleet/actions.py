"""What the keys do on the fleet's screen alone: hosts and models, a host's own screen."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from gpumon.tui.control import Incident
from gpumon.tui.fleet.keys import IDS, OFFERED
from gpumon.tui.fleet.travel import FleetTravel
from gpumon.tui.keys import bindings
from gpumon.tui.screens.common import CommonActions, Picture
from gpumon.tui.settings_table import FLEET_SETTINGS
from gpumon.tui.widgets.pane import Pane

if TYPE_CHECKING:
    from gpumon.tui.fleet.control import FleetControl
    from gpumon.tui.fleet.rows_pane import RowsPane


class FleetActions(FleetTravel, CommonActions, inherit_bindings=False):
    """Commands of the fleet's screen."""

    BINDINGS: ClassVar = bindings(IDS)
    OFFERED: ClassVar = OFFERED
    SETTINGS: ClassVar = FLEET_SETTINGS
    if TYPE_CHECKING:
        control: FleetControl
        opens: Callable[[str, float | None], None]
        table: RowsPane
        look_at_row: Callable[[], None]

    def action_pane(self, number: int, step: int = 0) -> None:  # noqa: ARG002
        """From the sizing panel beside the table to the table, and back."""
        if self.page is None and self.panel is not None and not self.says_panel_covers() and self.panel_columns:
            self.set_focus(self.table if self.focused is self.panel else self.panel)

    def go_to_pane(self, name: str) -> None:
        """Give the keys to a pane, out of what covers it."""
        self.below.clear()
        self.close_page()
        self._leave_panel()
        self.set_focus(self.panes[name])

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
            self._open(self.table.key_of(row))
        elif self.table.narrow_to_model(row):
            self.follow_table()
        elif row.parts.engines:
            self._open(row.parts.engines[0].host)  # no model to narrow to, but the engine stands in the foot
        else:
            self.say(f"no engine runs there: {self.view.keymap.first('fleet.models')} shows all hosts")

    def _open(self, host: str) -> None:
        """The screen of a host, at the moment that is shown."""
        self.opens(host, self.shown.fleet.wall_s if self.paused and self.shown is not None else None)

    @property
    def host_in_hand(self) -> str:
        """The name of the host under the cursor; empty where there is none."""
        row = self.table.selected
        return "" if row is None or self.table.models else self.table.key_of(row)

    def action_zoom(self) -> None:
        """Nothing of a fleet has a larger form but its hosts."""
        key = self.view.keymap.first
        self.say(f"nothing to zoom here: {key('open')} opens the host, where {key('zoom')} zooms a pane")

    def follow_table(self) -> None:
        """The table has other rows now."""
        self.look_at_row()
        self.show_keys()

    def incident(self, screen: str, drawn: Picture) -> Incident | None:
        """The fleet as it is shown; its past stays in the Prometheus."""
        if self.shown is None or not self.shown.fleet.wall_s:
            self.say("nothing to write: the Prometheus has not answered yet")
            return None
        return Incident(self.shown.fleet, screen, drawn, prices=self.control.prices)

    def made(self, name: str) -> type[Pane]:
        """The class of a page, imported when it is needed first."""
        if name == "help":
            from gpumon.tui.fleet.help import FleetHelp

            return FleetHelp
        return super().made(name)

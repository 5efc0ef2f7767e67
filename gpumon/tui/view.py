"""How the user wants to see things: settings in effect, shared by all panes and changed in place."""

from __future__ import annotations

from copy import copy

from gpumon.config.keymap import Keymap
from gpumon.config.schema import Config
from gpumon.specs.units import GIB
from gpumon.tui.marked import Marked


class View:
    """Units, levels, hidden columns and keys, ready for the painting of a tick."""

    def __init__(self, config: Config) -> None:
        self.loaded = config
        """The settings that gpumon was started with."""
        self.marked: Marked | None = None
        """The moment that the user marked; what engines did since then stands on their pages."""
        self.marked_s: float | None = None
        """Unix time of that moment, or of one of the past that was marked; what is shown is compared with it."""
        self.everywhere = ""
        """The filter of all panes; empty shows all."""
        self.use(config)

    def use(self, config: Config) -> None:
        """Take over other settings; the screen has to be drawn anew."""
        self.config = config
        self.levels = config.levels
        self.goals = config.goals
        self.keymap = Keymap(config.keys)
        self.fahrenheit = config.screen.temperature_unit == "F"
        self.memory_unit = config.screen.memory_unit
        self.memory_bytes = GIB if self.memory_unit == "GiB" else 1e9
        """Bytes of one unit of memory."""
        self.hidden = frozenset(config.screen.hidden_columns)
        """Columns that the user hides, behind their panes: `engines.url`."""

    def without(self, columns: frozenset[str]) -> View:
        """The same settings with more columns hidden, for one paint."""
        if columns <= self.hidden:
            return self
        view = copy(self)
        view.hidden = self.hidden | columns
        return view

"""The whole screen as one line, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpumon.readings.format import cells
from gpumon.readings.snapshot import Snapshot
from gpumon.tui.layout import LEAST_HEIGHT, LEAST_WIDTH
from gpumon.tui.line import Row
from gpumon.tui.palette import Palette
from gpumon.tui.summary import summary
from gpumon.tui.view import View
from gpumon.tui.widgets.board import Board

_LEAST: Final = f"{LEAST_WIDTH}x{LEAST_HEIGHT}"
_HINTS: Final = (f"{_LEAST} or more shows tables, {{quit}} quits", f"{_LEAST} for tables", f"needs {_LEAST}")
"""The longest one that fits is shown."""


class SummaryLine(Board):
    """Takes the place of everything where the terminal is too small."""

    def __init__(self, palette: Palette, view: View) -> None:
        super().__init__(palette)
        self._view = view
        self._snapshot: Snapshot | None = None
        self._paused = self._back = False

    def show(self, snapshot: Snapshot | None, *, paused: bool, back: bool = False) -> None:
        """Paint a snapshot; `back`: it is a moment of the past."""
        self._snapshot, self._paused, self._back = snapshot, paused, back
        self.update()

    def rows(self, width: int, height: int) -> Sequence[Row]:
        """The summary, and how to see more where there is a line left to say so."""
        rows = summary(self._snapshot, width, height, paused=self._paused, back=self._back)
        key = self._view.keymap.first("quit")
        hint = next((text for form in _HINTS if cells(text := form.format(quit=key)) <= width), "")
        return (*rows, ((hint, "muted"),))[:height]

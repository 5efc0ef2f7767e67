"""The whole screen as one line, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpumon.readings.snapshot import Snapshot
from gpumon.tui.layout import LEAST_HEIGHT, LEAST_WIDTH
from gpumon.tui.line import Row
from gpumon.tui.palette import Palette
from gpumon.tui.summary import summary
from gpumon.tui.widgets.board import Board

_HINTS: Final = (f"{LEAST_WIDTH}x{LEAST_HEIGHT} or more shows tables, q quits", f"needs {LEAST_WIDTH}x{LEAST_HEIGHT}")


class SummaryLine(Board):
    """Takes the place of everything where the terminal is too small."""

    def __init__(self, palette: Palette) -> None:
        super().__init__(palette)
        self._snapshot: Snapshot | None = None
        self._paused = False

    def show(self, snapshot: Snapshot | None, *, paused: bool) -> None:
        """Paint a snapshot."""
        self._snapshot, self._paused = snapshot, paused
        self.update()

    def rows(self, width: int, height: int) -> Sequence[Row]:  # noqa: ARG002
        """One line, and how to see more where there is room to say so."""
        hint = next((text for text in _HINTS if len(text) <= width), "")
        return (summary(self._snapshot, width, paused=self._paused), ((hint, "muted"),))

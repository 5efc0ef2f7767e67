"""What is wrong with the row under the cursor as a whole sentence, where the foot has no place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpumon.fleet.rows import Row
from gpumon.tui import line
from gpumon.tui.fleet.columns import sentence
from gpumon.tui.palette import Palette
from gpumon.tui.widgets.board import Board
from gpumon.tui.widgets.pane import wrapped

_MOST: Final = 6


class RowLine(Board):
    """The state of a host, or its worst verdict with what to do; it keeps a line where there is nothing to say, so
    that the table stays where it is as the cursor moves."""

    def __init__(self, palette: Palette) -> None:
        super().__init__(palette)
        self._said = ("", "text", "")

    def look_at(self, row: Row | None, wall_s: float) -> None:
        """Another row, or the same one at another moment (Unix time)."""
        self._said = ("", "text", "") if row is None else sentence(row, wall_s)
        self.update()

    def wanted(self, width: int) -> int:
        """Lines that it could use."""
        return max(1, len(wrapped(self._said[2], width, "text", _MOST)))

    def rows(self, width: int, height: int) -> Sequence[line.Row]:
        """The sentence, its glyph before it."""
        glyph, tone, text = self._said
        lines = wrapped(text, width, "text", max(1, height))
        if lines:
            (first, _), *_rest = lines[0]
            lines[0] = ((f" {glyph:<2}", tone), (first[3:], "text"))
        return lines

"""The last line: the keys that do something here, from the bindings themselves."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.readings.format import cells
from gpumon.tui.line import Piece, Row
from gpumon.tui.palette import Palette
from gpumon.tui.widgets.board import Board

Hint = tuple[str, str]
"""A key and what it does."""


class KeyLine(Board):
    """Hints from left to right as far as they fit; the last one is how to leave, and stands at the right."""

    def __init__(self, palette: Palette) -> None:
        super().__init__(palette)
        self._hints: tuple[Hint, ...] = ()

    def show(self, hints: Sequence[Hint]) -> None:
        """Paint the hints, most important first."""
        self._hints = tuple(hints)
        self.update()

    def rows(self, width: int, height: int) -> Sequence[Row]:  # noqa: ARG002
        """One line."""
        if not self._hints:
            return ()
        *hints, leave = self._hints
        last = _size(leave)
        row: list[Piece] = []
        used = 1
        for hint in hints:
            if used + _size(hint) + 2 + last + 3 > width:
                break
            row += [(" " if used == 1 else "  ", "text"), (hint[0], "accent"), (f" {hint[1]}", "muted")]
            used += _size(hint) + (0 if used == 1 else 2)
        row += [(" " * max(1, width - used - last - 1), "text"), (leave[0], "accent"), (f" {leave[1]} ", "muted")]
        return (tuple(row),)


def _size(hint: Hint) -> int:
    return cells(hint[0]) + 1 + cells(hint[1])

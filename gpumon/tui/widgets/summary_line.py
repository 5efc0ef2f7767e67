"""The whole screen as one line, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from gpumon.readings.format import cells
from gpumon.tui.layout import LEAST_HEIGHT, LEAST_WIDTH
from gpumon.tui.line import Row

_LEAST_SIZE: Final = f"{LEAST_WIDTH}x{LEAST_HEIGHT}"
"""Columns and lines from which there are tables."""
_HINTS: Final = (
    f"{_LEAST_SIZE} or more shows tables, {{quit}} quits",
    f"{_LEAST_SIZE} for tables",
    f"needs {_LEAST_SIZE}",
)
"""The longest one that fits is shown."""


def with_hint(draw: Callable[[int, int], Sequence[Row]], quit_key: str, width: int, height: int) -> Sequence[Row]:
    """The summary that `draw` gives for `width` cells and `height` lines, in place of everything where the terminal is
    too small, and a hint how to see more where a line is left."""
    hint = ""
    for form in _HINTS:
        text = form.format(quit=quit_key)
        if cells(text) <= width:
            hint = text
            break
    return (*draw(width, height), ((hint, "muted"),))[:height]

"""The whole screen as one line, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from gpumon.readings.format import cells
from gpumon.tui.layout import LEAST_HEIGHT, LEAST_WIDTH
from gpumon.tui.line import Row

_LEAST: Final = f"{LEAST_WIDTH}x{LEAST_HEIGHT}"
_HINTS: Final = (f"{_LEAST} or more shows tables, {{quit}} quits", f"{_LEAST} for tables", f"needs {_LEAST}")
"""The longest one that fits is shown."""


def with_hint(draw: Callable[[int, int], Sequence[Row]], quits: str, width: int, height: int) -> Sequence[Row]:
    """The summary in place of everything where the terminal is too small, and a hint how to see more where a line is
    left. `quits`: the key that quits."""
    hint = next((text for form in _HINTS if cells(text := form.format(quit=quits)) <= width), "")
    return (*draw(width, height), ((hint, "muted"),))[:height]

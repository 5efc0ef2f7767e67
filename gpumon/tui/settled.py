"""Lines that a pane asks for, so that others do not jump: more at once, fewer only after a while."""

from __future__ import annotations

from typing import Final

SHRINKS_S: Final = 60.0
"""A smaller number must be enough for so long."""


class Settled:
    """A number of lines over the time of the snapshots."""

    def __init__(self) -> None:
        self._lines = 0
        self._most = 0
        """Most that was asked for since it was fewer than `_lines`."""
        self._since_s: float | None = None
        """Since when it is (Unix time)."""

    def of(self, lines: int, now_s: float) -> int:
        """What to ask for where `lines` are needed now."""
        if lines >= self._lines:
            self._lines, self._since_s = lines, None
        elif self._since_s is None or now_s < self._since_s:
            self._most, self._since_s = lines, now_s
        else:
            self._most = max(self._most, lines)
            if now_s - self._since_s >= SHRINKS_S:
                self._lines, self._since_s = self._most, None
        return self._lines

"""Which lines of a pane are in view: they scroll where there are more than fit."""

from __future__ import annotations


class Scrolling:
    """The number of the first line in view, which stays among those that there are."""

    def __init__(self) -> None:
        self.top = 0
        """Number of the first line in view."""
        self.last = 0
        """The largest `top`: as many lines as are not in view."""

    def settle(self, last: int) -> None:
        """Take in how many lines do not fit; where that is too few for the first line in view, it is an earlier one."""
        self.last = max(0, last)
        self.move(0)

    def move(self, lines: int) -> None:
        """Move by so many lines, as far as there are others."""
        self.top = max(0, min(self.last, self.top + lines))

    def bring_into_view(self, line: int, height: int, room: int) -> None:
        """Scroll as little as needed to have `height` lines from this one on in `room` lines."""
        self.top = max(line + height - room, min(self.top, line))

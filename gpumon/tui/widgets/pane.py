"""A part of the screen under a rule that carries its key, its name, and what it does not show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events

from gpumon.readings.format import cells, cut
from gpumon.tui.line import Row
from gpumon.tui.palette import Palette
from gpumon.tui.widgets.board import Board


class Pane(Board, can_focus=True):
    """Rule, fixed header, and lines that scroll where they do not all fit."""

    KEY: ClassVar[str] = ""
    TITLE: ClassVar[str] = ""
    ZOOMS: ClassVar[bool] = True

    def __init__(self, palette: Palette) -> None:
        super().__init__(palette)
        self.hint = ""
        """What the screen adds to the rule: panes without a place, and their keys."""
        self.zoomed = False
        """Whether the pane has the whole screen."""
        self.note_room = 0
        """Cells of the rule that the note may take, set before it is asked for."""
        self._top = 0
        self._overflow = 0

    def head(self, width: int) -> Sequence[Row]:  # noqa: ARG002
        """Lines that stay."""
        return ()

    def body(self, width: int, height: int) -> Sequence[Row]:
        """All lines that may scroll; `height` is how many are visible."""
        raise NotImplementedError

    def note(self) -> str:
        """What the rule says on its right side."""
        return ""

    @property
    def scrolls(self) -> bool:
        """Whether there is more than what is visible."""
        return self._overflow > 0

    def rows(self, width: int, height: int) -> Sequence[Row]:
        """The rule, the header and the visible part of the body."""
        head = self.head(width)
        room = max(0, height - 1 - len(head))
        body = self.body(width, room)
        self._overflow = max(0, len(body) - room)
        self._top = min(self._top, self._overflow)
        return (self._rule(width, len(body), room), *head, *body[self._top : self._top + room])

    def _rule(self, width: int, total: int, room: int) -> Row:
        focused = self.has_focus
        name = f" {self.TITLE} "
        rows = f"{self._top + 1}-{self._top + room}" if room > 1 else f"{self._top + 1}"
        scroll = f"{rows} of {total}: {self._more(focused)}" if self._overflow else ""
        most = max(0, width - len(name) - 8)
        self.note_room = most - sum(cells(note) + 3 for note in (scroll, self.hint) if note)
        said = cut(" · ".join(note for note in (scroll, self.note(), self.hint) if note), most)
        said = f" {said} " if said else ""
        line = "─" * (width - 4 - len(name) - cells(said))
        return (
            ("─", "border"),
            (self.KEY, "accent"),
            ("─", "border"),
            (name, "focus" if focused else "text"),
            (line, "border"),
            (said, "muted"),
            ("─", "border"),
        )

    def _more(self, focused: bool) -> str:
        """The keys that show what is left out."""
        if not focused:
            return f"keys {self.KEY} z"
        return "↓ ↑" if self.zoomed or not self.ZOOMS else "↓ ↑ or z"

    def scroll_rows(self, lines: int) -> None:
        """Move the view by a number of lines."""
        self._top = max(0, min(self._overflow, self._top + lines))
        self.update()

    def page(self) -> int:
        """Lines that a page key moves by."""
        return max(1, self.size.height - 3)

    def watch_has_focus(self, has_focus: bool) -> None:
        """Mark the rule, or unmark it."""
        super().watch_has_focus(has_focus)
        self.update()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """The wheel scrolls."""
        event.stop()
        self.scroll_rows(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """The wheel scrolls."""
        event.stop()
        self.scroll_rows(-3)


def wrapped(text: str, width: int, tone: str, most: int = 3) -> list[Row]:
    """A sentence over at most `most` lines of `width` cells, broken at blanks; the last is cut where it must be."""
    lines: list[Row] = []
    words = text.split()
    while words and len(lines) < most:
        line = words.pop(0)
        while words and cells(line) + 1 + cells(words[0]) <= width - 4:
            line += " " + words.pop(0)
        if words and len(lines) == most - 1:
            line += " " + " ".join(words)
        lines.append((("   " + cut(line, width - 4), tone),))
    return lines

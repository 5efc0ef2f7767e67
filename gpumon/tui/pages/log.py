"""The log of an engine as a page: its end, what is added to it, and where its errors are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import ClassVar, Final

from gpumon.readings.format import cells, counted
from gpumon.readings.log_text import LogLevel, LogLine, LogView
from gpumon.tui.line import Row
from gpumon.tui.pages.followed import FollowedPage, fault_rows, place_row
from gpumon.tui.palette import Palette
from gpumon.tui.view import View

_FAR: Final = 1_000_000
_INDENT: Final = "  "
"""Before the rest of a line that is longer than the screen is wide."""
_MASKED: Final = "prompts, answers, keys: ***"
_TONES: Final = {
    LogLevel.ERROR: "critical",
    LogLevel.WARNING: "warn",
    LogLevel.PLAIN: "text",
    LogLevel.DEBUG: "muted",
}


class LogPage(FollowedPage[LogView]):
    """Follows the end of a log until it is scrolled."""

    SCOPE: ClassVar[str] = "log"

    def __init__(self, palette: Palette, view: View, say: Callable[[str], None]) -> None:
        """`say`: shows a notice."""
        super().__init__(palette, view)
        self._say = say
        self._rows_of_log = LogRows()
        self._error = -1
        """Number of the error that was gone to last."""
        self.follows = True
        """Whether the newest lines are in view, as they come."""

    def begin(self) -> None:
        """Forget the rows, and follow the end again."""
        self._rows_of_log = LogRows()
        self._error = -1
        self.follows = True

    def arrived(self, reading: LogView) -> None:
        """Make rows of new lines; the view stays on its lines while older ones go."""
        self._top = max(0, self._top - self._rows_of_log.take(reading))

    def broken(self, fault: str) -> LogView:
        """A log that cannot be read."""
        return LogView(fault=fault)

    def title(self) -> str:
        """Name of the engine."""
        return f"log of {self._engine_name}"

    def note(self) -> str:
        """Matches in the log, and whether it is followed."""
        key = self.view.keymap.first
        parts = []
        errors = self._rows_of_log.errors
        if errors:
            parts.append(f"{counted(len(errors), 'error')}: {key('log.error')}")
        if self._shown is not None and self._shown.logs > 1:
            parts.append(f"{key('left')} {key('right')}: its other log")
        if self.follows:
            parts.append("follows")
        else:
            parts.append(f"{key('log.follow')}: follow")
        return " · ".join(parts)

    def head(self, width: int) -> Sequence[Row]:
        """Place of the log, and a note on its masked parts."""
        if self._shown is None or not self._shown.place:
            return ()
        room = max(8, width - cells(_MASKED) - 3)
        return (place_row(self._shown.place, _MASKED, room),)

    def body(self, width: int, height: int) -> Sequence[Row]:  # noqa: ARG002 - the signature of Pane
        """All lines, the longer ones over several rows; or why there are none."""
        shown = self._shown
        if shown is None:
            return (((" reading …", "muted"),),)
        rows = self._rows_of_log.rows(width)
        if shown.fault:
            return [*rows, *fault_rows(shown, width)]
        return rows or (((" nothing was logged yet", "muted"),),)

    def in_view(self, width: int, room: int) -> tuple[Sequence[Row], int]:
        """The lines in view: the last ones while the log is followed."""
        if self.follows:
            self._top = _FAR
        return super().in_view(width, room)

    def move(self, lines: int) -> None:
        """Move the view; at its end the log is followed again."""
        self._top = max(0, min(self._overflow, self._top + lines))
        self.follows = self._top >= self._overflow
        self.update()

    def find(self, text: str) -> None:
        """Search, and stop following, so that the match stays in view."""
        self.follows = self.follows and not text
        super().find(text)

    def step_match(self, by: int) -> None:
        """The same for the other places."""
        self.follows = False
        super().step_match(by)

    def run(self, command: str) -> None:
        """One of the commands of a log."""
        if command == "log.follow":
            self.follows = not self.follows
        elif command == "log.error":
            self._go_to_error()
        self.update()

    def _go_to_error(self) -> None:
        """The first error; again: the next one, and after the last the first."""
        errors = self._rows_of_log.errors
        if not errors:
            self._say("no line of it is an error")
            return
        if self.follows:
            self._error = 0
        else:
            self._error = (self._error + 1) % len(errors)
        self.follows = False
        self._top = errors[self._error]


class LogRows:
    """The rows of a log for one width: those of lines that were there before are not made again."""

    def __init__(self) -> None:
        self.errors: list[int] = []
        """Rows at which errors begin; those that follow one another, as the lines of a traceback, are one."""
        self._line_cells = 0
        self._view = LogView()
        self._rows: list[Row] = []
        self._heights: list[int] = []
        """Rows of each line."""
        self._first = 0
        """Number of the first line that has rows, from the first one that was ever read on."""
        self._is_in_error = False
        """Whether the last line belongs to an error."""

    def take(self, view: LogView) -> int:
        """Take what was read; returns how many rows at the beginning are gone."""
        is_other = view.generation != self._view.generation
        self._view = view
        if is_other:
            self._begin(self._line_cells)
            return 0
        gone = min(len(self._heights), max(0, view.dropped - self._first))
        rows_gone = sum(self._heights[:gone])
        del self._heights[:gone]
        del self._rows[:rows_gone]
        self._first = view.dropped
        self.errors = [row - rows_gone for row in self.errors if row >= rows_gone]
        self._make()
        return rows_gone

    def rows(self, width: int) -> list[Row]:
        """All rows, for that width."""
        if width != self._line_cells:
            self._begin(width)
        rows = list(self._rows)
        for line in self._view.lines[len(self._heights) :]:
            rows += _rows_of(line, width)
        return rows

    def _begin(self, width: int) -> None:
        self._line_cells = width
        self._rows = []
        self._heights = []
        self._first = self._view.dropped
        self._is_in_error = False
        self.errors = []
        self._make()

    def _make(self) -> None:
        """Make the rows of complete lines that have none yet."""
        if not self._line_cells:
            return
        complete = len(self._view.lines) - self._view.unfinished
        for line in islice(self._view.lines, len(self._heights), complete):
            is_error = line.level is LogLevel.ERROR
            if is_error and not self._is_in_error:
                self.errors.append(len(self._rows))
            self._is_in_error = is_error
            rows = _rows_of(line, self._line_cells)
            self._rows += rows
            self._heights.append(len(rows))


def _rows_of(line: LogLine, width: int) -> list[Row]:
    """A line over as many rows as it needs."""
    tone = _TONES[line.level]
    room = max(8, width - 2)
    pieces = _pieces(line.text, room)
    first: Row = ((" " + pieces[0], tone),)
    return [first, *(((" " + _INDENT + piece, tone),) for piece in pieces[1:])]


def _pieces(text: str, room: int) -> list[str]:
    """The text in pieces of so many cells; those after the first are indented."""
    if cells(text) <= room:
        return [text]
    if text.isascii():
        step = room - len(_INDENT)
        return [text[:room], *(text[start : start + step] for start in range(room, len(text), step))]
    pieces: list[str] = []
    piece = ""
    used = 0
    for character in text:
        size = cells(character)
        if used + size > room:
            pieces.append(piece)
            piece = ""
            used = len(_INDENT)
        piece += character
        used += size
    return [*pieces, piece]

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
from gpumon.tui.widgets.pane import LinesInView

_END: Final = 1_000_000
"""Number of a line beyond the end of any log: the view is moved back from there to the last lines."""
_INDENT: Final = "  "
"""Before the rest of a line that is longer than the screen is wide."""
_LEAST_TEXT_CELLS: Final = 8
"""Cells that a text gets however narrow the screen is."""
_MASKED_NOTE: Final = "prompts, answers: …, keys: ***"
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
        """`say` shows a notice."""
        super().__init__(palette, view)
        self._say = say
        self._rows_of_log = LogRows()
        self._error_place = -1
        """Place among the log's errors of the one that was gone to last; -1 before the first."""
        self.follows = True
        """Whether the newest lines are in view, as they come."""

    def reset(self) -> None:
        """Forget the rows, and follow the end again."""
        self._rows_of_log = LogRows()
        self._error_place = -1
        self.follows = True

    def take_reading(self, reading: LogView) -> None:
        """Make rows of new lines; the view stays on its lines while older ones go."""
        rows_gone = self._rows_of_log.take(reading)
        self.scrolling.top = max(0, self.scrolling.top - rows_gone)

    def failed_reading(self, fault: str) -> LogView:
        """A log that cannot be read."""
        return LogView(fault=fault)

    def title(self) -> str:
        """The name on the rule: `log of engine vllm:8000`."""
        return f"log of {self.engine_name}"

    def note(self, room: int) -> str:  # noqa: ARG002 - the signature of Pane
        """Number of errors, keys for another log, and whether this one is followed."""
        key = self.view.keymap.first
        parts = []
        errors = self._rows_of_log.errors
        if errors:
            parts.append(f"{counted(len(errors), 'error')}: {key('log.error')}")
        if self.reading is not None and self.reading.logs > 1:
            parts.append(f"{key('left')} {key('right')}: its other log")
        if self.follows:
            parts.append("follows")
        else:
            parts.append(f"{key('log.follow')}: follow")
        return " · ".join(parts)

    def head(self, width: int) -> Sequence[Row]:
        """Place of the log, and a note on what is masked in it."""
        if self.reading is None or not self.reading.place:
            return ()
        return (place_row(self.reading.place, _MASKED_NOTE, width),)

    def body(self, width: int, height: int) -> Sequence[Row]:  # noqa: ARG002 - the signature of Pane
        """All lines, the longer ones over several rows; or why there are none."""
        shown = self.reading
        if shown is None:
            return (((" reading …", "muted"),),)
        rows = self._rows_of_log.rows(width)
        if shown.fault:
            return [*rows, *fault_rows(shown, width)]
        return rows or (((" nothing was logged yet", "muted"),),)

    def in_view(self, width: int, room: int) -> LinesInView:
        """The lines in view: the last ones while the log is followed."""
        if self.follows:
            self.scrolling.top = _END
        return super().in_view(width, room)

    def move(self, lines: int) -> None:
        """Move the view; at its end the log is followed again."""
        self.scrolling.move(lines)
        self.follows = self.scrolling.top >= self.scrolling.last
        self.update()

    def find(self, text: str) -> None:
        """Search, and stop following, so that the match stays in view; an empty text ends the search."""
        if text:
            self.follows = False
        super().find(text)

    def step_match(self, step: int) -> None:
        """Go to another match, and stop following, so that it stays in view."""
        self.follows = False
        super().step_match(step)

    def run(self, command: str) -> None:
        """Run a command of the log page: follow or stop following, or go to an error."""
        if command == "log.follow":
            self.follows = not self.follows
        elif command == "log.error":
            self._go_to_error()
        self.update()

    def _go_to_error(self) -> None:
        """Go from the end of the log to its first error, then to the next one; after the last to the first again."""
        errors = self._rows_of_log.errors
        if not errors:
            self._say("no line of it is an error")
            return
        if self.follows:
            self._error_place = 0
        else:
            self._error_place = (self._error_place + 1) % len(errors)
        self.follows = False
        self.scrolling.top = errors[self._error_place]


class LogRows:
    """The rows of a log for one width: those of lines that were there before are not made again."""

    def __init__(self) -> None:
        self.errors: list[int] = []
        """Numbers of the rows at which errors begin; error lines in a row, as those of a traceback, are one error."""
        self._width = 0
        """Cells that the rows were made for; 0 before the first painting."""
        self._view = LogView()
        self._rows: list[Row] = []
        self._heights: list[int] = []
        """Number of rows of each line that has some."""
        self._first_line = 0
        """Number of the first line that has rows, counted from the first one that was ever read."""
        self._is_in_error = False
        """Whether the last line belongs to an error."""

    def take(self, view: LogView) -> int:
        """Take a reading of the log; returns how many rows at the beginning are gone."""
        is_other_log = view.generation != self._view.generation
        self._view = view
        if is_other_log:
            self._make_all_rows(self._width)
            return 0
        lines_gone = min(len(self._heights), max(0, view.dropped - self._first_line))
        rows_gone = sum(self._heights[:lines_gone])
        del self._heights[:lines_gone]
        del self._rows[:rows_gone]
        self._first_line = view.dropped
        self.errors = [row - rows_gone for row in self.errors if row >= rows_gone]
        self._make_new_rows()
        return rows_gone

    def rows(self, width: int) -> list[Row]:
        """The rows of all lines for a width, with those of the unfinished last line, which are not kept."""
        if width != self._width:
            self._make_all_rows(width)
        rows = list(self._rows)
        for line in self._view.lines[len(self._heights) :]:
            rows += _line_rows(line, width)
        return rows

    def _make_all_rows(self, width: int) -> None:
        """Make the rows of all complete lines anew."""
        self._width = width
        self._rows = []
        self._heights = []
        self._first_line = self._view.dropped
        self._is_in_error = False
        self.errors = []
        self._make_new_rows()

    def _make_new_rows(self) -> None:
        """Make the rows of complete lines that have none yet."""
        if not self._width:
            return
        complete = len(self._view.lines) - self._view.unfinished
        for line in islice(self._view.lines, len(self._heights), complete):
            is_error = line.level is LogLevel.ERROR
            if is_error and not self._is_in_error:
                self.errors.append(len(self._rows))
            self._is_in_error = is_error
            rows = _line_rows(line, self._width)
            self._rows += rows
            self._heights.append(len(rows))


def _line_rows(line: LogLine, width: int) -> list[Row]:
    """A line of the log over as many rows as it needs."""
    tone = _TONES[line.level]
    first, *others = _pieces(line.text, max(_LEAST_TEXT_CELLS, width - 2))  # a blank at each edge
    rows: list[Row] = [((f" {first}", tone),)]
    for piece in others:
        rows.append(((f" {_INDENT}{piece}", tone),))
    return rows


def _pieces(text: str, room: int) -> list[str]:
    """The text in pieces of at most `room` cells; those after the first leave room for their indent."""
    if cells(text) <= room:
        return [text]
    if text.isascii():  # a character is a cell
        step = room - len(_INDENT)
        return [text[:room], *(text[start : start + step] for start in range(room, len(text), step))]
    pieces: list[str] = []
    piece = ""
    used_cells = 0
    for character in text:
        size = cells(character)
        if used_cells + size > room:
            pieces.append(piece)
            piece = ""
            used_cells = len(_INDENT)
        piece += character
        used_cells += size
    return [*pieces, piece]

"""The drawer at the foot of the screen: a question with a text to type, a list to choose from, or both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from textual import events

from gpumon.readings.format import cells, cut, left
from gpumon.tui.line import Piece, Row
from gpumon.tui.palette import Palette
from gpumon.tui.text_field import TextField
from gpumon.tui.widgets.board import Board
from gpumon.tui.widgets.list_pane import marked

MOST_CHOICES: Final = 12
"""Lines of choices that the drawer takes from the screen."""
_BEHIND: Final = 8
"""Cells of a text too long that are shown behind its cursor."""


class Choice(NamedTuple):
    """One line to choose."""

    name: str
    note: str
    value: object
    id: str = ""
    """What else it may be called by whoever types."""


class Question(NamedTuple):
    """What is asked. All functions are called in the event loop and return at once."""

    title: str
    choices: Callable[[str], Sequence[Choice]] | None = None
    """The choices for the text typed so far; None: only a text is asked for."""
    chosen: Callable[[Choice | None, str], None] = lambda _choice, _text: None
    """Enter: the choice under the cursor (None: there is none) and the text."""
    pointed: Callable[[Choice | None], None] = lambda _choice: None
    """After each move of the cursor; None: the list is another one, and nobody pointed yet."""
    changed: Callable[[str], None] = lambda _text: None
    """After each change of the text."""
    dropped: Callable[[], None] = lambda: None
    """Esc."""
    text: str = ""
    """What stands in the field at first."""
    fresh: bool = False
    """The first character typed takes the place of that text."""
    types: bool = True
    """Whether there is a field; without one, j k g G move, too."""
    at: int = 0
    """The choice that the cursor is on at first."""
    stays: bool = False
    """Enter leaves the drawer open: for things that are switched on and off."""
    hint: str = ""


class Drawer(Board, can_focus=True):
    """Takes all keys while it is open."""

    def __init__(self, palette: Palette, when_closed: Callable[[], None]) -> None:
        super().__init__(palette)
        self._when_closed = when_closed
        self._question: Question | None = None
        self._field = TextField()
        self._choices: Sequence[Choice] = ()
        self._at = 0
        self._top = 0
        self._most = 0
        """Choices at the beginning: the drawer does not shrink while one types."""

    def ask(self, question: Question) -> None:
        """Open with a question."""
        self._question = question
        self._field = TextField(question.text, selected=question.fresh)
        self._at = question.at
        self._top = 0
        self._choose_from()
        self._most = len(self._choices)

    @property
    def open(self) -> bool:
        """Whether something is asked."""
        return self._question is not None

    def wanted(self, height: int) -> int:
        """Lines that it would take of a screen of `height`."""
        if self._question is None:
            return 0
        return 1 + (min(MOST_CHOICES, max(3, self._most), height // 2) if self._question.choices else 0)

    def rows(self, width: int, height: int) -> Sequence[Row]:
        """The title with the text, then the choices."""
        question = self._question
        if question is None:
            return ()
        room = height - 1
        self._top = max(self._at - room + 1, min(self._top, self._at), 0) if room > 0 else 0
        rows = [self._line(choice, width) for choice in self._choices[self._top : self._top + room]]
        at = self._at - self._top
        if 0 <= at < len(rows):
            rows[at] = marked(rows[at])
        if question.choices is not None and not self._choices and room > 0:
            rows.append((("   nothing matches; Esc: close", "muted"),))
        return (self._title(question, width), *rows)

    def _title(self, question: Question, width: int) -> Row:
        pieces: list[Piece] = [(f" {question.title} ", "focus")]
        if question.types:
            pieces += _in_view(self._field, width - cells(pieces[0][0]) - 1)
        room = width - sum(cells(piece[0]) for piece in pieces)
        hint = cut(question.hint, max(0, room - 2))
        return (*pieces, (" " * max(1, room - cells(hint) - 1), "text"), (hint, "muted"))

    def _line(self, choice: Choice, width: int) -> Row:
        name = left(choice.name, min(28, width // 2))
        return ((f"   {name}  ", "text"), (cut(choice.note, max(0, width - cells(name) - 6)), "muted"))

    def _choose_from(self) -> None:
        if self._question is not None and self._question.choices is not None:
            self._choices = self._question.choices(self._field.text)
            self._at = max(0, min(self._at, len(self._choices) - 1))
        else:
            self._choices = ()

    def renew(self) -> None:
        """Ask for the choices again: there are others by now."""
        self._choose_from()
        self._most = max(self._most, len(self._choices))
        self.update()

    async def on_key(self, event: events.Key) -> None:
        """Everything but ctrl+c and ctrl+z is for the drawer."""
        question = self._question
        if question is None:
            return
        event.stop()
        event.prevent_default()
        if question.stays and event.key in ("enter", "space"):
            self._switch(question)
        elif event.key in ("escape", "enter"):
            self._close(question, enter=event.key == "enter")
        elif (step := _STEPS.get(event.key)) is not None or (
            not question.types and (step := _LETTERS.get(event.key)) is not None
        ):
            self._point(question, self._at + step)
        elif question.types and self._field.take(event.key, event.character):
            self._typed(question)

    def on_paste(self, event: events.Paste) -> None:
        """Pasted text is typed text; of several lines the first."""
        event.stop()
        if self._question is not None and self._question.types and event.text:
            self._field.insert(event.text.splitlines()[0])
            self._typed(self._question)

    def _typed(self, question: Question) -> None:
        self._at = 0
        self._choose_from()
        question.changed(self._field.text)
        question.pointed(None)
        self.update()

    def _point(self, question: Question, at: int) -> None:
        if self._choices:
            self._at = max(0, min(len(self._choices) - 1, at))
            question.pointed(self._choices[self._at])
        self.update()

    def _switch(self, question: Question) -> None:
        if self._choices:
            question.chosen(self._choices[self._at], self._field.text)
            self.renew()

    def _close(self, question: Question, *, enter: bool) -> None:
        choice = self._choices[self._at] if self._choices else None
        text = self._field.text
        self._question = None
        self._when_closed()
        if enter:
            question.chosen(choice, text)
        else:
            question.dropped()

    def drop(self) -> None:
        """Close it as Esc does."""
        if self._question is not None:
            self._close(self._question, enter=False)

    def on_click(self, event: events.Click) -> None:
        """A click chooses."""
        at = event.y - 1 + self._top
        if self._question is not None and 0 <= at < len(self._choices):
            self._at = at
            if self._question.stays:
                self._switch(self._question)
            else:
                self._close(self._question, enter=True)


def _in_view(field: TextField, room: int) -> list[Piece]:
    """The text with its cursor marked; of one that is too long, what ends at the cursor, or a bit behind it."""
    text, at = field.text, field.at
    if field.selected and cells(text) < room:
        return [(text, "strong@"), (" ", "badge_paused")]
    before, under, after = text[:at], text[at : at + 1] or " ", text[at + 1 :]
    lead = ""
    if cells(before + under + after) > room:
        after = cut(after, max(0, min(_BEHIND, room - cells(under) - 1)))
        lead = "…" if cells(before + under + after) > room else ""
        while before and cells(lead + before + under + after) > room:
            before = before[1:]
    return [(lead + before, "strong"), (under, "badge_paused"), (after, "strong")]


_STEPS: Final = {
    "up": -1,
    "down": 1,
    "pageup": -10,
    "pagedown": 10,
    "ctrl+p": -1,
    "ctrl+n": 1,
    "tab": 1,
    "shift+tab": -1,
}
_LETTERS: Final = {"k": -1, "j": 1, "g": -100_000, "G": 100_000, "home": -100_000, "end": 100_000}

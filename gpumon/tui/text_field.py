"""A line of text that is being typed: what each key does to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_MOST_CHARACTERS: Final = 200
"""Characters kept; a paste may be of any length."""


class TextField:
    """The text and the cursor in it. `take` is given the keys."""

    def __init__(self, text: str = "", *, selected: bool = False) -> None:
        self.text = text
        self.cursor = len(text)
        """Place of the character that the cursor is on."""
        self.selected = selected and text != ""
        """Whether all of it is selected: what is typed next takes its place."""

    def take(self, key: str, character: str | None) -> bool:
        """Do what a key (Textual's name and its character, if any) does to the text; returns whether it does
        anything."""
        if character is not None and character.isprintable():
            self.insert(character)
            return True
        cursor_after = _CURSOR_MOVES.get(key)
        if cursor_after is not None:
            self.cursor = max(0, min(len(self.text), cursor_after(self)))
            self.selected = False
            return True
        range_to_remove = _REMOVED_RANGES.get(key)
        if range_to_remove is None:
            return False
        begin, end = range_to_remove(self)
        if self.selected:
            begin = 0
            end = len(self.text)
        self.selected = False
        begin = max(0, begin)
        end = min(len(self.text), end)
        self.text = self.text[:begin] + self.text[end:]
        self.cursor = begin
        return True

    def insert(self, text: str) -> None:
        """Put text in at the cursor, or in place of what is selected, without what is not printable."""
        text = "".join(character for character in text if character.isprintable())
        if self.selected and text:
            self.text = ""
            self.cursor = 0
        self.selected = False
        text = text[: _MOST_CHARACTERS - len(self.text)]
        self.text = self.text[: self.cursor] + text + self.text[self.cursor :]
        self.cursor += len(text)

    def word_start(self) -> int:
        """Place of the begin of the word before the cursor."""
        before = self.text[: self.cursor].rstrip()
        return before.rfind(" ") + 1


_CURSOR_MOVES: Final[dict[str, Callable[[TextField], int]]] = {
    "left": lambda field: field.cursor - 1,
    "right": lambda field: field.cursor + 1,
    "home": lambda _: 0,
    "ctrl+a": lambda _: 0,
    "end": lambda field: len(field.text),
    "ctrl+e": lambda field: len(field.text),
}
"""Key -> where it puts the cursor; a place outside of the text is cut to its end."""
_REMOVED_RANGES: Final[dict[str, Callable[[TextField], tuple[int, int]]]] = {
    "backspace": lambda field: (field.cursor - 1, field.cursor),
    "delete": lambda field: (field.cursor, field.cursor + 1),
    "ctrl+u": lambda field: (0, field.cursor),
    "ctrl+k": lambda field: (field.cursor, len(field.text)),
    "ctrl+w": lambda field: (field.word_start(), field.cursor),
}
"""Key -> begin and end of the text that it takes away."""

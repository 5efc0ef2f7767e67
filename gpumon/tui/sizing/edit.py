"""One value of the sizing panel while it is being typed."""

from __future__ import annotations

from typing import Final

from gpumon.readings.format import cells
from gpumon.readings.text import clean
from gpumon.sizing.scenario import Scenario
from gpumon.tui.line import Piece
from gpumon.tui.sizing.fields import FieldPlace, with_value

_MOST_TYPED: Final = 40
"""Most characters of a typed number."""


class Edit:
    """A number being typed, over the scenario as it was before. What is no number stays until it is mended."""

    def __init__(self, place: FieldPlace, before: Scenario, text: str = "") -> None:
        self.place = place
        self.text = text
        self.scenario: Scenario | None = None
        """The scenario with what is typed so far; None while that is no value."""
        self.reason = ""
        """Why it is no value; empty while it is one."""
        self.key_note = ""
        """Note on the last key, if it could do nothing while this is being typed; else empty."""
        self.read(before)

    def take_key(self, key: str, character: str | None) -> bool:
        """Type one key; returns whether it was for the text."""
        if key == "backspace":
            self.text = self.text[:-1]
        elif key == "ctrl+u":
            self.text = ""
        elif character is not None and character.isprintable():
            self.add(character)
        else:
            return False
        return True

    def ends_before(self, character: str) -> bool:
        """Whether the number that is typed is whole, and a character can be no part of it."""
        kind = self.place.field.kind
        assert kind is not None
        return self.scenario is not None and not kind.may_become_number(self.text + character)

    def add(self, text: str) -> None:
        """Type or paste text behind what is there."""
        self.text = clean(self.text + text, _MOST_TYPED)

    def read(self, before: Scenario) -> None:
        """Put what is typed into the scenario as it was before."""
        self.key_note = ""
        try:
            value = self.place.field.read(self.text)
        except (ValueError, OverflowError) as error:
            self.scenario = None
            self.reason = str(error)
        else:
            self.scenario = with_value(before, self.place, value)
            self.reason = ""

    def pieces(self, width: int) -> list[Piece]:
        """The text with its cursor in `width` cells; the end of a text that is too long."""
        shown = self.text[-(width - 1) :] if width > 1 else ""
        tone = "warn@" if self.reason else "strong@"
        blank = " " * max(0, width - cells(shown) - 1)
        return [(shown, tone), (" ", "badge_paused"), (blank, "strong@")]

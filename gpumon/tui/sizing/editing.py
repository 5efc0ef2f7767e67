"""A value while it is typed: its text, and the scenario that it makes."""

from __future__ import annotations

from typing import Any

from gpumon.readings.format import cells, cut
from gpumon.sizing.scenario import Scenario
from gpumon.tui.line import Piece
from gpumon.tui.sizing.fields import Place, with_value
from gpumon.tui.text_field import TextField


class Edit:
    """One field being typed into, over the scenario as it was before."""

    def __init__(self, place: Place, before: Scenario, text: str = "") -> None:
        self.fresh = not text
        """Whether it is typed from nothing: then the arrows leave it."""
        self.place = place
        self.before = before
        self.text = TextField(text)
        self.scenario: Scenario | None = None
        """With what is typed so far; None while that is no value."""
        self.reason = ""
        """Why it is none."""
        self._read()

    def take(self, key: str, character: str | None) -> bool:
        """One key; returns whether it was for the text: of characters only those that a number may have are."""
        if self.fresh and key in ("left", "right"):
            return False
        kind = self.place.field.kind
        if character is not None and character.isprintable() and (kind is None or not kind.takes(character)):
            return False
        if not self.text.take(key, character):
            return False
        self._read()
        return True

    def insert(self, text: str) -> None:
        """Pasted text."""
        self.text.insert(text)
        self._read()

    def _read(self) -> None:
        try:
            value: Any = self.place.field.read(self.text.text)
        except (ValueError, OverflowError) as wrong:
            self.scenario, self.reason = None, str(wrong)
        else:
            self.scenario, self.reason = with_value(self.before, self.place, value), ""

    def pieces(self, width: int) -> list[Piece]:
        """The text with its cursor in `width` cells; of one that is too long, what stands before the cursor."""
        text, at = self.text.text, self.text.at
        before, under, after = text[:at], text[at : at + 1] or " ", text[at + 1 :]
        while before and cells(before + under) > width:
            before = before[1:]
        after = cut(after, max(0, width - cells(before + under)))
        tone = "strong@" if not self.reason else "warn@"
        blank = " " * max(0, width - cells(before + under + after))
        return [(before, tone), (under, "badge_paused"), (after + blank, tone)]

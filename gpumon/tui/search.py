"""A text that is looked for in the lines of a page: where it stands, and those places marked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from gpumon.readings.format import cells
from gpumon.tui.line import Piece, Row
from gpumon.tui.palette import TONES

CURRENT: Final = "badge_paused"
"""Tone of the match that the view is at."""


class Match(msgspec.Struct, frozen=True):
    """One place of the text."""

    line: int
    """Number of the line."""
    first: int
    """Place of its first character in the line."""
    end: int
    """Place behind its last character."""


def text_of(row: Row) -> str:
    """The text of a line."""
    return "".join(text for text, _ in row)


def matches_in(rows: Sequence[Row], sought_text: str) -> list[Match]:
    """All places of a text, top to bottom; capitals and small letters are the same."""
    pattern = re.compile(re.escape(sought_text), re.IGNORECASE)
    return [
        Match(line, first=place.start(), end=place.end())
        for line, row in enumerate(rows)
        for place in pattern.finditer(text_of(row))
    ]


def highlighted(row: Row, matches: Sequence[Match], current: Match | None) -> Row:
    """A line with its matches marked, and the current one more than the others."""
    pieces: list[Piece] = []
    begin = 0  # places of the first character of a piece in the line, and behind its last
    for text, tone in row:
        end = begin + len(text)
        copied_to = begin
        for match, first, last in _parts_within(matches, begin, end):
            pieces.append((text[copied_to - begin : first - begin], tone))
            match_tone = _selected_tone(tone) if match != current else CURRENT
            pieces.append((text[first - begin : last - begin], match_tone))
            copied_to = last
        pieces.append((text[copied_to - begin :], tone))
        begin = end
    return tuple(piece for piece in pieces if piece[0])


def _parts_within(matches: Sequence[Match], begin: int, end: int) -> Iterator[tuple[Match, int, int]]:
    """The matches that a piece of a line, from place `begin` to before `end`, has a part of; and the begin and the end
    of that part."""
    for match in matches:
        first = max(match.first, begin)
        last = min(match.end, end)
        if first < last:
            yield match, first, last


def selected_row(row: Row) -> Row:
    """The whole line marked."""
    return [(text, _selected_tone(tone)) for text, tone in row]


def marked_cell(row: Row, first: int, width: int) -> Row:
    """A line with `width` cells from number `first` on marked."""
    text = text_of(row)
    cell = Match(0, _character_at(text, first), _character_at(text, first + width))
    return highlighted(row, (cell,), cell)


def _character_at(text: str, cell: int) -> int:
    """Place of the character that begins at a cell; of a text that ends before it the place behind the last one."""
    used = 0
    for place, character in enumerate(text):
        if used >= cell:
            return place
        used += cells(character)
    return len(text)


def _selected_tone(tone: str) -> str:
    """The tone of a text that is marked: as in the row under the cursor."""
    if tone.endswith("@"):
        return tone
    if f"{tone}@" in TONES:
        return f"{tone}@"
    return "text@"


class Search:
    """The text searched for on a page, and the match that is in view."""

    def __init__(self) -> None:
        self.text = ""
        """The text; empty: no search is open."""
        self.matches: Sequence[Match] = ()
        """Its places in what was painted last."""
        self._rows: Sequence[Row] = ()
        """The lines that were painted last."""
        self._place = 0
        """Number of the current match."""
        self._brings_into_view = False
        """Whether the view has to go to the current match at the next paint."""

    def begin(self, text: str) -> None:
        """Look for a text, from its first place on; an empty text ends the search."""
        self.text = text
        self.matches = ()
        self._place = 0
        self._brings_into_view = text != ""

    def step(self, step: int) -> None:
        """Go to the next (1) or previous (-1) place; behind the last one comes the first."""
        if self.matches:
            self._place = (self._place + step) % len(self.matches)
            self._brings_into_view = True

    @property
    def current(self) -> Match | None:
        """The place that the view is at."""
        if self.matches:
            return self.matches[min(self._place, len(self.matches) - 1)]
        return None

    def look_into(self, rows: Sequence[Row]) -> int | None:
        """Find the places in these lines; returns the line that has to come into view, if one has."""
        self.matches = matches_in(rows, self.text)
        self._rows = rows
        self._place = min(self._place, max(0, len(self.matches) - 1))
        brings_into_view = self._brings_into_view
        self._brings_into_view = False
        if brings_into_view and self.current is not None:
            return self.current.line
        return None

    def stands_on(self, words: str) -> bool:
        """Whether the current match has a part of these words."""
        current = self.current
        if current is None or not words:
            return False
        places = matches_in([self._rows[current.line]], words)
        for place in places:
            if place.first < current.end and current.first < place.end:
                return True
        return False

    def mark(self, rows: Sequence[Row], top: int) -> list[Row]:
        """The lines in view, of which the first is number `top`, with the matches marked."""
        by_line: dict[int, list[Match]] = {}
        for match in self.matches:
            by_line.setdefault(match.line, []).append(match)
        return [highlighted(row, by_line.get(top + number, ()), self.current) for number, row in enumerate(rows)]

    def count_text(self) -> str:
        """Number of the current match, and of all: `3 of 7`, or `no match`."""
        if not self.matches:
            return "no match"
        return f"{min(self._place, len(self.matches) - 1) + 1} of {len(self.matches)}"

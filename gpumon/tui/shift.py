"""A line whose curve moved one column to the left: the terminal moves it, instead of getting it again.

DCH deletes a cell and pulls in what is right of it, ICH pushes that back: between the two, everything moved by one
cell. Terminals know both since the VT220 (the VT102 has DCH alone); a column edge of a wide chart costs half as many
bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

_LEAST: Final = 12
"""Cells that have to move alike."""
_STEADY: Final = 4
"""Cells that are as they were, after which the curve has ended."""
_UNKNOWN: Final = "\0"
"""Mark of a cell that has to be written whatever comes there."""


_OLDER: Final = "vt1"
"""How TERM of the terminals before the VT220 begins."""


class Cells(NamedTuple):
    """What the terminal shows on a line: characters, and marks of their looks."""

    characters: str
    marks: str


def can_shift(environ: Mapping[str, str]) -> bool:
    """Whether the terminal has both, by its TERM."""
    return not environ.get("TERM", "").lower().startswith(_OLDER)


def shifted(shown: Cells, wanted: Cells) -> tuple[str, int, Cells]:
    """What moves parts of a line to the left, from its first cell on; where the cursor is and what is shown then."""
    moves: list[str] = []
    cursor = at = 0
    length = len(wanted.characters)
    while at < length - _LEAST:
        if _same(shown, wanted, at, at):
            at += 1
            continue
        stop = at
        while stop < length - 1 and _same(shown, wanted, stop + 1, stop):
            stop += 1
        if stop - at < _LEAST:
            at = stop + 1
            continue
        end = stop + 1
        while end < length and not _steady(shown, wanted, end):
            end += 1
        moves.append(f"{_forward(at - cursor)}\x1b[P{_forward(end - 1 - at)}\x1b[@")
        shown = Cells(
            shown.characters[:at] + shown.characters[at + 1 : end] + " " + shown.characters[end:],
            shown.marks[:at] + shown.marks[at + 1 : end] + _UNKNOWN + shown.marks[end:],
        )
        cursor, at = end - 1, end
    return "".join(moves), cursor, shown


def _steady(shown: Cells, wanted: Cells, at: int) -> bool:
    return all(_same(shown, wanted, cell, cell) for cell in range(at, min(at + _STEADY, len(wanted.marks))))


def _same(shown: Cells, wanted: Cells, before: int, now: int) -> bool:
    return shown.characters[before] == wanted.characters[now] and shown.marks[before] == wanted.marks[now]


def _forward(cells: int) -> str:
    return f"\x1b[{cells}C" if cells > 0 else ""

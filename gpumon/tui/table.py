"""Columns of the tables: fixed places, so that a wider screen adds columns at the end and moves none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from gpumon.readings.format import left, phrase, right, short
from gpumon.readings.missing import Missing, Reading
from gpumon.tui.line import Piece

T = TypeVar("T")


class Column(NamedTuple, Generic[T]):
    """One column after the first 80 cells: `gap` blanks and `width` cells, flush right unless `flush_left`."""

    title: str
    width: int
    text: Callable[[T], str]
    flush_left: bool = False
    gap: int = 1

    def head(self) -> str:
        """The column's header."""
        return " " * self.gap + (left if self.flush_left else right)(self.title, self.width)

    def cell(self, of: T) -> str:
        """One cell."""
        return " " * self.gap + (left if self.flush_left else right)(self.text(of), self.width)


def fitting(columns: Sequence[Column[T]], room: int) -> tuple[Column[T], ...]:
    """The first columns that fit into `room` cells."""
    chosen = []
    for column in columns:
        room -= column.gap + column.width
        if room < 0:
            break
        chosen.append(column)
    return tuple(chosen)


def pair(one: Reading, other: Reading, text: Callable[[Reading], str], width: int, word: str = "") -> list[Piece]:
    """Two cells of `width` with a blank before each; where both are missing, the reason in words across them.

    A share above 100 % is marked by `text`, and stands out here. `word` replaces the reason's own words.
    """
    if isinstance(one, Missing) and isinstance(other, Missing):
        words = word or phrase(one)
        if len(short(one)) > 1 or len(words) <= 2 * width + 1:
            return [(right(words, 2 * width + 2), "muted")]
    return [(" " + right(cell := text(value), width), "warn" if cell.endswith("!") else "text") for value in (one, other)]

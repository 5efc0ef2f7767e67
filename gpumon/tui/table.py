"""Columns of the tables: fixed places, so that a wider screen adds columns at the end and moves none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Generic, TypeVar

from gpumon.readings.format import DASH, cells, left, phrase, ratio, right
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.tui.line import Piece

T = TypeVar("T")

_SPEAKING: Final = frozenset(Reason) - {Reason.NOT_SUPPORTED, Reason.NOT_EXPOSED, Reason.LOST, Reason.STALE}
"""Reasons worth words in a row; the others show in the row's state."""


@dataclass(frozen=True)
class Column(Generic[T]):
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


@lru_cache(maxsize=64)
def fitting(columns: tuple[Column[T], ...], room: int) -> tuple[Column[T], ...]:
    """The first columns that fit into `room` cells."""
    chosen = []
    for column in columns:
        room -= column.gap + column.width
        if room < 0:
            break
        chosen.append(column)
    return tuple(chosen)


def dropped(width: int, base: int, order: Sequence[tuple[str, int]]) -> tuple[str, ...]:
    """Columns that a screen narrower than `base` leaves out: `order` has names and cells, the first goes first."""
    names = []
    for name, size in order:
        if width >= base:
            break
        names.append(name)
        base -= size
    return tuple(names)


def without(names: Sequence[str], parts: Sequence[tuple[str, Piece]]) -> list[Piece]:
    """The parts of a row that are not left out."""
    return [piece for name, piece in parts if name not in names]


def pair(
    one: Reading, other: Reading, width: int, tone: str = "text", unverified: tuple[bool, bool] = (False, False)
) -> list[Piece]:
    """Two shares, each with a blank before `width` cells; where both are missing for one reason, its words across them.

    A share of a peak that is `unverified` is marked: `31%?`.
    """
    if isinstance(one, Missing) and isinstance(other, Missing) and one.reason is other.reason:
        words = phrase(one) if one.reason in _SPEAKING else DASH
        if words != DASH:
            return [(right(words, 2 * width + 2), "muted")]
    texts = [ratio(value, width) for value in (one, other)]
    marked = [
        f"{text}?" if doubt and text.endswith("%") else text for text, doubt in zip(texts, unverified, strict=True)
    ]
    return [part(text, width, tone) for text in marked]


def part(text: str, width: int, tone: str = "text") -> Piece:
    """The text of a share after a blank, in `width` cells; one above 100 % stands out."""
    return " " + right(text, width), "warn" if text.endswith("!") else tone


def unseen(names: Sequence[str], room: int) -> str:
    """Columns left out and how to see them, as many names as fit into `room` cells: `limit tensor +5: wider window`."""
    said = ""
    for shown in range(len(names) + 1 if names else 0):
        more = [f"+{len(names) - shown}"] if shown < len(names) else []
        longer = " ".join([*names[:shown], *more]) + ": wider window"
        said = longer if not said or cells(longer) <= room else said
    return said

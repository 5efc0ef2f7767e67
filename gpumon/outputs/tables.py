"""Tables, labelled lines and wrapped text that fit into a width in cells: what text outputs are laid out with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from gpumon.readings import format as cells

T = TypeVar("T", contravariant=True)
INDENT: Final = "  "
_LABEL: Final = 20
_ALWAYS: Final = 9
_LEAST_FIRST: Final = 8
"""Cells of the first column, however little room there is."""


class PrintedColumn(NamedTuple):
    """One column of a table; `texts` has a text per row."""

    title: str
    texts: Sequence[str]
    right: bool = False
    keep: int = _ALWAYS
    """Columns with the lower number leave first where there is no room."""


class ColumnSpec(msgspec.Struct, Generic[T], frozen=True):
    """A column before it has rows: its title, and how a thing is written in it."""

    title: str
    text: Callable[[T], str]
    right: bool = False
    keep: int = _ALWAYS
    """As in `PrintedColumn`."""


def columns_of(things: Iterable[T], specs: Iterable[ColumnSpec[T]]) -> list[PrintedColumn]:
    """A column per spec, with a row per thing."""
    rows = tuple(things)
    columns = []
    for spec in specs:
        texts = [spec.text(thing) for thing in rows]
        columns.append(PrintedColumn(spec.title, texts, spec.right, spec.keep))
    return columns


def cut_lines(lines: Iterable[str], width: int) -> str:
    """The lines as one text, each in at most `width` cells and without blanks at its end."""
    rows = [cells.cut(line.rstrip(), width) for line in lines]
    return "\n".join(rows) + "\n"


def stripped(lines: Iterable[str]) -> str:
    """The lines as one text, each without blanks at its end."""
    whole_lines = [line.rstrip() for line in lines]
    return "\n".join(whole_lines) + "\n"


def table(columns: Sequence[PrintedColumn], width: int) -> Iterator[str]:
    """A line of titles and one per row, without the columns that there is no room for; then the first one is cut."""
    kept = list(columns)
    while _total(kept) > width and any(column.keep < _ALWAYS for column in kept):
        kept.remove(min(kept, key=lambda column: column.keep))
    widths = [_wide(column) for column in kept]
    widths[0] = min(widths[0], max(_LEAST_FIRST, widths[0] + width - _total(kept)))
    for row in range(-1, len(columns[0].texts)):
        parts = []
        for column, room in zip(kept, widths, strict=True):
            text = column.title
            if row >= 0:
                text = column.texts[row]
            if column.right:
                parts.append(cells.right(text, room))
            else:
                parts.append(cells.left(text, room))
        yield "  ".join(parts).rstrip()


def labelled(label: str, text: str, width: int, indent: str = INDENT, room: int = _LABEL) -> Iterator[str]:
    """`label  text`, the text wrapped beside its label of `room` cells; nothing where there is no text."""
    if not text:
        return
    begin = indent + cells.left(label, room)
    for line in wrapped(text, width, indent + " " * room):
        yield begin + line[len(begin) :]
        begin = indent + " " * room


def wrapped(text: str, width: int, indent: str, further: str | None = None) -> Iterator[str]:
    """The words of a text in lines of at most `width` cells; a word that is longer than a line is cut."""
    further = indent if further is None else further
    line = ""
    for word in text.split():
        if line and cells.cells(f"{indent}{line} {word}") > width:
            yield indent + line
            line = ""
            indent = further
        if line:
            line = f"{line} {word}"
        else:
            line = cells.cut(word, max(8, width - len(indent)))
    if line:
        yield indent + line


def _wide(column: PrintedColumn) -> int:
    return max(cells.cells(text) for text in (column.title, *column.texts))


def _total(columns: Sequence[PrintedColumn]) -> int:
    return sum(map(_wide, columns)) + 2 * (len(columns) - 1)

"""Tables, labelled lines and wrapped text that fit into a width in cells: what text outputs are laid out with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from gpumon.outputs.units import NONE
from gpumon.readings import format as human

T = TypeVar("T", contravariant=True)
INDENT: Final = "  "
_LABEL_CELLS: Final = 20
"""Cells of a label unless the caller says otherwise."""
NEVER_DROPPED: Final = 9
"""Rank of columns that stay, however little room there is."""
_LEAST_FIRST_CELLS: Final = 8
"""Cells of the first column, however little room there is."""
_LEAST_WORD_CELLS: Final = 8
"""Cells that a long word gets, however deep its line is indented."""
GAP: Final = "  "
"""Blanks between two columns."""


class PrintedColumn(NamedTuple):
    """One column of a table; `texts` has a text per row."""

    title: str
    texts: Sequence[str]
    right: bool = False
    keep: int = NEVER_DROPPED
    """Columns with the lower number leave first where there is no room."""


class ColumnSpec(msgspec.Struct, Generic[T], frozen=True):
    """A column before it has rows: its title, and how a thing is written in it."""

    title: str
    text: Callable[[T], str]
    right: bool = False
    keep: int = NEVER_DROPPED
    """As in `PrintedColumn`."""


def columns_of(things: Iterable[T], specs: Iterable[ColumnSpec[T]]) -> list[PrintedColumn]:
    """A column per spec, with a row per thing."""
    rows = tuple(things)
    columns = []
    for spec in specs:
        texts = [spec.text(thing) for thing in rows]
        columns.append(PrintedColumn(spec.title, texts, spec.right, spec.keep))
    return columns


def with_figures(columns: Sequence[PrintedColumn]) -> list[PrintedColumn]:
    """The columns in which some row has a figure."""
    return [column for column in columns if any(text != NONE for text in column.texts)]


def cut_lines(lines: Iterable[str], width: int) -> str:
    """The lines as one text, each in at most `width` cells and without blanks at its end."""
    rows = [human.cut(line.rstrip(), width) for line in lines]
    return "\n".join(rows) + "\n"


def join_stripped(lines: Iterable[str]) -> str:
    """The lines as one text, each without blanks at its end."""
    whole_lines = [line.rstrip() for line in lines]
    return "\n".join(whole_lines) + "\n"


def table(columns: Sequence[PrintedColumn], width: int) -> Iterator[str]:
    """A line of titles and a line per row in `width` cells.

    Where there is no room, columns of a low `keep` are left out, then the first one is cut.
    """
    kept = list(columns)
    while _total_width(kept) > width and any(column.keep < NEVER_DROPPED for column in kept):
        kept.remove(min(kept, key=lambda column: column.keep))
    widths = [_width_of(column) for column in kept]
    # What is missing comes off the first column; the others keep their widths.
    widths[0] = min(widths[0], max(_LEAST_FIRST_CELLS, widths[0] + width - _total_width(kept)))
    yield _table_line([column.title for column in kept], kept, widths)
    for row in range(len(columns[0].texts)):
        yield _table_line([column.texts[row] for column in kept], kept, widths)


def _table_line(texts: Sequence[str], columns: Sequence[PrintedColumn], widths: Sequence[int]) -> str:
    """One text per column in one line, each in its width, flush left or right."""
    parts = []
    for text, column, width in zip(texts, columns, widths, strict=True):
        if column.right:
            parts.append(human.right(text, width))
        else:
            parts.append(human.left(text, width))
    return GAP.join(parts).rstrip()


def labelled(label: str, text: str, width: int, indent: str = INDENT, room: int = _LABEL_CELLS) -> Iterator[str]:
    """`label  text`, the text wrapped beside its label of `room` cells; nothing where there is no text."""
    if not text:
        return
    begin = indent + human.left(label, room)
    margin = indent + " " * room
    for line in wrapped(text, width, margin):
        yield begin + line.removeprefix(margin)
        begin = margin


def wrapped(text: str, width: int, indent: str, further: str | None = None) -> Iterator[str]:
    """The words of a text in lines of at most `width` cells; a word that is longer than a line is cut.

    `further`: indentation from the second line on; None: `indent`, too.
    """
    if further is None:
        further = indent
    line = ""
    for word in text.split():
        if line and human.cells(f"{indent}{line} {word}") > width:
            yield indent + line
            line = ""
            indent = further
        if line:
            line = f"{line} {word}"
        else:
            line = human.cut(word, max(_LEAST_WORD_CELLS, width - len(indent)))
    if line:
        yield indent + line


def _width_of(column: PrintedColumn) -> int:
    """Cells of the widest text of a column."""
    return max(human.cells(text) for text in (column.title, *column.texts))


def _total_width(columns: Sequence[PrintedColumn]) -> int:
    """Cells of a line, with the blanks between the columns."""
    return sum(map(_width_of, columns)) + len(GAP) * (len(columns) - 1)

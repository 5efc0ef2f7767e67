"""Columns of printed tables whose title and form the catalogue of figures knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from gpumon.figures.figure import Figure
from gpumon.outputs.tables import NEVER_DROPPED, ColumnSpec
from gpumon.outputs.units import with_unit
from gpumon.readings.flat import value_of
from gpumon.readings.missing import Reading
from gpumon.readings.written import writer

RecordT = TypeVar("RecordT", bound=msgspec.Struct)


def column_title(row: Figure) -> str:
    """The figure's header, as the screen's tables have it, with a unit that no cell tells: `decode tok/s`."""
    return f"{row.short}{row.unit.per_name}"


def cell_writer(row: Figure) -> Callable[[Reading], str]:
    """The function that writes a value of the figure in a cell, in ASCII; NONE for a missing one."""
    return with_unit("", writer(row))


def figure_column(
    row: Figure, *, keep: int = NEVER_DROPPED, field: str = "", write: Callable[[Reading], str] | None = None
) -> ColumnSpec[RecordT]:
    """A column of the figure, flush right. `keep`: as in `PrintedColumn`.

    `field` and `write`: where records have it under another name and form, such as a mean over a span.
    """
    write = write or cell_writer(row)
    path = field or row.field

    def text(record: RecordT) -> str:
        return write(value_of(record, path))

    return ColumnSpec(column_title(row), text, right=True, keep=keep)

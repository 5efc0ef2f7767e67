"""Columns of printed tables whose title and form the catalogue of figures knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from gpumon.figures.figure import Figure
from gpumon.outputs.tables import NEVER_DROPPED, ColumnSpec
from gpumon.outputs.units import latency_text, with_unit
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


def figure_text(row: Figure) -> Callable[[RecordT], str]:
    """The function that writes the figure of a record in a cell; a p95 with the signs of `latency_text`."""
    latency, _, part = row.field.partition(".")
    if part == "p95":
        return lambda record: latency_text(value_of(record, latency))
    write = cell_writer(row)
    return lambda record: write(value_of(record, row.field))


def figure_column(
    row: Figure, *, keep: int = NEVER_DROPPED, text: Callable[[RecordT], str] | None = None
) -> ColumnSpec[RecordT]:
    """A column of the figure, flush right. `keep`: as in `PrintedColumn`; `text`: where it is drawn in another way."""
    return ColumnSpec(column_title(row), text or figure_text(row), right=True, keep=keep)

"""Traces that are tables: Azure's and BurstGPT's CSV, and any CSV with a time, a prompt and an answer."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from typing import Final

from gpumon.sizing.imports.files import FilePlace, refusal, to_number
from gpumon.sizing.traces.fields import Names, has_lengths, names_of
from gpumon.sizing.traces.trace import Trace, TracedRequest, TraceReader, seconds_of, tokens_of

_DELIMITERS: Final = (",", ";", "\t")
_THREE: Final = ("time", "prompt", "answer")
"""Columns of a table without a header."""
_KINDS: Final = (("ContextTokens", "Azure's LLM inference trace"), ("Request tokens", "BurstGPT"))
"""Column that a known trace alone has, and the trace."""


def read_table(lines: Iterator[str], place: FilePlace, reader: TraceReader, unit_s: float | None) -> Trace:
    """The trace of a CSV file; `unit_s`: seconds of a unit of its times, None where a header tells, or seconds.

    Raises ImportRefused for a row that is none, with its line.
    """
    try:
        return _read_rows(lines, place, reader, unit_s)
    except csv.Error as failure:  # such as a cell of 131,073 characters
        raise refusal(place, "", f"is no CSV: {failure}") from None


def _read_rows(lines: Iterator[str], place: FilePlace, reader: TraceReader, unit_s: float | None) -> Trace:
    """The trace of a CSV file, by its header if it has one. Raises ImportRefused, csv.Error."""
    first = next(lines)
    delimiter = max(_DELIMITERS, key=first.count)
    header = [cell.strip() for cell in next(csv.reader([first], delimiter=delimiter))]
    kind = "a table of requests"
    if has_lengths(header):
        kind = next((name for column, name in _KINDS if column in header), kind)
        rows = csv.reader(lines, delimiter=delimiter)
        line_before = 1
    else:
        rows = csv.reader(_joined(first, lines), delimiter=delimiter)
        header = _header_of_figures(header, place)
        line_before = 0
    names = names_of(header, place)
    names = names._replace(time_unit_s=unit_s or names.time_unit_s or 1.0)
    _take_rows(rows, header, names, place, reader, line_before)
    return reader.trace(kind)


def _header_of_figures(cells: Sequence[str], place: FilePlace) -> list[str]:
    """Names for the columns of a table that begins with its first request. Raises ImportRefused for another one."""
    if len(cells) == len(_THREE) and all(to_number(cell) is not None for cell in cells[1:]):
        return list(_THREE)
    names_of(cells, place)  # says which column is missing
    raise refusal(place, "", "has no header that names its columns", ", ".join(_THREE))


def _take_rows(
    rows: Iterator[list[str]],
    header: Sequence[str],
    names: Names,
    place: FilePlace,
    reader: TraceReader,
    line_before: int,
) -> None:
    """Take each row that has a cell. Raises ImportRefused."""
    time_column = header.index(names.time) if names.time else -1
    prompt_column = header.index(names.prompt)
    answer_column = header.index(names.answer)
    arrival_s = float("nan")
    for number, cells in enumerate(rows, start=line_before + 1):
        if not cells or not "".join(cells).strip():
            continue
        row_place = place._replace(line=number)
        if len(cells) != len(header):
            raise refusal(row_place, "", f"has {len(cells)} cells", f"{len(header)}, as the header has")
        if time_column >= 0:
            arrival_s = seconds_of(cells[time_column], names.time_unit_s, row_place, names.time)
        prompt = tokens_of(cells[prompt_column], row_place, names.prompt)
        answer = tokens_of(cells[answer_column], row_place, names.answer)
        reader.take(TracedRequest(arrival_s, prompt, answer))
        if reader.is_past_cut:
            return


def _joined(first: str, lines: Iterator[str]) -> Iterator[str]:
    """A line in front of the others."""
    yield first
    yield from lines

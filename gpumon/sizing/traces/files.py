"""A trace from the lines of a file, whose format is known by its content."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Final

from gpumon.sizing.imports.files import FilePlace, refusal
from gpumon.sizing.traces.documents import is_lines, read_document, read_lines
from gpumon.sizing.traces.tables import read_table
from gpumon.sizing.traces.trace import Cut, Trace, TraceReader

_MOST_DOCUMENT_CHARACTERS: Final = 1_000_000_000
"""Characters of a JSON document, which is read as a whole: ShareGPT has 640 million."""
_MOST_CONTAINERS: Final = 10_000_000
"""Lists and objects of a JSON document, counted by their brackets: the smallest takes twenty times its text in memory,
and a megabyte that is packed unpacks to a thousand. Conversations have a few, their texts some more."""


def read_trace(
    lines: Iterable[str], file: str, cut: Cut, *, part: int | None = None, unit_s: float | None = None
) -> Trace:
    """The trace in the lines of a file.

    `part`: which run of a file that has several, from 1; `unit_s`: seconds of the unit of its times, None where the
    file tells. Raises ImportRefused with file, line and what would be right.
    """
    place = FilePlace(file)
    reader = TraceReader(place, cut)
    remaining = iter(lines)
    first = next((line for line in remaining if line.strip()), "").removeprefix("\ufeff")
    if not first:
        raise refusal(place, "", "is empty")
    if "\0" in first:
        raise refusal(place, "", "holds binary data", "text in UTF-8, also packed by gzip")
    all_lines = chain((first,), remaining)
    if first.lstrip()[0] not in "{[":
        return read_table(all_lines, place, reader, unit_s)
    if is_lines(first):
        return read_lines(all_lines, place, reader, unit_s)
    return read_document(_text(all_lines, place), place, reader, part, unit_s)


def _text(lines: Iterable[str], place: FilePlace) -> str:
    """All lines together. Raises ImportRefused for too many."""
    kept = []
    characters = 0
    containers = 0
    for line in lines:
        kept.append(line)
        characters += len(line)
        containers += line.count("{") + line.count("[")
        if containers > _MOST_CONTAINERS:
            raise refusal(place, "", f"is a document of more than {_MOST_CONTAINERS:,} lists and objects")
        if characters > _MOST_DOCUMENT_CHARACTERS:
            raise refusal(place, "", f"is a document of more than {_MOST_DOCUMENT_CHARACTERS:,} characters")
    return "".join(kept)

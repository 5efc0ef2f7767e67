"""Bytes of a file -> JSON documents or a sheet of cells, each with the line where it stands."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

from gpumon.sizing.sweeps.problem import Place, refused

MOST_BYTES: Final = 64_000_000
"""Of one file."""
MOST_TOTAL: Final = 256_000_000
"""Of all files together."""
MOST_FILES: Final = 512
MOST_RECORDS: Final = 20_000
"""JSON documents or rows of one file."""
_MOST_LINE: Final = 1_000_000
"""Characters of a row of a CSV file."""
_SPACES: Final = re.compile(r"\s*")


class Row(NamedTuple):
    """One row of a CSV file."""

    line: int
    cells: tuple[str, ...]


class Document(NamedTuple):
    """A JSON object (`fields`), or all rows of a CSV file that have a cell (`rows`)."""

    place: Place
    fields: Mapping[str, Any]
    rows: tuple[Row, ...] = ()

    @property
    def header(self) -> tuple[str, ...]:
        """Cells of the first row of a CSV file."""
        return self.rows[0].cells if self.rows else ()


def documents(file: str, data: bytes) -> tuple[Document, ...]:
    """All documents of a file: JSON, JSON lines, a JSON list, or CSV. Raises SweepError."""
    place = Place(file)
    if len(data) > MOST_BYTES:
        raise refused(
            place, "", f"is larger than {MOST_BYTES / 1e6:.0f} MB", "the summary of a load test, not its requests"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise refused(place, "", "is no text in UTF-8", "text; a packed file has to be unpacked first") from None
    if "\0" in text:
        raise refused(place, "", "holds binary data", "text in UTF-8")
    begins = text.lstrip()[:1]
    if not begins:
        raise refused(place, "", "is empty")
    found = tuple(islice(_json(place, text) if begins in "{[" else _sheet(place, text), MOST_RECORDS + 1))
    if len(found) > MOST_RECORDS or any(len(each.rows) > MOST_RECORDS for each in found):
        raise refused(
            place, "", f"has more than {MOST_RECORDS} records", "the summary of a load test, not its requests"
        )
    return found


def _json(place: Place, text: str) -> Iterator[Document]:
    """JSON documents one after the other; NaN and Infinity are read, as Python's tools write them."""
    decoder = json.JSONDecoder()
    at, line = 0, 1
    while at < len(text):
        spaces = _SPACES.match(text, at)
        begin = spaces.end() if spaces else at
        line += text.count("\n", at, begin)
        if begin == len(text):
            return
        here = place._replace(line=line)
        try:
            value, at = decoder.raw_decode(text, begin)
        except RecursionError:
            raise refused(here, "", "is nested too deeply") from None
        except json.JSONDecodeError as failure:
            where = place._replace(line=failure.lineno)
            raise refused(where, "", f"is no JSON (or is cut off): {failure.msg}") from None
        except ValueError:
            raise refused(here, "", "holds a number of too many digits") from None
        line += text.count("\n", begin, at)
        yield from _objects(here, value)


def _objects(place: Place, value: Any) -> Iterator[Document]:
    if isinstance(value, list):
        for number, each in enumerate(value):
            yield from _objects(place.inside(f"[{number}]"), each if not isinstance(each, list) else None)
    elif isinstance(value, dict):
        yield Document(place, value)
    else:
        raise refused(place, "", "is no JSON object", "an object, or a list of objects")


def _sheet(place: Place, text: str) -> Iterator[Document]:
    lines = text.replace("\r\n", "\n").split("\n")
    if max(map(len, lines)) > _MOST_LINE:
        raise refused(place, "", f"has a line of more than {_MOST_LINE} characters", "CSV or JSON")
    reader = csv.reader((f"{line}\n" for line in lines), strict=True)
    rows = []
    try:
        for cells in reader:
            stripped = tuple(cell.strip() for cell in cells)
            if any(stripped):
                rows.append(Row(reader.line_num, stripped))
            if len(rows) > MOST_RECORDS:
                break
    except csv.Error as failure:
        raise refused(place._replace(line=reader.line_num), "", f"is no CSV: {failure}") from None
    yield Document(place, {}, tuple(rows))

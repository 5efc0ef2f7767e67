"""Files of load tests as records: JSON, JSON lines or CSV, told by content; errors name file, line and field."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

from gpumon.readings.text import clean

MOST_IMPORT_BYTES: Final = 64_000_000
"""Bytes of all files together."""
MOST_FILES: Final = 512
MOST_RECORDS: Final = 20_000
"""JSON documents or rows of one file."""
_MOST_PROBLEMS: Final = 10
_MOST: Final = 1e15
_SECONDS: Final = {
    "ns": 1e-9, "nanoseconds": 1e-9, "us": 1e-6, "µs": 1e-6, "microseconds": 1e-6, "ms": 1e-3, "milliseconds": 1e-3,
    "s": 1.0, "sec": 1.0, "seconds": 1.0,
}  # fmt: skip
_SPACES: Final = re.compile(r"\s*")
_THOUSANDS: Final = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d*)?")
_ABSENT: Final = frozenset(("", "n/a", "na", "none", "null", "-"))
_SUMMARY: Final = "the summary of a load test, not its requests"


class FilePlace(NamedTuple):
    """A place in a file."""

    file: str
    line: int = 0
    """From 1; 0 where the file as a whole is meant."""
    part: str = ""
    """Path inside a JSON document, e.g. `benchmarks[2]`."""

    def __str__(self) -> str:
        line = ""
        if self.line:
            line = f":{self.line}"
        return f"{clean(self.file, 200)}{line}{f' {self.part}' if self.part else ''}"

    @property
    def folder(self) -> str:
        """The folder of the file; empty for one without."""
        return self.file.rpartition("/")[0]

    @property
    def name(self) -> str:
        """The file without its folder."""
        return self.file.rpartition("/")[2]

    def inside(self, part: str) -> FilePlace:
        """A place deeper in the same document."""
        return self._replace(part=f"{self.part}.{part}" if self.part else part)


class ImportProblem(NamedTuple):
    """One thing that is wrong."""

    place: FilePlace
    field: str
    reason: str
    allowed: str = ""

    def __str__(self) -> str:
        field = ""
        if self.field:
            field = f"{clean(self.field, 80)}: "
        return f"{self.place}: {field}{self.reason}{f'; allowed: {self.allowed}' if self.allowed else ''}"


def lines_of(problems: Iterable[ImportProblem]) -> list[str]:
    """A line per problem, alike ones of a file in one, at most ten; then how many more there are."""
    alike: dict[tuple[str, ...], list[ImportProblem]] = {}
    for problem in problems:
        alike.setdefault((problem.place.file, *problem[1:]), []).append(problem)
    lines = list[str]()
    for first, *more in alike.values():
        lines.append(f"{first} (and {len(more)} more like it)" if more else f"{first}")
    if len(lines) > _MOST_PROBLEMS:
        return [*lines[:_MOST_PROBLEMS], f"and {len(lines) - _MOST_PROBLEMS} more"]
    return lines


class ImportRefused(Exception):  # noqa: N818 - as `Refused` of the config
    """Files that are not imported, none of them: `str()` has a line per problem, alike ones of a file in one."""

    def __init__(self, problems: Iterable[ImportProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(lines_of(self.problems)))


def refused(place: FilePlace, field: str, reason: str, allowed: str = "") -> ImportRefused:
    """The error for one problem."""
    return ImportRefused((ImportProblem(place, field, reason, allowed),))


class Record:
    """Fields by name. A field that is null, empty or `N/A` is not there; numbers may be written as text."""

    def __init__(self, fields: Mapping[str, Any], place: FilePlace) -> None:
        self.fields = fields
        self.place = place

    def value(self, name: str) -> Any:
        """The value of a field; None where there is none."""
        value = self.fields.get(name)
        if isinstance(value, str) and value.strip().lower() in _ABSENT:
            return None
        return value

    def __contains__(self, name: str) -> bool:
        return self.value(name) is not None

    def text(self, *names: str) -> str:
        """The first of these fields that is there, safe to print; empty where none is. Lists: their only entry."""
        for name in names:
            value = self.value(name)
            if isinstance(value, list) and len(value) == 1:
                value = value[0]
            if isinstance(value, str | int | float) and not isinstance(value, bool):
                return clean(str(value).strip())
        return ""

    def number(self, *names: str, scale: float = 1.0, least: float = 0.0) -> float | None:
        """The first of these fields that is there, times `scale`. Raises ImportRefused below `least`, or for none."""
        name = next((name for name in names if name in self), None)
        if name is None:
            return None
        value = self.value(name)
        number = to_number(value)
        if number is None or not least <= number <= _MOST:
            if number is None:
                allowed = "a number"
            else:
                allowed = f"a number from {least:g} to {_MOST:g}"
            raise refused(self.place, name, f"is {_shown(value)}", allowed)
        return number * scale

    def wanted(self, *names: str, scale: float = 1.0, least: float = 0.0) -> float:
        """Like `number`, but it has to be there."""
        value = self.number(*names, scale=scale, least=least)
        if value is None:
            raise refused(self.place, names[0], "is missing")
        return value

    def count(self, *names: str) -> int:
        """A whole number; 0 where it is not there."""
        value = self.number(*names) or 0.0
        if value != round(value) or value > 1e9:
            raise refused(self.place, names[0], f"is {value:g}", "a whole number up to 1e9")
        return int(value)

    def flag(self, name: str) -> bool | None:
        """A yes or no; None where it is not there."""
        value = self.value(name)
        known = {"true": True, "false": False}.get(str(value).lower())
        if value is not None and known is None:
            raise refused(self.place, name, f"is {_shown(value)}", "true or false")
        return known

    def seconds(self, name: str, unit: str) -> float | None:
        """A time in `unit`. Raises ImportRefused where the unit is not known: never a guess."""
        factor = _SECONDS.get(unit.strip().lower())
        if factor is None and name in self:
            raise refused(self.place, "unit", f"has the unit {_shown(unit)}", ", ".join(_SECONDS))
        return self.number(name, scale=factor or 1.0)

    def part(self, *path: str) -> Record:
        """The record that stands under a path; an empty one where there is none."""
        value: Any = self.fields
        for name in path:
            if isinstance(value, Mapping):
                value = value.get(name)
            else:
                value = None
        return Record(value if isinstance(value, Mapping) else {}, self.place.inside(".".join(path)))

    def per_request(self, name: str, requests: float | None) -> float | None:
        """A total over all requests as the mean of one; None where either is not there, or 0."""
        total = self.number(name)
        if total and requests:
            return total / requests
        return None


class Document(NamedTuple):
    """One JSON object (`records` has one), or a CSV file with its rows by the names of its header."""

    place: FilePlace
    fields: Mapping[str, Any]
    header: tuple[str, ...] = ()
    rows: tuple[tuple[int, tuple[str, ...]], ...] = ()
    """Line and cells of each row below the header that has a cell."""

    def records(self) -> Iterator[Record]:
        """The object, or each row. Raises ImportRefused for a row of another length than the header."""
        if not self.header:
            yield Record(self.fields, self.place)
        for line, cells in self.rows:
            yield self.row(line, cells, self.header)

    def row(self, line: int, cells: tuple[str, ...], header: tuple[str, ...]) -> Record:
        """A row by the names of a header. Raises ImportRefused where their lengths differ."""
        place = self.place._replace(line=line)
        if len(cells) != len(header):
            raise refused(place, "", f"has {len(cells)} cells", f"{len(header)}, as the header has")
        return Record(dict(zip(header, cells, strict=True)), place)


def documents(file: str, data: bytes) -> tuple[Document, ...]:
    """All documents of a file: JSON, JSON lines, a JSON list, or CSV. Raises ImportRefused."""
    place = FilePlace(file)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise refused(place, "", "is no text in UTF-8", "text; a packed file has to be unpacked first") from None
    if "\0" in text:
        raise refused(place, "", "holds binary data", "text in UTF-8")
    begins = text.lstrip()[:1]
    if not begins:
        raise refused(place, "", "is empty")
    if begins in "{[":
        read = tuple(islice(_json(place, text), MOST_RECORDS + 1))
    else:
        read = (_sheet(place, text),)
    if len(read) > MOST_RECORDS or any(len(document.rows) > MOST_RECORDS for document in read):
        raise refused(place, "", f"has more than {MOST_RECORDS} records", _SUMMARY)
    return read


def _json(place: FilePlace, text: str) -> Iterator[Document]:
    """JSON documents one after the other; NaN and Infinity are read, as Python's tools write them."""
    decoder = json.JSONDecoder()
    end = 0
    line = 1
    while end < len(text):
        spaces = _SPACES.match(text, end)
        begin = spaces.end() if spaces else end
        line += text.count("\n", end, begin)
        if begin == len(text):
            return
        here = place._replace(line=line)
        value, end = _decoded(decoder, text, begin, here)
        line += text.count("\n", begin, end)
        if isinstance(value, list):
            for number, entry in enumerate(value):
                yield _object(here.inside(f"[{number}]"), entry)
        else:
            yield _object(here, value)


def _decoded(decoder: json.JSONDecoder, text: str, begin: int, here: FilePlace) -> tuple[Any, int]:
    """The JSON value that begins there, and where it ends. Raises ImportRefused."""
    try:
        return decoder.raw_decode(text, begin)
    except RecursionError:
        raise refused(here, "", "is nested too deeply") from None
    except json.JSONDecodeError as failure:
        where = here._replace(line=failure.lineno)
        raise refused(where, "", f"is no JSON (or is cut off): {failure.msg}") from None
    except ValueError:
        raise refused(here, "", "holds a number of too many digits") from None


def _object(place: FilePlace, value: Any) -> Document:
    """A document of one JSON object. Raises ImportRefused for anything else."""
    if not isinstance(value, dict):
        raise refused(place, "", "is no JSON object", "an object, or a list of objects")
    return Document(place, value)


def _sheet(place: FilePlace, text: str) -> Document:
    reader = csv.reader((f"{line}\n" for line in text.split("\n")), strict=True)
    rows = list[tuple[int, tuple[str, ...]]]()
    try:
        for cells in islice(reader, 2 * MOST_RECORDS):
            stripped = tuple(cell.strip() for cell in cells)
            rows += [(reader.line_num, stripped)] if any(stripped) else []
    except csv.Error as failure:
        raise refused(place._replace(line=reader.line_num), "", f"is no CSV: {failure}") from None
    return Document(place, {}, rows[0][1], tuple(rows[1:]))


def to_number(value: Any) -> float | None:
    """A number, or a text that is one: `"1,916.33"` has thousands separators. None for anything else and for NaN."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        value = value.strip()
        if _THOUSANDS.fullmatch(value):
            value = value.replace(",", "")
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if math.isnan(number):
        return None
    return number


def _shown(value: object) -> str:
    """A value from a file, cut and safe to print."""
    return clean(repr(value) if isinstance(value, str) else str(value), 80)

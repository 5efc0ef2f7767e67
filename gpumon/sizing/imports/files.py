"""Files of load tests as records: JSON, JSON lines or CSV, recognised by content; errors name file, line and field."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

from gpumon.readings.text import clean

MOST_IMPORT_BYTES: Final = 64_000_000
"""Bytes of all files together."""
MOST_FILES: Final = 512
"""Files of one import."""
MOST_RECORDS: Final = 20_000
"""JSON documents or rows of one file."""
_MOST_CONTAINERS: Final = 2_000_000
"""Lists and objects of a file, counted by their brackets: the smallest takes thirty times its text in memory."""
_MOST_ROWS: Final = 2 * MOST_RECORDS
"""Rows of a CSV file, empty ones included."""
_MOST_PROBLEMS: Final = 10
"""Lines of an error message that name problems."""
_LARGEST_NUMBER: Final = 1e15
"""Largest figure that is taken: no load test has one near it, and its products stay finite."""
_LARGEST_COUNT: Final = 1e9
"""Largest whole number that is taken, of requests or tokens."""
_SECONDS: Final = {
    "ns": 1e-9, "nanoseconds": 1e-9, "us": 1e-6, "µs": 1e-6, "microseconds": 1e-6, "ms": 1e-3, "milliseconds": 1e-3,
    "s": 1.0, "sec": 1.0, "seconds": 1.0,
}  # fmt: skip
"""Name of a unit of time -> its seconds."""
_SPACES: Final = re.compile(r"\s*")
_THOUSANDS: Final = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d*)?")
"""A number with thousands separators."""
_ABSENT: Final = frozenset(("", "n/a", "na", "none", "null", "-"))
"""Texts that stand for no value, in lower case."""
_EXPECTED_FILE: Final = "the summary of a load test, not its requests"


class FilePlace(NamedTuple):
    """A place in a file."""

    file: str
    line: int = 0
    """From 1; 0 where the file as a whole is meant."""
    part: str = ""
    """Path inside a JSON document, e.g. `benchmarks[2]`."""

    def __str__(self) -> str:
        line = f":{self.line}" if self.line else ""
        part = f" {self.part}" if self.part else ""
        return f"{clean(self.file, 200)}{line}{part}"

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
        if self.part:
            part = f"{self.part}.{part}"
        return self._replace(part=part)


class ImportProblem(NamedTuple):
    """One thing that is wrong with a file."""

    place: FilePlace
    field: str
    """Name of the field; empty: the place as a whole."""
    reason: str
    """Predicate of an error message, such as `is missing`."""
    allowed: str = ""
    """Values that would be right; empty where that needs no words."""

    def __str__(self) -> str:
        field = f"{clean(self.field, 80)}: " if self.field else ""
        allowed = f"; allowed: {self.allowed}" if self.allowed else ""
        return f"{self.place}: {field}{self.reason}{allowed}"


def lines_of(problems: Iterable[ImportProblem]) -> list[str]:
    """The problems in lines, ten at most, then the number of further lines.

    Problems of a file that differ in their place alone are one line.
    """
    alike: dict[tuple[str, ...], list[ImportProblem]] = {}
    for problem in problems:
        alike.setdefault((problem.place.file, *problem[1:]), []).append(problem)
    lines = list[str]()
    for first, *others in alike.values():
        line = f"{first} (and {len(others)} more like it)" if others else str(first)
        lines.append(line)
    if len(lines) > _MOST_PROBLEMS:
        return [*lines[:_MOST_PROBLEMS], f"and {len(lines) - _MOST_PROBLEMS} more"]
    return lines


class ImportRefused(Exception):  # noqa: N818 - as `Refused` of the config
    """None of the files is imported; the message has the problems in lines (`lines_of`)."""

    def __init__(self, problems: Iterable[ImportProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(lines_of(self.problems)))


def refusal(place: FilePlace, field: str, reason: str, allowed: str = "") -> ImportRefused:
    """The error for one problem."""
    return ImportRefused((ImportProblem(place, field, reason, allowed),))


class Record:
    """Fields of a JSON object, or of a row, by name.

    A field that is null, empty or `N/A` counts as absent. Numbers may be written as text.
    """

    def __init__(self, fields: Mapping[str, Any], place: FilePlace) -> None:
        self.fields = fields
        self.place = place
        """Place of the record, for errors."""

    def value(self, name: str) -> Any:
        """The value of a field; None if it is absent."""
        value = self.fields.get(name)
        if isinstance(value, str) and value.strip().lower() in _ABSENT:
            return None
        return value

    def __contains__(self, name: str) -> bool:
        return self.value(name) is not None

    def text(self, *names: str) -> str:
        """The first of these fields that is there, safe to print; empty if none is. A list counts by its only entry."""
        for name in names:
            value = self.value(name)
            if isinstance(value, list) and len(value) == 1:
                value = value[0]
            if isinstance(value, str | int | float) and not isinstance(value, bool):
                return clean(str(value).strip())
        return ""

    def number(self, *names: str, scale: float = 1.0, least: float = 0.0) -> float | None:
        """The first of these fields that is there, times `scale`.

        None if none is there; raises ImportRefused if it is no number, or below `least`.
        """
        name = self._present(names)
        if name is None:
            return None
        value = self.value(name)
        number = to_number(value)
        if number is None:
            raise refusal(self.place, name, f"is {_printable(value)}", "a number")
        if not least <= number <= _LARGEST_NUMBER:
            allowed = f"a number from {least:g} to {_LARGEST_NUMBER:g}"
            raise refusal(self.place, name, f"is {_printable(value)}", allowed)
        return number * scale

    def _present(self, names: Iterable[str]) -> str | None:
        """The first of the names that has a field; None if none has."""
        return next((name for name in names if name in self), None)

    def required_number(self, *names: str, scale: float = 1.0, least: float = 0.0) -> float:
        """Like `number`, but raises ImportRefused if none of the fields is there."""
        value = self.number(*names, scale=scale, least=least)
        if value is None:
            raise refusal(self.place, names[0], "is missing")
        return value

    def count(self, *names: str) -> int:
        """The first of these fields that is there, a whole number; 0 if none is. Raises ImportRefused for others."""
        value = self.number(*names) or 0.0
        if value != round(value) or value > _LARGEST_COUNT:
            name = self._present(names) or names[0]
            raise refusal(self.place, name, f"is {value:g}", "a whole number up to 1e9")
        return int(value)

    def flag(self, name: str) -> bool | None:
        """A boolean; None if it is absent. Raises ImportRefused for anything else."""
        value = self.value(name)
        if value is None:
            return None
        text = str(value).lower()
        if text not in ("true", "false"):
            raise refusal(self.place, name, f"is {_printable(value)}", "true or false")
        return text == "true"

    def seconds(self, name: str, unit: str) -> float | None:
        """A time in seconds, which the field has in `unit`; None if it is absent.

        Raises ImportRefused for a unit that is not known: it is never guessed.
        """
        if name not in self:
            return None
        factor = _SECONDS.get(unit.strip().lower())
        if factor is None:
            raise refusal(self.place, "unit", f"has the unit {_printable(unit)}", ", ".join(_SECONDS))
        return self.number(name, scale=factor)

    def part(self, *path: str) -> Record:
        """The record at a path of names inside this one; an empty one if there is none."""
        fields = self.fields
        for name in path:
            inner = fields.get(name)
            fields = inner if isinstance(inner, Mapping) else {}
        return Record(fields, self.place.inside(".".join(path)))

    def per_request(self, name: str, requests: float | None) -> float | None:
        """A total over all `requests` as the mean of one; None where either is absent, or 0."""
        total = self.number(name)
        if total and requests:
            return total / requests
        return None


class Document(NamedTuple):
    """One JSON object, or a CSV file."""

    place: FilePlace
    fields: Mapping[str, Any]
    """Fields of the JSON object; empty for a CSV file."""
    header: tuple[str, ...] = ()
    """Names of the columns of a CSV file; empty for a JSON object."""
    rows: tuple[tuple[int, tuple[str, ...]], ...] = ()
    """Line and cells of each row below the header that has a cell."""

    @property
    def names(self) -> Collection[str]:
        """Names of the fields of a JSON object, or of the columns of a CSV file."""
        return self.header or self.fields

    def records(self) -> Iterator[Record]:
        """The JSON object as one record, or each row as one. Raises ImportRefused for a row of another length."""
        if not self.header:
            yield Record(self.fields, self.place)
        for line, cells in self.rows:
            yield self.row(line, cells, self.header)

    def row(self, line: int, cells: tuple[str, ...], header: tuple[str, ...]) -> Record:
        """A row as a record, by the names of a header. Raises ImportRefused where their lengths differ."""
        place = self.place._replace(line=line)
        if len(cells) != len(header):
            raise refusal(place, "", f"has {len(cells)} cells", f"{len(header)}, as the header has")
        return Record(dict(zip(header, cells, strict=True)), place)


def documents(file: str, data: bytes) -> tuple[Document, ...]:
    """All documents of a file: JSON, JSON lines, a JSON list, or CSV. Raises ImportRefused, also for an empty file."""
    place = FilePlace(file)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise refusal(place, "", "is no text in UTF-8", "text; a packed file has to be unpacked first") from None
    if "\0" in text:
        raise refusal(place, "", "holds binary data", "text in UTF-8")
    first_character = text.lstrip()[:1]
    if not first_character:
        raise refusal(place, "", "is empty")
    if first_character in "{[":
        if text.count("{") + text.count("[") > _MOST_CONTAINERS:
            raise refusal(place, "", f"has more than {_MOST_CONTAINERS:,} lists and objects", _EXPECTED_FILE)
        read_documents = tuple(islice(_json(place, text), MOST_RECORDS + 1))
    else:
        read_documents = (_sheet(place, text),)
    if len(read_documents) > MOST_RECORDS or any(len(document.rows) > MOST_RECORDS for document in read_documents):
        raise refusal(place, "", f"has more than {MOST_RECORDS} records", _EXPECTED_FILE)
    return read_documents


def _json(place: FilePlace, text: str) -> Iterator[Document]:
    """JSON documents one after the other; NaN and Infinity are read, as Python's tools write them."""
    decoder = json.JSONDecoder()
    end = 0
    line = 1
    while end < len(text):
        begin = end
        spaces = _SPACES.match(text, end)
        if spaces:
            begin = spaces.end()
        line += text.count("\n", end, begin)
        if begin == len(text):
            return
        value_place = place._replace(line=line)
        value, end = _decode(decoder, text, begin, value_place)
        line += text.count("\n", begin, end)
        if isinstance(value, list):
            for number, entry in enumerate(value):
                yield _object(value_place.inside(f"[{number}]"), entry)
        else:
            yield _object(value_place, value)


def _decode(decoder: json.JSONDecoder, text: str, begin: int, place: FilePlace) -> tuple[Any, int]:
    """The JSON value that begins at `begin`, and the offset of its end. Raises ImportRefused."""
    try:
        return decoder.raw_decode(text, begin)
    except RecursionError:
        raise refusal(place, "", "is nested too deeply") from None
    except json.JSONDecodeError as failure:
        line_place = place._replace(line=failure.lineno)
        raise refusal(line_place, "", f"is no JSON (or is cut off): {failure.msg}") from None
    except ValueError:  # Python converts no integer of more than 4,300 digits
        raise refusal(place, "", "holds a number of too many digits") from None


def _object(place: FilePlace, value: Any) -> Document:
    """A document of one JSON object. Raises ImportRefused for anything else."""
    if not isinstance(value, dict):
        raise refusal(place, "", "is no JSON object", "an object, or a list of objects")
    return Document(place, value)


def _sheet(place: FilePlace, text: str) -> Document:
    """A CSV file: the first row that has a cell is its header. Raises ImportRefused."""
    # Split at line feeds alone: `splitlines` would split at other characters of a cell, too, such as U+2028.
    lines = text.removesuffix("\n").split("\n")
    reader = csv.reader((f"{line}\n" for line in lines), strict=True)
    rows = list[tuple[int, tuple[str, ...]]]()
    try:
        for row_number, cells in enumerate(reader, start=1):
            # More rows are refused by the caller. Empty ones are no records: as many of them may stand between.
            if len(rows) > MOST_RECORDS + 1:
                break
            if row_number > _MOST_ROWS:
                raise refusal(place, "", f"has more than {_MOST_ROWS} rows, empty ones included", _EXPECTED_FILE)
            stripped = tuple(cell.strip() for cell in cells)
            if any(stripped):
                rows.append((reader.line_num, stripped))
    except csv.Error as failure:
        raise refusal(place._replace(line=reader.line_num), "", f"is no CSV: {failure}") from None
    if not rows:
        raise refusal(place, "", "is empty")
    _, header = rows[0]
    return Document(place, {}, header, tuple(rows[1:]))


def to_number(value: Any) -> float | None:
    """The value of a number, or of a text such as `"1,916.33"`; None for anything else, and for NaN."""
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


def _printable(value: object) -> str:
    """A value from a file, cut and safe to print; a text in quotes."""
    if isinstance(value, str):
        return clean(repr(value), 80)
    return clean(str(value), 80)

"""Files of load tests as records: their documents, fields and units, and the errors that name file, line and field."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

from gpumon.readings.text import clean

_MOST_SHOWN: Final = 80
_MOST_NAME: Final = 200
_MOST_PROBLEMS: Final = 10
Units = Mapping[str, float]
SECONDS: Final[Units] = {
    "ns": 1e-9,
    "nanoseconds": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "microseconds": 1e-6,
    "ms": 1e-3,
    "milliseconds": 1e-3,
    "s": 1.0,
    "sec": 1.0,
    "secs": 1.0,
    "seconds": 1.0,
}
PER_SECOND: Final[Units] = {
    unit: 1.0
    for thing in ("tokens", "token", "requests", "request", "req", "infer", "")
    for unit in (f"{thing}/sec", f"{thing}/s", f"{thing}/second", f"{thing} per sec".strip())
} | {"rps": 1.0, "per second": 1.0}
COUNT: Final[Units] = {"tokens": 1.0, "token": 1.0, "requests": 1.0, "count": 1.0, "": 1.0}
WATTS: Final[Units] = {"w": 1.0, "watts": 1.0, "kw": 1e3, "mw": 1e-3}
RATIO: Final[Units] = {"%": 1e-2, "percent": 1e-2, "ratio": 1.0}
BYTES: Final[Units] = {
    "b": 1.0,
    "bytes": 1.0,
    "mb": 1e6,
    "mib": 2.0**20,
    "gb": 1e9,
    "gib": 2.0**30,
}
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
_THOUSANDS: Final = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d*)?")
_ABSENT: Final = frozenset(("", "n/a", "na", "none", "null", "-"))
_MOST: Final = 1e15


class Place(NamedTuple):
    """Where something stands in a file."""

    file: str
    line: int = 0
    """From 1; 0 where the file as a whole is meant."""
    part: str = ""
    """Path inside a JSON document, e.g. `benchmarks[2]`."""

    def __str__(self) -> str:
        line = f":{self.line}" if self.line else ""
        return f"{clean(self.file, _MOST_NAME)}{line}{f' {self.part}' if self.part else ''}"

    def inside(self, part: str) -> Place:
        """A place deeper in the same document."""
        return self._replace(part=f"{self.part}.{part}" if self.part else part)


class Problem(NamedTuple):
    """One thing that is wrong."""

    place: Place
    field: str
    reason: str
    allowed: str = ""

    def __str__(self) -> str:
        field = f"{clean(self.field, _MOST_SHOWN)}: " if self.field else ""
        allowed = f"; allowed: {self.allowed}" if self.allowed else ""
        return f"{self.place}: {field}{self.reason}{allowed}"


class SweepError(Exception):
    """Files that are not imported, none of them: `str()` has a line per problem, alike ones of a file in one."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        alike: dict[tuple[str, ...], list[Problem]] = {}
        for problem in self.problems:
            alike.setdefault((problem.place.file, *problem[1:]), []).append(problem)
        shown = [
            f"{first}{f' (and {len(more)} more like it)' if more else ''}"
            for first, *more in list(alike.values())[:_MOST_PROBLEMS]
        ]
        if len(alike) > _MOST_PROBLEMS:
            shown.append(f"and {len(alike) - _MOST_PROBLEMS} more")
        super().__init__("\n".join(shown))


def refused(place: Place, field: str, reason: str, allowed: str = "") -> SweepError:
    """The error for one problem."""
    return SweepError((Problem(place, field, reason, allowed),))


def shown(value: object) -> str:
    """A value from a file, cut and safe to print."""
    return clean(repr(value) if isinstance(value, str) else str(value), _MOST_SHOWN)


def factor(units: Units, unit: str, place: Place, field: str) -> float:
    """What a number in `unit` is multiplied with. Raises SweepError where the unit is not known: never a guess."""
    found = units.get(unit.strip().lower())
    if found is None:
        raise refused(place, field, f"has the unit {shown(unit)}", ", ".join(key for key in units if key))
    return found


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


class Record:
    """Fields by name. A field that is null, empty or `N/A` is not there; numbers may be written as text."""

    def __init__(self, fields: Mapping[str, Any], place: Place) -> None:
        self.fields = fields
        self.place = place

    def __contains__(self, name: str) -> bool:
        return self._value(name) is not None

    def text(self, *names: str) -> str:
        """The first of these fields that is there, safe to print; empty where none is. Lists: their only entry."""
        for name in names:
            value = self._value(name)
            if isinstance(value, list) and len(value) == 1:
                value = value[0]
            if isinstance(value, str | int | float) and not isinstance(value, bool):
                return clean(str(value).strip())
        return ""

    def number(self, *names: str, scale: float = 1.0, least: float = 0.0) -> float | None:
        """The first of these fields that is there, times `scale`. Raises SweepError below `least`, or for no number."""
        for name in names:
            value = self._value(name)
            if value is not None:
                return self._number(name, value, least) * scale
        return None

    def wanted(self, *names: str, scale: float = 1.0, least: float = 0.0) -> float:
        """Like `number`, but it has to be there."""
        value = self.number(*names, scale=scale, least=least)
        if value is None:
            raise refused(self.place, names[0], "is missing")
        return value

    def count(self, *names: str) -> int:
        """A whole number; 0 where it is not there."""
        value = self.number(*names)
        if value is None:
            return 0
        if value != round(value) or value > 1e9:
            raise refused(self.place, names[0], f"is {shown(value)}", "a whole number up to 1e9")
        return int(value)

    def endless(self, name: str) -> bool:
        """Whether a request rate is not limited: infinite, or not there."""
        value = self._value(name)
        return value is None or to_number(value) == math.inf

    def flag(self, name: str) -> bool | None:
        """A yes or no; None where it is not there."""
        value = self._value(name)
        if value is None:
            return None
        known = {True: True, False: False, "true": True, "false": False, "yes": True, "no": False}
        key = value.lower() if isinstance(value, str) else value
        if not isinstance(key, bool | str) or key not in known:
            raise refused(self.place, name, f"is {shown(value)}", "true or false")
        return known[key]

    def part(self, *path: str) -> Record:
        """The record that stands under a path; an empty one where there is none."""
        value: Any = self.fields
        for name in path:
            value = value.get(name) if isinstance(value, Mapping) else None
        return Record(value if isinstance(value, Mapping) else {}, self.place.inside(".".join(path)))

    def converted(self, name: str, units: Units, unit: str = "") -> float | None:
        """A number in the unit that the record's own field `unit` names; `unit` where it has none."""
        value = self.number(name)
        if value is None:
            return None
        return value * factor(units, self.text("unit") or unit, self.place, "unit")

    def per_request(self, name: str, requests: float | None) -> float | None:
        """A total over all requests as the mean of one; None where either is not there, or 0."""
        total = self.number(name)
        return total / requests if total and requests else None

    def sought(self, name: str, depth: int = 6) -> float | None:
        """The one positive number under this name anywhere inside; None where there is none, or two that differ."""
        found = {value for value in _all(self.fields, name, depth) if value > 0.0}
        return found.pop() if len(found) == 1 else None

    def _value(self, name: str) -> Any:
        value = self.fields.get(name)
        return None if isinstance(value, str) and value.strip().lower() in _ABSENT else value

    def _number(self, name: str, value: Any, least: float) -> float:
        number = to_number(value)
        if number is None:
            raise refused(self.place, name, f"is {shown(value)}", "a number")
        if not least <= number <= _MOST:
            raise refused(self.place, name, f"is {shown(value)}", f"a number from {least:g} to {_MOST:g}")
        return number


def to_number(value: Any) -> float | None:
    """A number, or a text that is one: `"1,916.33"` has thousands separators. None for anything else and for NaN."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        value = value.strip()
        value = value.replace(",", "") if _THOUSANDS.fullmatch(value) else value
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return None if math.isnan(number) else number


def table(document: Document, first: int = 0) -> Iterator[Record]:
    """The rows below row `first` as records, named by it. Raises SweepError for a row of another length."""
    header = document.rows[first].cells
    for row in document.rows[first + 1 :]:
        place = document.place._replace(line=row.line)
        if len(row.cells) != len(header):
            raise refused(place, "", f"has {len(row.cells)} cells", f"{len(header)}, as the header has")
        yield Record(dict(zip(header, row.cells, strict=True)), place)


def _all(value: Any, name: str, depth: int) -> Iterator[float]:
    if depth == 0:
        return
    if isinstance(value, list):
        for each in value[:64]:
            yield from _all(each, name, depth - 1)
    elif isinstance(value, Mapping):
        for key, each in value.items():
            if key == name and (number := to_number(each)) is not None:
                yield number
            elif isinstance(each, Mapping | list):
                yield from _all(each, name, depth - 1)

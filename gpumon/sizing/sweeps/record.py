"""One record of a file: its numbers and texts, with errors that name the field."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpumon.readings.text import clean
from gpumon.sizing.sweeps.documents import Document
from gpumon.sizing.sweeps.problem import Place, refused, shown
from gpumon.sizing.sweeps.units import Units, factor

_THOUSANDS: Final = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d*)?")
_ABSENT: Final = frozenset(("", "n/a", "na", "none", "null", "-"))
_MOST: Final = 1e15


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

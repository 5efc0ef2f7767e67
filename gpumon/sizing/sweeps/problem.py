"""Why a sweep is refused: file, line, field, reason, what is allowed. One line each, all of them at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from gpumon.readings.text import clean

_MOST_SHOWN: Final = 80
_MOST_NAME: Final = 200
_MOST_PROBLEMS: Final = 10


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

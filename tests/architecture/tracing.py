"""What functions of the program return while it runs, and which of these values carry a thing that is followed."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

import msgspec

PROGRAM: Final = Path(__file__).resolve().parents[2] / "gpumon"
DEEPEST: Final = 9
"""Records inside records that are looked through."""


class Returned(NamedTuple):
    """A value that a function of the program returned, or a generator of it gave."""

    file: str
    """Below `gpumon/`."""
    value: Any


class Place(NamedTuple):
    """A function of the program."""

    file: str
    function: str


class Called(NamedTuple):
    """A call of a function of the program."""

    place: Place
    callers: frozenset[Place]
    """Functions of the program that wait for it."""


class Recorder:
    """Keeps calls and returned values of the program's functions while it is told to, in all threads of the process."""

    def __init__(self) -> None:
        self.keeps_returned = False
        self.keeps_called = False
        self.called: list[Called] = []
        self.returned: list[Returned] = []
        self._files: dict[CodeType, str] = {}

    def start(self) -> None:
        """Begin in this thread and in those that are started from now on."""
        threading.setprofile(self._look)
        sys.setprofile(self._look)

    def _look(self, frame: FrameType, event: str, value: Any) -> None:
        if event == "return" and self.keeps_returned:
            file = self._file(frame.f_code)
            if file:
                self.returned.append(Returned(file, value))
        elif event == "call" and self.keeps_called:
            file = self._file(frame.f_code)
            if file:
                self.called.append(Called(Place(file, frame.f_code.co_name), self._callers(frame)))

    def _callers(self, frame: FrameType) -> frozenset[Place]:
        places = set()
        caller = frame.f_back
        while caller is not None:
            file = self._file(caller.f_code)
            if file:
                places.add(Place(file, caller.f_code.co_name))
            caller = caller.f_back
        return frozenset(places)

    def _file(self, code: CodeType) -> str:
        file = self._files.get(code)
        if file is None:
            file = self._files[code] = file_of(code)
        return file


def file_of(code: CodeType) -> str:
    """The file below the program, of a function; empty for other code, and for the text of a module."""
    path = Path(code.co_filename)
    if code.co_name == "<module>" or PROGRAM not in path.parents:
        return ""
    return path.relative_to(PROGRAM).as_posix()


Mark = Callable[[Any], str]
"""Gives a plain value the name of the followed thing that it is; empty for any other value."""


class Carried(NamedTuple):
    """A followed thing in a record."""

    thing: str
    value: Any
    record: int
    """Identity of the innermost record that has it; 0 for the thing alone."""


class Search:
    """Finds followed things in values. Each record is looked through once: records do not change."""

    def __init__(self, mark: Mark) -> None:
        self._mark = mark
        self._known: dict[int, tuple[Any, frozenset[Carried]]] = {}

    def carried(self, value: Any, depth: int = 0) -> frozenset[Carried]:
        """What a value carries."""
        thing = self._mark(value)
        if thing:
            return frozenset({Carried(thing, value, 0)})
        if depth > DEEPEST or isinstance(value, (str, bytes, float, int)):
            return frozenset()
        known = self._known.get(id(value))
        if known is not None:
            return known[1]
        carried = set()
        for part in parts(value):
            for inner in self.carried(part, depth + 1):
                carried.add(inner if inner.record else inner._replace(record=id(value)))
        result = frozenset(carried)
        self._known[id(value)] = (value, result)
        return result


def parts(value: Any) -> Iterable[Any]:
    """The values in a record, or the text of a line."""
    if isinstance(value, msgspec.Struct):
        return [getattr(value, name) for name in value.__struct_fields__]
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, (tuple, list, set, frozenset)):
        return list(value)
    text = getattr(value, "text", None)
    if isinstance(text, str):
        return [text]
    return ()


def floats(value: Any, depth: int = 0) -> Iterator[float]:
    """All numbers in a record."""
    if isinstance(value, float):
        yield value
    elif depth <= DEEPEST and not isinstance(value, (str, bytes, int)):
        for part in parts(value):
            yield from floats(part, depth + 1)


class Way(NamedTuple):
    """Files that a thing passes."""

    changed_by: list[str]
    """Those that make another value or another record of it, in the order in which they first return one."""
    passed_on_by: list[str]
    """Those that only hand over what another file has made."""


def way_of(returned: Iterable[Returned], mark: Mark, first: str, besides: tuple[str, ...] = ()) -> Way:
    """The files whose functions returned what is followed, from when `first` returned it (empty: from the beginning).

    `besides` are the beginnings of files that it reaches as well, beside its way.
    """
    search = Search(mark)
    seen: set[Carried] = set()
    changed: dict[str, None] = {}
    passed: dict[str, None] = {}
    for file, value in returned:
        if file.startswith(besides) or (first and not changed and file != first):
            continue
        carried = search.carried(value)
        if not carried:
            continue
        is_new = not carried <= seen
        for one in carried:
            seen.update((one, one._replace(record=0)))
        if is_new:
            changed[file] = None
        else:
            passed[file] = None
    return Way(list(changed), [file for file in passed if file not in changed])

"""On which line of a TOML text a setting stands: the parser gives none, and an error without one is hard to act on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import tomli

from gpumon.config.errors import Path

_MOST_LINES = 80
"""Lines of one statement: what is longer (a text over many lines) ends the search, which is quadratic in this."""
_MOST_DEPTH = 6


def line_of(text: str, path: Path) -> int:
    """Line (from 1) of the setting at `path` in a TOML text that parses, of its first entry, or of the nearest
    table around it; else 0."""
    return line_among(places(text), path)


def places(text: str) -> dict[Path, int]:
    """The line of every setting and header of a TOML text that parses."""
    return dict(_places(text))


def line_among(known: Mapping[Path, int], path: Path) -> int:
    """What `line_of` tells, of a text whose `places` are known."""
    if (*path, 0) in known and path not in known:
        return known[(*path, 0)]
    for length in range(len(path), 0, -1):
        if path[:length] in known:
            return known[path[:length]]
    return 0


def end_of(text: str, table: str) -> int:
    """The last line (from 1) of the last setting that stands under the header `[table]`, or of the header itself where
    none does; 0 where there is no such header."""
    inside, end = False, 0
    for line, statement in _statements(text):
        if statement.lstrip().startswith("["):
            parsed = tomli.loads(statement)
            inside = statement.lstrip()[1] != "[" and _header(parsed, False, {}) == (table,)
        if inside:
            end = line + statement.rstrip("\n").count("\n")
    return end


def _places(text: str) -> Iterator[tuple[Path, int]]:
    table: Path = ()
    counts: dict[Path, int] = {}
    for line, statement in _statements(text):
        parsed = tomli.loads(statement)
        if not statement.lstrip().startswith("["):
            for path in _paths(parsed):
                yield (*table, *path), line
            continue
        table = _header(parsed, statement.lstrip().startswith("[["), counts)
        yield table, line


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Each header or `key = value` with its first line; a statement goes on while it does not parse by itself."""
    begun, at = "", 0
    for line, content in enumerate(text.split("\n"), start=1):
        at = at if begun else line
        begun += content + "\n"
        try:
            tomli.loads(begun)
        except tomli.TOMLDecodeError:
            if line - at >= _MOST_LINES:
                return
            continue
        if content.strip() and not content.lstrip().startswith("#"):
            yield at, begun
        begun = ""


def _paths(parsed: Any, path: Path = ()) -> Iterator[Path]:
    if len(path) > _MOST_DEPTH:
        return
    items = parsed.items() if isinstance(parsed, dict) else enumerate(parsed) if isinstance(parsed, list) else ()
    if path:
        yield path
    for key, value in items:
        yield from _paths(value, (*path, key))


def _header(parsed: dict[str, Any], is_array: bool, counts: dict[Path, int]) -> Path:
    """The path of `[a.b]` or `[[a.b]]`: a name that is an array stands for its newest entry."""
    names = [str(part) for part in max(_paths(parsed), key=len) if not isinstance(part, int)]
    path: Path = ()
    for depth, name in enumerate(names, start=1):
        path = (*path, name)
        if is_array and depth == len(names):
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path = (*path, counts[path])
    return path

"""On which line of a TOML text a setting stands: the parser gives none, and an error without one is hard to act on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

import tomli

from gpumon.config.errors import KeyPath

_NAME_PATTERN: Final = r"""(?:[\w-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
"""One part of a key, bare or in quotes."""
_HEADER_PATTERN: Final = re.compile(rf"\s*(\[\[?)\s*({_NAME_PATTERN}(?:\s*\.\s*{_NAME_PATTERN})*)\s*\]\]?\s*(?:#.*)?")
"""A whole line with a header: its brackets and its key."""
_KEY_PATTERN: Final = re.compile(rf"\s*({_NAME_PATTERN}(?:\s*\.\s*{_NAME_PATTERN})*)\s*=")
"""The begin of a line with a setting: its key."""


def lines_of_settings(text: str) -> dict[KeyPath, int]:
    """The line (from 1) of every header and of every setting that begins a line of a TOML text that parses."""
    lines: dict[KeyPath, int] = {}
    for line, path in _line_and_path_of_each(text):
        for length in range(1, len(path) + 1):
            lines.setdefault(path[:length], line)
    return lines


def line_among(lines: Mapping[KeyPath, int], path: KeyPath) -> int:
    """Line of the setting at `path`, else of the nearest table around it, else 0. `lines`: `lines_of_settings`."""
    for length in range(len(path), 0, -1):
        if path[:length] in lines:
            return lines[path[:length]]
    return 0


def last_line_of(text: str, table: str) -> int:
    """The last line (from 1) under the header `[table]` that is no comment; 0 where there is no such header."""
    inside = False
    end = 0
    for number, line in enumerate(text.split("\n"), start=1):
        header = _HEADER_PATTERN.fullmatch(line.rstrip("\r"))
        if header:
            inside = header[1] == "[" and _names_of_key(header[2]) == (table,)
        if inside and line.strip() and not line.lstrip().startswith("#"):
            end = number
    return end


def _line_and_path_of_each(text: str) -> Iterator[tuple[int, KeyPath]]:
    """Line (from 1) and path of every header and of every setting that begins a line."""
    table: KeyPath = ()
    counts: dict[KeyPath, int] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        header = _HEADER_PATTERN.fullmatch(line.rstrip("\r"))
        if header:
            names = _names_of_key(header[2])
            if header[1] == "[[":
                counts[names] = counts.get(names, -1) + 1
            table = ()
            for depth, name in enumerate(names, start=1):  # a name that is an array stands for its newest entry
                entry = counts.get(names[:depth])
                table = (*table, name)
                if entry is not None:
                    table = (*table, entry)
            yield number, table
        elif key := _KEY_PATTERN.match(line):
            yield number, (*table, *_names_of_key(key[1]))


def _names_of_key(dotted: str) -> tuple[str, ...]:
    """The parts of a TOML key: `a."b.c"` is `a` and `b.c`."""
    names = []
    for name in re.findall(_NAME_PATTERN, dotted):
        if name[0] in "\"'":
            names.append(tomli.loads(f"x = {name}")["x"])
        else:
            names.append(name)
    return tuple(names)

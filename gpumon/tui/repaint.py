"""A frame for the terminal in as few bytes as its cells allow: written colour by colour, so that each is named once.

Textual writes the changed cells of a line from left to right, and names each colour again after each other one, in
up to 40 bytes. Over SSH those names were four fifths of what a quiet screen sends.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

from gpumon.readings.format import cells

_TOKEN: Final = re.compile(r"(?:\x1b\[([0-9;]*)([mHC])|(\r?\n))?([^\x00-\x1f\x7f-\x9f]*)")
"""All that a frame of changed cells has: the parameters of a code and its last letter, or a line feed, and the text
behind it. A frame with anything else is left as it is."""
_CODE_CHARACTERS: Final = 3
"""Characters of a code beside its parameters."""
_LAST_PLACE: Final = re.compile(r"\x1b\[[0-9]+;[0-9]+H\Z")
"""Place at which a frame leaves the cursor: screen readers and input methods look there."""
_MOST_BY_COLOUR: Final = 4096
"""Characters of a frame up to which it is written colour by colour. A longer one, which a slow line shows while it
comes, is written from the top down."""
_ATTRIBUTES: Final = frozenset("123456789")
"""Codes of bold, dim and the like."""
_NAMED_COLOUR: Final = re.compile(r"(?P<foreground>(?:3|9)[0-7])|(?:4|10)[0-7]")
"""Code of one of the terminal's 16 colours, of the text or of the ground."""
_EXTENDED_COLOURS: Final = {"38": "foreground", "48": "background"}
"""Begin of the code of any other colour -> what has it."""
_EXTENDED_PARTS: Final = {"2": 4, "5": 2}
"""Parts that follow the code of an extended colour, by the first of them: red, green and blue, or a number."""
_RESET: Final = "\x1b[m"
_UNKNOWN_LINE: Final = 0
"""Line of a cursor whose place is not known: after a line feed, whose column the terminal's settings decide, and after
a wide character, of which terminals differ in how many cells it takes."""
_NO_STYLE: Final = ""
"""The style in which no code is in force."""


class _Run(NamedTuple):
    """Cells of one style side by side."""

    style: str
    """The codes in force."""
    line: int
    """Line of the cells, from 1 on, as the terminal counts them."""
    column: int
    """Column of the first cell, from 1 on."""
    text: str
    end: int
    """The column after the last cell."""


class _UnknownCodeError(Exception):
    """A frame has what is not read here."""


def repainted(frame: str) -> str:
    """The cells of a frame in fewer bytes, with the same characters and colours; as it is if it has more than cells."""
    try:
        runs = _runs_in(frame)
    except _UnknownCodeError:
        return frame
    if not runs:
        return frame
    if len(frame) <= _MOST_BY_COLOUR and _are_in_order(runs):
        runs = _group_by_style(runs)
    place = _LAST_PLACE.search(frame)
    if place is None:
        return _encode_runs(runs)
    return _encode_runs(runs) + place[0]


def _runs_in(frame: str) -> list[_Run]:
    """The runs of a frame in its order. Raises _UnknownCodeError."""
    runs: list[_Run] = []
    style = _NO_STYLE
    line = _UNKNOWN_LINE
    column = 1
    characters_read = 0
    for parameters, letter, newline, text in _TOKEN.findall(frame):
        if letter == "m":
            style = _style_after(style, parameters)
        elif letter == "H":
            to_line, _, to_column = parameters.partition(";")
            line = _number(to_line)
            column = _number(to_column)
        elif letter == "C":
            column += _number(parameters)
        elif newline:
            line = _UNKNOWN_LINE
        if letter:
            characters_read += _CODE_CHARACTERS
        characters_read += len(parameters) + len(newline) + len(text)
        if text:
            if line == _UNKNOWN_LINE:
                raise _UnknownCodeError
            end = column + cells(text)
            runs.append(_Run(style, line, column, text, end))
            column = end
    if characters_read != len(frame):
        raise _UnknownCodeError
    return runs


def _number(parameter: str) -> int:
    """One number. Raises _UnknownCodeError."""
    if not parameter.isdecimal():
        raise _UnknownCodeError
    return int(parameter)


@lru_cache(maxsize=4096)
def _style_after(style: str, codes: str) -> str:
    """The style in force after a control sequence with these codes. Raises _UnknownCodeError."""
    in_force = _codes_in_force(f"{style};{codes}")
    return ";".join(in_force[setting] for setting in sorted(in_force))


def _codes_in_force(codes: str) -> dict[str, str]:
    """The codes that are in force after all of these, by what they set: an attribute, `foreground` or `background`.

    Raises _UnknownCodeError.
    """
    in_force: dict[str, str] = {}
    parts = codes.split(";")
    while parts:
        code = parts.pop(0)
        named = _NAMED_COLOUR.fullmatch(code)
        if code in ("", "0"):
            in_force.clear()
        elif code in _ATTRIBUTES:
            in_force[code] = code
        elif code in _EXTENDED_COLOURS:
            form = parts[0] if parts else ""
            length = _EXTENDED_PARTS.get(form, 0)
            if not 0 < length <= len(parts):
                raise _UnknownCodeError
            in_force[_EXTENDED_COLOURS[code]] = ";".join([code, *parts[:length]])
            del parts[:length]
        elif named and named["foreground"]:
            in_force["foreground"] = code
        elif named:
            in_force["background"] = code
        else:
            raise _UnknownCodeError
    return in_force


def _are_in_order(runs: list[_Run]) -> bool:
    """Whether each run comes after the one before it, so that no cell is written twice."""
    for previous, run in pairwise(runs):
        if run.line < previous.line or (run.line == previous.line and run.column < previous.end):
            return False
    return True


def _group_by_style(runs: list[_Run]) -> list[_Run]:
    """The runs style by style, in the order in which the styles come first; those of one style from the top down."""
    groups: dict[str, list[_Run]] = {}
    for run in runs:
        groups.setdefault(run.style, []).append(run)
    return [run for group in groups.values() for run in group]


def _encode_runs(runs: list[_Run]) -> str:
    """The runs as text and codes. Each goes to its place by the shortest way; all codes are reset at the end."""
    parts: list[str] = []
    style = _NO_STYLE
    line = _UNKNOWN_LINE
    column = 1
    for run in runs:
        parts.append(_cursor_move(line, column, run))
        parts.append(_style_change(style, run.style))
        parts.append(run.text)
        style = run.style
        line = run.line
        column = run.end
        if run.end - run.column != len(run.text):  # it has wide characters
            line = _UNKNOWN_LINE
    if style:
        parts.append(_RESET)
    return "".join(parts)


def _cursor_move(line: int, column: int, run: _Run) -> str:
    """The way of the cursor from a place to a run."""
    if run.line != line or run.column < column:
        return f"\x1b[{run.line};{run.column}H"
    if run.column == column:
        return ""
    return f"\x1b[{run.column - column}C"


@lru_cache(maxsize=4096)
def _style_change(old: str, new: str) -> str:
    """The control sequence from one style to another; empty where they are the same."""
    old_codes = _codes_in_force(old)
    new_codes = _codes_in_force(new)
    # A code can only be taken back by a reset of all.
    if old_codes.keys() <= new_codes.keys():
        codes = [code for setting, code in new_codes.items() if old_codes.get(setting) != code]
    else:
        codes = ["0", *new_codes.values()]
    if not codes:
        return ""
    return f"\x1b[{';'.join(codes)}m"

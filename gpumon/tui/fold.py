"""Long texts over several lines: broken at blanks, but not within a command, nor between a number and its unit."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from gpumon.readings.format import cells, cut

_GLUE: Final = "\0"
"""Stands for a blank at which a line is not broken, while words are looked for: no text on the screen has it."""
_PAIR: Final = re.compile(
    r"(?<=\d) (?=(?:%|/s|billion|bytes|[kMGTPmun]?(?:FLOP|B|W|J|s|tok)\b))|(?<=\b(?:GPU|gpu|pid)) (?=\d)"
)
"""Between a number and its unit, and between what is numbered and its number."""
_COMMAND: Final = re.compile(
    r"(?:sudo )?\b(?:nvidia-smi|amd-smi|dcgmi|py-spy|journalctl|systemctl|kubectl|docker|podman|fuser|dmesg|gpumon)"
    r"(?: (?:-[^\s;,)]+|\d[^\s;)]*|/[^\s;,)]+|[A-Z_]+(?:,[A-Z_]+)+|_?[A-Z_]{3,}(?:=\d+|\b)|\||grep|dump|logs|nvlink"
    r"|topo|diag|group|metric|process|reset|static|set|recovery|Xid|report|doctor)(?=[\s;:,)`]|$))*"
    r"|--[a-z][\w-]+ \d[\w.]*"
)
"""A command with its arguments, or an option with its number: what is typed as it stands is read in one piece."""
_BREAKS: Final = "_{/.:,=-"
"""A long name may be broken behind these."""


@lru_cache(maxsize=2048)
def folded(text: str, width: int, first_width: int | None = None) -> tuple[str, ...]:
    """A text in lines of at most `width` cells (the first one of `first_width`), broken at blanks, and within a word
    that is longer; at least one line."""
    room = width if first_width is None else first_width
    lines = [""]
    for word in _words(" ".join(text.split()), width):
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if cells(joined) <= room:
            lines[-1] = joined
            continue
        if lines[-1] or (room < width and cells(word) <= width):  # a short first line stays empty for a whole word
            lines.append("")
            room = width
        if cells(word) <= room:
            lines[-1] = word
            continue
        lines[-1:] = _pieces_of(word, room)
        room = width
    return tuple(lines)


def cut_to_lines(text: str, width: int, most: int, first_width: int | None = None) -> tuple[str, ...]:
    """A text in at most `most` lines, as `folded` makes them, the last one cut where that is needed."""
    lines = folded(text, width, first_width)
    if len(lines) <= most:
        return lines
    room = width if most > 1 or first_width is None else first_width
    return (*lines[: most - 1], cut(" ".join(lines[most - 1 :]), room))


def _words(text: str, width: int) -> list[str]:
    """Words at which a line may be broken: a command is one word where it fits into a line."""

    def glue(command: re.Match[str]) -> str:
        if cells(command[0]) > width:
            return command[0]
        return command[0].replace(" ", _GLUE)

    glued = _COMMAND.sub(glue, text)
    return [word.replace(_GLUE, " ") for word in _PAIR.sub(_GLUE, glued).split(" ")]


def _pieces_of(word: str, width: int) -> list[str]:
    """A word that is longer than a line, in pieces; at `_` and the like, or a capital, where one comes late enough."""
    pieces = []
    piece = ""
    for character in word:
        if cells(piece) + cells(character) > width:
            end = _break_before(piece, character)
            pieces.append(piece[:end])
            piece = piece[end:]
        piece += character
    return [*pieces, piece]


def _break_before(piece: str, character: str) -> int:
    """The place of the last break in the second half of a piece, before the character that follows it; its end where
    there is none."""
    for place in range(len(piece), len(piece) // 2, -1):
        if _may_break_between(piece[place - 1], (piece + character)[place]):
            return place
    return len(piece)


def _may_break_between(before: str, after: str) -> bool:
    """Whether a word may be broken between two characters: `prompt_|tokens`, `Pcie|Link`, but not `G|PM`."""
    return before in _BREAKS or (after.isupper() and not before.isupper())

"""Long texts over several lines."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from gpumon.readings.format import cells

_GLUE: Final = "\0"
_GLUED: Final = re.compile(
    r"(?<=\d) (?=(?:%|/s|billion|bytes|[kMGTPmun]?(?:FLOP|B|W|J|s|tok)\b))|(?<=\b(?:GPU|gpu|pid)) (?=\d)"
)
"""A number and its unit stay on one line, and so does a number and what it is the number of."""
_BREAKS: Final = "_{/.:,=-"
"""A long name may be broken behind these."""


@lru_cache(maxsize=2048)
def folded(text: str, width: int) -> tuple[str, ...]:
    """A text in lines of at most `width` cells, broken at blanks, and within a word that is longer; at least one."""
    lines = [""]
    for word in _GLUED.sub(_GLUE, " ".join(text.split())).split(" "):
        word = word.replace(_GLUE, " ")
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if cells(joined) <= width:
            lines[-1] = joined
            continue
        if lines[-1]:
            lines.append("")
        if cells(word) <= width:
            lines[-1] = word
            continue
        lines[-1:] = _broken(word, width)
    return tuple(lines)


def _broken(word: str, width: int) -> list[str]:
    """A word that is longer than a line, in pieces; at `_` and the like, or a capital, where one comes late enough."""
    pieces, piece = [], ""
    for character in word:
        if cells(piece) + cells(character) > width:
            late = range(len(piece), len(piece) // 2, -1)
            at = next((at for at in late if _parts(piece[at - 1], (piece + character)[at])), len(piece))
            pieces.append(piece[:at])
            piece = piece[at:]
        piece += character
    return [*pieces, piece]


def _parts(before: str, after: str) -> bool:
    """Whether a word may be broken between two characters: `prompt_|tokens`, `Pcie|Link`, but not `G|PM`."""
    return before in _BREAKS or (after.isupper() and not before.isupper())

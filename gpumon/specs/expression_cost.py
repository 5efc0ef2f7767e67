"""How many ways a regular expression from outside may have to be tried on one name: some take hours, and hold up all
else meanwhile."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

MOST_WAYS: Final = 2e7
"""Ways from which on an expression is not tried: four times `.*` over all names of a model take half a second."""
_WAYS_OF_ANY: Final = 40.0
"""Ways in which a repetition of any characters may end in one name, about half as many as names are long."""
_WAYS_OF_DIGITS: Final = 4.0
"""The same of digits: no number in a name has more than six."""
_WAYS_OF_OPTIONAL: Final = 3.0
"""The same of what may be there or not: 2, and more as it is cheap to try neither."""

# Marks that stand for parts of an expression; names have none of them.
_LITERAL: Final = "\x01"
_ANY: Final = "\x02"
_DIGIT: Final = "\x03"

_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_CLASS: Final = re.compile(r"\[\^?\]?[^\]]*\]")
_DIGITS_CLASS: Final = re.compile(r"\[[0-9\x03-]+\]")
_INNERMOST: Final = re.compile(r"\((?:\?:|\?P<\w*>)?([^()]*)\)")
_QUANTIFIED: Final = re.compile(r"(.)(?:([*+]|\{[0-9,]*\})|\?)[?+]?", re.DOTALL)


def ways_to_try(expression: str) -> float:
    """An upper bound of the ways to try an expression without look-arounds and back references on one name, roughly."""
    ways = 1.0
    text = _ESCAPE.sub(_mark_of_escape, expression)
    text = _CLASS.sub(lambda found: _DIGIT if _DIGITS_CLASS.fullmatch(found[0]) else _ANY, text)
    while (group := _INNERMOST.search(text)) is not None:
        ways *= _ways_of_branches(group[1])
        text = f"{text[: group.start()]}{_ANY}{text[group.end() :]}"
    return ways * _ways_of_branches(text)


def _mark_of_escape(escape: re.Match[str]) -> str:
    """The mark of an escaped character: a digit, a class of others, or the character itself."""
    if escape[1] == "d":
        return _DIGIT
    return _ANY if escape[1].isalnum() else _LITERAL


def _ways_of_branches(text: str) -> float:
    """Ways to try what has no group inside."""
    ways = 1.0
    for repeated, unbounded in _QUANTIFIED.findall(text):
        if not unbounded:
            ways *= _WAYS_OF_OPTIONAL
        else:
            ways *= _WAYS_OF_DIGITS if repeated == _DIGIT else _WAYS_OF_ANY
    branches = text.split("|")
    is_open = any(sign in text for sign in f"{_ANY}{_DIGIT}.*+?{{")
    return ways * (len(branches) if is_open else _most_in_turn(branches))


def _most_in_turn(branches: Sequence[str]) -> int:
    """The most of these texts of which each begins the next one: so many of them match at one place."""
    most = 1
    begun: list[str] = []
    for branch in sorted(branches):
        while begun and not branch.startswith(begun[-1]):
            begun.pop()
        begun.append(branch)
        most = max(most, len(begun))
    return most

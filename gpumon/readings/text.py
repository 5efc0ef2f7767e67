"""Text from outside (labels, process names, model ids) made safe to print."""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from collections.abc import Container
from typing import Final

MOST_CHARACTERS = 256
"""Characters kept of one text; the cut is marked with an ellipsis."""
MOST_FAULT = 1024
"""Characters kept of a fault: more, as its last words say what to do."""

_UNSAFE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories of characters that a terminal interprets, or that nobody sees."""
_UNSEEN_SIGNS: Final = "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef"
"""Letters, marks and signs that nobody sees: fillers, selectors of a variant, the blank of Braille."""
_UNSEEN: Final = re.compile(f"[{_UNSEEN_SIGNS}]")
_MARKS: Final = frozenset({"Mn", "Me"})
"""Unicode categories of marks that are drawn over the character before them."""
_MOST_MARKS: Final = 4
"""Marks of one character: writing has fewer, and more cover the lines above and below."""


def free_name(name: str, taken: Container[str]) -> str:
    """The name, with a number behind it if it is taken: `chat-2`."""
    free = name
    number = 2
    while free in taken:
        free = f"{name}-{number}"
        number += 1
    return free


def clean(text: str, most: int = MOST_CHARACTERS) -> str:
    r"""`text` without characters that a terminal interprets or nobody sees: controls, bidi and zero-width marks become
    `\x1b` forms, all kinds of spaces plain ones.

    The result is at most `most` characters long.
    """
    if len(text) <= most and text.isprintable() and (text.isascii() or not _is_hard_to_read(text)):
        return text
    safe = _visible_start(text[: most + 1], most)
    if len(safe) <= most:
        return safe
    return safe[: most - 1] + "…"


def is_address(text: str) -> bool:
    """Whether a text is an IP address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_hard_to_read(text: str) -> bool:
    """Whether a text has characters that nobody sees, or any marks: their number is looked at one by one."""
    return _UNSEEN.search(text) is not None or any(unicodedata.category(character) in _MARKS for character in text)


def _visible_start(text: str, most: int) -> str:
    """The text made visible, cut once it has more than `most` characters."""
    pieces: list[str] = []
    size = 0
    marks = 0
    for character in text:
        marks = marks + 1 if unicodedata.category(character) in _MARKS else 0
        piece = _visible(character) if marks <= _MOST_MARKS else _escaped(character)
        pieces.append(piece)
        size += len(piece)
        if size > most:
            break
    return "".join(pieces)


def _visible(character: str) -> str:
    """A character as it may be printed: itself, a blank, or its number in an escaped form."""
    category = unicodedata.category(character)
    if category == "Zs":
        return " "
    if category in _UNSAFE_CATEGORIES or _UNSEEN.match(character):
        return _escaped(character)
    return character


def _escaped(character: str) -> str:
    """The number of a character, as Python writes it."""
    code_point = ord(character)
    if code_point < 0x100:
        return f"\\x{code_point:02x}"
    if code_point < 0x10000:
        return f"\\u{code_point:04x}"
    return f"\\U{code_point:08x}"

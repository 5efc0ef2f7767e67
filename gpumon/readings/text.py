"""Text from outside (labels, process names, model ids) made safe to print."""

from __future__ import annotations

import ipaddress
import unicodedata
from collections.abc import Container

MOST_CHARACTERS = 256
"""Characters kept of one text; the cut is marked with an ellipsis."""
MOST_FAULT = 1024
"""Characters kept of a fault: more, as its last words say what to do."""

_UNSAFE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories of characters that a terminal interprets, or that nobody sees."""


def free_name(name: str, taken: Container[str]) -> str:
    """The name, with a number behind it if it is taken: `chat-2`."""
    free = name
    number = 2
    while free in taken:
        free = f"{name}-{number}"
        number += 1
    return free


def clean(text: str, most: int = MOST_CHARACTERS) -> str:
    r"""`text` without characters that a terminal interprets: controls, bidi and zero-width marks become `\x1b` forms,
    all kinds of spaces plain ones.

    The result is at most `most` characters long.
    """
    if len(text) <= most and text.isprintable():
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


def _visible_start(text: str, most: int) -> str:
    """The text made visible, cut once it has more than `most` characters."""
    pieces: list[str] = []
    size = 0
    for character in text:
        piece = _visible(character)
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
    if category not in _UNSAFE_CATEGORIES:
        return character
    code_point = ord(character)
    if code_point < 0x100:
        return f"\\x{code_point:02x}"
    if code_point < 0x10000:
        return f"\\u{code_point:04x}"
    return f"\\U{code_point:08x}"

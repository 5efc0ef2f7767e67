"""Text from outside (labels, process names, model ids) made safe to print."""

from __future__ import annotations

import unicodedata

_MOST = 256
"""Characters kept of one text; the cut is marked with an ellipsis."""
MOST_FAULT = 1024
"""The same of what is wrong: its last words are what to do about it."""

_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def clean(text: str, most: int = _MOST) -> str:
    r"""`text` without characters that a terminal interprets: controls, bidi and zero-width marks become `\x1b` forms,
    all kinds of spaces plain ones.

    The result is at most `most` characters long.
    """
    if len(text) <= most and text.isprintable():
        return text
    safe = _visible_start(text[: most + 1], most)
    if len(safe) <= most and len(text) <= most:
        return safe
    return safe[: most - 1] + "…"


def _visible_start(text: str, most: int) -> str:
    """The text in visible characters, as far as is needed to tell that it has more than `most`."""
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
    category = unicodedata.category(character)
    if category == "Zs":
        return " "
    if category not in _UNSAFE:
        return character
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    if code < 0x10000:
        return f"\\u{code:04x}"
    return f"\\U{code:08x}"

"""Label matchers of PromQL, as `[prometheus].match` has them: `cluster="a",env=~"prod.*"`."""

from __future__ import annotations

import re
from typing import Final

_TEXT: Final = r"""(?:"(?:[^"\\\n]|\\[^\n])*"|'(?:[^'\\\n]|\\[^\n])*'|`[^`\n]*`)"""
_ONE: Final = re.compile(rf"\s*([A-Za-z_][A-Za-z0-9_]*)\s*(?:=~|!~|!=|=)\s*{_TEXT}\s*(?:,|\Z)")


def matched(text: str) -> tuple[str, ...]:
    """The labels, up to what is no matcher."""
    return tuple(name for name, _ in _read(text))


def problem(text: str) -> str:
    """What is wrong with it; empty: nothing, as with an empty text."""
    found = _read(text)
    if "__name__" in matched(text):
        return "must not match __name__, which every query has already"
    if text[found[-1][1] if found else 0 :].strip():
        return 'must be label matchers, such as cluster="a",env=~"prod.*", without braces'
    return ""


def _read(text: str) -> list[tuple[str, int]]:
    """Label and end of each matcher."""
    found: list[tuple[str, int]] = []
    while (one := _ONE.match(text, found[-1][1] if found else 0)) is not None:
        found.append((one[1], one.end()))
    return found
